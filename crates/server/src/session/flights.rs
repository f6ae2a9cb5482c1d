//! A connection's requests that are on their way through the order: see [`node::flights`].

use super::{Reach, Session, ThreadContext};
use txn::{Outcome, PartitionId, PartitionRoute, Reply, RequestId, Slots};

pub(super) type Flight = node::flights::Flight<Reach>;

impl node::flights::Reach for Reach {
    fn route(&self, slots: &Slots) -> PartitionRoute {
        self.involved.route(slots)
    }
    fn may_stray(&self) -> bool {
        self.strays.is_some()
    }
    fn compares_versions(&self) -> bool {
        self.watched.is_some()
    }
}

impl Session {
    /// Submits a request whose place the order must decide.
    pub(super) fn order(&mut self, thread: &mut ThreadContext<'_>, flight: Flight) {
        let request = flight.request.clone();
        thread.counters.submitted.add(1);
        let bytes: usize = request.args.iter().map(|word| word.len()).sum();
        thread.submissions.bytes += bytes;
        if request.route.of() > 1 {
            self.flights.add(flight);
        }
        thread.submissions.add(request);
    }

    /// Submits a read that was not right where it ran: what it would also have needed, if that is known.
    pub(super) fn order_again(
        &mut self,
        thread: &mut ThreadContext<'_>,
        flight: Flight,
        missing: Option<PartitionId>,
    ) {
        self.hold_for_answers();
        self.flights.add_again(flight, missing);
        self.submit_again(thread);
    }

    /// Whether a request that has ended comes again.
    pub(super) fn comes_again(
        &mut self,
        thread: &mut ThreadContext<'_>,
        id: RequestId,
        outcome: &Outcome,
    ) -> bool {
        let comes_again = self.flights.ended(id, outcome);
        if comes_again {
            self.hold_for_answers();
            self.submit_again(thread);
        }
        comes_again
    }

    /// Submits what comes again, as soon as nothing else is on its way.
    pub(super) fn submit_again(&mut self, thread: &mut ThreadContext<'_>) {
        let again = self.flights.take_again();
        if again.is_empty() {
            return;
        }
        thread.shared.runtime.refresh_routing(&mut self.routing);
        let routing = self.routing.clone();
        for flight in &again {
            let request = &flight.request;
            let (known, of) = (request.route.partitions.len(), usize::from(request.route.of()));
            // Otherwise slots have moved.
            let has_strayed = request.slots_version == routing.version && known < of;
            // Who lacks the last one goes everywhere, whichever of them its next call's words tell.
            let lacks_last = of > 2 && known + 1 == of;
            if let Some(script) = flight.reach.strays.filter(|_| has_strayed) {
                thread.strays.note(script, flight.missing().filter(|_| !lacks_last));
            }
        }
        let lost = |flight: &Flight| flight.reach.has_lost_sight(&routing);
        let (lost, again): (Vec<Flight>, Vec<Flight>) = again.into_iter().partition(lost);
        for flight in lost {
            self.ended(thread, flight.request.id, Ok(Reply::NilArray));
        }
        for flight in node::flights::again(again, routing.version, &routing.slots) {
            self.home = flight.request.route.home;
            self.order(thread, flight);
        }
    }
}
