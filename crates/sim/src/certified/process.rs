//! A host's process: a site, its journal, and the transactions of its clients.

use super::client::address;
use super::{
    Certified, Frame, MEMBERS_MAX, Member, MemberStep, Members, Operation, OperationRead, Pair, PairStep,
    Protocol, Timer, Told,
};
use crate::draw::Draw;
use crate::keeper::Keeper;
use crate::world::{Address, Core, Input, Start, Violation};
use bytes::Bytes;
use certify::call::ATTEMPTS;
use certify::{Answer, CallEnd, CertifiedCall, Job, Wish, Workers};
use log::Kept;
use node::FsyncPolicy;
use node::cluster::checkpoint::Needed;
use node::cluster::{ClusterCheckpoint, Piece, Whole};
use node::host::{Host, HostEvent, Machine, Recorded, drive};
use node::site::{Site, SiteEffects, SiteOptions};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use txn::hash::{hash_bytes, mix};
use txn::{
    Args, Entry, FnProcedure, Footprint, Key, NodeId, Outcome, PartitionId, Reply, Request, RequestId,
    ScanRange, SessionId, Space, Stop, Tx,
};

/// Making a segment's file takes so many syncs' time.
const PREPARE_SYNCS: u64 = 3;
/// In so many of 100 cases a site goes on with a transaction only after a while.
const PAUSE_PERCENT: u32 = 30;
/// In so many of 100 cases a site that goes on after a pause gives the transaction up, as if its client had
/// gone.
const FORGET_PERCENT: u32 = 2;

/// Behind each of so many entries of a group the oracles look at the state, and then behind every second one
/// of as many, every fourth one of twice as many, and so on.
const WATCHED_ENTRIES: u64 = 1_024;
/// The keys of pairs are those of lists from this one on.
const PAIRS_FROM: u64 = 1_000;

/// The threads of a site: their jobs run one after the other, in an order that is drawn.
#[derive(Debug)]
struct InSomeOrder {
    count: usize,
    order: Mutex<Draw>,
}

impl Workers for InSomeOrder {
    fn count(&self) -> usize {
        self.count
    }

    fn run(&self, mut jobs: Vec<Job<'_>>) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        while !jobs.is_empty() {
            let place = order.below(jobs.len() as u64) as usize;
            jobs.swap_remove(place)();
        }
    }
}

/// A running process.
pub struct Process<P> {
    number: u64,
    site: Site<P>,
    effects: SiteEffects,
    keeper: Keeper,
    ticks: u64,
    /// The last entry of each group behind which the oracles have looked at the state.
    watched: BTreeMap<PartitionId, u64>,
    /// Transactions that clients have here.
    running: BTreeMap<SessionId, Running>,
}

/// A client's transaction.
struct Running {
    /// The session, as its client numbers it.
    session: u32,
    operation: Arc<Operation>,
    call: CertifiedCall,
    /// What it wishes for after a pause.
    pending: Option<Wish>,
    /// Pauses that it has made.
    turn: u64,
}

impl<P: Protocol> fmt::Display for Process<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in (0u16..).map(PartitionId) {
            let Some(replica) = self.site.group(group) else { break };
            write!(f, "decided {} of {:?}, ", self.site.decided(group), replica.status())?;
        }
        write!(f, "{} transactions", self.running.len())
    }
}

/// The key of a list. Lists whose numbers are close are in different partitions.
fn key_of(list: u64) -> Key {
    Key::in_space(Space::System, &mix(list).to_le_bytes())
}

/// The key of a member.
fn member_key(name: u64) -> Key {
    Key::new(&name.to_le_bytes())
}

/// The keys of a pair. They are in different partitions, where there are several.
fn pair_keys(number: u64) -> [Key; 2] {
    [key_of(PAIRS_FROM + 2 * number), key_of(PAIRS_FROM + 2 * number + 1)]
}

fn list_of(value: Option<&Entry>) -> Vec<u64> {
    let text = value.and_then(|entry| entry.value.as_string()).unwrap_or_default();
    let (values, _) = text.as_chunks::<8>();
    values.iter().map(|value| u64::from_le_bytes(*value)).collect()
}

fn bytes_of(list: &[u64]) -> Vec<u8> {
    list.iter().copied().flat_map(u64::to_le_bytes).collect()
}

/// What a client's operation does at a site.
async fn execute(mut tx: Tx, operation: Arc<Operation>) -> Outcome {
    let Members { seen, gone } = match operation.member {
        Some(member) => use_member(&mut tx, member).await?,
        None => Members::default(),
    };
    let reply = |values: &[u64]| Reply::bulk(bytes_of(values).as_slice());
    let mut replies = vec![reply(&seen), reply(&gone)];
    let mut first = None;
    for &(key, value) in &operation.steps {
        let list = list_of(tx.entry(&key_of(key)).await?.as_ref());
        let length = *first.get_or_insert(list.len());
        if let Some(value) = value
            && operation.appends_behind(length)
        {
            let longer = [&list[..], &[value]].concat();
            tx.put(&key_of(key), bytes_of(&longer).as_slice()).await?;
        }
        replies.push(Reply::bulk(bytes_of(&list).as_slice()));
    }
    if let Some(pair) = operation.pair {
        let list = use_pair(&mut tx, pair).await?;
        replies.push(Reply::bulk(bytes_of(&list).as_slice()));
    }
    Ok(Reply::Array(replies))
}

async fn use_member(tx: &mut Tx, member: Member) -> Result<Members, Stop> {
    let Member { step, name, value } = member;
    let key = &member_key(name);
    let mut members = Members::default();
    let mut may_add = false;
    match step {
        MemberStep::AddIfListed => {
            members.seen = listed(tx).await?;
            may_add = members.seen.len() < MEMBERS_MAX && tx.entry(key).await?.is_none();
        }
        MemberStep::AddIfCounted => {
            may_add = tx.count().await? < MEMBERS_MAX as u64 && tx.entry(key).await?.is_none();
        }
        MemberStep::Change | MemberStep::Delete => {
            members.seen = list_of(tx.entry(key).await?.as_ref());
            members.gone = members.seen.clone();
            match step {
                _ if members.seen.is_empty() => {}
                MemberStep::Change => tx.put(key, bytes_of(&[value]).as_slice()).await?,
                _ => tx.delete(key).await?,
            }
        }
        MemberStep::Clear => {
            members.seen = listed(tx).await?;
            members.gone = members.seen.clone();
            tx.clear().await?;
        }
        MemberStep::Look => {
            members.seen = listed(tx).await?;
            let count = tx.count().await?;
            if count != members.seen.len() as u64 {
                return Err(Stop::abort(format!(
                    "{count} members are counted, {} listed",
                    members.seen.len()
                )));
            }
        }
    }
    if may_add {
        tx.put(key, bytes_of(&[value]).as_slice()).await?;
    }
    Ok(members)
}

/// Gives the list that it has read.
async fn use_pair(tx: &mut Tx, pair: Pair) -> Result<Vec<u64>, Stop> {
    let keys = pair_keys(pair.number);
    let mut list = Vec::new();
    if matches!(pair.step, PairStep::Append | PairStep::Take | PairStep::Look) {
        list = list_of(tx.entry(&keys[0]).await?.as_ref());
        let other = list_of(tx.entry(&keys[1]).await?.as_ref());
        if list != other {
            let number = pair.number;
            return Err(Stop::abort(format!("pair {number} is read as {list:x?} and {other:x?}")));
        }
    }
    let written = match pair.step {
        PairStep::Write => vec![pair.value],
        PairStep::Append => [&list[..], &[pair.value]].concat(),
        PairStep::Take if list.is_empty() => return Ok(list),
        PairStep::Delete | PairStep::Take => Vec::new(),
        PairStep::Look => return Ok(list),
    };
    for key in &keys {
        match written.is_empty() {
            true => tx.delete(key).await?,
            false => tx.put(key, bytes_of(&written).as_slice()).await?,
        };
    }
    Ok(list)
}

/// The values of all members, in pages.
async fn listed(tx: &mut Tx) -> Result<Vec<u64>, Stop> {
    let (mut values, mut from_hash) = (Vec::new(), Some(0));
    while let Some(hash) = from_hash {
        let page = tx.scan(ScanRange::of(Space::User, hash, MEMBERS_MAX)).await?;
        values.extend(page.entries.iter().flat_map(|(_, entry)| list_of(Some(entry))));
        from_hash = page.next_hash;
    }
    Ok(values)
}

/// What an operation has read, by its outcome.
fn read_of(operation: &Operation, outcome: Outcome) -> Result<OperationRead, String> {
    let list = |reply: Reply| match reply {
        Reply::Bulk(bytes) => Ok(list_of(Some(&Entry::new(bytes)))),
        other => Err(format!("{other:?}")),
    };
    match outcome {
        Ok(Reply::Array(replies)) => {
            let mut lists: Vec<Vec<u64>> = replies.into_iter().map(list).collect::<Result<_, _>>()?;
            let pair = operation.pair.and_then(|_| lists.pop()).unwrap_or_default();
            let read = lists.split_off(2);
            let gone = lists.pop().unwrap_or_default();
            let members = Members { seen: lists.pop().unwrap_or_default(), gone };
            Ok(OperationRead { members, pair, lists: read })
        }
        Err(Stop::Abort(text)) => Err(text.into_owned()),
        other => Err(format!("{other:?}")),
    }
}

/// A list as a site has it.
pub(super) fn list_at<P: Protocol>(process: &Process<P>, key: u64) -> Vec<u64> {
    list_of(process.site.protocol().newest(&key_of(key)).as_ref())
}

/// What a site has at both keys of a pair.
pub(super) fn pair_at<P: Protocol>(process: &Process<P>, number: u64) -> [Vec<u64>; 2] {
    pair_keys(number).map(|key| list_of(process.site.protocol().newest(&key).as_ref()))
}

/// A site's whole state of a group.
pub(super) fn state_of<P: Protocol>(process: &Process<P>, group: PartitionId) -> Vec<u8> {
    process.site.protocol().snapshot(group)
}

impl<P: Protocol> Process<P> {
    pub(super) fn start(
        system: &mut Certified<P>,
        host: u16,
        core: &mut Core<Certified<P>>,
    ) -> Result<Start<Process<P>>, Violation> {
        let plan = &system.plan;
        let (keeper, images) = match Keeper::open(core, host, plan.segment_bytes) {
            Ok(opened) => opened,
            Err(_) if core.host(host).process_disk().is_dead() => return Ok(Start::Died),
            Err(error) => return Ok(Start::Refused(error.to_string())),
        };
        let began = images.values().map(|image| image.base.index).max().unwrap_or(0);
        let groups = (0..plan.sites.groups).map(PartitionId);
        system.processes += 1;
        system.tally.recovered_from_checkpoint += u64::from(began > 0);
        let options = SiteOptions {
            me: NodeId(host + 1),
            groups: groups.map(|group| (group, (1..=plan.sites.hosts).map(NodeId).collect())).collect(),
            followers: Vec::new(),
            seed: plan.seed,
            fsync: FsyncPolicy::Always,
            tick_ms: (plan.tick_ns / 1_000_000).max(1),
            log_bytes_max: plan.log_bytes_max,
            base_piece_bytes_max: plan.base_piece_bytes_max,
            base_bytes_max: plan.base_bytes_max,
            nonce: system.processes,
        };
        let protocol = P::site(options.me, &plan.sites);
        let mut site = match Site::recover(options, protocol, images) {
            Ok(site) => site,
            Err(why) => return Ok(Start::Refused(why)),
        };
        let order = Mutex::new(Draw::new(mix(plan.seed ^ system.processes)));
        site.share_work(Arc::new(InSomeOrder { count: plan.threads, order }));
        let first_tick_ns = 1 + core.draw.below(plan.tick_ns);
        core.set_timer(Address::Host(host), first_tick_ns, Timer::Tick);
        let mut process = Process {
            number: system.processes,
            site,
            effects: SiteEffects::default(),
            keeper,
            ticks: 0,
            watched: BTreeMap::new(),
            running: BTreeMap::new(),
        };
        let mut turn = Turn { system, process: &mut process, core, host };
        turn.host().prepare_soon();
        turn.watch()?;
        Ok(Start::Running(process))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.site.is_idle() && self.site.protocol().has_settled()
    }

    /// The last decided entry of each group.
    pub(super) fn decided(&self, groups: u16) -> Vec<u64> {
        (0..groups).map(|group| self.site.decided(PartitionId(group))).collect()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.site.has_ended()
    }
}

/// Something reaches a process.
pub(super) struct Turn<'a, P: Protocol> {
    pub system: &'a mut Certified<P>,
    pub process: &'a mut Process<P>,
    pub core: &'a mut Core<Certified<P>>,
    pub host: u16,
}

impl<P: Protocol> Turn<'_, P> {
    pub fn take(mut self, input: Input<Frame, Timer>) -> Result<(), Violation> {
        let ticks = self.process.ticks;
        match input {
            Input::Frame { frame: Frame::Peer { from, bytes }, .. } => {
                self.react(HostEvent::Frame { from, bytes })
            }
            Input::Frame { frame: Frame::Ask { session, sequence, attempt, id, operation }, .. } => {
                let id = RequestId { session: id, sequence, attempt: (attempt - 1) * ATTEMPTS };
                self.begin(session, id, operation);
            }
            Input::Timer(Timer::Tick) => {
                self.process.ticks += 1;
                let tick_ns = self.system.plan.tick_ns;
                self.core.set_timer(Address::Host(self.host), tick_ns, Timer::Tick);
                if self.core.draw.below(8) == 0
                    && !self.process.keeper.is_syncing()
                    && !self.process.has_ended()
                {
                    let marked = self.process.keeper.mark();
                    marked.into_iter().for_each(|event| self.react(event));
                }
                self.react(HostEvent::Tick { wall_ms: self.core.clock_ms(self.host) });
            }
            Input::Timer(Timer::Synced) => {
                let synced = self.process.keeper.end_sync(ticks);
                synced.into_iter().for_each(|event| self.react(event));
            }
            Input::Timer(Timer::Prepared) => {
                let prepared = self.process.keeper.prepared();
                prepared.into_iter().for_each(|event| self.react(event));
            }
            Input::Timer(Timer::Go { session, turn }) => self.go_on(session, turn),
            Input::Timer(_) | Input::Frame { .. } => {}
        }
        self.watch()
    }

    fn react(&mut self, event: HostEvent) {
        let now_ms = self.core.steady_ms(self.host);
        self.process.site.react(event, now_ms, &mut self.process.effects);
        self.perform();
    }

    /// A client has a transaction run.
    fn begin(&mut self, session: u32, id: RequestId, operation: Operation) {
        let footprint = Footprint { read_only: operation.is_declared, ..Footprint::default() };
        let operation = Arc::new(operation);
        let executed = operation.clone();
        let procedure = FnProcedure::new("operation", move |tx, _| execute(tx, executed.clone()));
        let request = Request::new(id, Arc::new(procedure), Args::new());
        let call = CertifiedCall::new(Arc::new(Request { footprint, ..request }), 0);
        let place = |id: RequestId| (id.sequence, id.attempt);
        let newer = self.process.running.get(&id.session);
        if newer.is_some_and(|newer| place(newer.call.id()) > place(id)) {
            // Its client waits for the newer attempt, whatever the site makes of this one.
            let Process { site, effects, .. } = &mut *self.process;
            site.begin(id, call.is_read_only(), effects);
            return self.perform();
        }
        let running = Running { session, operation, call, pending: None, turn: 0 };
        self.process.running.insert(id.session, running);
        self.grant(id.session, Wish::Begin);
        self.perform();
    }

    /// A transaction goes on after a pause.
    fn go_on(&mut self, session: SessionId, turn: u64) {
        let running = self.process.running.get_mut(&session).filter(|running| running.turn == turn);
        let Some(running) = running else { return };
        let id = running.call.id();
        if let Some(wish) = running.pending.take() {
            if self.core.draw.percent(FORGET_PERCENT) {
                self.process.running.remove(&session);
                return self.process.site.forget(id);
            }
            self.grant(session, wish);
            self.perform();
        }
    }

    /// Has a transaction go on after so long.
    fn pause(&mut self, session: SessionId, wish: Wish, after_ns: u64) {
        let Some(running) = self.process.running.get_mut(&session) else { return };
        running.turn += 1;
        running.pending = Some(wish);
        let timer = Timer::Go { session, turn: running.turn };
        self.core.set_timer(Address::Host(self.host), after_ns, timer);
    }

    /// A transaction wishes for something, now or after a pause.
    fn wished(&mut self, session: SessionId, wish: Wish) {
        let tick_ns = self.system.plan.tick_ns;
        match wish {
            Wish::Wait { ticks } => self.pause(session, Wish::Begin, ticks * tick_ns),
            Wish::End(end) => self.answer(session, end),
            wish if self.core.draw.percent(PAUSE_PERCENT) => {
                let after_ns = 1 + self.core.draw.below(4 * tick_ns);
                self.pause(session, wish, after_ns);
            }
            wish => self.grant(session, wish),
        }
    }

    /// Does what a transaction wishes for.
    fn grant(&mut self, session: SessionId, wish: Wish) {
        let Process { site, effects, running, .. } = &mut *self.process;
        let Some(call) = running.get(&session).map(|running| &running.call) else { return };
        match wish {
            Wish::Begin => site.begin(call.id(), call.is_read_only(), effects),
            Wish::Look(look) => site.look(call.id(), &look, effects),
            Wish::Commit(reads, writes) => site.commit(call.id(), reads, writes, effects),
            Wish::Wait { .. } | Wish::End(_) => self.wished(session, wish),
        }
    }

    /// Does what the site wants, and goes on with the transactions that it answers.
    fn perform(&mut self) {
        loop {
            let now_ms = self.core.steady_ms(self.host);
            let (site, effects, mut host) = self.with_host();
            drive(site, effects, now_ms, &mut host);
            let answers = std::mem::take(&mut self.process.effects.answers);
            if answers.is_empty() {
                break;
            }
            answers.into_iter().for_each(|(id, answer)| self.answered(id, answer));
        }
        if let Some(text) = self.process.effects.ended.take() {
            self.core.note(Address::Host(self.host), || text);
            // While faults last, its operator waits until the disk works again.
            if self.core.healed_ns().is_some() {
                self.core.exit(self.host);
            }
        }
    }

    fn answered(&mut self, id: RequestId, answer: Answer) {
        let Process { site, running, .. } = &mut *self.process;
        let Some(running) = running.get_mut(&id.session).filter(|running| running.call.id() == id) else {
            return;
        };
        self.system.tally.refused += u64::from(matches!(answer, Answer::Conflict(_)));
        let wish = match answer {
            Answer::Begun if self.system.plan.reads_at_once => {
                running.call.begun(site.protocol().snapshot_of(id))
            }
            answer => running.call.answered(answer),
        };
        self.wished(id.session, wish);
    }

    /// A transaction has ended.
    fn answer(&mut self, session: SessionId, end: CallEnd) {
        let Some(running) = self.process.running.remove(&session) else { return };
        let Running { call, session, operation, .. } = running;
        let told = match end {
            CallEnd::Done { outcome, is_ordered } => match read_of(&operation, outcome) {
                Ok(read) => Told::Committed { read, is_ordered },
                Err(text) => Told::Failed(text),
            },
            CallEnd::CommittedBefore => Told::CommittedBefore,
            CallEnd::Conflict(conflict) => Told::Conflict(conflict),
            CallEnd::Unknown => Told::Unknown,
            CallEnd::Unavailable => Told::Unavailable,
        };
        let RequestId { sequence, attempt, .. } = call.request().id;
        let home = P::home_of(call.request().id.session, self.system.plan.sites.partitions);
        let (attempt, position) = (attempt / ATTEMPTS + 1, self.process.site.protocol().position(home));
        let frame = Frame::Answer { session, sequence, attempt, position, told };
        self.core.send(Address::Host(self.host), address(session), frame);
    }

    /// The oracles that look all the time.
    fn watch(&mut self) -> Result<(), Violation> {
        (0..self.system.plan.sites.groups).try_for_each(|group| self.watch_group(PartitionId(group)))
    }

    fn watch_group(&mut self, group: PartitionId) -> Result<(), Violation> {
        let process = &*self.process;
        let term = process.site.group(group).and_then(|replica| replica.leads());
        if let Some(term) = term.filter(|_| !process.has_ended()) {
            let me = (self.host, process.number);
            let leader = *self.system.leaders.entry((group, term)).or_insert(me);
            if leader != me {
                let text =
                    format!("host {} leads term {term} of {group}, in which host {} led", me.0, leader.0);
                return Err(Violation::new("leaders", text));
            }
        }
        let newest = self.system.newest.entry(group).or_default();
        *newest = (*newest).max(process.site.protocol().position(group));
        let decided = process.site.decided(group);
        // The state grows with the log, so to look at it behind each entry would take quadratic time.
        let stride = (decided / WATCHED_ENTRIES).next_power_of_two();
        if process.watched.get(&group) == Some(&decided) || !decided.is_multiple_of(stride) {
            return Ok(());
        }
        let digest = mix(decided ^ hash_bytes(&state_of(process, group)));
        let (known, first) = *self.system.digests.entry((group, decided)).or_insert((digest, self.host));
        if known != digest {
            let text = format!("hosts {first} and {} differ behind entry {decided} of {group}", self.host);
            return Err(Violation::new("replica states", text));
        }
        self.core.witness(digest);
        self.process.watched.insert(group, decided);
        Ok(())
    }

    fn host(&mut self) -> VirtualHost<'_, P> {
        self.with_host().2
    }

    fn with_host(&mut self) -> (&mut Site<P>, &mut SiteEffects, VirtualHost<'_, P>) {
        let Process { site, effects, keeper, ticks, .. } = &mut *self.process;
        let host =
            VirtualHost { system: self.system, core: self.core, keeper, host: self.host, now_tick: *ticks };
        (site, effects, host)
    }
}

/// The [`Host`] of a simulated site.
struct VirtualHost<'a, P: Protocol> {
    system: &'a mut Certified<P>,
    core: &'a mut Core<Certified<P>>,
    keeper: &'a mut Keeper,
    host: u16,
    now_tick: u64,
}

impl<P: Protocol> VirtualHost<'_, P> {
    fn after_syncs(&mut self, syncs: u64, timer: Timer) {
        let plan = &self.system.plan;
        let jitter = if plan.jitter { self.core.draw.pick(&[1, 1, 2, 10]) } else { 1 };
        let after_ns = plan.costs.sync_ns * syncs * self.core.disk_factor(self.host) * jitter;
        self.core.set_timer(Address::Host(self.host), after_ns, timer);
    }

    fn prepare_soon(&mut self) {
        if self.keeper.begin_to_prepare() {
            self.after_syncs(PREPARE_SYNCS, Timer::Prepared);
        }
    }
}

impl<P: Protocol> Host for VirtualHost<'_, P> {
    fn append(&mut self, kept: &[Kept]) -> Recorded {
        let appended = self.keeper.append(kept, self.now_tick);
        if matches!(appended, Recorded::Written { rotated: true, .. }) {
            self.prepare_soon();
        }
        let bases = kept.iter().filter(|kept| kept.base.is_some()).count();
        self.system.tally.checkpoints += bases as u64;
        appended
    }

    fn sync(&mut self) -> Option<HostEvent> {
        let draw = &mut self.core.draw;
        if let Some(durable) = self.keeper.begin_sync(|| draw.percent(50)) {
            return Some(durable);
        }
        self.after_syncs(1, Timer::Synced);
        None
    }

    fn send(&mut self, to: NodeId, frame: Vec<u8>) {
        let frame = Frame::Peer { from: NodeId(self.host + 1), bytes: Bytes::from(frame) };
        self.core.send(Address::Host(self.host), Address::Host(to.0 - 1), frame);
    }

    fn sever(&mut self, peer: NodeId, why: &str) {
        panic!("host {} refuses a frame that {peer} has sent: {why}", self.host);
    }

    fn make_room(&mut self) -> Option<HostEvent> {
        self.prepare_soon();
        None
    }

    fn prune(&mut self, _: Needed) {
        self.keeper.records.truncate();
    }

    // A site has no checkpoints beside its groups' bases.
    fn checkpoint(&mut self, _: ClusterCheckpoint) {}

    fn read_piece(&mut self, _: NodeId, _: Piece) -> Option<HostEvent> {
        None
    }

    fn write_piece(&mut self, _: Piece, _: Bytes, _: Option<Whole>) -> Option<HostEvent> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use txn::key::partition_of_slot;

    #[test]
    fn the_first_lists_are_in_several_partitions() {
        for partitions in 2..=4 {
            let partition = |list| partition_of_slot(key_of(list).slot(), partitions);
            let used: BTreeSet<_> = (0..5).map(partition).collect();
            assert!(used.len() > 1, "{partitions} partitions: {used:?}");
            let pair = pair_keys(0).map(|key| partition_of_slot(key.slot(), partitions));
            assert_ne!(pair[0], pair[1], "{partitions} partitions");
        }
    }
}
