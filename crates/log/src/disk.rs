//! The narrow seam to files: what the log and checkpoints need of a disk, and nothing else.

use std::io::{self, Read, Write};

/// A directory of files that belongs to one node.
///
/// Names are plain file names without a path. What a crash may undo until [`Disk::sync_dir`] returned: a
/// rename and a removal, each as a whole, in any order.
pub trait Disk: Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;

    /// The names of all files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes a file of `len_bytes` zeros; the file and its name are durable when this returns. Fails if the
    /// name is taken. A failure leaves no file behind (as far as the disk still obeys).
    fn create(&self, name: &str, len_bytes: u64) -> io::Result<Self::File>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Removes a file. Handles that are open stay usable.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file, replacing one that has the new name. Handles that are open stay usable.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// A file that several threads may use at once.
pub trait DiskFile: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`, extending the file where needed. After an error, any part may be
    /// written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads up to `bytes.len()` bytes at `offset`; 0 only at the end of the file (or for an empty buffer).
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// The file's length.
    fn len_bytes(&self) -> io::Result<u64>;
    /// Makes everything that was written, and the length, durable. After an error nobody knows what is.
    fn sync(&self) -> io::Result<()>;
}

/// Writes a file from its start, through [`Write`]. Not buffered.
#[derive(Debug)]
pub struct FileWriter<'a, F> {
    file: &'a F,
    offset: u64,
}

impl<'a, F: DiskFile> FileWriter<'a, F> {
    /// A writer that starts at offset 0.
    pub fn new(file: &'a F) -> FileWriter<'a, F> {
        FileWriter { file, offset: 0 }
    }
}

impl<F: DiskFile> Write for FileWriter<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a file from its start, through [`Read`]. Not buffered.
#[derive(Debug)]
pub struct FileReader<'a, F> {
    file: &'a F,
    offset: u64,
}

impl<'a, F: DiskFile> FileReader<'a, F> {
    /// A reader that starts at offset 0.
    pub fn new(file: &'a F) -> FileReader<'a, F> {
        FileReader { file, offset: 0 }
    }
}

impl<F: DiskFile> Read for FileReader<'_, F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(self.offset, bytes)?;
        self.offset += count as u64;
        Ok(count)
    }
}
