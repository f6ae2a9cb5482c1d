//! The merged order of all partitions, and the oracles over it, whichever nodes tell of it.
//!
//! 1. *agreement*: an epoch has the same digest (and so, because digests are chained, the same batches), the
//!    same time, the same map behind it, and the same last position of each partition, at every node that has
//!    confirmed it.
//! 2. *time*: it never goes back from epoch to epoch. It is not ahead of true time, whatever anybody does to
//!    clocks: so no time to live is shorter than it says. Only where so many nodes start at once that nobody
//!    may know the time, it may be what a majority's clocks show. Once the world has healed it goes on as
//!    true time does.
//! 3. *real time*: a command that was sent after another was answered, in whichever partitions, lies in a
//!    later epoch, or sees that epoch whole if it is a read.
//! 4. *connection order*: the requests of a connection have places in the order in which they were sent.

use super::watch::PartitionWatch;
use crate::watch::real_time::Place as Decided;
use crate::world::{EPOCH_MS, Violation};
use order::{PartitionMap, merge::EpochEnd};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use txn::{Epoch, PartitionId, Position, RequestId, SessionId};

/// What a node has heard of another one's clock is not older than this.
const HEARD_MS: u64 = 5_000;
/// Steady clocks, and the slew, are off by one part in so many, at most.
const DRIFT_PER: u64 = 800;
/// What rounding to milliseconds makes of times.
const ROUNDED_MS: i64 = 5;
/// How long it may take, in a healed world, until an epoch that was begun is confirmed.
const AGREED_MS: u64 = 8_000;

/// What is known of the end of an epoch.
struct End {
    time_ms: u64,
    digest: u64,
    map: Arc<PartitionMap>,
    last: BTreeMap<PartitionId, Position>,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Epochs {
    /// Those after which a node has stood still for a moment.
    ends: BTreeMap<Epoch, End>,
    /// A majority of a group.
    majority: usize,
    /// How far an epoch's time may be ahead of true time.
    ahead_ms_max: i64,
    /// How far a majority's clocks were ahead of true time lately, and when.
    clocks_ahead: VecDeque<(u64, i64)>,
    /// The first epoch that was confirmed in a healed world: when, and its time.
    healed: Option<(u64, u64)>,
    /// The newest epoch of what was answered.
    reached: Epoch,
    /// Where each connection's requests are, at each of their partitions.
    sessions: BTreeMap<SessionId, BTreeMap<Numbered, Place>>,
}

/// A request of a connection, by its sequence number and attempt, at a partition.
type Numbered = (u64, u32, PartitionId);

/// More than any partition's number.
const PARTITIONS_MAX: u16 = u16::MAX;

/// Of a request in the order.
type Place = (Epoch, PartitionId, Position);

impl Epochs {
    /// Of a cluster whose groups have a replica in each of so many zones.
    pub fn new(zones: u16) -> Epochs {
        Epochs { majority: usize::from(zones / 2 + 1), ..Epochs::default() }
    }

    /// How far all clocks are ahead of true time, and how many nodes that run do not know the epoch time.
    pub fn looked(&mut self, true_ms: u64, mut clocks_ahead_ms: Vec<i64>, unset: usize) {
        clocks_ahead_ms.sort_unstable_by(|a, b| b.cmp(a));
        let reached_ms = clocks_ahead_ms.get(self.majority.saturating_sub(1)).copied();
        self.clocks_ahead.push_back((true_ms, reached_ms.unwrap_or(0)));
        while self.clocks_ahead.front().is_some_and(|&(at_ms, _)| at_ms + HEARD_MS < true_ms) {
            self.clocks_ahead.pop_front();
        }
        if unset >= self.majority {
            let lately = self.clocks_ahead.iter().map(|&(_, ahead_ms)| ahead_ms).max();
            self.ahead_ms_max = self.ahead_ms_max.max(lately.unwrap_or(0));
        }
    }

    fn judge_time(&mut self, end: &EpochEnd, true_ms: u64, is_healed: bool) -> Result<(), Violation> {
        let since_ms = true_ms - EPOCH_MS;
        let drifted_ms = (since_ms / DRIFT_PER).cast_signed();
        let ahead_ms = end.time_ms.cast_signed() - true_ms.cast_signed();
        if ahead_ms > self.ahead_ms_max + drifted_ms + ROUNDED_MS {
            let text = format!(
                "{:?} is at {} ms, which is {ahead_ms} ms ahead of true time: times to live end early",
                end.epoch, end.time_ms
            );
            return Err(Violation::new("time", text));
        }
        if is_healed {
            let (since_ms, from_ms) = *self.healed.get_or_insert((true_ms, end.time_ms));
            let passed_ms = true_ms - since_ms;
            let least_ms = passed_ms.saturating_sub(passed_ms / DRIFT_PER + AGREED_MS);
            if end.time_ms < from_ms + least_ms {
                let text = format!(
                    "{:?} is at {} ms, {passed_ms} ms after an epoch at {from_ms} ms: time stands still",
                    end.epoch, end.time_ms
                );
                return Err(Violation::new("time", text));
            }
        }
        Ok(())
    }

    /// A node that keeps these partitions has confirmed an epoch, and those before it.
    pub fn confirmed(
        &mut self,
        end: &EpochEnd,
        local: impl Iterator<Item = PartitionId>,
        true_ms: u64,
        is_healed: bool,
    ) -> Result<(), Violation> {
        let epoch = end.epoch;
        if self.ends.keys().next_back().is_none_or(|&newest| newest < epoch) {
            self.judge_time(end, true_ms, is_healed)?;
        }
        let earlier = self.ends.range(..epoch).next_back();
        let later = self.ends.range(Epoch(epoch.0 + 1)..).next();
        let earlier_ms = earlier.map_or(0, |(_, earlier)| earlier.time_ms);
        let later_ms = later.map_or(u64::MAX, |(_, later)| later.time_ms);
        if !(earlier_ms..=later_ms).contains(&end.time_ms) {
            let text = format!(
                "{epoch:?} is at {} ms, between epochs at {earlier_ms} and {later_ms} ms",
                end.time_ms
            );
            return Err(Violation::new("time", text));
        }
        let known = self.ends.entry(epoch).or_insert_with(|| End {
            time_ms: end.time_ms,
            digest: end.digest,
            map: end.map.clone(),
            last: BTreeMap::new(),
        });
        let same_last = local
            .zip(&end.next)
            .all(|(partition, next)| *known.last.entry(partition).or_insert(next.prev()) == next.prev());
        if !same_last || (known.time_ms, known.digest) != (end.time_ms, end.digest) || known.map != end.map {
            let text = format!(
                "{epoch:?} ends at {} ms with digest {:016x}, partitions at {:?} and map {:?} for one \
                 node, and with {end:?} for another",
                known.time_ms, known.digest, known.last, known.map
            );
            return Err(Violation::new("agreement", text));
        }
        Ok(())
    }

    /// Forgets what lies behind an epoch: nobody has it any more.
    pub fn void_behind(&mut self, epoch: Epoch) {
        self.ends.retain(|&end, _| end <= epoch);
        for places in self.sessions.values_mut() {
            places.retain(|_, place| place.0 <= epoch);
        }
        self.reached = self.reached.min(epoch);
    }

    /// A request has got its place.
    pub fn ordered(&mut self, id: RequestId, place: Place) -> Result<(), Violation> {
        if id.session == SessionId::INTERNAL {
            return Ok(());
        }
        let places = self.sessions.entry(id.session).or_default();
        // Positions of different partitions are no order.
        let follows = |first: Place, then: Place| {
            first.0 < then.0 || first.0 == then.0 && (first.1 != then.1 || first.2 < then.2)
        };
        let (_, here, _) = place;
        let number = (id.sequence, id.attempt, here);
        // Of each partition, those next to it; what is farther off is compared with them.
        let of = PARTITIONS_MAX;
        let earlier = places.range(..(id.sequence, id.attempt, PartitionId(0))).rev();
        let later = places.range((id.sequence, id.attempt, PartitionId(of))..);
        let same = |(_, other): &(&Numbered, &Place)| other.1 == here;
        let earlier: Vec<_> =
            (earlier.clone().next().into_iter()).chain(earlier.clone().find(same)).collect();
        let later: Vec<_> = (later.clone().next().into_iter()).chain(later.clone().find(same)).collect();
        let right = earlier.iter().all(|(_, earlier)| follows(**earlier, place))
            && later.iter().all(|(_, later)| follows(place, **later));
        if !right {
            let text = format!("{id:?} is at {place:?}, between {earlier:?} and {later:?} of its connection");
            return Err(Violation::new("connection order", text));
        }
        places.insert(number, place);
        Ok(())
    }

    /// What a command that is sent now must be behind.
    pub fn reached(&self) -> Epoch {
        self.reached
    }

    /// A command that was sent when `floor` was reached is answered by a partition.
    pub fn answered(
        &mut self,
        floor: Epoch,
        partition: &PartitionWatch,
        place: Decided,
    ) -> Result<(), Violation> {
        let (right, position) = match place {
            Decided::At(position) => (partition.epoch_of(position) > floor, position),
            Decided::Snapshot(position) => (partition.end_of(floor) <= position, position),
            Decided::Nowhere => return Ok(()),
        };
        let epoch = partition.epoch_of(position);
        if !right {
            let text = format!(
                "a command was decided at {place:?} in {epoch:?}, but something in {floor:?} had been \
                 answered before it was sent"
            );
            return Err(Violation::new("real time", text));
        }
        self.reached = self.reached.max(epoch);
        Ok(())
    }
}
