//! Commands that wait for something: what a connection needs to know to wait for it.
//!
//! Nothing waits inside a transaction. A connection tries the command as it is; if there is nothing, it waits
//! until one of the keys is written, and tries again. Who waits longest for a key is to be served first, so a
//! connection tries only those keys for which nobody else was there before it ([`Wait::attempt`]). (Reading a
//! stream takes nothing from others: all who wait try. What is new for a consumer group is taken: its
//! consumers wait behind each other, and not behind those of other groups.)
//!
//! Who waits already is not disturbed by a key that becomes something else, as in Redis. So all attempts but
//! the first are the procedure `redis.waiting` ([`RetryProcedure`]), which leaves such keys out, and writes
//! nothing unless it delivers something: what an attempt writes has others try. The first hears what is wrong
//! with any of its keys, also with those for which others wait: then it is the procedure
//! `redis.waiting-behind` ([`BehindProcedure`]).

use crate::commands::blocking;
use crate::commands::streams::{self, read::Question};
use crate::errors;
use crate::execute::{Caller, Terms, execute};
use crate::parse;
use crate::table;
use crate::telling::telling;
use std::ops::Range;
use txn::value::StreamId;
use txn::{Args, Blob, Call, Footprint, Intent, Key, Outcome, Procedure, ProcedureFuture, Reply, Tx, Value};

const NOT_A_FLOAT: Reply = Reply::error("ERR timeout is not a float or out of range");
const OUT_OF_RANGE: Reply = Reply::error("ERR timeout is out of range");

/// A timeout in seconds as milliseconds; `None`: for ever.
pub fn timeout(word: &Blob) -> Result<Option<u64>, Reply> {
    let seconds = parse::float(word).ok_or(NOT_A_FLOAT)?;
    let ms = (seconds * 1000.0).ceil();
    match ms {
        ms if ms < 0.0 => Err(errors::NEGATIVE_TIMEOUT),
        ms if !ms.is_finite() || ms > i64::MAX as f64 => Err(OUT_OF_RANGE),
        ms => Ok((ms > 0.0).then_some(ms as u64)),
    }
}

/// What a command takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Lists,
    SortedSets,
    Streams,
    /// Streams, by a consumer group: these have to be there.
    Groups,
}

/// How one who waits for a key stands to others who do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It only reads.
    Reads,
    /// It takes what it finds, so others wait behind it.
    Takes,
    /// It takes what is new for this consumer group, so others of the group wait behind it.
    TakesFor(Blob),
}

/// How a command waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    argv: Args,
    from: From,
    /// Where the keys stand that it waits for.
    keys: Range<usize>,
    /// Where the number of keys stands, if there is one.
    counted: Option<usize>,
    /// For how long; `None`: for ever.
    pub timeout_ms: Option<u64>,
    /// How it stands to others who wait.
    pub manner: Manner,
    /// The places of those ids that stand for the ends of streams as they are now (`$`).
    ends: Vec<usize>,
}

impl Wait {
    /// How the command `argv` (its name first) waits; `None` if it does not. An error is one that the command
    /// itself replies.
    pub fn of(argv: &Args) -> Option<Wait> {
        let name = table::resolve(argv).ok()?.command.name;
        let from = match name {
            "xread" => return Wait::of_streams(argv, false),
            "xreadgroup" => return Wait::of_streams(argv, true),
            "blpop" | "brpop" | "blmove" | "brpoplpush" | "blmpop" => From::Lists,
            "bzpopmin" | "bzpopmax" | "bzmpop" => From::SortedSets,
            _ => return None,
        };
        let (keys, timeout_ms) = blocking::waits_for(name, argv).ok()?;
        Some(Wait {
            argv: argv.clone(),
            from,
            keys,
            counted: matches!(name, "blmpop" | "bzmpop").then_some(2),
            timeout_ms,
            manner: Manner::Takes,
            ends: Vec::new(),
        })
    }

    fn of_streams(argv: &Args, in_group: bool) -> Option<Wait> {
        let question = Question::parse(&argv[1..], in_group).ok()?;
        let timeout_ms = question.block_ms?;
        // What a consumer has pending is there, or is not.
        if in_group && question.ids.iter().any(|id| id.as_bytes() != b">") {
            return None;
        }
        let count = question.keys.len();
        let ids = argv.len() - count..argv.len();
        let is_end = |at: &usize| !in_group && argv[*at].as_bytes() == b"$";
        Some(Wait {
            argv: argv.clone(),
            from: match in_group {
                true => From::Groups,
                false => From::Streams,
            },
            keys: ids.start - count..ids.start,
            counted: None,
            timeout_ms: (timeout_ms > 0).then_some(timeout_ms),
            manner: match question.group {
                Some((group, _)) => Manner::TakesFor(group.clone()),
                None => Manner::Reads,
            },
            ends: ids.filter(is_end).collect(),
        })
    }

    /// The command's words.
    pub fn argv(&self) -> &Args {
        &self.argv
    }

    /// The consumer group that reads, if one does.
    fn group(&self) -> Option<&Blob> {
        match &self.manner {
            Manner::TakesFor(group) => Some(group),
            Manner::Reads | Manner::Takes => None,
        }
    }

    /// The keys that it waits for, in the order in which it tries them.
    pub fn keys(&self) -> &[Blob] {
        &self.argv[self.keys.clone()]
    }

    /// The keys of the streams whose present ends must be known before it waits: see [`Wait::ends_are`].
    pub fn ends(&self) -> Vec<Blob> {
        let offset = self.keys.len();
        self.ends.iter().map(|at| self.argv[at - offset].clone()).collect()
    }

    /// The ends of the streams [`Wait::ends`].
    pub fn ends_are(&mut self, ids: &[Blob]) {
        for (at, id) in std::mem::take(&mut self.ends).into_iter().zip(ids) {
            self.argv.0[at] = id.clone();
        }
    }

    /// The command for some of its keys. `None` if there are none.
    pub fn attempt(&self, mut may_try: impl FnMut(&Blob) -> bool) -> Option<Args> {
        if self.manner == Manner::Reads {
            return Some(self.argv.clone());
        }
        let keys: Vec<Blob> = self.keys().iter().filter(|&key| may_try(key)).cloned().collect();
        if keys.is_empty() {
            return None;
        }
        let mut argv: Vec<Blob> = self.argv[..self.keys.start].to_vec();
        if let Some(at) = self.counted {
            argv[at] = Blob::from(keys.len().to_string().as_bytes());
        }
        let left_out = self.keys.len() - keys.len();
        argv.extend(keys);
        // Each stream has an id, and by a group they are all alike.
        let skipped = if self.from == From::Groups { left_out } else { 0 };
        argv.extend_from_slice(&self.argv[self.keys.end + skipped..]);
        Some(Args(argv.into_iter().collect()))
    }

    /// The first attempt where somebody is there before it for some keys: the arguments of
    /// [`BehindProcedure`]. `None` if nobody is.
    pub fn behind(&self, mut may_take: impl FnMut(&Blob) -> bool) -> Option<Args> {
        if self.manner != Manner::Takes {
            return None;
        }
        let free: Vec<Blob> = (self.keys().iter().filter(|&key| may_take(key))).cloned().collect();
        if free.len() == self.keys.len() {
            return None;
        }
        let count = Blob::from(free.len().to_string().as_bytes());
        let words = std::iter::once(count).chain(free);
        Some(Args(words.chain(self.argv.iter().cloned()).collect()))
    }

    /// Whether a value is of the kind that it takes from.
    fn fits(&self, value: &Value) -> bool {
        matches!(
            (self.from, value),
            (From::Lists, Value::List(_))
                | (From::SortedSets, Value::SortedSet(_))
                | (From::Streams | From::Groups, Value::Stream(_))
        )
    }

    /// The reply when the time is up, also of those that reply one element: in a block, where they do not
    /// wait, these reply [`Reply::Nil`].
    pub const NOTHING: Reply = Reply::NilArray;

    /// Whether a reply says that there is nothing.
    pub fn found_nothing(reply: &Reply) -> bool {
        matches!(reply, Reply::Nil | Reply::NilArray)
    }
}

/// The procedure `redis.waiting`: its arguments are the words of a command that waits, its name first.
pub struct RetryProcedure;

impl Procedure for RetryProcedure {
    fn name(&self) -> &str {
        "redis.waiting"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        match table::resolve(args) {
            Ok(resolved) => resolved.command.footprint(&args[1..]),
            Err(_) => Footprint::of_keys(Vec::new(), Vec::new()),
        }
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        let argv: Args = call.iter().cloned().collect();
        telling("redis.waiting", Box::pin(retry(tx, argv)))
    }
}

async fn retry(mut tx: Tx, argv: Args) -> Outcome {
    let Some(wait) = Wait::of(&argv) else {
        return Ok(errors::SYNTAX);
    };
    let intent = match wait.manner {
        Manner::Takes => Intent::Update,
        // What is there for a group is hardly ever there for the second who looks.
        Manner::Reads | Manner::TakesFor(_) => Intent::Read,
    };
    let mut fitting: Vec<&Blob> = Vec::with_capacity(wait.keys().len());
    for name in wait.keys() {
        let read = tx.read(&Key::from(name), intent).await?;
        let value = read.entry.map(|entry| entry.value);
        // What XREADGROUP says if it comes anew: of a group that went while it waited, too.
        let gone = || streams::no_group_to_read(name, wait.group().unwrap_or(&Blob::EMPTY));
        let fits = match (wait.from, &value) {
            (From::Groups, Some(Value::Stream(stream))) => {
                let group = wait.group().and_then(|name| stream.group(name));
                let Some(group) = group else {
                    return Ok(gone());
                };
                let first = group.last_id.next();
                first.is_some_and(|first| stream.range(first..=StreamId::MAX).next().is_some())
            }
            (From::Groups, None) => return Ok(gone()),
            (From::Groups, Some(_)) => return Ok(errors::WRONG_TYPE),
            (_, None) => true,
            (_, Some(value)) if wait.fits(value) => true,
            (From::Streams, Some(_)) => return Ok(Wait::NOTHING),
            _ => false,
        };
        if fits {
            fitting.push(name);
        }
    }
    match wait.attempt(|name| fitting.contains(&name)) {
        Some(argv) => execute(tx, argv, Caller::Block, Terms::default()).await,
        None => Ok(Wait::NOTHING),
    }
}

/// The procedure `redis.waiting-behind`: the first attempt of a command that takes, where others wait for
/// some of its keys. Its arguments: how many keys it may take from, these keys, and the words of the command.
pub struct BehindProcedure;

impl BehindProcedure {
    /// The keys that it may take from, and the words of the command.
    fn parts(words: Vec<Blob>) -> Option<(Vec<Blob>, Args)> {
        let mut words = words.into_iter();
        let count = parse::unsigned(&words.next()?)?;
        let free: Vec<Blob> = words.by_ref().take(usize::try_from(count).ok()?).collect();
        let argv = Args(words.collect());
        (!argv.is_empty()).then_some((free, argv))
    }
}

impl Procedure for BehindProcedure {
    fn name(&self) -> &str {
        "redis.waiting-behind"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        let parts = BehindProcedure::parts(args.iter().cloned().collect());
        parts.map_or_else(
            || Footprint::of_keys(Vec::new(), Vec::new()),
            |(_, argv)| RetryProcedure.footprint(&argv),
        )
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        let parts = BehindProcedure::parts(call.iter().cloned().collect());
        telling("redis.waiting", Box::pin(first(tx, parts)))
    }
}

async fn first(mut tx: Tx, parts: Option<(Vec<Blob>, Args)>) -> Outcome {
    let Some((free, wait)) = parts.and_then(|(free, argv)| Some((free, Wait::of(&argv)?))) else {
        return Ok(errors::SYNTAX);
    };
    for name in wait.keys() {
        let read = tx.read(&Key::from(name), Intent::Update).await?;
        let Some(entry) = read.entry else {
            continue;
        };
        if !wait.fits(&entry.value) {
            return Ok(errors::WRONG_TYPE);
        }
        if free.contains(name)
            && let Some(argv) = wait.attempt(|other| other == name)
        {
            return execute(tx, argv, Caller::Block, Terms::default()).await;
        }
    }
    Ok(Wait::NOTHING)
}

/// Whether an event of this name may bring what somebody waits for. What only takes away does not.
pub fn may_serve(event: &str) -> bool {
    !matches!(
        event,
        "lpop"
            | "rpop"
            | "lrem"
            | "ltrim"
            | "zrem"
            | "zpopmin"
            | "zpopmax"
            | "expire"
            | "persist"
            | "xtrim"
            | "xdel"
            | "lset"
            // XREADGROUP and XACK, XCLAIM and XAUTOCLAIM: nothing is new by them.
            | ""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(line: &str) -> Option<Wait> {
        let argv: Vec<Blob> = line.split(' ').map(Blob::from).collect();
        Wait::of(&Args(argv.into_iter().collect()))
    }

    fn line(argv: &Args) -> String {
        let words: Vec<_> = argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
        words.join(" ")
    }

    #[test]
    fn a_command_says_for_which_keys_it_waits_and_for_how_long() {
        for (words, keys, timeout_ms) in [
            ("BLPOP a b 0", &["a", "b"][..], None),
            ("BRPOP a 0.25", &["a"], Some(250)),
            ("BLMOVE a b LEFT RIGHT 1", &["a"], Some(1000)),
            ("BLMPOP 2 2 a b LEFT COUNT 3", &["a", "b"], Some(2000)),
            ("BZMPOP 0 1 a MIN", &["a"], None),
            ("XREAD COUNT 1 BLOCK 5 STREAMS a b 0-0 $", &["a", "b"], Some(5)),
        ] {
            let wait = wait(words).expect(words);
            let found: Vec<&[u8]> = wait.keys().iter().map(|key| key.as_bytes()).collect();
            let expected: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
            assert_eq!((found, wait.timeout_ms), (expected, timeout_ms), "{words}");
        }
        for words in [
            "LPOP a",
            "BLPOP a x",
            "BLPOP a -1",
            "XREAD STREAMS a 0",
            "XREADGROUP GROUP g c BLOCK 0 STREAMS a 0",
            "BLMPOP 0 3 a LEFT",
            "BLMPOP 0 1 a FRONT",
            "BLMPOP 0 1 a LEFT COUNT 0",
            "BZMPOP 0 1 a LEFT",
            "BLMOVE a b LEFT UP 0",
            "BLMPOP 0 1 a LEFT COUNT 1 COUNT 1",
            "XREAD BLOCK 0 STREAMS a b 0",
        ] {
            assert_eq!(wait(words), None, "{words}");
        }
    }

    #[test]
    fn a_group_may_have_the_name_of_an_option() {
        for group in ["STREAMS", "BLOCK", "GROUP"] {
            let words = format!("XREADGROUP GROUP {group} c BLOCK 7 STREAMS a >");
            let wait = wait(&words).expect("it waits");
            assert_eq!(wait.keys(), [Blob::from("a")], "{words}");
            assert_eq!(wait.timeout_ms, Some(7), "{words}");
            assert_eq!(wait.manner, Manner::TakesFor(Blob::from(group)));
        }
    }

    #[test]
    fn it_tries_those_keys_for_which_nobody_was_there_before() {
        let tries = |words: &str| {
            let argv = wait(words).expect(words).attempt(|key| key.as_bytes() != b"b");
            argv.as_ref().map(line)
        };
        assert_eq!(tries("BLPOP a b c 0").as_deref(), Some("BLPOP a c 0"));
        assert_eq!(tries("BLMPOP 0 2 a b LEFT").as_deref(), Some("BLMPOP 0 1 a LEFT"));
        assert_eq!(tries("BLPOP b 0"), None);
        assert_eq!(
            tries("XREADGROUP GROUP g c BLOCK 0 STREAMS a b c > > >").as_deref(),
            Some("XREADGROUP GROUP g c BLOCK 0 STREAMS a c > >")
        );
        assert_eq!(
            tries("XREAD BLOCK 0 STREAMS a b 1 2").as_deref(),
            Some("XREAD BLOCK 0 STREAMS a b 1 2"),
            "who only reads need not stand in a line"
        );
    }

    #[test]
    fn the_ends_of_streams_are_those_of_the_first_look() {
        let mut wait = wait("XREAD BLOCK 0 STREAMS a b 1 $").expect("it waits");
        assert_eq!(wait.ends(), [Blob::from("b")]);
        wait.ends_are(&[Blob::from("7-1")]);
        assert!(wait.ends().is_empty());
        let argv = wait.attempt(|_| true).expect("it tries");
        assert_eq!(line(&argv), "XREAD BLOCK 0 STREAMS a b 1 7-1");
    }
}
