//! The model's events.

use super::network::{Links, next_round_ns};
use super::node::{self, Counts, Node, Said, percentile_ns, time_ms};
use super::replicated::{Feed, Leader, OnItsWay, OrderCounts, Undecided};
use super::timeline::Timeline;
use super::{Contender, Options, Report, judge::Judge, two_phase};
use crate::world::queue::Queue;
use order::arrange::{Place, Placed, arrange_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::hash::mix;
use txn::{Batch, Epoch, PartitionId};

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
    said: Said,
    notes: u64,
}

struct Run<'a> {
    options: &'a Options,
    nodes: Vec<Node>,
    queue: Queue<Event>,
    epoch: u64,
    digest: u64,
    links: Links,
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
    if let Contender::TwoPhase(rule) = options.contender {
        if options.replication.is_some() {
            return Err(format!("{} has no replicas in the model", options.contender));
        }
        return two_phase::run(options, rule);
    }
    let of_node = options.contender.workers(workers);
    let engine = |at| options.contender.engine(PartitionId(at), nodes, of_node);
    let engines: Result<Arc<[_]>, String> = (0..nodes).map(engine).collect();
    let engines = engines?;
    let all = (0..nodes).map(|at| Node::new(options, PartitionId(at), engines.clone()));
    let all: Vec<Node> = all.collect();
    node::load(&*options.workload, options.seed, &all);
    let run = Run {
        options,
        nodes: all,
        queue: Queue::new(),
        epoch: 0,
        digest: 1,
        links: Links::new(options.seed),
        messages_of_round_max: 0,
        is_ending: false,
        judge: options.judged.then(|| Judge::new(options)),
        leader: options.replication.map(|replication| Leader::new(replication, times, options.costs)),
        undecided: Undecided::default(),
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
                let next_ns = match times.epoch_calls {
                    None => {
                        self.order(usize::MAX, now_ns);
                        times.epoch_ns
                    }
                    Some(calls) => {
                        // When the last clients have ended, what is left is fewer.
                        while self.pending() >= calls || self.is_ending && self.pending() > 0 {
                            self.order(calls, now_ns);
                        }
                        times.round_ns
                    }
                };
                self.queue.add(now_ns + next_ns, Event::Epoch);
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
                let taken_ns = self.nodes[to].wire.taken_ns(letter.notes, now_ns);
                self.queue.add(taken_ns, Event::Taken(letter));
            }
            Event::Taken(letter) => {
                let Letter { from, to, said, .. } = *letter;
                let at = usize::from(to.0);
                if let Some(engine) = self.nodes[at].engine.siblings() {
                    engine.receive(from, said.message);
                }
                self.nodes[at].take_answers(said.answers);
                self.wake(at, now_ns);
            }
        }
    }

    /// Calls of all nodes that wait for an epoch.
    fn pending(&self) -> usize {
        self.nodes.iter().map(|node| node.pending.len()).sum()
    }

    /// Makes an epoch of what has come to all nodes, of so many calls at most.
    fn order(&mut self, most: usize, now_ns: u64) {
        let nodes = self.nodes.iter_mut();
        let pending: Vec<_> = nodes.map(|node| std::mem::take(&mut node.pending)).collect();
        let longest = pending.iter().map(Vec::len).max().unwrap_or(0);
        let in_turn = (0..longest).flat_map(|place| {
            let of_all = pending.iter().enumerate();
            of_all.filter_map(move |(at, of_one)| of_one.get(place).map(|request| (at, request)))
        });
        let mut sequence: Vec<Placed> = Vec::new();
        for (at, request) in in_turn {
            if sequence.len() < most {
                // Calls of one session are of different clients: nothing binds them.
                sequence.push(Placed { request: request.clone(), place: Place::default() });
            } else {
                self.nodes[at].pending.push(request.clone());
            }
        }
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
        let from = PartitionId(at as u16);
        let (sent, done_ns) = self.nodes[at].say(now_ns);
        let way = (self.options.times.latency_ns, self.options.times.jitter_ns);
        let mut to_one: BTreeMap<PartitionId, u64> = BTreeMap::new();
        for sent in sent {
            *to_one.entry(sent.to).or_default() += 1;
            let arrives_ns = self.links.arrives_ns((from, sent.to), sent.left_ns, way);
            let letter = Letter { from, to: sent.to, said: sent.message, notes: sent.notes };
            self.queue.add(arrives_ns, Event::Arrived(Box::new(letter)));
        }
        let most = to_one.values().copied().max().unwrap_or(0);
        self.messages_of_round_max = self.messages_of_round_max.max(most);
        self.queue.add(next_round_ns(now_ns, done_ns, self.options.times.round_ns), Event::Round { at });
    }

    /// All counts, and what all engines threw away or gave back.
    fn counts(&self) -> (Counts, u64) {
        let mut sum = Counts::default();
        let mut restarts = 0;
        for node in &self.nodes {
            sum.add(&node.counts);
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
        let of_node = self.options.contender.workers(self.options.workers);
        Report {
            restarts: restarts - restarts_before,
            messages_of_round_max: self.messages_of_round_max,
            window: window as f64 / nodes,
            parked: parked as f64 / nodes,
            latency_p50_ns: percentile_ns(&latencies, 50) + order_ns,
            latency_p99_ns: percentile_ns(&latencies, 99) + order_ns,
            digest,
            ..counts.since(&before, measured_ns, self.nodes.len() * of_node)
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
