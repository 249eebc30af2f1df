//! Owns: what Ignition does about `passwd` (facts/ignition.md, users), on a copy.
//! Given users and groups of a config; gives the databases, home folders and accounts as they are to be.
//! Never asks a tool for what is right already, and never removes a home folder.

use super::{Error, copy::Copy, database};
use crate::{
    ignition::{Group, Target, User},
    observe::{self, Accounts},
    root::Root,
};

/// What is to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ensured {
    /// Databases below `/etc` that change: name and text.
    pub databases: Vec<(&'static str, String)>,
    /// New users' home folders: path, user id, group id.
    pub homes: Vec<(String, u32, u32)>,
    /// All users and groups afterwards: files may belong to new ones.
    pub accounts: Accounts,
}

/// Plans users and groups; nothing of the tree is changed.
pub fn ensure(root: &Root, target: &Target) -> Result<Ensured, Error> {
    let users: Vec<&User> = target.users.iter().filter(|u| u.touches_accounts()).collect();
    if users.is_empty() && target.groups.is_empty() {
        return Ok(Ensured { accounts: observe::accounts(root)?, ..Ensured::default() });
    }
    let copy = Copy::of(root)?;
    for group in &target.groups {
        ensure_group(&copy, group)?;
    }
    let mut new = Vec::new();
    for user in users {
        if ensure_user(&copy, user)? && !user.no_create_home {
            new.push(user.name.as_str());
        }
    }
    let databases = copy.changed()?;
    let accounts = observe::parse_accounts(&[copy.read("passwd")?], &[copy.read("group")?]);
    let home = |name: &str| accounts.users.get(name).map(|(uid, gid, home)| (home.clone(), *uid, *gid));
    let homes = new.into_iter().filter_map(home).collect();
    Ok(Ensured { databases, homes, accounts })
}

/// An option with its value, where one is given.
fn option(args: &mut Vec<String>, name: &str, value: Option<impl ToString>) {
    if let Some(value) = value {
        args.extend([name.to_owned(), value.to_string()]);
    }
}

fn ensure_group(copy: &Copy, group: &Group) -> Result<(), Error> {
    let text = copy.read("group")?;
    let now = database::field(&text, &group.name, 2);
    let mut args = Vec::new();
    match (now, group.should_exist) {
        (None, false) => return Ok(()),
        (Some(_), false) => return copy.run("groupdel", std::slice::from_ref(&group.name)),
        (None, true) => {
            option(&mut args, "--gid", group.gid);
            args.extend(group.system.then(|| "--system".to_owned()));
            args.push(group.name.clone());
            copy.run("groupadd", &args)?;
        }
        (Some(gid), true) => {
            if group.gid.is_some_and(|wanted| wanted.to_string() != gid) {
                option(&mut args, "--gid", group.gid);
                args.push(group.name.clone());
                copy.run("groupmod", &args)?;
            }
        }
    }
    match &group.password_hash {
        Some(hash) => copy.set_hash(["gshadow", "group"], &group.name, or_none(hash)),
        None => Ok(()),
    }
}

/// Whether the user is new.
fn ensure_user(copy: &Copy, user: &User) -> Result<bool, Error> {
    let name = &user.name;
    let text = copy.read("passwd")?;
    let now = database::line(&text, name);
    let exists = now.is_some();
    if !user.should_exist {
        if exists {
            // Without --remove: what people keep in their home is not configuration.
            copy.run("userdel", std::slice::from_ref(name))?;
        }
        return Ok(false);
    }
    match now {
        Some(fields) => change_user(copy, user, &fields)?,
        None => add_user(copy, user)?,
    }
    let hash = user.password_hash.as_deref().map(or_none);
    if let Some(hash) = hash.or((!exists).then_some(database::NO_PASSWORD)) {
        copy.set_hash(["shadow", "passwd"], name, hash)?;
    }
    Ok(!exists)
}

fn or_none(hash: &str) -> &str {
    if hash.is_empty() { database::NO_PASSWORD } else { hash }
}

fn add_user(copy: &Copy, user: &User) -> Result<(), Error> {
    // The home is planned like any folder. lastlog and faillog are the machine's: a new user has no lines there.
    let mut args = vec!["--no-create-home".to_owned(), "--no-log-init".to_owned()];
    option(&mut args, "--home-dir", user.home.as_ref());
    option(&mut args, "--uid", user.uid);
    option(&mut args, "--comment", user.gecos.as_ref());
    option(&mut args, "--gid", user.primary_group.as_ref());
    option(&mut args, "--groups", user.groups.as_ref().filter(|g| !g.is_empty()).map(|g| g.join(",")));
    option(&mut args, "--shell", user.shell.as_ref());
    args.extend(user.no_user_group.then(|| "--no-user-group".to_owned()));
    args.extend(user.system.then(|| "--system".to_owned()));
    args.push(user.name.clone());
    copy.run("useradd", &args)
}

/// Only what differs is asked for: usermod writes all databases anew whatever it is told.
fn change_user(copy: &Copy, user: &User, now: &[&str]) -> Result<(), Error> {
    let is = |nth: usize, wanted: &str| now.get(nth).copied() == Some(wanted);
    let groups = copy.read("group")?;
    let mut args = Vec::new();
    option(&mut args, "--uid", user.uid.filter(|uid| !is(2, &uid.to_string())));
    let primary = |wanted: &&String| {
        let gid = database::field(&groups, wanted, 2).unwrap_or(wanted.as_str());
        !is(3, gid)
    };
    option(&mut args, "--gid", user.primary_group.as_ref().filter(primary));
    option(&mut args, "--comment", user.gecos.as_ref().filter(|gecos| !is(4, gecos)));
    option(&mut args, "--home", user.home.as_ref().filter(|home| !is(5, home)));
    option(&mut args, "--shell", user.shell.as_ref().filter(|shell| !is(6, shell)));
    if let Some(wanted) = &user.groups {
        let mut sorted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted != database::groups_of(&groups, &user.name) {
            option(&mut args, "--groups", Some(wanted.join(",")));
        }
    }
    if args.is_empty() {
        return Ok(());
    }
    args.push(user.name.clone());
    copy.run("usermod", &args)
}
