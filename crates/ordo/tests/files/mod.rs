//! The files of this repository, for tests that read them.

use std::path::{Path, PathBuf};

/// The repository's directory.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The files below a directory, without those that builds leave behind and those in hidden directories.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let found = paths.into_iter().flat_map(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match () {
            () if !path.is_dir() => vec![path],
            () if name == "target" || name.starts_with('.') => Vec::new(),
            () => files(&path),
        }
    });
    found.collect()
}
