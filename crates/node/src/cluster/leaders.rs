//! Who should lead which group, and who does.
//!
//! Leaders are spread over the zones
//! ([`PartitionMap::preferred_leader`](order::PartitionMap::preferred_leader)), or all in one zone, if the
//! description says so: a leader that is not the preferred one hands over to it as soon as it can take over.
//! An operator's wish counts more, for [`TRANSFER_KEPT_MS`]. It is no part of the order, because it is worth
//! no agreement: the leader that takes it tells the other replicas, and each counts the time by its own
//! ticks. A replica that was not told, because it was down, would hand over to the preferred node once more;
//! so whoever hands over for the sake of a wish tells it along.
//!
//! ```text
//!             a group's replica here hears of a leader, or one that was taken for it names another
//!   nobody ───────────────────────────────────────────────────────────────────────────────────► somebody
//!      ▲                                                                                            │
//!      └───────────────── the replica hears nothing; the one that is asked knows nobody ────────────┘
//! ```

use std::collections::BTreeMap;
use txn::{NodeId, PartitionId};

/// For so long a group stays with the node to which an operator has handed it, if the leaders are spread
/// otherwise.
pub const TRANSFER_KEPT_MS: u64 = 600_000;
/// So often within a tick this node follows those who say that another node leads a group. Then it waits for
/// better news.
const REDIRECTS_MAX: u32 = 4;

/// A group that is to be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handover {
    pub partition: PartitionId,
    pub to: NodeId,
    /// For how many ticks more an operator wants it so, if one does: that is told along.
    pub wished_ticks: Option<u64>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    /// Who leads each group, and in which term, as far as this node knows.
    known: BTreeMap<PartitionId, (NodeId, u64)>,
    /// Whom an operator wants to lead, and up to which tick.
    wishes: BTreeMap<PartitionId, (NodeId, u64)>,
    /// Some group has another leader than when this was asked for last.
    changed: bool,
    /// How often nodes have named others as a group's leader within a tick: they may name each other.
    redirected: BTreeMap<PartitionId, (u64, u32)>,
}

impl Leaders {
    /// Who leads a group, and in which term, as far as this node knows.
    pub fn of(&self, partition: PartitionId) -> Option<(NodeId, u64)> {
        self.known.get(&partition).copied()
    }

    /// The groups whose leaders are known, with these.
    pub fn all(&self) -> impl Iterator<Item = (PartitionId, NodeId)> + '_ {
        self.known.iter().map(|(&partition, &(leader, _))| (partition, leader))
    }

    /// Notes who leads a group. Whether that is news.
    pub fn learn(&mut self, partition: PartitionId, leader: Option<(NodeId, u64)>) -> bool {
        let before = match leader {
            Some(leader) => self.known.insert(partition, leader),
            None => self.known.remove(&partition),
        };
        let node = |leader: Option<(NodeId, u64)>| leader.map(|(node, _)| node);
        self.changed |= node(before) != node(leader);
        before != leader
    }

    /// Whether some group has another leader than when this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether another node is to be asked at once, since a node that was taken for a group's leader names
    /// it.
    pub fn redirects(&mut self, partition: PartitionId, now_tick: u64) -> bool {
        let (tick, times) = self.redirected.entry(partition).or_default();
        if *tick != now_tick {
            (*tick, *times) = (now_tick, 0);
        }
        *times += 1;
        *times <= REDIRECTS_MAX
    }

    /// An operator wants a node to lead a group, up to a tick.
    pub fn wish(&mut self, partition: PartitionId, to: NodeId, until_tick: u64) {
        self.wishes.insert(partition, (to, until_tick));
    }

    /// Which of the groups that `me` leads are to be handed over now: to whom an operator wants, or else to
    /// the preferred node, once that can take over.
    pub fn handovers(
        &self,
        me: NodeId,
        led: impl Iterator<Item = PartitionId>,
        now_tick: u64,
        group: impl Fn(PartitionId) -> Placement,
        may_take_over: impl Fn(PartitionId, NodeId) -> bool,
    ) -> Vec<Handover> {
        let handover = |partition| {
            let Placement { replicas, preferred } = group(partition);
            let wish = self.wishes.get(&partition).copied();
            let wish = wish.filter(|(to, until_tick)| now_tick < *until_tick && replicas.contains(to));
            let to = wish.map(|(to, _)| to).or(preferred)?;
            let wished_ticks = wish.map(|(_, until_tick)| until_tick - now_tick);
            let is_due = to != me && may_take_over(partition, to);
            is_due.then_some(Handover { partition, to, wished_ticks })
        };
        led.filter_map(handover).collect()
    }
}

/// Where a group is.
pub(super) struct Placement {
    pub replicas: Vec<NodeId>,
    /// Who should lead it if no operator wants it otherwise.
    pub preferred: Option<NodeId>,
}

#[cfg(test)]
mod tests;
