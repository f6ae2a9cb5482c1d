//! `ordo backup` and `ordo restore`: a database, and its order, in objects that nobody changes.
//!
//! # What is consistent, and why
//!
//! All groups go through the epochs in lock-step, and a checkpoint is taken by all nodes at the end of the
//! same epoch. So the checkpoint of an epoch *K*, with the agreed batches of all groups behind it, is the
//! whole database at the end of each epoch from *K* on: what [`node::cluster::restore::Replay`] makes of it
//! is what every replica had there. Nothing is paused for that, and no node has to be in a particular role: a
//! batch counts once its group has agreed on it, and an epoch once the batches of all groups are there.
//!
//! # Objects
//!
//! | name | what |
//! |---|---|
//! | `chain-N/checkpoint-K/pP-nM-O` | part of a file of the checkpoint of epoch *K* |
//! | `chain-N/checkpoint-K.json` | the manifest of that checkpoint |
//! | `chain-N/log-E` | the batches of all groups from epoch *E* on, and the chained digest before |
//! | `chain-N/progress.json` | how far the chain goes |
//!
//! A part is what node *M* has from offset *O* on in the file of partition *P*. The manifest says which parts
//! the files have, and what bases go with them; it is written last, and without it the parts are nothing. How
//! far a chain goes tells that a last object or a manifest is missing, and which requests are not to be
//! executed: that object is the only one that is ever replaced.
//!
//! A *chain* is a checkpoint and the order behind it without a gap, and perhaps later checkpoints on the way.
//! A backup begins a new chain where the order cannot be had any more (the nodes have cut their logs while no
//! backup ran), and where the database has another past than the chain: a server that does not sync its log
//! may lose its last epochs in a loss of power, and make others.
//!
//! # Resuming
//!
//! The objects say it all. A process that starts finds the last chain, reads its last object, and asks the
//! nodes for the batches of the last epoch: if they are the same, it goes on behind them. Where the first
//! checkpoint is not complete, it goes on with the parts that are missing, as long as the nodes have that
//! checkpoint. Objects are written under names that say what they are, and only if they are not there; so two
//! processes that make the same backup cannot mix what they write: the second one ends.
//!
//! # What bounds memory
//!
//! A node keeps nothing between two questions (a checkpoint's files stay while they are asked for). Here, at
//! most one object is made at a time; beside it wait the batches of groups that are ahead of another one,
//! which is why the node that is furthest behind is asked first.

pub mod chains;
pub mod format;
pub mod moment;
pub mod nodes;
pub mod objects;
pub mod restore;
mod take;
mod verify;

use crate::nodes::{Nodes, PASSWORD_VARIABLE};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use moment::Moment;
use objects::Objects;
use restore::RestoreTarget;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use take::Wishes;

/// The most bytes of an object of a checkpoint.
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// The least.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// `ordo backup`.
#[derive(Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct Backup {
    #[command(flatten)]
    nodes: Nodes,
    /// Where the backup is: file:///directory, or s3://bucket/prefix with the usual variables (AWS_REGION,
    /// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT).
    #[arg(long, value_name = "URL", required = true)]
    to: Option<String>,
    /// Ends once there is a checkpoint and the order up to now. Without it, the order is followed until the
    /// process is stopped.
    #[arg(long)]
    once: bool,
    /// How many seconds of the order may be lost with the cluster: so often an object is written.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    max_loss: f64,
    /// After how many hours another checkpoint is copied, so that a restore has less to execute.
    #[arg(long, value_name = "HOURS", default_value_t = 24.0)]
    checkpoint_every: f64,
    /// How many bytes are written in a second, at most.
    #[arg(long, value_name = "BYTES")]
    max_bytes_per_second: Option<u64>,
    /// How many seconds pass between two lines about the progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    tell_every: f64,
    #[command(subcommand)]
    command: Option<BackupCommand>,
}

/// What to do with a backup that is there.
#[derive(Subcommand)]
enum BackupCommand {
    /// Shows which moments can be restored.
    List {
        /// Where the backup is.
        #[arg(value_name = "URL")]
        at: String,
    },
    /// Reads all of a backup, executes the order, and proves that nothing is missing or damaged.
    Verify {
        /// Where the backup is.
        #[arg(value_name = "URL")]
        at: String,
    },
}

/// `ordo restore`.
#[derive(Args)]
pub struct Restore {
    /// Where the backup is.
    #[arg(long, value_name = "URL")]
    from: String,
    /// Which moment: the number of an epoch, a time such as 2026-11-27T22:10:00Z, of which the last epoch
    /// before it is restored, or 'newest'.
    #[arg(long, default_value = "newest")]
    at: Moment,
    /// The number of a chain. Without it, the last one that leads to the moment: one past of the database
    /// may be in an earlier chain only.
    #[arg(long, value_name = "NUMBER")]
    chain: Option<u32>,
    /// The new data directory.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The description of the new cluster. Without it, the directory is that of a server by itself.
    #[arg(long, value_name = "FILE", requires = "node")]
    cluster: Option<PathBuf>,
    /// The name of the node whose directory it is. Every node of the new cluster needs its own, of the same
    /// moment.
    #[arg(long, value_name = "NAME", requires = "cluster")]
    node: Option<String>,
}

fn seconds(what: &str, seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{what} is no time: {seconds}"))
}

/// Runs `ordo backup`.
pub fn run(backup: &Backup) -> Result<()> {
    match &backup.command {
        Some(BackupCommand::List { at }) => return moment::list(&Objects::open(at, None)?),
        Some(BackupCommand::Verify { at }) => return verify::run(&Objects::open(at, None)?),
        None => {}
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    // A part must not take so long that the order waits for it.
    let bytes = backup.max_bytes_per_second.map_or(PIECE_BYTES_MAX, |max| max / 2);
    let wishes = Wishes {
        addresses: backup.nodes.address.clone(),
        access: backup.nodes.access(std::env::var(PASSWORD_VARIABLE).ok())?,
        once: backup.once,
        loss_max: seconds("--max-loss", backup.max_loss)?,
        checkpoint_every: seconds("--checkpoint-every", backup.checkpoint_every * 3600.0)?,
        piece_bytes: bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize,
        tell_every: seconds("--tell-every", backup.tell_every)?,
        stop,
    };
    let to = backup.to.as_deref().context("--to says where the backup is")?;
    let mut objects = Objects::open(to, backup.max_bytes_per_second)?;
    take::run(&mut objects, &wishes)
}

/// Runs `ordo restore`.
pub fn run_restore(restore: &Restore) -> Result<()> {
    let target = match (&restore.cluster, &restore.node) {
        (Some(description), Some(name)) => RestoreTarget::Node(description.clone(), name.clone()),
        _ => RestoreTarget::Alone,
    };
    let objects = Objects::open(&restore.from, None)?;
    restore::run(&objects, restore.at, restore.chain, &restore.dir, &target)
}
