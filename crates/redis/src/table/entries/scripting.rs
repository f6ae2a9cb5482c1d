//! Scripts.

use super::*;
use crate::commands::pure;
use crate::table::ScriptCommand as S;

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
        .keys(&[KeySpec {
            places: KeyPlaces::Counted { at: 2 },
            flags: &["RW", "access", "update"],
        }])
}
const fn eval_ro(name: &'static str, command: S) -> Command {
    script(name, -3, Run::Script(command))
        .flags(EVAL_FLAGS)
        .readonly()
        .keys(&[KeySpec {
            places: KeyPlaces::Counted { at: 2 },
            flags: &["RO", "access"],
        }])
}

const SCRIPT: &[Command] = &[
    script("script|exists", -3, Run::Script(S::Exists))
        .noscript()
        .about(
            "2.6.0",
            "O(N) in the number of scripts asked for",
            "Tells which scripts are known.",
        ),
    script("script|flush", -2, Run::Script(S::Flush))
        .noscript()
        .about(
            "2.6.0",
            "O(N) in the number of scripts",
            "Forgets all scripts.",
        ),
    script("script|help", 2, Run::Pure(script_help))
        .always()
        .about("5.0.0", "O(1)", "Explains SCRIPT."),
    script(
        "script|kill",
        2,
        Run::Connection(ConnectionCommand::ScriptKill),
    )
    .noscript()
    .flags(Flags::ALLOW_BUSY)
    .about(
        "2.6.0",
        "O(1)",
        "Stops scripts that run outside the order (EVAL_RO and EVALSHA_RO).",
    ),
    script("script|load", 3, Run::Script(S::Load))
        .noscript()
        .flags(Flags::STALE)
        .about(
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

pub(super) const COMMANDS: &[Command] = &[
    eval("eval", S::Eval).about(
        "2.6.0",
        "Depends on the script.",
        "Runs a script, as one transaction.",
    ),
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
    script("script", -2, Run::Container(SCRIPT)).about("2.6.0", "", "Manages scripts."),
];
