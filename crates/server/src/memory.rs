//! How much memory this process has: what it asked its allocator for, and what the system gave it.
//!
//! What is resident is no measure for `maxmemory`: an allocator keeps much of what was given back. So a
//! binary puts its allocator into [`Counting`], which knows exactly what is asked for and not given back. A
//! thread counts by itself, and adds to the sum only what comes to some kilobytes: counting costs no shared
//! memory.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// What a thread has not yet told is less than this, either way.
const UNTOLD_MAX: i64 = 16 << 10;

static TOLD: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Needs neither memory nor a destructor, so it is there as long as its thread.
    static UNTOLD: Cell<i64> = const { Cell::new(0) };
}

#[inline]
fn count(bytes: i64) {
    UNTOLD.with(|untold| {
        let sum = untold.get() + bytes;
        if sum.abs() < UNTOLD_MAX {
            untold.set(sum);
        } else {
            untold.set(0);
            TOLD.fetch_add(sum, Ordering::Relaxed);
        }
    });
}

/// An allocator that counts, for `#[global_allocator]`.
pub struct Counting<A>(pub A);

#[allow(
    unsafe_code,
    reason = "only an allocator sees every allocation; no safe crate counts without a shared counter"
)]
// SAFETY: every call is handed to the allocator inside as it came, and its result back; counting allocates
// nothing and cannot panic.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one that the allocator inside asks for.
        let place = unsafe { self.0.alloc(layout) };
        if !place.is_null() {
            count(layout.size() as i64);
        }
        place
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let place = unsafe { self.0.alloc_zeroed(layout) };
        if !place.is_null() {
            count(layout.size() as i64);
        }
        place
    }
    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` came from the allocator inside, with this layout.
        unsafe { self.0.dealloc(place, layout) };
        count(-(layout.size() as i64));
    }
    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`.
        let new = unsafe { self.0.realloc(place, layout, size) };
        if !new.is_null() {
            count(size as i64 - layout.size() as i64);
        }
        new
    }
}

/// What was asked for and not given back, in bytes. Where nobody counts, what is resident.
pub fn used_bytes() -> u64 {
    match TOLD.load(Ordering::Relaxed) {
        0 => resident_bytes(),
        told => told.max(0) as u64,
    }
}

/// The resident memory of this process, in bytes; 0 where the system does not tell.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages * 4096
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn what_is_given_back_does_not_count() {
        const BIG: usize = 64 << 20;
        let allocator = Counting(System);
        let layout = Layout::from_size_align(BIG, 8).expect("a layout");
        let before = TOLD.load(Ordering::Relaxed);
        let told = || TOLD.load(Ordering::Relaxed) - before;
        let near = |bytes: usize| told().abs_diff(bytes as i64) < 1 << 20;
        #[allow(unsafe_code, reason = "what is tested is an allocator")]
        // SAFETY: what is allocated is given back once, with its layout of then.
        unsafe {
            let place = allocator.alloc(layout);
            assert!(!place.is_null() && near(BIG), "{}", told());
            let place = allocator.realloc(place, layout, 2 * BIG);
            assert!(!place.is_null() && near(2 * BIG), "{}", told());
            let layout = Layout::from_size_align(2 * BIG, 8).expect("a layout");
            allocator.dealloc(place, layout);
        }
        assert!(near(0), "{}", told());
    }
}
