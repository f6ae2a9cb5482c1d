//! Certificates and keys, as files have them.

use super::{Roots, TlsError};
use crate::config::Config;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The longest file that is read: far more than any certificates take.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What the files say.
pub(super) struct Material {
    /// What this side shows.
    pub own: Option<Own>,
    /// Whom it believes.
    pub roots: Roots,
}

/// A certificate and its key.
pub(super) struct Own {
    /// The certificate, and those between it and the CA.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    files: (String, String),
}

impl Own {
    fn read(cert: Named<'_>, key: Named<'_>) -> Result<Own, TlsError> {
        Ok(Own { chain: certificates(cert)?, key: private_key(key)?, files: (cert.shown(), key.shown()) })
    }

    pub fn mismatch(&self, cause: rustls::Error) -> TlsError {
        TlsError::Mismatch { cert: self.files.0.clone(), key: self.files.1.clone(), cause }
    }
}

impl Material {
    /// What a server's settings name. There is a certificate, and perhaps nobody to believe.
    pub fn of(config: &Config) -> Result<Material, TlsError> {
        if config.tls_cert_file.is_empty() || config.tls_key_file.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        let mut roots = RootCertStore::empty();
        if !config.tls_ca_cert_file.is_empty() {
            let file = Named::new("tls-ca-cert-file", &config.tls_ca_cert_file);
            add(&mut roots, file)?;
        }
        if !config.tls_ca_cert_dir.is_empty() {
            let dir = Named::new("tls-ca-cert-dir", &config.tls_ca_cert_dir);
            let entries = std::fs::read_dir(dir.path).map_err(|cause| dir.unreadable(cause))?;
            for entry in entries {
                let path = entry.map_err(|cause| dir.unreadable(cause))?.path();
                if path.is_file() {
                    let file = Named { path: &path, ..dir };
                    add(&mut roots, file)?;
                }
            }
        }
        let own = Own::read(
            Named::new("tls-cert-file", &config.tls_cert_file),
            Named::new("tls-key-file", &config.tls_key_file),
        )?;
        Ok(Material { own: Some(own), roots: Arc::new(roots) })
    }

    /// What a tool's flags name.
    pub fn of_tool(authority: &Path, own: Option<(&Path, &Path)>) -> Result<Material, TlsError> {
        let named = |setting, path| Named { setting, path };
        let mut roots = RootCertStore::empty();
        add(&mut roots, named("--cacert", authority))?;
        let own = own.map(|(cert, key)| Own::read(named("--cert", cert), named("--key", key)));
        Ok(Material { own: own.transpose()?, roots: Arc::new(roots) })
    }
}

/// A file, and the setting that names it.
#[derive(Clone, Copy)]
struct Named<'a> {
    setting: &'static str,
    path: &'a Path,
}

impl<'a> Named<'a> {
    fn new(setting: &'static str, path: &'a str) -> Named<'a> {
        let path = Path::new(path);
        Named { setting, path }
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn unreadable(&self, cause: io::Error) -> TlsError {
        TlsError::Unreadable { setting: self.setting, path: self.shown(), cause }
    }

    fn content(&self, problem: impl Into<String>) -> TlsError {
        TlsError::Content { setting: self.setting, path: self.shown(), problem: problem.into() }
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        let length = std::fs::metadata(self.path).map_err(|cause| self.unreadable(cause))?;
        if length.len() > FILE_BYTES_MAX {
            return Err(self.content(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        std::fs::read(self.path).map_err(|cause| self.unreadable(cause))
    }
}

fn certificates(file: Named<'_>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = file.read()?;
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| file.content(format!("it is not PEM ({error})")))?;
    match found.is_empty() {
        true => Err(file.content("there is no certificate (-----BEGIN CERTIFICATE-----) in it")),
        false => Ok(found),
    }
}

fn private_key(file: Named<'_>) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = file.read()?;
    let is_encrypted = [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| bytes.windows(mark.len()).any(|window| window == *mark));
    if is_encrypted {
        return Err(file.content(
            "the key is encrypted. Decrypt it (openssl pkey -in KEY -out PLAIN), and let only the server's \
             user read it",
        ));
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            file.content("there is no private key (-----BEGIN PRIVATE KEY-----) in it")
        }
        error => file.content(format!("it is not PEM ({error})")),
    })
}

/// Believes all certificates of a file.
fn add(roots: &mut RootCertStore, file: Named<'_>) -> Result<(), TlsError> {
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| file.content(error.to_string()))?;
    }
    Ok(())
}
