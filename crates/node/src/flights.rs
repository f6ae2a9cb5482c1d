//! The requests of a connection that are on their way through the order, in a cluster of several partitions,
//! and those among them that come again.
//!
//! A request comes again, invisibly, if it ended with [`Stop::Undeclared`]: it had touched a key of a
//! partition that its words did not tell (a script), or slots have moved since it was routed. One that
//! strayed comes again with the partition that was missing, and everywhere if that is not known, or was not
//! enough some times. The first is known beforehand to be possible, and nothing is submitted behind such a
//! request. The second may happen to any; but then it happens to all that were submitted behind it, as long
//! as all of them are routed by the same slots, and so nothing overtakes it. Therefore a connection that has
//! anything on its way goes on with the slots that it has; and as soon as something of it has to come again
//! it submits nothing until the rest has ended, too.

use std::collections::VecDeque;
use std::sync::Arc;
use txn::{Outcome, PartitionId, PartitionRoute, Request, RequestId, Slots, Stop};

/// What is known of a transaction before it runs, by which it is routed.
pub trait Reach: Clone {
    /// Where it is executed, if these are the slots.
    fn route(&self, slots: &Slots) -> PartitionRoute;
    /// Whether it may touch keys that are not known before.
    fn may_stray(&self) -> bool;
    /// Whether it compares versions of keys with those that it saw before: a key has them at one partition.
    fn compares_versions(&self) -> bool;
}

/// A request that strays comes again with what was missing, so often at most; then it goes everywhere.
const WIDENED_MAX: u32 = 3;

/// A request, and what is needed to route it again.
#[derive(Clone, Debug)]
pub struct Flight<R> {
    /// The request.
    pub request: Arc<Request>,
    /// What it reaches.
    pub reach: R,
    /// It ended without having been executed, and is to be submitted again.
    again: bool,
    /// Then: the partition that it would also have needed, if that is known.
    missing: Option<PartitionId>,
}

impl<R: Reach> Flight<R> {
    /// One that begins.
    pub fn new(request: Arc<Request>, reach: R) -> Flight<R> {
        Flight { request, reach, again: false, missing: None }
    }

    /// The partition that it would also have needed, if it is known to have strayed there.
    pub fn missing(&self) -> Option<PartitionId> {
        self.missing
    }

    /// The request as it comes again, with the newest slots that are known.
    /// `is_last`: none comes again behind it.
    fn again(self, slots_version: u32, slots: &Slots, is_last: bool, all_go_anywhere: &mut bool) -> Request {
        let mut request = Request::clone(&self.request);
        request.id.attempt += 1;
        let is_old = request.slots_version < slots_version;
        // Where others come again behind it, it may not come once more.
        let missing = self.missing.filter(|_| !is_old && is_last && request.id.attempt <= WIDENED_MAX);
        request.route = match missing {
            _ if is_old && !self.reach.may_stray() => self.reach.route(slots),
            Some(missing) => {
                let known = request.route.partitions.iter().copied();
                PartitionRoute::over(known.chain([missing]), slots)
            }
            // What its words tell was not enough, or might not be; or this node does not know the newest
            // slots.
            None => PartitionRoute::everywhere(slots),
        };
        let is_everywhere = request.route.partitions.len() == usize::from(slots.of());
        *all_go_anywhere &= is_everywhere && !self.reach.compares_versions();
        request.slots_version = match all_go_anywhere {
            true => Request::ANY_SLOTS,
            // Also if it could be right under any: one before it may have to come once more.
            false => slots_version,
        };
        request
    }
}

/// Requests as they come again, in their order: with the newest slots that are known, and all through one
/// group.
pub fn again<R: Reach>(
    flights: impl IntoIterator<Item = Flight<R>>,
    slots_version: u32,
    slots: &Slots,
) -> Vec<Flight<R>> {
    let (mut home, mut all_go_anywhere) = (None, true);
    let mut flights = flights.into_iter().peekable();
    let flights = std::iter::from_fn(|| {
        let flight = flights.next()?;
        let reach = flight.reach.clone();
        let is_last = flights.peek().is_none();
        let mut request = flight.again(slots_version, slots, is_last, &mut all_go_anywhere);
        request.route.home = *home.get_or_insert(request.route.home);
        Some(Flight::new(Arc::new(request), reach))
    });
    flights.collect()
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

    /// One was tried elsewhere than in the order, and comes again: what it would also have needed, if that is
    /// known.
    pub fn add_again(&mut self, mut flight: Flight<R>, missing: Option<PartitionId>) {
        (flight.again, flight.missing) = (true, missing);
        self.0.push_back(flight);
    }

    /// One has ended like this: whether it comes again. It is forgotten otherwise.
    pub fn ended(&mut self, id: RequestId, outcome: &Outcome) -> bool {
        let is_it = |flight: &Flight<R>| flight.request.id == id;
        let Some(place) = self.0.iter().position(is_it) else {
            return false;
        };
        let flight = &mut self.0[place];
        let was_right = flight.request.slots_version == Request::ANY_SLOTS;
        flight.again = false;
        if let Err(Stop::Undeclared(missing)) = outcome {
            (flight.again, flight.missing) = (!was_right, *missing);
        }
        let again = flight.again;
        if !again {
            self.0.remove(place);
        }
        again
    }

    /// Whether this is the end of an attempt that was given up for a later one.
    pub fn is_late(&self, id: RequestId) -> bool {
        let mut flights = self.0.iter().map(|flight| flight.request.id);
        flights.any(|known| known.sequence == id.sequence && known.attempt > id.attempt)
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
    use txn::{Args, FnProcedure, Key, PartitionId, Reply, SessionId};

    /// These keys; whether it compares versions.
    #[derive(Clone)]
    struct Of(Vec<Key>, bool);

    impl Reach for Of {
        fn route(&self, slots: &Slots) -> PartitionRoute {
            PartitionRoute::of_keys(&self.0, slots)
        }
        fn may_stray(&self) -> bool {
            self.0.contains(&Key::from("strays"))
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
        let id = RequestId { session: SessionId(1), sequence, attempt: 0 };
        let procedure = Arc::new(FnProcedure::new("nothing", nothing));
        let mut request = Request::new(id, procedure, Args::new());
        let reach = Of(names.iter().map(|&name| Key::from(name)).collect(), compares);
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
        assert!(flights.ended(id(3), &Err(Stop::Undeclared(None))));
        assert!(flights.ended(id(1), &Err(Stop::Undeclared(None))));
        assert!(flights.take_again().is_empty(), "one is on its way");
        assert!(!flights.ended(id(4), &Err(Stop::abort("ERR"))));
        let again = flights.take_again().into_iter();
        let sequences: Vec<u64> = again.map(|flight| flight.request.id.sequence).collect();
        assert_eq!(sequences, [1, 3]);
        assert!(flights.take_again().is_empty());
        assert!(!flights.ended(id(1), &Ok(Reply::OK)), "it is forgotten");
    }

    fn one_again(flight: Flight<Of>, slots_version: u32, slots: &Slots) -> Flight<Of> {
        again([flight], slots_version, slots).remove(0)
    }

    #[test]
    fn what_was_routed_by_old_slots_is_routed_by_the_new_ones_and_what_was_not_goes_everywhere() {
        let old = flight(1, &["a", "b", "c"], false);
        let again = one_again(old, 7, &new_slots());
        let Request { id, route, slots_version, .. } = &*again.request;
        assert_eq!((id.attempt, *slots_version), (1, 7));
        assert_eq!(route.partitions[..], [PartitionId(2)]);
        assert!(!route.slots.is_even());

        let strayed = one_again(again, 7, &new_slots());
        let request = &strayed.request;
        assert_eq!((request.id.attempt, request.route.partitions.len()), (2, 3));
        assert_eq!(request.slots_version, Request::ANY_SLOTS);
        let id = request.id;
        let mut flights = Flights::default();
        flights.add(strayed);
        assert!(!flights.ended(id, &Err(Stop::Undeclared(None))), "once is enough");
    }

    #[test]
    fn what_may_stray_goes_everywhere_at_once_because_others_come_again_behind_it() {
        let strays = one_again(flight(1, &["strays"], false), 7, &new_slots());
        assert_eq!(strays.request.route.partitions.len(), 3);
        assert_eq!(strays.request.slots_version, Request::ANY_SLOTS);
    }

    #[test]
    fn what_strayed_comes_again_with_what_was_missing_and_everywhere_after_some_times() {
        let slots = Slots::even(6);
        let mut request = Request::clone(&flight(1, &["strays"], false).request);
        request.route = PartitionRoute::over([PartitionId(3)], &slots);
        let mut flight = Flight::new(Arc::new(request), Of(vec![Key::from("strays")], false));
        for (missing, want) in
            [(1, &[1, 3][..]), (5, &[1, 3, 5]), (0, &[0, 1, 3, 5]), (2, &[0, 1, 2, 3, 4, 5])]
        {
            let mut flights = Flights::default();
            let id = flight.request.id;
            flights.add(flight);
            assert!(flights.ended(id, &Err(Stop::Undeclared(Some(PartitionId(missing))))));
            flight = again(flights.take_again(), 0, &slots).remove(0);
            let partitions: Vec<u16> = flight.request.route.partitions.iter().map(|at| at.0).collect();
            assert_eq!(partitions, want);
        }
        assert_eq!(flight.request.slots_version, Request::ANY_SLOTS);
    }

    #[test]
    fn what_strayed_goes_everywhere_where_others_come_again_behind_it() {
        let mut flights = Flights::default();
        for sequence in 1..=2 {
            flights.add(flight(sequence, &["strays"], false));
        }
        for sequence in 1..=2 {
            assert!(flights.ended(id(sequence), &Err(Stop::Undeclared(Some(PartitionId(2))))));
        }
        let again = again(flights.take_again(), 0, &OLD);
        let counts: Vec<usize> = again.iter().map(|flight| flight.request.route.partitions.len()).collect();
        assert_eq!(counts, [3, 2]);
    }

    #[test]
    fn nothing_is_right_for_all_slots_behind_what_is_not() {
        let names = [&["strays"][..], &["a"], &["strays"]];
        let flights = (1..).zip(names).map(|(n, names)| flight(n, names, false));
        let again = again(flights, 7, &new_slots());
        let versions = again.iter().map(|flight| flight.request.slots_version);
        assert_eq!(versions.collect::<Vec<_>>(), [Request::ANY_SLOTS, 7, 7]);
        let homes = again.iter().map(|flight| flight.request.route.home);
        assert!(homes.eq([PartitionId(0); 3]), "all go through one group");
    }

    #[test]
    fn what_compares_versions_is_never_right_for_all_slots() {
        let compares = one_again(flight(1, &["a"], true), 0, &OLD);
        assert_eq!(compares.request.route.partitions.len(), 3);
        assert_eq!(compares.request.slots_version, 0);
    }
}
