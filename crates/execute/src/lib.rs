//! Order-then-execute engines (to be told here).
pub mod engine;
pub use engine::{Batch, Budget, Committed, Effects, Engine, Progress, Status, Waiting, WorkerId};
pub mod snapshot;
pub use snapshot::{ReadOutcome, SnapshotReader, run_read_only};
