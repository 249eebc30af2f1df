//! Owns: the service: carries out what [`crate::state`] asks for, one effect after the other.
//! Given a tree, settings and a clock, it gives a settled node, or a node that waits and says for what.
//! Never: decides what follows what, or changes the tree but through an apply's receipt.

use std::{collections::VecDeque, io::Write, ops::ControlFlow, path::PathBuf, sync::Arc};

use crate::{
    api::{
        error::{ApiError, Failure},
        resource::{MACHINE_CONFIG_POOLS, NODES},
        session::{Session, Trouble},
        types::{Node, PoolObject},
        watch::{Query, Update, follow},
    },
    apply::{self, Restored},
    approval::{self, Notice},
    clock::{Clock, rfc3339},
    config::Settings,
    desired::DESIRED_CONFIG,
    identity,
    node::Keeper,
    notify::Notifier,
    plan::Disruption,
    pull::{self, Hindrance, PoolNames, Pulled},
    reboot::Boot,
    record::{self, Record, RecordedPhase},
    report::Report,
    root::{self, Root},
    settle,
    state::{Effect, Event, IllegalTransition, State, next},
    status::Status,
    units::Units,
    wait,
};

mod change;
mod enrolling;

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
    /// The cheapest reboot that this systemd can do: also what a path costs that no rule knows, where the settings do
    /// not say.
    pub cheapest_reboot: Disruption,
    /// What runs.
    pub boot: Boot,
    /// The command that takes a reboot.
    pub systemctl: PathBuf,
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
    /// Units that the plan restarts or reloads; empty where nothing is done live.
    touched: Vec<String>,
    /// The plan acts on the running system.
    live: bool,
    /// Why its live actions were taken back.
    setback: Option<String>,
    /// What the plan costs.
    cost: Disruption,
    notify: Notifier,
}

/// Runs until the node is settled or goes down for a reboot.
pub fn run(given: Given<'_>) -> Result<Ending, Error> {
    let report = Report::read(&given.root)?.unwrap_or_default();
    let now = rfc3339(given.clock.wall_seconds());
    let boot = given.boot.clone();
    let mut record = Record::read(&given.root)?.unwrap_or_else(|| Record::new(boot.id.clone(), now));
    let rebooted = record.boot() != boot;
    (record.boot_id, record.soft_reboots) = (boot.id, boot.soft_reboots);
    let notify = Notifier::from_environment();
    notify.waiting();
    let mut run = Run {
        given,
        record,
        reason: None,
        report,
        session: None,
        keeper: None,
        pulled: None,
        touched: Vec::new(),
        live: false,
        setback: None,
        cost: Disruption::None,
        notify,
    };
    run.recover()?;
    settle::sweep(&run.given.root)?;
    run.begin_enrolling()?;

    let desired = run.record.desired.as_deref().unwrap_or_default();
    let handed_over = record::is_settled_at(&run.given.root, desired)?;
    let mut work = VecDeque::from(run.step(Event::Started { rebooted, handed_over })?);
    while let Some(effect) = work.pop_front() {
        match run.perform(effect)? {
            Done::Nothing => {}
            Done::Event(event) => work.extend(run.step(event)?),
            Done::Rebooting(kind) => return Ok(Ending::Rebooting(kind)),
        }
    }
    settle::forget_token(&run.given.root);
    Ok(Ending::Settled)
}

/// What an effect came to.
enum Done {
    Nothing,
    Event(Event),
    Rebooting(Disruption),
}

impl Run<'_> {
    /// One transition: remembered first, then told.
    fn step(&mut self, event: Event) -> Result<Vec<Effect>, Error> {
        let (state, effects) = next(&self.record.state, event)?;
        self.reason = None;
        // An enrolling agent is in front of the kubelet until the tree is right, or a person has to come first.
        if !matches!(state, State::Waiting | State::Approved | State::Pulled | State::Planned) {
            self.let_go()?;
        }
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
        self.notify.say(&line);
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
        match effect {
            Effect::Plan | Effect::Apply | Effect::LayDown | Effect::Verify => self.notify.working(),
            _ => self.notify.waiting(),
        }
        Ok(match effect {
            Effect::AwaitApproval => Done::Event(self.await_approval()?),
            Effect::Cordon => {
                self.keep_node(self.given.settings.cordon.value)?;
                Done::Nothing
            }
            Effect::Pull => Done::Event(self.pull()?),
            Effect::Plan => Done::Event(self.plan()?),
            Effect::Apply => Done::Event(self.apply()?),
            Effect::LayDown => Done::Event(self.lay_down()?),
            Effect::Verify => Done::Event(self.verify()),
            Effect::Reboot => self.reboot()?,
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
        self.enroll()?;
        let heard = approval::listen(&self.given.root, &self.given.clock, self.report.address())
            .map_err(|source| Error::System { what: "start a thread", source })?;
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

    fn keep_node(&mut self, cordon: bool) -> Result<(), Error> {
        if self.keeper.is_none() {
            let keeper = Keeper::start(self.node(), cordon, self.node_session(), self.node_session())
                .map_err(|source| Error::System { what: "start a thread", source })?;
            // Everything that was said before it came.
            let status = Status::new(&self.record, self.reason.as_deref());
            keeper.say(&status.state.to_string(), status.reason.as_deref().unwrap_or_default());
            self.keeper = Some(keeper);
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
                    self.expire()?;
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

    /// Hands over, and notes that only when it is done: until then every start comes here again.
    fn settle(&mut self) -> Result<(), Error> {
        let config = self.record.desired.clone().unwrap_or_default();
        let mcd_present = settle::mcd_present(&self.given.root, self.given.settings.mcd.value)?;
        // There is none after a restart. No cordon: one that is ours has to end now, and MCD may have ended it already.
        self.keep_node(false)?;
        if let Some(keeper) = self.keeper.take() {
            // A panic in there has been printed; the node is settled all the same.
            let _ = keeper.hand_over(&config, mcd_present).join();
        }
        Ok(settle::mark(&self.given.root, &config)?)
    }

    /// Blocks until the cluster says something else than it said when this configuration was refused.
    fn await_change(&mut self) -> Result<Event, Error> {
        self.pulled = None;
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
