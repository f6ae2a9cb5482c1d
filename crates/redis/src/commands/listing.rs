//! Commands that walk over all keys.
//!
//! A cursor is the hash from which the next page starts; 0 means the start and the end. No page but the first starts at
//! hash 0, so the two never collide. Keys that are there all the while are listed exactly once, whatever happens to
//! others meanwhile: a stronger promise than Redis's.

use super::options;
use super::strings::argument;
use crate::chance::Chance;
use crate::work;
use crate::{errors, parse, pattern};
use txn::mutant::{self, Mutant, is_active};
use txn::{Blob, Entry, Key, Outcome, Reply, ScanPage, ScanRange, Space, Stop, Tx};

/// How many keys a walk takes at a time.
const PAGE_KEYS: usize = 1024;

async fn page(tx: &mut Tx, from_hash: u64, limit: usize) -> Result<ScanPage, Stop> {
    let page = tx
        .scan(ScanRange::of(Space::User, from_hash, limit))
        .await?;
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
        let mut options = ScanOptions {
            pattern: None,
            type_name: None,
            count: 10,
        };
        while let [word, value, rest @ ..] = words {
            words = rest;
            if options::is(word, "COUNT") {
                let count = options::integer(value)?;
                options.count = usize::try_from(count)
                    .ok()
                    .filter(|&count| count > 0)
                    .ok_or(errors::SYNTAX)?;
            } else if options::is(word, "MATCH") {
                options.pattern = (value.as_bytes() != b"*").then_some(value);
            } else if with_type && options::is(word, "TYPE") {
                options.type_name = Some(value);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        if words.is_empty() {
            Ok(options)
        } else {
            Err(errors::SYNTAX)
        }
    }
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| pattern::matches(pattern, name))
    }
}

pub(super) fn cursor(argument: &Blob) -> Result<u64, Reply> {
    parse::unsigned(argument).ok_or(errors::INVALID_CURSOR)
}

pub(super) fn cursor_reply(next_hash: Option<u64>, items: Vec<Reply>) -> Reply {
    let cursor = Reply::bulk(itoa::Buffer::new().format(next_hash.unwrap_or(0)));
    Reply::Array(vec![cursor, Reply::Array(items)])
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
pub async fn scan(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let cursor = argument!(cursor(&args[0]));
    let options = argument!(ScanOptions::parse(&args[1..], true));
    let page = page(tx, cursor, options.count).await?;
    let wanted = |key: &Key, entry: &Entry| {
        let type_fits = options
            .type_name
            .is_none_or(|name| options::is(name, entry.value.type_name()));
        type_fits && options.matches(key.as_bytes())
    };
    let names = page
        .entries
        .iter()
        .filter(|(key, entry)| wanted(key, entry))
        .map(|(key, _)| Reply::Bulk(key.to_blob()));
    Ok(cursor_reply(page.next_hash, names.collect()))
}

/// KEYS pattern
pub async fn keys(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let all = args[0].as_bytes() == b"*";
    let mut names = Vec::new();
    let mut from_hash = Some(0);
    while let Some(hash) = from_hash {
        let page = page(tx, hash, PAGE_KEYS).await?;
        let wanted = page
            .entries
            .iter()
            .filter(|(key, _)| all || pattern::matches(&args[0], key.as_bytes()));
        names.extend(wanted.map(|(key, _)| Reply::Bulk(key.to_blob())));
        from_hash = page.next_hash;
    }
    if is_active(Mutant::UnorderedReply) && !names.is_empty() {
        let by = mutant::whim() % names.len();
        names.rotate_left(by);
    }
    Ok(Reply::Array(names))
}

/// RANDOMKEY: one of the keys that follow a random hash, which evens out the distances between hashes.
pub async fn randomkey(tx: &mut Tx, _args: &[Blob]) -> Outcome {
    const CANDIDATES: usize = 32;
    let mut chance = Chance::of(tx);
    let mut from_hash = Some(chance.bits());
    let mut wrapped = false;
    loop {
        let hash = match from_hash {
            Some(hash) => hash,
            None if wrapped => return Ok(Reply::Nil),
            None => {
                wrapped = true;
                0
            }
        };
        let page = page(tx, hash, CANDIDATES).await?;
        if !page.entries.is_empty() {
            let (key, _) = &page.entries[chance.below(page.entries.len())];
            return Ok(Reply::Bulk(key.to_blob()));
        }
        from_hash = page.next_hash;
    }
}
