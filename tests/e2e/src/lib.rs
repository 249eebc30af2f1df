//! What the end-to-end tests share: a world with a control plane and a node in it, and one defect to put into it.
//!
//! The tests themselves are in `tests/`: `journey` (what must work), `before_trust` (what firstboot meets), `after_approval` (what the
//! agent meets), `rotation` (tokens and certificates that change meanwhile), `report` (what the cluster hears of it), `demo` (the front door).

pub mod defect;
pub mod mcs;
pub mod world;
