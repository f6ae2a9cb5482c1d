//! Redis's own tests of ACLs (tests/unit/acl.tcl and acl-v2.tcl of 7.0.15), by their names, over sockets.
//!
//! Those of publish and subscribe are in `acl_telling.rs`. Those of DEBUG, MIGRATE and MEMORY DOCTOR are
//! nowhere: these commands are not, yet. What rules say of them is in the unit tests of `redis_surface::acl`.

mod support;

use redis_surface::acl::PasswordHash;
use support::{Client, TestServer, show};
use txn::Reply;

/// A reply as one line, of words that may be empty or hold spaces.
fn say(client: &mut Client, words: &[&str]) -> String {
    show(&client.call(words))
}

/// What ACL GETUSER says under a name.
fn of_user(client: &mut Client, user: &str, field: &str) -> String {
    field_of(&client.call(&["ACL", "GETUSER", user]), field)
}

fn field_of(reply: &Reply, field: &str) -> String {
    let parts = match reply {
        Reply::Array(parts) => parts,
        other => panic!("{other:?}"),
    };
    let place = parts.iter().position(|part| show(part) == format!("\"{field}\""));
    show(&parts[place.expect("the field is there") + 1])
}

/// The newest entry of ACL LOG, as `reason context object username count`.
fn logged(client: &mut Client) -> String {
    match client.call(&["ACL", "LOG", "1"]) {
        Reply::Array(entries) => {
            let fields = ["reason", "context", "object", "username", "count"];
            let shown = fields.map(|field| field_of(&entries[0], field).replace('"', ""));
            shown.join(" ")
        }
        other => panic!("{other:?}"),
    }
}

fn refused(client: &mut Client, line: &str, part: &str) {
    let reply = client.line(line);
    assert!(reply.starts_with('-') && reply.contains(part), "{line}: {reply}");
}

const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments";
const WRONG_PASSWORD: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

fn no_command(name: &str) -> String {
    format!("-NOPERM this user has no permissions to run the '{name}' command")
}

#[test]
fn connections_users_and_passwords() {
    let (server, _dir) = TestServer::start(&[]);
    let mut r = server.client();
    // Connections start with the default user.
    r.talk(&[("ACL WHOAMI", "\"default\""), ("ACL SETUSER newuser", "OK")]);
    // Usernames can not contain spaces or null characters.
    for name in ["a a", "a\0a"] {
        assert_eq!(
            say(&mut r, &["ACL", "SETUSER", name]),
            "-ERR Usernames can't contain spaces or null characters"
        );
    }
    r.talk(&[
        // New users start disabled.
        ("ACL SETUSER newuser >passwd1", "OK"),
        ("AUTH newuser passwd1", WRONG_PASSWORD),
        // Enabling the user allows the login.
        ("ACL SETUSER newuser on +acl", "OK"),
        ("AUTH newuser passwd1", "OK"),
        ("ACL WHOAMI", "\"newuser\""),
        // Only the set of correct passwords work.
        ("ACL SETUSER newuser >passwd2", "OK"),
        ("AUTH newuser passwd1", "OK"),
        ("AUTH newuser passwd2", "OK"),
        ("AUTH newuser passwd3", WRONG_PASSWORD),
        // It is possible to remove passwords from the set of valid ones.
        ("ACL SETUSER newuser <passwd1", "OK"),
        ("AUTH newuser passwd1", WRONG_PASSWORD),
        // Test password hashes can be added.
        ("ACL SETUSER newuser #34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6", "OK"),
        ("AUTH newuser passwd4", "OK"),
    ]);
    // ACL GETUSER returns the password hash instead of the actual password.
    let passwords = of_user(&mut r, "newuser", "passwords");
    assert!(passwords.contains("34344e4d60c2b6d6") && !passwords.contains("passwd4"));
    r.talk(&[
        // Test hashed passwords removal.
        ("ACL SETUSER newuser !34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6", "OK"),
        // By default users are not able to access any command.
        ("SET foo bar", &no_command("set")),
        // By default users are not able to access any key.
        ("ACL SETUSER newuser +set", "OK"),
        ("SET foo bar", NO_KEY),
        // It's possible to allow the access of a subset of keys.
        ("ACL SETUSER newuser allcommands ~foo:* ~bar:*", "OK"),
        ("SET foo:1 a", "OK"),
        ("SET bar:2 b", "OK"),
        ("SET zap:3 c", NO_KEY),
        ("ACL SETUSER newuser allkeys", "OK"),
        // Users can be configured to authenticate with any password.
        ("ACL SETUSER newuser nopass", "OK"),
        ("AUTH newuser zipzapblabla", "OK"),
        // ACLs can exclude single commands.
        ("ACL SETUSER newuser -ping", "OK"),
        ("INCR mycounter", "1"),
        ("PING", &no_command("ping")),
        // ACLs can include or exclude whole classes of commands.
        ("ACL SETUSER newuser -@all +@set +acl", "OK"),
        ("SADD myset a b c", "3"),
        ("ACL SETUSER newuser +@all -@string", "OK"),
        ("SADD myset a b c", "0"),
        ("SET foo bar", &no_command("set")),
        // ACLs can include single subcommands.
        ("ACL SETUSER newuser allcommands -client +client|id +client|setname", "OK"),
        ("CLIENT SETNAME foo", "OK"),
        ("CLIENT KILL type master", &no_command("client|kill")),
        // ACLs can exclude single subcommands, cases 1 and 2.
        ("ACL SETUSER newuser +@all -client|kill", "OK"),
        ("CLIENT KILL type master", &no_command("client|kill")),
        ("ACL SETUSER newuser -@all +acl +config -config|set", "OK"),
        ("CONFIG GET nothing", "[]"),
        ("CONFIG SET loglevel debug", &no_command("config|set")),
        // ACLs including of a type includes also subcommands.
        ("ACL SETUSER newuser -@all +acl +@stream", "OK"),
        ("XADD key 1-1 field value", "\"1-1\""),
        // ACLs can block SELECT of all but a specific DB.
        ("ACL SETUSER newuser -@all +acl +select|0", "OK"),
        ("SELECT 0", "OK"),
        ("SELECT 1", &no_command("select")),
    ]);
    assert!(of_user(&mut r, "newuser", "commands").contains("+select|0"));
    assert!(!r.line("ACL LIST").contains("passwd"));
}

#[test]
fn the_default_user_and_those_that_are_deleted() {
    let (server, _dir) = TestServer::start(&[]);
    let mut r = server.client();
    // When default user is off, new connections are not authenticated.
    r.talk(&[("ACL SETUSER default off", "OK")]);
    refused(&mut server.client(), "PING", "NOAUTH");
    r.talk(&[
        ("ACL SETUSER default on", "OK"),
        // When default user has no command permission, hello command still works for other users.
        ("ACL SETUSER secure-user >supass on +@all", "OK"),
        ("ACL SETUSER default -@all", "OK"),
        ("PING", &no_command("ping")),
    ]);
    assert!(r.line("HELLO 2 AUTH secure-user supass").contains("\"server\""));
    r.talk(&[
        ("ACL WHOAMI", "\"secure-user\""),
        ("ACL SETUSER default nopass +@all", "OK"),
        ("AUTH default x", "OK"),
        // ACL HELP should not have unexpected options.
        ("ACL HELP xxx", "-ERR wrong number of arguments for 'acl|help' command"),
        // Delete a user that the client doesn't use.
        ("ACL SETUSER not_used on >passwd", "OK"),
        ("ACL DELUSER not_used nobody", "1"),
        ("PING", "PONG"),
        // Default user can not be removed.
        ("ACL DELUSER not_used default", "-ERR The 'default' user cannot be removed"),
    ]);
    // Delete a user that the client is using, and others are.
    r.line("ACL SETUSER using on +acl +ping >passwd");
    let mut other = server.client();
    other.talk(&[("AUTH using passwd", "OK"), ("PING", "PONG")]);
    r.talk(&[("AUTH using passwd", "OK"), ("ACL DELUSER using", "1")]);
    assert_eq!(r.try_read(), None, "it is closed once it is answered");
    assert_eq!(other.try_read(), None);
    // One that comes under the same name later is another.
    let mut r = server.client();
    r.talk(&[
        ("AUTH using passwd", WRONG_PASSWORD),
        // ACL GENPASS command failed test.
        (
            "ACL GENPASS -236",
            "-ERR ACL GENPASS argument must be the number of bits for the output \
                              password, a positive number up to 4096",
        ),
        ("ACL GENPASS x", "-ERR value is not an integer or out of range"),
    ]);
    let passwords = [r.line("ACL GENPASS"), r.line("ACL GENPASS")];
    assert!(passwords[0] != passwords[1] && passwords[0].len() == 64 + 2);
    assert_eq!(r.line("ACL GENPASS 5").len(), 2 + 2);
    refused(&mut r, "ACL LOAD", "not configured to use an ACL file");
    refused(&mut r, "ACL SAVE", "not configured to use an ACL file");
}

#[test]
fn acl_log() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut r, mut admin) = (server.client(), server.client());
    // ACL LOG shows failed command executions at toplevel, and is able to test similar events.
    admin.line("ACL SETUSER antirez >foo on +set ~object:1234 +eval +multi +exec resetchannels");
    r.talk(&[("AUTH antirez foo", "OK"), ("GET foo", &no_command("get"))]);
    assert_eq!(logged(&mut admin), "command toplevel get antirez 1");
    r.line("GET foo");
    r.line("GET foo");
    assert_eq!(logged(&mut admin), "command toplevel get antirez 3");
    let entry = admin.call(&["ACL", "LOG", "1"]);
    let entry = match &entry {
        Reply::Array(entries) => &entries[0],
        other => panic!("{other:?}"),
    };
    // As of 7.2.
    let number = |field| field_of(entry, field).parse::<u64>();
    assert_eq!(number("entry-id"), Ok(0));
    let times = ["timestamp-created", "timestamp-last-updated"].map(|field| number(field).expect(field));
    assert!(0 < times[0] && times[0] <= times[1], "{times:?}");
    let client = field_of(entry, "client-info");
    assert!(client.contains(" cmd=get user=antirez "), "{client}");
    // ACL LOG shows failed subcommand executions at toplevel.
    r.line("SCRIPT HELP");
    assert_eq!(logged(&mut admin), "command toplevel script|help antirez 1");
    let entries = admin.line("ACL LOG 1");
    assert!(entries.contains("\"entry-id\" 1 "), "{entries}");
    // ACL LOG is able to log keys access violations and key name.
    r.talk(&[("SET somekeynotallowed 1234", NO_KEY)]);
    assert_eq!(logged(&mut admin), "key toplevel somekeynotallowed antirez 1");
    // ACL LOG RESET is able to flush the entries in the log.
    admin.talk(&[("ACL LOG RESET", "OK"), ("ACL LOG", "[]")]);
    // ACL LOG can distinguish the transaction context (1).
    r.talk(&[
        ("MULTI", "OK"),
        ("INCR foo", &no_command("incr")),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
    assert_eq!(logged(&mut admin), "command multi incr antirez 1");
    // ACL LOG can distinguish the transaction context (2).
    admin.talk(&[("ACL LOG RESET", "OK"), ("ACL SETUSER antirez +incr", "OK")]);
    r.talk(&[("MULTI", "OK"), ("INCR object:1234", "QUEUED"), ("SET object:1234 x", "QUEUED")]);
    admin.line("ACL SETUSER antirez -incr");
    let exec = r.line("EXEC");
    assert!(
        exec.contains(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated \
        and the EXEC call. This command is no longer allowed for the following reason: no permission to \
        execute the command or subcommand"
        ),
        "{exec}"
    );
    assert!(exec.ends_with(" OK]"), "the rest of the block runs: {exec}");
    assert_eq!(logged(&mut admin), "command multi incr antirez 1");
    // ACL can log errors in the context of Lua scripting.
    let reply = say(&mut r, &["EVAL", "return redis.call('incr','object:1234')", "0"]);
    assert!(
        reply.starts_with("-ERR The user executing the script can't run this command or subcommand"),
        "{reply}"
    );
    assert_eq!(logged(&mut admin), "command lua incr antirez 1");
    let script = "return {redis.pcall('set','other','x'), redis.acl_check_cmd('set','object:1234','x'), \
        redis.acl_check_cmd('get','object:1234'), redis.call('set','object:1234','y')}";
    let reply = say(&mut r, &["EVAL", script, "0"]);
    assert!(
        reply.contains("can't access at least one of the keys mentioned in the command arguments"),
        "{reply}"
    );
    assert!(reply.ends_with("1 nil OK]"), "{reply}");
    assert_eq!(logged(&mut admin), "key lua other antirez 1");
    // ACL LOG can accept a numerical argument to show less entries.
    assert!(matches!(admin.call(&["ACL", "LOG", "2"]), Reply::Array(entries) if entries.len() == 2));
    // ACL LOG can log failed auth attempts.
    r.talk(&[("AUTH antirez wrong-password", WRONG_PASSWORD)]);
    assert_eq!(logged(&mut admin), "auth toplevel AUTH antirez 1");
    // ACL LOG entries are limited to a maximum amount.
    admin.talk(&[("CONFIG SET acllog-max-len 5", "OK")]);
    for number in 0..10 {
        r.line(&format!("SET obj:{number} 123"));
    }
    assert!(matches!(admin.call(&["ACL", "LOG"]), Reply::Array(entries) if entries.len() == 5));
}

#[test]
fn what_was_queued_of_the_connections_own_is_checked_again() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut user, mut admin) = (server.client(), server.client());
    admin.talk(&[("ACL SETUSER u on >p +@all ~* &*", "OK")]);
    user.talk(&[("AUTH u p", "OK"), ("MULTI", "OK")]);
    for line in ["CONFIG GET maxmemory", "SET k v", "ACL WHOAMI", "INFO server", "CLIENT GETNAME"] {
        user.talk(&[(line, "QUEUED")]);
    }
    admin.talk(&[("ACL SETUSER u -config -acl -info", "OK")]);
    let Reply::Array(replies) = user.call(&["EXEC"]) else {
        panic!("the block runs");
    };
    let [config, set, who, info, name] = &replies[..] else {
        panic!("one reply for each command: {replies:?}");
    };
    for refused in [config, who, info] {
        let text = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
            EXEC call. This command is no longer allowed for the following reason: no permission to \
            execute the command or subcommand";
        assert_eq!(show(refused), text);
    }
    assert_eq!([show(set), show(name)], ["OK", "nil"]);
    // The newest first.
    assert_eq!(logged(&mut admin), "command multi info u 1");
}

#[test]
fn selectors() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut r, mut r2) = (server.client(), server.client());
    // Test basic multiple selectors.
    r.line("ACL SETUSER selector-1 on -@all resetkeys nopass");
    r2.talk(&[("AUTH selector-1 password", "OK"), ("PING", &no_command("ping"))]);
    r.line("ACL SETUSER selector-1 (+@write ~write::*) (+@read ~read::*)");
    r2.talk(&[
        ("SET write::foo bar", "OK"),
        ("GET read::foo", "nil"),
        ("GET write::foo", NO_KEY),
        ("SET read::foo bar", NO_KEY),
    ]);
    // Test selector syntax error reports the error in the selector context.
    assert_eq!(
        say(&mut r, &["ACL", "SETUSER", "selector-syntax", "on", "(this-is-invalid)"]),
        "-ERR Error in ACL SETUSER modifier '(this-is-invalid)': Syntax error"
    );
    r.talk(&[
        ("ACL GETUSER selector-syntax", "nil"),
        // Test flexible selector definition.
        ("ACL SETUSER selector-2 (~key5 +get ) ( ~key6 +get ) ( ~key7 +get) (~key8 +get)", "OK"),
        ("ACL SETUSER invalid-selector (", "-ERR Unmatched parenthesis in acl selector starting at '('."),
    ]);
    let shown = of_user(&mut r, "selector-2", "selectors");
    for key in ["~key5", "~key6", "~key7", "~key8"] {
        assert!(shown.contains(key), "{shown}");
    }
    r.talk(&[
        // Test separate read and write permissions.
        ("ACL SETUSER rw on nopass %R~read* %W~write* +@all", "OK"),
        ("SET read bar", "OK"),
    ]);
    r2.talk(&[
        ("AUTH rw password", "OK"),
        ("COPY read write", "1"),
        ("COPY write read", NO_KEY),
        ("LPUSH writelist 10", "1"),
        ("GET writestr", NO_KEY),
        // Test SET with separate write permission.
        ("SET writestr bar", "OK"),
        ("SET writestr bar get", NO_KEY),
        // Test BITFIELD with separate read permission.
        ("BITFIELD readbits GET u4 0", "[0]"),
        ("BITFIELD readbits SET u4 0 1", NO_KEY),
    ]);
    // Test separate read and write permissions on different selectors are not additive.
    r.talk(&[("ACL SETUSER apart on nopass (%R~read* +@all) (%W~write* +@all)", "OK")]);
    r2.talk(&[("AUTH apart password", "OK"), ("COPY read write", NO_KEY)]);
    // Test ACL list idempotency, and GETUSER response information.
    r.line(
        "ACL SETUSER info off -@all +get resetchannels &c1 %R~f1 %W~b1 ~z1 (-@all +set resetchannels \
            &c2 %R~f2)",
    );
    assert!(r.line("ACL LIST").contains(
        "\"user info off %R~f1 %W~b1 ~z1 resetchannels &c1 -@all +get (%R~f2 resetchannels &c2 -@all +set)\""
    ));
    assert_eq!(of_user(&mut r, "info", "keys"), "\"%R~f1 %W~b1 ~z1\"");
    assert!(r.line("ACL USERS").contains("\"apart\" \"default\" \"info\""));
    // Test basic dry run functionality, and DRYRUN with wrong number of arguments.
    r.talk(&[
        ("ACL SETUSER command-test +@all %R~read* %W~write* %RW~rw*", "OK"),
        ("ACL DRYRUN command-test GET read", "OK"),
        ("ACL DRYRUN command-test GET write", "\"This user has no permissions to access the 'write' key\""),
        ("ACL DRYRUN not-a-user GET read", "-ERR User 'not-a-user' not found"),
        ("ACL DRYRUN command-test not-a-command read", "-ERR Command 'not-a-command' not found"),
        ("ACL DRYRUN command-test SET v", "-ERR wrong number of arguments for 'set' command"),
        // Test sort with ACL permissions.
        ("SET v1 1", "OK"),
        ("LPUSH mylist 1", "1"),
        ("ACL SETUSER test-sort-acl on nopass +multi +exec (+sort ~mylist)", "OK"),
    ]);
    let by = "-ERR BY option of SORT denied due to insufficient ACL permissions.";
    r2.talk(&[
        ("AUTH test-sort-acl nopass", "OK"),
        ("SORT mylist BY v*", by),
        ("SORT mylist GET v*", "-ERR GET option of SORT denied due to insufficient ACL permissions."),
        ("MULTI", "OK"),
        ("SORT mylist BY v*", "QUEUED"),
        ("EXEC", &format!("[{by}]")),
    ]);
    r.line("ACL SETUSER test-sort-acl (+sort ~mylist %R~*)");
    r2.talk(&[("SORT mylist BY v*", "[\"1\"]")]);
}

#[test]
fn rights_are_those_of_the_place_in_the_order() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut r, mut admin) = (server.client(), server.client());
    admin.line("ACL SETUSER bob on nopass ~* +@all -get");
    r.talk(&[
        ("AUTH bob x", "OK"),
        // A block that changes its own user goes by that from there on.
        ("MULTI", "OK"),
        ("ACL SETUSER bob -incr", "QUEUED"),
        ("ACL WHOAMI", "QUEUED"),
        ("SET a 1", "QUEUED"),
    ]);
    let exec = r.line("EXEC");
    assert_eq!(exec, "[OK \"bob\" OK]");
    r.talk(&[("INCR a", &no_command("incr"))]);
    // Pipelined commands see the change before them.
    r.send(&["ACL", "SETUSER", "bob", "-set"]);
    r.send(&["SET", "a", "2"]);
    assert_eq!(show(&r.read()), "OK");
    assert_eq!(show(&r.read()), no_command("set"));
    // What is sent once is what a user may do, too.
    r.talk(&[("ORDO.IDEMPOTENT i SET a 3", &no_command("ordo.idempotent"))]);
    // CLIENT LIST, INFO and KILL know users.
    assert!(r.line("CLIENT INFO").contains("user=bob"));
    admin.talk(&[("CLIENT KILL USER nobody", "-ERR No such user 'nobody'"), ("CLIENT KILL USER bob", "1")]);
    assert_eq!(r.try_read(), None);
    // RESET makes a connection the default user's again.
    let mut r = server.client();
    r.talk(&[("AUTH bob x", "OK"), ("RESET", "RESET"), ("ACL WHOAMI", "\"default\"")]);
}

#[test]
fn requirepass_is_the_default_users_password() {
    let (server, _dir) = TestServer::start(&[("requirepass", "first")]);
    let mut r = server.client();
    r.talk(&[
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH first", "OK"),
        ("CONFIG SET requirepass second", "OK"),
    ]);
    server.client().talk(&[("AUTH first", WRONG_PASSWORD), ("AUTH default second", "OK")]);
    // From here on it is ACL's.
    r.talk(&[("ACL SETUSER default >more", "OK"), ("CONFIG SET requirepass third", "OK")]);
    server.client().talk(&[
        ("AUTH second", WRONG_PASSWORD),
        ("AUTH more", WRONG_PASSWORD),
        ("AUTH third", "OK"),
    ]);
}

/// Whether a server asks strangers for the password, which is the one that opens it.
fn asks_for(server: &TestServer, password: &str) {
    // What is kept of it is a hash.
    let hash = PasswordHash::of(password.as_bytes()).behind(b'#');
    let hash = String::from_utf8_lossy(&hash);
    server.client().talk(&[
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH other", WRONG_PASSWORD),
        (&format!("AUTH {password}"), "OK"),
        ("ACL WHOAMI", "\"default\""),
        ("CONFIG GET requirepass", &format!("[\"requirepass\" \"{hash}\"]")),
    ]);
}

#[test]
fn requirepass_closes_what_was_kept_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = TestServer::start_in(dir.path(), &[]);
    // Any change of `default` keeps that it takes any password.
    server.client().talk(&[("ACL SETUSER default -flushall", "OK"), ("PING", "PONG")]);
    server.stop();
    let settings = [("requirepass", "secret")];
    let server = TestServer::start_in(dir.path(), &settings);
    asks_for(&server, "secret");
    let mut r = server.client();
    r.talk(&[
        ("AUTH secret", "OK"),
        ("FLUSHALL", &no_command("flushall")),
        // Who says so to the server that runs means it, until the next start.
        ("ACL SETUSER default nopass", "OK"),
    ]);
    server.client().talk(&[("PING", "PONG")]);
    r.talk(&[("CONFIG SET requirepass again", "OK")]);
    asks_for(&server, "again");
    r.talk(&[("ACL SETUSER default nopass", "OK")]);
    server.stop();
    asks_for(&TestServer::start_in(dir.path(), &settings), "secret");
}

#[test]
fn requirepass_closes_what_files_and_settings_leave_open() {
    for text in ["user alice on >alice ~* +@all\n", "user default on nopass ~* &* +@all\n"] {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("user.acl"), text).expect("a file");
        let settings = [("aclfile", "user.acl"), ("requirepass", "secret")];
        let server = TestServer::start_in(dir.path(), &settings);
        asks_for(&server, "secret");
        let mut r = server.client();
        r.talk(&[("AUTH secret", "OK"), ("ACL LOAD", "OK")]);
        asks_for(&server, "secret");
    }
    let user = ("user", "default on nopass ~* &* +@all");
    let (server, _dir) = TestServer::start(&[user, ("requirepass", "secret")]);
    asks_for(&server, "secret");
    // A password of its own is the file's matter.
    let dir = tempfile::tempdir().expect("a directory");
    let text = "user default on >own ~* &* +@all\n";
    std::fs::write(dir.path().join("user.acl"), text).expect("a file");
    let settings = [("aclfile", "user.acl"), ("requirepass", "secret")];
    let server = TestServer::start_in(dir.path(), &settings);
    server.client().talk(&[("AUTH secret", WRONG_PASSWORD), ("AUTH own", "OK")]);
}

#[test]
fn users_are_part_of_the_data_and_settings_make_the_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings =
        [("user", "alice on >alice ~* +@all -flushdb"), ("user", "default on nopass ~* +@all -flushdb")];
    let server = TestServer::start_in(dir.path(), &settings);
    let mut r = server.client();
    r.talk(&[
        ("FLUSHDB", &no_command("flushdb")),
        ("AUTH alice alice", "OK"),
        ("FLUSHDB", &no_command("flushdb")),
        ("ACL SETUSER bob on >bob +ping", "OK"),
        ("ACL SETUSER alice -flushall", "OK"),
        ("SAVE", "OK"),
        ("ACL SETUSER carol on >carol +ping", "OK"),
    ]);
    server.stop();
    // ACL from config file and config rewrite: what is there stays.
    let server = TestServer::start_in(dir.path(), &settings);
    server.client().talk(&[
        ("FLUSHDB", &no_command("flushdb")),
        ("AUTH bob bob", "OK"),
        ("AUTH carol carol", "OK"),
        ("AUTH alice alice", "OK"),
        ("FLUSHALL", &no_command("flushall")),
    ]);
}

#[test]
fn the_acl_file_is_loaded_and_saved() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("user.acl");
    let text = "user alice on allcommands allkeys &* >alice\nuser bob on -@all +@set +acl ~set* &* >bob\n\
                user default on nopass ~* &* +@all\n";
    std::fs::write(&path, text).expect("a file");
    let settings = [("aclfile", "user.acl")];
    let server = TestServer::start_in(dir.path(), &settings);
    let mut r = server.client();
    r.talk(&[
        // Alice: can execute all command.
        ("AUTH alice alice", "OK"),
        ("SET key value", "OK"),
        // Bob: just execute @set and acl command.
        ("AUTH bob bob", "OK"),
        ("SADD set 1 2 3", "3"),
        ("SET key value", &no_command("set")),
        // ACL load and save.
        ("ACL SETUSER eve +get allkeys >eve on", "OK"),
        ("ACL SAVE", "OK"),
        ("ACL LOAD", "OK"),
    ]);
    assert_eq!(r.try_read(), None, "ACL load will free user and kill clients");
    let mut r = server.client();
    r.talk(&[
        ("AUTH eve eve", "OK"),
        ("GET key", "\"value\""),
        ("SET key value", &no_command("set")),
        ("AUTH alice alice", "OK"),
    ]);
    // Test loading an ACL file with duplicate users: nothing changes.
    std::fs::write(&path, format!("{text}\nuser alice on nopass ~* -@all")).expect("a file");
    refused(&mut r, "ACL LOAD", "Duplicate user 'alice' found");
    assert_eq!(of_user(&mut r, "alice", "commands"), "\"+@all\"");
    std::fs::write(&path, "user other on nopass +@all\n").expect("a file");
    server.stop();
    // Who starts with a file has its users, whatever they were.
    let server = TestServer::start_in(dir.path(), &settings);
    server.client().talk(&[("AUTH other x", "OK"), ("ACL USERS", "[\"default\" \"other\"]")]);
    server.stop();
    std::fs::write(&path, "nonsense\n").expect("a file");
    let refused = ordo_server::server::Server::start(support::config(dir.path(), &settings));
    let error = refused.err().expect("a broken file").to_string();
    assert!(error.contains("should start with user keyword"), "{error}");
}

#[test]
fn acl_pubsub_default_makes_new_users_only() {
    let (server, _dir) = TestServer::start(&[]);
    let mut r = server.client();
    r.talk(&[
        ("ACL SETUSER before", "OK"),
        ("CONFIG SET acl-pubsub-default allchannels", "OK"),
        ("ACL SETUSER mydefault", "OK"),
    ]);
    assert_eq!(of_user(&mut r, "before", "channels"), "\"\"");
    assert_eq!(of_user(&mut r, "mydefault", "channels"), "\"&*\"");
    // Single channel is not valid with allchannels.
    refused(&mut r, "ACL SETUSER onechannel &test", "start with an empty list of channels");
    // acl-pubsub-default resetchannels after reset.
    r.talk(&[("CONFIG SET acl-pubsub-default resetchannels", "OK"), ("ACL SETUSER mydefault reset", "OK")]);
    assert_eq!(of_user(&mut r, "mydefault", "channels"), "\"\"");
}
