//! Timestamps: the order that a protocol's rule of concurrency control gives to transactions.

use txn::NodeId;
use txn::codec::{Reader, put_varint};
use txn::mutant::{Mutant, is_active};

/// The low bits of a coordinator's timestamp are the number of its site, so that two sites give none twice.
const SITE_BITS: u32 = 16;
/// No range is longer than this, and as much room a transaction of MaaT that writes leaves before itself.
const ROOM: u64 = 1 << 10;

/// A transaction's place in the order of a rule. It is a count, and no clock shows it. Transactions of a rule
/// without timestamps all have [`Timestamp::NONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Before all others.
    pub const NONE: Timestamp = Timestamp(0);
    /// Behind all others.
    pub const MAX: Timestamp = Timestamp(1 << 62);

    /// The next one.
    pub fn next(self) -> Timestamp {
        self.plus(1)
    }

    /// The first timestamp of a site that is greater than this one. A site that forgets what it has given may
    /// give a timestamp twice: so equal timestamps always conflict.
    pub fn next_of(self, site: NodeId) -> Timestamp {
        let next = (self.0 >> SITE_BITS) + 1;
        Timestamp(next << SITE_BITS | u64::from(site.0)).min(Timestamp::MAX)
    }

    /// As much greater as the room that a writer leaves.
    pub(crate) fn with_room(self) -> Timestamp {
        self.plus(ROOM)
    }

    fn plus(self, count: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(count)).min(Timestamp::MAX)
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.0);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Option<Timestamp> {
        reader.varint().map(Timestamp).filter(|&at| at <= Timestamp::MAX)
    }
}

/// Timestamps at which a transaction may commit: `lower <= at < upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first one.
    pub lower: Timestamp,
    /// The first one behind it.
    pub upper: Timestamp,
}

impl Range {
    /// None.
    pub const EMPTY: Range = Range { lower: Timestamp::NONE, upper: Timestamp::NONE };

    /// This timestamp and no other.
    pub fn at(at: Timestamp) -> Range {
        Range { lower: at, upper: at.next() }
    }

    /// This timestamp and all greater ones.
    pub fn from(lower: Timestamp) -> Range {
        Range { lower, upper: Timestamp::MAX }
    }

    /// Whether it has no timestamps.
    pub fn is_empty(self) -> bool {
        self.lower >= self.upper
    }

    /// What two ranges have in common.
    pub fn and(self, other: Range) -> Range {
        Range { lower: self.lower.max(other.lower), upper: self.upper.min(other.upper) }
    }

    /// What all votes' ranges have in common.
    pub fn common(ranges: &[Range]) -> Range {
        let counted = if is_active(Mutant::IgnoreVoteRange) { 1 } else { ranges.len() };
        ranges.iter().take(counted).fold(Range::from(Timestamp::NONE), |common, range| common.and(*range))
    }

    /// Whether two ranges have something in common.
    pub fn overlaps(self, other: Range) -> bool {
        !self.and(other).is_empty()
    }

    /// Those that are greater than a timestamp.
    pub(crate) fn behind(self, at: Timestamp) -> Range {
        Range { lower: self.lower.max(at.next()), ..self }
    }

    /// Those that are less than a timestamp.
    pub(crate) fn before(self, at: Timestamp) -> Range {
        Range { upper: self.upper.min(at), ..self }
    }

    /// Those that are greater than all of another range.
    pub(crate) fn behind_all(self, other: Range) -> Range {
        Range { lower: self.lower.max(other.upper), ..self }
    }

    /// Those that are less than all of another range.
    pub(crate) fn before_all(self, other: Range) -> Range {
        self.before(other.lower)
    }

    /// The first ones: whoever comes behind a range without an end would find nothing left.
    pub(crate) fn bounded(self) -> Range {
        self.first(ROOM)
    }

    /// At most so many of the first ones.
    pub(crate) fn first(self, count: u64) -> Range {
        self.before(self.lower.plus(count))
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        self.lower.put(out);
        self.upper.put(out);
    }

    /// A range that is not empty.
    pub(crate) fn take(reader: &mut Reader<'_>) -> Option<Range> {
        let range = Range { lower: Timestamp::take(reader)?, upper: Timestamp::take(reader)? };
        (!range.is_empty()).then_some(range)
    }
}
