//! What a connection may be in the middle of: blocks, watches, identity, pipelines.

#![allow(clippy::disallowed_methods, reason = "threads belong to the server's tests, too")]

mod support;

use std::sync::Barrier;
use std::time::{Duration, Instant};
use support::{Client, Dice, TestServer, show};

#[test]
fn commands_work_in_both_protocols_and_inline() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[
        ("PING", "PONG"),
        ("ECHO hi", "\"hi\""),
        ("SET k v", "OK"),
        ("GET k", "\"v\""),
        ("GET none", "nil"),
        ("HSET h f 1", "1"),
        ("HGETALL h", "[\"f\" \"1\"]"),
        ("NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("SELECT 0", "OK"),
        ("HSET k f 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
    client.send_raw(b"SET inline 'a b'\r\nGET inline\r\n");
    assert_eq!((show(&client.read()), show(&client.read())), ("OK".to_owned(), "\"a b\"".to_owned()));
    assert!(client.line("HELLO 3").starts_with("{\"server\": \"redis\""));
    client.talk(&[
        ("HGETALL h", "{\"f\": \"1\"}"),
        ("GET none", "nil"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
    ]);
}

#[test]
fn a_web_page_cannot_speak_through_a_browser() {
    let (server, _dir) = TestServer::start(&[]);
    for request in [&b"POST / HTTP/1.1\r\n\r\nSET taken yes\r\n"[..], b"Host: localhost\r\nSET taken yes\r\n"]
    {
        let mut browser = server.client();
        browser.send_raw(request);
        assert_eq!(browser.try_read(), None, "the connection is closed");
        server.client().talk(&[("GET taken", "nil")]);
    }
}

#[test]
fn a_pipeline_is_answered_in_its_order_and_sees_its_own_writes() {
    let (server, _dir) = TestServer::start(&[]);
    let mut dice = Dice::new();
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for round in 0..30 {
        for (number, client) in clients.iter_mut().enumerate() {
            let key = format!("key:{number}");
            let mut value = String::from("nil");
            let mut want = Vec::new();
            let mut bytes = Vec::new();
            for step in 0..1 + dice.below(300) {
                let command: Vec<String> = match dice.below(6) {
                    0 | 1 => {
                        value = format!("\"{round}-{step}\"");
                        want.push("OK".to_owned());
                        vec!["SET".into(), key.clone(), format!("{round}-{step}")]
                    }
                    2 => {
                        want.push("PONG".to_owned());
                        vec!["PING".into()]
                    }
                    3 => {
                        want.push("-ERR unknown command 'OOPS', with args beginning with: ".to_owned());
                        vec!["OOPS".into()]
                    }
                    _ => {
                        want.push(value.clone());
                        vec!["GET".into(), key.clone()]
                    }
                };
                redis_surface::codec::encode_command(&command, &mut bytes);
            }
            if round > 0 || !want.is_empty() {
                redis_surface::codec::encode_command(&["DEL", &key], &mut bytes);
            }
            // In pieces, so that commands are cut anywhere.
            let cut = dice.below(bytes.len());
            client.send_raw(&bytes[..cut]);
            client.send_raw(&bytes[cut..]);
            for want in want {
                assert_eq!(show(&client.read()), want);
            }
            client.read();
        }
    }
}

#[test]
fn a_pipeline_longer_than_every_buffer_is_answered() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let count = 60_000;
    let mut bytes = Vec::new();
    for _ in 0..count {
        redis_surface::codec::encode_command(&["INCR", "counter"], &mut bytes);
        redis_surface::codec::encode_command(&["GET", "counter"], &mut bytes);
    }
    let mut writer = client.stream.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes));
    for number in 1..=count {
        assert_eq!(show(&client.read()), number.to_string());
        assert_eq!(show(&client.read()), format!("\"{number}\""));
    }
    sender.join().expect("no panic").expect("everything was sent");
}

#[test]
fn blocks_queue_execute_and_are_discarded() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("SET a 1", "QUEUED"),
        ("INCR a", "QUEUED"),
        ("HGET a f", "QUEUED"),
        ("GET a", "QUEUED"),
        ("EXEC", "[OK 2 -WRONGTYPE Operation against a key holding the wrong kind of value \"2\"]"),
        ("MULTI", "OK"),
        ("EXEC", "[]"),
        ("MULTI", "OK"),
        ("SET a 9", "QUEUED"),
        ("DISCARD", "OK"),
        ("GET a", "\"2\""),
        ("MULTI", "OK"),
        ("SET a", "-ERR wrong number of arguments for 'set' command"),
        ("SET a 9", "QUEUED"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("GET a", "\"2\""),
        ("MULTI", "OK"),
        ("SET a 9", "QUEUED"),
        (
            "EXEC now",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        ("GET a", "\"2\""),
        ("MULTI", "OK"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("CLIENT SETNAME inside", "QUEUED"),
        ("PING", "QUEUED"),
        ("CLIENT GETNAME", "QUEUED"),
        ("EXEC", "[OK PONG \"inside\"]"),
        ("CLIENT GETNAME", "\"inside\""),
    ]);
}

#[test]
fn saves_take_the_words_that_redis_takes() {
    let (server, _dir) = TestServer::start(&[]);
    server.client().talk(&[
        ("BGSAVE now", "-ERR syntax error"),
        ("BGSAVE SCHEDULE now", "-ERR syntax error"),
        ("BGSAVE SCHEDULE", "Background saving started"),
    ]);
}

#[test]
fn what_cannot_run_in_a_block_is_refused_when_it_is_queued() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    for refused in [
        "ACL LOAD",
        "CLIENT TRACKING ON",
        "CONFIG SET requirepass secret",
        "ORDO.CLUSTER MOVESLOTS 1 2 3",
        "SAVE",
        "SHUTDOWN",
    ] {
        client.talk(&[("MULTI", "OK"), ("SET half applied", "QUEUED")]);
        let reply = client.line(refused);
        assert!(reply.contains("not allowed inside a transaction"), "{reply}");
        client.talk(&[
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("EXISTS half", "0"),
        ]);
    }
}

#[test]
fn subscribing_and_waiting_work_in_a_block() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.talk(&[
        ("MULTI", "OK"),
        ("SUBSCRIBE a", "QUEUED"),
        ("SET k 1", "QUEUED"),
        ("PSUBSCRIBE b* c*", "QUEUED"),
        ("INCR k", "QUEUED"),
        ("UNSUBSCRIBE", "QUEUED"),
        ("SSUBSCRIBE s", "QUEUED"),
        ("GET k", "QUEUED"),
        (
            "EXEC",
            "[[\"subscribe\" \"a\" 1] OK [\"psubscribe\" \"b*\" 2] [\"psubscribe\" \"c*\" 3] 2 \
             [\"unsubscribe\" \"a\" 2] -ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client \"2\"]",
        ),
    ]);
    assert!(client.line("GET k").contains("Can't execute 'get'"));
    other.talk(&[("PUBLISH a 1", "0"), ("PUBLISH bee 2", "1")]);
    assert_eq!(show(&client.read()), "[\"pmessage\" \"b*\" \"bee\" \"2\"]");
    // Nobody waits in a block.
    other.talk(&[
        ("MULTI", "OK"),
        ("SET k 2", "QUEUED"),
        ("WAITAOF 1 1 0", "QUEUED"),
        ("WAIT 5 0", "QUEUED"),
        ("WAITAOF 2 0 0", "QUEUED"),
        ("BLPOP none 0", "QUEUED"),
        ("EXEC", "[OK [0 0] 0 -ERR value is out of range, must be between 0 and 1 nil-array]"),
    ]);
    let (server, _dir) = TestServer::start(&[("appendfsync", "always")]);
    server.client().talk(&[("MULTI", "OK"), ("WAITAOF 1 1 0", "QUEUED"), ("EXEC", "[[1 0]]")]);
}

#[test]
fn a_watched_key_that_changes_voids_the_block() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let begin = [("WATCH k other", "OK"), ("MULTI", "OK"), ("SET k mine", "QUEUED")];
    a.talk(&begin);
    a.talk(&[("EXEC", "[OK]")]);
    a.talk(&begin);
    b.talk(&[("SET k theirs", "OK")]);
    a.talk(&[("EXEC", "nil-array"), ("GET k", "\"theirs\"")]);
    // Deleting and setting to the same value are changes too; so is the first write of an absent key.
    a.talk(&begin);
    b.talk(&[("DEL k", "1"), ("SET k theirs", "OK")]);
    a.talk(&[("EXEC", "nil-array")]);
    a.talk(&begin);
    b.talk(&[("SET other 1", "OK"), ("DEL other", "1")]);
    a.talk(&[("EXEC", "nil-array")]);
    // A watch ends with EXEC, DISCARD and UNWATCH, and one's own change counts as a change.
    a.talk(&begin);
    a.talk(&[("DISCARD", "OK")]);
    b.talk(&[("SET k x", "OK")]);
    a.talk(&[
        ("MULTI", "OK"),
        ("GET k", "QUEUED"),
        ("EXEC", "[\"x\"]"),
        ("WATCH k", "OK"),
        ("UNWATCH", "OK"),
    ]);
    b.talk(&[("SET k y", "OK")]);
    a.talk(&[
        ("MULTI", "OK"),
        ("GET k", "QUEUED"),
        ("EXEC", "[\"y\"]"),
        ("WATCH k", "OK"),
        ("SET k z", "OK"),
    ]);
    a.talk(&[("MULTI", "OK"), ("GET k", "QUEUED"), ("EXEC", "nil-array")]);
}

#[test]
fn a_watch_in_the_middle_of_a_pipeline_sees_what_was_written_before_it() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    for round in 0..200 {
        for words in [
            &["SET", "k", "1"][..],
            &["WATCH", "k"],
            &["MULTI"],
            &["INCR", "k"],
            &["EXEC"],
            &["WATCH", "k"],
            &["SET", "k", "5"],
            &["MULTI"],
            &["INCR", "k"],
            &["EXEC"],
            &["GET", "k"],
        ] {
            client.send(words);
        }
        let replies: Vec<String> = (0..11).map(|_| show(&client.read())).collect();
        assert_eq!(
            replies,
            ["OK", "OK", "OK", "QUEUED", "[2]", "OK", "OK", "OK", "QUEUED", "nil-array", "\"5\""],
            "round {round}"
        );
    }
}

#[test]
fn optimistic_counters_lose_no_increment() {
    const CLIENTS: usize = 4;
    const INCREMENTS: usize = 100;
    let (server, _dir) = TestServer::start(&[]);
    server.client().talk(&[("SET counter 0", "OK")]);
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.client();
                start.wait();
                let mut done = 0;
                while done < INCREMENTS {
                    assert_eq!(client.line("WATCH counter"), "OK");
                    let value: u64 = client.line("GET counter").trim_matches('"').parse().expect("a number");
                    client.talk(&[("MULTI", "OK"), (&format!("SET counter {}", value + 1), "QUEUED")]);
                    match client.line("EXEC").as_str() {
                        "[OK]" => done += 1,
                        "nil-array" => {}
                        other => panic!("EXEC answered {other}"),
                    }
                }
            });
        }
    });
    assert_eq!(server.client().line("GET counter"), format!("\"{}\"", CLIENTS * INCREMENTS));
}

#[test]
fn a_password_is_asked_for() {
    let (server, _dir) = TestServer::start(&[("requirepass", "secret")]);
    let mut client = server.client();
    client.talk(&[
        ("GET k", "-NOAUTH Authentication required."),
        ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH other secret", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH secret", "OK"),
        ("GET k", "nil"),
        ("RESET", "RESET"),
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH default secret", "OK"),
        ("GET k", "nil"),
        ("CONFIG SET requirepass other", "OK"),
        ("GET k", "nil"),
    ]);
    let mut stranger = server.client();
    assert!(
        stranger
            .line("HELLO 3")
            .starts_with("-NOAUTH HELLO must be called with the client already authenticated")
    );
    assert!(stranger.line("HELLO 3 AUTH default other SETNAME me").contains("\"proto\": 3"));
    stranger.talk(&[("CLIENT GETNAME", "\"me\"")]);
    let mut open = server.client();
    open.send_raw(b"*11\r\n");
    assert_eq!(show(&open.read()), "-ERR Protocol error: unauthenticated multibulk length");
    assert_eq!(open.try_read(), None);
}

#[test]
fn client_subcommands_tell_and_change_connections() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let id = a.line("CLIENT ID");
    a.talk(&[
        ("CLIENT GETNAME", "nil"),
        ("CLIENT SETNAME one", "OK"),
        ("CLIENT GETNAME", "\"one\""),
        ("CLIENT SETINFO LIB-NAME tester", "OK"),
        ("CLIENT NO-EVICT ON", "OK"),
        ("CLIENT TRACKING off", "OK"),
    ]);
    let list = b.line("CLIENT LIST");
    assert!(
        list.contains(&format!("id={id} ")) && list.contains("name=one") && list.contains("lib-name=tester"),
        "{list}"
    );
    assert!(a.line("CLIENT INFO").contains("cmd=client"));
    // OFF silences until ON; SKIP silences one command.
    a.send(&["CLIENT", "REPLY", "OFF"]);
    a.send(&["SET", "k", "1"]);
    a.send(&["GET", "k"]);
    assert_eq!(a.line("CLIENT REPLY ON"), "OK");
    a.send(&["CLIENT", "REPLY", "SKIP"]);
    a.send(&["SET", "k", "2"]);
    assert_eq!(a.line("GET k"), "\"2\"");
    assert_eq!(b.line(&format!("CLIENT KILL ID {id}")), "1");
    assert_eq!(a.try_read(), None);
    assert_eq!(b.line(&format!("CLIENT KILL ID {id}")), "0");
}

#[test]
fn a_pause_holds_writes_until_it_ends() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    a.talk(&[
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 some", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        (
            "CLIENT PAUSE 1 WRITE now",
            "-ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
        ),
        ("CLIENT PAUSE 9223372036854775807 ALL", "OK"),
        ("CLIENT UNPAUSE", "OK"),
        ("CLIENT PAUSE 100000 WRITE", "OK"),
    ]);
    b.send(&["SET", "k", "1"]);
    a.talk(&[("GET k", "nil"), ("CLIENT UNPAUSE", "OK")]);
    assert_eq!(show(&b.read()), "OK");
    a.talk(&[("GET k", "\"1\"")]);
}

#[test]
fn a_weaker_pause_ends_no_stronger_one_and_fresh_connections_wait() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[("CLIENT PAUSE 100000 ALL", "OK"), ("CLIENT PAUSE 1 WRITE", "OK")]);
    let (mut reader, mut fresh) = (server.client(), server.client());
    reader.send(&["GET", "k"]);
    fresh.send(&["PING"]);
    // The only command of these that goes on, and it shows that the others wait.
    client.wait_until("CLIENT LIST", |list| {
        let waits = |line: &&str| line.contains(" flags=b") || line.contains(" flags=Nb");
        list.lines().filter(waits).count() == 2
    });
    client.talk(&[("CLIENT UNPAUSE", "OK")]);
    assert_eq!(show(&reader.read()), "nil");
    assert_eq!(show(&fresh.read()), "PONG");
}

#[test]
fn tracking_is_switched_off_whatever_options_come_along() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let gone = "-ERR The client ID you want redirect to does not exist";
    client.talk(&[
        ("CLIENT TRACKING OFF OPTIN OPTOUT", "OK"),
        ("CLIENT TRACKING OFF PREFIX foo", "OK"),
        ("CLIENT TRACKING OFF REDIRECT 99", gone),
        ("CLIENT TRACKING OFF foo", "-ERR syntax error"),
        ("CLIENT TRACKING foo", "-ERR syntax error"),
    ]);
}

#[test]
fn a_pause_of_writes_holds_what_may_write_and_what_publishes_and_nothing_else() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let (mut publisher, mut script, mut block) = (server.client(), server.client(), server.client());
    let ready = [("MULTI", "OK"), ("GET k", "QUEUED")];
    client.talk(&ready);
    client.talk(&[("CLIENT PAUSE 100000 WRITE", "QUEUED")]);
    block.talk(&ready);
    block.talk(&[("PUBLISH c m", "QUEUED")]);
    client.talk(&[("EXEC", "[nil OK]")]);
    // A block that only reads goes on, and so does a script that only reads.
    client.talk(&ready);
    client.talk(&[("EXEC", "[nil]"), ("EVAL_RO return(1) 0", "1")]);
    publisher.send(&["PUBLISH", "c", "m"]);
    script.send(&["EVAL", "return 1", "0"]);
    block.send(&["EXEC"]);
    client.wait_for_info("blocked_clients:3");
    client.talk(&[("CLIENT UNPAUSE", "OK")]);
    assert_eq!(show(&publisher.read()), "0");
    assert_eq!(show(&script.read()), "1");
    assert_eq!(show(&block.read()), "[nil 0]");
    client.wait_for_info("blocked_clients:0");
}

#[test]
fn settings_are_listed_and_changed() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[
        ("CONFIG GET appendonly", "[\"appendonly\" \"yes\"]"),
        ("CONFIG SET zset-max-ziplist-entries 0", "OK"),
        (
            "CONFIG GET zset*entries",
            "[\"zset-max-listpack-entries\" \"0\" \"zset-max-ziplist-entries\" \"0\"]",
        ),
        ("CONFIG GET save", "[\"save\" \"\"]"),
        ("CONFIG GET maxc*s timeout", "[\"maxclients\" \"10000\" \"timeout\" \"0\"]"),
        ("CONFIG SET timeout 7 maxclients 99", "OK"),
        ("CONFIG GET timeout", "[\"timeout\" \"7\"]"),
        ("CONFIG SET nonsense 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'"),
        ("CONFIG RESETSTAT", "OK"),
    ]);
    assert!(client.line("CONFIG SET timeout 8 maxclients none").contains("related to argument 'maxclients'"));
    client.talk(&[("CONFIG GET timeout", "[\"timeout\" \"7\"]")]);
    assert!(client.line("CONFIG SET port 1").contains("immutable"));
}

#[test]
fn info_counts_commands_and_keys() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.send(&["SET", "a", "1"]);
    client.send(&["SET", "b", "1"]);
    client.send(&["INFO"]);
    client.read();
    client.read();
    let info = show(&client.read());
    for want in [
        "redis_version:",
        "db0:keys=2,",
        "total_commands_processed:3",
        "role:master",
        "connected_clients:1",
        "# Ordo",
    ] {
        assert!(info.contains(want), "{want} is not in {info}");
    }
    let stats = client.line("INFO commandstats");
    assert!(stats.contains("cmdstat_set:calls=2,usec=") && !stats.contains("# Server"), "{stats}");
    client.line("SET k");
    let stats = client.line("INFO commandstats");
    assert!(stats.contains("rejected_calls=1,failed_calls=0"), "{stats}");
}

#[test]
fn scripts_run_as_transactions() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let transfer = "redis.call('DECRBY', KEYS[1], ARGV[1]) return redis.call('INCRBY', KEYS[2], ARGV[1])";
    assert_eq!(show(&client.call(&["EVAL", transfer, "2", "a", "b", "5"])), "5");
    client.talk(&[("GET a", "\"-5\"")]);
    let sha = match client.call(&["SCRIPT", "LOAD", "return ARGV[1]"]) {
        txn::Reply::Bulk(sha) => String::from_utf8_lossy(&sha).into_owned(),
        other => panic!("SCRIPT LOAD answered {other:?}"),
    };
    assert_eq!(show(&client.call(&["EVALSHA", &sha, "0", "x"])), "\"x\"");
    assert_eq!(
        client.line(&format!("SCRIPT EXISTS {sha} ffffffffffffffffffffffffffffffffffffffff")),
        "[1 0]"
    );
    assert!(client.line("EVALSHA ffffffffffffffffffffffffffffffffffffffff 0").starts_with("-NOSCRIPT"));
    // In a block, together with commands.
    client.talk(&[("MULTI", "OK")]);
    assert_eq!(show(&client.call(&["EVAL", "return redis.call('INCR', 'n')", "0"])), "QUEUED");
    client.talk(&[("INCR n", "QUEUED"), ("EXEC", "[1 2]")]);
}

#[test]
fn a_long_script_does_not_hold_up_other_clients() {
    let (server, _dir) = TestServer::start(&[("workers", "2")]);
    let mut slow = server.client();
    let mut client = server.client();
    client.talk(&[("SET k 1", "OK")]);
    slow.send(&["EVAL", "local n = 0 for i = 1, 20000000 do n = n + 1 end return n", "0"]);
    for _ in 0..100 {
        client.talk(&[("GET k", "\"1\"")]);
    }
    // The reads were answered while the script ran: it answers now.
    slow.stream.set_nonblocking(true).expect("non-blocking");
    let early = std::io::Read::read(&mut slow.stream, &mut [0; 64]);
    assert!(early.is_err(), "the script was too short to prove anything");
    slow.stream.set_nonblocking(false).expect("blocking");
    assert_eq!(show(&slow.read()), "20000000");
}

#[test]
fn info_counts_errors_by_their_codes() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut one, mut other) = (server.client(), server.client());
    one.talk(&[("SET k v", "OK"), ("MULTI", "OK")]);
    for (command, want) in [
        ("HGET k f", "-WRONGTYPE"),
        ("GET", "-ERR"),
        ("NOSUCH", "-ERR"),
        ("EVALSHA ffffffffffffffffffffffffffffffffffffffff 0", "-NOSCRIPT"),
    ] {
        assert!(other.line(command).starts_with(want), "{command}");
    }
    one.talk(&[("HSET k f v", "QUEUED"), ("CONFIG SET nosuch 1", "QUEUED"), ("GET k", "QUEUED")]);
    assert!(one.line("EXEC").contains("WRONGTYPE"));
    let script = "return {redis.error_reply('A:B c'), 1, redis.pcall('HGET', 'k', 'f')}";
    assert!(show(&one.call(&["EVAL", script, "0"])).contains("-A:B c"));
    assert_eq!(
        one.line("INFO errorstats"),
        "\"# Errorstats\r\nerrorstat_A_B:count=1\r\nerrorstat_ERR:count=3\r\nerrorstat_NOSCRIPT:count=1\r\n\
         errorstat_WRONGTYPE:count=3\r\n\""
    );
    assert!(one.line("INFO stats").contains("total_error_replies:8\r\n"));
    one.talk(&[("CONFIG RESETSTAT", "OK"), ("INFO errorstats", "\"# Errorstats\r\n\"")]);
}

#[test]
fn info_counts_the_keys_that_expired() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[("SET stays v PX 1000000", "OK")]);
    for key in 0..5 {
        assert_eq!(client.line(&format!("SET goes:{key} v PX 1")), "OK");
    }
    // Nobody reads them: the server finds them by itself.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let stats = client.line("INFO stats");
        let line = stats.lines().find(|line| line.starts_with("expired_keys:"));
        let count = line.expect("the field is there");
        if count == "expired_keys:5" {
            break;
        }
        assert!(Instant::now() < deadline, "{count}");
    }
    client.talk(&[("DBSIZE", "1"), ("CONFIG RESETSTAT", "OK")]);
    assert!(client.line("INFO stats").contains("expired_keys:0"));
}

#[test]
fn large_blocks_and_many_watched_keys_are_taken() {
    let (server, _dir) = TestServer::start(&[("client-query-buffer-limit", "64mb")]);
    let mut client = server.client();
    let count = 20_000;
    let keys: Vec<String> = (0..count).map(|key| format!("watched:{key}")).collect();
    let mut watch = vec!["WATCH"];
    watch.extend(keys.iter().map(String::as_str));
    assert_eq!(show(&client.call(&watch)), "OK");
    client.talk(&[("MULTI", "OK")]);
    let mut bytes = Vec::new();
    for _ in 0..count {
        redis_surface::codec::encode_command(&["INCR", "n"], &mut bytes);
        redis_surface::codec::encode_command(&["CLIENT", "GETNAME"], &mut bytes);
    }
    let mut writer = client.stream.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes));
    for _ in 0..2 * count {
        assert_eq!(show(&client.read()), "QUEUED");
    }
    sender.join().expect("no panic").expect("sent");
    let txn::Reply::Array(replies) = client.call(&["EXEC"]) else { panic!("EXEC answers an array") };
    assert_eq!(replies.len(), 2 * count);
    for (place, reply) in replies.iter().enumerate() {
        let want = match place % 2 {
            0 => (place / 2 + 1).to_string(),
            _ => "nil".to_owned(),
        };
        assert_eq!(show(reply), want);
    }
}

#[test]
fn a_block_may_take_only_so_much_memory() {
    let (server, _dir) = TestServer::start(&[("client-query-buffer-limit", "1mb")]);
    let mut client = server.client();
    client.talk(&[("MULTI", "OK")]);
    let value = "x".repeat(400_000);
    for want in ["QUEUED", "QUEUED", "-ERR the block is longer than client-query-buffer-limit"] {
        assert!(show(&client.call(&["SET", "k", &value])).starts_with(want));
    }
    client
        .talk(&[("EXEC", "-EXECABORT Transaction discarded because of previous errors."), ("GET k", "nil")]);
}

#[test]
fn what_was_answered_is_durable_as_far_as_is_said() {
    let (server, _dir) = TestServer::start(&[("appendfsync", "no")]);
    let mut client = server.client();
    client.talk(&[
        ("SET k v", "OK"),
        ("WAIT 0 0", "0"),
        ("WAIT 1 20", "0"),
        ("WAIT x 0", "-ERR value is not an integer or out of range"),
        ("WAIT 1 x", "-ERR timeout is not an integer or out of range"),
        ("WAIT 1 -1", "-ERR timeout is negative"),
        ("WAITAOF 0 0 0", "[0 0]"),
        ("WAITAOF 1 0 0", "[1 0]"),
        ("WAITAOF 2 0 0", "-ERR value is out of range, must be between 0 and 1"),
        ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive"),
        ("WAITAOF 0 0 -1", "-ERR timeout is negative"),
    ]);
    let (server, _dir) = TestServer::start(&[("appendfsync", "always")]);
    server.client().talk(&[("SET k v", "OK"), ("WAITAOF 0 0 0", "[1 0]")]);
}
