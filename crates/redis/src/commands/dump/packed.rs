//! Redis's packed collections: many elements in one string. Listpacks (7.0 and later), ziplists (before), and
//! sets of integers.

use super::cursor::Cursor;
use crate::parse;
use crate::work;
use txn::Blob;

/// The byte that ends listpacks and ziplists.
const END: u8 = 0xff;

fn text(value: i64) -> Blob {
    parse::integer_text(value)
}

/// The elements of a listpack.
///
/// ```text
/// bytes in all (4, little endian)  elements (2)  { encoding and data, their length backwards }  0xff
/// ```
pub(crate) fn listpack(bytes: &[u8]) -> Option<Vec<Blob>> {
    let mut rest = Cursor(bytes);
    let len = u32::from_le_bytes(rest.array()?);
    let _count: [u8; 2] = rest.array()?;
    if usize::try_from(len).ok()? != bytes.len() {
        return None;
    }
    let mut elements = Vec::new();
    loop {
        let before = rest.0.len();
        work::passed();
        let first = rest.byte()?;
        let low = usize::from(first & 0x0f);
        elements.push(match first {
            END => return rest.is_empty().then_some(elements),
            0x00..0x80 => text(i64::from(first)),
            0x80..0xc0 => Blob::new(rest.take(usize::from(first & 0x3f))?),
            0xc0..0xe0 => {
                // 13 bits with a sign.
                let bits = u16::from(first & 0x1f) << 8 | u16::from(rest.byte()?);
                text(i64::from((bits << 3).cast_signed() >> 3))
            }
            0xe0..0xf0 => {
                let len = low << 8 | usize::from(rest.byte()?);
                Blob::new(rest.take(len)?)
            }
            0xf0 => {
                let len = u32::from_le_bytes(rest.array()?);
                Blob::new(rest.take(usize::try_from(len).ok()?)?)
            }
            0xf1..=0xf3 => text(rest.signed(low + 1)?),
            0xf4 => text(rest.signed(8)?),
            _ => return None,
        });
        rest.take(backward_len_bytes(before - rest.0.len()))?;
    }
}

/// How many bytes an element's length takes behind it: 7 bits each, and one more for the largest number but
/// in one byte, where Redis tests for less than it.
fn backward_len_bytes(len: usize) -> usize {
    match len {
        0..128 => 1,
        128..0x3fff => 2,
        0x3fff..0x1f_ffff => 3,
        0x1f_ffff..0xfff_ffff => 4,
        _ => 5,
    }
}

/// A listpack that is being written.
#[derive(Default)]
pub(super) struct Listpack {
    elements: Vec<u8>,
    count: usize,
}

impl Listpack {
    /// Adds an element: as an integer, if it is the text of one.
    pub(super) fn push(&mut self, element: &[u8]) {
        if let Some(value) = parse::integer(element) {
            return self.push_integer(value);
        }
        let (start, len) = (self.elements.len(), element.len());
        match len {
            0..0x40 => self.elements.push(0x80 | len as u8),
            0x40..0x1000 => self.elements.extend((0xe000 | len as u16).to_be_bytes()),
            len => {
                self.elements.push(0xf0);
                self.elements.extend((len as u32).to_le_bytes());
            }
        }
        self.elements.extend_from_slice(element);
        self.end(start);
    }

    /// Adds an integer.
    pub(super) fn push_integer(&mut self, value: i64) {
        let start = self.elements.len();
        let bytes = value.to_le_bytes();
        let (first, width) = match value {
            0..0x80 => (bytes[0], 0),
            -0x1000..0x1000 => (0xc0 | bytes[1] & 0x1f, 0),
            -0x8000..0x8000 => (0xf1, 2),
            -0x80_0000..0x80_0000 => (0xf2, 3),
            -0x8000_0000..0x8000_0000 => (0xf3, 4),
            _ => (0xf4, 8),
        };
        self.elements.push(first);
        if first >> 5 == 0x6 {
            self.elements.push(bytes[0]);
        }
        self.elements.extend_from_slice(&bytes[..width]);
        self.end(start);
    }

    fn end(&mut self, start: usize) {
        let len = self.elements.len() - start;
        let bytes = backward_len_bytes(len);
        for at in (0..bytes).rev() {
            // All but the first say that there are more before them.
            let more = if at + 1 == bytes { 0 } else { 0x80 };
            self.elements.push((len >> (7 * at)) as u8 & 0x7f | more);
        }
        self.count += 1;
    }

    /// The whole.
    pub(super) fn finish(self) -> Vec<u8> {
        const HEADER_BYTES: usize = 6;
        let len = HEADER_BYTES + self.elements.len() + 1;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend((len as u32).to_le_bytes());
        // The largest number stands for all that are not less.
        bytes.extend(u16::try_from(self.count).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(self.elements);
        bytes.push(END);
        bytes
    }
}

/// The elements of a ziplist.
///
/// ```text
/// bytes in all (4, little endian)  last element's place (4)  elements (2)  { length of the one before, encoding, data }  0xff
/// ```
pub(super) fn ziplist(bytes: &[u8]) -> Option<Vec<Blob>> {
    const LONG_LENGTH: u8 = 0xfe;
    let mut rest = Cursor(bytes);
    let len = u32::from_le_bytes(rest.array()?);
    let _last_and_count: [u8; 6] = rest.array()?;
    if usize::try_from(len).ok()? != bytes.len() {
        return None;
    }
    let mut elements = Vec::new();
    loop {
        match rest.byte()? {
            END => return rest.is_empty().then_some(elements),
            LONG_LENGTH => drop(rest.take(4)?),
            _ => {}
        }
        work::passed();
        let first = rest.byte()?;
        let low = usize::from(first & 0x3f);
        elements.push(match first {
            0x00..0x40 => Blob::new(rest.take(low)?),
            0x40..0x80 => {
                let len = low << 8 | usize::from(rest.byte()?);
                Blob::new(rest.take(len)?)
            }
            0x80 => {
                let len = u32::from_be_bytes(rest.array()?);
                Blob::new(rest.take(usize::try_from(len).ok()?)?)
            }
            0xc0 => text(rest.signed(2)?),
            0xd0 => text(rest.signed(4)?),
            0xe0 => text(rest.signed(8)?),
            0xf0 => text(rest.signed(3)?),
            0xf1..=0xfd => text(i64::from(first & 0x0f) - 1),
            0xfe => text(rest.signed(1)?),
            _ => return None,
        });
    }
}

/// The members of a set of integers.
///
/// ```text
/// bytes of each (4, little endian)  members (4)  { member }
/// ```
pub(super) fn intset(bytes: &[u8]) -> Option<Vec<Blob>> {
    let mut rest = Cursor(bytes);
    let width = usize::try_from(u32::from_le_bytes(rest.array()?)).ok()?;
    let count = usize::try_from(u32::from_le_bytes(rest.array()?)).ok()?;
    if !matches!(width, 2 | 4 | 8) || rest.0.len() != count.checked_mul(width)? {
        return None;
    }
    (0..count).map(|_| rest.signed(width).map(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_the_bytes_that_redis_gives_them() {
        for (len, bytes) in
            [(127, 1), (128, 2), (16_382, 2), (16_383, 3), (2_097_150, 3), (2_097_151, 4), (268_435_455, 5)]
        {
            assert_eq!(backward_len_bytes(len), bytes, "{len}");
        }
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let integers = (0..64).flat_map(|bits| [1_i64 << bits, -1 << bits, (1_i64 << bits).wrapping_sub(1)]);
        let integers: Vec<Blob> = integers.map(text).collect();
        let strings = [0, 1, 63, 64, 4095, 4096, 16_378, 16_380].map(|len| Blob::from("x".repeat(len)));
        let mut pack = Listpack::default();
        let all: Vec<Blob> = integers.into_iter().chain(strings).collect();
        all.iter().for_each(|element| pack.push(element));
        let bytes = pack.finish();
        assert_eq!(listpack(&bytes), Some(all));
        assert_eq!(listpack(&bytes[..bytes.len() - 1]), None);
    }
}
