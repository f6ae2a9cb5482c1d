//! What a runtime is told, and why it may not start.

use crate::cluster::identity::{Identity, IdentityError};
use crate::disk::DirectoryError;
use crate::peers::{PeerOptions, PeersError};
use crate::skips::SkipsError;
use execute::{Assignment, Engine, EngineError, EngineKind};
use log::OpenError;
use node::cluster::{ClusterOptions, ClusterRecoverError, LoadError};
use node::{FsyncPolicy, Limits};
use order::PartitionMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use txn::{Epoch, PartitionId, Procedure, RequestName};

/// Makes an empty engine of a kind.
pub type EngineFactory = Box<dyn Fn(EngineKind, Assignment) -> Arc<dyn Engine> + Send>;

/// Is told why a node stopped for good.
pub type HaltHook = Box<dyn Fn(&str) + Send + Sync>;

/// Ends the process and starts it again: called without any lock, and may not return.
pub type RestartHook = Box<dyn Fn() + Send + Sync>;

/// How to run a node.
pub struct RuntimeOptions {
    /// Where the log and the checkpoints are. Made if it does not exist.
    pub dir: PathBuf,
    /// When a write counts as durable.
    pub fsync: FsyncPolicy,
    /// Executor threads: they run what is heavy, and what callers do not run themselves.
    pub workers: usize,
    /// How many ports there may be at once, at most 256.
    pub ports: usize,
    /// The size of a log segment.
    pub segment_bytes: u64,
    /// A checkpoint is taken after as many bytes of log as the last one has, and this many at least. 0 means
    /// only on demand.
    pub checkpoint_bytes: u64,
    /// Bounds on what is on its way.
    pub limits: Limits,
    /// Which engine executes. In a cluster, the same at all nodes.
    pub engine: EngineKind,
    /// Makes it: a test may put something before it.
    pub make_engine: EngineFactory,
    /// Removes expired entries: called with the keys as its arguments. Replies how many it removed.
    pub expire: Option<Arc<dyn Procedure>>,
    /// Removes expired entries of the system's space in the same way. Replies no number.
    pub expire_system: Option<Arc<dyn Procedure>>,
    /// Requests of the order that are not executed, beside those that the directory names: see
    /// [`crate::skips`]. In a cluster, the same at all nodes.
    pub skip: Vec<RequestName>,
    /// Called once if a bug stopped the node, with a text for the operator. Clients wait in vain then: end
    /// the process.
    pub on_halt: Option<HaltHook>,
    /// Called when a node of a cluster has to start anew, because it has fetched a checkpoint. Without it, it
    /// stays silent.
    pub on_restart: Option<RestartHook>,
    /// Called once if this node is no part of its cluster any more, with a text for the operator: end the
    /// process.
    pub on_end: Option<HaltHook>,
}

impl RuntimeOptions {
    /// The defaults.
    pub fn new(dir: impl Into<PathBuf>) -> RuntimeOptions {
        let ClusterOptions { fsync, limits, checkpoint_bytes, expire, expire_system, .. } =
            ClusterOptions::alone();
        RuntimeOptions {
            dir: dir.into(),
            fsync,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            ports: 16,
            segment_bytes: log::SEGMENT_BYTES_DEFAULT,
            checkpoint_bytes,
            limits,
            engine: EngineKind::default(),
            make_engine: Box::new(EngineKind::make),
            expire,
            expire_system,
            skip: Vec::new(),
            on_halt: None,
            on_restart: None,
            on_end: None,
        }
    }
}

/// How a node takes part in a cluster.
pub struct MemberOptions {
    /// The cluster's name.
    pub name: String,
    /// Who it is: the first map counts if the journal has none.
    pub identity: Identity,
    /// Whether it was that before: then its journal must exist.
    pub has_run: bool,
    /// What its state machine is told.
    pub node: ClusterOptions,
    /// How it reaches the others.
    pub peers: PeerOptions,
    /// How old the data may be that a READONLY connection reads.
    pub staleness_ms_max: u64,
    /// Asked now and then as long as nobody agrees with this node, with its map: why it must not go on, if
    /// the cluster has it no more.
    pub is_gone: GoneHook,
}

/// See [`MemberOptions::is_gone`]. May take seconds.
pub type GoneHook = Box<dyn Fn(&PartitionMap) -> Option<String> + Send>;

/// What a node found in its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The partitions that it keeps, if it is of a cluster.
    pub partitions: Vec<PartitionId>,
    /// The epoch of the checkpoint that they were loaded from; 0 if there was none.
    pub checkpoint: Epoch,
    /// Records that were in it.
    pub records: u64,
    /// Entries of the groups' logs behind it: those that are agreed are executed again.
    pub entries: u64,
    /// How long that took, without waiting for other nodes.
    pub elapsed_ms: u64,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partitions: Vec<String> =
            self.partitions.iter().map(|partition| partition.0.to_string()).collect();
        match &partitions[..] {
            [] => {}
            [one] => write!(f, "partition {one}: ")?,
            _ => write!(f, "partitions {}: ", partitions.join(", "))?,
        }
        match self.checkpoint {
            Epoch(0) => write!(f, "no checkpoint")?,
            epoch => write!(f, "{} records from the checkpoint of epoch {}", self.records, epoch.0)?,
        }
        write!(f, ", {} log entries behind it, in {} ms", self.entries, self.elapsed_ms)
    }
}

/// Why a runtime could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Too many ports, or none.
    #[error("{0} ports were asked for: between 1 and 256 are possible")]
    Ports(usize),
    /// No executor.
    #[error("0 workers were asked for: scripts need at least one")]
    Workers,
    /// The engine cannot serve this.
    #[error("engine: {0} (--engine, or engine in the cluster's description; the same at all nodes)")]
    Engine(#[from] EngineError),
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The directory is that of a node of a cluster, and a server by itself was to start.
    #[error(
        "{0} is of a node of a cluster, and a server that stands alone would start without its data: \
         nothing was changed. Start the node as before (--cluster and --node), or this server in a \
         directory of its own (--dir)"
    )]
    OfCluster(String),
    /// The directory is that of a server by itself, and a node of a cluster was to start.
    #[error(
        "{0} is of a server that stands alone, and a node of a cluster would start without its data: \
         nothing was changed. Start that server as before (without --cluster and --node), or this \
         node in a directory of its own (--dir)"
    )]
    OfAlone(String),
    /// There are checkpoints, and no log that tells of them.
    #[error(
        "{0} has checkpoints, and the log that tells of them is missing (or they were written by an older \
         version of Ordo): nothing was changed. Put the log-*.ordo files back, or restore the whole \
         directory from a backup; or, to begin with an empty database, use another directory (--dir)"
    )]
    LogLost(String),
    /// The node ended while it executed its log.
    #[error("{0}")]
    Ended(Arc<str>),
    /// What the journal holds cannot be used.
    #[error(transparent)]
    Cluster(ClusterRecoverError),
    /// A checkpoint cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The journal is gone, and the rest of the directory is not.
    #[error(
        "the journal of this node is missing from {0}, where it was before, and with it what it had \
         promised to the others: put it back; or, if it is lost, add a node of another name to the zone \
         ('ordo admin add-node'), start that one with an empty directory, and take this one out ('ordo \
         admin remove-node')"
    )]
    JournalLost(String),
    /// The journal cannot be begun.
    #[error("the journal could not be written: {0}: make room on the disk, or repair it")]
    Journal(std::io::Error),
    /// Which node it is cannot be kept.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Which requests are skipped cannot be kept.
    #[error(transparent)]
    Skips(#[from] SkipsError),
    /// The other nodes cannot be reached.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}: raise the process's limits")]
    Thread(std::io::Error),
}

impl StartError {
    /// The node ended, and clients would be told so.
    pub(super) fn ended(told: &str) -> StartError {
        StartError::Ended(told.strip_prefix("MISCONF ").unwrap_or(told).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;
    use std::io;

    /// What a program prints that shows an error with everything behind it.
    fn chain(error: &dyn Error) -> String {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(error) = next {
            text.push_str(&format!(": {error}"));
            next = error.source();
        }
        text
    }

    #[test]
    fn a_node_tells_what_it_found() {
        let mut report = RecoveryReport { entries: 7, elapsed_ms: 12, ..RecoveryReport::default() };
        assert_eq!(report.to_string(), "no checkpoint, 7 log entries behind it, in 12 ms");
        report.partitions.push(PartitionId(0));
        assert_eq!(report.to_string(), "partition 0: no checkpoint, 7 log entries behind it, in 12 ms");
        report.partitions.push(PartitionId(2));
        report.checkpoint = Epoch(900);
        report.records = 40;
        assert_eq!(
            report.to_string(),
            "partitions 0, 2: 40 records from the checkpoint of epoch 900, 7 log entries behind it, in 12 ms"
        );
    }

    #[test]
    fn a_cause_is_told_once() {
        let full = || io::Error::other("the disk is full");
        let log = log::OpenError::Io { action: "listing the directory".to_owned(), cause: full() };
        let directory = DirectoryError::Io { path: "data".into(), action: "creating it", cause: full() };
        let checkpoint = LoadError::File { name: "checkpoint".to_owned(), cause: full().into() };
        let identity =
            IdentityError::Io { path: "cluster.json".to_owned(), action: "written", cause: full() };
        let peers = PeersError::Listen { listen: "here:1".to_owned(), cause: full() };
        let runtime = [
            StartError::Directory(directory),
            StartError::Log(log),
            StartError::Load(checkpoint),
            StartError::Journal(full()),
            StartError::Identity(identity),
            StartError::Peers(peers),
            StartError::Thread(full()),
        ];
        let server = runtime
            .into_iter()
            .map(crate::server::StartError::Runtime)
            .chain([crate::server::StartError::Thread(full())])
            .map(|error| Box::new(error) as Box<dyn Error>);
        let local = crate::cluster::local::LocalError::from(full());
        let local: Box<dyn Error> = Box::new(local);
        for error in server.chain([local]) {
            let text = chain(&*error);
            assert_eq!(text.matches("the disk is full").count(), 1, "{text}");
        }
    }
}
