//! The machine's two clocks: one that shows a date and that anybody may set, and one that only counts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the machine's clock shows, in milliseconds since 1970. Somebody may set it at any time.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Time since the machine started, in which it may have slept.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn counted() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Time since some moment of this process.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn counted() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

/// A clock that begins with the date of its making, and from then on only counts: nobody can set it. What a node takes for its
/// steady time ([`node::clock`]).
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    /// The date less what is counted.
    began_ms: u64,
}

impl SteadyClock {
    /// A clock that begins now.
    pub fn start() -> SteadyClock {
        let counted_ms = counted().as_millis() as u64;
        SteadyClock {
            began_ms: wall_ms().saturating_sub(counted_ms),
        }
    }

    /// The steady time, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.began_ms + counted().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_clock_begins_with_the_date_and_does_not_go_back() {
        let before_ms = wall_ms();
        let clock = SteadyClock::start();
        let mut last_ms = clock.now_ms();
        assert!(last_ms + 1 >= before_ms, "{last_ms}, {before_ms}");
        for _ in 0..1_000 {
            let now_ms = clock.now_ms();
            assert!(now_ms >= last_ms);
            last_ms = now_ms;
        }
    }
}
