//! What a script may use before it is stopped.
//!
//! Limits decide outcomes, so all replicas must have the same ones: they belong to the ordered configuration,
//! and the setting here is made once, before the first script runs.

use std::sync::OnceLock;

/// The limits of one execution of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps: VM instructions, counted in thousands, plus what long instructions, library functions and
    /// commands charge (the crate's `work.rs` says what counts of a command).
    pub steps_max: u64,
    /// Bytes that the script may allocate in Lua, garbage included (see the module's prose), and, counted
    /// apart, in the replies of the commands that it calls, and in its own reply.
    pub memory_bytes_max: usize,
}

impl Limits {
    /// What applies unless something else is set. A loop that does nothing reaches the steps in a quarter of
    /// a second; `docs/lua-security.md` says how long the most expensive scripts take that were found.
    pub const DEFAULT: Limits = Limits { steps_max: 100_000_000, memory_bytes_max: 256 << 20 };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

/// The smallest memory limit: its half must exceed what a warm VM may share with a run (see `vm.rs`).
pub const MEMORY_BYTES_MIN: usize = 32 << 20;

/// The largest memory limit. A table that Lua refuses to grow (2^26 keys of 40 bytes) does not fit into it:
/// see `Host::function` in `run.rs`.
pub const MEMORY_BYTES_MAX: usize = 2 << 30;
/// The largest source of a script or a library. Compiling one of that size takes some tenths of a second.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;
/// A script with a larger source is never [`txn::Weight::Light`]: each thread compiles it anew before it
/// first runs it.
pub(super) const LIGHT_SOURCE_BYTES_MAX: usize = 16 << 10;
/// What a byte of source counts for when it is compiled: some 50 nanoseconds, and 20 bytes of memory or so.
pub(super) const STEPS_PER_COMPILED_BYTE: u64 = 20;

/// What compiling a source counts for. Every call of a script counts it, whether its thread has the compiled
/// script or not: what a call may do depends on the call alone.
pub(super) fn compile_steps(source_bytes: usize) -> u64 {
    STEPS_PER_COMPILED_BYTE * (source_bytes as u64 + 1)
}

static LIMITS: OnceLock<Limits> = OnceLock::new();

/// Sets the limits of this process. The first call counts, and none counts after the first script has run.
/// Returns whether it counted. A memory limit below [`MEMORY_BYTES_MIN`] is raised to it, and one beyond
/// [`MEMORY_BYTES_MAX`] is lowered.
pub fn set_limits(mut limits: Limits) -> bool {
    limits.memory_bytes_max = limits.memory_bytes_max.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX);
    LIMITS.set(limits).is_ok()
}

/// The limits of this process.
pub fn limits() -> Limits {
    *LIMITS.get_or_init(Limits::default)
}
