//! The contract between a node and an engine.

use crate::conflicts::Conflicts;
use crate::kind::{EngineKind, Needs};
use crate::siblings::Message;
use std::sync::Arc;
use store::View;
use txn::{Batch, Epoch, Outcome, PartitionId, Position, Request};

/// What an engine is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Workers that may step it: ids from 0.
    pub workers: usize,
    /// About how many of them run at the same time: threads have ids of which few have a processor.
    pub at_once: usize,
    /// Which partition it executes.
    pub partition: PartitionId,
    /// Out of how many.
    pub of: u16,
    /// What no other process has, with 16 low bits free: siblings tell its processes apart by it.
    pub era: u64,
}

impl Assignment {
    /// That of a node by itself.
    pub fn alone(workers: usize) -> Assignment {
        Assignment { workers, at_once: workers, partition: PartitionId(0), of: 1, era: 1 }
    }
}

/// A thread (or virtual worker) that steps an engine. Numbers are dense from 0; each belongs to one thread at
/// a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerId(pub usize);

/// How much a step may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Single-key operations (reads, writes, and the per-key work of commits, aborts and retractions). The
    /// simulator passes 1, because races live between these; a server passes what fits between two looks at
    /// its sockets.
    pub operations: u32,
    /// Whether heavy requests may be started or resumed here.
    pub heavy: bool,
}

impl Budget {
    /// No bound, all weights.
    pub const UNBOUNDED: Budget = Budget { operations: u32::MAX, heavy: true };
    /// One operation.
    pub const ONE: Budget = Budget { operations: 1, heavy: true };
}

/// What a step achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done: step again, or [`Engine::finish`].
    Worked,
    /// Nothing can be done before the next event (a delivery, a confirmation, a retraction, a sibling's
    /// message, or another worker's step).
    Idle,
}

/// Work that waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Light requests that could be started or resumed now.
    pub light: u64,
    /// Heavy requests that could be started or resumed now.
    pub heavy: u64,
}

/// A final-committed transaction.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Its place in the final order.
    pub position: Position,
    /// The request.
    pub request: Arc<Request>,
    /// Its reply, or why it rolled back.
    pub outcome: Outcome,
    /// How many records it wrote in the engine's partition. What clears all of them counts as one.
    pub writes: usize,
    /// It has siblings, and each of them executed nothing but its own partition's fragments: the outcome is
    /// known at the first of its partitions only.
    pub is_split: bool,
}

/// Takes what an engine produces. Called outside the engine's latches.
pub trait Effects {
    /// A transaction final-committed. Calls of different workers may arrive out of order.
    fn committed(&mut self, committed: Committed);
}

impl Effects for Vec<Committed> {
    fn committed(&mut self, committed: Committed) {
        self.push(committed);
    }
}

/// Counters of an engine, cumulative since its start.
///
/// `final_committed <= confirmed <= delivered` at all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Status {
    /// The last delivered position.
    pub delivered: Position,
    /// The last confirmed position.
    pub confirmed: Position,
    /// The last final-committed position.
    pub final_committed: Position,
    /// Incarnations that were thrown away.
    pub restarts: u64,
    /// Times that an incarnation was parked.
    pub suspensions: u64,
    /// Transactions that were already speculatively committed when their position was confirmed.
    pub speculated_before_confirmation: u64,
    /// The speculation window now, in transactions (0 where the engine has none).
    pub window: u64,
    /// Transactions that are parked now.
    pub parked: u64,
    /// Transactions that wait for a worker to go on with them now, inside the window or not (0 where the
    /// engine does not tell).
    pub ready: u64,
    /// Transactions that were executed fragment by fragment, each where its record's turn came (0 where the
    /// engine does not split transactions).
    pub split: u64,
}

/// One partition replica's concurrency control. Owns no thread and no clock.
///
/// A transaction is *delivered* (its place in the order is tentative), *confirmed* (its place is final:
/// durable and agreed), or *retracted*. Engines run delivered transactions at once and final-commit them, in
/// order, once they are confirmed. Batches are delivered in order and without gaps; a retraction ends with
/// the next delivery at its position.
pub trait Engine: Send + Sync {
    /// The engine's entry in the list of engines.
    fn kind(&self) -> EngineKind;
    /// Its name, as `--engine` takes it.
    fn name(&self) -> &'static str {
        self.kind().name()
    }
    /// What the engine needs from the code that runs it.
    fn needs(&self) -> Needs {
        self.kind().needs()
    }
    /// Takes a batch. Never blocks; whoever delivers bounds how far it runs ahead of
    /// [`Status::final_committed`].
    fn deliver(&self, batch: Batch);
    /// All positions up to `upto` are final.
    fn confirm(&self, upto: Position);
    /// All delivered positions from `from` on are void; `from` must be beyond what is confirmed. What they
    /// wrote goes, and other batches may be delivered there at once.
    fn retract(&self, from: Position);
    /// Does some work on behalf of a worker.
    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress;
    /// Ends what a worker's last step left unfinished, or hands it to others, and begins nothing new. A step
    /// that has spent its budget may keep a transaction, which no other worker can go on with, and for which
    /// all later ones wait: whoever stops stepping before [`Progress::Idle`] calls this, and then sees to it
    /// that somebody steps: what waits for a worker afterwards is anybody's. Engines whose steps keep nothing
    /// need not do anything.
    fn finish(&self, _worker: WorkerId, _effects: &mut dyn Effects) {}
    /// What it says to other partitions and hears of them: none if it executes one partition
    /// ([`Needs::spans_partitions`]).
    fn siblings(&self) -> Option<&dyn Siblings> {
        None
    }
    /// Work that waits for a worker: lets a driver decide whom to wake. Cheap.
    fn waiting(&self) -> Waiting;
    /// The counters.
    fn status(&self) -> Status;
    /// Over which keys transactions conflict. Nothing, where the engine does not tell.
    fn conflicts(&self) -> Conflicts {
        Conflicts::default()
    }
    /// How many workers it was made for.
    fn workers(&self) -> usize;
    /// The records, at final snapshots.
    fn view(&self) -> &dyn View;
}

/// What an engine does whose transactions span partitions: [`crate::siblings`] tells how.
pub trait Siblings: Send + Sync {
    /// Takes what another partition says of transactions that it shares with this one. Messages may come in
    /// any order, more than once, and before the epoch that they are about.
    fn receive(&self, from: PartitionId, message: Message);
    /// Takes out what is to be said to other partitions: one message for each. To be asked after steps,
    /// deliveries and messages.
    fn messages(&self) -> Vec<(PartitionId, Message)>;
    /// Says again, to a partition that may have lost it (with its process or in its retraction), what is to
    /// be said of the transactions behind an epoch: all up to that one are final-committed there. Of those up
    /// to `heard` it may have heard from another replica of this partition; of these it is told what is final
    /// once they are, because it takes nothing else from a second one.
    fn tell_again(&self, to: PartitionId, behind: Epoch, heard: Epoch);
    /// The newest epoch of which another partition has told; 0 if none.
    fn heard(&self, from: PartitionId) -> Epoch;
    /// What was read in the epochs up to this one will not be asked for again: every replica has a checkpoint
    /// behind it.
    fn forget(&self, upto: Epoch);
}
