//! When, or how often, records were used: what eviction chooses its victims by.
//!
//! Each record has one word for it, and nothing is kept unless a limit of memory needs it ([`Keeping`]). As
//! in Redis the word is a coarse time (least recently used), or a time and a counter that grows ever more
//! slowly and shrinks with time (least frequently used). It is this process's own and no part of the state:
//! replicas differ in it, so what comes of it has to be ordered.
//!
//! Who finds a record through the index uses it: transactions and reads of single keys, whether they write or
//! not. Scans, checkpoints and collection do not. A word may be lost when two use a record at once; nobody
//! waits for it.

// Not the model checker's: nothing that it checks depends on these words.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A time of use counts so many milliseconds: 32 bits of them last for half a year. (Much may be written, and
/// evicted, in a tenth of a second.)
const RECENCY_UNIT_MS: u64 = 4;
const MINUTE_MS: u64 = 60_000;
/// What a record counts when it is new, so that it is not the first to go (Redis's LFU_INIT_VAL).
const FREQUENCY_FIRST: u32 = 5;

/// What is kept of how records are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// Nothing.
    #[default]
    Nothing,
    /// When each was used last.
    Recency,
    /// About how often each was used lately.
    Frequency {
        /// The higher, the more uses a counter needs to grow (Redis's `lfu-log-factor`).
        log_factor: u8,
        /// In so many minutes a counter shrinks by one; 0: never (`lfu-decay-time`).
        decay_minutes: u16,
    },
}

const RECENCY: u64 = 1;
const FREQUENCY: u64 = 2;

/// What is kept, and the time: of a partition. Packed into one word that every use of a record looks at: 2
/// bits of what is kept, 8 of the factor, 16 of the decay, 32 of the time in the unit of what is kept.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    /// Sets what is kept from now on, and the time.
    pub fn set(&self, keeping: Keeping, now_ms: u64) {
        let word = match keeping {
            Keeping::Nothing => 0,
            // Never 0, which is what a record says that was not used since.
            Keeping::Recency => RECENCY | (now_ms / RECENCY_UNIT_MS).max(1) << 32,
            Keeping::Frequency { log_factor, decay_minutes } => {
                let minutes = (now_ms / MINUTE_MS) & 0xffff;
                FREQUENCY | u64::from(log_factor) << 2 | u64::from(decay_minutes) << 10 | minutes << 32
            }
        };
        self.0.store(word, Ordering::Relaxed);
    }

    /// A record was used.
    #[inline]
    pub fn touch(&self, usage: &Usage) {
        let clock = self.0.load(Ordering::Relaxed);
        if clock != 0 {
            usage.touch(clock);
        }
    }

    /// How little a record is used: of two, the one that has more is the better victim. By recency
    /// milliseconds since its last use, by frequency 255 less its counter; 0 where nothing is kept.
    pub fn idleness(&self, usage: &Usage) -> u64 {
        let clock = self.0.load(Ordering::Relaxed);
        let word = usage.0.load(Ordering::Relaxed);
        match clock & 3 {
            RECENCY => u64::from(((clock >> 32) as u32).wrapping_sub(word)) * RECENCY_UNIT_MS,
            FREQUENCY => u64::from(255 - counter(word, clock)),
            _ => 0,
        }
    }
}

/// A record's word: the time of the last use, or the minute of it above an 8-bit counter.
#[derive(Debug, Default)]
pub(crate) struct Usage(AtomicU32);

impl Usage {
    fn touch(&self, clock: u64) {
        let now = (clock >> 32) as u32;
        if clock & 3 == RECENCY {
            return self.0.store(now, Ordering::Relaxed);
        }
        let word = self.0.load(Ordering::Relaxed);
        let mut count = counter(word, clock);
        let over = u64::from(count.saturating_sub(FREQUENCY_FIRST));
        let factor = clock >> 2 & 0xff;
        // Morris's approximate counting: it grows with probability 1 / (over * factor + 1).
        if count < 255 && chance().is_multiple_of(over * factor + 1) {
            count += 1;
        }
        self.0.store(now << 16 | count, Ordering::Relaxed);
    }
}

/// The counter as it is now.
fn counter(word: u32, clock: u64) -> u32 {
    if word == 0 {
        return FREQUENCY_FIRST;
    }
    let decay = (clock >> 10 & 0xffff) as u32;
    let minutes = ((clock >> 32) as u32).wrapping_sub(word >> 16) & 0xffff;
    (word & 0xff).saturating_sub(minutes.checked_div(decay).unwrap_or(0))
}

/// A number that nobody has to guess or to repeat (xorshift).
fn chance() -> u64 {
    use std::cell::Cell;
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        x
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_used_longest_ago_is_idlest() {
        let clock = Clock::default();
        let (one, two, never) = (Usage::default(), Usage::default(), Usage::default());
        clock.touch(&one);
        assert_eq!(clock.idleness(&one), 0, "nothing is kept");
        let start = 1_700_000_000_000;
        clock.set(Keeping::Recency, start);
        clock.touch(&one);
        clock.set(Keeping::Recency, start + 10_000);
        clock.touch(&two);
        clock.set(Keeping::Recency, start + 70_000);
        let idle = [&one, &two].map(|usage| clock.idleness(usage));
        assert!(idle[0].abs_diff(70_000) <= RECENCY_UNIT_MS, "{idle:?}");
        assert!(idle[1].abs_diff(60_000) <= RECENCY_UNIT_MS, "{idle:?}");
        assert!(clock.idleness(&never) > idle[0]);
    }

    #[test]
    fn who_is_used_often_counts_more_and_is_forgotten_with_time() {
        let clock = Clock::default();
        let keeping = Keeping::Frequency { log_factor: 10, decay_minutes: 1 };
        clock.set(keeping, 0);
        let (often, seldom) = (Usage::default(), Usage::default());
        for _ in 0..10_000 {
            clock.touch(&often);
        }
        clock.touch(&seldom);
        let idle = |usage: &Usage| clock.idleness(usage);
        // Redis's documentation gives some 44 for 10,000 uses.
        assert!((190..=225).contains(&idle(&often)), "{}", idle(&often));
        assert!((248..=250).contains(&idle(&seldom)), "{}", idle(&seldom));
        let before = idle(&often);
        clock.set(keeping, 7 * MINUTE_MS);
        assert_eq!(idle(&often), before + 7);
        clock.set(keeping, 600 * MINUTE_MS);
        assert_eq!(idle(&often), 255);
    }
}
