//! What a node fetches, and of whom.

use super::*;
use crate::cluster::base::BaseState;
use crate::cluster::candidates::newest_bases;
use crate::cluster::fixtures::{P0, P1, P2, base, bases, map, node};
use crate::host::HostEvent;

fn piece(partition: PartitionId, epoch: u64, offset: u64) -> Piece {
    Piece { partition, epoch: Epoch(epoch), offset }
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
    node.transfer.written(piece, 3, true);
    node.fetch(effects);
}

#[test]
fn what_the_map_wants_meanwhile_is_fetched_before_a_checkpoint_is_installed() {
    let all = [P0, P1, P2];
    let (mut node, mut effects) = (node(3, &[P0], &all), ClusterEffects::default());
    let registry = txn::Registry::new();
    hear(&mut node, &[NodeId(3), NodeId(4)], &mut effects);
    // When it began, the map wanted nothing but 1.
    node.transfer.begin(Begin::new(Epoch(3), NodeId(3)), vec![P1]);
    node.fetch(&mut effects);
    for partition in [P1, P2] {
        assert!(!node.transfer.is_ending(), "{partition} is missing");
        let question = asked(&mut effects, &registry);
        let &[(from, awaited)] = &question[..] else {
            panic!("one question: {question:?}");
        };
        assert_eq!(awaited, piece(partition, 3, 0));
        give(&mut node, from, awaited, &mut effects);
    }
    assert!(node.transfer.is_ending());
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
    let registry = txn::Registry::new();
    hear(&mut node, &[NodeId(3)], &mut effects);
    // Its own newest is in the journal, and not yet durable.
    let own = bases(9, &map(&[P0, P1]), &[P0]);
    node.record_fetched(Epoch(9), own, &mut effects);
    effects.host.kept.clear();
    node.transfer.begin(Begin::new(Epoch(7), NodeId(3)), vec![P0, P1]);
    node.fetch(&mut effects);
    for partition in [P0, P1] {
        let piece = piece(partition, 7, 0);
        assert_eq!(asked(&mut effects, &registry), [(NodeId(3), piece)]);
        give(&mut node, NodeId(3), piece, &mut effects);
    }
    assert!(!node.transfer.is_ending() && effects.host.kept.is_empty());
    // It counts: the rest is fetched at its epoch.
    node.candidate(Epoch(9), &mut effects);
    node.fetch(&mut effects);
    assert_eq!(node.transfer.fetching(), Some(Epoch(9)));
    node.fetch(&mut effects);
    assert_eq!(asked(&mut effects, &registry), [(NodeId(3), piece(P1, 9, 0))]);
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
    node.begin_transfer(Begin::new(Epoch(7), source));
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
        let epoch = node.transfer.fetching();
        for _ in 0..20 {
            if epoch.is_none() || node.transfer.fetching() != epoch {
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
    node.newest_is(source, Epoch(9));
    assert_eq!(refuse(&mut node, &mut effects, [Epoch(9), Epoch(5)]), 3);
    assert_eq!(node.transfer.fetching(), Some(Epoch(5)));
    // Nobody has that one either, and nothing that this node does not have itself. 9 is known not to be had.
    assert_eq!(refuse(&mut node, &mut effects, [Epoch(9), Epoch(0)]), 3);
    assert!(!node.transfer.is_installing());
    node.fall_behind(source, P0, Epoch(9));
    assert!(!node.transfer.is_installing(), "that was a moment ago");
    node.ticks += 200;
    node.fall_behind(source, P0, Epoch(9));
    assert_eq!(node.transfer.fetching(), Some(Epoch(9)));
}

#[test]
fn where_no_replica_is_heard_any_node_is_asked_for_what_is_missing() {
    let (mut node, mut effects) = (node(3, &[P0], &[P0, P1]), ClusterEffects::default());
    hear(&mut node, &[NodeId(2)], &mut effects);
    let mut known = node.map().partition(P1).replicas.values();
    assert!(known.all(|&node| node != NodeId(2)));
    node.keep_more(&mut effects);
    node.fetch(&mut effects);
    assert_eq!(asked(&mut effects, &txn::Registry::new()), [(NodeId(2), piece(P1, 3, 0))]);
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
        node.transfer.begin(Begin::new(Epoch(3), NodeId(3)), vec![P1]);
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
    node.transfer.begin(Begin::new(Epoch(3), NodeId(3)), vec![P1]);
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
