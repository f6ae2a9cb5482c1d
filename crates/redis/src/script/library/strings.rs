//! The string functions that take patterns, and `dump`. The prelude makes `gmatch` and the general `gsub` of
//! `seek`.

use super::super::pattern::{Capture, Match, Matcher, PatternError, is_plain};
use super::super::run::{Host, Meter, Signal};
use super::arguments::{Arguments, FUNCTION_SOURCE, SCRIPT_SOURCE, fail};
use super::output::Output;
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// What one search may do at most, if the limits allow more: nothing stops a script meanwhile.
const STEPS_MAX: u64 = 1_000_000_000;
/// Bytes that are copied, or looked for as they are, and count as one step.
const BYTES_PER_STEP: usize = 16;
/// Bytes of a pattern or a replacement that are looked at one by one, and count as one step.
const CHARACTERS_PER_STEP: usize = 2;
/// Steps for what stands behind a percent sign in a replacement, beside its characters and what is written
/// for it.
const STEPS_PER_ESCAPE: usize = 3;
/// What a search of a plain text counts for, beside the texts.
const STEPS_PER_FIND: usize = 30;
/// What a match counts for, and each of its captures.
const STEPS_PER_MATCH: u64 = 15;

fn search(
    host: &Host,
    lua: &Lua,
    matcher: &mut Matcher<'_>,
    from: usize,
    pattern_start: usize,
    anchored: bool,
) -> mlua::Result<Option<Match>> {
    let before = matcher.steps;
    // Not beyond what the run has left: it is counted afterwards.
    matcher.steps_max = before + host.steps_left()?.min(STEPS_MAX);
    let found = matcher.search(from, pattern_start, anchored);
    let captures = match &found {
        Ok(Some(found)) => 1 + found.captures.len() as u64,
        _ => 0,
    };
    host.charge(matcher.steps - before + captures * STEPS_PER_MATCH)?;
    found.map_err(|error| match error {
        PatternError::Malformed(text) => fail(lua, text),
        PatternError::OutOfSteps => host.stop(Signal::OutOfSteps),
    })
}

fn capture(lua: &Lua, text: &[u8], capture: Capture) -> mlua::Result<Value> {
    match capture {
        Capture::Span(start, end) => lua.create_string(&text[start..end]).map(Value::String),
        Capture::Position(at) => Ok(Value::Integer(at as i64 + 1)),
    }
}

/// Pushes the captures; the whole match if there are none.
fn push_captures(lua: &Lua, text: &[u8], found: &Match, out: &mut MultiValue) -> mlua::Result<()> {
    if found.captures.is_empty() {
        out.push_back(capture(lua, text, Capture::Span(found.start, found.end))?);
    }
    for item in &found.captures {
        out.push_back(capture(lua, text, *item)?);
    }
    Ok(())
}

/// Where a search starts, from 0: negative positions count from the end.
fn start_of(init: i64, length: usize) -> usize {
    let from = if init > 0 {
        init - 1
    } else if init < 0 {
        length as i64 + init
    } else {
        0
    };
    from.clamp(0, length as i64) as usize
}

fn find(host: &Host, lua: &Lua, values: MultiValue, finding: bool) -> mlua::Result<MultiValue> {
    let arguments = Arguments::new(lua, if finding { "find" } else { "match" }, values);
    let (text, pattern) = (arguments.string(0)?, arguments.string(1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = start_of(arguments.integer_or(2, 1)?, text.len());
    let plain = !matches!(arguments.value(3), Value::Nil | Value::Boolean(false));
    let mut out = MultiValue::new();
    if !plain {
        host.charge((pattern.len() / CHARACTERS_PER_STEP) as u64)?;
    }
    if finding && (plain || is_plain(&pattern)) {
        host.charge((STEPS_PER_FIND + (text.len() - from + pattern.len()) / CHARACTERS_PER_STEP) as u64)?;
        // Its time is the sum of the two lengths, whatever is in them.
        match memchr::memmem::find(&text[from..], &pattern) {
            Some(at) => {
                out.push_back(Value::Integer((from + at + 1) as i64));
                out.push_back(Value::Integer((from + at + pattern.len()) as i64));
            }
            None => out.push_back(Value::Nil),
        }
        return Ok(out);
    }
    let anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(&text, &pattern, 0);
    match search(host, lua, &mut matcher, from, usize::from(anchored), anchored)? {
        None => out.push_back(Value::Nil),
        Some(found) if finding => {
            out.push_back(Value::Integer(found.start as i64 + 1));
            out.push_back(Value::Integer(found.end as i64));
            if !found.captures.is_empty() {
                push_captures(lua, &text, &found, &mut out)?;
            }
        }
        Some(found) => push_captures(lua, &text, &found, &mut out)?,
    }
    Ok(out)
}

/// `seek(name, text, pattern, from, anchors)`: the start and the end of the next match, counted from 0, and
/// its captures.
fn seek(host: &Host, lua: &Lua, mut values: MultiValue) -> mlua::Result<MultiValue> {
    let name = match values.pop_front() {
        Some(Value::String(name)) if name == "gsub" => "gsub",
        _ => "gmatch",
    };
    let arguments = Arguments::new(lua, name, values);
    let (text, pattern) = (arguments.string(0)?, arguments.string(1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = arguments.integer(2)? as usize;
    let anchored = name == "gsub" && pattern.first() == Some(&b'^');
    let mut out = MultiValue::new();
    if from > text.len() {
        return Ok(out);
    }
    host.charge((pattern.len() / CHARACTERS_PER_STEP) as u64)?;
    let mut matcher = Matcher::new(&text, &pattern, 0);
    if let Some(found) = search(host, lua, &mut matcher, from, usize::from(anchored), anchored)? {
        out.push_back(Value::Integer(found.start as i64));
        out.push_back(Value::Integer(found.end as i64));
        push_captures(lua, &text, &found, &mut out)?;
    }
    Ok(out)
}

/// What `gsub` writes. Bytes are charged before they are written.
struct Written<'a> {
    meter: Meter<'a>,
    out: Output<'a>,
    /// Bytes that are no step yet.
    uncharged: usize,
}

impl Written<'_> {
    fn put(&mut self, bytes: &[u8]) -> mlua::Result<()> {
        self.uncharged += bytes.len();
        self.meter.spend(self.uncharged / BYTES_PER_STEP)?;
        self.uncharged %= BYTES_PER_STEP;
        self.out.put(bytes)
    }
}

/// `gsub` with a replacement text.
fn gsub(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<(Value, i64)> {
    let arguments = Arguments::new(lua, "gsub", values);
    let (whole, pattern, replacement) = (arguments.string(0)?, arguments.string(1)?, arguments.string(2)?);
    let (text, pattern, replacement) = (whole.as_bytes(), pattern.as_bytes(), replacement.as_bytes());
    let limit = arguments.integer_or(3, text.len() as i64 + 1)?;
    let anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(&text, &pattern, 0);
    host.charge((pattern.len() / CHARACTERS_PER_STEP) as u64)?;
    let mut written = Written { meter: Meter::new(host, lua), out: Output::new(host, lua), uncharged: 0 };
    let (mut at, mut count) = (0, 0);
    while count < limit {
        let Some(found) = search(host, lua, &mut matcher, at, usize::from(anchored), anchored)? else {
            break;
        };
        count += 1;
        written.put(&text[at..found.start])?;
        written.meter.spend(replacement.len() / CHARACTERS_PER_STEP)?;
        expand(lua, &text, &found, &replacement, &mut written)?;
        at = found.end;
        if found.end == found.start {
            match text.get(at..=at) {
                Some(byte) => written.put(byte)?,
                None => break,
            }
            at += 1;
        }
        if anchored {
            break;
        }
    }
    if count == 0 {
        return Ok((Value::String(whole.clone()), 0));
    }
    written.put(text.get(at..).unwrap_or_default())?;
    Ok((written.out.into_string()?, count))
}

fn expand(
    lua: &Lua,
    text: &[u8],
    found: &Match,
    replacement: &[u8],
    written: &mut Written<'_>,
) -> mlua::Result<()> {
    let mut rest = replacement;
    while let Some(at) = memchr::memchr(b'%', rest) {
        written.put(&rest[..at])?;
        written.meter.spend(STEPS_PER_ESCAPE)?;
        match rest.get(at + 1) {
            Some(b'0') => written.put(&text[found.start..found.end])?,
            Some(digit @ b'1'..=b'9') => match found.captures.get(usize::from(digit - b'1')) {
                Some(&Capture::Span(start, end)) => written.put(&text[start..end])?,
                Some(&Capture::Position(at)) => written.put((at + 1).to_string().as_bytes())?,
                None if *digit == b'1' && found.captures.is_empty() => {
                    written.put(&text[found.start..found.end])?;
                }
                None => return Err(fail(lua, "invalid capture index")),
            },
            Some(&other) => written.put(&[other])?,
            // As in C, where a text ends with a zero byte.
            None => written.put(&[0])?,
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    written.put(rest)
}

/// `dump`: what a function of the script is compiled to. Nothing loads it. Of functions that are not the
/// script's own it tells nothing, because they are another version's tomorrow.
fn dump(host: &Host, lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    let arguments = Arguments::new(lua, "dump", values);
    let function = arguments.function(0)?;
    let source = function.info().source;
    if ![SCRIPT_SOURCE, FUNCTION_SOURCE].contains(&source.as_deref().unwrap_or_default()) {
        return Err(fail(lua, "unable to dump given function"));
    }
    let code = function.dump(false);
    host.charge((code.len() / BYTES_PER_STEP) as u64)?;
    lua.create_string(code).map(Value::String)
}

pub(super) fn library(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.set("find", host.function(lua, |host, lua, values| find(host, lua, values, true))?)?;
    library.set("match", host.function(lua, |host, lua, values| find(host, lua, values, false))?)?;
    library.set("seek", host.function(lua, seek)?)?;
    library.set("gsub", host.function(lua, gsub)?)?;
    library.set("dump", host.function(lua, dump)?)?;
    Ok(library)
}
