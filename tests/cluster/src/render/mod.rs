//! Owns rendered configs: two per pool, `pre` a part of `post`; the pools' configuration; the read roles; the
//! user-data Secrets with the pools' pointers.
//! Given MachineConfigs and pools, gives rendered MachineConfigs.
//! Never changes an input object.

mod controller;
mod install;
mod machineconfig;
mod merge;
mod pools;
mod split;
mod userdata;

pub use controller::run;
pub use install::install;
pub use machineconfig::{Defaults, RenderError, merge as merge_machine_configs};
pub use merge::merge as merge_ignition;
pub use split::{Rendered, needed_before_approval, render};
