//! Ordo, embedded: a durable transactional store inside your process.
//!
//! A transaction is an `async fn` over a [`Tx`], the *procedure*. Register it under a name, open a directory,
//! call it:
//!
//! ```
//! use ordo::{Call, Key, Ordo, Outcome, Reply, Stop, Tx};
//!
//! /// Moves an amount from one account to another, or not at all.
//! async fn transfer(mut tx: Tx, call: Call) -> Outcome {
//!     let [from, to] = [Key::from(&call[0]), Key::from(&call[1])];
//!     let amount = ordo::integer(&call[2])?;
//!     let left = balance(&mut tx, &from).await? - amount;
//!     if left < 0 {
//!         return Err(Stop::abort("insufficient funds"));
//!     }
//!     tx.put(&from, left.to_string().as_str()).await?;
//!     let sum = balance(&mut tx, &to).await? + amount;
//!     tx.put(&to, sum.to_string().as_str()).await?;
//!     Ok(Reply::Integer(sum))
//! }
//!
//! async fn balance(tx: &mut Tx, account: &Key) -> Result<i64, Stop> {
//!     match tx.get_for_update(account).await? {
//!         Some(value) => ordo::integer(&value.as_string().ok_or(Stop::abort("not an account"))?),
//!         None => Ok(0),
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path();
//! let ordo = Ordo::options().register("transfer", transfer)?.open(path)?;
//! ordo.command(["SET", "alice", "100"])?;
//! assert_eq!(ordo.call("transfer", ["alice", "bob", "30"])?, Reply::Integer(30));
//!
//! // A transaction that stops leaves nothing behind.
//! assert_eq!(ordo.call("transfer", ["alice", "bob", "500"]).unwrap_err().to_string(), "insufficient funds");
//! assert_eq!(ordo.command(["GET", "alice"])?, Reply::bulk("70"));
//!
//! // Everything that was answered is there when the directory is opened again.
//! drop(ordo);
//! let ordo = Ordo::options().register("transfer", transfer)?.open(path)?;
//! assert_eq!(ordo.command(["MGET", "alice", "bob"])?, Reply::Array(vec![Reply::bulk("70"), Reply::bulk("30")]));
//! # Ok(())
//! # }
//! ```
//!
//! # What you can rely on
//!
//! * **Strictly serializable.** Calls take effect one after another, in an order that agrees with real time,
//!   however many threads call. They *run* in parallel: the engine detects what ran out of order and runs it
//!   again.
//! * **All or nothing.** A procedure that returns [`Stop::abort`] (or panics) leaves nothing behind. One that
//!   returns a reply leaves everything, an error reply included.
//! * **Durable.** What the log holds are the calls, not their effects: at the next start they run again,
//!   behind the newest checkpoint. So register every procedure that a log may contain *before*
//!   [`Options::open`], and never reuse a name for another meaning. An answered write survives the loss of
//!   power, unless [`Options::fsync`] says that less is enough.
//!
//! # What procedures must keep
//!
//! They are deterministic: the same arguments and the same reads give the same writes and the same reply.
//! Time and chance come from [`Tx::now_ms`] and [`Tx::seed`] only. They pass every `Err` of a [`Tx`]
//! operation on with `?`, and await nothing else. They call no [`Ordo`].
//!
//! # Redis
//!
//! [`Ordo::command`] runs Redis's commands and scripts on the same records, each as a transaction too. The
//! directory is the same as that of `ordo serve`, one process at a time.

mod caller;
mod later;
mod options;

pub use later::Later;
pub use options::{OpenError, Options};
pub use server::runtime::{FsyncPolicy, RecoveryReport, RuntimeStatus};
pub use txn::procedure::NameTaken;
pub use txn::value;
pub use txn::{
    Args, Blob, Call, Entry, FnProcedure, Footprint, Intent, Key, Outcome, Procedure, ProcedureFuture,
    Registry, Reply, Request, ScanRange, Space, Stop, Tx, Value, Weight,
};

use caller::Callers;
use later::Mail;
use redis_surface::{Action, CommandTable};
use server::runtime::Runtime;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No procedure has this name.
    #[error("no procedure is registered as '{0}': register it before the call")]
    UnknownProcedure(String),
    /// The transaction stopped; nothing of it remains. The text is the procedure's own, or tells why the
    /// store could not take it (it begins with `MISCONF` then).
    #[error("{0}")]
    Aborted(String),
    /// The transaction replied with an error. What it wrote before stays.
    #[error("{0}")]
    Error(String),
    /// The command belongs to a network connection.
    #[error("{0} needs a connection: serve this directory with `ordo serve` and use a Redis client")]
    NeedsConnection(&'static str),
    /// The store does not take writes now. The text says why, and what to do.
    #[error("{0}")]
    Refused(String),
}

/// An open store. Clones are the same store; the last one to go closes it.
#[derive(Clone)]
pub struct Ordo {
    shared: Arc<Shared>,
}

struct Shared {
    // First, so that its thread ends before the runtime does.
    mail: OnceLock<Mail>,
    callers: Callers,
    runtime: Arc<Runtime>,
    registry: RwLock<Registry>,
    commands: CommandTable,
    recovery: RecoveryReport,
}

impl Ordo {
    /// Opens the store in a directory, which is made if it does not exist, with the defaults of [`Options`].
    pub fn open(path: impl AsRef<Path>) -> Result<Ordo, OpenError> {
        Ordo::options().open(path)
    }

    /// Procedures and settings for opening a store.
    pub fn options() -> Options {
        Options::default()
    }

    /// Registers a procedure of an open store. What the log already contains must be registered before
    /// [`Options::open`], so this is for names that are new.
    pub fn register<F, R>(&self, name: &str, function: F) -> Result<(), NameTaken>
    where
        F: Fn(Tx, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        let mut registry = self.shared.registry.write().unwrap_or_else(PoisonError::into_inner);
        registry.register(Arc::new(FnProcedure::new(name, function)))
    }

    /// Calls a procedure and waits for its reply, which comes when the call is durable as the [`FsyncPolicy`]
    /// means it. The calling thread does the work itself where it can. Read-only procedures run at a snapshot
    /// and wait for nobody.
    pub fn call<A: Into<Blob>>(
        &self,
        name: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Reply, CallError> {
        let procedure = self.shared.procedure(name)?;
        let args: Args = args.into_iter().collect();
        let footprint = procedure.footprint(&args);
        self.shared.callers.call(&self.shared.runtime, procedure, args, footprint)
    }

    /// Calls a procedure without waiting. The future needs no particular runtime; the call goes on if it is
    /// dropped.
    ///
    /// ```
    /// # use ordo::{Call, Ordo, Outcome, Reply, Tx};
    /// # async fn echo(_: Tx, call: Call) -> Outcome { Ok(Reply::Bulk(call[0].clone())) }
    /// # async fn example(ordo: Ordo) -> Result<(), ordo::CallError> {
    /// let first = ordo.call_async("echo", ["a"]);
    /// let second = ordo.call_async("echo", ["b"]);
    /// assert_eq!((first.await?, second.await?), (Reply::bulk("a"), Reply::bulk("b")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn call_async<A: Into<Blob>>(&self, name: &str, args: impl IntoIterator<Item = A>) -> Later {
        let procedure = match self.shared.procedure(name) {
            Ok(procedure) => procedure,
            Err(error) => return Later::ready(Err(error)),
        };
        let args: Args = args.into_iter().collect();
        let footprint = procedure.footprint(&args);
        let mail = self.shared.mail.get_or_init(|| Mail::start(&self.shared.runtime));
        mail.send(procedure, args, footprint)
    }

    /// Runs a Redis command, as a transaction, and waits for its reply. An error reply is an `Err`.
    pub fn command<A: Into<Blob>>(&self, words: impl IntoIterator<Item = A>) -> Result<Reply, CallError> {
        let argv: Args = words.into_iter().collect();
        if argv.is_empty() {
            return Err(CallError::Error("ERR a command needs a name".to_owned()));
        }
        match self.shared.commands.prepare(argv) {
            Ok(prepared) => match prepared.action {
                Action::Transaction { procedure, args, footprint } => {
                    self.shared.callers.call(&self.shared.runtime, procedure, args, footprint)
                }
                Action::Reply(reply) => reply_or_error(reply),
                Action::Connection { .. } | Action::Acl { .. } => {
                    Err(CallError::NeedsConnection(prepared.command.name))
                }
            },
            Err(reply) => reply_or_error(reply),
        }
    }

    /// Writes a checkpoint, so that the next start need not replay what is before it. Checkpoints also come
    /// by themselves.
    pub fn checkpoint(&self) -> Result<(), CallError> {
        self.shared.runtime.checkpoint().map(|_| ()).map_err(CallError::Refused)
    }

    /// What was found when the store was opened.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.shared.recovery
    }

    /// Counters and places.
    pub fn status(&self) -> RuntimeStatus {
        self.shared.runtime.status()
    }
}

impl Shared {
    fn procedure(&self, name: &str) -> Result<Arc<dyn Procedure>, CallError> {
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        registry.by_name(name).cloned().ok_or_else(|| CallError::UnknownProcedure(name.to_owned()))
    }
}

fn reply_or_error(reply: Reply) -> Result<Reply, CallError> {
    match reply {
        Reply::Error(text) => Err(CallError::Error(text.into_owned())),
        reply => Ok(reply),
    }
}

fn result_of(outcome: Outcome) -> Result<Reply, CallError> {
    match outcome {
        Ok(reply) => reply_or_error(reply),
        Err(stop) => Err(CallError::Aborted(stop.to_string())),
    }
}

/// Reads a decimal integer, the form in which Redis keeps numbers; stops the transaction if it is none.
pub fn integer(bytes: &[u8]) -> Result<i64, Stop> {
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Stop::abort(format!("'{}' is not an integer", bytes.escape_ascii())))
}
