//! The `cjson` library, with the behaviour of lua-cjson 2.1 as Redis configures it.
//!
//! Settings belong to a run: what one script sets, the next does not see.

use super::super::number::push_g;
use super::super::run::{Host, Meter};
use super::arguments::{Arguments, fail, type_name};
use super::json_parse::Parser;
use super::output::Output;
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// What a script can set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::script) struct JsonConfig {
    pub sparse_convert: bool,
    pub sparse_ratio: i64,
    pub sparse_safe: i64,
    pub encode_depth_max: usize,
    pub decode_depth_max: usize,
    pub number_precision: usize,
    pub encode_invalid_numbers: InvalidNumbers,
    pub decode_invalid_numbers: bool,
    pub keep_buffer: bool,
}

/// What to do with numbers that JSON doesn't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::script) enum InvalidNumbers {
    Refuse,
    Write,
    WriteNull,
}

impl Default for JsonConfig {
    fn default() -> JsonConfig {
        JsonConfig {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            number_precision: 14,
            encode_invalid_numbers: InvalidNumbers::Refuse,
            decode_invalid_numbers: true,
            keep_buffer: true,
        }
    }
}

/// What a value counts for: the way through the binding, and a number's digits.
pub(super) const STEPS_PER_VALUE: usize = 30;
/// What each byte of a string may become.
const BYTES_PER_ESCAPE: usize = 6;
/// Bytes of a string that are written between two looks at the memory.
const BYTES_AT_ONCE: usize = 1024;
/// What a number or a word takes at most.
const BYTES_PER_SCALAR: usize = 64;
/// Bytes of a text that count as one step: they are looked at one by one.
pub(super) const BYTES_PER_STEP: usize = 2;

struct Encoder<'a> {
    lua: &'a Lua,
    meter: Meter<'a>,
    config: JsonConfig,
    out: Output<'a>,
}

/// Writes bytes of a string, of which each becomes at most [`BYTES_PER_ESCAPE`].
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0C => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..0x20 | 0x7F => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                let digits = [digit(byte >> 4), digit(byte & 15)];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
            _ => out.push(byte),
        }
    }
}

/// How a table is written.
enum Shape {
    Array(i64),
    Object,
}

impl Encoder<'_> {
    fn refuse<T>(&self, value: &Value, reason: &str) -> mlua::Result<T> {
        Err(fail(self.lua, &format!("Cannot serialise {}: {reason}", type_name(value))))
    }

    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.meter.spend(STEPS_PER_VALUE)?;
        match value {
            Value::Nil => self.out.put(b"null")?,
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.put(b"null")?,
            Value::Boolean(true) => self.out.put(b"true")?,
            Value::Boolean(false) => self.out.put(b"false")?,
            Value::Integer(number) => self.number(*number as f64, value)?,
            Value::Number(number) => self.number(*number, value)?,
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Table(table) => self.table(table, value, depth + 1)?,
            _ => self.refuse(value, "type not supported")?,
        }
        Ok(())
    }

    #[inline(never)]
    fn number(&mut self, number: f64, value: &Value) -> mlua::Result<()> {
        if !number.is_finite() {
            match self.config.encode_invalid_numbers {
                InvalidNumbers::Refuse => return self.refuse(value, "must not be NaN or Inf"),
                InvalidNumbers::WriteNull => self.out.put(b"null")?,
                InvalidNumbers::Write if number.is_nan() => self.out.put(b"nan")?,
                InvalidNumbers::Write => push_g(self.out.room(BYTES_PER_SCALAR)?, number, 14),
            }
            return Ok(());
        }
        let precision = self.config.number_precision;
        push_g(self.out.room(BYTES_PER_SCALAR)?, number, precision);
        Ok(())
    }

    // Apart: what it keeps on the stack would be kept for each level of nesting.
    #[inline(never)]
    fn string(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.meter.spend(text.len() / BYTES_PER_STEP)?;
        self.out.put(b"\"")?;
        for part in text.chunks(BYTES_AT_ONCE) {
            escape(part, self.out.room(part.len() * BYTES_PER_ESCAPE)?);
        }
        self.out.put(b"\"")
    }

    fn shape(&mut self, table: &Table, value: &Value) -> mlua::Result<Shape> {
        let (mut max, mut items) = (0, 0);
        for pair in table.pairs::<Value, Value>() {
            self.meter.spend(STEPS_PER_VALUE)?;
            match pair?.0 {
                Value::Integer(key) if key >= 1 => {
                    max = max.max(key);
                    items += 1;
                }
                _ => return Ok(Shape::Object),
            }
        }
        let config = &self.config;
        let sparse = config.sparse_ratio > 0 && max > items * config.sparse_ratio && max > config.sparse_safe;
        if sparse && !config.sparse_convert {
            return self.refuse(value, "excessively sparse array");
        }
        Ok(if max > 0 && !sparse { Shape::Array(max) } else { Shape::Object })
    }

    fn table(&mut self, table: &Table, value: &Value, depth: usize) -> mlua::Result<()> {
        if depth > self.config.encode_depth_max {
            return Err(fail(self.lua, &format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.shape(table, value)? {
            Shape::Array(length) => {
                self.out.put(b"[")?;
                for index in 1..=length {
                    if index > 1 {
                        self.out.put(b",")?;
                    }
                    self.value(&table.raw_get(index)?, depth)?;
                }
                self.out.put(b"]")?;
            }
            Shape::Object => {
                self.out.put(b"{")?;
                let mut first = true;
                for pair in table.pairs::<Value, Value>() {
                    let (key, item) = pair?;
                    self.meter.spend(STEPS_PER_VALUE)?;
                    if !first {
                        self.out.put(b",")?;
                    }
                    first = false;
                    match &key {
                        Value::String(text) => self.string(&text.as_bytes())?,
                        Value::Integer(_) | Value::Number(_) => {
                            let number = key.as_number().or(key.as_integer().map(|key| key as f64));
                            self.out.put(b"\"")?;
                            let precision = self.config.number_precision;
                            let out = self.out.room(BYTES_PER_SCALAR)?;
                            push_g(out, number.unwrap_or_default(), precision);
                            self.out.put(b"\"")?;
                        }
                        _ => return self.refuse(&key, "table key must be a number or string"),
                    }
                    self.out.put(b":")?;
                    self.value(&item, depth)?;
                }
                self.out.put(b"}")?;
            }
        }
        Ok(())
    }
}

fn encode(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    let arguments = Arguments::new(lua, "encode", values);
    if arguments.len() != 1 {
        return Err(arguments.bad(0, "expected 1 argument"));
    }
    let config = host.with(|run| run.json)?;
    let mut encoder = Encoder { lua, meter: Meter::new(host, lua), config, out: Output::new(host, lua) };
    encoder.value(arguments.value(0), 0)?;
    encoder.out.into_string()
}

fn decode(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    let arguments = Arguments::new(lua, "decode", values);
    if arguments.len() != 1 {
        return Err(arguments.bad(0, "expected 1 argument"));
    }
    let text = arguments.string(0)?;
    let text = text.as_bytes();
    let config = host.with(|run| run.json)?;
    Parser::new(lua, host, &text, config).document()
}

/// A function that sets and returns settings.
fn setting(
    lua: &Lua,
    library: &Table,
    host: &Rc<Host>,
    name: &'static str,
    set: impl Fn(&Arguments<'_>, &mut JsonConfig) -> mlua::Result<MultiValue> + 'static,
) -> mlua::Result<()> {
    let function = move |host: &Host, lua: &Lua, values: MultiValue| {
        let arguments = Arguments::new(lua, name, values);
        let mut config = host.with(|run| run.json)?;
        let current = set(&arguments, &mut config)?;
        host.with(|run| run.json = config)?;
        Ok(current)
    };
    library.set(name, host.function(lua, function)?)
}

fn bounded(arguments: &Arguments<'_>, index: usize, current: i64, low: i64, high: i64) -> mlua::Result<i64> {
    if arguments.value(index).is_nil() {
        return Ok(current);
    }
    let value = arguments.integer(index)?;
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(arguments.bad(index, &format!("expected integer between {low} and {high}")))
    }
}

fn switch(arguments: &Arguments<'_>, index: usize, current: bool) -> mlua::Result<bool> {
    match arguments.value(index) {
        Value::Nil => Ok(current),
        Value::Boolean(value) => Ok(*value),
        Value::String(text) if *text == "on" => Ok(true),
        Value::String(text) if *text == "off" => Ok(false),
        _ => Err(arguments.bad(index, "boolean expected")),
    }
}

fn values<const N: usize>(values: [Value; N]) -> MultiValue {
    values.into_iter().collect()
}

pub(super) fn library(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.set("encode", host.function(lua, encode)?)?;
    library.set("decode", host.function(lua, decode)?)?;
    const INT_MAX: i64 = i32::MAX as i64;
    setting(lua, &library, host, "encode_sparse_array", |arguments, config| {
        config.sparse_convert = switch(arguments, 0, config.sparse_convert)?;
        config.sparse_ratio = bounded(arguments, 1, config.sparse_ratio, 0, INT_MAX)?;
        config.sparse_safe = bounded(arguments, 2, config.sparse_safe, 0, INT_MAX)?;
        let convert = Value::Boolean(config.sparse_convert);
        Ok(values([convert, Value::Integer(config.sparse_ratio), Value::Integer(config.sparse_safe)]))
    })?;
    // Beyond a few thousand levels the thread's stack would end before the setting does.
    const DEPTH_MAX: i64 = 2000;
    setting(lua, &library, host, "encode_max_depth", |arguments, config| {
        let depth = bounded(arguments, 0, config.encode_depth_max as i64, 1, INT_MAX)?;
        config.encode_depth_max = depth.min(DEPTH_MAX) as usize;
        Ok(values([Value::Integer(config.encode_depth_max as i64)]))
    })?;
    setting(lua, &library, host, "decode_max_depth", |arguments, config| {
        let depth = bounded(arguments, 0, config.decode_depth_max as i64, 1, INT_MAX)?;
        config.decode_depth_max = depth.min(DEPTH_MAX) as usize;
        Ok(values([Value::Integer(config.decode_depth_max as i64)]))
    })?;
    setting(lua, &library, host, "encode_number_precision", |arguments, config| {
        config.number_precision = bounded(arguments, 0, config.number_precision as i64, 1, 14)? as usize;
        Ok(values([Value::Integer(config.number_precision as i64)]))
    })?;
    setting(lua, &library, host, "encode_keep_buffer", |arguments, config| {
        config.keep_buffer = switch(arguments, 0, config.keep_buffer)?;
        Ok(values([Value::Boolean(config.keep_buffer)]))
    })?;
    setting(lua, &library, host, "encode_invalid_numbers", |arguments, config| {
        config.encode_invalid_numbers = match arguments.value(0) {
            Value::String(text) if *text == "null" => InvalidNumbers::WriteNull,
            Value::Nil => config.encode_invalid_numbers,
            _ if switch(arguments, 0, false)? => InvalidNumbers::Write,
            _ => InvalidNumbers::Refuse,
        };
        Ok(values([match config.encode_invalid_numbers {
            InvalidNumbers::Refuse => Value::Boolean(false),
            InvalidNumbers::Write => Value::Boolean(true),
            InvalidNumbers::WriteNull => super::super::convert::string(arguments.lua, b"null")?,
        }]))
    })?;
    setting(lua, &library, host, "decode_invalid_numbers", |arguments, config| {
        config.decode_invalid_numbers = switch(arguments, 0, config.decode_invalid_numbers)?;
        Ok(values([Value::Boolean(config.decode_invalid_numbers)]))
    })?;
    library.set("null", Value::NULL)?;
    library.set("_NAME", "cjson")?;
    library.set("_VERSION", "2.1.0")?;
    Ok(library)
}
