//! What operators look at: counts and durations of calls, the slow log, latency, monitors, the file of
//! settings.

#![allow(clippy::disallowed_methods, reason = "clocks belong to the server's tests, too")]

use crate::support::{Client, TestServer, config, show};
use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};
use txn::Reply;

/// A section of INFO.
fn info(client: &mut Client, section: &str) -> String {
    match client.call(&["INFO", section]) {
        Reply::Verbatim(_, text) | Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("INFO replies a text: {other:?}"),
    }
}

/// What INFO says behind a name, if it says anything.
fn told(client: &mut Client, section: &str, name: &str) -> Option<String> {
    let text = info(client, section);
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    { lines }.find(|(known, _)| *known == name).map(|(_, told)| told.to_owned())
}

/// `calls rejected failed` of a command; empty if nothing is known of it.
fn calls(client: &mut Client, command: &str) -> String {
    let told = told(client, "commandstats", &format!("cmdstat_{command}"));
    let fields = told.unwrap_or_default();
    let numbers = fields.split(',').filter_map(|field| {
        let (name, value) = field.split_once('=')?;
        (!name.starts_with("usec")).then_some(value)
    });
    numbers.collect::<Vec<_>>().join(" ")
}

fn us_of(client: &mut Client, command: &str) -> u64 {
    let told = told(client, "commandstats", &format!("cmdstat_{command}")).expect("calls");
    let field = told.split(',').find_map(|field| field.strip_prefix("usec="));
    field.and_then(|us| us.parse().ok()).expect("a number")
}

/// The words of the slow log's entries, the newest first.
fn slow_words(client: &mut Client) -> Vec<String> {
    let Reply::Array(entries) = client.call(&["SLOWLOG", "GET", "-1"]) else {
        panic!("entries");
    };
    let words = entries.iter().map(|entry| match entry {
        Reply::Array(fields) => show(&fields[3]).replace(['"', '[', ']'], ""),
        other => panic!("{other:?}"),
    });
    words.collect()
}

/// The next line of a monitor, without its time and with `FROM` for its client.
fn seen(monitor: &mut Client) -> String {
    let line = show(&monitor.read());
    let (time, rest) = line.split_once(' ').expect("a time");
    let (seconds, fraction) = time.split_once('.').expect("a fraction");
    assert!(seconds.parse::<u64>().is_ok_and(|s| s > 1_700_000_000), "{line}");
    assert!(fraction.len() == 6, "{line}");
    let (from, words) = rest.split_once("] ").expect("a client");
    assert!(from.starts_with("[0 127.0.0.1:"), "{line}");
    words.to_owned()
}

#[test]
fn keys_that_expire_are_counted_with_what_they_have_left() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    assert_eq!(told(&mut client, "keyspace", "db0"), None);
    for line in ["SET a 1", "SET b 1 EX 100", "HSET c f v", "PEXPIRE c 300000"] {
        client.line(line);
    }
    let db = told(&mut client, "keyspace", "db0").expect("there are keys");
    let ttl_ms = db.strip_prefix("keys=3,expires=2,avg_ttl=");
    let ttl_ms: u64 = ttl_ms.and_then(|ms| ms.parse().ok()).expect(&db);
    assert!((140_000..=200_000).contains(&ttl_ms), "{db}");
    for line in ["PERSIST b", "DEL c"] {
        client.line(line);
    }
    let db = told(&mut client, "keyspace", "db0");
    assert_eq!(db.as_deref(), Some("keys=2,expires=0,avg_ttl=0"));
}

#[test]
fn changes_are_records_that_were_written_since_the_last_checkpoint() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let mut changes = || {
        let told = told(&mut client, "persistence", "rdb_changes_since_last_save");
        told.and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    let mut other = server.client();
    for (line, more) in [
        ("SET a 1", 1),
        ("GET a", 0),
        ("SETBIT a 0 0", 0),
        ("SETBIT a 0 1", 1),
        ("MSET a 1 b 2 c 3", 3),
        ("LPUSH a x", 0),
        ("DEL a none", 1),
        ("FLUSHALL", 1),
    ] {
        let before = changes();
        other.line(line);
        assert_eq!(changes() - before, more, "{line}");
    }
    assert_ne!(changes(), 0);
    assert_eq!(other.line("SAVE"), "OK");
    assert_eq!(changes(), 0);
}

#[test]
fn calls_are_counted_by_how_they_end() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.line("CONFIG RESETSTAT");
    for line in [
        "SET a 1",
        "SET a",
        "SET b x",
        "INCR b",
        "GET a",
        "LPUSH a x",
        "CONFIG GET port",
        "CONFIG GET",
        "NOPE",
        "XGROUP CREATE s g $",
        "EVAL return{1} 0",
        "EVALSHA nope 0",
        "GET a b",
        "CLIENT NOPE",
        "EXEC",
    ] {
        client.line(line);
    }
    for (command, want) in [
        ("set", "2 1 0"),
        ("incr", "1 0 1"),
        ("get", "1 1 0"),
        ("lpush", "1 0 1"),
        ("config", ""),
        ("config|get", "1 1 0"),
        ("config|resetstat", "1 0 0"),
        ("xgroup|create", "1 0 1"),
        ("eval", "1 0 0"),
        ("evalsha", "1 0 1"),
        ("client", ""),
        ("exec", "1 0 1"),
    ] {
        assert_eq!(calls(&mut client, command), want, "{command}");
    }
    let errors = info(&mut client, "errorstats");
    for line in ["errorstat_ERR:count=8", "errorstat_WRONGTYPE:count=1", "errorstat_NOSCRIPT:count=1"] {
        assert!(errors.lines().any(|known| known == line), "{line}: {errors}");
    }
    client.line("CONFIG RESETSTAT");
    assert_eq!(calls(&mut client, "set"), "");
    assert_eq!(info(&mut client, "errorstats"), "# Errorstats\r\n");
}

#[test]
fn a_blocks_commands_are_counted_when_they_run() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.line("CONFIG RESETSTAT");
    for line in ["MULTI", "SET a 1", "LPUSH a x", "PING", "CONFIG SET timeout x", "EXEC"] {
        client.line(line);
    }
    for line in ["MULTI", "SET a", "EXEC", "MULTI", "SET a 1", "DISCARD"] {
        client.line(line);
    }
    for (command, want) in [
        ("multi", "3 0 0"),
        ("set", "1 1 0"),
        ("lpush", "1 0 1"),
        ("ping", "1 0 0"),
        ("config|set", "1 0 1"),
        ("exec", "2 0 1"),
        ("discard", "1 0 0"),
    ] {
        assert_eq!(calls(&mut client, command), want, "{command}");
    }
    assert!(us_of(&mut client, "set") <= us_of(&mut client, "exec"));
}

#[test]
fn a_pipelines_calls_are_counted_each() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.line("CONFIG RESETSTAT");
    for _ in 0..100 {
        client.send(&["GET", "a"]);
        client.send(&["SET", "a", "1"]);
        client.send(&["STRLEN", "a"]);
        client.send(&["LRANGE", "l", "0", "1"]);
    }
    for _ in 0..400 {
        client.read();
    }
    for command in ["get", "set", "strlen", "lrange"] {
        assert_eq!(calls(&mut client, command), "100 0 0", "{command}");
        assert!(us_of(&mut client, command) < 60_000_000, "{command}");
    }
}

#[test]
fn a_wait_is_no_part_of_a_call() {
    let (server, _dir) = TestServer::start(&[("slowlog-log-slower-than", "0")]);
    let (mut waiter, mut other) = (server.client(), server.client());
    other.line("CONFIG RESETSTAT");
    let start = Instant::now();
    waiter.send(&["BLPOP", "a", "0.4"]);
    other.wait_for_info("blocked_clients:1");
    assert!(!slow_words(&mut other).contains(&"BLPOP a 0.4".to_owned()));
    assert_eq!(calls(&mut other, "blpop"), "");
    assert_eq!(show(&waiter.read()), "nil-array");
    assert!(start.elapsed() >= Duration::from_millis(400));
    assert_eq!(calls(&mut other, "blpop"), "1 0 0");
    assert!(us_of(&mut other, "blpop") < 300_000, "{}", us_of(&mut other, "blpop"));
    assert!(slow_words(&mut other).contains(&"BLPOP a 0.4".to_owned()));
    let id = waiter.line("CLIENT ID");
    waiter.send(&["BLPOP", "b", "c", "0"]);
    other.wait_for_info("blocked_clients:1");
    other.line(&format!("CLIENT UNBLOCK {id} ERROR"));
    assert!(show(&waiter.read()).starts_with("-UNBLOCKED"));
    assert_eq!(calls(&mut other, "blpop"), "2 0 1");
    waiter.send(&["BLPOP", "b", "c", "0"]);
    other.wait_for_info("blocked_clients:1");
    other.line("RPUSH c 1");
    assert_eq!(show(&waiter.read()), "[\"c\" \"1\"]");
    assert_eq!(calls(&mut other, "blpop"), "3 0 1");
    assert_eq!(slow_words(&mut other).iter().filter(|words| *words == "BLPOP b c 0").count(), 2);
}

#[test]
fn it_is_known_how_long_calls_take() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.line("CONFIG RESETSTAT");
    assert_eq!(client.line("LATENCY HISTOGRAM set hset nope"), "[]");
    for _ in 0..10 {
        client.line("SET a 1");
    }
    client.line("CLIENT ID");
    let percentiles = |client: &mut Client, command: &str| {
        told(client, "latencystats", &format!("latency_percentiles_usec_{command}"))
    };
    let set = percentiles(&mut client, "set").expect("calls");
    let parts: Vec<&str> = set.split(',').collect();
    assert_eq!(parts.len(), 3, "{set}");
    for (part, name) in parts.iter().zip(["p50=", "p99=", "p99.9="]) {
        let value = part.strip_prefix(name).expect("in this order");
        assert!(value.parse::<f64>().is_ok_and(|us| us > 0.0 && us < 20e6), "{set}");
        assert_eq!(value.split_once('.').map(|(_, digits)| digits.len()), Some(3));
    }
    assert!(percentiles(&mut client, "client|id").is_some());
    let histogram = client.line("LATENCY HISTOGRAM set");
    assert!(histogram.starts_with("[\"set\" [\"calls\" 10 \"histogram_usec\" ["), "{histogram}");
    assert!(histogram.ends_with(" 10]]]"), "{histogram}");
    assert!(client.line("LATENCY HISTOGRAM client").contains("client|id"));
    client.talk(&[
        (
            "CONFIG GET latency-tracking-info-percentiles",
            "[\"latency-tracking-info-percentiles\" \"50 99 99.9\"]",
        ),
        ("CONFIG SET latency-tracking no", "OK"),
        ("CONFIG RESETSTAT", "OK"),
        ("SET a 1", "OK"),
        ("LATENCY HISTOGRAM", "[]"),
    ]);
    assert_eq!(percentiles(&mut client, "set"), None);
    assert_eq!(calls(&mut client, "set"), "1 0 0");
    assert_eq!(
        show(&client.call(&[
            "CONFIG",
            "SET",
            "latency-tracking",
            "yes",
            "latency-tracking-info-percentiles",
            "0.0 100.0"
        ])),
        "OK"
    );
    client.line("SET a 1");
    let set = percentiles(&mut client, "set").expect("calls");
    assert!(set.starts_with("p0=") && set.contains(",p100="), "{set}");
    let refused = show(&client.call(&["CONFIG", "SET", "latency-tracking-info-percentiles", "101"]));
    assert!(refused.starts_with("-ERR CONFIG SET failed"), "{refused}");
}

#[test]
fn slow_calls_are_kept_with_their_words() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let address = client.stream.local_addr().expect("bound");
    client.talk(&[
        ("SLOWLOG LEN", "0"),
        ("CLIENT SETNAME me", "OK"),
        ("CONFIG SET slowlog-log-slower-than 0", "OK"),
        ("SLOWLOG RESET", "OK"),
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"),
        ("SLOWLOG GET x", "-ERR count should be greater than or equal to -1"),
    ]);
    client.line("SLOWLOG RESET");
    for line in [
        "Set a 1",
        "get a",
        "ping",
        "ping x",
        "GET a",
        "SCRIPT LOAD return{1}",
        "EVAL return{1} 1 a",
        "MULTI",
        "SET a 2",
        "GET a",
        "EXEC",
        "AUTH secret",
        "ACL SETUSER bob >secret",
        "CONFIG SET requirepass secret timeout 0",
        "HELLO 2 AUTH default secret",
        "nope",
        "GET",
    ] {
        client.line(line);
    }
    let want = [
        "HELLO 2 AUTH (redacted) (redacted)",
        "CONFIG SET requirepass (redacted) timeout 0",
        "ACL SETUSER (redacted) (redacted)",
        "AUTH (redacted)",
        "EXEC set get",
        "MULTI",
        "EVAL return{1} 1 a",
        "SCRIPT load return{1}",
        "GET a",
        "ping x",
        "ping",
        "get a",
        "Set a 1",
        "SLOWLOG RESET",
    ];
    assert_eq!(slow_words(&mut client), want);
    let Reply::Array(entries) = client.call(&["SLOWLOG", "GET", "1"]) else {
        panic!("entries");
    };
    let Reply::Array(entry) = &entries[0] else {
        panic!("an entry");
    };
    assert_eq!(show(&entry[3]), "[\"SLOWLOG\" \"GET\" \"-1\"]");
    assert_eq!(show(&entry[4]), format!("\"{address}\""));
    assert_eq!(show(&entry[5]), "\"me\"");
    let number = |place: usize| match entry[place] {
        Reply::Integer(value) => value,
        ref other => panic!("{other:?}"),
    };
    assert!(number(1) > 1_700_000_000 && number(2) < 20_000_000, "{entry:?}");
    client.line("CONFIG SET slowlog-max-len 3");
    assert_eq!(client.line("SLOWLOG LEN"), "3");
    client.line("CONFIG SET slowlog-log-slower-than -1");
    client.line("SLOWLOG RESET");
    client.talk(&[("GET a", "\"2\""), ("SLOWLOG LEN", "0")]);
}

#[test]
fn slow_events_are_kept_by_their_kind() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let slow = "EVAL for\u{a0}i=1,1000000\u{a0}do\u{a0}end 0".replace('\u{a0}', "\n");
    let slow: Vec<&str> = slow.split(' ').collect();
    client.call(&slow);
    client.talk(&[
        ("LATENCY LATEST", "[]"),
        ("LATENCY GRAPH command", "-ERR No samples available for event 'command'"),
        ("LATENCY HISTORY command", "[]"),
    ]);
    assert!(client.line("LATENCY DOCTOR").contains("monitoring is off"));
    client.line("CONFIG SET latency-monitor-threshold 1");
    client.call(&slow);
    let latest = client.line("LATENCY LATEST");
    assert!(latest.contains("[\"command\" 1"), "{latest}");
    assert!(client.line("LATENCY HISTORY Command").starts_with("[[1"));
    assert!(client.line("LATENCY GRAPH command").starts_with("\"command - high "));
    assert!(client.line("LATENCY DOCTOR").contains("command: "));
    client.line("CONFIG SET latency-monitor-threshold 0");
    client.talk(&[
        ("LATENCY RESET nope", "0"),
        ("LATENCY RESET command", "1"),
        ("LATENCY HISTORY command", "[]"),
        ("LATENCY HELP x", "-ERR wrong number of arguments for 'latency|help' command"),
    ]);
}

#[test]
fn a_monitor_sees_what_clients_send() {
    let (server, _dir) = TestServer::start(&[("requirepass", "secret")]);
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.talk(&[("AUTH secret", "OK"), ("MONITOR", "OK")]);
    for line in [
        "AUTH nope",
        "AUTH secret",
        "SET a b",
        "GET a",
        "CONFIG GET port",
        "SLOWLOG LEN",
        "GET",
        "nope",
        "MULTI",
        "set c d",
        "PING",
        "EXEC",
        "MULTI",
        "GET",
        "EXEC",
        "HELLO 2 AUTH default secret",
        "EVAL return{1} 0",
        "BLPOP q 0.01",
    ] {
        client.line(line);
    }
    client.call(&["ECHO", "a\"\r\n\u{e9}"]);
    for want in [
        "\"AUTH\" \"(redacted)\"",
        "\"AUTH\" \"(redacted)\"",
        "\"SET\" \"a\" \"b\"",
        "\"GET\" \"a\"",
        "\"MULTI\"",
        "\"set\" \"c\" \"d\"",
        "\"PING\"",
        "\"exec\"",
        "\"MULTI\"",
        "\"EXEC\"",
        "\"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\"",
        "\"EVAL\" \"return{1}\" \"0\"",
        "\"BLPOP\" \"q\" \"0.01\"",
        "\"ECHO\" \"a\\\"\\r\\n\\xc3\\xa9\"",
    ] {
        assert_eq!(seen(&mut monitor), want);
    }
    // A monitor is no ordinary client until it is reset.
    let id = client.line("CLIENT ID");
    assert_eq!(seen(&mut monitor), "\"CLIENT\" \"ID\"");
    assert!(client.line("CLIENT LIST").contains(" flags=O "));
    monitor.send(&["GET", "a"]);
    assert_eq!(show(&monitor.read()), "-ERR Replica can't interact with the keyspace");
    monitor.send(&["RESET"]);
    assert_eq!(show(&monitor.read()), "RESET");
    client.line("SET a c");
    monitor.talk(&[("GET a", "-NOAUTH Authentication required."), ("AUTH secret", "OK"), ("GET a", "\"c\"")]);
    assert_eq!(client.line("CLIENT ID"), id);
    // Nor does one see anything that is gone.
    monitor.line("MONITOR");
    monitor.stream.shutdown(Shutdown::Both).expect("open");
    client.wait_for_info("connected_clients:1");
    client.talk(&[("SET a d", "OK"), ("GET a", "\"d\"")]);
}

#[test]
fn a_monitor_that_does_not_read_is_closed() {
    let limit = ("client-output-buffer-limit", "normal 1mb 0 0");
    let (server, _dir) = TestServer::start(&[limit]);
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.talk(&[("MONITOR", "OK")]);
    let value = "v".repeat(100_000);
    let start = Instant::now();
    while told(&mut client, "clients", "connected_clients").as_deref() != Some("1") {
        assert!(start.elapsed() < Duration::from_secs(60), "it is never closed");
        for _ in 0..20 {
            client.call(&["SET", "a", &value]);
        }
    }
    assert_eq!(told(&mut client, "stats", "client_output_buffer_limit_disconnections").as_deref(), Some("1"));
    // What had been sent to it before is all that it gets.
    let mut rest = Vec::new();
    let _ = monitor.stream.read_to_end(&mut rest);
}

#[test]
fn settings_are_written_into_their_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ordo.toml");
    let data = dir.path().join("data");
    let text = format!("# ours\ntimeout = 0 # never\ndir = {:?}\n", data.to_str().expect("UTF-8"));
    std::fs::write(&path, text).expect("written");
    let mut settings = config(&data, &[]);
    settings.read_file(&path).expect("settings");
    let server = TestServer::start_with(settings);
    let mut client = server.client();
    client.talk(&[("CONFIG SET timeout 77 maxmemory 1gb", "OK"), ("CONFIG REWRITE", "OK")]);
    let written = std::fs::read_to_string(&path).expect("there");
    assert!(written.starts_with("# ours\ntimeout = 77 # never\ndir = "), "{written}");
    assert!(
        written.contains("\n# Generated by CONFIG REWRITE\n")
            && written.contains("\nmaxmemory = 1073741824\n"),
        "{written}"
    );
    server.stop();
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[("CONFIG REWRITE", "-ERR The server is running without a config file")]);
}

#[test]
fn reset_makes_a_connection_new() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let id = client.line("CLIENT ID");
    for line in [
        "ACL SETUSER bob on >p +@all ~* &*",
        "AUTH bob p",
        "HELLO 3",
        "CLIENT SETNAME me",
        "CLIENT TRACKING on",
        "CLIENT NO-EVICT on",
        "SUBSCRIBE c",
        "MONITOR",
    ] {
        client.line(line);
    }
    client.send(&["RESET"]);
    while show(&client.read()) != "RESET" {}
    client.talk(&[
        ("CLIENT ID", &id),
        ("ACL WHOAMI", "\"default\""),
        ("CLIENT GETNAME", "nil"),
        ("CLIENT GETREDIR", "-1"),
        ("PUBSUB CHANNELS", "[]"),
        ("GET a", "nil"),
    ]);
    let line = client.line("CLIENT INFO");
    for part in [" flags=N ", " resp=2 ", " sub=0 "] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn memory_is_told_of() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.line("SET a b");
    let stats = client.line("MEMORY STATS");
    assert!(stats.contains("\"keys.count\" 1 "), "{stats}");
    assert!(client.line("MEMORY DOCTOR").starts_with('"'));
    assert!(client.line("MEMORY MALLOC-STATS").contains("VmRSS"));
    assert!(client.line("MEMORY HELP").starts_with("[MEMORY <subcommand>"));
    assert!(client.line("LOLWUT").contains("Redis ver. 7."));
    client.talk(&[
        ("MEMORY PURGE", "OK"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0"),
        ("CLIENT LIST ID 0 -1", "\"\""),
        ("CLIENT LIST ID 0 x", "-ERR Invalid client ID"),
        ("CLIENT LIST ID", "-ERR syntax error"),
        ("CLIENT LIST ID 0 99 TYPE normal", "\"\""),
    ]);
}

#[test]
fn lookups_of_reads_count_as_hits_or_misses() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[
        ("SET a 1", "OK"),
        ("GET a", "\"1\""),
        ("GET b", "nil"),
        ("EXISTS a b c", "1"),
        ("HGET h f", "nil"),
        // What is written counts for nothing.
        ("INCR a", "2"),
        ("EVAL_RO return(redis.call('GET','a')) 1 a", "\"2\""),
    ]);
    assert_eq!(client.info_number("keyspace_hits"), 3);
    assert_eq!(client.info_number("keyspace_misses"), 4);
    client.talk(&[("CONFIG RESETSTAT", "OK"), ("GET b", "nil")]);
    assert_eq!(client.info_number("keyspace_hits"), 0);
    assert_eq!(client.info_number("keyspace_misses"), 1);
}

#[test]
fn what_exporters_and_consoles_ask_for_is_there() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[
        ("ROLE", "[\"master\" 0 []]"),
        ("MODULE LIST", "[]"),
        ("EVAL return(1) 0", "1"),
        ("EVAL return(redis.call('WAIT','0','0')) 0", "0"),
        ("EVAL return(redis.call('WAITAOF','0','0','0')) 0", "[0 0]"),
        ("CONFIG SET hz 50 lazyfree-lazy-expire yes appendonly no", "OK"),
        ("CONFIG GET lazyfree-lazy-expire", "[\"lazyfree-lazy-expire\" \"yes\"]"),
        ("CONFIG GET cluster-enabled", "[\"cluster-enabled\" \"no\"]"),
        ("CONFIG GET appendonly", "[\"appendonly\" \"yes\"]"),
        ("CONFIG SET loglevel notice", "OK"),
        ("CONFIG SET notify-keyspace-events KEAm", "OK"),
        ("CONFIG GET notify-keyspace-events", "[\"notify-keyspace-events\" \"AKEm\"]"),
    ]);
    let refused = client.line("CONFIG SET daemonize yes");
    assert!(refused.contains("immutable"), "{refused}");
    let info = client.info();
    for field in [
        "hz:50",
        "lru_clock:",
        "redis_git_sha1:",
        "total_system_memory:",
        "used_memory_dataset:",
        "used_memory_overhead:",
        "allocator_resident:",
        "number_of_cached_scripts:3",
        "total_blocking_keys:0",
        "repl_backlog_size:0",
        "lazyfreed_objects:0",
    ] {
        assert!(info.contains(&format!("\r\n{field}")), "{field} is not in {info}");
    }
    for command in ["DEBUG SLEEP 1", "SWAPDB 0 1", "HEXPIRE h 1 FIELDS 1 f"] {
        let refused = client.line(command);
        assert!(refused.contains("Ordo does not have this command of Redis: "), "{refused}");
    }
}
