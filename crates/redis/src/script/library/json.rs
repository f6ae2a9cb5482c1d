//! The `cjson` library, with the behaviour of lua-cjson 2.1 as Redis configures it.
//!
//! Settings belong to a run: what one script sets, the next does not see.

use super::super::number::push_g;
use super::super::run::{Host, Meter};
use super::arguments::{Arguments, fail, type_name};
use super::json_parse::Parser;
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
/// Bytes of a text that count as one step: they are looked at one by one.
pub(super) const BYTES_PER_STEP: usize = 2;

struct Encoder<'a> {
    lua: &'a Lua,
    meter: Meter<'a>,
    config: JsonConfig,
    out: Vec<u8>,
    bytes_max: usize,
}

/// How a table is written.
enum Shape {
    Array(i64),
    Object,
}

impl Encoder<'_> {
    fn refuse<T>(&self, value: &Value, reason: &str) -> mlua::Result<T> {
        Err(fail(
            self.lua,
            &format!("Cannot serialise {}: {reason}", type_name(value)),
        ))
    }

    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.meter.spend(STEPS_PER_VALUE)?;
        if self.out.len() > self.bytes_max {
            return Err(mlua::Error::MemoryError(
                "the JSON text is too long".to_owned(),
            ));
        }
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                self.out.extend_from_slice(b"null")
            }
            Value::Boolean(value) => {
                self.out
                    .extend_from_slice(if *value { b"true" } else { b"false" })
            }
            Value::Integer(number) => self.number(*number as f64, value)?,
            Value::Number(number) => self.number(*number, value)?,
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Table(table) => self.table(table, value, depth + 1)?,
            _ => self.refuse(value, "type not supported")?,
        }
        Ok(())
    }

    fn number(&mut self, number: f64, value: &Value) -> mlua::Result<()> {
        if !number.is_finite() {
            match self.config.encode_invalid_numbers {
                InvalidNumbers::Refuse => return self.refuse(value, "must not be NaN or Inf"),
                InvalidNumbers::WriteNull => self.out.extend_from_slice(b"null"),
                InvalidNumbers::Write if number.is_nan() => self.out.extend_from_slice(b"nan"),
                InvalidNumbers::Write => push_g(&mut self.out, number, 14),
            }
            return Ok(());
        }
        push_g(&mut self.out, number, self.config.number_precision);
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.meter.spend(text.len() / BYTES_PER_STEP)?;
        self.out.push(b'"');
        for &byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                0x08 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0x0C => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..0x20 | 0x7F => {
                    let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                    self.out.extend_from_slice(&[
                        b'\\',
                        b'u',
                        b'0',
                        b'0',
                        digit(byte >> 4),
                        digit(byte & 15),
                    ]);
                }
                _ => self.out.push(byte),
            }
        }
        self.out.push(b'"');
        Ok(())
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
        let sparse = config.sparse_ratio > 0
            && max > items * config.sparse_ratio
            && max > config.sparse_safe;
        if sparse && !config.sparse_convert {
            return self.refuse(value, "excessively sparse array");
        }
        Ok(if max > 0 && !sparse {
            Shape::Array(max)
        } else {
            Shape::Object
        })
    }

    fn table(&mut self, table: &Table, value: &Value, depth: usize) -> mlua::Result<()> {
        if depth > self.config.encode_depth_max {
            return Err(fail(
                self.lua,
                &format!("Cannot serialise, excessive nesting ({depth})"),
            ));
        }
        match self.shape(table, value)? {
            Shape::Array(length) => {
                self.out.push(b'[');
                for index in 1..=length {
                    if index > 1 {
                        self.out.push(b',');
                    }
                    self.value(&table.raw_get(index)?, depth)?;
                }
                self.out.push(b']');
            }
            Shape::Object => {
                self.out.push(b'{');
                let mut first = true;
                for pair in table.pairs::<Value, Value>() {
                    let (key, item) = pair?;
                    self.meter.spend(STEPS_PER_VALUE)?;
                    if !first {
                        self.out.push(b',');
                    }
                    first = false;
                    match &key {
                        Value::String(text) => self.string(&text.as_bytes())?,
                        Value::Integer(_) | Value::Number(_) => {
                            let number = key.as_number().or(key.as_integer().map(|key| key as f64));
                            self.out.push(b'"');
                            push_g(
                                &mut self.out,
                                number.unwrap_or_default(),
                                self.config.number_precision,
                            );
                            self.out.push(b'"');
                        }
                        _ => return self.refuse(&key, "table key must be a number or string"),
                    }
                    self.out.push(b':');
                    self.value(&item, depth)?;
                }
                self.out.push(b'}');
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
    let bytes_max = super::super::limits::limits().memory_bytes_max;
    let mut encoder = Encoder {
        lua,
        meter: Meter::new(host, lua),
        config,
        out: Vec::new(),
        bytes_max,
    };
    encoder.value(arguments.value(0), 0)?;
    lua.create_string(&encoder.out).map(Value::String)
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

fn bounded(
    arguments: &Arguments<'_>,
    index: usize,
    current: i64,
    low: i64,
    high: i64,
) -> mlua::Result<i64> {
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
    setting(
        lua,
        &library,
        host,
        "encode_sparse_array",
        |arguments, config| {
            config.sparse_convert = switch(arguments, 0, config.sparse_convert)?;
            config.sparse_ratio = bounded(arguments, 1, config.sparse_ratio, 0, INT_MAX)?;
            config.sparse_safe = bounded(arguments, 2, config.sparse_safe, 0, INT_MAX)?;
            let convert = Value::Boolean(config.sparse_convert);
            Ok(values([
                convert,
                Value::Integer(config.sparse_ratio),
                Value::Integer(config.sparse_safe),
            ]))
        },
    )?;
    // Beyond a few thousand levels the thread's stack would end before the setting does.
    const DEPTH_MAX: i64 = 2000;
    setting(
        lua,
        &library,
        host,
        "encode_max_depth",
        |arguments, config| {
            let depth = bounded(arguments, 0, config.encode_depth_max as i64, 1, INT_MAX)?;
            config.encode_depth_max = depth.min(DEPTH_MAX) as usize;
            Ok(values([Value::Integer(config.encode_depth_max as i64)]))
        },
    )?;
    setting(
        lua,
        &library,
        host,
        "decode_max_depth",
        |arguments, config| {
            let depth = bounded(arguments, 0, config.decode_depth_max as i64, 1, INT_MAX)?;
            config.decode_depth_max = depth.min(DEPTH_MAX) as usize;
            Ok(values([Value::Integer(config.decode_depth_max as i64)]))
        },
    )?;
    setting(
        lua,
        &library,
        host,
        "encode_number_precision",
        |arguments, config| {
            config.number_precision =
                bounded(arguments, 0, config.number_precision as i64, 1, 14)? as usize;
            Ok(values([Value::Integer(config.number_precision as i64)]))
        },
    )?;
    setting(
        lua,
        &library,
        host,
        "encode_keep_buffer",
        |arguments, config| {
            config.keep_buffer = switch(arguments, 0, config.keep_buffer)?;
            Ok(values([Value::Boolean(config.keep_buffer)]))
        },
    )?;
    setting(
        lua,
        &library,
        host,
        "encode_invalid_numbers",
        |arguments, config| {
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
        },
    )?;
    setting(
        lua,
        &library,
        host,
        "decode_invalid_numbers",
        |arguments, config| {
            config.decode_invalid_numbers = switch(arguments, 0, config.decode_invalid_numbers)?;
            Ok(values([Value::Boolean(config.decode_invalid_numbers)]))
        },
    )?;
    library.set("null", Value::NULL)?;
    library.set("_NAME", "cjson")?;
    library.set("_VERSION", "2.1.0")?;
    Ok(library)
}
