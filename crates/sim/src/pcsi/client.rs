//! A client of a site: some sessions side by side, each with one transaction at a time. Where a session hears
//! nothing, it asks again what became of its attempt, or makes another attempt of the same transaction.

use super::ledger::{ClientAttempt, KnownOutcome, number};
use super::{Ask, Frame, PcsiWorld, Tell, Timer};
use crate::world::{Address, Core, Input, Violation};
use certify::{Answer, WriteSet, session_opened};
use std::fmt;
use txn::{Entry, Position, RequestId};

/// What a session waits for, or does next.
#[derive(Clone, Debug)]
enum Step {
    /// It has no transaction.
    Idle,
    Begin,
    Look(usize),
    /// It has asked to commit.
    Commit(WriteSet),
}

#[derive(Debug)]
struct Session {
    number: u32,
    /// Transactions that it has still to begin.
    left: u64,
    step: Step,
    /// Counts its steps, and what it asks again.
    steps: u64,
    /// The request of the present transaction, or of the last one of the session's opening.
    last: Option<RequestId>,
    /// The place of the present attempt.
    place: usize,
    /// The keys that it has yet to read.
    unread: Vec<usize>,
    /// The last acknowledged attempt.
    previous: Option<u64>,
    /// The last commit that it has heard of.
    heard: Position,
}

/// A client.
pub(super) struct Client {
    sessions: Vec<Session>,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Session { number, left, step, .. } in &self.sessions {
            write!(f, "session {number:x} is at {step:?}, and has {left} transactions to begin; ")?;
        }
        Ok(())
    }
}

/// The client of a session.
pub(super) fn address(session: u32) -> Address {
    Address::Client((session >> 16) as u16)
}

impl Client {
    /// A client with some sessions, which share its transactions.
    pub fn new(number: u16, sessions: u64, operations: u64) -> Client {
        let session = |slot: u64| Session {
            number: u32::from(number) << 16 | slot as u32,
            left: operations / sessions + u64::from(slot < operations % sessions),
            step: Step::Idle,
            steps: 0,
            last: None,
            place: 0,
            unread: Vec::new(),
            previous: None,
            heard: Position::NONE,
        };
        Client { sessions: (0..sessions).map(session).collect() }
    }

    /// Its site has lost its disk, and what it knew of its sessions. Returns the places of their attempts:
    /// the site's next incarnation may be the one that begins them.
    pub fn forget_previous(&mut self) -> Vec<usize> {
        self.sessions.iter_mut().for_each(|session| session.previous = None);
        self.sessions.iter().map(|session| session.place).collect()
    }

    pub fn is_idle(&self) -> bool {
        self.sessions.iter().all(|session| matches!(session.step, Step::Idle))
    }

    pub fn is_done(&self) -> bool {
        self.is_idle() && self.sessions.iter().all(|session| session.left == 0)
    }
}

/// Something reaches a client.
pub(super) fn take(
    system: &mut PcsiWorld,
    client: u16,
    input: Input<Frame, Timer>,
    core: &mut Core<PcsiWorld>,
) -> Result<(), Violation> {
    let sessions = system.clients[usize::from(client)].sessions.len();
    let place = |number: u32| (number & 0xFFFF) as usize;
    match input {
        Input::Timer(Timer::Begin) => {
            (0..sessions).for_each(|slot| Turn { system, core, client, slot }.think());
        }
        Input::Timer(Timer::Next { session, step }) => {
            let mut turn = Turn { system, core, client, slot: place(session) };
            if turn.session().steps == step {
                turn.go_on();
            }
        }
        Input::Timer(Timer::Timeout { session, step }) => {
            let mut turn = Turn { system, core, client, slot: place(session) };
            if turn.session().steps == step {
                turn.give_up();
            }
        }
        Input::Frame { frame: Frame::Tell { session, id, tell, last }, .. } => {
            let mut turn = Turn { system, core, client, slot: place(session) };
            turn.session().heard = turn.session().heard.max(last);
            if turn.session().last == Some(id) {
                turn.told(tell);
            }
        }
        Input::Timer(_) | Input::Frame { .. } => {}
    }
    Ok(())
}

/// The connection breaks: what was asked may be lost.
pub(super) fn disconnect(system: &mut PcsiWorld, client: u16, core: &mut Core<PcsiWorld>) {
    for slot in 0..system.clients[usize::from(client)].sessions.len() {
        let mut turn = Turn { system, core, client, slot };
        if !matches!(turn.session().step, Step::Idle) {
            turn.give_up();
        }
    }
}

struct Turn<'a> {
    system: &'a mut PcsiWorld,
    core: &'a mut Core<PcsiWorld>,
    client: u16,
    slot: usize,
}

impl Turn<'_> {
    fn session(&mut self) -> &mut Session {
        &mut self.system.clients[usize::from(self.client)].sessions[self.slot]
    }

    fn host(&self) -> u16 {
        self.system.host_of(self.client)
    }

    /// The next step is due after a while.
    fn after(&mut self, after_ns: u64, step: Step) {
        let session = self.session();
        session.step = step;
        session.steps += 1;
        let timer = Timer::Next { session: session.number, step: session.steps };
        self.core.set_timer(Address::Client(self.client), after_ns, timer);
    }

    /// The next transaction begins after a while.
    fn think(&mut self) {
        let after_ns = 1 + self.core.draw.below(1 + self.system.plan.think_us * 1_000);
        self.after(after_ns, Step::Idle);
    }

    /// The next step of the transaction, soon.
    fn next(&mut self, step: Step) {
        let tick_ns = self.system.plan.tick_ns;
        let after_ns = 1 + self.core.draw.pick(&[0, 0, 1, 2, 4]) * self.core.draw.below(tick_ns);
        self.after(after_ns, step);
    }

    fn go_on(&mut self) {
        match self.session().step.clone() {
            Step::Idle => self.begin(),
            Step::Begin => self.ask(Ask::Begin),
            Step::Look(key) => self.ask(Ask::Look(key)),
            Step::Commit(writes) => self.ask(Ask::Commit(writes)),
        }
    }

    fn ask(&mut self, ask: Ask) {
        let (host, timeout_ns) = (self.host(), self.system.plan.timeout_ns);
        let session = self.session();
        session.steps += 1;
        let Some(id) = session.last else { return };
        let (number, step) = (session.number, session.steps);
        let (me, frame) = (Address::Client(self.client), Frame::Ask { session: number, id, ask });
        self.core.send(me, Address::Host(host), frame);
        self.core.set_timer(me, timeout_ns, Timer::Timeout { session: number, step });
    }

    /// A transaction begins.
    fn begin(&mut self) {
        if self.session().left == 0 {
            return;
        }
        if self.system.has_absence() {
            return self.after(10 * self.system.plan.tick_ns, Step::Idle);
        }
        let host = self.host();
        let ledger = &self.system.ledger;
        let is_here = |key: &usize| ledger.has_key(host, *key);
        let mut here: Vec<usize> = (0..ledger.keys.len()).filter(is_here).collect();
        if ledger.sites.has_remote_access() && !here.is_empty() {
            here = (0..ledger.keys.len()).collect();
        }
        if here.is_empty() {
            self.session().left = 0;
            return;
        }
        let count = 1 + self.core.draw.below(3);
        let mut keys: Vec<usize> = (0..count).map(|_| self.core.draw.pick(&here)).collect();
        keys.sort_unstable();
        keys.dedup();
        let (writes, opens) = (self.core.draw.percent(75), self.core.draw.percent(10));
        self.system.opened += 1;
        let opened = self.system.opened as u16;
        let session = self.session();
        session.left -= 1;
        let id = match session.last.filter(|_| !opens) {
            Some(last) => RequestId { sequence: last.sequence + 1, attempt: 0, ..last },
            None => RequestId { session: session_opened(session.heard, opened), sequence: 1, attempt: 0 },
        };
        self.attempt(id, keys, writes);
    }

    fn attempt(&mut self, id: RequestId, keys: Vec<usize>, writes: bool) {
        let place = self.system.ledger.attempts.len();
        let session = self.session();
        (session.last, session.place, session.unread) = (Some(id), place, keys);
        let (number, previous) = (place as u64 + 1, session.previous);
        let attempt = ClientAttempt {
            number,
            host: self.host(),
            losses: self.system.ledger.losses(self.host()),
            reads: Default::default(),
            writes,
            previous,
            told: KnownOutcome::Nothing,
        };
        self.system.ledger.attempts.push(attempt);
        self.next(Step::Begin);
    }

    /// The session has heard nothing for long. What became of a commit it asks once more, or it makes another
    /// attempt. Without a commit, the transaction has no effect.
    fn give_up(&mut self) {
        let Step::Commit(writes) = self.session().step.clone() else { return self.think() };
        let Some(id) = self.session().last else { return };
        if self.system.has_absence() || self.core.draw.percent(50) {
            return self.ask(Ask::Commit(writes));
        }
        let attempt = &self.system.ledger.attempts[self.session_place()];
        let (keys, writes) = (attempt.reads.keys().copied().collect(), attempt.writes);
        self.attempt(RequestId { attempt: id.attempt + 1, ..id }, keys, writes);
    }

    fn session_place(&self) -> usize {
        self.system.clients[usize::from(self.client)].sessions[self.slot].place
    }

    /// The site tells something of the present attempt.
    fn told(&mut self, tell: Tell) {
        let place = self.session().place;
        match (self.session().step.clone(), tell) {
            (Step::Begin, Tell::Answer(Answer::Begun)) => self.look(),
            (Step::Look(key), Tell::Value { key: read, number }) if key == read => {
                self.system.ledger.attempts[place].reads.insert(key, number);
                self.look();
            }
            (Step::Look(key), Tell::Answer(Answer::Value(read))) => {
                let number = number(read.entry.as_ref());
                self.system.ledger.attempts[place].reads.insert(key, number);
                self.look();
            }
            (Step::Idle, _) | (_, Tell::Value { .. } | Tell::Answer(Answer::Begun)) => {}
            (_, Tell::Answer(answer)) => self.answered(&answer),
        }
    }

    /// The next key, or the commit.
    fn look(&mut self) {
        match self.session().unread.pop() {
            Some(key) => self.next(Step::Look(key)),
            None => {
                let writes = self.writes();
                self.next(Step::Commit(writes));
            }
        }
    }

    fn writes(&mut self) -> WriteSet {
        let mut writes = WriteSet::default();
        let ledger = &self.system.ledger;
        let attempt = &ledger.attempts[self.session_place()];
        if attempt.writes {
            let entry = Entry::new(attempt.number.to_string().as_str());
            for (&key, &read) in &attempt.reads {
                // Logs tell attempts apart by what they write, so each attempt writes something.
                let may_delete = read > 0 && ledger.is_deleted(key) && !writes.is_empty();
                let deletes = may_delete && self.core.draw.percent(50);
                writes.records.insert(ledger.keys[key].clone(), (!deletes).then(|| entry.clone()));
            }
        }
        writes
    }

    fn answered(&mut self, answer: &Answer) {
        let (host, place, id) = (self.host(), self.session().place, self.session().last);
        // An earlier attempt has committed, and the present one has no effect.
        let committed = match (answer, id) {
            (Answer::Committed, _) => Some(place as u64 + 1),
            (Answer::CommittedBefore, Some(id)) => self.system.ledger.committed_attempt(host, id),
            _ => None,
        };
        let ledger = &mut self.system.ledger;
        ledger.attempts[place].told = KnownOutcome::NoEffect;
        let has_lost = ledger.losses(host) > ledger.attempts[place].losses;
        let is_forgotten = has_lost && ledger.sites.has_remote_access();
        let session = self.session();
        let (place, told) = match (committed, answer) {
            (Some(number), _) => {
                session.previous = committed.filter(|_| !is_forgotten);
                (number as usize - 1, KnownOutcome::Committed)
            }
            (None, Answer::Unknown) => {
                // Its next transaction is of another session.
                session.last = None;
                (place, KnownOutcome::Nothing)
            }
            (None, _) => (place, KnownOutcome::NoEffect),
        };
        let attempt = &mut self.system.ledger.attempts[place];
        attempt.told = told;
        let tally = &mut self.system.tally;
        match told {
            KnownOutcome::Committed if attempt.writes => tally.committed += 1,
            KnownOutcome::Committed => tally.snapshot_reads += 1,
            KnownOutcome::NoEffect => tally.refused += 1,
            KnownOutcome::Nothing => tally.unknown += 1,
        }
        tally.operations += 1;
        tally.last_ns = self.core.now_ns();
        self.core.witness(place as u64);
        self.think();
    }
}
