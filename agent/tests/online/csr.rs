//! Why a node is waiting: what the observer of its certificate request says, change by change.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use oneboot_agent::{
    api::session::Session,
    csr::{self, Word},
    identity, paths,
};
use serde_json::{Value, json};

use crate::support::{Answer, Asked, Ca, Line, NODE, Pauses, Server, Tree, forbidden, list, request};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// A request of `user`, filed at that minute, with conditions.
fn filed(name: &str, user: &str, minute: u8, conditions: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "resourceVersion": "7", "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
        },
        "spec": {"signerName": SIGNER, "request": request(user)},
        "status": {"conditions": conditions},
    })
}

const US: &str = "system:node:node-a";

fn pending(name: &str, minute: u8) -> Value {
    filed(name, US, minute, &json!([]))
}

fn with(name: &str, minute: u8, kind: &str, message: &str) -> Value {
    filed(
        name,
        US,
        minute,
        &json!([{"type": kind, "status": "True", "reason": "Because", "message": message}]),
    )
}

/// A server whose list is fixed and whose watches are fed by the test: by signer, and by name.
struct Requests {
    _server: Server,
    words: mpsc::Receiver<Word>,
    by_signer: mpsc::Sender<mpsc::Receiver<Line>>,
    by_name: mpsc::Sender<mpsc::Receiver<Line>>,
    items: Arc<Mutex<Vec<Value>>>,
}

fn observe(items: Vec<Value>) -> Requests {
    let (by_signer, signer_watches) = mpsc::channel();
    let (by_name, name_watches) = mpsc::channel();
    let watches = (Mutex::new(signer_watches), Mutex::new(name_watches));
    let items = Arc::new(Mutex::new(items));
    let listed = items.clone();
    let answer = move |asked: &Asked| {
        let named =
            asked.target.split("metadata.name%3D").nth(1).map(|n| n.split('&').next().unwrap_or_default());
        if asked.target.contains("watch=true") {
            let watch = if named.is_some() { &watches.1 } else { &watches.0 };
            // Blocks until the test has something to say.
            return watch.lock().unwrap().recv().map_or(Answer::Drop, Answer::Watch);
        }
        let items = listed.lock().unwrap();
        let chosen: Vec<_> =
            items.iter().filter(|i| named.is_none_or(|n| i["metadata"]["name"] == n)).cloned().collect();
        list("5", &chosen)
    };
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), answer);
    let tree = Tree::new();
    tree.kubeconfig(paths::BOOTSTRAP_KUBECONFIG, &server.url, &ca.pem, Some("bootstrap"));
    let (say, words) = mpsc::channel();
    thread::spawn(move || {
        let root = tree.root.clone();
        let mut session =
            Session::new(move || identity::bootstrap(&root), None, Arc::new(Pauses::default())).as_onlooker();
        csr::observe(&mut session, &|| Some(NODE.to_owned()), |word| match say.send(word) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
        drop(tree);
    });
    Requests { _server: server, words, by_signer, by_name, items }
}

impl Requests {
    fn next(&self) -> String {
        // Far beyond anything a passing test needs: it only keeps a failing one from hanging.
        self.words.recv_timeout(Duration::from_secs(60)).expect("there is something to say").to_string()
    }

    fn watch(to: &mpsc::Sender<mpsc::Receiver<Line>>) -> mpsc::Sender<Line> {
        let (send, receive) = mpsc::channel();
        to.send(receive).unwrap();
        send
    }
}

#[test]
fn from_not_filed_to_approved_every_change_is_told_once() {
    let others = filed("csr-b", "system:node:node-b", 1, &json!([]));
    let requests = observe(vec![others]);
    assert_eq!(
        requests.next(),
        "no certificate request for system:node:node-a yet: the kubelet has not filed one"
    );
    let all = Requests::watch(&requests.by_signer);
    all.send(Line::Event("ADDED", filed("csr-c", "system:node:node-c", 2, &json!([])))).unwrap();
    requests.items.lock().unwrap().push(pending("csr-a", 3));
    all.send(Line::Event("ADDED", pending("csr-a", 3))).unwrap();
    assert_eq!(
        requests.next(),
        "certificate request csr-a is pending since 2026-01-01T00:03:00Z; to approve: oc adm certificate approve csr-a"
    );
    let ours = Requests::watch(&requests.by_name);
    // The same again is no news; an approval is.
    ours.send(Line::Event("MODIFIED", pending("csr-a", 3))).unwrap();
    ours.send(Line::Event("MODIFIED", with("csr-a", 3, "Approved", ""))).unwrap();
    assert_eq!(
        requests.next(),
        "certificate request csr-a is approved; the kubelet has not stored the certificate yet"
    );
}

#[test]
fn a_denied_request_says_why_and_the_next_one_is_found() {
    let requests = observe(vec![pending("csr-1", 1)]);
    assert!(requests.next().contains("csr-1 is pending"));
    let first = Requests::watch(&requests.by_name);
    let denied = with("csr-1", 1, "Denied", "not a machine of ours");
    *requests.items.lock().unwrap() = vec![denied.clone()];
    first.send(Line::Event("MODIFIED", denied)).unwrap();
    assert_eq!(requests.next(), "certificate request csr-1 was denied: Because: not a machine of ours");
    let all = Requests::watch(&requests.by_signer);
    requests.items.lock().unwrap().push(pending("csr-2", 2));
    all.send(Line::Event("ADDED", pending("csr-2", 2))).unwrap();
    assert!(requests.next().contains("csr-2 is pending"));
}

#[test]
fn of_several_the_newest_counts_and_failure_is_told_apart() {
    let requests = observe(vec![with("csr-new", 9, "Failed", "the signer refused"), pending("csr-old", 1)]);
    assert_eq!(requests.next(), "certificate request csr-new failed: Because: the signer refused");
}

#[test]
fn a_watch_that_ends_finds_what_the_kubelet_filed_meanwhile() {
    let requests = observe(vec![pending("csr-1", 1)]);
    assert!(requests.next().contains("csr-1 is pending"));
    let first = Requests::watch(&requests.by_name);
    requests.items.lock().unwrap().push(pending("csr-2", 16));
    drop(first);
    assert!(requests.next().contains("csr-2 is pending"));
}

#[test]
fn an_api_that_will_not_say_is_the_reason() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), |_| forbidden());
    let tree = Tree::new();
    tree.kubeconfig(paths::BOOTSTRAP_KUBECONFIG, &server.url, &ca.pem, Some("bootstrap"));
    let root = tree.root.clone();
    let pauses = Arc::new(Pauses::default());
    let mut session = Session::new(move || identity::bootstrap(&root), None, pauses).as_onlooker();
    let mut words = Vec::new();
    csr::observe(&mut session, &|| Some(NODE.to_owned()), |word| {
        words.push(word.to_string());
        ControlFlow::Break(())
    });
    assert_eq!(
        words,
        ["cannot tell what became of the certificate request: cannot list \
          certificatesigningrequests.certificates.k8s.io: not allowed (403): the ClusterRole system:node-bootstrapper \
          grants it to the bootstrap identity"]
    );
}

#[test]
fn a_node_without_a_name_says_so() {
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), |_| list("5", &[]));
    let tree = Tree::new();
    tree.kubeconfig(paths::BOOTSTRAP_KUBECONFIG, &server.url, &ca.pem, Some("bootstrap"));
    let root = tree.root.clone();
    let mut session = Session::new(move || identity::bootstrap(&root), None, Arc::new(Pauses::default()));
    let mut words = Vec::new();
    csr::observe(&mut session, &|| None, |word| {
        words.push(word);
        ControlFlow::Break(())
    });
    assert_eq!(words, [Word::NoName]);
}
