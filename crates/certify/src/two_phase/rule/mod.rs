//! The rules of concurrency control: what a partition's vote requires, and at which timestamps it lets the
//! transaction commit.
//!
//! A rule looks at one key after the other. Of each key it knows the versions and the prepared transactions
//! that use it, the *neighbours*, each with the range of timestamps that the partition's vote has yielded for
//! it. The rule narrows the range of the transaction that asks, and a range that becomes empty is a conflict.
//! All rules but NO-WAIT hold this: of two transactions of which one writes what the other uses, one has all
//! its timestamps before the other's, and reads and versions say the same. So transactions are serializable
//! in the order of their commit timestamps.

mod maat;
mod mvcc;
mod no_wait;
#[cfg(test)]
mod tests;
mod timestamp;

use super::records::Version;
use crate::times::{Range, Timestamp};
use txn::Position;
use txn::mutant::{Mutant, is_active};

/// A rule of concurrency control. See the files of these names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Locks, for which nobody waits.
    #[default]
    NoWait,
    /// Basic timestamp ordering.
    Timestamp,
    /// Multi-version timestamp ordering.
    Mvcc,
    /// Ranges of timestamps.
    Maat,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 4] = [Rule::NoWait, Rule::Timestamp, Rule::Mvcc, Rule::Maat];

    /// The name, as options take it.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::NoWait => "no-wait",
            Rule::Timestamp => "timestamp",
            Rule::Mvcc => "mvcc",
            Rule::Maat => "maat",
        }
    }

    /// Whether transactions are serializable in an order that keeps real time. Those of the others are
    /// serializable in an order that keeps each session's own.
    pub fn is_strict(self) -> bool {
        self == Rule::NoWait
    }

    /// Whether a transaction has its timestamp when it begins.
    pub fn begins_at_timestamp(self) -> bool {
        matches!(self, Rule::Timestamp | Rule::Mvcc)
    }

    /// The timestamp of a transaction that writes, or the first one at which it may commit. `begun` is what
    /// it has had since it began, and `greatest` is the greatest timestamp that its coordinator knows.
    pub fn timestamp_of_writer(self, begun: Timestamp, greatest: Timestamp) -> Timestamp {
        if self == Rule::Maat { greatest.with_room() } else { begun }
    }

    /// How many versions of a key are kept.
    pub(super) fn versions_max(self) -> usize {
        match self {
            Rule::NoWait | Rule::Timestamp => 1,
            Rule::Mvcc | Rule::Maat => 8,
        }
    }

    /// Whether transactions read versions that are replaced. Otherwise their timestamps are enough.
    pub(super) fn reads_replaced(self) -> bool {
        self == Rule::Mvcc
    }

    /// The timestamps of a transaction before anything is known of what it uses.
    pub(super) fn range(self, timestamp: Timestamp) -> Range {
        match self {
            Rule::NoWait | Rule::Maat => Range::from(timestamp),
            Rule::Timestamp | Rule::Mvcc => Range::at(timestamp),
        }
    }

    /// The version that a transaction reads. If it is none, the right one is not kept any more.
    pub(super) fn visible<'a>(self, key: &KeyView<'a>, timestamp: Timestamp) -> Option<&'a Version> {
        match self {
            Rule::Mvcc if !is_active(Mutant::ReadAboveTimestamp) => {
                mvcc::place_at(key, timestamp).map(|place| &key.versions[place])
            }
            _ => key.versions.last(),
        }
    }

    /// What is left of a transaction's range, if it has read this version.
    pub(super) fn read(self, key: &KeyView<'_>, version: Position, range: Range) -> Range {
        match self {
            Rule::NoWait => no_wait::read(key, version, range),
            Rule::Timestamp => timestamp::read(key, version, range),
            Rule::Mvcc => mvcc::read(key, version, range),
            Rule::Maat => maat::read(key, version, range),
        }
    }

    /// What is left of a transaction's range, if it writes the key.
    pub(super) fn write(self, key: &KeyView<'_>, range: Range) -> Range {
        match self {
            Rule::NoWait => no_wait::write(key, range),
            Rule::Timestamp => timestamp::write(key, range),
            Rule::Mvcc => mvcc::write(key, range),
            Rule::Maat => maat::write(key, range),
        }
    }
}

/// What a partition knows of a key.
#[derive(Debug)]
pub(super) struct KeyView<'a> {
    /// Oldest first, at least one.
    pub versions: &'a [Version],
    pub neighbours: Vec<Neighbour>,
    /// A write comes behind this, whatever the versions say.
    pub write_floor: Timestamp,
}

/// A prepared transaction that uses a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbour {
    pub range: Range,
    /// The version that it has read, if it has.
    pub read: Option<Position>,
    pub writes: bool,
}

impl KeyView<'_> {
    fn place_of(&self, version: Position) -> Option<usize> {
        self.versions.iter().position(|known| known.position == version)
    }

    fn newest(&self) -> &Version {
        &self.versions[self.versions.len() - 1]
    }

    fn readers(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.iter().filter(|neighbour| neighbour.read.is_some())
    }

    fn writers(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.iter().filter(|neighbour| neighbour.writes)
    }

    /// A reader of the version at a place comes behind its writer, and before all later ones, also if these
    /// are prepared only.
    fn after_version(&self, place: usize, range: Range) -> Range {
        let version = &self.versions[place];
        let mut range = match is_active(Mutant::ReadAboveTimestamp) {
            true => range,
            false => range.behind(version.written),
        };
        if let Some(next) = self.versions.get(place + 1) {
            range = range.before(next.written);
        }
        if is_active(Mutant::IgnorePreparedWrites) {
            return range;
        }
        let later = self.writers().filter(|writer| writer.range.upper > version.written);
        later.fold(range, |range, writer| range.before_all(writer.range))
    }

    /// A writer of the newest version comes behind all that was written and read, and behind the readers that
    /// are prepared.
    fn after_newest(&self, range: Range) -> Range {
        let Version { written, read, .. } = self.newest();
        let range = range.behind(*written).behind(*read).behind(self.write_floor);
        self.readers().fold(range, |range, reader| range.behind_all(reader.range))
    }

    /// A writer is before or behind each of the prepared ones: they may finish in any order.
    fn apart_from_writers(&self, range: Range) -> Range {
        let is_apart = self.writers().all(|writer| !writer.range.overlaps(range));
        if is_apart { range } else { Range::EMPTY }
    }
}
