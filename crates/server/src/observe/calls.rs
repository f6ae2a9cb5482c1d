//! How often each command was called, and how long that took.

use hdrhistogram::Histogram;
use redis_surface::table::{COMMANDS_COUNT, CommandNumber};

/// The longest call that a histogram tells apart from longer ones.
const CALL_NS_MAX: u64 = 100_000_000_000;
/// Values are kept to so many digits.
const DIGITS: u8 = 2;

/// What is known of the calls of one command.
#[derive(Clone, Debug, Default)]
pub struct CallCount {
    /// Calls that were answered.
    pub calls: u64,
    /// How long they took, together, in nanoseconds.
    pub ns: u64,
    /// Calls that were refused before they ran.
    pub rejected: u64,
    /// Calls that were answered by an error.
    pub failed: u64,
    /// How long each took, in nanoseconds. `None` as long as there is none, or `latency-tracking` is off.
    pub histogram: Option<Box<Histogram<u64>>>,
}

impl CallCount {
    /// Counts a call of so many nanoseconds.
    #[inline]
    pub fn add(&mut self, ns: u64, failed: bool) {
        self.calls += 1;
        self.ns += ns;
        self.failed += u64::from(failed);
    }

    /// Keeps the duration of a call, in nanoseconds, in the histogram.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if self.histogram.is_none() {
            let made = Histogram::new_with_bounds(1, CALL_NS_MAX, DIGITS);
            self.histogram = made.ok().map(Box::new);
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(ns);
        }
    }

    fn merge(&mut self, other: &CallCount) {
        self.calls += other.calls;
        self.ns += other.ns;
        self.rejected += other.rejected;
        self.failed += other.failed;
        match (&mut self.histogram, &other.histogram) {
            (Some(own), Some(other)) => {
                if let Err(error) = own.add(&**other) {
                    tracing::debug!("histograms of the same bounds do not add up: {error}");
                }
            }
            (own @ None, other) => own.clone_from(other),
            (Some(_), None) => {}
        }
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.calls == 0 && self.rejected == 0 && self.failed == 0
    }
}

/// The calls of all commands: those of one thread, or of all together.
#[derive(Clone)]
pub struct CallCounts {
    by_number: Vec<CallCount>,
}

impl Default for CallCounts {
    fn default() -> CallCounts {
        CallCounts { by_number: vec![CallCount::default(); COMMANDS_COUNT] }
    }
}

impl CallCounts {
    /// What is known of one command.
    #[inline]
    pub fn of(&mut self, number: CommandNumber) -> &mut CallCount {
        &mut self.by_number[number.index()]
    }

    /// Adds what another thread has counted.
    pub fn merge(&mut self, other: &CallCounts) {
        for (own, other) in self.by_number.iter_mut().zip(&other.by_number) {
            own.merge(other);
        }
    }

    /// The commands to which something has happened.
    pub fn iter(&self) -> impl Iterator<Item = (CommandNumber, &CallCount)> {
        let all = CommandNumber::all().zip(&self.by_number);
        all.filter(|(_, count)| !count.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_threads_add_up() {
        let get = redis_surface::table::find_number(b"get").expect("a command");
        let id = redis_surface::table::find_number(b"client|id").expect("a subcommand");
        let mut threads = [CallCounts::default(), CallCounts::default()];
        for (thread, number, ns) in [(0, get, 1000), (0, get, 3000), (1, get, 2000), (1, id, 10)] {
            threads[thread].of(number).add(ns, thread == 1);
            threads[thread].of(number).record(ns);
        }
        threads[1].of(id).rejected += 1;
        let mut all = CallCounts::default();
        for thread in &threads {
            all.merge(thread);
        }
        let shown: Vec<_> = all
            .iter()
            .map(|(number, count)| {
                let recorded = count.histogram.as_ref().map_or(0, |kept| kept.len());
                let CallCount { calls, ns, rejected, failed, .. } = *count;
                (number.command().name, calls, ns, rejected, failed, recorded)
            })
            .collect();
        assert_eq!(shown, [("get", 3, 6000, 0, 1, 3), ("client|id", 1, 10, 1, 1, 1)]);
        let median = all.of(get).histogram.as_ref().map(|kept| kept.value_at_quantile(0.5));
        assert!(median.is_some_and(|ns| (1980..=2020).contains(&ns)), "{median:?}");
    }

    #[test]
    fn a_call_of_any_length_is_kept() {
        let mut count = CallCount::default();
        for ns in [0, 1, CALL_NS_MAX, u64::MAX] {
            count.record(ns);
        }
        assert_eq!(count.histogram.map(|kept| kept.len()), Some(4));
    }
}
