//! Numbers of frames, held against what they may be.

use txn::PartitionId;
use txn::codec::Reader;

/// What counts something never comes near this: sums of such numbers have room.
const NUMBERS_END: u64 = 1 << 61;

/// A number that counts something.
pub(super) fn take_number(reader: &mut Reader<'_>) -> Option<u64> {
    reader.varint().filter(|&number| number < NUMBERS_END)
}

/// A partition, which the cluster may not have.
pub(super) fn take_partition(reader: &mut Reader<'_>) -> Option<PartitionId> {
    Some(PartitionId(u16::try_from(reader.varint()?).ok()?))
}
