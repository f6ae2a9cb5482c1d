//! The running server that is imported from, as its replica sees it.
//!
//! ```text
//! here                                       source
//! REPLCONF capa eof capa psync2  ─────────►
//! PSYNC ? -1                     ─────────►
//!                                ◄─────────  +FULLRESYNC id offset
//!                                ◄─────────  $bytes, or $EOF:mark; the snapshot, with the mark behind it
//! REPLCONF ACK offset            ─────────►  every second, and when it is asked for
//!                                ◄─────────  commands
//! ```
//!
//! Once a link is cut, `PSYNC id offset` with the next byte's offset is answered by `+CONTINUE`, if the
//! source still has what follows in its backlog.

use super::spool::SpoolWriter;
use anyhow::{Context, Result, anyhow, bail};
use redis_surface::codec::encode_command;
use server::client::{Access, Answer, Client, RawLink};
use std::collections::BTreeMap;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the source may take to reply, and to send anything at all: it pings its replicas.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one read waits.
const READ_PATIENCE: Duration = Duration::from_millis(50);
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const MARK_BYTES: usize = 40;

/// A place in what the source writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The name of the source's history.
    pub id: String,
    /// How many bytes of it there are before.
    pub offset: u64,
}

/// How the end of a snapshot is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its length.
    Bytes(u64),
    /// By a mark behind it.
    Mark([u8; MARK_BYTES]),
}

/// What the source sends behind its reply to PSYNC.
pub enum Sync {
    /// A snapshot as of a position, and then commands.
    Full(Position, Framing),
    /// Commands from the wanted position on. The history may have another name by now.
    Partial(String),
}

/// How far the import is, for all its threads.
#[derive(Default)]
pub struct Offsets {
    /// Up to where bytes were received.
    pub received: AtomicU64,
    /// Up to where they are in the target.
    pub applied: AtomicU64,
    /// The source wants to know the latter.
    pub is_asked: AtomicBool,
    /// How many commands were left out.
    pub left_out: AtomicU64,
    /// The name of the source's history, if that has changed: another server has become the master.
    renamed: Mutex<Option<String>>,
}

impl Offsets {
    /// Nothing is received yet of a history with this name.
    pub fn starting_with(id: &str) -> Offsets {
        Offsets { renamed: Mutex::new(Some(id.to_owned())), ..Offsets::default() }
    }

    /// The name of the source's history by now; `before` is the last one that is known.
    pub fn id(&self, before: &str) -> String {
        let renamed = self.renamed.lock().unwrap_or_else(PoisonError::into_inner);
        renamed.as_deref().unwrap_or(before).to_owned()
    }
}

/// Connects to the source for commands of its own.
pub fn open(address: &str, access: &Access) -> Result<Client> {
    let mut client = access.open(address, PATIENCE)?;
    if let Answer::Error(text) = client.call(&["PING"])?
        && text.starts_with("NOAUTH")
        && access.password.is_none()
    {
        bail!(
            "the source {address} wants a password ({text}): give it in the variable {}",
            super::SOURCE_PASSWORD_VARIABLE
        );
    }
    if let Some(Answer::Error(text)) = access.log_in(&mut client)? {
        bail!(
            "the source {address} does not take the password ({text}): correct --source-user and \
             --source-password"
        );
    }
    Ok(client)
}

/// What INFO tells in a section.
pub fn info(client: &mut Client, section: &str) -> Result<BTreeMap<String, String>> {
    let text = client.call(&["INFO", section])?.text("INFO")?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

/// How many keys each database has.
pub fn databases(client: &mut Client) -> Result<BTreeMap<u64, u64>> {
    let fields = info(client, "keyspace")?;
    let count = |text: &str| text.split(',').find_map(|part| part.strip_prefix("keys=")?.parse().ok());
    let all =
        fields.iter().filter_map(|(name, text)| Some((name.strip_prefix("db")?.parse().ok()?, count(text)?)));
    Ok(all.collect())
}

/// The next line that is not empty: empty ones say that the source is still there.
fn line(link: &mut RawLink) -> Result<String> {
    let mut line = Vec::new();
    let mut since = Instant::now();
    loop {
        match link.read_until(b'\n', &mut line) {
            Ok(0) => bail!("the source closed the link before it sent anything: try again"),
            Ok(_) if line.ends_with(b"\n") => {
                since = Instant::now();
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if !text.is_empty() {
                    return Ok(text);
                }
                line.clear();
            }
            Ok(_) => {}
            Err(error) if RawLink::is_silence(&error) && since.elapsed() < PATIENCE => {}
            Err(error) => return Err(anyhow!(error).context("the source is silent")),
        }
    }
}

/// Becomes a replica: from a position on, or with a snapshot.
pub fn replicate(address: &str, access: &Access, from: Option<&Position>) -> Result<(RawLink, Sync)> {
    let mut client = open(address, access)?;
    client.call(&["REPLCONF", "capa", "eof", "capa", "psync2"])?.text("REPLCONF")?;
    client.set_patience(READ_PATIENCE)?;
    let mut link = client.into_raw();
    let next = from.map(|from| (from.offset + 1).to_string());
    let (id, offset) = match (from, &next) {
        (Some(from), Some(next)) => (from.id.as_str(), next.as_str()),
        _ => ("?", "-1"),
    };
    send(&mut link, &["PSYNC", id, offset])?;
    let reply = line(&mut link)?;
    let words: Vec<&str> = reply.split(' ').collect();
    let sync = match words[..] {
        ["+FULLRESYNC", id, offset] => {
            let offset = offset.parse().with_context(|| format!("the source replied {reply} to PSYNC"))?;
            let framing = match line(&mut link)? {
                text if text.starts_with("$EOF:") => {
                    let mark = text.as_bytes()[5..].try_into();
                    Framing::Mark(mark.with_context(|| format!("the source announced a snapshot by {text}"))?)
                }
                text => {
                    let bytes = text.strip_prefix('$').and_then(|bytes| bytes.parse().ok());
                    Framing::Bytes(
                        bytes.with_context(|| format!("the source announced a snapshot by {text}"))?,
                    )
                }
            };
            Sync::Full(Position { id: id.to_owned(), offset }, framing)
        }
        ["+CONTINUE"] => Sync::Partial(id.to_owned()),
        ["+CONTINUE", id] => Sync::Partial(id.to_owned()),
        _ => bail!(
            "the source {address} does not take a replica ({reply}): it must be a Redis or a Valkey, and its \
             user must have the commands PSYNC and REPLCONF"
        ),
    };
    Ok((link, sync))
}

fn send(link: &mut RawLink, words: &[&str]) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    encode_command(words, &mut bytes);
    link.write_all(&bytes)?;
    link.flush()
}

/// What receives: a thread of its own, so that a slow target never makes the source wait.
pub struct Receiver {
    pub address: String,
    pub access: Access,
    pub offsets: Arc<Offsets>,
    pub stop: Arc<AtomicBool>,
    /// How often an error that lasts is told.
    pub tell_every: Duration,
    pub position: Position,
    /// The snapshot that is being received.
    pub framing: Option<Framing>,
}

impl Receiver {
    /// Receives until it is stopped, or can't go on.
    pub fn run(mut self, link: RawLink, mut spool: SpoolWriter) {
        let ended = self.receive_all(link, &mut spool);
        let why = ended.err().map_or("stopped".to_owned(), |error| format!("{error:#}"));
        spool.end(why);
    }

    fn receive_all(&mut self, mut link: RawLink, spool: &mut SpoolWriter) -> Result<()> {
        loop {
            let Err(cut) = self.receive(link, spool)? else {
                return Ok(());
            };
            if self.framing.is_some() {
                bail!("the link to the source was cut while it sent its snapshot ({cut}): begin again");
            }
            eprintln!("the link to the source was cut ({cut}): connecting again");
            let mut told: Option<Instant> = None;
            link = loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                match replicate(&self.address, &self.access, Some(&self.position)) {
                    Ok((link, Sync::Partial(id))) => {
                        self.position.id.clone_from(&id);
                        *self.offsets.renamed.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
                        break link;
                    }
                    Ok((_, Sync::Full(..))) => bail!(
                        "the source no longer has what follows offset {}: begin again with --replace, after \
                         CONFIG SET repl-backlog-size has made its backlog larger",
                        self.position.offset
                    ),
                    Err(error) => {
                        if told.is_none_or(|told| told.elapsed() >= self.tell_every) {
                            told = Some(Instant::now());
                            eprintln!("the source can't be reached: {error:#}");
                        }
                        std::thread::sleep(RETRY_PAUSE);
                    }
                }
            };
            eprintln!("going on at offset {}", self.position.offset);
        }
    }

    /// Receives from one link. The outer error is final; the inner one is a cut link.
    fn receive(&mut self, mut link: RawLink, spool: &mut SpoolWriter) -> Result<std::io::Result<()>> {
        let mut room = vec![0; 256 << 10];
        let mut tail: Vec<u8> = Vec::new();
        let (mut heard, mut acknowledged) = (Instant::now(), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            match link.read(&mut room) {
                Ok(0) => return Ok(Err(ErrorKind::ConnectionAborted.into())),
                Ok(count) => {
                    heard = Instant::now();
                    spool
                        .append(&room[..count])
                        .context("what the source sends could not be kept (--spool-dir)")?;
                    self.count(&room[..count], &mut tail);
                }
                Err(error) if RawLink::is_silence(&error) && heard.elapsed() < PATIENCE => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Ok(Err(error)),
            }
            let is_asked = self.offsets.is_asked.swap(false, Ordering::Relaxed);
            if is_asked || acknowledged.elapsed() >= ACKNOWLEDGE_EVERY {
                acknowledged = Instant::now();
                let applied = self.offsets.applied.load(Ordering::Acquire).to_string();
                let sent = match self.framing {
                    // There is nothing to acknowledge; it says that the replica is there.
                    Some(_) => link.write_all(b"\n").and_then(|()| link.flush()),
                    None => send(&mut link, &["REPLCONF", "ACK", &applied]),
                };
                if let Err(error) = sent {
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Counts what was received: of the snapshot first, and then of the history.
    fn count(&mut self, received: &[u8], tail: &mut Vec<u8>) {
        let of_history = match &mut self.framing {
            None => received.len() as u64,
            Some(Framing::Bytes(missing)) => {
                let of_snapshot = (*missing).min(received.len() as u64);
                *missing -= of_snapshot;
                if *missing == 0 {
                    self.framing = None;
                }
                received.len() as u64 - of_snapshot
            }
            Some(Framing::Mark(mark)) => {
                // The source sends nothing behind the mark before this replica acknowledges it.
                tail.extend_from_slice(&received[received.len().saturating_sub(MARK_BYTES)..]);
                tail.drain(..tail.len().saturating_sub(MARK_BYTES));
                if tail == mark {
                    self.framing = None;
                    self.offsets.is_asked.store(true, Ordering::Relaxed);
                }
                0
            }
        };
        self.position.offset += of_history;
        self.offsets.received.store(self.position.offset, Ordering::Release);
    }
}

/// Reads the mark behind a snapshot, if there is one, or holds the snapshot's length.
pub fn end_of_snapshot(input: &mut impl Read, framing: Framing, read_bytes: u64) -> Result<()> {
    match framing {
        Framing::Bytes(bytes) if bytes == read_bytes => Ok(()),
        Framing::Bytes(bytes) => {
            bail!("the source announced a snapshot of {bytes} bytes, and it has {read_bytes}")
        }
        Framing::Mark(mark) => {
            let mut found = [0; MARK_BYTES];
            input.read_exact(&mut found)?;
            match found == mark {
                true => Ok(()),
                false => bail!("behind byte {read_bytes} of the snapshot the source's mark is missing"),
            }
        }
    }
}
