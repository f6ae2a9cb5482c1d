//! Updates of remote partitions with numbers that a replica's site has granted in advance (section V).
//!
//! **Advance numbers.** A site that updates a partition which it does not have asks a replica's site for a
//! number, the *granter*: the resolver of the first key that the transaction writes there. It is asked for
//! its vote anyway, so the number costs no message: [`Message::Prepare`] names the partitions,
//! [`Message::Vote`] has the numbers. The record of the granter's locks has them too ([`Record::Locked`]),
//! so the granter gives no number twice, also after a crash. So a partition's vectors have entries of its
//! own sites only, however many sites update it.
//!
//! **Why there is no escrow.** In the paper, a granter's own numbers and the granted ones are one sequence,
//! and replicas apply it without gaps. So the granter reserves an escrow of numbers below each granted one,
//! for its own transactions, and fills the rest with a null transaction when the update comes. Algorithms 1
//! and 2 give granted numbers out in one total order, and gap synchronisation fills the gaps of several
//! partitions together. With all of that, updates can wait for each other for ever, also where each
//! transaction has one remote partition only. Let `u` have number 300 of site `g` in partition `p`, and `v`
//! number 700 of site `m` in partition `r`; `g` lacks `r`, and `m` lacks `p`. Both commit, each with a
//! further write in a partition that the other granter has. Site `m` applies `u`, because it lacks `p`, and
//! site `g` applies `v`. Then a local transaction `x` of `g` that has seen `v` commits in `p` with number
//! 250, of the escrow below 300. A local transaction `y` of `m` that has seen `u` commits in `r` with number
//! 650. A site with `p` and `r` must apply `x` before `u` (250 before 300), `u` before `y`, `y` before `v`
//! (650 before 700), and `v` before `x`: it applies none of them, and nothing behind them.
//!
//! An escrow cannot be right: a number below a visible one must not be given out any more. What remains is
//! to stall the granter's own transactions while a granted number is out, or to ask for no order among
//! numbers. This module does the latter: granted numbers are a sequence of their own. A replica applies an
//! update with a granted number as soon as its causal dependencies are applied, whatever the lower numbers
//! are, and the clock keeps the numbers as runs ([`VectorClock`]). Each order that a replica keeps is then
//! one of commit times: what an update depends on was committed before it, and so were the lower own numbers
//! of its site. Hence no update waits for ever, the granter's own transactions never stall or abort for a
//! granted number, and there is nothing to order or to synchronise. Versions of one item are ordered by its
//! resolver (note 7).
//!
//! **Null transactions.** A granted number of a transaction that never commits is *void*. Runs around void
//! numbers would make the clocks grow, so the granter fills each void number with a null update, without
//! writes ([`Record::Nulled`]). It does so only when it knows the transaction's fate (note 2): the
//! coordinator has said so, or the coordinator's site is fenced, and the decision does not name the update.
//! A request that comes late gets a number, too; the granter learns the outcome as a resolver does, by
//! asking, and fills the number (note 3).
//!
//! **Fences.** A fence of the granter, and the loss of its disk, may lose null updates, and the memory of the
//! numbers that are out. Somebody may have seen such a null update nevertheless: a reader of another region,
//! which then depends on its number. So the fence decides on the granted numbers, too. Each participant
//! reports the numbers of the fenced granter that updates have which the participant has, whatever their
//! origins are. These numbers *remain* ([`Decision::granted`]). All others that the granter's earlier
//! incarnations can have granted are void, and each replica counts them at once (`Pcsi::count_void`). An
//! update of a site that goes on is among the reports, because that site is a participant; it commits nothing
//! more with a number of the granter, because it has aborted what the granter resolves.
//!
//! A number that remains is the number of one transaction, and becomes void if the site of that transaction
//! is fenced later and the decision on that site does not name the transaction. For a granter that goes on,
//! the same decision voids the number, and the granter fills it. All sites know the same decisions in the
//! end, so each number is applied at all replicas, or void at all of them.

use super::{
    Candidate, CommitStamp, Decision, Incarnation, Message, Pcsi, Record, SiteEffects, TransactionName,
    Update, VectorClock,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{Key, NodeId, PartitionId};

/// Numbers that a site has granted, and the transactions that have them.
pub type GrantedNumbers = BTreeMap<PartitionId, BTreeMap<u64, TransactionName>>;

/// A number that this site has granted, and that its replica has not counted yet.
#[derive(Clone, Copy, Debug)]
struct Grant {
    name: TransactionName,
    /// The transaction never commits.
    is_void: bool,
}

/// The numbers that this site has granted, by partition and number.
#[derive(Debug, Default)]
pub(super) struct Grants(BTreeMap<(PartitionId, u64), Grant>);

impl Grants {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers that are out, and those of them that are void.
    pub fn lens(&self) -> (usize, usize) {
        (self.0.len(), self.0.values().filter(|grant| grant.is_void).count())
    }

    /// A transaction has a number.
    fn add(&mut self, partition: PartitionId, sequence: u64, name: TransactionName) {
        self.0.insert((partition, sequence), Grant { name, is_void: false });
    }

    /// The numbers that a transaction has.
    fn of(&self, name: TransactionName) -> BTreeMap<PartitionId, u64> {
        let own = self.0.iter().filter(|(_, grant)| grant.name == name);
        own.map(|(&number, _)| number).collect()
    }

    /// The replica has counted a number.
    pub fn applied(&mut self, partition: PartitionId, stamp: CommitStamp) {
        self.0.remove(&(partition, stamp.sequence));
    }

    /// A transaction has committed with these stamps, or never commits. The numbers that it has from this
    /// site (`me`) and that are not among them are void.
    pub fn settle(
        &mut self,
        name: TransactionName,
        me: NodeId,
        stamps: Option<&BTreeMap<PartitionId, CommitStamp>>,
    ) {
        for (&(of, sequence), grant) in self.0.iter_mut().filter(|(_, grant)| grant.name == name) {
            let stamp = stamps.and_then(|stamps| stamps.get(&of));
            grant.is_void = stamp != Some(&CommitStamp { site: me, sequence });
        }
    }

    /// A site is fenced. Its transactions that a decision does not name have never committed, and those that
    /// it names have their numbers.
    pub fn withdraw_site(&mut self, site: NodeId, me: NodeId, decision: &Decision) {
        let stamps: BTreeMap<TransactionName, &BTreeMap<PartitionId, CommitStamp>> =
            decision.updates.iter().map(|update| (update.name, &update.stamps)).collect();
        for (&(of, sequence), grant) in &mut self.0 {
            let Grant { name, .. } = *grant;
            if name.origin == site && name.incarnation < decision.candidate.incarnation {
                let stamp = stamps.get(&name).and_then(|stamps| stamps.get(&of));
                grant.is_void = stamp != Some(&CommitStamp { site: me, sequence });
            }
        }
    }

    fn void(&self) -> impl Iterator<Item = (PartitionId, u64)> {
        self.0.iter().filter(|(_, grant)| grant.is_void).map(|(&of, _)| of)
    }
}

impl Pcsi {
    /// The partitions of some keys in which a resolver gives a transaction of this site its number.
    pub(super) fn granted_by(&self, resolver: NodeId, writes: &BTreeSet<&Key>) -> BTreeSet<PartitionId> {
        let sites = &self.options.sites;
        let mut granters: BTreeMap<PartitionId, NodeId> = BTreeMap::new();
        for key in writes.iter().filter(|key| sites.has_grants() && !self.has_partition_of(key)) {
            granters.entry(sites.partition_of(key)).or_insert(sites.resolver_of(key));
        }
        granters.into_iter().filter(|(_, granter)| *granter == resolver).map(|(of, _)| of).collect()
    }

    /// The next number of each of these partitions for a transaction of another site. `None` if too many
    /// numbers are out: void ones are out until there is room for the updates that fill them.
    pub(super) fn next_grants(
        &self,
        partitions: &BTreeSet<PartitionId>,
    ) -> Option<BTreeMap<PartitionId, u64>> {
        let may_grant = self.options.sites.has_grants() && self.grants.0.len() < self.options.retained_max;
        if !partitions.is_empty() && !may_grant {
            return None;
        }
        let next = |&of: &PartitionId| {
            let next = self.last_grant(of, self.view(of)?) + 1;
            (next <= self.incarnation.last()).then_some((of, next))
        };
        partitions.iter().map(next).collect()
    }

    /// The last number that this site has granted in a partition with this view, or the one before the first.
    pub(super) fn last_grant(&self, of: PartitionId, view: &VectorClock) -> u64 {
        let counted = view.last_granted(self.options.me);
        let out = self.grants.0.range((of, 0)..=(of, u64::MAX)).next_back();
        let out = out.map_or(0, |((_, sequence), _)| *sequence);
        let out = if is_active(Mutant::ReuseGranted) { 0 } else { out };
        counted.max(out).max(CommitStamp::granted_base(self.incarnation))
    }

    /// A transaction of another site has these numbers, also where the log says so.
    pub(super) fn keep_grants(&mut self, name: TransactionName, numbers: &BTreeMap<PartitionId, u64>) {
        for (&of, &sequence) in numbers {
            let stamp = CommitStamp { site: self.options.me, sequence };
            if self.view(of).is_some_and(|view| !view.sees(stamp)) {
                self.grants.add(of, sequence, name);
            }
        }
    }

    /// Fills void numbers, as many as there is room for.
    pub(super) fn fill_void(&mut self, effects: &mut SiteEffects) {
        if is_active(Mutant::NullEarly) {
            let waiting = self.resolver.waiting_since(self.ticks.saturating_sub(10));
            let me = self.options.me;
            waiting.into_iter().for_each(|name| self.grants.settle(name, me, None));
        }
        let void: Vec<(PartitionId, u64)> = self.grants.void().collect();
        for (partition, sequence) in void {
            let number = self.outgoing.last_number() + 1;
            let has_room = self.outgoing.len() < self.options.retained_max
                && number <= CommitStamp::own_last(self.incarnation);
            if !has_room || is_active(Mutant::KeepVoid) {
                return;
            }
            let name = self.next_name();
            let stamps = BTreeMap::from([(partition, CommitStamp { site: self.options.me, sequence })]);
            let (depends, writes) = (BTreeMap::new(), BTreeMap::new());
            let update = Arc::new(Update { name, number, stamps, depends, writes });
            self.keep_null(&update);
            self.nulls += 1;
            effects.records.push(Record::Nulled { update });
        }
    }

    /// A void number is filled, also where the log says so.
    pub(super) fn keep_null(&mut self, update: &Arc<Update>) {
        self.apply(update);
        self.retain(update);
    }

    /// The numbers that these sites have granted before their next incarnations, and that updates have which
    /// this site has.
    pub(super) fn numbers_granted_by(
        &self,
        targets: &BTreeMap<NodeId, Candidate>,
    ) -> BTreeMap<NodeId, GrantedNumbers> {
        let mut granted: BTreeMap<NodeId, GrantedNumbers> = BTreeMap::new();
        let mut add = |update: &Arc<Update>| {
            for (&of, stamp) in update.stamps.iter().filter(|(_, stamp)| stamp.is_granted()) {
                let is_meant = |candidate: &Candidate| stamp.incarnation() < candidate.incarnation;
                if targets.get(&stamp.site).is_some_and(is_meant) {
                    let numbers = granted.entry(stamp.site).or_default().entry(of).or_default();
                    numbers.insert(stamp.sequence, update.name);
                }
            }
        };
        if self.options.sites.has_grants() {
            self.outgoing.retained().iter().for_each(&mut add);
            self.incoming.values().flat_map(super::Incoming::all).for_each(|update| add(&update));
            self.fences.decided.values().flat_map(|decision| &decision.updates).for_each(add);
        }
        granted
    }

    /// Counts the granted numbers of fenced sites that belong to no update which remains.
    pub(super) fn count_void(&mut self) {
        let Pcsi { options, fences, replicas, .. } = self;
        if !options.sites.has_grants() || is_active(Mutant::ForgetLostGrants) {
            return;
        }
        let remaining: BTreeMap<NodeId, (Incarnation, BTreeSet<TransactionName>)> = fences
            .decided
            .iter()
            .map(|(&site, decision)| {
                let names = decision.updates.iter().map(|update| update.name).collect();
                (site, (decision.candidate.incarnation, names))
            })
            .collect();
        // A site that has returned has no updates in its decision any more, and all are applied here then.
        let is_expected = |name: &TransactionName| match remaining.get(&name.origin) {
            Some((next, names)) => name.incarnation >= *next || names.contains(name),
            None => true,
        };
        for (&granter, decision) in &fences.decided {
            let own = replicas.iter_mut().filter(|(of, _)| options.sites.sites(**of).contains(&granter));
            for (of, replica) in own {
                let numbers = decision.granted.get(of).into_iter().flatten();
                let expected = numbers.filter(|(_, name)| is_expected(name)).map(|(&number, _)| number);
                let expected = expected.filter(|_| !is_active(Mutant::VoidRemaining)).collect();
                replica.view.count_granted_before(granter, decision.candidate.incarnation, &expected);
            }
        }
    }

    /// The view of a partition that no site has any more: whatever fenced sites have granted there is lost
    /// with it.
    pub(super) fn view_of_lost(&self, partition: PartitionId) -> VectorClock {
        let mut view = VectorClock::default();
        let having = self.options.sites.sites(partition);
        let fenced = self.fences.decided.iter().filter(|(site, _)| having.contains(site));
        for (&site, decision) in fenced.filter(|_| self.options.sites.has_grants()) {
            view.count_granted_before(site, decision.candidate.incarnation, &BTreeSet::new());
        }
        view
    }

    /// The numbers that this site has granted and that are not counted yet, and those of them that are void.
    pub fn grants(&self) -> (usize, usize) {
        self.grants.lens()
    }

    /// A resolver has granted numbers with its vote. Returns whether they are those that it was asked for:
    /// an update with others could not be read by anybody.
    pub(super) fn take_grants(
        &mut self,
        from: NodeId,
        name: TransactionName,
        numbers: BTreeMap<PartitionId, u64>,
    ) -> bool {
        let Some(committing) = self.committing.get(&name) else { return false };
        let asked = self.granted_by(from, &committing.writes.keys().collect());
        let incarnation = self.fences.incarnation_of(from);
        let stamps: BTreeMap<PartitionId, CommitStamp> =
            numbers.into_iter().map(|(of, sequence)| (of, CommitStamp { site: from, sequence })).collect();
        let are_granted =
            stamps.values().all(|stamp| stamp.is_of_a_grant() && stamp.incarnation() == incarnation);
        let are_asked_for = asked.iter().eq(stamps.keys());
        if let Some(committing) = self.committing.get_mut(&name).filter(|_| are_granted && are_asked_for) {
            committing.granted.extend(stamps);
        }
        are_granted && are_asked_for
    }

    /// A resolver that is asked for its vote.
    pub(super) fn vote(
        &mut self,
        from: NodeId,
        (name, keys): (TransactionName, Vec<Key>),
        views: &super::Views,
        grant: &BTreeSet<PartitionId>,
        effects: &mut SiteEffects,
    ) {
        let refused = self.refuses(name, &keys, views);
        let mut numbers = BTreeMap::new();
        if self.resolver.has_lock(name) {
            // It is asked again, because its first vote may be lost: it gave these numbers with that.
            numbers = self.grants.of(name);
        } else if refused.is_none() && !is_active(Mutant::UnlockAtVote) {
            let Some(next) = self.next_grants(grant) else { return };
            numbers = next;
            self.resolver.lock(name, &keys, self.ticks);
            self.keep_grants(name, &numbers);
            effects.records.push(Record::Locked { name, keys, numbers: numbers.clone() });
        }
        self.send(from, Message::Vote { name, refused, numbers }, effects);
    }
}
