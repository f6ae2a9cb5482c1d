//! What a run was like.

/// Counts of a run, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ordered transactions that were answered.
    pub committed: u64,
    /// Of those, the ones that rolled back by their own logic.
    pub rolled_back: u64,
    /// Those that ran at several partitions.
    pub shared: u64,
    /// Those that came again because they touched partitions that they had not named, or because slots had
    /// moved.
    pub widened: u64,
    /// Moves of slots to other partitions.
    pub moved: u64,
    /// Reads at snapshots.
    pub snapshot_reads: u64,
    /// Commands that were refused.
    pub refused: u64,
    /// Commands whose outcome their client never learned.
    pub unknown: u64,
    /// Processes that ended.
    pub ends: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Starts from a checkpoint.
    pub recovered_from_checkpoint: u64,
    /// Checkpoints that were fetched from another node.
    pub installed: u64,
    /// Processes of clusters that were refused because their disk was lost.
    pub disks_refused: u64,
    /// State digests of other replicas that nodes compared with their own.
    pub compared: u64,
    /// Changes of the map that the operator ordered.
    pub changes: u64,
    /// Moves of a replica to another node that the operator ordered.
    pub placed: u64,
    /// Processes that ended because their node had left the cluster.
    pub left: u64,
    /// Nodes in whose place others are.
    pub replaced: u64,
    /// Incarnations of transactions that were thrown away.
    pub restarts: u64,
    /// Times that a transaction was parked.
    pub suspensions: u64,
    /// Transactions of which a replica's engine learned that they are final.
    pub executed: u64,
    /// Of those, the ones that the engine had speculatively committed before.
    pub speculated: u64,
    /// Single-key operations of all workers.
    pub operations: u64,
    /// The sum of the times from sending a command to its reply, refusals left out.
    pub latency_ns: u64,
    /// The longest of them.
    pub latency_max_ns: u64,
    /// Of that, the share of ordered transactions, initial records left out.
    pub ordered_latency_ns: u64,
    /// How many those are.
    pub ordered: u64,
    /// When the first command was sent.
    pub first_ns: u64,
    /// When the last reply arrived.
    pub last_ns: u64,
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: &Tally) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.shared += other.shared;
        self.widened += other.widened;
        self.moved += other.moved;
        self.snapshot_reads += other.snapshot_reads;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.ends += other.ends;
        self.checkpoints += other.checkpoints;
        self.recovered_from_checkpoint += other.recovered_from_checkpoint;
        self.installed += other.installed;
        self.disks_refused += other.disks_refused;
        self.compared += other.compared;
        self.changes += other.changes;
        self.placed += other.placed;
        self.left += other.left;
        self.replaced += other.replaced;
        self.restarts += other.restarts;
        self.suspensions += other.suspensions;
        self.executed += other.executed;
        self.speculated += other.speculated;
        self.operations += other.operations;
        self.latency_ns += other.latency_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
        self.ordered_latency_ns += other.ordered_latency_ns;
        self.ordered += other.ordered;
    }
}
