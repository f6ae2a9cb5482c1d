//! Lua 5.1.5, in C, for `mlua` to link with instead of a copy of its own (its feature `external`).
//!
//! It is what the crate `lua-src` has, with changes (`ordo.patch`, each marked `Ordo:`). They make the count
//! of a script's instructions a measure of its time. In the original, one instruction can take minutes:
//! `table.insert` with a large position moves two thousand million values, and a string that collides with
//! others is compared with each of them.
//!
//! - **Work counts as instructions** (`luaE_charge` in `lstate.h`). The charge depends on sizes and on what
//!   the run did before, never on what else the VM holds. Instructions look at the sum, and call the hook
//!   once for each portion. Functions that scripts call look at it themselves before long work (`luaE_work`).
//!   What is charged stands where it is charged: bytes that are made, compared or looked at; numbers that are
//!   written or read as text; keys that a search passes; places of large tables, which no cache holds; growth
//!   of tables; moved values; registers that are cleared; comparisons of sorting; levels of the stack, and
//!   code, that an error's text looks through; copies of a stack that grows. What the API's functions charge
//!   while a function of Rust works, it asks for itself ([`debt`]).
//! - **Nothing throws where a string is found or made** (`lstring.c`). A string has two hashes. One orders
//!   the keys of tables; it is the same everywhere, and a search among keys that collide is charged. The
//!   other says where the string is among all strings of its VM, and depends on a secret of the VM, so that
//!   nobody can make strings that collide there.
//! - **Strings of 32 bytes and more are hashed whole** (`lstring.c`). The original looks at 32 of a string's
//!   bytes at most. Shorter strings keep their hashes, and so the order in which `pairs` gives them.
//! - **Each run begins with a stack of the same size** (`luaD_beginrun` in `ldo.c`): how deep calls may go is
//!   nothing of earlier runs.
//! - **Tables, functions and coroutines hash by a number** (`lstate.h`, `ltable.c`) that they get when a run
//!   first makes them a key, and not by their addresses, which `pairs` would show: in how it orders other
//!   keys.
//! - **Numbers become integers alike on all processors** (`luaconf.h`). C leaves open what a number beyond an
//!   integer's range gives.
//! - **Transcendental functions are `libm`'s** (`luaconf.h`): the same numbers on every machine. The C
//!   library has several of each, and takes the one that is best for the processor.
//! - **A string that reads as a number has at most 100 bytes** (`lvm.c`): arithmetic parses it each time.
//! - **Compiling takes a time in proportion to the source** (`luaY_walk` in `lparser.c`), or fails.
//! - **Defects of Lua 5.1 are repaired**: `docs/lua-security.md` lists them.
//!
//! The build also forbids fused floating-point operations, and leaves Lua's API checks out: with them, Lua
//! 5.1 refuses what its own `pcall` does (it pushes the status after many results, into the spare slots that
//! every stack has).
//!
//! Whoever uses `mlua` names this crate once (`use lua as _`), so that it is linked.

#[cfg(feature = "count-blocks")]
pub mod blocks;

/// Defines functions under the names by which Lua calls them.
macro_rules! functions {
    ($($symbol:ident = $function:ident($($argument:ident),*);)*) => {
        $(
            #[allow(unsafe_code, reason = "the name is for the linker; nothing else has it")]
            // SAFETY: no other symbol has this name, and what it takes and gives is what C's declaration in
            // `luaconf.h` says.
            #[unsafe(no_mangle)]
            extern "C" fn $symbol($($argument: f64),*) -> f64 {
                libm::$function($($argument),*)
            }
        )*
    };
}

functions! {
    ordo_sin = sin(x);
    ordo_sinh = sinh(x);
    ordo_cos = cos(x);
    ordo_cosh = cosh(x);
    ordo_tan = tan(x);
    ordo_tanh = tanh(x);
    ordo_asin = asin(x);
    ordo_acos = acos(x);
    ordo_atan = atan(x);
    ordo_exp = exp(x);
    ordo_log = log(x);
    ordo_log10 = log10(x);
    ordo_atan2 = atan2(y, x);
    ordo_pow = pow(x, y);
}

/// A number that nobody can guess: a key of the hash by which a VM finds its strings. Nothing shows where a
/// string is.
#[allow(unsafe_code, reason = "the name is for the linker; nothing else has it")]
// SAFETY: no other symbol has this name, and what it takes and gives is what C's declaration in `luaconf.h`
// says.
#[unsafe(no_mangle)]
extern "C" fn ordo_chance() -> u64 {
    chance()
}

#[cfg(feature = "count-blocks")]
use blocks::chance;
#[cfg(not(feature = "count-blocks"))]
fn chance() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(())
}

#[allow(unsafe_code, reason = "C's declaration, in `luaconf.h`")]
mod c {
    unsafe extern "C" {
        pub fn ordo_debt(take: core::ffi::c_int) -> u64;
    }
}

#[allow(unsafe_code, reason = "C counts there")]
fn debt_of(take: bool) -> u64 {
    // SAFETY: the declaration is C's in `luaconf.h`. The function looks at a state of this thread only, which
    // forgets itself when it is freed (`luaD_forget`).
    unsafe { c::ordo_debt(i32::from(take)) }
}

/// The instructions that Lua's API has charged on this thread to whose function works now, in whole portions
/// of the hook of the run: the next instruction would call the hook for each. Until then nobody looks at
/// them, but who asks here.
pub fn debt() -> u64 {
    debt_of(false)
}

/// Takes the [`debt`] off, for the caller to count: the hook is not called for it.
pub fn take_debt() -> u64 {
    debt_of(true)
}
