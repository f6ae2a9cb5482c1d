//! `ordo import`: the data of a Redis or a Valkey, out of a snapshot file or out of the running server.
//!
//! # Out of a file
//!
//! The file is read twice. The first pass writes nothing: it finds damage and whatever cannot come along, so
//! that an import fails before it has begun. The second pass sends each value to the target ([`load`]): as
//! RESTORE with the bytes of the file, or, where a value is large, piece by piece. A third pass compares
//! ([`compare`]).
//!
//! # Out of a running server
//!
//! The process is a replica of the source: it asks for a snapshot and for the commands behind it
//! ([`source`]). What the source sends goes through a queue on the disk ([`spool`]), so that a source that
//! writes faster than the snapshot is loaded need not keep what its replica has not taken yet. Commands are
//! translated ([`commands`]) and sent to the target in transactions that hold whole transactions of the
//! source ([`follow`]).
//!
//! **Nothing is lost and nothing is doubled.** Each transaction also writes the *progress record*, a key of
//! the target that tells up to which offset of the source everything is there. A transaction is sent behind
//! WATCH of that key, when the key was seen to be what this process wrote last. So a transaction whose reply
//! was lost, and which may still be on its way, is either there, or can never be there: after a link to the
//! target is lost, the record tells what to send again. A link to the source that is cut goes on by a partial
//! resynchronization at the byte behind the last one.
//!
//! **Keys that expire.** The source says when a key has expired, by DEL. If the target let keys expire
//! by itself while it is behind, it would lose a key that the source has prolonged meanwhile. So until the
//! cut-over every date is [`DELAY_MS`] later than at the source, and is put right after it ([`cut_over`]).
//!
//! # The cut-over
//!
//! ```text
//! CLIENT PAUSE WRITE ► the source's offset ► wait until it is applied ► compare ► "switch now" ► dates
//! ```

mod commands;
mod compare;
mod cut_over;
mod follow;
mod load;
mod snapshot;
mod source;
mod spool;
mod target;

use crate::nodes::{Nodes, PASSWORD_VARIABLE, client_tls};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use server::client::Access;
use signal_hook::consts::{SIGINT, SIGTERM};
use snapshot::{SnapshotFile, Tally};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use target::Target;

/// The variable that holds the source's password.
const SOURCE_PASSWORD_VARIABLE: &str = "ORDO_SOURCE_AUTH";
/// How much later keys expire at the target until the cut-over, in milliseconds: 142,000 years, so that no
/// date of an application is taken for a delayed one. The sum stays below 2^53, up to which Lua's numbers are
/// exact.
const DELAY_MS: u64 = 1 << 52;

/// How much is compared at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Verify {
    /// Nothing.
    None,
    /// How many keys there are.
    Counts,
    /// That, and the values of about a thousand keys.
    Sample,
    /// That, and all values.
    Full,
}

/// `ordo import`.
#[derive(Args)]
pub struct Import {
    /// A snapshot file, or redis://host:port of a running Redis or Valkey, which is then followed.
    #[arg(value_name = "FILE|URL")]
    source: String,
    #[command(flatten)]
    nodes: Nodes,
    /// Reads the file, and tells what is in it and what cannot come along. Writes nothing.
    #[arg(long, conflicts_with_all = ["replace", "merge"])]
    check: bool,
    /// Deletes all that the target has, first.
    #[arg(long, conflicts_with = "merge")]
    replace: bool,
    /// Keeps what the target has, but for keys that the source has, too: these are replaced.
    #[arg(long)]
    merge: bool,
    /// Which database of the source is imported, if it has several: Ordo has one.
    #[arg(long, value_name = "NUMBER")]
    database: Option<u64>,
    /// Leaves values of modules behind, which are refused otherwise.
    #[arg(long)]
    skip_modules: bool,
    /// Lets fields of hashes live that would expire by themselves, which are refused otherwise: Ordo has no
    /// such fields.
    #[arg(long)]
    keep_expiring_fields: bool,
    /// What is compared at the end.
    #[arg(long, value_enum, default_value_t = Verify::Sample)]
    verify: Verify,
    /// How many connections load a snapshot.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// How many seconds pass between two lines about the progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    tell_every: f64,
    #[command(flatten)]
    live: Live,
}

/// What concerns a running source only.
#[derive(Args)]
struct Live {
    /// The user at the source whose password is given, if it is not `default`.
    #[arg(long)]
    source_user: Option<String>,
    /// The source's password. Without it the variable ORDO_SOURCE_AUTH is taken, which other users of the
    /// machine cannot see.
    #[arg(long)]
    source_password: Option<String>,
    /// The file of the certificate of the CA that signs the source's: for rediss://.
    #[arg(long, value_name = "FILE")]
    source_cacert: Option<PathBuf>,
    /// The file of the certificate to show to the source.
    #[arg(long, value_name = "FILE", requires = "source_key")]
    source_cert: Option<PathBuf>,
    /// The file of its private key.
    #[arg(long, value_name = "FILE", requires = "source_cert")]
    source_key: Option<PathBuf>,
    /// Goes on with an import that was stopped, without another snapshot.
    #[arg(long, conflicts_with_all = ["replace", "merge"])]
    resume: bool,
    /// Cuts over as soon as the target has caught up. Without it, the line "cut-over" on standard input says
    /// when.
    #[arg(long)]
    cut_over: bool,
    /// How many seconds the source keeps writers waiting from the cut-over on: until then clients must have
    /// been switched.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pause: u64,
    /// Does not pause the source's writers at the cut-over: somebody has stopped them.
    #[arg(long)]
    no_pause: bool,
    /// Where what the source has sent waits to be applied.
    #[arg(long, value_name = "DIR")]
    spool_dir: Option<PathBuf>,
}

/// What all parts of an import need to know.
struct Plan {
    import: Import,
    source: Source,
    /// Where the target's nodes answer, and what it takes to be let in.
    addresses: Vec<String>,
    access: Access,
    tell_every: Duration,
    /// Somebody wants the end.
    stop: Arc<AtomicBool>,
}

enum Source {
    File(PathBuf),
    Server { address: String, access: Access },
}

impl Plan {
    /// Whether keys may be there already.
    fn merges(&self) -> bool {
        self.import.merge
    }

    fn stopped(&self) -> bool {
        self.stop.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The time of this machine, in milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Runs `ordo import`.
pub fn run(import: Import) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second one ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let tell_every = Duration::try_from_secs_f64(import.tell_every);
    let plan = Plan {
        source: source_of(&import)?,
        addresses: import.nodes.address.clone(),
        access: import.nodes.access(std::env::var(PASSWORD_VARIABLE).ok())?,
        tell_every: tell_every.with_context(|| format!("--tell-every is no time: {}", import.tell_every))?,
        stop,
        import,
    };
    match &plan.source {
        Source::File(path) => run_file(&plan, path),
        Source::Server { address, access } => follow::run(&plan, address, access),
    }
}

fn source_of(import: &Import) -> Result<Source> {
    let (address, is_secured) = match import.source.split_once("://") {
        None => {
            if import.live.resume || import.live.cut_over {
                bail!("--resume and --cut-over are for running servers, and {} is a file", import.source);
            }
            return Ok(Source::File(PathBuf::from(&import.source)));
        }
        Some(("redis", address)) => (address.trim_end_matches('/'), false),
        Some(("rediss", address)) => (address.trim_end_matches('/'), true),
        Some((scheme, _)) => {
            bail!("{scheme}:// is no source: name a file, redis://host:port or rediss://host:port")
        }
    };
    if address.contains('@') {
        // The error does not repeat the password.
        bail!(
            "a URL with a user or a password is not taken: name redis://host:port, and give --source-user, \
             and the password in {SOURCE_PASSWORD_VARIABLE}"
        );
    }
    if import.check {
        bail!("--check is for files, and {address} is a running server");
    }
    let live = &import.live;
    let password = live.source_password.clone().or_else(|| std::env::var(SOURCE_PASSWORD_VARIABLE).ok());
    if live.source_user.is_some() && password.is_none() {
        bail!(
            "--source-user needs a password, in --source-password or the variable {SOURCE_PASSWORD_VARIABLE}"
        );
    }
    let tls = match (is_secured, &live.source_cacert) {
        (false, None) => None,
        (false, Some(_)) => bail!("--source-cacert is for rediss://, and the source is redis://"),
        (true, None) => {
            bail!("rediss:// needs --source-cacert, the certificate of the CA that signs the source's")
        }
        (true, Some(authority)) => {
            Some(client_tls(authority, live.source_cert.as_deref(), live.source_key.as_deref())?)
        }
    };
    let access = Access { user: live.source_user.clone(), password, tls };
    Ok(Source::Server { address: address.to_owned(), access })
}

fn run_file(plan: &Plan, path: &Path) -> Result<()> {
    let file = SnapshotFile::open(path)?;
    let tally = snapshot::examine(&file, plan)?;
    eprintln!("{}: {}", path.display(), tally);
    tally.check(plan)?;
    if plan.import.check {
        return Ok(());
    }
    let database = tally.database(plan)?;
    let mut target = Target::open(plan)?;
    target.make_ready(plan)?;
    let loaded = load::file(&file, plan, database)?;
    eprintln!("loaded: {loaded}");
    compare::with_file(&file, plan, database, &loaded, &mut target)
}

/// What an import refuses, unless it is told otherwise.
fn refuse(tally: &Tally, plan: &Plan) -> Result<()> {
    if let Some(module) = &tally.module
        && !plan.import.skip_modules
    {
        bail!(
            "{} of the keys have values of modules, which Ordo has not (such as {module}): --skip-modules \
             leaves them behind",
            tally.modules
        );
    }
    if let Some(key) = &tally.expiring_field
        && !plan.import.keep_expiring_fields
    {
        bail!(
            "{} fields of hashes expire by themselves (such as fields of {key}), which Ordo's do not: \
             --keep-expiring-fields lets them live, or keep what expires in a key of its own",
            tally.expiring_fields
        );
    }
    Ok(())
}
