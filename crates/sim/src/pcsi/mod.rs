//! PCSI in the world: sites of several regions that commit alone, clients that stay with a site, and a judge.
//!
//! A host runs one site ([`certify::pcsi::Pcsi`]) with its log in a journal on the host's disk: each record
//! of the site is an entry of the journal's only group. What a site wants sent leaves when the records before
//! it are synced. Sites exchange letters as bytes.
//!
//! A client stays with one site. Its sessions begin transactions, read some keys of the site's partitions,
//! and write their attempt's number to all of them, or delete some. In worlds with a [`RemoteAccess`] they
//! also use keys of other partitions. So the versions of a key form a chain, and the judge needs no vector
//! of the protocol. A session that hears nothing asks again what became of its attempt, or makes another
//! attempt of the same transaction.
//!
//! **Faults.** A host can lose its disk ([`Fault::Crash`]), and an operator can fence a site
//! ([`Fault::Replace`]): another site, which is drawn, is told to. Both are spared if no other site that
//! counts would have one of the site's partitions. A process whose site hears that it is fenced ends, and
//! begins without its log. When the world has healed, the operator may force fences for which there is no
//! majority, on one host. A flipped bit could take a durable record that nothing else tells of, so no
//! scenario may have one.
//!
//! **Slow decisions.** In half of the worlds, many messages about decided fences leave late, so sites act on
//! fences of which others have not heard.
//!
//! **A site that stays away.** In half of the worlds in which no disk was lost and no site fenced, one site
//! goes when the faults are over. Nevertheless each other site must apply each update that one of them has,
//! if the site may apply it. Then the site that went comes back.
//!
//! **Sessions.** A site that loses its disk forgets what its sessions have read and written in partitions
//! that it does not have. So in worlds with such transactions, sessions begin anew with the site.
//!
//! **Oracles.** What was durable is there after a start (`durability`). Each number belongs to one update, a
//! granted one to a transaction or a null update, all sites concerned have all updates that are not lost,
//! and no attempt has an effect that its client heard it has not (`commits`). When a client is told of a
//! write, enough sites have each part of it on their disks (`min sites to write`). Of two writers of one
//! version one loses (`lost updates`). What a transaction reads contains all that it causally follows
//! (`snapshots`). In the end all replicas have the same, count the same numbers (`views`), and keep nothing
//! that nobody needs (`replica states`, `deletes`). The world adds that all ends.

mod client;
mod judge;
mod ledger;
mod process;

use crate::draw::Draw;
use crate::options::{Options, SystemKind, Wishes};
use crate::run::{Outcome, Report, setting};
use crate::tally::Tally;
use crate::trace::Trace;
use crate::world::fault::{Stage, draw_faults};
use crate::world::{
    Address, Core, End, Fault, Input, Latency, Start, System, TimedFault, Traffic, Violation, World,
};
use bytes::Bytes;
use certify::pcsi::{Pcsi, RemoteAccess, SiteMap, SiteOptions};
use certify::{Answer, WriteSet};
use client::Client;
use ledger::Ledger;
use process::Process;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use txn::hash::mix;
use txn::{NodeId, Position, RequestId};

/// The most sessions of a client.
const SESSIONS_MAX: u64 = 4;
/// The faults of a run happen in so many ticks.
const STAGE_TICKS: u64 = 600;
/// After the last fault, all must finish within so many ticks, beside what clients need to think.
const SETTLE_TICKS: u64 = 6_000;
/// A message about a decided fence leaves at most so many ticks late.
const DECIDED_LATE_TICKS_MAX: u64 = 200;
/// A look at all logs costs time, so one is made after so many events only.
const EVENTS_BETWEEN_LOOKS: u64 = 100;

/// What the sites and clients of a run are like.
#[derive(Clone, Debug)]
struct Plan {
    hosts: u16,
    options: SiteOptions,
    tick_ns: u64,
    timeout_ns: u64,
    think_us: u64,
    sync_ns: u64,
    segment_bytes: u64,
    /// The number of keys that clients only overwrite.
    overwritten: usize,
    /// The share of the messages about decided fences that leave only after up to [`DECIDED_LATE_TICKS_MAX`]
    /// ticks.
    decided_late_percent: u32,
    /// The host that goes when the faults are over.
    away: Option<u16>,
}

/// A site's unit of time: a flight between regions takes some of them.
fn tick_ns(seed: u64, latency: &Latency) -> u64 {
    let flight_ticks = Draw::new(mix(seed ^ 0x7469_636B)).pick(&[2, 10, 40]);
    (latency.flight_us() * 1_000 / flight_ticks).max(1_000_000)
}

/// Draws what is not as it is in the worlds of other systems: sites of several regions are far apart, and
/// disks are lost and sites fenced.
pub(crate) fn adjust(options: &mut Options, wishes: &Wishes) {
    let draw = &mut Draw::new(mix(options.seed ^ 0x7063_7369));
    options.nodes = wishes.nodes.unwrap_or(draw.pick(&[2, 3, 3, 4, 5, 6])).max(1);
    let clients = options.nodes.saturating_mul(draw.pick(&[1, 2, 4]));
    options.clients = wishes.clients.unwrap_or(clients).max(options.nodes);
    options.operations = wishes.operations.unwrap_or(draw.pick(&[10, 20, 40]));
    options.pipeline = wishes.pipeline.unwrap_or(draw.pick(&[1, 1, 2])).max(1);
    options.zones = wishes.zones.unwrap_or(draw.pick(&[1, 2, 3])).clamp(1, options.nodes);
    let zone_us = draw.pick(&[200, 1_000]);
    options.latency = Latency {
        zone_us,
        between_zones_us: zone_us * draw.pick(&[1, 20, 60]),
        jitter_percent: draw.pick(&[0, 25, 100, 300]),
        ..Latency::draw(draw)
    };
    let tick_ms = tick_ns(options.seed, &options.latency).div_ceil(1_000_000);
    let until_ms = STAGE_TICKS * tick_ms;
    let sessions = options.pipeline.min(SESSIONS_MAX);
    options.think_us = until_ms * 1_000 * sessions / options.operations * 2;
    options.timeout_ms = 60 * tick_ms + 6 * options.latency.flight_us() / 1_000;
    options.faults.clear();
    if wishes.faults == Some(false) {
        return;
    }
    let stage = Stage { hosts: options.nodes, clients: options.clients, until_ms, disks_may_go: false };
    options.faults = draw_faults(draw, stage);
    for timed in &mut options.faults {
        timed.fault.spare_promises(node::FsyncPolicy::Always);
    }
    let mut add = |at_ms, fault| options.faults.push(TimedFault { at_ms, fault });
    if draw.percent(60) {
        for _ in 0..draw.pick(&[1, 4, 12]) {
            let (from, to) = (draw.below(u64::from(options.nodes)), draw.below(u64::from(options.nodes)));
            if from != to {
                let (factor, for_ms) = (draw.pick(&[3, 10, 50]), 1 + draw.below(until_ms));
                let fault = Fault::SlowLink { from: from as u16, to: to as u16, factor, for_ms };
                add(draw.below(until_ms), fault);
            }
        }
    }
    if draw.percent(40) {
        for _ in 0..draw.pick(&[1, 2, 3, 12]) {
            let (host, down_ms) = (draw.below(u64::from(options.nodes)) as u16, 1 + draw.below(50 * tick_ms));
            let power = true;
            let fault = match draw.percent(50) {
                true => Fault::Replace { host },
                false => Fault::Crash {
                    host,
                    power,
                    at_disk_operation: draw.pick(&[0, 0, 5, 20]),
                    flip_bit: false,
                    lose_disk: true,
                    down_ms,
                },
            };
            add(draw.below(until_ms), fault);
        }
    }
    options.faults.sort_by_key(|timed| timed.at_ms);
}

impl Plan {
    fn draw(options: &Options, remote_access: RemoteAccess, draw: &mut Draw) -> Plan {
        let hosts = u64::from(options.nodes);
        let tick_ns = tick_ns(options.seed, &options.latency);
        let partitions = 1 + draw.below(4);
        let replicas = (0..partitions).map(|partition| {
            let copies = (1 + draw.below(4)).min(hosts);
            (0..copies).map(|copy| NodeId(((partition + copy) % hosts) as u16)).collect()
        });
        let replicas: Vec<Vec<NodeId>> = replicas.collect();
        let copies_min = replicas.iter().map(Vec::len).min().unwrap_or_default();
        let sites = SiteMap::new(replicas).expect("each partition has a site");
        let sites = sites.with_remote_access(remote_access);
        // What a client's transaction takes.
        let flight_ticks = options.latency.flight_us() * 1_000 / tick_ns;
        let mut site = SiteOptions {
            me: NodeId(0),
            sites: Arc::new(sites),
            propagation_ticks: 3,
            vote_ticks_max: 300,
            open_ticks_max: 50 + 10 * flight_ticks,
            open_max: 8,
            window: 5,
            retained_max: 40,
            retained_bytes_max: 64 << 20,
            silent_ticks_max: 60,
            session_horizon: 1_000,
            // Sites refuse all writes of a partition with fewer replicas, so only some worlds have one.
            sites_to_write_min: match Draw::new(mix(options.seed ^ 0x6D69_6E73)).percent(20) {
                true => draw.pick(&[1, 2, 2, 3]),
                false => draw.pick(&[1, 2, 2, 3]).min(copies_min),
            },
            regions_to_write_min: 1,
            sites_ticks_max: 300,
        };
        // In some seeds, bounds are so low that sites reach them.
        if draw.percent(30) {
            site.retained_max = 2 + draw.below(6) as usize;
            site.window = 1 + draw.below(3);
            site.open_max = 2 + draw.below(4) as usize;
            site.session_horizon = 5 + draw.below(40);
            site.vote_ticks_max = 20 + draw.below(280);
            site.sites_ticks_max = 20 + draw.below(280);
            site.open_ticks_max = 10 + draw.below(40) + 5 * flight_ticks;
        }
        if Draw::new(mix(options.seed ^ 0x6279_7465)).percent(20) {
            // Some updates of the least size.
            site.retained_bytes_max = 1_500;
        }
        Plan {
            hosts: options.nodes,
            options: site,
            tick_ns,
            timeout_ns: options.timeout_ms * 1_000_000,
            think_us: options.think_us,
            sync_ns: options.costs.sync_ns,
            segment_bytes: options.segment_bytes,
            overwritten: 2 + draw.below(6) as usize,
            decided_late_percent: draw.pick(&[0, 0, 50, 100]),
            away: (hosts > 2 && draw.percent(50)).then(|| draw.below(hosts) as u16),
        }
    }
}

/// What a client asks its site for, of a transaction.
#[derive(Clone, Debug)]
enum Ask {
    Begin,
    /// A key, by its place.
    Look(usize),
    Commit(WriteSet),
}

/// What a client is told of a transaction.
#[derive(Clone, Debug)]
enum Tell {
    /// What a key has: the number of an attempt.
    Value {
        key: usize,
        number: u64,
    },
    Answer(Answer),
}

/// What travels between clients and sites.
#[derive(Clone)]
enum Frame {
    Peer {
        from: NodeId,
        bytes: Bytes,
    },
    Ask {
        session: u32,
        id: RequestId,
        ask: Ask,
    },
    /// With the number of the site's last commit.
    Tell {
        session: u32,
        id: RequestId,
        tell: Tell,
        last: Position,
    },
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Peer { bytes, .. } => f.write_str(certify::pcsi::describe(bytes).unwrap_or("?")),
            Frame::Ask { session, id, ask } => {
                write!(f, "{session:x}.{}.{} ", id.sequence, id.attempt)?;
                match ask {
                    Ask::Begin => f.write_str("begin"),
                    Ask::Look(key) => write!(f, "look at key {key}"),
                    Ask::Commit(writes) => write!(f, "commit {} writes", writes.records.len()),
                }
            }
            Frame::Tell { session, id, tell, .. } => {
                write!(f, "{session:x}.{}.{} ", id.sequence, id.attempt)?;
                match tell {
                    Tell::Value { key, number } => write!(f, "key {key} has {number}"),
                    Tell::Answer(answer) => write!(f, "{answer:?}"),
                }
            }
        }
    }
}

/// What sites and clients remind themselves of.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// A site's clock.
    Tick,
    /// A sync is done.
    Synced,
    /// The journal's next segment is made.
    Prepared,
    /// A letter leaves that this process has kept back.
    Late(u64),
    /// The operator has this site fence another one.
    Fence(NodeId),
    /// A client begins.
    Begin,
    /// A session goes on, if it is still at this step.
    Next { session: u32, step: u64 },
    /// A session has waited for long, if it is still at this step.
    Timeout { session: u32, step: u64 },
}

/// How far the run is with the site that stays away when the faults are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    /// Faults happen.
    Before,
    /// The host is away since this time, and the others must apply what they may.
    Since(u16, u64),
    /// The others have, and the host comes back.
    Over(u16),
    Done,
}

/// Sites, clients and oracles.
struct PcsiWorld {
    plan: Plan,
    clients: Vec<Client>,
    ledger: Ledger,
    /// The processes that were started.
    processes: u64,
    /// The sessions that were opened.
    opened: u64,
    absence: Cell<Absence>,
    /// The one host that the operator has told to decide on fences without a majority.
    forcing: Option<u16>,
    looks: Cell<u64>,
    tally: Tally,
}

impl PcsiWorld {
    fn new(plan: Plan, options: &Options) -> PcsiWorld {
        let sessions = options.pipeline.min(SESSIONS_MAX);
        let client = |number| Client::new(number, sessions, options.operations);
        PcsiWorld {
            clients: (0..options.clients).map(client).collect(),
            ledger: Ledger::new(&plan),
            plan,
            processes: 0,
            opened: 0,
            absence: Cell::new(Absence::Before),
            forcing: None,
            looks: Cell::new(0),
            tally: Tally::default(),
        }
    }

    /// Whether a site is away on purpose, so that clients wait.
    fn has_absence(&self) -> bool {
        matches!(self.absence.get(), Absence::Since(..) | Absence::Over(_))
    }

    /// The next step of the absence of a site, if one is due.
    fn follow_absence(&mut self, host: u16, core: &mut Core<PcsiWorld>) -> Result<(), Violation> {
        if core.healed_ns().is_none() {
            return Ok(());
        }
        match self.absence.get() {
            Absence::Before => match self.plan.away.filter(|_| !self.ledger.has_lost()) {
                None => self.absence.set(Absence::Done),
                Some(away) if away == host => {
                    self.absence.set(Absence::Since(away, core.now_ns()));
                    core.exit(away);
                }
                Some(_) => {}
            },
            Absence::Since(_, since_ns) if core.now_ns() > since_ns + SETTLE_TICKS * self.plan.tick_ns => {
                let text = "sites wait for the updates of one that is away, and others have them";
                return Err(Violation::new("liveness without a site", text));
            }
            Absence::Over(away) => {
                self.absence.set(Absence::Done);
                core.start(away);
            }
            Absence::Since(..) | Absence::Done => {}
        }
        Ok(())
    }

    /// Whether the clients of all hosts but one are idle.
    fn others_are_idle(&self, away: u16) -> bool {
        let mut clients = self.clients.iter().enumerate();
        clients.all(|(number, client)| client.is_idle() || self.host_of(number as u16) == away)
    }

    /// The site that a client uses.
    fn host_of(&self, client: u16) -> u16 {
        client % self.plan.hosts
    }
}

impl System for PcsiWorld {
    type Frame = Frame;
    type Timer = Timer;
    type Node = Process;

    fn frame_bytes(frame: &Frame) -> u64 {
        match frame {
            Frame::Peer { bytes, .. } => 20 + bytes.len() as u64,
            Frame::Ask { .. } | Frame::Tell { .. } => 40,
        }
    }

    fn traffic(from: Address, to: Address) -> Traffic {
        match (from, to) {
            (Address::Host(_), Address::Host(_)) => Traffic::Datagram,
            _ => Traffic::Stream,
        }
    }

    fn start(&mut self, host: u16, core: &mut Core<Self>) -> Result<Start<Process>, Violation> {
        match self.absence.get() {
            Absence::Since(away, _) | Absence::Over(away) if away == host => Ok(Start::Idle),
            _ => Process::start(self, host, core),
        }
    }

    fn host(
        &mut self,
        host: u16,
        node: &mut Process,
        input: Input<Frame, Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        self.follow_absence(host, core)?;
        process::Turn { system: self, process: node, core, host }.take(input)
    }

    fn ended(
        &mut self,
        host: u16,
        node: Option<Process>,
        end: End,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        self.tally.ends += 1;
        self.forcing.take_if(|forcing| *forcing == host);
        let is_fenced = node.is_some_and(|node| node.is_fenced());
        if is_fenced {
            core.wipe(host);
        }
        if is_fenced || end == End::DiskLost {
            self.tally.replaced += 1;
            self.ledger.lose_disk(host);
            if self.plan.options.sites.has_remote_access() {
                let hosts = self.plan.hosts;
                let clients = self.clients.iter_mut().enumerate();
                let own = clients.filter(|(number, _)| *number as u16 % hosts == host);
                let places: Vec<usize> = own.flat_map(|(_, client)| client.forget_previous()).collect();
                let attempts = &mut self.ledger.attempts;
                places.into_iter().for_each(|place| {
                    let under_way = attempts.get_mut(place).filter(|attempt| attempt.is_under_way(host));
                    under_way.into_iter().for_each(|attempt| attempt.previous = None);
                });
            }
        }
        Ok(())
    }

    fn client(
        &mut self,
        client: u16,
        input: Input<Frame, Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        client::take(self, client, input, core)
    }

    fn disconnect(&mut self, client: u16, core: &mut Core<Self>) -> Result<(), Violation> {
        client::disconnect(self, client, core);
        Ok(())
    }

    fn first_timer(&self, _: u16) -> Timer {
        Timer::Begin
    }

    fn settled(&self, nodes: &mut [Option<Process>]) -> bool {
        match self.absence.get() {
            Absence::Since(away, _) => {
                self.looks.set(self.looks.get() + 1);
                let is_due = self.looks.get().is_multiple_of(EVENTS_BETWEEN_LOOKS);
                if is_due && nodes[usize::from(away)].is_none() && self.others_are_idle(away) {
                    let sites: Vec<Option<&Pcsi>> =
                        nodes.iter().map(|node| node.as_ref().map(Process::site)).collect();
                    if self.ledger.has_all_applicable(&sites) {
                        self.absence.set(Absence::Over(away));
                    }
                }
                false
            }
            Absence::Done => {
                self.clients.iter().all(Client::is_done)
                    && nodes.iter().all(|node| node.as_ref().is_some_and(Process::is_idle))
            }
            Absence::Before | Absence::Over(_) => false,
        }
    }

    fn check_end(&mut self, nodes: &mut [Option<Process>], core: &mut Core<Self>) -> Result<(), Violation> {
        self.ledger.find_lost();
        let sites = nodes.iter().flatten().map(Process::site).collect();
        core.witness(self.ledger.updates().len() as u64);
        judge::judge(&judge::FinalSites { ledger: &self.ledger, sites })
    }

    fn replace(&mut self, host: u16, core: &mut Core<Self>) {
        // The first one of them that runs takes the order.
        for other in (0..self.plan.hosts).filter(|&other| other != host) {
            let after_ns = 1 + core.draw.below(self.plan.tick_ns);
            core.set_timer(Address::Host(other), after_ns, Timer::Fence(NodeId(host)));
        }
    }

    fn may_lose_disk(&self, host: u16) -> bool {
        self.ledger.may_lose(host)
    }

    fn needs_restart(&self, _: &Process) -> bool {
        false
    }

    fn waiting(&self, nodes: &mut [Option<Process>]) -> String {
        let mut waiting = Vec::new();
        for (number, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.is_done()) {
            waiting.push(format!("client {number}: {client}"));
        }
        for (host, node) in nodes.iter().enumerate() {
            match node {
                None => waiting.push(format!("host {host} is down")),
                Some(node) => waiting.push(format!("host {host}: {node}")),
            }
        }
        waiting.join("; ")
    }
}

/// What a run draws beside its options.
pub fn describe(options: &Options) -> String {
    format!("{:?}", Plan::draw(options, RemoteAccess::Refused, &mut Draw::new(mix(options.seed))))
}

/// Why a world cannot be like this, if it cannot.
pub(crate) fn check(options: &Options) -> Result<(), String> {
    let flips = |timed: &TimedFault| matches!(timed.fault, Fault::Crash { flip_bit: true, .. });
    match options.system == SystemKind::Pcsi && options.faults.iter().any(flips) {
        true => {
            Err("a flipped bit could take a record of PCSI that was durable: leave 'flip_bit' out".into())
        }
        false => Ok(()),
    }
}

/// Runs sites of PCSI.
pub fn run(options: &Options, trace: Option<Trace>) -> Outcome {
    run_with(options, RemoteAccess::Refused, trace).0
}

/// What became of logs in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Logs that were lost.
    pub logs: usize,
    /// Updates that no site has any more.
    pub updates: usize,
    /// Updates in partitions that sites without a log got from others.
    pub fetched: usize,
    /// Transactions with writes that were acknowledged.
    pub acknowledged: usize,
    /// Transactions that were acknowledged and have read partitions that their sites do not have.
    pub remote_reads: usize,
    /// Updates of partitions that their sites do not have.
    pub remote_updates: usize,
    /// Granted numbers that belong to no transaction.
    pub nulls: usize,
}

/// Runs sites of PCSI, and tells what they lost. With a remote access, clients also use partitions that their
/// sites do not have.
pub fn run_with(options: &Options, remote_access: RemoteAccess, trace: Option<Trace>) -> (Outcome, Losses) {
    let mut draw = Draw::new(mix(options.seed));
    let plan = Plan::draw(options, remote_access, &mut draw);
    let mut setting = setting(options);
    setting.limits.settle_ms += 3 * SETTLE_TICKS * plan.tick_ns / 1_000_000;
    setting.limits.settle_ms += options.operations * (plan.think_us / 1_000 + 10 * options.timeout_ms);
    let system = PcsiWorld::new(plan, options);
    let mut world = World::new(setting, system, draw, trace);
    let (account, result) = world.run();
    let (system, trace) = world.into_parts();
    let (logs, fetched) = system.ledger.figures();
    let written = system.ledger.attempts.iter().filter(|attempt| attempt.is_acknowledged() && attempt.writes);
    let (remote_reads, remote_updates) = system.ledger.remote_figures();
    let losses = Losses {
        logs,
        updates: system.ledger.lost.len(),
        fetched,
        acknowledged: written.count(),
        remote_reads,
        remote_updates,
        nulls: system.ledger.nulls(),
    };
    (Outcome { report: Report { account, tally: system.tally }, violation: result.err(), trace }, losses)
}
