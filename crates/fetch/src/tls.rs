//! TLS 1.2 and later by rustls with ring: certificates are verified, sessions taken up again.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, RootCertStore};

/// Sessions remembered, of as many origins; one takes a kilobyte or two.
const SESSIONS_MAX: usize = 4096;

/// The settings of all connections: the roots are those certificates of the PEM text that can be read.
pub(crate) fn config(roots_pem: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(roots_pem).filter_map(Result::ok);
    roots.add_parsable_certificates(certificates);
    let mut provider: CryptoProvider = ring::default_provider();
    // SHA-384 runs in software here: where a server leaves the choice to us, SHA-256 goes first.
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
    Ok(Arc::new(config))
}

/// The name that the certificate must prove: without brackets of IPv6 and without a final dot.
pub(crate) fn name_of(host: &str) -> Option<ServerName<'static>> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}
