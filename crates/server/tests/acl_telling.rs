//! Users who may not do everything, and what others do: channels that they may listen to, keys that they wait
//! for, and what others are told of their scripts and blocks.

mod support;

use support::{Client, TestServer, show};

const NO_CHANNEL: &str =
    "-NOPERM this user has no permissions to access one of the channels used as arguments";
const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments";

/// What a connection is told next.
fn next(client: &mut Client) -> String {
    show(&client.read())
}

fn send(client: &mut Client, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    client.send(&words);
}

/// A connection of a user.
fn client_of(server: &TestServer, user: &str) -> Client {
    let mut client = server.client();
    client.talk(&[(&format!("AUTH {user} x"), "OK")]);
    client
}

/// The newest entry of ACL LOG, as `reason context object username`.
fn newest_of_log(client: &mut Client) -> String {
    let shown = client.line("ACL LOG 1");
    let field = |name: &str| {
        let from = shown.find(&format!("\"{name}\"")).expect("the field");
        let value = shown[from..].split('"').nth(3);
        value.expect("a value").to_owned()
    };
    ["reason", "context", "object", "username"].map(field).join(" ")
}

#[test]
fn channels_are_allowed_by_name_and_patterns_letter_by_letter() {
    let (server, _dir) = TestServer::start(&[]);
    let mut admin = server.client();
    // By default, only the default user has channels.
    admin.talk(&[
        ("PUBLISH foo bar", "0"),
        ("SPUBLISH foo bar", "0"),
        ("ACL SETUSER psuser on nopass +acl +multi +discard +exec +eval +@pubsub +client", "OK"),
    ]);
    let mut r = client_of(&server, "psuser");
    for line in ["PUBLISH foo bar", "SPUBLISH foo bar", "SUBSCRIBE foo", "SSUBSCRIBE foo", "PSUBSCRIBE bar*"]
    {
        r.talk(&[(line, NO_CHANNEL)]);
    }
    assert_eq!(newest_of_log(&mut admin), "channel toplevel bar* psuser");
    r.talk(&[
        ("ACL SETUSER psuser resetchannels &foo:1 &bar:*", "OK"),
        ("PUBLISH foo:1 somemessage", "0"),
        ("SPUBLISH bar:2 anothermessage", "0"),
        ("PUBLISH zap:3 nosuchmessage", NO_CHANNEL),
        ("SPUBLISH zap:3 nosuchmessage", NO_CHANNEL),
        // In a transaction, too.
        ("MULTI", "OK"),
        ("PUBLISH notexits helloworld", NO_CHANNEL),
        ("DISCARD", "OK"),
        ("MULTI", "OK"),
        ("SUBSCRIBE notexits foo:1", NO_CHANNEL),
        ("DISCARD", "OK"),
        ("MULTI", "OK"),
        ("PSUBSCRIBE notexits:* bar:*", NO_CHANNEL),
        ("DISCARD", "OK"),
        ("SUBSCRIBE foo:1", "[\"subscribe\" \"foo:1\" 1]"),
        ("SUBSCRIBE bar:2", "[\"subscribe\" \"bar:2\" 2]"),
        ("SUBSCRIBE zap:3", NO_CHANNEL),
        ("SSUBSCRIBE bar:2", "[\"ssubscribe\" \"bar:2\" 1]"),
        ("SSUBSCRIBE zap:3", NO_CHANNEL),
        ("PSUBSCRIBE foo:1", "[\"psubscribe\" \"foo:1\" 3]"),
        ("PSUBSCRIBE bar:*", "[\"psubscribe\" \"bar:*\" 4]"),
        ("PSUBSCRIBE bar:baz", NO_CHANNEL),
        ("RESET", "RESET"),
        ("AUTH psuser x", "OK"),
    ]);
    let script = |channel: &str| format!("return redis.call('publish', '{channel}', 'm')");
    assert_eq!(show(&r.call(&["EVAL", &script("foo:1"), "0"])), "0");
    let refused = show(&r.call(&["EVAL", &script("zap"), "0"]));
    assert!(refused.contains("can't publish to the channel"), "{refused}");
    assert_eq!(newest_of_log(&mut admin), "channel lua zap psuser");
}

#[test]
fn subscribers_end_when_their_channels_are_withdrawn() {
    for (rules, listen, withdrawn) in [
        ("resetchannels &foo:1", "SUBSCRIBE foo:1", "resetchannels"),
        ("resetchannels &foo:1", "SSUBSCRIBE foo:1", "resetchannels"),
        ("resetchannels &bar:*", "PSUBSCRIBE bar:*", "resetchannels"),
        ("allchannels", "PSUBSCRIBE foo", "resetchannels"),
        ("allchannels", "SUBSCRIBE foo", "off resetchannels &bar"),
    ] {
        let (server, _dir) = TestServer::start(&[]);
        let mut admin = server.client();
        admin.line(&format!("ACL SETUSER psuser on nopass +@all ~* {rules}"));
        let mut listener = client_of(&server, "psuser");
        send(&mut listener, listen);
        next(&mut listener);
        admin.talk(&[(&format!("ACL SETUSER psuser {withdrawn}"), "OK")]);
        assert_eq!(listener.try_read(), None, "{listen}");
    }
}

#[test]
fn subscribers_stay_when_their_channels_do() {
    let (server, _dir) = TestServer::start(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER psuser on nopass +@all ~* resetchannels &foo:1 &bar:* &orders");
    let mut listener = client_of(&server, "psuser");
    for line in ["SUBSCRIBE foo:1", "SSUBSCRIBE orders", "PSUBSCRIBE bar:*"] {
        send(&mut listener, line);
        next(&mut listener);
    }
    // A waiting one ends only if it listens.
    let mut waiter = client_of(&server, "psuser");
    send(&mut waiter, "BLPOP queue 0");
    admin.wait_for_info("blocked_clients:1");
    for rules in [
        "resetchannels &foo:1 &bar:* &orders &baz:qaz &zoo:*",
        "allchannels",
        "resetchannels &foo:1 &bar:* &orders",
        // It listens to nothing that this takes away.
        "resetchannels &foo:1 &bar:* &orders -set",
    ] {
        admin.talk(&[(&format!("ACL SETUSER psuser {rules}"), "OK")]);
        admin.talk(&[("PUBLISH bar:1 m", "1")]);
        assert_eq!(next(&mut listener), "[\"pmessage\" \"bar:*\" \"bar:1\" \"m\"]", "{rules}");
    }
    admin.talk(&[("ACL SETUSER psuser resetchannels", "OK"), ("RPUSH queue 1", "1")]);
    assert_eq!(listener.try_read(), None);
    assert_eq!(next(&mut waiter), "[\"queue\" \"1\"]");
    // Nobody listens any more.
    admin.talk(&[("PUBLISH bar:1 m", "0")]);
}

#[test]
fn who_waits_is_checked_when_it_begins_and_when_it_tries() {
    let (server, _dir) = TestServer::start(&[]);
    let mut admin = server.client();
    admin.line("ACL SETUSER alice on nopass ~app:* +@all -bzpopmin");
    let mut r = client_of(&server, "alice");
    r.talk(&[
        ("BLPOP app:a other 0", NO_KEY),
        ("BLMOVE app:a other LEFT RIGHT 0", NO_KEY),
        ("BLMPOP 0 2 app:a other LEFT", NO_KEY),
        ("XREAD BLOCK 0 STREAMS app:a other $ $", NO_KEY),
        ("BZPOPMIN app:a 0", "-NOPERM this user has no permissions to run the 'bzpopmin' command"),
        ("BLPOP app:a app:b 0.01", "nil-array"),
    ]);
    send(&mut r, "BLPOP app:a app:b 0");
    admin.wait_for_info("blocked_clients:1");
    admin.line("RPUSH app:b 1");
    assert_eq!(next(&mut r), "[\"app:b\" \"1\"]");
    // What it may not do any more it does not do, and the element stays.
    for (withdrawn, given, error) in [
        ("resetkeys", "~app:*", NO_KEY),
        ("-blpop", "+blpop", "-NOPERM this user has no permissions to run the 'blpop' command"),
    ] {
        send(&mut r, "BLPOP app:a 0");
        admin.wait_for_info("blocked_clients:1");
        admin.line(&format!("ACL SETUSER alice {withdrawn}"));
        admin.talk(&[("RPUSH app:a 1", "1")]);
        assert_eq!(next(&mut r), error);
        admin.talk(&[("LPOP app:a", "\"1\"")]);
        admin.wait_for_info("blocked_clients:0");
        admin.line(&format!("ACL SETUSER alice {given}"));
    }
    r.talk(&[("BLPOP app:a 0.01", "nil-array")]);
    // A user that is deleted waits for nothing.
    send(&mut r, "BLPOP app:a app:b 0");
    admin.wait_for_info("blocked_clients:1");
    admin.talk(&[("ACL DELUSER alice", "1")]);
    assert_eq!(r.try_read(), None);
    admin.wait_for_info("blocked_clients:0");
    admin.talk(&[("RPUSH app:a 1", "1"), ("LLEN app:a", "1")]);
}

#[test]
fn others_are_told_what_restricted_users_do() {
    let (server, _dir) = TestServer::start(&[("notify-keyspace-events", "KEA")]);
    let mut admin = server.client();
    admin.line("ACL SETUSER alice on nopass ~app:* &news +@all -@dangerous");
    let (mut listener, mut waiter, mut tracker) = (server.client(), server.client(), server.client());
    listener.line("PSUBSCRIBE __keyevent@0__:*");
    send(&mut listener, "SUBSCRIBE news");
    next(&mut listener);
    tracker.line("HELLO 3");
    tracker.talk(&[("CLIENT TRACKING ON", "OK"), ("GET app:k", "nil")]);
    send(&mut waiter, "BLPOP app:queue 0");
    admin.wait_for_info("blocked_clients:1");

    let mut r = client_of(&server, "alice");
    let event = |name: &str, key: &str| {
        format!("[\"pmessage\" \"__keyevent@0__:*\" \"__keyevent@0__:{name}\" \"{key}\"]")
    };
    let message = |text: &str| format!("[\"message\" \"news\" \"{text}\"]");
    // A script, with what it was not allowed in between.
    let script = "redis.call('set', 'app:k', '1') redis.pcall('set', 'other', '1')
        redis.call('publish', 'news', 'of a script') redis.call('rpush', 'app:queue', 'job') return 'done'";
    assert_eq!(show(&r.call(&["EVAL", script, "0"])), "\"done\"");
    assert_eq!(newest_of_log(&mut admin), "key lua other alice");
    assert_eq!(next(&mut waiter), "[\"app:queue\" \"job\"]");
    assert_eq!(next(&mut tracker), ">[\"invalidate\" [\"app:k\"]]");
    for told in [
        event("set", "app:k"),
        message("of a script"),
        event("rpush", "app:queue"),
        event("lpop", "app:queue"),
        event("del", "app:queue"),
    ] {
        assert_eq!(next(&mut listener), told);
    }
    // A function.
    let library = "#!lua name=l\nredis.register_function('f', function(keys)
        redis.call('publish', 'news', 'of a function') return redis.call('incr', keys[1]) end)";
    assert_eq!(show(&admin.call(&["FUNCTION", "LOAD", library])), "\"l\"");
    r.talk(&[("FCALL f 1 app:k", "2"), ("FCALL f 1 other", NO_KEY)]);
    assert_eq!(next(&mut listener), message("of a function"));
    assert_eq!(next(&mut listener), event("incrby", "app:k"));
    // A block: who got its message is known to this node only.
    r.talk(&[
        ("MULTI", "OK"),
        ("APPEND app:k x", "QUEUED"),
        ("ACL WHOAMI", "QUEUED"),
        ("PUBLISH news block", "QUEUED"),
        ("EXEC", "[2 \"alice\" 1]"),
    ]);
    assert_eq!(next(&mut listener), event("append", "app:k"));
    assert_eq!(next(&mut listener), message("block"));
    // A command that is sent once.
    r.talk(&[("ORDO.IDEMPOTENT id LPUSH app:l 1", "1")]);
    assert_eq!(next(&mut listener), event("lpush", "app:l"));
}

#[test]
fn a_restricted_users_scripts_are_refused_memory_like_others() {
    let (server, _dir) = TestServer::start(&[]);
    let mut admin = server.client();
    let library = "#!lua name=l
        redis.register_function('w', function(keys) return redis.call('set', keys[1], '1') end)
        redis.register_function{function_name='aw', flags={'allow-oom'}, callback=function(keys)
            return redis.call('set', keys[1], '1') end}";
    assert_eq!(show(&admin.call(&["FUNCTION", "LOAD", library])), "\"l\"");
    admin.talk(&[("ACL SETUSER alice on nopass ~app:* +@all", "OK"), ("CONFIG SET maxmemory 1mb", "OK")]);
    let is_short = (0..100_000).any(|_| admin.line("SET x y").starts_with("-OOM "));
    assert!(is_short);
    let mut r = client_of(&server, "alice");
    let writes = |key: &str| format!("return redis.call('set', '{key}', '1')");
    let refused = |reply: String, part: &str| {
        assert!(reply.starts_with('-') && reply.contains(part), "{reply}");
    };
    let (no_memory, no_right) = ("OOM command not allowed", "can't access at least one");
    refused(show(&r.call(&["EVAL", &writes("app:k"), "0"])), no_memory);
    // What is not allowed is said first, as in Redis.
    refused(show(&r.call(&["EVAL", &writes("other"), "0"])), no_right);
    // A write that is not allowed is none: the script still has written nothing.
    let denied_first = format!("redis.pcall('del', 'other') {}", writes("app:k"));
    refused(show(&r.call(&["EVAL", &denied_first, "0"])), no_memory);
    let written_first = format!("redis.call('del', 'app:k') {}", writes("app:k"));
    assert_eq!(show(&r.call(&["EVAL", &written_first, "0"])), "OK");
    refused(r.line("FCALL w 1 app:k"), no_memory);
    r.talk(&[("FCALL aw 1 app:k", "OK")]);
    refused(r.line("FCALL aw 1 other"), "NOPERM");
    refused(r.line("ORDO.IDEMPOTENT id FCALL w 1 app:k"), no_memory);
}

#[test]
fn the_password_of_default_is_not_set_in_a_block() {
    let (server, _dir) = TestServer::start(&[("requirepass", "first")]);
    let mut r = server.client();
    r.talk(&[("AUTH first", "OK"), ("ACL SETUSER default >more", "OK")]);
    r.talk(&[("MULTI", "OK")]);
    let refused = r.line("CONFIG SET maxclients 100 requirepass second");
    assert!(refused.contains("not allowed inside a transaction"));
    r.talk(&[
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("MULTI", "OK"),
        ("CONFIG SET maxclients 100", "QUEUED"),
        ("EXEC", "[OK]"),
    ]);
    server.client().talk(&[("AUTH first", "OK")]);
}
