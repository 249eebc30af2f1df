//! The whole service against a real API: a node's way to settled, and everything that must not get it there.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use oneboot_agent::{
    config::Settings,
    paths,
    plan::Disruption,
    record::Record,
    run::{Ending, Error, Given, run},
    status::Status,
    units::NoUnits,
};
use serde_json::{Value, json};

use crate::support::{
    Answer, Asked, Ca, Line, NODE, Pair, Pauses, Server, Tree, forbidden, list, node, not_found,
};

pub(crate) const WANTED: &str = "rendered-worker-00000000000000000000000000000001";
pub(crate) const OTHER: &str = "rendered-worker-00000000000000000000000000000002";

/// A MachineConfig with one file.
pub(crate) fn rendered(name: &str, path: &str, content: &str) -> Value {
    machine_config(
        name,
        &json!({
            "ignition": {"version": "3.5.0"},
            "storage": {"files": [{
                "path": path, "mode": 0o644, "overwrite": true,
                "contents": {"source": format!("data:;base64,{}", STANDARD.encode(content))},
            }]},
        }),
    )
}

pub(crate) fn machine_config(name: &str, config: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": {"config": config},
    })
}

pub(crate) fn pool(spec: &str, status: &str, updated: u32) -> Value {
    json!({
        "metadata": {"name": "worker", "resourceVersion": "30"},
        "spec": {"configuration": {"name": spec}},
        "status": {"configuration": {"name": status}, "updatedMachineCount": updated},
    })
}

/// What the cluster answers: paths without query to objects; `None` is a 403.
pub(crate) type Objects = BTreeMap<String, Option<Value>>;

/// A cluster and a node of it, before approval.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) tree: Tree,
    pub(crate) objects: Arc<Mutex<Objects>>,
    /// Watches that the agent has opened, by the kind they watch.
    watches: Receiver<(String, mpsc::Sender<Line>)>,
    /// Watches that no test speaks on: dropped, they would end.
    silent: RefCell<Vec<mpsc::Sender<Line>>>,
    certificate: Pair,
}

pub(crate) fn config_path(name: &str) -> String {
    format!("/apis/machineconfiguration.openshift.io/v1/machineconfigs/{name}")
}

/// The Node as the kubelet has just registered it.
pub(crate) fn registered() -> (String, Option<Value>) {
    (format!("/api/v1/nodes/{NODE}"), Some(node("2", &json!({}), false)))
}

const POOL: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/worker";

impl Scene {
    pub(crate) fn new(objects: &[(String, Option<Value>)]) -> Self {
        let objects = Arc::new(Mutex::new(objects.iter().cloned().collect::<Objects>()));
        let (opened, watches) = mpsc::channel();
        let shared = objects.clone();
        let ca = Ca::new("api-ca");
        let server = Server::start(&ca, Ca::new("client-ca"), move |asked: &Asked| {
            let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
            if query.contains("watch=true") {
                let (send, receive) = mpsc::channel();
                let _ = opened.send((path.rsplit('/').next().unwrap().to_owned(), send));
                return Answer::Watch(receive);
            }
            let objects = shared.lock().unwrap();
            if !query.is_empty() {
                let name = query.split("metadata.name%3D").nth(1).unwrap_or_default();
                let object = objects.get(&format!("{path}/{name}")).cloned().flatten();
                return list("20", &object.into_iter().collect::<Vec<_>>());
            }
            match objects.get(path) {
                None => not_found(),
                Some(None) => forbidden(),
                Some(Some(object)) => Answer::Json(200, object.clone()),
            }
        });
        let tree = Tree::new();
        tree.kubeconfig(paths::BOOTSTRAP_KUBECONFIG, &server.url, &ca.pem, Some("bootstrap-token"));
        tree.kubeconfig(paths::KUBECONFIG, &server.url, &ca.pem, None);
        tree.write("/etc/hostname", NODE);
        let certificate = server.node_pair();
        Self { server, tree, objects, watches, silent: RefCell::default(), certificate }
    }

    pub(crate) fn with_seed(self, config: &str) -> Self {
        let prefix = "machineconfiguration.openshift.io";
        let seed = json!({
            format!("{prefix}/currentConfig"): config, format!("{prefix}/desiredConfig"): config,
            format!("{prefix}/state"): "Done",
        });
        self.tree.write(paths::NODE_ANNOTATIONS, seed.to_string());
        self
    }

    /// Starts the service; its plan goes to the returned buffer.
    fn start(&self, settings: Settings) -> JoinHandle<(Result<Ending, Error>, String)> {
        let root = self.tree.root.clone();
        thread::spawn(move || {
            let mut out = Vec::new();
            let ending = run(Given {
                root,
                settings,
                clock: Arc::new(Pauses::default()),
                units: &NoUnits,
                cheapest_reboot: Disruption::SoftReboot,
                out: &mut out,
                boot: oneboot_agent::reboot::Boot { id: "boot-a".to_owned(), soft_reboots: Some(0) },
                systemctl: "false".into(), // nothing on a tree that is not running may ask for a reboot
            });
            (ending, String::from_utf8(out).unwrap())
        })
    }

    pub(crate) fn approve(&self) {
        self.tree.store_certificate(&self.certificate, "kubelet-client-1.pem");
    }

    pub(crate) fn status(&self) -> Status {
        Status::read(&self.tree.root).unwrap().expect("the agent has said something")
    }

    /// The next watch of that kind: the agent has nothing else to do now.
    pub(crate) fn watch(&self, kind: &str) -> mpsc::Sender<Line> {
        loop {
            let (watched, lines) =
                self.watches.recv_timeout(std::time::Duration::from_secs(60)).expect("it watches");
            if watched == kind {
                return lines;
            }
            self.silent.borrow_mut().push(lines);
        }
    }

    /// Everything in the tree that is not the agent's own, with content: what a refusal must leave alone.
    pub(crate) fn rest(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        collect(self.tree.dir.path(), &mut found);
        let own: Vec<_> =
            [paths::STATE_DIR, paths::RUN_DIR].iter().map(|path| self.tree.path(path)).collect();
        found.retain(|path, _| {
            !own.iter().any(|own| path.starts_with(own))
                && !path.starts_with(self.tree.path("/var/lib/kubelet"))
        });
        found
    }
}

fn collect(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            collect(&path, found);
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
        }
    }
}

pub(crate) fn settled(ending: Result<Ending, Error>) {
    assert_eq!(ending.expect("it ends well"), Ending::Settled);
}

#[test]
fn from_approval_to_settled_without_a_reboot() {
    let scene =
        Scene::new(&[(config_path(WANTED), Some(rendered(WANTED, "/etc/motd", "welcome"))), registered()])
            .with_seed(WANTED);
    let service = scene.start(Settings::default());
    // The request's list is empty: that is what it says while it waits.
    let _requests = scene.watch("certificatesigningrequests");
    assert_eq!(scene.status().state.to_string(), "Waiting");
    scene.approve();
    let (ending, plan) = service.join().unwrap();
    settled(ending);
    assert!(plan.contains("/etc/motd"), "the plan is printed: {plan}");

    assert_eq!(std::fs::read(scene.tree.path("/etc/motd")).unwrap(), b"welcome");
    let current: Value =
        serde_json::from_slice(&std::fs::read(scene.tree.path(paths::CURRENT_CONFIG)).unwrap()).unwrap();
    assert_eq!(current["metadata"]["name"], WANTED);
    let status = scene.status();
    assert_eq!((status.state.to_string(), status.reboots_taken), ("Settled".to_owned(), 0));
    assert_eq!(status.applied.as_deref(), Some(WANTED));
    let record = Record::read(&scene.tree.root).unwrap().unwrap();
    assert!(record.files_written > 0);
    let way: Vec<_> = record.history.iter().map(|entry| entry.state.to_string()).collect();
    assert_eq!(way, ["Waiting", "Approved", "Pulled", "Planned", "Applied", "Settled"]);
    assert!(scene.tree.path(paths::SETTLED).exists());
    let asked: Vec<_> =
        scene.server.asked.try_iter().filter(|asked| asked.target == config_path(WANTED)).collect();
    assert!(!asked.is_empty());
    for asked in asked {
        assert_eq!(
            asked.user().as_deref(),
            Some("system:node:node-a"),
            "pulled with the node's own certificate"
        );
        assert_eq!(asked.authorization, None);
    }

    // A settled agent that is started again asks nobody anything and touches nothing.
    let before = scene.rest();
    settled(scene.start(Settings::default()).join().unwrap().0);
    assert_eq!(scene.server.asked.try_iter().count(), 0);
    assert_eq!(scene.rest(), before);
}

/// Runs until the agent has given up on what it pulled, and returns the reason. Nothing may have changed.
fn blocked(scene: &Scene) -> String {
    blocked_with(scene, Settings::default())
}

fn blocked_with(scene: &Scene, settings: Settings) -> String {
    let before = scene.rest();
    let _service = scene.start(settings);
    scene.approve();
    let _keeper = scene.watch("nodes");
    let _change = scene.watch("nodes"); // for another desired configuration: the agent has nothing else to do now
    assert_eq!(scene.rest(), before, "nothing was changed");
    assert!(!scene.tree.path(paths::SETTLED).exists());
    let status = scene.status();
    assert_eq!(status.state.to_string(), "Blocked");
    status.reason.expect("a blocked node says why")
}

#[test]
fn a_configuration_that_is_not_ignition_blocks_and_changes_nothing() {
    let config = machine_config(WANTED, &json!({"hello": "world"}));
    let reason = blocked(&Scene::new(&[(config_path(WANTED), Some(config))]).with_seed(WANTED));
    assert!(reason.to_lowercase().contains("ignition"), "{reason}");
}

#[test]
fn a_path_that_climbs_out_blocks_and_changes_nothing() {
    let config = rendered(WANTED, "/etc/../../escaped", "x");
    let reason = blocked(&Scene::new(&[(config_path(WANTED), Some(config))]).with_seed(WANTED));
    assert!(reason.contains(".."), "{reason}");
}

#[test]
fn another_configuration_than_the_one_asked_for_blocks_and_changes_nothing() {
    let config = rendered(OTHER, "/etc/motd", "x");
    let reason = blocked(&Scene::new(&[(config_path(WANTED), Some(config))]).with_seed(WANTED));
    assert_eq!(reason, format!("{WANTED}: the API sent {OTHER:?} instead"));
}

#[test]
fn a_plan_above_the_cap_names_the_steps_that_cost_it_and_changes_nothing() {
    let config = rendered(WANTED, "/opt/nobody-knows", "x");
    let scene = Scene::new(&[(config_path(WANTED), Some(config))]).with_seed(WANTED);
    let mut settings = Settings::default();
    settings.max_disruption.value = Some(Disruption::Restart);
    let reason = blocked_with(&scene, settings);
    assert_eq!(
        reason,
        "the plan needs soft-reboot and at most restart is allowed: /opt/nobody-knows (soft-reboot); \
         to allow it, set max_disruption = \"soft-reboot\""
    );
}

#[test]
fn a_seed_that_contradicts_itself_blocks_and_changes_nothing() {
    let scene = Scene::new(&[]);
    let prefix = "machineconfiguration.openshift.io";
    let seed = json!({format!("{prefix}/currentConfig"): OTHER, format!("{prefix}/desiredConfig"): WANTED});
    scene.tree.write(paths::NODE_ANNOTATIONS, seed.to_string());
    let reason = blocked(&scene);
    assert!(reason.contains("MCD expects one name in both"), "{reason}");
}

#[test]
fn what_the_node_may_not_read_is_named_and_read_as_soon_as_it_may() {
    let scene = Scene::new(&[(config_path(WANTED), None), registered()]).with_seed(WANTED);
    let before = scene.rest();
    let service = scene.start(Settings::default());
    scene.approve();
    // Pauses take no time here, so what lags for longer than bindings do is reached at once.
    let reason = loop {
        scene.server.wait_for(|asked| asked.target == config_path(WANTED));
        let status = scene.status();
        if status.state.to_string() == "Blocked" {
            break status.reason.unwrap();
        }
    };
    assert!(
        reason.starts_with(&format!("cannot get machineconfigs.machineconfiguration.openshift.io/{WANTED}")),
        "{reason}"
    );
    assert!(reason.contains("agent/manifests/pool.yaml"), "{reason}");
    assert_eq!(scene.rest(), before);
    let wanted = rendered(WANTED, "/etc/motd", "welcome");
    scene.objects.lock().unwrap().insert(config_path(WANTED), Some(wanted));
    settled(service.join().unwrap().0);
}

#[test]
fn a_blocked_node_goes_on_when_its_pool_does() {
    let bad = machine_config(WANTED, &json!({"hello": "world"}));
    let scene = Scene::new(&[
        (config_path(WANTED), Some(bad)),
        (config_path(OTHER), Some(rendered(OTHER, "/etc/motd", "mended"))),
        (POOL.to_owned(), Some(pool(WANTED, WANTED, 0))),
        registered(),
    ])
    .with_seed(WANTED);
    let service = scene.start(Settings::default());
    scene.approve();
    let watch = scene.watch("machineconfigpools");
    assert_eq!(scene.status().state.to_string(), "Blocked");
    let moved_on = pool(OTHER, OTHER, 0);
    scene.objects.lock().unwrap().insert(POOL.to_owned(), Some(moved_on.clone()));
    watch.send(Line::Event("MODIFIED", moved_on)).unwrap();
    settled(service.join().unwrap().0);
    assert_eq!(std::fs::read(scene.tree.path("/etc/motd")).unwrap(), b"mended");
    let seed = std::fs::read_to_string(scene.tree.path(paths::NODE_ANNOTATIONS)).unwrap();
    assert!(seed.contains(OTHER) && !seed.contains(WANTED), "the seed follows the pool: {seed}");
}

#[test]
fn without_a_seed_the_pools_configuration_is_taken() {
    let scene = Scene::new(&[
        (config_path(WANTED), Some(rendered(WANTED, "/etc/motd", "welcome"))),
        (POOL.to_owned(), Some(pool(OTHER, WANTED, 0))),
        registered(),
    ]);
    scene.tree.write(paths::FIRSTBOOT_REPORT, r#"{"format": 1, "pool": "worker"}"#);
    let service = scene.start(Settings::default());
    scene.approve();
    settled(service.join().unwrap().0);
    assert_eq!(scene.status().applied.as_deref(), Some(WANTED));
}

#[test]
fn the_api_gone_in_the_middle_is_waited_for() {
    let scene =
        Scene::new(&[(config_path(WANTED), Some(rendered(WANTED, "/etc/motd", "welcome"))), registered()])
            .with_seed(WANTED);
    let kubeconfig = std::fs::read_to_string(scene.tree.path(paths::KUBECONFIG)).unwrap();
    // The API as it looks while it is down. A port that was free a moment ago may be another test's by now; the kernel
    // gives nobody this one.
    let gone = 1;
    scene.tree.write(
        paths::KUBECONFIG,
        kubeconfig.replace(&scene.server.url, &format!("https://127.0.0.1:{gone}")),
    );
    let service = scene.start(Settings::default());
    scene.approve();
    scene.tree.wait_until(paths::RUN_STATUS, || {
        Status::read(&scene.tree.root)
            .ok()
            .flatten()
            .and_then(|s| s.reason)
            .is_some_and(|r| r.contains("cannot be reached"))
    });
    assert_eq!(scene.status().state.to_string(), "Approved");
    scene.tree.write(paths::KUBECONFIG, kubeconfig);
    settled(service.join().unwrap().0);
}
