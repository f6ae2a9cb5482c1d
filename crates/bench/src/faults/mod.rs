//! Real nodes under load, and what happens to them: killed, frozen, cut off. Nothing acknowledged may be
//! lost, nothing may happen twice, and writes must get on soon.
//!
//! The run is a script of rounds. In each, clients ([`load`]) work; after a drawn number of acknowledged
//! writes one fault ([`script`]) hits the nodes ([`processes`]) or their links ([`network`]); once writes get
//! on ([`resume`]) and the fault has lasted as long as it should, everything is healed, and the round ends
//! when every node has acknowledged writes again. Then nobody writes, and the judgement begins:
//!
//! * every key has a value that what clients were told allows ([`ledger`]), in this round and in all before;
//! * the history of lists is strictly serializable (`sim::history`), with a last read of every list at every
//!   node;
//! * all nodes have the same, also to READONLY connections;
//! * where clocks are set ([`clocks`]), no time to live is shorter or longer than it says.
//!
//! The seed decides faults, instants (in acknowledged writes) and the clients' work; the machine decides the
//! rest.

pub mod clocks;
mod ledger;
mod load;
pub mod network;
mod probe;
pub mod processes;
mod resume;
pub mod script;
mod worker;

use crate::child::interruption;
use crate::progress::Progress;
use crate::redis::template::SplitMix;
use crate::report::{self, Spread};
use anyhow::{Context, Result, bail};
use clocks::Probes;
use comfy_table::Table;
use ledger::{Ledger, State};
use load::{ACCOUNTS, Load, OPENING_BALANCE, PATIENCE, Seen, account_key};
use network::Network;
use probe::{Answers, Probe};
use processes::{Processes, Setting};
use resume::{Resume, longest_pause_ns};
use script::Fault;
use serde::Serialize;
use server::client::{Answer, Client};
use sim::history::Operation;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Until then writes get on after a fault, nodes are up again after it has healed, and agree after the load.
const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// How often something is looked at that does not tell when it changes.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Writes that are acknowledged before a fault, at least and at most.
const BEFORE: (u64, u64) = (200, 1_200);
/// Writes that every node acknowledges at the end of a round.
const AFTER: u64 = 50;
/// Problems of a round that are shown.
const SHOWN_MAX: usize = 10;

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What runs, and where.
    pub setting: Setting,
    /// Whether nodes have a network of namespaces; otherwise they share the loopback interface, where no link
    /// can be cut.
    pub namespaces: bool,
    /// Rounds.
    pub rounds: usize,
    /// Clients.
    pub clients: u64,
    /// The faults to draw from; all that are possible if empty.
    pub only: Vec<Fault>,
    /// The seed.
    pub seed: u64,
}

/// A round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Its number, from 1.
    pub round: usize,
    /// The fault's name.
    pub fault: &'static str,
    /// What was done to whom.
    pub what: String,
    /// From the fault to the first acknowledgement of a write that was sent after it to a node that it did
    /// not hit.
    pub resumed_ms: Option<f64>,
    /// The longest time without an acknowledged write from the fault on.
    pub pause_ms: f64,
    /// How long a node took at most to answer a read, be it with an error, while its disk refused.
    pub victim_ms: Option<f64>,
    /// How long a node took to end that had to be restarted because its syncs had failed.
    pub stop_ms: Option<f64>,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Commands whose end the client does not know.
    pub unknown: u64,
    /// Commands that a node refused.
    pub refused: u64,
    /// Transactions in the history that was judged.
    pub history: usize,
    /// What must not be. Empty if all is well.
    pub problems: Vec<String>,
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// Whether links could be cut.
    pub namespaces: bool,
    /// Whether the nodes know ORDO.IDEMPOTENT. A cluster must.
    pub idempotent: bool,
    /// Over the rounds in which writes got on.
    pub resumed_ms: Spread,
    /// Over all rounds.
    pub pause_ms: Spread,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Rounds with problems.
    pub failed: usize,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// Runs the script. A round with problems ends it: what follows would be judged by a false ledger.
pub fn run(options: &Options) -> Result<Report> {
    let nodes = options.setting.nodes;
    if nodes == 0 || nodes > 60 || options.clients == 0 {
        bail!("--nodes must be from 1 to 60, and --clients at least 1");
    }
    let faults = faults(options)?;
    let interrupted = interruption()?;
    let mut random = SplitMix::new(options.seed);
    let schedule = script::schedule(&faults, options.rounds, &mut random);
    let network = options.namespaces.then(|| Network::new(nodes)).transpose()?;
    let mut processes = Processes::new(options.setting.clone(), network)?;
    if faults.iter().any(|fault| fault.needs_disk()) {
        processes.prepare_disks()?;
    }
    for node in 0..nodes {
        processes.start(node)?;
    }
    // Only threads that do nothing else enter the network: the caller's stays where it was.
    let rounds = std::thread::scope(|scope| {
        let run = scope.spawn(|| -> Result<_> {
            processes.enter()?;
            let load = Load::new(options.seed, processes.addresses());
            let mut run = Run {
                options,
                processes: &mut processes,
                load: &load,
                ledger: Ledger::default(),
                random,
                interrupted: &interrupted,
            };
            let rounds = run.rounds(&schedule)?;
            Ok((rounds, load.idempotent.into_inner()))
        });
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let (rounds, idempotent) = rounds?;
    let resumed: Vec<f64> = rounds.iter().filter_map(|round| round.resumed_ms).collect();
    let pauses: Vec<f64> = rounds.iter().map(|round| round.pause_ms).collect();
    Ok(Report {
        seed: options.seed,
        nodes,
        namespaces: options.namespaces,
        idempotent,
        resumed_ms: Spread::of(&resumed),
        pause_ms: Spread::of(&pauses),
        acknowledged: rounds.iter().map(|round| round.acknowledged).sum(),
        failed: rounds.iter().filter(|round| !round.problems.is_empty()).count(),
        rounds,
    })
}

fn faults(options: &Options) -> Result<Vec<Fault>> {
    let nodes = options.setting.nodes;
    let clocks = options.setting.faketime.is_some();
    let possible = |fault: &Fault| fault.is_possible(nodes, options.namespaces, clocks);
    if let Some(fault) = options.only.iter().find(|fault| !possible(fault)) {
        let name = fault.name();
        if !clocks && fault.sets_clocks() {
            bail!("--faults {name}: clocks are set with --clock-steps only, which needs libfaketime");
        }
        if !options.namespaces && fault.is_possible(nodes, true, clocks) {
            bail!(
                "--faults {name}: on the loopback interface no link can be cut: use --network namespaces, \
                 which needs root"
            );
        }
        bail!("--faults {name}: not possible with --nodes {nodes}");
    }
    if options.only.is_empty() {
        return Ok(Fault::ALL
            .iter()
            .map(|(_, fault)| *fault)
            .filter(|fault| possible(fault) && fault.sets_clocks() == clocks)
            .collect());
    }
    Ok(options.only.clone())
}

/// A fault that was done and survived.
struct Survived {
    what: String,
    since_ns: u64,
    resumed_ns: Option<u64>,
    /// What the nodes answered whose disks refused.
    victims: Option<Answers>,
}

struct Run<'a> {
    options: &'a Options,
    processes: &'a mut Processes,
    load: &'a Load,
    ledger: Ledger,
    random: SplitMix,
    interrupted: &'a AtomicBool,
}

impl Run<'_> {
    fn rounds(&mut self, schedule: &[Fault]) -> Result<Vec<Round>> {
        self.processes.wait_until_up(RECOVERY_MAX)?;
        let mut client = self.client(0)?;
        for account in 0..ACCOUNTS {
            let balance = OPENING_BALANCE.to_string();
            client.call(&["SET", &account_key(account), &balance])?.text("SET")?;
        }
        let progress = Progress::new(schedule.len() as u64);
        let mut rounds = Vec::new();
        for (index, &fault) in schedule.iter().enumerate() {
            progress.say(fault.name());
            let round = self.round(index + 1, fault)?;
            progress.advance();
            let failed = !round.problems.is_empty();
            rounds.push(round);
            if failed {
                break;
            }
        }
        Ok(rounds)
    }

    fn client(&self, node: usize) -> Result<Client> {
        let address = self.load.addresses()[node].to_string();
        Ok(Client::open(&address, PATIENCE)?)
    }

    fn round(&mut self, number: usize, fault: Fault) -> Result<Round> {
        let (load, clients) = (self.load, self.options.clients);
        let resume = Resume::default();
        let mut probes = Probes::new(number, load.addresses(), PATIENCE);
        if fault.sets_clocks() {
            probes.add(0)?;
        }
        load.begin();
        let (survived, mut seen) = std::thread::scope(|scope| {
            let resume = &resume;
            let workers: Vec<_> =
                (0..clients).map(|me| scope.spawn(move || load.work(number as u64, me, resume))).collect();
            let survived = self.survive(fault, resume, &mut probes);
            load.end();
            let seen: Vec<Seen> = workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            (survived, seen)
        });
        let Survived { what, since_ns, resumed_ns, victims } =
            survived.with_context(|| format!("round {number}, {}", fault.name()))?;
        let mut problems = Vec::new();
        if resumed_ns.is_none() {
            problems.push(format!("writes did not get on within {} s", RECOVERY_MAX.as_secs()));
        }
        if let Some(Answers { silent: 1.., .. }) = victims {
            problems.push(format!("a node did not answer reads: {victims:?}"));
        }
        let stop = std::mem::take(&mut self.processes.longest_stop);
        let mut acknowledged_ns: Vec<u64> =
            seen.iter().flat_map(|seen| seen.acknowledged_ns.iter().copied()).collect();
        let pause_ns = longest_pause_ns(&mut acknowledged_ns, since_ns);
        let mut history = Vec::new();
        let total = |count: fn(&Seen) -> u64| seen.iter().map(count).sum();
        let (unknown, refused) = (total(|seen| seen.unknown), total(|seen| seen.refused));
        for seen in &mut seen {
            self.ledger.learn(seen);
            history.append(&mut seen.operations);
        }
        if self.options.setting.nodes > 1 && !load.idempotent.load(Ordering::Relaxed) {
            problems.push("the nodes do not know ORDO.IDEMPOTENT".to_owned());
        }
        if fault.sets_clocks() {
            probes.judge(&mut problems)?;
        }
        let agreed = self.agree(&mut history);
        let anomaly = sim::history::check(&history).err();
        problems.extend(anomaly.map(|anomaly| anomaly.to_string()));
        match agreed {
            Ok(state) => problems.extend(self.ledger.judge(&state)),
            Err(error) => problems.push(format!("{error:#}")),
        }
        if problems.len() > SHOWN_MAX {
            let more = problems.len() - SHOWN_MAX;
            problems.truncate(SHOWN_MAX);
            problems.push(format!("and {more} more"));
        }
        let milliseconds = |ns: u64| (ns / 1_000) as f64 / 1_000.0;
        Ok(Round {
            round: number,
            fault: fault.name(),
            what,
            resumed_ms: resumed_ns.map(|at| milliseconds(at - since_ns)),
            pause_ms: milliseconds(pause_ns),
            victim_ms: victims.map(|answers| answers.longest.as_secs_f64() * 1e3),
            stop_ms: (!stop.is_zero()).then_some(stop.as_secs_f64() * 1e3),
            acknowledged: acknowledged_ns.len() as u64,
            unknown,
            refused,
            history: history.len(),
            problems,
        })
    }

    /// Does the fault when it is time, heals it, and waits until all is as before.
    fn survive(&mut self, fault: Fault, resume: &Resume, probes: &mut Probes) -> Result<Survived> {
        let before = BEFORE.0 + self.random.below(BEFORE.1 - BEFORE.0);
        let partition = self.random.below(u64::from(self.options.setting.partitions.max(1))) as u16;
        let goal = self.load.acknowledged() + before;
        loop {
            let acknowledged = self.load.acknowledged();
            if acknowledged >= goal {
                break;
            }
            if !self.wait(|run| run.load.acknowledged() > acknowledged)? {
                bail!("no write was acknowledged within {} s", RECOVERY_MAX.as_secs());
            }
        }
        // On a busy machine the nodes may elect just now, or answer late.
        let mut leader = None;
        self.wait(|run| {
            leader = run.processes.leader(partition).ok();
            leader.is_some()
        })?;
        let leader = leader.map_or_else(|| self.processes.leader(partition), Ok)?;
        let addresses = self.processes.addresses();
        let probe = fault.needs_disk().then(|| Probe::start(&addresses));
        let since_ns = self.load.now_ns();
        let injected = Instant::now();
        let done = script::inject(fault, leader, self.processes, &mut self.random)?;
        let nodes = self.options.setting.nodes;
        resume.begin(self.load.now_ns(), nodes, &done.victims);
        // If nobody is left, writes get on only when it is over.
        let all = done.victims.len() == nodes;
        if !all && !self.wait(|_| resume.first_ns().is_some())? {
            self.processes.heal()?;
            return Ok(Survived { what: done.what, since_ns, resumed_ns: None, victims: None });
        }
        if fault.sets_clocks() {
            // What is written while clocks are wrong.
            for node in (0..nodes).filter(|node| !done.victims.contains(node)) {
                self.wait(|_| probes.add(node).is_ok())?;
            }
        }
        std::thread::sleep(done.lasts.saturating_sub(injected.elapsed()));
        let victims = probe.map(|probe| worst(&probe.end(), &done.victims));
        self.processes.heal()?;
        if all {
            self.wait(|_| resume.first_ns().is_some())?;
        }
        self.processes.wait_until_up(RECOVERY_MAX)?;
        for node in 0..nodes {
            let mut served = 0;
            loop {
                let before = served;
                if self.wait(|run| run.serves(node, &mut served))? {
                    break;
                }
                if served == before {
                    bail!("{} did not acknowledge {AFTER} writes once it was back", processes::name(node));
                }
            }
        }
        Ok(Survived { what: done.what, since_ns, resumed_ns: resume.first_ns(), victims })
    }

    /// Whether a node has acknowledged enough writes, of which `served` counts the first. Clients come to a
    /// node by chance and stay where they are; this one is sure to come.
    fn serves(&self, node: usize, served: &mut u64) -> bool {
        let Ok(mut client) = self.client(node) else {
            return false;
        };
        while *served < AFTER && matches!(client.call(&["INCR", "served"]), Ok(Answer::Text(_))) {
            *served += 1;
        }
        *served == AFTER
    }

    /// Waits until something holds, at most as long as a recovery may take. A node that ends is an error.
    fn wait(&mut self, mut holds: impl FnMut(&Self) -> bool) -> Result<bool> {
        let deadline = Instant::now() + RECOVERY_MAX;
        while !holds(self) {
            if self.interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            self.processes.hold_alive()?;
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    /// Reads everything at every node until all have the same, which a write can delay whose end nobody
    /// knows. A node may answer late, too. The last reads go into the history.
    fn agree(&mut self, history: &mut Vec<Operation>) -> Result<State> {
        let keys = self.ledger.keys();
        let deadline = Instant::now() + RECOVERY_MAX;
        loop {
            self.processes.hold_alive()?;
            let mut states = match self.read_everywhere(&keys, history) {
                Ok(states) => states,
                Err(_) if Instant::now() < deadline => continue,
                Err(error) => return Err(error),
            };
            let (first, reference) = &states[0];
            let Some((other, state)) = states.iter().find(|(_, state)| state != reference) else {
                return Ok(states.swap_remove(0).1);
            };
            if Instant::now() > deadline {
                let different = keys.iter().find(|key| reference.get(*key) != state.get(*key));
                let key = different.map_or("", String::as_str);
                bail!(
                    "nodes do not agree: {key} is {:?} at {first} and {:?} at {other}",
                    reference.get(key),
                    state.get(key)
                );
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Reads the keys at each node, and where there are several, also without asking the others.
    fn read_everywhere(&self, keys: &[String], history: &mut Vec<Operation>) -> Result<Vec<(String, State)>> {
        let nodes = self.options.setting.nodes;
        let mut states = Vec::new();
        for node in 0..nodes {
            let mut client = self.client(node)?;
            let invoked_ns = self.load.now_ns();
            let state = ledger::read(&mut client, keys)?;
            let completed_ns = self.load.now_ns();
            self.ledger.last_reads(&state, self.load.next_client(), invoked_ns, completed_ns, history);
            states.push((processes::name(node), state));
        }
        // One node reads its own data anyway.
        for node in (0..nodes).filter(|_| nodes > 1) {
            let mut client = self.client(node)?;
            client.call(&["READONLY"])?.text("READONLY")?;
            let label = format!("{}, READONLY", processes::name(node));
            states.push((label, ledger::read(&mut client, keys)?));
        }
        Ok(states)
    }
}

/// The worst that some nodes answered.
fn worst(answers: &[Answers], nodes: &[usize]) -> Answers {
    let mut all = Answers::default();
    for answers in nodes.iter().map(|&node| answers[node]) {
        all.longest = all.longest.max(answers.longest);
        all.count += answers.count;
        all.errors += answers.errors;
        all.silent += answers.silent;
    }
    all
}

/// The rounds as a table.
pub fn table(report: &Report) -> Table {
    let shown = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.0}"));
    let rows = report.rounds.iter().map(|round| {
        vec![
            round.round.to_string(),
            round.fault.to_owned(),
            round.what.clone(),
            round.resumed_ms.map_or("never".to_owned(), |resumed| format!("{resumed:.0}")),
            format!("{:.0}", round.pause_ms),
            shown(round.victim_ms),
            shown(round.stop_ms),
            round.acknowledged.to_string(),
            round.unknown.to_string(),
            round.refused.to_string(),
            round.history.to_string(),
            if round.problems.is_empty() { "yes" } else { "NO" }.to_owned(),
        ]
    });
    let header = [
        "round",
        "fault",
        "done",
        "resumed ms",
        "pause ms",
        "answer ms",
        "end ms",
        "acknowledged",
        "unknown",
        "refused",
        "history",
        "right",
    ];
    report::table(&header, rows.collect())
}

/// A few lines about the whole run.
pub fn summary(report: &Report) -> String {
    let Report { resumed_ms: resumed, pause_ms: pause, .. } = report;
    let mut text = format!(
        "{} rounds, {} nodes, {} writes acknowledged. After a fault, writes got on within {:.0} ms \
         (median; {:.0} at most); the longest time without an acknowledged write was {:.0} ms (median of \
         the rounds; {:.0} at most).",
        report.rounds.len(),
        report.nodes,
        report.acknowledged,
        resumed.median,
        resumed.max,
        pause.median,
        pause.max
    );
    if !report.idempotent {
        text.push_str("\nThe node does not know ORDO.IDEMPOTENT, so exactness was not tried.");
    }
    text
}
