//! Members of one set, and moving them to another.

use super::collections::{
    FoundIn, collection_in, collection_or, find, found_in, put, stored, taken, to_change,
};
use super::compact;
use super::listing::{ScanOptions, cursor, cursor_page, cursor_reply};
use super::options;
use super::strings::{argument, found};
use crate::chance::{Chance, collected};
use crate::errors;
use crate::table::per_key::PerKeyResult;
use crate::work;
use txn::fragments::Done;
use txn::value::SetValue;
use txn::{Blob, BlobRef, FragmentContext, Intent, Key, Note, Outcome, Reply, Tx};

pub(super) fn bulks<'a>(members: impl Iterator<Item = BlobRef<'a>>) -> Vec<Reply> {
    members.map(|member| Reply::Bulk(member.to_blob())).collect()
}

/// SADD key member [member ...]
pub fn sadd(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let found = found_in::<SetValue>(context)?;
    let old = found.as_ref().and_then(FoundIn::look);
    if old.is_some_and(|set| args[1..].iter().all(|member| set.contains(member))) {
        return Ok(Done::read(Reply::Integer(0)));
    }
    let (mut set, expires_at_ms) = taken(found);
    let added = match set.is_empty() {
        true => {
            set = args[1..].iter().cloned().collect();
            set.len()
        }
        false => args[1..].iter().filter(|&member| set.add(member.into())).count(),
    };
    work::members(added);
    Ok(stored(set, expires_at_ms, Reply::Integer(added as i64)))
}

/// SREM key member [member ...]
pub fn srem(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let found = found_in::<SetValue>(context)?;
    let old = found.as_ref().and_then(FoundIn::look);
    if !old.is_some_and(|set| args[1..].iter().any(|member| set.contains(member))) {
        return Ok(Done::read(Reply::Integer(0)));
    }
    let (mut set, expires_at_ms) = taken(found);
    let removed = args[1..].iter().filter(|member| set.remove(member)).count();
    work::members(removed);
    Ok(stored(set, expires_at_ms, Reply::Integer(removed as i64)))
}

/// SMOVE source destination member
pub async fn smove(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let [from, to] = [Key::from(&args[0]), Key::from(&args[1])];
    let member = &args[2];
    let Some((old, expires_at_ms)) = found!(find::<SetValue>(tx, &from, Intent::Update)) else {
        return Ok(Reply::Integer(0));
    };
    let is_there = old.contains(member);
    if from == to {
        return Ok(Reply::Integer(i64::from(is_there)));
    }
    let destination = found!(find::<SetValue>(tx, &to, Intent::Update));
    if !is_there {
        return Ok(Reply::Integer(0));
    }
    let mut set = SetValue::clone(&old);
    set.remove(member);
    put(tx, &from, set, expires_at_ms).await?;
    let (mut set, expires_at_ms) = to_change::<SetValue>(destination);
    if set.add(member.into()) {
        tx.note(|| Note::Named("sadd".into()));
        put(tx, &to, set, expires_at_ms).await?;
    }
    Ok(Reply::Integer(1))
}

/// SISMEMBER key member
pub fn sismember(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let set = collection_in!(SetValue, context, Reply::Integer(0));
    Ok(Done::read(Reply::Integer(i64::from(set.contains(&args[1])))))
}

/// SMISMEMBER key member [member ...]
pub fn smismember(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let members = args[1..].iter();
    let set = collection_in!(SetValue, context, Reply::Array(vec![Reply::Integer(0); members.len()]));
    let is_there = members.map(|member| Reply::Integer(i64::from(set.contains(member))));
    Ok(Done::read(Reply::Array(is_there.collect())))
}

/// SMEMBERS key
pub async fn smembers(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let set = collection_or!(SetValue, tx, args, Reply::Set(Vec::new()));
    Ok(Reply::Set(bulks(set.names())))
}

/// SCARD key
pub fn scard(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let set = collection_in!(SetValue, context, Reply::Integer(0));
    Ok(Done::read(Reply::Integer(set.len() as i64)))
}

/// SSCAN key cursor [MATCH pattern] [COUNT count]
pub async fn sscan(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let cursor = argument!(cursor(&args[1]));
    let set = collection_or!(SetValue, tx, args, cursor_reply(None, Vec::new()));
    let options = argument!(ScanOptions::parse(&args[2..], false));
    let is_compact = compact::is_set(&set) || compact::is_integers(&set);
    let (page, next) = cursor_page(cursor, options.count, is_compact, |hash, limit| set.page(hash, limit));
    let members = page.into_iter().map(|(member, ())| member);
    let wanted = members.filter(|member| options.matches(member));
    Ok(cursor_reply(next, bulks(wanted)))
}

/// SRANDMEMBER key [count]
pub async fn srandmember(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let mut chance = Chance::of(tx);
    let count = match &args[1..] {
        [] => {
            let set = collection_or!(SetValue, tx, args, Reply::Nil);
            let picked = set.at(chance.below(set.len()));
            return Ok(picked.map_or(Reply::Nil, |(member, ())| Reply::Bulk(member.to_blob())));
        }
        [count] => argument!(options::draws(count)),
        _ => return Ok(errors::SYNTAX),
    };
    let set = collection_or!(SetValue, tx, args, Reply::Array(Vec::new()));
    let places = chance.places(set.len(), count);
    let length = places.len();
    let picked = set.at_each(places.into_iter());
    Ok(Reply::Array(collected(length, picked.map(|(member, ())| Reply::Bulk(member)))))
}

/// SPOP key [count]
pub async fn spop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let (count, nothing) = match &args[1..] {
        [] => (1, Reply::Nil),
        [count] => {
            let count = argument!(options::count(count, 0, errors::NOT_POSITIVE));
            (count, Reply::Set(Vec::new()))
        }
        _ => return Ok(errors::SYNTAX),
    };
    let key = Key::from(&args[0]);
    let found = found!(find::<SetValue>(tx, &key, Intent::Update));
    let Some((old, expires_at_ms)) = found.filter(|_| count > 0) else {
        return Ok(nothing);
    };
    let popped: Vec<BlobRef<'_>> = if count < old.len() {
        let places = Chance::of(tx).places(old.len(), count as i64);
        places.into_iter().filter_map(|place| old.at(place)).map(|(member, ())| member).collect()
    } else {
        old.names().collect()
    };
    let mut set = SetValue::new();
    if popped.len() < old.len() {
        set = SetValue::clone(&old);
        work::members(popped.len());
        for member in &popped {
            set.remove(member);
        }
    }
    put(tx, &key, set, expires_at_ms).await?;
    let mut popped = bulks(popped.into_iter());
    Ok(match nothing {
        Reply::Nil => popped.pop().unwrap_or(Reply::Nil),
        _ => Reply::Set(popped),
    })
}
