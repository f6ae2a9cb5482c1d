//! A connection's reads that wait until this node knows that it may run them: strict ones, where others may
//! have acknowledged what this node has not executed yet.
//!
//! Each asks for its own partition, so the answers come in any order. The reads run in the order in which the
//! client sent them: of two, the later one must not see less than the earlier one. One that turns out to need
//! the order, or that runs on another thread, is awaited before the next one.
//!
//! Invariant: while reads wait here, nothing that was sent before them is unfinished, and nothing that was
//! sent behind them is under way.

use super::{Flight, Session, ThreadContext};
use crate::runtime::{self, ReadOutcome};
use std::collections::VecDeque;
use txn::{Outcome, RequestId, Stop, Weight};

/// How far one of them has come.
enum State {
    /// It is not known how far its partition must be.
    Asks,
    /// Its partition is far enough.
    MayRun,
    /// Over several partitions, which have a common state only in the order.
    NeedsOrder,
    /// It cannot run: why.
    Fails(Stop),
}

/// See the module's head.
#[derive(Default)]
pub(super) struct StrictReads(VecDeque<(Flight, State)>);

impl StrictReads {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One asks.
    pub(super) fn add(&mut self, flight: Flight) {
        self.0.push_back((flight, State::Asks));
    }

    /// One is to be ordered in its turn.
    pub(super) fn add_ordered(&mut self, flight: Flight) {
        self.0.push_back((flight, State::NeedsOrder));
    }

    /// One is answered. False if it does not wait here.
    fn answered(&mut self, id: RequestId, outcome: &Outcome) -> bool {
        let it = self.0.iter_mut().find(|(flight, _)| flight.request.id == id);
        let Some((_, state)) = it.filter(|(_, state)| matches!(state, State::Asks)) else {
            return false;
        };
        *state = match outcome {
            Err(Stop::Restart) => State::MayRun,
            Err(stop) => State::Fails(stop.clone()),
            Ok(_) => return false,
        };
        true
    }

    /// The first one, if it asks no more.
    fn next(&mut self) -> Option<(Flight, State)> {
        self.0.pop_front_if(|(_, state)| !matches!(state, State::Asks))
    }
}

impl Session {
    /// Whether what has arrived is an answer to a strict read. Then all run whose turn it is.
    pub(super) fn strict_read_arrived(
        &mut self,
        thread: &mut ThreadContext<'_>,
        id: RequestId,
        outcome: &Outcome,
    ) -> bool {
        let is_it = self.strict.answered(id, outcome);
        if is_it {
            self.read_in_turn(thread);
        }
        is_it
    }

    /// Runs the strict reads whose turn it is.
    pub(super) fn read_in_turn(&mut self, thread: &mut ThreadContext<'_>) {
        while !self.has_unfinished_requests()
            && let Some((flight, state)) = self.strict.next()
        {
            let id = flight.request.id;
            let outcome = match state {
                State::NeedsOrder | State::Asks => return self.order(thread, flight),
                State::Fails(stop) => Err(stop),
                State::MayRun => match self.read_now(thread, flight) {
                    Some(outcome) => outcome,
                    None => return,
                },
            };
            let outcome = match self.readonly {
                true => with_staleness(outcome, thread.shared.runtime.staleness_ms_max()),
                false => outcome,
            };
            thread.counters.snapshot_reads.add(1);
            self.ended(thread, id, outcome);
            self.note_end(thread);
        }
    }

    /// A strict read may run now. `None` if it is answered later.
    fn read_now(&mut self, thread: &mut ThreadContext<'_>, flight: Flight) -> Option<Outcome> {
        let runtime = &thread.shared.runtime;
        let request = &flight.request;
        if request.footprint.weight == Weight::Heavy {
            if runtime.read_aside(thread.port, request.clone()) {
                self.aside = Some(flight);
            } else {
                self.hold_for_answers();
                self.order(thread, flight);
            }
            return None;
        }
        match runtime.read(thread.port, request) {
            ReadOutcome::Done(Err(Stop::Undeclared(missing))) => {
                self.order_again(thread, flight, missing);
                None
            }
            ReadOutcome::Done(outcome) => Some(outcome),
            ReadOutcome::Interrupted => Some(Err(runtime::KILLED)),
            ReadOutcome::MustOrder => {
                // What follows must not overtake it.
                self.hold_for_answers();
                self.order(thread, flight);
                None
            }
        }
    }
}

/// A READONLY connection asks others only if its node is too far behind, which its error should say.
fn with_staleness(outcome: Outcome, staleness_ms_max: u64) -> Outcome {
    outcome.map_err(|stop| match &stop {
        Stop::Abort(text) if text.starts_with("CLUSTERDOWN no majority") => Stop::abort(format!(
            "{text}. (For READONLY connections, too: what this node has is more than staleness_ms_max, \
             {staleness_ms_max} ms, old)"
        )),
        _ => stop,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::Reply;

    #[test]
    fn a_readonly_connection_is_told_that_its_node_is_behind() {
        let down = "CLUSTERDOWN no majority answered in time: nothing was read; try again";
        let told = |text: &str| with_staleness(Err(Stop::abort(text.to_owned())), 500);
        let error = told(down).expect_err("an error stays one").to_string();
        assert!(error.starts_with(down), "{error}");
        assert!(error.contains("staleness_ms_max, 500 ms"), "{error}");
        assert_eq!(told("ERR other"), Err(Stop::abort("ERR other".to_owned())));
        assert_eq!(with_staleness(Ok(Reply::OK), 500), Ok(Reply::OK));
    }
}
