//! Owns: certificates for tests, each with at most one defect.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::SupportedProtocolVersion;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub const DAY: i64 = 86_400;
pub const YEAR: i64 = 365 * DAY;

/// A CA with its key.
pub struct Authority {
    pub certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// The provider makes no RSA keys; this one is nobody's.
fn rsa_key() -> KeyPair {
    KeyPair::from_pem(include_str!("../fixtures/rsa.pem")).unwrap()
}

/// Seconds from now.
fn validity(params: &mut CertificateParams, from: i64, to: i64) {
    let at = |offset: i64| {
        let magnitude = Duration::from_secs(offset.unsigned_abs());
        if offset < 0 { SystemTime::now() - magnitude } else { SystemTime::now() + magnitude }.into()
    };
    params.not_before = at(from);
    params.not_after = at(to);
}

impl Authority {
    pub fn new(name: &str) -> Self {
        Self::valid(name, -YEAR, YEAR)
    }

    /// From and to, in seconds from now.
    pub fn valid(name: &str, from: i64, to: i64) -> Self {
        Self::made(name, from, to, KeyPair::generate().unwrap(), |_| {})
    }

    /// With an RSA key, as the installer makes its CAs.
    pub fn rsa(name: &str) -> Self {
        Self::made(name, -YEAR, YEAR, rsa_key(), |_| {})
    }

    /// For names below this domain only.
    pub fn constrained(name: &str, domain: &str) -> Self {
        Self::made(name, -YEAR, YEAR, KeyPair::generate().unwrap(), |params| {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName(domain.to_owned())],
                excluded_subtrees: Vec::new(),
            });
        })
    }

    fn made(name: &str, from: i64, to: i64, key: KeyPair, change: impl Fn(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        validity(&mut params, from, to);
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A serving certificate for loopback.
    pub fn serving(&self) -> Arc<rustls::ServerConfig> {
        self.serving_for(&["127.0.0.1", "localhost"], -DAY, DAY)
    }

    pub fn serving_for(&self, names: &[&str], from: i64, to: i64) -> Arc<rustls::ServerConfig> {
        self.serving_with(names, from, to, &KeyPair::generate().unwrap(), rustls::ALL_VERSIONS)
    }

    /// One version of TLS and no other.
    pub fn serving_only(&self, version: &'static SupportedProtocolVersion) -> Arc<rustls::ServerConfig> {
        self.serving_with(&["127.0.0.1"], -DAY, DAY, &KeyPair::generate().unwrap(), &[version])
    }

    /// With an RSA key, as the real server's.
    pub fn serving_rsa(&self) -> Arc<rustls::ServerConfig> {
        self.serving_with(&["127.0.0.1"], -DAY, DAY, &rsa_key(), rustls::ALL_VERSIONS)
    }

    fn serving_with(
        &self,
        names: &[&str],
        from: i64,
        to: i64,
        key: &KeyPair,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<rustls::ServerConfig> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "machine-config-server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        validity(&mut params, from, to);
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(oneboot_firstboot::trust::provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Arc::new(config)
    }
}
