//! What transactions of real servers and clusters change, as `ordo export` tells it.

use crate::nodes::{Build, Cluster, PATIENCE, PROGRAM, Server, ordo, word};
use crate::transfers::{ACCOUNTS, Transfers, call};
use rustix::process::Signal;
use serde_json::{Value as Json, json};
use server::client::Answer;
use server::launcher::{ServerProcess, poll};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;

/// A file of changes.
struct Changes {
    dir: tempfile::TempDir,
}

impl Changes {
    fn new() -> Changes {
        Changes { dir: tempfile::tempdir().expect("a directory") }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("changes.jsonl")
    }

    /// Starts an exporter that goes on until it is stopped.
    fn follow(&self, addresses: &[String], words: &[&str]) -> ServerProcess {
        let mut command = Command::new(PROGRAM);
        command.args(["export", "--mark-every", "0.2", "--address", &addresses.join(",")]);
        command.args(["--to", &format!("file://{}", word(&self.file()))]).args(words);
        let log = self.dir.path().join("log");
        ServerProcess::start("the exporter", &mut command, &log).unwrap_or_else(|error| panic!("{error}"))
    }

    /// All whole lines.
    fn lines(&self) -> Vec<Json> {
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Waits until the lines are as wanted.
    fn until(&self, exporter: &ServerProcess, what: &str, look: impl Fn(&[Json]) -> bool) -> Vec<Json> {
        let found = poll(PATIENCE, || Some(self.lines()).filter(|lines| look(lines)));
        found.unwrap_or_else(|| panic!("not {what}: {:?}\n{}", self.lines(), exporter.said()))
    }

    /// Waits for the first line, behind which everything is told.
    fn begun(&self, exporter: &ServerProcess) {
        self.until(exporter, "begun", |lines| lines.iter().any(|line| !line["cursor"].is_null()));
    }
}

fn stop(exporter: &mut ServerProcess) {
    exporter.signal(Signal::TERM).expect("it runs");
    assert!(exporter.wait(PATIENCE).expect("it ends").success(), "{}", exporter.said());
}

/// Runs an exporter to its end. Gives its exit code, its lines, and what it said.
fn export(addresses: &[String], words: &[&str]) -> (Option<i32>, Vec<Json>, String) {
    let addresses = addresses.join(",");
    let all = [&["export", "--once", "--address", &addresses], words].concat();
    let output = ordo(&all);
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let lines = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (output.status.code(), lines, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn transactions(lines: &[Json]) -> Vec<Json> {
    lines.iter().filter(|line| line["kind"] == "transaction").cloned().collect()
}

/// A line, without what differs from run to run.
fn plain(line: &Json) -> Json {
    let keys = line["keys"].as_array().expect("keys").iter().map(|key| match key.get("removed") {
        Some(removed) => json!([key["key"], removed]),
        None => json!([key["key"], key["value"]]),
    });
    json!([line["command"], line["clears"], keys.collect::<Vec<_>>()])
}

/// What a consumer has that applies each line.
#[derive(Default)]
struct Consumer {
    keys: BTreeMap<String, Json>,
}

impl Consumer {
    fn take(&mut self, line: &Json) {
        if line["kind"] == "snapshot-begin" || line["clears"] == true {
            self.keys.clear();
        }
        for key in line["keys"].as_array().into_iter().flatten() {
            let name = key["key"].as_str().expect("a key").to_owned();
            match key.get("removed") {
                Some(_) => _ = self.keys.remove(&name),
                None => _ = self.keys.insert(name, key["value"].clone()),
            }
        }
    }

    fn number(&self, key: &str) -> i64 {
        self.keys.get(key).map_or(0, |value| value.as_str().expect("text").parse().expect("a number"))
    }
}

/// The cursors ascend (a mark repeats one while the order rests), and each transfer is told once: none is
/// missing, torn or doubled.
fn check_transfers(lines: &[Json]) -> i64 {
    let mut consumer = Consumer::default();
    let mut last = (0, 0);
    for line in lines {
        let place = (line["epoch"].as_u64().expect("an epoch"), line["place"].as_u64().unwrap_or(u64::MAX));
        assert!(place > last || place == last && line["kind"] == "mark", "{line} behind {last:?}");
        last = place;
        let before = consumer.number("steps");
        consumer.take(line);
        if line["kind"] != "transaction" {
            continue;
        }
        assert_eq!(consumer.number("steps"), before + 1, "{line}");
        let sum: i64 = (0..ACCOUNTS).map(|account| consumer.number(&format!("account:{account}"))).sum();
        assert_eq!(sum, 0, "{line}");
        let history = consumer.keys["history"].as_array().expect("a list").len();
        assert_eq!(history as i64, before + 1, "{line}");
    }
    consumer.number("steps")
}

#[test]
fn each_transaction_is_one_change_with_what_it_has_left() {
    let (mut server, changes) = (Server::new(), Changes::new());
    server.start(&["--appendfsync", "no", "--checkpoint-log-size", "0"]);
    let mut client = server.client();
    call(&mut client, "SET before 1");
    let addresses = vec![server.address.clone()];
    let mut exporter = changes.follow(&addresses, &["--max-value-bytes", "5000"]);
    changes.begun(&exporter);
    for line in [
        "SET a 1",
        "INCR a",
        "GET a",
        "DEL nothing",
        "HSET h f v",
        "SADD s m",
        "ZADD z 1.5 m",
        "RPUSH l a b",
        "XADD x 5-1 f v",
        "MULTI",
        "INCR a",
        "LPOP l",
        "DEL h",
        "INCR a",
        "EXEC",
        "EVAL redis.call('SET',KEYS[1],1);redis.call('DEL',KEYS[2]);redis.call('SET',KEYS[1],2) 2 e a",
        "RENAME e f",
        "MULTI",
        "SET gone 1",
        "FLUSHALL",
        "SET left 1",
        "EXEC",
        "SET short v PX 50",
    ] {
        call(&mut client, line);
    }
    assert_eq!(
        client.call(&["SET", "long", &"x".repeat(9_000)]).expect("an answer"),
        Answer::Text("OK".into())
    );
    let word = "call-that-fails-behind-a-write";
    let script = "redis.call('SET',KEYS[1],1) return redis.error_reply(ARGV[1])";
    assert!(matches!(client.call(&["EVAL", script, "1", "kept", word]), Ok(Answer::Error(_))));
    let is_there = |lines: &[Json]| {
        let said = lines.iter().map(Json::to_string).collect::<String>();
        said.contains("\"kept\"") && said.contains("\"expired\"")
    };
    let lines = transactions(&changes.until(&exporter, "all told", is_there));
    stop(&mut exporter);
    let expired = json!(["expire-due", false, [["short", "expired"]]]);
    let (time_to_live, others): (Vec<Json>, Vec<Json>) =
        lines.iter().map(plain).partition(|line| *line == expired);
    assert_eq!(time_to_live.len(), 1);
    let stream = json!({ "entries": [["5-1", ["f", "v"]]], "groups": [], "last_id": "5-1" });
    assert_eq!(
        others,
        [
            json!(["set", false, [["a", "1"]]]),
            json!(["incr", false, [["a", "2"]]]),
            json!(["hset", false, [["h", [["f", "v"]]]]]),
            json!(["sadd", false, [["s", ["m"]]]]),
            json!(["zadd", false, [["z", [["m", 1.5]]]]]),
            json!(["rpush", false, [["l", ["a", "b"]]]]),
            json!(["xadd", false, [["x", stream]]]),
            json!(["exec", false, [["a", "4"], ["l", ["b"]], ["h", "deleted"]]]),
            json!(["eval", false, [["e", "2"], ["a", "deleted"]]]),
            json!(["rename", false, [["e", "deleted"], ["f", "2"]]]),
            json!(["exec", true, [["left", "1"]]]),
            json!(["set", false, [["short", "v"]]]),
            json!(["set", false, [["long", null]]]),
            json!(["eval", false, [["kept", "1"]]]),
        ]
    );
    let first_of = |name: &str| {
        let mut keys = lines.iter().map(|line| &line["keys"][0]);
        keys.find(|key| key["key"] == name).expect("a line")
    };
    assert!(first_of("long")["omitted_bytes"].as_u64().is_some_and(|bytes| bytes >= 9_000));
    assert!(first_of("short")["expires_at_ms"].is_u64());

    // All keys first: what there is now, whatever came before.
    let (code, lines, said) = export(&addresses, &["--from", "start", "--format", "cloudevents"]);
    assert_eq!(code, Some(0), "{said}");
    let mut consumer = Consumer::default();
    for event in &lines {
        assert_eq!(
            (&event["specversion"], event["data"]["kind"].is_string()),
            (&json!("1.0"), true),
            "{event}"
        );
        consumer.take(&event["data"]);
    }
    assert_eq!(lines[0]["type"], "ordo.snapshot-begin");
    assert_eq!(consumer.keys.keys().collect::<Vec<_>>(), ["kept", "left", "long"]);
}

#[test]
fn what_makes_room_is_told_as_evicted() {
    let (mut server, changes) = (Server::new(), Changes::new());
    server.start(&["--appendfsync", "no", "--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    let mut exporter = changes.follow(&[server.address.clone()], &[]);
    changes.begun(&exporter);
    let value = "v".repeat(20_000);
    for number in 0..200 {
        client.call(&["SET", &format!("key:{number}"), &value]).expect("an answer");
    }
    // Less than what there is: something must go.
    call(&mut client, "CONFIG SET maxmemory 1mb");
    let has_evicted = |lines: &[Json]| {
        let mut keys = lines.iter().flat_map(|line| line["keys"].as_array().cloned().unwrap_or_default());
        keys.any(|key| key["removed"] == "evicted")
    };
    let lines = changes.until(&exporter, "evicted", has_evicted);
    stop(&mut exporter);
    let evictions = lines.iter().filter(|line| line["command"] == "evict");
    assert!(evictions.count() > 0);
}

/// Transfers go on while exporters are killed, and the servers as well.
fn exporters_are_killed(addresses: &[String], mut disturb: impl FnMut(usize)) {
    let changes = Changes::new();
    let mut exporter = changes.follow(addresses, &[]);
    changes.begun(&exporter);
    let transfers = Transfers::start(addresses.to_vec());
    for round in 0..4 {
        let before = transactions(&changes.lines()).len();
        transfers.go_on(20);
        changes.until(&exporter, "going on", |lines| transactions(lines).len() >= before + 10);
        exporter.kill();
        transfers.go_on(10);
        disturb(round);
        exporter = changes.follow(addresses, &["--from", "start"]);
    }
    let steps = transfers.steps.clone();
    transfers.end();
    let done = steps.load(Ordering::Relaxed) as i64;
    let is_done = |lines: &[Json]| {
        let last = lines.iter().rfind(|line| line["kind"] == "transaction").expect("a transaction");
        let told = last["keys"].as_array().expect("keys").iter().find(|key| key["key"] == "steps");
        let number = told.and_then(|key| key["value"].as_str()).and_then(|text| text.parse::<i64>().ok());
        number.expect("a number") >= done
    };
    changes.until(&exporter, "all told", is_done);
    stop(&mut exporter);
    let lines = changes.lines();
    assert!(check_transfers(&lines) >= done);

    // From anywhere in the middle, the same follows. Some epochs have several transactions.
    let told = transactions(&lines);
    let inside = told.iter().position(|line| !line["cursor"].as_str().expect("a cursor").contains("-0-"));
    for place in [0, told.len() / 2, told.len() - 2].into_iter().chain(inside) {
        let cursor = told[place]["cursor"].as_str().expect("a cursor");
        let (code, lines, said) = export(addresses, &["--from", cursor]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(transactions(&lines), told[place + 1..], "behind {cursor}");
    }
}

#[test]
fn nothing_is_lost_or_doubled_where_exporters_and_the_server_are_killed() {
    let mut server = Server::new();
    let words = ["--appendfsync", "always", "--checkpoint-log-size", "0"];
    server.start(&words);
    let addresses = vec![server.address.clone()];
    exporters_are_killed(&addresses, |round| {
        if round == 1 {
            server.kill();
            server.start(&words);
        }
    });
}

#[test]
fn a_transaction_over_several_partitions_is_told_once() {
    let mut cluster = Cluster::start(Build::own(&[]));
    exporters_are_killed(&cluster.addresses(), |round| {
        if round == 1 {
            cluster.kill(2);
        }
        if round == 2 {
            cluster.run(2);
        }
    });
}

#[test]
fn who_comes_too_late_or_from_another_past_is_told_to_begin_again() {
    let mut server = Server::new();
    server.start(&["--appendfsync", "no", "--checkpoint-log-size", "0"]);
    let addresses = vec![server.address.clone()];
    let mut client = server.client();
    let changes = Changes::new();
    let url = format!("file://{}", word(&changes.dir.path().join("backup")));
    let mut backup = Command::new(PROGRAM);
    backup.args(["backup", "--max-loss", "0.05", "--to", &url, "--address", &addresses[0]]);
    let log = changes.dir.path().join("backup.log");
    let mut backup =
        ServerProcess::start("the backup", &mut backup, &log).unwrap_or_else(|error| panic!("{error}"));
    let has = |epoch: u64| {
        let listed = String::from_utf8(ordo(&["backup", "list", &url]).stdout).expect("UTF-8");
        let end =
            listed.lines().find_map(|line| line.split(' ').nth(5)?.trim_end_matches(',').parse::<u64>().ok());
        end.is_some_and(|end| end >= epoch).then_some(())
    };
    poll(PATIENCE, || has(1)).expect("there is a backup");
    call(&mut client, "SET a 1");
    call(&mut client, "SAVE");
    let mut exporter = changes.follow(&addresses, &["--from", "start"]);
    changes.begun(&exporter);
    call(&mut client, "SET a 2");
    let lines = changes.until(&exporter, "told", |lines| !transactions(lines).is_empty());
    stop(&mut exporter);
    assert_eq!(lines[1]["keys"][0]["value"], "1", "the snapshot");
    let first = transactions(&lines)[0]["cursor"].as_str().expect("a cursor").to_owned();
    let followed = |client: &mut server::client::Client| -> Vec<u64> {
        let place: Json = serde_json::from_str(&call(client, "ORDO.CHANGES")).expect("JSON");
        place["checkpoints"].as_array().expect("epochs").iter().map(|epoch| epoch.as_u64().unwrap()).collect()
    };
    let epoch: u64 = first.split('-').next().and_then(|epoch| epoch.parse().ok()).expect("an epoch");
    assert!(followed(&mut client)[0] <= epoch);
    // The server's log goes on behind the second of these.
    for number in 3..6 {
        call(&mut client, &format!("SET a {number}"));
        let place: Json = serde_json::from_str(&call(&mut client, "ORDO.CHANGES")).expect("JSON");
        poll(PATIENCE, || has(place["epoch"].as_u64().expect("an epoch"))).expect("the backup follows");
        call(&mut client, "SAVE");
    }
    poll(PATIENCE, || (followed(&mut client)[0] > epoch).then_some(())).expect("the log is cut");
    let (code, lines, said) = export(&addresses, &["--from", &first]);
    assert_eq!((code, lines), (Some(3), Vec::new()), "{said}");
    assert!(said.contains("begin again with --from start"), "{said}");
    // An address where nobody answers does not hide that.
    let with_stale = [addresses[0].clone(), "127.0.0.1:1".to_owned()];
    let (code, lines, said) = export(&with_stale, &["--from", &first]);
    assert_eq!((code, lines), (Some(3), Vec::new()), "{said}");
    // A backup that has followed the server goes further back.
    backup.kill();
    call(&mut client, "SET a 6");
    let (code, lines, said) = export(&addresses, &["--from", &first, "--backup", &url]);
    assert_eq!(code, Some(0), "{said}");
    let values = transactions(&lines).iter().map(|line| line["keys"][0]["value"].clone()).collect::<Vec<_>>();
    assert_eq!(values, ["3", "4", "5", "6"], "{said}");
    // A cursor of another past, exactly where the backup's checkpoint is.
    let mut chains = std::fs::read_dir(changes.dir.path().join("backup")).expect("a backup").flatten();
    let chain = chains.find(|entry| entry.file_name().as_encoded_bytes().starts_with(b"chain-"));
    let names = std::fs::read_dir(chain.expect("a chain").path()).expect("a chain");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let epoch_of = |name: std::ffi::OsString| {
        let name = name.into_string().ok()?;
        name.strip_prefix("checkpoint-")?.strip_suffix(".json")?.parse::<u64>().ok()
    };
    let checkpoint = names.filter_map(epoch_of).min().expect("a checkpoint");
    let strange = format!("{checkpoint}-0-0123456789abcdef");
    let (code, lines, said) = export(&addresses, &["--from", &strange, "--backup", &url]);
    assert_eq!((code, lines), (Some(3), Vec::new()), "{said}");
    assert!(said.contains("another past"), "{said}");
    let mut consumer = Consumer::default();
    let (code, lines, said) = export(&addresses, &["--from", "start"]);
    assert_eq!(code, Some(0), "{said}");
    lines.iter().for_each(|line| consumer.take(line));
    assert_eq!(consumer.keys["a"], "6");

    // Another database, at the same address and further on.
    let newest = lines.last().expect("a line")["cursor"].as_str().expect("a cursor").to_owned();
    let epoch: u64 = newest.split('-').next().and_then(|epoch| epoch.parse().ok()).expect("an epoch");
    let mut other = Server::new();
    other.start(&["--appendfsync", "no", "--checkpoint-log-size", "0"]);
    let mut client = other.client();
    call(&mut client, "SAVE");
    let addresses = vec![other.address.clone()];
    let place = |client: &mut server::client::Client| -> Json {
        serde_json::from_str(&call(client, "ORDO.CHANGES")).expect("JSON")
    };
    assert!(place(&mut client)["checkpoints"][0].as_u64().expect("an epoch") < epoch);
    // That it has not come so far proves nothing; the digest at that epoch does.
    let waits = Changes::new();
    let mut exporter = waits.follow(&addresses, &["--from", &newest]);
    let says_so = || exporter.said().contains("do not have epoch").then_some(());
    poll(PATIENCE, says_so).unwrap_or_else(|| panic!("no wait: {}", exporter.said()));
    while place(&mut client)["epoch"].as_u64().expect("an epoch") <= epoch {
        call(&mut client, "INCR a");
    }
    assert_eq!(exporter.wait(PATIENCE).expect("it ends").code(), Some(3), "{}", exporter.said());
    assert!(waits.lines().is_empty());
    let (code, lines, said) = export(&addresses, &["--from", &newest]);
    assert_eq!((code, lines), (Some(3), Vec::new()), "{said}");
    assert!(said.contains("another past"), "{said}");
}

#[test]
fn an_exporter_that_is_refused_ends_and_says_why() {
    let mut server = Server::new();
    server.start(&["--appendfsync", "no"]);
    let mut client = server.client();
    call(&mut client, "ACL SETUSER reader on >right +@all -@admin ~*");
    let addresses = vec![server.address.clone()];
    for (password, why) in [("wrong", "does not take the password"), ("right", "NOPERM")] {
        let (code, lines, said) = export(&addresses, &["--user", "reader", "--password", password]);
        assert_eq!((code, lines), (Some(1), Vec::new()), "{said}");
        assert!(said.contains(why) && !said.contains("trying again"), "{said}");
    }
}

#[test]
fn an_exporter_that_has_executed_what_the_servers_skip_by_now_ends() {
    let (mut server, changes) = (Server::new(), Changes::new());
    let settings = ["--appendfsync", "always"];
    server.start(&settings);
    let addresses = vec![server.address.clone()];
    let mut exporter = changes.follow(&addresses, &[]);
    changes.begun(&exporter);
    call(&mut server.client(), "SET a 1");
    let lines = changes.until(&exporter, "told", |lines| !transactions(lines).is_empty());
    let name = transactions(&lines)[0]["request"].as_str().expect("a name").to_owned();
    server.kill();
    server.start(&[&settings[..], &["--skip", &name]].concat());
    assert_eq!(exporter.wait(PATIENCE).expect("it ends").code(), Some(3), "{}", exporter.said());
    assert!(exporter.said().contains(&name), "{}", exporter.said());
}
