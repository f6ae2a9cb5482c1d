//! `math.random` and `math.randomseed`, from the run's generator.

use super::super::random::Lrand48;
use super::super::run::Host;
use super::arguments::Arguments;
use mlua::{Lua, MultiValue, Table};
use std::rc::Rc;

pub(super) fn library(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let random = |host: &Host, lua: &Lua, values: MultiValue| {
        let arguments = Arguments::new(lua, "random", values);
        let unit = host.with(|run| run.random.unit())?;
        let (low, high, last) = match arguments.len() {
            0 => return Ok(unit),
            1 => (1, arguments.integer(0)?, 0),
            2 => (arguments.integer(0)?, arguments.integer(1)?, 1),
            _ => return Err(super::arguments::fail(lua, "wrong number of arguments")),
        };
        if low > high {
            return Err(arguments.bad(last, "interval is empty"));
        }
        Ok((unit * (high as f64 - low as f64 + 1.0)).floor() + low as f64)
    };
    library.set("random", host.function(lua, random)?)?;
    let randomseed = |host: &Host, lua: &Lua, values: MultiValue| {
        let seed = Arguments::new(lua, "randomseed", values).integer(0)?;
        host.with(|run| run.random = Lrand48::new(seed as i32))
    };
    library.set("randomseed", host.function(lua, randomseed)?)?;
    Ok(library)
}
