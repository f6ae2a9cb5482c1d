//! Strict reads: at a snapshot of this replica that has everything that was acknowledged anywhere before they
//! arrived.
//!
//! One question to a group's leader serves all reads that have arrived meanwhile. The answer is an index of
//! the group's log. It may be ahead of what this replica has: only once the replica knows that its own log is
//! agreed up to there, the index tells an epoch. Whatever was acknowledged before the question lies in that
//! epoch or before it, in whichever group it was ordered, because an epoch is acknowledged only once all
//! groups have agreed on it. When this replica has final-committed the epoch the reads may run.
//!
//! Questions and answers may be lost. So a question is asked again under another name after a while, and the
//! first answer to any of its names serves: however long answers take, and however short the while is, one of
//! them arrives.
//!
//! ```text
//!       a question is free          an index comes, and is agreed here         the epoch is confirmed
//!  new ────────────────────► asked ────────────────────────────────► answered ────────────────────────► readable
//!                           ▲     │
//!                           └─────┘ asked again under another name
//! ```
//!
//! Invariants ([`Reads::check_invariants`]):
//! 1. Every name belongs to a question that is on its way, and at most [`QUESTIONS_MAX`] are.
//! 2. Reads that are answered wait in the order of their epochs.

use std::collections::{BTreeMap, VecDeque};
use txn::hash::mix;
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, PartitionId, RequestId};

/// Questions that are on their way at once.
const QUESTIONS_MAX: usize = 2;

/// A read that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub id: RequestId,
    pub partition: PartitionId,
    pub since_tick: u64,
}

/// Reads that share a question.
#[derive(Debug)]
struct Round {
    reads: Vec<Read>,
    asked_tick: u64,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Not yet asked for.
    new: Vec<Read>,
    /// By the first name of their question.
    rounds: BTreeMap<u64, Round>,
    /// Every name of a question, with the first.
    names: BTreeMap<u64, u64>,
    /// Answers that are ahead of this replica: the group, the question and the index.
    ahead: Vec<(PartitionId, u64, u64)>,
    /// Reads that wait for an epoch, in the order of the epochs.
    answered: VecDeque<(Epoch, Vec<Read>)>,
    questions: u64,
}

impl Reads {
    /// Nothing waits. Questions get other names than those of processes with another nonce.
    pub fn new(nonce: u64) -> Reads {
        Reads { questions: mix(nonce) >> 1, ..Reads::default() }
    }

    pub fn add(&mut self, read: Read) {
        self.new.push(read);
    }

    /// Whether reads wait for a question. While some questions are on their way the next one waits for an
    /// answer, so that it serves all who have come by then.
    pub fn wants_question(&self) -> bool {
        !self.new.is_empty() && self.rounds.len() < QUESTIONS_MAX
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        let asked: usize = self.rounds.values().map(|round| round.reads.len()).sum();
        let answered: usize = self.answered.iter().map(|(_, reads)| reads.len()).sum();
        self.new.len() + asked + answered
    }

    /// A question for all reads that were not asked for.
    pub fn ask(&mut self, now_tick: u64) -> u64 {
        self.questions += 1;
        let reads = std::mem::take(&mut self.new);
        let round = Round { reads, asked_tick: now_tick };
        self.rounds.insert(self.questions, round);
        self.names.insert(self.questions, self.questions);
        self.questions
    }

    /// Further names for the questions that were last asked before or at this tick.
    pub fn ask_again(&mut self, upto_tick: u64, now_tick: u64) -> Vec<u64> {
        let mut names = Vec::new();
        for (&first, round) in &mut self.rounds {
            if round.asked_tick <= upto_tick {
                round.asked_tick = now_tick;
                self.questions += 1;
                self.names.insert(self.questions, first);
                names.push(self.questions);
            }
        }
        names
    }

    /// A question is answered with an index.
    pub fn learn(&mut self, question: u64, partition: PartitionId, index: u64) {
        if self.names.contains_key(&question) {
            self.ahead.push((partition, question, index));
        }
    }

    /// This replica's log of a group is agreed up to an index: the questions whose answers it covers, with
    /// their indices.
    pub fn reached(&mut self, partition: PartitionId, agreed: u64) -> Vec<(u64, u64)> {
        let early = is_active(Mutant::ReadAheadOfIndex);
        let covered =
            self.ahead.extract_if(.., |(of, _, index)| *of == partition && (*index <= agreed || early));
        covered.map(|(_, question, index)| (question, index)).collect()
    }

    /// The epoch of a question's answer is known: its reads wait for it.
    pub fn answer(&mut self, question: u64, epoch: Epoch) {
        let Some(&first) = self.names.get(&question) else {
            return;
        };
        self.names.retain(|_, of| *of != first);
        let names = &self.names;
        self.ahead.retain(|(_, known, _)| names.contains_key(known));
        let Some(round) = self.rounds.remove(&first) else {
            return;
        };
        // The queue is in the order of the epochs: waiting for a later one is never wrong.
        let last = self.answered.back().map(|(last, _)| *last);
        let epoch = last.map_or(epoch, |last| epoch.max(last));
        self.answered.push_back((epoch, round.reads));
    }

    /// The reads whose epoch is confirmed up to here.
    pub fn confirmed(&mut self, epoch: Epoch) -> Vec<Read> {
        let mut reads = Vec::new();
        while let Some((_, ready)) = self.answered.pop_front_if(|(wanted, _)| *wanted <= epoch) {
            reads.extend(ready);
        }
        reads
    }

    /// The module's invariants.
    pub fn check_invariants(&self) {
        assert!(self.rounds.len() <= QUESTIONS_MAX);
        debug_assert!(self.names.values().all(|first| self.rounds.contains_key(first)));
        debug_assert!(self.ahead.iter().all(|(_, name, _)| self.names.contains_key(name)));
        debug_assert!(self.answered.iter().map(|(epoch, _)| epoch).is_sorted());
    }

    /// Gives up reads that have waited since before this.
    pub fn give_up(&mut self, older_than_tick: u64) -> Vec<RequestId> {
        let mut given_up = Vec::new();
        let mut sift = |reads: &mut Vec<Read>| {
            reads.retain(|read| {
                let stays = read.since_tick >= older_than_tick;
                if !stays {
                    given_up.push(read.id);
                }
                stays
            });
        };
        sift(&mut self.new);
        for round in self.rounds.values_mut() {
            sift(&mut round.reads);
        }
        for (_, reads) in &mut self.answered {
            sift(reads);
        }
        self.rounds.retain(|_, round| !round.reads.is_empty());
        let rounds = &self.rounds;
        self.names.retain(|_, first| rounds.contains_key(first));
        let names = &self.names;
        self.ahead.retain(|(_, known, _)| names.contains_key(known));
        given_up
    }
}

#[cfg(test)]
mod tests;
