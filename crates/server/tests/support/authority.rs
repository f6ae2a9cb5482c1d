//! A certificate authority that lives for a test.

#![allow(dead_code, reason = "each test uses a part")]

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::path::{Path, PathBuf};

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub file: PathBuf,
}

/// The files of a certificate and of its key.
#[derive(Clone)]
pub struct Files {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// A new one, whose certificate is in `<dir>/<name>.crt`.
    pub fn new(dir: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let file = dir.join(format!("{name}.crt"));
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(&file, certificate.pem()).expect("written");
        let issuer = Issuer::new(params, key);
        Authority { issuer, file }
    }

    /// A new certificate for this machine, in `<dir>/<name>.crt` and `.key`.
    pub fn sign(&self, dir: &Path, name: &str) -> Files {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let files = Files { cert: dir.join(format!("{name}.crt")), key: dir.join(format!("{name}.key")) };
        std::fs::write(&files.cert, certificate.pem()).expect("written");
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
        files
    }
}

/// A path as a setting has it.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have UTF-8 names")
}
