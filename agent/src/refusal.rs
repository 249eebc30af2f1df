//! Owns: what `run` may do on its own, and the words for what it may not.
//! Given a plan or an apply's error it gives the event, with a reason for a person.
//! Never: changes anything.

use crate::{
    apply,
    machineconfig::MachineConfig,
    paths,
    plan::{Disruption, Phase, Plan, PlannedStep, Subject},
    root::{self, Root},
    state::Event,
};

/// The configuration that the tree is at, as far as the last one to change it wrote it down.
pub(crate) fn current_config(root: &Root) -> Result<Option<MachineConfig>, root::Error> {
    let bytes = root.read(paths::CURRENT_CONFIG)?;
    Ok(bytes.and_then(|bytes| MachineConfig::parse(&bytes).ok()))
}

/// What the agent does on its own (design 4.4).
pub(crate) const fn default_cap(phase: Phase) -> Disruption {
    match phase {
        Phase::FirstBoot => Disruption::Reboot,
        Phase::Joined => Disruption::Restart,
    }
}

/// An apply that changed nothing: what is wrong with the configuration blocks the node, what is wrong with the
/// machine ends the service, to be started again.
pub(crate) fn refused(error: apply::Error) -> Result<Event, apply::Error> {
    match error {
        apply::Error::Locked { .. } | apply::Error::Interfered { .. } | apply::Error::Units(_) => Err(error),
        apply::Error::TooDisruptive { allowed, plan, .. } => {
            Ok(Event::Refused { reason: too_disruptive(&plan, allowed) })
        }
        error => Ok(Event::Refused { reason: apply::chain(&error) }),
    }
}

/// What was found, what was expected, which steps cost it, and the setting to try.
pub(crate) fn too_disruptive(plan: &Plan, allowed: Disruption) -> String {
    format!(
        "the plan needs {} and at most {allowed} is allowed: {}; to allow it, set max_disruption = \"{}\"",
        plan.disruption,
        costing_more_than(plan, allowed),
        plan.disruption
    )
}

/// The steps that need a reboot.
pub(crate) fn costly(plan: &Plan) -> String {
    costing_more_than(plan, Disruption::Restart)
}

fn costing_more_than(plan: &Plan, allowed: Disruption) -> String {
    /// As many as a person reads in a status line.
    const SHOWN: usize = 5;

    let costly: Vec<_> = plan.steps.iter().filter(|step| step.disruption > allowed).collect();
    let mut named: Vec<_> =
        costly.iter().take(SHOWN).map(|step| format!("{} ({})", subject(step), step.disruption)).collect();
    if costly.len() > SHOWN {
        named.push(format!("and {} more", costly.len() - SHOWN));
    }
    named.join(", ")
}

fn subject(step: &PlannedStep) -> &str {
    match &step.subject {
        Subject::Path(subject) | Subject::Unit(subject) => subject,
    }
}
