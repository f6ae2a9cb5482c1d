//! The arguments of a library function, checked and coerced as Lua's own libraries do, with their error
//! texts.

use mlua::{Function, Lua, LuaString, MultiValue, Value};

/// The chunk name of scripts: error texts show it.
pub(in crate::script) const SCRIPT_SOURCE: &str = "@user_script";
/// The chunk name of the prelude, whose frames and positions are not the script's business.
pub(in crate::script) const PRELUDE_SOURCE: &str = "=prelude";

/// The chunk name of libraries of functions.
pub(in crate::script) const FUNCTION_SOURCE: &str = "@user_function";

/// A line of a script, of a library, or of what these compiled.
pub(in crate::script) struct Place {
    source: String,
    shown: String,
    line: usize,
}

impl Place {
    /// The innermost one that is running.
    pub fn of_running(lua: &Lua) -> Option<Place> {
        (0..).map_while(|level| Place::at(lua, level)).find_map(|frame| match frame {
            Frame::Line(place) => Some(place),
            Frame::Prelude | Frame::Native => None,
        })
    }

    fn at(lua: &Lua, level: usize) -> Option<Frame> {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            match (source.source.as_deref(), debug.current_line()) {
                (Some(PRELUDE_SOURCE), _) => Frame::Prelude,
                (Some(name), Some(line)) if source.what != "C" => Frame::Line(Place {
                    source: name.to_owned(),
                    shown: source.short_src.as_deref().unwrap_or(name).to_owned(),
                    line,
                }),
                _ => Frame::Native,
            }
        })
    }

    /// As errors begin that Lua raises there.
    pub fn prefix(&self) -> String {
        format!("{}:{}: ", self.shown, self.line)
    }

    /// As the errors end that scripts end with there.
    pub fn suffix(&self) -> String {
        let source = super::super::convert::line(self.source.as_bytes());
        format!(", on {source}:{}.", self.line)
    }
}

/// What runs at a level of the stack.
enum Frame {
    Line(Place),
    Prelude,
    Native,
}

/// An error raised by a library function: with the position of the script's line, if a line called it
/// directly.
pub(in crate::script) fn fail(lua: &Lua, message: &str) -> mlua::Error {
    let mut frames = (1..).map_while(|level| Place::at(lua, level));
    let prefix = match frames.find(|frame| !matches!(frame, Frame::Prelude)) {
        Some(Frame::Line(place)) => place.prefix(),
        _ => String::new(),
    };
    mlua::Error::RuntimeError(prefix + message)
}

/// The arguments of one call.
pub(in crate::script) struct Arguments<'a> {
    pub lua: &'a Lua,
    function: &'static str,
    values: Vec<Value>,
}

impl<'a> Arguments<'a> {
    pub fn new(lua: &'a Lua, function: &'static str, values: MultiValue) -> Arguments<'a> {
        Arguments { lua, function, values: values.into_vec() }
    }
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// The argument at `index`, counted from 0; nil if there is none.
    pub fn value(&self, index: usize) -> &Value {
        self.values.get(index).unwrap_or(&Value::Nil)
    }
    /// The error for a bad argument, counted from 0 here and from 1 in the text.
    pub fn bad(&self, index: usize, what: &str) -> mlua::Error {
        fail(self.lua, &format!("bad argument #{} to '{}' ({what})", index + 1, self.function))
    }
    fn wrong_type(&self, index: usize, expected: &str) -> mlua::Error {
        let got = match self.values.get(index) {
            None => "no value",
            Some(value) => type_name(value),
        };
        self.bad(index, &format!("{expected} expected, got {got}"))
    }
    /// A string, or a number as Lua writes it.
    pub fn string(&self, index: usize) -> mlua::Result<LuaString> {
        match self.value(index) {
            Value::String(text) => Ok(text.clone()),
            Value::Integer(value) => {
                self.lua.create_string(super::super::number::format_g(*value as f64, 14))
            }
            Value::Number(value) => self.lua.create_string(super::super::number::format_g(*value, 14)),
            _ => Err(self.wrong_type(index, "string")),
        }
    }
    /// A function.
    pub fn function(&self, index: usize) -> mlua::Result<Function> {
        match self.value(index) {
            Value::Function(function) => Ok(function.clone()),
            _ => Err(self.wrong_type(index, "function")),
        }
    }
    /// A number, or a string that reads as one.
    pub fn number(&self, index: usize) -> mlua::Result<f64> {
        match self.value(index) {
            Value::Integer(value) => Ok(*value as f64),
            Value::Number(value) => Ok(*value),
            value @ Value::String(_) => {
                self.lua.coerce_number(value.clone())?.ok_or_else(|| self.wrong_type(index, "number"))
            }
            _ => Err(self.wrong_type(index, "number")),
        }
    }
    /// A number cut to an integer.
    pub fn integer(&self, index: usize) -> mlua::Result<i64> {
        Ok(self.number(index)? as i64)
    }
    /// An integer, if there is one.
    pub fn integer_or(&self, index: usize, default: i64) -> mlua::Result<i64> {
        if self.value(index).is_nil() { Ok(default) } else { self.integer(index) }
    }
}

/// Lua's name of a value's type.
pub(in crate::script) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}
