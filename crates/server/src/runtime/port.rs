//! Where the replies of a thread's sessions arrive.
//!
//! A port has one owner (an I/O thread, or the embedded library) and many writers: whichever thread
//! final-commits a transaction puts its reply into the port that the request's session id names. The owner is
//! woken at most once until it looks again: [`PortShared::notify`] sets a flag, the owner clears it *before*
//! it looks, so no wake-up is lost and a busy owner costs its writers nothing.

use execute::{Committed, Effects, Interrupt, Lookups, SnapshotReader, WorkerId};
use node::cluster::Answered;
use node::session as session_id;
use parking_lot::{Mutex, RwLock};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use txn::{Outcome, PartitionId, Position, Reply, RequestId, SessionId};

/// A reply with the request that it answers.
pub type Answer = (RequestId, Outcome);

pub(super) struct PortShared {
    index: u8,
    inbox: Mutex<Vec<Answer>>,
    notified: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
    /// Requests that were submitted here and not yet answered.
    outstanding: AtomicU64,
    /// Stops what the owner reads at a snapshot.
    interrupts: Vec<Interrupt>,
    lookups: Vec<Arc<Lookups>>,
    /// The owner's first session: older ones of this port belonged to an earlier owner.
    session_first: SessionId,
}

impl PortShared {
    /// Wakes the owner unless it was woken already and has not looked since.
    pub(super) fn notify(&self) {
        if !self.notified.swap(true, Ordering::SeqCst) {
            (self.wake)();
        }
    }
    /// Wakes the owner if replies wait for it: it was told to look without having taken them.
    pub(super) fn remind(&self) {
        if !self.inbox.lock().is_empty() {
            self.notify();
        }
    }
    /// The owner is about to look: whatever comes from now on wakes it again.
    pub(super) fn look(&self) {
        self.notified.swap(false, Ordering::SeqCst);
    }
    pub(super) fn add_outstanding(&self, count: usize) {
        self.outstanding.fetch_add(count as u64, Ordering::Relaxed);
    }
    pub(super) fn remove_outstanding(&self, count: usize) {
        self.outstanding.fetch_sub(count as u64, Ordering::Relaxed);
    }
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Relaxed)
    }
}

/// A place where the replies of one owner's sessions arrive. Belongs to one thread.
///
/// Dropping it gives its number back; replies that arrive later are discarded.
pub struct Port {
    pub(super) shared: Arc<PortShared>,
    /// The engine's name for the thread that owns this port.
    pub(super) worker: WorkerId,
    /// Reads at snapshots on the owner's behalf: one for each engine.
    pub(super) readers: RefCell<Vec<SnapshotReader>>,
    /// Reused between rounds.
    pub(super) replies: RefCell<Replies>,
    ports: Arc<Ports>,
}

impl Port {
    /// A session id that was never used before in the life of this database. A session counts its requests
    /// from 1.
    pub fn session(&self) -> SessionId {
        self.ports.next_session(self.shared.index)
    }

    /// Moves the replies that have arrived to the end of `out`.
    pub fn drain(&self, out: &mut Vec<Answer>) {
        self.shared.look();
        let mut inbox = self.shared.inbox.lock();
        if out.is_empty() {
            std::mem::swap(&mut *inbox, out);
        } else {
            out.append(&mut inbox);
        }
    }

    /// How many requests were submitted here and not yet answered.
    pub fn outstanding(&self) -> u64 {
        self.shared.outstanding()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.ports.slots.write()[usize::from(self.shared.index)] = None;
    }
}

/// All ports of a runtime, by number.
pub(super) struct Ports {
    slots: RwLock<Vec<Option<Arc<PortShared>>>>,
    counters: Vec<SessionCounter>,
    /// The first boot id of this process. Sessions of older ones belong to clients that are gone.
    boot_first: AtomicU32,
    /// The newest boot id that was given out.
    boot_last: AtomicU32,
    /// The sum of what the server's own requests replied.
    internal_sum: AtomicU64,
    /// Whether other nodes' clients may wait for what is executed here.
    is_spread: AtomicBool,
}

/// The next session of a port: a boot id and a counter, packed so that both change at once.
struct SessionCounter(AtomicU64);

impl Ports {
    /// Ports that have not yet begun.
    pub(super) fn new(count: usize) -> Ports {
        Ports {
            slots: RwLock::new(vec![None; count]),
            counters: (0..count).map(|_| SessionCounter(AtomicU64::new(0))).collect(),
            boot_first: AtomicU32::new(u32::MAX),
            boot_last: AtomicU32::new(0),
            internal_sum: AtomicU64::new(0),
            is_spread: AtomicBool::new(false),
        }
    }

    /// The sum of what the server's own requests replied since the start: how many expired keys they removed.
    pub(super) fn internal_sum(&self) -> u64 {
        self.internal_sum.load(Ordering::Relaxed)
    }

    /// The process's boot id is known: sessions may be opened.
    pub(super) fn begin(&self, boot: u32) {
        for counter in &self.counters {
            counter.0.store(session_id::pack_counter(boot, 0), Ordering::SeqCst);
        }
        self.boot_last.store(boot, Ordering::SeqCst);
        self.boot_first.store(boot, Ordering::SeqCst);
    }

    /// How many ports there can be.
    pub(super) fn count(&self) -> usize {
        self.counters.len()
    }

    fn next_session(&self, port: u8) -> SessionId {
        let counter = &self.counters[usize::from(port)].0;
        // The port has one owner, so nobody else counts here between these lines.
        let next = counter.fetch_add(1, Ordering::Relaxed);
        let (boot, count) = session_id::unpack_counter(next);
        if count == session_id::COUNTER_MAX {
            // The counter would carry into the boot id: go on under a fresh one, which nobody else has.
            let boot = self.boot_last.fetch_add(1, Ordering::SeqCst) + 1;
            counter.store(session_id::pack_counter(boot, 0), Ordering::Relaxed);
        }
        session_id::compose(boot, port, count)
    }

    pub(super) fn open(
        self: &Arc<Ports>,
        wake: Box<dyn Fn() + Send + Sync>,
        executors: usize,
        readers: Vec<SnapshotReader>,
    ) -> Option<Port> {
        let mut slots = self.slots.write();
        let index = slots.iter().position(Option::is_none)?;
        let index = u8::try_from(index).ok()?;
        let shared = Arc::new(PortShared {
            index,
            inbox: Mutex::new(Vec::new()),
            notified: AtomicBool::new(false),
            wake,
            outstanding: AtomicU64::new(0),
            interrupts: readers.iter().map(SnapshotReader::interrupt).collect(),
            lookups: readers.iter().map(SnapshotReader::lookups).collect(),
            session_first: self.next_session(index),
        });
        slots[usize::from(index)] = Some(shared.clone());
        Some(Port {
            shared,
            worker: WorkerId(executors + usize::from(index)),
            readers: RefCell::new(readers),
            replies: RefCell::new(Replies::default()),
            ports: self.clone(),
        })
    }

    /// What the readers of each port's owner looked for: hits and misses.
    pub(super) fn lookups(&self) -> Vec<(u64, u64)> {
        let ports = self.slots.read();
        let lookups = ports.iter().flatten().flat_map(|port| &port.lookups);
        lookups.map(|lookups| lookups.get()).collect()
    }

    /// Wakes the owners that wait for replies: something became final, and they final-commit their
    /// transactions themselves. Returns whether there was any.
    pub(super) fn notify_waiting(&self) -> bool {
        let mut any = false;
        for port in self.slots.read().iter().flatten() {
            if port.outstanding() > 0 {
                port.notify();
                any = true;
            }
        }
        any
    }

    /// How many requests were submitted through ports that are open, and not yet answered.
    pub(super) fn outstanding(&self) -> u64 {
        let slots = self.slots.read();
        slots.iter().flatten().map(|port| port.outstanding()).sum()
    }

    /// Asks the owners to stop the long computations that they run at snapshots. Returns whether there was
    /// any.
    pub(super) fn interrupt(&self) -> bool {
        let interrupted = |port: &Arc<PortShared>| {
            let reads = port.interrupts.iter();
            reads.filter(|read| read.interrupt()).count() > 0
        };
        let slots = self.slots.read();
        slots.iter().flatten().filter(|port| interrupted(port)).count() > 0
    }

    /// Wakes every owner: something that all of them may wait for has changed.
    pub(super) fn notify_all(&self) {
        for port in self.slots.read().iter().flatten() {
            port.notify();
        }
    }

    /// Other nodes' clients may wait for what is executed here, from now on or no more.
    pub(super) fn set_spread(&self, is_spread: bool) {
        self.is_spread.store(is_spread, Ordering::Relaxed);
    }

    /// Whether other nodes' clients may wait for what is executed here.
    pub(super) fn is_spread(&self) -> bool {
        self.is_spread.load(Ordering::Relaxed)
    }

    /// Puts replies into the ports that their sessions name, and leaves `replies` empty. `own` is the
    /// caller's port, which it looks at next anyway. Gives those that other nodes' clients may wait for.
    pub(super) fn put(&self, replies: &mut Replies, own: Option<&PortShared>) -> Vec<Answered> {
        let mut foreign = Vec::new();
        if replies.answers.is_empty() {
            return foreign;
        }
        let is_spread = self.is_spread.load(Ordering::Relaxed);
        let slots = self.slots.read();
        let boot_first = self.boot_first.load(Ordering::Relaxed);
        let boot_last = self.boot_last.load(Ordering::Relaxed);
        let mut answers = replies.answers.drain(..).peekable();
        while let Some(answered) = answers.next() {
            let (id, outcome) = (answered.id, answered.outcome);
            let (boot, index) = session_id::boot_and_port(id.session);
            // Requests of other processes, replayed ones among them, and the server's own have no one waiting
            // here.
            if !(boot_first..=boot_last).contains(&boot) {
                if id.session != SessionId::INTERNAL {
                    if is_spread {
                        foreign.push(Answered { outcome, ..answered });
                    }
                } else if let Ok(Reply::Integer(count)) = outcome {
                    let count = u64::try_from(count).unwrap_or(0);
                    self.internal_sum.fetch_add(count, Ordering::Relaxed);
                }
                continue;
            }
            let Some(Some(port)) = slots.get(usize::from(index)) else {
                continue;
            };
            // The number may have had another owner before.
            if id.session < port.session_first {
                continue;
            }
            let mut inbox = port.inbox.lock();
            let before = inbox.len();
            inbox.push((id, outcome));
            while let Some(next) =
                answers.next_if(|next| session_id::boot_and_port(next.id.session) == (boot, index))
            {
                inbox.push((next.id, next.outcome));
            }
            let count = inbox.len() - before;
            drop(inbox);
            port.remove_outstanding(count);
            if own.is_none_or(|own| own.index != port.index) {
                port.notify();
            }
        }
        foreign
    }
}

/// Collects the replies of one step before they are put into their ports.
#[derive(Default)]
pub(super) struct Replies {
    answers: Vec<Answered>,
}

impl Replies {
    /// A reply that does not come from an engine: a refusal.
    pub(super) fn push(&mut self, id: RequestId, outcome: Outcome) {
        self.answers.push(Answered { id, partition: PartitionId(0), position: Position::NONE, outcome });
    }
}

impl Effects for Replies {
    fn committed(&mut self, committed: Committed) {
        let executors = &committed.request.route.partitions;
        self.answers.push(Answered {
            id: committed.request.id,
            partition: executors.first().copied().unwrap_or_default(),
            position: committed.position,
            outcome: committed.outcome,
        });
    }
}
