//! Lua 5.1.5, in C, for `mlua` to link with instead of a copy of its own (its feature `external`).
//!
//! It is what the crate `lua-src` has, with a few changes (`ordo.patch`, each marked `Ordo:`). They make
//! the count of a script's instructions a measure of its time. In the original, one instruction can take milliseconds: a
//! concatenation copies and hashes a string of any length, and when long strings differ in their ends only, their hashes
//! are the same, so that finding one means to compare it with all.
//!
//! - **Strings of 32 bytes and more are hashed whole** (`lstring.c`). The original looks at 32 of a string's bytes at most.
//!   Shorter strings keep their hashes, and so the order in which `pairs` gives them.
//! - **Work counts as instructions** (`luaE_charge` in `lstate.h`): 16 bytes of a string that is made, found or compared,
//!   4 values of a function's variable arguments, 4 that `string.byte` gives, 4 empty places that `next` skips, a digit that `string.format` writes, and
//!   a key of a table that is passed on the way to another one, beyond 16, count as one each; a number that is written as
//!   a string counts as ten. The charge depends on sizes only, never on what else the VM holds. The hook for every
//!   so many instructions is called once for each such portion, at the next instruction.
//! - **Tables, functions and coroutines hash by a number** (`lstate.h`, `ltable.c`) that they get when a run first makes them a key,
//!   and not by their addresses, which `pairs` would show: in how it orders other keys.
//! - **Transcendental functions are `libm`'s** (`luaconf.h`): the same numbers on every machine. The C library has several of each,
//!   and takes the one that is best for the processor.
//! - **A string that reads as a number has at most 100 bytes** (`lvm.c`): arithmetic parses it each time.
//! - **Strings made to collide** (`lstring.c`): what would be the 251st string of a bucket fails like an allocation. No
//!   strings that were not searched for come near it.
//!
//! The build also forbids fused floating-point operations, and leaves Lua's API checks out: with them, Lua 5.1 refuses
//! what its own `pcall` does (it pushes the status after many results, into the spare slots that every stack has).
//!
//! Whoever uses `mlua` names this crate once (`use lua as _`), so that it is linked.

/// Defines functions under the names by which Lua calls them.
macro_rules! functions {
    ($($symbol:ident = $function:ident($($argument:ident),*);)*) => {
        $(
            #[allow(unsafe_code, reason = "the name is for the linker; nothing else has it")]
            // SAFETY: no other symbol has this name, and what it takes and gives is what C's declaration in `luaconf.h` says.
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
