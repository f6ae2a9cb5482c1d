//! What the journal holds of a group behind its log's beginning, and beside the groups.

use log::{Base, HardState, Kept, Members};
use order::{PartitionMap, Streams};
use txn::codec::{Reader, put_varint};
use txn::{Epoch, PartitionId, Position};

/// Under which number the journal keeps what a disk knows of itself: no partition has it.
pub const IDENTITY: PartitionId = PartitionId(u16::MAX);

/// Under which number the journal keeps the bases of a checkpoint behind which its logs do not yet begin.
pub const CANDIDATES: PartitionId = PartitionId(u16::MAX - 1);
/// What a base says of the state cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what the journal says of the checkpoint of {0} cannot be read: start the version that wrote it")]
pub struct BadBase(pub PartitionId);

/// The state behind an epoch, beside the records: what a group's base carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseState {
    pub epoch: Epoch,
    pub time_ms: u64,
    pub digest: u64,
    /// The partition's next position.
    pub next: Position,
    pub streams: Streams,
    pub map: PartitionMap,
    /// The partition's state digest, if it is known: see `compare`.
    pub state_digest: Option<u64>,
}

impl BaseState {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.epoch.0, self.time_ms, self.digest, self.next.0] {
            put_varint(&mut out, number);
        }
        self.streams.encode(&mut out);
        self.map.encode(&mut out);
        if let Some(digest) = self.state_digest {
            out.extend_from_slice(&digest.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<BaseState> {
        let mut reader = Reader::new(bytes);
        let state = BaseState {
            epoch: Epoch(reader.varint()?),
            time_ms: reader.varint()?,
            digest: reader.varint()?,
            next: Position(reader.varint()?),
            streams: Streams::decode(&mut reader)?,
            map: PartitionMap::decode(&mut reader)?,
            state_digest: match reader.is_empty() {
                true => None,
                false => Some(reader.u64()?),
            },
        };
        reader.is_empty().then_some(state)
    }
}

/// The base of a group that has never had a checkpoint.
pub(super) fn first_base(map: &PartitionMap, partition: PartitionId) -> (Base, BaseState) {
    let mut voters: Vec<_> = map.partition(partition).replicas.values().copied().collect();
    voters.sort();
    let state = BaseState {
        epoch: Epoch(0),
        time_ms: 0,
        digest: 0,
        next: Position::FIRST,
        streams: Streams::default(),
        map: map.clone(),
        state_digest: None,
    };
    let base = Base { members: Members { voters, ..Members::default() }, ..Base::default() };
    (base, state)
}

/// A base and what it says; that of a group that has never had a checkpoint if there is none.
pub(super) fn read_base(
    map: &PartitionMap,
    partition: PartitionId,
    base: Option<&Base>,
) -> Result<(Base, BaseState), BadBase> {
    let Some(base) = base.filter(|base| base.index > 0) else {
        return Ok(first_base(map, partition));
    };
    let state = BaseState::decode(&base.state).ok_or(BadBase(partition))?;
    Ok((base.clone(), state))
}

/// What the journal keeps under a number that no partition has, in the place of what it has there. The index
/// grows.
pub(super) fn kept_aside(under: PartitionId, index: u64, state: Vec<u8>) -> Kept {
    Kept {
        base: Some(Base { index, state: state.into(), ..Base::default() }),
        reset: true,
        hard_state: Some(HardState { commit: index, ..HardState::default() }),
        ..Kept::nothing(under)
    }
}
