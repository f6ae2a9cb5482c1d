//! Lists at their ends: pushing, popping, and moving from one to another.

use super::collections::{find, found_in, put, stored, taken, to_change};
use super::options;
use super::strings::{argument, found};
use crate::errors;
use crate::table::per_key::PerKeyResult;
use txn::fragments::Done;
use txn::value::ListValue;
use txn::{Blob, BlobRef, FragmentContext, Intent, Key, Note, Outcome, Reply, Stop, Tx, told};

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    pub(super) fn parse(word: &Blob) -> Result<End, Reply> {
        match word {
            word if options::is(word, "LEFT") => Ok(End::Left),
            word if options::is(word, "RIGHT") => Ok(End::Right),
            _ => Err(errors::SYNTAX),
        }
    }

    fn push(self, list: &mut ListValue, element: Blob) {
        match self {
            End::Left => list.push_front(element),
            End::Right => list.push_back(element),
        }
    }

    /// What taking an element from here is called when others are told.
    fn pop_event(self) -> &'static str {
        match self {
            End::Left => "lpop",
            End::Right => "rpop",
        }
    }

    /// What putting an element here is called when others are told.
    fn push_event(self) -> &'static str {
        match self {
            End::Left => "lpush",
            End::Right => "rpush",
        }
    }

    fn pop_one(self, list: &mut ListValue) -> Option<Blob> {
        match self {
            End::Left => list.pop_front(),
            End::Right => list.pop_back(),
        }
    }

    /// Takes up to `count` elements in the order in which they leave, and notes the event of the write that
    /// follows.
    fn pop(self, list: &mut ListValue, count: usize) -> Vec<Blob> {
        told::note(|| Note::Named(self.pop_event().into()));
        let len = list.len();
        let count = count.min(len);
        let (places, elements) = match self {
            End::Left => (0..count, list.range(0..count).map(BlobRef::to_blob).collect()),
            End::Right => {
                let elements = list.range(len - count..len);
                (len - count..len, elements.rev().map(BlobRef::to_blob).collect())
            }
        };
        list.remove_range(places);
        elements
    }
}

fn push(args: &[Blob], context: &FragmentContext<'_>, end: End, only_present: bool) -> PerKeyResult {
    let found = found_in::<ListValue>(context)?;
    if only_present && found.is_none() {
        return Ok(Done::read(Reply::Integer(0)));
    }
    let (mut list, expires_at_ms) = taken(found);
    let elements = args[1..].iter().cloned();
    match (list.is_empty(), end) {
        (true, End::Left) => list = elements.rev().collect(),
        (true, End::Right) => list = elements.collect(),
        (false, _) => elements.for_each(|element| end.push(&mut list, element)),
    }
    let len = list.len() as i64;
    Ok(stored(list, expires_at_ms, Reply::Integer(len)))
}

/// LPUSH key element [element ...]
pub fn lpush(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    push(args, context, End::Left, false)
}

/// RPUSH key element [element ...]
pub fn rpush(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    push(args, context, End::Right, false)
}

/// LPUSHX key element [element ...]
pub fn lpushx(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    push(args, context, End::Left, true)
}

/// RPUSHX key element [element ...]
pub fn rpushx(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    push(args, context, End::Right, true)
}

/// Takes up to `count` elements from an end of the list at a key; `None` if there is no list. The inner error
/// is the reply to a value of another type.
pub(super) async fn pop(
    tx: &mut Tx,
    key: &Key,
    end: End,
    count: usize,
) -> Result<Result<Option<Vec<Blob>>, Reply>, Stop> {
    let found = match find::<ListValue>(tx, key, Intent::Update).await? {
        Ok(None) => return Ok(Ok(None)),
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    if count == 0 {
        return Ok(Ok(Some(Vec::new())));
    }
    let (mut list, expires_at_ms) = to_change(found);
    let elements = end.pop(&mut list, count);
    put(tx, key, list, expires_at_ms).await?;
    Ok(Ok(Some(elements)))
}

/// Pops from the first of some keys that has a list, and gives that key as well.
pub(super) async fn pop_first(
    tx: &mut Tx,
    names: &[Blob],
    end: End,
    count: usize,
) -> Result<Result<Option<(Blob, Vec<Blob>)>, Reply>, Stop> {
    for name in names {
        match pop(tx, &Key::from(name), end, count).await? {
            Ok(None) => {}
            Ok(Some(elements)) => return Ok(Ok(Some((name.clone(), elements)))),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(None))
}

fn array(elements: Vec<Blob>) -> Reply {
    Reply::Array(elements.into_iter().map(Reply::Bulk).collect())
}

fn pop_some(args: &[Blob], context: &FragmentContext<'_>, end: End, command: &'static str) -> PerKeyResult {
    let count = match &args[1..] {
        [] => None,
        [count] => Some(options::count(count, 0, errors::NOT_POSITIVE)?),
        _ => return Err(errors::wrong_arity_of(command)),
    };
    let Some(found) = found_in::<ListValue>(context)? else {
        return Ok(Done::read(count.map_or(Reply::Nil, |_| Reply::NilArray)));
    };
    if count == Some(0) {
        return Ok(Done::read(array(Vec::new())));
    }
    let (mut list, expires_at_ms) = taken(Some(found));
    let mut elements = end.pop(&mut list, count.unwrap_or(1));
    let reply = match count {
        None => elements.pop().map_or(Reply::Nil, Reply::Bulk),
        Some(_) => array(elements),
    };
    Ok(stored(list, expires_at_ms, reply))
}

/// LPOP key [count]
pub fn lpop(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    pop_some(args, context, End::Left, "lpop")
}

/// RPOP key [count]
pub fn rpop(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    pop_some(args, context, End::Right, "rpop")
}

/// What LMPOP wants.
pub(super) struct PopFirst<'a> {
    pub names: &'a [Blob],
    pub end: End,
    pub count: usize,
}

impl PopFirst<'_> {
    /// From the arguments `numkeys key [key ...] LEFT | RIGHT [COUNT count]`.
    pub(super) fn parse(args: &[Blob]) -> Result<PopFirst<'_>, Reply> {
        let (number, words) = args.split_first().ok_or(errors::SYNTAX)?;
        let number = options::count(number, 1, errors::NO_KEYS)?;
        let (names, words) = words.split_at_checked(number).ok_or(errors::SYNTAX)?;
        let (end, words) = words.split_first().ok_or(errors::SYNTAX)?;
        let end = End::parse(end)?;
        let (count, words) = match words {
            [word, count, rest @ ..] if options::is(word, "COUNT") => {
                (options::count(count, 1, errors::COUNT_ZERO)?, rest)
            }
            words => (1, words),
        };
        match words {
            [] => Ok(PopFirst { names, end, count }),
            _ => Err(errors::SYNTAX),
        }
    }
}

/// LMPOP numkeys key [key ...] LEFT | RIGHT [COUNT count]
pub async fn lmpop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let wanted = argument!(PopFirst::parse(args));
    pop_many(tx, &wanted).await
}

/// Pops what LMPOP wants, and replies it.
pub(super) async fn pop_many(tx: &mut Tx, wanted: &PopFirst<'_>) -> Outcome {
    let popped = found!(pop_first(tx, wanted.names, wanted.end, wanted.count));
    Ok(popped
        .map_or(Reply::NilArray, |(name, elements)| Reply::Array(vec![Reply::Bulk(name), array(elements)])))
}

/// Moves an element from an end of a list to one of another, or of the same; `None` if there is no list at
/// the source. The inner error is the reply to a value of another type.
pub(super) async fn move_element(
    tx: &mut Tx,
    [source, destination]: [&Blob; 2],
    from: End,
    to: End,
) -> Result<Result<Option<Blob>, Reply>, Stop> {
    let [from_key, to_key] = [Key::from(source), Key::from(destination)];
    let source = match find::<ListValue>(tx, &from_key, Intent::Update).await? {
        Ok(None) => return Ok(Ok(None)),
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    // Nothing is written before the other's type is known.
    let destination = match from_key == to_key {
        true => None,
        false => match find::<ListValue>(tx, &to_key, Intent::Update).await? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        },
    };
    let (mut list, expires_at_ms) = to_change(source);
    let Some(element) = from.pop_one(&mut list) else {
        return Ok(Ok(None));
    };
    if from_key == to_key {
        to.push(&mut list, element.clone());
        // One write, of which two things are told.
        tx.note(|| Note::Named(to.push_event().into()));
        tx.note(|| Note::Wrote { key: to_key, is_present: true, expires: expires_at_ms != 0 });
    } else {
        let (mut other, expires_at_ms) = to_change(destination);
        to.push(&mut other, element.clone());
        tx.note(|| Note::Named(to.push_event().into()));
        put(tx, &to_key, other, expires_at_ms).await?;
    }
    tx.note(|| Note::Named(from.pop_event().into()));
    put(tx, &from_key, list, expires_at_ms).await?;
    Ok(Ok(Some(element)))
}

/// LMOVE source destination LEFT | RIGHT LEFT | RIGHT
pub async fn lmove(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let from = argument!(End::parse(&args[2]));
    let to = argument!(End::parse(&args[3]));
    let moved = found!(move_element(tx, [&args[0], &args[1]], from, to));
    Ok(moved.map_or(Reply::Nil, Reply::Bulk))
}

/// RPOPLPUSH source destination
pub async fn rpoplpush(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let keys = [&args[0], &args[1]];
    let moved = found!(move_element(tx, keys, End::Right, End::Left));
    Ok(moved.map_or(Reply::Nil, Reply::Bulk))
}
