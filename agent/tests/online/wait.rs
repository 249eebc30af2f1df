//! The approval signal over real directories and real inotify: found whatever exists, taken only when it is good.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use crate::support::{Ca, NODE, Tree};
use oneboot_agent::{
    clock::Clock,
    identity::{self, PairError},
    paths, wait,
};

/// Far beyond anything a passing test needs: it only keeps a failing one from hanging.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A wall clock that a test sets.
struct Wall(AtomicU64);

impl Clock for Wall {
    fn boot_microseconds(&self) -> u64 {
        0
    }
    fn wall_seconds(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn pause(&self, _: Duration) {
        panic!("waiting for the certificate takes no pauses");
    }
}

/// What a waiting thread has said.
#[derive(Debug)]
enum Said {
    Unusable(PairError),
    Certified(String),
}

fn start(tree: &Tree, now: u64) -> Receiver<Said> {
    let (say, said) = mpsc::channel();
    let root = tree.root.clone();
    let clock = Arc::new(Wall(AtomicU64::new(now)));
    thread::spawn(move || {
        let pair =
            wait::certificate(&root, &*clock, |why| say.send(Said::Unusable(why.clone())).unwrap()).unwrap();
        say.send(Said::Certified(pair.node)).unwrap();
    });
    said
}

fn certified(said: &Receiver<Said>) {
    match said.recv_timeout(TOO_LONG).expect("the certificate is noticed") {
        Said::Certified(node) => assert_eq!(node, NODE),
        Said::Unusable(why) => panic!("{why}"),
    }
}

fn unusable(said: &Receiver<Said>) -> PairError {
    match said.recv_timeout(TOO_LONG).expect("the file is noticed") {
        Said::Unusable(why) => why,
        Said::Certified(node) => panic!("taken for {node}"),
    }
}

const NOW: u64 = 1_800_000_000; // 2027

#[test]
fn a_certificate_that_is_there_already_needs_no_event() {
    let tree = Tree::new();
    tree.store_certificate(&Ca::new("ca").node(NODE), "kubelet-client-1.pem");
    certified(&start(&tree, NOW));
}

#[test]
fn it_is_found_from_whatever_exists_at_the_start() {
    for existing in ["/", "/var", "/var/lib", "/var/lib/kubelet", "/var/lib/kubelet/pki"] {
        let tree = Tree::new();
        std::fs::create_dir_all(tree.path(existing)).unwrap();
        let said = start(&tree, NOW);
        // The kubeconfig comes first and proves nothing.
        tree.kubeconfig(paths::KUBECONFIG, "https://127.0.0.1:1", "", None);
        tree.store_certificate(&Ca::new("ca").node(NODE), "kubelet-client-1.pem");
        certified(&said);
    }
}

#[test]
fn a_directory_that_goes_away_and_comes_back_is_followed() {
    let tree = Tree::new();
    let ca = Ca::new("ca");
    tree.store_certificate(&ca.client("system:node:node-a", Some("system:nodes"), (2020, 2021)), "old.pem");
    let said = start(&tree, NOW);
    assert!(matches!(unusable(&said), PairError::Expired { .. }));
    std::fs::rename(tree.path("/var/lib/kubelet"), tree.path("/var/lib/kubelet.old")).unwrap();
    tree.store_certificate(&ca.node(NODE), "kubelet-client-2.pem");
    certified(&said);
}

#[test]
fn a_rotation_with_its_gap_ends_with_the_new_certificate() {
    let tree = Tree::new();
    let ca = Ca::new("ca");
    tree.store_certificate(&ca.client("system:node:node-a", Some("system:nodes"), (2020, 2021)), "old.pem");
    let said = start(&tree, NOW);
    assert!(matches!(unusable(&said), PairError::Expired { .. }));
    tree.store_certificate(&ca.node(NODE), "new.pem");
    certified(&said);
}

/// What the file is, what is in it, and what it must be told apart as.
type Case = (&'static str, String, fn(&PairError) -> bool);

#[test]
fn what_is_there_and_of_no_use_is_told_and_waited_out() {
    let ca = Ca::new("ca");
    let good = ca.node(NODE);
    let stranger = ca.node("node-b");
    let key_of = |pair: &crate::support::Pair| pair.key.clone();
    let cases: Vec<Case> = vec![
        ("empty", String::new(), |e| *e == PairError::NoCertificate),
        ("no key", good.certificate.clone(), |e| *e == PairError::NoKey),
        ("another's key", format!("{}{}", good.certificate, key_of(&stranger)), |e| {
            *e == PairError::Mismatch
        }),
        (
            "a user",
            ca.client("alice", Some("system:nodes"), (2020, 2090)).file(),
            |e| matches!(e, PairError::NotANode { user, .. } if user == "alice"),
        ),
        (
            "no group",
            ca.client("system:node:node-a", None, (2020, 2090)).file(),
            |e| matches!(e, PairError::NotANode { groups, .. } if groups.is_empty()),
        ),
        ("no name", ca.client("system:node:", Some("system:nodes"), (2020, 2090)).file(), |e| {
            matches!(e, PairError::NotANode { .. })
        }),
        (
            "another group",
            ca.client("system:node:node-a", Some("system:masters"), (2020, 2090)).file(),
            |e| matches!(e, PairError::NotANode { groups, .. } if groups == &["system:masters"]),
        ),
        (
            "expired",
            ca.client("system:node:node-a", Some("system:nodes"), (2020, 2021)).file(),
            |e| matches!(e, PairError::Expired { until, .. } if until.starts_with("2021-01-01")),
        ),
        (
            "not yet",
            ca.client("system:node:node-a", Some("system:nodes"), (2080, 2090)).file(),
            |e| matches!(e, PairError::NotYet { from, .. } if from.starts_with("2080-01-01")),
        ),
    ];
    for (what, file, expected) in cases {
        let tree = Tree::new();
        tree.write(paths::KUBELET_CLIENT, file);
        let said = start(&tree, NOW);
        let why = unusable(&said);
        assert!(expected(&why), "{what}: {why}");
        std::fs::remove_file(tree.path(paths::KUBELET_CLIENT)).unwrap();
        tree.store_certificate(&good, "kubelet-client-2.pem");
        certified(&said);
    }
}

#[test]
fn a_link_out_of_the_tree_is_not_followed() {
    let tree = Tree::new();
    let outside = tempfile::tempdir().unwrap();
    let good = Ca::new("ca").node(NODE);
    std::fs::write(outside.path().join("pair.pem"), good.file()).unwrap();
    std::fs::create_dir_all(tree.path("/var/lib/kubelet/pki")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("pair.pem"), tree.path(paths::KUBELET_CLIENT)).unwrap();
    assert!(identity::node_pair(&tree.root, NOW).unwrap().is_none());
    // The same link, meant inside the tree, is the node's own.
    tree.write(outside.path().join("pair.pem").to_str().unwrap(), good.file());
    assert!(identity::node_pair(&tree.root, NOW).unwrap().is_some());
}
