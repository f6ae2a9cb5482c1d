use super::*;
use clap::FromArgMatches;
use server::cluster::hierarchy::{
    HierarchyNode, HierarchyStatus, NodeReport, TransactionCounts, ValidatorStatus,
};
use server::cluster::{PartitionStatus, ReplicaStatus, Severity};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// A server that takes one connection, replies in turn, and then closes. Joined, it gives the commands that
/// it got.
struct Fake {
    address: String,
    thread: JoinHandle<Vec<String>>,
}

impl Fake {
    fn new(replies: Vec<String>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let serve = move || {
            let (stream, _) = listener.accept().expect("a client");
            let mut reader = BufReader::new(stream);
            let mut got = Vec::new();
            for reply in replies {
                let Some(command) = read_command(&mut reader) else {
                    break;
                };
                got.push(command);
                reader.get_mut().write_all(reply.as_bytes()).expect("sent");
            }
            // What came without a reply was still sent.
            got.extend(read_command(&mut reader));
            got
        };
        Fake { address, thread: std::thread::spawn(serve) }
    }

    fn got(self) -> Vec<String> {
        self.thread.join().expect("the fake did its part")
    }
}

/// Reads a client's command; `None` at the end of the connection.
fn read_command(reader: &mut impl BufRead) -> Option<String> {
    let line = |reader: &mut dyn BufRead| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let count = line(reader)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; line(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
    }
    Some(words.join(" "))
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Three nodes in three zones, of which c is silent, a joining d, and two partitions, of which one has no
/// leader.
fn cluster() -> ClusterStatus {
    let node = |(id, name, zone, reachable): (u16, &str, &str, bool)| NodeStatus {
        id,
        name: name.to_owned(),
        zone: zone.to_owned(),
        peer_address: format!("{name}.example:7101"),
        client_address: format!("{name}.example:7001"),
        boot: if name == "d" { 0 } else { 10 + u32::from(id) },
        level: 1,
        reachable,
        out: None,
        waiting: false,
        leaving: false,
        clock_ahead_ms: 0,
    };
    let replica = |node, role: &str, lag| ReplicaStatus { node, role: role.to_owned(), lag };
    let partition = |id, slots, leader, replicas| PartitionStatus { id, slots, leader, term: 7, replicas };
    ClusterStatus {
        cluster: "shop".to_owned(),
        map_version: 4,
        level: 1,
        epoch: 12_345,
        me: 1,
        nodes: [(1, "a", "x", true), (2, "b", "y", true), (3, "c", "z", false), (4, "d", "z", false)]
            .map(node)
            .to_vec(),
        partitions: vec![
            partition(
                0,
                vec![(0, 8191)],
                Some(1),
                vec![
                    replica(1, "leader", None),
                    replica(2, "follower", Some(0)),
                    replica(3, "follower", Some(99)),
                    replica(4, "learner", Some(1_000)),
                ],
            ),
            partition(
                1,
                vec![(8192, 16_000), (16_002, 16_383)],
                None,
                vec![replica(1, "follower", None), replica(9, "follower", None)],
            ),
        ],
    }
}

fn status() -> String {
    bulk(&serde_json::to_string(&cluster()).expect("JSON"))
}

/// Runs `ordo admin` with these words at these addresses.
fn admin(addresses: &[&str], words: &[&str]) -> Result<String> {
    let addresses = addresses.join(",");
    let words = [&["admin", "--address", &addresses], words].concat();
    let matches = command().try_get_matches_from(words)?;
    let admin = Admin::from_arg_matches(&matches)?;
    let mut out = Vec::new();
    run_to(&admin, &admin.nodes.access(None)?, &mut out)?;
    Ok(String::from_utf8(out)?)
}

fn assert_has(text: &str, wants: &[&str]) {
    for want in wants {
        assert!(text.contains(want), "'{text}' lacks '{want}'");
    }
}

#[test]
fn the_status_is_two_tables_and_what_to_look_at() {
    let fake = Fake::new(vec![status()]);
    let text = admin(&[&fake.address], &["status"]).expect("a status");
    assert_eq!(fake.got(), ["ORDO.CLUSTER STATUS"]);
    assert_eq!(
        text,
        "\
UNAVAILABLE: 1 of 2 partitions without a leader
Cluster shop, as a sees it: map version 4, behaviour 1, executed up to epoch 12345

Nobody is known to lead partition 1: writes wait. Another leader is there within a second or so; if this \
stays, no majority of the replicas can talk to each other.
Node c is not heard of. Start it if it does not run, read its log if it does, or replace it \
(docs/cluster.md) if it is gone for good.
Node d has never started. Start it with `ordo serve --cluster cluster.toml --node d`.

| id | node | zone | clients        | peers          |          boot | behaviour | reachable | leads | replicas |
|----|------|------|----------------|----------------|---------------|-----------|-----------|-------|----------|
|  1 | a    | x    | a.example:7001 | a.example:7101 |            11 |         1 | yes       |     1 |        2 |
|  2 | b    | y    | b.example:7001 | b.example:7101 |            12 |         1 | yes       |     0 |        1 |
|  3 | c    | z    | c.example:7001 | c.example:7101 |            13 |         1 | NO        |     0 |        1 |
|  4 | d    | z    | d.example:7001 | d.example:7101 | never started |         1 | NO        |     0 |        1 |

| partition | slots                  | leader    | term | replicas                                      |
|-----------|------------------------|-----------|------|-----------------------------------------------|
|         0 | 0-8191                 | a         |    7 | a, b, c (99 behind), d (learner, 1000 behind) |
|         1 | 8192-16000 16002-16383 | NOT KNOWN |    7 | a (lag not known), node 9 (lag not known)     |
"
    );
}

#[test]
fn json_has_what_the_node_said_the_verdict_and_the_problems() {
    // A newer node may say more: tools get that, too.
    let mut said = serde_json::to_value(cluster()).expect("JSON");
    said["news"] = serde_json::json!([1]);
    let fake = Fake::new(vec![bulk(&said.to_string())]);
    let text = admin(&[&fake.address], &["status", "--json"]).expect("a status");
    let mut shown: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let fields = shown.as_object_mut().expect("an object");
    assert_eq!(fields.remove("verdict"), Some("unavailable".into()));
    let problems = fields.remove("problems").expect("a list");
    assert_eq!(
        problems[0],
        serde_json::json!({
            "severity": "critical",
            "kind": "no-leader",
            "partitions": [1],
            "cause": "Nobody is known to lead partition 1: writes wait.",
            "next": "Another leader is there within a second or so; if this stays, no majority of the \
                     replicas can talk to each other.",
        })
    );
    assert_eq!((&problems[1]["kind"], &problems[1]["nodes"]), (&"unreachable".into(), &["c"].into()));
    assert_eq!(shown, said);
}

/// The cluster once nothing is wrong with it any more.
fn well() -> ClusterStatus {
    let mut status = cluster();
    for node in &mut status.nodes {
        (node.reachable, node.boot) = (true, 20);
    }
    status.partitions[1].leader = Some(1);
    status.partitions[1].replicas.pop();
    status
}

#[test]
fn the_verdict_is_that_of_the_worst_problem() {
    let judged = |change: &dyn Fn(&mut ClusterStatus)| {
        let mut status = well();
        change(&mut status);
        let problems = problems(&status);
        let kinds: Vec<_> = problems.iter().map(|problem| (problem.severity, problem.kind)).collect();
        (verdict(&problems), verdict(&problems).exit_code(), kinds)
    };
    let (note, warning, critical) = (Severity::Note, Severity::Warning, Severity::Critical);
    assert_eq!(judged(&|_| {}), (Verdict::Ok, 0, vec![]));
    let leaving = |status: &mut ClusterStatus| status.nodes[3].leaving = true;
    assert_eq!(judged(&leaving), (Verdict::Ok, 0, vec![(note, "leaving")]));
    let newer = |status: &mut ClusterStatus| status.nodes[0].level = 2;
    assert_eq!(judged(&newer), (Verdict::Ok, 0, vec![(note, "older-version")]));
    let gone = |status: &mut ClusterStatus| {
        leaving(status);
        status.nodes[1].reachable = false;
    };
    assert_eq!(judged(&gone), (Verdict::Degraded, 3, vec![(warning, "unreachable"), (note, "leaving")]));
    let slow = |status: &mut ClusterStatus| status.nodes[2].clock_ahead_ms = -2_500;
    assert_eq!(judged(&slow), (Verdict::Degraded, 3, vec![(warning, "clock")]));
    let headless = |status: &mut ClusterStatus| {
        gone(status);
        status.partitions[0].leader = None;
    };
    let kinds = vec![(critical, "no-leader"), (warning, "unreachable"), (note, "leaving")];
    assert_eq!(judged(&headless), (Verdict::Unavailable, 4, kinds));
}

#[test]
fn many_nodes_and_partitions_are_few_lines() {
    let mut status = well();
    let (node, partition) = (status.nodes[0].clone(), status.partitions[1].clone());
    let named = |id: u16| NodeStatus { id, name: format!("n{id}"), ..node.clone() };
    status.nodes = (1..=40).map(named).collect();
    status.partitions = (0..64).map(|id| PartitionStatus { id, ..partition.clone() }).collect();
    let text = show::status(&status, false);
    assert_has(&text, &["OK: 40 nodes and 64 partitions", "40 nodes more are well", "64 partitions more"]);
    assert!(text.lines().count() < 10, "{text}");
    status.nodes[16].reachable = false;
    status.partitions[3].replicas[0] = ReplicaStatus { node: 2, role: "learner".to_owned(), lag: Some(7) };
    let text = show::status(&status, false);
    assert_has(
        &text,
        &["DEGRADED", "| n17 ", "n2 (learner, 7 behind)", "39 nodes more", "63 partitions more"],
    );
    assert!(text.lines().count() < 20, "{text}");
    let text = show::status(&status, true);
    assert_has(&text, &["| n1 ", "| n40 ", "|        63 |"]);
    assert!(!text.contains("more are well"), "{text}");
}

#[test]
fn help_tells_how_nodes_are_reached_in_one_place() {
    let mut command = command();
    assert_has(&command.render_long_help().to_string(), &["--address", "--password", "--timeout", "--user"]);
    let status = command.find_subcommand_mut("status").expect("there");
    let help = status.render_long_help().to_string();
    assert_has(&help, &["--json", "ordo admin --help"]);
    assert!(!help.contains("--cacert"), "{help}");
    // They are taken there all the same, before and after the subcommand.
    for words in [["admin", "--timeout", "9", "status"], ["admin", "status", "--timeout", "9"]] {
        let matches = super::command().try_get_matches_from(words).expect("taken");
        assert_eq!(
            Admin::from_arg_matches(&matches).expect("complete").nodes.timeout(),
            Duration::from_secs(9)
        );
    }
}

#[test]
fn a_silent_node_is_left_for_the_next_one() {
    // It listens, and nobody takes the connection.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound").to_string();
    let good = Fake::new(vec![status()]);
    let text = admin(&[&address, &good.address], &["status", "--timeout", "1"]).expect("a status");
    assert_has(&text, &["Cluster shop"]);
    good.got();
}

#[test]
fn nodes_are_tried_in_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let alone = Fake::new(vec![
        "-ERR unknown command 'ORDO.CLUSTER', with args beginning with: 'STATUS' \r\n".to_owned(),
    ]);
    let good = Fake::new(vec![status()]);
    let never = TcpListener::bind("127.0.0.1:0").expect("a port");
    let last = never.local_addr().expect("bound").to_string();
    let addresses = [nobody.as_str(), &alone.address, &good.address, &last];
    assert_has(&admin(&addresses, &["status"]).expect("the third answers"), &["Cluster shop"]);
    never.set_nonblocking(true).expect("set");
    assert!(never.accept().is_err(), "one answer is enough");

    let closing = Fake::new(Vec::new());
    let error = admin(&[&nobody, &closing.address], &["status"]).expect_err("nobody answers");
    let closing_address = closing.address.clone();
    closing.got();
    let error = error.to_string();
    assert_has(
        &error,
        &["no node of the cluster answers", &nobody, &closing_address, "nobody listens there"],
    );
}

#[test]
fn a_rebalance_moves_one_range_after_the_other_and_a_dry_one_none() {
    let keys = |counts: &[(u16, u64)]| {
        let counts: Vec<String> = counts.iter().map(|(s, n)| format!("\"{s}\":{n}")).collect();
        counts.join(",")
    };
    // All keys are in the first partition.
    let counted = format!(
        "+{{\"partitions\":{{\"0\":{{{}}},\"1\":{{}}}}}}\r\n",
        keys(&[(10, 15_000), (20, 15_000), (30, 15_000), (31, 15_000)])
    );
    let dry = Fake::new(vec![status(), counted.clone()]);
    let text = admin(&[&dry.address], &["rebalance", "--dry-run"]).expect("done");
    assert_eq!(dry.got(), ["ORDO.CLUSTER STATUS", "ORDO.CLUSTER SLOTKEYS"]);
    let first = "replicas of zone 'z' move already, and are left to themselves: see `ordo admin status`\n\
                 1 of 2: the slots 31 to 8191, with 15000 keys, from partition 0 to partition 1\n";
    let second = "2 of 2: the slots 30 to 30, with 15000 keys, from partition 0 to partition 1\n";
    assert_eq!(text, format!("{first}{second}"));

    let moved = "+OK: they move\r\n".to_owned();
    let replies = [status(), counted.clone(), moved.clone(), moved.clone()];
    let done = Fake::new(replies.to_vec());
    let text = admin(&[&done.address], &["rebalance"]).expect("done");
    assert_eq!(text, format!("{first}{second}done\n"));
    assert_eq!(done.got()[2..], ["ORDO.CLUSTER MOVESLOTS 31 8191 1", "ORDO.CLUSTER MOVESLOTS 30 30 1",]);

    let refused = "-ERR the map of the cluster has changed meanwhile\r\n".to_owned();
    let stopped = Fake::new(vec![status(), counted, moved, refused]);
    let error = admin(&[&stopped.address], &["rebalance"]).expect_err("it stops");
    assert_has(&format!("{error:#}"), &["stopped there", "has changed meanwhile"]);

    let even = "+{\"partitions\":{\"0\":{\"1\":5},\"1\":{\"9000\":5}}}\r\n".to_owned();
    let even = Fake::new(vec![status(), even]);
    let text = admin(&[&even.address], &["rebalance"]).expect("done");
    assert_has(&text, &["nothing to move"]);
}

#[test]
fn changes_go_to_the_node_that_answered() {
    let cases: [(&[&str], &str); 5] = [
        (&["remove-node", "b"], "ORDO.CLUSTER REMOVENODE 2"),
        (&["remove-node", "3"], "ORDO.CLUSTER REMOVENODE 3"),
        (&["transfer-leader", "0", "b"], "ORDO.CLUSTER TRANSFER 0 2"),
        (&["move-slots", "8192", "9000", "0"], "ORDO.CLUSTER MOVESLOTS 8192 9000 0"),
        (
            &[
                "add-node",
                "e",
                "--zone",
                "z",
                "--peer-address",
                "e.example:1",
                "--client-address",
                "e.example:2",
            ],
            "ORDO.CLUSTER ADDNODE e z e.example:1 e.example:2",
        ),
    ];
    for (words, sent) in cases {
        let fake = Fake::new(vec![status(), "+done, map version 5\r\n".to_owned()]);
        let text = admin(&[&fake.address], words).expect("done");
        assert_eq!(fake.got(), ["ORDO.CLUSTER STATUS", sent]);
        assert!(text.starts_with("done, map version 5\n"), "{text}");
        if words[0] == "add-node" {
            // What it says to add is what a node takes.
            let (_, entry) = text.split_once("[[node]]").expect("an entry");
            let (entry, next) = entry.split_once("\n\n").expect("what comes next");
            assert_has(
                next,
                &[
                    "ordo serve --cluster cluster.toml --node e",
                    "the nodes of zone 'z' keep (c, d)",
                    "ordo admin rebalance",
                    "ordo admin remove-node",
                ],
            );
            let founder = "name = 's'\nsecret = 'sixteen letters!'\n[[node]]\nname = 'a'\nzone = 'z'\n\
                           peer_address = 'a:1'\nclient_address = 'a:2'\n";
            let file = format!("{founder}[[node]]{entry}");
            let config = server::cluster::ClusterConfig::parse(&file, "cluster.toml".as_ref());
            let config = config.expect("valid");
            assert!(config.node("e").is_some_and(|node| node.joins && node.zone == "z"));
        }
    }
}

/// The status of `me`, where `leader` leads partition 1 and is found at an address.
fn led_by(me: u16, leader: Option<u16>, at: &str) -> ClusterStatus {
    let mut status = cluster();
    status.me = me;
    status.partitions[1].leader = leader;
    for node in &mut status.nodes {
        if Some(node.id) == leader {
            node.client_address = at.to_owned();
        }
    }
    status
}

fn reply(status: &ClusterStatus) -> String {
    bulk(&serde_json::to_string(status).expect("JSON"))
}

#[test]
fn a_transfer_goes_to_the_leader() {
    // The first knows who led before, who knows who leads now.
    let now = Fake::new(vec![reply(&led_by(3, Some(3), "unused:1")), "+OK\r\n".to_owned()]);
    let before = Fake::new(vec![reply(&led_by(2, Some(3), &now.address))]);
    let first = Fake::new(vec![reply(&led_by(1, Some(2), &before.address))]);
    let text = admin(&[&first.address], &["transfer-leader", "1", "a"]).expect("done");
    assert_eq!(text, "OK\n");
    assert_eq!(first.got(), ["ORDO.CLUSTER STATUS"]);
    assert_eq!(before.got(), ["ORDO.CLUSTER STATUS"]);
    assert_eq!(now.got(), ["ORDO.CLUSTER STATUS", "ORDO.CLUSTER TRANSFER 1 1"]);
    // Without a leader, the node that was asked says what there is to say.
    let first = Fake::new(vec![status(), "-ERR it has no leader\r\n".to_owned()]);
    let error = admin(&[&first.address], &["transfer-leader", "1", "a"]).expect_err("refused");
    assert_has(&error.to_string(), &["it has no leader"]);
    assert_eq!(first.got(), ["ORDO.CLUSTER STATUS", "ORDO.CLUSTER TRANSFER 1 1"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let first = Fake::new(vec![reply(&led_by(1, Some(2), &nobody))]);
    let error = admin(&[&first.address], &["transfer-leader", "1", "a"]).expect_err("refused");
    assert_has(&error.to_string(), &["b leads partition 1", &nobody, "nobody listens"]);
}

#[test]
fn the_status_has_what_only_leaders_know() {
    let mut known = led_by(2, Some(2), "unused:1");
    known.partitions[1].term = 9;
    known.partitions[1].replicas[0].lag = Some(3);
    let shown = |first: ClusterStatus, words: &[&str]| {
        let leader = Fake::new(vec![reply(&known)]);
        let mut first = first;
        first.nodes[1].client_address = leader.address.clone();
        let first = Fake::new(vec![reply(&first)]);
        let text = admin(&[&first.address], words).expect("a status");
        assert_eq!(leader.got(), ["ORDO.CLUSTER STATUS"]);
        text
    };
    let mut first = led_by(1, Some(2), "");
    first.partitions[1].term = 0;
    let text = shown(first.clone(), &["status"]);
    assert_has(&text, &["a (3 behind)", "| b      |    9 |"]);
    let json = shown(first.clone(), &["status", "--json"]);
    let whole: ClusterStatus = serde_json::from_str(&json).expect("a status");
    assert_eq!(whole.partitions[1].replicas[0].lag, Some(3));
    assert_eq!(whole.me, 1);
    // One that does not answer keeps nothing from being shown, and what is not known is no number.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    first.nodes[1].client_address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let alone = Fake::new(vec![reply(&first)]);
    let text = admin(&[&alone.address], &["status"]).expect("a status");
    assert_has(&text, &["a (lag not known)", "| b      |    - |"]);
}

#[test]
fn a_node_that_is_out_is_shown_with_its_cause() {
    let mut status = cluster();
    status.nodes[1].out = Some("its log cannot be written (no space)".to_owned());
    let text = show::status(&status, false);
    assert_has(
        &text,
        &[
            "| OUT ",
            "Node b takes no part in the cluster: its log cannot be written (no space). Its own log tells",
        ],
    );
}

#[test]
fn a_node_that_runs_and_waits_is_not_said_to_be_down() {
    let mut status = cluster();
    status.nodes[3].waiting = true;
    status.partitions[0].replicas.pop();
    let text = show::status(&status, false);
    assert_has(
        &text,
        &["waits", "Node d runs, and waits", "share of zone z", "another node there (c)", "remove-node"],
    );
    assert!(!text.contains("never started"), "{text}");
    let text = show::status(
        &{
            status.partitions[0].replicas[2].node = 4;
            status
        },
        false,
    );
    assert_has(&text, &["Node d runs, and is about to join"]);
}

#[test]
fn mistakes_are_found_before_anything_is_sent() {
    let cases: [(&[&str], &[&str]); 9] = [
        (
            &["add-node", "12", "--zone", "z", "--peer-address", "e:1", "--client-address", "e:2"],
            &["node's name '12'", "add a letter"],
        ),
        (
            &["add-node", "e", "--zone", "z", "--peer-address", "e", "--client-address", "e:2"],
            &["--peer-address 'e'", "10.0.0.1:17001"],
        ),
        (
            &["add-node", "e", "--zone", "z", "--peer-address", "e:1", "--client-address", "0.0.0.0:2"],
            &["--client-address '0.0.0.0:2'", "others connect"],
        ),
        (&["remove-node", "f"], &["no node 'f'", "a (1), b (2), c (3), d (4)"]),
        (&["remove-node", "7"], &["no node '7'"]),
        (&["transfer-leader", "2", "a"], &["no partition 2", "from 0 to 1"]),
        (&["transfer-leader", "1", "b"], &["'b' cannot lead partition 1", "a, node 9"]),
        (&["transfer-leader", "0", "d"], &["'d' cannot lead partition 0", "a, b, c"]),
        (
            &["add-node", "e", "--zone", "w", "--peer-address", "e:1", "--client-address", "e:2"],
            &["no zone 'w'", "x, y, z"],
        ),
    ];
    for (words, wants) in cases {
        let fake = Fake::new(vec![status()]);
        let error = admin(&[&fake.address], words).expect_err("refused");
        assert_eq!(fake.got(), ["ORDO.CLUSTER STATUS"], "{words:?}");
        assert_has(&error.to_string(), wants);
    }
}

#[test]
fn each_refusal_says_what_to_do() {
    for (reply, wants) in [
        ("-NOAUTH Authentication required.\r\n", &["asks for a password", "--password", "REDISCLI_AUTH"][..]),
        (
            "-ERR unknown command 'ORDO.CLUSTER', with args beginning with: 'STATUS' \r\n",
            &["no node of a cluster", "--cluster"],
        ),
        ("-ERR This instance has cluster support disabled\r\n", &["no node of a cluster", "--cluster"]),
        ("-ERR the node is starting\r\n", &["the node refuses: the node is starting"]),
        ("+OK\r\n", &["does not understand", "version"]),
        ("*0\r\n", &["no status"]),
        ("HTTP/1.1 400 Bad Request\r\n", &["not RESP", "answers clients"]),
        ("", &["closed the connection", "another one"]),
    ] {
        let replies = if reply.is_empty() { Vec::new() } else { vec![reply.to_owned()] };
        let fake = Fake::new(replies);
        let address = fake.address.clone();
        let error = admin(&[&address], &["status"]).expect_err("refused").to_string();
        assert_has(&error, wants);
        assert!(error.starts_with(&address), "{error}");
        fake.got();
    }
    let fake = Fake::new(vec![status(), "-ERR b leads nothing\r\n".to_owned()]);
    let error = admin(&[&fake.address], &["remove-node", "b"]).expect_err("refused");
    assert_has(&error.to_string(), &["the node refuses: b leads nothing"]);
    // The change may have been made all the same.
    let fake = Fake::new(vec![status()]);
    let error = admin(&[&fake.address], &["remove-node", "b"]).expect_err("no reply");
    assert_eq!(fake.got(), ["ORDO.CLUSTER STATUS", "ORDO.CLUSTER REMOVENODE 2"]);
    assert_has(&error.to_string(), &["not known", "ordo admin status"]);
}

#[test]
fn a_password_is_given_before_anything_else() {
    let words = ["status", "--password", "open sesame"];
    let fake = Fake::new(vec!["+OK\r\n".to_owned(), status()]);
    admin(&[&fake.address], &words).expect("a status");
    assert_eq!(fake.got(), ["AUTH open sesame", "ORDO.CLUSTER STATUS"]);
    let fake =
        Fake::new(vec!["-WRONGPASS invalid username-password pair or user is disabled.\r\n".to_owned()]);
    let error = admin(&[&fake.address], &words).expect_err("refused").to_string();
    assert_eq!(fake.got(), ["AUTH open sesame"]);
    assert_has(&error, &["does not take the password", "WRONGPASS", "--password"]);
    assert!(!error.contains("sesame"), "{error}");
}

/// A root above two leaves, which have a node each. The second node answers at this address.
fn hierarchy(me: u16, decided: [u64; 3], second: &str) -> HierarchyStatus {
    let addresses = ["a.example:7001", second, "127.0.0.1:1"];
    let node = |(id, (name, address)): (u16, (&str, &str))| HierarchyNode {
        id,
        name: name.to_owned(),
        zone: "z".to_owned(),
        peer_address: format!("{name}.example:17001"),
        client_address: address.to_owned(),
        reachable: id < 3,
        report: (id == me).then(|| NodeReport {
            transactions: TransactionCounts {
                committed: 1_000,
                aborted_of_timestamps: u64::from(me),
                ..TransactionCounts::default()
            },
            ..NodeReport::default()
        }),
    };
    let validator = |(id, name): (u16, &str)| ValidatorStatus {
        id,
        name: name.to_owned(),
        parent: (id < 2).then_some(2),
        height: u64::from(id == 2),
        hosts: vec![1 + id],
        leader: (id < 2).then_some(1 + id),
        entries: 7,
        decided: decided[usize::from(id)],
        batches: 2,
        batched: 5,
        ..ValidatorStatus::default()
    };
    HierarchyStatus {
        protocol: "hierarchy".to_owned(),
        cluster: "shop".to_owned(),
        control: "locks".to_owned(),
        me,
        nodes: (1..).zip(["a", "b", "c"].into_iter().zip(addresses)).map(node).collect(),
        validators: (0..).zip(["left", "right", "root"]).map(validator).collect(),
    }
}

fn of_hierarchy(status: &HierarchyStatus) -> String {
    bulk(&serde_json::to_string(status).expect("JSON"))
}

#[test]
fn the_status_of_a_hierarchy_is_the_tree_and_what_all_nodes_count() {
    let second = Fake::new(vec![of_hierarchy(&hierarchy(2, [100, 500, 200], ""))]);
    let first = Fake::new(vec![of_hierarchy(&hierarchy(1, [900, 0, 100], &second.address))]);
    let text = admin(&[&first.address], &["status"]).expect("a status");
    assert_eq!(
        (first.got(), second.got()),
        (vec!["ORDO.CLUSTER STATUS".to_owned()], vec!["ORDO.CLUSTER STATUS".to_owned()])
    );
    assert_has(
        &text,
        &[
            "UNAVAILABLE: 1 of 3 validators without a leader\nHierarchy shop, control by locks: 2000 \
             transactions committed, 0 a second; without effect 0 attempts at keys, 0 of old snapshots, 3 of \
             timestamps; 0 requests given up\n",
            "Nobody is known to lead validator root: transactions that need it wait.",
            "Node c is not heard of.",
            "|     1 |          1 |                0 |     300 | 16.7 % |                     2.5 |",
            "|     0 |          2 |                0 |    1500 | 83.3 % |                     2.5 |",
            "| root      | NOT KNOWN | c     |                0 |     300 |",
            "| - left    | a         | a     |                0 |    1000 |",
            "| - right   | b         | b     |                0 |     500 |",
        ],
    );
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("| c    | z    |") && last.contains("| NO "), "{text}");
}

#[test]
fn tools_get_the_status_of_a_hierarchy_and_other_commands_are_refused_there() {
    let mut status = hierarchy(1, [700, 0, 300], "127.0.0.1:1");
    status.validators[2].leader = Some(1);
    let fake = Fake::new(vec![of_hierarchy(&status)]);
    let text = admin(&[&fake.address], &["status", "--json"]).expect("a status");
    let shown: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&shown["protocol"], &shown["verdict"]), (&"hierarchy".into(), &"degraded".into()));
    assert_eq!(
        (&shown["levels"][1]["decided"], &shown["transactions"]["committed"]),
        (&300.into(), &1_000.into())
    );
    let kinds: Vec<&str> = shown["problems"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|found| found["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["no-answer", "unreachable", "decided-high"]);

    let fake = Fake::new(vec![of_hierarchy(&status)]);
    let refused = admin(&[&fake.address], &["remove-node", "b"]).expect_err("it is refused").to_string();
    assert!(refused.contains("never change"), "{refused}");
    let newer = bulk("{\"protocol\":\"hierarchy\",\"nodes\":7}");
    let fake = Fake::new(vec![newer]);
    let refused = admin(&[&fake.address], &["status"]).expect_err("it does not read back").to_string();
    assert!(refused.contains("use one of the node's version"), "{refused}");
}
