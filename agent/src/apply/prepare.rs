//! Owns: the way from a request to everything that would be done: the only place where planning meets a tree.
//! Given a tree and a request; gives a [`Prepared`].
//! Never changes anything.

use std::collections::BTreeMap;

use super::{Error, Request};
use crate::{
    enablement::Farm,
    ignition::{self, Owner, Target},
    observe, paths,
    plan::{
        Disruption, Impact, Plan, PlannedStep, Subject,
        diff::{self, Refusal},
        effect::{self, Action, Effect, Rules},
        os,
        uses::{self, Uses},
        wanted::{self, Facts, Node, Original, Originals, Wanted},
    },
    root::{Kind, Root, has_extension},
    tree::{Cause, Change, Content, Entry, Make, Stage},
};

/// MCD's own files are 0644; what holds every secret of the node is not.
const CURRENT_CONFIG_MODE: u32 = 0o600;
/// MCD's stamps.
const STAMP_MODE: u32 = 0o644;
/// A file that forces MCD's hand; MCD refuses configs that write it.
const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// Everything that would be done.
#[derive(Debug)]
pub struct Prepared {
    /// For people and for `--json`.
    pub plan: Plan,
    /// Changes of the tree, in order.
    pub changes: Vec<Change>,
    /// What is done afterwards, where the tree is the running system's.
    pub actions: Vec<Action>,
    /// Said once.
    pub notes: Vec<String>,
    /// Some of it can only be staged for the next boot.
    pub os: Vec<PlannedStep>,
}

/// Reads, compares, and decides; refuses what can never be done.
pub(super) fn prepare(root: &Root, request: &Request) -> Result<Prepared, Error> {
    let target = read(request.desired)?;
    let previous = request.current.map(read).transpose()?;
    check_limits(request, &target)?;
    let os = os::steps(
        request.desired,
        request.current,
        &target.kargs,
        &previous.as_ref().map(|p| p.kargs.clone()).unwrap_or_default(),
    )
    .map_err(|e| Error::Refused(e.to_string()))?;

    let farm = observe::farm(root, &target, previous.as_ref())?;
    let accounts = observe::accounts(root)?;
    let originals = originals(root, &target, previous.as_ref())?;
    let facts = Facts { mcd: request.mcd_present, farm: &farm, accounts: &accounts, originals: &originals };
    let mut wants = wanted::wants(&target, previous.as_ref(), &facts);
    if request.settle {
        wants.list.push(current_config(request)?);
    }
    let observed = observe::observe(root, &wants.list, accounts.clone())?;
    let mut changes = diff::changes(&wants.list, &observed).map_err(|e| refused(&e))?;
    if request.mcd_present {
        let backups = backups(root, &changes)?;
        let seen = observe::observe(root, &backups, accounts)?;
        let more = diff::changes(&backups, &seen).map_err(|e| refused(&e))?;
        changes = merged(changes, more);
    }
    // The lock's folder is made before anything else, and is not the config's.
    changes.retain(|c| {
        !(c.make == Make::Dir && below_or_equal(paths::STATE_DIR, &c.path) && c.from.is_absent())
    });

    let impact = Impact::load(impact_files(root)?).map_err(|e| Error::Refused(e.to_string()))?;
    let uses = uses(root, &target, &farm)?;
    let rules =
        Rules::new(request.phase, request.policy, &impact, request.unknown_path, &target.units, &uses);
    let effects: Vec<Effect> = changes.iter().map(|c| rules.effect(c)).collect();
    let mut notes = wants.notes;
    notes.extend(target.warnings.iter().map(|w| format!("warning: {w}")));
    accounts_note(root, &target, &mut notes)?;
    if observed.only_as.is_some() && !changes.is_empty() {
        notes.push("not root: owners are left as they are".to_owned());
    }
    let (plan, actions) = planned(request, &changes, &effects, &os);
    Ok(Prepared { plan, changes, actions, notes, os })
}

/// The target of a config.
pub fn read(config: &crate::machineconfig::MachineConfig) -> Result<Target, Error> {
    ignition::read(&config.spec.config, !config.bare).map_err(|e| Error::Refused(e.to_string()))
}

fn refused(e: &Refusal) -> Error {
    Error::Refused(e.to_string())
}

/// Whether `path` is `top` or one of its parents.
fn below_or_equal(top: &str, path: &str) -> bool {
    top == path || top.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
}

/// What MCD's validation can never accept is refused by name where an MCD will look (facts/mco.md 4.1).
fn check_limits(request: &Request, target: &Target) -> Result<(), Error> {
    if !request.mcd_present {
        return Ok(());
    }
    let refuse = |entry: &str, message: &str| {
        Err(Error::Refused(format!(
            "{entry}: {message}, which the machine config daemon can never accept; leave it out, or run with --mcd absent where there is none"
        )))
    };
    for file in &target.files {
        if file.append.is_some() {
            return refuse(&file.path, "found `append`");
        }
        if file.mode.is_some_and(|m| m > 0o777) {
            return refuse(&file.path, "found a mode above 0777");
        }
        if file.path == FORCE_FILE {
            return refuse(&file.path, "found its force file");
        }
    }
    Ok(())
}

/// Users and groups other than keys go through the system's own tools, which need root.
fn accounts_note(root: &Root, target: &Target, notes: &mut Vec<String>) -> Result<(), Error> {
    let touched = target.users.iter().find(|u| u.touches_accounts()).map(|u| u.name.as_str());
    let Some(name) = touched.or(target.groups.first().map(|g| g.name.as_str())) else { return Ok(()) };
    if nix::unistd::geteuid().is_root() && root.is_system() {
        return Err(Error::Refused(format!(
            "{name}: users, groups and password hashes are not laid down yet; only SSH keys are"
        )));
    }
    notes.push(format!(
        "{name}: users, groups and password hashes are left alone in this tree; SSH keys are laid down"
    ));
    Ok(())
}

fn current_config(request: &Request) -> Result<Wanted, Error> {
    let bytes = serde_json::to_vec(&request.desired.raw)
        .map_err(|_| Error::Refused("the MachineConfig cannot be written as JSON".to_owned()))?;
    Ok(Wanted {
        path: paths::CURRENT_CONFIG.to_owned(),
        node: file(bytes, CURRENT_CONFIG_MODE),
        stage: Stage::Settle,
        cause: Cause::Record,
        kind: "record",
        reason: "the MachineConfig that this tree is at, written last".to_owned(),
    })
}

fn file(bytes: Vec<u8>, mode: u32) -> Node {
    Node::File {
        content: Some(Content::new(bytes)),
        append: None,
        needs_bytes: false,
        mode: Some(mode),
        owner: Owner::default(),
        overwrite: true,
    }
}

/// What MCD or we have kept of files that are no longer wanted.
fn originals(root: &Root, target: &Target, previous: Option<&Target>) -> Result<Originals, Error> {
    let mut originals = Originals::default();
    let Some(previous) = previous else { return Ok(originals) };
    for path in wanted::stale_files(target, previous) {
        let backup = wanted::backup_path(&path);
        let entry = observe::entry(root, &backup)?;
        if let (Entry::File { .. }, Some(bytes)) = (&entry, root.read(&backup)?) {
            let shipped = root.lstat(&format!("/usr{path}"))?.is_some();
            originals.files.insert(path, Original { backup, content: Content::new(bytes), entry, shipped });
        }
    }
    Ok(originals)
}

/// Backups and stamps as MCD would have made them for what is about to be replaced (facts/mco.md 4.5).
///
/// MCD also asks rpm who owns a path; on image-based systems that is the same as asking whether `/usr/etc` has it.
fn backups(root: &Root, changes: &[Change]) -> Result<Vec<Wanted>, Error> {
    let mut wants = BTreeMap::new();
    for change in changes.iter().filter(|c| matches!(c.make, Make::File(_))) {
        let path = change.path.as_str();
        let shipped = path.starts_with("/etc/") && root.lstat(&format!("/usr{path}"))?.is_some();
        let was_file = matches!(change.from, Entry::File { .. });
        let (backup, stamp) = (wanted::backup_path(path), wanted::stamp_path(path));
        let mut want = |path: String, node: Node, of: &str| {
            let reason = format!("backup of {of}, as the machine config daemon keeps it");
            let kind = if node == Node::Absent { "remove" } else { "backup" };
            let stage = Stage::Files;
            wants.insert(path.clone(), Wanted { path, node, stage, cause: Cause::Record, kind, reason });
        };
        match &change.cause {
            Cause::Path(_) if shipped && was_file && root.lstat(&backup)?.is_none() => {
                let Entry::File { mode, .. } = change.from else { continue };
                let bytes = root.read(path)?.unwrap_or_default();
                want(backup, file(bytes, mode), path);
            }
            Cause::Path(_)
                if !(shipped && was_file) && change.kind == "write" && root.lstat(&stamp)?.is_none() =>
            {
                want(stamp, file(Vec::new(), STAMP_MODE), path);
            }
            Cause::Unit(_) if shipped && root.lstat(&backup)?.is_none() => {
                let original = format!("/usr{path}");
                if let Some(bytes) = root.read_following(&original)? {
                    want(backup, file(bytes, STAMP_MODE), path);
                }
            }
            _ => {}
        }
    }
    Ok(wants.into_values().collect())
}

/// Two lists of changes as one, in order; a folder that both make is made once.
fn merged(mut changes: Vec<Change>, more: Vec<Change>) -> Vec<Change> {
    for change in more {
        if !changes.iter().any(|c| c.path == change.path && c.make == Make::Dir && change.make == Make::Dir) {
            changes.push(change);
        }
    }
    changes.sort_by_cached_key(diff::order);
    changes
}

/// Links that lead from what units name to what they really read: those of the config, and of the tree where it has none.
fn uses(root: &Root, target: &Target, farm: &Farm) -> Result<Uses, Error> {
    let new_units =
        target.units.iter().map(|u| u.name.clone()).filter(|name| !farm.before.contains_key(name));
    let mut uses = Uses { new_units: new_units.collect(), ..Uses::default() };
    let mut todo: Vec<String> = uses::named(&target.units).into_iter().map(|(_, path)| path).collect();
    while let Some(path) = todo.pop() {
        let wanted = target.links.iter().find(|l| l.path == path && !l.hard).map(|l| l.target.clone());
        let found = match wanted {
            Some(wanted) => Some(wanted),
            None if root.lstat(&path)?.is_some_and(|s| s.kind == Kind::Symlink) => {
                Some(root.readlink(&path)?)
            }
            None => None,
        };
        if let Some(found) = found
            && !uses.links.contains_key(&path)
        {
            todo.push(uses::absolute(&path, &found));
            uses.links.insert(path, found);
        }
    }
    Ok(uses)
}

fn impact_files(root: &Root) -> Result<Vec<(String, String)>, Error> {
    let mut files = Vec::new();
    for dir in paths::IMPACT_DIRS {
        for name in root.list(dir)?.into_iter().filter(|n| has_extension(n, "toml")) {
            if let Some(bytes) = root.read_following(&format!("{dir}/{name}"))? {
                files.push((name, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
    }
    Ok(files)
}

/// The plan that is shown, and the actions that a live apply takes.
fn planned(
    request: &Request,
    changes: &[Change],
    effects: &[Effect],
    os: &[PlannedStep],
) -> (Plan, Vec<Action>) {
    let mut steps: Vec<PlannedStep> = changes
        .iter()
        .zip(effects)
        .map(|(change, effect)| PlannedStep {
            kind: change.kind,
            subject: Subject::Path(change.path.clone()),
            reason: why(change, effect),
            from: change.from.to_string(),
            to: change.to.to_string(),
            disruption: effect.disruption,
            effect: effect::label(effect),
        })
        .collect();
    steps.extend(os.iter().cloned());
    let disruption = steps.iter().map(|s| s.disruption).max().unwrap_or_default();
    // A reboot does all of it; acting before it would only disturb twice.
    let actions = if disruption.is_reboot() { Vec::new() } else { effect::ordered(effects) };
    steps.extend(actions.iter().map(action_step));
    (Plan { format: 1, phase: request.phase, disruption, steps }, actions)
}

fn why(change: &Change, effect: &Effect) -> String {
    match change.cause {
        Cause::Record => change.reason.clone(),
        Cause::Path(_) if change.kind != "remove" => effect.why.clone(),
        _ => format!("{}; {}", change.reason, effect.why),
    }
}

fn action_step(action: &Action) -> PlannedStep {
    let (kind, unit, reason, disruption) = match action {
        Action::DaemonReload => {
            ("daemon-reload", "systemd".to_owned(), "units changed".to_owned(), Disruption::None)
        }
        Action::Unit(job, unit) => {
            let cost =
                if *job == crate::units::Job::Reload { Disruption::Reload } else { Disruption::Restart };
            (job.verb(), unit.clone(), "so that the change takes effect".to_owned(), cost)
        }
        Action::StartFor { unit, target } => {
            ("start", unit.clone(), format!("if {target} is active"), Disruption::None)
        }
    };
    PlannedStep {
        kind,
        subject: Subject::Unit(unit),
        reason,
        from: String::new(),
        to: String::new(),
        disruption,
        effect: String::new(),
    }
}
