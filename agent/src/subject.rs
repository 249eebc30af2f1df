//! Owns: who an X.509 subject is to Kubernetes: the user is its common name, the groups are its organisations.
//! Given a certificate or a PKCS#10 request in DER it gives that, and until when a certificate holds.
//! Never: checks a signature; the API server does, on every connection.

use std::time::Duration;

use x509_cert::{
    Certificate,
    der::{
        Decode, Tagged,
        asn1::{Any, PrintableStringRef, TeletexStringRef, Utf8StringRef},
        oid::ObjectIdentifier,
    },
    name::RdnSequence,
    request::CertReq,
};

/// `system:nodes`: the organisation, and so the group, of every kubelet.
pub const NODES_GROUP: &str = "system:nodes";
/// What stands before the node's name in a kubelet's common name.
pub const NODE_PREFIX: &str = "system:node:";

/// RFC 5280: `id-at-commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// RFC 5280: `id-at-organizationName`.
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// A subject, as far as Kubernetes looks at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The user.
    pub common_name: String,
    /// The groups.
    pub organizations: Vec<String>,
}

impl Subject {
    /// The node's name, when this is a node.
    pub fn node(&self) -> Option<&str> {
        self.common_name.strip_prefix(NODE_PREFIX).filter(|name| !name.is_empty())
    }
}

/// The subject of a certificate, and the first and last moment in which it holds, since 1970.
pub fn of_certificate(der: &[u8]) -> Option<(Subject, Duration, Duration)> {
    let tbs = Certificate::from_der(der).ok()?.tbs_certificate;
    let (from, to) = (tbs.validity.not_before, tbs.validity.not_after);
    Some((subject(&tbs.subject), from.to_unix_duration(), to.to_unix_duration()))
}

/// The subject of a certificate signing request.
pub fn of_request(der: &[u8]) -> Option<Subject> {
    CertReq::from_der(der).ok().map(|request| subject(&request.info.subject))
}

fn subject(name: &RdnSequence) -> Subject {
    let mut subject = Subject::default();
    for attribute in name.0.iter().flat_map(|rdn| rdn.0.iter()) {
        match attribute.oid {
            COMMON_NAME => subject.common_name = text(&attribute.value).unwrap_or_default(),
            ORGANIZATION => subject.organizations.extend(text(&attribute.value)),
            _ => {}
        }
    }
    subject
}

/// The string types that Go writes (UTF-8, printable) and the one that old tools write.
fn text(value: &Any) -> Option<String> {
    use x509_cert::der::Tag;
    match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok().map(|s| s.as_str().to_owned()),
        Tag::PrintableString => {
            value.decode_as::<PrintableStringRef<'_>>().ok().map(|s| s.as_str().to_owned())
        }
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>().ok().map(|s| s.as_str().to_owned()),
        _ => None,
    }
}
