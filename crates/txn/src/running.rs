//! Polling procedures.

use crate::tx::lend_to_procedure;
use crate::{Access, Call, Outcome, ProcedureFuture, Reply, Request, Stop, Tx};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Starts an incarnation of a request.
///
/// A panic before the first await counts like one after it: as an outcome.
pub fn start_as(tx: Tx, request: &Arc<Request>) -> Result<ProcedureFuture, Stop> {
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
pub fn poll<A: Access + Any>(access: Box<A>, future: &mut ProcedureFuture) -> (Box<A>, Poll<Outcome>) {
    let (access, polled) = lend_to_procedure(access, || {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(Waker::noop()))))
    });
    let access = access.into_any().downcast().expect("whoever polls gets back the access that it lent");
    (access, polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic)))))
}

fn panicked(panic: Box<dyn Any + Send>) -> Stop {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Stop::abort(format!("ERR the procedure panicked, nothing was written: {message}"))
}
