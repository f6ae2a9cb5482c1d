//! Log files that somebody removes while the server uses them.
//!
//! A removed file stays usable as long as it is open, so nothing fails: what is written there is
//! acknowledged, and gone with the process. The thread that works on the log's files is the only one that
//! removes segments, so it is the one that looks whether all are there.
//!
//! A server that stands alone goes on in a new segment, and writes a checkpoint of what the removed ones
//! held: from then on a start finds everything again. A node of a cluster has promised to the others to keep
//! what its journal held, which no checkpoint has: it stops, as if its disk had failed.

use super::Inner;
use super::core::{Core, Machine, Outcome};
use node::Event;
use node::cluster::ClusterEvent;
use order::Disk;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use txn::Position;

/// How often somebody looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Between two attempts to write a checkpoint so many looks go by.
const LOOKS_PER_CHECKPOINT: u32 = 10;

/// What is known of removed segments.
#[derive(Default)]
pub(super) struct RemovedSegments {
    /// The files that were missed.
    missed: BTreeSet<String>,
    /// A checkpoint of this position, or of a later one, has what they held.
    until: Option<Position>,
    looks: u32,
}

impl RemovedSegments {
    /// Looks whether the log's files are there.
    pub fn look(&mut self, inner: &Arc<Inner>) {
        let names = inner.core.lock().segment_names();
        let there: BTreeSet<String> = match inner.disk.list() {
            Ok(there) => there.into_iter().collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => {
                tracing::debug!("the data directory cannot be listed: {error}");
                return;
            }
        };
        let gone: BTreeSet<String> = names.into_iter().filter(|name| !there.contains(name)).collect();
        let is_new = gone.difference(&self.missed).next().is_some();
        if is_new {
            let outcome = {
                let mut core = inner.core.lock();
                // No checkpoint has what a journal holds.
                self.until = match &core.machine {
                    Machine::Alone(alone) => Some(alone.log.status().last),
                    Machine::Member(_) => None,
                };
                core.segments_removed(&gone, inner.now_ms())
            };
            inner.follow(outcome, None);
            self.looks = 0;
        }
        // A checkpoint lets go of the segments that it covers. Then nobody misses them.
        self.missed = gone;
        self.rescue(inner);
    }

    /// Has a checkpoint written that covers what is gone, until there is one.
    fn rescue(&mut self, inner: &Arc<Inner>) {
        let Some(until) = self.until else { return };
        let mut core = inner.core.lock();
        let (status, _) = core.status();
        if status.last_checkpoint >= until {
            tracing::warn!(
                "the checkpoint at position {} has what the removed log files held: a start finds \
                 everything again",
                status.last_checkpoint
            );
            self.until = None;
            return;
        }
        let is_due = self.looks.is_multiple_of(LOOKS_PER_CHECKPOINT) && !status.checkpoint_in_progress;
        if !status.checkpoint_in_progress {
            self.looks += 1;
        }
        if is_due {
            let outcome = core.want_checkpoint(inner.now_ms());
            drop(core);
            inner.follow(outcome, None);
        }
    }
}

impl Core {
    /// The files of the log.
    fn segment_names(&self) -> Vec<String> {
        match &self.machine {
            Machine::Alone(alone) => alone.log.segment_names(),
            Machine::Member(member) => member.journal.segment_names(),
        }
    }

    /// Files of the log are gone, which is told here.
    fn segments_removed(&mut self, gone: &BTreeSet<String>, now_ms: u64) -> Outcome {
        let files: Vec<&str> = gone.iter().map(String::as_str).collect();
        let files = files.join(", ");
        let Machine::Alone(alone) = &mut self.machine else {
            let text = format!("somebody removed files of its journal: {files}");
            return self.member(ClusterEvent::JournalFailed(text), now_ms);
        };
        tracing::error!(
            "somebody removed files of the log, which this server uses: {files}. A start would not find \
             what they held. It is still in memory: a checkpoint of it is being written now"
        );
        let written = alone.log.segment_names().pop();
        let is_written = written.is_some_and(|written| gone.contains(&written));
        match is_written.then(|| alone.log.leave_removed()) {
            None | Some(Ok(())) => Outcome::default(),
            Some(Err(error)) => {
                let text =
                    format!("somebody removed {files}, and no other file could take their place: {error}");
                self.alone(Event::LogSyncFailed(text), now_ms)
            }
        }
    }
}
