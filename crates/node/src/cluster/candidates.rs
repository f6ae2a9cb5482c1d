//! Behind which checkpoint a process starts, by what the journal says of checkpoints.

use super::base::{BadBase, BaseState, CANDIDATES, kept_aside};
use super::checkpoint::{LoadError, read};
use super::retired::retired;
use log::{Base, Disk, GroupImage, GroupImages, Kept};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{Epoch, PartitionId};

/// A checkpoint that is on the disk.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub epoch: Epoch,
    /// What each group's log begins with behind it.
    pub bases: BTreeMap<PartitionId, Base>,
    /// This process is to end, and the next one to start behind it.
    pub start: bool,
    pub asked_tick: Option<u64>,
}

impl Taken {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.epoch.0);
        out.push(u8::from(self.start));
        for (partition, base) in &self.bases {
            put_varint(&mut out, u64::from(partition.0));
            let mut bytes = Vec::new();
            base.encode(&mut bytes);
            put_bytes(&mut out, &bytes);
        }
        out
    }

    /// As the journal holds it.
    pub fn kept(&self) -> Kept {
        kept_aside(CANDIDATES, self.epoch.0, self.encode())
    }

    fn decode(bytes: &[u8]) -> Option<Taken> {
        let mut reader = Reader::new(bytes);
        let epoch = Epoch(reader.varint()?);
        let start = reader.u8()? == 1;
        let mut bases = BTreeMap::new();
        while !reader.is_empty() {
            let partition = PartitionId(u16::try_from(reader.varint()?).ok()?);
            bases.insert(partition, Base::take(&mut Reader::new(reader.bytes()?))?);
        }
        Some(Taken { epoch, bases, start, asked_tick: None })
    }
}

/// Behind what a process starts: an epoch, and the bases at its end. A group that has none can't take part in
/// a process that starts behind an epoch; at epoch 0 it begins at the beginning, as all others do.
pub(super) struct Begin {
    pub epoch: Epoch,
    pub bases: BTreeMap<PartitionId, Base>,
    /// Replicas that have moved away: they begin nowhere.
    retired: BTreeSet<PartitionId>,
}

impl Begin {
    /// Whether a partition can be executed from there on.
    pub fn has(&self, partition: PartitionId) -> bool {
        (self.epoch == Epoch(0) || self.bases.contains_key(&partition)) && !self.retired.contains(&partition)
    }
}

/// The newest checkpoint of a journal, if its logs begin before it.
pub(super) fn candidate(images: &GroupImages) -> Option<(Epoch, BTreeMap<PartitionId, Base>)> {
    let taken = Taken::decode(&images.get(&CANDIDATES)?.base.state)?;
    Some((taken.epoch, taken.bases))
}

/// What the journal holds in the place of its candidate, with other bases; nothing if it has none.
pub(super) fn candidate_with(
    images: &GroupImages,
    change: impl Fn(PartitionId, &Base) -> Result<Base, LoadError>,
) -> Result<Option<Kept>, LoadError> {
    let Some(image) = images.get(&CANDIDATES) else {
        return Ok(None);
    };
    let mut taken = Taken::decode(&image.base.state).ok_or(BadBase(CANDIDATES))?;
    for (&partition, base) in &mut taken.bases {
        *base = change(partition, base)?;
    }
    Ok(Some(kept_aside(CANDIDATES, image.base.index, taken.encode())))
}

/// Behind which epoch a start executes the log: that of the newest checkpoint; or of the one before it, if a
/// node that stands alone cannot use that. 0 if there is none.
pub(crate) fn begin_of_start<D: Disk>(
    disk: &D,
    images: &GroupImages,
    alone: bool,
) -> Result<Epoch, LoadError> {
    let begin = newest_bases(images)?;
    let is_usable = |(&partition, base): (&PartitionId, &Base)| read(disk, partition, base, |_| {}).is_ok();
    if alone && starts_behind_candidate(images) && !begin.bases.iter().all(is_usable) {
        return log_begin_bases(images).map(|older| older.epoch);
    }
    Ok(begin.epoch)
}

/// Whether a process starts behind a checkpoint that is newer than where its logs begin.
pub(super) fn starts_behind_candidate(images: &GroupImages) -> bool {
    let newer = newest_bases(images).map(|begin| begin.epoch);
    let older = log_begin_bases(images).map(|begin| begin.epoch);
    matches!((newer, older), (Ok(newer), Ok(older)) if older < newer)
}

/// Behind the bases of the journal's logs, whatever newer checkpoints there are.
pub(super) fn log_begin_bases(images: &GroupImages) -> Result<Begin, LoadError> {
    bases(images, None)
}

/// Where a process starts: behind the bases of its journal; or behind a checkpoint that is newer and has
/// every group that they have, if it was made or fetched for that, or the bases are not all of one epoch.
///
/// (Not behind its own newest one: partitions need from each other what was read since the oldest checkpoint
/// behind which any of them starts, and after a loss of power nobody knows that but who reads it again.)
pub(super) fn newest_bases(images: &GroupImages) -> Result<Begin, LoadError> {
    let decode = |image: &GroupImage| Taken::decode(&image.base.state).ok_or(BadBase(CANDIDATES));
    bases(images, images.get(&CANDIDATES).map(decode).transpose()?)
}

fn bases(images: &GroupImages, candidate: Option<Taken>) -> Result<Begin, LoadError> {
    let retired: BTreeSet<PartitionId> = retired(images).into_keys().collect();
    let groups = || {
        let groups = images.iter();
        groups.filter(|(id, _)| **id < CANDIDATES && !retired.contains(id))
    };
    let mut begun = BTreeMap::new();
    for (&partition, image) in groups().filter(|(_, image)| image.base.index > 0) {
        let state = BaseState::decode(&image.base.state).ok_or(BadBase(partition))?;
        begun.insert(partition, (state.epoch, image.base.clone()));
    }
    let epoch = begun.values().map(|&(epoch, _)| epoch).max();
    let epoch = epoch.unwrap_or(Epoch(0));
    let candidate = candidate.filter(|candidate| {
        let has = |partition| candidate.bases.contains_key(partition);
        candidate.epoch >= epoch && begun.keys().all(has)
    });
    // What a log has was promised: it is not left out.
    let left = |begin: &Begin| {
        let mut left = groups().filter(|&(&partition, image)| {
            !begin.has(partition) && (image.base.index > 0 || !image.entries.is_empty())
        });
        left.next().map(|(&partition, _)| partition)
    };
    let mut begin = Begin {
        epoch,
        bases: begun
            .into_iter()
            .filter(|&(_, (of, _))| of == epoch)
            .map(|(partition, (_, base))| (partition, base))
            .collect(),
        retired: retired.clone(),
    };
    if let Some(candidate) = candidate.filter(|taken| taken.start || left(&begin).is_some()) {
        begin.epoch = candidate.epoch;
        begin.bases = candidate.bases;
        begin.bases.retain(|partition, _| !retired.contains(partition));
    }
    match left(&begin) {
        Some(partition) => Err(LoadError::Uneven { partition, epoch: begin.epoch }),
        None => Ok(begin),
    }
}

/// The epochs behind which the logs of a journal begin.
pub(super) fn log_bases(images: &GroupImages) -> BTreeSet<Epoch> {
    let groups = images.iter().filter(|(id, _)| **id < CANDIDATES);
    groups.filter_map(|(_, image)| BaseState::decode(&image.base.state)).map(|state| state.epoch).collect()
}
