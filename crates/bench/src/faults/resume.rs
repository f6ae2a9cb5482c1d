//! How long clients had to wait because of a fault.
//!
//! Two figures of one round. *Resumed* is the time from the fault to the first acknowledgement of a write
//! that was sent after the fault to a node that the fault did not hit (to any node, if it hit all). *Pause*
//! is the longest time without an acknowledgement of any write from then on, so an early lucky one can't hide
//! an outage.

use std::sync::atomic::{AtomicU64, Ordering};

/// Not yet.
const NEVER: u64 = u64::MAX;

/// What the clients of a round share. Times are in nanoseconds since the run began.
pub struct Resume {
    /// When the fault was complete.
    since_ns: AtomicU64,
    /// A bit for each node that was not hit.
    survivors: AtomicU64,
    first_ns: AtomicU64,
}

impl Default for Resume {
    fn default() -> Resume {
        Resume {
            since_ns: AtomicU64::new(NEVER),
            survivors: AtomicU64::new(0),
            first_ns: AtomicU64::new(NEVER),
        }
    }
}

impl Resume {
    /// A fault that hits `victims` of `nodes` is complete.
    pub fn begin(&self, now_ns: u64, nodes: usize, victims: &[usize]) {
        let all = (1 << nodes) - 1;
        let hit: u64 = victims.iter().map(|&victim| 1 << victim).sum();
        let survivors = if hit == all { all } else { all & !hit };
        self.survivors.store(survivors, Ordering::SeqCst);
        self.since_ns.store(now_ns, Ordering::SeqCst);
    }
    /// A node has acknowledged a write.
    pub fn note(&self, node: usize, invoked_ns: u64, completed_ns: u64) {
        if invoked_ns >= self.since_ns.load(Ordering::SeqCst)
            && self.survivors.load(Ordering::SeqCst) & (1 << node) != 0
        {
            self.first_ns.fetch_min(completed_ns, Ordering::SeqCst);
        }
    }
    /// When the first write was acknowledged after the fault.
    pub fn first_ns(&self) -> Option<u64> {
        Some(self.first_ns.load(Ordering::SeqCst)).filter(|&first| first != NEVER)
    }
}

/// The longest time without an acknowledgement from `since_ns` to the last one.
pub fn longest_pause_ns(acknowledged_ns: &mut [u64], since_ns: u64) -> u64 {
    acknowledged_ns.sort_unstable();
    let mut before = since_ns;
    let mut longest = 0;
    for &at in acknowledged_ns.iter().filter(|&&at| at > since_ns) {
        longest = longest.max(at - before);
        before = at;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_that_was_sent_after_the_fault_to_a_survivor() {
        let resume = Resume::default();
        resume.note(0, 5, 10);
        resume.begin(100, 3, &[1]);
        resume.note(1, 110, 120);
        resume.note(0, 99, 130);
        assert_eq!(resume.first_ns(), None);
        resume.note(2, 100, 150);
        resume.note(0, 105, 140);
        resume.note(0, 160, 170);
        assert_eq!(resume.first_ns(), Some(140));
        let all = Resume::default();
        all.begin(100, 2, &[0, 1]);
        all.note(1, 101, 102);
        assert_eq!(all.first_ns(), Some(102));
    }

    #[test]
    fn a_pause_begins_with_the_fault_at_the_earliest() {
        let mut acknowledged = [900, 10, 130, 220, 110];
        assert_eq!(longest_pause_ns(&mut acknowledged, 100), 680);
        assert_eq!(longest_pause_ns(&mut acknowledged, 220), 680);
        assert_eq!(longest_pause_ns(&mut acknowledged[..3], 100), 20);
        assert_eq!(longest_pause_ns(&mut [], 100), 0);
    }
}
