//! TLS: what clients, peers and tools encrypt with, and whom they believe.
//!
//! [`Tls`] is what the files of the settings said when they were read last. Whoever begins a connection takes
//! it from there, so that new files concern new connections only; files that cannot be used change nothing.
//! [`Stream`] is a socket with TLS or without, and never waits. [`ClientTls`] is for tools, whose connections
//! do wait.
//!
//! Two things are decided here for everybody. A certificate counts if a CA of the settings has signed it,
//! *whatever name it has*, as in Redis: clients and nodes find servers by addresses that move, and the CA is
//! meant to be the house's own. And a session that is resumed was verified when it began, under the same
//! files: new files begin with no sessions.

#[cfg(test)]
#[path = "../../tests/support/authority.rs"]
pub(crate) mod authority;
mod ephemeral;
mod error;
mod files;
mod stream;
#[cfg(test)]
mod tests;
mod verify;

pub use error::TlsError;
pub use stream::{BINDING_BYTES, Got, Sent, Stream};

use crate::config::Config;
use crate::warnings::Warnings;
use files::Material;
use mio::net::TcpStream;
use parking_lot::{Mutex, RwLock};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client's handshake may take.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// What `tls-cluster` can be. Links are encrypted, without files, unless both ends are on this machine:
pub const CLUSTER_AUTO: &str = "auto";
/// encrypted without files;
pub const CLUSTER_EPHEMERAL: &str = "ephemeral";
/// encrypted, with certificates that a CA has signed;
pub const CLUSTER_CERTIFICATES: &str = "yes";
/// or not at all.
pub const CLUSTER_PLAIN: &str = "no";
/// The same warning is logged once in so long a time.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// What this process proves itself with, and whom it believes: see the module's head.
pub struct Tls {
    now: RwLock<Arc<Contexts>>,
    warnings: Mutex<Warnings<{ Complaint::COUNT }>>,
}

/// What was made of the settings' files. What the settings do not ask for is not there.
#[derive(Default)]
struct Contexts {
    /// For the clients of `tls-port`.
    clients: Option<Arc<ServerConfig>>,
    /// For `tls-cluster`, unless it is `no`: for the peers that dial, and for those that are dialled.
    peers: Option<(Arc<ServerConfig>, Arc<ClientConfig>)>,
}

/// What is said of a client whose connection comes to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// It speaks something else.
    NotTls,
    /// Its certificate is missing, or not good.
    Certificate,
    /// Anything else.
    Failed,
    /// It did not end its handshake.
    Slow,
    /// It was not let in, which cannot be said to it before the handshake.
    TurnedAway,
}

impl Complaint {
    const COUNT: usize = 5;

    /// What an error of a [`Stream`] means; none if the connection merely ended.
    fn of(error: &io::Error) -> Option<Complaint> {
        let error = cause(error)?;
        Some(match error {
            rustls::Error::InvalidMessage(_) => Complaint::NotTls,
            rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_) => {
                Complaint::Certificate
            }
            _ => Complaint::Failed,
        })
    }
}

/// What TLS has against a connection; none if the connection itself failed.
pub(crate) fn cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

impl Tls {
    /// Reads the files that the settings name, if they ask for TLS.
    pub fn new(config: &Config) -> Result<Tls, TlsError> {
        Ok(Tls {
            now: RwLock::new(Arc::new(Contexts::of(config)?)),
            warnings: Mutex::new(Warnings::new(WARNING_INTERVAL)),
        })
    }

    /// Reads the files anew. On an error everything stays as it was.
    pub fn reread(&self, config: &Config) -> Result<(), TlsError> {
        let contexts = Contexts::of(config)?;
        *self.now.write() = Arc::new(contexts);
        Ok(())
    }

    /// The stream of a client that came to `tls-port`.
    pub fn accept_client(&self, socket: TcpStream) -> io::Result<Stream> {
        let now = self.now.read().clone();
        accept(now.clients.as_ref(), socket)
    }

    /// The stream of a peer that dialled this node.
    pub fn accept_peer(&self, socket: TcpStream) -> io::Result<Stream> {
        let now = self.now.read().clone();
        accept(now.peers.as_ref().map(|(accepts, _)| accepts), socket)
    }

    /// The stream of a peer that this node has dialled.
    pub fn dial_peer(&self, socket: TcpStream, peer: SocketAddr) -> io::Result<Stream> {
        let now = self.now.read().clone();
        let Some((_, dials)) = &now.peers else {
            return Err(io::Error::other(NOT_ASKED_FOR));
        };
        let tls = ClientConnection::new(dials.clone(), name_of(peer)).map_err(io::Error::other)?;
        Ok(Stream::secured(socket, tls.into()))
    }

    /// Logs why a client's stream failed, unless it merely ended.
    pub fn note_failure(&self, client: SocketAddr, error: &io::Error) {
        if let Some(complaint) = Complaint::of(error) {
            self.complain(complaint, client, &error.to_string());
        }
    }

    /// Logs something about a client, once in a while: strangers must not fill the log.
    pub fn complain(&self, complaint: Complaint, client: SocketAddr, why: &str) {
        let admitted = self.warnings.lock().admit(complaint as usize, Instant::now());
        let Some(kept) = admitted else {
            return;
        };
        let others = match kept {
            0 => String::new(),
            _ => format!(" ({kept} more were closed for the like since the last such line)"),
        };
        match complaint {
            Complaint::NotTls => tracing::warn!(
                "client {client} came to tls-port and does not speak TLS ({why}): closed{others}"
            ),
            Complaint::Certificate => tracing::warn!(
                "client {client} has no certificate that counts ({why}): closed. See tls-auth-clients, and \
                 tls-ca-cert-file for who signs them{others}"
            ),
            Complaint::Failed => {
                tracing::warn!("TLS with client {client} failed ({why}): closed{others}")
            }
            Complaint::Slow => tracing::warn!(
                "client {client} did not end its TLS handshake within {HANDSHAKE_MAX:?}: closed{others}"
            ),
            Complaint::TurnedAway => {
                tracing::warn!("client {client} at tls-port is not served: {why}{others}")
            }
        }
    }
}

const NOT_ASKED_FOR: &str = "the settings ask for no TLS here";

fn accept(config: Option<&Arc<ServerConfig>>, socket: TcpStream) -> io::Result<Stream> {
    let config = config.ok_or_else(|| io::Error::other(NOT_ASKED_FOR))?;
    let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
    Ok(Stream::secured(socket, tls.into()))
}

/// What a handshake calls a server. No name is compared, and addresses are not sent.
fn name_of(server: SocketAddr) -> ServerName<'static> {
    ServerName::IpAddress(server.ip().into())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Whether the other side of a connection must prove itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    Always,
    IfItCan,
    Never,
}

impl Contexts {
    fn of(config: &Config) -> Result<Contexts, TlsError> {
        // Also where there is no TLS yet: the next start would fail.
        let versions = versions(&config.tls_protocols)?;
        let by_certificates = config.tls_cluster == CLUSTER_CERTIFICATES;
        let is_member = !config.cluster_file.is_empty();
        let without_files = match config.tls_cluster.as_str() {
            CLUSTER_EPHEMERAL => Some(ephemeral::contexts()?),
            CLUSTER_AUTO if is_member => Some(ephemeral::contexts()?),
            _ => None,
        };
        if config.tls_port == 0 && !by_certificates {
            return Ok(Contexts { clients: None, peers: without_files });
        }
        let demand = match config.tls_auth_clients.as_str() {
            "no" => Demand::Never,
            "optional" => Demand::IfItCan,
            _ => Demand::Always,
        };
        let asks_clients = config.tls_port > 0 && demand != Demand::Never;
        let material = Material::of(config)?;
        if material.roots.is_empty() && (by_certificates || asks_clients) {
            return Err(TlsError::NoAuthority);
        }
        let clients = match config.tls_port {
            0 => None,
            _ => {
                let mut clients = accepting(&material, demand, &versions)?;
                if config.tls_session_caching {
                    let size = config.tls_session_cache_size as usize;
                    clients.session_storage = ServerSessionMemoryCache::new(size);
                } else {
                    without_sessions(&mut clients);
                }
                Some(Arc::new(clients))
            }
        };
        let peers = match by_certificates {
            false => without_files,
            true => {
                let mut accepts = accepting(&material, Demand::Always, &versions)?;
                without_sessions(&mut accepts);
                let mut dials = dialling(&material, &versions)?;
                // Otherwise somebody in the middle could give both connections of TLS 1.2 the same keys.
                accepts.require_ems = true;
                dials.require_ems = true;
                Some((Arc::new(accepts), Arc::new(dials)))
            }
        };
        Ok(Contexts { clients, peers })
    }
}

/// The versions that the words of `tls-protocols` name.
fn versions(words: &[String]) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    if words.is_empty() {
        return Ok(rustls::ALL_VERSIONS.to_vec());
    }
    let version = |word: &String| match word.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&rustls::version::TLS12),
        "tlsv1.3" => Ok(&rustls::version::TLS13),
        _ => Err(TlsError::Version(word.clone())),
    };
    words.iter().map(version).collect()
}

fn accepting(
    material: &Material,
    demand: Demand,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(TlsError::Unusable)?;
    let builder = match demand {
        Demand::Never => builder.with_no_client_auth(),
        _ => {
            let verifier = WebPkiClientVerifier::builder_with_provider(material.roots.clone(), provider());
            let verifier = match demand {
                Demand::IfItCan => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier
                .build()
                .map_err(|error| TlsError::Unusable(rustls::Error::General(error.to_string())))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let own = material.own.as_ref().ok_or(TlsError::NoCertificate)?;
    builder.with_single_cert(own.chain.clone(), own.key.clone_key()).map_err(|error| own.mismatch(error))
}

fn without_sessions(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

fn dialling(
    material: &Material,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(TlsError::Unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verify::AnyName::new(
            material.roots.clone(),
            provider(),
        )?));
    let mut config = match &material.own {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(own.chain.clone(), own.key.clone_key())
            .map_err(|error| own.mismatch(error))?,
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// How a tool connects to servers by TLS.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Believes servers whose certificate a CA of this file has signed, and shows a certificate of its own if
    /// there is one: the files of it and of its key.
    pub fn from_files(authority: &Path, own: Option<(&Path, &Path)>) -> Result<ClientTls, TlsError> {
        ClientTls::with(&Material::of_tool(authority, own)?)
    }

    /// For a server that asks another one of its cluster: with the files of its own settings.
    pub fn of(config: &Config) -> Result<ClientTls, TlsError> {
        let material = Material::of(config)?;
        if material.roots.is_empty() {
            return Err(TlsError::NoAuthority);
        }
        ClientTls::with(&material)
    }

    fn with(material: &Material) -> Result<ClientTls, TlsError> {
        let config = dialling(material, rustls::ALL_VERSIONS)?;
        Ok(ClientTls(Arc::new(config)))
    }

    /// The stream over a socket that is connected and waits. Our side of the handshake is over when this
    /// returns; the other side may still refuse what it was shown.
    pub(crate) fn over(
        &self,
        socket: std::net::TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, std::net::TcpStream>> {
        let name = name_of(socket.peer_addr()?);
        let tls = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }
}

/// Whom a process believes.
type Roots = Arc<RootCertStore>;
