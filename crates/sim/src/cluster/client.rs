//! A client: one connection at a time, to one node after the other, some commands on their way, and a memory
//! of what it was told.

use super::watch::PartitionWatch;
use super::{Cluster, Frame, Plan, Timer};
use crate::history::{self, Operation, Step};
use crate::traffic::{AppendStep, Draft, Population, Traffic, numbers};
use crate::watch::real_time::{ConnectionOrder, Place};
use crate::world::{Address, Core, Input, Violation};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use txn::{Epoch, Outcome, PartitionId, Position, Reply, Stop};

/// A command that is not answered.
struct Asked {
    number: u64,
    partition: PartitionId,
    draft: Arc<Draft>,
    at_ns: u64,
    /// What it must at least see, of each partition.
    floors: Vec<Position>,
    floor_epoch: Epoch,
}

/// Processes that end when the world heals are up again, and have a leader, after so many of the nodes'
/// ticks.
const RESTARTED_TICKS: u64 = 60;
/// A node whose disk was full tries to write again within this time, whatever its ticks are, and has caught
/// up with the others a while later.
const WRITES_AGAIN_MS: u64 = 1_500;
/// How many ticks an answer may take where nothing is wrong, with all commands before it, and how many
/// flights each of them: the reads of a connection run one after the other here, each after a question that
/// goes to the leader, from there to the others, and back.
const ANSWERED_TICKS: u64 = 100;
const ANSWERED_FLIGHTS: u64 = 6;
/// Where transactions run at several partitions these tell each other what they read, one transaction after
/// the other.
const ANSWERED_ACROSS: u64 = 10;

/// What a client is about.
pub(super) struct Client {
    number: u16,
    host: u16,
    traffic: Traffic,
    connection: u32,
    /// Commands of this connection, so far.
    sent: u64,
    asked: VecDeque<Asked>,
    order: BTreeMap<PartitionId, ConnectionOrder>,
    /// Commands that it has still to send.
    left: u64,
    /// Transactions that load the initial records of a partition, if that is its task: all of them, from the
    /// first one again if the connection breaks.
    loads: Vec<Draft>,
    loaded: usize,
    /// It has sent nothing yet.
    waits: bool,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {} at host {} has {} commands to send and waits for {}",
            self.number,
            self.host,
            self.left + (self.loads.len() - self.loaded) as u64,
            self.asked.len()
        )?;
        if let Some(asked) = self.asked.front() {
            write!(f, ", first of all {}.{} {}", self.connection, asked.number, asked.draft)?;
        }
        Ok(())
    }
}

impl Client {
    pub(super) fn new(number: u16, plan: &Plan, population: &Population) -> Client {
        // One client for each key space.
        let spaces = if plan.across { 1 } else { plan.partitions };
        let loads = if number < spaces { population.loads() } else { Vec::new() };
        Client {
            number,
            host: number % plan.hosts,
            traffic: population.traffic(number),
            connection: 1,
            sent: 0,
            asked: VecDeque::new(),
            order: BTreeMap::new(),
            left: plan.operations,
            loads,
            loaded: 0,
            waits: true,
        }
    }

    /// Whether it loads initial records.
    pub(super) fn loads(&self) -> bool {
        !self.loads.is_empty()
    }

    fn is_loading(&self) -> bool {
        self.loaded < self.loads.len()
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.asked.is_empty() && !self.is_loading()
    }
}

/// The clients that are connected to a host, and their numbers of the connections.
pub(super) fn connected(clients: &[Client], host: u16) -> Vec<(u16, u32)> {
    let there = clients.iter().filter(|client| client.host == host && client.sent > 0);
    there.map(|client| (client.number, client.connection)).collect()
}

/// What lies behind these positions, and behind this epoch, is void: nobody has to see it.
pub(super) fn void_behind(clients: &mut [Client], ends: &[Position], epoch: Epoch) {
    for asked in clients.iter_mut().flat_map(|client| &mut client.asked) {
        for (floor, end) in asked.floors.iter_mut().zip(ends) {
            *floor = (*floor).min(*end);
        }
        asked.floor_epoch = asked.floor_epoch.min(epoch);
    }
}

/// Something reaches a client.
pub(super) fn take(
    system: &mut Cluster,
    number: u16,
    input: Input<Frame, Timer>,
    core: &mut Core<Cluster>,
) -> Result<(), Violation> {
    match input {
        Input::Timer(Timer::Go) => {
            system.clients[usize::from(number)].waits = false;
            go_on(system, number, core);
        }
        Input::Timer(Timer::Timeout { connection, number: command }) => {
            return timed_out(system, number, connection, command, core);
        }
        Input::Timer(_) => {}
        Input::Frame {
            frame: Frame::Reply { connection, number: command, outcome, partition, place, process },
            ..
        } if connection == system.clients[usize::from(number)].connection => {
            let counts = !system.alone.as_ref().is_some_and(|alone| alone.is_void(process, place));
            answered(system, number, command, outcome, (partition, place, counts), core)?;
        }
        Input::Frame { frame: Frame::Closed { connection }, .. }
            if connection == system.clients[usize::from(number)].connection =>
        {
            disconnect(system, number, core);
        }
        // Of a connection that is closed.
        Input::Frame { .. } => {}
    }
    Ok(())
}

/// Looks whether a command is answered in time.
fn timed_out(
    system: &mut Cluster,
    number: u16,
    connection: u32,
    command: u64,
    core: &mut Core<Cluster>,
) -> Result<(), Violation> {
    let client = &system.clients[usize::from(number)];
    let late =
        client.connection == connection && client.asked.front().is_some_and(|asked| asked.number <= command);
    if !late {
        return Ok(());
    }
    // Once nothing is wrong any more, every command is answered in time.
    let asked_ns = client.asked.front().map_or(0, |asked| asked.at_ns);
    let tick_ns = system.plan.tick_ns;
    let mut bound_ns =
        ANSWERED_TICKS * tick_ns + ANSWERED_FLIGHTS * system.plan.flight_ns * system.plan.pipeline;
    if system.plan.across {
        bound_ns *= ANSWERED_ACROSS;
    }
    let well_after_ns = RESTARTED_TICKS * tick_ns + WRITES_AGAIN_MS * 1_000_000;
    if core.healed_ns().is_some_and(|healed_ns| asked_ns >= healed_ns + well_after_ns) {
        let waited_ns = core.now_ns() - asked_ns;
        if waited_ns >= bound_ns {
            let text = format!("nothing is wrong, and after {} ms {client}", waited_ns / 1_000_000);
            return Err(Violation::new("liveness", text));
        }
        let again = Timer::Timeout { connection, number: command };
        core.set_timer(Address::Client(number), bound_ns / 4, again);
    } else {
        core.note(Address::Client(number), || format!("gives up waiting for {connection}.{command}"));
        disconnect(system, number, core);
    }
    Ok(())
}

/// Opens another connection, to the next node: what was asked on this one has an unknown outcome.
pub(super) fn disconnect(system: &mut Cluster, number: u16, core: &mut Core<Cluster>) {
    let (hosts, further) = (system.sites.len() as u16, further(system));
    let client = &mut system.clients[usize::from(number)];
    let asked = std::mem::take(&mut client.asked);
    let loading = client.is_loading();
    client.connection += 1;
    client.host = (client.host + further) % hosts;
    client.sent = 0;
    client.loaded = if loading { 0 } else { client.loaded };
    client.order.clear();
    system.tally.unknown += asked.len() as u64;
    for asked in asked {
        record(system, number, &asked, None, core);
    }
    wait(system, number, core.draw.between(1, 20) * 1_000_000, core);
}

/// How many nodes further a client turns that one does not serve. A model's clients stay in their zone: they
/// have only come too early.
fn further(system: &Cluster) -> u16 {
    u16::from(system.plan.judged)
}

fn wait(system: &mut Cluster, number: u16, after_ns: u64, core: &mut Core<Cluster>) {
    let client = &mut system.clients[usize::from(number)];
    if !client.waits {
        client.waits = true;
        core.set_timer(Address::Client(number), after_ns, Timer::Go);
    }
}

/// Sends what the client has to send.
fn go_on(system: &mut Cluster, number: u16, core: &mut Core<Cluster>) {
    let held = system.loading > 0;
    let (pipeline, timeout_ms, think_us) =
        (system.plan.pipeline, system.plan.timeout_ms, system.plan.think_us);
    let (hosts, further) = (system.sites.len() as u16, further(system));
    let client = &mut system.clients[usize::from(number)];
    if client.sent == 0 && !system.open[usize::from(client.host)] && !client.is_done() {
        // Nobody listens there.
        client.host = (client.host + further) % hosts;
        let after_ns = core.draw.between(1, 20) * 1_000_000;
        return wait(system, number, after_ns, core);
    }
    while (client.asked.len() as u64) < pipeline {
        let (partition, draft) = if client.is_loading() {
            // One after the other: each is there before the next is sent.
            if !client.asked.is_empty() {
                return;
            }
            (PartitionId(number), client.loads[client.loaded].clone())
        } else if held || client.left == 0 {
            return;
        } else {
            client.left -= 1;
            let partition = core.draw.below(u64::from(system.plan.partitions)) as u16;
            (PartitionId(partition), client.traffic.next(&mut core.draw))
        };
        client.sent += 1;
        let (connection, command) = (client.connection, client.sent);
        let draft = Arc::new(draft);
        let partitions = system.partitions.iter();
        client.asked.push_back(Asked {
            number: command,
            partition,
            draft: draft.clone(),
            at_ns: core.now_ns(),
            floors: partitions.map(PartitionWatch::invoked).collect(),
            floor_epoch: system.epochs.reached(),
        });
        if system.tally.first_ns == 0 && !client.is_loading() {
            system.tally.first_ns = core.now_ns();
        }
        let me = Address::Client(number);
        core.send(
            me,
            Address::Host(client.host),
            Frame::Command { connection, number: command, partition, draft },
        );
        core.set_timer(me, timeout_ms * 1_000_000, Timer::Timeout { connection, number: command });
        if think_us > 0 && client.left > 0 {
            let after_ns = core.draw.below(think_us * 1_000);
            wait(system, number, after_ns, core);
            return;
        }
    }
}

fn answered(
    system: &mut Cluster,
    number: u16,
    command: u64,
    outcome: Outcome,
    (partition, place, counts): (PartitionId, Place, bool),
    core: &mut Core<Cluster>,
) -> Result<(), Violation> {
    let client = &mut system.clients[usize::from(number)];
    let Some(asked) = client.asked.pop_front() else {
        return Err(Violation::new(
            "connection order",
            format!("client {number} gets a reply to nothing: {outcome:?}"),
        ));
    };
    let loads = client.is_loading();
    if asked.number != command {
        return Err(Violation::new(
            "connection order",
            format!("client {number} gets reply {command} and waits for {}", asked.number),
        ));
    }
    if matches!(outcome, Err(Stop::Undeclared(_))) {
        let text = format!(
            "client {number} is told that {} touches more partitions than it should have known of",
            asked.draft
        );
        return Err(Violation::new("undeclared", text));
    }
    client.order.entry(partition).or_default().next(place)?;
    let watch = &mut system.partitions[usize::from(partition.0)];
    if counts {
        watch.answered(asked.floors[usize::from(partition.0)], place)?;
    }
    if system.plan.judged && system.alone.is_none() {
        // A model does not follow the epochs, and where there is one partition its positions tell more.
        system.epochs.answered(asked.floor_epoch, watch, place)?;
    }
    match place {
        Place::Nowhere => {
            system.tally.refused += 1;
            // Another command takes its place, later: in the end, all are served.
            if !client.is_loading() {
                client.left += 1;
            }
        }
        Place::Snapshot(_) => system.tally.snapshot_reads += 1,
        Place::At(position) => {
            system.tally.committed += 1;
            system.tally.rolled_back += u64::from(outcome.is_err());
            system.tally.shared += u64::from(asked.draft.route.partitions.len() > 1);
            if client.is_loading() {
                client.loaded += 1;
                if !client.is_loading() {
                    watch.loaded = position;
                    system.loading -= 1;
                    if system.loading == 0 {
                        for other in 0..system.clients.len() as u16 {
                            wait(system, other, 0, core);
                        }
                    }
                }
            }
        }
    }
    system.tally.last_ns = core.now_ns();
    if place != Place::Nowhere {
        let latency_ns = core.now_ns() - asked.at_ns;
        system.tally.latency_ns += latency_ns;
        system.tally.latency_max_ns = system.tally.latency_max_ns.max(latency_ns);
        if !loads && matches!(place, Place::At(_)) {
            system.tally.ordered += 1;
            system.tally.ordered_latency_ns += latency_ns;
            let host = usize::from(system.clients[usize::from(number)].host);
            let (count, sum_ns) = &mut system.latencies[host];
            *count += 1;
            *sum_ns += latency_ns;
        }
    }
    core.witness(crate::traffic::hash_of(&outcome));
    let client = &mut system.clients[usize::from(number)];
    client.traffic.answered(&asked.draft, &outcome);
    // A reply about what is void is worth no more than none.
    record(system, number, &asked, counts.then_some((&outcome, place)), core);
    let think_us = system.plan.think_us;
    if place == Place::Nowhere {
        let after_ns = core.draw.between(10, 200) * 1_000_000;
        wait(system, number, after_ns, core);
    }
    if system.clients[usize::from(number)].waits {
        return Ok(());
    }
    if think_us == 0 {
        go_on(system, number, core);
    } else {
        let after_ns = core.draw.below(think_us * 1_000);
        wait(system, number, after_ns, core);
    }
    Ok(())
}

/// Writes down what a client of the append workload saw.
fn record(
    system: &mut Cluster,
    number: u16,
    asked: &Asked,
    answer: Option<(&Outcome, Place)>,
    core: &Core<Cluster>,
) {
    if asked.draft.procedure.name() != "sim.append" || !system.plan.judged {
        return;
    }
    let mut lists = match answer {
        Some((Ok(Reply::Array(lists)), _)) => lists.iter(),
        _ => [].iter(),
    };
    let steps = asked
        .draft
        .args
        .iter()
        .filter_map(AppendStep::decode)
        .map(|step| {
            // Partitions that share no key space have lists of their own.
            let key = match system.plan.across {
                true => step.list,
                false => step.list << 16 | u64::from(asked.partition.0),
            };
            match step.value {
                0 => Step::Read {
                    key,
                    values: match lists.next() {
                        Some(Reply::Bulk(list)) => numbers(list),
                        _ => Vec::new(),
                    },
                },
                value => Step::Append { key, value },
            }
        })
        .collect();
    let outcome = match answer {
        None => history::Outcome::Unknown,
        Some((Ok(Reply::Array(_)), _)) => history::Outcome::Committed,
        Some(_) => history::Outcome::Aborted,
    };
    let completed_ns = answer.map(|_| core.now_ns());
    system.history.push(Operation {
        client: u32::from(number),
        invoked_ns: asked.at_ns,
        completed_ns: completed_ns.filter(|_| outcome != history::Outcome::Unknown),
        outcome,
        steps,
    });
}
