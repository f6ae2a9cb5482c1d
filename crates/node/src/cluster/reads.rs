//! Strict reads: at a snapshot of this replica that has everything that was acknowledged anywhere before they arrived.
//!
//! One question to a group's leader serves all reads that have arrived meanwhile. The answer is an epoch: whatever was
//! acknowledged before lies in it or before it, in whichever group it was ordered, because an epoch is acknowledged only
//! once all groups have agreed on it. When this replica has final-committed that epoch the reads may run.

use std::collections::{BTreeMap, VecDeque};
use txn::{Epoch, PartitionId, RequestId};

/// A read that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub id: RequestId,
    pub partition: PartitionId,
    pub since_tick: u64,
}

/// Reads that share a question.
#[derive(Debug)]
struct Asked {
    reads: Vec<Read>,
    at_tick: u64,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Not yet asked for.
    new: Vec<Read>,
    asked: BTreeMap<u64, Asked>,
    /// Reads that wait for an epoch, in the order of the epochs.
    answered: VecDeque<(Epoch, Vec<Read>)>,
    questions: u64,
}

impl Reads {
    pub fn add(&mut self, read: Read) {
        self.new.push(read);
    }

    pub fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        let asked: usize = self.asked.values().map(|asked| asked.reads.len()).sum();
        let answered: usize = self.answered.iter().map(|(_, reads)| reads.len()).sum();
        self.new.len() + asked + answered
    }

    /// A question for all reads that were not asked for.
    pub fn ask(&mut self, now_tick: u64) -> u64 {
        self.questions += 1;
        let reads = std::mem::take(&mut self.new);
        let at_tick = now_tick;
        self.asked.insert(self.questions, Asked { reads, at_tick });
        self.questions
    }

    /// Questions that were asked before this are asked again: they, or their answers, may be lost.
    pub fn forget_asked(&mut self, older_than_tick: u64) {
        let lost: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.at_tick <= older_than_tick)
            .map(|(&question, _)| question)
            .collect();
        for question in lost {
            self.new.extend(
                self.asked
                    .remove(&question)
                    .into_iter()
                    .flat_map(|asked| asked.reads),
            );
        }
    }

    /// A question is answered: its reads wait for this epoch.
    pub fn answer(&mut self, question: u64, epoch: Epoch) {
        let Some(asked) = self.asked.remove(&question) else {
            return;
        };
        // Whatever was asked for later is not served by less.
        let epoch = self
            .answered
            .back()
            .map_or(epoch, |(last, _)| epoch.max(*last));
        self.answered.push_back((epoch, asked.reads));
    }

    /// The reads whose epoch is confirmed up to here.
    pub fn confirmed(&mut self, epoch: Epoch) -> Vec<Read> {
        let mut reads = Vec::new();
        while let Some((_, ready)) = self.answered.pop_front_if(|(wanted, _)| *wanted <= epoch) {
            reads.extend(ready);
        }
        reads
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
        for asked in self.asked.values_mut() {
            sift(&mut asked.reads);
        }
        for (_, reads) in &mut self.answered {
            sift(reads);
        }
        given_up
    }
}
