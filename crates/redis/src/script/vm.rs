//! The Lua VMs: one warm VM per thread, and fresh ones where only those count.

use super::convert::{line, to_reply};
use super::library;
use super::library::arguments::{FUNCTION_SOURCE, PRELUDE_SOURCE, SCRIPT_SOURCE};
use super::limits::{MEMORY_BYTES_MIN, SOURCE_BYTES_MAX, limits};
use super::raised::{host_functions, is_out_of_memory, is_undecided, message, syntax_error};
use super::run::{Digest, Execution, Host, Part, Program, Run, STEPS_PER_TICK, Signal};
use super::shebang::{self, ScriptFlags, Shebang};
use crate::errors;
use crate::execute::Memory;
use mlua::chunk::ChunkMode;
use mlua::debug::HookTriggers;
use mlua::{Function, Lua, LuaString, StdLib, Table, Value, VmState};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use txn::hash::FixedMap;
use txn::{Outcome, Reply, Stop};

const PRELUDE: &str = include_str!("prelude.lua");
const LIBRARIES: &str = include_str!("libraries.lua");
/// Garbage of earlier runs that a warm VM keeps before it collects.
const GARBAGE_BYTES_MAX: usize = 2 << 20;
/// Compiled scripts that a VM keeps, and the bytes of their bodies.
const COMPILED_MAX: usize = 1000;
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// What a byte of a script's source may at most become as string constants: a string of one byte takes
/// about 32.
const CONSTANTS_PER_BYTE_MAX: usize = 10;
const _: () = assert!(
    GARBAGE_BYTES_MAX + COMPILED_BYTES_MAX * CONSTANTS_PER_BYTE_MAX <= MEMORY_BYTES_MIN / 2,
    "what a run may find in a warm VM must be less than the part of the limit that the warm VM leaves"
);
/// A library that takes too long to load.
const LOAD_TOO_LONG: Reply = Reply::error("ERR Error registering functions: ERR FUNCTION LOAD timeout");

/// How a run of an execution ended.
pub(super) enum Ended {
    /// With an outcome, after so many steps.
    Done(Outcome, u64),
    /// A command waits: run the execution again when it is polled again.
    Suspended(Box<Execution>),
}

/// A compiled script or library.
#[derive(Clone)]
struct Compiled {
    function: Function,
    shebang: Shebang,
}

/// A Lua VM with the environment of scripts.
struct Vm {
    lua: Lua,
    host: Rc<Host>,
    /// What a script sees, and how one is run.
    environment: Table,
    run: Function,
    /// What a library sees, and how a function of one is called.
    library_environment: Table,
    run_library: Function,
    /// Scripts and libraries (`true`) apart: they see different things.
    compiled: FixedMap<(bool, Digest), Compiled>,
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
            "ERR script exceeded its memory limit of {memory_bytes_max} bytes allocated in one execution; \
             it was rolled back; work in smaller parts"
        );
        Ended::Done(Err(Stop::abort(text)), limits().steps_max)
    })
}

/// Runs an execution in the warm VM, with half of the limit: what the VM shares with earlier runs can't hide
/// as much as the other half. Gives the execution back where only a fresh VM decides.
fn run_warm(execution: Box<Execution>, allowance: usize) -> Result<Ended, Box<Execution>> {
    let mut vm = WARM.take().unwrap_or_else(|| Box::new(Vm::new()));
    match catch_unwind(AssertUnwindSafe(|| vm.run(execution, allowance))) {
        Ok(ended) => {
            vm.tidy();
            WARM.set(Some(vm));
            ended
        }
        // The binding panics where it is out of slots for values, of which a warm VM has fewer than a fresh
        // one.
        Err(panic) => match vm.host.end() {
            Some(run) => Err(Box::new(run.execution)),
            None => resume_unwind(panic),
        },
    }
}

/// Compiles a script on this thread. The error is the reply for the client.
pub(super) fn compile(program: &Program) -> Result<(), Reply> {
    with_warm(|vm| vm.compiled(program).map(drop))
}

impl Vm {
    fn new() -> Vm {
        Vm::try_new().expect("the prelude is a constant, and there is no limit yet that it could exceed")
    }

    fn try_new() -> mlua::Result<Vm> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, mlua::LuaOptions::new())?;
        lua.gc_stop();
        let host = Rc::new(Host::default());
        let functions = host_functions(&lua, &host)?;
        let libraries = library::install(&lua, &host)?;
        let prelude = lua.load(PRELUDE).set_name(PRELUDE_SOURCE);
        let (environment, run, shared) =
            prelude.call::<(Table, Function, Table)>((functions.clone(), libraries.clone()))?;
        let prelude = lua.load(LIBRARIES).set_name(PRELUDE_SOURCE);
        let (library_environment, run_library) =
            prelude.call::<(Table, Function)>((functions, libraries, shared))?;
        let mut vm = Vm {
            lua,
            host,
            environment,
            run,
            library_environment,
            run_library,
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

    fn compiled(&mut self, program: &Program) -> Result<&Compiled, Reply> {
        let key = (program.is_library(), program.digest);
        if !self.compiled.contains_key(&key) {
            let code = program.code();
            check_size(program)?;
            let (shebang, source, name, environment, what) = match program.part {
                Part::Script => {
                    let (shebang, source) = shebang::parse(code)?;
                    let what = "Error compiling script (new function)";
                    (shebang, source, SCRIPT_SOURCE, &self.environment, what)
                }
                Part::Function(_) | Part::Registrations => {
                    let source = shebang::first_line(code).map_or(code, |(_, source)| source);
                    let environment = &self.library_environment;
                    let what = "Error compiling function";
                    (Shebang::default(), source, FUNCTION_SOURCE, environment, what)
                }
            };
            let chunk = self.lua.load(source).set_name(name).set_mode(ChunkMode::Text);
            let function = chunk.set_environment(environment.clone()).into_function().map_err(|error| {
                let text = syntax_error(&error);
                Reply::error_owned(format!("ERR {what}: {}", line(text.as_bytes())))
            })?;
            if self.compiled.len() >= COMPILED_MAX || self.compiled_bytes + code.len() > COMPILED_BYTES_MAX {
                self.compiled.clear();
                self.compiled_bytes = 0;
                self.collect();
            }
            self.compiled_bytes += code.len();
            self.compiled.insert(key, Compiled { function, shebang });
        }
        Ok(&self.compiled[&key])
    }

    fn arguments(&self, execution: &Execution) -> mlua::Result<(Table, Table)> {
        let table = |words: &[txn::Blob]| self.lua.create_sequence_from(words.iter().map(LuaString::wrap));
        Ok((table(execution.key_arguments())?, table(execution.other_arguments())?))
    }

    /// Runs an execution from the script's start. Gives it back if the script needs more memory than
    /// `allowance`.
    fn run(&mut self, mut execution: Box<Execution>, allowance: usize) -> Result<Ended, Box<Execution>> {
        let compiled = match self.compiled(&execution.program) {
            Ok(compiled) => compiled.clone(),
            Err(reply) => return Ok(Ended::Done(Ok(reply), 1)),
        };
        if compiled.shebang.declared
            && let Err(reply) = admit(&mut execution, compiled.shebang.flags)
        {
            return Ok(Ended::Done(Ok(reply), 1));
        }
        let name = execution.program.name();
        let started = self.start(execution, compiled.function, allowance);
        // Without a limit the library's fast paths apply again, and nothing fails half-way.
        let _ = self.host.limit_memory(&self.lua, 0);
        let Some(mut run) = self.host.end() else {
            return Ok(Ended::Done(
                Err(Stop::abort("ERR the script engine lost a run; please report this")),
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
                Reply::error_owned(format!("ERR {text} script: {name}"))
            }
        };
        Ok(match run.signal {
            None => Ended::Done(Ok(reply), run.steps),
            Some(Signal::Suspended) => Ended::Suspended(Box::new(run.execution)),
            Some(Signal::OutOfMemory) => return Err(Box::new(run.execution)),
            Some(Signal::Stop(stop)) => Ended::Done(Err(stop), run.steps),
            // Nothing is written yet.
            Some(Signal::OutOfSteps) if matches!(run.execution.program.part, Part::Registrations) => {
                Ended::Done(Ok(LOAD_TOO_LONG), run.steps)
            }
            Some(Signal::OutOfSteps) => {
                abort(run.steps, "steps", limits().steps_max, "do less in one script")
            }
            Some(Signal::RepliesTooLarge) => {
                let bytes = limits().memory_bytes_max as u64;
                abort(run.steps, "bytes in the replies of its commands", bytes, "read less in one script")
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
        // Setting the hook begins a run for the VM: the ticks of its count, and the numbers by which its
        // objects hash as keys, fall on the same instructions everywhere.
        let every_tick = HookTriggers::new().every_nth_instruction(STEPS_PER_TICK);
        let host = self.host.clone();
        self.lua.set_global_hook(every_tick, move |_, _| host.tick().map(|()| VmState::Continue))?;
        let arguments = self.arguments(&execution);
        let function = match &execution.program.part {
            Part::Script | Part::Registrations => Value::Nil,
            Part::Function(name) => Value::String(self.lua.create_string(name.as_bytes())?),
        };
        let is_library = execution.program.is_library();
        self.host.begin(Run::new(*execution));
        let (keys, argv) = arguments?;
        self.host.limit_memory(&self.lua, self.lua.used_memory() + allowance)?;
        match is_library {
            false => self.run.call((script, keys, argv)),
            true => self.run_library.call((script, function, keys, argv)),
        }
    }
}

/// Refuses a source that would take too long to compile. The error is the reply.
fn check_size(program: &Program) -> Result<(), Reply> {
    let bytes = program.code().len();
    if bytes <= SOURCE_BYTES_MAX {
        return Ok(());
    }
    let what = match program.is_library() {
        false => "script",
        true => "library",
    };
    Err(Reply::error_owned(format!(
        "ERR the source of this {what} has {bytes} bytes, and one may have {SOURCE_BYTES_MAX} at most: \
         pass data as arguments or keep it under keys, and split what is left into several"
    )))
}

/// Applies the flags of a script or function to its execution. The error is the reply where they forbid it.
pub(super) fn admit(execution: &mut Execution, flags: ScriptFlags) -> Result<(), Reply> {
    let writes = !flags.contains(ScriptFlags::NO_WRITES);
    if execution.read_only && writes {
        return Err(errors::WRITING_SCRIPT_READ_ONLY);
    }
    if execution.terms.memory == Memory::Short {
        if !flags.runs_when_short() {
            return Err(errors::OUT_OF_MEMORY);
        }
        execution.terms.memory = Memory::Ample;
    }
    execution.read_only |= !writes;
    Ok(())
}

fn abort(steps: u64, what: &str, limit: u64, advice: &str) -> Ended {
    let text = format!("ERR script exceeded its limit of {limit} {what}; it was rolled back; {advice}");
    Ended::Done(Err(Stop::abort(text)), steps)
}
