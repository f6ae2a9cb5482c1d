//! `ordo export`: what final-committed transactions have changed, in their order, without a gap.
//!
//! # What a change is
//!
//! One line for each transaction that wrote or removed user keys: a command, a script and a MULTI block are
//! one each, also over several partitions. It has its place (the epoch, and which one of the epoch's
//! transactions with changes it is), the epoch's time, the name of its request, whether it removed all keys,
//! and for each key that it wrote what the key holds behind it, or why the key is gone. What expires and what
//! is evicted is removed by transactions like all others.
//!
//! # Where changes come from
//!
//! The servers' log has requests and not their effects. So an exporter executes the order again, as every
//! replica does ([`node::cluster::restore::Replay`]): it copies a checkpoint, follows the order behind it as
//! a backup does ([`crate::backup::nodes`]), and reads what each transaction has left from the versions that
//! the transaction wrote. The alternatives were:
//!
//! * *Servers keep the effects.* Each write would cost each replica another copy of the value, also where
//!   nobody asks, and a consumer that is slow would hold memory or disk of a server, or lose its place.
//! * *Servers execute the order a second time.* That needs twice the memory where memory is shortest.
//!
//! So an exporter needs as much memory as a server with all of the data, and one processor; it may run on
//! another machine. Servers read their log once more, and know nothing of consumers: one that is slow holds
//! nothing but its own exporter. How far back a consumer can go on is how far back the servers have a
//! checkpoint with the log behind it (ORDO.CHANGES tells), or as far as a backup goes.
//!
//! # Exactly once
//!
//! Each line has a [`cursor::Cursor`]. A consumer stores it together with what it made of the line, and gives
//! it to the next exporter, which executes up to there in silence. Executing again gives the same changes at
//! the same places, whoever does it. A file is its own consumer: its last whole line says where to go on. The
//! cursor has the order's digest, so a database with another past is noticed and not mixed in.
//!
//! # What bounds memory
//!
//! The database, at most one answer of each server, and one epoch's changes. A value is shared with the
//! database until its line is made, and one that is too large is not told ([`lines::Lines`]).

mod cursor;
mod follow;
pub mod lines;
mod output;

use crate::backup::chains::chains;
use crate::backup::objects::Objects;
use crate::nodes::{Nodes, PASSWORD_VARIABLE};
use anyhow::{Context, Result, ensure};
use clap::Args;
use cursor::Origin;
use follow::{Gone, Wishes};
use lines::{Format, Lines};
use output::Output;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The exit code that says that what follows the consumer's place cannot be had any more.
const GONE: u8 = 3;

/// `ordo export`.
#[derive(Args)]
pub struct Export {
    #[command(flatten)]
    nodes: Nodes,
    /// Where the lines go: '-' for standard output, or file:///path, to whose end they are appended. A file
    /// that has lines goes on where they end, whatever --from says.
    #[arg(long, value_name = "URL", default_value = "-")]
    to: String,
    /// Where the changes begin: 'start' tells all keys first, 'now' none; or the "cursor" of the last line
    /// that the consumer has.
    #[arg(long, value_name = "PLACE", default_value = "now")]
    from: Origin,
    /// A backup of the database, made by 'ordo backup': file:///directory or s3://bucket/prefix. What the
    /// servers' logs no longer have behind a cursor comes from there.
    #[arg(long, value_name = "URL")]
    backup: Option<String>,
    /// In which form a line says it.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
    /// Ends once the changes up to now are told. Without it, they are followed until the process is stopped.
    #[arg(long)]
    once: bool,
    /// After how many seconds without a change a line tells how far the order is, so that a consumer's place
    /// does not grow old.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    mark_every: f64,
    /// The values of entries that take more memory are left out.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    max_value_bytes: usize,
    /// What CloudEvents names as the source. Without it, '/ordo/', and the cluster's name and number.
    #[arg(long, value_name = "URI")]
    source: Option<String>,
}

/// Runs `ordo export`. The exit code tells a supervisor whether trying again is of use.
pub fn run(export: Export) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let mut output = Output::open(&export.to)?;
    let origin = output.resume(export.format)?.unwrap_or(export.from);
    let mark_every = Duration::try_from_secs_f64(export.mark_every)
        .with_context(|| format!("--mark-every is no time: {}", export.mark_every))?;
    if let Some(url) = &export.backup {
        let objects = Objects::open(url, None)?;
        ensure!(
            !chains(&objects.list()?).is_empty(),
            "{url} has no backup: make one with 'ordo backup --to {url}', or leave --backup out"
        );
    }
    let wishes = Wishes {
        addresses: export.nodes.address.clone(),
        access: export.nodes.access(std::env::var(PASSWORD_VARIABLE).ok())?,
        backup: export.backup,
        once: export.once,
        mark_every,
        stop,
    };
    let lines = Lines {
        format: export.format,
        source: export.source.unwrap_or_default(),
        value_bytes_max: export.max_value_bytes,
    };
    match follow::run(origin, &wishes, lines, &mut output) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.is::<Gone>() => {
            eprintln!("ordo: {error:#}");
            Ok(ExitCode::from(GONE))
        }
        Err(error) => Err(error),
    }
}
