//! Two-phase commit between partitions: the baselines NO-WAIT, TIMESTAMP, MVCC and MaaT of Harding et al.
//! (*An Evaluation of Distributed Concurrency Control*, VLDB 2017).
//!
//! The keys are cut into partitions, and each partition is a group of the substrate. A transaction executes
//! at its client's site, the *coordinator*, and commits at all partitions that it has used, or at none. All
//! that two-phase commit must not forget is an entry of a group: votes are entries of the participants, and
//! the decision is an entry of the session's *home* partition. So a participant recovers its vote, and a home
//! its decision, as any group recovers its entries.
//!
//! The four baselines differ in one thing, the [`Rule`] of concurrency control: what a vote requires of the
//! keys that a transaction has used, and at which timestamps it lets the transaction commit. `rule` tells the
//! rules, and has a file for each.
//!
//! # What the sites agree on, and what belongs to one site
//!
//! A partition's sites agree on its records with their versions, the transactions that are *prepared* there
//! and in the way of others, the votes that were given lately, and, for the sessions that are at home there,
//! the newest attempt of each session, the timestamp of its last commit, and the committed transactions that
//! some participant has not finished. A site has for itself the open transactions of its clients, the
//! transactions that it coordinates, and the entries that it has proposed. Each site has a replica of every
//! partition. So a coordinator reads a record, learns a vote and learns a decision from its own replicas, and
//! sites send each other no messages of the protocol.
//!
//! # A transaction's way
//!
//! 1. It reads at the coordinator's replicas what is committed there. If its rule says that a prepared
//!    transaction is in the way, that is a conflict at once.
//! 2. `Prepare`: the coordinator proposes to each participant what the transaction has read and written
//!    there. Where that entry stands in the participant's log, the participant *votes*: yes, with the range
//!    of timestamps at which the rule lets the transaction commit, or no, if there is none. From a yes on the
//!    transaction is prepared, and the rule holds it against others. No transaction ever waits for another
//!    one.
//! 3. `Decide`: with all votes at yes the coordinator proposes the decision to the home: a commit at a
//!    timestamp that all ranges have in common, or an abort if they have none. The *first* decision in the
//!    home's log counts. When the home has it, the client is answered.
//! 4. `Finish`: each participant makes the writes versions of that timestamp, and the transaction is prepared
//!    no longer. At the home, the decision itself does so.
//! 5. `Forget`: when all participants have finished, the home forgets the decision.
//!
//! A transaction that has used its home only is one entry, `Whole`: vote, decision and end. Transactions
//! without writes go the same way.
//!
//! # Timestamps
//!
//! A timestamp is a count, and no clock shows it. A partition knows the greatest one that an entry of its log
//! has had. A coordinator takes a greater one than all its replicas know, and puts its site's number behind
//! it. So an attempt that was too early for others, and has seen their entries, comes behind them the next
//! time. With MaaT a transaction has no timestamp before the decision; what its `Prepare` says is how early
//! it may commit, as far as its coordinator knows.
//!
//! # What is promised
//!
//! With NO-WAIT, transactions are strictly serializable. With the other rules they are serializable in the
//! order of their commit timestamps, and this order keeps each session's own: a home commits no transaction
//! at a timestamp that its session's last commit has reached. The order need not keep real time. While a
//! writer is prepared, its home may have decided, and its client may have been answered. If another
//! transaction begins then at a site that lags, its timestamp may be less than the writer's, and the
//! participant lets it commit before the writer. To refuse whoever meets a prepared transaction would keep
//! real time: but that is NO-WAIT, and what these rules have over it would be gone.
//!
//! # Aborts are presumed
//!
//! The home remembers a commit until all participants have finished, and it remembers nothing of an abort but
//! the newest attempt of the session, which it has anyhow. A transaction that is prepared somewhere, that the
//! home can no longer commit (`Sessions::settled`), and that is not among the unfinished commits, has been
//! aborted. A vote of no is
//! for good: the participant knows the votes of the last entries (as many as the session horizon), and
//! refuses every older `Prepare`, which says behind which entry it was made. So after a no the coordinator
//! has the other participants finish without a decision.
//!
//! # Who acts when a coordinator is silent
//!
//! Every site sees what is prepared at its replicas, and for how long. After [`SILENT_TICKS`], multiplied by
//! a rank that differs from site to site, a site acts in the coordinator's place. If all participants have
//! voted yes, the site proposes to commit, otherwise to abort: a participant whose vote takes longer is taken
//! for one that does not vote. The ranges of the votes are part of what is
//! prepared, so the site has them, too. If the coordinator decides at the same time, the first decision
//! counts for both. A site finishes an unfinished decision in the same way. So nothing is
//! blocked while the groups have majorities, whichever sites are gone.
//!
//! # Exactly once
//!
//! Attempts of one transaction may use different partitions, so no participant can tell them apart. The home
//! does: a session's home is a function of its number, and all its attempts are decided there
//! ([`crate::sessions`]). A client opens a session behind an entry of the session's home ([`home_of`]).
//!
//! # Bounds
//!
//! * A site has at most [`OPEN_MAX`](crate::OPEN_MAX) transactions open, and coordinates at most twice as
//!   many.
//! * A partition has at most [`PREPARED_MAX`] transactions prepared, and votes no to others.
//! * If no participant votes, a client waits [`VOTE_TICKS`]; then its coordinator proposes to abort.
//! * A site asks for the votes of one attempt of each session. When a session begins another attempt, the
//!   site gives up the earlier one. Otherwise a group that has lost its leader would find ever more entries
//!   waiting for the next one.
//! * Votes, and the timestamps of sessions' last commits, are known for as many entries as sessions. One
//!   timestamp stands for all forgotten commits, and one for all forgotten reads ([`ONLY_READ_MAX`]): whoever
//!   comes behind them is right whatever they were.
//! * A decision is unfinished as long as a participant has the transaction prepared, and until a site that
//!   sees that it has not proposes to forget it.
//! * A key has as many versions as its rule reads, at most eight.
//!
//! What it leaves out: listings and counts (refused), partitions that only some sites have, and the
//! forgetting of deleted keys.
//!
//! The scale model (`sim::scale::two_phase`) gives [`Partition`]s their entries itself, without groups: it
//! measures what the protocol costs where nothing fails.
//!
//! Invariants:
//! 1. The state of a partition is a function of its decided entries.
//! 2. Two transactions that are prepared at a partition, and of which one writes what the other uses, have
//!    ranges without a common timestamp. With NO-WAIT all ranges are the same, so there are no such two.
//! 3. Versions and reads of a key are in the order of their timestamps.
//! 4. No decision to commit counts unless all its participants have the transaction prepared.

mod entry;
mod partition;
mod records;
mod rule;
#[cfg(test)]
mod tests;

pub use crate::prepare::{Prepare, Used};
pub use crate::times::{Range, Timestamp};
pub use entry::Decision;
pub use partition::{Partition, Vote};
pub use rule::Rule;

use crate::proposals::{Proposals, make_room};
use crate::sessions::SESSION_HORIZON;
pub use crate::sessions::home_of;
use crate::{Answer, Certifier, Conflict, Effects, Look, Malformed, OPEN_MAX, ReadSet, WriteSet};
use entry::LogEntry;
use partition::Fate;
use std::collections::{BTreeMap, BTreeSet};
use txn::hash::mix;
use txn::key::partition_of_slot;
use txn::mutant::{Mutant, is_active};
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId, Space};

/// The site of the lowest rank acts for a silent coordinator after so many ticks.
pub const SILENT_TICKS: u64 = 40;
/// A coordinator waits for votes for so many ticks.
pub const VOTE_TICKS: u64 = 400;
/// In a tick a site acts for the coordinators of so many transactions, at most.
const ACTS_MAX: usize = 64;
/// At most so many transactions are prepared at a partition.
pub const PREPARED_MAX: usize = 1 << 16;
/// Of at most so many keys that were never written a partition knows when they were read.
pub const ONLY_READ_MAX: usize = 1 << 16;

/// What a site is told at its start. All but `me` is the same at all sites, and for good.
#[derive(Clone, Copy, Debug)]
pub struct TwoPhaseOptions {
    /// The site.
    pub me: NodeId,
    /// The number of sites.
    pub sites: u16,
    /// The number of partitions: their groups are 0, 1, and so on.
    pub partitions: u16,
    /// What a vote requires.
    pub rule: Rule,
    /// For how many entries of its home a session is known, and for how many entries a vote.
    pub session_horizon: u64,
}

impl Default for TwoPhaseOptions {
    fn default() -> TwoPhaseOptions {
        TwoPhaseOptions {
            me: NodeId(1),
            sites: 1,
            partitions: 2,
            rule: Rule::NoWait,
            session_horizon: SESSION_HORIZON,
        }
    }
}

/// One site's part. See the module's head.
#[derive(Debug)]
pub struct TwoPhase {
    options: TwoPhaseOptions,
    partitions: BTreeMap<PartitionId, Partition>,
    proposals: BTreeMap<PartitionId, Proposals>,
    /// Transactions of this site's clients that are not answered, and the timestamps at which they have
    /// begun.
    open: BTreeMap<RequestId, Open>,
    coordinated: BTreeMap<RequestId, Coordinated>,
    /// When this site acts for the coordinator of a transaction that is prepared or unfinished.
    acts_at: BTreeMap<RequestId, u64>,
    /// The newest timestamp that this process has given.
    issued: Timestamp,
    ticks: u64,
}

/// A transaction that is not answered.
#[derive(Debug)]
struct Open {
    begins_at: Timestamp,
    /// Its client has asked for the commit.
    is_ending: bool,
}

/// A transaction whose coordinator this site is.
#[derive(Debug)]
struct Coordinated {
    participants: BTreeSet<PartitionId>,
    /// Some participant has voted no, or the home has decided to abort.
    is_aborted: bool,
    /// When this site waits no longer.
    until_tick: u64,
}

impl Default for TwoPhase {
    fn default() -> TwoPhase {
        TwoPhase::new(TwoPhaseOptions::default())
    }
}

impl TwoPhase {
    /// A site without data.
    pub fn new(options: TwoPhaseOptions) -> TwoPhase {
        let groups = (0..options.partitions.max(1)).map(PartitionId);
        let partition = |group| (group, Partition::new(group, options.rule, options.session_horizon));
        TwoPhase {
            partitions: groups.clone().map(partition).collect(),
            proposals: groups.map(|group| (group, Proposals::to(group))).collect(),
            open: BTreeMap::new(),
            coordinated: BTreeMap::new(),
            acts_at: BTreeMap::new(),
            issued: Timestamp::NONE,
            ticks: 0,
            options,
        }
    }

    /// The last decided entry of a partition.
    pub fn position(&self, group: PartitionId) -> Position {
        self.partitions.get(&group).map_or(Position::NONE, |partition| partition.decided)
    }

    /// What a key has at this site.
    pub fn value(&self, key: &Key) -> Option<Entry> {
        self.partitions.get(&self.group_of(key))?.newest(key).entry
    }

    /// Whether no transaction is prepared here, and no decision unfinished.
    pub fn is_idle(&self) -> bool {
        self.partitions
            .values()
            .all(|partition| partition.prepared.is_empty() && partition.unfinished.is_empty())
    }

    /// The partition of a key.
    pub fn group_of(&self, key: &Key) -> PartitionId {
        partition_of_slot(key.slot(), self.options.partitions.max(1))
    }

    fn home_of(&self, id: RequestId) -> PartitionId {
        home_of(id.session, self.options.partitions)
    }

    fn home(&self, id: RequestId) -> Option<&Partition> {
        self.partitions.get(&self.home_of(id))
    }

    /// The greatest timestamp of which this site knows.
    fn greatest_timestamp(&self) -> Timestamp {
        let known = self.partitions.values().map(Partition::greatest_timestamp);
        known.fold(self.issued, Timestamp::max)
    }

    fn answer(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        if self.open.remove(&id).is_some() {
            effects.answer(id, answer);
        }
    }

    fn propose(&mut self, group: PartitionId, id: RequestId, entry: &LogEntry, effects: &mut Effects) {
        if let Some(proposals) = self.proposals.get_mut(&group) {
            proposals.propose(id, entry.encode(), effects);
        }
    }

    fn withdraw(&mut self, group: PartitionId, id: RequestId) {
        self.proposals.iter_mut().filter(|(of, _)| **of == group).for_each(|(_, made)| made.forget(id));
    }

    fn is_proposed(&self, group: PartitionId, id: RequestId) -> bool {
        self.proposals.get(&group).is_some_and(|proposals| proposals.has(id))
    }

    /// Proposes the next entry of a transaction's way, as far as this site's replicas show it.
    /// `in_place` tells that the coordinator is silent, and that this site acts for it.
    fn advance(&mut self, id: RequestId, in_place: bool, effects: &mut Effects) {
        let home = self.home_of(id);
        let Some(at_home) = self.partitions.get(&home) else { return };
        let mut entries: Vec<(PartitionId, LogEntry)> = Vec::new();
        let mut votes = BTreeMap::new();
        let mut ranges = Vec::new();
        let mut participants = None;
        let is_refused = self.coordinated.get(&id).is_some_and(|coordinated| coordinated.is_aborted);
        for (&group, partition) in &self.partitions {
            let Some(prepared) = partition.prepared.get(&id) else { continue };
            ranges.push(prepared.range);
            votes.insert(group, prepared.at);
            match at_home.fate(id, group) {
                Fate::Committed(at) => entries.push((group, LogEntry::Finish { id, at: Some(at) })),
                Fate::Aborted => entries.push((group, LogEntry::Finish { id, at: None })),
                Fate::Undecided if is_refused => entries.push((group, LogEntry::Finish { id, at: None })),
                Fate::Undecided if in_place && is_active(Mutant::AbortAlone) => {
                    entries.push((group, LogEntry::Finish { id, at: None }));
                }
                Fate::Undecided => participants = Some(&prepared.prepare.participants),
            }
        }
        if let Some(participants) = participants {
            let is_unanimous = participants.iter().all(|group| votes.contains_key(group));
            let at = at_home.choose(id, Range::common(&ranges)).filter(|_| is_unanimous);
            if let Some(at) = at {
                if is_active(Mutant::TellBeforeDecided) && self.coordinated.contains_key(&id) {
                    let finish = |&group| (group, LogEntry::Finish { id, at: Some(at) });
                    entries.extend(participants.iter().filter(|&&group| group != home).map(finish));
                    if self.open.remove(&id).is_some() {
                        effects.answer(id, Answer::Committed);
                    }
                }
                entries.push((home, LogEntry::Decide { id, decision: Decision { at, votes } }));
            } else if in_place || is_unanimous {
                entries.push((home, LogEntry::Decide { id, decision: Decision::abort() }));
            }
        }
        if let Some(unfinished) = at_home.unfinished.get(&id) {
            let has_finished = |(group, &vote): (&PartitionId, &Position)| {
                self.partitions.get(group).is_some_and(|partition| partition.has_finished(id, vote))
            };
            if unfinished.votes.iter().all(has_finished) {
                entries.push((home, LogEntry::Forget { id }));
            }
        }
        for (group, entry) in entries {
            if !self.is_proposed(group, id) {
                self.propose(group, id, &entry, effects);
            }
        }
    }

    /// The timestamps at which a transaction of this site could commit, as far as its replicas show it.
    fn range(&self, id: RequestId, used: &BTreeMap<PartitionId, Used>) -> Result<Range, Conflict> {
        let first = self.home(id).map_or(Timestamp::NONE, |home| home.first_of(id.session));
        let mut ranges = Vec::new();
        for (group, used) in used {
            if let Some(partition) = self.partitions.get(group) {
                ranges.push(partition.range(used)?);
            }
        }
        let range = Range::common(&ranges).and(Range::from(first));
        if range.is_empty() { Err(Conflict::Timestamp) } else { Ok(range) }
    }

    /// The coordinator learns that a transaction has no effect.
    fn aborted(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        self.answer(id, answer, effects);
        let Some(coordinated) = self.coordinated.get_mut(&id) else { return };
        coordinated.is_aborted = true;
        coordinated.until_tick = self.ticks + SILENT_TICKS;
        // No vote of other participants is needed any more.
        for group in coordinated.participants.clone() {
            self.withdraw(group, id);
        }
        self.advance(id, false, effects);
    }

    /// A partition has voted on a transaction.
    fn voted(&mut self, group: PartitionId, id: RequestId, vote: Vote, effects: &mut Effects) {
        // At the home, a decision may be under way already.
        self.withdraw(group, id);
        if !self.coordinated.contains_key(&id) {
            return;
        }
        match vote {
            Vote::Yes(_) => self.advance(id, false, effects),
            Vote::No(conflict) => self.aborted(id, Answer::Conflict(conflict), effects),
            // It had voted before, and only the home knows what became of that.
            Vote::Unknown => {
                let home = self.home_of(id);
                self.propose(home, id, &LogEntry::Decide { id, decision: Decision::abort() }, effects);
            }
        }
    }

    /// A group has decided on an entry of a transaction. A site that coordinates it, or acts for its
    /// coordinator, proposes what comes next.
    fn go_on(&mut self, group: PartitionId, id: RequestId, effects: &mut Effects) {
        let acts = self.is_proposed(group, id);
        self.withdraw(group, id);
        if acts || self.coordinated.contains_key(&id) {
            self.advance(id, false, effects);
        }
    }

    /// A session begins an attempt, and nobody waits for its earlier ones. This site proposes their entries
    /// no longer, so that it has the entries of one attempt of each session under way. It aborts what is
    /// prepared, unless all votes are there.
    fn give_up_earlier(&mut self, id: RequestId, effects: &mut Effects) {
        let first = RequestId { session: id.session, sequence: 0, attempt: 0 };
        let of_session = self.coordinated.range(first..).take_while(|(other, _)| other.session == id.session);
        let earlier: Vec<RequestId> =
            of_session.map(|(&other, _)| other).filter(|&other| other != id).collect();
        if earlier.is_empty() {
            let partitions = &self.partitions;
            // The ends of what others meet are proposed until they are decided.
            let is_held = |id: RequestId| {
                let holds = |at: &Partition| at.prepared.contains_key(&id) || at.unfinished.contains_key(&id);
                partitions.values().any(holds)
            };
            for proposals in self.proposals.values_mut() {
                proposals.forget_session_but(id.session, is_held);
            }
        }
        for other in earlier {
            let Some(coordinated) = self.coordinated.remove(&other) else { continue };
            for group in coordinated.participants {
                let is_prepared = |at: &Partition| at.prepared.contains_key(&other);
                if !self.partitions.get(&group).is_some_and(is_prepared) {
                    self.withdraw(group, other);
                }
            }
            self.advance(other, true, effects);
        }
    }

    /// Answers transactions that have no entry under way any more that would: the entry that would have has
    /// been dropped for a later one of the transaction, or a snapshot has passed it over.
    fn answer_forgotten(&mut self, effects: &mut Effects) {
        let is_forgotten = |&(&id, open): &(&RequestId, &Open)| {
            open.is_ending && !self.coordinated.contains_key(&id) && !self.is_proposed(self.home_of(id), id)
        };
        let forgotten: Vec<RequestId> = self.open.iter().filter(is_forgotten).map(|(&id, _)| id).collect();
        for id in forgotten {
            let settled = self.home(id).and_then(|home| home.sessions.settled(id, home.decided));
            match settled {
                Some(answer) => self.answer(id, answer, effects),
                None => {
                    let abort = LogEntry::Decide { id, decision: Decision::abort() };
                    self.propose(self.home_of(id), id, &abort, effects);
                }
            }
        }
    }

    /// How long a site waits for a silent coordinator.
    fn patience(&self, id: RequestId) -> u64 {
        let rank =
            mix(id.seed()).wrapping_add(u64::from(self.options.me.0)) % u64::from(self.options.sites.max(1));
        SILENT_TICKS * (1 + rank)
    }

    /// # Panics
    /// An invariant of the module's head does not hold.
    fn check_invariants(&self) {
        self.partitions.values().for_each(Partition::check_invariants);
    }
}

impl Certifier for TwoPhase {
    fn begin(&mut self, id: RequestId, _: bool, effects: &mut Effects) {
        if let Err(answer) = make_room(&mut self.open, id) {
            return effects.answer(id, answer);
        }
        if self.coordinated.len() >= OPEN_MAX {
            return effects.answer(id, Answer::Unavailable);
        }
        let Some(home) = self.home(id) else { return };
        if home.sessions.committed(id).is_some() {
            return effects.answer(id, Answer::CommittedBefore);
        }
        if home.sessions.is_forgotten(id.session, home.decided) {
            return effects.answer(id, Answer::Unknown);
        }
        self.give_up_earlier(id, effects);
        let begins_at = match self.options.rule.begins_at_timestamp() {
            true => {
                self.issued = self.greatest_timestamp().next_of(self.options.me);
                self.issued
            }
            false => Timestamp::NONE,
        };
        self.open.insert(id, Open { begins_at, is_ending: false });
        effects.answer(id, Answer::Begun);
    }

    fn reached(&mut self, _: RequestId, _: &mut Effects) {}

    fn look(&mut self, id: RequestId, look: &Look, effects: &mut Effects) {
        let Some(&Open { begins_at: timestamp, .. }) = self.open.get(&id) else { return };
        let Look::Key(key) = look else {
            let text = "ERR two-phase commit lists and counts no keys: read them by name";
            return effects.answer(id, Answer::Refused(text.into()));
        };
        let Some(partition) = self.partitions.get(&self.group_of(key)) else { return };
        match partition.read(key, timestamp) {
            Ok(read) => effects.answer(id, Answer::Value(read)),
            Err(conflict) => self.answer(id, Answer::Conflict(conflict), effects),
        }
    }

    fn commit(&mut self, id: RequestId, reads: ReadSet, writes: WriteSet, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&id) else {
            return effects.answer(id, Answer::Conflict(Conflict::Superseded));
        };
        open.is_ending = true;
        let begun = open.begins_at;
        let home = self.home_of(id);
        let timestamp = match writes.is_empty() {
            true => begun,
            false => self.options.rule.timestamp_of_writer(begun, self.greatest_timestamp()),
        };
        let mut used: BTreeMap<PartitionId, Used> = BTreeMap::new();
        for (key, version) in reads.keys {
            used.entry(self.group_of(&key)).or_default().reads.insert(key, version);
        }
        for (key, entry) in writes.records {
            used.entry(self.group_of(&key)).or_default().writes.records.insert(key, entry);
        }
        if writes.clears {
            for &group in self.partitions.keys() {
                used.entry(group).or_default().writes.clears = true;
            }
        }
        used.values_mut().for_each(|used| used.timestamp = timestamp);
        // What conflicts with this site's replicas would most likely conflict at its entry, too.
        let range = match self.range(id, &used) {
            Ok(range) => range,
            Err(conflict) => return self.answer(id, Answer::Conflict(conflict), effects),
        };
        used.values_mut().for_each(|used| used.timestamp = range.lower);
        if used.keys().all(|&group| group == home) {
            let used = used.remove(&home).unwrap_or_default();
            return self.propose(home, id, &LogEntry::Whole { id, used }, effects);
        }
        let participants: BTreeSet<PartitionId> = used.keys().copied().collect();
        let until_tick = self.ticks + VOTE_TICKS;
        let coordinated = Coordinated { participants: participants.clone(), is_aborted: false, until_tick };
        self.coordinated.insert(id, coordinated);
        for (group, used) in used {
            let prepare =
                Prepare { id, behind: self.position(group), participants: participants.clone(), used };
            self.propose(group, id, &LogEntry::Prepare(prepare), effects);
        }
    }

    fn has_new_leader(&mut self, group: PartitionId, _: NodeId) {
        if let Some(proposals) = self.proposals.get_mut(&group) {
            proposals.propose_in_turn();
        }
    }

    fn forget(&mut self, id: RequestId) {
        self.open.remove(&id);
        // A transaction that has asked for votes goes on without its client.
        if !self.coordinated.contains_key(&id) {
            self.withdraw(self.home_of(id), id);
        }
    }

    fn receive(&mut self, _: NodeId, _: &[u8], _: &mut Effects) -> Result<(), Malformed> {
        // Sites have nothing to say to each other beside what they agree on.
        Err(Malformed)
    }

    fn check(&self, group: PartitionId, entry: &[u8]) -> Result<(), Malformed> {
        let entry = LogEntry::decode(entry).ok_or(Malformed)?;
        let is_here = |used: &Used| used.keys().all(|key| self.group_of(key) == group);
        let is_home = |id| self.home_of(id) == group;
        let exists = |group: &PartitionId| self.partitions.contains_key(group);
        let is_one = match &entry {
            LogEntry::Whole { id, used } => is_home(*id) && is_here(used),
            LogEntry::Prepare(prepare) => {
                let participants = &prepare.participants;
                is_here(&prepare.used) && participants.contains(&group) && participants.iter().all(exists)
            }
            LogEntry::Decide { id, decision } => is_home(*id) && decision.votes.keys().all(exists),
            LogEntry::Forget { id } => is_home(*id),
            LogEntry::Finish { .. } => exists(&group),
        };
        if is_one { Ok(()) } else { Err(Malformed) }
    }

    fn decided(&mut self, group: PartitionId, entry: &[u8], effects: &mut Effects) -> Result<(), Malformed> {
        self.check(group, entry)?;
        let entry = LogEntry::decode(entry).ok_or(Malformed)?;
        let home = self.home_of(entry.id());
        let partition = self.partitions.get_mut(&group).ok_or(Malformed)?;
        partition.next_entry();
        match entry {
            LogEntry::Whole { id, used } => {
                let answer = partition.whole(id, used);
                self.withdraw(group, id);
                self.answer(id, answer, effects);
            }
            LogEntry::Prepare(prepare) => {
                let id = prepare.id;
                let vote = partition.vote(prepare, group == home);
                self.voted(group, id, vote, effects);
            }
            LogEntry::Decide { id, decision } => {
                let answer = partition.decide(id, decision);
                match answer {
                    Answer::Committed => self.answer(id, answer, effects),
                    answer => self.aborted(id, answer, effects),
                }
                self.go_on(group, id, effects);
            }
            LogEntry::Finish { id, at } => {
                partition.finish(id, at);
                self.go_on(group, id, effects);
            }
            LogEntry::Forget { id } => {
                partition.forget(id);
                self.withdraw(group, id);
                self.coordinated.remove(&id);
            }
        }
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        Ok(())
    }

    fn tick(&mut self, effects: &mut Effects) {
        self.ticks += 1;
        self.proposals.values_mut().for_each(|proposals| proposals.tick(effects));
        let ticks = self.ticks;
        let overdue = self.coordinated.extract_if(.., |_, coordinated| coordinated.until_tick <= ticks);
        let overdue: Vec<_> = overdue.collect();
        for (id, coordinated) in overdue {
            // Any site may act for it from here on. The client waits for what the home says.
            coordinated.participants.iter().for_each(|&group| self.withdraw(group, id));
            if !coordinated.is_aborted && self.open.contains_key(&id) {
                let home = self.home_of(id);
                self.propose(home, id, &LogEntry::Decide { id, decision: Decision::abort() }, effects);
            }
        }
        self.answer_forgotten(effects);
        let partitions = self.partitions.values();
        let held =
            partitions.flat_map(|partition| partition.prepared.keys().chain(partition.unfinished.keys()));
        let held: BTreeSet<RequestId> = held.copied().collect();
        self.acts_at.retain(|id, _| held.contains(id));
        let mut acts = 0;
        for id in held {
            let patience = self.patience(id);
            let acts_at = self.acts_at.entry(id).or_insert(ticks + patience);
            if *acts_at <= ticks && acts < ACTS_MAX {
                acts += 1;
                *acts_at = ticks + patience;
                self.advance(id, true, effects);
            }
        }
    }

    fn snapshot(&self, group: PartitionId) -> Vec<u8> {
        self.partitions.get(&group).map(Partition::encode).unwrap_or_default()
    }

    fn restore(&mut self, group: PartitionId, state: &[u8]) -> Result<(), Malformed> {
        // Transactions that are open here go on: their entries are proposed until they are decided.
        let in_group = |key: &Key| self.group_of(key) == group;
        let partition = self.partitions.get(&group).ok_or(Malformed)?;
        let restored = partition.decode(state, in_group).ok_or(Malformed)?;
        self.partitions.insert(group, restored);
        Ok(())
    }
}

/// Whether a clear removes a key.
fn is_clearable(key: &Key) -> bool {
    key.space() == Space::User
}
