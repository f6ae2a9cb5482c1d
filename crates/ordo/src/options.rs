//! How a store is opened.

use crate::caller::{CALLERS_MAX, Callers};
use crate::{Call, FnProcedure, FsyncPolicy, Ordo, Outcome, Shared, Tx};
use redis_surface::CommandTable;
use server::runtime::{Runtime, RuntimeOptions, StartError};
use std::path::Path;
use std::sync::{Arc, OnceLock, RwLock};
use txn::procedure::NameTaken;
use txn::{Args, Footprint, Procedure, ProcedureFuture, Registry};

/// Procedures and settings for opening a store: see [`Ordo::options`].
#[derive(Clone, Default)]
pub struct Options {
    procedures: Registry,
    fsync: FsyncPolicy,
    workers: Option<usize>,
    checkpoint_bytes: Option<u64>,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A registered name is one of Ordo's own.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// The directory cannot be used, or what is in it cannot be recovered.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Options {
    /// Registers a procedure that reads and writes.
    pub fn register<F, R>(self, name: &str, function: F) -> Result<Options, NameTaken>
    where
        F: Fn(Tx, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        self.register_procedure(Arc::new(FnProcedure::new(name, function)))
    }

    /// Registers a procedure that only reads: its calls run at a snapshot, and are not logged. Its writes are
    /// refused.
    pub fn register_read_only<F, R>(self, name: &str, function: F) -> Result<Options, NameTaken>
    where
        F: Fn(Tx, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        self.register_procedure(Arc::new(ReadOnly(FnProcedure::new(name, function))))
    }

    /// Registers any procedure.
    pub fn register_procedure(mut self, procedure: Arc<dyn Procedure>) -> Result<Options, NameTaken> {
        self.procedures.register(procedure)?;
        Ok(self)
    }

    /// When a write counts as durable, and its call is answered. By default ([`FsyncPolicy::Always`], as
    /// `ordo serve` has it) once it is on the disk, so that it survives the loss of power.
    pub fn fsync(mut self, policy: FsyncPolicy) -> Options {
        self.fsync = policy;
        self
    }

    /// Threads that run scripts and what callers do not run themselves: one for each processor by default.
    pub fn workers(mut self, count: usize) -> Options {
        self.workers = Some(count);
        self
    }

    /// A checkpoint is taken after as many bytes of log as the last one has, and this many at least: 16 MiB
    /// by default, 0 for never.
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Options {
        self.checkpoint_bytes = Some(bytes);
        self
    }

    /// Opens the store in a directory, which is made if it does not exist, and replays its log.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Ordo, OpenError> {
        let mut registry = self.procedures;
        redis_surface::register(&mut registry)?;
        let mut options = RuntimeOptions::new(path.as_ref());
        options.fsync = self.fsync;
        options.workers = self.workers.unwrap_or(options.workers);
        options.checkpoint_bytes = self.checkpoint_bytes.unwrap_or(options.checkpoint_bytes);
        options.expire = Some(Arc::new(redis_surface::ExpireProcedure));
        options.expire_system = Some(Arc::new(redis_surface::ExpireSystemProcedure));
        // One more for the thread of the calls that nobody waits for.
        options.ports = CALLERS_MAX + 1;
        let (runtime, recovery) = Runtime::start(options, &registry)?;
        Ok(Ordo {
            shared: Arc::new(Shared {
                mail: OnceLock::new(),
                callers: Callers::default(),
                runtime,
                registry: RwLock::new(registry),
                commands: CommandTable::new(),
                recovery,
            }),
        })
    }
}

/// A procedure whose calls need no place in the order.
struct ReadOnly<P>(P);

impl<P: Procedure> Procedure for ReadOnly<P> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn footprint(&self, _: &Args) -> Footprint {
        Footprint::read_only()
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        self.0.run(tx, call)
    }
}
