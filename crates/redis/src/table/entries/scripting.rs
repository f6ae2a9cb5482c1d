//! Scripts.

use super::ConnectionCommand as C;
use super::*;
use crate::table::{FunctionCommand as F, ScriptCommand as S};

const fn script(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Scripting, run)
}

const CALLED: &[KeySpec] = &[counted(2, &["RW", "access", "update"])];
const CALLED_RO: &[KeySpec] = &[counted(2, &["RO", "access"])];
const EVAL_FLAGS: Flags = Flags::NOSCRIPT
    .with(Flags::STALE)
    .with(Flags::SKIP_MONITOR)
    .with(Flags::NO_MANDATORY_KEYS)
    .with(Flags::MOVABLEKEYS)
    .with(Flags::HEAVY);
const KILL_FLAGS: Flags = Flags::NOSCRIPT.with(Flags::ALLOW_BUSY);
const LOAD_FLAGS: Flags = Flags::NOSCRIPT.with(Flags::WRITE).with(Flags::DENYOOM).with(Flags::HEAVY);

const fn eval(name: &'static str, command: S) -> Command {
    script(name, -3, Run::Script(command)).flags(EVAL_FLAGS).keys(CALLED)
}
const fn eval_ro(name: &'static str, command: S) -> Command {
    script(name, -3, Run::Script(command)).flags(EVAL_FLAGS).readonly().keys(CALLED_RO)
}

const SCRIPT: &[Command] = &[
    script("script|exists", -3, Run::Script(S::Exists)).noscript(),
    script("script|flush", -2, Run::Script(S::Flush)).noscript(),
    script("script|help", 2, help!("SCRIPT")).always(),
    script("script|kill", 2, Run::Connection(C::ScriptKill)).flags(KILL_FLAGS),
    script("script|load", 3, Run::Script(S::Load)).noscript().flags(Flags::STALE.with(Flags::HEAVY)),
];

const FUNCTION: &[Command] = &[
    script("function|delete", 3, Run::Script(S::Function(F::Delete))).noscript().write(),
    script("function|dump", 2, Run::Script(S::Function(F::Dump))).noscript(),
    script("function|flush", -2, Run::Script(S::Function(F::Flush))).noscript().write(),
    script("function|help", 2, help!("FUNCTION")).always(),
    script("function|kill", 2, Run::Connection(C::FunctionKill)).flags(KILL_FLAGS),
    script("function|list", -2, Run::Script(S::Function(F::List))).noscript(),
    script("function|load", -3, Run::Script(S::Function(F::Load))).flags(LOAD_FLAGS),
    script("function|restore", -3, Run::Script(S::Function(F::Restore))).flags(LOAD_FLAGS),
    script("function|stats", 2, Run::Script(S::Function(F::Stats))).noscript().flags(Flags::ALLOW_BUSY),
];

pub(super) const COMMANDS: &[Command] = &[
    eval("eval", S::Eval),
    eval_ro("eval_ro", S::EvalRo),
    eval("evalsha", S::EvalSha),
    eval_ro("evalsha_ro", S::EvalShaRo),
    eval("fcall", S::Fcall),
    eval_ro("fcall_ro", S::FcallRo),
    script("function", -2, Run::Container(FUNCTION)),
    script("script", -2, Run::Container(SCRIPT)),
];
