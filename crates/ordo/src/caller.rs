//! Calls that their thread waits for: it takes a port out of a pool and drives its call itself, as an I/O
//! thread would.

use crate::{CallError, result_of};
use server::runtime::{Answer, Port, ReadOutcome, Refused, Runtime};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use txn::{Args, Footprint, Procedure, Reply, Request, RequestId, SessionId, Weight};

/// How many threads can be within a call at once; more wait for their turn.
pub(crate) const CALLERS_MAX: usize = 32;

/// Rung when something has happened at a port.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ring.notify_one();
    }

    /// Waits until it is rung, if it was not since the last wait.
    pub fn wait(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            rung = self.ring.wait(rung).unwrap_or_else(PoisonError::into_inner);
        }
        *rung = false;
    }
}

/// A port with a session: what one caller needs.
struct Caller {
    port: Port,
    session: SessionId,
    sequence: u64,
    bell: Arc<Bell>,
    submitted: Vec<Arc<Request>>,
    answers: Vec<Answer>,
}

impl Caller {
    fn call(
        &mut self,
        runtime: &Runtime,
        procedure: Arc<dyn Procedure>,
        args: Args,
        footprint: Footprint,
    ) -> Result<Reply, CallError> {
        self.sequence += 1;
        let id = RequestId { session: self.session, sequence: self.sequence, attempt: 0 };
        let at_once = footprint.read_only && footprint.weight == Weight::Light;
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
            return result_of(outcome);
        }
        self.submitted.push(request);
        loop {
            match runtime.submit(&self.port, &mut self.submitted) {
                Ok(()) => break,
                Err(Refused::Busy) => {
                    runtime.help(&self.port);
                    self.bell.wait();
                }
                Err(refused) => {
                    self.submitted.clear();
                    return Err(CallError::Refused(refused.to_string()));
                }
            }
        }
        loop {
            runtime.help(&self.port);
            self.port.drain(&mut self.answers);
            if let Some((_, outcome)) = self.answers.drain(..).find(|(answered, _)| *answered == id) {
                return result_of(outcome);
            }
            if let Some(text) = runtime.halted() {
                return Err(CallError::Refused(text.to_string()));
            }
            self.bell.wait();
        }
    }
}

/// The pool of callers.
#[derive(Default)]
pub(crate) struct Callers {
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Caller>,
    /// Callers that exist, idle or not.
    count: usize,
}

impl Callers {
    pub fn call(
        &self,
        runtime: &Arc<Runtime>,
        procedure: Arc<dyn Procedure>,
        args: Args,
        footprint: Footprint,
    ) -> Result<Reply, CallError> {
        let mut caller = self.take(runtime);
        let result = caller.call(runtime, procedure, args, footprint);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).idle.push(caller);
        self.returned.notify_one();
        result
    }

    fn take(&self, runtime: &Arc<Runtime>) -> Caller {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(caller) = state.idle.pop() {
                return caller;
            }
            if state.count < CALLERS_MAX {
                let bell = Arc::new(Bell::default());
                let ring = bell.clone();
                if let Some(port) = runtime.port(Box::new(move || ring.ring())) {
                    state.count += 1;
                    let session = port.session();
                    return Caller {
                        port,
                        session,
                        sequence: 0,
                        bell,
                        submitted: Vec::new(),
                        answers: Vec::new(),
                    };
                }
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
