//! Steps that exclude each other, and none is forgotten.
//!
//! A worker that finds another worker in a step does not wait. But the other one may have looked for work
//! before there was any, and be about to leave. So the worker that comes in vain leaves a note, and a worker
//! that found nothing looks for the note *after* it has let go. Both put a sequentially consistent fence
//! between their two steps: either the first one gets in, or the second one sees the note and looks again.

use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, Ordering, fence};

/// State that one worker at a time steps.
#[derive(Default)]
pub(crate) struct Exclusive<T> {
    state: Mutex<T>,
    /// A worker came in vain since the last step began.
    came_in_vain: AtomicBool,
}

impl<T> Exclusive<T> {
    pub(crate) fn new(state: T) -> Exclusive<T> {
        Exclusive { state: Mutex::new(state), came_in_vain: AtomicBool::new(false) }
    }

    /// Has `step` do something, unless another worker is at it. `step` returns whether it did anything, and
    /// so does this: a worker whose step did something steps again, or hands that on ([`Engine::finish`]).
    ///
    /// Whatever could be done when this was called, and is not done when it returns false, is done by the
    /// worker that is at it; or, if that worker may not do it, is shown by [`Engine::waiting`], at which its
    /// driver looks when it stops.
    ///
    /// [`Engine::finish`]: crate::engine::Engine::finish
    /// [`Engine::waiting`]: crate::engine::Engine::waiting
    pub(crate) fn step(&self, mut step: impl FnMut(&mut T) -> bool) -> bool {
        loop {
            let mut free = self.state.try_lock();
            if free.is_none() {
                self.came_in_vain.store(true, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                free = self.state.try_lock();
            }
            let Some(mut state) = free else {
                return false;
            };
            self.came_in_vain.store(false, Ordering::SeqCst);
            if step(&mut state) {
                return true;
            }
            drop(state);
            fence(Ordering::SeqCst);
            if !self.came_in_vain.load(Ordering::SeqCst) {
                return false;
            }
        }
    }
}

impl<T> Exclusive<T> {
    /// Calls `change` while no worker is in a step, and waits for a worker that is. A worker that comes in
    /// vain meanwhile leaves its work to the caller, who must step afterwards.
    pub(crate) fn exclude<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.state.lock())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn what_comes_while_another_worker_leaves_is_done() {
        const ITEMS: u64 = 20_000;
        const MAKERS: u64 = 2;
        let (made, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let taker = Exclusive::new(());
        let take = || {
            taker.step(|()| {
                let found = made.load(Ordering::SeqCst) - done.load(Ordering::SeqCst);
                done.fetch_add(found, Ordering::SeqCst);
                found > 0
            })
        };
        std::thread::scope(|scope| {
            for _ in 0..MAKERS {
                scope.spawn(|| {
                    for _ in 0..ITEMS {
                        made.fetch_add(1, Ordering::SeqCst);
                        while take() {}
                    }
                });
            }
        });
        // Nobody looks again: what was overlooked would be missing.
        assert_eq!(done.load(Ordering::SeqCst), MAKERS * ITEMS);
    }
}
