//! Small things about sockets that both directions need.

use super::Timing;
use super::handshake::{Nonce, WANTED_BYTES_MAX};
use mio::net::TcpStream;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};

/// Collects the bytes of one message of a handshake, and not one more.
pub(super) struct Cup {
    bytes: [u8; WANTED_BYTES_MAX],
    filled: usize,
}

impl Default for Cup {
    fn default() -> Cup {
        Cup { bytes: [0; WANTED_BYTES_MAX], filled: 0 }
    }
}

impl Cup {
    /// The next so many bytes, if they have all come.
    pub fn fill(&mut self, stream: &mut impl Read, wanted: usize) -> io::Result<Option<&[u8]>> {
        while self.filled < wanted {
            match stream.read(&mut self.bytes[self.filled..wanted]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(None),
                    ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        self.filled = 0;
        Ok(Some(&self.bytes[..wanted]))
    }

    /// Sends a message of a handshake. It fits the kernel's empty buffer, or something is wrong.
    pub fn send(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
        stream.write_all(message)
    }
}

/// Where nonces come from.
pub(super) struct Entropy(File);

impl Entropy {
    pub fn open() -> io::Result<Entropy> {
        Ok(Entropy(File::open("/dev/urandom")?))
    }

    pub fn nonce(&self) -> io::Result<Nonce> {
        let mut nonce = Nonce::default();
        (&self.0).read_exact(&mut nonce)?;
        Ok(nonce)
    }
}

/// Sets what a link's socket needs.
pub(super) fn tune(stream: &TcpStream, timing: &Timing) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // On a link that was cut, the kernel tries again after ever longer pauses, and would go on so for minutes
    // after the link is healed. A new connection is through at once.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(timing.unacknowledged_max))?;
    #[cfg(not(target_os = "linux"))]
    let _ = timing;
    Ok(())
}
