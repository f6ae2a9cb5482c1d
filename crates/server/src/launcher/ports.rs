//! Ports of this machine for servers that are about to start.

use super::HOST;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where [`free_port`] looks: beyond the ports that well-known services have, and before those that Linux
/// gives to outgoing connections (32,768 and later), of which one could come in a server's way between the
/// choice of its port and its start.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// The search begins this many ports later for each process after the first, so that processes side by side
/// do not meet.
const STRIDE: u32 = 61;

/// How many ports this process has looked at.
static LOOKED_AT: AtomicU32 = AtomicU32::new(0);

/// A port of the loopback interface on which nobody listens.
///
/// A process gets no port twice before it has seen them all, so whoever describes a whole cluster (or two at
/// once, in two threads) before any of its servers listens gets ports that differ.
///
/// # Errors
///
/// If somebody listens on every port from 12,000 to 31,999.
pub fn free_port() -> io::Result<u16> {
    let start = std::process::id().wrapping_mul(STRIDE) % u32::from(COUNT);
    for _ in 0..COUNT {
        let looked_at = LOOKED_AT.fetch_add(1, Ordering::Relaxed);
        let place = start.wrapping_add(looked_at) % u32::from(COUNT);
        let port = FIRST + u16::try_from(place).expect("below the count of ports");
        if is_free(HOST, port) {
            return Ok(port);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("all ports of {} from {FIRST} to {} are in use", HOST, FIRST + COUNT - 1),
    ))
}

/// `host:port` of such a port.
pub fn free_address() -> io::Result<String> {
    Ok(format!("{HOST}:{}", free_port()?))
}

/// Whether a server could listen there now.
pub fn is_free(host: &str, port: u16) -> bool {
    TcpListener::bind((host, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn threads_that_choose_at_once_get_ports_that_differ() {
        let chosen: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..50).map(|_| free_port().expect("a port")).collect()))
                .collect();
            let ports = threads.into_iter().map(|thread| thread.join());
            ports.flat_map(|ports: std::thread::Result<Vec<u16>>| ports.expect("chosen")).collect()
        });
        let different: BTreeSet<u16> = chosen.iter().copied().collect();
        assert_eq!(different.len(), 200);
        assert!(different.iter().all(|port| (FIRST..FIRST + COUNT).contains(port)));
    }

    #[test]
    fn a_port_on_which_somebody_listens_is_not_free() {
        let held = TcpListener::bind((HOST, 0)).expect("a port");
        let port = held.local_addr().expect("bound").port();
        assert!(!is_free(HOST, port));
        drop(held);
        assert!(is_free(HOST, port));
    }
}
