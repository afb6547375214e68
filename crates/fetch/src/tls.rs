//! TLS 1.2 and later by rustls with ring: certificates are verified, sessions taken up again.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::Resumption;
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Sessions remembered, of as many origins; one takes a kilobyte or two.
const SESSIONS_MAX: usize = 4096;

/// The settings of connections to hosts that must prove their names, and of those that need not.
#[derive(Clone)]
pub(crate) struct Configs {
    pub(crate) verified: Arc<ClientConfig>,
    pub(crate) unverified: Arc<ClientConfig>,
}

/// The settings of all connections: the roots are those certificates of the PEM text that can be read.
pub(crate) fn configs(roots_pem: &[u8]) -> Result<Configs, String> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(roots_pem).filter_map(Result::ok);
    roots.add_parsable_certificates(certificates);
    let mut provider: CryptoProvider = ring::default_provider();
    // SHA-384 runs in software here: where a server leaves the choice to us, SHA-256 goes first.
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let provider = Arc::new(provider);
    let builder = || {
        ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())
    };
    let mut verified = builder()?.with_root_certificates(roots).with_no_client_auth();
    let mut unverified = builder()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(Arc::clone(&provider))))
        .with_no_client_auth();
    // Sessions of their own: one that was made without a proof is never taken up where there must be one.
    verified.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
    unverified.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
    Ok(Configs { verified: Arc::new(verified), unverified: Arc::new(unverified) })
}

/// Takes any certificate: expired, of another name, of an unknown authority. The handshake itself must be sound.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The name that the certificate must prove: without brackets of IPv6 and without a final dot.
pub(crate) fn name_of(host: &str) -> Option<ServerName<'static>> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}
