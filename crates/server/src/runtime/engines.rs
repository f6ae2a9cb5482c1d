//! The engines of a node: one for each partition of which it keeps a replica.

use execute::{Budget, Committed, Effects, Engine, Progress, Waiting, WorkerId};
use std::sync::Arc;
use txn::PartitionId;

/// Engines by partition: at least one.
pub(super) struct Engines(Vec<(PartitionId, Arc<dyn Engine>)>);

/// What every partition does for itself is answered by the first of them.
struct OfFirst<'a> {
    partition: PartitionId,
    effects: &'a mut dyn Effects,
}

impl Effects for OfFirst<'_> {
    fn committed(&mut self, committed: Committed) {
        if committed.request.route.partitions.first() == Some(&self.partition) {
            self.effects.committed(committed);
        }
    }
}

impl Engines {
    /// These engines, in the order of their partitions.
    pub fn new(engines: Vec<(PartitionId, Arc<dyn Engine>)>) -> Engines {
        assert!(!engines.is_empty(), "a node keeps a replica of something");
        Engines(engines)
    }

    /// The engine of the first partition.
    pub fn first(&self) -> &Arc<dyn Engine> {
        &self.0[0].1
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Engine>> {
        self.0.iter().map(|(_, engine)| engine)
    }

    /// The place of a partition's engine.
    pub fn place(&self, partition: PartitionId) -> Option<usize> {
        self.0.iter().position(|&(found, _)| found == partition)
    }

    /// A partition's engine.
    pub fn of(&self, partition: PartitionId) -> Option<&Arc<dyn Engine>> {
        self.place(partition).map(|place| &self.0[place].1)
    }

    /// Steps each engine once.
    pub fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        // The first of all partitions answers for itself in any case.
        if let [(PartitionId(0), engine)] = &self.0[..] {
            return engine.step(worker, budget, effects);
        }
        let mut progress = Progress::Idle;
        for (partition, engine) in &self.0 {
            let mut first = OfFirst {
                partition: *partition,
                effects,
            };
            if engine.step(worker, budget, &mut first) == Progress::Worked {
                progress = Progress::Worked;
            }
        }
        progress
    }

    /// Ends what a worker has at hand: see [`Engine::finish`].
    pub fn finish(&self, worker: WorkerId, effects: &mut dyn Effects) {
        for (partition, engine) in &self.0 {
            let mut first = OfFirst {
                partition: *partition,
                effects,
            };
            engine.finish(worker, &mut first);
        }
    }

    /// Work that waits for a worker.
    pub fn waiting(&self) -> Waiting {
        let mut sum = Waiting::default();
        for (_, engine) in &self.0 {
            let waiting = engine.waiting();
            sum.light += waiting.light;
            sum.heavy += waiting.heavy;
        }
        sum
    }
}
