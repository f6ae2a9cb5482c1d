//! The adaptive speculation window.
//!
//! An unbounded window collapses under contention: one early transaction that restarts invalidates hundreds
//! of later ones, which restart, and so on. The window (how far past the head transactions are started)
//! therefore follows what speculation is worth: every [`ROUND`] commits it halves if more than one
//! incarnation was thrown away for eight commits, and grows by a sixteenth if less than one for thirty-two
//! was: bursts of restarts are rare rounds among good ones, and a window that grew back as fast as it shrank
//! would be at its largest when the next burst comes. It never falls below what the workers can run at once.
//! While the order confirms and nothing commits all the same, it is looked at every [`ROUND`] incarnations
//! that are thrown away, too. (One that is doomed beyond the window's end counts when the head has come so
//! close that it is undone: after a window has shrunk, it stays small until what it left out is through.)
//!
//! Where transactions wait for siblings, a window is worth more, because the time would pass anyway: then it
//! is halved below what was asked for only while more incarnations are thrown away than transactions
//! final-commit, and grows back fast. (A log of six processes' contended transfers, replayed on two cores:
//! 2.4 s so, and 4.0 s with what was asked for as the least. In the scale model that costs 1 to 3 %, and a
//! fifth if it began at one incarnation for two commits.)

use store::sync::atomic::{AtomicU64, Ordering};

/// Commits between two looks, or incarnations that were thrown away.
pub(crate) const ROUND: u64 = 64;

#[derive(Debug)]
pub(crate) struct Window {
    size: AtomicU64,
    /// Two for each that runs at the same time: one that does, and one to run when the first parks.
    least: u64,
    /// It gets smaller only if speculation costs more than it can be worth.
    min: u64,
    max: u64,
}

/// The committer's part: behind its latch.
#[derive(Debug, Default)]
pub(crate) struct Controller {
    commits: u64,
    restarts_before: u64,
}

impl Window {
    pub(crate) fn new(at_once: usize, min: usize, capacity: usize) -> Window {
        let least = (2 * at_once.max(1)).min(capacity) as u64;
        let min = least.max(min.min(capacity) as u64);
        Window { size: AtomicU64::new((capacity as u64 / 16).max(min)), least, min, max: capacity as u64 }
    }
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }
    /// Counts commits; `restarts` is cumulative. To be called after every [`ROUND`] of those too: nothing may
    /// commit for long while everything behind it is executed again and again.
    pub(crate) fn committed(&self, controller: &mut Controller, commits: u64, restarts: u64) {
        controller.commits += commits;
        let thrown_away = restarts - controller.restarts_before;
        if controller.commits.max(thrown_away) < ROUND {
            return;
        }
        let size = self.size();
        let new = if thrown_away > controller.commits {
            (size / 2).max(self.least)
        } else if size < self.min {
            match thrown_away * 2 < controller.commits {
                true => (size + size / 4 + 1).min(self.min),
                false => size,
            }
        } else if thrown_away * 8 > controller.commits {
            (size / 2).max(self.min)
        } else if thrown_away * 32 < controller.commits {
            (size + size / 16 + 1).min(self.max)
        } else {
            size
        };
        self.size.store(new, Ordering::Relaxed);
        controller.commits = 0;
        controller.restarts_before = restarts;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_share_of_restarts_within_its_bounds() {
        let window = Window::new(2, 0, 1024);
        let mut controller = Controller::default();
        let mut restarts = 0;
        for _ in 0..100 {
            restarts += ROUND;
            window.committed(&mut controller, ROUND, restarts);
        }
        assert_eq!(window.size(), 4);
        for _ in 0..100 {
            window.committed(&mut controller, ROUND, restarts);
        }
        assert_eq!(window.size(), 1024);
        restarts += ROUND / 16;
        window.committed(&mut controller, ROUND, restarts);
        assert_eq!(window.size(), 1024);
        assert_eq!(Window::new(2, 300, 1024).min, 300);
        assert_eq!(Window::new(2, 3_000, 1024).min, 1024);
    }

    #[test]
    fn what_was_asked_for_is_the_least_until_more_is_thrown_away_than_commits() {
        let window = Window::new(2, 300, 1024);
        let mut controller = Controller::default();
        let mut restarts = 0;
        let mut sizes = |share: fn(u64) -> u64| {
            for _ in 0..100 {
                restarts += share(ROUND);
                window.committed(&mut controller, ROUND, restarts);
            }
            window.size()
        };
        assert_eq!(sizes(|round| round), 300);
        assert_eq!(sizes(|round| round + 1), 4);
        assert_eq!(sizes(|round| round / 2), 4);
        assert_eq!(sizes(|round| round / 2 - 1), 300);
        assert_eq!(sizes(|_| 0), 1024);
    }
}
