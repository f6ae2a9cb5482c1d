//! Errors on their way out of a VM: what a script sees of them, and what a client does; and the functions
//! that the prelude needs from here.

use super::convert::line;
use super::library;
use super::library::arguments::{PRELUDE_SOURCE, Place};
use super::limits::compile_steps;
use super::run::{Host, Part, RaisedReply, STEPS_PER_TICK, Signal, UNORDERED_KEYS};
use mlua::chunk::ChunkMode;
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// The longest name of a chunk that is kept: more than Lua shows in an error's text.
const NAME_BYTES_MAX: usize = 200;
/// The text of Lua's error when an allocation fails.
const NOT_ENOUGH_MEMORY: &str = "not enough memory";

pub(super) fn is_out_of_memory(value: &Value) -> bool {
    matches!(value, Value::String(text) if *text == NOT_ENOUGH_MEMORY)
}

/// Whether an error is about the VM rather than about the script: memory, or, in a warm VM, the slots in
/// which the binding holds values, of which the scripts that the VM keeps take some.
pub(super) fn is_undecided(error: &mlua::Error, exact: bool) -> bool {
    match root(error) {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::StackError => !exact,
        _ => false,
    }
}

/// The error inside the wrappings that it got on its way through Lua.
fn root(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => root(cause),
        other => other,
    }
}

pub(super) fn message(error: &mlua::Error) -> String {
    match root(error) {
        mlua::Error::RuntimeError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// An error as scripts see it: what our functions raise becomes a string or a table; a stop signal is raised
/// again.
fn caught(lua: &Lua, host: &Host, error: Value) -> mlua::Result<Value> {
    host.check()?;
    if is_out_of_memory(&error) {
        return Err(host.stop(Signal::OutOfMemory));
    }
    match error {
        Value::Error(error) if is_undecided(&error, host.with(|run| run.execution.exact)?) => {
            Err(host.stop(Signal::OutOfMemory))
        }
        Value::Error(error) => match root(&error) {
            mlua::Error::ExternalError(cause) => match cause.downcast_ref::<RaisedReply>() {
                Some(RaisedReply(text)) => super::convert::error_table(lua, text),
                None => super::convert::string(lua, cause.to_string().as_bytes()),
            },
            other => super::convert::string(lua, message(other).as_bytes()),
        },
        Value::String(text) => match without_prelude_position(&text.as_bytes()) {
            Some(rest) => super::convert::string(lua, rest),
            None => Ok(Value::String(text.clone())),
        },
        other => Ok(other),
    }
}

/// Errors of standard functions that the prelude calls carry the prelude's position, which tells a script's
/// author nothing.
fn without_prelude_position(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(&PRELUDE_SOURCE.as_bytes()[1..])?.strip_prefix(b":")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    rest[end..].strip_prefix(b": ")
}

/// Turns the error that ends a script into the text of its reply, in Redis's form. It is a message handler,
/// and Lua calls a handler again for an error in it, down to the last level of the stack: so it raises none
/// for a stopped script.
fn failed(lua: &Lua, host: &Host, error: Value) -> mlua::Result<()> {
    if host.check().is_err() {
        return Ok(());
    }
    let hidden =
        matches!(&error, Value::String(text) if without_prelude_position(&text.as_bytes()).is_some());
    let Ok(error) = caught(lua, host, error) else {
        return Ok(());
    };
    let place = Place::of_running(lua);
    let text = match &error {
        Value::Table(table) => match table.raw_get::<Value>("err")? {
            Value::String(text) => line(&text.as_bytes()),
            _ => "ERR the script raised a table without a text in its field 'err'".to_owned(),
        },
        Value::String(text) => {
            let position = place.as_ref().filter(|_| hidden).map(Place::prefix);
            format!("ERR {}{}", position.unwrap_or_default(), line(&text.as_bytes()))
        }
        Value::Integer(_) | Value::Number(_) => {
            let text = lua.coerce_string(error.clone())?;
            format!("ERR {}", text.map(|text| line(&text.as_bytes())).unwrap_or_default())
        }
        Value::Boolean(value) => format!("ERR {value}"),
        other => format!("ERR {}", library::arguments::type_name(other)),
    };
    host.with(|run| {
        let program = &run.execution.program;
        run.failure = Some(match program.part {
            Part::Registrations => format!("ERR Error registering functions: {text}"),
            Part::Script | Part::Function(_) => {
                let place = place.map(|place| place.suffix()).unwrap_or_default();
                format!("{text} script: {}{place}", program.name())
            }
        });
    })
}

/// The text of an error that compiling gave.
pub(super) fn syntax_error(error: &mlua::Error) -> String {
    match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// What error texts show of the name of a chunk: its start, or, after an `@`, its end. The rest would be
/// looked through for each error. Lua's names of chunks end at a zero byte.
fn shown_name(name: &[u8]) -> Vec<u8> {
    let end = memchr::memchr(0, name).unwrap_or(name.len());
    let name = &name[..end];
    match name.strip_prefix(b"@") {
        Some(file) => [b"@", &file[file.len().saturating_sub(NAME_BYTES_MAX)..]].concat(),
        None => name[..name.len().min(NAME_BYTES_MAX)].to_vec(),
    }
}

/// What `loadstring` and `load` are made of: a text, the name that its errors call it, and what it will see.
/// Gives the function, or nil and the text of the error.
fn compile_text(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<(Value, Value)> {
    let mut values = values.into_iter();
    let (Some(Value::String(text)), Some(Value::String(name)), Some(Value::Table(environment))) =
        (values.next(), values.next(), values.next())
    else {
        return Err(mlua::Error::RuntimeError("nothing to compile".to_owned()));
    };
    // Charged before: the steps also bound what compiling may allocate.
    host.charge(compile_steps(text.as_bytes().len()))?;
    let name = name.as_bytes();
    let name = shown_name(&name);
    let compiled = lua
        .load(&*text.as_bytes())
        .set_name(String::from_utf8_lossy(&name))
        .set_mode(ChunkMode::Text)
        .set_environment(environment)
        .into_function();
    match compiled {
        Ok(function) => Ok((Value::Function(function), Value::Nil)),
        Err(error @ mlua::Error::SyntaxError { .. }) => {
            let text = super::convert::string(lua, syntax_error(&error).as_bytes())?;
            Ok((Value::Nil, text))
        }
        Err(other) => Err(other),
    }
}

/// What the prelude needs from here.
pub(super) fn host_functions(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let functions = lua.create_table()?;
    let first = |values: MultiValue| values.into_iter().next().unwrap_or(Value::Nil);
    functions
        .set("caught", host.function(lua, move |host, lua, values| caught(lua, host, first(values)))?)?;
    functions
        .set("failed", host.function(lua, move |host, lua, values| failed(lua, host, first(values)))?)?;
    functions.set("stopped", host.function(lua, |host, _, _| Ok(host.check().is_err()))?)?;
    let charge = move |host: &Host, _: &Lua, values: MultiValue| {
        let steps = first(values);
        let steps = steps.as_number().or(steps.as_integer().map(|steps| steps as f64)).unwrap_or(0.0);
        host.charge(steps.max(0.0) as u64)
    };
    functions.set("charge", host.function(lua, charge)?)?;
    // `getmetatable` shows what `__metatable` says instead; this looks behind it.
    let has_field = |_: &Host, _: &Lua, mut values: MultiValue| match (values.pop_front(), values.pop_front())
    {
        (Some(Value::Table(table)), Some(field)) => match table.metatable() {
            Some(metatable) => Ok(!metatable.raw_get::<Value>(field)?.is_nil()),
            None => Ok(false),
        },
        _ => Ok(false),
    };
    functions.set("has_field", host.function(lua, has_field)?)?;
    let clock = |host: &Host, _: &Lua, _: MultiValue| {
        let now_ms = host.with(|run| run.execution.tx.now_ms())?;
        Ok(now_ms as f64 / 1000.0)
    };
    functions.set("clock", host.function(lua, clock)?)?;
    functions.set("compile", host.function(lua, compile_text)?)?;
    functions.set("unordered_keys", UNORDERED_KEYS)?;
    functions.set("steps_per_tick", STEPS_PER_TICK)?;
    Ok(functions)
}
