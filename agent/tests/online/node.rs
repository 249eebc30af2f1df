//! What the agent does to its own Node: cordoned as soon as it is there, annotated, handed over.

use std::sync::{Arc, Mutex, mpsc};

use oneboot_agent::{
    api::session::Session,
    clock::Clock,
    identity,
    node::{ANNOTATION_CORDONED, Keeper},
    paths,
};
use serde_json::{Value, json};

use crate::support::{Answer, Asked, Ca, Line, NODE, Pauses, Server, Tree, list, node, not_found};

/// A server with one Node, or none yet; patches are merged into it as the API would.
struct Cluster {
    server: Server,
    tree: Tree,
    node: Arc<Mutex<Option<Value>>>,
    watch: mpsc::Sender<Line>,
}

fn cluster(existing: Option<Value>) -> Cluster {
    let node = Arc::new(Mutex::new(existing));
    let (watch, lines) = mpsc::channel();
    let lines = Mutex::new(Some(lines));
    let shared = node.clone();
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), move |asked: &Asked| {
        let mut node = shared.lock().unwrap();
        match (asked.method.as_str(), asked.target.contains('?')) {
            ("GET", true) if asked.target.contains("watch=true") => {
                lines.lock().unwrap().take().map_or(Answer::Drop, Answer::Watch)
            }
            ("GET", true) => list("1", &node.iter().cloned().collect::<Vec<_>>()),
            ("GET", false) => node.clone().map_or_else(not_found, |node| Answer::Json(200, node)),
            _ => match &mut *node {
                None => not_found(),
                Some(node) => {
                    merge(node, &serde_json::from_str(&asked.body).unwrap());
                    Answer::Json(200, node.clone())
                }
            },
        }
    });
    let tree = Tree::new();
    tree.kubeconfig(paths::KUBECONFIG, &server.url, &ca.pem, None);
    tree.store_certificate(&server.node_pair(), "kubelet-client-1.pem");
    Cluster { server, tree, node, watch }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, change) in changes {
        if change.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), change);
        }
    }
}

impl Cluster {
    fn keeper(&self, cordon: bool) -> Keeper {
        let session = || {
            let (root, clock) = (self.tree.root.clone(), Arc::new(Pauses::default()));
            let wall = clock.clone();
            Session::new(move || identity::node(&root, wall.wall_seconds()), None, clock)
        };
        Keeper::start(NODE.to_owned(), cordon, session(), session()).unwrap()
    }

    /// What the kubelet does.
    fn register(&self) {
        let registered = node("2", &json!({}), false);
        *self.node.lock().unwrap() = Some(registered.clone());
        self.watch.send(Line::Event("ADDED", registered)).unwrap();
    }

    fn patched(&self, what: &str) -> Asked {
        self.server.wait_for(|asked| asked.method == "PATCH" && asked.body.contains(what))
    }

    fn now(&self) -> Value {
        self.node.lock().unwrap().clone().unwrap()
    }
}

#[test]
fn it_is_cordoned_when_the_kubelet_registers_it_and_not_before() {
    let cluster = cluster(None);
    let keeper = cluster.keeper(true);
    keeper.say("Approved", "");
    cluster.server.wait_for(|asked| asked.target.contains("watch=true"));
    cluster.register();
    let first = cluster.server.wait_for(|asked| asked.method == "PATCH");
    assert!(first.body.contains("unschedulable"), "the cordon comes before any word: {}", first.body);
    cluster.patched("\"oneboot.dev/state\":\"Approved\"");
    assert_eq!(cluster.now()["spec"]["unschedulable"], true);
}

#[test]
fn without_an_mcd_the_node_is_done_and_schedulable_again() {
    let cluster = cluster(Some(node("2", &json!({}), false)));
    let keeper = cluster.keeper(true);
    cluster.patched("unschedulable");
    keeper.say("Settled", "");
    keeper.hand_over("rendered-worker-1", false).join().unwrap();
    let node = cluster.now();
    assert_eq!(node["spec"].get("unschedulable"), None);
    assert_eq!(
        node["metadata"]["annotations"],
        json!({
            "oneboot.dev/state": "Settled", "oneboot.dev/reason": "",
            "machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
            "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1",
            "machineconfiguration.openshift.io/state": "Done",
            "machineconfiguration.openshift.io/reason": "",
        })
    );
}

#[test]
fn with_an_mcd_its_annotations_and_the_cordon_are_left_to_it() {
    let cluster = cluster(Some(node("2", &json!({}), false)));
    let keeper = cluster.keeper(true);
    cluster.patched("unschedulable");
    keeper.say("Settled", "");
    keeper.hand_over("rendered-worker-1", true).join().unwrap();
    let node = cluster.now();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(
        node["metadata"]["annotations"],
        json!({"oneboot.dev/state": "Settled", "oneboot.dev/reason": "", ANNOTATION_CORDONED: "true"})
    );
}

#[test]
fn an_administrators_cordon_is_not_lifted() {
    let cluster = cluster(Some(node("2", &json!({}), true)));
    let keeper = cluster.keeper(true);
    keeper.say("Settled", "");
    keeper.hand_over("rendered-worker-1", false).join().unwrap();
    assert_eq!(cluster.now()["spec"]["unschedulable"], true);
    assert_eq!(cluster.now()["metadata"]["annotations"].get(ANNOTATION_CORDONED), None);
}

#[test]
fn told_not_to_cordon_it_does_not() {
    let cluster = cluster(Some(node("2", &json!({}), false)));
    let keeper = cluster.keeper(false);
    keeper.say("Settled", "");
    keeper.hand_over("rendered-worker-1", false).join().unwrap();
    let asked: Vec<_> =
        cluster.server.asked.try_iter().filter(|asked| asked.body.contains("unschedulable")).collect();
    assert_eq!(asked, []);
}

#[test]
fn a_node_that_registers_after_it_has_settled_is_never_cordoned() {
    let cluster = cluster(None);
    let keeper = cluster.keeper(true);
    keeper.say("Settled", "");
    let done = keeper.hand_over("rendered-worker-1", false);
    cluster.server.wait_for(|asked| asked.target.contains("watch=true"));
    cluster.register();
    done.join().unwrap();
    assert_eq!(cluster.now()["spec"]["unschedulable"], false);
    assert_eq!(cluster.now()["metadata"]["annotations"]["oneboot.dev/state"], "Settled");
}
