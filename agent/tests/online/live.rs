//! The service on a running system: a service manager that fails on demand, the real API, and a stand-in for `systemctl`
//! that writes down which reboot it was asked for.

use std::{
    collections::BTreeSet,
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use oneboot_agent::{
    config::Settings,
    paths,
    plan::Disruption,
    reboot::Boot,
    record::Record,
    root::Root,
    run::{Ending, Error, Given, run},
    state::State,
    status::Status,
    units::{self, Job, Units},
};
use serde_json::json;

use crate::{
    run::{Scene, WANTED, config_path, machine_config, registered, rendered},
    support::{NODE, Pauses, node},
};

const UNIT: &str = "payroll.service";
const OLD: &str = "[Service]\nExecStart=/usr/bin/payroll --old\n";
const NEW: &str = "[Service]\nExecStart=/usr/bin/payroll --new\n";

/// A service manager in which everything runs, until its job fails.
#[derive(Default)]
struct Systemd {
    asked: Mutex<Vec<String>>,
    fails: bool,
    /// Done when the agent looks at what is active, which it does right before it applies.
    on_look: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Units for Systemd {
    fn daemon_reload(&self) -> Result<(), units::Error> {
        self.asked.lock().unwrap().push("daemon-reload".to_owned());
        Ok(())
    }
    fn job(&self, job: Job, unit: &str) -> Result<(), units::Error> {
        let first = !self.asked.lock().unwrap().iter().any(|asked| asked.ends_with(unit));
        self.asked.lock().unwrap().push(format!("{} {unit}", job.verb()));
        if self.fails && first {
            return Err(units::Error::Job {
                verb: job.verb(),
                unit: unit.to_owned(),
                result: "failed".into(),
            });
        }
        Ok(())
    }
    fn is_active(&self, _unit: &str) -> Result<bool, units::Error> {
        Ok(true)
    }
    fn all_in(&self, state: &'static str) -> Result<BTreeSet<String>, units::Error> {
        if let (Some(hook), "active") = (&self.on_look, state) {
            hook();
        }
        Ok(BTreeSet::new())
    }
}

/// A configuration that changes a running service's unit.
fn with_unit() -> serde_json::Value {
    machine_config(
        WANTED,
        &json!({
            "ignition": {"version": "3.5.0"},
            "systemd": {"units": [{"name": UNIT, "contents": NEW}]},
        }),
    )
}

/// An approved node with that service.
fn scene(config: serde_json::Value) -> Scene {
    let scene = Scene::new(&[(config_path(WANTED), Some(config)), registered()]).with_seed(WANTED);
    scene.tree.write(&format!("{}/{UNIT}", paths::UNITS), OLD);
    let systemctl = scene.tree.path("/systemctl");
    let asked = scene.tree.path("/asked");
    std::fs::write(&systemctl, format!("#!/bin/sh\necho \"$@\" >> '{}'\n", asked.display())).unwrap();
    std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755)).unwrap();
    scene.approve();
    scene
}

fn settings(allowed: Option<Disruption>) -> Settings {
    let mut settings = Settings::default();
    settings.max_disruption.value = allowed;
    settings
}

fn boot(id: &str, soft_reboots: u32) -> Boot {
    Boot { id: id.to_owned(), soft_reboots: Some(soft_reboots) }
}

/// Starts the service on the tree as if it were the system's.
fn start(
    scene: &Scene,
    units: &Arc<Systemd>,
    settings: Settings,
    boot: Boot,
) -> JoinHandle<Result<Ending, Error>> {
    let root = Arc::new(Root::open(scene.tree.dir.path()).unwrap().as_running());
    let (units, systemctl) = (units.clone(), scene.tree.path("/systemctl"));
    thread::spawn(move || {
        run(Given {
            root,
            settings,
            clock: Arc::new(Pauses::default()),
            units: &*units,
            cheapest_reboot: Disruption::SoftReboot,
            out: &mut Vec::new(),
            boot,
            systemctl,
        })
    })
}

/// The same, to its end.
fn go(scene: &Scene, units: &Arc<Systemd>, allowed: Option<Disruption>, boot: Boot) -> Ending {
    start(scene, units, settings(allowed), boot).join().unwrap().unwrap()
}

/// The same, for a run that waits for another configuration in the end; gives the reason.
fn stuck(scene: &Scene, units: &Arc<Systemd>, allowed: Option<Disruption>, state: &str) -> String {
    let _service = start(scene, units, settings(allowed), boot("a", 0));
    let status = || Status::read(&scene.tree.root).ok().flatten();
    scene.tree.wait_until(paths::RUN_STATUS, || status().is_some_and(|s| s.state.to_string() == state));
    scene.status().reason.expect("it says why")
}

fn works() -> Arc<Systemd> {
    Arc::default()
}

fn fails() -> Arc<Systemd> {
    Arc::new(Systemd { fails: true, ..Systemd::default() })
}

fn unit_text(scene: &Scene) -> String {
    std::fs::read_to_string(scene.tree.path(&format!("{}/{UNIT}", paths::UNITS))).unwrap()
}

fn reboots(scene: &Scene) -> Vec<String> {
    let asked = std::fs::read_to_string(scene.tree.path("/asked")).unwrap_or_default();
    asked.lines().map(str::to_owned).collect()
}

fn record(scene: &Scene) -> Record {
    Record::read(&scene.tree.root).unwrap().unwrap()
}

#[test]
fn a_changed_unit_of_a_running_service_is_restarted_and_nothing_reboots() {
    let (scene, systemd) = (scene(with_unit()), works());
    assert_eq!(go(&scene, &systemd, None, boot("a", 0)), Ending::Settled);
    assert_eq!(unit_text(&scene), NEW);
    assert_eq!(*systemd.asked.lock().unwrap(), ["daemon-reload", &format!("try-restart {UNIT}")]);
    assert_eq!(reboots(&scene), [""; 0]);
    let record = record(&scene);
    assert_eq!((record.state, record.reboots_taken, record.reboot), (State::Settled, 0, None));
}

#[test]
fn a_service_that_does_not_come_back_is_taken_back_and_then_finished_by_the_one_reboot() {
    let (scene, systemd) = (scene(with_unit()), fails());
    assert_eq!(go(&scene, &systemd, None, boot("a", 0)), Ending::Rebooting(Disruption::SoftReboot));
    let back = ["daemon-reload".to_owned(), format!("restart {UNIT}")];
    let asked = systemd.asked.lock().unwrap().clone();
    assert_eq!(asked[2..], back, "the old service runs again, and the second attempt asks for nothing");
    assert_eq!(unit_text(&scene), NEW);
    assert_eq!(reboots(&scene), ["soft-reboot"]);
    let reason = scene.status().reason.unwrap();
    let expected = format!("soft-reboot for {WANTED}, because try-restart of {UNIT} ended with \"failed\"");
    assert_eq!(reason, expected);
    assert_eq!(record(&scene).reboots_taken, 1);

    // The agent is back before anything has gone down: the same reboot, not another one.
    assert_eq!(go(&scene, &works(), None, boot("a", 0)), Ending::Rebooting(Disruption::SoftReboot));
    assert_eq!(record(&scene).reboots_taken, 1);

    // Userspace is new.
    assert_eq!(go(&scene, &works(), None, boot("a", 1)), Ending::Settled);
    assert_eq!(go(&scene, &works(), None, boot("a", 1)), Ending::Settled);
    assert_eq!(reboots(&scene), ["soft-reboot", "soft-reboot"], "never again");
    assert_eq!(record(&scene).reboots_taken, 1);
}

#[test]
fn a_service_that_does_not_come_back_blocks_where_no_reboot_is_allowed() {
    let (scene, systemd) = (scene(with_unit()), fails());
    let reason = stuck(&scene, &systemd, Some(Disruption::Restart), "Blocked");
    for words in [UNIT, "everything was put back", "max_disruption = \"soft-reboot\""] {
        assert!(reason.contains(words), "{reason}");
    }
    assert_eq!(unit_text(&scene), OLD);
    assert_eq!(systemd.asked.lock().unwrap().last().unwrap(), &format!("restart {UNIT}"));
    assert_eq!(reboots(&scene), [""; 0]);
}

#[test]
fn an_api_that_is_gone_after_the_change_takes_it_back_for_good() {
    let scene = scene(rendered(WANTED, "/opt/nobody-knows", "x"));
    let kubeconfig = scene.tree.path(paths::KUBECONFIG);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let broken =
        std::fs::read_to_string(&kubeconfig).unwrap().replace(&scene.server.url, &format!("https://{gone}"));
    let systemd = Systemd {
        on_look: Some(Box::new(move || std::fs::write(&kubeconfig, &broken).unwrap())),
        ..Systemd::default()
    };
    let reason = stuck(&scene, &Arc::new(systemd), None, "RolledBack");
    assert!(reason.contains("cannot be reached") && reason.contains("s after the change"), "{reason}");
    for path in ["/opt/nobody-knows", paths::CURRENT_CONFIG, paths::SETTLED] {
        assert!(!scene.tree.path(path).exists(), "{path}");
    }
    // Nothing was done live, so a second attempt would be the first one again.
    assert_eq!(reboots(&scene), [""; 0]);
    assert_eq!(record(&scene).reboot, None);
}

#[test]
fn what_needs_a_reboot_has_one_and_comes_back_settled() {
    let scene = scene(rendered(WANTED, "/opt/nobody-knows", "x"));
    assert_eq!(go(&scene, &works(), None, boot("a", 0)), Ending::Rebooting(Disruption::SoftReboot));
    assert_eq!(reboots(&scene), ["soft-reboot"]);
    let due = record(&scene).reboot.unwrap();
    assert_eq!((due.config.as_str(), due.ordered), (WANTED, true));
    assert!(!scene.tree.path(paths::SETTLED).exists(), "not before it is back");
    assert_eq!(go(&scene, &works(), None, boot("b", 0)), Ending::Settled);
    assert_eq!(reboots(&scene), ["soft-reboot"]);
}

#[test]
fn a_configuration_that_has_had_its_reboot_gets_no_second_one() {
    let scene = scene(rendered(WANTED, "/opt/nobody-knows", "x"));
    go(&scene, &works(), None, boot("z", 0));
    // Somebody takes away, on the way down, what the reboot was for.
    std::fs::remove_file(scene.tree.path("/opt/nobody-knows")).unwrap();
    let reason = stuck(&scene, &works(), None, "Blocked");
    assert_eq!(reason, "it has had its one reboot and needs another: /opt/nobody-knows (soft-reboot)");
    assert_eq!(reboots(&scene), ["soft-reboot"]);
    assert_eq!(record(&scene).reboots_taken, 1);
}

#[test]
fn a_member_is_not_rebooted_for_what_no_policy_knows() {
    let scene = scene(rendered(WANTED, "/etc/motd", "welcome"));
    let mut ready = node("2", &json!({}), false);
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    scene.objects.lock().unwrap().insert(format!("/api/v1/nodes/{NODE}"), Some(ready));
    let reason = stuck(&scene, &works(), None, "Blocked");
    let expected = "the plan needs reboot and at most restart is allowed: /etc/motd (reboot)";
    assert!(reason.starts_with(expected), "{reason}");
    assert!(!scene.tree.path("/etc/motd").exists());
    assert_eq!(reboots(&scene), [""; 0]);
}
