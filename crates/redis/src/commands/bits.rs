//! Strings as bits: bit 0 is the highest bit of the first byte, and behind the end all bits are 0.

use super::keys::delete;
use super::options;
use super::strings::{STRING_BYTES_MAX, Text, argument, found, put, span, text, to_change};
use crate::work;
use crate::{errors, parse};
use std::ops::Range;
use txn::{Blob, Intent, Key, Outcome, Reply, Tx};

/// The place of a bit in a string of at most [`STRING_BYTES_MAX`].
pub(super) fn bit_offset(argument: &[u8]) -> Result<usize, Reply> {
    parse::integer(argument)
        .and_then(|at| usize::try_from(at).ok())
        .filter(|at| at / 8 < STRING_BYTES_MAX)
        .ok_or(errors::BIT_OFFSET)
}

/// The byte that has the bit at a place.
fn byte_at(text: &Text, at: usize) -> u8 {
    text.part(at / 8..at / 8 + 1).first().copied().unwrap_or(0)
}

/// What a byte has of the bit at a place.
fn mask_of(at: usize) -> u8 {
    0x80 >> (at % 8)
}

/// SETBIT key offset value
pub async fn setbit(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let at = argument!(bit_offset(&args[1]));
    let on = match args[2].as_bytes() {
        b"0" => false,
        b"1" => true,
        _ => return Ok(errors::BIT_VALUE),
    };
    let key = Key::from(&args[0]);
    let (mut value, expires_at_ms) = to_change(found!(text(tx, &key, Intent::Update)));
    let old = byte_at(&value, at);
    let was_on = old & mask_of(at) != 0;
    if was_on != on || at / 8 >= value.len() {
        let new = match on {
            true => old | mask_of(at),
            false => old & !mask_of(at),
        };
        value.write(at / 8, &[new]);
        put(tx, &key, value, expires_at_ms).await?;
    }
    Ok(Reply::Integer(i64::from(was_on)))
}

/// GETBIT key offset
pub async fn getbit(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let at = argument!(bit_offset(&args[1]));
    let found = found!(text(tx, &Key::from(&args[0]), Intent::Read));
    let is_on = found.is_some_and(|found| byte_at(&found.value, at) & mask_of(at) != 0);
    Ok(Reply::Integer(i64::from(is_on)))
}

/// What BITCOUNT and BITPOS count in: whether it is bits.
fn counts_bits(word: &Blob) -> Result<bool, Reply> {
    match word {
        word if options::is(word, "BIT") => Ok(true),
        word if options::is(word, "BYTE") => Ok(false),
        _ => Err(errors::SYNTAX),
    }
}

/// The bits from `start` to `end`, both included, which count bits or bytes, of a string of so many bytes.
fn bit_span(len: usize, start: i64, end: i64, counts_bits: bool) -> Range<usize> {
    if counts_bits {
        return span(len * 8, start, end);
    }
    let places = span(len, start, end);
    places.start * 8..places.end * 8
}

/// The number of set bits.
fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let of_rest = rest.iter().map(|byte| u64::from(*byte));
    let ones = of_words.chain(of_rest).map(u64::count_ones);
    ones.map(u64::from).sum()
}

/// The bytes that have these bits, of which there is one at least, and the masks of those in the first and in
/// the last.
fn covering(bits: &Range<usize>) -> (Range<usize>, u8, u8) {
    let last = bits.end - 1;
    let (from_first, to_last) = (0xff >> (bits.start % 8), !(0x7f >> (last % 8)));
    (bits.start / 8..last / 8 + 1, from_first, to_last)
}

/// BITCOUNT key [start end [BYTE | BIT]]
pub async fn bitcount(tx: &mut Tx, args: &[Blob]) -> Outcome {
    // As in Redis 7.0, what follows an absent key is not looked at.
    let Some(found) = found!(text(tx, &Key::from(&args[0]), Intent::Read)) else {
        return Ok(Reply::Integer(0));
    };
    let len = found.value.len();
    let bits = match &args[1..] {
        [] => 0..len * 8,
        [start, end, unit @ ..] if unit.len() <= 1 => {
            let start = argument!(options::integer(start));
            let end = argument!(options::integer(end));
            if start < 0 && end < 0 && start > end {
                return Ok(Reply::Integer(0));
            }
            let counts_bits = match unit.first() {
                Some(word) => argument!(counts_bits(word)),
                None => false,
            };
            bit_span(len, start, end, counts_bits)
        }
        _ => return Ok(errors::SYNTAX),
    };
    if bits.is_empty() {
        return Ok(Reply::Integer(0));
    }
    let (places, from_first, to_last) = covering(&bits);
    work::bytes(places.len());
    let first = byte_at(&found.value, places.start * 8);
    let last = byte_at(&found.value, (places.end - 1) * 8);
    let outside = ones(&[first & !from_first, last & !to_last]);
    let covered: u64 = found.value.pieces(places).map(ones).sum();
    Ok(Reply::Integer((covered - outside) as i64))
}

/// The first of these bits that is as wanted.
fn find(bytes: &[u8], bits: Range<usize>, wanted: bool) -> Option<usize> {
    if bits.is_empty() {
        return None;
    }
    let (places, from_first, to_last) = covering(&bits);
    // Looks for a set bit in what is turned over if a clear one is wanted.
    let turn = if wanted { 0 } else { 0xff };
    let first_of = |place: usize, mask: u8| {
        let byte = (bytes[place] ^ turn) & mask;
        (byte != 0).then(|| place * 8 + byte.leading_zeros() as usize)
    };
    let last = places.end - 1;
    if places.start == last {
        return first_of(last, from_first & to_last);
    }
    let inner = &bytes[places.start + 1..last];
    let search_inner = || {
        let (words, _) = inner.as_chunks::<8>();
        let skipped = words.iter().take_while(|word| **word == [turn; 8]).count() * 8;
        let rest = inner[skipped..].iter();
        let place = rest.take_while(|byte| **byte == turn).count() + skipped;
        (place < inner.len()).then(|| first_of(places.start + 1 + place, 0xff))?
    };
    first_of(places.start, from_first).or_else(search_inner).or_else(|| first_of(last, to_last))
}

/// The same for a string in pieces.
fn find_in_text(text: &Text, bits: Range<usize>, wanted: bool) -> Option<usize> {
    let first_byte = bits.start / 8;
    let mut passed = first_byte * 8;
    let mut pieces = text.pieces(first_byte..bits.end.div_ceil(8));
    let found = pieces.find_map(|piece| {
        let before = passed;
        passed += piece.len() * 8;
        let within = bits.start.max(before) - before..bits.end.min(passed) - before;
        find(piece, within, wanted).map(|place| before + place)
    });
    let until = found.unwrap_or(bits.end);
    work::bytes(until.saturating_sub(bits.start) / 8);
    found
}

/// BITPOS key bit [start [end [BYTE | BIT]]]
pub async fn bitpos(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let wanted = match argument!(options::integer(&args[1])) {
        0 => false,
        1 => true,
        _ => return Ok(errors::BIT_WANTED),
    };
    // As in Redis 7.0, what follows an absent key is not looked at.
    let Some(found) = found!(text(tx, &Key::from(&args[0]), Intent::Read)) else {
        return Ok(Reply::Integer(if wanted { -1 } else { 0 }));
    };
    let (start, end, in_bits) = match &args[2..] {
        [] => (0, None, false),
        [start] => (argument!(options::integer(start)), None, false),
        [start, end, unit @ ..] if unit.len() <= 1 => {
            let start = argument!(options::integer(start));
            let in_bits = match unit.first() {
                Some(word) => argument!(counts_bits(word)),
                None => false,
            };
            (start, Some(argument!(options::integer(end))), in_bits)
        }
        _ => return Ok(errors::SYNTAX),
    };
    let bits = bit_span(found.value.len(), start, end.unwrap_or(-1), in_bits);
    let place = find_in_text(&found.value, bits.clone(), wanted);
    let place = match place {
        Some(place) => place as i64,
        // A string without a clear bit has one behind its end, unless the search ends before that.
        None if !wanted && end.is_none() && !bits.is_empty() => bits.end as i64,
        None => -1,
    };
    Ok(Reply::Integer(place))
}

/// What BITOP does with two strings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn of_word(word: &Blob) -> Option<Operation> {
        let all = [
            ("AND", Operation::And),
            ("OR", Operation::Or),
            ("XOR", Operation::Xor),
            ("NOT", Operation::Not),
        ];
        let mut named = all.into_iter();
        named.find(|(name, _)| options::is(word, name)).map(|(_, operation)| operation)
    }

    /// Takes in a piece of a source; `bytes` are those at its place.
    fn apply(self, bytes: &mut [u8], piece: &[u8]) {
        let pairs = bytes.iter_mut().zip(piece);
        match self {
            Operation::And => pairs.for_each(|(byte, other)| *byte &= other),
            Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            Operation::Not => {}
        }
    }
}

/// BITOP <AND | OR | XOR | NOT> destkey key [key ...]
pub async fn bitop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let Some(operation) = Operation::of_word(&args[0]) else {
        return Ok(errors::SYNTAX);
    };
    let (destination, names) = (Key::from(&args[1]), &args[2..]);
    if operation == Operation::Not && names.len() != 1 {
        return Ok(errors::BITOP_NOT);
    }
    let mut sources = Vec::with_capacity(names.len());
    for name in names {
        let key = Key::from(name);
        let intent = match key == destination {
            true => Intent::Update,
            false => Intent::Read,
        };
        let found = found!(text(tx, &key, intent));
        let source = found.map_or(Text::EMPTY, |found| found.value);
        // Sources stay in the pieces in which they lie: a string of zeros that takes nothing may be named a
        // thousand times.
        work::long_bytes(source.len());
        sources.push(source);
        if work::is_spent() {
            return Ok(Reply::Nil);
        }
    }
    let len = sources.iter().map(|source| source.len()).max();
    let Some(len) = len.filter(|len| *len > 0) else {
        delete(tx, &destination).await?;
        return Ok(Reply::Integer(0));
    };
    work::bytes(len.saturating_mul(1 + sources.len()));
    if work::is_spent() {
        return Ok(Reply::Nil);
    }
    let mut bytes = Vec::with_capacity(len);
    (sources[0].pieces(0..len)).for_each(|piece| bytes.extend_from_slice(piece));
    bytes.resize(len, 0);
    for source in &sources[1..] {
        let mut at = 0;
        for piece in source.pieces(0..len) {
            operation.apply(&mut bytes[at..at + piece.len()], piece);
            at += piece.len();
        }
        if operation == Operation::And {
            bytes[at..].fill(0);
        }
    }
    if operation == Operation::Not {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
    put(tx, &destination, bytes, 0).await?;
    Ok(Reply::Integer(len as i64))
}
