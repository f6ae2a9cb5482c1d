//! Clusters of real nodes on this machine.

use bench::faults::processes::{Processes, Setting};
use server::launcher::poll;
use std::path::Path;
use std::time::Duration;

/// How long a test waits for a reply, or for a cluster, before it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster that serves. Its log need not be on the disk.
pub fn started(nodes: usize, zones: usize, partitions: u16, directory: &Path) -> Processes {
    started_with(&[], nodes, zones, partitions, directory)
}

/// A cluster that serves, with further settings for each node.
pub fn started_with(
    settings: &[&str],
    nodes: usize,
    zones: usize,
    partitions: u16,
    directory: &Path,
) -> Processes {
    let setting = Setting {
        ordo: env!("CARGO_BIN_EXE_ordo").into(),
        nodes,
        zones,
        partitions,
        delivery: server::cluster::Delivery::Raft,
        appendfsync: "no".to_owned(),
        arguments: settings.iter().map(|&word| word.to_owned()).collect(),
        directory: directory.to_owned(),
        faketime: None,
    };
    Processes::started(setting, PATIENCE).expect("up")
}

/// What `look` finds, which must come in time.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(PATIENCE, look).unwrap_or_else(|| panic!("not {what}"))
}
