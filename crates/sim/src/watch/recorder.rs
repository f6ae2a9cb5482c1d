//! What a node tells its engine, written down; and what it may not tell, made the same in every run.

use crate::traffic::weight_in_worlds;
use execute::{Budget, Effects, Engine, EngineKind, Progress, Siblings, Status, Waiting, WorkerId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::View;
use txn::{Batch, Position};

/// What a node told its engine.
pub enum Told {
    /// A batch.
    Deliver(Batch),
    /// Everything up to here is final.
    Confirm(Position),
    /// Everything from here on is void.
    Retract(Position),
}

/// An engine that writes down what it is told.
pub struct Recorder {
    engine: Arc<dyn Engine>,
    tape: Mutex<Vec<Told>>,
    last_delivered: AtomicU64,
}

impl Recorder {
    /// Stands before an engine.
    pub fn new(engine: Arc<dyn Engine>) -> Recorder {
        Recorder { engine, tape: Mutex::default(), last_delivered: AtomicU64::new(0) }
    }
    /// The last position that it was ever delivered, whatever was retracted since.
    pub fn last_delivered(&self) -> Position {
        Position(self.last_delivered.load(Ordering::SeqCst))
    }
    fn tell(&self, told: Told) {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
    /// What it was told since the last time.
    pub fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.tape.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Engine for Recorder {
    fn kind(&self) -> EngineKind {
        self.engine.kind()
    }
    fn deliver(&self, mut batch: Batch) {
        for request in &mut batch.requests {
            if let Some(weight) = weight_in_worlds(&*request.procedure, &request.args)
                && weight != request.footprint.weight
            {
                Arc::make_mut(request).footprint.weight = weight;
            }
        }
        self.tell(Told::Deliver(batch.clone()));
        self.last_delivered.fetch_max(batch.end().prev().0, Ordering::SeqCst);
        self.engine.deliver(batch);
    }
    fn confirm(&self, upto: Position) {
        self.tell(Told::Confirm(upto));
        self.engine.confirm(upto);
    }
    fn retract(&self, from: Position) {
        self.tell(Told::Retract(from));
        self.engine.retract(from);
    }
    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        self.engine.step(worker, budget, effects)
    }
    fn finish(&self, worker: WorkerId, effects: &mut dyn Effects) {
        self.engine.finish(worker, effects);
    }
    fn siblings(&self) -> Option<&dyn Siblings> {
        self.engine.siblings()
    }
    fn waiting(&self) -> Waiting {
        self.engine.waiting()
    }
    fn status(&self) -> Status {
        self.engine.status()
    }
    fn workers(&self) -> usize {
        self.engine.workers()
    }
    fn view(&self) -> &dyn View {
        self.engine.view()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use execute::Serial;
    use txn::{Args, Epoch, Registry, Request, RequestId, Weight};

    #[test]
    fn what_the_process_learnt_of_a_script_does_not_reach_an_engine() {
        let recorder = Recorder::new(Arc::new(Serial::new()));
        let mut registry = Registry::new();
        redis_surface::register(&mut registry).expect("the names are distinct");
        let eval = registry.by_name("redis.eval").expect("scripts are commands").clone();
        let mut request = Request::new(RequestId::default(), eval, Args::one("return 1"));
        for learnt in [Weight::Light, Weight::Heavy] {
            request.footprint.weight = learnt;
            recorder.deliver(Batch {
                epoch: Epoch(1),
                time_ms: 1,
                first: Position::FIRST,
                requests: vec![Arc::new(request.clone())],
                groups: Vec::new(),
                digest: 0,
            });
            let told = recorder.take();
            let [Told::Deliver(batch)] = &told[..] else { panic!("one batch was delivered") };
            assert_eq!(batch.requests[0].footprint.weight, Weight::Heavy);
            recorder.retract(Position::FIRST);
            recorder.take();
        }
    }
}
