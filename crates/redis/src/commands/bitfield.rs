//! BITFIELD: integers of any width at any bit of a string.

use super::bits::bit_offset;
use super::options;
use super::strings::{STRING_BYTES_MAX, Text, argument, found, put, text, to_change};
use crate::{errors, parse};
use txn::{Blob, Intent, Key, Note, Outcome, Reply, Tx};

/// An integer inside a string: its type and where it is. At most 64 bits wide, and at most 63 if it has no
/// sign.
#[derive(Clone, Copy)]
struct Field {
    is_signed: bool,
    width: u32,
    /// Its first bit.
    at: usize,
}

/// What becomes of a number that does not fit.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

enum Operation {
    Get,
    Set(i64, Overflow),
    Increment(i64, Overflow),
}

/// How many bytes an integer of 64 bits may touch.
const WINDOW_BYTES: usize = 9;

impl Field {
    fn parse(kind: &[u8], offset: &[u8]) -> Result<Field, Reply> {
        let (is_signed, width) = match kind {
            [b'i', width @ ..] => (true, width),
            [b'u', width @ ..] => (false, width),
            _ => return Err(errors::BITFIELD_TYPE),
        };
        let width = parse::integer(width).and_then(|width| u32::try_from(width).ok());
        let widths = 1..=if is_signed { 64 } else { 63 };
        let width = width.filter(|width| widths.contains(width));
        let width = width.ok_or(errors::BITFIELD_TYPE)?;
        let at = match offset {
            [b'#', index @ ..] => {
                let index = bit_offset(index)?;
                let at = index.checked_mul(width as usize);
                at.filter(|at| at / 8 < STRING_BYTES_MAX).ok_or(errors::BIT_OFFSET)?
            }
            offset => bit_offset(offset)?,
        };
        Ok(Field { is_signed, width, at })
    }

    /// How long a string is that has the whole field.
    fn end_bytes(&self) -> usize {
        (self.at + self.width as usize).div_ceil(8)
    }

    /// The bytes that have the field as one number, and by how many bits it stands above that number's end.
    fn window(&self, text: &Text) -> (u128, u32) {
        let first = self.at / 8;
        let bytes = text.part(first..first + WINDOW_BYTES);
        let window = (0..WINDOW_BYTES)
            .fold(0, |window, place| window << 8 | u128::from(bytes.get(place).copied().unwrap_or(0)));
        let shift = 8 * WINDOW_BYTES as u32 - (self.at % 8) as u32 - self.width;
        (window, shift)
    }

    /// The lowest bits of a number as a value of the field's type.
    fn wrapped(&self, bits: i128) -> i128 {
        let unused = 128 - self.width;
        match self.is_signed {
            true => bits << unused >> unused,
            false => ((bits << unused).cast_unsigned() >> unused).cast_signed(),
        }
    }

    fn get(&self, text: &Text) -> i128 {
        let (window, shift) = self.window(text);
        self.wrapped((window >> shift).cast_signed())
    }

    /// Writes the lowest bits of a number.
    fn set(&self, text: &mut Text, value: i128) {
        let (window, shift) = self.window(text);
        let mask = (u128::MAX >> (128 - self.width)) << shift;
        let window = (window & !mask) | (value.cast_unsigned() << shift & mask);
        let all = window.to_be_bytes();
        let new = &all[all.len() - WINDOW_BYTES..];
        let first = self.at / 8;
        text.write(first, &new[..self.end_bytes() - first]);
    }

    /// What to write for a number; `None` if it does not fit and must not be changed.
    fn fitted(&self, value: i128, overflow: Overflow) -> Option<i128> {
        let (min, max) = match self.is_signed {
            true => (-1 << (self.width - 1), (1 << (self.width - 1)) - 1),
            false => (0, (1 << self.width) - 1),
        };
        match overflow {
            _ if (min..=max).contains(&value) => Some(value),
            Overflow::Wrap => Some(self.wrapped(value)),
            Overflow::Saturate => Some(value.clamp(min, max)),
            Overflow::Fail => None,
        }
    }

    /// Runs an operation, and tells whether it changes anything.
    fn run(&self, operation: &Operation, text: &mut Text) -> (Reply, bool) {
        let old = self.get(text);
        let (new, replies_old) = match *operation {
            Operation::Get => return (integer(old), false),
            Operation::Set(value, overflow) => {
                // A negative number is a large one for a field without a sign.
                let value = match self.is_signed {
                    true => i128::from(value),
                    false => i128::from(value.cast_unsigned()),
                };
                (self.fitted(value, overflow), true)
            }
            Operation::Increment(by, overflow) => (self.fitted(old + i128::from(by), overflow), false),
        };
        let Some(new) = new else {
            return (Reply::Nil, false);
        };
        // Both are what the field's bits mean.
        let changes = new != old;
        if changes {
            self.set(text, new);
        }
        (integer(if replies_old { old } else { new }), changes)
    }
}

/// A field's value: all fit.
fn integer(value: i128) -> Reply {
    Reply::Integer(value as i64)
}

/// The operations that the arguments after the key tell.
fn operations(mut words: &[Blob]) -> Result<Vec<(Field, Operation)>, Reply> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    loop {
        words = match words {
            [] => return Ok(operations),
            [word, kind, offset, rest @ ..] if options::is(word, "GET") => {
                operations.push((Field::parse(kind, offset)?, Operation::Get));
                rest
            }
            [word, kind, offset, number, rest @ ..]
                if options::is(word, "SET") || options::is(word, "INCRBY") =>
            {
                let field = Field::parse(kind, offset)?;
                let number = options::integer(number)?;
                let operation = match options::is(word, "SET") {
                    true => Operation::Set(number, overflow),
                    false => Operation::Increment(number, overflow),
                };
                if field.end_bytes() > STRING_BYTES_MAX {
                    return Err(errors::BIT_OFFSET);
                }
                operations.push((field, operation));
                rest
            }
            [word, name, rest @ ..] if options::is(word, "OVERFLOW") => {
                overflow = match name {
                    name if options::is(name, "WRAP") => Overflow::Wrap,
                    name if options::is(name, "SAT") => Overflow::Saturate,
                    name if options::is(name, "FAIL") => Overflow::Fail,
                    _ => return Err(errors::BITFIELD_OVERFLOW),
                };
                rest
            }
            _ => return Err(errors::SYNTAX),
        };
    }
}

/// The length of string that the writing operations need; `None` if all only read.
fn bytes_to_write(operations: &[(Field, Operation)]) -> Option<usize> {
    let writes = operations.iter().filter(|(_, operation)| !matches!(operation, Operation::Get));
    writes.map(|(field, _)| field.end_bytes()).max()
}

async fn read_fields(tx: &mut Tx, key: &Key, operations: &[(Field, Operation)]) -> Outcome {
    let (value, _) = to_change(found!(text(tx, key, Intent::Read)));
    let values = operations.iter().map(|(field, _)| integer(field.get(&value)));
    Ok(Reply::Array(values.collect()))
}

/// BITFIELD key [GET type offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET type offset value | INCRBY type offset
/// increment> ...]
pub async fn bitfield(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let operations = argument!(operations(&args[1..]));
    let key = Key::from(&args[0]);
    let Some(needed) = bytes_to_write(&operations) else {
        return read_fields(tx, &key, &operations).await;
    };
    let (mut value, expires_at_ms) = to_change(found!(text(tx, &key, Intent::Update)));
    // The string grows even if all operations fail.
    let grows = needed > value.len();
    let mut changes = false;
    value.grow(needed);
    let replies = operations.iter().map(|(field, operation)| {
        let (reply, has_changed) = field.run(operation, &mut value);
        changes |= has_changed;
        reply
    });
    let replies = Reply::Array(replies.collect());
    if !changes {
        // Nobody is told that it only grows.
        tx.note(|| Note::Named("".into()));
    }
    if grows || changes {
        put(tx, &key, value, expires_at_ms).await?;
    }
    Ok(replies)
}

/// BITFIELD_RO key [GET type offset ...]
pub async fn bitfield_ro(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let operations = argument!(operations(&args[1..]));
    if bytes_to_write(&operations).is_some() {
        return Ok(errors::BITFIELD_READ_ONLY);
    }
    read_fields(tx, &Key::from(&args[0]), &operations).await
}
