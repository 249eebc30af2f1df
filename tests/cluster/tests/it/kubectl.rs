//! `kubectl` as people use it, where it is installed; and what it sends, always.

use crate::harness::{Answer, CSRS, Cluster, MCO, csr_object, machine_config, node_csr, request};
use crate::program::text;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// What `kubectl get` asks for: a table if there are any, and plain JSON otherwise.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
/// What it asks discovery for.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn with_a_request() -> (Cluster, String) {
    let cluster = Cluster::with(|options| options.approve = false).await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    oneboot_cluster::cmd::machine_add(&cluster.admin, "node1", "worker").await.unwrap();
    let filed = cluster.bootstrapper().await.post(CSRS, &csr_object(&node_csr("node1").0)).await.unwrap();
    (cluster, filed["metadata"]["name"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_itself() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        println!("kubectl is not on PATH: what it sends is tested by `its_requests` alone");
        return;
    }
    let (cluster, csr) = with_a_request().await;
    let cache = tempfile::TempDir::new().unwrap();
    let config = cluster.dir.path().join("admin.kubeconfig");
    let kubectl = |arguments: &[&str], input: &str| {
        let mut child = Command::new("kubectl")
            .args(["--kubeconfig", config.to_str().unwrap(), "--cache-dir", cache.path().to_str().unwrap()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let map = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
            .to_string()
    };
    assert!(kubectl(&["get", "mcp"], "").contains("worker"));
    assert!(kubectl(&["get", "mcp", "worker", "-o", "yaml"], "").contains("rendered-worker-"));
    assert_eq!(kubectl(&["create", "--validate=false", "-f", "-"], &map("k")), "configmap/k created\n");
    assert_eq!(kubectl(&["apply", "--validate=false", "-f", "-"], &map("k2")), "configmap/k2 created\n");
    kubectl(&["annotate", "cm", "k", "x=y"], "");
    kubectl(&["label", "mcp", "worker", "foo=bar"], "");
    kubectl(&["patch", "mcp", "worker", "--type", "merge", "-p", r#"{"spec":{"paused":true}}"#], "");
    let pool = cluster.admin.get(&format!("{MCO}/machineconfigpools/worker")).await.unwrap();
    assert_eq!((&pool["metadata"]["labels"]["foo"], &pool["spec"]["paused"]), (&json!("bar"), &json!(true)));
    kubectl(&["wait", "--timeout=20s", "--for=jsonpath={.spec.paused}=true", "mcp/worker"], "");
    // `kubectl certificate approve` speaks protobuf only; this is the same write in JSON.
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "by hand"}]}});
    kubectl(
        &["patch", "csr", &csr, "--subresource=approval", "--type=merge", "-p", &approval.to_string()],
        "",
    );
    cluster.certificate(&csr).await;
    assert!(kubectl(&["get", "csr"], "").contains(&csr));
    kubectl(&["delete", "cm", "k"], "");
    assert!(cluster.admin.get(&format!("{MAPS}/k")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn its_requests() {
    let (cluster, csr) = with_a_request().await;
    let config = cluster.read("admin.kubeconfig");
    let token = config.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    let (bearer, address) = (format!("Bearer {token}"), cluster.read("api.address"));
    let ca = cluster.read("api-serving-ca.crt");
    let send = async |method: &str, path: &str, accept: &str, content: &str, body: &str| -> Answer {
        let mut headers = vec![("authorization", bearer.as_str()), ("accept", accept)];
        if !content.is_empty() {
            headers.push(("content-type", content));
        }
        request(&address, &ca, method, path, &headers, body).await
    };
    for (path, kind, holds) in [
        ("/api?timeout=32s", "APIVersions", "v1"),
        ("/apis?timeout=32s", "APIGroupList", "machineconfiguration.openshift.io"),
        ("/api/v1?timeout=32s", "APIResourceList", "configmaps"),
        ("/apis/machineconfiguration.openshift.io/v1?timeout=32s", "APIResourceList", "machineconfigpools"),
    ] {
        let answer = send("GET", path, DISCOVERY, "", "").await;
        assert_eq!((answer.status, &answer.json()["kind"]), (200, &json!(kind)), "{path}");
        assert!(answer.json().to_string().contains(holds), "{path}");
    }
    let pools = send("GET", &format!("{MCO}/machineconfigpools?limit=500"), TABLE, "", "").await;
    assert_eq!((pools.status, &pools.json()["kind"]), (200, &json!("MachineConfigPoolList")));
    let json = "application/json";
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "k", "namespace": "default"}});
    let create = format!("{MAPS}?fieldManager=kubectl-create&fieldValidation=Ignore");
    assert_eq!(send("POST", &create, json, json, &map.to_string()).await.status, 201);
    let annotate = json!({"metadata": {"annotations": {"x": "y"}}}).to_string();
    let patch = format!("{MAPS}/k?fieldManager=kubectl-annotate");
    let patched = send("PATCH", &patch, json, "application/strategic-merge-patch+json", &annotate).await;
    assert_eq!((patched.status, &patched.json()["metadata"]["annotations"]["x"]), (200, &json!("y")));
    let mut object: Value = send("GET", &format!("{CSRS}/{csr}"), json, "", "").await.json();
    object["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "This CSR was approved by kubectl certificate approve."}]);
    let approval = format!("{CSRS}/{csr}/approval");
    assert_eq!(send("PUT", &approval, json, json, &object.to_string()).await.status, 200);
    cluster.certificate(&csr).await;
    let protobuf = send("PUT", &approval, json, "application/vnd.kubernetes.protobuf", "k8s\0").await;
    assert_eq!(protobuf.status, 415, "what is not spoken is said to be so");
    let options = r#"{"propagationPolicy":"Background"}"#;
    assert_eq!(send("DELETE", &format!("{MAPS}/k"), json, json, options).await.status, 200);
    assert_eq!(send("GET", &format!("{MAPS}/k"), json, "", "").await.status, 404);
}
