//! The engines that nodes have in the world.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The engine of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// Sparkle.
    Sparkle,
    /// Calvin.
    Calvin,
    /// One transaction after the other.
    Serial,
}

impl EngineKind {
    /// All of them.
    pub const ALL: [EngineKind; 3] = [EngineKind::Sparkle, EngineKind::Calvin, EngineKind::Serial];

    /// The name, as `--engine` takes it.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Sparkle => "sparkle",
            EngineKind::Calvin => "calvin",
            EngineKind::Serial => "serial",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = String;
    fn from_str(text: &str) -> Result<EngineKind, String> {
        EngineKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = EngineKind::ALL.map(EngineKind::name).join(", ");
            format!("'{text}' is no engine of the simulator: use one of {names}")
        })
    }
}
