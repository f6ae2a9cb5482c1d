//! The model's events.

use super::node::{self, Counts, Node, time_ms};
use super::replicated::{Feed, Leader, OnItsWay, OrderCounts, Undecided};
use super::{LONGER_MAX, Options, Report, judge::Judge};
use crate::draw::Draw;
use crate::world::queue::Queue;
use execute::siblings::Message;
use order::arrange::{Place, Placed, arrange_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::hash::mix;
use txn::{Batch, Epoch, PartitionId};

/// Calls of each client that end in the measured time, unless these are many.
const CALLS_EACH: u64 = 4;
/// So many are.
const CALLS_WANTED: u64 = 4_000;

enum Event {
    /// What waits for an epoch is ordered.
    Epoch,
    /// An epoch is final.
    Confirm(Vec<txn::Position>),
    /// A worker does the next thing.
    Work { at: usize, worker: usize },
    /// A node's sender looks for something to say.
    Round { at: usize },
    /// A message has come.
    Arrived(Box<Letter>),
    /// It has been taken.
    Taken(Box<Letter>),
    /// The leader of replicas looks whether there is something to order.
    Look,
    /// A batch has come to the replica.
    Ahead(Box<OnItsWay>),
    /// So many batches are agreed on.
    Agreed(usize),
    /// A read at another replica ends.
    ReadElsewhere(Arc<txn::Request>),
}

struct Letter {
    from: PartitionId,
    to: PartitionId,
    message: Message,
    notes: u64,
}

struct Run<'a> {
    options: &'a Options,
    nodes: Vec<Node>,
    queue: Queue<Event>,
    draw: Draw,
    epoch: u64,
    digest: u64,
    /// When the last message of a link arrives.
    links_ns: BTreeMap<(PartitionId, PartitionId), u64>,
    messages_of_round_max: u64,
    /// Clients make no more calls.
    is_ending: bool,
    judge: Option<Judge>,
    /// The leader of replicas, and what they have not agreed on.
    leader: Option<Leader>,
    undecided: Undecided,
}

/// Runs the model.
///
/// # Errors
/// The options contradict each other; or the run was judged, and is not what the serial execution gives.
pub fn run(options: &Options) -> Result<Report, String> {
    let Options { nodes, workers, clients, times, .. } = *options;
    if nodes == 0 || workers == 0 || clients == 0 {
        return Err("a model needs a node, a worker and a client".to_owned());
    }
    if nodes > 1 && !options.contender.needs().spans_partitions {
        return Err(format!("{} executes one partition", options.contender));
    }
    if times.epoch_ns == 0 || times.round_ns == 0 || options.costs.step_ns == 0 {
        return Err("epochs, rounds and steps take time".to_owned());
    }
    // One replica stands for all.
    if options.replication.is_some() && nodes != 1 {
        return Err("replicas are counted by the replication, and the model has one of them".to_owned());
    }
    let of_node = options.contender.workers(workers);
    let engine = |at| options.contender.engine(PartitionId(at), nodes, of_node);
    let engines: Arc<[_]> = (0..nodes).map(engine).collect();
    let all = (0..nodes).map(|at| Node::new(options, PartitionId(at), engines.clone()));
    let all: Vec<Node> = all.collect();
    node::load(&*options.workload, options.seed, &all);
    let run = Run {
        options,
        nodes: all,
        queue: Queue::new(),
        draw: Draw::new(mix(options.seed)),
        epoch: 0,
        digest: 1,
        links_ns: BTreeMap::new(),
        messages_of_round_max: 0,
        is_ending: false,
        judge: options.judged.then(|| Judge::new(options)),
        leader: options.replication.map(|replication| Leader::new(replication, times, options.costs)),
        undecided: Undecided::default(),
    };
    run.run()
}

impl Run<'_> {
    fn run(mut self) -> Result<Report, String> {
        let times = self.options.times;
        self.queue.add(0, if self.leader.is_some() { Event::Look } else { Event::Epoch });
        for at in 0..self.nodes.len() {
            self.nodes[at].call(self.options.nodes, 0);
            self.queue.add(0, Event::Round { at });
            // Reads at snapshots and reconnaissance wait for no epoch: without this, calls that all begin
            // with one would never begin.
            self.wake(at, 0);
        }
        let warm_ns = self.go_on_for(0, times.warm_up_ns);
        let before = self.counts();
        let order_before = self.order_counts();
        for node in &mut self.nodes {
            node.latencies_ns.clear();
        }
        let end_ns = self.go_on_for(warm_ns, times.measured_ns);
        let mut report = self.report(before, end_ns - warm_ns);
        let order_now = self.order_counts();
        if let Some(leader) = &mut self.leader {
            leader.counts = order_now;
            report.order = Some(leader.report(&order_before, end_ns - warm_ns));
        }
        if let Some(mut judge) = self.judge.take() {
            self.end(&mut judge, end_ns)?;
        }
        Ok(report)
    }

    /// Goes on for this time, and longer until as many calls have ended as clients have under way, or several
    /// times as many where that is little. A judged run takes the time that was asked for: it is not made for
    /// its figures. Returns when it stopped.
    fn go_on_for(&mut self, from_ns: u64, least_ns: u64) -> u64 {
        let clients = (self.options.clients * self.nodes.len()) as u64;
        let calls = clients.max(CALLS_WANTED.min(CALLS_EACH * clients));
        let ended_before = self.ended();
        let mut until_ns = from_ns + least_ns;
        loop {
            self.go_on_until(until_ns);
            if self.options.judged
                || self.ended() - ended_before >= calls
                || until_ns >= from_ns + least_ns * LONGER_MAX
            {
                return until_ns;
            }
            until_ns += self.options.times.epoch_ns;
        }
    }

    /// Calls that have ended.
    fn ended(&self) -> u64 {
        let tallies = self.nodes.iter().map(|node| &node.counts.tally);
        tallies.map(|tally| tally.committed + tally.aborted_by_logic).sum()
    }

    fn go_on_until(&mut self, until_ns: u64) {
        let mut last_ns = 0;
        while let Some(next_ns) = self.queue.next_at_ns().filter(|&at_ns| at_ns < until_ns) {
            if next_ns > last_ns && last_ns > 0 {
                self.note_idleness(next_ns - last_ns);
            }
            last_ns = next_ns;
            if let Some((now_ns, event)) = self.queue.next() {
                self.handle(event, now_ns);
            }
        }
    }

    /// What is idle now is so until the next event.
    fn note_idleness(&mut self, for_ns: u64) {
        if !self.options.judged {
            return;
        }
        for node in &mut self.nodes {
            if !node.idle.is_empty() && node.waiting() > 0 {
                node.counts.idle_with_work_ns += for_ns;
            }
        }
    }

    fn handle(&mut self, event: Event, now_ns: u64) {
        let times = self.options.times;
        match event {
            Event::Epoch => {
                self.order(now_ns);
                self.queue.add(now_ns + times.epoch_ns, Event::Epoch);
            }
            Event::Confirm(ends) => {
                for (at, end) in ends.into_iter().enumerate() {
                    self.nodes[at].engine.confirm(end.prev());
                    self.wake(at, now_ns);
                }
            }
            Event::Work { at, worker } => self.work(at, worker, now_ns),
            Event::Look => self.look(now_ns),
            Event::Ahead(sent) => match self.options.replication.map(|replication| replication.feed) {
                Some(Feed::Optimistic) => self.deliver(sent.requests, now_ns),
                _ => self.undecided.kept.push_back(sent.requests),
            },
            Event::Agreed(batches) => {
                for _ in 0..batches {
                    if let Some(requests) = self.undecided.kept.pop_front() {
                        self.deliver(requests, now_ns);
                    }
                    if let Some(end) = self.undecided.ends.pop_front() {
                        self.nodes[0].engine.confirm(end.prev());
                    }
                }
                self.wake(0, now_ns);
            }
            Event::ReadElsewhere(request) => {
                self.nodes[0].ended_elsewhere(&request, now_ns);
                if !self.is_ending {
                    self.nodes[0].call(1, now_ns);
                    self.begin_elsewhere(now_ns);
                    self.wake(0, now_ns);
                }
            }
            Event::Round { at } => self.round(at, now_ns),
            Event::Arrived(letter) => {
                let to = usize::from(letter.to.0);
                let taken_ns = self.nodes[to].taken_ns(letter.notes, now_ns);
                self.queue.add(taken_ns, Event::Taken(letter));
            }
            Event::Taken(letter) => {
                let Letter { from, to, message, .. } = *letter;
                let at = usize::from(to.0);
                if let Some(engine) = self.nodes[at].engine.siblings() {
                    engine.receive(from, message);
                }
                self.wake(at, now_ns);
            }
        }
    }

    /// Makes an epoch of what has come to all nodes.
    fn order(&mut self, now_ns: u64) {
        let nodes = self.nodes.iter_mut();
        let pending: Vec<_> = nodes.map(|node| std::mem::take(&mut node.pending)).collect();
        let longest = pending.iter().map(Vec::len).max().unwrap_or(0);
        let in_turn = (0..longest).flat_map(|place| {
            let of_all = pending.iter().filter_map(move |of_one| of_one.get(place));
            // Calls of one session are of different clients: nothing binds them.
            of_all.map(|request| Placed { request: request.clone(), place: Place::default() })
        });
        let sequence: Vec<Placed> = in_turn.collect();
        let earlier = Epoch(self.epoch);
        if sequence.is_empty() {
            return;
        }
        self.epoch += 1;
        for placed in &sequence {
            self.digest = mix(self.digest ^ placed.request.id.sequence);
        }
        let scheduling = self.options.contender.scheduling();
        let arranged = arrange_all(&sequence, self.options.nodes, scheduling);
        if let Some(judge) = &mut self.judge {
            judge.ordered(&arranged, time_ms(now_ns));
        }
        let mut ends = Vec::with_capacity(self.nodes.len());
        for (node, arranged) in self.nodes.iter_mut().zip(arranged) {
            let Counts { groups, members, .. } = &mut node.counts;
            *groups += arranged.groups.len() as u64;
            *members += arranged.groups.iter().map(|g| g.members as u64).sum::<u64>();
            let batch = Batch {
                epoch: Epoch(self.epoch),
                time_ms: time_ms(now_ns),
                first: node.next,
                requests: arranged.requests,
                groups: arranged.groups,
                digest: self.digest,
            };
            node.next = batch.end();
            ends.push(node.next);
            node.engine.deliver(batch);
            // Nobody begins anew, so nobody asks for what was read.
            if let Some(engine) = node.engine.siblings() {
                engine.forget(earlier);
            }
        }
        match self.options.times.confirm_ns {
            0 => self.handle(Event::Confirm(ends), now_ns),
            confirm_ns => {
                for at in 0..self.nodes.len() {
                    self.wake(at, now_ns);
                }
                self.queue.add(now_ns + confirm_ns, Event::Confirm(ends));
            }
        }
    }

    /// The counts of the order, with those of the engine that say how early it was.
    fn order_counts(&self) -> OrderCounts {
        let status = self.nodes[0].engine.status();
        let counts = self.leader.as_ref().map_or_else(OrderCounts::default, |leader| leader.counts);
        OrderCounts {
            speculated: status.speculated_before_confirmation,
            executed: status.final_committed.0,
            ..counts
        }
    }

    /// The leader of replicas orders what waits.
    fn look(&mut self, now_ns: u64) {
        self.begin_elsewhere(now_ns);
        let Some(leader) = &mut self.leader else { return };
        let (sent, agreed, next_ns) = leader.look(&mut self.nodes[0].pending, now_ns);
        if let Some(sent) = sent {
            self.queue.add(sent.arrives_ns, Event::Ahead(Box::new(sent)));
        }
        if let Some(agreed) = agreed {
            self.queue.add(agreed.at_ns, Event::Agreed(agreed.batches));
        }
        self.queue.add(next_ns, Event::Look);
    }

    fn begin_elsewhere(&mut self, now_ns: u64) {
        let end_ns = now_ns + self.nodes[0].read_elsewhere_ns();
        for request in std::mem::take(&mut self.nodes[0].elsewhere) {
            self.queue.add(end_ns, Event::ReadElsewhere(request));
        }
    }

    /// The replica's engine gets a batch.
    fn deliver(&mut self, requests: Vec<Arc<txn::Request>>, now_ns: u64) {
        self.epoch += 1;
        for request in &requests {
            self.digest = mix(self.digest ^ request.id.sequence);
        }
        let placed =
            |request: &Arc<txn::Request>| Placed { request: request.clone(), place: Place::default() };
        let sequence: Vec<Placed> = requests.iter().map(placed).collect();
        let arranged = arrange_all(&sequence, 1, self.options.contender.scheduling());
        if let Some(judge) = &mut self.judge {
            judge.ordered(&arranged, time_ms(now_ns));
        }
        let node = &mut self.nodes[0];
        let batch = Batch {
            epoch: Epoch(self.epoch),
            time_ms: time_ms(now_ns),
            first: node.next,
            requests: arranged.into_iter().flat_map(|part| part.requests).collect(),
            groups: Vec::new(),
            digest: self.digest,
        };
        node.next = batch.end();
        self.undecided.ends.push_back(node.next);
        node.engine.deliver(batch);
        self.wake(0, now_ns);
    }

    fn work(&mut self, at: usize, worker: usize, now_ns: u64) {
        let node = &mut self.nodes[at];
        match node.work(worker, now_ns) {
            Some(mut cost_ns) => {
                if !self.is_ending {
                    cost_ns += node.call(self.options.nodes, now_ns);
                }
                let end_ns = now_ns + node.read_elsewhere_ns();
                for request in std::mem::take(&mut node.elsewhere) {
                    self.queue.add(end_ns, Event::ReadElsewhere(request));
                }
                self.queue.add(now_ns + cost_ns, Event::Work { at, worker });
                self.wake(at, now_ns);
            }
            None => {
                node.idle.insert(worker);
            }
        }
    }

    fn wake(&mut self, at: usize, now_ns: u64) {
        for worker in self.nodes[at].wake() {
            self.queue.add(now_ns, Event::Work { at, worker });
        }
    }

    fn round(&mut self, at: usize, now_ns: u64) {
        let times = self.options.times;
        let from = PartitionId(at as u16);
        let (sent, done_ns) = self.nodes[at].say(now_ns);
        let mut to_one: BTreeMap<PartitionId, u64> = BTreeMap::new();
        for sent in sent {
            *to_one.entry(sent.to).or_default() += 1;
            let jitter_ns = self.draw.below(times.jitter_ns + 1);
            let last_ns = self.links_ns.entry((from, sent.to)).or_default();
            *last_ns = (*last_ns).max(sent.left_ns + times.latency_ns + jitter_ns);
            let letter = Letter { from, to: sent.to, message: sent.message, notes: sent.notes };
            self.queue.add(*last_ns, Event::Arrived(Box::new(letter)));
        }
        let most = to_one.values().copied().max().unwrap_or(0);
        self.messages_of_round_max = self.messages_of_round_max.max(most);
        // A sender that never rested would be as fast as its receivers, and their queues would grow.
        let rested_ns = done_ns + (done_ns - now_ns) / 2;
        let next_ns = rested_ns.max(now_ns + times.round_ns);
        self.queue.add(next_ns, Event::Round { at });
    }

    /// All counts, and what all engines threw away or gave back.
    fn counts(&self) -> (Counts, u64) {
        let mut sum = Counts::default();
        let mut restarts = 0;
        for node in &self.nodes {
            let counts = &node.counts;
            sum.tally.merge(&counts.tally);
            sum.multi_partition += counts.multi_partition;
            sum.steps += counts.steps;
            sum.busy_ns += counts.busy_ns;
            sum.messages += counts.messages;
            sum.notes += counts.notes;
            sum.bytes += counts.bytes;
            sum.rounds += counts.rounds;
            sum.groups += counts.groups;
            sum.members += counts.members;
            sum.idle_with_work_ns += counts.idle_with_work_ns;
            sum.looks += counts.looks;
            sum.snapshot_reads += counts.snapshot_reads;
            restarts += node.engine.status().restarts + node.given_back.len() as u64;
        }
        (sum, restarts)
    }

    fn report(&mut self, (before, restarts_before): (Counts, u64), measured_ns: u64) -> Report {
        let (counts, restarts) = self.counts();
        let mut latencies: Vec<u64> = Vec::new();
        let mut digest = self.digest;
        for node in &mut self.nodes {
            latencies.append(&mut node.latencies_ns);
            digest = mix(digest ^ node.digest);
        }
        latencies.sort_unstable();
        let status = self.nodes.iter().map(|node| node.engine.status());
        let (window, parked) =
            status.fold((0, 0), |(window, parked), status| (window + status.window, parked + status.parked));
        let nodes = self.nodes.len() as f64;
        // The way through the order of replicas is modelled.
        let order_ns = if self.leader.is_some() { 0 } else { self.options.times.order_ns };
        let at = |percent: usize| {
            let place = latencies.len().saturating_sub(1) * percent / 100;
            latencies.get(place).copied().unwrap_or(0) + order_ns
        };
        let of_node = self.options.contender.workers(self.options.workers);
        let workers = (self.nodes.len() * of_node) as f64;
        Report {
            measured_ns,
            committed: counts.tally.committed - before.tally.committed,
            rolled_back: counts.tally.aborted_by_logic - before.tally.aborted_by_logic,
            multi_partition: counts.multi_partition - before.multi_partition,
            restarts: restarts - restarts_before,
            steps: counts.steps - before.steps,
            looks: counts.looks - before.looks,
            snapshot_reads: counts.snapshot_reads - before.snapshot_reads,
            busy: (counts.busy_ns - before.busy_ns) as f64 / (measured_ns as f64 * workers),
            messages: counts.messages - before.messages,
            notes: counts.notes - before.notes,
            bytes: counts.bytes - before.bytes,
            rounds: counts.rounds - before.rounds,
            messages_of_round_max: self.messages_of_round_max,
            window: window as f64 / nodes,
            parked: parked as f64 / nodes,
            group_members: counts.members as f64 / counts.groups.max(1) as f64,
            idle_with_work_ns: counts.idle_with_work_ns,
            latency_p50_ns: at(50),
            latency_p99_ns: at(99),
            digest,
            order: None,
        }
    }

    /// Goes on without new calls until nothing is under way, and compares what is there.
    fn end(mut self, judge: &mut Judge, mut until_ns: u64) -> Result<(), String> {
        self.is_ending = true;
        let clients = self.options.clients;
        let mut last = self.counts().0.steps;
        loop {
            until_ns += 100 * self.options.times.epoch_ns;
            self.judge = Some(std::mem::take(judge));
            self.go_on_until(until_ns);
            *judge = self.judge.take().unwrap_or_default();
            if self.nodes.iter().all(|node| node.is_done(clients)) {
                break;
            }
            let steps = self.counts().0.steps;
            if steps == last {
                return Err(format!("seed {}: something waits for ever", self.options.seed));
            }
            last = steps;
        }
        let (counts, _) = self.counts();
        judge
            .compare(self.options, &self.nodes, &counts.tally)
            .map_err(|wrong| format!("seed {}: {wrong}", self.options.seed))
    }
}
