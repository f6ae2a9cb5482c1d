//! Hierarchical validation: a tree of validators certifies the transactions of clients.
//!
//! The paper is J. Amaro, *A Distributed and Hierarchical Architecture for Deferred Validation of
//! Transactions in Key-Value Stores*. Sections in brackets are the paper's.
//!
//! The keys are cut into partitions. Beside each partition's data stands a *leaf validator*, and above the
//! leaves stands a tree of *inner validators* ([`Tree`]; III-A). A transaction that uses one leaf is decided
//! there; any other one is decided by the lowest validator above all leaves that it uses, its *decider*. Each
//! validator is a group of the substrate, so what a validator knows is as durable as its group's entries. A
//! message from one validator to another is an entry that the *speaker* of the one, the site that leads its
//! group, proposes to the group of the other.
//!
//! # A transaction's way (III-B)
//!
//! 1. *Begin.* The client's site gives the transaction a snapshot: a timestamp.
//! 2. *Reads* go to the site's replica of the leaf. If a tentative version at or below the snapshot is in the
//!    way, the reader waits for its outcome, and holds no thread. If the newest version is above the
//!    snapshot, the transaction runs again, because its validation would fail; a read-only transaction reads
//!    the older version. *Writes* stay with the client's site until the commit.
//! 3. *Request.* At the commit the site proposes to each participant what was read and written there. Where
//!    the request stands in the leaf's log, the leaf validates it. From a yes on the transaction is
//!    *tentative* there: its writes are tentative versions.
//! 4. *Partial.* The leaf's speaker tells the parent the vote: the timestamps at which the leaf lets the
//!    transaction commit. An inner validator waits for all children that have participants, takes what their
//!    timestamps have in common, and tells its own parent, until the decider has heard them all. The commit
//!    timestamp is the greatest first timestamp of all participants.
//! 5. *Verdict.* The decider's entry is the decision: the client is answered. The decider's speaker tells all
//!    participants, which turn tentative versions into versions of the commit timestamp, or drop them.
//! 6. *Forget.* When all participants have finished, the inner validators forget the transaction.
//!
//! As soon as a validator at any level knows that a transaction cannot commit, the client is answered, and
//! that validator tells the participants below it and its parent.
//!
//! # The two controls (III-C)
//!
//! [`Control::Locks`]: a leaf says no at once if a tentative transaction uses a key in a way that conflicts.
//! The paper has two levels here; nothing needs that. A leaf's timestamp is the next one above its clock, and
//! any greater one will do.
//!
//! [`Control::Timestamps`]: the timestamps are dealt to the leaves in turn, so that none is given twice. A
//! leaf refuses a read of a key that has a tentative version: it assumes that the version will be committed.
//! But it lets a transaction *write* what tentative ones read or write: then all timestamps of the later one
//! are above those of the earlier ones.
//!
//! # Why it is serializable
//!
//! Transactions are serializable in the order of their commit timestamps, those that only read in the order
//! of their snapshots, behind what was committed at the same timestamp:
//!
//! * A leaf commits above its clock, and the clock is at least every timestamp that the leaf has committed,
//!   given, or served to a reader. So whatever has finished at a leaf comes before what asks there later.
//! * Of two transactions that are tentative at a leaf at the same time, and of which one writes what the
//!   other uses, the earlier one has all its timestamps there below those of the later one. With locks there
//!   are no such two.
//! * No transaction commits at a timestamp that a participant has not let it have. That is the *second
//!   check*: the greatest timestamp of the children lies above what most leaves have looked at, so each leaf
//!   also says at which timestamp its validation ends to hold. Two transactions that meet at two leaves in
//!   different orders cannot both pass.
//! * A read-only transaction is not validated. It reads at a leaf only when the leaf's clock is at its
//!   snapshot or above. If it is not, the site has the clock pushed by an entry, once for all its readers.
//!
//! This order keeps each session's own. It need not keep real time: two leaves' clocks may be far apart, and
//! a read-only transaction reads in the past.
//!
//! With locks, the validated transactions *without the read-only ones* are serializable in real time: each of
//! them is tentative at all its leaves when it is decided, as in two-phase locking. With timestamps they are
//! not: a leaf lets a writer come behind a tentative reader, and the writer's client may be answered before
//! the reader has even asked its other leaves.
//!
//! # What it costs (III-E)
//!
//! A transaction of `N > 1` leaves whose decider is `H` levels above them takes `2 + H` steps of
//! communication and at most `N + H N + N + 1` messages: requests, partial results, verdicts, and the answer.
//! With `N = 1` it takes two of each. [`Messages`] counts them. The module's tests hold the counts against
//! the paper's equations (6) and (7), and compare batches with equation (3), which is that of two-phase
//! commit. What a group needs to agree on an entry comes on top: it is the price of faults, and the paper has
//! none.
//!
//! # Where this leaves the paper, and why
//!
//! * *Served snapshots.* The paper lets a leaf commit at a timestamp at or below a snapshot which the leaf
//!   has served. The clock rule above forbids it. Readers that will be validated need no push: their
//!   validation finds what they have missed.
//! * *The second check.* The paper has inner validators validate again; but they know nothing of what leaves
//!   decide alone. Here each vote carries the end of its validity, and inner validators compare numbers. So
//!   the check costs no message, and an abort above leaves nothing to validate again below.
//! * *The snapshot.* The paper takes the version of the first key that a transaction reads. A transaction
//!   that reads an old key first, and then a newer one, would abort for ever. Here the snapshot is the
//!   greatest clock that the client's site knows. The first attempt of a read-only transaction has the clock
//!   of its session's home, where it needs no push, unless that is more than [`PAST_MAX`] behind. A snapshot
//!   above that clock begins when the home has been pushed there, so that the session never goes back.
//! * *Writes without reads* are not compared with the snapshot: nobody depends on what they overwrite.
//! * *Exactly once.* Attempts of one transaction may use different leaves. So the *home* of the session
//!   ([`home_of`]) is always a participant, and lets no attempt commit while another one of the session is
//!   tentative ([`crate::sessions`]). A client keeps transactions local by a session that is at home in the
//!   leaf which the client uses. A session's next transaction begins when the last one has finished at the
//!   home: so the session's order is that of the timestamps.
//! * *Faults* (the paper has none). A tentative version is decided by the decider's log, whichever process
//!   dies. A leaf tells its parent again of what stays tentative, and an inner validator tells again what it
//!   has decided or passed on, at longer and longer intervals. An inner validator that waits for children
//!   longer than [`GATHER_TICKS`] aborts. An abort is told to each participant, also to one that has not been
//!   asked yet: that one then refuses the request. A leaf never votes twice. A leaf that has a transaction
//!   tentative which a validator above has forgotten drops it: none forgets a commit before its leaves have
//!   it.
//! * *Batching* (III-D) on both paths, by count, bytes and time ([`BatchLimits`]); a batch leaves at once
//!   where none is under way.
//! * *Parallel validation.* The paper's leaf validates in one queue, which cost it its gain. Here a
//!   validation looks at the keys that the transaction names, at its session, and at the clock. So the
//!   threads of a site share the work on a leaf's entries, and the leaf's state stays a function of its log
//!   (`hierarchy::batch` says how).
//! * *Timestamps that are dealt in turn* make no two leaves give the same one. Safety does not need that: of
//!   two transactions that conflict at a leaf, all timestamps of one lie before those of the other.
//!
//! # Bounds
//!
//! * A site has at most [`OPEN_MAX`](crate::OPEN_MAX) transactions open. A leaf has at most
//!   [`PREPARED_MAX`] tentative ones, and says no to others.
//! * A site proposes the requests of one attempt of each session. When the session begins another attempt,
//!   the site gives the earlier one up, and its inner validators abort it.
//! * Votes, forgotten transactions and sessions are known for as many entries as
//!   [`HierarchyOptions::session_horizon`] says.
//! * A key has at most eight versions.
//! * An inner validator remembers a transaction only while a leaf below it may have it tentative, and an
//!   abort for [`GATHER_TICKS`] more.
//! * A client waits for at most [`WAIT_TICKS_MAX`] at a time. Before the commit its transaction is then
//!   [`Answer::Unavailable`]: it has had no effect. Behind it, it is [`Answer::Unknown`], and may yet commit.
//! * A site tells others again of at most 64 transactions a tick. What is decided without loss needs no
//!   second word, and is forgotten when its leaves have finished.
//! * With timestamps, a leaf may decide about a thousand transactions between two leaves' votes on another
//!   one. If it decides more, that one is aborted.
//!
//! What it leaves out: listings and clears (refused), counts that are certified (a transaction is told how
//! many keys its site has), the removal of entries that have expired (a site tells which these are, and its
//! host has a transaction delete them), validators that only some sites have, and the forgetting of deleted
//! keys. Each site has a replica of every validator's group, and looks there to
//! learn what another validator has.
//!
//! Invariants:
//! 1. The state of a validator is a function of its decided entries.
//! 2. A transaction that is tentative at a leaf has a request, a record or a decision that ends it.
//! 3. A decision to commit is remembered until no participant has the transaction tentative.

mod attempts;
mod batch;
mod entry;
mod inner;
mod keys;
mod leaf;
mod outbox;
mod schedule;
#[cfg(test)]
mod tests;
mod tree;

pub use crate::sessions::home_of;
pub use outbox::BatchLimits;
pub use tree::{Tree, TreeError};

use crate::counts::KeyCounts;
use crate::prepare::{Prepare, Used};
use crate::proposals::{Proposals, make_room};
use crate::sessions::SESSION_HORIZON;
use crate::times::Timestamp;
use crate::workers::Workers;
use crate::{Answer, Certifier, Conflict, Effects, Look, Malformed, ReadSet, WriteSet};
use entry::{LogEntry, Partial, SubtreeVote, Verdict};
use inner::{Inner, Stage, is_concerned};
use leaf::{Leaf, Reply};
use outbox::{Item, Outbox};
use schedule::{AGAIN_TICKS, AGAIN_TICKS_MAX, Schedule};
use std::collections::{BTreeMap, BTreeSet};
use txn::key::partition_of_slot;
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId};

/// So many timestamps of each leaf behind the newest one that its site knows, a read-only transaction reads
/// at most in the first place.
const PAST_MAX: u64 = 1024;
/// An inner validator waits for its children for so many ticks.
pub const GATHER_TICKS: u64 = 8 * AGAIN_TICKS;
// However long a child has said the same in vain, it says it twice while its parent waits for it.
const _: () = assert!(2 * AGAIN_TICKS_MAX <= GATHER_TICKS);
/// A client waits for so many ticks, at most, until its transaction begins, for a record, and for the end.
pub const WAIT_TICKS_MAX: u64 = 8 * GATHER_TICKS;
// What one group that is away would decide at last, each level above gives up first.
const _: () = assert!(4 * GATHER_TICKS <= WAIT_TICKS_MAX);
/// In a tick a site says so many things again, at most.
const AGAIN_MAX: usize = 64;
/// What a leaf is asked to decide on has at most so many bytes: one frame carries it, beside other entries.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;
/// At most so many transactions are tentative at a leaf.
pub const PREPARED_MAX: usize = 1 << 16;

/// How leaves validate (III-C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// Tentative transactions hold locks; a leaf refuses whoever meets them.
    #[default]
    Locks,
    /// Timestamps that are dealt to the leaves in turn order those who meet.
    Timestamps,
}

/// What a site is told at its start. All but `me` is the same at all sites, and for good.
#[derive(Clone, Debug)]
pub struct HierarchyOptions {
    /// The site.
    pub me: NodeId,
    /// The validators, which are the groups.
    pub tree: Tree,
    /// How leaves validate.
    pub control: Control,
    /// When validators' messages leave.
    pub batches: BatchLimits,
    /// For how many entries of its home a session is known, and of others a vote.
    pub session_horizon: u64,
}

impl Default for HierarchyOptions {
    fn default() -> HierarchyOptions {
        HierarchyOptions {
            me: NodeId(1),
            tree: Tree::leaf(),
            control: Control::Locks,
            batches: BatchLimits::default(),
            session_horizon: SESSION_HORIZON,
        }
    }
}

/// The messages that a site has sent for its clients and for the validators that it speaks for. What goes
/// from a validator to itself, and what its group needs to agree, is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// From a client's site to a leaf.
    pub requests: u64,
    /// From a validator to its parent.
    pub partials: u64,
    /// From a validator to a leaf below it.
    pub verdicts: u64,
    /// From a validator to a client, at the end of its transaction.
    pub answers: u64,
}

impl Messages {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.requests + self.partials + self.verdicts + self.answers
    }
}

/// The batches that a site has sent for one of the validators that it has spoken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// How many.
    pub batches: u64,
    /// The transactions in them, added up.
    pub transactions: u64,
}

/// One site's part. See the module's head.
#[derive(Debug)]
pub struct Hierarchy {
    options: HierarchyOptions,
    leaves: BTreeMap<PartitionId, Leaf>,
    inners: BTreeMap<PartitionId, Inner>,
    /// Requests of this site's clients.
    requests: BTreeMap<PartitionId, Proposals>,
    /// The site that leads each group, as far as this one has heard.
    leaders: BTreeMap<PartitionId, NodeId>,
    /// What the validators that this site speaks for have to say, by speaker and addressee.
    outboxes: BTreeMap<(PartitionId, PartitionId), Outbox>,
    /// When this site looks again at what is under way at a validator that it speaks for.
    schedule: Schedule,
    /// What inner validators are about to forget.
    finished: BTreeMap<PartitionId, BTreeSet<RequestId>>,
    /// How far this site wants leaves' clocks to be, and when it asks again.
    pushes: BTreeMap<PartitionId, (Timestamp, u64)>,
    /// Transactions of this site's clients that are not answered.
    open: BTreeMap<RequestId, Open>,
    /// Those that wait until something is decided at a leaf.
    waiting: BTreeMap<PartitionId, BTreeSet<RequestId>>,
    messages: Messages,
    /// By the validator that has spoken.
    batches: BTreeMap<PartitionId, BatchCounts>,
    ticks: u64,
}

/// A transaction that is not answered.
#[derive(Debug)]
struct Open {
    is_read_only: bool,
    /// From the beginning on.
    snapshot: Timestamp,
    stage: OpenStage,
    /// When it came to its stage.
    since_tick: u64,
}

/// ```text
///  Asking ──► Beginning ──► Running ◄──► Looking
///                              └───────► Ending
/// ```
#[derive(Clone, Debug, PartialEq)]
enum OpenStage {
    /// It waits until this site is as far as its session's home.
    Asking,
    /// It waits until its session's last transaction has finished.
    Beginning,
    Running,
    /// It waits for a leaf's clock, or for the outcome of a tentative version.
    Looking(Key),
    /// Its client has asked for the commit.
    Ending,
}

impl Default for Hierarchy {
    fn default() -> Hierarchy {
        Hierarchy::new(HierarchyOptions::default())
    }
}

impl Hierarchy {
    /// A site without data.
    pub fn new(options: HierarchyOptions) -> Hierarchy {
        let tree = &options.tree;
        let (leaves, horizon) = (tree.partitions(), options.session_horizon);
        let leaf = |group| (group, Leaf::new(group, leaves, options.control, horizon));
        Hierarchy {
            leaves: tree.leaves().map(leaf).collect(),
            inners: tree.inners().map(|group| (group, Inner::new(group, horizon))).collect(),
            requests: tree.leaves().map(|group| (group, Proposals::to(group))).collect(),
            leaders: BTreeMap::new(),
            outboxes: BTreeMap::new(),
            schedule: Schedule::default(),
            finished: BTreeMap::new(),
            pushes: BTreeMap::new(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            messages: Messages::default(),
            batches: BTreeMap::new(),
            ticks: 0,
            options,
        }
    }

    /// The last decided entry of a validator's group.
    pub fn position(&self, group: PartitionId) -> Position {
        let inner = || self.inners.get(&group).map(|inner| inner.decided);
        self.leaves.get(&group).map(|leaf| leaf.decided).or_else(inner).unwrap_or(Position::NONE)
    }

    /// What a key has at this site, tentative versions aside.
    pub fn value(&self, key: &Key) -> Option<Entry> {
        self.newest(key).entry
    }

    /// The same with its version.
    pub fn newest(&self, key: &Key) -> Read {
        let leaf = self.leaves.get(&self.group_of(key));
        leaf.map_or_else(Read::default, |leaf| leaf.keys.newest(key))
    }

    /// How many keys of users this site's replicas have.
    pub fn key_counts(&self) -> KeyCounts {
        let mut all = KeyCounts::default();
        self.leaves.values().for_each(|leaf| all += leaf.keys.counts());
        all
    }

    /// Keys of both spaces that have expired at a leaf, as far as this site's replica knows, at most
    /// `keys_max`. A transaction may remove them: they are read as absent, and take memory.
    pub fn expired(&self, leaf: PartitionId, now_ms: u64, keys_max: usize) -> Vec<Key> {
        self.leaves.get(&leaf).map(|leaf| leaf.keys.expired(now_ms, keys_max)).unwrap_or_default()
    }

    /// What the store itself keeps, such as scripts, leaf by leaf.
    pub fn system_records(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.leaves.values().flat_map(|leaf| leaf.keys.system_records())
    }

    /// Whether no transaction is tentative here, and no validator remembers one that is not over.
    pub fn is_idle(&self) -> bool {
        self.leaves.values().all(|leaf| leaf.tentative.is_empty())
            && self.inners.values().all(|inner| inner.records.is_empty())
    }

    /// The messages that this site has sent.
    pub fn messages(&self) -> Messages {
        self.messages
    }

    /// The batches that this site has sent for a validator.
    pub fn batches(&self, validator: PartitionId) -> BatchCounts {
        self.batches.get(&validator).copied().unwrap_or_default()
    }

    /// The leaf of a key.
    pub fn group_of(&self, key: &Key) -> PartitionId {
        partition_of_slot(key.slot(), self.options.tree.partitions())
    }

    fn home_of(&self, id: RequestId) -> PartitionId {
        home_of(id.session, self.options.tree.partitions())
    }

    fn home(&self, id: RequestId) -> Option<&Leaf> {
        self.leaves.get(&self.home_of(id))
    }

    fn speaks_for(&self, validator: PartitionId) -> bool {
        self.leaders.get(&validator) == Some(&self.options.me)
    }

    fn answer(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        if let Some(open) = self.open.remove(&id) {
            self.messages.answers += u64::from(open.stage == OpenStage::Ending);
            effects.answer(id, answer);
        }
    }

    /// No leaf needs to be asked any more for a transaction.
    fn withdraw(&mut self, id: RequestId) {
        self.requests.values_mut().for_each(|requests| requests.forget(id));
    }

    fn has_ended(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        self.withdraw(id);
        self.answer(id, answer, effects);
    }

    /// Lets a transaction begin, if nothing of its session is tentative at the home.
    fn try_begin(&mut self, id: RequestId, effects: &mut Effects) {
        let home_group = self.home_of(id);
        let Some(home) = self.leaves.get(&home_group) else { return };
        if home.attempts.committed(id).is_some() {
            return self.answer(id, Answer::CommittedBefore, effects);
        }
        if home.is_in_doubt(id) {
            self.waiting.entry(home_group).or_default().insert(id);
            return;
        }
        let home_clock = home.clock;
        let greatest = self.leaves.values().map(|leaf| leaf.clock).fold(Timestamp::NONE, Timestamp::max);
        let Some(open) = self.open.get_mut(&id) else { return };
        // An idle home's clock may be so old that other leaves have dropped the versions: the first attempt
        // has met that, and the next one reads what is new.
        let past_max = PAST_MAX * u64::from(self.options.tree.partitions());
        let reads_in_past =
            open.is_read_only && id.attempt == 0 && greatest.0.saturating_sub(home_clock.0) <= past_max;
        if open.snapshot == Timestamp::NONE {
            open.snapshot = if reads_in_past { home_clock } else { greatest };
        }
        // What comes later in the session must not read what is older: the home keeps that.
        if open.is_read_only && open.snapshot > home_clock && !is_active(Mutant::SkipReadBump) {
            let snapshot = open.snapshot;
            self.waiting.entry(home_group).or_default().insert(id);
            return self.push(home_group, snapshot, effects);
        }
        open.stage = OpenStage::Running;
        effects.answer(id, Answer::Begun);
    }

    /// Answers a look, if nothing has to be waited for.
    fn try_look(&mut self, id: RequestId, effects: &mut Effects) {
        let Some(&Open { snapshot, is_read_only, stage: OpenStage::Looking(ref key), .. }) =
            self.open.get(&id)
        else {
            return;
        };
        let group = self.group_of(key);
        let Some(leaf) = self.leaves.get(&group) else { return };
        let is_early = is_read_only && leaf.clock < snapshot && !is_active(Mutant::SkipReadBump);
        let read = if is_early { Ok(None) } else { leaf.keys.read(key, snapshot, !is_read_only) };
        match read {
            Err(conflict) => self.answer(id, Answer::Conflict(conflict), effects),
            Ok(Some(read)) => {
                if let Some(open) = self.open.get_mut(&id) {
                    open.stage = OpenStage::Running;
                }
                effects.answer(id, Answer::Value(read));
            }
            Ok(None) => {
                self.waiting.entry(group).or_default().insert(id);
                if is_early {
                    self.push(group, snapshot, effects);
                }
            }
        }
    }

    /// Has a leaf's clock pushed, unless that is under way.
    fn push(&mut self, group: PartitionId, to: Timestamp, effects: &mut Effects) {
        let pushed = self.pushes.get(&group);
        if pushed.is_none_or(|&(pushed, again_tick)| pushed < to || again_tick <= self.ticks) {
            self.pushes.insert(group, (to, self.ticks + AGAIN_TICKS));
            effects.propose(group, LogEntry::Push { to }.encode());
        }
    }

    /// Something was decided at a leaf: those who wait there look again.
    fn wake(&mut self, group: PartitionId, effects: &mut Effects) {
        for id in self.waiting.remove(&group).unwrap_or_default() {
            match self.open.get(&id).map(|open| &open.stage) {
                Some(OpenStage::Beginning) => self.try_begin(id, effects),
                Some(OpenStage::Looking(_)) => self.try_look(id, effects),
                _ => {}
            }
        }
    }

    fn queue(&mut self, from: PartitionId, to: PartitionId, item: Item) {
        let behind = self.position(to);
        self.outboxes.entry((from, to)).or_default().queue(item, behind, self.ticks);
    }

    /// Sends the batches that leave now.
    fn flush(&mut self, effects: &mut Effects) {
        for (&(from, to), outbox) in &mut self.outboxes {
            while let Some((batch, behind)) = outbox.next_batch(self.options.batches, self.ticks) {
                let counts = self.batches.entry(from).or_default();
                counts.batches += 1;
                counts.transactions += batch.len() as u64;
                let (mut partials, mut verdicts) = (Vec::new(), Vec::new());
                for item in batch {
                    match item {
                        Item::Partial(partial) => partials.push(partial),
                        Item::Verdict(verdict) => verdicts.push(verdict),
                    }
                }
                let entry = match self.inners.contains_key(&to) {
                    true => {
                        self.messages.partials += 1;
                        LogEntry::Partials { from, behind, partials }
                    }
                    false => {
                        self.messages.verdicts += 1;
                        LogEntry::Verdicts { from, verdicts }
                    }
                };
                effects.propose(to, entry.encode());
            }
        }
    }

    /// Whether this site's replica of a leaf shows that a transaction can never be tentative there again.
    fn is_over_at(&self, leaf: PartitionId, id: RequestId, vote: Option<Position>) -> bool {
        self.leaves.get(&leaf).is_some_and(|leaf| leaf.is_over(id, vote))
    }

    /// Whether an inner validator has nothing more to do for a transaction, and can forget it.
    ///
    /// An abort is told to all participants, also those that have not been asked, so that they refuse the
    /// request. But it need not be remembered until they all have it: once one participant can never vote
    /// for the transaction again, no validator can commit it, and whoever votes for it later finds it
    /// forgotten ([`Hierarchy::look_again`]). So an abort `is_old` that was told for long enough.
    fn is_over(&self, validator: PartitionId, id: RequestId, is_old: bool) -> bool {
        let tree = &self.options.tree;
        let record = self.inners.get(&validator).and_then(|inner| inner.records.get(&id));
        let is_over_at = |(leaf, vote): (&PartitionId, &Position)| self.is_over_at(*leaf, id, Some(*vote));
        record.is_some_and(|record| match &record.stage {
            Stage::Gathering => false,
            Stage::Passed(SubtreeVote { votes, .. }) | Stage::Committed(_, votes) => {
                votes.iter().all(is_over_at)
            }
            Stage::Aborted => {
                let mut below = record.participants.intersection(tree.leaves_below(validator));
                let lacks =
                    tree.passes_on(validator, &record.participants) && self.parent_lacks(validator, id);
                let is_over_at = |&leaf: &PartitionId| self.is_over_at(leaf, id, None);
                match is_old {
                    true => below.any(is_over_at),
                    false => !lacks && below.all(is_over_at),
                }
            }
        })
    }

    /// Whether this site's replica of a validator's parent shows that the parent waits for the validator's
    /// word on a transaction, or does not know the transaction.
    fn parent_lacks(&self, validator: PartitionId, id: RequestId) -> bool {
        let parent = self.options.tree.parent(validator).and_then(|parent| self.inners.get(&parent));
        parent.is_some_and(|parent| !parent.has_heard(id, validator))
    }

    /// Says what a validator that this site speaks for has to say of a transaction, as far as the replicas
    /// of the addressees show that they do not know it.
    fn speak(&mut self, validator: PartitionId, id: RequestId) {
        let tree = &self.options.tree;
        let record = self.inners.get(&validator).and_then(|inner| inner.records.get(&id));
        let tentative = self.leaves.get(&validator).and_then(|leaf| leaf.tentative.get(&id));
        let mut partial = None;
        let mut verdicts = Vec::new();
        if let Some(tentative) = tentative {
            let votes = BTreeMap::from([(validator, tentative.vote)]);
            let vote = SubtreeVote { range: tentative.range, votes };
            partial = Some((&tentative.prepare.participants, Some(vote)));
        }
        if let Some(record) = record {
            let below = record.participants.intersection(tree.leaves_below(validator));
            match &record.stage {
                Stage::Gathering => {}
                Stage::Passed(vote) => partial = Some((&record.participants, Some(vote.clone()))),
                &Stage::Committed(at, ref votes) => {
                    let vote_of = |leaf: &PartitionId| votes.get(leaf).copied();
                    let open = below.filter(|leaf| !self.is_over_at(**leaf, id, vote_of(leaf)));
                    verdicts.extend(open.map(|&leaf| (leaf, Some(at))));
                }
                Stage::Aborted => {
                    let open = below.filter(|&&leaf| !self.is_over_at(leaf, id, None));
                    verdicts.extend(open.map(|&leaf| (leaf, None)));
                    let passes_on = tree.passes_on(validator, &record.participants);
                    partial = passes_on.then_some((&record.participants, None));
                }
            }
        }
        let partial = partial.filter(|_| self.parent_lacks(validator, id));
        let partial =
            partial.map(|(participants, vote)| Partial { id, participants: participants.clone(), vote });
        if let (Some(partial), Some(parent)) = (partial, tree.parent(validator)) {
            self.queue(validator, parent, Item::Partial(partial));
        }
        for (leaf, at) in verdicts {
            self.queue(validator, leaf, Item::Verdict(Verdict { id, at }));
        }
    }

    /// Has a validator that this site speaks for forget a transaction, if it can.
    fn forget_if_over(&mut self, validator: PartitionId, id: RequestId, is_old: bool) -> bool {
        let is_over = self.speaks_for(validator) && self.is_over(validator, id, is_old);
        if is_over {
            self.finished.entry(validator).or_default().insert(id);
        }
        is_over
    }

    /// Something has become of a transaction at a validator.
    fn speak_if_speaker(&mut self, validator: PartitionId, id: RequestId) {
        if self.speaks_for(validator) {
            self.schedule.add((validator, id), self.ticks);
            self.speak(validator, id);
        }
    }

    /// Begins to look at all that is under way at a validator that this site speaks for.
    fn schedule_all_of(&mut self, validator: PartitionId) {
        if !self.speaks_for(validator) {
            return;
        }
        let tentative = self.leaves.get(&validator).into_iter().flat_map(|leaf| leaf.tentative.keys());
        let records = self.inners.get(&validator).into_iter().flat_map(|inner| inner.records.keys());
        for &id in tentative.chain(records) {
            self.schedule.add((validator, id), self.ticks);
        }
    }

    /// Whether a transaction is tentative at a leaf, or an inner validator remembers it.
    fn is_under_way(&self, validator: PartitionId, id: RequestId) -> bool {
        let is_tentative = self.leaves.get(&validator).is_some_and(|leaf| leaf.tentative.contains_key(&id));
        is_tentative || self.inners.get(&validator).is_some_and(|inner| inner.records.contains_key(&id))
    }

    /// Looks again at what is under way at the validators that this site speaks for.
    fn speak_again(&mut self, effects: &mut Effects) {
        let mut looked = 0;
        while looked < AGAIN_MAX
            && let Some(((validator, id), for_ticks)) = self.schedule.next(self.ticks)
        {
            match self.is_under_way(validator, id) {
                true => {
                    looked += 1;
                    self.look_again(validator, id, for_ticks, effects);
                }
                false => self.schedule.remove((validator, id)),
            }
        }
    }

    fn look_again(&mut self, validator: PartitionId, id: RequestId, for_ticks: u64, effects: &mut Effects) {
        let record = self.inners.get(&validator).and_then(|inner| inner.records.get(&id));
        let is_gathering = record.is_some_and(|record| record.stage == Stage::Gathering);
        if is_gathering && for_ticks >= GATHER_TICKS {
            effects.propose(validator, LogEntry::GiveUp { id }.encode());
        }
        // A validator above has forgotten the transaction, and none forgets a commit while a leaf below it
        // has it tentative: so it was aborted. If this site's leaf lags behind the commit, that comes first
        // in the leaf's log.
        let has_forgotten = |above: &PartitionId| {
            let inner = self.inners.get(above);
            inner.is_some_and(|inner| inner.has_forgotten(id)) || is_active(Mutant::AbortAlone)
        };
        if record.is_none()
            && let Some(from) = self.options.tree.path(validator).skip(1).find(has_forgotten)
        {
            let verdicts = vec![Verdict { id, at: None }];
            effects.propose(validator, LogEntry::Verdicts { from, verdicts }.encode());
        }
        if !self.forget_if_over(validator, id, for_ticks >= GATHER_TICKS) {
            self.speak(validator, id);
        }
    }

    /// A transaction has come to another stage at an inner validator.
    fn staged(&mut self, validator: PartitionId, id: RequestId, stage: &Stage, effects: &mut Effects) {
        self.speak_if_speaker(validator, id);
        self.forget_if_over(validator, id, false);
        match stage {
            Stage::Gathering | Stage::Passed(_) => {}
            Stage::Committed(..) => {
                self.has_ended(id, Answer::Committed, effects);
                if is_active(Mutant::ForgetDecision)
                    && let Some(inner) = self.inners.get_mut(&validator)
                {
                    inner.records.remove(&id);
                }
            }
            // If a leaf has refused it, its client knows that already.
            Stage::Aborted => self.has_ended(id, Answer::Conflict(Conflict::Timestamp), effects),
        }
    }

    /// A leaf is given a request.
    fn request(&mut self, group: PartitionId, prepare: Prepare, effects: &mut Effects) {
        let (id, participants) = (prepare.id, prepare.participants.clone());
        let is_home = self.home_of(id) == group;
        let Some(leaf) = self.leaves.get_mut(&group) else { return };
        let reply = leaf.request(prepare, is_home);
        self.has_replied(group, id, &participants, reply, effects);
    }

    /// A leaf has replied to a request.
    fn has_replied(
        &mut self,
        group: PartitionId,
        id: RequestId,
        participants: &BTreeSet<PartitionId>,
        reply: Reply,
        effects: &mut Effects,
    ) {
        if let Some(requests) = self.requests.get_mut(&group) {
            requests.forget(id);
        }
        let refused = match reply {
            Reply::Yes => {
                self.speak_if_speaker(group, id);
                if is_active(Mutant::TellBeforeDecided) {
                    self.answer(id, Answer::Committed, effects);
                }
                return;
            }
            Reply::Replied => return,
            Reply::Settled(Answer::Committed) => return self.has_ended(id, Answer::Committed, effects),
            Reply::Settled(answer) => answer,
            Reply::No(conflict) => Answer::Conflict(conflict),
        };
        self.has_ended(id, refused, effects);
        let parent = self.options.tree.parent(group);
        if let Some(parent) = parent.filter(|_| participants.len() > 1 && self.speaks_for(group)) {
            let participants = participants.clone();
            self.queue(group, parent, Item::Partial(Partial { id, participants, vote: None }));
        }
    }

    /// Answers transactions that have waited for too long. Before their commit they have had no effect;
    /// behind it they may have one, also later.
    fn answer_overdue(&mut self, effects: &mut Effects) {
        let is_overdue = |open: &Open| open.since_tick + WAIT_TICKS_MAX <= self.ticks;
        let waits = |open: &Open| open.stage != OpenStage::Running;
        let overdue = self.open.iter().filter(|(_, open)| waits(open) && is_overdue(open));
        let overdue: Vec<(RequestId, bool)> =
            overdue.map(|(&id, open)| (id, open.stage == OpenStage::Ending)).collect();
        for (id, is_ending) in overdue {
            let answer = if is_ending { Answer::Unknown } else { Answer::Unavailable };
            self.has_ended(id, answer, effects);
        }
    }

    /// Answers transactions whose end this site was not given one by one: a snapshot has passed it over.
    fn answer_settled(&mut self, effects: &mut Effects) {
        let settled = |(&id, open): (&RequestId, &Open)| {
            let home = self.home(id).filter(|_| open.stage == OpenStage::Ending)?;
            home.end_of(id).map(|answer| (id, answer))
        };
        let settled: Vec<(RequestId, Answer)> = self.open.iter().filter_map(settled).collect();
        settled.into_iter().for_each(|(id, answer)| self.has_ended(id, answer, effects));
    }

    /// What a transaction asks each leaf, and its home.
    fn requests_of(
        &self,
        id: RequestId,
        snapshot: Timestamp,
        reads: ReadSet,
        writes: WriteSet,
    ) -> BTreeMap<PartitionId, Prepare> {
        let mut used: BTreeMap<PartitionId, Used> = BTreeMap::new();
        used.entry(self.home_of(id)).or_default();
        for (key, version) in reads.keys {
            used.entry(self.group_of(&key)).or_default().reads.insert(key, version);
        }
        for (key, entry) in writes.records {
            used.entry(self.group_of(&key)).or_default().writes.records.insert(key, entry);
        }
        let participants: BTreeSet<PartitionId> = used.keys().copied().collect();
        let clocks = participants.iter().filter_map(|group| self.leaves.get(group)).map(|leaf| leaf.clock);
        let timestamp = clocks.fold(snapshot, Timestamp::max);
        let prepare = |(group, used)| {
            let used = Used { timestamp, ..used };
            (group, Prepare { id, behind: self.position(group), participants: participants.clone(), used })
        };
        used.into_iter().map(prepare).collect()
    }

    /// An entry that means something to a validator.
    fn checked(&self, group: PartitionId, entry: &[u8]) -> Result<LogEntry, Malformed> {
        let entry = LogEntry::decode(entry).ok_or(Malformed)?;
        let tree = &self.options.tree;
        let is_leaf = tree.is_leaf(group);
        let is_inner = self.inners.contains_key(&group);
        let is_one = match &entry {
            LogEntry::Request(Prepare { id, participants, used, .. }) => {
                let is_named = participants.contains(&group) && participants.contains(&self.home_of(*id));
                let is_here = used.keys().all(|key| self.group_of(key) == group) && !used.writes.clears;
                is_leaf && is_named && is_here && participants.iter().all(|&leaf| tree.is_leaf(leaf))
            }
            LogEntry::Verdicts { from, .. } => {
                is_leaf && tree.path(group).skip(1).any(|above| above == *from)
            }
            LogEntry::Push { .. } => is_leaf,
            LogEntry::Partials { from, partials, .. } => {
                let is_child = tree.parent(*from) == Some(group);
                let is_concerned = |partial: &Partial| is_concerned(tree, group, &partial.participants);
                let passes_on = |partial: &Partial| tree.passes_on(*from, &partial.participants);
                let is_vote = |Partial { participants, vote, .. }: &Partial| {
                    vote.as_ref().is_none_or(|vote| vote.is_of(tree, *from, participants))
                };
                let is_said = |one: &Partial| is_concerned(one) && passes_on(one) && is_vote(one);
                is_inner && is_child && partials.iter().all(is_said)
            }
            LogEntry::GiveUp { .. } | LogEntry::Forget { .. } => is_inner,
        };
        if is_one { Ok(entry) } else { Err(Malformed) }
    }

    /// A validator's next entry.
    fn apply(&mut self, group: PartitionId, entry: LogEntry, effects: &mut Effects) {
        self.leaves.get_mut(&group).into_iter().for_each(Leaf::next_entry);
        self.inners.get_mut(&group).into_iter().for_each(Inner::next_entry);
        match entry {
            LogEntry::Request(prepare) => self.request(group, prepare, effects),
            LogEntry::Push { to } => {
                self.leaves.get_mut(&group).into_iter().for_each(|leaf| leaf.push(to));
                self.pushes.remove(&group);
            }
            LogEntry::Verdicts { from, verdicts } => {
                for Verdict { id, at } in verdicts {
                    let is_home = self.home_of(id) == group;
                    self.leaves.get_mut(&group).into_iter().for_each(|leaf| leaf.finish(id, at, is_home));
                    self.schedule.remove((group, id));
                    let above: Vec<PartitionId> = self.options.tree.path(group).skip(1).collect();
                    for validator in above {
                        self.forget_if_over(validator, id, false);
                    }
                }
                self.outboxes.get_mut(&(from, group)).into_iter().for_each(Outbox::arrived);
            }
            LogEntry::Partials { from, behind, partials } => {
                for partial in partials {
                    let id = partial.id;
                    let Some(inner) = self.inners.get_mut(&group) else { break };
                    match inner.gather(from, behind, partial, &self.options.tree).cloned() {
                        Some(stage) => self.staged(group, id, &stage, effects),
                        None if self.speaks_for(group) && self.is_under_way(group, id) => {
                            self.schedule.add((group, id), self.ticks);
                        }
                        None => {}
                    }
                    self.forget_if_over(from, id, false);
                }
                self.outboxes.get_mut(&(from, group)).into_iter().for_each(Outbox::arrived);
            }
            LogEntry::GiveUp { id } => {
                if self.inners.get_mut(&group).is_some_and(|inner| inner.give_up(id)) {
                    self.staged(group, id, &Stage::Aborted, effects);
                }
            }
            LogEntry::Forget { ids } => {
                for id in ids {
                    self.inners.get_mut(&group).into_iter().for_each(|inner| inner.forget(id));
                    self.schedule.remove((group, id));
                }
            }
        }
        self.has_decided(group, effects);
    }

    /// Entries of a validator are decided.
    fn has_decided(&mut self, group: PartitionId, effects: &mut Effects) {
        self.wake(group, effects);
        self.flush(effects);
        if cfg!(debug_assertions)
            && let Some(leaf) = self.leaves.get(&group)
        {
            leaf.check_invariants(|id| self.home_of(id) == group);
        }
    }
}

impl Certifier for Hierarchy {
    fn begin(&mut self, id: RequestId, is_read_only: bool, effects: &mut Effects) {
        if let Err(answer) = make_room(&mut self.open, id) {
            return effects.answer(id, answer);
        }
        self.requests.values_mut().for_each(|requests| requests.forget_session(id.session));
        let Some(home) = self.home(id) else { return };
        // An attempt that is tentative may still commit, and is remembered then.
        if home.attempts.is_forgotten(id, home.decided) && !home.has_other_attempt(id) {
            return effects.answer(id, Answer::Unknown);
        }
        let asks = is_read_only && !is_active(Mutant::ReadWithoutAsking);
        let stage = if asks { OpenStage::Asking } else { OpenStage::Beginning };
        let open = Open { is_read_only, snapshot: Timestamp::NONE, stage, since_tick: self.ticks };
        self.open.insert(id, open);
        match asks {
            true => effects.ask(self.home_of(id), id),
            false => self.try_begin(id, effects),
        }
    }

    fn reached(&mut self, id: RequestId, effects: &mut Effects) {
        if let Some(open) = self.open.get_mut(&id).filter(|open| open.stage == OpenStage::Asking) {
            open.stage = OpenStage::Beginning;
            self.try_begin(id, effects);
        }
    }

    fn look(&mut self, id: RequestId, look: &Look, effects: &mut Effects) {
        if !self.open.contains_key(&id) {
            return;
        }
        let key = match look {
            Look::Key(key) => key,
            // No validator certifies that: leaves know single keys.
            Look::Count => return effects.answer(id, Answer::Count(self.key_counts().keys)),
            Look::Scan(_) => {
                let text = "ERR hierarchical validation lists no keys: read them by name";
                return effects.answer(id, Answer::Refused(text.into()));
            }
        };
        if let Some(open) = self.open.get_mut(&id) {
            (open.stage, open.since_tick) = (OpenStage::Looking(key.clone()), self.ticks);
        }
        self.try_look(id, effects);
    }

    fn commit(&mut self, id: RequestId, reads: ReadSet, writes: WriteSet, effects: &mut Effects) {
        let Some(&Open { is_read_only, snapshot, .. }) = self.open.get(&id) else {
            return effects.answer(id, Answer::Conflict(Conflict::Superseded));
        };
        if writes.clears {
            self.open.remove(&id);
            let text = "ERR hierarchical validation clears no keys: delete them by name";
            return effects.answer(id, Answer::Refused(text.into()));
        }
        if is_read_only && writes.is_empty() {
            // It has read what was there at its snapshot.
            return self.answer(id, Answer::Committed, effects);
        }
        let requests = self.requests_of(id, snapshot, reads, writes);
        // What conflicts with this site's replicas would most likely conflict at its entry, too.
        let validated = |(group, prepare): (&PartitionId, &Prepare)| {
            self.leaves.get(group).and_then(|leaf| leaf.validate(prepare).err())
        };
        if let Some(conflict) = requests.iter().find_map(validated) {
            return self.answer(id, Answer::Conflict(conflict), effects);
        }
        let entry = |(group, prepare)| (group, LogEntry::Request(prepare).encode());
        let entries: Vec<(PartitionId, Vec<u8>)> = requests.into_iter().map(entry).collect();
        if entries.iter().any(|(_, entry)| entry.len() > REQUEST_BYTES_MAX) {
            let text = "ERR the transaction reads and writes more than 16 MiB in one partition: nothing was \
                        changed; write less at once";
            return self.answer(id, Answer::Refused(text.into()), effects);
        }
        if let Some(open) = self.open.get_mut(&id) {
            (open.stage, open.since_tick) = (OpenStage::Ending, self.ticks);
        }
        for (group, entry) in entries {
            if let Some(requests) = self.requests.get_mut(&group) {
                self.messages.requests += 1;
                requests.propose(id, entry, effects);
            }
        }
    }

    fn has_new_leader(&mut self, group: PartitionId, leader: NodeId) {
        self.leaders.insert(group, leader);
        if let Some(requests) = self.requests.get_mut(&group) {
            requests.propose_in_turn();
        }
        // A new speaker looks at all that is under way.
        self.outboxes.retain(|&(from, _), _| from != group);
        self.schedule.remove_all_of(group);
        self.schedule_all_of(group);
    }

    fn forget(&mut self, id: RequestId) {
        // A transaction that has asked leaves goes on without its client.
        self.open.remove(&id);
    }

    fn receive(&mut self, _: NodeId, _: &[u8], _: &mut Effects) -> Result<(), Malformed> {
        // Sites have nothing to say to each other beside what validators agree on.
        Err(Malformed)
    }

    fn check(&self, group: PartitionId, entry: &[u8]) -> Result<(), Malformed> {
        self.checked(group, entry).map(drop)
    }

    fn decided(&mut self, group: PartitionId, entry: &[u8], effects: &mut Effects) -> Result<(), Malformed> {
        let entry = self.checked(group, entry)?;
        self.apply(group, entry, effects);
        Ok(())
    }

    fn decided_all(
        &mut self,
        group: PartitionId,
        entries: &[&[u8]],
        workers: &dyn Workers,
        effects: &mut Effects,
    ) -> Result<(), usize> {
        let is_leaf = self.options.tree.is_leaf(group);
        if is_leaf && workers.count() > 1 && entries.len() >= workers.entries_min() {
            return self.decide_together(group, entries, workers, effects);
        }
        let mut decided = entries.iter().map(|entry| self.decided(group, entry, effects));
        decided.position(|decided| decided.is_err()).map_or(Ok(()), Err)
    }

    fn tick(&mut self, effects: &mut Effects) {
        self.ticks += 1;
        self.requests.values_mut().for_each(|requests| requests.tick(effects));
        self.answer_settled(effects);
        self.answer_overdue(effects);
        self.speak_again(effects);
        for (validator, ids) in std::mem::take(&mut self.finished) {
            if self.speaks_for(validator) {
                effects.propose(validator, LogEntry::Forget { ids: ids.into_iter().collect() }.encode());
            }
        }
        // Also those who wait for something that a snapshot has passed over.
        for group in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.wake(group, effects);
        }
        self.flush(effects);
    }

    fn snapshot(&self, group: PartitionId) -> Vec<u8> {
        let inner = || self.inners.get(&group).map(Inner::encode);
        self.leaves.get(&group).map(Leaf::encode).or_else(inner).unwrap_or_default()
    }

    fn restore(&mut self, group: PartitionId, state: &[u8]) -> Result<(), Malformed> {
        // Transactions that are open here go on: their requests are proposed until they are decided.
        if let Some(inner) = self.inners.get_mut(&group) {
            *inner = inner.decode(state, &self.options.tree).ok_or(Malformed)?;
        } else {
            let in_group = |key: &Key| self.group_of(key) == group;
            let leaf = self.leaves.get(&group).ok_or(Malformed)?;
            let restored = leaf.decode(state, in_group, |id| self.home_of(id)).ok_or(Malformed)?;
            self.leaves.insert(group, restored);
        }
        self.schedule_all_of(group);
        Ok(())
    }
}
