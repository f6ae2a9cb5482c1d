//! The thread that reads what one peer sends.
//!
//! There is one for each peer, and it reads one connection at a time. A newer connection waits until the
//! older one, which is closed then, has been read to its end: so a peer's frames come in the order in which
//! it sent them, across its connections too.

use super::frames::{Inbox, TooLong};
use super::{Peer, Shared};
use parking_lot::{Condvar, Mutex};
use rustls::Connection;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct Slots {
    /// To be read next.
    next: Option<Accepted>,
    /// Being read: to close it. None once nothing of it may be handed over any more.
    current: Option<Arc<TcpStream>>,
    stopping: bool,
}

/// A connection whose dialler has proved itself.
pub(super) struct Accepted {
    pub stream: TcpStream,
    /// What it is secured with.
    pub tls: Option<Connection>,
    pub protocol: u16,
}

/// What the reading thread reads: others have the socket, too, to close it.
struct Source {
    stream: Arc<TcpStream>,
    tls: Option<Connection>,
}

impl Read for Source {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut socket = &*self.stream;
        let Some(tls) = &mut self.tls else {
            return socket.read(room);
        };
        loop {
            match tls.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // An end without a farewell: the frames have their own lengths.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            tls.read_tls(&mut socket)?;
            tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            // Keys are renewed now and then, which has to be answered. The other side reads it.
            while tls.wants_write() {
                tls.write_tls(&mut socket)?;
            }
        }
    }
}

/// What the reading thread of a peer shares with others.
#[derive(Default)]
pub(super) struct Reader {
    slots: Mutex<Slots>,
    changed: Condvar,
    pub frames: AtomicU64,
    pub bytes: AtomicU64,
}

fn shut(stream: &TcpStream) {
    if let Err(error) = stream.shutdown(Shutdown::Both) {
        tracing::debug!("a connection was closed already: {error}");
    }
}

impl Reader {
    /// Reads a connection, in the place of the one that was read so far.
    pub fn adopt(&self, accepted: Accepted) {
        let mut slots = self.slots.lock();
        if let Some(older) = &slots.current {
            shut(older);
        }
        if !slots.stopping {
            slots.next = Some(accepted);
            self.changed.notify_one();
        }
    }

    /// Closes the connection. Nothing that was not handed over will be.
    pub fn close(&self) {
        let mut slots = self.slots.lock();
        slots.next = None;
        if let Some(current) = slots.current.take() {
            shut(&current);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.slots.lock().stopping = true;
        self.close();
        self.changed.notify_one();
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        let slots = self.slots.lock();
        slots.current.is_some() || slots.next.is_some()
    }

    fn next(&self) -> Option<(Source, u16)> {
        let mut slots = self.slots.lock();
        loop {
            slots.current = None;
            if slots.stopping {
                return None;
            }
            if let Some(accepted) = slots.next.take() {
                let Accepted { stream, tls, protocol } = accepted;
                let stream = Arc::new(stream);
                slots.current = Some(stream.clone());
                return Some((Source { stream, tls }, protocol));
            }
            self.changed.wait(&mut slots);
        }
    }

    fn is_open(&self) -> bool {
        self.slots.lock().current.is_some()
    }
}

/// Reads the peer's connections until the node stops.
pub(super) fn run(peer: &Peer, shared: &Shared) {
    while let Some((mut source, protocol)) = peer.reader.next() {
        match read(&mut source, protocol, peer, shared) {
            Ok(None) => {}
            Ok(Some(TooLong(bytes))) => tracing::warn!(
                "{} sent a frame of {bytes} bytes, which is more than any may have: its connection is \
                 closed. Run builds that can work together",
                shared.called(peer.link.peer)
            ),
            Err(error) => {
                let peer = shared.called(peer.link.peer);
                tracing::debug!("the connection of {peer} ended: {error}");
            }
        }
        shut(&source.stream);
    }
}

fn read(source: &mut Source, protocol: u16, peer: &Peer, shared: &Shared) -> io::Result<Option<TooLong>> {
    let reader = &peer.reader;
    let mut inbox = Inbox::default();
    let mut frames = Vec::new();
    loop {
        let bytes = match source.read(inbox.room()) {
            Ok(0) => return Ok(None),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let read = inbox.note_read(bytes, &mut frames);
        if !reader.is_open() {
            return Ok(None);
        }
        reader.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if !frames.is_empty() {
            let count = frames.len() as u64;
            reader.frames.fetch_add(count, Ordering::Relaxed);
            let from = peer.link.peer;
            shared.events.frames(from, protocol, &mut frames);
            frames.clear();
        }
        if let Err(too_long) = read {
            return Ok(Some(too_long));
        }
    }
}
