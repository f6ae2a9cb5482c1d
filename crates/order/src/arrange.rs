//! The order of an epoch's transactions at a partition (Sparkle, section 4.2.2).
//!
//! The merge gives all partitions the same sequence; each then puts its part of it into an order that lets
//! siblings confirm each other early:
//!
//! 1. read-only transactions over several partitions come first in their section: in the first one they read
//!    what the epoch before has left (the paper has them run without speculation; here they speculate like
//!    all others);
//! 2. transactions over the same partitions stand together, as a *group*, so that each confirms the next one;
//! 3. between groups there is work that needs no sibling, while they settle: transactions of this partition
//!    only, and more of them where there are more siblings to wait for.
//!
//! ```text
//!   | read-only groups | group | single | group | single | group | single, bound || next section ...
//! ```
//!
//! The order of the groups is a function of their partitions and of nothing else: were it that of their first
//! transactions, three partitions could put the groups {0,1}, {1,2} and {0,2} in a circle. A group waits for
//! those before it at each of its partitions, and they for others before them, through the whole cluster:
//! such chains must be short, so groups are ordered in rounds, and those of one round have few partitions in
//! common. Pairs, which are the most, are ordered like the rounds of a tournament: in one round every
//! partition meets another one, so that no partition waits for a pair of others. Of more partitions, those
//! are of one round whose numbers have the same sum. (In the order {0,1,2}, {0,1,3}, ... chains are twice as
//! long, and 40 nodes of the scale model execute 7.7 million transactions of TPC-C in a second; so they
//! execute 12.8 million.)
//!
//! [`arrange_all`] also knows the merged sequence as it is ([`Scheduling::Merged`]), which Sparkle's Fig. 9
//! compares with: there a group is what happens to stand together at all its partitions, which mostly is one
//! transaction.
//!
//! # A connection's own order
//!
//! What a connection sends takes effect in the order in which it was sent, though it may be on its way at the
//! same time. Its requests are in one batch in that order, and the order above must not turn it round at any
//! partition, nor across partitions. [`places`] sees to that when the batch is made: a request that would
//! come before an earlier one of its connection goes to the next *section* of the batch, which is arranged
//! behind the whole of the one before; and single-partition requests of a connection that has others in the
//! section are *bound*: they come behind all its groups, at every partition. (To keep such a request for the
//! next epoch would do as well, but would leave a hole in the log's numbers, by which requests are known
//! after a failover.)

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{Group, PartitionId, Partitions, Request, SessionId};

/// Where a request stands in its epoch, beside what its partitions say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Sections follow each other whole.
    pub section: u32,
    /// It is to come behind all groups of its section, because of its connection's other requests.
    pub bound: bool,
    /// It runs at several partitions, and writes at none. What a request says of itself may differ from
    /// replica to replica: a client can tell more of it than its words do.
    pub reads_only: bool,
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

/// The round of more than two partitions out of so many. Two of one round differ in two members: with one
/// only, their sums would.
fn wide_round(partitions: &Partitions, of: u16) -> u16 {
    let sum: u32 = partitions.iter().map(|at| u32::from(at.0)).sum();
    (sum % u32::from(of.max(1))) as u16
}

fn rank(request: &Request, reads_only: bool) -> Rank {
    let partitions = &request.route.partitions;
    let round = match partitions[..] {
        [] | [_] => return Rank::Bound,
        [first, second] => round(first, second, request.route.of()),
        _ => wide_round(partitions, request.route.of()),
    };
    Rank::Group(!reads_only, partitions.len(), round, partitions.clone())
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
    // A leader goes through its requests in order, so sections come mixed, and those of several groups one
    // after the other.
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
        let reads_only = match is_active(Mutant::RankByFootprint) {
            true => request.footprint.read_only,
            false => place.reads_only,
        };
        match rank(&request, reads_only) {
            Rank::Bound if place.bound => bound.push(request),
            Rank::Bound => free.push(request),
            rank => groups.entry(rank).or_default().push(request),
        }
    }
    // Behind a group as much as it has siblings: the more, the later the last of them.
    let siblings = |rank: &Rank| match rank {
        Rank::Group(_, partitions, ..) => partitions - 1,
        Rank::Bound => 0,
    };
    let (all, of_all) = (free.len(), groups.keys().map(siblings).sum::<usize>());
    let (mut free, mut so_far) = (free.into_iter(), 0);
    for (rank, members) in groups {
        arranged.groups.push(Group {
            first: arranged.requests.len(),
            members: members.len(),
            part: 2 * section + u32::from(matches!(rank, Rank::Group(true, ..))),
        });
        arranged.requests.extend(members);
        let before = so_far;
        so_far += siblings(&rank);
        let share = all * so_far / of_all - all * before / of_all;
        arranged.requests.extend(free.by_ref().take(share));
    }
    arranged.requests.extend(free);
    arranged.requests.extend(bound);
}

/// How the transactions of an epoch are put into an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// As they were merged.
    Merged,
    /// As [`arrange`] puts them.
    #[default]
    Grouped,
}

/// Puts an epoch into the orders of all its partitions, from the first one to the last.
///
/// One partition's order follows from its own part of the sequence if it is [`Scheduling::Grouped`]: that is
/// [`arrange`]'s. Where groups are what stands together by chance, all must be looked at: two transactions
/// over the same partitions are in one group only if nothing stands between them at any of these. Each such
/// group is a part of the epoch by itself.
pub fn arrange_all(sequence: &[Placed], partitions: u16, scheduling: Scheduling) -> Vec<Arranged> {
    match scheduling {
        Scheduling::Merged => merged(sequence, partitions),
        Scheduling::Grouped => {
            let mut parts = vec![Vec::new(); usize::from(partitions)];
            for placed in sequence {
                for at in &placed.request.route.partitions {
                    parts[usize::from(at.0)].push(placed.clone());
                }
            }
            parts.into_iter().map(arrange).collect()
        }
    }
}

fn merged(sequence: &[Placed], partitions: u16) -> Vec<Arranged> {
    let mut arranged = vec![Arranged::default(); usize::from(partitions)];
    // The part of the epoch with which each partition's order ends, if that can go on.
    let mut ends: Vec<Option<u32>> = vec![None; usize::from(partitions)];
    // The partitions of each part.
    let mut parts: Vec<&Partitions> = Vec::new();
    for Placed { request, .. } in sequence {
        let here = &request.route.partitions;
        let mut part = None;
        if is_multi(request) {
            let last = ends[usize::from(here[0].0)].filter(|&last| {
                let is_last = |at: &PartitionId| ends[usize::from(at.0)] == Some(last);
                parts[last as usize] == here && here.iter().all(is_last)
            });
            part = last.or_else(|| {
                parts.push(here);
                Some(parts.len() as u32 - 1)
            });
        }
        for at in here {
            let at = usize::from(at.0);
            let Arranged { requests, groups } = &mut arranged[at];
            if let Some(part) = part {
                match groups.last_mut().filter(|group| group.part == part) {
                    Some(group) => group.members += 1,
                    None => groups.push(Group { first: requests.len(), members: 1, part }),
                }
            }
            ends[at] = part;
            requests.push(request.clone());
        }
    }
    arranged
}

/// Where the requests of a batch stand, so that what each connection sent keeps its order.
pub fn places<'a>(requests: impl Iterator<Item = &'a Request> + Clone) -> Vec<Place> {
    /// A connection's requests so far.
    struct Session {
        /// The place of the first of its last section.
        first: usize,
        section: u32,
        rank: Rank,
    }
    if requests.clone().all(|request| request.route.of() <= 1) {
        // No epoch has anything to put between them.
        return requests.map(|_| Place::default()).collect();
    }
    let mut sessions: BTreeMap<SessionId, Session> = BTreeMap::new();
    let mut places: Vec<Place> = Vec::new();
    for (number, request) in requests.enumerate() {
        let reads_only = is_multi(request) && request.footprint.read_only;
        places.push(Place { reads_only, ..Place::default() });
        if request.id.session == SessionId::INTERNAL {
            continue;
        }
        let rank = rank(request, reads_only);
        match sessions.entry(request.id.session) {
            Entry::Vacant(unknown) => {
                unknown.insert(Session { first: number, section: 0, rank });
            }
            Entry::Occupied(mut known) => {
                let session = known.get_mut();
                let begins = rank < session.rank;
                session.rank = rank;
                if begins {
                    session.section += 1;
                    session.first = number;
                }
                places[session.first].bound |= !begins;
                places[number] = Place { section: session.section, bound: !begins, reads_only };
            }
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
        let id = RequestId { session: SessionId(session), sequence, attempt: 0 };
        let procedure = Arc::new(FnProcedure::new("nothing", nothing));
        let mut request = Request::new(id, procedure, Args::new());
        request.route = PartitionRoute {
            home: PartitionId(0),
            partitions: partitions.iter().copied().map(PartitionId).collect(),
            slots: txn::Slots::even(of),
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
        both.map(|(request, place)| Placed { request, place }).collect()
    }

    fn at(partition: u16, placed: &[Placed]) -> Arranged {
        let all = arrange_all(placed, 5, Scheduling::Grouped);
        all[usize::from(partition)].clone()
    }

    #[test]
    fn every_two_players_meet_once_and_nobody_twice_in_a_round() {
        for of in 2..=9 {
            let mut seen = std::collections::BTreeSet::new();
            for second in 1..of {
                for first in 0..second {
                    let round = round(PartitionId(first), PartitionId(second), of);
                    assert!(round < (of - 1) | 1, "{first} and {second} of {of}: {round}");
                    assert!(seen.insert((round, first)), "{first} of {of} in {round}");
                    assert!(seen.insert((round, second)), "{second} of {of} in {round}");
                }
            }
        }
    }

    #[test]
    fn chains_of_triples_through_the_cluster_are_short() {
        let of = 40;
        let drawn = |n: u64| (txn::hash::mix(n) % u64::from(of)) as u16;
        let triples = (0..300u64).filter_map(|n| {
            let mut triple = [3 * n, 3 * n + 1, 3 * n + 2].map(drawn);
            triple.sort_unstable();
            (triple[0] < triple[1] && triple[1] < triple[2]).then_some(triple)
        });
        let triples: Vec<[u16; 3]> = triples.collect();
        let longest = |mut triples: Vec<[u16; 3]>, round: &dyn Fn(&[u16; 3]) -> u16| {
            triples.sort_by_key(|triple| (round(triple), *triple));
            let mut chains = vec![0; usize::from(of)];
            for triple in &triples {
                let before = triple.iter().map(|&at| chains[usize::from(at)]).max();
                for &at in triple {
                    chains[usize::from(at)] = before.unwrap_or(0) + 1;
                }
            }
            chains.into_iter().max().unwrap_or(0)
        };
        let by_round = longest(triples.clone(), &|triple| {
            let triple = triple.iter().copied().map(PartitionId).collect();
            wide_round(&triple, of)
        });
        let by_name = longest(triples, &|_| 0);
        assert!(2 * by_round < by_name, "{by_round} and {by_name}");
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
        let sessions: Vec<_> = names(&arranged.requests).iter().map(|name| name.0).collect();
        assert_eq!(sessions, [4, 1, 3, 2, 6, 5, 7]);
        let groups = [(0, 1), (3, 2)].map(|(first, members)| Group { first, members, part: 1 });
        assert_eq!(arranged.groups, groups);
    }

    #[test]
    fn more_of_them_stand_behind_more_siblings() {
        let all = [vec![0, 1, 2, 3], vec![0, 1]];
        let all = all.into_iter().chain(std::iter::repeat_n(vec![0], 8));
        let requests = all.zip(1..).map(|(on, n)| request(n, 1, &on, 4));
        let arranged = at(0, &placed(&requests.collect::<Vec<_>>()));
        let groups = arranged.groups.iter();
        let places: Vec<_> = groups.map(|group| group.first).collect();
        // Two behind the pair, the six others behind the four.
        assert_eq!((places, arranged.requests.len()), (vec![0, 3], 10));
    }

    #[test]
    fn merged_groups_are_what_stands_together_everywhere() {
        let all = [
            vec![0, 1],
            vec![0, 1],
            vec![2],
            vec![0, 1],
            // Stands between at one of the partitions.
            vec![1],
            vec![0, 1],
            vec![0, 2],
            vec![0, 2],
        ];
        let requests = all.iter().zip(1..).map(|(on, n)| request(n, 1, on, 3));
        let sequence = placed(&requests.collect::<Vec<_>>());
        let arranged = arrange_all(&sequence, 3, Scheduling::Merged);
        let sessions = |at: usize| -> Vec<u64> {
            let names = names(&arranged[at].requests);
            names.iter().map(|name| name.0).collect()
        };
        assert_eq!(sessions(0), [1, 2, 4, 6, 7, 8]);
        assert_eq!(sessions(1), [1, 2, 4, 5, 6]);
        assert_eq!(sessions(2), [3, 7, 8]);
        let groups = |list: &[(usize, usize, u32)]| -> Vec<Group> {
            let group = |&(first, members, part)| Group { first, members, part };
            list.iter().map(group).collect()
        };
        assert_eq!(arranged[0].groups, groups(&[(0, 3, 0), (3, 1, 1), (4, 2, 2)]));
        assert_eq!(arranged[1].groups, groups(&[(0, 3, 0), (4, 1, 1)]));
        assert_eq!(arranged[2].groups, groups(&[(1, 2, 2)]));
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
        let places: Vec<_> = places.iter().map(|place| (place.section, place.bound)).collect();
        let (free, bound) = (false, true);
        assert_eq!(
            places,
            [(0, free), (1, bound), (1, bound), (0, bound), (0, bound), (0, bound), (0, free), (1, free)]
        );
        let arranged = at(0, &placed(&requests));
        assert_eq!(names(&arranged.requests), [(2, 1), (2, 2), (3, 1), (1, 1), (1, 2), (3, 2), (1, 3)]);
        let groups = arranged.groups.iter();
        let parts: Vec<_> = groups.map(|group| (group.members, group.part)).collect();
        assert_eq!(parts, [(1, 1), (2, 1), (2, 3)]);
    }

    #[test]
    fn the_order_is_the_same_where_less_is_known_of_a_request() {
        let mut requests: Vec<_> = (1..=4).map(|n| request(n, 1, &[0, 1], 2)).collect();
        for place in [1, 3] {
            Arc::make_mut(&mut requests[place]).footprint.read_only = true;
        }
        let here = placed(&requests);
        let mut there = here.clone();
        for placed in &mut there {
            Arc::make_mut(&mut placed.request).footprint.read_only = false;
        }
        let order = |placed: &[Placed]| names(&at(1, placed).requests);
        assert_eq!(order(&here), [(2, 1), (4, 1), (1, 1), (3, 1)]);
        assert_eq!(order(&there), order(&here));
    }

    /// A group's members: of which connection, and which they are.
    type Members = Vec<(u64, u64)>;

    /// Requests of some sessions over some of five partitions, as they arrive.
    fn arrivals() -> impl Strategy<Value = Vec<(u64, Vec<u16>)>> {
        let partitions = proptest::collection::btree_set(0..5u16, 1..4);
        let partitions = partitions.prop_map(|set| set.into_iter().collect());
        proptest::collection::vec((0..6u64, partitions), 0..40)
    }

    proptest! {
        /// The orders of all partitions and of all connections together have no circle, and a group is the
        /// same everywhere.
        #[test]
        fn all_orders_agree(arrivals in arrivals(), is_merged: bool) {
            let scheduling = if is_merged { Scheduling::Merged } else { Scheduling::Grouped };
            let mut sequence = 0;
            let mut make = |(session, on): &(u64, Vec<u16>)| {
                sequence += 1;
                request(*session, sequence, on, 5)
            };
            let requests: Vec<_> = arrivals.iter().map(&mut make).collect();
            let placed = placed(&requests);
            let mut before = std::collections::BTreeSet::new();
            // By name: the members, as each partition sees them.
            let mut groups: BTreeMap<(u32, Partitions), Vec<Members>> = BTreeMap::new();
            for arranged in arrange_all(&placed, 5, scheduling) {
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
