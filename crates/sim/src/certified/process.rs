//! A host's process: a site, its journal, and the transactions of its clients.

use super::client::address;
use super::{Certified, Frame, Operation, Timer, Told};
use crate::keeper::Keeper;
use crate::world::{Address, Core, Input, Start, Violation};
use bytes::Bytes;
use certify::Answer;
use certify::Certifier;
use certify::register::{GROUP, Register};
use log::Kept;
use node::FsyncPolicy;
use node::cluster::checkpoint::Needed;
use node::cluster::{ClusterCheckpoint, Piece, Whole};
use node::host::{Host, HostEvent, Machine, Recorded, drive};
use node::site::{Site, SiteEffects, SiteOptions};
use std::collections::BTreeMap;
use std::fmt;
use txn::hash::{hash_bytes, mix};
use txn::{Entry, Key, NodeId, RequestId, SessionId};

/// Making a segment's file takes so many syncs' time.
const PREPARE_SYNCS: u64 = 3;

/// A running process.
pub struct Process {
    number: u64,
    site: Site<Register>,
    effects: SiteEffects,
    keeper: Keeper,
    ticks: u64,
    /// The last entry behind which the oracles have looked at the state.
    watched: Option<u64>,
    /// Transactions that clients have here, and the list that each has read.
    running: BTreeMap<RequestId, (Operation, Vec<u64>)>,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.site.group(GROUP).map(|group| group.status());
        write!(f, "decided {} of {status:?}, {} transactions", self.decided(), self.running.len())
    }
}

/// The key of a list.
fn key_of(list: u64) -> Key {
    Key::new(&list.to_le_bytes())
}

fn list_of(value: Option<&Entry>) -> Vec<u64> {
    let text = value.and_then(|entry| entry.value.as_string()).unwrap_or_default();
    let (values, _) = text.as_chunks::<8>();
    values.iter().map(|value| u64::from_le_bytes(*value)).collect()
}

/// A list as a site has it.
pub(super) fn list_at(process: &Process, key: u64) -> Vec<u64> {
    list_of(process.site.protocol().value(&key_of(key)))
}

/// A site's whole state.
pub(super) fn state_of(process: &Process) -> Vec<u8> {
    process.site.protocol().snapshot(GROUP)
}

impl Process {
    pub(super) fn start(
        system: &mut Certified,
        host: u16,
        core: &mut Core<Certified>,
    ) -> Result<Start<Process>, Violation> {
        let plan = &system.plan;
        let (keeper, images) = match Keeper::open(core, host, plan.segment_bytes) {
            Ok(opened) => opened,
            Err(_) if core.host(host).process_disk().is_dead() => return Ok(Start::Died),
            Err(error) => return Ok(Start::Refused(error.to_string())),
        };
        let began = images.get(&GROUP).map_or(0, |image| image.base.index);
        system.processes += 1;
        system.tally.recovered_from_checkpoint += u64::from(began > 0);
        let options = SiteOptions {
            me: NodeId(host + 1),
            groups: BTreeMap::from([(GROUP, (1..=plan.hosts).map(NodeId).collect())]),
            seed: plan.seed,
            fsync: FsyncPolicy::Always,
            tick_ms: (plan.tick_ns / 1_000_000).max(1),
            log_bytes_max: plan.log_bytes_max,
            nonce: system.processes,
        };
        let site = match Site::recover(options, Register::default(), images) {
            Ok(site) => site,
            Err(why) => return Ok(Start::Refused(why)),
        };
        let first_tick_ns = 1 + core.draw.below(plan.tick_ns);
        core.set_timer(Address::Host(host), first_tick_ns, Timer::Tick);
        let mut process = Process {
            number: system.processes,
            site,
            effects: SiteEffects::default(),
            keeper,
            ticks: 0,
            watched: None,
            running: BTreeMap::new(),
        };
        let mut turn = Turn { system, process: &mut process, core, host };
        turn.host().prepare_soon();
        turn.watch()?;
        Ok(Start::Running(process))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.site.is_idle()
    }

    pub(super) fn decided(&self) -> u64 {
        self.site.decided(GROUP)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.site.has_ended()
    }
}

/// Something reaches a process.
pub(super) struct Turn<'a> {
    pub system: &'a mut Certified,
    pub process: &'a mut Process,
    pub core: &'a mut Core<Certified>,
    pub host: u16,
}

impl Turn<'_> {
    pub fn take(mut self, input: Input<Frame, Timer>) -> Result<(), Violation> {
        let ticks = self.process.ticks;
        match input {
            Input::Frame { frame: Frame::Peer { from, bytes }, .. } => {
                self.react(HostEvent::Frame { from, bytes })
            }
            Input::Frame { frame: Frame::Ask { session, sequence, attempt, operation }, .. } => {
                self.begin(session, sequence, attempt, operation);
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
    fn begin(&mut self, session: u32, sequence: u64, attempt: u32, operation: Operation) {
        let id = RequestId { session: SessionId(1 + u64::from(session)), sequence, attempt };
        self.process.running.retain(|other, _| other.session != id.session);
        self.process.running.insert(id, (operation, Vec::new()));
        self.process.site.begin(id, &mut self.process.effects);
        self.perform();
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
        let Process { site, effects, running, .. } = &mut *self.process;
        let Some((operation, list)) = running.get_mut(&id) else { return };
        let told = match answer {
            Answer::Begun => return site.read(id, &key_of(operation.key()), effects),
            Answer::Value(value) => {
                *list = list_of(value.as_ref());
                let writes = match *operation {
                    Operation::Read { .. } => Vec::new(),
                    Operation::Append { key, value } => {
                        let values = list.iter().copied().chain([value]);
                        let bytes: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
                        vec![(key_of(key), Some(Entry::new(bytes.as_slice())))]
                    }
                };
                return site.commit(id, writes, effects);
            }
            Answer::Committed => Told::Committed(std::mem::take(list)),
            Answer::CommittedBefore => Told::CommittedBefore,
            Answer::Unavailable => Told::Unavailable,
            Answer::Conflict(_) => {
                self.system.tally.refused += 1;
                Told::Conflict
            }
        };
        running.remove(&id);
        let session = (id.session.0 - 1) as u32;
        let frame = Frame::Answer { session, sequence: id.sequence, attempt: id.attempt, told };
        self.core.send(Address::Host(self.host), address(session), frame);
    }

    /// The oracles that look all the time.
    fn watch(&mut self) -> Result<(), Violation> {
        let process = &*self.process;
        let term = process.site.group(GROUP).and_then(|group| group.leads());
        if let Some(term) = term.filter(|_| !process.has_ended()) {
            let me = (self.host, process.number);
            let leader = *self.system.leaders.entry(term).or_insert(me);
            if leader != me {
                let text = format!("host {} leads term {term}, in which host {} led", me.0, leader.0);
                return Err(Violation::new("leaders", text));
            }
        }
        let decided = process.decided();
        if process.watched == Some(decided) {
            return Ok(());
        }
        let digest = mix(decided ^ hash_bytes(&state_of(process)));
        let (known, first) = *self.system.digests.entry(decided).or_insert((digest, self.host));
        if known != digest {
            let text = format!("hosts {first} and {} differ behind entry {decided}", self.host);
            return Err(Violation::new("replica states", text));
        }
        self.core.witness(digest);
        self.process.watched = Some(decided);
        Ok(())
    }

    fn host(&mut self) -> VirtualHost<'_> {
        self.with_host().2
    }

    fn with_host(&mut self) -> (&mut Site<Register>, &mut SiteEffects, VirtualHost<'_>) {
        let Process { site, effects, keeper, ticks, .. } = &mut *self.process;
        let host =
            VirtualHost { system: self.system, core: self.core, keeper, host: self.host, now_tick: *ticks };
        (site, effects, host)
    }
}

/// The [`Host`] of a simulated site.
struct VirtualHost<'a> {
    system: &'a mut Certified,
    core: &'a mut Core<Certified>,
    keeper: &'a mut Keeper,
    host: u16,
    now_tick: u64,
}

impl VirtualHost<'_> {
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

impl Host for VirtualHost<'_> {
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
