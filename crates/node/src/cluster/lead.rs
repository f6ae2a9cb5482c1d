//! The requests and changes that go into the next batch of a group that this node leads.

use order::{Admission, Control, GroupBatch, Streams, Submission, arrange};
use std::collections::VecDeque;
use std::sync::Arc;
use txn::Epoch;
use txn::mutant::{Mutant, is_active};

/// Requests of one batch, at most.
const BATCH_REQUESTS_MAX: usize = 8192;
/// Bytes of arguments in one batch, at most, if it is more than one request.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Changes of one batch, at most.
const BATCH_CONTROLS_MAX: usize = 1024;

/// The leader of a group in one term.
#[derive(Debug)]
pub(super) struct Lead {
    /// The term.
    pub term: u64,
    pending: VecDeque<Submission>,
    controls: Vec<Control>,
    /// Which requests the log has, proposed and pending ones included.
    streams: Streams,
    /// What was proposed and has not come back in the log: spares reading it again.
    proposed: VecDeque<Arc<GroupBatch>>,
}

impl Lead {
    /// A leader whose log has these requests.
    pub fn new(term: u64, streams: Streams) -> Lead {
        Lead { term, pending: VecDeque::new(), controls: Vec::new(), streams, proposed: VecDeque::new() }
    }

    /// Whether there is anything to propose.
    pub fn has_work(&self) -> bool {
        !self.pending.is_empty() || !self.controls.is_empty()
    }

    /// Takes a request for the next batch. `Err` tells which number is expected of its process.
    pub fn take(&mut self, submission: Submission) -> Result<(), u64> {
        let (boot, sequence) = (submission.boot, submission.sequence);
        match self.streams.admit(boot, sequence) {
            Admission::Had if !is_active(Mutant::ProposeTwice) => return Ok(()),
            Admission::Gap(expected) if !is_active(Mutant::AcceptGap) => return Err(expected),
            Admission::Gap(_) => self.streams.note(boot, sequence),
            Admission::Next | Admission::Had => {}
        }
        self.pending.push_back(submission);
        Ok(())
    }

    /// Takes a change for the next batch.
    pub fn change(&mut self, control: Control) {
        // Whoever wants more asks again.
        if self.controls.len() < BATCH_CONTROLS_MAX && !self.controls.contains(&control) {
            self.controls.push(control);
        }
    }

    /// Makes the batch of an epoch; if its backlog is full, without requests.
    pub fn batch(&mut self, epoch: Epoch, time_ms: u64, is_full: bool) -> GroupBatch {
        let requests_max = if is_full { 0 } else { BATCH_REQUESTS_MAX };
        let mut submissions: Vec<Submission> = Vec::new();
        let mut bytes = 0;
        while submissions.len() < requests_max
            && let Some(next) = self.pending.front()
        {
            bytes += next.request.args.iter().map(|arg| arg.len()).sum::<usize>();
            if bytes > BATCH_BYTES_MAX && !submissions.is_empty() {
                break;
            }
            submissions.extend(self.pending.pop_front());
        }
        let requests = submissions.iter().map(|submission| &*submission.request);
        let places = arrange::places(requests);
        for (submission, place) in submissions.iter_mut().zip(places) {
            submission.place = place;
        }
        GroupBatch { epoch, time_ms, submissions, controls: std::mem::take(&mut self.controls) }
    }

    /// The batch was taken.
    pub fn proposed(&mut self, batch: GroupBatch) {
        self.proposed.push_back(Arc::new(batch));
    }

    /// The batch was not taken: its requests are pending again.
    pub fn put_back(&mut self, batch: GroupBatch) {
        for submission in batch.submissions.into_iter().rev() {
            self.pending.push_front(submission);
        }
        self.controls.splice(..0, batch.controls);
    }

    /// The batch that was proposed for an epoch, when it comes back.
    pub fn take_proposed(&mut self, term: u64, epoch: Epoch) -> Option<Arc<GroupBatch>> {
        while let Some(batch) = self.proposed.pop_front() {
            if term == self.term && batch.epoch == epoch {
                return Some(batch);
            }
        }
        None
    }
}
