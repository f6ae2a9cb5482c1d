//! Runs Lua scripts over an in-memory store, without an engine or a server.
//!
//! `cargo run -p ordo-redis --example script` reads lines from the standard input: a script, or a script, a
//! tab, and its words (the number of keys first), and prints each reply as Redis's client would. `\n` in a
//! script is a line's end.
//!
//! `cargo run --release -p ordo-redis --example script -- bench` prints what scripts of several kinds cost
//! (of one kind, if its name's start is given after `bench`); `bench-suspended` suspends them at every read.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use ordo_redis::register;
use std::any::Any;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use txn::tx::{Read, lend};
use txn::{
    Access, Args, Blob, Call, Entry, Intent, Key, Outcome, Position, Registry, Reply, Request, RequestId,
    ScanPage, ScanRange, Space, Stop, Tx, TxContext,
};

/// The entries, and whether each read is asked for twice, as by an engine that waits for another transaction.
#[derive(Default)]
struct Memory {
    entries: BTreeMap<Key, Entry>,
    suspends: bool,
    resumed: bool,
}

impl Access for Memory {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        if self.suspends {
            self.resumed = !self.resumed;
            if self.resumed {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(Read { entry: self.entries.get(key).cloned(), version: Position::NONE }))
    }
    fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Ok(()))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        match entry {
            Some(entry) => self.entries.insert(key.clone(), entry),
            None => self.entries.remove(key),
        };
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        let mut entries: Vec<_> =
            self.entries.iter().map(|(key, entry)| (key.clone(), entry.clone())).collect();
        entries.retain(|(key, _)| key.space() == range.space && key.hash64() >= range.from_hash);
        entries.sort_by_key(|(key, _)| key.hash64());
        Poll::Ready(Ok(ScanPage { entries, next_hash: None }))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        Poll::Ready(Ok(self.entries.keys().filter(|key| key.space() == Space::User).count() as u64))
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        self.entries.retain(|key, _| key.space() != Space::User);
        Poll::Ready(Ok(()))
    }
    fn doomed(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

struct Session {
    registry: Registry,
    memory: Option<Box<dyn Access>>,
    position: u64,
}

impl Session {
    fn new(suspends: bool) -> Session {
        let mut registry = Registry::new();
        register(&mut registry).expect("the crate's own procedures have different names");
        Session { registry, memory: Some(Box::new(Memory { suspends, ..Memory::default() })), position: 0 }
    }

    fn request(&self, procedure: &str, words: &[&[u8]]) -> Arc<Request> {
        let procedure = self.registry.by_name(procedure).expect("a registered procedure").clone();
        Arc::new(Request::new(
            RequestId::default(),
            procedure,
            words.iter().map(|word| Blob::new(word)).collect::<Args>(),
        ))
    }

    fn run(&mut self, request: &Arc<Request>) -> Outcome {
        self.position += 1;
        let tx = Tx::new(TxContext {
            position: Position(self.position),
            now_ms: 1_700_000_000_000,
            ..TxContext::default()
        });
        let mut future = request.procedure.run(tx, Call::new(request.clone()));
        loop {
            let memory = self.memory.take().expect("given back by every poll");
            let (memory, polled) =
                lend(memory, || future.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            self.memory = Some(memory);
            if let Poll::Ready(outcome) = polled {
                return outcome;
            }
        }
    }
}

fn print(reply: &Reply, indent: usize) {
    let items = |items: &[Reply]| {
        println!("*{}", items.len());
        for item in items {
            print!("{:1$}", "", indent + 2);
            print(item, indent + 2);
        }
    };
    match reply {
        Reply::Nil | Reply::NilArray => println!("nil"),
        Reply::Status(text) => println!("+{text}"),
        Reply::Error(text) => println!("-{text}"),
        Reply::Integer(value) => println!(":{value}"),
        Reply::Double(value) | Reply::Decimal(value) => println!(",{value}"),
        Reply::Boolean(value) => println!("#{value}"),
        Reply::Bulk(bytes) | Reply::BigNumber(bytes) | Reply::Verbatim(_, bytes) => {
            println!("${}", bytes.escape_ascii())
        }
        Reply::Array(list) | Reply::Set(list) | Reply::Push(list) => items(list),
        Reply::Told(told) => print(&told.reply, indent),
        Reply::Map(pairs) | Reply::Pairs(pairs) | Reply::PairMap(pairs) => {
            items(&pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect::<Vec<_>>())
        }
    }
}

fn evaluate(session: &mut Session) {
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("lines of text");
        let mut words: Vec<String> = line.split('\t').map(|word| word.replace("\\n", "\n")).collect();
        if words.len() == 1 {
            words.push("0".to_owned());
        }
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let request = session.request("redis.eval", &words);
        match session.run(&request) {
            Ok(reply) => print(&reply, 0),
            Err(stop) => println!("!{stop}"),
        }
    }
}

/// Scripts whose cost is of interest: a name, a body, and the words after it.
const MEASURED: [(&str, &str, &[&str]); 6] = [
    ("nothing", "return 1", &["0"]),
    ("one GET", "return redis.call('GET', KEYS[1])", &["1", "account:1"]),
    (
        "transfer: 2 GET, 2 SET",
        "local from = tonumber(redis.call('GET', KEYS[1]) or 0)
         local to = tonumber(redis.call('GET', KEYS[2]) or 0)
         redis.call('SET', KEYS[1], from - ARGV[1])
         redis.call('SET', KEYS[2], to + ARGV[1])
         return from",
        &["2", "account:1", "account:2", "1"],
    ),
    (
        "a loop of 1000 additions",
        "local sum = 0 for i = 1, 1000 do sum = sum + i % 7 end redis.call('SET', KEYS[1], sum) return sum",
        &["1", "sum"],
    ),
    (
        "tables and strings",
        "local t = {} for i = 1, 50 do t[#t + 1] = ('%d:%s'):format(i, ARGV[1]) end
         local n = 0 for k, v in pairs(t) do n = n + #v end return n",
        &["0", "word"],
    ),
    (
        "json",
        "local t = cjson.decode(ARGV[1]) t.n = t.n + 1 return cjson.encode(t)",
        &["0", r#"{"n":1,"list":[1,2,3],"s":"x"}"#],
    ),
];

fn bench(session: &mut Session) {
    let only = std::env::args().nth(2).unwrap_or_default();
    for (name, body, words) in MEASURED.into_iter().filter(|(name, ..)| name.starts_with(&only)) {
        let load = session.request("redis.script_load", &[body.as_bytes()]);
        let Ok(Reply::Bulk(digest)) = session.run(&load) else {
            panic!("the script '{name}' does not compile")
        };
        let mut all: Vec<&[u8]> = vec![&digest];
        all.extend(words.iter().map(|word| word.as_bytes()));
        let request = session.request("redis.evalsha", &all);
        const RUNS: u32 = 50_000;
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let start = Instant::now();
            for _ in 0..RUNS {
                session.run(&request).expect("no limit is near");
            }
            best = best.min(start.elapsed().as_secs_f64() / f64::from(RUNS));
        }
        println!("{name:>28}: {:6.2} us", best * 1e6);
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        None => evaluate(&mut Session::new(false)),
        Some("bench") => bench(&mut Session::new(false)),
        Some("bench-suspended") => bench(&mut Session::new(true)),
        Some(other) => {
            eprintln!("unknown argument '{other}': give none, 'bench' or 'bench-suspended'")
        }
    }
}
