//! The final position, published with what belongs to it.

use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use txn::Position;

/// What is true at the newest final position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Final {
    /// The position.
    pub position: Position,
    /// Its epoch time.
    pub time_ms: u64,
    /// The number of live user entries.
    pub live: i64,
}

/// A sequence lock around [`Final`]: one writer at a time (the engine's committer), readers that never block
/// it.
///
/// A reader that meets a write in progress reads again; the writer is between six stores, so that happens
/// rarely and not for long.
#[derive(Debug, Default)]
pub struct Published {
    sequence: AtomicU64,
    position: AtomicU64,
    time_ms: AtomicU64,
    live: AtomicI64,
}

impl Published {
    /// Reads all of it at one instant.
    pub fn read(&self) -> Final {
        loop {
            let before = self.sequence.load(Ordering::SeqCst);
            let found = Final {
                position: Position(self.position.load(Ordering::SeqCst)),
                time_ms: self.time_ms.load(Ordering::SeqCst),
                live: self.live.load(Ordering::SeqCst),
            };
            if before.is_multiple_of(2) && self.sequence.load(Ordering::SeqCst) == before {
                return found;
            }
            crate::sync::hint_read_again();
        }
    }
    /// The position alone.
    #[inline]
    pub fn position(&self) -> Position {
        Position(self.position.load(Ordering::SeqCst))
    }
    /// Publishes. One caller at a time.
    pub fn write(&self, new: Final) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::SeqCst);
        self.position.store(new.position.0, Ordering::SeqCst);
        self.time_ms.store(new.time_ms, Ordering::SeqCst);
        self.live.store(new.live, Ordering::SeqCst);
        self.sequence.store(sequence + 2, Ordering::SeqCst);
    }
}
