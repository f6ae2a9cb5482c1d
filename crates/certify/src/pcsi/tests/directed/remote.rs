//! Transactions that read and write partitions which their sites do not have.

use super::Group;
use crate::pcsi::codec::Form;
use crate::pcsi::remote::Fit;
use crate::pcsi::{
    CommitStamp, FenceAnswer, Incarnation, Letter, Message, Pcsi, Record, RemoteAccess, SiteEffects,
    TransactionName, VectorClock,
};
use crate::{Answer, Conflict};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::mutant::{Mutant, with};
use txn::{BootId, Key, NodeId, PartitionId, RequestId};

const BOTH: [RemoteAccess; 2] = [RemoteAccess::Ghosts, RemoteAccess::Grants];

pub(super) fn group(sites: usize, replicas: &[&[u16]], access: RemoteAccess) -> Group {
    let mut group = Group::new(sites, replicas);
    let map = group.options.sites.as_ref().clone().with_remote_access(access);
    group.options.sites = Arc::new(map);
    (0..sites).for_each(|site| group.start(site));
    group
}

/// Three sites: partition 0 is at sites 0 and 1, partition 1 at sites 1 and 2.
pub(super) fn chain(access: RemoteAccess) -> Group {
    group(3, &[&[0, 1], &[1, 2]], access)
}

/// A site does something; only the answers count.
pub(super) fn look(group: &mut Group, site: u16, id: RequestId, key: &Key) -> Option<Answer> {
    let look = |site: &mut Pcsi, effects: &mut SiteEffects| match site.has_partition_of(key) {
        true => effects.answers.push((id, site.look(id, key).map_or_else(|answer| answer, Answer::Value))),
        false => site.look_remote(id, key.clone(), effects),
    };
    group.run(site, look).pop()
}

/// Whether an answer is that something is there.
pub(super) fn is_there(answer: Option<Answer>) -> bool {
    match answer {
        Some(Answer::Value(read)) => read.entry.is_some(),
        other => panic!("{other:?} is no value"),
    }
}

/// A further key of a partition with this resolver.
pub(super) fn other_key(group: &Group, partition: u16, resolver: u16) -> Key {
    let sites = &group.options.sites;
    let mut keys = (0..10_000).map(|key| Key::new(format!("other{key}").as_bytes()));
    let is_wanted = |key: &Key| {
        sites.partition_of(key) == PartitionId(partition) && sites.resolver_of(key) == NodeId(resolver)
    };
    keys.find(is_wanted).expect("each partition and resolver has a key")
}

#[test]
fn a_site_reads_and_writes_a_partition_of_other_sites() {
    for access in BOTH {
        let mut group = chain(access);
        let (near, far) = (group.key(0, 0), group.key(1, 2));
        group.committed(0, &[&near, &far]);
        group.tick(8);
        assert!(group.has(1, &near) && group.has(1, &far) && group.has(2, &far), "{access:?}");
        let id = group.session(2);
        group.begin(2, id);
        assert!(is_there(look(&mut group, 2, id, &near)) && is_there(look(&mut group, 2, id, &far)));
        assert_eq!(group.commit(2, id, &[&near, &far], None), [Answer::Committed], "{access:?}");
        group.tick(40);
        assert!(!group.has(0, &near) && !group.has(1, &far), "{access:?}");
        assert!((0..3).all(|site| group.site(site).is_idle()), "{:?}", group.site(1).waits_for());
    }
    let mut group = chain(RemoteAccess::Refused);
    let (id, far) = (group.session(0), group.key(1, 2));
    group.begin(0, id);
    assert!(matches!(look(&mut group, 0, id, &far), Some(Answer::Refused(_))));
}

#[test]
fn of_two_writers_at_sites_without_the_partition_one_loses() {
    for access in BOTH {
        let mut group = group(4, &[&[0], &[1, 2], &[3]], access);
        let far = group.key(1, 2);
        let ids = [0, 3].map(|site| (site, group.session(site)));
        for (site, id) in ids {
            group.begin(site, id);
            assert!(!is_there(look(&mut group, site, id, &far)));
        }
        assert_eq!(group.commit(0, ids[0].1, &[&far], Some("0")), [Answer::Committed]);
        let lost = [Answer::Conflict(Conflict::Key(far.clone()))];
        assert_eq!(group.commit(3, ids[1].1, &[&far], Some("3")), lost, "{access:?}");
    }
}

/// Site 1 writes keys of both partitions, and site 0 lacks the update. Whether a transaction of site 0 that
/// has read the key of partition 0 sees the write in partition 1.
fn sees_half_of_an_update() -> bool {
    let mut group = chain(RemoteAccess::Grants);
    let (near, far) = (group.key(0, 0), group.key(1, 1));
    group.tick(2);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(1, &[&near, &far]);
    let id = group.session(0);
    group.begin(0, id);
    assert!(!is_there(look(&mut group, 0, id, &near)));
    is_there(look(&mut group, 0, id, &far))
}

#[test]
fn a_holder_answers_from_a_state_that_depends_on_nothing_beyond_the_snapshot() {
    assert!(!sees_half_of_an_update());
    assert!(with(Mutant::SkipCeilings, sees_half_of_an_update));
}

#[test]
fn a_snapshot_moves_forward_if_it_was_not_read_and_else_the_transaction_ends() {
    let mut group = chain(RemoteAccess::Grants);
    let (near, far) = (group.key(0, 0), group.key(1, 1));
    group.committed(1, &[&near, &far]);
    let ids = [(); 2].map(|()| group.session(0));
    ids.iter().for_each(|&id| group.begin(0, id));
    assert!(!is_there(look(&mut group, 0, ids[0], &near)));
    // Site 1 notes no state before its update for longer than this.
    group.tick(40);
    let again = Some(Answer::Conflict(Conflict::Snapshot));
    assert_eq!(look(&mut group, 0, ids[0], &far), again);
    assert_eq!(look(&mut group, 0, ids[1], &far), None, "the snapshot moves");
    let answers = group.run(0, Pcsi::tick);
    assert!(is_there(answers.into_iter().next()));
    assert!(is_there(look(&mut group, 0, ids[1], &near)));
}

/// A transaction reads its own site's data, and then what a holder has only in states that depend on more.
/// Returns the answers of its next attempt to its begin, and to the same two reads, between which the holder
/// goes on.
fn read_again_after_a_conflict() -> [Option<Answer>; 3] {
    let mut group = chain(RemoteAccess::Grants);
    let (near, far, read) = (group.key(0, 0), group.key(1, 1), other_key(&group, 1, 1));
    // Site 1 notes no earlier state for longer than this.
    let goes_on = |group: &mut Group| {
        group.committed(1, &[&near, &far]);
        group.tick(40);
    };
    let id = group.session(0);
    group.begin(0, id);
    assert!(!is_there(look(&mut group, 0, id, &near)));
    goes_on(&mut group);
    assert_eq!(look(&mut group, 0, id, &read), Some(Answer::Conflict(Conflict::Snapshot)));
    let id = RequestId { attempt: 1, ..id };
    let begun = group.run(0, |site, effects| site.begin(id, effects)).pop();
    goes_on(&mut group);
    [begun, look(&mut group, 0, id, &near), look(&mut group, 0, id, &read)]
}

#[test]
fn a_transaction_that_found_no_state_begins_with_one() {
    let [begun, near, far] = read_again_after_a_conflict();
    assert_eq!(begun, Some(Answer::Begun));
    assert!(is_there(near) && !is_there(far));
}

/// Both holders go between the conflict and the next attempt. Returns the answers to its begin, and the
/// number of ticks until then.
fn begin_without_holders() -> (Vec<Answer>, u64) {
    let mut group = chain(RemoteAccess::Grants);
    let (near, far, read) = (group.key(0, 0), group.key(1, 1), other_key(&group, 1, 1));
    let id = group.session(0);
    group.begin(0, id);
    assert!(!is_there(look(&mut group, 0, id, &near)));
    group.committed(1, &[&near, &far]);
    group.tick(40);
    assert_eq!(look(&mut group, 0, id, &read), Some(Answer::Conflict(Conflict::Snapshot)));
    (group.sites[1], group.sites[2]) = (None, None);
    let id = RequestId { attempt: 1, ..id };
    let mut answers = group.run(0, |site, effects| site.begin(id, effects));
    let mut ticks = 0;
    while answers.is_empty() && ticks < 100 {
        answers = group.run(0, Pcsi::tick);
        ticks += 1;
    }
    assert!(is_there(look(&mut group, 0, id, &near)), "the transaction is open");
    (answers, ticks)
}

#[test]
fn a_transaction_begins_without_the_read_that_no_holder_answers() {
    let (answers, ticks) = begin_without_holders();
    assert_eq!(answers, [Answer::Begun]);
    assert!(ticks <= 10, "after {ticks} ticks");
}

/// Each way in which a transaction that has been shown what it read can end without a commit.
const ENDS: [fn(&mut Group, RequestId); 5] = [
    |group, id| drop(group.run(0, |site, _| site.forget(id))),
    // It waits for votes, and its session begins the next one.
    |group, id| {
        group.is_lost = |message| matches!(message, Message::Updates { .. } | Message::Prepare { .. });
        let elsewhere = group.key(1, 2);
        assert_eq!(group.commit(0, id, &[&elsewhere], Some("new")), []);
        group.begin(0, RequestId { sequence: id.sequence + 1, ..id });
    },
    |group, id| group.begin(0, RequestId { sequence: id.sequence + 1, ..id }),
    // Its next read there is not answered in time.
    |group, id| {
        group.lose(0, 1);
        let other = other_key(group, 1, 1);
        assert_eq!(look(group, 0, id, &other), None);
        let waits = group.options.vote_ticks_max + 2;
        assert_eq!(
            (0..waits).flat_map(|_| group.run(0, Pcsi::tick)).collect::<Vec<_>>(),
            [Answer::Unavailable]
        );
    },
    // It is too old.
    |group, _| group.tick(group.options.open_ticks_max + 1),
];

/// Site 1 is the only one that has an update of its own.
#[test]
fn a_connection_does_not_lose_sight_of_what_a_transaction_without_effect_has_read() {
    for (number, end) in ENDS.into_iter().enumerate() {
        let mut group = chain(RemoteAccess::Grants);
        let far = group.key(1, 1);
        group.tick(2);
        group.is_lost = |message| matches!(message, Message::Updates { .. });
        group.committed(1, &[&far]);
        let id = group.session(0);
        group.begin(0, id);
        assert!(is_there(look(&mut group, 0, id, &far)));
        end(&mut group, id);
        let token = group.site(0).token().expect("it is open");
        let has_read = group.site(1).view(PartitionId(1)).expect("it has the partition");
        assert!(token.clocks[&PartitionId(1)].covers(has_read), "end {number}");
        group.lose(0, 1);
        let again = group.session(0);
        group.begin(0, again);
        assert_eq!(look(&mut group, 0, again, &far), None, "end {number}");
        for _ in 0..20 {
            assert_eq!(group.run(0, Pcsi::tick), [], "end {number}: site 2 lacks what was read");
        }
    }
}

#[test]
fn a_holder_that_says_nothing_is_left_for_another_one() {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 2);
    group.sites[1] = None;
    let mut read = |ticks: u64| {
        let id = group.session(0);
        group.begin(0, id);
        let mut answers: Vec<Answer> = look(&mut group, 0, id, &far).into_iter().collect();
        for _ in 0..ticks {
            answers.extend(group.run(0, Pcsi::tick));
            group.run(2, Pcsi::tick);
        }
        answers
    };
    // It is asked again after half the time after which it counts as silent.
    assert!(matches!(read(5)[..], [Answer::Value(_)]));
    read(8);
    assert!(matches!(read(0)[..], [Answer::Value(_)]), "a site that is heard comes first");
}

#[test]
fn a_site_asks_first_at_a_holder_of_its_own_region() {
    for region in [0, 1] {
        let mut group = chain(RemoteAccess::Grants);
        let far = group.key(1, 2);
        let regions = BTreeMap::from([(NodeId(0), region), (NodeId(1), 0), (NodeId(2), 1)]);
        group.options.sites = Arc::new(group.options.sites.as_ref().clone().in_regions(regions));
        (0..3).for_each(|site| group.start(site));
        group.lose(0, 2 - region);
        let id = group.session(0);
        group.begin(0, id);
        assert!(matches!(look(&mut group, 0, id, &far), Some(Answer::Value(_))), "region {region}");
    }
}

/// A site writes a key of another one, which does not get the update at once. What the site then reads there.
fn read_own_remote_write() -> Vec<Answer> {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 2);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(0, &[&far]);
    let id = group.session(0);
    group.begin(0, id);
    let mut answers: Vec<Answer> = look(&mut group, 0, id, &far).into_iter().collect();
    group.is_lost = |_| false;
    for _ in 0..20 {
        answers.extend(group.run(0, Pcsi::tick));
        [1, 2].into_iter().for_each(|site| drop(group.run(site, Pcsi::tick)));
    }
    answers
}

#[test]
fn a_site_waits_until_a_holder_has_what_the_site_wrote_there() {
    assert!(is_there(read_own_remote_write().pop()));
    let is_new = |answers: Vec<Answer>| is_there(answers.into_iter().next());
    assert!(!is_new(with(Mutant::SkipFloor, read_own_remote_write)));
    assert!(!is_new(with(Mutant::ForgetFollowed, read_own_remote_write)));
}

/// Site 0 writes a key of its own partition and one of another partition in each period. Each answer to its
/// first read of that other partition comes after these writes.
#[test]
fn a_read_is_answered_while_its_site_writes_all_the_time() {
    for access in BOTH {
        let mut group = chain(access);
        let (near, far, read) = (group.key(0, 0), group.key(1, 2), other_key(&group, 1, 2));
        group.is_held =
            |message| matches!(message, Message::Looked { key, .. } if key.as_bytes().starts_with(b"other"));
        group.committed(0, &[&far]);
        group.committed(0, &[&near]);
        let id = group.session(0);
        group.begin(0, id);
        assert_eq!(look(&mut group, 0, id, &read), None, "the holder lacks what its site has written");
        let mut periods = 0..20;
        let is_answered = periods.any(|_| {
            let writer = group.session(0);
            assert_eq!(group.write(0, writer, &[&far], Some("new")), [], "the holder is behind");
            let written = group.run(0, Pcsi::tick);
            assert_eq!(written, [Answer::Committed], "{access:?}");
            group.committed(0, &[&near]);
            [1, 2].into_iter().for_each(|site| drop(group.run(site, Pcsi::tick)));
            group.release().iter().any(|answer| matches!(answer, Answer::Value(_)))
        });
        assert!(is_answered && periods.start <= 3, "{access:?}: in period {}", periods.start);
    }
}

/// A transaction of site 0 has a number of site 1, and its site never hears that. Returns the group, in which
/// messages from site 1 to site 0 are lost.
pub(super) fn with_a_number_out() -> Group {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 1);
    let id = group.session(0);
    group.begin(0, id);
    assert!(!is_there(look(&mut group, 0, id, &far)));
    group.lost.insert((1, 0));
    assert_eq!(group.commit(0, id, &[&far], Some("late")), []);
    assert_eq!(group.site(1).grants(), (1, 0));
    group
}

/// A letter between two sites that were never fenced.
fn letter(message: Message) -> Letter {
    Letter { from: Incarnation(0), to: Some(Incarnation(0)), message }
}

#[test]
fn a_vote_counts_if_it_has_the_numbers_that_it_was_asked_for() {
    let mut group = with_a_number_out();
    let locked = group.logs[1].last().cloned();
    let Some(Record::Locked { name, numbers, .. }) = locked else { panic!("{locked:?}") };
    let of = PartitionId(1);
    let wrong = [
        BTreeMap::new(),
        BTreeMap::from([(of, 1)]),
        BTreeMap::from([(of, numbers[&of]), (PartitionId(0), numbers[&of])]),
        BTreeMap::from([(of, CommitStamp::granted_base(Incarnation(0)))]),
        BTreeMap::from([(of, CommitStamp::granted_base(Incarnation(1)) + 1)]),
        BTreeMap::from([(of, u64::MAX)]),
    ];
    let mut vote = |numbers| {
        let vote = letter(Message::Vote { name, refused: None, numbers });
        group.run(0, |site, effects| site.receive(NodeId(1), vote, effects))
    };
    for numbers in wrong {
        assert_eq!(vote(numbers.clone()), [], "{numbers:?}");
    }
    assert_eq!(vote(numbers), [Answer::Committed]);
}

#[test]
fn a_site_grants_no_number_and_answers_no_read_unless_the_cluster_has_remote_access() {
    for access in [RemoteAccess::Refused, RemoteAccess::Ghosts, RemoteAccess::Grants] {
        let mut group = chain(access);
        let key = group.key(1, 1);
        let view = group.site(1).view(PartitionId(1)).cloned().expect("it has the partition");
        let name = TransactionName {
            origin: NodeId(0),
            incarnation: Incarnation(0),
            boot: BootId(1),
            number: 1_000,
        };
        let prepare = Message::Prepare {
            name,
            keys: vec![key.clone()],
            views: BTreeMap::from([(PartitionId(1), view)]),
            grant: BTreeSet::from([PartitionId(1)]),
        };
        let fit = Fit { at: None, floor: VectorClock::default(), ceilings: BTreeMap::new() };
        let look = Message::Look { id: group.session(0), key, fit };
        let answered = [prepare, look].map(|question| {
            let mut effects = SiteEffects::default();
            let site = group.sites[1].as_mut().expect("it runs");
            site.receive(NodeId(0), letter(question), &mut effects);
            (effects.messages.len(), effects.records.len())
        });
        let (grants, reads) = (access == RemoteAccess::Grants, access != RemoteAccess::Refused);
        assert_eq!(answered, [(grants.into(), grants.into()), (reads.into(), 0)], "{access:?}");
    }
}

fn is_counted_everywhere(group: &Group) -> bool {
    let counted = |site| group.site(site).view(PartitionId(1)).map_or(0, |view| view.last_granted(NodeId(1)));
    counted(1) > 0 && counted(1) == counted(2)
}

#[test]
fn a_number_whose_transaction_gave_up_is_filled() {
    let mut group = with_a_number_out();
    group.tick(60);
    group.lost.clear();
    group.tick(20);
    assert_eq!(group.site(1).grants(), (0, 0));
    assert!(is_counted_everywhere(&group));
}

/// Whether a granter fills the number of a transaction while that one's site is away.
fn fills_early(mutant: Option<Mutant>) -> bool {
    let run = || {
        let mut group = with_a_number_out();
        group.sites[0] = None;
        group.tick(200);
        is_counted_everywhere(&group)
    };
    mutant.map_or_else(run, |mutant| with(mutant, run))
}

#[test]
fn a_number_is_filled_only_when_its_transactions_fate_is_known() {
    assert!(!fills_early(None));
    assert!(fills_early(Some(Mutant::NullEarly)));
    // The site comes back, and says that the transaction has not committed. The granter has restarted, too.
    let mut group = with_a_number_out();
    group.sites[0] = None;
    group.start(1);
    assert_eq!(group.site(1).grants(), (1, 0), "a granter that restarts knows what it has granted");
    group.start(0);
    group.lost.clear();
    group.tick(100);
    assert!(is_counted_everywhere(&group) && group.site(1).grants() == (0, 0));
    // The others fence the site.
    let mut group = with_a_number_out();
    group.sites[0] = None;
    group.run(2, |site, effects| assert_eq!(site.fence(NodeId(0), false, effects), FenceAnswer::Begun));
    group.tick(100);
    assert!(is_counted_everywhere(&group) && group.site(1).grants() == (0, 0));
}

/// The example of `grant.rs`: site 0 is `g`, site 1 is `m`, site 2 has all, `u` is of site 3, and `v` of site
/// 4. Partition 0 is `p`, partition 1 is `r`, and the other two are those of the further writes.
#[test]
fn updates_with_granted_numbers_never_wait_for_each_other() {
    let replicas: [&[u16]; 4] = [&[0, 2], &[1, 2], &[1, 2, 3], &[0, 2, 4]];
    let mut group = group(5, &replicas, RemoteAccess::Grants);
    let u = [group.key(0, 0), group.key(2, 3)];
    let v = [group.key(1, 1), group.key(3, 4)];
    group.committed(3, &[&u[0], &u[1]]);
    group.committed(4, &[&v[0], &v[1]]);
    // Site 1 gets u, and site 0 gets v, but not the other way round, and site 2 gets nothing.
    group.lost.extend([(3, 0), (3, 2), (4, 1), (4, 2), (0, 2), (1, 2)]);
    group.tick(4);
    assert!(group.has(1, &u[1]) && !group.has(0, &u[0]) && group.has(0, &v[1]) && !group.has(1, &v[0]));
    // The numbers of u and v are out, and the granters commit by themselves.
    let (x, y) = (other_key(&group, 0, 0), other_key(&group, 1, 1));
    group.committed(0, &[&x]);
    group.committed(1, &[&y]);
    group.lost.clear();
    group.tick(100);
    assert!([&x, &y, &u[0], &u[1], &v[0], &v[1]].into_iter().all(|key| group.has(2, key)));
    assert!((0..5).all(|site| group.site(site).is_idle()));
}

/// The bytes of partition 0's view when each of so many sites has updated it. Three of them have it.
fn view_bytes(sites: u16, access: RemoteAccess) -> usize {
    let own: Vec<[u16; 1]> = (3..sites).map(|site| [site]).collect();
    let mut replicas: Vec<&[u16]> = vec![&[0, 1, 2]];
    replicas.extend(own.iter().map(|own| &own[..]));
    let mut group = group(usize::from(sites), &replicas, access);
    let key = group.key(0, 0);
    for site in 0..sites {
        group.committed(site, &[&key]);
        group.tick(6);
    }
    let mut bytes = Vec::new();
    group.site(0).view(PartitionId(0)).expect("it has the partition").put(&mut bytes);
    bytes.len()
}

#[test]
fn ghosts_make_views_grow_with_the_sites_and_grants_do_not() {
    let bytes = |access| [8, 16, 32].map(|sites| view_bytes(sites, access));
    let (ghosts, grants) = (bytes(RemoteAccess::Ghosts), bytes(RemoteAccess::Grants));
    println!("bytes of a view where 8, 16 and 32 sites update: ghosts {ghosts:?}, grants {grants:?}");
    assert!(ghosts[2] >= 3 * ghosts[0], "{ghosts:?}");
    assert!(grants[2] <= grants[0] + 4, "{grants:?}");
}
