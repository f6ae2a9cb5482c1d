//! The strings of sketches.
//!
//! ```text
//! "HYLL"  encoding  3 bytes 0  estimate (8 bytes, little endian)  registers
//! ```
//!
//! The estimate is the last one that was made; the highest bit of its last byte says that the registers have
//! changed since. The registers are dense (encoding 0: 6 bits each, from the lowest bit of the first byte on)
//! or sparse (encoding 1: [`super::sparse`]). A new sketch is sparse, and becomes dense when it gets too long
//! or a run too large for that.

use super::{murmur, sparse};
use crate::work;

/// How many registers there are.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// How many bits of the hash choose the register.
const INDEX_BITS: u32 = 14;
/// How many bits are left for the run: it has at most one more.
pub(super) const HASH_BITS: usize = 64 - INDEX_BITS as usize;
const SEED: u64 = 0xadc8_3b19;

const HEADER_BYTES: usize = 16;
const REGISTER_BITS: usize = 6;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;
/// The longest sparse sketch, header included: Redis's default of hll-sparse-max-bytes.
const SPARSE_BYTES_MAX: usize = 3000;

/// Registers that count as a step of a script when all are looked at.
const REGISTERS_PER_STEP: usize = 4;
/// The same for the bytes of a sparse sketch, of which one or two are a stretch of registers.
const SPARSE_BYTES_PER_STEP: usize = 4;

const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const ESTIMATE_AT: usize = 8;
const STALE: u8 = 0x80;

/// The registers do not add up.
#[derive(Debug)]
pub(super) struct Corrupt;

/// How many registers have which run.
pub(super) type Histogram = [u32; 1 << REGISTER_BITS];
/// The run of each register.
pub(super) type Runs = [u8; REGISTERS];
/// The runs of an empty sketch.
pub(super) const NO_RUNS: Runs = [0; REGISTERS];

/// Whether a string has a sketch's header, and the right length if it is dense.
pub(super) fn is_sketch(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES
        && bytes.starts_with(MAGIC)
        && match bytes[ENCODING_AT] {
            DENSE => bytes.len() == DENSE_BYTES,
            encoding => encoding == SPARSE,
        }
}

/// Whether a sketch is sparse.
pub(super) fn is_sparse(bytes: &[u8]) -> bool {
    bytes[ENCODING_AT] == SPARSE
}

/// What follows the header.
pub(super) fn body(bytes: &[u8]) -> &[u8] {
    &bytes[HEADER_BYTES..]
}

/// The estimate that a sketch has, if it still holds.
pub(super) fn kept_estimate(bytes: &[u8]) -> Option<i64> {
    let (words, _) = bytes[ESTIMATE_AT..HEADER_BYTES].as_chunks::<8>();
    let estimate = u64::from_le_bytes(*words.first()?);
    // The mark is the sign.
    i64::try_from(estimate).ok()
}

/// The register that an element belongs to, and the run that it offers: one more than the zeros in a row.
pub(super) fn offer_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur::hash(element, SEED);
    let register = hash as usize % REGISTERS;
    let rest = (hash >> INDEX_BITS) | (1 << HASH_BITS);
    (register, rest.trailing_zeros() as u8 + 1)
}

/// The histogram of a sketch; `None` if it is corrupt.
pub(super) fn histogram(bytes: &[u8]) -> Option<Histogram> {
    work::steps(REGISTERS / REGISTERS_PER_STEP);
    let mut histogram = [0; _];
    if is_sparse(bytes) {
        let mut registers = 0;
        for (_, stretch) in sparse::stretches(body(bytes)) {
            histogram[usize::from(stretch.run)] += stretch.len as u32;
            registers += stretch.len;
        }
        return (registers == REGISTERS).then_some(histogram);
    }
    for register in 0..REGISTERS {
        histogram[usize::from(dense_run(body(bytes), register))] += 1;
    }
    Some(histogram)
}

/// Raises the runs to those of a sketch, where they are less.
pub(super) fn merge(runs: &mut Runs, bytes: &[u8]) -> Result<(), Corrupt> {
    work::steps(REGISTERS / REGISTERS_PER_STEP);
    match is_sparse(bytes) {
        true => merge_sparse(runs, body(bytes)),
        false => {
            for (register, run) in runs.iter_mut().enumerate() {
                *run = dense_run(body(bytes), register).max(*run);
            }
            Ok(())
        }
    }
}

fn merge_sparse(runs: &mut Runs, body: &[u8]) -> Result<(), Corrupt> {
    let mut first = 0;
    for (_, stretch) in sparse::stretches(body) {
        let end = first + stretch.len;
        let registers = runs.get_mut(first..end).ok_or(Corrupt)?;
        for run in registers {
            *run = stretch.run.max(*run);
        }
        first = end;
    }
    (first == REGISTERS).then_some(()).ok_or(Corrupt)
}

/// The byte of a dense register's lowest bit, and how many bits are below.
fn dense_place(register: usize) -> (usize, usize) {
    (register * REGISTER_BITS / 8, register * REGISTER_BITS % 8)
}

fn dense_window(body: &[u8], at: usize) -> u16 {
    let byte = |at: usize| body.get(at).copied().unwrap_or(0);
    u16::from_le_bytes([byte(at), byte(at + 1)])
}

const RUN_MASK: u16 = (1 << REGISTER_BITS) - 1;

fn dense_run(body: &[u8], register: usize) -> u8 {
    let (at, shift) = dense_place(register);
    (dense_window(body, at) >> shift & RUN_MASK) as u8
}

fn set_dense_run(body: &mut [u8], register: usize, run: u8) {
    let (at, shift) = dense_place(register);
    let others = dense_window(body, at) & !(RUN_MASK << shift);
    let window = (others | u16::from(run) << shift).to_le_bytes();
    let places = body[at..].iter_mut().zip(window);
    places.for_each(|(byte, new)| *byte = new);
}

/// A sketch to change.
#[derive(Clone)]
pub(super) struct Sketch {
    header: [u8; HEADER_BYTES],
    body: Vec<u8>,
}

impl Sketch {
    /// A sketch that was told no element: its estimate is 0.
    pub(super) fn empty() -> Sketch {
        let mut header = [0; HEADER_BYTES];
        header[..MAGIC.len()].copy_from_slice(MAGIC);
        header[ENCODING_AT] = SPARSE;
        Sketch { header, body: sparse::EMPTY.to_vec() }
    }

    /// A copy of a string that [`is_sketch`].
    pub(super) fn of(bytes: &[u8]) -> Sketch {
        // And into a string again.
        work::bytes(2 * bytes.len());
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&bytes[..HEADER_BYTES]);
        Sketch { header, body: body(bytes).to_vec() }
    }

    /// The string.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        [&self.header[..], &self.body].concat()
    }

    /// The registers have changed.
    pub(super) fn forget_estimate(&mut self) {
        self.header[HEADER_BYTES - 1] |= STALE;
    }

    /// Writes the registers in the dense form.
    pub(super) fn make_dense(&mut self) -> Result<(), Corrupt> {
        if !is_sparse(&self.header) {
            return Ok(());
        }
        work::steps(REGISTERS / REGISTERS_PER_STEP);
        let mut runs = NO_RUNS;
        merge_sparse(&mut runs, &self.body)?;
        self.header[ENCODING_AT] = DENSE;
        self.body = vec![0; DENSE_BYTES - HEADER_BYTES];
        for (register, &run) in runs.iter().enumerate() {
            set_dense_run(&mut self.body, register, run);
        }
        Ok(())
    }

    /// Raises the run of a register if it is less, and tells whether it was.
    pub(super) fn offer(&mut self, register: usize, run: u8) -> Result<bool, Corrupt> {
        work::steps(1);
        if is_sparse(&self.header) {
            work::steps(self.body.len() / SPARSE_BYTES_PER_STEP);
            let body_bytes_max = SPARSE_BYTES_MAX - HEADER_BYTES;
            match sparse::offer(&mut self.body, register, run, body_bytes_max)? {
                sparse::Offered::Kept => return Ok(false),
                sparse::Offered::Raised => return Ok(true),
                sparse::Offered::NoRoom => self.make_dense()?,
            }
        }
        let is_more = run > dense_run(&self.body, register);
        if is_more {
            set_dense_run(&mut self.body, register, run);
        }
        Ok(is_more)
    }
}
