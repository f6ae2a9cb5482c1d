//! Session tokens: a client that goes on at another site sees there what it has seen at the first one.
//!
//! Within a site, a connection's transactions never go back, because the site's views only grow, and so does
//! what the site has followed elsewhere (`remote.rs`, "Sessions"). A [`SessionToken`] carries both to another
//! site: for each partition, all that a transaction which begins now at the first site would depend on. So
//! the token covers what the connection has read and written, and also what other clients of the site have.
//!
//! At the other site the client waits until the site's views cover the token in the partitions that the site
//! has. What the token counts in other partitions joins [`super::remote::RemoteReads::followed`]: it is a
//! part of the floor of each later read there, and of the dependencies of each later update. So a token adds
//! no mechanism of its own to transactions.
//!
//! **Refusals.** The wait ends within [`super::SiteOptions::vote_ticks_max`] ticks. A site refuses a token at
//! once if waiting is in vain ([`TokenRefusal`]):
//!
//! - It counts updates of an incarnation that has been fenced since. A view that counts a fenced incarnation
//!   counts its lost updates as well (`fence.rs`), so the site cannot tell whether the client has seen one.
//!   A granted number says nothing of the site whose update has it. So a token with granted numbers may count
//!   updates of each site, and waits while a fence of any site is under way.
//! - It counts updates of this very site that the site does not have.
//! - It says that this site is fenced.
//!
//! A token of a later fence waits until the site hears of the fence, and a token with a number that no site
//! has given out waits in vain, until its time is up. Neither changes the site's clocks.
//!
//! What a token counts in partitions that the site lacks cannot be held against a view. A number that nobody
//! has given out would keep all later updates of the site waiting for ever at the sites that have the
//! partition. So the caller hands over only tokens that sites of the same system have made, and a token
//! leaves its site only when all that it counts there is durable.

use super::codec::{self, Form, Input};
use super::{CommitStamp, Incarnation, Pcsi, Record, SiteEffects, SiteMap, VectorClock, Views};
use crate::Answer;
use std::collections::{BTreeMap, BTreeSet};
use txn::{NodeId, RequestId};

/// The state that a client has seen at a site. It has these guarantees:
///
/// 1. The numbers that its clocks count are of sites that give out numbers in the partition.
/// 2. None of them is of a later incarnation than the token says of its site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionToken {
    /// The incarnations of the sites that have been fenced.
    pub(super) incarnations: BTreeMap<NodeId, Incarnation>,
    pub(super) clocks: Views,
}

/// Why a client's transactions cannot begin behind its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// The token counts updates of this site, which has been fenced since.
    Fenced(NodeId),
    /// The token was given after this very site was fenced.
    FencedHere,
    /// The token counts updates of this very site that the site does not have.
    LostHere,
    /// The token was given after fences of these sites, and this site has not heard of them in time.
    UnheardFences(BTreeSet<NodeId>),
    /// This site has not got in time what the token counts of these sites.
    Lacks(BTreeSet<NodeId>),
}

/// A client that has brought a token.
#[derive(Debug)]
pub(super) struct Follower {
    pub id: RequestId,
    token: SessionToken,
    since_tick: u64,
}

impl Form for SessionToken {
    fn put(&self, out: &mut Vec<u8>) {
        self.incarnations.put(out);
        self.clocks.put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<SessionToken> {
        let token = SessionToken { incarnations: Form::take(input)?, clocks: Form::take(input)? };
        token.keeps_guarantees(input.sites).then_some(token)
    }
}

impl SessionToken {
    /// The bytes of the token.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Reads a token of a site of this system; `None` where the bytes are none.
    pub fn decode(bytes: &[u8], sites: &SiteMap) -> Option<SessionToken> {
        codec::decode(bytes, sites)
    }

    fn keeps_guarantees(&self, sites: &SiteMap) -> bool {
        let all = sites.all_sites();
        let is_fence = |(site, incarnation): (&NodeId, &Incarnation)| {
            *incarnation > Incarnation(0) && all.contains(site)
        };
        let mut lasts = self.clocks.iter().flat_map(|(&of, clock)| clock.lasts().map(move |last| (of, last)));
        let is_one = |(of, last): (_, CommitStamp)| {
            let may_give = match last.is_granted() {
                true => sites.has_grants() && sites.sites(of).contains(&last.site),
                false => sites.may_number(last.site, of) && all.contains(&last.site),
            };
            may_give && last.incarnation() <= self.incarnation_of(last.site)
        };
        self.incarnations.iter().all(is_fence) && lasts.all(is_one)
    }

    pub(super) fn incarnation_of(&self, site: NodeId) -> Incarnation {
        self.incarnations.get(&site).copied().unwrap_or_default()
    }

    /// The last numbers that the token counts.
    fn lasts(&self) -> impl Iterator<Item = CommitStamp> {
        self.clocks.values().flat_map(VectorClock::lasts)
    }

    /// Whether the token counts numbers that sites have granted, to updates of any site.
    fn has_grants(&self) -> bool {
        self.lasts().any(CommitStamp::is_granted)
    }

    /// Whether the token counts updates of the incarnation that it says a site has.
    fn has_updates_of(&self, site: NodeId) -> bool {
        let base = self.incarnation_of(site).base();
        self.lasts().any(|last| last.site == site && last.sequence > base)
    }
}

impl Pcsi {
    /// A token of all that this site has, unless the site is closed. It must not leave before all records up
    /// to now are durable: other sites would follow what a loss of power can take back.
    pub fn token(&self) -> Option<SessionToken> {
        let sites = self.options.sites.all_sites();
        let incarnations = sites.into_iter().map(|site| (site, self.present_incarnation_of(site)));
        self.is_open().then(|| SessionToken {
            incarnations: incarnations.filter(|(_, incarnation)| *incarnation > Incarnation(0)).collect(),
            clocks: self.new_open().follows(),
        })
    }

    /// A client wants this site's transactions to begin behind a token that a site of this system has made.
    /// The outcome is in [`SiteEffects::followed`], or the answer is [`Answer::Unavailable`].
    pub fn follow_token(&mut self, id: RequestId, token: SessionToken, effects: &mut SiteEffects) {
        if !self.is_open() || self.followers.len() >= self.options.open_max {
            return effects.answers.push((id, Answer::Unavailable));
        }
        self.followers.push(Follower { id, token, since_tick: self.ticks });
        self.tell_followers(effects);
    }

    /// Tells the clients whose tokens this site has, or never will have. The others wait.
    pub(super) fn tell_followers(&mut self, effects: &mut SiteEffects) {
        let mut waiting = std::mem::take(&mut self.followers);
        waiting.retain(|Follower { id, token, since_tick }| {
            let is_late = self.ticks - since_tick > self.options.vote_ticks_max;
            let in_vain = self.refuses_token(token);
            let is_covered = self.has_all_of(token) && !self.is_in_doubt(token);
            let refusal = in_vain.or_else(|| (is_late && !is_covered).then(|| self.lacks_of(token)));
            let outcome = match refusal {
                Some(refusal) => Err(refusal),
                None if is_covered => {
                    self.follow_elsewhere(token, effects);
                    Ok(())
                }
                None => return true,
            };
            effects.followed.push((*id, outcome));
            false
        });
        self.followers = waiting;
    }

    fn present_incarnation_of(&self, site: NodeId) -> Incarnation {
        match site == self.options.me {
            true => self.incarnation,
            false => self.fences.incarnation_of(site),
        }
    }

    /// Why waiting for what a token counts is in vain, as far as this site knows.
    fn refuses_token(&self, token: &SessionToken) -> Option<TokenRefusal> {
        let me = self.options.me;
        if token.incarnation_of(me) > self.incarnation {
            return Some(TokenRefusal::FencedHere);
        }
        let sites = self.options.sites.all_sites();
        let has_grants = token.has_grants();
        let is_fenced = |&site: &NodeId| {
            token.incarnation_of(site) < self.present_incarnation_of(site)
                && (has_grants || token.has_updates_of(site))
        };
        if let Some(site) = sites.into_iter().find(is_fenced) {
            return Some(TokenRefusal::Fenced(site));
        }
        let mut counts = token.clocks.iter().map(|(&of, clock)| (of, clock.at(me)));
        let is_lost = counts.any(|(of, count)| count >= self.next_stamp(of).sequence);
        is_lost.then_some(TokenRefusal::LostHere)
    }

    /// Whether a view may count numbers of the token whose updates a fence is about to take away: a granter
    /// that knows the decision fills them, and this site may get that first.
    fn is_in_doubt(&self, token: &SessionToken) -> bool {
        let mut frozen = self.fences.frozen.iter();
        token.has_grants() && frozen.any(|(site, next)| token.incarnation_of(*site) < next.incarnation)
    }

    /// Whether the views of this site's partitions cover a token.
    fn has_all_of(&self, token: &SessionToken) -> bool {
        token.clocks.iter().all(|(&of, clock)| self.view(of).is_none_or(|view| view.covers(clock)))
    }

    /// The sites whose updates a token counts and this site lacks.
    fn lacks_of(&self, token: &SessionToken) -> TokenRefusal {
        let lacked = token.clocks.iter().flat_map(|(&of, clock)| {
            let view = self.view(of);
            clock.lasts().filter(move |last| view.is_some_and(|view| !view.sees(*last)))
        });
        let sites: BTreeSet<NodeId> = lacked.map(|last| last.site).collect();
        let is_unheard = |site: &NodeId| token.incarnation_of(*site) > self.present_incarnation_of(*site);
        let unheard: BTreeSet<NodeId> = sites.iter().copied().filter(is_unheard).collect();
        match unheard.is_empty() {
            true => TokenRefusal::Lacks(sites),
            false => TokenRefusal::UnheardFences(unheard),
        }
    }

    /// Later transactions follow what a token counts in partitions that this site lacks.
    fn follow_elsewhere(&mut self, token: &SessionToken, effects: &mut SiteEffects) {
        let mut clocks = token.clocks.clone();
        clocks.retain(|of, _| !self.replicas.contains_key(of));
        if self.follow(&clocks) {
            self.record(Record::Followed { clocks }, effects);
        }
    }
}
