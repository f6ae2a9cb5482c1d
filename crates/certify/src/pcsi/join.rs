//! A site that begins without a log: it lost its disk, or other sites have fenced it (`fence.rs`).
//!
//! Such a site must not use its numbers again, and must not vote before it knows what it has voted for. It
//! becomes a new incarnation in five steps:
//!
//! 1. It asks all sites to be counted as an incarnation ([`Fencing::Join`]), the first time as incarnation 1.
//!    A site that knows of a later one says so, and the joining site asks for the next one. A process has a
//!    number of its own, so that its retries are told from a later process of the site.
//! 2. The others fence all earlier incarnations. What somebody has of the site's updates remains.
//! 3. Each other site that has applied all that remains *admits* the incarnation. From then on it retains its
//!    own updates for the site, and it tells its last number and which sites are out.
//! 4. When all sites that are not out have admitted the site, it fetches each of its partitions from a site
//!    that has it, with the updates in it that this site holds for others. All that the others had released
//!    before they admitted the site is in these partitions. The whole state is the first record of the new
//!    log ([`Installed`]), and so must not be larger than a record may be; before that, the site acknowledges
//!    nothing, and a crash makes it begin anew.
//! 5. The partitions come from several sites, and so may not be a consistent snapshot together. The site
//!    takes updates in, as always, until they are, and until it has applied all that each other site had
//!    committed when that site admitted it. Then it opens: begins transactions, votes, and sends updates.
//!
//! A site that joins takes part in rounds as soon as it knows that its incarnation is decided, and reports
//! nothing. So with each promise and decision it drops what it has fetched and heard, and asks again: a
//! fenced site may have given it updates that no report names. If the leader to which it has promised stays
//! silent, it begins anew as the next incarnation. Thus a site asks for an incarnation only if the one before
//! it is decided, and a request of an earlier process that comes late fences no later process that is open.
//!
//! The condition of step 5 makes the votes right: a site that promises a fence aborts what the fenced site
//! resolves, so each transaction that had the votes of an earlier incarnation was committed before the
//! admission. It also keeps a session's promise that nothing which remains goes back.
//!
//! Two sites can admit each other while both join. If no site answers, because all have lost their disks or
//! there is only one, the site stays shut, and the operator must set the system up anew. A partition that no
//! site has any more is empty.

use super::codec::struct_form;
use super::fence::{Ballot, Candidate, Decision, Incarnation};
use super::message::Fencing;
use super::propagation::{Incoming, Outgoing};
use super::replica::Replica;
use super::{CommitStamp, Message, Pcsi, Record, SiteEffects, Update, VectorClock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{Key, NodeId, PartitionId};

/// A joining site waits for a partition for this multiple of `silent_ticks_max` before it asks another site.
const FETCH_SILENCES_MIN: u64 = 4;
/// That wait doubles up to this multiple.
const FETCH_SILENCES_MAX: u64 = 16;

/// How far a site is.
#[derive(Debug)]
pub(super) enum Phase {
    /// It has no state.
    Joining(Joining),
    /// It has its partitions, and lacks some of what other sites had committed up to these numbers.
    CatchingUp(BTreeMap<NodeId, u64>),
    /// It begins transactions and votes.
    Open,
}

/// The answers that a site without a log has heard.
#[derive(Debug, Default)]
pub(super) struct Joining {
    start: u64,
    /// Grows with each promise and decision: answers and partitions from before do not count.
    inquiry: u64,
    /// The last number of each site that has admitted this one, and the sites that were out there.
    answers: BTreeMap<NodeId, (u64, BTreeSet<NodeId>)>,
    /// The joining sites that this one has admitted.
    admitted: BTreeSet<NodeId>,
    fetched: BTreeMap<PartitionId, Arc<ReplicaState>>,
    /// The partition that the site has asked for, the site that was asked, and when.
    asked: Option<(PartitionId, NodeId, u64)>,
    /// How often it has asked for a partition.
    fetches: u64,
    /// If no answer has come for this time, another site is asked. Grows with each such wait.
    wait_ticks: u64,
    /// There is no further incarnation.
    has_used_up: bool,
    /// The joining sites that do not have a partition either.
    without: BTreeMap<PartitionId, BTreeSet<NodeId>>,
}

/// A partition as one site has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaState {
    replica: Replica,
    /// The updates in this partition, by their site, that may not be at all sites concerned.
    held: BTreeMap<NodeId, Vec<Arc<Update>>>,
    /// The deletes that are at all sites concerned.
    tombstones: Vec<(Key, CommitStamp)>,
}

impl ReplicaState {
    /// How many updates of each site the partition counts.
    pub fn view(&self) -> &VectorClock {
        &self.replica.view
    }
}

/// The state with which a new incarnation begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Installed {
    incarnation: Incarnation,
    replicas: BTreeMap<PartitionId, Replica>,
    held: BTreeMap<NodeId, BTreeMap<u64, Arc<Update>>>,
    tombstones: BTreeSet<(PartitionId, Key, CommitStamp)>,
    decided: BTreeMap<NodeId, Decision>,
    excluded: BTreeSet<NodeId>,
    frozen: BTreeMap<NodeId, Candidate>,
    promised: Ballot,
    lasts: BTreeMap<NodeId, u64>,
}

struct_form!(ReplicaState { replica, held, tombstones });
struct_form!(Installed {
    incarnation,
    replicas,
    held,
    tombstones,
    decided,
    excluded,
    frozen,
    promised,
    lasts
});

impl Installed {
    /// Whether another site has given a partition in this state.
    pub fn has(&self, partition: PartitionId, state: &ReplicaState) -> bool {
        self.replicas.get(&partition) == Some(&state.replica)
    }

    /// The new incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }
}

impl Phase {
    pub fn joining(start: u64) -> Phase {
        Phase::Joining(Joining { start, ..Joining::default() })
    }
}

impl Pcsi {
    pub(super) fn is_joining(&self) -> bool {
        matches!(self.phase, Phase::Joining(_))
    }

    /// Whether this site begins transactions and votes.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
            && !self.is_fenced
            && !self.waits_to_hear()
            && !self.is_about_to_be_fenced()
    }

    /// Whether another site has said that a fence of this one is under way, and has sent nothing else since.
    pub fn is_about_to_be_fenced(&self) -> bool {
        !self.refused_by.is_empty()
    }

    /// Whether this site has restarted, and has not heard another site since: the others may have fenced it
    /// while it was down.
    pub fn waits_to_hear(&self) -> bool {
        if self.has_heard || is_active(Mutant::OpenUnheard) {
            return false;
        }
        let peers = self.options.sites.peers_of(self.options.me);
        peers.iter().any(|peer| !self.fences.excluded.contains(peer))
    }

    /// Whether a site without a log has no further incarnation: it can never join again.
    pub fn has_used_up_incarnations(&self) -> bool {
        matches!(&self.phase, Phase::Joining(joining) if joining.has_used_up)
    }

    /// How often the site has begun without a log.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn candidate(&self) -> Option<Candidate> {
        let Phase::Joining(joining) = &self.phase else { return None };
        Some(Candidate { incarnation: self.incarnation, start: joining.start })
    }

    /// Whether a joining site knows that its incarnation is decided. Until then, its reports do not count.
    pub(super) fn is_decided(&self) -> bool {
        let decided = self.fences.decided.get(&self.options.me);
        decided.map(|decision| decision.candidate) == self.candidate()
    }

    /// A joining site has learned that another one is fenced.
    pub(super) fn leave_out(&mut self, site: NodeId) {
        if let Phase::Joining(joining) = &mut self.phase {
            joining.admitted.remove(&site);
        }
        self.ask_again();
    }

    /// A joining site has promised, or has learned of a decision. A partition that it has fetched may have
    /// updates of the fenced site that no report names, and answers may be older than the fence.
    pub(super) fn ask_again(&mut self) {
        if let Phase::Joining(joining) = &mut self.phase {
            joining.inquiry += 1;
            joining.answers.clear();
            joining.fetched.clear();
            joining.without.clear();
            (joining.asked, joining.wait_ticks) = (None, 0);
            self.find_excluded();
        }
    }

    /// A joining site becomes the next incarnation after this one, and so has promised nothing.
    fn begin_anew(&mut self, after: Incarnation) {
        if let Phase::Joining(joining) = &mut self.phase {
            let Some(next) = after.next() else {
                joining.has_used_up = true;
                return;
            };
            self.incarnation = next;
            joining.admitted.clear();
            self.fences = super::Fences::default();
            self.ask_again();
        }
    }

    /// Out are the sites of which all who have answered say so, except those that this site has admitted. Of
    /// two joining sites, the one that some site has admitted later hears there that the earlier one is not
    /// out; so at least one of them waits for the other, which thus hears of it.
    fn find_excluded(&mut self) {
        let Phase::Joining(joining) = &self.phase else { return };
        let is_out = |site: &NodeId| {
            !joining.answers.is_empty()
                && joining.answers.values().all(|(_, excluded)| excluded.contains(site))
                && !joining.admitted.contains(site)
        };
        self.fences.excluded = self.options.sites.all_sites().into_iter().filter(is_out).collect();
    }

    /// The sites that must admit this one.
    fn required(&self) -> BTreeSet<NodeId> {
        let mut sites = self.options.sites.all_sites();
        sites.retain(|site| *site != self.options.me && !self.fences.excluded.contains(site));
        sites
    }

    /// Takes the next step towards being open.
    pub(super) fn tick_join(&mut self, effects: &mut SiteEffects) {
        // The leader to which the site has promised may be gone, and nobody else may know of the round.
        let is_stuck = !self.fences.frozen.is_empty()
            && self.fences.waits_longer(self.ticks, 16 * self.options.silent_ticks_max);
        if is_stuck && self.is_joining() {
            self.begin_anew(self.incarnation);
        }
        if let (Some(candidate), Phase::Joining(joining)) = (self.candidate(), &self.phase) {
            let inquiry = joining.inquiry;
            for site in self.options.sites.all_sites() {
                if site != self.options.me {
                    self.post(site, Message::Fencing(Fencing::Join { candidate, inquiry }), effects);
                }
            }
            self.fetch(candidate, effects);
        }
        if let Phase::CatchingUp(lasts) = &self.phase {
            let has_all =
                |(site, last): (&NodeId, &u64)| self.incoming.get(site).map_or(0, Incoming::applied) >= *last;
            if lasts.iter().all(has_all) && self.remaining.is_empty() && self.is_consistent() {
                self.record(Record::Opened, effects);
                self.open_up();
            }
        }
    }

    /// There is a new link to another site: what it was asked for on the one before may be lost.
    pub(super) fn fetch_again(&mut self, from: NodeId) {
        if let Phase::Joining(joining) = &mut self.phase {
            joining.asked = joining.asked.filter(|(_, holder, _)| *holder != from);
        }
    }

    /// Fetches the partitions from sites that have admitted this one, one at a time: a partition may be
    /// large, and is slow to make and to send. With all of them, the site has its state.
    fn fetch(&mut self, candidate: Candidate, effects: &mut SiteEffects) {
        let Phase::Joining(joining) = &self.phase else { return };
        let required = self.required();
        let is_admitted = required.iter().all(|site| joining.answers.contains_key(site));
        if joining.answers.is_empty() || !is_admitted {
            return;
        }
        let silent_ticks = self.options.silent_ticks_max;
        let wait_ticks = joining.wait_ticks.max(FETCH_SILENCES_MIN * silent_ticks);
        let (is_late, is_asked) = match joining.asked {
            Some((_, _, since_tick)) => (self.ticks - since_tick > wait_ticks, true),
            None => (false, false),
        };
        let mut next = None;
        let mut is_complete = true;
        for &partition in self.replicas.keys() {
            let sites = self.options.sites.sites(partition).iter();
            let holders: Vec<NodeId> = sites.copied().filter(|site| required.contains(site)).collect();
            let without = joining.without.get(&partition);
            let is_lost = holders.iter().all(|site| without.is_some_and(|without| without.contains(site)));
            if !joining.fetched.contains_key(&partition) && !is_lost {
                is_complete = false;
                let holder = holders[(joining.fetches % holders.len() as u64) as usize];
                next = next.or(Some((partition, holder)));
            }
        }
        if is_complete {
            return self.install(effects);
        }
        let (Some((partition, holder)), true) = (next, is_late || !is_asked) else { return };
        let fetch = Fencing::Fetch { candidate, inquiry: joining.inquiry, partition };
        self.post(holder, Message::Fencing(fetch), effects);
        let now = self.ticks;
        if let Phase::Joining(joining) = &mut self.phase {
            joining.asked = Some((partition, holder, now));
            joining.fetches += 1;
            joining.wait_ticks = match is_late {
                true => (2 * wait_ticks).min(FETCH_SILENCES_MAX * silent_ticks),
                false => wait_ticks,
            };
        }
    }

    fn install(&mut self, effects: &mut SiteEffects) {
        let Phase::Joining(joining) = &self.phase else { return };
        let mut held: BTreeMap<NodeId, BTreeMap<u64, Arc<Update>>> = BTreeMap::new();
        let mut tombstones = BTreeSet::new();
        for (&partition, state) in &joining.fetched {
            for (&origin, updates) in &state.held {
                let updates = updates.iter().map(|update| (update.number, Arc::clone(update)));
                held.entry(origin).or_default().extend(updates);
            }
            let deletes = state.tombstones.iter();
            tombstones.extend(deletes.map(|(key, stamp)| (partition, key.clone(), *stamp)));
        }
        let replica = |partition: &PartitionId| {
            let replica = joining.fetched.get(partition).map(|state| state.replica.clone());
            (*partition, replica.unwrap_or_else(|| Replica::empty(self.view_of_lost(*partition))))
        };
        let peers = self.options.sites.peers_of(self.options.me);
        let lasts = joining.answers.iter().filter(|(site, _)| peers.contains(site));
        let installed = Arc::new(Installed {
            incarnation: self.incarnation,
            replicas: self.replicas.keys().map(replica).collect(),
            held,
            tombstones,
            decided: self.fences.decided.clone(),
            excluded: self.fences.excluded.clone(),
            frozen: self.fences.frozen.clone(),
            promised: self.fences.promised,
            lasts: lasts.map(|(&site, &(last, _))| (site, last)).collect(),
        });
        self.keep_installed(&installed);
        self.boot.0 += 1;
        effects.records.push(Record::Installed(installed));
        effects.records.push(Record::Started(self.boot));
        self.apply_waiting(effects);
    }

    /// The site has its state, also where the log says so.
    pub(super) fn keep_installed(&mut self, installed: &Installed) {
        self.incarnation = installed.incarnation;
        self.replicas.clone_from(&installed.replicas);
        let (sites, me) = (&self.options.sites, self.options.me);
        let is_own = |key: &Key| sites.resolver_of(key) == me;
        self.replicas.values_mut().for_each(|replica| replica.keep_deadlines(is_own));
        self.tombstones.clone_from(&installed.tombstones);
        self.fences.decided.clone_from(&installed.decided);
        self.fences.excluded.clone_from(&installed.excluded);
        self.fences.frozen.clone_from(&installed.frozen);
        self.fences.promised = installed.promised;
        self.outgoing = Outgoing::new(&self.options, self.incarnation.base(), &installed.excluded);
        self.phase = Phase::CatchingUp(installed.lasts.clone());
        for (&origin, updates) in &installed.held {
            let own: Vec<_> = updates.values().filter(|update| self.is_held(update)).cloned().collect();
            let incoming = self.incoming.entry(origin).or_default();
            own.into_iter().for_each(|update| incoming.hold(update));
        }
        installed.decided.iter().for_each(|(&site, decision)| self.count_remaining(site, decision));
    }

    fn is_held(&self, update: &Update) -> bool {
        update.stamps.keys().any(|of| self.replicas.contains_key(of)) && self.has_applied(update)
    }

    /// The site opens, also where the log says so. All sites that count have applied what remains of its
    /// earlier incarnations: they have admitted it.
    pub(super) fn open_up(&mut self) {
        self.phase = Phase::Open;
        let own = self.incoming.remove(&self.options.me);
        let held = own.map(|mut incoming| incoming.release_all()).unwrap_or_default();
        held.iter().for_each(|update| self.mark_stable(update));
    }

    /// Another site's message about a site that begins without a log.
    pub(super) fn handle_join(&mut self, from: NodeId, message: Fencing, effects: &mut SiteEffects) {
        match message {
            Fencing::Join { candidate, inquiry } => {
                let known = self.fences.decided.get(&from).map(|decision| decision.candidate);
                let used = self.fences.incarnation_of(from);
                if candidate.incarnation > used {
                    self.fences.consents(from);
                }
                if known == Some(candidate) {
                    self.admit(from, candidate, inquiry, effects);
                } else if candidate.incarnation > used {
                    self.want_fence(from, candidate);
                } else if !self.is_joining() {
                    self.post(from, Message::Fencing(Fencing::Refused { candidate, used }), effects);
                }
            }
            Fencing::Refused { candidate, used } if self.candidate() == Some(candidate) => {
                self.begin_anew(used);
            }
            Fencing::Admitted { candidate, inquiry, last, decisions, excluded }
                if self.candidate() == Some(candidate) =>
            {
                self.learn(&decisions, effects);
                if let Phase::Joining(joining) = &mut self.phase
                    && joining.inquiry == inquiry
                {
                    joining.answers.insert(from, (last, excluded));
                }
                self.find_excluded();
            }
            Fencing::Fetch { candidate, inquiry, partition } => {
                self.give(from, (candidate, inquiry), partition, effects);
            }
            Fencing::Fetched { candidate, inquiry, partition, state } => {
                if self.candidate() == Some(candidate)
                    && let Phase::Joining(joining) = &mut self.phase
                    && joining.inquiry == inquiry
                {
                    joining.asked = joining.asked.filter(|(asked, ..)| *asked != partition);
                    match state {
                        Some(state) => {
                            joining.wait_ticks = 0;
                            joining.fetched.insert(partition, state);
                        }
                        None => {
                            joining.without.entry(partition).or_default().insert(from);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn admit(&mut self, site: NodeId, candidate: Candidate, inquiry: u64, effects: &mut SiteEffects) {
        if self.fences.frozen.contains_key(&site) {
            return;
        }
        if let Phase::Joining(joining) = &mut self.phase {
            joining.admitted.insert(site);
            self.find_excluded();
        } else if self.fences.excluded.contains(&site) {
            // A decision that is under way does not ask this site, so the site must not have state before it.
            if !self.fences.frozen.is_empty() || !self.remaining.is_empty() {
                return;
            }
            self.record(Record::Admitted(site), effects);
            self.keep_admitted(site);
        }
        let admitted = Fencing::Admitted {
            candidate,
            inquiry,
            last: self.outgoing.last_number(),
            decisions: self.fences.decided.clone(),
            excluded: self.fences.excluded.clone(),
        };
        self.post(site, Message::Fencing(admitted), effects);
    }

    /// A site counts again, also where the log says so.
    pub(super) fn keep_admitted(&mut self, site: NodeId) {
        // A site that was open because it had nobody to hear need not hear the one that comes.
        self.has_heard |= !self.waits_to_hear();
        self.fences.excluded.remove(&site);
        self.witnesses.exclude(&self.fences.excluded, &self.options);
        self.outgoing.admit(site, &self.options);
        self.incoming.entry(site).or_default().heard(self.ticks);
    }

    fn give(
        &self,
        to: NodeId,
        (candidate, inquiry): (Candidate, u64),
        partition: PartitionId,
        effects: &mut SiteEffects,
    ) {
        let is_known = self.fences.decided.get(&to).is_some_and(|known| known.candidate == candidate);
        let Some(replica) = self.replicas.get(&partition) else { return };
        if !is_known || !self.fences.is_here(to) {
            return;
        }
        let mut held: BTreeMap<NodeId, Vec<Arc<Update>>> =
            self.incoming.iter().map(|(&origin, incoming)| (origin, incoming.held())).collect();
        held.entry(self.options.me).or_default().extend(self.outgoing.retained());
        // The other site gets those of its other partitions with these.
        held.values_mut().for_each(|updates| updates.retain(|update| update.stamps.contains_key(&partition)));
        held.retain(|_, updates| !updates.is_empty());
        let deletes = self.tombstones.iter().filter(|(of, ..)| *of == partition);
        let tombstones = deletes.map(|(_, key, stamp)| (key.clone(), *stamp)).collect();
        let state = Arc::new(ReplicaState { replica: replica.without_earlier(), held, tombstones });
        let state = (!self.is_joining()).then_some(state);
        self.post(to, Message::Fencing(Fencing::Fetched { candidate, inquiry, partition, state }), effects);
    }
}
