//! A CA: made, loaded, and what it signs.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use std::net::IpAddr;
use time::{Duration, OffsetDateTime};

/// Years have 365 days here, as in the operator's rotation (facts/mco.md 1.8).
pub const YEAR: Duration = Duration::days(365);
/// As the cluster's own signer backdates: a node's clock may be a little behind.
const BACKDATE: Duration = Duration::minutes(5);

/// What goes wrong when making or reading certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// The certificate library refuses; it names no key material.
    #[error("cannot make or read a certificate")]
    Library(#[from] rcgen::Error),
    /// Not a name a certificate can carry.
    #[error("{0:?} is neither an IP address nor a host name")]
    Name(String),
    /// A stored certificate that is none.
    #[error("a stored certificate is damaged")]
    Damaged,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// PKCS #8.
    pub key: String,
}

/// A CA that can sign.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new self-signed P-256 CA.
    pub fn generate(
        common_name: &str,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<(Self, Pair), CertError> {
        let key = KeyPair::generate()?;
        let params = ca_params(common_name, now, now + lifetime);
        let pair = Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() };
        Ok((Self { certificate: pair.certificate.clone(), issuer: Issuer::new(params, key) }, pair))
    }

    /// The CA that follows this one, and its certificate by this one, PEM: who trusts only this one trusts what the
    /// new one signs, until `end`, which is this one's.
    pub fn successor(
        &self,
        common_name: &str,
        now: OffsetDateTime,
        lifetime: Duration,
        end: OffsetDateTime,
    ) -> Result<(Pair, String), CertError> {
        let (_, pair) = Self::generate(common_name, now, lifetime)?;
        let mut params = ca_params(common_name, now, end.min(now + lifetime));
        params.use_authority_key_identifier_extension = true;
        let cross = params.signed_by(&KeyPair::from_pem(&pair.key)?, &self.issuer)?;
        Ok((pair, cross.pem()))
    }

    /// A CA from its PEM files.
    pub fn load(pair: &Pair) -> Result<Self, CertError> {
        let issuer = Issuer::from_ca_cert_pem(&pair.certificate, KeyPair::from_pem(&pair.key)?)?;
        Ok(Self { certificate: pair.certificate.clone(), issuer })
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A serving certificate for names and addresses, with a new key.
    pub fn serving(
        &self,
        common_name: &str,
        names: &[String],
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<Pair, CertError> {
        let key = KeyPair::generate()?;
        let subject = name(common_name, None);
        let certificate = self.sign(
            &key,
            subject,
            alternative_names(names)?,
            ExtendedKeyUsagePurpose::ServerAuth,
            now,
            lifetime,
        )?;
        Ok(Pair { certificate, key: key.serialize_pem() })
    }

    /// Signs what a CSR asks for: the public key is the CSR's, the extensions are ours.
    pub fn sign_request(
        &self,
        request: &super::Request,
        purpose: ExtendedKeyUsagePurpose,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<String, CertError> {
        let key = rcgen::SubjectPublicKeyInfo::from_der(&request.public_key)?;
        let subject =
            name(&request.subject.common_name, request.subject.organizations.first().map(String::as_str));
        let mut names = request.dns.clone();
        names.extend(request.addresses.iter().map(ToString::to_string));
        self.sign(&key, subject, alternative_names(&names)?, purpose, now, lifetime)
    }

    fn sign(
        &self,
        key: &impl PublicKeyData,
        subject: DistinguishedName,
        names: Vec<SanType>,
        purpose: ExtendedKeyUsagePurpose,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<String, CertError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject;
        params.subject_alt_names = names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        params.not_before = now - BACKDATE;
        params.not_after = now + lifetime;
        Ok(params.signed_by(key, &self.issuer)?.pem())
    }
}

fn ca_params(common_name: &str, now: OffsetDateTime, end: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name(common_name, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = now - BACKDATE;
    params.not_after = end;
    params
}

fn name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn alternative_names(names: &[String]) -> Result<Vec<SanType>, CertError> {
    names
        .iter()
        .map(|name| match name.parse::<IpAddr>() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => {
                Ok(SanType::DnsName(name.as_str().try_into().map_err(|_| CertError::Name(name.clone()))?))
            }
        })
        .collect()
}
