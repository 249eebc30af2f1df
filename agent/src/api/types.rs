//! Owns: the few fields of the API's objects that the agent reads.
//! Given an answer's JSON it gives those fields; everything else in it is ignored.
//! Never: holds a MachineConfig (`machineconfig` reads that) or writes an object back.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `metadata`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The object's name.
    pub name: String,
    /// Its version, for a watch to start from.
    pub resource_version: String,
    /// When it was made, RFC 3339.
    pub creation_timestamp: Option<String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Anything that has a name and a version.
pub trait Object: serde::de::DeserializeOwned {
    /// Its metadata.
    fn metadata(&self) -> &Metadata;
}

/// A list's answer.
#[derive(Debug, Deserialize)]
pub struct List<T> {
    /// The collection's version: a watch that starts here misses nothing.
    pub metadata: Metadata,
    /// The objects.
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its metadata.
    pub metadata: Metadata,
    /// What is wanted of it.
    pub spec: NodeSpec,
    /// How it is.
    pub status: NodeStatus,
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Cordoned.
    pub unschedulable: bool,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Ready and the like.
    pub conditions: Vec<Condition>,
}

/// A condition, of a Node or of a certificate request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl Node {
    /// Whether the kubelet has said that pods can run here.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True")
    }
}

impl Object for Node {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// A certificate signing request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CertificateRequest {
    /// Its metadata.
    pub metadata: Metadata,
    /// What is asked for.
    pub spec: CertificateRequestSpec,
    /// What was answered.
    pub status: CertificateRequestStatus,
}

/// `spec` of a certificate signing request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CertificateRequestSpec {
    /// The PKCS#10 request, PEM, base64.
    pub request: String,
    /// Who is asked to sign.
    pub signer_name: String,
}

/// `status` of a certificate signing request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CertificateRequestStatus {
    /// Approved, Denied, Failed.
    pub conditions: Vec<Condition>,
    /// The certificate, base64; not looked into.
    pub certificate: Option<String>,
}

impl Object for CertificateRequest {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// A pool, with its metadata: what [`crate::desired`] decides on is in the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct PoolObject {
    /// Its metadata.
    pub metadata: Metadata,
    /// The rest.
    #[serde(flatten)]
    pub pool: crate::desired::Pool,
}

impl Object for PoolObject {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}
