//! What this node sends to one peer: the socket, and what the kernel did not take yet.
//!
//! Whoever has frames writes them to the socket at once, on its own thread. Only when the kernel takes no
//! more are they queued; from then on everything goes through the queue, in order, until the peer's dialling
//! thread has emptied it. The outbox's lock is held for one non-blocking write at a time.

use super::frames;
use crate::tls::{Sent, Stream};
use mio::Waker;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use txn::NodeId;

/// How much of a queue is written under one lock.
const WRITE_BYTES_MAX: usize = 256 << 10;
/// And how much before the dialling thread looks at its orders again.
const FLUSH_BYTES_MAX: usize = 8 << 20;
/// An empty queue keeps so much memory.
const QUEUE_BYTES_KEPT: usize = 1 << 20;

/// Why a link was closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Break {
    #[error("the other node closed it")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the other node sent something on it, which it must not")]
    Spoke,
    #[error(
        "{queued} bytes wait for the other node to take them, and at most {max} may: it is frozen or too slow"
    )]
    Overflow { queued: usize, max: usize },
    #[error("bytes wait for the other node, and it has taken none for {0:?}: it is frozen, or cut off")]
    Stalled(Duration),
    #[error("a new one was asked for")]
    Asked,
    #[error("its address was changed, or it was removed")]
    Moved,
    #[error("this node stops")]
    Stopped,
}

#[derive(Default)]
struct Outbox {
    stream: Option<Stream>,
    /// The protocol of the link.
    protocol: u16,
    /// Whole frames but for the first, of which a part may have been sent. Empty without a stream.
    queue: VecDeque<u8>,
    /// Why a sender closed the stream. The dialling thread has yet to see it.
    broken: Option<Break>,
}

/// Counts of a link. Nothing hangs on their order.
#[derive(Default)]
pub(super) struct LinkCounters {
    pub links: AtomicU64,
    pub frames: AtomicU64,
    pub bytes: AtomicU64,
    pub dropped_bytes: AtomicU64,
}

/// What others ask of the dialling thread.
#[derive(Default)]
pub(super) struct Orders {
    pub stopping: bool,
    /// Where the peer is; none if it is no peer any more.
    pub address: Option<String>,
    /// Counts the changes of the address.
    pub version: u64,
    /// The peer seems to be there: dial now.
    pub nudged: bool,
    /// Close the link, and dial anew.
    pub redial: bool,
}

/// The link to one peer.
pub(super) struct Link {
    pub peer: NodeId,
    queue_bytes_max: usize,
    outbox: Mutex<Outbox>,
    orders: Mutex<Orders>,
    /// Wakes the dialling thread.
    waker: Waker,
    pub counters: LinkCounters,
    /// Why there is no link, if there should be one.
    pub trouble: Mutex<Option<String>>,
}

/// How much of a queue is left.
pub(super) struct Flushed {
    /// So much went to the kernel.
    pub moved_bytes: usize,
    /// Nothing is left.
    pub is_empty: bool,
    /// The kernel takes no more now: the socket tells when it does again.
    pub full: bool,
}

impl Link {
    pub fn new(peer: NodeId, queue_bytes_max: usize, waker: Waker) -> Link {
        Link {
            peer,
            queue_bytes_max,
            outbox: Mutex::default(),
            orders: Mutex::default(),
            waker,
            counters: LinkCounters::default(),
            trouble: Mutex::default(),
        }
    }

    /// Changes the orders, and wakes the dialling thread.
    pub fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock());
        self.wake();
    }

    pub fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock()
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!("the thread that writes to {} could not be woken: {error}", self.peer);
        }
    }

    /// The protocol of the link, and how many bytes wait (1 if only what is encrypted does); none if there is
    /// no link.
    pub fn state(&self) -> Option<(u16, usize)> {
        let outbox = self.outbox.lock();
        let stream = outbox.stream.as_ref()?;
        let pending = usize::from(stream.pends());
        Some((outbox.protocol, outbox.queue.len().max(pending)))
    }

    /// Sends frames of the link's protocol, or drops them; never waits for the peer. Empties `out`.
    pub fn send(&self, protocol: u16, out: &mut Vec<u8>) {
        if !out.is_empty() {
            match frames::count(out) {
                Some(frames) => self.send_frames(protocol, frames, out),
                None => self.send_rest(protocol, out),
            }
            out.clear();
        }
    }

    /// Sends what there is beside frames that are too long: whole conversations go through here, and must not
    /// end for one.
    fn send_rest(&self, protocol: u16, out: &mut Vec<u8>) {
        let dropped = frames::take_long(out);
        let dropped_bytes = dropped.unwrap_or(out.len());
        tracing::error!(
            "{dropped_bytes} bytes for {} are not whole frames of at most {} bytes: dropped",
            self.peer,
            frames::FRAME_BYTES_MAX
        );
        self.drop_bytes(dropped_bytes);
        if dropped.is_some()
            && let Some(frames @ 1..) = frames::count(out)
        {
            self.send_frames(protocol, frames, out);
        }
    }

    fn send_frames(&self, protocol: u16, frames: u64, bytes: &[u8]) {
        let mut guard = self.outbox.lock();
        let outbox = &mut *guard;
        let mut sent = 0;
        let mut pends = false;
        match &mut outbox.stream {
            Some(stream) if outbox.protocol == protocol => {
                if outbox.queue.is_empty() && !stream.pends() {
                    match write(stream, bytes) {
                        Ok(written) => sent = written.bytes,
                        Err(error) => return self.break_off(guard, error.into(), bytes.len()),
                    }
                    pends = stream.pends();
                }
            }
            _ => return self.drop_bytes(bytes.len()),
        }
        self.counters.frames.fetch_add(frames, Ordering::Relaxed);
        self.counters.bytes.fetch_add(sent as u64, Ordering::Relaxed);
        let rest = &bytes[sent..];
        if rest.is_empty() && !pends {
            return;
        }
        let first = outbox.queue.is_empty();
        let queued = outbox.queue.len() + rest.len();
        if !first && queued > self.queue_bytes_max {
            let max = self.queue_bytes_max;
            let overflow = Break::Overflow { queued, max };
            return self.break_off(guard, overflow, rest.len());
        }
        outbox.queue.extend(rest);
        drop(guard);
        if first {
            // It has to watch the queue from now on.
            self.wake();
        }
    }

    fn drop_bytes(&self, bytes: usize) {
        self.counters.dropped_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Closes the link from a sender's thread. The dialling thread does the rest.
    fn break_off(&self, mut outbox: MutexGuard<'_, Outbox>, why: Break, lost_bytes: usize) {
        self.discard(&mut outbox);
        outbox.broken = Some(why);
        drop(outbox);
        self.drop_bytes(lost_bytes);
        self.wake();
    }

    /// Closes the socket, and drops what waits. What the kernel has is dropped as well if anything waits, so
    /// that peers that take nothing cost no memory behind this node's back.
    fn discard(&self, outbox: &mut Outbox) {
        if let Some(mut stream) = outbox.stream.take() {
            if outbox.queue.is_empty() && !stream.pends() {
                stream.farewell();
            } else if let Err(error) =
                socket2::SockRef::from(stream.socket()).set_linger(Some(Duration::ZERO))
            {
                tracing::debug!("a closed link keeps its buffer: {error}");
            }
        }
        self.drop_bytes(outbox.queue.len());
        outbox.queue = VecDeque::new();
    }

    /// Opens the link: frames are sent from now on.
    pub fn open(&self, stream: Stream, protocol: u16) {
        *self.trouble.lock() = None;
        self.counters.links.fetch_add(1, Ordering::Relaxed);
        let mut outbox = self.outbox.lock();
        outbox.stream = Some(stream);
        outbox.protocol = protocol;
        outbox.broken = None;
    }

    /// Closes the link.
    pub fn close(&self) {
        self.discard(&mut self.outbox.lock());
    }

    /// Writes what waits, as far as the kernel takes it, or a good part of it.
    pub fn flush(&self) -> Result<Flushed, Break> {
        let mut written_bytes = 0;
        let mut moved_bytes = 0;
        let mut guard = self.outbox.lock();
        loop {
            let outbox = &mut *guard;
            let Some(stream) = &mut outbox.stream else {
                return Err(outbox.broken.take().unwrap_or(Break::Closed));
            };
            let (front, _) = outbox.queue.as_slices();
            let front = &front[..front.len().min(WRITE_BYTES_MAX)];
            let sent = write(stream, front)?;
            let pends = stream.pends();
            written_bytes += sent.bytes;
            moved_bytes += sent.moved_bytes;
            outbox.queue.drain(..sent.bytes);
            let is_empty = outbox.queue.is_empty();
            if sent.full || is_empty || written_bytes >= FLUSH_BYTES_MAX {
                if is_empty && outbox.queue.capacity() > QUEUE_BYTES_KEPT {
                    outbox.queue = VecDeque::new();
                }
                let bytes = &self.counters.bytes;
                bytes.fetch_add(written_bytes as u64, Ordering::Relaxed);
                return Ok(Flushed { moved_bytes, is_empty: is_empty && !pends, full: sent.full });
            }
            // Senders are on the way of somebody's request.
            MutexGuard::bump(&mut guard);
        }
    }

    /// Looks whether the peer has closed the link. It has nothing to say here.
    pub fn look_for_end(&self) -> Result<(), Break> {
        let mut outbox = self.outbox.lock();
        let Some(stream) = &mut outbox.stream else {
            return Ok(());
        };
        loop {
            return match stream.receive(&mut [0]) {
                Ok(got) if got.bytes == 0 => Err(Break::Closed),
                Ok(_) => Err(Break::Spoke),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => Ok(()),
                    ErrorKind::Interrupted => continue,
                    _ => Err(error.into()),
                },
            };
        }
    }
}

/// Writes until the kernel takes no more. Returns how much was taken.
fn write(stream: &mut Stream, bytes: &[u8]) -> io::Result<Sent> {
    let mut all = Sent { bytes: 0, moved_bytes: 0, full: false };
    loop {
        let rest = &bytes[all.bytes..];
        if all.full || (rest.is_empty() && !stream.pends()) {
            return Ok(all);
        }
        match stream.send(rest) {
            Ok(sent) => {
                all.bytes += sent.bytes;
                all.moved_bytes += sent.moved_bytes;
                all.full = sent.full;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
