//! What clients may not do to the server, and what happens to them.

use crate::support::{Dice, TestServer, show};
use std::io::Write;
use txn::Reply;

#[test]
fn only_so_many_clients_are_served() {
    let (server, _dir) = TestServer::start(&[("maxclients", "2")]);
    let (mut a, mut b) = (server.client(), server.client());
    a.talk(&[("PING", "PONG")]);
    b.talk(&[("PING", "PONG")]);
    let mut c = server.client();
    assert_eq!(show(&c.read()), "-ERR max number of clients reached");
    assert_eq!(c.try_read(), None);
    // Room for one more, and for the refused one, which may still be counted: it hears of its end first.
    a.talk(&[("CONFIG SET maxclients 4", "OK")]);
    server.client().talk(&[("PING", "PONG")]);
}

#[test]
fn a_malformed_frame_closes_its_connection_alone() {
    let (server, _dir) = TestServer::start(&[]);
    let mut bystander = server.client();
    for (bytes, want) in [
        (&b"*1\r\n:1\r\n"[..], "-ERR Protocol error: expected '$', got ':'"),
        (b"*x\r\n", "-ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$999999999999\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"GET 'open\r\n", "-ERR Protocol error: unbalanced quotes in request"),
    ] {
        let mut client = server.client();
        client.send_raw(b"PING\r\n");
        client.send_raw(bytes);
        assert_eq!(show(&client.read()), "PONG");
        assert_eq!(show(&client.read()), want);
        assert_eq!(client.try_read(), None);
        bystander.talk(&[("PING", "PONG")]);
    }
}

#[test]
fn nested_arrays_are_refused_without_recursion() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.send_raw("*1\r\n".repeat(200_000).as_bytes().get(..40_000).expect("long enough"));
    assert_eq!(show(&client.read()), "-ERR Protocol error: expected '$', got '*'");
    server.client().talk(&[("PING", "PONG")]);
}

#[test]
fn random_bytes_never_stop_the_server() {
    let (server, _dir) = TestServer::start(&[]);
    let mut dice = Dice::new();
    let mut bystander = server.client();
    let parts: [&[u8]; 12] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
        b"*1\r\n$5\r\nMULTI\r\n",
        b"*1\r\n$4\r\nEXEC\r\n",
        b"*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n",
        b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"*",
        b"$",
        b"\r\n",
        b"-1",
        b"HELLO 3\r\n",
        b"CLIENT REPLY OFF\r\n",
        b"RESET\r\n",
    ];
    for _ in 0..300 {
        let mut client = server.client();
        let mut bytes = Vec::new();
        for _ in 0..dice.below(30) {
            match dice.below(4) {
                0 => bytes.extend((0..dice.below(20)).map(|_| dice.below(256) as u8)),
                _ => bytes.extend_from_slice(parts[dice.below(parts.len())]),
            }
        }
        // The server may close the connection before it has taken everything.
        let _ = client.stream.write_all(&bytes);
        if dice.below(2) == 0 {
            let _ = client.stream.shutdown(std::net::Shutdown::Write);
            while client.try_read().is_some() {}
        }
    }
    bystander.talk(&[("PING", "PONG"), ("DEL nothing", "0")]);
}

#[test]
fn a_word_and_a_command_may_be_only_so_long() {
    let (server, _dir) =
        TestServer::start(&[("proto-max-bulk-len", "1mb"), ("client-query-buffer-limit", "2mb")]);
    let mut client = server.client();
    let long = "x".repeat(1 << 20);
    assert_eq!(show(&client.call(&["SET", "k", &long])), "OK");
    assert_eq!(client.call(&["GET", "k"]), Reply::bulk(long.as_bytes()));
    client.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n");
    assert_eq!(show(&client.read()), "-ERR Protocol error: invalid bulk length");
    assert_eq!(client.try_read(), None);
    // Many words that are each short enough.
    let mut client = server.client();
    let mut command = b"*100\r\n$3\r\nDEL\r\n".to_vec();
    for _ in 0..5 {
        command.extend_from_slice(format!("${}\r\n{}\r\n", 1 << 19, "x".repeat(1 << 19)).as_bytes());
    }
    let _ = client.stream.write_all(&command);
    assert_eq!(client.try_read(), None);
    assert!(server.client().line("INFO stats").contains("client_query_buffer_limit_disconnections:1"));
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let (server, _dir) = TestServer::start(&[("client-output-buffer-limit", "normal 4mb 0 0")]);
    let mut client = server.client();
    client.call(&["SET", "big", &"x".repeat(1 << 20)]);
    let mut reader = server.client();
    for _ in 0..64 {
        // Sending may fail once the server has closed the connection.
        if client.stream.write_all(b"GET big\r\n").is_err() {
            break;
        }
    }
    // A client that does read gets as much without harm.
    for _ in 0..64 {
        assert!(matches!(reader.call(&["GET", "big"]), Reply::Bulk(bytes) if bytes.len() == 1 << 20));
    }
    let mut whole_replies = 0;
    while client.try_read().is_some() {
        whole_replies += 1;
    }
    assert!(whole_replies < 64, "the connection was never closed");
    assert!(reader.line("INFO stats").contains("client_output_buffer_limit_disconnections:1"));
}

#[test]
fn idle_clients_are_closed_if_the_settings_say_so() {
    let (server, _dir) = TestServer::start(&[("timeout", "1")]);
    let mut client = server.client();
    client.talk(&[("PING", "PONG")]);
    assert_eq!(client.try_read(), None);
}

#[test]
fn writes_are_refused_when_memory_is_short() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[("SET k v", "OK"), ("CONFIG SET maxmemory 1mb", "OK")]);
    // The limit is looked at ten times a second.
    let refused = (0..100_000).any(|_| client.line("SET k w").starts_with("-OOM command not allowed"));
    assert!(refused);
    assert_ne!(client.line("GET k"), "nil");
    assert_eq!(client.line("DEL k"), "1");
    // What scripts and functions write shows only while they run.
    let writes = "return redis.call('SET', 'k', 'v')";
    let refused = show(&client.call(&["EVAL", writes, "0"]));
    assert!(refused.starts_with("-OOM command not allowed"), "{refused}");
    assert_eq!(show(&client.call(&["EVAL", "return 1", "0"])), "1");
    let allowed = format!("#!lua flags=allow-oom\n{writes}");
    assert_eq!(show(&client.call(&["EVAL", &allowed, "0"])), "OK");
    let library = "#!lua name=l\nredis.register_function('f', function() end)";
    let refused = show(&client.call(&["FUNCTION", "LOAD", library]));
    assert!(refused.starts_with("-OOM command not allowed"), "{refused}");
}

#[test]
fn what_was_queued_is_refused_if_memory_is_short_at_exec() {
    let (server, _dir) = TestServer::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let writes = "return redis.call('SET', 'k', 'w')";
    client.talk(&[("SET k v", "OK"), ("MULTI", "OK"), ("SET k w", "QUEUED")]);
    let mut scripts = server.client();
    scripts.talk(&[("MULTI", "OK"), ("GET k", "QUEUED")]);
    assert_eq!(show(&scripts.call(&["EVAL", writes, "0"])), "QUEUED");
    assert_eq!(other.line("CONFIG SET maxmemory 1mb"), "OK");
    let is_short = (0..100_000).any(|_| other.line("SET x y").starts_with("-OOM "));
    assert!(is_short);
    assert_eq!(
        client.line("EXEC"),
        "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'."
    );
    let replies = scripts.line("EXEC");
    assert!(replies.starts_with("[\"v\" -OOM command not allowed"), "{replies}");
    other.talk(&[("MULTI", "OK"), ("GET k", "-OOM command not allowed when used memory > 'maxmemory'.")]);
}

#[test]
fn the_last_commands_of_a_half_closed_connection_are_answered() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    for _ in 0..100 {
        client.send(&["INCR", "n"]);
    }
    client.end();
    for number in 1..=100 {
        assert_eq!(show(&client.read()), number.to_string());
    }
    assert_eq!(client.try_read(), None);
}

#[test]
fn a_client_that_is_gone_waits_for_nothing() {
    let (server, _dir) = TestServer::start(&[]);
    for _ in 0..20 {
        let mut client = server.client();
        // Its end is there before it begins to wait.
        client.send_raw(b"SET k v\r\nBLPOP list 0\r\n");
        client.end();
        assert_eq!(client.read(), Reply::OK);
        assert_eq!(client.try_read(), None);
    }
    server.client().talk(&[("RPUSH list x", "1"), ("LLEN list", "1")]);
}

#[test]
fn a_client_that_reads_too_slowly_for_too_long_is_closed() {
    let limit = "normal 0 1mb 1";
    let (server, _dir) = TestServer::start(&[("client-output-buffer-limit", limit)]);
    let mut client = server.client();
    client.call(&["SET", "big", &"x".repeat(4 << 20)]);
    for _ in 0..8 {
        client.send(&["GET", "big"]);
    }
    // Nothing else happens on the connection: only the time that passes closes it.
    let mut other = server.client();
    while !other.line("INFO stats").contains("client_output_buffer_limit_disconnections:1") {}
    while client.try_read().is_some() {}
}

#[test]
fn more_than_the_node_takes_at_once_is_taken_in_turn() {
    let (server, _dir) = TestServer::start(&[("appendfsync", "always")]);
    let (clients, commands) = (100, 2000);
    let mut bytes = Vec::new();
    for _ in 0..commands {
        redis_surface::codec::encode_command(&["INCR", "n"], &mut bytes);
    }
    let bytes = &bytes;
    let server = &server;
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(move || {
                let mut client = server.client();
                let mut writer = client.stream.try_clone().expect("a second handle");
                std::thread::scope(|scope| {
                    scope.spawn(move || writer.write_all(bytes).expect("sent"));
                    let mut last = 0;
                    for _ in 0..commands {
                        let Reply::Integer(number) = client.read() else { panic!("INCR answers a number") };
                        assert!(number > last);
                        last = number;
                    }
                });
            });
        }
    });
    assert_eq!(server.client().line("GET n"), format!("\"{}\"", clients * commands));
}
