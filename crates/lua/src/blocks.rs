//! How many basic blocks ran: the feature `count-blocks`, for tests. `blocks.c` beside this crate's
//! `build.rs` counts.
//!
//! The build script has C's blocks counted; the flags that have those of Rust counted, and that send calls of
//! the C library through `blocks.c`, are the caller's (`tests/script-judge` has them).

use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

mod c {
    #![allow(unsafe_code, reason = "they are C's")]
    unsafe extern "C" {
        pub safe fn ordo_blocks_begin(max: u64);
        pub safe fn ordo_blocks_end() -> u64;
        pub safe fn ordo_blocks_fresh(places: &mut *const u32) -> usize;
    }
}

/// A secret of a VM, which anybody can guess: the same in each process, so that the blocks that a program
/// takes are, too.
pub(crate) fn chance() -> u64 {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    static DRAWN: AtomicU64 = AtomicU64::new(STEP);
    let mut number = DRAWN.fetch_add(STEP, Ordering::Relaxed);
    number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// Counts from here on. The process ends at once when there are more than `max`, and says `exceeded`.
pub fn begin(max: u64) {
    c::ordo_blocks_begin(max);
}

/// The blocks since [`begin`]. The process has no limit from here on.
pub fn end() -> u64 {
    c::ordo_blocks_end()
}

/// The places in code that were first seen since [`begin`].
pub fn fresh_places() -> Vec<u32> {
    let mut places = std::ptr::null();
    let length = c::ordo_blocks_fresh(&mut places);
    #[allow(unsafe_code, reason = "C gives a pointer and a length")]
    // SAFETY: `blocks.c` gives the start of its static array, of which so many elements are written; there is
    // one thread.
    let fresh = unsafe { slice::from_raw_parts(places, length) };
    fresh.to_vec()
}
