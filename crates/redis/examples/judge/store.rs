//! A store for the judge's programs: collections that are given, and what a program writes over them, which
//! is forgotten.

use ordo_redis::register;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use txn::tx::{Read, lend};
use txn::{
    Access, Args, Blob, Call, Entry, Intent, Key, Outcome, Position, Registry, Request, RequestId, ScanPage,
    ScanRange, Space, Stop, Tx, TxContext,
};

/// Commands that make the collections: words, of which those with a `#` are there for each number up to
/// `count`.
struct Given {
    count: usize,
    words: &'static [&'static str],
}

/// The names are in the grammar, too.
const GIVEN: [Given; 17] = [
    given(0, &["setrange", "chunks", "300000", "x"]),
    given(0, &["setrange", "string", "300000", "x"]),
    given(0, &["set", "short", "xyxxyyxxxyyyxxxxyyyyxyxyxyxxyyxxyyxyyxxxxyyxxxxyyxy"]),
    given(0, &["set", "short:2", "yxxxyyyxxxyyxyyyxxxyxxxyyyxxyxyxyxyyxyyxxxyyyyxxxyx"]),
    given(2000, &["rpush", "list", "element #"]),
    given(2000, &["sadd", "set", "m#"]),
    given(1000, &["sadd", "set:2", "m#"]),
    given(1000, &["sadd", "set:ints", "#"]),
    given(1500, &["zadd", "zset", "#", "m#"]),
    given(700, &["zadd", "zset:2", "#", "m#"]),
    given(2000, &["hset", "hash", "f#", "#"]),
    given(1000, &["pfadd", "hll", "#"]),
    given(1000, &["pfadd", "hll:2", "-#"]),
    given(1000, &["geoadd", "geo", "0.#", "0.#", "#"]),
    given(1000, &["mset", "k#", "#"]),
    given(
        300,
        &["mset", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa#", "#"],
    ),
    given(500, &["xadd", "stream", "#-1", "f", "v"]),
];

const fn given(count: usize, words: &'static [&'static str]) -> Given {
    Given { count, words }
}

impl Given {
    /// The commands, each with its words.
    fn commands(&self) -> Vec<Vec<String>> {
        let numbered = |number: usize, words: &[&str]| -> Vec<String> {
            words.iter().map(|word| word.replace('#', &number.to_string())).collect()
        };
        let repeated = self.words.iter().position(|word| word.contains('#')).unwrap_or(self.words.len());
        let (fixed, repeated) = self.words.split_at(repeated);
        match self.words[0] {
            "xadd" => (1..=self.count).map(|number| numbered(number, self.words)).collect(),
            _ => {
                let mut words = numbered(0, fixed);
                words.extend((1..=self.count).flat_map(|number| numbered(number, repeated)));
                vec![words]
            }
        }
    }
}

/// Records in the order of a scan.
type Records<V> = BTreeMap<(u64, Key), V>;

struct Overlay {
    given: Arc<Records<Entry>>,
    /// How many of them are the user's.
    given_users: u64,
    written: Records<Option<Entry>>,
    cleared: bool,
}

fn place(key: &Key) -> (u64, Key) {
    (key.hash64(), key.clone())
}

impl Overlay {
    fn shows(&self, key: &Key) -> bool {
        !(self.cleared && key.space() == Space::User)
    }
    /// What a space, and maybe another, has from a hash on, in order.
    fn from(&self, space: Space, hash: u64) -> impl Iterator<Item = (&(u64, Key), &Entry)> {
        let from = (hash, Key::system(b""));
        let mut written = self.written.range(from.clone()..).peekable();
        // As engines do: behind a FLUSHALL, what was there before is not looked at.
        let given = (!(self.cleared && space == Space::User)).then(|| self.given.range(from..));
        let mut given = given.into_iter().flatten().peekable();
        std::iter::from_fn(move || {
            loop {
                let take_written = match (written.peek(), given.peek()) {
                    (Some((new, _)), Some((old, _))) => new <= old,
                    (new, _) => new.is_some(),
                };
                if !take_written {
                    let (place, entry) = given.next()?;
                    if self.shows(&place.1) {
                        return Some((place, entry));
                    }
                } else if let Some((place, entry)) = written.next() {
                    given.next_if(|(old, _)| *old == place);
                    if let Some(entry) = entry {
                        return Some((place, entry));
                    }
                }
            }
        })
    }
}

impl Access for Overlay {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        let place = place(key);
        let entry = match self.written.get(&place) {
            Some(written) => written.clone(),
            None if self.shows(key) => self.given.get(&place).cloned(),
            None => None,
        };
        Poll::Ready(Ok(Read { entry, version: Position::NONE }))
    }
    fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Ok(()))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.written.insert(place(key), entry);
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        let mut page = ScanPage::default();
        for ((hash, key), entry) in self.from(range.space, range.from_hash) {
            if !range.has(key) {
                continue;
            }
            let is_full = page.entries.len() >= range.limit;
            if is_full && page.entries.last().is_some_and(|(last, _)| last.hash64() != *hash) {
                page.next_hash = Some(*hash);
                break;
            }
            page.entries.push((key.clone(), entry.clone()));
        }
        Poll::Ready(Ok(page))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        // As engines do: they know how many there were before, and look at what the transaction wrote.
        let before = if self.cleared { 0 } else { self.given_users };
        let written = self.written.iter().filter(|((_, key), _)| key.space() == Space::User);
        let change: i64 = written
            .map(|(place, entry)| {
                let was = !self.cleared && self.given.contains_key(place);
                i64::from(entry.is_some()) - i64::from(was)
            })
            .sum();
        Poll::Ready(Ok(before.saturating_add_signed(change)))
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        self.written.retain(|(_, key), _| key.space() != Space::User);
        self.cleared = true;
        Poll::Ready(Ok(()))
    }
    fn doomed(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

pub struct Store {
    registry: Registry,
    given: Arc<Records<Entry>>,
    given_users: u64,
}

impl Store {
    /// With the collections.
    pub fn new() -> Store {
        let mut registry = Registry::new();
        register(&mut registry).expect("the crate's own procedures have different names");
        let mut store = Store { registry, given: Arc::default(), given_users: 0 };
        for given in &GIVEN {
            for words in given.commands() {
                store.give(&words);
            }
        }
        for words in [
            &["xgroup|create", "CREATE", "stream", "group", "0"][..],
            &["xreadgroup", "GROUP", "group", "c", "COUNT", "400", "STREAMS", "stream", ">"],
        ] {
            store.give(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        }
        store
    }

    /// Runs a command, and keeps what it wrote.
    fn give(&mut self, words: &[String]) {
        let arguments: Vec<&[u8]> = words[1..].iter().map(|word| word.as_bytes()).collect();
        let (outcome, written) = self.run(&format!("redis.{}", words[0]), &arguments);
        let is_error = !matches!(&outcome, Ok(reply) if !matches!(reply, txn::Reply::Error(_)));
        assert!(!is_error, "{}: {outcome:?}", words[0]);
        let given = Arc::make_mut(&mut self.given);
        for (place, entry) in written {
            if let Some(entry) = entry {
                given.insert(place, entry);
            }
        }
        let users = given.keys().filter(|(_, key)| key.space() == Space::User);
        self.given_users = users.count() as u64;
    }

    /// Runs a script, and forgets what it wrote.
    pub fn eval(&self, body: &[u8]) -> Outcome {
        self.run("redis.eval", &[body, b"0"]).0
    }

    fn run(&self, procedure: &str, words: &[&[u8]]) -> (Outcome, Records<Option<Entry>>) {
        let procedure = self.registry.by_name(procedure).expect("it is registered").clone();
        let words: Args = words.iter().map(|word| Blob::new(word)).collect();
        let request = Arc::new(Request::new(RequestId::default(), procedure, words));
        let tx =
            Tx::new(TxContext { position: Position(1), now_ms: 1_700_000_000_000, ..TxContext::default() });
        let mut access: Box<dyn Access> = Box::new(Overlay {
            given: self.given.clone(),
            given_users: self.given_users,
            written: Records::new(),
            cleared: false,
        });
        let mut future = request.procedure.run(tx, Call::new(request.clone()));
        loop {
            let (back, polled) =
                lend(access, || future.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            access = back;
            if let Poll::Ready(outcome) = polled {
                let overlay = access.into_any().downcast::<Overlay>();
                let overlay = overlay.unwrap_or_else(|_| unreachable!("the access that was lent"));
                return (outcome, overlay.written);
            }
        }
    }
}
