//! One execution of a script, and what the functions that it calls need to know of it.

use super::convert::{self, reply_bytes, reply_values};
use super::cost::ScriptName;
use super::library::json::JsonConfig;
use super::limits::{Limits, compile_steps, limits};
use super::number::push_g;
use super::random::Lrand48;
use super::running::LongRun;
use crate::arguments::Arguments;
use crate::execute::{Caller, Memory, Terms, execute};
use crate::table::{self, Flags};
use crate::work;
use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Value};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use txn::{Args, Blob, ProcedureFuture, Reply, Stop, Tx};

/// VM instructions between two looks at the limits and at the engine.
pub(super) const STEPS_PER_TICK: u32 = 1000;
/// What calling a command counts for, besides its instructions: so that a loop of calls reaches its limit
/// about when the most expensive other work does.
pub(super) const STEPS_PER_CALL: u64 = 150;
/// What each word of a call counts for, besides its bytes: a key that is looked up and that the engine keeps
/// track of, say.
pub(super) const STEPS_PER_WORD: usize = 30;
/// What each value of a reply counts for, besides its bytes: it becomes a value of Lua.
const STEPS_PER_REPLY_VALUE: usize = 15;
/// Bytes of a call's words and its reply that count as a step.
pub(super) const BYTES_PER_STEP: usize = 16;
/// What a function of a library counts for when a script calls it: the way through the binding.
const STEPS_PER_FUNCTION: u64 = 40;
/// What an error of such a function counts for: the binding looks through the stack for its text.
const STEPS_PER_FAILURE: u64 = 300;
/// Steps that a function charges at once: between two looks at the limits, its loop takes at most about so
/// many.
const STEPS_PER_PORTION: u64 = 1000;
/// Which part of a call's steps loading a library may take: every call of its functions begins with the same
/// steps.
const LOAD_STEPS_SHARE: u64 = 10;
/// The longest integer that `%.17g` writes without an exponent.
const PLAIN_INTEGER_MAX: u64 = 100_000_000_000_000_000;

/// A script's digest: SHA-1 in lower-case hexadecimal.
pub(super) type Digest = [u8; 40];

/// What an execution runs.
pub(super) struct Program {
    pub part: Part,
    /// Of the code.
    pub digest: Digest,
    /// A byte string that ends with the code.
    pub text: Blob,
    /// Where the code begins in it.
    pub code_at: usize,
}

/// Which part of its code a program runs.
pub(super) enum Part {
    /// All: it is a script.
    Script,
    /// All, because it is a library, and then the function that it registers under this name.
    Function(Blob),
    /// All, for what it registers.
    Registrations,
}

impl Program {
    pub fn script(digest: Digest, body: Blob) -> Program {
        Program { part: Part::Script, digest, text: body, code_at: 0 }
    }
    pub fn is_library(&self) -> bool {
        !matches!(self.part, Part::Script)
    }
    pub fn code(&self) -> &[u8] {
        self.text.get(self.code_at..).unwrap_or_default()
    }
    /// What errors call it.
    pub fn name(&self) -> String {
        let name = match &self.part {
            Part::Function(name) => name.as_bytes(),
            Part::Script | Part::Registrations => &self.digest,
        };
        String::from_utf8_lossy(name).into_owned()
    }
}

/// A script's execution, from its start to its reply, across suspensions.
///
/// Invariant: `replies` are those of the first `replies.len()` commands that the script calls, and `pending`,
/// if there, is the future of the next one, which has worked `pending_work` steps so far.
pub(super) struct Execution {
    pub tx: Tx,
    pub arguments: Arguments,
    pub program: Program,
    /// The number of keys among the call's arguments, which start at the third.
    pub keys: usize,
    pub read_only: bool,
    /// On which it calls commands. If memory is short, what may take more is refused until the script has
    /// written something.
    pub terms: Terms,
    /// The steps that are spent before it starts: compiling the program, or what the same command loaded
    /// before.
    pub steps_before: u64,
    /// The warm VM's allowance was too small: only a fresh VM, with the exact limit, counts.
    pub exact: bool,
    pub replies: Vec<Answer>,
    pub replies_bytes: usize,
    pub pending: Option<ProcedureFuture>,
    pub pending_work: u64,
    /// The words of the commands that wrote: as many keys, at most, are written.
    written: usize,
}

/// What became of a call: every run of the execution charges the same for it.
pub(super) struct Answer {
    reply: Reply,
    /// The steps that the command worked, beyond its words and its reply.
    work: u64,
}

impl Execution {
    /// A call that has not begun: its arguments are the script or function, the number of keys, the keys, and
    /// the others.
    pub fn new(
        tx: Tx,
        arguments: Arguments,
        program: Program,
        keys: usize,
        read_only: bool,
        terms: Terms,
    ) -> Box<Execution> {
        Box::new(Execution {
            tx,
            arguments,
            steps_before: compile_steps(program.code().len()),
            program,
            keys,
            read_only,
            terms,
            exact: false,
            replies: Vec::new(),
            replies_bytes: 0,
            pending: None,
            pending_work: 0,
            written: 0,
        })
    }
    /// What it is known by to those who estimate its cost.
    pub fn name(&self) -> ScriptName {
        match &self.program.part {
            Part::Function(name) => ScriptName::of_function(name),
            Part::Script | Part::Registrations => {
                ScriptName::of(self.arguments.first().unwrap_or(&self.program.text))
            }
        }
    }
    pub fn key_arguments(&self) -> &[Blob] {
        self.arguments.get(2..2 + self.keys).unwrap_or_default()
    }
    pub fn other_arguments(&self) -> &[Blob] {
        self.arguments.get(2 + self.keys..).unwrap_or_default()
    }
}

/// Why a run ends before the script does. Once set it stays: every function that the script calls, every tick
/// of the instruction counter and every protected call raise it again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// A command waits.
    Suspended,
    /// The engine's business.
    Stop(Stop),
    /// Lua's memory is used up.
    OutOfMemory,
    /// The commands' replies hold too much.
    RepliesTooLarge,
    /// The script's reply is too large.
    ReplyTooLarge,
    /// The steps are used up.
    OutOfSteps,
}

/// A run of an execution: from the script's first instruction to its end, or to a [`Signal`].
pub(super) struct Run {
    pub execution: Execution,
    next_call: usize,
    /// How many calls the run begins with whose replies are remembered.
    replayed: usize,
    pub steps: u64,
    limits: Limits,
    pub signal: Option<Signal>,
    /// The protocol that `redis.setresp` chose.
    pub resp3: bool,
    pub random: Lrand48,
    pub json: JsonConfig,
    /// The text of the error that ended the script.
    pub failure: Option<String>,
    /// Counts the run once it has ticked.
    pub long: Option<LongRun>,
}

impl Run {
    pub fn new(execution: Execution) -> Run {
        let random = Lrand48::of_transaction(execution.tx.seed());
        let mut limits = limits();
        if let Part::Registrations = execution.program.part {
            limits.steps_max /= LOAD_STEPS_SHARE;
        }
        Run {
            replayed: execution.replies.len(),
            steps: execution.steps_before,
            execution,
            next_call: 0,
            limits,
            signal: None,
            resp3: false,
            random,
            json: JsonConfig::default(),
            failure: None,
            long: None,
        }
    }
}

/// An error reply that `redis.call` raises: scripts see `{err = text}`.
#[derive(Debug)]
pub(super) struct RaisedReply(pub String);

impl fmt::Display for RaisedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for RaisedReply {}

fn raised_signal() -> mlua::Error {
    mlua::Error::RuntimeError("the script was stopped".to_owned())
}

/// What the functions of a VM share: the run that they belong to, if there is one.
#[derive(Default)]
pub(super) struct Host {
    run: RefCell<Option<Run>>,
    /// Whether the run has a signal; read more often than the run is borrowed.
    stopped: Cell<bool>,
    /// The bytes that the VM may use while a script runs; 0 between runs.
    memory_limit: Cell<usize>,
}

impl Host {
    pub fn begin(&self, run: Run) {
        self.stopped.set(false);
        *self.run.borrow_mut() = Some(run);
    }
    pub fn end(&self) -> Option<Run> {
        self.run.borrow_mut().take()
    }

    /// Sets the memory limit of a run that starts, or lifts it when it has ended.
    pub fn limit_memory(&self, lua: &Lua, bytes: usize) -> mlua::Result<()> {
        self.memory_limit.set(bytes);
        lua.set_memory_limit(bytes).map(drop)
    }

    /// Whether the run has used up its memory.
    pub fn check_memory(&self, lua: &Lua) -> mlua::Result<()> {
        self.check_memory_beside(lua, 0)
    }

    /// Whether the run would have used up its memory with so many bytes beside what the VM holds.
    pub fn check_memory_beside(&self, lua: &Lua, bytes: usize) -> mlua::Result<()> {
        let limit = self.memory_limit.get();
        if limit > 0 && lua.used_memory().saturating_add(bytes) > limit {
            Err(self.stop(Signal::OutOfMemory))
        } else {
            Ok(())
        }
    }

    /// Makes a function for scripts. While it works, allocations don't fail: the binding protects each one
    /// that may, which costs more than the allocation. What it used is checked when it is done; functions
    /// that may use much check earlier ([`Meter`]).
    ///
    /// So the binding calls Lua unprotected, and no error may be raised there, since it would jump over
    /// Rust's frames. What Lua raises where it makes a string, a table, or a key is the end of memory, which
    /// the allocator never reports without a limit, or a table of more than 2^26 keys, which is larger than
    /// the largest limit ([`super::limits::MEMORY_BYTES_MAX`]): a [`Meter`] ends the function before. Keys
    /// that are nil or no number the binding protects itself.
    pub fn function<R: IntoLuaMulti>(
        self: &Rc<Host>,
        lua: &Lua,
        function: impl Fn(&Host, &Lua, MultiValue) -> mlua::Result<R> + 'static,
    ) -> mlua::Result<Function> {
        let host = self.clone();
        lua.create_function(move |lua, values: MultiValue| {
            host.charge_function(STEPS_PER_FUNCTION + values.len() as u64)?;
            lua.set_memory_limit(0)?;
            let result = function(&host, lua, values);
            lua.set_memory_limit(host.memory_limit.get())?;
            host.check_memory(lua)?;
            if result.is_err() {
                host.charge_function(STEPS_PER_FAILURE)?;
            }
            result
        })
    }

    /// Counts steps of a function that a script calls, or the prelude while there is no script yet. A run
    /// that has been stopped needs some functions for its end: they don't fail.
    fn charge_function(&self, steps: u64) -> mlua::Result<()> {
        if self.stopped.get() || self.run.borrow().is_none() { Ok(()) } else { self.charge(steps) }
    }

    /// The steps that are left to the run.
    pub fn steps_left(&self) -> mlua::Result<u64> {
        self.with(|run| run.limits.steps_max.saturating_sub(run.steps))
    }

    /// Works on the run. Must not call into Lua, where a tick would want the run too.
    pub fn with<R>(&self, f: impl FnOnce(&mut Run) -> R) -> mlua::Result<R> {
        self.check()?;
        match &mut *self.run.borrow_mut() {
            Some(run) => Ok(f(run)),
            None => Err(mlua::Error::RuntimeError("there is no running script".to_owned())),
        }
    }

    /// Fails if the run has been stopped.
    pub fn check(&self) -> mlua::Result<()> {
        if self.stopped.get() { Err(raised_signal()) } else { Ok(()) }
    }

    /// Stops the run; the first reason stays. Gives the error to raise.
    pub fn stop(&self, signal: Signal) -> mlua::Error {
        if let Some(run) = &mut *self.run.borrow_mut()
            && run.signal.is_none()
        {
            run.signal = Some(signal);
            self.stopped.set(true);
        }
        raised_signal()
    }

    /// Counts steps that a function takes without executing instructions, and what Lua's API has charged to
    /// it.
    pub fn charge(&self, steps: u64) -> mlua::Result<()> {
        let steps = steps.saturating_add(lua::take_debt());
        let exceeded = self.with(|run| {
            run.steps = run.steps.saturating_add(steps);
            run.steps > run.limits.steps_max
        })?;
        if exceeded { Err(self.stop(Signal::OutOfSteps)) } else { Ok(()) }
    }

    /// The instruction counter's tick.
    pub fn tick(&self) -> mlua::Result<()> {
        self.charge(u64::from(STEPS_PER_TICK))?;
        // A doomed incarnation may loop for ever over a state that never was.
        let doomed = self.with(|run| {
            let doomed = run.execution.tx.doomed();
            if run.long.is_none() {
                run.long = Some(LongRun::begin(&run.execution));
            }
            doomed
        })?;
        if doomed {
            return Err(self.stop(Signal::Stop(Stop::Restart)));
        }
        Ok(())
    }

    /// Fails for a key whose place in a table depends on its address.
    pub fn ordered(&self, key: &Value) -> mlua::Result<()> {
        match key {
            Value::Table(_) | Value::Function(_) | Value::Thread(_) | Value::UserData(_) => {
                Err(mlua::Error::RuntimeError(UNORDERED_KEYS.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// `redis.call` and `redis.pcall`: the reply, or an error reply's text.
    fn command(&self, lua: &Lua, arguments: &MultiValue) -> mlua::Result<Result<Value, String>> {
        let words = arguments.iter().filter_map(Value::as_string);
        let bytes = words.map(|word| word.as_bytes().len()).sum::<usize>();
        self.charge(STEPS_PER_CALL + (arguments.len() * STEPS_PER_WORD + bytes / BYTES_PER_STEP) as u64)?;
        // A string that is a word many times would be copied as often.
        if bytes > super::limits::limits().memory_bytes_max {
            return Err(self.stop(Signal::OutOfMemory));
        }
        let mut slot = self.run.borrow_mut();
        let Some(run) = &mut *slot else {
            return Err(raised_signal());
        };
        let index = run.next_call;
        if index == run.execution.replies.len() {
            let argv = match argv(arguments) {
                Ok(argv) => argv,
                Err(text) => return Ok(Err(text.to_owned())),
            };
            let steps_left = run.limits.steps_max.saturating_sub(run.steps);
            let mut advanced = run.execution.advance(argv, steps_left);
            // A worker's budget is no reason to unwind before the run has made as many calls as it has
            // repeated: else a long script would take time in proportion to the square of its length.
            while advanced.is_pending() && index - run.replayed < run.replayed && run.execution.tx.overdraw()
            {
                advanced = run.execution.advance(Args::new(), steps_left);
            }
            let signal = match advanced {
                Poll::Ready(Ok(())) if run.execution.replies_bytes > run.limits.memory_bytes_max => {
                    Some(Signal::RepliesTooLarge)
                }
                Poll::Ready(Ok(())) => None,
                Poll::Ready(Err(stop)) => Some(Signal::Stop(stop)),
                Poll::Pending => Some(Signal::Suspended),
            };
            if let Some(signal) = signal {
                drop(slot);
                return Err(self.stop(signal));
            }
        } else if argv(arguments).is_err() {
            // Such a call was refused without running a command, so it has no reply to remember.
            return Ok(Err(argv(arguments).err().unwrap_or_default().to_owned()));
        }
        run.next_call += 1;
        let Answer { reply, work } = &run.execution.replies[index];
        let steps = reply_values(reply) * STEPS_PER_REPLY_VALUE + reply.bytes() / BYTES_PER_STEP;
        run.steps = run.steps.saturating_add(*work + steps as u64);
        // At once: a command may have stopped half-way.
        if run.steps > run.limits.steps_max {
            drop(slot);
            return Err(self.stop(Signal::OutOfSteps));
        }
        match reply {
            Reply::Error(text) => Ok(Err(text.clone().into_owned())),
            reply => {
                let steps_left = run.limits.steps_max.saturating_sub(run.steps);
                let value = convert::to_lua(lua, reply, run.resp3, steps_left);
                drop(slot);
                self.charge(0)?;
                value.map(Ok)
            }
        }
    }

    /// `redis.call`.
    pub fn call(&self, lua: &Lua, arguments: &MultiValue) -> mlua::Result<Value> {
        self.command(lua, arguments)?.map_err(|text| mlua::Error::external(RaisedReply(text)))
    }

    /// `redis.pcall`.
    pub fn pcall(&self, lua: &Lua, arguments: &MultiValue) -> mlua::Result<Value> {
        match self.command(lua, arguments)? {
            Ok(reply) => Ok(reply),
            Err(text) => convert::error_table(lua, &text),
        }
    }
}

/// Counts what a loop of a function does, and looks at the limits of steps and memory once for each portion
/// of it. What it has not charged yet, it charges when it is dropped, so that a function that fails pays,
/// too.
pub(super) struct Meter<'a> {
    host: &'a Host,
    lua: &'a Lua,
    owed: u64,
}

impl<'a> Meter<'a> {
    pub fn new(host: &'a Host, lua: &'a Lua) -> Meter<'a> {
        Meter { host, lua, owed: 0 }
    }

    /// Counts steps before they are taken.
    pub fn spend(&mut self, steps: usize) -> mlua::Result<()> {
        self.owed = self.owed.saturating_add(steps as u64);
        if self.owed.saturating_add(lua::debt()) < STEPS_PER_PORTION {
            return Ok(());
        }
        self.pay()
    }

    // Apart: functions that call themselves would keep what it has on the stack at each level.
    #[inline(never)]
    fn pay(&mut self) -> mlua::Result<()> {
        self.host.charge(std::mem::take(&mut self.owed))?;
        self.host.check_memory(self.lua)
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        // Whoever charges next looks at the sum.
        let _ = self.host.charge(self.owed);
    }
}

pub(super) const UNORDERED_KEYS: &str = "cannot iterate over a table whose keys are tables or functions: \
     their order would differ between replicas; iterate over an array of them instead";

impl Execution {
    /// Starts a command in the script's transaction.
    fn begin(&mut self, argv: Args) -> ProcedureFuture {
        let terms = self.terms.clone();
        let resolved = table::resolve(&argv);
        if resolved.as_ref().is_ok_and(|resolved| resolved.command.is(Flags::WRITE)) {
            self.written += argv.len() - 1;
        }
        if terms.memory == Memory::Short
            && let Ok(resolved) = resolved
        {
            let command = resolved.command;
            let is_refused = command.is(Flags::DENYOOM)
                || command.is(Flags::NOSCRIPT)
                || !terms.actor.may(&resolved, &argv);
            // As in Redis: a script that has written is not stopped half-way.
            if command.is(Flags::WRITE) && !is_refused {
                self.terms.memory = Memory::Ample;
            }
        }
        let caller = Caller::Script { read_only: self.read_only };
        execute(self.tx.clone(), argv, caller, terms)
    }

    /// Polls the next command once, and remembers its reply. One that is pending has its words already.
    /// A command that works for more than the steps that are left stops somewhere, and so must the script.
    fn advance(&mut self, argv: Args, steps_left: u64) -> Poll<Result<(), Stop>> {
        let mut context = Context::from_waker(Waker::noop());
        let steps_left = steps_left.saturating_sub(self.pending_work);
        let ((polled, command), work) = work::metered(steps_left, || {
            let mut command = match self.pending.take() {
                Some(command) => command,
                None => self.begin(argv),
            };
            work::has_written(self.written);
            (command.as_mut().poll(&mut context), command)
        });
        self.pending_work = self.pending_work.saturating_add(work);
        match polled {
            Poll::Ready(Ok(reply)) => {
                self.replies_bytes += reply_bytes(&reply);
                let work = std::mem::take(&mut self.pending_work);
                self.replies.push(Answer { reply, work });
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(stop)) => Poll::Ready(Err(stop)),
            Poll::Pending => {
                self.pending = Some(command);
                Poll::Pending
            }
        }
    }
}

/// The words of a command. The error is the text of the reply.
pub(super) fn argv(arguments: &MultiValue) -> Result<Args, &'static str> {
    if arguments.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let mut words = SmallVec::with_capacity(arguments.len());
    for argument in arguments {
        words.push(match argument {
            Value::String(text) => Blob::new(&text.as_bytes()),
            Value::Integer(value) if value.unsigned_abs() < PLAIN_INTEGER_MAX => {
                Blob::from(itoa::Buffer::new().format(*value))
            }
            Value::Integer(value) => number_word(*value as f64),
            Value::Number(value) => number_word(*value),
            _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
        });
    }
    Ok(Args(words))
}

fn number_word(value: f64) -> Blob {
    let mut text = Vec::with_capacity(24);
    push_g(&mut text, value, 17);
    Blob::from(text)
}
