//! The table of kinds: adding one is adding a row.

/// A kind that the API serves.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for core.
    pub group: &'static str,
    /// The one version served.
    pub version: &'static str,
    /// As in the URL.
    pub plural: &'static str,
    /// As in the object.
    pub kind: &'static str,
    /// What `kubectl` also takes.
    pub short: &'static [&'static str],
    /// Whether it lives in a namespace.
    pub namespaced: bool,
    /// `status`, `approval`.
    pub subresources: &'static [&'static str],
    /// Defined by a CRD: no strategic merge patch, unknown fields of MachineConfigs are pruned.
    pub custom: bool,
}

const MCO: &str = "machineconfiguration.openshift.io";

/// Every kind.
pub const RESOURCES: &[Resource] = &[
    core("nodes", "Node", &["no"], false, &["status"]),
    core("pods", "Pod", &["po"], true, &["status"]),
    core("secrets", "Secret", &[], true, &[]),
    core("configmaps", "ConfigMap", &["cm"], true, &[]),
    core("events", "Event", &["ev"], true, &[]),
    builtin(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        &["csr"],
        &["approval", "status"],
    ),
    builtin("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", &[], &[]),
    builtin("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", &[], &[]),
    builtin("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", &[], &[]),
    custom(MCO, "v1", "machineconfigs", "MachineConfig", &["mc"], false, &[]),
    custom(MCO, "v1", "machineconfigpools", "MachineConfigPool", &["mcp"], false, &["status"]),
    custom(MCO, "v1", "controllerconfigs", "ControllerConfig", &[], false, &[]),
    custom(
        "operator.openshift.io",
        "v1",
        "machineconfigurations",
        "MachineConfiguration",
        &[],
        false,
        &["status"],
    ),
    custom("config.openshift.io", "v1", "infrastructures", "Infrastructure", &[], false, &[]),
    custom("machine.openshift.io", "v1beta1", "machines", "Machine", &[], true, &["status"]),
];

const fn core(
    plural: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    subresources: &'static [&'static str],
) -> Resource {
    Resource { group: "", version: "v1", plural, kind, short, namespaced, subresources, custom: false }
}

const fn builtin(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    subresources: &'static [&'static str],
) -> Resource {
    Resource { group, version: "v1", plural, kind, short, namespaced: false, subresources, custom: false }
}

const fn custom(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    subresources: &'static [&'static str],
) -> Resource {
    Resource { group, version, plural, kind, short, namespaced, subresources, custom: true }
}

impl Resource {
    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// URL of the collection, or of one object.
    pub fn path(&self, namespace: &str, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced {
            path = format!("{path}/namespaces/{namespace}");
        }
        path = format!("{path}/{}", self.plural);
        match name {
            Some(name) => format!("{path}/{name}"),
            None => path,
        }
    }

    /// `machineconfigs.machineconfiguration.openshift.io`, as messages name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// By URL.
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    /// By what an object says it is.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|r| r.kind == kind && r.api_version() == api_version)
    }

    /// By what a person types: plural, singular, kind, or short name.
    pub fn named(text: &str) -> Option<&'static Self> {
        let text = text.to_ascii_lowercase();
        let base = text.split('.').next().unwrap_or_default();
        RESOURCES
            .iter()
            .find(|r| r.plural == base || r.kind.to_ascii_lowercase() == base || r.short.contains(&base))
    }
}
