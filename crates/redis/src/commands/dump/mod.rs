//! DUMP and RESTORE: values in the form of Redis's snapshot files, so that keys move between Redis and here.
//!
//! ```text
//! type (1 byte)  value  version (2 bytes)  CRC64 of all before (8 bytes)       both little endian
//! ```
//!
//! DUMP writes the plainest form of each type, which every Redis since 5 knows (of a stream, since 7.0),
//! under the version of Redis 7.0; but a stream of which a consumer has asked for more than it got has the
//! form and the version of 7.2. RESTORE reads what Redis 7.0 writes, and what it reads of older versions'
//! (but for the zipmaps of before 2.6), and 7.2's packed sets and streams as well. Modules' values are no
//! good data here.

mod crc64;
mod cursor;
mod lzf;
mod packed;
mod read;
mod streams;
mod write;

use super::strings::argument;
use super::{keys, options};
use crate::errors;
use crate::work;
use txn::{Blob, Entry, Key, Outcome, Reply, Tx, Value};

/// The version of the form that DUMP writes, where it is enough: Redis 7.0's.
const VERSION: u16 = 10;
/// The newest version that RESTORE reads: Redis 7.2's, which differs in types of their own only. DUMP writes
/// it for streams of which the older form would not tell all.
const VERSION_MAX: u16 = 11;
pub(crate) const FOOTER_BYTES: usize = 10;

pub(crate) use crc64::checksum_behind;
pub(crate) use cursor::Cursor;
pub(crate) use packed::listpack;
pub(crate) use read::{Strings, kind, value};
pub(crate) use write::{put_len, put_string};

/// A value with its footer.
fn dumped(value: &Value) -> Vec<u8> {
    let dumped = with_footer(write::value(value));
    match value {
        Value::String(_) | Value::LongString(_) => {}
        Value::Hash(hash) => work::members(hash.len()),
        Value::List(list) => work::elements(list.len()),
        Value::Set(set) => work::members(set.len()),
        Value::SortedSet(set) => work::scored(set.len()),
        Value::Stream(stream) => work::members(stream.len()),
    }
    count_checksum(dumped.len());
    dumped
}

/// Counts the checksum of dumped bytes, which takes longer for them than copying them.
fn count_checksum(dumped_bytes: usize) {
    work::bytes(2 * dumped_bytes);
}

/// What is dumped, with the footer behind it.
pub(crate) fn with_footer(mut bytes: Vec<u8>) -> Vec<u8> {
    let version = match bytes.first() {
        Some(&kind::STREAM_3) => VERSION_MAX,
        _ => VERSION,
    };
    bytes.extend(version.to_le_bytes());
    let checksum = crc64::checksum(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// What stands before the footer, if that is right.
pub(crate) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (value, footer) = bytes.split_at_checked(bytes.len().checked_sub(FOOTER_BYTES)?)?;
    let (version, checksum) = footer.split_at(2);
    let is_known = u16::from_le_bytes(version.try_into().ok()?) <= VERSION_MAX;
    let covered = &bytes[..bytes.len() - checksum.len()];
    (is_known && crc64::checksum(covered).to_le_bytes() == checksum).then_some(value)
}

/// DUMP key
pub async fn dump(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let value = tx.get(&Key::from(&args[0])).await?;
    Ok(value.map_or(Reply::Nil, |value| Reply::bulk(dumped(&value))))
}

/// The options of RESTORE that have an effect.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
}

impl RestoreOptions {
    /// No access times and frequencies are kept, but they are checked.
    fn parse(mut words: &[Blob]) -> Result<RestoreOptions, Reply> {
        let mut all = RestoreOptions::default();
        let (mut has_idle_time, mut has_frequency) = (false, false);
        loop {
            words = match words {
                [] => return Ok(all),
                [word, rest @ ..] if options::is(word, "REPLACE") => {
                    all.replaces = true;
                    rest
                }
                [word, rest @ ..] if options::is(word, "ABSTTL") => {
                    all.is_absolute = true;
                    rest
                }
                [word, seconds, rest @ ..] if options::is(word, "IDLETIME") && !has_frequency => {
                    if options::integer(seconds)? < 0 {
                        return Err(errors::RESTORE_IDLETIME);
                    }
                    has_idle_time = true;
                    rest
                }
                [word, frequency, rest @ ..] if options::is(word, "FREQ") && !has_idle_time => {
                    if !(0..=255).contains(&options::integer(frequency)?) {
                        return Err(errors::RESTORE_FREQ);
                    }
                    has_frequency = true;
                    rest
                }
                _ => return Err(errors::SYNTAX),
            };
        }
    }
}

/// RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
pub async fn restore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let options = argument!(RestoreOptions::parse(&args[3..]));
    let key = Key::from(&args[0]);
    if !options.replaces && tx.entry_for_update(&key).await?.is_some() {
        return Ok(errors::BUSY_KEY);
    }
    let ttl_ms = argument!(options::integer(&args[1]));
    let Ok(ttl_ms) = u64::try_from(ttl_ms) else {
        return Ok(errors::RESTORE_TTL);
    };
    count_checksum(args[2].len());
    let Some(bytes) = checked(&args[2]) else {
        return Ok(errors::RESTORE_FOOTER);
    };
    let Some(value) = value(bytes) else {
        return Ok(errors::RESTORE_DATA);
    };
    let now_ms = tx.now_ms();
    let expires_at_ms = match ttl_ms {
        0 => 0,
        date_ms if options.is_absolute => {
            let offset_ms = tx.clock_offset_ms().await?;
            // 0 is no expiry.
            date_ms.saturating_add_signed(offset_ms).max(1)
        }
        ttl_ms => match now_ms.checked_add(ttl_ms) {
            Some(at_ms) if i64::try_from(at_ms).is_ok() => at_ms,
            _ => return Ok(errors::invalid_expire("restore")),
        },
    };
    let entry = Entry { value, expires_at_ms };
    if !entry.expired(now_ms) {
        tx.put_entry(&key, entry).await?;
    } else if options.replaces {
        keys::delete(tx, &key).await?;
    }
    Ok(Reply::OK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::value::{
        HashValue, ListValue, Pending, SetValue, SortedSetValue, StreamEntry, StreamGroup, StreamId,
        StreamValue,
    };

    fn draws(seed: u64) -> impl FnMut(usize) -> usize {
        let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
        println!("ORDO_SEED={seed}");
        let mut state = seed;
        move |bound| {
            state = txn::hash::mix(state);
            (state % bound as u64) as usize
        }
    }

    fn names(count: usize, draw: &mut impl FnMut(usize) -> usize) -> Vec<Blob> {
        let name = |at| Blob::from(format!("{at}{}", "x".repeat(draw(100) * draw(20))));
        (0..count).map(name).collect()
    }

    /// Entries with the same fields, others, and some deleted; groups with entries pending.
    fn stream(names: &[Blob], draw: &mut impl FnMut(usize) -> usize) -> StreamValue {
        let mut stream = StreamValue::new();
        let mut id = StreamId { ms: 5, sequence: 7 };
        let mut ids = Vec::new();
        for name in names {
            id = match draw(3) {
                0 => StreamId { sequence: id.sequence + 1, ..id },
                1 => StreamId { ms: id.ms + 1, sequence: draw(3) as u64 },
                _ => StreamId { ms: id.ms + draw(1 << 40) as u64 + 1, sequence: 1 << 63 },
            };
            ids.push(id);
            let number = Blob::from(format!("{}", draw(1 << 50) as i64 >> draw(50)));
            let fields = match draw(4) {
                0 => vec![name.clone(), number],
                _ => vec![Blob::from("f"), name.clone(), Blob::from("-7"), number],
            };
            stream.append(StreamEntry { id, fields: fields.into() });
        }
        for name in ["first", "second"] {
            let mut group = StreamGroup::new(id, (name == "first").then_some(3));
            for (at, &id) in ids.iter().enumerate().take(50) {
                let consumer = Blob::from(format!("consumer {}", draw(4)));
                let now_ms = at as u64 + 1;
                group.see(&consumer, now_ms);
                // Not all that was asked for was got.
                if draw(2) == 0 {
                    group.activate(&consumer, now_ms);
                }
                group.give(Pending { id, consumer, delivered_ms: now_ms, deliveries: draw(5) as u64 });
            }
            stream.add_group(Blob::from(name), group);
        }
        ids.iter().skip(1).step_by(3).for_each(|&id| assert!(stream.delete(id)));
        stream
    }

    fn values(count: usize, draw: &mut impl FnMut(usize) -> usize) -> [Value; 6] {
        let names = names(count, draw);
        let scored = |(at, name): (usize, &Blob)| (name.clone(), at as f64 / 3.0 - 7.0);
        [
            Value::from(names[0].clone()),
            Value::from(names.iter().cloned().collect::<ListValue>()),
            Value::from(names.iter().cloned().collect::<SetValue>()),
            Value::from(names.iter().map(|name| (name.clone(), name.clone())).collect::<HashValue>()),
            Value::from(names.iter().enumerate().map(scored).collect::<SortedSetValue>()),
            Value::from(stream(&names, draw)),
        ]
    }

    #[test]
    fn what_is_dumped_is_read_as_it_was() {
        let mut draw = draws(5);
        for count in [1, 2, 63, 64, 65, 200, 20_000] {
            for value in values(count, &mut draw) {
                let bytes = dumped(&value);
                assert_eq!(checked(&bytes).and_then(super::value), Some(value));
                assert_eq!(checked(&bytes[..bytes.len() - 1]), None);
            }
        }
    }

    /// Forms that only Redis writes, of every kind.
    const PACKED: [&[u8]; 8] = [
        b"\x00\xc3\x0b\x1d\x01aa\xe0\x0e\x00\x03aaaa",
        b"\x12\x02\x02\x0d\x0d\x00\x00\x00\x02\x00\xdf\xf9\x02\x81a\x02\xff\x01\x05plain",
        b"\x10\x11\x11\x00\x00\x00\x04\x00\x81a\x02\x01\x01\x81b\x02\x02\x01\xff",
        b"\x11\x0d\x0d\x00\x00\x00\x02\x00\x81a\x02\x817\x02\xff",
        b"\x0d\x16\x16\x00\x00\x00\x13\x00\x00\x00\x04\x00\x00\x01f\x03\x01v\x03\x01g\x03\xf8\xff",
        b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\xfb\xff\x01\x00,\x01",
        b"\x03\x04\x01a\x032.5\x01b\xfe\x01c\xff\x01d\x05-1e+3",
        b"\x14\x0f\x0f\x00\x00\x00\x03\x00\x81a\x02\x01\x01\xdf\xfb\x02\xff",
    ];

    #[test]
    fn no_bytes_panic_a_reader() {
        let mut draw = draws(6);
        let whole: Vec<Vec<u8>> = (values(5, &mut draw).iter().map(write::value))
            .chain(PACKED.iter().map(|bytes| bytes.to_vec()))
            .collect();
        for bytes in &whole {
            assert!(super::value(bytes).is_some(), "{}", bytes.escape_ascii());
        }
        for _ in 0..200_000 {
            let mut bytes = whole[draw(whole.len())].clone();
            for _ in 0..=draw(3) {
                let at = draw(bytes.len());
                bytes[at] = match draw(3) {
                    0 => 0xff,
                    1 => draw(32) as u8,
                    _ => draw(256) as u8,
                };
            }
            bytes.truncate(bytes.len() - draw(bytes.len()) * draw(2));
            let _ = super::value(&bytes);
        }
    }

    /// A list of strings that are each as long as allowed when inflated: they share what one may get to.
    #[test]
    fn compressed_strings_are_bounded_together() {
        let mut literal = vec![0, b'x'];
        // Each of these writes 264 bytes.
        literal.extend([0xe0, 0xff, 0].repeat(400));
        let len = 1 + 264 * 400_u32;
        let mut string = vec![0xc3, 0x80];
        string.extend((literal.len() as u32).to_be_bytes());
        string.push(0x80);
        string.extend(len.to_be_bytes());
        string.extend(literal);
        let list = |count: u16| {
            let mut bytes = vec![1];
            bytes.extend((0x4000 | count).to_be_bytes());
            bytes.extend(string.repeat(usize::from(count)));
            bytes
        };
        assert!(super::value(&list(100)).is_some());
        assert!(super::value(&list(6000)).is_none());
    }
}
