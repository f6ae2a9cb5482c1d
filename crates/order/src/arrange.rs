//! The order of an epoch's transactions at a partition (Sparkle, section 4.2.2).
//!
//! The merge gives all partitions the same sequence; each then puts its part of it into an order that lets siblings confirm each
//! other early:
//!
//! 1. read-only transactions over several partitions come first: they read what the epoch before has left;
//! 2. transactions over the same partitions stand together, as a *group*, so that each confirms the next one;
//! 3. between groups there is work that needs no sibling, while they settle: transactions of this partition only.
//!
//! ```text
//!   | read-only groups | group | single | group | single | group | single, bound || next section ...
//! ```
//!
//! The order of the groups is a function of their partitions and of nothing else: were it that of their first transactions, three
//! partitions could put the groups {0,1}, {1,2} and {0,2} in a circle. Pairs, which are the most, are ordered like the rounds of a
//! tournament: in one round every partition meets another one, so that no partition waits for a pair of others.
//!
//! # A connection's own order
//!
//! What a connection sends takes effect in the order in which it was sent, though it may be on its way at the same time. Its
//! requests are in one batch in that order, and the order above must not turn it round at any partition, nor across
//! partitions. [`places`] sees to that when the batch is made: a request that would come before an earlier one of its connection
//! goes to the next *section* of the batch, which is arranged behind the whole of the one before; and
//! single-partition requests of a connection that has others in the section are *bound*: they come behind all its groups, at
//! every partition. (To keep such a request for the next epoch would do as well, but would leave a hole in the log's numbers,
//! by which requests are known after a failover.)

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{Group, PartitionId, Partitions, Request, SessionId};

/// Where a request stands in its epoch, beside what its partitions say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Sections follow each other whole.
    pub section: u32,
    /// It is to come behind all groups of its section, because of its connection's other requests.
    pub bound: bool,
}

/// A request of an epoch.
#[derive(Clone, Debug)]
pub struct Placed {
    /// What it is.
    pub request: Arc<Request>,
    /// Where it stands.
    pub place: Place,
}

/// A partition's requests of an epoch, in order, and where the groups among them are.
#[derive(Clone, Debug, Default)]
pub struct Arranged {
    /// The requests.
    pub requests: Vec<Arc<Request>>,
    /// The groups, in order.
    pub groups: Vec<Group>,
}

/// Where a request stands among those of its section.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Whether it writes, by how many partitions it has, by round, and by which they are.
    Group(bool, usize, u16, Partitions),
    /// Behind all groups.
    Bound,
}

fn is_multi(request: &Request) -> bool {
    request.route.partitions.len() > 1
}

/// The round of a tournament of `of` players in which two of them meet.
fn round(first: PartitionId, second: PartitionId, of: u16) -> u16 {
    // With an odd number, one of them rests in each round: as if he met one more, who stays where he is.
    let rounds = u32::from((of.max(2) - 1) | 1);
    let (first, second) = (u32::from(first.0), u32::from(second.0));
    let sum = match second == rounds {
        true => 2 * first,
        false => first + second,
    };
    (sum % rounds) as u16
}

fn rank(request: &Request) -> Rank {
    let partitions = &request.route.partitions;
    let round = match partitions[..] {
        [] | [_] => return Rank::Bound,
        [first, second] => round(first, second, request.route.of),
        _ => 0,
    };
    let writes = !request.footprint.read_only;
    Rank::Group(writes, partitions.len(), round, partitions.clone())
}

/// Puts a partition's part of an epoch into its order.
pub fn arrange(requests: Vec<Placed>) -> Arranged {
    let mut arranged = Arranged::default();
    let is_plain = |placed: &Placed| placed.place.section == 0 && !is_multi(&placed.request);
    if requests.iter().all(is_plain) {
        let requests = requests.into_iter().map(|placed| placed.request);
        arranged.requests.extend(requests);
        return arranged;
    }
    // A leader goes through its requests in order, so sections come mixed, and those of several groups one after the other.
    let mut sections: BTreeMap<u32, Vec<Placed>> = BTreeMap::new();
    for placed in requests {
        let section = sections.entry(placed.place.section).or_default();
        section.push(placed);
    }
    for (section, requests) in sections {
        arrange_section(section, requests, &mut arranged);
    }
    arranged
}

fn arrange_section(section: u32, requests: Vec<Placed>, arranged: &mut Arranged) {
    let mut groups: BTreeMap<Rank, Vec<Arc<Request>>> = BTreeMap::new();
    let (mut free, mut bound) = (Vec::new(), Vec::new());
    for Placed { request, place } in requests {
        match rank(&request) {
            Rank::Bound if place.bound => bound.push(request),
            Rank::Bound => free.push(request),
            rank => groups.entry(rank).or_default().push(request),
        }
    }
    let (count, all) = (groups.len(), free.len());
    let mut free = free.into_iter();
    for (place, (rank, members)) in groups.into_iter().enumerate() {
        arranged.groups.push(Group {
            first: arranged.requests.len(),
            members: members.len(),
            part: 2 * section + u32::from(matches!(rank, Rank::Group(true, ..))),
        });
        arranged.requests.extend(members);
        let share = all * (place + 1) / count - all * place / count;
        arranged.requests.extend(free.by_ref().take(share));
    }
    arranged.requests.extend(free);
    arranged.requests.extend(bound);
}

/// Where the requests of a batch stand, so that what each connection sent keeps its order.
pub fn places<'a>(requests: impl Iterator<Item = &'a Request>) -> Vec<Place> {
    /// A connection's requests so far.
    struct Session {
        /// The places of those of its last section.
        last: SmallVec<[usize; 1]>,
        section: u32,
        rank: Rank,
    }
    let mut sessions: BTreeMap<SessionId, Session> = BTreeMap::new();
    let mut places: Vec<Place> = Vec::new();
    for (number, request) in requests.enumerate() {
        places.push(Place::default());
        if request.id.session == SessionId::INTERNAL {
            continue;
        }
        let rank = rank(request);
        let Some(session) = sessions.get_mut(&request.id.session) else {
            let first = Session {
                last: SmallVec::from_slice(&[number]),
                section: 0,
                rank,
            };
            sessions.insert(request.id.session, first);
            continue;
        };
        if rank < session.rank {
            session.section += 1;
            session.last.clear();
        }
        session.rank = rank;
        session.last.push(number);
        let bound = session.last.len() > 1;
        for &earlier in &session.last {
            places[earlier] = Place {
                section: session.section,
                bound,
            };
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use txn::{Args, FnProcedure, Outcome, PartitionRoute, Reply, RequestId};

    async fn nothing(_: txn::Tx, _: txn::procedure::Call) -> Outcome {
        Ok(Reply::OK)
    }

    fn request(session: u64, sequence: u64, partitions: &[u16], of: u16) -> Arc<Request> {
        let id = RequestId {
            session: SessionId(session),
            sequence,
            attempt: 0,
        };
        let procedure = Arc::new(FnProcedure::new("nothing", nothing));
        let mut request = Request::new(id, procedure, Args::new());
        request.route = PartitionRoute {
            home: PartitionId(0),
            partitions: partitions.iter().copied().map(PartitionId).collect(),
            of,
        };
        Arc::new(request)
    }

    /// Requests by their session and number.
    fn names(requests: &[Arc<Request>]) -> Vec<(u64, u64)> {
        let name = |request: &Arc<Request>| (request.id.session.0, request.id.sequence);
        requests.iter().map(name).collect()
    }

    fn placed(requests: &[Arc<Request>]) -> Vec<Placed> {
        let places = places(requests.iter().map(|request| &**request));
        let both = requests.iter().cloned().zip(places);
        both.map(|(request, place)| Placed { request, place })
            .collect()
    }

    fn at(partition: u16, placed: &[Placed]) -> Arranged {
        let involved = |placed: &&Placed| {
            let partitions = &placed.request.route.partitions;
            partitions.contains(&PartitionId(partition))
        };
        arrange(placed.iter().filter(involved).cloned().collect())
    }

    #[test]
    fn every_two_players_meet_once_and_nobody_twice_in_a_round() {
        for of in 2..=9 {
            let mut seen = std::collections::BTreeSet::new();
            for second in 1..of {
                for first in 0..second {
                    let round = round(PartitionId(first), PartitionId(second), of);
                    assert!(
                        round < (of - 1) | 1,
                        "{first} and {second} of {of}: {round}"
                    );
                    assert!(seen.insert((round, first)), "{first} of {of} in {round}");
                    assert!(seen.insert((round, second)), "{second} of {of} in {round}");
                }
            }
        }
    }

    #[test]
    fn single_partition_transactions_stand_between_groups() {
        let all = [
            (1, vec![0]),
            (2, vec![0, 2]),
            (3, vec![0]),
            (4, vec![0, 1]),
            (5, vec![0]),
            (6, vec![0, 2]),
            (7, vec![0]),
        ];
        let requests = all.iter().map(|(session, on)| request(*session, 1, on, 4));
        let arranged = at(0, &placed(&requests.collect::<Vec<_>>()));
        let sessions: Vec<_> = names(&arranged.requests)
            .iter()
            .map(|name| name.0)
            .collect();
        assert_eq!(sessions, [4, 1, 3, 2, 6, 5, 7]);
        let groups = [(0, 1), (3, 2)].map(|(first, members)| Group {
            first,
            members,
            part: 1,
        });
        assert_eq!(arranged.groups, groups);
    }

    #[test]
    fn what_would_overtake_its_connection_goes_to_the_next_section() {
        // One pair of four meets before the other.
        let rounds = [[0, 1], [0, 2]].map(|[a, b]| round(PartitionId(a), PartitionId(b), 4));
        assert!(rounds[0] < rounds[1]);
        let requests = [
            request(1, 1, &[0], 4),
            request(1, 2, &[0, 1], 4),
            request(1, 3, &[0], 4),
            request(2, 1, &[0, 1], 4),
            request(2, 2, &[0, 2], 4),
            request(2, 3, &[3], 4),
            request(3, 1, &[0, 2], 4),
            request(3, 2, &[0, 1], 4),
        ];
        let places = places(requests.iter().map(|request| &**request));
        let places: Vec<_> = places
            .iter()
            .map(|place| (place.section, place.bound))
            .collect();
        let (free, bound) = (false, true);
        assert_eq!(
            places,
            [
                (0, free),
                (1, bound),
                (1, bound),
                (0, bound),
                (0, bound),
                (0, bound),
                (0, free),
                (1, free)
            ]
        );
        let arranged = at(0, &placed(&requests));
        assert_eq!(
            names(&arranged.requests),
            [(2, 1), (2, 2), (3, 1), (1, 1), (1, 2), (3, 2), (1, 3)]
        );
        let groups = arranged.groups.iter();
        let parts: Vec<_> = groups.map(|group| (group.members, group.part)).collect();
        assert_eq!(parts, [(1, 1), (2, 1), (2, 3)]);
    }

    /// Requests of some sessions over some of five partitions, as they arrive.
    fn arrivals() -> impl Strategy<Value = Vec<(u64, Vec<u16>)>> {
        let partitions = proptest::collection::btree_set(0..5u16, 1..4);
        let partitions = partitions.prop_map(|set| set.into_iter().collect());
        proptest::collection::vec((0..6u64, partitions), 0..40)
    }

    proptest! {
        /// The orders of all partitions and of all connections together have no circle, and a group is the same everywhere.
        #[test]
        fn all_orders_agree(arrivals in arrivals()) {
            let mut sequence = 0;
            let mut make = |(session, on): &(u64, Vec<u16>)| {
                sequence += 1;
                request(*session, sequence, on, 5)
            };
            let requests: Vec<_> = arrivals.iter().map(&mut make).collect();
            let placed = placed(&requests);
            let mut before = std::collections::BTreeSet::new();
            let mut groups: BTreeMap<(u32, Partitions), Vec<Vec<(u64, u64)>>> = BTreeMap::new();
            for partition in 0..5 {
                let arranged = at(partition, &placed);
                let names = names(&arranged.requests);
                before.extend(names.windows(2).map(|pair| (pair[0].1, pair[1].1)));
                for group in &arranged.groups {
                    let members = group.first..group.first + group.members;
                    let set = arranged.requests[group.first].route.partitions.clone();
                    groups.entry((group.part, set)).or_default().push(names[members].to_vec());
                }
            }
            for ((_, set), seen) in &groups {
                prop_assert_eq!(seen.len(), set.len());
                prop_assert!(seen.iter().all(|members| *members == seen[0]));
            }
            for session in 1..6 {
                let own = requests.iter().filter(|request| request.id.session.0 == session);
                let own: Vec<_> = own.map(|request| request.id.sequence).collect();
                before.extend(own.windows(2).map(|pair| (pair[0], pair[1])));
            }
            let mut left: std::collections::BTreeSet<u64> =
                requests.iter().map(|request| request.id.sequence).collect();
            while !left.is_empty() {
                let first = left.iter().copied().find(|&one| {
                    !before.iter().any(|(earlier, later)| *later == one && left.contains(earlier))
                });
                prop_assert!(first.is_some(), "a circle among {left:?}: {before:?}");
                first.map(|first| left.remove(&first));
            }
        }
    }
}
