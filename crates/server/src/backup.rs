//! What a backup is told by a node (ORDO.BACKUP), in the form in which it travels: whoever backs up reads
//! what this writes.
//!
//! A backup asks a node where it is ([`BackupPlace`]), for parts of a checkpoint's files ([`FilePart`]), and
//! for what the journal has of the order ([`LogPart`]). Each reply is bounded ([`PART_BYTES`]), and a node
//! keeps nothing between two questions, except that a checkpoint's files stay for a while once they were
//! asked for.

use bytes::Bytes;
use log::{Base, EntryKind, Kept, ReadFrom};
use node::cluster::CANDIDATES;
use order::GroupBatch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{Epoch, PartitionId};

/// About how many bytes of a file one reply has. A record of the journal is not cut, so it may have more.
pub const PART_BYTES: usize = 4 << 20;

/// Where a node is: the reply to ORDO.BACKUP WHERE, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupPlace {
    /// The cluster's name; empty for a server that stands alone.
    pub name: String,
    /// The number of the cluster, as 16 hexadecimal digits.
    pub cluster: String,
    /// It stands alone.
    pub alone: bool,
    /// The node's number.
    pub node: u16,
    /// How many partitions there are.
    pub partitions: u16,
    /// The last epoch that is agreed in all groups, as far as this node knows.
    pub epoch: u64,
    /// That epoch's time, in milliseconds since 1970.
    pub time_ms: u64,
    /// The order's chained digest at that epoch's end, as 16 hexadecimal digits.
    pub digest: String,
    /// The requests that this node does not execute, by their names.
    pub skips: Vec<String>,
    /// The epoch of this node's newest checkpoint; 0 without one.
    pub checkpoint: u64,
    /// The last record of this node's journal.
    pub record: u64,
    /// Of each group whose log this node keeps: up to which index entries in that journal are agreed.
    pub agreed: BTreeMap<u16, u64>,
    /// Where each node of the cluster answers clients.
    pub addresses: Vec<String>,
}

/// From which epochs on a node can tell of changes: the reply to ORDO.CHANGES, as JSON.
///
/// An exporter that has the changes up to an epoch goes on behind the newest checkpoint that is not newer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesPlace {
    /// The epochs of the checkpoints behind which this node's log has the order, oldest first.
    pub checkpoints: Vec<u64>,
    /// The last epoch that is agreed in all groups, as far as this node knows.
    pub epoch: u64,
    /// That epoch's time, in milliseconds since 1970.
    pub time_ms: u64,
}

/// Part of a checkpoint's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The length of the whole file in bytes.
    pub total: u64,
    /// What the file's group has kept with it.
    pub base: Base,
    /// The part's bytes.
    pub bytes: Bytes,
}

impl FilePart {
    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        let mut base = Vec::new();
        self.base.encode(&mut base);
        let mut out = Vec::with_capacity(self.bytes.len() + base.len() + 32);
        put_varint(&mut out, self.total);
        put_bytes(&mut out, &base);
        put_bytes(&mut out, &self.bytes);
        out
    }

    /// Reads it. `None` on anything else.
    pub fn decode(bytes: &[u8]) -> Option<FilePart> {
        let mut reader = Reader::new(bytes);
        let total = reader.varint()?;
        let base = Base::take(&mut Reader::new(reader.bytes()?))?;
        let bytes = Bytes::copy_from_slice(reader.bytes()?);
        reader.is_empty().then_some(FilePart { total, base, bytes })
    }
}

/// Part of what a journal has of the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// Where the journal goes on: for the next question.
    pub next: ReadFrom,
    /// Whether the record that was asked for is reached.
    pub reached: bool,
    /// What records say of groups, in order.
    pub news: Vec<GroupNews>,
}

/// What one record of a journal says of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNews {
    /// Which group.
    pub partition: PartitionId,
    /// All entries that the log has had are void: a checkpoint was installed.
    pub resets: bool,
    /// Up to here entries that were read so far are agreed, if the record says it.
    pub agreed: Option<u64>,
    /// Entries by their indices: they replace those at their indices and all later ones. One without bytes
    /// is no batch.
    pub entries: Vec<(u64, Bytes)>,
}

impl GroupNews {
    /// What whoever has the order up to an epoch needs to know. `None` if nothing.
    pub fn of(kept: Kept, behind: Epoch) -> Option<GroupNews> {
        if kept.partition >= CANDIDATES {
            return None;
        }
        let entries = kept.entries.into_iter().filter_map(|entry| {
            let epoch = match entry.kind {
                EntryKind::Data => GroupBatch::epoch_of(&entry.data),
                EntryKind::Membership => None,
            };
            match epoch {
                Some(epoch) => (epoch > behind).then_some((entry.index, entry.data)),
                None => Some((entry.index, Bytes::new())),
            }
        });
        let news = GroupNews {
            partition: kept.partition,
            resets: kept.reset,
            agreed: kept.hard_state.map(|hard_state| hard_state.commit),
            entries: entries.collect(),
        };
        let says_something = news.resets || news.agreed.is_some() || !news.entries.is_empty();
        says_something.then_some(news)
    }
}

const RESETS: u8 = 1;
const AGREES: u8 = 2;

impl LogPart {
    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, self.next.to_string().as_bytes());
        out.push(u8::from(self.reached));
        for news in &self.news {
            put_varint(&mut out, u64::from(news.partition.0));
            let flag = |is: bool, flag: u8| if is { flag } else { 0 };
            out.push(flag(news.resets, RESETS) | flag(news.agreed.is_some(), AGREES));
            if let Some(agreed) = news.agreed {
                put_varint(&mut out, agreed);
            }
            put_varint(&mut out, news.entries.len() as u64);
            for (index, data) in &news.entries {
                put_varint(&mut out, *index);
                put_bytes(&mut out, data);
            }
        }
        out
    }

    /// Reads it. `None` on anything else.
    pub fn decode(bytes: &[u8]) -> Option<LogPart> {
        let mut reader = Reader::new(bytes);
        let next = std::str::from_utf8(reader.bytes()?).ok()?.parse().ok()?;
        let reached = reader.u8()? == 1;
        let mut news = Vec::new();
        while !reader.is_empty() {
            let partition = PartitionId(u16::try_from(reader.varint()?).ok()?);
            let flags = reader.u8()?;
            let agreed = match flags & AGREES {
                0 => None,
                _ => Some(reader.varint()?),
            };
            let mut entries = Vec::new();
            for _ in 0..reader.varint()? {
                entries.push((reader.varint()?, Bytes::copy_from_slice(reader.bytes()?)));
            }
            news.push(GroupNews { partition, resets: flags & RESETS != 0, agreed, entries });
        }
        Some(LogPart { next, reached, news })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::{Entry, HardState};

    fn batch(epoch: u64) -> Bytes {
        let batch =
            GroupBatch { epoch: Epoch(epoch), time_ms: 1, submissions: Vec::new(), controls: Vec::new() };
        batch.encode().into()
    }

    #[test]
    fn parts_are_read_as_they_were_written_and_nothing_else_is() {
        let base = Base { index: 7, term: 2, state: "state".into(), ..Base::default() };
        let part = FilePart { total: 1 << 40, base, bytes: "bytes".into() };
        let encoded = part.encode();
        assert_eq!(FilePart::decode(&encoded), Some(part));
        for len in 0..encoded.len() {
            assert_eq!(FilePart::decode(&encoded[..len]), None);
        }
        let next = "4:5:6:00000000000000ff".parse().expect("a place");
        let news = [
            GroupNews { partition: PartitionId(3), resets: true, agreed: Some(900), entries: Vec::new() },
            GroupNews {
                partition: PartitionId(300),
                resets: false,
                agreed: None,
                entries: vec![(5, Bytes::new()), (6, batch(9))],
            },
        ];
        let part = LogPart { next, reached: true, news: news.to_vec() };
        assert_eq!(LogPart::decode(&part.encode()), Some(part));
    }

    #[test]
    fn whoever_has_the_order_up_to_an_epoch_is_told_of_later_batches_and_of_what_replaces_entries() {
        let entry = |index, kind, data| Entry { index, term: 1, kind, data };
        let kept = Kept {
            entries: vec![
                entry(4, EntryKind::Data, batch(8)),
                entry(5, EntryKind::Data, Bytes::new()),
                entry(6, EntryKind::Membership, "members".into()),
                entry(7, EntryKind::Data, batch(9)),
            ],
            ..Kept::nothing(PartitionId(1))
        };
        let told = |kept: &Kept, behind| GroupNews::of(kept.clone(), Epoch(behind)).map(|news| news.entries);
        let nothing = Bytes::new();
        assert_eq!(told(&kept, 8), Some(vec![(5, nothing.clone()), (6, nothing), (7, batch(9))]));
        assert_eq!(told(&Kept { entries: vec![kept.entries[0].clone()], ..kept.clone() }, 8), None);
        let commits = Kept { entries: Vec::new(), hard_state: Some(HardState::default()), ..kept.clone() };
        assert_eq!(told(&commits, 8), Some(Vec::new()));
        assert_eq!(told(&Kept { partition: CANDIDATES, ..kept }, 0), None);
    }
}
