//! The moments that a backup can be restored at.

use super::chains::{Chain, chains};
use super::format::Tip;
use super::objects::Objects;
use anyhow::{Context, Result, anyhow, bail};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is to be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// All that there is.
    Newest,
    /// The end of this epoch.
    Epoch(u64),
    /// The last epoch that is not later than this, in milliseconds since 1970.
    Time(u64),
}

impl FromStr for Moment {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Moment> {
        if text == "newest" {
            return Ok(Moment::Newest);
        }
        if let Ok(epoch) = text.parse() {
            return Ok(Moment::Epoch(epoch));
        }
        let time =
            humantime::parse_rfc3339_weak(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let time = time.with_context(|| {
            format!(
                "'{text}' is no moment: give the number of an epoch, a time such as '2026-11-27 22:10:00' \
                 (UTC), or 'newest'"
            )
        });
        Ok(Moment::Time(time?.as_millis() as u64))
    }
}

/// A time of the order, for people and for `--at`.
pub fn shown(time_ms: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(time_ms);
    humantime::format_rfc3339_millis(time).to_string()
}

/// Where a restore begins, and where it ends.
pub struct RestorePoint {
    pub chain: Chain,
    /// The checkpoint.
    pub from: Tip,
    /// The moment, or where to look for it.
    pub until: Moment,
}

/// Finds the newest checkpoint that leads to a moment, in a chain or in all of them.
///
/// # Errors
/// There is none.
pub fn find(objects: &Objects, moment: Moment, number: Option<u32>) -> Result<RestorePoint> {
    let mut chains = chains(&objects.list()?);
    if chains.is_empty() {
        bail!("there is no backup");
    }
    if let Some(number) = number {
        chains.retain(|&chain, _| chain == number);
        if chains.is_empty() {
            bail!("there is no chain {number}: 'ordo backup list' shows what there is");
        }
    }
    let mut whole = chains.into_values().filter(|chain| !chain.checkpoints.is_empty());
    let leads = |tip: &Tip| match moment {
        Moment::Newest => true,
        Moment::Epoch(epoch) => tip.epoch <= epoch,
        Moment::Time(time_ms) => tip.time_ms <= time_ms,
    };
    let mut found = None;
    for chain in &mut whole {
        for &epoch in &chain.checkpoints {
            let from = chain.tip_of(objects, epoch)?;
            if leads(&from) {
                found = Some(RestorePoint { chain: chain.clone(), from, until: moment });
            }
        }
    }
    found.ok_or_else(|| anyhow!("the backup begins later: 'ordo backup list' shows what there is"))
}

impl Moment {
    /// Whether an epoch is behind the moment.
    pub fn is_before(&self, tip: &Tip) -> bool {
        match self {
            Moment::Newest => false,
            Moment::Epoch(epoch) => tip.epoch > *epoch,
            Moment::Time(time_ms) => tip.time_ms > *time_ms,
        }
    }
}

/// Prints what moments there are: one line for each chain.
pub fn list(objects: &Objects) -> Result<()> {
    let names = objects.list()?;
    if names.is_empty() {
        bail!("there is no backup");
    }
    let bytes: u64 = names.values().sum();
    for chain in chains(&names).values() {
        let number = chain.number;
        let (Some(&first), Some(end)) = (chain.checkpoints.first(), chain.end(objects)?) else {
            println!("chain {number}: no checkpoint is complete, so nothing of it can be restored");
            continue;
        };
        let begin = chain.tip_of(objects, first)?;
        println!(
            "chain {number}: epochs {} to {}, {} to {}, checkpoints {}, objects of the log {}",
            begin.epoch,
            end.epoch,
            shown(begin.time_ms),
            shown(end.time_ms),
            chain.checkpoints.len(),
            chain.logs.len()
        );
    }
    println!("{} objects, {bytes} bytes", names.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_epochs_times_and_the_newest() {
        for (text, moment) in [
            ("newest", Moment::Newest),
            ("8012", Moment::Epoch(8012)),
            ("1970-01-01T00:00:01.5Z", Moment::Time(1_500)),
            ("1970-01-01 00:00:02", Moment::Time(2_000)),
        ] {
            assert_eq!(text.parse::<Moment>().expect("a moment"), moment);
        }
        assert!("yesterday".parse::<Moment>().is_err());
        assert_eq!(shown(1_500).parse::<Moment>().expect("a moment"), Moment::Time(1_500));
    }
}
