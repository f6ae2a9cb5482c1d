//! One site of a certified protocol as a state machine: the substrate under a [`Certifier`].
//!
//! A [`Site`] owns no thread, no file, no clock and no socket. It keeps replicas of groups, which agree on
//! what the protocol proposes ([`crate::groups`]); it has records written and synced by a
//! [`Host`](crate::host::Host), carries the protocol's messages, and begins after a crash where its journal
//! ends. Of what entries and messages mean it knows nothing.
//!
//! # An entry's way
//!
//! 1. The protocol proposes it. If another site leads the group, the entry goes there, once: a protocol
//!    proposes again what it does not see decided. A leader drops what it has no room for. A protocol waits
//!    longer each time before it proposes an entry again, and proposes all to a new leader in turn.
//! 2. The leader has the group agree on it, as `agree` does.
//! 3. Every site gives the agreed entry to its protocol, in the order of the group's log.
//!
//! # Where a log begins
//!
//! When the decided entries of a group have more than [`SiteOptions::log_bytes_max`] bytes, the site has the
//! protocol encode its state. The state becomes the group's base, and what lies before it is forgotten. A
//! leader that has no longer what another site needs offers that site its base, which the other site fetches
//! in pieces (`site::bases`) and takes unless its own log has the base's last entry: then it only lags. What
//! it throws away no leader has counted, because a log that lacks an agreed entry has nothing agreed behind
//! it.
//!
//! A state of more than [`SiteOptions::base_bytes_max`] bytes becomes no base: its group's log goes on
//! growing, and [`SiteStatus::too_large`] names the group. The site encodes the state again after as many
//! more decided bytes as the state had: the state may have shrunk.
//!
//! # Failures
//!
//! A site whose journal takes no record is silent, as if frozen, until the record can be written. After a
//! sync that failed it is silent for good: its process must be started again.
//!
//! Invariants:
//! 1. A group's entries are decided in order, each once behind the base: `decided <= committed`.
//! 2. A promise leaves when the record behind it is as durable as [`SiteOptions::fsync`] asks.

mod bases;

use crate::FsyncPolicy;
use crate::cluster::checkpoint::Needed;
use crate::groups::{Groups, NowKept};
use crate::host::{HostEffects, HostEvent, Machine};
use crate::site::bases::{Ask, BasePiece, Bases, Taken};
use agree::{Contradiction, Group, Input, RaftGroup, Turn};
use bytes::Bytes;
use certify::{Alone, Answer, Certifier, Effects, Look, ReadSet, Workers, WriteSet};
use log::{Base, Entry, EntryKind, GroupImages, HardState, Kept, Members};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::hash::mix;
use txn::mutant::{Mutant, is_active};
use txn::{NodeId, PartitionId, RequestId, SessionId};

pub use bases::BASE_BYTES_MAX;

/// A question for an index is asked again after so many ticks.
const QUESTION_TICKS: u64 = 4;
/// The site itself asks for an index under this name ([`Site::catch_up`]). No client's session is internal.
const CATCHING_UP: RequestId = RequestId { session: SessionId::INTERNAL, sequence: 0, attempt: 0 };
/// A site that was offered a base, or sent a piece, has had time to take it after so many ticks.
const BEHIND_TICKS: u64 = 20;
/// After the last piece of a base has left, the other site has so many ticks to take it.
const LAST_PIECE_TICKS: u64 = 4;
/// A record that could not be written is tried again after so many ticks.
const RETRY_TICKS: u64 = 20;
/// Under `everysec`, what was written is synced after this time.
const EVERYSEC_MS: u64 = 1_000;
/// A protocol is given so many agreed entries at once, at most.
const TOGETHER_MAX: u64 = 1_024;
/// A leader takes no further proposal while so many entries are not agreed, or so many bytes of them.
const UNDECIDED_ENTRIES_MAX: usize = 1_024;
const UNDECIDED_BYTES_MAX: usize = 8 << 20;
/// A larger entry is not proposed: frames between sites, and records of journals, have a limit. Protocols
/// refuse what would become so large before a transaction has any effect.
const ENTRY_BYTES_MAX: usize = 32 << 20;

const _: () = assert!(
    BASE_BYTES_MAX + ENTRY_BYTES_MAX + UNDECIDED_BYTES_MAX <= log::RECORD_BYTES_MAX,
    "a record of the journal has room for a base, and for the entries that a group keeps in one turn"
);

/// What a site is told at its start.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// Which site it is.
    pub me: NodeId,
    /// The groups, and the sites that agree on the entries of each: the same at all sites, and for good.
    pub groups: BTreeMap<PartitionId, Vec<NodeId>>,
    /// Sites that follow every group whose entries they do not agree on: the same at all sites, and for
    /// good.
    pub followers: Vec<NodeId>,
    /// Decides when replicas stand for election, beside their numbers.
    pub seed: u64,
    /// When an entry counts as kept.
    pub fsync: FsyncPolicy,
    /// How long a tick is.
    pub tick_ms: u64,
    /// A group's log begins anew when its decided entries have more bytes, and more than its base: so
    /// encoding a large state costs no more than what was decided since. While another site fetches the
    /// base, the limit is twice as high.
    pub log_bytes_max: u64,
    /// A base goes to other sites in pieces of at most so many bytes.
    pub base_piece_bytes_max: usize,
    /// A larger state becomes no base. At most [`BASE_BYTES_MAX`].
    pub base_bytes_max: usize,
    /// A number that no other process of the cluster has: it tells this one's questions from others'.
    pub nonce: u64,
}

/// What a site has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// How often a group's log began anew.
    pub bases: u64,
    /// States that were too large for a base when they were encoded.
    pub bases_too_large: u64,
    /// Syncs of the journal that succeeded.
    pub syncs: u64,
    /// Records that the journal did not take.
    pub write_failures: u64,
    /// Syncs of the journal that failed.
    pub sync_failures: u64,
}

/// What a site tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteStatus {
    /// What it has counted.
    pub counts: SiteCounts,
    /// The last decided entries of all groups, added up.
    pub decided: u64,
    /// Bytes of entries that were decided since the groups' logs began.
    pub log_bytes: u64,
    /// Groups whose state is too large for a base, each with the bytes that the state had when it was encoded
    /// last: their logs go on growing.
    pub too_large: BTreeMap<PartitionId, u64>,
    /// Sites to which this one has no link.
    pub unlinked: BTreeSet<NodeId>,
    /// Why the site is silent, if it is.
    pub silence: Option<&'static str>,
    /// Groups of which this site knows no leader, or has no link to it.
    pub without_leader: BTreeSet<PartitionId>,
    /// Groups of which this site knows that it lacks agreed entries.
    pub lagging: BTreeSet<PartitionId>,
}

/// What a site wants done beside what a host does.
#[derive(Default)]
pub struct SiteEffects {
    pub(crate) host: HostEffects,
    /// Answers for the clients of this site.
    pub answers: Vec<(RequestId, Answer)>,
    /// This site is silent from now on, and its process must be started again: the text says why.
    pub ended: Option<String>,
    /// Texts for the operator.
    pub notices: Vec<String>,
}

impl AsMut<HostEffects> for SiteEffects {
    fn as_mut(&mut self) -> &mut HostEffects {
        &mut self.host
    }
}

/// A group as its entries were decided here.
#[derive(Clone, Debug, Default)]
struct Decided {
    /// The last entry that the protocol was given.
    index: u64,
    term: u64,
    /// The leader that the protocol was told of last, with its term.
    leader: Option<(NodeId, u64)>,
    /// Bytes of entries behind the base.
    bytes: u64,
    /// The state was too large for a base when it was encoded last.
    too_large: Option<TooLarge>,
    /// What the group has had kept: a replica that begins anew must not forget its vote.
    hard_state: HardState,
}

/// A state that became no base.
#[derive(Clone, Copy, Debug)]
struct TooLarge {
    state_bytes: u64,
    /// The state is encoded again when there are so many bytes of entries behind the base.
    again_bytes: u64,
}

/// The transactions that wait until this site is as far as a group was when they asked. One question is on
/// its way at a time, for all that had come by then: each costs a heartbeat to everybody, and whoever lags
/// is sent its entries again at each heartbeat.
#[derive(Default)]
struct Questions {
    /// For whom a question is on its way, its name, and when it was asked last.
    asked: Option<(Vec<RequestId>, u64, u64)>,
    /// Those that came since.
    next: Vec<RequestId>,
    /// Those that know how far that is.
    answered: Vec<(u64, RequestId)>,
}

impl Questions {
    fn is_empty(&self) -> bool {
        self.asked.is_none() && self.next.is_empty() && self.answered.is_empty()
    }

    fn forget(&mut self, is_gone: impl Fn(RequestId) -> bool) {
        self.asked.iter_mut().for_each(|(asked, ..)| asked.retain(|&id| !is_gone(id)));
        self.next.retain(|&id| !is_gone(id));
        self.answered.retain(|&(_, id)| !is_gone(id));
    }
}

/// What a site says to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Frame {
    Consensus(PartitionId, Bytes),
    Propose(PartitionId, Bytes),
    Protocol(Bytes),
    Base(PartitionId, BasePiece),
    AskForBase(PartitionId, Ask),
}

/// Why nothing is said at present.
enum Silence {
    /// This record could not be written.
    Unwritten { kept: Vec<Kept>, since_tick: u64 },
    /// For good.
    Ended,
}

/// See the module's head.
pub struct Site<C> {
    options: SiteOptions,
    protocol: C,
    groups: Groups<()>,
    decided: BTreeMap<PartitionId, Decided>,
    questions: BTreeMap<PartitionId, Questions>,
    next_question: u64,
    /// The groups of which this site may still lack what was agreed on before [`Site::catch_up`].
    lagging: BTreeSet<PartitionId>,
    /// Sites that were offered a base, and when they were sent something of it last.
    behind: BTreeMap<(PartitionId, NodeId), u64>,
    /// What this site is sent of bases.
    bases: Bases,
    silence: Option<Silence>,
    /// Sites to which there is a link.
    linked: BTreeSet<NodeId>,
    counts: SiteCounts,
    ticks: u64,
    /// What the protocol wants, until it is done.
    wishes: Effects,
    workers: Arc<dyn Workers>,
}

impl<C: Certifier> Site<C> {
    /// A site that goes on where its journal ends. What is known to be agreed is decided again.
    ///
    /// # Errors
    /// The text says what is wrong with the journal.
    pub fn recover(options: SiteOptions, protocol: C, mut images: GroupImages) -> Result<Site<C>, String> {
        let mut site = Site {
            next_question: mix(options.nonce),
            protocol,
            groups: Groups::new(BTreeMap::new()),
            decided: BTreeMap::new(),
            questions: BTreeMap::new(),
            lagging: BTreeSet::new(),
            behind: BTreeMap::new(),
            bases: Bases::default(),
            silence: None,
            linked: BTreeSet::new(),
            counts: SiteCounts::default(),
            ticks: 0,
            wishes: Effects::default(),
            workers: Arc::new(Alone),
            options,
        };
        let mut groups: BTreeMap<PartitionId, Box<dyn Group>> = BTreeMap::new();
        for (&partition, sites) in &site.options.groups {
            let image = images.remove(&partition).unwrap_or_default();
            let mut base = image.base;
            if base.index == 0 {
                let followers = site.options.followers.iter().copied();
                let learners = followers.filter(|follower| !sites.contains(follower)).collect();
                base.members = Members { voters: sites.clone(), learners, ..Members::default() };
            } else if site.protocol.restore(partition, &base.state).is_err() {
                return Err(unread(partition, base.index));
            }
            let hard_state = image.hard_state;
            let (index, term) = (base.index, base.term);
            let decided = Decided { index, term, hard_state, ..Decided::default() };
            site.decided.insert(partition, decided);
            let group = raft_group(&site.options, partition, base, image.entries, hard_state)?;
            groups.insert(partition, group);
        }
        if let Some((partition, _)) = images.first_key_value() {
            return Err(format!(
                "the journal has entries of {partition}, which is no group of this site: start it with the \
                 configuration that it had"
            ));
        }
        site.groups = Groups::new(groups);
        let committed: Vec<(PartitionId, u64)> =
            site.groups.iter().map(|(&partition, group)| (partition, group.status().committed)).collect();
        for (partition, committed) in committed {
            site.decide(partition, committed).map_err(|index| unread(partition, index))?;
        }
        // Nobody waits for what an earlier process had to say.
        site.wishes = Effects::default();
        Ok(site)
    }

    /// From here on these threads share what the protocol makes of agreed entries.
    pub fn share_work(&mut self, workers: Arc<dyn Workers>) {
        self.workers = workers;
    }

    /// The protocol, for those who watch it.
    pub fn protocol(&self) -> &C {
        &self.protocol
    }

    /// A group's replica here.
    pub fn group(&self, partition: PartitionId) -> Option<&dyn Group> {
        self.groups.get(&partition).map(|group| &**group)
    }

    /// The last entry of a group that the protocol was given.
    pub fn decided(&self, partition: PartitionId) -> u64 {
        self.decided.get(&partition).map_or(0, |decided| decided.index)
    }

    /// Whether nothing is on its way here: no record, no question, no entry that is not agreed.
    pub fn is_idle(&self) -> bool {
        self.silence.is_none()
            && self.groups.has_kept_all()
            && self.questions.values().all(Questions::is_empty)
            && self.groups.iter().all(|(&partition, group)| {
                let status = group.status();
                status.leader.is_some() && self.decided(partition) == status.last
            })
    }

    /// Whether this site is silent for good.
    pub fn has_ended(&self) -> bool {
        matches!(self.silence, Some(Silence::Ended))
    }

    /// Has the site ask each group, at its next tick, how far the group is. See [`Site::has_caught_up`].
    pub fn catch_up(&mut self) {
        for &partition in self.options.groups.keys() {
            self.lagging.insert(partition);
            self.questions.entry(partition).or_default().next.push(CATCHING_UP);
        }
    }

    /// Whether the protocol was given all that the groups had agreed on when [`Site::catch_up`] was called.
    pub fn has_caught_up(&self) -> bool {
        self.lagging.is_empty()
    }

    /// Why this site is silent, if it is.
    pub fn silence(&self) -> Option<&'static str> {
        self.silence.as_ref().map(|silence| match silence {
            Silence::Unwritten { .. } => "the journal takes no record: check the disk and its space",
            Silence::Ended => "the site has ended: start the node again",
        })
    }

    /// What is counted, and why clients may not be served.
    pub fn status(&self) -> SiteStatus {
        let is_led = |group: &dyn Group| {
            let leader = group.leader().map(|(node, _)| node);
            leader.is_some_and(|node| node == self.options.me || self.linked.contains(&node))
        };
        let without_leader = self.groups.iter().filter(|(_, group)| !is_led(&***group));
        let too_large = |(&partition, decided): (&PartitionId, &Decided)| {
            decided.too_large.map(|too_large| (partition, too_large.state_bytes))
        };
        let others = self.sites().filter(|&site| site != self.options.me);
        SiteStatus {
            counts: self.counts,
            decided: self.decided.values().map(|decided| decided.index).sum(),
            log_bytes: self.decided.values().map(|decided| decided.bytes).sum(),
            too_large: self.decided.iter().filter_map(too_large).collect(),
            unlinked: others.filter(|site| !self.linked.contains(site)).collect(),
            silence: self.silence(),
            without_leader: without_leader.map(|(&partition, _)| partition).collect(),
            lagging: self.lagging.iter().copied().chain(self.bases.groups()).collect::<BTreeSet<_>>(),
        }
    }

    /// All sites that have a part in any group, some of them several times.
    fn sites(&self) -> impl Iterator<Item = NodeId> {
        self.options.groups.values().chain([&self.options.followers]).flatten().copied()
    }

    /// A client's transaction begins.
    pub fn begin(&mut self, id: RequestId, is_read_only: bool, effects: &mut SiteEffects) {
        // A session has one transaction at a time. A request that was late voids no later attempt.
        let is_voided = |other: RequestId| {
            other.session == id.session && (other.sequence, other.attempt) <= (id.sequence, id.attempt)
        };
        self.questions.values_mut().for_each(|questions| questions.forget(is_voided));
        self.client(id, effects, |protocol, wishes| protocol.begin(id, is_read_only, wishes));
    }

    /// A client's transaction looks at its snapshot.
    pub fn look(&mut self, id: RequestId, look: &Look, effects: &mut SiteEffects) {
        self.client(id, effects, |protocol, wishes| protocol.look(id, look, wishes));
    }

    /// A client's transaction ends.
    pub fn commit(&mut self, id: RequestId, reads: ReadSet, writes: WriteSet, effects: &mut SiteEffects) {
        self.client(id, effects, |protocol, wishes| protocol.commit(id, reads, writes, wishes));
    }

    /// A client has gone, or rolled its transaction back.
    pub fn forget(&mut self, id: RequestId) {
        self.questions.values_mut().for_each(|questions| questions.forget(|other| other == id));
        self.protocol.forget(id);
    }

    fn client(&mut self, id: RequestId, effects: &mut SiteEffects, call: impl FnOnce(&mut C, &mut Effects)) {
        if self.silence.is_some() {
            // Its client goes to another site, and nothing of it may stay here.
            self.forget(id);
            return effects.answers.push((id, Answer::Unavailable));
        }
        call(&mut self.protocol, &mut self.wishes);
        self.round(effects);
    }

    /// Does what has become possible, until nothing more has.
    fn round(&mut self, effects: &mut SiteEffects) {
        while self.silence.is_none() {
            while self.silence.is_none()
                && let Some((partition, turn)) = self.groups.next_turn()
            {
                if let Some(turn) = turn {
                    self.turn(partition, turn, effects);
                }
            }
            if self.has_ended() {
                return;
            }
            self.carry_out(effects);
            let kept = effects.host.kept.is_empty() && self.release(effects);
            if !kept && !self.groups.has_turns() {
                break;
            }
        }
        if effects.host.kept.is_empty() {
            let everysec = self.options.fsync == FsyncPolicy::Everysec;
            let after_ticks = everysec.then(|| EVERYSEC_MS.div_ceil(self.options.tick_ms.max(1)));
            effects.host.sync |= self.groups.begin_sync(self.ticks, after_ticks);
        }
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// # Panics
    /// An invariant of the module's head does not hold.
    fn check_invariants(&self) {
        for (&partition, group) in self.groups.iter() {
            let (base, decided, committed) =
                (group.base().index, self.decided(partition), group.status().committed);
            assert!(
                base <= decided && decided <= committed,
                "{partition} begins behind {base}, is decided up to {decided}, and agreed up to {committed}"
            );
        }
    }

    /// Does what the protocol wants.
    fn carry_out(&mut self, effects: &mut SiteEffects) {
        let wishes = std::mem::take(&mut self.wishes);
        for (to, message) in wishes.messages {
            send(effects, to, &Frame::Protocol(message));
        }
        for (partition, entry) in wishes.proposals {
            match self.groups.get(&partition).and_then(|group| group.leader()) {
                Some((leader, _)) if leader != self.options.me => {
                    send(effects, leader, &Frame::Propose(partition, entry));
                }
                _ => self.propose(partition, entry),
            }
        }
        for (group, id) in wishes.questions {
            self.questions.entry(group).or_default().next.push(id);
        }
        for partition in self.questions.keys().copied().collect::<Vec<_>>() {
            self.ask(partition, 0);
        }
        effects.answers.extend(wishes.answers);
    }

    /// Proposes an entry, if this site leads the group, the group keeps up, and the entry is not on its way:
    /// while nothing is agreed, protocols propose the same again and again.
    fn propose(&mut self, partition: PartitionId, entry: Bytes) {
        let Some(group) = self.groups.get(&partition).filter(|group| group.leads().is_some()) else {
            return;
        };
        if entry.len() > ENTRY_BYTES_MAX {
            return;
        }
        let status = group.status();
        let (mut entries, mut bytes) = (0, 0);
        for undecided in (status.committed + 1..=status.last).filter_map(|index| group.entry(index)) {
            entries += 1;
            bytes += undecided.data.len();
            if entries >= UNDECIDED_ENTRIES_MAX || bytes >= UNDECIDED_BYTES_MAX || undecided.data == entry {
                return;
            }
        }
        // What is refused comes again.
        let _ = self.groups.handle(partition, Input::Propose(entry));
    }

    /// Asks a group how far it is, if somebody waits to know. A question that is on its way is asked again
    /// after so many ticks: it may have been lost.
    fn ask(&mut self, partition: PartitionId, again_ticks: u64) {
        let ticks = self.ticks;
        let Some(questions) = self.questions.get_mut(&partition) else { return };
        match &mut questions.asked {
            Some((.., asked_tick)) if again_ticks == 0 || ticks < *asked_tick + again_ticks => return,
            Some((.., asked_tick)) => *asked_tick = ticks,
            None if questions.next.is_empty() => return,
            None => {
                self.next_question = self.next_question.wrapping_add(1);
                questions.asked = Some((std::mem::take(&mut questions.next), self.next_question, ticks));
            }
        }
        let Some((_, question, _)) = questions.asked else { return };
        let leads = self.groups.get(&partition).is_some_and(|group| group.leads().is_some());
        if leads && is_active(Mutant::ReadWithoutIndex) {
            self.learn(partition, question, 0);
            return self.answer_questions(partition);
        }
        // What is refused is asked again.
        let _ = self.groups.handle(partition, Input::AskIndex { question });
    }

    fn learn(&mut self, partition: PartitionId, question: u64, index: u64) {
        let Some(questions) = self.questions.get_mut(&partition) else { return };
        if let Some((asked, ..)) = questions.asked.take_if(|(_, name, _)| *name == question) {
            questions.answered.extend(asked.into_iter().map(|id| (index, id)));
        }
    }

    /// Tells the protocol of the transactions that wait no longer.
    fn answer_questions(&mut self, partition: PartitionId) {
        let decided = self.decided(partition);
        let Some(questions) = self.questions.get_mut(&partition) else { return };
        for (_, id) in questions.answered.extract_if(.., |(index, _)| *index <= decided) {
            if id == CATCHING_UP {
                self.lagging.remove(&partition);
            } else {
                self.protocol.reached(id, &mut self.wishes);
            }
        }
    }

    fn turn(&mut self, partition: PartitionId, turn: Turn, effects: &mut SiteEffects) {
        for (to, message) in turn.messages {
            send(effects, to, &Frame::Consensus(partition, message));
        }
        let must_sync = turn.is_promise || turn.must_sync && self.options.fsync == FsyncPolicy::Always;
        let is_kept = !turn.kept.is_empty();
        if let (Some(decided), Some(hard_state)) = (self.decided.get_mut(&partition), turn.kept.hard_state) {
            decided.hard_state = hard_state;
        }
        self.record(turn.kept, effects);
        let must_sync = must_sync && !is_active(Mutant::PromiseBeforeSync);
        self.groups.promise(partition, turn.number, turn.promises, is_kept, must_sync);
        for (question, index) in turn.indices {
            self.learn(partition, question, index);
        }
        for node in turn.behind {
            let told = self.behind.insert((partition, node), self.ticks);
            if let Some(group) = self.groups.get(&partition).filter(|_| told.is_none()) {
                send(effects, node, &Frame::Base(partition, BasePiece::offer(group.base())));
            }
        }
        match self.decide(partition, turn.committed) {
            Ok(()) => self.compact(partition, effects),
            Err(index) => return self.end(unread(partition, index), effects),
        }
        self.answer_questions(partition);
        self.tell_of_leader(partition);
    }

    /// Tells the protocol of a group's new leader.
    fn tell_of_leader(&mut self, partition: PartitionId) {
        let leader = self.groups.get(&partition).and_then(|group| group.leader());
        let Some(decided) = self.decided.get_mut(&partition) else { return };
        if let Some((node, _)) = leader.filter(|_| leader != decided.leader) {
            decided.leader = leader;
            self.protocol.has_new_leader(partition, node);
        }
    }

    /// Gives the protocol what is agreed up to an index. `Err` is the entry that it does not know.
    fn decide(&mut self, partition: PartitionId, committed: u64) -> Result<(), u64> {
        let (Some(group), Some(decided)) = (self.groups.get(&partition), self.decided.get_mut(&partition))
        else {
            return Ok(());
        };
        while decided.index < committed {
            let last = committed.min(decided.index + TOGETHER_MAX);
            let mut entries = Vec::new();
            for index in decided.index + 1..=last {
                entries.push(group.entry(index).ok_or(index)?);
            }
            let is_data = |entry: &&Entry| entry.kind == EntryKind::Data && !entry.data.is_empty();
            let data: Vec<&Entry> = entries.iter().filter(is_data).collect();
            let bytes: Vec<&[u8]> = data.iter().map(|entry| &entry.data[..]).collect();
            let workers = &*self.workers;
            let all = self.protocol.decided_all(partition, &bytes, workers, &mut self.wishes);
            all.map_err(|place| data[place].index)?;
            let Some(newest) = entries.last() else { return Ok(()) };
            (decided.index, decided.term) = (last, newest.term);
            decided.bytes += entries.iter().map(|entry| entry.data.len() as u64).sum::<u64>();
            self.bases.decided(partition, last);
        }
        Ok(())
    }

    /// Lets a group's log begin behind what is decided, once that is much.
    fn compact(&mut self, partition: PartitionId, effects: &mut SiteEffects) {
        let Some(decided) = self.decided.get_mut(&partition) else { return };
        let Some(group) = self.groups.get(&partition) else { return };
        // The library has to have looked at the entry.
        // A site that fetches the present base is given time: with another one it would begin anew.
        let is_fetched = self.behind.keys().any(|&(group, _)| group == partition);
        let times = if is_fetched { 2 } else { 1 };
        let bytes_max = self.options.log_bytes_max.max(group.base().state.len() as u64) * times;
        let bytes_max = decided.too_large.map_or(0, |too_large| too_large.again_bytes).max(bytes_max);
        if decided.bytes <= bytes_max || group.status().applied < decided.index {
            return;
        }
        // A record of the journal has room for one base: a later turn encodes this one.
        if effects.host.kept.iter().any(|kept| kept.base.is_some()) {
            return;
        }
        let state = self.protocol.snapshot(partition);
        if state.len() > self.options.base_bytes_max.min(BASE_BYTES_MAX) {
            let state_bytes = state.len() as u64;
            let again_bytes = decided.bytes + state_bytes.max(self.options.log_bytes_max);
            decided.too_large = Some(TooLarge { state_bytes, again_bytes });
            self.counts.bases_too_large += 1;
            return;
        }
        (decided.bytes, decided.too_large) = (0, None);
        let base = Base {
            index: decided.index,
            term: decided.term,
            members: group.members_at(decided.index),
            state: state.into(),
        };
        self.counts.bases += 1;
        self.groups.rebase(partition, base.clone());
        self.record(Kept { base: Some(base), ..Kept::nothing(partition) }, effects);
        self.groups.wait_for(());
    }

    /// Another site's log begins behind what this one needs next.
    fn take_piece(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        piece: BasePiece,
        effects: &mut SiteEffects,
    ) -> Result<(), String> {
        let Some(group) = self.groups.get(&partition) else {
            return Err(format!("a base of {partition}, which is no group of this site"));
        };
        let Base { index, term, members, .. } = &piece.head;
        let Members { voters, learners, .. } = members;
        let is_member = |site| voters.contains(&site) || learners.contains(&site);
        if !is_member(from) || !is_member(self.options.me) {
            return Err(format!("a base of {partition} for {voters:?} and {learners:?}"));
        }
        let has_it = group.entry(*index).is_some_and(|entry| entry.term == *term);
        if *index <= self.decided(partition) || has_it {
            return Ok(());
        }
        match self.bases.take(from, partition, piece, self.ticks) {
            Taken::Nothing => Ok(()),
            Taken::Ask(ask) => {
                send(effects, from, &Frame::AskForBase(partition, ask));
                Ok(())
            }
            Taken::Whole(base) => self.install(partition, base, effects),
        }
    }

    /// Begins behind a base.
    fn install(
        &mut self,
        partition: PartitionId,
        base: Base,
        effects: &mut SiteEffects,
    ) -> Result<(), String> {
        let index = base.index;
        if self.protocol.restore(partition, &base.state).is_err() {
            return Err(format!("a base of {partition} that means nothing to this build of Ordo"));
        }
        let Some(decided) = self.decided.get_mut(&partition) else { return Ok(()) };
        let hard_state = HardState { commit: index, ..decided.hard_state };
        *decided = Decided { index, term: base.term, bytes: 0, too_large: None, hard_state, ..*decided };
        let kept = Kept {
            base: Some(base.clone()),
            reset: true,
            hard_state: Some(hard_state),
            ..Kept::nothing(partition)
        };
        match raft_group(&self.options, partition, base, Vec::new(), hard_state) {
            Ok(group) => self.groups.replace(partition, group),
            Err(why) => {
                self.end(why, effects);
                return Ok(());
            }
        }
        self.record(kept, effects);
        self.groups.wait_for(());
        self.answer_questions(partition);
        Ok(())
    }

    fn record(&mut self, kept: Kept, effects: &mut SiteEffects) {
        if kept.is_empty() || self.has_ended() {
            return;
        }
        if effects.host.kept.is_empty() {
            self.groups.begin_record();
        }
        effects.host.kept.push(kept);
    }

    /// Lets go what is kept. Whether anything was.
    fn release(&mut self, effects: &mut SiteEffects) -> bool {
        let mut any = false;
        while let Some(kept) = self.groups.next_kept() {
            any = true;
            match kept {
                NowKept::Messages(partition, messages) => {
                    for (to, message) in messages {
                        send(effects, to, &Frame::Consensus(partition, message));
                    }
                }
                // A base is durable: the journal may let go of what lies before it.
                NowKept::Other(()) => effects.host.prune = Some(Needed::all()),
            }
        }
        any
    }

    fn tick(&mut self, effects: &mut SiteEffects) {
        self.ticks += 1;
        match &self.silence {
            Some(Silence::Ended) => return,
            Some(Silence::Unwritten { since_tick, .. }) => {
                effects.host.make_room |= (self.ticks - since_tick).is_multiple_of(RETRY_TICKS);
                return;
            }
            None => {}
        }
        self.groups.tell_all(&Input::Tick);
        let before = self.ticks.saturating_sub(BEHIND_TICKS);
        for ((partition, node), _) in self.behind.extract_if(.., |_, tick| *tick <= before) {
            // Only a leader has use for it.
            let _ = self.groups.handle(partition, Input::TryAgain(node));
        }
        if let Some((node, partition, ask)) = self.bases.tick(self.ticks) {
            send(effects, node, &Frame::AskForBase(partition, ask));
        }
        for partition in self.questions.keys().copied().collect::<Vec<_>>() {
            self.ask(partition, QUESTION_TICKS);
        }
        self.protocol.tick(&mut self.wishes);
    }

    fn frame(&mut self, from: NodeId, bytes: &[u8], effects: &mut SiteEffects) -> Result<(), String> {
        match take_frame(bytes).ok_or("a frame that does not read back")? {
            Frame::Consensus(partition, message) => {
                let Some(group) = self.groups.get(&partition) else {
                    return Err(format!("a message of {partition}, which is no group of this site"));
                };
                let examined = group.examine(from, &message);
                let examined = examined.map_err(|Contradiction(why)| why.to_owned())?;
                for entry in examined.appends.iter().filter(|entry| entry.kind == EntryKind::Data) {
                    self.check(partition, &entry.data)?;
                }
                // What is refused counts as lost.
                let _ = self.groups.handle(partition, Input::Message(message));
            }
            Frame::Propose(_, entry) if entry.is_empty() => return Err("an empty proposal".to_owned()),
            Frame::Propose(partition, entry) => {
                self.check(partition, &entry)?;
                self.propose(partition, entry);
            }
            Frame::Protocol(message) => {
                let heard = self.protocol.receive(from, &message, &mut self.wishes);
                heard.map_err(|_| "a message that is none of this protocol".to_owned())?;
            }
            Frame::Base(partition, piece) => self.take_piece(from, partition, piece, effects)?,
            Frame::AskForBase(partition, ask) => {
                let Some(group) = self.groups.get(&partition) else {
                    return Err(format!(
                        "a question for a base of {partition}, which is no group of this site"
                    ));
                };
                let piece = ask.answer(group.base(), self.options.base_piece_bytes_max);
                let is_last =
                    !piece.bytes.is_empty() && piece.offset + piece.bytes.len() as u64 == piece.total;
                send(effects, from, &Frame::Base(partition, piece));
                // While the other site asks, it needs no other offer. Behind the base it needs entries soon.
                let early_ticks = if is_last { BEHIND_TICKS - LAST_PIECE_TICKS } else { 0 };
                let told_tick = self.ticks.saturating_sub(early_ticks);
                self.behind.entry((partition, from)).and_modify(|tick| *tick = told_tick);
            }
        }
        Ok(())
    }

    /// Looks at an entry before this site has anything to do with it: what is agreed on cannot be refused.
    fn check(&self, partition: PartitionId, entry: &[u8]) -> Result<(), String> {
        // A leader begins with an empty one.
        if entry.is_empty() {
            return Ok(());
        }
        let checked = self.protocol.check(partition, entry);
        checked.map_err(|_| format!("an entry of {partition} that means nothing to this build of Ordo"))
    }

    fn count(&mut self, event: &HostEvent) {
        match event {
            HostEvent::Connected(node) => drop(self.linked.insert(*node)),
            HostEvent::Disconnected(node) => drop(self.linked.remove(node)),
            HostEvent::Synced(_) => self.counts.syncs += 1,
            HostEvent::JournalUnwritten(_) => self.counts.write_failures += 1,
            HostEvent::JournalFailed(_) => self.counts.sync_failures += 1,
            _ => {}
        }
    }

    fn end(&mut self, text: String, effects: &mut SiteEffects) {
        self.groups.close();
        self.silence = Some(Silence::Ended);
        self.wishes = Effects::default();
        effects.host = HostEffects::default();
        effects.ended = Some(text);
    }
}

impl<C: Certifier> Machine for Site<C> {
    type Effects = SiteEffects;

    fn react(&mut self, event: HostEvent, _now_ms: u64, effects: &mut SiteEffects) {
        self.count(&event);
        match event {
            HostEvent::Frame { .. } | HostEvent::Connected(_) | HostEvent::Disconnected(_)
                if self.silence.is_some() => {}
            HostEvent::Frame { from, bytes } => {
                if let Err(why) = self.frame(from, &bytes, effects) {
                    effects.host.severed.push((from, why));
                }
            }
            HostEvent::Connected(_) => {}
            HostEvent::Disconnected(node) => {
                self.bases.lost(node);
                self.groups.tell_all(&Input::Unreachable(node));
            }
            HostEvent::Tick { .. } => self.tick(effects),
            HostEvent::Written(record) => {
                self.groups.written(record);
                if !self.has_ended() {
                    self.silence = None;
                }
            }
            HostEvent::Synced(_) if self.has_ended() => {}
            HostEvent::Synced(record) => self.groups.synced(record),
            HostEvent::JournalUnwritten(_) => {
                let kept = std::mem::take(&mut effects.host.kept);
                self.silence = Some(Silence::Unwritten { kept, since_tick: self.ticks });
            }
            HostEvent::JournalFailed(error) => {
                self.end(format!("the journal could not be synced ({error}): check the disk"), effects);
            }
            HostEvent::RoomMade => {
                if let Some(Silence::Unwritten { kept, .. }) = &mut self.silence {
                    // Nothing may come between this and the write.
                    effects.host.kept = std::mem::take(kept);
                    return;
                }
            }
            // A site has no checkpoints beside its groups' bases.
            HostEvent::CheckpointWritten { .. }
            | HostEvent::CheckpointFailed(_)
            | HostEvent::PieceRead { .. }
            | HostEvent::PieceWritten { .. }
            | HostEvent::PieceSpoilt { .. }
            | HostEvent::PieceUnwritten { .. } => {}
        }
        self.round(effects);
    }
}

fn unread(partition: PartitionId, index: u64) -> String {
    format!(
        "entry {index} of the log of {partition} means nothing to this build of Ordo: start the version that \
         wrote it, or a newer one; the data is untouched"
    )
}

fn raft_group(
    options: &SiteOptions,
    partition: PartitionId,
    base: Base,
    entries: Vec<log::Entry>,
    hard_state: HardState,
) -> Result<Box<dyn Group>, String> {
    let trail_bytes_max = options.log_bytes_max / 4;
    let group =
        RaftGroup::new(options.me, partition, base, entries, hard_state, options.seed, trail_bytes_max)?;
    Ok(Box::new(group))
}

fn send(effects: &mut SiteEffects, to: NodeId, frame: &Frame) {
    effects.host.frames.push((to, put_frame(frame)));
}

const CONSENSUS: u8 = 1;
const PROPOSE: u8 = 2;
const PROTOCOL: u8 = 3;
const BASE: u8 = 4;
const ASK_FOR_BASE: u8 = 5;

fn put_frame(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    let mut head = |tag: u8, partition: PartitionId| {
        out.push(tag);
        put_varint(&mut out, u64::from(partition.0));
    };
    match frame {
        Frame::Consensus(partition, message) => {
            head(CONSENSUS, *partition);
            put_bytes(&mut out, message);
        }
        Frame::Propose(partition, entry) => {
            head(PROPOSE, *partition);
            put_bytes(&mut out, entry);
        }
        Frame::Protocol(message) => {
            out.push(PROTOCOL);
            put_bytes(&mut out, message);
        }
        Frame::Base(partition, piece) => {
            head(BASE, *partition);
            piece.put(&mut out);
        }
        Frame::AskForBase(partition, ask) => {
            head(ASK_FOR_BASE, *partition);
            ask.put(&mut out);
        }
    }
    out
}

fn take_frame(bytes: &[u8]) -> Option<Frame> {
    let reader = &mut Reader::new(bytes);
    let partition = |reader: &mut Reader<'_>| Some(PartitionId(u16::try_from(reader.varint()?).ok()?));
    let rest = |reader: &mut Reader<'_>| reader.bytes().map(Bytes::copy_from_slice);
    let frame = match reader.u8()? {
        CONSENSUS => Frame::Consensus(partition(reader)?, rest(reader)?),
        PROPOSE => Frame::Propose(partition(reader)?, rest(reader)?),
        PROTOCOL => Frame::Protocol(rest(reader)?),
        BASE => Frame::Base(partition(reader)?, BasePiece::take(reader)?),
        ASK_FOR_BASE => Frame::AskForBase(partition(reader)?, Ask::take(reader)?),
        _ => return None,
    };
    reader.is_empty().then_some(frame)
}

/// What a frame between sites says, for a trace.
pub fn describe(bytes: &[u8]) -> String {
    match take_frame(bytes) {
        None => "a frame that does not read back".to_owned(),
        Some(Frame::Consensus(partition, message)) => format!("{partition} {}", agree::describe(&message)),
        Some(Frame::Propose(partition, entry)) => format!("{partition} proposes {} bytes", entry.len()),
        Some(Frame::Protocol(message)) => format!("{} bytes of the protocol", message.len()),
        Some(Frame::Base(partition, BasePiece { head, total, offset, bytes })) => {
            let piece = format!("{} bytes from {offset} of {total}", bytes.len());
            format!("{partition} begins behind {}: {piece}", head.index)
        }
        Some(Frame::AskForBase(partition, Ask { index, offset, .. })) => {
            format!("{partition} asks for the base behind {index} from {offset}")
        }
    }
}
