//! Small systems of sites, and the byte forms. Whole worlds are the simulator's (`sim::pcsi`).

mod codec;
mod directed;

use super::{
    CommitStamp, Incarnation, Letter, Message, Pcsi, Record, SiteEffects, SiteMap, SiteOptions,
    TransactionName, Update, VectorClock,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::mutant::{Mutant, with};
use txn::{BootId, Key, NodeId, PartitionId};

/// How many updates of site 0 does site 1 count that has got two, the first of which waits for site 2?
fn counted_behind_a_waiting_update() -> u64 {
    let partition = PartitionId(0);
    let sites = SiteMap::new(vec![vec![NodeId(0), NodeId(1), NodeId(2)]]).expect("three sites");
    let options = SiteOptions {
        me: NodeId(1),
        sites: Arc::new(sites),
        propagation_ticks: 1,
        vote_ticks_max: 10,
        open_ticks_max: 10,
        open_max: 1,
        window: 2,
        retained_max: 2,
        retained_bytes_max: 1 << 20,
        silent_ticks_max: 10,
        session_horizon: 10,
        sites_to_write_min: 1,
        regions_to_write_min: 1,
        sites_ticks_max: 10,
    };
    let update = |number, depends: &[CommitStamp]| {
        let mut clock = VectorClock::default();
        depends.iter().for_each(|&stamp| clock.count(stamp));
        let stamp = CommitStamp { site: NodeId(0), sequence: number };
        Arc::new(Update {
            name: TransactionName { origin: NodeId(0), incarnation: Incarnation(0), boot: BootId(1), number },
            number,
            stamps: BTreeMap::from([(partition, stamp)]),
            depends: BTreeMap::from([(partition, clock)]),
            writes: BTreeMap::new(),
        })
    };
    let updates = vec![update(1, &[CommitStamp { site: NodeId(2), sequence: 1 }]), update(2, &[])];
    let mut effects = SiteEffects::default();
    let mut site = Pcsi::start(options, &[Record::Founded], 1, &mut effects);
    let message = Message::Updates { after: 0, sent: 0, through: 2, last: 2, retained: Vec::new(), updates };
    let letter = Letter { from: Incarnation(0), to: Some(Incarnation(0)), message };
    site.receive(NodeId(0), letter, &mut effects);
    site.view(partition).map_or(0, |view| view.at(NodeId(0)))
}

/// Worlds meet this too rarely: the first of the two transactions has seen what the second has not.
#[test]
fn a_site_applies_the_numbers_of_another_one_in_order() {
    assert_eq!(counted_behind_a_waiting_update(), 0);
    assert_eq!(with(Mutant::SkipNumberCheck, counted_behind_a_waiting_update), 2);
    assert_eq!(with(Mutant::AdvanceViewEarly, counted_behind_a_waiting_update), 2);
}

#[test]
fn only_the_named_sites_resolve_a_partition_and_all_sites_have_what_the_store_keeps() {
    let nodes = |numbers: &[u16]| numbers.iter().copied().map(NodeId).collect::<Vec<_>>();
    let map = SiteMap::with_system(vec![nodes(&[1, 2]), nodes(&[2, 3])]).expect("sites");
    let map = map.resolved_by(PartitionId(1), nodes(&[3])).expect("it has the partition");
    assert!(map.clone().resolved_by(PartitionId(0), nodes(&[3])).is_none(), "it does not have the partition");
    assert!(map.clone().resolved_by(PartitionId(0), Vec::new()).is_none());
    assert_eq!(map.sites(PartitionId(2)), nodes(&[1, 2, 3]));
    let keys: Vec<Key> = (0..50).map(|key| Key::new(format!("k{key}").as_bytes())).collect();
    let resolvers = |partition| -> BTreeSet<NodeId> {
        let of = keys.iter().filter(|key| map.partition_of(key) == PartitionId(partition));
        of.map(|key| map.resolver_of(key)).collect()
    };
    assert_eq!([0, 1, 2].map(resolvers), [nodes(&[1, 2]), nodes(&[3]), vec![]].map(BTreeSet::from_iter));
    assert_eq!(map.partition_of(&Key::system(b"script")), PartitionId(2));
}
