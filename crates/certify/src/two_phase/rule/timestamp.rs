//! TIMESTAMP: basic timestamp ordering. A transaction has its timestamp when it begins, and all that
//! conflicts happens in the order of timestamps.
//!
//! * A read is late if the version that it has read is not the newest one, or was written at a later
//!   timestamp. (A transaction that has read an older version is earlier than the newest one's writer, or has
//!   missed it: there is one version, so both are conflicts.) A read conflicts with a prepared write of an
//!   earlier timestamp, and does not mind later ones.
//! * A write is late if the key was written or read at a later timestamp, or a reader of a later timestamp is
//!   prepared. It does not mind prepared writes: whichever of two finishes first, the later version stays. A
//!   write of an earlier timestamp than the newest version is refused, although nobody could have read it
//!   (Thomas's rule): Harding et al. leave that out, too.
//!
//! Where Harding et al. have a read wait for an earlier prepared write, the transaction is refused here. No
//! vote waits in this protocol, because a vote is what a partition's state says where the entry stands.

use super::KeyView;
use crate::times::Range;
use txn::Position;

pub(super) fn read(key: &KeyView<'_>, version: Position, range: Range) -> Range {
    match key.newest().position == version {
        true => key.after_version(key.versions.len() - 1, range),
        false => Range::EMPTY,
    }
}

pub(super) fn write(key: &KeyView<'_>, range: Range) -> Range {
    key.apart_from_writers(key.after_newest(range))
}
