//! Granted numbers that are lost with a disk or a fence, holders that go, and the bounds of remote access.

use super::Group;
use super::remote::{chain, group, is_there, look, with_a_number_out};
use crate::Answer;
use crate::pcsi::remote::Fit;
use crate::pcsi::{
    CommitStamp, FenceAnswer, Incarnation, Message, Record, RemoteAccess, TransactionName, Update,
    VectorClock,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::mutant::{Mutant, with};
use txn::{BootId, Entry, Key, NodeId, PartitionId};

fn views_agree(group: &Group, partition: u16, sites: [u16; 2]) -> bool {
    let [one, other] = sites.map(|site| group.site(site).view(PartitionId(partition)).cloned());
    one.is_some() && one == other
}

/// Site 1 fills a number, and site 0 reads that. Site 1 is lost before any other site has the null update.
/// Whether site 2 gets the update of site 0 that follows it.
fn gets_what_follows_a_lost_null(is_fenced: bool) -> bool {
    let mut group = with_a_number_out();
    let key = group.key(1, 2);
    group.lost.insert((1, 2));
    group.tick(60);
    assert_eq!(group.site(1).grants(), (0, 0), "the number is filled");
    group.lost.remove(&(1, 0));
    // Site 0 hears it again, and reads there.
    group.tick(4);
    let id = group.session(0);
    group.begin(0, id);
    assert!(!is_there(look(&mut group, 0, id, &key)));
    assert_eq!(group.commit(0, id, &[&key], Some("new")), [Answer::Committed]);
    if is_fenced {
        group.sites[1] = None;
        assert_eq!(group.fence(2, 1), FenceAnswer::Begun);
        group.tick(100);
    }
    group.lost.clear();
    group.lose_disk(1);
    group.tick(200);
    group.has(2, &key) && group.has(1, &key) && group.is_open(1) && views_agree(&group, 1, [1, 2])
}

#[test]
fn what_follows_a_null_update_that_a_lost_granter_had_alone_waits_no_more() {
    for is_fenced in [false, true] {
        assert!(gets_what_follows_a_lost_null(is_fenced));
        assert!(!with(Mutant::ForgetLostGrants, || gets_what_follows_a_lost_null(is_fenced)));
    }
}

/// Site 0 has an update with a number of site 1, which only site 3 gets. Site 2 waits for it: an update of
/// site 3 follows it. Site 1 is fenced first, or is lost together with sites 0 and 3. Whether site 2 applies
/// the update of site 3 in the end.
fn goes_on_behind_an_update_that_was_to_remain(is_fenced_first: bool) -> bool {
    let mut group = group(4, &[&[0, 3], &[1, 2], &[2, 3]], RemoteAccess::Grants);
    let (near, far, last) = (group.key(0, 0), group.key(1, 1), group.key(2, 3));
    group.is_lost = |message| matches!(message, Message::Relayed { .. });
    group.lose(0, 2);
    group.committed(0, &[&near, &far]);
    group.lose(0, 1);
    group.tick(2);
    assert!(group.has(3, &near) && !group.has(2, &far));
    group.committed(3, &[&last]);
    group.tick(2);
    assert!(!group.has(2, &last), "it waits");
    if is_fenced_first {
        group.sites[1] = None;
        group.reconnect();
        group.is_lost = |message| matches!(message, Message::Updates { .. } | Message::Relayed { .. });
        assert_eq!(group.fence(2, 1), FenceAnswer::Begun);
        let decision = &group.site(2).fences.decided[&NodeId(1)];
        assert_eq!(decision.granted[&PartitionId(1)].len(), 1, "the number remains");
    }
    assert!(!group.has(2, &last));
    group.reconnect();
    group.is_lost = |_| false;
    [0, 1, 3].into_iter().for_each(|site| group.lose_disk(site));
    group.tick(300);
    let are_open = (0..4).all(|site| group.is_open(site) && group.site(site).is_idle());
    are_open && group.has(2, &last) && !group.has(2, &far) && views_agree(&group, 1, [1, 2])
}

#[test]
fn a_number_that_remains_becomes_void_with_the_site_of_its_transaction() {
    for is_fenced_first in [false, true] {
        assert!(goes_on_behind_an_update_that_was_to_remain(is_fenced_first), "{is_fenced_first}");
        let is_lost = || goes_on_behind_an_update_that_was_to_remain(is_fenced_first);
        assert!(!with(Mutant::ForgetLostGrants, is_lost), "{is_fenced_first}");
    }
}

/// Site 1 is fenced, and site 0 has an update with a number of site 1 that no other site has. Whether site 2
/// gets it.
fn gets_an_update_of_a_fenced_granter() -> bool {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 1);
    group.committed(0, &[&far]);
    group.sites[1] = None;
    assert_eq!(group.fence(2, 1), FenceAnswer::Begun);
    group.tick(100);
    group.has(2, &far)
}

#[test]
fn an_update_with_a_number_of_a_fenced_granter_remains() {
    assert!(gets_an_update_of_a_fenced_granter());
    assert!(!with(Mutant::VoidRemaining, gets_an_update_of_a_fenced_granter));
}

/// Partition 1 is at site 1 only, which loses its disk, and with it an update of site 0 that nobody sends
/// again. Site 2 has a number of it, in what it has read.
#[test]
fn numbers_of_a_partition_that_no_site_has_any_more_are_void() {
    let mut group = group(3, &[&[0, 2], &[1], &[0, 1, 2]], RemoteAccess::Grants);
    let (far, all) = (group.key(1, 1), group.key(2, 0));
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(0, &[&far]);
    group.committed(0, &[&all]);
    group.lose_disk(1);
    group.is_lost = |_| false;
    group.tick(300);
    assert!(group.is_open(1) && group.has(1, &all) && group.has(2, &all));
    assert!((0..3).all(|site| group.site(site).is_idle()), "{:?}", group.site(0).waits_for());
}

#[test]
fn a_site_without_partitions_uses_none() {
    let mut group = group(4, &[&[0, 1], &[1, 2]], RemoteAccess::Grants);
    let far = group.key(1, 2);
    let (reading, writing) = (group.session(3), group.session(3));
    group.begin(3, reading);
    assert!(matches!(look(&mut group, 3, reading, &far), Some(Answer::Refused(_))));
    // Nobody would get its update.
    assert!(matches!(group.write(3, writing, &[&far], Some("new"))[..], [Answer::Refused(_)]));
}

/// A transaction of site 0 begins, and then another one of the site writes at site 1, which does not get the
/// update. Whether site 1 answers the first one at once.
fn reads_while_its_site_writes() -> bool {
    let mut group = chain(RemoteAccess::Grants);
    let (read, written) = (group.key(1, 1), group.key(1, 2));
    let id = group.session(0);
    group.begin(0, id);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(0, &[&written]);
    look(&mut group, 0, id, &read).is_some()
}

#[test]
fn later_writes_of_its_site_do_not_raise_the_floor_of_a_transaction() {
    assert!(reads_while_its_site_writes());
    assert!(!with(Mutant::MoveFloor, reads_while_its_site_writes));
}

/// A fence of site 1 is under way, for site 3 is away.
fn freeze_the_holder(group: &mut Group) {
    assert_eq!(group.fence(2, 1), FenceAnswer::Begun);
    let is_frozen = |site: u16| group.site(site).fences.frozen.contains_key(&NodeId(1));
    assert!(is_frozen(0) && is_frozen(2));
}

#[test]
fn no_transaction_waits_at_a_holder_that_is_frozen() {
    let prepared = || {
        let mut group = group(4, &[&[0, 1], &[1, 2], &[0, 3]], RemoteAccess::Grants);
        group.sites[3] = None;
        let id = group.session(0);
        group.begin(0, id);
        (group, id)
    };
    // It has heard nothing of the holder yet, and asks the other one.
    let (mut group, id) = prepared();
    let (first, second) = (group.key(1, 1), group.key(1, 2));
    group.lose(0, 1);
    assert_eq!(look(&mut group, 0, id, &first), None);
    freeze_the_holder(&mut group);
    let answers = group.run(0, crate::pcsi::Pcsi::tick);
    assert!(is_there_not(&answers), "{answers:?}");
    // It has read there.
    let (mut group, id) = prepared();
    assert!(!is_there(look(&mut group, 0, id, &first)));
    group.lose(0, 1);
    assert_eq!(look(&mut group, 0, id, &second), None);
    freeze_the_holder(&mut group);
    assert!(group.site(0).open.is_empty(), "it ends");
    // It has read there, and waits for the vote of a site that is away.
    let (mut group, id) = prepared();
    let away = group.key(2, 3);
    assert!(!is_there(look(&mut group, 0, id, &first)));
    assert_eq!(group.commit(0, id, &[&away], Some("new")), []);
    assert_eq!(group.site(0).committing.len(), 1);
    freeze_the_holder(&mut group);
    assert!(group.site(0).committing.is_empty(), "it ends");
}

fn is_there_not(answers: &[Answer]) -> bool {
    matches!(answers, [Answer::Value(read)] if read.entry.is_none())
}

/// Site 2 is away, so site 1 soon has no room for further null updates.
#[test]
fn a_granter_with_too_many_numbers_out_grants_no_more() {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 1);
    group.sites[2] = None;
    group.is_lost = |message| matches!(message, Message::Vote { .. });
    let mut id = group.session(0);
    for _ in 0..100 {
        id.sequence += 1;
        group.begin(0, id);
        assert!(!is_there(look(&mut group, 0, id, &far)));
        assert_eq!(group.commit(0, id, &[&far], Some("late")), []);
        group.tick(1);
    }
    let (retained_max, (out, void)) = (group.options.retained_max, group.site(1).grants());
    assert!(void > 0 && out <= retained_max, "{out} are out, and {void} of them void");
}

/// A site without partitions asks, which a site that keeps to the rules does not.
#[test]
fn states_that_were_noted_for_a_read_go_after_a_while() {
    let mut group = group(3, &[&[0, 1]], RemoteAccess::Grants);
    let (key, id) = (group.key(0, 0), group.session(2));
    group.committed(0, &[&key]);
    group.tick(4);
    let fit = Fit { at: None, floor: VectorClock::default(), ceilings: BTreeMap::new() };
    group.run(1, |site, effects| site.answer_look(NodeId(2), id, key.clone(), &fit, effects));
    let noted = |group: &Group| group.site(1).remote.views(PartitionId(0)).count();
    assert_eq!(noted(&group), 1);
    group.tick(20);
    assert_eq!(noted(&group), 0);
}

fn update(key: &Key, number: u64) -> (TransactionName, Arc<Update>) {
    let name = TransactionName { origin: NodeId(0), incarnation: Incarnation(0), boot: BootId(1), number: 1 };
    let stamp = CommitStamp { site: NodeId(0), sequence: number };
    let update = Update {
        name,
        number,
        stamps: BTreeMap::from([(PartitionId(0), stamp)]),
        depends: BTreeMap::new(),
        writes: BTreeMap::from([(key.clone(), Some(Entry::new("new")))]),
    };
    (name, Arc::new(update))
}

/// The bit that tells granted numbers from a site's own is never reached by counting.
#[test]
fn neither_sequence_of_numbers_runs_into_the_other_one() {
    let mut group = Group::new(1, &[&[0]]);
    let key = group.key(0, 0);
    let last = CommitStamp::own_last(Incarnation(0));
    let (name, update) = update(&key, last);
    let id = group.session(0);
    group.logs[0].push(Record::Committed { id, name, resolvers: BTreeSet::new(), update });
    group.start(0);
    let id = group.session(0);
    assert_eq!(group.write(0, id, &[&key], Some("new")), [Answer::Unavailable]);
    let mut group = chain(RemoteAccess::Grants);
    let name = TransactionName { origin: NodeId(0), ..name };
    let numbers = BTreeMap::from([(PartitionId(1), Incarnation(0).last())]);
    group.logs[1].push(Record::Locked { name, keys: Vec::new(), numbers });
    group.start(1);
    assert_eq!(group.site(1).next_grants(&BTreeSet::from([PartitionId(1)])), None);
}
