//! Warnings that strangers can cause must not fill the log.

use std::time::{Duration, Instant};

/// Lets one warning of each kind through in a while.
pub(crate) struct Warnings<const KINDS: usize> {
    interval: Duration,
    /// For each kind: when the last one was let through, and how many were not since.
    kinds: [Option<(Instant, u64)>; KINDS],
}

impl<const KINDS: usize> Warnings<KINDS> {
    pub fn new(interval: Duration) -> Warnings<KINDS> {
        Warnings { interval, kinds: [None; KINDS] }
    }

    /// Whether a warning may be logged now, and how many of its kind were not since the last one.
    pub fn admit(&mut self, kind: usize, now: Instant) -> Option<u64> {
        match &mut self.kinds[kind] {
            Some((last, kept)) if now < *last + self.interval => {
                *kept += 1;
                None
            }
            other => Some(other.replace((now, 0)).map_or(0, |(_, kept)| kept)),
        }
    }

    /// Forgets what was logged.
    pub fn reset(&mut self) {
        self.kinds = [None; KINDS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_let_through_once_in_a_while_and_counted() {
        let mut warnings: Warnings<2> = Warnings::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(warnings.admit(0, at(0)), Some(0));
        assert_eq!(warnings.admit(0, at(1)), None);
        assert_eq!(warnings.admit(0, at(9)), None);
        assert_eq!(warnings.admit(1, at(9)), Some(0), "another kind");
        assert_eq!(warnings.admit(0, at(10)), Some(2));
        assert_eq!(warnings.admit(0, at(19)), None);
        warnings.reset();
        assert_eq!(warnings.admit(0, at(19)), Some(0));
    }
}
