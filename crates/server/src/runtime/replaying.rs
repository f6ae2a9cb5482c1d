//! Finding the request that ends the process that executes it.
//!
//! Such a request is in the log, so every start replays it and ends there. A process that dies of a signal
//! says nothing, so a file in the data directory says it for it:
//!
//! 1. A start writes the file before it executes anything of the log, and removes it once it has executed all
//!    of it.
//! 2. A start that finds the file follows one that died there. It executes one request at a time, and names
//!    each in the file first ([`execute::Witness`]).
//! 3. A start that finds a name in the file tells it to the operator, who may then have the request skipped.
//!
//! Processes die, machines do not: the file is not synced.

use crate::private;
use execute::Witness;
use parking_lot::Mutex;
use redis_surface::described::described;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use txn::{Request, RequestName};

/// The file's name.
pub const FILE: &str = "replaying.txt";
/// The first byte of the file while a request is executed, and while none is.
const EXECUTING: u8 = b'!';
const BETWEEN: u8 = b'.';
const TEXT_BYTES_MAX: usize = 500;

/// A start that executes the log again. Dropped when it has, or when the process gives up in good order: the
/// file goes then.
pub(super) struct Replaying {
    path: PathBuf,
    /// It has a witness.
    is_watched: bool,
}

impl Drop for Replaying {
    fn drop(&mut self) {
        if self.is_watched {
            execute::watch_no_more();
        }
        // One that stays makes the next start slow, and no more.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Replaying {
    /// Begins, and tells the operator of the request at which the last start died.
    pub fn begin(dir: &Path) -> Replaying {
        let path = dir.join(FILE);
        let found = std::fs::read_to_string(&path).ok();
        if let Some(name) = found.as_deref().and_then(|text| text.strip_prefix(EXECUTING as char)) {
            let name = name.trim_end();
            let (request, _) = name.split_once(' ').unwrap_or((name, ""));
            tracing::error!(
                "the last start of this node ended while it executed request {name}. If that was no \
                 accident, each start ends there: 'ordo serve --skip {request}', at all nodes of a \
                 cluster, starts without executing it, and docs/poisoned.md tells what that means"
            );
        }
        let mut is_watched = false;
        match Witnessing::at(&path) {
            Ok(witness) if found.is_some() => {
                tracing::warn!(
                    "the last start ended before it had executed the log: this one executes one request at \
                     a time, so that {FILE} names the one at which it ends, should it end"
                );
                is_watched = execute::watch(Box::new(witness));
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(
                "{} cannot be written ({error}): if a request of the log ends this process, nobody will \
                 know which one",
                path.display()
            ),
        }
        Replaying { path, is_watched }
    }
}

/// Names what is executed in the file.
struct Witnessing(Mutex<File>);

impl Witnessing {
    fn at(path: &Path) -> io::Result<Witnessing> {
        let file = private::create(path)?;
        file.write_all_at(&[BETWEEN], 0)?;
        Ok(Witnessing(Mutex::new(file)))
    }
}

impl Witness for Witnessing {
    fn see(&self, name: RequestName, request: &Request, part: &mut dyn FnMut()) {
        /// Whatever the part does, panicking included, it has come back from it.
        struct Over<'a>(&'a File);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                let _ = self.0.write_all_at(&[BETWEEN], 0);
            }
        }
        let file = self.0.lock();
        let mut text = format!("{}{name} ({}", EXECUTING as char, described(request));
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX - 1));
        text.push(')');
        // The rest of a longer text goes, too: a reader sees this one's end.
        let text = format!("{text:width$}\n", width = TEXT_BYTES_MAX + 1);
        // Without it nobody will know, and the start goes on.
        let _ = file.write_all_at(text.as_bytes(), 0);
        let _over = Over(&file);
        part();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use txn::{Args, Call, FnProcedure, Outcome, Reply, RequestId, Tx};

    async fn nothing(_: Tx, _: Call) -> Outcome {
        Ok(Reply::OK)
    }

    #[test]
    fn the_file_names_what_is_executed_and_nothing_once_it_came_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(FILE);
        let witness = Witnessing::at(&path).expect("a file");
        let procedure = Arc::new(FnProcedure::new("nothing", nothing));
        let args = Args::one("x".repeat(1000).as_str());
        let request = Request::new(RequestId::default(), procedure, args);
        let name: RequestName = "7:2:3".parse().expect("a name");
        let read = || std::fs::read_to_string(&path).expect("a file");
        let mut during = String::new();
        witness.see(name, &request, &mut || during = read());
        assert!(during.starts_with("!7:2:3 (nothing \"xxx"), "{during}");
        assert!(read().starts_with('.'), "{}", read());
        let panics = || witness.see(name, &request, &mut || panic!("as procedures may"));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(panicked.is_err() && read().starts_with('.'));
    }
}
