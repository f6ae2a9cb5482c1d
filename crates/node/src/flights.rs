//! The requests of a connection that are on their way through the order, in a cluster of several partitions, and those among
//! them that come again.
//!
//! A request comes again, invisibly, if it ended with [`Stop::Undeclared`]: it had touched a key of a partition that its words did not
//! tell (a script), or slots have moved since it was routed. The first is known beforehand to be possible, and nothing is
//! submitted behind such a request. The second may happen to any; but then it happens to all that were submitted behind it, as
//! long as all of them are routed by the same slots, and so nothing overtakes it. Therefore a connection that has anything on
//! its way goes on with the slots that it has; and as soon as something of it has to come again it submits nothing until
//! the rest has ended, too.

use std::collections::VecDeque;
use std::sync::Arc;
use txn::{Outcome, PartitionId, PartitionRoute, Request, RequestId, Slots, Stop};

/// What is known of a transaction before it runs, by which it is routed.
pub trait Reach {
    /// Where it is executed, if these are the slots.
    fn route(&self, slots: &Slots) -> PartitionRoute;
    /// Whether it compares versions of keys with those that it saw before: a key has them at one partition.
    fn compares_versions(&self) -> bool;
}

/// A request, and what is needed to route it again.
#[derive(Clone, Debug)]
pub struct Flight<R> {
    /// The request.
    pub request: Arc<Request>,
    /// What it reaches.
    pub reach: R,
    /// It ended without having been executed, and is to be submitted again.
    again: bool,
}

impl<R: Reach> Flight<R> {
    /// One that begins.
    pub fn new(request: Arc<Request>, reach: R) -> Flight<R> {
        Flight {
            request,
            reach,
            again: false,
        }
    }

    /// The request as it comes again, with the newest slots that are known, through the group of one of its connection's.
    pub fn again(
        self,
        slots_version: u32,
        slots: &Slots,
        home: impl FnOnce(PartitionId) -> PartitionId,
    ) -> Flight<R> {
        let mut request = Request::clone(&self.request);
        request.id.attempt += 1;
        request.route = match request.slots_version < slots_version {
            true => self.reach.route(slots),
            // What its words tell was right, and not enough; or this node does not know the newest slots.
            false => PartitionRoute::everywhere(slots),
        };
        let is_everywhere = request.route.partitions.len() == usize::from(slots.of());
        request.slots_version = match is_everywhere && !self.reach.compares_versions() {
            true => Request::ANY_SLOTS,
            false => slots_version,
        };
        request.route.home = home(request.route.home);
        Flight::new(Arc::new(request), self.reach)
    }
}

/// See the [module's head](self). In the order in which they were submitted.
#[derive(Clone, Debug)]
pub struct Flights<R>(VecDeque<Flight<R>>);

impl<R> Default for Flights<R> {
    fn default() -> Flights<R> {
        Flights(VecDeque::new())
    }
}

impl<R> Flights<R> {
    /// One is submitted.
    pub fn add(&mut self, flight: Flight<R>) {
        self.0.push_back(flight);
    }

    /// One was tried elsewhere than in the order, and comes again.
    pub fn add_again(&mut self, mut flight: Flight<R>) {
        flight.again = true;
        self.0.push_back(flight);
    }

    /// One has ended like this: whether it comes again. It is forgotten otherwise.
    pub fn ended(&mut self, id: RequestId, outcome: &Outcome) -> bool {
        let is_it = |flight: &Flight<R>| flight.request.id.sequence == id.sequence;
        let Some(place) = self.0.iter().position(is_it) else {
            return false;
        };
        let flight = &mut self.0[place];
        let was_right = flight.request.slots_version == Request::ANY_SLOTS;
        flight.again = *outcome == Err(Stop::Undeclared) && !was_right;
        let again = flight.again;
        if !again {
            self.0.remove(place);
        }
        again
    }

    /// Takes out all that come again, once nothing else is on its way.
    pub fn take_again(&mut self) -> VecDeque<Flight<R>> {
        match self.0.iter().all(|flight| flight.again) {
            true => std::mem::take(&mut self.0),
            false => VecDeque::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::{Args, FnProcedure, Key, Reply, SessionId};

    struct Of(Vec<Key>, bool);

    impl Reach for Of {
        fn route(&self, slots: &Slots) -> PartitionRoute {
            PartitionRoute::of_keys(&self.0, slots)
        }
        fn compares_versions(&self) -> bool {
            self.1
        }
    }

    async fn nothing(_: txn::Tx, _: txn::Call) -> Outcome {
        Ok(Reply::OK)
    }

    const OLD: Slots = Slots::even(3);

    /// All slots are the last partition's.
    fn new_slots() -> Slots {
        Slots::of_ranges(3, [(PartitionId(2), 0, 16_383)])
    }

    fn flight(sequence: u64, names: &[&str], compares: bool) -> Flight<Of> {
        let id = RequestId {
            session: SessionId(1),
            sequence,
            attempt: 0,
        };
        let procedure = Arc::new(FnProcedure::new("nothing", nothing));
        let mut request = Request::new(id, procedure, Args::new());
        let reach = Of(
            names.iter().map(|&name| Key::from(name)).collect(),
            compares,
        );
        request.route = reach.route(&OLD);
        Flight::new(Arc::new(request), reach)
    }

    fn id(sequence: u64) -> RequestId {
        flight(sequence, &[], false).request.id
    }

    #[test]
    fn nothing_comes_again_before_all_have_ended_and_then_in_order() {
        let mut flights = Flights::default();
        for sequence in 1..=4 {
            flights.add(flight(sequence, &["a"], false));
        }
        assert!(!flights.ended(id(2), &Ok(Reply::OK)));
        assert!(flights.ended(id(3), &Err(Stop::Undeclared)));
        assert!(flights.ended(id(1), &Err(Stop::Undeclared)));
        assert!(flights.take_again().is_empty(), "one is on its way");
        assert!(!flights.ended(id(4), &Err(Stop::abort("ERR"))));
        let again = flights.take_again().into_iter();
        let sequences: Vec<u64> = again.map(|flight| flight.request.id.sequence).collect();
        assert_eq!(sequences, [1, 3]);
        assert!(flights.take_again().is_empty());
        assert!(!flights.ended(id(1), &Ok(Reply::OK)), "it is forgotten");
    }

    #[test]
    fn what_was_routed_by_old_slots_is_routed_by_the_new_ones_and_what_was_not_goes_everywhere() {
        let home = |home: PartitionId| home;
        let old = flight(1, &["a", "b", "c"], false);
        let again = old.again(7, &new_slots(), home);
        let Request {
            id,
            route,
            slots_version,
            ..
        } = &*again.request;
        assert_eq!((id.attempt, *slots_version), (1, 7));
        assert_eq!(route.partitions[..], [PartitionId(2)]);
        assert!(route.slots.is_same(&route.slots) && !route.slots.is_even());

        let strayed = again.again(7, &new_slots(), |_| PartitionId(1));
        let request = &strayed.request;
        assert_eq!((request.id.attempt, request.route.partitions.len()), (2, 3));
        assert_eq!(request.route.home, PartitionId(1));
        assert_eq!(request.slots_version, Request::ANY_SLOTS);
        let sequence = request.id;
        let mut flights = Flights::default();
        flights.add(strayed);
        assert!(
            !flights.ended(sequence, &Err(Stop::Undeclared)),
            "once is enough"
        );
    }

    #[test]
    fn what_compares_versions_is_never_right_for_all_slots() {
        let compares = flight(1, &["a"], true);
        let again = compares.again(0, &OLD, |home| home);
        assert_eq!(again.request.route.partitions.len(), 3);
        assert_eq!(again.request.slots_version, 0);
    }
}
