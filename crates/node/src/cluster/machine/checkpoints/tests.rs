//! Where a process starts, and what it keeps.

use super::*;
use crate::checkpoint::file_bytes;
use crate::cluster::base::{BaseState, CANDIDATES};
use crate::cluster::candidates::{Taken, newest_bases};
use crate::cluster::checkpoint::{LoadError, epoch_of_name, file_name, prune};
use crate::cluster::fixtures::{
    P0, P1, P2, base, bases, engine, image, images, map, node, recover, taken, write,
};
use crate::cluster::load_engines;
use log::{Disk, Entry, EntryKind, GroupImage, GroupImages, HardState};
use sim::disk::VirtualDisk;
use std::collections::BTreeSet;

fn epochs(disk: &VirtualDisk) -> BTreeSet<u64> {
    let names = disk.list().expect("names");
    let epochs = names.iter().filter_map(|name| epoch_of_name(name));
    epochs.map(|epoch| epoch.0).collect()
}

#[test]
fn a_start_keeps_the_files_of_where_the_logs_begin_and_of_where_it_starts() {
    let disk = VirtualDisk::new(1);
    for epoch in [3, 5, 7, 9] {
        write(&disk, epoch, &[P0, P1]);
    }
    let images = images(3, &[P0, P1], taken(7, &[P0, P1]));
    let loaded =
        load_engines(&disk, BTreeSet::new(), &images, false, &|_| engine(), &mut |_| {}).expect("loaded");
    let engines = loaded.engines;
    assert_eq!(engines.len(), 2);
    let size = |partition| file_bytes(&disk, &file_name(partition, Epoch(7))).expect("a file");
    assert_eq!(loaded.checkpoint_bytes, size(P0) + size(P1));
    assert_eq!(epochs(&disk), BTreeSet::from([3, 7]));
    let mut node = recover(images, map(&[P0, P1]), engines).expect("it starts");
    assert_eq!(node.confirmed().epoch, Epoch(7));
    let mut effects = ClusterEffects::default();
    node.look_at_files(&mut effects);
    prune(&disk, &effects.host.prune.take().expect("a list")).expect("removed");
    assert_eq!(epochs(&disk), BTreeSet::from([3, 7]));
    node.rebased(Epoch(7), &mut effects);
    prune(&disk, &effects.host.prune.take().expect("a list")).expect("removed");
    assert_eq!(epochs(&disk), BTreeSet::from([7]));
}

#[test]
fn a_start_reads_again_what_others_may_need_to_hear() {
    let disk = VirtualDisk::new(1);
    for epoch in [3, 7] {
        write(&disk, epoch, &[P0, P1]);
    }
    // Its newest checkpoint was not fetched to start behind it.
    let own = Taken { start: false, ..taken(7, &[P0, P1]) };
    let even = images(3, &[P0, P1], own.clone());
    assert_eq!(newest_bases(&even).expect("a beginning").epoch, Epoch(3));
    let loaded =
        load_engines(&disk, BTreeSet::new(), &even, false, &|_| engine(), &mut |_| {}).expect("loaded");
    assert_eq!(epochs(&disk), BTreeSet::from([3, 7]), "others may fetch it");
    let mut node = recover(even, map(&[P0, P1]), loaded.engines).expect("it starts");
    assert_eq!(node.confirmed().epoch, Epoch(3));
    assert_eq!(node.checkpoints.newest(), Epoch(7));
    // What was taken is not taken again when its place in the order is read again.
    let mut end = node.confirmed().clone();
    for (epoch, is_taken) in [(5, false), (7, false), (8, true)] {
        end.epoch = Epoch(epoch);
        node.pin(&end);
        assert_eq!(node.checkpoints.are_taken(), is_taken, "{epoch}");
    }
    node.checkpoints.close();
    // With one log that begins later there is no other epoch that all have.
    let mut uneven = images(3, &[P0], own);
    uneven.insert(P1, image(base(5, &map(&[P0, P1]))));
    assert_eq!(newest_bases(&uneven).expect("a beginning").epoch, Epoch(7));
}

#[test]
fn a_partition_without_a_checkpoint_is_left_out_beside_others_that_have_one() {
    for own in [0, 3] {
        let disk = VirtualDisk::new(1);
        for epoch in [3, 7] {
            write(&disk, epoch, &[P0, P1]);
        }
        let mut images = images(own, &[P0, P1], taken(7, &[P0, P1]));
        // It has heard of a term, and nothing else.
        let heard = HardState { term: 4, ..HardState::default() };
        images.entry(P2).or_default().hard_state = heard;
        let kept = BTreeSet::from([P0, P1, P2, PartitionId(3)]);
        let loaded = load_engines(&disk, kept, &images, false, &|_| engine(), &mut |_| {}).expect("loaded");
        let engines = loaded.engines;
        assert_eq!(engines.keys().copied().collect::<Vec<_>>(), [P0, P1]);
        // A list of engines that does not agree is refused.
        let mut uneven = engines.clone();
        uneven.insert(P2, engine());
        let refused = recover(images.clone(), map(&[P0, P1, P2]), uneven);
        let refused = refused.err().map(|error| error.to_string());
        assert!(refused.is_some_and(|text| text.contains("replace the node")));
        let node = recover(images, map(&[P0, P1, P2]), engines).expect("it starts");
        assert_eq!(node.confirmed().epoch, Epoch(7));
        assert_eq!(node.engines().count(), 2);
    }
}

#[test]
fn at_the_beginning_nothing_is_left_out() {
    let disk = VirtualDisk::new(1);
    let images = GroupImages::from([(P0, GroupImage::default())]);
    let made =
        load_engines(&disk, BTreeSet::from([P1]), &images, false, &|_| engine(), &mut |_| {}).expect("made");
    assert_eq!(made.checkpoint_bytes, 0);
    let engines = made.engines;
    assert_eq!(engines.keys().copied().collect::<Vec<_>>(), [P0, P1]);
}

#[test]
fn logs_that_begin_at_several_epochs_without_a_checkpoint_of_all_are_refused() {
    let entry = Entry { index: 1, term: 1, kind: EntryKind::Data, data: Bytes::new() };
    // It has promised an entry, and has no base.
    let mut promised = images(7, &[P0, P1], taken(7, &[P0, P1]));
    promised.entry(P2).or_default().entries.push(entry);
    // The candidate does not have the one whose base is newer.
    let mut newer = images(3, &[P0, P1], taken(7, &[P0, P1]));
    newer.insert(P2, image(base(7, &map(&[P0, P1, P2]))));
    for images in [promised, newer] {
        let disk = VirtualDisk::new(1);
        for epoch in [3, 7] {
            write(&disk, epoch, &[P0, P1, P2]);
        }
        let refused = load_engines(&disk, BTreeSet::new(), &images, false, &|_| engine(), &mut |_| {}).err();
        let text = refused.as_ref().map(LoadError::to_string);
        assert!(matches!(refused, Some(LoadError::Uneven { .. })), "{text:?}");
        assert!(text.is_some_and(|text| text.contains("replace the node")));
        assert_eq!(epochs(&disk), BTreeSet::from([3, 7]), "nothing is touched");
    }
}

#[test]
fn bases_whose_files_are_gone_are_an_error() {
    // The candidate is older than what the logs have.
    let images = images(7, &[P0], taken(3, &[P0]));
    let disk = VirtualDisk::new(1);
    write(&disk, 3, &[P0]);
    let refused = load_engines(&disk, BTreeSet::new(), &images, false, &|_| engine(), &mut |_| {}).err();
    let text = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(text.contains(&file_name(P0, Epoch(7))), "{text}");
    assert!(text.contains("replace the node"), "{text}");
}

#[test]
fn a_node_without_checkpoints_waits_for_its_first_one_before_it_keeps_more() {
    let wanted = [P0, P1, P2];
    let mut effects = ClusterEffects::default();
    let mut node = node(0, &[P0, P1], &wanted);
    let bases = || bases(3, &map(&[P0, P1]), &[P0, P1]);
    node.checkpoints.record_fetched(Epoch(3), bases());
    node.keep_more(&mut effects);
    assert!(!effects.restart, "it would begin behind the checkpoint, and the new one at the beginning");
    node.checkpoints.recorded(Epoch(2));
    node.checkpoints.write(Epoch(3), bases());
    node.keep_more(&mut effects);
    assert!(!effects.restart);
    node.checkpoints.failed();
    node.keep_more(&mut effects);
    assert!(effects.restart);
}

#[test]
fn what_goes_along_with_bases_goes_along_once_in_a_record() {
    let mut node = node(3, &[P0, P1, P2], &[P0, P1, P2]);
    let mut effects = ClusterEffects::default();
    for round in 1..3 {
        let bases = bases(3 + round, &map(&[P0, P1, P2]), &[P0, P1, P2]);
        for (partition, base) in bases {
            let kept = Kept { base: Some(base), ..Kept::nothing(partition) };
            node.record(kept, &mut effects);
        }
        let count = |of: PartitionId| effects.host.kept.iter().filter(|kept| kept.partition == of).count();
        assert_eq!(count(CANDIDATES), 1, "record {round}");
        assert_eq!(effects.host.kept.len(), 4, "record {round}");
        effects.host.kept.clear();
    }
}

#[test]
fn a_base_without_a_state_digest_says_that_it_is_unknown() {
    let base = base(7, &map(&[P0]));
    let unknown = BaseState::decode(&base.state).expect("what older builds wrote");
    assert_eq!(unknown.state_digest, None);
    for digest in [0, 1, u64::MAX] {
        let known = BaseState { state_digest: Some(digest), ..unknown.clone() };
        let bytes = known.encode();
        assert_eq!(bytes.len(), base.state.len() + 8);
        assert_eq!(BaseState::decode(&bytes), Some(known));
        assert_eq!(BaseState::decode(&bytes[..bytes.len() - 1]), None, "a digest that is cut is no base");
    }
}
