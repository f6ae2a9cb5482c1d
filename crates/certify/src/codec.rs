//! The byte forms that the entries and snapshots of several protocols share. All decoders are total, and none
//! allocates by a length that it has only read: what it has allocated was there in bytes.

use crate::WriteSet;
use std::collections::BTreeMap;
use txn::codec::{Reader, put_entry, put_key, put_varint, take_entry, take_key};
use txn::{Entry, Position, RequestId, SessionId};

const POSITION_MAX: u64 = 1 << 62;

pub(crate) fn put_id(out: &mut Vec<u8>, id: RequestId) {
    [id.session.0, id.sequence, u64::from(id.attempt)].into_iter().for_each(|part| put_varint(out, part));
}

pub(crate) fn take_id(reader: &mut Reader<'_>) -> Option<RequestId> {
    let (session, sequence) = (SessionId(reader.varint()?), reader.varint()?);
    Some(RequestId { session, sequence, attempt: u32::try_from(reader.varint()?).ok()? })
}

/// The position of a state's last entry. No group comes to the highest ones, behind which nothing could be
/// counted any more.
pub(crate) fn take_last(reader: &mut Reader<'_>) -> Option<Position> {
    reader.varint().filter(|&last| last <= POSITION_MAX).map(Position)
}

pub(crate) fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

pub(crate) fn take_bool(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// What a key holds, if anything.
pub(crate) fn put_value(out: &mut Vec<u8>, value: Option<&Entry>) {
    put_bool(out, value.is_some());
    value.iter().for_each(|value| put_entry(out, value));
}

pub(crate) fn take_value(reader: &mut Reader<'_>) -> Option<Option<Entry>> {
    match take_bool(reader)? {
        false => Some(None),
        true => take_entry(reader).map(Some),
    }
}

pub(crate) fn put_writes(out: &mut Vec<u8>, writes: &WriteSet) {
    put_bool(out, writes.clears);
    put_varint(out, writes.records.len() as u64);
    for (key, value) in &writes.records {
        put_key(out, key);
        put_value(out, value.as_ref());
    }
}

pub(crate) fn take_writes(reader: &mut Reader<'_>) -> Option<WriteSet> {
    let clears = take_bool(reader)?;
    let mut records = BTreeMap::new();
    for _ in 0..reader.varint()? {
        let is_new = records.insert(take_key(reader)?, take_value(reader)?).is_none();
        is_new.then_some(())?;
    }
    Some(WriteSet { clears, records })
}
