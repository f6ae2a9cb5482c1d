//! Session tokens: a client that goes on at another site sees there what it has seen at the first one.
//!
//! Within a site, a connection's transactions never go back, because the site's views only grow, and so does
//! what the site has followed elsewhere (`remote.rs`, "Sessions"). A [`SessionToken`] carries both to another
//! site: for each partition, all that a transaction which begins now at the first site would depend on. So
//! the token covers what the connection has read and written, and also what other clients of the site have.
//!
//! At the other site the client waits until the site's views cover the token in the partitions that the site
//! has, and until some site has confirmed the token in each other partition (`follow.rs`). What the token
//! counts in other partitions then joins [`super::remote::RemoteReads::followed`]: it is a
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
//! A site that confirms a number may die with its update, as a site may that has answered a remote read. So a
//! token leaves its site only when all that it counts there is durable, and the caller hands over only tokens
//! that sites of the same system have made.

use super::codec::{self, Form, Input};
use super::{CommitStamp, Incarnation, Pcsi, SiteMap, VectorClock, Views};
use std::collections::{BTreeMap, BTreeSet};
use txn::{NodeId, PartitionId};

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
    /// This site has not got all in time that the token counts.
    Lacks(Lacking),
}

/// The parts of a token that a site lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Updates with numbers of these sites' own.
    pub origins: BTreeSet<NodeId>,
    /// Updates of any sites with numbers that these sites have granted.
    pub granters: BTreeSet<NodeId>,
    /// Updates of these partitions, which the site has not, and in which no other site has confirmed them.
    pub partitions: BTreeSet<PartitionId>,
    /// The decisions on fences of these sites, whose updates the token may count.
    pub fencing: BTreeSet<NodeId>,
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

    /// The sites whose updates the token may count in some partitions: those of their own numbers there in
    /// the incarnations that the token says they have. A granted number may be of an update of each site, and
    /// in each partition a view may count it before the granter's site has filled it.
    pub(super) fn origins(
        &self,
        sites: &SiteMap,
        is_meant: impl Fn(&PartitionId) -> bool,
    ) -> BTreeSet<NodeId> {
        if self.clocks.values().flat_map(VectorClock::lasts).any(CommitStamp::is_granted) {
            return sites.all_sites();
        }
        let lasts = self.clocks.iter().filter(|(of, _)| is_meant(of)).flat_map(|(_, clock)| clock.lasts());
        let own = lasts.filter(|last| last.sequence > self.incarnation_of(last.site).base());
        own.map(|last| last.site).collect()
    }
}

impl Pcsi {
    /// A token of all that this site has, unless the site is closed, or has read at a site that knows of a
    /// fence which this one has not heard of yet. The token must not leave before all records up to now are
    /// durable: other sites would follow what a loss of power can take back.
    pub fn token(&self) -> Option<SessionToken> {
        let sites = self.options.sites.all_sites();
        let incarnations = sites.into_iter().map(|site| (site, self.present_incarnation_of(site)));
        let token = SessionToken {
            incarnations: incarnations.filter(|(_, incarnation)| *incarnation > Incarnation(0)).collect(),
            clocks: self.new_open().follows(),
        };
        (self.is_open() && token.keeps_guarantees(&self.options.sites)).then_some(token)
    }

    /// The incarnation of a site, as far as this one knows.
    pub(super) fn present_incarnation_of(&self, site: NodeId) -> Incarnation {
        match site == self.options.me {
            true => self.incarnation,
            false => self.fences.incarnation_of(site),
        }
    }
}
