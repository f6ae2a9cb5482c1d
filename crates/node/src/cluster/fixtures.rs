//! Nodes with checkpoints, for tests.

use super::base::{BaseState, CANDIDATES};
use super::candidates::Taken;
use super::checkpoint::{ClusterCheckpoint, Part, file_name};
use super::{ClusterNode, ClusterOptions, ClusterRecoverError, ClusterStart};
use crate::checkpoint::file_bytes;
use execute::{Engine, Serial};
use log::{Base, GroupImage, GroupImages, HardState, Members};
use order::{Described, PartitionMap, Streams};
use sim::disk::VirtualDisk;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::checkpoint::Header;
use txn::{Epoch, NodeId, PartitionId, Position, Registry};

pub const ME: NodeId = NodeId(1);
pub const P0: PartitionId = PartitionId(0);
pub const P1: PartitionId = PartitionId(1);
pub const P2: PartitionId = PartitionId(2);

/// Four nodes in two zones; the first one keeps these partitions, out of four, in its zone.
pub fn map(kept: &[PartitionId]) -> PartitionMap {
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
pub fn base(epoch: u64, map: &PartitionMap) -> Base {
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

pub fn bases(epoch: u64, map: &PartitionMap, of: &[PartitionId]) -> BTreeMap<PartitionId, Base> {
    of.iter().map(|&of| (of, base(epoch, map))).collect()
}

pub fn image(base: Base) -> GroupImage {
    GroupImage { hard_state: HardState { term: 1, vote: 0, commit: base.index }, base, entries: Vec::new() }
}

pub fn taken(epoch: u64, of: &[PartitionId]) -> Taken {
    Taken { epoch: Epoch(epoch), bases: bases(epoch, &map(of), of), start: true, asked_tick: None }
}

/// A journal whose logs begin behind one checkpoint, and that knows of another.
pub fn images(own: u64, of: &[PartitionId], candidate: Taken) -> GroupImages {
    let map = map(of);
    let own = of.iter().map(|&partition| match own {
        0 => (partition, GroupImage::default()),
        own => (partition, image(base(own, &map))),
    });
    let candidate = image(candidate.kept().base.expect("a base"));
    own.chain([(CANDIDATES, candidate)]).collect()
}

pub fn engine() -> Arc<dyn Engine> {
    Arc::new(Serial::new())
}

pub fn write(disk: &VirtualDisk, epoch: u64, of: &[PartitionId]) {
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
    let job = ClusterCheckpoint::new(epoch, parts);
    let written = job.write(disk).expect("a disk that works");
    let size = |&partition: &PartitionId| file_bytes(disk, &file_name(partition, epoch));
    let sizes: Vec<u64> = of.iter().map(|of| size(of).expect("a file")).collect();
    assert_eq!(written.bytes, sizes.iter().sum::<u64>());
}

pub fn recover(
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
pub fn node(epoch: u64, keeps: &[PartitionId], wanted: &[PartitionId]) -> ClusterNode {
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
