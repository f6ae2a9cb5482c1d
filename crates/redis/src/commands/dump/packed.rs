//! Redis's packed collections: many elements in one string. Listpacks (7.0 and later), ziplists (before), and sets of
//! integers.

use super::cursor::Cursor;
use crate::parse;
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
pub(super) fn listpack(bytes: &[u8]) -> Option<Vec<Blob>> {
    let mut rest = Cursor(bytes);
    let len = u32::from_le_bytes(rest.array()?);
    let _count: [u8; 2] = rest.array()?;
    if usize::try_from(len).ok()? != bytes.len() {
        return None;
    }
    let mut elements = Vec::new();
    loop {
        let before = rest.0.len();
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
        // How long the length itself is follows from it: 7 bits a byte.
        let len = before - rest.0.len();
        let digits = (usize::BITS - len.leading_zeros()).div_ceil(7);
        rest.take(digits as usize)?;
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
