//! Elements of lists by their places and by what they are.

use super::collections::{collection_in, collection_or, find, found_in, put, stored, taken};
use super::options;
use super::strings::{argument, found};
use crate::errors;
use crate::table::per_key::PerKeyResult;
use crate::work;
use std::ops::Range;
use txn::fragments::Done;
use txn::value::ListValue;
use txn::{Blob, FragmentContext, Intent, Key, Outcome, Reply, Tx};

/// The place that an index means: negative ones count from the end.
fn place(len: usize, index: i64) -> Option<usize> {
    let from_end = || len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
    match usize::try_from(index) {
        Ok(place) => Some(place).filter(|&place| place < len),
        Err(_) => from_end(),
    }
}

/// Where an element stands within these places of a list, from either end.
fn places_of<'a>(
    list: &'a ListValue,
    element: &'a [u8],
    within: Range<usize>,
) -> impl DoubleEndedIterator<Item = usize> + 'a {
    let places = within.clone();
    let all = places.zip(list.range(within));
    let found = all.filter(move |(_, other)| {
        work::compared(other, element);
        other.as_bytes() == element
    });
    found.map(|(place, _)| place)
}

/// LLEN key
pub fn llen(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let list = collection_in!(ListValue, context, Reply::Integer(0));
    Ok(Done::read(Reply::Integer(list.len() as i64)))
}

/// LINDEX key index
pub fn lindex(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let list = collection_in!(ListValue, context, Reply::Nil);
    let index = options::integer(&args[1])?;
    let element = place(list.len(), index).and_then(|place| list.get(place));
    Ok(Done::read(element.map_or(Reply::Nil, |element| Reply::Bulk(element.to_blob()))))
}

/// LRANGE key start stop
pub async fn lrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let start = argument!(options::integer(&args[1]));
    let stop = argument!(options::integer(&args[2]));
    let list = collection_or!(ListValue, tx, args, Reply::Array(Vec::new()));
    let elements = list.range(options::places(list.len(), start, stop));
    Ok(Reply::Array(elements.map(|element| Reply::Bulk(element.to_blob())).collect()))
}

/// LSET key index element
pub fn lset(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let found = found_in::<ListValue>(context)?.ok_or(errors::NO_SUCH_KEY)?;
    let index = options::integer(&args[1])?;
    let (mut list, expires_at_ms) = taken(Some(found));
    let place = place(list.len(), index).ok_or(errors::INDEX_OUT_OF_RANGE)?;
    list.replace(place, args[2].clone());
    Ok(stored(list, expires_at_ms, Reply::OK))
}

/// LINSERT key BEFORE | AFTER pivot element
pub async fn linsert(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let offset = match &args[1] {
        word if options::is(word, "BEFORE") => 0,
        word if options::is(word, "AFTER") => 1,
        _ => return Ok(errors::SYNTAX),
    };
    let key = Key::from(&args[0]);
    let Some((old, expires_at_ms)) = found!(find::<ListValue>(tx, &key, Intent::Update)) else {
        return Ok(Reply::Integer(0));
    };
    let Some(pivot) = places_of(&old, &args[2], 0..old.len()).next() else {
        return Ok(Reply::Integer(-1));
    };
    let mut list = ListValue::clone(&old);
    list.insert(pivot + offset, args[3].clone());
    let len = list.len();
    put(tx, &key, list, expires_at_ms).await?;
    Ok(Reply::Integer(len as i64))
}

/// LREM key count element
pub async fn lrem(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let count = argument!(options::integer(&args[1]));
    let key = Key::from(&args[0]);
    let Some((old, expires_at_ms)) = found!(find::<ListValue>(tx, &key, Intent::Update)) else {
        return Ok(Reply::Integer(0));
    };
    let wanted = match usize::try_from(count.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(wanted) => wanted,
    };
    let all = places_of(&old, &args[2], 0..old.len());
    let mut places: Vec<usize> = match count < 0 {
        false => all.take(wanted).collect(),
        true => all.rev().take(wanted).collect(),
    };
    if places.is_empty() {
        return Ok(Reply::Integer(0));
    }
    if count < 0 {
        places.reverse();
    }
    let mut list = ListValue::clone(&old);
    work::elements(places.len());
    list.remove_places(&places);
    put(tx, &key, list, expires_at_ms).await?;
    Ok(Reply::Integer(places.len() as i64))
}

/// LTRIM key start stop
pub async fn ltrim(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let start = argument!(options::integer(&args[1]));
    let stop = argument!(options::integer(&args[2]));
    let key = Key::from(&args[0]);
    let Some((old, expires_at_ms)) = found!(find::<ListValue>(tx, &key, Intent::Update)) else {
        return Ok(Reply::OK);
    };
    let kept = options::places(old.len(), start, stop);
    let mut list = ListValue::clone(&old);
    work::elements(kept.len().min(old.len() - kept.len()));
    list.keep(kept);
    // As in Redis, it counts as written even if nothing goes.
    put(tx, &key, list, expires_at_ms).await?;
    Ok(Reply::OK)
}

/// The options of LPOS.
struct Search {
    /// From 1 on.
    rank: u64,
    backward: bool,
    /// How many matches, if that was said; 0 means all.
    count: Option<usize>,
    /// How many elements are compared; 0 means all.
    len_max: usize,
}

impl Search {
    fn parse(mut words: &[Blob]) -> Result<Search, Reply> {
        let mut search = Search { rank: 1, backward: false, count: None, len_max: 0 };
        while let [word, value, rest @ ..] = words {
            words = rest;
            if options::is(word, "RANK") {
                let rank = options::with_opposite(value)?;
                if rank == 0 {
                    return Err(errors::RANK_ZERO);
                }
                (search.rank, search.backward) = (rank.unsigned_abs(), rank < 0);
            } else if options::is(word, "COUNT") {
                search.count = Some(options::count(value, 0, errors::COUNT_NEGATIVE)?);
            } else if options::is(word, "MAXLEN") {
                search.len_max = options::count(value, 0, errors::MAXLEN_NEGATIVE)?;
            } else {
                return Err(errors::SYNTAX);
            }
        }
        match words {
            [] => Ok(search),
            _ => Err(errors::SYNTAX),
        }
    }

    /// The places of an element that are asked for.
    fn run(&self, list: &ListValue, element: &[u8]) -> Vec<usize> {
        let len = list.len();
        let compared = match self.len_max {
            0 => len,
            len_max => len_max.min(len),
        };
        if self.backward {
            let found = places_of(list, element, len - compared..len);
            self.pick(found.rev())
        } else {
            self.pick(places_of(list, element, 0..compared))
        }
    }

    fn pick(&self, places: impl Iterator<Item = usize>) -> Vec<usize> {
        let passed = usize::try_from(self.rank - 1).unwrap_or(usize::MAX);
        let wanted = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        places.skip(passed).take(wanted).collect()
    }
}

/// LPOS key element [RANK rank] [COUNT matches] [MAXLEN length]
pub async fn lpos(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let search = argument!(Search::parse(&args[2..]));
    let nothing = match search.count {
        None => Reply::Nil,
        Some(_) => Reply::Array(Vec::new()),
    };
    let list = collection_or!(ListValue, tx, args, nothing);
    let places = search.run(&list, &args[1]);
    let mut places = places.into_iter().map(|place| Reply::Integer(place as i64));
    Ok(match search.count {
        None => places.next().unwrap_or(Reply::Nil),
        Some(_) => Reply::Array(places.collect()),
    })
}
