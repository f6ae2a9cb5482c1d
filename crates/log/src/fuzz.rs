//! An entry point for fuzzers: the reader of segments must be total.

use crate::journal::fuzz_payload;
use crate::record::{self, Address, Found, Kind, Place};
use crate::segment::{HEADER_BYTES, Header, OpeningError, SegmentReader};
use txn::Position;

/// Reads bytes as a segment that starts at record 1, to its end, as [`crate::Journal::open`] would, and
/// searches them for durability claims. Then reads what follows the header once more with every checksum and
/// digest put right, so that the code behind the checks is reached as well. Never panics, and allocates no
/// more than a small multiple of the input's length. Returns how many records both readings found.
pub fn fuzz_log_reader(bytes: &[u8]) -> usize {
    let records = bytes.get(HEADER_BYTES..).unwrap_or(bytes);
    read(bytes) + read(&resealed(records))
}

fn read(bytes: &[u8]) -> usize {
    let mut reader = match SegmentReader::open(bytes, Position::FIRST) {
        Ok(reader) => reader,
        Err(OpeningError::Opening(reader)) => {
            reader.proves_durable(reader.address());
            return 0;
        }
        Err(OpeningError::Header(_) | OpeningError::Shortened) => return 0,
    };
    let mut records = 0;
    while let Found::Record(head, payload) = reader.next() {
        if head.kind == Kind::Groups {
            assert!(fuzz_payload(payload) <= payload.len());
            records += 1;
        }
    }
    assert!(reader.offset >= HEADER_BYTES && reader.offset <= bytes.len());
    reader.proves_durable(reader.address());
    records
}

/// A segment with these records, their checksums and digests put right as far as their lengths make sense.
fn resealed(records: &[u8]) -> Vec<u8> {
    let boot_id = 0;
    let header = Header { boot_id, len_bytes: (HEADER_BYTES + records.len()) as u64 };
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
    use crate::error::Problem;
    use crate::record::{Draft, HEAD_BYTES, Head, Tail, get_u32, put_u32, put_u64};
    use proptest::prelude::*;

    const NOWHERE: Place =
        Place { boot_id: 0, address: Address { segment: Position::NONE, offset: HEADER_BYTES as u64 } };

    /// The records of a segment: an opening marker, and records with these payloads.
    fn records(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut tail = Tail::ORIGIN;
        let mut records = Head::marker(tail, NOWHERE.address).sealed(NOWHERE).to_vec();
        let mut buffer = Vec::new();
        for payload in payloads {
            let mut draft = Draft::begin(&mut buffer);
            draft.payload().extend_from_slice(payload);
            let (record, end) = draft.finish(tail, NOWHERE, NOWHERE.address);
            records.extend_from_slice(record);
            tail = end;
        }
        records
    }

    fn open(segment: &[u8]) -> SegmentReader<'_> {
        match SegmentReader::open(segment, Position::FIRST) {
            Ok(reader) => reader,
            Err(_) => panic!("a sound opening"),
        }
    }

    #[test]
    fn resealed_records_are_read() {
        let records = records(&[Vec::new(), vec![1; 100], vec![7; 9]]);
        assert_eq!(read(&resealed(&records)), 3);
        assert_eq!(fuzz_log_reader(&records), 3, "a short input has no header");
    }

    #[test]
    fn a_record_that_checks_and_does_not_follow_is_foreign() {
        let sound = records(&[vec![1; 16], vec![2; 16]]);
        assert_eq!(read(&resealed(&sound)), 2);
        let second = HEAD_BYTES + get_u32(&sound, HEAD_BYTES + 4) as usize;
        let start = HEADER_BYTES + second;
        let place = Place { boot_id: 0, address: Address { segment: Position::FIRST, offset: start as u64 } };
        let number = |value: u64| vec![(24, value), (32, value)];
        for (fields, expected) in [
            (number(1), Problem::Gap),
            (number(3), Problem::Gap),
            (number(u64::MAX), Problem::Gap),
            (vec![(24, 3)], Problem::Fields),
            (vec![(32, 3)], Problem::Fields),
            (vec![(40, 5)], Problem::Fields),
            (vec![(64, 9)], Problem::Digest),
            // Kinds that no journal has, with the count of 1 behind them.
            (vec![(12, 1 | 1 << 32)], Problem::Fields),
            (vec![(12, 9 | 1 << 32)], Problem::Fields),
            // The count with the zeros behind it: none, two, and one with something behind it.
            (vec![(16, 0)], Problem::Fields),
            (vec![(16, 2)], Problem::Fields),
            (vec![(16, 1 | 1 << 32)], Problem::Fields),
        ] {
            let mut segment = resealed(&sound);
            for &(at, value) in &fields {
                put_u64(&mut segment, start + at, value);
            }
            let crc = place.crc(segment[start..].first_chunk().unwrap());
            put_u32(&mut segment, start, crc);
            let mut reader = open(&segment);
            for _ in ["the opening", "the first record"] {
                assert!(matches!(reader.next(), Found::Record(..)));
            }
            match reader.next() {
                Found::Foreign(problem) if problem == expected => {}
                found => panic!("{fields:?}: {found:?}, and {expected:?} was expected"),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn arbitrary_payloads_and_heads_are_read_without_a_panic(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..5),
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
