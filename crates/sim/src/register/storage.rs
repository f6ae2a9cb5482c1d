//! A replica's log on its host's disk, and the part of it that the consensus library reads from memory.
//!
//! There is one file, of records: the first holds the hard state, the state machine at some entry, and the
//! entries after it. Every later one holds what one turn of the library wants to be kept: hard state,
//! snapshot, entries. A record counts as a whole or not at all, so that a term is never lost while its
//! entries stay. A record that does not match its checksum ends the file: power was lost before the record
//! was synced, and nobody was told of it.
//!
//! Compaction writes another file and renames it over the first. So does every start: what an earlier process
//! wrote and could not sync may be visible without being durable, and a disk that failed once never writes
//! it. What a process starts from, it has itself written and synced.

use super::state::{State, take, take_u32, take_u64};
use crate::world::{MortalDisk, MortalFile};
use log::{Disk, DiskFile};
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};
use std::io;
use std::sync::Arc;

const NAME: &str = "raft";
const NEW_NAME: &str = "raft.new";

/// A record's head: the length of its body and a checksum of both.
const HEAD_BYTES: usize = 8;

/// What one record keeps.
#[derive(Clone, Default)]
pub struct Record {
    /// Term, vote and commit, if they changed.
    pub hard_state: Option<HardState>,
    /// The state machine, if it does not follow from the entries.
    pub state: Option<State>,
    /// Entries. They replace those of their indices and all later ones.
    pub entries: Vec<Entry>,
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.push(u8::from(self.hard_state.is_some()) | u8::from(self.state.is_some()) << 1);
        if let Some(hard_state) = &self.hard_state {
            for part in [hard_state.term, hard_state.vote, hard_state.commit] {
                body.extend(part.to_le_bytes());
            }
        }
        if let Some(state) = &self.state {
            let bytes = state.encode();
            body.extend((bytes.len() as u32).to_le_bytes());
            body.extend(bytes);
        }
        for entry in &self.entries {
            body.extend(entry.index.to_le_bytes());
            body.extend(entry.term.to_le_bytes());
            body.extend((entry.data.len() as u32).to_le_bytes());
            body.extend(&entry.data[..]);
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(checksum(&body).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn decode(mut body: &[u8]) -> Option<Record> {
        let mut record = Record::default();
        let flags = take(&mut body, 1)?[0];
        if flags & 1 != 0 {
            record.hard_state = Some(HardState {
                term: take_u64(&mut body)?,
                vote: take_u64(&mut body)?,
                commit: take_u64(&mut body)?,
            });
        }
        if flags & 2 != 0 {
            let len_bytes = take_u32(&mut body)? as usize;
            record.state = Some(State::decode(take(&mut body, len_bytes)?)?);
        }
        while !body.is_empty() {
            let mut entry =
                Entry { index: take_u64(&mut body)?, term: take_u64(&mut body)?, ..Entry::default() };
            let len_bytes = take_u32(&mut body)? as usize;
            entry.data = take(&mut body, len_bytes)?.to_vec().into();
            record.entries.push(entry);
        }
        Some(record)
    }

    /// Reads the next record of a file; `None` where the file ends, or where a record was torn.
    fn read(bytes: &mut &[u8]) -> Option<Record> {
        let len_bytes = take_u32(bytes)? as usize;
        let sum = take_u32(bytes)?;
        let body = take(bytes, len_bytes)?;
        (checksum(body) == sum).then(|| Record::decode(body))?
    }
}

/// Never that of zeros: a body that nobody wrote.
fn checksum(body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(body.len() as u32 ^ 0x6F72_646F);
    hasher.update(body);
    hasher.finalize()
}

/// What the disk and the memory of a replica hold.
pub struct Storage {
    voters: u16,
    hard_state: HardState,
    /// Index and term of what comes before the first entry.
    base: (u64, u64),
    entries: Vec<Entry>,
    /// The state machine, as far as entries were applied. Never behind the base.
    pub state: State,
    disk: Arc<MortalDisk>,
    file: Option<MortalFile>,
    end_bytes: u64,
    /// Where the file's first record ends.
    compacted_bytes: u64,
}

impl Storage {
    /// Opens what the disk holds. An empty disk is a new replica's.
    ///
    /// # Errors
    /// The disk's, and `InvalidData` if the file's first record is damaged: it was synced before it got its
    /// name.
    pub fn open(disk: Arc<MortalDisk>, voters: u16) -> io::Result<Storage> {
        let mut storage = Storage {
            voters,
            hard_state: HardState::default(),
            base: (0, 0),
            entries: Vec::new(),
            state: State::default(),
            file: None,
            end_bytes: 0,
            compacted_bytes: 0,
            disk,
        };
        let names = storage.disk.list()?;
        if names.iter().any(|name| name == NEW_NAME) {
            storage.disk.remove(NEW_NAME)?;
        }
        if names.iter().any(|name| name == NAME) {
            let file = storage.disk.open(NAME)?;
            let bytes = read_all(&file)?;
            let mut rest = bytes.as_slice();
            let first = Record::read(&mut rest).filter(|record| record.state.is_some());
            let Some(first) = first else {
                let text = "the first record of the log is damaged";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            };
            storage.take(first);
            while let Some(record) = Record::read(&mut rest) {
                storage.take(record);
            }
        }
        storage.compact()?;
        Ok(storage)
    }

    fn take(&mut self, record: Record) {
        if let Some(state) = record.state {
            self.base = (state.index, state.term);
            self.state = state;
            self.entries.clear();
        }
        if let Some(first) = record.entries.first() {
            let kept = first.index.saturating_sub(self.base.0 + 1);
            self.entries.truncate(kept as usize);
        }
        self.entries.extend(record.entries);
        if let Some(hard_state) = record.hard_state {
            self.hard_state = hard_state;
        }
    }

    /// Appends a record to the file, and takes it to be there. It is durable after the next
    /// [`Storage::sync`]. `keeps_vote` is false in a mutant only: then term and vote are not written.
    pub fn save(&mut self, record: Record, keeps_vote: bool) -> io::Result<()> {
        let mut written = record.clone();
        if let (false, Some(hard_state)) = (keeps_vote, &mut written.hard_state) {
            (hard_state.term, hard_state.vote) = (0, 0);
        }
        let bytes = written.encode();
        self.open_file()?.write_at(self.end_bytes, &bytes)?;
        self.end_bytes += bytes.len() as u64;
        self.take(record);
        Ok(())
    }

    /// Makes durable what was saved.
    pub fn sync(&mut self) -> io::Result<()> {
        self.open_file()?.sync()
    }

    fn open_file(&self) -> io::Result<&MortalFile> {
        self.file.as_ref().ok_or(io::Error::from(io::ErrorKind::NotFound))
    }

    /// How much was appended to the file since it was compacted.
    pub fn appended_bytes(&self) -> u64 {
        self.end_bytes - self.compacted_bytes
    }

    /// The last entry that the log no longer has.
    pub fn base_index(&self) -> u64 {
        self.base.0
    }

    /// Replaces the file by one that holds the state machine as it is and the entries after it. It is durable
    /// when this returns; until then the old file is, or after a crash perhaps the new one: they say the
    /// same.
    pub fn compact(&mut self) -> io::Result<()> {
        let applied = (self.state.index - self.base.0) as usize;
        let record = Record {
            hard_state: Some(self.hard_state.clone()),
            state: Some(self.state.clone()),
            entries: self.entries.split_off(applied.min(self.entries.len())),
        };
        let bytes = record.encode();
        self.take(record);
        // Both states are consistent in memory; only now may the disk refuse.
        let file = self.disk.create(NEW_NAME, 0)?;
        file.write_at(0, &bytes)?;
        file.sync()?;
        self.disk.rename(NEW_NAME, NAME)?;
        self.disk.sync_dir()?;
        self.file = Some(file);
        self.end_bytes = bytes.len() as u64;
        self.compacted_bytes = self.end_bytes;
        Ok(())
    }

    /// The configuration: it never changes.
    fn conf_state(&self) -> ConfState {
        ConfState { voters: (1..=u64::from(self.voters)).collect(), ..ConfState::default() }
    }

    fn snapshot_of_state(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.state.index;
        metadata.term = self.state.term;
        metadata.set_conf_state(self.conf_state());
        snapshot.data = self.state.encode().into();
        snapshot
    }
}

fn read_all(file: &MortalFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len_bytes()? as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(done as u64, &mut bytes[done..])? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            count => done += count,
        }
    }
    Ok(bytes)
}

impl raft::Storage for Storage {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut hard_state = self.hard_state.clone();
        // A snapshot is of committed entries.
        hard_state.commit = hard_state.commit.max(self.base.0);
        Ok(RaftState::new(hard_state, self.conf_state()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let first = self.base.0 + 1;
        if low < first {
            return Err(StorageError::Compacted.into());
        }
        let range = (low - first) as usize..(high - first) as usize;
        let Some(entries) = self.entries.get(range) else {
            return Err(StorageError::Unavailable.into());
        };
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            bytes += entry_bytes(entry);
            bytes <= max_bytes
        };
        // At least one, however large.
        let count = entries.iter().take_while(fits).count().max(1);
        Ok(entries[..count.min(entries.len())].to_vec())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.0 {
            return Ok(self.base.1);
        }
        let Some(place) = index.checked_sub(self.base.0 + 1) else {
            return Err(StorageError::Compacted.into());
        };
        match self.entries.get(place as usize) {
            Some(entry) => Ok(entry.term),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + self.entries.len() as u64)
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        if self.state.index < request_index {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(self.snapshot_of_state())
    }
}

/// About what an entry takes on the wire.
pub fn entry_bytes(entry: &Entry) -> u64 {
    16 + entry.data.len() as u64
}

#[cfg(test)]
mod tests {
    use super::super::state::Command;
    use super::*;
    use crate::disk::VirtualDisk;
    use crate::draw::{Draw, seeds};
    use crate::world::Host;

    fn entry(index: u64, term: u64, draw: &mut Draw) -> Entry {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, term);
        entry.data = Command { session: 1, sequence: index, key: 1, value: draw.bits() }.encode().into();
        entry
    }

    /// What a file says.
    type Content = (HardState, (u64, u64), Vec<Entry>, State);

    fn content(storage: &Storage) -> Content {
        (storage.hard_state.clone(), storage.base, storage.entries.clone(), storage.state.clone())
    }

    #[test]
    fn what_was_synced_survives_and_the_rest_counts_in_order_or_not_at_all() {
        let mut torn = 0;
        for seed in seeds(150) {
            let mut draw = Draw::new(seed);
            let host = Host::new(VirtualDisk::new(draw.bits()));
            let mut storage = Storage::open(host.process_disk(), 3).unwrap();
            // What the file said after each record since the last sync: the first of them is durable.
            let mut contents = vec![content(&storage)];
            let mut term = 1;
            for _ in 0..draw.below(40) {
                match draw.below(10) {
                    0..6 => {
                        let last = storage.base.0 + storage.entries.len() as u64;
                        term += draw.below(2);
                        let back = draw.below(3).min(storage.entries.len() as u64);
                        let count = draw.below(20);
                        let mut hard_state = HardState::default();
                        (hard_state.term, hard_state.vote) = (term, draw.between(1, 3));
                        hard_state.commit = storage.hard_state.commit;
                        let record = Record {
                            hard_state: draw.percent(50).then_some(hard_state),
                            state: None,
                            entries: (1..=count).map(|n| entry(last - back + n, term, &mut draw)).collect(),
                        };
                        storage.save(record, true).unwrap();
                        contents.push(content(&storage));
                    }
                    6 | 7 => {
                        storage.sync().unwrap();
                        contents.drain(..contents.len() - 1);
                    }
                    8 => {
                        // Applied entries are compacted away.
                        let some = draw.below(1 + storage.entries.len() as u64);
                        for entry in storage.entries[..some as usize].iter().cloned() {
                            storage.state.apply(entry.index, entry.term, &entry.data, true);
                        }
                        storage.sync().unwrap();
                        storage.compact().unwrap();
                        contents = vec![content(&storage)];
                    }
                    _ => {
                        host.disk.crash();
                        storage = Storage::open(host.process_disk(), 3).unwrap();
                        let found = content(&storage);
                        let place = contents.iter().position(|content| *content == found);
                        let place = place.expect("a prefix of what was written");
                        torn += u64::from(place + 1 < contents.len());
                        contents = vec![found];
                    }
                }
            }
        }
        assert!(torn > 10 || crate::draw::one_seed(), "{torn} crashes lost something");
    }

    #[test]
    fn what_a_start_finds_is_durable_even_if_a_sync_had_failed() {
        for seed in seeds(20) {
            let mut draw = Draw::new(seed);
            let host = Host::new(VirtualDisk::new(draw.bits()));
            let mut storage = Storage::open(host.process_disk(), 3).unwrap();
            host.disk.fail_sync_after(0);
            let entries = (1..=9).map(|index| entry(index, 1, &mut draw)).collect();
            let record = Record { entries, ..Record::default() };
            storage.save(record, true).unwrap();
            storage.sync().unwrap_err();
            // The kernel takes the file for clean, and shows what the disk does not have.
            let storage = Storage::open(host.process_disk(), 3).unwrap();
            assert_eq!(storage.entries.len(), 9);
            host.disk.crash();
            let storage = Storage::open(host.process_disk(), 3).unwrap();
            assert_eq!(storage.entries.len(), 9);
        }
    }
}
