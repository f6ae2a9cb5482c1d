//! The records of one shard of the index, in the order of their keys' hashes.
//!
//! A shard is a directory of *segments*, small sorted arrays. A segment has the records whose hashes share
//! some more bits, so the segments in order are hashes in order. The array is made of *lines* of 64 bytes,
//! each with six *slots*: a pointer to a record, and 21 bits of the hash (the *tag*), so that looking for a
//! key, inserting one and splitting a segment follow no pointer to another key's record.
//!
//! Hashes are evenly spread, so the tag itself tells about where in its segment it is: a look-up reads the
//! directory, one line or two that lie side by side, and the record.
//!
//! The directory grows by linear hashing: when there are more than [`SEGMENT_SLOTS`] records for each
//! segment, the next segment in turn is split in two. With `n = 2^d + s` segments, those of the first `s`
//! prefixes of `d` bits are split already. So an insertion moves some tens of slots at most, and nothing
//! larger than a directory of 16 bytes for each segment is ever copied. Removal merges segments in the
//! reverse order.

use crate::record::{Meta, RecordRef};
use std::mem;

/// The slots of a line.
const LINE_SLOTS: usize = 6;
/// The bits of a tag that a line keeps in one word of all slots.
const LOW_BITS: u32 = 5;
const LOW_MASK: u32 = (1 << LOW_BITS) - 1;
/// The bits of a tag.
const TAG_BITS: u32 = 16 + LOW_BITS;
/// How many records a segment has on average before one is split. Segments that are not split yet have up
/// to twice as many, the others down to half. (The model checker is to see splits.)
const SEGMENT_SLOTS: usize = if cfg!(feature = "shuttle") { 1 } else { 32 };
/// A segment of more lines is searched by halves: somebody has chosen keys whose hashes are alike.
const LINES_WALKED_MAX: usize = 32;

const _: () = assert!(size_of::<Line<()>>() == 64, "a line is a line of the cache: docs/memory.md");
const _: () = assert!(LINE_SLOTS as u32 * LOW_BITS <= u32::BITS);

/// The bits of a hash behind those that all keys of a shard share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(u32);

impl Tag {
    pub(crate) const FIRST: Tag = Tag(0);
    /// The tag of a hash, without the first `shard_bits`.
    #[inline]
    pub(crate) fn of(hash: u64, shard_bits: u32) -> Tag {
        Tag(((hash << shard_bits) >> (64 - TAG_BITS)) as u32)
    }
    #[inline]
    fn high(self) -> u16 {
        (self.0 >> LOW_BITS) as u16
    }
    #[inline]
    fn low(self) -> u32 {
        self.0 & LOW_MASK
    }
}

/// Six slots. Those in use come first.
#[derive(Debug)]
struct Line<M> {
    records: [Option<RecordRef<M>>; LINE_SLOTS],
    high: [u16; LINE_SLOTS],
    low: u32,
}

impl<M> Line<M> {
    fn empty() -> Line<M> {
        Line { records: [const { None }; LINE_SLOTS], high: [0; LINE_SLOTS], low: 0 }
    }
    /// The number of slots in use.
    fn len(&self) -> usize {
        self.records.iter().take_while(|record| record.is_some()).count()
    }
    #[inline]
    fn tag(&self, slot: usize) -> Tag {
        let low = self.low >> (slot as u32 * LOW_BITS) & LOW_MASK;
        Tag(u32::from(self.high[slot]) << LOW_BITS | low)
    }
    #[inline]
    fn find(&self, tag: Tag, mut is_it: impl FnMut(&RecordRef<M>) -> bool) -> Option<usize> {
        // All slots are compared before there is a branch: which one it is cannot be predicted.
        let mut alike = 0_u32;
        for (slot, high) in self.high.iter().enumerate() {
            alike |= u32::from(*high == tag.high()) << slot;
        }
        while alike != 0 {
            let slot = alike.trailing_zeros() as usize;
            let record = self.records.get(slot)?;
            if self.tag(slot) == tag && record.as_ref().is_some_and(&mut is_it) {
                return Some(slot);
            }
            alike &= alike - 1;
        }
        None
    }
    fn put(&mut self, slot: usize, (tag, record): (Tag, RecordRef<M>)) {
        let shift = slot as u32 * LOW_BITS;
        self.high[slot] = tag.high();
        self.low = self.low & !(LOW_MASK << shift) | tag.low() << shift;
        self.records[slot] = Some(record);
    }
    /// Puts a record into a slot, and moves those from there on by one; returns the one that has no room.
    fn insert(&mut self, slot: usize, entry: (Tag, RecordRef<M>)) -> Option<(Tag, RecordRef<M>)> {
        let last = self.tag(LINE_SLOTS - 1);
        let pushed_out = self.records[LINE_SLOTS - 1].take();
        self.records[slot..].rotate_right(1);
        self.high[slot..].rotate_right(1);
        let before = (1 << (slot as u32 * LOW_BITS)) - 1;
        self.low = self.low & before | (self.low & !before) << LOW_BITS;
        self.put(slot, entry);
        pushed_out.map(|record| (last, record))
    }
    /// Takes a record out of its slot, and moves those behind by one.
    fn take(&mut self, slot: usize) -> Option<(Tag, RecordRef<M>)> {
        let tag = self.tag(slot);
        let taken = self.records[slot].take()?;
        self.records[slot..].rotate_left(1);
        self.high[slot..].rotate_left(1);
        let before = (1 << (slot as u32 * LOW_BITS)) - 1;
        self.low = self.low & before | (self.low >> LOW_BITS) & !before;
        Some((tag, taken))
    }
}

/// Records in the order of their tags. All lines are full but the last one, which is not empty.
#[derive(Debug)]
struct Segment<M>(Box<[Line<M>]>);

impl<M> Segment<M> {
    fn empty() -> Segment<M> {
        Segment(Box::new([]))
    }
    /// A segment of so many records, which are in order.
    fn of(len: usize, entries: &mut impl Iterator<Item = (Tag, RecordRef<M>)>) -> Segment<M> {
        let mut lines = Vec::with_capacity(len.div_ceil(LINE_SLOTS));
        for (place, entry) in entries.take(len).enumerate() {
            if place.is_multiple_of(LINE_SLOTS) {
                lines.push(Line::empty());
            }
            if let Some(line) = lines.last_mut() {
                line.put(place % LINE_SLOTS, entry);
            }
        }
        Segment(lines.into_boxed_slice())
    }
    fn len(&self) -> usize {
        self.0.split_last().map_or(0, |(last, full)| full.len() * LINE_SLOTS + last.len())
    }
    /// The line where a tag is about, if the segment's tags share their first `depth` bits, and the line that
    /// is next likely. A segment without lines has neither.
    #[inline]
    fn guess(&self, tag: Tag, depth: u32) -> (usize, usize) {
        let place = u64::from(tag.0 << depth & ((1 << TAG_BITS) - 1));
        // The last line is half full on average.
        let slots = (self.0.len() * LINE_SLOTS).saturating_sub(LINE_SLOTS / 2) as u64;
        let slot = ((place * slots) >> TAG_BITS) as usize;
        let (line, place_in_line) = (slot / LINE_SLOTS, slot % LINE_SLOTS);
        // Before the first line there is none: then no line has this number.
        let next_likely = if place_in_line < LINE_SLOTS / 2 { line.wrapping_sub(1) } else { line + 1 };
        (line, next_likely)
    }
    /// The first line whose last tag is not below this one, or the last line.
    #[inline]
    fn line_of(&self, tag: Tag, depth: u32) -> usize {
        let lines = &*self.0;
        let Some(behind) = lines.len().checked_sub(1) else { return 0 };
        if behind >= LINES_WALKED_MAX {
            return lines[..behind].partition_point(|line| line.tag(LINE_SLOTS - 1) < tag);
        }
        let (mut at, _) = self.guess(tag, depth);
        while at > 0 && lines[at].tag(0) >= tag {
            at -= 1;
        }
        while at < behind && lines[at].tag(LINE_SLOTS - 1) < tag {
            at += 1;
        }
        at
    }
    /// The line and slot of a record.
    #[inline]
    fn find(
        &self,
        tag: Tag,
        depth: u32,
        mut is_it: impl FnMut(&RecordRef<M>) -> bool,
    ) -> Option<(usize, usize)> {
        let mut at = self.line_of(tag, depth);
        while let Some(line) = self.0.get(at) {
            if let Some(slot) = line.find(tag, &mut is_it) {
                return Some((at, slot));
            }
            // Others with this tag are behind only if the line ends with it. (An empty slot may look so.)
            if line.tag(LINE_SLOTS - 1) != tag {
                return None;
            }
            at += 1;
        }
        None
    }
    /// The line and slot of the first record whose tag is not below this one; where it would be, if none is.
    fn lower_bound(&self, tag: Tag, depth: u32) -> (usize, usize) {
        let at = self.line_of(tag, depth);
        let Some(line) = self.0.get(at) else { return (0, 0) };
        (at, (0..line.len()).take_while(|slot| line.tag(*slot) < tag).count())
    }
    fn insert(&mut self, tag: Tag, depth: u32, record: RecordRef<M>) {
        let (first, mut slot) = self.lower_bound(tag, depth);
        let mut left_over = Some((tag, record));
        let mut lines = first..self.0.len();
        while let Some(entry) = left_over.take() {
            let Some(line) = lines.next() else {
                let mut lines = mem::take(&mut self.0).into_vec();
                lines.reserve_exact(1);
                let mut line = Line::empty();
                line.put(0, entry);
                lines.push(line);
                self.0 = lines.into_boxed_slice();
                return;
            };
            // Behind a full last line the record begins the next one.
            left_over = if slot < LINE_SLOTS { self.0[line].insert(slot, entry) } else { Some(entry) };
            slot = 0;
        }
    }
    fn remove(&mut self, (at, slot): (usize, usize)) -> Option<RecordRef<M>> {
        let (_, removed) = self.0[at].take(slot)?;
        for at in at + 1..self.0.len() {
            if let Some(moved) = self.0[at].take(0) {
                self.0[at - 1].put(LINE_SLOTS - 1, moved);
            }
        }
        if self.0.last().is_some_and(|line| line.records[0].is_none()) {
            let mut lines = mem::take(&mut self.0).into_vec();
            lines.pop();
            self.0 = lines.into_boxed_slice();
        }
        Some(removed)
    }
    fn iter(&self) -> impl Iterator<Item = (Tag, &RecordRef<M>)> {
        self.0.iter().flat_map(|line| {
            let records = line.records.iter().enumerate();
            records.filter_map(|(slot, record)| Some((line.tag(slot), record.as_ref()?)))
        })
    }
    fn into_entries(self) -> impl Iterator<Item = (Tag, RecordRef<M>)> {
        self.0.into_iter().flat_map(|mut line| {
            // Lines in the order of their slots, which taking the first one keeps.
            std::iter::from_fn(move || line.take(0))
        })
    }
}

/// The records of a shard.
#[derive(Debug)]
pub(crate) struct Shard<M> {
    segments: Vec<Segment<M>>,
    len: usize,
}

impl<M: Meta> Shard<M> {
    pub(crate) fn new() -> Shard<M> {
        Shard { segments: Vec::new(), len: 0 }
    }
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// Where the segment of a tag is, and how many bits its tags share.
    #[inline]
    fn segment_of(&self, tag: Tag) -> Option<(usize, u32)> {
        let depth = self.segments.len().checked_ilog2()?;
        let split = self.segments.len() - (1 << depth);
        let prefix = (tag.0 >> (TAG_BITS - depth)) as usize;
        if prefix < split {
            return Some(((tag.0 >> (TAG_BITS - depth - 1)) as usize, depth + 1));
        }
        Some((prefix + split, depth))
    }
    /// The lines where a record with this tag is expected.
    #[inline]
    pub(crate) fn expected(&self, tag: Tag) -> Option<Expected<'_, M>> {
        let (at, depth) = self.segment_of(tag)?;
        let segment = &self.segments[at];
        let (line, next_likely) = segment.guess(tag, depth);
        let line = segment.0.get(line)?;
        Some(Expected(line, segment.0.get(next_likely).unwrap_or(line)))
    }
    /// The record with this tag that is the right one.
    #[inline]
    pub(crate) fn find(&self, tag: Tag, is_it: impl FnMut(&RecordRef<M>) -> bool) -> Option<&RecordRef<M>> {
        let (at, depth) = self.segment_of(tag)?;
        let segment = &self.segments[at];
        let (line, slot) = segment.find(tag, depth, is_it)?;
        segment.0[line].records[slot].as_ref()
    }
    pub(crate) fn insert(&mut self, tag: Tag, record: RecordRef<M>) {
        if self.segments.is_empty() {
            self.segments.push(Segment::empty());
        }
        let Some((at, depth)) = self.segment_of(tag) else { return };
        self.segments[at].insert(tag, depth, record);
        self.len += 1;
        if self.len > self.segments.len() * SEGMENT_SLOTS && self.segments.len() < 1 << (TAG_BITS - 1) {
            self.split();
        }
    }
    /// Removes the record with this tag that is the right one.
    pub(crate) fn remove(
        &mut self,
        tag: Tag,
        is_it: impl FnMut(&RecordRef<M>) -> bool,
    ) -> Option<RecordRef<M>> {
        let (at, depth) = self.segment_of(tag)?;
        let place = self.segments[at].find(tag, depth, is_it)?;
        let removed = self.segments[at].remove(place)?;
        self.len -= 1;
        if self.len == 0 {
            self.segments = Vec::new();
        } else if self.len * 2 < self.segments.len() * SEGMENT_SLOTS {
            self.merge();
        }
        Some(removed)
    }
    /// Splits the segment whose turn it is.
    fn split(&mut self) {
        let depth = self.segments.len().ilog2();
        let prefix = self.segments.len() - (1 << depth);
        let (left, right) = (2 * prefix, 2 * prefix + 1);
        let whole = mem::replace(&mut self.segments[left], Segment::empty());
        let boundary = Tag((right as u32) << (TAG_BITS - depth - 1));
        let (line, slot) = whole.lower_bound(boundary, depth);
        let (all, of_left) = (whole.len(), line * LINE_SLOTS + slot);
        let mut entries = whole.into_entries();
        self.segments[left] = Segment::of(of_left, &mut entries);
        if self.segments.len() == self.segments.capacity() {
            self.segments.reserve_exact(self.segments.len() / 8 + 1);
        }
        self.segments.insert(right, Segment::of(all - of_left, &mut entries));
    }
    /// Takes back the last split.
    fn merge(&mut self) {
        let Some(fewer) = self.segments.len().checked_sub(1).filter(|fewer| *fewer > 0) else { return };
        let left = 2 * (fewer - (1 << fewer.ilog2()));
        let right = self.segments.remove(left + 1);
        let of_left = mem::replace(&mut self.segments[left], Segment::empty());
        let all = of_left.len() + right.len();
        self.segments[left] = Segment::of(all, &mut of_left.into_entries().chain(right.into_entries()));
        if self.segments.capacity() > 2 * fewer {
            self.segments.shrink_to(fewer + fewer / 8);
        }
    }
    /// The records in the order of their tags.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RecordRef<M>> {
        self.segments.iter().flat_map(|segment| segment.iter().map(|(_, record)| record))
    }
    /// The records whose tags are not below this one, in the order of their tags.
    pub(crate) fn iter_from(&self, tag: Tag) -> impl Iterator<Item = (Tag, &RecordRef<M>)> {
        let first = self.segment_of(tag).map_or(0, |(at, _)| at);
        let records = self.segments[first..].iter().flat_map(Segment::iter);
        records.skip_while(move |(other, _)| *other < tag)
    }
    /// The records behind the first so many.
    pub(crate) fn iter_behind(&self, count: usize) -> impl Iterator<Item = &RecordRef<M>> {
        let (mut first, mut count) = (0, count);
        while let Some(len) = self.segments.get(first).map(Segment::len).filter(|len| *len <= count) {
            (first, count) = (first + 1, count - len);
        }
        self.segments[first..].iter().flat_map(Segment::iter).map(|(_, record)| record).skip(count)
    }
    #[cfg(test)]
    fn check_invariants(&self) {
        let mut last = None;
        let mut len = 0;
        for (at, segment) in self.segments.iter().enumerate() {
            for (place, line) in segment.0.iter().enumerate() {
                let in_use = line.len();
                assert!(in_use == LINE_SLOTS || place + 1 == segment.0.len() && in_use > 0);
                assert!(line.records[in_use..].iter().all(Option::is_none));
            }
            for (tag, _) in segment.iter() {
                assert!(last <= Some(tag), "in the order of tags");
                assert_eq!(self.segment_of(tag).map(|(at, _)| at), Some(at));
                last = Some(tag);
                len += 1;
            }
        }
        assert_eq!((self.len, self.segments.is_empty()), (len, len == 0));
        assert!(self.segments.capacity() <= 2 * self.segments.len().max(2));
        assert!(self.len <= self.segments.len() * SEGMENT_SLOTS);
        assert!(self.segments.len() <= 1 || self.len * 2 + 1 >= (self.segments.len() - 1) * SEGMENT_SLOTS);
    }
}

/// The lines of the index that are likely about to be read.
pub(crate) struct Expected<'a, M>(&'a Line<M>, &'a Line<M>);

impl<M> Expected<'_, M> {
    /// A word of both: a caller that uses it has the lines loaded.
    #[inline]
    pub(crate) fn load(&self) -> u32 {
        self.0.low ^ self.1.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use std::collections::BTreeMap;
    use triomphe::Arc;
    use txn::Key;

    /// Tags as a test wants them: spread, of few values, or alike in their first bits.
    #[derive(Clone, Copy, Debug)]
    enum Tags {
        Even,
        Few,
        Alike,
    }

    impl Tags {
        fn of(self, number: u64) -> Tag {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            match self {
                Tags::Even => Tag::of(hash, 0),
                Tags::Few => Tag::of(hash >> 60 << 60, 0),
                Tags::Alike => Tag::of(hash >> 14, 0),
            }
        }
    }

    fn record(number: u64) -> RecordRef<()> {
        Arc::new(Record::new(&Key::new(&number.to_le_bytes())))
    }

    /// Random insertions, removals and look-ups of up to so many records, against a map.
    fn check(seed: u64, tags: Tags, records: u64) {
        let mut state = seed;
        let mut below = move |bound: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % bound
        };
        let mut shard = Shard::new();
        let mut model: BTreeMap<u64, RecordRef<()>> = BTreeMap::new();
        for round in 0..6 {
            // It grows in the even rounds, and shrinks in the odd ones, in the end to nothing.
            for step in 0..records * 2 {
                let number = below(records);
                let tag = tags.of(number);
                let is_it = |other: &RecordRef<()>| other.is_of(&Key::new(&number.to_le_bytes()));
                let same = |a: Option<&RecordRef<()>>, b: Option<&RecordRef<()>>| match (a, b) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                assert!(same(shard.find(tag, is_it), model.get(&number)));
                if below(8) < (if round % 2 == 0 { 7 } else { 1 }) {
                    model.entry(number).or_insert_with(|| {
                        let record = record(number);
                        shard.insert(tag, record.clone());
                        record
                    });
                } else {
                    let removed = shard.remove(tag, is_it);
                    assert!(same(removed.as_ref(), model.remove(&number).as_ref()));
                }
                if step % (records / 4) == 0 {
                    shard.check_invariants();
                    let from = tags.of(below(records));
                    let above = model.keys().filter(|number| tags.of(**number) >= from).count();
                    assert_eq!(shard.iter_from(from).count(), above);
                    let behind = below(records) as usize;
                    assert_eq!(shard.iter_behind(behind).count(), model.len().saturating_sub(behind));
                    assert_eq!(shard.iter().count(), model.len());
                }
            }
            if round % 2 == 1 {
                for (number, record) in mem::take(&mut model) {
                    let removed = shard.remove(tags.of(number), |other| Arc::ptr_eq(other, &record));
                    assert!(removed.is_some());
                    let lines: usize = shard.segments.iter().map(|segment| segment.0.len()).sum();
                    let needed = shard.len / LINE_SLOTS + shard.segments.len();
                    assert!(lines <= needed, "{lines} lines of {} records", shard.len);
                }
                shard.check_invariants();
                assert!(shard.segments.capacity() == 0, "what is empty has no memory");
            }
        }
    }

    #[test]
    fn a_shard_finds_what_a_map_finds_and_gives_its_memory_back() {
        let number = |name| std::env::var(name).ok().and_then(|number: String| number.parse().ok());
        let first: u64 = number("ORDO_SEED").unwrap_or(1);
        for seed in first..first + number("ORDO_SEEDS").unwrap_or(4) {
            println!("ORDO_SEED={seed} ORDO_SEEDS=1");
            for tags in [Tags::Even, Tags::Few, Tags::Alike] {
                for records in [20, 400, 4_000] {
                    check(seed, tags, records);
                }
            }
        }
    }
}
