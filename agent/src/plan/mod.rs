//! What would change, why, and what that disturbs: pure.

pub mod diff;
pub mod effect;
pub mod impact;
pub mod os;
pub mod policy;
pub mod table;
pub mod uses;
pub mod wanted;

use serde::Serialize;

pub use impact::Impact;
pub use policy::Policy;

/// Where the node is in its life: decides which rules say what a change disturbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Never been Ready: nothing to drain; impact rules decide.
    FirstBoot,
    /// A member: node disruption policies to the letter.
    Joined,
}

impl std::str::FromStr for Phase {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "first-boot" => Ok(Phase::FirstBoot),
            "joined" => Ok(Phase::Joined),
            _ => Err("first-boot or joined".to_owned()),
        }
    }
}

/// What a change costs, cheapest first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Disruption {
    /// Nobody notices.
    #[default]
    None,
    /// A service reads its configuration again.
    Reload,
    /// A service restarts.
    Restart,
    /// Userspace restarts, the kernel stays.
    SoftReboot,
    /// A new kernel without firmware.
    Kexec,
    /// A reboot.
    Reboot,
}

impl Disruption {
    /// All of them, cheapest first.
    pub const ALL: [Disruption; 6] = [
        Disruption::None,
        Disruption::Reload,
        Disruption::Restart,
        Disruption::SoftReboot,
        Disruption::Kexec,
        Disruption::Reboot,
    ];

    /// Its name in plans, options and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Disruption::None => "none",
            Disruption::Reload => "reload",
            Disruption::Restart => "restart",
            Disruption::SoftReboot => "soft-reboot",
            Disruption::Kexec => "kexec",
            Disruption::Reboot => "reboot",
        }
    }

    /// Whether it cannot be had without some kind of reboot.
    pub fn is_reboot(self) -> bool {
        self >= Disruption::SoftReboot
    }
}

impl std::fmt::Display for Disruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Disruption {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Disruption::ALL
            .into_iter()
            .find(|d| d.name() == s)
            .ok_or_else(|| "none, reload, restart, soft-reboot, kexec or reboot".to_owned())
    }
}

/// One line of a plan. `from` and `to` are digests or values that are not secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedStep {
    /// What is done: `write`, `mkdir`, `link`, `remove`, `enable`, `restart`, ...
    pub kind: &'static str,
    /// What it is done to.
    #[serde(flatten)]
    pub subject: Subject,
    /// Why.
    pub reason: String,
    /// What was there.
    pub from: String,
    /// What will be there.
    pub to: String,
    /// What it costs.
    pub disruption: Disruption,
    /// What is done for it, for people; actions are steps of their own in JSON.
    #[serde(skip)]
    pub effect: String,
}

/// What a step is about: `path` or `unit` in JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A path of the tree.
    Path(String),
    /// A unit, or what stands for the OS (`kernel-arguments`, `os-image`, ...).
    Unit(String),
}

/// Everything that would change, in the order in which it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Of this format; 1.
    pub format: u32,
    /// By which rules.
    pub phase: Phase,
    /// The most that any step costs.
    pub disruption: Disruption,
    /// The steps.
    pub steps: Vec<PlannedStep>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}
