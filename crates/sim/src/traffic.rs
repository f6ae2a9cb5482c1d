//! What the clients of a world ask for.

use crate::draw::Draw;
use crate::oracle::Expected;
use crate::program::{Programs, Shape, route_of_keys};
use crate::redis::RedisSource;
use crate::scenario::{ProgramSource, Source};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use txn::hash::hash_bytes;
use txn::{
    Args, Blob, Call, Entry, FnProcedure, Footprint, Intent, Key, Outcome, PartitionRoute, Procedure,
    Registry, Reply, Request, RequestId, Slots, Stop, Tx, Weight,
};
use workloads::tpcc::{Mix, Scale};
use workloads::{Bank, Client, Generator, Tpcc, Workload};

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// Random programs whose values carry their history ([`crate::program`]).
    Programs,
    /// Redis commands, blocks and scripts ([`crate::redis`]).
    Redis,
    /// Appends to lists and reads of them: what the checker of histories takes.
    Append,
    /// Transfers and audits.
    Bank,
    /// All five profiles of TPC-C, over small tables.
    Tpcc,
}

impl WorkloadKind {
    /// All of them.
    pub const ALL: [WorkloadKind; 5] = [
        WorkloadKind::Programs,
        WorkloadKind::Redis,
        WorkloadKind::Append,
        WorkloadKind::Bank,
        WorkloadKind::Tpcc,
    ];

    /// The name, as `--workload` takes it.
    pub fn name(self) -> &'static str {
        match self {
            WorkloadKind::Programs => "programs",
            WorkloadKind::Redis => "redis",
            WorkloadKind::Append => "append",
            WorkloadKind::Bank => "bank",
            WorkloadKind::Tpcc => "tpcc",
        }
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WorkloadKind {
    type Err = String;
    fn from_str(text: &str) -> Result<WorkloadKind, String> {
        WorkloadKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = WorkloadKind::ALL.map(WorkloadKind::name).join(", ");
            format!("'{text}' is no workload of the simulator: use one of {names}")
        })
    }
}

/// A transaction that a client asks for.
#[derive(Clone)]
pub struct Draft {
    /// What to do.
    pub procedure: Arc<dyn Procedure>,
    /// With what.
    pub args: Args,
    /// What it touches.
    pub footprint: Footprint,
    /// Where, if the partitions share a key space and no slot has moved.
    pub route: PartitionRoute,
    /// It may turn out to touch more.
    pub strays: bool,
}

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.procedure.name())?;
        for word in self.args.iter() {
            write!(f, " {word:?}")?;
        }
        Ok(())
    }
}

impl Draft {
    fn of(request: &Request) -> Draft {
        Draft {
            procedure: request.procedure.clone(),
            args: request.args.clone(),
            footprint: request.footprint.clone(),
            route: request.route.clone(),
            strays: false,
        }
    }
    /// Where, if the partitions share a key space with these slots.
    pub fn route(&self, slots: &Slots) -> PartitionRoute {
        if slots.is_even() {
            return self.route.clone();
        }
        match self.procedure.footprint(&self.args).certain_keys() {
            Some(keys) => PartitionRoute::of_keys(keys.reads.iter().chain(&keys.writes), slots),
            None => PartitionRoute::everywhere(slots),
        }
    }
    /// The bytes of its arguments.
    pub fn bytes(&self) -> u64 {
        self.args.iter().map(|word| 8 + word.len() as u64).sum()
    }
}

/// What all clients of a run do, and the procedures for it.
pub struct Population {
    kind: WorkloadKind,
    seed: u64,
    clients: u16,
    /// Shared by all clients, so that they meet.
    shape: Shape,
    programs: Arc<Programs>,
    workload: Option<Arc<dyn Workload>>,
    loader: Option<Loader>,
    lists: u64,
    /// How many partitions share the key space.
    partitions: u16,
    description: String,
}

/// Records that are there before a workload's first call.
struct Loader {
    procedure: Arc<dyn Procedure>,
    records: usize,
    at_once: usize,
}

/// The procedure that loads a workload's initial records.
pub const LOAD: &str = "sim.load";
/// Records that one loading transaction writes, for each partition that it writes at.
const LOADED_AT_ONCE: usize = 64;

impl Population {
    /// The population of a kind, over so many partitions that share a key space; the rest is drawn from
    /// `seed`.
    pub fn new(kind: WorkloadKind, clients: u16, warehouses: u32, partitions: u16, seed: u64) -> Population {
        let mut draw = Draw::new(seed);
        let shape = Shape::draw(&mut draw);
        let mut description = String::new();
        let workload: Option<Arc<dyn Workload>> = match kind {
            WorkloadKind::Bank => Some(described(
                &mut description,
                Bank {
                    accounts: draw.pick(&[10, 60, 300]),
                    branch_accounts: draw.pick(&[5, 20]),
                    audit_percent: draw.pick(&[10, 50]),
                },
            )),
            WorkloadKind::Tpcc => Some(described(
                &mut description,
                Tpcc {
                    // Each partition has one.
                    warehouses: warehouses.max(u32::from(partitions)),
                    mix: Mix::Full { update_percent: draw.pick(&[10, 50, 90]) },
                    remote: draw.percent(70),
                    scale: match partitions {
                        1 => Scale { items: 100, customers: 10 },
                        _ => Scale { items: 40, customers: 3 },
                    },
                    partitions,
                    ..Tpcc::default()
                },
            )),
            _ => None,
        };
        let lists = draw.pick(&[1, 3, 10]);
        match kind {
            WorkloadKind::Programs => description = format!("{shape:?}"),
            WorkloadKind::Redis => {
                description = RedisSource::draw(&mut Draw::new(seed), partitions).describe();
            }
            WorkloadKind::Append => description = format!("{lists} lists"),
            WorkloadKind::Bank | WorkloadKind::Tpcc => {}
        }
        let loader = workload.as_ref().map(|workload| Loader::new(&**workload, seed, partitions));
        Population {
            kind,
            seed,
            clients,
            programs: Programs::new(shape.clone()),
            shape,
            workload,
            loader,
            lists,
            partitions,
            description,
        }
    }

    /// What was drawn.
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// The procedures, for logs to be read back.
    pub fn registry(&self) -> Registry {
        self.registry_of(|procedure| procedure)
    }

    /// The same, with those of the workload as `made` makes them.
    pub fn registry_of(&self, made: impl Fn(Arc<dyn Procedure>) -> Arc<dyn Procedure>) -> Registry {
        let mut registry = Registry::new();
        let mut procedures: Vec<Arc<dyn Procedure>> = vec![self.programs.clone(), append()];
        if let Some(loader) = &self.loader {
            procedures.push(loader.procedure.clone());
        }
        if let Some(workload) = &self.workload {
            procedures.extend(workload.procedures());
        }
        for procedure in procedures {
            registry.register(made(procedure)).expect("the names of a run's procedures differ");
        }
        redis_surface::register(&mut registry).expect("commands have names of their own");
        registry
    }

    /// The workload whose state can be checked, if it is one.
    pub fn workload(&self) -> Option<&Arc<dyn Workload>> {
        self.workload.as_ref()
    }

    /// The transactions that load the initial records.
    pub fn loads(&self) -> Vec<Draft> {
        let Some(loader) = &self.loader else {
            return Vec::new();
        };
        (0..loader.records)
            .step_by(loader.at_once)
            .map(|from| Draft {
                procedure: loader.procedure.clone(),
                args: Args::one(&(from as u64).to_le_bytes()),
                footprint: Footprint::unknown(),
                route: PartitionRoute::everywhere(&Slots::even(self.partitions)),
                strays: false,
            })
            .collect()
    }

    /// One client's traffic.
    pub fn traffic(&self, client: u16) -> Traffic {
        let stream = match self.kind {
            WorkloadKind::Programs => Stream::Source(Box::new(ProgramSource::new(self.shape.clone()))),
            // The same draw for everyone: the same keys.
            WorkloadKind::Redis => {
                Stream::Source(Box::new(RedisSource::draw(&mut Draw::new(self.seed), self.partitions)))
            }
            WorkloadKind::Append => {
                Stream::Append { client: u64::from(client), lists: self.lists, procedure: append() }
            }
            WorkloadKind::Bank | WorkloadKind::Tpcc => {
                let workload = self.workload.as_ref().expect("made with the population");
                let client = Client { index: usize::from(client), count: usize::from(self.clients) };
                Stream::Generator(workload.generator(self.seed, client))
            }
        };
        Traffic { stream, sequence: 0, partitions: self.partitions, programs: self.programs.clone() }
    }
}

/// Writes down what a workload is like.
fn described<W: Workload + fmt::Debug + 'static>(description: &mut String, workload: W) -> Arc<dyn Workload> {
    *description = format!("{workload:?}");
    Arc::new(workload)
}

impl Loader {
    fn new(workload: &dyn Workload, seed: u64, partitions: u16) -> Loader {
        let at_once = LOADED_AT_ONCE * usize::from(partitions);
        let mut records: Vec<(Key, Entry)> = Vec::new();
        for part in 0..workload.parts() {
            workload.load(seed, part, &mut |key, entry| records.push((key, entry)));
        }
        let count = records.len();
        let records = Arc::new(records);
        let procedure = FnProcedure::new(LOAD, move |mut tx: Tx, call: Call| {
            let records = records.clone();
            async move {
                let from = call
                    .first()
                    .and_then(|word| word.as_bytes().try_into().ok())
                    .map(u64::from_le_bytes)
                    .ok_or_else(|| Stop::abort("ERR malformed arguments"))?;
                let from = usize::try_from(from).unwrap_or(usize::MAX);
                for (key, entry) in records.iter().skip(from).take(at_once) {
                    tx.put_entry(key, entry.clone()).await?;
                }
                Ok(Reply::OK)
            }
        });
        Loader { procedure: Arc::new(procedure), records: count, at_once }
    }
}

enum Stream {
    Source(Box<dyn Source>),
    Generator(Box<dyn Generator>),
    Append { client: u64, lists: u64, procedure: Arc<dyn Procedure> },
}

/// What one client does.
pub struct Traffic {
    stream: Stream,
    sequence: u64,
    partitions: u16,
    programs: Arc<Programs>,
}

impl Traffic {
    /// The next transaction.
    pub fn next(&mut self, draw: &mut Draw) -> Draft {
        let mut draft = self.draft(draw);
        if self.partitions > 1 {
            self.place(&mut draft, draw);
        }
        draft
    }

    /// Finds out where a transaction runs, if its source has not told.
    fn place(&self, draft: &mut Draft, draw: &mut Draw) {
        let of = self.partitions;
        match &self.stream {
            Stream::Source(_) if draft.procedure.name() == self.programs.name() => {
                (draft.route, draft.strays) = self.programs.route(&draft.args, of, draw);
            }
            Stream::Source(_) => draft.strays = may_stray(draft),
            Stream::Append { .. } => {
                let steps = draft.args.iter().filter_map(AppendStep::decode);
                draft.route = route_of_keys(steps.map(AppendStep::key), of);
            }
            Stream::Generator(_) if draft.route.of() != of => {
                // One that knows nothing of partitions names its keys.
                let keys = draft.procedure.footprint(&draft.args).keys;
                let keys = keys.iter().flat_map(|keys| keys.reads.iter().chain(&keys.writes));
                draft.route = route_of_keys(keys.cloned(), of);
            }
            Stream::Generator(_) => {}
        }
    }

    fn draft(&mut self, draw: &mut Draw) -> Draft {
        self.sequence += 1;
        let sequence = self.sequence;
        match &mut self.stream {
            Stream::Source(source) => {
                let mut draft = Draft::of(&source.request(sequence, draw));
                // What is known of a script's cost depends on what else the process ran before: the world
                // must not.
                if let Some(weight) = weight_in_worlds(&*draft.procedure, &draft.args) {
                    draft.footprint.weight = weight;
                }
                draft
            }
            Stream::Generator(generator) => {
                let request = generator.next().into_request(RequestId::default(), false);
                Draft::of(&request)
            }
            Stream::Append { client, lists, procedure } => {
                let reads_only = draw.percent(40);
                let steps = draw.between(1, 4);
                let args: Args = (0..steps)
                    .map(|step| {
                        let list = draw.below(*lists);
                        let value = if reads_only || draw.percent(40) {
                            0
                        } else {
                            *client << 40 | sequence << 8 | (step + 1)
                        };
                        AppendStep { list, value }.encode()
                    })
                    .collect();
                let footprint = if reads_only { Footprint::read_only() } else { Footprint::unknown() };
                Draft {
                    procedure: procedure.clone(),
                    args,
                    footprint,
                    route: PartitionRoute::default(),
                    strays: false,
                }
            }
        }
    }

    /// A transaction is answered: later ones may build on it.
    pub fn answered(&mut self, draft: &Draft, outcome: &Outcome) {
        if let Stream::Source(source) = &mut self.stream {
            let mut request = Request::new(RequestId::default(), draft.procedure.clone(), draft.args.clone());
            request.footprint = draft.footprint.clone();
            source.answered(&request, &Expected::Outcome(outcome.clone()));
        }
    }
}

/// Whether a Redis transaction may touch keys that its words do not tell.
fn may_stray(draft: &Draft) -> bool {
    let name = draft.procedure.name();
    let runs_scripts = ["redis.eval", "redis.block", "redis.idempotent"];
    runs_scripts.iter().any(|start| name.starts_with(start))
}

/// How heavy what may run scripts is in worlds, wherever it comes from: a client, another node, or a log.
/// What is known of a script's cost depends on what else the process ran before.
pub(crate) fn weight_in_worlds(procedure: &dyn Procedure, args: &Args) -> Option<Weight> {
    match procedure.name() {
        "redis.block" | "redis.idempotent" => {
            let bits = args.iter().fold(0, |bits, word| bits ^ hash_bytes(word));
            Some(if bits % 2 == 0 { Weight::Light } else { Weight::Heavy })
        }
        name => name.starts_with("redis.eval").then_some(Weight::Heavy),
    }
}

/// A step of a transaction of [`WorkloadKind::Append`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendStep {
    /// Which list.
    pub list: u64,
    /// What to append; 0 reads the list.
    pub value: u64,
}

impl AppendStep {
    fn encode(self) -> Blob {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.list.to_le_bytes());
        bytes[8..].copy_from_slice(&self.value.to_le_bytes());
        Blob::new(&bytes)
    }

    /// The step of an argument.
    pub fn decode(word: &Blob) -> Option<AppendStep> {
        let bytes: &[u8; 16] = word.as_bytes().try_into().ok()?;
        let half = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_le_bytes);
        Some(AppendStep { list: half(0)?, value: half(8)? })
    }

    fn key(self) -> Key {
        Key::from(format!("list:{}", self.list).as_str())
    }
}

/// The numbers of a list as a read replies them.
pub fn numbers(list: &[u8]) -> Vec<u64> {
    list.chunks_exact(8).map(|chunk| chunk.iter().rev().fold(0, |sum, &b| sum << 8 | u64::from(b))).collect()
}

/// Appends to lists and reads them, step by step. Replies with what each read saw.
fn append() -> Arc<dyn Procedure> {
    Arc::new(FnProcedure::new("sim.append", |mut tx: Tx, call: Call| async move {
        let mut replies = Vec::new();
        for word in call.iter() {
            let step = AppendStep::decode(word).ok_or_else(|| Stop::abort("ERR malformed arguments"))?;
            let key = step.key();
            let intent = if step.value == 0 { Intent::Read } else { Intent::Update };
            let entry = tx.read(&key, intent).await?.entry;
            let list = entry.as_ref().and_then(|entry| entry.value.as_string());
            let list: &[u8] = list.as_ref().map_or(&[], |list| list.as_bytes());
            if step.value == 0 {
                replies.push(Reply::bulk(list));
            } else {
                let longer = [list, &step.value.to_le_bytes()].concat();
                tx.put(&key, Blob::from(longer)).await?;
            }
        }
        Ok(Reply::Array(replies))
    }))
}

/// A hash of a reply, for digests.
pub fn hash_of(outcome: &Outcome) -> u64 {
    hash_bytes(format!("{outcome:?}").as_bytes())
}
