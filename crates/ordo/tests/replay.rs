//! Transactions of real servers and clusters, executed again by `ordo replay`.

use crate::nodes::{Build, Cluster, Server, ordo, word};
use serde_json::{Value as Json, json};
use server::client::{Answer, Client, put_command};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

/// Checkpoints are made when the test wants one.
const SETTINGS: [&str; 2] = ["--checkpoint-log-size", "0"];

/// Runs `ordo replay` on an order. Gives its exit code, and what it said on each of its outputs.
fn replay(order: &[&str], words: &[&str]) -> (Option<i32>, String, String) {
    let output = ordo(&[&["replay"], order, words].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn replayed(order: &[&str], words: &[&str]) -> Json {
    let (code, said, error) = replay(order, &[words, &["--json"]].concat());
    assert_eq!(code, Some(0), "{words:?}: {error}");
    serde_json::from_str(&said).expect("JSON")
}

fn refused(order: &[&str], words: &[&str]) -> String {
    let (code, said, error) = replay(order, words);
    assert_eq!((code, said.as_str()), (Some(1), ""), "{words:?}: {error}");
    error
}

/// All transactions of clients, in the order of the epochs, as the lists have them.
fn listed(order: &[&str]) -> Vec<Json> {
    let extent = replayed(order, &[]);
    let number = |json: &Json| json.as_u64().expect("a number");
    let mut all = Vec::new();
    for epoch in number(&extent["first_epoch"])..=number(&extent["end"]["epoch"]) {
        let list = replayed(order, &["--at", &epoch.to_string()]);
        assert_eq!(list["epoch"], epoch);
        let transactions = list["transactions"].as_array().expect("a list").iter();
        // A read that met what expired just then was ordered, too.
        let is_read = |each: &Json| each["commands"][0].as_str().is_some_and(|text| text.starts_with("get "));
        let of_clients = transactions.filter(|each| each["client"]["is_server"] == false && !is_read(each));
        all.extend(of_clients.cloned());
    }
    all
}

/// A transaction, by the line that a list has of it.
fn shown(order: &[&str], listed: &Json, words: &[&str]) -> Json {
    let name = listed["request"].as_str().expect("a name");
    let shown = replayed(order, &[&["--request", name], words].concat());
    assert_eq!((&shown["reply"], &shown["positions"]), (&listed["reply"], &listed["positions"]));
    assert_eq!(shown["difference"], Json::Null);
    shown
}

/// A reply as `ordo replay` tells it, as a client gets it.
fn answer(reply: &Json) -> Answer {
    match reply {
        Json::Null => Answer::Nil,
        Json::String(text) => Answer::Text(text.clone()),
        Json::Array(all) => Answer::List(all.iter().map(answer).collect()),
        Json::Object(fields) => match (fields.get("status"), fields.get("error")) {
            (Some(Json::String(text)), _) => Answer::Text(text.clone()),
            (_, Some(Json::String(text))) => Answer::Error(text.clone()),
            _ => panic!("{fields:?}"),
        },
        other => Answer::Text(other.to_string()),
    }
}

/// The names, contents and times of all files of a directory.
fn files(dir: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let file = |path: std::path::PathBuf| {
        let bytes = std::fs::read(&path).expect("a file");
        let time = path.metadata().expect("a file").modified().expect("a time");
        (word(&path).to_owned(), (bytes, time))
    };
    entries.map(file).collect()
}

/// Sends a command, and keeps it with what its client was told.
fn told(client: &mut Client, all: &mut Vec<(String, Answer)>, words: &[&str]) {
    let answer = client.call(words).expect("an answer");
    all.push((words.join(" "), answer));
}

const SCRIPT: &str = "local left = redis.call('DECRBY', KEYS[1], ARGV[1]) \
    redis.call('HSET', KEYS[2], 'apples', ARGV[1]) \
    redis.call('PUBLISH', 'sold', left) return {left, redis.call('HGET', KEYS[2], 'apples')}";

/// Sends what writes in every way. Gives each transaction with what its client was told.
fn write_all(server: &Server) -> Vec<(String, Answer)> {
    let (client, all) = (&mut server.client(), &mut Vec::new());
    told(client, all, &["SET", "stock", "40"]);
    told(client, all, &["INCR", "stock"]);
    told(client, all, &["EVAL", SCRIPT, "2", "stock", "cart", "3"]);
    told(client, all, &["LPUSH", "stock", "x"]);
    told(client, all, &["RPUSH", "list", "a", "b\u{1b}[2J"]);
    told(client, all, &["SPOP", "list"]);
    told(client, all, &["SADD", "set", "a", "b", "c", "d", "e"]);
    told(client, all, &["SPOP", "set"]);
    told(client, all, &["SET", "short", "1", "PX", "30"]);
    server.until("expired", || matches!(server.call(&["GET", "short"]), Answer::Nil).then_some(()));
    told(client, all, &["APPEND", "short", "2"]);
    for words in [&["MULTI"][..], &["SET", "a", "1"], &["INCR", "a"], &["LPUSH", "a", "x"]] {
        client.call(words).expect("an answer");
    }
    let done = client.call(&["EXEC"]).expect("an answer");
    all.push(("EXEC".to_owned(), done));
    told(client, all, &["ORDO.IDEMPOTENT", "once", "INCR", "a"]);
    told(client, all, &["ORDO.IDEMPOTENT", "once", "INCR", "a"]);
    std::mem::take(all)
}

#[test]
fn every_transaction_is_shown_with_what_its_client_was_told() {
    let mut server = Server::new();
    server.start(&SETTINGS);
    let first = write_all(&server);
    assert_eq!(server.call(&["SAVE"]), Answer::Text("OK".to_owned()));
    let second = write_all(&server);
    let data = server.data();
    let dir = ["--dir", word(&data)];
    let error = refused(&dir, &["--at", "1"]);
    assert!(error.contains("in use by another process") && error.contains("--from"), "{error}");
    server.kill();

    let before = files(&data);
    let all = listed(&dir);
    let sent: Vec<&(String, Answer)> = first.iter().chain(&second).collect();
    assert_eq!(all.len(), sent.len(), "{all:#?}");
    for (transaction, (words, said)) in all.iter().zip(&sent) {
        assert_eq!(answer(&transaction["reply"]), *said, "{words}");
        let shown = shown(&dir, transaction, &[]);
        check(&shown, words);
    }
    // The state behind what was written first is held against the checkpoint.
    let extent = replayed(&dir, &[]);
    let checkpoints = extent["checkpoints"].as_array().expect("checkpoints");
    assert_eq!((checkpoints.len(), &checkpoints[0]["epoch"]), (2, &json!(0)));
    let verified = shown(&dir, &all[1], &["--verify"]);
    assert_eq!(
        (&verified["from_checkpoint"], &verified["checked_at"]),
        (&json!(0), &checkpoints[1]["epoch"])
    );
    assert_eq!(verified["is_compared"], true);
    let first_epoch = &verified["epoch"].to_string();
    let list = replayed(&dir, &["--at", first_epoch, "--verify"]);
    assert_eq!(list["checked_at"], checkpoints[1]["epoch"]);
    let (code, said, _) = replay(&dir, &["--at", first_epoch, "--verify"]);
    assert!(code == Some(0) && said.contains("checked: the state at epoch"), "{said}");
    let later = shown(&dir, all.last().expect("some"), &[]);
    assert_eq!((&later["from_checkpoint"], &later["checked_at"]), (&checkpoints[1]["epoch"], &Json::Null));
    let by_position = &later["positions"][0]["position"].to_string();
    assert_eq!(replayed(&dir, &["--position", by_position]), later);
    // Behind the newest checkpoint there is nothing to verify with.
    let last_epoch = &later["epoch"].to_string();
    for words in [&["--position", by_position][..], &["--at", last_epoch][..]] {
        let (code, said, error) = replay(&dir, &[words, &["--verify"]].concat());
        assert!(code == Some(1) && !said.is_empty() && error.contains("nothing was verified"), "{error}");
    }

    // Epochs that are not there are refused, with those that are.
    let end = &extent["end"]["epoch"].to_string();
    for (words, text) in [
        (&["--at", "99999999"][..], "is behind the end of the order: epochs 1 to"),
        (&["--at", "0"][..], "is not behind the oldest checkpoint"),
        (&["--at", "2000-01-01T00:00:00Z"][..], "checkpoints: the empty database of epoch 0"),
        (&["--request", "1:7:7"][..], "--at 1 lists what it has"),
        (&["--at", end, "--request", "1:7:7"][..], "--at says epoch"),
        (&["--position", "99999999"][..], "does not come to this position"),
        (&["--at", "yesterday"][..], "is no moment"),
    ] {
        let (code, said, error) = replay(&dir, words);
        // A command line that says nothing ends with 2.
        assert!(code > Some(0) && said.is_empty(), "{words:?}: {error}");
        assert!(error.contains(text) && !error.contains("backup list"), "{words:?}: {error}");
    }
    let block = all.iter().find(|each| each["commands"].as_array().is_some_and(|all| all.len() == 3));
    let block = block.expect("a block")["request"].as_str().expect("a name");
    let cut = replayed(&dir, &["--request", block, "--limit", "1"]);
    assert_eq!((&cut["commands"], &cut["omitted_commands"]), (&json!(["SET \"a\" \"1\""]), &json!(2)));
    assert_eq!(cut["reply"], json!([{ "status": "OK" }, { "omitted_items": 2 }]));
    let (_, said, _) = replay(&dir, &["--request", block, "--limit", "1"]);
    assert!(said.contains("command    ... and 2 more: --limit"), "{said}");
    let (_, said, _) = replay(&dir, &["--request", all[4]["request"].as_str().expect("a name")]);
    assert!(said.contains(r"[2J") && !said.contains('\u{1b}'), "{said}");
    assert!(said.contains("restarts") && said.contains("command    rpush \"list\" \"a\""), "{said}");
    let newest = replayed(&dir, &["--at", "newest"]);
    let at_its_time = replayed(&dir, &["--at", newest["time"].as_str().expect("a time")]);
    assert_eq!(at_its_time, newest);
    assert!(files(&data) == before, "the directory was changed");

    // An execution that leads to another state than the replicas had is noticed.
    let skips = data.join("skips.txt");
    let name = all[1]["request"].as_str().expect("a name");
    std::fs::write(&skips, format!("{name} in-force\n")).expect("written");
    let error = refused(&dir, &["--request", all[2]["request"].as_str().expect("a name"), "--verify"]);
    assert!(error.contains("has other entries than the order leads to"), "{error}");
    std::fs::remove_file(&skips).expect("removed");

    // The server goes on as if nobody had looked.
    server.start(&SETTINGS);
    assert_eq!(server.call(&["GET", "stock"]), Answer::Text("38".to_owned()));
}

/// What some of the commands must be seen to have read and written.
fn check(shown: &Json, words: &str) {
    let read = |key: &str| {
        let reads = shown["reads"].as_array().expect("reads");
        reads.iter().find(|read| read["key"] == key).map(|read| read["held"].clone())
    };
    let write = |key: &str| {
        let writes = shown["writes"].as_array().expect("writes");
        writes.iter().find(|write| write["key"] == key).cloned()
    };
    let string = |value: &str| json!({ "type": "string", "value": value });
    match words.split(' ').next().expect("a word") {
        "INCR" => {
            assert_eq!(read("stock"), Some(string("40")));
            let want = json!({ "key": "stock", "before": string("40"), "after": string("41") });
            assert_eq!(write("stock"), Some(want));
            assert_eq!(shown["commands"], json!(["incr \"stock\""]));
        }
        "EVAL" => {
            assert_eq!(read("stock"), Some(string("41")));
            let cart = write("cart").expect("written");
            assert_eq!(cart["after"], json!({ "type": "hash", "value": [["apples", "3"]] }));
            assert_eq!(shown["messages"], json!([{ "channel": "sold", "payload": "38" }]));
        }
        "LPUSH" => {
            assert!(shown["reply"]["error"].as_str().is_some_and(|text| text.starts_with("WRONGTYPE")));
            assert_eq!(
                (shown["writes"].as_array().map(Vec::len), read("stock")),
                (Some(0), Some(string("38")))
            );
        }
        "APPEND" => {
            // It had expired, removed or not.
            assert!(read("short").is_some_and(|held| held.is_null() || held["expired"] == true));
            assert_eq!(write("short").expect("written")["after"], string("2"));
        }
        "EXEC" => {
            assert_eq!(shown["commands"], json!(["SET \"a\" \"1\"", "INCR \"a\"", "LPUSH \"a\" \"x\""]));
            assert_eq!(write("a").expect("written")["after"], string("2"));
        }
        _ => {}
    }
}

#[test]
fn commands_that_a_server_has_gathered_are_shown_apart() {
    let mut server = Server::new();
    server.start(&SETTINGS);
    let mut client = server.client();
    let mut bytes = Vec::new();
    let commands: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    commands.iter().for_each(|key| put_command(&mut bytes, &["SET", key, "1"]));
    client.send(&bytes).expect("sent");
    for _ in &commands {
        assert_eq!(client.answer().expect("an answer"), Answer::Text("OK".to_owned()));
    }
    server.kill();
    let data = server.data();
    let dir = ["--dir", word(&data)];
    let all = listed(&dir);
    let told: usize = all.iter().map(|each| each["commands"].as_array().expect("commands").len()).sum();
    assert_eq!(told, commands.len());
    let gathered = all.iter().find(|each| each["is_gathered"] == true).expect("some were gathered");
    let shown = shown(&dir, gathered, &[]);
    assert_eq!(shown["writes"].as_array().map(Vec::len), gathered["commands"].as_array().map(Vec::len));
}

#[test]
fn a_backup_tells_the_same_as_the_directory_also_of_what_that_has_no_longer() {
    let mut server = Server::new();
    server.start(&SETTINGS);
    write_all(&server);
    let place = tempfile::tempdir().expect("a directory");
    let url = format!("file://{}", word(&place.path().join("store")));
    // The backup has a checkpoint of its own, behind all that was written.
    let backup = || {
        let output = ordo(&["backup", "--once", "--to", &url, "--address", &server.address]);
        assert!(output.status.success(), "{output:?}");
    };
    backup();
    let sent = write_all(&server);
    backup();
    server.kill();
    let data = server.data();
    let (dir, from) = (["--dir", word(&data)], ["--from", &url]);
    let of_backup = listed(&from);
    let of_directory = listed(&dir);
    assert_eq!(of_backup.len(), sent.len());
    let error = refused(&from, &["--position", "1"]);
    assert!(error.contains("this is chain 1 of the backup") && error.contains("--chain"), "{error}");
    assert_eq!(of_backup, of_directory[of_directory.len() - sent.len()..]);
    for transaction in &of_backup {
        let mut shown_by = [shown(&from, transaction, &[]), shown(&dir, transaction, &[])];
        shown_by.iter_mut().for_each(|shown| shown["from_checkpoint"] = Json::Null);
        assert_eq!(shown_by[0], shown_by[1]);
    }
    // A checkpoint more: the directory keeps two.
    server.start(&SETTINGS);
    for _ in 0..2 {
        assert_eq!(server.call(&["SAVE"]), Answer::Text("OK".to_owned()));
        server.call(&["SET", "a", "1"]);
    }
    server.kill();
    let name = of_backup[0]["request"].as_str().expect("a name");
    let error = refused(&dir, &["--request", name]);
    assert!(error.contains("is not behind the oldest checkpoint"), "{error}");
    shown(&from, &of_backup[0], &[]);
}

#[test]
fn a_node_of_a_cluster_tells_of_transactions_over_several_partitions() {
    let mut cluster = Cluster::start(Build::own(&[]));
    let client = &mut cluster.open(0);
    let all = &mut Vec::new();
    told(client, all, &["MSET", "a", "1", "b", "2", "c", "3", "d", "4"]);
    let script = "local sum = 0 for _, key in ipairs(KEYS) do sum = sum + redis.call('GET', key) end \
                  redis.call('SET', KEYS[1], sum) return sum";
    told(client, all, &["EVAL", script, "4", "a", "b", "c", "d"]);
    told(client, all, &["DEL", "a", "b", "x"]);
    // The node of its client executes it, and nobody else.
    told(client, all, &["MGET", "a", "c", "d"]);
    // What follows tells the node that this is agreed.
    for _ in 0..3 {
        client.call(&["SET", "last", "1"]).expect("an answer");
    }
    cluster.stop(0);
    let data = cluster.data(0);
    let dir = ["--dir", word(&data)];
    let listed = listed(&dir);
    assert!(listed.len() >= all.len(), "{listed:#?}");
    for (transaction, (words, said)) in listed.iter().zip(&*all) {
        if words.starts_with("MGET") {
            assert_eq!(transaction["reply"], json!({ "not_executed": true }));
            let name = ["--request", transaction["request"].as_str().expect("a name")];
            let shown = replayed(&dir, &name);
            assert_eq!(answer(&shown["reply"]), *said);
            assert_eq!((&shown["is_compared"], &shown["difference"]), (&json!(false), &Json::Null));
            let (_, text, _) = replay(&dir, &name);
            assert!(!text.contains("twice"), "{text}");
            continue;
        }
        assert_eq!(answer(&transaction["reply"]), *said, "{words}");
        let shown = shown(&dir, transaction, &[]);
        assert_eq!(shown["is_compared"], true);
        assert!(shown["positions"].as_array().is_some_and(|positions| positions.len() > 1), "{shown}");
        if words.starts_with("EVAL") {
            let value = |read: &Json| read["held"]["value"].clone();
            let reads = shown["reads"].as_array().expect("reads").iter();
            let read: Vec<Json> = reads.filter(|read| read["key"].is_string()).map(value).collect();
            assert_eq!(read, ["1", "2", "3", "4"].map(Json::from));
            assert_eq!(shown["writes"][0]["after"]["value"], "10");
        }
    }
}
