//! Owns every name that the parts share: namespaces, objects, annotations, identities.
//! Given nothing, gives constants, each with the reason or the source.
//! Never a path on disk: those are in `layout`.

/// Where the machine-config-operator lives.
pub const MCO_NAMESPACE: &str = "openshift-machine-config-operator";
/// Where the provisioning tokens live (the proposal's choice, facts/trust.md 0).
pub const CONFIG_NAMESPACE: &str = "openshift-config";
/// Where Machines live.
pub const MACHINE_NAMESPACE: &str = "openshift-machine-api";
/// Where the kubelet certificates' CA is published.
pub const MANAGED_NAMESPACE: &str = "openshift-config-managed";

/// The Secret with the provisioning tokens.
pub const TOKEN_SECRET: &str = "machineconfig-auth";
/// The `ServiceAccount` token that a kubelet bootstraps with.
pub const BOOTSTRAP_TOKEN_SECRET: &str = "node-bootstrapper-token";
/// The MCS CA's Secret (certificate and key) and `ConfigMap` (bundle of all valid CAs).
pub const MCS_CA: &str = "machine-config-server-ca";
/// The MCS serving certificate's Secret.
pub const MCS_TLS: &str = "machine-config-server-tls";
/// Where the MCS says at which URL it answers. A real cluster derives it from the internal API name.
pub const MCS_ENDPOINT: &str = "oneboot-mcs-endpoint";
/// What the MCS has served in the last day, by pool: what a booting node may still ask the API for.
pub const MCS_SERVED: &str = "oneboot-mcs-served";
/// Bundle of the CA that signs kubelet certificates.
pub const CSR_CA: &str = "csr-controller-ca";

/// Marks a MachineConfig as needed before approval, where the CRD prunes the field.
pub const PRE_ANNOTATION: &str = "oneboot.dev/needed-before-node-approved";
/// On a full rendered config: the name of its pre-approved part.
pub const PRE_NAME_ANNOTATION: &str = "oneboot.dev/pre-rendered";
/// On a pre-approved rendered config: the name of the full one that it is a part of.
pub const FULL_NAME_ANNOTATION: &str = "oneboot.dev/full-rendered";
/// On a pool: rendered by hand, the renderer leaves it alone.
pub const BY_HAND_ANNOTATION: &str = "oneboot.dev/rendered-by-hand";
/// On a pool: the newest resourceVersion among the inputs of what it shows, for who waits for a render.
pub const RENDERED_UP_TO: &str = "oneboot.dev/rendered-up-to";
/// Written by the operator on everything that it generates (facts/mco.md 6.4).
pub const GENERATED_BY: &str = "machineconfiguration.openshift.io/generated-by-controller-version";
/// The label that says which role a MachineConfig is for.
pub const ROLE_LABEL: &str = "machineconfiguration.openshift.io/role";
/// The label that says which pool a Machine is for.
pub const MACHINE_ROLE_LABEL: &str = "machine.openshift.io/cluster-api-machine-role";

/// Who a kubelet is before it has a certificate.
pub const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
/// What a node's user name starts with.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// The group of all nodes.
pub const NODES_GROUP: &str = "system:nodes";
/// Signer of kubelet client certificates.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of every other client certificate; nobody here signs for it.
pub const API_CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Signer of kubelet serving certificates.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Role and binding that let a pool's nodes read the pool's rendered configs (facts/trust.md 3.3).
pub fn pool_reader(pool: &str) -> String {
    format!("oneboot:pool-config-reader:{pool}")
}
