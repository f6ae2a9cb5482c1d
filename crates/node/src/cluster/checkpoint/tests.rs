//! What stays on the disk, and where a process starts. Also what other tests make nodes with checkpoints of.

use super::*;
use crate::cluster::{ClusterOptions, ClusterRecoverError, ClusterStart, load_engines};
use execute::Serial;
use log::{DiskFile, Entry, EntryKind, HardState, Members};
use order::Described;
use sim::disk::VirtualDisk;
use txn::Registry;

pub(in crate::cluster) const ME: NodeId = NodeId(1);
const P0: PartitionId = PartitionId(0);
const P1: PartitionId = PartitionId(1);
const P2: PartitionId = PartitionId(2);

/// Four nodes in two zones; the first one keeps these partitions, out of four, in its zone.
pub(in crate::cluster) fn map(kept: &[PartitionId]) -> PartitionMap {
    let described = |(number, zone): (usize, &str)| Described {
        name: format!("n{number}"),
        zone: zone.to_owned(),
        peer_address: format!("n{number}:7001"),
        client_address: format!("n{number}:6379"),
    };
    let zones = ["x", "x", "y", "y"].into_iter().enumerate();
    let described: Vec<Described> = zones.map(described).collect();
    let mut map = PartitionMap::new("test", &described, 4).expect("a map");
    for (number, entry) in map.partitions.iter_mut().enumerate() {
        let keeps = kept.contains(&PartitionId(number as u16));
        for node in entry.replicas.values_mut().filter(|node| node.0 <= 2) {
            *node = if keeps { ME } else { NodeId(2) };
        }
    }
    map
}

/// A base at the end of an epoch, with nothing in the partition.
pub(in crate::cluster) fn base(epoch: u64, map: &PartitionMap) -> Base {
    let state = BaseState {
        epoch: Epoch(epoch),
        time_ms: 0,
        digest: epoch,
        next: Position::FIRST,
        streams: Streams::default(),
        map: map.clone(),
        state_digest: None,
    };
    Base {
        index: epoch,
        term: 1,
        members: Members { voters: vec![ME, NodeId(2), NodeId(3)], ..Members::default() },
        state: state.encode().into(),
    }
}

pub(in crate::cluster) fn bases(
    epoch: u64,
    map: &PartitionMap,
    of: &[PartitionId],
) -> BTreeMap<PartitionId, Base> {
    of.iter().map(|&of| (of, base(epoch, map))).collect()
}

fn image(base: Base) -> GroupImage {
    GroupImage { hard_state: HardState { term: 1, vote: 0, commit: base.index }, base, entries: Vec::new() }
}

pub(in crate::cluster) fn taken(epoch: u64, of: &[PartitionId]) -> Taken {
    Taken { epoch: Epoch(epoch), bases: bases(epoch, &map(of), of), start: true, asked_tick: None }
}

/// A journal whose logs begin behind one checkpoint, and that knows of another.
pub(in crate::cluster) fn images(own: u64, of: &[PartitionId], candidate: Taken) -> GroupImages {
    let map = map(of);
    let own = of.iter().map(|&partition| match own {
        0 => (partition, GroupImage::default()),
        own => (partition, image(base(own, &map))),
    });
    let kept = kept_aside(CANDIDATES, candidate.epoch.0, candidate.encode());
    let candidate = image(kept.base.expect("a base"));
    own.chain([(CANDIDATES, candidate)]).collect()
}

fn engine() -> Arc<dyn Engine> {
    Arc::new(Serial::new())
}

pub(in crate::cluster) fn write(disk: &VirtualDisk, epoch: u64, of: &[PartitionId]) {
    let part = |&partition: &PartitionId| {
        let engine = engine();
        Part {
            partition,
            header: Header {
                position: Position::NONE,
                epoch: Epoch(epoch),
                time_ms: 0,
                digest: epoch,
                boot: 0,
                clears: Vec::new(),
            },
            snapshot: Some(engine.view().open()),
            engine,
        }
    };
    let parts = of.iter().map(part).collect();
    let epoch = Epoch(epoch);
    let job = ClusterCheckpoint { epoch, parts };
    let written = job.write(disk).expect("a disk that works");
    let size = |&partition: &PartitionId| file_bytes(disk, &file_name(partition, epoch));
    let sizes: Vec<u64> = of.iter().map(|of| size(of).expect("a file")).collect();
    assert_eq!(written.bytes, sizes.iter().sum::<u64>());
}

fn epochs(disk: &VirtualDisk) -> BTreeSet<u64> {
    let names = disk.list().expect("names");
    let epochs = names.iter().filter_map(|name| epoch_of_name(name));
    epochs.map(|epoch| epoch.0).collect()
}

fn recover(
    images: GroupImages,
    map: PartitionMap,
    engines: BTreeMap<PartitionId, Arc<dyn Engine>>,
) -> Result<ClusterNode, ClusterRecoverError> {
    let start = ClusterStart {
        known: Arc::new(map.clone()),
        map,
        images,
        engines,
        checkpoint_bytes: 0,
        unusable: false,
        nonce: 1,
    };
    ClusterNode::recover(ClusterOptions::new(ME), Registry::new(), start)
}

/// A node whose logs begin behind the checkpoint of an epoch, or at the beginning if that is 0, where the map
/// wants it to keep more than it does.
pub(in crate::cluster) fn node(epoch: u64, keeps: &[PartitionId], wanted: &[PartitionId]) -> ClusterNode {
    let map = map(wanted);
    let engines = keeps.iter().map(|&partition| (partition, engine()));
    let images = match epoch {
        0 => GroupImages::new(),
        epoch => {
            let candidate = Taken {
                epoch: Epoch(epoch),
                bases: bases(epoch, &map, keeps),
                start: true,
                asked_tick: None,
            };
            let mut images = images(epoch, keeps, candidate);
            for partition in keeps {
                images.insert(*partition, image(base(epoch, &map)));
            }
            images
        }
    };
    let node = recover(images, map, engines.collect());
    node.unwrap_or_else(|error| panic!("it starts: {error}"))
}

#[test]
fn what_is_written_after_a_list_was_made_stays_when_the_list_is_followed() {
    let disk = VirtualDisk::new(1);
    let begin = (Epoch(5), bases(5, &map(&[P0]), &[P0]));
    let mut checkpoints = Checkpoints::new(begin.clone(), Epoch(3), Some(begin), None, Schedule::default());
    checkpoints.writing = Some(taken(8, &[P0]));
    checkpoints.recording.push_back(taken(7, &[P0]));
    let needed = checkpoints.prune(0, Some(Epoch(4)));
    for epoch in [1, 2, 3, 4, 5, 7, 8, 9] {
        write(&disk, epoch, &[P0, P1]);
    }
    let unfinished = disk.create(&unfinished_name(P0, Epoch(10)), 0).expect("a file");
    unfinished.write_at(0, b"begun").expect("written");
    prune(&disk, &needed).expect("removed");
    // 3 is where the logs begin, 4 is being fetched.
    assert_eq!(epochs(&disk), BTreeSet::from([3, 4, 5, 7, 8, 9, 10]));
    // By then the older ones are not needed, and the list speaks of newer ones.
    checkpoints.durable_base = Epoch(7);
    checkpoints.taken.extend(checkpoints.recording.pop_front());
    checkpoints.taken.push_back(taken(9, &[P0]));
    checkpoints.base = Epoch(7);
    let needed = checkpoints.prune(FETCH_TICKS, None);
    prune(&disk, &needed).expect("removed");
    assert_eq!(epochs(&disk), BTreeSet::from([7, 8, 9, 10]));
    checkpoints.writing = None;
    prune(&disk, &checkpoints.prune(FETCH_TICKS, None)).expect("removed");
    assert_eq!(epochs(&disk), BTreeSet::from([7, 9, 10]));
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
    node.checkpoints.recording.push_back(taken(3, &[P0, P1]));
    node.keep_more(&mut effects);
    assert!(!effects.restart, "it would begin behind the checkpoint, and the new one at the beginning");
    node.checkpoints.writing = node.checkpoints.recording.pop_front();
    node.keep_more(&mut effects);
    assert!(!effects.restart);
    node.checkpoints.writing = None;
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
