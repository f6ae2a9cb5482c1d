//! An entry point for fuzzers: the reader of segments must be total.

use crate::journal::fuzz_payload;
use crate::record::{self, Address, Content, Found, Kind, Place};
use crate::segment::{HEADER_BYTES, Header, OpeningError, SegmentReader, decode_batch};
use txn::{Position, Registry};

/// Reads bytes as a segment that starts at position 1, to its end, as [`crate::Log::open`] would, and
/// searches them for durability claims. Then reads what follows the header once more with every checksum and
/// digest put right, so that the code behind the checks is reached as well: as a log of batches, and as a
/// journal. Never panics, and allocates no more than a small multiple of the input's length. Returns how many
/// batches and journal's records the readings found.
pub fn fuzz_log_reader(bytes: &[u8]) -> usize {
    let records = bytes.get(HEADER_BYTES..).unwrap_or(bytes);
    let contents = [Content::Batches, Content::Groups];
    let resealed = contents.map(|content| read(&resealed(records, content)));
    read(bytes) + resealed.iter().sum::<usize>()
}

fn read(bytes: &[u8]) -> usize {
    let content = Header::read(bytes).map_or(Content::Batches, |header| header.content);
    let mut reader = match SegmentReader::open(bytes, Position::FIRST, content) {
        Ok(reader) => reader,
        Err(OpeningError::Opening(reader)) => {
            reader.proves_durable(reader.address());
            return 0;
        }
        Err(OpeningError::Header(_) | OpeningError::Content(_) | OpeningError::Shortened) => {
            return 0;
        }
    };
    let registry = Registry::new();
    let mut batches = 0;
    while let Found::Record(head, payload) = reader.next() {
        // Requests of unknown procedures are decoded before they are refused.
        let parts = match head.kind {
            Kind::Marker => continue,
            Kind::Batch => decode_batch(&head, payload, &registry).map_or(0, |batch| batch.requests.len()),
            Kind::Groups => fuzz_payload(payload),
        };
        assert!(parts <= payload.len());
        batches += 1;
    }
    assert!(reader.offset >= HEADER_BYTES && reader.offset <= bytes.len());
    reader.proves_durable(reader.address());
    batches
}

/// A segment with these records, their checksums and digests put right as far as their lengths make sense.
fn resealed(records: &[u8], content: Content) -> Vec<u8> {
    let boot_id = 0;
    let header = Header { content, boot_id, len_bytes: (HEADER_BYTES + records.len()) as u64 };
    let mut segment = header.encode().to_vec();
    segment.extend_from_slice(records);
    let mut address = Address { segment: Position::FIRST, offset: HEADER_BYTES as u64 };
    let mut tail = None;
    while let Some(length) =
        record::reseal(&mut segment[address.offset as usize..], Place { boot_id, address }, &mut tail)
    {
        address.offset += length as u64;
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Tail;
    use crate::error::Problem;
    use crate::record::{Draft, HEAD_BYTES, Head, get_u32, put_u32, put_u64};
    use proptest::prelude::*;

    /// The records of a segment: an opening marker, and batches with these payloads.
    fn records(payloads: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut tail = Tail::ORIGIN;
        let nowhere = Address { segment: Position::NONE, offset: 0 };
        let opening = Place { boot_id: 0, address: nowhere };
        let mut records = Head::marker(tail, nowhere).sealed(opening).to_vec();
        for (count, payload) in payloads {
            let mut draft = Draft::begin(&mut records, Kind::Batch);
            draft.payload().extend_from_slice(payload);
            let digest = draft.finish(tail, 5, *count);
            tail = Tail {
                epoch: txn::Epoch(tail.epoch.0 + 1),
                next: tail.next.advanced(u64::from(*count)),
                time_ms: 5,
                digest,
            };
        }
        records
    }

    #[test]
    fn resealed_records_are_read() {
        let records = records(&[(0, Vec::new()), (3, vec![1; 100]), (0, vec![7; 9])]);
        assert_eq!(read(&resealed(&records, Content::Batches)), 3);
        assert_eq!(fuzz_log_reader(&records), 3, "a short input has no header");
    }

    #[test]
    fn a_record_that_belongs_into_no_such_log_is_foreign() {
        let batch = records(&[(1, vec![1; 16])]);
        // As a journal's record: with a time, and with two positions.
        let with = |kind, count, time_ms| {
            let mut record = batch.clone();
            put_u32(&mut record, HEAD_BYTES + 12, kind);
            put_u32(&mut record, HEAD_BYTES + 16, count);
            put_u64(&mut record, HEAD_BYTES + 40, time_ms);
            record
        };
        for (record, content, expected) in [
            (with(1, 1, 0), Content::Batches, None),
            (with(3, 1, 0), Content::Groups, None),
            (with(1, 1, 0), Content::Groups, Some(Problem::Kind)),
            (with(3, 1, 0), Content::Batches, Some(Problem::Kind)),
            (with(3, 1, 5), Content::Groups, Some(Problem::Gap)),
            (with(3, 2, 0), Content::Groups, Some(Problem::Gap)),
            (with(3, 0, 0), Content::Groups, Some(Problem::Gap)),
        ] {
            let segment = resealed(&record, content);
            let Ok(mut reader) = SegmentReader::open(&segment, Position::FIRST, content) else {
                panic!("a sound opening")
            };
            assert!(matches!(reader.next(), Found::Record(..)));
            match (reader.next(), expected) {
                (Found::Record(..), None) => {}
                (Found::Foreign(problem), Some(expected)) if problem == expected => {}
                (found, _) => panic!("{found:?}, and {expected:?} was expected"),
            }
        }
    }

    #[test]
    fn a_record_that_checks_and_does_not_follow_is_foreign() {
        let sound = records(&[(1, vec![1; 16]), (1, vec![2; 16])]);
        let second = HEAD_BYTES + get_u32(&sound, HEAD_BYTES + 4) as usize;
        let start = HEADER_BYTES + second;
        let place = Place { boot_id: 0, address: Address { segment: Position::FIRST, offset: start as u64 } };
        // The epoch, the position, the time (of the second record; the first one's is 5) and the digest.
        for (at, value) in [(24, 9), (24, 1), (32, 1), (32, 9), (40, 4), (64, 9)] {
            let mut segment = resealed(&sound, Content::Batches);
            put_u64(&mut segment, start + at, value);
            let crc = place.crc(segment[start..].first_chunk().unwrap());
            put_u32(&mut segment, start, crc);
            let Ok(mut reader) = SegmentReader::open(&segment, Position::FIRST, Content::Batches) else {
                panic!("a sound opening")
            };
            for _ in ["the opening", "the first batch"] {
                assert!(matches!(reader.next(), Found::Record(..)));
            }
            let found = reader.next();
            assert!(matches!(found, Found::Foreign(_)), "{value} at byte {at}: {found:?}");
        }
        assert_eq!(read(&resealed(&sound, Content::Batches)), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn arbitrary_payloads_and_heads_are_read_without_a_panic(
            payloads in proptest::collection::vec(
                (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..80)),
                0..5,
            ),
            edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut records = records(&payloads);
            for (at, byte) in edits {
                let at = at.index(records.len());
                records[at] = byte;
            }
            fuzz_log_reader(&records);
        }
    }
}
