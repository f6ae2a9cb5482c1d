//! What the objects of a backup say, and how they are called.

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use log::Base;
use order::{GroupBatch, digest_of};
use serde::{Deserialize, Serialize};
use txn::Epoch;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::hash::mix;

/// The first part of the names of all objects of a chain.
pub fn chain_name(chain: u32) -> String {
    format!("chain-{chain:06}")
}

/// What says that the checkpoint of an epoch is complete.
pub fn manifest_name(chain: u32, epoch: u64) -> String {
    format!("{}/checkpoint-{epoch:020}.json", chain_name(chain))
}

/// Part of a file of a checkpoint, as a node gave it.
pub fn piece_name(chain: u32, epoch: u64, partition: u16, node: u16, offset: u64) -> String {
    let chain = chain_name(chain);
    format!("{chain}/checkpoint-{epoch:020}/p{partition:05}-n{node:05}-{offset:016}")
}

/// Batches of all groups from an epoch on.
pub fn log_name(chain: u32, first: u64) -> String {
    format!("{}/log-{first:020}", chain_name(chain))
}

/// How far a chain goes: the one object that is written again and again.
pub fn progress_name(chain: u32) -> String {
    format!("{}/progress.json", chain_name(chain))
}

/// What an object is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Of this chain, the manifest of the checkpoint of this epoch.
    Manifest(u32, u64),
    /// Of this chain, part of a file of the checkpoint of this epoch.
    Piece(u32, u64),
    /// Of this chain, batches from this epoch on.
    Log(u32, u64),
    /// Of this chain, how far it goes.
    Progress(u32),
}

impl Named {
    /// `None` if no object of a backup is called so.
    pub fn of(name: &str) -> Option<Named> {
        let (chain, rest) = name.strip_prefix("chain-")?.split_once('/')?;
        let chain = chain.parse().ok()?;
        if rest == "progress.json" {
            return Some(Named::Progress(chain));
        }
        if let Some(first) = rest.strip_prefix("log-") {
            return Some(Named::Log(chain, first.parse().ok()?));
        }
        let rest = rest.strip_prefix("checkpoint-")?;
        match rest.strip_suffix(".json") {
            Some(epoch) => Some(Named::Manifest(chain, epoch.parse().ok()?)),
            None => Some(Named::Piece(chain, rest.split_once('/')?.0.parse().ok()?)),
        }
    }
}

/// A checkpoint of all partitions, all of whose files are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the form of a backup: 1.
    pub version: u32,
    /// The name of the cluster; empty for a server that stands alone.
    pub name: String,
    /// The epoch at whose end it is.
    pub epoch: u64,
    /// That epoch's time, in milliseconds since 1970.
    pub time_ms: u64,
    /// The order's chained digest there, as 16 hexadecimal digits.
    pub digest: String,
    /// The files, in the order of the partitions.
    pub files: Vec<FileEntry>,
}

/// The file of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Which node gave it.
    pub node: u16,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where its parts begin.
    pub offsets: Vec<u64>,
    /// The base that goes with it, as hexadecimal digits.
    pub base: String,
}

impl FileEntry {
    /// The base.
    pub fn base(&self) -> Result<Base> {
        let bytes = from_hexadecimal(&self.base).context("a base in a manifest is no hexadecimal number")?;
        let mut reader = Reader::new(&bytes);
        Base::take(&mut reader).context("a base in a manifest cannot be read")
    }
}

/// Hexadecimal digits.
pub fn to_hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// How far a chain goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainProgress {
    /// The last epoch.
    pub epoch: u64,
    /// Its time, in milliseconds since 1970.
    pub time_ms: u64,
    /// The order's chained digest there, as 16 hexadecimal digits.
    pub digest: String,
    /// The requests that the nodes do not execute.
    pub skips: Vec<String>,
    /// The epochs of its complete checkpoints.
    pub checkpoints: Vec<u64>,
}

/// A place in the order: the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    pub epoch: u64,
    pub time_ms: u64,
    /// The chained digest of all batches up to there.
    pub digest: u64,
}

impl Tip {
    /// The end of the next epoch, which has these batches.
    ///
    /// # Errors
    /// They are not the batches of the next epoch.
    pub fn after(&self, batches: &[Bytes]) -> Result<Tip> {
        let mut tip = Tip { epoch: self.epoch + 1, ..*self };
        for batch in batches {
            let start = GroupBatch::start_of(batch).filter(|start| start.epoch == Epoch(tip.epoch));
            let start = start.ok_or_else(|| anyhow!("a batch of epoch {} is another one", tip.epoch))?;
            tip.time_ms = tip.time_ms.max(start.time_ms);
            tip.digest = mix(tip.digest ^ digest_of(batch));
        }
        Ok(tip)
    }

    /// The digest as it is written.
    pub fn digest_text(&self) -> String {
        format!("{:016x}", self.digest)
    }
}

/// Batches of all groups, of consecutive epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogObject {
    /// The digest before the first of them.
    pub digest_before: u64,
    /// The first epoch.
    pub first: u64,
    /// For each epoch, the batch of each group.
    pub epochs: Vec<Vec<Bytes>>,
}

impl LogObject {
    /// What the object holds.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.digest_before.to_le_bytes().to_vec();
        put_varint(&mut out, self.first);
        put_varint(&mut out, self.epochs.first().map_or(0, |batches| batches.len() as u64));
        put_varint(&mut out, self.epochs.len() as u64);
        for batch in self.epochs.iter().flatten() {
            put_bytes(&mut out, batch);
        }
        out
    }

    /// Reads it.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<LogObject> {
        let read = || {
            let mut reader = Reader::new(bytes);
            let digest_before = reader.u64()?;
            let first = reader.varint()?;
            let (groups, count) = (reader.varint()?, reader.varint()?);
            let mut epochs = Vec::new();
            for _ in 0..count {
                let batches = (0..groups).map(|_| Some(Bytes::copy_from_slice(reader.bytes()?)));
                epochs.push(batches.collect::<Option<Vec<Bytes>>>()?);
            }
            reader.is_empty().then_some(LogObject { digest_before, first, epochs })
        };
        match read() {
            Some(object) if !object.epochs.is_empty() => Ok(object),
            _ => bail!("{name} cannot be read: it is of another version of Ordo"),
        }
    }
}
