//! What a connection hears of others: elements that it waited for, messages, changes of keys that it has
//! read.

#![allow(clippy::disallowed_methods, reason = "clocks belong to the server's tests, too")]

mod support;

use std::time::{Duration, Instant};
use support::{Client, TestServer, show};

/// Reads what comes next, shown on a line.
fn next(client: &mut Client) -> String {
    show(&client.read())
}

fn send(client: &mut Client, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    client.send(&words);
}

#[test]
fn who_waits_gets_what_comes() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut waiter, mut other) = (server.client(), server.client());
    for (wait, fill, reply) in [
        ("BLPOP a b 0", "RPUSH b 1", "[\"b\" \"1\"]"),
        ("BRPOP a 0", "RPUSH a 1 2", "[\"a\" \"2\"]"),
        ("BLMOVE s d LEFT RIGHT 0", "LPUSH s x", "\"x\""),
        ("BRPOPLPUSH s d 0", "LPUSH s y", "\"y\""),
        ("BLMPOP 0 2 m n LEFT COUNT 2", "RPUSH n 1 2 3", "[\"n\" [\"1\" \"2\"]]"),
        ("BZPOPMIN z 0", "ZADD z 2 b 1 a", "[\"z\" \"a\" \"1\"]"),
        ("BZPOPMAX y 0", "ZADD y 2 b 1 a", "[\"y\" \"b\" \"2\"]"),
        ("BZMPOP 0 1 x MIN", "ZADD x 1 a", "[\"x\" [[\"a\" \"1\"]]]"),
        ("XREAD BLOCK 0 STREAMS t $", "XADD t 5-1 f v", "[[\"t\" [[\"5-1\" [\"f\" \"v\"]]]]]"),
        ("BLPOP l 0", "EVAL return{redis.call(\'rpush\',\'l\',\'s\')} 0", "[\"l\" \"s\"]"),
        ("BLPOP r 0", "RENAME a r", "[\"r\" \"1\"]"),
    ] {
        send(&mut waiter, wait);
        other.wait_for_info("blocked_clients:1");
        let filled = other.line(fill);
        assert!(!filled.starts_with('-'), "{fill}: {filled}");
        assert_eq!(next(&mut waiter), reply, "{wait}");
    }
    other.wait_for_info("blocked_clients:0");
    // A key that becomes something else disturbs nobody who waits; what cannot be done is said.
    send(&mut waiter, "BLPOP c f 0");
    other.wait_for_info("blocked_clients:1");
    other.talk(&[("SET c string", "OK"), ("RPUSH f 1", "1")]);
    assert_eq!(next(&mut waiter), "[\"f\" \"1\"]");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    for (wait, fill, reply) in [
        ("BLMOVE e c LEFT LEFT 0", "RPUSH e 1", wrong),
        (
            "XREADGROUP GROUP g me BLOCK 0 STREAMS s1 >",
            "DEL s1",
            "-NOGROUP No such key 's1' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        (
            "XREADGROUP GROUP g me BLOCK 0 STREAMS s2 >",
            "FLUSHALL",
            "-NOGROUP No such key 's2' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        (
            "XREADGROUP GROUP g me BLOCK 0 STREAMS s1 s2 > >",
            "XGROUP DESTROY s2 g",
            "-NOGROUP No such key 's2' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        ("XREADGROUP GROUP g me BLOCK 0 STREAMS s1 >", "SET s1 string", wrong),
        (
            "XREADGROUP GROUP g me BLOCK 0 STREAMS s1 >",
            "PEXPIRE s1 50",
            "-NOGROUP No such key 's1' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
    ] {
        other.line("DEL s1");
        other.line("XGROUP CREATE s1 g $ MKSTREAM");
        other.line("XGROUP CREATE s2 g $ MKSTREAM");
        send(&mut waiter, wait);
        other.wait_for_info("blocked_clients:1");
        other.line(fill);
        assert_eq!(next(&mut waiter), reply, "{wait}");
    }
}

#[test]
fn who_waits_longest_is_served_first() {
    let (server, _dir) = TestServer::start(&[]);
    let mut other = server.client();
    let mut waiters: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for (place, waiter) in waiters.iter_mut().enumerate() {
        send(waiter, "BLPOP first q 0");
        other.wait_for_info(&format!("blocked_clients:{}", place + 1));
    }
    // All at once, then one at a time, and in a block.
    for line in ["RPUSH q 0 1 2", "RPUSH q 3", "MULTI", "RPUSH q 4", "RPUSH q 5 6 7", "EXEC"] {
        other.line(line);
    }
    for (place, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(next(waiter), format!("[\"q\" \"{place}\"]"));
    }
    other.talk(&[("LLEN q", "0")]);
}

#[test]
fn a_wait_ends_with_its_time_or_when_somebody_ends_it() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut waiter, mut other) = (server.client(), server.client());
    let start = Instant::now();
    waiter.talk(&[("BLPOP a 0.15", "nil-array"), ("BLMOVE a b LEFT LEFT 0.05", "nil-array")]);
    assert!(start.elapsed() >= Duration::from_millis(200));
    waiter.talk(&[
        ("XREAD BLOCK 20 STREAMS s 0", "nil-array"),
        ("BLPOP a -1", "-ERR timeout is negative"),
        ("BLPOP a x", "-ERR timeout is not a float or out of range"),
        ("SET string v", "OK"),
        ("BLPOP string 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
    let id = waiter.line("CLIENT ID");
    for (how, reply) in [
        ("", "nil-array"),
        (" TIMEOUT", "nil-array"),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        send(&mut waiter, "BLPOP a 0");
        other.wait_for_info("blocked_clients:1");
        assert_eq!(other.line(&format!("CLIENT UNBLOCK {id}{how}")), "1");
        assert_eq!(next(&mut waiter), reply);
    }
    assert_eq!(other.line(&format!("CLIENT UNBLOCK {id}")), "0");
}

#[test]
fn what_follows_a_wait_waits_with_it() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut waiter, mut other) = (server.client(), server.client());
    for line in ["SET k 1", "BLPOP q 0", "INCR k", "BLPOP q 0.01"] {
        send(&mut waiter, line);
    }
    assert_eq!(next(&mut waiter), "OK");
    other.wait_for_info("blocked_clients:1");
    other.talk(&[("GET k", "\"1\""), ("RPUSH q x", "1")]);
    let rest: Vec<String> = (0..3).map(|_| next(&mut waiter)).collect();
    assert_eq!(rest, ["[\"q\" \"x\"]", "2", "nil-array"]);
    // Nothing waits in a block or a script.
    waiter.talk(&[
        ("MULTI", "OK"),
        ("BLPOP q 0", "QUEUED"),
        ("EXEC", "[nil-array]"),
        ("EVAL return{redis.call(\'blpop\',\'q\',0)} 0", "[nil]"),
    ]);
}

#[test]
fn consumers_of_a_group_wait_behind_each_other_and_order_nothing_meanwhile() {
    let (server, _dir) = TestServer::start(&[]);
    let mut other = server.client();
    other.talk(&[("XGROUP CREATE s g $ MKSTREAM", "OK"), ("XGROUP CREATE s h $", "OK")]);
    let mut waiters: Vec<Client> = Vec::new();
    for (place, group) in ["g", "g", "h"].iter().enumerate() {
        let mut waiter = server.client();
        let line = format!("XREADGROUP GROUP {group} c{place} COUNT 1 BLOCK 0 STREAMS s >");
        send(&mut waiter, &line);
        other.wait_for_info(&format!("blocked_clients:{}", place + 1));
        waiters.push(waiter);
    }
    // Their attempts come to an end: what they look at is not theirs to write.
    let mut position = || {
        let info = other.info();
        let field = info.lines().find(|line| line.starts_with("delivered_position:"));
        let position = field.map(ToOwned::to_owned);
        (0..300).for_each(|_| assert_eq!(other.line("PING"), "PONG"));
        position.expect("a field of INFO")
    };
    let is_still = (0..100).any(|_| position() == position());
    assert!(is_still, "somebody who waits orders something all the time");
    other.line("XADD s 1-1 f 1");
    assert!(next(&mut waiters[0]).contains("1-1"));
    assert!(next(&mut waiters[2]).contains("1-1"));
    other.line("XADD s 1-2 f 2");
    assert!(next(&mut waiters[1]).contains("1-2"));
}

#[test]
fn who_comes_behind_others_hears_what_is_wrong() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut waiter, mut other) = (server.client(), server.client());
    send(&mut waiter, "BLPOP a b 0");
    other.wait_for_info("blocked_clients:1");
    other.talk(&[
        ("SET a v", "OK"),
        ("BLPOP a 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("BLMOVE b c FOO LEFT 0", "-ERR syntax error"),
        ("BLMPOP 0 1 b FOO", "-ERR syntax error"),
        ("RPUSH free x", "1"),
        ("BLPOP b free 0", "[\"free\" \"x\"]"),
        ("BLPOP b 0.01", "nil-array"),
        ("RPUSH b 1", "1"),
    ]);
    assert_eq!(next(&mut waiter), "[\"b\" \"1\"]");
}

#[test]
fn a_client_that_is_gone_takes_nothing() {
    let (server, _dir) = TestServer::start(&[]);
    let mut other = server.client();
    for ending in ["close", "half", "kill", "user"] {
        let mut waiter = server.client();
        if ending == "user" {
            other.talk(&[("ACL SETUSER u on nopass ~* +@all", "OK")]);
            waiter.talk(&[("AUTH u any", "OK")]);
        }
        let id = waiter.line("CLIENT ID");
        send(&mut waiter, "BLPOP q 0");
        other.wait_for_info("blocked_clients:1");
        match ending {
            "close" => drop(waiter),
            "half" => {
                waiter.end();
                assert_eq!(waiter.try_read(), None);
            }
            "user" => {
                assert_eq!(other.line("ACL DELUSER u"), "1");
                assert_eq!(waiter.try_read(), None);
            }
            _ => assert_eq!(other.line(&format!("CLIENT KILL ID {id}")), "1"),
        }
        other.wait_for_info("blocked_clients:0");
        other.talk(&[("RPUSH q x", "1"), ("LPOP q", "\"x\"")]);
    }
}

#[test]
fn messages_reach_who_listens() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut listener, mut other) = (server.client(), server.client());
    assert_eq!(listener.line("SUBSCRIBE news sport"), ">[\"subscribe\" \"news\" 1]".replace('>', ""));
    assert_eq!(next(&mut listener), "[\"subscribe\" \"sport\" 2]");
    listener.talk(&[
        ("PSUBSCRIBE n*s", "[\"psubscribe\" \"n*s\" 3]"),
        ("PING", "[\"pong\" \"\"]"),
        ("PING x", "[\"pong\" \"x\"]"),
        ("PING x y", "-ERR wrong number of arguments for 'ping' command"),
    ]);
    assert!(listener.line("GET k").starts_with("-ERR Can\'t execute \'get\'"));
    other.talk(&[
        ("PUBLISH news one", "2"),
        ("PUBLISH nobody x", "0"),
        ("MULTI", "OK"),
        ("SET k v", "QUEUED"),
        ("PUBLISH sport two", "QUEUED"),
        ("EXEC", "[OK 1]"),
        ("EVAL return{redis.call(\'publish\',\'news\',\'three\')} 0", "[0]"),
        ("SPUBLISH news shard", "0"),
        ("PUBSUB CHANNELS", "[\"news\" \"sport\"]"),
        ("PUBSUB CHANNELS s*", "[\"sport\"]"),
        (
            "PUBSUB CHANNELS a b",
            "-ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.",
        ),
        ("PUBSUB NUMSUB news none", "[\"news\" 1 \"none\" 0]"),
        ("PUBSUB NUMPAT", "1"),
    ]);
    let heard: Vec<String> = (0..5).map(|_| next(&mut listener)).collect();
    assert_eq!(
        heard,
        [
            "[\"message\" \"news\" \"one\"]",
            "[\"pmessage\" \"n*s\" \"news\" \"one\"]",
            "[\"message\" \"sport\" \"two\"]",
            "[\"message\" \"news\" \"three\"]",
            "[\"pmessage\" \"n*s\" \"news\" \"three\"]",
        ]
    );
    listener.talk(&[
        ("SSUBSCRIBE news", "[\"ssubscribe\" \"news\" 1]"),
        ("UNSUBSCRIBE news", "[\"unsubscribe\" \"news\" 2]"),
        ("UNSUBSCRIBE", "[\"unsubscribe\" \"sport\" 1]"),
        ("UNSUBSCRIBE", "[\"unsubscribe\" nil 1]"),
        ("PUNSUBSCRIBE", "[\"punsubscribe\" \"n*s\" 0]"),
    ]);
    other.talk(&[("SPUBLISH news shard", "1"), ("PUBSUB SHARDNUMSUB news", "[\"news\" 1]")]);
    assert_eq!(next(&mut listener), "[\"smessage\" \"news\" \"shard\"]");
    listener.talk(&[("RESET", "RESET"), ("GET k", "\"v\"")]);
    other.talk(&[("SPUBLISH news shard", "0"), ("PUBSUB SHARDCHANNELS", "[]")]);
}

#[test]
fn a_publisher_is_heard_in_its_order() {
    const MESSAGES: usize = 5000;
    let (server, _dir) = TestServer::start(&[]);
    let mut listener = server.client();
    listener.line("SUBSCRIBE c");
    let mut publisher = server.client();
    let mut bytes = Vec::new();
    for number in 0..MESSAGES {
        let number = number.to_string();
        redis_surface::codec::encode_command(&["PUBLISH", "c", &number], &mut bytes);
    }
    publisher.send_raw(&bytes);
    for number in 0..MESSAGES {
        assert_eq!(next(&mut publisher), "1");
        assert_eq!(next(&mut listener), format!("[\"message\" \"c\" \"{number}\"]"));
    }
}

#[test]
fn changes_of_keys_are_published_as_the_setting_says() {
    let (server, _dir) = TestServer::start(&[("notify-keyspace-events", "KEA")]);
    let (mut listener, mut other) = (server.client(), server.client());
    // What is no reply is not silenced.
    send(&mut listener, "CLIENT REPLY OFF");
    assert_eq!(listener.line("PSUBSCRIBE *"), "[\"psubscribe\" \"*\" 1]");
    let mut expect = |other: &mut Client, line: &str, events: &[(&str, &str)]| {
        other.line(line);
        for (event, key) in events {
            for (channel, payload) in
                [(format!("__keyspace@0__:{key}"), *event), (format!("__keyevent@0__:{event}"), *key)]
            {
                let want = format!("[\"pmessage\" \"*\" \"{channel}\" \"{payload}\"]");
                assert_eq!(next(&mut listener), want, "{line}");
            }
        }
    };
    expect(&mut other, "SET s v", &[("set", "s")]);
    expect(&mut other, "SET s v EX 100", &[("set", "s"), ("expire", "s")]);
    expect(&mut other, "GET s", &[]);
    expect(&mut other, "RPUSH l a b", &[("rpush", "l")]);
    expect(&mut other, "LMOVE l m LEFT RIGHT", &[("rpush", "m"), ("lpop", "l")]);
    expect(&mut other, "RPOP l", &[("rpop", "l"), ("del", "l")]);
    expect(&mut other, "RPOPLPUSH m m", &[("lpush", "m"), ("rpop", "m")]);
    expect(&mut other, "HSET h f v", &[("hset", "h")]);
    expect(&mut other, "ZADD z 1 a", &[("zadd", "z")]);
    expect(&mut other, "ZADD z INCR 1 a", &[("zincr", "z")]);
    expect(&mut other, "ZADD z INCR 0 a", &[]);
    expect(&mut other, "SADD p a", &[("sadd", "p")]);
    expect(&mut other, "SMOVE p q a", &[("srem", "p"), ("del", "p"), ("sadd", "q")]);
    expect(&mut other, "DECRBY d 2", &[("incrby", "d")]);
    expect(&mut other, "DEL h z none", &[("del", "h"), ("del", "z")]);
    expect(&mut other, "RENAME m n", &[("rename_from", "m"), ("rename_to", "n")]);
    expect(&mut other, "XADD x 1-1 f v", &[("xadd", "x")]);
    expect(&mut other, "XGROUP CREATE x g 0", &[("xgroup-create", "x")]);
    expect(&mut other, "XGROUP DELCONSUMER x g none", &[]);
    expect(&mut other, "XADD x MAXLEN 1 2-1 f v", &[("xadd", "x"), ("xtrim", "x")]);
    expect(&mut other, "SET c 1 EX 1000", &[("set", "c"), ("expire", "c")]);
    expect(&mut other, "SET c 1 KEEPTTL", &[("set", "c")]);
    expect(&mut other, "GETEX c PERSIST", &[("persist", "c")]);
    expect(&mut other, "BITFIELD c OVERFLOW FAIL INCRBY u8 0 300", &[]);
    expect(&mut other, "BITFIELD c OVERFLOW FAIL INCRBY u8 100 300", &[]);
    expect(&mut other, "DEL c", &[("del", "c")]);
    expect(&mut other, "RPUSH trimmed a", &[("rpush", "trimmed")]);
    expect(&mut other, "LTRIM trimmed 0 -1", &[("ltrim", "trimmed")]);
    expect(
        &mut other,
        "EVAL redis.call(\'incr\',\'c\')redis.call(\'incrby\',\'c\',2) 0",
        &[("incrby", "c"), ("incrby", "c")],
    );
    expect(&mut other, "PEXPIRE c 1", &[("expire", "c"), ("expired", "c")]);
    other.talk(&[
        ("CONFIG SET notify-keyspace-events lE", "OK"),
        ("CONFIG GET notify-keyspace-events", "[\"notify-keyspace-events\" \"lE\"]"),
    ]);
    assert!(other.line("CONFIG SET notify-keyspace-events q").starts_with("-ERR"));
    other.talk(&[("SET s v", "OK"), ("LPUSH l a", "1")]);
    assert_eq!(next(&mut listener), "[\"pmessage\" \"*\" \"__keyevent@0__:lpush\" \"l\"]");
}

#[test]
fn who_has_read_a_key_is_told_when_it_is_written() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut reader, mut other) = (server.client(), server.client());
    reader.line("HELLO 3");
    reader.talk(&[
        ("CLIENT TRACKING ON", "OK"),
        ("CLIENT GETREDIR", "0"),
        ("SET a 1", "OK"),
        ("GET a", "\"1\""),
        ("GET b", "nil"),
    ]);
    other.talk(&[("INCR a", "2"), ("INCR a", "3"), ("SET b x", "OK")]);
    // Once for each time that it was read.
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"a\"]]");
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"b\"]]");
    reader.talk(&[("GET a", "\"3\"")]);
    other.talk(&[("MSET a 5 c 6", "OK")]);
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"a\"]]");
    reader.talk(&[("EXISTS a c", "2")]);
    other.talk(&[("FLUSHALL", "OK")]);
    assert_eq!(next(&mut reader), ">[\"invalidate\" nil]");
    // Its own writes, too, unless it does not want that.
    reader.talk(&[("GET a", "nil")]);
    send(&mut reader, "SET a 1");
    assert_eq!(next(&mut reader), "OK", "the reply comes first");
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"a\"]]");
    reader.talk(&[
        ("CLIENT TRACKING OFF", "OK"),
        ("CLIENT TRACKING ON NOLOOP", "OK"),
        ("GET a", "\"1\""),
        ("SET a 2", "OK"),
        ("GET a", "\"2\""),
        ("CLIENT TRACKING OFF", "OK"),
    ]);
    other.talk(&[("SET a 3", "OK")]);
    reader.talk(&[("PING", "PONG")]);
}

#[test]
fn a_script_that_reads_nothing_leaves_no_copy() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut reader, mut other) = (server.client(), server.client());
    reader.line("HELLO 3");
    reader.talk(&[("CLIENT TRACKING ON", "OK"), ("EVAL return(redis.call('set',KEYS[1],'x')) 1 a", "OK")]);
    other.talk(&[("SET a 1", "OK")]);
    reader.talk(&[("EVAL_RO return(redis.call('ping')) 1 a", "PONG")]);
    other.talk(&[("SET a 2", "OK")]);
    // One that reads anything has read all of its keys.
    reader.talk(&[("EVAL return(redis.call('get',KEYS[1])) 2 b c", "nil")]);
    other.talk(&[("SET c 1", "OK")]);
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"c\"]]");
    // What was read before stays a copy.
    reader.talk(&[("GET d", "nil"), ("EVAL return(1) 1 d", "1")]);
    other.talk(&[("SET d 1", "OK")]);
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"d\"]]");
}

#[test]
fn a_client_chooses_what_it_is_told_of() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut reader, mut other) = (server.client(), server.client());
    reader.line("HELLO 3");
    reader.talk(&[
        ("CLIENT TRACKING ON OPTIN", "OK"),
        ("GET a", "nil"),
        ("CLIENT CACHING YES", "OK"),
        ("GET b", "nil"),
        ("GET c", "nil"),
        (
            "CLIENT CACHING NO",
            "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
    ]);
    other.talk(&[("MSET a 1 c 1 b 1", "OK")]);
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"b\"]]");
    // In a block it is for what follows there, and for nothing behind the block.
    reader.talk(&[
        ("MULTI", "OK"),
        ("GET a", "QUEUED"),
        ("CLIENT CACHING YES", "QUEUED"),
        ("GET b", "QUEUED"),
        ("EXEC", "[\"1\" OK \"1\"]"),
        ("GET c", "\"1\""),
    ]);
    other.talk(&[("MSET a 1 c 1 b 1", "OK")]);
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"b\"]]");
    reader.talk(&[
        ("CLIENT TRACKING OFF", "OK"),
        ("CLIENT TRACKING ON OPTOUT", "OK"),
        ("CLIENT CACHING NO", "OK"),
        ("GET a", "\"1\""),
        ("GET b", "\"1\""),
    ]);
    other.talk(&[("MSET a 2 b 2", "OK")]);
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"b\"]]");
    reader.talk(&[
        ("CLIENT TRACKING OFF", "OK"),
        ("CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:", "OK"),
        (
            "CLIENT TRACKINGINFO",
            "{\"flags\": ~[\"on\" \"bcast\"], \
                                 \"redirect\": 0, \"prefixes\": [\"item:\" \"user:\"]}",
        ),
        (
            "CLIENT TRACKING ON",
            "-ERR You can\'t switch BCAST mode on/off before disabling tracking for \
                                this client, and then re-enabling it with a different mode.",
        ),
    ]);
    assert!(reader.line("CLIENT TRACKING ON BCAST PREFIX user:1").contains("overlaps"));
    other.talk(&[("MSET x 1 user:1 1", "OK"), ("DEL user:1", "1")]);
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"user:1\"]]");
    assert_eq!(next(&mut reader), ">[\"invalidate\" [\"user:1\"]]");
}

#[test]
fn a_second_connection_hears_for_a_client_of_resp2() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut reader, mut ear, mut other) = (server.client(), server.client(), server.client());
    let id = ear.line("CLIENT ID");
    ear.line("SUBSCRIBE __redis__:invalidate");
    assert_eq!(reader.line(&format!("CLIENT TRACKING ON REDIRECT {id}")), "OK");
    assert_eq!(reader.line("CLIENT GETREDIR"), id);
    reader.talk(&[("GET a", "nil")]);
    other.talk(&[("SET a 1", "OK")]);
    assert_eq!(next(&mut ear), "[\"message\" \"__redis__:invalidate\" [\"a\"]]");
    other.talk(&[("FLUSHALL", "OK"), ("SET a 1", "OK")]);
    assert_eq!(next(&mut ear), "[\"message\" \"__redis__:invalidate\" nil]");
    // The other connection goes: whoever speaks RESP3 hears that it did.
    reader.line("HELLO 3");
    reader.talk(&[("GET a", "\"1\"")]);
    drop(ear);
    other.wait_for_info("pubsub_clients:0");
    other.talk(&[("SET a 2", "OK")]);
    assert_eq!(next(&mut reader), format!(">[\"tracking-redir-broken\" {id}]"));
    assert!(reader.line("CLIENT TRACKINGINFO").contains("broken_redirect"));
    assert_eq!(
        reader.line("CLIENT TRACKING ON REDIRECT 987654"),
        "-ERR The client ID you want redirect to does not exist"
    );
}

/// Writers and readers with copies, on all threads: a copy of which nobody was told is never old.
#[test]
fn a_copy_is_never_older_than_what_was_told() {
    const ROUNDS: usize = 300;
    let (server, _dir) = TestServer::start(&[]);
    let address = server.address;
    let writer = std::thread::spawn(move || {
        let mut writer = Client::connect(address);
        for number in 0..ROUNDS {
            writer.line(&format!("SET k {number}"));
        }
        writer.line("SET k done");
    });
    let mut reader = server.client();
    reader.line("HELLO 3");
    reader.talk(&[("CLIENT TRACKING ON", "OK")]);
    let mut copies = 0;
    loop {
        // An invalidation of an earlier read may come before the reply.
        send(&mut reader, "GET k");
        let value = loop {
            let reply = next(&mut reader);
            if !reply.starts_with('>') {
                break reply;
            }
        };
        copies += 1;
        if value == "\"done\"" {
            break;
        }
        // So this one must be told of: the key is written once more.
        assert_eq!(next(&mut reader), ">[\"invalidate\" [\"k\"]]", "after {value}");
    }
    writer.join().expect("the writer writes");
    assert!(copies > 1);
}
