//! A world: hosts, clients and what connects them, in virtual time, on one thread, out of one seed.
//!
//! The world knows nothing of what runs in it. It has a clock, a queue of events, a network, and hosts with
//! disks; a [`System`] says what its processes and clients do when a frame or a timer reaches them. Whatever
//! they do takes virtual time only where they say so. A run is a sequence of events, each handled to its end
//! before the next; the digest of that sequence is the same whenever the seed is.
//!
//! Faults come from a list ([`fault`]). After the last one ends, the world *heals*: links work, disks obey,
//! hosts are up. From then on every client must finish within [`Limits::settle_ms`]; that is the liveness
//! oracle, and the only one that is the world's own.

pub mod fault;
mod harm;
mod host;
mod mortal;
mod network;
pub(crate) mod queue;

pub use fault::{Fault, TimedFault};
pub use host::{EPOCH_MS, Host};
pub use mortal::{MortalDisk, MortalFile};
pub use network::Latency;

use crate::disk::VirtualDisk;
use crate::draw::Draw;
use crate::trace::{self, Trace};
use host::Death;
use log::{Disk, DiskFile};
use network::{Cut, Fate, Network, Weather};
use queue::Queue;
use std::collections::BTreeMap;
use std::fmt;
use txn::hash::mix;

/// A participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A host's process.
    Host(u16),
    /// A client.
    Client(u16),
}

impl Address {
    fn bits(self) -> u64 {
        match self {
            Address::Host(number) => u64::from(number),
            Address::Client(number) => 1 << 16 | u64::from(number),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Host(number) => write!(f, "host {number}"),
            Address::Client(number) => write!(f, "client {number}"),
        }
    }
}

/// How a frame travels: see [`network`](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Once, and in order.
    Stream,
    /// Perhaps, perhaps twice, in any order.
    Datagram,
}

/// The oracle that wants everything to be answered in the end.
const LIVENESS: &str = "liveness";

/// Something that must not be, and which oracle says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The oracle's name.
    pub oracle: &'static str,
    /// What it found.
    pub text: String,
}

impl Violation {
    /// A finding.
    pub fn new(oracle: &'static str, text: impl Into<String>) -> Violation {
        Violation { oracle, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.text)
    }
}

/// What reaches a participant.
#[derive(Debug)]
pub enum Input<F, T> {
    /// A frame.
    Frame {
        /// The sender.
        from: Address,
        /// What it sent.
        frame: F,
    },
    /// A timer that it set.
    Timer(T),
}

/// How starting a process went.
pub enum Start<N> {
    /// It runs.
    Running(N),
    /// It died meanwhile, inside a disk operation.
    Died,
    /// It refused, with this text.
    Refused(String),
    /// Nothing is to run there.
    Idle,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What was written is there.
    Killed,
    /// What was synced is there.
    PowerLost,
    /// Nothing is there.
    DiskLost,
}

/// What runs in a world.
pub trait System: Sized {
    /// What participants send each other.
    type Frame: Clone + fmt::Display;
    /// What they remind themselves of.
    type Timer: Copy + fmt::Debug;
    /// A running process.
    type Node;

    /// The size of a frame on the wire.
    fn frame_bytes(frame: &Self::Frame) -> u64;
    /// How frames travel between these two.
    fn traffic(from: Address, to: Address) -> Traffic;
    /// Starts a process from what its disk holds.
    fn start(&mut self, host: u16, core: &mut Core<Self>) -> Result<Start<Self::Node>, Violation>;
    /// Something reaches a process.
    fn host(
        &mut self,
        host: u16,
        node: &mut Self::Node,
        input: Input<Self::Frame, Self::Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation>;
    /// A process has ended (`None`: it had not yet started). What is left of it is on the host's disk.
    fn ended(
        &mut self,
        host: u16,
        node: Option<Self::Node>,
        end: End,
        core: &mut Core<Self>,
    ) -> Result<(), Violation>;
    /// Something reaches a client. Each gets a first input when the run begins.
    fn client(
        &mut self,
        client: u16,
        input: Input<Self::Frame, Self::Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation>;
    /// A client's connection breaks.
    fn disconnect(&mut self, client: u16, core: &mut Core<Self>) -> Result<(), Violation>;
    /// The first timer of every client.
    fn first_timer(&self, client: u16) -> Self::Timer;
    /// Whether every client has finished, and every process has nothing left to do.
    fn settled(&self, nodes: &mut [Option<Self::Node>]) -> bool;
    /// Everything has settled: what must hold now?
    fn check_end(&mut self, nodes: &mut [Option<Self::Node>], core: &mut Core<Self>)
    -> Result<(), Violation>;
    /// The operator is to replace what runs on a host.
    fn replace(&mut self, _host: u16, _core: &mut Core<Self>) {}
    /// Whether an operator would have to restart the process now that its disk works again.
    fn needs_restart(&self, node: &Self::Node) -> bool;
    /// Whether a loss of power may take what a process has not synced: if not, processes are only killed.
    fn may_lose_power(&self) -> bool {
        true
    }
    /// Whether a host may lose its disk now: if not, it only loses power.
    fn may_lose_disk(&self, _host: u16) -> bool {
        true
    }
    /// What everybody waits for, for the report of a run that does not settle.
    fn waiting(&self, nodes: &mut [Option<Self::Node>]) -> String;
}

enum Event<S: System> {
    Frame {
        from: Address,
        to: Address,
        /// The incarnation of the host that it was sent to, or that sent it.
        incarnation: u32,
        id: u64,
        frame: S::Frame,
    },
    Timer {
        owner: Address,
        incarnation: u32,
        timer: S::Timer,
    },
    Fault(usize),
    /// A fault ends.
    Relief(Relief),
}

/// A kind of fault whose ends are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lasting {
    Cpu(u16),
    Disk(u16),
    DiskSpace(u16),
    Link(u16, u16),
    Weather,
}

impl Relief {
    fn lasting(self) -> Option<Lasting> {
        match self {
            Relief::Cpu(host) => Some(Lasting::Cpu(host)),
            Relief::Disk(host) => Some(Lasting::Disk(host)),
            Relief::DiskSpace(host) => Some(Lasting::DiskSpace(host)),
            Relief::Link(from, to) => Some(Lasting::Link(from, to)),
            Relief::Weather => Some(Lasting::Weather),
            Relief::Restart(_) | Relief::Thaw(_) | Relief::Cut(_) | Relief::Heal => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Relief {
    Restart(u16),
    Thaw(u16),
    Cpu(u16),
    Disk(u16),
    DiskSpace(u16),
    Cut(u64),
    Link(u16, u16),
    Weather,
    /// The last fault has ended.
    Heal,
}

/// What a world is like.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How many hosts.
    pub hosts: u16,
    /// How many clients.
    pub clients: u16,
    /// How many zones they are dealt to.
    pub zones: u16,
    /// How long frames fly.
    pub latency: Latency,
    /// What goes wrong.
    pub faults: Vec<TimedFault>,
    /// How long a run may take.
    pub limits: Limits,
}

/// Bounds of a run: a run beyond them has failed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Virtual time after the last fault in which everything must finish.
    pub settle_ms: u64,
    /// Events.
    pub events: u64,
}

/// The world without its system: what a process or client may use.
pub struct Core<S: System> {
    now_ns: u64,
    queue: Queue<Event<S>>,
    network: Network,
    /// Frames of streams that wait for their link.
    held: Vec<(Address, Address, u32, u64, S::Frame)>,
    hosts: Vec<Host>,
    /// What has reached each host since it froze.
    frozen: Vec<Vec<Event<S>>>,
    clients: u16,
    /// Chance, for the system.
    pub draw: Draw,
    trace: Option<Trace>,
    frames: u64,
    digest: u64,
    /// When the world healed.
    healed_ns: Option<u64>,
    /// When a fault that lasts is over, if others of its kind do not last longer.
    lasting: BTreeMap<Lasting, u64>,
}

impl<S: System> Core<S> {
    /// Virtual time since the start.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
    /// What the clock of a host shows.
    pub fn clock_ms(&self, host: u16) -> u64 {
        self.hosts[usize::from(host)].clock_ms(self.now_ns)
    }
    /// What the processes of a host count time by: a clock that nobody can set.
    pub fn steady_ms(&self, host: u16) -> u64 {
        self.hosts[usize::from(host)].steady_ms(self.now_ns)
    }
    /// A host.
    pub fn host(&self, host: u16) -> &Host {
        &self.hosts[usize::from(host)]
    }
    /// How much slower than usual a host computes.
    pub fn cpu_factor(&self, host: u16) -> u64 {
        self.hosts[usize::from(host)].cpu_factor
    }
    /// How much slower than usual a host's disk is.
    pub fn disk_factor(&self, host: u16) -> u64 {
        self.hosts[usize::from(host)].disk_factor
    }
    /// When the world healed, if it has.
    pub fn healed_ns(&self) -> Option<u64> {
        self.healed_ns
    }
    /// A host's process ends by itself after its present turn, and starts again.
    pub fn exit(&self, host: u16) {
        self.hosts[usize::from(host)].mortal.dies_after(0);
    }
    /// Starts a host's process, if it does not run.
    pub fn start(&mut self, host: u16) {
        self.queue.add(self.now_ns, Event::Relief(Relief::Restart(host)));
    }
    /// Puts an empty disk into a host whose process does not run.
    pub fn wipe(&mut self, host: u16) {
        let seed = self.draw.bits();
        self.hosts[usize::from(host)].disk = VirtualDisk::new(seed);
    }
    /// Folds something into the run's digest.
    pub fn witness(&mut self, bits: u64) {
        self.digest = mix(self.digest ^ bits);
    }

    /// Sends a frame.
    pub fn send(&mut self, from: Address, to: Address, frame: S::Frame) {
        let incarnation = self.incarnation(from, to);
        self.frames += 1;
        let bytes = S::frame_bytes(&frame);
        self.transmit(from, to, incarnation, self.frames, bytes, frame);
    }

    /// A connection to a process does not outlive it.
    fn incarnation(&self, from: Address, to: Address) -> u32 {
        match (from, to) {
            (_, Address::Host(host)) if S::traffic(from, to) == Traffic::Stream => {
                self.hosts[usize::from(host)].incarnation
            }
            _ => 0,
        }
    }

    fn transmit(
        &mut self,
        from: Address,
        to: Address,
        incarnation: u32,
        id: u64,
        bytes: u64,
        frame: S::Frame,
    ) {
        let fate = self.network.send(self.now_ns, from, to, bytes, S::traffic(from, to));
        if let Some(trace) = &mut self.trace {
            let (from, to) = (lane(trace, from), lane(trace, to));
            let label = frame.to_string();
            trace.push(self.now_ns, trace::Event::Sent { id, from, to, label });
            if let Fate::Lost(why) = fate {
                trace.push(self.now_ns, trace::Event::Lost { id, why });
            }
        }
        let arrival = |frame| Event::Frame { from, to, incarnation, id, frame };
        match fate {
            Fate::Arrives(at_ns, again) => {
                if let Some(again_ns) = again {
                    self.queue.add(again_ns, arrival(frame.clone()));
                }
                self.queue.add(at_ns, arrival(frame));
            }
            Fate::Lost(_) => {}
            Fate::Held => self.held.push((from, to, incarnation, id, frame)),
        }
    }

    /// Reminds a participant of something. A host's timers end with its process.
    pub fn set_timer(&mut self, owner: Address, after_ns: u64, timer: S::Timer) {
        let incarnation = match owner {
            Address::Host(host) => self.hosts[usize::from(host)].incarnation,
            Address::Client(_) => 0,
        };
        self.queue.add(self.now_ns + after_ns, Event::Timer { owner, incarnation, timer });
    }

    /// Goes on to a later time if nothing else is due before: spares short computations their way through the
    /// queue.
    pub fn advance(&mut self, host: u16, by_ns: u64) -> bool {
        let at_ns = self.now_ns + by_ns;
        let free = self.queue.next_at_ns().is_none_or(|next| at_ns < next)
            && !self.hosts[usize::from(host)].is_frozen();
        if free {
            self.now_ns = at_ns;
        }
        free
    }

    /// Writes something down in the trace, if there is one.
    pub fn note(&mut self, who: Address, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let lane = lane(trace, who);
            trace.push(self.now_ns, trace::Event::Note { lane, text: text() });
        }
    }

    fn note_fault(&mut self, who: Option<Address>, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let lane = who.map(|who| lane(trace, who));
            trace.push(self.now_ns, trace::Event::Fault { lane, text: text() });
        }
    }

    /// Sends what waited for links that work again.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        for (from, to, incarnation, id, frame) in held {
            if self.network.is_cut(from, to) {
                self.held.push((from, to, incarnation, id, frame));
            } else {
                let bytes = S::frame_bytes(&frame);
                self.transmit(from, to, incarnation, id, bytes, frame);
            }
        }
    }
}

fn lane(trace: &mut Trace, who: Address) -> trace::Lane {
    trace.lane(&who.to_string())
}

/// A world with its system.
pub struct World<S: System> {
    core: Core<S>,
    system: S,
    nodes: Vec<Option<S::Node>>,
    faults: Vec<TimedFault>,
    limits: Limits,
}

/// What a run was like, beside its system's own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The digest of all events.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// Virtual time.
    pub virtual_ns: u64,
    /// Frames that were sent.
    pub frames: u64,
}

impl<S: System> World<S> {
    /// A world at its beginning. `trace` keeps what happens.
    pub fn new(setting: Setting, system: S, mut draw: Draw, trace: Option<Trace>) -> World<S> {
        let network = Network::new(setting.latency, setting.zones, Draw::new(draw.bits()));
        let hosts: Vec<Host> = (0..setting.hosts).map(|_| Host::new(VirtualDisk::new(draw.bits()))).collect();
        let nodes = hosts.iter().map(|_| None).collect();
        let mut queue = Queue::new();
        for host in 0..setting.hosts {
            queue.add(0, Event::Relief(Relief::Restart(host)));
        }
        let mut end_ms = 0;
        for (index, timed) in setting.faults.iter().enumerate() {
            queue.add(timed.at_ms * 1_000_000, Event::Fault(index));
            end_ms = end_ms.max(timed.at_ms + timed.fault.lasts_ms() + 1);
        }
        queue.add(end_ms * 1_000_000, Event::Relief(Relief::Heal));
        for client in 0..setting.clients {
            queue.add(
                0,
                Event::Timer {
                    owner: Address::Client(client),
                    incarnation: 0,
                    timer: system.first_timer(client),
                },
            );
        }
        World {
            core: Core {
                now_ns: 0,
                queue,
                network,
                held: Vec::new(),
                frozen: hosts.iter().map(|_| Vec::new()).collect(),
                hosts,
                clients: setting.clients,
                draw,
                trace,
                frames: 0,
                digest: 0,
                healed_ns: None,
                lasting: BTreeMap::new(),
            },
            system,
            nodes,
            faults: setting.faults,
            limits: setting.limits,
        }
    }

    /// Runs to the end.
    pub fn run(&mut self) -> (Account, Result<(), Violation>) {
        let mut events = 0;
        let mut result = self.events(&mut events);
        if let Err(violation) = &mut result
            && violation.oracle == LIVENESS
        {
            let waiting = self.system.waiting(&mut self.nodes);
            violation.text.push_str(&format!(": {waiting}"));
        }
        if let (Err(violation), Some(trace)) = (&result, &mut self.core.trace) {
            let text = violation.to_string();
            trace.push(self.core.now_ns, trace::Event::Verdict { text });
        }
        let account = Account {
            digest: self.core.digest,
            events,
            virtual_ns: self.core.now_ns,
            frames: self.core.frames,
        };
        (account, result)
    }

    /// The system, and the trace if one was kept.
    pub fn into_parts(self) -> (S, Option<Trace>) {
        (self.system, self.core.trace)
    }

    fn events(&mut self, events: &mut u64) -> Result<(), Violation> {
        let mut settle_until_ns = u64::MAX;
        loop {
            if self.core.healed_ns.is_some() {
                if settle_until_ns == u64::MAX {
                    settle_until_ns = self.core.now_ns + self.limits.settle_ms * 1_000_000;
                }
                if self.system.settled(&mut self.nodes) {
                    return self.system.check_end(&mut self.nodes, &mut self.core);
                }
            }
            let Some((at_ns, event)) = self.core.queue.next() else {
                return Err(Violation::new(LIVENESS, "nothing is left to happen"));
            };
            *events += 1;
            if at_ns > settle_until_ns {
                return Err(Violation::new(LIVENESS, "it takes too long after the last fault"));
            }
            if *events > self.limits.events {
                return Err(Violation::new(LIVENESS, "too much happens"));
            }
            self.core.now_ns = self.core.now_ns.max(at_ns);
            self.event(event)?;
        }
    }

    fn event(&mut self, event: Event<S>) -> Result<(), Violation> {
        match event {
            Event::Frame { from, to, incarnation, id, frame } => {
                if let Address::Host(host) = to {
                    let there = &self.core.hosts[usize::from(host)];
                    if there.is_frozen() {
                        self.core.frozen[usize::from(host)].push(Event::Frame {
                            from,
                            to,
                            incarnation,
                            id,
                            frame,
                        });
                        return Ok(());
                    }
                    let gone = self.nodes[usize::from(host)].is_none()
                        || (incarnation != 0 && incarnation != there.incarnation);
                    if gone {
                        if let Some(trace) = &mut self.core.trace {
                            let why = "its process is gone";
                            trace.push(self.core.now_ns, trace::Event::Lost { id, why });
                        }
                        return Ok(());
                    }
                }
                if let Some(trace) = &mut self.core.trace {
                    trace.push(self.core.now_ns, trace::Event::Arrived { id });
                }
                self.core.witness(self.core.now_ns ^ from.bits() << 40 ^ to.bits() << 20);
                self.give(to, Input::Frame { from, frame })
            }
            Event::Timer { owner, incarnation, timer } => {
                if let Address::Host(host) = owner {
                    let there = &self.core.hosts[usize::from(host)];
                    if incarnation != there.incarnation {
                        return Ok(());
                    }
                    if there.is_frozen() {
                        self.core.frozen[usize::from(host)].push(Event::Timer { owner, incarnation, timer });
                        return Ok(());
                    }
                }
                self.core.witness(self.core.now_ns ^ owner.bits() << 40);
                self.give(owner, Input::Timer(timer))
            }
            Event::Fault(index) => self.fault(index),
            Event::Relief(relief) => self.relieve(relief),
        }
    }

    fn give(&mut self, to: Address, input: Input<S::Frame, S::Timer>) -> Result<(), Violation> {
        match to {
            Address::Client(client) => self.system.client(client, input, &mut self.core),
            Address::Host(host) => {
                let place = usize::from(host);
                let Some(node) = &mut self.nodes[place] else {
                    return Ok(());
                };
                self.system.host(host, node, input, &mut self.core)?;
                if self.core.hosts[place].mortal.is_dead() {
                    self.end(host)?;
                }
                Ok(())
            }
        }
    }

    /// A process ends, as its host's death says.
    fn end(&mut self, host: u16) -> Result<(), Violation> {
        let place = usize::from(host);
        let death = self.core.hosts[place].death.take().unwrap_or(Death {
            power: false,
            flip_bit: false,
            lose_disk: false,
            down_ms: 1,
        });
        let node = self.nodes[place].take();
        let end = match death {
            Death { lose_disk: true, .. } if self.system.may_lose_disk(host) => End::DiskLost,
            Death { power: true, .. } | Death { lose_disk: true, .. } => End::PowerLost,
            _ => End::Killed,
        };
        self.core.note_fault(Some(Address::Host(host)), || format!("ends: {end:?}"));
        self.system.ended(host, node, end, &mut self.core)?;
        let seed = self.core.draw.bits();
        let there = &mut self.core.hosts[place];
        there.incarnation += 1;
        there.frozen_until_ns = 0;
        self.core.frozen[place].clear();
        match end {
            End::Killed => {}
            End::PowerLost => there.disk.crash(),
            End::DiskLost => there.disk = VirtualDisk::new(seed),
        }
        // Whoever restarts a server after a disk's trouble has seen to the disk.
        there.disk.obey();
        if death.flip_bit && end != End::DiskLost {
            self.flip_bit(host);
        }
        let at_ns = self.core.now_ns + death.down_ms * 1_000_000;
        self.core.queue.add(at_ns, Event::Relief(Relief::Restart(host)));
        Ok(())
    }

    /// Flips a bit of what the host has written.
    fn flip_bit(&mut self, host: u16) {
        let draw = &mut self.core.draw;
        let there = &mut self.core.hosts[usize::from(host)];
        let mut names = there.disk.list().unwrap_or_default();
        names.retain(|name| name.starts_with("log-") || name.starts_with("checkpoint-"));
        if names.is_empty() {
            return;
        }
        let name = names.swap_remove(draw.below(names.len() as u64) as usize);
        let len_bytes = there.disk.open(&name).and_then(|file| file.len_bytes()).unwrap_or(0);
        if len_bytes == 0 {
            return;
        }
        // Mostly where something is: a file's beginning.
        let bound = len_bytes.min(draw.pick(&[5_000, 8_000, u64::MAX]));
        let (offset, bit) = (draw.below(bound), draw.below(8) as u8);
        there.disk.flip_bit(&name, offset, bit);
        there.flipped = Some((name.clone(), offset, bit));
        self.core
            .note_fault(Some(Address::Host(host)), || format!("bit {bit} of byte {offset} of {name} flips"));
    }

    fn start(&mut self, host: u16) -> Result<(), Violation> {
        let place = usize::from(host);
        if self.nodes[place].is_some() {
            return Ok(());
        }
        let again = self.core.draw.below(5) == 0 && self.core.healed_ns.is_none();
        let left = self.core.draw.below(300);
        {
            let there = &mut self.core.hosts[place];
            there.incarnation += 1;
            // One process in five dies once more during its recovery, if anything may go wrong at all.
            let dies = again && there.incarnation > 1 && there.flipped.is_none();
            let left = if dies { left } else { u64::MAX };
            there.mortal = std::sync::Arc::new(MortalDisk::new(there.disk.clone(), left));
            there.death = dies.then_some(Death {
                power: left % 2 == 0 && self.system.may_lose_power(),
                flip_bit: false,
                lose_disk: false,
                down_ms: 1,
            });
        }
        let troubled = self.core.hosts[place].disk.is_troubled();
        let started = self.system.start(host, &mut self.core)?;
        let flipped = self.core.hosts[place].flipped.take();
        match started {
            Start::Refused(text) if troubled => {
                // Whoever starts a server after that has seen to the disk.
                self.core.note_fault(Some(Address::Host(host)), || {
                    format!("refuses to start: {text}; its disk is repaired")
                });
                self.core.hosts[place].flipped = flipped;
                self.core.hosts[place].disk.obey();
                let at_ns = self.core.now_ns + 1_000_000;
                self.core.queue.add(at_ns, Event::Relief(Relief::Restart(host)));
                Ok(())
            }
            Start::Running(node) => {
                self.nodes[place] = Some(node);
                self.core.note_fault(Some(Address::Host(host)), || "starts".to_owned());
                if self.core.hosts[place].mortal.is_dead() {
                    return self.end(host);
                }
                // It lives now, and dies only of what the list says.
                self.core.hosts[place].mortal.immortal();
                self.core.hosts[place].death = None;
                Ok(())
            }
            Start::Died => self.end(host),
            Start::Idle => {
                self.core.hosts[place].death = None;
                Ok(())
            }
            Start::Refused(text) => match flipped {
                Some((name, offset, bit)) => {
                    self.core.note_fault(Some(Address::Host(host)), || {
                        format!("refuses to start: {text}; the bit is put back")
                    });
                    self.core.hosts[place].disk.flip_bit(&name, offset, bit);
                    let at_ns = self.core.now_ns + 1_000_000;
                    self.core.queue.add(at_ns, Event::Relief(Relief::Restart(host)));
                    Ok(())
                }
                None => Err(Violation::new(
                    "recovery",
                    format!("host {host} does not start, and nothing is wrong with its disk: {text}"),
                )),
            },
        }
    }
}
