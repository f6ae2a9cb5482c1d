//! What is known of how long scripts take.
//!
//! A small table remembers, by a hash of the script, how many steps its recent runs took. It serves
//! scheduling only (an I/O thread may run a short script itself), never results, so it may differ between
//! replicas, forget, and be wrong: two scripts that share a place overwrite each other, and an unknown script
//! counts as heavy.

use super::limits::{LIGHT_SOURCE_BYTES_MAX, compile_steps};
use std::sync::atomic::{AtomicU64, Ordering};
use txn::Weight;
use txn::hash::hash_bytes;

/// A script whose recent runs took fewer steps is [`Weight::Light`]: some 20 microseconds at most. Beyond
/// that, running it on another processor pays for the hand-off.
pub const LIGHT_STEPS_MAX: u64 = 5_000;
const PLACES: usize = 4096;
const STEPS_BITS: u32 = 32;
const STEPS_MASK: u64 = (1 << STEPS_BITS) - 1;

/// Each place: 32 bits of the script's hash, then the recent steps. Zero is empty: nobody's steps are zero.
static COSTS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// What a script is known by: a hash of its digest (EVALSHA), of its body (EVAL), or of the function's name
/// (FCALL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptName(u64);

impl ScriptName {
    /// The name made of a digest, whatever its case, or of a body.
    pub fn of(digest_or_body: &[u8]) -> ScriptName {
        if digest_or_body.len() == 40 && digest_or_body.iter().any(u8::is_ascii_uppercase) {
            ScriptName(hash_bytes(&digest_or_body.to_ascii_lowercase()))
        } else {
            ScriptName(hash_bytes(digest_or_body))
        }
    }
    /// The name of a function, whatever its case.
    pub fn of_function(name: &[u8]) -> ScriptName {
        const OTHER_THAN_SCRIPTS: u64 = 0x0f0f_0f0f_0f0f_0f0f;
        ScriptName(hash_bytes(&name.to_ascii_lowercase()) ^ OTHER_THAN_SCRIPTS)
    }
    /// The hash.
    pub(super) fn hash(self) -> u64 {
        self.0
    }
    fn place(self) -> &'static AtomicU64 {
        &COSTS[self.0 as usize % PLACES]
    }
    fn tag(self) -> u64 {
        self.0 & !STEPS_MASK
    }
}

/// How heavy a script is, as far as its last runs tell.
pub fn cost_hint(script: ScriptName) -> Weight {
    let cost = script.place().load(Ordering::Relaxed);
    if cost != 0 && cost & !STEPS_MASK == script.tag() && cost & STEPS_MASK < LIGHT_STEPS_MAX {
        Weight::Light
    } else {
        Weight::Heavy
    }
}

/// What a call counts as that took so many steps, those of compiling included. A thread compiles a script
/// once; where the source is small, that does not matter, and where it is large, an I/O thread must not do
/// it.
pub(super) fn of_call(steps: u64, source_bytes: usize) -> u64 {
    match source_bytes > LIGHT_SOURCE_BYTES_MAX {
        true => steps.max(LIGHT_STEPS_MAX),
        false => steps.saturating_sub(compile_steps(source_bytes)),
    }
}

/// Remembers a run: a longer one counts at once, a shorter one gradually.
pub(super) fn record(script: ScriptName, steps: u64) {
    let place = script.place();
    let old = place.load(Ordering::Relaxed);
    let old_steps = if old & !STEPS_MASK == script.tag() { old & STEPS_MASK } else { 0 };
    let steps = steps.clamp(1, STEPS_MASK).max(old_steps - old_steps / 8);
    let new = script.tag() | steps;
    if new != old {
        place.store(new, Ordering::Relaxed);
    }
}

/// The steps of the only run of a script so far, or about those of the last ones; 0 if it is forgotten.
pub fn recent_steps(script: ScriptName) -> u64 {
    let cost = script.place().load(Ordering::Relaxed);
    if cost & !STEPS_MASK == script.tag() { cost & STEPS_MASK } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_becomes_light_and_heavy_again() {
        let script = ScriptName::of(b"a script of the cost test");
        assert_eq!(cost_hint(script), Weight::Heavy);
        record(script, 100);
        assert_eq!(cost_hint(script), Weight::Light);
        record(script, 1_000_000);
        assert_eq!(cost_hint(script), Weight::Heavy);
        for _ in 0..100 {
            record(script, 100);
        }
        assert_eq!(cost_hint(script), Weight::Light);
    }

    #[test]
    fn digests_have_one_name_in_both_cases() {
        let lower = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(ScriptName::of(lower.as_bytes()), ScriptName::of(lower.to_ascii_uppercase().as_bytes()));
    }
}
