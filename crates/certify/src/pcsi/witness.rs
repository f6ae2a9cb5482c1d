//! Writes that other sites must have before a client is told of them (note 10).
//!
//! A site counts as a *witness* of an update when it has acknowledged the update: by then the update is in
//! the site's log. The origin is a witness, too. A client is told [`Answer::Committed`] once each partition
//! that the transaction writes has as many witnesses among its own sites as
//! [`super::SiteOptions::sites_to_write_min`] says, and in as many regions as
//! [`super::SiteOptions::regions_to_write_min`] says. A site that lacks a partition keeps no writes of it, so
//! a witness of one partition does not count for another one. With two such sites, the writes survive the
//! loss of one disk, and a fence. A client that has waited for [`super::SiteOptions::sites_ticks_max`] ticks
//! is told [`Answer::Unknown`], because the transaction has committed and may yet be lost. It may ask again.
//!
//! The promise covers the writes of the transaction itself. The transaction may follow another one that only
//! its origin has, and of which no client has been told; the lost disk of that origin takes the earlier one
//! back, and what followed it remains. A transaction that only reads is told at once.
//!
//! A fenced site is no witness any more, except of an update that had enough witnesses before the fence. The
//! client of such an update hears [`Answer::Committed`] whenever it asks. A site that comes back acknowledges
//! what it has got from others. An update is *stranded* if too few sites count for one of its partitions. Its
//! client is told [`Answer::Unknown`] at once, and the update takes no other transaction's place.

use super::{Pcsi, SiteEffects, SiteOptions, Update};
use crate::Answer;
use std::collections::{BTreeMap, BTreeSet};
use txn::mutant::{Mutant, is_active};
use txn::{Key, NodeId, PartitionId, RequestId};

/// A client that waits for witnesses.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    answer: Answer,
    since_tick: u64,
}

/// An update that too few sites have.
#[derive(Debug)]
struct Unwitnessed {
    partitions: BTreeSet<PartitionId>,
    /// The origin is not among them.
    witnesses: BTreeSet<NodeId>,
    is_stranded: bool,
    waiting: Option<Waiting>,
}

/// The updates of this site that too few sites have, by their numbers.
///
/// No client waits for a stranded update.
#[derive(Debug, Default)]
pub(super) struct Witnesses(BTreeMap<u64, Unwitnessed>);

impl Witnesses {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of updates that enough sites may still have.
    pub fn expected_len(&self) -> usize {
        self.0.values().filter(|unwitnessed| !unwitnessed.is_stranded).count()
    }

    /// The site has committed an update. An earlier update may leave: the site has forgotten the update's
    /// session by now, and so tells nobody any more that it has committed.
    pub fn committed(&mut self, update: &Update, excluded: &BTreeSet<NodeId>, options: &SiteOptions) {
        if options.sites_to_write_min.max(options.regions_to_write_min) <= 1 {
            return;
        }
        let is_told_no_more = |number: u64| number.saturating_add(options.session_horizon) < update.number;
        self.0.retain(|&number, unwitnessed| unwitnessed.waiting.is_some() || !is_told_no_more(number));
        let partitions: BTreeSet<PartitionId> = update.stamps.keys().copied().collect();
        let is_stranded = !has_enough(&partitions, options, |site| !excluded.contains(&site));
        let unwitnessed = Unwitnessed { partitions, witnesses: BTreeSet::new(), is_stranded, waiting: None };
        self.0.insert(update.number, unwitnessed);
    }

    /// A client asks for an update. Returns what the client is told, unless it waits. A client that asks
    /// again while it waits, also with a later attempt of the transaction, does not wait for longer.
    pub fn ask(&mut self, number: u64, id: RequestId, answer: Answer, now: u64) -> Option<Answer> {
        let Some(unwitnessed) = self.0.get_mut(&number) else { return Some(answer) };
        if unwitnessed.is_stranded {
            return Some(Answer::Unknown);
        }
        match &mut unwitnessed.waiting {
            Some(waiting) if waiting.id.attempt < id.attempt => (waiting.id, waiting.answer) = (id, answer),
            Some(_) => {}
            waiting @ None => *waiting = Some(Waiting { id, answer, since_tick: now }),
        }
        None
    }

    /// A site has all that concerns it, up to this number. Returns what clients are told by that.
    pub fn acknowledged(
        &mut self,
        site: NodeId,
        through: u64,
        options: &SiteOptions,
    ) -> Vec<(RequestId, Answer)> {
        let is_witnessed = |_: &u64, unwitnessed: &mut Unwitnessed| {
            unwitnessed.witnesses.insert(site);
            let witnesses = &unwitnessed.witnesses;
            let has_it = |other: NodeId| other == options.me || witnesses.contains(&other);
            has_enough(&unwitnessed.partitions, options, has_it)
        };
        let witnessed = self.0.extract_if(..=through, is_witnessed);
        witnessed
            .filter_map(|(_, unwitnessed)| unwitnessed.waiting)
            .map(|waiting| (waiting.id, waiting.answer))
            .collect()
    }

    /// Other sites count now than before: what the fenced ones had is no more.
    pub fn exclude(&mut self, excluded: &BTreeSet<NodeId>, options: &SiteOptions) {
        for unwitnessed in self.0.values_mut() {
            if !is_active(Mutant::CountFencedWitnesses) {
                unwitnessed.witnesses.retain(|site| !excluded.contains(site));
            }
            let is_here = |site: NodeId| !excluded.contains(&site);
            unwitnessed.is_stranded = !has_enough(&unwitnessed.partitions, options, is_here);
        }
    }

    /// The clients that have waited since this tick or for longer, or whose update is stranded. They wait no
    /// more.
    fn give_up(&mut self, since_tick: Option<u64>) -> Vec<RequestId> {
        let late = self.0.values_mut().filter_map(|unwitnessed| {
            let is_stranded = unwitnessed.is_stranded;
            let is_late = |waiting: &mut Waiting| is_stranded || Some(waiting.since_tick) <= since_tick;
            unwitnessed.waiting.take_if(is_late)
        });
        late.map(|waiting| waiting.id).collect()
    }
}

/// Whether each of these partitions has, among its sites, enough sites of this kind in enough regions.
fn has_enough(
    partitions: &BTreeSet<PartitionId>,
    options: &SiteOptions,
    is_one: impl Fn(NodeId) -> bool,
) -> bool {
    let of = |partition: &PartitionId| options.sites.sites(*partition).iter().copied();
    if is_active(Mutant::CountOtherPartitions) {
        let all: BTreeSet<NodeId> = partitions.iter().flat_map(of).filter(|&site| is_one(site)).collect();
        return all.len() >= options.sites_to_write_min;
    }
    let is_enough = |partition| {
        let those: BTreeSet<NodeId> = of(partition).filter(|&site| is_one(site)).collect();
        those.len() >= options.sites_to_write_min
            && options.sites.count_regions(&those) >= options.regions_to_write_min
    };
    partitions.iter().all(is_enough)
}

impl Pcsi {
    /// Whether enough sites count that would get a write of these keys.
    pub(super) fn may_be_witnessed<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> bool {
        let is_here = |site: NodeId| site == self.options.me || self.fences.is_here(site);
        let partitions = keys.map(|key| self.options.sites.partition_of(key)).collect();
        has_enough(&partitions, &self.options, is_here)
    }

    /// A client is told of a commit, now or when enough sites have the update.
    pub(super) fn tell_committed(
        &mut self,
        number: u64,
        id: RequestId,
        answer: Answer,
        effects: &mut SiteEffects,
    ) {
        if is_active(Mutant::TellUnwitnessed) {
            return effects.answers.push((id, answer));
        }
        let told = self.witnesses.ask(number, id, answer, self.ticks);
        effects.answers.extend(told.map(|answer| (id, answer)));
    }

    /// Clients that have waited for witnesses for long, or that wait in vain, wait no more.
    pub(super) fn give_up_witnesses(&mut self, effects: &mut SiteEffects) {
        let late = self.witnesses.give_up(self.ticks.checked_sub(self.options.sites_ticks_max));
        effects.answers.extend(late.into_iter().map(|id| (id, Answer::Unknown)));
    }
}
