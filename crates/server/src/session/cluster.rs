//! CLUSTER, READONLY and their relatives, and ORDO.CLUSTER.
//!
//! Every node takes every command, so what CLUSTER tells is where commands are answered soonest, never where
//! they must go. What Redis's administrators do with CLUSTER is done by `ordo admin` here, through
//! ORDO.CLUSTER.

mod render;
mod slot_keys;
#[cfg(test)]
mod tests;
pub(super) mod topology;

use super::{Hold, Session, ThreadContext};
use crate::cluster::config;
use crate::cluster::identity::Maps;
use crate::cluster::{ChangeOutcome, ClusterChange, ClusterView};
use redis_surface::table::{self, ClusterCommand, OrdoClusterCommand};
use redis_surface::{errors, parse};
use serde::Serialize;
use std::sync::atomic::Ordering;
use store::View;
use txn::key::SLOTS;
use txn::{Args, Blob, Key, NodeId, PartitionId, Reply, SlotRange};

const DISABLED: Reply = Reply::error("ERR This instance has cluster support disabled");
const NO_MEMBER: Reply =
    Reply::error("ERR this node runs by itself: ORDO.CLUSTER is for the nodes of a cluster");
const NEVER_CHANGES: Reply = Reply::error(
    "ERR the nodes, validators and sites of this cluster never change: 'ordo admin status' tells of them",
);
/// The longest name of a node or zone, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Why ORDO.CLUSTER is refused where requests are not ordered by a cluster.
fn no_member(thread: &ThreadContext<'_>) -> Reply {
    match thread.shared.runtime.is_certified() {
        true => NEVER_CHANGES,
        false => NO_MEMBER,
    }
}

impl Session {
    /// CLUSTER.
    pub(super) fn cluster(thread: &ThreadContext<'_>, command: ClusterCommand, argv: &Args) -> Reply {
        let runtime = &thread.shared.runtime;
        match runtime.cluster_view() {
            None if runtime.is_certified() && command == ClusterCommand::KeySlot => {
                Reply::Integer(i64::from(Key::new(&argv[2]).slot()))
            }
            None => DISABLED,
            Some(view) => reply(&view, command, &argv[2..], |slot| runtime.store_of_slot(slot)),
        }
    }

    /// READONLY and READWRITE.
    pub(super) fn set_readonly(&mut self, thread: &ThreadContext<'_>, readonly: bool) -> Reply {
        let runtime = &thread.shared.runtime;
        if runtime.cluster_view().is_none() && !runtime.is_certified() {
            return DISABLED;
        }
        self.note_readonly(readonly);
        Reply::OK
    }

    pub(super) fn note_readonly(&mut self, readonly: bool) {
        self.readonly = readonly;
        self.client.readonly.store(readonly, Ordering::Relaxed);
    }

    /// ASKING: slots do not move between nodes while clients look, so there is nothing to ask for.
    pub(super) fn asking(thread: &ThreadContext<'_>) -> Reply {
        match thread.shared.runtime.cluster_view() {
            None => DISABLED,
            Some(_) => Reply::OK,
        }
    }

    /// ORDO.CLUSTER STATUS.
    pub(super) fn cluster_status(thread: &ThreadContext<'_>) -> Reply {
        if let Some(certified) = thread.shared.runtime.certified_status() {
            return self::status(&certified.told());
        }
        let Some(view) = thread.shared.runtime.cluster_view() else {
            return no_member(thread);
        };
        let mut status = (*view.status).clone();
        for node in &mut status.nodes {
            node.waiting = node.boot == 0 && thread.shared.joiners.waits(&node.name, thread.now_ms);
        }
        self::status(&status)
    }

    /// ORDO.CLUSTER MAP: the first map and the newest, for a node that joins. It may say its name.
    pub(super) fn cluster_map(thread: &ThreadContext<'_>, argv: &Args) -> Reply {
        let Some(view) = thread.shared.runtime.cluster_view() else {
            return no_member(thread);
        };
        let name = argv.get(2).and_then(|word| std::str::from_utf8(word).ok());
        let mut known = view.map.nodes.values();
        if let Some(entry) = known.find(|entry| Some(entry.name.as_str()) == name) {
            thread.shared.joiners.heard(&entry.name, thread.now_ms);
        }
        match serde_json::to_vec(
            &Maps::of(&view.first_map, &view.map).with_skips(thread.shared.runtime.skips()),
        ) {
            Ok(json) => Reply::bulk(json),
            Err(error) => Reply::error_owned(format!(
                "ERR the cluster's map can't be written as JSON ({error}): a bug in the server, please \
                 report it"
            )),
        }
    }

    /// ORDO.CLUSTER ADDNODE, MOVESLOTS, PLACE, REMOVENODE and TRANSFER; and SLOTKEYS, which takes as long.
    /// `None` if the change was started: it is answered once it ended.
    pub(super) fn change_cluster(
        &mut self,
        thread: &ThreadContext<'_>,
        command: OrdoClusterCommand,
        argv: &Args,
    ) -> Option<Reply> {
        if command == OrdoClusterCommand::Fence {
            return Some(fence(thread, &argv[2..]));
        }
        if command == OrdoClusterCommand::SlotKeys {
            let Some(ticket) = thread.shared.runtime.slot_keys() else {
                return Some(no_member(thread));
            };
            self.hold = Some(Hold::Change(ticket));
            return None;
        }
        let change = match parse_change(command, &argv[2..]) {
            Ok(change) => change,
            Err(error) => return Some(error),
        };
        let runtime = &thread.shared.runtime;
        if runtime.cluster_view().is_none() {
            return Some(no_member(thread));
        }
        match runtime.cluster_change(change) {
            Ok(ticket) => {
                self.hold = Some(Hold::Change(ticket));
                None
            }
            Err(why) => Some(changed(Err(why))),
        }
    }
}

/// What a change's outcome answers.
pub(super) fn changed(outcome: ChangeOutcome) -> Reply {
    match outcome {
        Ok(done) => Reply::Status(done.into()),
        Err(why) => Reply::error_owned(format!("ERR {why}")),
    }
}

/// ORDO.CLUSTER FENCE: tells that it has begun. The sites agree on the fence meanwhile.
fn fence(thread: &ThreadContext<'_>, words: &[Blob]) -> Reply {
    let is_forced = match words {
        [_] => false,
        [_, force] if force.eq_ignore_ascii_case(b"force") => true,
        _ => return Reply::error("ERR the words are: ORDO.CLUSTER FENCE site [FORCE]"),
    };
    match thread.shared.runtime.fence(&String::from_utf8_lossy(&words[0]), is_forced) {
        Ok(()) => Reply::OK,
        Err(why) => Reply::error_owned(format!("ERR {why}")),
    }
}

/// ORDO.CLUSTER STATUS.
fn status(status: &impl Serialize) -> Reply {
    match serde_json::to_vec(status) {
        Ok(json) => Reply::bulk(json),
        Err(error) => Reply::error_owned(format!(
            "ERR the cluster's status can't be written as JSON ({error}): a bug in the server, please \
             report it"
        )),
    }
}

/// The reply to a subcommand of CLUSTER with the words after its name. `store_of` finds the records of a
/// slot, if this node keeps them.
fn reply<'a>(
    view: &ClusterView,
    command: ClusterCommand,
    args: &[Blob],
    store_of: impl Fn(u16) -> Option<&'a dyn View>,
) -> Reply {
    use ClusterCommand as K;
    let first: &[u8] = args.first().map_or(&[], |word| word.as_bytes());
    match command {
        K::Slots => render::slots(view),
        K::Shards => render::shards(view),
        K::Nodes => render::nodes(view),
        K::Info => render::info(view),
        K::MyId => render::my_id(view),
        K::MyShardId => render::my_shard_id(view),
        K::Replicas => render::replicas(view, first),
        K::CountFailureReports => render::failure_reports(view, first),
        // Redis lists the connections of its bus; nodes of Ordo have none of its kind.
        K::Links => Reply::Array(Vec::new()),
        K::KeySlot => Reply::Integer(i64::from(Key::new(first).slot())),
        K::CountKeysInSlot => match parse::integer(first) {
            None => errors::NOT_AN_INTEGER,
            Some(slot) => match slot_of(slot) {
                None => Reply::error("ERR Invalid slot"),
                Some(slot) => {
                    let count = store_of(slot).map_or(0, |store| slot_keys::count_keys_in_slot(store, slot));
                    Reply::Integer(count.cast_signed())
                }
            },
        },
        K::GetKeysInSlot => {
            let count = args.get(1).and_then(|word| parse::integer(word));
            let (Some(slot), Some(count)) = (parse::integer(first), count) else {
                return errors::NOT_AN_INTEGER;
            };
            let (Some(slot), Ok(count)) = (slot_of(slot), usize::try_from(count)) else {
                return Reply::error("ERR Invalid slot or number of keys");
            };
            let keys = store_of(slot).map_or(Vec::new(), |store| slot_keys::keys_in_slot(store, slot, count));
            Reply::Array(keys.into_iter().map(|key| Reply::Bulk(key.to_blob())).collect())
        }
        K::Help => table::help("CLUSTER"),
        K::Meet => Reply::error("ERR nodes of Ordo do not join by CLUSTER MEET: use 'ordo admin add-node'"),
        K::Leave => Reply::error(
            "ERR nodes of Ordo do not leave by CLUSTER FORGET or RESET: use 'ordo admin remove-node'",
        ),
        K::Failover => Reply::error(
            "ERR a failover needs no command here: leaders that fail are replaced at once; to move one \
             that works, use 'ordo admin transfer-leader'",
        ),
        K::Replicate => Reply::error(
            "ERR every zone has a replica of every partition, which the cluster places by itself: to move \
             replicas to another node, use 'ordo admin add-node' and 'ordo admin remove-node'",
        ),
        K::PlaceSlots => Reply::error(
            "ERR slots are not placed by hand: each belongs to a partition from the start, 'ordo admin \
             status' shows which; 'ordo admin move-slots' and 'ordo admin rebalance' move them, 'ordo \
             admin add-node' and 'ordo admin remove-node' what nodes keep",
        ),
        K::KeepMap => Reply::error(
            "ERR there is nothing to do: the cluster's map and its version are replicated like the data; \
             'ordo admin status' shows them",
        ),
    }
}

fn slot_of(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|&slot| slot < SLOTS)
}

/// The change that the words after the subcommand's name ask for.
fn parse_change(command: OrdoClusterCommand, args: &[Blob]) -> Result<ClusterChange, Reply> {
    use OrdoClusterCommand as O;
    match (command, args) {
        (O::AddNode, [name_word, zone, peer, client]) => {
            let change = ClusterChange::AddNode {
                name: name("node's name", name_word)?,
                zone: name("zone", zone)?,
                peer_address: address("peer", peer)?,
                client_address: address("client", client)?,
            };
            if let ClusterChange::AddNode { name, peer_address, client_address, .. } = &change {
                // What a description refuses could not be written into one.
                let problem = config::node_name_problem(name)
                    .or_else(|| config::address_problem("the peer address", peer_address))
                    .or_else(|| config::address_problem("the client address", client_address));
                if let Some(problem) = problem {
                    return Err(Reply::error_owned(format!("ERR {problem}")));
                }
            }
            Ok(change)
        }
        (O::MoveSlots, [first, last, partition]) => Ok(ClusterChange::MoveSlots {
            slots: SlotRange { first: whole("first slot", first)?, last: whole("last slot", last)? },
            to: PartitionId(whole("partition", partition)?),
        }),
        (O::Place, places) if places.len().is_multiple_of(2) => {
            let place = |pair: &[Blob]| Ok((PartitionId(whole("partition", &pair[0])?), node_id(&pair[1])?));
            let places: Result<_, Reply> = places.chunks(2).map(place).collect();
            Ok(ClusterChange::PlaceReplicas { places: places? })
        }
        (O::RemoveNode, [node]) => Ok(ClusterChange::RemoveNode { node: node_id(node)? }),
        (O::Transfer, [partition, node]) => Ok(ClusterChange::TransferLeader {
            partition: PartitionId(whole("partition", partition)?),
            to: node_id(node)?,
        }),
        _ => Err(errors::SYNTAX),
    }
}

fn invalid(what: &str, word: &[u8], wanted: &str) -> Reply {
    const SHOWN_BYTES: usize = 128;
    let shown = String::from_utf8_lossy(&word[..word.len().min(SHOWN_BYTES)]).into_owned();
    Reply::error_owned(format!("ERR the {what} must be {wanted}, not '{shown}'"))
}

/// A name that is safe in files, in lists and on command lines.
fn name(what: &str, word: &[u8]) -> Result<String, Reply> {
    let fits = (1..=NAME_BYTES_MAX).contains(&word.len())
        && (word.iter()).all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    match std::str::from_utf8(word) {
        Ok(text) if fits => Ok(text.to_owned()),
        _ => Err(invalid(what, word, "1 to 64 letters, digits, '-', '_' or '.'")),
    }
}

/// A host and a port.
fn address(what: &str, word: &[u8]) -> Result<String, Reply> {
    let text = std::str::from_utf8(word).ok().filter(|text| {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let (host, port) = topology::split_address(text);
        visible && !host.is_empty() && port != 0
    });
    text.map(str::to_owned).ok_or_else(|| {
        invalid(
            &format!("{what} address"),
            word,
            "a host and a port such as 10.0.0.4:7001 for clients and 10.0.0.4:17001 for peers",
        )
    })
}

fn node_id(word: &[u8]) -> Result<NodeId, Reply> {
    Ok(NodeId(whole("node", word)?))
}

fn whole(what: &str, word: &[u8]) -> Result<u16, Reply> {
    parse::integer(word)
        .and_then(|number| u16::try_from(number).ok())
        .ok_or_else(|| invalid(what, word, "a number that 'ordo admin status' shows"))
}
