//! Listening sockets.

use crate::config::Config;
use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not an address.
    #[error(
        "bind: '{0}' is not an IP address: give an IPv4 or IPv6 address of this machine, '*' for all, or 'localhost'"
    )]
    NotAnAddress(String),
    /// Another process listens there.
    #[error(
        "cannot listen on {0}: the port is in use. Stop the server that uses it, or choose another --port"
    )]
    InUse(SocketAddr),
    /// A port for the privileged.
    #[error(
        "cannot listen on {0}: permission denied. Choose a --port above 1023, or run with the right to use this one"
    )]
    Denied(SocketAddr),
    /// The machine does not have the address.
    #[error(
        "cannot listen on {0}: this machine does not have the address. Correct --bind, or write '-' before the address to make it optional"
    )]
    NoSuchAddress(SocketAddr),
    /// Anything else.
    #[error("cannot listen on {0}: {1}")]
    Other(SocketAddr, io::Error),
    /// All addresses were optional, and none could be had.
    #[error(
        "none of the addresses of --bind could be had: name one that this machine has, for example 127.0.0.1"
    )]
    Nothing,
}

fn resolve(word: &str) -> Result<IpAddr, ListenError> {
    match word {
        "*" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => Ok(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => word
            .parse()
            .map_err(|_| ListenError::NotAnAddress(word.to_owned())),
    }
}

/// Opens a listener for each address of `bind`. With port 0 the first one gets a free port, and the others the same.
pub fn listen(config: &Config) -> Result<Vec<TcpListener>, ListenError> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut port = config.port as u16;
    for word in &config.bind {
        let (optional, word) = match word.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, word.as_str()),
        };
        let address = SocketAddr::new(resolve(word)?, port);
        match open(address, config.tcp_backlog as i32) {
            Ok(listener) => {
                port = listener
                    .local_addr()
                    .map_err(|e| ListenError::Other(address, e))?
                    .port();
                listeners.push(listener);
            }
            Err(error) if optional && absent(&error) => {}
            Err(error) => {
                return Err(match error.kind() {
                    io::ErrorKind::AddrInUse => ListenError::InUse(address),
                    io::ErrorKind::PermissionDenied => ListenError::Denied(address),
                    io::ErrorKind::AddrNotAvailable => ListenError::NoSuchAddress(address),
                    _ => ListenError::Other(address, error),
                });
            }
        }
    }
    if listeners.is_empty() {
        Err(ListenError::Nothing)
    } else {
        Ok(listeners)
    }
}

/// Whether the machine lacks the address or its whole family.
fn absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || matches!(
            error.raw_os_error(),
            Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::ENOPROTOOPT)
        )
}

fn open(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(TcpListener::from_std(socket.into()))
}
