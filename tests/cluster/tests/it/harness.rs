//! A control plane in a scratch directory, and ways to talk to it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use oneboot_cluster::certs::Pair;
use oneboot_cluster::client::Client;
use oneboot_cluster::kubeconfig::{Credential, Kubeconfig};
use oneboot_cluster::serve::{self, Options};
use oneboot_cluster::{layout::Layout, tls};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) const MCO: &str = "/apis/machineconfiguration.openshift.io/v1";
pub(crate) const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub(crate) const IGNITION_3_5: &str = "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1";

/// A running control plane; it ends with the value.
pub(crate) struct Cluster {
    pub(crate) dir: TempDir,
    pub(crate) admin: Client,
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

pub(crate) fn options(dir: &Path) -> Options {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Options {
        dir: dir.to_path_buf(),
        api: any,
        mcs: any,
        names: vec!["127.0.0.1".into()],
        only: Vec::new(),
        kubeconfig: None,
        approve: true,
        no_token: false,
        extended: false,
        signer_waits: std::time::Duration::from_secs(60), // a binding that does not come is a failure, not a delay
        clock: oneboot_cluster::clock::Clock::default(),
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        Self::at(TempDir::new().unwrap(), change).await
    }

    pub(crate) async fn at(dir: TempDir, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options(dir.path());
        change(&mut options);
        let (stop, stopped) = watch::channel(false);
        let started = serve::start(&options, stopped).await.unwrap();
        let admin = Client::open(&Layout::at(dir.path()).kubeconfig("admin")).unwrap();
        Self { dir, admin, tasks: started.tasks, stop }
    }

    /// Stops everything and gives the directory back.
    pub(crate) async fn stop(mut self) -> TempDir {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        self.dir
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(file)).unwrap()
    }

    /// The kubeconfig of somebody else at the same API.
    pub(crate) fn as_who(&self, credential: Credential) -> Client {
        let ca = self.read("api-serving-ca.crt");
        Client::new(&Kubeconfig { server: self.admin.server().to_owned(), ca, credential }).unwrap()
    }

    /// The kubelet before it has a certificate.
    pub(crate) async fn bootstrapper(&self) -> Client {
        let path = "/api/v1/namespaces/openshift-machine-config-operator/secrets/node-bootstrapper-token";
        let secret = self.admin.get(path).await.unwrap();
        let token = STANDARD.decode(secret["data"]["token"].as_str().unwrap()).unwrap();
        self.as_who(Credential::Token(String::from_utf8(token).unwrap()))
    }

    /// Applies objects and waits until they are rendered, as `oneboot-cluster apply` does.
    pub(crate) async fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        let file = self.dir.path().join("apply.json");
        std::fs::write(&file, json!({"kind": "List", "apiVersion": "v1", "items": objects}).to_string())
            .unwrap();
        oneboot_cluster::cmd::apply(&self.admin, &[file.to_str().unwrap().to_owned()], true).await
    }

    /// One request to the MCS, with exactly these headers.
    pub(crate) async fn mcs(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let ca = self.read("mcs-ca.crt");
        let address = self.read("mcs.address");
        request(&address, &ca, method, path, headers, body).await
    }

    pub(crate) async fn get_config(&self, pool: &str, token: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        self.mcs(
            "GET",
            &format!("/config/{pool}"),
            &[("authorization", &bearer), ("accept", IGNITION_3_5)],
            "",
        )
        .await
    }

    /// Makes a token as `token new` does.
    pub(crate) async fn token(&self, pool: Option<&str>) -> String {
        let wish = oneboot_cluster::tokens::Wish {
            pool: pool.map(str::to_owned),
            node: None,
            ttl: time::Duration::hours(1),
            grace: None,
        };
        oneboot_cluster::tokens::issue(&self.admin, &wish, time::OffsetDateTime::now_utc()).await.unwrap()
    }

    /// A node of a pool: Machine, CSR, approval, certificate. What it can do afterwards is its client.
    pub(crate) async fn join(&self, node: &str, pool: &str) -> Client {
        oneboot_cluster::cmd::machine_add(&self.admin, node, pool).await.unwrap();
        let (csr, key) = node_csr(node);
        let bootstrapper = self.bootstrapper().await;
        let filed = bootstrapper.post(CSRS, &csr_object(&csr)).await.unwrap();
        let certificate = self.certificate(filed["metadata"]["name"].as_str().unwrap()).await;
        self.as_who(Credential::Certificate(Pair { certificate, key }))
    }

    /// Waits, by watching, for a CSR's certificate.
    pub(crate) async fn certificate(&self, csr: &str) -> String {
        let path = format!("{CSRS}?fieldSelector=metadata.name={csr}");
        let found = wait_for(&self.admin, &path, |object| object["status"]["certificate"].is_string()).await;
        String::from_utf8(STANDARD.decode(found["status"]["certificate"].as_str().unwrap()).unwrap()).unwrap()
    }
}

/// Waits, by watching, until an object of a collection is as wanted; a minute at most.
pub(crate) async fn wait_for(client: &Client, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let waiting = async {
        let (items, mut watch) = client.list_and_watch(path).await.unwrap();
        if let Some(found) = items.into_iter().find(|object| wanted(object)) {
            return found;
        }
        loop {
            let event = watch.next().await.expect("the watch goes on");
            if event.kind != "DELETED" && wanted(&event.object) {
                return event.object;
            }
        }
    };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await;
    ended.unwrap_or_else(|_| panic!("nothing in {path} became as wanted within a minute"))
}

/// A node's CSR (PEM) and its key (PEM).
pub(crate) fn node_csr(node: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    (params.serialize_request(&key).unwrap().pem().unwrap(), key.serialize_pem())
}

pub(crate) fn csr_object(pem: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"generateName": "csr-"},
        "spec": {"request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"]},
    })
}

/// A MachineConfig with one file. `operator` makes it the operator's: pre-approved.
pub(crate) fn machine_config(name: &str, role: &str, operator: bool, path: &str, content: &str) -> Value {
    let mut config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": path, "mode": 420, "contents": {"source": format!("data:,{content}")}},
        ]}}},
    });
    if operator {
        config["metadata"]["annotations"] =
            json!({"machineconfiguration.openshift.io/generated-by-controller-version": "test"});
    }
    config
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// One request over TLS that trusts only `ca`.
pub(crate) async fn request(
    address: &str,
    ca: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let connector = tokio_rustls::TlsConnector::from(tls::client(ca, None).unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", address);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let response: Response<_> = sender.send_request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

/// Real data beside the checkout, if it is there; whoever gets `None` has said so. A directory without the wanted
/// entry is a failure: something has moved.
pub(crate) fn cases(entry: &str) -> Option<std::path::PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases");
    if !all.exists() {
        println!("{} is not there: this test has nothing to compare with", all.display());
        return None;
    }
    let path = all.join(entry);
    assert!(path.exists(), "{} is there, but not {entry}", all.display());
    Some(path)
}
