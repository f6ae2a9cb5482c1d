//! The bytes of a change of members, which stand in the log: a message of protocol buffers, with numbers in
//! it, and with messages that have numbers. Nothing lies deeper.

use crate::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use bytes::Bytes;
use protobuf::{ProtobufError, ProtobufResult};

/// How a field goes on behind its tag.
const NUMBER: u64 = 0;
const BYTES: u64 = 2;

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A field that has a number, unless that is 0: then it is left out.
fn put_field(out: &mut Vec<u8>, field: u64, number: u64) {
    if number != 0 {
        put_number(out, field << 3 | NUMBER);
        put_number(out, number);
    }
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_number(out, field << 3 | BYTES);
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_number(rest: &mut &[u8]) -> ProtobufResult<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, behind) = rest.split_first().ok_or(ProtobufError)?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(ProtobufError)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> ProtobufResult<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).map_err(|_| ProtobufError)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(ProtobufError)?;
    *rest = behind;
    Ok(bytes)
}

impl protobuf::Message for ConfChangeV2 {
    fn compute_size(&self) -> u32 {
        let bytes = self.write_to_bytes().map_or(0, |bytes| bytes.len());
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    fn write_to_bytes(&self) -> ProtobufResult<Vec<u8>> {
        let mut out = Vec::new();
        put_field(&mut out, 1, self.transition as u64);
        for single in &self.changes {
            let mut bytes = Vec::new();
            put_field(&mut bytes, 1, single.change_type as u64);
            put_field(&mut bytes, 2, single.node_id);
            put_bytes(&mut out, 2, &bytes);
        }
        if !self.context.is_empty() {
            put_bytes(&mut out, 3, &self.context);
        }
        Ok(out)
    }

    fn merge_from_bytes(&mut self, mut rest: &[u8]) -> ProtobufResult<()> {
        while !rest.is_empty() {
            let tag = take_number(&mut rest)?;
            match (tag >> 3, tag & 7) {
                (1, NUMBER) => self.transition = transition(take_number(&mut rest)?)?,
                (2, BYTES) => {
                    let single = single(take_bytes(&mut rest)?)?;
                    self.changes.push(single);
                }
                (3, BYTES) => self.context = Bytes::copy_from_slice(take_bytes(&mut rest)?),
                _ => return Err(ProtobufError),
            }
        }
        Ok(())
    }
}

fn single(mut rest: &[u8]) -> ProtobufResult<ConfChangeSingle> {
    let mut single = ConfChangeSingle::default();
    while !rest.is_empty() {
        let tag = take_number(&mut rest)?;
        let number = take_number(&mut rest)?;
        match (tag >> 3, tag & 7) {
            (1, NUMBER) => single.change_type = change_type(number)?,
            (2, NUMBER) => single.node_id = number,
            _ => return Err(ProtobufError),
        }
    }
    Ok(single)
}

fn transition(number: u64) -> ProtobufResult<ConfChangeTransition> {
    match number {
        0 => Ok(ConfChangeTransition::Auto),
        1 => Ok(ConfChangeTransition::Implicit),
        2 => Ok(ConfChangeTransition::Explicit),
        _ => Err(ProtobufError),
    }
}

fn change_type(number: u64) -> ProtobufResult<ConfChangeType> {
    match number {
        0 => Ok(ConfChangeType::AddNode),
        1 => Ok(ConfChangeType::RemoveNode),
        2 => Ok(ConfChangeType::AddLearnerNode),
        _ => Err(ProtobufError),
    }
}
