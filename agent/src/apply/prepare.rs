//! Owns: the way from a request to everything that would be done: the only place where planning meets a tree.
//! Given a tree and a request; gives a [`Prepared`].
//! Never changes anything.

use std::collections::BTreeMap;

use super::{Error, Request};
use crate::{
    accounts::{self, Ensured},
    enablement::Farm,
    ignition::{self, Id, Owner, Target, User},
    labels::Labels,
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
/// Modes of account databases where a tree has none yet.
const DATABASE_MODE: u32 = 0o644;
/// The same where hashes are.
const HASHES_MODE: u32 = 0o600;
/// A new user's home, as `useradd` makes it with the defaults of Fedora and RHEL (`HOME_MODE` in login.defs).
const HOME_MODE: u32 = 0o700;
/// The one user that MCD knows.
const CORE: &str = "core";
/// A file that forces MCD's hand; MCD refuses configs that write it.
const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// Everything that would be done.
#[derive(Debug)]
pub struct Prepared {
    /// For people and for `--json`.
    pub plan: Plan,
    /// Changes of the tree, in order.
    pub changes: Vec<Change>,
    /// The SELinux label of what each change makes, where the tree has a policy.
    pub labels: Vec<Option<String>>,
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
    check_limits(request, &target, previous.as_ref())?;
    let os = os::steps(
        request.desired,
        request.current,
        &target.kargs,
        &previous.as_ref().map(|p| p.kargs.clone()).unwrap_or_default(),
    )
    .map_err(|e| Error::Refused(e.to_string()))?;

    let farm = observe::farm(root, &target, previous.as_ref())?;
    let mut notes = Vec::new();
    let ensured = ensured(root, &target, &mut notes)?;
    let accounts = ensured.accounts.clone();
    let originals = originals(root, &target, previous.as_ref())?;
    let facts = Facts { mcd: request.mcd_present, farm: &farm, accounts: &accounts, originals: &originals };
    let mut wants = wanted::wants(&target, previous.as_ref(), &facts);
    wants.accounts(account_wants(root, &ensured)?);
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
    notes.append(&mut wants.notes);
    notes.extend(target.warnings.iter().map(|w| format!("warning: {w}")));
    if observed.only_as.is_some() && !changes.is_empty() {
        notes.push("not root: owners are left as they are".to_owned());
    }
    let (plan, actions) = planned(request, &changes, &effects, &os);
    let labels = labels(root, &changes)?;
    Ok(Prepared { plan, changes, labels, actions, notes, os })
}

/// What a policy says about everything that is made; a second name of a file has that file's label.
fn labels(root: &Root, changes: &[Change]) -> Result<Vec<Option<String>>, Error> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let labels = Labels::load(root)?;
    let of = |change: &Change| match (&change.make, &change.from) {
        (Make::File(_), _) => labels.of(&change.path, Kind::File),
        (Make::Symlink, _) => labels.of(&change.path, Kind::Symlink),
        // A folder that is there keeps its label, as Ignition does.
        (Make::Dir, Entry::Absent) => labels.of(&change.path, Kind::Dir),
        (Make::Dir | Make::Hardlink(_) | Make::Absent, _) => Ok(None),
    };
    changes.iter().map(|change| Ok(of(change)?)).collect()
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
fn check_limits(request: &Request, target: &Target, previous: Option<&Target>) -> Result<(), Error> {
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
    // What has not changed was Ignition's to do.
    let nobody = Target::default();
    let before = previous.unwrap_or(&nobody);
    if target.groups != before.groups {
        return refuse("passwd.groups", "found another list of groups than before");
    }
    for user in target.users.iter().filter(|_| target.users != before.users) {
        if user.name != CORE {
            return refuse(&user.name, "found a user other than core");
        }
        let hash_and_keys = User { password_hash: None, ..user.clone() };
        if hash_and_keys.touches_accounts() || (user.ssh_keys.is_none() && user.password_hash.is_none()) {
            return refuse(&user.name, "found more or less than SSH keys and a password hash");
        }
    }
    Ok(())
}

/// Users and groups other than keys go through the system's own tools, which only root can give files away with.
fn ensured(root: &Root, target: &Target, notes: &mut Vec<String>) -> Result<Ensured, Error> {
    let touched = target.users.iter().find(|u| u.touches_accounts()).map(|u| u.name.as_str());
    let first = touched.or(target.groups.first().map(|g| g.name.as_str()));
    if let Some(name) = first.filter(|_| !nix::unistd::geteuid().is_root()) {
        notes.push(format!("{name}: not root: users, groups and password hashes are left as they are"));
        return Ok(Ensured { accounts: observe::accounts(root)?, ..Ensured::default() });
    }
    accounts::ensure(root, target).map_err(|e| match e {
        accounts::Error::Root(e) => Error::Io(e),
        e => Error::Refused(super::chain(&e)),
    })
}

/// Databases and homes as wants, like everything else that an apply changes.
fn account_wants(root: &Root, ensured: &Ensured) -> Result<Vec<Wanted>, Error> {
    let want = |path: String, node: Node, stage: Stage, kind: &'static str, reason: &str| Wanted {
        path,
        node,
        stage,
        cause: Cause::Accounts,
        kind,
        reason: reason.to_owned(),
    };
    let mut wants = Vec::new();
    for (name, text) in &ensured.databases {
        let path = format!("/etc/{name}");
        // Distributions differ in who may read them: as they are, or only by root.
        let now = root.lstat(&path)?;
        let (mode, owner) = match now {
            Some(now) => (now.mode, owned_by(now.uid, now.gid)),
            None => (if name.contains("shadow") { HASHES_MODE } else { DATABASE_MODE }, Owner::default()),
        };
        let node = owned_file(text.clone().into_bytes(), mode, owner);
        wants.push(want(path, node, Stage::Files, "accounts", "users and groups of the config"));
    }
    for (home, uid, gid) in &ensured.homes {
        let reason = "home of a new user";
        let owner = owned_by(*uid, *gid);
        let dir = Node::Dir { mode: None, new_mode: HOME_MODE, owner: owner.clone(), overwrite: false };
        if root.lstat(home)?.is_some() {
            continue; // somebody's already: left as it is, as useradd does
        }
        wants.push(want(home.clone(), dir, Stage::Directories, "mkdir", reason));
        for path in observe::below(root, paths::SKEL)? {
            let to = format!("{home}{}", &path[paths::SKEL.len()..]);
            let (node, stage) = match observe::entry(root, &path)? {
                Entry::File { mode, .. } => {
                    let bytes = root.read(&path)?.unwrap_or_default();
                    (owned_file(bytes, mode, owner.clone()), Stage::Files)
                }
                Entry::Dir { mode, .. } => {
                    let node =
                        Node::Dir { mode: None, new_mode: mode, owner: owner.clone(), overwrite: false };
                    (node, Stage::Directories)
                }
                Entry::Symlink { target, .. } => {
                    (Node::Symlink { target, owner: owner.clone(), overwrite: true }, Stage::Files)
                }
                Entry::Absent | Entry::Other => continue,
            };
            wants.push(want(to, node, stage, "write", reason));
        }
    }
    Ok(wants)
}

fn owned_by(uid: u32, gid: u32) -> Owner {
    Owner { user: Some(Id::Number(uid)), group: Some(Id::Number(gid)) }
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
    owned_file(bytes, mode, Owner::default())
}

fn owned_file(bytes: Vec<u8>, mode: u32, owner: Owner) -> Node {
    Node::File {
        content: Some(Content::new(bytes)),
        append: None,
        needs_bytes: false,
        mode: Some(mode),
        owner,
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
