//! Owns: the service: carries out what [`crate::state`] asks for, one effect after the other.
//! Given a tree, settings and a clock, it gives a settled node, or a node that waits and says for what.
//! Never: decides what follows what, or changes the tree but through an apply's receipt.

use std::{
    collections::VecDeque,
    io::Write,
    ops::ControlFlow,
    sync::{Arc, mpsc},
    thread,
};

use crate::{
    api::{
        error::{ApiError, Failure},
        resource::{MACHINE_CONFIG_POOLS, NODES},
        session::{Session, Trouble},
        types::{Node, PoolObject},
        watch::{Query, Update, follow},
    },
    apply::{self, Applied, Prepared, Progress, Request, Restored},
    clock::{Clock, rfc3339},
    config::Settings,
    csr::{self, Word},
    desired::DESIRED_CONFIG,
    identity::{self, Pair},
    node::Keeper,
    nodename, paths,
    plan::{Disruption, Phase, Plan, PlannedStep, Subject, table},
    pull::{self, Hindrance, PoolNames, Pulled},
    record::{self, Record, RecordedPhase},
    report::Report,
    root::{self, Root},
    settle,
    state::{Effect, Event, IllegalTransition, State, next},
    status::Status,
    units::Units,
    verify, wait,
};

/// A role binding follows an approval within seconds (design 5, "Approver"); what is refused for longer is missing.
const BINDINGS_LAG_MICROSECONDS: u64 = 30_000_000;

/// Why the service ends without having settled the node. Everything is where a restart finds it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tree cannot be read or written.
    #[error(transparent)]
    Tree(#[from] root::Error),
    /// What was remembered is of no use.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// The certificate cannot be waited for.
    #[error(transparent)]
    Wait(#[from] wait::Error),
    /// An interrupted apply can neither be finished nor undone, or the service manager cannot be asked.
    #[error(transparent)]
    Apply(apply::Error),
    /// Something happened that cannot have happened.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// The system gives no thread, or standard output is gone.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// How a run ends when nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is left to do.
    Settled,
    /// The machine goes down and comes back, and this goes on then.
    Rebooting(Disruption),
}

/// What a run is given.
pub struct Given<'a> {
    /// The tree.
    pub root: Arc<Root>,
    /// The settings.
    pub settings: Settings,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The service manager; [`crate::units::NoUnits`] for a tree that is not running.
    pub units: &'a dyn Units,
    /// Where the plan is printed.
    pub out: &'a mut dyn Write,
    /// What a path costs that no rule knows, where the settings do not say.
    pub unknown_path: Disruption,
    /// The running kernel's boot.
    pub boot_id: String,
}

/// What is known in memory while the service works.
struct Run<'a> {
    given: Given<'a>,
    record: Record,
    /// Why the state lasts, where the state itself has no reason.
    reason: Option<String>,
    report: Report,
    session: Option<Session>,
    keeper: Option<Keeper>,
    pulled: Option<Pulled>,
    applied: Option<Applied>,
}

/// Runs until the node is settled or goes down for a reboot.
pub fn run(given: Given<'_>) -> Result<Ending, Error> {
    let report = Report::read(&given.root)?.unwrap_or_default();
    let now = rfc3339(given.clock.wall_seconds());
    let mut record = Record::read(&given.root)?.unwrap_or_else(|| Record::new(given.boot_id.clone(), now));
    let rebooted = record.boot_id != given.boot_id;
    record.boot_id.clone_from(&given.boot_id);
    let mut run =
        Run { given, record, reason: None, report, session: None, keeper: None, pulled: None, applied: None };
    run.recover()?;

    let mut work = VecDeque::from(run.step(Event::Started { rebooted })?);
    while let Some(effect) = work.pop_front() {
        match run.perform(effect)? {
            Done::Nothing => {}
            Done::Event(event) => work.extend(run.step(event)?),
            Done::Rebooting(kind) => return Ok(Ending::Rebooting(kind)),
        }
    }
    Ok(Ending::Settled)
}

/// What an effect came to.
enum Done {
    Nothing,
    Event(Event),
    Rebooting(Disruption),
}

/// What is heard while waiting for approval.
enum Notice {
    Certified(Box<Pair>),
    Unusable(String),
    Request(Word),
    Failed(wait::Error),
}

impl Run<'_> {
    /// One transition: remembered first, then told.
    fn step(&mut self, event: Event) -> Result<Vec<Effect>, Error> {
        let (state, effects) = next(&self.record.state, event)?;
        self.reason = None;
        let note = match &state {
            State::Approved => self.record.node.clone(),
            State::Pulled => self.record.desired.clone(),
            _ => None,
        };
        let clock = &self.given.clock;
        self.record.enter(state, clock.boot_microseconds(), rfc3339(clock.wall_seconds()), note);
        self.record.write(&self.given.root)?;
        self.tell()?;
        Ok(effects)
    }

    /// Says where the node is: one line, the status file, systemd, the Node.
    fn tell(&self) -> Result<(), Error> {
        let status = Status::new(&self.record, self.reason.as_deref());
        status.write(&self.given.root)?;
        let state = status.state.to_string();
        let what =
            status.reason.as_deref().or_else(|| self.record.history.last().and_then(|e| e.note.as_deref()));
        let line = what.map_or(state.clone(), |what| format!("{state}: {what}"));
        tracing::info!(state = %state, reason = status.reason.as_deref().unwrap_or_default(), "{line}");
        // No service manager, no message: the library is silent without NOTIFY_SOCKET.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&line), sd_notify::NotifyState::Ready]);
        if let Some(keeper) = &self.keeper {
            keeper.say(&state, status.reason.as_deref().unwrap_or_default());
        }
        Ok(())
    }

    /// Says why a state lasts, once per reason.
    fn because(&mut self, reason: String) -> Result<(), Error> {
        if self.reason.as_ref() == Some(&reason) {
            return Ok(());
        }
        self.reason = Some(reason);
        self.tell()
    }

    fn perform(&mut self, effect: Effect) -> Result<Done, Error> {
        Ok(match effect {
            Effect::AwaitApproval => Done::Event(self.await_approval()?),
            Effect::Cordon => {
                self.keep_node()?;
                Done::Nothing
            }
            Effect::Pull => Done::Event(self.pull()?),
            Effect::Plan => Done::Event(self.plan()?),
            Effect::Apply => Done::Event(self.apply()?),
            Effect::Verify => Done::Event(self.verify()),
            Effect::Reboot => Done::Rebooting(self.reboot()?),
            Effect::Settle => {
                self.settle()?;
                Done::Nothing
            }
            Effect::AwaitChange => Done::Event(self.await_change()?),
        })
    }

    fn recover(&self) -> Result<(), Error> {
        match apply::recover(&self.given.root).map_err(Error::Apply)? {
            Restored::Nothing => {}
            Restored::Old { paths } => {
                tracing::warn!(paths, "an interrupted apply was undone: {paths} paths are as before");
            }
            Restored::Elsewhere => {
                tracing::warn!("an interrupted apply belongs to another deployment and is left alone");
            }
        }
        Ok(())
    }

    fn await_approval(&mut self) -> Result<Event, Error> {
        let (notices, heard) = mpsc::channel();
        self.watch_certificate(notices.clone())?;
        self.watch_request(notices)?;
        loop {
            let notice = heard.recv().expect("the certificate's thread ends with a notice");
            match notice {
                Notice::Certified(pair) => {
                    self.record.node = Some(pair.node);
                    return Ok(Event::Certified);
                }
                Notice::Unusable(reason) => self.because(reason)?,
                Notice::Failed(error) => return Err(error.into()),
                Notice::Request(word) if word.is_dead() => {
                    self.step(Event::Denied { reason: word.to_string() })?;
                }
                Notice::Request(word) => {
                    if matches!(self.record.state, State::Blocked { .. }) {
                        self.step(Event::Refiled)?;
                    }
                    self.because(word.to_string())?;
                }
            }
        }
    }

    fn watch_certificate(&self, notices: mpsc::Sender<Notice>) -> Result<(), Error> {
        let (root, clock) = (self.given.root.clone(), self.given.clock.clone());
        spawn("certificate", move || {
            let unusable = |why: &identity::PairError| {
                let _ = notices.send(Notice::Unusable(format!("{}: {why}", paths::KUBELET_CLIENT)));
            };
            let last = match wait::certificate(&root, &*clock, unusable) {
                Ok(pair) => Notice::Certified(Box::new(pair)),
                Err(error) => Notice::Failed(error),
            };
            let _ = notices.send(last);
        })
    }

    fn watch_request(&self, notices: mpsc::Sender<Notice>) -> Result<(), Error> {
        let root = self.given.root.clone();
        let load = {
            let root = root.clone();
            move || identity::bootstrap(&root)
        };
        let mut session = Session::new(load, self.report.address(), self.given.clock.clone()).as_onlooker();
        spawn("request", move || {
            let name = || nodename::of(&root).ok().flatten();
            csr::observe(&mut session, &name, |word| match notices.send(Notice::Request(word)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()), // approved: nobody asks any more
            });
        })
    }

    /// A session with the node's own identity, read again whenever its files change.
    fn node_session(&self) -> Session {
        let (root, clock) = (self.given.root.clone(), self.given.clock.clone());
        let load = move || identity::node(&root, clock.wall_seconds());
        Session::new(load, self.report.address(), self.given.clock.clone())
    }

    fn session(&mut self) -> Session {
        self.session.take().unwrap_or_else(|| self.node_session())
    }

    /// The node's name, from its certificate.
    fn node(&self) -> String {
        self.record.node.clone().unwrap_or_default()
    }

    fn keep_node(&mut self) -> Result<(), Error> {
        if self.keeper.is_none() {
            let cordon = self.given.settings.cordon.value;
            let keeper = Keeper::start(self.node(), cordon, self.node_session(), self.node_session());
            self.keeper = Some(keeper.map_err(|source| Error::System { what: "start a thread", source })?);
        }
        Ok(())
    }

    fn pools(&self) -> PoolNames {
        PoolNames { reported: self.report.pool.clone(), configured: self.given.settings.pool.value.clone() }
    }

    /// Looks until there is something to plan with, or something that no further look will mend.
    fn pull(&mut self) -> Result<Event, Error> {
        let (name, pools) = (self.node(), self.pools());
        let mut session = self.session();
        let started = self.given.clock.boot_microseconds();
        let mut failures = 0;
        let event = loop {
            match pull::once(&mut session, &self.given.root, &name, &pools) {
                Ok(pulled) => break self.pulled(pulled)?,
                Err(Hindrance::Tree(error)) => return Err(error.into()),
                Err(Hindrance::Unusable { config, basis, reason }) => {
                    self.record.desired = config;
                    self.record.basis = basis;
                    break Event::Refused { reason };
                }
                Err(hindrance) => {
                    failures += 1;
                    self.hindered(&hindrance, started)?;
                    match &hindrance {
                        Hindrance::Trouble(trouble) => session.pause(trouble, failures),
                        _ => session.pause_slowly(failures),
                    }
                }
            }
        };
        self.session = Some(session);
        Ok(event)
    }

    /// Says what stands in the way. What only a person can mend blocks once it has lasted longer than bindings lag.
    fn hindered(&mut self, hindrance: &Hindrance, started: u64) -> Result<(), Error> {
        let reason = hindrance.to_string();
        let forbidden = matches!(
            hindrance,
            Hindrance::Trouble(Trouble::Api(ApiError {
                failure: Failure::Forbidden { .. } | Failure::NotFound,
                ..
            })) | Hindrance::Undecided(_)
        );
        let lasting = self.given.clock.boot_microseconds() - started >= BINDINGS_LAG_MICROSECONDS;
        if forbidden && lasting {
            if self.record.state.reason() != Some(&reason) {
                self.step(Event::Forbidden { reason })?;
            }
            return Ok(());
        }
        self.because(reason)
    }

    fn pulled(&mut self, pulled: Pulled) -> Result<Event, Error> {
        self.record.desired = Some(pulled.desired.config.clone());
        self.record.basis = pulled.basis.clone();
        if self.record.phase.is_none() {
            // Decided at the first look and kept: a Node that the kubelet makes Ready meanwhile changes nothing.
            let member =
                record::is_settled(&self.given.root)? || pulled.node.as_ref().is_some_and(Node::is_ready);
            self.record.phase = Some(if member { RecordedPhase::Joined } else { RecordedPhase::FirstBoot });
        }
        tracing::info!(config = %pulled.desired.config, "{} is desired, says {}", pulled.desired.config, pulled.desired.rule);
        self.pulled = Some(pulled);
        Ok(Event::Pulled)
    }

    /// Plans, or applies: both with the same request.
    fn with_request<T>(&self, use_it: impl FnOnce(&Request<'_>) -> T) -> Result<T, Error> {
        let pulled = self.pulled.as_ref().expect("a plan follows a pull");
        let current = current_config(&self.given.root)?;
        let phase = self.record.phase.map_or(Phase::FirstBoot, Phase::from);
        let settings = &self.given.settings;
        let request = Request {
            desired: &pulled.config,
            current: current.as_ref(),
            policy: pulled.policy.as_ref(),
            phase,
            max_disruption: settings.max_disruption.value.unwrap_or(default_cap(phase)),
            unknown_path: settings.unknown_path.value.unwrap_or(self.given.unknown_path),
            mcd_present: settle::mcd_present(&self.given.root, settings.mcd.value)?,
            settle: true,
        };
        Ok(use_it(&request))
    }

    fn plan(&mut self) -> Result<Event, Error> {
        let planned = self.with_request(|request| {
            apply::prepare_all(&self.given.root, request).map(|prepared| (prepared, request.max_disruption))
        })?;
        let (Prepared { plan, notes, .. }, allowed) = match planned {
            Ok(planned) => planned,
            Err(error) => return refused(error),
        };
        for note in &notes {
            tracing::warn!("{note}");
        }
        self.print(&plan)?;
        if plan.disruption > allowed {
            return Ok(Event::Refused { reason: too_disruptive(&plan, allowed) });
        }
        Ok(Event::Planned)
    }

    fn print(&mut self, plan: &Plan) -> Result<(), Error> {
        let printed = write!(self.given.out, "{}", table::render(plan)).and_then(|()| self.given.out.flush());
        printed.map_err(|source| Error::System { what: "print the plan", source })
    }

    fn apply(&mut self) -> Result<Event, Error> {
        if let Some(seed) = self.pulled.as_ref().and_then(|pulled| pulled.reseed.as_ref()) {
            settle::reseed(&self.given.root, seed)?;
            tracing::info!(config = %seed.config, "the pool has moved on: the seed now names {}", seed.config);
        }
        let applied = self.with_request(|request| {
            apply::apply(&self.given.root, request, self.given.units, &mut |progress| match progress {
                Progress::Note(_) => {} // said when it was planned
                Progress::Phase(phase) => tracing::debug!("apply: {phase}"),
                Progress::Unit(verb, unit) => tracing::info!("{verb} {unit}"),
            })
        })?;
        match applied {
            Ok(applied) => {
                tracing::info!(
                    files = applied.files_written,
                    units = applied.units_changed,
                    "{} paths changed, {} units",
                    applied.files_written,
                    applied.units_changed
                );
                self.record.applied.clone_from(&self.record.desired);
                self.record.files_written = applied.files_written as u64;
                self.record.reboot_needed = applied.reboot_needed;
                self.applied = Some(applied);
                Ok(Event::Applied)
            }
            Err(apply::Error::RolledBack { cause }) => Ok(Event::RolledBack { reason: cause }),
            Err(error @ apply::Error::RollbackIncomplete { .. }) => {
                Ok(Event::RolledBack { reason: error.to_string() })
            }
            Err(error) => refused(error),
        }
    }

    fn verify(&self) -> Event {
        let pulled = self.pulled.as_ref().expect("a verification follows a pull");
        let mismatches = verify::verify(&self.given.root, &pulled.config);
        if let Some(first) = mismatches.first() {
            let reason = format!("{first} ({} in all); see: oneboot-agent verify", mismatches.len());
            return Event::Refused { reason };
        }
        let needed = self.applied.as_ref().and_then(|applied| applied.reboot_needed);
        if let Some(kind) = needed.filter(|_| !self.given.root.is_system()) {
            tracing::warn!(
                "{kind} is needed before all of it takes effect; a tree that is not running has none"
            );
        }
        Event::Verified { reboot: needed.is_some() && self.given.root.is_system() }
    }

    fn reboot(&mut self) -> Result<Disruption, Error> {
        self.record.reboots_taken += 1;
        self.record.write(&self.given.root)?;
        Ok(self.applied.as_ref().and_then(|applied| applied.reboot_needed).unwrap_or(Disruption::Reboot))
    }

    fn settle(&mut self) -> Result<(), Error> {
        let config = self.record.desired.clone().unwrap_or_default();
        settle::mark(&self.given.root, &config)?;
        let mcd_present = settle::mcd_present(&self.given.root, self.given.settings.mcd.value)?;
        if let Some(keeper) = self.keeper.take() {
            // A panic in there has been printed; the node is settled all the same.
            let _ = keeper.hand_over(&config, mcd_present).join();
        }
        Ok(())
    }

    /// Blocks until the cluster says something else than it said when this configuration was refused.
    fn await_change(&mut self) -> Result<Event, Error> {
        self.pulled = None;
        self.applied = None;
        let mut session = self.session();
        let basis = self.record.basis.clone();
        let troubled = |trouble: &Trouble| {
            tracing::debug!(%trouble, "waiting for another configuration");
            ControlFlow::Continue(())
        };
        let seed = settle::seed(&self.given.root)?.and_then(Result::ok);
        match self.pools().choose(seed.as_ref()).filter(|_| basis.pool.is_some()) {
            Some(pool) if seed.is_some() || basis.annotation.is_none() => follow(
                &mut session,
                &Query::by_name(&MACHINE_CONFIG_POOLS, &pool),
                |update: Update<PoolObject>| {
                    newest(update, |p| p.pool.config().map(ToOwned::to_owned), basis.pool.as_ref())
                },
                troubled,
            ),
            _ => follow(
                &mut session,
                &Query::by_name(&NODES, &self.node()),
                |update: Update<Node>| {
                    newest(
                        update,
                        |n| n.metadata.annotations.get(DESIRED_CONFIG).cloned(),
                        basis.annotation.as_ref(),
                    )
                },
                troubled,
            ),
        }
        self.session = Some(session);
        Ok(Event::Changed)
    }
}

/// Ends a watch when what an object says is something, and not what it said before.
fn newest<T>(
    update: Update<T>,
    said: impl Fn(&T) -> Option<String>,
    before: Option<&String>,
) -> ControlFlow<()> {
    let object = match update {
        Update::Listed(objects) => objects.into_iter().next(),
        Update::Changed(object) => Some(object),
        Update::Deleted(_) | Update::Ended => None,
    };
    match object.as_ref().and_then(said) {
        Some(now) if Some(&now) != before => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    }
}

/// The configuration that the tree is at, as far as the last one to change it wrote it down.
fn current_config(root: &Root) -> Result<Option<crate::machineconfig::MachineConfig>, Error> {
    let bytes = root.read(paths::CURRENT_CONFIG)?;
    Ok(bytes.and_then(|bytes| crate::machineconfig::MachineConfig::parse(&bytes).ok()))
}

/// What the agent does on its own (design 4.4).
const fn default_cap(phase: Phase) -> Disruption {
    match phase {
        Phase::FirstBoot => Disruption::Reboot,
        Phase::Joined => Disruption::Restart,
    }
}

/// An apply that changed nothing: what is wrong with the configuration blocks the node, what is wrong with the
/// machine ends the service, to be started again.
fn refused(error: apply::Error) -> Result<Event, Error> {
    match error {
        apply::Error::Locked { .. } | apply::Error::Interfered { .. } | apply::Error::Units(_) => {
            Err(Error::Apply(error))
        }
        apply::Error::TooDisruptive { allowed, plan, .. } => {
            Ok(Event::Refused { reason: too_disruptive(&plan, allowed) })
        }
        error => Ok(Event::Refused { reason: apply::chain(&error) }),
    }
}

/// What was found, what was expected, which steps cost it, and the setting to try.
fn too_disruptive(plan: &Plan, allowed: Disruption) -> String {
    /// As many as a person reads in a status line.
    const SHOWN: usize = 5;

    let costly: Vec<_> = plan.steps.iter().filter(|step| step.disruption > allowed).collect();
    let mut named: Vec<_> =
        costly.iter().take(SHOWN).map(|step| format!("{} ({})", subject(step), step.disruption)).collect();
    if costly.len() > SHOWN {
        named.push(format!("and {} more", costly.len() - SHOWN));
    }
    format!(
        "the plan needs {} and at most {allowed} is allowed: {}; to allow it, set max_disruption = \"{}\"",
        plan.disruption,
        named.join(", "),
        plan.disruption
    )
}

fn subject(step: &PlannedStep) -> &str {
    match &step.subject {
        Subject::Path(subject) | Subject::Unit(subject) => subject,
    }
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|source| Error::System { what: "start a thread", source })
}
