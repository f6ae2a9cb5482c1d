//! `ordo sim calibrate`: what computing costs on this machine.
//!
//! Each figure is the median of several slices, all on one thread. The engines' operations are those of the
//! bank workload stepped with a budget of one, as the simulator steps them, so a figure holds the engine's
//! own work for each operation, the procedure's, and that of the step itself.

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use clap::Args;
use execute::{
    Assignment, Budget, Engine, EngineKind, Progress, ReadOutcome, Serial, SnapshotReader, WorkerId,
};
use log::{Disk, DiskFile, Journal, Kept};
use node::FsyncPolicy;
use node::cluster::checkpoint::Needed;
use node::cluster::{
    ClusterCheckpoint, ClusterEffects, ClusterNode, ClusterOptions, ClusterStart, LoadedEngines, Piece,
    Whole, load_engines,
};
use node::host::{CountedJournal, Host, HostEvent, Recorded, drive};
use order::PartitionMap;
use redis_surface::codec::{Limits, Protocol, RequestDecoder, encode, encode_command};
use sim::cost::CostTable;
use sim::disk::VirtualDisk;
use sim::traffic::{Draft, Population, WorkloadKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use txn::{
    Batch, Epoch, Footprint, NodeId, PartitionRoute, Position, Registry, Reply, Request, RequestId, SessionId,
};

/// `ordo sim calibrate`.
#[derive(Args)]
pub struct CalibrateArgs {
    /// A directory on the disk whose syncs are measured.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Where to write the table; standard output if it is left out.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Slices of a measurement.
const SLICES: usize = 9;

/// Measures, and prints the table.
pub fn run(arguments: &CalibrateArgs) -> Result<()> {
    let engine = |kind: EngineKind| -> Result<u64> {
        eprintln!("measuring an operation of {kind} ...");
        operation_ns(kind)
    };
    let sparkle_operation_ns = engine(EngineKind::Sparkle)?;
    let calvin_operation_ns = engine(EngineKind::Calvin)?;
    let parspec_operation_ns = engine(EngineKind::ParSpec)?;
    let qstore_operation_ns = engine(EngineKind::QStore)?;
    let ssmr_operation_ns = engine(EngineKind::Ssmr)?;
    let serial_operation_ns = engine(EngineKind::Serial)?;
    eprintln!("measuring the order ...");
    let (batch_ns, request_ns) = order_ns()?;
    eprintln!("measuring commands and reads ...");
    let (read_ns, checkpoint_record_ns) = read_ns()?;
    eprintln!("measuring syncs in {} ...", arguments.dir.display());
    let costs = CostTable {
        sparkle_operation_ns,
        calvin_operation_ns,
        parspec_operation_ns,
        qstore_operation_ns,
        ssmr_operation_ns,
        serial_operation_ns,
        command_ns: command_ns()?,
        batch_ns,
        request_ns,
        read_ns,
        sync_ns: sync_ns(&arguments.dir)?,
        checkpoint_record_ns,
    };
    let text = toml::to_string(&costs)?;
    match &arguments.out {
        Some(path) => std::fs::write(path, text).with_context(|| format!("writing {}", path.display())),
        None => {
            say!("{}", text.trim_end());
            Ok(())
        }
    }
}

fn median(mut slices: Vec<f64>) -> u64 {
    slices.sort_by(f64::total_cmp);
    (slices[slices.len() / 2].round() as u64).max(1)
}

fn request(sequence: u64, draft: &Draft) -> Arc<Request> {
    Arc::new(Request {
        id: RequestId { session: SessionId(1 << 40), sequence, attempt: 0 },
        slots_version: 0,
        procedure: draft.procedure.clone(),
        args: draft.args.clone(),
        footprint: draft.footprint.clone(),
        route: txn::PartitionRoute::default(),
        elsewhere: false,
    })
}

/// An engine that holds the bank's accounts, and what to ask it for.
struct Stage {
    engine: Arc<dyn Engine>,
    last: Position,
    epoch: u64,
}

impl Stage {
    fn new(engine: Arc<dyn Engine>, population: &Population) -> Stage {
        let mut stage = Stage { engine, last: Position::NONE, epoch: 0 };
        let loads = population.loads();
        stage.run(&loads);
        stage
    }

    /// Runs these transactions. Returns the steps.
    fn run(&mut self, drafts: &[Draft]) -> u64 {
        self.epoch += 1;
        let first = self.last.next();
        let requests =
            drafts.iter().enumerate().map(|(index, draft)| request(first.0 + index as u64, draft)).collect();
        self.engine.deliver(Batch {
            epoch: Epoch(self.epoch),
            time_ms: 1,
            first,
            requests,
            groups: Vec::new(),
            digest: 0,
        });
        self.last = Position(self.last.0 + drafts.len() as u64);
        self.engine.confirm(self.last);
        let mut committed = Vec::new();
        let mut steps = 0;
        while self.engine.step(WorkerId(0), Budget::ONE, &mut committed) == Progress::Worked {
            steps += 1;
            committed.clear();
        }
        steps
    }
}

fn bank() -> Population {
    Population::new(WorkloadKind::Bank, 1, 1, 1, 7)
}

fn operation_ns(kind: EngineKind) -> Result<u64> {
    let population = bank();
    let mut stage = Stage::new(kind.make(Assignment::alone(1)), &population);
    let mut traffic = population.traffic(0);
    let mut draw = sim::draw::Draw::new(1);
    let slices = (0..SLICES)
        .map(|_| {
            let drafts: Vec<Vec<Draft>> =
                (0..200).map(|_| (0..50).map(|_| traffic.next(&mut draw)).collect()).collect();
            let started = Instant::now();
            let steps: u64 = drafts.iter().map(|drafts| stage.run(drafts)).sum();
            started.elapsed().as_nanos() as f64 / steps as f64
        })
        .collect();
    Ok(median(slices))
}

/// A node that stands alone, on a disk in memory.
struct Ordering {
    node: ClusterNode,
    effects: ClusterEffects,
    log: InMemory,
}

/// Appends and syncs are done at once; a lone node without checkpoints wants nothing else.
struct InMemory(CountedJournal<VirtualDisk>);

impl Host for InMemory {
    fn append(&mut self, kept: &[Kept]) -> Recorded {
        self.0.append(kept)
    }

    fn sync(&mut self) -> Option<HostEvent> {
        Some(match self.0.begin_sync() {
            Ok(ticket) => self.0.end_sync(ticket.sync()),
            Err(durable) => durable,
        })
    }

    fn send(&mut self, _: NodeId, _: Vec<u8>) {}

    fn sever(&mut self, _: NodeId, _: &str) {}

    fn make_room(&mut self) -> Option<HostEvent> {
        None
    }

    fn checkpoint(&mut self, _: ClusterCheckpoint) {}

    fn prune(&mut self, _: Needed) {}

    fn read_piece(&mut self, _: NodeId, _: Piece) -> Option<HostEvent> {
        None
    }

    fn write_piece(&mut self, _: Piece, _: Bytes, _: Option<Whole>) -> Option<HostEvent> {
        None
    }
}

impl Ordering {
    fn start(registry: &Registry) -> Result<Ordering> {
        let disk = Arc::new(VirtualDisk::new(1));
        let (journal, images, _) = Journal::open(disk.clone(), 64 << 20, 1)?;
        let map = PartitionMap::alone();
        let options =
            ClusterOptions { fsync: FsyncPolicy::No, checkpoint_bytes: 0, ..ClusterOptions::alone() };
        let kept = map.kept_by(options.me).collect();
        let make_engine = |_| -> Arc<dyn Engine> { Arc::new(Serial::new()) };
        let LoadedEngines { engines, .. } =
            load_engines(&*disk, kept, &images, true, &make_engine, &mut |_| {})?;
        let start = ClusterStart {
            known: Arc::new(map.clone()),
            map,
            images,
            engines,
            checkpoint_bytes: 0,
            unusable: false,
            nonce: 1,
        };
        let node = ClusterNode::recover(options, registry.clone(), start)?;
        let log = InMemory(CountedJournal::new(journal));
        let mut ordering = Ordering { node, effects: ClusterEffects::default(), log };
        ordering.node.handle(HostEvent::Tick { wall_ms: 1 }, 1, &mut ordering.effects);
        ordering.perform()?;
        Ok(ordering)
    }

    /// Does what the node wants done, and tells it.
    fn perform(&mut self) -> Result<()> {
        drive(&mut self.node, &mut self.effects, 1, &mut self.log);
        match self.node.out() {
            Some(cause) => Err(anyhow!("the order does nothing any more: {cause}")),
            None => Ok(()),
        }
    }
}

/// What a batch and what a request costs the order: from batches of one and of 64.
fn order_ns() -> Result<(u64, u64)> {
    let population = bank();
    let registry = population.registry();
    let mut traffic = population.traffic(0);
    let mut draw = sim::draw::Draw::new(1);
    let mut per_batch = |size: usize| -> Result<f64> {
        let mut slices = Vec::new();
        for _ in 0..SLICES {
            let mut node = Ordering::start(&registry)?;
            let batches: Vec<Vec<Arc<Request>>> = (0..400)
                .map(|batch| {
                    (0..size)
                        .map(|index| request(1 + (batch * size + index) as u64, &traffic.next(&mut draw)))
                        .collect()
                })
                .collect();
            let count = batches.len() as f64;
            let started = Instant::now();
            for mut requests in batches {
                node.node.submit(&mut requests, 1, &mut node.effects)?;
                node.perform()?;
            }
            slices.push(started.elapsed().as_nanos() as f64 / count);
        }
        Ok(median(slices) as f64)
    };
    let (one, many) = (per_batch(1)?, per_batch(64)?);
    let request_ns = ((many - one) / 63.0).max(1.0);
    Ok(((one - request_ns).max(1.0) as u64, request_ns as u64))
}

/// Decoding a command and encoding its reply.
fn command_ns() -> Result<u64> {
    let mut bytes = Vec::new();
    for _ in 0..1_000 {
        encode_command(&["SET", "key:000000000001", "value:0000000001"], &mut bytes);
    }
    let mut slices = Vec::new();
    for _ in 0..SLICES {
        let table = redis_surface::CommandTable::new();
        let mut replies = Vec::new();
        let started = Instant::now();
        let mut decoder = RequestDecoder::new(Limits::default());
        let mut rest = &bytes[..];
        let mut count = 0;
        while let Some(argv) = decoder.next(&mut rest)? {
            std::hint::black_box(table.prepare(argv).map_err(|reply| anyhow!("{reply:?}"))?);
            encode(&Reply::OK, Protocol::Resp2, &mut replies);
            count += 1;
        }
        slices.push(started.elapsed().as_nanos() as f64 / f64::from(count));
    }
    Ok(median(slices))
}

/// A read at a snapshot, and a record of a checkpoint.
fn read_ns() -> Result<(u64, u64)> {
    let population = bank();
    let stage = Stage::new(EngineKind::Sparkle.make(Assignment::alone(1)), &population);
    let mut reader = SnapshotReader::new(stage.engine.clone());
    let table = redis_surface::CommandTable::new();
    let get = table.prepare(["GET", "key"].into_iter().collect()).map_err(|reply| anyhow!("{reply:?}"))?;
    let redis_surface::Action::Transaction { procedure, args, .. } = get.action else {
        return Err(anyhow!("GET is no transaction"));
    };
    let get = request(
        1,
        &Draft {
            procedure,
            args,
            footprint: Footprint::read_only(),
            route: PartitionRoute::default(),
            strays: false,
        },
    );
    let reads = (0..SLICES)
        .map(|_| {
            let started = Instant::now();
            for _ in 0..5_000 {
                if !matches!(reader.run(&get, 1), ReadOutcome::Done(Ok(_))) {
                    return f64::NAN;
                }
            }
            started.elapsed().as_nanos() as f64 / 5_000.0
        })
        .collect();
    let view = stage.engine.view();
    let records = (0..SLICES)
        .map(|_| {
            let snapshot = view.open();
            let started = Instant::now();
            let images = sim::judge::images(view, &snapshot, 512);
            let elapsed_ns = started.elapsed().as_nanos() as f64;
            view.close(snapshot);
            // Encoding and writing cost about as much again.
            2.0 * elapsed_ns / images.len().max(1) as f64
        })
        .collect();
    Ok((median(reads), median(records)))
}

/// A sync of four KiB that were written over zeros, as the log does it.
fn sync_ns(dir: &std::path::Path) -> Result<u64> {
    let scratch = tempfile::tempdir_in(dir).with_context(|| format!("using {}", dir.display()))?;
    let disk = server::disk::RealDisk::open(scratch.path())?;
    let file = disk.create("calibration", 4 << 20)?;
    let bytes = [1; 4096];
    let mut slices = Vec::new();
    for index in 0..200 {
        file.write_at(index * 4096, &bytes)?;
        let started = Instant::now();
        file.sync()?;
        slices.push(started.elapsed().as_nanos() as f64);
    }
    Ok(median(slices))
}
