//! Owns TLS set-up: one provider (ring, as in the image), server and client configurations.
//! Given PEM, gives rustls configurations.
//! Never system roots, never an unverified peer.

use anyhow::Context as _;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use std::sync::Arc;

use crate::certs::Pair;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(pem: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().context("not a PEM certificate")
}

fn roots(pem: &str) -> anyhow::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem)? {
        store.add(certificate).context("not a usable CA certificate")?;
    }
    Ok(store)
}

fn key(pem: &str) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok().context("not a PEM private key")
}

/// A server; with `client_ca`, clients may show a certificate of that CA, and a bad one ends the handshake.
/// TLS 1.2 and 1.3 with rustls' own suites: the cluster's Intermediate profile (facts/mco.md 1.6).
pub fn server(pair: &Pair, client_ca: Option<&str>) -> anyhow::Result<Arc<ServerConfig>> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        Some(pem) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pem)?), provider());
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(certificates(&pair.certificate)?, key(&pair.key)?)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()]; // the real MCS turns HTTP/2 off too
    Ok(Arc::new(config))
}

/// A client that trusts `ca` and nothing else.
pub fn client(ca: &str, identity: Option<&Pair>) -> anyhow::Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(ca)?);
    Ok(Arc::new(match identity {
        Some(pair) => builder.with_client_auth_cert(certificates(&pair.certificate)?, key(&pair.key)?)?,
        None => builder.with_no_client_auth(),
    }))
}
