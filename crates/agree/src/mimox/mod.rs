//! MiMoX: a [`Group`] whose leader sends data ahead and lets the replicas agree on its names (Archie,
//! section 3).
//!
//! # The protocol
//!
//! 1. A proposal is an *opt-batch*. The leader sends it to all replicas at once, and each replica delivers it
//!    optimistically ([`Turn::ahead`]).
//! 2. A *final-batch* is what the replicas agree on: a row of log entries, each the name of an opt-batch
//!    ([`BatchName`]: 16 bytes and the length). A final-batch goes through consensus like any other
//!    proposal, on the library ([`RaftGroup`]). The leader proposes one when no final-batch of its own is
//!    undecided, when [`OPT_BATCHES_MAX`] opt-batches wait for one, or at the next tick: an idle leader adds
//!    no delay.
//! 3. A replica takes an entry into its log only when it *holds* the opt-batch that the entry names. The
//!    record for the journal has the opt-batch itself, so what the replica promises is as durable as the
//!    options ask ([`Turn::kept`]).
//! 4. A replica that lacks an opt-batch asks for it: first the node that named it, then the other members in
//!    turn. Every replica that holds an opt-batch gives it.
//!
//! ```text
//!              the leader's opt-batch                a final-batch that names it
//!   unknown ─────────────────────────► held, ahead ─────────────────────────────► in the log ──► decided
//!      │                                 │     ▲                                      ▲
//!      │ comes by itself                 │     │ an opt-batch of a newer leader,      │
//!      ▼                                 ▼     │ another entry in the log             │
//!   held, loose ◄──────────────────────────────┘                                      │
//!      └──────────────────────────── a final-batch names it ──────────────────────────┘
//! ```
//!
//! # The optimistic order
//!
//! The leader says with each opt-batch which one comes before it. A replica delivers an opt-batch
//! optimistically only where it stands right behind the newest that the replica has: behind the last batch of
//! its log, or behind the last one ahead of the log. So the optimistic order has no gaps, and it differs from
//! the final order only where leaders change. If the log gets another entry than the next one ahead, all
//! batches ahead are void.
//!
//! # A new leader
//!
//! The opt-batches that a replica had delivered optimistically when it became the leader are its first
//! final-batch: nobody has to take them back. What else a dead leader had sent, and no log has, is dropped
//! when newer opt-batches need the room. Requests that were in it come to the new leader again by their
//! sender, and are taken once, because what is ahead of the leader's log counts as what the leader has.
//!
//! # Where this leaves the paper
//!
//! - Names are digests of the content instead of numbers of an instance and a sequence. A replica computes
//!   the name from what it received, so that any replica's answer proves itself, the journal is that of a
//!   Raft group (a cluster may change its delivery between two starts), and the opt-batches of a dead leader
//!   need no second identity.
//! - Gaps are found by the predecessor's name, where the paper has sequence numbers.
//! - An acceptance of an opt-batch by itself has no message: the acceptance of the final-batch implies it.
//! - The paper closes a final-batch after five opt-batches or 10 ms.
//!
//! # Invariants ([`MimoxGroup::check_invariants`])
//!
//! 1. A replica holds every opt-batch that its log names, and every one ahead of its log.
//! 2. An opt-batch that is neither in the log nor ahead of it is *loose*; loose ones have at most
//!    [`LOOSE_BYTES_MAX`] bytes, beside the newest.
//! 3. At most [`AHEAD_MAX`] batches are ahead, and at most [`WAITING_MAX`] messages wait for opt-batches.

mod held;
mod message;
#[cfg(test)]
mod tests;

use crate::examine::asks_for_vote;
use crate::message as library;
use crate::{Ahead, Contradiction, Examined, Group, GroupStatus, Input, RaftGroup, Refusal, Turn};
use bytes::Bytes;
use held::Held;
use log::{Base, Entry, EntryKind, HardState, Kept, Members};
use message::{BatchName, Own, Says};
use raft::eraftpb::{Message, MessageType};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use txn::mutant::{Mutant, is_active};
use txn::{NodeId, PartitionId};

pub use message::describe;

/// A final-batch has at least so many opt-batches if another one is undecided (Archie, section 3: five).
const OPT_BATCHES_MAX: usize = 5;
/// No more batches than this are ahead of the log.
const AHEAD_MAX: usize = 256;
/// Opt-batches that nothing names have at most so many bytes, beside the newest.
const LOOSE_BYTES_MAX: u64 = 32 << 20;
/// No more messages than this wait for opt-batches; the library sends again what is dropped.
const WAITING_MAX: usize = 64;
/// A replica asks for opt-batches of so many bytes at a time, or for one.
const ASK_BYTES_MAX: u64 = 1 << 20;
/// An opt-batch that did not come is asked for again after so many ticks.
const ASK_AGAIN_TICKS: u64 = 4;
/// Entries whose opt-batches nobody gives for so many ticks are as good as lost: a checkpoint may cover them
/// by now, and the leader must be able to say so.
const GIVE_UP_TICKS: u64 = 6 * ASK_AGAIN_TICKS;

/// A replica's part in a group that delivers by MiMoX. See the module's head.
pub struct MimoxGroup {
    /// Agrees on names.
    raft: RaftGroup,
    me: NodeId,
    partition: PartitionId,
    held: Held,
    /// The entries of the log that name opt-batches, and the last entry of any kind.
    log: VecDeque<(u64, BatchName)>,
    last: u64,
    /// What the last turn told to be agreed: the library may already know of more, in entries that no turn
    /// has told yet.
    committed: u64,
    /// The batches ahead of the log, in their order.
    ahead: VecDeque<BatchName>,
    /// The last so many of them are in no final-batch yet. 0 where this replica does not lead.
    unproposed: usize,
    /// The last entry of the newest final-batch of this leader.
    proposed: u64,
    /// The term in which this replica leads.
    leads: Option<u64>,
    /// Appended entries whose opt-batches are not all held, in the order of the log.
    waiting: VecDeque<Message>,
    /// When one began to wait, or something came that was asked for.
    waits_since: u64,
    /// An opt-batch is missing before the newest that came, and its sender has it.
    gap: Option<(NodeId, BatchName)>,
    /// What was asked for, and when.
    asked: BTreeMap<BatchName, u64>,
    ticks: u64,
    /// A tick has come since opt-batches began to wait for a final-batch.
    is_late: bool,
    /// What the next turn says beside the library's.
    said: Vec<(NodeId, Bytes)>,
    told: Option<Ahead>,
    again: Vec<(NodeId, Bytes)>,
}

/// What a row of entries from the leader brings to the log.
struct Append {
    /// The entries that the log has not, as far as their opt-batches are held, and with these as their data.
    entries: Vec<Entry>,
    /// So many of the first batches among them are the next ones ahead of the log.
    known: usize,
    /// The message's first entries that are in the log or have their opt-batches held.
    usable: usize,
    /// The opt-batches that the other entries name, and that are not held.
    missing: Vec<BatchName>,
}

impl MimoxGroup {
    /// The replica of `me`, from what it had kept: see [`RaftGroup::new`], whose journal this is, too.
    ///
    /// # Errors
    /// As [`RaftGroup::new`].
    pub fn new(
        me: NodeId,
        partition: PartitionId,
        base: Base,
        mut entries: Vec<Entry>,
        hard_state: HardState,
        seed: u64,
        trail_bytes_max: u64,
    ) -> Result<MimoxGroup, String> {
        let mut held = Held::default();
        let mut log = VecDeque::new();
        let last = entries.last().map_or(base.index, |entry| entry.index);
        for entry in &mut entries {
            if is_batch(entry) {
                let name = held.hold(entry.data.clone());
                held.pin(name);
                log.push_back((entry.index, name));
                entry.data = name.to_bytes();
            }
        }
        let mut raft = RaftGroup::new(me, partition, base, entries, hard_state, seed, trail_bytes_max)?;
        raft.weigh(|data| BatchName::of_entry(data).map_or(0, |name| u64::from(name.len)));
        Ok(MimoxGroup {
            raft,
            me,
            partition,
            held,
            log,
            last,
            committed: hard_state.commit,
            ahead: VecDeque::new(),
            unproposed: 0,
            proposed: 0,
            leads: None,
            waiting: VecDeque::new(),
            waits_since: 0,
            gap: None,
            asked: BTreeMap::new(),
            ticks: 0,
            is_late: false,
            said: Vec::new(),
            told: None,
            again: Vec::new(),
        })
    }

    /// The newest batch of the optimistic order.
    fn end(&self) -> BatchName {
        let last = self.ahead.back().or(self.log.back().map(|(_, name)| name));
        last.copied().unwrap_or(BatchName::NONE)
    }

    /// Where an opt-batch of a leader stands ahead of the log: behind so many that are there. `None` if it
    /// does not follow on what this replica has.
    fn place_ahead(&self, term: u64, before: BatchName) -> Option<usize> {
        if term < self.raft.term() || self.raft.leads().is_some() {
            return None;
        }
        if before == self.end() {
            return (self.ahead.len() < AHEAD_MAX).then_some(self.ahead.len());
        }
        // Another leader goes on from an earlier place.
        let logged = self.log.back().map_or(BatchName::NONE, |(_, name)| *name);
        let is_newer = self.held.term_of(self.end()) < term;
        match before == logged {
            true => is_newer.then_some(0),
            false => {
                let place = self.ahead.iter().position(|name| *name == before)?;
                is_newer.then_some(place + 1)
            }
        }
    }

    /// Which batches are told ahead once an opt-batch stands behind so many of them.
    fn ahead_with(&self, place: usize, data: Bytes) -> Ahead {
        let is_new = place < self.ahead.len();
        let kept = self.ahead.iter().take(if is_new { place } else { 0 });
        let batches = kept.filter_map(|name| self.held.find(*name)).chain([data]);
        Ahead { anew: is_new, batches: batches.collect() }
    }

    fn tell(&mut self, ahead: Ahead) {
        match &mut self.told {
            Some(told) if !ahead.anew => told.batches.extend(ahead.batches),
            told => *told = Some(ahead),
        }
    }

    /// Nothing is ahead of the log any more.
    fn void_ahead(&mut self) {
        for name in std::mem::take(&mut self.ahead) {
            self.held.unpin(name);
        }
        self.unproposed = 0;
    }

    /// Looks at a row of entries from the leader.
    fn look_at(&self, message: &Message) -> Result<Append, Contradiction> {
        let new = self.raft.check_append(message)?;
        let in_log = message.entries.len() - new.len();
        let replaces = new.first().is_some_and(|entry| entry.index <= self.last);
        let mut ahead = self.ahead.iter().take(if replaces { 0 } else { AHEAD_MAX }).fuse();
        let mut append =
            Append { entries: Vec::new(), known: 0, usable: message.entries.len(), missing: Vec::new() };
        for (place, mut entry) in new.into_iter().enumerate() {
            if is_batch(&entry) {
                let name = BatchName::of_entry(&entry.data);
                let name = name.ok_or(Contradiction("it has an entry that names no batch"))?;
                match self.held.find(name) {
                    Some(data) => entry.data = data,
                    None if append.missing.is_empty() => {
                        append.usable = in_log + place;
                        append.missing.push(name);
                    }
                    None => append.missing.push(name),
                }
                match ahead.next() {
                    Some(next) if *next == name => append.known += 1,
                    _ => ahead = self.ahead.iter().take(0).fuse(),
                }
            }
            if append.missing.is_empty() {
                append.entries.push(entry);
            }
        }
        Ok(append)
    }

    /// A row of entries from the leader: the library gets those whose opt-batches are held; the others wait.
    fn append(&mut self, mut message: Message) -> Result<(), Refusal> {
        let (first, is_late) = (message.index, message.term < self.raft.term());
        let waits = self.waiting.front().is_some_and(|front| front.index < first);
        if waits && !is_late && first > self.raft.last_index() {
            // The library would refuse it because of those that wait, and would have everything sent again.
            self.wait(message);
            return Ok(());
        }
        let append = self.look_at(&message).map_err(|_| Refusal::Malformed)?;
        if append.missing.is_empty() {
            return self.raft.step(message);
        }
        if is_active(Mutant::PromiseBeforeHeld) {
            self.promise_before_held(&message);
        }
        let mut rest = message.clone();
        rest.entries = message.entries.split_off(append.usable);
        if let Some(last) = message.entries.last() {
            (rest.index, rest.log_term) = (last.index, last.term);
        }
        self.wait(rest);
        let stepped = match message.entries.is_empty() {
            true => Ok(()),
            false => self.raft.step(message),
        };
        self.ask();
        stepped
    }

    fn promise_before_held(&mut self, message: &Message) {
        let mut promise = Message::default();
        promise.set_msg_type(MessageType::MsgAppendResponse);
        (promise.from, promise.to) = (message.to, message.from);
        (promise.term, promise.index) = (message.term, message.entries.last().map_or(0, |entry| entry.index));
        self.said.push((NodeId(message.from as u16), library::encode(&promise)));
    }

    /// Keeps a row of entries until its opt-batches are held.
    fn wait(&mut self, message: Message) {
        if self.waiting.is_empty() {
            self.waits_since = self.ticks;
        }
        let order = |message: &Message| (message.term, message.index, message.entries.len());
        let place = self.waiting.partition_point(|other| order(other) < order(&message));
        if self.waiting.get(place) != Some(&message) {
            self.waiting.insert(place, message);
            self.waiting.truncate(WAITING_MAX);
        }
    }

    /// Rows of entries that waited come in again, if what they waited for is held or they are of no use.
    fn wake(&mut self) {
        let term = self.raft.term();
        self.waiting.retain(|message| message.term >= term);
        while let Some(message) = self.waiting.front() {
            let (is_whole, is_usable) = match self.look_at(message) {
                Ok(append) => (append.missing.is_empty(), !append.entries.is_empty()),
                Err(_) => (true, true),
            };
            if !is_whole && !is_usable {
                return;
            }
            self.again.push((NodeId(message.from as u16), library::encode(message)));
            self.waiting.pop_front();
            if !is_whole {
                // What follows waits for the rest of it.
                return;
            }
        }
    }

    /// Asks for the opt-batches that are missing first, each not again too soon.
    fn ask(&mut self) {
        let mut wanted: Vec<(NodeId, BatchName)> = Vec::new();
        if let Some(message) = self.waiting.front()
            && let Ok(append) = self.look_at(message)
        {
            let mut bytes = 0;
            let fits = |name: &BatchName| {
                let is_first = bytes == 0;
                bytes += u64::from(name.len);
                is_first || bytes <= ASK_BYTES_MAX
            };
            wanted.extend(
                append.missing.into_iter().take_while(fits).map(|name| (NodeId(message.from as u16), name)),
            );
        }
        wanted.extend(self.gap.filter(|(_, name)| self.held.find(*name).is_none()));
        let is_wanted = |name: &BatchName, _: &mut u64| wanted.iter().any(|(_, other)| other == name);
        self.asked.retain(is_wanted);
        let mut asks: BTreeMap<NodeId, Vec<BatchName>> = BTreeMap::new();
        for (from, name) in wanted {
            let to = match self.asked.get(&name) {
                Some(tick) if self.ticks < tick + ASK_AGAIN_TICKS => continue,
                // The node that named it has not given it: perhaps another one does.
                Some(_) => self.another(from),
                None => from,
            };
            self.asked.insert(name, self.ticks);
            asks.entry(to).or_default().push(name);
        }
        for (to, names) in asks {
            self.say(to, Says::Ask(names));
        }
    }

    fn say(&mut self, to: NodeId, says: Says) {
        self.said.push((to, Own { from: self.me, says }.encode()));
    }

    /// A member to ask in the place of this one: each in turn.
    fn another(&self, from: NodeId) -> NodeId {
        let others: Vec<NodeId> =
            members_of(&self.raft.members()).into_iter().filter(|node| *node != self.me).collect();
        match others.is_empty() {
            true => from,
            false => others[(self.ticks / ASK_AGAIN_TICKS) as usize % others.len()],
        }
    }

    /// A message of this protocol, beside the library's.
    fn hear(&mut self, Own { from, says }: Own) -> Result<(), Refusal> {
        match says {
            Says::OptBatch { term, before, data } => {
                let place = self.place_ahead(term, before);
                let name = self.held.hold(data.clone());
                self.held.note_term(name, term);
                self.asked.remove(&name);
                if let Some(place) = place {
                    let ahead = self.ahead_with(place, data);
                    for name in self.ahead.split_off(place) {
                        self.held.unpin(name);
                    }
                    self.held.pin(name);
                    self.ahead.push_back(name);
                    self.tell(ahead);
                } else if before != BatchName::NONE && self.held.find(before).is_none() {
                    self.gap = Some((from, before));
                    self.ask();
                }
            }
            Says::Ask(names) => {
                let mut bytes = 0;
                for name in names {
                    let Some(data) = self.held.find(name) else { continue };
                    bytes += data.len() as u64;
                    self.say(from, Says::Batch(data));
                    if bytes >= ASK_BYTES_MAX {
                        break;
                    }
                }
            }
            Says::Batch(data) => {
                // Nobody asked for it, or it has come before.
                self.asked.remove(&BatchName::of(&data)).ok_or(Refusal::NotNow)?;
                self.waits_since = self.ticks;
                self.held.hold(data);
            }
        }
        // What was asked for has come: the next part may be asked for.
        self.ask();
        Ok(())
    }

    /// A proposal: it goes to all replicas at once.
    fn propose(&mut self, data: Bytes) -> Result<(), Refusal> {
        let Some(term) = self.leads else {
            return Err(Refusal::NotLeader);
        };
        if self.ahead.len() >= AHEAD_MAX || self.raft.hands_over() {
            return Err(Refusal::NotNow);
        }
        let says = Says::OptBatch { term, before: self.end(), data: data.clone() };
        let message = Own { from: self.me, says }.encode();
        let name = self.held.hold(data.clone());
        self.held.note_term(name, term);
        self.held.pin(name);
        self.ahead.push_back(name);
        self.unproposed += 1;
        // A replica that is not heard of, or is far behind, asks for what it finds named.
        for to in members_of(&self.raft.members()) {
            if to != self.me && self.raft.keeps_up(to) {
                self.said.push((to, message.clone()));
            }
        }
        self.tell(Ahead { anew: false, batches: vec![data] });
        Ok(())
    }

    /// Proposes what is in no final-batch yet, if that is due. Everything that the library has is in
    /// [`MimoxGroup::log`] now, so that nothing is named twice.
    fn propose_final_batch(&mut self, is_late: bool) {
        debug_assert_eq!(self.last, self.raft.last_index());
        let is_due = is_late || self.unproposed >= OPT_BATCHES_MAX || self.proposed <= self.raft.committed();
        if self.unproposed == 0 || !is_due {
            return;
        }
        let names = self.ahead.iter().skip(self.ahead.len() - self.unproposed);
        let names: Vec<Bytes> = names.map(|name| name.to_bytes()).collect();
        // A leader that is handing over proposes nothing; it tries again if it stays.
        if self.raft.propose_all(names).is_ok() {
            self.unproposed = 0;
            self.proposed = self.raft.last_index();
        }
    }

    /// Notes whether this replica leads.
    fn notice_role(&mut self) {
        let leads = self.raft.leads();
        if leads != self.leads {
            self.leads = leads;
            self.proposed = 0;
            // What a new leader had delivered optimistically is its first final-batch.
            self.unproposed = leads.map_or(0, |_| self.ahead.len());
        }
    }

    /// Puts opt-batches in the place of their names in entries that the log gets, and moves the batches ahead
    /// of the log into it. Returns how many of the first batches were the next ones ahead.
    fn logged(&mut self, kept: &mut Kept) -> usize {
        let (Some(first), Some(last)) = (kept.entries.first(), kept.entries.last()) else {
            return 0;
        };
        if first.index <= self.last {
            self.void_ahead();
            while let Some((_, name)) = self.log.pop_back_if(|(index, _)| *index >= first.index) {
                self.held.unpin(name);
            }
        }
        self.last = last.index;
        let mut known = 0;
        for entry in kept.entries.iter_mut().filter(|entry| is_batch(entry)) {
            let name =
                BatchName::of_entry(&entry.data).expect("the library has only entries that name batches");
            if self.ahead.front() == Some(&name) {
                self.ahead.pop_front();
                known += 1;
            } else {
                self.void_ahead();
                self.held.pin(name);
            }
            entry.data = self.held.find(name).expect("the log has only entries whose batches are held");
            self.log.push_back((entry.index, name));
        }
        known
    }

    /// What this protocol says beside the library, in a turn of its own.
    fn own_turn(&mut self) -> Option<Turn> {
        if self.told.is_none() && self.said.is_empty() && self.again.is_empty() {
            return None;
        }
        Some(Turn {
            ahead: self.told.take(),
            messages: std::mem::take(&mut self.said),
            again: std::mem::take(&mut self.again),
            ..Turn::nothing(self.partition, self.committed)
        })
    }

    /// The module's invariants.
    pub fn check_invariants(&self) {
        let named = self.log.iter().map(|(_, name)| name).chain(&self.ahead);
        assert!(named.clone().all(|name| self.held.find(*name).is_some()));
        assert_eq!(named.count(), self.held.pins());
        self.held.check_invariants();
        assert!(self.ahead.len() <= AHEAD_MAX && self.unproposed <= self.ahead.len());
        assert!(self.waiting.len() <= WAITING_MAX);
    }
}

/// Whether an entry brings a batch: a leader's first one, and changes of members, do not.
fn is_batch(entry: &Entry) -> bool {
    entry.kind == EntryKind::Data && !entry.data.is_empty()
}

/// All who get entries.
fn members_of(members: &Members) -> BTreeSet<NodeId> {
    let lists = [&members.voters, &members.voters_outgoing, &members.learners, &members.learners_next];
    lists.into_iter().flatten().copied().collect()
}

impl Group for MimoxGroup {
    fn examine(&self, from: NodeId, bytes: &Bytes) -> Result<Examined, Contradiction> {
        let mut examined = Examined::default();
        match Own::decode(bytes)? {
            Some(own) if own.from != from => {
                return Err(Contradiction("it is not from the node that sent it"));
            }
            Some(Own { says: Says::OptBatch { term, before, data }, .. }) => {
                self.raft.check_term(term)?;
                match self.place_ahead(term, before) {
                    Some(place) => examined.ahead = Some(self.ahead_with(place, data)),
                    None => examined.loose = Some(data),
                }
            }
            Some(Own { says: Says::Batch(data), .. }) => examined.loose = Some(data),
            Some(Own { says: Says::Ask(_), .. }) => {}
            None => {
                let message = self.raft.read(from, bytes)?;
                examined.asks_for_vote = asks_for_vote(&message);
                if message.get_msg_type() == MessageType::MsgAppend {
                    let append = self.look_at(&message)?;
                    examined.is_append = !append.entries.is_empty() || !append.missing.is_empty();
                    (examined.appends, examined.known) = (append.entries, append.known);
                }
            }
        }
        Ok(examined)
    }

    fn handle(&mut self, input: Input) -> Result<(), Refusal> {
        match input {
            Input::Message(bytes) => match Own::decode(&bytes) {
                Ok(Some(own)) => self.hear(own),
                Ok(None) => match library::decode(&bytes) {
                    Some(message) if message.get_msg_type() == MessageType::MsgAppend => self.append(message),
                    Some(message) => self.raft.step(message),
                    None => Err(Refusal::Malformed),
                },
                Err(_) => Err(Refusal::Malformed),
            },
            Input::Propose(data) => self.propose(data),
            Input::Tick => {
                self.ticks += 1;
                self.is_late = self.unproposed > 0;
                if self.ticks >= self.waits_since + GIVE_UP_TICKS {
                    self.waiting.clear();
                }
                self.ask();
                self.raft.handle(Input::Tick)
            }
            other => self.raft.handle(other),
        }
    }

    fn turn(&mut self) -> Option<Turn> {
        self.wake();
        if let Some(turn) = self.own_turn() {
            return Some(turn);
        }
        let mut turn = self.raft.turn();
        if turn.is_none() {
            self.notice_role();
            let is_late = std::mem::take(&mut self.is_late);
            self.propose_final_batch(is_late);
            turn = self.raft.turn();
        }
        let mut turn = turn?;
        turn.known = self.logged(&mut turn.kept);
        self.committed = turn.committed;
        self.held.drop_loose(LOOSE_BYTES_MAX);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        Some(turn)
    }

    fn kept(&mut self, number: u64) {
        // A turn of this protocol's own has nothing to keep, and the library does not know it.
        if number > 0 {
            self.raft.kept(number);
        }
    }

    fn rebase(&mut self, base: Base) {
        self.raft.rebase(base);
        let first = self.raft.first_index();
        while let Some((_, name)) = self.log.pop_front_if(|(index, _)| *index < first) {
            self.held.forget(name);
        }
    }

    fn base(&self) -> &Base {
        self.raft.base()
    }

    fn members(&self) -> Members {
        self.raft.members()
    }

    fn members_at(&self, index: u64) -> Members {
        self.raft.members_at(index)
    }

    fn entry(&self, index: u64) -> Option<Entry> {
        let mut entry = self.raft.entry(index)?;
        if is_batch(&entry) {
            entry.data = self.held.find(BatchName::of_entry(&entry.data)?)?;
        }
        Some(entry)
    }

    fn leads(&self) -> Option<u64> {
        self.raft.leads()
    }

    fn leader(&self) -> Option<(NodeId, u64)> {
        self.raft.leader()
    }

    fn status(&self) -> GroupStatus {
        self.raft.status()
    }
}
