//! Procedures and their registry.

use crate::blob::Blob;
use crate::clock::{CORRECT_CLOCK, CorrectClock};
use crate::fragments::{Fragments, Operation};
use crate::hash::{FixedMap, hash_bytes};
use crate::key::Key;
use crate::reply::Outcome;
use crate::request::{Args, Footprint, Request};
use crate::tx::Tx;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

/// A running procedure. It owns all that it needs, so that it can be parked and moved between threads.
pub type ProcedureFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What a transaction does. Deterministic: the same arguments and the same reads give the same writes and
/// reply.
pub trait Procedure: Send + Sync + 'static {
    /// The name under which the log refers to the procedure. Never reuse a name for another meaning.
    fn name(&self) -> &str;

    /// What a call touches, as far as the arguments tell.
    fn footprint(&self, _args: &Args) -> Footprint {
        Footprint::unknown()
    }

    /// The call that a request asks for as operations on one record each, if it is declared so: then
    /// [`Procedure::run`] does the same ([`crate::fragments`]).
    fn fragments(&self, _request: &Request) -> Option<Fragments> {
        None
    }

    /// The key and the operation of a call that does nothing but to read one record. [`Procedure::run`] does
    /// the same; a reader at a snapshot, which never parks a call, needs no future then.
    fn one_read<'a>(&self, _args: &'a [Blob]) -> Option<(Key, Operation<'a>)> {
        None
    }

    /// The hash of the users' key that a call touches before any other, where the arguments tell it at a
    /// glance: an engine may load the records of several calls together.
    fn first_touched(&self, _args: &[Blob]) -> Option<u64> {
        None
    }

    /// The moment of the past at which a call reads, if it does not read the present: milliseconds since
    /// 1970, or, if that is negative, so many before now. Such a call only reads, takes long, and is never
    /// ordered.
    fn moment(&self, _args: &[Blob]) -> Option<i64> {
        None
    }

    /// Starts one incarnation.
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture;
}

/// One call of a procedure: the request that asked for it, with its arguments in reach.
#[derive(Clone)]
pub struct Call(Arc<Request>);

impl Call {
    /// The call that a request asks for.
    pub fn new(request: Arc<Request>) -> Call {
        Call(request)
    }
    /// The request.
    pub fn request(&self) -> &Arc<Request> {
        &self.0
    }
}
impl Deref for Call {
    type Target = Args;
    fn deref(&self) -> &Args {
        &self.0.args
    }
}

/// The name of a procedure in four bytes, for the log: a hash of the name, checked for collisions at
/// registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcedureId(pub u32);

impl ProcedureId {
    /// The id of a name.
    pub fn of(name: &str) -> ProcedureId {
        let hash = hash_bytes(name.as_bytes());
        ProcedureId((hash ^ (hash >> 32)) as u32)
    }
}

/// A procedure made of a name and an async function.
pub struct FnProcedure<F> {
    name: String,
    function: F,
}

impl<F, R> FnProcedure<F>
where
    F: Fn(Tx, Call) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    /// Wraps `function`, whose keys become known only while it runs.
    pub fn new(name: impl Into<String>, function: F) -> FnProcedure<F> {
        FnProcedure { name: name.into(), function }
    }
}

impl<F, R> Procedure for FnProcedure<F>
where
    F: Fn(Tx, Call) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin((self.function)(tx, call))
    }
}

/// The procedures that a node knows, by name and by id.
#[derive(Clone)]
pub struct Registry {
    by_id: FixedMap<u32, Arc<dyn Procedure>>,
}

/// Two procedures of one registry whose names have the same id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("procedure '{new}' collides with the registered '{old}': give one of them another name")]
pub struct NameTaken {
    /// The name that was registered first.
    pub old: String,
    /// The name that was refused.
    pub new: String,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// A registry with what nodes themselves put into logs, and nothing else.
    pub fn new() -> Registry {
        let mut by_id: FixedMap<u32, Arc<dyn Procedure>> = FixedMap::default();
        by_id.insert(ProcedureId::of(CORRECT_CLOCK).0, Arc::new(CorrectClock));
        Registry { by_id }
    }
    /// Adds a procedure.
    pub fn register(&mut self, procedure: Arc<dyn Procedure>) -> Result<(), NameTaken> {
        let id = ProcedureId::of(procedure.name());
        if let Some(old) = self.by_id.get(&id.0) {
            return Err(NameTaken { old: old.name().to_owned(), new: procedure.name().to_owned() });
        }
        self.by_id.insert(id.0, procedure);
        Ok(())
    }
    /// The procedure with an id.
    pub fn by_id(&self, id: ProcedureId) -> Option<&Arc<dyn Procedure>> {
        self.by_id.get(&id.0)
    }
    /// The procedure with a name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<dyn Procedure>> {
        self.by_id(ProcedureId::of(name)).filter(|procedure| procedure.name() == name)
    }
}
