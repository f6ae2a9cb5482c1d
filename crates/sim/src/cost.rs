//! What computing costs in virtual time.

use serde::{Deserialize, Serialize};

/// Nanoseconds for each thing that a processor or a disk does. `ordo sim calibrate` measures them; [`CostTable::DEFAULT`]
/// holds rounded figures of one run, so that worlds are the same everywhere unless a table is given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostTable {
    /// A single-key operation of the Sparkle engine, commits included.
    pub sparkle_operation_ns: u64,
    /// The same of Calvin.
    pub calvin_operation_ns: u64,
    /// The same of the serial engine.
    pub serial_operation_ns: u64,
    /// Taking a command in: decoding it, and encoding its reply.
    pub command_ns: u64,
    /// Ordering a batch: its record of the log, apart from its requests.
    pub batch_ns: u64,
    /// Ordering a request.
    pub request_ns: u64,
    /// A read at a snapshot.
    pub read_ns: u64,
    /// A sync of the log.
    pub sync_ns: u64,
    /// Writing a record of a checkpoint.
    pub checkpoint_record_ns: u64,
}

impl CostTable {
    /// Figures of a two-core virtual machine of 2026, rounded; a sync is an NVMe disk's.
    pub const DEFAULT: CostTable = CostTable {
        sparkle_operation_ns: 300,
        calvin_operation_ns: 250,
        serial_operation_ns: 150,
        command_ns: 1_500,
        batch_ns: 2_000,
        request_ns: 400,
        read_ns: 600,
        sync_ns: 150_000,
        checkpoint_record_ns: 500,
    };
}

impl Default for CostTable {
    fn default() -> CostTable {
        CostTable::DEFAULT
    }
}
