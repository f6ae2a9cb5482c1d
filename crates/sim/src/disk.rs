//! A virtual disk that loses, tears and flips.
//!
//! It keeps two states of every file. The *durable* one is what a power cut leaves; the *visible* one is what
//! reads return. A write changes the visible state, in sectors of [`SECTOR_BYTES`]; each sector remembers all
//! contents that it had since the last sync, because a kernel may have written any of them out at any time. A
//! sync makes the visible state durable.
//!
//! [`VirtualDisk::crash`] decides for every unsynced sector alone: it keeps its durable content, or one of
//! the later ones, or a mixture of two (a torn write). Renames and removals that [`Disk::sync_dir`] did not
//! follow are undone or kept, each as a whole. The disk itself stays: whoever holds a clone opens the
//! surviving files again, while handles that were open at the crash are dead, as their process is.
//!
//! A failed sync behaves as kernels do: what could not be written counts as clean afterwards, so that a later
//! sync succeeds without it. Only a crash shows what is missing.
//!
//! Everything is drawn from one seed; the same calls give the same disk.

use log::{Disk, DiskFile};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What reaches the disk as a whole, or torn.
pub const SECTOR_BYTES: usize = 512;

type Sector = [u8; SECTOR_BYTES];

/// A disk; clones share its state.
#[derive(Clone)]
pub struct VirtualDisk {
    state: Arc<Mutex<State>>,
}

/// An open file of a [`VirtualDisk`].
pub struct VirtualFile {
    state: Arc<Mutex<State>>,
    id: u64,
    /// The crash count when the file was opened.
    boot: u64,
}

/// What a disk was asked to do, cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Writes, failed ones included.
    pub writes: u64,
    /// Bytes that reached the visible state.
    pub bytes_written: u64,
    /// Syncs of files, failed ones included.
    pub syncs: u64,
    /// Syncs of the directory, failed ones included.
    pub dir_syncs: u64,
    /// Files created.
    pub creates: u64,
    /// Crashes.
    pub crashes: u64,
    /// Unsynced sectors that a crash dropped or tore.
    pub sectors_lost: u64,
}

struct State {
    rng: Xoshiro256PlusPlus,
    files: BTreeMap<u64, FileState>,
    /// The visible directory, and the durable one.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// What changed the visible directory since it was synced.
    unsynced_names: Vec<NameChange>,
    next_id: u64,
    counters: DiskCounters,
    /// How many more bytes may be written before the disk is full.
    writable_bytes: u64,
    /// The next write fails after so many bytes.
    write_fault: Option<u64>,
    /// How many more syncs (of files and of the directory) succeed.
    syncs_left: u64,
}

#[derive(Clone)]
enum NameChange {
    Rename(String, String),
    Remove(String),
}

#[derive(Default)]
struct FileState {
    durable: Vec<u8>,
    len_bytes: u64,
    unsynced: BTreeMap<u64, UnsyncedSector>,
}

/// A sector whose visible content is not durable.
struct UnsyncedSector {
    /// The contents since the last sync, oldest first; the last one is visible.
    contents: Vec<Sector>,
    /// A sync failed on it: the kernel takes it for clean, so no later sync writes it.
    forgotten: bool,
}

impl VirtualDisk {
    /// An empty disk whose accidents are drawn from `seed`.
    pub fn new(seed: u64) -> VirtualDisk {
        let state = State {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            next_id: 0,
            counters: DiskCounters::default(),
            writable_bytes: u64::MAX,
            write_fault: None,
            syncs_left: u64::MAX,
        };
        VirtualDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Cuts the power. What was synced stays; of the rest each sector and each change of a name is kept,
    /// dropped or torn by chance. Handles that are open are dead from now on; limits on writes and syncs are
    /// lifted.
    pub fn crash(&self) {
        let state = &mut *self.lock();
        state.counters.crashes += 1;
        state.obey();
        // Most disks lose little or all: draw how likely a sector is to survive, once for each crash.
        let survival = [0.0, 0.1, 0.5, 0.9, 1.0][state.rng.random_range(0..5)];
        for change in std::mem::take(&mut state.unsynced_names) {
            if state.rng.random_bool(survival) {
                change.apply(&mut state.durable_names);
            }
        }
        state.names = state.durable_names.clone();
        let names = &state.names;
        state.files.retain(|id, _| names.values().any(|named| named == id));
        for file in state.files.values_mut() {
            state.counters.sectors_lost += file.crash(&mut state.rng, survival);
        }
    }

    /// Flips a bit of a file, on the medium and in what reads return.
    ///
    /// # Panics
    /// If there is no such file or byte: the test that asks is wrong.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        let mut state = self.lock();
        let id = state.names[name];
        let file = state.files.get_mut(&id).expect("every name has a file");
        if let Some(byte) = file.durable.get_mut(offset as usize) {
            *byte ^= 1 << bit;
        }
        if let Some(sector) = file.unsynced.get_mut(&(offset / SECTOR_BYTES as u64)) {
            for content in &mut sector.contents {
                content[offset as usize % SECTOR_BYTES] ^= 1 << bit;
            }
        }
        assert!(offset < file.len_bytes, "byte {offset} of {name} does not exist");
    }

    /// From now on `bytes` more can be written, then the disk is full: the write that meets the end is done
    /// in part.
    pub fn fill_up_after(&self, bytes: u64) {
        self.lock().writable_bytes = bytes;
    }

    /// No fault is to come any more: there is space, and writes and syncs succeed.
    pub fn obey(&self) {
        self.lock().obey();
    }

    /// Whether a fault is still to come, or lasts.
    pub fn is_troubled(&self) -> bool {
        let state = self.lock();
        state.writable_bytes != u64::MAX || state.syncs_left != u64::MAX || state.write_fault.is_some()
    }

    /// There is space again.
    pub fn make_space(&self) {
        self.lock().writable_bytes = u64::MAX;
    }

    /// The next write fails after `bytes`, and the ones after it succeed.
    pub fn fail_write_after(&self, bytes: u64) {
        self.lock().write_fault = Some(bytes);
    }

    /// From now on `syncs` more succeed; the next one fails, and the ones after it succeed without what it
    /// dropped.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.lock().syncs_left = syncs;
    }

    /// What the disk was asked to do.
    pub fn counters(&self) -> DiskCounters {
        self.lock().counters
    }

    /// A copy of all that a crash would leave for certain, on a disk of its own: to try many damages on one
    /// content.
    pub fn copy_of_durable(&self, seed: u64) -> VirtualDisk {
        let copy = VirtualDisk::new(seed);
        {
            let (from, mut to) = (self.lock(), copy.lock());
            for (name, id) in &from.durable_names {
                let durable = from.files[id].durable.clone();
                to.files.insert(
                    *id,
                    FileState { len_bytes: durable.len() as u64, durable, ..FileState::default() },
                );
                to.names.insert(name.clone(), *id);
            }
            to.durable_names = to.names.clone();
            to.next_id = from.next_id;
        }
        copy
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, id: u64, boot: u64) -> VirtualFile {
        VirtualFile { state: self.state.clone(), id, boot }
    }
}

impl Disk for VirtualDisk {
    type File = VirtualFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, len_bytes: u64) -> io::Result<VirtualFile> {
        let mut state = self.lock();
        if state.names.contains_key(name) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        if state.writable_bytes < len_bytes {
            return Err(full());
        }
        state.take_space(len_bytes);
        state.take_sync()?;
        state.counters.creates += 1;
        state.next_id += 1;
        let id = state.next_id;
        let durable = vec![0; len_bytes as usize];
        state.files.insert(id, FileState { durable, len_bytes, unsynced: BTreeMap::new() });
        state.names.insert(name.to_owned(), id);
        state.sync_names();
        state.durable_names.insert(name.to_owned(), id);
        Ok(self.file(id, state.counters.crashes))
    }

    fn open(&self, name: &str) -> io::Result<VirtualFile> {
        let state = self.lock();
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(id, state.counters.crashes))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().change(NameChange::Remove(name.to_owned()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.lock().change(NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.counters.dir_syncs += 1;
        state.take_sync()?;
        state.sync_names();
        Ok(())
    }
}

impl DiskFile for VirtualFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock()?;
        state.counters.writes += 1;
        let fault = state.write_fault.take();
        let obeyed = fault.map_or(bytes.len(), |limit| bytes.len().min(limit as usize));
        let written = state.take_space(obeyed as u64) as usize;
        state.counters.bytes_written += written as u64;
        state.file(self.id)?.write(offset, &bytes[..written]);
        match fault {
            Some(_) => Err(broken()),
            None if written < bytes.len() => Err(full()),
            None => Ok(()),
        }
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock()?;
        Ok(state.file(self.id)?.read(offset, bytes))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.lock()?.file(self.id)?.len_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.lock()?;
        state.counters.syncs += 1;
        let result = state.take_sync();
        let file = state.file(self.id)?;
        match result {
            Ok(()) => file.sync(),
            Err(_) => file.unsynced.values_mut().for_each(|sector| sector.forgotten = true),
        }
        result
    }
}

impl VirtualFile {
    fn lock(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.counters.crashes != self.boot {
            return Err(io::Error::other("this handle was open when the machine crashed"));
        }
        Ok(state)
    }
}

impl State {
    fn file(&mut self, id: u64) -> io::Result<&mut FileState> {
        self.files.get_mut(&id).ok_or(io::Error::from(io::ErrorKind::NotFound))
    }

    fn obey(&mut self) {
        self.writable_bytes = u64::MAX;
        self.write_fault = None;
        self.syncs_left = u64::MAX;
    }

    /// Uses up to `bytes` of what is left. Returns how many there were.
    fn take_space(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.writable_bytes);
        if self.writable_bytes != u64::MAX {
            self.writable_bytes -= taken;
        }
        taken
    }

    fn take_sync(&mut self) -> io::Result<()> {
        if self.syncs_left == 0 {
            self.syncs_left = u64::MAX;
            return Err(broken());
        }
        if self.syncs_left != u64::MAX {
            self.syncs_left -= 1;
        }
        Ok(())
    }

    fn change(&mut self, change: NameChange) -> io::Result<()> {
        if !change.apply(&mut self.names) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        self.unsynced_names.push(change);
        Ok(())
    }

    fn sync_names(&mut self) {
        for change in std::mem::take(&mut self.unsynced_names) {
            change.apply(&mut self.durable_names);
        }
    }
}

impl NameChange {
    /// Applies the change where its file still has the old name. Returns whether it did.
    fn apply(&self, names: &mut BTreeMap<String, u64>) -> bool {
        match self {
            NameChange::Remove(name) => names.remove(name).is_some(),
            NameChange::Rename(from, to) => match names.remove(from) {
                Some(id) => {
                    names.insert(to.clone(), id);
                    true
                }
                None => false,
            },
        }
    }
}

impl FileState {
    fn durable_sector(&self, index: u64) -> Sector {
        let mut sector = [0; SECTOR_BYTES];
        let start = (index as usize * SECTOR_BYTES).min(self.durable.len());
        let there = &self.durable[start..(start + SECTOR_BYTES).min(self.durable.len())];
        sector[..there.len()].copy_from_slice(there);
        sector
    }

    fn visible_sector(&self, index: u64) -> Sector {
        let unsynced = self.unsynced.get(&index).and_then(|sector| sector.contents.last());
        unsynced.copied().unwrap_or_else(|| self.durable_sector(index))
    }

    fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        let mut at = offset;
        self.len_bytes = self.len_bytes.max(offset + bytes.len() as u64);
        while !bytes.is_empty() {
            let (index, within) = (at / SECTOR_BYTES as u64, at as usize % SECTOR_BYTES);
            let count = bytes.len().min(SECTOR_BYTES - within);
            let mut content = self.visible_sector(index);
            content[within..within + count].copy_from_slice(&bytes[..count]);
            let fresh = || UnsyncedSector { contents: Vec::new(), forgotten: false };
            let sector = self.unsynced.entry(index).or_insert_with(fresh);
            sector.contents.push(content);
            sector.forgotten = false;
            at += count as u64;
            bytes = &bytes[count..];
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let count = (self.len_bytes.saturating_sub(offset)).min(bytes.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let within = at as usize % SECTOR_BYTES;
            let part = (count - done).min(SECTOR_BYTES - within);
            let sector = self.visible_sector(at / SECTOR_BYTES as u64);
            bytes[done..done + part].copy_from_slice(&sector[within..within + part]);
            done += part;
        }
        count
    }

    fn sync(&mut self) {
        self.durable.resize(self.len_bytes as usize, 0);
        let all = std::mem::take(&mut self.unsynced);
        let (forgotten, written): (BTreeMap<_, _>, _) =
            all.into_iter().partition(|(_, sector)| sector.forgotten);
        self.unsynced = forgotten;
        for (index, sector) in written {
            if let Some(content) = sector.contents.last() {
                self.put_durable(index, content);
            }
        }
    }

    /// Returns how many sectors are not as they were visible.
    fn crash(&mut self, rng: &mut Xoshiro256PlusPlus, survival: f64) -> u64 {
        let mut lost = 0;
        for (index, sector) in std::mem::take(&mut self.unsynced) {
            let mut choices = vec![self.durable_sector(index)];
            choices.extend(sector.contents);
            let newest = choices.len() - 1;
            let draw = |rng: &mut Xoshiro256PlusPlus| {
                if rng.random_bool(survival) { newest } else { rng.random_range(0..=newest) }
            };
            let mut content = choices[draw(rng)];
            if rng.random_bool(0.2) {
                let other = choices[draw(rng)];
                let torn_at = rng.random_range(0..=SECTOR_BYTES);
                content[torn_at..].copy_from_slice(&other[torn_at..]);
            }
            lost += u64::from(content != choices[newest]);
            if content != choices[0] {
                self.put_durable(index, &content);
            }
        }
        self.len_bytes = self.durable.len() as u64;
        lost
    }

    fn put_durable(&mut self, index: u64, content: &Sector) {
        let start = index as usize * SECTOR_BYTES;
        let end = (start + SECTOR_BYTES).min(self.len_bytes as usize);
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[start..end].copy_from_slice(&content[..end - start]);
    }
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

fn broken() -> io::Error {
    io::Error::other("input/output error (virtual)")
}
