//! An inner validator: what the sites of its group agree on.

use super::entry::{Partial, SubtreeVote, put_groups, take_groups};
use super::tree::Tree;
use crate::codec::{put_bool, put_id, take_bool, take_id, take_last};
use crate::prepare::take_group;
use crate::recent::Recent;
use crate::times::{Range, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_varint};
use txn::mutant::{Mutant, is_active};
use txn::{PartitionId, Position, RequestId};

/// What an inner validator knows of a transaction.
///
/// ```text
///                 all children: yes         below the decider
///  (unknown) ──► Gathering ───────────────────────────────────► Passed ──┐
///                   │  │    all children: yes, at the decider            │
///                   │  └──────────────────────────────────────► Committed┤
///                   │  a child: no, or no timestamp is left,             ├──► (forgotten)
///                   └──────────────────────────────────────────► Aborted ┘
///                      or given up
/// ```
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// It waits for children.
    Gathering,
    /// The subtree lets the transaction commit, and a validator above decides.
    Passed(SubtreeVote),
    /// At the decider: the transaction has committed.
    Committed(Timestamp, BTreeMap<PartitionId, Position>),
    /// The transaction is aborted, whatever others of the subtree say.
    Aborted,
}

/// A transaction that some participant may have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub participants: BTreeSet<PartitionId>,
    /// What the children have said: always yes.
    pub gathered: BTreeMap<PartitionId, SubtreeVote>,
    pub stage: Stage,
}

/// The state of an inner validator, a function of its entries.
#[derive(Debug, PartialEq)]
pub(super) struct Inner {
    group: PartitionId,
    /// Entries that were decided.
    pub decided: Position,
    pub records: BTreeMap<RequestId, Record>,
    /// Transactions that were forgotten lately: what is said of them comes late.
    forgotten: Recent<RequestId, ()>,
    /// For how many entries they are known.
    horizon: u64,
}

impl Inner {
    pub fn new(group: PartitionId, horizon: u64) -> Inner {
        Inner {
            group,
            decided: Position::NONE,
            records: BTreeMap::new(),
            forgotten: Recent::known_for(horizon),
            horizon,
        }
    }

    pub fn next_entry(&mut self) {
        self.decided = self.decided.next();
    }

    /// A child says something of a transaction. Gives the stage that the transaction comes to, if it is
    /// another one than before.
    pub fn gather(
        &mut self,
        from: PartitionId,
        behind: Position,
        partial: Partial,
        tree: &Tree,
    ) -> Option<&Stage> {
        let Partial { id, participants, vote } = partial;
        let is_late = behind.0.saturating_add(self.horizon) <= self.decided.0;
        if !self.records.contains_key(&id) && (is_late || self.forgotten.get(id).is_some()) {
            return None;
        }
        let record = self.records.entry(id).or_insert_with(|| Record {
            participants: participants.clone(),
            gathered: BTreeMap::new(),
            stage: Stage::Gathering,
        });
        if record.stage != Stage::Gathering || record.participants != participants {
            return None;
        }
        match vote {
            None => record.stage = Stage::Aborted,
            Some(vote) => {
                record.gathered.insert(from, vote);
                record.look(self.group, tree);
            }
        }
        (record.stage != Stage::Gathering).then_some(&record.stage)
    }

    /// The transaction is aborted if this validator still waits for children. Whether it is.
    pub fn give_up(&mut self, id: RequestId) -> bool {
        match self.records.get_mut(&id) {
            Some(record) if record.stage == Stage::Gathering => {
                record.stage = Stage::Aborted;
                true
            }
            _ => false,
        }
    }

    /// No participant has the transaction any more.
    pub fn forget(&mut self, id: RequestId) {
        if self.records.remove(&id).is_some() {
            self.forgotten.insert(id, (), self.decided);
        }
    }

    /// Whether no participant below this validator had the transaction any more when the validator forgot it.
    pub fn has_forgotten(&self, id: RequestId) -> bool {
        !self.records.contains_key(&id) && self.forgotten.get(id).is_some()
    }

    /// Whether this validator knows what a child says of a transaction, or needs it no more.
    pub fn has_heard(&self, id: RequestId, from: PartitionId) -> bool {
        match self.records.get(&id) {
            Some(record) => record.stage != Stage::Gathering || record.gathered.contains_key(&from),
            None => self.forgotten.get(id).is_some(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.decided.0);
        put_varint(&mut out, self.records.len() as u64);
        for (&id, Record { participants, gathered, stage }) in &self.records {
            put_id(&mut out, id);
            put_groups(&mut out, participants);
            put_varint(&mut out, gathered.len() as u64);
            for (from, vote) in gathered {
                put_varint(&mut out, u64::from(from.0));
                vote.put(&mut out);
            }
            put_bool(&mut out, *stage == Stage::Aborted);
        }
        self.forgotten.put(&mut out, |out, id, ()| put_id(out, id));
        out
    }

    /// A state of the same validator as this one.
    pub fn decode(&self, bytes: &[u8], tree: &Tree) -> Option<Inner> {
        let reader = &mut Reader::new(bytes);
        let mut inner = Inner::new(self.group, self.horizon);
        inner.decided = take_last(reader)?;
        for _ in 0..reader.varint()? {
            let (id, participants) = (take_id(reader)?, take_groups(reader)?);
            is_concerned(tree, self.group, &participants).then_some(())?;
            let children = tree.children_of(self.group, &participants);
            let mut gathered = BTreeMap::new();
            for _ in 0..reader.varint()? {
                let (from, vote) = (take_group(reader)?, SubtreeVote::take(reader)?);
                let is_child_of_it = children.contains(&from);
                (is_child_of_it && vote.is_of(tree, from, &participants)).then_some(())?;
                gathered.insert(from, vote).is_none().then_some(())?;
            }
            let mut record = Record { participants, gathered, stage: Stage::Gathering };
            match take_bool(reader)? {
                true => record.stage = Stage::Aborted,
                false => {
                    record.look(self.group, tree);
                    // It was begun by a child, and an abort would have been said.
                    (!record.gathered.is_empty() && record.stage != Stage::Aborted).then_some(())?;
                }
            }
            inner.records.insert(id, record).is_none().then_some(())?;
        }
        inner.forgotten =
            Recent::take(reader, self.horizon, inner.decided, |reader| Some((take_id(reader)?, ())))?;
        let has_forgotten = |id: &RequestId| inner.forgotten.get(*id).is_some();
        (reader.is_empty() && !inner.records.keys().any(has_forgotten)).then_some(inner)
    }
}

impl Record {
    /// All children have said yes?
    fn look(&mut self, group: PartitionId, tree: &Tree) {
        let ranges: Vec<Range> = self.gathered.values().map(|vote| vote.range).collect();
        let mut range = ranges.iter().fold(Range::from(Timestamp::NONE), |common, range| common.and(*range));
        if is_active(Mutant::SkipSecondCheck) {
            range = Range::from(range.lower);
        }
        // The second check, with the timestamp that is known by now: the greatest of the participants'.
        if range.is_empty() {
            self.stage = Stage::Aborted;
            return;
        }
        if !tree.children_of(group, &self.participants).iter().all(|child| self.gathered.contains_key(child))
        {
            return;
        }
        let votes = self.gathered.values().flat_map(|vote| vote.votes.clone()).collect();
        self.stage = match tree.decider(&self.participants) == Some(group) {
            true => Stage::Committed(range.lower, votes),
            false => Stage::Passed(SubtreeVote { range, votes }),
        };
    }
}

/// Whether a transaction with these participants comes to an inner validator.
pub(super) fn is_concerned(tree: &Tree, group: PartitionId, participants: &BTreeSet<PartitionId>) -> bool {
    let exist = participants.iter().all(|&leaf| tree.is_leaf(leaf));
    exist && (tree.decider(participants) == Some(group) || tree.passes_on(group, participants))
}
