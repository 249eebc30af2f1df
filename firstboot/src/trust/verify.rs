//! Owns: at which time a server's certificate is checked, and the words for why it was refused.
//! Given a chain and the CAs, gives webpki's verdict, repeated at a later time where only the clock stood in the way.
//! Never: accepts what webpki refuses, and never checks at a time earlier than the machine's own clock.

use super::TrustError;
use super::x509::{CertFacts, facts};
use crate::clock::{self, utc};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use std::sync::Arc;
use std::time::Duration;

/// What is wrong with a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No CA of the bundle signed it, or its signatures, usages or constraints do not hold.
    Untrusted,
    /// Its time, or that of every CA that could have signed it, is over.
    Expired,
    /// Its time has not come, even by its own chain's account.
    NotYetValid,
    /// It is for another name or address.
    WrongName,
}

/// A refused certificate with all that a person needs to see which of the two, clock or certificate, is wrong.
///
/// Verification time is the latest of: the machine's clock, the image's build time, the notBefore of the CAs given,
/// and the notBefore of certificates in a chain whose signatures lead to them. A clock that is years behind thus
/// never refuses a good certificate, while one that has expired by any of these accounts stays refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// Told apart because the cures differ.
    pub cause: Cause,
    /// The server's own certificate, where it could be read.
    pub leaf: Option<CertFacts>,
    /// The names that it is for, where that is what was wrong.
    pub names: Vec<String>,
    /// The name that was asked for.
    pub wanted: String,
    /// The CAs that were given.
    pub authorities: Vec<CertFacts>,
    /// The machine's clock.
    pub clock: u64,
    /// The time at which the chain was checked.
    pub verified_at: u64,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (issuer, dates) = match &self.leaf {
            Some(leaf) => (
                format!("signed by {:?}", leaf.issuer),
                format!("valid from {} to {}", utc(leaf.not_before), utc(leaf.not_after)),
            ),
            None => ("unreadable".to_owned(), "dates unknown".to_owned()),
        };
        let clock = format!("the machine's clock says {}", utc(self.clock));
        match self.cause {
            Cause::Untrusted => {
                let authorities: Vec<&str> = self.authorities.iter().map(|ca| ca.subject.as_str()).collect();
                write!(
                    f,
                    "the server's certificate ({issuer}) does not lead to a CA of the pointer {authorities:?}"
                )
            }
            Cause::Expired => {
                write!(f, "the server's certificate or its CA has expired ({dates}")?;
                for ca in &self.authorities {
                    write!(f, "; CA {:?} to {}", ca.subject, utc(ca.not_after))?;
                }
                write!(f, "); {clock}, checked at {}", utc(self.verified_at))
            }
            Cause::NotYetValid => write!(f, "the server's certificate is not yet valid ({dates}); {clock}"),
            Cause::WrongName => {
                write!(f, "the server's certificate is for {:?}, not for {:?}", self.names, self.wanted)
            }
        }
    }
}

impl Refusal {
    /// The refusal inside a TLS error, if that is what it is.
    pub fn of(error: &rustls::Error) -> Option<&Self> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
                inner.downcast_ref()
            }
            _ => None,
        }
    }
}

/// More steps than any chain has certificates; each step needs one whose notBefore is later than the last.
const MAX_STEPS: usize = 8;

/// webpki's verifier, asked at the right time.
#[derive(Debug)]
pub(super) struct Verifier {
    anchors: Vec<(CertFacts, TrustAnchor<'static>)>,
    /// A time that has certainly passed.
    floor: u64,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    pub(super) fn new(
        authorities: &[CertificateDer<'static>],
        floor: u64,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TrustError> {
        if authorities.is_empty() {
            return Err(TrustError::Missing { what: "CA bundle", wanted: "certificate" });
        }
        let mut anchors = Vec::new();
        for (at, certificate) in authorities.iter().enumerate() {
            let bad = || TrustError::Anchor { number: at + 1 };
            let mut store = RootCertStore::empty();
            store.add(certificate.clone()).map_err(|_| bad())?;
            anchors.push((facts(certificate).ok_or_else(bad)?, store.roots.pop().ok_or_else(bad)?));
        }
        // A CA in use was issued before now, whatever the clock says.
        let floor = anchors.iter().map(|(ca, _)| ca.not_before).chain([floor]).max().unwrap_or(floor);
        Ok(Self { anchors, floor, provider })
    }

    /// webpki with the CAs that have not expired at `time`: it does not look at an anchor's dates itself.
    fn at(&self, time: u64) -> Option<Arc<WebPkiServerVerifier>> {
        let current = self.anchors.iter().filter(|(ca, _)| time <= ca.not_after);
        let roots = RootCertStore { roots: current.map(|(_, anchor)| anchor.clone()).collect() };
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone()).build().ok()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut time = now.as_secs().max(self.floor);
        let mut steps = 0;
        let (cause, names) = loop {
            let Some(webpki) = self.at(time) else { break (Cause::Expired, Vec::new()) };
            let at = UnixTime::since_unix_epoch(Duration::from_secs(time));
            match webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, at) {
                Ok(verified) => return Ok(verified),
                // Only its date is wrong so far: if all else holds on that date, the clock is what is wrong.
                Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
                    not_before,
                    ..
                })) if not_before.as_secs() > time && steps < MAX_STEPS => {
                    time = not_before.as_secs();
                    steps += 1;
                }
                Err(rustls::Error::InvalidCertificate(error)) => break cause(error),
                Err(other) => return Err(other),
            }
        };
        // Without the expired CAs the chain leads nowhere; say so only if one of them would have signed it.
        let leaf = facts(end_entity);
        let expired_issuer = leaf.as_ref().is_some_and(|leaf| {
            self.anchors.iter().any(|(ca, _)| ca.not_after < time && ca.subject == leaf.issuer)
        });
        let cause = if cause == Cause::Untrusted && expired_issuer { Cause::Expired } else { cause };
        let refusal = Refusal {
            cause,
            leaf,
            names,
            wanted: server_name.to_str().into_owned(),
            authorities: self.anchors.iter().map(|(ca, _)| ca.clone()).collect(),
            clock: clock::wall_seconds(),
            verified_at: time,
        };
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refusal)))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// webpki's reason as one of ours.
fn cause(error: CertificateError) -> (Cause, Vec<String>) {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (Cause::Expired, Vec::new()),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            (Cause::NotYetValid, Vec::new())
        }
        CertificateError::NotValidForName => (Cause::WrongName, Vec::new()),
        CertificateError::NotValidForNameContext { presented, .. } => (Cause::WrongName, presented),
        _ => (Cause::Untrusted, Vec::new()),
    }
}
