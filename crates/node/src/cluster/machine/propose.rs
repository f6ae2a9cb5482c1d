//! What goes into the order through this node: requests to whoever leads their group, and batches where this
//! node leads.

use super::{ClusterEffects, ClusterNode};
use crate::cluster::frames::Frame;
use crate::cluster::out::Out;
use crate::expiry::PAGE_ENTRIES;
use agree::Input;
use order::{Control, Submission, arrange::Place};
use std::collections::BTreeSet;
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{
    Args, BootId, Epoch, Key, NodeId, PartitionId, PartitionRoute, Request, RequestId, SessionId, Space,
};

/// No further batch goes into a record of the journal that has so many bytes of them.
const RECORD_BYTES_MAX: usize = 64 << 20;

impl ClusterNode {
    /// Another gateway's requests.
    pub(super) fn submitted(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        submissions: Vec<Submission>,
        effects: &mut ClusterEffects,
    ) {
        let Some(lead) = self.leads.get_mut(&partition) else {
            let leader = self.leader(partition).filter(|&leader| leader != from);
            return self.send(from, &Frame::Elsewhere { partition, leader }, effects);
        };
        let map = &self.merge.delivered().map;
        for submission in submissions {
            let boot = submission.boot;
            // A process that has ended has nobody who waits. One that this node has not yet heard of comes
            // again.
            if map.node_of_boot(boot) != Some(from) {
                continue;
            }
            if let Err(sequence) = lead.take(submission) {
                let frame = Frame::Expect { partition, boot, sequence };
                return self.send(from, &frame, effects);
            }
        }
    }

    /// Looks for expired entries of the partitions that this node leads, and orders their removal.
    pub(super) fn expire(&mut self) {
        let (users, system) = (&self.options.expire, &self.options.expire_system);
        if users.is_none() && system.is_none() {
            return;
        }
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            let Some(executor) = self.executors.get_mut(&partition) else {
                continue;
            };
            let view = executor.engine.view();
            if view.final_position() < executor.next.prev() {
                continue;
            }
            let look = executor.expiry.look(view, self.clock.epoch_ms(self.now_ms));
            let procedure = match look.space {
                Space::User => users.clone(),
                Space::System => system.clone(),
            };
            let Some(procedure) = procedure.filter(|_| !look.expired.is_empty()) else {
                continue;
            };
            let Some(lead) = self.leads.get_mut(&partition) else {
                continue;
            };
            for (sequence, expired) in (executor.next.0..).zip(look.expired.chunks(PAGE_ENTRIES)) {
                let id = RequestId { session: SessionId::INTERNAL, sequence, attempt: 0 };
                let args: Args = expired.iter().map(Key::to_blob).collect();
                let mut request = Request::new(id, procedure.clone(), args);
                request.route = PartitionRoute::single(partition);
                // Unnumbered: always taken.
                let _ = lead.take(Submission {
                    boot: BootId(0),
                    sequence: 0,
                    request: Arc::new(request),
                    place: Place::default(),
                });
            }
        }
    }

    /// Passes requests and changes on to the leaders of their groups.
    pub(super) fn pass_on(&mut self, effects: &mut ClusterEffects) {
        for partition in self.gateway.groups() {
            let Some((leader, term)) = self.leaders.of(partition) else {
                continue;
            };
            loop {
                let submissions = self.gateway.next_for(partition, leader, term);
                if submissions.is_empty() {
                    break;
                }
                if leader != self.options.me {
                    let frame = Frame::Submit { partition, submissions };
                    self.send(leader, &frame, effects);
                    continue;
                }
                let Some(lead) = self.leads.get_mut(&partition) else {
                    break;
                };
                for submission in submissions {
                    if let Err(expected) = lead.take(submission) {
                        self.gateway.expected(partition, expected);
                        break;
                    }
                }
            }
        }
        if self.wanted.is_empty() || !std::mem::take(&mut self.remind) {
            return;
        }
        match self.leader(PartitionId(0)) {
            Some(leader) if leader == self.options.me => {
                for control in self.wanted.clone() {
                    self.take_change(control);
                }
            }
            Some(leader) => {
                for control in &self.wanted {
                    self.send(leader, &Frame::Change(control.clone()), effects);
                }
            }
            None => {}
        }
    }

    /// A change is wanted of the one who leads group 0. Who wants it asks again until it is ordered.
    pub(super) fn take_change(&mut self, control: Control) {
        if self.membership.comes_too_early(&control, self.map()) {
            return;
        }
        if let Some(lead) = self.leads.get_mut(&PartitionId(0)) {
            lead.change(control);
        }
    }

    /// Asks a question for an index.
    pub(super) fn ask(&mut self, question: u64) {
        // A group that this node leads answers without a way there and back; any other knows as much.
        let led = self.leads.keys().next().copied();
        if led.is_some() && is_active(Mutant::ReadWithoutIndex) {
            let epoch = self.merge.confirmed().epoch;
            return self.reads.answer(question, epoch);
        }
        let known = || {
            let mut local = self.groups.keys().copied();
            local.find(|&partition| self.leader(partition).is_some())
        };
        if let Some(partition) = led.or_else(known) {
            // A question that is refused is asked again at a later tick.
            let _ = self.groups.handle(partition, Input::AskIndex { question });
        }
    }

    /// Makes the batches that are due in the groups that this node leads. Whether it made any.
    pub(super) fn propose(&mut self, effects: &mut ClusterEffects) -> bool {
        let mut any = false;
        if !self.clock.is_set() {
            return false;
        }
        let stamp_ms = self.clock.stamp_ms(self.now_ms);
        let begun = self.begun.max(self.merge.newest());
        let in_flight_max = self.options.epochs_in_flight_max;
        // The journal's record may be just so long: what is left goes into the next one.
        let waits = self.out.as_ref().and_then(Out::unwritten);
        let unwritten =
            effects.host.kept.iter().chain(waits.into_iter().flatten()).flat_map(|kept| &kept.entries);
        if unwritten.map(|entry| entry.data.len()).sum::<usize>() > RECORD_BYTES_MAX {
            return false;
        }
        let led: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in led {
            let held = self.merge.held(partition);
            let in_flight = self.merge.unconfirmed(partition);
            // Other groups' epochs need a batch of this one, but it need not bring more to be executed.
            let agreed = self.merge.agreed_epoch(partition);
            let is_full = self.backlog.refuses(agreed, self.merge.delivered().epoch);
            let Some(lead) = self.leads.get_mut(&partition) else {
                continue;
            };
            let wanted = lead.has_work() && in_flight < in_flight_max && !is_full;
            if held >= begun && !wanted {
                continue;
            }
            let epoch = Epoch(held.0 + 1);
            let batch = lead.batch(epoch, stamp_ms, is_full);
            match self.groups.handle(partition, Input::Propose(batch.encode().into())) {
                Ok(()) => {
                    lead.proposed(batch);
                    any = true;
                    self.turns(effects);
                }
                Err(_) => lead.put_back(batch),
            }
        }
        let newest = self.merge.newest();
        if newest > self.begun {
            self.begun = newest;
            self.tell_begun(effects);
        }
        any
    }

    /// Tells leaders of groups of which this node keeps no replica that an epoch was begun: they have no
    /// other way to know.
    pub(super) fn tell_begun(&self, effects: &mut ClusterEffects) {
        let elsewhere: BTreeSet<NodeId> = self
            .leaders
            .all()
            .filter(|(partition, _)| !self.groups.contains_key(partition))
            .map(|(_, leader)| leader)
            .collect();
        for leader in elsewhere {
            self.send(leader, &Frame::Begun(self.begun), effects);
        }
    }
}
