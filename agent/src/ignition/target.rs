//! Owns: the declaration that everything after parsing works on.
//! Given a validated config; gives a [`Target`] with contents decoded.
//! Never looks at a tree, and never prints content.

use ignition_config::v3_6::{self, Config, NodeGroup, NodeUser};

use super::{Error, resource};

/// What should be there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Target {
    /// Files.
    pub files: Vec<File>,
    /// Directories.
    pub directories: Vec<Directory>,
    /// Symbolic and hard links.
    pub links: Vec<Link>,
    /// Units with their drop-ins.
    pub units: Vec<Unit>,
    /// Users.
    pub users: Vec<User>,
    /// Groups.
    pub groups: Vec<Group>,
    /// Kernel arguments that the Ignition config names.
    pub kargs: Kargs,
    /// Unused keys and bits, for people.
    pub warnings: Vec<String>,
}

/// A user or group, by number or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Id {
    /// A number.
    Number(u32),
    /// A name, looked up in the tree.
    Name(String),
}

/// Who a name should belong to; what is not given is root for new files, and is left alone for what exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub user: Option<Id>,
    /// The group.
    pub group: Option<Id>,
}

/// A file.
#[derive(Clone, PartialEq)]
pub struct File {
    /// Where.
    pub path: String,
    /// What it holds; `None` keeps what is there, or makes an empty file.
    pub contents: Option<Vec<u8>>,
    /// What is added at its end, all of it together.
    pub append: Option<Vec<u8>>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub owner: Owner,
    /// Whether something else that is there may be replaced.
    pub overwrite: bool,
}

// Content is secret until somebody says otherwise.
impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.path).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// A directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Directory {
    /// Where.
    pub path: String,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub owner: Owner,
    /// Whether what is there goes first, a directory with all that is in it.
    pub overwrite: bool,
}

/// A link.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Where.
    pub path: String,
    /// What it points at, as written; for a hard link a path of the tree.
    pub target: String,
    /// A second name instead of a symbolic link.
    pub hard: bool,
    /// Owner of a symbolic link.
    pub owner: Owner,
    /// Whether something else that is there may be replaced.
    pub overwrite: bool,
}

/// A unit.
#[derive(Clone, PartialEq, Default)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Its file; empty counts as none.
    pub contents: Option<String>,
    /// Whether it should be enabled; `None` leaves that to presets.
    pub enabled: Option<bool>,
    /// Whether it should be masked.
    pub mask: Option<bool>,
    /// Its drop-ins.
    pub dropins: Vec<Dropin>,
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit")
            .field("name", &self.name)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// A drop-in of a unit.
#[derive(Clone, PartialEq)]
pub struct Dropin {
    /// Its file name.
    pub name: String,
    /// Its content; `None` leaves alone what is there.
    pub contents: Option<String>,
}

/// A user.
#[allow(clippy::struct_excessive_bools)] // the spec's own flags
#[derive(Clone, PartialEq, Default)]
pub struct User {
    /// Login name.
    pub name: String,
    /// Keys for `authorized_keys.d/ignition`; `None` leaves them alone.
    pub ssh_keys: Option<Vec<String>>,
    /// As in `shadow`.
    pub password_hash: Option<String>,
    /// Home directory.
    pub home: Option<String>,
    /// User id.
    pub uid: Option<u32>,
    /// Comment field.
    pub gecos: Option<String>,
    /// Login shell.
    pub shell: Option<String>,
    /// Primary group.
    pub primary_group: Option<String>,
    /// Supplementary groups; replaces those of an existing user, as `usermod --groups` does.
    pub groups: Option<Vec<String>>,
    /// `false` removes the user.
    pub should_exist: bool,
    /// A system account.
    pub system: bool,
    /// No home directory is made.
    pub no_create_home: bool,
    /// No group of the same name.
    pub no_user_group: bool,
    /// Not in lastlog and faillog.
    pub no_log_init: bool,
}

// Keys and hashes are not for logs.
impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

impl User {
    /// Whether anything but keys is asked for: then account files change.
    pub fn touches_accounts(&self) -> bool {
        let keys_only = User {
            name: self.name.clone(),
            ssh_keys: self.ssh_keys.clone(),
            should_exist: true,
            ..User::default()
        };
        *self != keys_only
    }
}

/// A group.
#[derive(Clone, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Group id.
    pub gid: Option<u32>,
    /// As in `gshadow`.
    pub password_hash: Option<String>,
    /// A system group.
    pub system: bool,
    /// `false` removes the group.
    pub should_exist: bool,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Ignition's kernel arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kargs {
    /// Arguments that must be there.
    pub should_exist: Vec<String>,
    /// Arguments that must not be there.
    pub should_not_exist: Vec<String>,
}

/// Decodes contents and drops what is not ours; the config must have been validated.
pub fn lower(config: &Config, overwrite_default: bool) -> Result<Target, Error> {
    let mut target = Target::default();
    let mut total = 0;
    if let Some(storage) = &config.storage {
        for file in storage.files.iter().flatten() {
            let file = lower_file(file, overwrite_default)?;
            total += file.contents.as_ref().map_or(0, Vec::len) + file.append.as_ref().map_or(0, Vec::len);
            if total > resource::MAX_TOTAL {
                let message =
                    format!("all contents together are more than {} MiB", resource::MAX_TOTAL >> 20);
                return Err(Error::Content { entry: file.path, message });
            }
            target.files.push(file);
        }
        target.directories.extend(storage.directories.iter().flatten().map(|d| Directory {
            path: d.path.clone(),
            mode: d.mode.map(bits),
            owner: owner(d.user.as_ref(), d.group.as_ref()),
            overwrite: d.overwrite.unwrap_or(false),
        }));
        target.links.extend(storage.links.iter().flatten().map(|l| Link {
            path: l.path.clone(),
            target: l.target.clone().unwrap_or_default(),
            hard: l.hard.unwrap_or(false),
            owner: owner(l.user.as_ref(), l.group.as_ref()),
            overwrite: l.overwrite.unwrap_or(false),
        }));
    }
    let units = config.systemd.iter().flat_map(|s| s.units.iter().flatten());
    target.units = units.map(lower_unit).collect();
    if let Some(passwd) = &config.passwd {
        target.users = passwd.users.iter().flatten().map(lower_user).collect();
        target.groups = passwd.groups.iter().flatten().map(lower_group).collect();
    }
    if let Some(kargs) = &config.kernel_arguments {
        target.kargs.should_exist = kargs.should_exist.clone().unwrap_or_default();
        target.kargs.should_not_exist = kargs.should_not_exist.clone().unwrap_or_default();
    }
    Ok(target)
}

fn lower_file(file: &v3_6::File, overwrite_default: bool) -> Result<File, Error> {
    let contents = match &file.contents {
        Some(resource) => resource::decode(resource, &file.path)?,
        None => None,
    };
    let mut append: Option<Vec<u8>> = None;
    for piece in file.append.iter().flatten() {
        if let Some(bytes) = resource::decode(piece, &file.path)? {
            append.get_or_insert_default().extend(bytes);
        }
    }
    Ok(File {
        path: file.path.clone(),
        contents,
        append,
        mode: file.mode.map(bits),
        owner: owner(file.user.as_ref(), file.group.as_ref()),
        overwrite: file.overwrite.unwrap_or(overwrite_default),
    })
}

fn lower_unit(unit: &v3_6::Unit) -> Unit {
    Unit {
        name: unit.name.clone(),
        contents: unit.contents.clone().filter(|c| !c.is_empty()),
        enabled: unit.enabled,
        mask: unit.mask,
        dropins: unit
            .dropins
            .iter()
            .flatten()
            .map(|d| Dropin { name: d.name.clone(), contents: d.contents.clone() })
            .collect(),
    }
}

fn lower_user(user: &v3_6::User) -> User {
    User {
        name: user.name.clone(),
        ssh_keys: user.ssh_authorized_keys.clone(),
        password_hash: user.password_hash.clone(),
        home: user.home_dir.clone(),
        uid: user.uid.and_then(|u| u32::try_from(u).ok()),
        gecos: user.gecos.clone(),
        shell: user.shell.clone(),
        primary_group: user.primary_group.clone(),
        groups: user.groups.clone(),
        should_exist: user.should_exist.unwrap_or(true),
        system: user.system.unwrap_or(false),
        no_create_home: user.no_create_home.unwrap_or(false),
        no_user_group: user.no_user_group.unwrap_or(false),
        no_log_init: user.no_log_init.unwrap_or(false),
    }
}

fn lower_group(group: &v3_6::Group) -> Group {
    Group {
        name: group.name.clone(),
        gid: group.gid.and_then(|g| u32::try_from(g).ok()),
        password_hash: group.password_hash.clone(),
        system: group.system.unwrap_or(false),
        should_exist: group.should_exist.unwrap_or(true),
    }
}

/// Validation has said that it is at most 07777.
fn bits(mode: i64) -> u32 {
    u32::try_from(mode & 0o7777).unwrap_or(0)
}

fn owner(user: Option<&NodeUser>, group: Option<&NodeGroup>) -> Owner {
    let id = |number: Option<i64>, name: Option<&String>| match (number, name) {
        (Some(n), _) => u32::try_from(n).ok().map(Id::Number),
        (None, Some(name)) if !name.is_empty() => Some(Id::Name(name.clone())),
        _ => None,
    };
    Owner {
        user: user.and_then(|u| id(u.id, u.name.as_ref())),
        group: group.and_then(|g| id(g.id, g.name.as_ref())),
    }
}
