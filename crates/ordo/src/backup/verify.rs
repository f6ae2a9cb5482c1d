//! `ordo backup verify`: proves that all is there and undamaged.

use super::chains::{Chain, chains};
use super::format::{manifest_name, progress_name};
use super::moment::shown;
use super::objects::Objects;
use super::restore::{begin, check_state};
use anyhow::{Result, bail};

/// Reads all objects, and executes the order of each chain from its first checkpoint on: so each later
/// checkpoint is held against the state that the order leads to.
pub fn run(objects: &Objects) -> Result<()> {
    let names = objects.list()?;
    let chains = chains(&names);
    let mut problems = Vec::new();
    let mut good = 0;
    for chain in chains.values() {
        match verify(objects, chain) {
            Ok(Some(text)) => {
                good += 1;
                println!("{text}");
            }
            Ok(None) => {
                println!(
                    "chain {}: no checkpoint is complete, so nothing of it can be restored",
                    chain.number
                );
            }
            Err(error) => problems.push(format!("chain {}: {error:#}", chain.number)),
        }
    }
    match (problems.is_empty(), good) {
        (true, 0) => bail!("there is nothing that could be restored"),
        (true, _) => Ok(()),
        (false, _) => bail!("the backup is damaged:\n  {}", problems.join("\n  ")),
    }
}

/// What there is of a chain, for people; `None` if nothing can be restored of it.
fn verify(objects: &Objects, chain: &Chain) -> Result<Option<String>> {
    if let Some(epoch) = chain.checkpoints_ever(objects)?.difference(&chain.checkpoints).next() {
        bail!("{} is missing", manifest_name(chain.number, *epoch));
    }
    let Some(&first) = chain.checkpoints.first() else { return Ok(None) };
    let Some(progress) = chain.progress(objects)? else {
        bail!(
            "{} is missing: which requests are not to be executed is not known",
            progress_name(chain.number)
        );
    };
    let from = chain.tip_of(objects, first)?;
    let mut replay = begin(objects, chain, first)?;
    check_state(objects, chain, &replay)?;
    let end = chain.walk(objects, from, &mut |tip, batches| {
        replay.execute(batches)?;
        check_state(objects, chain, &replay)?;
        // A later checkpoint: its files, too.
        if chain.checkpoints.contains(&tip.epoch)
            && begin(objects, chain, tip.epoch)?.content_digest() != replay.content_digest()
        {
            bail!("the checkpoint of epoch {} has other entries than the order leads to", tip.epoch);
        }
        Ok(true)
    })?;
    if let Some(&epoch) = chain.checkpoints.last()
        && epoch > end.epoch
    {
        bail!("the order that leads to the checkpoint of epoch {epoch} is missing");
    }
    if progress.epoch > end.epoch {
        bail!("the epochs from {} to {} are missing", end.epoch + 1, progress.epoch);
    }
    Ok(Some(format!(
        "chain {}: whole and undamaged from epoch {} ({}) to epoch {} ({}); content digest {:016x}",
        chain.number,
        from.epoch,
        shown(from.time_ms),
        end.epoch,
        shown(end.time_ms),
        replay.content_digest()
    )))
}
