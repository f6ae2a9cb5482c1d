//! MaaT: a transaction has a range of timestamps, and the vote of each partition narrows it. Whoever decides
//! chooses the commit timestamp where the ranges of all votes overlap.
//!
//! * A reader comes behind the writer of its version, before the writer of the next one, and before the
//!   prepared writers. So one that has read an old version may still commit, if it writes nothing newer.
//! * A writer comes behind all that was written and read, and behind the prepared readers and writers.
//!
//! A prepared transaction is in what Mahmoud et al. (*MaaT: Effective and Scalable Coordination of
//! Distributed Transactions in the Cloud*, VLDB 2014) call a key's soft locks: its lists of readers and
//! writers that have not committed. There a transaction enters the lists at each access; here it enters them
//! with the vote, because what others must respect is an entry. So the neighbours have all been validated,
//! their ranges stay as they are, and it is the one who votes later that gives way. Two things make room for
//! it:
//!
//! * No vote yields an open range: a reader without an end would leave no writer a timestamp.
//! * A writer begins to look behind all that its site has seen, with some room before it: for readers of what
//!   it replaces.

use super::KeyView;
use crate::times::Range;
use txn::Position;

pub(super) fn read(key: &KeyView<'_>, version: Position, range: Range) -> Range {
    key.place_of(version).map_or(Range::EMPTY, |place| key.after_version(place, range))
}

pub(super) fn write(key: &KeyView<'_>, range: Range) -> Range {
    key.writers().fold(key.after_newest(range), |range, writer| range.behind_all(writer.range))
}
