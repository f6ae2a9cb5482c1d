//! Nodes that commit by two-phase commit instead of executing an order, with any rule of concurrency control.
//!
//! Every node has one partition, `certify::two_phase::Partition`, so conflicts and votes are what they are
//! there. The model has no groups: what is an entry of a group in the protocol is a step of a worker
//! here, and the partition counts it. Nothing is kept on a disk, and no node fails.
//!
//! # A transaction's way
//!
//! 1. Its client's node runs its procedure ([`certify::CertifiedCall`]). A record of this node is looked at
//!    there. A record of another node is a request ([`note::Told::Look`]) and a reply
//!    ([`note::Told::Found`]).
//! 2. A transaction that has used records of its own node only commits there, without a message.
//! 3. Otherwise the node votes itself, and sends `Prepare` to each other participant, which votes.
//! 4. With all votes at yes the node decides, which is the moment of the commit: its client is answered, and
//!    the other participants are told to finish. They write, unlock, and acknowledge that.
//! 5. With a vote of no the transaction is aborted, and what others have prepared is unlocked.
//!
//! An aborted transaction is run again after a while: [`certify::CertifiedCall`] draws it from 0 to 2^n
//! ticks of [`TICK_NS`] behind the nth abort. After [`certify::call::ATTEMPTS`] aborts it waits for up to 2^8
//! ticks, and begins again with short ones.
//!
//! # What takes how long
//!
//! A worker does one thing in a step of [`Costs::step_ns`](super::Costs::step_ns): it goes on with a
//! procedure to its next record, which it looks at if it is here, or to its commit; it looks at a record for
//! another node; it votes, decides, or finishes, with however many records (which is to the good of the
//! protocol: engines take a step for each). It goes on with the same transaction as long as that needs no
//! other node. Votes and acknowledgements are counted by the receiving thread.
//!
//! Messages cost what siblings' messages cost: in a round the sender sends one message to each node, with all
//! that there is to tell it. A `Prepare` tells as many things as it has records, and all else tells one.
//!
//! The clocks of all nodes agree, and timestamps are what they show, as in Harding et al.
//!
//! The serial order that judged runs are compared with is that of the timestamps, and for NO-WAIT, which has
//! none, that of the decisions.

mod node;
mod note;

use super::network::{Links, next_round_ns};
use super::node::{Counts, percentile_ns};
use super::timeline::Timeline;
use super::{Options, Report};
use crate::oracle::Oracle;
use crate::world::queue::Queue;
use certify::two_phase::Rule;
use node::{CommittedCall, Node};
use note::Told;
use txn::hash::mix;
use txn::key::partition_of_slot;
use txn::{Entry, Key, PartitionId, Position};
use workloads::State;

/// A tick of the time for which an aborted transaction waits.
const TICK_NS: u64 = 100_000;

enum Event {
    /// A worker does the next thing.
    Work { at: usize, worker: usize },
    /// A node's sender looks for something to say.
    Round { at: usize },
    /// A message has come.
    Arrived(Box<Letter>),
    /// It has been taken.
    Taken(Box<Letter>),
    /// A client's aborted transaction has waited long enough.
    Waited { at: usize, client: usize },
}

struct Letter {
    from: PartitionId,
    to: PartitionId,
    told: Vec<Told>,
    things: u64,
}

struct Run<'a> {
    options: &'a Options,
    nodes: Vec<Node>,
    queue: Queue<Event>,
    links: Links,
    digest: u64,
    messages_of_round_max: u64,
    is_ending: bool,
    /// What was committed, in the order of the decisions; of a judged run.
    committed: Vec<CommittedCall>,
}

/// Runs the model. The options are those that [`super::run`] has checked.
///
/// # Errors
/// The run was judged, and is not what the serial execution gives.
pub(super) fn run(options: &Options, rule: Rule) -> Result<Report, String> {
    let mut nodes: Vec<Node> =
        (0..options.nodes).map(|at| Node::new(options, rule, PartitionId(at))).collect();
    for part in 0..options.workload.parts() {
        options.workload.load(options.seed, part, &mut |key, entry| {
            let at = partition_of_slot(key.slot(), options.nodes);
            nodes[usize::from(at.0)].load(key, entry);
        });
    }
    let run = Run {
        options,
        nodes,
        queue: Queue::new(),
        links: Links::new(options.seed),
        digest: 1,
        messages_of_round_max: 0,
        is_ending: false,
        committed: Vec::new(),
    };
    run.run()
}

impl Timeline for Run<'_> {
    fn options(&self) -> &Options {
        self.options
    }

    fn ended(&self) -> u64 {
        self.nodes.iter().map(|node| node.counts.ended()).sum()
    }

    fn go_on_until(&mut self, until_ns: u64) {
        while self.queue.next_at_ns().is_some_and(|at_ns| at_ns < until_ns) {
            if let Some((now_ns, event)) = self.queue.next() {
                self.handle(event, now_ns);
            }
        }
    }
}

impl Run<'_> {
    fn run(mut self) -> Result<Report, String> {
        let times = self.options.times;
        for at in 0..self.nodes.len() {
            self.nodes[at].call(0);
            self.queue.add(0, Event::Round { at });
            self.wake(at, 0);
        }
        let warm_ns = self.go_on_for(0, times.warm_up_ns);
        let (before, restarts_before) = self.counts();
        self.nodes.iter_mut().for_each(|node| node.latencies_ns.clear());
        let end_ns = self.go_on_for(warm_ns, times.measured_ns);
        let report = self.report(&before, restarts_before, end_ns - warm_ns);
        let Options { judged, seed, .. } = *self.options;
        if judged {
            self.end(end_ns).map_err(|wrong| format!("seed {seed}: {wrong}"))?;
        }
        Ok(report)
    }

    fn handle(&mut self, event: Event, now_ns: u64) {
        match event {
            Event::Work { at, worker } => self.work(at, worker, now_ns),
            Event::Round { at } => self.round(at, now_ns),
            Event::Arrived(letter) => {
                let taken_ns = self.nodes[usize::from(letter.to.0)].wire.taken_ns(letter.things, now_ns);
                self.queue.add(taken_ns, Event::Taken(letter));
            }
            Event::Taken(letter) => {
                let Letter { from, to, told, .. } = *letter;
                let at = usize::from(to.0);
                told.into_iter().for_each(|told| self.nodes[at].receive(from, told));
                self.wake(at, now_ns);
            }
            Event::Waited { at, client } => {
                self.nodes[at].waited(client);
                self.wake(at, now_ns);
            }
        }
    }

    fn work(&mut self, at: usize, worker: usize, now_ns: u64) {
        let node = &mut self.nodes[at];
        let Some(mut cost_ns) = node.work(worker, now_ns) else {
            node.idle.insert(worker);
            return;
        };
        for (client, ticks) in node.waits.drain(..) {
            self.queue.add(now_ns + ticks * TICK_NS, Event::Waited { at, client });
        }
        for committed in node.committed.drain(..) {
            let id = committed.request.id;
            self.digest = mix(self.digest ^ mix(id.session.0) ^ id.sequence ^ now_ns);
            if self.options.judged {
                self.committed.push(committed);
            }
        }
        if !self.is_ending {
            cost_ns += node.call(now_ns);
        }
        self.queue.add(now_ns + cost_ns, Event::Work { at, worker });
        self.wake(at, now_ns);
    }

    fn wake(&mut self, at: usize, now_ns: u64) {
        for worker in self.nodes[at].wake() {
            self.queue.add(now_ns, Event::Work { at, worker });
        }
    }

    fn round(&mut self, at: usize, now_ns: u64) {
        let from = PartitionId(at as u16);
        let (sent, done_ns) = self.nodes[at].say(now_ns);
        self.messages_of_round_max = self.messages_of_round_max.max(u64::from(!sent.is_empty()));
        let way = (self.options.times.latency_ns, self.options.times.jitter_ns);
        for sent in sent {
            let arrives_ns = self.links.arrives_ns((from, sent.to), sent.left_ns, way);
            let letter = Letter { from, to: sent.to, told: sent.message, things: sent.notes };
            self.queue.add(arrives_ns, Event::Arrived(Box::new(letter)));
        }
        self.queue.add(next_round_ns(now_ns, done_ns, self.options.times.round_ns), Event::Round { at });
    }

    /// All counts, and the attempts that had no effect.
    fn counts(&self) -> (Counts, u64) {
        let mut sum = Counts::default();
        self.nodes.iter().for_each(|node| sum.add(&node.counts));
        (sum, self.nodes.iter().map(|node| node.restarts).sum())
    }

    fn report(&mut self, before: &Counts, restarts_before: u64, measured_ns: u64) -> Report {
        let (counts, restarts) = self.counts();
        let mut latencies: Vec<u64> =
            self.nodes.iter_mut().flat_map(|node| std::mem::take(&mut node.latencies_ns)).collect();
        latencies.sort_unstable();
        let workers = self.nodes.len() * self.options.workers;
        Report {
            restarts: restarts - restarts_before,
            messages_of_round_max: self.messages_of_round_max,
            // Nothing is ordered first.
            latency_p50_ns: percentile_ns(&latencies, 50),
            latency_p99_ns: percentile_ns(&latencies, 99),
            digest: self.digest,
            ..counts.since(before, measured_ns, workers)
        }
    }

    /// Goes on without new calls until nothing is under way, and compares what is there.
    fn end(mut self, mut until_ns: u64) -> Result<(), String> {
        self.is_ending = true;
        let mut last = self.counts().0.steps;
        while !self.nodes.iter().all(Node::is_done) {
            until_ns += 100 * self.options.times.epoch_ns;
            self.go_on_until(until_ns);
            let steps = self.counts().0.steps;
            if steps == last {
                return Err("something waits for ever".to_owned());
            }
            last = steps;
        }
        self.compare()
    }

    /// The serial execution of what was committed gives the same replies, and the same records.
    fn compare(self) -> Result<(), String> {
        let (counts, _) = self.counts();
        let Run { options, nodes, mut committed, .. } = self;
        committed.sort_by_key(|call| call.at);
        let mut oracle = Oracle::new();
        for part in 0..options.workload.parts() {
            options.workload.load(options.seed, part, &mut |key, entry| {
                oracle.load(key, Position::FIRST, Some(entry));
            });
        }
        oracle.loaded(Position::FIRST, node::TIME_MS, &[]);
        for CommittedCall { request, outcome, .. } in &committed {
            oracle.run(request, node::TIME_MS);
            let expected = oracle.expected(oracle.last());
            if !expected.is_some_and(|expected| expected.admits(outcome)) {
                return Err(format!("{:?} ended with {outcome:?} and should with {expected:?}", request.id));
            }
        }
        nodes.iter().for_each(|node| node.partition.check_invariants());
        let mut state = Cluster(&nodes);
        for key in oracle.keys() {
            let (found, wanted) = (state.get(key), oracle.read_at(key, oracle.last()).entry);
            if found != wanted {
                return Err(format!("{key:?} is {found:?} and should be {wanted:?}"));
            }
        }
        options.workload.check(&mut state, &counts.tally)
    }
}

/// The records of all partitions.
struct Cluster<'a>(&'a [Node]);

impl State for Cluster<'_> {
    fn get(&mut self, key: &Key) -> Option<Entry> {
        let at = partition_of_slot(key.slot(), self.0.len() as u16);
        self.0[usize::from(at.0)].partition.newest(key).entry
    }
    fn count(&mut self) -> u64 {
        self.0.iter().map(|node| node.partition.count()).sum()
    }
}
