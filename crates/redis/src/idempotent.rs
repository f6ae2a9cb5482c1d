//! ORDO.IDEMPOTENT: a command that may be sent twice and is applied once.
//!
//! A client whose connection breaks does not know whether its last command was applied. If it sent the
//! command as `ORDO.IDEMPOTENT <id> <command ...>`, with an id of its own making, it sends the same words
//! again, through any connection to any node. In one transaction the procedure `redis.idempotent` looks for
//! the *record* of the id. If there is one, its reply is the answer and nothing runs; else the command runs,
//! and its reply (an error, too) becomes the record. A transaction that rolls back leaves no record.
//!
//! A record says which command it is of, by a hash of its words: an id that comes again with another command
//! is a client's mistake, and an error. It lives for [`RECORD_TTL_MS`] of the order's time; the node removes
//! it like anything that has expired.
//!
//! # Where a record lives
//!
//! In the system space, so that no client sees it, and in the slot of the command's first key, so that the
//! command stays where it would run by itself. [`record_key`] makes a name for which that holds whatever the
//! key is.

use crate::arguments::Arguments;
use crate::errors;
use crate::execute::{Caller, Memory, Terms, execute};
use crate::script;
use crate::table::{self, Command, ConnectionCommand, Resolved, Run};
use crate::telling::telling;
use std::sync::Arc;
use txn::codec::{Reader, put_reply, take_reply};
use txn::hash::{hash_bytes, mix};
use txn::key::SLOTS;
use txn::{
    Args, Blob, Call, Entry, Footprint, Key, KeySets, Outcome, Procedure, ProcedureFuture, Reply, Stop, Tx,
    Value,
};

/// How long a reply is kept, in milliseconds of the order's time: a retry must come sooner.
pub const RECORD_TTL_MS: u64 = 60 * 60 * 1000;
/// The longest id, in bytes.
pub const ID_BYTES_MAX: usize = 256;

const NESTED: Reply = Reply::error("ERR ORDO.IDEMPOTENT can not be nested: one id is enough for a command");
const BLOCK: Reply = Reply::error(
    "ERR ORDO.IDEMPOTENT takes one command, not a block: put it around the commands between MULTI and \
     EXEC, or send a script",
);
const ANOTHER_COMMAND: Reply = Reply::error(
    "ERR this id was used for another command within the last hour: a retry must send the same words, and \
     a new command a new id",
);
const UNREADABLE: Reply = Reply::error(
    "ERR the reply that is kept under this id has a form that this version does not know: start the \
     version that wrote it",
);

/// The first byte of a record: one of another form is not taken for this one.
const RECORD_VERSION: u8 = 1;
const NAME_PREFIX: &[u8] = b"idempotent:";

/// The command inside, found and checked.
struct Wrapped<'a> {
    id: &'a [u8],
    /// The command's words, its name first.
    argv: &'a [Blob],
    resolved: Resolved,
}

impl<'a> Wrapped<'a> {
    /// Reads the words after `ORDO.IDEMPOTENT`. The error is the reply.
    fn parse(args: &'a [Blob]) -> Result<Wrapped<'a>, Reply> {
        let [id, argv @ ..] = args else {
            return Err(errors::wrong_arity_of("ordo.idempotent"));
        };
        if !(1..=ID_BYTES_MAX).contains(&id.len()) {
            return Err(Reply::error_owned(format!(
                "ERR the id of ORDO.IDEMPOTENT must have 1 to {ID_BYTES_MAX} bytes, not {}",
                id.len()
            )));
        }
        let resolved = table::resolve(argv).map_err(|error| error.reply(argv, Caller::Block))?;
        match resolved.command.run {
            Run::Idempotent => Err(NESTED),
            Run::Connection(ConnectionCommand::Multi | ConnectionCommand::Exec) => Err(BLOCK),
            Run::Connection(_) | Run::Acl(_) | Run::Past => Err(Reply::error_owned(format!(
                "ERR ORDO.IDEMPOTENT does not take '{}': that is a command of the connection or of the \
                 server, not a transaction; send it by itself",
                resolved.command.name
            ))),
            Run::Data(_) | Run::Script(_) | Run::Pure(_) | Run::Container(_) => {
                Ok(Wrapped { id, argv, resolved })
            }
        }
    }

    fn command(&self) -> &'static Command {
        self.resolved.command
    }

    /// The first of the command's keys, if its words tell one.
    fn first_key(&self) -> Option<&'a Blob> {
        let word = |place: usize| self.argv.get(place).cloned();
        let mut specs = self.command().keys.iter();
        let place = specs.find_map(|spec| spec.places_in(self.argv.len(), word)?.next())?;
        self.argv.get(place)
    }

    fn record_key(&self) -> Key {
        record_key(self.id, self.first_key().map(Key::from).as_ref())
    }

    /// A hash of the command's words, as they are.
    fn hash(&self) -> u64 {
        self.argv.iter().fold(self.argv.len() as u64, |hash, word| mix(hash ^ hash_bytes(word)))
    }

    fn footprint(&self, with_keys: bool) -> Footprint {
        let command = self.command();
        let inner = match command.run {
            Run::Script(script) => {
                let skipped = 1 + usize::from(self.resolved.subplace.is_some());
                script::footprint(script, self.argv.get(skipped..).unwrap_or_default(), with_keys)
            }
            _ if with_keys => command.footprint(&self.argv[1..]),
            _ => command.footprint_without_keys(&self.argv[1..]),
        };
        let keys = inner.keys.filter(|_| with_keys).map(|keys| {
            let mut sets = KeySets::clone(&keys);
            sets.writes.push(self.record_key());
            table::normalize(&mut sets);
            Arc::new(sets)
        });
        Footprint {
            keys,
            // The record is written, whatever the command is.
            read_only: false,
            weight: inner.weight,
        }
    }
}

/// The record of an id, for a command whose first key is given: in that key's slot. Records of commands
/// without keys, or whose words do not tell them, are where the id's own slot is.
///
/// What decides a key's slot may hold braces in any order, so it can't stand between ours. Instead the name's
/// hash tag is two bytes that have the same slot.
pub fn record_key(id: &[u8], first_key: Option<&Key>) -> Key {
    let mut name = NAME_PREFIX.to_vec();
    if let Some(key) = first_key {
        name.push(b'{');
        name.extend_from_slice(&slot_tag(key.slot()));
        name.push(b'}');
    }
    // The separator keeps an id that looks like a tag apart from a tag.
    name.push(b':');
    name.extend_from_slice(id);
    Key::system(&name)
}

/// Two bytes, none of them a closing brace, whose CRC16 gives the slot.
///
/// The CRC of two bytes is their polynomial times x^16, modulo the generator; so it is turned back by
/// dividing by x, 16 times. Four values of the CRC give one slot, so there is a choice.
fn slot_tag(slot: u16) -> [u8; 2] {
    const GENERATOR: u32 = 0x1_1021;
    let bytes_of = |crc: u16| {
        let divided = (0..16)
            .fold(u32::from(crc), |rest, _| (if rest & 1 == 1 { rest ^ GENERATOR } else { rest }) >> 1);
        (divided as u16).to_be_bytes()
    };
    let candidates = (0..4).map(|high| bytes_of((slot % SLOTS) | (high << 14)));
    let mut fit = candidates.filter(|bytes| !bytes.contains(&b'}'));
    // One of four always does: a test goes through all slots.
    fit.next().unwrap_or_default()
}

/// What a call touches, from the words after `ORDO.IDEMPOTENT`: what the command does, and the record, which
/// is written. The error is the reply. Without the keys (`with_keys` false) it is cheap.
pub(crate) fn footprint(args: &[Blob], with_keys: bool) -> Result<Footprint, Reply> {
    Wrapped::parse(args).map(|wrapped| wrapped.footprint(with_keys))
}

/// The command inside: its words, its name first. The error is the reply.
pub(crate) fn inner(args: &[Blob]) -> Result<&[Blob], Reply> {
    Wrapped::parse(args).map(|wrapped| wrapped.argv)
}

/// The procedure `redis.idempotent`: its arguments are the words after `ORDO.IDEMPOTENT`.
pub struct IdempotentProcedure;

impl Procedure for IdempotentProcedure {
    fn name(&self) -> &str {
        "redis.idempotent"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        // What is refused reads and writes nothing.
        footprint(args, true).unwrap_or_else(|_| Footprint::of_keys(Vec::new(), Vec::new()))
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        telling("ordo.idempotent", start(tx, Arguments::Call(call), Terms::default()))
    }
}

/// Starts it in a transaction: its own, or that of a block.
pub(crate) fn start(tx: Tx, arguments: Arguments, terms: Terms) -> ProcedureFuture {
    Box::pin(run(tx, arguments, terms))
}

async fn run(mut tx: Tx, arguments: Arguments, terms: Terms) -> Outcome {
    let wrapped = match Wrapped::parse(&arguments) {
        Ok(wrapped) => wrapped,
        Err(reply) => return Ok(reply),
    };
    let (key, hash) = (wrapped.record_key(), wrapped.hash());
    if let Some(value) = tx.get_for_update(&key).await? {
        return Ok(match read_record(&value) {
            Some((of, reply)) if of == hash => reply,
            Some(_) => ANOTHER_COMMAND,
            None => UNREADABLE,
        });
    }
    let argv: Args = wrapped.argv.iter().cloned().collect();
    let memory = terms.memory;
    let reply = execute(tx.clone(), argv, Caller::Block, terms).await?;
    // Sent again when there is memory, it shall run: so this leaves no record.
    if memory == Memory::Short
        && let Reply::Error(text) = &reply
        && text.starts_with("OOM ")
    {
        return Err(Stop::Abort(text.clone()));
    }
    let mut record = vec![RECORD_VERSION];
    record.extend_from_slice(&hash.to_le_bytes());
    put_reply(&mut record, &reply);
    let entry =
        Entry { value: Value::from(record), expires_at_ms: tx.now_ms().saturating_add(RECORD_TTL_MS) };
    tx.put_entry(&key, entry).await?;
    Ok(reply)
}

/// The hash of a record's command, and its reply.
fn read_record(value: &Value) -> Option<(u64, Reply)> {
    let record = value.as_string()?;
    let mut reader = Reader::new(&record);
    if reader.u8()? != RECORD_VERSION {
        return None;
    }
    let hash = reader.u64()?;
    let reply = take_reply(&mut reader)?;
    reader.is_empty().then_some((hash, reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_slot_has_a_tag_of_its_own_slot() {
        let mut seen = BTreeSet::new();
        for slot in 0..SLOTS {
            let tag = slot_tag(slot);
            assert!(!tag.contains(&b'}') && seen.insert(tag), "{slot}: {tag:?}");
            assert_eq!(Key::new(&tag).slot(), slot);
        }
    }

    /// Keys of braces and other bytes, in all orders, with ids that try to close or to open a tag.
    #[test]
    fn a_record_is_in_the_slot_of_the_first_key() {
        let alphabet = [&b"{"[..], b"}", b"a", b"\0", b"tag", b""];
        let mut names: Vec<Vec<u8>> = vec![Vec::new()];
        for _ in 0..5 {
            let longer = names.iter().flat_map(|name| alphabet.map(|piece| [&name[..], piece].concat()));
            names = longer.collect::<BTreeSet<_>>().into_iter().collect();
        }
        for name in &names {
            for key in [Key::new(name), Key::new(&[&name[..], b"}{x}"].concat())] {
                for id in [&b"i"[..], b"{x}", b"}", b"{", b":"] {
                    let record = record_key(id, Some(&key));
                    assert_eq!(record.slot(), key.slot(), "{key:?} {record:?}");
                    assert_eq!(record.space(), txn::Space::System);
                    assert_ne!(record, record_key(id, None));
                }
            }
        }
    }

    #[test]
    fn records_of_different_ids_have_different_names() {
        let ids = [&b"a"[..], b":a", b"{aa}:a", b"}:a", b"{", b"::a"];
        let keys = [None, Some(Key::from("a")), Some(Key::from("b"))];
        let names: BTreeSet<Key> =
            keys.iter().flat_map(|key| ids.map(|id| record_key(id, key.as_ref()))).collect();
        assert_eq!(names.len(), ids.len() * keys.len());
    }

    #[test]
    fn a_record_that_is_cut_or_of_another_version_is_not_read() {
        let mut record = vec![RECORD_VERSION];
        record.extend_from_slice(&7u64.to_le_bytes());
        put_reply(&mut record, &Reply::OK);
        let read = |bytes: &[u8]| read_record(&Value::from(bytes));
        assert_eq!(read(&record), Some((7, Reply::OK)));
        for len in 0..record.len() {
            assert_eq!(read(&record[..len]), None);
        }
        assert_eq!(read(&[&record[..], b"x"].concat()), None);
        record[0] += 1;
        assert_eq!(read(&record), None);
    }
}
