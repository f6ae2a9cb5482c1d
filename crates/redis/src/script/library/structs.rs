//! The `struct` library: values packed into bytes by a format.
//!
//! The format's letters: `>` big-endian, `<` and `=` little-endian, `!n` alignment, `x` a padding byte,
//! `b B h H i I l L T` integers (`i` and `I` take a size), `f d` floating point, `s` a zero-terminated
//! string, `cn` `n` bytes (`c0`: as many as the string has, or as the integer before says), and spaces.

use super::super::run::{Host, Meter};
use super::arguments::{Arguments, fail};
use super::output::Output;
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

const ALIGNMENT_MAX: usize = 8;
const INTEGER_BYTES_MAX: usize = 32;
/// Bytes looked at that count as one step of a script. A letter of a format counts as one, too.
const BYTES_PER_STEP: usize = 16;
/// What an item counts for, beside its bytes.
const STEPS_PER_ITEM: usize = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Integer { bytes: usize, signed: bool },
    Float,
    Double,
    Bytes(usize),
    Terminated,
    Padding,
}

impl Item {
    fn bytes(self) -> usize {
        match self {
            Item::Integer { bytes, .. } => bytes,
            Item::Float => 4,
            Item::Double => 8,
            Item::Bytes(bytes) => bytes,
            Item::Terminated => 0,
            Item::Padding => 1,
        }
    }
    fn aligns(self) -> bool {
        matches!(self, Item::Integer { .. } | Item::Float | Item::Double)
    }
}

/// A format as it is read from left to right.
struct Format<'a> {
    lua: &'a Lua,
    function: &'static str,
    text: &'a [u8],
    at: usize,
    big_endian: bool,
    alignment_max: usize,
}

impl<'a> Format<'a> {
    fn new(lua: &'a Lua, function: &'static str, text: &'a [u8]) -> Format<'a> {
        Format { lua, function, text, at: 0, big_endian: false, alignment_max: 1 }
    }

    fn count(&mut self, default: usize) -> mlua::Result<usize> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let text = &self.text[self.at..self.at + digits];
        self.at += digits;
        let value = text
            .iter()
            .try_fold(0_i32, |value, digit| value.checked_mul(10)?.checked_add(i32::from(digit - b'0')));
        value.map(|value| value as usize).ok_or_else(|| fail(self.lua, "integral size overflow"))
    }

    /// The next item, and the padding before it at `position`.
    fn next(&mut self, position: usize) -> mlua::Result<Option<(Item, usize)>> {
        while let Some(&letter) = self.text.get(self.at) {
            self.at += 1;
            let item = match letter {
                b' ' => continue,
                b'>' => {
                    self.big_endian = true;
                    continue;
                }
                b'<' | b'=' => {
                    self.big_endian = false;
                    continue;
                }
                b'!' => {
                    let alignment = self.count(ALIGNMENT_MAX)?;
                    if !alignment.is_power_of_two() {
                        return Err(fail(self.lua, "alignment is not a power of 2"));
                    }
                    self.alignment_max = alignment;
                    continue;
                }
                b'b' | b'B' => Item::Integer { bytes: 1, signed: letter == b'b' },
                b'h' | b'H' => Item::Integer { bytes: 2, signed: letter == b'h' },
                b'l' | b'L' => Item::Integer { bytes: 8, signed: letter == b'l' },
                b'T' => Item::Integer { bytes: 8, signed: false },
                b'i' | b'I' => {
                    let bytes = self.count(4)?;
                    if bytes > INTEGER_BYTES_MAX {
                        let text =
                            format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
                        return Err(fail(self.lua, &text));
                    }
                    Item::Integer { bytes, signed: letter == b'i' }
                }
                b'f' => Item::Float,
                b'd' | b'n' => Item::Double,
                b'c' => Item::Bytes(self.count(1)?),
                b's' => Item::Terminated,
                b'x' => Item::Padding,
                other => {
                    let option = char::from(other).escape_default();
                    let text =
                        format!("bad argument #1 to '{}' (invalid format option '{option}')", self.function);
                    return Err(fail(self.lua, &text));
                }
            };
            let mut padding = 0;
            if item.aligns() && item.bytes() > 1 {
                let alignment = item.bytes().min(self.alignment_max);
                if !alignment.is_power_of_two() {
                    return Err(fail(self.lua, "alignment is not a power of 2"));
                }
                padding = (alignment - position % alignment) % alignment;
            }
            return Ok(Some((item, padding)));
        }
        Ok(None)
    }

    fn put(&self, out: &mut Output<'_>, little: &[u8]) -> mlua::Result<()> {
        let out = out.room(little.len())?;
        if self.big_endian {
            out.extend(little.iter().rev())
        } else {
            out.extend_from_slice(little)
        }
        Ok(())
    }
}

/// C's conversion of a number to 64 bits: negative numbers wrap.
fn to_bits(value: f64) -> u64 {
    if value < 0.0 { (value as i64) as u64 } else { value as u64 }
}

fn pack(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    let arguments = Arguments::new(lua, "pack", values);
    let text = arguments.string(0)?;
    let text = text.as_bytes();
    host.charge(text.len() as u64)?;
    let mut format = Format::new(lua, "pack", &text);
    let mut out = Output::new(host, lua);
    let mut index = 1;
    let mut meter = Meter::new(host, lua);
    while let Some((item, padding)) = format.next(out.len())? {
        meter.spend(STEPS_PER_ITEM)?;
        out.put(&[0; INTEGER_BYTES_MAX][..padding])?;
        match item {
            Item::Padding => out.put(&[0])?,
            Item::Integer { bytes, signed } => {
                let value = arguments.number(index)?;
                let low = to_bits(value).to_le_bytes();
                let fill = if signed && value < 0.0 { 0xFF } else { 0 };
                let little: Vec<u8> = (0..bytes).map(|at| low.get(at).copied().unwrap_or(fill)).collect();
                format.put(&mut out, &little)?;
            }
            Item::Float => {
                let value = arguments.number(index)? as f32;
                format.put(&mut out, &value.to_le_bytes())?;
            }
            Item::Double => format.put(&mut out, &arguments.number(index)?.to_le_bytes())?,
            Item::Bytes(count) => {
                let value = arguments.string(index)?;
                let value = value.as_bytes();
                let count = if count == 0 { value.len() } else { count };
                meter.spend(value.len().min(count) / BYTES_PER_STEP)?;
                match value.get(..count) {
                    Some(part) => out.put(part)?,
                    // One too far, as in the original.
                    None => return Err(arguments.bad(index + 1, "string too short")),
                }
            }
            Item::Terminated => {
                let value = arguments.string(index)?;
                meter.spend(value.as_bytes().len() / BYTES_PER_STEP)?;
                out.put(&value.as_bytes())?;
                out.put(&[0])?;
            }
        }
        index += usize::from(item != Item::Padding);
    }
    out.into_string()
}

fn unpack(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<MultiValue> {
    let arguments = Arguments::new(lua, "unpack", values);
    let (text, data) = (arguments.string(0)?, arguments.string(1)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    host.charge(text.len() as u64)?;
    let start = arguments.integer_or(2, 1)?;
    if start < 1 {
        return Err(arguments.bad(2, "offset must be 1 or greater"));
    }
    let mut at = (start - 1) as usize;
    let mut format = Format::new(lua, "unpack", &text);
    let mut out = MultiValue::new();
    let mut meter = Meter::new(host, lua);
    let short = || arguments.bad(1, "data string too short");
    while let Some((item, padding)) = format.next(at)? {
        meter.spend(STEPS_PER_ITEM)?;
        at += padding;
        let mut bytes = item.bytes();
        if item == Item::Bytes(0) {
            // The size is the integer before, which the string replaces.
            bytes = match out.pop_back() {
                Some(Value::Number(size)) if size >= 0.0 => size as usize,
                _ => return Err(fail(lua, "format 'c0' needs a previous size")),
            };
        }
        let part = at.checked_add(bytes).and_then(|end| data.get(at..end)).ok_or_else(short)?;
        at += bytes;
        meter.spend(bytes / BYTES_PER_STEP)?;
        let little = || -> Vec<u8> {
            if format.big_endian { part.iter().rev().copied().collect() } else { part.to_vec() }
        };
        match item {
            Item::Padding => {}
            Item::Integer { bytes, signed } => {
                let little = little();
                let mut low = [0; 8];
                let kept = bytes.min(8);
                low[..kept].copy_from_slice(&little[..kept]);
                let value = u64::from_le_bytes(low);
                let unused = 64 - 8 * kept as u32;
                out.push_back(Value::Number(if kept == 0 {
                    0.0
                } else if signed {
                    ((value << unused) as i64 >> unused) as f64
                } else {
                    value as f64
                }));
            }
            Item::Float => {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(&little());
                out.push_back(Value::Number(f64::from(f32::from_le_bytes(bytes))));
            }
            Item::Double => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&little());
                out.push_back(Value::Number(f64::from_le_bytes(bytes)));
            }
            Item::Bytes(_) => out.push_back(Value::String(lua.create_string(part)?)),
            Item::Terminated => {
                let rest = data.get(at..).ok_or_else(short)?;
                let end = rest.iter().position(|&byte| byte == 0);
                host.charge((end.unwrap_or(rest.len()) / BYTES_PER_STEP) as u64)?;
                let Some(end) = end else {
                    return Err(fail(lua, "unfinished string in data"));
                };
                out.push_back(Value::String(lua.create_string(&rest[..end])?));
                at += end + 1;
            }
        }
    }
    out.push_back(Value::Integer(at as i64 + 1));
    Ok(out)
}

fn size(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<i64> {
    let arguments = Arguments::new(lua, "size", values);
    let text = arguments.string(0)?;
    let text = text.as_bytes();
    host.charge(text.len() as u64)?;
    let mut format = Format::new(lua, "size", &text);
    let mut total = 0_usize;
    let mut meter = Meter::new(host, lua);
    while let Some((item, padding)) = format.next(total)? {
        meter.spend(STEPS_PER_ITEM)?;
        match item {
            Item::Terminated => return Err(arguments.bad(0, "option 's' has no fixed size")),
            Item::Bytes(0) => return Err(arguments.bad(0, "option 'c0' has no fixed size")),
            _ => total = total.saturating_add(padding).saturating_add(item.bytes()),
        }
    }
    Ok(total as i64)
}

pub(super) fn library(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.set("pack", host.function(lua, pack)?)?;
    library.set("unpack", host.function(lua, unpack)?)?;
    library.set("size", host.function(lua, size)?)?;
    Ok(library)
}
