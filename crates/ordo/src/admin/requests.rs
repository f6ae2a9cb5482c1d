//! `ordo admin requests` and `ordo admin skip`: what the log of a stopped node has, and what of it is not to
//! be executed.

use anyhow::{Context, Result, bail};
use node::listing::{self, Listed};
use redis_surface::described::described;
use server::disk::RealDisk;
use server::skips;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use txn::{Registry, RequestName};

/// What it means to skip a request.
const MEANING: &str = "\
Skipping a request means:
- No node executes it, at none of its partitions: not now, and not when the log is replayed later. \
Everything behind it is
  executed as if it had replied an error.
- Its client may have been told nothing, or, if some node executed it before, that it succeeded. What it \
wrote is then gone, and so is what
  others read of it.
- A client that sends the same command again orders it again, at another place, and there it is executed: \
keep it away first. That
  holds for ORDO.IDEMPOTENT, too: what was skipped left no record of its id.
- In a cluster, every node must skip it. Nodes that do not skip the same requests refuse each other.
- It cannot be taken back once a node has started with it.";

/// Lists the last requests that a directory's log has behind the newest checkpoint.
pub fn list(dir: &Path, last: usize, out: &mut dyn Write) -> Result<()> {
    let (_disk, all) = read(dir)?;
    if all.is_empty() {
        writeln!(out, "nothing: a start of this node executes no request of its log")?;
    }
    for listed in all.iter().skip(all.len().saturating_sub(last)) {
        writeln!(out, "{}", line(listed))?;
    }
    Ok(())
}

/// Has stopped nodes skip requests.
pub fn skip(names: &[RequestName], dirs: &[PathBuf], is_sure: bool, out: &mut dyn Write) -> Result<()> {
    // The processes of these nodes cannot start before the files are written: a supervisor may try.
    let mut held: Vec<Held> = Vec::new();
    for dir in dirs {
        let path =
            std::fs::canonicalize(dir).with_context(|| format!("the data directory {}", dir.display()))?;
        if held.iter().any(|held| held.path == path) {
            continue;
        }
        let (disk, all) = read(dir)?;
        held.push(Held { path, _disk: disk });
        for name in names {
            let found = all.iter().find(|listed| listed.name == *name);
            let known = skips::load(dir)?;
            let text = match found {
                Some(listed) => line(listed),
                None if known.iter().any(|(known, _)| known == *name) => {
                    format!("{name}, which it skips already")
                }
                None => format!(
                    "{name}, which it does not have behind its newest checkpoint: it has not heard of it, \
                     or has executed it; if so, its next start refuses to skip it, and changes nothing"
                ),
            };
            writeln!(out, "{}: {text}", dir.display())?;
        }
    }
    if !is_sure {
        writeln!(out, "\n{MEANING}\n")?;
        bail!("nothing was skipped: add --yes to have this skipped");
    }
    for Held { path: dir, .. } in &held {
        let mut all = skips::load(dir)?;
        for &name in names {
            all.add(name);
        }
        skips::save(dir, &all)?;
        writeln!(out, "{}: the next start of this node skips it", dir.display())?;
    }
    Ok(())
}

/// A data directory that no other process may have as long as this one lives.
struct Held {
    path: PathBuf,
    _disk: Arc<RealDisk>,
}

fn line(listed: &Listed) -> String {
    let partitions: Vec<String> = listed.partitions.iter().map(|id| id.0.to_string()).collect();
    let name = listed.name;
    let (seconds, millis) = (listed.time_ms / 1000, listed.time_ms % 1000);
    format!("{name}  time {seconds}.{millis:03}  partition {}  {}", partitions.join(","), listed.text)
}

/// What a directory's log has, of which no process may have hold, and the hold.
fn read(dir: &Path) -> Result<(Arc<RealDisk>, Vec<Listed>)> {
    let has_log = || -> std::io::Result<bool> {
        let mut has_log = false;
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name();
            has_log |= name.to_string_lossy().starts_with("log-");
        }
        Ok(has_log)
    };
    // A mistyped name must not become a new directory.
    let has_log = has_log().with_context(|| format!("the data directory {}", dir.display()))?;
    if !has_log {
        bail!("{} has no log: give the data directory of a node (--dir)", dir.display());
    }
    let disk = Arc::new(RealDisk::open(dir)?);
    let mut registry = Registry::new();
    redis_surface::register(&mut registry)?;
    let boot_id = super::unguessable();
    let bytes = log::SEGMENT_BYTES_DEFAULT;
    let listed = listing::list(&disk, bytes, boot_id, &registry, described)?;
    Ok((disk, listed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Reads what is written, and looks each time whether another process could take the directory.
    struct Watching<'a> {
        dir: &'a Path,
        said: String,
    }

    impl Write for Watching<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert!(RealDisk::look_at(self.dir).is_err(), "free after: {}", self.said);
            self.said.push_str(&String::from_utf8_lossy(bytes));
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_process_takes_a_directory_before_it_is_told_what_to_skip() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path();
        {
            let disk = Arc::new(RealDisk::open(path).expect("a directory"));
            let bytes = log::SEGMENT_BYTES_DEFAULT;
            listing::list(&disk, bytes, 1, &Registry::new(), described).expect("an empty log");
        }
        let name: RequestName = "7:2:3".parse().expect("a name");
        let mut out = Watching { dir: path, said: String::new() };
        let dirs = [path.to_owned(), path.join(".")];
        skip(&[name], &dirs, true, &mut out).expect("skipped");
        assert_eq!(out.said.matches("skips it").count(), 1, "{}", out.said);
        assert!(skips::load(path).expect("a file").iter().any(|(known, _)| known == name));
        assert!(RealDisk::look_at(path).is_ok());
    }
}
