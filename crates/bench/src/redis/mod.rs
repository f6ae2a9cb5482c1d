//! Drives a server over the network with the workloads that Redis and Ordo are compared by.
//!
//! | workload | what each client does in a loop |
//! |---|---|
//! | `get`, `set` | one command on a random key of `keys`; keys and values of 16 bytes |
//! | `fill` | sets every key once, by one client, and reports what the server's memory is then |
//! | `incr`, `incr-hot` | one command on a random counter of `keys`, or all on the same one |
//! | `lpush`, ... | one command on a collection that all clients share, as `redis-benchmark` has them |
//! | `lpush-many`, ... | the same on one of 100,000 collections |
//! | `fill-hashes`, ... | makes `keys` small collections, or one that is large, by one client |
//! | `transfer` | a script moves a random amount between two random accounts; no money may be lost |
//! | `script50us` | a script computes for about 50 us and updates a record that no other client touches |
//! | `longscript` | one client's script runs about 200 ms; the others' GET and SET are measured meanwhile |
//!
//! A closed loop: each client waits for its replies before it sends again.

pub mod load;
mod replies;
pub(crate) mod template;

use crate::report::{LatencySummary, Record, Spread};
use anyhow::{Context, Result, bail};
use load::{Class, Measured, Target, Until};
use server::client::{Answer, Client};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use template::{Part, Template};

/// Accounts of the transfer workload, each opened with [`OPENING_BALANCE`].
pub const ACCOUNTS: u64 = 100_000;
/// What every account starts with.
pub(crate) const OPENING_BALANCE: u64 = 1_000;
/// Collections of the workloads that have many.
const COLLECTIONS: u64 = 100_000;
/// Records that each client of the script workloads owns.
const OWN_RECORDS: u64 = 1_000;
/// Commands in one pipeline while loading.
pub(crate) const LOAD_PIPELINE: usize = 500;
/// How long a calibrated script must take before its time is believed.
const CALIBRATION: Duration = Duration::from_millis(40);

pub(crate) const TRANSFER: &str = "local amount = tonumber(ARGV[1])
if tonumber(redis.call('GET', KEYS[1])) < amount then return 0 end
redis.call('DECRBY', KEYS[1], amount)
redis.call('INCRBY', KEYS[2], amount)
return 1";

const COMPUTE: &str = "local x = tonumber(redis.call('GET', KEYS[1]) or '1')
for i = 1, tonumber(ARGV[1]) do x = (x * 16807) % 2147483647 end
redis.call('SET', KEYS[1], string.format('%d', x))
return 1";

/// How many collections the clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collections {
    /// One, as `redis-benchmark` has it.
    One,
    /// [`COLLECTIONS`]: each command draws one.
    Many,
}

/// Commands as `redis-benchmark` sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One element to a list.
    Lpush,
    /// One of a million members to a set.
    Sadd,
    /// One of a million fields of a hash.
    Hset,
    /// One of a million members to a sorted set, with a random score.
    Zadd,
    /// An entry to a stream.
    Xadd,
    /// The first hundred elements of a list.
    Lrange,
    /// Ten random keys at once.
    Mset,
    /// A counter.
    Incr,
}

impl Kind {
    /// The words of the command.
    fn words(self, collections: Collections, keys: u64) -> Vec<Vec<Part<'static>>> {
        let text = |text| vec![Part::Text(text)];
        let member = || vec![Part::Text("element:"), number(12, 1_000_000)];
        let value = || vec![Part::Text("value:"), number(10, 10_000_000_000)];
        let key = || vec![Part::Text("key:"), number(12, keys)];
        let collection = |name| match collections {
            Collections::One => vec![Part::Text(name)],
            Collections::Many => vec![Part::Text(name), Part::Text(":"), number(6, COLLECTIONS)],
        };
        match self {
            Kind::Lpush => vec![text("LPUSH"), collection("bench:list"), value()],
            Kind::Sadd => vec![text("SADD"), collection("bench:set"), member()],
            Kind::Hset => vec![text("HSET"), collection("bench:hash"), member(), value()],
            Kind::Zadd => vec![text("ZADD"), collection("bench:zset"), vec![number(6, 1_000_000)], member()],
            Kind::Xadd => vec![text("XADD"), collection("bench:stream"), text("*"), text("field"), value()],
            Kind::Lrange => vec![text("LRANGE"), text("bench:range"), text("0"), text("99")],
            Kind::Mset => {
                std::iter::once(text("MSET")).chain((0..10).flat_map(|_| [key(), value()])).collect()
            }
            Kind::Incr => {
                let counter = match collections {
                    Collections::One => text("bench:counter"),
                    Collections::Many => vec![Part::Text("bench:counter:"), number(12, keys)],
                };
                vec![text("INCR"), counter]
            }
        }
    }
}

/// Collections that are made to see what memory they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// Small ones: hashes of five fields.
    Hashes,
    /// Sets of ten members.
    Sets,
    /// Sorted sets of ten members.
    SortedSets,
    /// Lists of ten elements.
    Lists,
    /// Streams of ten entries.
    Streams,
    /// One sorted set with as many members as there are keys.
    LargeSortedSet,
}

impl Filling {
    /// The commands that make them, for this number of keys.
    fn commands(self, keys: u64) -> Box<dyn Iterator<Item = Vec<String>>> {
        const MEMBERS: u64 = 10;
        const FIELDS: u64 = 5;
        // Members to a command of the large collection.
        const PORTION: u64 = 100;
        let small = move |command: &'static str, words: fn(u64, u64) -> Vec<String>, members: u64| {
            let of = move |key| {
                let head = [command.to_owned(), format!("bench:{command}:{key:08}")];
                head.into_iter().chain((0..members).flat_map(move |member| words(key, member))).collect()
            };
            Box::new((0..keys).map(of)) as Box<dyn Iterator<Item = Vec<String>>>
        };
        match self {
            Filling::Hashes => small(
                "HSET",
                |key, n| vec![format!("field:{n}"), format!("value:{:06}", key % 1_000_000)],
                FIELDS,
            ),
            Filling::Sets => {
                small("SADD", |key, n| vec![format!("member:{:06}", key % 100_000 * 10 + n)], MEMBERS)
            }
            Filling::SortedSets => small(
                "ZADD",
                |key, n| {
                    vec![((key + n) % 1_000).to_string(), format!("member:{:06}", key % 100_000 * 10 + n)]
                },
                MEMBERS,
            ),
            Filling::Lists => {
                small("RPUSH", |key, n| vec![format!("value:{:06}", (key + n) % 1_000_000)], MEMBERS)
            }
            Filling::Streams => Box::new((0..keys * MEMBERS).map(move |n| {
                let (key, entry) = (n / MEMBERS, n % MEMBERS + 1);
                let words = ["XADD", &format!("bench:XADD:{key:08}"), &format!("{entry}-1"), "field"];
                words.map(str::to_owned).into_iter().chain([format!("value:{:06}", n % 1_000_000)]).collect()
            })),
            Filling::LargeSortedSet => Box::new((0..keys).step_by(PORTION as usize).map(move |first| {
                let members = first..keys.min(first + PORTION);
                let words = members
                    .flat_map(|n| [(txn::hash::mix(n) % 1_000_000).to_string(), format!("element:{n:012}")]);
                ["ZADD", "bench:zset"].map(str::to_owned).into_iter().chain(words).collect()
            })),
        }
    }
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// GET of random keys.
    Get,
    /// SET of random keys.
    Set,
    /// A command of another kind.
    Command(Kind, Collections),
    /// SET of every key once.
    Fill,
    /// Collections are made.
    FillWith(Filling),
    /// A script over two random accounts.
    Transfer,
    /// A short computation over own records.
    Script50us,
    /// Others' latency during long scripts.
    LongScript,
}

impl Workload {
    /// All workloads with their names.
    pub const ALL: [(&'static str, Workload); 26] = [
        ("get", Workload::Get),
        ("set", Workload::Set),
        ("incr-hot", Workload::Command(Kind::Incr, Collections::One)),
        ("incr", Workload::Command(Kind::Incr, Collections::Many)),
        ("lpush", Workload::Command(Kind::Lpush, Collections::One)),
        ("sadd", Workload::Command(Kind::Sadd, Collections::One)),
        ("hset", Workload::Command(Kind::Hset, Collections::One)),
        ("zadd", Workload::Command(Kind::Zadd, Collections::One)),
        ("xadd", Workload::Command(Kind::Xadd, Collections::One)),
        ("lpush-many", Workload::Command(Kind::Lpush, Collections::Many)),
        ("sadd-many", Workload::Command(Kind::Sadd, Collections::Many)),
        ("hset-many", Workload::Command(Kind::Hset, Collections::Many)),
        ("zadd-many", Workload::Command(Kind::Zadd, Collections::Many)),
        ("xadd-many", Workload::Command(Kind::Xadd, Collections::Many)),
        ("lrange", Workload::Command(Kind::Lrange, Collections::One)),
        ("mset", Workload::Command(Kind::Mset, Collections::One)),
        ("fill", Workload::Fill),
        ("fill-hashes", Workload::FillWith(Filling::Hashes)),
        ("fill-sets", Workload::FillWith(Filling::Sets)),
        ("fill-zsets", Workload::FillWith(Filling::SortedSets)),
        ("fill-lists", Workload::FillWith(Filling::Lists)),
        ("fill-streams", Workload::FillWith(Filling::Streams)),
        ("fill-large-zset", Workload::FillWith(Filling::LargeSortedSet)),
        ("transfer", Workload::Transfer),
        ("script50us", Workload::Script50us),
        ("longscript", Workload::LongScript),
    ];

    /// The workload's name.
    pub fn name(self) -> &'static str {
        Workload::ALL.iter().find(|(_, workload)| *workload == self).map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Workload {
    type Err = anyhow::Error;
    fn from_str(name: &str) -> Result<Workload> {
        let names: Vec<&str> = Workload::ALL.iter().map(|(name, _)| *name).collect();
        Workload::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, workload)| *workload)
            .with_context(|| format!("unknown workload '{name}': choose one of {}", names.join(", ")))
    }
}

/// How to drive a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub target: Target,
    /// What reports call it.
    pub label: String,
    /// What the clients do.
    pub workload: Workload,
    /// Connections.
    pub clients: usize,
    /// Commands that a client sends at once.
    pub pipeline: usize,
    /// Keys of `get`, `set` and `fill`.
    pub keys: u64,
    /// When the run ends.
    pub until: Until,
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// The seed of the keys drawn.
    pub seed: u64,
    /// Loop count of the computing scripts; found on the server if not given.
    pub iterations: Option<u64>,
    /// Whether keys and accounts must be loaded first.
    pub load: bool,
}

/// Loads what the workload needs, runs it, checks it, and reports one record (three for `longscript`).
pub fn run(options: &Options) -> Result<Vec<Record>> {
    if options.clients == 0 || options.pipeline == 0 || options.keys == 0 {
        bail!("--clients, --pipeline and --keys must be at least 1");
    }
    let mut client = options.connect()?;
    match options.workload {
        Workload::Fill | Workload::FillWith(_) => {
            let started = Instant::now();
            match options.workload {
                Workload::FillWith(filling) => client
                    .pipeline(filling.commands(options.keys), LOAD_PIPELINE, |answer| {
                        answer.text("a collection").map(drop)
                    })
                    .context("making the collections failed")?,
                _ => fill(&mut client, options.keys)?,
            }
            let measured = Measured { elapsed: started.elapsed(), ..Measured::default() };
            let name = options.workload.name();
            let mut record = options.record(name, 1, 1, &measured, memory_bytes(&mut client));
            record.committed = options.keys;
            record.throughput_per_s = options.keys as f64 / record.seconds;
            record.options.insert("keys".into(), options.keys.to_string());
            Ok(vec![record])
        }
        Workload::Get | Workload::Set => {
            if options.load {
                fill(&mut client, options.keys)?;
            }
            let name = options.workload.name();
            let class =
                options.commands(options.workload == Workload::Get, options.clients, options.pipeline, 1);
            let measured = options.measure(vec![class])?;
            let mut record = options.record(
                name,
                options.clients,
                options.pipeline,
                &measured[0],
                memory_bytes(&mut client),
            );
            record.options.insert("keys".into(), options.keys.to_string());
            Ok(vec![record])
        }
        Workload::Command(kind, collections) => {
            if kind == Kind::Lrange {
                let words = ["RPUSH".to_owned(), "bench:range".to_owned()];
                let elements = (0..100).map(|n| format!("value:{n:010}"));
                let fill: Vec<String> = words.into_iter().chain(elements).collect();
                let clear = vec!["DEL".to_owned(), "bench:range".to_owned()];
                client.pipeline([clear, fill].into_iter(), LOAD_PIPELINE, |_| Ok::<(), anyhow::Error>(()))?;
            }
            let words = kind.words(collections, options.keys);
            let words: Vec<&[Part<'_>]> = words.iter().map(Vec::as_slice).collect();
            let class = options.class(options.clients, options.pipeline, 1, |_| words.clone());
            let mut measured = options.measure(vec![class])?;
            // That a member was there already is no failure.
            measured[0].tally.zeros = 0;
            let memory = memory_bytes(&mut client);
            let (clients, pipeline) = (options.clients, options.pipeline);
            let name = options.workload.name();
            let record = options.record(name, clients, pipeline, &measured[0], memory);
            Ok(vec![record])
        }
        Workload::Transfer => transfer(options, &mut client),
        Workload::Script50us => {
            let sha = load_script(&mut client, COMPUTE)?;
            let iterations = options.iterations(&mut client, &sha, Duration::from_micros(50))?;
            let class = options.computations(&sha, iterations, options.clients, options.pipeline);
            let measured = options.measure(vec![class])?;
            let memory = memory_bytes(&mut client);
            let mut record =
                options.record("script50us", options.clients, options.pipeline, &measured[0], memory);
            record.options.insert("iterations".into(), iterations.to_string());
            Ok(vec![record])
        }
        Workload::LongScript => long_script(options, &mut client),
    }
}

/// Finds the loop count with which the server computes for `duration`.
pub fn calibrate(target: &Target, duration: Duration) -> Result<u64> {
    let mut client = Client::connect(&target.host, target.port, target.password.as_deref())?;
    let sha = load_script(&mut client, COMPUTE)?;
    calibrated(&mut client, &sha, duration)
}

/// Resident memory by the server's own account; 0 if it does not say.
pub fn memory_bytes(client: &mut Client) -> u64 {
    let Ok(Answer::Text(info)) = client.call(&["INFO", "memory"]) else {
        return 0;
    };
    info.lines()
        .find_map(|line| line.trim_end().strip_prefix("used_memory_rss:"))
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or(0)
}

fn transfer(options: &Options, client: &mut Client) -> Result<Vec<Record>> {
    let sha = load_script(client, TRANSFER)?;
    if options.load {
        let openings = (0..ACCOUNTS).map(|n| vec!["SET".into(), account(n), OPENING_BALANCE.to_string()]);
        client.pipeline(openings, LOAD_PIPELINE, |answer| answer.text("SET").map(drop))?;
    }
    let before = balance(client)?;
    let from = [Part::Text("account:"), number(8, ACCOUNTS)];
    let to = [Part::Text("account:"), Part::Number { digits: 8, bound: ACCOUNTS, fresh: true }];
    let args: [&[Part<'_>]; 6] =
        [&[Part::Text("EVALSHA")], &[Part::Text(&sha)], &[Part::Text("2")], &from, &to, &[number(2, 20)]];
    let measured =
        options.measure(vec![options.class(options.clients, options.pipeline, 3, |_| args.to_vec())])?;
    let after = balance(client)?;
    if before != after {
        bail!(
            "{} lost or made money: the accounts held {before} before the run and {after} after it",
            options.label
        );
    }
    let memory = memory_bytes(client);
    let mut record = options.record("transfer", options.clients, options.pipeline, &measured[0], memory);
    record.options.insert("accounts".into(), ACCOUNTS.to_string());
    Ok(vec![record])
}

fn long_script(options: &Options, client: &mut Client) -> Result<Vec<Record>> {
    if options.clients < 3 {
        bail!("longscript needs at least 3 clients: one runs scripts, the others share GET and SET");
    }
    if options.load {
        fill(client, options.keys)?;
    }
    let sha = load_script(client, COMPUTE)?;
    let iterations = options.iterations(client, &sha, Duration::from_millis(200))?;
    let getters = (options.clients - 1).div_ceil(2);
    let setters = options.clients - 1 - getters;
    let classes = vec![
        options.commands(true, getters, options.pipeline, 1),
        options.commands(false, setters, options.pipeline, 2),
        options.computations(&sha, iterations, 1, 1),
    ];
    let measured = options.measure(classes)?;
    let memory = memory_bytes(client);
    let parts = [("longscript.get", getters), ("longscript.set", setters), ("longscript.script", 1)];
    Ok(parts
        .iter()
        .zip(&measured)
        .map(|(&(name, clients), measured)| {
            let mut record = options.record(name, clients, options.pipeline, measured, memory);
            record.options.insert("iterations".into(), iterations.to_string());
            record
        })
        .collect())
}

impl Options {
    fn connect(&self) -> Result<Client> {
        let target = &self.target;
        let client = Client::connect(&target.host, target.port, target.password.as_deref())?;
        Ok(client)
    }

    fn measure(&self, classes: Vec<Class>) -> Result<Vec<Measured>> {
        let measured = load::run(std::slice::from_ref(&self.target), classes, self.warm_up, self.until)?;
        for class in &measured {
            if class.tally.errors > 0 {
                let text = class.error.as_deref().unwrap_or("");
                bail!(
                    "{} answered {} requests with an error, the first was: {text}",
                    self.label,
                    class.tally.errors
                );
            }
        }
        Ok(measured)
    }

    fn class<'a>(
        &self,
        clients: usize,
        pipeline: usize,
        salt: u64,
        args: impl Fn(usize) -> Vec<&'a [Part<'a>]>,
    ) -> Class {
        let seed = |client: usize| txn::hash::mix(self.seed ^ (salt << 56) ^ ((client as u64) << 32));
        let templates =
            (0..clients).map(|client| Template::new(&args(client), pipeline, seed(client))).collect();
        Class { templates, pipeline: pipeline as u64 }
    }

    fn commands(&self, get: bool, clients: usize, pipeline: usize, salt: u64) -> Class {
        let key = [Part::Text("key:"), number(12, self.keys)];
        let value = [Part::Text("value:"), number(10, 10_000_000_000)];
        let args: Vec<&[Part<'_>]> =
            if get { vec![&[Part::Text("GET")], &key] } else { vec![&[Part::Text("SET")], &key, &value] };
        self.class(clients, pipeline, salt, |_| args.clone())
    }

    fn computations(&self, sha: &str, iterations: u64, clients: usize, pipeline: usize) -> Class {
        let iterations = iterations.to_string();
        let templates = (0..clients)
            .map(|client| {
                let owner = format!("own:{client:04}:");
                let key = [Part::Text(&owner), number(4, OWN_RECORDS)];
                let args: [&[Part<'_>]; 5] = [
                    &[Part::Text("EVALSHA")],
                    &[Part::Text(sha)],
                    &[Part::Text("1")],
                    &key,
                    &[Part::Text(&iterations)],
                ];
                Template::new(&args, pipeline, txn::hash::mix(self.seed ^ client as u64))
            })
            .collect();
        Class { templates, pipeline: pipeline as u64 }
    }

    fn iterations(&self, client: &mut Client, sha: &str, duration: Duration) -> Result<u64> {
        match self.iterations {
            Some(iterations) => Ok(iterations),
            None => calibrated(client, sha, duration),
        }
    }

    fn record(
        &self,
        name: &str,
        clients: usize,
        pipeline: usize,
        measured: &Measured,
        memory_bytes: u64,
    ) -> Record {
        let seconds = measured.elapsed.as_secs_f64();
        let committed = measured.tally.replies - measured.tally.zeros;
        let throughput_per_s = if seconds > 0.0 { committed as f64 / seconds } else { 0.0 };
        let latency_us = if measured.tally.replies == 0 {
            LatencySummary::default()
        } else {
            measured.latencies.summary()
        };
        let spread = |value| Spread { median: value, min: value, max: value };
        Record {
            engine: self.label.clone(),
            workload: name.to_owned(),
            workers: clients,
            seconds,
            committed,
            aborted_by_logic: measured.tally.zeros,
            restarts: 0,
            throughput_per_s,
            latency_us,
            processor_us: measured
                .processor_seconds
                .map(|seconds| seconds * 1e6 / measured.tally.replies.max(1) as f64),
            memory_bytes,
            seed: self.seed,
            ratio_to_first: 1.0,
            ratio_spread: spread(1.0),
            throughput_spread: spread(throughput_per_s),
            undisturbed_spread: None,
            options: BTreeMap::from([("pipeline".to_owned(), pipeline.to_string())]),
        }
    }
}

pub(crate) fn number(digits: usize, bound: u64) -> Part<'static> {
    Part::Number { digits, bound, fresh: false }
}

fn account(number: u64) -> String {
    format!("account:{number:08}")
}

pub(crate) fn fill(client: &mut Client, keys: u64) -> Result<()> {
    let commands = (0..keys).map(|n| vec!["SET".into(), format!("key:{n:012}"), format!("value:{n:010}")]);
    client
        .pipeline(commands, LOAD_PIPELINE, |answer| answer.text("SET").map(drop))
        .context("loading the keys failed")
}

fn balance(client: &mut Client) -> Result<u64> {
    let mut total = 0;
    let reads = (0..ACCOUNTS).map(|n| vec!["GET".into(), account(n)]);
    client.pipeline(reads, LOAD_PIPELINE, |answer| {
        total += answer.text("GET")?.parse::<u64>().context("an account holds no number")?;
        Ok::<(), anyhow::Error>(())
    })?;
    Ok(total)
}

pub(crate) fn load_script(client: &mut Client, body: &str) -> Result<String> {
    let sha = client.call(&["SCRIPT", "LOAD", body])?;
    Ok(sha.text("SCRIPT LOAD")?)
}

fn calibrated(client: &mut Client, sha: &str, duration: Duration) -> Result<u64> {
    let mut iterations = 10_000u64;
    loop {
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let started = Instant::now();
            client
                .call(&["EVALSHA", sha, "1", "own:calibration", &iterations.to_string()])?
                .text("EVALSHA")?;
            best = best.min(started.elapsed());
        }
        if best >= CALIBRATION {
            return Ok(((iterations as f64 * duration.as_secs_f64() / best.as_secs_f64()) as u64).max(1));
        }
        iterations *= 2;
    }
}
