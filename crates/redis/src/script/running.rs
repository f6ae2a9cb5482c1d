//! Which scripts run now, for people: SCRIPT KILL and the server's log tell it. It decides nothing.

use super::run::{Execution, Part};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use txn::RequestName;

/// What is shown of a script's first line.
const LINE_BYTES_MAX: usize = 100;

/// A script or a function that has run for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningScript {
    /// Tells runs apart: of two, the later one has the larger number.
    pub number: u64,
    /// The digest of a script, or the name of a function.
    pub name: String,
    /// The first line of its code, as far as it is shown.
    pub first_line: String,
    /// What its request is called, if it is in the order and not at a snapshot.
    pub request: Option<RequestName>,
    /// The time of its epoch, or of its snapshot, in milliseconds since 1970.
    pub time_ms: u64,
}

impl fmt::Display for RunningScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (\"{}\")", self.name, self.first_line)?;
        match self.request {
            Some(request) => write!(f, ", which is request {request} of the order"),
            None => Ok(()),
        }
    }
}

static RUNNING: Mutex<BTreeMap<u64, RunningScript>> = Mutex::new(BTreeMap::new());
static NUMBERS: AtomicU64 = AtomicU64::new(0);

fn all() -> MutexGuard<'static, BTreeMap<u64, RunningScript>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The scripts that this process runs right now, apart from those that have only just begun: the oldest run
/// first.
pub fn running() -> Vec<RunningScript> {
    all().values().cloned().collect()
}

/// Whether there are any.
pub fn is_running() -> bool {
    !all().is_empty()
}

/// A run that is long enough to be told of. Dropped when it ends.
pub(super) struct LongRun(u64);

impl LongRun {
    pub fn begin(execution: &Execution) -> LongRun {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let code = execution.program.code();
        let line = code.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let name = match &execution.program.part {
            Part::Registrations => "a library that is loaded".to_owned(),
            Part::Script | Part::Function(_) => execution.program.name(),
        };
        let run = RunningScript {
            number,
            name,
            first_line: line[..line.len().min(LINE_BYTES_MAX)].escape_ascii().to_string(),
            request: execution.tx.name(),
            time_ms: execution.tx.now_ms(),
        };
        all().insert(number, run);
        LongRun(number)
    }
}

impl Drop for LongRun {
    fn drop(&mut self) {
        all().remove(&self.0);
    }
}
