//! From the groups' logs to the engines: what is read, delivered, confirmed and taken back.

use super::{ClusterEffects, ClusterNode, Executor};
use crate::cluster::shape::{Place, held_batch};
use bytes::Bytes;
use order::merge::{Confirmation, Content, Held, Retraction, Unreadable};
use order::{Changed, Control, GroupBatch};
use std::sync::Arc;
use txn::codec::RequestError;
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, PartitionId, Position};

/// Batches that are delivered after so many others are read when that is near.
const READ_EPOCHS_MAX: u64 = 16;

impl ClusterNode {
    /// What a new batch at an index and a term of a group's log brings to the merge. It is read at once: what
    /// means nothing to this build must not be promised. What came from a leader was read before the group
    /// got it, and `own` is what this node proposed itself.
    pub(super) fn read_batch(
        &self,
        partition: PartitionId,
        place: (u64, u64),
        data: &Bytes,
        own: Option<Arc<GroupBatch>>,
    ) -> Result<Held, RequestError> {
        let held = held_batch(place, data)?;
        if own.is_none() && self.waits_for_long(self.merge.held(partition)) {
            return Ok(held);
        }
        let read = || self.read_ahead.iter().find(|batch| batch.epoch == held.epoch).cloned();
        let batch = match own.or_else(read) {
            Some(batch) => batch,
            None => held.batch.read(&self.registry)?,
        };
        Ok(Held { batch: Content::Read(batch), ..held })
    }

    /// Whether a batch that is taken behind this epoch waits for long: then as bytes.
    pub(super) fn waits_for_long(&self, held: Epoch) -> bool {
        held.0 >= self.merge.delivered().epoch.0 + READ_EPOCHS_MAX
    }

    /// What is in the order was made by a build that knew it: this one is too old.
    pub(super) fn end_unread(
        &mut self,
        partition: PartitionId,
        index: u64,
        error: &RequestError,
        effects: &mut ClusterEffects,
    ) {
        let text = format!(
            "{} of {partition} means nothing to this build of Ordo ({error}): start the version that wrote \
             it, or a newer one (in a cluster, the one that the other nodes run); the data is untouched",
            Place(index)
        );
        self.end(text, effects);
    }

    /// Reads what is delivered next. False if this build cannot.
    pub(super) fn read_next(&mut self, effects: &mut ClusterEffects) -> bool {
        let read = self.merge.read_next(&self.registry);
        if let Err(Unreadable { group, index, cause }) = &read {
            self.end_unread(*group, *index, cause, effects);
        }
        read.is_ok()
    }

    pub(in crate::cluster) fn retract(
        &mut self,
        group: PartitionId,
        retraction: &Retraction,
        effects: &mut ClusterEffects,
    ) {
        self.counters.retracted += 1;
        self.backlog.retract(retraction.epoch);
        let kept = retraction.epoch.0 - self.merge.confirmed().epoch.0 - 1;
        self.ahead_since_ms.truncate(kept as usize);
        effects.warnings.push(format!(
            "another leader's batch replaces epoch {} and what followed it",
            retraction.epoch.0
        ));
        if is_active(Mutant::IgnoreRetraction) {
            return;
        }
        for &(partition, from) in &retraction.from {
            if is_active(Mutant::RetractOnePartition) && partition != group {
                continue;
            }
            if let Some(executor) = self.executors.get_mut(&partition)
                && from < executor.next
            {
                executor.engine.retract(from);
                executor.next = from;
            }
        }
        self.sources.retell();
    }

    /// Tells the engines of epochs that are delivered and confirmed.
    pub(super) fn execute(&mut self, effects: &mut ClusterEffects) {
        let in_flight_max = self.options.limits.in_flight_requests_max;
        let room = |executor: &Executor| {
            let behind = executor.next.prev().0 - executor.engine.view().final_position().0;
            behind < in_flight_max
        };
        while self.backlog.has_room()
            && self.executors.values().all(room)
            && (self.options.speculate || self.merge.is_next_agreed())
            && self.read_next(effects)
        {
            let is_agreed = self.merge.is_next_agreed();
            let Some(delivery) = self.merge.deliver(self.boot) else { break };
            self.backlog.deliver(delivery.epoch, delivery.next, delivery.bytes);
            self.ahead_since_ms.push_back((!is_agreed).then_some(self.now_ms));
            for (partition, batch) in delivery.batches {
                let Some(executor) = self.executors.get_mut(&partition) else {
                    continue;
                };
                executor.next = batch.end();
                executor.engine.deliver(batch);
                effects.delivered = true;
            }
        }
        let has_room = self.backlog.has_room() && self.executors.values().all(room);
        self.waits_for_room = !has_room && self.merge.is_next_held();
        self.look_at_backlog(effects);
        while self.counters.stopped.is_none()
            && let Some(confirmation) = self.merge.confirm()
        {
            self.take_confirmation(&confirmation, effects);
            self.look_at_level(effects);
        }
    }

    pub(super) fn take_confirmation(&mut self, confirmation: &Confirmation, effects: &mut ClusterEffects) {
        self.counters.epochs += 1;
        if let Some(since_ms) = self.ahead_since_ms.pop_front().flatten() {
            self.counters.epochs_ahead += 1;
            self.counters.overlap_ms += self.now_ms.saturating_sub(since_ms);
        }
        let end = &confirmation.end;
        self.checkpoints.note_bytes(confirmation.bytes);
        self.note_states(end);
        let has_checkpoint =
            |(_, change): &(Control, Changed)| [Changed::Checkpoint, Changed::Placed].contains(change);
        if end.changes.iter().any(has_checkpoint) {
            self.pin(end);
        }
        for (executor, next) in self.executors.values_mut().zip(&end.next) {
            if next.prev() > executor.engine.status().confirmed {
                executor.engine.confirm(next.prev());
                effects.confirmed = true;
            }
        }
        for (control, change) in &end.changes {
            let before = self.wanted.len();
            self.wanted.retain(|wanted| wanted != control);
            if self.wanted.len() < before {
                effects.changed.push((control.clone(), *change));
            }
            if let Changed::Boot { node, nonce, boot, .. } = *change
                && node == self.options.me
                && (nonce == self.nonce || is_active(Mutant::TakeOldBoot))
            {
                self.boot = boot;
                self.gateway.begin(boot);
                self.sources.renew();
                effects.boot = Some(boot);
            }
        }
        if !end.changes.is_empty() {
            self.is_spread = end.map.is_spread();
        }
        for partition in self.gateway.groups() {
            let agreed = self.merge.group(partition).0.last(self.boot);
            self.gateway.agreed(partition, agreed);
        }
    }

    /// Looks how far the local partitions are, and forgets what nobody needs any more.
    pub(in crate::cluster) fn settle(&mut self) {
        let finals: Vec<Position> =
            self.executors.values().map(|executor| executor.engine.view().final_position()).collect();
        if let Some(epoch) = self.backlog.executed(&finals, self.merge.confirmed().epoch) {
            self.settled = epoch;
        }
        if self.map().partitions.len() == 1 {
            // Nobody tells it anything.
            return;
        }
        // Where logs are cut, nobody begins any more. Where every node keeps all partitions, they begin
        // together.
        let upto = match self.is_spread {
            true => self.checkpoints.durable_base().min(self.settled),
            false => self.settled,
        };
        if upto > self.forgotten {
            self.forgotten = upto;
            for executor in self.executors.values() {
                if let Some(siblings) = executor.engine.siblings() {
                    siblings.forget(upto);
                }
            }
        }
    }

    /// Looks how much waits to be executed.
    fn look_at_backlog(&mut self, effects: &mut ClusterEffects) {
        if let Some(after_ms) = self.backlog.look(self.merge.undelivered_bytes(), self.now_ms) {
            effects.news.push(format!(
                "this node takes again what the others order, after {after_ms} ms: half of what waited is \
                 executed"
            ));
        }
    }

    /// Whether this node takes no further batches of a group now, because too much waits to be executed.
    pub(super) fn refuses_batches(&mut self, partition: PartitionId, effects: &mut ClusterEffects) -> bool {
        let agreed = self.merge.agreed_epoch(partition);
        let refuses = self.backlog.refuses(agreed, self.merge.delivered().epoch);
        if refuses && self.backlog.refused(partition, self.now_ms) {
            effects.warnings.push(format!(
                "this node executes more slowly than the others order, or still executes what it lacked: {} \
                 bytes wait here, so it takes no more for now, and acknowledges nothing that it has not \
                 taken; what it serves falls behind. Look at what slows it down, if this does not pass",
                self.merge.undelivered_bytes()
            ));
        }
        refuses
    }

    /// Lets the reads go whose epoch is confirmed.
    pub(super) fn release_reads(&mut self, effects: &mut ClusterEffects) {
        let end = self.merge.confirmed();
        for read in self.reads.confirmed(end.epoch) {
            let local = self.executors.keys().zip(&end.next);
            let upto = local
                .filter(|&(&partition, _)| partition == read.partition)
                .map(|(_, next)| next.prev())
                .next();
            effects.readable.push((read.id, read.partition, upto.unwrap_or_default()));
        }
    }
}
