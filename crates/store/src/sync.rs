//! The synchronisation primitives of the store and of the engines.
//!
//! With feature `shuttle` they are the model checker's, so that the very code that ships is what `shuttle`
//! explores.

#[cfg(not(feature = "shuttle"))]
mod real {
    pub use parking_lot::{Mutex, MutexGuard, RwLock};
    pub use std::sync::atomic;
}

#[cfg(feature = "shuttle")]
mod real {
    pub use shuttle::sync::atomic;

    /// `shuttle`'s mutex behind `parking_lot`'s interface.
    #[derive(Default, Debug)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);
    /// The guard of [`Mutex`].
    pub type MutexGuard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

    impl<T> Mutex<T> {
        /// A mutex.
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }
        /// Waits for the mutex.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
        /// Takes the mutex if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
        /// The value, without locking.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }

    /// `shuttle`'s read-write lock behind `parking_lot`'s interface.
    #[derive(Default, Debug)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// A lock.
        pub fn new(value: T) -> RwLock<T> {
            RwLock(shuttle::sync::RwLock::new(value))
        }
        /// Waits for shared access.
        pub fn read(&self) -> shuttle::sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
        /// Takes shared access if nobody has, or waits for, exclusive access.
        pub fn try_read(&self) -> Option<shuttle::sync::RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }
        /// Waits for exclusive access.
        pub fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }
}

pub use real::*;

/// Called between two reads of a sequence lock: lets the model checker run the writer.
#[inline]
pub(crate) fn hint_read_again() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
    #[cfg(not(feature = "shuttle"))]
    std::hint::spin_loop();
}
