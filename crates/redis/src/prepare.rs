//! From the words of a command to what is to be done with them.

use crate::errors;
use crate::execute::Caller;
use crate::idempotent;
use crate::introspect;
use crate::past;
use crate::procedures;
use crate::script;
use crate::short::{self, ShortProcedure};
use crate::table::{self, AclCommand, COMMANDS, Command, ConnectionCommand, Resolved, Run};
use std::sync::Arc;
use txn::{Args, Footprint, Procedure, Reply};

/// The commands with their procedures at hand: finding one takes no map.
///
/// Cheap to make; a thread that has its own shares no reference counts with others.
pub struct CommandTable {
    /// By place in [`COMMANDS`]: the command's own procedure, or its subcommands'.
    procedures: Vec<Procedures>,
    short: Arc<dyn Procedure>,
}

struct Procedures {
    own: Option<Arc<dyn Procedure>>,
    of_subcommands: Vec<Option<Arc<dyn Procedure>>>,
}

/// A command that is ready to be done.
pub struct Prepared {
    /// Which command.
    pub command: &'static Command,
    /// What to do.
    pub action: Action,
}

/// What to do with a command.
pub enum Action {
    /// Run a transaction: a data command or a script.
    Transaction {
        /// What it does.
        procedure: Arc<dyn Procedure>,
        /// Its arguments.
        args: Args,
        /// What it touches, but for the keys. An engine that needs those asks the procedure (or makes the
        /// request by [`txn::Request::new`]); leaving them out spares the others a few allocations per
        /// command.
        footprint: Footprint,
    },
    /// Reply this, in its turn.
    Reply(Reply),
    /// Do it in a transaction that knows who acts: [`crate::acl::Acting`].
    Acl {
        /// Which.
        command: AclCommand,
    },
    /// Do it on the connection.
    Connection {
        /// Which.
        command: ConnectionCommand,
        /// The arguments after the command's name (a subcommand's name included).
        args: Args,
    },
}

impl Default for CommandTable {
    fn default() -> CommandTable {
        CommandTable::new()
    }
}

impl CommandTable {
    /// Makes the procedures of all commands.
    pub fn new() -> CommandTable {
        let procedures = COMMANDS.iter().map(|command| Procedures {
            own: procedures::of_command(command),
            of_subcommands: command.subcommands().iter().map(procedures::of_command).collect(),
        });
        CommandTable { procedures: procedures.collect(), short: Arc::new(ShortProcedure) }
    }

    /// Finds the command of `argv` (its name first), checks the number of its words, and says what to do. The
    /// error is the reply.
    #[inline]
    pub fn prepare(&self, argv: Args) -> Result<Prepared, Reply> {
        match table::resolve(&argv) {
            Ok(resolved) => Ok(self.prepare_resolved(resolved, argv)),
            Err(error) => Err(error.reply(&argv, Caller::Block)),
        }
    }

    /// [`CommandTable::prepare_resolved`] for a node that is short of memory: what its scripts may write is
    /// refused where they run.
    pub fn prepare_short(&self, resolved: Resolved, argv: Args) -> Prepared {
        if !short::decides_late(&resolved, &argv) {
            return self.prepare_resolved(resolved, argv);
        }
        let mut prepared = self.prepare_resolved(resolved, argv.clone());
        if let Action::Transaction { procedure, args, .. } = &mut prepared.action {
            (*procedure, *args) = (self.short.clone(), argv);
        }
        prepared
    }

    /// [`CommandTable::prepare`] for a command that [`table::resolve`] has found in the same words.
    pub fn prepare_resolved(&self, resolved: Resolved, argv: Args) -> Prepared {
        let Resolved { command, place, subplace } = resolved;
        let mut args = argv;
        args.0.remove(0);
        let action = match command.run {
            Run::Pure(run) => Action::Reply(run(&args)),
            // COMMAND is the only container that is a command by itself; the others' arity demands a
            // subcommand.
            Run::Container(_) => Action::Reply(introspect::all(&args)),
            Run::Connection(command) => Action::Connection { command, args },
            Run::Acl(command) => Action::Acl { command },
            Run::Data(_) | Run::Script(_) | Run::Idempotent | Run::Past => {
                let procedures = &self.procedures[place];
                let procedure = match subplace {
                    None => &procedures.own,
                    Some(subplace) => &procedures.of_subcommands[subplace],
                };
                let Some(procedure) = procedure.clone() else {
                    return Prepared { command, action: Action::Reply(errors::NO_PROCEDURE) };
                };
                let footprint = match command.run {
                    Run::Script(script) => {
                        args.0.drain(..usize::from(subplace.is_some()));
                        script::footprint(script, &args, false)
                    }
                    Run::Idempotent => match idempotent::footprint(&args, false) {
                        Ok(footprint) => footprint,
                        Err(reply) => {
                            return Prepared { command, action: Action::Reply(reply) };
                        }
                    },
                    Run::Past => match past::footprint(&args) {
                        Ok(footprint) => footprint,
                        Err(reply) => {
                            return Prepared { command, action: Action::Reply(reply) };
                        }
                    },
                    _ => command.footprint_without_keys(&args),
                };
                Action::Transaction { procedure, args, footprint }
            }
        };
        Prepared { command, action }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::Blob;

    fn prepare(words: &str) -> Result<Prepared, Reply> {
        CommandTable::new().prepare(words.split(' ').map(Blob::from).collect())
    }

    fn refused(words: &str) -> String {
        match prepare(words) {
            Err(Reply::Error(text)) => text.into_owned(),
            _ => panic!("{words} was not refused"),
        }
    }

    #[test]
    fn words_that_are_no_command_are_refused_in_redis_words() {
        assert_eq!(refused("get"), "ERR wrong number of arguments for 'get' command");
        assert_eq!(refused("SET a"), "ERR wrong number of arguments for 'set' command");
        assert_eq!(refused("config"), "ERR wrong number of arguments for 'config' command");
        assert_eq!(refused("CONFIG get"), "ERR wrong number of arguments for 'config|get' command");
        assert_eq!(refused("foo"), "ERR unknown command 'foo', with args beginning with: ");
        assert_eq!(refused("foo a b"), "ERR unknown command 'foo', with args beginning with: 'a' 'b' ");
        assert_eq!(refused("config foo"), "ERR unknown subcommand 'foo'. Try CONFIG HELP.");
        let absent = "(Ordo does not have this command of Redis: ";
        for (line, redis) in [
            ("MIGRATE a b", "ERR unknown command 'MIGRATE', with args beginning with: 'a' 'b' "),
            ("psync", "ERR unknown command 'psync', with args beginning with: "),
            ("Script Debug", "ERR unknown subcommand 'Debug'. Try SCRIPT HELP. "),
        ] {
            let told = refused(line);
            assert!(told.starts_with(&format!("{redis}{absent}")), "{told}");
            assert!(told.len() > redis.len() + absent.len() + 10, "{told} tells no reason");
        }
        let long = "x".repeat(300);
        let shown = "x".repeat(128);
        assert_eq!(
            refused(&format!("{long} {long} b")),
            format!("ERR unknown command '{shown}', with args beginning with: '{shown}' ")
        );
    }

    #[test]
    fn every_kind_is_prepared() {
        let Action::Transaction { procedure, args, footprint } = prepare("Get k").unwrap().action else {
            panic!()
        };
        assert_eq!((procedure.name(), args, footprint.read_only), ("redis.get", Args::one("k"), true));
        let keys = procedure.footprint(&Args::one("k")).keys.unwrap();
        assert_eq!((keys.reads.len(), keys.writes.len()), (1, 0));
        let Action::Transaction { procedure, .. } = prepare("object ENCODING k").unwrap().action else {
            panic!()
        };
        assert_eq!(procedure.name(), "redis.object|encoding");
        assert!(
            matches!(prepare("ping").unwrap().action, Action::Reply(Reply::Status(text)) if text == "PONG")
        );
        assert!(
            matches!(prepare("command").unwrap().action, Action::Reply(Reply::Array(all)) if all.len() > 50)
        );
        let Action::Connection { command, args } = prepare("config get x").unwrap().action else { panic!() };
        assert_eq!((command, args.len()), (ConnectionCommand::ConfigGet, 2));
        for (words, name) in [("evalsha x 0", "redis.evalsha"), ("script load x", "redis.script_load")] {
            let Action::Transaction { procedure, args, footprint } = prepare(words).unwrap().action else {
                panic!()
            };
            assert_eq!((procedure.name(), args[0].as_bytes()), (name, &b"x"[..]));
            assert_eq!((footprint.keys, footprint.read_only), (None, false));
        }
    }
}
