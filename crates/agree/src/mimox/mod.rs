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
//! The leader says with each opt-batch which batch stands before it. A replica delivers an opt-batch
//! optimistically only where that batch is the newest one that the replica has, in its log or ahead of it. So
//! the optimistic order has no gaps, and it differs from the final order only where leaders change. If the
//! log gets another batch than the next one ahead, all batches ahead are void. They are void, too, if none of
//! them is named for [`GIVE_UP_TICKS`]: their leader may be gone, and the next one may have nothing to name.
//!
//! # A new leader
//!
//! A new leader's first final-batch names the opt-batches that it had delivered optimistically: no replica
//! that has delivered the same ones takes them back. A replica drops a dead leader's other opt-batches when
//! the loose ones have more than [`LOOSE_BYTES_MAX`] bytes. Their requests come to the new leader again from
//! their gateways. The new leader takes each request once, because it counts the requests in its batches
//! ahead as taken.
//!
//! # Where this leaves the paper
//!
//! - A name is a digest of the content, where the paper has the numbers of an instance and of a sequence. A
//!   replica computes the name from what it received. So any replica's answer proves itself, the journal is
//!   that of a Raft group (a cluster may change its delivery between two starts), and a new leader can name a
//!   dead leader's opt-batches.
//! - A replica finds a gap by the predecessor's name. The paper's sequence numbers also repair the optimistic
//!   order after a gap; here it goes on behind the next final-batch.
//! - The leader sends an opt-batch to those replicas that keep up with the log. The others ask for the
//!   opt-batches that they find named, each of one node at a time; the paper broadcasts the question.
//! - No message accepts an opt-batch by itself: the acceptance of the final-batch implies it. Replicas accept
//!   to the leader, and hear of the decision from it.
//! - The proposer decides how large an opt-batch is (12 KB in the paper), and a tick is what the group's user
//!   makes it (10 ms in the paper).
//!
//! # Invariants ([`MimoxGroup::check_invariants`])
//!
//! 1. A replica holds every opt-batch that its log names, and every one ahead of its log.
//! 2. An opt-batch that is neither in the log nor ahead of it is *loose*. When a turn begins, the loose
//!    batches have at most [`LOOSE_BYTES_MAX`] bytes, without the newest.
//! 3. At most [`AHEAD_MAX`] batches are ahead. At most [`WAITING_MAX`] messages wait for opt-batches, of at
//!    most [`WAITING_BYTES_MAX`] bytes.

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
use message::{ASKED_MAX, BatchName, Own, Says};
use raft::eraftpb::{Message, MessageType};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use txn::mutant::{Mutant, is_active};
use txn::{NodeId, PartitionId};

pub use message::describe;

/// The leader closes a final-batch at this many opt-batches, even if another one is undecided (Archie,
/// section 3: five).
pub const OPT_BATCHES_MAX: usize = 5;
/// The most batches ahead of the log.
const AHEAD_MAX: usize = 256;
/// The loose batches, without the newest, have at most this many bytes.
const LOOSE_BYTES_MAX: u64 = 32 << 20;
/// The most messages that wait for opt-batches, and their bytes. The library sends again what is dropped.
const WAITING_MAX: usize = 64;
const WAITING_BYTES_MAX: usize = 4 << 20;
/// A replica asks for opt-batches of so many bytes at a time, or for one, and gives no more in one answer.
const ASK_BYTES_MAX: u64 = 1 << 20;
/// A replica gives each member opt-batches of at most this many bytes in a tick, beside the last one.
const GIVEN_BYTES_MAX: u64 = 8 << 20;
/// A replica asks again for an opt-batch after this many ticks, then after twice as many, up to eight times.
const ASK_AGAIN_TICKS: u64 = 4;
/// An opt-batch has one more tick to come for each so many bytes that it has.
const TICK_BYTES: u64 = 256 << 10;
/// After this many ticks without an answer a replica forgets the entries that wait. Its next refusal lets the
/// leader send the entries again, or offer a checkpoint.
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
    /// The commit index of the last turn. The library's own may be higher: no turn has told those entries
    /// yet.
    committed: u64,
    /// The last batch before those of the log, if this replica knows it.
    floor: Option<BatchName>,
    /// The batches ahead of the log, in their order.
    ahead: VecDeque<BatchName>,
    /// The tick at which they changed.
    ahead_since: u64,
    /// The number of batches at the end of `ahead` that no final-batch names. 0 where this replica does not
    /// lead.
    unproposed: usize,
    /// The last entry of the newest final-batch of this leader.
    proposed: u64,
    /// The term in which this replica leads.
    leads: Option<u64>,
    /// Rows of entries from the leader that wait for opt-batches, in the order of the log.
    waiting: VecDeque<Message>,
    /// The tick at which the first one began to wait, or its row went on.
    waits_since: u64,
    /// The opt-batch before the newest one that came is missing, and the sender of that one has it.
    gap: Option<(NodeId, BatchName)>,
    asked: BTreeMap<BatchName, Asked>,
    /// The bytes of opt-batches that were given to each member since the last tick.
    given: BTreeMap<NodeId, u64>,
    ticks: u64,
    /// A tick has come since opt-batches began to wait for a final-batch.
    is_late: bool,
    /// What the next turn says beside the library's.
    said: Vec<(NodeId, Bytes)>,
    told: Option<Ahead>,
    again: Vec<(NodeId, Bytes)>,
}

/// When this replica asks again for an opt-batch that it lacks.
#[derive(Clone, Copy, Debug)]
struct Asked {
    again_tick: u64,
    times: u32,
}

/// What a row of entries from the leader brings to the log.
struct Append {
    /// The entries that the log has not, as far as their opt-batches are held, and with these as their data.
    entries: Vec<Entry>,
    /// So many of the first batches among them are the next ones ahead of the log.
    known: usize,
    /// The message's first entries that are in the log or have their opt-batches held.
    usable: usize,
    /// The opt-batches that the next entries name and that are not held: the first of them, of about
    /// [`ASK_BYTES_MAX`] bytes.
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
        // A replica that has its log from the beginning knows that no batch stands before it.
        let floor = (base.index == 0).then_some(BatchName::NONE);
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
            floor,
            ahead: VecDeque::new(),
            ahead_since: 0,
            unproposed: 0,
            proposed: 0,
            leads: None,
            waiting: VecDeque::new(),
            waits_since: 0,
            gap: None,
            asked: BTreeMap::new(),
            given: BTreeMap::new(),
            ticks: 0,
            is_late: false,
            said: Vec::new(),
            told: None,
            again: Vec::new(),
        })
    }

    /// The last batch in the log, or before it. `None` if this replica does not know.
    fn logged_end(&self) -> Option<BatchName> {
        self.log.back().map(|(_, name)| *name).or(self.floor)
    }

    /// The number of batches ahead that stay in front of an opt-batch. `None` if the opt-batch does not stand
    /// behind a batch that this replica has in its optimistic order, or if its sender does not lead.
    fn place_ahead(&self, from: NodeId, term: u64, before: BatchName) -> Option<usize> {
        if self.raft.leader() != Some((from, term)) || from == self.me {
            return None;
        }
        let place = match self.ahead.iter().position(|name| *name == before) {
            Some(place) => place + 1,
            None if self.logged_end() == Some(before) => 0,
            None => return None,
        };
        let Some(other) = self.ahead.get(place) else {
            return (place < AHEAD_MAX).then_some(place);
        };
        // Another leader had sent another batch there. What the same leader sends again is there.
        (self.held.term_of(*other) < term).then_some(place)
    }

    fn push_ahead(&mut self, name: BatchName) {
        self.held.pin(name);
        self.ahead.push_back(name);
        self.ahead_since = self.ticks;
    }

    /// Only so many batches stay ahead of the log.
    fn truncate_ahead(&mut self, stays: usize) {
        for name in self.ahead.split_off(stays.min(self.ahead.len())) {
            self.held.unpin(name);
        }
        self.unproposed = self.unproposed.min(self.ahead.len());
        self.ahead_since = self.ticks;
    }

    /// Looks at a row of entries from the leader.
    fn look_at(&self, message: &Message) -> Result<Append, Contradiction> {
        let new = self.raft.check_append(message)?;
        let in_log = message.entries.len() - new.len();
        let replaces = new.first().is_some_and(|entry| entry.index <= self.last);
        let mut ahead = self.ahead.iter().take(if replaces { 0 } else { AHEAD_MAX }).fuse();
        let mut append =
            Append { entries: Vec::new(), known: 0, usable: message.entries.len(), missing: Vec::new() };
        let mut missing_bytes = 0;
        for (place, mut entry) in new.into_iter().enumerate() {
            if missing_bytes >= ASK_BYTES_MAX || append.missing.len() >= ASKED_MAX {
                break;
            }
            if is_batch(&entry) {
                let name = BatchName::of_entry(&entry.data);
                let name = name.ok_or(Contradiction("it has an entry that names no batch"))?;
                match self.held.find(name) {
                    Some(data) => entry.data = data,
                    None => {
                        if append.missing.is_empty() {
                            append.usable = in_log + place;
                        }
                        append.missing.push(name);
                        missing_bytes += u64::from(name.len);
                    }
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

    /// Whether a row of entries must wait for those that wait: the library would refuse it, and have all of
    /// them sent again.
    fn must_wait(&self, message: &Message) -> bool {
        let is_behind = self.waiting.front().is_some_and(|front| front.index < message.index);
        is_behind && message.term == self.raft.term() && message.index > self.raft.last_index()
    }

    /// A row of entries from the leader: the library gets those whose opt-batches are held; the others wait.
    fn append(&mut self, mut message: Message) -> Result<(), Refusal> {
        if self.must_wait(&message) {
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
        let rest = split(&mut message, append.usable);
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
        let order = |message: &Message| (message.term, message.index, message.entries.len());
        let place = self.waiting.partition_point(|other| order(other) < order(&message));
        if self.waiting.get(place) == Some(&message) {
            return;
        }
        if self.waiting.is_empty() {
            self.waits_since = self.ticks;
        }
        self.waiting.insert(place, message);
        self.waiting.truncate(WAITING_MAX);
        while self.waiting.len() > 1 && self.waiting_bytes() > WAITING_BYTES_MAX {
            self.waiting.pop_back();
        }
    }

    fn waiting_bytes(&self) -> usize {
        let bytes =
            |message: &Message| message.entries.iter().map(|entry| entry.data.len() + 32).sum::<usize>();
        self.waiting.iter().map(bytes).sum()
    }

    /// The first row that waits goes on, as far as its opt-batches are held: that part comes in again. So
    /// does a row that is of no use any more.
    fn wake(&mut self) {
        let term = self.raft.term();
        self.waiting.retain(|message| message.term >= term);
        let Some(front) = self.waiting.front() else { return };
        if front.term == term && front.index > self.raft.last_index() {
            // The entries before it are not there.
            return;
        }
        let Ok(Append { usable, missing, .. }) = self.look_at(front) else {
            self.waiting.pop_front();
            return;
        };
        if usable == 0 && !missing.is_empty() {
            return;
        }
        let Some(mut message) = self.waiting.pop_front() else { return };
        if !missing.is_empty() {
            let rest = split(&mut message, usable);
            self.waiting.push_front(rest);
        }
        self.waits_since = self.ticks;
        self.again.push((NodeId(message.from as u16), library::encode(&message)));
    }

    /// Asks for the opt-batches that are missing first, each not again too soon.
    fn ask(&mut self) {
        self.gap = self.gap.filter(|(_, name)| self.held.find(*name).is_none());
        let gap = self.gap;
        let mut wanted: BTreeMap<BatchName, NodeId> = gap.iter().map(|&(from, name)| (name, from)).collect();
        if let Some(message) = self.waiting.front()
            && let Ok(append) = self.look_at(message)
        {
            let from = NodeId(message.from as u16);
            wanted.extend(append.missing.into_iter().map(|name| (name, from)));
        }
        self.asked.retain(|name, _| wanted.contains_key(name));
        let mut asks: BTreeMap<NodeId, Vec<BatchName>> = BTreeMap::new();
        for (name, from) in wanted {
            let times = match self.asked.get(&name) {
                Some(asked) if self.ticks < asked.again_tick => continue,
                Some(asked) => asked.times,
                None => 0,
            };
            let to = self.asked_after(from, times);
            let patience = (ASK_AGAIN_TICKS << times.min(3)) + u64::from(name.len) / TICK_BYTES;
            self.asked.insert(name, Asked { again_tick: self.ticks + patience, times: times + 1 });
            asks.entry(to).or_default().push(name);
        }
        for (to, names) in asks {
            self.say(to, Says::Ask(names));
        }
    }

    /// What nobody gives is given up.
    fn give_up(&mut self) {
        let first = self.waiting.front().and_then(|front| self.look_at(front).ok()?.missing.first().copied());
        let patience = GIVE_UP_TICKS + first.map_or(0, |name| u64::from(name.len) / TICK_BYTES * 4);
        if self.ticks >= self.waits_since + patience {
            self.waiting.clear();
        }
        let asked = self.gap.and_then(|(_, name)| self.asked.get(&name));
        if asked.is_some_and(|asked| asked.times > 4) {
            self.gap = None;
        }
        if self.leads.is_none() && !self.ahead.is_empty() && self.ticks >= self.ahead_since + GIVE_UP_TICKS {
            self.truncate_ahead(0);
            self.told = Some(Ahead { stays: 0, batches: Vec::new() });
        }
    }

    fn say(&mut self, to: NodeId, says: Says) {
        self.said.push((to, Own { from: self.me, says }.encode()));
    }

    /// The member to ask after so many times, where this one was asked first: each in turn.
    fn asked_after(&self, first: NodeId, times: u32) -> NodeId {
        let mut others = members_of(&self.raft.members());
        others.remove(&self.me);
        let others = Vec::from_iter(others);
        let place = others.iter().position(|node| *node == first).unwrap_or(0);
        others.get((place + times as usize) % others.len().max(1)).copied().unwrap_or(first)
    }

    /// A message of this protocol, beside the library's.
    fn hear(&mut self, Own { from, says }: Own) -> Result<(), Refusal> {
        match says {
            Says::OptBatch { term, before, data } => {
                let place = self.place_ahead(from, term, before);
                let name = self.held.hold(data.clone());
                self.held.note_term(name, term);
                self.asked.remove(&name);
                if let Some(stays) = place {
                    self.truncate_ahead(stays);
                    self.push_ahead(name);
                    self.told = Some(Ahead { stays, batches: vec![data] });
                } else if self.gap.is_none() && before.is_known() && self.held.find(before).is_none() {
                    self.gap = Some((from, before));
                }
            }
            Says::Ask(names) => self.give(from, names),
            Says::Batches(all) => {
                let asked = all.into_iter().filter(|data| self.asked.remove(&BatchName::of(data)).is_some());
                // Nobody asked for the others, or they have come before.
                let asked: Vec<Bytes> = asked.collect();
                if asked.is_empty() {
                    return Err(Refusal::NotNow);
                }
                for data in asked {
                    self.held.hold(data);
                }
            }
        }
        // The next part may be asked for.
        self.ask();
        Ok(())
    }

    /// A member lacks opt-batches.
    fn give(&mut self, to: NodeId, names: Vec<BatchName>) {
        if !members_of(&self.raft.members()).contains(&to) {
            return;
        }
        let given = self.given.entry(to).or_default();
        let (mut all, mut bytes) = (Vec::new(), 0);
        for name in BTreeSet::from_iter(names) {
            if bytes >= ASK_BYTES_MAX || *given >= GIVEN_BYTES_MAX {
                break;
            }
            let Some(data) = self.held.find(name) else { continue };
            bytes += data.len() as u64;
            *given += data.len() as u64;
            all.push(data);
        }
        if !all.is_empty() {
            self.say(to, Says::Batches(all));
        }
    }

    /// A proposal: it goes to all replicas that keep up.
    fn propose(&mut self, data: Bytes) -> Result<(), Refusal> {
        let Some(term) = self.leads else {
            return Err(Refusal::NotLeader);
        };
        if self.ahead.len() >= AHEAD_MAX || self.raft.hands_over() {
            return Err(Refusal::NotNow);
        }
        let end = self.ahead.back().copied().or(self.logged_end());
        let says = Says::OptBatch { term, before: end.unwrap_or(BatchName::UNKNOWN), data: data.clone() };
        let message = Own { from: self.me, says }.encode();
        let name = self.held.hold(data.clone());
        self.held.note_term(name, term);
        let stays = self.ahead.len();
        self.push_ahead(name);
        self.unproposed += 1;
        for to in members_of(&self.raft.members()) {
            if to != self.me && self.raft.keeps_up(to) {
                self.said.push((to, message.clone()));
            }
        }
        match &mut self.told {
            Some(told) => told.batches.push(data),
            told => *told = Some(Ahead { stays, batches: vec![data] }),
        }
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
    /// of the log into it. Returns how many of the first batches were the next ones ahead, and whether all
    /// others ahead are void.
    fn logged(&mut self, kept: &mut Kept) -> (usize, bool) {
        let (Some(first), Some(last)) = (kept.entries.first(), kept.entries.last()) else {
            return (0, false);
        };
        let mut voids = first.index <= self.last;
        if voids {
            self.truncate_ahead(0);
            while let Some((_, name)) = self.log.pop_back_if(|(index, _)| *index >= first.index) {
                self.held.unpin(name);
            }
        }
        self.last = last.index;
        let mut known = 0;
        for entry in kept.entries.iter_mut().filter(|entry| is_batch(entry)) {
            let name =
                BatchName::of_entry(&entry.data).expect("the library has only entries that name batches");
            let is_taken = is_active(Mutant::TakeAheadForLogged) && !self.ahead.is_empty();
            if self.ahead.front() == Some(&name) {
                self.ahead.pop_front();
                known += 1;
            } else if is_taken && let Some(other) = self.ahead.pop_front() {
                self.held.unpin(other);
                self.held.pin(name);
                known += 1;
            } else {
                self.truncate_ahead(0);
                voids = true;
                self.held.pin(name);
            }
            entry.data = self.held.find(name).expect("the log has only entries whose batches are held");
            self.log.push_back((entry.index, name));
        }
        self.ahead_since = self.ticks;
        self.unproposed = self.unproposed.min(self.ahead.len());
        (known, voids)
    }

    /// What this protocol says beside the library, in a turn of its own.
    fn own_turn(&mut self) -> Option<Turn> {
        if self.told.is_none() && self.said.is_empty() && self.again.is_empty() {
            return None;
        }
        let committed = match is_active(Mutant::AgreedBeforeTold) {
            true => self.raft.committed(),
            false => self.committed,
        };
        Some(Turn {
            ahead: self.told.take(),
            messages: std::mem::take(&mut self.said),
            again: std::mem::take(&mut self.again),
            ..Turn::nothing(self.partition, committed)
        })
    }

    /// The module's invariants.
    pub fn check_invariants(&self) {
        assert!(self.waiting_bytes() <= WAITING_BYTES_MAX || self.waiting.len() == 1);
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

/// The first so many entries of a row stay; the row of the others.
fn split(message: &mut Message, stay: usize) -> Message {
    let others = message.entries.split_off(stay);
    let stays = std::mem::take(&mut message.entries);
    let mut rest = Message { entries: others, ..message.clone() };
    if let Some(last) = stays.last() {
        (rest.index, rest.log_term) = (last.index, last.term);
    }
    message.entries = stays;
    rest
}

/// The voters, old voters and learners: the nodes to which a leader sends entries.
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
                match self.place_ahead(from, term, before) {
                    Some(stays) => examined.ahead = Some(Ahead { stays, batches: vec![data] }),
                    None => examined.loose = vec![data],
                }
            }
            Some(Own { says: Says::Batches(all), .. }) => {
                examined.loose = all;
                examined.loose.retain(|data| self.asked.contains_key(&BatchName::of(data)));
            }
            Some(Own { says: Says::Ask(_), .. }) => {}
            None => {
                let message = self.raft.read(from, bytes)?;
                examined.asks_for_vote = asks_for_vote(&message);
                if message.get_msg_type() == MessageType::MsgAppend {
                    let append = self.look_at(&message)?;
                    let brings = !append.entries.is_empty() || !append.missing.is_empty();
                    examined.is_append = brings || self.must_wait(&message);
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
                self.given.clear();
                self.give_up();
                self.ask();
                self.raft.handle(Input::Tick)
            }
            other => self.raft.handle(other),
        }
    }

    fn turn(&mut self) -> Option<Turn> {
        self.held.drop_loose(LOOSE_BYTES_MAX);
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
        (turn.known, turn.voids_ahead) = self.logged(&mut turn.kept);
        self.committed = turn.committed;
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
            self.floor = Some(name);
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

    fn ahead(&self) -> usize {
        self.ahead.len()
    }
}
