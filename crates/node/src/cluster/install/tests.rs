//! Pieces that come, or don't, and what is installed.

use super::*;
use crate::cluster::checkpoint::newest_bases;
use crate::cluster::checkpoint::tests::{base, bases, map, node, write};
use sim::disk::VirtualDisk;

const P0: PartitionId = PartitionId(0);
const P1: PartitionId = PartitionId(1);
const P2: PartitionId = PartitionId(2);

#[test]
fn pieces_are_asked_for_in_turn_and_again_when_they_do_not_come() {
    let both = vec![PartitionId(0), PartitionId(3)];
    let mut install = Install::new(Epoch(7), NodeId(1), both);
    let piece = |partition, offset| Piece { partition: PartitionId(partition), epoch: Epoch(7), offset };
    assert_eq!(install.next(10), Some(piece(0, 0)));
    assert_eq!(install.next(11), None);
    assert_eq!(install.next(14), Some(piece(0, 0)), "asked again");
    assert!(!install.takes(piece(0, 5), 14) && !install.takes(piece(3, 0), 14));
    assert!(install.takes(piece(0, 0), 14));
    assert!(!install.takes(piece(0, 0), 14), "it came twice");
    assert_eq!(install.next(30), None, "it is being written");
    install.written(piece(0, 0), 5, false);
    assert_eq!(install.next(31), Some(piece(0, 5)));
    assert!(install.takes(piece(0, 5), 14));
    install.written(piece(0, 5), 2, true);
    assert_eq!(install.next(32), Some(piece(3, 0)));
    assert!(!install.is_complete() && install.takes(piece(3, 0), 14));
    install.written(piece(3, 0), 0, true);
    assert!(install.is_complete());
}

fn piece(partition: PartitionId, epoch: u64, offset: u64) -> Piece {
    Piece { partition, epoch: Epoch(epoch), offset }
}

#[test]
fn only_the_piece_that_is_waited_for_counts_when_it_is_written() {
    let mut install = Install::new(Epoch(7), NodeId(1), vec![P0, P1]);
    install.written(piece(P0, 7, 0), 5, true);
    assert_eq!(install.next(1), Some(piece(P0, 7, 0)));
    assert!(install.takes(piece(P0, 7, 0), 1));
    for other in [piece(P0, 6, 0), piece(P0, 7, 5), piece(P1, 7, 0)] {
        install.written(other, 5, true);
        assert_eq!(install.next(100), None, "it is being written");
    }
    // A newer checkpoint is fetched instead: it waits for the disk, and begins at the beginning.
    let mut newer = Install::new(Epoch(9), NodeId(1), vec![P0]).in_place_of(&install);
    assert_eq!(newer.next(2), None, "the disk is busy");
    assert!(!newer.takes(piece(P0, 9, 0), 2));
    newer.written(piece(P0, 7, 0), 5, true);
    assert!(!newer.is_complete());
    assert_eq!(newer.next(3), Some(piece(P0, 9, 0)));
    // The file is begun anew, from another node, while a piece of it is written.
    assert!(newer.takes(piece(P0, 9, 0), 3));
    newer.from = Some(NodeId(1));
    newer.refused(Epoch(8));
    newer.written(piece(P0, 9, 0), 5, true);
    assert!(!newer.is_complete());
    assert_eq!(newer.next(100), Some(piece(P0, 9, 0)));
    assert!(newer.takes(piece(P0, 9, 0), 100));
    newer.written(piece(P0, 9, 0), 5, true);
    assert!(newer.is_complete());
}

#[test]
fn bases_that_do_not_cover_all_that_was_wanted_are_refused() {
    let map = map(&[P0, P1]);
    let mut install = Install::new(Epoch(7), NodeId(1), vec![P0, P1]);
    let read = || {
        let base = base(7, &map);
        let state = BaseState::decode(&base.state).expect("a state");
        (base, state)
    };
    install.bases.insert(P0, read());
    assert_eq!(install.read_bases(), Err(P1));
    install.bases.insert(P1, read());
    assert_eq!(install.read_bases(), Ok(bases(7, &map, &[P0, P1])));
    install.want([P1, P2]);
    assert_eq!(install.wanted, [P0, P1, P2]);
    assert_eq!(install.read_bases(), Err(P2));
}

/// A node hears of others.
fn hear(node: &mut ClusterNode, others: &[NodeId], effects: &mut ClusterEffects) {
    for &from in others {
        let checkpoint = Epoch(0);
        let clock = Frame::Clock { standing: None, hears_all: true, map_version: 1, checkpoint };
        let bytes = clock.encode(0).into();
        node.handle(HostEvent::Frame { from, bytes }, 0, effects);
    }
    effects.host.frames.clear();
}

/// Whom a node asks for which files.
fn asked(effects: &mut ClusterEffects, registry: &txn::Registry) -> Vec<(NodeId, Piece)> {
    let frames = effects.host.frames.drain(..);
    let fetch = |(to, bytes): (NodeId, Vec<u8>)| match Frame::decode(&bytes.into(), registry) {
        Ok((_, Frame::Fetch(piece))) => Some((to, piece)),
        _ => None,
    };
    frames.filter_map(fetch).collect()
}

/// The whole file comes, and is written.
fn give(node: &mut ClusterNode, from: NodeId, piece: Piece, effects: &mut ClusterEffects) {
    let map = node.map().clone();
    let mut encoded = Vec::new();
    base(piece.epoch.0, &map).encode(&mut encoded);
    let bytes = Bytes::from_static(b"all");
    let taken = node.piece_came(from, piece, 3, encoded.into(), bytes, effects);
    assert_eq!(taken, Ok(()));
    assert!(effects.host.write.take().is_some_and(|(_, _, whole)| whole.is_some()));
    node.installs.written(piece, 3, true);
    node.fetch(effects);
}

#[test]
fn what_the_map_wants_meanwhile_is_fetched_before_a_checkpoint_is_installed() {
    let all = [P0, P1, P2];
    let (mut node, mut effects) = (node(3, &[P0], &all), ClusterEffects::default());
    let registry = txn::Registry::new();
    hear(&mut node, &[NodeId(3), NodeId(4)], &mut effects);
    // When it began, the map wanted nothing but 1.
    node.installs.install = Some(Install::new(Epoch(3), NodeId(3), vec![P1]));
    node.fetch(&mut effects);
    for partition in [P1, P2] {
        assert!(!node.installs.is_ending(), "{partition} is missing");
        let question = asked(&mut effects, &registry);
        let &[(from, awaited)] = &question[..] else {
            panic!("one question: {question:?}");
        };
        assert_eq!(awaited, piece(partition, 3, 0));
        give(&mut node, from, awaited, &mut effects);
    }
    assert!(node.installs.is_ending());
    let with_base = |kept: &&Kept| kept.base.is_some() && kept.partition < PartitionId(9);
    let begun: Vec<_> = effects.host.kept.iter().filter(with_base).collect();
    assert_eq!(begun.len(), 2, "its own has one");
    let images = effects.host.kept.iter().map(|kept| {
        let base = kept.base.clone().unwrap_or_default();
        let image = log::GroupImage { base, ..Default::default() };
        (kept.partition, image)
    });
    let begin = newest_bases(&images.collect()).expect("bases");
    assert_eq!(begin.epoch, Epoch(3));
    assert!(begin.bases.keys().eq(&all), "{:?}", begin.bases.keys());
}

#[test]
fn an_older_checkpoint_is_not_installed_over_one_that_is_about_to_count() {
    let (mut node, mut effects) = (node(3, &[P0], &[P0, P1]), ClusterEffects::default());
    hear(&mut node, &[NodeId(3)], &mut effects);
    // Its own newest is in the journal, and not yet durable.
    let own = bases(9, &map(&[P0, P1]), &[P0]);
    node.record_fetched(Epoch(9), own, &mut effects);
    effects.host.kept.clear();
    node.installs.install = Some(Install::new(Epoch(7), NodeId(3), vec![P0, P1]));
    node.fetch(&mut effects);
    for partition in [P0, P1] {
        let piece = piece(partition, 7, 0);
        let install = node.installs.install.as_mut().expect("fetched");
        install.from = Some(NodeId(3));
        give(&mut node, NodeId(3), piece, &mut effects);
    }
    assert!(!node.installs.is_ending() && effects.host.kept.is_empty());
    // It counts: the rest is fetched at its epoch.
    node.candidate(Epoch(9), &mut effects);
    node.fetch(&mut effects);
    let install = node.installs.install.as_ref().expect("fetched");
    assert_eq!((install.epoch, &install.wanted[..]), (Epoch(9), &[P1][..]));
}

#[test]
fn whoever_may_have_a_checkpoint_is_asked() {
    let (mut node, mut effects) = (node(3, &[P0], &[P0, P1]), ClusterEffects::default());
    let registry = txn::Registry::new();
    // By the map of this node neither is a replica. The group has 2 as a member; 4 said that this node is
    // behind.
    let (member, source) = (NodeId(2), NodeId(4));
    let replicas = |node: &ClusterNode| node.map().partition(P0).replicas.clone();
    let mut known = replicas(&node).into_values();
    assert!(known.all(|node| node != member && node != source));
    hear(&mut node, &[member], &mut effects);
    assert_eq!(node.who_has(P0, Some(source)), [member], "4 is not heard");
    hear(&mut node, &[source], &mut effects);
    assert_eq!(node.who_has(P0, Some(source)), [source, member]);
    node.begin_install(Epoch(7), source);
    node.fetch(&mut effects);
    assert_eq!(asked(&mut effects, &registry), [(source, piece(P0, 7, 0))]);
}

#[test]
fn what_nobody_has_any_more_is_not_waited_for() {
    let (mut node, mut effects) = (node(3, &[P0, P1], &[P0, P1]), ClusterEffects::default());
    let registry = txn::Registry::new();
    let (member, source) = (NodeId(2), NodeId(4));
    hear(&mut node, &[member, source], &mut effects);
    node.fall_behind(source, P0, Epoch(9));
    node.fetch(&mut effects);
    assert_eq!(asked(&mut effects, &registry), [(source, piece(P0, 9, 0))]);
    give(&mut node, source, piece(P0, 9, 0), &mut effects);
    // The one who said so does not keep the other partition; who does has an older one. They may be late:
    // they are asked again.
    let refuse = |node: &mut ClusterNode, effects: &mut ClusterEffects, newest: [Epoch; 2]| {
        let mut rounds = 0;
        let epoch = node.installs.install.as_ref().map(|install| install.epoch);
        for _ in 0..20 {
            if !epoch.is_some_and(|epoch| node.installs.fetches(epoch)) {
                break;
            }
            node.ticks += 40;
            // They are heard, which is when a node goes on with what it fetches.
            for from in [member, source] {
                node.peers.heard(from, 0, 0, node.ticks);
            }
            node.fetch(effects);
            for (to, _) in asked(effects, &registry) {
                let place = usize::from(to == member);
                rounds += place;
                node.newest_is(to, newest[place]);
            }
        }
        rounds
    };
    effects.host.frames.clear();
    let install = node.installs.install.as_mut().expect("it is fetched");
    install.from = Some(source);
    node.newest_is(source, Epoch(9));
    assert_eq!(refuse(&mut node, &mut effects, [Epoch(9), Epoch(5)]), 3);
    assert!(node.installs.fetches(Epoch(5)));
    // Nobody has that one either, and nothing that this node does not have itself. 9 is known not to be had.
    assert_eq!(refuse(&mut node, &mut effects, [Epoch(9), Epoch(0)]), 3);
    assert!(!node.is_installing());
    node.fall_behind(source, P0, Epoch(9));
    assert!(!node.is_installing(), "that was a moment ago");
    node.ticks += *PAUSE_TICKS.end();
    node.fall_behind(source, P0, Epoch(9));
    assert!(node.installs.fetches(Epoch(9)));
}

#[test]
fn where_no_replica_is_heard_any_node_is_asked_for_what_is_missing() {
    let (mut node, mut effects) = (node(3, &[P0], &[P0, P1]), ClusterEffects::default());
    hear(&mut node, &[NodeId(2)], &mut effects);
    let mut known = node.map().partition(P1).replicas.values();
    assert!(known.all(|&node| node != NodeId(2)));
    node.keep_more(&mut effects);
    let install = node.installs.install.as_ref().expect("it is fetched");
    assert_eq!((install.source, &install.wanted[..]), (NodeId(2), &[P1][..]));
}

/// How often each of 20 pieces is asked for where the source's link needs `piece_ticks` for each.
fn questions(piece_ticks: u64, loses: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut install = Install::new(Epoch(7), NodeId(1), vec![PartitionId(0)]);
    let (mut link_free_tick, mut questions) = (0, vec![0; 20]);
    let mut answers: Vec<(u64, Piece)> = Vec::new();
    for tick in 0..100_000 {
        while let Some(place) = answers.iter().position(|&(due, _)| due <= tick) {
            let (_, piece) = answers.remove(place);
            if install.takes(piece, tick) {
                install.written(piece, 1, piece.offset == 19);
            }
        }
        if install.is_complete() {
            return questions;
        }
        if let Some(piece) = install.next(tick) {
            questions[piece.offset as usize] += 1;
            if !loses(questions[piece.offset as usize]) {
                link_free_tick = tick.max(link_free_tick) + piece_ticks;
                answers.push((link_free_tick, piece));
            }
        }
    }
    panic!("not even a tick a thousand times over is enough: {questions:?}");
}

#[test]
fn a_slow_link_is_not_filled_with_pieces_that_were_asked_for_too_early() {
    for piece_ticks in [0, 1, 3, 4, 7, 20, 100] {
        let questions = questions(piece_ticks, |_| false);
        let wasted = questions.iter().sum::<u64>() - 20;
        assert!(wasted <= 8, "{piece_ticks}: {questions:?}");
        assert!(questions[10..].iter().all(|&asked| asked == 1), "{piece_ticks}: {questions:?}");
    }
}

#[test]
fn a_link_that_loses_every_first_answer_still_brings_everything() {
    assert_eq!(questions(1, |asked| asked == 1), vec![2; 20]);
}

#[test]
fn a_file_that_is_no_checkpoint_is_not_kept() {
    let (given, disk) = (VirtualDisk::new(1), VirtualDisk::new(2));
    write(&given, 3, &[P0]);
    let first = piece(P0, 3, 0);
    let (_, bytes) = read_piece(&given, first).expect("a checkpoint");
    let sound = Whole { next: Position::FIRST, digest: 3 };
    let mut turned = bytes.clone();
    turned[bytes.len() / 2] ^= 1;
    let other = Whole { digest: 4, ..sound };
    let cut = bytes[..bytes.len() - 1].to_vec();
    for (bytes, whole) in [(turned, sound), (cut, sound), (bytes.clone(), other)] {
        let written = write_piece(&disk, first, &bytes, Some(whole));
        let error = written.expect_err("it is none");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert_eq!(disk.list().expect("a list"), [""; 0]);
    }
    write_piece(&disk, first, &bytes, Some(sound)).expect("it is one");
    assert_eq!(disk.list().expect("a list"), [file_name(P0, Epoch(3))]);
}

#[test]
fn a_checkpoint_that_cannot_be_costs_the_link_and_is_fetched_from_another() {
    let all = [P0, P1, P2];
    let registry = txn::Registry::new();
    type Spoil = fn(&mut Base, &mut BaseState, &mut (Piece, u64, Bytes));
    let spoil: [(&str, Spoil); 8] = [
        ("epoch", |_, state, _| state.epoch.0 += 1),
        ("cluster", |_, state, _| state.map.cluster += 1),
        ("time", |_, state, _| state.time_ms = u64::MAX),
        ("place", |base, _, _| base.index = u64::MAX - 1),
        ("term", |base, _, _| base.term = 0),
        ("members", |base, _, _| base.members.voters.clear()),
        ("no bytes", |_, _, (.., bytes)| bytes.clear()),
        ("more than the whole", |_, _, (_, total, _)| *total = 2),
    ];
    for (what, spoil) in spoil {
        let (mut node, mut effects) = (node(3, &[P0], &all), ClusterEffects::default());
        hear(&mut node, &[NodeId(3), NodeId(4)], &mut effects);
        node.installs.install = Some(Install::new(Epoch(3), NodeId(3), vec![P1]));
        node.fetch(&mut effects);
        let (from, awaited) = asked(&mut effects, &registry)[0];
        let mut base = base(3, node.map());
        let mut state = BaseState::decode(&base.state).expect("a state");
        let mut given = (awaited, 3, Bytes::from_static(b"all"));
        spoil(&mut base, &mut state, &mut given);
        base.state = state.encode().into();
        let mut encoded = Vec::new();
        base.encode(&mut encoded);
        let (piece, total, bytes) = given;
        let came = node.piece_came(from, piece, total, encoded.into(), bytes, &mut effects);
        assert!(came.is_err(), "{what}");
        assert!(effects.host.write.is_none(), "{what}");
        node.fetch(&mut effects);
        assert_ne!(asked(&mut effects, &registry)[0].0, from, "{what}");
    }
    // One that shows only when it is whole.
    let (mut node, mut effects) = (node(3, &[P0], &all), ClusterEffects::default());
    hear(&mut node, &[NodeId(3), NodeId(4)], &mut effects);
    node.installs.install = Some(Install::new(Epoch(3), NodeId(3), vec![P1]));
    node.fetch(&mut effects);
    let (from, piece) = asked(&mut effects, &registry)[0];
    let mut encoded = Vec::new();
    base(3, node.map()).encode(&mut encoded);
    let bytes = Bytes::from_static(b"all");
    let came = node.piece_came(from, piece, 3, encoded.into(), bytes, &mut effects);
    assert_eq!(came, Ok(()));
    let cause = "damaged".to_owned();
    node.handle(HostEvent::PieceSpoilt { piece, cause }, 0, &mut effects);
    let severed: Vec<NodeId> = effects.host.severed.iter().map(|(peer, _)| *peer).collect();
    assert_eq!(severed, [from]);
    assert_ne!(asked(&mut effects, &registry)[0].0, from);
}
