//! Parts of a sorted set, as clients name them: by ranks, by scores, or by names among members of equal
//! scores.

use crate::commands::options;
use crate::errors;
use crate::parse;
use std::ops::Range;
use txn::value::SortedSetValue;
use txn::{Blob, Reply};

/// By what a part is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Name,
}

/// A part of a set.
#[derive(Clone, Debug)]
pub(super) enum Bounds {
    /// The first and the last rank; negative ones count from the end.
    Ranks(i64, i64),
    Scores(ScoreBounds),
    Names(NameBounds),
}

impl Bounds {
    /// From two arguments, the lower bound first.
    pub(super) fn parse(by: By, min: &Blob, max: &Blob) -> Result<Bounds, Reply> {
        Ok(match by {
            By::Rank => Bounds::Ranks(options::integer(min)?, options::integer(max)?),
            By::Score => Bounds::Scores(ScoreBounds::parse(min, max)?),
            By::Name => Bounds::Names(NameBounds::parse(min, max)?),
        })
    }

    /// The ranks of the part.
    pub(super) fn ranks(&self, set: &SortedSetValue) -> Range<usize> {
        match self {
            &Bounds::Ranks(start, end) => options::places(set.len(), start, end),
            Bounds::Scores(bounds) => bounds.ranks(set),
            Bounds::Names(bounds) => bounds.ranks(set),
        }
    }
}

/// A range of scores, each end of which is in it or not.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct ScoreBounds {
    min: ScoreEnd,
    max: ScoreEnd,
}

#[derive(Clone, Copy, Debug)]
struct ScoreEnd {
    score: f64,
    is_excluded: bool,
}

impl ScoreEnd {
    /// `1.5`, or `(1.5` for an end that is not in the range. Unlike scores themselves, an end may be beyond
    /// what fits (it is infinite then), nothing at all is 0, and the text ends at a NUL: what C's `strtod`
    /// says.
    fn parse(argument: &Blob) -> Option<ScoreEnd> {
        let excluded = argument.strip_prefix(b"(");
        let text = excluded.unwrap_or(argument);
        let end = text.iter().position(|&byte| byte == 0);
        let score = match &text[..end.unwrap_or(text.len())] {
            b"" => 0.0,
            text => parse::nearest_float(parse::without_spaces(text))?,
        };
        (!f64::is_nan(score)).then_some(ScoreEnd { score, is_excluded: excluded.is_some() })
    }
}

impl ScoreBounds {
    fn parse(min: &Blob, max: &Blob) -> Result<ScoreBounds, Reply> {
        let ends = ScoreEnd::parse(min).zip(ScoreEnd::parse(max));
        ends.map(|(min, max)| ScoreBounds { min, max }).ok_or(errors::BOUNDS_NOT_FLOATS)
    }

    /// From `min`, which is in the range, to `max`, which is not. Neither is NaN.
    pub(in crate::commands) fn half_open(min: f64, max: f64) -> ScoreBounds {
        let end = |score, is_excluded| ScoreEnd { score, is_excluded };
        ScoreBounds { min: end(min, false), max: end(max, true) }
    }

    /// The ranks of the members with these scores.
    pub(in crate::commands) fn ranks(&self, set: &SortedSetValue) -> Range<usize> {
        let ScoreBounds { min, max } = *self;
        let start = set.count_up_to(min.score, min.is_excluded);
        let end = set.count_up_to(max.score, !max.is_excluded);
        start..end.max(start)
    }
}

/// A range of names.
#[derive(Clone, Debug)]
pub(super) struct NameBounds {
    min: NameEnd,
    max: NameEnd,
}

#[derive(Clone, Debug)]
enum NameEnd {
    /// `-`: before all names.
    First,
    /// `+`: behind all names.
    Last,
    /// `[name`
    Included(Blob),
    /// `(name`
    Excluded(Blob),
}

impl NameEnd {
    fn parse(argument: &Blob) -> Option<NameEnd> {
        match argument.as_bytes() {
            b"-" => Some(NameEnd::First),
            b"+" => Some(NameEnd::Last),
            [b'[', name @ ..] => Some(NameEnd::Included(Blob::new(name))),
            [b'(', name @ ..] => Some(NameEnd::Excluded(Blob::new(name))),
            _ => None,
        }
    }
    /// Whether a range that starts here starts behind a name.
    fn starts_behind(&self, name: &[u8]) -> bool {
        match self {
            NameEnd::First => false,
            NameEnd::Last => true,
            NameEnd::Included(start) => name < start.as_bytes(),
            NameEnd::Excluded(start) => name <= start.as_bytes(),
        }
    }
    /// Whether a range that ends here has a name or ends behind it.
    fn ends_behind(&self, name: &[u8]) -> bool {
        match self {
            NameEnd::First => false,
            NameEnd::Last => true,
            NameEnd::Included(end) => name <= end.as_bytes(),
            NameEnd::Excluded(end) => name < end.as_bytes(),
        }
    }
}

impl NameBounds {
    fn parse(min: &Blob, max: &Blob) -> Result<NameBounds, Reply> {
        let ends = NameEnd::parse(min).zip(NameEnd::parse(max));
        ends.map(|(min, max)| NameBounds { min, max }).ok_or(errors::BOUNDS_NOT_NAMES)
    }

    /// The ranks of the members with these names, if all scores are equal.
    fn ranks(&self, set: &SortedSetValue) -> Range<usize> {
        let start = first_rank(set, |name| self.min.starts_behind(name));
        let end = first_rank(set, |name| self.max.ends_behind(name));
        start..end.max(start)
    }
}

/// How many members stand before the first whose name is not before something.
///
/// Where scores differ, names are in no order, and what is found is as undefined as in Redis; but it has to
/// be the same at every replica. So this halves the ranks, which contents alone determine, and does not
/// descend the set's tree, whose form its history determines, too.
fn first_rank(set: &SortedSetValue, is_before: impl Fn(&[u8]) -> bool) -> usize {
    let (mut start, mut end) = (0, set.len());
    while start < end {
        let middle = start + (end - start) / 2;
        match set.at(middle) {
            Some(one) if is_before(&one.member) => start = middle + 1,
            _ => end = middle,
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::hash::mix;

    /// Where scores differ, names are in no order: what is found must follow from the contents all the same.
    #[test]
    fn names_are_found_alike_in_sets_of_different_histories() {
        let name = |number: u64| Blob::from(format!("{:04}", mix(number) % 10_000));
        let mut lived = SortedSetValue::new();
        for number in 0..3_000 {
            lived.insert(name(number), (mix(number) % 50) as f64);
            if number % 3 > 0 {
                lived.remove(&name(mix(number) % (number + 1)));
            }
        }
        let members = lived.iter().map(|one| (one.member.to_blob(), one.score));
        let mut restored: SortedSetValue = members.collect();
        assert_eq!(lived, restored);
        for number in 0..500 {
            let bounds =
                NameBounds { min: NameEnd::Included(name(number)), max: NameEnd::Excluded(name(number + 1)) };
            assert_eq!(bounds.ranks(&lived), bounds.ranks(&restored));
            let member = name(number + 10_000);
            lived.insert(member.clone(), 25.0);
            restored.insert(member, 25.0);
        }
    }
}
