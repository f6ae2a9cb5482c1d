//! Running a command inside a transaction that is already running: what blocks, scripts and ORDO.IDEMPOTENT
//! do.

use crate::acl::{Actor, commands_of_users};
use crate::arguments::Arguments;
use crate::commands::options;
use crate::errors;
use crate::idempotent;
use crate::introspect;
use crate::script;
use crate::table::{self, ConnectionCommand, Flags, Run};
use crate::work;
use txn::{Args, Blob, Note, ProcedureFuture, Reply, Stop, Tx};

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
/// Scripts and functions show only while they run what they write. Whether their node had memory left then is
/// part of the request, so that all replicas, and a replay, refuse the same commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// There was.
    #[default]
    Ample,
    /// The node was above `maxmemory`: what may take more is refused in scripts, unless they allow it.
    Short,
}

/// On which terms a transaction runs commands. The default: on nobody's behalf, so that everything is
/// allowed, and with ample memory.
#[derive(Clone, Default)]
pub struct Terms {
    /// On whose behalf.
    pub actor: Actor,
    /// What there was when the transaction was admitted.
    pub memory: Memory,
}

impl Terms {
    /// The same with the rights that the actor has now.
    pub(crate) async fn looking(&self, tx: &mut Tx) -> Result<Terms, Stop> {
        Ok(Terms { actor: self.actor.looking(tx).await?, memory: self.memory })
    }
}

/// Runs the command `argv` (its name first) in the transaction of `tx`, on these terms: what they forbid is
/// an error reply.
///
/// Everything that is wrong with the command is an error reply, without effect on what the transaction did
/// before; only the engine's business is an `Err`. The future is polled like any part of a procedure: it
/// awaits nothing but `tx`.
pub fn execute(tx: Tx, argv: Args, caller: Caller, terms: Terms) -> ProcedureFuture {
    let resolved = match table::resolve(&argv) {
        Ok(resolved) => resolved,
        Err(error) => return ready(error.reply(&argv, caller)),
    };
    let command = resolved.command;
    let is_script = matches!(caller, Caller::Script { .. });
    if is_script && command.is(Flags::NOSCRIPT) {
        return ready(errors::NOT_IN_SCRIPT);
    }
    if let Some(refusal) = terms.actor.refusal(caller, &resolved, &argv) {
        return ready(refusal);
    }
    // As in Redis, publishing counts as writing: what is read at a snapshot tells nobody anything.
    let writes = command.is(Flags::WRITE) || command.is(Flags::PUBSUB);
    if caller == (Caller::Script { read_only: true }) && writes {
        return ready(errors::WRITE_IN_READ_ONLY_SCRIPT);
    }
    if is_script && terms.memory == Memory::Short && command.is(Flags::DENYOOM) {
        return ready(errors::OUT_OF_MEMORY);
    }
    tx.note(|| Note::Began(command.name));
    if is_script && command.is(Flags::READONLY) {
        tx.note(|| Note::Read);
    }
    match command.run {
        Run::Data(_) => {
            command.start(tx, Arguments::of_argv(argv)).unwrap_or_else(|| ready(errors::NO_PROCEDURE))
        }
        Run::Pure(run) => {
            let reply = run(&argv[1..]);
            // What commands tell of commands is long, and made anew each time.
            work::elements(script::reply_values(&reply));
            ready(reply)
        }
        Run::Container(_) => ready(introspect::all(&argv[1..])),
        Run::Script(script) => {
            let mut arguments = argv;
            arguments.0.remove(0);
            arguments.0.drain(..usize::from(resolved.subplace.is_some()));
            script::start(tx, script, Arguments::Owned(Box::new(arguments)), terms)
        }
        Run::Idempotent => idempotent::start(tx, Arguments::of_argv(argv), terms),
        Run::Acl(command) => commands_of_users::start(tx, command, argv[2..].to_vec(), terms.actor),
        // What a script has written is nowhere else before the script has ended, and a script waits for
        // nothing.
        Run::Connection(ConnectionCommand::Wait) if is_script => ready(match waits(&argv[1..2], &argv[2]) {
            Ok(()) => Reply::Integer(0),
            Err(error) => error,
        }),
        Run::Connection(ConnectionCommand::WaitAof) if is_script => {
            ready(match waits(&argv[1..3], &argv[3]) {
                Ok(()) => Reply::Array(vec![Reply::Integer(0); 2]),
                Err(error) => error,
            })
        }
        Run::Connection(_) | Run::Past => ready(match caller {
            Caller::Script { .. } => errors::NOT_IN_SCRIPT,
            Caller::Block => errors::NOT_IN_BLOCK,
        }),
    }
}

/// Whether the words of WAIT or WAITAOF are numbers, and a time.
fn waits(numbers: &[Blob], timeout: &Blob) -> Result<(), Reply> {
    for number in numbers {
        options::integer(number)?;
    }
    options::timeout_ms(timeout).map(|_| ())
}

fn ready(reply: Reply) -> ProcedureFuture {
    Box::pin(std::future::ready(Ok(reply)))
}
