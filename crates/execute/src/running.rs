//! Polling procedures, and telling a witness of it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use store::digest;
use txn::{
    Access, Call, Outcome, Position, ProcedureFuture, Reply, Request, RequestName, Stop, Tx, TxContext,
};

/// Sees what is executed, before it is: where a process may die of a request, the witness knows afterwards
/// which one it was.
pub trait Witness: Send + Sync {
    /// A thread executes a part of a request: `part` is called once.
    fn see(&self, name: RequestName, request: &Request, part: &mut dyn FnMut());
}

static WITNESS: OnceLock<Box<dyn Witness>> = OnceLock::new();
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Lets a witness see whatever this process executes from now on. A process has one: returns whether it is
/// this one.
pub fn watch(witness: Box<dyn Witness>) -> bool {
    let is_first = WITNESS.set(witness).is_ok();
    if is_first {
        IS_WATCHED.store(true, Ordering::SeqCst);
    }
    is_first
}

/// Lets the witness go: it sees nothing of what is begun from now on.
pub fn watch_no_more() {
    IS_WATCHED.store(false, Ordering::SeqCst);
}

/// An incarnation that a witness sees.
struct Watched {
    witness: &'static dyn Witness,
    name: RequestName,
    request: Arc<Request>,
    future: ProcedureFuture,
}

impl Future for Watched {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Watched { witness, name, request, future } = &mut *self;
        let mut polled = Poll::Pending;
        witness.see(*name, request, &mut || polled = future.as_mut().poll(context));
        polled
    }
}

/// Executes a part of a request that is no incarnation of its procedure.
pub(crate) fn see<R>(request: &Request, context: &TxContext, part: impl FnOnce() -> R) -> R {
    let witness = WITNESS.get().filter(|_| IS_WATCHED.load(Ordering::Relaxed));
    let Some(witness) = witness else {
        return part();
    };
    let (mut part, mut result) = (Some(part), None);
    witness.see(context.name, request, &mut || result = part.take().map(|part| part()));
    result.expect("a witness lets every part happen")
}

/// Starts an incarnation of a request.
///
/// A panic before the first await counts like one after it: as an outcome.
pub(crate) fn start(request: &Arc<Request>, context: TxContext) -> Result<ProcedureFuture, Stop> {
    let witness = WITNESS.get().filter(|_| IS_WATCHED.load(Ordering::Relaxed));
    let Some(witness) = witness else {
        return start_as(Tx::of(context, request), request);
    };
    let mut started = Err(Stop::Restart);
    witness.see(context.name, request, &mut || {
        started = start_as(Tx::of(context, request), request);
    });
    let future = started?;
    Ok(Box::pin(Watched { witness: &**witness, name: context.name, request: request.clone(), future }))
}

/// The same with another handle.
pub(crate) fn start_as(tx: Tx, request: &Arc<Request>) -> Result<ProcedureFuture, Stop> {
    if request.elsewhere {
        return Ok(Box::pin(async { Ok(Reply::Nil) }));
    }
    let call = Call::new(request.clone());
    catch_unwind(AssertUnwindSafe(|| request.procedure.run(tx, call))).map_err(panicked)
}

/// Polls an incarnation once with `access` behind its `Tx`.
///
/// A panic becomes an outcome like any other: it counts only if what the incarnation had read was valid,
/// because a doomed one sees states that never were.
pub(crate) fn poll<A: Access + Any>(access: Box<A>, future: &mut ProcedureFuture) -> (Box<A>, Poll<Outcome>) {
    let (access, polled) = txn::tx::lend_to_procedure(access, || {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(Waker::noop()))))
    });
    let access = access.into_any().downcast().expect("an engine gets back the access that it lent");
    (access, polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic)))))
}

/// What the end of a transaction adds to the state digest, beside its writes.
#[inline]
pub(crate) fn outcome_term(request: &Request, position: Position, outcome: &Outcome) -> u64 {
    match outcome {
        Err(_) if request.route.partitions.len() == 1 => digest::of_error(position),
        _ => 0,
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> Stop {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Stop::abort(format!("ERR the procedure panicked, nothing was written: {message}"))
}
