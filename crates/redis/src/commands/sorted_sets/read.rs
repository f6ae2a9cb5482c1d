//! Single members of sorted sets: scores, ranks, random ones, and the walk over all.

use crate::chance::{Chance, collected};
use crate::commands::collections::{collection_in, collection_or, find, found_in};
use crate::commands::compact;
use crate::commands::listing::{ScanOptions, cursor, cursor_page, cursor_reply};
use crate::commands::options;
use crate::commands::strings::{argument, found};
use crate::table::per_key::PerKeyResult;
use crate::{errors, parse};
use txn::fragments::Done;
use txn::value::SortedSetValue;
use txn::{Blob, FragmentContext, Intent, Key, Outcome, Reply, Tx};

fn score_or_nil(set: &SortedSetValue, member: &Blob) -> Reply {
    set.score(member).map_or(Reply::Nil, Reply::Double)
}

/// ZSCORE key member
pub fn zscore(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let set = collection_in!(SortedSetValue, context, Reply::Nil);
    Ok(Done::read(score_or_nil(&set, &args[1])))
}

/// ZMSCORE key member [member ...]
pub fn zmscore(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let members = args[1..].iter();
    let set = collection_in!(SortedSetValue, context, Reply::Array(vec![Reply::Nil; members.len()]));
    let scores = members.map(|member| score_or_nil(&set, member));
    Ok(Done::read(Reply::Array(scores.collect())))
}

/// ZCARD key
pub fn zcard(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let set = collection_in!(SortedSetValue, context, Reply::Integer(0));
    Ok(Done::read(Reply::Integer(set.len() as i64)))
}

async fn rank(tx: &mut Tx, args: &[Blob], reverse: bool, command: &'static str) -> Outcome {
    let with_score = match &args[2..] {
        [] => false,
        [word] if options::is(word, "WITHSCORE") => true,
        [_] => return Ok(errors::SYNTAX),
        _ => return Ok(errors::wrong_arity_of(command)),
    };
    let absent = || match with_score {
        true => Reply::NilArray,
        false => Reply::Nil,
    };
    let set = collection_or!(SortedSetValue, tx, args, absent());
    let Some((rank, score)) = set.rank(&args[1]).zip(set.score(&args[1])) else {
        return Ok(absent());
    };
    let rank = Reply::Integer(match reverse {
        true => set.len() - 1 - rank,
        false => rank,
    } as i64);
    Ok(match with_score {
        true => Reply::Array(vec![rank, Reply::Double(score)]),
        false => rank,
    })
}

/// ZRANK key member [WITHSCORE]
pub async fn zrank(tx: &mut Tx, args: &[Blob]) -> Outcome {
    rank(tx, args, false, "zrank").await
}

/// ZREVRANK key member [WITHSCORE]
pub async fn zrevrank(tx: &mut Tx, args: &[Blob]) -> Outcome {
    rank(tx, args, true, "zrevrank").await
}

/// ZRANDMEMBER key [count [WITHSCORES]]
pub async fn zrandmember(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let mut chance = Chance::of(tx);
    let (count, with_scores) = match &args[1..] {
        [] => {
            let set = collection_or!(SortedSetValue, tx, args, Reply::Nil);
            let picked = set.at(chance.below(set.len()));
            return Ok(picked.map_or(Reply::Nil, |one| Reply::Bulk(one.member.to_blob())));
        }
        [count, words @ ..] => {
            let count = argument!(options::draws(count));
            match words {
                [] => (count, false),
                [word] if options::is(word, "WITHSCORES") => (count, true),
                _ => return Ok(errors::SYNTAX),
            }
        }
    };
    if with_scores && count > i64::MAX / 2 {
        return Ok(errors::OUT_OF_RANGE);
    }
    let set = collection_or!(SortedSetValue, tx, args, Reply::Array(Vec::new()));
    let places = chance.places(set.len(), count);
    let length = places.len();
    let picked = set.at_each(places.into_iter());
    Ok(match with_scores {
        false => Reply::Array(collected(length, picked.map(|one| Reply::Bulk(one.member)))),
        true => {
            let pairs = picked.map(|one| (Reply::Bulk(one.member), Reply::Double(one.score)));
            Reply::Pairs(collected(length, pairs))
        }
    })
}

/// ZSCAN key cursor [MATCH pattern] [COUNT count]
pub async fn zscan(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let cursor = argument!(cursor(&args[1]));
    let set = collection_or!(SortedSetValue, tx, args, cursor_reply(None, Vec::new()));
    let options = argument!(ScanOptions::parse(&args[2..], false));
    let is_compact = compact::is_sorted_set(&set);
    let (page, next) = cursor_page(cursor, options.count, is_compact, |hash, limit| {
        let (page, next) = set.page(hash, limit);
        (page.into_iter().map(|one| (one.member, one.score)).collect(), next)
    });
    let wanted = page.into_iter().filter(|(name, _)| options.matches(name));
    let items = wanted.flat_map(|(name, score)| {
        let score = Reply::bulk(parse::float_text(score).as_str());
        [Reply::Bulk(name.to_blob()), score]
    });
    Ok(cursor_reply(next, items.collect()))
}
