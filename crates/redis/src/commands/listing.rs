//! Commands that walk over all keys.
//!
//! A cursor is the upper [`CURSOR_BITS`] of the hash from which the next page starts; 0 means the start and
//! the end. No page but the first starts there, so the two never collide. Keys that are there all the while
//! are listed exactly once, whatever happens to others meanwhile: a stronger promise than Redis's. Keys whose
//! hashes share those bits cannot be told apart by a cursor: they are on one page, whatever COUNT says. By
//! chance that is one key in 2^53 pairs; a client that chooses keys by their hashes gets a page as long as it
//! has made it, and waits for it as long as KEYS would take for as many.

use super::options;
use super::strings::argument;
use crate::chance::Chance;
use crate::work;
use crate::{errors, parse, pattern};
use txn::hash::hash_bytes;
use txn::mutant::{self, Mutant, is_active};
use txn::{Blob, BlobRef, Entry, Key, Outcome, Reply, ScanPage, ScanRange, Space, Stop, Tx};

/// How many keys a walk takes at a time.
const PAGE_KEYS: usize = 1024;

/// As many as a double has: clients that read numbers as doubles read a cursor exactly.
const CURSOR_BITS: u32 = 53;
const CURSOR_SHIFT: u32 = u64::BITS - CURSOR_BITS;

/// The hash from which the page of a cursor starts: the last one for what is no cursor.
fn first_hash(cursor: u64) -> u64 {
    match cursor >> CURSOR_BITS {
        0 => cursor << CURSOR_SHIFT,
        _ => u64::MAX,
    }
}

/// What the page of a cursor has, and the next cursor, from items with their hashes and the hash of the first
/// behind them. What has the next cursor is left to the next page; `None` if that would be all: then more is
/// to be asked for.
fn settled<I>(
    cursor: u64,
    mut items: Vec<I>,
    next_hash: Option<u64>,
    hash: impl Fn(&I) -> u64,
) -> Option<(Vec<I>, Option<u64>)> {
    let next = next_hash.map(|hash| hash >> CURSOR_SHIFT);
    if let Some(next) = next {
        if next == cursor {
            return None;
        }
        items.retain(|item| hash(item) >> CURSOR_SHIFT < next);
    }
    Some((items, next))
}

/// The page of a cursor in a collection, of about so many members, and the next cursor. A collection that
/// is compact in Redis comes whole, whatever the cursor and the limit: clients rely on that.
pub(super) fn cursor_page<'a, P>(
    mut cursor: u64,
    mut limit: usize,
    is_compact: bool,
    page: impl Fn(u64, usize) -> (Vec<(BlobRef<'a>, P)>, Option<u64>),
) -> (Vec<(BlobRef<'a>, P)>, Option<u64>) {
    if is_compact {
        (cursor, limit) = (0, usize::MAX);
    }
    loop {
        let (members, next_hash) = page(first_hash(cursor), limit);
        work::elements(members.len());
        let hash = |(name, _): &(BlobRef<'_>, P)| hash_bytes(name);
        if let Some(page) = settled(cursor, members, next_hash, hash) {
            return page;
        }
        limit = limit.saturating_mul(2);
    }
}

/// The page of a cursor among all keys, of about so many, and the next cursor.
async fn key_page(
    tx: &mut Tx,
    cursor: u64,
    mut limit: usize,
) -> Result<(Vec<(Key, Entry)>, Option<u64>), Stop> {
    loop {
        let ScanPage { entries, next_hash } = page(tx, first_hash(cursor), limit).await?;
        let hash = |(key, _): &(Key, Entry)| key.hash64();
        if let Some(page) = settled(cursor, entries, next_hash, hash) {
            return Ok(page);
        }
        limit = limit.saturating_mul(2);
    }
}

async fn page(tx: &mut Tx, from_hash: u64, limit: usize) -> Result<ScanPage, Stop> {
    work::own_writes();
    let page = tx.scan(ScanRange::of(Space::User, from_hash, limit)).await?;
    work::elements(page.entries.len());
    Ok(page)
}

/// The options of SCAN and HSCAN.
pub(super) struct ScanOptions<'a> {
    pub pattern: Option<&'a Blob>,
    pub type_name: Option<&'a Blob>,
    pub count: usize,
}

impl ScanOptions<'_> {
    pub(super) fn parse(mut words: &[Blob], with_type: bool) -> Result<ScanOptions<'_>, Reply> {
        let mut options = ScanOptions { pattern: None, type_name: None, count: 10 };
        while let [word, value, rest @ ..] = words {
            words = rest;
            if options::is(word, "COUNT") {
                let count = options::integer(value)?;
                options.count =
                    usize::try_from(count).ok().filter(|&count| count > 0).ok_or(errors::SYNTAX)?;
            } else if options::is(word, "MATCH") {
                options.pattern = (value.as_bytes() != b"*").then_some(value);
            } else if with_type && options::is(word, "TYPE") {
                options.type_name = Some(value);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        if words.is_empty() { Ok(options) } else { Err(errors::SYNTAX) }
    }
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| pattern::matches(pattern, name))
    }
}

pub(super) fn cursor(argument: &Blob) -> Result<u64, Reply> {
    parse::wrapping_unsigned(argument).ok_or(errors::INVALID_CURSOR)
}

pub(super) fn cursor_reply(next: Option<u64>, items: Vec<Reply>) -> Reply {
    let cursor = Reply::bulk(itoa::Buffer::new().format(next.unwrap_or(0)));
    Reply::Array(vec![cursor, Reply::Array(items)])
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
pub async fn scan(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let cursor = argument!(cursor(&args[0]));
    let options = argument!(ScanOptions::parse(&args[1..], true));
    let (entries, next) = key_page(tx, cursor, options.count).await?;
    let wanted = |key: &Key, entry: &Entry| {
        let type_fits = options.type_name.is_none_or(|name| options::is(name, entry.value.type_name()));
        type_fits && options.matches(key.as_bytes())
    };
    let names =
        entries.iter().filter(|(key, entry)| wanted(key, entry)).map(|(key, _)| Reply::Bulk(key.to_blob()));
    Ok(cursor_reply(next, names.collect()))
}

/// KEYS pattern
pub async fn keys(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let all = args[0].as_bytes() == b"*";
    let mut names = Vec::new();
    let mut from_hash = Some(0);
    while let Some(hash) = from_hash.filter(|_| !work::is_spent()) {
        let page = page(tx, hash, PAGE_KEYS).await?;
        let wanted = page.entries.iter().filter(|(key, _)| all || pattern::matches(&args[0], key.as_bytes()));
        names.extend(wanted.map(|(key, _)| Reply::Bulk(key.to_blob())));
        from_hash = page.next_hash;
    }
    if is_active(Mutant::UnorderedReply) && !names.is_empty() {
        let by = mutant::whim() % names.len();
        names.rotate_left(by);
    }
    Ok(Reply::Array(names))
}

/// RANDOMKEY: one of so many keys that follow a random hash, the first behind the last, which evens out the
/// distances between hashes. If there are not more, all are as likely.
pub async fn randomkey(tx: &mut Tx, _args: &[Blob]) -> Outcome {
    const CANDIDATES: usize = 64;
    let mut chance = Chance::of(tx);
    let start = chance.bits();
    let mut keys: Vec<Key> = Vec::with_capacity(CANDIDATES);
    let (mut from_hash, mut is_behind_last) = (start, false);
    while keys.len() < CANDIDATES {
        let page = page(tx, from_hash, CANDIDATES - keys.len()).await?;
        let found = page.entries.into_iter().map(|(key, _)| key);
        keys.extend(found.filter(|key| !is_behind_last || key.hash64() < start));
        from_hash = match page.next_hash {
            Some(hash) if !is_behind_last || hash < start => hash,
            None if !is_behind_last => {
                is_behind_last = true;
                0
            }
            _ => break,
        };
    }
    if keys.is_empty() {
        return Ok(Reply::Nil);
    }
    let picked = chance.below(keys.len());
    Ok(Reply::Bulk(keys[picked].to_blob()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_between_cursors_and_have_everything_once() {
        // Names, the hashes that they are said to have, some of which have one cursor.
        let one = 1 << CURSOR_SHIFT;
        let hashes = [3, one - 1, one, one + 1, one + 2, 5 * one, 9 * one + 7, u64::MAX];
        for limit in 1..10 {
            let (mut cursor, mut met) = (0, Vec::new());
            loop {
                let mut asked = limit;
                let (items, next) = loop {
                    let from = hashes.partition_point(|hash| *hash < first_hash(cursor));
                    let end = hashes.len().min(from + asked);
                    let next_hash = hashes.get(end).copied();
                    let items = hashes[from..end].to_vec();
                    match settled(cursor, items, next_hash, |hash| *hash) {
                        Some(page) => break page,
                        None => asked *= 2,
                    }
                };
                met.extend(items);
                match next {
                    None => break,
                    Some(next) => {
                        assert!(next > cursor && next >> CURSOR_BITS == 0);
                        cursor = next;
                    }
                }
            }
            assert_eq!(met, hashes, "with pages of {limit}");
        }
    }
}
