//! Lists at their ends: pushing, popping, and moving from one to another.

use super::collections::{find, put, to_change};
use super::options;
use super::strings::{argument, found};
use crate::errors;
use txn::value::ListValue;
use txn::{Blob, Intent, Key, Note, Outcome, Reply, Stop, Tx};

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

    /// Takes up to `count` elements in the order in which they leave.
    fn pop(self, list: &mut ListValue, count: usize) -> Vec<Blob> {
        let len = list.len();
        let count = count.min(len);
        let (places, elements) = match self {
            End::Left => (0..count, list.range(0..count).cloned().collect()),
            End::Right => {
                let elements = list.range(len - count..len);
                (len - count..len, elements.rev().cloned().collect())
            }
        };
        list.remove_range(places);
        elements
    }
}

async fn push(tx: &mut Tx, args: &[Blob], end: End, only_present: bool) -> Outcome {
    let key = Key::from(&args[0]);
    let found = found!(find::<ListValue>(tx, &key, Intent::Update));
    if only_present && found.is_none() {
        return Ok(Reply::Integer(0));
    }
    let (mut list, expires_at_ms) = to_change(found);
    for element in &args[1..] {
        end.push(&mut list, element.clone());
    }
    let len = list.len();
    put(tx, &key, list, expires_at_ms).await?;
    Ok(Reply::Integer(len as i64))
}

/// LPUSH key element [element ...]
pub async fn lpush(tx: &mut Tx, args: &[Blob]) -> Outcome {
    push(tx, args, End::Left, false).await
}

/// RPUSH key element [element ...]
pub async fn rpush(tx: &mut Tx, args: &[Blob]) -> Outcome {
    push(tx, args, End::Right, false).await
}

/// LPUSHX key element [element ...]
pub async fn lpushx(tx: &mut Tx, args: &[Blob]) -> Outcome {
    push(tx, args, End::Left, true).await
}

/// RPUSHX key element [element ...]
pub async fn rpushx(tx: &mut Tx, args: &[Blob]) -> Outcome {
    push(tx, args, End::Right, true).await
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
    tx.note(|| Note::Named(end.pop_event()));
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

async fn pop_some(tx: &mut Tx, args: &[Blob], end: End, command: &'static str) -> Outcome {
    let key = Key::from(&args[0]);
    let count = match &args[1..] {
        [] => {
            let popped = found!(pop(tx, &key, end, 1));
            let element = popped.and_then(|mut elements| elements.pop());
            return Ok(element.map_or(Reply::Nil, Reply::Bulk));
        }
        [count] => argument!(options::count(count, 0, errors::NOT_POSITIVE)),
        _ => return Ok(errors::wrong_arity_of(command)),
    };
    Ok(found!(pop(tx, &key, end, count)).map_or(Reply::NilArray, array))
}

/// LPOP key [count]
pub async fn lpop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    pop_some(tx, args, End::Left, "lpop").await
}

/// RPOP key [count]
pub async fn rpop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    pop_some(tx, args, End::Right, "rpop").await
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
        tx.note(|| Note::Named(to.push_event()));
        tx.note(|| Note::Wrote { key: to_key, is_present: true, expires: expires_at_ms != 0 });
    } else {
        let (mut other, expires_at_ms) = to_change(destination);
        to.push(&mut other, element.clone());
        tx.note(|| Note::Named(to.push_event()));
        put(tx, &to_key, other, expires_at_ms).await?;
    }
    tx.note(|| Note::Named(from.pop_event()));
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
