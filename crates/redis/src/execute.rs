//! Running a command inside a transaction that is already running: what blocks, scripts and ORDO.IDEMPOTENT do.

use crate::arguments::Arguments;
use crate::errors;
use crate::idempotent;
use crate::introspect;
use crate::script;
use crate::table::{self, Flags, Run};
use txn::{Args, Note, ProcedureFuture, Reply, Tx};

/// Who runs a command inside its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A MULTI/EXEC block, or ORDO.IDEMPOTENT.
    Block,
    /// A script.
    Script {
        /// The script promised not to write (EVAL_RO, `no-writes`).
        read_only: bool,
    },
}

/// Whether there was room for more when a transaction was admitted.
///
/// Scripts and functions show only while they run what they write. Whether their node had memory left then is part of the
/// request, so that all replicas, and a replay, refuse the same commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// There was.
    #[default]
    Ample,
    /// The node was above `maxmemory`: what may take more is refused in scripts, unless they allow it.
    Short,
}

/// Runs the command `argv` (its name first) in the transaction of `tx`, which was admitted with this much `memory`.
///
/// Everything that is wrong with the command is an error reply, without effect on what the transaction did before; only
/// the engine's business is an `Err`. The future is polled like any part of a procedure: it awaits nothing but `tx`.
pub fn execute(tx: Tx, argv: Args, caller: Caller, memory: Memory) -> ProcedureFuture {
    let resolved = match table::resolve(&argv) {
        Ok(resolved) => resolved,
        Err(error) => return ready(error.reply(&argv, caller)),
    };
    let command = resolved.command;
    if let Caller::Script { read_only } = caller {
        if command.is(Flags::NOSCRIPT) {
            return ready(errors::NOT_IN_SCRIPT);
        }
        if read_only && (command.is(Flags::WRITE) || command.is(Flags::PUBSUB)) {
            return ready(errors::WRITE_IN_READ_ONLY_SCRIPT);
        }
        if memory == Memory::Short && command.is(Flags::DENYOOM) {
            return ready(errors::OUT_OF_MEMORY);
        }
    }
    tx.note(|| Note::Began(command.name));
    match command.run {
        Run::Data(run) => run(tx, Arguments::of_argv(argv)),
        Run::Pure(run) => ready(run(&argv[1..])),
        Run::Container(_) => ready(introspect::all(&argv[1..])),
        Run::Script(script) => {
            let mut arguments = argv;
            arguments.0.remove(0);
            arguments
                .0
                .drain(..usize::from(resolved.subplace.is_some()));
            script::start(tx, script, Arguments::Owned(Box::new(arguments)), memory)
        }
        Run::Idempotent => idempotent::start(tx, Arguments::of_argv(argv), memory),
        Run::Connection(_) => ready(match caller {
            Caller::Script { .. } => errors::NOT_IN_SCRIPT,
            Caller::Block => errors::NOT_IN_BLOCK,
        }),
    }
}

fn ready(reply: Reply) -> ProcedureFuture {
    Box::pin(std::future::ready(Ok(reply)))
}
