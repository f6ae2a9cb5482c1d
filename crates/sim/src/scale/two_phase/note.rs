//! What nodes tell each other.

use certify::Answer;
use certify::two_phase::{Prepare, Timestamp, Vote};
use txn::codec::{put_entry, put_key};
use txn::{Key, Position, RequestId};

/// The bytes that name a client, an attempt, and what is told of it.
const NAME_BYTES: u64 = 16;

/// A thing that a message tells. `client` is the number of a client of the node that coordinates its
/// transaction.
#[derive(Debug)]
pub(super) enum Told {
    /// The coordinator wants to know a record.
    Look { client: usize, key: Key, begun: Timestamp },
    /// What the record is, and the greatest timestamp of its partition.
    Found { client: usize, answer: Answer, greatest: Timestamp },
    /// The coordinator wants a vote.
    Prepare { client: usize, prepare: Prepare },
    /// The vote, where it stands among what its partition has decided, and the partition's greatest
    /// timestamp.
    Vote { client: usize, id: RequestId, vote: Vote, at: Position, greatest: Timestamp },
    /// The coordinator has decided: to commit at a timestamp, or to abort.
    Finish { id: RequestId, at: Option<Timestamp> },
    /// A participant has made the writes of a transaction.
    Finished { id: RequestId },
}

impl Told {
    /// How many things it tells: a `Prepare` one for each record.
    pub(super) fn things(&self) -> u64 {
        match self {
            Told::Prepare { prepare, .. } => {
                let reads = &prepare.used.reads;
                let blind = prepare.used.writes.records.keys().filter(|key| !reads.contains_key(key));
                (reads.len() + blind.count()).max(1) as u64
            }
            _ => 1,
        }
    }

    /// How long it is on the wire. `scratch` is a buffer to encode into.
    pub(super) fn bytes(&self, scratch: &mut Vec<u8>) -> u64 {
        scratch.clear();
        match self {
            Told::Look { key, .. } => put_key(scratch, key),
            Told::Found { answer: Answer::Value(read), .. } => {
                if let Some(entry) = &read.entry {
                    put_entry(scratch, entry);
                }
            }
            Told::Prepare { prepare, .. } => prepare.put(scratch),
            Told::Found { .. } | Told::Vote { .. } | Told::Finish { .. } | Told::Finished { .. } => {}
        }
        NAME_BYTES + scratch.len() as u64
    }
}
