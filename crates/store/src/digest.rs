//! The state digest: what the replicas of a partition compare to notice that one of them has diverged.
//!
//! The digest is a wrapping sum over everything that final-committed: each write adds a hash of its key, its
//! position and what it left there; each clear of the key space adds a hash of its position; each transaction
//! of this partition alone that ended with an error adds a hash of its position. (A read over several
//! partitions may be executed by its client's node only, so its outcome is not that of every replica.)
//! Nothing is ever subtracted, so the sum does not depend on the order in which workers compute its terms,
//! and two replicas that once differed differ for ever (but for an accident of one in 2^64).
//!
//! # What a write's hash covers
//!
//! | value | covered |
//! |---|---|
//! | byte string of up to [`WHOLE_BYTES_MAX`] bytes | every byte |
//! | longer byte string | its length, its first and its last [`END_BYTES`] bytes |
//! | hash, set of up to [`WHOLE_FIELDS_MAX`] names | every name and value |
//! | longer hash, set | how many names it has |
//! | list | its length, its first and its last element |
//! | sorted set | its length, its first and its last member with their scores |
//! | stream | its length, the ids of its first and its last entry, how many groups it has |
//!
//! The type and the time to live are always covered. A hash never looks at how a value is kept, which a
//! restart may change. So two replicas that differ in the middle of a large value only are not told apart by
//! the write that made the difference.
//!
//! # At which position
//!
//! Engines final-commit in the order of positions, and [`Run::add`] is called in that order. Whoever wants
//! the digest as of a position asks before the position can be passed ([`Digests::note_at`]), and finds it in
//! the [`Noted`] once the engine has come there: exactly the transactions up to that position are in it,
//! whatever other workers final-commit meanwhile.

use crate::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use txn::hash::{hash_bytes, mix};
use txn::{Entry, Key, Position, Value};

/// Byte strings up to this length are covered whole.
pub const WHOLE_BYTES_MAX: usize = 4096;
/// Of longer ones, so many bytes at each end are covered.
pub const END_BYTES: usize = 64;
/// Hashes and sets with up to so many names are covered whole.
pub const WHOLE_FIELDS_MAX: usize = 8;

/// What distinguishes the kinds of terms.
const CLEAR: u64 = 0x636c_6561_7261_6c6c;
const ERROR: u64 = 0x6572_726f_7261_6c6c;

/// Odd, so that multiplying by it loses nothing: keys, contents and positions of the same bits stay apart.
const SPREAD: [u64; 2] = [0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

/// What a write adds to the digest; `None` is a tombstone.
#[inline]
pub fn of_write(key: &Key, position: Position, entry: Option<&Entry>) -> u64 {
    let content = entry.map_or(0, |Entry { value, expires_at_ms }| {
        let hash = match value {
            Value::String(blob) if blob.len() <= WHOLE_BYTES_MAX => hash_bytes(blob),
            other => of_value(other),
        };
        hash.wrapping_add(expires_at_ms.wrapping_mul(2)).wrapping_add(1)
    });
    term(key.hash64() ^ content.wrapping_mul(SPREAD[0]), position)
}

/// What a clear of the key space adds to the digest.
pub fn of_clear(position: Position) -> u64 {
    term(CLEAR, position)
}

/// What a transaction of one partition adds to the digest that ended with an error.
pub fn of_error(position: Position) -> u64 {
    term(ERROR, position)
}

#[inline]
fn term(content: u64, position: Position) -> u64 {
    mix(content ^ position.0.wrapping_mul(SPREAD[1]))
}

/// What is covered of a value. See the module's head.
fn of_value(value: &Value) -> u64 {
    let (kind, len) = match value {
        Value::String(_) | Value::LongString(_) => (1, value.string_len().unwrap_or_default()),
        Value::Hash(hash) => (2, hash.len()),
        Value::List(list) => (3, list.len()),
        Value::Set(set) => (4, set.len()),
        Value::SortedSet(set) => (5, set.len()),
        Value::Stream(stream) => (6, stream.len()),
    };
    let ends = match value {
        Value::String(blob) if len <= WHOLE_BYTES_MAX => return hash_bytes(blob),
        Value::LongString(text) if len <= WHOLE_BYTES_MAX => return hash_bytes(&text.copy(0..len)),
        Value::String(blob) => pair(hash_bytes(&blob[..END_BYTES]), hash_bytes(&blob[len - END_BYTES..])),
        Value::LongString(text) => {
            pair(hash_bytes(&text.copy(0..END_BYTES)), hash_bytes(&text.copy(len - END_BYTES..len)))
        }
        Value::Hash(hash) if len <= WHOLE_FIELDS_MAX => {
            sum(hash.iter().map(|(name, value)| pair(hash_bytes(&name), hash_bytes(&value))))
        }
        Value::Set(set) if len <= WHOLE_FIELDS_MAX => sum(set.names().map(|name| mix(hash_bytes(&name)))),
        Value::Hash(_) | Value::Set(_) => 0,
        Value::List(list) => {
            let at = |place| list.get(place).map_or(0, |element| hash_bytes(&element));
            pair(at(0), at(len.saturating_sub(1)))
        }
        Value::SortedSet(set) => {
            let at = |rank| {
                set.at(rank).map_or(0, |scored| pair(hash_bytes(&scored.member), scored.score.to_bits()))
            };
            pair(at(0), at(len.saturating_sub(1)))
        }
        Value::Stream(stream) => {
            let ids = [stream.first(), stream.last()].map(|entry| entry.map(|entry| entry.id));
            let [first, last] = ids.map(|id| id.map_or(0, |id| pair(id.ms, id.sequence)));
            pair(pair(first, last), stream.groups().len() as u64)
        }
    };
    pair(pair(kind, len as u64), ends)
}

/// An order-dependent mix of two numbers.
fn pair(first: u64, second: u64) -> u64 {
    mix(mix(first).rotate_left(1) ^ second)
}

fn sum(terms: impl Iterator<Item = u64>) -> u64 {
    terms.fold(0, u64::wrapping_add)
}

/// The state digest of a partition, as of its final position.
#[derive(Debug, Default)]
pub struct Digests(Mutex<Sum>);

/// `marks` ascend by position, and all are above `position`.
#[derive(Debug, Default)]
struct Sum {
    /// The last position that was added.
    position: Position,
    /// `None` until the sum is begun or loaded.
    digest: Option<u64>,
    marks: VecDeque<Mark>,
}

/// What happens when a position has been added.
#[derive(Debug)]
struct Mark {
    position: Position,
    what: Marked,
}

#[derive(Debug)]
enum Marked {
    /// The sum begins with 0 behind the position.
    Begin,
    Note(Noted),
}

impl Marked {
    fn reach(&self, digest: &mut Option<u64>) {
        match self {
            Marked::Begin => *digest = Some(0),
            Marked::Note(noted) => noted.set(*digest),
        }
    }
}

/// The digest as of a position, once the engine has come there.
#[derive(Clone, Debug, Default)]
pub struct Noted(Arc<OnceLock<Option<u64>>>);

impl Noted {
    fn set(&self, digest: Option<u64>) {
        // Each is set once: its mark goes with it.
        let _ = self.0.set(digest);
    }
    /// Whether the engine has come to the position.
    pub fn is_reached(&self) -> bool {
        self.0.get().is_some()
    }
    /// The digest: `None` before the engine has come to the position, and where the digest is unknown.
    pub fn digest(&self) -> Option<u64> {
        self.0.get().copied().flatten()
    }
}

impl Digests {
    /// Final commits begin here: nobody else changes or reads the digest until the run is dropped.
    #[inline]
    pub fn run(&self) -> Run<'_> {
        Run(self.0.lock())
    }

    /// Everything up to a position was loaded; the digest is that of the replica that wrote it.
    pub fn load(&self, position: Position, digest: Option<u64>) {
        let mut sum = self.0.lock();
        (sum.position, sum.digest) = (position, digest);
    }

    /// The sum begins with 0 behind this position, whatever it was.
    pub fn begin_at(&self, position: Position) {
        self.mark(position, Marked::Begin);
    }

    /// Notes the digest as of a position. To be called before the engine can pass the position: before it is
    /// told that something behind it is confirmed. Otherwise what is noted is that nothing is known.
    pub fn note_at(&self, position: Position) -> Noted {
        let noted = Noted::default();
        self.mark(position, Marked::Note(noted.clone()));
        noted
    }

    fn mark(&self, position: Position, what: Marked) {
        let mut sum = self.0.lock();
        if position < sum.position {
            if let Marked::Note(noted) = what {
                noted.set(None);
            }
        } else if position == sum.position {
            what.reach(&mut sum.digest);
        } else {
            // Nobody waits any more for what nobody else holds.
            let is_held = |mark: &Mark| match &mark.what {
                Marked::Begin => true,
                Marked::Note(noted) => Arc::strong_count(&noted.0) > 1,
            };
            sum.marks.retain(is_held);
            let place = sum.marks.partition_point(|mark| mark.position <= position);
            sum.marks.insert(place, Mark { position, what });
        }
    }
}

/// Final commits, one after another.
pub struct Run<'a>(MutexGuard<'a, Sum>);

impl Run<'_> {
    /// A transaction final-commits: the next position.
    #[inline]
    pub fn add(&mut self, position: Position, terms: u64) {
        let sum = &mut *self.0;
        sum.position = position;
        sum.digest = sum.digest.map(|digest| digest.wrapping_add(terms));
        if !sum.marks.is_empty() {
            self.reach();
        }
    }

    #[cold]
    fn reach(&mut self) {
        let sum = &mut *self.0;
        while let Some(mark) = sum.marks.pop_front_if(|mark| mark.position <= sum.position) {
            mark.what.reach(&mut sum.digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::Blob;
    use txn::value::{HashValue, ListValue, LongString, SetValue, SortedSetValue};

    #[test]
    fn a_digest_is_that_of_its_position_whatever_follows() {
        let digests = Digests::default();
        digests.load(Position(3), None);
        let (unknown, late) = (digests.note_at(Position(3)), digests.note_at(Position(2)));
        assert!(unknown.is_reached() && late.is_reached());
        assert_eq!((unknown.digest(), late.digest()), (None, None));
        digests.begin_at(Position(4));
        let [at_8, at_4, at_5, again] = [8, 4, 5, 5].map(|position| digests.note_at(Position(position)));
        for position in 4..8 {
            digests.run().add(Position(position), 10 * position);
        }
        assert_eq!([&at_4, &at_5, &again].map(Noted::digest), [Some(0), Some(50), Some(50)]);
        assert!(!at_8.is_reached());
        assert_eq!(digests.note_at(Position(7)).digest(), Some(180));
        drop(at_8);
        let at_9 = digests.note_at(Position(9));
        assert_eq!(digests.0.lock().marks.len(), 1, "one that nobody holds is forgotten");
        let mut run = digests.run();
        run.add(Position(8), u64::MAX);
        run.add(Position(9), 0);
        drop(run);
        assert_eq!(at_9.digest(), Some(179));
    }

    fn hash(fields: &[(&str, &str)]) -> Value {
        let mut hash = HashValue::new();
        for (name, value) in fields {
            hash.insert(Blob::new(name.as_bytes()), Blob::new(value.as_bytes()));
        }
        hash.into()
    }

    /// What a write of one value under one key at one position adds.
    fn of(value: impl Into<Value>) -> u64 {
        of_write(&Key::new(b"key"), Position(7), Some(&Entry::new(value)))
    }

    #[test]
    fn what_a_hash_says_that_it_covers_changes_it() {
        let key = Key::new(b"key");
        let with_expiry = Entry { expires_at_ms: 5, ..Entry::new("x") };
        let mut list = ListValue::new();
        list.push_back(Blob::new(b"x"));
        let mut set = SetValue::new();
        set.insert(Blob::new(b"x"), ());
        let sorted = |score| {
            let mut sorted = SortedSetValue::new();
            sorted.insert(Blob::new(b"x"), score);
            Value::from(sorted)
        };
        let long = |first: u8, last: u8, len: usize| {
            let mut bytes = vec![7; len];
            (bytes[0], bytes[len - 1]) = (first, last);
            Value::from(bytes)
        };
        let mut terms = vec![
            of("x"),
            of("y"),
            of(""),
            of_write(&key, Position(8), Some(&Entry::new("x"))),
            of_write(&Key::new(b"other"), Position(7), Some(&Entry::new("x"))),
            of_write(&Key::system(b"key"), Position(7), Some(&Entry::new("x"))),
            of_write(&key, Position(7), Some(&with_expiry)),
            of_write(&key, Position(7), None),
            of_write(&key, Position(8), None),
            of_clear(Position(7)),
            of_clear(Position(8)),
            of_error(Position(7)),
            of(hash(&[("a", "b")])),
            of(hash(&[("b", "a")])),
            of(hash(&[("a", "b"), ("c", "d")])),
            of(hash(&[("a", "d"), ("c", "b")])),
            of(list),
            of(set),
            of(sorted(1.0)),
            of(sorted(2.0)),
            of(long(1, 2, WHOLE_BYTES_MAX)),
            of(long(1, 2, WHOLE_BYTES_MAX + 1)),
            of(long(1, 3, WHOLE_BYTES_MAX + 1)),
            of(long(2, 2, WHOLE_BYTES_MAX + 1)),
            of(long(1, 2, WHOLE_BYTES_MAX + 2)),
        ];
        let count = terms.len();
        terms.sort_unstable();
        terms.dedup();
        assert_eq!(terms.len(), count);
    }

    #[test]
    fn a_hash_does_not_look_at_how_a_value_is_kept() {
        for len in [10, WHOLE_BYTES_MAX, WHOLE_BYTES_MAX + 1, 3 * WHOLE_BYTES_MAX] {
            let bytes: Vec<u8> = (0..len).map(|place| (place % 251) as u8).collect();
            let mut long = LongString::default();
            long.append(&bytes);
            assert_eq!(of(long), of(bytes), "{len} bytes");
        }
        assert_eq!(of(hash(&[("a", "b"), ("c", "d")])), of(hash(&[("c", "d"), ("a", "b")])));
    }
}
