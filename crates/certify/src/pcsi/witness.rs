//! Writes that other sites must have before a client is told of them (note 10).
//!
//! A site counts as a *witness* of an update when it has acknowledged the update: by then the update is in
//! the site's log. The origin is a witness, too. A client is told [`Answer::Committed`] once as many sites as
//! [`super::SiteOptions::sites_to_write_min`] says are witnesses; so the write survives the loss of one disk
//! or a fence if that is 2. A client that has waited for [`super::SiteOptions::sites_ticks_max`] ticks is
//! told [`Answer::Unknown`], because the transaction has committed and may yet be lost. It may ask again.
//!
//! A fenced site is no witness any more. A site that comes back acknowledges what it has got from others.

use super::propagation::concerns;
use super::{Pcsi, SiteEffects, SiteMap, SiteOptions, Update};
use crate::Answer;
use std::collections::{BTreeMap, BTreeSet};
use txn::mutant::{Mutant, is_active};
use txn::{Key, NodeId, RequestId};

/// An update that too few sites have.
#[derive(Debug)]
struct Unwitnessed {
    /// The sites that it concerns, but for the origin.
    concerned: BTreeSet<NodeId>,
    witnesses: BTreeSet<NodeId>,
    /// The client that waits, what it will be told, and since when it has waited.
    asked: Option<(RequestId, Answer, u64)>,
}

/// The updates of this site that too few sites have, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Witnesses(BTreeMap<u64, Unwitnessed>);

impl Witnesses {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The site has committed an update. Returns whether other sites must have it, too.
    pub fn committed(&mut self, update: &Update, options: &SiteOptions) -> bool {
        if options.sites_to_write_min <= 1 {
            return false;
        }
        let mut concerned = options.sites.peers_of(options.me);
        concerned.retain(|&site| concerns(update, site, &options.sites));
        let unwitnessed = Unwitnessed { concerned, witnesses: BTreeSet::new(), asked: None };
        self.0.insert(update.number, unwitnessed);
        true
    }

    /// A client waits for an update. Returns whether too few sites have it. A client that asks again while it
    /// waits does not wait for longer.
    pub fn ask(&mut self, number: u64, id: RequestId, answer: Answer, now: u64) -> bool {
        let Some(unwitnessed) = self.0.get_mut(&number) else { return false };
        let earlier = unwitnessed.asked.take().filter(|(asked, ..)| *asked == id);
        unwitnessed.asked = Some(earlier.unwrap_or((id, answer, now)));
        true
    }

    /// A site has all that concerns it, up to this number. Returns what clients are told by that.
    pub fn acknowledged(
        &mut self,
        site: NodeId,
        through: u64,
        options: &SiteOptions,
    ) -> Vec<(RequestId, Answer)> {
        for (_, unwitnessed) in self.0.range_mut(..=through) {
            if unwitnessed.concerned.contains(&site) {
                unwitnessed.witnesses.insert(site);
            }
        }
        let has_enough = |_: &u64, unwitnessed: &mut Unwitnessed| {
            unwitnessed.witnesses.len() + 1 >= options.sites_to_write_min
        };
        let witnessed = self.0.extract_if(..=through, has_enough);
        witnessed
            .filter_map(|(_, unwitnessed)| unwitnessed.asked)
            .map(|(id, answer, _)| (id, answer))
            .collect()
    }

    /// A site is fenced: what it had is no more.
    pub fn exclude(&mut self, site: NodeId) {
        self.0.values_mut().for_each(|unwitnessed| {
            unwitnessed.witnesses.remove(&site);
        });
    }

    /// The clients that have waited since then, or for longer. They wait no more.
    fn give_up(&mut self, since_tick: u64) -> Vec<RequestId> {
        let asked = self.0.values_mut().map(|unwitnessed| &mut unwitnessed.asked);
        let late = asked.filter_map(|asked| asked.take_if(|(.., since)| *since <= since_tick));
        late.map(|(id, ..)| id).collect()
    }
}

/// Whether so many sites that count have a partition of one of these keys.
fn concern_enough<'a>(
    keys: impl Iterator<Item = &'a Key>,
    sites: &SiteMap,
    is_here: impl Fn(&NodeId) -> bool,
    sites_min: usize,
) -> bool {
    let concerned = keys.flat_map(|key| sites.sites(sites.partition_of(key)));
    concerned.filter(|site| is_here(site)).collect::<BTreeSet<_>>().len() >= sites_min
}

impl Pcsi {
    /// Whether enough sites count that would get a write of these keys.
    pub(super) fn may_be_witnessed<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> bool {
        let is_here = |&site: &NodeId| site == self.options.me || self.fences.is_here(site);
        concern_enough(keys, &self.options.sites, is_here, self.options.sites_to_write_min)
    }

    /// A client is told of a commit, now or when enough sites have the update.
    pub(super) fn tell_committed(
        &mut self,
        number: u64,
        id: RequestId,
        answer: Answer,
        effects: &mut SiteEffects,
    ) {
        let waits = self.witnesses.ask(number, id, answer.clone(), self.ticks);
        if !waits || is_active(Mutant::TellUnwitnessed) {
            effects.answers.push((id, answer));
        }
    }

    /// Clients that have waited for witnesses for long wait no more.
    pub(super) fn tick_witnesses(&mut self, effects: &mut SiteEffects) {
        if let Some(since_tick) = self.ticks.checked_sub(self.options.sites_ticks_max) {
            let late = self.witnesses.give_up(since_tick);
            effects.answers.extend(late.into_iter().map(|id| (id, Answer::Unknown)));
        }
    }
}
