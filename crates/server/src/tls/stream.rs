//! A socket that never waits, with TLS or without.
//!
//! Both kinds tell what edge-triggered polls need to know: whether the kernel may have more to read, and
//! whether it took all that it was given. With TLS a write is taken once it is encrypted, at most
//! [`PENDING_BYTES_MAX`] ahead of the kernel: [`Stream::pends`] says that some of that waits, and any later
//! call sends it.

use mio::net::TcpStream;
use rustls::Connection;
use std::io::{self, ErrorKind, Read, Write};

/// How much may be encrypted, or wait for the end of a handshake, before the kernel takes it.
const PENDING_BYTES_MAX: usize = 64 << 10;

/// The size of a [`Stream::binding`].
pub const BINDING_BYTES: usize = 32;

/// A connected socket. Dropping it closes it without a word: see [`Stream::farewell`].
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// With TLS.
    Secured(Box<Secured>),
}

/// A socket and its TLS.
pub struct Secured {
    socket: TcpStream,
    tls: Connection,
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// So many bytes; 0 is the end.
    pub bytes: usize,
    /// There may be more, without an event that says so.
    pub more: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// So many bytes were taken.
    pub bytes: usize,
    /// So many bytes went to the kernel, which encryption may have made longer.
    pub moved_bytes: usize,
    /// The kernel takes no more now: an event says when it does again.
    pub full: bool,
}

impl Stream {
    /// A socket whose connection is secured by `tls`.
    pub(super) fn secured(socket: TcpStream, mut tls: Connection) -> Stream {
        tls.set_buffer_limit(Some(PENDING_BYTES_MAX));
        Stream::Secured(Box::new(Secured { socket, tls }))
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Secured(secured) => &secured.socket,
        }
    }

    /// The socket, to register it.
    pub fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Secured(secured) => &mut secured.socket,
        }
    }

    /// The socket and its TLS, for somebody who waits for what comes.
    pub fn into_parts(self) -> (TcpStream, Option<Connection>) {
        match self {
            Stream::Plain(socket) => (socket, None),
            Stream::Secured(secured) => (secured.socket, Some(secured.tls)),
        }
    }

    /// What no other connection has, and both ends of this one: whoever takes a connection apart in the
    /// middle has two, which differ. Nothing, where there is no TLS.
    ///
    /// # Errors
    /// The handshake of TLS is not over.
    pub fn binding(&self) -> io::Result<[u8; BINDING_BYTES]> {
        let nothing = [0; BINDING_BYTES];
        match self {
            Stream::Plain(_) => Ok(nothing),
            Stream::Secured(secured) => (secured.tls)
                .export_keying_material(nothing, b"EXPORTER-ordo-peer", None)
                .map_err(io::Error::other),
        }
    }

    /// Whether the other side has not proved itself yet.
    pub fn is_handshaking(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Secured(secured) => secured.tls.is_handshaking(),
        }
    }

    /// Whether something that was taken waits for the kernel.
    #[inline]
    pub fn pends(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Secured(secured) => secured.tls.wants_write(),
        }
    }

    /// Reads what has come.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has. If TLS itself has failed, the error has its reason, and the other side
    /// has been told.
    #[inline]
    pub fn receive(&mut self, room: &mut [u8]) -> io::Result<Got> {
        match self {
            Stream::Plain(socket) => {
                let bytes = socket.read(room)?;
                // A short read has emptied the socket.
                let more = bytes == room.len();
                Ok(Got { bytes, more })
            }
            Stream::Secured(secured) => secured.receive(room),
        }
    }

    /// Sends what the kernel takes, after what waits for it.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<Sent> {
        match self {
            Stream::Plain(socket) => match socket.write(bytes) {
                Ok(0) if !bytes.is_empty() => Err(ErrorKind::WriteZero.into()),
                Ok(count) => Ok(Sent { bytes: count, moved_bytes: count, full: count < bytes.len() }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Ok(Sent { bytes: 0, moved_bytes: 0, full: true })
                }
                Err(error) => Err(error),
            },
            Stream::Secured(secured) => secured.send(bytes),
        }
    }

    /// Says that nothing more comes, as well as that goes without waiting: the other side can tell the end
    /// from a cut.
    pub fn farewell(&mut self) {
        if let Stream::Secured(secured) = self {
            secured.tls.send_close_notify();
            if let Err(error) = secured.push() {
                tracing::debug!("a connection was closed already: {error}");
            }
        }
    }
}

impl Secured {
    fn receive(&mut self, room: &mut [u8]) -> io::Result<Got> {
        let mut bytes = 0;
        let mut emptied = false;
        loop {
            match self.tls.reader().read(&mut room[bytes..]) {
                Ok(0) => break,
                Ok(count) => {
                    bytes += count;
                    if bytes == room.len() {
                        return Ok(Got { bytes, more: true });
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // An end without a farewell. RESP has its own lengths, and whole commands count anyway.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            if emptied {
                return match bytes {
                    0 => Err(ErrorKind::WouldBlock.into()),
                    _ => Ok(Got { bytes, more: false }),
                };
            }
            let socket = &mut self.socket;
            let mut tap = Tap { socket, emptied: &mut emptied };
            match self.tls.read_tls(&mut tap) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => emptied = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let processed = self.tls.process_new_packets();
            // A handshake's next words, or the alert that tells the other side of the error.
            let pushed = self.push();
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            pushed?;
        }
        // What came before the end is told first.
        let more = bytes > 0;
        Ok(Got { bytes, more })
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<Sent> {
        let mut sent = Sent { bytes: 0, moved_bytes: 0, full: false };
        loop {
            let (moved_bytes, full) = self.push()?;
            sent.moved_bytes += moved_bytes;
            sent.full = full;
            let rest = &bytes[sent.bytes..];
            if full || rest.is_empty() {
                return Ok(sent);
            }
            match self.tls.writer().write(rest)? {
                // Before the end of a handshake no more than the limit is taken.
                0 => return Ok(Sent { full: true, ..sent }),
                count => sent.bytes += count,
            }
        }
    }

    /// Gives the kernel what is encrypted. Returns how much it took, and whether it takes no more.
    fn push(&mut self) -> io::Result<(usize, bool)> {
        let mut moved_bytes = 0;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => moved_bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok((moved_bytes, true));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((moved_bytes, false))
    }
}

/// A socket that is seen to be emptied by a short read.
struct Tap<'a> {
    socket: &'a mut TcpStream,
    emptied: &'a mut bool,
}

impl Read for Tap<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = self.socket.read(room)?;
        *self.emptied = bytes < room.len();
        Ok(bytes)
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.receive(room).map(|got| got.bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.send(bytes)? {
            Sent { bytes: 0, full: true, .. } => Err(ErrorKind::WouldBlock.into()),
            sent => Ok(sent.bytes),
        }
    }

    /// Sends what waits for the kernel, as far as it takes it.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(_) => Ok(()),
            Stream::Secured(secured) => secured.push().map(drop),
        }
    }
}
