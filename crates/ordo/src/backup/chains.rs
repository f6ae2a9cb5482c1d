//! What a backup has: its chains, and the order in them.

use super::format::{ChainProgress, LogObject, Manifest, Named, Tip, log_name, manifest_name, progress_name};
use super::objects::Objects;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// What there is of a chain, by the names of its objects.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Its number.
    pub number: u32,
    /// The epochs of its complete checkpoints.
    pub checkpoints: BTreeSet<u64>,
    /// The epochs of those of which there are parts.
    pub pieces: BTreeSet<u64>,
    /// The first epochs of its logs' objects.
    pub logs: BTreeSet<u64>,
}

/// The chains of a backup, by their numbers.
pub fn chains(names: &BTreeMap<String, u64>) -> BTreeMap<u32, Chain> {
    let mut chains: BTreeMap<u32, Chain> = BTreeMap::new();
    for named in names.keys().filter_map(|name| Named::of(name)) {
        let number = match named {
            Named::Manifest(chain, _) | Named::Piece(chain, _) => chain,
            Named::Log(chain, _) | Named::Progress(chain) => chain,
        };
        let chain = chains.entry(number).or_insert_with(|| Chain { number, ..Chain::default() });
        match named {
            Named::Manifest(_, epoch) => _ = chain.checkpoints.insert(epoch),
            Named::Piece(_, epoch) => _ = chain.pieces.insert(epoch),
            Named::Log(_, first) => _ = chain.logs.insert(first),
            Named::Progress(_) => {}
        }
    }
    chains
}

impl Chain {
    /// What its checkpoint of an epoch says of itself.
    pub fn manifest(&self, objects: &Objects, epoch: u64) -> Result<Manifest> {
        let name = manifest_name(self.number, epoch);
        let manifest: Manifest = serde_json::from_slice(&objects.get(&name)?)
            .with_context(|| format!("{name} cannot be read: it is of another version of Ordo"))?;
        match (manifest.version, manifest.epoch == epoch) {
            (1, true) => Ok(manifest),
            _ => bail!("{name} cannot be read: it is of another version of Ordo"),
        }
    }

    /// How far it goes, as it says.
    pub fn progress(&self, objects: &Objects) -> Result<Option<ChainProgress>> {
        let name = progress_name(self.number);
        let Some(bytes) = objects.find(&name)? else { return Ok(None) };
        let progress = serde_json::from_slice(&bytes);
        progress.map(Some).with_context(|| format!("{name} cannot be read: it is of another version of Ordo"))
    }

    /// The epochs of its complete checkpoints, with those that were lost since.
    pub fn checkpoints_ever(&self, objects: &Objects) -> Result<BTreeSet<u64>> {
        let said = self.progress(objects)?.map(|progress| progress.checkpoints).unwrap_or_default();
        Ok(self.checkpoints.iter().copied().chain(said).collect())
    }

    /// An object of its log.
    pub fn log(&self, objects: &Objects, first: u64) -> Result<LogObject> {
        let name = log_name(self.number, first);
        let object = LogObject::decode(&name, &objects.get(&name)?)?;
        match object.first == first {
            true => Ok(object),
            false => bail!("{name} has the batches of another epoch"),
        }
    }

    /// Walks over the order behind a place, up to the end of the chain, and holds each object against what
    /// came before it. `take` gets each epoch's end and batches, until it says that it has enough.
    ///
    /// # Errors
    /// An object is missing or damaged, or does not follow; or `take` failed.
    pub fn walk(
        &self,
        objects: &Objects,
        from: Tip,
        take: &mut dyn FnMut(&Tip, &[Bytes]) -> Result<bool>,
    ) -> Result<Tip> {
        let mut tip = from;
        let before = self.logs.range(..=from.epoch).next_back().copied();
        let behind = self.logs.range(from.epoch + 1..).copied();
        for first in before.into_iter().chain(behind) {
            if first > tip.epoch + 1 {
                bail!(
                    "{}: the epochs from {} to {} are missing",
                    log_name(self.number, first),
                    tip.epoch + 1,
                    first - 1
                );
            }
            let object = self.log(objects, first)?;
            let name = log_name(self.number, first);
            // The object in which the place lies is not checked up to there: a walk from an older place does.
            if first == tip.epoch + 1 && object.digest_before != tip.digest {
                bail!("{name} does not follow what is before it: the chained digest differs");
            }
            let skip = (tip.epoch + 1 - first) as usize;
            for batches in object.epochs.iter().skip(skip) {
                tip = tip.after(batches).with_context(|| name.clone())?;
                if !take(&tip, batches)? {
                    return Ok(tip);
                }
            }
        }
        Ok(tip)
    }

    /// The end of the chain, which has a checkpoint or a log, by its last object.
    pub fn end(&self, objects: &Objects) -> Result<Option<Tip>> {
        let manifest = match self.checkpoints.last() {
            Some(&epoch) => Some(self.tip_of(objects, epoch)?),
            None => None,
        };
        let Some(&first) = self.logs.last() else { return Ok(manifest) };
        let object = self.log(objects, first)?;
        let mut tip = Tip { epoch: first - 1, time_ms: 0, digest: object.digest_before };
        for batches in &object.epochs {
            tip = tip.after(batches).with_context(|| log_name(self.number, first))?;
        }
        Ok(Some(manifest.filter(|manifest| manifest.epoch > tip.epoch).unwrap_or(tip)))
    }

    /// The place of a checkpoint.
    pub fn tip_of(&self, objects: &Objects, epoch: u64) -> Result<Tip> {
        let manifest = self.manifest(objects, epoch)?;
        let digest =
            u64::from_str_radix(&manifest.digest, 16).context("a digest in a manifest is no number")?;
        Ok(Tip { epoch, time_ms: manifest.time_ms, digest })
    }
}
