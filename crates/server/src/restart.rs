//! Starting this process anew, with the program that is there now.
//!
//! While a process runs, an upgrade may put another program into the place of its own. The system then calls
//! the old one's file `... (deleted)`, and there is nothing to start under that name; what is to be started
//! is the new one. So the way by which this program was called counts, as long as it leads to a file: it also
//! follows links that were changed.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where this process's program may be, the best first. Made when the process starts: relative names mean
/// something only then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Vec<PathBuf>);

/// What the system appends to the name of a file that is gone.
const DELETED: &[u8] = b" (deleted)";

impl Program {
    /// The program of this process.
    pub fn of_this_process() -> Program {
        let called = std::env::args_os().next().unwrap_or_default();
        let directory = std::env::current_dir().unwrap_or_default();
        let searched = std::env::var_os("PATH").unwrap_or_default();
        let running = std::env::current_exe().ok();
        Program::new(&called, &directory, &searched, running)
    }

    /// What was called in a directory, by a name; where names without a slash were searched; and what the
    /// system runs.
    fn new(called: &OsStr, directory: &Path, searched: &OsStr, running: Option<PathBuf>) -> Program {
        let mut places = Vec::new();
        if called.as_bytes().contains(&b'/') {
            places.push(directory.join(called));
        } else if !called.is_empty() {
            let directories = std::env::split_paths(searched);
            // The first is what was run; what stands behind it is another program, perhaps.
            places.extend(
                directories
                    .map(|searched| directory.join(searched).join(called))
                    .find(|place| place.is_file()),
            );
        }
        if let Some(running) = running {
            let name = running.as_os_str().as_bytes();
            let name = name.strip_suffix(DELETED).unwrap_or(name);
            places.push(PathBuf::from(std::ffi::OsString::from_vec(name.to_vec())));
            places.push(running);
        }
        places.dedup();
        Program(places)
    }

    /// Where the program is now.
    fn find(&self) -> Option<&Path> {
        let mut places = self.0.iter().map(PathBuf::as_path);
        places.find(|place| place.is_file())
    }

    /// Puts the program into the place of this process, with the same words. Returns only if that fails: why,
    /// and what to do.
    pub fn start(&self) -> String {
        let Some(place) = self.find() else {
            let places: Vec<String> = self.0.iter().map(|place| place.display().to_string()).collect();
            return format!(
                "this process could not start itself anew: its program is not at {} any more. Start it again",
                places.join(" nor at ")
            );
        };
        let error = Command::new(place).args(std::env::args_os().skip(1)).exec();
        format!("this process could not start itself anew as {}: {error}. Start it again", place.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_program_is_found_where_it_was_called_even_if_it_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("ordo-1");
        let new = dir.path().join("ordo-2");
        let link = dir.path().join("ordo");
        fs::write(&old, "1").unwrap();
        fs::write(&new, "2").unwrap();
        std::os::unix::fs::symlink(&old, &link).unwrap();
        let searched = std::env::join_paths([Path::new("/nowhere"), dir.path()]).unwrap();
        let elsewhere = Path::new("/");
        let started = |called: &str, directory: &Path| {
            Program::new(OsStr::new(called), directory, &searched, Some(old.clone()))
        };
        let programs = [
            started("ordo", elsewhere),
            started("./ordo", dir.path()),
            started(link.to_str().unwrap(), elsewhere),
        ];
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&new, &link).unwrap();
        fs::remove_file(&old).unwrap();
        for program in &programs {
            let found = program.find().unwrap();
            assert_eq!(fs::read_to_string(found).unwrap(), "2", "{program:?}");
        }
        fs::remove_file(&link).unwrap();
        for program in &programs {
            assert_eq!(program.find(), None);
            let text = program.start();
            assert!(text.contains(old.to_str().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_name_that_the_system_calls_deleted_is_that_of_the_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("ordo");
        fs::write(&place, "new").unwrap();
        let gone = dir.path().join("ordo (deleted)");
        for called in ["", "no-such-program", "./no-such-program"] {
            let program =
                Program::new(OsStr::new(called), dir.path(), OsStr::new("/nowhere"), Some(gone.clone()));
            assert_eq!(program.find(), Some(&*place), "{called}");
        }
        // A file may really have that name.
        fs::rename(&place, &gone).unwrap();
        let program = Program::new(OsStr::new(""), dir.path(), OsStr::new(""), Some(gone.clone()));
        assert_eq!(program.find(), Some(&*gone));
    }
}
