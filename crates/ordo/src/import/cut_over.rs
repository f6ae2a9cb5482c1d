//! The cut-over: from when the source keeps writers waiting until clients may be switched.

use super::compare::{Walk, with_source};
use super::follow::{Follower, Phase, Progress};
use super::source::{info, open};
use super::target::Target;
use super::{DELAY_MS, Verify};
use anyhow::{Context, Result, bail};
use redis_surface::codec::encode_command;
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

/// Cuts over. Whatever fails, the source takes writes again, and clients stay there.
pub fn run(mut follower: Follower<'_>, wanted: u64, address: &str, access: &Access) -> Result<()> {
    let mut source = open(address, access)?;
    source.call(&["SELECT", &wanted.to_string()])?.text("SELECT")?;
    let live = &follower.plan.import.live;
    let began = Instant::now();
    if !live.no_pause {
        let pause_ms = (live.pause * 1000).to_string();
        if let Answer::Error(text) = source.call(&["CLIENT", "PAUSE", &pause_ms, "WRITE"])? {
            bail!(
                "the source does not pause its writers ({text}; Redis does since 6.2): stop them, and give \
                 --no-pause"
            );
        }
    }
    let offset = match hold(&mut follower, &mut source, wanted) {
        Ok(offset) => offset,
        Err(error) => {
            if !live.no_pause {
                source.call(&["CLIENT", "UNPAUSE"])?;
            }
            return Err(error.context("no cut-over: clients stay at the source, which takes writes again"));
        }
    };
    println!(
        "switch clients now: the target has all up to offset {offset}; {} ms since the source was paused",
        began.elapsed().as_millis()
    );
    if !live.no_pause {
        println!(
            "the source keeps writers waiting for {} s more: shut it down before, or what they \
             write there is lost",
            Duration::from_secs(live.pause).saturating_sub(began.elapsed()).as_secs()
        );
    }
    let progress = Progress { phase: Phase::CutOver, ..follower.progress.clone() };
    let mut target = follower.target;
    target.must(&[b"SET", follower.record.as_bytes(), progress.text().as_bytes()])?;
    settle(&mut target, &follower.record)
}

/// Waits until the target has all that the source has, and compares. Gives the offset.
fn hold(follower: &mut Follower<'_>, source: &mut Client, wanted: u64) -> Result<u64> {
    let replication = info(source, "replication")?;
    if replication.get("role").is_none_or(|role| role != "master") {
        bail!("the source is a replica, where a pause does not stop writers: import from its master");
    }
    let offset = replication.get("master_repl_offset").and_then(|offset| offset.parse::<u64>().ok());
    let offset = offset.context("the source does not tell its offset")?;
    let since = Instant::now();
    while follower.applied() < offset {
        follower.step()?;
        if since.elapsed() > CATCH_UP_PATIENCE {
            let missing = offset - follower.applied();
            bail!("after {} s {missing} bytes were missing still", CATCH_UP_PATIENCE.as_secs());
        }
    }
    let plan = follower.plan;
    if plan.import.verify != Verify::None && !plan.merges() {
        let expected: u64 = source.call(&["DBSIZE"])?.text("DBSIZE")?.parse()?;
        // The progress record is none of the source's.
        let counted = follower.target.count()? - 1;
        eprintln!("counted: {expected} keys in the source, {counted} in the target");
        let database = wanted;
        if expected != counted {
            bail!("the source has {expected} keys in database {database}, and the target {counted}");
        }
    }
    with_source(plan, source, &mut follower.target)?;
    Ok(offset)
}

/// Puts all delayed dates right, and ends the import.
pub fn settle(target: &mut Target, record: &str) -> Result<()> {
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
