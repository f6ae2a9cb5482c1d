//! Parts of sorted sets: ZRANGE and its older forms, ZRANGESTORE, and counting.

use super::bounds::{Bounds, By};
use super::{collected, members_reply};
use crate::commands::collections::{find, source_intent, store};
use crate::commands::options;
use crate::commands::strings::{argument, found};
use crate::errors;
use std::ops::Range;
use txn::value::{ScoredRef, SortedSetValue};
use txn::{Blob, Intent, Key, Outcome, Reply, Tx};

/// What a command's name says of a range, and what its options may say.
#[derive(Clone, Copy)]
struct Form {
    /// By what its ends are given; an option says it if the name does not.
    by: Option<By>,
    /// Whether it goes downward; an option says it if the name does not.
    reverse: Option<bool>,
    /// Whether scores may be asked for.
    may_have_scores: bool,
}

/// A part of a set, in an order.
struct Query {
    bounds: Bounds,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    /// How many members at most; all if it is negative.
    count: i64,
}

impl Query {
    /// From the arguments behind the key.
    fn parse(args: &[Blob], form: Form) -> Result<Query, Reply> {
        let Form { by, reverse, .. } = form;
        let (mut by, mut reverse) = (by, reverse);
        let (mut with_scores, mut offset, mut count) = (false, 0, -1);
        let mut words = &args[2..];
        while let [word, rest @ ..] = words {
            words = rest;
            if form.may_have_scores && options::is(word, "WITHSCORES") {
                with_scores = true;
            } else if options::is(word, "LIMIT")
                && let [first, second, rest @ ..] = rest
            {
                offset = options::integer(first)?;
                count = options::integer(second)?;
                words = rest;
            } else if reverse.is_none() && options::is(word, "REV") {
                reverse = Some(true);
            } else if by.is_none() && options::is(word, "BYLEX") {
                by = Some(By::Name);
            } else if by.is_none() && options::is(word, "BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(errors::LIMIT_OF_RANKS);
        }
        if with_scores && by == By::Name {
            return Err(errors::SCORES_BY_NAME);
        }
        // Going downward, the upper end comes first; ranks are counted from there instead.
        let (min, max) = match reverse && by != By::Rank {
            true => (&args[1], &args[0]),
            false => (&args[0], &args[1]),
        };
        Ok(Query { bounds: Bounds::parse(by, min, max)?, reverse, with_scores, offset, count })
    }

    /// The ranks that are asked for, in ascending order.
    fn ranks(&self, set: &SortedSetValue) -> Range<usize> {
        let Range { start, end } = self.bounds.ranks(set);
        if matches!(self.bounds, Bounds::Ranks(..)) {
            let len = set.len();
            return match self.reverse {
                true => len - end..len - start,
                false => start..end,
            };
        }
        let Ok(offset) = usize::try_from(self.offset) else {
            return 0..0;
        };
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        if self.reverse {
            let end = end.saturating_sub(offset).max(start);
            end.saturating_sub(count).max(start)..end
        } else {
            let start = start.saturating_add(offset).min(end);
            start..start.saturating_add(count).min(end)
        }
    }

    fn reply(&self, set: &SortedSetValue) -> Reply {
        let members = set.range(self.ranks(set));
        match self.reverse {
            true => members_reply(members.rev(), self.with_scores),
            false => members_reply(members, self.with_scores),
        }
    }
}

async fn range(tx: &mut Tx, args: &[Blob], by: Option<By>, reverse: Option<bool>) -> Outcome {
    let form = Form { by, reverse, may_have_scores: true };
    let query = argument!(Query::parse(&args[1..], form));
    let found = found!(find::<SortedSetValue>(tx, &Key::from(&args[0]), Intent::Read));
    Ok(found.map_or(Reply::Array(Vec::new()), |(set, _)| query.reply(&set)))
}

/// ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
pub async fn zrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    range(tx, args, None, None).await
}

/// ZREVRANGE key start stop [WITHSCORES]
pub async fn zrevrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    range(tx, args, Some(By::Rank), Some(true)).await
}

/// ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]
pub async fn zrangebyscore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    range(tx, args, Some(By::Score), Some(false)).await
}

/// ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]
pub async fn zrevrangebyscore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    range(tx, args, Some(By::Score), Some(true)).await
}

/// ZRANGEBYLEX key min max [LIMIT offset count]
pub async fn zrangebylex(tx: &mut Tx, args: &[Blob]) -> Outcome {
    range(tx, args, Some(By::Name), Some(false)).await
}

/// ZREVRANGEBYLEX key max min [LIMIT offset count]
pub async fn zrevrangebylex(tx: &mut Tx, args: &[Blob]) -> Outcome {
    range(tx, args, Some(By::Name), Some(true)).await
}

/// ZRANGESTORE destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]
pub async fn zrangestore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let form = Form { by: None, reverse: None, may_have_scores: false };
    let query = argument!(Query::parse(&args[2..], form));
    let (destination, source) = (&args[0], &args[1]);
    let intent = source_intent(source, Some(destination));
    let found = found!(find::<SortedSetValue>(tx, &Key::from(source), intent));
    let result = found.map_or_else(SortedSetValue::new, |(set, _)| {
        let members = set.range(query.ranks(&set));
        let pair = |one: ScoredRef<'_>| (one.member.to_blob(), one.score);
        collected(members.map(pair))
    });
    store(tx, destination, result).await
}

async fn count(tx: &mut Tx, args: &[Blob], by: By) -> Outcome {
    let bounds = argument!(Bounds::parse(by, &args[1], &args[2]));
    let found = found!(find::<SortedSetValue>(tx, &Key::from(&args[0]), Intent::Read));
    let count = found.map_or(0, |(set, _)| bounds.ranks(&set).len());
    Ok(Reply::Integer(count as i64))
}

/// ZCOUNT key min max
pub async fn zcount(tx: &mut Tx, args: &[Blob]) -> Outcome {
    count(tx, args, By::Score).await
}

/// ZLEXCOUNT key min max
pub async fn zlexcount(tx: &mut Tx, args: &[Blob]) -> Outcome {
    count(tx, args, By::Name).await
}
