//! Calls that nobody's thread waits for: a thread of ours submits them, as many at once as have come, and
//! completes their futures.

use crate::caller::Bell;
use crate::{CallError, result_of};
use server::runtime::{Port, ReadOutcome, Refused, Runtime};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use txn::{Args, Footprint, Procedure, Reply, Request, RequestId, Weight};

/// The reply of a call that is on its way.
#[must_use = "the call goes on without it, but nobody learns of its reply"]
pub struct Later(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    result: Option<Result<Reply, CallError>>,
    waker: Option<Waker>,
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Later {
    pub(crate) fn ready(result: Result<Reply, CallError>) -> Later {
        Later(Arc::new(Mutex::new(Slot { result: Some(result), waker: None })))
    }
}

impl Future for Later {
    type Output = Result<Reply, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn complete(slot: &Mutex<Slot>, result: Result<Reply, CallError>) {
    let waker = {
        let mut slot = lock(slot);
        slot.result = Some(result);
        slot.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

struct Letter {
    procedure: Arc<dyn Procedure>,
    args: Args,
    footprint: Footprint,
    slot: Arc<Mutex<Slot>>,
}

/// The calls' way to their thread. Dropping it ends the thread after the calls that are on their way.
pub(crate) struct Mail {
    letters: Arc<Mutex<Vec<Letter>>>,
    bell: Arc<Bell>,
    stopping: Arc<AtomicBool>,
    /// `None` if the thread or its port could not be had.
    thread: Option<JoinHandle<()>>,
}

impl Mail {
    pub fn start(runtime: &Arc<Runtime>) -> Mail {
        let letters = Arc::new(Mutex::new(Vec::new()));
        let bell = Arc::new(Bell::default());
        let stopping = Arc::new(AtomicBool::new(false));
        let ring = bell.clone();
        let thread = runtime.port(Box::new(move || ring.ring())).and_then(|port| {
            let mut carrier = Carrier {
                runtime: Arc::downgrade(runtime),
                port,
                bell: bell.clone(),
                letters: letters.clone(),
                stopping: stopping.clone(),
            };
            std::thread::Builder::new().name("ordo-calls".to_owned()).spawn(move || carrier.run()).ok()
        });
        Mail { letters, bell, stopping, thread }
    }

    pub fn send(&self, procedure: Arc<dyn Procedure>, args: Args, footprint: Footprint) -> Later {
        if self.thread.is_none() {
            let text = "the thread for asynchronous calls could not be started: raise the process's limits";
            return Later::ready(Err(CallError::Refused(text.to_owned())));
        }
        let slot = Arc::default();
        let letter = Letter { procedure, args, footprint, slot: Arc::clone(&slot) };
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
        self.bell.ring();
        Later(slot)
    }
}

impl Drop for Mail {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // It panics only where a waker does, and there is no one left to tell.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Carrier {
    runtime: Weak<Runtime>,
    port: Port,
    bell: Arc<Bell>,
    letters: Arc<Mutex<Vec<Letter>>>,
    stopping: Arc<AtomicBool>,
}

impl Carrier {
    fn run(&mut self) {
        let session = self.port.session();
        let mut sequence = 0;
        let mut to_submit: Vec<Arc<Request>> = Vec::new();
        // By sequence number.
        let mut waiting: BTreeMap<u64, Arc<Mutex<Slot>>> = BTreeMap::new();
        let mut answers = Vec::new();
        loop {
            let stopping = self.stopping.load(Ordering::SeqCst);
            let Some(runtime) = self.runtime.upgrade() else {
                return;
            };
            for letter in std::mem::take(&mut *self.letters.lock().unwrap_or_else(PoisonError::into_inner)) {
                sequence += 1;
                let Letter { procedure, args, footprint, slot } = letter;
                let at_once = footprint.read_only && footprint.weight == Weight::Light;
                let id = RequestId { session, sequence, attempt: 0 };
                let request = Arc::new(Request {
                    id,
                    slots_version: 0,
                    procedure,
                    args,
                    footprint,
                    route: txn::PartitionRoute::default(),
                    elsewhere: false,
                });
                if at_once && let ReadOutcome::Done(outcome) = runtime.read(&self.port, &request) {
                    complete(&slot, result_of(outcome));
                } else {
                    waiting.insert(sequence, slot);
                    to_submit.push(request);
                }
            }
            match runtime.submit(&self.port, &mut to_submit) {
                // Busy: the bell rings when there is room.
                Ok(()) | Err(Refused::Busy) => {}
                Err(refused) => {
                    for request in to_submit.drain(..) {
                        if let Some(slot) = waiting.remove(&request.id.sequence) {
                            complete(&slot, Err(CallError::Refused(refused.to_string())));
                        }
                    }
                }
            }
            runtime.help(&self.port);
            self.port.drain(&mut answers);
            for (id, outcome) in answers.drain(..) {
                if let Some(slot) = waiting.remove(&id.sequence) {
                    complete(&slot, result_of(outcome));
                }
            }
            if let Some(text) = runtime.halted() {
                for slot in std::mem::take(&mut waiting).into_values() {
                    complete(&slot, Err(CallError::Refused(text.to_string())));
                }
            }
            if stopping && waiting.is_empty() {
                return;
            }
            drop(runtime);
            self.bell.wait();
        }
    }
}
