//! What a kill or an API that is gone must not cost: the hand-over of a settled node, and a kubelet that may start.

use oneboot_agent::{
    identity, paths,
    record::{Enrolling, Record},
    state::State,
};
use serde_json::{Value, json};

use crate::{
    process::{Service, heard},
    run::{Scene, WANTED, config_path, registered, rendered},
    support::{Asked, NODE},
};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CONFIG: &str = "/etc/oneboot/agent.d/50-test.toml";

fn scene(settings: &str) -> Scene {
    let config = rendered(WANTED, "/etc/motd", "welcome");
    let scene = Scene::new(&[(config_path(WANTED), Some(config)), registered()]).with_seed(WANTED);
    scene.tree.write(CONFIG, settings);
    scene
}

/// A request with that status, filed under whatever is sent, and found again by its name.
fn files(scene: &Scene, status: &Value) {
    let request = json!({"metadata": {"name": "csr-7", "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}, "status": status});
    let mut objects = scene.objects.lock().unwrap();
    objects.insert(REQUESTS.to_owned(), Some(request.clone()));
    objects.insert(format!("{REQUESTS}/csr-7"), Some(request));
}

fn asked(scene: &Scene, method: &str) -> Vec<Asked> {
    scene.server.asked.try_iter().filter(|asked| asked.method == method).collect()
}

/// The kubelet's kubeconfig with a server that is not there: the kernel gives nobody port 1. Gives the right one.
fn take_api_away(scene: &Scene) -> String {
    let kubeconfig = std::fs::read_to_string(scene.tree.path(paths::KUBECONFIG)).unwrap();
    scene.tree.write(paths::KUBECONFIG, kubeconfig.replace(&scene.server.url, "https://127.0.0.1:1"));
    kubeconfig
}

/// Runs to the end. What it says is read: a full socket would hold it up.
fn settle(scene: &Scene) {
    let (mut service, socket) = Service::start(scene);
    heard(&socket, "STATUS=Settled");
    assert!(service.0.wait().unwrap().success());
}

/// A node that a kill has caught between the state and the marker.
fn killed_before_the_marker() -> Scene {
    let scene = scene("mcd = \"absent\"\n");
    scene.approve();
    settle(&scene);
    std::fs::rename(
        scene.tree.path(paths::SETTLED),
        scene.tree.path(&format!("{}.oneboot-new", paths::SETTLED)),
    )
    .unwrap();
    assert!(!asked(&scene, "PATCH").is_empty());
    scene
}

fn assert_handed_over(scene: &Scene) {
    assert_eq!(
        std::fs::read_to_string(scene.tree.path(paths::SETTLED)).unwrap(),
        format!("{WANTED}\n"),
        "the marker is there"
    );
    let patches = asked(scene, "PATCH");
    assert!(patches.iter().any(|patch| patch.body.contains("\"Done\"")), "{patches:?}");
    assert!(patches.iter().all(|patch| !patch.body.contains("\"unschedulable\":true")), "{patches:?}");
    let left = std::fs::read_dir(scene.tree.path(paths::STATE_DIR)).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.ends_with(".oneboot-new")), "{left:?}");
}

#[test]
fn killed_before_the_marker_the_next_start_hands_over_without_another_cordon() {
    let scene = killed_before_the_marker();
    settle(&scene);
    assert_handed_over(&scene);
}

#[test]
fn a_hand_over_that_the_api_was_gone_for_is_finished_by_the_next_start() {
    let scene = killed_before_the_marker();
    let kubeconfig = take_api_away(&scene);
    let (service, socket) = Service::start(&scene);
    heard(&socket, "STATUS=Settled");
    drop(service);
    assert!(!scene.tree.path(paths::SETTLED).exists(), "it is not handed over");
    scene.tree.write(paths::KUBECONFIG, kubeconfig);
    settle(&scene);
    assert_handed_over(&scene);
}

#[test]
fn a_denied_request_lets_the_kubelet_start_and_no_restart_files_another() {
    let scene = scene("join = \"enroll\"\n");
    let denied = json!({"type": "Denied", "status": "True", "reason": "ByHand", "message": "no"});
    files(&scene, &json!({"conditions": [denied]}));
    let (service, socket) = Service::start(&scene);
    let said = heard(&socket, "READY=1");
    assert!(said.iter().any(|line| line.contains("csr-7 was denied: ByHand: no")), "{said:?}");
    drop(service);
    let (mut service, socket) = Service::start(&scene);
    assert_eq!(heard(&socket, "READY=1"), ["WATCHDOG_USEC=0", "STATUS=Waiting\nREADY=1"], "at once");
    scene.approve();
    heard(&socket, "STATUS=Settled");
    assert!(service.0.wait().unwrap().success());
    assert_eq!(asked(&scene, "POST").len(), 1);
}

#[test]
fn a_request_that_cannot_be_filed_in_time_lets_the_kubelet_start() {
    let scene = scene("join = \"enroll\"\nenroll_timeout = \"1s\"\n");
    let (mut service, socket) = Service::start(&scene);
    let said = heard(&socket, "READY=1");
    assert!(said.len() > 2, "not before it has asked: {said:?}");
    assert!(!asked(&scene, "POST").is_empty());
    scene.approve();
    heard(&socket, "STATUS=Settled");
    assert!(service.0.wait().unwrap().success());
}

#[test]
fn an_api_that_is_gone_after_approval_holds_the_kubelet_back_for_the_timeout_and_a_restart_no_longer() {
    let scene = scene("join = \"enroll\"\nenroll_timeout = \"1s\"\n");
    scene.approve();
    let kubeconfig = take_api_away(&scene);
    let (service, socket) = Service::start(&scene);
    let said = heard(&socket, "READY=1");
    let last = said.last().unwrap();
    assert!(last.starts_with("STATUS=Approved: cannot get") && last.contains("cannot be reached"), "{last}");
    drop(service);
    let (mut service, socket) = Service::start(&scene);
    assert_eq!(heard(&socket, "READY=1"), ["WATCHDOG_USEC=0", "STATUS=Waiting\nREADY=1"], "at once");
    scene.tree.write(paths::KUBECONFIG, kubeconfig);
    heard(&socket, "STATUS=Settled");
    assert!(service.0.wait().unwrap().success());
    assert_eq!(asked(&scene, "POST").len(), 0, "it had its certificate");
}

#[test]
fn a_service_that_is_killed_again_and_again_files_three_requests_and_leaves_it_to_the_kubelet() {
    let scene = scene("join = \"enroll\"\n");
    files(&scene, &json!({}));
    for _ in 0..3 {
        let (_service, socket) = Service::start(&scene);
        let said = heard(&socket, "csr-7 is pending");
        assert!(said.iter().all(|line| !line.contains("READY")), "{said:?}");
    }
    let (_service, socket) = Service::start(&scene);
    let said = heard(&socket, "READY=1");
    assert!(said.last().unwrap().contains("3 certificate requests were filed"), "{said:?}");
    assert_eq!(asked(&scene, "POST").len(), 3);
}

#[test]
fn a_certificate_for_another_name_is_discarded_by_a_restart_before_the_kubelet_starts() {
    let scene = scene("join = \"enroll\"\n");
    scene.approve();
    let boot_id = std::fs::read_to_string(paths::BOOT_ID).unwrap().trim().to_owned();
    let mut record = Record::new(boot_id.clone(), "2026-01-01T00:00:00Z".to_owned());
    (record.state, record.node, record.enrolled) = (State::Applied, Some(NODE.to_owned()), true);
    record.enrolling = Some(Enrolling { boot_id, since_us: 0, requests: 1, over: true });
    record.write(&scene.tree.root).unwrap();
    scene.tree.write("/etc/hostname", "node-b");
    let (_service, socket) = Service::start(&scene);
    heard(&socket, "READY=1");
    assert!(scene.tree.path(paths::KUBELET_CLIENT).symlink_metadata().is_err(), "it is gone by then");
    assert!(!scene.tree.path(paths::KUBECONFIG).exists());
    let now = oneboot_firstboot::clock::wall_seconds();
    assert!(identity::node_pair(&scene.tree.root, now).unwrap().is_none());
    assert_eq!(Record::read(&scene.tree.root).unwrap().unwrap().node.as_deref(), Some("node-b"));
}
