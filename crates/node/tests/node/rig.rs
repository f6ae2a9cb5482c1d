//! A node, its log and a virtual disk, driven by hand.

use execute::{Budget, Committed, Engine, Progress, Serial, WorkerId};
use order::{Log, SyncTicket};
use ordo_node::{
    Effects, Event, Node, NodeOptions, RecoverError, RecoveryProgress, RecoveryReport, Refused, recover,
};
use sim::disk::VirtualDisk;
use std::sync::Arc;
use txn::{
    Args, Call, FnProcedure, Key, Outcome, Position, Procedure, Registry, Reply, Request, RequestId,
    SessionId, Stop, Tx, Value,
};

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

/// A node with everything around it.
pub struct Rig {
    pub disk: Arc<VirtualDisk>,
    pub node: Node,
    pub engine: Arc<dyn Engine>,
    pub log: Log<VirtualDisk>,
    pub effects: Effects,
    pub report: RecoveryReport,
    /// What was told while it was recovered.
    pub progress: Vec<RecoveryProgress>,
    /// A sync that the node asked for: it ends when the test says so.
    pub ticket: Option<SyncTicket<VirtualDisk>>,
    /// Syncs that the node asked for.
    pub syncs_asked: u64,
    /// What clients were told, in that order.
    pub replies: Vec<(RequestId, Outcome)>,
    pub warnings: Vec<String>,
    /// The steady time.
    pub now_ms: u64,
    /// How far the machine's clock was set ahead of it.
    pub set_ms: i64,
    sequence: u64,
    session: SessionId,
    add: Arc<dyn Procedure>,
}

impl Rig {
    /// Recovers a node from the disk.
    pub fn recover(disk: &Arc<VirtualDisk>, options: NodeOptions) -> Result<Rig, RecoverError> {
        Rig::recover_at(disk, options, 1_000_000, 0)
    }

    /// Recovers a node at a time, with a clock that was set.
    pub fn recover_at(
        disk: &Arc<VirtualDisk>,
        options: NodeOptions,
        now_ms: u64,
        set_ms: i64,
    ) -> Result<Rig, RecoverError> {
        let mut registry = Registry::new();
        registry.register(add_procedure()).unwrap();
        redis_surface::register(&mut registry).unwrap();
        let boot = disk.counters().writes + 1;
        let mut progress = Vec::new();
        let recovered =
            recover(disk, options, 8192, boot, &registry, &|| Arc::new(Serial::new()), &mut |told| {
                progress.push(told)
            })?;
        let mut rig = Rig {
            disk: disk.clone(),
            session: ordo_node::session::compose(recovered.node.boot(), 0, 0),
            node: recovered.node,
            engine: recovered.engine,
            log: recovered.log,
            report: recovered.report,
            progress,
            effects: Effects::default(),
            ticket: None,
            syncs_asked: 0,
            replies: Vec::new(),
            warnings: Vec::new(),
            now_ms,
            set_ms,
            sequence: 0,
            add: add_procedure(),
        };
        rig.tick(0);
        Ok(rig)
    }

    /// Who sends the requests.
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
        let (_, outcome) = self.replies.pop().expect("an answer");
        assert_eq!(self.node.status().refused, None, "{id:?}");
        outcome.expect("no rollback")
    }

    /// Submits `count` additions as one batch and does what the node wants, up to syncs.
    pub fn submit(&mut self, key: &str, count: usize) -> Result<(), Refused> {
        let mut requests = (0..count).map(|_| self.add(key)).collect();
        self.node.submit(&mut requests, self.now_ms, &mut self.effects)?;
        self.drive();
        Ok(())
    }

    pub fn handle(&mut self, event: Event) {
        self.node.handle(event, self.now_ms, &mut self.effects);
        self.drive();
    }

    /// Time passes.
    pub fn tick(&mut self, elapsed_ms: u64) {
        self.now_ms += elapsed_ms;
        self.handle(Event::Tick { wall_ms: self.now_ms.saturating_add_signed(self.set_ms) });
    }

    fn drive(&mut self) {
        if !self.effects.records.is_empty() {
            let event = match self.log.append(&mut self.effects.records) {
                Ok(_) => Event::LogWritten,
                Err(error) => Event::LogWriteFailed(error.to_string()),
            };
            self.effects.records.clear();
            self.node.handle(event, self.now_ms, &mut self.effects);
        }
        if std::mem::take(&mut self.effects.marker) {
            // Only for its effect on the log: no test fills the disk with a marker.
            let _ = self.log.write_marker();
        }
        while std::mem::take(&mut self.effects.sync) {
            self.syncs_asked += 1;
            self.ticket = self.log.sync_ticket();
            // A checkpoint may have synced the log meanwhile.
            if self.ticket.is_none() {
                let synced = Event::LogSynced(self.log.status().durable);
                self.node.handle(synced, self.now_ms, &mut self.effects);
            }
        }
        if let Some(position) = self.effects.truncate.take() {
            let _ = self.log.truncate_before(position);
        }
        self.replies.append(&mut self.effects.refused);
        self.warnings.append(&mut self.effects.warnings);
        self.step(u32::MAX);
    }

    /// Steps the engine, by `operations` or until it is idle.
    pub fn step(&mut self, operations: u32) {
        let mut committed: Vec<Committed> = Vec::new();
        let budget = Budget { operations, heavy: true };
        while self.engine.step(WorkerId(0), budget, &mut committed) == Progress::Worked
            && operations == u32::MAX
        {}
        self.replies.extend(committed.into_iter().map(|committed| (committed.request.id, committed.outcome)));
    }

    /// Ends the sync that is on its way. Returns whether there was one.
    pub fn end_sync(&mut self) -> bool {
        let Some(ticket) = self.ticket.take() else {
            return false;
        };
        match ticket.sync() {
            Ok(synced) => {
                self.log.synced(synced);
                self.handle(Event::LogSynced(synced.position));
            }
            Err(error) => self.handle(Event::LogSyncFailed(error.to_string())),
        }
        true
    }

    /// Writes the checkpoint that the node asked for.
    pub fn write_checkpoint(&mut self) {
        let job = self.effects.checkpoint.take().expect("the node asked for a checkpoint");
        let log = &mut self.log;
        let event = match job.write(&*self.disk, || log.sync().map(|_| ())) {
            Ok(written) => Event::CheckpointWritten(written),
            Err(failed) => Event::CheckpointFailed(failed),
        };
        self.handle(event);
    }

    /// Takes a checkpoint now.
    pub fn checkpoint(&mut self) {
        self.handle(Event::CheckpointWanted);
        self.write_checkpoint();
    }

    /// Additions that were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.replies.iter().filter(|(_, outcome)| matches!(outcome, Ok(Reply::Integer(_)))).count()
    }

    /// Why requests were refused after they had been taken.
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

    pub fn last(&self) -> Position {
        self.engine.view().final_position()
    }
}
