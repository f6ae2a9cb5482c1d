//! Clusters of real nodes on this machine.

use bench::faults::processes::{Processes, Setting};
use std::path::Path;
use std::time::Duration;

/// How long a test waits for a reply, or for a cluster, before it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster that serves. Its log need not be on the disk.
pub fn started(nodes: usize, zones: usize, partitions: u16, directory: &Path) -> Processes {
    let setting = Setting {
        ordo: env!("CARGO_BIN_EXE_ordo").into(),
        nodes,
        zones,
        partitions,
        appendfsync: "no".to_owned(),
        arguments: Vec::new(),
        directory: directory.to_owned(),
        faketime: None,
    };
    let mut processes = Processes::new(setting, None).expect("prepared");
    for node in 0..nodes {
        processes.start(node).expect("started");
    }
    processes.wait_until_up(PATIENCE).expect("up");
    processes
}
