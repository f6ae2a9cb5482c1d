//! The cluster, as Redis's clients ask for it, and as Ordo's operators do.

use super::ConnectionCommand as C;
use super::*;
use crate::table::ClusterCommand as K;
use crate::table::OrdoClusterCommand as O;

const fn cluster(name: &'static str, arity: i16, command: K) -> Command {
    Command::new(name, arity, Group::Cluster, Run::Connection(C::Cluster(command))).flags(Flags::STALE)
}
/// What Redis's administrators do by hand.
const fn managed(name: &'static str, arity: i16, command: K) -> Command {
    cluster(name, arity, command).admin().flags(Flags::NO_ASYNC_LOADING)
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

const CLUSTER: &[Command] = &[
    managed("cluster|addslots", -3, K::PlaceSlots),
    managed("cluster|addslotsrange", -4, K::PlaceSlots),
    managed("cluster|bumpepoch", 2, K::KeepMap),
    cluster("cluster|count-failure-reports", 3, K::CountFailureReports).admin(),
    cluster("cluster|countkeysinslot", 3, K::CountKeysInSlot),
    managed("cluster|delslots", -3, K::PlaceSlots),
    managed("cluster|delslotsrange", -4, K::PlaceSlots),
    managed("cluster|failover", -2, K::Failover),
    managed("cluster|flushslots", 2, K::PlaceSlots),
    managed("cluster|forget", 3, K::Leave),
    cluster("cluster|getkeysinslot", 4, K::GetKeysInSlot),
    cluster("cluster|help", 2, K::Help).flags(Flags::LOADING),
    cluster("cluster|info", 2, K::Info),
    cluster("cluster|keyslot", 3, K::KeySlot),
    cluster("cluster|links", 2, K::Links),
    managed("cluster|meet", -4, K::Meet),
    cluster("cluster|myid", 2, K::MyId),
    cluster("cluster|myshardid", 2, K::MyShardId),
    cluster("cluster|nodes", 2, K::Nodes),
    cluster("cluster|replicas", 3, K::Replicas).admin(),
    managed("cluster|replicate", 3, K::Replicate),
    cluster("cluster|reset", -2, K::Leave).admin().noscript(),
    managed("cluster|saveconfig", 2, K::KeepMap),
    managed("cluster|set-config-epoch", 3, K::KeepMap),
    managed("cluster|setslot", -4, K::PlaceSlots),
    cluster("cluster|shards", 2, K::Shards),
    cluster("cluster|slaves", 3, K::Replicas).admin(),
    cluster("cluster|slots", 2, K::Slots),
];

const ORDO_CLUSTER: &[Command] = &[
    change("ordo.cluster|addnode", 6, O::AddNode),
    change("ordo.cluster|fence", -3, O::Fence),
    Command::new("ordo.cluster|help", 2, Group::Cluster, help!("ORDO.CLUSTER")).always(),
    ordo("ordo.cluster|map", -2, O::Map),
    change("ordo.cluster|moveslots", 5, O::MoveSlots),
    change("ordo.cluster|place", -4, O::Place),
    change("ordo.cluster|removenode", 3, O::RemoveNode),
    change("ordo.cluster|slotkeys", 2, O::SlotKeys),
    ordo("ordo.cluster|status", 2, O::Status),
    change("ordo.cluster|transfer", 4, O::Transfer),
];

pub(super) const COMMANDS: &[Command] = &[
    mode("asking", C::Asking),
    Command::new("cluster", -2, Group::Cluster, Run::Container(CLUSTER)),
    Command::new("ordo.cluster", -2, Group::Cluster, Run::Container(ORDO_CLUSTER)),
    mode("readonly", C::ReadOnly).always(),
    mode("readwrite", C::ReadWrite).always(),
];
