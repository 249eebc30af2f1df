//! Owns: the protocol of an apply: receipt, temporary files, barrier, renames, barrier, actions, verification, settled, closed.
//! Given records with content; gives the new tree, or the old one and the reason.
//! Never runs two steps at once: the file phase is one thread in one order.

use std::{collections::BTreeSet, io::Write};

use super::{
    Error, Progress,
    receipt::{self, Receipt},
    step::{Record, Step},
    undo,
};
use crate::{
    observe,
    plan::effect::Action,
    root::{self, Root, split},
    sysctl::{self, Kernel},
    tree::{Change, Content, Entry, Make, Stage},
    units::{Job, Units},
};

/// What the protocol is given.
pub(super) struct Work<'a> {
    pub root: &'a Root,
    pub changes: &'a [Change],
    /// The SELinux label of what each change makes.
    pub labels: &'a [Option<String>],
    pub actions: &'a [Action],
    pub units: &'a dyn Units,
    /// The kernel whose parameters the actions may set; none where the tree is not the running system's.
    pub kernel: Option<&'a Kernel>,
    pub desired: &'a str,
    pub deployment: Option<String>,
    /// Run after the actions; what it lists undoes everything.
    pub verify: &'a dyn Fn() -> Result<Vec<String>, Error>,
}

/// What it did to units.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub units_changed: usize,
    pub warnings: Vec<String>,
}

/// Runs the whole protocol.
pub(super) fn run(work: &Work, progress: &mut dyn FnMut(Progress)) -> Result<Done, Error> {
    let root = work.root;
    receipt::prune(root)?;
    let id = receipt::next_id(root)?;
    let mut steps: Vec<Record> =
        work.changes.iter().enumerate().map(|(n, c)| Record::new(c, id, n)).collect();
    for record in steps.iter_mut().filter(|r| matches!(r.from, Entry::Symlink { .. } | Entry::Dir { .. })) {
        record.label = root.label(&record.path)?;
    }
    let receipt = Receipt {
        format: receipt::FORMAT,
        id,
        deployment: work.deployment.clone(),
        desired: work.desired.to_owned(),
        steps,
        sysctls: work.kernel.map(|kernel| kernel.values(sysctl_texts(work.changes))),
    };
    progress(Progress::Phase("receipt"));
    if let Err(e) = receipt.write(root) {
        // Nothing has changed yet; what was written of the receipt is of no use.
        let _ = receipt.discard(root);
        return Err(e);
    }
    let mut reached = Reached::default();
    let outcome = forward(work, &receipt, &mut reached, progress);
    match outcome {
        Ok(done) => {
            // Complete and closed; old receipts are a matter of tidiness now.
            let _ = receipt::prune(root);
            Ok(done)
        }
        Err(cause) => {
            progress(Progress::Phase("rollback"));
            let mut left = undo::undo(root, &receipt, Some(&reached.steps));
            restart_old(work, &reached);
            // Last: the old files do not name what only the new ones have set.
            if let (Ok(left), Some(kernel), Some(old)) = (&mut left, work.kernel, &receipt.sysctls) {
                left.extend(kernel.restore(old));
            }
            let cause = crate::apply::chain(&cause);
            match left {
                Ok(left) if left.is_empty() => {
                    receipt.discard(root)?;
                    Err(Error::RolledBack { cause })
                }
                Ok(left) => Err(Error::RollbackIncomplete { cause, left }),
                Err(e) => Err(Error::RollbackIncomplete { cause, left: vec![crate::apply::chain(&e)] }),
            }
        }
    }
}

/// Files of the plan that set kernel parameters.
fn sysctl_texts(changes: &[Change]) -> impl Iterator<Item = &str> {
    changes.iter().filter(|c| sysctl::is_read(&c.path)).filter_map(|c| match &c.make {
        Make::File(content) => std::str::from_utf8(content.bytes()).ok(),
        _ => None,
    })
}

/// How far it came: what a rollback has to undo.
#[derive(Debug, Default)]
struct Reached {
    steps: BTreeSet<usize>,
    jobs: Vec<(Job, String)>,
}

fn forward(
    work: &Work,
    receipt: &Receipt,
    reached: &mut Reached,
    progress: &mut dyn FnMut(Progress),
) -> Result<Done, Error> {
    let root = work.root;
    let label = |n: usize| work.labels.get(n).and_then(Option::as_deref);
    let numbered = || receipt.steps.iter().zip(work.changes).enumerate();
    progress(Progress::Phase("files"));
    for (n, (record, _)) in numbered().filter(|(_, (r, _))| r.stage <= Stage::Directories) {
        check_before(root, record)?;
        reached.steps.insert(n);
        perform(root, record, label(n))?;
    }
    let mut touched = BTreeSet::new();
    for (n, (record, change)) in numbered() {
        touched.insert(split(&record.path).0);
        stage_file(root, record, change, label(n))?;
    }
    barrier(root, &touched)?;
    for (n, (record, _)) in
        numbered().filter(|(_, (r, _))| r.stage > Stage::Directories && r.stage < Stage::Settle)
    {
        check_before(root, record)?;
        reached.steps.insert(n);
        perform(root, record, label(n))?;
    }
    for (_, (record, _)) in numbered() {
        finish_dir(root, record)?;
    }
    barrier(root, &touched)?;
    let done = act(work, reached, progress)?;
    progress(Progress::Phase("verification"));
    for (_, (record, _)) in
        numbered().filter(|(_, (r, _))| r.stage > Stage::MakeRoom && r.stage < Stage::Settle)
    {
        check_result(root, record)?;
    }
    let mismatches = (work.verify)()?;
    if !mismatches.is_empty() {
        return Err(Error::Refused(format!("verification failed: {}", mismatches.join("; "))));
    }
    let mut settled = BTreeSet::new();
    for (n, (record, _)) in numbered().filter(|(_, (r, _))| r.stage == Stage::Settle) {
        check_before(root, record)?;
        reached.steps.insert(n);
        perform(root, record, label(n))?;
        settled.insert(split(&record.path).0);
    }
    // The mark must not become durable before what it stands for.
    barrier(root, &settled)?;
    receipt.close(root)?;
    Ok(done)
}

/// One `syncfs` for each filesystem that any of these folders is on.
fn barrier(root: &Root, folders: &BTreeSet<&str>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for folder in folders {
        // A folder that has gone in this apply was on its parent's filesystem.
        let Some(stat) = root.lstat(folder)? else { continue };
        if seen.insert(stat.id.0) {
            root.syncfs(folder)?;
        }
    }
    Ok(())
}

/// Writes what will be installed under its temporary name, with its final mode and owner.
fn stage_file(root: &Root, record: &Record, change: &Change, label: Option<&str>) -> Result<(), Error> {
    let (Some(temp), Make::File(content)) = (&record.temp, &change.make) else { return Ok(()) };
    let Entry::File { mode, uid, gid, .. } = record.to else { return Ok(()) };
    write_temp(root, temp, content, mode, (uid, gid))?;
    set_label(root, temp, label)
}

/// Right before the name appears: nobody ever sees the path with another label.
fn set_label(root: &Root, path: &str, label: Option<&str>) -> Result<(), Error> {
    match label {
        Some(label) if nix::unistd::geteuid().is_root() => Ok(root.set_label(path, label)?),
        _ => Ok(()),
    }
}

fn write_temp(root: &Root, temp: &str, content: &Content, mode: u32, owner: (u32, u32)) -> Result<(), Error> {
    let mut file = root.create(temp, 0o600)?;
    file.write_all(content.bytes()).map_err(|source| root::Error {
        op: "write",
        path: temp.to_owned(),
        source,
    })?;
    if nix::unistd::geteuid().is_root() && owner != (0, 0) {
        root.fchown(&file, temp, owner.0, owner.1)?;
    }
    if mode != 0o600 {
        root.fchmod(&file, temp, mode)?;
    }
    Ok(())
}

/// At the moment of writing the path must still be what was planned for; if not, somebody else is at work.
fn check_before(root: &Root, record: &Record) -> Result<(), Error> {
    if observe::entry(root, &record.path)? == record.from {
        Ok(())
    } else {
        Err(Error::Interfered { path: record.path.clone() })
    }
}

/// Does one step.
fn perform(root: &Root, record: &Record, label: Option<&str>) -> Result<(), Error> {
    let path = record.path.as_str();
    let give = |path: &str| -> Result<(), Error> {
        match record.to.owner() {
            Some((uid, gid)) if nix::unistd::geteuid().is_root() => Ok(root.chown(path, uid, gid)?),
            _ => Ok(()),
        }
    };
    match (&record.step, &record.temp) {
        (Step::InstallFile, Some(temp)) => root.rename(temp, path)?,
        (Step::InstallSymlink { target }, Some(temp)) => {
            root.symlink(target, temp)?;
            set_label(root, temp, label)?;
            give(temp)?;
            root.rename(temp, path)?;
        }
        (Step::InstallHardlink { of }, Some(temp)) => {
            root.hardlink(of, temp)?;
            root.rename(temp, path)?;
            // Renaming one name of a file onto another does nothing and leaves both (rename(2)).
            root.remove(temp)?;
        }
        (Step::MakeDir, _) => {
            let Entry::Dir { mode, .. } = record.to else { return Ok(()) };
            // For us alone until it has its label and owner, and open for us until everything is in it: `finish_dir` sets
            // what was asked for.
            root.mkdir(path, 0o700)?;
            set_label(root, path, label)?;
            give(path)?;
            if mode | 0o700 != 0o700 {
                root.set_dir_mode(path, mode | 0o700)?;
            }
        }
        (Step::SetDir, _) => {
            give(path)?;
            if let Entry::Dir { mode, .. } = record.to {
                root.set_dir_mode(path, mode)?;
            }
        }
        (Step::Remove, _) => {
            root.remove(path)?;
        }
        (Step::RemoveDir, _) => {
            root.remove_dir(path)?;
        }
        (Step::InstallFile | Step::InstallSymlink { .. } | Step::InstallHardlink { .. }, None) => {}
    }
    Ok(())
}

/// Directories whose own mode would have locked us out get it now; a change of owner also takes special bits away.
fn finish_dir(root: &Root, record: &Record) -> Result<(), Error> {
    if let (Step::MakeDir, Entry::Dir { mode, .. }) = (&record.step, &record.to)
        && (mode & 0o700 != 0o700 || mode & 0o7000 != 0)
    {
        root.set_dir_mode(&record.path, *mode)?;
    }
    Ok(())
}

fn check_result(root: &Root, record: &Record) -> Result<(), Error> {
    let now = observe::entry(root, &record.path)?;
    if now.same_but_owner(&record.to) { Ok(()) } else { Err(Error::Interfered { path: record.path.clone() }) }
}

/// Brings the running system to the files. A unit that was active and does not come back is a failure.
fn act(work: &Work, reached: &mut Reached, progress: &mut dyn FnMut(Progress)) -> Result<Done, Error> {
    let mut done = Done::default();
    if work.actions.is_empty() {
        return Ok(done);
    }
    progress(Progress::Phase("actions"));
    for action in work.actions {
        match action {
            Action::DaemonReload => work.units.daemon_reload()?,
            Action::Unit(job, unit) => {
                let was_active = work.units.is_active(unit)?;
                let wants_active = matches!(job, Job::Start | Job::Restart);
                if !was_active && !wants_active {
                    continue;
                }
                if was_active {
                    reached.jobs.push((*job, unit.clone()));
                }
                job_on(work, *job, unit, was_active, &mut done, progress)?;
            }
            Action::StartFor { unit, target } => {
                if work.units.is_active(target)? && !work.units.is_active(unit)? {
                    job_on(work, Job::Start, unit, false, &mut done, progress)?;
                }
            }
        }
    }
    Ok(done)
}

fn job_on(
    work: &Work,
    job: Job,
    unit: &str,
    was_active: bool,
    done: &mut Done,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    progress(Progress::Unit(job.verb(), unit.to_owned()));
    match work.units.job(job, unit) {
        Ok(()) => done.units_changed += 1,
        // As MCD does it (facts/mco.md 5.6).
        Err(_) if work.units.stand_in(unit) => done.units_changed += 1,
        Err(e) if was_active => return Err(e.into()),
        Err(e) => {
            let warning = format!("{e} (it was not active before)");
            progress(Progress::Note(warning.clone()));
            done.warnings.push(warning);
        }
    }
    Ok(())
}

/// After the old files are back, what had been restarted or stopped runs from them again; errors here change nothing any more.
fn restart_old(work: &Work, reached: &Reached) {
    if work.actions.is_empty() || reached.jobs.is_empty() {
        return;
    }
    let _ = work.units.daemon_reload();
    for (job, unit) in reached.jobs.iter().rev() {
        let again = if *job == Job::Reload { Job::Reload } else { Job::Restart };
        let _ = work.units.job(again, unit);
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, fs};

    use super::*;
    use crate::{tree::Cause, units};

    /// A manager that writes down what it is asked, and fails one job.
    struct Fake {
        asked: RefCell<Vec<String>>,
        active: bool,
        fails: &'static str,
        stands_in: &'static str,
    }

    impl Units for Fake {
        fn daemon_reload(&self) -> Result<(), units::Error> {
            self.asked.borrow_mut().push("daemon-reload".to_owned());
            Ok(())
        }
        fn job(&self, job: Job, unit: &str) -> Result<(), units::Error> {
            let first = !self.asked.borrow().iter().any(|a| a.ends_with(unit));
            self.asked.borrow_mut().push(format!("{} {unit}", job.verb()));
            if unit == self.fails && first {
                return Err(units::Error::Job {
                    verb: job.verb(),
                    unit: unit.to_owned(),
                    result: "failed".to_owned(),
                });
            }
            Ok(())
        }
        fn is_active(&self, _unit: &str) -> Result<bool, units::Error> {
            Ok(self.active)
        }
        fn stand_in(&self, unit: &str) -> bool {
            unit == self.stands_in
        }
    }

    #[test]
    fn kernel_parameters_are_what_they_were_after_a_rollback() {
        struct Sysctl(std::path::PathBuf);
        impl Units for Sysctl {
            fn daemon_reload(&self) -> Result<(), units::Error> {
                Ok(())
            }
            fn job(&self, job: Job, unit: &str) -> Result<(), units::Error> {
                if unit == "systemd-sysctl.service" {
                    fs::write(&self.0, "2\n").unwrap();
                    return Ok(());
                }
                let result = "failed".to_owned();
                Err(units::Error::Job { verb: job.verb(), unit: unit.to_owned(), result })
            }
            fn is_active(&self, _unit: &str) -> Result<bool, units::Error> {
                Ok(true)
            }
        }
        let dir = tempfile::tempdir().unwrap();
        for folder in ["var/lib/oneboot", "etc/sysctl.d", "sys/vm"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let value = dir.path().join("sys/vm/x");
        fs::write(&value, "1\n").unwrap();
        let root = Root::open(dir.path()).unwrap();
        let text = b"vm.x = 2\n";
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let change = Change {
            path: "/etc/sysctl.d/x.conf".to_owned(),
            from: Entry::Absent,
            to: Entry::File { digest: crate::tree::Digest::of(text), mode: 0o644, uid, gid },
            make: Make::File(Content::new(*text)),
            stage: Stage::Files,
            cause: Cause::Record,
            kind: "write",
            reason: String::new(),
        };
        let kernel = Kernel::at(&dir.path().join("sys"), "boot");
        let work = Work {
            root: &root,
            changes: &[change],
            labels: &[],
            actions: &[
                Action::Unit(Job::Restart, "systemd-sysctl.service".to_owned()),
                Action::Unit(Job::Restart, "z.service".to_owned()),
            ],
            units: &Sysctl(value.clone()),
            kernel: Some(&kernel),
            desired: "d",
            deployment: None,
            verify: &|| Ok(Vec::new()),
        };
        let e = run(&work, &mut |_| {}).unwrap_err();
        assert!(matches!(e, Error::RolledBack { .. }), "{e}");
        assert_eq!(fs::read_to_string(&value).unwrap(), "1", "set by the old files' service, then put back");
        assert!(!dir.path().join("etc/sysctl.d/x.conf").exists());
    }

    fn live(active: bool) -> (Result<Done, Error>, Vec<String>, String) {
        live_with(active, "")
    }

    fn live_with(active: bool, stands_in: &'static str) -> (Result<Done, Error>, Vec<String>, String) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("var/lib/oneboot")).unwrap();
        fs::write(dir.path().join("conf"), "old").unwrap();
        let root = Root::open(dir.path()).unwrap();
        let from = observe::entry(&root, "/conf").unwrap();
        let Entry::File { mode, uid, gid, .. } = from else { panic!("{from:?}") };
        let to = Entry::File { digest: crate::tree::Digest::of(b"new"), mode, uid, gid };
        let change = Change {
            path: "/conf".to_owned(),
            from,
            to,
            make: Make::File(Content::new(*b"new")),
            stage: Stage::Files,
            cause: Cause::Record,
            kind: "write",
            reason: String::new(),
        };
        let fake = Fake { asked: RefCell::default(), active, fails: "b.service", stands_in };
        let restart = |unit: &str| Action::Unit(Job::Restart, unit.to_owned());
        let work = Work {
            root: &root,
            changes: &[change],
            labels: &[],
            actions: &[
                Action::DaemonReload,
                restart("a.service"),
                restart("b.service"),
                restart("c.service"),
            ],
            units: &fake,
            kernel: None,
            desired: "d",
            deployment: None,
            verify: &|| Ok(Vec::new()),
        };
        let outcome = run(&work, &mut |_| {});
        let now = fs::read_to_string(dir.path().join("conf")).unwrap();
        (outcome, fake.asked.into_inner(), now)
    }

    #[test]
    fn a_unit_that_was_active_and_does_not_come_back_takes_everything_back() {
        let (outcome, asked, now) = live(true);
        let e = outcome.unwrap_err();
        assert!(
            matches!(&e, Error::RolledBack { cause } if cause == "restart of b.service ended with \"failed\""),
            "{e}"
        );
        assert_eq!(now, "old");
        let expected = [
            "daemon-reload",
            "restart a.service",
            "restart b.service",
            "daemon-reload",
            "restart b.service",
            "restart a.service",
        ];
        assert_eq!(asked, expected, "old units run from old files again, last first");
    }

    #[test]
    fn a_unit_whose_work_was_done_by_hand_has_not_failed() {
        let (outcome, asked, now) = live_with(true, "b.service");
        assert_eq!((outcome.unwrap().units_changed, now.as_str()), (3, "new"));
        assert_eq!(asked.last().unwrap(), "restart c.service");
    }

    #[test]
    fn a_unit_that_was_never_active_and_fails_is_a_warning() {
        let (outcome, asked, now) = live(false);
        let done = outcome.unwrap();
        assert_eq!((done.warnings.len(), done.units_changed, now.as_str()), (1, 2, "new"));
        assert_eq!(asked.last().unwrap(), "restart c.service", "the others are not held up");
    }
}
