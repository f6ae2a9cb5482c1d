//! The cluster, as Redis's clients ask for it, and as Ordo's operators do.

use super::ConnectionCommand as C;
use super::*;
use crate::commands::pure;
use crate::table::ClusterCommand as K;
use crate::table::OrdoClusterCommand as O;

const fn cluster(name: &'static str, arity: i16, command: K) -> Command {
    Command::new(name, arity, Group::Cluster, Run::Connection(C::Cluster(command))).flags(Flags::STALE)
}
/// What Redis's administrators do by hand.
const fn managed(name: &'static str, arity: i16, command: K) -> Command {
    cluster(name, arity, command).admin().flags(Flags::NO_ASYNC_LOADING).about(
        "3.0.0",
        "O(1)",
        "Refused, with what to do instead.",
    )
}
const fn mode(name: &'static str, command: ConnectionCommand) -> Command {
    Command::new(name, 1, Group::Cluster, Run::Connection(command)).fast().categories(&["connection"])
}
const fn ordo(name: &'static str, arity: i16, command: O) -> Command {
    Command::new(name, arity, Group::Cluster, Run::Connection(C::OrdoCluster(command)))
        .admin()
        .noscript()
        .flags(Flags::STALE)
}

/// A change of the cluster takes its time: no block waits for it.
const fn change(name: &'static str, arity: i16, command: O) -> Command {
    ordo(name, arity, command).flags(Flags::NO_MULTI)
}

const SLOT_KEYS: &str = "O(N) in the number of keys of the node";

const CLUSTER: &[Command] = &[
    managed("cluster|addslots", -3, K::PlaceSlots),
    managed("cluster|addslotsrange", -4, K::PlaceSlots),
    managed("cluster|bumpepoch", 2, K::KeepMap),
    cluster("cluster|count-failure-reports", 3, K::CountFailureReports).admin().about(
        "3.0.0",
        "O(1)",
        "Tells whether this node misses another.",
    ),
    cluster("cluster|countkeysinslot", 3, K::CountKeysInSlot).about(
        "3.0.0",
        SLOT_KEYS,
        "Counts the keys of a slot on this node.",
    ),
    managed("cluster|delslots", -3, K::PlaceSlots),
    managed("cluster|delslotsrange", -4, K::PlaceSlots),
    managed("cluster|failover", -2, K::Failover),
    managed("cluster|flushslots", 2, K::PlaceSlots),
    managed("cluster|forget", 3, K::Leave),
    cluster("cluster|getkeysinslot", 4, K::GetKeysInSlot).about(
        "3.0.0",
        SLOT_KEYS,
        "Replies keys of a slot on this node.",
    ),
    cluster("cluster|help", 2, K::Help).flags(Flags::LOADING).about("5.0.0", "O(1)", "Explains CLUSTER."),
    cluster("cluster|info", 2, K::Info).about("3.0.0", "O(1)", "Tells how the cluster is."),
    cluster("cluster|keyslot", 3, K::KeySlot).about(
        "3.0.0",
        "O(N) in the length of the key",
        "Replies the slot of a key.",
    ),
    cluster("cluster|links", 2, K::Links).about(
        "7.0.0",
        "O(1)",
        "Replies no link: nodes have no bus of Redis's kind.",
    ),
    managed("cluster|meet", -4, K::Meet),
    cluster("cluster|myid", 2, K::MyId).about("3.0.0", "O(1)", "Replies the name of this node."),
    cluster("cluster|myshardid", 2, K::MyShardId).about(
        "7.2.0",
        "O(1)",
        "Replies the name of this node's first shard.",
    ),
    cluster("cluster|nodes", 2, K::Nodes).about("3.0.0", "O(N) in the number of nodes", "Lists the nodes."),
    cluster("cluster|replicas", 3, K::Replicas).admin().about(
        "5.0.0",
        "O(N) in the number of nodes",
        "Lists the replicas of a node.",
    ),
    managed("cluster|replicate", 3, K::Replicate),
    cluster("cluster|reset", -2, K::Leave).admin().noscript().about(
        "3.0.0",
        "O(1)",
        "Refused, with what to do instead.",
    ),
    managed("cluster|saveconfig", 2, K::KeepMap),
    managed("cluster|set-config-epoch", 3, K::KeepMap),
    managed("cluster|setslot", -4, K::PlaceSlots),
    cluster("cluster|shards", 2, K::Shards).about(
        "7.0.0",
        "O(N) in the number of nodes",
        "Lists the shards with their slots and nodes.",
    ),
    cluster("cluster|slaves", 3, K::Replicas).admin().about(
        "3.0.0",
        "O(N) in the number of nodes",
        "Lists the replicas of a node.",
    ),
    cluster("cluster|slots", 2, K::Slots).about(
        "3.0.0",
        "O(N) in the number of nodes",
        "Lists the ranges of slots with their nodes.",
    ),
];

const ORDO_CLUSTER: &[Command] = &[
    change("ordo.cluster|addnode", 6, O::AddNode).about("0.1.0", "O(1)", "Lets a node join the cluster."),
    Command::new("ordo.cluster|help", 2, Group::Cluster, Run::Pure(ordo_help)).always().about(
        "0.1.0",
        "O(1)",
        "Explains ORDO.CLUSTER.",
    ),
    ordo("ordo.cluster|map", -2, O::Map).about(
        "0.1.0",
        "O(N) in the number of nodes and partitions",
        "Replies the map in Ordo's own bytes, for a node that joins.",
    ),
    change("ordo.cluster|moveslots", 5, O::MoveSlots).about(
        "0.1.0",
        "O(N) in the number of keys of the partition that has the slots",
        "Moves slots with their keys to another partition.",
    ),
    change("ordo.cluster|place", -4, O::Place).about(
        "0.1.0",
        "O(N) in the size of the partitions",
        "Moves replicas to other nodes of their zones.",
    ),
    change("ordo.cluster|removenode", 3, O::RemoveNode).about(
        "0.1.0",
        "O(N) in the size of what the node keeps",
        "Takes a node out of the cluster for good.",
    ),
    change("ordo.cluster|slotkeys", 2, O::SlotKeys).about(
        "0.1.0",
        "O(N) in the number of keys of the node",
        "Counts the keys of each slot that this node keeps, as JSON.",
    ),
    ordo("ordo.cluster|status", 2, O::Status).about(
        "0.1.0",
        "O(N) in the number of nodes and partitions",
        "Replies all about the cluster, as JSON.",
    ),
    change("ordo.cluster|transfer", 4, O::Transfer).about(
        "0.1.0",
        "O(1)",
        "Lets another node lead a partition.",
    ),
];

fn ordo_help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "ORDO.CLUSTER",
        &[
            "STATUS",
            "    The nodes, and the partitions with their replicas and leaders, as JSON.",
            "ADDNODE <name> <zone> <peer-host:port> <client-host:port>",
            "    Lets a node join: start it afterwards.",
            "MOVESLOTS <first> <last> <partition>",
            "    Moves slots of one partition, with their keys, to another one.",
            "PLACE <partition> <node-id> [<partition> <node-id> ...]",
            "    Moves the replica that the node's zone has of the partition to the node.",
            "REMOVENODE <node-id>",
            "    Moves what a node keeps to the other nodes of its zone, and forgets it for good.",
            "SLOTKEYS",
            "    How many keys each slot has, of the partitions that this node keeps, as JSON.",
            "TRANSFER <partition> <node-id>",
            "    Lets the node, which must keep a replica, lead the partition.",
        ],
    )
}

pub(super) const COMMANDS: &[Command] = &[
    mode("asking", C::Asking).about("3.0.0", "O(1)", "Nothing: every node takes every command."),
    Command::new("cluster", -2, Group::Cluster, Run::Container(CLUSTER)).about(
        "3.0.0",
        "",
        "Tells where keys are.",
    ),
    Command::new("ordo.cluster", -2, Group::Cluster, Run::Container(ORDO_CLUSTER)).about(
        "0.1.0",
        "",
        "Tells about the cluster, and changes it.",
    ),
    mode("readonly", C::ReadOnly).always().about(
        "3.0.0",
        "O(1)",
        "Lets the connection's reads be a little old.",
    ),
    mode("readwrite", C::ReadWrite).always().about(
        "3.0.0",
        "O(1)",
        "Lets the connection read what is newest again.",
    ),
];
