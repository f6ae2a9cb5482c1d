//! What a consensus group agrees on: one batch for each epoch.
//!
//! A request goes into the log of *one* group, whichever its connection uses at the time, and says which
//! partitions it involves; the [merge](crate::merge) brings it there. The processes that accept requests
//! number them, for each group on its own, from 1 and without gaps ([`Submission::sequence`]): so a group's
//! log itself tells which requests it has ([`Streams`]), and a request that is proposed again after a
//! failover is recognised before it gets a second place.

use std::collections::BTreeMap;
use std::sync::Arc;
use txn::codec::{Reader, RequestError, put_request, put_varint, take_request};
use txn::hash::hash_bytes;
use txn::{BootId, Epoch, PartitionId, PartitionRoute, Partitions, Registry, Request, Slots};

use crate::arrange::Place;
use crate::map::Control;

/// The version of the encoding.
const FORMAT: u8 = 1;

/// A request on its way into a group's log.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The process that accepted it; [`BootId`] 0 for what a leader itself submits, which is not numbered.
    pub boot: BootId,
    /// Its number among those that this process submitted to this group.
    pub sequence: u64,
    /// The request, with the partitions that execute it.
    pub request: Arc<Request>,
    /// Where it stands in its epoch: the leader says so when it makes the batch.
    pub place: Place,
}

/// What a group agrees on for an epoch.
#[derive(Clone, Debug)]
pub struct GroupBatch {
    /// The epoch.
    pub epoch: Epoch,
    /// What the leader's clock showed, in milliseconds since 1970.
    pub time_ms: u64,
    /// Requests, in order.
    pub submissions: Vec<Submission>,
    /// Changes of the map: in partition 0's batches only.
    pub controls: Vec<Control>,
}

/// Appends a submission.
pub fn put_submission(out: &mut Vec<u8>, submission: &Submission) {
    put_varint(out, u64::from(submission.boot.0));
    put_varint(out, submission.sequence);
    let Place { section, bound, reads_only } = submission.place;
    let bits = u64::from(reads_only) << 1 | u64::from(bound);
    put_varint(out, u64::from(section) << 2 | bits);
    let partitions = &submission.request.route.partitions;
    put_varint(out, u64::from(submission.request.route.of()));
    put_varint(out, partitions.len() as u64);
    for partition in partitions {
        put_varint(out, u64::from(partition.0));
    }
    put_request(out, &submission.request);
}

/// No clock shows this time, in milliseconds since 1970, and no leader stamps a batch with it: a procedure
/// may add to it what it likes.
pub const TIME_MS_END: u64 = 1 << 53;
/// No process numbers so many requests: there is always a next one.
const SEQUENCES_END: u64 = 1 << 60;
/// No batch has so many sections: it has fewer requests.
const SECTIONS_END: u32 = 1 << 20;

impl Submission {
    /// Whether a cluster of so many partitions can execute it. The text says why not.
    ///
    /// # Errors
    /// Nobody could have submitted this.
    pub fn check(&self, partitions: u16) -> Result<(), &'static str> {
        let route = &self.request.route;
        let (involved, of) = (&route.partitions, route.of());
        match () {
            () if !involved.is_sorted_by(|a, b| a < b) => Err("a request names its partitions in no order"),
            () if involved.last().is_none_or(|last| last.0 >= partitions) => {
                Err("a request is of a partition that this cluster has not")
            }
            () if of > 1 && of != partitions || of <= 1 && involved.len() > 1 => {
                Err("a request is of a cluster with other partitions")
            }
            () if self.sequence >= SEQUENCES_END => Err("a request has a number that no process gives"),
            () if self.place.section >= SECTIONS_END => Err("a request stands in no section of a batch"),
            () => Ok(()),
        }
    }
}

/// Reads a submission.
pub fn take_submission(reader: &mut Reader<'_>, registry: &Registry) -> Result<Submission, RequestError> {
    let (boot, sequence, place, route) = take_head(reader).ok_or(RequestError::Malformed)?;
    let mut request = take_request(reader, registry)?;
    request.route = route;
    Ok(Submission { boot, sequence, request: Arc::new(request), place })
}

fn take_head(reader: &mut Reader<'_>) -> Option<(BootId, u64, Place, PartitionRoute)> {
    let boot = BootId(u32::try_from(reader.varint()?).ok()?);
    let sequence = reader.varint()?;
    let place = reader.varint()?;
    let place =
        Place { section: u32::try_from(place >> 2).ok()?, reads_only: place & 2 != 0, bound: place & 1 != 0 };
    let of = u16::try_from(reader.varint()?).ok()?;
    let mut partitions = Partitions::new();
    for _ in 0..reader.varint()? {
        partitions.push(PartitionId(u16::try_from(reader.varint()?).ok()?));
    }
    let route = PartitionRoute {
        home: *partitions.first()?,
        partitions,
        // Where the order has it, the merge knows better.
        slots: Slots::even(of),
    };
    Some((boot, sequence, place, route))
}

impl GroupBatch {
    /// The bytes that the group agrees on.
    pub fn encode(&self) -> Vec<u8> {
        let words = |submission: &Submission| -> usize {
            submission.request.args.iter().map(|word| word.len() + 4).sum()
        };
        let bytes: usize = self.submissions.iter().map(|submission| 48 + words(submission)).sum();
        let mut out = Vec::with_capacity(32 + bytes);
        out.push(FORMAT);
        put_varint(&mut out, self.epoch.0);
        put_varint(&mut out, self.time_ms);
        put_varint(&mut out, self.controls.len() as u64);
        for control in &self.controls {
            control.encode(&mut out);
        }
        put_varint(&mut out, self.submissions.len() as u64);
        for submission in &self.submissions {
            put_submission(&mut out, submission);
        }
        out
    }

    /// The epoch of what [`GroupBatch::encode`] wrote.
    pub fn epoch_of(bytes: &[u8]) -> Option<Epoch> {
        let mut reader = Reader::new(bytes);
        let has_format = reader.u8()? == FORMAT;
        has_format.then_some(Epoch(reader.varint()?))
    }

    /// What [`GroupBatch::encode`] wrote, without the submissions.
    pub fn start_of(bytes: &[u8]) -> Option<GroupBatch> {
        GroupBatch::take_start(&mut Reader::new(bytes))
    }

    /// What a node needs of it that keeps these partitions and no replica of the group: what they execute,
    /// and all that concerns the cluster.
    pub fn part_for(&self, partitions: &[PartitionId]) -> GroupBatch {
        let involves = |submission: &&Submission| {
            let mut involved = submission.request.route.partitions.iter();
            involved.any(|partition| partitions.contains(partition))
        };
        GroupBatch {
            epoch: self.epoch,
            time_ms: self.time_ms,
            submissions: self.submissions.iter().filter(involves).cloned().collect(),
            controls: self.controls.clone(),
        }
    }

    /// The last number that it has of a process; 0 if none.
    pub fn last_of(&self, boot: BootId) -> u64 {
        let mut submissions = self.submissions.iter().rev();
        let found = submissions.find(|submission| submission.boot == boot);
        found.map_or(0, |submission| submission.sequence)
    }

    /// Whether a group of a cluster of so many partitions can agree on it. The text says why not.
    ///
    /// # Errors
    /// No leader of the group could have made this.
    pub fn check(&self, group: PartitionId, partitions: u16) -> Result<(), &'static str> {
        if self.time_ms >= TIME_MS_END {
            return Err("a batch is of a time that no clock shows");
        }
        if !self.controls.is_empty() && group != PartitionId(0) {
            return Err("a batch changes the map, and is not of the group that may");
        }
        let mut submissions = self.submissions.iter();
        submissions.try_for_each(|submission| submission.check(partitions))
    }

    /// Reads what a group agreed on.
    ///
    /// # Errors
    /// The bytes were not written by this version, or name a procedure that the registry does not have.
    pub fn decode(bytes: &[u8], registry: &Registry) -> Result<GroupBatch, RequestError> {
        let mut reader = Reader::new(bytes);
        let mut batch = GroupBatch::take_start(&mut reader).ok_or(RequestError::Malformed)?;
        let count = reader.varint().ok_or(RequestError::Malformed)?;
        for _ in 0..count {
            let submission = take_submission(&mut reader, registry)?;
            batch.submissions.push(submission);
        }
        if reader.is_empty() { Ok(batch) } else { Err(RequestError::Malformed) }
    }

    fn take_start(reader: &mut Reader<'_>) -> Option<GroupBatch> {
        if reader.u8()? != FORMAT {
            return None;
        }
        let epoch = Epoch(reader.varint()?);
        let time_ms = reader.varint()?;
        let mut controls = Vec::new();
        for _ in 0..reader.varint()? {
            controls.push(Control::decode(reader)?);
        }
        Some(GroupBatch { epoch, time_ms, submissions: Vec::new(), controls })
    }
}

/// The digest of a batch's bytes.
pub fn digest_of(bytes: &[u8]) -> u64 {
    hash_bytes(bytes)
}

/// Which requests a group's log has: for each process that submits, the number of its last one.
///
/// Invariant: a log has the numbers of a process from 1 on, in order and without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams(BTreeMap<BootId, u64>);

/// Whether a submission may have the next place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is the next of its process.
    Next,
    /// The log has it.
    Had,
    /// One before it is missing: this number is expected.
    Gap(u64),
}

impl Streams {
    /// The last number of a process that the log has; 0 if none.
    pub fn last(&self, boot: BootId) -> u64 {
        self.0.get(&boot).copied().unwrap_or(0)
    }

    /// Gives a submission the next place, if it may have it.
    pub fn admit(&mut self, boot: BootId, sequence: u64) -> Admission {
        if boot == BootId(0) {
            return Admission::Next;
        }
        match self.0.get_mut(&boot) {
            Some(last) if sequence == *last + 1 => *last = sequence,
            None if sequence == 1 => _ = self.0.insert(boot, sequence),
            Some(last) if sequence <= *last => return Admission::Had,
            known => return Admission::Gap(known.map_or(1, |last| *last + 1)),
        }
        Admission::Next
    }

    /// Notes that the log has a submission.
    pub fn note(&mut self, boot: BootId, sequence: u64) {
        if boot != BootId(0) {
            self.0.insert(boot, sequence);
        }
    }

    /// Notes that the log has a batch.
    pub fn note_batch(&mut self, batch: &GroupBatch) {
        for of_one in batch.submissions.chunk_by(|one, next| one.boot == next.boot) {
            if let Some(last) = of_one.last() {
                self.note(last.boot, last.sequence);
            }
        }
    }

    /// Forgets a process that has ended: nothing of it is admitted any more.
    pub fn forget(&mut self, boot: BootId) {
        self.0.remove(&boot);
    }

    /// Appends the table.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        for (boot, last) in &self.0 {
            put_varint(out, u64::from(boot.0));
            put_varint(out, *last);
        }
    }

    /// Reads a table.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Streams> {
        let mut streams = Streams::default();
        for _ in 0..reader.varint()? {
            let boot = BootId(u32::try_from(reader.varint()?).ok()?);
            let last = reader.varint().filter(|&last| last < SEQUENCES_END)?;
            streams.0.insert(boot, last);
        }
        Some(streams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::{Args, FnProcedure, Outcome, Reply, RequestId, SessionId};

    async fn nothing(_: txn::Tx, _: txn::procedure::Call) -> Outcome {
        Ok(Reply::OK)
    }

    #[test]
    fn batches_round_trip_and_truncations_are_refused() {
        let mut registry = Registry::new();
        let procedure = Arc::new(FnProcedure::new("nothing", nothing));
        registry.register(procedure.clone()).expect("a new name");
        let submissions = (1..4u64).map(|sequence| {
            let id = RequestId { session: SessionId(9), sequence, attempt: 0 };
            let args: Args = ["a", "bc"].into_iter().collect();
            let mut request = Request::new(id, procedure.clone(), args);
            request.route = PartitionRoute::single(PartitionId(2));
            Submission {
                boot: BootId(7),
                sequence,
                request: Arc::new(request),
                place: Place {
                    section: sequence as u32,
                    bound: sequence % 2 == 0,
                    reads_only: sequence % 3 == 0,
                },
            }
        });
        let batch = GroupBatch {
            epoch: Epoch(300),
            time_ms: 1_700_000_000_000,
            submissions: submissions.collect(),
            controls: vec![Control::RaiseLevel { version: 3, level: 1 }],
        };
        let bytes = batch.encode();
        let back = GroupBatch::decode(&bytes, &registry).expect("what was encoded");
        assert_eq!(format!("{back:?}"), format!("{batch:?}"));
        let involved = |batch: &GroupBatch| batch.submissions[0].request.route.partitions.clone();
        assert_eq!(involved(&back), involved(&batch));
        for len in 0..bytes.len() {
            assert!(GroupBatch::decode(&bytes[..len], &registry).is_err());
        }
        let unknown = GroupBatch::decode(&bytes, &Registry::new());
        assert!(matches!(unknown, Err(RequestError::UnknownProcedure(_))));
    }

    #[test]
    fn what_no_leader_makes_is_refused() {
        let request = |change: fn(&mut Submission, &mut Request)| {
            let id = RequestId { session: SessionId(9), sequence: 1, attempt: 0 };
            let procedure = Arc::new(FnProcedure::new("nothing", nothing));
            let mut request = Request::new(id, procedure, Args::new());
            request.route = PartitionRoute::over([PartitionId(0), PartitionId(2)], &Slots::even(3));
            let mut submission = Submission {
                boot: BootId(7),
                sequence: 1,
                request: Arc::new(request.clone()),
                place: Place::default(),
            };
            change(&mut submission, &mut request);
            submission.request = Arc::new(request);
            GroupBatch { epoch: Epoch(1), time_ms: 1, submissions: vec![submission], controls: Vec::new() }
        };
        let home = PartitionId(0);
        assert_eq!(request(|_, _| {}).check(home, 3), Ok(()));
        type Change = fn(&mut Submission, &mut Request);
        let wrong: [Change; 6] = [
            |_, request| request.route.partitions.clear(),
            |_, request| request.route.partitions.reverse(),
            |_, request| request.route.partitions.push(PartitionId(3)),
            |_, request| request.route.slots = Slots::even(1),
            |submission, _| submission.sequence = u64::MAX,
            |submission, _| submission.place.section = u32::MAX,
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            assert!(request(change).check(home, 3).is_err(), "{number}");
        }
        let mut late = request(|_, _| {});
        late.time_ms = u64::MAX;
        assert!(late.check(home, 3).is_err());
        let mut changes = request(|_, _| {});
        changes.controls.push(Control::RaiseLevel { version: 1, level: 1 });
        assert_eq!(changes.check(home, 3), Ok(()));
        assert!(changes.check(PartitionId(1), 3).is_err());
    }

    #[test]
    fn a_stream_has_no_gaps_and_no_repetitions() {
        let mut streams = Streams::default();
        let boot = BootId(3);
        assert_eq!(streams.admit(boot, 2), Admission::Gap(1));
        for sequence in 1..=2 {
            assert_eq!(streams.admit(boot, sequence), Admission::Next);
        }
        assert_eq!(streams.admit(boot, 1), Admission::Had);
        assert_eq!(streams.admit(boot, 4), Admission::Gap(3));
        assert_eq!(streams.admit(BootId(0), 0), Admission::Next);
        assert_eq!((streams.last(boot), streams.last(BootId(0))), (2, 0));
        let mut bytes = Vec::new();
        streams.encode(&mut bytes);
        assert_eq!(Streams::decode(&mut Reader::new(&bytes)), Some(streams));
    }
}
