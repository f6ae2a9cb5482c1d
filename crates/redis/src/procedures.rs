//! Commands as procedures, and the procedures that stand behind WATCH and expiry.
//!
//! A data command `set` is the procedure `redis.set`, a subcommand `object|encoding` is
//! `redis.object|encoding`; its arguments are the words after the name, because the log stores the
//! procedure's id anyway.

use crate::arguments::Arguments;
use crate::block::Watched;
use crate::commands::streams;
use crate::errors;
use crate::idempotent::IdempotentProcedure;
use crate::past::PastProcedure;
use crate::script;
use crate::table::{COMMANDS, Command, KeyPlaces, KeySpec, Run};
use crate::telling::{teller, telling};
use std::sync::Arc;
use txn::fragments::Operation;
use txn::mutant::{Mutant, is_active};
use txn::{
    Args, Blob, Call, Footprint, Fragments, Intent, Key, Position, Procedure, ProcedureFuture, Reply,
    Request, Stop, Tx,
};

/// A data command.
struct CommandProcedure {
    name: String,
    command: &'static Command,
}

impl Procedure for CommandProcedure {
    fn name(&self) -> &str {
        &self.name
    }
    fn footprint(&self, args: &Args) -> Footprint {
        self.command.footprint(args)
    }
    fn fragments(&self, request: &Request) -> Option<Fragments> {
        self.command.fragments(&request.args).map(|fragments| fragments.telling(teller(self.command.name)))
    }
    fn one_read<'a>(&self, args: &'a [Blob]) -> Option<(Key, Operation<'a>)> {
        self.command.one_read(args)
    }
    fn first_touched(&self, args: &[Blob]) -> Option<u64> {
        let [KeySpec { places: KeyPlaces::Range { first: 1, .. }, .. }, ..] = self.command.keys else {
            return None;
        };
        args.first().map(|word| Key::from(word).hash64())
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        match self.command.start(tx, Arguments::Call(call)) {
            Some(future) => telling(self.command.name, future),
            None => Box::pin(std::future::ready(Ok(errors::NO_PROCEDURE))),
        }
    }
}

/// The procedure of a command, if it is a data command or one of scripts.
pub(crate) fn of_command(command: &'static Command) -> Option<Arc<dyn Procedure>> {
    match command.run {
        Run::Data(_) => Some(Arc::new(CommandProcedure { name: format!("redis.{}", command.name), command })),
        Run::Script(script) => Some(script::procedure(script)),
        Run::Idempotent => Some(Arc::new(IdempotentProcedure)),
        Run::Past => Some(Arc::new(PastProcedure)),
        Run::Pure(_) | Run::Connection(_) | Run::Container(_) | Run::Acl(_) => None,
    }
}

/// The procedures of all data and script commands, subcommands included.
pub(crate) fn of_commands() -> impl Iterator<Item = Arc<dyn Procedure>> {
    COMMANDS
        .iter()
        .flat_map(|command| std::iter::once(command).chain(command.subcommands()))
        .filter_map(of_command)
}

/// Deletes those of its arguments (names of user keys) that have expired: what removes entries that nobody
/// reads.
///
/// The node submits it; it replies the number of keys it deleted. An entry that expired reads as absent
/// anyway, so whether and when this runs is never seen.
pub struct ExpireProcedure;

impl Procedure for ExpireProcedure {
    fn name(&self) -> &str {
        "redis.expire-due"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        Footprint { read_only: false, ..Footprint::of_keys(Vec::new(), args.iter().map(Key::from).collect()) }
    }
    fn run(&self, mut tx: Tx, call: Call) -> ProcedureFuture {
        let expired = Box::pin(async move {
            let deleted = expire_due(&mut tx, call.iter().map(Key::from)).await?;
            Ok(Reply::Integer(deleted))
        });
        telling("redis.expire-due", expired)
    }
}

/// Deletes those of its keys that nobody has written since they were looked at: what keeps a node below
/// `maxmemory`.
///
/// Its arguments are names of user keys, each with the version that was seen ([`EvictProcedure::words`]).
/// Replies the number of keys that it deleted.
pub struct EvictProcedure;

impl EvictProcedure {
    /// What its arguments say of a key.
    pub fn words(key: &Key, version: Position) -> [Blob; 2] {
        [key.to_blob(), Blob::new(&version.0.to_le_bytes())]
    }

    fn victims(args: &[Blob]) -> impl Iterator<Item = (Key, Position)> {
        let (pairs, _) = args.as_chunks();
        pairs.iter().filter_map(|[key, version]| {
            let version = version.as_bytes().try_into().ok()?;
            Some((Key::from(key), Position(u64::from_le_bytes(version))))
        })
    }
}

impl Procedure for EvictProcedure {
    fn name(&self) -> &str {
        "redis.evict"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        let keys = EvictProcedure::victims(args).map(|(key, _)| key).collect();
        Footprint { read_only: false, ..Footprint::of_keys(Vec::new(), keys) }
    }
    fn run(&self, mut tx: Tx, call: Call) -> ProcedureFuture {
        let evicted = Box::pin(async move {
            let mut deleted = 0;
            for (key, version) in EvictProcedure::victims(&call) {
                let read = tx.read(&key, Intent::Update).await?;
                // What has expired reads as absent, and may go as well.
                if read.version == version {
                    tx.delete(&key).await?;
                    deleted += 1;
                }
            }
            Ok(Reply::Integer(deleted))
        });
        telling("redis.evict", evicted)
    }
}

/// Deletes those of its arguments (names of the system's keys) that have expired: replies of
/// [`crate::idempotent`].
///
/// As [`ExpireProcedure`], but its reply counts nothing: INFO's number of expired keys is one of users' keys.
pub struct ExpireSystemProcedure;

impl Procedure for ExpireSystemProcedure {
    fn name(&self) -> &str {
        "redis.expire-system-due"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        Footprint {
            read_only: false,
            ..Footprint::of_keys(Vec::new(), args.iter().map(|name| Key::system(name)).collect())
        }
    }
    fn run(&self, mut tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(async move {
            expire_due(&mut tx, call.iter().map(|name| Key::system(name))).await?;
            Ok(Reply::OK)
        })
    }
}

/// Deletes those keys that have expired, and returns how many.
async fn expire_due(tx: &mut Tx, keys: impl Iterator<Item = Key>) -> Result<i64, Stop> {
    let mut deleted = 0;
    for key in keys {
        let read = tx.read(&key, Intent::Update).await?;
        // `Tx` shows an expired entry as absent. A key that is absent in truth is deleted in vain, which
        // happens only if a client deleted it since the node looked; then its version would move, so that is
        // avoided where it shows.
        let expired = read.entry.is_none() || is_active(Mutant::ExpireUnasked);
        if expired && read.version != Position::NONE {
            tx.delete(&key).await?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// Replies what WATCH remembers of its arguments (names of user keys): see [`Watched`].
///
/// Read-only, so that WATCH is answered from a final snapshot.
pub struct WatchProcedure;

impl Procedure for WatchProcedure {
    fn name(&self) -> &str {
        "redis.watch"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        Footprint::of_keys(args.iter().map(Key::from).collect(), Vec::new())
    }
    fn run(&self, mut tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(async move {
            let mut states = Vec::with_capacity(call.len());
            for name in call.iter() {
                let read = tx.read(&Key::from(name), Intent::Read).await?;
                states.push(Watched::of(Key::from(name), &read).to_reply());
            }
            Ok(Reply::Array(states))
        })
    }
}

/// Replies the last ids of the streams at its arguments (names of user keys): what `$` stands for while a
/// client waits.
pub struct StreamEndsProcedure;

impl Procedure for StreamEndsProcedure {
    fn name(&self) -> &str {
        "redis.stream-ends"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        Footprint::of_keys(args.iter().map(Key::from).collect(), Vec::new())
    }
    fn run(&self, mut tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(async move { streams::ends(&mut tx, &call).await })
    }
}
