//! The default worker configuration, as the agent plans it: from what is served before approval to the whole.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

use std::{fs, path::Path};

use oneboot_agent::{
    apply::{self, Request},
    machineconfig::MachineConfig,
    plan::{Disruption, Phase, Subject},
    root::Root,
    units::NoUnits,
};
use oneboot_cluster::render::{Defaults, render};
use oneboot_node::fixture;

/// The image that the demo lays a node out of, as far as a plan depends on it.
fn image(to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/image");
    copy(&from, to);
    for folder in ["etc/systemd/system", "var/lib", "run"] {
        fs::create_dir_all(to.join(folder)).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[test]
fn the_default_worker_needs_no_reboot_after_approval() {
    let configs = fixture::machine_configs(&fixture::worker_dir()).unwrap();
    let rendered = render("worker", &configs, &Defaults::default()).unwrap();
    let parse = |config| MachineConfig::parse(&serde_json::to_vec(config).unwrap()).unwrap();
    let (pre, full) = (parse(&rendered.pre), parse(&rendered.post));
    let dir = tempfile::tempdir().unwrap();
    image(dir.path());
    let root = Root::open(dir.path()).unwrap();
    let first = Request {
        desired: &pre,
        current: None,
        policy: None,
        phase: Phase::FirstBoot,
        max_disruption: Disruption::Reboot,
        unknown_path: Disruption::SoftReboot,
        mcd_present: true,
        settle: false,
    };
    apply::apply(&root, &first, &NoUnits, &mut |_| {}).unwrap();
    let second = Request { desired: &full, current: Some(&pre), ..first };
    let plan = apply::prepare(&root, &second).unwrap();
    let dear: Vec<_> = plan.steps.iter().filter(|s| s.disruption.is_reboot()).collect();
    assert!(dear.is_empty(), "{dear:#?}");
    assert_eq!(plan.disruption, Disruption::Restart);
    for unit in ["systemd-sysctl.service", "systemd-modules-load.service"] {
        let restarted =
            plan.steps.iter().any(|s| s.kind == "restart" && s.subject == Subject::Unit(unit.to_owned()));
        assert!(restarted, "{unit} is not restarted: {:#?}", plan.steps);
    }
}
