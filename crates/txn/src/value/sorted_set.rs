//! Redis sorted sets as persistent values.
//!
//! The members stand in order of score and then of their bytes. A small set is [`Packed`], and searched. A
//! large one has a [`Sequence`], so that ranks, ranges and counts cost O(log n), and a table of the members'
//! scores.
//!
//! Invariants: the table has the members of the sequence with their scores; no score is NaN or -0; a
//! [`Value`](super::Value) has a set in the form that its members tell ([`fits`]). While commands change a
//! set, it may stay in the large form ([`SortedSetValue::settle`]).

use super::hashed::Hashed;
use super::packed::{self, Packed, Packing, Unpack, fits, string_bytes};
use crate::blob::{Blob, BlobRef};
use crate::sequence::{self, Item, Sequence};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Members with scores, in the order of these: cheap to clone, and an update of a clone leaves the original
/// readable.
#[derive(Clone, Debug)]
pub struct SortedSetValue(Form);

#[derive(Clone, Debug)]
enum Form {
    Packed(Packed),
    Large(Arc<Large>),
}

#[derive(Clone, Debug)]
struct Large {
    members: Sequence<Scored>,
    scores: Hashed<f64>,
    /// The bytes of the members, if they were packed.
    packed_bytes: usize,
}

impl PartialEq for SortedSetValue {
    fn eq(&self, other: &SortedSetValue) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}
impl Eq for SortedSetValue {}

const _: () = assert!(size_of::<SortedSetValue>() == 16, "a value has room for 16 bytes beside its type");

/// A member of a sorted set, by itself.
#[derive(Clone, Debug)]
pub struct Scored {
    /// Its score, which is not NaN, and not -0 in a set.
    pub score: f64,
    /// Its name.
    pub member: Blob,
}

/// A member in a sorted set.
#[derive(Clone, Copy, Debug)]
pub struct ScoredRef<'a> {
    /// Its score, which is neither NaN nor -0.
    pub score: f64,
    /// Its name.
    pub member: BlobRef<'a>,
}

impl ScoredRef<'_> {
    /// The member by itself.
    pub fn to_scored(self) -> Scored {
        Scored { score: self.score, member: self.member.to_blob() }
    }
}

impl<'a> From<&'a Scored> for ScoredRef<'a> {
    fn from(one: &'a Scored) -> ScoredRef<'a> {
        ScoredRef { score: one.score, member: BlobRef::Blob(&one.member) }
    }
}

/// By what replies show: -0 and 0 are not the same.
impl PartialEq for ScoredRef<'_> {
    fn eq(&self, other: &ScoredRef<'_>) -> bool {
        self.score.to_bits() == other.score.to_bits() && self.member == other.member
    }
}
impl Eq for ScoredRef<'_> {}
impl PartialEq for Scored {
    fn eq(&self, other: &Scored) -> bool {
        ScoredRef::from(self) == ScoredRef::from(other)
    }
}
impl Eq for Scored {}

/// The order of scores: none is NaN; -0 and 0 are equal.
fn in_order(score: f64, other: f64) -> Ordering {
    score.partial_cmp(&other).unwrap_or(Ordering::Equal)
}

impl ScoredRef<'_> {
    /// The order of sorted sets.
    pub fn cmp(self, score: f64, member: &[u8]) -> Ordering {
        in_order(self.score, score).then_with(|| self.member.as_bytes().cmp(member))
    }
}
impl Scored {
    /// The order of sorted sets.
    pub fn cmp(&self, score: f64, member: &[u8]) -> Ordering {
        ScoredRef::from(self).cmp(score, member)
    }
}

impl Item for Scored {
    type Key = f64;
    fn key(&self) -> f64 {
        self.score
    }
}

/// The bytes of a score: of a whole number the significant ones, or else the eight of the float.
struct ScoreBytes {
    bytes: [u8; 8],
    len: usize,
}

/// Whole numbers below this have seven bytes at most, and are floats without loss.
const WHOLE_MAX: f64 = (1_u64 << 53) as f64;

impl ScoreBytes {
    fn of(score: f64) -> ScoreBytes {
        let whole = score as i64;
        if score.abs() < WHOLE_MAX && whole as f64 == score {
            // The sign goes last: numbers near zero are short on both sides of it.
            let bits = (whole << 1 ^ whole >> 63) as u64;
            let len = (u64::BITS - bits.leading_zeros()).div_ceil(8) as usize;
            return ScoreBytes { bytes: bits.to_le_bytes(), len };
        }
        ScoreBytes { bytes: score.to_bits().to_le_bytes(), len: 8 }
    }
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
    fn score(bytes: &[u8]) -> f64 {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(all);
        match bytes.len() {
            8 => f64::from_bits(bits),
            _ => ((bits >> 1) as i64 ^ -((bits & 1) as i64)) as f64,
        }
    }
}

impl<'a> Unpack<'a> for ScoredRef<'a> {
    #[inline]
    fn unpack(rest: &mut &'a [u8]) -> ScoredRef<'a> {
        let score = ScoreBytes::score(<&[u8]>::unpack(rest));
        ScoredRef { score, member: BlobRef::unpack(rest) }
    }
}

fn packed_bytes(score: f64, member: &[u8]) -> usize {
    string_bytes(ScoreBytes::of(score).len) + string_bytes(member.len())
}

impl Large {
    fn place_of(&self, score: f64, member: &[u8]) -> usize {
        self.members.partition_point_by(
            |other| in_order(other, score),
            |one| one.cmp(score, member) == Ordering::Less,
        )
    }
    /// Gives a member a score, and returns the one that it had.
    fn put(&mut self, member: Blob, score: f64) -> Option<f64> {
        let old = self.scores.insert(member.clone(), score);
        if let Some(old) = old {
            self.members.remove(self.place_of(old, &member));
            self.packed_bytes -= packed_bytes(old, &member);
        }
        self.packed_bytes += packed_bytes(score, &member);
        self.members.insert(self.place_of(score, &member), Scored { score, member });
        old
    }
    fn take(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.scores.remove(member)?;
        self.members.remove(self.place_of(score, member));
        self.packed_bytes -= packed_bytes(score, member);
        Some(score)
    }
}

impl Default for SortedSetValue {
    fn default() -> SortedSetValue {
        SortedSetValue(Form::Packed(Packed::default()))
    }
}

impl SortedSetValue {
    /// An empty set.
    pub fn new() -> SortedSetValue {
        SortedSetValue::default()
    }
    /// The number of members.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(members) => members.len(),
            Form::Large(large) => large.members.len(),
        }
    }
    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.0 {
            Form::Packed(members) => {
                let mut members = members.iter::<ScoredRef<'_>>();
                members.find(|one| one.member.as_bytes() == member).map(|one| one.score)
            }
            Form::Large(large) => large.scores.get(member).copied(),
        }
    }
    /// How many members stand before one.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.0 {
            Form::Packed(members) => {
                members.iter::<ScoredRef<'_>>().position(|one| one.member.as_bytes() == member)
            }
            Form::Large(large) => Some(large.place_of(*large.scores.get(member)?, member)),
        }
    }
    /// How many members have a lower score or, if this one `is_included`, this one.
    pub fn count_up_to(&self, score: f64, is_included: bool) -> usize {
        let is_before = |one: f64| one < score || (is_included && one == score);
        match &self.0 {
            Form::Packed(_) => self.count_before(|one| is_before(one.score)),
            Form::Large(large) => {
                let members = &large.members;
                members.partition_point_by(|other| in_order(other, score), |one| is_before(one.score))
            }
        }
    }
    /// How many members stand before the first for which `is_before` is false, if it is true for some and
    /// then for none.
    pub fn count_before(&self, mut is_before: impl FnMut(ScoredRef<'_>) -> bool) -> usize {
        match &self.0 {
            Form::Packed(members) => members.iter().take_while(|&one| is_before(one)).count(),
            Form::Large(large) => large.members.partition_point(|one| is_before(one.into())),
        }
    }
    /// The member of a rank.
    pub fn at(&self, rank: usize) -> Option<ScoredRef<'_>> {
        match &self.0 {
            Form::Packed(members) => members.get(rank),
            Form::Large(large) => large.members.get(rank).map(ScoredRef::from),
        }
    }
    /// The members of some ranks, by themselves: a member that comes often is copied once.
    pub fn at_each(&self, ranks: impl Iterator<Item = usize>) -> impl Iterator<Item = Scored> {
        let packed: Vec<Scored> = match &self.0 {
            Form::Packed(members) => members.iter().map(ScoredRef::to_scored).collect(),
            Form::Large(_) => Vec::new(),
        };
        ranks.filter_map(move |rank| match &self.0 {
            Form::Packed(_) => packed.get(rank).cloned(),
            Form::Large(large) => large.members.get(rank).cloned(),
        })
    }
    /// The members of these ranks, as far as there are any.
    pub fn range(&self, ranks: Range<usize>) -> Iter<'_> {
        Iter(match &self.0 {
            Form::Packed(members) => Items::Packed(members.range(ranks)),
            Form::Large(large) => Items::Large(large.members.range(ranks)),
        })
    }
    /// All members, in order.
    pub fn iter(&self) -> Iter<'_> {
        self.range(0..usize::MAX)
    }
    /// At least `limit` members in an order that has cursors, as [`Table::page`](super::Table::page) gives
    /// them.
    pub fn page(&self, from_hash: u64, limit: usize) -> (Vec<ScoredRef<'_>>, Option<u64>) {
        match &self.0 {
            Form::Packed(members) => (members.iter().collect(), None),
            Form::Large(large) => {
                let (page, next) = large.scores.page(from_hash, limit);
                let page = page.into_iter();
                let page =
                    page.map(|field| ScoredRef { score: field.payload, member: BlobRef::Blob(&field.name) });
                (page.collect(), next)
            }
        }
    }
    /// Gives a member a score, and returns the one that it had. -0 becomes 0, as in Redis's small sets.
    ///
    /// # Panics
    /// If the score is NaN.
    pub fn insert(&mut self, member: Blob, score: f64) -> Option<f64> {
        assert!(!score.is_nan(), "a score has a place in the order");
        let score = score + 0.0;
        match &mut self.0 {
            Form::Packed(members) => {
                let found = members.find::<ScoredRef<'_>>(|one| one.member.as_bytes() == &*member);
                let old = found.as_ref().map(|(_, one)| one.score);
                let behind = members.find::<ScoredRef<'_>>(|one| one.cmp(score, &member) != Ordering::Less);
                let at = behind.map_or(members.end(), |(place, _)| place.start);
                let removed = found.map_or(at..at, |(place, _)| place);
                let len = members.len() + usize::from(old.is_none());
                let kept_bytes = members.strings_bytes() - removed.len();
                if fits(len, kept_bytes + packed_bytes(score, &member)) {
                    // The place right behind the old member is that of the old member itself.
                    let at = if at == removed.end { removed.start } else { at };
                    members.change(removed, at, &[ScoreBytes::of(score).as_bytes(), &member], len);
                    return old;
                }
                let kept = members.iter::<ScoredRef<'_>>().filter(|one| one.member.as_bytes() != &*member);
                let kept: Vec<Scored> = kept.map(ScoredRef::to_scored).collect();
                let scores = kept.iter().map(|one| (one.member.clone(), one.score)).collect();
                let mut large =
                    Large { members: kept.into_iter().collect(), scores, packed_bytes: kept_bytes };
                large.put(member, score);
                self.0 = Form::Large(Arc::new(large));
                old
            }
            Form::Large(large) => Arc::make_mut(large).put(member, score),
        }
    }
    /// Removes a member and returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.0 {
            Form::Packed(members) => {
                let found = members.find::<ScoredRef<'_>>(|one| one.member.as_bytes() == member);
                let (removed, ScoredRef { score, .. }) = found?;
                members.change(removed.clone(), removed.start, &[], members.len() - 1);
                Some(score)
            }
            Form::Large(large) => {
                // A member that is not there must not copy anything.
                large.scores.get(member)?;
                Arc::make_mut(large).take(member)
            }
        }
    }
    /// Removes the members of these ranks, as far as there are any.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        let ranks = ranks.start..ranks.end.min(self.len());
        if ranks.is_empty() {
            return;
        }
        match &mut self.0 {
            Form::Packed(members) => {
                let removed = members.bytes_of::<ScoredRef<'_>>(ranks.clone());
                members.change(removed.clone(), removed.start, &[], members.len() - ranks.len());
            }
            Form::Large(large) => {
                let large = Arc::make_mut(large);
                for one in large.members.range(ranks.clone()) {
                    large.packed_bytes -= packed_bytes(one.score, &one.member);
                    large.scores.remove(&one.member);
                }
                large.members.remove_range(ranks);
            }
        }
    }
    /// The set in the form of a value: packed, if that fits.
    pub(super) fn settle(mut self) -> SortedSetValue {
        if let Form::Large(large) = &self.0
            && fits(large.members.len(), large.packed_bytes)
        {
            let mut packing = Packing::new();
            for Scored { score, member } in &large.members {
                packing.push(&[ScoreBytes::of(*score).as_bytes(), member]);
            }
            self.0 = Form::Packed(packing.done());
        }
        self
    }
    /// An estimate of the heap bytes that this set keeps alive.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(members) => members.heap_bytes(),
            // The table counts the names, which the sequence shares with it.
            Form::Large(large) => {
                large.scores.heap_bytes() + large.members.len() * (size_of::<Scored>() + size_of::<u64>())
            }
        }
    }
}

/// Members of a [`SortedSetValue`], from both ends.
#[derive(Clone)]
pub struct Iter<'a>(Items<'a>);

#[derive(Clone)]
enum Items<'a> {
    Packed(packed::Iter<'a, ScoredRef<'a>>),
    Large(sequence::Iter<'a, Scored>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = ScoredRef<'a>;
    #[inline]
    fn next(&mut self) -> Option<ScoredRef<'a>> {
        match &mut self.0 {
            Items::Packed(members) => members.next(),
            Items::Large(members) => members.next().map(ScoredRef::from),
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Items::Packed(members) => members.size_hint(),
            Items::Large(members) => members.size_hint(),
        }
    }
}
impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Items::Packed(members) => members.next_back(),
            Items::Large(members) => members.next_back().map(ScoredRef::from),
        }
    }
}
impl ExactSizeIterator for Iter<'_> {}

impl FromIterator<(Blob, f64)> for SortedSetValue {
    /// # Panics
    /// If a score is NaN.
    fn from_iter<I: IntoIterator<Item = (Blob, f64)>>(members: I) -> SortedSetValue {
        let mut members = members.into_iter();
        let (mut small, mut bytes): (Vec<Scored>, usize) = (Vec::new(), 0);
        // A name that comes twice, or one member too many, is inserted behind the others.
        let next = members.by_ref().find(|(member, score)| {
            assert!(!score.is_nan(), "a score has a place in the order");
            let score = score + 0.0;
            bytes += packed_bytes(score, member);
            let is_small = fits(small.len() + 1, bytes) && small.iter().all(|other| other.member != *member);
            if is_small {
                small.push(Scored { score, member: member.clone() });
            }
            !is_small
        });
        small.sort_unstable_by(|one, other| one.cmp(other.score, &other.member));
        let mut packing = Packing::new();
        for Scored { score, member } in &small {
            packing.push(&[ScoreBytes::of(*score).as_bytes(), member]);
        }
        let mut set = SortedSetValue(Form::Packed(packing.done()));
        for (member, score) in next.into_iter().chain(members) {
            set.insert(member, score);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every property against a map, around the border between the two forms and far beyond.
    #[test]
    fn a_sorted_set_is_a_map_in_order_of_its_scores_that_old_versions_survive() {
        let seed = std::env::var("ORDO_SEED").ok();
        let mut state = seed.and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
        println!("ORDO_SEED={state}");
        let mut draw = |bound: u64| {
            state = crate::hash::mix(state);
            state % bound
        };
        let mut forms = [0; 2];
        for members in [3, 70, 130, 260, 2_000] {
            let (mut set, mut model) = (SortedSetValue::new(), BTreeMap::new());
            let mut old: Vec<(SortedSetValue, BTreeMap<Blob, f64>)> = Vec::new();
            for step in 0..3_000 {
                let width = if step % 2 == 0 { 4 } else { 30 };
                let member = Blob::from(format!("{:0width$}", draw(members)));
                match (draw(10), step / 300 % 2) {
                    (0, _) => {
                        let start = draw(members) as usize;
                        let ranks = start..start + draw(5) as usize;
                        for one in set.clone().range(ranks.clone()) {
                            model.remove(&one.member.to_blob());
                        }
                        set.remove_range(ranks);
                    }
                    (1..8, 0) | (1..3, 1) => {
                        // Many scores are equal.
                        let score = (draw(20) as f64 - 10.0) * [1.0, 0.5, 1e15, 1e300][draw(4) as usize];
                        let replaced = set.insert(member.clone(), score);
                        assert_eq!(replaced, model.insert(member, score));
                    }
                    _ => assert_eq!(set.remove(&member), model.remove(&member)),
                }
                if step % 100 == 0 {
                    old.push((set.clone(), model.clone()));
                }
            }
            old.push((set, model));
            for (set, model) in &old {
                let settled = set.clone().settle();
                assert!(settled == *set);
                let set = &settled;
                assert!(set.at_each(0..set.len() + 1).eq(set.iter().map(ScoredRef::to_scored)));
                let mut wanted: Vec<(f64, &Blob)> = model.iter().map(|(m, &s)| (s, m)).collect();
                wanted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
                let got: Vec<_> = set.iter().map(|one| (one.score, one.member)).collect();
                let all: Vec<_> = wanted.iter().map(|&(score, member)| (score, member.into())).collect();
                assert_eq!(got, all);
                assert!(set.iter().rev().map(|one| (one.score, one.member)).eq(all.into_iter().rev()));
                for bound in [-11.0, -10.0, 0.0, 3.0, 3.5, 20.0] {
                    let below = wanted.partition_point(|(score, _)| *score < bound);
                    assert_eq!(set.count_up_to(bound, false), below);
                    let up_to = wanted.partition_point(|(score, _)| *score <= bound);
                    assert_eq!(set.count_up_to(bound, true), up_to);
                }
                for (rank, (score, member)) in wanted.iter().enumerate() {
                    assert_eq!(set.rank(member), Some(rank));
                    assert_eq!(set.score(member), Some(*score));
                }
                let packed = wanted.iter().map(|(score, member)| packed_bytes(*score, member)).sum();
                let is_packed = matches!(set.0, Form::Packed(_));
                forms[usize::from(is_packed)] += 1;
                assert_eq!(is_packed, fits(wanted.len(), packed), "the form follows from the members");
                let rebuilt: SortedSetValue = model.iter().map(|(m, &s)| (m.clone(), s)).collect();
                assert_eq!(rebuilt, *set);
                assert_eq!(rebuilt.heap_bytes(), set.heap_bytes());
                let (mut seen, mut cursor) = (BTreeMap::new(), Some(0));
                while let Some(from) = cursor {
                    let (page, next) = set.page(from, 7);
                    seen.extend(page.into_iter().map(|one| (one.member.to_blob(), one.score)));
                    cursor = next;
                }
                assert_eq!(seen, *model);
            }
        }
        assert!(forms.iter().all(|&seen| seen > 20), "both forms are common: {forms:?}");
    }

    #[test]
    fn few_members_of_short_names_are_packed() {
        let name = |number: usize, bytes: usize| Blob::from(format!("{number:0bytes$}"));
        // The score of 1 takes 2 bytes.
        for (members, bytes, is_packed) in
            [(64, 60, true), (64, 61, false), (65, 2, false), (1, 4091, true), (1, 4092, false)]
        {
            let set: SortedSetValue = (0..members).map(|number| (name(number, bytes), 1.0)).collect();
            assert_eq!(matches!(set.settle().0, Form::Packed(_)), is_packed, "{members} of {bytes} bytes");
        }
    }

    #[test]
    fn scores_are_the_same_behind_their_packed_form() {
        let whole = [0.0, 1.0, -1.0, 127.0, 128.0, 1e15, WHOLE_MAX - 1.0, WHOLE_MAX, 1e300, f64::INFINITY];
        let scores = whole.into_iter().chain([0.1, 1.5, f64::MIN_POSITIVE, 5e-324, f64::MAX]);
        for score in scores.flat_map(|score| [score, -score]) {
            let bytes = ScoreBytes::of(score);
            let again = ScoreBytes::score(bytes.as_bytes());
            assert_eq!(again.to_bits(), (score + 0.0).to_bits(), "{score} in {} bytes", bytes.len);
        }
        assert_eq!([0.0, 1.0, -64.0, 200.0].map(|score| ScoreBytes::of(score).len), [0, 1, 1, 2]);
    }
}
