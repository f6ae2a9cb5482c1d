//! Replies become Lua values, and Lua values become replies, as Redis converts them.

use super::run::{BYTES_PER_STEP, Host, Signal};
use crate::parse;
use mlua::{IntoLua, Lua, LuaString, Table, Value};
use txn::{Blob, Reply};

/// How deeply a reply may be nested. Redis stops where Lua's stack ends, a few thousand levels down.
const NESTING_MAX: usize = 1000;

/// What a value counts for that becomes part of a script's reply.
const STEPS_PER_VALUE: u64 = 15;
/// What a table counts for besides: it is looked at for each form that it may have.
const STEPS_PER_TABLE: u64 = 80;

/// The text of a reply for which the nesting limit was reached.
const TOO_DEEP: Reply = Reply::error("ERR reached lua stack limit");

pub(super) fn string(lua: &Lua, bytes: &[u8]) -> mlua::Result<Value> {
    lua.create_string(bytes).map(Value::String)
}

fn single(lua: &Lua, field: &str, value: impl IntoLua) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, value)?;
    Ok(Value::Table(table))
}

/// `{err = text}`.
pub(super) fn error_table(lua: &Lua, text: &str) -> mlua::Result<Value> {
    single(lua, "err", text)
}

/// `{ok = text}`.
pub(super) fn status_table(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    single(lua, "ok", LuaString::wrap(text))
}

fn sequence(lua: &Lua, items: &[Reply], resp3: bool, steps_left: u64) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(items.len(), 0)?;
    for (index, item) in items.iter().enumerate() {
        table.raw_seti(index + 1, to_lua(lua, item, resp3, steps_left)?)?;
    }
    Ok(table)
}

/// Fails where more is owed than the run has left. The caller counts it, and stops the run.
fn check_debt(steps_left: u64) -> mlua::Result<()> {
    if lua::debt() > steps_left {
        return Err(mlua::Error::RuntimeError("out of steps".to_owned()));
    }
    Ok(())
}

/// A command's reply as a script sees it. Fails when Lua charges more than `steps_left` for it: keys may
/// collide.
pub(super) fn to_lua(lua: &Lua, reply: &Reply, resp3: bool, steps_left: u64) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Nil | Reply::NilArray if resp3 => Value::Nil,
        Reply::Nil | Reply::NilArray => Value::Boolean(false),
        Reply::Status(text) => status_table(lua, text.as_bytes())?,
        Reply::Error(text) => error_table(lua, text)?,
        Reply::Integer(value) => Value::Number(*value as f64),
        Reply::Bulk(bytes) => string(lua, bytes)?,
        Reply::Array(items) | Reply::Push(items) => Value::Table(sequence(lua, items, resp3, steps_left)?),
        Reply::Double(value) | Reply::Decimal(value) if resp3 => single(lua, "double", *value)?,
        Reply::Double(value) => string(lua, parse::float_text(*value).as_bytes())?,
        Reply::Decimal(value) => string(lua, parse::plain_float_text(*value).as_bytes())?,
        Reply::Boolean(value) if resp3 => Value::Boolean(*value),
        Reply::Boolean(value) => Value::Integer(i64::from(*value)),
        Reply::BigNumber(digits) if resp3 => single(lua, "big_number", LuaString::wrap(digits))?,
        Reply::BigNumber(digits) => string(lua, digits)?,
        Reply::Verbatim(format, text) if resp3 => {
            let inner = lua.create_table_with_capacity(0, 2)?;
            inner.raw_set("format", *format)?;
            inner.raw_set("string", LuaString::wrap(text))?;
            single(lua, "verbatim_string", inner)?
        }
        Reply::Verbatim(_, text) => string(lua, text)?,
        Reply::Map(pairs) | Reply::PairMap(pairs) if resp3 => {
            let map = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, value) in pairs {
                check_debt(steps_left)?;
                map.raw_set(to_lua(lua, key, resp3, steps_left)?, to_lua(lua, value, resp3, steps_left)?)?;
            }
            single(lua, "map", map)?
        }
        Reply::Pairs(pairs) | Reply::PairMap(pairs) if resp3 == matches!(reply, Reply::Pairs(_)) => {
            let table = lua.create_table_with_capacity(pairs.len(), 0)?;
            for (index, (key, value)) in pairs.iter().enumerate() {
                let pair = lua.create_table_with_capacity(2, 0)?;
                pair.raw_seti(1, to_lua(lua, key, resp3, steps_left)?)?;
                pair.raw_seti(2, to_lua(lua, value, resp3, steps_left)?)?;
                table.raw_seti(index + 1, pair)?;
            }
            Value::Table(table)
        }
        Reply::Map(pairs) | Reply::Pairs(pairs) | Reply::PairMap(pairs) => {
            let table = lua.create_table_with_capacity(2 * pairs.len(), 0)?;
            for (index, (key, value)) in pairs.iter().enumerate() {
                table.raw_seti(2 * index + 1, to_lua(lua, key, resp3, steps_left)?)?;
                table.raw_seti(2 * index + 2, to_lua(lua, value, resp3, steps_left)?)?;
            }
            Value::Table(table)
        }
        Reply::Set(items) if resp3 => {
            let set = lua.create_table_with_capacity(0, items.len())?;
            for item in items {
                check_debt(steps_left)?;
                set.raw_set(to_lua(lua, item, resp3, steps_left)?, true)?;
            }
            single(lua, "set", set)?
        }
        Reply::Set(items) => Value::Table(sequence(lua, items, resp3, steps_left)?),
        Reply::Told(told) => to_lua(lua, &told.reply, resp3, steps_left)?,
    })
}

/// How many values a reply has, those inside of others included.
pub(crate) fn reply_values(reply: &Reply) -> usize {
    let sum = |items: &[Reply]| items.iter().map(reply_values).sum::<usize>();
    1 + match reply {
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => sum(items),
        Reply::Map(pairs) | Reply::Pairs(pairs) | Reply::PairMap(pairs) => {
            let values = pairs.iter().map(|(key, value)| reply_values(key) + reply_values(value));
            values.sum()
        }
        Reply::Told(told) => reply_values(&told.reply),
        _ => 0,
    }
}

/// An estimate of the bytes that a remembered reply holds.
pub(super) fn reply_bytes(reply: &Reply) -> usize {
    let sum = |items: &[Reply]| items.iter().map(reply_bytes).sum::<usize>();
    size_of::<Reply>()
        + match reply {
            Reply::Bulk(bytes) | Reply::BigNumber(bytes) | Reply::Verbatim(_, bytes) => bytes.heap_bytes(),
            Reply::Status(text) | Reply::Error(text) => text.len(),
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => sum(items),
            Reply::Map(pairs) | Reply::Pairs(pairs) | Reply::PairMap(pairs) => {
                pairs.iter().map(|(key, value)| reply_bytes(key) + reply_bytes(value)).sum()
            }
            Reply::Told(told) => reply_bytes(&told.reply),
            Reply::Nil
            | Reply::NilArray
            | Reply::Integer(_)
            | Reply::Double(_)
            | Reply::Decimal(_)
            | Reply::Boolean(_) => 0,
        }
}

/// A text that a status or error line can carry.
pub(super) fn line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if memchr::memchr2(b'\r', b'\n', text.as_bytes()).is_none() {
        return text.into_owned();
    }
    text.chars().map(|c| if c == '\r' || c == '\n' { ' ' } else { c }).collect()
}

/// What a script returned, as a reply. A table that holds the same table many times can be a reply of any
/// size, so its size is limited, and its values count as steps; beyond these limits the script is stopped.
pub(super) fn to_reply(host: &Host, value: Value, resp3: bool) -> mlua::Result<Reply> {
    let mut conversion = Conversion { host, resp3, bytes_left: super::limits::limits().memory_bytes_max };
    conversion.reply(value, 0)
}

struct Conversion<'a> {
    host: &'a Host,
    resp3: bool,
    bytes_left: usize,
}

impl Conversion<'_> {
    // These apart: what they keep on the stack would be kept for each level of nesting.
    #[inline(never)]
    fn take(&mut self, bytes: usize) -> mlua::Result<()> {
        let steps = STEPS_PER_VALUE + (bytes / BYTES_PER_STEP) as u64;
        self.host.charge(steps)?;
        match self.bytes_left.checked_sub(bytes + size_of::<Reply>()) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(self.host.stop(Signal::ReplyTooLarge)),
        }
    }

    #[inline(never)]
    fn take_debt(&mut self) -> mlua::Result<()> {
        self.host.charge(0)
    }

    #[inline(never)]
    fn take_table(&mut self) -> mlua::Result<()> {
        self.host.charge(STEPS_PER_TABLE)?;
        self.take(0)
    }

    fn bulk(&mut self, text: &LuaString) -> mlua::Result<Reply> {
        let bytes = text.as_bytes();
        self.take(bytes.len())?;
        Ok(Reply::Bulk(Blob::new(&bytes)))
    }

    fn reply(&mut self, value: Value, depth: usize) -> mlua::Result<Reply> {
        if depth > NESTING_MAX {
            return Ok(TOO_DEEP);
        }
        Ok(match value {
            Value::String(text) => self.bulk(&text)?,
            // Redis casts to `long long`: towards zero, and to the smallest integer what has none.
            Value::Integer(value) => self.scalar(Reply::Integer(value))?,
            Value::Number(value) => self.scalar(Reply::Integer(truncated(value)))?,
            Value::Boolean(value) if self.resp3 => self.scalar(Reply::Boolean(value))?,
            Value::Boolean(true) => self.scalar(Reply::Integer(1))?,
            Value::Table(table) => return self.table(&table, depth),
            _ => self.scalar(Reply::Nil)?,
        })
    }

    fn scalar(&mut self, reply: Reply) -> mlua::Result<Reply> {
        self.take(0)?;
        Ok(reply)
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<Reply> {
        self.take_table()?;
        if let Value::String(text) = table.raw_get("err")? {
            let text = line(&text.as_bytes());
            let text = text.strip_prefix('-').map(str::to_owned).unwrap_or(text);
            return Ok(Reply::error_owned(text));
        }
        if let Value::String(text) = table.raw_get("ok")? {
            return Ok(Reply::Status(line(&text.as_bytes()).into()));
        }
        match table.raw_get("double")? {
            Value::Integer(value) => return Ok(Reply::Double(value as f64)),
            Value::Number(value) => return Ok(Reply::Double(value)),
            _ => {}
        }
        if let Value::Table(map) = table.raw_get("map")? {
            let mut pairs = Vec::new();
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.take_debt()?;
                self.host.ordered(&key)?;
                pairs.push((self.reply(key, depth + 1)?, self.reply(value, depth + 1)?));
            }
            return Ok(Reply::Map(pairs));
        }
        if let Value::Table(set) = table.raw_get("set")? {
            let mut members = Vec::new();
            for pair in set.pairs::<Value, Value>() {
                let (key, _) = pair?;
                self.host.ordered(&key)?;
                members.push(self.reply(key, depth + 1)?);
            }
            return Ok(Reply::Set(members));
        }
        if let Value::String(digits) = table.raw_get("big_number")? {
            return Ok(Reply::BigNumber(Blob::from(line(&digits.as_bytes()))));
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let (Value::String(format), Value::String(text)) =
                (verbatim.raw_get("format")?, verbatim.raw_get("string")?)
        {
            let format = if &*format.as_bytes() == b"mkd" { "mkd" } else { "txt" };
            let text = text.as_bytes();
            self.take(text.len())?;
            return Ok(Reply::Verbatim(format, Blob::new(&text)));
        }
        let mut items = Vec::with_capacity(table.raw_len().min(1024));
        for index in 1.. {
            match table.raw_get::<Value>(index)? {
                Value::Nil => break,
                item => items.push(self.reply(item, depth + 1)?),
            }
        }
        Ok(Reply::Array(items))
    }
}

/// C's conversion to a 64-bit integer, with the value that x86-64 gives where C leaves it open.
fn truncated(value: f64) -> i64 {
    if value >= -(2f64.powi(63)) && value < 2f64.powi(63) { value as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_truncate_as_in_redis() {
        for (value, integer) in
            [(3.99, 3), (-3.99, -3), (1e300, i64::MIN), (f64::NAN, i64::MIN), (2f64.powi(53), 1 << 53)]
        {
            assert_eq!(truncated(value), integer);
        }
    }
}
