//! Redis sorted sets as persistent values.
//!
//! The members stand in a [`Sequence`] in order of score and then of their bytes, so that ranks, ranges and
//! counts cost O(log n). A set of more than [`SMALL_FIELDS_MAX`] members has a [`Table`] of their scores as
//! well; a smaller one is searched.
//!
//! Invariants: the table, if there is one, has the members of the sequence with their scores; there is one if
//! and only if there are more than [`SMALL_FIELDS_MAX`] members; no score is NaN or -0.

use super::table::{SMALL_FIELDS_MAX, Table};
use crate::blob::Blob;
use crate::sequence::{self, Item, Sequence};
use std::cmp::Ordering;
use std::ops::Range;

/// Members with scores, in the order of these; with structural sharing.
#[derive(Clone, Debug, Default)]
pub struct SortedSetValue {
    members: Sequence<Scored>,
    scores: Option<Table<f64>>,
    heap_bytes: usize,
}

/// A member of a sorted set.
#[derive(Clone, Debug)]
pub struct Scored {
    /// Its score, which is not NaN, and not -0 in a set.
    pub score: f64,
    /// Its name.
    pub member: Blob,
}

/// No score is NaN; -0 and 0 are equal.
fn in_order(score: f64, other: f64) -> Ordering {
    score.partial_cmp(&other).unwrap_or(Ordering::Equal)
}

impl Scored {
    /// The order of sorted sets.
    pub fn cmp(&self, score: f64, member: &[u8]) -> Ordering {
        in_order(self.score, score).then_with(|| self.member.as_bytes().cmp(member))
    }
    /// With what a large set's table takes.
    fn heap_bytes(&self) -> usize {
        size_of::<Scored>() + self.member.heap_bytes()
    }
}

impl Item for Scored {
    type Key = f64;
    fn key(&self) -> f64 {
        self.score
    }
}

/// By what replies show: -0 and 0 are not the same.
impl PartialEq for Scored {
    fn eq(&self, other: &Scored) -> bool {
        self.score.to_bits() == other.score.to_bits() && self.member == other.member
    }
}
impl Eq for Scored {}

impl SortedSetValue {
    /// An empty set.
    pub fn new() -> SortedSetValue {
        SortedSetValue::default()
    }
    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }
    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
    /// The score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.scores {
            Some(scores) => scores.get(member).copied(),
            None => {
                let found = self.members.iter().find(|one| &*one.member == member);
                found.map(|one| one.score)
            }
        }
    }
    /// How many members stand before one.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.place_of(score, member))
    }
    fn place_of(&self, score: f64, member: &[u8]) -> usize {
        self.members.partition_point_by(
            |other| in_order(other, score),
            |one| one.cmp(score, member) == Ordering::Less,
        )
    }
    /// How many members have a lower score or, if this one `is_included`, this one.
    pub fn count_up_to(&self, score: f64, is_included: bool) -> usize {
        self.members.partition_point_by(
            |other| in_order(other, score),
            |one| one.score < score || (is_included && one.score == score),
        )
    }
    /// How many members stand before the first for which `is_before` is false, if it is true for some and
    /// then for none.
    pub fn count_before(&self, is_before: impl FnMut(&Scored) -> bool) -> usize {
        self.members.partition_point(is_before)
    }
    /// The member of a rank.
    pub fn at(&self, rank: usize) -> Option<&Scored> {
        self.members.get(rank)
    }
    /// The members of these ranks, as far as there are any.
    pub fn range(&self, ranks: Range<usize>) -> sequence::Iter<'_, Scored> {
        self.members.range(ranks)
    }
    /// All members, in order.
    pub fn iter(&self) -> sequence::Iter<'_, Scored> {
        self.members.iter()
    }
    /// At least `limit` members in an order that has cursors, as [`Table::page`] gives them.
    pub fn page(&self, from_hash: u64, limit: usize) -> (Vec<(&Blob, f64)>, Option<u64>) {
        match &self.scores {
            None => (self.iter().map(|one| (&one.member, one.score)).collect(), None),
            Some(scores) => {
                let (page, next) = scores.page(from_hash, limit);
                let page = page.into_iter().map(|(member, &score)| (member, score));
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
        let old = self.remove_from_order(&member);
        let place = self.place_of(score, &member);
        if let Some(scores) = &mut self.scores {
            scores.insert(member.clone(), score);
        }
        let one = Scored { score, member };
        self.heap_bytes += one.heap_bytes();
        self.members.insert(place, one);
        self.settle_form();
        old
    }
    /// Removes a member and returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.remove_from_order(member)?;
        if let Some(scores) = &mut self.scores {
            scores.remove(member);
        }
        self.settle_form();
        Some(score)
    }
    /// Removes the members of these ranks, as far as there are any.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        for one in self.members.range(ranks.clone()) {
            self.heap_bytes -= one.heap_bytes();
            if let Some(scores) = &mut self.scores {
                scores.remove(&one.member);
            }
        }
        self.members.remove_range(ranks);
        self.settle_form();
    }
    fn remove_from_order(&mut self, member: &[u8]) -> Option<f64> {
        let removed = self.members.remove(self.rank(member)?)?;
        self.heap_bytes -= removed.heap_bytes();
        Some(removed.score)
    }
    /// Makes or drops the table of scores.
    fn settle_form(&mut self) {
        if self.len() <= SMALL_FIELDS_MAX {
            self.scores = None;
        } else if self.scores.is_none() {
            let scores = self.members.iter();
            let scores = scores.map(|one| (one.member.clone(), one.score));
            self.scores = Some(scores.collect());
        }
    }
    /// An estimate of the heap bytes that this set keeps alive.
    pub fn heap_bytes(&self) -> usize {
        // Long names are shared between the two.
        let table = self.scores.as_ref().map_or(0, Table::len);
        self.heap_bytes + table * size_of::<(u64, Blob, f64)>()
    }
}

impl PartialEq for SortedSetValue {
    fn eq(&self, other: &SortedSetValue) -> bool {
        self.members == other.members
    }
}
impl Eq for SortedSetValue {}

impl FromIterator<(Blob, f64)> for SortedSetValue {
    fn from_iter<I: IntoIterator<Item = (Blob, f64)>>(iter: I) -> SortedSetValue {
        let mut set = SortedSetValue::new();
        for (member, score) in iter {
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
        for members in [3, 70, 130, 2_000] {
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
                            model.remove(&one.member);
                        }
                        set.remove_range(ranks);
                    }
                    (1..8, 0) | (1..3, 1) => {
                        // Many scores are equal.
                        let score = draw(20) as f64 - 10.0;
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
                let mut wanted: Vec<(f64, &Blob)> = model.iter().map(|(m, &s)| (s, m)).collect();
                wanted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
                let got: Vec<_> = set.iter().map(|one| (one.score, &one.member)).collect();
                assert_eq!(got, wanted);
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
                assert_eq!(set.scores.is_some(), set.len() > SMALL_FIELDS_MAX);
                let rebuilt: SortedSetValue = model.iter().map(|(m, &s)| (m.clone(), s)).collect();
                assert_eq!(rebuilt, *set);
                assert_eq!(rebuilt.heap_bytes(), set.heap_bytes());
                let (mut seen, mut cursor) = (BTreeMap::new(), Some(0));
                while let Some(from) = cursor {
                    let (page, next) = set.page(from, 7);
                    seen.extend(page.into_iter().map(|(m, s)| (m.clone(), s)));
                    cursor = next;
                }
                assert_eq!(seen, *model);
            }
        }
    }
}
