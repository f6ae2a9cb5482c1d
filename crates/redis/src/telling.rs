//! What others are told of commands: published messages, and which keys changed, under Redis's names
//! (keyspace notifications).
//!
//! Nothing is noted unless somebody in this process wants to be told ([`want`]): then every procedure of this
//! crate that begins notes its writes ([`txn::told`]), and its reply brings them as events. Whether that is
//! so never changes a reply or a write.
//!
//! A command's events follow from its name and from what it wrote: most commands write a key and have one
//! event for that. What does not follow (the end of the list that LMOVE takes from, say) the command notes
//! itself ([`Note::Named`]).
//!
//! That a key has expired is told by whoever removes it: the procedure that is for that, or a command that
//! finds it expired and writes it anew.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use txn::fragments::Teller;
use txn::{Event, Key, Note, Outcome, ProcedureFuture, Reply, Told};

/// What a script by itself tells under: what it does is told under its commands' names.
pub(crate) const SCRIPT: &str = "eval";

/// How many in this process want to be told.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// As long as it lives, procedures that begin tell what they do.
#[derive(Debug)]
pub struct Wanted(());

/// Has procedures that begin from now on tell what they do.
pub fn want() -> Wanted {
    WANTED.fetch_add(1, Ordering::SeqCst);
    Wanted(())
}

impl Drop for Wanted {
    fn drop(&mut self) {
        WANTED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A procedure whose reply brings what it did, if anybody wants to know.
#[inline]
pub(crate) fn telling(name: &'static str, future: ProcedureFuture) -> ProcedureFuture {
    match WANTED.load(Ordering::Relaxed) {
        0 => future,
        _ => Box::pin(Telling { future, notes: vec![Note::Began(name)] }),
    }
}

/// What tells of a command that is executed fragment by fragment, if anybody wants to know.
pub(crate) fn teller(name: &'static str) -> Option<Teller> {
    match WANTED.load(Ordering::Relaxed) {
        0 => None,
        _ => Some(Teller { began: name, tell: told }),
    }
}

struct Telling {
    future: ProcedureFuture,
    notes: Vec<Note>,
}

impl Future for Telling {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let notes = std::mem::take(&mut self.notes);
        let (notes, polled) = txn::told::noting(notes, || self.future.as_mut().poll(context));
        match polled {
            Poll::Pending => {
                self.notes = notes;
                Poll::Pending
            }
            Poll::Ready(outcome) => Poll::Ready(outcome.map(|reply| told(reply, notes))),
        }
    }
}

/// The reply, with what the notes come to.
fn told(reply: Reply, notes: Vec<Note>) -> Reply {
    let mut events = Vec::new();
    let reads_nothing = notes.first() == Some(&Note::Began(SCRIPT)) && !notes.contains(&Note::Read);
    if reads_nothing {
        events.push(Event::ReadNothing);
    }
    let mut command = "";
    let mut named = None;
    let mut expired = Vec::new();
    for note in notes {
        match note {
            Note::Began(name) => (command, named) = (name, None),
            Note::Named(name) => named = Some(name),
            Note::Read => {}
            Note::Expired(key) => expired.push(key),
            Note::Cleared => events.push(Event::Cleared),
            Note::Published(message) => events.push(Event::Message(message)),
            Note::Wrote { key, is_present, expires } => {
                let before = expired.len();
                expired.retain(|other| *other != key);
                if expired.len() < before && is_present {
                    events.push(Event::Key { key: key.clone(), class: b'x', name: "expired".into() });
                }
                of_write(command, named.take(), key, is_present, expires, &mut events);
            }
        }
    }
    match events.is_empty() {
        true => reply,
        false => Reply::Told(Box::new(Told { reply, events })),
    }
}

/// What a command's write of a key comes to.
fn of_write(
    command: &'static str,
    named: Option<Cow<'static, str>>,
    key: Key,
    is_present: bool,
    expires: bool,
    events: &mut Vec<Event>,
) {
    let mut push = |class: u8, name: Cow<'static, str>| {
        events.push(Event::Key { key: key.clone(), class, name });
    };
    let (class, kind, name) = of_command(command);
    let is_named = named.is_some();
    let name = named.unwrap_or(name);
    match (kind, is_present) {
        (Kind::Takes, false) => {
            push(class, name);
            push(b'g', "del".into());
        }
        (Kind::Renames, false) => push(b'g', "rename_from".into()),
        (Kind::Evicts, false) => push(b'e', "evicted".into()),
        (Kind::Expires, false) => push(b'x', "expired".into()),
        (_, false) => push(b'g', "del".into()),
        // One that gives its event a name has no time to live to tell of.
        (Kind::Sets, true) if expires && !is_named => {
            push(class, name);
            push(b'g', "expire".into());
        }
        (Kind::Times, true) if expires => push(b'g', "expire".into()),
        (Kind::Times, true) => push(b'g', "persist".into()),
        (_, true) => push(class, name),
    }
}

/// What the writes of a command mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It puts something there. If the result is empty, the key is deleted.
    Puts,
    /// It takes something away, and the key goes with the last of it.
    Takes,
    /// It replaces the value, perhaps with a time to live.
    Sets,
    /// It changes the time to live.
    Times,
    /// It moves the whole value.
    Renames,
    /// What has expired is removed.
    Expires,
    /// What there is no room for is removed.
    Evicts,
}

/// The letter of the class, what writes mean, and the event's name.
fn of_command(command: &'static str) -> (u8, Kind, Cow<'static, str>) {
    use Kind::{Evicts, Expires, Puts, Renames, Sets, Takes, Times};
    let (class, kind, name) = match command {
        "set" | "setex" | "psetex" | "setnx" | "getset" => (b'$', Sets, "set"),
        "mset" | "msetnx" | "bitop" => (b'$', Puts, "set"),
        "getex" | "expire" | "pexpire" | "expireat" | "pexpireat" | "persist" => (b'g', Times, "expire"),
        "incr" | "decr" | "incrby" | "decrby" => (b'$', Puts, "incrby"),
        "incrbyfloat" => (b'$', Puts, "incrbyfloat"),
        "append" | "setrange" | "setbit" => (b'$', Puts, command),
        "bitfield" => (b'$', Puts, "setbit"),
        "pfadd" | "pfmerge" | "pfcount" => (b'$', Puts, "pfadd"),
        "lpush" | "lpushx" => (b'l', Puts, "lpush"),
        "rpush" | "rpushx" => (b'l', Puts, "rpush"),
        "linsert" | "lset" => (b'l', Puts, command),
        "lpop" | "blpop" => (b'l', Takes, "lpop"),
        "rpop" | "brpop" => (b'l', Takes, "rpop"),
        "lrem" | "ltrim" | "lmpop" | "blmpop" | "lmove" | "blmove" | "rpoplpush" | "brpoplpush" => {
            (b'l', Takes, command)
        }
        "sadd" => (b's', Puts, "sadd"),
        "srem" | "smove" => (b's', Takes, "srem"),
        "spop" => (b's', Takes, "spop"),
        "sinterstore" | "sunionstore" | "sdiffstore" => (b's', Puts, command),
        "zadd" | "geoadd" => (b'z', Puts, "zadd"),
        "zincrby" => (b'z', Puts, "zincr"),
        "zrem" => (b'z', Takes, "zrem"),
        "zremrangebyscore" => (b'z', Takes, "zremrangebyscore"),
        "zremrangebyrank" => (b'z', Takes, "zremrangebyrank"),
        "zremrangebylex" => (b'z', Takes, "zremrangebylex"),
        "zpopmin" | "bzpopmin" => (b'z', Takes, "zpopmin"),
        "zpopmax" | "bzpopmax" => (b'z', Takes, "zpopmax"),
        "zmpop" | "bzmpop" => (b'z', Takes, command),
        "zunionstore" | "zinterstore" | "zdiffstore" | "zrangestore" | "geosearchstore" => {
            (b'z', Puts, command)
        }
        "georadius" | "georadiusbymember" => (b'z', Puts, "georadiusstore"),
        "hset" | "hmset" | "hsetnx" => (b'h', Puts, "hset"),
        "hincrby" | "hincrbyfloat" => (b'h', Puts, command),
        "hdel" => (b'h', Takes, "hdel"),
        "xadd" | "xdel" | "xtrim" | "xsetid" => (b't', Puts, command),
        // A change that Redis has no event for.
        "xreadgroup" | "xack" | "xclaim" | "xautoclaim" => (b't', Puts, ""),
        "rename" | "renamenx" => (b'g', Renames, "rename_to"),
        "copy" => (b'g', Puts, "copy_to"),
        "restore" => (b'g', Puts, "restore"),
        "sort" => (b'l', Puts, "sortstore"),
        "redis.expire-due" => (b'x', Expires, ""),
        "redis.evict" => (b'e', Evicts, ""),
        other => {
            let name = match other.strip_prefix("xgroup|") {
                Some(sub) => Cow::Owned(format!("xgroup-{sub}")),
                None => Cow::Borrowed(""),
            };
            return (b't', Puts, name);
        }
    };
    (class, kind, Cow::Borrowed(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{COMMANDS, Flags};

    /// Nobody who waits is woken by what has no name.
    #[test]
    fn only_what_brings_nobody_anything_has_no_name() {
        let writes = COMMANDS.iter().filter(|command| command.is(Flags::WRITE));
        let nameless = writes.filter(|command| of_command(command.name).2.is_empty());
        let mut names: Vec<&str> = nameless.map(|command| command.name).collect();
        names.sort_unstable();
        // They remove whole keys, run what has a name, or change nothing that is waited for.
        let removes = ["del", "flushall", "flushdb", "getdel", "unlink"];
        let (runs, changes) = (["ordo.idempotent"], ["pfdebug"]);
        let groups = ["xack", "xautoclaim", "xclaim", "xreadgroup"];
        let mut expected = [&removes[..], &runs, &changes, &groups].concat();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    fn names(command: &'static str, writes: &[(&str, bool, bool)]) -> Vec<String> {
        let mut notes = vec![Note::Began(command)];
        notes.extend(writes.iter().map(|&(key, is_present, expires)| Note::Wrote {
            key: Key::from(key),
            is_present,
            expires,
        }));
        let Reply::Told(told) = told(Reply::OK, notes) else {
            return Vec::new();
        };
        let name = |event: &Event| match event {
            Event::Key { key, class, name } => {
                format!("{}{name} {}", *class as char, String::from_utf8_lossy(key.as_bytes()))
            }
            other => format!("{other:?}"),
        };
        told.events.iter().map(name).collect()
    }

    #[test]
    fn events_have_the_names_that_redis_gives_them() {
        for (command, writes, expected) in [
            ("set", &[("a", true, false)][..], &["$set a"][..]),
            ("set", &[("a", true, true)], &["$set a", "gexpire a"]),
            ("lpop", &[("a", true, false)], &["llpop a"]),
            ("lpop", &[("a", false, false)], &["llpop a", "gdel a"]),
            ("rename", &[("a", false, false), ("b", true, false)], &["grename_from a", "grename_to b"]),
            ("expire", &[("a", true, true)], &["gexpire a"]),
            ("expire", &[("a", false, false)], &["gdel a"]),
            ("persist", &[("a", true, false)], &["gpersist a"]),
            ("sinterstore", &[("a", false, false)], &["gdel a"]),
            ("decrby", &[("a", true, false)], &["$incrby a"]),
            ("spop", &[("a", true, false)], &["sspop a"]),
            ("smove", &[("a", false, false), ("b", true, false)], &["ssrem a", "gdel a", "ssrem b"]),
            ("xgroup|create", &[("a", true, false)], &["txgroup-create a"]),
            ("redis.expire-due", &[("a", false, false)], &["xexpired a"]),
            ("redis.evict", &[("a", false, false)], &["eevicted a"]),
            ("get", &[], &[]),
        ] {
            assert_eq!(names(command, writes), expected, "{command}");
        }
    }

    #[test]
    fn who_rewrites_an_expired_key_tells_that_it_expired() {
        let key = || Key::from("a");
        let wrote = |is_present| Note::Wrote { key: key(), is_present, expires: false };
        let names = |notes: &[Note]| match told(Reply::OK, notes.to_vec()) {
            Reply::Told(told) => {
                let name = |event: &Event| match event {
                    Event::Key { class, name, .. } => format!("{}{name}", *class as char),
                    other => format!("{other:?}"),
                };
                told.events.iter().map(name).collect()
            }
            _ => Vec::new(),
        };
        let expired = || Note::Expired(key());
        let append = Note::Began("append");
        // Read twice, it expired once.
        let notes = [append.clone(), expired(), expired(), wrote(true), wrote(true)];
        assert_eq!(names(&notes), ["xexpired", "$append", "$append"]);
        // Whoever only sees it leaves telling to whoever removes it.
        assert_eq!(names(&[append, expired()]), Vec::<String>::new());
        let removal = Note::Began("redis.expire-due");
        assert_eq!(names(&[removal, expired(), wrote(false)]), ["xexpired"]);
    }

    #[test]
    fn a_name_that_a_command_gives_is_for_one_write() {
        let wrote = |key: &str| Note::Wrote { key: Key::from(key), is_present: true, expires: false };
        let notes = vec![
            Note::Began("lmove"),
            Note::Named("lpush".into()),
            wrote("b"),
            Note::Named("rpop".into()),
            wrote("a"),
        ];
        let Reply::Told(told) = told(Reply::OK, notes) else {
            panic!("nothing was told");
        };
        let names: Vec<&str> = told
            .events
            .iter()
            .map(|event| match event {
                Event::Key { name, .. } => name.as_ref(),
                _ => "",
            })
            .collect();
        assert_eq!(names, ["lpush", "rpop"]);
    }
}
