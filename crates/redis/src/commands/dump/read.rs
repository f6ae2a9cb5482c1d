//! Reading values of every form that Redis has had for them.
//!
//! Nothing here trusts a number that it reads: what is allocated is in proportion to the bytes that were
//! read, but for compressed strings, which together may get as long as one string may be.

use super::cursor::Cursor;
use super::{lzf, packed};
use crate::commands::strings::STRING_BYTES_MAX;
use crate::parse;
use crate::work;
use txn::value::{HashValue, ListValue, SetValue, SortedSetValue};
use txn::{Blob, Value};

/// The first byte of a value: its type and form.
pub(crate) mod kind {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const SORTED_SET: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    pub(crate) const SORTED_SET_2: u8 = 5;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const SORTED_SET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const SORTED_SET_LISTPACK: u8 = 17;
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    pub(crate) const STREAM: u8 = 15;
    pub(crate) const STREAM_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    pub(crate) const STREAM_3: u8 = 21;
}

/// What a length says: a number, or how the string is written that follows.
enum Length {
    Of(usize),
    Integer { bytes: usize },
    Compressed,
}

/// Strings and numbers in a row, as FUNCTION DUMP has them.
pub(crate) struct Strings<'a>(Reader<'a>);

impl<'a> Strings<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Strings<'a> {
        Strings(Reader::new(bytes))
    }
    /// The byte that says what follows.
    pub(crate) fn kind(&mut self) -> Option<u8> {
        self.0.rest.byte()
    }
    pub(crate) fn string(&mut self) -> Option<Blob> {
        self.0.string()
    }
    pub(crate) fn number(&mut self) -> Option<usize> {
        self.0.count()
    }
    /// A time of 8 bytes.
    pub(crate) fn time_ms(&mut self) -> Option<u64> {
        self.0.rest.array().map(u64::from_le_bytes)
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.rest.is_empty()
    }
}

/// What is left of a value's bytes.
pub(super) struct Reader<'a> {
    pub(super) rest: Cursor<'a>,
    /// How much compressed strings may still get.
    inflatable: usize,
}

impl Reader<'_> {
    fn new(bytes: &[u8]) -> Reader<'_> {
        Reader { rest: Cursor(bytes), inflatable: STRING_BYTES_MAX }
    }

    fn length(&mut self) -> Option<Length> {
        let first = self.rest.byte()?;
        let low = usize::from(first & 0x3f);
        Some(match first >> 6 {
            0 => Length::Of(low),
            1 => Length::Of(low << 8 | usize::from(self.rest.byte()?)),
            2 => Length::Of(match first {
                0x80 => usize::try_from(u32::from_be_bytes(self.rest.array()?)).ok()?,
                0x81 => usize::try_from(u64::from_be_bytes(self.rest.array()?)).ok()?,
                _ => return None,
            }),
            _ => match low {
                0..=2 => Length::Integer { bytes: 1 << low },
                3 => Length::Compressed,
                _ => return None,
            },
        })
    }

    /// A length that is a number.
    pub(super) fn count(&mut self) -> Option<usize> {
        match self.length()? {
            Length::Of(count) => Some(count),
            _ => None,
        }
    }

    pub(super) fn string(&mut self) -> Option<Blob> {
        work::passed();
        match self.length()? {
            Length::Of(len) => Some(Blob::new(self.rest.take(len)?)),
            Length::Integer { bytes } => Some(parse::integer_text(self.rest.signed(bytes)?)),
            Length::Compressed => {
                let (bytes, len) = (self.count()?, self.count()?);
                let bytes = self.rest.take(bytes)?;
                self.inflatable = self.inflatable.checked_sub(len)?;
                Some(Blob::from(lzf::inflate(bytes, len)?))
            }
        }
    }

    fn strings(&mut self, per_element: usize) -> Option<Vec<Blob>> {
        let count = self.count()?.checked_mul(per_element)?;
        let mut strings = Vec::new();
        for _ in 0..count {
            strings.push(self.string()?);
        }
        Some(strings)
    }

    /// A list in parts: ziplists, or listpacks and elements that stand alone.
    fn quicklist(&mut self, has_containers: bool) -> Option<Vec<Blob>> {
        const ALONE: usize = 1;
        const PACKED: usize = 2;
        let mut elements = Vec::new();
        for _ in 0..self.count()? {
            let container = match has_containers {
                true => Some(self.count()?),
                false => None,
            };
            let part = self.string()?;
            match container {
                None => elements.extend(packed::ziplist(&part)?),
                Some(PACKED) => elements.extend(packed::listpack(&part)?),
                // Redis packs short elements, the empty one above all.
                Some(ALONE) if !part.is_empty() => elements.push(part),
                Some(_) => return None,
            }
        }
        Some(elements)
    }

    /// A score in text, or one of three lengths that say it.
    fn score(&mut self) -> Option<f64> {
        match self.rest.byte()? {
            255 => Some(f64::NEG_INFINITY),
            254 => Some(f64::INFINITY),
            253 => None,
            len => parse::float(self.rest.take(usize::from(len))?),
        }
    }

    fn scored(&mut self, is_binary: bool) -> Option<Vec<(Blob, f64)>> {
        let mut scored = Vec::new();
        for _ in 0..self.count()? {
            let member = self.string()?;
            let score = match is_binary {
                true => f64::from_le_bytes(self.rest.array()?),
                false => self.score()?,
            };
            scored.push((member, score));
        }
        Some(scored)
    }
}

/// Names with what they have, in turns.
fn pairs<T>(elements: Vec<Blob>, payload: impl Fn(&Blob) -> Option<T>) -> Option<Vec<(Blob, T)>> {
    let (pairs, []) = elements.as_chunks::<2>() else {
        return None;
    };
    let pairs = pairs.iter().map(|[name, had]| Some((name.clone(), payload(had)?)));
    pairs.collect()
}

// A collection's work is counted before it is made: what is refused afterwards has been made, too.
fn list(elements: Vec<Blob>) -> Option<Value> {
    work::elements(elements.len());
    let list: ListValue = elements.into_iter().collect();
    (!list.is_empty()).then(|| Value::from(list))
}

fn set(members: Vec<Blob>) -> Option<Value> {
    let count = members.len();
    work::members(count);
    let set: SetValue = members.into_iter().collect();
    (count > 0 && set.len() == count).then(|| Value::from(set))
}

fn hash(elements: Vec<Blob>) -> Option<Value> {
    let fields = pairs(elements, |value| Some(value.clone()))?;
    let count = fields.len();
    work::members(count);
    let hash: HashValue = fields.into_iter().collect();
    (count > 0 && hash.len() == count).then(|| Value::from(hash))
}

fn sorted_set(scored: Vec<(Blob, f64)>) -> Option<Value> {
    let count = scored.len();
    if scored.iter().any(|(_, score)| score.is_nan()) {
        return None;
    }
    work::scored(count);
    let set: SortedSetValue = scored.into_iter().collect();
    (count > 0 && set.len() == count).then(|| Value::from(set))
}

fn scores(elements: Vec<Blob>) -> Option<Vec<(Blob, f64)>> {
    pairs(elements, |score| parse::float(score))
}

/// The value that these bytes describe: its type first. `None` if they describe none that there is here. As
/// in Redis, what follows the value is not looked at.
pub(crate) fn value(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader::new(bytes);
    match reader.rest.byte()? {
        kind::STRING => Some(Value::from(reader.string()?)),
        kind::LIST => list(reader.strings(1)?),
        kind::LIST_ZIPLIST => list(packed::ziplist(&reader.string()?)?),
        kind::LIST_QUICKLIST => list(reader.quicklist(false)?),
        kind::LIST_QUICKLIST_2 => list(reader.quicklist(true)?),
        kind::SET => set(reader.strings(1)?),
        kind::SET_INTSET => set(packed::intset(&reader.string()?)?),
        kind::SET_LISTPACK => set(packed::listpack(&reader.string()?)?),
        kind::HASH => hash(reader.strings(2)?),
        kind::HASH_ZIPLIST => hash(packed::ziplist(&reader.string()?)?),
        kind::HASH_LISTPACK => hash(packed::listpack(&reader.string()?)?),
        kind::SORTED_SET => sorted_set(reader.scored(false)?),
        kind::SORTED_SET_2 => sorted_set(reader.scored(true)?),
        kind::SORTED_SET_ZIPLIST => sorted_set(scores(packed::ziplist(&reader.string()?)?)?),
        kind::SORTED_SET_LISTPACK => sorted_set(scores(packed::listpack(&reader.string()?)?)?),
        kind @ (kind::STREAM | kind::STREAM_2 | kind::STREAM_3) => {
            let stream = reader.stream(kind)?;
            if let Value::Stream(stream) = &stream {
                work::members(stream.len());
            }
            Some(stream)
        }
        _ => None,
    }
}
