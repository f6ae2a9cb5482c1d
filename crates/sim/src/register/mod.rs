//! A replicated register. Not built yet.

use crate::options::Options;
use crate::run::{Outcome, Report};
use crate::trace::Trace;
use crate::world::Violation;

/// Runs the register.
pub fn run(_: &Options, trace: Option<Trace>) -> Outcome {
    Outcome {
        report: Report::default(),
        violation: Some(Violation::new(
            "options",
            "there is no register yet: use --system ordo",
        )),
        trace,
    }
}
