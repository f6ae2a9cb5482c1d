//! Scripts.

use super::*;
use crate::commands::pure;
use crate::table::{FunctionCommand as F, ScriptCommand as S};

const fn script(name: &'static str, arity: i16, run: Run) -> Command {
    let mut command = Command::new(name, arity, Group::Scripting, run);
    command.since = "2.6.0";
    command
}

const EVAL_FLAGS: Flags = Flags::NOSCRIPT
    .with(Flags::STALE)
    .with(Flags::SKIP_MONITOR)
    .with(Flags::NO_MANDATORY_KEYS)
    .with(Flags::MOVABLEKEYS)
    .with(Flags::HEAVY);

const fn eval(name: &'static str, command: S) -> Command {
    script(name, -3, Run::Script(command))
        .flags(EVAL_FLAGS)
        .keys(&[KeySpec { places: KeyPlaces::Counted { at: 2 }, flags: &["RW", "access", "update"] }])
}
const fn eval_ro(name: &'static str, command: S) -> Command {
    script(name, -3, Run::Script(command))
        .flags(EVAL_FLAGS)
        .readonly()
        .keys(&[KeySpec { places: KeyPlaces::Counted { at: 2 }, flags: &["RO", "access"] }])
}

const SCRIPT: &[Command] = &[
    script("script|exists", -3, Run::Script(S::Exists)).noscript().about(
        "2.6.0",
        "O(N) in the number of scripts asked for",
        "Tells which scripts are known.",
    ),
    script("script|flush", -2, Run::Script(S::Flush)).noscript().about(
        "2.6.0",
        "O(N) in the number of scripts",
        "Forgets all scripts.",
    ),
    script("script|help", 2, Run::Pure(script_help)).always().about("5.0.0", "O(1)", "Explains SCRIPT."),
    script("script|kill", 2, Run::Connection(ConnectionCommand::ScriptKill))
        .noscript()
        .flags(Flags::ALLOW_BUSY)
        .about("2.6.0", "O(1)", "Stops scripts that run outside the order (EVAL_RO and EVALSHA_RO)."),
    script("script|load", 3, Run::Script(S::Load)).noscript().flags(Flags::STALE.with(Flags::HEAVY)).about(
        "2.6.0",
        "O(N) in the length of the script",
        "Makes a script known and replies its digest.",
    ),
];

fn script_help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "SCRIPT",
        &[
            "EXISTS <sha1> [<sha1> ...]",
            "    Whether scripts are known.",
            "FLUSH [ASYNC|SYNC]",
            "    Forgets all scripts.",
            "KILL",
            "    Stops scripts that run outside the order (EVAL_RO and EVALSHA_RO).",
            "LOAD <script>",
            "    Makes a script known without running it.",
        ],
    )
}

const fn function(name: &'static str, arity: i16, run: Run) -> Command {
    let mut command = script(name, arity, run);
    command.since = "7.0.0";
    command
}

const FUNCTION: &[Command] = &[
    function("function|delete", 3, Run::Script(S::Function(F::Delete))).noscript().write().about(
        "7.0.0",
        "O(N) in the number of the library's functions",
        "Deletes a library and its functions.",
    ),
    function("function|dump", 2, Run::Script(S::Function(F::Dump))).noscript().about(
        "7.0.0",
        "O(N) in the length of all libraries",
        "Replies all libraries in the form that FUNCTION RESTORE reads.",
    ),
    function("function|flush", -2, Run::Script(S::Function(F::Flush))).noscript().write().about(
        "7.0.0",
        "O(N) in the number of functions",
        "Deletes all libraries.",
    ),
    function("function|help", 2, Run::Pure(function_help)).always().about(
        "7.0.0",
        "O(1)",
        "Explains FUNCTION.",
    ),
    function("function|kill", 2, Run::Connection(ConnectionCommand::FunctionKill))
        .noscript()
        .flags(Flags::ALLOW_BUSY)
        .about("7.0.0", "O(1)", "Stops functions that run outside the order (FCALL_RO)."),
    function("function|list", -2, Run::Script(S::Function(F::List))).noscript().about(
        "7.0.0",
        "O(N) in the number of functions",
        "Lists libraries and their functions.",
    ),
    function("function|load", -3, Run::Script(S::Function(F::Load)))
        .noscript()
        .write()
        .denyoom()
        .flags(Flags::HEAVY)
        .about(
            "7.0.0",
            "O(N) in the length of the library, and what running it takes",
            "Loads a library of functions and replies its name.",
        ),
    function("function|restore", -3, Run::Script(S::Function(F::Restore)))
        .noscript()
        .write()
        .denyoom()
        .flags(Flags::HEAVY)
        .about(
            "7.0.0",
            "O(N) in the length of the libraries, and what running them takes",
            "Loads all libraries that FUNCTION DUMP replied.",
        ),
    function("function|stats", 2, Run::Script(S::Function(F::Stats)))
        .noscript()
        .flags(Flags::ALLOW_BUSY)
        .about("7.0.0", "O(N) in the number of libraries", "Tells the numbers of libraries and functions."),
];

fn function_help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "FUNCTION",
        &[
            "DELETE <library>",
            "    Deletes a library and its functions.",
            "DUMP",
            "    Replies all libraries in the form that FUNCTION RESTORE reads.",
            "FLUSH [ASYNC|SYNC]",
            "    Deletes all libraries.",
            "KILL",
            "    Stops functions that run outside the order (FCALL_RO).",
            "LIST [LIBRARYNAME <pattern>] [WITHCODE]",
            "    Lists libraries and their functions, with their code if asked.",
            "LOAD [REPLACE] <code>",
            "    Loads a library and replies its name, which its first line tells: #!lua name=<library>",
            "RESTORE <payload> [FLUSH|APPEND|REPLACE]",
            "    Loads the libraries of a dump: instead of those that there are, beside them, or in place \
             of those of the",
            "    same names.",
            "STATS",
            "    Tells the numbers of libraries and functions.",
        ],
    )
}

pub(super) const COMMANDS: &[Command] = &[
    eval("eval", S::Eval).about("2.6.0", "Depends on the script.", "Runs a script, as one transaction."),
    eval_ro("eval_ro", S::EvalRo).about(
        "7.0.0",
        "Depends on the script.",
        "Runs a script that does not write.",
    ),
    eval("evalsha", S::EvalSha).about(
        "2.6.0",
        "Depends on the script.",
        "Runs a known script by its digest.",
    ),
    eval_ro("evalsha_ro", S::EvalShaRo).about(
        "7.0.0",
        "Depends on the script.",
        "Runs a known script that does not write by its digest.",
    ),
    eval("fcall", S::Fcall).about(
        "7.0.0",
        "Depends on the function.",
        "Calls a function, as one transaction.",
    ),
    eval_ro("fcall_ro", S::FcallRo).about(
        "7.0.0",
        "Depends on the function.",
        "Calls a function that does not write.",
    ),
    function("function", -2, Run::Container(FUNCTION)).about("7.0.0", "", "Manages libraries of functions."),
    script("script", -2, Run::Container(SCRIPT)).about("2.6.0", "", "Manages scripts."),
];
