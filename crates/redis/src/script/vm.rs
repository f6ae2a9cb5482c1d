//! The Lua VMs: one warm VM per thread, and fresh ones where only those count.

use super::convert::{line, to_reply};
use super::library;
use super::library::arguments::{PRELUDE_SOURCE, SCRIPT_SOURCE, script_line};
use super::limits::{MEMORY_BYTES_MIN, limits};
use super::run::{
    Digest, Execution, Host, RaisedReply, Run, STEPS_PER_TICK, Signal, UNORDERED_KEYS,
};
use super::shebang::{self, Shebang};
// The VM itself: linked, not called from Rust.
use lua as _;
use mlua::chunk::ChunkMode;
use mlua::debug::HookTriggers;
use mlua::{Function, Lua, LuaString, MultiValue, StdLib, Table, Value, VmState};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use txn::hash::FixedMap;
use txn::{Outcome, Reply, Stop};

const PRELUDE: &str = include_str!("prelude.lua");
/// Garbage of earlier runs that a warm VM keeps before it collects.
const GARBAGE_BYTES_MAX: usize = 2 << 20;
/// Compiled scripts that a VM keeps, and the bytes of their bodies.
const COMPILED_MAX: usize = 1000;
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// What a byte of a script's source may at most become as string constants: a string of one byte takes about 32.
const CONSTANTS_PER_BYTE_MAX: usize = 10;
const _: () = assert!(
    GARBAGE_BYTES_MAX + COMPILED_BYTES_MAX * CONSTANTS_PER_BYTE_MAX <= MEMORY_BYTES_MIN / 2,
    "what a run may find in a warm VM must be less than the part of the limit that the warm VM leaves"
);
/// The text of Lua's error when an allocation fails.
const NOT_ENOUGH_MEMORY: &str = "not enough memory";

/// How a run of an execution ended.
pub(super) enum Ended {
    /// With an outcome, after so many steps.
    Done(Outcome, u64),
    /// A command waits: run the execution again when it is polled again.
    Suspended(Box<Execution>),
}

/// A compiled script.
#[derive(Clone)]
struct Compiled {
    function: Function,
    shebang: Shebang,
}

/// A Lua VM with the environment of scripts.
struct Vm {
    lua: Lua,
    host: Rc<Host>,
    environment: Table,
    run: Function,
    compiled: FixedMap<Digest, Compiled>,
    compiled_bytes: usize,
    used_bytes_after_collection: usize,
}

thread_local! {
    static WARM: Cell<Option<Box<Vm>>> = const { Cell::new(None) };
}

fn with_warm<R>(f: impl FnOnce(&mut Vm) -> R) -> R {
    // A panic drops the VM: the next use makes another.
    let mut vm = WARM.take().unwrap_or_else(|| Box::new(Vm::new()));
    let result = f(&mut vm);
    vm.tidy();
    WARM.set(Some(vm));
    result
}

/// Runs an execution until it ends or a command waits.
pub(super) fn run(mut execution: Box<Execution>) -> Ended {
    let memory_bytes_max = limits().memory_bytes_max;
    if !execution.exact {
        match run_warm(execution, memory_bytes_max / 2) {
            Err(undecided) => execution = undecided,
            Ok(ended) => return ended,
        }
        execution.exact = true;
    }
    Vm::new().run(execution, memory_bytes_max).unwrap_or_else(|_| {
        let text = format!(
            "ERR script exceeded its memory limit of {memory_bytes_max} bytes allocated in one execution; it was \
             rolled back; work in smaller parts"
        );
        Ended::Done(Err(Stop::abort(text)), limits().steps_max)
    })
}

/// Runs an execution in the warm VM, with half of the limit: what the VM shares with earlier runs can't hide as much as
/// the other half. Gives the execution back where only a fresh VM decides.
fn run_warm(execution: Box<Execution>, allowance: usize) -> Result<Ended, Box<Execution>> {
    let mut vm = WARM.take().unwrap_or_else(|| Box::new(Vm::new()));
    match catch_unwind(AssertUnwindSafe(|| vm.run(execution, allowance))) {
        Ok(ended) => {
            vm.tidy();
            WARM.set(Some(vm));
            ended
        }
        // The binding panics where it is out of slots for values, of which a warm VM has fewer than a fresh one.
        Err(panic) => match vm.host.end() {
            Some(run) => Err(Box::new(run.execution)),
            None => resume_unwind(panic),
        },
    }
}

/// Compiles a script on this thread. The error is the reply for the client.
pub(super) fn compile(digest: &Digest, body: &[u8]) -> Result<Shebang, Reply> {
    with_warm(|vm| vm.compiled(digest, body).map(|compiled| compiled.shebang))
}

impl Vm {
    fn new() -> Vm {
        Vm::try_new()
            .expect("the prelude is a constant, and there is no limit yet that it could exceed")
    }

    fn try_new() -> mlua::Result<Vm> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, mlua::LuaOptions::new())?;
        lua.gc_stop();
        let host = Rc::new(Host::default());
        let functions = host_functions(&lua, &host)?;
        let libraries = library::install(&lua, &host)?;
        let prelude = lua.load(PRELUDE).set_name(PRELUDE_SOURCE);
        let (environment, run) = prelude.call::<(Table, Function)>((functions, libraries))?;
        let mut vm = Vm {
            lua,
            host,
            environment,
            run,
            compiled: FixedMap::default(),
            compiled_bytes: 0,
            used_bytes_after_collection: 0,
        };
        vm.collect();
        Ok(vm)
    }

    /// Collects garbage. Only between runs: see the module's prose.
    fn collect(&mut self) {
        // The collector runs no code of scripts (there are no finalizers), so nothing can fail.
        let _ = self.lua.gc_collect();
        self.lua.gc_stop();
        self.used_bytes_after_collection = self.lua.used_memory();
    }

    fn tidy(&mut self) {
        if self.lua.used_memory() > self.used_bytes_after_collection + GARBAGE_BYTES_MAX {
            self.collect();
        }
    }

    fn compiled(&mut self, digest: &Digest, body: &[u8]) -> Result<&Compiled, Reply> {
        if !self.compiled.contains_key(digest) {
            let (shebang, source) = shebang::parse(body)?;
            let chunk = self
                .lua
                .load(source)
                .set_name(SCRIPT_SOURCE)
                .set_mode(ChunkMode::Text);
            let function = chunk
                .set_environment(self.environment.clone())
                .into_function()
                .map_err(|error| {
                    let text = match &error {
                        mlua::Error::SyntaxError { message, .. } => message.clone(),
                        other => other.to_string(),
                    };
                    Reply::error_owned(format!(
                        "ERR Error compiling script (new function): {}",
                        line(text.as_bytes())
                    ))
                })?;
            if self.compiled.len() >= COMPILED_MAX
                || self.compiled_bytes + body.len() > COMPILED_BYTES_MAX
            {
                self.compiled.clear();
                self.compiled_bytes = 0;
                self.collect();
            }
            self.compiled_bytes += body.len();
            self.compiled
                .insert(*digest, Compiled { function, shebang });
        }
        Ok(&self.compiled[digest])
    }

    fn arguments(&self, execution: &Execution) -> mlua::Result<(Table, Table)> {
        let table = |words: &[txn::Blob]| {
            self.lua
                .create_sequence_from(words.iter().map(LuaString::wrap))
        };
        Ok((
            table(execution.key_arguments())?,
            table(execution.other_arguments())?,
        ))
    }

    /// Runs an execution from the script's start. Gives it back if the script needs more memory than `allowance`.
    fn run(
        &mut self,
        mut execution: Box<Execution>,
        allowance: usize,
    ) -> Result<Ended, Box<Execution>> {
        let compiled = match self.compiled(&execution.digest, &execution.body) {
            Ok(compiled) => compiled.clone(),
            Err(reply) => return Ok(Ended::Done(Ok(reply), 1)),
        };
        if execution.read_only && compiled.shebang.declared && !compiled.shebang.no_writes {
            let text = "ERR Can not execute a script with write flag using *_ro command.";
            return Ok(Ended::Done(Ok(Reply::error(text)), 1));
        }
        execution.read_only |= compiled.shebang.no_writes;
        let digest = execution.digest;
        let started = self.start(execution, compiled.function, allowance);
        // Without a limit the library's fast paths apply again, and nothing fails half-way.
        let _ = self.host.limit_memory(&self.lua, 0);
        let Some(mut run) = self.host.end() else {
            return Ok(Ended::Done(
                Err(Stop::abort(
                    "ERR the script engine lost a run; please report this",
                )),
                1,
            ));
        };
        let reply = match started {
            Ok((true, value)) if run.signal.is_none() => {
                let resp3 = run.resp3;
                let steps = run.steps;
                self.host.begin(run);
                let reply = to_reply(&self.host, value, resp3);
                match self.host.end() {
                    Some(again) => run = again,
                    None => return Ok(Ended::Done(Err(Stop::Restart), steps)),
                }
                reply.unwrap_or_else(|error| {
                    if run.signal.is_none() && is_undecided(&error, run.execution.exact) {
                        run.signal = Some(Signal::OutOfMemory);
                    }
                    Reply::error_owned(format!("ERR {}", line(message(&error).as_bytes())))
                })
            }
            Ok((_, value)) => {
                if run.signal.is_none() && is_out_of_memory(&value) {
                    run.signal = Some(Signal::OutOfMemory);
                }
                let text = run.failure.take().unwrap_or_else(|| match &value {
                    Value::String(text) => format!("ERR {}", line(&text.as_bytes())),
                    _ => "ERR the script failed while its error was handled".to_owned(),
                });
                Reply::error_owned(text)
            }
            Err(error) => {
                if run.signal.is_none() && is_undecided(&error, run.execution.exact) {
                    run.signal = Some(Signal::OutOfMemory);
                }
                let text = line(message(&error).as_bytes());
                Reply::error_owned(format!(
                    "ERR {text} script: {}",
                    String::from_utf8_lossy(&digest)
                ))
            }
        };
        Ok(match run.signal {
            None => Ended::Done(Ok(reply), run.steps),
            Some(Signal::Suspended) => Ended::Suspended(Box::new(run.execution)),
            Some(Signal::OutOfMemory) => return Err(Box::new(run.execution)),
            Some(Signal::Stop(stop)) => Ended::Done(Err(stop), run.steps),
            Some(Signal::OutOfSteps) => abort(
                run.steps,
                "steps",
                limits().steps_max,
                "do less in one script",
            ),
            Some(Signal::RepliesTooLarge) => {
                let bytes = limits().memory_bytes_max as u64;
                abort(
                    run.steps,
                    "bytes in the replies of its commands",
                    bytes,
                    "read less in one script",
                )
            }
            Some(Signal::ReplyTooLarge) => {
                let bytes = limits().memory_bytes_max as u64;
                abort(run.steps, "bytes in its reply", bytes, "return less")
            }
        })
    }

    fn start(
        &self,
        execution: Box<Execution>,
        script: Function,
        allowance: usize,
    ) -> mlua::Result<(bool, Value)> {
        let arguments = self.arguments(&execution);
        self.host.begin(Run::new(*execution));
        let (keys, argv) = arguments?;
        let host = self.host.clone();
        // Setting the hook also restarts its count, so that the ticks of a run fall on the same instructions everywhere.
        let every_tick = HookTriggers::new().every_nth_instruction(STEPS_PER_TICK);
        self.lua.set_global_hook(every_tick, move |_, _| {
            host.tick().map(|()| VmState::Continue)
        })?;
        self.host
            .limit_memory(&self.lua, self.lua.used_memory() + allowance)?;
        self.run.call((script, keys, argv))
    }
}

fn abort(steps: u64, what: &str, limit: u64, advice: &str) -> Ended {
    let text =
        format!("ERR script exceeded its limit of {limit} {what}; it was rolled back; {advice}");
    Ended::Done(Err(Stop::abort(text)), steps)
}

fn is_out_of_memory(value: &Value) -> bool {
    matches!(value, Value::String(text) if *text == NOT_ENOUGH_MEMORY)
}

/// Whether an error is about the VM rather than about the script: memory, or, in a warm VM, the slots in which the binding
/// holds values, of which the scripts that the VM keeps take some.
fn is_undecided(error: &mlua::Error, exact: bool) -> bool {
    match root(error) {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::StackError => !exact,
        _ => false,
    }
}

/// The error inside the wrappings that it got on its way through Lua.
fn root(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => {
            root(cause)
        }
        other => other,
    }
}

fn message(error: &mlua::Error) -> String {
    match root(error) {
        mlua::Error::RuntimeError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// An error as scripts see it: what our functions raise becomes a string or a table; a stop signal is raised again.
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

/// Errors of standard functions that the prelude calls carry the prelude's position, which tells a script's author nothing.
fn without_prelude_position(text: &[u8]) -> Option<&[u8]> {
    let rest = text
        .strip_prefix(&PRELUDE_SOURCE.as_bytes()[1..])?
        .strip_prefix(b":")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    rest[end..].strip_prefix(b": ")
}

/// Turns the error that ends a script into the text of its reply, in Redis's form. It is a message handler, and Lua calls
/// a handler again for an error in it, down to the last level of the stack: so it raises none for a stopped script.
fn failed(lua: &Lua, host: &Host, error: Value) -> mlua::Result<()> {
    if host.check().is_err() {
        return Ok(());
    }
    let hidden = matches!(&error, Value::String(text) if without_prelude_position(&text.as_bytes()).is_some());
    let Ok(error) = caught(lua, host, error) else {
        return Ok(());
    };
    let script_line = script_line(lua);
    let text = match &error {
        Value::Table(table) => match table.raw_get::<Value>("err")? {
            Value::String(text) => line(&text.as_bytes()),
            _ => "ERR the script raised a table without a text in its field 'err'".to_owned(),
        },
        Value::String(text) => {
            let position = script_line
                .filter(|_| hidden)
                .map(|line| format!("user_script:{line}: "));
            format!(
                "ERR {}{}",
                position.unwrap_or_default(),
                line(&text.as_bytes())
            )
        }
        Value::Integer(_) | Value::Number(_) => {
            let text = lua.coerce_string(error.clone())?;
            format!(
                "ERR {}",
                text.map(|text| line(&text.as_bytes())).unwrap_or_default()
            )
        }
        Value::Boolean(value) => format!("ERR {value}"),
        other => format!("ERR {}", library::arguments::type_name(other)),
    };
    let place = script_line
        .map(|line| format!(", on @user_script:{line}."))
        .unwrap_or_default();
    host.with(|run| {
        let digest = String::from_utf8_lossy(&run.execution.digest);
        run.failure = Some(format!("{text} script: {digest}{place}"));
    })
}

/// What the prelude needs from here.
fn host_functions(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let functions = lua.create_table()?;
    let first = |values: MultiValue| values.into_iter().next().unwrap_or(Value::Nil);
    functions.set(
        "caught",
        host.function(lua, move |host, lua, values| {
            caught(lua, host, first(values))
        })?,
    )?;
    functions.set(
        "failed",
        host.function(lua, move |host, lua, values| {
            failed(lua, host, first(values))
        })?,
    )?;
    functions.set(
        "stopped",
        host.function(lua, |host, _, _| Ok(host.check().is_err()))?,
    )?;
    let charge = move |host: &Host, _: &Lua, values: MultiValue| {
        let steps = first(values);
        let steps = steps
            .as_number()
            .or(steps.as_integer().map(|steps| steps as f64))
            .unwrap_or(0.0);
        host.charge(steps.max(0.0) as u64)
    };
    functions.set("charge", host.function(lua, charge)?)?;
    // `getmetatable` shows what `__metatable` says instead; this looks behind it.
    let has_field = |_: &Host, _: &Lua, mut values: MultiValue| match (
        values.pop_front(),
        values.pop_front(),
    ) {
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
    functions.set("unordered_keys", UNORDERED_KEYS)?;
    functions.set("steps_per_tick", STEPS_PER_TICK)?;
    Ok(functions)
}
