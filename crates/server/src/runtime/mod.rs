//! Runs one node for real: files, a clock and threads.

mod port;

pub use execute::ReadOutcome;
pub use node::{FsyncPolicy, Limits};
pub use port::{Answer, Port};

use execute::{Batch, Budget, Engine, Progress, SnapshotReader};
use parking_lot::Mutex;
use port::Ports;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use txn::{Epoch, Position, Procedure, Registry, Request};

/// Makes the engine, given how many worker ids will step it (numbered from 0).
pub type EngineFactory = Box<dyn FnOnce(usize) -> Arc<dyn Engine> + Send>;

/// How to run a node.
pub struct RuntimeOptions {
    /// Where the log and the checkpoints are.
    pub dir: PathBuf,
    /// When a write counts as durable.
    pub fsync: FsyncPolicy,
    /// Executor threads: they run what is heavy, or more than the callers do themselves.
    pub workers: usize,
    /// How many ports there may be at once, at most 256.
    pub ports: usize,
    /// The size of a log segment.
    pub segment_bytes: u64,
    /// A checkpoint is taken after this many bytes of log. 0 means never by itself.
    pub checkpoint_bytes: u64,
    /// Bounds on what is on its way.
    pub limits: Limits,
    /// Makes the engine.
    pub engine: EngineFactory,
    /// Removes expired entries: called with the keys as its arguments.
    pub expire: Option<Arc<dyn Procedure>>,
}

/// Why a runtime could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Too many ports, or none.
    #[error("{0} ports were asked for: between 1 and 256 are possible")]
    Ports(usize),
}

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The position of the checkpoint that was loaded; [`Position::NONE`] if there was none.
    pub checkpoint: Position,
    /// Transactions that were replayed from the log.
    pub replayed: u64,
    /// Bytes of a torn tail that were cut off the log.
    pub cut_bytes: u64,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What an operator should know: checkpoints that were skipped, a tail that was cut.
    pub warnings: Vec<String>,
}

/// Why requests were not taken. They stay with the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As much is on its way as the limits allow. The port is woken when there is room again: submit again then.
    #[error("too much is on its way: wait for replies and submit again")]
    Busy,
    /// The log cannot be written. The text is an error reply that says why and what to do (`MISCONF ...`).
    #[error("{0}")]
    ReadOnly(Arc<str>),
    /// The node is shutting down.
    #[error("the server is shutting down: connect again when it is back")]
    ShuttingDown,
}

/// A running node.
pub struct Runtime {
    engine: Arc<dyn Engine>,
    ports: Arc<Ports>,
    order: Mutex<(Epoch, Position, u64)>,
    workers: usize,
}

impl Runtime {
    /// Recovers the node in a directory and starts its threads.
    pub fn start(
        options: RuntimeOptions,
        _registry: Arc<Registry>,
    ) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
        if options.ports == 0 || options.ports > node::session::PORTS_MAX {
            return Err(StartError::Ports(options.ports));
        }
        let engine = (options.engine)(options.workers + options.ports);
        let runtime = Arc::new(Runtime {
            engine,
            ports: Arc::new(Ports::new(options.ports, 1)),
            order: Mutex::new((Epoch(0), Position::FIRST, 0)),
            workers: options.workers,
        });
        Ok((runtime, RecoveryReport::default()))
    }

    /// A place where replies arrive; `None` if all ports are taken. `wake` is called by other threads when there is
    /// something to do: call [`Runtime::help`] and [`Port::drain`] then. It must not block.
    pub fn port(&self, wake: Box<dyn Fn() + Send + Sync>) -> Option<Port> {
        self.ports
            .open(wake, self.workers, SnapshotReader::new(self.engine.clone()))
    }

    /// Submits requests, which become one batch in this order, and empties `requests`; on `Err` they stay there. Each is
    /// answered through the port, in any order. Call [`Runtime::help`] next.
    pub fn submit(&self, port: &Port, requests: &mut Vec<Arc<Request>>) -> Result<(), Refused> {
        if requests.is_empty() {
            return Ok(());
        }
        port.shared.add_outstanding(requests.len());
        let mut order = self.order.lock();
        order.0 = Epoch(order.0.0 + 1);
        order.2 = order.2.max(self.now_ms());
        let batch = Batch {
            epoch: order.0,
            time_ms: order.2,
            first: order.1,
            requests: requests.drain(..).collect(),
        };
        order.1 = batch.end();
        self.engine.deliver(batch);
        self.engine.confirm(order.1.prev());
        Ok(())
    }

    /// Runs light work on the calling thread until there is none: the caller's own requests are answered without a
    /// hand-off. Replies of the caller's sessions are in the port when this returns.
    pub fn help(&self, port: &Port) {
        let mut replies = port.replies.borrow_mut();
        port.shared.look();
        let budget = Budget {
            operations: 1024,
            heavy: true,
        };
        while self.engine.step(port.worker, budget, &mut *replies) == Progress::Worked {
            self.ports.put(&mut replies, Some(&port.shared));
        }
        self.ports.put(&mut replies, Some(&port.shared));
    }

    /// Runs a read-only request at the newest final snapshot on the calling thread. It sees every write that was
    /// answered before; a session that waits for the answer of its own write submits its read instead, or waits.
    pub fn read(&self, port: &Port, request: &Arc<Request>) -> ReadOutcome {
        port.reader.borrow_mut().run(request, self.now_ms())
    }

    /// The wall clock, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64)
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }
}
