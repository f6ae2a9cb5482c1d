//! A replica: the consensus library, its log, and who waits for what.
//!
//! What arrives is taken in at rounds, as far as the processor's speed allows. Then the library is asked what
//! is to be done ([`Turn::pump`]): messages of a leader leave at once; the record is written; entries that a
//! majority has are applied; messages that promise something wait until a sync, which began after the record
//! was written, has ended.

use super::state::{Command, State};
use super::storage::{Record, Storage, entry_bytes};
use super::{Answer, Frame, Mutant, Operation, Plan, Register, Timer, client};
use crate::world::{Address, Core, Input, Start, Violation};
use raft::eraftpb::{Entry, Message, MessageType};
use raft::prelude::{Config, RawNode, Snapshot};
use raft::{SnapshotStatus, StateRole};
use slog::{Discard, Logger, o};
use std::collections::{BTreeMap, VecDeque};
use txn::hash::mix;

/// Election timeouts are drawn from this many ticks on, to less than twice as many.
const ELECTION_TICKS: u64 = 10;
/// After so many ticks a snapshot that was sent has arrived or is lost.
const SNAPSHOT_TICKS: u64 = 15;

/// A read that waits.
#[derive(Clone, Copy)]
struct Read {
    session: u32,
    sequence: u64,
    attempt: u64,
    key: u64,
}

/// What one turn of the library wants to be kept.
struct Unsynced {
    /// The turn's number.
    number: u64,
    /// What is true only once it is durable.
    messages: Vec<Message>,
    must_sync: bool,
}

/// A running replica.
pub struct Replica {
    raft: RawNode<Storage>,
    /// Its number among all processes of the run.
    process: u64,
    /// Its disk failed it, and what it promised may be lost: it takes no further part.
    stopped: Option<String>,
    inbox: VecDeque<(Address, Frame)>,
    /// A round is coming.
    busy: bool,
    unsynced: VecDeque<Unsynced>,
    /// A sync is on its way: for the turns up to this one.
    syncing: Option<u64>,
    /// The term and role of which it last took notice.
    seen: (u64, StateRole),
    /// Appends that it has proposed as the leader of the present term: sequence and attempt, by session.
    writes: BTreeMap<u32, (u64, u64)>,
    /// Reads that wait for an index, by the name of the question.
    asked: BTreeMap<u64, Vec<Read>>,
    /// Reads that wait for entries up to an index.
    indexed: Vec<(u64, Vec<Read>)>,
}

impl Replica {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether nothing waits in it, apart from the next tick. An entry that is not applied does: after a
    /// start, a replica does not yet know which of its entries are committed.
    pub(super) fn is_idle(&self) -> bool {
        self.stopped.is_none()
            && self.state().index == self.raft.raft.raft_log.last_index()
            && self.inbox.is_empty()
            && self.unsynced.is_empty()
            && self.syncing.is_none()
    }

    pub(super) fn state(&self) -> &State {
        &self.raft.store().state
    }

    pub(super) fn describe(&self) -> String {
        let raft = &self.raft.raft;
        let mut text = format!(
            "{:?} of term {}, persisted up to {}, committed up to {}, applied up to {}",
            raft.state,
            raft.term,
            raft.raft_log.persisted,
            raft.raft_log.committed,
            self.state().index
        );
        if let Some(why) = &self.stopped {
            text.push_str(&format!(", stopped: {why}"));
        }
        text
    }
}

/// Starts a replica from its disk.
pub(super) fn start(
    system: &mut Register,
    host: u16,
    core: &mut Core<Register>,
) -> Result<Start<Replica>, Violation> {
    let disk = core.host(host).process_disk();
    let storage = match Storage::open(disk.clone(), system.plan.hosts) {
        Ok(storage) => storage,
        Err(_) if disk.is_dead() => return Ok(Start::Died),
        Err(error) => return Ok(Start::Refused(error.to_string())),
    };
    let plan = &system.plan;
    let config = Config {
        applied: storage.state.index,
        election_tick: ELECTION_TICKS as usize,
        heartbeat_tick: 2,
        max_size_per_msg: plan.message_bytes_max,
        max_inflight_msgs: plan.in_flight_messages_max,
        check_quorum: plan.check_quorum,
        pre_vote: plan.pre_vote,
        ..Config::new(id_of(host))
    };
    system.tally.recovered_from_checkpoint += u64::from(storage.state.index > 0);
    let raft = match RawNode::new(&config, storage, &Logger::root(Discard, o!())) {
        Ok(raft) => raft,
        Err(error) => return Ok(Start::Refused(error.to_string())),
    };
    system.processes += 1;
    let mut replica = Replica {
        seen: (raft.raft.term, raft.raft.state),
        raft,
        process: system.processes,
        stopped: None,
        inbox: VecDeque::new(),
        busy: false,
        unsynced: VecDeque::new(),
        syncing: None,
        writes: BTreeMap::new(),
        asked: BTreeMap::new(),
        indexed: Vec::new(),
    };
    let tick_ns = 1 + core.draw.below(system.plan.tick_ns);
    core.set_timer(Address::Host(host), tick_ns, Timer::Tick);
    let mut turn = Turn { system, replica: &mut replica, core, host };
    turn.notice()?;
    turn.check_digest()?;
    turn.pump()?;
    Ok(Start::Running(replica))
}

/// The library counts from 1.
fn id_of(host: u16) -> u64 {
    u64::from(host) + 1
}
fn host_of(id: u64) -> Option<u16> {
    id.checked_sub(1).map(|host| host as u16)
}

/// About what a message takes on the wire.
pub(super) fn message_bytes(message: &Message) -> u64 {
    let entries: u64 = message.entries.iter().map(entry_bytes).sum();
    64 + entries + message.get_snapshot().data.len() as u64
}

/// A replica with all that it may use.
pub(super) struct Turn<'a> {
    pub system: &'a mut Register,
    pub replica: &'a mut Replica,
    pub core: &'a mut Core<Register>,
    pub host: u16,
}

impl Turn<'_> {
    fn plan(&self) -> &Plan {
        &self.system.plan
    }
    fn me(&self) -> Address {
        Address::Host(self.host)
    }
    fn storage(&mut self) -> &mut Storage {
        self.replica.raft.mut_store()
    }
    fn note(&mut self, text: impl FnOnce() -> String) {
        let me = self.me();
        self.core.note(me, text);
    }

    /// Something reaches the replica.
    pub(super) fn take(&mut self, input: Input<Frame, Timer>) -> Result<(), Violation> {
        if self.replica.is_stopped() {
            return Ok(());
        }
        match input {
            Input::Frame { from, frame } => {
                self.replica.inbox.push_back((from, frame));
                if !self.replica.busy {
                    self.replica.busy = true;
                    let factor = self.core.cpu_factor(self.host);
                    let after_ns = self.varied(self.plan().costs.command_ns) * factor;
                    self.core.set_timer(self.me(), after_ns, Timer::Round);
                }
                return Ok(());
            }
            Input::Timer(Timer::Round) => self.round()?,
            Input::Timer(Timer::Tick) => {
                if !self.is_installing() {
                    self.replica.raft.tick();
                }
                self.core.set_timer(self.me(), self.plan().tick_ns, Timer::Tick);
            }
            Input::Timer(Timer::Synced) => self.synced()?,
            Input::Timer(Timer::Compacted) => self.replica.syncing = None,
            Input::Timer(Timer::SnapshotSent(to)) => {
                // It may be lost; if so, the library finds that out by asking for what comes after it.
                let raft = &mut self.replica.raft;
                raft.report_snapshot(id_of(to), SnapshotStatus::Finish);
            }
            Input::Timer(_) => {}
        }
        self.notice()?;
        self.pump()
    }

    /// Whether a snapshot has replaced the log, and is not yet durable. Its entries are gone, and the library
    /// does not yet count them as applied: a candidate that looks through what it has not applied would end
    /// in a panic.
    fn is_installing(&self) -> bool {
        let applied = self.replica.raft.raft.raft_log.applied;
        self.replica.raft.store().base_index() > applied
    }

    /// A cost, or anything up to four times as much.
    fn varied(&mut self, cost_ns: u64) -> u64 {
        if self.plan().jitter { cost_ns + self.core.draw.below(1 + cost_ns * 3) } else { cost_ns }
    }

    /// Takes in what has arrived.
    fn round(&mut self) -> Result<(), Violation> {
        self.replica.busy = false;
        let mut reads = Vec::new();
        for (from, frame) in std::mem::take(&mut self.replica.inbox) {
            match (from, frame) {
                (Address::Host(_), Frame::Raft(message)) => {
                    // It refuses what comes from strangers and what comes too late; both are lost messages.
                    let _ = self.replica.raft.step(*message);
                    self.notice()?;
                }
                (_, Frame::Ask { session, sequence, attempt, operation }) => match operation {
                    Operation::Append { key, value } => {
                        let command = Command { session, sequence, key, value };
                        self.append(command, attempt)?;
                    }
                    Operation::Read { key } => {
                        let read = Read { session, sequence, attempt, key };
                        if self.is_leader() && self.plan().has(Mutant::UnconfirmedRead) {
                            self.answer_read(read);
                        } else if self.replica.raft.raft.leader_id == raft::INVALID_ID {
                            self.elsewhere(session, sequence, attempt);
                        } else {
                            reads.push(read);
                        }
                    }
                },
                _ => {}
            }
        }
        if !reads.is_empty() {
            // One question for all: they were all invoked before it is asked. No two questions of a run have
            // the same name.
            self.system.questions += 1;
            let name = self.system.questions;
            self.replica.asked.insert(name, reads);
            self.replica.raft.read_index(name.to_le_bytes().to_vec());
            self.notice()?;
        }
        Ok(())
    }

    fn is_leader(&self) -> bool {
        self.replica.raft.raft.state == StateRole::Leader
    }

    fn append(&mut self, command: Command, attempt: u64) -> Result<(), Violation> {
        let Command { session, sequence, .. } = command;
        if !self.is_leader() {
            self.elsewhere(session, sequence, attempt);
            return Ok(());
        }
        if !self.plan().has(Mutant::NoDeduplication) {
            if self.replica.state().has_applied(session, sequence) {
                self.answer(session, sequence, attempt, Answer::Done);
                return Ok(());
            }
            // Only to spare an entry: a command that is proposed twice is applied once.
            if let Some(proposed) = self.replica.writes.get_mut(&session)
                && proposed.0 == sequence
            {
                proposed.1 = attempt;
                return Ok(());
            }
        }
        match self.replica.raft.propose(Vec::new(), command.encode()) {
            Ok(()) => {
                self.replica.writes.insert(session, (sequence, attempt));
            }
            Err(_) => self.elsewhere(session, sequence, attempt),
        }
        self.notice()
    }

    fn answer(&mut self, session: u32, sequence: u64, attempt: u64, answer: Answer) {
        let frame = Frame::Answer { session, sequence, attempt, answer };
        self.core.send(self.me(), client::address(session), frame);
    }
    fn elsewhere(&mut self, session: u32, sequence: u64, attempt: u64) {
        let leader = host_of(self.replica.raft.raft.leader_id);
        let hint = leader.filter(|&leader| leader != self.host);
        self.answer(session, sequence, attempt, Answer::Elsewhere(hint));
    }
    fn answer_read(&mut self, read: Read) {
        let values = self.replica.state().list(read.key).to_vec();
        self.answer(read.session, read.sequence, read.attempt, Answer::List(values));
    }

    /// After every call of the library: puts our election timeout in the place of its own, which nobody could
    /// repeat, and takes notice of new terms and leaders.
    fn notice(&mut self) -> Result<(), Violation> {
        let raft = &mut self.replica.raft.raft;
        let (term, role) = (raft.term, raft.state);
        let ticks = ELECTION_TICKS
            + mix(self.system.plan.seed ^ mix(u64::from(self.host) << 32 ^ mix(term))) % ELECTION_TICKS;
        raft.set_randomized_election_timeout(ticks as usize);
        if self.replica.seen == (term, role) {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.replica.seen, (term, role));
        if role == StateRole::Leader {
            self.note(|| format!("leads term {term}"));
            self.core.witness(term << 16 ^ u64::from(self.host));
            let me = (self.host, self.replica.process);
            let first = *self.system.leaders.entry(term).or_insert(me);
            // A process that starts again must not lead its old term: it could have promised otherwise
            // meanwhile.
            if first != me {
                return Err(Violation::new(
                    "one leader a term",
                    format!(
                        "host {} (process {}) leads term {term}, and host {} (process {}) did already",
                        me.0, me.1, first.0, first.1
                    ),
                ));
            }
        } else {
            self.note(|| format!("is {role:?} in term {term}"));
        }
        if before.0 != term || before.1 == StateRole::Leader {
            // Another leader may or may not commit what this one proposed, and nobody answers its questions.
            for (session, (sequence, attempt)) in std::mem::take(&mut self.replica.writes) {
                self.elsewhere(session, sequence, attempt);
            }
            for read in std::mem::take(&mut self.replica.asked).into_values().flatten() {
                self.elsewhere(read.session, read.sequence, read.attempt);
            }
        }
        Ok(())
    }

    /// Does what the library wants to be done.
    fn pump(&mut self) -> Result<(), Violation> {
        loop {
            self.advance_applied();
            if !self.replica.raft.has_ready() {
                self.flush()?;
                if !self.replica.raft.has_ready() {
                    return Ok(());
                }
            }
            let mut ready = self.replica.raft.ready();
            self.notice()?;
            let record = Record {
                hard_state: ready.hs().cloned(),
                state: self.received(ready.snapshot())?,
                entries: ready.take_entries(),
            };
            let must_sync = ready.must_sync();
            let installed = record.state.is_some();
            if record.hard_state.is_some() || must_sync {
                let keeps_vote = !self.plan().has(Mutant::VoteNotPersisted);
                if let Err(error) = self.storage().save(record, keeps_vote) {
                    self.stop(&error.to_string());
                    return Ok(());
                }
            }
            if installed {
                self.check_digest()?;
                self.note_applied("installs a snapshot");
            }
            // Before anything else changes hands: what is persistent must not wait for what is not.
            let messages = ready.take_messages();
            self.replica.unsynced.push_back(Unsynced {
                number: ready.number(),
                messages: ready.take_persisted_messages(),
                must_sync,
            });
            let committed = ready.take_committed_entries();
            for state in ready.take_read_states() {
                let name = state.request_ctx.try_into().map_or(0, u64::from_le_bytes);
                if let Some(reads) = self.replica.asked.remove(&name) {
                    self.replica.indexed.push((state.index, reads));
                }
            }
            self.replica.raft.advance_append_async(ready);
            self.notice()?;
            self.send(messages);
            self.apply(&committed)?;
            self.flush()?;
        }
    }

    /// The state of a snapshot that a leader sent.
    fn received(&self, snapshot: &Snapshot) -> Result<Option<State>, Violation> {
        if snapshot.is_empty() {
            return Ok(None);
        }
        let metadata = snapshot.get_metadata();
        State::decode(&snapshot.data)
            .filter(|state| (state.index, state.term) == (metadata.index, metadata.term))
            .map(Some)
            .ok_or_else(|| Violation::new("snapshot", "a snapshot does not read back"))
    }

    fn note_applied(&mut self, how: &str) {
        let (me, state) = (Address::Host(self.host), self.replica.raft.store());
        let (index, digest) = (state.state.index, state.state.digest);
        self.core.note(me, || format!("{how}: applied up to {index} ({digest:016x})"));
    }

    /// The library may know only of what is durable here that it was applied.
    fn advance_applied(&mut self) {
        let applied = self.replica.state().index;
        let log = &self.replica.raft.raft.raft_log;
        let known = applied.min(log.committed).min(log.persisted);
        if known > log.applied {
            self.replica.raft.advance_apply_to(known);
        }
    }

    fn apply(&mut self, entries: &[Entry]) -> Result<(), Violation> {
        let deduplicate = !self.plan().has(Mutant::NoDeduplication);
        for entry in entries {
            let state = &mut self.storage().state;
            if entry.index != state.index + 1 {
                let text = format!("entry {} comes after {}", entry.index, state.index);
                return Err(Violation::new("applied in order", text));
            }
            state.apply(entry.index, entry.term, &entry.data, deduplicate);
            self.system.tally.operations += 1;
            self.check_digest()?;
            if let Some(command) = Command::decode(&entry.data)
                && let Some(&(sequence, attempt)) = self.replica.writes.get(&command.session)
                && sequence == command.sequence
            {
                self.replica.writes.remove(&command.session);
                self.answer(command.session, sequence, attempt, Answer::Done);
            }
        }
        if !entries.is_empty() {
            self.note_applied("commits");
        }
        let applied = self.replica.state().index;
        let waiting = std::mem::take(&mut self.replica.indexed);
        let (now, later) = waiting.into_iter().partition::<Vec<_>, _>(|&(index, _)| index <= applied);
        self.replica.indexed = later;
        for read in now.into_iter().flat_map(|(_, reads)| reads) {
            self.answer_read(read);
        }
        Ok(())
    }

    /// The oracle of equal histories: whoever first applies an entry says what all others must have there.
    fn check_digest(&mut self) -> Result<(), Violation> {
        let state = &self.replica.raft.store().state;
        let first = *self.system.digests.entry(state.index).or_insert((state.digest, self.host));
        self.core.witness(state.digest);
        if first.0 == state.digest {
            return Ok(());
        }
        Err(Violation::new(
            "replica digests",
            format!("after entry {} hosts {} and {} differ", state.index, first.1, self.host),
        ))
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            let Some(to) = host_of(message.to) else {
                continue;
            };
            if message.get_msg_type() == MessageType::MsgSnapshot {
                let after_ns = self.plan().tick_ns * SNAPSHOT_TICKS;
                self.core.set_timer(self.me(), after_ns, Timer::SnapshotSent(to));
            }
            let frame = Frame::Raft(Box::new(message));
            self.core.send(self.me(), Address::Host(to), frame);
        }
    }

    /// Begins a sync if something waits for one; lets go what waits for none.
    fn flush(&mut self) -> Result<(), Violation> {
        let early = self.plan().has(Mutant::EarlyAcknowledgement);
        let replica = &mut *self.replica;
        let Some(last) = replica.unsynced.back().map(|unsynced| unsynced.number) else {
            return Ok(());
        };
        let must_sync = replica.unsynced.iter().any(|unsynced| unsynced.must_sync);
        if must_sync && replica.syncing.is_none() {
            replica.syncing = Some(last);
            let factor = self.core.disk_factor(self.host);
            let after_ns = self.varied(self.plan().costs.sync_ns) * factor;
            self.core.set_timer(self.me(), after_ns, Timer::Synced);
        }
        if early || (!must_sync && self.replica.syncing.is_none()) {
            self.persisted(last)?;
        }
        Ok(())
    }

    /// What was written up to this turn is durable.
    fn persisted(&mut self, number: u64) -> Result<(), Violation> {
        while let Some(unsynced) = self.replica.unsynced.front_mut()
            && unsynced.number <= number
        {
            let messages = std::mem::take(&mut unsynced.messages);
            self.replica.unsynced.pop_front();
            self.send(messages);
        }
        self.replica.raft.on_persist_ready(number);
        self.notice()
    }

    /// A sync has had its time.
    fn synced(&mut self) -> Result<(), Violation> {
        if let Err(error) = self.storage().sync() {
            self.stop(&error.to_string());
            return Ok(());
        }
        let Some(number) = self.replica.syncing.take() else {
            return Ok(());
        };
        self.persisted(number)?;
        let log = &self.replica.raft.raft.raft_log;
        let (persisted, applied) = (log.persisted, log.applied);
        self.note(|| format!("persisted up to {persisted}"));
        let checkpoint_bytes = self.plan().checkpoint_bytes;
        let storage = self.storage();
        if checkpoint_bytes > 0
            && storage.appended_bytes() > checkpoint_bytes
            && storage.state.index == applied
            && storage.base_index() < applied
            && self.replica.unsynced.is_empty()
        {
            if let Err(error) = self.storage().compact() {
                self.stop(&error.to_string());
                return Ok(());
            }
            self.system.tally.checkpoints += 1;
            self.note(|| format!("compacts its log up to {applied}"));
            // The file's sync, its name's, and the time to write it. Nothing is synced meanwhile.
            self.replica.syncing = Some(0);
            let factor = self.core.disk_factor(self.host);
            let after_ns = self.varied(self.plan().costs.sync_ns * 2) * factor;
            self.core.set_timer(self.me(), after_ns, Timer::Compacted);
        }
        Ok(())
    }

    /// The disk failed: what it holds is unknown. Without another word, until somebody starts the process
    /// again.
    fn stop(&mut self, why: &str) {
        self.note(|| format!("stops: {why}"));
        self.replica.stopped = Some(why.to_owned());
        self.replica.inbox.clear();
    }
}
