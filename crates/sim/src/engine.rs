//! The engines that nodes have in the world: how a scenario names them.

use execute::EngineKind;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes an engine as its name.
pub(crate) fn serialize<S: Serializer>(kind: &EngineKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// Reads the name of an engine that the oracles can hold to something.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EngineKind, D::Error> {
    let name = String::deserialize(deserializer)?;
    EngineKind::correct_of(&name).map_err(de::Error::custom)
}
