//! What is ordered and not executed here, where a node executes more slowly than the others order.
//!
//! ```text
//!          more than `bytes_max` is not delivered
//!   keeps up ───────────────────────────────────► full: takes no further entries, as far as it follows
//!       ▲                                                         │
//!       └──────── half of that is delivered ──────────────────────┘
//! ```
//!
//! What waits to be delivered waits as bytes, and is read when it is ([`order::merge::Content`]). A node
//! whose backlog is full takes no further entries from leaders: it does not acknowledge them, so others make
//! up the majority, and where too few are left for one, clients wait for it. It is sent what it has not taken
//! when it has room, or fetches a checkpoint if the leader has nothing older any more. Where it leads it
//! proposes nothing but the empty batches that other groups' epochs need, and hands over if that does not
//! pass within [`FULL_MS_MAX`]: clients of its group need not wait for it.
//!
//! The batch of the next epoch to be delivered is always taken, and whatever it takes for its group to agree
//! on it (behind a change of leader, the first entry of the new one): without that nothing of what waits
//! could be delivered, and nothing of what is delivered could become final.
//!
//! Of what is delivered and not executed, the engines hold no more than a part of the bound, beside one
//! epoch.
//!
//! Invariants ([`Backlog::check_invariants`]):
//! 1. What is delivered and not executed is of growing epochs, and its bytes are summed rightly.

use std::collections::{BTreeSet, VecDeque};
use txn::{Epoch, PartitionId, Position};

/// Who leads hands over when it has been full for so long.
const FULL_MS_MAX: u64 = 1_000;
/// Of what may wait, engines are given one part in so many, if that is more than one epoch.
const DELIVERED_PART: u64 = 4;

/// An epoch that is delivered.
#[derive(Clone, Debug)]
struct Delivered {
    epoch: Epoch,
    /// The next position of each local partition behind it.
    next: Vec<Position>,
    bytes: u64,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Backlog {
    bytes_max: u64,
    /// Since when it is full, if it is.
    full_ms: Option<u64>,
    /// Since when batches are refused because of that.
    refused_ms: Option<u64>,
    /// How often that began.
    times: u64,
    /// Groups of which a batch was refused, and none taken since: nobody knows how far they are.
    missed: BTreeSet<PartitionId>,
    delivered: VecDeque<Delivered>,
    delivered_bytes: u64,
}

impl Backlog {
    /// So many bytes of batches may wait to be delivered.
    pub fn new(bytes_max: u64) -> Backlog {
        Backlog {
            bytes_max,
            full_ms: None,
            refused_ms: None,
            times: 0,
            missed: BTreeSet::new(),
            delivered: VecDeque::new(),
            delivered_bytes: 0,
        }
    }

    /// How often batches were refused for a while.
    pub fn times(&self) -> u64 {
        self.times
    }

    /// Whether it is full.
    pub fn is_full(&self) -> bool {
        self.full_ms.is_some()
    }

    /// Whether it has been full for so long that somebody else should lead.
    pub fn is_slow(&self, now_ms: u64) -> bool {
        self.full_ms.is_some_and(|full_ms| now_ms >= full_ms + FULL_MS_MAX)
    }

    /// So many bytes are not delivered now. For how long batches were refused, if they are taken again.
    pub fn look(&mut self, undelivered_bytes: u64, now_ms: u64) -> Option<u64> {
        let is_full = match self.is_full() {
            true => undelivered_bytes > self.bytes_max / 2,
            false => undelivered_bytes > self.bytes_max,
        };
        self.full_ms = is_full.then(|| self.full_ms.unwrap_or(now_ms));
        let since_ms = self.refused_ms.take_if(|_| !is_full)?;
        Some(now_ms.saturating_sub(since_ms))
    }

    /// Whether no further batch is taken of a group that has agreed on what is held of it up to an epoch,
    /// where all are delivered up to another one.
    pub fn refuses(&self, agreed: Epoch, delivered: Epoch) -> bool {
        self.is_full() && agreed > delivered
    }

    /// Whether a batch was refused of a group, and none is taken since.
    pub fn has_missed(&self) -> bool {
        !self.missed.is_empty()
    }

    /// A batch of a group is taken.
    pub fn took(&mut self, group: PartitionId) {
        self.missed.remove(&group);
    }

    /// A batch of a group was refused. Whether it is the first one in a while.
    pub fn refused(&mut self, group: PartitionId, now_ms: u64) -> bool {
        self.missed.insert(group);
        let is_first = self.refused_ms.is_none();
        self.refused_ms.get_or_insert(now_ms);
        self.times += u64::from(is_first);
        is_first
    }

    /// Whether the engines may be given another epoch.
    pub fn has_room(&self) -> bool {
        self.delivered.is_empty() || self.delivered_bytes <= self.bytes_max / DELIVERED_PART
    }

    /// The engines are given an epoch.
    pub fn deliver(&mut self, epoch: Epoch, next: Vec<Position>, bytes: u64) {
        self.delivered_bytes += bytes;
        self.delivered.push_back(Delivered { epoch, next, bytes });
    }

    /// Epochs were taken back from this one on.
    pub fn retract(&mut self, from: Epoch) {
        while let Some(retracted) = self.delivered.pop_back_if(|delivered| delivered.epoch >= from) {
            self.delivered_bytes -= retracted.bytes;
        }
    }

    /// The engines have final-committed up to these positions, and this epoch is confirmed: up to which epoch
    /// all of them have final-committed everything, if that is news.
    pub fn executed(&mut self, finals: &[Position], confirmed: Epoch) -> Option<Epoch> {
        let mut settled = None;
        while let Some(executed) = self.delivered.pop_front_if(|delivered| {
            let mut both = finals.iter().zip(&delivered.next);
            delivered.epoch <= confirmed && both.all(|(reached, next)| *reached >= next.prev())
        }) {
            self.delivered_bytes -= executed.bytes;
            settled = Some(executed.epoch);
        }
        settled
    }

    /// The module's invariants.
    pub fn check_invariants(&self) {
        debug_assert!(self.delivered.iter().map(|delivered| delivered.epoch).is_sorted());
        let bytes = self.delivered.iter().map(|delivered| delivered.bytes);
        debug_assert_eq!(self.delivered_bytes, bytes.sum::<u64>());
    }
}

#[cfg(test)]
mod tests;
