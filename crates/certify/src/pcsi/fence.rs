//! Fences: the other sites agree which updates of a site remain, and take nothing more of it.
//!
//! A fence ends an *incarnation* of a site, because an operator says so or because a process of the site has
//! begun without a log (`join.rs`). The paper has no such thing; notes 9 and 10 ask for it.
//!
//! **Agreement.** Any site may lead a *round* under a [`Ballot`] that is higher than all it has heard of. It
//! asks all sites except those to be fenced, its targets, and those that are fenced already. Each of these
//! participants promises to help no lower ballot, takes no more messages of the targets, and aborts its
//! transactions under way that a target resolves. Then the participant reports the updates of the targets
//! that it has. With all reports, the leader decides: the updates in the reports remain. Everything else
//! that a target has committed, and that not all sites concerned have applied, is lost, at all sites alike.
//!
//! A decision counts when it is in the log of its leader, for a leader of a later round asks that site too,
//! and keeps the decisions that are reported. If the leader is itself a target of the later round, only
//! decisions that a participant has heard of count, and the others have had no effect: a joining site that
//! has heard of one takes the later decision instead. A site that hears of no decision leads a round after a
//! while; so the decisions need no acknowledgements. The patience of sites grows with their places and with
//! the ballots, until one of them finishes its round.
//!
//! A target that still runs is told so by whoever refuses its messages ([`Fencing::UnderWay`]), and closes:
//! what it committed now would remain only if a participant had it already. It gets no other messages, so
//! that one which restarts does not take them for a sign that it counts.
//!
//! **Majority.** Two halves that are cut from each other must not fence each other. A site's *members* are
//! all sites except those that it knows to be fenced. A leader begins a round, and decides, only if its
//! voters are more than half of the leader's members, or exactly half of them with the member of the lowest
//! number. The voters are the leader and the participants that have reported and have a state; a joining site
//! has reported nothing. Members shrink with each decision, so dead sites can be fenced one after the other.
//! Two halves cannot both decide although their members differ: all participants of a decided round have
//! promised it, and report its targets to any later leader, so the voters of a leader without the decision
//! are members of a leader with it, and the leader without it needs more of them. A site that comes back is a
//! voter only when all members have admitted it.
//!
//! There are two exceptions. A round decides without a majority if all of its targets that are members ask
//! for it themselves, because each has begun without a log: then no member is left on another side. An
//! operator who knows that the other sites are gone for good can force a fence on one site. If operators
//! force fences on both halves, the sites of a half end when they hear of the other half's decision.
//!
//! A site that hears that it is fenced takes that from any sender, also from one that is fenced in its own
//! view, and answers nothing.
//!
//! **A decision.** ([`Decision`]) The replica counts each lost number as applied, and then applies the
//! updates that remain in the usual order. So nothing waits for a lost update, although an update may follow
//! one. The same holds for the numbers that the fenced site has granted to updates of others, which the
//! participants report, too (`grant.rs`). The resolver releases the locks of the fenced incarnation. The site
//! retains nothing for the fenced site, asks it for no vote, and commits nothing that it resolves.
//!
//! **Numbers.** The numbers of an incarnation begin above [`Incarnation::base`], and a decision makes each
//! view count all numbers up to the base of the next incarnation. So no number is given out twice, also if
//! nobody has heard of it.
//!
//! **What is lost.** A fenced site that still runs goes on until it hears of the fence, and commits
//! transactions whose keys only it resolves. No other site ever hears of these commits. The site's clients
//! are told [`Answer::Committed`] if one site is enough for a write
//! ([`super::SiteOptions::sites_to_write_min`]); else they are told [`Answer::Unknown`], because no other
//! site acknowledges the updates. The site should then be started again without its log
//! ([`Pcsi::is_fenced`]). No record says that a site is fenced. A process that begins with the log of a
//! fenced incarnation is like a site that has not heard of the fence yet, and hears of it from any site that
//! knows the decision.

use super::grant::GrantedNumbers;
use super::{
    CommitStamp, Committing, Message, Pcsi, Record, SiteEffects, TransactionName, Update, message::Fencing,
};
use crate::Answer;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::NodeId;
use txn::mutant::{Mutant, is_active};

/// How many numbers an incarnation has, as a power of two. A session's number has room for 48 bits.
const NUMBER_BITS: u32 = 40;

/// How often a site has been fenced. An incarnation begins without the log of the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation(pub u8);

impl Incarnation {
    /// The number before the first one of this incarnation, of commits and of stamps.
    pub const fn base(self) -> u64 {
        (self.0 as u64) << NUMBER_BITS
    }

    /// The incarnation to which a number belongs.
    pub(super) fn of(number: u64) -> Incarnation {
        Incarnation((number >> NUMBER_BITS).min(u64::from(u8::MAX)) as u8)
    }

    /// The last number of this incarnation.
    pub(super) const fn last(self) -> u64 {
        self.base() | ((1 << NUMBER_BITS) - 1)
    }

    /// Whether a number is one of this incarnation.
    pub(super) fn has(self, number: u64) -> bool {
        self.base() < number && number <= self.last()
    }

    /// `None` if a site has been fenced too often.
    pub(super) fn next(self) -> Option<Incarnation> {
        self.0.checked_add(1).map(Incarnation)
    }
}

/// The next incarnation of a site that is to be fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// All earlier ones are fenced.
    pub incarnation: Incarnation,
    /// The number of the process that begins with it ([`Pcsi::start`]); 0 where an operator fences.
    pub start: u64,
}

impl Candidate {
    /// Whether an earlier incarnation of the site can have granted a number.
    pub(super) fn follows(&self, sequence: u64) -> bool {
        let stamp = CommitStamp { site: NodeId(0), sequence };
        stamp.is_of_a_grant() && stamp.incarnation() < self.incarnation
    }
}

/// The order of the rounds: a counter, and the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot(pub u64, pub NodeId);

/// A fence on which the sites have agreed.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The next incarnation of the fenced site.
    pub candidate: Candidate,
    /// Its earlier updates that some site has and another one may lack, in order.
    pub updates: Vec<Arc<Update>>,
    /// The numbers that its earlier incarnations have granted to updates which some site has, and another one
    /// may lack. Its other granted numbers are void (`grant.rs`).
    pub granted: GrantedNumbers,
}

/// A site's answer to an operator who wants another site fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceAnswer {
    /// The sites are to fence it from now on.
    Begun,
    /// It is fenced, or a fence is under way, or there is no such site to fence.
    UnderWay,
    /// Without the sites to be fenced, this number of voters would remain, of this number of members.
    NoMajority {
        #[allow(missing_docs, reason = "the variant says it")]
        voters: usize,
        #[allow(missing_docs, reason = "the variant says it")]
        members: usize,
    },
}

/// A fence that is under way, as one site sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FenceStatus {
    /// The sites that are to be fenced.
    pub targets: BTreeSet<NodeId>,
    /// The sites whose reports this one waits for; none if another site leads the round.
    pub awaited: BTreeSet<NodeId>,
    /// This site cannot decide: too few sites would remain.
    pub lacks_majority: bool,
}

/// The losses by a fence, as far as a site knows of them when it hears of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceLoss {
    /// The fenced site, whose updates these are.
    pub site: NodeId,
    /// Its next incarnation.
    pub incarnation: Incarnation,
    /// The updates that some site has, and that another one may have lacked: they remain.
    pub remaining: u64,
    /// The updates that the site had told this process of, and that are lost: at most this number, because
    /// those that do not concern this site are among them. Nobody knows of what it had told no other site.
    pub lost: u64,
}

/// A round that this site leads.
#[derive(Debug)]
struct Round {
    targets: BTreeMap<NodeId, Candidate>,
    awaited: BTreeSet<NodeId>,
    /// The sites that have reported, and are no voters: they have no state yet.
    joining: BTreeSet<NodeId>,
    updates: BTreeMap<NodeId, BTreeMap<u64, Arc<Update>>>,
    granted: BTreeMap<NodeId, GrantedNumbers>,
}

/// The fences that a site knows.
///
/// A site of `frozen` has no decision with the same incarnation or a later one in `decided`, and each site of
/// `excluded` has a decision.
#[derive(Debug, Default)]
pub(super) struct Fences {
    pub promised: Ballot,
    /// Those that a promise names, and on which the site knows no decision.
    pub frozen: BTreeMap<NodeId, Candidate>,
    /// The newest one of each site.
    pub decided: BTreeMap<NodeId, Decision>,
    /// The fenced sites whose new incarnation does not count as a site here yet.
    pub excluded: BTreeSet<NodeId>,
    /// Those that an operator or a site without a log asks for.
    wanted: BTreeMap<NodeId, Candidate>,
    /// The sites whose processes have begun without a log, and on which there is no decision since.
    consenting: BTreeSet<NodeId>,
    /// An operator has told this site to decide without a majority what is under way.
    is_forced: bool,
    round: Option<Round>,
    /// When this site last asked for a fence, promised, or gave up a round.
    since_tick: u64,
    /// A counter that another site has promised.
    counter_heard: u64,
}

impl Fences {
    /// The incarnation of a site as far as it is decided.
    pub fn incarnation_of(&self, site: NodeId) -> Incarnation {
        self.decided.get(&site).map_or(Incarnation(0), |decision| decision.candidate.incarnation)
    }

    /// Whether messages of this incarnation of a site are taken no more.
    pub fn refuses(&self, site: NodeId, incarnation: Incarnation) -> bool {
        let is_frozen = self.frozen.get(&site).is_some_and(|frozen| frozen.incarnation > incarnation);
        (is_frozen || self.incarnation_of(site) > incarnation) && !is_active(Mutant::HearFenced)
    }

    /// Whether a site counts, and no promise names it.
    pub fn is_here(&self, site: NodeId) -> bool {
        !self.excluded.contains(&site) && !self.frozen.contains_key(&site)
    }

    /// Whether nothing has happened for this number of ticks.
    pub fn waits_longer(&self, now: u64, ticks: u64) -> bool {
        now.saturating_sub(self.since_tick) > ticks
    }

    /// Whether no fence is under way, and no site is out.
    pub fn is_idle(&self) -> bool {
        self.frozen.is_empty() && self.wanted.is_empty() && self.excluded.is_empty() && self.round.is_none()
    }

    /// Keeps a decision, unless the site knows it or a later one. Returns whether it is new.
    pub fn learn(&mut self, site: NodeId, decision: &Decision) -> bool {
        let incarnation = decision.candidate.incarnation;
        if incarnation <= self.incarnation_of(site) {
            return false;
        }
        self.decided.insert(site, decision.clone());
        self.excluded.insert(site);
        self.consenting.remove(&site);
        self.forget_decided();
        self.is_forced &= !self.open_targets().is_empty();
        true
    }

    fn forget_decided(&mut self) {
        let decided = &self.decided;
        let is_open = |site: &NodeId, candidate: &mut Candidate| {
            decided.get(site).is_none_or(|known| known.candidate.incarnation < candidate.incarnation)
        };
        self.frozen.retain(is_open);
        self.wanted.retain(is_open);
        if let Some(round) = &mut self.round {
            round.targets.retain(is_open);
            round.awaited.retain(|site| !self.excluded.contains(site));
            round.joining.retain(|site| !self.excluded.contains(site));
        }
        self.round.take_if(|round| round.targets.is_empty());
    }

    /// The new incarnation of a fenced site is open, so all sites that count have applied what remained.
    pub fn has_returned(&mut self, site: NodeId) {
        if let Some(decision) = self.decided.get_mut(&site) {
            decision.updates.clear();
        }
    }

    /// Keeps what a promise says.
    pub fn promise(&mut self, ballot: Ballot, targets: &BTreeMap<NodeId, Candidate>) {
        self.promised = ballot;
        for (&site, &candidate) in targets {
            let frozen = self.frozen.entry(site).or_insert(candidate);
            if frozen.incarnation <= candidate.incarnation {
                *frozen = candidate;
            }
        }
        let frozen = &self.frozen;
        self.wanted.retain(|site, wanted| {
            frozen.get(site).is_none_or(|frozen| frozen.incarnation < wanted.incarnation)
        });
        self.forget_decided();
    }

    /// A process of a site has begun without a log.
    pub fn consents(&mut self, site: NodeId) {
        self.consenting.insert(site);
    }

    /// All targets on which there is no decision.
    pub fn open_targets(&self) -> BTreeMap<NodeId, Candidate> {
        let mut targets = self.frozen.clone();
        targets.extend(&self.wanted);
        targets
    }
}

impl Pcsi {
    /// An operator fences another site: it is away for good, or must begin without what others lack. A site
    /// without a partition takes part in no round, fences nobody, and is not fenced.
    ///
    /// With force, the operator says that the sites which this one does not hear are gone for good. This site
    /// decides all fences that are under way without a majority, and opens if it has waited to hear another
    /// site.
    pub fn fence(&mut self, site: NodeId, is_forced: bool, effects: &mut SiteEffects) -> FenceAnswer {
        let sites = self.options.sites.all_sites();
        let may_fence = !self.fences.excluded.contains(&site)
            && site != self.options.me
            && sites.contains(&site)
            && sites.contains(&self.options.me)
            && !self.is_joining();
        let is_open = self.fences.open_targets().contains_key(&site);
        let next = self.fences.incarnation_of(site).next().filter(|_| may_fence && (!is_open || is_forced));
        let Some(incarnation) = next else { return FenceAnswer::UnderWay };
        let candidate = Candidate { incarnation, start: 0 };
        if is_forced {
            self.fences.is_forced = true;
            self.has_heard = true;
        } else {
            let mut targets = self.fences.open_targets();
            targets.insert(site, candidate);
            if !self.may_decide(&targets, &BTreeSet::new()) {
                let (members, voters) = self.members_and_voters(&targets, &BTreeSet::new());
                return FenceAnswer::NoMajority { voters: voters.len(), members: members.len() };
            }
        }
        self.want_fence(site, candidate);
        self.lead_round(effects);
        self.handle_own(effects);
        FenceAnswer::Begun
    }

    /// The fences that are under way, as far as this site knows.
    pub fn fence_status(&self) -> FenceStatus {
        let open = self.fences.open_targets();
        let round = self.fences.round.as_ref();
        let is_left_out = self.round_targets().len() < open.len();
        let waits_in_vain =
            |round: &Round| round.awaited.is_empty() && !self.may_decide(&round.targets, &round.joining);
        FenceStatus {
            lacks_majority: !self.is_joining() && (is_left_out || round.is_some_and(waits_in_vain)),
            awaited: round.map(|round| round.awaited.clone()).unwrap_or_default(),
            targets: open.into_keys().collect(),
        }
    }

    /// The sites that are not fenced, and those of them that vote on a fence of these targets if these other
    /// ones have no state.
    fn members_and_voters(
        &self,
        targets: &BTreeMap<NodeId, Candidate>,
        joining: &BTreeSet<NodeId>,
    ) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let mut members = self.options.sites.all_sites();
        members.retain(|site| !self.fences.excluded.contains(site));
        let mut voters = members.clone();
        voters.retain(|site| !targets.contains_key(site) && !joining.contains(site));
        (members, voters)
    }

    /// Whether these fences may be decided if all participants report. See "Majority" at the file's head.
    fn may_decide(&self, targets: &BTreeMap<NodeId, Candidate>, joining: &BTreeSet<NodeId>) -> bool {
        let (members, voters) = self.members_and_voters(targets, joining);
        let mut member_targets = targets.keys().filter(|site| members.contains(site));
        let is_asked_for = member_targets.all(|site| self.fences.consenting.contains(site));
        let is_majority = match (2 * voters.len()).cmp(&members.len()) {
            Ordering::Greater => true,
            Ordering::Equal => voters.first() == members.first(),
            Ordering::Less => false,
        };
        is_majority || is_asked_for || self.fences.is_forced || is_active(Mutant::FenceWithoutMajority)
    }

    /// The targets that a round of this site has: those that it has promised, and as many further ones as it
    /// may decide on.
    fn round_targets(&self) -> BTreeMap<NodeId, Candidate> {
        let open = self.fences.open_targets();
        let nobody = BTreeSet::new();
        if self.may_decide(&open, &nobody) {
            return open;
        }
        let mut targets = self.fences.frozen.clone();
        for (&site, &candidate) in &self.fences.wanted {
            let before = targets.insert(site, candidate);
            if !self.may_decide(&targets, &nobody) {
                match before {
                    Some(before) => targets.insert(site, before),
                    None => targets.remove(&site),
                };
            }
        }
        if !self.may_decide(&targets, &nobody) {
            targets.clear();
        }
        targets
    }

    /// Whether other sites have fenced this one. It does nothing more: its process should be started again
    /// without the log.
    pub fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Some site needs a fence; this one or another one leads a round.
    pub(super) fn want_fence(&mut self, site: NodeId, candidate: Candidate) {
        let known = self.fences.open_targets();
        let is_new = known.get(&site).is_none_or(|known| known.incarnation < candidate.incarnation);
        let takes_part = self.options.sites.all_sites().contains(&self.options.me);
        if is_new && takes_part && candidate.incarnation > self.fences.incarnation_of(site) {
            self.fences.wanted.insert(site, candidate);
            self.fences.since_tick = self.ticks;
        }
    }

    /// The other sites that take part in decisions on fences of these.
    fn participants(&self, targets: &BTreeMap<NodeId, Candidate>) -> BTreeSet<NodeId> {
        let mut sites = self.options.sites.all_sites();
        sites.retain(|site| {
            *site != self.options.me && !targets.contains_key(site) && !self.fences.excluded.contains(site)
        });
        sites
    }

    /// This site begins a round, if there is something to decide.
    fn lead_round(&mut self, effects: &mut SiteEffects) {
        let targets = self.round_targets();
        if targets.is_empty() || self.is_joining() || targets.contains_key(&self.options.me) {
            return;
        }
        let counter = self.fences.promised.0.max(self.fences.counter_heard) + 1;
        let ballot = Ballot(counter, self.options.me);
        self.promise(ballot, &targets, effects);
        let awaited = self.participants(&targets);
        let (updates, granted) = (self.updates_of(&targets), self.numbers_granted_by(&targets));
        let joining = BTreeSet::new();
        self.fences.round =
            Some(Round { targets, awaited, joining, updates: BTreeMap::new(), granted: BTreeMap::new() });
        self.count_report(None, updates, granted);
        self.ask_for_reports(effects);
        self.decide_if_reported(effects);
    }

    fn promise(&mut self, ballot: Ballot, targets: &BTreeMap<NodeId, Candidate>, effects: &mut SiteEffects) {
        self.fences.promise(ballot, targets);
        self.fences.round = None;
        self.fences.since_tick = self.ticks;
        self.ask_again();
        self.record(Record::Promised { ballot, targets: targets.clone() }, effects);
        let frozen: BTreeSet<NodeId> = self.fences.frozen.keys().copied().collect();
        self.abort_those_of(&frozen, effects);
    }

    /// The votes of these sites count no more, and their answers to remote reads do not come.
    fn abort_those_of(&mut self, sites: &BTreeSet<NodeId>, effects: &mut SiteEffects) {
        let is_concerned = |committing: &Committing| {
            !committing.resolvers.is_disjoint(sites) || committing.open.has_read_at(sites)
        };
        let concerned = self.committing.iter().filter(|(_, committing)| is_concerned(committing));
        let names: Vec<_> = concerned.map(|(&name, _)| name).collect();
        names.into_iter().for_each(|name| self.abort(name, Answer::Unavailable, effects));
        self.leave_holders(sites, effects);
    }

    /// The updates of the targets that this site has, and others may lack.
    fn updates_of(&self, targets: &BTreeMap<NodeId, Candidate>) -> BTreeMap<NodeId, Vec<Arc<Update>>> {
        let updates = |(&site, candidate): (&NodeId, &Candidate)| {
            let mut updates = self.incoming.get(&site).map(super::Incoming::all).unwrap_or_default();
            // A site that takes part may not have heard of the decision before this one.
            let decided = self.fences.decided.get(&site);
            updates.extend(decided.iter().flat_map(|decision| &decision.updates).cloned());
            updates.retain(|update| update.name.incarnation < candidate.incarnation);
            (site, updates)
        };
        targets.iter().map(updates).collect()
    }

    fn ask_for_reports(&self, effects: &mut SiteEffects) {
        let Some(round) = &self.fences.round else { return };
        for &site in round.awaited.iter().chain(&round.joining) {
            let (ballot, targets) = (self.fences.promised, round.targets.clone());
            self.post(site, Message::Fencing(Fencing::Promise { ballot, targets }), effects);
        }
    }

    /// A report has come; the leader's own one has no sender. The other site says whether it joins.
    fn count_report(
        &mut self,
        from: Option<(NodeId, bool)>,
        updates: BTreeMap<NodeId, Vec<Arc<Update>>>,
        granted: BTreeMap<NodeId, GrantedNumbers>,
    ) {
        let Some(round) = &mut self.fences.round else { return };
        if let Some((site, is_joining)) = from {
            let is_awaited = round.awaited.remove(&site) || round.joining.remove(&site);
            if is_awaited && is_joining {
                round.joining.insert(site);
            }
        }
        for (target, updates) in updates {
            let updates = updates.into_iter().map(|update| (update.number, update));
            round.updates.entry(target).or_default().extend(updates);
        }
        for (target, numbers) in granted {
            let Some(candidate) = round.targets.get(&target) else { continue };
            let known = round.granted.entry(target).or_default();
            for (of, numbers) in numbers {
                let earlier = numbers.into_iter().filter(|(number, _)| candidate.follows(*number));
                known.entry(of).or_default().extend(earlier);
            }
        }
    }

    fn decide_if_reported(&mut self, effects: &mut SiteEffects) {
        let is_reported = |round: &Round| round.awaited.is_empty() || is_active(Mutant::FenceAlone);
        if !self.fences.round.as_ref().is_some_and(is_reported) {
            return;
        }
        let Some(mut round) = self.fences.round.take() else { return };
        if round.targets != self.round_targets() {
            return self.lead_round(effects);
        }
        if !self.may_decide(&round.targets, &round.joining) {
            self.fences.round = Some(round);
            return;
        }
        let participants = self.participants(&round.targets);
        let decision = |(site, candidate): (NodeId, Candidate)| {
            let updates = round.updates.remove(&site).unwrap_or_default();
            let granted = round.granted.remove(&site).unwrap_or_default();
            (site, Decision { candidate, updates: updates.into_values().collect(), granted })
        };
        let decisions: BTreeMap<NodeId, Decision> = round.targets.into_iter().map(decision).collect();
        self.learn(&decisions, effects);
        self.tell_excluded(effects);
        for site in participants {
            let decisions = decisions.clone();
            self.post(site, Message::Fencing(Fencing::Decided { decisions }), effects);
        }
    }

    /// Fenced sites may still run, and send nothing by themselves.
    pub(super) fn tell_excluded(&self, effects: &mut SiteEffects) {
        for &site in &self.fences.excluded {
            let incarnation = self.fences.incarnation_of(site);
            self.post(site, Message::Fencing(Fencing::Fenced { incarnation }), effects);
        }
    }

    /// Tells a site whose message this one refuses why.
    pub(super) fn tell_refused(&self, site: NodeId, sender: Incarnation, effects: &mut SiteEffects) {
        let decided = self.fences.incarnation_of(site);
        let why = match self.fences.frozen.get(&site) {
            _ if decided > sender => Fencing::Fenced { incarnation: decided },
            Some(candidate) => Fencing::UnderWay { incarnation: candidate.incarnation },
            None => return,
        };
        self.post(site, Message::Fencing(why), effects);
    }

    /// Takes decisions in that this site does not know.
    pub(super) fn learn(&mut self, decisions: &BTreeMap<NodeId, Decision>, effects: &mut SiteEffects) {
        let is_new = |(&site, decision): (&NodeId, &Decision)| {
            let is_new = decision.candidate.incarnation > self.fences.incarnation_of(site);
            is_new.then(|| (site, decision.clone()))
        };
        let new: BTreeMap<NodeId, Decision> = decisions.iter().filter_map(is_new).collect();
        if new.is_empty() {
            return;
        }
        let own = new.get(&self.options.me).map(|own| own.candidate.incarnation);
        if own > Some(self.incarnation) && !self.is_joining() {
            self.is_fenced = true;
            return;
        }
        if self.is_joining() {
            // A leader that is fenced now may have told only this site of a decision, which had no effect.
            // The others have decided again since, in the same round as on the leader or before it.
            for (&site, decision) in decisions {
                if self.fences.incarnation_of(site) == decision.candidate.incarnation {
                    self.fences.decided.insert(site, decision.clone());
                }
            }
        }
        let fenced: BTreeSet<NodeId> = new.keys().copied().collect();
        self.abort_those_of(&fenced, effects);
        if !self.is_joining() {
            new.iter().for_each(|(&site, decision)| self.note_loss(site, decision, effects));
        }
        new.iter().for_each(|(&site, decision)| self.keep_decision(site, decision));
        self.record(Record::Decided { decisions: new }, effects);
        self.give_up_witnesses(effects);
        self.apply_waiting(effects);
        self.tell_followers(effects);
    }

    /// Tells what is lost by a decision that is about to take effect.
    fn note_loss(&mut self, site: NodeId, decision: &Decision, effects: &mut SiteEffects) {
        let last = decision.updates.last().map_or(0, |update| update.number);
        let lost = self.incoming.get(&site).map_or(0, |incoming| incoming.told_behind(last));
        *self.lost.entry(site).or_default() += lost;
        let (incarnation, remaining) = (decision.candidate.incarnation, decision.updates.len() as u64);
        effects.fenced.push(FenceLoss { site, incarnation, remaining, lost });
    }

    /// A decision takes effect, also where the log says so. See the file's head.
    pub(super) fn keep_decision(&mut self, site: NodeId, decision: &Decision) {
        if !self.fences.learn(site, decision) {
            return;
        }
        if self.is_joining() {
            return self.leave_out(site);
        }
        debug_assert!(site != self.options.me, "a site with a log that is fenced does nothing more");
        self.exclude(site);
        self.count_remaining(site, decision);
    }

    /// Nothing more is kept for a site.
    fn exclude(&mut self, site: NodeId) {
        self.witnesses.exclude(&self.fences.excluded, &self.options);
        let stable = self.outgoing.exclude(site, &self.options.sites);
        stable.iter().for_each(|update| self.mark_stable(update));
        self.unsettled.retain(|_, unsettled| {
            unsettled.resolvers.remove(&site);
            !unsettled.resolvers.is_empty()
        });
    }

    /// The updates of a fenced site that remain are applied; all others count as applied.
    pub(super) fn count_remaining(&mut self, site: NodeId, decision: &Decision) {
        let stamps = decision.updates.iter().map(|update| (update.name, &update.stamps)).collect();
        self.resolver.release_site(site, &stamps, &self.options.sites);
        let sequence = decision.candidate.incarnation.base();
        self.resolver.forget_unapplied(site);
        self.grants.withdraw_site(site, self.options.me, decision);
        self.count_void();
        let is_missing = |update: &&Arc<Update>| {
            update.stamps.keys().any(|of| self.replicas.contains_key(of)) && !self.has_applied(update)
        };
        let missing: Vec<Arc<Update>> = decision.updates.iter().filter(is_missing).cloned().collect();
        for update in &missing {
            for key in update.writes.keys() {
                let partition = self.options.sites.partition_of(key);
                let stamp = update.stamps[&partition];
                let is_expected = |view: &super::VectorClock| !view.sees(stamp);
                if self.view(partition).is_some_and(is_expected) {
                    self.resolver.expect(key, stamp, site);
                }
            }
        }
        self.incoming.entry(site).or_default().begin_again(sequence, missing);
        self.remaining.insert(site);
        self.count_lost(site);
    }

    /// Counts what is lost of a fenced site's updates, up to the next one that remains.
    pub(super) fn count_lost(&mut self, site: NodeId) {
        let (Some(incoming), true) = (self.incoming.get(&site), self.remaining.contains(&site)) else {
            return;
        };
        let incarnation = self.fences.incarnation_of(site);
        let remaining = || incoming.waiting().filter(|update| update.name.incarnation < incarnation);
        for (of, replica) in &mut self.replicas {
            if !self.options.sites.may_number(site, *of) {
                continue;
            }
            let stamps = remaining().filter_map(|update| update.stamps.get(of));
            let stamps = stamps.filter(|stamp| !stamp.is_granted());
            let next = stamps.filter(|stamp| !replica.view.sees(**stamp)).map(|stamp| stamp.sequence).min();
            let sequence = match next {
                Some(next) => next - 1,
                None if is_active(Mutant::ReuseLostNumbers) => 0,
                None => incarnation.base(),
            };
            replica.view.count(CommitStamp { site, sequence });
        }
        if remaining().next().is_none() {
            self.remaining.remove(&site);
        }
    }

    /// Sites that wait for a decision lead a round. A place among the sites makes some wait longer.
    pub(super) fn tick_fences(&mut self, effects: &mut SiteEffects) {
        let targets = self.round_targets();
        if targets.is_empty() || self.is_joining() {
            return;
        }
        if let Some(round) = &self.fences.round {
            return match round.targets == targets {
                true => self.ask_for_reports(effects),
                false => self.lead_round(effects),
            };
        }
        let place = self.participants(&targets).range(..self.options.me).count() as u64;
        let rounds = match self.fences.frozen.is_empty() {
            true => place,
            false => (place + 1) * self.fences.promised.0.clamp(1, 8),
        };
        if self.ticks - self.fences.since_tick > rounds * self.options.silent_ticks_max {
            self.lead_round(effects);
        }
    }

    /// Another site's message about a round.
    pub(super) fn handle_round(&mut self, from: NodeId, message: Fencing, effects: &mut SiteEffects) {
        match message {
            Fencing::Promise { targets, .. } if targets.contains_key(&self.options.me) => {}
            // The leader means an earlier incarnation, or the site will hear that this one is decided.
            Fencing::Promise { .. } if self.is_joining() && !self.is_decided() => {}
            Fencing::Promise { ballot, targets } => {
                if ballot < self.fences.promised {
                    let promised = self.fences.promised;
                    return self.post(from, Message::Fencing(Fencing::Outdated { promised }), effects);
                }
                if ballot > self.fences.promised {
                    self.promise(ballot, &targets, effects);
                }
                let (updates, granted) = (self.updates_of(&targets), self.numbers_granted_by(&targets));
                let (frozen, decisions) = (self.fences.frozen.clone(), self.fences.decided.clone());
                let is_joining = self.is_joining();
                let report = Fencing::Report { ballot, frozen, decisions, updates, granted, is_joining };
                self.post(from, Message::Fencing(report), effects);
            }
            Fencing::Report { ballot, frozen, decisions, updates, granted, is_joining } => {
                self.learn(&decisions, effects);
                if ballot == self.fences.promised && self.fences.round.is_some() {
                    frozen.into_iter().for_each(|(site, candidate)| self.want_fence(site, candidate));
                    self.count_report(Some((from, is_joining)), updates, granted);
                    self.decide_if_reported(effects);
                }
            }
            Fencing::Outdated { promised } if promised > self.fences.promised => {
                self.fences.round = None;
                self.fences.counter_heard = self.fences.counter_heard.max(promised.0);
                self.fences.since_tick = self.ticks;
            }
            Fencing::Decided { decisions } => self.learn(&decisions, effects),
            Fencing::Fenced { incarnation } => {
                self.is_fenced |= incarnation > self.incarnation && !self.is_joining();
            }
            Fencing::UnderWay { incarnation } if incarnation > self.incarnation && !self.is_joining() => {
                self.refused_by.insert(from);
                // The other sites will not have them.
                let names: Vec<TransactionName> = self.committing.keys().copied().collect();
                names.into_iter().for_each(|name| self.abort(name, Answer::Unavailable, effects));
            }
            _ => {}
        }
    }
}
