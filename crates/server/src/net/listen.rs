//! Listening sockets.

use crate::config::{Config, ConfigError};
use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Neither an address nor a name of one.
    #[error(
        "{0}bind: the name '{1}' does not resolve ({2}): correct it, or give an IPv4 or IPv6 address of this \
         machine, '*' for all, or 'localhost'"
    )]
    Unresolved(Prefix, String, io::Error),
    /// A name whose address protected mode forbids.
    #[error(transparent)]
    Exposed(#[from] ConfigError),
    /// Another process listens there.
    #[error(
        "cannot listen on {1}: the port is in use. Stop the server that uses it, or choose another --{0}port"
    )]
    InUse(Prefix, SocketAddr),
    /// Another process listens where a node's clients are to find it.
    #[error(
        "cannot listen on {0}, which the cluster has as this node's address for clients: the port is in \
         use. Stop the program that uses it"
    )]
    InUseAtNode(SocketAddr),
    /// A port for the privileged.
    #[error(
        "cannot listen on {1}: permission denied. Choose a --{0}port above 1023, or run with the right to \
         use this one"
    )]
    Denied(Prefix, SocketAddr),
    /// The machine does not have the address.
    #[error(
        "cannot listen on {1}: this machine does not have the address. Correct --{0}bind, or write '-' \
         before the address to make it optional"
    )]
    NoSuchAddress(Prefix, SocketAddr),
    /// Anything else.
    #[error("cannot listen on {0}: {1}")]
    Other(SocketAddr, io::Error),
    /// All addresses were optional, and none could be had.
    #[error(
        "none of the addresses of --{0}bind could be had: name one that this machine has, for example \
         127.0.0.1"
    )]
    Nothing(Prefix),
}

/// What stands before `port` and `bind` in the names of the settings that say where to listen: nothing for
/// clients, `http-` for the HTTP port. Errors name the settings.
pub type Prefix = &'static str;

/// Where to listen, as settings say it.
pub struct Place<'a> {
    /// Of the settings' names.
    pub prefix: Prefix,
    /// The addresses, or names of this machine: see `bind`.
    pub bind: &'a [String],
    /// The port. 0: a free one.
    pub port: u16,
    /// How many connections may wait to be accepted.
    pub backlog: i32,
}

/// The address that a word of `bind` stands for. Of a name's addresses it is the first IPv4 one, or else the
/// first.
fn resolve(prefix: Prefix, word: &str) -> Result<IpAddr, ListenError> {
    match word {
        "*" => return Ok(Ipv4Addr::UNSPECIFIED.into()),
        "::*" => return Ok(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => return Ok(Ipv4Addr::LOCALHOST.into()),
        _ => {}
    }
    if let Ok(address) = word.parse() {
        return Ok(address);
    }
    let unresolved = |cause| ListenError::Unresolved(prefix, word.to_owned(), cause);
    let found: Vec<SocketAddr> = (word, 0).to_socket_addrs().map_err(unresolved)?.collect();
    let preferred = found.iter().find(|address| address.is_ipv4());
    match preferred.or(found.first()) {
        Some(address) => Ok(address.ip()),
        None => Err(unresolved(io::Error::other("it has no address"))),
    }
}

/// A socket that is listened on.
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// Whether who connects there speaks TLS.
    pub is_tls: bool,
}

/// Opens a listener for each address of `bind`, and for each of `port` and `tls-port` that there is. With
/// port 0, and no TLS, the first one gets a free port, and the others the same.
pub fn listen(config: &Config) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    let both = [(config.port, false), (config.tls_port, true)];
    for (port, is_tls) in both {
        if port > 0 || (config.tls_port == 0 && !is_tls) {
            let place = Place {
                prefix: "",
                bind: &config.bind,
                port: port as u16,
                backlog: config.tcp_backlog as i32,
            };
            let sockets = listen_on(&place, |word| config.admit_open(word))?.into_iter();
            listeners
                .extend(sockets.map(|socket| Listener { socket: TcpListener::from_std(socket), is_tls }));
        }
    }
    Ok(listeners)
}

/// Opens a listener, which does not block, for each address of a place. `admit_open` judges the words that
/// stand for addresses which other machines may reach.
pub fn listen_on(
    place: &Place<'_>,
    admit_open: impl Fn(&str) -> Result<(), ConfigError>,
) -> Result<Vec<std::net::TcpListener>, ListenError> {
    let Place { prefix, bind, mut port, backlog } = *place;
    let mut listeners: Vec<std::net::TcpListener> = Vec::new();
    for word in bind {
        let (optional, word) = match word.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, word.as_str()),
        };
        let address = resolve(prefix, word)?;
        if !address.is_loopback() {
            admit_open(word)?;
        }
        let address = SocketAddr::new(address, port);
        match open(address, backlog) {
            Ok(listener) => {
                port = listener.local_addr().map_err(|e| ListenError::Other(address, e))?.port();
                listeners.push(listener);
            }
            Err(error) if optional && absent(&error) => {}
            Err(error) => {
                return Err(match error.kind() {
                    io::ErrorKind::AddrInUse => ListenError::InUse(prefix, address),
                    io::ErrorKind::PermissionDenied => ListenError::Denied(prefix, address),
                    io::ErrorKind::AddrNotAvailable => ListenError::NoSuchAddress(prefix, address),
                    _ => ListenError::Other(address, error),
                });
            }
        }
    }
    if listeners.is_empty() { Err(ListenError::Nothing(prefix)) } else { Ok(listeners) }
}

/// Whether the machine lacks the address or its whole family.
fn absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || matches!(
            error.raw_os_error(),
            Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::ENOPROTOOPT)
        )
}

fn open(address: SocketAddr, backlog: i32) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(bind: &str) -> Config {
        let mut config = Config::default();
        for (name, value) in [("port", "0"), ("bind", bind)] {
            let setting = Config::setting(name).expect("exists");
            (setting.set)(&mut config, value).expect("valid");
        }
        config
    }

    #[test]
    fn names_stand_for_their_addresses() {
        // The resolver takes short forms of addresses for names, and needs no network for them.
        let listeners = listen(&config("127.1")).expect("the name of a loopback address");
        let address = listeners[0].socket.local_addr().expect("bound");
        assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn a_name_of_an_open_address_needs_a_password_or_insistence() {
        let mut config = config("0");
        let error = listen(&config).err().expect("0 is 0.0.0.0");
        assert!(matches!(error, ListenError::Exposed(_)), "{error}");
        config.protected_mode = false;
        listen(&config).expect("insisted");
    }

    #[test]
    fn a_name_without_an_address_is_refused_as_such() {
        // No resolver is asked for a label of more than 63 letters.
        let name = "nohost".repeat(20);
        let error = listen(&config(&name)).err().expect("nobody has that name");
        assert!(matches!(&error, ListenError::Unresolved(_, word, _) if *word == name), "{error}");
    }
}
