//! What computing costs in virtual time.

use execute::EngineKind;
use serde::{Deserialize, Serialize};

/// Nanoseconds for each thing that a processor or a disk does. `ordo sim calibrate` measures them;
/// [`CostTable::DEFAULT`] holds rounded figures of one run, so that worlds are the same everywhere unless a
/// table is given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CostTable {
    /// A single-key operation of the Sparkle engine, commits included.
    pub sparkle_operation_ns: u64,
    /// The same of Calvin.
    pub calvin_operation_ns: u64,
    /// The same of ParSpec.
    pub parspec_operation_ns: u64,
    /// The same of Q-Store.
    pub qstore_operation_ns: u64,
    /// The same of S-SMR.
    pub ssmr_operation_ns: u64,
    /// A transaction of the serial engine, which runs each in one step.
    pub serial_operation_ns: u64,
    /// Decoding a command and encoding its reply. The kernel's share of moving bytes is not in it.
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
    /// Figures of a two-core virtual machine of 2026, rounded, but for the sync, which is a local NVMe
    /// disk's.
    pub const DEFAULT: CostTable = CostTable {
        sparkle_operation_ns: 140,
        calvin_operation_ns: 160,
        parspec_operation_ns: 200,
        qstore_operation_ns: 140,
        ssmr_operation_ns: 130,
        serial_operation_ns: 650,
        command_ns: 100,
        batch_ns: 250,
        request_ns: 60,
        read_ns: 180,
        sync_ns: 150_000,
        checkpoint_record_ns: 350,
    };

    /// What a step of an engine costs with a budget of one operation.
    pub fn operation_ns(&self, kind: EngineKind) -> u64 {
        match kind {
            EngineKind::Sparkle => self.sparkle_operation_ns,
            EngineKind::Calvin => self.calvin_operation_ns,
            EngineKind::ParSpec => self.parspec_operation_ns,
            EngineKind::QStore => self.qstore_operation_ns,
            EngineKind::Ssmr => self.ssmr_operation_ns,
            // Whole transactions.
            EngineKind::Serial | EngineKind::NoCc => self.serial_operation_ns,
        }
    }
}

impl Default for CostTable {
    fn default() -> CostTable {
        CostTable::DEFAULT
    }
}
