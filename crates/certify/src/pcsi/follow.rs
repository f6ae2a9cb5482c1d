//! Clients that have brought a token wait until their site has what it counts (`token.rs`).
//!
//! **Partitions of the site.** The site's views must cover the token.
//!
//! **Other partitions.** No view of the site tells which numbers there belong to updates that a running site
//! has. If the site followed a number that is lost, or that only a site has which is away, then no holder
//! could answer a read of that partition, and all later updates of the site would wait for the number at the
//! holders: one client would stall the others. So the site follows nothing that no holder has confirmed. It
//! asks the sites that have the partition for their views ([`Message::AskView`]), in turn, until one of these
//! views covers the token.
//!
//! **Bounds.** However many clients wait, the site asks one site for each partition and period, and once more
//! when a client comes and none waits for that partition. An answer has one view, and the site keeps none. At
//! most [`super::SiteOptions::open_max`] clients wait, each for at most
//! [`super::SiteOptions::vote_ticks_max`] ticks. The site looks at them once a period, and when a fence is
//! decided or a holder has answered, not with each letter of other sites.

use super::remote::RemoteReads;
use super::token::Lacking;
use super::{Incarnation, Message, Pcsi, Record, SessionToken, SiteEffects, TokenRefusal, VectorClock};
use crate::Answer;
use std::collections::BTreeSet;
use txn::{NodeId, PartitionId, RequestId};

/// A client that has brought a token.
#[derive(Debug)]
pub(super) struct Follower {
    pub id: RequestId,
    token: SessionToken,
    /// The sites whose updates the token may count.
    origins: BTreeSet<NodeId>,
    /// Those of them whose updates no view of this site tells from others: in partitions that it lacks, and
    /// those with granted numbers.
    doubtful: BTreeSet<NodeId>,
    /// The partitions that this site lacks, and in which no holder has confirmed the token.
    unconfirmed: BTreeSet<PartitionId>,
    since_tick: u64,
}

impl Pcsi {
    /// A client wants this site's transactions to begin behind a token that a site of this system has made.
    /// The outcome is in [`SiteEffects::followed`], or the answer is [`Answer::Unavailable`].
    pub fn follow_token(&mut self, id: RequestId, token: SessionToken, effects: &mut SiteEffects) {
        if !self.is_open() || self.followers.len() >= self.options.open_max {
            return effects.answers.push((id, Answer::Unavailable));
        }
        let sites = &self.options.sites;
        let is_elsewhere = |of: &PartitionId| !self.replicas.contains_key(of);
        let elsewhere = token.clocks.iter().filter(|(of, _)| is_elsewhere(of));
        let is_unconfirmed = |of: PartitionId, clock: &VectorClock| !self.remote.has_followed(of, clock);
        let follower = Follower {
            id,
            origins: token.origins(sites, |_| true),
            doubtful: token.origins(sites, is_elsewhere),
            unconfirmed: elsewhere
                .filter(|&(&of, clock)| is_unconfirmed(of, clock))
                .map(|(&of, _)| of)
                .collect(),
            token,
            since_tick: self.ticks,
        };
        let waits_for = |of: &PartitionId| self.followers.iter().any(|other| other.unconfirmed.contains(of));
        let unasked = follower.unconfirmed.iter().copied().filter(|of| !waits_for(of)).collect();
        match self.outcome_of(&follower) {
            Some(outcome) => self.tell_follower(&follower, outcome, effects),
            None if self.has_lost(&follower.token) => {
                self.tell_follower(&follower, Err(TokenRefusal::LostHere), effects);
            }
            None => {
                self.ask_views(&unasked, 0, effects);
                self.followers.push(follower);
            }
        }
    }

    /// Tells the clients whose tokens this site has, or never will have. The others wait.
    pub(super) fn tell_followers(&mut self, effects: &mut SiteEffects) {
        for follower in std::mem::take(&mut self.followers) {
            match self.outcome_of(&follower) {
                Some(outcome) => self.tell_follower(&follower, outcome, effects),
                None => self.followers.push(follower),
            }
        }
    }

    /// Later transactions follow what a token counts in partitions that this site lacks.
    fn tell_follower(
        &mut self,
        follower: &Follower,
        outcome: Result<(), TokenRefusal>,
        effects: &mut SiteEffects,
    ) {
        let mut clocks = follower.token.clocks.clone();
        clocks.retain(|of, _| !self.replicas.contains_key(of));
        if outcome.is_ok() && self.follow(&clocks) {
            self.record(Record::Followed { clocks }, effects);
        }
        effects.followed.push((follower.id, outcome));
    }

    /// Once a period: clients are told, and the next holders are asked.
    pub(super) fn tick_followers(&mut self, effects: &mut SiteEffects) {
        if self.followers.is_empty() {
            return;
        }
        self.tell_followers(effects);
        let unconfirmed = self.followers.iter().flat_map(|follower| &follower.unconfirmed);
        let unconfirmed = unconfirmed.copied().collect();
        self.ask_views(&unconfirmed, self.ticks / self.options.propagation_ticks, effects);
    }

    /// Asks for the view of each of these partitions at one site that has it. The turn says at which one.
    fn ask_views(&self, partitions: &BTreeSet<PartitionId>, turn: u64, effects: &mut SiteEffects) {
        for &of in partitions {
            let holders = self.holders(of);
            if let Some(place) = turn.checked_rem(holders.len() as u64) {
                self.post(holders[place as usize], Message::AskView(of), effects);
            }
        }
    }

    /// Another site asks for a view.
    pub(super) fn answer_view(&self, from: NodeId, partition: PartitionId, effects: &mut SiteEffects) {
        let view = self.view(partition).filter(|_| self.is_open()).cloned();
        if let Some(view) = view {
            self.post(from, Message::View { partition, view }, effects);
        }
    }

    /// A site counts these updates in a partition, and they are durable there.
    pub(super) fn confirm(&mut self, of: PartitionId, view: &VectorClock, effects: &mut SiteEffects) {
        let mut is_news = false;
        for Follower { token, unconfirmed, .. } in &mut self.followers {
            let is_confirmed = || token.clocks.get(&of).is_some_and(|clock| view.covers(clock));
            is_news |= unconfirmed.contains(&of) && is_confirmed() && unconfirmed.remove(&of);
        }
        if is_news {
            self.tell_followers(effects);
        }
    }

    /// The outcome for a client, if it needs not wait.
    fn outcome_of(&self, follower: &Follower) -> Option<Result<(), TokenRefusal>> {
        if let Some(refusal) = self.refuses_token(follower) {
            return Some(Err(refusal));
        }
        let is_heard =
            |(&site, incarnation): (&NodeId, &Incarnation)| *incarnation <= self.present_incarnation_of(site);
        let Follower { token, unconfirmed, .. } = follower;
        let is_covered = unconfirmed.is_empty()
            && token.incarnations.iter().all(is_heard)
            && self.fences_in_doubt(follower).next().is_none()
            && token.clocks.iter().all(|(&of, clock)| self.view(of).is_none_or(|view| view.covers(clock)));
        let is_late = self.ticks - follower.since_tick > self.options.vote_ticks_max;
        match is_covered {
            true => Some(Ok(())),
            false => is_late.then(|| Err(self.lacks(follower))),
        }
    }

    /// Why waiting for what a token counts is in vain, as far as this site knows.
    fn refuses_token(&self, Follower { token, origins, .. }: &Follower) -> Option<TokenRefusal> {
        if token.incarnation_of(self.options.me) > self.incarnation {
            return Some(TokenRefusal::FencedHere);
        }
        let is_fenced = |&site: &NodeId| token.incarnation_of(site) < self.present_incarnation_of(site);
        let fenced = origins.iter().copied().find(is_fenced);
        fenced.map(TokenRefusal::Fenced)
    }

    /// The fences that are under way of sites whose updates the token counts, and which no view tells from
    /// others. A site that knows the decision counts lost numbers, and fills those that it has granted; this
    /// site may hear of that before it hears of the decision.
    fn fences_in_doubt<'a>(&'a self, follower: &'a Follower) -> impl Iterator<Item = NodeId> + 'a {
        let Follower { token, doubtful, .. } = follower;
        let frozen = self.fences.frozen.iter().filter(|(site, next)| {
            doubtful.contains(site) && token.incarnation_of(**site) < next.incarnation
        });
        frozen.map(|(&site, _)| site)
    }

    /// Whether a token counts numbers that this site has not given out, as far as its log goes. The site
    /// gives out higher numbers later, so it need not look again.
    fn has_lost(&self, token: &SessionToken) -> bool {
        let me = self.options.me;
        token.clocks.iter().any(|(&of, clock)| {
            let is_granted_later = |view| clock.last_granted(me) > self.last_grant(of, view);
            clock.at(me) >= self.next_stamp(of).sequence || self.view(of).is_some_and(is_granted_later)
        })
    }

    /// The parts of a token that this site lacks.
    fn lacks(&self, follower: &Follower) -> TokenRefusal {
        let Follower { token, unconfirmed, .. } = follower;
        let is_unheard = |site: &NodeId| token.incarnation_of(*site) > self.present_incarnation_of(*site);
        let unheard: BTreeSet<NodeId> = token.incarnations.keys().copied().filter(is_unheard).collect();
        if !unheard.is_empty() {
            return TokenRefusal::UnheardFences(unheard);
        }
        let mut lacking = Lacking {
            partitions: unconfirmed.clone(),
            fencing: self.fences_in_doubt(follower).collect(),
            ..Lacking::default()
        };
        for (&of, clock) in &token.clocks {
            for last in self.view(of).into_iter().flat_map(|view| view.missing(clock)) {
                let sites = if last.is_granted() { &mut lacking.granters } else { &mut lacking.origins };
                sites.insert(last.site);
            }
        }
        TokenRefusal::Lacks(lacking)
    }
}

impl RemoteReads {
    /// Whether this site follows all that a clock counts in a partition that the site lacks.
    fn has_followed(&self, of: PartitionId, clock: &VectorClock) -> bool {
        let nothing = VectorClock::default();
        self.followed.get(&of).unwrap_or(&nothing).covers(clock)
    }
}
