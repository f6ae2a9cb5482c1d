//! A [`Group`] by Raft, as the `raft` crate implements it.
//!
//! What the crate leaves to its user, and what bites:
//! * It draws election timeouts from the operating system. After every call a timeout that depends on the
//!   seed, the node and the term takes their place, so that a simulated run can be repeated and candidates
//!   still rarely meet.
//! * Reads are confirmed by a majority each time (`ReadOnlyOption::Safe`): leases are unsafe, however good
//!   the clocks are.
//! * Its snapshots are not used: a replica that is too far behind fetches a checkpoint and begins anew behind
//!   it. So the library never installs one while it runs, which it does not take well if an election comes in
//!   between.
//! * A joint configuration ends by itself only if its leader stays: [`MemberChange::Finish`] ends it
//!   otherwise.

use super::message::{decode, encode, members_change, members_of};
use super::storage::Storage;
use super::{Contradiction, Examined, Group, GroupStatus, Input, MemberChange, Refusal, Role, Turn};
use bytes::Bytes;
use log::{Base, Entry, EntryKind, HardState, Kept, Members};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry as RaftEntry, EntryType,
    HardState as RaftHardState, Message, MessageType,
};
use raft::{Config, INVALID_ID, ProgressState, RawNode, SnapshotStatus, StateRole};
use slog::{Discard, Logger, o};
use std::collections::VecDeque;
use txn::hash::mix;
use txn::mutant::{Mutant, is_active};
use txn::{NodeId, PartitionId};

/// A heartbeat every tick would be noise; one every other tick leaves room for a lost one within the shortest
/// timeout.
const HEARTBEAT_TICKS: usize = 2;
/// Election timeouts are drawn from this many ticks on, to less than twice as many.
pub const ELECTION_TICKS: u64 = 10;
/// The most bytes of entries in one message.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// How many messages with entries may be on their way to a replica.
const MESSAGES_IN_FLIGHT_MAX: usize = 256;

/// A replica of a Raft group.
pub struct RaftGroup {
    raft: RawNode<Storage>,
    partition: PartitionId,
    seed: u64,
    members: Members,
    /// The members before each change behind the base: up to an entry.
    members_before: VecDeque<(u64, Members)>,
    /// Up to here agreed entries were looked at: the library may count them as applied.
    handed: u64,
    /// The newest turn with a term or a vote, until its record is kept.
    promise: Option<u64>,
}

/// Under which name a node's question travels.
fn name_of(node: u64, question: u64) -> Vec<u8> {
    [node, question].map(u64::to_le_bytes).concat()
}

/// The question of a name.
pub(super) fn question_of(name: &[u8]) -> Option<u64> {
    let (_, question) = name.split_last_chunk::<8>()?;
    Some(u64::from_le_bytes(*question))
}

impl RaftGroup {
    /// The replica of `me`, from what it had kept. `seed` decides when it stands for election, beside its
    /// number. Entries that a checkpoint covers are kept for replicas that are a little behind while the log
    /// has at most `trail_bytes_max`.
    ///
    /// # Errors
    /// The text says what is wrong with what was kept.
    pub fn new(
        me: NodeId,
        partition: PartitionId,
        base: Base,
        entries: Vec<Entry>,
        hard_state: HardState,
        seed: u64,
        trail_bytes_max: u64,
    ) -> Result<RaftGroup, String> {
        let config = Config {
            applied: base.index,
            election_tick: ELECTION_TICKS as usize,
            heartbeat_tick: HEARTBEAT_TICKS,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            ..Config::new(u64::from(me.0))
        };
        let members = base.members.clone();
        let handed = base.index;
        let entries = entries.into_iter().map(to_raft).collect();
        let hard_state =
            RaftHardState { term: hard_state.term, vote: hard_state.vote, commit: hard_state.commit };
        let storage = Storage::new(base, entries, hard_state, trail_bytes_max);
        let raft = RawNode::new(&config, storage, &Logger::root(Discard, o!()))
            .map_err(|error| format!("the log of {partition} cannot be used: {error}"))?;
        let mut group = RaftGroup {
            raft,
            partition,
            seed,
            members,
            members_before: VecDeque::new(),
            handed,
            promise: None,
        };
        group.set_timeout();
        Ok(group)
    }

    /// Puts our election timeout in the place of the library's, which nobody could repeat.
    fn set_timeout(&mut self) {
        let raft = &mut self.raft.raft;
        let who = raft.id << 32 ^ u64::from(self.partition.0) << 48;
        let ticks = ELECTION_TICKS + mix(self.seed ^ mix(who ^ mix(raft.term))) % ELECTION_TICKS;
        raft.set_randomized_election_timeout(ticks as usize);
    }

    /// The library's replica.
    pub(super) fn library(&self) -> &raft::Raft<Storage> {
        &self.raft.raft
    }

    fn is_leader(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// A sole voter that stands for election leads at once, and the library panics if its log is not durable
    /// then.
    fn would_lead_too_early(&self) -> bool {
        let raft = &self.raft.raft;
        let is_sole =
            self.members.voters == [NodeId(raft.id as u16)] && self.members.voters_outgoing.is_empty();
        is_sole && !self.is_leader() && raft.raft_log.persisted < raft.raft_log.last_index()
    }

    fn change(&mut self, change: MemberChange) -> Result<(), Refusal> {
        if !self.is_leader() {
            return Err(Refusal::NotLeader);
        }
        let single = |kind, node: NodeId| {
            let mut single = ConfChangeSingle::default();
            single.set_change_type(kind);
            single.node_id = u64::from(node.0);
            single
        };
        let mut record = ConfChangeV2::default();
        record.set_transition(ConfChangeTransition::Auto);
        match change {
            MemberChange::AddLearner(node) => {
                record.mut_changes().push(single(ConfChangeType::AddLearnerNode, node))
            }
            MemberChange::Replace { voters, leavers } => {
                let come = voters.into_iter().map(|node| single(ConfChangeType::AddNode, node));
                let go = leavers.into_iter().map(|node| single(ConfChangeType::RemoveNode, node));
                record.mut_changes().extend(come.chain(go));
            }
            MemberChange::Finish => {}
        }
        self.raft.propose_conf_change(Vec::new(), record).map_err(|_| Refusal::NotNow)
    }

    /// Takes what is agreed and changes the members.
    fn apply(&mut self, entries: &[RaftEntry]) -> bool {
        let mut changed = false;
        for entry in entries {
            self.handed = entry.index;
            if entry.get_entry_type() == EntryType::EntryNormal {
                continue;
            }
            if let Some(record) = members_change(&entry.data)
                && let Ok(conf_state) = self.raft.apply_conf_change(&record)
            {
                let before = std::mem::replace(&mut self.members, members_of(&conf_state));
                self.members_before.push_back((entry.index - 1, before));
                changed = true;
            }
        }
        changed
    }
}

impl RaftGroup {
    /// The library does not expect that a leader is no part of its group any more: such a one follows.
    fn step_down_if_removed(&mut self) {
        let raft = &mut self.raft.raft;
        if raft.state == StateRole::Leader && raft.prs().get(raft.id).is_none() {
            let term = raft.term;
            raft.become_follower(term, INVALID_ID);
        }
    }

    /// Under `everysec` and `no` a log may have lost entries in a power loss that others count on, which the
    /// library takes to be impossible: it would go on as if they were there, or panic. So who is told that
    /// more is agreed than it has says what it has, and the leader begins there. Knowing less of a follower
    /// than is true costs messages only.
    fn mend(&mut self, message: &mut Message) {
        let last = self.raft.raft.raft_log.last_index();
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if message.commit > last => {
                let answer = Message {
                    msg_type: MessageType::MsgAppendResponse,
                    from: self.raft.raft.id,
                    to: message.from,
                    term: message.term,
                    index: message.commit,
                    reject: true,
                    reject_hint: last,
                    ..Message::default()
                };
                if message.term >= self.raft.raft.term {
                    self.raft.raft.msgs.push(answer);
                }
                message.commit = last;
            }
            MessageType::MsgAppendResponse if message.reject => {
                let from = message.from;
                let progress = self.raft.raft.mut_prs().get_mut(from);
                if let Some(progress) = progress.filter(|known| message.reject_hint < known.matched) {
                    progress.matched = message.reject_hint;
                    progress.become_probe();
                }
            }
            _ => {}
        }
    }
}

/// What [`crate::MimoxGroup`] needs beside [`Group`].
impl RaftGroup {
    /// A message that is decoded.
    pub(super) fn step(&mut self, mut message: Message) -> Result<(), Refusal> {
        self.step_down_if_removed();
        // A message from a stranger, or one that comes too late, counts as lost.
        if self.is_of_no_use(&message) {
            return Err(Refusal::NotNow);
        }
        self.mend(&mut message);
        let stepped = self.raft.step(message);
        self.set_timeout();
        stepped.map_err(|_| Refusal::NotNow)
    }

    /// Proposes entries that follow each other: all, or none.
    pub(super) fn propose_all(&mut self, data: Vec<Bytes>) -> Result<(), Refusal> {
        if !self.is_leader() {
            return Err(Refusal::NotLeader);
        }
        let entries = data.into_iter().map(|data| RaftEntry { data, ..RaftEntry::default() });
        let mut message = Message { from: self.raft.raft.id, ..Message::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.entries = entries.collect();
        let proposed = self.raft.step(message);
        self.set_timeout();
        proposed.map_err(|_| Refusal::NotNow)
    }

    /// An entry weighs so many bytes more in memory than it has.
    pub(super) fn weigh(&mut self, more: fn(&[u8]) -> u64) {
        self.raft.mut_store().weigh(more);
    }

    pub(super) fn term(&self) -> u64 {
        self.raft.raft.term
    }

    pub(super) fn last_index(&self) -> u64 {
        self.raft.raft.raft_log.last_index()
    }

    /// The first entry that is kept in memory.
    pub(super) fn first_index(&self) -> u64 {
        self.raft.raft.raft_log.first_index()
    }

    pub(super) fn committed(&self) -> u64 {
        self.raft.raft.raft_log.committed
    }

    /// Whether this replica leads and hands over, so that it takes no proposals.
    pub(super) fn hands_over(&self) -> bool {
        self.raft.raft.lead_transferee.is_some()
    }

    /// Whether a replica gets entries as they come, as far as this leader knows.
    pub(super) fn keeps_up(&self, node: NodeId) -> bool {
        let progress = self.raft.raft.prs().get(u64::from(node.0));
        progress.is_some_and(|progress| progress.state == ProgressState::Replicate && !progress.is_paused())
    }
}

impl Group for RaftGroup {
    fn examine(&self, from: NodeId, message: &Bytes) -> Result<Examined, Contradiction> {
        self.examine_message(from, message)
    }

    fn handle(&mut self, input: Input) -> Result<(), Refusal> {
        self.step_down_if_removed();
        let result = match input {
            Input::Tick => {
                if !self.would_lead_too_early() {
                    self.raft.tick();
                }
                Ok(())
            }
            Input::Message(bytes) => match decode(&bytes) {
                Some(message) => self.step(message),
                None => Err(Refusal::Malformed),
            },
            Input::Propose(data) => self.propose_all(vec![data]),
            Input::AskIndex { question } => {
                // The library knows a question by its name alone, and all nodes ask the same leader.
                self.raft.read_index(name_of(self.raft.raft.id, question));
                Ok(())
            }
            Input::TransferLeader(to) => {
                if self.is_leader() {
                    self.raft.transfer_leader(u64::from(to.0));
                    Ok(())
                } else {
                    Err(Refusal::NotLeader)
                }
            }
            Input::Campaign => {
                if self.raft.raft.leader_id == INVALID_ID && !self.would_lead_too_early() {
                    // One that cannot lead, as a learner, stays as it is.
                    let _ = self.raft.campaign();
                }
                Ok(())
            }
            Input::ChangeMembers(change) => self.change(change),
            Input::TryAgain(node) => {
                self.raft.report_snapshot(u64::from(node.0), SnapshotStatus::Finish);
                Ok(())
            }
            Input::Unreachable(node) => {
                self.raft.report_unreachable(u64::from(node.0));
                Ok(())
            }
        };
        self.set_timeout();
        result
    }

    fn turn(&mut self) -> Option<Turn> {
        if !self.raft.has_ready() {
            return None;
        }
        let mut ready = self.raft.ready();
        let mut kept = Kept::nothing(self.partition);
        let hard_state = ready.hs().cloned();
        let entries = ready.take_entries();
        self.raft.mut_store().append(&entries);
        kept.entries = entries.into_iter().map(from_raft).collect();
        // A term or a vote may come with entries: it must be durable whatever they need.
        let before = self.raft.store().hard_state();
        let is_promise = hard_state.as_ref().is_some_and(|new| (new.term, new.vote) != before);
        if let Some(hard_state) = hard_state {
            kept.hard_state =
                Some(HardState { term: hard_state.term, vote: hard_state.vote, commit: hard_state.commit });
            self.raft.mut_store().set_hard_state(hard_state);
        }
        let number = ready.number();
        let must_sync = ready.must_sync();
        if is_promise {
            self.promise = Some(number);
        }
        let (mut free, mut bound) = (ready.take_messages(), ready.take_persisted_messages());
        if self.promise.is_some() {
            // The library takes a leader's term to be durable. A sole voter elects itself, and speaks to its
            // learners, in the turn that brings the term.
            bound.splice(..0, free.drain(..));
        } else {
            free.extend(bound.extract_if(.., |message| promises_nothing(message)));
        }
        let (mut messages, mut promises, mut behind) = (Vec::new(), Vec::new(), Vec::new());
        sort(free, &mut messages, &mut behind);
        sort(bound, &mut promises, &mut behind);
        let indices = ready
            .take_read_states()
            .into_iter()
            .filter_map(|state| Some((question_of(&state.request_ctx)?, state.index)))
            .collect();
        let agreed = ready.take_committed_entries();
        self.raft.advance_append_async(ready);
        let changed = self.apply(&agreed);
        self.advance_applied();
        self.set_timeout();
        if is_active(Mutant::ForgetVote)
            && let Some(hard_state) = &mut kept.hard_state
        {
            (hard_state.term, hard_state.vote) = (0, 0);
        }
        Some(Turn {
            number,
            messages,
            kept,
            must_sync,
            is_promise,
            promises,
            behind,
            indices,
            members: changed.then(|| self.members.clone()),
            ..Turn::nothing(self.partition, self.committed())
        })
    }

    fn kept(&mut self, number: u64) {
        self.step_down_if_removed();
        self.promise = self.promise.filter(|&promise| promise > number);
        self.raft.on_persist_ready(number);
        self.advance_applied();
        self.set_timeout();
    }

    fn rebase(&mut self, base: Base) {
        self.members_before.retain(|&(upto, _)| upto >= base.index);
        let applied = self.raft.raft.raft_log.applied;
        self.raft.mut_store().rebase(base, applied);
    }

    fn base(&self) -> &Base {
        self.raft.store().base()
    }

    fn members(&self) -> Members {
        self.members.clone()
    }

    fn members_at(&self, index: u64) -> Members {
        let before = self.members_before.iter().find(|&&(upto, _)| index <= upto);
        before.map_or_else(|| self.members.clone(), |(_, members)| members.clone())
    }

    fn entry(&self, index: u64) -> Option<Entry> {
        self.raft.store().entry(index).cloned().map(from_raft)
    }

    fn leads(&self) -> Option<u64> {
        self.is_leader().then_some(self.raft.raft.term)
    }

    fn leader(&self) -> Option<(NodeId, u64)> {
        let raft = &self.raft.raft;
        (raft.leader_id != INVALID_ID).then(|| (NodeId(raft.leader_id as u16), raft.term))
    }

    fn status(&self) -> GroupStatus {
        let raft = &self.raft.raft;
        let matched = if self.is_leader() {
            let progress = raft.prs().iter();
            let mut matched: Vec<_> =
                progress.map(|(&id, progress)| (NodeId(id as u16), progress.matched)).collect();
            matched.sort();
            matched
        } else {
            Vec::new()
        };
        GroupStatus {
            role: match raft.state {
                StateRole::Leader => Role::Leader,
                StateRole::Follower => Role::Follower,
                StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            },
            term: raft.term,
            leader: self.leader().map(|(leader, _)| leader),
            last: raft.raft_log.last_index(),
            committed: raft.raft_log.committed,
            persisted: raft.raft_log.persisted,
            applied: raft.raft_log.applied,
            members: self.members.clone(),
            matched,
        }
    }
}

impl RaftGroup {
    /// Batches are applied elsewhere; to the library everything that was handed out is. It may know only of
    /// what is kept.
    fn advance_applied(&mut self) {
        let log = &self.raft.raft.raft_log;
        let known = self.handed.min(log.persisted);
        if known > log.applied {
            self.raft.advance_apply_to(known);
        }
    }
}

/// Whether a follower's message says nothing of its log. The library holds every message of a follower until
/// its record is durable. A strict read at a follower needs these two of a majority, so it would wait for the
/// disks of a majority.
///
/// Both speak in the follower's term, so they still wait for a term that is not durable yet.
fn promises_nothing(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgReadIndex | MessageType::MsgHeartbeatResponse)
}

/// Sorts out who needs a checkpoint.
fn sort(from: Vec<Message>, messages: &mut Vec<(NodeId, Bytes)>, behind: &mut Vec<NodeId>) {
    for message in from {
        let to = NodeId(message.to as u16);
        if message.get_msg_type() == MessageType::MsgSnapshot {
            behind.push(to);
        } else {
            messages.push((to, encode(&message)));
        }
    }
}

fn to_raft(entry: Entry) -> RaftEntry {
    let mut out = RaftEntry::default();
    out.set_entry_type(match entry.kind {
        EntryKind::Data => EntryType::EntryNormal,
        EntryKind::Membership => EntryType::EntryConfChangeV2,
    });
    (out.index, out.term) = (entry.index, entry.term);
    out.data = entry.data;
    out
}

pub(super) fn from_raft(entry: RaftEntry) -> Entry {
    Entry {
        index: entry.index,
        term: entry.term,
        kind: match entry.get_entry_type() {
            EntryType::EntryNormal => EntryKind::Data,
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Membership,
        },
        data: entry.data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);

    fn sole_voter() -> RaftGroup {
        let members = Members { voters: vec![ME], learners: vec![NodeId(2)], ..Members::default() };
        let base = Base { index: 7, term: 4, members, state: Bytes::new() };
        let hard_state = HardState { term: 4, vote: 1, commit: 7 };
        RaftGroup::new(ME, PartitionId(0), base, Vec::new(), hard_state, 0, u64::MAX).expect("a log")
    }

    #[test]
    fn a_sole_voter_tells_its_learner_nothing_of_a_term_that_is_not_durable() {
        let mut group = sole_voter();
        group.handle(Input::Campaign).expect("it may");
        let mut promised = 0;
        while let Some(turn) = group.turn() {
            assert!(turn.messages.is_empty() || !turn.is_promise);
            promised += turn.promises.len();
            if turn.is_promise {
                group.handle(Input::Propose(Bytes::from_static(b"batch"))).expect("it leads");
                let next = group.turn().expect("entries");
                assert!(next.messages.is_empty(), "the record of the term is not kept yet");
                promised += next.promises.len();
                group.kept(turn.number);
                group.kept(next.number);
                continue;
            }
            group.kept(turn.number);
        }
        assert_eq!(group.leads(), Some(5));
        assert!(promised > 0, "it speaks to its learner");
        group.handle(Input::Tick).expect("it may");
        group.handle(Input::Tick).expect("it may");
        assert!(!group.turn().expect("a heartbeat").messages.is_empty(), "what is durable binds nothing");
    }

    #[test]
    fn who_is_to_lead_with_a_log_that_is_not_durable_waits() {
        let mut group = sole_voter();
        group.handle(Input::Campaign).expect("it may");
        let first = group.turn().expect("a term");
        let library = &mut group.raft.raft;
        let term = library.term;
        library.become_follower(term, INVALID_ID);
        group.handle(Input::Campaign).expect("it may");
        for _ in 0..3 * ELECTION_TICKS {
            group.handle(Input::Tick).expect("it may");
        }
        assert_eq!(group.leads(), None);
        group.kept(first.number);
        while let Some(turn) = group.turn() {
            group.kept(turn.number);
        }
        group.handle(Input::Campaign).expect("it may");
        assert!(group.leads().is_some());
    }
}
