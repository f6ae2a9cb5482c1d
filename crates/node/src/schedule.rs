//! When the next checkpoint is due.
//!
//! A start reads the newest checkpoint and executes the log behind it again, which takes far longer per byte.
//! A checkpoint writes all data once more. So the log may grow by as much as the last checkpoint has before
//! the next is due, and by a floor at least: a small data set gets its checkpoints often, so that a restart
//! stays short, and of a large one no more bytes are written as checkpoints than as log.
//!
//! Bytes say little about how long a log takes to execute: a script that computes for a millisecond has as
//! many as one that does not. What was executed in a few seconds can be executed again in less, so after
//! [`EARLY_MS`] a shorter log is enough; as long as checkpoints are not written faster than
//! [`EARLY_BYTES_PER_MS`] on the average, or many times as often as the log is. What a process has found in
//! its log when it began is old, whatever the last checkpoint's size: who crashes again and again has no more
//! to do each time.

/// The log behind a checkpoint is older than this before it counts as old.
const EARLY_MS: u64 = 2_000;
/// The floor for a log that is old.
const EARLY_FLOOR_BYTES: u64 = 256 << 10;
/// About 1 MiB a second.
const EARLY_BYTES_PER_MS: u64 = 1 << 10;
/// The share (1 / it) of the last checkpoint by which an old log must have grown.
const EARLY_SHARE: u64 = 8;

/// See the [module's head](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The least log between two checkpoints; 0 if there are none but on demand.
    floor_bytes: u64,
    /// The size of the last checkpoint, in all its files; 0 without one.
    last_bytes: u64,
}

impl Schedule {
    /// With the size of the checkpoint that a start has loaded, 0 without one.
    pub fn new(floor_bytes: u64, last_bytes: u64) -> Schedule {
        Schedule { floor_bytes, last_bytes }
    }

    /// A checkpoint of this size was written.
    pub fn written(&mut self, bytes: u64) {
        self.last_bytes = bytes;
    }

    /// Whether a checkpoint is due when the log has so many bytes behind the last one, which was so long ago.
    pub fn is_due(&self, log_bytes: u64, since_ms: u64) -> bool {
        let is_old = since_ms >= EARLY_MS.max(self.last_bytes / EARLY_BYTES_PER_MS);
        let (floor_bytes, share_bytes) = match is_old {
            true => (self.floor_bytes.min(EARLY_FLOOR_BYTES), self.last_bytes / EARLY_SHARE),
            false => (self.floor_bytes, self.last_bytes),
        };
        floor_bytes > 0 && log_bytes >= floor_bytes.max(share_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_grows_by_the_floor_and_by_the_last_checkpoint() {
        let mut schedule = Schedule::new(100, 0);
        let at = |schedule: &Schedule| (0..1_000).find(|&bytes| schedule.is_due(bytes, 0));
        assert_eq!(at(&schedule), Some(100));
        schedule.written(99);
        assert_eq!(at(&schedule), Some(100), "the floor counts for what is small");
        schedule.written(730);
        assert_eq!(at(&schedule), Some(730));
        // A FLUSHALL came in between.
        schedule.written(40);
        assert_eq!(at(&schedule), Some(100));
        assert_eq!(at(&Schedule::new(100, 640)), Some(640), "after a restart");
    }

    #[test]
    fn a_log_that_is_old_need_not_be_long() {
        let mut schedule = Schedule::new(16 << 20, 0);
        assert!(!schedule.is_due(EARLY_FLOOR_BYTES, EARLY_MS - 1));
        assert!(schedule.is_due(EARLY_FLOOR_BYTES, EARLY_MS));
        assert!(!schedule.is_due(EARLY_FLOOR_BYTES - 1, u64::MAX));
        // Thirty-two MiB, at most every 32 s, and for no less than four MiB of log.
        schedule.written(32 << 20);
        assert!(!schedule.is_due(16 << 20, 32 * 1024 - 1));
        assert!(schedule.is_due(4 << 20, 32 * 1024));
        assert!(!schedule.is_due((4 << 20) - 1, u64::MAX));
        let small = Schedule::new(100, 0);
        assert!(small.is_due(100, EARLY_MS) && !small.is_due(99, EARLY_MS));
    }

    #[test]
    fn without_a_floor_there_are_none_but_on_demand() {
        let mut schedule = Schedule::new(0, 0);
        assert!(!schedule.is_due(u64::MAX, u64::MAX));
        schedule.written(10);
        assert!(!schedule.is_due(u64::MAX, u64::MAX));
    }
}
