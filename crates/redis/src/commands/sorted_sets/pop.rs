//! Taking the first or the last members away.

use super::members_reply;
use crate::commands::collections::{find, put};
use crate::commands::options;
use crate::commands::strings::{argument, found};
use crate::errors;
use crate::work;
use txn::value::{Scored, ScoredRef, SortedSetValue};
use txn::{Blob, Intent, Key, Note, Outcome, Reply, Stop, Tx};

/// From which end members are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum End {
    /// Those of the lowest scores.
    Min,
    /// Those of the highest scores.
    Max,
}

/// What was taken.
pub(in crate::commands) struct Popped {
    /// From the set at this key.
    pub key: Blob,
    /// These members, in the order in which they were taken.
    pub members: Vec<Scored>,
}

/// Takes up to `count` members from the first of some keys that has a sorted set. The inner error is the
/// reply to a value of another type, which counts only if it comes before any sorted set.
pub(in crate::commands) async fn pop(
    tx: &mut Tx,
    keys: &[Blob],
    end: End,
    count: usize,
) -> Result<Result<Option<Popped>, Reply>, Stop> {
    for name in keys {
        let key = Key::from(name);
        let (old, expires_at_ms) = match find::<SortedSetValue>(tx, &key, Intent::Update).await? {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => return Ok(Err(error)),
        };
        let taken = count.min(old.len());
        let (ranks, members): (_, Vec<Scored>) = match end {
            End::Min => (0..taken, old.range(0..taken).map(ScoredRef::to_scored).collect()),
            End::Max => {
                let ranks = old.len() - taken..old.len();
                (ranks.clone(), old.range(ranks).rev().map(ScoredRef::to_scored).collect())
            }
        };
        if taken > 0 {
            let mut set = SortedSetValue::clone(&old);
            work::scored(taken);
            set.remove_range(ranks);
            tx.note(|| {
                let name = match end {
                    End::Min => "zpopmin",
                    End::Max => "zpopmax",
                };
                Note::Named(name.into())
            });
            put(tx, &key, set, expires_at_ms).await?;
        }
        let key = name.clone();
        return Ok(Ok(Some(Popped { key, members })));
    }
    Ok(Ok(None))
}

async fn pop_of_one(tx: &mut Tx, args: &[Blob], end: End) -> Outcome {
    let count = match &args[1..] {
        [] => None,
        [count] => Some(argument!(options::count(count, 0, errors::NOT_POSITIVE))),
        _ => return Ok(errors::SYNTAX),
    };
    let popped = found!(pop(tx, &args[..1], end, count.unwrap_or(1)));
    let members = popped.map_or(Vec::new(), |popped| popped.members);
    Ok(match (count, &members[..]) {
        // One without a count is no list of pairs in any protocol.
        (None, [one]) => Reply::Array(vec![Reply::Bulk(one.member.clone()), Reply::Double(one.score)]),
        _ => members_reply(members.iter().map(ScoredRef::from), true),
    })
}

/// ZPOPMIN key [count]
pub async fn zpopmin(tx: &mut Tx, args: &[Blob]) -> Outcome {
    pop_of_one(tx, args, End::Min).await
}

/// ZPOPMAX key [count]
pub async fn zpopmax(tx: &mut Tx, args: &[Blob]) -> Outcome {
    pop_of_one(tx, args, End::Max).await
}

/// What ZMPOP asks for.
pub(in crate::commands) struct ManyPop<'a> {
    /// The keys, in the order in which they are tried.
    pub keys: &'a [Blob],
    /// From which end.
    pub end: End,
    /// How many at most.
    pub count: usize,
}

impl ManyPop<'_> {
    /// From `numkeys key [key ...] MIN | MAX [COUNT count]`.
    pub(in crate::commands) fn parse(args: &[Blob]) -> Result<ManyPop<'_>, Reply> {
        let keys = options::count(&args[0], 1, errors::NO_KEYS)?;
        let (keys, words) = args[1..].split_at_checked(keys).ok_or(errors::SYNTAX)?;
        let (end, mut words) = match words {
            [word, rest @ ..] if options::is(word, "MIN") => (End::Min, rest),
            [word, rest @ ..] if options::is(word, "MAX") => (End::Max, rest),
            _ => return Err(errors::SYNTAX),
        };
        let mut count = None;
        while let [word, rest @ ..] = words {
            words = match rest {
                [given, rest @ ..] if count.is_none() && options::is(word, "COUNT") => {
                    count = Some(options::count(given, 1, errors::COUNT_ZERO)?);
                    rest
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        let count = count.unwrap_or(1);
        Ok(ManyPop { keys, end, count })
    }
}

/// What ZMPOP replies: nested in every protocol.
pub(in crate::commands) fn many_reply(popped: Option<Popped>) -> Reply {
    let Some(Popped { key, members }) = popped else {
        return Reply::NilArray;
    };
    let pair = |one: Scored| Reply::Array(vec![Reply::Bulk(one.member), Reply::Double(one.score)]);
    let members = members.into_iter().map(pair).collect();
    Reply::Array(vec![Reply::Bulk(key), Reply::Array(members)])
}

/// ZMPOP numkeys key [key ...] MIN | MAX [COUNT count]
pub async fn zmpop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let ManyPop { keys, end, count } = argument!(ManyPop::parse(args));
    Ok(many_reply(found!(pop(tx, keys, end, count))))
}
