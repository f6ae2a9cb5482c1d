//! The real disk: a directory that one process owns.
//!
//! Files are written with `pwrite` and made durable with `fdatasync`; names are made durable by syncing the
//! directory. A file that is created with a length is filled with real zeros: space that is only promised
//! (`fallocate`) would make the first write to each block change the file's metadata, and every sync pay for
//! it.

use crate::private;
use log::{Disk, DiskFile};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file whose lock tells that a process uses the directory.
const LOCK_NAME: &str = "ordo.lock";

/// A directory, locked for this process as long as the value lives. The kernel releases locks when the
/// process ends, however it ends.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    /// Holds the directory's own lock.
    directory: File,
    /// Holds the lock that counts where directories have none. A directory that is only read may have no file
    /// for it.
    _lock: Option<File>,
    may_write: bool,
}

/// An open file of a [`RealDisk`].
#[derive(Debug)]
pub struct RealFile(File);

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process has it.
    #[error(
        "the data directory {} is in use by another process, which holds its lock: stop that process, or \
         start this one with another --dir", path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("the data directory {} cannot be used: {action}: {cause}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the file system said.
        cause: io::Error,
    },
}

impl RealDisk {
    /// Takes a directory, which is made if it does not exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<RealDisk, DirectoryError> {
        let path = path.into();
        let io = |action| {
            let path = path.clone();
            move |cause| DirectoryError::Io { path, action, cause }
        };
        private::create_dir_all(&path).map_err(io("creating it"))?;
        // The directory's own lock is the one that nobody can take away by removing a file.
        let directory = File::open(&path).map_err(io("opening it"))?;
        if is_locked(&directory) {
            return Err(DirectoryError::InUse { path });
        }
        let lock = private::options().create(true).truncate(false).write(true).open(path.join(LOCK_NAME));
        let lock = lock.map_err(io("opening ordo.lock in it"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DirectoryError::InUse { path }),
            Err(TryLockError::Error(cause)) => return Err(io("locking ordo.lock in it")(cause)),
        }
        Ok(RealDisk { path, directory, _lock: Some(lock), may_write: true })
    }

    /// Takes a directory that must exist, to read its files only. Other processes may read it, too, and none
    /// can open it to write while this value lives. Nothing in it is changed.
    pub fn open_to_read(path: impl Into<PathBuf>) -> Result<RealDisk, DirectoryError> {
        let path = path.into();
        let io = |action| {
            let path = path.clone();
            move |cause| DirectoryError::Io { path, action, cause }
        };
        let is_written = |file: &File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let directory = File::open(&path).map_err(io("opening it"))?;
        let lock = match File::open(path.join(LOCK_NAME)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io("opening ordo.lock in it")(error)),
        };
        if is_written(&directory) || lock.as_ref().is_some_and(is_written) {
            return Err(DirectoryError::InUse { path });
        }
        Ok(RealDisk { path, directory, _lock: lock, may_write: false })
    }

    /// Refuses a directory that another process has. One that does not exist is not made. That it is free now
    /// is no promise.
    pub fn look_at(path: &Path) -> Result<(), DirectoryError> {
        // What else is wrong is found when it is opened.
        let locks = [File::open(path), OpenOptions::new().write(true).open(path.join(LOCK_NAME))];
        match locks.iter().flatten().any(is_locked) {
            true => Err(DirectoryError::InUse { path: path.to_owned() }),
            false => Ok(()),
        }
    }

    /// Whether a directory has no data yet: nothing that takes long to load. What cannot be looked at counts
    /// as data.
    pub fn is_new(path: &Path) -> bool {
        let is_data = |entry: io::Result<std::fs::DirEntry>| match entry {
            Ok(entry) => {
                let name = entry.file_name();
                name.as_encoded_bytes().ends_with(b".ordo")
            }
            Err(_) => true,
        };
        match std::fs::read_dir(path) {
            Ok(mut entries) => !entries.any(is_data),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file that is about to be changed.
    fn path_to_write(&self, name: &str) -> io::Result<PathBuf> {
        match self.may_write {
            true => self.file_path(name),
            false => Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                format!("'{name}' was to be changed in a directory that was opened to be read"),
            )),
        }
    }

    fn file_path(&self, name: &str) -> io::Result<PathBuf> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("'{name}' is not a plain file name"),
            ));
        }
        Ok(self.path.join(name))
    }
}

impl Disk for RealDisk {
    type File = RealFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            // Names that are not UTF-8 and directories are not ours.
            if let (true, Ok(name)) = (entry.file_type()?.is_file(), entry.file_name().into_string()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, len_bytes: u64) -> io::Result<RealFile> {
        let path = self.path_to_write(name)?;
        let file = private::options().read(true).write(true).create_new(true).open(&path)?;
        let filled =
            fill_with_zeros(&file, len_bytes).and_then(|()| file.sync_all()).and_then(|()| self.sync_dir());
        match filled {
            Ok(()) => Ok(RealFile(file)),
            Err(error) => {
                // The file is of no use to anyone; the error that matters is the first one.
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        OpenOptions::new().read(true).write(self.may_write).open(self.file_path(name)?).map(RealFile)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path_to_write(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path_to_write(from)?, self.path_to_write(to)?)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

impl DiskFile for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read_at(bytes, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Takes the lock of a file or a directory, unless another process has it, which is the answer. Some file
/// systems (NFS) know no locks of directories.
fn is_locked(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Fills a new file, in small pieces: the kernel caches a file in units as large as the writes that made it,
/// and a later small write costs time in proportion to the unit that it falls into (1.5 µs more with 1 MiB,
/// on ext4 of Linux 6.18).
fn fill_with_zeros(mut file: &File, mut len_bytes: u64) -> io::Result<()> {
    let zeros = [0; 16 << 10];
    while len_bytes > 0 {
        let count = len_bytes.min(zeros.len() as u64);
        file.write_all(&zeros[..count as usize])?;
        len_bytes -= count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory that vanishes with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(test: &str) -> Directory {
            let name = format!("ordo-disk-{test}-{}", std::process::id());
            Directory(std::env::temp_dir().join(name))
        }
    }
    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_directory_belongs_to_one_disk_at_a_time() {
        let directory = Directory::new("lock");
        let disk = RealDisk::open(&directory.0).unwrap();
        let refused = RealDisk::open(&directory.0).unwrap_err();
        assert!(matches!(refused, DirectoryError::InUse { .. }), "{refused}");
        assert!(refused.to_string().contains("in use by another process"), "{refused}");
        // Nobody gets in who removes the file.
        std::fs::remove_file(directory.0.join(LOCK_NAME)).unwrap();
        assert!(RealDisk::look_at(&directory.0).is_err());
        let refused = RealDisk::open(&directory.0).unwrap_err();
        assert!(matches!(refused, DirectoryError::InUse { .. }), "{refused}");
        drop(disk);
        RealDisk::open(&directory.0).unwrap();
    }

    #[test]
    fn a_directory_that_is_read_is_not_changed_and_nobody_writes_to_it() {
        let directory = Directory::new("read");
        let refused = RealDisk::open_to_read(&directory.0).unwrap_err();
        assert!(matches!(refused, DirectoryError::Io { .. }) && !directory.0.exists(), "{refused}");
        let disk = RealDisk::open(&directory.0).unwrap();
        disk.create("a", 8).unwrap();
        assert!(matches!(RealDisk::open_to_read(&directory.0), Err(DirectoryError::InUse { .. })));
        drop(disk);
        let readers = [(); 2].map(|()| RealDisk::open_to_read(&directory.0).unwrap());
        assert!(matches!(RealDisk::open(&directory.0), Err(DirectoryError::InUse { .. })));
        let [disk, _] = &readers;
        let file = disk.open("a").unwrap();
        assert_eq!(file.read_at(0, &mut [1; 16]).unwrap(), 8);
        assert!(file.write_at(0, b"x").is_err());
        for changed in [disk.create("b", 0).map(drop), disk.remove("a"), disk.rename("a", "b")] {
            assert_eq!(changed.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        }
        drop(readers);
        RealDisk::open(&directory.0).unwrap();
    }

    #[test]
    fn files_keep_what_is_written_under_their_newest_name() {
        let directory = Directory::new("files");
        let disk = RealDisk::open(&directory.0).unwrap();
        let file = disk.create("a", 3 << 20).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory.0), 0o700);
        for name in ["a", LOCK_NAME] {
            assert_eq!(mode(&directory.0.join(name)), 0o600, "{name}");
        }
        assert_eq!(file.len_bytes().unwrap(), 3 << 20);
        file.write_at((3 << 20) - 2, b"xyz").unwrap();
        file.sync().unwrap();
        disk.rename("a", "b").unwrap();
        disk.sync_dir().unwrap();
        let mut bytes = [1; 8];
        let count = disk.open("b").unwrap().read_at((3 << 20) - 4, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"\0\0xyz");
        assert_eq!(disk.create("b", 0).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(disk.open("../b").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let mut names = disk.list().unwrap();
        names.sort();
        assert_eq!(names, ["b", LOCK_NAME]);
        disk.remove("b").unwrap();
        assert_eq!(disk.list().unwrap(), [LOCK_NAME]);
    }
}
