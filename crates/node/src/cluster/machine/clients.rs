//! Requests and strict reads of this node's clients.

use super::{ClusterEffects, ClusterNode};
use crate::cluster::reads::Read;
use crate::refused::Refused;
use std::sync::Arc;
use txn::{BootId, PartitionId, Position, Request, RequestId, Stop};

impl ClusterNode {
    /// Why requests are refused: this node is out, or it has ended.
    pub(super) fn refusal_text(&self) -> Option<&str> {
        let ended = self.counters.stopped.as_deref();
        ended.or_else(|| self.refusal())
    }

    /// Whether requests would be taken now.
    pub fn admission(&self) -> Result<(), Refused> {
        if let Some(text) = self.refusal_text() {
            return Err(Refused::ReadOnly(text.into()));
        }
        if self.stopping || self.transfer.is_ending() || self.membership.is_leaving() {
            return Err(Refused::ShuttingDown);
        }
        let limits = self.options.limits;
        let (requests, bytes) = self.gateway.load();
        let requests = requests.max(self.sources.unanswered_count() as u64);
        if self.boot == BootId(0)
            || requests >= limits.in_flight_requests_max
            || bytes >= limits.in_flight_bytes_max
        {
            return Err(Refused::Busy);
        }
        Ok(())
    }

    /// Takes requests, which keep their order, and empties `requests`; on `Err` they stay with the caller.
    pub fn submit(
        &mut self,
        requests: &mut Vec<Arc<Request>>,
        now_ms: u64,
        effects: &mut ClusterEffects,
    ) -> Result<(), Refused> {
        self.now_ms = now_ms;
        self.admission()?;
        for request in requests.drain(..) {
            let executor = request.route.partitions.first().copied();
            if let Some(elsewhere) = executor.filter(|first| !self.executors.contains_key(first)) {
                self.sources.expect(request.id, elsewhere, self.ticks);
            }
            self.gateway.take(request, self.ticks);
        }
        self.pump(effects);
        Ok(())
    }

    /// Takes strict reads of local partitions: [`ClusterEffects::readable`] tells when they may run.
    pub fn read(
        &mut self,
        reads: impl IntoIterator<Item = (RequestId, PartitionId)>,
        now_ms: u64,
        effects: &mut ClusterEffects,
    ) {
        self.now_ms = now_ms;
        let refusal = self.refusal_text().map(str::to_owned);
        for (id, partition) in reads {
            if let Some(text) = &refusal {
                effects.refused.push((id, Err(Stop::abort(text.clone()))));
                continue;
            }
            if !self.executors.contains_key(&partition) {
                // There is nothing to be read here: it is told so at once.
                effects.readable.push((id, partition, Position::NONE));
                continue;
            }
            self.reads.add(Read { id, partition, since_tick: self.ticks });
        }
        self.pump(effects);
    }
}
