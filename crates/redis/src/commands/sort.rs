//! SORT: the elements of a list, a set or a sorted set in order, or what keys named after them hold.
//!
//! Which keys the patterns of BY and GET name shows only while it runs, as with a script: Redis Cluster
//! refuses such patterns, here the transaction finds its keys.

use super::keys::delete;
use super::options;
use super::strings::argument;
use crate::work;
use crate::{errors, parse};
use std::cmp::Ordering;
use std::ops::Range;
use txn::value::ListValue;
use txn::{Blob, BlobRef, Intent, Key, Outcome, Reply, Stop, Tx, Value};

/// The words after the key.
pub(crate) struct Options<'a> {
    /// The last pattern of BY.
    by: Option<&'a Blob>,
    /// A BY had a pattern that is the same for all elements: they keep their order.
    is_unsorted: bool,
    gets: Vec<&'a Blob>,
    start: i64,
    /// Negative: all.
    count: i64,
    is_descending: bool,
    is_alphabetic: bool,
    store: Option<&'a Blob>,
}

impl Options<'_> {
    pub(crate) fn parse(mut words: &[Blob], with_store: bool) -> Result<Options<'_>, Reply> {
        let mut all = Options {
            by: None,
            is_unsorted: false,
            gets: Vec::new(),
            start: 0,
            count: -1,
            is_descending: false,
            is_alphabetic: false,
            store: None,
        };
        loop {
            words = match words {
                [] => return Ok(all),
                [word, rest @ ..] if options::is(word, "ASC") => {
                    all.is_descending = false;
                    rest
                }
                [word, rest @ ..] if options::is(word, "DESC") => {
                    all.is_descending = true;
                    rest
                }
                [word, rest @ ..] if options::is(word, "ALPHA") => {
                    all.is_alphabetic = true;
                    rest
                }
                [word, start, count, rest @ ..] if options::is(word, "LIMIT") => {
                    all.start = options::integer(start)?;
                    all.count = options::integer(count)?;
                    rest
                }
                [word, key, rest @ ..] if with_store && options::is(word, "STORE") => {
                    all.store = Some(key);
                    rest
                }
                [word, pattern, rest @ ..] if options::is(word, "BY") => {
                    all.by = Some(pattern);
                    all.is_unsorted |= !pattern.contains(&b'*');
                    rest
                }
                [word, pattern, rest @ ..] if options::is(word, "GET") => {
                    all.gets.push(pattern);
                    rest
                }
                _ => return Err(errors::SYNTAX),
            };
        }
    }

    /// Whether patterns may name keys that no word tells.
    pub(crate) fn name_keys(&self) -> bool {
        let mut patterns = self.gets.iter().chain(&self.by);
        patterns.any(|pattern| pattern.contains(&b'*'))
    }

    /// Which of `len` elements are wanted.
    fn wanted(&self, len: usize) -> Range<usize> {
        let clamped = |value: i64| usize::try_from(value).unwrap_or(0).min(len);
        let start = clamped(self.start);
        let count = if self.count < 0 { len } else { clamped(self.count) };
        start..len.min(start + count)
    }
}

/// What a pattern stands for, once the element is known.
enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// Without a `*`: nothing.
    Nothing,
    /// A key, the element between its parts; a field of a hash if one follows `->`.
    Key { prefix: &'a [u8], suffix: &'a [u8], field: Option<&'a [u8]> },
}

impl Pattern<'_> {
    fn parse(pattern: &[u8]) -> Pattern<'_> {
        if pattern == b"#" {
            return Pattern::Element;
        }
        let Some(star) = pattern.iter().position(|&byte| byte == b'*') else {
            return Pattern::Nothing;
        };
        let (prefix, rest) = (&pattern[..star], &pattern[star + 1..]);
        let arrow = rest.windows(2).position(|pair| pair == b"->");
        // An arrow at the end is part of the key.
        let arrow = arrow.filter(|arrow| arrow + 2 < rest.len());
        Pattern::Key {
            prefix,
            suffix: &rest[..arrow.unwrap_or(rest.len())],
            field: arrow.map(|arrow| &rest[arrow + 2..]),
        }
    }

    /// What it stands for; `None` if there is no such thing, or one of another type.
    async fn look_up(&self, tx: &mut Tx, element: &Blob) -> Result<Option<Blob>, Stop> {
        let (prefix, suffix, field) = match *self {
            Pattern::Element => return Ok(Some(element.clone())),
            Pattern::Nothing => return Ok(None),
            Pattern::Key { prefix, suffix, field } => (prefix, suffix, field),
        };
        let name = [prefix, element, suffix].concat();
        work::element(&name);
        let key = Key::new(&name);
        Ok(match (tx.get(&key).await?, field) {
            (Some(value), None) => value.as_string().inspect(|found| work::bytes(found.len())),
            (Some(Value::Hash(hash)), Some(field)) => {
                let found = hash.get(field).inspect(|found| work::bytes(found.len()));
                found.map(BlobRef::to_blob)
            }
            _ => None,
        })
    }
}

/// A number as C's `strtod` reads it: with spaces before it, and none where there is nothing at all.
fn weight(bytes: &[u8]) -> Option<f64> {
    // A zero byte ends the text.
    let text = bytes.split(|&byte| byte == 0).next()?;
    if text.is_empty() {
        return Some(0.0);
    }
    let weight = parse::float(parse::without_spaces(text))?;
    // C reports a number that is too small, and SORT minds.
    (!weight.is_subnormal()).then_some(weight)
}

/// The elements of a collection that are wanted, in its own order, backwards if descending; all if they are
/// to be sorted.
fn elements(value: &Value, options: &Options) -> Vec<Blob> {
    let (len, may_keep_order) = match value {
        Value::List(list) => (list.len(), true),
        Value::SortedSet(set) => (set.len(), true),
        Value::Set(set) => (set.len(), false),
        Value::String(_) | Value::LongString(_) | Value::Hash(_) | Value::Stream(_) => (0, false),
    };
    let mut places = 0..len;
    let keeps_order = may_keep_order && options.is_unsorted;
    if keeps_order {
        places = options.wanted(len);
        if options.is_descending {
            places = len - places.end..len - places.start;
        }
    }
    work::elements(places.len());
    let mut elements: Vec<Blob> = match value {
        Value::List(list) => list.range(places).map(BlobRef::to_blob).collect(),
        Value::SortedSet(set) => set.range(places).map(|one| one.member.to_blob()).collect(),
        Value::Set(set) => set.names().map(BlobRef::to_blob).collect(),
        Value::String(_) | Value::LongString(_) | Value::Hash(_) | Value::Stream(_) => Vec::new(),
    };
    if keeps_order && options.is_descending {
        elements.reverse();
    }
    elements
}

/// By what an element is sorted.
enum Weight {
    Number(f64),
    /// Its own bytes, or those that a pattern found.
    Text(Option<Blob>),
}

fn compare((a, left): &(Weight, Blob), (b, right): &(Weight, Blob)) -> Ordering {
    match (a, b) {
        // No number is NaN. Equal ones are in order of the elements, so that the reply is the same
        // everywhere.
        (Weight::Number(a), Weight::Number(b)) => {
            let by_number = a.partial_cmp(b).unwrap_or(Ordering::Equal);
            by_number.then_with(|| left.cmp(right))
        }
        (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

/// Sorts elements. The inner error is the reply to those that have no number.
async fn sorted(
    tx: &mut Tx,
    elements: Vec<Blob>,
    by: Option<&Blob>,
    is_alphabetic: bool,
    is_descending: bool,
) -> Result<Result<Vec<Blob>, Reply>, Stop> {
    let pattern = by.map_or(Pattern::Element, |by| Pattern::parse(by));
    let mut weighed = Vec::with_capacity(elements.len());
    let mut all_have_numbers = true;
    for element in elements {
        if work::is_spent() {
            return Ok(Ok(Vec::new()));
        }
        let found = pattern.look_up(tx, &element).await?;
        let weight = match is_alphabetic {
            true => Weight::Text(found),
            false => {
                let number = found.map_or(Some(0.0), |found| {
                    work::bytes(found.len());
                    weight(&found)
                });
                all_have_numbers &= number.is_some();
                Weight::Number(number.unwrap_or(0.0))
            }
        };
        weighed.push((weight, element));
    }
    if !all_have_numbers {
        return Ok(Err(errors::SORT_NOT_A_NUMBER));
    }
    work::sorted(weighed.len());
    if is_alphabetic {
        // Of texts that begin alike all bytes are compared.
        let texts = weighed.iter().map(|(weight, element)| match weight {
            Weight::Text(Some(text)) => text.len(),
            Weight::Text(None) => 0,
            Weight::Number(_) => element.len(),
        });
        let comparisons = weighed.len().max(1).ilog2() as usize;
        work::bytes(texts.sum::<usize>().saturating_mul(comparisons));
    }
    weighed.sort_by(|a, b| match is_descending {
        true => compare(b, a),
        false => compare(a, b),
    });
    Ok(Ok(weighed.into_iter().map(|(_, element)| element).collect()))
}

async fn sort_with(tx: &mut Tx, name: &Blob, options: &Options<'_>) -> Outcome {
    let key = Key::from(name);
    let intent = match options.store == Some(name) {
        true => Intent::Update,
        false => Intent::Read,
    };
    let value = tx.read(&key, intent).await?.entry.map(|entry| entry.value);
    let output = match &value {
        None => Vec::new(),
        Some(Value::String(_) | Value::LongString(_) | Value::Hash(_) | Value::Stream(_)) => {
            return Ok(errors::WRONG_TYPE);
        }
        // The order of a set is nobody's: it is sorted all the same, as Redis does where others see the
        // order.
        Some(value @ Value::Set(_)) if options.is_unsorted => {
            let all = elements(value, options);
            let sorted = sorted(tx, all, None, true, options.is_descending).await?;
            let sorted = argument!(sorted);
            sorted[options.wanted(sorted.len())].to_vec()
        }
        Some(value) if options.is_unsorted => elements(value, options),
        Some(value) => {
            let (all, is_alphabetic) = (elements(value, options), options.is_alphabetic);
            let is_descending = options.is_descending;
            let sorted = sorted(tx, all, options.by, is_alphabetic, is_descending).await?;
            let sorted = argument!(sorted);
            sorted[options.wanted(sorted.len())].to_vec()
        }
    };
    let mut found = Vec::with_capacity(output.len());
    if options.gets.is_empty() {
        found.extend(output.into_iter().map(Some));
    } else {
        let patterns: Vec<Pattern> = options.gets.iter().map(|pattern| Pattern::parse(pattern)).collect();
        for element in &output {
            for pattern in &patterns {
                found.push(pattern.look_up(tx, element).await?);
            }
        }
    }
    let Some(destination) = options.store.map(Key::from) else {
        let replies = found.into_iter().map(|found| found.map_or(Reply::Nil, Reply::Bulk));
        return Ok(Reply::Array(replies.collect()));
    };
    let len = found.len();
    if len == 0 {
        delete(tx, &destination).await?;
    } else {
        work::elements(len);
        let list: ListValue = found.into_iter().map(Option::unwrap_or_default).collect();
        tx.put(&destination, list).await?;
    }
    Ok(Reply::Integer(len as i64))
}

/// SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA] [STORE destination]
pub async fn sort(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let options = argument!(Options::parse(&args[1..], true));
    sort_with(tx, &args[0], &options).await
}

/// SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA]
pub async fn sort_ro(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let options = argument!(Options::parse(&args[1..], false));
    sort_with(tx, &args[0], &options).await
}
