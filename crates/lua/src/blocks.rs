//! How many basic blocks ran: the feature `count-blocks`, for tests. `blocks.c` beside this crate's `build.rs` counts.
//!
//! The build script has C's blocks counted; the flags that have those of Rust counted, and that send calls of the C library through
//! `blocks.c`, are the caller's (`tests/script-judge` has them).

use std::slice;

mod c {
    #![allow(unsafe_code, reason = "they are C's")]
    unsafe extern "C" {
        pub safe fn ordo_blocks_begin(max: u64);
        pub safe fn ordo_blocks_end() -> u64;
        pub safe fn ordo_blocks_fresh(places: &mut *const u32) -> usize;
    }
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
    // SAFETY: `blocks.c` gives the start of its static array, of which so many elements are written; there is one thread.
    let fresh = unsafe { slice::from_raw_parts(places, length) };
    fresh.to_vec()
}
