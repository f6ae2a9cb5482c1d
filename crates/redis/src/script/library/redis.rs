//! The `redis` table.

use super::super::convert::{error_table, line, status_table, string};
use super::super::digest_of;
use super::super::run::{BYTES_PER_STEP, Host, RaisedReply, STEPS_PER_CALL, STEPS_PER_WORD, argv};
use crate::table::{self, ResolveError};
use crate::{REDIS_VERSION, REDIS_VERSION_NUM};
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

const LOG_LEVELS: [&str; 4] = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];
/// AOF is bit 0, REPLICA bit 1. Scripts replicate as requests here, so the choice has no effect.
const REPLICATION: [(&str, i64); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];

/// What a digest takes, beside its bytes.
const STEPS_PER_DIGEST: u64 = 200;
const BYTES_DIGESTED_PER_STEP: u64 = 2;
/// Characters of an error's or a status' text that count as one step: they are copied several times, one by
/// one.
const CHARACTERS_PER_STEP: usize = 1;

fn raise<T>(text: &str) -> mlua::Result<T> {
    Err(mlua::Error::external(RaisedReply(text.to_owned())))
}

fn one_string(values: &MultiValue) -> Option<Vec<u8>> {
    match values.front() {
        Some(Value::String(text)) if values.len() == 1 => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

/// Counts the characters of a text that is looked through.
fn charge_text(host: &Host, values: &MultiValue) -> mlua::Result<()> {
    match values.front() {
        Some(Value::String(text)) => host.charge((text.as_bytes().len() / CHARACTERS_PER_STEP) as u64),
        _ => Ok(()),
    }
}

/// `redis.error_reply`: a text without a code gets `ERR`.
fn error_reply(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    charge_text(host, &values)?;
    let Some(text) = one_string(&values) else {
        return error_table(lua, "ERR wrong number or type of arguments");
    };
    let text = text.strip_prefix(b"-").unwrap_or(&text).trim_ascii_end();
    let has_code = text.contains(&b' ');
    let text = line(text);
    if has_code { error_table(lua, &text) } else { error_table(lua, &format!("ERR {text}")) }
}

fn status_reply(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    charge_text(host, &values)?;
    match one_string(&values) {
        Some(text) => status_table(lua, &text),
        None => error_table(lua, "ERR wrong number or type of arguments"),
    }
}

fn sha1hex(host: &Host, lua: &Lua, values: &MultiValue) -> mlua::Result<Value> {
    match values.front() {
        Some(value) if values.len() == 1 => {
            let text = lua.coerce_string(value.clone())?;
            let bytes = text.as_ref().map_or(0, |text| text.as_bytes().len());
            host.charge(STEPS_PER_DIGEST + bytes as u64 / BYTES_DIGESTED_PER_STEP)?;
            string(lua, &digest_of(&text.map(|text| text.as_bytes().to_vec()).unwrap_or_default()))
        }
        _ => raise("ERR wrong number of arguments"),
    }
}

/// A number, or a string that reads as one, cut to an integer.
fn integer(lua: &Lua, value: Option<&Value>) -> mlua::Result<Option<i64>> {
    let number = value.map(|value| lua.coerce_number(value.clone()));
    Ok(number.transpose()?.flatten().map(|number| number as i64))
}

/// `redis.log`: checked and dropped. An execution may be one of several of its transaction, or doomed, so
/// what it says tells nothing yet; replies never depend on it.
fn log(_: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<()> {
    if values.len() < 2 {
        return raise("ERR redis.log() requires two arguments or more.");
    }
    match integer(lua, values.front())? {
        Some(level) if (0..LOG_LEVELS.len() as i64).contains(&level) => Ok(()),
        Some(_) => raise("ERR Invalid debug level."),
        None => raise("ERR First argument must be a number (log level)."),
    }
}

fn set_repl(_: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<()> {
    if values.len() != 1 {
        return raise("ERR redis.set_repl() requires two arguments.");
    }
    match integer(lua, values.front())? {
        Some(0..=3) => Ok(()),
        _ => raise("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."),
    }
}

/// `redis.acl_check_cmd`: whether the script's user may run a command, whatever the number of its words.
fn acl_check_cmd(host: &Host, values: &MultiValue) -> mlua::Result<bool> {
    let bytes = values.iter().filter_map(Value::as_string).map(|word| word.as_bytes().len());
    let words = values.len() * STEPS_PER_WORD + bytes.sum::<usize>() / BYTES_PER_STEP;
    host.charge(STEPS_PER_CALL + words as u64)?;
    let words = argv(values).or_else(raise)?;
    match table::resolve(&words) {
        Err(ResolveError::Unknown | ResolveError::UnknownSubcommand(_)) => {
            raise("ERR Invalid command passed to redis.acl_check_cmd()")
        }
        Ok(resolved) | Err(ResolveError::Arity(resolved)) => {
            host.with(|run| run.execution.terms.actor.may(&resolved, &words))
        }
    }
}

pub(super) fn library(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.set("call", host.function(lua, |host, lua, values| host.call(lua, &values))?)?;
    library.set("pcall", host.function(lua, |host, lua, values| host.pcall(lua, &values))?)?;
    let setresp = |host: &Host, lua: &Lua, values: MultiValue| {
        if values.len() != 1 {
            return raise("ERR redis.setresp() requires one argument.");
        }
        match integer(lua, values.front())? {
            Some(version @ (2 | 3)) => host.with(|run| run.resp3 = version == 3),
            _ => raise("ERR RESP version must be 2 or 3."),
        }
    };
    library.set("setresp", host.function(lua, setresp)?)?;
    library.set("error_reply", host.function(lua, error_reply)?)?;
    library.set("status_reply", host.function(lua, status_reply)?)?;
    library.set("sha1hex", host.function(lua, |host, lua, values| sha1hex(host, lua, &values))?)?;
    library.set("log", host.function(lua, log)?)?;
    library.set("set_repl", host.function(lua, set_repl)?)?;
    library.set("acl_check_cmd", host.function(lua, |host, _, values| acl_check_cmd(host, &values))?)?;
    library.set("replicate_commands", host.function(lua, |_, _, _| Ok(true))?)?;
    library.set("breakpoint", host.function(lua, |_, _, _| Ok(false))?)?;
    library.set("debug", host.function(lua, |_, _, _| Ok(()))?)?;
    for (level, name) in LOG_LEVELS.iter().enumerate() {
        library.set(*name, level)?;
    }
    for (name, flags) in REPLICATION {
        library.set(name, flags)?;
    }
    library.set("REDIS_VERSION", REDIS_VERSION)?;
    library.set("REDIS_VERSION_NUM", REDIS_VERSION_NUM)?;
    Ok(library)
}
