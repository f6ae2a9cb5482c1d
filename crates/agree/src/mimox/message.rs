//! Names of opt-batches, and what replicas say beside the consensus library's messages.

use crate::{Contradiction, message as library};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use txn::NodeId;
use txn::codec::{Reader, put_bytes, put_varint};

/// The first bytes of a SHA-256: clients choose what is in a batch, and must not be able to make two batches
/// of one name.
const DIGEST_BYTES: usize = 16;
/// One message asks for no more opt-batches than this.
pub(super) const ASKED_MAX: usize = 256;

/// The kinds of this protocol's own messages: numbers that the library's kinds do not have.
const OPT_BATCH: u8 = 0xf1;
const ASK: u8 = 0xf2;
const BATCHES: u8 = 0xf3;

/// The name of an opt-batch: a digest of its bytes, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BatchName {
    digest: [u8; DIGEST_BYTES],
    /// The opt-batch's bytes.
    pub len: u32,
}

impl BatchName {
    /// What stands before the first batch of all.
    pub const NONE: BatchName = BatchName { digest: [0; DIGEST_BYTES], len: 0 };
    /// What stands before a batch whose sender does not know that.
    pub const UNKNOWN: BatchName = BatchName { digest: [u8::MAX; DIGEST_BYTES], len: 0 };

    /// Whether it is the name of a batch.
    pub fn is_known(self) -> bool {
        self.len > 0
    }

    pub fn of(data: &[u8]) -> BatchName {
        let digest = Sha256::digest(data);
        let digest = *digest.first_chunk().expect("a digest has more bytes");
        // A frame has at most 4 GiB.
        BatchName { digest, len: data.len() as u32 }
    }

    /// The name as an entry's data.
    pub fn to_bytes(self) -> Bytes {
        let mut out = Vec::with_capacity(DIGEST_BYTES + 5);
        self.put(&mut out);
        out.into()
    }

    /// The name that an entry's data is. `None` if it is none.
    pub fn of_entry(data: &[u8]) -> Option<BatchName> {
        let mut reader = Reader::new(data);
        BatchName::take(&mut reader).filter(|_| reader.is_empty())
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.digest);
        put_varint(out, u64::from(self.len));
    }

    fn take(reader: &mut Reader<'_>) -> Option<BatchName> {
        let digest = *reader.take(DIGEST_BYTES)?.first_chunk()?;
        Some(BatchName { digest, len: u32::try_from(reader.varint()?).ok()? })
    }
}

/// A message of this protocol beside the library's, and the node that sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub from: NodeId,
    pub says: Says,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// The leader of a term sends a batch ahead of the agreement on its name.
    OptBatch {
        term: u64,
        /// The batch that stands before it.
        before: BatchName,
        data: Bytes,
    },
    /// The sender lacks these.
    Ask(Vec<BatchName>),
    /// Batches that were asked for.
    Batches(Vec<Bytes>),
}

impl Own {
    pub fn encode(&self) -> Bytes {
        let begin = |kind, bytes| {
            let mut out = Vec::with_capacity(bytes + 40);
            out.push(kind);
            put_varint(&mut out, u64::from(self.from.0));
            out
        };
        let mut out;
        match &self.says {
            Says::OptBatch { term, before, data } => {
                out = begin(OPT_BATCH, data.len());
                put_varint(&mut out, *term);
                before.put(&mut out);
                out.extend_from_slice(data);
            }
            Says::Ask(names) => {
                out = begin(ASK, names.len() * (DIGEST_BYTES + 5));
                names.iter().take(ASKED_MAX).for_each(|name| name.put(&mut out));
            }
            Says::Batches(all) => {
                out = begin(BATCHES, all.iter().map(|data| data.len() + 5).sum());
                all.iter().for_each(|data| put_bytes(&mut out, data));
            }
        }
        out.into()
    }

    /// Reads a message; `None` if it is the library's.
    pub fn decode(bytes: &Bytes) -> Result<Option<Own>, Contradiction> {
        match bytes.first() {
            Some(&(OPT_BATCH | ASK | BATCHES)) => {}
            _ => return Ok(None),
        }
        Own::read(bytes)
            .map(Some)
            .ok_or(Contradiction("its bytes are no message of a group that sends ahead"))
    }

    fn read(bytes: &Bytes) -> Option<Own> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let from = NodeId(u16::try_from(reader.varint()?).ok()?);
        let says = match kind {
            OPT_BATCH => {
                let (term, before) = (reader.varint()?, BatchName::take(&mut reader)?);
                let data = bytes.slice_ref(reader.rest());
                (!data.is_empty()).then_some(Says::OptBatch { term, before, data })?
            }
            ASK => {
                let mut names = Vec::new();
                while !reader.is_empty() && names.len() < ASKED_MAX {
                    names.push(BatchName::take(&mut reader)?);
                }
                reader.is_empty().then_some(Says::Ask(names))?
            }
            _ => {
                let mut all = Vec::new();
                while !reader.is_empty() && all.len() < ASKED_MAX {
                    all.push(bytes.slice_ref(reader.bytes()?));
                }
                (reader.is_empty() && all.iter().all(|data| !data.is_empty()))
                    .then_some(Says::Batches(all))?
            }
        };
        Some(Own { from, says })
    }
}

/// What a message says, for a reader of traces.
pub fn describe(bytes: &Bytes) -> String {
    let own = match Own::decode(bytes) {
        Ok(Some(own)) => own,
        Ok(None) => return library::describe(bytes),
        Err(Contradiction(why)) => return why.to_owned(),
    };
    match own.says {
        Says::OptBatch { term, data, .. } => format!("term {term}: a batch of {} bytes ahead", data.len()),
        Says::Ask(names) => format!("asks for {} batches", names.len()),
        Says::Batches(all) => format!("{} batches that were asked for", all.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_truncations_are_refused() {
        let data = Bytes::from_static(b"a batch");
        let (one, other) = (BatchName::of(&data), BatchName::of(b"another one"));
        assert_ne!(one, other);
        assert_eq!(BatchName::of_entry(&one.to_bytes()), Some(one));
        for says in [
            Says::OptBatch { term: 300, before: one, data: data.clone() },
            Says::Ask(vec![one, other]),
            Says::Batches(vec![data.clone(), data]),
        ] {
            let own = Own { from: NodeId(700), says };
            let bytes = own.encode();
            assert_eq!(Own::decode(&bytes), Ok(Some(own.clone())));
            for len in 1..bytes.len() {
                assert_ne!(Own::decode(&bytes.slice(..len)), Ok(Some(own.clone())), "{len}");
            }
        }
        for len in 0..one.to_bytes().len() {
            assert_eq!(BatchName::of_entry(&one.to_bytes()[..len]), None);
        }
    }
}
