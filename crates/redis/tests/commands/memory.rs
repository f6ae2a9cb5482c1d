//! A store of one thread that answers everything at once: commands' own behaviour, without an engine.

use ordo_redis::acl::{Acting, ActingProcedure, Deed, Done, User};
use ordo_redis::telling::want;
use ordo_redis::{Action, CommandTable, Memory as Admitted};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use txn::fragments;
use txn::tx::{Access, Read, lend};
use txn::{
    Args, Call, Entry, Fragment, Fragments, Intent, Key, Outcome, Position, Procedure, Reply, Request,
    RequestId, ScanPage, ScanRange, Space, Stop, Tx, TxContext,
};

type Record = (Position, Option<Entry>);

/// The store and its clock. A command in fragments is executed as a whole and in fragments, and must do the
/// same both times; so must one that reads one record, with and without a future.
#[derive(Default)]
pub struct Memory {
    records: BTreeMap<Key, Record>,
    position: Position,
    pub now_ms: u64,
    /// Every how many operations one is answered late, to see that procedures can be parked anywhere. 0:
    /// never.
    pub late: u32,
}

struct Running {
    memory: Memory,
    read_only: bool,
    operations: u32,
}

impl Running {
    fn late(&mut self) -> bool {
        self.operations += 1;
        self.memory.late > 0 && self.operations.is_multiple_of(self.memory.late)
    }
}

impl Access for Running {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        if self.late() {
            return Poll::Pending;
        }
        let (version, entry) = self.memory.records.get(key).cloned().unwrap_or_default();
        Poll::Ready(Ok(Read { entry, version }))
    }
    fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
        if self.late() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        assert!(!self.read_only, "a read-only request wrote {key:?}");
        self.memory.records.insert(key.clone(), (self.memory.position, entry));
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        if self.late() {
            return Poll::Pending;
        }
        let mut found: Vec<(Key, Entry)> = (self.memory.records.iter())
            .filter(|(key, _)| key.space() == range.space && key.hash64() >= range.from_hash)
            .filter_map(|(key, (_, entry))| Some((key.clone(), entry.clone()?)))
            .collect();
        found.sort_by_key(|(key, _)| key.hash64());
        let next_hash = found.get(range.limit).map(|(key, _)| key.hash64());
        found.truncate(range.limit);
        Poll::Ready(Ok(ScanPage { entries: found, next_hash }))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        let live = |(key, (_, entry)): &(&Key, &Record)| key.space() == Space::User && entry.is_some();
        Poll::Ready(Ok(self.memory.records.iter().filter(live).count() as u64))
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        assert!(!self.read_only, "a read-only request cleared the store");
        for (key, record) in &mut self.memory.records {
            if key.space() == Space::User && record.1.is_some() {
                *record = (self.memory.position, None);
            }
        }
        Poll::Ready(Ok(()))
    }
    fn doomed(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Memory {
    /// The position of a key's last write.
    pub fn version_of(&self, name: &str) -> Position {
        self.records[&Key::from(name)].0
    }
    /// What a key holds.
    pub fn value_of(&self, name: &str) -> Option<txn::Value> {
        let (_, entry) = self.records.get(&Key::from(name))?;
        entry.as_ref().map(|entry| entry.value.clone())
    }
    pub fn new() -> Memory {
        Memory { now_ms: 1_795_000_000_123, ..Memory::default() }
    }

    /// Runs a command as a connection would, without its own commands.
    pub fn run(&mut self, argv: Args) -> Reply {
        match CommandTable::new().prepare(argv.clone()).map(|prepared| prepared.action) {
            Err(error) => error,
            Ok(Action::Reply(reply)) => reply,
            Ok(Action::Transaction { procedure, args, footprint }) => {
                let exact = procedure.footprint(&args);
                assert_eq!((exact.read_only, exact.weight), (footprint.read_only, footprint.weight));
                self.call(procedure, args).expect("commands don't roll back")
            }
            Ok(Action::Acl { .. }) => {
                let acting = Acting {
                    user: None,
                    default: Arc::new(User::default_user(None)),
                    all_channels: false,
                    deed: Deed::Command(argv, Admitted::Ample),
                };
                let reply = self.call(Arc::new(ActingProcedure), acting.to_args());
                Done::from_reply(reply.expect("commands don't roll back")).reply
            }
            Ok(Action::Connection { command, .. }) => panic!("{command:?} is not for transactions"),
        }
    }

    /// Runs a procedure as a transaction.
    pub fn call(&mut self, procedure: Arc<dyn Procedure>, args: Args) -> Outcome {
        self.position = self.position.next();
        let context = TxContext { position: self.position, now_ms: self.now_ms, ..TxContext::default() };
        let request = Arc::new(Request::new(RequestId::default(), procedure, args));
        let _wanted = want();
        let apart = fragments::apart(&request).map(|fragments| self.execute_apart(&request, &fragments));
        let read = request.procedure.one_read(&request.args).map(|(key, operation)| {
            let entry = self.records.get(&key).and_then(|(_, entry)| entry.as_ref());
            operation.read(entry.filter(|entry| !entry.expired(self.now_ms)), self.now_ms)
        });
        let read_only = request.footprint.read_only;
        let mut future = request.procedure.run(Tx::new(context), Call::new(request.clone()));
        let mut access: Box<dyn Access> =
            Box::new(Running { memory: std::mem::take(self), read_only, operations: 0 });
        loop {
            let (back, polled) =
                lend(access, || future.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            access = back;
            if let Poll::Ready(outcome) = polled {
                *self = access.into_any().downcast::<Running>().expect("what was lent").memory;
                if let Some(reply) = read {
                    assert_eq!(outcome, Ok(reply), "{request:?} as a read of one record, and as a procedure");
                }
                if let Some((reply, records)) = apart {
                    assert_eq!(outcome, Ok(reply), "{request:?} in fragments, and as a whole");
                    for (key, record) in records {
                        assert_eq!(self.records.get(&key), record.as_ref(), "{key:?} after {request:?}");
                    }
                }
                return outcome.map(|reply| match reply {
                    Reply::Told(told) => told.reply,
                    reply => reply,
                });
            }
        }
    }

    /// What the request's fragments do by themselves, the last one first: the reply, with what is told of it,
    /// and what their records have afterwards.
    fn execute_apart(&self, request: &Request, fragments: &Fragments) -> (Reply, Vec<(Key, Option<Record>)>) {
        let mut values = Vec::new();
        let mut noted = Vec::new();
        let mut records = Vec::new();
        for (place, Fragment { key, .. }) in fragments.list().iter().enumerate().rev() {
            let record = self.records.get(key);
            let entry = record.and_then(|(_, entry)| entry.as_ref());
            let mut notes = Vec::new();
            let done = fragments.execute_apart(request, place, entry, &[], self.now_ms, &mut notes);
            let done = done.expect("no command aborts");
            let written = done.write.map(|entry| (self.position, entry));
            records.push((key.clone(), written.or_else(|| record.cloned())));
            values.push(done.value);
            noted.push((place as u16, notes));
        }
        values.reverse();
        noted.reverse();
        (fragments.reply(&request.args, values.into(), noted), records)
    }
}
