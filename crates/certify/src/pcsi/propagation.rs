//! Updates on their way from site to site (section III-C).

use super::{Message, Pcsi, Record, SiteEffects, SiteMap, SiteOptions, Update, VectorClock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{NodeId, PartitionId};

/// A message carries updates of at most this number of bytes ([`Update::bytes`]), unless one alone has more.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// The wait before updates are sent once more grows up to this multiple of `silent_ticks_max`.
const RESEND_SILENCES_MAX: u64 = 4;

/// A longer queue of a site is not counted exactly.
const QUEUE_COUNTED_MAX: u64 = 4_096;

/// An update that some other site has not acknowledged.
#[derive(Debug)]
struct Retained {
    update: Arc<Update>,
    since_tick: u64,
}

/// How far another site is with the updates of this one.
#[derive(Debug)]
struct Peer {
    /// It has what concerns it up to this number.
    acknowledged: u64,
    /// This process has sent what concerns it up to this number. Never below `acknowledged`.
    sent: u64,
    /// When it last acknowledged something new, or was first sent what it has not acknowledged.
    progress_tick: u64,
    /// If it acknowledges nothing new for so long, it is sent again what it lacks. 0: not set yet.
    wait_ticks: u64,
    /// It has acknowledged something since it was admitted as a new incarnation.
    has_state: bool,
    /// The link is new: the other site may have restarted, and wait to hear this one.
    is_new_link: bool,
}

impl Peer {
    fn new(acknowledged: u64) -> Peer {
        let (progress_tick, wait_ticks) = (0, 0);
        Peer {
            acknowledged,
            sent: acknowledged,
            progress_tick,
            wait_ticks,
            has_state: true,
            is_new_link: false,
        }
    }

    /// Updates that were sent and not acknowledged are sent again at once.
    fn begin_again(&mut self) {
        (self.sent, self.wait_ticks, self.is_new_link) = (self.acknowledged, 0, true);
    }

    /// Decides whether what was sent is lost, or the acknowledgement: then it is sent again.
    fn check_silence(&mut self, now: u64, options: &SiteOptions) {
        let first = (options.silent_ticks_max / 2).max(1);
        self.wait_ticks = self.wait_ticks.max(first);
        if self.sent == self.acknowledged {
            self.progress_tick = now;
        } else if now.saturating_sub(self.progress_tick) >= self.wait_ticks {
            (self.sent, self.progress_tick) = (self.acknowledged, now);
            self.wait_ticks = (2 * self.wait_ticks).min(RESEND_SILENCES_MAX * options.silent_ticks_max);
        }
    }
}

/// The updates that this site has committed, for the others.
#[derive(Debug)]
pub(super) struct Outgoing {
    last_number: u64,
    /// The updates that some other site has not acknowledged.
    retained: BTreeMap<u64, Retained>,
    /// About how many bytes these updates have.
    bytes: usize,
    /// The other sites that get updates.
    peers: BTreeMap<NodeId, Peer>,
    /// The sites whose numbers the log does not have yet.
    unlogged: BTreeSet<NodeId>,
}

impl Outgoing {
    /// The first number will be the one after `last_number`. All sites but the excluded ones get updates.
    pub fn new(options: &SiteOptions, last_number: u64, excluded: &BTreeSet<NodeId>) -> Outgoing {
        let peers = options.sites.peers_of(options.me).into_iter().filter(|peer| !excluded.contains(peer));
        let peers = peers.map(|peer| (peer, Peer::new(last_number))).collect();
        Outgoing { last_number, retained: BTreeMap::new(), bytes: 0, peers, unlogged: BTreeSet::new() }
    }

    /// A site is fenced: nothing is kept for it. Returns what all others have.
    pub fn exclude(&mut self, peer: NodeId, sites: &SiteMap) -> Vec<Arc<Update>> {
        self.peers.remove(&peer);
        self.unlogged.remove(&peer);
        let peers = &self.peers;
        let lacks = |update: &Update| {
            let mut lagging = peers.iter().filter(|(_, peer)| peer.acknowledged < update.number);
            lagging.any(|(&peer, _)| concerns(update, peer, sites))
        };
        let released = self.retained.extract_if(.., |_, retained| !lacks(&retained.update));
        let released: Vec<Arc<Update>> = released.map(|(_, retained)| retained.update).collect();
        self.release(released)
    }

    /// A site counts again. It will fetch from others what is retained no more.
    pub fn admit(&mut self, peer: NodeId, options: &SiteOptions) {
        if options.sites.peers_of(options.me).contains(&peer) {
            let first = self.retained.first_key_value();
            let through = first.map_or(self.last_number, |(&number, _)| number - 1);
            self.peers.insert(peer, Peer { has_state: false, ..Peer::new(through) });
        }
    }

    /// A link to another site is new: what was sent on the one before may be lost.
    pub fn reconnected(&mut self, peer: NodeId) {
        self.peers.get_mut(&peer).into_iter().for_each(Peer::begin_again);
    }

    /// The updates that some other site has not acknowledged.
    pub fn retained(&self) -> Vec<Arc<Update>> {
        self.retained.values().map(|retained| Arc::clone(&retained.update)).collect()
    }

    pub fn last_number(&self) -> u64 {
        self.last_number
    }

    pub fn len(&self) -> usize {
        self.retained.len()
    }

    /// The updates that no other site concerned has acknowledged: how many, the first one and the last one.
    pub fn unacknowledged(&self, sites: &SiteMap) -> Option<(u64, u64, u64)> {
        let has = |(&peer, known): (&NodeId, &Peer), update: &Update| {
            known.acknowledged >= update.number && concerns(update, peer, sites)
        };
        let is_alone = |retained: &&Retained| !self.peers.iter().any(|peer| has(peer, &retained.update));
        let mut alone = self.retained.values().filter(is_alone).map(|retained| retained.update.number);
        let first = alone.next()?;
        let (rest, last) = alone.fold((0, first), |(rest, _), number| (rest + 1, number));
        Some((1 + rest, first, last))
    }

    /// About how many bytes the updates have that are kept for others.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a site has recorded all that concerns it, up to this number.
    pub fn is_at(&self, peer: NodeId, number: u64) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.has_state && peer.acknowledged >= number)
    }

    /// How many updates a site has not acknowledged, and when the oldest of them was committed. A long queue
    /// is not counted one by one: its updates for other sites are in the number, too.
    pub fn queue_of(&self, peer: NodeId, sites: &SiteMap) -> (u64, Option<u64>) {
        let after = self.peers.get(&peer).map_or(self.last_number, |peer| peer.acknowledged);
        let behind = self.retained.range(after.saturating_add(1)..);
        let mut behind = behind.filter(|(_, retained)| concerns(&retained.update, peer, sites));
        let oldest = behind.next().map(|(_, retained)| retained.since_tick);
        match self.last_number - after {
            numbers if numbers > QUEUE_COUNTED_MAX => (numbers, oldest),
            _ => (u64::from(oldest.is_some()) + behind.count() as u64, oldest),
        }
    }

    /// The next update. Returns whether no other site needs it.
    pub fn add(&mut self, update: Arc<Update>, sites: &SiteMap, now: u64) -> bool {
        self.last_number = update.number;
        let is_needed = self.peers.keys().any(|&peer| concerns(&update, peer, sites));
        if is_needed {
            self.bytes += update.bytes();
            self.retained.insert(update.number, Retained { update, since_tick: now });
        }
        !is_needed
    }

    /// The updates that each other site lacks and was not sent, as far as a message goes. At most a message's
    /// updates are on their way to a site. A heartbeat goes also to those for which there is nothing new.
    pub fn batches(&mut self, is_heartbeat: bool, now: u64, options: &SiteOptions) -> Vec<(NodeId, Message)> {
        let mut runs = None;
        let mut messages = Vec::new();
        for (&to, peer) in &mut self.peers {
            peer.check_silence(now, options);
            let is_heartbeat = is_heartbeat || std::mem::take(&mut peer.is_new_link);
            let (after, sent) = (peer.acknowledged, peer.sent);
            let mut through = self.last_number.min(after + options.window);
            if through <= sent && !is_heartbeat {
                continue;
            }
            let mut updates = Vec::new();
            let mut bytes = 0;
            for (&number, Retained { update, .. }) in
                self.retained.range((Bound::Excluded(after), Bound::Included(through)))
            {
                if !concerns(update, to, &options.sites) {
                    continue;
                }
                let is_first = bytes == 0;
                bytes += update.bytes();
                if bytes > BATCH_BYTES_MAX && !is_first {
                    through = number - 1;
                    break;
                }
                if number > sent {
                    updates.push(Arc::clone(update));
                }
            }
            through = through.max(sent);
            if through == sent && !is_heartbeat {
                continue;
            }
            peer.sent = through;
            let runs = runs.get_or_insert_with(|| runs_of(self.retained.keys()));
            let earlier = runs.iter().take_while(|(first, _)| *first <= after);
            let retained = earlier.map(|&(first, last)| (first, last.min(after))).collect();
            let last = self.last_number;
            messages.push((to, Message::Updates { after, sent, through, last, retained, updates }));
        }
        messages
    }

    /// A site has all that concerns it, up to this number. Returns what all sites have by that.
    pub fn acknowledge(&mut self, peer: NodeId, through: u64, now: u64, sites: &SiteMap) -> Vec<Arc<Update>> {
        let Some(known) = self.peers.get_mut(&peer) else { return Vec::new() };
        known.has_state = true;
        let before = known.acknowledged;
        let through = through.min(self.last_number);
        if through <= before {
            return Vec::new();
        }
        let (sent, is_new_link) = (known.sent.max(through), known.is_new_link);
        *known = Peer { sent, is_new_link, progress_tick: now, ..Peer::new(through) };
        self.unlogged.insert(peer);
        let peers = &self.peers;
        let lacks = |update: &Update| {
            let mut lagging = peers.iter().filter(|(_, peer)| peer.acknowledged < update.number);
            let is_dropped = is_active(Mutant::DropAtFirstAcknowledgement) && concerns(update, peer, sites);
            lagging.any(|(&peer, _)| concerns(update, peer, sites)) && !is_dropped
        };
        // The acknowledgement says nothing new of any other update.
        let concerned =
            self.retained.extract_if(before + 1..=through, |_, retained| !lacks(&retained.update));
        let released: Vec<Arc<Update>> = concerned.map(|(_, retained)| retained.update).collect();
        self.release(released)
    }

    /// These updates are kept no more.
    fn release(&mut self, released: Vec<Arc<Update>>) -> Vec<Arc<Update>> {
        self.bytes -= released.iter().map(|update| update.bytes()).sum::<usize>();
        released
    }

    /// The acknowledgements since the last call, for the log.
    pub fn take_unlogged(&mut self) -> BTreeMap<NodeId, u64> {
        let unlogged = std::mem::take(&mut self.unlogged);
        unlogged.into_iter().map(|peer| (peer, self.peers[&peer].acknowledged)).collect()
    }
}

/// Numbers in their order, as the first and the last one of each run of numbers.
fn runs_of<'a>(numbers: impl Iterator<Item = &'a u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}

pub(super) fn concerns(update: &Update, site: NodeId, sites: &SiteMap) -> bool {
    update.stamps.keys().any(|&partition| sites.sites(partition).contains(&site))
}

/// The updates that another site has committed.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Up to which number all that concerns this site is applied or waits.
    received: u64,
    /// The updates that wait for others. At most those of a message of each other site.
    waiting: BTreeMap<u64, Arc<Update>>,
    /// The updates that are applied here, and may not be at all sites concerned.
    held: BTreeMap<u64, Arc<Update>>,
    /// The updates that are no more in `held`, where the log does not say so yet.
    unlogged: BTreeSet<u64>,
    /// The newest update that the origin has told this process of.
    told: u64,
    /// When a message of the origin last let this site apply an update, or showed that this site has all.
    heard_tick: u64,
}

impl Incoming {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }

    /// Up to which number all that concerns this site is applied.
    pub fn applied(&self) -> u64 {
        let first = self.waiting.keys().next();
        first.map_or(self.received, |first| self.received.min(first - 1))
    }

    /// The number of updates that are applied here, and may not be at all sites concerned.
    pub fn held_len(&self) -> usize {
        self.held.len()
    }

    /// How many numbers the origin has told of behind both what has come from it and this number. Those of
    /// updates that do not concern this site are among them.
    pub fn told_behind(&self, number: u64) -> u64 {
        self.told.saturating_sub(self.received.max(number))
    }

    /// The number of updates that wait for others.
    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// See `heard_tick`.
    pub fn heard_tick(&self) -> u64 {
        self.heard_tick
    }

    /// The updates that are applied here, and may not be at all sites concerned.
    pub fn held(&self) -> Vec<Arc<Update>> {
        self.held.values().cloned().collect()
    }

    /// The numbers up to this one of what is held, beside those of these runs.
    fn held_beside(&self, runs: &[(u64, u64)], through: u64) -> BTreeSet<u64> {
        let runs = if is_active(Mutant::ReleaseEarly) { &[] } else { runs };
        let (mut beside, mut from) = (BTreeSet::new(), 0);
        let end = through.saturating_add(1);
        for &(first, last) in runs.iter().chain([&(end, end)]) {
            let first = first.min(end);
            if from < first {
                beside.extend(self.held.range(from..first).map(|(&number, _)| number));
            }
            from = last.saturating_add(1).max(from);
        }
        beside
    }

    /// The updates that wait for others.
    pub fn waiting(&self) -> impl Iterator<Item = &Arc<Update>> {
        self.waiting.values()
    }

    /// All updates that this site has, and others may lack.
    pub fn all(&self) -> Vec<Arc<Update>> {
        self.held.values().chain(self.waiting.values()).cloned().collect()
    }

    /// The site is fenced: of its updates these wait, and the next ones have numbers above this one.
    pub fn begin_again(&mut self, base: u64, waiting: Vec<Arc<Update>>) {
        let is_later = |number: &u64, _: &mut Arc<Update>| *number > base;
        self.waiting.retain(is_later);
        self.waiting.extend(waiting.into_iter().map(|update| (update.number, update)));
        self.received = self.received.max(base);
    }

    /// An update waits no more, as the log says.
    pub fn wait_no_more(&mut self, number: u64) {
        self.waiting.remove(&number);
    }

    /// The site was heard, or has just come back.
    pub fn heard(&mut self, tick: u64) {
        self.heard_tick = tick;
    }

    /// All sites concerned have all updates.
    pub fn release_all(&mut self) -> Vec<Arc<Update>> {
        std::mem::take(&mut self.held).into_values().collect()
    }

    /// An update is applied.
    pub fn hold(&mut self, update: Arc<Update>) {
        self.held.insert(update.number, update);
    }

    /// All sites concerned have these updates.
    pub fn release(&mut self, numbers: &BTreeSet<u64>) -> Vec<Arc<Update>> {
        numbers.iter().filter_map(|number| self.held.remove(number)).collect()
    }
}

impl Pcsi {
    /// There is a new link to another site, as far as the caller knows of links: messages before may be lost.
    pub fn reconnected(&mut self, peer: NodeId) {
        self.outgoing.reconnected(peer);
        self.fetch_again(peer);
    }

    /// Takes updates of their origin in, applies all that may be applied, and acknowledges.
    pub(super) fn accept(
        &mut self,
        from: NodeId,
        (after, sent, through, last): (u64, u64, u64, u64),
        retained: &[(u64, u64)],
        updates: Vec<Arc<Update>>,
        effects: &mut SiteEffects,
    ) {
        self.fences.has_returned(from);
        let incoming = self.incoming.entry(from).or_default();
        incoming.told = incoming.told.max(last);
        let applied = incoming.applied();
        let done = incoming.held_beside(retained, after);
        incoming.unlogged.extend(&done);
        let stable = incoming.release(&done);
        // This site has applied all that it has acknowledged, perhaps before a crash.
        incoming.received = incoming.received.max(after);
        // A message before this one may be lost: then the origin sends again all that is not acknowledged.
        let follows = sent <= incoming.received;
        if follows {
            incoming.received = incoming.received.max(through);
        }
        stable.iter().for_each(|update| self.mark_stable(update));
        if follows {
            self.accept_waiting(from, updates);
        }
        if is_active(Mutant::AdvanceViewEarly) {
            self.count_waiting(from);
        }
        let mut advanced = self.apply_waiting(effects);
        // An origin that does not hear this site sends the same updates again, and never later ones.
        if let Some(incoming) = self.incoming.get_mut(&from)
            && (incoming.applied() > applied || incoming.applied() >= last)
        {
            incoming.heard_tick = self.ticks;
        }
        advanced.insert(from);
        self.acknowledge(advanced, effects);
    }

    /// Takes updates in that another site than their origin has sent. Only what their origin sends is
    /// acknowledged: so the origin's bound on what it retains is one on what this site holds of it.
    pub(super) fn accept_relayed(
        &mut self,
        origin: NodeId,
        updates: Vec<Arc<Update>>,
        effects: &mut SiteEffects,
    ) {
        self.accept_waiting(origin, updates);
        self.apply_waiting(effects);
    }

    fn accept_waiting(&mut self, origin: NodeId, updates: Vec<Arc<Update>>) {
        let mut new: BTreeMap<u64, Arc<Update>> =
            updates.into_iter().map(|update| (update.number, update)).collect();
        new.retain(|_, update| !self.has_applied(update) && self.is_taken(update));
        self.incoming.entry(origin).or_default().waiting.extend(new);
    }

    /// Whether an update is one of its site's present incarnation, and that one is not to be fenced.
    fn is_taken(&self, update: &Update) -> bool {
        let name = update.name;
        let is_present =
            self.fences.is_here(name.origin) && self.fences.incarnation_of(name.origin) == name.incarnation;
        is_present || is_active(Mutant::HearFenced)
    }

    /// Applies what need not wait any more. Returns the origins concerned.
    pub(super) fn apply_waiting(&mut self, effects: &mut SiteEffects) -> BTreeSet<NodeId> {
        let mut advanced = BTreeSet::new();
        while let Some((origin, update)) = self.take_next() {
            self.apply(&update);
            if let Some(incoming) = self.incoming.get_mut(&origin) {
                incoming.hold(Arc::clone(&update));
            }
            effects.records.push(Record::Applied { update });
            self.count_lost(origin);
            advanced.insert(origin);
        }
        advanced
    }

    fn acknowledge(&self, origins: BTreeSet<NodeId>, effects: &mut SiteEffects) {
        for origin in origins {
            let through = self.incoming[&origin].applied();
            self.post(origin, Message::Applied { through }, effects);
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

    /// Whether another site is not silent (see "Gaps" at the module's head).
    pub(super) fn is_heard(&self, site: NodeId) -> bool {
        let heard_tick = self.incoming.get(&site).map_or(0, |incoming| incoming.heard_tick);
        self.ticks - heard_tick <= self.options.silent_ticks_max
    }

    /// Asks for the updates of each origin that has been silent: one of the sites that may hold such updates,
    /// each time another one. That site need not have a partition of this one: it may hold an update of the
    /// origin for another partition, and what it commits depends on the update.
    pub(super) fn ask_for_updates(&self, effects: &mut SiteEffects) {
        if is_active(Mutant::WaitForOrigin) {
            return;
        }
        let sites = Arc::clone(&self.options.sites);
        let periods = self.ticks / self.options.propagation_ticks;
        for origin in sites.peers_of(self.options.me) {
            if self.is_heard(origin) || !self.fences.is_here(origin) {
                continue;
            }
            let mut holders = sites.peers_of(origin);
            holders.retain(|&site| site != self.options.me && self.fences.is_here(site));
            let holders: Vec<NodeId> = holders.into_iter().collect();
            let Some(place) = periods.checked_rem(holders.len() as u64) else { continue };
            let views = self.replicas.iter().map(|(&of, replica)| (of, replica.view.clone())).collect();
            self.post(holders[place as usize], Message::Want { origin, views }, effects);
        }
    }

    /// Sends the updates of an origin that this site holds and another site may apply to replicas with these
    /// views, as far as a message goes. The others are not sent: one that waits for what no running site
    /// has would take the place of updates that the other site may apply.
    pub(super) fn relay(
        &self,
        to: NodeId,
        origin: NodeId,
        mut views: BTreeMap<PartitionId, VectorClock>,
        effects: &mut SiteEffects,
    ) {
        let Some(incoming) = self.incoming.get(&origin) else { return };
        let mut updates = Vec::new();
        let mut bytes = 0;
        for update in incoming.held.values() {
            let is_lacked = !update.is_counted(|of| views.get(&of)) && update.may_follow(|of| views.get(&of));
            if is_lacked && updates.len() < self.options.window as usize && bytes <= BATCH_BYTES_MAX {
                bytes += update.bytes();
                for (of, &stamp) in &update.stamps {
                    views.entry(*of).and_modify(|view| view.count(stamp));
                }
                updates.push(Arc::clone(update));
            }
        }
        if !updates.is_empty() {
            self.post(to, Message::Relayed { origin, updates }, effects);
        }
    }

    /// Records the acknowledgements that the log does not have yet, and the updates that are held no more.
    pub(super) fn log_progress(&mut self, effects: &mut SiteEffects) {
        let acknowledged = self.outgoing.take_unlogged();
        let mut stable = BTreeMap::new();
        for (&origin, incoming) in &mut self.incoming {
            let numbers = std::mem::take(&mut incoming.unlogged);
            if !numbers.is_empty() {
                stable.insert(origin, numbers);
            }
        }
        if !acknowledged.is_empty() || !stable.is_empty() {
            effects.records.push(Record::Progress { acknowledged, stable });
        }
    }

    /// Does again what [`Pcsi::log_progress`] has recorded.
    pub(super) fn recall_progress(
        &mut self,
        acknowledged: &BTreeMap<NodeId, u64>,
        stable: &BTreeMap<NodeId, BTreeSet<u64>>,
    ) {
        if is_active(Mutant::ForgetAcknowledgements) {
            return;
        }
        for (&peer, &through) in acknowledged {
            let sent = self.outgoing.acknowledge(peer, through, self.ticks, &self.options.sites);
            self.witnesses.acknowledged(peer, through, &self.options);
            sent.iter().for_each(|update| self.mark_stable(update));
        }
        self.outgoing.take_unlogged();
        for (origin, numbers) in stable {
            let held = self.incoming.get_mut(origin).map(|incoming| incoming.release(numbers));
            held.unwrap_or_default().iter().for_each(|update| self.mark_stable(update));
        }
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
