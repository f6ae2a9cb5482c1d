//! Who a node of a cluster is, beside its journal: a small file in its data directory.
//!
//! It is written at the first start, from the description or from what peers tell, and counts from then on:
//! the founders' `[[node]]`s may leave the description later, and a node that joined starts again without
//! asking anybody.

use crate::replace::replace_file;
use crate::{hexadecimal, private};
use order::{PartitionMap, Skips};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use txn::codec::Reader;
use txn::hash::hash_bytes;
use txn::{NodeId, RequestName};

/// The file's name.
pub const FILE: &str = "cluster.json";
/// Its format.
const VERSION: u32 = 1;

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub node: NodeId,
    /// The map that the cluster was founded with: where its log begins.
    pub first: PartitionMap,
    /// The map by which it knows what it keeps, and where its peers are.
    pub map: PartitionMap,
}

/// Why a file says nothing.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It cannot be read or written.
    #[error("{path}, which says which node of its cluster this is, cannot be {action}: {cause}")]
    Io {
        /// The file.
        path: String,
        /// Read or written.
        action: &'static str,
        /// Why.
        cause: io::Error,
    },
    /// What it says cannot be understood.
    #[error(
        "{path}, which says which node of its cluster this is, is damaged or of another version: restore \
         the directory from a backup of this very node while it was stopped, or replace the node by a new \
         one (docs/cluster.md)"
    )]
    Damaged {
        /// The file.
        path: String,
    },
}

/// The first map and the newest, as ORDO.CLUSTER MAP replies them and as the file has them: hexadecimal
/// digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maps {
    first: String,
    map: String,
    /// The requests that the node which replies does not execute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    skips: Vec<String>,
}

impl Maps {
    /// Of these maps.
    pub fn of(first: &PartitionMap, map: &PartitionMap) -> Maps {
        Maps { first: to_hexadecimal(first), map: to_hexadecimal(map), skips: Vec::new() }
    }

    /// With what the node skips.
    pub fn with_skips(mut self, skips: &Skips) -> Maps {
        self.skips = skips.iter().map(|(name, _)| name.to_string()).collect();
        self
    }

    /// What the node skips.
    pub fn skips(&self) -> Option<Vec<RequestName>> {
        let names = self.skips.iter().map(|name| name.parse().ok());
        names.collect()
    }

    /// The maps: the first, and the newest.
    pub fn read(&self) -> Option<(PartitionMap, PartitionMap)> {
        Some((from_hexadecimal(&self.first)?, from_hexadecimal(&self.map)?))
    }
}

fn to_hexadecimal(map: &PartitionMap) -> String {
    let mut bytes = Vec::new();
    map.encode(&mut bytes);
    hexadecimal::encode(&bytes)
}

fn from_hexadecimal(text: &str) -> Option<PartitionMap> {
    let bytes = hexadecimal::decode(text.as_bytes())?;
    let mut reader = Reader::new(&bytes);
    PartitionMap::decode(&mut reader).filter(|_| reader.is_empty())
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    node: u16,
    #[serde(flatten)]
    maps: Maps,
    check: u64,
}

impl Content {
    fn checked(&self) -> u64 {
        let text = format!("{} {} {}", self.node, self.maps.first, self.maps.map);
        hash_bytes(text.as_bytes())
    }
}

impl Identity {
    /// What the file in a directory says; `None` if there is none.
    pub fn load(dir: &Path) -> Result<Option<Identity>, IdentityError> {
        let path = dir.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(failed(&path, "read", cause)),
        };
        let damaged = || IdentityError::Damaged { path: path.display().to_string() };
        let content: Content = serde_json::from_slice(&text).map_err(|_| damaged())?;
        if content.version != VERSION || content.check != content.checked() {
            return Err(damaged());
        }
        let (first, map) = content.maps.read().ok_or_else(damaged)?;
        Ok(Some(Identity { node: NodeId(content.node), first, map }))
    }

    /// Writes the file: whole and durable, or not at all.
    pub fn save(&self, dir: &Path) -> Result<(), IdentityError> {
        let mut content =
            Content { version: VERSION, node: self.node.0, maps: Maps::of(&self.first, &self.map), check: 0 };
        content.check = content.checked();
        let path = dir.join(FILE);
        let write = || -> io::Result<()> {
            private::create_dir_all(dir)?;
            replace_file(&path, &serde_json::to_vec(&content)?)
        };
        write().map_err(|cause| failed(&path, "written", cause))
    }
}

fn failed(path: &Path, action: &'static str, cause: io::Error) -> IdentityError {
    IdentityError::Io { path: path.display().to_string(), action, cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::map;

    #[test]
    fn what_was_written_is_read_and_anything_else_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let dir = directory.path().join("new");
        assert_eq!(Identity::load(&dir).expect("no file"), None);
        let mut identity = Identity { node: NodeId(4), first: map(), map: map() };
        identity.map.version = 9;
        identity.save(&dir).expect("written");
        assert_eq!(Identity::load(&dir).expect("a file"), Some(identity.clone()));
        let text = std::fs::read_to_string(dir.join(FILE)).expect("text");
        for damaged in [
            text.replacen("\"node\":4", "\"node\":3", 1),
            text.replacen("\"version\":1", "\"version\":2", 1),
            text[..text.len() / 2].to_owned(),
        ] {
            assert_ne!(damaged, text);
            std::fs::write(dir.join(FILE), damaged).expect("written");
            let error = Identity::load(&dir).expect_err("damaged").to_string();
            assert!(error.contains("cluster.json") && error.contains("replace"), "{error}");
        }
    }
}
