//! Updates on their way from site to site (section III-C).

use super::{Message, Pcsi, Record, SiteEffects, SiteMap, SiteOptions, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::NodeId;
use txn::mutant::{Mutant, is_active};

/// What this site has committed, for the others.
#[derive(Debug)]
pub(super) struct Outgoing {
    last_number: u64,
    /// What some other site has not acknowledged.
    retained: BTreeMap<u64, Arc<Update>>,
    /// Up to which number each other site has what concerns it.
    acknowledged: BTreeMap<NodeId, u64>,
}

impl Outgoing {
    pub fn new(options: &SiteOptions) -> Outgoing {
        let partitions = options.sites.partitions_of(options.me);
        let peers: BTreeSet<NodeId> =
            partitions.flat_map(|partition| options.sites.sites(partition)).copied().collect();
        let others = peers.into_iter().filter(|&peer| peer != options.me);
        let acknowledged = others.map(|peer| (peer, 0)).collect();
        Outgoing { last_number: 0, retained: BTreeMap::new(), acknowledged }
    }

    pub fn last_number(&self) -> u64 {
        self.last_number
    }

    pub fn len(&self) -> usize {
        self.retained.len()
    }

    /// The next update.
    pub fn add(&mut self, update: Arc<Update>, sites: &SiteMap) {
        self.last_number = update.number;
        if self.acknowledged.keys().any(|&peer| concerns(&update, peer, sites)) {
            self.retained.insert(update.number, update);
        }
    }

    /// What each other site lacks, as far as a message goes.
    pub fn batches(&self, options: &SiteOptions) -> Vec<(NodeId, Message)> {
        let lagging = self.acknowledged.iter().filter(|&(_, &after)| after < self.last_number);
        let message = |(&peer, &after): (&NodeId, &u64)| {
            let through = self.last_number.min(after + options.window);
            let updates = self.retained.range(after + 1..=through).map(|(_, update)| update);
            let updates = updates.filter(|update| concerns(update, peer, &options.sites)).cloned().collect();
            (peer, Message::Updates { after, through, updates })
        };
        lagging.map(message).collect()
    }

    /// A site has all that concerns it, up to this number.
    pub fn acknowledge(&mut self, peer: NodeId, through: u64, sites: &SiteMap) {
        if let Some(acknowledged) = self.acknowledged.get_mut(&peer) {
            *acknowledged = through.clamp(*acknowledged, self.last_number.max(*acknowledged));
        }
        let lacks = |update: &Update| {
            let mut lagging = self.acknowledged.iter().filter(|&(_, &through)| through < update.number);
            lagging.any(|(&peer, _)| concerns(update, peer, sites))
        };
        self.retained.retain(|_, update| lacks(update));
    }
}

fn concerns(update: &Update, site: NodeId, sites: &SiteMap) -> bool {
    update.stamps.keys().any(|&partition| sites.sites(partition).contains(&site))
}

/// What another site has sent.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Up to which number all that concerns this site is applied or waits.
    received: u64,
    /// What waits for others. At most a message's updates: the sender's next message starts behind what this
    /// site has acknowledged.
    waiting: BTreeMap<u64, Arc<Update>>,
}

impl Incoming {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Up to which number all that concerns this site is applied.
    fn applied(&self) -> u64 {
        self.waiting.keys().next().map_or(self.received, |first| first - 1)
    }
}

impl Pcsi {
    /// Takes updates in, applies all that may be applied, and acknowledges.
    pub(super) fn accept(
        &mut self,
        from: NodeId,
        after: u64,
        through: u64,
        updates: Vec<Arc<Update>>,
        effects: &mut SiteEffects,
    ) {
        let mut new: BTreeMap<u64, Arc<Update>> =
            updates.into_iter().map(|update| (update.number, update)).collect();
        new.retain(|_, update| !self.has_applied(update));
        let incoming = self.incoming.entry(from).or_default();
        // What this site has acknowledged, perhaps before a crash, it has applied.
        incoming.received = incoming.received.max(after).max(through);
        incoming.waiting.extend(new);
        if is_active(Mutant::AdvanceViewEarly) {
            self.count_waiting(from);
        }
        let mut advanced = BTreeSet::from([from]);
        while let Some((origin, update)) = self.take_next() {
            self.apply(&update);
            effects.records.push(Record::Applied { update });
            advanced.insert(origin);
        }
        for origin in advanced {
            let through = self.incoming[&origin].applied();
            effects.messages.push((origin, Message::Applied { through }));
        }
    }

    /// An update that waits no more.
    fn take_next(&mut self) -> Option<(NodeId, Arc<Update>)> {
        let mut waiting = self.incoming.iter().flat_map(|(&origin, incoming)| {
            incoming.waiting.iter().map(move |(&number, update)| (origin, number, update))
        });
        let (origin, number, _) = waiting.find(|(_, _, update)| self.may_apply(update))?;
        let update = self.incoming.get_mut(&origin)?.waiting.remove(&number)?;
        Some((origin, update))
    }

    /// A deliberate defect: what waits counts as applied.
    fn count_waiting(&mut self, from: NodeId) {
        let waiting: Vec<Arc<Update>> = self.incoming[&from].waiting.values().cloned().collect();
        let early = waiting.iter().filter(|update| !self.may_apply(update)).cloned().collect::<Vec<_>>();
        for update in early {
            for (partition, stamp) in &update.stamps {
                let replica = self.replicas.get_mut(partition);
                replica.into_iter().for_each(|replica| replica.view.count(*stamp));
            }
        }
    }
}
