//! Reading the journal back: what each group kept, as of the last record.
//!
//! Reading starts at the oldest segment, whatever was removed before it. So the first that is read of a group
//! may be entries whose predecessors are gone, because a base that is read later covers them. Once entries of
//! a group are known, the next ones must follow them; and in the end every group must be whole.

use super::encoding;
use super::needs::Needs;
use crate::error::{OpenError, Problem};
use crate::kept::{Base, Entry, HardState, Kept};
use crate::record::Address;
use std::collections::{BTreeMap, VecDeque};
use txn::{PartitionId, Position};

/// What the journal has of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupImage {
    /// Its newest hard state. Its commit index lies between the base and the last entry.
    pub hard_state: HardState,
    /// Where its entries begin; the default without one.
    pub base: Base,
    /// The entries behind the base, without gaps.
    pub entries: Vec<Entry>,
}

/// What the journal has of all groups, by their partitions.
pub type GroupImages = BTreeMap<PartitionId, GroupImage>;

/// A group as far as it was read.
#[derive(Default)]
pub(super) struct Found {
    pub hard_state: Option<(Position, HardState)>,
    pub base: Option<(Position, Base)>,
    /// The entries behind the base, each with its record.
    pub entries: VecDeque<(Position, Entry)>,
    /// The last entry's index; `None` while that may have been in a record that was removed.
    pub last: Option<u64>,
}

/// All groups as far as they were read.
#[derive(Default)]
pub(crate) struct Images {
    pub(super) groups: BTreeMap<PartitionId, Found>,
    /// The first record that was read.
    first: Option<Position>,
    /// What the last record said is needed.
    needed: Position,
}

impl Images {
    /// Takes the next record's payload. After an error the images are of no use any more.
    pub fn record(&mut self, number: Position, payload: &[u8]) -> Result<(), Problem> {
        let first = *self.first.get_or_insert(number);
        let payload = encoding::take(payload).ok_or(Problem::Groups)?;
        self.needed = payload.needed;
        let known = first == Position::FIRST;
        for kept in payload.parts {
            let partition = kept.partition;
            let found = self.groups.entry(partition).or_insert_with(|| Found::new(known));
            found.take(number, kept).ok_or(Problem::Gapped(partition))?;
        }
        Ok(())
    }

    /// Judges whether what was taken is all that is needed, before anything on the disk is changed: the
    /// journal's oldest segment begins at `oldest`, and the journal ends at `end`, before the record `next`.
    pub fn end(&self, oldest: Position, end: Address, next: Position) -> Result<(), OpenError> {
        let wanted = match self.first {
            Some(_) => self.needed,
            // Truncation leaves at least a record.
            None => Position::FIRST,
        };
        if oldest > wanted {
            return Err(OpenError::BeginsTooLate { wanted, found: oldest });
        }
        match self.groups.iter().find(|(_, found)| !found.is_whole()) {
            None => Ok(()),
            Some((&partition, _)) => {
                let problem = Problem::Gapped(partition);
                Err(OpenError::Corrupt { address: end, record: next, problem })
            }
        }
    }

    /// Refuses groups that the caller does not accept.
    pub fn accepted_by(&self, accepts: &dyn Fn(PartitionId, &Base) -> bool) -> Result<(), OpenError> {
        let none = Base::default();
        let refused = self.groups.iter().find(|(partition, found)| {
            let base = found.base.as_ref().map_or(&none, |(_, base)| base);
            !accepts(**partition, base)
        });
        refused.map_or(Ok(()), |(&partition, _)| Err(OpenError::NotAccepted { partition }))
    }

    /// Whether the last record said of itself what the groups turn out to need.
    pub(super) fn agree_with(&self, needs: &Needs) -> bool {
        self.first.is_none() || self.needed == needs.oldest_durable()
    }

    /// What groups start with.
    pub(super) fn finish(self) -> GroupImages {
        let images = self.groups.into_iter().map(|(partition, found)| {
            let entries = found.entries.into_iter().map(|(_, entry)| entry);
            let image = GroupImage {
                hard_state: found.hard_state.unwrap_or_default().1,
                base: found.base.unwrap_or_default().1,
                entries: entries.collect(),
            };
            (partition, image)
        });
        images.collect()
    }
}

impl Found {
    fn new(known: bool) -> Found {
        Found { last: known.then_some(0), ..Found::default() }
    }

    fn base_index(&self) -> u64 {
        self.base.as_ref().map_or(0, |(_, base)| base.index)
    }

    /// Takes what a record says. `None` if it does not follow.
    fn take(&mut self, record: Position, kept: Kept) -> Option<()> {
        if let Some(base) = kept.base {
            if base.index < self.base_index() {
                return None;
            }
            if kept.reset {
                self.entries.clear();
                self.last = Some(base.index);
            }
            self.last = self.last.map(|last| last.max(base.index));
            while self.entries.pop_front_if(|(_, entry)| entry.index <= base.index).is_some() {}
            self.base = Some((record, base));
        }
        if let (Some(first), Some(last)) = (kept.entries.first(), kept.entries.last()) {
            let (first, last) = (first.index, last.index);
            let gap = self.last.is_some_and(|last| first > last + 1);
            if gap || first <= self.base_index() {
                return None;
            }
            while self.entries.pop_back_if(|(_, entry)| entry.index >= first).is_some() {}
            self.entries.extend(kept.entries.into_iter().map(|entry| (record, entry)));
            self.last = Some(last);
        }
        if let Some(hard_state) = kept.hard_state {
            self.hard_state = Some((record, hard_state));
        }
        Some(())
    }

    /// Whether entries follow the base without a gap, and what is agreed is there.
    fn is_whole(&self) -> bool {
        let base = self.base_index();
        let first = self.entries.front().map_or(base + 1, |(_, entry)| entry.index);
        let last = self.entries.back().map_or(base, |(_, entry)| entry.index);
        let commit = self.hard_state.map_or(0, |(_, hard_state)| hard_state.commit);
        first == base + 1 && (base..=last).contains(&commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::EntryKind;

    const PARTITION: PartitionId = PartitionId(1);
    const END: Address = Address { segment: Position::FIRST, offset: 5_000 };

    fn kept(base: Option<u64>, reset: bool, indices: &[u64], commit: Option<u64>) -> Kept {
        let entry = |&index: &u64| Entry { index, term: 1, kind: EntryKind::Data, data: bytes::Bytes::new() };
        Kept {
            base: base.map(|index| Base { index, ..Base::default() }),
            reset,
            entries: indices.iter().map(entry).collect(),
            hard_state: commit.map(|commit| HardState { term: 1, vote: 0, commit }),
            ..Kept::nothing(PARTITION)
        }
    }

    /// Reads records from `first` on, where the oldest that is needed is `needed` in the end.
    fn read(first: u64, needed: u64, records: &[Kept]) -> Result<GroupImage, String> {
        let mut images = Images::default();
        for (record, kept) in (first..).zip(records) {
            let mut payload = Vec::new();
            encoding::put_front(&mut payload, Position(needed), 1);
            encoding::put_kept(&mut payload, kept, kept.hard_state);
            let taken = images.record(Position(record), &payload);
            taken.map_err(|problem| format!("record {record}: {problem:?}"))?;
        }
        images
            .end(Position(first), END, Position(first + records.len() as u64))
            .map_err(|error| error.to_string())?;
        Ok(images.finish().remove(&PARTITION).unwrap())
    }

    fn indices(image: &GroupImage) -> Vec<u64> {
        image.entries.iter().map(|entry| entry.index).collect()
    }

    #[test]
    fn gaps_are_refused_and_named() {
        let damaged = [
            (vec![kept(None, false, &[2], None)], "record 1"),
            (vec![kept(None, false, &[1], None), kept(None, false, &[3], None)], "record 2"),
            (vec![kept(Some(5), true, &[], Some(5)), kept(None, false, &[7], None)], "record 2"),
            (vec![kept(Some(5), true, &[6], Some(5)), kept(None, false, &[5], None)], "record 2"),
            (vec![kept(Some(5), true, &[], Some(5)), kept(Some(4), true, &[], Some(4))], "record 2"),
            (vec![kept(None, false, &[1, 2], Some(3))], "has a gap"),
            (vec![kept(Some(5), true, &[6], Some(4))], "has a gap"),
            (vec![kept(Some(5), true, &[6], None)], "has a gap"),
        ];
        for (records, expected) in damaged {
            let error = read(1, 1, &records).unwrap_err();
            assert!(error.contains(expected), "{records:?}: {error}");
            assert!(error.contains("artition"), "the group is named: {error}");
        }
    }

    #[test]
    fn what_comes_before_the_oldest_segment_may_be_missing_and_nothing_else() {
        let ends_whole = [
            kept(None, false, &[11, 12, 13], None),
            kept(None, false, &[14, 15], None),
            kept(Some(12), false, &[], Some(13)),
        ];
        let image = read(7, 7, &ends_whole).unwrap();
        assert_eq!((image.base.index, indices(&image)), (12, vec![13, 14, 15]));

        // Known entries are replaced from before the first one on.
        let replaced = [
            kept(None, false, &[11, 12], None),
            kept(None, false, &[9, 10], None),
            kept(Some(9), false, &[], Some(9)),
        ];
        assert_eq!(indices(&read(7, 7, &replaced).unwrap()), [10]);

        // A base that is read before the first entries, and behind which some are missing.
        let before = [
            kept(Some(5), false, &[], Some(5)),
            kept(None, false, &[9, 10], None),
            kept(Some(8), false, &[], Some(8)),
        ];
        assert_eq!(indices(&read(7, 7, &before).unwrap()), [9, 10]);

        let error = read(7, 7, &ends_whole[..2]).unwrap_err();
        assert!(error.contains("partition 1 has a gap"), "{error}");
        let error = read(7, 7, &before[..2]).unwrap_err();
        assert!(error.contains("partition 1 has a gap"), "{error}");
        let error = read(7, 6, &ends_whole).unwrap_err();
        assert!(error.contains("begins with record 7, and the records from 6 on"), "{error}");
        // Among what is read nothing is missing.
        let gap = [kept(None, false, &[11], None), kept(None, false, &[13], None)];
        assert!(read(7, 7, &gap).is_err());
    }
}
