//! From files to a running node: the newest valid checkpoint, then the log behind it.

use crate::checkpoint;
use crate::cluster;
use crate::machine::Node;
use crate::options::NodeOptions;
use crate::session;
use execute::{Budget, Committed, Effects, Engine, Progress, WorkerId};
use order::skip::{Skips, Standing, name_of};
use order::{Disk, Log, LogOptions, OpenError, Tail};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use store::checkpoint::Header;
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, Position, Registry, Request, RequestName};

/// Replay runs at most so many transactions ahead of their final commits.
const AHEAD_MAX: u64 = 4096;
/// Between two words on the progress of loading so many records go by.
const TOLD_EVERY: u64 = 4096;

/// What recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The position of the checkpoint that was loaded; [`Position::NONE`] if there was none.
    pub checkpoint: Position,
    /// Records that were loaded from it.
    pub records: u64,
    /// Transactions that were replayed from the log.
    pub replayed: u64,
    /// The last position.
    pub last: Position,
    /// Bytes of a torn tail that were cut off the log.
    pub cut_bytes: u64,
    /// How long it took. Filled in by the driver, whose clock it is.
    pub elapsed_ms: u64,
    /// What an operator should know: checkpoints that were skipped, a tail that was cut.
    pub warnings: Vec<String>,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.checkpoint == Position::NONE && self.replayed == 0 {
            return write!(f, "the database is empty");
        }
        if self.checkpoint != Position::NONE {
            write!(
                f,
                "loaded {} records from the checkpoint at position {}, ",
                self.records, self.checkpoint
            )?;
        }
        write!(
            f,
            "replayed {} transactions up to position {} in {} ms",
            self.replayed, self.last, self.elapsed_ms
        )
    }
}

/// How far recovery is. Neither number ever falls, unless a checkpoint turns out to be damaged and an older
/// one is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// Records that were loaded from the checkpoint.
    pub records: u64,
    /// Transactions of the log that were replayed, as far as the engine has got.
    pub replayed: u64,
}

impl fmt::Display for RecoveryProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecoveryProgress { records, replayed } = self;
        match replayed {
            0 => write!(f, "{records} records of the checkpoint so far"),
            _ => write!(
                f,
                "{records} records of the checkpoint, and {replayed} transactions of the log so far"
            ),
        }
    }
}

/// Why a node cannot start from the files in its directory.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The directory is that of a node of a cluster, whose checkpoints are not read here.
    #[error(
        "{name} is of a node of a cluster, and a server that stands alone would start without its data: \
         nothing was changed. Start the node as before (--cluster and --node), or this server in a \
         directory of its own (--dir)"
    )]
    OfCluster {
        /// A file that says so.
        name: String,
    },
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The disk refused.
    #[error(
        "{action} failed: {cause}: check that the directory exists and belongs to the user who runs this"
    )]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the disk said.
        cause: io::Error,
    },
    /// A checkpoint is damaged and the log does not reach as far as it did.
    #[error(
        "the checkpoint at position {checkpoint} is damaged ({problem}), and the log ends at position \
         {log}, before it: restore that checkpoint-*.ordo file or the missing log-*.ordo files from a \
         backup; or, to give up every write after position {log}, move the checkpoint file out of the \
         directory"
    )]
    CheckpointLost {
        /// The damaged checkpoint's position.
        checkpoint: Position,
        /// What is wrong with it.
        problem: String,
        /// Where the log ends.
        log: Position,
    },
    /// The checkpoint and the log tell different stories.
    #[error(
        "the checkpoint at position {checkpoint} was not made from this log: their digests differ at epoch \
         {epoch}. Files of two databases are mixed in one directory: restore both from the same backup"
    )]
    Foreign {
        /// The checkpoint's position.
        checkpoint: Position,
        /// Where they differ.
        epoch: u64,
    },
    /// The engine did not get through the log.
    #[error(
        "replay stopped after position {reached} of {wanted}: a bug in engine '{engine}', please report it"
    )]
    Stalled {
        /// The last final-committed position.
        reached: Position,
        /// The last position of the log.
        wanted: Position,
        /// The engine.
        engine: &'static str,
    },
    /// A request is to be skipped that was executed.
    #[error("{}", skips_too_late(.0))]
    SkipsTooLate(RequestName),
    /// 2^24 processes have written to this log.
    #[error(
        "this log has seen {} starts and cannot name another: write its data to a new directory",
        session::BOOT_MAX
    )]
    BootsExhausted,
}

/// Why a request cannot be skipped any more.
pub(crate) fn skips_too_late(name: &RequestName) -> String {
    format!(
        "request {name} cannot be skipped: the checkpoint in this directory was made behind it, so this \
         node has executed it. Nothing was changed. Start without it (leave --skip out); a request that \
         ends the process that executes it is behind the newest checkpoint, and 'ordo admin requests' \
         lists those. If other nodes of the cluster skip it, this node must be replaced by a new one"
    )
}

/// A node that is ready to be driven, with its log.
pub struct Recovered<D: Disk> {
    /// The node.
    pub node: Node,
    /// Its engine.
    pub engine: Arc<dyn Engine>,
    /// Its log.
    pub log: Log<D>,
    /// What was found.
    pub report: RecoveryReport,
}

/// What a node goes on with.
pub(crate) struct Found {
    /// Where the log ends.
    pub tail: Tail,
    /// The boot id of this process's sessions.
    pub boot: u32,
    /// The log behind the newest checkpoint.
    pub log_bytes: u64,
    /// The kept checkpoints, oldest first.
    pub checkpoints: VecDeque<Position>,
    /// The size of the newest; 0 without one.
    pub checkpoint_bytes: u64,
}

/// Starts a node from the files on a disk, or a new one on an empty disk.
///
/// `make_engine` makes an empty engine; it is called again if a damaged checkpoint was half loaded.
/// `log_boot_id` is a number that clients cannot guess and that differs at every start. The calling thread
/// replays as every worker in turn, and calls `tell` with its progress every few thousand records and
/// transactions.
pub fn recover<D: Disk>(
    disk: &Arc<D>,
    options: NodeOptions,
    segment_bytes: u64,
    log_boot_id: u64,
    registry: &Registry,
    make_engine: &dyn Fn() -> Arc<dyn Engine>,
    tell: &mut dyn FnMut(RecoveryProgress),
) -> Result<Recovered<D>, RecoverError> {
    let io = |action| move |cause| RecoverError::Io { action, cause };
    // Before anything is made: the log would be an empty one.
    let names = disk.list().map_err(io("listing the directory"))?;
    if let Some(name) = names.into_iter().find(|name| cluster::checkpoint::is_name(name)) {
        return Err(RecoverError::OfCluster { name });
    }
    let positions = checkpoint::list(&**disk).map_err(io("listing the directory"))?;
    let mut report = RecoveryReport::default();
    let mut damaged: Vec<(Position, String)> = Vec::new();
    let mut loaded: Option<(Arc<dyn Engine>, Header)> = None;
    for &position in &positions {
        let engine = make_engine();
        let mut records = 0;
        match checkpoint::read(&**disk, position, |image| {
            records += 1;
            engine.view().load(image);
            if records % TOLD_EVERY == 0 {
                tell(RecoveryProgress { records, replayed: 0 });
            }
        }) {
            Ok(header) => {
                engine.view().loaded(header.position, header.time_ms, &header.clears);
                report.records = records;
                report.checkpoint = position;
                loaded = Some((engine, header));
                break;
            }
            Err(error) => damaged.push((position, error.to_string())),
        }
    }
    let (engine, header) = loaded.unwrap_or_else(|| (make_engine(), Header::default()));

    let tail = Tail {
        epoch: header.epoch,
        next: header.position.next(),
        time_ms: header.time_ms,
        digest: header.digest,
    };
    // A checkpoint may end within its epoch: what stands there is looked at when it is replayed.
    let before = Epoch(header.epoch.0.saturating_sub(1));
    if let Some(name) = options.skips.too_late(before) {
        return Err(RecoverError::SkipsTooLate(name));
    }
    let skips = options.skips.clone();
    let mut replay = Replay {
        skips: &skips,
        skipped: Vec::new(),
        too_late: None,
        engine: &engine,
        header: &header,
        boot: header.boot,
        replayed: 0,
        foreign: None,
        records: report.records,
        tell,
    };
    let log_options = LogOptions { segment_bytes, boot_id: log_boot_id, checkpoint: tail };
    let checkpoint_bytes = match report.checkpoint {
        Position::NONE => 0,
        position => checkpoint::file_bytes(&**disk, &checkpoint::file_name(position))
            .map_err(io("reading the size of a checkpoint"))?,
    };
    let (log, found) = Log::open(disk.clone(), log_options, registry, &mut |batch| replay.batch(batch))?;
    let Replay { boot, replayed, foreign, skipped, too_late, .. } = replay;
    if let Some(name) = too_late {
        return Err(RecoverError::SkipsTooLate(name));
    }
    let tail = log.tail();
    if let Some(epoch) = foreign {
        return Err(RecoverError::Foreign { checkpoint: header.position, epoch });
    }
    if let Some((checkpoint, problem)) = damaged.first()
        && tail.last() < *checkpoint
    {
        return Err(RecoverError::CheckpointLost {
            checkpoint: *checkpoint,
            problem: problem.clone(),
            log: tail.last(),
        });
    }
    run_until(&engine, tail.last());
    let reached = engine.view().final_position();
    if reached != tail.last() {
        return Err(RecoverError::Stalled { reached, wanted: tail.last(), engine: engine.name() });
    }
    let used = u64::from(!is_active(Mutant::RepeatSessions));
    let boot = u32::try_from(boot + used).ok().filter(|&boot| boot <= session::BOOT_MAX);
    let boot = boot.ok_or(RecoverError::BootsExhausted)?;

    report.replayed = replayed;
    for (name, standing) in skips.iter() {
        match skipped.iter().find(|(skipped, _)| *skipped == name) {
            Some((_, request)) => {
                report.warnings.push(format!("skipped request {name}, which was not executed: {request}"))
            }
            None if standing == Standing::New => report
                .warnings
                .push(format!("request {name} was to be skipped, and the log has no such request")),
            None => {}
        }
    }
    report.last = reached;
    if let Some(cut) = &found.cut {
        report.cut_bytes = cut.bytes;
        report.warnings.push(found.to_string());
    }
    if let Some(last) = found.ended_before_checkpoint {
        report
            .warnings
            .push(format!("the log ended at position {last}, before the checkpoint: it goes on behind it"));
    }
    for (position, problem) in &damaged {
        // Under its own name it would count as one of the two that are kept.
        let name = checkpoint::file_name(*position);
        let aside = format!("damaged-{name}");
        report
            .warnings
            .push(format!("skipped {name} ({problem}); renamed to {aside}: the older files were enough"));
        disk.rename(&name, &aside).map_err(io("renaming a damaged checkpoint"))?;
    }
    checkpoint::prune(&**disk).map_err(io("removing old checkpoints"))?;

    let mut checkpoints: VecDeque<Position> =
        positions.into_iter().filter(|&position| position <= header.position).collect();
    checkpoints.truncate(checkpoint::KEPT);
    checkpoints.make_contiguous().reverse();
    let found = Found { tail, boot, log_bytes: found.bytes, checkpoints, checkpoint_bytes };
    let node = Node::new(engine.clone(), options, found);
    Ok(Recovered { node, engine, log, report })
}

/// A request in a line of the log. A node does not know which words of it are secrets, so the line has none.
fn described(request: &Request) -> String {
    let bytes: usize = request.args.iter().map(|word| word.len()).sum();
    let (name, words) = (request.procedure.name(), request.args.len());
    format!("{name} ({words} words, {bytes} bytes)")
}

struct Replay<'a> {
    skips: &'a Skips,
    /// What was skipped, and what it would have done.
    skipped: Vec<(RequestName, String)>,
    /// What was to be skipped, and is behind the checkpoint.
    too_late: Option<RequestName>,
    engine: &'a Arc<dyn Engine>,
    header: &'a Header,
    /// The largest boot id that was met.
    boot: u64,
    replayed: u64,
    /// The epoch at which the log's digest differs from the checkpoint's.
    foreign: Option<u64>,
    /// What was loaded before.
    records: u64,
    tell: &'a mut dyn FnMut(RecoveryProgress),
}

impl Replay<'_> {
    fn batch(&mut self, batch: order::Batch) {
        if batch.epoch == self.header.epoch && batch.digest != self.header.digest {
            self.foreign.get_or_insert(batch.epoch.0);
        }
        // The checkpoint may end within the first batch.
        let done =
            (self.header.position.next().0.saturating_sub(batch.first.0) as usize).min(batch.requests.len());
        let done = if is_active(Mutant::ReplayWholeBatch) && done < batch.requests.len() { 0 } else { done };
        let mut requests = batch.requests;
        let is_new = |name: RequestName| {
            let mut all = self.skips.iter();
            all.any(|known| known == (name, Standing::New))
        };
        let executed = requests.drain(..done);
        let mut executed = executed.map(|request| name_of(batch.epoch, &request));
        self.too_late = self.too_late.or(executed.find(|&name| is_new(name)));
        drop(executed);
        for request in &mut requests {
            if self.skips.has(batch.epoch, request) {
                let name = name_of(batch.epoch, request);
                self.skipped.push((name, described(request)));
                *request = self.skips.replace(batch.epoch, request);
            }
        }
        if self.too_late.is_some() {
            return;
        }
        if requests.is_empty() || self.foreign.is_some() {
            return;
        }
        let boots = requests.iter().map(|request| u64::from(session::boot_and_port(request.id.session).0));
        self.boot = self.boot.max(boots.max().unwrap_or(0));
        self.replayed += requests.len() as u64;
        let batch = execute::Batch {
            epoch: batch.epoch,
            time_ms: batch.time_ms,
            first: batch.first.advanced(done as u64),
            requests,
            groups: Vec::new(),
            digest: batch.digest,
        };
        let last = batch.end().prev();
        self.engine.deliver(batch);
        self.engine.confirm(last);
        if last.0 - self.engine.view().final_position().0 > AHEAD_MAX {
            run_until(self.engine, last);
            (self.tell)(RecoveryProgress { records: self.records, replayed: self.replayed });
        }
    }
}

/// Steps the engine until `last` has final-committed, or until it has nothing to do.
fn run_until(engine: &Arc<dyn Engine>, last: Position) {
    // Every worker has its turn: in some engines they have different tasks.
    let mut worked = true;
    while engine.view().final_position() < last && std::mem::take(&mut worked) {
        for worker in 0..engine.workers() {
            while engine.step(WorkerId(worker), Budget::UNBOUNDED, &mut Discard) == Progress::Worked {
                worked = true;
            }
        }
    }
}

/// Nobody waits for the replies of replayed transactions.
struct Discard;

impl Effects for Discard {
    fn committed(&mut self, _: Committed) {}
}
