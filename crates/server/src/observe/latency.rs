//! Events that took longer than `latency-monitor-threshold`, by their kind: what LATENCY tells of.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A call of a command.
pub const COMMAND: &str = "command";
/// A call of a command that should be fast.
pub const FAST_COMMAND: &str = "fast-command";

/// The log was made durable, and writes waited for it (`appendfsync always`).
pub const FSYNC_ALWAYS: &str = "aof-fsync-always";
/// The log was made durable, and nobody waited for it.
pub const FSYNC: &str = "aof-fsync";
/// A checkpoint was written.
pub const CHECKPOINT: &str = "checkpoint";

/// How many samples are kept of each kind.
const SAMPLES_MAX: usize = 160;

/// What is kept of one kind of event.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The newest samples, oldest first: the second since 1970, and the longest event in it, in milliseconds.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest since the last reset, in milliseconds.
    pub max_ms: u64,
}

/// All kinds of slow events.
#[derive(Default)]
pub struct LatencyEvents {
    /// In milliseconds; 0: nothing is kept.
    threshold_ms: AtomicU64,
    by_event: Mutex<BTreeMap<&'static str, Samples>>,
}

impl LatencyEvents {
    /// Sets the threshold. 0: nothing is kept.
    pub fn set_threshold_ms(&self, threshold_ms: u64) {
        self.threshold_ms.store(threshold_ms, Ordering::Relaxed);
    }

    /// The threshold.
    pub fn threshold_ms(&self) -> u64 {
        self.threshold_ms.load(Ordering::Relaxed)
    }

    /// An event of a kind took so long, and ended at `at_s`, in seconds since 1970.
    pub fn note(&self, event: &'static str, took: Duration, at_s: u64) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let threshold_ms = self.threshold_ms();
        if threshold_ms == 0 || ms < threshold_ms {
            return;
        }
        let mut by_event = self.by_event.lock();
        let kept = by_event.entry(event).or_default();
        kept.max_ms = kept.max_ms.max(ms);
        match kept.samples.back_mut() {
            Some((second, longest)) if *second == at_s => *longest = ms.max(*longest),
            _ => {
                if kept.samples.len() == SAMPLES_MAX {
                    kept.samples.pop_front();
                }
                kept.samples.push_back((at_s, ms));
            }
        }
    }

    /// What is kept of a kind, whatever the case of its name.
    pub fn of(&self, event: &[u8]) -> Option<(&'static str, Samples)> {
        let by_event = self.by_event.lock();
        let (event, samples) =
            by_event.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(event))?;
        Some((event, samples.clone()))
    }

    /// What is kept of all kinds.
    pub fn all(&self) -> BTreeMap<&'static str, Samples> {
        self.by_event.lock().clone()
    }

    /// Forgets the kinds that `which` picks. Returns how many that were.
    pub fn forget(&self, which: impl Fn(&str) -> bool) -> usize {
        let mut by_event = self.by_event.lock();
        let before = by_event.len();
        by_event.retain(|event, _| !which(event));
        before - by_event.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_slow_is_kept_and_one_sample_a_second() {
        let events = LatencyEvents::default();
        let note = |ms, at_s| events.note(COMMAND, Duration::from_millis(ms), at_s);
        note(1000, 1);
        assert!(events.all().is_empty(), "it is off");
        events.set_threshold_ms(10);
        for (ms, at_s) in [(9, 1), (10, 2), (30, 2), (20, 2), (11, 3)] {
            note(ms, at_s);
        }
        let (name, kept) = events.of(b"COMMAND").expect("events");
        assert_eq!((name, kept.max_ms), ("command", 30));
        assert_eq!(kept.samples, [(2, 30), (3, 11)]);
        for at_s in 10..500 {
            note(15, at_s);
        }
        let (_, kept) = events.of(b"command").expect("events");
        assert_eq!((kept.samples.len(), kept.samples[0]), (SAMPLES_MAX, (340, 15)));
        assert_eq!(events.forget(|event| event == "fork"), 0);
        assert_eq!(events.forget(|_| true), 1);
        assert!(events.of(b"command").is_none());
    }
}
