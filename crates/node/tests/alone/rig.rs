//! A node that stands alone, its journal and a virtual disk, driven by hand.

use bytes::Bytes;
use execute::{Budget, Committed, Engine, Progress, Serial, WorkerId};
use log::{Disk, Journal, Kept, OpenError, Report, SyncTicket};
use order::PartitionMap;
use ordo_node::cluster::checkpoint::{self, Needed};
use ordo_node::cluster::{
    ClusterCheckpoint, ClusterEffects, ClusterEvent, ClusterNode, ClusterOptions, ClusterRecoverError,
    ClusterStart, LoadError, LoadedEngines, Piece, Whole, load_engines, stands_alone,
};
use ordo_node::host::{CountedJournal, Host, HostEvent, Recorded, drive};
use ordo_node::{FsyncPolicy, Refused, session};
use sim::disk::VirtualDisk;
use std::sync::Arc;
use txn::{
    Args, BootId, Call, Epoch, FnProcedure, Key, NodeId, Outcome, PartitionId, Position, Procedure, Registry,
    Reply, Request, RequestId, SessionId, Stop, Tx, Value,
};

/// How long a tick of a node that stands alone is.
pub const TICK_MS: u64 = 100;
/// A node has its boot id after so many syncs and ticks at most.
const STEPS_MAX: usize = 20;
/// The size of the journal's segments: some dozens of records.
pub const SEGMENT_BYTES: u64 = 8192;

/// `add key n`: adds to a number and returns the sum.
async fn add(mut tx: Tx, call: Call) -> Outcome {
    let key = Key::from(&call[0]);
    let sum = tx.get_for_update(&key).await?.map_or(0, |value| number(&value.as_string().unwrap()))
        + number(&call[1]);
    tx.put(&key, Value::from(sum.to_string().as_str())).await?;
    Ok(Reply::Integer(sum))
}

fn number(bytes: &[u8]) -> i64 {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

/// The procedure of all tests.
pub fn add_procedure() -> Arc<dyn Procedure> {
    Arc::new(FnProcedure::new("add", add))
}

/// The procedures of all tests.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(add_procedure()).unwrap();
    redis_surface::register(&mut registry).unwrap();
    registry
}

/// The options of a node that stands alone, with a policy.
pub fn options(fsync: FsyncPolicy) -> ClusterOptions {
    ClusterOptions { fsync, ..ClusterOptions::alone() }
}

/// The names of the files that begin with a prefix, in order.
pub fn files(disk: &VirtualDisk, prefix: &str) -> Vec<String> {
    let names = disk.list().unwrap().into_iter();
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

/// The name of the checkpoint of an epoch.
pub fn checkpoint_name(epoch: Epoch) -> String {
    format!("checkpoint-00000-{:020}.ordo", epoch.0)
}

/// Why a start was refused.
#[derive(Debug, thiserror::Error)]
pub enum StartRefused {
    #[error("there are checkpoints, and no log")]
    LogMissing,
    #[error("the journal is that of a node of a cluster")]
    OfCluster,
    #[error("{0}")]
    Journal(#[from] OpenError),
    #[error("{0}")]
    Checkpoint(#[from] LoadError),
    #[error("{0}")]
    Node(#[from] ClusterRecoverError),
}

/// Performs the node's effects: what takes time when the test says so.
pub struct RigHost {
    disk: Arc<VirtualDisk>,
    pub records: CountedJournal<VirtualDisk>,
    /// A sync that the node asked for.
    pub ticket: Option<SyncTicket<VirtualDisk>>,
    /// Syncs that the node asked for since it has its boot id.
    pub syncs_asked: u64,
    /// The node wants room for another segment: a tick gives it, or the test.
    pub wants_room: bool,
    /// The node wants a checkpoint.
    pub checkpoint: Option<ClusterCheckpoint>,
    pub frames_sent: usize,
}

impl RigHost {
    pub fn new(disk: Arc<VirtualDisk>, journal: Journal<VirtualDisk>) -> RigHost {
        RigHost {
            disk,
            records: CountedJournal::new(journal),
            ticket: None,
            syncs_asked: 0,
            wants_room: false,
            checkpoint: None,
            frames_sent: 0,
        }
    }

    /// Ends the sync that is on its way, if there is one. Gives what the node is told.
    pub fn end_sync(&mut self) -> Option<HostEvent> {
        let ticket = self.ticket.take()?;
        Some(self.records.end_sync(ticket.sync()))
    }
}

impl Host for RigHost {
    fn append(&mut self, kept: &[Kept]) -> Recorded {
        self.records.append(kept)
    }

    fn sync(&mut self) -> Option<HostEvent> {
        self.syncs_asked += 1;
        assert!(self.ticket.is_none(), "one sync is on its way at a time");
        match self.records.begin_sync() {
            Ok(ticket) => {
                self.ticket = Some(ticket);
                None
            }
            Err(durable) => Some(durable),
        }
    }

    fn send(&mut self, _: NodeId, _: Vec<u8>) {
        self.frames_sent += 1;
    }

    fn sever(&mut self, peer: NodeId, why: &str) {
        panic!("{peer} has sent nothing wrong: {why}");
    }

    fn make_room(&mut self) -> Option<HostEvent> {
        self.wants_room = true;
        None
    }

    fn checkpoint(&mut self, job: ClusterCheckpoint) {
        self.checkpoint = Some(job);
    }

    fn prune(&mut self, needed: Needed) {
        // What cannot be removed now is removed later.
        let _ = checkpoint::prune(&*self.disk, &needed);
        self.records.truncate();
    }

    fn read_piece(&mut self, to: NodeId, _: Piece) -> Option<HostEvent> {
        panic!("{to} is not there");
    }

    fn write_piece(&mut self, piece: Piece, _: Bytes, _: Option<Whole>) -> Option<HostEvent> {
        panic!("nobody gives {piece:?}");
    }
}

/// A node with everything around it.
pub struct Rig {
    pub disk: Arc<VirtualDisk>,
    pub node: ClusterNode,
    pub engine: Arc<dyn Engine>,
    pub hands: RigHost,
    pub effects: ClusterEffects,
    /// What the journal said at the start.
    pub report: Report,
    /// Why the start did not use the newest checkpoint.
    pub unusable: Option<LoadError>,
    pub newer: Option<(Epoch, Epoch)>,
    /// Where the start began: the end of the checkpoint that it has loaded.
    pub began: Position,
    /// How many records were loaded each time that the start told of it.
    pub told: Vec<u64>,
    /// Requests of earlier processes that this one has executed again.
    pub replayed: usize,
    /// The engine does nothing until the test says so.
    pub is_engine_held: bool,
    /// What clients were told first of each request, in the order in which they were told.
    pub replies: Vec<(RequestId, Outcome)>,
    pub warnings: Vec<String>,
    pub news: Vec<String>,
    /// The steady time.
    pub now_ms: u64,
    /// How far the machine's clock was set ahead of it.
    pub set_ms: i64,
    sequence: u64,
    session: SessionId,
    add: Arc<dyn Procedure>,
}

impl Rig {
    /// Starts a node from the disk, and waits for its boot id.
    pub fn recover(disk: &Arc<VirtualDisk>, options: ClusterOptions) -> Result<Rig, StartRefused> {
        Rig::recover_at(disk, options, 1_000_000, 0)
    }

    /// Starts a node at a time, with a clock that was set, and waits for its boot id.
    pub fn recover_at(
        disk: &Arc<VirtualDisk>,
        options: ClusterOptions,
        now_ms: u64,
        set_ms: i64,
    ) -> Result<Rig, StartRefused> {
        let mut rig = Rig::load(disk, options, now_ms, set_ms)?;
        rig.tick(0);
        for _ in 0..STEPS_MAX {
            if rig.node.boot() != BootId(0) {
                break;
            }
            // A node that executes its log again learns the time at the tick behind that.
            if !rig.end_sync() {
                rig.tick(0);
            }
        }
        assert_ne!(rig.node.boot(), BootId(0), "the node needs nothing but syncs and ticks for its boot id");
        rig.begin_session();
        rig.end_syncs();
        rig.hands.syncs_asked = 0;
        Ok(rig)
    }

    /// Makes a node of what is on the disk, as the server does. Nothing has happened to it yet.
    pub fn load(
        disk: &Arc<VirtualDisk>,
        options: ClusterOptions,
        now_ms: u64,
        set_ms: i64,
    ) -> Result<Rig, StartRefused> {
        if checkpoint::is_any(&**disk).unwrap() && files(disk, "log-").is_empty() {
            return Err(StartRefused::LogMissing);
        }
        let counters = disk.counters();
        let nonce = counters.writes + counters.crashes + 1;
        let (journal, images, report) = Journal::open(disk.clone(), SEGMENT_BYTES, nonce)?;
        if !stands_alone(&images) {
            return Err(StartRefused::OfCluster);
        }
        let map = PartitionMap::alone();
        let known = Arc::new(map.clone());
        let kept = known.kept_by(options.me).collect();
        let mut told = Vec::new();
        let make_engine = |_: PartitionId| -> Arc<dyn Engine> { Arc::new(Serial::new()) };
        let tell = &mut |records| told.push(records);
        let loaded = load_engines(&**disk, kept, &images, options.alone, &make_engine, tell)?;
        let LoadedEngines { engines, checkpoint_bytes, unusable, newer } = loaded;
        let engine = engines[&PartitionId(0)].clone();
        let start = ClusterStart {
            map,
            known,
            images,
            engines,
            checkpoint_bytes,
            unusable: unusable.is_some(),
            nonce,
        };
        Ok(Rig {
            disk: disk.clone(),
            node: ClusterNode::recover(options, registry(), start)?,
            began: engine.view().final_position(),
            engine,
            hands: RigHost::new(disk.clone(), journal),
            effects: ClusterEffects::default(),
            report,
            unusable,
            newer,
            told,
            replayed: 0,
            is_engine_held: false,
            replies: Vec::new(),
            warnings: Vec::new(),
            news: Vec::new(),
            now_ms,
            set_ms,
            sequence: 0,
            session: SessionId::INTERNAL,
            add: add_procedure(),
        })
    }

    /// The node has its boot id: clients are served.
    pub fn begin_session(&mut self) {
        self.session = session::compose(self.node.boot().0, 0, 0);
    }

    /// The session that sends the requests.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// A request that adds 1 to `key`.
    pub fn add(&mut self, key: &str) -> Arc<Request> {
        self.request(self.add.clone(), Args::from_iter([key, "1"]))
    }

    fn request(&mut self, procedure: Arc<dyn Procedure>, args: Args) -> Arc<Request> {
        self.sequence += 1;
        let id = RequestId { session: self.session, sequence: self.sequence, attempt: 0 };
        Arc::new(Request::new(id, procedure, args))
    }

    /// Submits a call, does what the node wants, and gives the reply, which must come at once.
    pub fn call(&mut self, procedure: Arc<dyn Procedure>, args: &str) -> Reply {
        let request = self.request(procedure, args.split(' ').collect());
        let id = request.id;
        let mut requests = vec![request];
        self.node.submit(&mut requests, self.now_ms, &mut self.effects).expect("the node takes requests");
        self.drive();
        let (answered, outcome) = self.replies.pop().expect("an answer");
        assert_eq!(answered, id);
        outcome.expect("no rollback")
    }

    /// Submits `count` additions as one batch and does what the node wants, up to syncs.
    pub fn submit(&mut self, key: &str, count: usize) -> Result<(), Refused> {
        let mut requests = (0..count).map(|_| self.add(key)).collect();
        self.node.submit(&mut requests, self.now_ms, &mut self.effects)?;
        self.drive();
        Ok(())
    }

    pub fn handle(&mut self, event: impl Into<ClusterEvent>) {
        self.node.handle(event, self.now_ms, &mut self.effects);
        self.drive();
    }

    /// A tick after some time, which need not be a tick's length. A node that wants room for a segment gets
    /// it, if the disk has room.
    pub fn tick(&mut self, elapsed_ms: u64) {
        self.now_ms += elapsed_ms;
        self.handle(HostEvent::Tick { wall_ms: self.now_ms.saturating_add_signed(self.set_ms) });
        self.make_room();
    }

    /// Time passes, with all its ticks.
    pub fn wait_ms(&mut self, ms: u64) {
        for _ in 0..ms / TICK_MS {
            self.tick(TICK_MS);
        }
    }

    /// Makes the room that the node wants, if the disk has it.
    pub fn make_room(&mut self) {
        if std::mem::take(&mut self.hands.wants_room)
            && self.hands.records.journal.preparer().prepare_next().is_ok()
        {
            self.handle(HostEvent::RoomMade);
        }
    }

    /// Does what the node wants, apart from syncs, checkpoints and room.
    fn drive(&mut self) {
        drive(&mut self.node, &mut self.effects, self.now_ms, &mut self.hands);
        while !self.is_engine_held && self.step(u32::MAX) {
            self.node.executed(Vec::new(), self.now_ms, &mut self.effects);
            drive(&mut self.node, &mut self.effects, self.now_ms, &mut self.hands);
        }
        for (id, outcome) in std::mem::take(&mut self.effects.refused) {
            self.reply(id, outcome);
        }
        self.warnings.append(&mut self.effects.warnings);
        self.news.append(&mut self.effects.news);
        assert_eq!(self.hands.frames_sent, 0, "there is nobody who could hear it");
        assert_eq!((self.effects.restart, &self.effects.ended), (false, &None));
    }

    /// Steps the engine, by `operations` or until it is idle. Says whether it did anything.
    pub fn step(&mut self, operations: u32) -> bool {
        let mut committed: Vec<Committed> = Vec::new();
        let budget = Budget { operations, heavy: true };
        let mut any = false;
        while self.engine.step(WorkerId(0), budget, &mut committed) == Progress::Worked {
            any = true;
            if operations != u32::MAX {
                break;
            }
        }
        for committed in committed {
            let id = committed.request.id;
            if id.session == self.session {
                self.reply(id, committed.outcome);
            } else if id.session != SessionId::INTERNAL {
                self.replayed += 1;
            }
        }
        any
    }

    /// A client hears of its request. After a first answer it waits for no other.
    fn reply(&mut self, id: RequestId, outcome: Outcome) {
        if !self.replies.iter().any(|&(answered, _)| answered == id) {
            self.replies.push((id, outcome));
        }
    }

    /// Ends the sync that is on its way. Returns whether there was one.
    pub fn end_sync(&mut self) -> bool {
        let Some(event) = self.hands.end_sync() else {
            return false;
        };
        self.handle(event);
        true
    }

    /// Ends all syncs, also those that the node begins meanwhile.
    pub fn end_syncs(&mut self) {
        while self.end_sync() {}
    }

    /// Writes the checkpoint that the node asked for. It counts after another sync.
    pub fn write_checkpoint(&mut self) {
        let job = self.hands.checkpoint.take().expect("the node asked for a checkpoint");
        let epoch = job.epoch();
        let event = match job.write(&*self.disk) {
            Ok(written) => HostEvent::CheckpointWritten { epoch, bytes: written.bytes },
            Err(error) => HostEvent::CheckpointFailed(error.to_string()),
        };
        self.handle(event);
    }

    /// Writes the checkpoint that the node asked for, and waits until it counts. Gives its epoch.
    pub fn finish_checkpoint(&mut self) -> Epoch {
        self.end_syncs();
        self.write_checkpoint();
        self.end_syncs();
        self.node.status().newest_checkpoint
    }

    /// Takes a checkpoint now, and waits until it counts. Gives its epoch.
    pub fn checkpoint(&mut self) -> Epoch {
        let before = self.node.status().newest_checkpoint;
        self.handle(ClusterEvent::CheckpointWanted);
        let epoch = self.finish_checkpoint();
        assert!(epoch > before, "the checkpoint counts");
        epoch
    }

    /// Additions that were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.replies.iter().filter(|(_, outcome)| matches!(outcome, Ok(Reply::Integer(_)))).count()
    }

    /// What clients of requests that had been taken were told instead of a reply.
    pub fn refusals(&self) -> Vec<&str> {
        let texts = self.replies.iter().filter_map(|(_, outcome)| match outcome {
            Err(Stop::Abort(text)) => Some(&**text),
            _ => None,
        });
        texts.collect()
    }

    /// The value of a key at the newest final snapshot.
    pub fn value(&self, key: &str) -> i64 {
        let view = self.engine.view();
        let snapshot = view.open();
        let read = view.read_at(&snapshot, &Key::from(key));
        view.close(snapshot);
        read.entry.map_or(0, |entry| number(&entry.value.as_string().unwrap()))
    }

    /// The last final position.
    pub fn last(&self) -> Position {
        self.engine.view().final_position()
    }
}
