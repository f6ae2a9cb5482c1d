//! What clients of a node have under way: sans-IO, under the lock of [`super::Core`].
//!
//! A connection's requests run one at a time, in the order in which they were sent. A request runs as a
//! [`CertifiedCall`]. Between ORDO.BEGIN and its end, the connection's requests run inside an
//! [`OpenTransaction`] instead.
//!
//! ```text
//!            lent a session            a thread runs it           the site is asked
//!  queued ──────────────────► Out ◄──────────────────────────► Waits
//!                              │ └── after a conflict ──► Pauses ──┐
//!                              ▼                                   │ in time
//!                           answered                 Out ◄─────────┘
//! ```
//!
//! Procedures run without the lock: a [`Running`] belongs to the thread that runs it
//! ([`Running::go_on`]), and comes back with what it wishes for ([`Gateway::grant`]).

#[cfg(test)]
mod tests;

use super::sessions::{Lent, Sessions};
use super::site_calls::{SiteCall, SiteCommands};
use crate::cluster::HeldOpen;
use certify::hierarchy::Tree;
use certify::pcsi::{Demand, Written};
use certify::{Answer as SiteAnswer, CallEnd, CertifiedCall, Conflict, OpenTransaction, Progress, Wish};
use redis_surface::commands::transactions;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use txn::hash::{FixedMap, mix};
use txn::key::partition_of_slot;
use txn::{Key, Outcome, PartitionId, Position, Reply, Request, RequestId, SessionId, Stop};

/// A pause after a conflict is this long for each tick that a call wishes for.
const PAUSE_MS: u64 = 1;
/// A call that has conflicted with others in all its attempts begins again after at most this, the first
/// time, and later after at most eight times as long.
const ROUND_PAUSE_MS: u64 = 8;

/// How long clients wait, and how much they may keep.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// A request may take this long.
    pub request_ms: u64,
    /// What a client may do that holds a transaction open.
    pub held_open: HeldOpen,
}

/// A request that runs.
pub struct Running {
    connection: SessionId,
    request: Arc<Request>,
    lent: Lent,
    work: Work,
    since_ms: u64,
    /// Whether the site has been asked to commit writes.
    may_have_effect: bool,
    /// The validator that decides.
    decider: PartitionId,
    /// How often it has conflicted with others in all attempts.
    rounds: u32,
}

enum Work {
    Call(CertifiedCall),
    Open(OpenTransaction),
    Site(SiteCall),
}

/// How a request goes on.
pub enum Next {
    /// It begins.
    Begin {
        /// What the clock shows.
        now_ms: u64,
    },
    /// The open transaction is to be committed.
    Commit,
    /// The site has answered.
    Answered(SiteAnswer),
}

/// A request that a thread is to run, and how.
pub type Ready = (Box<Running>, Next);

impl Running {
    fn new(request: Arc<Request>, lent: Lent, work: Work, since_ms: u64) -> Running {
        let connection = request.id.session;
        let decider = lent.home();
        Running { connection, request, lent, work, since_ms, may_have_effect: false, decider, rounds: 0 }
    }

    /// Runs the procedure as far as it goes.
    pub fn go_on(&mut self, next: Next) -> Progress {
        match (&mut self.work, next) {
            (Work::Call(_), Next::Begin { .. } | Next::Commit) => Progress::Wish(Wish::Begin),
            (Work::Call(call), Next::Answered(answer)) => Progress::Wish(call.answered(answer)),
            (Work::Open(open), Next::Begin { now_ms }) => open.run(self.request.clone(), now_ms),
            (Work::Open(open), Next::Commit) => open.commit(),
            (Work::Open(open), Next::Answered(answer)) => open.answered(answer),
            (Work::Site(_), Next::Begin { .. } | Next::Commit) => Progress::Wish(Wish::Begin),
            (Work::Site(call), Next::Answered(answer)) => Progress::Wish(Wish::End(call.answered(answer))),
        }
    }

    fn id(&self) -> RequestId {
        match &self.work {
            Work::Call(call) => call.id(),
            Work::Open(open) => open.id(),
            Work::Site(_) => self.lent.id(),
        }
    }
}

/// What a connection does now.
enum Present {
    Idle,
    /// The first request of its queue waits for a session, since this time.
    Queued(u64),
    /// A thread runs this request of it.
    Out(RequestId),
    /// The site is asked.
    Waits(Box<Running>),
    /// It begins again at this time.
    Pauses(Box<Running>, u64),
}

/// A transaction between ORDO.BEGIN and its end.
enum Begun {
    /// Nothing has run yet.
    Fresh {
        is_read_only: bool,
    },
    Open(OpenTransaction, Lent),
    /// It has no effect, and its client has not ended it yet: this is what each command is answered.
    Failed(String),
}

struct Connection {
    queue: VecDeque<Arc<Request>>,
    present: Present,
    begun: Option<Begun>,
    /// When its open transaction was used last.
    used_ms: u64,
}

/// How a transaction runs.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// It writes nothing.
    pub is_read_only: bool,
    /// Its client holds it open, and is shown what it reads before it ends.
    pub is_held_open: bool,
}

/// What the gateway asks of the site.
pub trait Asked {
    /// The last decided entry of a leaf.
    fn position(&self, home: PartitionId) -> Position;
    /// Has a transaction begin.
    fn begin(&mut self, id: RequestId, how: Manner);
    /// Asks for a look, or for the commit.
    fn ask(&mut self, id: RequestId, wish: Wish);
    /// Nobody waits for a transaction any more.
    fn forget(&mut self, id: RequestId);
    /// Asks for a token of what the site has. It may leave when the answer has come.
    fn give_token(&mut self, id: RequestId) -> Option<Vec<u8>>;
    /// Has the site's next transactions begin behind a token.
    fn follow_token(&mut self, id: RequestId, token: &[u8]);
    /// The key with which a session's next transaction would begin, because the last one could not read it.
    fn take_first_read(&mut self, session: SessionId) -> Option<Key>;
    /// A session's next transaction begins with a read of this key.
    fn read_first(&mut self, session: SessionId, key: Key);
    /// Waits until other sites have what a connection has written.
    fn wait_for_sites(&mut self, id: RequestId, wanted: (Written, Demand), timeout_ms: u64);
    /// The writes of a transaction that has committed, where sites commit alone.
    fn written(&self, id: RequestId) -> Option<Written>;
}

/// Counts of what has ended since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests, and open transactions, that took effect or only read.
    pub committed: u64,
    /// Those of them that a validator decided on, by its number.
    pub decided_by: Vec<u64>,
    /// Attempts that conflicted with others, by what they met: a key, the age of a snapshot, timestamps.
    pub conflicts: [u64; 3],
    /// Requests that were given up because they took too long.
    pub given_up: u64,
    /// Open transactions that their clients had forgotten.
    pub forgotten: u64,
}

/// What ended within the last seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// [`Counts::committed`] a second.
    pub committed: f64,
    /// [`Counts::decided_by`] a second.
    pub decided_by: Vec<f64>,
}

/// Counts are remembered after each time of this length, and the last ones of them.
const SAMPLE_MS: u64 = 1_000;
const SAMPLES_MAX: usize = 10;

/// How errors call what a protocol depends on.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Whose answers commits wait for.
    pub asked: &'static str,
    /// Why a transaction has had no effect, and what to do.
    pub unavailable: &'static str,
    /// Whether a write of what all nodes have may need another region ([`txn::Tx::spares_system_writes`]).
    pub spares_system_writes: bool,
}

/// All connections of a node.
pub struct Gateway {
    sessions: Sessions,
    patience: Patience,
    words: Words,
    tree: Tree,
    connections: FixedMap<SessionId, Connection>,
    /// The connections whose requests the site is asked for, by certified session.
    asked: BTreeMap<SessionId, SessionId>,
    /// The connections that pause, by the time when they go on.
    pauses: BTreeSet<(u64, SessionId)>,
    /// The connections that are in a transaction.
    in_transaction: BTreeSet<SessionId>,
    /// For the commands of sites that commit alone.
    site_commands: Option<SiteCommands>,
    /// The writes of each connection, where sites commit alone.
    written: FixedMap<SessionId, Written>,
    /// The key that the next open transaction of a connection reads first, because its last one could not.
    first_reads: FixedMap<SessionId, Key>,
    /// Outcomes for clients.
    pub answers: Vec<(RequestId, Outcome)>,
    /// Requests that some thread is to run.
    pub ready: Vec<Ready>,
    /// See [`Counts`].
    pub counts: Counts,
    /// The counts of the last seconds, with their times, the oldest first.
    samples: VecDeque<(u64, Counts)>,
}

impl Gateway {
    /// A gateway that nobody uses yet.
    pub fn new(
        sessions: Sessions,
        tree: Tree,
        patience: Patience,
        words: Words,
        site_commands: Option<SiteCommands>,
    ) -> Gateway {
        let decided_by = vec![0; usize::from(tree.groups())];
        Gateway {
            sessions,
            patience,
            words,
            tree,
            connections: FixedMap::default(),
            asked: BTreeMap::new(),
            pauses: BTreeSet::new(),
            in_transaction: BTreeSet::new(),
            site_commands,
            written: FixedMap::default(),
            first_reads: FixedMap::default(),
            answers: Vec::new(),
            ready: Vec::new(),
            counts: Counts { decided_by, ..Counts::default() },
            samples: VecDeque::new(),
        }
    }

    /// Remembers the counts for [`Gateway::rates`], if that was not done lately.
    pub fn sample(&mut self, now_ms: u64) {
        if self.samples.back().is_none_or(|&(at_ms, _)| now_ms >= at_ms + SAMPLE_MS) {
            if self.samples.len() == SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back((now_ms, self.counts.clone()));
        }
    }

    /// What has ended a second, over the last seconds.
    pub fn rates(&self, now_ms: u64) -> Rates {
        let Some((since_ms, before)) = self.samples.front() else { return Rates::default() };
        let seconds = now_ms.saturating_sub(*since_ms).max(1) as f64 / 1_000.0;
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let decided = self.counts.decided_by.iter().zip(&before.decided_by);
        Rates {
            committed: rate(self.counts.committed, before.committed),
            decided_by: decided.map(|(&now, &before)| rate(now, before)).collect(),
        }
    }

    /// When the next pause is over.
    pub fn next_pause_ms(&self) -> Option<u64> {
        self.pauses.first().map(|&(due_ms, _)| due_ms)
    }

    /// How many connections are in a transaction.
    pub fn open_transactions(&self) -> usize {
        self.in_transaction.len()
    }

    /// Whether a connection has nothing under way.
    pub fn is_at_rest(&self, connection: SessionId) -> bool {
        !self.connections.contains_key(&connection)
    }

    /// A client's request comes.
    pub fn take(&mut self, request: Arc<Request>, now_ms: u64, site: &mut impl Asked) {
        let id = request.id.session;
        let connection = self.connections.entry(id).or_insert_with(|| Connection {
            queue: VecDeque::new(),
            present: Present::Idle,
            begun: None,
            used_ms: now_ms,
        });
        connection.queue.push_back(request);
        if matches!(connection.present, Present::Idle) {
            self.advance(id, now_ms, site);
        }
    }

    /// Lets a connection's next request begin, if it has one and nothing is under way.
    fn advance(&mut self, id: SessionId, now_ms: u64, site: &mut impl Asked) {
        while let Some(connection) = self.connections.get_mut(&id)
            && matches!(connection.present, Present::Idle)
            && let Some(request) = connection.queue.pop_front()
        {
            connection.used_ms = now_ms;
            if self.control(id, &request, now_ms, site) {
                continue;
            }
            self.begin(id, request, now_ms, site);
        }
        let is_over = |connection: &Connection| {
            connection.queue.is_empty()
                && connection.begun.is_none()
                && matches!(connection.present, Present::Idle)
        };
        if self.connections.get(&id).is_some_and(is_over) {
            self.connections.remove(&id);
        }
    }

    /// Runs ORDO.BEGIN, ORDO.COMMIT and ORDO.ROLLBACK, and refuses commands of sites that make no sense.
    /// False if the request is none of them.
    fn control(&mut self, id: SessionId, request: &Arc<Request>, now_ms: u64, site: &mut impl Asked) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let reply = match (request.procedure.name(), connection.begun.take()) {
            (transactions::BEGIN, None) => match transactions::begins_read_only(&request.args) {
                Some(is_read_only) => {
                    connection.begun = Some(Begun::Fresh { is_read_only });
                    self.in_transaction.insert(id);
                    Reply::OK
                }
                None => redis_surface::errors::SYNTAX,
            },
            (transactions::BEGIN, begun) => {
                connection.begun = begun;
                Reply::error("ERR ORDO.BEGIN calls can not be nested")
            }
            (transactions::COMMIT, None) => Reply::error("ERR ORDO.COMMIT without ORDO.BEGIN"),
            (transactions::ROLLBACK, None) => Reply::error("ERR ORDO.ROLLBACK without ORDO.BEGIN"),
            (transactions::COMMIT, Some(Begun::Open(open, lent))) => {
                let running = Running::new(request.clone(), lent, Work::Open(open), now_ms);
                connection.present = Present::Out(request.id);
                self.ready.push((Box::new(running), Next::Commit));
                return true;
            }
            (transactions::COMMIT, Some(Begun::Failed(text))) => {
                self.in_transaction.remove(&id);
                Reply::error_owned(text)
            }
            (transactions::COMMIT, Some(Begun::Fresh { .. })) => {
                self.in_transaction.remove(&id);
                Reply::OK
            }
            (transactions::ROLLBACK, Some(begun)) => {
                self.in_transaction.remove(&id);
                self.drop_begun(begun, now_ms, site);
                Reply::OK
            }
            (_, begun) => {
                let commands = self.site_commands.as_ref();
                let call = commands.and_then(|commands| commands.call(request, begun.is_some()));
                connection.begun = begun;
                let Some(Err(refusal)) = call else { return false };
                refusal
            }
        };
        self.answers.push((request.id, Ok(reply)));
        true
    }

    /// Lets a request begin, as soon as there is a session for it.
    fn begin(&mut self, id: SessionId, request: Arc<Request>, now_ms: u64, site: &mut impl Asked) {
        let home = self.home_of(&request);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (lent, work) = match connection.begun.take() {
            Some(Begun::Failed(text)) => {
                self.answers.push((request.id, Ok(Reply::error_owned(text.clone()))));
                connection.begun = Some(Begun::Failed(text));
                return;
            }
            Some(Begun::Open(open, lent)) => (lent, Work::Open(open)),
            begun => {
                let Some(lent) = self.sessions.lend(home, site.position(home), id) else {
                    connection.begun = begun;
                    connection.queue.push_front(request);
                    connection.present = Present::Queued(now_ms);
                    return;
                };
                let work = match begun {
                    Some(Begun::Fresh { is_read_only }) => {
                        if let Some(key) = self.first_reads.remove(&id) {
                            site.read_first(lent.id().session, key);
                        }
                        let keys_max = self.patience.held_open.keys_max;
                        let first = current(lent.id(), is_read_only);
                        let open = OpenTransaction::new(first, is_read_only, keys_max);
                        Work::Open(open.sparing_system_writes(self.words.spares_system_writes))
                    }
                    _ => match self.site_commands.as_ref().and_then(|all| all.call(&request, false)) {
                        Some(Ok(call)) => Work::Site(call),
                        _ => {
                            let call = call(&request, lent.id(), now_ms);
                            Work::Call(call.sparing_system_writes(self.words.spares_system_writes))
                        }
                    },
                };
                (lent, work)
            }
        };
        connection.present = Present::Out(request.id);
        let running = Running::new(request, lent, work, now_ms);
        self.ready.push((Box::new(running), Next::Begin { now_ms }));
    }

    /// A leaf that a request uses, or any one if it may use all.
    fn home_of(&self, request: &Request) -> PartitionId {
        let (used, partitions) = (&request.route.partitions, self.tree.partitions());
        match used.first() {
            Some(&first) if used.len() < usize::from(partitions) || partitions == 1 => first,
            _ => PartitionId((mix(request.id.session.0) % u64::from(partitions)) as u16),
        }
    }

    /// A thread brings a request back, with what it wishes for.
    pub fn grant(
        &mut self,
        mut running: Box<Running>,
        progress: Progress,
        now_ms: u64,
        site: &mut impl Asked,
    ) {
        let (connection, id) = (running.connection, running.id());
        let request = running.request.id;
        let is_out = |of: &&mut Connection| matches!(of.present, Present::Out(out) if out == request);
        let Some(of) = self.connections.get_mut(&connection).filter(is_out) else {
            // Its client has gone meanwhile.
            site.forget(id);
            running.lent.doubt();
            self.answers.push((request, gone()));
            return self.give_back(running.lent, now_ms, site);
        };
        match progress {
            Progress::Reply(outcome) => {
                let Running { request, lent, work, .. } = *running;
                self.answers.push((request.id, told_off(outcome)));
                (of.present, of.used_ms) = (Present::Idle, now_ms);
                if let Work::Open(open) = work {
                    of.begun = Some(Begun::Open(open, lent));
                }
                self.advance(connection, now_ms, site);
            }
            Progress::Wish(Wish::End(end)) => self.ended(*running, end, now_ms, site),
            Progress::Wish(Wish::Wait { ticks }) => {
                self.pause(running, ticks * PAUSE_MS, now_ms);
            }
            Progress::Wish(wish) => {
                if let (Work::Site(call), Some(commands)) = (&mut running.work, &self.site_commands) {
                    commands.ask(call, id, self.written.get(&connection), site);
                    of.present = Present::Waits(running);
                    self.asked.insert(id.session, connection);
                    return;
                }
                if let Wish::Commit(reads, writes) = &wish {
                    running.may_have_effect = !writes.is_empty();
                    let keys = reads.keys.keys().chain(writes.records.keys());
                    running.decider = decider_of(&self.tree, running.lent.home(), keys);
                }
                let how = match &running.work {
                    Work::Call(call) => Manner { is_read_only: call.is_read_only(), is_held_open: false },
                    Work::Open(open) => Manner { is_read_only: open.is_read_only(), is_held_open: true },
                    Work::Site(_) => Manner { is_read_only: true, is_held_open: false },
                };
                of.present = Present::Waits(running);
                self.asked.insert(id.session, connection);
                match wish {
                    Wish::Begin => site.begin(id, how),
                    wish => site.ask(id, wish),
                }
            }
        }
    }

    /// The site answers.
    pub fn answered(&mut self, id: RequestId, answer: SiteAnswer) {
        let Some(connection) = self.asked.get(&id.session) else { return };
        let Some(of) = self.connections.get_mut(connection) else { return };
        if !matches!(&of.present, Present::Waits(running) if running.id() == id) {
            return;
        }
        self.asked.remove(&id.session);
        if let SiteAnswer::Conflict(conflict) = &answer {
            self.counts.conflicts[place_of(conflict)] += 1;
        }
        if let Present::Waits(mut running) = std::mem::replace(&mut of.present, Present::Idle) {
            of.present = Present::Out(running.request.id);
            running.may_have_effect &= !matches!(answer, SiteAnswer::Conflict(_));
            self.ready.push((running, Next::Answered(answer)));
        }
    }

    /// A request has ended, one way or another.
    fn ended(&mut self, running: Running, end: CallEnd, now_ms: u64, site: &mut impl Asked) {
        self.note_written(&running, site);
        let Running { connection, request, mut lent, work, since_ms, rounds, decider, .. } = running;
        let is_late = now_ms >= since_ms + self.patience.request_ms;
        if let (Work::Call(_), CallEnd::Conflict(_), false) = (&work, &end, is_late) {
            // None of its attempts has had an effect, so it may run under another name.
            let work = Work::Call(call(&request, lent.next(), now_ms));
            let again = Running { rounds: rounds + 1, ..Running::new(request, lent, work, since_ms) };
            let after_ms = mix(again.id().seed()) % (ROUND_PAUSE_MS << rounds.min(3));
            return self.pause(Box::new(again), after_ms, now_ms);
        }
        if matches!(end, CallEnd::Unknown) {
            lent.doubt();
        }
        let is_open = matches!(work, Work::Open(_));
        if is_open && let Some(key) = site.take_first_read(lent.id().session) {
            self.first_reads.insert(connection, key);
        }
        if let CallEnd::Done { outcome: Ok(_), is_ordered } = end
            && connection != SessionId::INTERNAL
            && !matches!(work, Work::Site(_))
        {
            self.counts.committed += 1;
            if let Some(decided) = self.counts.decided_by.get_mut(usize::from(decider.0)) {
                *decided += u64::from(is_ordered);
            }
        }
        let outcome = outcome_of(end, is_open, self.words);
        self.finish(connection, &request, outcome, is_open, now_ms);
        self.give_back(lent, now_ms, site);
        self.advance(connection, now_ms, site);
    }

    /// Remembers what a connection has written, for ORDO.WAIT.
    fn note_written(&mut self, running: &Running, site: &impl Asked) {
        let is_clients = running.may_have_effect && running.connection != SessionId::INTERNAL;
        if let Some(written) = is_clients.then(|| site.written(running.id())).flatten() {
            self.written.entry(running.connection).or_default().add(written);
        }
    }

    /// A connection's request is answered for good. A transaction that ends without its client's wish is
    /// remembered as failed, so that the client's next commands do not run outside of it.
    fn finish(
        &mut self,
        connection: SessionId,
        request: &Request,
        outcome: Outcome,
        was_open: bool,
        now_ms: u64,
    ) {
        let Some(of) = self.connections.get_mut(&connection) else { return };
        (of.present, of.used_ms) = (Present::Idle, now_ms);
        if was_open && request.procedure.name() != transactions::COMMIT {
            let text = match &outcome {
                Err(stop) => stop.to_string(),
                Ok(_) => "ERR the transaction is over: ORDO.ROLLBACK, and run it again".to_owned(),
            };
            of.begun = Some(Begun::Failed(text));
        } else if was_open {
            self.in_transaction.remove(&connection);
        }
        self.answers.push((request.id, told_off(outcome)));
    }

    fn pause(&mut self, running: Box<Running>, for_ms: u64, now_ms: u64) {
        let connection = running.connection;
        let Some(of) = self.connections.get_mut(&connection) else { return };
        let due_ms = now_ms + for_ms.max(1);
        of.present = Present::Pauses(running, due_ms);
        self.pauses.insert((due_ms, connection));
    }

    /// Lets those go on whose pause is over.
    pub fn end_pauses(&mut self, now_ms: u64) {
        while let Some(&(due_ms, connection)) = self.pauses.first()
            && due_ms <= now_ms
        {
            self.pauses.pop_first();
            let Some(of) = self.connections.get_mut(&connection) else { continue };
            if let Present::Pauses(running, _) = std::mem::replace(&mut of.present, Present::Idle) {
                of.present = Present::Out(running.request.id);
                self.ready.push((running, Next::Begin { now_ms }));
            }
        }
    }

    /// Gives up what takes too long, and transactions that their clients have forgotten.
    pub fn give_up(&mut self, now_ms: u64, site: &mut impl Asked) {
        let late = |connection: &&SessionId| {
            let of = self.connections.get(connection);
            of.is_some_and(|of| {
                matches!(&of.present, Present::Waits(running)
                    if now_ms >= running.since_ms + self.patience.request_ms)
            })
        };
        for connection in self.asked.values().filter(late).copied().collect::<Vec<_>>() {
            let Some(of) = self.connections.get_mut(&connection) else { continue };
            let Present::Waits(running) = std::mem::replace(&mut of.present, Present::Idle) else { continue };
            let id = running.id();
            self.note_written(&running, site);
            let Running { request, mut lent, work, may_have_effect, .. } = *running;
            self.asked.remove(&id.session);
            site.forget(id);
            lent.doubt();
            self.counts.given_up += u64::from(connection != SessionId::INTERNAL);
            let asked = self.words.asked;
            let own_text = match &work {
                Work::Site(call) => call.text_if_late(),
                Work::Call(_) | Work::Open(_) => None,
            };
            let text = match (own_text, may_have_effect) {
                (Some(text), _) => text.to_owned(),
                (None, true) => format!(
                    "ORDOUNKNOWN {asked} did not answer in time: nobody knows whether this took effect. Look \
                     before you send it again"
                ),
                (None, false) => {
                    format!("CLUSTERDOWN {asked} did not answer in time: nothing was changed; try again")
                }
            };
            let is_open = matches!(work, Work::Open(_));
            self.finish(connection, &request, Err(Stop::abort(text)), is_open, now_ms);
            self.give_back(lent, now_ms, site);
            self.advance(connection, now_ms, site);
        }
        for connection in self.sessions.waiting().collect::<Vec<_>>() {
            let Some(of) = self.connections.get_mut(&connection) else { continue };
            let request_ms = self.patience.request_ms;
            if !matches!(of.present, Present::Queued(since_ms) if now_ms >= since_ms + request_ms) {
                continue;
            }
            self.sessions.leave(connection);
            let Some(request) = of.queue.pop_front() else { continue };
            self.counts.given_up += u64::from(connection != SessionId::INTERNAL);
            let is_open = of.begun.is_some();
            let text =
                "CLUSTERDOWN too many transactions are open at this node: nothing was changed; try again";
            self.finish(connection, &request, Err(Stop::abort(text)), is_open, now_ms);
            self.advance(connection, now_ms, site);
        }
        for connection in self.in_transaction.iter().copied().collect::<Vec<_>>() {
            let Some(of) = self.connections.get_mut(&connection) else { continue };
            let is_idle = matches!(of.present, Present::Idle);
            let is_over = matches!(of.begun, Some(Begun::Failed(_)));
            if !is_idle || is_over || now_ms < of.used_ms + self.patience.held_open.timeout_ms {
                continue;
            }
            let text = format!(
                "TIMEOUT the transaction was rolled back, because it had rested for {} ms \
                 (transaction_timeout_ms): run it again, behind an ORDO.ROLLBACK unless this answers ORDO.COMMIT",
                self.patience.held_open.timeout_ms
            );
            self.counts.forgotten += 1;
            if let Some(begun) = of.begun.replace(Begun::Failed(text)) {
                self.drop_begun(begun, now_ms, site);
            }
        }
    }

    /// A client has gone: what it has not committed is rolled back.
    pub fn forget(&mut self, id: SessionId, now_ms: u64, site: &mut impl Asked) {
        self.written.remove(&id);
        self.first_reads.remove(&id);
        self.reset(id, now_ms, site);
    }

    /// The same, for a connection that goes on. What it has written stays written.
    pub fn reset(&mut self, id: SessionId, now_ms: u64, site: &mut impl Asked) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.in_transaction.remove(&id);
        self.answers.extend(connection.queue.iter().map(|request| (request.id, gone())));
        if let Some(begun) = connection.begun {
            self.drop_begun(begun, now_ms, site);
        }
        let mut running = match connection.present {
            Present::Idle | Present::Out(_) => return,
            Present::Queued(_) => return self.sessions.leave(id),
            Present::Waits(running) => running,
            Present::Pauses(running, due_ms) => {
                self.pauses.remove(&(due_ms, id));
                running
            }
        };
        let name = running.id();
        self.asked.remove(&name.session);
        site.forget(name);
        running.lent.doubt();
        self.answers.push((running.request.id, gone()));
        self.give_back(running.lent, now_ms, site);
    }

    fn drop_begun(&mut self, begun: Begun, now_ms: u64, site: &mut impl Asked) {
        if let Begun::Open(open, lent) = begun {
            site.forget(open.id());
            self.give_back(lent, now_ms, site);
        }
    }

    /// A session is free again: a connection that waits for one goes on, and is not to read what the last
    /// one should have read.
    fn give_back(&mut self, lent: Lent, now_ms: u64, site: &mut impl Asked) {
        let home = lent.home();
        site.take_first_read(lent.id().session);
        self.sessions.give_back(lent);
        while let Some(waiting) = self.sessions.next_waiting(home) {
            let of = self.connections.get_mut(&waiting);
            if let Some(of) = of.filter(|of| matches!(of.present, Present::Queued(_))) {
                of.present = Present::Idle;
                return self.advance(waiting, now_ms, site);
            }
        }
    }
}

/// The validator that decides on a transaction which uses these keys.
fn decider_of<'a>(tree: &Tree, home: PartitionId, keys: impl Iterator<Item = &'a Key>) -> PartitionId {
    let leaf_of = |key: &Key| partition_of_slot(key.slot(), tree.partitions());
    let participants: BTreeSet<PartitionId> = keys.map(leaf_of).chain([home]).collect();
    tree.decider(&participants).unwrap_or(home)
}

/// The name of the attempt with which a transaction begins. The first attempt of one that only reads may read
/// far in the past, and there is no use for that here.
fn current(id: RequestId, is_read_only: bool) -> RequestId {
    RequestId { attempt: u32::from(is_read_only), ..id }
}

fn call(request: &Request, id: RequestId, now_ms: u64) -> CertifiedCall {
    let id = current(id, request.footprint.read_only);
    CertifiedCall::new(Arc::new(Request { id, ..request.clone() }), now_ms)
}

/// An outcome without what it tells others: nobody listens here.
fn told_off(outcome: Outcome) -> Outcome {
    outcome.map(|reply| match reply {
        Reply::Told(told) => told.reply,
        reply => reply,
    })
}

/// The outcome of a request that its client has left. Nobody reads it: the port counts its requests.
fn gone() -> Outcome {
    Err(Stop::abort("ERR the client has gone"))
}

/// Where a conflict is counted.
fn place_of(conflict: &Conflict) -> usize {
    match conflict {
        Conflict::Key(_) | Conflict::Locked { .. } | Conflict::Listing | Conflict::Superseded => 0,
        Conflict::Snapshot => 1,
        Conflict::Timestamp => 2,
    }
}

/// What a client is told of a request's end.
fn outcome_of(end: CallEnd, is_open: bool, words: Words) -> Outcome {
    let text = match end {
        CallEnd::Done { outcome, .. } => return outcome,
        CallEnd::CommittedBefore => {
            "ORDOUNKNOWN the transaction has taken effect, and its reply is lost: do not send it again"
                .to_owned()
        }
        CallEnd::Conflict(conflict) => {
            let what = match conflict {
                Conflict::Key(key) => {
                    format!("key '{}' has changed", String::from_utf8_lossy(&key.to_blob()))
                }
                Conflict::Locked { key, holder } => {
                    let key = String::from_utf8_lossy(&key.to_blob()).into_owned();
                    format!("a transaction of {holder} is about to write key '{key}'")
                }
                Conflict::Snapshot => "what the transaction began with is too old".to_owned(),
                Conflict::Listing | Conflict::Timestamp | Conflict::Superseded => {
                    "other transactions have met this one".to_owned()
                }
            };
            let advice = match is_open {
                true => "run the transaction again",
                false => "nothing was changed; try again",
            };
            format!("CONFLICT {what}: {advice}")
        }
        CallEnd::Unknown => {
            "ORDOUNKNOWN nobody knows whether this took effect: look before you send it again".to_owned()
        }
        CallEnd::Unavailable => format!("CLUSTERDOWN {}", words.unavailable),
    };
    Err(Stop::abort(text))
}
