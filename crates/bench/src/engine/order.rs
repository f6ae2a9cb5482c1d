//! The order that a driver gives its engine: when it is delivered, and when and as what it is decided.
//!
//! Without a lag a batch is confirmed when it is delivered. With one, a batch is *tentative* for that long,
//! as while a cluster agrees on it: engines that execute what is delivered have the time in which the others
//! wait. Then it is decided as it was delivered, or (some of them) with its requests in another order: the
//! engine is told to retract it and all behind it, and gets them again.

use execute::Engine;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::{Batch, Epoch, Position, Request};
use workloads::dice::Dice;

/// How batches become final.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decisions {
    /// From a batch's delivery to its confirmation.
    pub lag: Duration,
    /// How many batches in 100 are decided otherwise than they were delivered.
    pub reorder_percent: u32,
    /// Batches are delivered only when they are decided.
    pub are_delivered_final: bool,
}

impl Decisions {
    /// Each batch is confirmed when it is delivered.
    fn are_at_once(self) -> bool {
        self.lag.is_zero() && self.reorder_percent == 0
    }
}

/// The order of one engine.
pub(super) struct Order {
    decisions: Decisions,
    tail: Mutex<Tail>,
}

struct Tail {
    next: Position,
    epoch: Epoch,
    /// When each is to be decided.
    tentative: VecDeque<(Instant, Batch)>,
    dice: Dice,
}

impl Order {
    /// An order that goes on behind `last`.
    pub(super) fn behind(last: Position, decisions: Decisions, seed: u64) -> Order {
        let tail = Tail {
            next: last.next(),
            epoch: Epoch(1),
            tentative: VecDeque::new(),
            dice: Dice::new(seed, u64::MAX),
        };
        Order { decisions, tail: Mutex::new(tail) }
    }

    /// Appends a batch. `stamp` is told which positions it has, before the engine gets it.
    pub(super) fn append(
        &self,
        engine: &dyn Engine,
        requests: Vec<Arc<Request>>,
        time_ms: u64,
        stamp: impl FnOnce(Position, Position),
    ) {
        let mut tail = self.tail.lock();
        let batch =
            Batch { epoch: tail.epoch, time_ms, first: tail.next, requests, groups: Vec::new(), digest: 0 };
        let end = batch.end();
        stamp(batch.first, end);
        (tail.next, tail.epoch) = (end, Epoch(tail.epoch.0 + 1));
        if self.decisions.are_at_once() {
            engine.deliver(batch);
            engine.confirm(end.prev());
            return;
        }
        if !self.decisions.are_delivered_final {
            engine.deliver(batch.clone());
        }
        tail.tentative.push_back((Instant::now() + self.decisions.lag, batch));
    }

    /// Decides what is due, unless another worker is at it.
    pub(super) fn decide(&self, engine: &dyn Engine) {
        if self.decisions.are_at_once() {
            return;
        }
        let Some(mut tail) = self.tail.try_lock() else {
            return;
        };
        let now = Instant::now();
        while let Some((_, mut batch)) = tail.tentative.pop_front_if(|(due, _)| *due <= now) {
            let is_reordered = tail.dice.percent(self.decisions.reorder_percent) && batch.requests.len() > 1;
            if is_reordered {
                let half = batch.requests.len() / 2;
                batch.requests.rotate_left(half);
            }
            let end = batch.end();
            if self.decisions.are_delivered_final {
                engine.deliver(batch);
            } else if is_reordered {
                engine.retract(batch.first);
                engine.deliver(batch);
                for (_, later) in &tail.tentative {
                    engine.deliver(later.clone());
                }
            }
            engine.confirm(end.prev());
        }
    }
}
