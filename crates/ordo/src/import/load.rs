//! A snapshot on its way into the target: by several connections at once, since no key depends on another.

use super::snapshot::{SnapshotFile, Tally, Wanted};
use super::target::Target;
use super::{DELAY_MS, Plan, now_ms};
use anyhow::{Context, Result, anyhow, bail};
use redis_surface::codec::encode_command;
use redis_surface::rdb::{RdbItem, RdbKey, RdbReader, in_pieces, quoted, restorable, value};
use server::client::Answer;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;
use txn::Blob;

/// A value with more bytes than this is made piece by piece: one transaction must not keep others waiting
/// for long, and must fit into a frame between nodes.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// About how many bytes one piece has.
const PIECE_BYTES: usize = 256 << 10;
/// About how many bytes are sent before replies are awaited.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_COMMANDS: usize = 512;
/// How many batches wait for a connection.
const BATCHES_WAITING: usize = 2;

/// Commands that are sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// What each of the commands is about, for an error.
    keys: Vec<Blob>,
}

/// A connection, and the thread that waits for its replies.
struct Lane {
    batches: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// The connections.
struct Loader<'a> {
    plan: &'a Plan,
    lanes: Vec<Lane>,
    next: usize,
    batch: Batch,
    /// What is added to the time at which a key expires.
    delay_ms: u64,
}

fn send_all(mut target: Target, batches: &Receiver<Batch>) -> Result<()> {
    let lost = "the link to the target was lost while the snapshot was loaded: begin again, with --replace";
    let mut unanswered: Vec<Blob> = Vec::new();
    loop {
        // While a batch is on its way, the replies to the one before are read.
        let batch = batches.recv().unwrap_or_default();
        if !batch.bytes.is_empty() {
            target.client.send(&batch.bytes).context(lost)?;
        }
        for key in &unanswered {
            if let Answer::Error(text) = target.client.answer().context(lost)? {
                let hint = match text.starts_with("BUSYKEY") {
                    true => ": somebody else writes to the target. Begin again, with --replace or --merge",
                    false => "",
                };
                bail!("{} refused the key {}: {text}{hint}", target.address, quoted(key));
            }
        }
        if batch.keys.is_empty() {
            return Ok(());
        }
        unanswered = batch.keys;
    }
}

impl<'a> Loader<'a> {
    fn open(plan: &'a Plan, delay_ms: u64) -> Result<Loader<'a>> {
        let mut lanes = Vec::new();
        for place in 0..usize::from(plan.import.connections) {
            let target = Target::open_from(plan, place)?;
            let (batches, received) = sync_channel(BATCHES_WAITING);
            let thread = std::thread::spawn(move || send_all(target, &received));
            lanes.push(Lane { batches: Some(batches), thread: Some(thread) });
        }
        Ok(Loader { plan, lanes, next: 0, batch: Batch::default(), delay_ms })
    }

    fn put(&mut self, about: &Blob, words: &[&[u8]]) {
        encode_command(words, &mut self.batch.bytes);
        self.batch.keys.push(about.clone());
    }

    /// Sends a value, or what a library has.
    fn take(&mut self, wanted: Wanted) -> Result<()> {
        match wanted {
            Wanted::Library(code) => self.put(&code, &[b"FUNCTION", b"LOAD", b"REPLACE", &code]),
            Wanted::Key(key) if key.payload.len() <= WHOLE_BYTES_MAX => {
                let expires_at_ms = self.expires_at_ms(&key).to_string();
                let payload = restorable(key.payload);
                let words: [&[u8]; 6] =
                    [b"RESTORE", &key.key, expires_at_ms.as_bytes(), &payload, b"ABSTTL", b"REPLACE"];
                let count = if self.plan.merges() { 6 } else { 5 };
                self.put(&key.key, &words[..count]);
            }
            Wanted::Key(key) => return self.take_large(&key),
        }
        match self.batch.bytes.len() >= BATCH_BYTES || self.batch.keys.len() >= BATCH_COMMANDS {
            true => self.send(),
            false => Ok(()),
        }
    }

    /// 0 for never.
    fn expires_at_ms(&self, key: &RdbKey) -> u64 {
        key.expires_at_ms.map_or(0, |at_ms| at_ms.saturating_add(self.delay_ms))
    }

    /// All pieces go through one connection, so that they keep their order.
    fn take_large(&mut self, key: &RdbKey) -> Result<()> {
        let whole = value(&key.payload).ok_or_else(|| {
            anyhow!("the value of the key {} makes no sense: it is damaged", quoted(&key.key))
        })?;
        self.send()?;
        if self.plan.merges() {
            self.put(&key.key, &[b"DEL", &key.key]);
        }
        let lane = self.next;
        let mut result = Ok(());
        in_pieces(&key.key, &whole, PIECE_BYTES, &mut |words| {
            self.put(&key.key, words);
            if self.batch.bytes.len() >= BATCH_BYTES || self.batch.keys.len() >= BATCH_COMMANDS {
                let sent = self.send_by(lane);
                if result.is_ok() {
                    result = sent;
                }
            }
        });
        result?;
        let expires_at_ms = self.expires_at_ms(key);
        if expires_at_ms > 0 {
            self.put(&key.key, &[b"PEXPIREAT", &key.key, expires_at_ms.to_string().as_bytes()]);
        }
        self.send_by(lane)
    }

    fn send(&mut self) -> Result<()> {
        let lane = self.next;
        self.next = (self.next + 1) % self.lanes.len();
        self.send_by(lane)
    }

    fn send_by(&mut self, lane: usize) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.keys.is_empty() {
            return Ok(());
        }
        let lane = &mut self.lanes[lane];
        let is_taken = lane.batches.as_ref().is_some_and(|batches| batches.send(batch).is_ok());
        match is_taken {
            true => Ok(()),
            // It has ended, and says why.
            false => lane.end(),
        }
    }

    fn finish(mut self) -> Result<()> {
        self.send()?;
        self.lanes.iter_mut().try_for_each(Lane::end)
    }
}

impl Lane {
    fn end(&mut self) -> Result<()> {
        self.batches = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => bail!("a thread that loads the snapshot has ended because of a bug"),
            None => Ok(()),
        }
    }
}

/// Loads a file.
pub fn file(file: &SnapshotFile<'_>, plan: &Plan, database: u64) -> Result<Tally> {
    let (bytes, mut reader) = (file.len_bytes()?, file.reader()?);
    snapshot(&mut reader, bytes, plan, database, 0, now_ms()).with_context(|| file.path.display().to_string())
}

/// Loads what a running server sends: nothing has expired before the server says so.
pub fn stream(reader: &mut RdbReader<impl BufRead>, bytes: u64, plan: &Plan, database: u64) -> Result<Tally> {
    snapshot(reader, bytes, plan, database, DELAY_MS, 0)
}

/// `bytes` is how many there are, 0 if that is not known. Keys that expire before `now_ms` have expired.
fn snapshot(
    reader: &mut RdbReader<impl BufRead>,
    bytes: u64,
    plan: &Plan,
    database: u64,
    delay_ms: u64,
    now_ms: u64,
) -> Result<Tally> {
    let mut loader = Loader::open(plan, delay_ms)?;
    let mut tally = Tally::default();
    let started = Instant::now();
    let mut told = started;
    loop {
        let item = reader.next()?;
        if item == RdbItem::End {
            break;
        }
        let wanted = tally.take(item, Some(database), now_ms);
        super::refuse(&tally, plan)?;
        if let Some(wanted) = wanted {
            loader.take(wanted)?;
        }
        if plan.stopped() {
            bail!("stopped while the snapshot was loaded: the target has a part of it");
        }
        if told.elapsed() >= plan.tell_every {
            told = Instant::now();
            let speed = tally.keys as f64 / started.elapsed().as_secs_f64();
            let part = match bytes {
                0 => String::new(),
                bytes => format!(" ({} %)", reader.offset() * 100 / bytes.max(1)),
            };
            eprintln!("snapshot: {} bytes{part}, {tally}, {speed:.0} keys/s", reader.offset());
        }
    }
    loader.finish()?;
    Ok(tally)
}
