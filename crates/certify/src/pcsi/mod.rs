//! Partitioned causal snapshot isolation (PCSI): sites in several regions commit without waiting for a
//! continent, and of two concurrent writers of one item at most one commits.
//!
//! Source: Tripathi, Rajappan and Padhye, "Scalable Transactions in Partially Replicated Data Systems using
//! Causal Snapshot Isolation", TR 15-012, 2015, section III. "Note" is a note of this project on that paper.
//!
//! **Sites.** The keys are cut into partitions, and each partition has replicas at some sites ([`SiteMap`]).
//! A site has for each of its partitions the *view*, a vector clock that says how many updates of each site
//! the replica has applied; the *dependency view*, a vector clock for each other partition that says what the
//! replica's state causally depends on there; and versions of items, each with its [`CommitStamp`] (section
//! III-A). A version is visible in a view that has counted its stamp.
//!
//! **Snapshots.** A site applies the whole of a transaction in one step, and only behind what it depends on.
//! So the views of the site's partitions together are a globally consistent snapshot at any moment: the
//! dependency view of each one is covered by the views of the others. [`Pcsi::check_invariants`] asserts this
//! condition of section III-A. A transaction keeps the views as they are at its beginning. The site keeps the
//! versions that open snapshots read and the newest version of each item. It removes the others when the item
//! is written or, at the latest, in the next period.
//!
//! **Certification.** Each item has a *resolver*, a site that has its partition (section III-B). The resolver
//! knows the stamp of the item's newest committed version. A transaction that writes asks the resolvers of
//! its items for their votes. A resolver says no if the newest version is not visible in the transaction's
//! snapshot, or if another transaction holds the item's lock; else it locks the item. With all votes, the
//! transaction's site takes the next sequence number in each partition that the transaction writes, applies
//! the writes, and records all of that in one record of its log (note 8). Then it tells the resolvers the
//! stamps. The locks last until the resolver has the outcome (note 9).
//!
//! So all versions of one item are totally ordered, and each writer had its predecessor in its snapshot.
//! Causal order alone puts the versions into the same order at every replica (note 7).
//!
//! **Propagation** (section III-C). A site numbers what it has committed, and sends it to the sites that have
//! a replica of a partition concerned. An [`Update`] carries the transaction's stamps and its dependencies:
//! the views in its snapshot, and their dependency views. The paper takes the views of the partitions that
//! the transaction has accessed; that loses what earlier transactions of its session have read in others. The
//! receiver applies the update once the previous number of each stamp's site is applied (equation 1) and its
//! own views cover the dependencies. What the receiver does not apply yet waits, and the receiver
//! acknowledges the updates before the first that waits. In each period the
//! sender sends only what is new, and at most [`SiteOptions::window`] numbers and about 4 MiB beyond the
//! last acknowledgement; so this bounds what waits. The receiver drops a message if one before it is lost.
//! The sender begins again at the last acknowledgement when a link is new, or when it has heard of no
//! progress for a time that doubles with each attempt. An update that comes twice is known by its stamps.
//!
//! **Gaps.** A site holds each update of others that it has applied until the origin says that all sites
//! concerned have it; each message lists the earlier updates that some other site lacks. An origin is silent
//! for a site if, for [`SiteOptions::silent_ticks_max`] ticks, no message of the origin has let the site
//! apply an update or has shown that the site lacks none. Then the site asks the origin's other peers in
//! turn for the updates of the origin that it may apply. So an update that a running site has applied
//! reaches the other running sites concerned without the origin, if running sites have also applied all that
//! the update depends on and the origin's earlier updates. Some of these may be at the origin only, because
//! a site commits before any other site has its update: what depends on them waits for the origin. The site
//! acknowledges only what the origin itself sends: thus an origin that retains at most
//! [`SiteOptions::retained_max`] updates bounds what the others hold of it.
//!
//! All of this makes progress: an update's dependencies, and the updates with lower numbers of the same site,
//! were all committed before it.
//!
//! **The log.** A [`Record`] is whatever the site must know after a crash: the boot, locks and their
//! releases, commits, applied updates, that all resolvers know an outcome, promises and decisions on fences.
//! Effects leave when all records up to then are durable ([`SiteEffects`]); so nobody hears of a sequence
//! number that a site may use again. Records and letters have byte forms (`codec.rs`).
//!
//! **Restart.** [`Pcsi::start`] goes through the records. A coordinator that is asked for an outcome answers
//! from its log, and what is neither recorded nor under way has not committed: a transaction's name has the
//! boot of its site. A transaction under way at the time of the crash is gone. A resolver that waits for an
//! outcome asks for it; it needs no answer where it applies the update, which says the outcome too. A refusal
//! names the site whose transaction holds the lock ([`Conflict::Locked`]). Acknowledgements are one record a
//! period, so a site that restarts retains at most what it has committed within a period beyond its bound.
//!
//! The other sites may have fenced a site while it was down. So a site that restarts begins no transaction
//! and gives no vote before it has heard another site that is not fenced and that sends to the site's present
//! incarnation ([`Pcsi::waits_to_hear`]). It sends its own updates meanwhile: two sites that have both
//! restarted hear each other. A site whose peers are all fenced has nobody to hear and opens at once. An
//! operator's word opens the last survivor: a fence that is forced ([`Pcsi::fence`]).
//!
//! **Lost disks and fences** (notes 9 and 10). A site that begins without a log becomes a new incarnation,
//! and an operator can fence a site that is away. The other sites agree which updates of the earlier
//! incarnations remain: all that one of them has. They take no more messages of those incarnations, and the
//! numbers of the new one lie above all that the earlier ones can have given out. See `fence.rs` for the
//! agreement, and `join.rs` for the way back. Until then, the other sites commit nothing that the site
//! resolves, and retain nothing for it. Each message ([`Letter`]) names the incarnations of its sender and
//! its receiver.
//!
//! **Exactly once.** The record of a commit has the client's request. A client that hears nothing asks the
//! same site again, and hears what became of its request; see `requests.rs`.
//!
//! **Writes that a lost disk does not take back** (note 10). A client is told of its commit when, for each
//! partition that the transaction writes, [`SiteOptions::sites_to_write_min`] sites of that partition have
//! recorded it, in [`SiteOptions::regions_to_write_min`] regions (`witness.rs`). If both numbers are 1, the
//! client's own site is enough. A client may also wait until certain sites have what it has written
//! (`region.rs`).
//!
//! **Deletes.** A delete leaves a tombstone, because a writer that has not seen the delete must be refused.
//! When all sites concerned have applied the delete, and no open transaction of the site needs what was
//! there, the replica removes the tombstone and counts its stamp in a clock. A resolver refuses whoever
//! writes an item without versions and has not seen all that this clock counts. A resolver keeps stamps only
//! of versions that its replica has not applied yet.
//!
//! **Bounds.** A site refuses to commit ([`Answer::Unavailable`]) if its resolvers don't answer in time, if
//! [`SiteOptions::retained_max`] updates or more than [`SiteOptions::retained_bytes_max`] bytes of them wait
//! for other sites, if as many outcomes wait for resolvers, or if, of the sites of a partition that the
//! transaction writes, fewer than [`SiteOptions::sites_to_write_min`] are not fenced, or these are in too few
//! regions. An open transaction
//! that is older than [`SiteOptions::open_ticks_max`] ticks loses its snapshot.
//!
//! **Partitions of other sites.** Where the [`SiteMap`] has a [`RemoteAccess`], a transaction may use each
//! partition at each site. It reads at a site that has the partition, in a state that fits its snapshot
//! (`remote.rs`, note 6). Its update needs a number in the partition:
//!
//! - *Grants* (section V): a resolver that has the partition gives the number with its vote, in advance of
//!   the commit. The partition's vectors have entries of its own sites only. A number whose transaction never
//!   commits becomes a null update. The paper's escrow is not there, because it lets updates wait for each
//!   other for ever; `grant.rs` has the proof, and the way around it.
//! - *Ghosts* (section III-D): the site has numbers of its own in the partition, as if it had a replica
//!   without data. The partition's vectors grow with the number of sites that update it.
//!
//! In both cases the site sends the update to the sites that have the partition, as any other update.
//!
//! **Sessions at several sites.** A client that goes on at another site takes a token along, which counts all
//! that the first site had. The other site has the client wait until it has all of that, too (`token.rs`),
//! and until sites that have the other partitions have confirmed their share (`follow.rs`).
//!
//! **What is not here.**
//!
//! - Checkpoints of the log.
//! - A state that is larger than a record of the log may be: a site without a log takes its whole state as
//!   one record (`join.rs`).
//! - A sign for users that something was lost (the second half of note 10). A client that was told of a
//!   commit does not hear that a lost disk or a fence has taken it back. The operator hears how many updates
//!   are lost, as far as some site knows ([`FenceLoss`], [`Pcsi::unacknowledged`]).
//! - Exactly once for a client that goes on at another site. A [`SiteMap`] that changes: it moves resolvers
//!   without their locks.
//! - Clears.
//!
//! Expiry (note 12) is the caller's: an entry has its deadline, a procedure compares that with its own time,
//! and the resolver's site has a transaction remove what [`Pcsi::expired`] finds.

mod clock;
mod codec;
mod fence;
mod follow;
mod grant;
mod join;
mod message;
mod propagation;
mod region;
mod remote;
mod replica;
mod requests;
mod resolver;
mod site_map;
mod status;
#[cfg(test)]
mod tests;
mod token;
mod witness;

pub use clock::{CommitStamp, VectorClock};
pub use codec::describe;
pub use fence::{Ballot, Candidate, Decision, FenceAnswer, FenceLoss, FenceStatus, Incarnation};
pub use join::{Installed, ReplicaState};
pub use message::{Fencing, Letter, Message, Record, TransactionName, Update};
pub use region::{Demand, Written};
pub use remote::{Fit, RemoteRead};
pub use site_map::{RemoteAccess, SiteMap};
pub use status::{PeerStatus, RemoteStatus};
pub use token::{Lacking, SessionToken, TokenRefusal};

use crate::{Answer, Conflict, WriteSet};
use fence::Fences;
use follow::Follower;
use grant::Grants;
use join::Phase;
use propagation::{Incoming, Outgoing};
use region::RegionWait;
use remote::{Pending, RemoteReads};
use replica::Replica;
use requests::Requests;
use resolver::Resolver;
use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{BootId, Entry, Key, NodeId, PartitionId, Position, RequestId};
use witness::Witnesses;

/// A view of each partition.
type Views = BTreeMap<PartitionId, VectorClock>;

/// The settings of a site.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// This site.
    pub me: NodeId,
    /// The same at all sites.
    pub sites: Arc<SiteMap>,
    /// Ticks between two sendings of updates, and of messages that may be lost. At least 1.
    pub propagation_ticks: u64,
    /// Ticks after which a transaction without all votes is given up.
    pub vote_ticks_max: u64,
    /// A transaction that is open for longer loses its snapshot.
    pub open_ticks_max: u64,
    /// The most transactions that are open at a time.
    pub open_max: usize,
    /// The most updates in a message, and the most of one origin that wait for earlier ones. At least 1.
    pub window: u64,
    /// The most updates, and the most outcomes, that a site keeps for others.
    pub retained_max: usize,
    /// While the updates that a site keeps for others have more bytes, it commits nothing.
    pub retained_bytes_max: usize,
    /// After this number of ticks without a message that brings this site further, an origin is silent (see
    /// "Gaps" at the module's head). At least 4 times `propagation_ticks`.
    pub silent_ticks_max: u64,
    /// The number of commits after a session's last one for which the site knows the session.
    pub session_horizon: u64,
    /// A client is told of its commit once each partition that the transaction writes has this number of
    /// sites with the update. This site is one of them. A partition with fewer sites takes no writes:
    /// [`Answer::Unavailable`].
    pub sites_to_write_min: usize,
    /// Those sites are in this number of regions at least ([`SiteMap::in_regions`]). A partition whose sites
    /// are in fewer regions takes no writes, either.
    pub regions_to_write_min: usize,
    /// A client that has waited for these sites for this number of ticks is told that the outcome is unknown.
    pub sites_ticks_max: u64,
}

/// The effects of a step. Messages and answers leave when these records, and all earlier ones, are durable.
#[derive(Debug, Default)]
pub struct SiteEffects {
    /// The records for its log.
    pub records: Vec<Record>,
    /// The letters for other sites.
    pub messages: Vec<(NodeId, Letter)>,
    /// The answers for this site's clients.
    pub answers: Vec<(RequestId, Answer)>,
    /// The answers for clients that have brought a token ([`Pcsi::follow_token`]).
    pub followed: Vec<(RequestId, Result<(), TokenRefusal>)>,
    /// Fences that this site has heard of, for the operator.
    pub fenced: Vec<FenceLoss>,
}

/// A transaction that has begun.
#[derive(Clone, Debug)]
struct Open {
    /// Those of this site's partitions, and of the remote partitions that the transaction has read.
    views: BTreeMap<PartitionId, VectorClock>,
    depends: PartitionDependencies,
    /// The states elsewhere that transactions of this site have used, which committed before this one began.
    followed: Arc<BTreeMap<PartitionId, VectorClock>>,
    since_tick: u64,
    has_read: bool,
    /// Where the transaction reads the remote partitions of `views`.
    holders: BTreeMap<PartitionId, (NodeId, Incarnation)>,
    pending: Option<Pending>,
}

/// The dependency view of each partition.
type PartitionDependencies = BTreeMap<PartitionId, BTreeMap<PartitionId, VectorClock>>;

/// A transaction that waits for votes.
#[derive(Debug)]
struct Committing {
    id: RequestId,
    open: Open,
    writes: BTreeMap<Key, Option<Entry>>,
    resolvers: BTreeSet<NodeId>,
    awaited: BTreeSet<NodeId>,
    /// The numbers in partitions that this site does not have.
    granted: BTreeMap<PartitionId, CommitStamp>,
    since_tick: u64,
}

/// A committed transaction whose outcome some resolvers may not know.
#[derive(Debug)]
struct Unsettled {
    stamps: BTreeMap<PartitionId, CommitStamp>,
    resolvers: BTreeSet<NodeId>,
}

/// One site's part. See the module's head.
#[derive(Debug)]
pub struct Pcsi {
    options: SiteOptions,
    incarnation: Incarnation,
    phase: Phase,
    is_fenced: bool,
    /// This process need not wait to hear another site ([`Pcsi::waits_to_hear`]).
    has_heard: bool,
    /// The sites that take no messages of this one, because a fence of it is under way.
    refused_by: BTreeSet<NodeId>,
    fences: Fences,
    /// The sites that are fenced, and whose remaining updates are not all applied here.
    remaining: BTreeSet<NodeId>,
    /// The updates of fenced sites that are lost, as far as this process has been told of them.
    lost: BTreeMap<NodeId, u64>,
    boot: BootId,
    /// The number of the last transaction that asked for votes since the boot.
    last_number: u64,
    ticks: u64,
    replicas: BTreeMap<PartitionId, Replica>,
    /// The last number of this site in each partition that it does not have.
    ghosts: BTreeMap<PartitionId, u64>,
    remote: RemoteReads,
    grants: Grants,
    /// The null updates that this process has made.
    nulls: u64,
    open: BTreeMap<RequestId, Open>,
    committing: BTreeMap<TransactionName, Committing>,
    unsettled: BTreeMap<TransactionName, Unsettled>,
    resolver: Resolver,
    requests: Requests,
    witnesses: Witnesses,
    /// The clients that wait until this site has what their tokens count.
    followers: Vec<Follower>,
    /// The clients that wait until other sites have what they have written.
    region_waits: Vec<RegionWait>,
    outgoing: Outgoing,
    incoming: BTreeMap<NodeId, Incoming>,
    /// Deletes that all sites concerned have applied.
    tombstones: BTreeSet<(PartitionId, Key, CommitStamp)>,
    /// Messages of this site to itself.
    own: VecDeque<Message>,
}

impl Pcsi {
    /// A process of a site begins, with all records that the site's log has. The operator who sets a site up
    /// writes the first one, [`Record::Founded`]. Without records, the site has lost its disk, and joins the
    /// others as a new incarnation; then `number` tells the process from all earlier ones of the site: a
    /// random number, or the time.
    pub fn start<R: Borrow<Record>>(
        options: SiteOptions,
        records: impl IntoIterator<Item = R>,
        number: u64,
        effects: &mut SiteEffects,
    ) -> Pcsi {
        let mut records = records.into_iter().peekable();
        let partitions = options.sites.partitions_of(options.me);
        let mut site = Pcsi {
            incarnation: Incarnation(u8::from(records.peek().is_none())),
            phase: Phase::joining(number),
            is_fenced: false,
            has_heard: false,
            refused_by: BTreeSet::new(),
            fences: Fences::default(),
            remaining: BTreeSet::new(),
            lost: BTreeMap::new(),
            boot: BootId(0),
            last_number: 0,
            ticks: 0,
            replicas: partitions.map(|partition| (partition, Replica::default())).collect(),
            ghosts: BTreeMap::new(),
            remote: RemoteReads::default(),
            grants: Grants::default(),
            nulls: 0,
            open: BTreeMap::new(),
            committing: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            resolver: Resolver::default(),
            requests: Requests::default(),
            witnesses: Witnesses::default(),
            followers: Vec::new(),
            region_waits: Vec::new(),
            outgoing: Outgoing::new(&options, 0, &BTreeSet::new()),
            incoming: BTreeMap::new(),
            tombstones: BTreeSet::new(),
            own: VecDeque::new(),
            options,
        };
        records.for_each(|record| site.recall(record.borrow()));
        if is_active(Mutant::ReuseSequence) {
            let me = site.options.me;
            site.replicas.values_mut().for_each(|replica| replica.view.step_back(me));
        }
        // A site that is founded, or joins, has heard others.
        site.has_heard = site.boot.0 == 0;
        if !site.is_joining() {
            site.boot.0 += 1;
            effects.records.push(Record::Started(site.boot));
        }
        site
    }

    /// Does again what a record says.
    fn recall(&mut self, record: &Record) {
        match record {
            Record::Founded => self.phase = Phase::Open,
            Record::Installed(installed) => self.keep_installed(installed),
            Record::Opened => self.open_up(),
            Record::Promised { ballot, targets } => self.fences.promise(*ballot, targets),
            Record::Decided { decisions } => {
                decisions.iter().for_each(|(&site, decision)| self.keep_decision(site, decision));
            }
            Record::Admitted(site) => self.keep_admitted(*site),
            Record::Started(boot) => self.boot = *boot,
            Record::Locked { name, keys, numbers } => {
                if !is_active(Mutant::ForgetPrepared) {
                    self.resolver.lock(*name, keys, 0);
                }
                self.keep_grants(*name, numbers);
            }
            Record::Released { name, stamps } => {
                self.resolver.release(*name, stamps.as_ref(), &self.options.sites);
                self.grants.settle(*name, self.options.me, stamps.as_ref());
            }
            Record::Nulled { update } => self.keep_null(update),
            Record::Committed { id, name, resolvers, update } => {
                if !is_active(Mutant::ForgetRequests) {
                    self.requests.committed(*id, update, self.options.session_horizon);
                }
                if !is_active(Mutant::ForgetUnwitnessed) {
                    self.witnesses.committed(update, &self.fences.excluded, &self.options);
                }
                self.apply(update);
                self.follow_own(update);
                self.retain(update);
                if !is_active(Mutant::ForgetDecision) {
                    let unsettled = Unsettled { stamps: update.stamps.clone(), resolvers: resolvers.clone() };
                    self.unsettled.insert(*name, unsettled);
                }
            }
            Record::Applied { update } => {
                self.apply(update);
                let incoming = self.incoming.entry(update.name.origin).or_default();
                incoming.wait_no_more(update.number);
                incoming.hold(Arc::clone(update));
                self.count_lost(update.name.origin);
            }
            Record::Settled(name) => {
                self.unsettled.remove(name);
            }
            Record::Progress { acknowledged, stable } => self.recall_progress(acknowledged, stable),
            Record::Followed { clocks } => drop(self.follow(clocks)),
        }
    }

    /// A transaction begins. The answer is [`Answer::Begun`] or [`Answer::Unavailable`]. Earlier attempts and
    /// transactions of its session that have not committed yet never will.
    pub fn begin(&mut self, id: RequestId, effects: &mut SiteEffects) {
        let earlier = self.open.extract_if(.., |open, _| open.session == id.session);
        let earlier: Vec<Open> = earlier.map(|(_, open)| open).collect();
        earlier.iter().for_each(|open| drop(self.follow_reads(open)));
        let is_earlier = |committing: &Committing| committing.id.session == id.session;
        let earlier = self.committing.iter().filter(|(_, committing)| is_earlier(committing));
        let earlier: Vec<TransactionName> = earlier.map(|(&name, _)| name).collect();
        let superseded = Answer::Conflict(Conflict::Superseded);
        earlier.into_iter().for_each(|name| self.abort(name, superseded.clone(), effects));
        self.handle_own(effects);
        if self.open.len() + self.committing.len() >= self.options.open_max || !self.is_open() {
            return effects.answers.push((id, Answer::Unavailable));
        }
        self.open.insert(id, self.new_open());
        self.begin_read(id, effects);
    }

    /// A transaction that begins now.
    fn new_open(&self) -> Open {
        let (views, depends) = self.snapshot();
        Open {
            views,
            depends,
            followed: Arc::clone(&self.remote.followed),
            since_tick: self.ticks,
            has_read: false,
            holders: BTreeMap::new(),
            pending: None,
        }
    }

    /// The present views and dependency views of this site's partitions.
    fn snapshot(&self) -> (BTreeMap<PartitionId, VectorClock>, PartitionDependencies) {
        let replicas = self.replicas.iter();
        let views = replicas.clone().map(|(&partition, replica)| (partition, replica.view.clone())).collect();
        if self.options.sites.ignores_causality {
            return (views, PartitionDependencies::new());
        }
        let depends = replicas.map(|(&partition, replica)| (partition, replica.depends.clone())).collect();
        (views, depends)
    }

    /// What a key has in a transaction's snapshot. A client is told when the records up to now are durable.
    /// For keys of other partitions there is [`Pcsi::look_remote`].
    ///
    /// # Errors
    /// The snapshot is gone ([`Answer::Conflict`]), or this site has no replica of the key's partition
    /// ([`Answer::Refused`]).
    pub fn look(&mut self, id: RequestId, key: &Key) -> Result<Read, Answer> {
        let partition = self.options.sites.partition_of(key);
        let replica = self.replicas.get(&partition).ok_or(NOT_HERE)?;
        let open = self.open.get_mut(&id).ok_or(Answer::Conflict(Conflict::Snapshot))?;
        open.has_read = true;
        Ok(replica.version(key, &open.views[&partition]).map_or_else(Read::default, read_of))
    }

    /// A transaction ends. The answer is [`Answer::Committed`], [`Answer::CommittedBefore`],
    /// [`Answer::Conflict`], [`Answer::Unknown`], [`Answer::Refused`] if it clears a space or writes a key of
    /// another site, or [`Answer::Unavailable`]. A client that hears nothing asks again.
    pub fn commit(&mut self, id: RequestId, writes: WriteSet, effects: &mut SiteEffects) {
        if !self.is_open() {
            // An earlier incarnation may have committed it.
            return effects.answers.push((id, Answer::Unknown));
        }
        if self.committing.values().any(|committing| committing.id == id) {
            return;
        }
        let (last_number, horizon) = (self.outgoing.last_number(), self.options.session_horizon);
        if let Some(answer) = self.requests.answer(id, last_number, horizon) {
            self.forget_open(id);
            return match self.requests.number_of(id) {
                Some(number) if answer != Answer::Unknown => {
                    self.tell_committed(number, id, answer, effects);
                }
                _ => effects.answers.push((id, answer)),
            };
        }
        if self.open.get(&id).and_then(|open| open.pending.as_ref()).is_some_and(Pending::is_commit) {
            return;
        }
        let Some(open) = self.open.remove(&id) else {
            return effects.answers.push((id, Answer::Conflict(Conflict::Snapshot)));
        };
        if writes.is_empty() {
            self.end_reads(&open, effects);
            return effects.answers.push((id, Answer::Committed));
        }
        // Its client has been shown what it has read, whatever becomes of it.
        self.follow_reads(&open);
        let sites = Arc::clone(&self.options.sites);
        let is_here = |key: &Key| self.uses_all_partitions() || self.has_partition_of(key);
        if writes.clears || !writes.records.keys().all(is_here) {
            return effects.answers.push((id, NOT_HERE));
        }
        let is_unread = |key: &&Key| !open.views.contains_key(&sites.partition_of(key));
        if let Some(key) = writes.records.keys().find(is_unread).cloned() {
            self.open.insert(id, open);
            return self.read_before_commit(id, key, writes, effects);
        }
        if !self.has_all_holders(&open) {
            return effects.answers.push((id, Answer::Conflict(Conflict::Snapshot)));
        }
        let is_away = |key: &Key| !self.fences.is_here(sites.resolver_of(key));
        let is_out_of_reach =
            writes.records.keys().any(is_away) || !self.may_be_witnessed(writes.records.keys());
        if is_out_of_reach || last_number >= CommitStamp::own_last(self.incarnation) {
            return effects.answers.push((id, Answer::Unavailable));
        }
        let kept = self.outgoing.len().max(self.unsettled.len()).max(self.witnesses.expected_len());
        let kept = kept + self.committing.len();
        let is_full = self.outgoing.bytes() > self.options.retained_bytes_max;
        if kept >= self.options.retained_max || is_full {
            return effects.answers.push((id, Answer::Unavailable));
        }
        let name = self.next_name();
        let resolvers: BTreeSet<NodeId> = writes.records.keys().map(|key| sites.resolver_of(key)).collect();
        let (awaited, granted) = (resolvers.clone(), BTreeMap::new());
        let writes = writes.records;
        let committing = Committing { id, open, writes, resolvers, awaited, granted, since_tick: self.ticks };
        let questions = self.questions(name, &committing);
        self.committing.insert(name, committing);
        questions.into_iter().for_each(|(resolver, question)| self.send(resolver, question, effects));
        self.handle_own(effects);
    }

    /// A client has gone, or has rolled its transaction back.
    pub fn forget(&mut self, id: RequestId) {
        self.forget_open(id);
        self.followers.retain(|follower| follower.id != id);
        self.region_waits.retain(|wait| wait.id != id);
    }

    /// Another site's message, which may come late or twice.
    pub fn receive(&mut self, from: NodeId, letter: Letter, effects: &mut SiteEffects) {
        if self.is_fenced {
            return;
        }
        match letter.message {
            Message::Fencing(message @ Fencing::Join { .. }) => self.handle_join(from, message, effects),
            // The sender knows a decision. It may be a site that this one takes for fenced.
            Message::Fencing(message @ Fencing::Fenced { .. }) => self.handle_round(from, message, effects),
            Message::Fencing(message @ Fencing::UnderWay { .. })
                if !self.fences.refuses(from, letter.from) =>
            {
                self.handle_round(from, message, effects);
            }
            // A site that refuses the sender does not answer this: two sites would do so for ever.
            Message::Fencing(Fencing::UnderWay { .. }) => {}
            _ if self.fences.refuses(from, letter.from) => self.tell_refused(from, letter.from, effects),
            Message::Fencing(
                message @ (Fencing::Refused { .. }
                | Fencing::Admitted { .. }
                | Fencing::Fetch { .. }
                | Fencing::Fetched { .. }),
            ) => self.handle_join(from, message, effects),
            _ if letter.from > self.fences.incarnation_of(from) && !self.is_joining() => {}
            Message::Fencing(message) => self.handle_round(from, message, effects),
            _ if letter.to != Some(self.incarnation) || self.is_joining() => {}
            message => {
                self.has_heard |= !self.fences.excluded.contains(&from);
                self.refused_by.remove(&from);
                self.handle(from, message, effects);
            }
        }
        self.handle_own(effects);
        self.end_region_waits(effects);
    }

    /// Time passes.
    pub fn tick(&mut self, effects: &mut SiteEffects) {
        if self.is_fenced {
            return;
        }
        self.ticks += 1;
        let (ticks, open_ticks_max) = (self.ticks, self.options.open_ticks_max);
        let is_old = |_: &RequestId, open: &mut Open| ticks - open.since_tick > open_ticks_max;
        let too_old: Vec<(RequestId, Open)> = self.open.extract_if(.., is_old).collect();
        too_old.iter().for_each(|(_, open)| drop(self.follow_reads(open)));
        let waiting = too_old.into_iter().filter(|(_, open)| open.pending.is_some());
        effects.answers.extend(waiting.map(|(id, _)| (id, Answer::Conflict(Conflict::Snapshot))));
        let is_late = |committing: &Committing| ticks - committing.since_tick > self.options.vote_ticks_max;
        let late = self.committing.iter().filter(|(_, committing)| is_late(committing));
        let late: Vec<TransactionName> = late.map(|(&name, _)| name).collect();
        late.into_iter().for_each(|name| self.abort(name, Answer::Unavailable, effects));
        self.give_up_witnesses(effects);
        self.end_region_waits(effects);
        if ticks.is_multiple_of(self.options.propagation_ticks) {
            self.tick_followers(effects);
            self.tick_fences(effects);
            self.tick_join(effects);
        }
        if ticks.is_multiple_of(self.options.propagation_ticks) && !self.is_joining() {
            self.log_progress(effects);
            self.note_states();
            self.bury();
            self.ask_for_updates(effects);
            let quarter = self.options.silent_ticks_max / 4 / self.options.propagation_ticks;
            let is_heartbeat = (ticks / self.options.propagation_ticks).is_multiple_of(quarter.max(1));
            if is_heartbeat {
                self.tell_excluded(effects);
                self.prepare_again(quarter * self.options.propagation_ticks, effects);
            }
            if self.is_open() {
                self.fill_void(effects);
            }
            if matches!(self.phase, Phase::Open) {
                let batches = self.outgoing.batches(is_heartbeat, ticks, &self.options);
                batches.into_iter().for_each(|(peer, message)| self.post(peer, message, effects));
            }
            self.ask_holders(effects);
            let waiting = self.resolver.waiting_since(ticks.saturating_sub(self.options.vote_ticks_max));
            waiting.into_iter().for_each(|name| self.send(name.origin, Message::Ask(name), effects));
            let outcomes = self.unsettled.iter().flat_map(|(&name, unsettled)| {
                let outcome = Message::Outcome { name, stamps: Some(unsettled.stamps.clone()) };
                unsettled.resolvers.iter().map(move |&resolver| (resolver, outcome.clone()))
            });
            let outcomes: Vec<(NodeId, Message)> = outcomes.collect();
            outcomes.into_iter().for_each(|(resolver, outcome)| self.send(resolver, outcome, effects));
        }
        self.handle_own(effects);
    }

    /// Whether nothing of this site waits for another one, and no version is kept for a snapshot.
    pub fn is_idle(&self) -> bool {
        self.waits_for().is_none()
    }

    /// The first thing that this site waits for, or keeps for a snapshot.
    pub fn waits_for(&self) -> Option<&'static str> {
        let waits = [
            (self.is_joining(), "it joins"),
            (self.waits_to_hear(), "it waits to hear another site"),
            (self.is_about_to_be_fenced(), "a fence of it is under way"),
            (!self.is_open(), "it is not open"),
            (!self.fences.is_idle(), "a fence is under way, or a site is out"),
            (!self.remaining.is_empty(), "updates of a fenced site are to be applied"),
            (!self.open.is_empty() || !self.committing.is_empty(), "transactions are open"),
            (!self.unsettled.is_empty(), "resolvers do not know outcomes"),
            (!self.resolver.is_free(), "its resolver has locks"),
            (!self.grants.is_empty(), "numbers that it has granted are not counted"),
            (self.outgoing.len() > 0, "other sites lack its updates"),
            (!self.witnesses.is_empty(), "too few sites have its updates"),
            (self.incoming.values().any(|incoming| !incoming.is_empty()), "updates wait, or are held"),
            (!self.tombstones.is_empty(), "tombstones are kept"),
            (!self.replicas.values().all(Replica::is_pruned), "earlier versions are kept"),
        ];
        waits.into_iter().find_map(|(waits, reason)| waits.then_some(reason))
    }

    /// The value of a key at this site; nothing too if the site has no replica of the key's partition.
    pub fn newest(&self, key: &Key) -> Read {
        let replica = self.replicas.get(&self.options.sites.partition_of(key));
        let version = replica.and_then(|replica| replica.version(key, &replica.view));
        version.map_or_else(Read::default, read_of)
    }

    /// How many updates of each site a partition's replica counts; `None` if the site has no replica of it.
    pub fn view(&self, partition: PartitionId) -> Option<&VectorClock> {
        self.replicas.get(&partition).map(|replica| &replica.view)
    }

    /// The number of the site's last commit: a session's opening ([`crate::session_opened`]).
    pub fn last_commit(&self) -> Position {
        Position(self.outgoing.last_number())
    }

    /// The number of versions of keys, tombstones among them, and of stamps kept for the resolver.
    pub fn kept(&self) -> (usize, usize) {
        (self.replicas.values().map(Replica::len).sum(), self.resolver.unapplied_len())
    }

    /// Asserts that the views of this site's partitions together are a consistent snapshot (section III-A).
    pub fn check_invariants(&self) {
        self.assert_bounds();
        assert!(
            !self.is_open() || self.is_consistent(),
            "a partition depends on what its site has not applied in another one"
        );
    }

    fn is_consistent(&self) -> bool {
        let dependencies = self.replicas.values().flat_map(|replica| &replica.depends);
        let view = |of: &PartitionId| self.replicas.get(of).map(|replica| &replica.view);
        dependencies.into_iter().all(|(of, clock)| view(of).is_none_or(|view| view.covers(clock)))
    }

    /// Keeps an own update for the sites that need it.
    fn retain(&mut self, update: &Arc<Update>) {
        if self.outgoing.add(Arc::clone(update), &self.options.sites, self.ticks) {
            self.mark_stable(update);
        }
    }

    fn assert_bounds(&self) {
        let SiteOptions { window, retained_max, session_horizon, .. } = self.options;
        assert!(self.outgoing.len() <= 2 * retained_max, "a site retains more than its bound");
        let held_max = 4 * retained_max + 2 * window as usize;
        let is_bounded = self.incoming.values().all(|incoming| incoming.held_len() <= held_max);
        assert!(is_bounded, "a site holds more of another one's updates than its bound");
        let unwitnessed_max = session_horizon + 1 + retained_max as u64;
        assert!(
            self.witnesses.len() as u64 <= unwitnessed_max,
            "a site keeps more updates for want of witnesses than its bound"
        );
        assert!(
            self.requests.len() as u64 <= session_horizon + 1,
            "a site knows more sessions than its bound"
        );
    }

    fn send(&mut self, to: NodeId, message: Message, effects: &mut SiteEffects) {
        match to == self.options.me {
            true => self.own.push_back(message),
            false => self.post(to, message, effects),
        }
    }

    /// Sends a message to another site. A site that is fenced, or is about to be, gets only messages about
    /// fences: it would take others as a sign that it counts.
    fn post(&self, to: NodeId, message: Message, effects: &mut SiteEffects) {
        let is_fencing = matches!(message, Message::Fencing(_));
        if to == self.options.me || (!self.fences.is_here(to) && !is_fencing) {
            return;
        }
        let incarnation = (!is_fencing).then(|| self.fences.incarnation_of(to));
        effects.messages.push((to, Letter { from: self.incarnation, to: incarnation, message }));
    }

    /// Adds a record to the log. A site that joins has none before its state.
    fn record(&mut self, record: Record, effects: &mut SiteEffects) {
        if !self.is_joining() {
            effects.records.push(record);
        }
    }

    fn handle_own(&mut self, effects: &mut SiteEffects) {
        while let Some(message) = self.own.pop_front() {
            self.handle(self.options.me, message, effects);
        }
    }

    fn handle(&mut self, from: NodeId, message: Message, effects: &mut SiteEffects) {
        match message {
            Message::Prepare { .. } if !self.is_open() => {}
            Message::Prepare { name, keys, views, grant } => {
                self.vote(from, (name, keys), &views, &grant, effects);
            }
            Message::Vote { name, refused, numbers } => {
                if refused.is_some() || self.take_grants(from, name, numbers) {
                    self.count_vote(from, name, refused, effects);
                }
            }
            Message::Outcome { name, stamps } => {
                if self.resolver.release(name, stamps.as_ref(), &self.options.sites) {
                    self.grants.settle(name, self.options.me, stamps.as_ref());
                    effects.records.push(Record::Released { name, stamps: stamps.clone() });
                }
                if stamps.is_some() {
                    self.send(from, Message::Acknowledged(name), effects);
                }
            }
            Message::Acknowledged(name) => {
                let Some(unsettled) = self.unsettled.get_mut(&name) else { return };
                unsettled.resolvers.remove(&from);
                if unsettled.resolvers.is_empty() || is_active(Mutant::SettleEarly) {
                    self.unsettled.remove(&name);
                    effects.records.push(Record::Settled(name));
                }
            }
            Message::Ask(name) => {
                if !self.committing.contains_key(&name) {
                    let stamps = self.unsettled.get(&name).map(|unsettled| unsettled.stamps.clone());
                    self.send(from, Message::Outcome { name, stamps }, effects);
                }
            }
            Message::Updates { after, sent, through, last, retained, updates } => {
                self.accept(from, (after, sent, through, last), &retained, updates, effects);
            }
            Message::Applied { through } => {
                let stable = self.outgoing.acknowledge(from, through, self.ticks, &self.options.sites);
                stable.iter().for_each(|update| self.mark_stable(update));
                effects.answers.extend(self.witnesses.acknowledged(from, through, &self.options));
            }
            Message::Want { origin, views } => self.relay(from, origin, views, effects),
            Message::Relayed { origin, updates } => self.accept_relayed(origin, updates, effects),
            Message::Look { id, key, fit } => self.answer_look(from, id, key, &fit, effects),
            Message::Looked { id, key, read, is_behind } => {
                self.finish_look(from, (id, key), read, is_behind, effects);
            }
            Message::AskView(partition) => self.answer_view(from, partition, effects),
            Message::View { partition, view } => self.confirm(partition, &view, effects),
            Message::Fencing(_) => {}
        }
    }

    fn count_vote(
        &mut self,
        from: NodeId,
        name: TransactionName,
        refused: Option<Conflict>,
        effects: &mut SiteEffects,
    ) {
        let Some(committing) = self.committing.get_mut(&name) else { return };
        if let Some(conflict) = refused {
            return self.abort(name, Answer::Conflict(conflict), effects);
        }
        committing.awaited.remove(&from);
        if committing.awaited.is_empty() {
            self.decide_commit(name, effects);
        }
    }

    /// Asks for votes again after this number of ticks: the question or the vote may be lost.
    fn prepare_again(&mut self, ticks: u64, effects: &mut SiteEffects) {
        let now = self.ticks;
        let late = self.committing.iter().filter(|(_, committing)| now - committing.since_tick > ticks);
        let questions: Vec<(NodeId, Message)> =
            late.flat_map(|(&name, committing)| self.questions(name, committing)).collect();
        questions.into_iter().for_each(|(resolver, question)| self.send(resolver, question, effects));
    }

    /// The name of the next transaction of this site.
    fn next_name(&mut self) -> TransactionName {
        self.last_number += 1;
        TransactionName {
            origin: self.options.me,
            incarnation: self.incarnation,
            boot: self.boot,
            number: self.last_number,
        }
    }

    /// The questions to the resolvers whose votes a transaction of this site waits for.
    fn questions(&self, name: TransactionName, committing: &Committing) -> Vec<(NodeId, Message)> {
        let Committing { open, writes, awaited, .. } = committing;
        let sites = &self.options.sites;
        let of = |key: &Key| sites.partition_of(key);
        let views: Views = writes.keys().map(|key| (of(key), open.views[&of(key)].clone())).collect();
        let written: BTreeSet<&Key> = writes.keys().collect();
        let question = |&resolver: &NodeId| {
            let keys = writes.keys().filter(|key| sites.resolver_of(key) == resolver).cloned().collect();
            let grant = self.granted_by(resolver, &written);
            (resolver, Message::Prepare { name, keys, views: views.clone(), grant })
        };
        awaited.iter().map(question).collect()
    }

    fn abort(&mut self, name: TransactionName, answer: Answer, effects: &mut SiteEffects) {
        let Some(committing) = self.committing.remove(&name) else { return };
        for resolver in committing.resolvers {
            self.send(resolver, Message::Outcome { name, stamps: None }, effects);
        }
        effects.answers.push((committing.id, answer));
    }

    /// All resolvers have said yes: one step, and one record.
    fn decide_commit(&mut self, name: TransactionName, effects: &mut SiteEffects) {
        let Some(committing) = self.committing.remove(&name) else { return };
        let Committing { id, open, writes, resolvers, granted, .. } = committing;
        let written: BTreeSet<PartitionId> =
            writes.keys().map(|key| self.options.sites.partition_of(key)).collect();
        let stamp = |of| (of, granted.get(&of).copied().unwrap_or_else(|| self.next_stamp(of)));
        let stamps = written.into_iter().map(stamp).collect();
        let is_causal = !self.options.sites.ignores_causality && !is_active(Mutant::DropDependencies);
        let depends = if is_causal { open.follows() } else { BTreeMap::new() };
        let number = self.outgoing.last_number() + 1;
        let update = Arc::new(Update { name, number, stamps, depends, writes });
        self.requests.committed(id, &update, self.options.session_horizon);
        self.witnesses.committed(&update, &self.fences.excluded, &self.options);
        self.apply(&update);
        self.follow_own(&update);
        self.retain(&update);
        let outcome = Message::Outcome { name, stamps: Some(update.stamps.clone()) };
        for &resolver in &resolvers {
            self.send(resolver, outcome.clone(), effects);
        }
        let unsettled = Unsettled { stamps: update.stamps.clone(), resolvers: resolvers.clone() };
        self.unsettled.insert(name, unsettled);
        effects.records.push(Record::Committed { id, name, resolvers, update });
        self.tell_committed(number, id, Answer::Committed, effects);
    }
}

impl Pcsi {
    /// The next number of this site in a partition.
    fn next_stamp(&self, partition: PartitionId) -> CommitStamp {
        let me = self.options.me;
        let last = match self.replicas.get(&partition) {
            Some(replica) => replica.view.at(me),
            None => self.ghosts.get(&partition).copied().unwrap_or_default().max(self.incarnation.base()),
        };
        CommitStamp { site: me, sequence: last + 1 }
    }

    /// A transaction of this site has committed: later ones follow what it has read and written elsewhere.
    fn follow_own(&mut self, update: &Update) {
        if !self.options.sites.has_remote_access() {
            return;
        }
        let mut clocks = update.depends.clone();
        for (&of, &stamp) in &update.stamps {
            clocks.entry(of).or_default().count(stamp);
            if !self.replicas.contains_key(&of) && !stamp.is_granted() {
                self.ghosts.insert(of, stamp.sequence);
            }
        }
        if !is_active(Mutant::ForgetFollowed) {
            self.follow(&clocks);
        }
    }
}

fn read_of((stamp, entry): &(CommitStamp, Option<Entry>)) -> Read {
    Read { entry: entry.clone(), version: stamp.position() }
}

const NOT_HERE: Answer = Answer::Refused(Cow::Borrowed(
    "ERR a site reads and writes the partitions that it has, key by key: it lists, counts and clears none",
));
