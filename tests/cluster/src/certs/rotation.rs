//! What the MCS's certificates need next, from what there is and the time. Pure but for keys, which are made here.
//!
//! Two steps with time between them. First a new CA joins the bundle, so that pointers made from then on carry both.
//! Later the serving certificate is signed by the new CA. Pointers from before hold only the old CA: for them the old
//! CA has signed the new one too, and that certificate is sent along for as long as the old CA is in the bundle.

use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Authority, CertError, Pair, YEAR};
use crate::stamp;

/// CA and serving certificate live for ten years (facts/mco.md 1.8).
const LIFETIME: Duration = Duration::days(3650);
/// They are replaced two years before their end: at eight of ten (facts/mco.md 1.8).
const REFRESH: Duration = Duration::days(730);
/// From a new CA to a serving certificate by it, if nobody asks sooner: every machine that was given its user data
/// before the new CA, and that cannot use the certificate between the two, has long booted.
const OVERLAP: Duration = Duration::days(30);

/// A certificate and the dates that matter.
#[derive(Clone, PartialEq, Eq)]
struct Dated {
    der: Vec<u8>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Dated {
    /// Every certificate of a PEM text; what is not one is left out.
    fn all(pem: &str) -> Vec<Self> {
        let ders = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
        ders.filter_map(|der| Self::new(&der)).collect()
    }

    fn new(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        Some(Self {
            der: der.to_vec(),
            not_before: validity.not_before.to_datetime(),
            not_after: validity.not_after.to_datetime(),
        })
    }

    fn signed_by(&self, issuer: &Self) -> bool {
        match (X509Certificate::from_der(&self.der), X509Certificate::from_der(&issuer.der)) {
            (Ok((_, own)), Ok((_, issuer))) => own.verify_signature(Some(issuer.public_key())).is_ok(),
            _ => false,
        }
    }

    fn refresh(&self) -> OffsetDateTime {
        self.not_after - REFRESH
    }
}

fn pem(certificates: &[Dated]) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use std::fmt::Write as _;
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(&certificate.der).as_bytes().chunks(64) {
            writeln!(text, "{}", String::from_utf8_lossy(line)).expect("writing to a String does not fail");
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// What there is. Not `Debug`: it holds keys.
#[derive(Clone)]
pub struct Holding {
    /// The CA that signs.
    pub ca: Pair,
    /// Certificates for CAs by their predecessors, PEM.
    pub crosses: String,
    /// Every CA that pointers carry, PEM.
    pub bundle: String,
    /// The serving certificate, followed by `crosses`, with its key, and the names it was made for.
    pub serving: Option<(Pair, Vec<String>)>,
}

/// One thing to write.
pub enum Step {
    /// A new CA: first the bundle with it, then the pair, with the certificate by its predecessor.
    NewCa {
        /// The bundle with the new CA.
        bundle: String,
        /// The new CA.
        ca: Pair,
        /// What was there and the new one's.
        crosses: String,
    },
    /// A bundle.
    Bundle(String),
    /// A serving pair, chain included.
    Serving(Pair),
}

impl Holding {
    /// What is to be written now, if anything.
    pub fn next(&self, names: &[String], now: OffsetDateTime) -> Result<Option<Step>, CertError> {
        let ca = self.ca()?;
        let bundle = self.joined(std::slice::from_ref(&ca), now);
        if bundle != self.bundle {
            return Ok(Some(Step::Bundle(bundle)));
        }
        if now >= ca.refresh() {
            return self.new_ca(now).map(Some);
        }
        let Some((pair, stored_names)) = &self.serving else { return self.reissue(names, now).map(Some) };
        let Some(leaf) = Dated::all(&pair.certificate).into_iter().next() else {
            return self.reissue(names, now).map(Some);
        };
        let settled = now >= ca.not_before + OVERLAP;
        let old = now >= leaf.refresh() || !leaf.signed_by(&ca);
        if stored_names != names || settled && old {
            return self.reissue(names, now).map(Some);
        }
        let chain = self.chain(leaf);
        Ok((chain != pair.certificate)
            .then(|| Step::Serving(Pair { certificate: chain, key: pair.key.clone() })))
    }

    /// When `next` may say something else, if nothing else changes.
    pub fn wake(&self, now: OffsetDateTime) -> OffsetDateTime {
        let mut moments: Vec<OffsetDateTime> =
            Dated::all(&self.bundle).iter().map(|certificate| certificate.not_after).collect();
        if let Ok(ca) = self.ca() {
            moments.extend([ca.refresh(), ca.not_before + OVERLAP]);
        }
        if let Some((pair, _)) = &self.serving {
            moments.extend(Dated::all(&pair.certificate).first().map(Dated::refresh));
        }
        moments.into_iter().filter(|at| *at > now).min().unwrap_or(now + YEAR)
    }

    /// A new CA, now.
    pub fn new_ca(&self, now: OffsetDateTime) -> Result<Step, CertError> {
        let old = self.ca()?;
        let (ca, cross) =
            Authority::load(&self.ca)?.successor(&ca_name(now), now, LIFETIME, old.not_after)?;
        let new = Dated::all(&ca.certificate);
        let bundle = self.joined(&[new, vec![old]].concat(), now);
        Ok(Step::NewCa { bundle, ca, crosses: format!("{}{cross}", self.crosses) })
    }

    /// A serving pair by the CA that signs, now. It does not outlive its CA.
    pub fn reissue(&self, names: &[String], now: OffsetDateTime) -> Result<Step, CertError> {
        let lifetime = LIFETIME.min(self.ca()?.not_after - now);
        let pair =
            Authority::load(&self.ca)?.serving("system:machine-config-server", names, now, lifetime)?;
        let leaf = Dated::all(&pair.certificate).into_iter().next().ok_or(CertError::Damaged)?;
        Ok(Step::Serving(Pair { certificate: self.chain(leaf), key: pair.key }))
    }

    /// A bundle of the CA that signs and no other: pointers from before it stop working.
    pub fn retire(&self) -> Result<Step, CertError> {
        Ok(Step::Bundle(pem(&[self.ca()?])))
    }

    /// Whether the serving certificate is by the CA that signs.
    pub fn serves_newest(&self) -> bool {
        let leaf =
            self.serving.as_ref().and_then(|(pair, _)| Dated::all(&pair.certificate).into_iter().next());
        leaf.is_some_and(|leaf| self.ca().is_ok_and(|ca| leaf.signed_by(&ca)))
    }

    fn ca(&self) -> Result<Dated, CertError> {
        Dated::all(&self.ca.certificate).into_iter().next().ok_or(CertError::Damaged)
    }

    /// The bundle with these, without what has expired, in the operator's order (by DER).
    fn joined(&self, more: &[Dated], now: OffsetDateTime) -> String {
        let mut all = Dated::all(&self.bundle);
        all.extend_from_slice(more);
        all.retain(|certificate| now < certificate.not_after);
        all.sort_by(|a, b| a.der.cmp(&b.der));
        all.dedup();
        pem(&all)
    }

    /// A leaf, and the certificates by CAs that are still in the bundle.
    fn chain(&self, leaf: Dated) -> String {
        let bundle = Dated::all(&self.bundle);
        let crosses = Dated::all(&self.crosses);
        let useful = crosses.into_iter().filter(|cross| bundle.iter().any(|ca| cross.signed_by(ca)));
        pem(&[leaf].into_iter().chain(useful).collect::<Vec<_>>())
    }
}

/// The first CA.
pub fn first_ca(now: OffsetDateTime) -> Result<Pair, CertError> {
    Authority::generate(&ca_name(now), now, LIFETIME).map(|(_, pair)| pair)
}

/// CAs must differ in name, also two of the same second: a verifier finds issuers by it, and would take a certificate
/// between two of one name for a self-signed one.
fn ca_name(now: OffsetDateTime) -> String {
    format!("machine-config-server-ca@{}-{}", now.unix_timestamp(), stamp::suffix())
}
