//! The groups' turns: what consensus wants kept and said, and what follows once it is kept.

use super::{ClusterEffects, ClusterNode, Then};
use crate::cluster::base::CANDIDATES;
use crate::cluster::frames::Frame;
use crate::cluster::lead::Lead;
use crate::groups::NowKept;
use crate::options::FsyncPolicy;
use agree::{Ahead, Turn};
use bytes::Bytes;
use log::{Entry, EntryKind, Kept};
use order::digest_of;
use order::merge::{Held, Retraction};
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, PartitionId};

/// Under `everysec`, what was written is synced after this time.
const EVERYSEC_MS: u64 = 1_000;

impl ClusterNode {
    /// Takes the turns of all groups.
    pub(super) fn turns(&mut self, effects: &mut ClusterEffects) {
        while let Some((partition, turn)) = self.groups.next_turn() {
            match turn {
                Some(turn) => self.turn(partition, turn, effects),
                None => self.notice(partition),
            }
        }
    }

    /// Takes notice of who leads a group.
    pub(super) fn notice(&mut self, partition: PartitionId) {
        let Some(group) = self.groups.get(&partition) else {
            return;
        };
        let leads = group.leads();
        if self.leads.get(&partition).map(|lead| lead.term) != leads {
            match leads {
                None => _ = self.leads.remove(&partition),
                Some(term) => {
                    let streams = if is_active(Mutant::ForgetUnconfirmedStreams) {
                        self.merge.group(partition).0.clone()
                    } else {
                        self.merge.streams_to_the_end(partition, &self.registry)
                    };
                    self.leads.insert(partition, Lead::new(term, streams));
                }
            }
        }
        let known = group.leader();
        if self.leaders.learn(partition, known) {
            // It has not heard what this node wants.
            self.remind |= known.is_some() && partition == PartitionId(0);
            // Nobody answers the questions of an earlier leader.
            let again = self.reads.ask_again(u64::MAX, self.ticks);
            for question in again {
                self.ask(question);
            }
        }
    }

    pub(super) fn turn(&mut self, partition: PartitionId, mut turn: Turn, effects: &mut ClusterEffects) {
        if let Some(ahead) = turn.ahead.take() {
            self.go_ahead(partition, ahead, effects);
        }
        for (to, message) in turn.messages.drain(..) {
            self.send(to, &Frame::Consensus { partition, message }, effects);
        }
        self.appended(partition, &turn, effects);
        if self.is_stopped() {
            return;
        }
        self.merge.agreed(partition, turn.committed);
        for (question, index) in turn.indices {
            self.reads.learn(question, partition, index);
        }
        for (question, index) in self.reads.reached(partition, turn.committed) {
            let epoch = self.merge.epoch_at(partition, index);
            self.reads.answer(question, epoch);
        }
        let always = self.options.fsync == FsyncPolicy::Always;
        let must_sync = turn.is_promise || turn.must_sync && always;
        let is_kept = !turn.kept.is_empty();
        self.record(turn.kept, effects);
        let must_sync = must_sync && !is_active(Mutant::PromiseBeforeSync);
        self.groups.promise(partition, turn.number, turn.promises, is_kept, must_sync);
        for node in turn.behind {
            self.tell_behind(partition, node, effects);
        }
        self.waited.extend(turn.again.into_iter().map(|(from, message)| (from, partition, message)));
    }

    /// Puts something into the record that is made now.
    pub(in crate::cluster) fn record(&mut self, kept: Kept, effects: &mut ClusterEffects) {
        if kept.is_empty() {
            return;
        }
        // A base lets older records of the journal go: what this disk is goes along, once.
        let is_base = |kept: &Kept| kept.base.is_some() && kept.partition < CANDIDATES;
        let pending = match &self.out {
            None => Some(&effects.host.kept),
            Some(out) => out.unwritten(),
        };
        // Behind a failed sync nothing is kept any more.
        let Some(pending) = pending else { return };
        if pending.is_empty() {
            self.groups.begin_record();
        }
        let mut parts = Vec::new();
        if is_base(&kept) && !pending.iter().any(is_base) {
            parts.extend(self.bootstrap.keep_again());
            parts.extend(self.checkpoints.candidate_again());
            parts.extend(self.retired_again());
        }
        parts.push(kept);
        match &mut self.out {
            None => effects.host.kept.append(&mut parts),
            Some(out) => out.keep(parts),
        }
    }

    /// A group's log has further entries, perhaps in the place of others.
    fn appended(&mut self, partition: PartitionId, turn: &Turn, effects: &mut ClusterEffects) {
        let Some(first) = turn.kept.entries.first() else {
            return;
        };
        let replaced = self.merge.replaced(partition, first.index);
        self.take_back(partition, replaced, effects);
        let is_batch = |entry: &&Entry| entry.kind == EntryKind::Data && !entry.data.is_empty();
        let mut batches = turn.kept.entries.iter().filter(is_batch);
        for entry in batches.by_ref().take(turn.known) {
            self.merge.placed(partition, (entry.index, entry.term), digest_of(&entry.data));
        }
        if turn.voids_ahead {
            self.void_ahead(partition, 0, effects);
        }
        for entry in batches {
            if !self.hold(partition, (entry.index, entry.term), &entry.data, effects) {
                return;
            }
        }
    }

    /// A group's leader has sent batches ahead of the log.
    fn go_ahead(&mut self, partition: PartitionId, ahead: Ahead, effects: &mut ClusterEffects) {
        self.void_ahead(partition, ahead.stays, effects);
        self.counters.ahead += ahead.batches.len() as u64;
        let term = self.leads.get(&partition).map_or(0, |lead| lead.term);
        for data in &ahead.batches {
            if !self.hold(partition, (Held::AHEAD, term), data, effects) {
                return;
            }
        }
    }

    /// Of the batches ahead of a group's log only so many stay.
    fn void_ahead(&mut self, partition: PartitionId, stays: usize, effects: &mut ClusterEffects) {
        let ahead = self.merge.held(partition).0 - self.merge.logged(partition).0;
        if ahead > stays as u64 {
            self.counters.ahead_void += 1;
            let void = self.merge.void_ahead(partition, stays);
            self.take_back(partition, void, effects);
        }
    }

    /// What a group has taken back is not delivered any more.
    fn take_back(&mut self, partition: PartitionId, what: Option<Retraction>, effects: &mut ClusterEffects) {
        if let Some(retraction) = what {
            self.retract(partition, &retraction, effects);
        }
        self.followers.rewind(partition, self.merge.logged(partition));
    }

    /// The merge gets a group's next batch, which stands at an index and a term of the log. False if this
    /// build cannot read it, which ends the node.
    fn hold(
        &mut self,
        partition: PartitionId,
        place: (u64, u64),
        data: &Bytes,
        effects: &mut ClusterEffects,
    ) -> bool {
        let epoch = Epoch(self.merge.held(partition).0 + 1);
        let own = self.leads.get_mut(&partition).and_then(|lead| lead.take_proposed(place.1, epoch));
        match self.read_batch(partition, place, data, own) {
            Ok(held) => self.merge.appended(partition, held),
            Err(error) => {
                self.end_unread(partition, place.0, &error, effects);
                return false;
            }
        }
        true
    }

    /// Lets go what is kept. Whether anything was.
    pub(super) fn release(&mut self, effects: &mut ClusterEffects) -> bool {
        let mut any = false;
        while let Some(kept) = self.groups.next_kept() {
            any = true;
            match kept {
                NowKept::Messages(partition, messages) => {
                    for (to, message) in messages {
                        self.send(to, &Frame::Consensus { partition, message }, effects);
                    }
                }
                NowKept::Other(Then::Nothing) => {}
                NowKept::Other(Then::Candidate(epoch)) => self.candidate(epoch, effects),
                NowKept::Other(Then::Rebased(epoch)) => self.rebased(epoch, effects),
                NowKept::Other(Then::Installed) => self.start_anew(effects),
            }
        }
        any
    }

    /// What needs no record is kept at once; what needs a sync gets one.
    pub(super) fn flush(&mut self, effects: &mut ClusterEffects) {
        if effects.host.kept.is_empty() {
            if self.release(effects) {
                return self.pump(effects);
            }
            let everysec = self.options.fsync == FsyncPolicy::Everysec && !is_active(Mutant::SkipEverySecond);
            let after_ticks = everysec.then(|| EVERYSEC_MS.div_ceil(self.options.tick_ms.max(1)));
            effects.host.sync |= self.groups.begin_sync(self.ticks, after_ticks);
        }
    }
}
