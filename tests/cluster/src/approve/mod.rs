//! Owns approval: the decision table of cluster-machine-approver, and the binding that lets an approved node read
//! its own pool's rendered configs.
//! Given CSRs, Machines, Nodes and token records; gives approvals, bindings, Events.
//! Never denies: it might be someone else's CSR.

mod bind;
mod controller;
mod decide;
mod pending;
mod serving;

pub use bind::{approve, bind, pool_of};
pub use controller::run;
pub use decide::{Cluster, Decision, decide, node_name};
pub use pending::{internal_ip, limit, recently_pending};
pub use serving::{Current, HostSubnet, renewal, renewal_with_egress};
