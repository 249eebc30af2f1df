//! `join = "enroll"`: the request that is filed, the files that are left, and everything that must leave none.

use std::{
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use oneboot_agent::{
    api::session::Session,
    csr,
    enroll::{self, Error},
    identity, paths,
    root::Root,
};
use serde_json::{Value, json};

use crate::support::{Answer, Asked, Ca, Line, NODE, Pauses, Server, Tree, forbidden, list};

/// An API that files requests, and a word about the one that was filed.
struct Api {
    server: Server,
    tree: Tree,
    filed: Arc<Mutex<Option<Value>>>,
    watch: mpsc::Sender<Line>,
}

/// `answer` is what becomes of the request: its `status`, given the CSR in PEM.
fn api(answer: impl Fn(&str) -> Value + Send + Sync + 'static) -> Api {
    let filed: Arc<Mutex<Option<Value>>> = Arc::default();
    let (watch, lines) = mpsc::channel();
    let lines = Mutex::new(Some(lines));
    let shared = filed.clone();
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), move |asked: &Asked| {
        let mut filed = shared.lock().unwrap();
        if asked.method == "POST" {
            let mut object: Value = serde_json::from_str(&asked.body).unwrap();
            let pem = STANDARD.decode(object["spec"]["request"].as_str().unwrap()).unwrap();
            object["metadata"] =
                json!({"name": "csr-7", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"});
            object["status"] = answer(&String::from_utf8(pem).unwrap());
            *filed = Some(object.clone());
            return Answer::Json(201, object);
        }
        if asked.target.contains("watch=true") {
            return lines.lock().unwrap().take().map_or(Answer::Drop, Answer::Watch);
        }
        list("7", &filed.iter().cloned().collect::<Vec<_>>())
    });
    let tree = Tree::new();
    tree.kubeconfig(paths::BOOTSTRAP_KUBECONFIG, &server.url, &ca.pem, Some("bootstrap-token"));
    Api { server, tree, filed, watch }
}

/// Enrolls on a tree; with what was said meanwhile.
fn enroll_on(root: &Arc<Root>, seconds: u64) -> (Result<(), Error>, Vec<String>) {
    let load = {
        let root = root.clone();
        move || identity::bootstrap(&root)
    };
    let mut session = Session::new(load, None, Arc::new(Pauses::default()));
    let mut said = Vec::new();
    let outcome = enroll::enroll(&mut session, root, NODE, Duration::from_secs(seconds), |word| {
        said.push(word.to_string());
    });
    (outcome, said)
}

impl Api {
    fn enroll(&self, seconds: u64) -> (Result<(), Error>, Vec<String>) {
        enroll_on(&self.tree.root, seconds)
    }

    /// A node that is not enrolled has nothing of the kubelet's.
    fn left_nothing(&self) -> bool {
        !self.tree.path("/var/lib/kubelet").exists()
    }
}

#[test]
fn what_is_filed_and_left_is_what_a_kubelet_files_and_leaves() {
    let clients = Ca::new("kubelet-ca");
    let api = api(move |pem| json!({"certificate": STANDARD.encode(clients.sign(pem))}));
    api.enroll(60).0.unwrap();

    let filed = api.filed.lock().unwrap().clone().unwrap();
    assert_eq!(filed["spec"]["signerName"], csr::SIGNER);
    assert_eq!(filed["spec"]["usages"], json!(["digital signature", "client auth"]));
    let parsed: oneboot_agent::api::types::CertificateRequest = serde_json::from_value(filed).unwrap();
    assert_eq!(csr::node_of(&parsed).as_deref(), Some(NODE));
    let posts: Vec<_> = api.server.asked.try_iter().filter(|asked| asked.method == "POST").collect();
    assert_eq!(posts.len(), 1, "one request for one answer");
    assert_eq!(posts[0].authorization.as_deref(), Some("Bearer bootstrap-token"));

    // The agent's own reader takes certificate and kubeconfig for the kubelet's.
    let now = oneboot_firstboot::clock::wall_seconds();
    assert_eq!(identity::node_pair(&api.tree.root, now).unwrap().unwrap().node, NODE);
    assert_eq!(identity::node(&api.tree.root, now).unwrap().server, api.server.url);
    let link = std::fs::read_link(api.tree.path(paths::KUBELET_CLIENT)).unwrap();
    let link = link.to_str().unwrap().to_owned();
    assert!(link.starts_with("/var/lib/kubelet/pki/kubelet-client-2"), "{link}");
    assert_eq!(link.len(), "/var/lib/kubelet/pki/kubelet-client-2026-01-01-00-00-00.pem".len());
    assert!(!api.tree.path(paths::KUBELET_CLIENT_UPDATED).exists());
    for path in [link.as_str(), paths::KUBECONFIG] {
        let mode = std::fs::metadata(api.tree.path(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600, "{path}");
    }
    let kubeconfig = std::fs::read_to_string(api.tree.path(paths::KUBECONFIG)).unwrap();
    assert!(!kubeconfig.contains("bootstrap-token"), "the token is not the kubelet's to keep");
}

#[test]
fn a_request_that_is_approved_late_is_waited_for_in_a_watch() {
    let clients = Ca::new("kubelet-ca");
    let api = api(|_| json!({}));
    let root = api.tree.root.clone();
    let enrolling = std::thread::spawn(move || enroll_on(&root, 600));
    let watched = api.server.wait_for(|asked| asked.target.contains("watch=true"));
    assert!(watched.target.contains("timeoutSeconds=600"), "{}", watched.target);
    let mut object = api.filed.lock().unwrap().clone().unwrap();
    let pem = STANDARD.decode(object["spec"]["request"].as_str().unwrap()).unwrap();
    let certificate = clients.sign(std::str::from_utf8(&pem).unwrap());
    object["status"] = json!({"certificate": STANDARD.encode(certificate)});
    api.watch.send(Line::Event("MODIFIED", object)).unwrap();
    let (outcome, said) = enrolling.join().unwrap();
    outcome.unwrap();
    assert!(said[0].contains("csr-7 is pending since 2026-01-01T00:00:00Z"), "{said:?}");
}

#[test]
fn a_denial_leaves_nothing_and_is_quoted() {
    let api = api(
        |_| json!({"conditions": [{"type": "Denied", "status": "True", "reason": "ByHand", "message": "no"}]}),
    );
    let error = api.enroll(60).0.unwrap_err();
    assert!(
        matches!(&error, Error::Dead(why) if why == "certificate request csr-7 was denied: ByHand: no"),
        "{error}"
    );
    assert!(api.left_nothing());
}

#[test]
fn nobody_in_time_leaves_nothing() {
    let api = api(|_| json!({}));
    let Api { server, tree, filed, watch } = api;
    drop(watch); // the server ends every watch at once, as it does when the time is over
    let api = Api { server, tree, filed, watch: mpsc::channel().0 };
    let error = api.enroll(0).0.unwrap_err();
    assert!(matches!(&error, Error::NotInTime { name, .. } if name == "csr-7"), "{error}");
    assert!(api.left_nothing());
}

#[test]
fn a_certificate_for_another_key_leaves_nothing() {
    let clients = Ca::new("kubelet-ca");
    let api = api(move |_| json!({"certificate": STANDARD.encode(clients.node(NODE).certificate)}));
    let error = api.enroll(60).0.unwrap_err();
    assert!(matches!(error, Error::Unusable { why: identity::PairError::Mismatch, .. }), "{error}");
    assert!(api.left_nothing());
}

#[test]
fn a_right_that_is_missing_is_named_until_the_time_is_over() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), |_: &Asked| forbidden());
    let tree = Tree::new();
    tree.kubeconfig(paths::BOOTSTRAP_KUBECONFIG, &server.url, &ca.pem, Some("bootstrap-token"));
    let api = Api { server, tree, filed: Arc::default(), watch: mpsc::channel().0 };
    let (outcome, said) = api.enroll(2);
    assert!(matches!(outcome, Err(Error::NotInTime { ref name, .. }) if name.is_empty()));
    assert!(said[0].contains("cannot create certificatesigningrequests"), "{said:?}");
    assert!(api.left_nothing());
}

#[test]
fn a_node_that_the_configuration_renames_loses_its_certificate_and_another_keeps_it() {
    let clients = Ca::new("kubelet-ca");
    let api = api(move |pem| json!({"certificate": STANDARD.encode(clients.sign(pem))}));
    api.enroll(60).0.unwrap();
    let root = &api.tree.root;
    assert_eq!(enroll::discard_if_renamed(root, NODE, Some(NODE)).unwrap(), None);
    assert!(api.tree.path(paths::KUBELET_CLIENT).symlink_metadata().is_ok());
    let said = enroll::discard_if_renamed(root, NODE, Some("node-b")).unwrap().unwrap();
    assert!(said.contains(NODE) && said.contains("node-b"), "{said}");
    assert_eq!(std::fs::read_dir(api.tree.path(paths::KUBELET_PKI)).unwrap().count(), 0);
    assert!(!api.tree.path(paths::KUBECONFIG).exists());
}
