//! One replica as a state machine.
pub mod options;
pub mod session;

pub use options::{FsyncPolicy, Limits, UnknownFsyncPolicy};
