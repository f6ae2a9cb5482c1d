//! Remote reads: a transaction reads a partition that its site does not have (section III-A, note 6).
//!
//! The site asks one of the partition's sites, the *holder*, for a key in a state of the holder's replica. A
//! state is a view and the dependency view that belongs to it. It fits the transaction's snapshot if
//!
//! - its view covers the *floor*: all that the snapshot depends on in this partition, and all that earlier
//!   transactions of the asking site have read or written there;
//! - its dependency view stays below the *ceilings*: the transaction's views of the other partitions.
//!
//! This is the condition of section III-A for each pair of partitions, one of them remote. The holder
//! answers from the newest state that fits: the present one, or one of the last [`STATES_MAX`] that it has
//! noted, one a period. Replicas keep the versions that these states read. The first answer adds the state's
//! two views to the transaction's snapshot, and the transaction reads further keys of the partition at the
//! same holder in the same state. A state that the holder has not noted any more still answers for each key
//! that nobody has written since.
//!
//! Where no state fits, the holder says why:
//!
//! - The holder is behind: the floor is not covered. The site asks again in the next period, and after
//!   [`ASKS_PER_HOLDER`] times without a state it asks the next holder.
//! - All states that cover the floor depend on what the snapshot lacks. If the transaction has read nothing
//!   yet, the site asks again. Else the transaction ends with [`Conflict::Snapshot`], and its client runs it
//!   again.
//!
//! The snapshot of a transaction that has read nothing yet moves forward to the present views of its site
//! with the next ask. The ask follows the updates of its period on the same link. So a holder that other
//! sites do not write has just what the snapshot depends on when it is asked, and nothing beyond it, however
//! much the asking site writes. If a holder is behind a snapshot that has just moved, the snapshot stays for
//! one period: other sites' updates are on their way to that holder, and each further move could ask for
//! newer ones.
//!
//! So a transaction that reads its own site's data first and a remote partition then may end again and again
//! while both are written all the time. The site remembers the key, and the session's next transaction
//! begins with a read of it: any state fits a snapshot that nobody has read. If no holder answers that read
//! for [`super::SiteOptions::silent_ticks_max`] ticks, the transaction begins without it.
//!
//! A holder that says nothing is left for the next one. Sites that were heard lately come first, and among
//! them those of the asking site's own region ([`super::SiteMap::in_regions`]).
//!
//! A read waits for at most [`super::SiteOptions::vote_ticks_max`] ticks.
//!
//! **Sessions.** No replica of the asking site remembers what a transaction has read or written elsewhere. So
//! the site keeps one clock for each remote partition, [`RemoteReads::followed`], with all that its
//! transactions have read there, also those without effect, and have written there. Each transaction takes a
//! copy at its beginning, which is a part of its snapshot's floors and of its update's dependencies. A
//! transaction that only reads has a record of its log for that ([`Record::Followed`]), and so has a client
//! that has come from another site (`token.rs`). A site that has lost its disk begins with empty clocks: its
//! sessions' promise to never go back ends there, for remote partitions.
//!
//! **Writes.** A transaction that writes a remote partition needs the partition's state in its snapshot, too:
//! the resolver compares it with the newest version. If the transaction has read nothing there, its site
//! reads one of the written keys before it asks for votes.

use super::codec::struct_form;
use super::{CommitStamp, Incarnation, Message, Open, Pcsi, Record, SiteEffects, VectorClock, Views, clock};
use crate::{Answer, Conflict, WriteSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{Entry, Key, NodeId, PartitionId, RequestId, SessionId};

/// A replica notes at most this number of states, and each for the same number of periods.
const STATES_MAX: usize = 16;
/// A site asks a holder that is behind this number of times before it asks another one.
const ASKS_PER_HOLDER: u64 = 3;

/// A state of a replica that transactions of other sites may read.
#[derive(Debug)]
struct State {
    view: VectorClock,
    depends: BTreeMap<PartitionId, VectorClock>,
    since_tick: u64,
}

/// A key of a remote partition, in a state of its replica.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteRead {
    version: Option<CommitStamp>,
    entry: Option<Entry>,
    view: VectorClock,
    depends: BTreeMap<PartitionId, VectorClock>,
}

struct_form!(RemoteRead { version, entry, view, depends });

/// The bounds of the state that a transaction of another site may see in a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The state that the transaction has read before, if it has.
    pub at: Option<VectorClock>,
    /// The state's view covers this.
    pub floor: VectorClock,
    /// The state depends on nothing in these partitions beyond these views.
    pub ceilings: BTreeMap<PartitionId, VectorClock>,
}

struct_form!(Fit { at, floor, ceilings });

impl Fit {
    fn takes(&self, view: &VectorClock, depends: &BTreeMap<PartitionId, VectorClock>) -> bool {
        let is_below = |(of, clock): (&PartitionId, &VectorClock)| {
            self.ceilings.get(of).is_none_or(|ceiling| ceiling.covers(clock))
        };
        let is_covering = view.covers(&self.floor) || is_active(Mutant::SkipFloor);
        is_covering && (depends.iter().all(is_below) || is_active(Mutant::SkipCeilings))
    }
}

/// The next step of a transaction when its remote read is answered.
#[derive(Clone, Debug)]
enum Then {
    Answer,
    Commit(WriteSet),
    /// The transaction has begun.
    Begin,
}

/// A remote read that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    key: Key,
    then: Then,
    since_tick: u64,
    asked: Option<NodeId>,
    asked_tick: u64,
    asks: u64,
    /// The last ask was answered without a state.
    is_due: bool,
    /// The snapshot moves forward with the next ask.
    moves: bool,
    /// It has moved with the last one.
    has_moved: bool,
}

impl Pending {
    /// Whether the transaction has asked to commit.
    pub fn is_commit(&self) -> bool {
        matches!(self.then, Then::Commit(_))
    }

    /// Whether the transaction is about to begin.
    fn is_begin(&self) -> bool {
        matches!(self.then, Then::Begin)
    }
}

/// The memory of a site for remote reads: those of other sites, and its own.
#[derive(Debug, Default)]
pub(super) struct RemoteReads {
    /// The states of this site's replicas, the oldest first.
    states: BTreeMap<PartitionId, VecDeque<State>>,
    /// Transactions of this site have read and written this much of partitions that it lacks.
    pub followed: Arc<BTreeMap<PartitionId, VectorClock>>,
    /// The remote reads that holders have answered since this process began.
    pub answered: u64,
    /// A key whose read has ended a session's last transaction, since this tick.
    strayed: BTreeMap<SessionId, (Key, u64)>,
}

impl RemoteRead {
    /// The entry, if there is one.
    pub(super) fn entry(&self) -> Option<&Entry> {
        self.entry.as_ref()
    }
}

impl RemoteReads {
    /// The views of a replica for which earlier versions are kept.
    pub fn views(&self, partition: PartitionId) -> impl Iterator<Item = &VectorClock> {
        self.states.get(&partition).into_iter().flatten().map(|state| &state.view)
    }
}

impl Pcsi {
    /// Whether this site has a replica of a key's partition.
    pub fn has_partition_of(&self, key: &Key) -> bool {
        self.replicas.contains_key(&self.options.sites.partition_of(key))
    }

    /// Whether transactions of this site may use all partitions. A site without any partition sends no
    /// updates, so its transactions use none.
    pub(super) fn uses_all_partitions(&self) -> bool {
        self.options.sites.has_remote_access() && !self.replicas.is_empty()
    }

    /// A transaction looks at a key of a partition that this site does not have. The answer is
    /// [`Answer::Value`], [`Answer::Conflict`], [`Answer::Unavailable`], or [`Answer::Refused`] where sites
    /// use their own partitions only.
    pub fn look_remote(&mut self, id: RequestId, key: Key, effects: &mut SiteEffects) {
        if !self.uses_all_partitions() {
            return effects.answers.push((id, super::NOT_HERE));
        }
        self.begin_remote_read(id, key, Then::Answer, effects);
    }

    /// A transaction that writes a key of a remote partition without having read that partition.
    pub(super) fn read_before_commit(
        &mut self,
        id: RequestId,
        key: Key,
        writes: WriteSet,
        effects: &mut SiteEffects,
    ) {
        self.begin_remote_read(id, key, Then::Commit(writes), effects);
    }

    /// The key with which a session's next transaction would begin. The caller may lend the session to
    /// another client, which does not need that key.
    pub fn take_first_read(&mut self, session: SessionId) -> Option<Key> {
        self.remote.strayed.remove(&session).map(|(key, _)| key)
    }

    /// A session's next transaction begins with a read of this key, if the site lacks the key's partition.
    pub fn read_first(&mut self, session: SessionId, key: Key) {
        let is_remote = self.uses_all_partitions() && !self.has_partition_of(&key);
        if is_remote && self.remote.strayed.len() < self.options.open_max {
            self.remote.strayed.insert(session, (key, self.ticks));
        }
    }

    /// A transaction has its snapshot.
    pub(super) fn begin_read(&mut self, id: RequestId, effects: &mut SiteEffects) {
        match self.take_first_read(id.session) {
            Some(key) => self.begin_remote_read(id, key, Then::Begin, effects),
            None => effects.answers.push((id, Answer::Begun)),
        }
    }

    fn begin_remote_read(&mut self, id: RequestId, key: Key, then: Then, effects: &mut SiteEffects) {
        let now = self.ticks;
        let Some(open) = self.open.get_mut(&id) else {
            return effects.answers.push((id, Answer::Conflict(Conflict::Snapshot)));
        };
        open.pending = Some(Pending {
            key,
            then,
            since_tick: now,
            asked: None,
            asked_tick: now,
            asks: 0,
            is_due: false,
            moves: false,
            has_moved: false,
        });
        self.ask_holder(id, effects);
    }

    /// The state that a partition must have for a transaction. Transactions of this site that commit while
    /// this one is open do not raise its floor: else it could wait for each next one of them.
    fn fit(&self, open: &Open, partition: PartitionId) -> Fit {
        let followed = if is_active(Mutant::MoveFloor) { &self.remote.followed } else { &open.followed };
        let mut floor = followed.get(&partition).cloned().unwrap_or_default();
        let dependencies = open.depends.values().filter_map(|depends| depends.get(&partition));
        dependencies.for_each(|clock| floor.merge(clock));
        let at = open.views.get(&partition).filter(|_| open.holders.contains_key(&partition)).cloned();
        let ceilings = open.views.iter().filter(|(of, _)| **of != partition);
        Fit { at, floor, ceilings: ceilings.map(|(&of, view)| (of, view.clone())).collect() }
    }

    /// Whether nothing that a transaction has read at holders may be lost, as far as this site knows.
    pub(super) fn has_all_holders(&self, open: &Open) -> bool {
        let remains = |&(site, incarnation): &(NodeId, Incarnation)| {
            self.fences.is_here(site) && self.fences.incarnation_of(site) == incarnation
        };
        open.holders.values().all(remains)
    }

    fn ask_holder(&mut self, id: RequestId, effects: &mut SiteEffects) {
        if self.open.get(&id).and_then(|open| open.pending.as_ref()).is_some_and(|pending| pending.moves) {
            let (views, depends) = self.snapshot();
            self.open.entry(id).and_modify(|open| (open.views, open.depends) = (views, depends));
        }
        let Some(open) = self.open.get(&id) else { return };
        let Some(pending) = &open.pending else { return };
        let partition = self.options.sites.partition_of(&pending.key);
        let is_silent = pending.asked.is_some() && !pending.is_due;
        let asks = if is_silent { pending.asks.next_multiple_of(ASKS_PER_HOLDER) } else { pending.asks };
        if !self.has_all_holders(open) {
            return self.fail_read(id, Answer::Conflict(Conflict::Snapshot), effects);
        }
        let holder = match open.holders.get(&partition) {
            Some(&(holder, _)) => Some(holder),
            None => {
                let holders = self.holders(partition);
                (asks / ASKS_PER_HOLDER)
                    .checked_rem(holders.len() as u64)
                    .map(|place| holders[place as usize])
            }
        };
        let Some(holder) = holder else {
            return self.fail_read(id, Answer::Unavailable, effects);
        };
        let (key, fit) = (pending.key.clone(), self.fit(open, partition));
        let now = self.ticks;
        if let Some(pending) = self.open.get_mut(&id).and_then(|open| open.pending.as_mut()) {
            (pending.asked, pending.asked_tick, pending.is_due) = (Some(holder), now, false);
            (pending.moves, pending.has_moved) = (false, pending.moves);
            pending.asks = asks + 1;
        }
        self.post(holder, Message::Look { id, key, fit }, effects);
    }

    /// The sites that have a partition and may be asked, in the order in which this one asks.
    pub(super) fn holders(&self, partition: PartitionId) -> Vec<NodeId> {
        let having = self.options.sites.sites(partition).iter().copied();
        let mut holders: Vec<NodeId> = having.filter(|&site| self.fences.is_here(site)).collect();
        let me = self.options.me;
        let first = usize::from(me.0).checked_rem(holders.len()).unwrap_or_default();
        holders.rotate_left(first);
        holders.sort_by_key(|site| (!self.is_heard(*site), !self.options.sites.are_near(me, *site)));
        holders
    }

    /// These sites answer no more. A transaction that has read at one of them ends if it waits for an answer,
    /// and one that waits for its first answer there asks another site in the next period.
    pub(super) fn leave_holders(&mut self, sites: &BTreeSet<NodeId>, effects: &mut SiteEffects) {
        let mut ended = Vec::new();
        for (&id, open) in &mut self.open {
            let has_read = open.has_read_at(sites);
            let Some(pending) = &mut open.pending else { continue };
            if has_read {
                ended.push(id);
            }
            pending.is_due |= pending.asked.is_some_and(|asked| sites.contains(&asked));
        }
        ended.into_iter().for_each(|id| self.fail_read(id, Answer::Conflict(Conflict::Snapshot), effects));
    }

    /// The transaction of a remote read ends. If no site answers the read with which a transaction was to
    /// begin, the transaction begins without it.
    fn fail_read(&mut self, id: RequestId, answer: Answer, effects: &mut SiteEffects) {
        let pending = self.open.get_mut(&id).and_then(|open| open.pending.take());
        if answer == Answer::Unavailable && pending.is_some_and(|pending| pending.is_begin()) {
            return effects.answers.push((id, Answer::Begun));
        }
        self.forget_open(id);
        effects.answers.push((id, answer));
    }

    /// A transaction is over, and has no effect.
    pub(super) fn forget_open(&mut self, id: RequestId) {
        if let Some(open) = self.open.remove(&id) {
            self.follow_reads(&open);
        }
    }

    /// A transaction of another site looks at a key of this one.
    pub(super) fn answer_look(
        &mut self,
        from: NodeId,
        id: RequestId,
        key: Key,
        fit: &Fit,
        effects: &mut SiteEffects,
    ) {
        let partition = self.options.sites.partition_of(&key);
        let Some(replica) = self.replicas.get(&partition) else { return };
        if !self.options.sites.has_remote_access() {
            return;
        }
        if !self.is_open() {
            let (read, is_behind) = (None, true);
            return self.post(from, Message::Looked { id, key, read, is_behind }, effects);
        }
        let states = self.remote.states.entry(partition).or_default();
        let required = fit.at.as_ref().unwrap_or(&fit.floor);
        let is_behind = !replica.view.covers(required) && !is_active(Mutant::SkipFloor);
        let mut read = None;
        if is_behind {
            // The site asks again.
        } else if let Some(view) = &fit.at {
            let is_noted = states.iter().any(|state| state.view == *view);
            let version = replica.version_in(&key, view, is_noted);
            read = version.map(|version| (version, view.clone(), BTreeMap::new()));
        } else if fit.takes(&replica.view, &replica.depends) {
            let version = replica.version(&key, &replica.view);
            read = Some((version, replica.view.clone(), replica.depends.clone()));
            note_state(states, &replica.view, &replica.depends, self.ticks);
        } else if let Some(state) = states.iter().rev().find(|state| fit.takes(&state.view, &state.depends)) {
            let version = replica.version(&key, &state.view);
            read = Some((version, state.view.clone(), state.depends.clone()));
        }
        let read = read.map(|(version, view, depends)| {
            let (version, entry) =
                version.cloned().map_or((None, None), |(stamp, entry)| (Some(stamp), entry));
            Arc::new(RemoteRead { version, entry, view, depends })
        });
        self.post(from, Message::Looked { id, key, read, is_behind }, effects);
    }

    /// A holder has answered.
    pub(super) fn finish_look(
        &mut self,
        from: NodeId,
        (id, key): (RequestId, Key),
        read: Option<Arc<RemoteRead>>,
        is_behind: bool,
        effects: &mut SiteEffects,
    ) {
        let partition = self.options.sites.partition_of(&key);
        let Some(open) = self.open.get(&id) else { return };
        if open.pending.as_ref().is_none_or(|pending| pending.key != key) {
            return;
        }
        let fit = self.fit(open, partition);
        let Some(read) = read else {
            // A snapshot that has been read stays: a later state of the holder does not fit either.
            let may_move = !open.has_read && open.holders.is_empty();
            if !is_behind && !may_move {
                self.read_first(id.session, key);
                return self.fail_read(id, Answer::Conflict(Conflict::Snapshot), effects);
            }
            if let Some(pending) = self.open.get_mut(&id).and_then(|open| open.pending.as_mut()) {
                pending.is_due = true;
                pending.moves = may_move && !(is_behind && pending.has_moved);
            }
            return;
        };
        // An answer may be to an earlier ask, before the snapshot moved, or of an earlier holder.
        let is_it = match &fit.at {
            Some(view) => read.view == *view,
            None => fit.takes(&read.view, &read.depends),
        };
        let incarnation = self.fences.incarnation_of(from);
        let Some(open) = self.open.get_mut(&id).filter(|_| is_it) else { return };
        if fit.at.is_none() {
            open.holders.insert(partition, (from, incarnation));
            open.views.insert(partition, read.view.clone());
            open.depends.insert(partition, read.depends.clone());
        }
        open.has_read = true;
        self.remote.answered += 1;
        match open.pending.take().map(|pending| pending.then) {
            Some(Then::Commit(_)) if !self.is_open() => self.fail_read(id, Answer::Unavailable, effects),
            Some(Then::Commit(writes)) => self.commit(id, writes, effects),
            Some(Then::Begin) => effects.answers.push((id, Answer::Begun)),
            _ => {
                let version = read.version.map(CommitStamp::position).unwrap_or_default();
                effects.answers.push((id, Answer::Value(Read { entry: read.entry.clone(), version })));
            }
        }
    }

    /// Notes the states of this site's replicas. At the end of each period.
    pub(super) fn note_states(&mut self) {
        if !self.options.sites.has_remote_access() {
            return;
        }
        let (now, options) = (self.ticks, &self.options);
        let read_elsewhere = |of: &PartitionId| !options.sites.is_everywhere(*of);
        for (&partition, replica) in self.replicas.iter().filter(|(of, _)| read_elsewhere(of)) {
            let states = self.remote.states.entry(partition).or_default();
            note_state(states, &replica.view, &replica.depends, now);
        }
        // Those of partitions that all sites have are noted only when somebody reads them.
        let ticks_max = STATES_MAX as u64 * options.propagation_ticks;
        for states in self.remote.states.values_mut() {
            while states.pop_front_if(|state| now - state.since_tick >= ticks_max).is_some() {}
        }
        self.remote.strayed.retain(|_, (_, since_tick)| now - *since_tick <= options.open_ticks_max);
    }

    /// Asks holders again, behind the updates of this period: a snapshot that moves now depends on them.
    pub(super) fn ask_holders(&mut self, effects: &mut SiteEffects) {
        let (now, options) = (self.ticks, &self.options);
        let is_late = |pending: &Pending| {
            // No session asks for the read with which it begins.
            let ticks_max = if pending.is_begin() { options.silent_ticks_max } else { u64::MAX };
            now - pending.since_tick > ticks_max.min(options.vote_ticks_max)
        };
        let is_due =
            |pending: &Pending| pending.is_due || now - pending.asked_tick > options.silent_ticks_max / 2;
        let pending = |(&id, open): (&RequestId, &Open)| {
            let pending = open.pending.as_ref()?;
            (is_late(pending) || is_due(pending)).then(|| (id, is_late(pending)))
        };
        let pending: Vec<(RequestId, bool)> = self.open.iter().filter_map(pending).collect();
        for (id, is_late) in pending {
            match is_late {
                true => self.fail_read(id, Answer::Unavailable, effects),
                false => self.ask_holder(id, effects),
            }
        }
    }

    /// What a committed transaction of this site has read and written in partitions that the site does not
    /// have. Returns whether that is news.
    pub(super) fn follow(&mut self, clocks: &BTreeMap<PartitionId, VectorClock>) -> bool {
        let mut is_new = false;
        for (&of, clock) in clocks.iter().filter(|(of, _)| !self.replicas.contains_key(of)) {
            if !self.remote.followed.get(&of).is_some_and(|followed| followed.covers(clock)) {
                is_new = true;
                clock::merge_into(Arc::make_mut(&mut self.remote.followed), of, clock);
            }
        }
        is_new
    }

    /// A transaction that has only read ends.
    pub(super) fn end_reads(&mut self, open: &Open, effects: &mut SiteEffects) {
        if let Some(clocks) = self.follow_reads(open) {
            self.record(Record::Followed { clocks }, effects);
        }
    }

    /// Later transactions follow what a transaction has read elsewhere. Returns that, if it is news. A client
    /// has seen also what a transaction without effect has read; that needs no record, because the client's
    /// connection ends with the process.
    pub(super) fn follow_reads(&mut self, open: &Open) -> Option<Views> {
        if open.holders.is_empty() || is_active(Mutant::ForgetFollowed) {
            return None;
        }
        let mut clocks = open.dependencies();
        clocks.retain(|of, _| !self.replicas.contains_key(of));
        self.follow(&clocks).then_some(clocks)
    }
}

/// Notes a replica's state, unless it is the newest that is noted.
fn note_state(
    states: &mut VecDeque<State>,
    view: &VectorClock,
    depends: &BTreeMap<PartitionId, VectorClock>,
    now: u64,
) {
    if states.back().is_none_or(|state| state.view != *view) {
        states.push_back(State { view: view.clone(), depends: depends.clone(), since_tick: now });
    }
    if states.len() > STATES_MAX {
        states.pop_front();
    }
}

impl Open {
    /// Whether the transaction has read partitions at one of these sites.
    pub(super) fn has_read_at(&self, sites: &BTreeSet<NodeId>) -> bool {
        self.holders.values().any(|(holder, _)| sites.contains(holder))
    }

    /// What an update of this transaction must follow: its views and their dependency views. A session's
    /// earlier transactions may have read other partitions than this one.
    pub(super) fn dependencies(&self) -> BTreeMap<PartitionId, VectorClock> {
        let mut depends = self.views.clone();
        for (&of, clock) in self.depends.values().flatten() {
            clock::merge_into(&mut depends, of, clock);
        }
        depends
    }

    /// The same, and what earlier transactions of the site have used of partitions that it lacks.
    pub(super) fn follows(&self) -> BTreeMap<PartitionId, VectorClock> {
        let mut follows = self.dependencies();
        for (&of, clock) in self.followed.iter() {
            clock::merge_into(&mut follows, of, clock);
        }
        follows
    }
}
