//! Owns: what a change disturbs, and what is done so that it takes effect.
//! Given a change, the phase and its rules; gives an [`Effect`].
//! Never acts.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Disruption, Phase, Policy,
    diff::is_empty_file,
    impact::{Impact, Rule},
    policy::{self, ActionKind},
};
use crate::{
    ignition::Unit,
    root::split,
    tree::{Cause, Change, Entry, Make, Stage},
    unitfile::{is_template, used_paths},
    units::Job,
};

/// Something done to the running system after the files are there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// systemd reads its units again; once, first.
    DaemonReload,
    /// A job on a unit.
    Unit(Job, String),
    /// A unit is started if the target that wants it is active.
    StartFor {
        /// The unit.
        unit: String,
        /// What wants it.
        target: String,
    },
}

/// What a change disturbs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// How much.
    pub disruption: Disruption,
    /// What is done.
    pub actions: Vec<Action>,
    /// Why, for people.
    pub why: String,
}

impl Effect {
    fn none(why: &str) -> Effect {
        Effect { disruption: Disruption::None, actions: Vec::new(), why: why.to_owned() }
    }

    fn of(disruption: Disruption, actions: Vec<Action>, why: impl Into<String>) -> Effect {
        Effect { disruption, actions, why: why.into() }
    }
}

/// Everything that effects depend on.
#[derive(Debug)]
pub struct Rules<'a> {
    /// Which rules hold.
    pub phase: Phase,
    /// The cluster's policy.
    pub policy: Option<&'a Policy>,
    /// Impact rules.
    pub impact: &'a Impact,
    /// What nobody knows costs this.
    pub unknown: Disruption,
    /// Units of the config.
    pub units: &'a [Unit],
    /// Paths that units of the config use, with the units.
    pub users: BTreeMap<String, BTreeSet<String>>,
    /// The defaults, where the cluster's policy is not known.
    defaults: Policy,
}

impl<'a> Rules<'a> {
    /// Collects who uses what.
    pub fn new(
        phase: Phase,
        policy: Option<&'a Policy>,
        impact: &'a Impact,
        unknown: Disruption,
        units: &'a [Unit],
    ) -> Rules<'a> {
        let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for unit in units {
            let texts = unit.contents.iter().chain(unit.dropins.iter().filter_map(|d| d.contents.as_ref()));
            for path in texts.flat_map(|text| used_paths(text)) {
                users.entry(path).or_default().insert(unit.name.clone());
            }
        }
        Rules { phase, policy, impact, unknown, units, users, defaults: Policy::default_table() }
    }

    /// The effect of one change.
    pub fn effect(&self, change: &Change) -> Effect {
        match (&change.cause, self.phase) {
            (Cause::Record, _) => Effect::none("nothing on the system reads it"),
            (cause, Phase::Joined) => self.joined(cause),
            (Cause::Keys(_), _) => Effect::none("sshd reads keys at every login"),
            (Cause::Accounts, _) => Effect::none("accounts are looked up every time"),
            (Cause::Unit(unit), _) => self.unit(unit, change),
            (Cause::Path(path), _) => self.path(path, change),
        }
    }

    /// Node disruption policies and nothing else.
    fn joined(&self, cause: &Cause) -> Effect {
        let policy = self.policy.unwrap_or(&self.defaults);
        let found = match cause {
            Cause::Path(path) => policy.file(path).map(|p| (p.actions.as_slice(), p.path.as_str())),
            Cause::Unit(unit) => policy.unit(unit).map(|p| (p.actions.as_slice(), p.name.as_str())),
            Cause::Keys(_) | Cause::Accounts => Some((policy.sshkey.actions.as_slice(), "sshkey")),
            Cause::Record => Some((&[][..], "")),
        };
        match found {
            Some((actions, name)) => {
                converted(actions, self.phase, &format!("node disruption policy for {name}"))
            }
            None => Effect::of(Disruption::Reboot, Vec::new(), "no node disruption policy matches"),
        }
    }

    fn path(&self, path: &str, change: &Change) -> Effect {
        // Only a policy that names the path itself: a folder's policy was written for nodes with workloads.
        if let Some(policy) = self.policy.and_then(|p| p.exact_file(path)) {
            return converted(&policy.actions, self.phase, "the cluster's policy names this path");
        }
        if let Some(rule) = self.impact.exact(path) {
            return by_rule(rule);
        }
        if let Some(units) = self.users.get(path) {
            let names: Vec<&str> = units.iter().map(String::as_str).collect();
            let why = format!("used by {}", names.join(", "));
            let runs_on = |u: &&String| {
                can_restart(u) && self.impact.exact(&format!("/etc/systemd/system/{u}")).is_none()
            };
            let actions: Vec<Action> =
                units.iter().filter(runs_on).map(|u| Action::Unit(Job::TryRestart, u.clone())).collect();
            // What was not there before cannot have been used before.
            let costs = !actions.is_empty() && !change.from.is_absent();
            return Effect::of(if costs { Disruption::Restart } else { Disruption::None }, actions, why);
        }
        if let Some(rule) = self.impact.prefix(path) {
            return by_rule(rule);
        }
        if change.make == Make::Dir {
            return Effect::none("a folder");
        }
        Effect::of(self.unknown, Vec::new(), "no rule knows who reads it")
    }

    fn unit(&self, unit: &str, change: &Change) -> Effect {
        if let Some(policy) = self.policy.and_then(|p| p.unit(unit)) {
            return converted(&policy.actions, self.phase, "the cluster's policy names this unit");
        }
        if let Some(rule) = self.impact.exact(&change.path) {
            return by_rule(rule);
        }
        let stays_enabled =
            self.units.iter().any(|u| u.name == unit && u.enabled != Some(false) && u.mask != Some(true));
        let reload = Action::DaemonReload;
        match (change.stage, change.kind) {
            (Stage::Enable, _) => enabled(change),
            (Stage::Disable, _) if stays_enabled => {
                Effect::of(Disruption::None, vec![reload], "wanted by others than before")
            }
            (Stage::Disable, _) | (_, "mask") => stop(unit, "it is no longer wanted"),
            (Stage::RemoveUnits, _) if !change.path.contains(".d/") && change.kind == "remove" => {
                stop(unit, "it is gone")
            }
            _ => changed(unit, change, self.unknown),
        }
    }
}

/// A new link into a target's folder: the unit is started if that target is up.
fn enabled(change: &Change) -> Effect {
    let (folder, unit) = split(&change.path);
    let target = split(folder).1.rsplit_once('.').map(|(target, _)| target.to_owned());
    let mut actions = vec![Action::DaemonReload];
    match target.filter(|t| t.contains('.')) {
        Some(target) if !is_template(unit) => {
            let why = format!("started if {target} is active");
            actions.push(Action::StartFor { unit: unit.to_owned(), target });
            Effect::of(Disruption::None, actions, why)
        }
        _ => Effect::of(Disruption::None, actions, "another name of a unit"),
    }
}

fn stop(unit: &str, why: &str) -> Effect {
    let actions = vec![Action::DaemonReload, Action::Unit(Job::Stop, unit.to_owned())];
    Effect::of(Disruption::Restart, actions, format!("{why}: stopped if it runs"))
}

/// A unit file or drop-in that is new, different, or gone.
fn changed(unit: &str, change: &Change, unknown: Disruption) -> Effect {
    let reload = Action::DaemonReload;
    let dropin = change.path.contains(".d/");
    let says_nothing = |e: &Entry| e.is_absent() || is_empty_file(e);
    if dropin && says_nothing(&change.from) && says_nothing(&change.to) {
        return Effect::none("an empty drop-in says nothing");
    }
    if change.from.is_absent() && !dropin {
        return Effect::of(Disruption::None, vec![reload], "a new unit");
    }
    if is_template(unit) {
        return Effect::of(unknown, vec![reload], "any instance of it may be running");
    }
    let kind = unit.rsplit_once('.').map_or("", |(_, kind)| kind);
    match kind {
        _ if can_restart(unit) => Effect::of(
            Disruption::Restart,
            vec![reload, Action::Unit(Job::TryRestart, unit.to_owned())],
            "its unit changes: restarted if it runs",
        ),
        "target" | "slice" | "scope" => {
            Effect::of(Disruption::None, vec![reload], "ordering and limits, read at once")
        }
        _ => Effect::of(unknown, vec![reload], "mounts and devices in use are not taken away"),
    }
}

fn can_restart(unit: &str) -> bool {
    let kind = unit.rsplit_once('.').map_or("", |(_, kind)| kind);
    matches!(kind, "service" | "socket" | "timer" | "path") && !is_template(unit)
}

fn by_rule(rule: &Rule) -> Effect {
    let job = match rule.action {
        Disruption::Reload => Some(Job::Reload),
        Disruption::Restart if rule.always => Some(Job::Restart),
        Disruption::Restart => Some(Job::TryRestart),
        _ => None,
    };
    let actions = job.zip(rule.unit.clone()).map(|(job, unit)| Action::Unit(job, unit));
    Effect::of(rule.action, actions.into_iter().collect(), rule.why.clone())
}

fn converted(actions: &[policy::Action], phase: Phase, why: &str) -> Effect {
    let mut effect = Effect::none(why);
    for action in actions {
        let (cost, done) = match action.kind {
            ActionKind::None => (Disruption::None, None),
            ActionKind::DaemonReload => (Disruption::None, Some(Action::DaemonReload)),
            ActionKind::Reload => {
                let unit = action.reload.as_ref().map(|s| s.name.clone());
                (Disruption::Reload, unit.map(|u| Action::Unit(Job::Reload, u)))
            }
            ActionKind::Restart => {
                let unit = action.restart.as_ref().map(|s| s.name.clone());
                (Disruption::Restart, unit.map(|u| Action::Unit(Job::Restart, u)))
            }
            // There is nothing to drain before a node has ever been Ready; later only the controller can.
            ActionKind::Drain if phase == Phase::FirstBoot => (Disruption::None, None),
            ActionKind::Special if phase == Phase::FirstBoot => {
                (Disruption::Reload, Some(Action::Unit(Job::Reload, "crio.service".to_owned())))
            }
            ActionKind::Drain | ActionKind::Special | ActionKind::Reboot => (Disruption::Reboot, None),
        };
        effect.disruption = effect.disruption.max(cost);
        effect.actions.extend(done);
    }
    effect
}

/// All actions of a plan, once each, in a fixed order: reload of systemd, stops, what others depend on, the rest, starts.
pub fn ordered<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> Vec<Action> {
    let all: BTreeSet<Action> = effects.into_iter().flat_map(|e| e.actions.iter().cloned()).collect();
    let strongest = |unit: &str| {
        let jobs = [Job::Stop, Job::Restart, Job::TryRestart, Job::Reload];
        jobs.into_iter().find(|job| all.contains(&Action::Unit(*job, unit.to_owned())))
    };
    let mut actions: Vec<Action> = all
        .iter()
        .filter(|action| match action {
            // Of several jobs on one unit the strongest is enough; a unit that is stopped is not started.
            Action::Unit(job, unit) => strongest(unit) == Some(*job),
            Action::StartFor { unit, .. } => strongest(unit) != Some(Job::Stop),
            Action::DaemonReload => true,
        })
        .cloned()
        .collect();
    actions.sort_by_cached_key(|action| match action {
        Action::DaemonReload => (0, String::new()),
        Action::Unit(Job::Stop, unit) => (1, unit.clone()),
        // systemd's own (sysctl, sysusers, modules) prepare the ground for the others.
        Action::Unit(_, unit) if unit.starts_with("systemd-") => (2, unit.clone()),
        Action::Unit(_, unit) => (3, unit.clone()),
        Action::StartFor { unit, target } => (4, format!("{unit} {target}")),
    });
    actions
}

/// For people: what an effect amounts to.
pub fn label(effect: &Effect) -> String {
    if effect.disruption.is_reboot() {
        return effect.disruption.to_string();
    }
    let mut parts: Vec<String> = Vec::new();
    for action in &effect.actions {
        match action {
            Action::DaemonReload => {}
            Action::Unit(job, unit) => parts.push(format!("{} {unit}", job.verb())),
            Action::StartFor { unit, .. } => parts.push(format!("start {unit}")),
        }
    }
    if parts.is_empty() { effect.disruption.to_string() } else { parts.join(", ") }
}
