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
//!
//! Hashes are only evenly spread as long as nobody chooses keys by their hashes. A segment of more than
//! [`LINES_MAX`] lines has such keys: it becomes an ordered tree of its records ([`Place`]) until it has
//! shrunk again, so that a look-up, an insertion and a removal compare O(log n) keys, whatever the keys are.

use crate::record::{Meta, RecordRef};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem;
use triomphe::Arc;
use txn::Key;

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
/// A segment of more lines becomes a tree: somebody has chosen keys whose hashes are alike. Hashes that are
/// evenly spread fill a third of this: a segment that is split next has 2 * [`SEGMENT_SLOTS`] records.
const LINES_MAX: usize = 32;
/// A tree of fewer records becomes lines again. Between this and [`LINES_MAX`] a segment stays as it is, so
/// that a client who adds and removes one key again and again does not have it made anew each time.
const TREE_RECORDS_MIN: usize = LINES_MAX * LINE_SLOTS / 2;

const _: () = assert!(size_of::<Line<()>>() == 64, "a line is a line of the cache: docs/memory.md");
const _: () = assert!(size_of::<Segment<()>>() == 16, "the directory's share of a segment: docs/memory.md");
const _: () = assert!(3 * SEGMENT_SLOTS <= LINES_MAX * LINE_SLOTS, "even hashes make no trees");
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

/// Where a record is in a tree: in the order of tags, of hashes where tags are equal, and of keys where
/// hashes are. (Within a shard the order of tags and hashes is that of hashes.)
#[derive(Debug, PartialEq, Eq)]
struct Place {
    tag: Tag,
    hash: u64,
    key: Key,
}

impl Place {
    fn of(tag: Tag, hash: u64, key: &Key) -> Place {
        Place { tag, hash, key: key.clone() }
    }
    fn of_record<M: Meta>(tag: Tag, record: &RecordRef<M>) -> Place {
        let key = record.key();
        Place { tag, hash: key.hash64(), key }
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        #[cfg(test)]
        tests::count_comparison();
        let by_hash = (self.tag, self.hash).cmp(&(other.tag, other.hash));
        by_hash.then_with(|| self.key.cmp(&other.key))
    }
}
impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A record that is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought<'a> {
    pub(crate) tag: Tag,
    pub(crate) hash: u64,
    pub(crate) key: &'a Key,
}

impl Sought<'_> {
    #[inline]
    fn is<M: Meta>(&self, record: &RecordRef<M>) -> bool {
        #[cfg(test)]
        tests::count_comparison();
        record.is_of(self.key)
    }
    fn place(&self) -> Place {
        Place::of(self.tag, self.hash, self.key)
    }
}

/// Records in the order of their tags. All lines are full but the last one, which is not empty.
#[derive(Debug)]
struct Lines<M>(Box<[Line<M>]>);

impl<M> Lines<M> {
    /// Lines of this many records, which are in order.
    fn of(len: usize, entries: &mut impl Iterator<Item = (Tag, RecordRef<M>)>) -> Lines<M> {
        let mut lines = Vec::with_capacity(len.div_ceil(LINE_SLOTS));
        for (place, entry) in entries.take(len).enumerate() {
            if place.is_multiple_of(LINE_SLOTS) {
                lines.push(Line::empty());
            }
            if let Some(line) = lines.last_mut() {
                line.put(place % LINE_SLOTS, entry);
            }
        }
        Lines(lines.into_boxed_slice())
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
    /// The number of records whose tags are below this one.
    fn below(&self, tag: Tag, depth: u32) -> usize {
        let at = self.line_of(tag, depth);
        let Some(line) = self.0.get(at) else { return 0 };
        at * LINE_SLOTS + (0..line.len()).take_while(|slot| line.tag(*slot) < tag).count()
    }
    fn insert(&mut self, tag: Tag, depth: u32, record: RecordRef<M>) {
        // Behind those with the same tag: fewer are moved.
        let mut first = self.line_of(tag, depth);
        while first + 1 < self.0.len() && self.0[first].tag(LINE_SLOTS - 1) == tag {
            first += 1;
        }
        let before = |line: &Line<M>| (0..line.len()).take_while(|slot| line.tag(*slot) <= tag).count();
        let mut slot = self.0.get(first).map_or(0, before);
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

type Tree<M> = BTreeMap<Place, RecordRef<M>>;

/// The records of a segment.
///
/// ```text
///         more than LINES_MAX lines
///  Lines ───────────────────────────► Tree
///        ◄───────────────────────────
///         fewer than TREE_RECORDS_MIN records
/// ```
#[derive(Debug)]
enum Segment<M> {
    Lines(Lines<M>),
    Tree(Box<Tree<M>>),
}

impl<M: Meta> Segment<M> {
    fn empty() -> Segment<M> {
        Segment::Lines(Lines(Box::new([])))
    }
    /// A segment of the records of a tree.
    fn of_tree(tree: Tree<M>) -> Segment<M> {
        if tree.len() >= TREE_RECORDS_MIN {
            return Segment::Tree(Box::new(tree));
        }
        let len = tree.len();
        let mut entries = tree.into_iter().map(|(place, record)| (place.tag, record));
        Segment::Lines(Lines::of(len, &mut entries))
    }
    /// The records as a tree.
    fn into_tree(self) -> Tree<M> {
        match self {
            Segment::Tree(tree) => *tree,
            Segment::Lines(lines) => {
                lines.into_entries().map(|(tag, record)| (Place::of_record(tag, &record), record)).collect()
            }
        }
    }
    fn len(&self) -> usize {
        match self {
            Segment::Lines(lines) => lines.len(),
            Segment::Tree(tree) => tree.len(),
        }
    }
    #[inline]
    fn find(&self, sought: Sought<'_>, depth: u32) -> Option<&RecordRef<M>> {
        match self {
            Segment::Lines(lines) => {
                let (line, slot) = lines.find(sought.tag, depth, |record| sought.is(record))?;
                lines.0[line].records[slot].as_ref()
            }
            Segment::Tree(tree) => tree.get(&sought.place()),
        }
    }
    fn insert(&mut self, sought: Sought<'_>, depth: u32, record: RecordRef<M>) {
        match self {
            Segment::Lines(lines) => lines.insert(sought.tag, depth, record),
            Segment::Tree(tree) => {
                tree.insert(sought.place(), record);
            }
        }
        if matches!(self, Segment::Lines(lines) if lines.0.len() > LINES_MAX) {
            let tree = mem::replace(self, Segment::empty()).into_tree();
            *self = Segment::Tree(Box::new(tree));
        }
    }
    /// Removes this very record, if it is there.
    fn remove(&mut self, sought: Sought<'_>, depth: u32, record: &RecordRef<M>) -> Option<RecordRef<M>> {
        match self {
            Segment::Lines(lines) => {
                let place = lines.find(sought.tag, depth, |other| Arc::ptr_eq(other, record))?;
                lines.remove(place)
            }
            Segment::Tree(tree) => {
                let place = sought.place();
                tree.get(&place).filter(|other| Arc::ptr_eq(other, record))?;
                let removed = tree.remove(&place);
                if tree.len() < TREE_RECORDS_MIN {
                    *self = Segment::of_tree(mem::take(tree));
                }
                removed
            }
        }
    }
    /// Splits a segment of this depth in two: the tags of the second one are not below `boundary`.
    fn split(self, boundary: Tag, depth: u32) -> (Segment<M>, Segment<M>) {
        match self {
            Segment::Lines(lines) => {
                let (all, of_left) = (lines.len(), lines.below(boundary, depth));
                let mut entries = lines.into_entries();
                let left = Lines::of(of_left, &mut entries);
                (Segment::Lines(left), Segment::Lines(Lines::of(all - of_left, &mut entries)))
            }
            Segment::Tree(mut tree) => {
                let right = tree.split_off(&Place { tag: boundary, hash: 0, key: Key::new(b"") });
                (Segment::of_tree(*tree), Segment::of_tree(right))
            }
        }
    }
    /// This segment and the one behind it as one.
    fn with(self, right: Segment<M>) -> Segment<M> {
        match (self, right) {
            (Segment::Lines(left), Segment::Lines(right)) => {
                let all = left.len() + right.len();
                let lines = Lines::of(all, &mut left.into_entries().chain(right.into_entries()));
                if lines.0.len() <= LINES_MAX {
                    return Segment::Lines(lines);
                }
                Segment::of_tree(Segment::Lines(lines).into_tree())
            }
            (left, right) => {
                let (mut larger, mut smaller) = (left.into_tree(), right.into_tree());
                if larger.len() < smaller.len() {
                    mem::swap(&mut larger, &mut smaller);
                }
                // One by one: `BTreeMap::append` would make the larger one anew.
                larger.extend(smaller);
                Segment::of_tree(larger)
            }
        }
    }
    /// The records in the order of their tags.
    fn iter(&self) -> impl Iterator<Item = &RecordRef<M>> {
        let (lines, tree) = match self {
            Segment::Lines(lines) => (Some(lines), None),
            Segment::Tree(tree) => (None, Some(tree)),
        };
        let of_lines = lines.into_iter().flat_map(Lines::iter).map(|(_, record)| record);
        of_lines.chain(tree.into_iter().flat_map(|tree| tree.values()))
    }
    /// The records whose tags are not below this one, and in a tree those whose tags and hashes are not.
    fn iter_from(&self, tag: Tag, hash: u64) -> impl Iterator<Item = Met<'_, M>> {
        let (lines, tree) = match self {
            Segment::Lines(lines) => (Some(lines), None),
            Segment::Tree(tree) => (None, Some(tree)),
        };
        let of_lines = lines.into_iter().flat_map(Lines::iter).skip_while(move |(other, _)| *other < tag);
        let of_lines = of_lines.map(|(tag, record)| Met { tag, record, is_in_order: false });
        let of_tree =
            tree.into_iter().flat_map(move |tree| tree.range(Place { tag, hash, key: Key::new(b"") }..));
        of_lines.chain(of_tree.map(|(place, record)| Met { tag: place.tag, record, is_in_order: true }))
    }
    #[cfg(test)]
    fn tags(&self) -> Vec<Tag> {
        match self {
            Segment::Lines(lines) => lines.iter().map(|(tag, _)| tag).collect(),
            Segment::Tree(tree) => tree.keys().map(|place| place.tag).collect(),
        }
    }
}

/// A record that an iteration meets. Those with lower tags came before it.
pub(crate) struct Met<'a, M> {
    pub(crate) tag: Tag,
    pub(crate) record: &'a RecordRef<M>,
    /// Those with the same tag and lower hashes came before it, too, and those with the same hash and lower
    /// keys.
    pub(crate) is_in_order: bool,
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
        let Segment::Lines(lines) = &self.segments[at] else { return None };
        let (line, next_likely) = lines.guess(tag, depth);
        let line = lines.0.get(line)?;
        Some(Expected(line, lines.0.get(next_likely).unwrap_or(line)))
    }
    /// A record that is likely the one with this tag.
    #[inline]
    pub(crate) fn likely(&self, tag: Tag) -> Option<&RecordRef<M>> {
        let (at, depth) = self.segment_of(tag)?;
        let Segment::Lines(lines) = &self.segments[at] else { return None };
        let (line, slot) = lines.find(tag, depth, |_| true)?;
        lines.0[line].records[slot].as_ref()
    }
    #[inline]
    pub(crate) fn find(&self, sought: Sought<'_>) -> Option<&RecordRef<M>> {
        let (at, depth) = self.segment_of(sought.tag)?;
        self.segments[at].find(sought, depth)
    }
    /// Inserts the record of a key that has none.
    pub(crate) fn insert(&mut self, sought: Sought<'_>, record: RecordRef<M>) {
        if self.segments.is_empty() {
            self.segments.push(Segment::empty());
        }
        let Some((at, depth)) = self.segment_of(sought.tag) else { return };
        self.segments[at].insert(sought, depth, record);
        self.len += 1;
        if self.len > self.segments.len() * SEGMENT_SLOTS && self.segments.len() < 1 << (TAG_BITS - 1) {
            self.split();
        }
    }
    /// Removes this very record, if it is there.
    pub(crate) fn remove(&mut self, sought: Sought<'_>, record: &RecordRef<M>) -> Option<RecordRef<M>> {
        let (at, depth) = self.segment_of(sought.tag)?;
        let removed = self.segments[at].remove(sought, depth, record)?;
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
        let boundary = Tag((right as u32) << (TAG_BITS - depth - 1));
        let whole = mem::replace(&mut self.segments[left], Segment::empty());
        let (of_left, of_right) = whole.split(boundary, depth);
        self.segments[left] = of_left;
        if self.segments.len() == self.segments.capacity() {
            self.segments.reserve_exact(self.segments.len() / 8 + 1);
        }
        self.segments.insert(right, of_right);
    }
    /// Takes back the last split.
    fn merge(&mut self) {
        let Some(fewer) = self.segments.len().checked_sub(1).filter(|fewer| *fewer > 0) else { return };
        let left = 2 * (fewer - (1 << fewer.ilog2()));
        let right = self.segments.remove(left + 1);
        let of_left = mem::replace(&mut self.segments[left], Segment::empty());
        self.segments[left] = of_left.with(right);
        if self.segments.capacity() > 2 * fewer {
            self.segments.shrink_to(fewer + fewer / 8);
        }
    }
    /// The records in the order of their tags.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RecordRef<M>> {
        self.segments.iter().flat_map(Segment::iter)
    }
    /// The records from a tag on, in the order of their tags. Of the records with this tag, those whose
    /// hashes are below `hash` may be left out.
    pub(crate) fn iter_from(&self, tag: Tag, hash: u64) -> impl Iterator<Item = Met<'_, M>> {
        let first = self.segment_of(tag).map_or(0, |(at, _)| at);
        self.segments[first..].iter().flat_map(move |segment| segment.iter_from(tag, hash))
    }
    /// The records behind the first so many.
    pub(crate) fn iter_behind(&self, count: usize) -> impl Iterator<Item = &RecordRef<M>> {
        let (mut first, mut count) = (0, count);
        while let Some(len) = self.segments.get(first).map(Segment::len).filter(|len| *len <= count) {
            (first, count) = (first + 1, count - len);
        }
        self.segments[first..].iter().flat_map(Segment::iter).skip(count)
    }
    #[cfg(test)]
    fn check_invariants(&self) {
        let mut last = None;
        let mut len = 0;
        for (at, segment) in self.segments.iter().enumerate() {
            match segment {
                Segment::Lines(Lines(lines)) => {
                    assert!(lines.len() <= LINES_MAX);
                    for (place, line) in lines.iter().enumerate() {
                        let in_use = line.len();
                        assert!(in_use == LINE_SLOTS || place + 1 == lines.len() && in_use > 0);
                        assert!(line.records[in_use..].iter().all(Option::is_none));
                    }
                }
                Segment::Tree(tree) => assert!(tree.len() >= TREE_RECORDS_MIN),
            }
            for tag in segment.tags() {
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
    use std::cell::Cell;
    use std::collections::BTreeMap;

    thread_local! {
        static COMPARISONS: Cell<u64> = const { Cell::new(0) };
    }
    pub(super) fn count_comparison() {
        COMPARISONS.with(|count| count.set(count.get() + 1));
    }
    /// The keys that a thread compares while it does this.
    fn comparisons<R>(doing: impl FnOnce() -> R) -> (u64, R) {
        let before = COMPARISONS.with(Cell::get);
        let result = doing();
        (COMPARISONS.with(Cell::get) - before, result)
    }

    /// The end of a key of 16 bytes whose hash does not depend on its first eight: one factor of rapidhash's
    /// last multiplication is 0, as long as its secret is the published one.
    const ALL_EQUAL: [u8; 8] = [0xc6, 0xbf, 0x8f, 0x7d, 0x56, 0x65, 0x27, 0x42];

    /// Tags as a test wants them: spread, of few values, alike in their first bits, or all the same.
    #[derive(Clone, Copy, Debug)]
    enum Tags {
        Even,
        Few,
        Alike,
        Same,
    }

    impl Tags {
        fn of(self, number: u64) -> Tag {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            match self {
                Tags::Even => Tag::of(hash, 0),
                Tags::Few => Tag::of(hash >> 60 << 60, 0),
                Tags::Alike => Tag::of(hash >> 14, 0),
                Tags::Same => Tag::of(0x5555 << 48, 0),
            }
        }
    }

    fn key(number: u64) -> Key {
        Key::new(&number.to_le_bytes())
    }
    fn record(key: &Key) -> RecordRef<()> {
        Arc::new(Record::new(key))
    }
    fn sought(tag: Tag, key: &Key) -> Sought<'_> {
        Sought { tag, hash: key.hash64(), key }
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
                let key = key(number);
                let sought = sought(tag, &key);
                let same = |a: Option<&RecordRef<()>>, b: Option<&RecordRef<()>>| match (a, b) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                assert!(same(shard.find(sought), model.get(&number)));
                if below(8) < (if round % 2 == 0 { 7 } else { 1 }) {
                    model.entry(number).or_insert_with(|| {
                        let record = record(&key);
                        shard.insert(sought, record.clone());
                        record
                    });
                } else {
                    assert!(shard.remove(sought, &record(&key)).is_none(), "it is another record");
                    let known = model.remove(&number);
                    let removed = known.as_ref().and_then(|known| shard.remove(sought, known));
                    assert!(same(removed.as_ref(), known.as_ref()));
                }
                if step % (records / 4) == 0 {
                    shard.check_invariants();
                    let from = tags.of(below(records));
                    let above = model.keys().filter(|number| tags.of(**number) >= from).count();
                    assert_eq!(shard.iter_from(from, 0).count(), above);
                    let behind = below(records) as usize;
                    assert_eq!(shard.iter_behind(behind).count(), model.len().saturating_sub(behind));
                    assert_eq!(shard.iter().count(), model.len());
                }
            }
            if round % 2 == 1 {
                for (number, record) in mem::take(&mut model) {
                    let removed = shard.remove(sought(tags.of(number), &key(number)), &record);
                    assert!(removed.is_some());
                    let of_segment = |segment: &Segment<()>| match segment {
                        Segment::Lines(lines) => lines.0.len(),
                        Segment::Tree(_) => 0,
                    };
                    let lines: usize = shard.segments.iter().map(of_segment).sum();
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
            for tags in [Tags::Even, Tags::Few, Tags::Alike, Tags::Same] {
                for records in [20, 400, 4_000] {
                    check(seed, tags, records);
                }
            }
        }
    }

    #[test]
    fn few_keys_are_compared_where_all_tags_are_the_same() {
        // A look-up compares some lines full of keys, or the keys of the nodes on the way down a tree, up to
        // 11 in each. An insertion or a removal may also sort as many as there are in the lines.
        const COMPARED_MAX: u64 = (LINES_MAX * LINE_SLOTS) as u64 * 9;
        const COMPARED_ON_AVERAGE_MAX: u64 = 64;
        fn bounded<R>(total: &mut u64, (compared, result): (u64, R)) -> R {
            assert!(compared <= COMPARED_MAX, "{compared} keys were compared at once");
            *total += compared;
            result
        }
        for (name, keys) in [("tags", 30_000), ("hashes", 30_000)] {
            // Those of the second kind have one 64-bit hash, if it is the one whose secret is published.
            let key = |number: u64| match name {
                "tags" => key(number),
                _ => Key::new(&[number.to_le_bytes(), ALL_EQUAL].concat()),
            };
            let tag = Tags::Same.of(0);
            let mut shard: Shard<()> = Shard::new();
            let mut total = 0;
            let records: Vec<(Key, RecordRef<()>)> =
                (0..keys).map(|number| (key(number), record(&key(number)))).collect();
            if name == "hashes" {
                assert!(records.iter().all(|(key, _)| key.hash64() == records[0].0.hash64()));
            }
            for (key, record) in &records {
                let sought = sought(tag, key);
                assert!(bounded(&mut total, comparisons(|| shard.find(sought).cloned())).is_none());
                bounded(&mut total, comparisons(|| shard.insert(sought, record.clone())));
            }
            shard.check_invariants();
            assert_eq!(
                shard.segments.iter().filter(|segment| matches!(segment, Segment::Tree(_))).count(),
                1
            );
            for (key, record) in &records {
                let found = bounded(&mut total, comparisons(|| shard.find(sought(tag, key)).cloned()));
                assert!(found.is_some_and(|found| Arc::ptr_eq(&found, record)));
                // A page begins at its hash, and looks at no others.
                let hash = key.hash64();
                let (compared, met) = comparisons(|| shard.iter_from(tag, hash).next());
                assert!(compared <= 2 * COMPARED_ON_AVERAGE_MAX, "{compared} keys compared for a page");
                assert_eq!(met.map(|met| (met.record.key().hash64(), met.is_in_order)), Some((hash, true)));
            }
            for (key, record) in &records {
                assert!(
                    bounded(&mut total, comparisons(|| shard.remove(sought(tag, key), record))).is_some()
                );
                if shard.len() == 20 {
                    assert!(shard.segments.iter().all(|segment| matches!(segment, Segment::Lines(_))));
                    shard.check_invariants();
                }
            }
            assert_eq!(shard.len(), 0);
            let average = total / (4 * keys);
            assert!(average <= COMPARED_ON_AVERAGE_MAX, "{average} keys were compared on average");
        }
    }
}
