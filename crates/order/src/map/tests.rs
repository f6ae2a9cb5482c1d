use super::*;
use crate::moves::SlotMove;

fn described(nodes: &[(&str, &str)]) -> Vec<Described> {
    nodes
        .iter()
        .map(|(name, zone)| Described {
            name: name.to_string(),
            zone: zone.to_string(),
            peer_address: format!("{name}:7001"),
            client_address: format!("{name}:6379"),
        })
        .collect()
}

fn three() -> PartitionMap {
    let nodes = described(&[("a", "x"), ("b", "y"), ("c", "z"), ("d", "x")]);
    PartitionMap::new("test", &nodes, 3).expect("a map")
}

#[test]
fn every_slot_has_one_partition_and_every_zone_a_replica_of_each() {
    let map = three();
    let mut slots = 0;
    for partition in map.partition_ids() {
        for &(first, last) in &map.partition(partition).slots {
            slots += u32::from(last - first) + 1;
            assert_eq!(map.partition_of_slot(first), partition);
            assert_eq!(map.partition_of_slot(last), partition);
        }
        assert_eq!(map.partition(partition).replicas.len(), 3);
    }
    assert_eq!(slots, u32::from(SLOTS));
    let kept: Vec<usize> = (1..=4).map(|node| map.kept_by(NodeId(node)).count()).collect();
    assert_eq!(kept, [2, 3, 3, 1]);
    let leaders: Vec<_> = map.partition_ids().map(|p| map.preferred_leader(p)).collect();
    assert_eq!(leaders, [Some(NodeId(1)), Some(NodeId(2)), Some(NodeId(3))]);
}

#[test]
fn slots_move_from_one_partition_to_another_and_back() {
    let mut map = three();
    let before = map.clone();
    let change = |version, first, last, to| Control::MoveSlots {
        version,
        slots: SlotRange { first, last },
        to: PartitionId(to),
    };
    for (what, control) in [
        ("another version", change(2, 0, 9, 1)),
        ("slots of two partitions", change(1, 5_000, 6_000, 2)),
        ("to whom they belong", change(1, 0, 9, 0)),
        ("to nobody", change(1, 0, 9, 3)),
        ("backwards", change(1, 9, 8, 1)),
        ("beyond the last slot", change(1, 16_000, SLOTS, 0)),
    ] {
        assert_eq!(map.apply(&control, Epoch(1)), Changed::Nothing, "{what}");
    }
    assert_eq!(map, before);

    let moved = map.apply(&change(1, 100, 199, 2), Epoch(2));
    let expected = SlotMove {
        slots: SlotRange { first: 100, last: 199 },
        from: PartitionId(0),
        to: PartitionId(2),
        version: 2,
    };
    assert_eq!(moved, Changed::Slots(expected));
    assert_eq!((map.version, map.slots_version), (2, 2));
    let slots = |map: &PartitionMap, at| map.partition(PartitionId(at)).slots.clone();
    assert_eq!(slots(&map, 0), [(0, 99), (200, 5_460)]);
    assert_eq!(slots(&map, 2), [(100, 199), (10_922, 16_383)]);
    assert_eq!(map.partition_of_slot(99), PartitionId(0));
    assert_eq!(map.partition_of_slot(150), PartitionId(2));
    let versions = map.partitions.iter().map(|entry| entry.slots_version);
    assert_eq!(versions.collect::<Vec<_>>(), [2, 0, 2]);
    let mut bytes = Vec::new();
    map.encode(&mut bytes);
    let decoded = PartitionMap::decode(&mut Reader::new(&bytes)).expect("readable");
    assert_eq!(decoded, map);
    let mut bytes = Vec::new();
    change(7, 100, 199, 2).encode(&mut bytes);
    let decoded = Control::decode(&mut Reader::new(&bytes));
    assert_eq!(decoded, Some(change(7, 100, 199, 2)));

    assert!(matches!(map.apply(&change(2, 100, 199, 0), Epoch(3)), Changed::Slots(_)));
    assert_eq!(slots(&map, 0), [(0, 5_460)]);
    assert!(map.slots().is_even() && map.slots_version == 3);
}

#[test]
fn a_change_that_was_decided_on_another_version_changes_nothing() {
    let mut map = three();
    let join = Control::AddNode {
        version: 1,
        name: "e".to_owned(),
        zone: ZoneId(2),
        peer_address: "e:7001".to_owned(),
        client_address: "e:6379".to_owned(),
    };
    assert_eq!(map.apply(&join, Epoch(1)), Changed::Map);
    assert_eq!(map.last_node, NodeId(5));
    assert_eq!(map.apply(&join, Epoch(1)), Changed::Nothing);
    let place = |version, partitions: &[u16], to| Control::PlaceReplicas {
        version,
        places: (partitions.iter()).map(|&partition| (PartitionId(partition), NodeId(to))).collect(),
    };
    assert_eq!(map.apply(&place(2, &[1], 5), Epoch(4)), Changed::Placed);
    assert_eq!(map.checkpoint, Epoch(4));
    assert_eq!(map.replica(PartitionId(1), ZoneId(2)), Some(NodeId(5)));
    for (why, refused) in [
        ("of another version", place(map.version - 1, &[0], 5)),
        ("nobody", place(map.version, &[0], 9)),
        ("no such partition", place(map.version, &[3], 5)),
        ("it has it", place(map.version, &[1], 5)),
        ("twice", place(map.version, &[0, 0], 5)),
        ("nothing", place(map.version, &[], 5)),
        ("one is left with nothing", place(map.version, &[0, 2], 5)),
    ] {
        assert_eq!(map.apply(&refused, Epoch(1)), Changed::Nothing, "{why}");
    }
    let leave = |version, node| Control::RemoveNode { version, node: NodeId(node) };
    assert_eq!(map.apply(&leave(3, 5), Epoch(1)), Changed::Nothing, "it keeps a replica");
    let drain = Control::Drain { version: map.version, node: NodeId(3) };
    assert_eq!(map.apply(&drain, Epoch(1)), Changed::Map);
    assert_eq!(map.apply(&leave(map.version, 3), Epoch(1)), Changed::Map);
    assert_eq!(map.last_node, NodeId(5), "its number is not given out again");
}

#[test]
fn a_node_that_is_to_leave_hands_everything_over_at_once_to_those_of_its_zone() {
    let mut map = three();
    let drain = |map: &PartitionMap, node| Control::Drain { version: map.version, node: NodeId(node) };
    let kept = |map: &PartitionMap, node| -> Vec<u16> {
        map.kept_by(NodeId(node)).map(|partition| partition.0).collect()
    };
    let before = map.clone();
    let alone = drain(&map, 2);
    assert_eq!(map.apply(&alone, Epoch(1)), Changed::Nothing, "nobody to take over");
    assert_eq!(map, before);
    let join = Control::AddNode {
        version: 1,
        name: "e".to_owned(),
        zone: ZoneId(0),
        peer_address: "e:7001".to_owned(),
        client_address: "e:6379".to_owned(),
    };
    assert_eq!(map.apply(&join, Epoch(1)), Changed::Map);
    let drained = drain(&map, 1);
    assert_eq!(map.apply(&drained, Epoch(1)), Changed::Map);
    assert!(map.nodes[&NodeId(1)].leaving);
    assert_eq!((kept(&map, 1), kept(&map, 4)), (vec![], vec![1, 2]));
    assert_eq!(kept(&map, 5), [0], "it had the fewest");
    let again = drain(&map, 1);
    assert_eq!(map.apply(&again, Epoch(1)), Changed::Nothing);
    let back = Control::PlaceReplicas { version: map.version, places: vec![(PartitionId(0), NodeId(1))] };
    assert_eq!(map.apply(&back, Epoch(1)), Changed::Nothing, "it leaves");
    // Who leaves takes over from nobody.
    let next = drain(&map, 5);
    assert_eq!(map.apply(&next, Epoch(1)), Changed::Map);
    assert_eq!(kept(&map, 4), [0, 1, 2]);
    let last = drain(&map, 4);
    assert_eq!(map.apply(&last, Epoch(1)), Changed::Nothing);
    let leave = Control::RemoveNode { version: map.version, node: NodeId(1) };
    assert_eq!(map.apply(&leave, Epoch(1)), Changed::Map);
}

#[test]
fn boots_are_numbered_across_nodes_and_end_the_one_before() {
    let mut map = three();
    let start = |node, after, nonce| Control::Boot {
        node: NodeId(node),
        after: BootId(after),
        nonce,
        peer_address: format!("{node}:7001"),
        client_address: format!("{node}:6379"),
        level: LEVEL_FIRST,
    };
    for (node, nonce, boot, ended) in [(2, 7, 1, 0), (3, 8, 2, 0), (2, 9, 3, 1)] {
        let expected = Changed::Boot { node: NodeId(node), nonce, boot: BootId(boot), ended: BootId(ended) };
        assert_eq!(map.apply(&start(node, ended, nonce), Epoch(1)), expected);
    }
    for (after, nonce, which) in [(1, 9, "asked twice"), (0, 7, "late"), (1, 6, "late")] {
        let again = start(2, after, nonce);
        assert_eq!(map.apply(&again, Epoch(1)), Changed::Nothing, "{which}");
    }
    assert_eq!(map.node_of_boot(BootId(3)), Some(NodeId(2)));
    assert_eq!(map.node_of_boot(BootId(1)), None);
}

#[test]
fn a_behaviour_comes_into_force_once_all_who_stay_know_it_and_shuts_out_who_does_not() {
    let mut map = three();
    assert_eq!(map.level, LEVEL_FIRST);
    let start = |map: &PartitionMap, node: u16, level| Control::Boot {
        node: NodeId(node),
        after: map.nodes[&NodeId(node)].boot,
        nonce: 1,
        peer_address: format!("{node}:7001"),
        client_address: format!("{node}:6379"),
        level,
    };
    let raise = |map: &PartitionMap, level| Control::RaiseLevel { version: map.version, level };
    for node in 1..=3 {
        let control = start(&map, node, 3);
        map.apply(&control, Epoch(1));
    }
    assert_eq!(map.level_known(), Some(0), "one has never started");
    let early = raise(&map, 2);
    assert_eq!(map.apply(&early, Epoch(1)), Changed::Nothing);
    let control = start(&map, 4, 2);
    map.apply(&control, Epoch(1));
    assert_eq!(map.level_known(), Some(2));
    let stale = raise(&map, 2);
    // A process that starts with what is in force now is a change of the map: what was decided before is
    // void.
    let control = start(&map, 4, 1);
    map.apply(&control, Epoch(1));
    assert_eq!(map.apply(&stale, Epoch(1)), Changed::Nothing);
    let all_but_one = raise(&map, 2);
    assert_eq!(map.apply(&all_but_one, Epoch(1)), Changed::Nothing);
    let control = start(&map, 4, 2);
    map.apply(&control, Epoch(1));
    for (level, changed) in [(3, Changed::Nothing), (2, Changed::Map), (2, Changed::Nothing)] {
        let control = raise(&map, level);
        assert_eq!(map.apply(&control, Epoch(1)), changed, "{level}");
    }
    assert_eq!(map.level, 2);
    // From now on who knows less is not let in, and is no process of the cluster.
    let before = map.clone();
    assert_eq!(map.apply(&start(&before, 4, 1), Epoch(1)), Changed::Nothing);
    assert_eq!(map, before);
    // Who leaves is not waited for.
    let drain = Control::Drain { version: map.version, node: NodeId(4) };
    assert_eq!(map.apply(&drain, Epoch(1)), Changed::Map);
    let last = raise(&map, 3);
    assert_eq!(map.apply(&last, Epoch(1)), Changed::Map);
}

#[test]
fn maps_and_records_round_trip_and_truncations_are_refused() {
    let mut map = three();
    let control = Control::Boot {
        node: NodeId(2),
        after: BootId(0),
        nonce: 9,
        peer_address: "p".to_owned(),
        client_address: "c".to_owned(),
        level: 4,
    };
    map.apply(&control, Epoch(1));
    let mut bytes = Vec::new();
    map.encode(&mut bytes);
    assert_eq!(PartitionMap::decode(&mut Reader::new(&bytes)), Some(map));
    for len in 0..bytes.len() {
        assert_eq!(PartitionMap::decode(&mut Reader::new(&bytes[..len])), None);
    }
    let drain = Control::Drain { version: 1, node: NodeId(4) };
    for control in [control, drain] {
        let mut bytes = Vec::new();
        control.encode(&mut bytes);
        assert_eq!(Control::decode(&mut Reader::new(&bytes)), Some(control));
    }
}
