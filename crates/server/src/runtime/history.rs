//! The past that a node by itself keeps, and reads of it (ORDO.AT).
//!
//! The node's tick lets time pass for the history: versions stay as long as readers of the last
//! `history-seconds` need them ([`store::View::keep_history`]). Where memory is short, the evictor gives up
//! the older half of the past before it evicts anything, as often as needed.
//!
//! The time of the order goes on while transactions wait for the disk, or run. A read of a time that may have
//! such transactions waits until all that have been ordered are final ([`Inner::unsettled`]): so it is
//! answered as it always will be.
//!
//! Nodes of a cluster keep none: each would know another past of partitions that it follows.

use super::{Inner, LongRead, Runtime};
use execute::{ReadOutcome, SnapshotReader};
use std::sync::atomic::Ordering;
use store::NoPast;
use txn::{PartitionId, Position, Reply};

/// Says why ORDO.AT has nothing to read.
pub const NO_PAST_OF_CLUSTERS: Reply = Reply::error(
    "ERR nodes of a cluster keep no old versions: 'ordo replay' shows what a transaction of the past read",
);

impl Runtime {
    /// Keeps the versions of this number of last milliseconds; none with 0, and none in a cluster.
    pub fn set_history_ms(&self, history_ms: u64) {
        let wanted = if self.has_past() { history_ms } else { 0 };
        self.inner.history_ms.store(wanted, Ordering::Relaxed);
    }

    /// Whether this node may keep a past.
    pub fn has_past(&self) -> bool {
        self.partitions_count() == 1 && !self.is_member() && !self.is_certified()
    }

    /// Gives up the older half of the past that is kept, so that it can be collected; all of it, where it is
    /// shorter than a second. Gives how many milliseconds of it are left.
    pub fn shorten_history(&self) -> u64 {
        let left_ms = self.inner.engines.iter().map(|engine| engine.view().shorten_history());
        left_ms.max().unwrap_or(0)
    }

    /// How many shards of records were looked through so far for what nobody needs any more: see
    /// [`store::View::swept`].
    pub fn swept(&self) -> usize {
        self.inner.engines.iter().map(|engine| engine.view().swept()).min().unwrap_or(0)
    }

    /// The time of the oldest moment of the past that can be read, in milliseconds since 1970.
    pub fn oldest_past_ms(&self) -> Option<u64> {
        self.inner.engines.iter().filter_map(|engine| engine.view().oldest_past_ms()).max()
    }
}

impl Inner {
    /// Lets time pass for the history.
    pub(super) fn keep_history(&self) {
        let history_ms = self.history_ms.load(Ordering::Relaxed);
        let since_ms = (history_ms > 0).then(|| self.epoch_ms().saturating_sub(history_ms));
        for engine in self.engines.iter() {
            engine.view().keep_history(since_ms);
        }
    }

    /// Whether a past is kept.
    pub(super) fn keeps_past(&self) -> bool {
        self.history_ms.load(Ordering::Relaxed) > 0
    }

    /// Runs a read that takes long: at the newest final snapshot, or at the moment of the past that it names.
    /// `None` if the moment is not settled: the read waits, and comes to a reader again.
    pub(super) fn read_long(&self, reader: &mut SnapshotReader, read: &LongRead) -> Option<ReadOutcome> {
        let request = &read.request;
        let Some(moment) = request.procedure.moment(&request.args) else {
            return Some(self.read(reader, request));
        };
        let refused = |text: String| Some(ReadOutcome::Done(Ok(Reply::error_owned(text))));
        let time_ms = match read.settled_ms {
            Some(time_ms) => time_ms,
            None => {
                let now_ms = self.epoch_ms();
                let time_ms = match u64::try_from(moment) {
                    Ok(time_ms) => time_ms,
                    Err(_) => now_ms.saturating_sub(moment.unsigned_abs()),
                };
                if time_ms > now_ms {
                    return refused(format!(
                        "ERR {time_ms} is in the future: the time of the order is {now_ms}"
                    ));
                }
                if let Some((partition, position)) = self.unsettled(time_ms) {
                    let read = LongRead { request: request.clone(), settled_ms: Some(time_ms) };
                    self.wait_for_final(request.id, partition, position, Some(read));
                    return None;
                }
                time_ms
            }
        };
        match reader.run_at(request, time_ms) {
            Ok(read) => Some(read),
            Err(NoPast::NotKept) => refused(
                "ERR no old versions are kept: CONFIG SET history-seconds says for how long they are to be, \
                 from then on, while maxmemory leaves room for them"
                    .to_owned(),
            ),
            Err(NoPast::Before(oldest_ms)) => refused(format!(
                "ERR {time_ms} is before the oldest version that is kept, which is of {oldest_ms}: \
                 history-seconds says how long versions are kept, while maxmemory leaves room for them"
            )),
        }
    }

    /// Up to where a partition must final-commit before all transactions up to a time are final; `None` if
    /// they are.
    fn unsettled(&self, time_ms: u64) -> Option<(PartitionId, Position)> {
        let (partition, engine) = self.engines.with_partitions().next()?;
        let view = engine.view();
        if view.oldest_past_ms().is_none() || view.final_time_ms() > time_ms {
            return None;
        }
        // A thread that has stamped a batch delivers it before it frees the core.
        let delivered = {
            let _core = self.core.lock();
            engine.status().delivered
        };
        (view.final_position() < delivered).then_some((partition, delivered))
    }
}
