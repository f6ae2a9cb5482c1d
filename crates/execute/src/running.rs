//! Starting procedures, and telling a witness of it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use store::digest;
pub(crate) use txn::running::{poll, start_as};
use txn::{Outcome, Position, ProcedureFuture, Request, RequestName, Stop, Tx, TxContext};

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

/// What the end of a transaction adds to the state digest, beside its writes.
#[inline]
pub(crate) fn outcome_term(request: &Request, position: Position, outcome: &Outcome) -> u64 {
    match outcome {
        Err(_) if request.route.partitions.len() == 1 => digest::of_error(position),
        _ => 0,
    }
}
