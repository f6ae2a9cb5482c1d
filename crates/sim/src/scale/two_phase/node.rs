//! A node: its partition, its workers, its clients, and the transactions that it coordinates.

use super::super::Options;
use super::super::network::{Sent, Wire};
use super::super::node::{Counts, LOADED_AT_MS, SAMPLED};
use super::note::Told;
use certify::call::ATTEMPTS;
use certify::two_phase::{Decision, Partition, Prepare, Range, Rule, Timestamp, Used, Vote};
use certify::{Answer, CallEnd, CertifiedCall, Conflict, Look, ReadSet, Wish, WriteSet, session_opened};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use txn::hash::mix;
use txn::key::partition_of_slot;
use txn::{Entry, Key, NodeId, Outcome, PartitionId, Position, Request, RequestId};
use workloads::{Client, Generator};

/// The time that procedures know: none of them acts on it, and serial execution needs one that never goes
/// back.
pub(super) const TIME_MS: u64 = LOADED_AT_MS;
/// A nanosecond of the nodes' clocks, which agree, is so many timestamps (2^this): those of all nodes.
const CLOCK_BITS: u32 = 16;
/// For how many entries a partition remembers votes and sessions: for all of a run.
const HORIZON: u64 = u64::MAX;

/// What a worker does in a step.
enum Job {
    /// Goes on with a client's transaction.
    GoOn(usize),
    /// Decides on a client's transaction.
    Decide(usize),
    /// Does what another node has asked for.
    Serve(PartitionId, Told),
}

/// What a client's transaction goes on with.
enum Next {
    Begin,
    Answered(Answer),
}

/// A client's transaction.
struct OpenCall {
    call: CertifiedCall,
    next: Next,
    /// What has become of the votes, while they are asked for.
    ballot: Option<Ballot>,
    issued_ns: u64,
    /// The timestamp that the present attempt has had since it began, and in the end that of its commit.
    begun: Timestamp,
}

struct Ballot {
    participants: BTreeSet<PartitionId>,
    /// Those of yes.
    votes: BTreeMap<PartitionId, Position>,
    /// What their ranges have in common.
    range: Range,
    /// The first vote of no, and whose it is.
    refused: Option<(PartitionId, Conflict)>,
}

/// A transaction that was committed, and what its client was told.
pub(super) struct CommittedCall {
    pub(super) request: Arc<Request>,
    pub(super) outcome: Outcome,
    pub(super) at: Timestamp,
}

pub(super) struct Node {
    at: PartitionId,
    nodes: u16,
    rule: Rule,
    /// The greatest timestamp that others have told of.
    heard: Timestamp,
    pub(super) partition: Partition,
    /// Workers that have nothing to do.
    pub(super) idle: BTreeSet<usize>,
    /// What each worker goes on with before it takes a job.
    hands: Vec<Option<Job>>,
    jobs: VecDeque<Job>,
    generator: Box<dyn Generator>,
    /// By client.
    calls: Vec<Option<OpenCall>>,
    /// Clients without a call.
    free: Vec<usize>,
    sequence: u64,
    /// Of transactions that are committed here: the participants that have not acknowledged it.
    unfinished: BTreeMap<RequestId, usize>,
    outbox: BTreeMap<PartitionId, Vec<Told>>,
    scratch: Vec<u8>,
    pub(super) wire: Wire,
    step_ns: u64,
    call_ns: u64,
    /// Clients whose transactions wait to be run again, and for how many ticks: of the last step.
    pub(super) waits: Vec<(usize, u64)>,
    /// What was committed in the last step.
    pub(super) committed: Vec<CommittedCall>,
    /// Attempts that had no effect.
    pub(super) restarts: u64,
    pub(super) latencies_ns: Vec<u64>,
    pub(super) counts: Counts,
}

impl Node {
    pub(super) fn new(options: &Options, rule: Rule, at: PartitionId) -> Node {
        let client = Client { index: usize::from(at.0), count: usize::from(options.nodes) };
        Node {
            at,
            nodes: options.nodes,
            rule,
            heard: Timestamp::NONE,
            partition: Partition::new(at, rule, HORIZON),
            idle: (0..options.workers).collect(),
            hands: (0..options.workers).map(|_| None).collect(),
            jobs: VecDeque::new(),
            generator: options.workload.generator(options.seed, client),
            calls: (0..options.clients).map(|_| None).collect(),
            free: (0..options.clients).collect(),
            sequence: 0,
            unfinished: BTreeMap::new(),
            outbox: BTreeMap::new(),
            scratch: Vec::new(),
            wire: Wire::new(options.costs),
            step_ns: options.costs.step_ns,
            call_ns: options.costs.call_ns,
            waits: Vec::new(),
            committed: Vec::new(),
            restarts: 0,
            latencies_ns: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn load(&mut self, key: Key, entry: Entry) {
        self.partition.load(key, entry);
    }

    /// Whether nothing of its clients is under way, and others have finished what they have committed.
    pub(super) fn is_done(&self) -> bool {
        self.free.len() == self.calls.len() && self.unfinished.is_empty()
    }

    /// Clients without a call make their next one. Returns how long that takes a worker.
    pub(super) fn call(&mut self, now_ns: u64) -> u64 {
        let cost_ns = self.free.len() as u64 * self.call_ns;
        for client in std::mem::take(&mut self.free) {
            self.sequence += 1;
            // A client has a session of its own, which is at home at this node.
            let session = session_opened(Position(client as u64), self.at.0);
            let id = RequestId { session, sequence: self.sequence, attempt: 0 };
            let request = Arc::new(self.generator.next().into_request(id, false));
            let call = CertifiedCall::new(request, TIME_MS);
            let (next, begun) = (Next::Begin, Timestamp::NONE);
            self.calls[client] = Some(OpenCall { call, next, ballot: None, issued_ns: now_ns, begun });
            self.jobs.push_back(Job::GoOn(client));
        }
        self.counts.busy_ns += cost_ns;
        cost_ns
    }

    /// A client's transaction has waited long enough.
    pub(super) fn waited(&mut self, client: usize) {
        self.jobs.push_back(Job::GoOn(client));
    }

    /// Takes idle workers for what waits.
    pub(super) fn wake(&mut self) -> Vec<usize> {
        let woken: Vec<usize> = self.idle.iter().copied().take(self.jobs.len()).collect();
        woken.iter().for_each(|worker| {
            self.idle.remove(worker);
        });
        woken
    }

    /// A worker does something: how long it takes, or `None` if there is nothing to do.
    pub(super) fn work(&mut self, worker: usize, now_ns: u64) -> Option<u64> {
        match self.hands[worker].take().or_else(|| self.jobs.pop_front())? {
            Job::GoOn(client) => {
                let wish = self.resumed(client, now_ns);
                self.hands[worker] = self.follow(client, wish, now_ns);
            }
            Job::Decide(client) => {
                let wish = self.decide(client, now_ns);
                self.hands[worker] = self.follow(client, wish, now_ns);
            }
            Job::Serve(from, told) => self.serve(from, told),
        }
        self.counts.steps += 1;
        self.counts.busy_ns += self.step_ns;
        Some(self.step_ns)
    }

    fn open(&mut self, client: usize) -> &mut OpenCall {
        self.calls[client].as_mut().expect("a job is of a call that is under way")
    }

    /// What a client's transaction wishes for now.
    fn resumed(&mut self, client: usize, now_ns: u64) -> Wish {
        let begun = match self.rule.begins_at_timestamp() {
            true => self.clock(now_ns),
            false => Timestamp::NONE,
        };
        let open = self.open(client);
        match std::mem::replace(&mut open.next, Next::Begin) {
            Next::Begin => {
                open.begun = begun;
                open.call.begun(None)
            }
            Next::Answered(answer) => self.answered(client, answer),
        }
    }

    /// A timestamp that no other transaction has had, and that is greater than all that this node knows.
    fn clock(&self, now_ns: u64) -> Timestamp {
        let now = Timestamp(now_ns.saturating_mul(1 << CLOCK_BITS));
        self.greatest().max(now).next_of(NodeId(self.at.0))
    }

    /// The greatest timestamp that this node knows.
    fn greatest(&self) -> Timestamp {
        self.partition.greatest_timestamp().max(self.heard)
    }

    fn answered(&mut self, client: usize, answer: Answer) -> Wish {
        self.restarts += u64::from(matches!(answer, Answer::Conflict(_)));
        self.open(client).call.answered(answer)
    }

    /// Does what a transaction wishes for, as far as that is done in this step. Returns what its worker goes
    /// on with.
    fn follow(&mut self, client: usize, mut wish: Wish, now_ns: u64) -> Option<Job> {
        loop {
            match wish {
                Wish::Begin => return Some(Job::GoOn(client)),
                Wish::Look(Look::Key(key)) => {
                    let owner = partition_of_slot(key.slot(), self.nodes);
                    let begun = self.open(client).begun;
                    if owner != self.at {
                        self.tell(owner, Told::Look { client, key, begun });
                        return None;
                    }
                    self.open(client).next = Next::Answered(self.look(&key, begun));
                    return Some(Job::GoOn(client));
                }
                Wish::Look(_) => {
                    let text = "ERR two-phase commit lists and counts no keys: read them by name";
                    wish = self.answered(client, Answer::Refused(text.into()));
                }
                Wish::Commit(reads, writes) => match self.commit(client, reads, writes) {
                    Some(answer) => wish = self.answered(client, answer),
                    None => return None,
                },
                Wish::Wait { ticks } => {
                    self.waits.push((client, ticks));
                    return None;
                }
                Wish::End(end) => {
                    self.ended(client, end, now_ns);
                    return None;
                }
            }
        }
    }

    /// A record of this node, unless a prepared transaction is in the way.
    fn look(&self, key: &Key, begun: Timestamp) -> Answer {
        self.partition.read(key, begun).map_or_else(Answer::Conflict, Answer::Value)
    }

    /// Asks for the votes. Returns the answer if none is needed, or this node's own is no.
    fn commit(&mut self, client: usize, reads: ReadSet, writes: WriteSet) -> Option<Answer> {
        let open = self.open(client);
        let (id, begun) = (open.call.id(), open.begun);
        let of = self.nodes;
        // Where a transaction has none yet, its partitions look for one behind all that its node knows.
        let timestamp = match writes.is_empty() {
            true if self.rule == Rule::Maat => self.greatest(),
            true => begun,
            false => self.rule.timestamp_of_writer(begun, self.greatest()),
        };
        let mut used: BTreeMap<PartitionId, Used> = BTreeMap::new();
        for (key, version) in reads.keys {
            used.entry(partition_of_slot(key.slot(), of)).or_default().reads.insert(key, version);
        }
        for (key, entry) in writes.records {
            used.entry(partition_of_slot(key.slot(), of)).or_default().writes.records.insert(key, entry);
        }
        used.values_mut().for_each(|used| used.timestamp = timestamp);
        let participants: BTreeSet<PartitionId> = used.keys().copied().collect();
        let own = used.remove(&self.at);
        if used.is_empty() {
            let own = own.unwrap_or_else(|| Used { timestamp, ..Used::default() });
            let range = self.partition.range(&own).unwrap_or(Range::EMPTY);
            self.open(client).begun = self.partition.choose(id, range).unwrap_or_default();
            self.partition.next_entry();
            return Some(self.partition.whole(id, own));
        }
        let (mut votes, mut range) = (BTreeMap::new(), Range::from(Timestamp::NONE));
        let prepare = |used| Prepare { id, behind: Position::NONE, participants: participants.clone(), used };
        if let Some(own) = own {
            match self.vote(prepare(own), true) {
                (Vote::Yes(of_own), at) => {
                    range = of_own;
                    votes.insert(self.at, at);
                }
                (Vote::No(conflict), _) => return Some(Answer::Conflict(conflict)),
                (Vote::Unknown, _) => return Some(Answer::Conflict(Conflict::Superseded)),
            }
        }
        for (to, used) in used {
            let prepare = prepare(used);
            self.tell(to, Told::Prepare { client, prepare });
        }
        self.open(client).ballot = Some(Ballot { participants, votes, range, refused: None });
        None
    }

    fn vote(&mut self, prepare: Prepare, is_home: bool) -> (Vote, Position) {
        let at = self.partition.next_entry();
        (self.partition.vote(prepare, is_home), at)
    }

    /// A participant has voted.
    fn voted(&mut self, from: PartitionId, client: usize, id: RequestId, vote: Vote, at: Position) {
        let Some(open) = self.calls[client].as_mut().filter(|open| open.call.id() == id) else { return };
        let Some(ballot) = open.ballot.as_mut().filter(|ballot| ballot.refused.is_none()) else { return };
        match vote {
            Vote::Yes(range) => {
                ballot.range = ballot.range.and(range);
                ballot.votes.insert(from, at);
                if ballot.votes.len() < ballot.participants.len() {
                    return;
                }
            }
            Vote::No(conflict) => ballot.refused = Some((from, conflict)),
            Vote::Unknown => ballot.refused = Some((from, Conflict::Superseded)),
        }
        self.jobs.push_back(Job::Decide(client));
    }

    /// Commits a transaction that all participants have voted yes to, or aborts it.
    fn decide(&mut self, client: usize, now_ns: u64) -> Wish {
        let open = self.open(client);
        let id = open.call.id();
        let Some(Ballot { participants, votes, range, refused }) = open.ballot.take() else {
            return self.resumed(client, now_ns);
        };
        let at = self.partition.choose(id, range).filter(|_| refused.is_none());
        self.partition.next_entry();
        let answer = match at {
            Some(at) => {
                self.open(client).begun = at;
                self.partition.decide(id, Decision { at, votes })
            }
            None => {
                self.partition.finish(id, None);
                Answer::Conflict(
                    refused.as_ref().map_or(Conflict::Timestamp, |(_, conflict)| conflict.clone()),
                )
            }
        };
        let refuser = refused.map(|(from, _)| from);
        let told = participants.iter().filter(|&&other| other != self.at && Some(other) != refuser);
        let told: Vec<PartitionId> = told.copied().collect();
        if at.is_some() {
            self.unfinished.insert(id, told.len());
        }
        told.into_iter().for_each(|to| self.tell(to, Told::Finish { id, at }));
        self.answered(client, answer)
    }

    fn ended(&mut self, client: usize, end: CallEnd, now_ns: u64) {
        let open = self.open(client);
        let (issued_ns, at) = (open.issued_ns, open.begun);
        let request = open.call.request().clone();
        let outcome = match end {
            CallEnd::Done { outcome, .. } => outcome,
            // The session has nothing else under way, so no earlier attempt has committed, and no site is
            // away: the call has had its attempts.
            _ => {
                let mut again = (*request).clone();
                again.id.attempt += ATTEMPTS;
                let ticks = mix(again.id.seed() ^ u64::from(again.id.attempt)) % (1 << ATTEMPTS);
                open.call = CertifiedCall::new(Arc::new(again), TIME_MS);
                open.next = Next::Begin;
                self.waits.push((client, ticks + 1));
                return;
            }
        };
        if (request.id.sequence).is_multiple_of(SAMPLED) {
            self.latencies_ns.push(now_ns - issued_ns);
        }
        self.counts.tally.add(&outcome);
        self.counts.multi_partition += u64::from(request.route.partitions.len() > 1);
        self.calls[client] = None;
        self.free.push(client);
        self.committed.push(CommittedCall { request, outcome, at });
    }

    /// Does what another node has asked for.
    fn serve(&mut self, from: PartitionId, told: Told) {
        match told {
            Told::Look { client, key, begun } => {
                let answer = self.look(&key, begun);
                let greatest = self.partition.greatest_timestamp();
                self.tell(from, Told::Found { client, answer, greatest });
            }
            Told::Prepare { client, prepare } => {
                let id = prepare.id;
                let (vote, at) = self.vote(prepare, false);
                let greatest = self.partition.greatest_timestamp();
                self.tell(from, Told::Vote { client, id, vote, at, greatest });
            }
            Told::Finish { id, at } => {
                self.partition.next_entry();
                self.partition.finish(id, at);
                if at.is_some() {
                    self.tell(from, Told::Finished { id });
                }
            }
            Told::Found { .. } | Told::Vote { .. } | Told::Finished { .. } => {}
        }
    }

    /// The receiving thread has taken something.
    pub(super) fn receive(&mut self, from: PartitionId, told: Told) {
        match told {
            Told::Found { client, answer, greatest } => {
                self.heard = self.heard.max(greatest);
                self.open(client).next = Next::Answered(answer);
                self.jobs.push_back(Job::GoOn(client));
            }
            Told::Vote { client, id, vote, at, greatest } => {
                self.heard = self.heard.max(greatest);
                self.voted(from, client, id, vote, at);
            }
            Told::Finished { id } => {
                let is_last = self.unfinished.get_mut(&id).is_some_and(|left| {
                    *left -= 1;
                    *left == 0
                });
                if is_last {
                    self.unfinished.remove(&id);
                    self.partition.forget(id);
                }
            }
            told => self.jobs.push_back(Job::Serve(from, told)),
        }
    }

    fn tell(&mut self, to: PartitionId, told: Told) {
        self.outbox.entry(to).or_default().push(told);
    }

    /// The sender's round: what it says, and when it has said it.
    pub(super) fn say(&mut self, now_ns: u64) -> (Vec<Sent<Vec<Told>>>, u64) {
        let mut at_ns = now_ns;
        let outbox = std::mem::take(&mut self.outbox);
        self.counts.rounds += u64::from(!outbox.is_empty());
        let mut all = Vec::with_capacity(outbox.len());
        for (to, message) in outbox {
            let notes = message.iter().map(Told::things).sum();
            let bytes = message.iter().map(|told| told.bytes(&mut self.scratch)).sum();
            let left_ns = self.wire.send(notes, bytes, &mut at_ns);
            self.counts.sent(notes, bytes);
            all.push(Sent { to, message, notes, left_ns });
        }
        (all, at_ns)
    }
}
