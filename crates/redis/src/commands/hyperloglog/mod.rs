//! HyperLogLog: strings that estimate how many distinct elements they were told.
//!
//! An element's hash picks one of 16384 registers and offers it the length of the run of zeros in its other
//! bits; a register keeps the longest run it was offered, and the estimate follows from how many registers
//! have which length. The strings are Redis's, byte for byte ([`sketch`]), so that they may come from a dump
//! of Redis.
//!
//! Redis keeps the last estimate in the string, and PFCOUNT writes it. Ours uses such an estimate while it
//! holds, but it is a plain read and writes none.

mod estimate;
mod murmur;
mod sketch;
mod sparse;

use super::options;
use super::strings::{Found, argument, found, put, string};
use crate::errors;
use crate::work;
use sketch::{NO_RUNS, Runs, Sketch};
use txn::{Blob, Intent, Key, Outcome, Reply, Stop, Tx};

const NOT_A_SKETCH: Reply = Reply::error("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPT: Reply = Reply::error("INVALIDOBJ Corrupted HLL object detected");
const NO_KEY: Reply = Reply::error("ERR The specified key does not exist");
const NOT_SPARSE: Reply = Reply::error("ERR HLL encoding is not sparse");

/// The string of a sketch at a key. The inner error is the reply to anything else.
async fn sketch(tx: &mut Tx, key: &Key, intent: Intent) -> Result<Result<Option<Found>, Reply>, Stop> {
    Ok(match string(tx, key, intent).await? {
        Ok(Some(found)) if !sketch::is_sketch(&found.value) => Err(NOT_A_SKETCH),
        found => found,
    })
}

/// A copy to change, or an empty sketch.
fn to_change(found: Option<Found>) -> (Sketch, u64) {
    found.map_or_else(|| (Sketch::empty(), 0), |found| (Sketch::of(&found.value), found.expires_at_ms))
}

/// PFADD key [element ...]
pub async fn pfadd(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let found = found!(sketch(tx, &key, Intent::Update));
    let mut has_changed = found.is_none();
    let (mut sketch, expires_at_ms) = to_change(found);
    for element in &args[1..] {
        let (register, run) = sketch::offer_of(element);
        has_changed |= argument!(sketch.offer(register, run).map_err(|_| CORRUPT));
    }
    if has_changed {
        sketch.forget_estimate();
        put(tx, &key, sketch.into_bytes(), expires_at_ms).await?;
    }
    Ok(Reply::Integer(i64::from(has_changed)))
}

/// PFCOUNT key [key ...]
pub async fn pfcount(tx: &mut Tx, args: &[Blob]) -> Outcome {
    if let [name] = args {
        let found = found!(sketch(tx, &Key::from(name), Intent::Read));
        let Some(found) = found else {
            return Ok(Reply::Integer(0));
        };
        let estimate = sketch::kept_estimate(&found.value)
            .or_else(|| sketch::histogram(&found.value).map(|runs| estimate::cardinality(&runs)));
        return Ok(estimate.map_or(CORRUPT, Reply::Integer));
    }
    let mut runs = Box::new(NO_RUNS);
    for name in args {
        if let Some(found) = found!(sketch(tx, &Key::from(name), Intent::Read)) {
            argument!(sketch::merge(&mut runs, &found.value).map_err(|_| CORRUPT));
        }
    }
    let mut histogram = [0; 64];
    for &run in runs.iter() {
        histogram[usize::from(run)] += 1;
    }
    Ok(Reply::Integer(estimate::cardinality(&histogram)))
}

/// PFMERGE destkey [sourcekey ...]
pub async fn pfmerge(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let destination = Key::from(&args[0]);
    let old = found!(sketch(tx, &destination, Intent::Update));
    let mut runs = Box::new(NO_RUNS);
    let mut is_dense = false;
    let mut take_in = |bytes: &[u8]| {
        is_dense |= !sketch::is_sparse(bytes);
        sketch::merge(&mut runs, bytes).map_err(|_| CORRUPT)
    };
    if let Some(old) = &old {
        argument!(take_in(&old.value));
    }
    for name in &args[1..] {
        let key = Key::from(name);
        if key == destination {
            continue;
        }
        if let Some(found) = found!(sketch(tx, &key, Intent::Read)) {
            argument!(take_in(&found.value));
        }
    }
    let (mut sketch, expires_at_ms) = to_change(old);
    if is_dense {
        argument!(sketch.make_dense().map_err(|_| CORRUPT));
    }
    for (register, &run) in runs.iter().enumerate().filter(|(_, run)| **run > 0) {
        argument!(sketch.offer(register, run).map_err(|_| CORRUPT));
    }
    sketch.forget_estimate();
    put(tx, &destination, sketch.into_bytes(), expires_at_ms).await?;
    Ok(Reply::OK)
}

/// PFSELFTEST: tells a sketch a hundred thousand elements, and looks at what it makes of them, in both of its
/// forms.
pub fn pfselftest(_args: &[Blob]) -> Reply {
    const ELEMENTS: u64 = 100_000;
    /// Estimates are wrong by so much, as standard deviation; six of them are hardly ever exceeded.
    const ERROR: f64 = 0.0081;
    work::elements(ELEMENTS as usize);
    let mut sketch = Sketch::empty();
    let mut wanted = Box::new(NO_RUNS);
    let mut look_at = 1;
    for number in 1..=ELEMENTS {
        let (register, run) = sketch::offer_of(&number.to_le_bytes());
        wanted[register] = run.max(wanted[register]);
        let is_offered = sketch.offer(register, run).is_ok();
        if !is_offered || number == look_at && !is_as_told(&sketch, &wanted, number, ERROR) {
            return failed_selftest(number);
        }
        if number == look_at {
            look_at *= 10;
        }
    }
    Reply::OK
}

/// Whether a sketch has these runs, and estimates about so many elements.
fn is_as_told(sketch: &Sketch, wanted: &Runs, elements: u64, error: f64) -> bool {
    let bytes = sketch.clone().into_bytes();
    let mut runs = Box::new(NO_RUNS);
    let is_whole = sketch::merge(&mut runs, &bytes).is_ok();
    let estimate = sketch::histogram(&bytes).map(|runs| estimate::cardinality(&runs));
    let allowed = (elements as f64 * error * 6.0).ceil().max(1.0);
    let is_near = |estimate: i64| (estimate as f64 - elements as f64).abs() <= allowed;
    is_whole && *runs == *wanted && estimate.is_some_and(is_near)
}

fn failed_selftest(elements: u64) -> Reply {
    Reply::Error(format!("TESTFAILED a HyperLogLog is wrong after {elements} elements").into())
}

/// PFDEBUG <GETREG | DECODE | ENCODING | TODENSE> key
pub async fn pfdebug(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[1]);
    let Some(found) = found!(sketch(tx, &key, Intent::Update)) else {
        return Ok(NO_KEY);
    };
    let is_sparse = sketch::is_sparse(&found.value);
    match &args[0] {
        word if options::is(word, "ENCODING") => {
            Ok(Reply::Status(if is_sparse { "sparse" } else { "dense" }.into()))
        }
        word if options::is(word, "DECODE") => Ok(match is_sparse {
            true => Reply::bulk(sparse::describe(sketch::body(&found.value))),
            false => NOT_SPARSE,
        }),
        word if options::is(word, "GETREG") || options::is(word, "TODENSE") => {
            let mut runs = Box::new(NO_RUNS);
            argument!(sketch::merge(&mut runs, &found.value).map_err(|_| CORRUPT));
            if is_sparse {
                let mut dense = Sketch::of(&found.value);
                argument!(dense.make_dense().map_err(|_| CORRUPT));
                put(tx, &key, dense.into_bytes(), found.expires_at_ms).await?;
            }
            Ok(match options::is(word, "TODENSE") {
                true => Reply::Integer(i64::from(is_sparse)),
                false => {
                    let runs = runs.iter().map(|&run| Reply::Integer(i64::from(run)));
                    Reply::Array(runs.collect())
                }
            })
        }
        word => Ok(errors::unknown_pfdebug(word)),
    }
}
