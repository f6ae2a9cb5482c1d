//! A cluster of processes whose transactions are certified by a tree of validators, as clients of Redis use
//! it.

use rustix::process::Signal;
use server::client::{Answer, Client, ClientError};
use server::launcher::{HOST, ServerProcess, free_address, poll};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// No client waits longer for a reply: it is more than `request_timeout_ms`.
const REPLY_MAX: Duration = Duration::from_secs(20);
/// Nodes with a leaf validator each. One more has the inner validators.
const LEAVES: usize = 4;

struct Node {
    address: String,
    process: Option<ServerProcess>,
}

/// Two inner validators below the root, with two leaves each.
struct Cluster {
    dir: tempfile::TempDir,
    nodes: Vec<Node>,
    /// Where the first node's HTTP port is.
    http_address: String,
}

impl Cluster {
    fn start(keys: &str) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let mut text = format!(
            "name = \"tree\"\nsecret = \"sixteen letters!\"\nprotocol = \"hierarchy\"\n\
             partitions = {LEAVES}\nrequest_timeout_ms = 3000\nelection_timeout_ms = 300\n{keys}\n"
        );
        let mut nodes = Vec::new();
        for number in 1..=LEAVES + 1 {
            let (peers, clients) = (free_address().expect("a port"), free_address().expect("a port"));
            let _ = write!(
                text,
                "[[node]]\nname = \"n{number}\"\nzone = \"z{number}\"\npeer_address = \"{peers}\"\n\
                 client_address = \"{clients}\"\n"
            );
            nodes.push(Node { address: clients, process: None });
        }
        for leaf in 0..LEAVES {
            let _ = write!(
                text,
                "[[validator]]\nname = \"leaf-{leaf}\"\npartition = {leaf}\nparent = \"inner-{}\"\n\
                 nodes = [\"n{}\"]\n",
                leaf / 2,
                leaf + 1
            );
        }
        let inners = LEAVES + 1;
        for (name, parent) in
            [("inner-0", "parent = \"root\"\n"), ("inner-1", "parent = \"root\"\n"), ("root", "")]
        {
            let _ = write!(text, "[[validator]]\nname = \"{name}\"\n{parent}nodes = [\"n{inners}\"]\n");
        }
        std::fs::write(dir.path().join("cluster.toml"), text).expect("written");
        let http_address = free_address().expect("a port");
        let mut cluster = Cluster { dir, nodes, http_address };
        (0..=LEAVES).for_each(|place| cluster.launch(place));
        (0..=LEAVES).for_each(|place| cluster.wait_until_up(place));
        cluster
    }

    fn launch(&mut self, place: usize) {
        let name = format!("n{}", place + 1);
        let path = |name: &str| -> PathBuf { self.dir.path().join(name) };
        let mut command = Command::new(env!("CARGO_BIN_EXE_ordo"));
        command.args(["serve", "--appendfsync", "no", "--bind", HOST, "--node", &name, "--cluster"]);
        command.arg(path("cluster.toml")).arg("--dir").arg(path(&name)).env_remove("RUST_LOG");
        if place == 0 {
            let port = self.http_address.rsplit(':').next().expect("a port");
            command.args(["--http-port", port, "--http-bind", HOST]);
        }
        let process = ServerProcess::start(&name, &mut command, &path(&format!("{name}.log")));
        self.nodes[place].process = Some(process.unwrap_or_else(|error| panic!("{error}")));
    }

    fn wait_until_up(&mut self, place: usize) {
        let Node { address, process } = &mut self.nodes[place];
        let process = process.as_mut().expect("it was started");
        process.wait_until_up(address, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    }

    fn kill(&mut self, place: usize) {
        self.nodes[place].process.as_mut().expect("it was started").kill();
    }

    fn client(&self, place: usize) -> Client {
        Client::open(&self.nodes[place].address, REPLY_MAX).expect("a connection")
    }

    /// What `/readyz` of the first node says, head and all.
    fn readiness(&self) -> String {
        self.page("/readyz")
    }

    /// What a path of the first node's HTTP port says, head and all.
    fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.http_address).expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("a reply");
        said
    }

    fn said(&self) -> String {
        let said = self.nodes.iter().filter_map(|node| Some(node.process.as_ref()?.last_said()));
        said.collect::<Vec<_>>().join("\n")
    }
}

/// The answer to a command, which is sent again while the node says that it should be: on a busy machine the
/// validators may answer too late.
fn call(client: &mut Client, words: &[&str]) -> Answer {
    let answered = || {
        let answer = client.call(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let is_late =
            matches!(&answer, Answer::Error(text) if text.ends_with("nothing was changed; try again"));
        (!is_late).then_some(answer)
    };
    poll(PATIENCE, answered).unwrap_or_else(|| panic!("{words:?}: the validators do not answer in time"))
}

fn text(text: &str) -> Answer {
    Answer::Text(text.to_owned())
}

fn list(texts: &[&str]) -> Answer {
    Answer::List(texts.iter().map(|one| text(one)).collect())
}

fn ok() -> Answer {
    text("OK")
}

/// The error that a command is answered.
fn error(client: &mut Client, words: &[&str]) -> String {
    match call(client, words) {
        Answer::Error(text) => text,
        other => panic!("{words:?}: {other:?}"),
    }
}

#[test]
fn commands_blocks_and_scripts_are_transactions_over_all_partitions() {
    let cluster = Cluster::start("");
    let (mut here, mut there) = (cluster.client(0), cluster.client(LEAVES));
    // What one node has acknowledged every other one reads.
    for number in 0..20 {
        let (key, value) = (format!("key:{number}"), number.to_string());
        assert_eq!(call(&mut here, &["SET", &key, &value]), ok());
        assert_eq!(call(&mut there, &["INCR", &key]), text(&(number + 1).to_string()));
        assert_eq!(call(&mut here, &["GET", &key]), text(&(number + 1).to_string()));
    }
    // Also of what several leaves have written, which hear of the decision one after the other.
    for number in 0..100 {
        let value = &number.to_string();
        assert_eq!(call(&mut there, &["MSET", "a", value, "b", value, "c", value, "d", value]), ok());
        for key in ["d", "c", "b", "a"] {
            assert_eq!(call(&mut here, &["GET", key]), text(value), "{key}");
        }
    }
    for (words, answer) in [
        (&["MSET", "a", "1", "b", "2", "c", "3", "d", "4"][..], ok()),
        (&["MGET", "d", "c", "b", "a"], list(&["4", "3", "2", "1"])),
        (&["RPUSH", "list", "x", "y"], text("2")),
        (&["LRANGE", "list", "0", "-1"], list(&["x", "y"])),
        (&["HSET", "hash", "field", "value"], text("1")),
        (&["HGET", "hash", "field"], text("value")),
        (&["ZADD", "sorted", "2", "two", "1", "one"], text("2")),
        (&["ZRANGE", "sorted", "0", "-1"], list(&["one", "two"])),
        (&["SADD", "set", "member"], text("1")),
        (&["SISMEMBER", "set", "member"], text("1")),
        (&["XADD", "stream", "1-1", "f", "v"], text("1-1")),
        (&["XLEN", "stream"], text("1")),
        (&["SET", "brief", "1", "PX", "3600000"], ok()),
        (&["EXPIRE", "brief", "100"], text("1")),
        (&["TTL", "brief"], text("100")),
        (&["PEXPIREAT", "brief", "1"], text("1")),
        (&["GET", "brief"], Answer::Nil),
        (
            &["EVAL", "redis.call('INCRBY', KEYS[1], 5) return redis.call('GET', KEYS[2])", "2", "a", "b"],
            text("2"),
        ),
        (&["DEL", "a", "b", "none"], text("2")),
        (&["ACL", "SETUSER", "reader", "on", ">password", "~*", "+get"], ok()),
    ] {
        assert_eq!(call(&mut here, words), answer, "{words:?}");
    }
    // A block, and a WATCH that another connection breaks.
    for words in [&["MULTI"][..], &["INCR", "c"], &["INCR", "d"]] {
        call(&mut here, words);
    }
    assert_eq!(call(&mut here, &["EXEC"]), list(&["4", "5"]));
    for (changes, answer) in [(false, list(&["OK"])), (true, Answer::Nil)] {
        assert_eq!(call(&mut here, &["WATCH", "c"]), ok());
        if changes {
            assert_eq!(call(&mut there, &["INCR", "c"]), text("10"));
        }
        call(&mut here, &["MULTI"]);
        call(&mut here, &["SET", "c", "9"]);
        assert_eq!(call(&mut here, &["EXEC"]), answer);
    }
    // A connection that bears old data reads snapshots, which come up to date.
    assert_eq!(call(&mut there, &["READONLY"]), ok());
    poll(PATIENCE, || (call(&mut there, &["GET", "c"]) == text("10")).then_some(())).expect("in time");
    assert_eq!(call(&mut there, &["INCR", "d"]), text("6"));
    // A user of another node.
    let mut knows = || (call(&mut there, &["AUTH", "reader", "password"]) == ok()).then_some(());
    poll(PATIENCE, &mut knows).expect("the other node hears of the user");
    assert!(error(&mut there, &["SET", "c", "1"]).starts_with("NOPERM"));
    for words in [
        &["KEYS", "*"][..],
        &["FLUSHALL"],
        &["BLPOP", "none", "0"],
        &["PUBLISH", "channel", "text"],
        &["SCRIPT", "FLUSH"],
        &["SAVE"],
        &["BGSAVE"],
        &["BGREWRITEAOF"],
        &["ORDO.BACKUP", "WHERE"],
        &["ORDO.CHANGES"],
        &["ORDO.SESSION"],
        &["ORDO.WAIT", "REGIONS", "1", "0"],
    ] {
        let refused = error(&mut here, words);
        assert!(refused.contains("is not served with protocol = \"hierarchy\": "), "{refused}");
    }
}

#[test]
fn a_client_holds_a_transaction_open() {
    let cluster = Cluster::start("transaction_timeout_ms = 3000\ntransaction_keys_max = 3\n");
    let (mut first, mut other) = (cluster.client(0), cluster.client(1));
    assert_eq!(call(&mut first, &["MSET", "a", "1", "b", "1"]), ok());
    assert!(error(&mut first, &["ORDO.COMMIT"]).contains("without ORDO.BEGIN"));
    assert!(error(&mut first, &["ORDO.ROLLBACK"]).contains("without ORDO.BEGIN"));

    // A transaction that is held open may be shown what its node has, and end with a conflict where that is
    // old. A command by itself is run again there: so its node has both keys from here on.
    assert_eq!(call(&mut first, &["MGET", "a", "b"]), list(&["1", "1"]));
    // Its reads are of one moment and of its own writes, which nobody else sees before the end.
    for (words, answer) in [
        (&["ORDO.BEGIN"][..], ok()),
        (&["GET", "a"], text("1")),
        (&["INCRBY", "a", "9"], text("10")),
        (&["GET", "a"], text("10")),
        (&["SET", "c", "new"], ok()),
        (
            &["HSET", "c", "f", "v"],
            Answer::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned()),
        ),
    ] {
        assert_eq!(call(&mut first, words), answer, "{words:?}");
    }
    assert!(error(&mut first, &["ORDO.BEGIN"]).contains("nested"));
    // By snapshots: a command that is validated could be in the way of the commit, until all its leaves have
    // heard of its end.
    assert_eq!(call(&mut other, &["READONLY"]), ok());
    let before = Answer::List(vec![text("1"), Answer::Nil]);
    poll(PATIENCE, || (call(&mut other, &["MGET", "a", "c"]) == before).then_some(())).expect("in time");
    assert_eq!(call(&mut other, &["READWRITE"]), ok());
    assert_eq!(call(&mut first, &["ORDO.COMMIT"]), ok());
    assert_eq!(call(&mut other, &["MGET", "a", "c"]), list(&["10", "new"]));

    // Two that read what the other one writes: the second has no effect, and is told why. (A command by
    // itself is run again where its node is behind; a transaction that is held open would end with a
    // conflict.)
    assert_eq!(call(&mut first, &["GET", "a"]), text("10"));
    assert_eq!(call(&mut first, &["ORDO.BEGIN"]), ok());
    assert_eq!(call(&mut other, &["ORDO.BEGIN"]), ok());
    assert_eq!(call(&mut first, &["GET", "a"]), text("10"));
    assert_eq!(call(&mut other, &["GET", "b"]), text("1"));
    assert_eq!(call(&mut first, &["SET", "b", "2"]), ok());
    assert_eq!(call(&mut other, &["SET", "a", "2"]), ok());
    assert_eq!(call(&mut first, &["ORDO.COMMIT"]), ok());
    let conflict = error(&mut other, &["ORDO.COMMIT"]);
    // Its node may not have heard yet that the first one, which has read `a`, has ended; and on a busy
    // machine the validators above may still hold the first one when they meet the second.
    let names = |key| conflict == format!("CONFLICT key '{key}' has changed: run the transaction again");
    let met = conflict == "CONFLICT other transactions have met this one: run the transaction again";
    assert!(names("b") || names("a") || met, "{conflict}");
    assert_eq!(call(&mut other, &["MGET", "a", "b"]), list(&["10", "2"]));

    // Without an effect: what is rolled back, what a closed connection had begun, what writes too much.
    for words in [&["ORDO.BEGIN"][..], &["SET", "a", "3"], &["ORDO.ROLLBACK"]] {
        assert_eq!(call(&mut first, words), ok());
    }
    assert_eq!(call(&mut first, &["ORDO.BEGIN"]), ok());
    assert_eq!(call(&mut first, &["SET", "a", "3"]), ok());
    assert_eq!(call(&mut first, &["RESET"]), text("RESET"));
    assert_eq!(call(&mut first, &["GET", "a"]), text("10"));
    let mut gone = cluster.client(2);
    assert_eq!(call(&mut gone, &["ORDO.BEGIN"]), ok());
    assert_eq!(call(&mut gone, &["SET", "a", "4"]), ok());
    drop(gone);
    assert_eq!(call(&mut first, &["ORDO.BEGIN"]), ok());
    let refused = error(&mut first, &["MSET", "k1", "v", "k2", "v", "k3", "v", "k4", "v"]);
    assert!(refused.contains("may write 3"), "{refused}");
    assert_eq!(call(&mut first, &["ORDO.COMMIT"]), ok());
    assert_eq!(call(&mut first, &["ORDO.BEGIN", "READONLY"]), ok());
    assert_eq!(call(&mut first, &["GET", "a"]), text("10"));
    assert!(error(&mut first, &["SET", "a", "5"]).contains("READONLY"));
    assert_eq!(call(&mut first, &["ORDO.COMMIT"]), ok());
    assert!(error(&mut first, &["ORDO.BEGIN", "LATER"]).contains("syntax"));

    // A forgotten one: its next commands do not run outside of it.
    assert_eq!(call(&mut first, &["ORDO.BEGIN"]), ok());
    assert_eq!(call(&mut first, &["SET", "a", "6"]), ok());
    let info = |client: &mut Client| call(client, &["INFO", "hierarchy"]).text("INFO").expect("a text");
    let forgotten = || info(&mut cluster.client(0)).contains("forgotten_transactions:1").then_some(());
    poll(PATIENCE, forgotten).expect("it is rolled back in time");
    for words in [&["SET", "a", "7"][..], &["ORDO.COMMIT"]] {
        let refused = error(&mut first, words);
        assert!(refused.starts_with("TIMEOUT the transaction was rolled back"), "{refused}");
    }
    assert_eq!(call(&mut first, &["GET", "a"]), text("10"));
}

#[test]
fn info_health_and_dbsize_tell_of_the_site() {
    let mut cluster = Cluster::start("");
    let (mut here, mut there) = (cluster.client(0), cluster.client(LEAVES));
    let info = |client: &mut Client, section: &str| {
        call(client, &["INFO", section]).text("INFO").unwrap_or_else(|error| panic!("{error}"))
    };
    for number in 0..8 {
        assert_eq!(call(&mut here, &["SET", &format!("key:{number}"), "v"]), ok());
    }
    assert_eq!(call(&mut here, &["SET", "brief", "v", "EX", "1000"]), ok());
    assert_eq!(call(&mut here, &["DEL", "key:0", "none"]), text("1"));
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    assert_eq!(call(&mut here, &["FUNCTION", "LOAD", library]), text("lib"));
    for client in [&mut here, &mut there] {
        poll(PATIENCE, || (call(client, &["DBSIZE"]) == text("8")).then_some(())).expect("all are counted");
        let keyspace = info(client, "keyspace");
        assert!(keyspace.contains("db0:keys=8,expires=1,avg_ttl=99"), "{keyspace}");
        poll(PATIENCE, || info(client, "memory").contains("number_of_functions:1\r\n").then_some(()))
            .expect("the function is counted");
    }
    // Keys that have expired are counted no more, although nobody reads them.
    for number in 0..8 {
        assert_eq!(call(&mut there, &["SET", &format!("gone:{number}"), "v", "PX", "1"]), ok());
    }
    let removed = |client: &mut Client| {
        let stats = info(client, "stats");
        let line = stats.lines().find_map(|line| line.strip_prefix("expired_keys:")).expect("a count");
        line.parse::<u64>().expect("a number")
    };
    let are_gone = || {
        let mut clients = [0, 1, 2, 3].map(|place| cluster.client(place));
        let are_counted = clients.iter_mut().any(|client| call(client, &["DBSIZE"]) != text("8"));
        (!are_counted && clients.iter_mut().map(removed).sum::<u64>() >= 8).then_some(())
    };
    poll(PATIENCE, are_gone).expect("the keys are removed");
    assert_eq!(call(&mut here, &["FUNCTION", "FLUSH"]), ok());
    assert!(error(&mut here, &["FCALL", "f", "0"]).contains("Function not found"));
    assert!(error(&mut here, &["LASTSAVE"]).contains("is not served"));
    // The site's journal, and its entries.
    let number = |text: &str, field: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{field}: {text}")).parse().expect("a number")
    };
    let (log, persistence) = (info(&mut here, "ordo"), info(&mut here, "persistence"));
    let decided = number(&log, "final_committed_position");
    assert!(decided >= 10 && number(&log, "log_written_record") >= 10, "{log}");
    assert!(number(&persistence, "aof_current_size") >= decided, "{persistence}");
    assert_eq!(number(&persistence, "async_loading"), 0);
    // A validator whose only node is away.
    let is_ready =
        "\r\n\r\nready\nrole: leader\nvalidators: 7\nvalidators_hosted: 1\nvalidators_led: 1\nfinal";
    poll(PATIENCE, || cluster.readiness().contains(is_ready).then_some(())).expect("it is ready");
    assert!(info(&mut here, "ordo").contains("engine:hierarchy\r\n"));
    let metrics = cluster.page("/metrics");
    for line in [
        "ordo_hierarchy_enabled 1",
        "ordo_hierarchy_validators_led 1",
        "ordo_hierarchy_validators_without_leader 0",
        "ordo_hierarchy_validators_too_large 0",
        "ordo_hierarchy_conflicts_total{cause=\"old_snapshot\"} 0",
        "ordo_hierarchy_decided_total{validator=\"root\",height=\"2\"} ",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line}: {metrics}");
    }
    let console = cluster.page("/console.json");
    let body = console.split_once("\r\n\r\n").expect("a body").1;
    let console: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!((&console["verdict"], &console["server"]["engine"]), (&"ok".into(), &"hierarchy".into()));
    assert_eq!(console["hierarchy"]["validators"].as_array().map(Vec::len), Some(7));
    cluster.kill(1);
    let says_so = || cluster.readiness().contains("no leader of the validators leaf-1:").then_some(());
    poll(PATIENCE, says_so).expect("the first node notices");
    assert!(cluster.readiness().starts_with("HTTP/1.1 503"));
    cluster.launch(1);
    poll(PATIENCE, || cluster.readiness().contains("\r\n\r\nready\n").then_some(())).expect("it is back");
}

#[test]
fn the_operator_sees_the_tree_which_level_decides_and_who_is_away() {
    let mut cluster = Cluster::start("");
    let admin = |cluster: &Cluster, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ordo"));
        command.args(["admin", "--address", &cluster.nodes[0].address]).args(words);
        let output = command.output().expect("it runs");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), said.concat())
    };
    let status = |cluster: &Cluster| -> (Option<i32>, serde_json::Value) {
        let (code, said) = admin(cluster, &["status", "--json"]);
        (code, serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}")))
    };
    poll(PATIENCE, || (status(&cluster).0 == Some(0)).then_some(())).expect("all is well");
    let (_, before) = status(&cluster);
    // Each key alone is decided by a leaf, wherever the client is; all leaves have a part in the last one.
    for place in [0, LEAVES] {
        let mut client = cluster.client(place);
        for number in 0..20 {
            assert_eq!(call(&mut client, &["SET", &format!("key:{number}"), "v"]), ok());
        }
    }
    let keys: Vec<String> = (0..20).flat_map(|number| [format!("key:{number}"), "v".to_owned()]).collect();
    let words: Vec<&str> = ["MSET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(call(&mut cluster.client(0), &words), ok());
    let (code, after) = status(&cluster);
    let grown = |path: &str| {
        let number = |status: &serde_json::Value| status.pointer(path).and_then(serde_json::Value::as_u64);
        number(&after).expect("a number") - number(&before).expect("a number")
    };
    assert_eq!(code, Some(0), "{after}");
    assert_eq!(["/levels/0/decided", "/levels/1/decided", "/levels/2/decided"].map(grown), [40, 0, 1]);
    assert_eq!(grown("/transactions/committed"), 41);
    assert!(after["levels"][2]["batch_mean"].as_f64() >= Some(1.0), "{after}");
    let root = &after["validators"][6];
    assert_eq!((&root["name"], &root["leader"], &root["parent"]), (&"root".into(), &5.into(), &().into()));
    let (_, said) = admin(&cluster, &["status"]);
    assert!(said.starts_with("OK: 5 nodes and 7 validators") && said.contains("| - - leaf-3 "), "{said}");
    let (code, said) = admin(&cluster, &["transfer-leader", "0", "n1"]);
    assert!(code == Some(1) && said.contains("never change"), "{said}");

    cluster.kill(1);
    let away = || {
        let (code, shown) = status(&cluster);
        let first = &shown["problems"][0];
        let is_told = first["cause"].as_str()?.contains("validator leaf-1") && first["kind"] == "no-leader";
        let is_silent =
            shown["problems"][1]["nodes"][0] == "n2" && shown["problems"][1]["kind"] == "unreachable";
        (code == Some(4) && shown["verdict"] == "unavailable" && is_told && is_silent).then_some(())
    };
    poll(PATIENCE, away).expect("it is told who is away");
}

const ACCOUNTS: u64 = 12;
const MONEY: i64 = 100;

/// Moves money, if there is any, and counts that.
const TRANSFER: &str = "if tonumber(redis.call('GET', KEYS[1])) > 0 then redis.call('DECR', KEYS[1]) \
     redis.call('INCR', KEYS[2]) end redis.call('SET', KEYS[4], 1) return redis.call('INCR', KEYS[3])";

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// What has become of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Done,
    Nothing,
    Unknown,
    /// Its node does not serve yet.
    Loading,
}

fn end_of(answer: Answer) -> End {
    match answer {
        Answer::Error(text) if text.starts_with("CONFLICT") || text.contains("nothing was changed") => {
            End::Nothing
        }
        Answer::Error(text) if text.starts_with("LOADING") => End::Loading,
        Answer::Error(text) if text.contains("nobody knows") => End::Unknown,
        Answer::Error(text) => panic!("{text}"),
        _ => End::Done,
    }
}

/// One transfer, by a script or by a transaction that this client holds open. It writes a key of its own, the
/// mark, beside the accounts and the client's counter.
fn transfer(
    client: &mut Client,
    from: &str,
    to: &str,
    counter: &str,
    mark: &str,
    by_script: bool,
) -> Result<End, ClientError> {
    if by_script {
        return client.call(&["EVAL", TRANSFER, "4", from, to, counter, mark]).map(end_of);
    }
    let begun = client.call(&["ORDO.BEGIN"])?;
    if begun != ok() {
        return Ok(end_of(begun));
    }
    let money = match client.call(&["GET", from])? {
        Answer::Text(money) => money.parse::<i64>().expect("a number"),
        failed => {
            client.call(&["ORDO.ROLLBACK"])?;
            return Ok(end_of(failed));
        }
    };
    let moves = [["DECR", from], ["INCR", to], ["INCR", counter]];
    for words in &moves[if money > 0 { 0 } else { 2 }..] {
        client.call(words)?;
    }
    client.call(&["SET", mark, "1"])?;
    client.call(&["ORDO.COMMIT"]).map(end_of)
}

/// What a client knows of its transfers: their marks, with their ends.
type Known = Vec<(String, End)>;

fn work(cluster: &[String], me: usize, mut random: u64, stop: &AtomicBool, done: &AtomicU64) -> Known {
    let mut known = Known::new();
    let counter = format!("counter:{me}");
    let mut place = me;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::open(&cluster[place % cluster.len()], REPLY_MAX) else {
            place += 1;
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            let (from, to) = (draw(&mut random) % ACCOUNTS, draw(&mut random) % ACCOUNTS);
            let (from, to) = (format!("account:{from}"), format!("account:{to}"));
            let (mark, by_script) =
                (format!("mark:{me}:{}", known.len()), draw(&mut random).is_multiple_of(2));
            match transfer(&mut client, &from, &to, &counter, &mark, by_script) {
                Ok(End::Loading) => {
                    place += 1;
                    break;
                }
                Ok(end) => {
                    done.fetch_add(u64::from(end == End::Done), Ordering::Relaxed);
                    known.push((mark, end));
                }
                Err(ClientError::Lost { cause, .. }) => {
                    let is_late = cause.to_string().contains("silent");
                    assert!(!is_late, "client {me} has waited for {REPLY_MAX:?}");
                    known.push((mark, End::Unknown));
                    place += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    known
}

/// How many of these transfers have left their marks. Those whose end is known have, or have not.
fn count_marks(client: &mut Client, known: &Known) -> i64 {
    let mut count = 0;
    for some in known.chunks(100) {
        let mut words = vec!["MGET"];
        words.extend(some.iter().map(|(mark, _)| mark.as_str()));
        let values = match call(client, &words) {
            Answer::List(values) => values,
            other => panic!("no list: {other:?}"),
        };
        assert_eq!(values.len(), some.len());
        for ((mark, end), value) in some.iter().zip(values) {
            let is_there = value == text("1");
            count += i64::from(is_there);
            assert!(*end == End::Unknown || is_there == (*end == End::Done), "{mark}: {end:?}, {value:?}");
        }
    }
    count
}

#[test]
fn nothing_is_lost_or_split_when_nodes_are_killed() {
    let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(27);
    println!("ORDO_SEED={seed}");
    const CLIENTS: usize = 4;
    let mut cluster = Cluster::start("");
    let mut client = cluster.client(0);
    for account in 0..ACCOUNTS {
        assert_eq!(call(&mut client, &["SET", &format!("account:{account}"), &MONEY.to_string()]), ok());
    }
    let addresses: Vec<String> = cluster.nodes.iter().map(|node| node.address.clone()).collect();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let known = std::thread::scope(|scope| {
        let (addresses, stop, done) = (&addresses, &stop, &done);
        let clients = (0..CLIENTS).map(|me| {
            let random = seed ^ (me as u64) << 32;
            scope.spawn(move || work(addresses, me, random, stop, done))
        });
        let clients: Vec<_> = clients.collect();
        let wait_for_more = |what: &str, cluster: &Cluster| {
            let before = done.load(Ordering::Relaxed);
            let more = || (done.load(Ordering::Relaxed) >= before + 40).then_some(());
            if poll(PATIENCE, more).is_none() {
                stop.store(true, Ordering::Relaxed);
                panic!("no transfers {what}\n{}", cluster.said());
            }
        };
        wait_for_more("at first", &cluster);
        // A node with a leaf, the node with all inner validators, and a node that stops in good order.
        for place in [1, LEAVES, 2] {
            match place {
                2 => {
                    let process = cluster.nodes[place].process.as_mut().expect("it was started");
                    process.signal(Signal::TERM).expect("it runs");
                    process.wait(PATIENCE).unwrap_or_else(|error| panic!("{error}"));
                }
                _ => cluster.kill(place),
            }
            cluster.launch(place);
            cluster.wait_until_up(place);
            wait_for_more(&format!("since n{} is back", place + 1), &cluster);
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("it ends")).collect::<Vec<Known>>()
    });
    // Each transfer that was acknowledged has left its mark, and none that is known to have failed.
    let mut client = cluster.client(0);
    let took_effect: Vec<i64> = known.iter().map(|known| count_marks(&mut client, known)).collect();
    for place in 0..=LEAVES {
        let mut client = cluster.client(place);
        let mut read = |key: String| -> i64 {
            let value = call(&mut client, &["GET", &key]).text("GET").expect("a number");
            value.parse().expect("a number")
        };
        for (me, &effects) in took_effect.iter().enumerate() {
            assert_eq!(read(format!("counter:{me}")), effects, "client {me}");
        }
        let mut words = vec!["MGET".to_owned()];
        words.extend((0..ACCOUNTS).map(|account| format!("account:{account}")));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let values = match call(&mut client, &words) {
            Answer::List(values) => values,
            other => panic!("no list at n{}: {other:?}", place + 1),
        };
        let value = |value: Answer| value.text("MGET").expect("a text").parse::<i64>().expect("a number");
        let total: i64 = values.into_iter().map(value).sum();
        assert_eq!(total, MONEY * ACCOUNTS as i64, "at n{}", place + 1);
    }
    // A server that stands alone would start without the data.
    cluster.kill(0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ordo"));
    command.args(["serve", "--bind", HOST, "--port", "0", "--dir"]).arg(cluster.dir.path().join("n1"));
    let output = command.env_remove("RUST_LOG").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("is of a node of a cluster"), "{said}");
}
