//! The machine's two clocks: one that shows a date and that anybody may set, and one that only counts.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the machine's clock shows, in milliseconds since 1970. Somebody may set it at any time.
pub fn wall_ms() -> u64 {
    wall().as_millis() as u64
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
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

/// A clock that begins with the date of its making, and from then on only counts: nobody can set it. What a
/// node takes for its steady time ([`node::clock`]).
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    /// The date less what is counted.
    began: Duration,
}

/// The wall clock may be read as much later than the steady one without seeming ahead of it.
const READ_APART_NS: i128 = 100_000;

impl SteadyClock {
    /// A clock that begins now.
    pub fn start() -> SteadyClock {
        // In this order: what comes in between makes it early rather than late.
        let counted = counted();
        SteadyClock { began: wall().saturating_sub(counted) }
    }

    fn now(&self) -> Duration {
        self.began + counted()
    }

    /// The steady time, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now().as_millis() as u64
    }

    /// The steady time and what the machine's clock shows, in milliseconds.
    ///
    /// Their distance is rounded up, so that a node that follows it is never behind the dates that clients of
    /// this machine read: a key that they give until a date would live a millisecond longer than they think.
    pub fn with_wall_ms(&self) -> (u64, u64) {
        let steady = self.now();
        beside(steady, wall())
    }
}

/// The clocks that sessions read. A test sets them by hand.
#[derive(Clone, Copy, Debug)]
pub enum Clocks {
    /// The machine's clocks, and the node's steady one.
    Machine(SteadyClock),
    /// Clocks that all show the same time.
    Set {
        /// The instant at which they showed 0.
        origin: Instant,
        /// In milliseconds since 1970.
        now_ms: u64,
    },
}

impl Clocks {
    /// The steady time, in milliseconds since 1970.
    pub fn steady_ms(&self) -> u64 {
        match self {
            Clocks::Machine(steady) => steady.now_ms(),
            Clocks::Set { now_ms, .. } => *now_ms,
        }
    }

    /// What the machine's clock shows: the time since 1970.
    pub fn wall(&self) -> Duration {
        match self {
            Clocks::Machine(_) => wall(),
            Clocks::Set { now_ms, .. } => Duration::from_millis(*now_ms),
        }
    }

    /// The same, in milliseconds.
    pub fn wall_ms(&self) -> u64 {
        self.wall().as_millis() as u64
    }

    /// A time that is compared with others of this process only.
    pub fn instant(&self) -> Instant {
        match self {
            Clocks::Machine(_) => Instant::now(),
            Clocks::Set { origin, now_ms } => *origin + Duration::from_millis(*now_ms),
        }
    }
}

fn beside(steady: Duration, wall: Duration) -> (u64, u64) {
    let steady_ms = steady.as_millis() as u64;
    let ahead_ns = wall.as_nanos().cast_signed() - steady.as_nanos().cast_signed();
    let ahead_ms = (ahead_ns - READ_APART_NS).div_euclid(1_000_000) as i64 + 1;
    (steady_ms, steady_ms.saturating_add_signed(ahead_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_clock_begins_with_the_date_and_does_not_go_back() {
        let before_ms = wall_ms();
        let clock = SteadyClock::start();
        let mut last_ms = clock.now_ms();
        assert!(last_ms >= before_ms, "{last_ms}, {before_ms}");
        for _ in 0..1_000 {
            let now_ms = clock.now_ms();
            assert!(now_ms >= last_ms);
            last_ms = now_ms;
        }
    }

    #[test]
    fn what_follows_the_machines_clock_is_at_most_a_millisecond_ahead_and_not_behind() {
        let steady = Duration::from_micros(5_000_900);
        let lead_ms = |wall: Duration| {
            let (steady_ms, wall_ms) = beside(steady, wall);
            assert_eq!(steady_ms, 5_000);
            wall_ms.cast_signed() - steady_ms.cast_signed()
        };
        assert_eq!(lead_ms(steady), 0, "in step");
        for ahead_us in (0..3_000).step_by(10) {
            let wall = steady + Duration::from_micros(ahead_us);
            let error_us = lead_ms(wall) * 1_000 - ahead_us.cast_signed();
            assert!((-100..1_000).contains(&error_us), "{ahead_us}: {error_us}");
        }
        assert_eq!(lead_ms(steady - Duration::from_micros(1_500)), -1);
        assert_eq!(lead_ms(steady - Duration::from_secs(2)), -2_000);
        assert_eq!(beside(steady, Duration::ZERO), (5_000, 0));
    }
}
