//! Owns: whom a TLS connection trusts: the CAs it was given, at a time that a wrong clock cannot spoil.
//! Given PEM bytes (and a client's certificate and key), gives a `rustls::ClientConfig`.
//! Never: consults the system's roots, and never continues without a CA.

mod provider;
mod verify;
mod x509;

pub use provider::provider;
pub use verify::{Cause, Refusal};
pub use x509::{CertFacts, facts};

use crate::secret::Secret;
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The material for a connection cannot be used. No variant holds key material.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// PEM that cannot be decoded.
    #[error("the {what} is not valid PEM")]
    Pem {
        /// Which of the inputs.
        what: &'static str,
    },
    /// PEM without the section that was wanted.
    #[error("the {what} holds no {wanted}")]
    Missing {
        /// Which of the inputs.
        what: &'static str,
        /// What was looked for.
        wanted: &'static str,
    },
    /// A certificate that cannot serve as a trust anchor.
    #[error("certificate {number} of the CA bundle cannot be used as a CA")]
    Anchor {
        /// Its place in the bundle, from 1.
        number: usize,
    },
    /// The client's certificate and key do not fit each other, or are of an unsupported kind.
    #[error("the client certificate and key cannot be used together")]
    Identity(#[source] rustls::Error),
}

/// The CAs that may have signed a server's certificate. During a rotation it holds the old and the new one.
#[derive(Debug, Clone, Default)]
pub struct CaBundle(Vec<CertificateDer<'static>>);

impl CaBundle {
    /// Every certificate in the text; each must be usable, since an ignored one would surface as a riddle later.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TrustError> {
        const WHAT: &str = "CA bundle";
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|_| TrustError::Pem { what: WHAT })?;
        if certificates.is_empty() {
            return Err(TrustError::Missing { what: WHAT, wanted: "certificate" });
        }
        for (at, certificate) in certificates.iter().enumerate() {
            if facts(certificate).is_none()
                || rustls::RootCertStore::empty().add(certificate.clone()).is_err()
            {
                return Err(TrustError::Anchor { number: at + 1 });
            }
        }
        Ok(Self(certificates))
    }

    /// Takes the CAs of another entry in as well.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// No CA at all: nothing can be trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// SHA-256 of each certificate in lower-case hex, as `openssl x509 -fingerprint -sha256` has it without colons.
    pub fn fingerprints(&self) -> Vec<String> {
        self.0.iter().map(|certificate| hex(&Sha256::digest(certificate))).collect()
    }

    /// Names and dates of each certificate.
    pub fn facts(&self) -> Vec<CertFacts> {
        self.0.iter().filter_map(|certificate| facts(certificate)).collect()
    }
}

/// A client's own certificate chain and key, as the kubelet keeps them.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// From the PEM of the certificate chain and of the key, which may be one and the same file.
    pub fn from_pem(chain: &[u8], key: &Secret<Vec<u8>>) -> Result<Self, TrustError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|_| TrustError::Pem { what: "client certificate" })?;
        if chain.is_empty() {
            return Err(TrustError::Missing { what: "client certificate", wanted: "certificate" });
        }
        let key = PrivateKeyDer::from_pem_slice(key.expose())
            .map_err(|_| TrustError::Missing { what: "client key", wanted: "private key" })?;
        Ok(Self { chain, key })
    }
}

/// A TLS 1.2 and 1.3 client that trusts this bundle and nothing else.
///
/// `not_before_now` is a time (seconds since 1970) that has certainly passed, such as the image's build time: see
/// [`Refusal`] for how the time of verification is chosen. Pass 0 where the machine's clock is as good as it gets.
pub fn client_config(
    bundle: &CaBundle,
    not_before_now: u64,
    identity: Option<Identity>,
) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = provider();
    let verifier = verify::Verifier::new(&bundle.0, not_before_now, provider.clone())?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider has suites for both versions: it is our own choice")
        .dangerous() // rustls' word for "own verifier"; ours only adds rules to webpki's
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            builder.with_client_auth_cert(identity.chain, identity.key).map_err(TrustError::Identity)?
        }
    };
    Ok(Arc::new(config))
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}
