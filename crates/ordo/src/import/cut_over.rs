//! The cut-over: from when the source keeps writers waiting until clients may be switched.

use super::compare::{Walk, with_source};
use super::follow::{Follower, Phase, Progress, RECORD_PREFIX, write_record};
use super::source::{info, open};
use super::target::Target;
use super::{DELAY_MS, Plan, Verify};
use anyhow::{Context, Result, bail};
use redis_surface::codec::encode_command;
use redis_surface::rdb::quoted;
use server::client::{Access, Answer, Client};
use std::time::{Duration, Instant};
use txn::Blob;

/// How long the target may need for what the source had written before it was paused.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(10);
/// How many keys are put right in one transaction.
const KEYS_AT_ONCE: usize = 100;
/// Puts dates right that are still delayed: what a client has set meanwhile stays.
const SETTLE: &str = "local settled = 0 \
     for _, key in ipairs(KEYS) do \
       local at = redis.call('PEXPIRETIME', key) \
       if at >= tonumber(ARGV[1]) then \
         redis.call('PEXPIREAT', key, string.format('%.0f', at - tonumber(ARGV[1]))) \
         settled = settled + 1 \
       end \
     end \
     return settled";

/// The pause of the source's writers. While the process compares, it prolongs the pause, and it holds that no
/// pause was over before the next one began.
pub struct Pause {
    length: Duration,
    /// When the last CLIENT PAUSE was sent; `None` with `--no-pause`.
    since: Option<Instant>,
}

impl Pause {
    fn begin(source: &mut Client, plan: &Plan) -> Result<Pause> {
        let live = &plan.import.live;
        let mut pause = Pause { length: Duration::from_secs(live.pause), since: None };
        if !live.no_pause {
            pause.send(source)?;
        }
        Ok(pause)
    }

    fn send(&mut self, source: &mut Client) -> Result<()> {
        let since = Instant::now();
        let pause_ms = self.length.as_millis().to_string();
        if let Answer::Error(text) = source.call(&["CLIENT", "PAUSE", &pause_ms, "WRITE"])? {
            bail!(
                "the source does not pause its writers ({text}; Redis does since 6.2): stop them, and give \
                 --no-pause"
            );
        }
        self.since = Some(since);
        Ok(())
    }

    /// Begins the pause anew.
    fn prolong(&mut self, source: &mut Client) -> Result<()> {
        let Some(before) = self.since else {
            return Ok(());
        };
        self.send(source)?;
        if before.elapsed() >= self.length {
            bail!(
                "the pause of {} s was over before it was prolonged, so clients may have written: give a \
                 longer --pause",
                self.length.as_secs()
            );
        }
        Ok(())
    }

    /// Prolongs the pause if a part of it is over; fails if the process is to stop.
    pub fn keep(&mut self, source: &mut Client, plan: &Plan) -> Result<()> {
        if plan.stopped() {
            bail!("stopped during the cut-over");
        }
        match self.since.is_some_and(|since| since.elapsed() >= self.length / 4) {
            true => self.prolong(source),
            false => Ok(()),
        }
    }

    /// How long the source still keeps writers waiting.
    fn left(&self) -> Option<Duration> {
        self.since.map(|since| self.length.saturating_sub(since.elapsed()))
    }
}

/// Cuts over. If anything fails before clients are told to switch, the source takes writes again, and clients
/// stay there.
pub fn run(mut follower: Follower<'_>, wanted: u64, address: &str, access: &Access) -> Result<()> {
    let mut source = open(address, access)?;
    source.call(&["SELECT", &wanted.to_string()])?.text("SELECT")?;
    let began = Instant::now();
    let mut pause = Pause::begin(&mut source, follower.plan)?;
    let held = hold(&mut follower, &mut source, &mut pause, wanted)
        .and_then(|offset| record_cut_over(&mut follower, &mut source, &mut pause).map(|()| offset));
    let offset = match held {
        Ok(offset) => offset,
        Err(error) => {
            drop(source);
            let unpaused = if pause.since.is_some() { unpause(address, access) } else { Ok(()) };
            return Err(match unpaused {
                Ok(()) => error.context("no cut-over: clients stay at the source, which takes writes again"),
                Err(failed) => error.context(format!(
                    "no cut-over: clients stay at the source, which keeps them waiting until the pause of {} \
                     s is over, since CLIENT UNPAUSE failed ({failed:#})",
                    pause.length.as_secs()
                )),
            });
        }
    };
    println!(
        "switch clients now: the target has all up to offset {offset}; {} ms since the source was paused",
        began.elapsed().as_millis()
    );
    if let Some(left) = pause.left() {
        println!(
            "the source keeps writers waiting for {} s more: shut it down before, or what they \
             write there is lost",
            left.as_secs()
        );
    }
    settle(&mut follower.target, &follower.record)
}

/// Over a link of its own: the other ones may be cut.
fn unpause(address: &str, access: &Access) -> Result<()> {
    open(address, access)?.call(&["CLIENT", "UNPAUSE"])?.text("CLIENT UNPAUSE")?;
    Ok(())
}

/// Writes into the record that clients have been switched, before they are told to: --resume must never apply
/// the source's writes again. If the pause is over meanwhile, the record says again what it said.
fn record_cut_over(follower: &mut Follower<'_>, source: &mut Client, pause: &mut Pause) -> Result<()> {
    let plan = follower.plan;
    let cut_over = Progress { phase: Phase::CutOver, ..follower.progress.clone() };
    let written = write_record(&mut follower.target, plan, &follower.record, &cut_over);
    let kept = written.and_then(|()| pause.prolong(source));
    if kept.is_err() {
        write_record(&mut follower.target, plan, &follower.record, &follower.progress).context(
            "the progress record may say that clients have been switched: begin again with --replace",
        )?;
    }
    kept
}

/// Applies all that the source has written by now. Gives the offset behind it.
fn drain(follower: &mut Follower<'_>, source: &mut Client, pause: &mut Pause) -> Result<u64> {
    let replication = info(source, "replication")?;
    if replication.get("role").is_none_or(|role| role != "master") {
        bail!("the source is a replica, where a pause does not stop writers: import from its master");
    }
    let offset = replication.get("master_repl_offset").and_then(|offset| offset.parse::<u64>().ok());
    let offset = offset.context("the source does not tell its offset")?;
    let since = Instant::now();
    while follower.applied() < offset {
        follower.step()?;
        pause.keep(source, follower.plan)?;
        if since.elapsed() > CATCH_UP_PATIENCE {
            let missing = offset.saturating_sub(follower.applied());
            bail!("after {} s {missing} bytes were missing still", CATCH_UP_PATIENCE.as_secs());
        }
    }
    Ok(offset)
}

/// Waits until the target has all that the source has, and compares. Gives the offset.
fn hold(follower: &mut Follower<'_>, source: &mut Client, pause: &mut Pause, wanted: u64) -> Result<u64> {
    let offset = drain(follower, source, pause)?;
    let plan = follower.plan;
    // The source counts values of modules, too.
    let is_countable = !follower.progress.is_merging && !plan.import.skip_modules;
    if plan.import.verify != Verify::None && is_countable {
        let expected: u64 = source.call(&["DBSIZE"])?.text("DBSIZE")?.parse()?;
        // The progress record is none of the source's.
        let counted = follower.target.count()?.saturating_sub(1);
        eprintln!("counted: {expected} keys in the source, {counted} in the target");
        let database = wanted;
        if expected != counted {
            bail!("the source has {expected} keys in database {database}, and the target {counted}");
        }
    }
    let commands = follower.commands;
    with_source(plan, source, &mut follower.target, pause)?;
    if pause.since.is_none() {
        return Ok(offset);
    }
    pause.prolong(source)?;
    // What was compared may differ by now if somebody has ended the pause.
    let offset = drain(follower, source, pause)?;
    if follower.commands != commands {
        bail!("the source has written while its writers were paused: has another client ended the pause?");
    }
    Ok(offset)
}

/// Other imports into the target that still follow their sources.
fn others_that_follow(target: &mut Target, record: &str) -> Result<Vec<String>> {
    let (mut walk, mut others) = (Walk::new(), Vec::new());
    while let Some(keys) = walk.next(&mut target.client)? {
        for key in keys.iter().filter(|key| key.starts_with(RECORD_PREFIX.as_bytes())) {
            let follows = match target.must(&[b"GET", &key[..]])? {
                Answer::Text(text) => {
                    Progress::parse(&text).is_some_and(|other| other.phase == Phase::Following)
                }
                _ => false,
            };
            if follows && key[..] != *record.as_bytes() {
                others.push(quoted(key));
            }
        }
    }
    Ok(others)
}

/// Puts all delayed dates right, and ends the import. While another import follows its source, its keys need
/// their delay, and nobody knows which keys these are: then the last of the imports does it.
pub fn settle(target: &mut Target, record: &str) -> Result<()> {
    let others = others_that_follow(target, record)?;
    if !others.is_empty() {
        eprintln!(
            "done, but for dates of expiry: the last import to cut over puts them right ({} still there)",
            others.join(", ")
        );
        target.must(&[b"DEL", record.as_bytes()])?;
        return Ok(());
    }
    let (mut walk, mut settled) = (Walk::new(), 0);
    while let Some(keys) = walk.next(&mut target.client)? {
        let mut bytes = Vec::new();
        keys.iter().for_each(|key| encode_command(&[b"PEXPIRETIME", &key[..]], &mut bytes));
        target.client.send(&bytes)?;
        let mut delayed = Vec::new();
        for key in keys {
            let at_ms = target.client.answer()?.text("PEXPIRETIME")?.parse::<i64>()?;
            if u64::try_from(at_ms).is_ok_and(|at_ms| at_ms >= DELAY_MS) {
                delayed.push(key);
            }
        }
        for keys in delayed.chunks(KEYS_AT_ONCE) {
            settled += settle_some(target, keys)?;
        }
    }
    target.must(&[b"DEL", record.as_bytes()])?;
    eprintln!("done: {settled} keys expire by the target's own clock from now on");
    Ok(())
}

fn settle_some(target: &mut Target, keys: &[Blob]) -> Result<u64> {
    let (count, delay_ms) = (keys.len().to_string(), DELAY_MS.to_string());
    let mut words: Vec<&[u8]> = vec![b"EVAL", SETTLE.as_bytes(), count.as_bytes()];
    words.extend(keys.iter().map(Blob::as_bytes));
    words.push(delay_ms.as_bytes());
    match target.must(&words)? {
        Answer::Text(text) => Ok(text.parse()?),
        answer => bail!("the target replied {answer:?} to a script"),
    }
}
