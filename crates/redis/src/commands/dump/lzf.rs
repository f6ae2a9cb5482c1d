//! LZF, the compression of Redis's snapshots: stretches of bytes, and references to what was written before.
//!
//! ```text
//! 000nnnnn                      n + 1 bytes follow
//! lllooooo oooooooo             l + 2 bytes from o + 1 bytes before, l from 1 to 6
//! 111ooooo llllllll oooooooo    l + 9 bytes from o + 1 bytes before
//! ```

use super::cursor::Cursor;

/// The bytes that were compressed, of which there must be `len`; `None` if there are more or fewer, or it
/// makes no sense.
///
/// What it allocates is in proportion to what it writes, not to `len`: three bytes write 264 at most.
pub(super) fn inflate(bytes: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut rest = Cursor(bytes);
    let mut out = Vec::new();
    while let Some(control) = rest.byte() {
        let low = usize::from(control & 0x1f);
        match usize::from(control >> 5) {
            0 => out.extend_from_slice(rest.take(low + 1)?),
            length => {
                let length = match length {
                    7 => usize::from(rest.byte()?) + 7,
                    length => length,
                };
                let distance = (low << 8 | usize::from(rest.byte()?)) + 1;
                let from = out.len().checked_sub(distance)?;
                // What is copied may be what is written.
                for at in from..from + length + 2 {
                    out.push(out[at]);
                }
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}
