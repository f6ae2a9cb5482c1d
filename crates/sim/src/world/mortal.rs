//! A disk under a process that dies between two of its operations.

use crate::disk::{VirtualDisk, VirtualFile};
use log::{Disk, DiskFile};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A disk whose process dies at some operation: that one and all later ones fail, and change nothing.
#[derive(Clone)]
pub struct MortalDisk {
    disk: VirtualDisk,
    /// Operations until death. Fresh for every process.
    left: Arc<AtomicU64>,
}

/// An open file of a [`MortalDisk`].
pub struct MortalFile {
    file: VirtualFile,
    left: Arc<AtomicU64>,
}

/// Counts an operation.
fn live(left: &AtomicU64) -> io::Result<()> {
    match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::other("the process died")),
    }
}

impl MortalDisk {
    /// The disk, for a process that dies after so many operations.
    pub(super) fn new(disk: VirtualDisk, operations: u64) -> MortalDisk {
        MortalDisk { disk, left: Arc::new(AtomicU64::new(operations)) }
    }
    /// The process dies after so many more operations.
    pub(super) fn dies_after(&self, operations: u64) {
        self.left.store(operations, Ordering::Relaxed);
    }
    /// The process dies of nothing any more.
    pub(super) fn immortal(&self) {
        self.left.store(u64::MAX, Ordering::Relaxed);
    }
    /// Whether the process has died.
    pub fn is_dead(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
    fn mortal(&self, file: VirtualFile) -> MortalFile {
        MortalFile { file, left: self.left.clone() }
    }
}

impl Disk for MortalDisk {
    type File = MortalFile;
    fn list(&self) -> io::Result<Vec<String>> {
        live(&self.left)?;
        self.disk.list()
    }
    fn create(&self, name: &str, len_bytes: u64) -> io::Result<MortalFile> {
        live(&self.left)?;
        Ok(self.mortal(self.disk.create(name, len_bytes)?))
    }
    fn open(&self, name: &str) -> io::Result<MortalFile> {
        live(&self.left)?;
        Ok(self.mortal(self.disk.open(name)?))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        live(&self.left)?;
        self.disk.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        live(&self.left)?;
        self.disk.rename(from, to)
    }
    fn sync_dir(&self) -> io::Result<()> {
        live(&self.left)?;
        self.disk.sync_dir()
    }
}

impl DiskFile for MortalFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        live(&self.left)?;
        self.file.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        live(&self.left)?;
        self.file.read_at(offset, bytes)
    }
    fn len_bytes(&self) -> io::Result<u64> {
        live(&self.left)?;
        self.file.len_bytes()
    }
    fn sync(&self) -> io::Result<()> {
        live(&self.left)?;
        self.file.sync()
    }
}
