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
//!   | read-only, several | group | single | group | single | group | single, bound |
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
//! partitions. [`cut`] sees to that when the batch is made: a request that would come before an earlier one of its connection waits
//! for the next epoch, and single-partition requests of a connection that has others in the batch are *bound*: they
//! come behind all groups, at every partition.

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{Group, PartitionId, Partitions, Request, SessionId};

/// A request of an epoch.
#[derive(Clone, Debug)]
pub struct Placed {
    /// What it is.
    pub request: Arc<Request>,
    /// It is to come behind all groups, because of its connection's other requests.
    pub bound: bool,
}

/// A partition's requests of an epoch, in order, and where the groups among them are.
#[derive(Clone, Debug, Default)]
pub struct Arranged {
    /// The requests.
    pub requests: Vec<Arc<Request>>,
    /// The groups, in order; read-only transactions are in none.
    pub groups: Vec<Group>,
}

/// Where a request stands among those of its epoch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Reads at several partitions.
    ReadOnly,
    /// By how many partitions it has, by round, and by which they are.
    Group(usize, u16, Partitions),
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
    match partitions[..] {
        [] | [_] => Rank::Bound,
        _ if request.footprint.read_only => Rank::ReadOnly,
        [first, second] => {
            let round = round(first, second, request.route.of);
            Rank::Group(2, round, partitions.clone())
        }
        _ => Rank::Group(partitions.len(), 0, partitions.clone()),
    }
}

/// Puts a partition's part of an epoch into its order.
pub fn arrange(requests: Vec<Placed>) -> Arranged {
    if !requests.iter().any(|placed| is_multi(&placed.request)) {
        let requests = requests.into_iter().map(|placed| placed.request);
        return Arranged {
            requests: requests.collect(),
            groups: Vec::new(),
        };
    }
    let mut groups: BTreeMap<Rank, Vec<Arc<Request>>> = BTreeMap::new();
    let (mut free, mut bound) = (Vec::new(), Vec::new());
    for Placed {
        request,
        bound: is_bound,
    } in requests
    {
        match rank(&request) {
            Rank::Bound if is_bound => bound.push(request),
            Rank::Bound => free.push(request),
            rank => groups.entry(rank).or_default().push(request),
        }
    }
    let mut arranged = Arranged::default();
    arranged
        .requests
        .extend(groups.remove(&Rank::ReadOnly).unwrap_or_default());
    let (count, all) = (groups.len(), free.len());
    let mut free = free.into_iter();
    for (place, members) in groups.into_values().enumerate() {
        arranged.groups.push(Group {
            first: arranged.requests.len(),
            members: members.len(),
        });
        arranged.requests.extend(members);
        let share = all * (place + 1) / count - all * place / count;
        arranged.requests.extend(free.by_ref().take(share));
    }
    arranged.requests.extend(free);
    arranged.requests.extend(bound);
    arranged
}

/// What of a sequence of requests may be in one batch.
#[derive(Debug, Default)]
pub struct Cut {
    /// These, in order.
    pub taken: Vec<Placed>,
    /// These wait for the next epoch, in order.
    pub left: Vec<Arc<Request>>,
}

/// Splits requests that wait for their place in a group's log: what would come before an earlier request of its connection
/// waits, and so does what its connection sent afterwards.
pub fn cut(requests: impl IntoIterator<Item = Arc<Request>>) -> Cut {
    /// A connection's requests so far.
    struct Session {
        /// Their places among what is taken.
        taken: SmallVec<[usize; 1]>,
        last: Rank,
        /// One of them waits.
        waits: bool,
    }
    let mut sessions: BTreeMap<SessionId, Session> = BTreeMap::new();
    let mut cut = Cut::default();
    for request in requests {
        let rank = rank(&request);
        let place = cut.taken.len();
        if request.id.session != SessionId::INTERNAL {
            let session = sessions.entry(request.id.session);
            let session = session.or_insert_with(|| Session {
                taken: SmallVec::new(),
                last: Rank::ReadOnly,
                waits: false,
            });
            session.waits |= rank < session.last;
            if session.waits {
                cut.left.push(request);
                continue;
            }
            session.taken.push(place);
            session.last = rank;
        }
        cut.taken.push(Placed {
            request,
            bound: false,
        });
    }
    for session in sessions
        .into_values()
        .filter(|session| session.taken.len() > 1)
    {
        for place in session.taken {
            cut.taken[place].bound = true;
        }
    }
    cut
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

    fn at(partition: u16, taken: &[Placed]) -> Arranged {
        let involved = |placed: &&Placed| {
            let partitions = &placed.request.route.partitions;
            partitions.contains(&PartitionId(partition))
        };
        arrange(taken.iter().filter(involved).cloned().collect())
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
        let arranged = at(0, &cut(requests).taken);
        let sessions: Vec<_> = names(&arranged.requests)
            .iter()
            .map(|name| name.0)
            .collect();
        assert_eq!(sessions, [4, 1, 3, 2, 6, 5, 7]);
        let groups = [(0, 1), (3, 2)].map(|(first, members)| Group { first, members });
        assert_eq!(arranged.groups, groups);
    }

    #[test]
    fn what_would_overtake_its_connection_waits_with_what_comes_behind_it() {
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
        let cut = cut(requests);
        let taken: Vec<_> = cut
            .taken
            .iter()
            .map(|placed| placed.request.clone())
            .collect();
        assert_eq!(names(&taken), [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1)]);
        assert_eq!(names(&cut.left), [(1, 2), (1, 3), (3, 2)]);
        let bound = cut.taken.iter().map(|placed| placed.bound);
        assert_eq!(bound.collect::<Vec<_>>(), [false, true, true, true, false]);
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
            let cut = cut(requests.clone());
            prop_assert_eq!(cut.taken.len() + cut.left.len(), requests.len());
            let mut before = std::collections::BTreeSet::new();
            let mut groups: BTreeMap<Partitions, Vec<Vec<(u64, u64)>>> = BTreeMap::new();
            for partition in 0..5 {
                let arranged = at(partition, &cut.taken);
                let names = names(&arranged.requests);
                before.extend(names.windows(2).map(|pair| (pair[0].1, pair[1].1)));
                for group in &arranged.groups {
                    let members = group.first..group.first + group.members;
                    let set = arranged.requests[group.first].route.partitions.clone();
                    groups.entry(set).or_default().push(names[members].to_vec());
                }
            }
            for (set, seen) in &groups {
                prop_assert_eq!(seen.len(), set.len());
                prop_assert!(seen.iter().all(|members| *members == seen[0]));
            }
            for session in 1..6 {
                let own = cut.taken.iter().filter(|placed| placed.request.id.session.0 == session);
                let own: Vec<_> = own.map(|placed| placed.request.id.sequence).collect();
                before.extend(own.windows(2).map(|pair| (pair[0], pair[1])));
            }
            let mut left: std::collections::BTreeSet<u64> =
                cut.taken.iter().map(|placed| placed.request.id.sequence).collect();
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
