//! What a node is told at its start.

use std::fmt;
use std::str::FromStr;

/// When a batch counts as durable, as Redis's `appendfsync` means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FsyncPolicy {
    /// Once it is fsynced: an acknowledged write survives the loss of power.
    #[default]
    Always,
    /// Once it is written: an acknowledged write survives the death of the process. Fsynced every second.
    Everysec,
    /// Once it is written. The operating system decides when it reaches the disk.
    No,
}

impl FsyncPolicy {
    /// Redis's name of the policy.
    pub fn name(self) -> &'static str {
        match self {
            FsyncPolicy::Always => "always",
            FsyncPolicy::Everysec => "everysec",
            FsyncPolicy::No => "no",
        }
    }
}

impl fmt::Display for FsyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no fsync policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an fsync policy: use always, everysec or no")]
pub struct UnknownFsyncPolicy(pub String);

impl FromStr for FsyncPolicy {
    type Err = UnknownFsyncPolicy;
    fn from_str(text: &str) -> Result<FsyncPolicy, UnknownFsyncPolicy> {
        [FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No]
            .into_iter()
            .find(|policy| policy.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownFsyncPolicy(text.to_owned()))
    }
}

/// The least log between two checkpoints, unless told otherwise: small enough that three nodes that share two
/// cores get on within two seconds after a power loss.
pub const CHECKPOINT_BYTES_DEFAULT: u64 = 16 << 20;

/// How much may be on its way between admission and final commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transactions that were submitted and not yet final-committed.
    pub in_flight_requests_max: u64,
    /// Bytes of the log that hold them.
    pub in_flight_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { in_flight_requests_max: 64 * 1024, in_flight_bytes_max: 256 * 1024 * 1024 }
    }
}
