//! Requests that this process accepted and that are not yet known to be in the order.
//!
//! For each group they have numbers from 1 on, and stay here until the group has agreed on them. They go to
//! whoever leads the group, and again to whoever leads it next: the group's log tells which of them it has.

use order::{Submission, arrange::Place};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use txn::{BootId, NodeId, PartitionId, Request, RequestId};

/// About how many bytes of requests go into one frame.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// A request that waits.
#[derive(Clone, Debug)]
struct Waiting {
    submission: Submission,
    bytes: u64,
    since_tick: u64,
    /// Its client was told that nobody knows how it ended.
    given_up: bool,
}

/// What goes to one group.
#[derive(Clone, Debug, Default)]
struct Outbox {
    /// The last number that was given out.
    last: u64,
    waiting: VecDeque<Waiting>,
    /// To whom requests went, in which term, and up to which number.
    sent: Option<(NodeId, u64, u64)>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Gateway {
    boot: BootId,
    outboxes: BTreeMap<PartitionId, Outbox>,
    requests: u64,
    bytes: u64,
}

/// About what a request takes in a log.
fn bytes_of(request: &Request) -> u64 {
    let args: usize = request.args.iter().map(|arg| arg.len() + 4).sum();
    args as u64 + 32
}

impl Gateway {
    /// The process's boot id is known: requests may be taken.
    pub fn begin(&mut self, boot: BootId) {
        self.boot = boot;
    }

    /// How many requests wait, and their bytes.
    pub fn load(&self) -> (u64, u64) {
        (self.requests, self.bytes)
    }

    /// How many requests wait whose clients do so, too.
    pub fn awaited(&self) -> usize {
        let waiting = self.outboxes.values().flat_map(|outbox| &outbox.waiting);
        waiting.filter(|waiting| !waiting.given_up).count()
    }

    /// Takes a request.
    pub fn take(&mut self, request: Arc<Request>, now_tick: u64) {
        let outbox = self.outboxes.entry(request.route.home).or_default();
        outbox.last += 1;
        let bytes = bytes_of(&request);
        self.requests += 1;
        self.bytes += bytes;
        outbox.waiting.push_back(Waiting {
            submission: Submission {
                boot: self.boot,
                sequence: outbox.last,
                request,
                place: Place::default(),
            },
            bytes,
            since_tick: now_tick,
            given_up: false,
        });
    }

    /// The groups for which something waits.
    pub fn groups(&self) -> Vec<PartitionId> {
        let busy = self.outboxes.iter();
        busy.filter(|(_, outbox)| !outbox.waiting.is_empty()).map(|(&group, _)| group).collect()
    }

    /// What is to go to a group's leader now, as much as fits one frame; empty if it has had everything.
    pub fn next_for(&mut self, group: PartitionId, leader: NodeId, term: u64) -> Vec<Submission> {
        let Some(outbox) = self.outboxes.get_mut(&group) else {
            return Vec::new();
        };
        let Some(first) = outbox.waiting.front() else {
            return Vec::new();
        };
        let first = first.submission.sequence;
        let sent = match outbox.sent {
            // What another leader was sent may be lost.
            Some((to, of, sent)) if (to, of) == (leader, term) => sent.max(first - 1),
            _ => first - 1,
        };
        let mut bytes = 0;
        let mut submissions = Vec::new();
        for waiting in outbox.waiting.range((sent + 1 - first) as usize..) {
            if bytes >= FRAME_BYTES_MAX {
                break;
            }
            bytes += waiting.bytes as usize;
            submissions.push(waiting.submission.clone());
        }
        outbox.sent = Some((leader, term, sent + submissions.len() as u64));
        submissions
    }

    /// The leader expects this number: what was sent behind it is lost. A leader that expects what the group
    /// has agreed on is none that can be helped.
    pub fn expected(&mut self, group: PartitionId, sequence: u64) {
        if let Some(outbox) = self.outboxes.get_mut(&group)
            && (outbox.waiting.front()).is_some_and(|first| first.submission.sequence <= sequence)
            && let Some((_, _, sent)) = &mut outbox.sent
        {
            *sent = (*sent).min(sequence.saturating_sub(1));
        }
    }

    /// What went to a node may be lost.
    pub fn lost(&mut self, node: NodeId) {
        for outbox in self.outboxes.values_mut() {
            if outbox.sent.is_some_and(|(to, ..)| to == node) {
                outbox.sent = None;
            }
        }
    }

    /// What went to anybody may be lost, if it waits for this long.
    pub fn doubt(&mut self, older_than_tick: u64) {
        for outbox in self.outboxes.values_mut() {
            let oldest = outbox.waiting.front();
            if oldest.is_some_and(|waiting| waiting.since_tick < older_than_tick) {
                outbox.sent = None;
            }
        }
    }

    /// A group has agreed on the numbers up to this one.
    pub fn agreed(&mut self, group: PartitionId, sequence: u64) {
        let Some(outbox) = self.outboxes.get_mut(&group) else {
            return;
        };
        while let Some(waiting) =
            outbox.waiting.pop_front_if(|waiting| waiting.submission.sequence <= sequence)
        {
            self.requests -= 1;
            self.bytes -= waiting.bytes;
        }
    }

    /// Those that have waited since before `older_than_tick`: whoever sent them is told so, once. They stay:
    /// only the order can say how they end.
    pub fn give_up(&mut self, older_than_tick: u64) -> Vec<RequestId> {
        let mut given_up = Vec::new();
        for outbox in self.outboxes.values_mut() {
            for waiting in &mut outbox.waiting {
                if waiting.since_tick >= older_than_tick {
                    break;
                }
                if !std::mem::replace(&mut waiting.given_up, true) {
                    given_up.push(waiting.submission.request.id);
                }
            }
        }
        given_up
    }
}
