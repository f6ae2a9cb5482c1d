//! Messages as bytes. Numbers are varints; a count precedes what there may be several of.

use super::exchange::{AbortNumber, Basis};
use super::message::{Asked, FragmentResults, GroupId, Message, Note, Told};
use std::sync::Arc;
use txn::codec::{
    Reader, put_bytes, put_entry, put_key, put_reply, put_varint, take_entry, take_key, take_reply,
};
use txn::tx::Read;
use txn::value::LongString;
use txn::{
    Blob, Entry, Epoch, FragmentValue, Key, PartitionId, Partitions, Position, ScanPage, ScanRange,
    SlotRange, Space,
};

impl Message {
    /// The version of the encoding: the first that has its notes, so that older builds get what they know.
    fn format(&self) -> u8 {
        let mut notes = self.groups.iter().flat_map(|(_, notes)| notes);
        if notes.any(|note| matches!(note, Note::Fragments { .. })) { 2 } else { 1 }
    }

    /// The bytes that other partitions get.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.format()];
        put_varint(&mut out, self.groups.len() as u64);
        for (id, notes) in &self.groups {
            put_varint(&mut out, id.epoch.0);
            put_varint(&mut out, id.digest);
            put_varint(&mut out, u64::from(id.part));
            put_varint(&mut out, id.partitions.len() as u64);
            for partition in &id.partitions {
                put_varint(&mut out, u64::from(partition.0));
            }
            put_varint(&mut out, notes.len() as u64);
            for note in notes {
                put_note(&mut out, note);
            }
        }
        out
    }

    /// The message as bytes, in pieces of about so many bytes at most, if it has several notes: each is a
    /// message by itself.
    pub fn encode_in_pieces(mut self, bytes_max: usize) -> Vec<Vec<u8>> {
        let whole = self.encode();
        if whole.len() <= bytes_max {
            return vec![whole];
        }
        drop(whole);
        let rest = match &mut self.groups[..] {
            [] => return Vec::new(),
            [(id, notes)] if notes.len() > 1 => {
                let rest = notes.split_off(notes.len() / 2);
                vec![(id.clone(), rest)]
            }
            [_] => return vec![self.encode()],
            groups => {
                let half = groups.len() / 2;
                self.groups.split_off(half)
            }
        };
        let mut pieces = self.encode_in_pieces(bytes_max);
        pieces.extend(Message { groups: rest }.encode_in_pieces(bytes_max));
        pieces
    }

    /// Reads what [`Message::encode`] wrote; `None` if the bytes are something else.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let mut reader = Reader::new(bytes);
        let format = reader.u8()?;
        let mut message = Message::default();
        for _ in 0..reader.varint()? {
            let epoch = Epoch(reader.varint()?);
            let digest = reader.varint()?;
            let part = u32::try_from(reader.varint()?).ok()?;
            let partitions = take_list(&mut reader, take_partition)?;
            let id = GroupId { epoch, digest, part, partitions: Partitions::from_vec(partitions) };
            message.groups.push((id, take_list(&mut reader, take_note)?));
        }
        (reader.is_empty() && format == message.format()).then_some(message)
    }
}

/// Reads a count and as many things. What claims to be more than there are bytes ends when these do.
fn take_list<T>(
    reader: &mut Reader<'_>,
    mut take: impl FnMut(&mut Reader<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut list = Vec::new();
    for _ in 0..reader.varint()? {
        list.push(take(reader)?);
    }
    Some(list)
}

fn take_partition(reader: &mut Reader<'_>) -> Option<PartitionId> {
    Some(PartitionId(u16::try_from(reader.varint()?).ok()?))
}

fn take_u32(reader: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(reader.varint()?).ok()
}

fn put_number(out: &mut Vec<u8>, number: AbortNumber) {
    put_varint(out, number.era);
    put_varint(out, u64::from(number.count));
}

fn take_number(reader: &mut Reader<'_>) -> Option<AbortNumber> {
    Some(AbortNumber { era: reader.varint()?, count: take_u32(reader)? })
}

fn put_raised(out: &mut Vec<u8>, raised: &[(u32, AbortNumber)]) {
    put_varint(out, raised.len() as u64);
    for (member, number) in raised {
        put_varint(out, u64::from(*member));
        put_number(out, *number);
    }
}

fn take_raised(reader: &mut Reader<'_>) -> Option<Vec<(u32, AbortNumber)>> {
    take_list(reader, |reader| Some((take_u32(reader)?, take_number(reader)?)))
}

fn put_space(out: &mut Vec<u8>, space: Space) {
    out.push(space as u8);
}

fn take_space(reader: &mut Reader<'_>) -> Option<Space> {
    match reader.u8()? {
        0 => Some(Space::User),
        1 => Some(Space::System),
        _ => None,
    }
}

fn put_read(out: &mut Vec<u8>, asked: &Asked, told: &Told) {
    match asked {
        Asked::Key(key) => {
            out.push(0);
            put_key(out, key);
        }
        Asked::Page(range) => {
            out.push(1);
            put_space(out, range.space);
            put_varint(out, range.from_hash);
            put_varint(out, range.limit as u64);
            put_varint(out, u64::from(range.slots.first));
            put_varint(out, u64::from(range.slots.last));
        }
        Asked::Count => out.push(2),
    }
    match told {
        Told::Record(read) => {
            out.push(0);
            put_varint(out, read.version.0);
            out.push(u8::from(read.entry.is_some()));
            if let Some(entry) = &read.entry {
                put_entry(out, entry);
            }
        }
        Told::Page(page) => {
            out.push(1);
            put_varint(out, page.entries.len() as u64);
            for (key, entry) in &page.entries {
                put_key(out, key);
                put_entry(out, entry);
            }
            out.push(u8::from(page.next_hash.is_some()));
            if let Some(next_hash) = page.next_hash {
                put_varint(out, next_hash);
            }
        }
        Told::Count(count) => {
            out.push(2);
            put_varint(out, *count as u64);
        }
    }
}

fn take_flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn take_read(reader: &mut Reader<'_>) -> Option<(Asked, Told)> {
    let asked = match reader.u8()? {
        0 => Asked::Key(take_key(reader)?),
        1 => Asked::Page(ScanRange {
            space: take_space(reader)?,
            from_hash: reader.varint()?,
            limit: usize::try_from(reader.varint()?).ok()?,
            slots: SlotRange {
                first: u16::try_from(reader.varint()?).ok()?,
                last: u16::try_from(reader.varint()?).ok()?,
            },
        }),
        2 => Asked::Count,
        _ => return None,
    };
    let told = match reader.u8()? {
        0 => {
            let version = Position(reader.varint()?);
            let entry = match take_flag(reader)? {
                true => Some(take_entry(reader)?),
                false => None,
            };
            Told::Record(Read { entry, version })
        }
        1 => {
            let entry = |reader: &mut Reader<'_>| Some((take_key(reader)?, take_entry(reader)?));
            let entries: Vec<(Key, Entry)> = take_list(reader, entry)?;
            let next_hash = match take_flag(reader)? {
                true => Some(reader.varint()?),
                false => None,
            };
            Told::Page(ScanPage { entries, next_hash })
        }
        2 => Told::Count(reader.varint()? as i64),
        _ => return None,
    };
    Some((asked, told))
}

fn put_value(out: &mut Vec<u8>, value: &FragmentValue) {
    match value {
        FragmentValue::Reply(reply) => {
            out.push(0);
            put_reply(out, reply);
        }
        FragmentValue::Long(string) => {
            out.push(1);
            put_bytes(out, &Blob::from(&**string));
        }
    }
}

fn take_value(reader: &mut Reader<'_>) -> Option<FragmentValue> {
    match reader.u8()? {
        0 => Some(FragmentValue::Reply(take_reply(reader)?)),
        1 => Some(FragmentValue::Long(Arc::new(LongString::from(reader.bytes()?)))),
        _ => None,
    }
}

/// What a fragment may have noted. The other notes are of what no fragment does, and nobody hears of them.
fn put_told(out: &mut Vec<u8>, note: &txn::Note) {
    match note {
        txn::Note::Named(name) => {
            out.push(0);
            put_bytes(out, name.as_bytes());
        }
        txn::Note::Expired(key) => {
            out.push(1);
            put_key(out, key);
        }
        txn::Note::Wrote { key, is_present, expires } => {
            out.push(2);
            put_key(out, key);
            out.push(u8::from(*is_present));
            out.push(u8::from(*expires));
        }
        _ => out.push(3),
    }
}

fn take_told(reader: &mut Reader<'_>) -> Option<txn::Note> {
    Some(match reader.u8()? {
        0 => txn::Note::Named(String::from_utf8(reader.bytes()?.to_vec()).ok()?.into()),
        1 => txn::Note::Expired(take_key(reader)?),
        2 => txn::Note::Wrote {
            key: take_key(reader)?,
            is_present: take_flag(reader)?,
            expires: take_flag(reader)?,
        },
        3 => txn::Note::Read,
        _ => return None,
    })
}

fn put_note(out: &mut Vec<u8>, note: &Note) {
    match note {
        Note::Read { member, number, asked, told } => {
            out.push(0);
            put_varint(out, u64::from(*member));
            put_number(out, *number);
            put_read(out, asked, told);
        }
        Note::Anchor { member, number, raised } => {
            out.push(1);
            put_varint(out, u64::from(*member));
            put_number(out, *number);
            put_raised(out, raised);
        }
        Note::Confirmation { member, basis, raised } => {
            out.push(2);
            put_varint(out, u64::from(*member));
            put_varint(out, basis.len() as u64);
            for (partition, number) in basis {
                put_varint(out, u64::from(partition.0));
                put_number(out, *number);
            }
            put_raised(out, raised);
        }
        Note::Final { member, values } => {
            out.push(3);
            put_varint(out, u64::from(*member));
            put_varint(out, values.len() as u64);
            for (asked, told) in values {
                put_read(out, asked, told);
            }
        }
        Note::Fragments { member, results: FragmentResults { values, notes } } => {
            out.push(4);
            put_varint(out, u64::from(*member));
            put_varint(out, values.len() as u64);
            for (place, value) in values {
                put_varint(out, u64::from(*place));
                put_value(out, value);
            }
            put_varint(out, notes.len() as u64);
            for (place, notes) in notes {
                put_varint(out, u64::from(*place));
                put_varint(out, notes.len() as u64);
                notes.iter().for_each(|note| put_told(out, note));
            }
        }
    }
}

fn take_note(reader: &mut Reader<'_>) -> Option<Note> {
    let kind = reader.u8()?;
    let member = take_u32(reader)?;
    Some(match kind {
        0 => {
            let number = take_number(reader)?;
            let (asked, told) = take_read(reader)?;
            Note::Read { member, number, asked, told }
        }
        1 => Note::Anchor { member, number: take_number(reader)?, raised: take_raised(reader)? },
        2 => {
            let based = |reader: &mut Reader<'_>| Some((take_partition(reader)?, take_number(reader)?));
            Note::Confirmation {
                member,
                basis: Basis::from_vec(take_list(reader, based)?),
                raised: take_raised(reader)?,
            }
        }
        3 => Note::Final { member, values: take_list(reader, take_read)? },
        4 => {
            let place = |reader: &mut Reader<'_>| u16::try_from(reader.varint()?).ok();
            let value = |reader: &mut Reader<'_>| Some((place(reader)?, take_value(reader)?));
            let notes = |reader: &mut Reader<'_>| Some((place(reader)?, take_list(reader, take_told)?));
            let values = take_list(reader, value)?;
            let results = FragmentResults { values, notes: take_list(reader, notes)? };
            Note::Fragments { member, results }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use txn::Reply;

    fn number() -> impl Strategy<Value = AbortNumber> {
        let number = (any::<u64>(), any::<u32>());
        number.prop_map(|(era, count)| AbortNumber { era, count })
    }

    fn key() -> impl Strategy<Value = Key> {
        let key = (any::<bool>(), vec(any::<u8>(), 0..40));
        key.prop_map(|(user, bytes)| match user {
            true => Key::new(&bytes),
            false => Key::system(&bytes),
        })
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let entry = (vec(any::<u8>(), 0..40), any::<u32>());
        entry.prop_map(|(bytes, expires)| Entry {
            expires_at_ms: u64::from(expires),
            ..Entry::new(&bytes[..])
        })
    }

    fn value() -> impl Strategy<Value = FragmentValue> {
        let short = vec(any::<u8>(), 0..9).prop_map(|bytes| FragmentValue::from(Reply::bulk(&bytes[..])));
        let long = vec(any::<u8>(), 5_000..5_010);
        let long = long.prop_map(|bytes| FragmentValue::Long(Arc::new(LongString::from(&bytes[..]))));
        prop_oneof![9 => short, 1 => long]
    }

    fn told() -> impl Strategy<Value = txn::Note> {
        let wrote = (key(), any::<bool>(), any::<bool>());
        let wrote =
            wrote.prop_map(|(key, is_present, expires)| txn::Note::Wrote { key, is_present, expires });
        let named = "[a-z]{0,5}".prop_map(|name| txn::Note::Named(name.into()));
        prop_oneof![wrote, key().prop_map(txn::Note::Expired), named]
    }

    fn read() -> impl Strategy<Value = (Asked, Told)> {
        let record = (key(), option::of(entry()), any::<u64>());
        let record = record.prop_map(|(key, entry, version)| {
            let version = Position(version);
            (Asked::Key(key), Told::Record(Read { entry, version }))
        });
        let page = (any::<bool>(), any::<u64>(), any::<u32>());
        let page = (page, vec((key(), entry()), 0..4), option::of(any::<u64>()));
        let page = page.prop_map(|((user, from_hash, limit), entries, next_hash)| {
            let space = if user { Space::User } else { Space::System };
            let mut range = ScanRange::of(space, from_hash, limit as usize);
            if limit % 2 == 0 {
                range.slots = SlotRange { first: 7, last: (limit % 16_384) as u16 };
            }
            (Asked::Page(range), Told::Page(ScanPage { entries, next_hash }))
        });
        let count = any::<i64>().prop_map(|count| (Asked::Count, Told::Count(count)));
        prop_oneof![record, page, count]
    }

    fn note() -> impl Strategy<Value = Note> {
        let raised = || vec((any::<u32>(), number()), 0..3);
        let based = (any::<u16>(), number()).prop_map(|(at, number)| (PartitionId(at), number));
        let read_note = (any::<u32>(), number(), read());
        let read_note =
            read_note.prop_map(|(member, number, (asked, told))| Note::Read { member, number, asked, told });
        let anchor = (any::<u32>(), number(), raised());
        let anchor = anchor.prop_map(|(member, number, raised)| Note::Anchor { member, number, raised });
        let confirmation = (any::<u32>(), vec(based, 0..3), raised());
        let confirmation = confirmation.prop_map(|(member, basis, raised)| Note::Confirmation {
            member,
            basis: Basis::from_vec(basis),
            raised,
        });
        let last = (any::<u32>(), vec(read(), 0..3));
        let last = last.prop_map(|(member, values)| Note::Final { member, values });
        let notes = vec((any::<u16>(), vec(told(), 0..3)), 0..2);
        let results = (vec((any::<u16>(), value()), 0..3), notes);
        let results = results.prop_map(|(values, notes)| FragmentResults { values, notes });
        let fragments = (any::<u32>(), results);
        let fragments = fragments.prop_map(|(member, results)| Note::Fragments { member, results });
        prop_oneof![read_note, anchor, confirmation, last, fragments]
    }

    fn message() -> impl Strategy<Value = Message> {
        let id = (any::<u64>(), any::<u64>(), any::<u32>(), vec(any::<u16>(), 0..4));
        let id = id.prop_map(|(epoch, digest, part, partitions)| GroupId {
            epoch: Epoch(epoch),
            digest,
            part,
            partitions: partitions.into_iter().map(PartitionId).collect(),
        });
        vec((id, vec(note(), 0..4)), 0..3).prop_map(|groups| Message { groups })
    }

    proptest! {
        #[test]
        fn pieces_say_the_same_together(message in message(), bytes_max in 0..200usize) {
            let notes = |message: &Message| -> Vec<(GroupId, Note)> {
                let groups = message.groups.iter();
                groups
                    .flat_map(|(id, notes)| notes.iter().map(|note| (id.clone(), note.clone())))
                    .collect()
            };
            let wanted = notes(&message);
            let mut found = Vec::new();
            for piece in message.encode_in_pieces(bytes_max) {
                let read = Message::decode(&piece).expect("a message");
                let read = notes(&read);
                prop_assert!(piece.len() <= bytes_max || read.len() <= 1);
                found.extend(read);
            }
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn what_is_written_is_read(message in message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn what_is_cut_or_changed_is_refused_or_another_message(
            message in message(),
            place in any::<proptest::sample::Index>(),
            change in 1..=255u8,
        ) {
            let mut bytes = message.encode();
            let place = place.index(bytes.len());
            prop_assert_eq!(Message::decode(&bytes[..place]), None);
            bytes[place] ^= change;
            prop_assert_ne!(Message::decode(&bytes), Some(message));
        }
    }
}
