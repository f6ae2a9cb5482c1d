//! Reading hashes.

use super::collections::{collection_in, collection_or, find, found_in};
use super::compact;
use super::listing::{ScanOptions, cursor, cursor_page, cursor_reply};
use super::options;
use super::strings::{argument, found};
use crate::chance::{Chance, collected};
use crate::errors;
use crate::table::per_key::PerKeyResult;
use txn::fragments::Done;
use txn::value::HashValue;
use txn::{Blob, BlobRef, FragmentContext, Intent, Key, Outcome, Reply, Tx};

fn bulk(bytes: BlobRef<'_>) -> Reply {
    Reply::Bulk(bytes.to_blob())
}

fn value_or_nil(value: Option<BlobRef<'_>>) -> Reply {
    value.map_or(Reply::Nil, bulk)
}

/// HGET key field
pub fn hget(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let fields = collection_in!(HashValue, context, Reply::Nil);
    Ok(Done::read(value_or_nil(fields.get(&args[1]))))
}

/// HMGET key field [field ...]
pub fn hmget(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let fields = collection_in!(HashValue, context, Reply::Array(vec![Reply::Nil; args.len() - 1]));
    let values = fields.get_each(args[1..].iter().map(Blob::as_bytes));
    Ok(Done::read(Reply::Array(values.map(|value| value.map_or(Reply::Nil, Reply::Bulk)).collect())))
}

/// HGETALL key
pub async fn hgetall(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let fields = collection_or!(HashValue, tx, args, Reply::Map(Vec::new()));
    let pairs = fields.iter().map(|(field, value)| (bulk(field), bulk(value)));
    Ok(Reply::Map(pairs.collect()))
}

/// HLEN key
pub fn hlen(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let fields = collection_in!(HashValue, context, Reply::Integer(0));
    Ok(Done::read(Reply::Integer(fields.len() as i64)))
}

/// HEXISTS key field
pub fn hexists(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let fields = collection_in!(HashValue, context, Reply::Integer(0));
    Ok(Done::read(Reply::Integer(i64::from(fields.get(&args[1]).is_some()))))
}

/// HKEYS key
pub async fn hkeys(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let fields = collection_or!(HashValue, tx, args, Reply::Array(Vec::new()));
    Ok(Reply::Array(fields.iter().map(|(field, _)| bulk(field)).collect()))
}

/// HVALS key
pub async fn hvals(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let fields = collection_or!(HashValue, tx, args, Reply::Array(Vec::new()));
    Ok(Reply::Array(fields.iter().map(|(_, value)| bulk(value)).collect()))
}

/// HSTRLEN key field
pub fn hstrlen(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let fields = collection_in!(HashValue, context, Reply::Integer(0));
    Ok(Done::read(Reply::Integer(fields.get(&args[1]).map_or(0, |value| value.len() as i64))))
}

/// HSCAN key cursor [MATCH pattern] [COUNT count]
pub async fn hscan(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let cursor = argument!(cursor(&args[1]));
    let fields = collection_or!(HashValue, tx, args, cursor_reply(None, Vec::new()));
    let options = argument!(ScanOptions::parse(&args[2..], false));
    let is_compact = compact::is_hash(&fields);
    let (page, next) = cursor_page(cursor, options.count, is_compact, |hash, limit| fields.page(hash, limit));
    let wanted = page.into_iter().filter(|(field, _)| options.matches(field));
    let items = wanted.flat_map(|(field, value)| [bulk(field), bulk(value)]);
    Ok(cursor_reply(next, items.collect()))
}

/// HRANDFIELD key [count [WITHVALUES]]
pub async fn hrandfield(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let mut chance = Chance::of(tx);
    let (count, with_values) = match &args[1..] {
        [] => {
            let fields = collection_or!(HashValue, tx, args, Reply::Nil);
            let picked = fields.at(chance.below(fields.len()));
            return Ok(picked.map_or(Reply::Nil, |(field, _)| bulk(field)));
        }
        [count, words @ ..] => {
            let count = argument!(options::draws(count));
            match words {
                [] => (count, false),
                [word] if options::is(word, "WITHVALUES") => (count, true),
                _ => return Ok(errors::SYNTAX),
            }
        }
    };
    if with_values && count > i64::MAX / 2 {
        return Ok(errors::OUT_OF_RANGE);
    }
    let fields = collection_or!(HashValue, tx, args, Reply::Array(Vec::new()));
    let places = chance.places(fields.len(), count);
    let length = places.len();
    let picked = fields.at_each(places.into_iter());
    Ok(match with_values {
        false => Reply::Array(collected(length, picked.map(|(field, _)| Reply::Bulk(field)))),
        true => {
            let pairs = picked.map(|(field, value)| (Reply::Bulk(field), Reply::Bulk(value)));
            Reply::Pairs(collected(length, pairs))
        }
    })
}
