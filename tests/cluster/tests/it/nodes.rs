//! What a node may and may not do: RBAC, the node authorizer, `NodeRestriction`, its own CSRs.

use crate::harness::{CSRS, Cluster, MCO, csr_object, machine_config, node_csr, wait_for};
use oneboot_cluster::certs::Pair;
use oneboot_cluster::client::{Client, Error};
use oneboot_cluster::kubeconfig::Credential;
use oneboot_cluster::serve::Part;
use serde_json::{Value, json};

async fn status_of(client: &Client, path: &str) -> u16 {
    match client.get(path).await {
        Ok(_) => 200,
        Err(Error::Status { code, .. }) => code,
        Err(error) => panic!("{path}: {error}"),
    }
}

fn code(result: Result<Value, Error>) -> (u16, String) {
    match result {
        Ok(_) => (200, String::new()),
        Err(Error::Status { code, message, .. }) => (code, message),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reads_its_own_pools_rendered_config_and_no_other() {
    let cluster = Cluster::start().await;
    let configs = [
        machine_config("00-worker", "worker", true, "/etc/a", "a"),
        machine_config("99-worker", "worker", false, "/etc/b", "b"),
        machine_config("00-master", "master", true, "/etc/c", "c"),
    ];
    cluster.apply(&configs).await.unwrap();
    let name = async |pool: &str| {
        let pool = cluster.admin.get(&format!("{MCO}/machineconfigpools/{pool}")).await.unwrap();
        pool["spec"]["configuration"]["name"].as_str().unwrap().to_owned()
    };
    let (own, other) = (name("worker").await, name("master").await);
    let node = cluster.join("node1", "worker").await;
    for (path, status) in [
        (format!("{MCO}/machineconfigs/{own}"), 200),
        (format!("{MCO}/machineconfigpools/worker"), 200),
        (format!("{MCO}/machineconfigpools?fieldSelector=metadata.name=worker"), 200),
        ("/apis/operator.openshift.io/v1/machineconfigurations/cluster".into(), 200),
        (format!("{MCO}/machineconfigs/{other}"), 403),
        (format!("{MCO}/machineconfigs/99-worker"), 403),
        (format!("{MCO}/machineconfigs"), 403),
        (format!("{MCO}/machineconfigpools/master"), 403),
        (format!("{MCO}/machineconfigpools"), 403),
        ("/api/v1/nodes/node1".into(), 404), // its own, before it has registered
        ("/api/v1/nodes/node2".into(), 403),
        ("/api/v1/nodes".into(), 403),
        ("/api/v1/nodes?fieldSelector=metadata.name=node1".into(), 200),
        ("/api/v1/pods".into(), 403),
        ("/api/v1/pods?fieldSelector=spec.nodeName=node1".into(), 200),
        ("/api/v1/namespaces/openshift-config/secrets/machineconfig-auth".into(), 403),
        ("/api/v1/namespaces/openshift-machine-config-operator/secrets/node-bootstrapper-token".into(), 403),
        (
            "/api/v1/namespaces/openshift-machine-config-operator/configmaps/machine-config-server-ca".into(),
            403,
        ),
        (CSRS.into(), 200),
    ] {
        assert_eq!(status_of(&node, &path).await, status, "{path}");
    }
    let master = cluster.join("node2", "master").await;
    assert_eq!(status_of(&master, &format!("{MCO}/machineconfigs/{other}")).await, 200);
    assert_eq!(status_of(&master, &format!("{MCO}/machineconfigs/{own}")).await, 403);
    // What the pool no longer names, but was served today, stays readable: the node may be booting with it.
    let token = cluster.token(Some("worker")).await;
    assert_eq!(cluster.get_config("worker", &token).await.status, 200);
    cluster.apply(&[machine_config("98-worker", "worker", false, "/etc/d", "d")]).await.unwrap();
    assert_ne!(name("worker").await, own);
    assert_eq!(status_of(&node, &format!("{MCO}/machineconfigs/{own}")).await, 200);
    assert_eq!(status_of(&node, &format!("{MCO}/machineconfigs/{}", name("worker").await)).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootstrapper_files_requests_and_nothing_else() {
    let cluster = Cluster::start().await;
    let kubelet = cluster.bootstrapper().await;
    assert_eq!(status_of(&kubelet, CSRS).await, 200);
    for path in ["/api/v1/nodes", "/api/v1/nodes/node1", &format!("{MCO}/machineconfigs"), "/api/v1/secrets"]
    {
        assert_eq!(status_of(&kubelet, path).await, 403, "{path}");
    }
    let filed = kubelet.post(CSRS, &csr_object(&node_csr("node1").0)).await.unwrap();
    let name = filed["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("csr-") && name.len() == 9, "{name}");
    let bootstrapper = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
    assert_eq!(filed["spec"]["username"], bootstrapper);
    let mut approved = filed.clone();
    approved["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Me", "message": ""}]);
    assert_eq!(code(kubelet.put(&format!("{CSRS}/{name}/approval"), &approved).await).0, 403);
    assert_eq!(cluster.admin.get(&format!("{CSRS}/{name}")).await.unwrap()["status"], json!({}));
    for (what, credential) in [("a wrong token", "wrong"), ("no such token", "Y2VydGFpbmx5IG5vdA==")] {
        let nobody = cluster.as_who(Credential::Token(credential.into()));
        assert_eq!(status_of(&nobody, "/api/v1/nodes").await, 401, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_filed_a_request_is_what_the_api_saw() {
    let cluster = Cluster::start().await;
    let kubelet = cluster.bootstrapper().await;
    let mut forged = csr_object(&node_csr("node1").0);
    forged["spec"]["username"] = "system:admin".into();
    forged["spec"]["groups"] = json!(["system:masters"]);
    forged["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
    let filed = kubelet.post(CSRS, &forged).await.unwrap();
    assert!(filed["spec"]["username"].as_str().unwrap().ends_with(":node-bootstrapper"));
    assert!(!filed["spec"]["groups"].as_array().unwrap().contains(&json!("system:masters")));
    assert_eq!(filed["status"], json!({}));
    let (pem, _) = node_csr("node1");
    let cut = pem.replacen('M', "N", 2);
    for (what, object) in [
        ("not a request", csr_object("hello")),
        ("another key's signature", csr_object(&cut)),
        ("a usage twice", {
            let mut object = csr_object(&pem);
            object["spec"]["usages"] = json!(["client auth", "client auth"]);
            object
        }),
    ] {
        assert_eq!(code(kubelet.post(CSRS, &object).await).0, 422, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_held_to_its_own_node() {
    let cluster = Cluster::start().await;
    let node = cluster.join("node1", "worker").await;
    let object = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
            "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/hostname": name}}, "spec": {}})
    };
    let (status, why) = code(node.post("/api/v1/nodes", &object("node2")).await);
    assert_eq!(status, 403);
    assert!(why.contains("node \"node1\" is not allowed to modify node \"node2\""), "{why}");
    let mut infra = object("node1");
    infra["metadata"]["labels"]["node-role.kubernetes.io/infra"] = "".into();
    assert_eq!(
        code(node.post("/api/v1/nodes", &infra).await).0,
        403,
        "a custom role cannot be self-assigned"
    );
    assert_eq!(status_of(&cluster.admin, "/api/v1/nodes/node1").await, 404, "refused means not created");
    node.post("/api/v1/nodes", &object("node1")).await.unwrap();
    let path = "/api/v1/nodes/node1";
    let before = cluster.admin.get(path).await.unwrap();
    for (what, patch) in [
        ("taints", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})),
        (
            "ownerReferences",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}),
        ),
        (
            "another role, once it is there",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}}),
        ),
        ("a restricted label", json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}})),
        ("a reserved label", json!({"metadata": {"labels": {"foo.kubernetes.io/x": "y"}}})),
        ("its role taken away", json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": null}}})),
    ] {
        assert_eq!(code(node.merge(path, &patch).await).0, 403, "{what}");
        assert_eq!(cluster.admin.get(path).await.unwrap(), before, "{what}: nothing is changed");
    }
    for (what, patch) in [
        ("annotations", json!({"metadata": {"annotations": {"oneboot.dev/state": "Settled"}}})),
        ("cordon", json!({"spec": {"unschedulable": true}})),
        ("its own labels", json!({"metadata": {"labels": {"example.com/x": "y"}}})),
        ("a kubelet label", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}})),
    ] {
        assert_eq!(code(node.merge(path, &patch).await).0, 200, "{what}");
    }
    assert_eq!(code(node.delete(path).await).0, 403, "delete");
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(code(node.merge(&format!("{path}/status"), &status).await).0, 200);
    // Renewal: a CSR for itself, never for another.
    assert_eq!(code(node.post(CSRS, &csr_object(&node_csr("node1").0)).await).0, 200);
    let (status, why) = code(node.post(CSRS, &csr_object(&node_csr("node2").0)).await);
    assert_eq!(status, 403);
    assert!(why.contains("can only create a node CSR with CN=system:node:node1"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_request_that_breaks_the_signers_rules_fails() {
    let cluster = Cluster::with(|options| options.approve = false).await;
    let kubelet = cluster.bootstrapper().await;
    let mut object = csr_object(&node_csr("node1").0);
    object["spec"]["usages"] = json!(["digital signature", "client auth", "server auth"]);
    let filed = kubelet.post(CSRS, &object).await.unwrap();
    let name = filed["metadata"]["name"].as_str().unwrap();
    oneboot_cluster::cmd::approve(&cluster.admin, name, Some("worker")).await.unwrap();
    let refused = |csr: &Value| {
        csr["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["type"] == "Failed"))
    };
    let csr = wait_for(&cluster.admin, &format!("{CSRS}?fieldSelector=metadata.name={name}"), refused).await;
    assert!(csr["status"]["certificate"].is_null());
    let condition = csr["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(condition["reason"], "SignerValidationFailure");
    assert!(condition["message"].as_str().unwrap().starts_with("usages did not match"), "{condition}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_approves_the_binding_is_there_first() {
    let cluster = Cluster::with(|options| options.approve = false).await;
    let kubelet = cluster.bootstrapper().await;
    let filed = kubelet.post(CSRS, &csr_object(&node_csr("node1").0)).await.unwrap();
    let name = filed["metadata"]["name"].as_str().unwrap().to_owned();
    let refused = oneboot_cluster::cmd::approve(&cluster.admin, &name, None).await.unwrap_err();
    assert!(refused.to_string().contains("add --pool POOL"), "{refused}");
    assert_eq!(
        cluster.admin.get(&format!("{CSRS}/{name}")).await.unwrap()["status"],
        json!({}),
        "nobody knows its pool: not approved"
    );
    oneboot_cluster::cmd::approve(&cluster.admin, &name, Some("worker")).await.unwrap();
    let version =
        |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = cluster.admin.get(&format!("{bindings}/oneboot:pool-config-reader:worker")).await.unwrap();
    assert_eq!(binding["subjects"][0]["name"], "system:node:node1");
    let approved = cluster.admin.get(&format!("{CSRS}/{name}")).await.unwrap();
    assert!(version(&binding) < version(&approved));
}

/// Writes an approval straight to the API, as `kubectl certificate approve` does.
async fn approve_directly(cluster: &Cluster, name: &str) {
    let mut csr = cluster.admin.get(&format!("{CSRS}/{name}")).await.unwrap();
    csr["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "by hand"}]);
    cluster.admin.put(&format!("{CSRS}/{name}/approval"), &csr).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_past_the_approver_is_signed_after_the_binding() {
    let cluster = Cluster::with(|options| options.approve = false).await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    oneboot_cluster::cmd::machine_add(&cluster.admin, "node1", "worker").await.unwrap();
    let (csr, key) = node_csr("node1");
    let filed = cluster.bootstrapper().await.post(CSRS, &csr_object(&csr)).await.unwrap();
    let name = filed["metadata"]["name"].as_str().unwrap();
    approve_directly(&cluster, name).await;
    let certificate = cluster.certificate(name).await;
    let node = cluster.as_who(Credential::Certificate(Pair { certificate, key }));
    let pool = node.get(&format!("{MCO}/machineconfigpools/worker")).await.unwrap();
    let own = pool["spec"]["configuration"]["name"].as_str().unwrap();
    assert_eq!(status_of(&node, &format!("{MCO}/machineconfigs/{own}")).await, 200, "its first request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_without_an_approver_waits_only_so_long() {
    let cluster = Cluster::with(|options| {
        options.only = vec![Part::Api];
        options.signer_waits = std::time::Duration::from_millis(300);
    })
    .await;
    let filed = cluster.bootstrapper().await.post(CSRS, &csr_object(&node_csr("node1").0)).await.unwrap();
    let name = filed["metadata"]["name"].as_str().unwrap();
    let began = std::time::Instant::now();
    approve_directly(&cluster, name).await;
    cluster.certificate(name).await;
    assert!(began.elapsed() >= std::time::Duration::from_millis(300), "not before its time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_nothing_rendered_lets_its_nodes_read_nothing() {
    let cluster = Cluster::start().await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    let node = cluster.join("node1", "master").await;
    let pool = format!("{MCO}/machineconfigpools/master");
    // The role is there (it opens the pool's object); its rule for configs must not be one without names.
    wait_for(&cluster.admin, "/apis/rbac.authorization.k8s.io/v1/clusterroles", |role| {
        role["metadata"]["name"] == "oneboot:pool-config-reader:master"
    })
    .await;
    assert_eq!(status_of(&node, &pool).await, 200);
    assert_eq!(status_of(&node, &format!("{MCO}/machineconfigs/00-worker")).await, 403);
    assert_eq!(status_of(&node, &format!("{MCO}/machineconfigs")).await, 403);
}
