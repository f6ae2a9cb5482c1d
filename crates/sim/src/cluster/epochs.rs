//! The merged order of all partitions, and the oracles over it, whichever nodes tell of it.
//!
//! 1. *agreement*: an epoch has the same digest (and so, because digests are chained, the same batches), the same time, the
//!    same map behind it, and the same last position of each partition, at every node that has confirmed it.
//! 2. *time*: it never goes back from epoch to epoch, and never is later than all clocks have been: it comes from one of them.
//! 3. *real time*: a command that was sent after another was answered, in whichever partitions, lies in a later epoch, or
//!    sees that epoch whole if it is a read.
//! 4. *connection order*: the requests of a connection have places in the order in which they were sent.
//!
//! How far a stamp may be ahead of the others' clocks is not judged. A leader knows the others' clocks by what they said,
//! which is as old as frames are slow, and its own clock may have jumped since: no bound holds at every moment. What holds
//! is that it hands over once it has noticed.

use super::watch::PartitionWatch;
use crate::watch::real_time::Place as Decided;
use crate::world::Violation;
use order::PartitionMap;
use order::merge::EpochEnd;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{Epoch, PartitionId, Position, RequestId, SessionId};

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
    /// The latest time that a node has seen on its clock.
    clock_ms: u64,
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
    /// A node looks at its clock.
    pub fn shown(&mut self, clock_ms: u64) {
        self.clock_ms = self.clock_ms.max(clock_ms);
    }

    /// A node that keeps these partitions has confirmed an epoch, and those before it.
    pub fn confirmed(
        &mut self,
        end: &EpochEnd,
        local: impl Iterator<Item = PartitionId>,
    ) -> Result<(), Violation> {
        let epoch = end.epoch;
        if end.time_ms > self.clock_ms {
            let text = format!(
                "{epoch:?} is at {} ms, and no clock has shown more than {} ms",
                end.time_ms, self.clock_ms
            );
            return Err(Violation::new("time", text));
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
        let same_last = local.zip(&end.next).all(|(partition, next)| {
            *known.last.entry(partition).or_insert(next.prev()) == next.prev()
        });
        if !same_last
            || (known.time_ms, known.digest) != (end.time_ms, end.digest)
            || known.map != end.map
        {
            let text = format!(
                "{epoch:?} ends at {} ms with digest {:016x}, partitions at {:?} and map {:?} for one node, and with {end:?} \
                 for another",
                known.time_ms, known.digest, known.last, known.map
            );
            return Err(Violation::new("agreement", text));
        }
        Ok(())
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
        let earlier = places
            .range(..(id.sequence, id.attempt, PartitionId(0)))
            .rev();
        let later = places.range((id.sequence, id.attempt, PartitionId(of))..);
        let same = |(_, other): &(&Numbered, &Place)| other.1 == here;
        let earlier: Vec<_> = (earlier.clone().next().into_iter())
            .chain(earlier.clone().find(same))
            .collect();
        let later: Vec<_> = (later.clone().next().into_iter())
            .chain(later.clone().find(same))
            .collect();
        let right = earlier.iter().all(|(_, earlier)| follows(**earlier, place))
            && later.iter().all(|(_, later)| follows(place, **later));
        if !right {
            let text = format!(
                "{id:?} is at {place:?}, between {earlier:?} and {later:?} of its connection"
            );
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
                "a command was decided at {place:?} in {epoch:?}, but something in {floor:?} had been answered before it was \
                 sent"
            );
            return Err(Violation::new("real time", text));
        }
        self.reached = self.reached.max(epoch);
        Ok(())
    }
}
