//! Lua scripts as procedures.
//!
//! EVAL, EVALSHA, their read-only variants, and SCRIPT LOAD, EXISTS and FLUSH are procedures like any other.
//! The body of a script is a record of the system space (`script:` and the digest), so that it is ordered
//! before its use, is part of checkpoints, and is the same at every replica. The keys that a call names are
//! a guess ([`txn::KeySets::may_stray`]): only the script knows what it touches.
//!
//! # A run
//!
//! A script runs in a Lua 5.1 VM of the thread that polls its procedure. `redis.call` is synchronous: it
//! polls the command's future once, with the engine's access lent to the thread for that poll as for any
//! procedure. If the command is not ready, the engine wants the whole script suspended. Lua 5.1 can't leave a
//! script in the middle of a protected call and come back, so a script suspends by *unwinding and
//! re-execution*: the run is stopped by a signal, the command's future and the replies so far are kept in the
//! [`Execution`](run::Execution), and when it is polled again, the script runs from its start, is given the
//! remembered replies for its first calls, and goes on polling the kept future. Nothing else of a run
//! survives: counters and the random generator start again. A script is deterministic, so it makes the same
//! calls again.
//!
//! Signals (suspension, [`Stop`], exceeded limits) can't be swallowed. Once a run has one, every function
//! that the script calls and every tick of the instruction counter raises it again; `pcall`, `xpcall` and
//! `coroutine.resume` are our own and re-raise it; and whatever the script returns is discarded. A doomed
//! incarnation may see impossible states and loop over them for ever: every tick asks the engine. An ordinary
//! error of a script, as in Redis, ends it with an error reply and keeps what it wrote.
//!
//! # Functions
//!
//! FUNCTION LOAD keeps libraries of functions in the same way, and FCALL runs them under the same rules: see
//! [`functions`].
//!
//! # Limits
//!
//! Limits decide outcomes, so they must fall on the same instruction everywhere, whatever else the thread ran
//! before.
//!
//! *Steps* are VM instructions, counted in ticks of 1000 that start with the run, plus what functions charge
//! that work without executing instructions (patterns, sorting, packing, `string.rep`, ...). Functions charge
//! before they work, a portion at a time (`run::Meter`), so that one that fails at its end has paid. A call
//! of a command counts by its words, its reply, and what it looked at and changed ([`crate::work`]): it is
//! finished before the sum is looked at. The VM itself charges instructions that take long (on long strings,
//! above all) in proportion: see the crate `lua`. `docs/lua-security.md` says which time the limit means.
//!
//! *Sources* have at most [`SOURCE_BYTES_MAX`] bytes, and each byte counts as steps before a run, also where
//! the thread has the compiled script already: else what a script may do would depend on what its thread ran
//! before. What loads a script or a library is a heavy request, which no I/O thread runs.
//!
//! *Memory.* The collector never runs while a script does, so a run's memory is the sum of its allocations,
//! and a collection can't happen at different moments in different places. (It would show: Lua 5.1 frees the
//! places of removed keys during collection, which changes the order of `pairs`.) A warm VM is not exact,
//! because a string that an earlier run left behind is not allocated again. So a script first runs in the
//! warm VM of its thread with half of the limit. If that is not enough, it runs again, keeping its replies,
//! in a fresh VM with the exact limit, and only that decides. A run that passes with half of the limit would
//! also pass in a fresh VM, because a warm VM holds less than the other half (its garbage and its cache of
//! compiled scripts are bounded), so where a script ran is never seen. What a function of a library writes
//! before it becomes a string counts with it while it grows (`library/output.rs`).
//!
//! # What scripts can't do
//!
//! See clocks, chance, addresses, or another script. `redis.log` is checked and dropped. Time is the epoch's,
//! `math.random` is seeded by the transaction, tables and functions are numbered in the order in which a run
//! prints them, and iterating over a table whose keys are tables or functions is an error, because their
//! order depends on addresses. The environment and all libraries are read-only behind proxies, settings of
//! `cjson` end with the run, and what changes environments or collects garbage is absent. `loadstring` and
//! `load` compile text only, for the environment of their caller, and are charged before they do.
//! `docs/lua-security.md` lists known attacks and what became of them.
//!
//! What becomes a key of a table hashes by a number that it gets for that (see the crate `lua`), so that the
//! order of other keys says nothing of addresses, either; and functions such as `math.sin` give the same
//! digits on every machine.
//!
//! # Files
//!
//! [`run`](self) holds an execution's state and `redis.call`; `vm.rs` the VMs; `raised.rs` how errors leave
//! them; `prelude.lua` the environment; `libraries.lua` that of functions; `functions/` FUNCTION and FCALL;
//! `library/` what environments are made of; `convert.rs` replies; `pattern.rs` Lua's patterns with counted
//! steps.

mod convert;
mod cost;
mod functions;
mod library;
mod limits;
mod number;
mod pattern;
mod raised;
mod random;
mod run;
mod running;
mod shebang;
#[cfg(test)]
mod tests;
mod vm;

pub(crate) use convert::reply_values;
pub use cost::{LIGHT_STEPS_MAX, ScriptName, cost_hint, recent_steps};
pub use limits::{Limits, MEMORY_BYTES_MIN, SOURCE_BYTES_MAX, limits, set_limits};
pub use running::{RunningScript, is_running, running};

use crate::arguments::Arguments;
use crate::errors;
use crate::execute::Terms;
use crate::parse;
use crate::table::{self, FunctionCommand, ScriptCommand};
use crate::telling::{SCRIPT, telling};
use run::{Digest, Execution, Program};
use sha1::Digest as _;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use txn::{
    Args, Blob, Call, Footprint, Key, KeySets, Outcome, Procedure, ProcedureFuture, Registry, Reply,
    ScanRange, Space, Tx,
};

const NO_SCRIPT: Reply = Reply::error("NOSCRIPT No matching script. Please use EVAL.");
const WRONG_ARITY: Reply = Reply::error("ERR wrong number of arguments for a script command");
const KEY_PREFIX: &[u8] = b"script:";
/// Records that SCRIPT FLUSH looks at in one operation.
const FLUSH_PAGE: usize = 256;

/// The digest of a script: SHA-1 in lower-case hexadecimal.
fn digest_of(body: &[u8]) -> Digest {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digest = [0; 40];
    for (pair, byte) in digest.chunks_exact_mut(2).zip(sha1::Sha1::digest(body)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    digest
}

/// The digest that a client named, if it has the form of one.
fn digest_named(name: &[u8]) -> Option<Digest> {
    let digest: Digest = name.try_into().ok()?;
    Some(digest.map(|digit| digit.to_ascii_lowercase()))
}

/// The record of a script's body.
/// What the store keeps of scripts, in records of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The body of a script.
    Script,
    /// A library of functions.
    Library,
    /// The name of a function.
    Function,
}

impl Kept {
    /// What the record with this key holds, if it is one of these.
    pub fn of(key: &Key) -> Option<Kept> {
        let has = |prefix: &[u8]| key.space() == Space::System && key.as_bytes().starts_with(prefix);
        match () {
            () if has(KEY_PREFIX) => Some(Kept::Script),
            () if has(functions::LIBRARY_PREFIX) => Some(Kept::Library),
            () if has(functions::FUNCTION_PREFIX) => Some(Kept::Function),
            () => None,
        }
    }
}

fn key_of(digest: &Digest) -> Key {
    let mut name = [0; KEY_PREFIX.len() + 40];
    name[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX);
    name[KEY_PREFIX.len()..].copy_from_slice(digest);
    Key::system(&name)
}

/// A command of the script engine as a procedure. Its arguments are the words after the command's (and
/// subcommand's) name.
struct ScriptProcedure {
    command: ScriptCommand,
}

/// What a command of the script engine touches; `args` are the words after the command's (and subcommand's)
/// name. Without the keys (`with_keys` false) it is cheap.
pub(crate) fn footprint(command: ScriptCommand, args: &[Blob], with_keys: bool) -> Footprint {
    let weight = match (command, args.first()) {
        (ScriptCommand::Exists, _)
        | (ScriptCommand::Function(FunctionCommand::Delete | FunctionCommand::Stats), _) => {
            txn::Weight::Light
        }
        // Loading compiles: an I/O thread leaves that to others.
        (ScriptCommand::Load | ScriptCommand::Flush | ScriptCommand::Function(_), _) | (_, None) => {
            txn::Weight::Heavy
        }
        (ScriptCommand::Fcall | ScriptCommand::FcallRo, Some(function)) => {
            cost_hint(ScriptName::of_function(function))
        }
        (_, Some(script)) => cost_hint(ScriptName::of(script)),
    };
    let read_only = match command {
        ScriptCommand::EvalRo | ScriptCommand::EvalShaRo | ScriptCommand::FcallRo | ScriptCommand::Exists => {
            true
        }
        ScriptCommand::Function(command) => !command.writes(),
        ScriptCommand::Eval
        | ScriptCommand::EvalSha
        | ScriptCommand::Fcall
        | ScriptCommand::Load
        | ScriptCommand::Flush => false,
    };
    let keys = with_keys.then(|| named_keys(command, args, read_only)).flatten();
    Footprint { keys: keys.map(Arc::new), read_only, weight }
}

/// The keys that a call of a script or a function names. It touches others: the record of its body, at least.
fn named_keys(command: ScriptCommand, args: &[Blob], read_only: bool) -> Option<KeySets> {
    let script = args.first().filter(|_| command.runs_code())?;
    let count = keys_of(args, errors::NOT_AN_INTEGER).ok()?;
    let named = args.iter().skip(2).take(count).map(Key::from).collect();
    let name = match command {
        ScriptCommand::Fcall | ScriptCommand::FcallRo => ScriptName::of_function(script),
        _ => ScriptName::of(script),
    };
    let (reads, writes) = if read_only { (named, Vec::new()) } else { (Vec::new(), named) };
    let mut sets = KeySets { reads, writes, may_stray: Some(name.hash()), ..KeySets::default() };
    table::normalize(&mut sets);
    Some(sets)
}

/// The name of the procedure behind a command of the script engine.
pub fn procedure_name(command: ScriptCommand) -> &'static str {
    match command {
        ScriptCommand::Eval => "redis.eval",
        ScriptCommand::EvalRo => "redis.eval_ro",
        ScriptCommand::EvalSha => "redis.evalsha",
        ScriptCommand::EvalShaRo => "redis.evalsha_ro",
        ScriptCommand::Load => "redis.script_load",
        ScriptCommand::Exists => "redis.script_exists",
        ScriptCommand::Flush => "redis.script_flush",
        ScriptCommand::Fcall => "redis.fcall",
        ScriptCommand::FcallRo => "redis.fcall_ro",
        ScriptCommand::Function(command) => match command {
            FunctionCommand::Delete => "redis.function_delete",
            FunctionCommand::Dump => "redis.function_dump",
            FunctionCommand::Flush => "redis.function_flush",
            FunctionCommand::List => "redis.function_list",
            FunctionCommand::Load => "redis.function_load",
            FunctionCommand::Restore => "redis.function_restore",
            FunctionCommand::Stats => "redis.function_stats",
        },
    }
}

/// The procedure behind a command of the script engine.
pub fn procedure(command: ScriptCommand) -> Arc<dyn Procedure> {
    Arc::new(ScriptProcedure { command })
}

/// Registers the procedures of the script engine.
pub fn register(registry: &mut Registry) -> Result<(), txn::procedure::NameTaken> {
    use FunctionCommand as F;
    use ScriptCommand::*;
    let functions = [F::Delete, F::Dump, F::Flush, F::List, F::Load, F::Restore, F::Stats];
    [Eval, EvalRo, EvalSha, EvalShaRo, Load, Exists, Flush, Fcall, FcallRo]
        .into_iter()
        .chain(functions.map(Function))
        .try_for_each(|command| registry.register(procedure(command)))
}

impl Procedure for ScriptProcedure {
    fn name(&self) -> &str {
        procedure_name(self.command)
    }

    fn footprint(&self, args: &Args) -> Footprint {
        footprint(self.command, args, true)
    }

    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        telling(SCRIPT, start(tx, self.command, Arguments::Call(call), Terms::default()))
    }
}

/// Starts a command of the script engine in a transaction: its own, or that of a block. The arguments are the
/// words after the command's (and subcommand's) name.
pub fn start(tx: Tx, command: ScriptCommand, arguments: Arguments, terms: Terms) -> ProcedureFuture {
    match command {
        ScriptCommand::Eval => Box::pin(eval(tx, arguments, false, terms)),
        ScriptCommand::EvalRo => Box::pin(eval(tx, arguments, true, terms)),
        ScriptCommand::EvalSha => Box::pin(evalsha(tx, arguments, false, terms)),
        ScriptCommand::EvalShaRo => Box::pin(evalsha(tx, arguments, true, terms)),
        ScriptCommand::Fcall => Box::pin(functions::fcall(tx, arguments, false, terms)),
        ScriptCommand::FcallRo => Box::pin(functions::fcall(tx, arguments, true, terms)),
        ScriptCommand::Function(command) => functions::start(tx, command, arguments),
        ScriptCommand::Load => Box::pin(load(tx, arguments)),
        ScriptCommand::Exists => Box::pin(exists(tx, arguments)),
        ScriptCommand::Flush => Box::pin(flush(tx, arguments)),
    }
}

/// The number of keys of a call; `not_an_integer` is the error where there is none.
fn keys_of(args: &[Blob], not_an_integer: Reply) -> Result<usize, Reply> {
    let Some(word) = args.get(1) else {
        return Err(WRONG_ARITY);
    };
    let count = parse::integer(word).ok_or(not_an_integer)?;
    if count > args.len() as i64 - 2 {
        Err(Reply::error("ERR Number of keys can't be greater than number of args"))
    } else {
        usize::try_from(count).map_err(|_| Reply::error("ERR Number of keys can't be negative"))
    }
}

async fn eval(mut tx: Tx, arguments: Arguments, read_only: bool, terms: Terms) -> Outcome {
    let keys = match keys_of(&arguments, errors::NOT_AN_INTEGER) {
        Ok(keys) => keys,
        Err(reply) => return Ok(reply),
    };
    let body = arguments[0].clone();
    let program = Program::script(digest_of(&body), body);
    // A read-only transaction can't store the body; EVALSHA finds it after an EVAL or SCRIPT LOAD. Where
    // sites commit alone, EVALSHA finds it after a SCRIPT LOAD only: the write could need another region.
    if !read_only
        && !tx.spares_system_writes()
        && let Err(reply) = store(&mut tx, &program).await?
    {
        return Ok(reply);
    }
    execute(Execution::new(tx, arguments, program, keys, read_only, terms)).await
}

async fn evalsha(mut tx: Tx, arguments: Arguments, read_only: bool, terms: Terms) -> Outcome {
    let Some(name) = arguments.first() else {
        return Ok(WRONG_ARITY);
    };
    let Some(digest) = digest_named(name) else {
        return Ok(NO_SCRIPT);
    };
    let keys = match keys_of(&arguments, errors::NOT_AN_INTEGER) {
        Ok(keys) => keys,
        Err(reply) => return Ok(reply),
    };
    let value = tx.get(&key_of(&digest)).await?;
    match value.as_ref().and_then(|value| value.as_string()) {
        Some(body) => {
            let program = Program::script(digest, body.clone());
            execute(Execution::new(tx, arguments, program, keys, read_only, terms)).await
        }
        None => Ok(NO_SCRIPT),
    }
}

/// Stores a body that compiles, unless it is there.
async fn store(tx: &mut Tx, program: &Program) -> Result<Result<(), Reply>, txn::Stop> {
    let key = key_of(&program.digest);
    if tx.get(&key).await?.is_none() {
        if let Err(reply) = vm::compile(program) {
            return Ok(Err(reply));
        }
        tx.put(&key, program.text.clone()).await?;
    }
    Ok(Ok(()))
}

/// Runs an execution to its end, and remembers how long it took.
async fn execute(execution: Box<Execution>) -> Outcome {
    execution.tx.expect(execution.key_arguments().iter().map(|word| Key::from(word).hash64()));
    let name = execution.name();
    let source_bytes = execution.program.code().len();
    let (outcome, steps) = run_to_end(execution).await;
    cost::record(name, cost::of_call(steps, source_bytes));
    outcome
}

/// Runs an execution to its end, and tells its steps.
async fn run_to_end(execution: Box<Execution>) -> (Outcome, u64) {
    let mut execution = Some(execution);
    poll_fn(|_| match execution.take().map(vm::run) {
        Some(vm::Ended::Done(outcome, steps)) => Poll::Ready((outcome, steps)),
        Some(vm::Ended::Suspended(suspended)) => {
            execution = Some(suspended);
            Poll::Pending
        }
        None => Poll::Ready((Err(txn::Stop::Restart), 0)),
    })
    .await
}

async fn load(mut tx: Tx, arguments: Arguments) -> Outcome {
    let Some(body) = arguments.first() else {
        return Ok(WRONG_ARITY);
    };
    let program = Program::script(digest_of(body), body.clone());
    Ok(match store(&mut tx, &program).await? {
        Ok(()) => Reply::bulk(&program.digest),
        Err(reply) => reply,
    })
}

async fn exists(mut tx: Tx, arguments: Arguments) -> Outcome {
    let mut found = Vec::with_capacity(arguments.len());
    for name in arguments.iter() {
        let there = match digest_named(name) {
            Some(digest) => tx.get(&key_of(&digest)).await?.is_some(),
            None => false,
        };
        found.push(Reply::Integer(i64::from(there)));
    }
    Ok(Reply::Array(found))
}

async fn flush(mut tx: Tx, arguments: Arguments) -> Outcome {
    let mode = arguments.first().map(|word| word.to_ascii_lowercase());
    if arguments.len() > 1 || !matches!(mode.as_deref(), None | Some(b"sync" | b"async")) {
        return Ok(Reply::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    let mut from_hash = Some(0);
    while let Some(hash) = from_hash {
        let page = tx.scan(ScanRange::of(Space::System, hash, FLUSH_PAGE)).await?;
        for (key, _) in &page.entries {
            if key.as_bytes().starts_with(KEY_PREFIX) {
                tx.delete(key).await?;
            }
        }
        from_hash = page.next_hash;
    }
    Ok(Reply::OK)
}
