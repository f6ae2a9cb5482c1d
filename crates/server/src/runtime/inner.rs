//! What the callers and the threads of a runtime do to what they share.

use super::core;
use super::core::FileWork;
use super::port::{PortShared, Replies};
use super::{Inner, LIGHT_SURPLUS, LongRead, StrictRead};
use crate::clock::wall_ms;
use crate::cluster::identity::Identity;
use execute::{ReadOutcome, SnapshotReader};
use node::cluster::ClusterEvent;
use node::host::HostEvent;
use order::PartitionMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use txn::{PartitionId, Position, Request, RequestId, Stop};

/// A node that is out keeps a strict read for so long that waits for what is still being executed.
const STRICT_READ_OUT_MAX: Duration = Duration::from_millis(500);
/// So long a read of the past waits for transactions that are not final.
const LONG_READ_WAIT_MAX: Duration = Duration::from_secs(10);

impl Inner {
    /// Runs a read at the newest final snapshot of its partition.
    pub(super) fn read(&self, reader: &mut SnapshotReader, request: &Arc<Request>) -> ReadOutcome {
        if self.partitions_count == 1 {
            return reader.run(request, self.epoch_ms());
        }
        match self.outside.routing.with(|map| map.slots_wanted(request)) {
            Ok(wanted) => reader.run_where(request, wanted, self.epoch_ms()),
            Err(stop) => ReadOutcome::Done(Err(stop)),
        }
    }

    /// The steady time.
    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// The epoch time.
    pub(super) fn epoch_ms(&self) -> u64 {
        self.epoch_at(self.now_ms())
    }
    /// The epoch time when the clock said this.
    pub(super) fn epoch_at(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add_signed(self.epoch_lead_ms.load(Ordering::Relaxed))
    }

    /// Lets time pass for the node.
    pub(super) fn tick(&self) -> core::Outcome {
        let mut core = self.core.lock();
        let (now_ms, wall_ms) = self.clock.with_wall_ms();
        let outcome = core.handle(HostEvent::Tick { wall_ms }, now_ms);
        self.epoch_lead_ms.store(core.member.node.epoch_lead_ms(), Ordering::Relaxed);
        outcome
    }

    /// An event of a kind has ended that began then.
    pub(super) fn note_latency(&self, event: &'static str, began: Instant) {
        self.latency.note(event, began.elapsed(), wall_ms() / 1000);
    }

    /// Delivers replies, and tells those who wait for room or for a final commit.
    pub(super) fn after_step(&self, replies: &mut Replies, own: Option<&PortShared>) {
        let foreign = self.ports.put(replies, own);
        if !foreign.is_empty() {
            let outcome = self.core.lock().executed(foreign, self.now_ms());
            self.follow(outcome, own);
        }
        let sent = self.engines.take_sent();
        if !sent.is_empty() {
            let outcome = self.core.lock().say(sent, self.now_ms());
            self.follow(outcome, own);
        }
        if self.strict_waiting.load(Ordering::SeqCst) {
            self.release_strict_reads(own);
        }
        if self.starved.load(Ordering::SeqCst) && self.starved.swap(false, Ordering::SeqCst) {
            self.ports.notify_all();
        }
        if self.waits_for_room.load(Ordering::SeqCst)
            && self.has_room()
            && self.waits_for_room.swap(false, Ordering::SeqCst)
        {
            let outcome = self.core.lock().handle(ClusterEvent::Room, self.now_ms());
            self.follow(outcome, own);
        }
    }

    /// The engines have got all that was in the log when the node started.
    pub(super) fn log_was_delivered(&self) {
        let is_alone = self.core.lock().member.node.is_alone();
        let had = self.engines.iter().map(|engine| {
            let status = engine.status();
            // Alone, all that the log had is confirmed; this process's own epochs wait for the disk.
            if is_alone { status.confirmed } else { status.delivered }
        });
        if let Some((_, upto)) = &mut *self.replaying.lock() {
            *upto = Some(had.collect());
        }
    }

    /// Looks whether the engines have executed that.
    pub(super) fn look_at_replay(&self) {
        let mut replaying = self.replaying.lock();
        let Some((_, Some(upto))) = &*replaying else {
            return;
        };
        let mut both = self.engines.iter().zip(upto);
        if both.all(|(engine, upto)| engine.view().final_position() >= *upto) {
            *replaying = None;
        }
    }

    /// Whether the engines can be given more.
    pub(super) fn has_room(&self) -> bool {
        self.engines.iter().all(|engine| {
            let status = engine.status();
            status.delivered.0 - status.final_committed.0 <= self.room_requests
        })
    }

    /// Sees to what an event made possible. `own` is the port of a caller that steps the engine next.
    pub(super) fn follow(&self, outcome: core::Outcome, own: Option<&PortShared>) {
        if let Some(is_spread) = outcome.is_spread {
            self.ports.set_spread(is_spread);
        }
        let answered = outcome.answered.into_iter();
        let answered = answered.map(|answered| (answered.id, answered.outcome));
        let mut replies = Replies::default();
        for (id, answer) in outcome.refused.into_iter().chain(answered) {
            replies.push(id, answer);
        }
        self.ports.put(&mut replies, own);
        if !outcome.readable.is_empty() {
            self.strict.lock().extend(outcome.readable.into_iter().map(|(id, partition, position)| {
                let since = Instant::now();
                StrictRead { id, partition, position, since, long: None }
            }));
            self.strict_waiting.store(true, Ordering::SeqCst);
            self.release_strict_reads(own);
        }
        if let Some(map) = outcome.restart {
            self.restart(map);
        }
        if let Some(text) = outcome.ended {
            self.end(&text);
        }
        if outcome.notify_all {
            self.ports.notify_all();
            self.progress.notify_all();
        }
        if outcome.waits_for_room {
            self.waits_for_room.store(true, Ordering::SeqCst);
        }
        if outcome.step && own.is_none() && !self.ports.notify_waiting() {
            self.parking.wake(1);
        }
    }

    /// Has a read wait until a partition has final-committed up to a position.
    pub(super) fn wait_for_final(
        &self,
        id: RequestId,
        partition: PartitionId,
        position: Position,
        long: Option<LongRead>,
    ) {
        let since = Instant::now();
        self.strict.lock().push(StrictRead { id, partition, position, since, long });
        self.strict_waiting.store(true, Ordering::SeqCst);
        // What it waits for may have been committed meanwhile.
        self.release_strict_reads(None);
    }

    /// Lets strict reads run whose partition has come far enough: their owners get [`Stop::Restart`], or a
    /// reader's thread gets them.
    pub(super) fn release_strict_reads(&self, own: Option<&PortShared>) {
        let mut replies = Replies::default();
        {
            let mut strict = self.strict.lock();
            strict.retain_mut(|read| {
                let engine = self.engines.of(read.partition);
                let waits = engine.is_some_and(|engine| engine.view().final_position() < read.position);
                if !waits && !read.long.take().is_some_and(|long| self.send_to_readers(long)) {
                    replies.push(read.id, Err(Stop::Restart));
                }
                waits
            });
            if strict.is_empty() {
                self.strict_waiting.store(false, Ordering::SeqCst);
            }
        }
        self.ports.put(&mut replies, own);
    }

    /// False if the node is shutting down.
    fn send_to_readers(&self, read: LongRead) -> bool {
        let reads = self.reads.lock();
        reads.as_ref().is_some_and(|reads| reads.send(read).is_ok())
    }

    /// Gives up strict reads whose partition does not come far enough in time: it waits for other nodes, or
    /// for a long transaction.
    pub(super) fn give_up_strict_reads(&self) {
        let is_out = self.outside.is_out.load(Ordering::Relaxed);
        let patience = match is_out {
            true => STRICT_READ_OUT_MAX.min(self.request_timeout),
            false => self.request_timeout,
        };
        let mut replies = Replies::default();
        self.strict.lock().retain(|read| {
            let patience = if read.long.is_some() { LONG_READ_WAIT_MAX } else { patience };
            let waits = read.since.elapsed() < patience;
            if !waits {
                let text = match &read.long {
                    None => {
                        "CLUSTERDOWN this node did not execute in time what the cluster had agreed on: \
                         nothing was read; try again"
                    }
                    Some(_) => {
                        "ERR transactions up to that time are not final yet: they wait for the disk, or run; \
                         nothing was read; try again"
                    }
                };
                replies.push(read.id, Err(Stop::abort(text)));
            }
            waits
        });
        self.ports.put(&mut replies, None);
    }

    /// Wakes executors for heavy work, which who does only light work has left to them: others may wait for
    /// it, while the caller goes on.
    pub(super) fn wake_for_heavy(&self) {
        let heavy = self.engines.waiting().heavy;
        if heavy > 0 {
            self.parking.wake(heavy.min(self.workers as u64) as usize);
        }
    }

    /// Wakes executors for what callers leave to them.
    pub(super) fn wake_executors(&self) {
        let waiting = self.engines.waiting();
        let light = if waiting.light > LIGHT_SURPLUS { waiting.light / LIGHT_SURPLUS } else { 0 };
        let count = waiting.heavy.saturating_add(light).min(self.workers as u64);
        if count > 0 {
            self.parking.wake(count as usize);
        }
    }

    /// Stops for good because the node is no part of its cluster any more, or cannot read its log.
    pub(super) fn end(&self, text: &str) {
        let code = if self.core.lock().member.node.is_alone() { "MISCONF" } else { "CLUSTERDOWN" };
        if self.halted.set(format!("{code} {text}").into()).is_err() {
            return;
        }
        tracing::error!("{text}");
        *self.replaying.lock() = None;
        if let Some(on_end) = &self.on_end {
            on_end(text);
        }
        self.parking.stop();
        self.ports.notify_all();
        self.progress.notify_all();
    }

    /// Starts the process anew, with what the map says that it keeps.
    pub(super) fn restart(&self, map: Arc<PartitionMap>) {
        let dir = self.disk.path();
        let saved = Identity::load(dir).and_then(|identity| match identity {
            Some(identity) if identity.map.version < map.version => {
                Identity { map: (*map).clone(), ..identity }.save(dir)
            }
            _ => Ok(()),
        });
        if let Err(error) = saved {
            tracing::error!("{error}");
        }
        *self.replaying.lock() = None;
        if let Some(on_restart) = &self.on_restart {
            on_restart();
        }
    }

    /// Stops for good after a bug: in-memory state may be wrong, the files are not touched any more.
    /// Returns what clients are told.
    pub(super) fn halt(&self, what: &str) -> Arc<str> {
        let text = format!(
            "MISCONF the server stopped because of a bug ({what}): restart it, nothing that was \
             acknowledged is lost; and please report this"
        );
        if self.halted.set(text.as_str().into()).is_ok() {
            tracing::error!("{text}");
            if let Some(on_halt) = &self.on_halt {
                on_halt(&text);
            }
        }
        self.parking.stop();
        self.ports.notify_all();
        self.progress.notify_all();
        self.halted.get().cloned().unwrap_or_else(|| text.into())
    }

    /// Has the log's next segment made while the first is filled.
    pub(super) fn prepare_segment(&self) {
        if let Some(hands) = &self.core.lock().hands {
            // A thread that is gone prepares nothing: the log then makes its segments when it needs them.
            let _ = hands.files.send(FileWork::Prepare);
        }
    }

    /// Tells the transport who the peers are, when the map has changed.
    pub(super) fn look_at_map(&self) {
        let Some(peers) = self.outside.peers.get() else {
            return;
        };
        let map = {
            let member = &mut self.core.lock().member;
            let map = member.newest_map().clone();
            if member.peers_of == map.version {
                return;
            }
            member.peers_of = map.version;
            member.tell_level();
            (map, member.me)
        };
        let (map, me) = map;
        let names = map.nodes.iter();
        peers.set_names(names.map(|(&node, entry)| (node, entry.name.clone())).collect());
        let others = map.nodes.iter().filter(|&(&node, _)| node != me);
        let addresses = others.map(|(&node, entry)| (node, entry.peer_address.clone())).collect();
        if let Err(error) = peers.set_peers(&addresses) {
            tracing::error!("{error}");
        }
    }
}
