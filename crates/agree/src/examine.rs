//! What a message must be like before the library sees it.
//!
//! The library takes it for granted that replicas say what the protocol has them say, and ends the process
//! where that is not so: entries with gaps, entries in the place of agreed ones, answers to questions that
//! were not asked, terms at the end of the numbers. A peer's bytes are no reason to end. So whatever a
//! message says that no replica could say to this one is found here, and the message is refused. (A replica
//! that lies within the protocol is not noticed: it can have its group agree on anything.)

use super::raft_group::RaftGroup;
use super::{Contradiction, Entry, Examined, message};
use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{EntryType, Message, MessageType};
use txn::NodeId;

/// The most elections that a replica can have missed.
const TERMS_MISSED_MAX: u64 = 1 << 32;
/// What a question's name takes, and the word by which a candidate says that it was asked to stand.
const CONTEXT_BYTES: usize = 16;

/// Whether a message asks for a vote, or whether it would be given.
pub(super) fn asks_for_vote(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
}

impl RaftGroup {
    /// See [`super::Group::examine`].
    pub(super) fn examine_message(&self, from: NodeId, bytes: &Bytes) -> Result<Examined, Contradiction> {
        let message = self.read(from, bytes)?;
        if message.get_msg_type() == MessageType::MsgAppend {
            let appends = self.check_append(&message)?;
            return Ok(Examined { is_append: !appends.is_empty(), appends, ..Examined::default() });
        }
        Ok(Examined { asks_for_vote: asks_for_vote(&message), ..Examined::default() })
    }

    /// A message with the head that it must have.
    pub(super) fn read(&self, from: NodeId, bytes: &Bytes) -> Result<Message, Contradiction> {
        let message =
            message::decode(bytes).ok_or(Contradiction("its bytes are no message of a consensus group"))?;
        self.check_head(from, &message)?;
        Ok(message)
    }

    /// No term lies far ahead of this replica's.
    pub(super) fn check_term(&self, term: u64) -> Result<(), Contradiction> {
        match term > self.library().term.saturating_add(TERMS_MISSED_MAX) {
            true => Err(Contradiction("its term is beyond any that can be")),
            false => Ok(()),
        }
    }

    /// What all messages have in common.
    fn check_head(&self, from: NodeId, message: &Message) -> Result<(), Contradiction> {
        self.check_term(message.term)?;
        let raft = self.library();
        let kind = message.get_msg_type();
        let is_question = kind == MessageType::MsgReadIndex;
        let from = u64::from(from.0);
        // A question may have come to a replica that had just ceased to lead, and passes it on.
        let is_from = match is_question {
            true => (1..=u64::from(u16::MAX)).contains(&message.from),
            false => message.from == from,
        };
        let entries = match kind {
            MessageType::MsgAppend => true,
            MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => {
                message.entries.len() == 1 && message.entries[0].data.len() == CONTEXT_BYTES
            }
            _ => message.entries.is_empty(),
        };
        let numbers =
            [message.index, message.log_term, message.commit, message.commit_term, message.reject_hint];
        let problem = match () {
            () if !is_from || from == raft.id => "it is not from the node that sent it",
            () if message.to != raft.id => "it is for another node",
            // The library takes those without a term for the node's own.
            () if (message.term == 0) != is_question => "its term is none",
            () if numbers.iter().any(|&number| number >= u64::MAX / 4) => {
                "its numbers are beyond any that can be"
            }
            () if !entries => "it has other entries than such a message",
            () if ![0, CONTEXT_BYTES].contains(&message.context.len()) => {
                "it has another context than such a message"
            }
            () if message.request_snapshot != 0 => "it asks for a snapshot, which no replica does",
            () => return Ok(()),
        };
        Err(Contradiction(problem))
    }

    /// What a leader appends: which entries of it this log has not.
    pub(super) fn check_append(&self, message: &Message) -> Result<Vec<Entry>, Contradiction> {
        let log = &self.library().raft_log;
        if (message.index == 0) != (message.log_term == 0) {
            return Err(Contradiction("only an empty log ends in no term"));
        }
        let (mut index, mut term) = (message.index, message.log_term);
        for entry in &message.entries {
            index += 1;
            if entry.index != index {
                return Err(Contradiction("its entries have gaps"));
            }
            if !(term.max(1)..=message.term).contains(&entry.term) {
                return Err(Contradiction("its entries are of terms that go back, or that have not begun"));
            }
            if entry.get_entry_type() == EntryType::EntryConfChangeV2
                && message::members_change(&entry.data).is_none()
            {
                return Err(Contradiction("it changes the members in a way that cannot be read"));
            }
            term = entry.term;
        }
        let is_taken = message.term >= self.library().term
            && message.index >= log.committed
            && log.match_term(message.index, message.log_term);
        if !is_taken {
            return Ok(Vec::new());
        }
        let is_known = |entry: &&raft::eraftpb::Entry| log.match_term(entry.index, entry.term);
        let new = message.entries.iter().skip_while(is_known);
        Ok(new.cloned().map(super::raft_group::from_raft).collect())
    }

    /// Whether a message must be taken for lost: it answers what this replica has not asked yet, because what
    /// it would promise is not kept; or it tells a leader of entries that the leader has not made (which a
    /// follower has if all others have lost the ends of their logs).
    pub(super) fn is_of_no_use(&self, message: &Message) -> bool {
        let raft = self.library();
        let last = raft.raft_log.last_index();
        match message.get_msg_type() {
            MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVoteResponse
            | MessageType::MsgTimeoutNow => raft.raft_log.persisted != last,
            MessageType::MsgAppendResponse => {
                let is_answer = raft.state == StateRole::Leader && message.term == raft.term;
                is_answer && (message.index > last || message.reject && message.reject_hint > last)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, Input, Refusal};
    use log::{Base, HardState, Members};
    use raft::eraftpb::Entry as RaftEntry;
    use txn::PartitionId;

    const LEADER: NodeId = NodeId(2);

    /// Replica 1 of three.
    fn replica() -> RaftGroup {
        let base = Base {
            members: Members { voters: [1, 2, 3].map(NodeId).to_vec(), ..Members::default() },
            ..Base::default()
        };
        let hard_state = HardState::default();
        RaftGroup::new(NodeId(1), PartitionId(0), base, Vec::new(), hard_state, 7, 0).expect("a new log")
    }

    fn entry(index: u64, term: u64) -> RaftEntry {
        let mut entry = RaftEntry::default();
        (entry.index, entry.term) = (index, term);
        entry
    }

    /// What the leader of term 2 appends behind an entry: these, with their terms.
    fn append(behind: (u64, u64), entries: &[(u64, u64)]) -> Message {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.to, message.from, message.term) = (1, 2, 2);
        (message.index, message.log_term) = behind;
        for &(index, term) in entries {
            message.entries.push(entry(index, term));
        }
        message
    }

    fn of_kind(kind: MessageType) -> Message {
        let mut message = append((0, 0), &[]);
        message.set_msg_type(kind);
        message
    }

    /// Does what the turns want, but for what is to be kept.
    fn take_turns(group: &mut RaftGroup) -> Vec<u64> {
        std::iter::from_fn(|| group.turn()).map(|turn| turn.number).collect()
    }

    fn hear(group: &mut RaftGroup, message: &Message) -> Result<(), Refusal> {
        let bytes = message::encode(message);
        group.examine(LEADER, &bytes).expect("it can be");
        group.handle(Input::Message(bytes))
    }

    /// A replica with three entries, of which two are agreed.
    fn with_entries() -> RaftGroup {
        let mut group = replica();
        let mut message = append((0, 0), &[(1, 1), (2, 1), (3, 2)]);
        message.commit = 2;
        hear(&mut group, &message).expect("it is taken");
        for number in take_turns(&mut group) {
            group.kept(number);
        }
        take_turns(&mut group);
        assert_eq!((group.status().last, group.status().committed), (3, 2));
        group
    }

    #[test]
    fn what_no_replica_could_say_is_refused() {
        let group = with_entries();
        type Change = fn(&mut Message);
        let appends: [(&str, Change); 12] = [
            ("sender", |message| message.from = 3),
            ("receiver", |message| message.to = 3),
            ("no term", |message| message.term = 0),
            ("late term", |message| message.term = 1 << 40),
            ("large index", |message| message.index = u64::MAX - 1),
            ("large commit", |message| message.commit = u64::MAX),
            ("context", |message| message.context = Bytes::from_static(b"?")),
            ("snapshot", |message| message.request_snapshot = 1),
            ("a place without a term", |message| message.log_term = 0),
            ("a gap", |message| message.entries[1].index = 6),
            ("terms that go back", |message| message.entries[1].term = 1),
            ("terms to come", |message| message.entries[1].term = 3),
        ];
        let sound = append((3, 2), &[(4, 2), (5, 2)]);
        let examine = |message: &Message| group.examine(LEADER, &message::encode(message));
        assert_eq!(examine(&sound).expect("sound").appends.len(), 2);
        for (what, change) in appends {
            let mut message = sound.clone();
            change(&mut message);
            assert!(examine(&message).is_err(), "{what}");
        }
        for kind in [MessageType::MsgReadIndex, MessageType::MsgHeartbeat, MessageType::MsgRequestVote] {
            let mut message = of_kind(kind);
            message.entries.push(entry(1, 1));
            assert!(examine(&message).is_err(), "{kind:?} with an entry");
        }
        for kind in [
            MessageType::MsgPropose,
            MessageType::MsgTransferLeader,
            MessageType::MsgSnapshot,
            MessageType::MsgHup,
        ] {
            assert!(examine(&of_kind(kind)).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn what_a_log_would_get_is_told() {
        let group = with_entries();
        let gets = |message: &Message| -> Vec<(u64, u64)> {
            let examined = group.examine(LEADER, &message::encode(message)).expect("it can be");
            examined.appends.iter().map(|entry| (entry.index, entry.term)).collect()
        };
        assert_eq!(gets(&append((2, 1), &[(3, 2), (4, 2)])), [(4, 2)], "what it has");
        assert_eq!(gets(&append((2, 1), &[(3, 1), (4, 2)])), [(3, 1), (4, 2)], "what is replaced");
        assert_eq!(gets(&append((3, 1), &[(4, 2)])), [], "behind another entry");
        assert_eq!(gets(&append((9, 2), &[(10, 2)])), [], "behind a gap");
        assert_eq!(gets(&append((1, 1), &[(2, 2)])), [], "what is agreed");
        let mut late = append((3, 2), &[(4, 1)]);
        (late.term, late.log_term) = (1, 1);
        assert_eq!(gets(&late), [], "of an earlier leader");
    }

    /// The library counts on it that votes are asked for once the log is kept, and that nobody gives them
    /// before.
    #[test]
    fn votes_that_were_not_asked_for_make_no_leader() {
        let mut group = replica();
        hear(&mut group, &append((0, 0), &[(1, 1), (2, 2)])).expect("it is taken");
        take_turns(&mut group);
        for _ in 0..100 {
            group.handle(Input::Tick).expect("a tick");
            take_turns(&mut group);
            for kind in [
                MessageType::MsgRequestPreVoteResponse,
                MessageType::MsgRequestVoteResponse,
                MessageType::MsgTimeoutNow,
            ] {
                for term in group.status().term..=group.status().term + 1 {
                    let mut vote = of_kind(kind);
                    vote.term = term;
                    assert_eq!(hear(&mut group, &vote), Err(Refusal::NotNow));
                }
            }
        }
        assert_eq!(group.leads(), None);
    }
}
