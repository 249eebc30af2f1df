//! Owns: what a change disturbs, and what is done so that it takes effect.
//! Given a change, the phase and its rules; gives an [`Effect`].
//! Never acts.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Disruption, Phase, Policy,
    diff::is_empty_file,
    impact::{Impact, Rule},
    policy::{self, ActionKind},
    uses::Uses,
};
use crate::{
    ignition::Unit,
    root::split,
    tree::{Cause, Change, Entry, Make, Stage},
    unitfile::is_template,
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

    /// Both: the higher cost, and everything that either does.
    fn and(mut self, other: Effect) -> Effect {
        self.disruption = self.disruption.max(other.disruption);
        self.actions.extend(other.actions);
        self.why = format!("{}; {}", self.why, other.why);
        self
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
    users: BTreeMap<String, BTreeSet<String>>,
    /// Units that are not on the tree yet: nothing of them runs that a change could disturb.
    new_units: &'a BTreeSet<String>,
    /// The defaults, where the cluster's policy is not known.
    defaults: Policy,
}

impl<'a> Rules<'a> {
    /// Collects who uses what. `units` are those of the config, `known` what their texts do not say.
    pub fn new(
        phase: Phase,
        policy: Option<&'a Policy>,
        impact: &'a Impact,
        unknown: Disruption,
        units: &'a [Unit],
        known: &'a Uses,
    ) -> Rules<'a> {
        let (users, new_units) = (known.by_path(units), &known.new_units);
        Rules { phase, policy, impact, unknown, units, users, new_units, defaults: Policy::default_table() }
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
        let used = self.used(path, change);
        match (self.impact.prefix(path), used) {
            // Whoever looks after the folder takes the change up, and so does who uses this very path.
            (Some(rule), Some(used)) => by_rule(rule).and(used),
            (Some(rule), None) => by_rule(rule),
            (None, Some(used)) => used,
            (None, None) if change.make == Make::Dir => Effect::none("a folder"),
            (None, None) => Effect::of(self.unknown, Vec::new(), "no rule knows who reads it"),
        }
    }

    /// What the units of the config that use a path take from a change of it.
    fn used(&self, path: &str, change: &Change) -> Option<Effect> {
        let units = self.users.get(path).or_else(|| self.users.get(&change.path))?;
        let names: Vec<&str> = units.iter().map(String::as_str).collect();
        let runs_on = |u: &&String| {
            let ruled = self.impact.exact(&format!("/etc/systemd/system/{u}")).is_some();
            can_restart(u) && !ruled && !self.new_units.contains(*u)
        };
        let actions: Vec<Action> =
            units.iter().filter(runs_on).map(|u| Action::Unit(Job::TryRestart, u.clone())).collect();
        let disruption = if actions.is_empty() { Disruption::None } else { Disruption::Restart };
        Some(Effect::of(disruption, actions, format!("used by {}", names.join(", "))))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ignition::Dropin,
        tree::{Content, Digest},
    };

    const AGENT: &str = "[Unit]\nConditionPathExists=/etc/agent/on\n[Service]\nEnvironment=C=/etc/agent/current\nExecStart=/bin/bash -c 'x </etc/sysctl.d/90-x.conf'\n";

    fn units() -> Vec<Unit> {
        let dropins = vec![Dropin { name: "a.conf".to_owned(), contents: Some(AGENT.to_owned()) }];
        let old = Unit { name: "old.service".to_owned(), dropins, ..Unit::default() };
        let new =
            Unit { name: "new.service".to_owned(), contents: Some(AGENT.to_owned()), ..Unit::default() };
        vec![old, new]
    }

    fn change(path: &str, make: Make) -> Change {
        let file = |text: &[u8]| Entry::File { digest: Digest::of(text), mode: 0o644, uid: 0, gid: 0 };
        Change {
            path: path.to_owned(),
            from: file(b"old"),
            to: file(b"new"),
            make,
            stage: Stage::Files,
            cause: Cause::Path(path.to_owned()),
            kind: "write",
            reason: String::new(),
        }
    }

    fn effect(path: &str) -> (String, String) {
        let (impact, units) = (Impact::load([]).unwrap(), units());
        let links = [("/etc/agent/current", "v2/../v2.toml"), ("/etc/agent/v2.toml", "/etc/agent/real")];
        let uses = Uses {
            links: links.map(|(at, to)| (at.to_owned(), to.to_owned())).into(),
            new_units: ["new.service".to_owned()].into(),
        };
        let rules = Rules::new(Phase::FirstBoot, None, &impact, Disruption::SoftReboot, &units, &uses);
        let found = rules.effect(&change(path, Make::File(Content::new(*b"new"))));
        (format!("{}: {}", found.disruption, label(&found)), found.why)
    }

    #[test]
    fn a_path_that_a_unit_uses_takes_the_units_effect_and_its_folders() {
        let (found, why) = effect("/etc/sysctl.d/90-x.conf");
        assert_eq!(found, "restart: restart systemd-sysctl.service, try-restart old.service");
        assert_eq!(
            why,
            "systemd-sysctl.service sets kernel parameters from sysctl.d; used by new.service, old.service"
        );
        let (found, _) = effect("/etc/sysctl.d/91-y.conf");
        assert_eq!(found, "restart: restart systemd-sysctl.service", "nobody names this one");
    }

    #[test]
    fn what_only_units_use_takes_their_effect_and_who_uses_a_link_uses_its_target() {
        for path in ["/etc/agent/on", "/etc/agent/current", "/etc/agent/v2.toml", "/etc/agent/real"] {
            let (found, why) = effect(path);
            assert_eq!(found, "restart: try-restart old.service", "{path}: what is new does not run yet");
            assert_eq!(why, "used by new.service, old.service");
        }
        assert_eq!(effect("/etc/agent/other").0, "soft-reboot: soft-reboot");
    }

    #[test]
    fn the_dearer_of_the_two_counts() {
        let (impact, units) = (Impact::load([]).unwrap(), units());
        let unit = Unit {
            name: "t.service".to_owned(),
            contents: Some("[Service]\nExecStart=/bin/x /etc/tmpfiles.d/a.conf".to_owned()),
            ..Unit::default()
        };
        let (all, uses) = ([units, vec![unit]].concat(), Uses::default());
        let rules = Rules::new(Phase::FirstBoot, None, &impact, Disruption::SoftReboot, &all, &uses);
        let found = rules.effect(&change("/etc/tmpfiles.d/a.conf", Make::File(Content::new(*b"new"))));
        assert_eq!(found.disruption, Disruption::SoftReboot);
        assert_eq!(found.actions, [Action::Unit(Job::TryRestart, "t.service".to_owned())]);
    }
}
