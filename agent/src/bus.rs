//! Owns: the conversation with systemd (`org.freedesktop.systemd1`) on the system bus.
//! Given unit names; gives the results of jobs, each waited for until systemd says that it is gone.
//! Never uses PID 1's private socket, and no runtime but zbus's own.

use std::collections::BTreeSet;
use std::process::Command;

use futures_lite::StreamExt;
use zbus::{Connection, OwnedObjectPath};

use crate::units::{Condition, Error, Job, Units};

/// Jobs replace what is queued for the same unit, as `systemctl` does.
const MODE: &str = "replace";

#[zbus::proxy(
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1",
    interface = "org.freedesktop.systemd1.Manager"
)]
trait Manager {
    fn subscribe(&self) -> zbus::Result<()>;
    fn reload(&self) -> zbus::Result<()>;
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn restart_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn try_restart_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn reload_or_try_restart_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn list_units_filtered(&self, states: &[&str]) -> zbus::Result<Vec<Listed>>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn soft_reboots_count(&self) -> zbus::Result<u32>;
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: String, result: String) -> zbus::Result<()>;
}

#[zbus::proxy(default_service = "org.freedesktop.systemd1", interface = "org.freedesktop.systemd1.Unit")]
trait Unit {
    #[zbus(property(emits_changed_signal = "false"))]
    fn active_state(&self) -> zbus::Result<String>;
}

/// A unit as systemd lists it: name, description, load state, active state, sub state, the unit it follows, its path, its
/// job's number, kind and path.
type Listed = (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// systemd, reached over a connection that is up.
#[derive(Debug)]
pub struct SystemBus(Connection);

impl SystemBus {
    /// Connects to the system bus.
    pub fn connect() -> Result<SystemBus, Error> {
        zbus::block_on(Connection::system()).and_then(Self::over).map_err(Error::NoBus)
    }

    /// Takes a connection to a peer that speaks systemd's interface.
    pub fn over(connection: Connection) -> zbus::Result<SystemBus> {
        // Without a subscription systemd sends no JobRemoved.
        zbus::block_on(async { ManagerProxy::new(&connection).await?.subscribe().await })?;
        Ok(SystemBus(connection))
    }

    /// How often userspace alone has been started again; `None` where systemd does not count that (before 256).
    pub fn soft_reboots(&self) -> Option<u32> {
        zbus::block_on(async { ManagerProxy::new(&self.0).await?.soft_reboots_count().await }).ok()
    }

    async fn active_state(&self, unit: &str) -> zbus::Result<String> {
        let path = ManagerProxy::new(&self.0).await?.load_unit(unit).await?;
        UnitProxy::builder(&self.0).path(path).build().await?.active_state().await
    }

    async fn run(&self, job: Job, unit: &str) -> zbus::Result<String> {
        let manager = ManagerProxy::new(&self.0).await?;
        // Before the job is queued: it may be over before the answer is here.
        let mut removed = manager.receive_job_removed().await?;
        let path = match job {
            Job::Start => manager.start_unit(unit, MODE).await?,
            Job::Stop => manager.stop_unit(unit, MODE).await?,
            Job::Restart => manager.restart_unit(unit, MODE).await?,
            Job::TryRestart => manager.try_restart_unit(unit, MODE).await?,
            Job::Reload => manager.reload_or_try_restart_unit(unit, MODE).await?,
        };
        while let Some(signal) = removed.next().await {
            let args = signal.args()?;
            if args.job == path {
                return Ok(args.result);
            }
        }
        Err(zbus::Error::Failure("the bus went away while a job was running".to_owned()))
    }
}

fn refused(verb: &'static str, unit: &str) -> impl FnOnce(zbus::Error) -> Error {
    move |e| Error::Refused { verb, unit: unit.to_owned(), message: e.to_string() }
}

impl Units for SystemBus {
    fn daemon_reload(&self) -> Result<(), Error> {
        zbus::block_on(async { ManagerProxy::new(&self.0).await?.reload().await })
            .map_err(refused("reload", "systemd"))
    }

    fn job(&self, job: Job, unit: &str) -> Result<(), Error> {
        let verb = job.verb();
        let result = zbus::block_on(self.run(job, unit)).map_err(refused(verb, unit))?;
        // A condition that does not hold skips a unit; to systemd that job is done too.
        if result == "done" || result == "skipped" {
            return Ok(());
        }
        Err(Error::Job { verb, unit: unit.to_owned(), result })
    }

    fn is_active(&self, unit: &str) -> Result<bool, Error> {
        Ok(self.condition(unit)? != Condition::Down)
    }

    fn condition(&self, unit: &str) -> Result<Condition, Error> {
        let state = zbus::block_on(self.active_state(unit)).map_err(refused("look at", unit))?;
        Ok(match state.as_str() {
            "active" | "reloading" | "refreshing" => Condition::Up,
            "activating" => Condition::Coming,
            _ => Condition::Down,
        })
    }

    fn all_in(&self, state: &'static str) -> Result<BTreeSet<String>, Error> {
        let listed =
            zbus::block_on(async { ManagerProxy::new(&self.0).await?.list_units_filtered(&[state]).await });
        Ok(listed.map_err(refused("list", "units"))?.into_iter().map(|unit| unit.0).collect())
    }

    fn stand_in(&self, unit: &str) -> bool {
        by_hand(unit).is_some_and(|tool| Command::new(tool).status().is_ok_and(|status| status.success()))
    }
}

/// The tool that a unit only runs: where the unit fails, the tool alone may not (facts/mco.md 5.6).
fn by_hand(unit: &str) -> Option<&'static str> {
    (unit == "coreos-update-ca-trust.service").then_some("update-ca-trust")
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, sync::mpsc};

    use zbus::{ObjectPath, connection::Builder, object_server::SignalEmitter};

    use super::*;

    /// A manager as far as we use it: a unit named `bad.service` fails, `none.service` does not exist.
    struct Systemd(mpsc::Sender<String>);

    #[allow(clippy::needless_pass_by_value, clippy::unused_self, reason = "the interface's shape")]
    #[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
    impl Systemd {
        fn subscribe(&self) {
            self.0.send("subscribe".to_owned()).unwrap();
        }
        fn reload(&self) {
            self.0.send("reload".to_owned()).unwrap();
        }
        fn load_unit(&self, name: &str) -> OwnedObjectPath {
            self.0.send(format!("load {name}")).unwrap();
            let path = if name == "up.service" { "/unit/up" } else { "/unit/down" };
            ObjectPath::try_from(path).unwrap().into()
        }
        fn list_units_filtered(&self, states: Vec<String>) -> Vec<Listed> {
            self.0.send(format!("list {}", states.join(" "))).unwrap();
            let path = |text: &str| OwnedObjectPath::from(ObjectPath::try_from(text.to_owned()).unwrap());
            let text = |text: &str| text.to_owned();
            let name = text("down.service");
            vec![(
                name,
                text("A daemon"),
                text("loaded"),
                text("failed"),
                text("failed"),
                text(""),
                path("/unit/down"),
                0,
                text(""),
                path("/"),
            )]
        }
        #[zbus(property)]
        fn soft_reboots_count(&self) -> u32 {
            2
        }
        async fn restart_unit(
            &self,
            name: &str,
            mode: &str,
            #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
        ) -> zbus::fdo::Result<OwnedObjectPath> {
            self.0.send(format!("restart {name} {mode}")).unwrap();
            if name == "none.service" {
                return Err(zbus::fdo::Error::Failed("Unit none.service not found.".to_owned()));
            }
            let job = |n: u32| OwnedObjectPath::from(ObjectPath::try_from(format!("/job/{n}")).unwrap());
            let result = if name == "bad.service" { "failed" } else { "done" };
            // Somebody else's job ends first, and ours before the answer is out.
            Systemd::job_removed(&emitter, 1, job(1), "other.service".to_owned(), "failed".to_owned())
                .await?;
            Systemd::job_removed(&emitter, 2, job(2), name.to_owned(), result.to_owned()).await?;
            Ok(job(2))
        }
        #[zbus(signal)]
        async fn job_removed(
            emitter: &SignalEmitter<'_>,
            id: u32,
            job: OwnedObjectPath,
            unit: String,
            result: String,
        ) -> zbus::Result<()>;
    }

    struct State(&'static str);

    #[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
    impl State {
        #[zbus(property)]
        fn active_state(&self) -> String {
            self.0.to_owned()
        }
    }

    fn peer() -> (SystemBus, Connection, mpsc::Receiver<String>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (calls, seen) = mpsc::channel();
        let guid = zbus::Guid::generate();
        let (server, client) = zbus::block_on(async {
            let server = Builder::unix_stream(theirs)
                .server(guid)
                .p2p()
                .serve_at("/org/freedesktop/systemd1", Systemd(calls))
                .serve_at("/unit/up", State("active"))
                .serve_at("/unit/down", State("inactive"))
                .build();
            let client = Builder::unix_stream(ours).p2p().build();
            futures_lite::future::zip(server, client).await
        });
        (SystemBus::over(client.unwrap()).unwrap(), server.unwrap(), seen)
    }

    #[test]
    fn a_job_is_waited_for_and_its_own_result_counts() {
        let (bus, _server, seen) = peer();
        bus.daemon_reload().unwrap();
        bus.job(Job::Restart, "good.service").unwrap();
        let failed = bus.job(Job::Restart, "bad.service").unwrap_err();
        assert!(matches!(failed, Error::Job { ref result, .. } if result == "failed"), "{failed}");
        let refused = bus.job(Job::Restart, "none.service").unwrap_err();
        assert!(
            matches!(refused, Error::Refused { ref message, .. } if message.contains("not found")),
            "{refused}"
        );
        assert!(bus.is_active("up.service").unwrap());
        assert!(!bus.is_active("down.service").unwrap());
        assert_eq!(bus.all_in("failed").unwrap(), BTreeSet::from(["down.service".to_owned()]));
        assert_eq!(bus.soft_reboots(), Some(2));
        let calls: Vec<_> = seen.try_iter().collect();
        assert_eq!(
            calls,
            [
                "subscribe",
                "reload",
                "restart good.service replace",
                "restart bad.service replace",
                "restart none.service replace",
                "load up.service",
                "load down.service",
                "list failed"
            ]
        );
    }
}
