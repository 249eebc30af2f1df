//! What a new cluster has before anyone has done anything: pools, roles, the bootstrap token, who the parts are.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::object;
use super::request::Target;
use super::resources::Resource;
use super::status::Refusal;
use super::store::{Decision, Key, Store};
use crate::names::{
    BOOTSTRAP_TOKEN_SECRET, CONFIG_NAMESPACE, CSR_CA, MANAGED_NAMESPACE, MCO_NAMESPACE, ROLE_LABEL,
    TOKEN_SECRET,
};

/// The parts with credentials of their own: name, and the `ServiceAccount` each runs as.
pub const PARTS: &[(&str, &str)] = &[
    ("mcs", "system:serviceaccount:openshift-machine-config-operator:machine-config-server"),
    ("renderer", "system:serviceaccount:openshift-machine-config-operator:machine-config-controller"),
    ("approver", "system:serviceaccount:openshift-cluster-machine-approver:machine-approver-sa"),
];

/// What the defaults are made of.
pub(crate) struct Given<'a> {
    /// `https://host:port` of the API.
    pub(crate) url: &'a str,
    pub(crate) serving_ca: &'a str,
    pub(crate) client_ca: &'a str,
    pub(crate) bootstrap_token: &'a str,
}

/// Every default object.
pub(crate) fn objects(given: &Given<'_>) -> Vec<Value> {
    let kubelet_ca = format!("{}{}", given.serving_ca, given.client_ca);
    let mut all = vec![
        secret(
            MCO_NAMESPACE,
            BOOTSTRAP_TOKEN_SECRET,
            "kubernetes.io/service-account-token",
            &json!({
                "token": STANDARD.encode(given.bootstrap_token), "ca.crt": STANDARD.encode(given.serving_ca),
            }),
        ),
        // There from the start: a new cluster asks for tokens (design 5 "Token").
        secret(CONFIG_NAMESPACE, TOKEN_SECRET, "Opaque", &json!({"tokens.json": STANDARD.encode("[]")})),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CSR_CA, "namespace": MANAGED_NAMESPACE},
            "data": {"ca-bundle.crt": given.client_ca}}),
        json!({"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
            "status": {"apiServerInternalURI": given.url, "apiServerURL": given.url}}),
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
            "metadata": {"name": "machine-config-controller"},
            "spec": {"kubeAPIServerServingCAData": STANDARD.encode(kubelet_ca), "osImageURL": "", "baseOSExtensionsContainerImage": ""}}),
        json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
            "spec": {"managementState": "Managed"}, "status": {"observedGeneration": 1,
            "nodeDisruptionPolicyStatus": {"clusterPolicies": default_policies()}}}),
    ];
    for pool in ["worker", "master"] {
        all.push(json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": pool}, "spec": {"paused": false,
            "machineConfigSelector": {"matchLabels": {ROLE_LABEL: pool}},
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{pool}"): ""}}}}));
    }
    all.extend(roles());
    all
}

fn secret(namespace: &str, name: &str, kind: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name, "namespace": namespace}, "data": data})
}

/// The operator's default table (facts/mco.md 5.2).
fn default_policies() -> Value {
    let none = json!([{"type": "None"}]);
    let special = json!([{"type": "Special"}]);
    let reload = |unit: &str| json!([{"type": "Reload", "reload": {"serviceName": unit}}]);
    let restart = |unit: &str| json!({"type": "Restart", "restart": {"serviceName": unit}});
    let daemon_reload = json!({"type": "DaemonReload"});
    let files: Vec<Value> = [
        ("/var/lib/kubelet/config.json", none.clone()),
        ("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reload("crio.service")),
        ("/etc/containers/policy.json", reload("crio.service")),
        ("/etc/containers/registries.conf", special),
        ("/etc/containers/registries.d", reload("crio.service")),
        ("/etc/crio/policies", reload("crio.service")),
        ("/etc/nmstate/openshift", none.clone()),
        (
            "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
            json!([restart("coreos-update-ca-trust.service"), restart("crio.service")]),
        ),
        ("/etc/kubernetes/credential-providers", json!([restart("kubelet.service")])),
        (
            "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf",
            json!([daemon_reload, restart("kubelet.service")]),
        ),
        ("/etc/iri-registry", json!([restart("iri-registry.service")])),
        ("/usr/local/bin/load-registry-image.sh", json!([restart("iri-registry.service")])),
        (
            "/etc/pki/ca-trust/source/anchors/iri-root-ca.crt",
            json!([restart("coreos-update-ca-trust.service")]),
        ),
    ]
    .into_iter()
    .map(|(path, actions)| json!({"path": path, "actions": actions}))
    .collect();
    let units = json!([{"name": "iri-registry.service", "actions": [daemon_reload, restart("iri-registry.service")]}]);
    json!({"files": files, "units": units, "sshkey": {"actions": none}})
}

/// Roles and bindings: the bootstrapper's, and the least that each part needs.
fn roles() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let read = &["get", "list", "watch"];
    let events = rule("", &["events"], &["create", "patch", "update"]);
    let mco = "machineconfiguration.openshift.io";
    let csr = "certificates.k8s.io";
    let rbac = "rbac.authorization.k8s.io";
    let bootstrapper = [("node-bootstrapper", crate::names::BOOTSTRAPPER)];
    let parts = PARTS.iter().copied().chain(bootstrapper);
    let mut all = Vec::new();
    for (part, account) in parts {
        let rules = match part {
            "mcs" => json!([
                rule(mco, &["machineconfigs", "machineconfigpools", "controllerconfigs"], read),
                rule("config.openshift.io", &["infrastructures"], read),
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "update", "watch"],
                    "resourceNames": [TOKEN_SECRET, BOOTSTRAP_TOKEN_SECRET, crate::names::MCS_CA, crate::names::MCS_TLS]},
                rule("", &["secrets"], &["create"]),
                rule("", &["configmaps"], &["create", "delete", "get", "list", "patch", "update", "watch"]),
                events,
            ]),
            "renderer" => json!([
                rule(
                    mco,
                    &["machineconfigs", "machineconfigpools", "machineconfigpools/status"],
                    &["create", "delete", "get", "list", "patch", "update", "watch"]
                ),
                rule(mco, &["controllerconfigs"], read),
                rule("", &["configmaps", "nodes"], read),
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"], "resourceNames": [TOKEN_SECRET]},
                // User data of any pool: a real cluster narrows this by namespace, which is not there here.
                rule("", &["secrets"], &["create", "get", "update"]),
                rule(rbac, &["clusterroles"], &["create", "get", "patch", "update"]),
                events,
            ]),
            "approver" => json!([
                rule(csr, &["certificatesigningrequests"], read),
                rule(csr, &["certificatesigningrequests/approval"], &["update"]),
                rule("machine.openshift.io", &["machines"], read),
                rule("", &["nodes", "configmaps"], read),
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [TOKEN_SECRET]},
                rule(rbac, &["clusterrolebindings"], &["create", "get", "patch", "update"]),
                events,
            ]),
            _ => json!([rule(csr, &["certificatesigningrequests"], &["create", "get", "list", "watch"])]),
        };
        let (name, namespace) =
            (account.rsplit(':').next().unwrap_or_default(), account.split(':').nth(2).unwrap_or_default());
        let granted = if part == "node-bootstrapper" {
            "system:node-bootstrapper".to_owned()
        } else {
            format!("oneboot:{part}")
        };
        all.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": granted}, "rules": rules}));
        all.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": granted},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": granted},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}));
    }
    all
}

/// Puts the default objects into the store, statuses included, over what an unfinished first start has left.
pub(crate) fn fill(store: &Store, given: &Given<'_>) -> Result<(), Refusal> {
    for mut new in objects(given) {
        let resource = Resource::of_kind(
            new["apiVersion"].as_str().unwrap_or_default(),
            new["kind"].as_str().unwrap_or_default(),
        )
        .ok_or_else(Refusal::no_such_path)?;
        let namespace = new["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let path = resource.path(&namespace, None);
        let target = Target::parse(&hyper::Method::POST, &path, None)?;
        let status = new.get("status").cloned();
        let name = object::prepare_create(&target, &mut new, false)?;
        if status.is_some() {
            object::set(&mut new, "status", status);
        }
        let key = Key { resource: super::handlers::bucket(resource), namespace, name };
        store.write(&key, |_| Ok::<_, Refusal>(Decision::Put(new)))?;
    }
    Ok(())
}

/// The Infrastructure's URLs follow the API, where they are the API's: a proxy's that somebody has put there stay.
pub(crate) fn moved(store: &Store, old: &str, new: &str) -> Result<(), Refusal> {
    let key = Key {
        resource: "config.openshift.io/infrastructures".to_owned(),
        namespace: String::new(),
        name: "cluster".to_owned(),
    };
    let Some(stored) = store.get(&key) else { return Ok(()) };
    let mut object = Value::clone(&stored);
    for field in ["apiServerInternalURI", "apiServerURL"] {
        if object["status"][field] == old {
            object["status"][field] = new.into();
        }
    }
    store.write(&key, |_| Ok::<_, Refusal>(Decision::Put(object))).map(drop)
}
