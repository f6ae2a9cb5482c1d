//! The `cmsgpack` library: MessagePack, with the choices of lua-cmsgpack.

use super::super::run::{Host, Meter};
use super::arguments::{Arguments, fail};
use super::output::Output;
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// Tables nested deeper are written as nil.
const NESTING_MAX: usize = 16;
/// Arrays and maps nested deeper are not read.
const READ_NESTING_MAX: usize = 1000;
const BYTES_PER_STEP: usize = 16;
/// What a value counts for: the way through the binding.
const STEPS_PER_VALUE: usize = 25;
/// What a value takes at most, and what is before a string, an array or a map.
const BYTES_PER_HEAD: usize = 9;
const BAD_DATA: &str = "Bad data format in input.";
const MISSING_BYTES: &str = "Missing bytes in input.";

fn put_sized(out: &mut Vec<u8>, length: usize, short: Option<(u8, usize)>, codes: [Option<u8>; 3]) {
    let [code8, code16, code32] = codes;
    match (short, code8, code16, code32) {
        (Some((code, max)), ..) if length <= max => out.push(code | length as u8),
        (_, Some(code), ..) if length <= 0xFF => out.extend_from_slice(&[code, length as u8]),
        (_, _, Some(code), _) if length <= 0xFFFF => {
            out.push(code);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        (.., code) => {
            out.push(code.unwrap_or_default());
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

fn put_integer(out: &mut Vec<u8>, value: i64) {
    match value {
        0..=0x7F => out.push(value as u8),
        0x80..=0xFF => out.extend_from_slice(&[0xCC, value as u8]),
        0x100..=0xFFFF => {
            out.push(0xCD);
            out.extend_from_slice(&(value as u16).to_be_bytes());
        }
        0x1_0000..=0xFFFF_FFFF => {
            out.push(0xCE);
            out.extend_from_slice(&(value as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xCF);
            out.extend_from_slice(&value.to_be_bytes());
        }
        -32..0 => out.push(value as u8),
        -128..-32 => out.extend_from_slice(&[0xD0, value as u8]),
        -0x8000..-128 => {
            out.push(0xD1);
            out.extend_from_slice(&(value as i16).to_be_bytes());
        }
        -0x8000_0000..-0x8000 => {
            out.push(0xD2);
            out.extend_from_slice(&(value as i32).to_be_bytes());
        }
        _ => {
            out.push(0xD3);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

fn put_number(out: &mut Vec<u8>, value: f64) {
    let single = value as f32;
    if f64::from(single) == value {
        out.push(0xCA);
        out.extend_from_slice(&single.to_be_bytes());
    } else {
        out.push(0xCB);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// The length of a table whose keys are exactly 1 to that length.
fn array_length(meter: &mut Meter<'_>, table: &Table) -> mlua::Result<Option<i64>> {
    let (mut max, mut count) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        meter.spend(STEPS_PER_VALUE)?;
        match pair?.0 {
            Value::Integer(key) if key > 0 => {
                max = max.max(key);
                count += 1;
            }
            _ => return Ok(None),
        }
    }
    Ok((max == count).then_some(max))
}

fn put(
    host: &Host,
    meter: &mut Meter<'_>,
    out: &mut Output<'_>,
    value: &Value,
    depth: usize,
) -> mlua::Result<()> {
    meter.spend(STEPS_PER_VALUE)?;
    let head = out.room(BYTES_PER_HEAD)?;
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            meter.spend(text.len() / BYTES_PER_STEP)?;
            put_sized(head, text.len(), Some((0xA0, 31)), [Some(0xD9), Some(0xDA), Some(0xDB)]);
            out.put(&text)?;
        }
        Value::Boolean(value) => head.push(if *value { 0xC3 } else { 0xC2 }),
        Value::Integer(value) => put_integer(head, *value),
        Value::Number(value) => put_number(head, *value),
        Value::Table(table) if depth < NESTING_MAX => match array_length(meter, table)? {
            Some(length) => {
                put_sized(head, length as usize, Some((0x90, 15)), [None, Some(0xDC), Some(0xDD)]);
                for index in 1..=length {
                    put(host, meter, out, &table.raw_get(index)?, depth + 1)?;
                }
            }
            None => {
                // Counted first: references to all of a large table's keys would not fit on the VM's stack.
                let mut count = 0;
                for pair in table.pairs::<Value, Value>() {
                    meter.spend(STEPS_PER_VALUE)?;
                    pair?;
                    count += 1;
                }
                put_sized(head, count, Some((0x80, 15)), [None, Some(0xDE), Some(0xDF)]);
                for pair in table.pairs::<Value, Value>() {
                    let (key, item) = pair?;
                    meter.spend(STEPS_PER_VALUE)?;
                    host.ordered(&key)?;
                    put(host, meter, out, &key, depth + 1)?;
                    put(host, meter, out, &item, depth + 1)?;
                }
            }
        },
        _ => head.push(0xC0),
    }
    Ok(())
}

fn pack(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    if values.is_empty() {
        return Err(fail(lua, "bad argument #0 to 'pack' (MessagePack pack needs input.)"));
    }
    let mut out = Output::new(host, lua);
    let mut meter = Meter::new(host, lua);
    for value in &values {
        put(host, &mut meter, &mut out, value, 0)?;
    }
    out.into_string()
}

struct Reader<'a> {
    lua: &'a Lua,
    meter: Meter<'a>,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> mlua::Result<&[u8]> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let Some(end) = end else {
            return Err(fail(self.lua, MISSING_BYTES));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }
    fn fixed<const N: usize>(&mut self) -> mlua::Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }
    fn length(&mut self, bytes: usize) -> mlua::Result<usize> {
        Ok(self.take(bytes)?.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)))
    }
    fn string(&mut self, length: usize) -> mlua::Result<Value> {
        let lua = self.lua;
        self.meter.spend(length.min(self.bytes.len()) / BYTES_PER_STEP)?;
        lua.create_string(self.take(length)?).map(Value::String)
    }
    fn array(&mut self, length: usize, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for index in 1..=length {
            let item = self.value(depth + 1)?;
            table.raw_seti(index, item)?;
        }
        Ok(Value::Table(table))
    }
    fn map(&mut self, length: usize, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let key = self.value(depth + 1)?;
            let item = self.value(depth + 1)?;
            if key.is_nil() || matches!(key, Value::Number(number) if number.is_nan()) {
                return Err(fail(self.lua, BAD_DATA));
            }
            table.raw_set(key, item)?;
        }
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        self.meter.spend(STEPS_PER_VALUE)?;
        if depth > READ_NESTING_MAX {
            return Err(fail(self.lua, BAD_DATA));
        }
        let code = self.fixed::<1>()?[0];
        let number = |value: f64| Ok(Value::Number(value));
        match code {
            0..=0x7F => number(f64::from(code)),
            0x80..=0x8F => self.map(usize::from(code & 0x0F), depth),
            0x90..=0x9F => self.array(usize::from(code & 0x0F), depth),
            0xA0..=0xBF => self.string(usize::from(code & 0x1F)),
            0xC0 => Ok(Value::Nil),
            0xC2 => Ok(Value::Boolean(false)),
            0xC3 => Ok(Value::Boolean(true)),
            0xC4..=0xC6 => {
                let length = self.length(1 << (code - 0xC4))?;
                self.string(length)
            }
            0xCA => number(f64::from(f32::from_be_bytes(self.fixed()?))),
            0xCB => number(f64::from_be_bytes(self.fixed()?)),
            0xCC => number(f64::from(u8::from_be_bytes(self.fixed()?))),
            0xCD => number(f64::from(u16::from_be_bytes(self.fixed()?))),
            0xCE => number(f64::from(u32::from_be_bytes(self.fixed()?))),
            0xCF => number(u64::from_be_bytes(self.fixed()?) as f64),
            0xD0 => number(f64::from(i8::from_be_bytes(self.fixed()?))),
            0xD1 => number(f64::from(i16::from_be_bytes(self.fixed()?))),
            0xD2 => number(f64::from(i32::from_be_bytes(self.fixed()?))),
            0xD3 => number(i64::from_be_bytes(self.fixed()?) as f64),
            0xD9..=0xDB => {
                let length = self.length(1 << (code - 0xD9))?;
                self.string(length)
            }
            0xDC | 0xDD => {
                let length = self.length(2 << (code - 0xDC))?;
                self.array(length, depth)
            }
            0xDE | 0xDF => {
                let length = self.length(2 << (code - 0xDE))?;
                self.map(length, depth)
            }
            0xE0.. => number(f64::from(code as i8)),
            0xC1 | 0xC7..=0xC9 | 0xD4..=0xD8 => Err(fail(self.lua, BAD_DATA)),
        }
    }
}

/// Reads up to `limit` values (all if 0) from `offset` on. With a limit, the next offset comes first: -1 at
/// the end.
fn unpack(
    host: &Host,
    lua: &Lua,
    text: &[u8],
    limit: i64,
    offset: i64,
    with_offset: bool,
) -> mlua::Result<MultiValue> {
    if limit < 0 || offset < 0 {
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {}.", text.len());
        return Err(fail(lua, &text));
    }
    if offset as usize > text.len() {
        return Err(fail(lua, &format!("Start offset {offset} greater than input length {}.", text.len())));
    }
    let mut reader = Reader { lua, meter: Meter::new(host, lua), bytes: text, at: offset as usize };
    let mut out = MultiValue::new();
    while reader.at < text.len() && (limit == 0 || (out.len() as i64) < limit) {
        out.push_back(reader.value(0)?);
    }
    if with_offset {
        let next = if reader.at < text.len() { reader.at as i64 } else { -1 };
        out.push_front(Value::Integer(next));
    }
    Ok(out)
}

pub(super) fn library(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.set("pack", host.function(lua, pack)?)?;
    let all = |host: &Host, lua: &Lua, values: MultiValue| {
        let text = Arguments::new(lua, "unpack", values).string(0)?;
        unpack(host, lua, &text.as_bytes(), 0, 0, false)
    };
    library.set("unpack", host.function(lua, all)?)?;
    let one = |host: &Host, lua: &Lua, values: MultiValue| {
        let arguments = Arguments::new(lua, "unpack_one", values);
        let offset = arguments.integer_or(1, 0)?;
        unpack(host, lua, &arguments.string(0)?.as_bytes(), 1, offset, true)
    };
    library.set("unpack_one", host.function(lua, one)?)?;
    let limited = |host: &Host, lua: &Lua, values: MultiValue| {
        let arguments = Arguments::new(lua, "unpack_limit", values);
        let (limit, offset) = (arguments.integer(1)?, arguments.integer_or(2, 0)?);
        unpack(host, lua, &arguments.string(0)?.as_bytes(), limit, offset, true)
    };
    library.set("unpack_limit", host.function(lua, limited)?)?;
    library.set("_NAME", "cmsgpack")?;
    library.set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(library)
}
