//! Files that are written anew as a whole.

use crate::private;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Puts a file with these bytes in the place of the one before, if there was one: a reader, and a crash at
/// any instant, finds one of the two, whole. Who may read it stays as it was; a new one is its owner's alone.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let beside = Path::new(&name);
    let write = || {
        let mut file = private::create(beside)?;
        if let Ok(before) = fs::metadata(path) {
            file.set_permissions(before.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(beside, path)?;
        match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => File::open(directory)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    };
    write().inspect_err(|_| {
        // What was not written whole is of no use; that it is there harms nobody.
        let _ = fs::remove_file(beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_stays_as_secret_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let mode = || fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        replace_file(&path, b"one").expect("a new file");
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        replace_file(&path, b"two").expect("an old file");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert_eq!(mode(), 0o640);
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 1);
        assert!(replace_file(&dir.path().join("no/file"), b"x").is_err());
    }
}
