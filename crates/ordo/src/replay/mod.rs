//! `ordo replay`: a transaction of the order, executed again.
//!
//! The order is the database: what is in it, executed from a checkpoint on, gives the same reads, writes and
//! replies again. So a transaction that happened yesterday can be looked at today: this command loads the
//! newest checkpoint that is older, executes what lies in between as every replica did, and runs the
//! transaction at the state that it found ([`node::cluster::restore::Replay::execute_and_trace`]).
//!
//! What a server was asked is in the order; how it got there is not. There are no restarts to be told: how
//! often an engine executed a transaction speculatively, before it was valid, depends on threads and is
//! nowhere kept. Reads that bypassed the order are not there either.
//!
//! # What is proved
//!
//! * The batches are held against the order's chained digest at each checkpoint, and the state against the
//!   digest that the replicas had, where it is known, or, if that is wanted, a digest of all users' entries
//!   against that of the next checkpoint ([`source::Source::check`]).
//! * The transaction's reply and writes are held against those of the engine that executes the order, unless
//!   the engine leaves the transaction to another process.

mod show;
mod source;

use crate::backup::moment::Moment;
use anyhow::{Result, bail, ensure};
use clap::Args;
use node::cluster::restore::{CheckpointState, TracedEpoch, Wanted};
use show::{Place, Show};
use source::{Source, tip_of};
use std::io::{self, Write};
use std::path::PathBuf;
use txn::{PartitionId, Position, RequestName};

/// `ordo replay`.
#[derive(Args)]
pub struct Replay {
    /// The data directory of a node that does not run. Nothing in it is changed.
    #[arg(long, value_name = "DIR", required_unless_present = "from", conflicts_with = "from")]
    dir: Option<PathBuf>,
    /// A backup, made by 'ordo backup': file:///directory or s3://bucket/prefix.
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// The number of the backup's chain. Without it, the last one that leads to the moment.
    #[arg(long, value_name = "NUMBER", requires = "from")]
    chain: Option<u32>,
    /// Which epoch: its number, a time such as 2026-11-27T22:10:00Z, which means the last epoch before it, or
    /// 'newest'. Without a transaction, the epoch's transactions are listed.
    #[arg(long, value_name = "MOMENT")]
    at: Option<Moment>,
    /// The transaction to show, by the name of its request, EPOCH:SESSION:SEQUENCE, as the list, the server's
    /// log, 'ordo export' and 'ordo admin requests' tell it.
    #[arg(long, value_name = "NAME", conflicts_with = "position")]
    request: Option<RequestName>,
    /// The transaction to show, by its position in the order of a partition.
    #[arg(long, value_name = "NUMBER")]
    position: Option<u64>,
    /// The partition of --position.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "position")]
    partition: u16,
    /// How many transactions are listed, at most; and, of one transaction, how many commands, reads, writes
    /// and elements of its reply.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,
    /// Values that take more memory are left out.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    max_value_bytes: usize,
    /// Executes on to the next checkpoint, and holds a digest of all entries against it. Needs twice as much
    /// memory.
    #[arg(long)]
    verify: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// The end of the execution.
#[derive(Clone, Copy)]
enum Target {
    Epoch(u64, Option<Wanted>),
    Position(PartitionId, Position),
}

/// Runs `ordo replay`.
pub fn run(replay: &Replay) -> Result<()> {
    let source = open(replay)?;
    let show = Show { value_bytes_max: replay.max_value_bytes, json: replay.json, limit: replay.limit };
    let target = match (replay.request, replay.position) {
        (Some(name), _) => {
            let epoch = source.epoch_at(Moment::Epoch(name.epoch.0))?;
            if let Some(at) = replay.at {
                let asked = source.epoch_at(at)?;
                ensure!(asked == epoch, "request {name} is of epoch {epoch}, and --at says epoch {asked}");
            }
            Target::Epoch(epoch, Some(Wanted::Request(name)))
        }
        (None, Some(position)) => {
            let (partition, position) = (PartitionId(replay.partition), Position(position));
            match replay.at {
                Some(at) => Target::Epoch(source.epoch_at(at)?, Some(Wanted::Position(partition, position))),
                None => Target::Position(partition, position),
            }
        }
        (None, None) => match replay.at {
            Some(at) => Target::Epoch(source.epoch_at(at)?, None),
            None => return print(&show.extent(&source)),
        },
    };
    // Procedures tell which messages they publish, as long as this lives.
    let _wanted = redis_surface::telling::want();
    let (traced, place) = execute(&source, target, replay.verify)?;
    match (target, &traced.trace) {
        (_, Some(trace)) => {
            print(&show.transaction(trace, &place))?;
            match &trace.difference {
                None => ensure_verified(replay, &place),
                Some(what) => bail!(
                    "{what} differs between two executions of the transaction: a bug of Ordo, please \
                     report it"
                ),
            }
        }
        (Target::Epoch(epoch, Some(wanted)), None) => bail!(
            "epoch {epoch} has no {}: --at {epoch} lists what it has ({} in all)",
            match wanted {
                Wanted::Request(name) => format!("request {name}"),
                Wanted::Position(partition, position) => format!("position {position} of {partition}"),
            },
            traced.transactions.len()
        ),
        _ => {
            print(&show.list(&traced.transactions, &place))?;
            ensure_verified(replay, &place)
        }
    }
}

/// Verifying that finds nothing to compare with is no success.
fn ensure_verified(replay: &Replay, place: &Place) -> Result<()> {
    ensure!(
        !replay.verify || place.checked_at.is_some(),
        "nothing was verified: there is no checkpoint of epoch {} or of one behind it; the server makes one \
         with SAVE",
        place.tip.epoch
    );
    Ok(())
}

fn open(replay: &Replay) -> Result<Source> {
    let before = |epoch: u64| Moment::Epoch(epoch.saturating_sub(1));
    match (&replay.dir, &replay.from) {
        (Some(dir), _) => Source::of_directory(dir),
        (None, Some(url)) => {
            let moment = match (replay.request, replay.at) {
                (Some(name), _) => before(name.epoch.0),
                (None, Some(Moment::Epoch(epoch))) => before(epoch),
                (None, at) => at.unwrap_or(Moment::Newest),
            };
            Source::of_backup(url, moment, replay.chain)
        }
        (None, None) => bail!("--dir or --from says where the order is"),
    }
}

/// Executes the order up to the end of the epoch of the target; `verifies` has the execution go on to the
/// next checkpoint.
fn execute(source: &Source, target: Target, verifies: bool) -> Result<(TracedEpoch, Place)> {
    let is_before = |states: &&Vec<CheckpointState>| match target {
        Target::Epoch(epoch, _) => tip_of(states).epoch < epoch,
        Target::Position(partition, position) => {
            states.get(usize::from(partition.0)).is_some_and(|state| state.next <= position)
        }
    };
    let Some(from) = source.checkpoints.iter().rev().find(is_before) else {
        bail!("this is not behind the oldest checkpoint that is kept: {}", source.extent());
    };
    let from = tip_of(from);
    let mut replay = source.begin(from.epoch)?;
    let mut found: Option<(TracedEpoch, Place)> = None;
    source.walk(from, &mut |tip, batches| {
        let wanted = match target {
            _ if found.is_some() => None,
            Target::Epoch(epoch, wanted) => (tip.epoch == epoch).then_some(wanted),
            Target::Position(partition, position) => Some(Some(Wanted::Position(partition, position))),
        };
        match wanted {
            None => replay.execute(batches)?,
            Some(wanted) => {
                let traced = replay.execute_and_trace(batches, wanted)?;
                let is_it = matches!(target, Target::Epoch(..)) || traced.trace.is_some();
                if is_it {
                    found = Some((traced, Place { tip: *tip, from: from.epoch, checked_at: None }));
                }
            }
        }
        if (replay.end().epoch.0, replay.end().digest) != (tip.epoch, tip.digest) {
            bail!("the order that was executed is not the one that is kept: a bug of Ordo, please report it");
        }
        let is_checked = source.check(&replay, verifies && found.is_some())?;
        if let Some((_, place)) = &mut found
            && is_checked
        {
            place.checked_at = Some(tip.epoch);
        }
        Ok(found.is_none() || verifies && !is_checked)
    })?;
    match found {
        Some(found) => Ok(found),
        None => bail!("the order does not come to this position: {}", source.extent()),
    }
}

fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
