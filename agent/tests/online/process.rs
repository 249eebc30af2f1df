//! The service as a process: what it tells its service manager, and that a kill in the middle costs nothing.

use std::{
    os::unix::net::UnixDatagram,
    process::{Child, Command, Stdio},
};

use oneboot_agent::{paths, record::Record};

use crate::{
    run::{Scene, WANTED, config_path, registered, rendered},
    support::Asked,
};

/// The binary, told that systemd listens and expects signs of life. Killed with the test.
pub(crate) struct Service(pub(crate) Child);

impl Service {
    pub(crate) fn start(scene: &Scene) -> (Self, UnixDatagram) {
        let path = scene.tree.path("/notify");
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        // Far beyond anything a passing test needs: it only keeps a failing one from hanging.
        socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_oneboot-agent"))
            .args(["run", "--root"])
            .arg(scene.tree.dir.path())
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "300000000")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        (Self(child), socket)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything that is said until something contains `last`.
pub(crate) fn heard(socket: &UnixDatagram, last: &str) -> Vec<String> {
    let mut messages = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).expect("it goes on talking");
        let message = String::from_utf8_lossy(&buffer[..length]).trim().to_owned();
        messages.push(message.clone());
        if message.contains(last) {
            return messages;
        }
    }
}

fn scene(config: Option<serde_json::Value>) -> Scene {
    Scene::new(&[(config_path(WANTED), config), registered()]).with_seed(WANTED)
}

#[test]
fn systemd_hears_where_it_is_and_expects_life_while_it_works_only() {
    let scene = scene(Some(rendered(WANTED, "/etc/motd", "welcome")));
    let (_service, socket) = Service::start(&scene);
    let first = heard(&socket, "READY=1");
    assert_eq!(first, ["WATCHDOG_USEC=0", "STATUS=Waiting\nREADY=1"], "ready, and no clock runs");
    scene.approve();
    let rest = heard(&socket, "STATUS=Settled");
    let at = |what: &str| {
        rest.iter().position(|m| m.contains(what)).unwrap_or_else(|| panic!("{what} in {rest:#?}"))
    };
    let (working, applied) = (at("WATCHDOG_USEC=300000000\nWATCHDOG=1"), at("STATUS=Applied"));
    assert!(at("STATUS=Approved") < working && working < applied, "{rest:#?}");
    let alive = rest[working + 1..applied].iter().filter(|m| *m == "WATCHDOG=1").count();
    assert!(alive >= 3, "the phases of the apply are signs of life: {rest:#?}");
    assert!(heard(&socket, "WATCHDOG_USEC=0").len() <= 2, "and none is expected any more");
}

#[test]
fn killed_in_the_middle_it_goes_on_where_it_was() {
    let scene = scene(None); // may not be read yet
    let wanted = |asked: &Asked| asked.target == config_path(WANTED);
    let (service, socket) = Service::start(&scene);
    heard(&socket, "READY=1");
    scene.approve();
    heard(&socket, "STATUS=Approved");
    scene.server.wait_for(wanted);
    drop(service);
    assert_eq!(Record::read(&scene.tree.root).unwrap().unwrap().state.name().to_string(), "Approved");
    assert!(!scene.tree.path("/etc/motd").exists());

    let config = rendered(WANTED, "/etc/motd", "welcome");
    scene.objects.lock().unwrap().insert(config_path(WANTED), Some(config));
    let (mut service, socket) = Service::start(&scene);
    heard(&socket, "STATUS=Settled");
    assert!(service.0.wait().unwrap().success());
    assert_eq!(std::fs::read(scene.tree.path("/etc/motd")).unwrap(), b"welcome");
    let record = Record::read(&scene.tree.root).unwrap().unwrap();
    let way: Vec<_> = record.history.iter().map(|entry| entry.state.to_string()).collect();
    let again = ["Waiting", "Approved", "Pulled", "Planned", "Applied", "Settled"];
    assert_eq!(way, [&["Waiting", "Approved"][..], &again].concat());
    assert!(scene.tree.path(paths::SETTLED).exists());
}
