//! A record's payload: what some groups keep, as bytes. `docs/log-format.md` has the table.

use crate::kept::{Base, Entry, EntryKind, HardState, Kept};
use crate::record;
use bytes::Bytes;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{PartitionId, Position};

/// The form of a payload that this program writes and reads.
const VERSION: u8 = 1;

const HAS_BASE: u8 = 1;
const RESETS: u8 = 2;
const HAS_HARD_STATE: u8 = 4;

const ENTRY_BATCH: u8 = 0;
const ENTRY_MEMBERSHIP: u8 = 1;

/// A record's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Payload {
    /// The oldest record that the state with this record is made of: reading must begin there or before.
    pub needed: Position,
    pub parts: Vec<Kept>,
}

/// Appends what comes before the parts.
pub(super) fn put_front(out: &mut Vec<u8>, needed: Position, parts: usize) {
    out.push(VERSION);
    put_varint(out, needed.0);
    put_varint(out, parts as u64);
}

/// Appends what a group keeps, with this hard state instead of its own.
pub(super) fn put_kept(out: &mut Vec<u8>, kept: &Kept, hard_state: Option<HardState>) {
    put_varint(out, u64::from(kept.partition.0));
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    out.push(
        flag(kept.base.is_some(), HAS_BASE)
            | flag(kept.reset, RESETS)
            | flag(hard_state.is_some(), HAS_HARD_STATE),
    );
    if let Some(base) = &kept.base {
        base.encode(out);
    }
    put_varint(out, kept.entries.len() as u64);
    if let Some(first) = kept.entries.first() {
        put_varint(out, first.index);
    }
    for entry in &kept.entries {
        put_varint(out, entry.term);
        out.push(match entry.kind {
            EntryKind::Data => ENTRY_BATCH,
            EntryKind::Membership => ENTRY_MEMBERSHIP,
        });
        put_bytes(out, &entry.data);
    }
    if let Some(hard_state) = hard_state {
        put_varint(out, hard_state.term);
        put_varint(out, hard_state.vote);
        put_varint(out, hard_state.commit);
    }
}

/// Reads a payload, padding included. `None` on anything that was not written as above; what it
/// allocates is bounded by a multiple of the input's length.
pub(super) fn take(payload: &[u8]) -> Option<Payload> {
    let mut reader = Reader::new(payload);
    if reader.u8()? != VERSION {
        return None;
    }
    let needed = Position(reader.varint()?);
    let count = reader.varint()?;
    let mut parts = Vec::new();
    for _ in 0..count {
        parts.push(take_kept(&mut reader)?);
    }
    let padding = reader.rest();
    let padded = padding.len() < record::ALIGNMENT && padding.iter().all(|&byte| byte == 0);
    padded.then_some(Payload { needed, parts })
}

fn take_kept(reader: &mut Reader<'_>) -> Option<Kept> {
    let partition = PartitionId(take_u16(reader)?);
    let flags = reader.u8()?;
    let has = |flag| flags & flag != 0;
    if flags > HAS_BASE | RESETS | HAS_HARD_STATE || has(RESETS) && !has(HAS_BASE) {
        return None;
    }
    let base = match has(HAS_BASE) {
        true => Some(Base::take(reader)?),
        false => None,
    };
    let entries = take_entries(reader)?;
    let hard_state = match has(HAS_HARD_STATE) {
        true => Some(HardState { term: reader.varint()?, vote: reader.varint()?, commit: reader.varint()? }),
        false => None,
    };
    Some(Kept { partition, base, reset: has(RESETS), entries, hard_state })
}

fn take_entries(reader: &mut Reader<'_>) -> Option<Vec<Entry>> {
    let count = reader.varint()?;
    if count == 0 {
        return Some(Vec::new());
    }
    let first = reader.varint()?;
    // An index of 0 is before every entry, and the last one must have a successor.
    if first == 0 || first.checked_add(count).is_none() {
        return None;
    }
    let mut entries = Vec::new();
    for index in first..first + count {
        entries.push(Entry {
            index,
            term: reader.varint()?,
            kind: match reader.u8()? {
                ENTRY_BATCH => EntryKind::Data,
                ENTRY_MEMBERSHIP => EntryKind::Membership,
                _ => return None,
            },
            data: Bytes::copy_from_slice(reader.bytes()?),
        });
    }
    Some(entries)
}

fn take_u16(reader: &mut Reader<'_>) -> Option<u16> {
    u16::try_from(reader.varint()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::Members;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use txn::NodeId;

    fn bytes() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..40).prop_map(Bytes::from)
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..300u64, any::<u64>()]
    }

    fn base() -> impl Strategy<Value = Base> {
        let nodes = || vec(any::<u16>().prop_map(NodeId), 0..4);
        let members = (nodes(), nodes(), nodes(), nodes(), any::<bool>());
        (0..u64::MAX, number(), members, bytes()).prop_map(|(index, term, members, state)| Base {
            index,
            term,
            members: Members {
                voters: members.0,
                voters_outgoing: members.1,
                learners: members.2,
                learners_next: members.3,
                auto_leave: members.4,
            },
            state,
        })
    }

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let entry = (number(), any::<bool>(), bytes());
        (1..u64::MAX - 10, vec(entry, 0..5)).prop_map(|(first, entries)| {
            let numbered = (first..).zip(entries);
            let entries = numbered.map(|(index, (term, batch, data))| Entry {
                index,
                term,
                kind: if batch { EntryKind::Data } else { EntryKind::Membership },
                data,
            });
            entries.collect()
        })
    }

    fn kept() -> impl Strategy<Value = Kept> {
        let base = proptest::option::of((base(), any::<bool>()));
        let hard_state =
            (number(), number(), number()).prop_map(|(term, vote, commit)| HardState { term, vote, commit });
        let hard_state = proptest::option::of(hard_state);
        (any::<u16>(), base, entries(), hard_state).prop_map(|(partition, base, entries, hard_state)| Kept {
            partition: PartitionId(partition),
            reset: base.as_ref().is_some_and(|(_, reset)| *reset),
            base: base.map(|(base, _)| base),
            entries,
            hard_state,
        })
    }

    fn payload() -> impl Strategy<Value = Payload> {
        (number().prop_map(Position), vec(kept(), 0..4)).prop_map(|(needed, parts)| Payload { needed, parts })
    }

    fn encode(payload: &Payload) -> Vec<u8> {
        let mut out = Vec::new();
        put_front(&mut out, payload.needed, payload.parts.len());
        for kept in &payload.parts {
            put_kept(&mut out, kept, kept.hard_state);
        }
        out
    }

    /// Whether the input is the encoding of what is read from it, or is refused.
    fn is_canonical(input: &[u8]) -> bool {
        let Some(payload) = take(input) else {
            return true;
        };
        let encoded = encode(&payload);
        let rest = input.strip_prefix(&encoded[..]);
        rest.is_some_and(|rest| rest.len() < record::ALIGNMENT && rest.iter().all(|&byte| byte == 0))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn payloads_round_trip_and_truncated_ones_are_refused(payload in payload(), padding in 0..8usize) {
            let encoded = encode(&payload);
            for len in 0..encoded.len() {
                // What the padding's zeros would complete is no encoding of a part.
                prop_assert_eq!(take(&encoded[..len]), None);
            }
            let mut padded = encoded;
            padded.resize(padded.len() + padding, 0);
            prop_assert_eq!(take(&padded), Some(payload));
            padded.resize(padded.len() - padding + 8, 0);
            prop_assert_eq!(take(&padded), None);
        }

        #[test]
        fn whatever_is_read_was_written(
            payload in payload(),
            edits in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
            len in any::<proptest::sample::Index>(),
        ) {
            let mut encoded = encode(&payload);
            for (at, byte) in edits {
                let at = at.index(encoded.len());
                encoded[at] = byte;
            }
            prop_assert!(is_canonical(&encoded));
            encoded.truncate(len.index(encoded.len() + 1));
            prop_assert!(is_canonical(&encoded));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(mut input in vec(any::<u8>(), 0..200)) {
            prop_assert!(is_canonical(&input));
            if let Some(version) = input.first_mut() {
                *version = VERSION;
            }
            prop_assert!(is_canonical(&input));
        }
    }

    #[test]
    fn unknown_flags_and_resets_without_a_base_are_refused() {
        let with = |flags: u8, rest: &[u8]| {
            let front = [VERSION, 1, 1, 1, flags];
            take(&[&front, rest].concat())
        };
        // A part that ends behind the flags, and what is whole with no flag, with a hard state, and with a
        // base.
        let bare = [0];
        let hard_state = [0, 0, 0, 0];
        let base = [0; 9];
        let rests: [&[u8]; 4] = [&[], &bare, &hard_state, &base];
        for (flags, rest) in [0, HAS_HARD_STATE, HAS_BASE].into_iter().zip(&rests[1..]) {
            assert!(with(flags, rest).is_some(), "flags {flags}");
        }
        for flags in 8..=u8::MAX {
            for rest in rests {
                assert_eq!(with(flags, rest), None, "flags {flags}, then {rest:?}");
            }
        }
        for flags in [RESETS, RESETS | HAS_HARD_STATE] {
            assert_eq!(with(flags, &hard_state), None, "flags {flags}");
        }
    }

    #[test]
    fn false_counts_are_refused() {
        let mut counts = vec![VERSION, 1];
        put_varint(&mut counts, u64::MAX);
        assert_eq!(take(&counts), None);
        // One part: partition 1, entries only, as many as there could be.
        for (first, count) in [(1, u64::MAX), (u64::MAX, 1), (0, 1)] {
            let mut entries = vec![VERSION, 1, 1, 1, 0];
            put_varint(&mut entries, count);
            put_varint(&mut entries, first);
            entries.extend_from_slice(&[1, ENTRY_BATCH, 0]);
            assert_eq!(take(&entries), None, "{count} entries from {first} on");
        }
        assert_eq!(take(&[VERSION + 1, 1, 0]), None);
        assert!(take(&[VERSION, 1, 0]).is_some());
    }
}
