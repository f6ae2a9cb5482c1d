//! The `bit` library: 32-bit operations, with the semantics and names of Lua BitOp.

use super::super::run::Host;
use super::arguments::Arguments;
use mlua::{Lua, MultiValue, Table};
use std::rc::Rc;

/// What writing a number as text counts for.
const STEPS_PER_TEXT: u64 = 40;

/// Lua BitOp's normalization: modulo 2^32, as a signed number. What is beyond 2^51 or has a fraction rounds
/// as there.
fn to_bit(value: f64) -> i32 {
    // The addition of 2^52 + 2^51 leaves the integer, rounded to even, in the low bits of the mantissa.
    (value + 6_755_399_441_055_744.0).to_bits() as u32 as i32
}

fn fold(
    lua: &Lua,
    host: &Rc<Host>,
    library: &Table,
    name: &'static str,
    operation: impl Fn(i32, i32) -> i32 + 'static,
) -> mlua::Result<()> {
    let function = move |_: &Host, lua: &Lua, values: MultiValue| {
        let arguments = Arguments::new(lua, name, values);
        let mut result = to_bit(arguments.number(0)?);
        for index in 1..arguments.len() {
            result = operation(result, to_bit(arguments.number(index)?));
        }
        Ok(result)
    };
    library.set(name, host.function(lua, function)?)
}

fn unary(
    lua: &Lua,
    host: &Rc<Host>,
    library: &Table,
    name: &'static str,
    operation: impl Fn(i32) -> i32 + 'static,
) -> mlua::Result<()> {
    let function = move |_: &Host, lua: &Lua, values: MultiValue| {
        Ok(operation(to_bit(Arguments::new(lua, name, values).number(0)?)))
    };
    library.set(name, host.function(lua, function)?)
}

fn shift(
    lua: &Lua,
    host: &Rc<Host>,
    library: &Table,
    name: &'static str,
    operation: impl Fn(u32, u32) -> u32 + 'static,
) -> mlua::Result<()> {
    let function = move |_: &Host, lua: &Lua, values: MultiValue| {
        let arguments = Arguments::new(lua, name, values);
        let (value, count) = (to_bit(arguments.number(0)?), to_bit(arguments.number(1)?));
        Ok(operation(value as u32, count as u32 & 31) as i32)
    };
    library.set(name, host.function(lua, function)?)
}

fn to_hex(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<String> {
    host.charge(STEPS_PER_TEXT)?;
    let arguments = Arguments::new(lua, "tohex", values);
    let value = to_bit(arguments.number(0)?) as u32;
    let digits = if arguments.value(1).is_nil() { 8 } else { to_bit(arguments.number(1)?) };
    let width = digits.unsigned_abs().min(8) as usize;
    let text = format!("{value:08x}");
    let text = &text[8 - width..];
    Ok(if digits < 0 { text.to_ascii_uppercase() } else { text.to_owned() })
}

pub(super) fn library(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    unary(lua, host, &library, "tobit", |value| value)?;
    unary(lua, host, &library, "bnot", |value| !value)?;
    unary(lua, host, &library, "bswap", i32::swap_bytes)?;
    fold(lua, host, &library, "band", |a, b| a & b)?;
    fold(lua, host, &library, "bor", |a, b| a | b)?;
    fold(lua, host, &library, "bxor", |a, b| a ^ b)?;
    shift(lua, host, &library, "lshift", |value, count| value << count)?;
    shift(lua, host, &library, "rshift", |value, count| value >> count)?;
    shift(lua, host, &library, "arshift", |value, count| ((value as i32) >> count) as u32)?;
    shift(lua, host, &library, "rol", u32::rotate_left)?;
    shift(lua, host, &library, "ror", u32::rotate_right)?;
    library.set("tohex", host.function(lua, to_hex)?)?;
    Ok(library)
}
