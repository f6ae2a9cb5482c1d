//! Tells the log of ordered scripts that take long, while they run: the last line of a process that ends of
//! one, or hangs in one, names it.

use redis_surface::script::running;
use std::collections::BTreeMap;
use std::io;
use std::sync::Once;
use std::time::{Duration, Instant};

/// How often the thread looks.
const LOOK: Duration = Duration::from_millis(250);
/// A script is told of when it has run for so long.
const LONG: Duration = Duration::from_secs(1);

/// Starts the process's watching thread, unless it has one.
pub(crate) fn start() -> io::Result<()> {
    static STARTED: Once = Once::new();
    let mut started = Ok(());
    STARTED.call_once(|| {
        let thread = std::thread::Builder::new().name("ordo-watch".to_owned());
        started = thread.spawn(watch).map(drop);
    });
    started
}

fn watch() {
    // When each run was first seen; none once it has been told of.
    let mut seen: BTreeMap<u64, Option<Instant>> = BTreeMap::new();
    loop {
        std::thread::sleep(LOOK);
        let running = running();
        seen.retain(|number, _| running.iter().any(|run| run.number == *number));
        for run in running.iter().filter(|run| run.request.is_some()) {
            let since = seen.entry(run.number).or_insert_with(|| Some(Instant::now()));
            if since.is_some_and(|since| since.elapsed() >= LONG) {
                *since = None;
                tracing::warn!(
                    "a script of the order has run for {} s, and others wait for it: {run}. It ends at its \
                     step limit at the latest",
                    LONG.as_secs()
                );
            }
        }
    }
}
