//! Writes that sites of several regions must have, of the configuration's wish or of a client's.

use super::Group;
use crate::Answer;
use crate::pcsi::{Demand, Message, Pcsi, Written};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{Key, NodeId, RequestId};

/// Four sites, two in each region. All of them have partition 0; partition 1 is at the first three.
fn regions(sites_min: usize, regions_min: usize) -> Group {
    let mut group = Group::new(4, &[&[0, 1, 2, 3], &[0, 1, 2]]);
    let map = group.options.sites.as_ref().clone();
    let regions = BTreeMap::from([0, 1, 2, 3].map(|site| (NodeId(site), site / 2)));
    group.options.sites = Arc::new(map.in_regions(regions));
    (group.options.sites_to_write_min, group.options.regions_to_write_min) = (sites_min, regions_min);
    (0..4).for_each(|site| group.start(site));
    group
}

fn region(number: u16) -> BTreeSet<NodeId> {
    BTreeSet::from([2 * number, 2 * number + 1].map(NodeId))
}

impl Group {
    fn ticks_of(&mut self, site: u16, ticks: u64) -> Vec<Answer> {
        (0..ticks).flat_map(|_| self.run(site, Pcsi::tick)).collect()
    }

    /// Site 0 has a site fenced. Returns what its clients hear.
    fn fence_of(&mut self, site: u16) -> Vec<Answer> {
        self.run(0, |leader, effects| {
            leader.fence(NodeId(site), false, effects);
        })
    }

    /// The writes that a client of site 0 has been told of.
    fn written(&mut self, key: &Key) -> (RequestId, Written) {
        let id = self.session(0);
        assert_eq!(self.write(0, id, &[key], Some("new")), [Answer::Committed]);
        (id, self.site(0).written(id).expect("it has committed"))
    }

    /// A client of site 0 waits for sites of these regions.
    fn wait_for(&mut self, written: &Written, regions: &[u16], sites_min: usize, ticks: u64) -> Vec<Answer> {
        let (id, written) = (self.session(0), written.clone());
        let demand = Demand { groups: regions.iter().map(|&number| region(number)).collect(), sites_min };
        self.run(0, |site, effects| site.wait_for_sites(id, (written, demand), ticks, effects))
    }
}

#[test]
fn a_client_is_told_of_a_write_when_sites_of_enough_regions_have_it() {
    let mut group = regions(2, 2);
    let key = group.key(0, 0);
    group.lose(0, 2);
    group.lose(0, 3);
    let id = group.session(0);
    assert_eq!(group.write(0, id, &[&key], Some("new")), []);
    assert_eq!(group.ticks_of(0, 20), [], "site 1 has it, and is in the same region");
    assert!(group.has(1, &key) && !group.has(2, &key));
    group.lost.remove(&(0, 3));
    group.lost.remove(&(3, 0));
    assert_eq!(group.ticks_of(0, 40), [Answer::Committed]);
    assert!(group.has(3, &key) && !group.has(2, &key));
}

/// The other region is lost while a client waits; then it is fenced.
#[test]
fn a_client_waits_for_a_lost_region_within_a_bounded_time() {
    let mut group = regions(1, 2);
    let key = group.key(0, 0);
    (group.sites[2], group.sites[3]) = (None, None);
    let ids = [(); 2].map(|()| group.session(0));
    assert_eq!(group.write(0, ids[0], &[&key], Some("new")), []);
    let waits = group.options.sites_ticks_max;
    assert_eq!(group.ticks_of(0, waits - 1), []);
    assert_eq!(group.ticks_of(0, 1), [Answer::Unknown]);
    assert!(group.has(0, &key), "it has taken effect");
    assert_eq!(group.write(0, ids[1], &[&key], Some("new")), []);
    let told = [2, 3].map(|site| group.fence_of(site));
    assert_eq!(told.concat(), [Answer::Unknown], "it does not wait for its time");
    assert_eq!(group.commit(0, ids[1], &[&key], Some("new")), [Answer::Unknown]);
    let refused = group.session(0);
    assert_eq!(group.write(0, refused, &[&key], Some("new")), [Answer::Unavailable]);
}

#[test]
fn a_client_waits_until_sites_of_a_region_have_its_writes() {
    let mut group = regions(1, 1);
    let key = group.key(0, 0);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    let (_, written) = group.written(&key);
    assert_eq!(group.wait_for(&written, &[0], 1, 40), [Answer::Committed], "site 0 is in the region");
    assert_eq!(group.wait_for(&written, &[1], 1, 40), []);
    assert_eq!(group.wait_for(&written, &[0, 1], 2, 40), []);
    assert_eq!(group.ticks_of(0, 10), []);
    group.is_lost = |_| false;
    group.lose(0, 3);
    assert_eq!(group.ticks_of(0, 20), [Answer::Committed], "site 2 has it");
    assert_eq!(group.ticks_of(0, 9), []);
    assert_eq!(group.ticks_of(0, 1), [Answer::Unknown], "site 3 does not have it in time");
    group.reconnect();
    group.tick(4);
    assert_eq!(group.wait_for(&written, &[0, 1], 2, 40), [Answer::Committed]);
    // No client waits for longer than any client waits for sites.
    group.lose(0, 3);
    let (_, written) = group.written(&key);
    assert_eq!(group.wait_for(&written, &[1], 2, u64::MAX), []);
    let waits = group.options.sites_ticks_max;
    assert_eq!(group.ticks_of(0, waits - 1), []);
    assert_eq!(group.ticks_of(0, 1), [Answer::Unknown]);
    // A client that has written nothing waits for nothing.
    assert_eq!(group.wait_for(&Written::default(), &[0, 1], 2, 40), [Answer::Committed]);
}

/// Site 3 lacks partition 1, so its acknowledgement tells nothing of a write there.
#[test]
fn a_site_counts_for_the_partitions_that_it_has() {
    let mut group = regions(1, 1);
    let keys = [group.key(0, 0), group.key(1, 0)];
    group.lose(0, 2);
    let (_, mut written) = group.written(&keys[0]);
    assert_eq!(group.wait_for(&written, &[1], 1, 40), []);
    assert_eq!(group.ticks_of(0, 2), [Answer::Committed]);
    let (id, elsewhere) = group.written(&keys[1]);
    assert_eq!(group.wait_for(&elsewhere, &[1], 1, 40), []);
    assert_eq!(group.ticks_of(0, 40), [Answer::Unknown]);
    let refused = group.wait_for(&elsewhere, &[1], 2, 40);
    assert!(matches!(refused[..], [Answer::Refused(_)]), "one site of the region has the partition");
    written.add(elsewhere);
    let refused = group.wait_for(&written, &[1], 2, 40);
    assert!(matches!(refused[..], [Answer::Refused(_)]));
    // The next transaction of the session has written something else.
    let next = RequestId { sequence: 2, ..id };
    assert_eq!(group.write(0, next, &[&keys[0]], Some("new")), [Answer::Committed]);
    assert!(group.site(0).written(id).is_none() && group.site(0).written(next).is_some());
}

/// The region's sites are fenced while a client waits for one of them; a new incarnation counts when it has
/// acknowledged what it has fetched.
#[test]
fn a_fenced_site_counts_no_more_until_it_is_back() {
    let mut group = regions(1, 1);
    let key = group.key(0, 0);
    group.committed(0, &[&key]);
    group.tick(4);
    group.lose(0, 3);
    group.lose(1, 3);
    group.lose(2, 3);
    let (_, written) = group.written(&key);
    assert_eq!(group.wait_for(&written, &[1], 2, 40), []);
    assert_eq!(group.fence_of(3), [Answer::Unknown], "it does not wait for its time");
    assert_eq!(group.wait_for(&written, &[1], 2, 40), [Answer::Unknown]);
    group.tick(4);
    assert!(group.site(0).outgoing.len() == 0, "nothing is kept for site 3");
    group.lost.clear();
    group.is_lost = |message| matches!(message, Message::Applied { .. });
    group.lose_disk(3);
    group.tick(60);
    assert!(group.site(0).fences.excluded.is_empty(), "site 3 counts again");
    assert_eq!(group.wait_for(&written, &[1], 2, 40), [], "and has acknowledged nothing");
    group.is_lost = |_| false;
    assert_eq!(group.ticks_of(0, 20), [Answer::Committed]);
}
