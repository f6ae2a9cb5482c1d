//! Sessions behind real sockets and threads: pipelines, races, scripts that take long. What a session replies
//! is in `src/session/tests/transcripts`.

#![allow(clippy::disallowed_methods, reason = "threads belong to the server's tests, too")]

use crate::support::{Client, Dice, TestServer, show};
use std::sync::Barrier;
use std::time::{Duration, Instant};

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
fn saves_take_the_words_that_redis_takes() {
    let (server, _dir) = TestServer::start(&[]);
    server.client().talk(&[
        ("BGSAVE now", "-ERR syntax error"),
        ("BGSAVE SCHEDULE now", "-ERR syntax error"),
        ("BGSAVE SCHEDULE", "Background saving started"),
    ]);
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
