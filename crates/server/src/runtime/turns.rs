//! Long reads take turns: so many run at once as there are workers, each for a while, and then who waits
//! longest. So nobody's endless scripts hold up another's read, and writers keep their processors.
//!
//! A turn ends where a computation asks whether to stop
//! ([`SnapshotReader::pausing`](execute::SnapshotReader::pausing)), or with its read.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a turn lasts while others wait.
const TURN: Duration = Duration::from_millis(10);

/// Who has a turn, and who waits for one.
pub(super) struct Turns {
    line: Mutex<Line>,
    changed: Condvar,
    /// How many wait: what a running read looks at, without the lock.
    waiting: AtomicUsize,
}

struct Line {
    /// How many more may run now.
    free: usize,
    /// Who waits, by number, the longest first.
    waiting: VecDeque<u64>,
    next: u64,
}

impl Turns {
    /// Turns for so many at once.
    pub(super) fn new(at_once: usize) -> Arc<Turns> {
        Arc::new(Turns {
            line: Mutex::new(Line { free: at_once, waiting: VecDeque::new(), next: 0 }),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Waits for a turn, behind all who wait already. `gives` says that the caller has one, which it gives up
    /// first.
    fn wait(&self, gives: bool) {
        let mut line = self.line.lock();
        line.free += usize::from(gives);
        let me = line.next;
        line.next += 1;
        line.waiting.push_back(me);
        self.waiting.store(line.waiting.len(), Ordering::Relaxed);
        if gives {
            self.changed.notify_all();
        }
        while line.free == 0 || line.waiting.front() != Some(&me) {
            self.changed.wait(&mut line);
        }
        line.waiting.pop_front();
        line.free -= 1;
        self.waiting.store(line.waiting.len(), Ordering::Relaxed);
        if line.free > 0 {
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        self.line.lock().free += 1;
        self.changed.notify_all();
    }
}

/// A thread that takes turns.
pub(super) struct Taker {
    turns: Arc<Turns>,
    began: Mutex<Instant>,
}

impl Taker {
    pub(super) fn new(turns: &Arc<Turns>) -> Arc<Taker> {
        Arc::new(Taker { turns: turns.clone(), began: Mutex::new(Instant::now()) })
    }

    /// Waits for a turn, which ends when what is returned is dropped.
    pub(super) fn take(&self) -> Turn<'_> {
        self.wait(false);
        Turn(&self.turns)
    }

    /// If its turn has lasted, and somebody waits: lets others run first.
    pub(super) fn pause(&self) {
        let is_alone = self.turns.waiting.load(Ordering::Relaxed) == 0;
        if !is_alone && self.began.lock().elapsed() >= TURN {
            self.wait(true);
        }
    }

    fn wait(&self, gives: bool) {
        self.turns.wait(gives);
        *self.began.lock() = Instant::now();
    }
}

/// A turn.
pub(super) struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
