//! What becomes of the passwords that clients send: hashes of them, before anything keeps or shows them.
#![allow(clippy::disallowed_methods, reason = "that an answer is delayed shows by a clock")]

use crate::support::{Client, TestServer, config, show};
use std::path::Path;
use std::time::{Duration, Instant};

/// Part of every password of these tests.
const SECRET: &str = "open-sesame";
/// The same within scripts, whose text is what the order executes: neither the slow log nor a monitor shows
/// it.
const WHISPERED: &str = "whispered";

/// How often the files of a directory have these bytes.
fn occurrences(dir: &Path, needle: &str) -> usize {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let in_file = |path: &Path| {
        let bytes = std::fs::read(path).expect("a file");
        bytes.windows(needle.len()).filter(|part| *part == needle.as_bytes()).count()
    };
    let counts = files.map(|path| match path.is_dir() {
        true => occurrences(&path, needle),
        false => in_file(&path),
    });
    counts.sum()
}

/// What this server shows of what it was sent.
fn shown(client: &mut Client) -> String {
    let questions: &[&[&str]] = &[
        &["SLOWLOG", "GET", "-1"],
        &["LATENCY", "LATEST"],
        &["ACL", "LIST"],
        &["ACL", "LOG"],
        &["CLIENT", "LIST"],
        &["CONFIG", "GET", "*"],
        &["INFO", "everything"],
    ];
    questions.iter().map(|words| show(&client.call(words)) + "\n").collect()
}

#[test]
fn a_password_is_hashed_before_anything_keeps_or_shows_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = [
        ("requirepass", "open-sesame-0"),
        ("user", "file on >open-sesame-file"),
        ("user", "limited on >open-sesame-limited ~* &* +@all -debug"),
        ("slowlog-log-slower-than", "0"),
        ("slowlog-max-len", "10000"),
        ("latency-monitor-threshold", "1"),
    ];
    let server = TestServer::start_in(dir.path(), &settings);
    let mut client = server.client();
    client.talk(&[("AUTH open-sesame-0", "OK")]);
    let mut monitor = server.client();
    monitor.talk(&[("AUTH open-sesame-0", "OK"), ("MONITOR", "OK")]);
    let mut limited = server.client();
    limited.talk(&[("AUTH limited open-sesame-limited", "OK")]);
    // As the default user, and as somebody whose blocks are checked again at their place in the order.
    for one in [&mut client, &mut limited] {
        for (line, want) in [
            ("AUTH limited open-sesame-wrong", "-WRONGPASS"),
            ("HELLO 2 AUTH limited open-sesame-wrong", "-WRONGPASS"),
            ("ACL SETUSER alice on >open-sesame-1 >open-sesame-2 +@all ~* &*", "OK"),
            ("ACL SETUSER alice <open-sesame-1", "OK"),
            ("ACL SETUSER alice <open-sesame-absent", "-ERR"),
            ("ACL SETUSER alice (>open-sesame-3)", "-ERR"),
            ("ACL SETUSER alice (+get >open-sesame-4 ~x)", "-ERR"),
            ("ACL SETUSER alice (+get <open-sesame-5)", "-ERR"),
            ("ACL DRYRUN alice AUTH open-sesame-6", "*"),
            ("ACL DRYRUN alice ACL SETUSER bob >open-sesame-7", "*"),
            ("ORDO.IDEMPOTENT 1 ACL SETUSER alice >open-sesame-8", "-"),
            ("ORDO.IDEMPOTENT 2 AUTH limited open-sesame-9", "-"),
            ("ORDO.IDEMPOTENT 3 CONFIG SET requirepass open-sesame-10", "-"),
            ("ORDO.IDEMPOTENT 4 HELLO 3 AUTH limited open-sesame-10", "-"),
            ("MULTI", "OK"),
            ("ACL SETUSER alice >open-sesame-11", "QUEUED"),
            ("ACL SETUSER alice <open-sesame-absent", "QUEUED"),
            ("ACL DRYRUN alice ACL SETUSER bob >open-sesame-12", "QUEUED"),
            ("ORDO.IDEMPOTENT 5 ACL SETUSER alice >open-sesame-13", "QUEUED"),
            ("ORDO.IDEMPOTENT 6 AUTH open-sesame-14", "QUEUED"),
            ("AUTH limited open-sesame-wrong", "QUEUED"),
            ("SET alice open", "QUEUED"),
            ("EXEC", "*"),
            ("MULTI", "OK"),
            ("CONFIG SET requirepass open-sesame-refused", "-ERR"),
            ("DISCARD", "OK"),
            ("EVAL return{redis.call('ACL','SETUSER','a','>whispered-1')} 0", "-"),
            ("EVAL return{redis.call('ACL','SETUSER','a',ARGV[1])} 0 >whispered-2", "-"),
            ("EVAL return{redis.call(\"auth\",'whispered-3')} 0", "-"),
            ("EVAL return{redis.call('CONFIG','SET','requirepass','whispered-4')} 0", "-"),
            ("EVAL return{redis.call('acl',ARGV[1],ARGV[2],ARGV[3])} 0 setuser bob >whispered-5", "-"),
            ("EVAL return{redis.call([=[Hello]=],3,[[AUTH]],'bob','whispered-6')} 0", "-"),
        ] {
            let reply = one.line(line);
            let is_it = match want {
                "*" => !reply.starts_with('-'),
                other => reply.starts_with(other),
            };
            assert!(is_it, "{line}: {reply}");
            assert!(!reply.contains(SECRET), "{line}: {reply}");
        }
    }
    client.talk(&[
        ("CONFIG SET requirepass open-sesame-15 timeout 0", "OK"),
        ("ACL SETUSER default >open-sesame-16", "OK"),
        ("CONFIG SET requirepass open-sesame-17", "OK"),
        ("SAVE", "OK"),
        ("AUTH alice open-sesame-11", "OK"),
        ("AUTH alice open-sesame-2", "OK"),
        ("AUTH file open-sesame-file", "OK"),
        ("AUTH open-sesame-17", "OK"),
    ]);
    // The monitor has seen the last command when it sees this one.
    client.talk(&[("ECHO the-end", "\"the-end\"")]);
    let mut monitored = String::new();
    while !monitored.contains("the-end") {
        monitored += &(show(&monitor.read()) + "\n");
    }
    for text in [monitored, shown(&mut client)] {
        let line = text.lines().find(|line| line.contains(SECRET) || line.contains(WHISPERED));
        assert_eq!(line, None);
    }
    server.stop();
    assert!(occurrences(dir.path(), "alice") > 0, "what is looked for would be found");
    assert_eq!(occurrences(dir.path(), SECRET), 0, "in the files of the log and of checkpoints");
    // What was ordered is what counts.
    let server = TestServer::start_with(config(dir.path(), &settings));
    let mut client = server.client();
    client.talk(&[
        ("AUTH alice open-sesame-11", "OK"),
        ("AUTH default open-sesame-17", "OK"),
        ("AUTH alice open-sesame-1", "-WRONGPASS invalid username-password pair or user is disabled."),
    ]);
}

/// The words of one command, of which some have spaces.
const MISTYPED: &[&[&str]] = &[
    &["bob", "on >open-sesame-1"],
    &["bob", ">right", "open-sesame-2"],
    &["bob", "#open-sesame-3"],
    &["bob", "+open-sesame-4"],
    &["bob", "(+get", "open-sesame-5)"],
    &["bob", "(+get", "open-sesame-6"],
    &["bob", "(~*", "~x", "open-sesame-7)"],
    &["bob >open-sesame-8"],
];

#[test]
fn a_mistyped_rule_is_refused_and_nothing_keeps_or_shows_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = [
        ("user", "limited on >right ~* &* +@all -debug"),
        ("slowlog-log-slower-than", "0"),
        ("slowlog-max-len", "10000"),
    ];
    let server = TestServer::start_in(dir.path(), &settings);
    let mut client = server.client();
    let mut limited = server.client();
    limited.talk(&[("AUTH limited right", "OK")]);
    let mut monitor = server.client();
    monitor.talk(&[("MONITOR", "OK")]);
    for one in [&mut client, &mut limited] {
        // By itself, and in a block, whose reply has the refusal at its place.
        let command = |rules: &[&'static str]| [&["ACL", "SETUSER"], rules].concat();
        for rules in MISTYPED {
            let reply = show(&one.call(&command(rules)));
            assert!(reply.starts_with("-ERR "), "{rules:?}: {reply}");
        }
        one.talk(&[("MULTI", "OK")]);
        for rules in MISTYPED {
            assert_eq!(show(&one.call(&command(rules))), "QUEUED");
        }
        one.talk(&[("ACL SETUSER seen on", "QUEUED")]);
        let replies = one.line("EXEC");
        assert_eq!(replies.matches("-ERR ").count(), MISTYPED.len(), "{replies}");
        assert!(replies.contains("-ERR Error in ACL SETUSER modifier '(hidden)': Syntax error"));
        assert!(!replies.contains(SECRET), "{replies}");
    }
    client.talk(&[
        ("ACL SETUSER bob plain", "-ERR Error in ACL SETUSER modifier 'plain': Syntax error"),
        ("ACL GETUSER bob", "nil"),
        ("ECHO the-end", "\"the-end\""),
    ]);
    let mut monitored = String::new();
    while !monitored.contains("the-end") {
        monitored += &(show(&monitor.read()) + "\n");
    }
    for text in [monitored, shown(&mut client)] {
        assert_eq!(text.lines().find(|line| line.contains(SECRET)), None);
    }
    server.stop();
    assert!(occurrences(dir.path(), "seen") > 0);
    assert_eq!(occurrences(dir.path(), SECRET), 0);
}

#[test]
fn failed_authentications_make_the_next_wait_and_nothing_else() {
    let settings = [("requirepass", "right"), ("auth-delay-max-ms", "300"), ("io-threads", "1")];
    let (server, _dir) = TestServer::start(&settings);
    let mut known = server.client();
    known.talk(&[("AUTH right", "OK"), ("SET k v", "OK")]);
    let mut guessing = server.client();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for _ in 0..8 {
        guessing.talk(&[("AUTH wrong", wrong)]);
    }
    // From here on each waits: a right password as well as a wrong one, in whatever connection, and what is
    // sent behind it.
    let began = Instant::now();
    guessing.send(&["AUTH", "wrong"]);
    guessing.send(&["AUTH", "default", "right"]);
    guessing.send(&["GET", "k"]);
    let mut other = server.client();
    other.send(&["HELLO", "2", "AUTH", "default", "right"]);
    let replies = [guessing.read(), guessing.read(), guessing.read()].map(|reply| show(&reply));
    assert_eq!(replies, [wrong, "OK", "\"v\""]);
    assert!(began.elapsed() >= Duration::from_millis(290), "{:?}", began.elapsed());
    assert!(!show(&other.read()).starts_with('-'));
    // Nothing waits in a block.
    guessing.talk(&[("MULTI", "OK"), ("AUTH right", "QUEUED")]);
    let reply = guessing.line("EXEC");
    assert!(reply.contains("too many failed AUTHs"), "{reply}");
    // One that is gone while it waits harms nobody.
    let mut gone = server.client();
    gone.send(&["AUTH", "right"]);
    drop(gone);
    assert_eq!(known.info_number("acl_access_denied_auth"), 9);
    known.talk(&[("CONFIG SET auth-delay-max-ms 0", "OK"), ("CONFIG RESETSTAT", "OK")]);
    for _ in 0..100 {
        guessing.talk(&[("AUTH wrong", wrong)]);
    }
    assert_eq!(known.info_number("acl_access_denied_auth"), 100);
    assert!(known.line("ACL LOG").contains("\"reason\" \"auth\""));
    // No thread waits: the server has one for connections, which serves everybody else meanwhile, and stops
    // when it is told to.
    known.talk(&[("CONFIG SET auth-delay-max-ms 60000", "OK")]);
    guessing.send(&["AUTH", "right"]);
    for _ in 0..100 {
        known.talk(&[("GET k", "\"v\"")]);
    }
    server.stop();
    assert_eq!(guessing.try_read(), None);
}
