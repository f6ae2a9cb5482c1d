//! The state machine.

use crate::checkpoint::{CheckpointFailed, CheckpointJob, CheckpointWritten, KEPT};
use crate::clock::{BOUND_MS, Clock, ClockStatus, Sight};
use crate::expiry::{ExpiryScan, PAGE_ENTRIES};
use crate::options::{FsyncPolicy, NodeOptions};
use crate::recover::Found;
use crate::schedule::Schedule;
use execute::Engine;
use order::{BatchTooLarge, Sequencer, Tail};
use std::collections::VecDeque;
use std::sync::Arc;
use store::checkpoint::Header;
use txn::Key;
use txn::clock::{self, CorrectClock};
use txn::mutant::{Mutant, is_active};
use txn::{Args, Outcome, Position, Reply, Request, RequestId, SessionId, Space, Stop};

/// How often `everysec` syncs, and how long after the last sync an idle log gets its marker.
const SYNC_INTERVAL_MS: u64 = 1000;
/// How long the node waits before it tries a failed write, or a failed checkpoint, again.
const RETRY_MS: u64 = 1000;

/// What happens to a node, apart from requests.
#[derive(Debug)]
pub enum Event {
    /// What [`Effects::records`] held is in the log.
    LogWritten,
    /// What [`Effects::records`] held (or a marker) could not be written; nothing of it is in the log.
    LogWriteFailed(String),
    /// Everything up to this position is on the disk.
    LogSynced(Position),
    /// A sync failed: nobody knows what is on the disk beyond what was synced before.
    LogSyncFailed(String),
    /// Time passes. Expected every 100 ms or so; the first tick comes before any request.
    Tick {
        /// What this machine's clock shows, in milliseconds since 1970.
        wall_ms: u64,
    },
    /// A checkpoint is wanted now.
    CheckpointWanted,
    /// The checkpoint of [`Effects::checkpoint`] is on the disk.
    CheckpointWritten(CheckpointWritten),
    /// It could not be written.
    CheckpointFailed(CheckpointFailed),
    /// Admit nothing more.
    Stop,
}

/// What a node wants done. Reused between calls: the driver takes out what it does.
#[derive(Default)]
pub struct Effects {
    /// Records to append to the log, with one write, if not empty. The driver does so, clears them, and
    /// reports [`Event::LogWritten`] or [`Event::LogWriteFailed`] *before it passes anything else* to the
    /// node.
    pub records: Vec<u8>,
    /// Start a sync of everything that was written.
    pub sync: bool,
    /// Write a marker if the log has use for one.
    pub marker: bool,
    /// Write a checkpoint, on a thread that may wait.
    pub checkpoint: Option<CheckpointJob>,
    /// Remove the log before this position.
    pub truncate: Option<Position>,
    /// Requests that were refused after they had been taken, with their reasons (`MISCONF ...`).
    pub refused: Vec<(RequestId, Outcome)>,
    /// Something became final: stepping the engine may final-commit now.
    pub confirmed: bool,
    /// The internal request was submitted: somebody should step the engine.
    pub delivered: bool,
    /// Writes are admitted again, after they had been refused.
    pub recovered: bool,
    /// What an operator should read.
    pub warnings: Vec<String>,
}

/// Why requests were not taken. They stay with the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As much is on its way as the limits allow: submit again when something was answered.
    #[error("too much is on its way: wait for replies and submit again")]
    Busy,
    /// The log cannot be written. The text is an error reply that says why and what to do (`MISCONF ...`).
    #[error("{0}")]
    ReadOnly(Arc<str>),
    /// The node is shutting down.
    #[error("the server is shutting down: connect again when it is back")]
    ShuttingDown,
}

impl Refused {
    /// The error reply that a client gets.
    pub fn reply(&self) -> Reply {
        Reply::error_owned(match self {
            Refused::ReadOnly(text) => text.to_string(),
            other => format!("ERR {other}"),
        })
    }
}

/// Whether writes are taken.
///
/// ```text
///          write failed                 sync failed
///   Ready ──────────────► Full      Ready, Full ────────► Poisoned (until a restart)
///     ▲                    │
///     └── a write went well ┘       any ── Stop ──► Stopping
/// ```
#[derive(Clone, Debug)]
enum Health {
    Ready,
    Full { text: Arc<str>, retry_at_ms: u64 },
    Poisoned { text: Arc<str> },
    Stopping,
}

/// A delivered batch that has not wholly final-committed.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    tail: Tail,
    bytes: u64,
}

/// Counters and places of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The last position that was given out.
    pub delivered: Position,
    /// The last position in the log.
    pub written: Position,
    /// The last position that is known to be on the disk.
    pub synced: Position,
    /// The last position that is final.
    pub confirmed: Position,
    /// The last final-committed position.
    pub final_committed: Position,
    /// Bytes of log that hold what has not final-committed.
    pub in_flight_bytes: u64,
    /// Batches that were made since the start.
    pub batches: u64,
    /// Syncs that succeeded since the start.
    pub syncs: u64,
    /// Log writes that failed since the start.
    pub write_failures: u64,
    /// Syncs that failed since the start.
    pub sync_failures: u64,
    /// Bytes of log since the last checkpoint.
    pub log_bytes_since_checkpoint: u64,
    /// Whether a checkpoint is being written.
    pub checkpoint_in_progress: bool,
    /// The newest checkpoint that was written or loaded.
    pub last_checkpoint: Position,
    /// When it was written, in milliseconds since 1970; 0 if not by this process.
    pub last_checkpoint_at_ms: u64,
    /// Checkpoints that were written since the start.
    pub checkpoints: u64,
    /// Why the last attempt to write a checkpoint failed.
    pub checkpoint_error: Option<String>,
    /// Why writes are refused, if they are.
    pub refused: Option<Arc<str>>,
}

/// One replica: the order, the log's state and the engine in step. See the crate's head.
pub struct Node {
    engine: Arc<dyn Engine>,
    sequencer: Sequencer,
    options: NodeOptions,
    health: Health,
    /// The boot id of this process's sessions.
    boot: u32,

    // final-committed <= confirmed <= written <= delivered (the sequencer's last), synced <= written
    written: Position,
    synced: Position,
    confirmed: Position,
    /// Where the log ended before the records that are being written.
    writing_from: Option<Tail>,
    syncing: bool,
    last_sync_ms: u64,
    clock: Clock,
    marker_due: bool,

    /// The ids of `confirmed + 1 ..= delivered`.
    unconfirmed: VecDeque<RequestId>,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: u64,
    /// The last batch that final-committed wholly.
    passed: Tail,

    schedule: Schedule,
    /// When the last checkpoint of this process began; 0, long ago, before the first.
    checkpoint_began_ms: u64,
    log_bytes_since_checkpoint: u64,
    /// Log bytes before the checkpoint that is being written.
    checkpointing: Option<u64>,
    checkpoint_retry_at_ms: u64,
    /// The kept checkpoints, oldest first.
    checkpoints: VecDeque<Position>,

    expiry: ExpiryScan,
    /// The last internal request: the next waits until it has final-committed.
    last_internal: Position,
    counters: Status,
}

impl Node {
    /// A node whose engine holds everything up to the log's tail, all of it synced.
    pub(crate) fn new(engine: Arc<dyn Engine>, options: NodeOptions, found: Found) -> Node {
        let Found { tail, boot, log_bytes, checkpoints, checkpoint_bytes } = found;
        let last = tail.last();
        let schedule = Schedule::new(options.checkpoint_bytes, checkpoint_bytes);
        Node {
            engine,
            sequencer: Sequencer::new(tail),
            options,
            health: Health::Ready,
            boot,
            written: last,
            synced: last,
            confirmed: last,
            writing_from: None,
            syncing: false,
            last_sync_ms: 0,
            clock: Clock::new(tail.time_ms, BOUND_MS),
            marker_due: false,
            unconfirmed: VecDeque::new(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            passed: tail,
            schedule,
            checkpoint_began_ms: 0,
            log_bytes_since_checkpoint: log_bytes,
            checkpointing: None,
            checkpoint_retry_at_ms: 0,
            checkpoints,
            expiry: ExpiryScan::default(),
            last_internal: Position::NONE,
            counters: Status::default(),
        }
    }

    /// The boot id of this process's sessions: one more than the newest that recovery found.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// Notes that a session of a later boot id may be logged from now on.
    pub fn raise_boot(&mut self, boot: u32) {
        self.boot = self.boot.max(boot);
    }

    /// Whether requests would be taken now.
    pub fn admission(&mut self) -> Result<(), Refused> {
        match &self.health {
            Health::Ready => {}
            Health::Full { text, .. } | Health::Poisoned { text } => {
                return Err(Refused::ReadOnly(text.clone()));
            }
            Health::Stopping => return Err(Refused::ShuttingDown),
        }
        // Before the first tick no time is known.
        if !self.clock.is_set() {
            return Err(Refused::Busy);
        }
        self.pass();
        let limits = self.options.limits;
        let in_flight = self.delivered().0 - self.passed.last().0;
        if in_flight >= limits.in_flight_requests_max || self.in_flight_bytes >= limits.in_flight_bytes_max {
            return Err(Refused::Busy);
        }
        Ok(())
    }

    /// Takes requests as one batch, in this order, and empties `requests`; on `Err` they stay with the
    /// caller.
    pub fn submit(
        &mut self,
        requests: &mut Vec<Arc<Request>>,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        self.admission()?;
        if !requests.is_empty() {
            self.order(std::mem::take(requests), now_ms, effects);
        }
        Ok(())
    }

    /// Brings the clock up to date.
    fn look_at_clock(&mut self, now_ms: u64, wall_ms: u64, effects: &mut Effects) {
        let view = self.engine.view();
        let snapshot = view.open();
        let read = view.read_at(&snapshot, &clock::offset_key());
        view.close(snapshot);
        let offset_ms = clock::offset_ms(read.entry.as_ref());
        let replays = view.final_position() < self.engine.status().confirmed;
        let wall_lead_ms = wall_ms.cast_signed().wrapping_sub(now_ms.cast_signed());
        let sight = Sight::alone(wall_lead_ms, replays);
        let news = self.clock.tick(now_ms, wall_ms, offset_ms, &sight);
        effects.warnings.extend(news);
    }

    /// Orders that the date is another one, where that is due.
    fn correct_clock(&mut self, now_ms: u64, effects: &mut Effects) {
        if let Some((before_ms, offset_ms)) = self.clock.take_correction()
            && self.admission().is_ok()
        {
            let sequence = self.sequencer.tail().next.0;
            let request = CorrectClock::request(sequence, before_ms, offset_ms);
            self.order(vec![Arc::new(request)], now_ms, effects);
            effects.delivered = true;
        }
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now_ms: u64, effects: &mut Effects) {
        match event {
            Event::LogWritten => self.log_written(now_ms, effects),
            Event::LogWriteFailed(error) => self.log_write_failed(&error, now_ms, effects),
            Event::LogSynced(position) => self.log_synced(position, now_ms, effects),
            Event::LogSyncFailed(error) => self.log_sync_failed(&error, effects),
            Event::Tick { wall_ms } => self.tick(now_ms, wall_ms, effects),
            Event::CheckpointWanted => self.start_checkpoint(now_ms, effects),
            Event::CheckpointWritten(written) => self.checkpoint_written(written, now_ms, effects),
            Event::CheckpointFailed(failed) => {
                self.log_bytes_since_checkpoint += self.checkpointing.take().unwrap_or(0);
                self.checkpoint_retry_at_ms = now_ms + 10 * RETRY_MS;
                effects.warnings.push(format!("{failed}; the older checkpoints and the log are untouched"));
                self.counters.checkpoint_error = Some(failed.to_string());
            }
            Event::Stop => {
                if !matches!(self.health, Health::Poisoned { .. }) {
                    self.health = Health::Stopping;
                    self.start_sync(effects);
                }
            }
        }
    }

    /// Whether everything that was taken has final-committed and is on the disk, or never will be.
    pub fn is_drained(&self) -> bool {
        match self.health {
            Health::Poisoned { .. } => true,
            _ => {
                self.engine.view().final_position() >= self.delivered()
                    && self.synced >= self.written
                    && self.checkpointing.is_none()
            }
        }
    }

    /// The epoch time, less the steady time that drivers tell: see [`crate::clock`].
    pub fn epoch_lead_ms(&self) -> i64 {
        self.clock.lead_ms()
    }

    /// What is known of this node's clock.
    pub fn clock(&self) -> ClockStatus {
        self.clock.status()
    }

    /// Counters and places.
    pub fn status(&self) -> Status {
        Status {
            delivered: self.delivered(),
            written: self.written,
            synced: self.synced,
            confirmed: self.confirmed,
            final_committed: self.engine.view().final_position(),
            in_flight_bytes: self.in_flight_bytes,
            log_bytes_since_checkpoint: self.log_bytes_since_checkpoint,
            checkpoint_in_progress: self.checkpointing.is_some(),
            last_checkpoint: self.checkpoints.back().copied().unwrap_or(Position::NONE),
            refused: match &self.health {
                Health::Full { text, .. } | Health::Poisoned { text } => Some(text.clone()),
                Health::Ready | Health::Stopping => None,
            },
            ..self.counters.clone()
        }
    }

    fn delivered(&self) -> Position {
        self.sequencer.tail().last()
    }

    /// Makes a batch, hands its record to the driver and the batch to the engine, which starts on it at once.
    fn order(&mut self, requests: Vec<Arc<Request>>, now_ms: u64, effects: &mut Effects) {
        debug_assert!(self.writing_from.is_none(), "a driver reports a write before it passes anything else");
        let before = self.sequencer.tail();
        let start = effects.records.len();
        let batch = match self.sequencer.sequence(requests, self.clock.stamp_ms(now_ms), &mut effects.records)
        {
            Ok(batch) => batch,
            Err(BatchTooLarge { requests, bytes }) => {
                let text =
                    format!("ERR a batch of {bytes} bytes is too large for the log: send smaller requests");
                let refusals = requests.iter().map(|request| (request.id, Err(Stop::abort(text.clone()))));
                effects.refused.extend(refusals);
                return;
            }
        };
        let bytes = (effects.records.len() - start) as u64;
        self.writing_from = Some(before);
        self.unconfirmed.extend(batch.requests.iter().map(|request| request.id));
        self.in_flight.push_back(InFlight { tail: batch.tail(), bytes });
        self.in_flight_bytes += bytes;
        self.log_bytes_since_checkpoint += bytes;
        self.counters.batches += 1;
        // An empty batch moves the log's clock only; engines know no batch without a position.
        if !batch.requests.is_empty() {
            self.engine.deliver(execute::Batch {
                epoch: batch.epoch,
                time_ms: batch.time_ms,
                first: batch.first,
                requests: batch.requests,
                groups: Vec::new(),
                digest: batch.digest,
            });
        }
    }

    fn log_written(&mut self, now_ms: u64, effects: &mut Effects) {
        self.writing_from = None;
        self.written = self.delivered();
        if matches!(self.health, Health::Full { .. }) {
            self.health = Health::Ready;
            effects.recovered = true;
            effects.warnings.push("the log can be written again: writes are taken".to_owned());
        }
        match self.options.fsync {
            FsyncPolicy::Always => {
                if is_active(Mutant::ConfirmBeforeSync) {
                    self.confirm(self.written, effects);
                }
                self.start_sync(effects);
            }
            FsyncPolicy::Everysec | FsyncPolicy::No => self.confirm(self.written, effects),
        }
        let since_ms = now_ms.saturating_sub(self.checkpoint_began_ms);
        if self.schedule.is_due(self.log_bytes_since_checkpoint, since_ms)
            && now_ms >= self.checkpoint_retry_at_ms
        {
            self.start_checkpoint(now_ms, effects);
        }
    }

    fn log_write_failed(&mut self, error: &str, now_ms: u64, effects: &mut Effects) {
        self.counters.write_failures += 1;
        let first_failure = !matches!(self.health, Health::Full { .. });
        let text = format!(
            "MISCONF the log cannot be written ({error}): this write was rolled back, and writes are \
             refused until there is space on the disk again; they resume by themselves then"
        );
        let text: Arc<str> = text.into();
        if let Some(before) = self.writing_from.take()
            && !is_active(Mutant::KeepUnwrittenBatch)
        {
            self.retract(before, &text, effects);
        }
        if matches!(self.health, Health::Ready | Health::Full { .. }) {
            self.health = Health::Full { text, retry_at_ms: now_ms + RETRY_MS };
        }
        if first_failure {
            effects.warnings.push(format!("the log cannot be written, writes are refused: {error}"));
        }
    }

    fn log_synced(&mut self, position: Position, now_ms: u64, effects: &mut Effects) {
        if matches!(self.health, Health::Poisoned { .. }) {
            return;
        }
        self.counters.syncs += 1;
        self.syncing = false;
        self.last_sync_ms = now_ms;
        self.synced = self.synced.max(position.min(self.written));
        if self.options.fsync == FsyncPolicy::Always {
            self.confirm(self.synced, effects);
        }
        self.marker_due = self.synced == self.written;
        if self.options.fsync == FsyncPolicy::Always || matches!(self.health, Health::Stopping) {
            self.start_sync(effects);
        }
    }

    fn log_sync_failed(&mut self, error: &str, effects: &mut Effects) {
        self.counters.sync_failures += 1;
        self.syncing = false;
        let text: Arc<str> = format!(
            "MISCONF the log could not be synced to the disk ({error}), so nobody knows what is on it: \
             writes are refused until the server is restarted; check the disk first"
        )
        .into();
        let unknown: Arc<str> = format!(
            "MISCONF the log could not be synced to the disk ({error}): the outcome of this write is \
             unknown, it may or may not be there after the restart that is needed now"
        )
        .into();
        self.writing_from = None;
        let kept = self.in_flight.iter().rev().find(|batch| batch.tail.last() <= self.confirmed);
        let kept = kept.map_or(self.passed, |batch| batch.tail);
        self.retract(kept, &unknown, effects);
        if !matches!(self.health, Health::Poisoned { .. }) {
            effects
                .warnings
                .push(format!("a sync of the log failed, writes are refused until a restart: {error}"));
            self.health = Health::Poisoned { text };
        }
    }

    fn tick(&mut self, now_ms: u64, wall_ms: u64, effects: &mut Effects) {
        self.look_at_clock(now_ms, wall_ms, effects);
        self.pass();
        match &mut self.health {
            Health::Ready => {}
            Health::Full { retry_at_ms, .. } => {
                if now_ms >= *retry_at_ms {
                    *retry_at_ms = now_ms + RETRY_MS;
                    self.order(Vec::new(), now_ms, effects);
                }
                return;
            }
            Health::Poisoned { .. } | Health::Stopping => return,
        }
        let since_sync_ms = now_ms.saturating_sub(self.last_sync_ms);
        if self.options.fsync != FsyncPolicy::No && since_sync_ms >= SYNC_INTERVAL_MS {
            self.start_sync(effects);
            if self.marker_due && self.synced == self.written {
                self.marker_due = false;
                effects.marker = true;
            }
        }
        self.correct_clock(now_ms, effects);
        self.expire(now_ms, effects);
    }

    /// Looks for expired entries and orders their removal.
    fn expire(&mut self, now_ms: u64, effects: &mut Effects) {
        if self.options.expire.is_none() && self.options.expire_system.is_none() {
            return;
        }
        if self.engine.view().final_position() < self.last_internal || self.admission().is_err() {
            return;
        }
        let look = self.expiry.look(self.engine.view(), self.clock.epoch_ms(now_ms));
        let procedure = match look.space {
            Space::User => self.options.expire.clone(),
            Space::System => self.options.expire_system.clone(),
        };
        let Some(procedure) = procedure.filter(|_| !look.expired.is_empty()) else {
            return;
        };
        let first = self.sequencer.tail().next.0;
        let removals = (first..).zip(look.expired.chunks(PAGE_ENTRIES));
        let requests = removals.map(|(sequence, expired)| {
            let id = RequestId { session: SessionId::INTERNAL, sequence, attempt: 0 };
            let args: Args = expired.iter().map(Key::to_blob).collect();
            Arc::new(Request::new(id, procedure.clone(), args))
        });
        let requests = requests.collect();
        self.order(requests, now_ms, effects);
        self.last_internal = self.delivered();
        effects.delivered = true;
    }

    fn start_sync(&mut self, effects: &mut Effects) {
        if !self.syncing && self.synced < self.written {
            self.syncing = true;
            effects.sync = true;
        }
    }

    fn confirm(&mut self, upto: Position, effects: &mut Effects) {
        if upto > self.confirmed {
            self.unconfirmed.drain(..(upto.0 - self.confirmed.0) as usize);
            self.confirmed = upto;
            self.engine.confirm(upto);
            effects.confirmed = true;
        }
    }

    /// Takes back every batch behind `kept`; their clients get `text`.
    fn retract(&mut self, kept: Tail, text: &Arc<str>, effects: &mut Effects) {
        while let Some(batch) = self.in_flight.pop_back_if(|batch| batch.tail.epoch > kept.epoch) {
            self.in_flight_bytes -= batch.bytes;
            self.log_bytes_since_checkpoint = self.log_bytes_since_checkpoint.saturating_sub(batch.bytes);
        }
        self.sequencer = Sequencer::new(kept);
        self.written = self.written.min(kept.last());
        let kept_ids = (kept.next.0 - self.confirmed.next().0) as usize;
        if kept_ids < self.unconfirmed.len() {
            self.engine.retract(kept.next);
            let refusals = self.unconfirmed.drain(kept_ids..);
            effects.refused.extend(refusals.map(|id| (id, Err(Stop::abort(text.to_string())))));
        }
    }

    /// Forgets batches that final-committed wholly.
    fn pass(&mut self) {
        let last = self.engine.view().final_position();
        while let Some(batch) = self.in_flight.front()
            && batch.tail.last() <= last
            && batch.tail.last() <= self.confirmed
        {
            self.in_flight_bytes -= batch.bytes;
            self.passed = batch.tail;
            self.in_flight.pop_front();
        }
    }

    fn start_checkpoint(&mut self, now_ms: u64, effects: &mut Effects) {
        if self.checkpointing.is_some() || matches!(self.health, Health::Poisoned { .. }) {
            return;
        }
        self.pass();
        let snapshot = self.engine.view().open();
        // The batch that the snapshot ends in: the last wholly passed one, or one that is on its way.
        let tail = if snapshot.position <= self.passed.last() {
            self.passed
        } else {
            let within = self.in_flight.iter().find(|batch| snapshot.position <= batch.tail.last());
            within.map_or(self.passed, |batch| batch.tail)
        };
        let header = Header {
            position: snapshot.position,
            epoch: tail.epoch,
            time_ms: tail.time_ms,
            digest: tail.digest,
            boot: u64::from(self.boot),
            clears: self.engine.view().clears_at(&snapshot),
        };
        self.checkpointing = Some(std::mem::take(&mut self.log_bytes_since_checkpoint));
        self.checkpoint_began_ms = now_ms;
        effects.checkpoint = Some(CheckpointJob::new(self.engine.clone(), snapshot, header));
    }

    fn checkpoint_written(&mut self, written: CheckpointWritten, now_ms: u64, effects: &mut Effects) {
        self.checkpointing = None;
        self.schedule.written(written.bytes);
        self.counters.checkpoints += 1;
        self.counters.checkpoint_error = None;
        self.counters.last_checkpoint_at_ms = self.clock.wall_ms(now_ms);
        if self.checkpoints.back() != Some(&written.position) {
            self.checkpoints.push_back(written.position);
        }
        while self.checkpoints.len() > KEPT {
            self.checkpoints.pop_front();
        }
        if let (KEPT, Some(oldest)) = (self.checkpoints.len(), self.checkpoints.front()) {
            effects.truncate = Some(oldest.next());
        }
        if is_active(Mutant::TruncateTooFar) {
            effects.truncate = Some(self.written);
        }
    }
}
