//! What several sets have in common, together, or without each other.
//!
//! An intersection walks over the smallest set only. A union starts as a clone of the largest set and a
//! difference as one of the first if the others are smaller, so that they cost what the other sets have, and
//! not what a large one has.

use super::collections::{find, source_intent, store};
use super::options;
use super::sets::bulks;
use super::strings::{argument, found};
use crate::errors;
use crate::work;
use txn::value::SetValue;
use txn::{Blob, BlobRef, Key, Outcome, Reply, Stop, Tx};

/// The sets at some keys; absent ones are empty. One that is to be overwritten is read with that intent.
async fn sets(
    tx: &mut Tx,
    names: &[Blob],
    destination: Option<&Blob>,
) -> Result<Result<Vec<SetValue>, Reply>, Stop> {
    let mut sets = Vec::with_capacity(names.len());
    for name in names {
        let intent = source_intent(name, destination);
        match find::<SetValue>(tx, &Key::from(name), intent).await? {
            Ok(found) => sets.push(found.map_or_else(SetValue::new, |(set, _)| set)),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(sets))
}

/// The members that all sets have, in the order of the smallest.
fn intersection(sets: &[SetValue]) -> impl Iterator<Item = BlobRef<'_>> {
    let mut by_size: Vec<&SetValue> = sets.iter().collect();
    by_size.sort_by_key(|set| set.len());
    let smallest = by_size.first().copied();
    let members = smallest.into_iter().flat_map(SetValue::names);
    let is_in = |set: &&SetValue, member: &[u8]| {
        work::element(member);
        set.contains(member)
    };
    let members = members.inspect(|_| work::steps(1)).take_while(|_| !work::is_spent());
    members.filter(move |member| by_size[1..].iter().all(|set| is_in(set, member)))
}

/// The members of any set, those of the largest first.
fn union(sets: &[SetValue]) -> SetValue {
    let sizes = sets.iter().enumerate().rev();
    let Some((base, largest)) = sizes.max_by_key(|(_, set)| set.len()) else {
        return SetValue::new();
    };
    let mut union = SetValue::clone(largest);
    for (_, set) in sets.iter().enumerate().filter(|&(at, _)| at != base) {
        for member in set.names().take_while(|_| !work::is_spent()) {
            work::element(&member);
            work::members(usize::from(union.add(member)));
        }
    }
    union
}

/// The members of the first set that no other has.
fn difference(sets: &[SetValue]) -> SetValue {
    let Some((first, others)) = sets.split_first() else {
        return SetValue::new();
    };
    let others_len: usize = others.iter().map(|set| set.len()).sum();
    if others_len < first.len() {
        let mut left = SetValue::clone(first);
        let members = others.iter().flat_map(|set| set.names());
        for member in members.take_while(|_| !work::is_spent()) {
            work::element(&member);
            work::members(usize::from(left.remove(&member)));
        }
        return left;
    }
    let members = first.names().take_while(|_| !work::is_spent());
    let is_in = |set: &SetValue, member: &[u8]| {
        work::element(member);
        set.contains(member)
    };
    let left = members.filter(|member| !others.iter().any(|set| is_in(set, member)));
    collected(left)
}

fn collected<'a>(members: impl Iterator<Item = BlobRef<'a>>) -> SetValue {
    let counted = members.inspect(|member| {
        work::bytes(member.len());
        work::members(1);
    });
    counted.map(BlobRef::to_blob).collect()
}

/// SINTER key [key ...]
pub async fn sinter(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let sets = found!(sets(tx, args, None));
    Ok(Reply::Set(bulks(intersection(&sets))))
}

/// SINTERSTORE destination key [key ...]
pub async fn sinterstore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let sets = found!(sets(tx, &args[1..], Some(&args[0])));
    store(tx, &args[0], collected(intersection(&sets))).await
}

/// SINTERCARD numkeys key [key ...] [LIMIT limit]
pub async fn sintercard(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let number = argument!(options::count(&args[0], 1, errors::NO_KEYS));
    let Some((names, mut words)) = args[1..].split_at_checked(number) else {
        return Ok(errors::TOO_MANY_KEYS);
    };
    let mut limit = 0;
    while let [word, value, rest @ ..] = words {
        if !options::is(word, "LIMIT") {
            return Ok(errors::SYNTAX);
        }
        limit = argument!(options::count(value, 0, errors::LIMIT_NEGATIVE));
        words = rest;
    }
    if !words.is_empty() {
        return Ok(errors::SYNTAX);
    }
    let sets = found!(sets(tx, names, None));
    let common = intersection(&sets);
    let count = match limit {
        0 => common.count(),
        limit => common.take(limit).count(),
    };
    Ok(Reply::Integer(count as i64))
}

/// SUNION key [key ...]
pub async fn sunion(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let sets = found!(sets(tx, args, None));
    Ok(Reply::Set(bulks(union(&sets).names())))
}

/// SUNIONSTORE destination key [key ...]
pub async fn sunionstore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let sets = found!(sets(tx, &args[1..], Some(&args[0])));
    store(tx, &args[0], union(&sets)).await
}

/// SDIFF key [key ...]
pub async fn sdiff(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let sets = found!(sets(tx, args, None));
    Ok(Reply::Set(bulks(difference(&sets).names())))
}

/// SDIFFSTORE destination key [key ...]
pub async fn sdiffstore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let sets = found!(sets(tx, &args[1..], Some(&args[0])));
    store(tx, &args[0], difference(&sets)).await
}
