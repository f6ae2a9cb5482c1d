//! Transactions that compute, for models: every incarnation of a procedure costs its worker some time when it
//! begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use txn::{Args, Call, Footprint, Procedure, ProcedureFuture, Tx};

/// How long the procedures of a model compute, and what of that no worker was charged yet.
#[derive(Clone, Default)]
pub(super) struct Work {
    each_ns: u64,
    due_ns: Arc<AtomicU64>,
}

impl Work {
    /// Work of so many nanoseconds for each incarnation.
    pub fn new(each_ns: u64) -> Work {
        Work { each_ns, due_ns: Arc::default() }
    }

    /// The procedure, with its work.
    pub fn on(&self, procedure: Arc<dyn Procedure>) -> Arc<dyn Procedure> {
        if self.each_ns == 0 {
            return procedure;
        }
        Arc::new(Working { procedure, work: self.clone() })
    }

    /// What was done since the last time.
    pub fn take_ns(&self) -> u64 {
        self.due_ns.swap(0, Ordering::Relaxed)
    }
}

struct Working {
    procedure: Arc<dyn Procedure>,
    work: Work,
}

impl Procedure for Working {
    fn name(&self) -> &str {
        self.procedure.name()
    }
    fn footprint(&self, args: &Args) -> Footprint {
        self.procedure.footprint(args)
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        let (procedure, work) = (self.procedure.clone(), self.work.clone());
        Box::pin(async move {
            work.due_ns.fetch_add(work.each_ns, Ordering::Relaxed);
            procedure.run(tx, call).await
        })
    }
}
