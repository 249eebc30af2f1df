//! What a CSR (PKCS #10) or a certificate says, in plain values.

use std::net::IpAddr;
use x509_parser::prelude::*;

/// Why a CSR cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No PEM block of the right type.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// The block holds something else.
    #[error("the certificate request cannot be parsed")]
    Der,
    /// The requester does not hold the key.
    #[error("the certificate request's signature is not by its own key")]
    Signature,
}

/// Subject of a CSR or certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// CN; empty if there is none.
    pub common_name: String,
    /// All O, in order.
    pub organizations: Vec<String>,
}

/// A CSR in plain values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Who it is for.
    pub subject: Subject,
    /// DNS names asked for.
    pub dns: Vec<String>,
    /// Mail addresses asked for.
    pub emails: Vec<String>,
    /// IP addresses asked for.
    pub addresses: Vec<IpAddr>,
    /// URIs asked for.
    pub uris: Vec<String>,
    /// `SubjectPublicKeyInfo`, DER.
    pub public_key: Vec<u8>,
}

impl Request {
    /// Reads the first PEM block, as Kubernetes does; the signature is checked by `verify`.
    pub fn parse(pem: &[u8]) -> Result<Self, RequestError> {
        let (_, block) = parse_x509_pem(pem).map_err(|_| RequestError::Pem)?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err(RequestError::Pem);
        }
        let (_, csr) = X509CertificationRequest::from_der(&block.contents).map_err(|_| RequestError::Der)?;
        let info = &csr.certification_request_info;
        let mut request = Self {
            subject: subject(&info.subject),
            public_key: info.subject_pki.raw.to_vec(),
            ..Self::default()
        };
        for extension in csr.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                for name in &names.general_names {
                    request.add(name);
                }
            }
        }
        Ok(request)
    }

    /// The same values of a certificate, DER.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut values = Self { subject: subject(certificate.subject()), ..Self::default() };
        for name in certificate
            .subject_alternative_name()
            .ok()?
            .into_iter()
            .flat_map(|names| &names.value.general_names)
        {
            values.add(name);
        }
        Some(values)
    }

    /// Proof of possession: the CSR is signed by the key that it carries.
    pub fn verify(pem: &[u8]) -> Result<(), RequestError> {
        let (_, block) = parse_x509_pem(pem).map_err(|_| RequestError::Pem)?;
        let (_, csr) = X509CertificationRequest::from_der(&block.contents).map_err(|_| RequestError::Der)?;
        csr.verify_signature().map_err(|_| RequestError::Signature)
    }

    fn add(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(dns) => self.dns.push((*dns).to_owned()),
            GeneralName::RFC822Name(mail) => self.emails.push((*mail).to_owned()),
            GeneralName::URI(uri) => self.uris.push((*uri).to_owned()),
            GeneralName::IPAddress(bytes) => self.addresses.extend(address(bytes)),
            _ => {}
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

fn subject(name: &X509Name<'_>) -> Subject {
    let text = |value: &AttributeTypeAndValue<'_>| value.as_str().map(str::to_owned).ok();
    Subject {
        common_name: name.iter_common_name().last().and_then(text).unwrap_or_default(),
        organizations: name.iter_organization().filter_map(text).collect(),
    }
}

/// CN and O of a certificate, DER: who a TLS client is.
pub fn certificate_subject(der: &[u8]) -> Option<Subject> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| subject(certificate.subject()))
}
