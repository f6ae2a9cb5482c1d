//! `fixtures/*.rdb` were written by the servers that they are named after (Redis 7.0.15 and 8.2.3, Valkey
//! 9.1.2), all with the same keys, but that Redis 7.0 has no fields that expire.

use super::*;
use std::collections::BTreeMap;
use txn::value::{HashValue, ListValue, SetValue, SortedSetValue};

const REDIS_7_0: &[u8] = include_bytes!("fixtures/redis70.rdb");
const REDIS_8_2: &[u8] = include_bytes!("fixtures/redis82.rdb");
const VALKEY_9: &[u8] = include_bytes!("fixtures/valkey9.rdb");
const NOW_MS: u64 = 1_800_000_000_000;
/// When `lasting`, and the first field that expires, do that.
const LATER_MS: u64 = 4_102_444_800_000;

fn items(bytes: &[u8], now_ms: u64) -> Result<Vec<RdbItem>, RdbError> {
    let mut reader = RdbReader::new(bytes, now_ms)?;
    let mut items = Vec::new();
    loop {
        match reader.next()? {
            RdbItem::End => return Ok(items),
            item => items.push(item),
        }
    }
}

fn keys(items: &[RdbItem]) -> BTreeMap<String, &RdbKey> {
    let named = items.iter().filter_map(|item| match item {
        RdbItem::Key(key) => Some((String::from_utf8_lossy(&key.key).into_owned(), key)),
        _ => None,
    });
    named.collect()
}

fn blobs<const N: usize>(texts: [&str; N]) -> [Blob; N] {
    texts.map(Blob::from)
}

fn hash<const N: usize>(fields: [(&str, &str); N]) -> Value {
    Value::from(
        fields
            .map(|(field, value)| (Blob::from(field), Blob::from(value)))
            .into_iter()
            .collect::<HashValue>(),
    )
}

#[test]
fn snapshots_of_real_servers_are_read() {
    let table = hash([("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]);
    let scores = [("a", 1.0), ("b", 2.5), ("c", f64::NEG_INFINITY)];
    let scores: SortedSetValue = scores.into_iter().map(|(name, score)| (Blob::from(name), score)).collect();
    let expected = [
        ("text", Value::from(Blob::from("hello"))),
        ("integer", Value::from(Blob::from("12345"))),
        ("negative", Value::from(Blob::from("-7"))),
        ("big-integer", Value::from(Blob::from("2147483647"))),
        ("squeezed", Value::from(Blob::from("a".repeat(60)))),
        ("lasting", Value::from(Blob::from("v"))),
        ("binary", Value::from(Blob::from(b"\x00\xff\r\n"))),
        (
            "list",
            Value::from(blobs(["a", "2", "-300", "70000", "5000000000"]).into_iter().collect::<ListValue>()),
        ),
        ("numbers", Value::from(blobs(["1", "2", "300"]).into_iter().collect::<SetValue>())),
        ("names", Value::from(blobs(["a", "b", "7"]).into_iter().collect::<SetValue>())),
        ("packed", hash([("f", "v"), ("g", "12")])),
        ("plain", table.clone()),
        ("scores", Value::from(scores)),
        ("expiring", hash([("a", "1"), ("b", "2")])),
        ("expiring-table", table),
        ("elsewhere", Value::from(Blob::from("1"))),
    ];
    for (name, bytes) in [("Redis 7.0", REDIS_7_0), ("Redis 8.2", REDIS_8_2), ("Valkey 9", VALKEY_9)] {
        let items = items(bytes, NOW_MS).expect(name);
        let keys = keys(&items);
        for (key, value) in &expected {
            let read = super::value(&keys[*key].payload).expect("a value");
            assert!(is_same(&read, value), "{name}: {key}: {read:?}");
            let dumped = restorable(keys[*key].payload.clone());
            assert_eq!(dumped_value(&dumped, NOW_MS), Some(read), "{name}: {key}");
        }
        assert_eq!(keys.len(), expected.len() + 1, "{name}: and a stream");
        let Some(Value::Stream(stream)) = super::value(&keys["stream"].payload) else { panic!("{name}") };
        assert_eq!((stream.len(), stream.groups().count()), (2, 1));
        assert_eq!(keys["lasting"].expires_at_ms, Some(LATER_MS), "{name}");
        assert_eq!(keys["text"].expires_at_ms, None, "{name}");
        assert_eq!((keys["text"].database, keys["elsewhere"].database), (0, 3), "{name}");
        let libraries = items.iter().filter(|item| matches!(item, RdbItem::Library(_)));
        assert_eq!(libraries.count(), 1, "{name}");
    }
}

#[test]
fn fields_that_have_expired_are_left_out_and_counted() {
    for (name, bytes) in [("Redis 8.2", REDIS_8_2), ("Valkey 9", VALKEY_9)] {
        for (now_ms, expired) in [(NOW_MS, 0), (LATER_MS, 1), (LATER_MS + 1000, 2)] {
            let items = items(bytes, now_ms).expect(name);
            let key = keys(&items)["expiring-table"];
            assert_eq!((key.expired_fields, key.expiring_fields), (expired, 2 - expired), "{name}");
            let Some(Value::Hash(hash)) = super::value(&key.payload) else { panic!("{name}") };
            assert_eq!(hash.len() as u64, 4 - expired, "{name}");
        }
    }
}

/// A file of these bytes behind a head that computes no checksum.
fn file(version: &str, body: &[u8]) -> Vec<u8> {
    [version.as_bytes(), body, &[255], &[0; 8]].concat()
}

#[test]
fn old_forms_and_those_of_candidates_are_read() {
    let zipmap = b"\x09\x01k\x18\x02\x01f\x05\x00value\x01g\x03\x02xyz..\xff";
    let mut zipmap = zipmap.to_vec();
    zipmap[3] = (zipmap.len() - 4) as u8;
    let candidate = b"\x16\x01k\x02\x00\x01f\x05value\x81\x00\x00\x03\xbb\x2c\xc3\xd8\x00\x01g\x03xyz";
    for bytes in [
        file("REDIS0003", &zipmap)[..].strip_suffix(&[0; 8]).expect("8").to_vec(),
        file("REDIS0012", candidate),
    ] {
        let items = items(&bytes, NOW_MS).expect("read");
        assert_eq!(super::value(&keys(&items)["k"].payload), Some(hash([("f", "value"), ("g", "xyz")])));
    }
    let seconds = items(&file("REDIS0009", b"\xfd\x10\x00\x00\x00\x00\x01k\x01v"), NOW_MS).expect("read");
    assert_eq!(keys(&seconds)["k"].expires_at_ms, Some(16_000));
}

#[test]
fn values_of_modules_are_named_and_passed_over() {
    // The type's name is nine letters of 6 bits: "ReJSON-RL", version 3.
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let place = |letter| letters.iter().position(|&known| known == letter).expect("a letter") as u64;
    let number = b"ReJSON-RL".iter().fold(0, |number, &letter| number << 6 | place(letter)) << 10 | 3;
    let mut body = b"\x07\x01k\x81".to_vec();
    body.extend(number.to_be_bytes());
    body.extend(b"\x05\x02{}\x02\x07\x00\x00\x01x\x01y");
    let items = items(&file("REDIS0011", &body), NOW_MS).expect("read");
    let module = RdbItem::Module { database: 0, key: Blob::from("k"), module: "ReJSON-RL".to_owned() };
    assert_eq!(items[0], module);
    assert_eq!(keys(&items).len(), 1);
}

#[test]
fn errors_tell_where_and_what() {
    let cut = &REDIS_7_0[..200];
    let mut flipped = REDIS_7_0.to_vec();
    *flipped.last_mut().expect("a checksum") ^= 1;
    for (bytes, expected) in [
        (&b"GARBAGE!!"[..], "byte 9: this is no snapshot of Redis or Valkey"),
        (b"REDIS", "byte 0: it ends here, too early"),
        (b"REDIS0099", "byte 9: the snapshot is of Redis's version 99, which is newer than"),
        (cut, "byte 200: it ends here, too early"),
        (&flipped, "the checksum of the whole is wrong: the snapshot is damaged"),
        (b"REDIS0011\x06", "\"\""),
        (b"REDIS0011\x1a\x01k", "byte 10: 26 is no type or opcode that is known here"),
        // A text of 2^64 - 1 bytes.
        (b"REDIS0011\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff", "byte 19: it ends here, too early"),
    ] {
        let error = items(bytes, NOW_MS).expect_err("no snapshot").to_string();
        assert!(error.contains(expected) || expected == "\"\"", "{error}");
    }
}

#[test]
fn no_cut_and_no_changed_byte_panics_or_is_taken_for_a_whole_file() {
    let seed: u64 = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("ORDO_SEED={seed}");
    let mut state = seed;
    let mut draw = |bound: usize| {
        state = txn::hash::mix(state);
        (state % bound as u64) as usize
    };
    for bytes in [REDIS_7_0, REDIS_8_2, VALKEY_9] {
        for at in 0..bytes.len() {
            assert!(items(&bytes[..at], NOW_MS).is_err(), "cut at {at}");
        }
        let whole = items(bytes, NOW_MS).expect("whole");
        for _ in 0..20_000 {
            let mut changed = bytes.to_vec();
            // With a checksum of 0, the rest is read as it is.
            let is_unchecked = draw(2) == 0;
            if is_unchecked {
                let footer = changed.len() - 8;
                changed[footer..].fill(0);
            }
            for _ in 0..=draw(3) {
                // A changed version might be one without a checksum.
                let at = 9 + draw(changed.len() - 17);
                changed[at] = match draw(3) {
                    0 => 0xff,
                    1 => changed[at] ^ 1 << draw(8),
                    _ => draw(256) as u8,
                };
            }
            let read = items(&changed, NOW_MS);
            if !is_unchecked && changed != bytes {
                assert!(read.is_err());
            }
            for item in read.iter().flatten() {
                if let RdbItem::Key(key) = item {
                    let _ = super::value(&key.payload);
                }
            }
            let _ = plain_dump(&changed, NOW_MS);
        }
        assert_eq!(items(bytes, NOW_MS).expect("whole"), whole);
    }
}
