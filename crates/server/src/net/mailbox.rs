//! How other threads reach an I/O thread.

use super::starting::Early;
use crate::hub::Delivery;
use mio::net::TcpStream;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use txn::SessionId;

/// A connection for an I/O thread.
pub enum Incoming {
    /// One that was accepted just now.
    New {
        /// Its socket.
        socket: TcpStream,
        /// Whether it came to `tls-port`.
        is_tls: bool,
    },
    /// One that has waited for the server to start.
    Early(Box<Early>),
}

/// Where other threads leave something for an I/O thread.
pub struct Mailbox {
    wake: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    /// The thread waits in its poll, or is about to: only then does it need a wake-up.
    asleep: AtomicBool,
    accepted: Mutex<Vec<Incoming>>,
    kills: AtomicBool,
    deliveries: Mutex<Vec<(SessionId, Delivery)>>,
}

impl Mailbox {
    /// The mailbox of the thread that `wake` wakes.
    pub fn new(wake: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Mailbox {
        Mailbox {
            wake: Box::new(wake),
            asleep: AtomicBool::new(false),
            accepted: Mutex::default(),
            kills: AtomicBool::new(false),
            deliveries: Mutex::default(),
        }
    }

    /// Makes the thread look at its port. Costs nothing while it is busy.
    pub fn notify(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wakes the thread, whatever it does.
    pub fn wake(&self) {
        if let Err(error) = (self.wake)() {
            // It looks by itself at its next tick.
            tracing::warn!("an I/O thread could not be woken: {error}");
        }
    }

    /// The thread is about to sleep: from now on [`Mailbox::notify`] wakes it. It must look once more before
    /// it does.
    pub(super) fn falls_asleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }
    /// The thread is awake.
    pub(super) fn is_awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Hands a connection to the thread.
    pub fn hand_over(&self, incoming: Incoming) {
        self.accepted.lock().push(incoming);
        self.wake();
    }
    /// Takes what was handed over.
    pub(super) fn take_accepted(&self) -> Vec<Incoming> {
        std::mem::take(&mut *self.accepted.lock())
    }

    /// Leaves something for a connection of the thread.
    pub fn deliver(&self, session: SessionId, delivery: Delivery) {
        self.deliveries.lock().push((session, delivery));
        self.notify();
    }
    /// Takes what was left for connections.
    pub(crate) fn take_deliveries(&self) -> Vec<(SessionId, Delivery)> {
        std::mem::take(&mut *self.deliveries.lock())
    }
    /// Whether something was left for a connection.
    pub(super) fn has_deliveries(&self) -> bool {
        !self.deliveries.lock().is_empty()
    }

    /// Makes the thread look for killed clients.
    pub(crate) fn announce_kill(&self) {
        self.kills.store(true, Ordering::SeqCst);
        self.wake();
    }
    /// Whether clients were killed since the last look.
    pub(super) fn take_kills(&self) -> bool {
        self.kills.swap(false, Ordering::SeqCst)
    }
}
