//! Reads of the past on a real server: ORDO.AT.

use crate::nodes::{Build, Cluster, Server};
use serde_json::Value as Json;
use server::client::{Answer, Client};

fn text(text: &str) -> Answer {
    Answer::Text(text.to_owned())
}

fn call(client: &mut Client, line: &str) -> Answer {
    let words: Vec<&str> = line.split(' ').collect();
    client.call(&words).expect("an answer")
}

fn error(client: &mut Client, line: &str) -> String {
    match call(client, line) {
        Answer::Error(text) => text,
        other => panic!("{line}: {other:?}"),
    }
}

/// A number of INFO.
fn info_number(client: &mut Client, name: &str) -> u64 {
    let Answer::Text(info) = call(client, "INFO memory") else { panic!("no INFO") };
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let (_, number) = fields.find(|(field, _)| *field == name).expect("it is there");
    number.trim().parse().expect("a number")
}

/// The time of the order's last epoch.
fn time_ms(client: &mut Client) -> u64 {
    let Answer::Text(place) = call(client, "ORDO.CHANGES") else { panic!("no place") };
    let place: Json = serde_json::from_str(&place).expect("JSON");
    place["time_ms"].as_u64().expect("a time")
}

/// Writes until the order's time is later than that of all writes before. Gives the time of those.
fn pass(server: &Server, client: &mut Client) -> u64 {
    let before = time_ms(client);
    server.until("later", || {
        call(client, "SET later 1");
        (time_ms(client) > before).then_some(before)
    })
}

#[test]
fn a_read_of_the_past_finds_what_had_been_written_by_then() {
    let mut server = Server::new();
    server.start(&[]);
    let client = &mut server.client();
    // The past begins behind a write, at a tick.
    call(client, "MSET a 0 later 0");
    call(client, "CONFIG SET history-seconds 600");
    server.until("kept", || {
        call(client, "MSET a 0 later 0");
        matches!(call(client, "ORDO.AT -1 DBSIZE"), Answer::Text(_)).then_some(())
    });
    for line in ["SET a 1", "HSET hash f 1", "SADD set x", "SET short v PX 3000"] {
        call(client, line);
    }
    let first = pass(&server, client);
    for line in ["SET a 2", "HSET hash f 2 g 3", "DEL set", "SET new 1"] {
        call(client, line);
    }
    let second = pass(&server, client);
    server.until("expired", || (call(client, "GET short") == Answer::Nil).then_some(()));
    let expired = pass(&server, client);
    call(client, "FLUSHALL");
    let third = pass(&server, client);
    let list = |words: &[&str]| Answer::List(words.iter().map(|word| text(word)).collect());
    for (time, line, want) in [
        (first, "GET a", text("1")),
        (first, "HGETALL hash", list(&["f", "1"])),
        (first, "SMEMBERS set", list(&["x"])),
        (first, "GET new", Answer::Nil),
        (first, "GET short", text("v")),
        (first, "EXISTS a hash set short new", text("4")),
        (second, "MGET a new", list(&["2", "1"])),
        (second, "HGET hash g", text("3")),
        (second, "TYPE set", text("none")),
        (expired, "GET short", Answer::Nil),
        (third, "MGET a hash", Answer::List(vec![Answer::Nil, Answer::Nil])),
        (third, "KEYS a*", Answer::List(Vec::new())),
        (first, "DBSIZE", text("5")),
        (third, "DBSIZE", text("0")),
    ] {
        assert_eq!(call(client, &format!("ORDO.AT {time} {line}")), want, "{time} {line}");
    }
    // A connection's own writes come first, also when it does not wait for their replies.
    let mut bytes = Vec::new();
    for words in [&["SET", "a", "9"][..], &["ORDO.AT", "1", "GET", "a"]] {
        server::client::put_command(&mut bytes, words);
    }
    client.send(&bytes).expect("sent");
    assert_eq!(client.answer().expect("an answer"), text("OK"));
    assert!(matches!(client.answer().expect("an answer"), Answer::Error(_)));
    // At the time of its epoch a write is there.
    let written = time_ms(client);
    assert_eq!(call(client, &format!("ORDO.AT {written} GET a")), text("9"));

    let future = time_ms(client) + 3_600_000;
    for (line, said) in [
        ("ORDO.AT 1000 GET a".to_owned(), "is before the oldest version that is kept, which is of"),
        (format!("ORDO.AT {future} GET a"), "is in the future"),
        ("ORDO.AT -1 SET a 1".to_owned(), "only reads, and no script: not 'set'"),
        ("ORDO.AT now GET a".to_owned(), "milliseconds since 1970"),
        ("ORDO.IDEMPOTENT id ORDO.AT -1 GET a".to_owned(), "does not take 'ordo.at'"),
        ("EVAL return{redis.call('ordo.at','-1','get','a')} 0".to_owned(), "not allowed from script"),
    ] {
        let error = error(client, &line);
        assert!(error.contains(said), "{line}: {error}");
    }
    call(client, "MULTI");
    assert!(error(client, "ORDO.AT -1 GET a").contains("not allowed"), "in a block");
    call(client, "DISCARD");

    // Rights are those of now, to the command and to its keys.
    call(client, "ACL SETUSER limited on >word ~a +ordo.at +get");
    let limited = &mut server.client();
    call(limited, "AUTH limited word");
    assert_eq!(call(limited, &format!("ORDO.AT {first} GET a")), text("1"));
    assert!(error(limited, &format!("ORDO.AT {first} GET new")).starts_with("NOPERM"));
    assert!(error(limited, &format!("ORDO.AT {first} STRLEN a")).starts_with("NOPERM"));

    call(client, "CONFIG SET history-seconds 0");
    server.until("forgotten", || match call(client, &format!("ORDO.AT {first} GET a")) {
        Answer::Error(text) => text.contains("no old versions are kept").then_some(()),
        _ => None,
    });
}

#[test]
fn the_past_gives_way_before_a_write_is_refused() {
    let mut server = Server::new();
    server.start(&["--history-seconds", "3600", "--appendfsync", "no"]);
    let client = &mut server.client();
    server.until("kept", || {
        call(client, "SET a 1");
        matches!(call(client, "ORDO.AT -1 GET a"), Answer::Text(_)).then_some(())
    });
    let first = pass(&server, client);
    let limit = info_number(client, "used_memory") + (32 << 20);
    call(client, &format!("CONFIG SET maxmemory {limit}"));
    let value = "x".repeat(20_000);
    for _ in 0..6_000 {
        assert_eq!(client.call(&["SET", "a", &value]).expect("an answer"), text("OK"));
    }
    // The past may have ended a moment ago, and begins anew: there is room.
    server.until("a younger past", || match call(client, &format!("ORDO.AT {first} GET a")) {
        Answer::Error(text) => text.contains("is before the oldest version that is kept").then_some(()),
        other => panic!("{other:?}"),
    });
    server.until("the newest state", || (call(client, "ORDO.AT -1 STRLEN a") == text("20000")).then_some(()));
    server.until("its time", || (info_number(client, "history_oldest_ms") > first).then_some(()));

    // Where the entries alone take what there is, there is no past, and entries are evicted.
    call(client, "CONFIG SET maxmemory-policy allkeys-random");
    for number in 0..5_000 {
        let name = format!("k{number}");
        assert_eq!(client.call(&["SET", &name, &value]).expect("an answer"), text("OK"));
    }
    server.until("no past", || (info_number(client, "history_oldest_ms") == 0).then_some(()));
    assert!(error(client, "ORDO.AT -1 GET a").contains("while maxmemory leaves room for them"));
    call(client, "FLUSHALL");
    server.until("room", || (info_number(client, "history_oldest_ms") > 0).then_some(()));
}

#[test]
fn old_versions_go_when_their_time_is_over_and_nobody_writes_any_more() {
    const KEYS: u64 = 2_000;
    let mut server = Server::new();
    server.start(&["--history-seconds", "3600", "--appendfsync", "no"]);
    let client = &mut server.client();
    let wait_for_past = |client: &mut Client| {
        server.until("kept", || matches!(call(client, "ORDO.AT -1 DBSIZE"), Answer::Text(_)).then_some(()));
    };
    wait_for_past(client);
    let value = "x".repeat(20_000);
    let write = |client: &mut Client| {
        for number in 0..KEYS {
            let name = format!("k{number}");
            assert_eq!(client.call(&["SET", &name, &value]).expect("an answer"), text("OK"));
        }
        info_number(client, "used_memory")
    };
    let once = write(client);
    for setting in ["1", "0"] {
        call(client, "CONFIG SET history-seconds 3600");
        wait_for_past(client);
        let twice = write(client);
        assert!(twice > once + KEYS * 15_000, "{once} {twice}");
        call(client, &format!("CONFIG SET history-seconds {setting}"));
        let is_back = |used: u64| used < once + KEYS * 2_000;
        server.until("freed", || is_back(info_number(client, "used_memory")).then_some(()));
    }
}

#[test]
fn nodes_of_a_cluster_keep_no_past() {
    let cluster = Cluster::start(Build::own(&["--history-seconds", "60"]));
    let error = error(&mut cluster.open(0), "ORDO.AT -1 GET a");
    assert!(error.contains("nodes of a cluster keep no old versions"), "{error}");
}
