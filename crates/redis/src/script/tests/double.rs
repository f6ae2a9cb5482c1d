//! An in-memory stand-in for an engine: one transaction at a time, which it can suspend and doom.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use txn::hash::mix;
use txn::tx::{Read, lend};
use txn::{
    Access, Args, Blob, Call, Entry, Intent, Key, Outcome, Position, Registry, Reply, Request, RequestId,
    ScanPage, ScanRange, Space, Stop, Tx, TxContext,
};

/// How a double disturbs the transactions that it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbance {
    /// Suspends at every so many operations.
    pub suspend_every: Option<u64>,
    /// Dooms incarnations at random, from this seed.
    pub doom_seed: Option<u64>,
    /// Lets a transaction go on that asks for it.
    pub overdraws: bool,
}

/// The access of one incarnation: writes are kept apart until it ends.
struct Incarnation {
    entries: Arc<BTreeMap<Key, Entry>>,
    written: BTreeMap<Key, Option<Entry>>,
    cleared: bool,
    disturbance: Disturbance,
    operations: u64,
    /// The operation that is asked for again after a suspension.
    resumed: bool,
    doomed: bool,
    chance: u64,
    /// Looks at the flag before it is up (for tests of long computations).
    looks_left: std::sync::atomic::AtomicU64,
}

impl Incarnation {
    fn operate(&mut self) -> Poll<Result<(), Stop>> {
        if self.doomed {
            return Poll::Ready(Err(Stop::Restart));
        }
        if self.resumed {
            self.resumed = false;
            return Poll::Ready(Ok(()));
        }
        self.operations += 1;
        if self.disturbance.doom_seed.is_some() {
            self.chance = mix(self.chance);
            if self.chance.is_multiple_of(7) {
                self.doomed = true;
                return Poll::Ready(Err(Stop::Restart));
            }
        }
        if self.disturbance.suspend_every.is_some_and(|every| self.operations.is_multiple_of(every)) {
            self.resumed = true;
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn entry(&self, key: &Key) -> Option<Entry> {
        match self.written.get(key) {
            Some(written) => written.clone(),
            None if self.cleared && key.space() == Space::User => None,
            None => self.entries.get(key).cloned(),
        }
    }

    fn state(&self) -> BTreeMap<Key, Entry> {
        let mut state = BTreeMap::clone(&self.entries);
        if self.cleared {
            state.retain(|key, _| key.space() != Space::User);
        }
        for (key, entry) in &self.written {
            match entry {
                Some(entry) => state.insert(key.clone(), entry.clone()),
                None => state.remove(key),
            };
        }
        state
    }
}

macro_rules! operate {
    ($self:ident) => {
        match $self.operate() {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(stop)) => return Poll::Ready(Err(stop)),
            Poll::Pending => return Poll::Pending,
        }
    };
}

impl Access for Incarnation {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        operate!(self);
        Poll::Ready(Ok(Read { entry: self.entry(key), version: Position::NONE }))
    }
    fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
        self.operate()
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.written.insert(key.clone(), entry);
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        operate!(self);
        let mut entries: Vec<_> = self.state().into_iter().collect();
        entries.retain(|(key, _)| key.space() == range.space && key.hash64() >= range.from_hash);
        entries.sort_by_key(|(key, _)| key.hash64());
        let next_hash = entries.get(range.limit).map(|(key, _)| key.hash64());
        entries.truncate(range.limit);
        Poll::Ready(Ok(ScanPage { entries, next_hash }))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        operate!(self);
        Poll::Ready(Ok(self.state().keys().filter(|key| key.space() == Space::User).count() as u64))
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        operate!(self);
        self.cleared = true;
        self.written.retain(|key, _| key.space() != Space::User);
        Poll::Ready(Ok(()))
    }
    fn doomed(&self) -> bool {
        use std::sync::atomic::Ordering;
        self.doomed
            || self
                .looks_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_err()
    }
    fn overdraw(&mut self) -> bool {
        self.disturbance.overdraws && self.resumed
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The double: entries, and what happened.
pub struct Double {
    registry: Registry,
    pub entries: Arc<BTreeMap<Key, Entry>>,
    pub disturbance: Disturbance,
    position: u64,
    pub suspensions: u64,
    pub restarts: u64,
    /// Restarts of one request after which it runs undisturbed.
    patience: u64,
    /// After how many looks at its flag an incarnation finds itself doomed.
    pub looks_before_doom: u64,
    /// Whether to give up at the first restart.
    pub show_restarts: bool,
}

impl Double {
    pub fn new(disturbance: Disturbance) -> Double {
        super::set_up_limits();
        let mut registry = Registry::new();
        crate::register(&mut registry).expect("the crate's own procedures have different names");
        Double {
            registry,
            entries: Arc::default(),
            disturbance,
            position: 0,
            suspensions: 0,
            restarts: 0,
            patience: 15,
            looks_before_doom: u64::MAX,
            show_restarts: false,
        }
    }

    pub fn request(&self, procedure: &str, words: &[&[u8]]) -> Arc<Request> {
        let procedure = self.registry.by_name(procedure).expect("a registered procedure").clone();
        let args: Args = words.iter().map(|word| Blob::new(word)).collect();
        Arc::new(Request::new(RequestId::default(), procedure, args))
    }

    /// Runs a request to its end, as an engine would.
    pub fn run(&mut self, procedure: &str, words: &[&[u8]]) -> Outcome {
        let request = self.request(procedure, words);
        self.position += 1;
        let tx = Tx::new(TxContext {
            position: Position(self.position),
            now_ms: 1_700_000_000_123,
            ..TxContext::default()
        });
        let mut chance = self.disturbance.doom_seed.map_or(0, |seed| mix(seed ^ self.position));
        for incarnation in 0.. {
            let mut disturbance = self.disturbance;
            if incarnation >= self.patience {
                disturbance.doom_seed = None;
            }
            let mut access: Box<dyn Access> = Box::new(Incarnation {
                entries: self.entries.clone(),
                written: BTreeMap::new(),
                cleared: false,
                disturbance,
                operations: 0,
                resumed: false,
                doomed: false,
                chance,
                looks_left: self.looks_before_doom.into(),
            });
            let mut future = request.procedure.run(tx.clone(), Call::new(request.clone()));
            let outcome = loop {
                let (back, polled) =
                    lend(access, || future.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                access = back;
                match polled {
                    Poll::Ready(outcome) => break outcome,
                    Poll::Pending => self.suspensions += 1,
                }
            };
            let ended = access.into_any().downcast::<Incarnation>().expect("the access that was lent");
            // As engines do: the flag counts, whatever the procedure returned.
            if ended.doomed || outcome == Err(Stop::Restart) {
                assert_eq!(outcome, Err(Stop::Restart), "a doomed run must not pretend to have ended");
                if self.show_restarts {
                    return outcome;
                }
                chance = ended.chance;
                self.restarts += 1;
                continue;
            }
            if outcome.is_ok() {
                self.entries = Arc::new(ended.state());
            }
            return outcome;
        }
        unreachable!("the last incarnation is undisturbed")
    }

    /// Runs EVAL without keys.
    pub fn eval(&mut self, body: &str) -> Outcome {
        self.run("redis.eval", &[body.as_bytes(), b"0"])
    }

    /// The reply of EVAL without keys, as text.
    pub fn shown(&mut self, body: &str) -> String {
        let outcome = self.eval(body);
        show(&outcome)
    }
}

/// An outcome as text, as a client of RESP2 sees it: a line for a plain reply, more for a nested one.
pub fn show(outcome: &Outcome) -> String {
    match outcome {
        Ok(reply) => show_reply(reply, 0),
        Err(stop) => format!("!{stop}"),
    }
}

fn show_reply(reply: &Reply, indent: usize) -> String {
    let items = |items: &[Reply]| {
        let mut text = format!("*{}", items.len());
        for item in items {
            text += &format!("\n{:width$}{}", "", show_reply(item, indent + 2), width = indent + 2);
        }
        text
    };
    match reply {
        Reply::Nil | Reply::NilArray => "nil".to_owned(),
        Reply::Status(text) => format!("+{text}"),
        Reply::Error(text) => format!("-{text}"),
        Reply::Integer(value) => format!(":{value}"),
        Reply::Double(value) | Reply::Decimal(value) => format!(",{value}"),
        Reply::Boolean(value) => format!("#{value}"),
        Reply::Bulk(bytes) | Reply::BigNumber(bytes) | Reply::Verbatim(_, bytes) => {
            format!("${}", bytes.escape_ascii())
        }
        Reply::Array(list) | Reply::Push(list) | Reply::Set(list) => items(list),
        Reply::Map(pairs) | Reply::Pairs(pairs) | Reply::PairMap(pairs) => {
            let flat: Vec<Reply> =
                pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
            items(&flat)
        }
        Reply::Told(told) => show_reply(&told.reply, indent),
    }
}

/// Runs a request with a suspension at every operation, and every poll on a thread of its own.
pub fn run_on_many_threads(double: &Double, request: &Arc<Request>) -> Outcome {
    let mut access: Box<dyn Access> = Box::new(Incarnation {
        entries: double.entries.clone(),
        written: BTreeMap::new(),
        cleared: false,
        disturbance: Disturbance { suspend_every: Some(1), doom_seed: None, ..Disturbance::default() },
        operations: 0,
        resumed: false,
        doomed: false,
        chance: 0,
        looks_left: u64::MAX.into(),
    });
    let tx = Tx::new(TxContext { position: Position(1), now_ms: 1_700_000_000_123, ..TxContext::default() });
    let mut future = request.procedure.run(tx, Call::new(request.clone()));
    loop {
        let (back, polled) = std::thread::scope(|scope| {
            let poll = scope
                .spawn(|| lend(access, || future.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
            poll.join().expect("a poll does not panic")
        });
        access = back;
        if let Poll::Ready(outcome) = polled {
            return outcome;
        }
    }
}
