//! The node, its log, and the hands that do what the node wants.

use super::port::Answer;
use crate::disk::RealDisk;
use node::{CheckpointJob, Effects, Event, Node, Refused};
use order::{Log, SyncTicket};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use txn::{Position, Request};

/// Where the core hands over what may wait for the disk. Dropped to end the threads at the other ends.
pub(super) struct Hands {
    pub sync: Sender<SyncTicket<RealDisk>>,
    pub files: Sender<FileWork>,
    pub checkpoint: Sender<CheckpointJob>,
}

/// Work on the log's files.
pub(super) enum FileWork {
    /// Make the next segment.
    Prepare,
    /// Remove what checkpoints cover.
    Truncate(Position),
}

/// What one pass through the core made possible. Acted on after the lock is released.
#[derive(Default)]
pub(super) struct Outcome {
    /// Somebody should step the engine.
    pub step: bool,
    /// Every port should look: writes are taken again.
    pub notify_all: bool,
    pub tick_again: bool,
    /// Error replies of requests that had been taken.
    pub refused: Vec<Answer>,
}

/// The state machine with its log. Whoever holds the lock drives it; appends happen under it, waiting does not.
pub(super) struct Core {
    pub node: Node,
    pub log: Log<RealDisk>,
    pub hands: Option<Hands>,
    effects: Effects,
}

impl Core {
    pub fn new(node: Node, log: Log<RealDisk>, hands: Hands) -> Mutex<Core> {
        Mutex::new(Core {
            node,
            log,
            hands: Some(hands),
            effects: Effects::default(),
        })
    }

    pub fn submit(
        &mut self,
        requests: &mut Vec<Arc<Request>>,
        now_ms: u64,
    ) -> Result<Outcome, Refused> {
        self.node.submit(requests, now_ms, &mut self.effects)?;
        Ok(self.drive(now_ms))
    }

    pub fn handle(&mut self, event: Event, now_ms: u64) -> Outcome {
        self.node.handle(event, now_ms, &mut self.effects);
        self.drive(now_ms)
    }

    /// Does what the node wants, until it wants nothing more.
    fn drive(&mut self, now_ms: u64) -> Outcome {
        let effects = &mut self.effects;
        if !effects.records.is_empty() {
            let event = match self.log.append(&mut effects.records) {
                Ok(appended) => {
                    if let (true, Some(hands)) = (appended.rotated, &self.hands) {
                        // A thread that is gone prepares nothing: the log then makes its segments when it needs them.
                        let _ = hands.files.send(FileWork::Prepare);
                    }
                    Event::LogWritten
                }
                Err(error) => Event::LogWriteFailed(error.to_string()),
            };
            effects.records.clear();
            // A large batch should not pin its buffer for ever.
            effects.records.shrink_to(1 << 20);
            self.node.handle(event, now_ms, effects);
        }
        if std::mem::take(&mut effects.marker)
            && let Err(error) = self.log.write_marker()
        {
            self.node
                .handle(Event::LogWriteFailed(error.to_string()), now_ms, effects);
        }
        while std::mem::take(&mut effects.sync) {
            match (self.log.sync_ticket(), &self.hands) {
                (Some(ticket), Some(hands)) => {
                    if hands.sync.send(ticket).is_err() {
                        let event = Event::LogSyncFailed("the sync thread is gone".to_owned());
                        self.node.handle(event, now_ms, effects);
                    }
                }
                (None, _) => {
                    let synced = Event::LogSynced(self.log.status().durable);
                    self.node.handle(synced, now_ms, effects);
                }
                // Shut down: the last sync is done by hand.
                (Some(_), None) => {}
            }
        }
        if let Some(job) = effects.checkpoint.take()
            && let Some(hands) = &self.hands
        {
            // A thread that is gone writes no checkpoint; the log stays long.
            let _ = hands.checkpoint.send(job);
        }
        if let (Some(position), Some(hands)) = (effects.truncate.take(), &self.hands) {
            let _ = hands.files.send(FileWork::Truncate(position));
        }
        for warning in effects.warnings.drain(..) {
            tracing::warn!("{warning}");
        }
        let confirmed = std::mem::take(&mut effects.confirmed);
        let delivered = std::mem::take(&mut effects.delivered);
        Outcome {
            step: confirmed || delivered,
            notify_all: std::mem::take(&mut effects.recovered),
            tick_again: std::mem::take(&mut effects.tick_again),
            refused: std::mem::take(&mut effects.refused),
        }
    }
}
