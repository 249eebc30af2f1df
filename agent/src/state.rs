//! Owns: the agent's states, what may follow what, and the diagram's twin (`agent/README.md`, "State").
//! Given a state and an event it gives the next state and the work to do; an event out of place is an error.
//! Never: does that work, reads a clock, or knows what a file or a socket is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where the node is on its way (design 4.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum State {
    /// No certificate yet: the kubelet's request is not filed, not approved, or not answered.
    Waiting,
    /// The kubelet holds a valid client certificate; its identity can be used.
    Approved,
    /// The desired configuration has been read from the API.
    Pulled,
    /// What has to change is known, and is allowed.
    Planned,
    /// The tree is the desired one and the live actions are done.
    Applied,
    /// Nothing is left to do, and the Machine Config Daemon will find that too.
    Settled,
    /// Only a person, or something outside this node, can move it on.
    Blocked {
        /// What it takes to leave this state.
        until: Until,
        /// Why, as a sentence for a person.
        reason: String,
    },
    /// The change was made and taken back, completely.
    RolledBack {
        /// Why, as a sentence for a person.
        reason: String,
    },
}

/// What a blocked node is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// Another certificate request, which somebody approves.
    Approved,
    /// A role binding: the same question is asked again, ever more rarely.
    Permitted,
    /// Another desired configuration.
    Changed,
}

/// The states without what they carry: the names in files, annotations and the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Name {
    /// [`State::Waiting`].
    Waiting,
    /// [`State::Approved`].
    Approved,
    /// [`State::Pulled`].
    Pulled,
    /// [`State::Planned`].
    Planned,
    /// [`State::Applied`].
    Applied,
    /// [`State::Settled`].
    Settled,
    /// [`State::Blocked`].
    Blocked,
    /// [`State::RolledBack`].
    RolledBack,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl State {
    /// The bare name.
    pub const fn name(&self) -> Name {
        match self {
            Self::Waiting => Name::Waiting,
            Self::Approved => Name::Approved,
            Self::Pulled => Name::Pulled,
            Self::Planned => Name::Planned,
            Self::Applied => Name::Applied,
            Self::Settled => Name::Settled,
            Self::Blocked { .. } => Name::Blocked,
            Self::RolledBack { .. } => Name::RolledBack,
        }
    }

    /// The sentence that a blocked or rolled-back node carries.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Blocked { reason, .. } | Self::RolledBack { reason } => Some(reason),
            _ => None,
        }
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The agent has started and interrupted work has been finished or undone.
    Started {
        /// The machine has booted since the state was written.
        rebooted: bool,
        /// The hand-over of a settled node has been carried out, completely.
        handed_over: bool,
    },
    /// A valid client certificate and its key are in place.
    Certified,
    /// The node's certificate request was denied or has failed.
    Denied {
        /// By whom and why.
        reason: String,
    },
    /// A certificate request of this node is pending (again).
    Refiled,
    /// The desired configuration has been read.
    Pulled,
    /// The API refuses to hand it out, and has done so for longer than bindings lag.
    Forbidden {
        /// Which verb, which resource, which manifest grants it.
        reason: String,
    },
    /// The plan is made and within what is allowed.
    Planned,
    /// Nothing was changed: the configuration is unusable, or its plan costs more than allowed.
    Refused {
        /// What was found, what was expected.
        reason: String,
    },
    /// The tree is the desired one and the live actions are done.
    Applied,
    /// The live actions did not work out and everything was taken back; with a reboot instead of them it may.
    LiveFailed,
    /// The change was taken back.
    RolledBack {
        /// What did not work.
        reason: String,
    },
    /// The tree passes what the Machine Config Daemon would check.
    Verified {
        /// Part of it takes effect with a reboot only.
        reboot: bool,
    },
    /// The desired configuration is another one than the one that was refused or taken back.
    Changed,
}

/// Work that a transition asks for, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Wait for the certificate, and say meanwhile why it takes so long.
    AwaitApproval,
    /// Keep the Node unschedulable until this one is settled.
    Cordon,
    /// Find out what is desired and read it.
    Pull,
    /// Compare it with the disk.
    Plan,
    /// Change the disk and act.
    Apply,
    /// Change the disk only: the one reboot does the rest.
    LayDown,
    /// Check the result as the Machine Config Daemon would.
    Verify,
    /// Take the one reboot.
    Reboot,
    /// Hand the node over.
    Settle,
    /// Wait until something else is desired.
    AwaitChange,
}

/// An event that cannot happen in a state: a bug in the caller, or a state file from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen while {state}")]
pub struct IllegalTransition {
    /// Where the node was.
    pub state: Name,
    /// What is said to have happened.
    pub event: Event,
}

/// The one place that says what follows what.
///
/// # Errors
/// [`IllegalTransition`] for every pair that is not in the table; the state is then unchanged.
pub fn next(state: &State, event: Event) -> Result<(State, Vec<Effect>), IllegalTransition> {
    use Effect::{Apply, AwaitApproval, AwaitChange, Cordon, LayDown, Plan, Pull, Reboot, Settle, Verify};

    Ok(match (state, event) {
        // What was pulled and planned lived in memory: after a restart it is read and compared again, which finds
        // whatever was already done. Only what must not be tried twice in one boot survives as it was.
        (State::Settled, Event::Started { handed_over: true, .. }) => (State::Settled, vec![]),
        // A hand-over is asked for until it is done: a kill, or an API that is gone, comes between the state and it.
        (State::Settled, Event::Started { handed_over: false, .. })
        | (State::Applied, Event::Verified { reboot: false }) => (State::Settled, vec![Settle]),
        (State::RolledBack { .. }, Event::Started { rebooted: false, .. }) => {
            (state.clone(), vec![AwaitChange])
        }
        (_, Event::Started { .. }) => (State::Waiting, vec![AwaitApproval]),

        (State::Waiting | State::Blocked { until: Until::Approved, .. }, Event::Certified) => {
            (State::Approved, vec![Cordon, Pull])
        }
        (State::Waiting | State::Blocked { until: Until::Approved, .. }, Event::Denied { reason }) => {
            (State::Blocked { until: Until::Approved, reason }, vec![])
        }
        (State::Waiting | State::Blocked { until: Until::Approved, .. }, Event::Refiled) => {
            (State::Waiting, vec![])
        }

        (State::Approved | State::Blocked { until: Until::Permitted, .. }, Event::Pulled) => {
            (State::Pulled, vec![Plan])
        }
        (State::Approved | State::Blocked { until: Until::Permitted, .. }, Event::Forbidden { reason }) => {
            (State::Blocked { until: Until::Permitted, reason }, vec![])
        }

        (State::Pulled, Event::Planned) => (State::Planned, vec![Apply]),
        (State::Planned, Event::Applied) => (State::Applied, vec![Verify]),
        (State::Planned, Event::LiveFailed) => (State::Planned, vec![LayDown]),
        (State::Planned, Event::RolledBack { reason }) => (State::RolledBack { reason }, vec![AwaitChange]),
        (State::Applied, Event::Verified { reboot: true }) => (State::Applied, vec![Reboot]),

        (State::Approved | State::Pulled | State::Planned | State::Applied, Event::Refused { reason }) => {
            (State::Blocked { until: Until::Changed, reason }, vec![AwaitChange])
        }
        (State::Blocked { until: Until::Changed, .. } | State::RolledBack { .. }, Event::Changed) => {
            (State::Approved, vec![Pull])
        }

        (state, event) => return Err(IllegalTransition { state: state.name(), event }),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn every_state() -> Vec<State> {
        let blocked = |until| State::Blocked { until, reason: "old".into() };
        vec![
            State::Waiting,
            State::Approved,
            State::Pulled,
            State::Planned,
            State::Applied,
            State::Settled,
            blocked(Until::Approved),
            blocked(Until::Permitted),
            blocked(Until::Changed),
            State::RolledBack { reason: "old".into() },
        ]
    }

    fn every_event() -> Vec<Event> {
        let reason = || "new".to_owned();
        vec![
            Event::Started { rebooted: false, handed_over: true },
            Event::Started { rebooted: false, handed_over: false },
            Event::Started { rebooted: true, handed_over: true },
            Event::Certified,
            Event::Denied { reason: reason() },
            Event::Refiled,
            Event::Pulled,
            Event::Forbidden { reason: reason() },
            Event::Planned,
            Event::Refused { reason: reason() },
            Event::Applied,
            Event::LiveFailed,
            Event::RolledBack { reason: reason() },
            Event::Verified { reboot: false },
            Event::Verified { reboot: true },
            Event::Changed,
        ]
    }

    /// The label of an event in the diagram: what a person would call it, without what it carries.
    fn label(event: &Event) -> &'static str {
        match event {
            Event::Started { rebooted: false, handed_over: true } => "started",
            Event::Started { rebooted: false, handed_over: false } => "started in the middle",
            Event::Started { rebooted: true, .. } => "started after a reboot",
            Event::Certified => "certified",
            Event::Denied { .. } => "denied",
            Event::Refiled => "filed again",
            Event::Pulled => "pulled",
            Event::Forbidden { .. } => "forbidden",
            Event::Planned => "planned",
            Event::Refused { .. } => "refused",
            Event::Applied => "applied",
            Event::LiveFailed => "live actions failed",
            Event::RolledBack { .. } => "taken back",
            Event::Verified { reboot: false } => "verified",
            Event::Verified { reboot: true } => "verified, reboot needed",
            Event::Changed => "desired changed",
        }
    }

    /// Every legal (state, event) pair as `From --> To: label`; restarts are prose in the README, not arrows.
    fn table() -> BTreeSet<String> {
        let mut arrows = BTreeSet::new();
        for state in every_state() {
            for event in every_event() {
                if matches!(event, Event::Started { .. }) {
                    continue;
                }
                if let Ok((to, _)) = next(&state, event.clone()) {
                    arrows.insert(format!("{} --> {}: {}", state.name(), to.name(), label(&event)));
                }
            }
        }
        arrows
    }

    #[test]
    fn the_diagram_in_the_readme_is_the_table() {
        let readme = include_str!("../README.md");
        let diagram = readme
            .split("```mermaid\nstateDiagram-v2\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next())
            .expect("the README has a state diagram");
        let drawn: BTreeSet<String> = diagram
            .lines()
            .map(str::trim)
            .filter(|l| l.contains("-->") && !l.contains("[*]"))
            .map(Into::into)
            .collect();
        assert_eq!(drawn, table());
    }

    #[test]
    fn the_way_through_does_everything_once_and_in_order() {
        let mut state = State::Waiting;
        let mut work = Vec::new();
        for event in [
            Event::Started { rebooted: false, handed_over: false },
            Event::Certified,
            Event::Pulled,
            Event::Planned,
            Event::Applied,
            Event::Verified { reboot: false },
        ] {
            let (to, effects) = next(&state, event).expect("each step is legal");
            state = to;
            work.extend(effects);
        }
        assert_eq!(state, State::Settled);
        assert_eq!(
            work,
            [
                Effect::AwaitApproval,
                Effect::Cordon,
                Effect::Pull,
                Effect::Plan,
                Effect::Apply,
                Effect::Verify,
                Effect::Settle
            ]
        );
    }

    #[test]
    fn after_a_start_only_a_settled_or_just_rolled_back_node_does_not_begin_anew() {
        for state in every_state() {
            for (rebooted, handed_over) in [(false, false), (false, true), (true, false), (true, true)] {
                let (to, effects) =
                    next(&state, Event::Started { rebooted, handed_over }).expect("a start is always legal");
                match (&state, rebooted, handed_over) {
                    (State::Settled, _, true) => assert_eq!((to, effects), (State::Settled, vec![])),
                    (State::Settled, _, false) => {
                        assert_eq!((to, effects), (State::Settled, vec![Effect::Settle]));
                    }
                    (State::RolledBack { .. }, false, _) => {
                        assert_eq!((to, effects), (state.clone(), vec![Effect::AwaitChange]));
                    }
                    _ => assert_eq!((to, effects), (State::Waiting, vec![Effect::AwaitApproval])),
                }
            }
        }
    }

    #[test]
    fn whatever_was_refused_before_applying_leads_to_no_apply() {
        for state in every_state() {
            if let Ok((to, effects)) = next(&state, Event::Refused { reason: "new".into() }) {
                assert_eq!(to, State::Blocked { until: Until::Changed, reason: "new".into() });
                assert_eq!(effects, [Effect::AwaitChange]);
            }
        }
    }

    #[test]
    fn apply_and_settle_are_asked_for_in_one_place_only_and_settle_until_it_is_done() {
        for effect in [Effect::Apply, Effect::LayDown, Effect::Settle, Effect::Reboot] {
            let asked: Vec<_> = every_state()
                .into_iter()
                .flat_map(|s| every_event().into_iter().map(move |e| (s.clone(), e)))
                .filter(|(s, e)| next(s, e.clone()).is_ok_and(|(_, effects)| effects.contains(&effect)))
                .map(|(s, e)| (s.name(), label(&e)))
                .collect();
            let expected = match effect {
                Effect::Apply => vec![(Name::Pulled, "planned")],
                Effect::LayDown => vec![(Name::Planned, "live actions failed")],
                Effect::Settle => {
                    vec![(Name::Applied, "verified"), (Name::Settled, "started in the middle")]
                }
                _ => vec![(Name::Applied, "verified, reboot needed")],
            };
            assert_eq!(asked, expected);
        }
    }

    #[test]
    fn an_event_out_of_place_names_itself_and_the_state() {
        let error = next(&State::Waiting, Event::Applied).expect_err("nothing was planned");
        assert_eq!(error, IllegalTransition { state: Name::Waiting, event: Event::Applied });
        assert_eq!(error.to_string(), "Applied cannot happen while Waiting");
        // A settled node is left alone by everything but a restart.
        for event in every_event().into_iter().filter(|e| !matches!(e, Event::Started { .. })) {
            assert!(next(&State::Settled, event.clone()).is_err(), "{event:?} moved a settled node");
        }
    }
}
