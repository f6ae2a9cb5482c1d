//! `ordo backup verify`: proves that all is there and undamaged.

use super::chains::{Chain, chains};
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
    let Some(&first) = chain.checkpoints.first() else { return Ok(None) };
    let from = chain.tip_of(objects, first)?;
    let mut replay = begin(objects, chain, first)?;
    check_state(objects, chain, &replay)?;
    let end = chain.walk(objects, from, &mut |_, batches| {
        replay.execute(batches)?;
        check_state(objects, chain, &replay)?;
        Ok(true)
    })?;
    // The later ones: their files, too.
    for &epoch in chain.checkpoints.iter().skip(1) {
        if epoch > end.epoch {
            bail!("the order that leads to the checkpoint of epoch {epoch} is missing");
        }
        begin(objects, chain, epoch)?;
    }
    if let Some(progress) = chain.progress(objects)?
        && progress.epoch > end.epoch
    {
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
