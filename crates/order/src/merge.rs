//! The merge: from the batches of all groups to the one total order that every partition executes its part
//! of.
//!
//! All groups go through the same epochs in lock-step, with empty batches where they have nothing. The merged
//! epoch is the batches of all groups, in the order of the groups' numbers; a partition executes those
//! requests of it that involve the partition. So requests of one group stay in their order whatever they
//! touch, transactions over several partitions will have the same place at each of them (Sparkle §3), and
//! whoever knows that an epoch was agreed in *one* group knows that nothing acknowledged before lies behind
//! it.
//!
//! A batch is read when its epoch is to be delivered ([`Merge::read_next`]), and gone when that is confirmed:
//! a node that starts holds all of its log behind the checkpoint, and read it would take several times the
//! memory.
//!
//! A node knows a group's batches from its own replica, or from a node of its zone that has one; here both
//! are a *feed*.
//!
//! ```text
//!   appended to every feed          agreed in every feed
//!   ─────────────────────► delivered ───────────────────► confirmed
//!                              │
//!                              └── a batch was replaced: retracted, from that epoch on, at every partition
//! ```
//!
//! Two things the merge changes in what the groups have agreed on, where slots have moved: see
//! [`crate::moves`]. What an operator has had skipped, it replaces: see [`crate::skip`]. Where an epoch
//! corrects the clock, the merge puts a transaction behind the epoch's others that notes the new offset at
//! every partition ([`txn::clock`]).
//!
//! Invariants:
//! 1. `confirmed <= delivered <= held`, for each feed; a confirmed epoch is never retracted.
//! 2. An epoch's time is the largest of its batches' and never less than the one before.
//! 3. Epochs, positions, times, digests and maps are a function of the groups' logs: all nodes have the same.

use crate::arrange::{Arranged, Place, Placed, arrange};
use crate::group::{GroupBatch, Streams};
use crate::map::{Changed, Control, PartitionMap};
use crate::moves::{SlotMove, misrouted};
use crate::skip::Skips;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use txn::clock::CorrectClock;
use txn::codec::RequestError;
use txn::hash::mix;
use txn::mutant::{Mutant, is_active};
use txn::{
    Batch, BootId, Epoch, Group, PartitionId, PartitionRoute, Position, Registry, Request, RequestName,
    SessionId,
};

/// Where the merge stands after an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The epoch.
    pub epoch: Epoch,
    /// Its time.
    pub time_ms: u64,
    /// The chained digest of all batches so far.
    pub digest: u64,
    /// The next position of each local partition, in their order.
    pub next: Vec<Position>,
    /// The map behind it.
    pub map: Arc<PartitionMap>,
    /// What changed the map.
    pub changes: Vec<(Control, Changed)>,
}

/// A batch of a group that is held, and perhaps not agreed.
#[derive(Clone, Debug)]
pub struct Held {
    /// The batch's epoch.
    pub epoch: Epoch,
    /// The entry's index in the group's log; [`Held::AHEAD`] while the batch is ahead of the log
    /// (`agree::Ahead`).
    pub index: u64,
    /// The entry's term.
    pub term: u64,
    /// The digest of its bytes.
    pub digest: u64,
    /// The bytes that it has there.
    pub bytes: u64,
    /// What it says: all of it at a replica of the group, and otherwise what this node needs of it.
    pub batch: Content,
    /// If that is not all of it: the last number that the whole batch has of this process.
    pub noted: (BootId, u64),
}

/// What a batch says, or the bytes that say it.
#[derive(Clone, Debug)]
pub enum Content {
    /// It was read.
    Read(Arc<GroupBatch>),
    /// What the group has in its log.
    Unread(Bytes),
}

impl Content {
    /// What it says.
    ///
    /// # Errors
    /// The bytes mean nothing to this build.
    pub fn read(&self, registry: &Registry) -> Result<Arc<GroupBatch>, RequestError> {
        match self {
            Content::Read(batch) => Ok(batch.clone()),
            Content::Unread(bytes) => GroupBatch::decode(bytes, registry).map(Arc::new),
        }
    }
}

/// A batch of the order that means nothing to this build.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Whose.
    pub group: PartitionId,
    /// Its entry's index.
    pub index: u64,
    /// Why.
    pub cause: RequestError,
}

impl Held {
    /// The index of a batch that is ahead of its group's log: behind all entries, and never agreed.
    pub const AHEAD: u64 = u64::MAX;

    fn note_in(&self, batch: &GroupBatch, streams: &mut Streams) {
        streams.note_batch(batch);
        if self.noted.1 > 0 {
            streams.note(self.noted.0, self.noted.1);
        }
    }
}

/// What is known of a group's batches.
#[derive(Clone, Debug, Default)]
struct Feed {
    /// Batches behind the confirmed epoch: of consecutive epochs.
    held: VecDeque<Held>,
    /// Entries up to this index are agreed.
    agreed: u64,
    /// Which requests the log has, up to the confirmed epoch.
    streams: Streams,
    /// The entry of the confirmed epoch: its index and term.
    confirmed: (u64, u64),
}

/// What one epoch brings to the local partitions.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The epoch.
    pub epoch: Epoch,
    /// For each local partition that the epoch involves: its part.
    pub batches: Vec<(PartitionId, Batch)>,
    /// The next position of each local partition behind it.
    pub next: Vec<Position>,
    /// The bytes of its batches.
    pub bytes: u64,
}

/// An epoch is final.
#[derive(Clone, Debug)]
pub struct Confirmation {
    /// Where the merge stands after it.
    pub end: EpochEnd,
    /// The bytes of its batches.
    pub bytes: u64,
}

/// Epochs were taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retraction {
    /// From this epoch on.
    pub epoch: Epoch,
    /// For each local partition: from this position on.
    pub from: Vec<(PartitionId, Position)>,
}

/// A batch contradicts what a group has agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outdated;

/// Where a node's merge begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// The local partitions, in order.
    pub local: Vec<PartitionId>,
    /// Where the checkpoints end.
    pub end: EpochEnd,
    /// For each group of the map: which requests its log had there, and the entry of that epoch (index and
    /// term).
    pub groups: Vec<(Streams, (u64, u64))>,
    /// What is not executed: the same at all nodes.
    pub skips: Arc<Skips>,
}

/// Merges the batches of all groups. See the module's head.
#[derive(Debug)]
pub struct Merge {
    local: Vec<PartitionId>,
    feeds: Vec<Feed>,
    /// The end of the last confirmed epoch.
    confirmed: EpochEnd,
    /// The ends of the epochs that are delivered and not confirmed.
    delivered: VecDeque<EpochEnd>,
    /// Of the batches that are held and not delivered.
    undelivered_bytes: u64,
    skips: Arc<Skips>,
}

impl Merge {
    /// The requests that are replaced.
    pub fn skips(&self) -> &Skips {
        &self.skips
    }

    /// From the next epoch that is read on, this request is replaced, too.
    pub fn skip(&mut self, name: RequestName) {
        Arc::make_mut(&mut self.skips).add(name);
    }

    /// A merge that goes on behind a checkpoint.
    pub fn new(start: Start) -> Merge {
        let feeds = start.groups.into_iter().map(|(streams, confirmed)| Feed {
            agreed: confirmed.0,
            streams,
            confirmed,
            held: VecDeque::new(),
        });
        Merge {
            local: start.local,
            feeds: feeds.collect(),
            confirmed: start.end,
            delivered: VecDeque::new(),
            undelivered_bytes: 0,
            skips: start.skips,
        }
    }

    fn feed(&mut self, group: PartitionId) -> &mut Feed {
        &mut self.feeds[usize::from(group.0)]
    }

    /// The end of the last confirmed epoch.
    pub fn confirmed(&self) -> &EpochEnd {
        &self.confirmed
    }

    /// The end of the last delivered epoch.
    pub fn delivered(&self) -> &EpochEnd {
        self.delivered.back().unwrap_or(&self.confirmed)
    }

    /// The last epoch of which a group's batch is held.
    pub fn held(&self, group: PartitionId) -> Epoch {
        let feed = &self.feeds[usize::from(group.0)];
        Epoch(self.confirmed.epoch.0 + feed.held.len() as u64)
    }

    /// The last epoch of which a group's batch is held and has its place in the group's log.
    pub fn logged(&self, group: PartitionId) -> Epoch {
        self.epoch_at(group, Held::AHEAD - 1)
    }

    /// The newest epoch of which any group's batch is held.
    pub fn newest(&self) -> Epoch {
        let longest = self.feeds.iter().map(|feed| feed.held.len()).max();
        Epoch(self.confirmed.epoch.0 + longest.unwrap_or(0) as u64)
    }

    /// The oldest epoch of which some group's batch is missing, and the first such group.
    pub fn missing(&self) -> (Epoch, PartitionId) {
        let shortest = self.feeds.iter().enumerate();
        let found = shortest.min_by_key(|(number, feed)| (feed.held.len(), *number));
        let (number, feed) = found.expect("a cluster has a partition");
        let epoch = Epoch(self.confirmed.epoch.0 + feed.held.len() as u64 + 1);
        (epoch, PartitionId(number as u16))
    }

    /// How many epochs a group's batches are held of that are not confirmed.
    pub fn unconfirmed(&self, group: PartitionId) -> usize {
        self.feeds[usize::from(group.0)].held.len()
    }

    /// Which requests a group's log has, up to the last batch that is held, or the first that means nothing
    /// to this build.
    pub fn streams_to_the_end(&self, group: PartitionId, registry: &Registry) -> Streams {
        let feed = &self.feeds[usize::from(group.0)];
        let mut streams = feed.streams.clone();
        for held in &feed.held {
            let Ok(batch) = held.batch.read(registry) else {
                break;
            };
            held.note_in(&batch, &mut streams);
        }
        streams
    }

    /// Which requests a group's log has, and the entry of that epoch: as of the last confirmed epoch.
    pub fn group(&self, group: PartitionId) -> (&Streams, (u64, u64)) {
        let feed = &self.feeds[usize::from(group.0)];
        (&feed.streams, feed.confirmed)
    }

    /// The epoch of a group's batch at an index, or of the last one before it; the last confirmed one if that
    /// is further back.
    pub fn epoch_at(&self, group: PartitionId, index: u64) -> Epoch {
        let feed = &self.feeds[usize::from(group.0)];
        let before = feed.held.partition_point(|held| held.index <= index);
        Epoch(self.confirmed.epoch.0 + before as u64)
    }

    /// A group's log has entries from this index on that replace what was there, or has lost them. Returns
    /// what was delivered of them.
    ///
    /// # Panics
    /// If one of them was confirmed: agreement is broken, and nothing may go on.
    pub fn replaced(&mut self, group: PartitionId, from_index: u64) -> Option<Retraction> {
        let feed = self.feed(group);
        assert!(from_index > feed.confirmed.0, "{group} replaces entry {from_index}, which was agreed");
        let kept = feed.held.partition_point(|held| held.index < from_index);
        match feed.held.get(kept) {
            Some(next) if next.index < Held::AHEAD => self.truncate(group, kept),
            _ => None,
        }
    }

    /// Of the batches of a group that are ahead of its log only so many stay. Returns what was delivered of
    /// the others.
    pub fn void_ahead(&mut self, group: PartitionId, stays: usize) -> Option<Retraction> {
        let logged = self.logged(group).0 - self.confirmed.epoch.0;
        self.truncate(group, logged as usize + stays)
    }

    /// The first batch of a group that is ahead of its log, which has this digest, gets its place in the log.
    ///
    /// # Panics
    /// If no such batch is ahead: this node would go on with an order that no log has.
    pub fn placed(&mut self, group: PartitionId, (index, term): (u64, u64), digest: u64) {
        let place = (self.logged(group).0 - self.confirmed.epoch.0) as usize;
        let held = self.feed(group).held.get_mut(place).expect("a batch is ahead of the log");
        assert_eq!(
            held.digest, digest,
            "entry {index} of {group} is another batch than the one ahead of the log"
        );
        (held.index, held.term) = (index, term);
    }

    /// Only so many batches that are not confirmed are left of a group.
    fn truncate(&mut self, group: PartitionId, kept: usize) -> Option<Retraction> {
        let confirmed = self.confirmed.epoch;
        if kept >= self.feed(group).held.len() {
            return None;
        }
        let delivered = self.delivered.len();
        let feed = self.feed(group);
        let undelivered = feed.held.iter().skip(kept.max(delivered));
        let bytes: u64 = undelivered.map(|held| held.bytes).sum();
        feed.held.truncate(kept);
        let epoch = Epoch(confirmed.0 + kept as u64 + 1);
        if self.delivered().epoch < epoch {
            self.undelivered_bytes -= bytes;
            return None;
        }
        // What was delivered of the others is not any more.
        for feed in &self.feeds {
            let taken_back = feed.held.iter().take(delivered).skip(kept);
            self.undelivered_bytes += taken_back.map(|held| held.bytes).sum::<u64>();
        }
        self.undelivered_bytes -= bytes;
        self.delivered.truncate(kept);
        let end = self.delivered();
        let from = self.local.iter().copied().zip(end.next.iter().copied());
        Some(Retraction { epoch, from: from.collect() })
    }

    /// A group's log has a further batch.
    ///
    /// # Panics
    /// If it is not the batch of the next epoch: leaders make none but that.
    pub fn appended(&mut self, group: PartitionId, held: Held) {
        let next = self.held(group).0 + 1;
        assert_eq!(held.epoch.0, next, "{group} has skipped an epoch");
        self.undelivered_bytes += held.bytes;
        self.feed(group).held.push_back(held);
    }

    /// A node that has a replica of a group tells of a batch behind the confirmed epoch, and of all batches
    /// before it. Gives what was delivered and has been replaced by it.
    ///
    /// # Errors
    /// It is not of the log that was agreed on: who tells so has an older one.
    ///
    /// # Panics
    /// If batches before it are missing.
    pub fn told(&mut self, group: PartitionId, held: Held) -> Result<Option<Retraction>, Outdated> {
        let place = (held.epoch.0 - self.confirmed.epoch.0 - 1) as usize;
        let feed = self.feed(group);
        let known = feed.held.get(place);
        if known.is_some_and(|known| (known.index, known.term) == (held.index, held.term)) {
            return Ok(None);
        }
        let is_agreed = known.is_some_and(|known| known.index <= feed.agreed);
        if is_agreed || held.index <= feed.agreed && known.is_some() {
            return Err(Outdated);
        }
        let retraction = self.truncate(group, place);
        self.appended(group, held);
        Ok(retraction)
    }

    /// What a group's log has, and is held, behind an epoch that is not before the confirmed one.
    pub fn logged_behind(&self, group: PartitionId, epoch: Epoch) -> impl Iterator<Item = &Held> {
        let skip = epoch.0 - self.confirmed.epoch.0;
        let feed = &self.feeds[usize::from(group.0)];
        feed.held.iter().skip(skip as usize).take_while(|held| held.index < Held::AHEAD)
    }

    /// The index of the last batch in a group's log that is held, or was confirmed.
    pub fn last_index(&self, group: PartitionId) -> u64 {
        let feed = &self.feeds[usize::from(group.0)];
        let last = feed.held.iter().rev().find(|held| held.index < Held::AHEAD);
        last.map_or(feed.confirmed.0, |held| held.index)
    }

    /// A group has agreed on its log up to an index.
    pub fn agreed(&mut self, group: PartitionId, index: u64) {
        let feed = self.feed(group);
        feed.agreed = feed.agreed.max(index);
    }

    /// The last epoch of which a group has agreed on a batch that is held.
    pub fn agreed_epoch(&self, group: PartitionId) -> Epoch {
        self.epoch_at(group, self.agreed_upto(group))
    }

    /// Up to which index a group has agreed on its log.
    pub fn agreed_upto(&self, group: PartitionId) -> u64 {
        self.feeds[usize::from(group.0)].agreed
    }

    /// The bytes of the batches that are held and not delivered.
    pub fn undelivered_bytes(&self) -> u64 {
        self.undelivered_bytes
    }

    /// The running sum is what there is.
    pub fn check_invariants(&self) {
        let undelivered =
            |feed: &Feed| -> u64 { feed.held.iter().skip(self.delivered.len()).map(|held| held.bytes).sum() };
        debug_assert_eq!(self.undelivered_bytes, self.feeds.iter().map(undelivered).sum::<u64>());
    }

    /// Whether the batches of all groups are held for the next epoch to be delivered.
    pub fn is_next_held(&self) -> bool {
        let place = self.delivered.len();
        self.feeds.iter().all(|feed| feed.held.len() > place)
    }

    /// Reads the batches of the next epoch to be delivered, as far as they are held: before
    /// [`Merge::deliver`].
    ///
    /// # Errors
    /// One means nothing to this build, which can't go on.
    pub fn read_next(&mut self, registry: &Registry) -> Result<(), Unreadable> {
        let place = self.delivered.len();
        let slots = self.delivered().map.slots().clone();
        for (group, feed) in self.feeds.iter_mut().enumerate() {
            let Some(held) = feed.held.get_mut(place) else {
                continue;
            };
            if let Content::Unread(bytes) = &held.batch {
                let read = GroupBatch::decode(bytes, registry).map_err(|cause| Unreadable {
                    group: PartitionId(group as u16),
                    index: held.index,
                    cause,
                });
                let mut read = read?;
                if !slots.is_even() {
                    // Now, because it is nobody else's yet: to deliver it, it would have to be copied.
                    let submissions = read.submissions.iter_mut();
                    submissions
                        .filter_map(|submission| Arc::get_mut(&mut submission.request))
                        .filter(|request| request.route.of() == slots.of())
                        .for_each(|request| request.route.slots = slots.clone());
                }
                held.batch = Content::Read(Arc::new(read));
            }
        }
        Ok(())
    }

    /// Delivers the next epoch, if the batches of all groups are held.
    ///
    /// What only reads, at several partitions, changes nothing, and only its client's node needs to know what
    /// it reads. Where every node keeps all partitions, the others do not execute it (Sparkle, section 4.4).
    /// This process is `boot`: what earlier ones were asked for nobody waits for. (Where partitions are
    /// spread it is executed everywhere: a node may need what another zone has read, in place of its
    /// neighbour.)
    ///
    /// # Panics
    /// If they were not read.
    pub fn deliver(&mut self, boot: BootId) -> Option<Delivery> {
        let place = self.delivered.len();
        if !self.is_next_held() {
            return None;
        }
        let mut end = self.delivered().clone();
        let map = end.map.clone();
        end.epoch.0 += 1;
        end.changes.clear();
        let mut parts: Vec<Vec<_>> = vec![Vec::new(); self.local.len()];
        for feed in &self.feeds {
            let held = &feed.held[place];
            let Content::Read(batch) = &held.batch else {
                panic!("epoch {} is delivered unread", held.epoch.0);
            };
            end.time_ms = match is_active(Mutant::EpochTimeGoesBack) {
                true => batch.time_ms,
                false => end.time_ms.max(batch.time_ms),
            };
            end.digest = mix(end.digest ^ held.digest);
            for submission in &batch.submissions {
                let mut request = match self.skips.has(end.epoch, &submission.request) {
                    true => self.skips.replace(end.epoch, &submission.request),
                    false => as_ordered(&submission.request, &map),
                };
                let reads_only = reads_only(&request, submission.place);
                if request.footprint.read_only != reads_only {
                    Arc::make_mut(&mut request).footprint.read_only = reads_only;
                }
                let only_reads = submission.place.reads_only && submission.boot != boot;
                if only_reads && !map.is_spread() {
                    Arc::make_mut(&mut request).elsewhere = true;
                }
                for partition in &request.route.partitions {
                    if let Ok(local) = self.local.binary_search(partition) {
                        parts[local].push(Placed { request: request.clone(), place: submission.place });
                    }
                }
            }
            for control in &batch.controls {
                let changed = Arc::make_mut(&mut end.map).apply(control, end.epoch);
                end.changes.push((control.clone(), changed));
            }
        }
        let mut batches = Vec::new();
        for (local, part) in parts.into_iter().enumerate() {
            let first = end.next[local];
            let mut arranged = arrange(part);
            for (number, change) in slot_moves(&end.changes).enumerate() {
                // Of an epoch's changes all but one were decided on another version, but nothing here depends
                // on that.
                let part = MOVES_PART - number as u32;
                add_move(&mut arranged, change, self.local[local], part, &map, &end);
            }
            for (_, changed) in &end.changes {
                if let &Changed::Clock { before_ms, offset_ms } = changed {
                    arranged.requests.push(correction(before_ms, offset_ms, self.local[local], &end));
                }
            }
            let Arranged { requests, groups } = arranged;
            end.next[local] = first.advanced(requests.len() as u64);
            if !requests.is_empty() {
                let part = Batch {
                    epoch: end.epoch,
                    time_ms: end.time_ms,
                    first,
                    requests,
                    groups,
                    digest: end.digest,
                };
                batches.push((self.local[local], part));
            }
        }
        let (epoch, next) = (end.epoch, end.next.clone());
        self.delivered.push_back(end);
        let bytes = self.feeds.iter().map(|feed| feed.held[place].bytes).sum();
        self.undelivered_bytes -= bytes;
        Some(Delivery { epoch, batches, next, bytes })
    }

    /// Whether the next epoch to be delivered is agreed in all groups already.
    pub fn is_next_agreed(&self) -> bool {
        let place = self.delivered.len();
        self.feeds.iter().all(|feed| {
            let next = feed.held.get(place);
            next.is_some_and(|held| held.index <= feed.agreed)
        })
    }

    /// Confirms the next epoch, if it is delivered and agreed in all groups.
    pub fn confirm(&mut self) -> Option<Confirmation> {
        self.delivered.front()?;
        let is_agreed = |feed: &Feed| {
            let next = feed.held.front();
            next.is_some_and(|held| held.index <= feed.agreed)
        };
        let enough = match is_active(Mutant::ConfirmWhenOneAgrees) {
            true => self.feeds.iter().any(is_agreed),
            false => self.feeds.iter().all(is_agreed),
        };
        if !enough {
            return None;
        }
        let mut bytes = 0;
        for feed in &mut self.feeds {
            let held = feed.held.pop_front()?;
            if let Content::Read(batch) = &held.batch {
                held.note_in(batch, &mut feed.streams);
            }
            feed.confirmed = (held.index, held.term);
            bytes += held.bytes;
        }
        self.confirmed = self.delivered.pop_front()?;
        for (_, change) in &self.confirmed.changes {
            if let Changed::Boot { ended, .. } = change {
                for feed in &mut self.feeds {
                    feed.streams.forget(*ended);
                }
            }
        }
        Some(Confirmation { end: self.confirmed.clone(), bytes })
    }
}

/// The part of an epoch in which its first move of slots stands: behind all sections.
const MOVES_PART: u32 = u32::MAX;

fn slot_moves(changes: &[(Control, Changed)]) -> impl Iterator<Item = SlotMove> + '_ {
    changes.iter().filter_map(|(_, changed)| match changed {
        Changed::Slots(change) => Some(*change),
        _ => None,
    })
}

/// Adds the transaction that moves the records to a partition's part of the epoch, if it gives or takes them.
fn add_move(
    arranged: &mut Arranged,
    change: SlotMove,
    at: PartitionId,
    part: u32,
    before: &PartitionMap,
    end: &EpochEnd,
) {
    if !change.involves(at) {
        return;
    }
    let slots = match at == change.from {
        true => before.slots(),
        false => end.map.slots(),
    };
    arranged.groups.push(Group { first: arranged.requests.len(), members: 1, part });
    let request = change.request(at, end.epoch, slots.clone());
    arranged.requests.push(request);
}

/// The transaction with which a partition takes note that the time of day is another one: behind all others
/// of its epoch.
fn correction(before_ms: i64, offset_ms: i64, at: PartitionId, end: &EpochEnd) -> Arc<Request> {
    let mut request = CorrectClock::request(end.epoch.0, before_ms, offset_ms);
    request.route = PartitionRoute::one_of(at, end.map.slots());
    Arc::new(request)
}

/// Whether a request only reads, as all replicas know it, for one that does must not write: what the log says
/// of a request over several partitions, and of others what their procedure says. A client's node may know
/// better, and keeps that for itself.
fn reads_only(request: &Request, place: Place) -> bool {
    if is_active(Mutant::RankByFootprint) {
        return request.footprint.read_only;
    }
    match request.route.partitions.len() > 1 {
        true => place.reads_only,
        false => request.footprint.read_only && request.procedure.footprint(&request.args).read_only,
    }
}

/// A request as an epoch has it in which this map is in force.
fn as_ordered(request: &Arc<Request>, map: &PartitionMap) -> Arc<Request> {
    // A request to one partition only, whatever its keys, is the node's own work there.
    if request.route.of() <= 1 || request.id.session == SessionId::INTERNAL {
        return request.clone();
    }
    if request.slots_version < map.slots_version && !is_active(Mutant::ExecuteMisrouted) {
        return misrouted(request);
    }
    if request.route.slots.is_same(map.slots()) {
        return request.clone();
    }
    let mut request = Request::clone(request);
    request.route.slots = map.slots().clone();
    Arc::new(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Submission;
    use crate::map::Described;
    use crate::moves::is_misrouted;
    use txn::{
        Args, FnProcedure, Key, Outcome, PartitionRoute, Reply, Request, RequestId, SessionId, SlotRange,
        Slots,
    };

    const GROUP: PartitionId = PartitionId(0);

    async fn nothing(_: txn::Tx, _: txn::procedure::Call) -> Outcome {
        Ok(Reply::OK)
    }

    fn registry() -> Registry {
        let mut registry = Registry::new();
        let procedure = FnProcedure::new("nothing", nothing);
        registry.register(Arc::new(procedure)).expect("a new name");
        registry
    }

    /// A merge of one group whose first batches were found in a log.
    fn found(batches: u64) -> Merge {
        let mut merge = Merge::new(Start {
            local: vec![GROUP],
            end: EpochEnd {
                epoch: Epoch(0),
                time_ms: 0,
                digest: 0,
                next: vec![Position::FIRST],
                map: Arc::new(PartitionMap::alone()),
                changes: Vec::new(),
            },
            groups: vec![(Streams::default(), (0, 0))],
            skips: Arc::default(),
        });
        for number in 1..=batches {
            let id = RequestId { session: SessionId(1), sequence: number, attempt: 0 };
            let procedure = Arc::new(FnProcedure::new("nothing", nothing));
            let batch = GroupBatch {
                epoch: Epoch(number),
                time_ms: number,
                submissions: vec![Submission {
                    boot: BootId(3),
                    sequence: number,
                    request: Arc::new(Request::new(id, procedure, Args::new())),
                    place: Default::default(),
                }],
                controls: Vec::new(),
            };
            merge.appended(
                GROUP,
                Held {
                    epoch: Epoch(number),
                    index: number,
                    term: 1,
                    digest: number,
                    bytes: 1,
                    batch: Content::Unread(batch.encode().into()),
                    noted: Default::default(),
                },
            );
        }
        merge.agreed(GROUP, batches);
        merge
    }

    #[test]
    fn whether_a_request_only_reads_is_what_all_replicas_know() {
        let id = RequestId { session: SessionId(1), sequence: 1, attempt: 0 };
        let known = |partitions: &[u16], footprint: bool, in_log: bool| {
            let procedure = Arc::new(FnProcedure::new("nothing", nothing));
            let mut request = Request::new(id, procedure, Args::new());
            assert!(!request.footprint.read_only, "its procedure says that it may write");
            request.footprint.read_only = footprint;
            let partitions = partitions.iter().copied().map(PartitionId);
            request.route = PartitionRoute::over(partitions, &Slots::even(2));
            reads_only(&request, Place { reads_only: in_log, ..Place::default() })
        };
        for footprint in [false, true] {
            assert!(known(&[0, 1], footprint, true) && !known(&[0, 1], footprint, false));
            assert!(!known(&[1], footprint, false), "what its client's node says is nobody else's");
        }
    }

    fn unread(merge: &Merge) -> usize {
        let held = merge.feeds[0].held.iter();
        held.filter(|held| matches!(held.batch, Content::Unread(_))).count()
    }

    #[test]
    fn what_was_found_in_a_log_is_read_when_its_epoch_is_delivered() {
        let registry = registry();
        let mut merge = found(3);
        assert_eq!(unread(&merge), 3);
        for number in 1..=3 {
            // A leader knows all of it, read or not.
            let streams = merge.streams_to_the_end(GROUP, &registry);
            assert_eq!(streams.last(BootId(3)), 3);
            merge.read_next(&registry).expect("it can be read");
            assert_eq!(unread(&merge), 3 - number as usize);
            let delivery = merge.deliver(BootId(0)).expect("it is held");
            let (_, batch) = &delivery.batches[0];
            assert_eq!(batch.requests[0].id.sequence, number);
            let confirmation = merge.confirm().expect("it is agreed");
            assert_eq!(confirmation.end.epoch, Epoch(number));
            assert_eq!(merge.group(GROUP).0.last(BootId(3)), number);
        }
        merge.read_next(&registry).expect("there is nothing more");
        assert!(merge.deliver(BootId(0)).is_none());
    }

    #[test]
    fn a_batch_that_means_nothing_to_this_build_is_named_before_it_is_delivered() {
        let mut merge = found(2);
        merge.read_next(&registry()).expect("it can be read");
        merge.deliver(BootId(0)).expect("it is held");
        let refused = merge.read_next(&Registry::new()).expect_err("unknown");
        assert_eq!((refused.group, refused.index), (GROUP, 2));
        assert!(matches!(refused.cause, RequestError::UnknownProcedure(_)));
        let streams = merge.streams_to_the_end(GROUP, &Registry::new());
        assert_eq!(streams.last(BootId(3)), 1);
    }

    /// A submission of a session to the partition that has a key, by the slots of some version.
    fn submission(sequence: u64, key: &str, slots: &Slots, slots_version: u32) -> Submission {
        let id = RequestId { session: SessionId(1 << 40), sequence, attempt: 0 };
        let procedure = Arc::new(FnProcedure::new("nothing", nothing));
        let mut request = Request::new(id, procedure, Args::new());
        request.route = PartitionRoute::of_keys([&Key::from(key)], slots);
        request.slots_version = slots_version;
        Submission { boot: BootId(3), sequence, request: Arc::new(request), place: Default::default() }
    }

    /// The batch of a group's epoch, as its log has it: not read.
    fn held(epoch: u64, submissions: Vec<Submission>, controls: Vec<Control>) -> Held {
        let batch = GroupBatch { epoch: Epoch(epoch), time_ms: epoch, submissions, controls };
        Held {
            epoch: Epoch(epoch),
            index: epoch,
            term: 1,
            digest: epoch,
            bytes: 1,
            batch: Content::Unread(batch.encode().into()),
            noted: Default::default(),
        }
    }

    #[test]
    fn slots_move_behind_an_epoch_and_what_was_routed_by_older_ones_is_not_executed() {
        let node = Described {
            name: "a".to_owned(),
            zone: "x".to_owned(),
            peer_address: "a:1".to_owned(),
            client_address: "a:2".to_owned(),
        };
        let map = PartitionMap::new("test", &[node], 2).expect("a map");
        let local = vec![PartitionId(0), PartitionId(1)];
        let mut merge = Merge::new(Start {
            local,
            end: EpochEnd {
                epoch: Epoch(0),
                time_ms: 0,
                digest: 0,
                next: vec![Position::FIRST; 2],
                map: Arc::new(map.clone()),
                changes: Vec::new(),
            },
            groups: vec![(Streams::default(), (0, 0)); 2],
            skips: Arc::default(),
        });
        // All that partition 0 has becomes partition 1's. The key is of partition 0.
        let (first, last) = map.partition(PartitionId(0)).slots[0];
        let slots = SlotRange { first, last };
        let control = Control::MoveSlots { version: 1, slots, to: PartitionId(1) };
        let key = "bar";
        let (old, new) = (map.slots(), Slots::of_ranges(2, [(PartitionId(1), 0, 16_383)]));
        assert_eq!(old.partition_of_key(&Key::from(key)), PartitionId(0));
        let mut late = vec![submission(2, key, old, 0), submission(3, key, &new, 2)];
        late.push(submission(4, key, old, Request::ANY_SLOTS));
        merge.appended(GROUP, held(1, vec![submission(1, key, old, 0)], vec![control]));
        merge.appended(PartitionId(1), held(1, vec![], vec![]));
        merge.appended(GROUP, held(2, late, vec![]));
        merge.appended(PartitionId(1), held(2, vec![], vec![]));
        let deliver = |merge: &mut Merge| {
            merge.read_next(&registry()).expect("it can be read");
            merge.deliver(BootId(0)).expect("it is held").batches
        };
        let names = |batch: &Batch| -> Vec<(u64, bool)> {
            let requests = batch.requests.iter();
            let names = requests.map(|request| (request.id.sequence, is_misrouted(request)));
            names.collect()
        };

        let batches = deliver(&mut merge);
        let [(_, gives), (_, takes)] = &batches[..] else {
            panic!("both partitions have something to do");
        };
        assert_eq!(names(gives), [(1, false), (1, false)]);
        assert_eq!(names(takes), [(1, false)]);
        assert_eq!(gives.requests[0].procedure.name(), "nothing");
        for (batch, slots) in [(gives, old), (takes, &new)] {
            let moves = batch.requests.last().expect("it is the last one");
            let change = SlotMove::of(moves).expect("it moves records");
            assert_eq!((change.slots.last, change.version), (last, 2));
            assert_eq!(moves.route.partitions.len(), 2);
            assert_eq!(moves.route.slots, *slots, "each finds the keys with itself");
            let group = batch.groups.last().expect("a group of its own");
            assert_eq!((group.members, group.part), (1, MOVES_PART));
        }
        assert_eq!(merge.delivered().next, [Position(3), Position(2)]);

        let batches = deliver(&mut merge);
        let [(at, batch), (other, taken)] = &batches[..] else {
            panic!("{batches:?}");
        };
        assert_eq!((*at, *other), (PartitionId(0), PartitionId(1)));
        // What is right for any slots is one to all partitions; here it tells that nobody asks what it is
        // right for.
        assert_eq!(names(batch), [(2, true), (4, false)]);
        assert_eq!(names(taken), [(3, false)]);
        for request in batch.requests.iter().chain(&taken.requests) {
            assert!(is_misrouted(request) || request.route.slots == new);
        }

        // The first batch is replaced by one that moves nothing.
        merge.replaced(GROUP, 1).expect("it was delivered");
        merge.appended(GROUP, held(1, vec![submission(1, key, old, 0)], vec![]));
        merge.appended(GROUP, held(2, vec![submission(2, key, old, 0)], vec![]));
        for sequence in [1, 2] {
            let batches = deliver(&mut merge);
            assert_eq!(names(&batches[0].1), [(sequence, false)]);
            assert_eq!(batches.len(), 1);
        }
    }

    #[test]
    fn what_is_skipped_is_replaced_at_all_of_its_partitions() {
        let node = Described {
            name: "a".to_owned(),
            zone: "x".to_owned(),
            peer_address: "a:1".to_owned(),
            client_address: "a:2".to_owned(),
        };
        let map = PartitionMap::new("test", &[node], 2).expect("a map");
        let slots = map.slots().clone();
        let mut skips = Skips::default();
        skips.add(format!("1:{}:2", 1u64 << 40).parse().expect("a name"));
        let mut merge = Merge::new(Start {
            local: vec![PartitionId(0), PartitionId(1)],
            end: EpochEnd {
                epoch: Epoch(0),
                time_ms: 0,
                digest: 0,
                next: vec![Position::FIRST; 2],
                map: Arc::new(map),
                changes: Vec::new(),
            },
            groups: vec![(Streams::default(), (0, 0)); 2],
            skips: Arc::new(skips),
        });
        let everywhere = |sequence| {
            let mut submission = submission(sequence, "bar", &slots, 0);
            let request = Arc::make_mut(&mut submission.request);
            request.route = PartitionRoute::everywhere(&slots);
            submission
        };
        for epoch in 1..=2 {
            let batch = vec![everywhere(2 * epoch - 1), everywhere(2 * epoch)];
            merge.appended(GROUP, held(epoch, batch, vec![]));
            merge.appended(PartitionId(1), held(epoch, vec![], vec![]));
        }
        for expected in [["nothing", "ordo.skipped"], ["nothing", "nothing"]] {
            merge.read_next(&registry()).expect("it can be read");
            let delivery = merge.deliver(BootId(0)).expect("it is held");
            assert_eq!(delivery.batches.len(), 2);
            for (_, batch) in delivery.batches {
                let names = batch.requests.iter().map(|request| request.procedure.name());
                assert_eq!(names.collect::<Vec<_>>(), expected);
                assert!(batch.requests.iter().all(|request| request.route.partitions.len() == 2));
            }
        }
    }
}
