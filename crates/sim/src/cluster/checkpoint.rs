//! Checkpoints of a simulated process: written, fetched by other nodes, and installed by a start.

use super::Timer;
use super::process::Turn;
use crate::world::{Address, Violation};
use node::cluster::{ClusterEvent, Written, checkpoint, read_piece, write_piece};

impl Turn<'_> {
    /// Does what the node wants done about checkpoints. Returns what it is told of it.
    pub(super) fn see_to_checkpoints(&mut self) -> Vec<ClusterEvent> {
        let mut events = Vec::new();
        let disk = self.core.host(self.host).process_disk();
        let effects = &mut self.process.effects;
        for (to, piece) in effects.read.drain(..) {
            // What is gone by now is asked for again, or a newer one is.
            if let Ok((total, bytes)) = read_piece(&*disk, piece) {
                events.push(ClusterEvent::PieceRead { to, piece, total, bytes });
            }
        }
        if let Some((piece, bytes, whole)) = effects.write.take() {
            events.push(match write_piece(&*disk, piece, &bytes, whole) {
                Ok(()) => {
                    ClusterEvent::PieceWritten { piece, bytes: bytes.len() as u64, last: whole.is_some() }
                }
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    panic!("a node of this cluster gives a checkpoint that is none: {error}")
                }
                Err(error) => ClusterEvent::PieceUnwritten { piece, error: error.to_string() },
            });
        }
        if let Some(needed) = effects.prune.take() {
            // What cannot be removed now is removed after the next checkpoint.
            let _ = checkpoint::prune(&*disk, &needed);
            self.truncate();
        }
        if let Some(job) = self.process.effects.checkpoint.take() {
            self.process.checkpoint = Some(job);
            let after_ns = self.disk_time(self.system.plan.costs.sync_ns * 3);
            self.core.set_timer(self.me(), after_ns, Timer::Checkpointed);
        }
        if std::mem::take(&mut self.process.effects.restart) {
            self.core.note(Address::Host(self.host), || "starts anew".to_owned());
            self.system.tally.installed += 1;
            let map = self.process.newest_map();
            self.system.sites[usize::from(self.host)].remember(&map);
            self.core.exit(self.host);
        }
        events
    }

    /// A checkpoint has had its time.
    pub(super) fn checkpointed(&mut self) -> Result<(), Violation> {
        let Some(job) = self.process.checkpoint.take() else {
            return Ok(());
        };
        let disk = self.core.host(self.host).process_disk();
        let epoch = job.epoch();
        let event = match job.write(&*disk) {
            Ok(Written { records, bytes }) => {
                self.system.tally.checkpoints += 1;
                self.core.note(Address::Host(self.host), || {
                    format!("has written a checkpoint of epoch {}: {records} records", epoch.0)
                });
                ClusterEvent::CheckpointWritten { epoch, bytes }
            }
            Err(error) => ClusterEvent::CheckpointFailed(error.to_string()),
        };
        self.handle(event)
    }
}
