//! The engines of a node: one for each partition of which it keeps a replica.

use super::news::{Commit, News};
use super::port::Replies;
use execute::siblings::{Sent, Twins, exchange};
use execute::{Budget, Committed, Effects, Engine, Progress, Waiting, WorkerId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use txn::PartitionId;

/// Engines by partition: at least one.
pub(super) struct Engines {
    list: Vec<(PartitionId, Arc<dyn Engine>)>,
    /// What they have to say to partitions of other nodes.
    sent: Mutex<Vec<Sent>>,
    /// There is something: most nodes have never anything, and every step looks.
    has_sent: AtomicBool,
    /// Whether what they say to each other is for other nodes too.
    twins: Twins,
    /// What is committed is reported here.
    news: News,
    /// Records that were written, and how many of those a checkpoint has.
    changes: AtomicU64,
    changes_saved: AtomicU64,
}

/// What comes of the engine of a partition. What every partition does for itself is answered by the first of
/// them, and told by the first of those that this node keeps.
struct OfPartition<'a> {
    partition: PartitionId,
    /// The node's partitions before this one.
    before: &'a [(PartitionId, Arc<dyn Engine>)],
    /// It is the first of all, which answers for itself in any case.
    is_first: bool,
    replies: &'a mut Replies,
    news: &'a News,
    commits: Vec<Commit>,
    /// Records that were written.
    changes: usize,
}

impl Effects for OfPartition<'_> {
    fn committed(&mut self, mut committed: Committed) {
        self.changes += committed.writes;
        let request = &committed.request;
        let is_first = self.is_first || request.route.partitions.first() == Some(&self.partition);
        let (id, executors) = (request.id, &request.route.partitions);
        let is_told = !self.before.iter().any(|(partition, _)| executors.contains(partition));
        let at = (self.partition, committed.position);
        let commit = self.news.take(at, id, is_told, &mut committed.outcome);
        self.commits.extend(commit);
        if is_first {
            self.replies.committed(committed);
        }
    }
}

impl Engines {
    /// These engines, in the order of their partitions.
    pub fn new(engines: Vec<(PartitionId, Arc<dyn Engine>)>, twins: Twins) -> Engines {
        assert!(!engines.is_empty(), "a node keeps a replica of something");
        Engines {
            list: engines,
            sent: Mutex::default(),
            has_sent: AtomicBool::new(false),
            twins,
            news: News::default(),
            changes: AtomicU64::new(0),
            changes_saved: AtomicU64::new(0),
        }
    }

    /// Who listens to what is committed.
    pub fn news(&self) -> &News {
        &self.news
    }

    /// The engine of the first partition.
    pub fn first(&self) -> &Arc<dyn Engine> {
        &self.list[0].1
    }

    /// How many records were written since this process began, those of its log behind the checkpoint
    /// included.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// How many of them no checkpoint has, but for those that were written while one was being pinned.
    pub fn changes_since_checkpoint(&self) -> u64 {
        let saved = self.changes_saved.load(Ordering::Relaxed);
        self.changes().saturating_sub(saved)
    }

    /// A checkpoint was written that has this many of [`Engines::changes`].
    pub fn checkpoint_written(&self, changes: u64) {
        self.changes_saved.store(changes, Ordering::Relaxed);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Engine>> {
        self.list.iter().map(|(_, engine)| engine)
    }

    /// All of them, with their partitions.
    pub fn with_partitions(&self) -> impl Iterator<Item = (PartitionId, &Arc<dyn Engine>)> {
        self.list.iter().map(|(partition, engine)| (*partition, engine))
    }

    /// The place of a partition's engine.
    pub fn place(&self, partition: PartitionId) -> Option<usize> {
        self.list.iter().position(|&(found, _)| found == partition)
    }

    /// A partition's engine.
    pub fn of(&self, partition: PartitionId) -> Option<&Arc<dyn Engine>> {
        self.place(partition).map(|place| &self.list[place].1)
    }

    /// Takes out what is to be said to partitions of other nodes.
    pub fn take_sent(&self) -> Vec<Sent> {
        if !self.has_sent.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut sent = self.sent.lock();
        self.has_sent.store(false, Ordering::SeqCst);
        std::mem::take(&mut *sent)
    }

    /// Takes what the engines have to say to each other to its place. Whether any was told anything.
    fn exchange(&self) -> bool {
        let mut sent = Vec::new();
        let told = exchange(&self.list, &self.twins, &mut sent);
        if !sent.is_empty() {
            let mut waiting = self.sent.lock();
            waiting.append(&mut sent);
            self.has_sent.store(true, Ordering::SeqCst);
        }
        told
    }

    /// Steps each engine once.
    pub fn step(&self, worker: WorkerId, budget: Budget, replies: &mut Replies) -> Progress {
        let mut progress = Progress::Idle;
        for (place, (_, engine)) in self.list.iter().enumerate() {
            let step = |effects: &mut OfPartition<'_>| engine.step(worker, budget, effects);
            if self.with_effects(place, replies, step) == Progress::Worked {
                progress = Progress::Worked;
            }
        }
        if self.exchange() {
            progress = Progress::Worked;
        }
        progress
    }

    /// Ends what a worker has at hand: see [`Engine::finish`].
    pub fn finish(&self, worker: WorkerId, replies: &mut Replies) {
        for (place, (_, engine)) in self.list.iter().enumerate() {
            self.with_effects(place, replies, |effects| {
                engine.finish(worker, effects);
            });
        }
        self.exchange();
    }

    /// Does something with the engine of a partition, and tells what it committed.
    fn with_effects<R>(
        &self,
        place: usize,
        replies: &mut Replies,
        act: impl FnOnce(&mut OfPartition<'_>) -> R,
    ) -> R {
        let partition = self.list[place].0;
        let mut effects = OfPartition {
            partition,
            before: &self.list[..place],
            is_first: partition == PartitionId(0),
            replies,
            news: &self.news,
            commits: Vec::new(),
            changes: 0,
        };
        let result = act(&mut effects);
        if effects.changes > 0 {
            self.changes.fetch_add(effects.changes as u64, Ordering::Relaxed);
        }
        let mut commits = effects.commits;
        if !commits.is_empty() {
            self.news.committed(partition, &mut commits);
        }
        result
    }

    /// Work that waits for a worker.
    pub fn waiting(&self) -> Waiting {
        let mut sum = Waiting::default();
        for (_, engine) in &self.list {
            let waiting = engine.waiting();
            sum.light += waiting.light;
            sum.heavy += waiting.heavy;
        }
        sum
    }
}
