//! The sparse form of a sketch's registers: stretches of registers that have the same run.
//!
//! ```text
//! 00nnnnnn            n + 1 registers without a run (ZERO)
//! 01nnnnnn nnnnnnnn   n + 1 registers without a run (XZERO)
//! 1rrrrrnn            n + 1 registers with the run r + 1 (VAL)
//! ```
//!
//! Redis does not write the shortest form: which neighbours it joins depends on what it was told last. It is
//! followed in that, so that the strings are equal.

use super::sketch::Corrupt;
use std::fmt::Write;

/// The largest run that a stretch may have.
const RUN_MAX: u8 = 32;
/// The longest stretch with a run.
const RUN_LEN_MAX: usize = 4;
/// The longest stretch without a run that takes one byte.
const ZERO_LEN_MAX: usize = 64;
/// How many stretches are looked at, from the one before the change on, for neighbours to join.
const JOINED_MAX: usize = 5;

/// All registers without a run.
pub(super) const EMPTY: [u8; 2] = [0x7f, 0xff];

/// Registers in a row that have the same run: 0 if none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) run: u8,
    pub(super) len: usize,
    is_long: bool,
}

impl Stretch {
    /// The stretch at a place inside.
    fn at(body: &[u8], at: usize) -> Stretch {
        let byte = body[at];
        if byte & 0x80 != 0 {
            return Stretch { run: (byte >> 2 & 0x1f) + 1, len: usize::from(byte & 3) + 1, is_long: false };
        }
        let is_long = byte & 0x40 != 0;
        let len = usize::from(byte & 0x3f);
        let len = match is_long {
            // A second byte that is missing reads as C's end of the string.
            true => len << 8 | usize::from(body.get(at + 1).copied().unwrap_or(0)),
            false => len,
        };
        Stretch { run: 0, len: len + 1, is_long }
    }

    fn bytes(&self) -> usize {
        1 + usize::from(self.is_long)
    }
}

/// All stretches with their places.
pub(super) fn stretches(body: &[u8]) -> impl Iterator<Item = (usize, Stretch)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let stretch = (at < body.len()).then(|| Stretch::at(body, at))?;
        let place = at;
        at += stretch.bytes();
        Some((place, stretch))
    })
}

/// Appends a stretch, if it has a length.
fn push(out: &mut Vec<u8>, run: u8, len: usize) {
    let Some(more) = len.checked_sub(1) else {
        return;
    };
    match run {
        0 if len > ZERO_LEN_MAX => out.extend([0x40 | (more >> 8) as u8, more as u8]),
        0 => out.push(more as u8),
        run => out.push(0x80 | (run - 1) << 2 | more as u8),
    }
}

/// What became of a run that was offered.
pub(super) enum Offered {
    /// The register had as large a one.
    Kept,
    /// The register has it now.
    Raised,
    /// It can't be written in this form.
    NoRoom,
}

/// Raises the run of a register if it is less.
pub(super) fn offer(
    body: &mut Vec<u8>,
    register: usize,
    run: u8,
    bytes_max: usize,
) -> Result<Offered, Corrupt> {
    if run > RUN_MAX {
        return Ok(Offered::NoRoom);
    }
    let (mut first, mut before) = (0, None);
    let mut found = None;
    for (at, stretch) in stretches(body) {
        if register < first + stretch.len {
            found = Some((at, stretch));
            break;
        }
        first += stretch.len;
        before = Some(at);
    }
    let (at, old) = found.ok_or(Corrupt)?;
    if old.run >= run {
        return Ok(Offered::Kept);
    }
    let mut new = Vec::with_capacity(5);
    push(&mut new, old.run, register - first);
    push(&mut new, run, 1);
    push(&mut new, old.run, first + old.len - register - 1);
    if new.len() > old.bytes() && body.len() + new.len() - old.bytes() > bytes_max {
        return Ok(Offered::NoRoom);
    }
    // A corrupt last stretch may say that it is longer than what is there.
    let end = body.len().min(at + old.bytes());
    body.splice(at..end, new);
    join(body, before.unwrap_or(0));
    Ok(Offered::Raised)
}

/// Joins neighbours with equal runs, in a few stretches from a place on.
fn join(body: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_MAX {
        if at >= body.len() {
            return;
        }
        let stretch = Stretch::at(body, at);
        let next = at + 1;
        if stretch.run > 0 && next < body.len() {
            let other = Stretch::at(body, next);
            let len = stretch.len + other.len;
            if other.run == stretch.run && len <= RUN_LEN_MAX {
                let mut joined = Vec::with_capacity(1);
                push(&mut joined, stretch.run, len);
                body.splice(at..next + 1, joined);
                continue;
            }
        }
        at += stretch.bytes();
    }
}

/// The stretches in words, for PFDEBUG: `z:n`, `Z:n` (two bytes) or `v:run,n`.
pub(super) fn describe(body: &[u8]) -> String {
    let mut text = String::new();
    for (_, stretch) in stretches(body) {
        let space = if text.is_empty() { "" } else { " " };
        let _ = match stretch {
            Stretch { run: 0, len, is_long: true } => write!(text, "{space}Z:{len}"),
            Stretch { run: 0, len, .. } => write!(text, "{space}z:{len}"),
            Stretch { run, len, .. } => write!(text, "{space}v:{run},{len}"),
        };
    }
    text
}
