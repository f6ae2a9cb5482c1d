//! `ordo admin recover`: makes a cluster of the one node that is left of another one.

use anyhow::{Context, Result, bail};
use log::Journal;
use node::cluster::survivor::{Extent, survey};
use server::cluster::identity::Identity;
use server::disk::RealDisk;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use txn::hash::mix;

/// What it means to recover from a survivor.
const MEANING: &str = "\
Recovering from this node means:
- What this node has, up to the epochs above, is all that there is from then on. What the other nodes have
  acknowledged without it is lost for good. If it was in touch with them until they went, that is at most what
  its replicas were behind in the last moment. If it was down or cut off before, it is everything since then.
- What this node has received counts as agreed, also where nobody knows that it was. A command whose client
  got an error, or no reply, may turn out to have taken effect.
- The cluster gets a new identity. The other nodes are refused by it for good, with whatever data they come
  back. But nodes that come back are still nodes of the old cluster, and a majority of them serves clients
  with the old data: be sure that they are gone, or stay stopped.
- Until new nodes have taken the places of the others, there is one copy of the data.
- It cannot be taken back: copy the directory first.

If enough of the other nodes can be started again to be a majority, with this one, start them instead: then
nothing is lost.";

/// Makes a cluster of a stopped node's directory.
pub fn recover(dir: &Path, is_sure: bool, out: &mut dyn Write) -> Result<()> {
    let load = || -> Result<Identity> {
        let identity = Identity::load(dir)?;
        identity.with_context(|| {
            format!(
                "{} is not the data directory of a node of a cluster: it has no cluster.json. Nothing was \
                 changed: give the directory of the node that is left (--dir)",
                dir.display()
            )
        })
    };
    // A mistyped name must not become a new directory.
    load()?;
    let disk = Arc::new(RealDisk::open(dir)?);
    let mut identity = load()?;
    let random = super::unguessable();
    let (mut journal, images, _) = Journal::open(disk.clone(), log::SEGMENT_BYTES_DEFAULT, random)?;
    let cluster = mix(identity.first.cluster ^ mix(random));
    let me = identity.node;
    let found = survey(&*disk, &images, me, &identity.first, &identity.map, cluster)?;
    let map = &found.map;
    let lost = map.nodes.iter().filter(|(node, _)| **node != me);
    let lost: Vec<&str> = lost.map(|(_, entry)| entry.name.as_str()).collect();
    let lost = lost.join(", ");
    let name = map.nodes.get(&me).map_or("?", |entry| &entry.name);
    writeln!(
        out,
        "{}: the node {name} of a cluster with the other nodes {lost}. Its newest checkpoint is of epoch {}",
        dir.display(),
        found.checkpoint.0
    )?;
    for extent in &found.extents {
        writeln!(out, "{}", line(extent))?;
    }
    let kept = &found.kept;
    if kept.is_empty() {
        writeln!(
            out,
            "\nThis is done already: this node decides alone in all partitions. Nothing was changed. Start \
             it, and let new nodes take the places of the lost ones (docs/lost-majority.md)"
        )?;
        return Ok(());
    }
    if !is_sure {
        writeln!(out, "\n{MEANING}\n")?;
        bail!("nothing was changed: add --yes to make a new cluster of this node");
    }
    // The number first: under it, this node has no majority until the journal says that it needs none.
    identity.first.cluster = cluster;
    identity.map.cluster = cluster;
    identity.save(dir)?;
    let wrote = journal.append(kept);
    wrote
        .and_then(|_| journal.sync())
        .context("the journal could not be written. Make room on the disk, and run this again")?;
    writeln!(
        out,
        "\nThis directory is that of a new cluster now. Start the node with it as before, and then, for each \
         of the lost nodes ({lost}):\n\
         - delete its [[node]] from cluster.toml, and never start its old directory again,\n\
         - let a new node take its place ('ordo admin add-node', 'ordo admin remove-node';\n  \
         docs/lost-majority.md)."
    )?;
    Ok(())
}

fn line(extent: &Extent) -> String {
    let &Extent { partition, agreed, last, time_ms } = extent;
    let (seconds, millis) = (time_ms / 1000, time_ms % 1000);
    format!(
        "{partition}: kept up to epoch {} (time {seconds}.{millis:03}), known to be agreed up to epoch {}",
        last.0, agreed.0
    )
}
