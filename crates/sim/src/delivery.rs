//! How the groups of a cluster agree in the world: how a scenario names it.

use agree::Delivery;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes a delivery as its name.
pub(crate) fn serialize<S: Serializer>(delivery: &Delivery, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(delivery.name())
}

/// Reads a delivery's name.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Delivery, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(de::Error::custom)
}
