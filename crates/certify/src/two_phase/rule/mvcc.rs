//! MVCC: multi-version timestamp ordering. A transaction has its timestamp when it begins, and reads the
//! newest versions before it.
//!
//! * A read is late only if the version before the transaction's timestamp is not kept any more. It conflicts
//!   if that is not the version that was read, because the coordinator's replica lacked one, and with a
//!   prepared write between that version and the timestamp. (Harding et al. have it wait.)
//! * A write is late if the version before it was read, or is being read by a prepared transaction, at a
//!   later timestamp. A version may be written before newer ones.

use super::KeyView;
use crate::times::{Range, Timestamp};
use txn::Position;

/// The newest version before a timestamp, if it is kept.
pub(super) fn place_at(key: &KeyView<'_>, timestamp: Timestamp) -> Option<usize> {
    key.versions.partition_point(|version| version.written < timestamp).checked_sub(1)
}

pub(super) fn read(key: &KeyView<'_>, version: Position, range: Range) -> Range {
    key.place_of(version).map_or(Range::EMPTY, |place| key.after_version(place, range))
}

pub(super) fn write(key: &KeyView<'_>, range: Range) -> Range {
    let Some(place) = place_at(key, range.lower) else { return Range::EMPTY };
    let version = &key.versions[place];
    let mut range = range.behind(version.read).behind(key.write_floor);
    if let Some(next) = key.versions.get(place + 1) {
        range = range.before(next.written);
    }
    for reader in key.readers() {
        // A version that is not kept any more is older than those that are.
        if reader.read.and_then(|read| key.place_of(read)).is_none_or(|read| read <= place) {
            range = range.behind_all(reader.range);
        }
    }
    key.apart_from_writers(range)
}
