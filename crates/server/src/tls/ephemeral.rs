//! Encryption between nodes without files: a certificate that a process makes for itself and nobody believes.
//!
//! Whoever accepts shows it, and whoever dials takes any. So TLS alone proves nothing here, and somebody in
//! the middle could speak it with both sides. But then the two sides have different keys; the proofs of the
//! peers' handshake cover what TLS derives from them ([`Stream::binding`](super::Stream::binding)), and fail.

use super::{TlsError, provider, without_sessions};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use std::sync::Arc;

/// For the peers that dial, and for those that are dialled.
pub(super) fn contexts() -> Result<(Arc<ServerConfig>, Arc<ClientConfig>), TlsError> {
    let unmade = |error: rcgen::Error| TlsError::Unusable(Error::General(error.to_string()));
    let key = rcgen::KeyPair::generate().map_err(unmade)?;
    let params = rcgen::CertificateParams::new(["ordo".to_owned()]).map_err(unmade)?;
    let certificate = params.self_signed(&key).map_err(unmade)?;
    let chain = vec![certificate.der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut accepts = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key.into())
        .map_err(TlsError::Unusable)?;
    without_sessions(&mut accepts);
    let mut dials = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
        .with_no_client_auth();
    dials.resumption = Resumption::disabled();
    Ok((Arc::new(accepts), Arc::new(dials)))
}

/// Takes any certificate whose key the other side has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
