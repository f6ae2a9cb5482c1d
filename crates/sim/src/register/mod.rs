//! A replicated register in the world: a few lists on which three or five hosts agree.
//!
//! It is small, and it is here to prove the simulator: that its network, disks and faults are bad enough to
//! break a replicated system that is wrong, and not so unreal that they break one that is right. Agreement is
//! the work of the library `raft` (TiKV's), which has no threads, clocks or sockets of its own; what a system
//! around it must get right is here, and each part of it has a mutant that the oracles must find.
//!
//! **A write** is a command in the log: append a value to a list. The leader proposes it, and answers once it
//! has applied it. A client repeats a command, at one host after the other, until it is answered; so a
//! command may be in the log many times. The replicated state knows the newest command of each session, and a
//! command that is not newer has no effect: a session has one operation on its way, and a client that keeps
//! several on their way has as many sessions.
//!
//! **A read** goes through no log. A replica asks the leader for a *read index* (one question for all reads
//! that it has taken in together); the leader names its commit index once a majority has confirmed, after the
//! question, that it still leads; the replica answers when it has applied that far. Leases would spare the
//! question, and are unsafe in this library.
//!
//! **What is promised is durable.** A turn of the library's work is one record of the log (`storage`).
//! Messages that promise something (a vote, a term, entries that are held) leave after a sync that began
//! after the record was written; only a leader's proposals leave at once. A sync takes virtual time, the
//! replica goes on meanwhile, and a crash loses what was not synced. A replica whose disk fails can't know
//! what it holds: it falls silent, in the middle of its turn, until its process is started again. It then
//! writes anew what it finds, before it says a word.
//!
//! **Compaction** replaces the log by the state machine as it is. A replica that is too far behind gets that
//! as a snapshot. The library calls a snapshot applied only once it is durable, and ends in a panic if an
//! election begins between the two; so a replica's time stands still while it installs one. The library does
//! not learn whether a snapshot arrives: after some time it is told that it did, and notices if it did not.
//!
//! **The same seed gives the same run.** The library draws its election timeouts from the operating system;
//! after every call they are replaced by a function of seed, host and term. Its maps have fixed hash
//! functions. Ticks come from the host's virtual time, never from its clock, which the faults turn at will.
//!
//! What it leaves out:
//! - A replica that *lost its disk* and came back under its name would have forgotten its votes and what it
//!   acknowledged: it could elect a second leader of a term, or let a committed entry vanish. It would have
//!   to return as a new member, and members never change here. So that fault is never drawn for the register,
//!   and refused in a scenario.
//! - A *flipped bit* in the last record looks like a torn end, which is cut. A log that can't tell the two
//!   must not meet one: bits flip in Ordo's files only, whose names differ from these.
//!
//! The oracles: at most one process leads a term; all replicas have the same digest after the same entry,
//! snapshots included; what was acknowledged is in every replica in the end, and all replicas are equal; what
//! clients saw is strictly serializable ([`crate::history`]). The world adds that all clients finish and all
//! replicas catch up. Beside them stand the library's own assertions: it panics where it is told that entries
//! are committed which it has lost.

mod client;
mod replica;
mod state;
mod storage;

use crate::cost::CostTable;
use crate::draw::Draw;
use crate::history::{self, Operation as Seen};
use crate::options::Options;
use crate::run::{Outcome, Report, setting};
use crate::tally::Tally;
use crate::trace::Trace;
use crate::world::{Address, Core, End, Fault, Input, Start, System, Traffic, Violation, World};
use client::Client;
use raft::eraftpb::Message;
use replica::{Replica, Turn};
use std::collections::BTreeMap;
use std::fmt;
use txn::hash::mix;

/// A defect that a test can ask for, to see that the oracles find it. Effective only with feature `mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Term and vote are not written to the disk: a replica that starts again may vote twice.
    VoteNotPersisted,
    /// A replica promises what it has written, but not yet synced.
    EarlyAcknowledgement,
    /// A command that comes again takes effect again.
    NoDeduplication,
    /// A leader reads without asking whether it still is one.
    UnconfirmedRead,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 4] = [
        Mutant::VoteNotPersisted,
        Mutant::EarlyAcknowledgement,
        Mutant::NoDeduplication,
        Mutant::UnconfirmedRead,
    ];
}

/// What the replicas and clients of a run are like.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    hosts: u16,
    /// Lists.
    keys: u64,
    think_us: u64,
    /// How long a client waits for an answer before it asks another host.
    timeout_ns: u64,
    /// The library's unit of time.
    tick_ns: u64,
    /// Whether a leader that hears no majority steps down.
    check_quorum: bool,
    /// Whether a candidate first asks if it could win.
    pre_vote: bool,
    message_bytes_max: u64,
    in_flight_messages_max: usize,
    /// A log that has grown by so much is compacted; 0 for never.
    checkpoint_bytes: u64,
    costs: CostTable,
    jitter: bool,
    mutant: Option<Mutant>,
}

impl Plan {
    fn draw(options: &Options, mutant: Option<Mutant>, draw: &mut Draw) -> Plan {
        let latency = options.latency;
        let base_us = match options.zones {
            0 | 1 => latency.zone_us,
            _ => latency.zone_us.max(latency.between_zones_us),
        };
        let flight_us = base_us + base_us * latency.jitter_percent / 100;
        Plan {
            seed: options.seed,
            hosts: options.nodes,
            keys: draw.between(1, 5),
            think_us: options.think_us,
            timeout_ns: options.timeout_ms * 1_000_000,
            // An election takes a vote's way there and back, so a timeout must be longer than that.
            tick_ns: (flight_us / 3).max(1_000) * 1_000 * draw.pick(&[1, 1, 2]),
            check_quorum: draw.percent(50),
            pre_vote: draw.percent(50),
            message_bytes_max: draw.pick(&[0, 500, u64::MAX]),
            in_flight_messages_max: draw.pick(&[1, 4, 256]),
            checkpoint_bytes: options.checkpoint_bytes,
            costs: options.costs,
            jitter: options.jitter,
            mutant,
        }
    }

    fn has(&self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.mutant == Some(mutant)
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Append a value to a list.
    Append {
        /// Which list.
        key: u64,
        /// What.
        value: u64,
    },
    /// Read a list.
    Read {
        /// Which.
        key: u64,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Append { key, value } => write!(f, "append {value:x} to {key}"),
            Operation::Read { key } => write!(f, "read {key}"),
        }
    }
}

/// What it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value is there.
    Done,
    /// The list.
    List(Vec<u64>),
    /// Not here, or not now: this host may be the leader, or nobody knows.
    Elsewhere(Option<u16>),
}

/// What travels between clients and replicas.
#[derive(Clone)]
pub enum Frame {
    /// A message of the consensus library.
    Raft(Box<Message>),
    /// A client asks.
    Ask {
        /// Which of all sessions.
        session: u32,
        /// Which of its operations, from 1. A session begins no operation before its last one is answered.
        sequence: u64,
        /// Which attempt.
        attempt: u64,
        /// What for.
        operation: Operation,
    },
    /// A replica answers.
    Answer {
        /// Which session.
        session: u32,
        /// Which operation.
        sequence: u64,
        /// Which attempt.
        attempt: u64,
        /// What.
        answer: Answer,
    },
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Raft(message) => {
                write!(f, "{:?} t{}", message.get_msg_type(), message.term)?;
                if message.index > 0 {
                    write!(f, " i{}", message.index)?;
                }
                if !message.entries.is_empty() {
                    write!(f, " +{}", message.entries.len())?;
                }
                if message.reject {
                    write!(f, " no")?;
                }
                Ok(())
            }
            Frame::Ask { session, sequence, operation, .. } => {
                write!(f, "{session:x}.{sequence} {operation}")
            }
            Frame::Answer { session, sequence, answer, .. } => {
                write!(f, "{session:x}.{sequence} ")?;
                match answer {
                    Answer::Done => write!(f, "done"),
                    Answer::List(values) => write!(f, "{} values", values.len()),
                    Answer::Elsewhere(Some(host)) => write!(f, "ask host {host}"),
                    Answer::Elsewhere(None) => write!(f, "ask somebody else"),
                }
            }
        }
    }
}

/// What replicas and clients remind themselves of.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    /// A replica takes in what has arrived.
    Round,
    /// The library's clock.
    Tick,
    /// A sync is done.
    Synced,
    /// A compaction is done.
    Compacted,
    /// A snapshot to this host has arrived, or is lost.
    SnapshotSent(u16),
    /// A client begins.
    Begin,
    /// A session begins its next operation.
    Next(u32),
    /// A session asks again, if this is still its attempt.
    Again {
        /// Which.
        session: u32,
        /// Its attempt.
        attempt: u64,
    },
    /// A session asks another host, if this is still its attempt.
    Timeout {
        /// Which.
        session: u32,
        /// Its attempt.
        attempt: u64,
    },
}

/// Replicas, clients and oracles.
pub struct Register {
    plan: Plan,
    clients: Vec<Client>,
    /// Processes that were started.
    processes: u64,
    /// Questions for a read index that were asked.
    questions: u64,
    /// Who led a term: host and process.
    leaders: BTreeMap<u64, (u16, u64)>,
    /// The state's digest after each entry, and who said so first.
    digests: BTreeMap<u64, (u64, u16)>,
    /// Appends that were acknowledged: key and value.
    acknowledged: Vec<(u64, u64)>,
    history: Vec<Seen>,
    tally: Tally,
}

impl Register {
    fn new(plan: Plan, options: &Options) -> Register {
        let client = |number| Client::new(number, options.nodes, options.pipeline, options.operations);
        Register {
            clients: (0..options.clients).map(client).collect(),
            plan,
            processes: 0,
            questions: 0,
            leaders: BTreeMap::new(),
            digests: BTreeMap::new(),
            acknowledged: Vec::new(),
            history: Vec::new(),
            tally: Tally::default(),
        }
    }
}

impl System for Register {
    type Frame = Frame;
    type Timer = Timer;
    type Node = Replica;

    fn frame_bytes(frame: &Frame) -> u64 {
        match frame {
            Frame::Raft(message) => replica::message_bytes(message),
            Frame::Ask { .. } => 48,
            Frame::Answer { answer, .. } => match answer {
                Answer::List(values) => 40 + 8 * values.len() as u64,
                _ => 40,
            },
        }
    }

    fn traffic(from: Address, to: Address) -> Traffic {
        match (from, to) {
            (Address::Host(_), Address::Host(_)) => Traffic::Datagram,
            _ => Traffic::Stream,
        }
    }

    fn start(&mut self, host: u16, core: &mut Core<Self>) -> Result<Start<Replica>, Violation> {
        replica::start(self, host, core)
    }

    fn host(
        &mut self,
        host: u16,
        node: &mut Replica,
        input: Input<Frame, Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        Turn { system: self, replica: node, core, host }.take(input)
    }

    fn ended(&mut self, _: u16, _: Option<Replica>, _: End, _: &mut Core<Self>) -> Result<(), Violation> {
        self.tally.ends += 1;
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

    fn settled(&self, nodes: &mut [Option<Replica>]) -> bool {
        let Some(Some(first)) = nodes.first() else {
            return false;
        };
        let index = first.state().index;
        self.clients.iter().all(Client::is_done)
            && nodes
                .iter()
                .all(|node| node.as_ref().is_some_and(|node| node.is_idle() && node.state().index == index))
    }

    fn check_end(&mut self, nodes: &mut [Option<Replica>], _: &mut Core<Self>) -> Result<(), Violation> {
        let states = nodes.iter().flatten().map(Replica::state);
        for (host, state) in states.enumerate() {
            for &(key, value) in &self.acknowledged {
                if !state.list(key).contains(&value) {
                    let text = format!(
                        "append {value:x} to {key} was acknowledged, and host {host} does not have it"
                    );
                    return Err(Violation::new("acknowledged writes", text));
                }
            }
            if nodes[0].as_ref().is_some_and(|first| first.state() != state) {
                let text = format!("hosts 0 and {host} differ at the end");
                return Err(Violation::new("replica states", text));
            }
        }
        history::check(&self.history).map_err(|anomaly| Violation::new("history", anomaly.to_string()))
    }

    fn needs_restart(&self, node: &Replica) -> bool {
        node.is_stopped()
    }

    fn waiting(&self, nodes: &mut [Option<Replica>]) -> String {
        let mut waiting = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            if !client.is_done() {
                waiting.push(format!("client {number}: {client}"));
            }
        }
        for (host, node) in nodes.iter().enumerate() {
            match node {
                None => waiting.push(format!("host {host} is down")),
                Some(node) => waiting.push(format!("host {host}: {}", node.describe())),
            }
        }
        waiting.join("; ")
    }
}

/// What a run of the register draws beside its options.
pub fn describe(options: &Options) -> String {
    format!("{:?}", Plan::draw(options, None, &mut Draw::new(mix(options.seed))))
}

/// Runs replicas of a register.
pub fn run(options: &Options, trace: Option<Trace>) -> Outcome {
    run_mutant(options, None, trace)
}

/// Runs replicas with a defect. Without feature `mutants` they have none.
pub fn run_mutant(options: &Options, mutant: Option<Mutant>, trace: Option<Trace>) -> Outcome {
    let loses = |fault: &Fault| matches!(fault, Fault::Crash { lose_disk: true, .. });
    if options.faults.iter().any(|timed| loses(&timed.fault)) {
        let text = "a replica of the register that lost its disk could vote twice: no fault of it may have \
                    'lose_disk'";
        return Outcome {
            report: Report::default(),
            violation: Some(Violation::new("options", text)),
            trace,
        };
    }
    let mut draw = Draw::new(mix(options.seed));
    let plan = Plan::draw(options, mutant, &mut draw);
    let system = Register::new(plan, options);
    let mut world = World::new(setting(options), system, draw, trace);
    let (account, result) = world.run();
    let (system, trace) = world.into_parts();
    Outcome { report: Report { account, tally: system.tally }, violation: result.err(), trace }
}
