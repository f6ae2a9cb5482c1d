//! Log files that somebody removes while the server uses them.
//!
//! A removed file stays usable as long as it is open, so nothing fails: what is written there is
//! acknowledged, and gone with the process. The thread that works on the log's files is the only one that
//! removes segments, so it is the one that looks whether all are there.
//!
//! A server that stands alone goes on in a new segment, and has a checkpoint taken of what the removed ones
//! held: from then on a start finds everything again. A node of a cluster has promised to the others to keep
//! what its journal held, which no checkpoint has: it stops, as if its disk had failed.

use super::Inner;
use super::core::{Hands, Outcome};
use super::member::Member;
use log::Disk;
use node::cluster::ClusterEvent;
use node::host::HostEvent;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How often somebody looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What is known of removed segments: the files that were missed.
#[derive(Default)]
pub(super) struct RemovedSegments(BTreeSet<String>);

impl RemovedSegments {
    /// Looks whether the log's files are there.
    pub fn look(&mut self, inner: &Arc<Inner>) {
        let names = inner.core.lock().member.records.journal.segment_names();
        let there: BTreeSet<String> = match inner.disk.list() {
            Ok(there) => there.into_iter().collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => {
                tracing::debug!("the data directory cannot be listed: {error}");
                return;
            }
        };
        let gone: BTreeSet<String> = names.into_iter().filter(|name| !there.contains(name)).collect();
        if gone.difference(&self.0).next().is_some() {
            let now_ms = inner.now_ms();
            let outcome = inner
                .core
                .lock()
                .turn(|member, hands| member.segments_removed(&gone, hands, now_ms))
                .unwrap_or_default();
            inner.follow(outcome, None);
        }
        // A checkpoint lets go of the segments that it covers. Then nobody misses them.
        self.0 = gone;
    }
}

impl Member {
    /// Files of the journal are gone, which is told here.
    fn segments_removed(&mut self, gone: &BTreeSet<String>, hands: Option<&Hands>, now_ms: u64) -> Outcome {
        let files: Vec<&str> = gone.iter().map(String::as_str).collect();
        let files = files.join(", ");
        if !self.node.is_alone() {
            let text = format!("somebody removed files of its journal: {files}");
            return self.handle(HostEvent::JournalFailed(text), hands, now_ms);
        }
        tracing::error!(
            "somebody removed files of the log, which this server uses: {files}. A start would not find \
             what they held. It is still in memory: a checkpoint of it is being written now"
        );
        let written = self.records.journal.segment_names().pop();
        let is_written = written.is_some_and(|written| gone.contains(&written));
        let event = match is_written.then(|| self.records.journal.leave_removed()) {
            None | Some(Ok(())) => ClusterEvent::LogLost,
            Some(Err(error)) => ClusterEvent::Host(HostEvent::JournalFailed(format!(
                "somebody removed {files}, and no other file could take their place: {error}"
            ))),
        };
        self.handle(event, hands, now_ms)
    }
}
