//! Tests of scripts over the stand-in of an engine.

mod double;
mod functions;
mod hostile;
mod limits;
mod owed;
mod replies;
mod sandbox;
mod suspension;

use super::{Limits, MEMORY_BYTES_MIN, set_limits};

/// The limits that all tests of this process share: small, so that reaching them is quick.
const LIMITS: Limits = Limits { steps_max: 5_000_000, memory_bytes_max: MEMORY_BYTES_MIN };

fn set_up_limits() {
    set_limits(LIMITS);
    assert_eq!(super::limits(), LIMITS, "no script may run in this process before the tests' limits are set");
}
