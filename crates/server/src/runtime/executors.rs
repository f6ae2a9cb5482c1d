//! Where executor threads park while there is nothing to do, so that nobody's work is overlooked.
//!
//! An executor that finds nothing announces that it goes to sleep, looks *once more*, and sleeps. Who makes
//! work looks for sleepers *after* the work can be seen. Both sides put a sequentially consistent operation
//! between their two steps, so at least one sees the other: either the executor finds the work, or it gets a
//! permit.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering, fence};

#[derive(Default)]
pub(super) struct Parking {
    /// Executors that are asleep or about to be.
    sleepers: AtomicUsize,
    state: Mutex<State>,
    permit: Condvar,
}

#[derive(Default)]
struct State {
    /// Wake-ups that nobody has taken yet, at most one for each sleeper.
    permits: usize,
    stopping: bool,
}

impl Parking {
    /// Wakes up to `count` sleepers. Cheap if there are none.
    pub fn wake(&self, count: usize) {
        fence(Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        if sleepers == 0 || count == 0 {
            return;
        }
        let mut state = self.state.lock();
        let permits = (state.permits + count).min(sleepers);
        for _ in state.permits..permits {
            self.permit.notify_one();
        }
        state.permits = permits.max(state.permits);
    }

    /// Wakes everyone for good.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.permit.notify_all();
    }

    /// Sleeps until there is work, unless `look` finds some first. Returns whether to go on.
    pub fn sleep(&self, look: impl FnOnce() -> bool) -> bool {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if look() {
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            return !self.state.lock().stopping;
        }
        let mut state = self.state.lock();
        while state.permits == 0 && !state.stopping {
            self.permit.wait(&mut state);
        }
        state.permits = state.permits.saturating_sub(1);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        !state.stopping
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_wake_up_is_lost() {
        const ITEMS: u64 = 20_000;
        let parking = Arc::new(Parking::default());
        let made = Arc::new(AtomicU64::new(0));
        let taken = Arc::new(AtomicU64::new(0));
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let (parking, made, taken) = (parking.clone(), made.clone(), taken.clone());
                std::thread::spawn(move || {
                    loop {
                        while made
                            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                            .is_ok()
                        {
                            taken.fetch_add(1, Ordering::SeqCst);
                        }
                        if !parking.sleep(|| made.load(Ordering::SeqCst) > 0) {
                            return;
                        }
                    }
                })
            })
            .collect();
        for item in 1..=ITEMS {
            made.fetch_add(1, Ordering::SeqCst);
            parking.wake(1);
            // Every few items wait until all are taken: a lost wake-up hangs here.
            while item % 7 == 0 && taken.load(Ordering::SeqCst) < item {
                std::thread::yield_now();
            }
        }
        parking.stop();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    }
}
