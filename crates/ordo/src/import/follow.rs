//! An import out of a running server: its snapshot, and then its commands until the cut-over.
//!
//! ```text
//! source ─► receiver (thread) ─► spool ─► parser (thread) ─► batch ─► this thread ─► target
//! ```
//!
//! A batch is made of whole transactions of the source, and becomes one of the target. It grows while the one
//! before is on its way: under load it has hundreds of commands, and else one.

use super::commands::Translator;
use super::source::{Offsets, Position, Receiver, Sync, end_of_snapshot, open, replicate};
use super::spool::{SpoolReader, spool};
use super::target::{Target, is_passing};
use super::{Plan, cut_over, load, now_ms, snapshot, source};
use anyhow::{Context, Result, bail};
use redis_surface::codec::{Limits, RequestDecoder, encode_command};
use redis_surface::rdb::{RdbReader, quoted};
use server::client::{Access, Answer, ClientError};
use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Batches, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use txn::Blob;

/// A batch with as many commands, or bytes, takes no more transactions.
const BATCH_COMMANDS: usize = 1000;
const BATCH_BYTES: usize = 512 << 10;
/// How many commands are sent before their replies are read: so many fit into the sockets' buffers.
const CHUNK_COMMANDS: usize = 500;
/// How long this thread waits for a batch before it looks for whatever else there is to do.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a target may not know what became of a transaction.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(60);
/// How old the record may get while the source sends no data.
const RECORD_EVERY: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// What the keys of progress records begin with.
pub const RECORD_PREFIX: &str = "ordo:import:";
/// The target has caught up when no more is missing: a moment's work.
const LAG_BYTES_MAX: u64 = 1 << 20;

/// What an import is doing.
///
/// ```text
/// Following ──► CutOver ──► (the record is deleted)
///     └──────► Differs
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The source's commands are applied.
    Following,
    /// Clients have been switched; dates are to be put right.
    CutOver,
    /// The target refused a command that the source has executed: the import can't go on.
    Differs,
}

impl Phase {
    const ALL: [Phase; 3] = [Phase::Following, Phase::CutOver, Phase::Differs];

    fn name(self) -> &'static str {
        match self {
            Phase::Following => "following",
            Phase::CutOver => "cut-over",
            Phase::Differs => "differs",
        }
    }
}

/// What the progress record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub position: Position,
    /// The database that the source's commands behind this are of, unless they say another one.
    pub database: u64,
    pub phase: Phase,
    /// Whether the import keeps what the target has (`--merge`): --resume must know it.
    pub is_merging: bool,
}

impl Progress {
    pub fn text(&self) -> String {
        let (phase, merging) = (self.phase.name(), if self.is_merging { "merging" } else { "alone" });
        format!("{} {} {} {phase} {merging}", self.position.id, self.position.offset, self.database)
    }

    pub fn parse(text: &str) -> Option<Progress> {
        let words: Vec<&str> = text.split(' ').collect();
        let [id, offset, database, phase, merging] = words[..] else {
            return None;
        };
        let position = Position { id: id.to_owned(), offset: offset.parse().ok()? };
        let phase = Phase::ALL.into_iter().find(|known| known.name() == phase)?;
        let is_merging = merging == "merging";
        Some(Progress { position, database: database.parse().ok()?, phase, is_merging })
    }
}

/// Commands for one transaction.
#[derive(Default)]
struct Batch {
    /// The commands as RESP, and how many there are in each part.
    chunks: Vec<(Vec<u8>, usize)>,
    commands: usize,
    bytes: usize,
    /// Up to where the source's bytes are in it, or of no interest.
    end: u64,
    /// The source's database at the end.
    database: u64,
}

impl Batch {
    fn push(&mut self, words: &[Blob]) {
        if self.chunks.last().is_none_or(|(_, commands)| *commands == CHUNK_COMMANDS) {
            self.chunks.push(Default::default());
        }
        if let Some((bytes, commands)) = self.chunks.last_mut() {
            let before = bytes.len();
            encode_command(words, bytes);
            *commands += 1;
            self.commands += 1;
            self.bytes += bytes.len() - before;
        }
    }

    fn is_full(&self) -> bool {
        self.commands >= BATCH_COMMANDS || self.bytes >= BATCH_BYTES
    }

    /// The command at a place, for an error.
    fn command(&self, place: usize) -> String {
        let mut at = place;
        for (bytes, commands) in &self.chunks {
            if at < *commands {
                let mut input = &bytes[..];
                let mut decoder = RequestDecoder::new(Limits::default());
                let words = (0..=at).filter_map(|_| decoder.next(&mut input).ok().flatten()).last();
                let words = words.iter().flat_map(|words| words.iter().take(4));
                return words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            }
            at -= commands;
        }
        "a command".to_owned()
    }
}

/// Reads the source's commands and makes batches of them.
struct Parser {
    spool: SpoolReader,
    decoder: RequestDecoder,
    translator: Translator,
    offsets: Arc<Offsets>,
    batches: SyncSender<Batch>,
    batch: Batch,
    /// Up to where the bytes are decoded.
    decoded: u64,
    /// Up to where batches were handed over.
    sent: u64,
}

impl Parser {
    /// Runs until nothing more comes, and says why; `input` came before what is in the spool.
    fn run(mut self, mut input: Vec<u8>) -> Result<()> {
        let mut room = vec![0; 256 << 10];
        loop {
            let mut rest = &input[..];
            loop {
                let before = rest.len();
                let words = self.decoder.next(&mut rest).context("the source's commands are damaged")?;
                self.decoded += (before - rest.len()) as u64;
                let Some(words) = words else { break };
                if !self.take(words.iter().cloned().collect())? {
                    return Ok(());
                }
            }
            let used = input.len() - rest.len();
            input.drain(..used);
            if !self.offer() {
                return Ok(());
            }
            let patience = Duration::from_millis(if self.batch.end > self.sent { 1 } else { 50 });
            if let Some(count) = self.spool.read_for(&mut room, patience)? {
                input.extend_from_slice(&room[..count]);
            }
        }
    }

    /// Adds a command. Gives whether somebody still takes batches.
    fn take(&mut self, words: Vec<Blob>) -> Result<bool> {
        if let Some(words) = self.translator.translate(words, now_ms())? {
            self.batch.push(&words);
        }
        if std::mem::take(&mut self.translator.is_asked) {
            self.offsets.is_asked.store(true, Ordering::Relaxed);
        }
        self.offsets.left_out.store(self.translator.left_out, Ordering::Relaxed);
        if self.translator.in_transaction {
            return Ok(true);
        }
        self.batch.end = self.decoded;
        self.batch.database = self.translator.database;
        if !self.batch.is_full() {
            return Ok(true);
        }
        self.sent = self.batch.end;
        Ok(self.batches.send(std::mem::take(&mut self.batch)).is_ok())
    }

    /// Hands the batch over if the target waits for one. Gives whether somebody still takes batches.
    fn offer(&mut self) -> bool {
        if self.translator.in_transaction || self.batch.end <= self.sent {
            return true;
        }
        let end = self.batch.end;
        match self.batches.try_send(std::mem::take(&mut self.batch)) {
            Ok(()) => self.sent = end,
            Err(TrySendError::Full(batch)) => self.batch = batch,
            Err(TrySendError::Disconnected(_)) => return false,
        }
        true
    }
}

/// What applies batches to the target.
pub struct Follower<'a> {
    pub plan: &'a Plan,
    pub target: Target,
    pub record: String,
    pub offsets: Arc<Offsets>,
    /// What the progress record says.
    pub progress: Progress,
    batches: Batches<Batch>,
    parser: Option<JoinHandle<Result<()>>>,
    /// Whether the record is watched, and was last seen as it should be.
    is_watching: bool,
    /// How often the link to the target was lost.
    losses: usize,
    pub commands: u64,
    /// When the record was last written.
    recorded: Instant,
}

impl Follower<'_> {
    /// Up to where the source's bytes are in the target.
    pub fn applied(&self) -> u64 {
        self.offsets.applied.load(Ordering::Acquire)
    }

    fn received(&self) -> u64 {
        self.offsets.received.load(Ordering::Acquire)
    }

    /// Applies what there is, or waits a while for it.
    pub fn step(&mut self) -> Result<()> {
        match self.batches.recv_timeout(LOOK_EVERY) {
            Ok(batch) => {
                // Pings move the record, too: else the source's backlog would not reach back to it for long.
                if batch.commands > 0 || self.recorded.elapsed() >= RECORD_EVERY {
                    self.apply(&batch)?;
                    self.recorded = Instant::now();
                    self.commands += batch.commands as u64;
                }
                self.offsets.applied.store(batch.end, Ordering::Release);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            // The threads before this one were told, too, and end.
            Err(RecvTimeoutError::Disconnected) if self.plan.stopped() => Ok(()),
            Err(RecvTimeoutError::Disconnected) => match self.parser.take().map(JoinHandle::join) {
                Some(Ok(Err(error))) => Err(error),
                _ => bail!("the thread that reads the source's commands has ended because of a bug"),
            },
        }
    }

    /// Applies a batch exactly once, whatever happens to links.
    fn apply(&mut self, batch: &Batch) -> Result<()> {
        let position = Position { id: self.offsets.id(&self.progress.position.id), offset: batch.end };
        let after = Progress { position, database: batch.database, ..self.progress.clone() };
        let since = Instant::now();
        let mut is_lost = false;
        loop {
            let is_there = self.look(&after).and_then(|is_there| match is_there {
                true => Ok(true),
                false => self.execute(batch, &after),
            });
            match is_there {
                Ok(true) => {
                    self.progress = after;
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) if error.is::<ClientError>() => {
                    // A target that loads its data says so at once.
                    match std::mem::replace(&mut is_lost, true) {
                        false => eprintln!("the link to the target was lost ({error:#}): connecting again"),
                        true => std::thread::sleep(RETRY_PAUSE),
                    }
                    self.losses += 1;
                    self.is_watching = false;
                    self.target = Target::reach(self.plan, self.losses)?;
                }
                Err(error) => return Err(error),
            }
            if since.elapsed() > UNKNOWN_PATIENCE {
                bail!(
                    "the target does not take a transaction for {} s: stopped; go on with --resume",
                    UNKNOWN_PATIENCE.as_secs()
                );
            }
        }
    }

    /// Watches the record, and holds that it is as it should be before the batch. Gives whether it is what
    /// it should be behind it.
    fn look(&mut self, after: &Progress) -> Result<bool> {
        if self.is_watching {
            return Ok(false);
        }
        self.target.must(&[b"WATCH", self.record.as_bytes()])?;
        let found = self.target.must(&[b"GET", self.record.as_bytes()])?;
        self.accept(&found, after)
    }

    fn accept(&mut self, found: &Answer, after: &Progress) -> Result<bool> {
        let found = match found {
            Answer::Text(text) => Progress::parse(text),
            _ => None,
        };
        match found {
            Some(found) if found == self.progress => {
                self.is_watching = true;
                Ok(false)
            }
            Some(found) if found == *after => Ok(true),
            _ => bail!(
                "the progress record {} in the target was changed by another process: is another import \
                 running? Stop it, and go on with --resume",
                self.record
            ),
        }
    }

    /// Sends the transaction, and watches for the next one. Gives whether it was executed.
    fn execute(&mut self, batch: &Batch, after: &Progress) -> Result<bool> {
        self.is_watching = false;
        let (record, text) = (self.record.clone().into_bytes(), after.text());
        let mut bytes = Vec::new();
        encode_command(&[b"MULTI"], &mut bytes);
        let mut unanswered = 1;
        for (chunk, commands) in &batch.chunks {
            bytes.extend_from_slice(chunk);
            unanswered += commands;
            self.target.client.send(&bytes)?;
            bytes.clear();
            for _ in 0..unanswered {
                self.queued()?;
            }
            unanswered = 0;
        }
        encode_command(&[b"SET", &record[..], text.as_bytes()], &mut bytes);
        encode_command(&[b"EXEC"], &mut bytes);
        // Behind it, so that the next batch need not wait for that.
        encode_command(&[b"WATCH", &record[..]], &mut bytes);
        encode_command(&[b"GET", &record[..]], &mut bytes);
        self.target.client.send(&bytes)?;
        // Of MULTI, too, if there is no command between them.
        for _ in 0..=unanswered {
            self.queued()?;
        }
        let executed = self.target.client.answer()?;
        let watched = self.target.client.answer()?;
        let found = self.target.client.answer()?;
        match executed {
            Answer::List(replies) => {
                let failed = replies.iter().enumerate().find_map(|(place, reply)| match reply {
                    Answer::Error(text) => Some((place, text)),
                    _ => None,
                });
                if let Some((place, text)) = failed {
                    // The other commands, and the record, were executed: --resume must not go on behind them.
                    let differs = Progress { phase: Phase::Differs, ..after.clone() };
                    write_record(&mut self.target, self.plan, &self.record, &differs)?;
                    bail!(
                        "the target refused what the source has executed, so they differ from now on: {}: \
                         {text}",
                        batch.command(place)
                    );
                }
                self.progress = after.clone();
                // If the node did not watch, the next batch does it again.
                if !matches!(watched, Answer::Error(_)) && !matches!(found, Answer::Error(_)) {
                    self.accept(&found, after)?;
                }
                Ok(true)
            }
            // The record was changed: by an earlier attempt, whose reply was lost.
            Answer::Nil => {
                self.target.must(&[b"UNWATCH"])?;
                Ok(false)
            }
            Answer::Error(text) if is_passing(&text) => {
                std::thread::sleep(RETRY_PAUSE);
                self.target.must(&[b"UNWATCH"])?;
                Ok(false)
            }
            answer => bail!("the target refused a transaction: {answer:?}"),
        }
    }

    fn queued(&mut self) -> Result<()> {
        match self.target.client.answer()? {
            // As after a lost link, the record tells what to do.
            Answer::Error(text) if is_passing(&text) => {
                let answer = Answer::Error(text);
                Err(ClientError::Unexpected { command: "MULTI".to_owned(), answer }.into())
            }
            Answer::Error(text) => bail!("the target refused what the source has executed: {text}"),
            _ => Ok(()),
        }
    }
}

/// The key of the progress record.
fn record_of(address: &str) -> String {
    format!("{RECORD_PREFIX}{address}")
}

/// What the record of an import that was stopped says.
fn progress_of(target: &mut Target, record: &str) -> Result<Progress> {
    let found = target.must(&[b"GET", record.as_bytes()])?;
    let progress = match &found {
        Answer::Text(text) => Progress::parse(text),
        _ => None,
    };
    progress.with_context(|| {
        format!("there is no import to go on with: the target {} has no key {record}", target.address)
    })
}

/// Looks at the source before anything is changed. Gives the database that is imported.
fn examine(plan: &Plan, address: &str, access: &Access) -> Result<u64> {
    let mut control = open(address, access)?;
    let databases = source::databases(&mut control)?;
    let server = source::info(&mut control, "server")?;
    if server.contains_key("ordo_version") {
        bail!("{address} is an Ordo: restore a backup of it instead ('ordo backup', 'ordo restore')");
    }
    let version = server.get("valkey_version").or(server.get("redis_version"));
    let version = version.map_or("unknown", |version| version);
    let shown = databases.iter().map(|(database, keys)| format!("{keys} keys in database {database}"));
    let shown: Vec<String> = shown.collect();
    eprintln!(
        "source: {address}, version {version}, {}",
        match shown.is_empty() {
            true => "no keys".to_owned(),
            false => shown.join(", "),
        }
    );
    snapshot::one_database(&databases, plan)
}

/// Runs an import from a running server until the cut-over, or until it is stopped.
pub fn run(plan: &Plan, address: &str, access: &Access) -> Result<()> {
    let mut target = Target::open(plan)?;
    let record = record_of(address);
    let from = match plan.import.live.resume {
        true => Some(progress_of(&mut target, &record)?),
        false => None,
    };
    if from.as_ref().is_some_and(|from| from.phase == Phase::Differs) {
        bail!(
            "the import that was stopped had found that the target refuses what the source has executed: \
             begin again with --replace"
        );
    }
    if let Some(from) = from.as_ref().filter(|from| from.phase == Phase::CutOver) {
        eprintln!("clients were switched at offset {}: dates of expiry are put right", from.position.offset);
        return cut_over::settle(&mut target, &record);
    }
    // Behind a cut-over the source may be gone.
    let wanted = examine(plan, address, access)?;
    let directory = plan.import.live.spool_dir.clone().unwrap_or_else(std::env::temp_dir);
    if !directory.is_dir() {
        bail!("--spool-dir: {} is no directory: make it first, or name another one", directory.display());
    }
    if from.is_none() && !plan.import.replace {
        target.must_be_free(plan)?;
    }
    let (link, sync) = replicate(address, access, from.as_ref().map(|from| &from.position))?;
    let (position, framing) = match (sync, &from) {
        (Sync::Full(position, framing), None) => (position, Some(framing)),
        (Sync::Partial(id), Some(from)) => (Position { id, ..from.position.clone() }, None),
        _ => bail!(
            "the source no longer has what follows the import that was stopped: begin again with --replace; \
             CONFIG SET repl-backlog-size makes its backlog larger"
        ),
    };
    let offsets = Arc::new(Offsets::starting_with(&position.id));
    offsets.received.store(position.offset, Ordering::Release);
    offsets.applied.store(position.offset, Ordering::Release);
    let (writer, reader) = spool(directory);
    let receiver = Receiver {
        address: address.to_owned(),
        access: access.clone(),
        offsets: offsets.clone(),
        stop: plan.stop.clone(),
        tell_every: plan.tell_every,
        position: position.clone(),
        framing,
    };
    std::thread::spawn(move || receiver.run(link, writer));
    let mut input = BufReader::with_capacity(1 << 18, reader);
    if let Some(framing) = framing {
        input = load_snapshot(input, framing, plan, wanted, &mut target)?;
    }
    let progress = match from {
        // A transaction of the process that was stopped may still be on its way: only WATCH tells whether the
        // record is still what was read, so nothing is written here.
        Some(from) => from,
        None => {
            let is_merging = plan.merges();
            let progress = Progress { position, database: 0, phase: Phase::Following, is_merging };
            write_record(&mut target, plan, &record, &progress)?;
            progress
        }
    };
    let (batches, parser) = parse(input, plan, wanted, &progress, &offsets);
    let follower = Follower {
        plan,
        target,
        record,
        offsets,
        progress,
        batches,
        parser: Some(parser),
        is_watching: false,
        losses: 0,
        commands: 0,
        recorded: Instant::now(),
    };
    follow(follower, wanted, address, access)
}

/// Writes the progress record, whatever it says now: again, if the link to the target is lost.
pub fn write_record(target: &mut Target, plan: &Plan, record: &str, progress: &Progress) -> Result<()> {
    let (text, since) = (progress.text(), Instant::now());
    let mut losses = 0;
    loop {
        match target.must(&[b"SET", record.as_bytes(), text.as_bytes()]) {
            Err(error) if error.is::<ClientError>() && since.elapsed() < UNKNOWN_PATIENCE => {
                losses += 1;
                *target = Target::reach(plan, losses)?;
            }
            written => return written.map(drop),
        }
    }
}

fn load_snapshot(
    input: BufReader<SpoolReader>,
    framing: source::Framing,
    plan: &Plan,
    wanted: u64,
    target: &mut Target,
) -> Result<BufReader<SpoolReader>> {
    let what = "the source's snapshot";
    let mut reader = RdbReader::new(input, 0).context(what)?;
    // Only a source that is known to be usable costs the target what it has.
    target.make_ready(plan)?;
    let bytes = match framing {
        source::Framing::Bytes(bytes) => bytes,
        source::Framing::Mark(_) => 0,
    };
    let loaded = load::stream(&mut reader, bytes, plan, wanted).context(what)?;
    let read_bytes = reader.offset();
    let mut input = reader.into_input();
    end_of_snapshot(&mut input, framing, read_bytes)?;
    eprintln!("snapshot loaded: {loaded}");
    Ok(input)
}

/// Starts the thread that makes batches of the source's commands.
fn parse(
    input: BufReader<SpoolReader>,
    plan: &Plan,
    wanted: u64,
    progress: &Progress,
    offsets: &Arc<Offsets>,
) -> (Batches<Batch>, JoinHandle<Result<()>>) {
    let (sender, batches) = sync_channel(0);
    let ahead = input.buffer().to_vec();
    let parser = Parser {
        spool: input.into_inner(),
        decoder: RequestDecoder::new(Limits::default()),
        translator: Translator {
            database: progress.database,
            wanted,
            leaves_databases_out: plan.import.database.is_some(),
            in_transaction: false,
            keep_expiring_fields: plan.import.keep_expiring_fields,
            is_merging: progress.is_merging,
            left_out: 0,
            is_asked: false,
        },
        offsets: offsets.clone(),
        batches: sender,
        batch: Batch::default(),
        decoded: progress.position.offset,
        sent: progress.position.offset,
    };
    (batches, std::thread::spawn(move || parser.run(ahead)))
}

/// Waits for the line that says when to cut over.
fn listen() -> Arc<AtomicBool> {
    let said = Arc::new(AtomicBool::new(false));
    let heard = said.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match line.trim() {
                "cut-over" => heard.store(true, Ordering::Relaxed),
                other => eprintln!("{other:?} is no command here: cut-over is one"),
            }
        }
    });
    said
}

fn follow(mut follower: Follower<'_>, wanted: u64, address: &str, access: &Access) -> Result<()> {
    let plan = follower.plan;
    let is_wished = listen();
    eprintln!("following from offset {}", follower.applied());
    let (mut told, mut told_commands, mut is_told) = (Instant::now(), 0, false);
    while !plan.stopped() {
        follower.step()?;
        let lag_bytes = follower.received().saturating_sub(follower.applied());
        if lag_bytes == 0 && !is_told {
            is_told = true;
            eprintln!("caught up: the line \"cut-over\" on standard input switches, Ctrl-C stops");
        }
        let is_wished = plan.import.live.cut_over || is_wished.load(Ordering::Relaxed);
        if is_wished && lag_bytes <= LAG_BYTES_MAX {
            return cut_over::run(follower, wanted, address, access);
        }
        if told.elapsed() >= plan.tell_every {
            let speed = (follower.commands - told_commands) as f64 / told.elapsed().as_secs_f64();
            (told, told_commands) = (Instant::now(), follower.commands);
            let left_out = match follower.offsets.left_out.load(Ordering::Relaxed) {
                0 => String::new(),
                count => format!(", {count} messages and commands of other databases left out"),
            };
            eprintln!(
                "following: offset {}, {lag_bytes} bytes behind, {speed:.0} commands/s{left_out}",
                follower.applied()
            );
        }
    }
    eprintln!("stopped at offset {}: --resume goes on from there", follower.progress.position.offset);
    if plan.import.live.cut_over {
        bail!("stopped before the cut-over: clients stay at the source");
    }
    Ok(())
}
