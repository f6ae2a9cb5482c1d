//! The [`Group`] of a replica that stands alone: what it has kept is agreed.
//!
//! It leads from the beginning, in a term of its own, so that entries of different processes differ. Nothing
//! of its log stays in memory: there is nobody who could lack it. (A group of one that others may join is
//! [`RaftGroup`](super::RaftGroup)'s.)

use super::{Contradiction, Examined, Group, GroupStatus, Input, Refusal, Role, Turn};
use bytes::Bytes;
use log::{Base, Entry, EntryKind, HardState, Kept, Members};
use std::collections::VecDeque;
use txn::{NodeId, PartitionId};

/// See the [module's head](self). `committed <= last`, and all of `unkept` are in order.
pub struct SoloGroup {
    me: NodeId,
    partition: PartitionId,
    base: Base,
    hard_state: HardState,
    /// The term is not yet in a turn.
    is_new: bool,
    last: u64,
    committed: u64,
    /// What the last turn has told to be agreed.
    told: u64,
    proposed: Vec<Bytes>,
    /// Questions that were not answered.
    questions: Vec<u64>,
    turns: u64,
    /// Turns that are not kept, and the last entry of each.
    unkept: VecDeque<(u64, u64)>,
}

impl SoloGroup {
    /// The replica of `me` behind what it had kept: entries up to `last`.
    pub fn new(
        me: NodeId,
        partition: PartitionId,
        base: Base,
        last: u64,
        hard_state: HardState,
    ) -> SoloGroup {
        SoloGroup {
            me,
            partition,
            base,
            hard_state: HardState { term: hard_state.term + 1, vote: u64::from(me.0), commit: last },
            is_new: true,
            last,
            committed: last,
            told: 0,
            proposed: Vec::new(),
            questions: Vec::new(),
            turns: 0,
            unkept: VecDeque::new(),
        }
    }
}

impl Group for SoloGroup {
    fn examine(&self, _: NodeId, _: &Bytes) -> Result<Examined, Contradiction> {
        Err(Contradiction("this replica stands alone"))
    }

    fn handle(&mut self, input: Input) -> Result<(), Refusal> {
        match input {
            Input::Propose(data) => self.proposed.push(data),
            Input::AskIndex { question } => self.questions.push(question),
            Input::Tick | Input::Campaign | Input::TryAgain(_) | Input::Unreachable(_) => {}
            Input::Message(_) | Input::TransferLeader(_) | Input::ChangeMembers(_) => {
                return Err(Refusal::NotNow);
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> Option<Turn> {
        let is_promise = std::mem::take(&mut self.is_new);
        let tells = self.told < self.committed || !self.questions.is_empty();
        if !is_promise && !tells && self.proposed.is_empty() {
            return None;
        }
        let mut kept = Kept::nothing(self.partition);
        for data in self.proposed.drain(..) {
            self.last += 1;
            let (index, term) = (self.last, self.hard_state.term);
            kept.entries.push(Entry { index, term, kind: EntryKind::Data, data });
        }
        kept.hard_state = is_promise.then_some(self.hard_state);
        self.turns += 1;
        self.unkept.push_back((self.turns, self.last));
        self.told = self.committed;
        let committed = self.committed;
        Some(Turn {
            number: self.turns,
            must_sync: !kept.entries.is_empty(),
            kept,
            is_promise,
            indices: self.questions.drain(..).map(|question| (question, committed)).collect(),
            ..Turn::nothing(self.partition, committed)
        })
    }

    fn kept(&mut self, number: u64) {
        while let Some((_, last)) = self.unkept.pop_front_if(|(turn, _)| *turn <= number) {
            self.committed = last;
        }
    }

    fn rebase(&mut self, base: Base) {
        self.base = base;
    }

    fn base(&self) -> &Base {
        &self.base
    }

    fn members(&self) -> Members {
        Members { voters: vec![self.me], ..Members::default() }
    }

    fn members_at(&self, _: u64) -> Members {
        self.members()
    }

    fn entry(&self, _: u64) -> Option<Entry> {
        None
    }

    fn leads(&self) -> Option<u64> {
        Some(self.hard_state.term)
    }

    fn leader(&self) -> Option<(NodeId, u64)> {
        Some((self.me, self.hard_state.term))
    }

    fn status(&self) -> GroupStatus {
        GroupStatus {
            role: Role::Leader,
            term: self.hard_state.term,
            leader: Some(self.me),
            last: self.last,
            committed: self.committed,
            persisted: self.committed,
            applied: self.committed,
            members: self.members(),
            matched: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(last: u64) -> SoloGroup {
        let hard_state = HardState { term: 4, vote: 1, commit: last.saturating_sub(1) };
        SoloGroup::new(NodeId(1), PartitionId(0), Base::default(), last, hard_state)
    }

    #[test]
    fn it_leads_behind_all_that_it_had_kept_in_a_term_of_its_own() {
        let mut group = group(7);
        assert_eq!((group.leads(), group.leader()), (Some(5), Some((NodeId(1), 5))));
        group.handle(Input::Propose(Bytes::from_static(b"a"))).expect("it leads");
        let turn = group.turn().expect("a term, and an entry");
        assert!(turn.is_promise && turn.must_sync);
        assert_eq!(turn.committed, 7, "what it had is agreed");
        let hard_state = turn.kept.hard_state.expect("a term");
        assert_eq!((hard_state.term, hard_state.commit), (5, 7));
        let entry = &turn.kept.entries[..];
        assert_eq!(entry.iter().map(|entry| (entry.index, entry.term)).collect::<Vec<_>>(), [(8, 5)]);
        assert!(group.turn().is_none());
    }

    #[test]
    fn what_is_kept_is_agreed_and_nothing_before() {
        let mut group = group(0);
        let first = group.turn().expect("a term");
        for data in ["a", "b"] {
            group.handle(Input::Propose(data.into())).expect("it leads");
            group.turn().expect("an entry");
        }
        group.kept(first.number);
        assert!(group.turn().is_none(), "a term is no entry");
        group.kept(first.number + 1);
        let turn = group.turn().expect("news");
        assert_eq!((turn.committed, turn.kept.is_empty(), turn.must_sync), (1, true, false));
        group.handle(Input::AskIndex { question: 9 }).expect("it knows");
        assert_eq!(group.turn().expect("an answer").indices, [(9, 1)]);
        group.kept(first.number + 2);
        assert_eq!(group.turn().expect("news").committed, 2);
    }

    #[test]
    fn it_has_no_others() {
        let mut group = group(3);
        assert!(group.examine(NodeId(2), &Bytes::new()).is_err());
        assert_eq!(group.handle(Input::Message(Bytes::new())), Err(Refusal::NotNow));
        assert_eq!(group.handle(Input::TransferLeader(NodeId(2))), Err(Refusal::NotNow));
        assert_eq!(group.status().members.voters, [NodeId(1)]);
    }
}
