//! A node of the model: its engine, its workers, its network threads, and its clients.

use super::network::{Sent, Wire};
use super::{Contender, Options, Report};
use execute::siblings::{Message, Note};
use execute::{Budget, Committed, Engine, Progress, ReadOutcome, Siblings, SnapshotReader, WorkerId, calvin};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::Image;
use txn::codec::put_reply;
use txn::hash::{FixedMap, hash_bytes, mix};
use txn::{Footprint, PartitionId, Position, Request, RequestId, SessionId, Stop};
use workloads::{Client, Generator, Tally, Workload};

/// The epoch time of the loaded records.
pub(super) const LOADED_AT_MS: u64 = 1_700_000_000_000;
/// One of so many calls has its latency taken.
pub(super) const SAMPLED: u64 = 16;

/// The model's clock as procedures see it.
pub(super) fn time_ms(now_ns: u64) -> u64 {
    LOADED_AT_MS + now_ns / 1_000_000
}

/// What a worker does beside its engine.
enum Job {
    /// A read-only call at a snapshot.
    Read(Arc<Request>),
    /// Finds the keys of a call.
    Reconnaissance(Arc<Request>),
    /// Gives a call the outcome that another node has told. What that takes is part of a step elsewhere.
    Answer(Arc<Request>, txn::Outcome),
}

/// What is counted. All of it since the beginning, but for latencies.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) tally: Tally,
    pub(super) multi_partition: u64,
    pub(super) steps: u64,
    pub(super) busy_ns: u64,
    pub(super) messages: u64,
    pub(super) notes: u64,
    pub(super) bytes: u64,
    pub(super) rounds: u64,
    pub(super) groups: u64,
    pub(super) members: u64,
    pub(super) idle_with_work_ns: u64,
    pub(super) looks: u64,
    pub(super) snapshot_reads: u64,
}

impl Counts {
    /// Calls that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.tally.committed + self.tally.aborted_by_logic
    }

    /// A message has been sent.
    pub(super) fn sent(&mut self, notes: u64, bytes: u64) {
        self.messages += 1;
        self.notes += notes;
        self.bytes += bytes;
    }

    /// Adds what was counted at another node.
    pub(super) fn add(&mut self, other: &Counts) {
        self.tally.merge(&other.tally);
        self.multi_partition += other.multi_partition;
        self.steps += other.steps;
        self.busy_ns += other.busy_ns;
        self.messages += other.messages;
        self.notes += other.notes;
        self.bytes += other.bytes;
        self.rounds += other.rounds;
        self.groups += other.groups;
        self.members += other.members;
        self.idle_with_work_ns += other.idle_with_work_ns;
        self.looks += other.looks;
        self.snapshot_reads += other.snapshot_reads;
    }

    /// What was counted since `before`, in a time in which so many workers could have worked. What is not
    /// counted here is left at 0.
    pub(super) fn since(&self, before: &Counts, measured_ns: u64, workers: usize) -> Report {
        Report {
            measured_ns,
            committed: self.tally.committed - before.tally.committed,
            rolled_back: self.tally.aborted_by_logic - before.tally.aborted_by_logic,
            multi_partition: self.multi_partition - before.multi_partition,
            steps: self.steps - before.steps,
            looks: self.looks - before.looks,
            snapshot_reads: self.snapshot_reads - before.snapshot_reads,
            busy: (self.busy_ns - before.busy_ns) as f64 / (measured_ns as f64 * workers as f64),
            messages: self.messages - before.messages,
            notes: self.notes - before.notes,
            bytes: self.bytes - before.bytes,
            rounds: self.rounds - before.rounds,
            group_members: self.members as f64 / self.groups.max(1) as f64,
            idle_with_work_ns: self.idle_with_work_ns,
            ..Report::default()
        }
    }
}

/// The latency that so many percent of these are at most. They are sorted.
pub(super) fn percentile_ns(latencies: &[u64], percent: usize) -> u64 {
    let place = latencies.len().saturating_sub(1) * percent / 100;
    latencies.get(place).copied().unwrap_or(0)
}

pub(super) struct Node {
    pub(super) at: PartitionId,
    pub(super) engine: Arc<dyn Engine>,
    /// Those of all nodes, for reconnaissance.
    engines: Arc<[Arc<dyn Engine>]>,
    contender: Contender,
    /// Workers that have nothing to do.
    pub(super) idle: BTreeSet<usize>,
    jobs: VecDeque<Job>,
    reader: SnapshotReader,
    generator: Box<dyn Generator>,
    sequence: u64,
    /// Clients without a call.
    free: usize,
    /// The nodes of a replicated cluster, 1 otherwise: each executes the reads of its own clients only.
    replicas: u64,
    /// Reads of other replicas' clients that have just begun.
    pub(super) elsewhere: Vec<Arc<Request>>,
    /// How long the last read took from its call to its end.
    last_read_ns: u64,
    /// Workers from here on execute reads only.
    reads_from: usize,
    /// What waits for the next epoch.
    pub(super) pending: Vec<Arc<Request>>,
    /// The position behind what is delivered.
    pub(super) next: Position,
    issued_ns: FixedMap<u64, u64>,
    pub(super) latencies_ns: Vec<u64>,
    committed: Vec<Committed>,
    /// Outcomes of other nodes' clients, which are known here only.
    answers: Vec<Answer>,
    /// What the engine gave back: it is in the order, and did nothing there.
    pub(super) given_back: Vec<RequestId>,
    pub(super) counts: Counts,
    pub(super) digest: u64,
    pub(super) wire: Wire,
    costs: super::Costs,
}

impl Node {
    /// A node with its part of the workload's records.
    pub(super) fn new(options: &Options, at: PartitionId, engines: Arc<[Arc<dyn Engine>]>) -> Node {
        let engine = engines[usize::from(at.0)].clone();
        let client = Client { index: usize::from(at.0), count: usize::from(options.nodes) };
        let reads_from = options.contender.workers(options.workers);
        let readers = options.replication.map_or(0, |replication| replication.readers);
        Node {
            at,
            replicas: options.replication.map_or(1, |replication| u64::from(replication.replicas.max(1))),
            elsewhere: Vec::new(),
            last_read_ns: 0,
            reads_from,
            contender: options.contender,
            idle: (0..reads_from + readers).collect(),
            jobs: VecDeque::new(),
            reader: SnapshotReader::new(engine.clone()),
            engine,
            engines,
            generator: options.workload.generator(options.seed, client),
            sequence: u64::from(at.0),
            free: options.clients,
            pending: Vec::new(),
            next: Position::FIRST.next(),
            issued_ns: FixedMap::default(),
            latencies_ns: Vec::new(),
            committed: Vec::new(),
            answers: Vec::new(),
            given_back: Vec::new(),
            counts: Counts::default(),
            digest: u64::from(at.0),
            wire: Wire::new(options.costs),
            costs: options.costs,
        }
    }

    pub(super) fn load(&self, image: Image) {
        self.engine.view().load(image);
    }
    pub(super) fn loaded(&self) {
        let view = self.engine.view();
        view.loaded(Position::FIRST, LOADED_AT_MS, &[]);
    }

    /// Whether nothing is under way: of its clients, and of others' siblings.
    pub(super) fn is_done(&self, clients: usize) -> bool {
        let status = self.engine.status();
        self.free == clients && status.final_committed.next() == self.next
    }

    // Clients.

    /// Clients without a call make their next one. Returns how long that takes a worker.
    pub(super) fn call(&mut self, nodes: u16, now_ns: u64) -> u64 {
        let cost_ns = self.free as u64 * self.costs.call_ns;
        while self.free > 0 {
            self.free -= 1;
            // Different on all nodes, and from 1.
            self.sequence += u64::from(nodes);
            let draw = self.generator.next();
            let id = RequestId {
                session: SessionId(u64::from(self.at.0) + 1),
                sequence: self.sequence,
                attempt: 0,
            };
            if (self.sequence / u64::from(nodes)).is_multiple_of(SAMPLED) {
                self.issued_ns.insert(self.sequence, now_ns);
            }
            let read = draw.read_only && self.contender.reads_at_snapshots();
            let request = Arc::new(draw.into_request(id, self.contender.needs().declared_keys));
            if read && !self.sequence.is_multiple_of(self.replicas) {
                self.elsewhere.push(request);
            } else if read {
                self.jobs.push_back(Job::Read(request));
            } else {
                self.submit(request);
            }
        }
        self.counts.busy_ns += cost_ns;
        cost_ns
    }

    fn submit(&mut self, request: Arc<Request>) {
        if self.contender.needs().declared_keys && request.footprint.keys.is_none() {
            self.jobs.push_back(Job::Reconnaissance(request));
        } else {
            self.pending.push(request);
        }
    }

    /// A read at another replica has ended, after as long as a read takes here.
    pub(super) fn ended_elsewhere(&mut self, request: &Request, now_ns: u64) {
        self.counts.snapshot_reads += 1;
        self.ended(request.id.sequence, &Ok(txn::Reply::Integer(0)), now_ns);
    }
    pub(super) fn read_elsewhere_ns(&self) -> u64 {
        self.last_read_ns.max(self.costs.read_ns)
    }

    /// A call of this node's client has ended.
    fn ended(&mut self, sequence: u64, outcome: &txn::Outcome, now_ns: u64) {
        self.counts.tally.add(outcome);
        self.free += 1;
        if let Some(issued_ns) = self.issued_ns.remove(&sequence) {
            self.latencies_ns.push(now_ns - issued_ns);
        }
    }

    // Workers.

    /// A worker does something: how long it takes, or `None` if there is nothing to do. Jobs beside the
    /// engine come first, as in a server, whose threads run a read at a snapshot when it arrives. A read that
    /// waited for an idle engine would wait until all clients wait for reads. Only a lock scheduler prefers
    /// its engine.
    pub(super) fn work(&mut self, worker: usize, now_ns: u64) -> Option<u64> {
        if worker >= self.reads_from {
            let job = self.jobs.pop_front()?;
            return Some(self.run_job(job, now_ns));
        }
        let is_scheduler = worker == 0 && self.contender.has_scheduler() && self.engine.workers() > 1;
        let has_readers = self.replicas > 1;
        if !is_scheduler
            && !has_readers
            && let Some(job) = self.jobs.pop_front()
        {
            let cost_ns = self.run_job(job, now_ns);
            self.counts.busy_ns += cost_ns;
            return Some(cost_ns);
        }
        let mut committed = std::mem::take(&mut self.committed);
        let progress = self.engine.step(WorkerId(worker), Budget::ONE, &mut committed);
        for committed in committed.drain(..) {
            self.settle(committed, now_ns);
        }
        self.committed = committed;
        let cost_ns = match progress {
            Progress::Worked => {
                self.counts.steps += 1;
                self.costs.step_ns
            }
            Progress::Idle if has_readers => return None,
            Progress::Idle => {
                let job = self.jobs.pop_front()?;
                self.run_job(job, now_ns)
            }
        };
        self.counts.busy_ns += cost_ns;
        Some(cost_ns)
    }

    fn settle(&mut self, committed: Committed, now_ns: u64) {
        let Committed { position, request, outcome, is_split, .. } = committed;
        let is_home = request.route.home == self.at;
        let is_answering = request.route.partitions.first() == Some(&self.at);
        if matches!(outcome, Err(Stop::Undeclared(_))) {
            if !is_home {
                return;
            }
            self.given_back.push(request.id);
            let mut again = (*request).clone();
            again.id.attempt += 1;
            again.footprint = Footprint::unknown();
            return self.submit(Arc::new(again));
        }
        self.digest = mix(self.digest ^ mix(position.0) ^ now_ns);
        match (is_home, is_split && !is_answering) {
            (true, false) => self.answered(&request, &outcome, now_ns),
            (true, true) => {}
            (false, _) if is_split && is_answering => self.answers.push((request, outcome)),
            (false, _) => {}
        }
    }

    /// Outcomes of calls of this node's clients have come from another node.
    pub(super) fn take_answers(&mut self, answers: Vec<Answer>) {
        self.jobs.extend(answers.into_iter().map(|(request, outcome)| Job::Answer(request, outcome)));
    }

    /// A call of this node's client has its outcome.
    fn answered(&mut self, request: &Request, outcome: &txn::Outcome, now_ns: u64) {
        if let Ok(reply) = outcome {
            self.digest = mix(self.digest ^ hash_bytes(format!("{reply:?}").as_bytes()));
        }
        self.counts.multi_partition += u64::from(request.route.partitions.len() > 1);
        self.ended(request.id.sequence, outcome, now_ns);
    }

    fn run_job(&mut self, job: Job, now_ns: u64) -> u64 {
        match job {
            Job::Read(request) => {
                let outcome = self.reader.run(&request, time_ms(now_ns));
                match outcome {
                    ReadOutcome::Done(outcome) => {
                        self.counts.snapshot_reads += 1;
                        self.ended(request.id.sequence, &outcome, now_ns);
                    }
                    ReadOutcome::MustOrder | ReadOutcome::Interrupted => self.pending.push(request),
                }
                self.last_read_ns = self.look(self.reader.looks());
                self.last_read_ns
            }
            Job::Answer(request, outcome) => {
                self.answered(&request, &outcome, now_ns);
                0
            }
            Job::Reconnaissance(request) => {
                let mut request = (*request).clone();
                let shared = Arc::new(request.clone());
                let found = calvin::reconnoitre(&self.engines, &shared, time_ms(now_ns));
                request.footprint = found.footprint;
                let partitions = request.route.partitions.iter().chain(&found.partitions);
                let partitions: BTreeSet<PartitionId> = partitions.copied().collect();
                request.route.partitions = partitions.into_iter().collect();
                let looks = request.footprint.keys.as_ref();
                let looks = looks.map_or(1, |keys| keys.reads.len() + keys.writes.len());
                self.pending.push(Arc::new(request));
                self.look(looks as u64)
            }
        }
    }

    /// What it takes to look at so many records.
    fn look(&mut self, looks: u64) -> u64 {
        self.counts.looks += looks;
        looks.max(1) * self.costs.read_ns
    }

    /// What waits for a worker.
    pub(super) fn waiting(&self) -> u64 {
        let waiting = self.engine.waiting();
        waiting.light + waiting.heavy + self.jobs.len() as u64
    }

    /// Takes idle workers for what waits. One more than that, since the first one may be good for nothing but
    /// scheduling.
    pub(super) fn wake(&mut self) -> Vec<usize> {
        if self.idle.is_empty() {
            return Vec::new();
        }
        let wanted = match self.waiting() {
            0 => 0,
            waiting => waiting as usize + 1,
        };
        let mut woken: Vec<_> = self.idle.iter().copied().take(wanted).collect();
        if self.replicas > 1 {
            let readers = self.idle.range(self.reads_from..).copied().take(self.jobs.len());
            woken.extend(readers.filter(|reader| !woken.contains(reader)).collect::<Vec<_>>());
        }
        for worker in &woken {
            self.idle.remove(worker);
        }
        woken
    }

    // The network.

    /// The sender's round: what it says, and when it has said it.
    pub(super) fn say(&mut self, now_ns: u64) -> (Vec<Sent<Said>>, u64) {
        let mut at_ns = now_ns;
        let mut messages: BTreeMap<PartitionId, Said> = BTreeMap::new();
        for (to, message) in self.engine.siblings().map_or_else(Vec::new, Siblings::messages) {
            messages.entry(to).or_default().message = message;
        }
        for (request, outcome) in self.answers.drain(..) {
            messages.entry(request.route.home).or_default().answers.push((request, outcome));
        }
        self.counts.rounds += u64::from(!messages.is_empty());
        let sent = messages.into_iter().map(|(to, message)| {
            let notes = message.notes();
            let bytes = message.bytes();
            let left_ns = self.wire.send(notes, bytes, &mut at_ns);
            self.counts.sent(notes, bytes);
            Sent { to, message, notes, left_ns }
        });
        let sent = sent.collect();
        (sent, at_ns)
    }
}

/// The outcome of a call.
type Answer = (Arc<Request>, txn::Outcome);

/// What one node says to another in a round.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Of sub-transactions.
    pub(super) message: Message,
    /// Outcomes of calls of its clients, which are known at the sender only.
    pub(super) answers: Vec<Answer>,
}

impl Said {
    /// How many things it tells.
    pub(super) fn notes(&self) -> u64 {
        let notes = self.message.groups.iter().flat_map(|(_, notes)| notes);
        notes.map(things_told).sum::<u64>() + self.answers.len() as u64
    }

    fn bytes(&self) -> u64 {
        const ID_BYTES: usize = 8;
        let answers = self.answers.iter().map(|(_, outcome)| {
            let mut bytes = Vec::new();
            if let Ok(reply) = outcome {
                put_reply(&mut bytes, reply);
            }
            ID_BYTES + bytes.len()
        });
        (self.message.encode().len() + answers.sum::<usize>()) as u64
    }
}

/// How many things a note tells. An engine that tells all values of a transaction in one note does as much
/// for each of them as one that tells each in its own.
fn things_told(note: &Note) -> u64 {
    match note {
        Note::Final { values, .. } => values.len().max(1) as u64,
        Note::Fragments { results, .. } => (results.values.len() + results.notes.len()).max(1) as u64,
        Note::Read { .. } | Note::Anchor { .. } | Note::Confirmation { .. } => 1,
    }
}

/// Loads a workload's records into the partitions that they are of.
pub(super) fn load(workload: &dyn Workload, seed: u64, nodes: &[Node]) {
    let of = nodes.len() as u16;
    for part in 0..workload.parts() {
        workload.load(seed, part, &mut |key, entry| {
            let at = txn::key::partition_of_slot(key.slot(), of);
            nodes[usize::from(at.0)].load(Image { key, version: Position::FIRST, entry: Some(entry) });
        });
    }
    for node in nodes {
        node.loaded();
    }
}
