//! The byte forms of records and letters.
//!
//! Integers are varints, an enum begins with a tag, a map or a set is in the order of its keys. Decoding is
//! total, and what it allocates was there in bytes. It refuses whatever an encoder does not write, except for
//! values of keys; so bytes that are read encode to the same bytes outside of these values. Values have the
//! form of [`txn::codec`], which a decoder also reads where a collection has a field twice. A decoder knows
//! the system's [`SiteMap`], and refuses partitions that the system does not have and updates that break the
//! guarantees of [`Update`].

use super::fence::{Ballot, Candidate, Decision, Incarnation};
use super::grant::GrantedNumbers;
use super::message::{Fencing, Letter, Message, Record, TransactionName, Update};
use super::{CommitStamp, SiteMap, VectorClock};
use crate::Conflict;
use crate::codec::{put_bool, put_id, put_value, take_bool, take_id, take_value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::codec::{Reader, put_key, put_varint, take_key};
use txn::{BootId, Entry, Key, NodeId, PartitionId, RequestId};

/// No system comes to the highest counters, behind which there would be no further ballot.
const BALLOT_COUNTER_MAX: u64 = 1 << 62;

/// Bytes that are read, and the system that they are about.
pub(super) struct Input<'a> {
    pub reader: Reader<'a>,
    pub sites: &'a SiteMap,
}

/// A part of a record or a letter.
pub(super) trait Form: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(input: &mut Input<'_>) -> Option<Self>;
}

/// An enum whose form begins with a tag.
trait Tagged {
    /// The name of the variant that has a tag.
    fn name_of(tag: u8) -> Option<&'static str>;
}

/// The form of a struct: its fields in this order.
macro_rules! struct_form {
    ($type:ident { $($field:ident),+ }) => {
        impl $crate::pcsi::codec::Form for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::pcsi::codec::Form::put(&self.$field, out);)+
            }

            fn take(input: &mut $crate::pcsi::codec::Input<'_>) -> Option<Self> {
                Some($type { $($field: $crate::pcsi::codec::Form::take(input)?),+ })
            }
        }
    };
}
pub(super) use struct_form;

/// The form of an enum: a tag, and the fields of the variant in this order.
macro_rules! enum_form {
    ($type:ident {
        $($tag:literal => $variant:ident $({ $($field:ident),+ })? $(($($item:ident),+))?,)+
    }) => {
        impl Form for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant $({ $($field),+ })? $(($($item),+))? => {
                        out.push($tag);
                        $($($field.put(out);)+)?
                        $($($item.put(out);)+)?
                    })+
                }
            }

            fn take(input: &mut Input<'_>) -> Option<Self> {
                Some(match input.reader.u8()? {
                    $($tag => {
                        $($(let $field = Form::take(input)?;)+)?
                        $($(let $item = Form::take(input)?;)+)?
                        $type::$variant $({ $($field),+ })? $(($($item),+))?
                    })+
                    _ => return None,
                })
            }
        }

        impl Tagged for $type {
            fn name_of(tag: u8) -> Option<&'static str> {
                match tag {
                    $($tag => Some(stringify!($variant)),)+
                    _ => None,
                }
            }
        }
    };
}

/// The kind of a letter, by its bytes, for traces.
pub fn describe(bytes: &[u8]) -> Option<&'static str> {
    let reader = &mut Reader::new(bytes);
    reader.u8()?;
    if take_bool(reader)? {
        reader.u8()?;
    }
    match Message::name_of(reader.u8()?)? {
        "Fencing" => Fencing::name_of(reader.u8()?),
        name => Some(name),
    }
}

pub(super) fn encode(form: &impl Form) -> Vec<u8> {
    let mut out = Vec::new();
    form.put(&mut out);
    out
}

pub(super) fn decode<T: Form>(bytes: &[u8], sites: &SiteMap) -> Option<T> {
    let mut input = Input { reader: Reader::new(bytes), sites };
    let form = T::take(&mut input)?;
    input.reader.is_empty().then_some(form)
}

impl Record {
    /// The bytes of the record.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a record of a site of this system; `None` where the bytes are none.
    pub fn decode(bytes: &[u8], sites: &SiteMap) -> Option<Record> {
        decode(bytes, sites)
    }
}

impl Letter {
    /// The bytes of the letter.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a letter of a site of this system; `None` where the bytes are none.
    pub fn decode(bytes: &[u8], sites: &SiteMap) -> Option<Letter> {
        decode(bytes, sites)
    }
}

impl Form for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }

    fn take(input: &mut Input<'_>) -> Option<u64> {
        input.reader.varint()
    }
}

impl Form for bool {
    fn put(&self, out: &mut Vec<u8>) {
        put_bool(out, *self);
    }

    fn take(input: &mut Input<'_>) -> Option<bool> {
        take_bool(&mut input.reader)
    }
}

impl Form for NodeId {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.0));
    }

    fn take(input: &mut Input<'_>) -> Option<NodeId> {
        u16::try_from(input.reader.varint()?).ok().map(NodeId)
    }
}

impl Form for PartitionId {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.0));
    }

    fn take(input: &mut Input<'_>) -> Option<PartitionId> {
        let partition = PartitionId(u16::try_from(input.reader.varint()?).ok()?);
        input.sites.has(partition).then_some(partition)
    }
}

impl Form for BootId {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.0));
    }

    fn take(input: &mut Input<'_>) -> Option<BootId> {
        u32::try_from(input.reader.varint()?).ok().map(BootId)
    }
}

impl Form for Incarnation {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }

    fn take(input: &mut Input<'_>) -> Option<Incarnation> {
        input.reader.u8().map(Incarnation)
    }
}

impl Form for RequestId {
    fn put(&self, out: &mut Vec<u8>) {
        put_id(out, *self);
    }

    fn take(input: &mut Input<'_>) -> Option<RequestId> {
        take_id(&mut input.reader)
    }
}

impl Form for Key {
    fn put(&self, out: &mut Vec<u8>) {
        put_key(out, self);
    }

    fn take(input: &mut Input<'_>) -> Option<Key> {
        take_key(&mut input.reader)
    }
}

/// The entry of a key after a write; `None` after a delete.
impl Form for Option<Entry> {
    fn put(&self, out: &mut Vec<u8>) {
        put_value(out, self.as_ref());
    }

    fn take(input: &mut Input<'_>) -> Option<Option<Entry>> {
        take_value(&mut input.reader)
    }
}

fn put_option<T: Form>(option: Option<&T>, out: &mut Vec<u8>) {
    put_bool(out, option.is_some());
    option.iter().for_each(|value| value.put(out));
}

fn take_option<T: Form>(input: &mut Input<'_>) -> Option<Option<T>> {
    match take_bool(&mut input.reader)? {
        true => T::take(input).map(Some),
        false => Some(None),
    }
}

/// The form of an optional part: a flag, and the part.
macro_rules! option_form {
    ($($type:ty),+) => {
        $(impl Form for Option<$type> {
            fn put(&self, out: &mut Vec<u8>) {
                put_option(self.as_ref(), out);
            }

            fn take(input: &mut Input<'_>) -> Option<Self> {
                take_option(input)
            }
        })+
    };
}

option_form!(
    Incarnation,
    Conflict,
    CommitStamp,
    VectorClock,
    BTreeMap<PartitionId, CommitStamp>,
    Arc<super::ReplicaState>,
    Arc<super::RemoteRead>
);

impl<T: Form> Form for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_ref().put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<Arc<T>> {
        T::take(input).map(Arc::new)
    }
}

impl<A: Form, B: Form> Form for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<(A, B)> {
        Some((A::take(input)?, B::take(input)?))
    }
}

impl<A: Form, B: Form, C: Form> Form for (A, B, C) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<(A, B, C)> {
        Some((A::take(input)?, B::take(input)?, C::take(input)?))
    }
}

impl<T: Form> Form for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(input: &mut Input<'_>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        for _ in 0..input.reader.varint()? {
            items.push(T::take(input)?);
        }
        Some(items)
    }
}

impl<T: Form + Ord> Form for BTreeSet<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(input: &mut Input<'_>) -> Option<BTreeSet<T>> {
        let mut items = BTreeSet::new();
        for _ in 0..input.reader.varint()? {
            let item = T::take(input)?;
            let is_next = items.last().is_none_or(|last| *last < item);
            is_next.then(|| items.insert(item))?;
        }
        Some(items)
    }
}

impl<K: Form + Ord, V: Form> Form for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Option<BTreeMap<K, V>> {
        let mut items = BTreeMap::new();
        for _ in 0..input.reader.varint()? {
            let (key, value) = (K::take(input)?, V::take(input)?);
            let is_next = items.last_key_value().is_none_or(|(last, _)| *last < key);
            is_next.then(|| items.insert(key, value))?;
        }
        Some(items)
    }
}

impl Form for Update {
    fn put(&self, out: &mut Vec<u8>) {
        let Update { name, number, stamps, depends, writes } = self;
        name.put(out);
        number.put(out);
        stamps.put(out);
        depends.put(out);
        writes.put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<Update> {
        let update = Update {
            name: Form::take(input)?,
            number: Form::take(input)?,
            stamps: Form::take(input)?,
            depends: Form::take(input)?,
            writes: Form::take(input)?,
        };
        update.keeps_guarantees(input.sites).then_some(update)
    }
}

struct_form!(CommitStamp { site, sequence });
struct_form!(TransactionName { origin, incarnation, boot, number });
struct_form!(Letter { from, to, message });
struct_form!(Candidate { incarnation, start });

impl Form for Decision {
    fn put(&self, out: &mut Vec<u8>) {
        let Decision { candidate, updates, granted } = self;
        candidate.put(out);
        updates.put(out);
        granted.put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<Decision> {
        let (candidate, updates): (Candidate, _) = Form::take(input)?;
        let granted: GrantedNumbers = Form::take(input)?;
        let mut numbers = granted.values().flat_map(BTreeMap::keys);
        numbers.all(|number| candidate.follows(*number)).then_some(Decision { candidate, updates, granted })
    }
}

impl Form for Ballot {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0, self.1).put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<Ballot> {
        let (counter, leader) = Form::take(input)?;
        (counter <= BALLOT_COUNTER_MAX).then_some(Ballot(counter, leader))
    }
}

enum_form!(Conflict {
    1 => Key(key),
    2 => Locked { key, holder },
    3 => Listing,
    4 => Snapshot,
    5 => Timestamp,
    6 => Superseded,
});

enum_form!(Message {
    1 => Prepare { name, keys, views, grant },
    2 => Vote { name, refused, numbers },
    3 => Outcome { name, stamps },
    4 => Acknowledged(name),
    5 => Ask(name),
    6 => Updates { after, sent, through, last, retained, updates },
    7 => Applied { through },
    8 => Want { origin, views },
    9 => Relayed { origin, updates },
    10 => Fencing(message),
    11 => Look { id, key, fit },
    12 => Looked { id, key, read, is_behind },
    13 => AskView(partition),
    14 => View { partition, view },
});

enum_form!(Fencing {
    1 => Join { candidate, inquiry },
    2 => Refused { candidate, used },
    3 => Admitted { candidate, inquiry, last, decisions, excluded },
    4 => Fetch { candidate, inquiry, partition },
    5 => Fetched { candidate, inquiry, partition, state },
    6 => Promise { ballot, targets },
    7 => Report { ballot, frozen, decisions, updates, granted, is_joining },
    8 => Outdated { promised },
    9 => Decided { decisions },
    10 => Fenced { incarnation },
    11 => UnderWay { incarnation },
});

enum_form!(Record {
    1 => Founded,
    2 => Installed(installed),
    3 => Opened,
    4 => Promised { ballot, targets },
    5 => Decided { decisions },
    6 => Admitted(site),
    7 => Started(boot),
    8 => Locked { name, keys, numbers },
    9 => Released { name, stamps },
    10 => Committed { id, name, resolvers, update },
    11 => Applied { update },
    12 => Settled(name),
    13 => Progress { acknowledged, stable },
    14 => Followed { clocks },
    15 => Nulled { update },
});
