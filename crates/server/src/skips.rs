//! Which requests of the order this node does not execute: a small file in its data directory.
//!
//! `ordo admin skip` writes it while the node is stopped, `ordo serve --skip` at its start, and a node that
//! joins a cluster has it from the others. [`order::skip`] tells what it means. A line is the name of a
//! request, and `in-force` behind it once a process has started with it.

use crate::private;
use crate::replace::replace_file;
use order::skip::{Skips, Standing};
use std::io;
use std::path::{Path, PathBuf};
use txn::RequestName;

/// The file's name.
pub const FILE: &str = "skips.txt";
const IN_FORCE: &str = "in-force";

/// Why the file says nothing.
#[derive(Debug, thiserror::Error)]
pub enum SkipsError {
    /// It cannot be read or written.
    #[error("{}, which says which requests this node skips, cannot be {action}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Read or written.
        action: &'static str,
        /// Why.
        cause: io::Error,
    },
    /// A line names no request.
    #[error(
        "{}, which says which requests this node skips, has a line '{line}' that it cannot have: restore \
         the file from a backup, or, in a cluster, copy it from another node", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What it has.
        line: String,
    },
}

/// What the file of a directory says: nothing if there is none.
pub fn load(dir: &Path) -> Result<Skips, SkipsError> {
    let path = dir.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Skips::default()),
        Err(cause) => return Err(failed(path, "read", cause)),
    };
    let mut skips = Skips::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().and_then(|name| name.parse().ok());
        let standing = match words.next() {
            None => Some(Standing::New),
            Some(IN_FORCE) => Some(Standing::InForce),
            Some(_) => None,
        };
        let (Some(name), Some(standing), None) = (name, standing, words.next()) else {
            let line = line.to_owned();
            return Err(SkipsError::Damaged { path, line });
        };
        skips.insert(name, standing);
    }
    Ok(skips)
}

/// Writes the file: whole and durable, or not at all.
pub fn save(dir: &Path, skips: &Skips) -> Result<(), SkipsError> {
    let path = dir.join(FILE);
    let mut text = String::new();
    for (name, standing) in skips.iter() {
        text.push_str(&name.to_string());
        if standing == Standing::InForce {
            text.push(' ');
            text.push_str(IN_FORCE);
        }
        text.push('\n');
    }
    replace_file(&path, text.as_bytes()).map_err(|cause| failed(path, "written", cause))
}

/// What a process that starts in a directory skips: what the file says, and what its settings name, which the
/// file says from now on, too.
pub(crate) fn begin(dir: &Path, wanted: &[RequestName]) -> Result<Skips, SkipsError> {
    let known = load(dir)?;
    let mut skips = known.clone();
    for &name in wanted {
        skips.add(name);
    }
    if skips != known {
        save(dir, &skips)?;
    }
    for (name, _) in skips.iter() {
        tracing::warn!("an operator had request {name} of the order skipped: this node does not execute it");
    }
    Ok(skips)
}

/// The process has started: all of them are in force.
pub(crate) fn enforce(dir: &Path, mut skips: Skips) -> Result<(), SkipsError> {
    if skips.iter().any(|(_, standing)| standing == Standing::New) {
        skips.enforce();
        save(dir, &skips)?;
    }
    Ok(())
}

/// The process cannot start, because one of those that are new was executed: the directory is as it was.
pub(crate) fn take_back(dir: &Path, mut skips: Skips) -> Result<(), SkipsError> {
    skips.forget_new();
    save(dir, &skips)
}

/// What a node that joins has from the others.
pub(crate) fn adopt(dir: &Path, names: &[RequestName]) -> Result<(), SkipsError> {
    if names.is_empty() {
        return Ok(());
    }
    let io = |cause| failed(dir.join(FILE), "written", cause);
    private::create_dir_all(dir).map_err(io)?;
    let mut skips = Skips::default();
    for &name in names {
        skips.insert(name, Standing::InForce);
    }
    save(dir, &skips)
}

fn failed(path: PathBuf, action: &'static str, cause: io::Error) -> SkipsError {
    SkipsError::Io { path, action, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_a_damaged_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        assert!(load(dir).expect("no file").is_empty());
        let name: RequestName = "7:2:3".parse().expect("a name");
        let skips = begin(dir, &[name]).expect("written");
        assert_eq!(load(dir).expect("a file"), skips);
        take_back(dir, skips.clone()).expect("written");
        assert!(load(dir).expect("a file").is_empty());
        enforce(dir, skips.clone()).expect("written");
        let skips = begin(dir, &[name]).expect("there already");
        let all: Vec<_> = skips.iter().collect();
        assert_eq!(all, [(name, Standing::InForce)]);
        take_back(dir, skips.clone()).expect("written");
        assert_eq!(load(dir).expect("a file"), skips, "what is in force stays");
        for text in ["7:2\n", "7:2:3 perhaps\n", "7:2:3 in-force today\n"] {
            std::fs::write(dir.join(FILE), text).expect("written");
            let error = load(dir).expect_err(text).to_string();
            assert!(error.contains(FILE) && error.contains("backup"), "{error}");
        }
    }
}
