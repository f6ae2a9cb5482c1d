//! Clients that do not read what they are sent: what they may keep of the server's memory and time, and when
//! they are closed.

mod support;

use ordo_server::memory::{Counting, used_bytes};
use std::alloc::System;
use std::io::Write;
use support::{Client, TestServer, show};
use txn::Reply;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

const MIB: u64 = 1 << 20;

/// The tests measure the memory of their process, so they take turns.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A field of a connection's line in CLIENT LIST; `None` if the connection is closed.
fn field(asker: &mut Client, name: &str, field: &str) -> Option<u64> {
    let (Reply::Bulk(lines) | Reply::Verbatim(_, lines)) = asker.call(&["CLIENT", "LIST"]) else {
        panic!("CLIENT LIST replies a text");
    };
    let lines = String::from_utf8_lossy(&lines).into_owned();
    let name = format!(" name={name} ");
    let line = lines.lines().find(|line| line.contains(&name))?;
    let start = format!(" {field}=");
    let (_, value) = line.split_once(&start).expect("the field");
    let digits = value.split(' ').next().expect("a value");
    Some(digits.parse().expect("a number"))
}

/// Asks until the connection's unread bytes stay as they are, and gives them with the most memory that was
/// used meanwhile.
fn settled(asker: &mut Client, name: &str) -> (u64, u64) {
    let (mut last, mut same, mut most) = (None, 0, 0);
    while same < 50 {
        most = most.max(used_bytes());
        let now = field(asker, name, "omem");
        same = match now == last && now != Some(0) {
            true => same + 1,
            false => 0,
        };
        last = now;
    }
    (last.unwrap_or(0), most)
}

fn fill_list(client: &mut Client, key: &str, elements: usize, bytes: usize) {
    let element = "e".repeat(bytes);
    for _ in 0..elements / 100 {
        let mut words = vec!["RPUSH", key];
        words.extend(std::iter::repeat_n(&element[..], 100));
        client.call(&words);
    }
}

#[test]
fn a_pipeline_waits_until_its_client_reads() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[]);
    let mut other = server.client();
    fill_list(&mut other, "list", 100, 2000);
    let mut hostile = server.client();
    hostile.talk(&[("CLIENT SETNAME hostile", "OK")]);
    let before = used_bytes();
    // What is read at once, and what is ordered behind an unfinished write.
    let rounds = 600;
    let mut pipeline = b"LRANGE list 0 -1\r\n".repeat(2 * rounds);
    pipeline.extend(b"SET k v\r\nLRANGE list 0 -1\r\n".repeat(rounds));
    hostile.send_raw(&pipeline);
    let (unread, most) = settled(&mut other, "hostile");
    let grown = most.saturating_sub(before);
    // All replies have 360 MB.
    assert!(unread < 100 * MIB, "{unread} bytes of replies were made");
    assert!(grown < 150 * MIB, "the memory grew by {grown} bytes");
    let reads = |reply: Reply| assert!(matches!(reply, Reply::Array(all) if all.len() == 100));
    for _ in 0..2 * rounds {
        reads(hostile.read());
    }
    for _ in 0..rounds {
        assert_eq!(hostile.read(), Reply::OK);
        reads(hostile.read());
    }
    hostile.talk(&[("PING", "PONG")]);
}

#[test]
fn what_is_sent_before_anything_is_read_is_answered() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.call(&["SET", "k", &"x".repeat(10_000)]);
    let commands = 20_000;
    let pipeline = b"GET k\r\n".repeat(commands);
    client.send_raw(&pipeline);
    client.send_raw(b"ECHO end\r\n");
    client.end();
    for _ in 0..commands {
        assert!(matches!(client.read(), Reply::Bulk(value) if value.len() == 10_000));
    }
    assert_eq!(show(&client.read()), "\"end\"");
    assert_eq!(client.try_read(), None);
}

#[test]
fn who_ends_while_a_wait_is_tried_is_sent_all_before_it() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    // More than fits into the sockets' buffers.
    let value = "v".repeat(24 << 20);
    client.call(&["SET", "k", &value]);
    client.send_raw(b"GET k\r\n");
    // The wait is tried behind the script, and the client ends and reads meanwhile.
    let script = "local n = 0 for i = 1, 3000000 do n = n + 1 end redis.call('SET', 'n', n) return 'done'";
    client.send(&["EVAL", script, "1", "n"]);
    client.send_raw(b"BLPOP none 60\r\n");
    client.end();
    assert!(matches!(client.read(), Reply::Bulk(read) if read.len() == value.len()));
    assert_eq!(show(&client.read()), "\"done\"");
    assert_eq!(client.try_read(), None);
}

/// The last bit of a string of 32 MiB, of which almost nothing is kept.
const LAST_BIT: &str = "268435455";

#[test]
fn long_strings_that_take_nothing_are_put_together_one_by_one() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[]);
    let mut other = server.client();
    let mut hostile = server.client();
    hostile.talk(&[("CLIENT SETNAME hostile", "OK")]);
    let take = ["GETDEL k", "GETEX k PERSIST", "GETSET k v", "SET k v GET"];
    let mut pipeline = String::new();
    for place in 0..32 {
        pipeline += &format!("SETBIT k {LAST_BIT} 1\r\n{}\r\n", take[place % 4]);
    }
    let before = used_bytes();
    hostile.send_raw(pipeline.as_bytes());
    let (_, most) = settled(&mut other, "hostile");
    // All of them have a gigabyte.
    let grown = most.saturating_sub(before);
    assert!(grown < 300 * MIB, "the memory grew by {grown} bytes");
    for _ in 0..32 {
        assert!(matches!(hostile.read(), Reply::Integer(_)));
        assert!(matches!(hostile.read(), Reply::Bulk(value) if value.len() == 32 << 20));
    }
    // One command that would have them all.
    let mut words = vec!["MGET"];
    other.line(&format!("SETBIT k {LAST_BIT} 1"));
    words.extend(std::iter::repeat_n("k", 17));
    let reply = show(&other.call(&words));
    assert!(reply.starts_with("-ERR the values have"), "{reply:.80}");
}

#[test]
fn what_is_made_at_once_stops_where_memory_ends() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let before = used_bytes();
    client.line(&format!("SETBIT k {LAST_BIT} 1"));
    // Thirty sources, and one buffer.
    let names = " k".repeat(30);
    assert_eq!(client.line(&format!("BITOP AND made0{names}")), "33554432");
    assert_eq!(client.line(&format!("GETBIT made0 {LAST_BIT}")), "1");
    let limit = before + 100 * MIB;
    client.line(&format!("CONFIG SET maxmemory {limit}"));
    let pipeline: String = (1..30).map(|place| format!("BITOP NOT made{place} k\r\n")).collect();
    client.send_raw(pipeline.as_bytes());
    let mut refused = 0;
    for _ in 1..30 {
        match client.read() {
            Reply::Error(text) if text.starts_with("OOM ") => refused += 1,
            reply => assert_eq!(show(&reply), "33554432"),
        }
    }
    let grown = used_bytes().saturating_sub(before);
    // A gigabyte, if all were made.
    assert!(grown < 250 * MIB, "the memory grew by {grown} bytes");
    assert!(refused > 20, "{refused} were refused");
}

#[test]
fn a_client_beyond_its_hard_limit_is_sent_nothing_more() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[("client-output-buffer-limit", "normal 100000 0 0")]);
    let mut other = server.client();
    fill_list(&mut other, "list", 200, 1000);
    other.call(&["SET", "k", &"x".repeat(10_000)]);
    // One reply.
    let mut client = server.client();
    client.send(&["LRANGE", "list", "0", "-1"]);
    assert_eq!(client.try_read(), None);
    // A pipeline.
    let mut client = server.client();
    client.send_raw(&b"GET k\r\n".repeat(15));
    assert_eq!(client.try_read(), None);
    // A transaction, which is executed nevertheless.
    let mut client = server.client();
    let block = [b"MULTI\r\nSET done yes\r\n".as_slice(), &b"GET k\r\n".repeat(15), b"EXEC\r\n"].concat();
    client.send_raw(&block);
    while client.try_read().is_some_and(|reply| reply != Reply::OK) {}
    while client.try_read().is_some_and(|reply| show(&reply) == "QUEUED") {}
    other.talk(&[("GET done", "\"yes\""), ("PING", "PONG")]);
    let stats = other.info_number("client_output_buffer_limit_disconnections");
    assert_eq!(stats, 3);
}

#[test]
fn subscribers_that_do_not_read_are_closed_as_messages_come() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[("client-output-buffer-limit", "pubsub 4mb 0 0")]);
    let mut publisher = server.client();
    let subscribers: Vec<Client> = (0..20)
        .map(|place| {
            let mut client = server.client();
            match place % 2 {
                0 => client.call(&["SUBSCRIBE", "news"]),
                _ => client.call(&["PSUBSCRIBE", "n*"]),
            };
            client
        })
        .collect();
    let before = used_bytes();
    let message = "m".repeat(100_000);
    let mut most = 0;
    let mut pipeline = Vec::new();
    for _ in 0..200 {
        redis_surface::codec::encode_command(&["PUBLISH", "news", &message], &mut pipeline);
    }
    let mut writer = publisher.stream.try_clone().expect("a second handle");
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&pipeline).expect("sent"));
        for _ in 0..200 {
            publisher.read();
            most = most.max(used_bytes());
        }
    });
    publisher.wait_for_info("client_output_buffer_limit_disconnections:20");
    assert_eq!(publisher.line("PUBSUB NUMPAT"), "0");
    publisher.wait_for_info("mem_clients_pushes:0");
    // The pipeline itself has 20 MB, and its arguments and messages are there for a while.
    let grown = most.saturating_sub(before);
    assert!(grown < 100 * MIB, "the memory grew by {grown} bytes");
    drop(subscribers);
}

#[test]
fn monitors_that_do_not_read_are_closed_and_others_are_not_held_up() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[("client-output-buffer-limit", "normal 0 0 0 pubsub 2mb 0 0")]);
    let monitors: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = server.client();
            client.talk(&[("MONITOR", "OK")]);
            client
        })
        .collect();
    let mut busy = server.client();
    let before = used_bytes();
    let mut most = 0;
    let word = "w".repeat(1000);
    for _ in 0..200 {
        let mut pipeline = Vec::new();
        for _ in 0..50 {
            redis_surface::codec::encode_command(&["SET", "k", &word], &mut pipeline);
        }
        busy.send_raw(&pipeline);
        for _ in 0..50 {
            assert_eq!(busy.read(), Reply::OK);
        }
        most = most.max(used_bytes());
    }
    busy.wait_for_info("client_output_buffer_limit_disconnections:10");
    let grown = most.saturating_sub(before);
    assert!(grown < 60 * MIB, "the memory grew by {grown} bytes");
    drop(monitors);
}

#[test]
fn the_clients_that_take_most_go_above_maxmemory_clients() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[("maxmemory", "1gb")]);
    let mut other = server.client();
    other.talk(&[
        ("CONFIG SET maxmemory-clients 2%", "OK"),
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"2%\"]"),
        ("CONFIG SET maxmemory-clients 20mb", "OK"),
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"20971520\"]"),
    ]);
    fill_list(&mut other, "list", 1000, 1000);
    let mut small = server.client();
    small.talk(&[("CLIENT SETNAME small", "OK")]);
    let mut kept = server.client();
    kept.talk(&[("CLIENT SETNAME kept", "OK"), ("CLIENT NO-EVICT ON", "OK")]);
    let mut large = server.client();
    large.talk(&[("CLIENT SETNAME large", "OK")]);
    let half = b"LRANGE list 0 -1\r\n".repeat(14);
    kept.send_raw(&half);
    let (unread, _) = settled(&mut other, "kept");
    assert!(unread > 0);
    // A command that never ends takes memory as well.
    small.send_raw(b"*2\r\n$4\r\nECHO\r\n$1000000\r\n");
    large.send_raw(&b"LRANGE list 0 -1\r\n".repeat(60));
    other.wait_for_info("evicted_clients:1");
    assert_eq!(field(&mut other, "large", "omem"), None);
    assert!(field(&mut other, "small", "omem").is_some());
    assert!(field(&mut other, "kept", "omem").is_some());
    for _ in 0..14 {
        assert!(matches!(kept.read(), Reply::Array(elements) if elements.len() == 1000));
    }
    small.send_raw(&[b'x'; 1_000_000]);
    small.send_raw(b"\r\n");
    assert!(matches!(small.read(), Reply::Bulk(text) if text.len() == 1_000_000));
    assert!(other.info_number("mem_clients_normal") > 0);
    // A block that is never run takes memory, too.
    let mut block = server.client();
    block.talk(&[("CLIENT SETNAME block", "OK"), ("MULTI", "OK")]);
    let word = "w".repeat(1_000_000);
    for _ in 0..40 {
        let mut bytes = Vec::new();
        redis_surface::codec::encode_command(&["SET", "k", &word], &mut bytes);
        if block.stream.write_all(&bytes).is_err() {
            break;
        }
    }
    other.wait_for_info("evicted_clients:2");
    assert_eq!(field(&mut other, "block", "multi-mem"), None);
}

#[test]
fn a_value_that_only_an_unread_reply_keeps_counts_for_its_client() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[]);
    let mut other = server.client();
    other.call(&["SETRANGE", "large", "39999999", "x"]);
    let mut reader = server.client();
    reader.talk(&[("CLIENT SETNAME reader", "OK")]);
    reader.send(&["GET", "large"]);
    while field(&mut other, "reader", "omem").expect("it is connected") < 30 * MIB {}
    other.talk(&[("DEL large", "1")]);
    let bytes = field(&mut other, "reader", "tot-mem").expect("it is connected");
    assert!(bytes > 30 * MIB, "{bytes} bytes count for the client");
    assert!(other.info_number("mem_clients_normal") > 30 * MIB);
    other.talk(&[("CONFIG SET maxmemory-clients 50mb", "OK"), ("PING", "PONG")]);
    assert_eq!(other.info_number("evicted_clients"), 0);
    assert!(matches!(reader.read(), Reply::Bulk(value) if value.len() == 40_000_000));
    while field(&mut other, "reader", "tot-mem").expect("it is connected") > MIB {}
    other.call(&["SETRANGE", "large", "39999999", "x"]);
    reader.send(&["GET", "large"]);
    while field(&mut other, "reader", "omem").expect("it is connected") < 30 * MIB {}
    other.talk(&[("CONFIG SET maxmemory-clients 20mb", "OK")]);
    other.wait_for_info("evicted_clients:1");
    // The connection's own thread closes it.
    while field(&mut other, "reader", "omem").is_some() {}
}

#[test]
fn invalidations_that_nobody_reads_count_and_replies_do_not() {
    let _turn = alone();
    let (server, _dir) = TestServer::start(&[("client-output-buffer-limit", "pubsub 4mb 0 0")]);
    let mut writer = server.client();
    writer.call(&["SETRANGE", "large", "39999999", "x"]);
    let mut tracker = server.client();
    tracker.call(&["HELLO", "3", "SETNAME", "tracker"]);
    tracker.call(&["CLIENT", "TRACKING", "ON", "BCAST"]);
    tracker.send(&["GET", "large"]);
    while field(&mut writer, "tracker", "omem").expect("it is connected") < 30 * MIB {}
    let name = "n".repeat(10_000);
    let mut write = |count: u32| {
        for number in 0..count {
            writer.call(&["SET", &format!("{name}{number}"), "v"]);
        }
    };
    write(200);
    let mut asker = server.client();
    asker.wait_until("INFO memory", |info| {
        let (_, bytes) = info.split_once("mem_clients_pushes:").expect("a field of INFO");
        let digits = bytes.split(|c: char| !c.is_ascii_digit()).next().expect("digits");
        (2_000_000..3_000_000).contains(&digits.parse::<u64>().expect("a number"))
    });
    let stats = asker.info_number("client_output_buffer_limit_disconnections");
    assert_eq!(stats, 0, "the reply is no push");
    write(300);
    asker.wait_for_info("client_output_buffer_limit_disconnections:1");
    assert_eq!(field(&mut asker, "tracker", "omem"), None);
    asker.wait_for_info("mem_clients_pushes:0");
    drop(tracker);
}
