//! Owns: the service's part between a pulled configuration and a changed node: plan, apply, gate, second attempt, the reboot.
//! Given what was pulled it gives the event that follows.
//! Never: changes the tree but through an apply's receipt, or takes a reboot that is not in the record already.

use std::cell::RefCell;

use super::{Done, Error, Run};
use crate::{
    api::{resource::NODES, session::Session, types::Node},
    apply::{self, Applied, Prepared, Progress, Request},
    health::{self, Before, Next, Setback},
    plan::{Disruption, Phase, Plan, effect::Action, table},
    reboot::{self, Due},
    refusal::{self, current_config, default_cap, refused, too_disruptive},
    settle,
    state::Event,
    units::{Job, NoUnits, Units},
    verify,
};

impl Run<'_> {
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
            unknown_path: settings.unknown_path.value.unwrap_or(self.given.cheapest_reboot),
            mcd_present: settle::mcd_present(&self.given.root, settings.mcd.value)?,
            settle: true,
        };
        Ok(use_it(&request))
    }

    pub(super) fn plan(&mut self) -> Result<Event, Error> {
        let planned = self.with_request(|request| {
            apply::prepare_all(&self.given.root, request).map(|prepared| (prepared, request.max_disruption))
        })?;
        let (Prepared { plan, notes, actions, .. }, allowed) = match planned {
            Ok(planned) => planned,
            Err(error) => return refused(error).map_err(Error::Apply),
        };
        for note in &notes {
            tracing::warn!("{note}");
        }
        self.print(&plan)?;
        if plan.disruption > allowed {
            return Ok(Event::Refused { reason: too_disruptive(&plan, allowed) });
        }
        self.forget_other_reboot();
        if plan.disruption.is_reboot() && self.rebooted() {
            let reason = format!("it has had its one reboot and needs another: {}", refusal::costly(&plan));
            return Ok(Event::Refused { reason });
        }
        self.cost = plan.disruption;
        self.touched = if self.is_live() { touched(&actions) } else { Vec::new() };
        self.live = self.is_live() && !actions.is_empty();
        Ok(Event::Planned)
    }

    /// Whether things are done live here, and reboots taken: not on a tree that is not running.
    fn is_live(&self) -> bool {
        self.given.root.is_system()
    }

    /// A reboot that another configuration needed is nothing to this one.
    fn forget_other_reboot(&mut self) {
        let desired = self.record.desired.as_ref();
        self.record.reboot = self.record.reboot.take().filter(|due| Some(&due.config) == desired);
    }

    /// Whether the desired configuration has had its one reboot.
    fn rebooted(&self) -> bool {
        self.record.reboot.as_ref().is_some_and(|due| due.ordered)
    }

    fn print(&mut self, plan: &Plan) -> Result<(), Error> {
        let printed = write!(self.given.out, "{}", table::render(plan)).and_then(|()| self.given.out.flush());
        printed.map_err(|source| Error::System { what: "print the plan", source })
    }

    pub(super) fn apply(&mut self) -> Result<Event, Error> {
        if let Some(seed) = self.pulled.as_ref().and_then(|pulled| pulled.reseed.as_ref()) {
            settle::reseed(&self.given.root, seed)?;
            tracing::info!(config = %seed.config, "the pool has moved on: the seed now names {}", seed.config);
        }
        if self.cost.is_reboot() {
            self.owe(self.cost)?;
        }
        let before = Before::look(self.given.units, &self.touched).map_err(|e| Error::Apply(e.into()))?;
        let session = RefCell::new(self.session());
        let gate = || if self.is_live() { self.gate(&before, &session) } else { Ok(()) };
        let applied = self.apply_with(self.given.units, &gate)?;
        self.session = Some(session.into_inner());
        match applied {
            Err(apply::Error::RolledBack { cause }) => self.setback(cause, true),
            Err(error @ apply::Error::RollbackIncomplete { .. }) => self.setback(error.to_string(), false),
            other => self.applied(other),
        }
    }

    /// The second attempt: nothing but files, and the one reboot for the rest.
    pub(super) fn lay_down(&mut self) -> Result<Event, Error> {
        match self.apply_with(&NoUnits, &|| Ok(()))? {
            Err(error @ (apply::Error::RolledBack { .. } | apply::Error::RollbackIncomplete { .. })) => {
                self.record.reboot = None;
                Ok(Event::RolledBack { reason: error.to_string() })
            }
            other => self.applied(other),
        }
    }

    fn apply_with(
        &self,
        units: &dyn Units,
        gate: &apply::Gate<'_>,
    ) -> Result<Result<Applied, apply::Error>, Error> {
        let mut progress = |progress| {
            self.notify.alive();
            match progress {
                Progress::Note(_) => {} // said when it was planned
                Progress::Phase(phase) => tracing::debug!("apply: {phase}"),
                Progress::Unit(verb, unit) => tracing::info!("{verb} {unit}"),
            }
        };
        self.with_request(|request| apply::apply_gated(&self.given.root, request, units, gate, &mut progress))
    }

    fn applied(&mut self, applied: Result<Applied, apply::Error>) -> Result<Event, Error> {
        let applied = match applied {
            Ok(applied) => applied,
            Err(error) => {
                self.record.reboot = self.record.reboot.take().filter(|due| due.ordered);
                return refused(error).map_err(Error::Apply);
            }
        };
        tracing::info!(
            files = applied.files_written,
            units = applied.units_changed,
            "{} paths changed, {} units",
            applied.files_written,
            applied.units_changed
        );
        self.record.applied.clone_from(&self.record.desired);
        self.record.files_written = applied.files_written as u64;
        self.record.reboot_needed = self.due().or(applied.reboot_needed);
        Ok(Event::Applied)
    }

    /// Whether what ran still runs, and the cluster answers this node.
    fn gate(&self, before: &Before, session: &RefCell<Session>) -> Result<(), String> {
        let (name, timeout) = (self.node(), self.given.settings.health_timeout.value);
        health::gate(before, &*self.given.clock, timeout, || {
            self.notify.alive();
            let answer = session.borrow_mut().attempt(|client| client.get::<Node>(&NODES, &name));
            before.again(self.given.units, health::reachable(answer))
        })
    }

    /// An apply was taken back: whether there is a second way.
    fn setback(&mut self, cause: String, complete: bool) -> Result<Event, Error> {
        let setback = Setback {
            complete,
            live: self.live,
            reboot: self.cost.max(self.given.cheapest_reboot),
            allowed: self.with_request(|request| request.max_disruption)?,
            rebooted: self.rebooted(),
        };
        self.record.reboot = self.record.reboot.take().filter(|due| due.ordered);
        Ok(match health::next(setback) {
            Next::Stay => Event::RolledBack { reason: cause },
            Next::Block(why) => Event::Refused { reason: format!("{cause}; everything was put back; {why}") },
            Next::FilesOnly(kind) => {
                tracing::warn!("{cause}; everything was put back; once more as files only, with a {kind}");
                self.owe(kind)?;
                self.setback = Some(cause);
                Event::LiveFailed
            }
        })
    }

    /// Notes, before anything is laid down, that this configuration needs a reboot: a crash right after the apply would
    /// otherwise find nothing left to do and call that settled.
    fn owe(&mut self, kind: Disruption) -> Result<(), Error> {
        if !self.is_live() {
            return Ok(());
        }
        let config = self.record.desired.clone().unwrap_or_default();
        self.record.reboot = Some(Due { config, kind, boot: self.given.boot.clone(), ordered: false });
        Ok(self.record.write(&self.given.root)?)
    }

    /// The reboot that is due and has not happened.
    fn due(&self) -> Option<Disruption> {
        let due = self.record.reboot.as_ref()?;
        (!due.is_over(&self.given.boot)).then_some(due.kind)
    }

    pub(super) fn verify(&self) -> Event {
        let pulled = self.pulled.as_ref().expect("a verification follows a pull");
        let mismatches = verify::verify(&self.given.root, &pulled.config);
        if let Some(first) = mismatches.first() {
            let reason = format!("{first} ({} in all); see: oneboot-agent verify", mismatches.len());
            return Event::Refused { reason };
        }
        if let Some(kind) = self.record.reboot_needed.filter(|_| !self.is_live()) {
            tracing::warn!(
                "{kind} is needed before all of it takes effect; a tree that is not running has none"
            );
        }
        Event::Verified { reboot: self.due().is_some() }
    }

    /// Takes the one reboot: noted first, so that whatever happens it is not taken twice.
    pub(super) fn reboot(&mut self) -> Result<Done, Error> {
        let Some(kind) = self.due() else { return Ok(Done::Nothing) };
        if let Some(due) = self.record.reboot.as_mut().filter(|due| !due.ordered) {
            due.ordered = true;
            self.record.reboots_taken += 1;
        }
        self.record.write(&self.given.root)?;
        let config = self.record.desired.as_deref().unwrap_or_default();
        let because = self.setback.as_ref().map(|cause| format!(", because {cause}")).unwrap_or_default();
        self.because(format!("{kind} for {config}{because}"))?;
        Ok(match reboot::take(&self.given.systemctl, kind) {
            Ok(()) => Done::Rebooting(kind),
            Err(error) => Done::Event(Event::Refused { reason: apply::chain(&error) }),
        })
    }
}

/// The units that a plan restarts or reloads: what has to be up again. One that it stops is not.
fn touched(actions: &[Action]) -> Vec<String> {
    let again = |action: &Action| match action {
        Action::Unit(Job::Restart | Job::TryRestart | Job::Reload, unit) => Some(unit.clone()),
        _ => None,
    };
    actions.iter().filter_map(again).collect()
}
