//! What scripts find in their environment: libraries written here, around a small prelude in Lua.

pub(super) mod arguments;
mod bits;
pub(super) mod json;
mod json_parse;
mod msgpack;
mod numbers;
mod output;
mod redis;
mod strings;
mod structs;

use super::run::Host;
use mlua::{Lua, Table};
use std::rc::Rc;

/// Builds the libraries that the prelude makes read-only.
pub(super) fn install(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let libraries = lua.create_table()?;
    libraries.set("bit", bits::library(lua, host)?)?;
    libraries.set("cjson", json::library(lua, host)?)?;
    libraries.set("cmsgpack", msgpack::library(lua, host)?)?;
    libraries.set("struct", structs::library(lua, host)?)?;
    libraries.set("redis", redis::library(lua, host)?)?;
    libraries.set("pattern", strings::library(lua, host)?)?;
    libraries.set("random", numbers::library(lua, host)?)?;
    Ok(libraries)
}
