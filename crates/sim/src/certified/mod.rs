//! A certified protocol in the world: sites that agree, and clients that go from site to site.
//!
//! A host runs one site: the real substrate ([`node::site::Site`]) under a real [`Protocol`], with a journal
//! on the host's disk. A client's operation is an ordinary procedure that reads some lists and appends to
//! some of them. Its site runs the procedure as a certified transaction ([`certify::CertifiedCall`]), slowly,
//! so that others commit between its looks, and the client has it run again until it commits.
//!
//! What it leaves out:
//! - A site that *lost its disk* and came back under its name would have forgotten its votes. It would have
//!   to return as another site, and a protocol's sites never change here. So that fault is never drawn, and
//!   refused in a scenario.
//!
//! The oracles: at most one process leads a term; all sites have the same state behind the same entry,
//! snapshots included; what was acknowledged is at every site in the end, and all sites are equal; what
//! clients saw is strictly serializable, or serializable in the order of their sessions if the protocol
//! promises no more ([`crate::history`]). Of *members*, the keys that operations list,
//! count, change, delete and clear, there are never more than the operations allow; the count is that of the
//! listing; and a value that is gone is never seen again. A client is told that an outcome is unknown only of
//! a session that the protocol may have forgotten. The world adds that all clients finish and all sites catch
//! up.

mod client;
mod process;
mod seen;

use crate::cost::CostTable;
use crate::draw::Draw;
use crate::history;
use crate::options::{Options, SystemKind};
use crate::run::{Outcome, Report, setting};
use crate::tally::Tally;
use crate::trace::Trace;
use crate::world::{Address, Core, End, Fault, Input, Start, System, Traffic, Violation, World};
use bytes::Bytes;
use certify::dur::{Dur, Horizons};
use certify::hierarchy;
use certify::hierarchy::{BatchLimits, Control, Hierarchy, HierarchyOptions, Tree};
use certify::register::Register;
use certify::two_phase::{self, Rule, TwoPhase, TwoPhaseOptions};
use certify::{Certifier, Conflict, SESSION_HORIZON};
use client::Client;
use node::site::BASE_BYTES_MAX;
use process::{Process, list_at, pair_at, state_of};
use seen::Seen;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use store::{Partition, TOMBSTONE_HORIZON};
use txn::hash::mix;
use txn::{Entry, Key, NodeId, PartitionId, Position, SessionId};

/// A protocol that can live in the world: all its sites have all the data.
pub trait Protocol: Certifier + Sized + 'static {
    /// Whether its transactions list, count and clear the user's keys.
    const LISTS: bool;

    /// The site of some number without data.
    fn site(me: NodeId, sites: &SiteSetting) -> Self;

    /// The last decided entry of a group.
    fn position(&self, group: PartitionId) -> Position;

    /// The group that knows a session.
    fn home_of(_session: SessionId, _partitions: u16) -> PartitionId {
        PartitionId(0)
    }

    /// For how many ticks a site waits for the decision on a transaction before it answers that the outcome
    /// is unknown; `None` if it waits for as long as it takes.
    const WAIT_TICKS_MAX: Option<u64> = None;

    /// Whether no transaction is under way at this site.
    fn has_settled(&self) -> bool {
        true
    }

    /// What a key has at this site.
    fn newest(&self, key: &Key) -> Option<Entry>;
}

impl Protocol for Register {
    const LISTS: bool = false;

    fn site(_: NodeId, sites: &SiteSetting) -> Register {
        Register::remembering(sites.horizons.session)
    }

    fn position(&self, _: PartitionId) -> Position {
        Register::position(self)
    }

    fn newest(&self, key: &Key) -> Option<Entry> {
        self.value(key)
    }
}

impl Protocol for Dur {
    const LISTS: bool = true;

    fn site(_: NodeId, sites: &SiteSetting) -> Dur {
        Dur::over(Arc::new(Partition::new()), sites.horizons)
    }

    fn position(&self, _: PartitionId) -> Position {
        Dur::position(self)
    }

    fn newest(&self, key: &Key) -> Option<Entry> {
        self.value(key)
    }
}

impl Protocol for TwoPhase {
    const LISTS: bool = false;

    fn site(me: NodeId, sites: &SiteSetting) -> TwoPhase {
        TwoPhase::new(TwoPhaseOptions {
            me,
            sites: sites.hosts,
            partitions: sites.partitions,
            rule: sites.rule,
            session_horizon: sites.horizons.session,
        })
    }

    fn position(&self, group: PartitionId) -> Position {
        TwoPhase::position(self, group)
    }

    fn home_of(session: SessionId, partitions: u16) -> PartitionId {
        two_phase::home_of(session, partitions)
    }

    fn has_settled(&self) -> bool {
        self.is_idle()
    }

    fn newest(&self, key: &Key) -> Option<Entry> {
        self.value(key)
    }
}

impl Protocol for Hierarchy {
    const LISTS: bool = false;
    const WAIT_TICKS_MAX: Option<u64> = Some(hierarchy::WAIT_TICKS_MAX);

    fn site(me: NodeId, sites: &SiteSetting) -> Hierarchy {
        Hierarchy::new(HierarchyOptions {
            me,
            tree: sites.tree.clone(),
            control: sites.control,
            batches: sites.batches,
            session_horizon: sites.horizons.session,
        })
    }

    fn position(&self, group: PartitionId) -> Position {
        Hierarchy::position(self, group)
    }

    fn home_of(session: SessionId, partitions: u16) -> PartitionId {
        hierarchy::home_of(session, partitions)
    }

    fn has_settled(&self) -> bool {
        self.is_idle()
    }

    fn newest(&self, key: &Key) -> Option<Entry> {
        self.value(key)
    }
}

/// In which order a protocol's transactions are serializable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// In real time.
    RealTime,
    /// In the order of the sessions.
    Sessions,
    /// In the order of the sessions; and without those that are declared read-only, in real time.
    SessionsAndUpdatesInRealTime,
}

/// What all sites of a run have in common.
#[derive(Clone, Debug)]
pub struct SiteSetting {
    /// Sites.
    hosts: u16,
    /// Groups with data: the first ones.
    partitions: u16,
    /// Groups, each of all sites.
    groups: u16,
    /// The validators, where there is a tree of them.
    tree: Tree,
    /// How its leaves validate.
    control: Control,
    /// When its validators' messages leave.
    batches: BatchLimits,
    /// What clients may rely on.
    promise: Promise,
    /// The rule of two-phase commit.
    rule: Rule,
    /// How long the protocol remembers what.
    horizons: Horizons,
}

/// What the sites and clients of a run are like.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    sites: SiteSetting,
    /// Lists.
    keys: u64,
    think_us: u64,
    /// How long a client waits for an answer before it asks another site.
    timeout_ns: u64,
    /// A site's unit of time.
    tick_ns: u64,
    /// A group's log begins anew when it has grown by so much.
    log_bytes_max: u64,
    /// A base goes in pieces of at most so many bytes.
    base_piece_bytes_max: usize,
    base_bytes_max: usize,
    segment_bytes: u64,
    costs: CostTable,
    jitter: bool,
    /// Whether sites read where a snapshot is at hand, and do not ask the protocol at each look.
    reads_at_once: bool,
    /// The share of operations that use members, where the protocol lists keys.
    members_percent: u32,
    /// The names that a member may have.
    member_names: u64,
    /// Threads of a site.
    threads: usize,
    /// The share of operations that use a pair.
    pairs_percent: u32,
    pairs: u64,
}

impl Plan {
    fn draw(options: &Options, draw: &mut Draw) -> Plan {
        // A horizon that is short beside what is under way at a time would leave nothing but refusals.
        let sessions = u64::from(options.clients) * options.pipeline.min(options.operations).min(50);
        let rule = options.system.rule();
        // By draws of their own: seeds go on meaning the same.
        let tree = match options.system.control() {
            Some(_) => draw_tree(&mut Draw::new(mix(options.seed ^ 0x6C65_7665))),
            None => Tree::leaf(),
        };
        let mut batches = Draw::new(mix(options.seed ^ 0x6261_7463));
        let mut pieces = Draw::new(mix(options.seed ^ 0x7069_6563));
        let partitions = match rule {
            Some(_) => Draw::new(mix(options.seed ^ 0x7061_7274)).pick(&[2, 2, 3, 4]),
            None => tree.partitions(),
        };
        Plan {
            seed: options.seed,
            keys: draw.between(1, 5),
            think_us: options.think_us,
            timeout_ns: options.timeout_ms * 1_000_000,
            // An election takes a vote's way there and back, so a timeout must be longer than that.
            tick_ns: (options.latency.flight_us() / 3).max(1_000) * 1_000 * draw.pick(&[1, 1, 2]),
            // Every entry carries a whole list, so that a log of any length would fill the memory when it
            // is sent again and again over a bad link.
            log_bytes_max: match options.checkpoint_bytes {
                0 => 50_000,
                bytes => bytes,
            },
            base_piece_bytes_max: pieces.pick(&[1_000, 20_000, 1 << 20]),
            base_bytes_max: pieces.pick(&[BASE_BYTES_MAX, BASE_BYTES_MAX, BASE_BYTES_MAX, 60_000]),
            segment_bytes: options.segment_bytes,
            costs: options.costs,
            jitter: options.jitter,
            reads_at_once: draw.percent(50),
            sites: SiteSetting {
                hosts: options.nodes,
                partitions,
                groups: partitions.max(tree.groups()),
                tree,
                control: options.system.control().unwrap_or_default(),
                batches: BatchLimits {
                    transactions_max: batches.pick(&[1, 2, 50]),
                    bytes_max: batches.pick(&[200, 1 << 16]),
                    wait_ticks_max: batches.pick(&[1, 5, 20]),
                },
                promise: match options.system {
                    SystemKind::HierarchyLocks => Promise::SessionsAndUpdatesInRealTime,
                    SystemKind::HierarchyTimestamps => Promise::Sessions,
                    _ if rule.unwrap_or_default().is_strict() => Promise::RealTime,
                    _ => Promise::Sessions,
                },
                rule: rule.unwrap_or_default(),
                horizons: Horizons {
                    history: draw.pick(&[2 * sessions + 10, 10 * sessions, TOMBSTONE_HORIZON]),
                    session: draw.pick(&[3 * sessions + 20, 10 * sessions + 20, SESSION_HORIZON]),
                },
            },
            members_percent: draw.pick(&[0, 30, 100]),
            member_names: draw.pick(&[1, 2, 4]),
            threads: draw.pick(&[1, 2, 3, 4]),
            pairs_percent: draw.pick(&[0, 30, 100]),
            pairs: draw.pick(&[1, 1, 2]),
        }
    }
}

/// A tree of one to four levels. It grows from its root: a leaf that gets children is one no longer.
fn draw_tree(draw: &mut Draw) -> Tree {
    let levels = draw.between(1, 4);
    // The parent of each validator, numbered from the root on, and its level.
    let (mut parents, mut levels_of) = (vec![0], vec![1]);
    let mut leaves = vec![0];
    let mut next = Some(0);
    while let Some(place) = next.take() {
        let grown = leaves.swap_remove(place);
        if levels_of[grown] == levels {
            leaves.push(grown);
            break;
        }
        for _ in 0..draw.pick(&[2, 2, 3]) {
            leaves.push(parents.len());
            parents.push(grown);
            levels_of.push(levels_of[grown] + 1);
        }
        // The last one is among the lowest: so the tree comes to all its levels.
        if levels_of[grown] + 1 < levels {
            next = Some(leaves.len() - 1);
        } else if draw.percent(30) && leaves.len() < 6 {
            next = Some(draw.below(leaves.len() as u64) as usize);
        }
    }
    leaves.sort_unstable();
    let is_leaf = |validator: &usize| leaves.binary_search(validator).is_ok();
    // Leaves come first, and each inner validator behind those below it.
    let inners = (0..parents.len()).rev().filter(|validator| !is_leaf(validator));
    let order: Vec<usize> = leaves.iter().copied().chain(inners).collect();
    let number = |validator: usize| order.iter().position(|&at| at == validator).unwrap_or_default() as u16;
    let numbered: Vec<u16> =
        order[..order.len() - 1].iter().map(|&validator| number(parents[validator])).collect();
    Tree::new(leaves.len() as u16, &numbered).expect("a parent was drawn before its children")
}

/// At most so many members are there at a time.
const MEMBERS_MAX: usize = 2;

/// What an operation does to the *members*: the user's keys, beside the lists, which are the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStep {
    /// Lists the members, and adds this one if that leaves at most [`MEMBERS_MAX`].
    AddIfListed,
    /// Counts the members, and adds this one if that leaves at most [`MEMBERS_MAX`].
    AddIfCounted,
    /// Gives the member another value, if it is there.
    Change,
    /// Deletes the member, if it is there.
    Delete,
    /// Deletes all members.
    Clear,
    /// Lists and counts the members.
    Look,
}

/// A step, and the name and the value that it has for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    step: MemberStep,
    name: u64,
    value: u64,
}

/// What an operation does to a *pair*: two keys that always hold the same list. An operation writes both, or
/// none. So whoever reads both finds out that two transactions have written them in different orders, also if
/// neither has read what the other wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairStep {
    /// Gives both a list of this value alone, and reads neither.
    Write,
    /// Deletes both, and reads neither.
    Delete,
    /// Reads both, and appends this value.
    Append,
    /// Reads both, and deletes them if they are there.
    Take,
    /// Reads both.
    Look,
}

/// A step, and which pair and which value it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    step: PairStep,
    number: u64,
    value: u64,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// It begins with this.
    member: Option<Member>,
    /// It ends with this.
    pair: Option<Pair>,
    /// It reads these lists, one after the other, and appends a value to some of them.
    pub steps: Vec<(u64, Option<u64>)>,
    /// It appends nothing if the first list has an odd length.
    pub only_if_even: bool,
    /// It is declared read-only.
    pub is_declared: bool,
}

impl Operation {
    /// The lists and values that it appends, if it appends at all.
    fn appends(&self) -> impl Iterator<Item = (u64, u64)> {
        self.steps.iter().filter_map(|&(key, value)| Some((key, value?)))
    }

    fn may_write(&self) -> bool {
        self.appends().next().is_some()
            || self.member.is_some_and(|member| member.step != MemberStep::Look)
            || self.pair.is_some_and(|pair| pair.step != PairStep::Look)
    }

    /// Whether it appends, if the first list has so many values.
    fn appends_behind(&self, length: usize) -> bool {
        !self.only_if_even || length.is_multiple_of(2)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.steps.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            match value {
                Some(value) => write!(f, "append {value:x} to {key}")?,
                None => write!(f, "read {key}")?,
            }
        }
        if let Some(Member { step, name, value }) = self.member {
            write!(f, ", {step:?} {name} {value:x}")?;
        }
        if let Some(Pair { step, number, value }) = self.pair {
            write!(f, ", {step:?} pair {number} {value:x}")?;
        }
        if self.only_if_even { f.write_str(", if even") } else { Ok(()) }
    }
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The transaction has committed.
    Committed {
        /// What it has read.
        read: OperationRead,
        /// Whether its end has a place in the order.
        is_ordered: bool,
    },
    /// An earlier attempt has, which may have read other ones.
    CommittedBefore,
    /// It conflicts with another one: it is to be run again.
    Conflict(Conflict),
    /// It may have committed or not, and has no further effect.
    Unknown,
    /// It is to be run at another site.
    Unavailable,
    /// No procedure should end so.
    Failed(String),
}

/// What an operation has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationRead {
    /// What it knows of the members.
    members: Members,
    /// The list of its pair: empty if it read none.
    pair: Vec<u64>,
    /// The list of each of its steps.
    lists: Vec<Vec<u64>>,
}

/// Values of members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those that an operation has seen.
    seen: Vec<u64>,
    /// Of those, the ones that it has deleted or replaced.
    gone: Vec<u64>,
}

/// What travels between clients and sites.
#[derive(Clone)]
pub enum Frame {
    /// What sites say to each other.
    Peer {
        /// Who says it.
        from: NodeId,
        /// What.
        bytes: Bytes,
    },
    /// A client has a transaction run.
    Ask {
        /// Which of all sessions.
        session: u32,
        /// Which of its operations, from 1. A session begins no operation before its last one is answered.
        sequence: u64,
        /// Which attempt.
        attempt: u32,
        /// The name of the session in its present opening.
        id: SessionId,
        /// What for.
        operation: Operation,
    },
    /// A site answers.
    Answer {
        /// Which session.
        session: u32,
        /// Which operation.
        sequence: u64,
        /// Which attempt.
        attempt: u32,
        /// The last entry of the session's group that the site was given.
        position: Position,
        /// What.
        told: Told,
    },
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Peer { bytes, .. } => f.write_str(&node::site::describe(bytes)),
            Frame::Ask { session, sequence, attempt, operation, .. } => {
                write!(f, "{session:x}.{sequence}.{attempt} {operation}")
            }
            Frame::Answer { session, sequence, attempt, told, .. } => {
                write!(f, "{session:x}.{sequence}.{attempt} ")?;
                match told {
                    Told::Committed { read, .. } => {
                        let values: usize = read.lists.iter().map(Vec::len).sum();
                        write!(f, "committed, read {values} values")
                    }
                    Told::CommittedBefore => write!(f, "committed before"),
                    Told::Conflict(conflict) => write!(f, "conflict: {conflict:?}"),
                    Told::Unknown => write!(f, "unknown"),
                    Told::Unavailable => write!(f, "unavailable"),
                    Told::Failed(text) => write!(f, "failed: {text}"),
                }
            }
        }
    }
}

/// What sites and clients remind themselves of.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    /// A site's clock.
    Tick,
    /// A sync is done.
    Synced,
    /// The next segment is made.
    Prepared,
    /// A site goes on with a session's transaction, if it has not gone on since.
    Go {
        /// Which session.
        session: SessionId,
        /// How often the site had gone on.
        turn: u64,
    },
    /// A client begins.
    Begin,
    /// A session begins its next operation.
    Next(u32),
    /// A session asks again, if this is still its attempt.
    Again {
        /// Which.
        session: u32,
        /// Its operation.
        sequence: u64,
        /// Its attempt.
        attempt: u32,
    },
    /// A session asks another site, if this is still its attempt.
    Timeout {
        /// Which.
        session: u32,
        /// Its operation.
        sequence: u64,
        /// Its attempt.
        attempt: u32,
    },
}

/// Sites, clients and oracles.
pub struct Certified<P> {
    plan: Plan,
    clients: Vec<Client>,
    /// Processes that were started.
    processes: u64,
    /// Who led a term of a group: host and process.
    leaders: BTreeMap<(PartitionId, u64), (u16, u64)>,
    /// The digest of a group's state behind each entry, and who said so first.
    digests: BTreeMap<(PartitionId, u64), (u64, u16)>,
    /// Appends that were acknowledged: key and value.
    acknowledged: Vec<(u64, u64)>,
    history: Vec<Seen>,
    /// When it was acknowledged that these values of members are gone.
    gone: BTreeMap<u64, u64>,
    /// The last entry of each group that any site was given.
    newest: BTreeMap<PartitionId, Position>,
    /// Openings of sessions.
    opened: u32,
    tally: Tally,
    protocol: PhantomData<P>,
}

impl<P> Certified<P> {
    fn new(plan: Plan, options: &Options) -> Certified<P> {
        let mut opened = 0;
        let mut client = |number| Client::new(number, &plan, options, &mut opened);
        Certified {
            clients: (0..options.clients).map(&mut client).collect(),
            gone: BTreeMap::new(),
            newest: BTreeMap::new(),
            opened,
            plan,
            processes: 0,
            leaders: BTreeMap::new(),
            digests: BTreeMap::new(),
            acknowledged: Vec::new(),
            history: Vec::new(),
            tally: Tally::default(),
            protocol: PhantomData,
        }
    }
}

impl<P: Protocol> System for Certified<P> {
    type Frame = Frame;
    type Timer = Timer;
    type Node = Process<P>;

    fn frame_bytes(frame: &Frame) -> u64 {
        match frame {
            Frame::Peer { bytes, .. } => 20 + bytes.len() as u64,
            Frame::Ask { operation, .. } => 32 + 16 * operation.steps.len() as u64,
            Frame::Answer { told: Told::Committed { read, .. }, .. } => {
                40 + 8 * read.lists.iter().map(|values| values.len() as u64).sum::<u64>()
            }
            Frame::Answer { .. } => 40,
        }
    }

    fn traffic(from: Address, to: Address) -> Traffic {
        match (from, to) {
            (Address::Host(_), Address::Host(_)) => Traffic::Datagram,
            _ => Traffic::Stream,
        }
    }

    fn start(&mut self, host: u16, core: &mut Core<Self>) -> Result<Start<Process<P>>, Violation> {
        Process::start(self, host, core)
    }

    fn host(
        &mut self,
        host: u16,
        node: &mut Process<P>,
        input: Input<Frame, Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        process::Turn { system: self, process: node, core, host }.take(input)
    }

    fn ended(&mut self, _: u16, _: Option<Process<P>>, _: End, _: &mut Core<Self>) -> Result<(), Violation> {
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

    fn settled(&self, nodes: &mut [Option<Process<P>>]) -> bool {
        let mut nodes = nodes.iter().map(Option::as_ref);
        let Some(Some(first)) = nodes.next() else {
            return false;
        };
        let groups = self.plan.sites.groups;
        let is_level = |node: &Process<P>| node.is_idle() && node.decided(groups) == first.decided(groups);
        self.clients.iter().all(Client::is_done)
            && is_level(first)
            && nodes.all(|node| node.is_some_and(is_level))
    }

    fn check_end(
        &mut self,
        nodes: &mut [Option<Process<P>>],
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        let nodes: Vec<&Process<P>> = nodes.iter().flatten().collect();
        for (host, node) in nodes.iter().enumerate() {
            for &(key, value) in &self.acknowledged {
                if !list_at(node, key).contains(&value) {
                    let text = format!(
                        "append {value:x} to {key} was acknowledged, and host {host} does not have it"
                    );
                    return Err(Violation::new("acknowledged writes", text));
                }
            }
            for group in (0..self.plan.sites.groups).map(PartitionId) {
                if state_of(node, group) != state_of(nodes[0], group) {
                    let text = format!("hosts 0 and {host} differ at the end, in {group}");
                    return Err(Violation::new("replica states", text));
                }
            }
        }
        for number in 0..self.plan.pairs {
            let [list, other] = pair_at(nodes[0], number);
            if list != other {
                let text = format!("in the end pair {number} has {list:x?} and {other:x?}");
                return Err(Violation::new("pairs", text));
            }
            self.history.push(Seen::at_end(number, list, core.now_ns()));
        }
        let check = |is_judged: &dyn Fn(&Seen) -> bool, order| {
            let history = seen::history(&self.history, is_judged)?;
            let checked = history::check_order(&history, order);
            checked.map_err(|anomaly| Violation::new("history", anomaly.to_string()))
        };
        match self.plan.sites.promise {
            Promise::RealTime => check(&|_| true, history::Order::RealTime),
            Promise::Sessions => check(&|_| true, history::Order::Clients),
            Promise::SessionsAndUpdatesInRealTime => {
                check(&|_| true, history::Order::Clients)?;
                check(&Seen::is_validated, history::Order::RealTime)
            }
        }
    }

    fn needs_restart(&self, node: &Process<P>) -> bool {
        node.has_ended()
    }

    fn waiting(&self, nodes: &mut [Option<Process<P>>]) -> String {
        let mut waiting = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            if !client.is_done() {
                waiting.push(format!("client {number}: {client}"));
            }
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
    format!("{:?}", Plan::draw(options, &mut Draw::new(mix(options.seed))))
}

/// Runs sites of a protocol.
pub fn run<P: Protocol>(options: &Options, trace: Option<Trace>) -> Outcome {
    let loses = |fault: &Fault| matches!(fault, Fault::Crash { lose_disk: true, .. });
    if options.faults.iter().any(|timed| loses(&timed.fault)) {
        let text = "a site that lost its disk could vote twice: no fault of a certified protocol may have \
                    'lose_disk'";
        return Outcome {
            report: Report::default(),
            violation: Some(Violation::new("options", text)),
            trace,
        };
    }
    let mut draw = Draw::new(mix(options.seed));
    let plan = Plan::draw(options, &mut draw);
    let system = Certified::<P>::new(plan, options);
    let mut setting = setting(options);
    let operations = u64::from(options.clients) * options.operations;
    // Flights to a site and to a leader, and those of rounds of agreement.
    setting.limits.settle_ms += 20 * operations * options.latency.flight_us() / 1_000;
    let mut world = World::new(setting, system, draw, trace);
    let (account, result) = world.run();
    let (system, trace) = world.into_parts();
    Outcome { report: Report { account, tally: system.tally }, violation: result.err(), trace }
}
