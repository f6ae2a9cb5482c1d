//! CLUSTER's replies against a view that was made by hand, in the forms that Redis 7.0.15 gave for a like
//! cluster.

use super::*;
use crate::cluster::tests::{map, view};
use redis_surface::codec::{Protocol, encode};
use std::sync::Arc;
use store::{Image, Partition};
use txn::{Entry, Position};

fn wire(reply: &Reply, protocol: Protocol) -> String {
    let mut out = Vec::new();
    encode(reply, protocol, &mut out);
    String::from_utf8(out).expect("text").replace("\r\n", " ")
}

fn ask(view: &ClusterView, command: ClusterCommand, words: &[&str]) -> Reply {
    let args: Vec<Blob> = words.iter().map(|&word| Blob::from(word)).collect();
    reply(view, command, &args, |_| None)
}

fn text_of(view: &ClusterView, command: ClusterCommand) -> String {
    match ask(view, command, &[]) {
        Reply::Verbatim("txt", text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    }
}

fn node(number: u16) -> String {
    map().node_name(NodeId(number))
}

/// An endpoint of CLUSTER SLOTS on the wire, its metadata last.
fn endpoint(host: &str, port: u16, number: u16, metadata: &str) -> String {
    format!("*4 ${} {host} :{port} $40 {} {metadata} ", host.len(), node(number))
}

#[test]
fn slots_are_redis_7s_in_both_protocols() {
    let view = view();
    for (protocol, metadata) in [(Protocol::Resp2, "*0"), (Protocol::Resp3, "%0")] {
        let a = endpoint("10.0.0.1", 6379, 1, metadata);
        let b = endpoint("10.0.0.2", 6380, 2, metadata);
        let c = endpoint("cache.example", 6381, 3, metadata);
        let d = endpoint("::1", 6382, 4, metadata);
        // Partition 1's replica in zone x is node 4's; partition 2 is led by whom it should be led by. Who is
        // a primary somewhere is a replica nowhere.
        assert_eq!(
            wire(&ask(&view, ClusterCommand::Slots, &[]), protocol),
            format!("*3 *3 :0 :5460 {a}*4 :5461 :10921 {b}{d}*3 :10922 :16383 {c}")
        );
    }
}

#[test]
fn slots_leave_out_replicas_that_cannot_serve_and_follow_leaders() {
    let mut view = view();
    view.leaders.insert(PartitionId(0), NodeId(3));
    view.unreachable = vec![NodeId(2)];
    let mut status = (*view.status).clone();
    for replica in &mut status.partitions[0].replicas {
        if replica.node == 1 {
            replica.role = "learner".to_owned();
        }
    }
    view.status = Arc::new(status);
    let Reply::Array(rows) = ask(&view, ClusterCommand::Slots, &[]) else {
        panic!("rows");
    };
    let rows: Vec<String> = rows.iter().map(|row| wire(row, Protocol::Resp2)).collect();
    let c = endpoint("cache.example", 6381, 3, "*0");
    assert_eq!(rows[0], format!("*3 :0 :5460 {c}"));
    // A primary is shown whether it answers or not: nobody else takes its place yet.
    let b = endpoint("10.0.0.2", 6380, 2, "*0");
    let d = endpoint("::1", 6382, 4, "*0");
    assert_eq!(rows[1], format!("*4 :5461 :10921 {b}{d}"));
    // Who leads nothing any more is a replica of what it keeps.
    let a = endpoint("10.0.0.1", 6379, 1, "*0");
    assert_eq!(rows[2], format!("*4 :10922 :16383 {c}{a}"));
}

#[test]
fn shards_tell_roles_and_health() {
    let mut view = view();
    view.unreachable = vec![NodeId(3)];
    let shown = wire(&ask(&view, ClusterCommand::Shards, &[]), Protocol::Resp3);
    let member = |number: u16, host: &str, port: u16, role: &str, offset: u64, health: &str| {
        let bulk = |text: &str| format!("${} {text} ", text.len());
        let named = if host.contains("example") {
            format!("{}{}", bulk("hostname"), bulk(host))
        } else {
            String::new()
        };
        format!(
            "%{} $2 id $40 {} $4 port :{port} $2 ip {}$8 endpoint {}{named}$4 role {}$18 \
             replication-offset :{offset} $6 health {}",
            if named.is_empty() { 7 } else { 8 },
            node(number),
            bulk(host),
            bulk(host),
            bulk(role),
            bulk(health)
        )
    };
    let first = format!(
        "*3 %2 $5 slots *2 :0 :5460 $5 nodes *1 {}%2 $5 slots *2 :5461 :10921 $5 nodes *2 {}{}",
        member(1, "10.0.0.1", 6379, "master", 98, "online"),
        member(2, "10.0.0.2", 6380, "master", 100, "online"),
        member(4, "::1", 6382, "replica", 100, "online"),
    );
    assert!(shown.starts_with(&first), "{shown}\n{first}");
    assert!(shown.contains(&member(3, "cache.example", 6381, "master", 100, "fail")));
    let resp2 = wire(&ask(&view, ClusterCommand::Shards, &[]), Protocol::Resp2);
    assert!(resp2.starts_with("*3 *4 $5 slots *2 :0 :5460 $5 nodes *1 *14 $2 id "), "{resp2}");
}

#[test]
fn nodes_are_listed_in_redis_lines() {
    let mut view = view();
    view.unreachable = vec![NodeId(4)];
    let [a, b, c, d] = [1, 2, 3, 4].map(node);
    assert_eq!(
        text_of(&view, ClusterCommand::Nodes),
        format!(
            "{a} 10.0.0.1:6379@7001 myself,master - 0 0 7 connected 0-5460\n\
             {b} 10.0.0.2:6380@7002 master - 0 0 5 connected 5461-10921\n\
             {c} cache.example:6381@7003 master,fail? - 0 0 0 connected 10922-16383\n\
             {d} ::1:6382@7004 slave,fail? {b} 0 0 5 disconnected\n"
        )
    );
    // Who leads two partitions has both ranges, which meet; whom it took one from follows it.
    view.leaders.insert(PartitionId(1), NodeId(1));
    let lines = text_of(&view, ClusterCommand::Nodes);
    let mut lines = lines.lines();
    assert!(lines.next().is_some_and(|line| line.ends_with(" 7 connected 0-10921")));
    assert_eq!(lines.next().expect("node 2"), format!("{b} 10.0.0.2:6380@7002 slave {a} 0 0 7 connected"));
    assert_eq!(
        ask(&view, ClusterCommand::Replicas, &[&a]),
        Reply::Array(vec![
            Reply::bulk(format!("{b} 10.0.0.2:6380@7002 slave {a} 0 0 7 connected")),
            Reply::bulk(format!("{d} ::1:6382@7004 slave,fail? {a} 0 0 7 disconnected")),
        ])
    );
    for (name, error) in [(&b[..], "ERR The specified node is not a master"), ("abc", "ERR Unknown node abc")]
    {
        assert_eq!(ask(&view, ClusterCommand::Replicas, &[name]), Reply::error_owned(error.to_owned()));
    }
    let reports = |name: &str| ask(&view, ClusterCommand::CountFailureReports, &[name]);
    assert_eq!((reports(&c), reports(&d)), (Reply::Integer(0), Reply::Integer(1)));
    assert!(reports("abc").is_error());
}

#[test]
fn info_tells_slots_without_a_leader() {
    let mut view = view();
    let info = |state: &str, ok: u32, pfail: u32, fail: u32, size: u32| {
        format!(
            "cluster_state:{state}\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:{ok}\r\n\
             cluster_slots_pfail:{pfail}\r\n\
             cluster_slots_fail:{fail}\r\ncluster_known_nodes:4\r\ncluster_size:{size}\r\n\
             cluster_current_epoch:7\r\n\
             cluster_my_epoch:7\r\ncluster_stats_messages_sent:700\r\n\
             cluster_stats_messages_received:600\r\n\
             total_cluster_links_buffer_limit_exceeded:0\r\n"
        )
    };
    let shown = |view: &ClusterView| text_of(view, ClusterCommand::Info);
    assert_eq!(shown(&view), info("fail", 10922, 0, 5462, 3));
    view.leaders.insert(PartitionId(2), NodeId(1));
    assert_eq!(shown(&view), info("ok", 16384, 0, 0, 2));
    view.unreachable = vec![NodeId(2)];
    assert_eq!(shown(&view), info("ok", 10923, 5461, 0, 2));
}

#[test]
fn names_are_forty_digits_and_shards_are_not_nodes() {
    let view = view();
    let name = |command| match ask(&view, command, &[]) {
        Reply::Bulk(name) => String::from_utf8_lossy(&name).into_owned(),
        other => panic!("{other:?}"),
    };
    let (id, shard) = (name(ClusterCommand::MyId), name(ClusterCommand::MyShardId));
    assert_eq!(id, node(1));
    assert!(id != shard && shard.len() == 40 && shard.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let other = ClusterView { me: NodeId(4), ..view.clone() };
    let Reply::Bulk(of_its_primary) = ask(&other, ClusterCommand::MyShardId, &[]) else {
        panic!("a name");
    };
    let primary = ClusterView { me: NodeId(2), ..view.clone() };
    assert_eq!(ask(&primary, ClusterCommand::MyShardId, &[]), Reply::Bulk(of_its_primary));
    assert_eq!(ask(&view, ClusterCommand::KeySlot, &["a"]), Reply::Integer(15495));
    assert_eq!(ask(&view, ClusterCommand::Links, &[]), Reply::Array(Vec::new()));
    assert!(matches!(ask(&view, ClusterCommand::Help, &[]), Reply::Array(lines) if lines.len() > 20));
}

#[test]
fn what_administrators_of_redis_do_is_answered_with_what_to_do() {
    use ClusterCommand as K;
    for (command, hint) in [
        (K::Meet, "add-node"),
        (K::Leave, "remove-node"),
        (K::Failover, "transfer-leader"),
        (K::Replicate, "add-node"),
        (K::PlaceSlots, "status"),
        (K::KeepMap, "status"),
    ] {
        match ask(&view(), command, &["x", "1"]) {
            Reply::Error(text) => {
                assert!(text.starts_with("ERR ") && text.contains(&format!("ordo admin {hint}")), "{text}")
            }
            other => panic!("{command:?}: {other:?}"),
        }
    }
}

/// A store with 3000 keys in each of two slots, 100 of the first's expired, and a key of the system in the
/// first.
fn store() -> Partition<()> {
    let store: Partition<()> = Partition::new();
    let load = |name: String, expires_at_ms: u64| {
        store.load(Image {
            key: Key::from(name.as_str()),
            version: Position(1),
            entry: Some(Entry { expires_at_ms, ..Entry::new("v") }),
        });
    };
    for number in 0..3000 {
        load(format!("{{t}}{number}"), if number < 100 { 500 } else { 0 });
        load(format!("{{u}}{number}"), 0);
    }
    store.load(Image { key: Key::system(b"{t}"), version: Position(1), entry: Some(Entry::new("v")) });
    store.loaded(Position(1), 1000, &[]);
    store
}

#[test]
fn the_keys_of_a_slot_are_counted_and_listed() {
    let (view, store) = (view(), store());
    let slot = Key::from("t").slot().to_string();
    let ask = |command, words: &[&str]| {
        let args: Vec<Blob> = words.iter().map(|&word| Blob::from(word)).collect();
        reply(&view, command, &args, |_| Some(&store as &dyn View))
    };
    assert_ne!(Key::from("t").slot(), Key::from("u").slot());
    let count = |slot: &str| ask(ClusterCommand::CountKeysInSlot, &[slot]);
    assert_eq!(count(&slot), Reply::Integer(2900), "without expired ones");
    for (slot, error) in [
        ("x", "ERR value is not an integer or out of range"),
        ("-1", "ERR Invalid slot"),
        ("16384", "ERR Invalid slot"),
    ] {
        assert_eq!(count(slot), Reply::error_owned(error.to_owned()));
    }
    let keys = |slot: &str, count: &str| ask(ClusterCommand::GetKeysInSlot, &[slot, count]);
    for (count, found) in [("0", 0), ("7", 7), ("2899", 2899), ("9999", 2900)] {
        let Reply::Array(keys) = keys(&slot, count) else {
            panic!("keys");
        };
        assert_eq!(keys.len(), found);
        assert!(keys.iter().all(|key| matches!(key, Reply::Bulk(key) if key.starts_with(b"{t}"))));
    }
    for (slot, count, error) in [
        ("x", "1", "ERR value is not an integer or out of range"),
        ("0", "x", "ERR value is not an integer or out of range"),
        ("0", "-1", "ERR Invalid slot or number of keys"),
        ("16384", "1", "ERR Invalid slot or number of keys"),
    ] {
        assert_eq!(keys(slot, count), Reply::error_owned(error.to_owned()));
    }
    let elsewhere = |command, words: &[&str]| self::ask(&view, command, words);
    assert_eq!(elsewhere(ClusterCommand::CountKeysInSlot, &[&slot]), Reply::Integer(0));
    assert_eq!(elsewhere(ClusterCommand::GetKeysInSlot, &[&slot, "1"]), Reply::Array(Vec::new()));
}

#[test]
fn changes_are_parsed_or_refused() {
    use OrdoClusterCommand as O;
    let parse = |command, line: &str| {
        let args: Vec<Blob> = line.split(' ').map(Blob::from).collect();
        parse_change(command, &args)
    };
    assert_eq!(
        parse(O::AddNode, "e zone-1 10.0.0.5:7001 [::1]:6379"),
        Ok(ClusterChange::AddNode {
            name: "e".to_owned(),
            zone: "zone-1".to_owned(),
            peer_address: "10.0.0.5:7001".to_owned(),
            client_address: "[::1]:6379".to_owned(),
        })
    );
    assert_eq!(
        parse(O::Place, "2 4 0 1"),
        Ok(ClusterChange::PlaceReplicas {
            places: vec![(PartitionId(2), NodeId(4)), (PartitionId(0), NodeId(1))],
        })
    );
    assert_eq!(parse(O::Place, "2 4 0"), Err(errors::SYNTAX));
    assert_eq!(parse(O::RemoveNode, "3"), Ok(ClusterChange::RemoveNode { node: NodeId(3) }));
    assert_eq!(
        parse(O::Transfer, "0 2"),
        Ok(ClusterChange::TransferLeader { partition: PartitionId(0), to: NodeId(2) })
    );
    let long = "n".repeat(65);
    let names = "1 to 64 letters, digits, '-', '_' or '.'";
    let address = "a host and a port such as 10.0.0.4:7001 for clients and 10.0.0.4:17001 for peers";
    let shown = "a number that 'ordo admin status' shows";
    for (command, line, error) in [
        (O::AddNode, "e/ x p:1 c:1", format!("node's name must be {names}, not 'e/'")),
        (O::AddNode, &format!("{long} x p:1 c:1"), format!("node's name must be {names}, not '{long}'")),
        (O::AddNode, "e  p:1 c:1", format!("zone must be {names}, not ''")),
        (O::AddNode, "e x p c:1", format!("peer address must be {address}, not 'p'")),
        (O::AddNode, "e x p:1 c:0", format!("client address must be {address}, not 'c:0'")),
        (O::AddNode, "e x p:1 :1", format!("client address must be {address}, not ':1'")),
        (O::AddNode, "e x p:1 c:65536", format!("client address must be {address}, not 'c:65536'")),
        (
            O::AddNode,
            "12 x p:1 c:1",
            "node's name '12': add a letter, or `ordo admin` would take it for a number that the cluster \
             gave"
                .to_owned(),
        ),
        (
            O::AddNode,
            "e x p:1 0.0.0.0:1",
            "client address '0.0.0.0:1': others connect to this address, so it must be one of the node's \
             own (what it listens on can be set apart, with --bind)"
                .to_owned(),
        ),
        (O::RemoveNode, "b", format!("node must be {shown}, not 'b'")),
        (O::RemoveNode, "65536", format!("node must be {shown}, not '65536'")),
        (O::Transfer, "-1 2", format!("partition must be {shown}, not '-1'")),
    ] {
        assert_eq!(parse(command, line), Err(Reply::error_owned(format!("ERR the {error}"))));
    }
}

#[test]
fn the_status_is_json_that_reads_back() {
    let view = view();
    let Reply::Bulk(json) = status(&*view.status) else {
        panic!("a text");
    };
    let back: crate::cluster::ClusterStatus = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(back, *view.status);
}

#[test]
fn an_outcome_becomes_a_reply() {
    assert_eq!(changed(Ok("OK".to_owned())), Reply::OK);
    assert_eq!(changed(Err("no".to_owned())), Reply::error("ERR no"));
}
