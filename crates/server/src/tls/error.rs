//! Why there is no TLS.

use std::io;

/// Files or settings of TLS that cannot be used. Every message names the setting and the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No certificate, or no key for it.
    #[error(
        "tls-cert-file and tls-key-file: TLS needs both, the server's certificate and its private key \
         (docs/tls.md tells how to make them)"
    )]
    NoCertificate,
    /// Others must prove themselves, and nobody can.
    #[error(
        "tls-ca-cert-file or tls-ca-cert-dir: name the CA that signs the certificates of clients and \
         nodes. Only a server that stands alone, and asks nobody for a certificate (tls-auth-clients no), \
         can do without"
    )]
    NoAuthority,
    /// A file that cannot be read.
    #[error("{setting}: {path} cannot be read: {cause}")]
    Unreadable {
        /// The setting or the flag.
        setting: &'static str,
        /// The file.
        path: String,
        /// Why.
        cause: io::Error,
    },
    /// A file with something else in it.
    #[error("{setting}: {path} cannot be used: {problem}")]
    Content {
        /// The setting or the flag.
        setting: &'static str,
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A key and a certificate that do not belong together, or of a kind that is not known.
    #[error("{cert} and {key} cannot be used together: {cause}")]
    Mismatch {
        /// The certificate's file.
        cert: String,
        /// The key's file.
        key: String,
        /// Why.
        cause: rustls::Error,
    },
    /// A version of TLS that is not spoken.
    #[error(
        "tls-protocols: '{0}' is not spoken here: give TLSv1.2, TLSv1.3, or both; older versions are not safe"
    )]
    Version(String),
    /// Anything else that the library has against the settings.
    #[error("TLS cannot be set up: {0}")]
    Unusable(rustls::Error),
}
