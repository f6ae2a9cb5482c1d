//! The HTTP port of real servers: what it answers, to whom, and that it holds up nobody.
#![allow(clippy::disallowed_methods, reason = "clients of the HTTP port are sockets")]

use crate::nodes::{Build, Cluster, PATIENCE, Server, ZONES, word};
use server::client::Answer;
use server::config::Config;
use server::http::{CONNECTION_MAX, HttpServer};
use server::launcher::{HOST, free_port, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the HTTP port replied.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

/// Sends bytes to a port of this machine and reads until the server closes.
fn exchange(port: u16, bytes: &[u8]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect((HOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(bytes)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no HTTP: {text}")))?;
    Ok(Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
}

/// Asks for a path, with lines of headers.
fn get(port: u16, path: &str, headers: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{headers}\r\n");
    exchange(port, request.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A server by itself, and its HTTP port, which says that the server is ready.
fn serving(words: &[&str]) -> (Server, u16) {
    let port = free_port().expect("a port");
    let mut server = Server::new();
    server.start(&[&["--http-port", &port.to_string(), "--http-bind", HOST], words].concat());
    server.until("ready", || (get(port, "/readyz", "").status == 200).then_some(()));
    (server, port)
}

/// The values of a text in Prometheus' form, by their series. Each line must be well-formed, and each series
/// belong to a metric that has a help and a type.
fn series(text: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = "";
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a name and a text");
            assert!(help.ends_with('.') || help.ends_with("else 0."), "{line}");
            helped = name;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert_eq!(name, helped, "the help is before the type");
            assert_eq!(types.insert(name, kind), None, "{name} is there once");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            let name = series.split('{').next().expect("a name");
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|base| types.get(base) == Some(&"histogram")));
            let kind = types.get(base.unwrap_or(name)).unwrap_or_else(|| panic!("no type: {line}"));
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{line}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(!value.is_nan() && value >= 0.0 || name == "ordo_node_clock_ahead_seconds", "{line}");
            assert_eq!(found.insert(series.to_owned(), value), None, "{series} is there once");
        }
    }
    found
}

#[test]
fn a_server_by_itself_says_that_it_lives_and_is_ready() {
    let (server, port) = serving(&[]);
    let reply = get(port, "/healthz", "");
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"));
    let reply = get(port, "/readyz", "");
    assert_eq!(reply.status, 200);
    assert!(reply.body.starts_with("ready\nrole: alone\nfinal_committed_position: "), "{}", reply.body);
    for _ in 0..10 {
        server.call(&["INCR", "counter"]);
    }
    // What was found is told again for a moment.
    server.until("of ten more transactions", || {
        let body = get(port, "/readyz", "").body;
        let position = body.lines().find_map(|line| line.strip_prefix("final_committed_position: "))?;
        (position.parse::<u64>().expect("a number") >= 10).then_some(())
    });
    assert_eq!(get(port, "/console", "").status, 404);
    assert_eq!(get(port, "/metrics/", "").status, 404);
    let reply =
        exchange(port, b"POST /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi").expect("HTTP");
    assert_eq!(reply.status, 405);
    assert!(reply.head.contains("allow: get, head"), "{}", reply.head);
    let reply = exchange(port, b"HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n").expect("HTTP");
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
}

/// What the console shows.
fn console(port: u16, headers: &str) -> serde_json::Value {
    let reply = get(port, "/console.json", headers);
    assert_eq!(reply.status, 200, "{}", reply.body);
    serde_json::from_str(&reply.body).expect("JSON")
}

#[test]
fn the_console_shows_what_a_server_does() {
    let (server, port) = serving(&["--slowlog-log-slower-than", "0", "--maxmemory", "1gb"]);
    for path in ["/", "/console.js", "/console.css"] {
        let reply = get(port, path, "");
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.head.contains("content-security-policy: default-src 'none'"), "{}", reply.head);
    }
    for _ in 0..5 {
        server.call(&["SET", "<b>key</b>", "value"]);
    }
    server.call(&["GET", "nothing"]);
    let shown = server.until("shown", || {
        let shown = console(port, "");
        (shown["server"]["grows"]["committed"].as_u64() >= Some(5)).then_some(shown)
    });
    assert_eq!((shown["verdict"].as_str(), shown["ready"].as_bool()), (Some("ok"), Some(true)));
    assert_eq!(shown["problems"], serde_json::json!([]));
    assert!(shown["cluster"].is_null());
    let seen = &shown["server"];
    assert_eq!((seen["keys"].as_u64(), seen["grows"]["misses"].as_u64()), (Some(1), Some(1)));
    assert_eq!(seen["memory"]["limit"].as_u64(), Some(1 << 30));
    let commands = seen["commands"].as_array().expect("a list");
    let set = commands.iter().find(|command| command["name"] == "set").expect("SET");
    assert_eq!(set["calls"].as_u64(), Some(5));
    assert!(set["p99_ns"].as_u64() >= set["p50_ns"].as_u64() && set["p50_ns"].as_u64() > Some(0), "{set}");
    let slow = seen["slow"].as_array().expect("a list");
    assert!(slow.iter().any(|call| call["words"] == "SET <b>key</b> value"), "{slow:?}");
    // What is short is said, with what to do.
    server.call(&["CONFIG", "SET", "maxmemory", "1"]);
    let problem = server.until("a problem", || console(port, "")["problems"].get(0).cloned());
    assert_eq!((problem["kind"].as_str(), problem["severity"].as_str()), (Some("memory"), Some("warning")));
    assert!(problem["next"].as_str().is_some_and(|next| next.contains("raise maxmemory")), "{problem}");
    assert_eq!(console(port, "")["verdict"], "degraded");
    // A page from elsewhere, whose name stands for this machine's address for a while, is told nothing.
    let request = b"GET /console.json HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(exchange(port, request).expect("HTTP").status, 403);
}

#[test]
fn the_key_over_which_scripts_conflict_is_shown_with_what_they_are() {
    let (server, port) = serving(&["--workers", "2"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A client that fails, or this thread, ends the others.
        let ends = Ends(&over);
        for _ in 0..8 {
            scope.spawn(|| {
                let _ends = Ends(&over);
                let script = "local x = redis.call('GET', KEYS[1]) \
                              for i = 1, 200 do redis.call('GET', 'k' .. i) end \
                              redis.call('SET', KEYS[2], (x or 0) + 1)";
                let mut client = server.client();
                while !over.load(Ordering::Relaxed) {
                    client.call(&["EVAL", script, "2", "a hot\nkey", "a hot\nkey"]).expect("a reply");
                }
            });
        }
        let shown = server.until("a conflict", || {
            assert!(!over.load(Ordering::Relaxed), "a client has failed");
            let shown = console(port, "")["server"].take();
            // There may be others: that the first of them stores the script, for one.
            let is_it = |conflict: &serde_json::Value| {
                conflict["cause"] == "overwritten" && conflict["key"] == "a hot\\nkey"
            };
            shown["conflicts"].as_array()?.iter().any(is_it).then_some(shown)
        });
        let info = server.call(&["INFO", "conflicts"]).text("INFO").expect("a text");
        server.call(&["ACL", "SETUSER", "other", "on", "nopass", "~others:*", "+info"]);
        let mut other = server.client();
        other.call(&["AUTH", "other", ""]).expect("a reply");
        let told = other.call(&["INFO", "conflicts"]).expect("a reply").text("INFO").expect("a text");
        drop(ends);
        for conflict in shown["conflicts"].as_array().expect("a list") {
            assert_eq!(conflict["of"], "redis.eval");
        }
        assert!(shown["grows"]["restarts"].as_u64() > Some(0), "{shown}");
        assert!(info.contains("by=redis.eval,of=redis.eval,key=a hot\\nkey\r\n"), "{info}");
        assert!(told.contains("by=redis.eval,of=redis.eval,key=\r\n") && !told.contains("hot"), "{told}");
    });
}

/// Says that it is over, also when a thread panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_console_asks_for_the_token_and_its_page_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef").expect("written");
    let (_server, port) = serving(&["--http-token-file", word(&file)]);
    assert_eq!(get(port, "/", "").status, 200);
    assert_eq!(get(port, "/console.json", "").status, 401);
    let token = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
    assert_eq!(console(port, token)["verdict"], "ok");
}

#[test]
fn metrics_tell_what_info_tells() {
    let (server, port) = serving(&[]);
    for words in [
        &["SET", "a", "1"][..],
        &["SET", "b", "2", "EX", "1000"],
        &["GET", "a"],
        &["GET", "nothing"],
        &["LPUSH", "a", "x"],
        &["EVAL", "return redis.error_reply('MINE quotes \" and backslashes \\\\')", "0"],
    ] {
        server.call(words);
    }
    let value = |series: &BTreeMap<String, f64>, name: &str| {
        *series.get(name).unwrap_or_else(|| panic!("{name} is missing"))
    };
    // The names of INFO and of the metrics: numbers that stay as they are while nobody asks.
    let same = [
        ("total_commands_processed", "ordo_commands_processed_total"),
        ("total_connections_received", "ordo_connections_received_total"),
        ("total_error_replies", "ordo_error_replies_total"),
        ("keyspace_hits", "ordo_keyspace_hits_total"),
        ("keyspace_misses", "ordo_keyspace_misses_total"),
        ("expired_keys", "ordo_expired_keys_total"),
        ("evicted_keys", "ordo_evicted_keys_total"),
        ("maxclients", "ordo_max_clients"),
        ("snapshot_reads", "ordo_snapshot_reads_total"),
        ("ordered_requests", "ordo_ordered_requests_total"),
        ("final_committed_position", "ordo_final_committed_position{partition=\"0\"}"),
        ("restarts", "ordo_engine_restarts_total{partition=\"0\"}"),
        ("speculation_window", "ordo_engine_window{partition=\"0\"}"),
        ("log_bytes_since_checkpoint", "ordo_log_since_checkpoint_bytes"),
        ("rdb_saves", "ordo_checkpoints_written_total"),
    ];
    let mut client = server.client();
    let text = server.until("the same in INFO and in the metrics", || {
        let Ok(Answer::Text(info)) = client.call(&["INFO"]) else { panic!("INFO") };
        let text = get(port, "/metrics", "").body;
        let series = series(&text);
        let told = |field: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            value.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("{field} is missing"))
        };
        // A call of INFO is counted once it has been answered.
        let own = |field: &str| f64::from(u8::from(field == "total_commands_processed"));
        let is_same = |&(field, name): &(&str, &str)| {
            let difference = value(&series, name) - told(field);
            difference == 0.0 || difference == own(field)
        };
        same.iter().all(is_same).then_some(text)
    });
    let series = series(&text);
    for (name, wanted) in [
        ("ordo_loading", 0.0),
        ("ordo_ready", 1.0),
        ("ordo_cluster_enabled", 0.0),
        ("ordo_keys", 2.0),
        ("ordo_keys_with_expiry", 1.0),
        ("ordo_keyspace_hits_total", 1.0),
        ("ordo_keyspace_misses_total", 1.0),
        ("ordo_command_calls_total{command=\"set\"}", 2.0),
        ("ordo_command_failed_calls_total{command=\"lpush\"}", 1.0),
        ("ordo_errors_total{code=\"WRONGTYPE\"}", 1.0),
        ("ordo_errors_total{code=\"MINE\"}", 1.0),
    ] {
        assert_eq!(value(&series, name), wanted, "{name}");
    }
    // A histogram's buckets only grow, and the last one has all.
    for (histogram, least) in
        [("ordo_command_duration_seconds", 6.0), ("ordo_log_sync_duration_seconds", 1.0)]
    {
        let count = value(&series, &format!("{histogram}_count"));
        assert!(count >= least && value(&series, &format!("{histogram}_sum")) > 0.0, "{histogram}: {count}");
        let buckets = text.lines().filter_map(|line| line.strip_prefix(&format!("{histogram}_bucket")));
        let counts: Vec<f64> =
            buckets.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(counts.is_sorted() && counts.last() == Some(&count), "{histogram}: {counts:?}");
    }
    let uses =
        ["startup", "dataset", "client_buffers"].map(|kind| format!("ordo_memory_bytes{{type=\"{kind}\"}}"));
    let sum: f64 = uses.iter().map(|name| value(&series, name)).sum();
    assert_eq!(sum, value(&series, "ordo_memory_used_bytes"), "no connection has a buffer");
}

#[test]
fn the_form_is_the_one_that_is_asked_for() {
    const OPEN: &str = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    const PLAIN: &str = "content-type: text/plain; version=0.0.4; charset=utf-8";
    let (_server, port) = serving(&[]);
    // What Prometheus sends, whichever form it is set to prefer.
    let open_first = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                      application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.1";
    let plain_first =
        "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1";
    for (accept, wanted) in [
        (open_first, OPEN),
        (plain_first, PLAIN),
        ("application/openmetrics-text", OPEN),
        ("application/openmetrics-text;q=0", PLAIN),
        ("*/*", PLAIN),
        ("text/html", PLAIN),
        ("\u{e9};;=,q", PLAIN),
    ] {
        let reply = get(port, "/metrics", &format!("Accept: {accept}\r\n"));
        assert_eq!(reply.status, 200, "{accept}");
        assert!(reply.head.contains(wanted), "{accept}: {}", reply.head);
        let is_open = wanted == OPEN;
        assert_eq!(reply.body.ends_with("# EOF\n"), is_open, "{accept}");
        assert_eq!(reply.body.contains("# TYPE ordo_build info\n"), is_open, "{accept}");
        assert!(reply.body.contains("ordo_build_info{version="), "{accept}");
    }
    // Both forms tell of the same metrics.
    let names = |accept: &str| -> BTreeSet<String> {
        let body = get(port, "/metrics", accept).body;
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split(['{', ' ']).next().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(""), names("Accept: application/openmetrics-text\r\n"));
}

#[test]
fn clients_that_ask_for_too_much_or_nothing_hold_up_nobody() {
    let (server, port) = serving(&[]);
    let mut redis = server.client();
    let mut serves = |what: &str| {
        assert_eq!(redis.call(&["PING"]).expect(what), Answer::Text("PONG".to_owned()), "{what}");
        assert_eq!(get(port, "/healthz", "").status, 200, "{what}");
    };
    // More than may be open at a time: the oldest are closed.
    let mut idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect((HOST, port)).expect("it accepts")).collect();
    serves("200 idle connections");
    let first = &mut idle[0];
    // Long before its time is over.
    first.set_read_timeout(Some(CONNECTION_MAX / 2)).expect("a socket");
    let is_closed = match first.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    };
    assert!(is_closed, "the oldest one is open");
    // One that sends a byte and no more, and one that does not read what it asked for.
    let last = idle.last_mut().expect("some");
    last.write_all(b"G").expect("it is open");
    let mut deaf = TcpStream::connect((HOST, port)).expect("it accepts");
    deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    serves("slow clients");
    drop(idle);
    // Too long a head, in one line and in many; a long body; what is no HTTP.
    let long = "x".repeat(1 << 20);
    let many: String = (0..10_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let bodied = format!("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{long}", long.len());
    for (request, wanted) in [
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), &[414, 431][..]),
        (format!("GET /healthz HTTP/1.1\r\n{many}\r\n"), &[431]),
        (bodied, &[405]),
        ("SET k v\r\n\r\n".to_owned(), &[400]),
        ("*1\r\n$4\r\nPING\r\n".to_owned(), &[400]),
        ("GET http://[ HTTP/1.1\r\n\r\n".to_owned(), &[400]),
        ("GET /healthz HTTP/9.9\r\n\r\n".to_owned(), &[400]),
        ("\0\0\0\0\r\n\r\n".to_owned(), &[400]),
    ] {
        let what: String = request.chars().take(20).collect();
        // It may close before it has read everything: then its reply may be lost.
        if let Ok(reply) = exchange(port, request.as_bytes()) {
            assert!(wanted.contains(&reply.status), "{what:?}: {reply:?}");
        }
        serves(&what);
    }
}

#[test]
fn a_token_protects_what_there_is_to_know() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "open-sesame\n").expect("written");
    let (_server, port) = serving(&["--http-token-file", word(&file)]);
    let with = |scheme: &str, token: &str| format!("Authorization: {scheme} {token}\r\n");
    for headers in ["", &with("Bearer", "open-sesam"), &with("Basic", "open-sesame"), "Authorization: \r\n"] {
        let reply = get(port, "/metrics", headers);
        assert_eq!(reply.status, 401, "{headers}");
        assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
        assert!(!reply.body.contains("ordo_"));
        assert_eq!(get(port, "/nothing", headers).status, 401, "{headers}");
        // What a load balancer needs, and no more.
        let replies = ["/healthz", "/readyz"].map(|path| get(port, path, headers));
        assert_eq!(replies.each_ref().map(|reply| reply.status), [200, 200]);
        assert_eq!(replies.each_ref().map(|reply| reply.body.as_str()), ["ok\n", "ready\n"]);
    }
    let right = with("Bearer", "open-sesame");
    assert!(get(port, "/metrics", &right).body.contains("\nordo_ready 1\n"));
    assert!(get(port, "/readyz", &right).body.contains("role: alone"));
}

#[test]
fn other_machines_reach_it_only_with_a_token() {
    let port = free_port().expect("a port").to_string();
    let mut server = Server::new();
    // The second is a name of the first, which is known once it is resolved.
    for (words, wanted) in [
        (["--http-bind", "0.0.0.0"], "--http-token-file"),
        (["--http-bind", "0"], "--http-token-file"),
        (["--http-token-file", "/nowhere"], "/nowhere cannot be read"),
    ] {
        server.launch(&[&["--http-port", &port][..], &words].concat());
        assert!(!server.ended().success() && server.said().contains(wanted), "{}", server.said());
    }
}

#[test]
fn a_server_that_loads_its_data_lives_and_is_not_ready() {
    let port = free_port().expect("a port");
    let mut config = Config::default();
    for (name, value) in [("http-port", port.to_string()), ("http-bind", HOST.to_owned())] {
        let setting = Config::setting(name).expect("exists");
        (setting.set)(&mut config, &value).expect("valid");
    }
    // Nobody tells it that there is something to serve.
    let http = HttpServer::open(&config).expect("a free port").expect("it was asked for");
    assert_eq!(http.addresses(), [format!("{HOST}:{port}").parse().expect("an address")]);
    assert_eq!(get(port, "/healthz", "").status, 200);
    let reply = get(port, "/readyz", "");
    assert_eq!(reply.status, 503);
    assert!(reply.body.starts_with("not ready: loading"), "{}", reply.body);
    let series = series(&get(port, "/metrics", "").body);
    assert_eq!((series["ordo_loading"], series["ordo_ready"]), (1.0, 0.0));
    drop(http);
    assert!(TcpStream::connect((HOST, port)).is_err(), "the port is closed");
    assert!(HttpServer::open(&Config::default()).expect("nothing to do").is_none());
}

#[test]
fn nodes_of_a_cluster_say_who_leads_and_that_they_lack_a_majority() {
    let mut cluster = Cluster::prepare(&ZONES, 1, Build::own(&[]));
    let ports: Vec<u16> = ZONES.iter().map(|_| free_port().expect("a port")).collect();
    let run = |cluster: &mut Cluster, place: usize| {
        let port = ports[place].to_string();
        cluster.run_as(place, &Build::own(&["--http-port", &port, "--http-bind", HOST]));
    };
    let ready = |place: usize| {
        let port = ports[place];
        TcpStream::connect((HOST, port)).is_ok().then(|| get(port, "/readyz", ""))
    };
    // One alone waits for the others.
    run(&mut cluster, 0);
    let reply = cluster.until(0, "answering", || ready(0));
    assert_eq!(reply.status, 503);
    assert!(reply.body.starts_with("not ready: loading"), "{}", reply.body);
    assert_eq!(get(ports[0], "/healthz", "").status, 200);

    run(&mut cluster, 1);
    run(&mut cluster, 2);
    let bodies: Vec<String> = (0..3)
        .map(|place| {
            cluster.until(place, "ready", || {
                let reply = ready(place)?;
                (reply.status == 200).then_some(reply.body)
            })
        })
        .collect();
    cluster.call(1, &["SET", "k", "v"]);
    // Leaders may move while nodes come: look until one leads and two follow.
    let leader = cluster.until(0, "led by one", || {
        let bodies: Vec<String> = (0..3).filter_map(|place| Some(ready(place)?.body)).collect();
        let leads =
            |body: &String| body.contains("\nrole: leader\n") && body.contains("\npartitions_led: 1\n");
        let follows = |body: &String| body.contains("\nrole: follower\n");
        let leader = bodies.iter().position(leads)?;
        (bodies.iter().filter(|body| follows(body)).count() == 2).then_some(leader)
    });
    for line in ["partitions: 1", "partitions_kept: 1", "epoch: ", "epochs_unconfirmed: ", "staleness_ms: "] {
        assert!(bodies[leader].lines().any(|found| found.starts_with(line)), "{line}: {}", bodies[leader]);
    }
    let others: Vec<usize> = (0..3).filter(|&place| place != leader).collect();
    // The leader knows how far behind each of the others is.
    cluster.until(leader, "told of the others", || {
        let series = series(&get(ports[leader], "/metrics", "").body);
        let name = |place: usize| &cluster.nodes[place].name;
        let lag = |place: usize| {
            series.get(&format!("ordo_replica_lag_entries{{partition=\"0\",node=\"{}\"}}", name(place)))
        };
        let up = |place: usize| series.get(&format!("ordo_peer_up{{node=\"{}\"}}", name(place)));
        let all = others.iter().all(|&place| lag(place).is_some() && up(place) == Some(&1.0));
        (all && series["ordo_cluster_partitions_led"] == 1.0).then_some(())
    });

    let shown = console(ports[leader], "");
    assert_eq!(shown["cluster"]["partitions"][0]["leader"], shown["cluster"]["me"]);
    assert_eq!(
        (shown["verdict"].as_str(), shown["cluster"]["nodes"][2]["zone"].is_string()),
        (Some("ok"), true)
    );

    for &place in &others {
        cluster.kill(place);
    }
    let body = cluster.until(leader, "not ready without a majority", || {
        let reply = ready(leader)?;
        (reply.status == 503).then_some(reply.body)
    });
    let line = body.lines().next().expect("a line");
    assert!(line.starts_with("not ready: "), "{body}");
    assert!(body.contains("partitions: 1\n"), "{body}");
    assert_eq!(get(ports[leader], "/healthz", "").status, 200);
    let metrics = series(
        &poll(PATIENCE, || {
            let body = get(ports[leader], "/metrics", "").body;
            body.contains("\nordo_ready 0\n").then_some(body)
        })
        .expect("the same in the metrics"),
    );
    let shown = console(ports[leader], "");
    assert_eq!(shown["verdict"], "unavailable");
    let kinds: Vec<_> =
        shown["problems"].as_array().into_iter().flatten().map(|found| &found["kind"]).collect();
    assert!(["not-ready", "no-leader"].iter().all(|kind| kinds.contains(&&(*kind).into())), "{kinds:?}");
    assert_eq!(metrics["ordo_cluster_nodes"], 3.0);

    run(&mut cluster, others[0]);
    cluster.until(leader, "ready again", || (ready(leader)?.status == 200).then_some(()));
}

/// The words of a text that can be names of metrics.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("ordo_") || word.starts_with("process_")).collect()
}

/// The texts of a JSON value that stand behind these keys.
fn texts_behind<'a>(value: &'a serde_json::Value, keys: &[&str], found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if keys.contains(&key.as_str()) => found.push(text),
                    _ => texts_behind(value, keys, found),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| texts_behind(item, keys, found)),
        _ => {}
    }
}

#[test]
fn alerts_dashboard_and_pages_name_metrics_that_exist_and_each_alert_has_its_section() {
    let read = |path: &str| {
        let text = std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR")));
        text.unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let (_server, port) = serving(&[]);
    let text = get(port, "/metrics", "").body;
    let declared = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let exists: BTreeSet<String> = declared
        .flat_map(|(name, kind)| match kind {
            "histogram" => ["_bucket", "_sum", "_count", ""].map(|end| format!("{name}{end}")).to_vec(),
            _ => vec![name.to_owned()],
        })
        .collect();
    assert!(exists.len() > 100, "{exists:?}");

    let rules = read("deploy/prometheus/ordo-alerts.yml");
    let dashboard = read("deploy/grafana/ordo.json");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let mut queries = Vec::new();
    texts_behind(&dashboard, &["expr", "query"], &mut queries);
    assert!(queries.len() > 30, "{queries:?}");
    let runbook = read("docs/runbook.md");
    let monitoring = read("docs/monitoring.md");
    for (file, text) in [
        ("ordo-alerts.yml", &rules),
        ("ordo.json", &queries.join(" ")),
        ("runbook.md", &runbook),
        ("monitoring.md", &monitoring),
    ] {
        let named = metrics_in(text);
        assert!(!named.is_empty(), "{file} names none");
        let unknown: Vec<&&str> = named.iter().filter(|name| !exists.contains(**name)).collect();
        assert!(unknown.is_empty(), "{file} names metrics that /metrics does not have: {unknown:?}");
    }

    let behind = |text: &str, start: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.trim().strip_prefix(start)?.to_owned())).collect()
    };
    let alerts = behind(&rules, "- alert: ");
    assert!(alerts.len() > 20, "{alerts:?}");
    assert_eq!(behind(&runbook, "## "), alerts, "sections of docs/runbook.md, in the order of the alerts");
    let links: Vec<String> =
        alerts.iter().map(|alert| format!("docs/runbook.md#{}", alert.to_lowercase())).collect();
    assert_eq!(behind(&rules, "runbook: "), links);
}
