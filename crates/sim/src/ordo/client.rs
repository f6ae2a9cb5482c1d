//! A client: one connection at a time, some commands on their way, and a memory of what it was told.

use super::{Frame, Ordo, Plan, Timer};
use crate::history::{self, Operation, Step};
use crate::traffic::{AppendStep, Draft, Population, Traffic, numbers};
use crate::watch::real_time::{ConnectionOrder, Place};
use crate::world::{Address, Core, Input, Violation};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use txn::{Outcome, Position, Reply};

/// A command that is not answered.
struct Asked {
    number: u64,
    draft: Arc<Draft>,
    at_ns: u64,
    /// What it must at least see.
    floor: Position,
}

/// Processes that end when the world heals are up again by then.
const RESTARTED_WITHIN_NS: u64 = 1_000_000_000;
/// How long an answer may take where nothing is wrong: far more than any latency and all commands before it.
const ANSWERED_WITHIN_NS: u64 = 30_000_000_000;

/// What a client is about.
pub(super) struct Client {
    number: u16,
    host: u16,
    traffic: Traffic,
    connection: u32,
    /// Commands of this connection, so far.
    sent: u64,
    asked: VecDeque<Asked>,
    order: ConnectionOrder,
    /// Commands that it has still to send.
    left: u64,
    /// Transactions that load the initial records, if that is its task: all of them, from the first one again
    /// if the connection breaks.
    loads: Vec<Draft>,
    loaded: usize,
    /// It has sent nothing yet.
    waits: bool,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {} has {} commands to send and waits for {}",
            self.number,
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
        let loads = if number < plan.hosts { population.loads() } else { Vec::new() };
        Client {
            number,
            host: number % plan.hosts,
            traffic: population.traffic(number),
            connection: 1,
            sent: 0,
            asked: VecDeque::new(),
            order: ConnectionOrder::default(),
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

/// Something reaches a client.
pub(super) fn take(
    system: &mut Ordo,
    number: u16,
    input: Input<Frame, Timer>,
    core: &mut Core<Ordo>,
) -> Result<(), Violation> {
    match input {
        Input::Timer(Timer::Go) => {
            system.clients[usize::from(number)].waits = false;
            go_on(system, number, core);
        }
        Input::Timer(Timer::Timeout { connection, number: command }) => {
            let client = &system.clients[usize::from(number)];
            let late = client.connection == connection
                && client.asked.front().is_some_and(|asked| asked.number <= command);
            // Once nothing is wrong any more, every command is answered in time.
            let asked_ns = client.asked.front().map_or(0, |asked| asked.at_ns);
            if late && core.healed_ns().is_some_and(|healed_ns| asked_ns >= healed_ns + RESTARTED_WITHIN_NS) {
                let waited_ns = core.now_ns() - asked_ns;
                if waited_ns >= ANSWERED_WITHIN_NS {
                    return Err(Violation::new(
                        "liveness",
                        format!("nothing is wrong, and after {} s {client}", waited_ns / 1_000_000_000),
                    ));
                }
                let again = Timer::Timeout { connection, number: command };
                core.set_timer(Address::Client(number), ANSWERED_WITHIN_NS / 4, again);
            } else if late {
                core.note(Address::Client(number), || format!("gives up waiting for {connection}.{command}"));
                disconnect(system, number, core);
            }
        }
        Input::Timer(_) => {}
        Input::Frame {
            frame: Frame::Reply { connection, number: command, outcome, place, process }, ..
        } if connection == system.clients[usize::from(number)].connection => {
            let answer = Answer { number: command, outcome, place, process };
            answered(system, number, answer, core)?;
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

/// Opens another connection: what was asked on this one has an unknown outcome.
pub(super) fn disconnect(system: &mut Ordo, number: u16, core: &mut Core<Ordo>) {
    let client = &mut system.clients[usize::from(number)];
    let asked = std::mem::take(&mut client.asked);
    let loading = client.is_loading();
    client.connection += 1;
    client.sent = 0;
    client.loaded = if loading { 0 } else { client.loaded };
    client.order = ConnectionOrder::default();
    system.tally.unknown += asked.len() as u64;
    for asked in asked {
        record(system, number, &asked, None, core);
    }
    wait(system, number, core.draw.between(1, 20) * 1_000_000, core);
}

fn wait(system: &mut Ordo, number: u16, after_ns: u64, core: &mut Core<Ordo>) {
    let client = &mut system.clients[usize::from(number)];
    if !client.waits {
        client.waits = true;
        core.set_timer(Address::Client(number), after_ns, Timer::Go);
    }
}

/// Sends what the client has to send.
fn go_on(system: &mut Ordo, number: u16, core: &mut Core<Ordo>) {
    let held = system.loading > 0;
    let (pipeline, timeout_ms, think_us) =
        (system.plan.pipeline, system.plan.timeout_ms, system.plan.think_us);
    let client = &mut system.clients[usize::from(number)];
    let floor = system.watched[usize::from(client.host)].time.invoked();
    while (client.asked.len() as u64) < pipeline {
        let draft = if client.is_loading() {
            // One after the other: each is there before the next is sent.
            if !client.asked.is_empty() {
                return;
            }
            client.loads[client.loaded].clone()
        } else if held || client.left == 0 {
            return;
        } else {
            client.left -= 1;
            client.traffic.next(&mut core.draw)
        };
        client.sent += 1;
        let (connection, command) = (client.connection, client.sent);
        let draft = Arc::new(draft);
        client.asked.push_back(Asked { number: command, draft: draft.clone(), at_ns: core.now_ns(), floor });
        if system.tally.first_ns == 0 && !client.is_loading() {
            system.tally.first_ns = core.now_ns();
        }
        let me = Address::Client(number);
        core.send(me, Address::Host(client.host), Frame::Command { connection, number: command, draft });
        core.set_timer(me, timeout_ms * 1_000_000, Timer::Timeout { connection, number: command });
        if think_us > 0 && client.left > 0 {
            let after_ns = core.draw.below(think_us * 1_000);
            wait(system, number, after_ns, core);
            return;
        }
    }
}

/// A reply.
struct Answer {
    number: u64,
    outcome: Outcome,
    place: Place,
    process: u32,
}

fn answered(system: &mut Ordo, number: u16, answer: Answer, core: &mut Core<Ordo>) -> Result<(), Violation> {
    let Answer { number: command, outcome, place, process } = answer;
    let client = &mut system.clients[usize::from(number)];
    let Some(asked) = client.asked.pop_front() else {
        return Err(Violation::new(
            "connection order",
            format!("client {number} gets a reply to nothing: {outcome:?}"),
        ));
    };
    if asked.number != command {
        return Err(Violation::new(
            "connection order",
            format!("client {number} gets reply {command} and waits for {}", asked.number),
        ));
    }
    client.order.next(place)?;
    let host = client.host;
    let counts = system.watched[usize::from(host)].time.answered(asked.floor, place, process)?;
    let client = &mut system.clients[usize::from(number)];
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
            if client.is_loading() {
                client.loaded += 1;
                if !client.is_loading() {
                    system.loaded[usize::from(host)] = position;
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
    }
    core.witness(crate::traffic::hash_of(&outcome));
    let client = &mut system.clients[usize::from(number)];
    client.traffic.answered(&asked.draft, &outcome);
    // A reply about what a power cut has taken since is worth no more than none.
    let known = counts.then_some((&outcome, place));
    record(system, number, &asked, known, core);
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
    system: &mut Ordo,
    number: u16,
    asked: &Asked,
    answer: Option<(&Outcome, Place)>,
    core: &Core<Ordo>,
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
            // Every host is a database of its own.
            let key = step.list << 16 | u64::from(system.clients[usize::from(number)].host);
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
    // A refused write whose remains the disk did not clear may come back: nobody knows.
    let outcome = match (outcome, answer) {
        (history::Outcome::Aborted, Some((_, Place::Nowhere))) => history::Outcome::Unknown,
        (outcome, _) => outcome,
    };
    system.history.push(Operation {
        client: u32::from(number),
        invoked_ns: asked.at_ns,
        completed_ns: completed_ns.filter(|_| outcome != history::Outcome::Unknown),
        outcome,
        steps,
    });
}
