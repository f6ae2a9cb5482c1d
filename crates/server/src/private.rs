//! Files and directories that only the server's own user may read, whatever the process's umask says.
//!
//! The log, checkpoints, the ACL file, the description of a cluster and the nodes' output hold data or
//! secrets. Everything in this crate that creates a file or a directory does so by this module.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// What others than the owner may do with a new file or directory: nothing.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Every user of the machine may read it.
const READABLE_BY_ALL: u32 = 0o004;

/// Options that create files for the owner alone. A file that exists keeps its mode.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Makes an empty file, or empties one that exists.
pub fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

/// Makes a directory, and those above it, unless it exists.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// What to say of a file that holds `what` and that every user of the machine may read. `None` if not
/// everybody may, or if there is none.
pub fn complaint(path: &Path, what: &str) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let path = path.display();
    (mode & READABLE_BY_ALL != 0).then(|| {
        format!("{path}: every user of this machine can read {what}. Let only Ordo's user: chmod 600 {path}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_for_the_owner_alone_and_what_is_there_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        let inner = dir.path().join("a/b");
        create_dir_all(&inner).expect("made");
        create_dir_all(&inner).expect("there");
        assert_eq!((mode(&dir.path().join("a")), mode(&inner)), (0o700, 0o700));
        let path = inner.join("file");
        assert_eq!(complaint(&path, "nothing"), None);
        create(&path).expect("made");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(complaint(&path, "the secret"), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        create(&path).expect("emptied");
        assert_eq!(mode(&path), 0o644);
        let said = complaint(&path, "the secret").expect("everybody may read it");
        assert!(said.contains("can read the secret") && said.contains("chmod 600"), "{said}");
    }
}
