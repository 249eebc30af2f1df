//! Owns: the gate behind the live actions (design 4.5): what ran runs, and the cluster answers this node.
//! Given what ran before and what is seen now it gives a verdict, and for a change that was taken back the next step.
//! Never: takes anything back (the apply does), or holds a unit's failure against a change that found it failed.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    api::{
        error::{ApiError, Failure},
        session::Trouble,
    },
    clock::Clock,
    plan::Disruption,
    units::{self, Condition, Units},
};

/// Between two looks. A unit that is not up when its job is over takes seconds, not milliseconds.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What ran before anything was touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Units that the plan restarts or reloads, as far as they were up.
    touched: Vec<String>,
    /// Every unit that was active.
    active: BTreeSet<String>,
}

/// What one look finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Those of `Before`, and how each is now.
    pub touched: Vec<(String, Condition)>,
    /// Every unit that has failed.
    pub failed: BTreeSet<String>,
    /// Whether the cluster answers this node, or why not.
    pub api: Result<(), String>,
}

/// What that means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is as it was.
    Well,
    /// It may come.
    NotYet(String),
    /// It will not.
    Ill(String),
}

impl Before {
    /// Looks before an apply at what its actions are going to touch.
    pub fn look(units: &dyn Units, touched: &[String]) -> Result<Self, units::Error> {
        let mut before = Self { touched: Vec::new(), active: units.all_in("active")? };
        for unit in touched {
            if units.condition(unit)? == Condition::Up {
                before.touched.push(unit.clone());
            }
        }
        Ok(before)
    }

    /// Looks again, behind the actions.
    pub fn again(&self, units: &dyn Units, api: Result<(), String>) -> Result<Seen, units::Error> {
        let touched = self.touched.iter().map(|unit| Ok((unit.clone(), units.condition(unit)?)));
        Ok(Seen { touched: touched.collect::<Result<_, _>>()?, failed: units.all_in("failed")?, api })
    }
}

/// The table: a unit that is down stays down, everything else has time.
pub fn verdict(before: &Before, seen: &Seen) -> Verdict {
    let condition = |wanted| seen.touched.iter().find(|(_, condition)| *condition == wanted);
    if let Some((unit, _)) = condition(Condition::Down) {
        return Verdict::Ill(format!("{unit} was running and is not any more"));
    }
    // One that nobody touched may have ended by itself; that it failed is no coincidence.
    if let Some(unit) = seen.failed.intersection(&before.active).next() {
        return Verdict::Ill(format!("{unit} was running and has failed"));
    }
    if let Some((unit, _)) = condition(Condition::Coming) {
        return Verdict::NotYet(format!("{unit} was running and is still being started"));
    }
    match &seen.api {
        Ok(()) => Verdict::Well,
        Err(why) => Verdict::NotYet(why.clone()),
    }
}

/// Looks until it is well, or will not be, or the time is over.
pub fn gate(
    before: &Before,
    clock: &dyn Clock,
    timeout: Duration,
    mut look: impl FnMut() -> Result<Seen, units::Error>,
) -> Result<(), String> {
    let started = clock.boot_microseconds();
    loop {
        let seen = look().map_err(|error| crate::apply::chain(&error))?;
        let reason = match verdict(before, &seen) {
            Verdict::Well => return Ok(()),
            Verdict::Ill(reason) => return Err(reason),
            Verdict::NotYet(reason) => reason,
        };
        if u128::from(clock.boot_microseconds() - started) >= timeout.as_micros() {
            return Err(format!("{reason}, {} s after the change", timeout.as_secs()));
        }
        clock.pause(LOOK_AGAIN);
    }
}

/// What an attempt to read the own Node says about the way to the cluster. The kubelet may not have registered the Node
/// yet, and a right may be missing: whoever says that has answered this node.
pub fn reachable<T>(attempt: Result<T, Trouble>) -> Result<(), String> {
    match attempt {
        Ok(_)
        | Err(Trouble::Api(ApiError { failure: Failure::NotFound | Failure::Forbidden { .. }, .. })) => {
            Ok(())
        }
        Err(trouble) => Err(trouble.to_string()),
    }
}

/// A change that was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setback {
    /// Everything is as it was before.
    pub complete: bool,
    /// The running system was acted on: without that, a second attempt would be the first one again.
    pub live: bool,
    /// The cheapest reboot that would finish the change.
    pub reboot: Disruption,
    /// The most that may be done without asking.
    pub allowed: Disruption,
    /// This configuration has had its reboot.
    pub rebooted: bool,
}

/// What follows (design 4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it stays taken back.
    Stay,
    /// Once more, as files only, and this reboot.
    FilesOnly(Disruption),
    /// A person: what could be done is not allowed, or has been done. Why, for the end of a sentence.
    Block(String),
}

/// The table.
pub fn next(setback: Setback) -> Next {
    let Setback { complete, live, reboot, allowed, rebooted } = setback;
    if !complete || !live {
        Next::Stay
    } else if rebooted {
        Next::Block("this configuration has had its one reboot already".to_owned())
    } else if reboot > allowed {
        Next::Block(format!(
            "a {reboot} would finish it and at most {allowed} is allowed; to allow it, set max_disruption = \"{reboot}\""
        ))
    } else {
        Next::FilesOnly(reboot)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn before() -> Before {
        Before {
            touched: vec!["a.service".into()],
            active: ["a.service", "b.service"].map(String::from).into(),
        }
    }

    fn seen(condition: Condition, failed: &[&str], api: Result<(), String>) -> Seen {
        Seen {
            touched: vec![("a.service".into(), condition)],
            failed: failed.iter().map(|unit| (*unit).to_owned()).collect(),
            api,
        }
    }

    #[test]
    fn every_row_of_the_verdict() {
        use Condition::{Coming, Down, Up};
        let gone = || Err("the API cannot be reached".to_owned());
        let cases: [(Seen, Verdict); 7] = [
            (seen(Up, &[], Ok(())), Verdict::Well),
            (seen(Up, &["old.service"], Ok(())), Verdict::Well), // failed before anybody came
            (seen(Up, &["b.service"], Ok(())), Verdict::Ill("b.service was running and has failed".into())),
            (seen(Down, &[], Ok(())), Verdict::Ill("a.service was running and is not any more".into())),
            (
                seen(Coming, &[], Ok(())),
                Verdict::NotYet("a.service was running and is still being started".into()),
            ),
            (seen(Up, &[], gone()), Verdict::NotYet("the API cannot be reached".into())),
            (seen(Down, &[], gone()), Verdict::Ill("a.service was running and is not any more".into())),
        ];
        for (seen, expected) in cases {
            assert_eq!(verdict(&before(), &seen), expected, "{seen:?}");
        }
    }

    /// Time that passes by pauses only.
    #[derive(Default)]
    struct Paused(std::sync::atomic::AtomicU64);

    impl Clock for Paused {
        fn boot_microseconds(&self) -> u64 {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
        fn wall_seconds(&self) -> u64 {
            0
        }
        fn pause(&self, duration: Duration) {
            let us = u64::try_from(duration.as_micros()).unwrap();
            self.0.fetch_add(us, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_coming_has_until_the_timeout_and_what_is_down_has_not() {
        let looks = Cell::new(0);
        let run = |timeout, up_at: u32, otherwise: Condition| {
            looks.set(0);
            let outcome = gate(&before(), &Paused::default(), Duration::from_secs(timeout), || {
                looks.set(looks.get() + 1);
                Ok(seen(if looks.get() >= up_at { Condition::Up } else { otherwise }, &[], Ok(())))
            });
            (outcome, looks.get())
        };
        assert_eq!(run(90, 1, Condition::Down), (Ok(()), 1));
        assert_eq!(run(90, 4, Condition::Coming), (Ok(()), 4));
        let late = "a.service was running and is still being started, 3 s after the change".to_owned();
        assert_eq!(run(3, 9, Condition::Coming), (Err(late), 4));
        let down = "a.service was running and is not any more".to_owned();
        assert_eq!(run(90, 4, Condition::Down), (Err(down), 1));
    }

    /// A manager in which one unit is down, one is up, and everything is listed.
    struct Fake(RefCell<Vec<String>>);

    impl Units for Fake {
        fn daemon_reload(&self) -> Result<(), units::Error> {
            unreachable!("a look changes nothing")
        }
        fn job(&self, _: units::Job, _: &str) -> Result<(), units::Error> {
            unreachable!("a look changes nothing")
        }
        fn is_active(&self, unit: &str) -> Result<bool, units::Error> {
            self.0.borrow_mut().push(unit.to_owned());
            Ok(unit == "a.service")
        }
        fn all_in(&self, state: &'static str) -> Result<BTreeSet<String>, units::Error> {
            self.0.borrow_mut().push(state.to_owned());
            Ok(["a.service", "b.service"].map(String::from).into())
        }
    }

    #[test]
    fn a_unit_that_was_down_before_is_not_asked_for_after() {
        let fake = Fake(RefCell::default());
        let before_it = Before::look(&fake, &["a.service".into(), "down.service".into()]).unwrap();
        assert_eq!(before_it, before());
        let again = before_it.again(&fake, Ok(())).unwrap();
        assert_eq!(again.touched, [("a.service".to_owned(), Condition::Up)]);
        assert_eq!(fake.0.into_inner(), ["active", "a.service", "down.service", "a.service", "failed"]);
    }

    #[test]
    fn every_row_of_what_follows() {
        use Disruption::{Reboot, Restart, SoftReboot};
        let usual =
            Setback { complete: true, live: true, reboot: SoftReboot, allowed: Reboot, rebooted: false };
        assert_eq!(next(usual), Next::FilesOnly(SoftReboot));
        assert_eq!(next(Setback { complete: false, ..usual }), Next::Stay);
        assert_eq!(next(Setback { live: false, ..usual }), Next::Stay);
        for (setback, said) in [
            (Setback { rebooted: true, ..usual }, "has had its one reboot"),
            (Setback { allowed: Restart, ..usual }, "max_disruption = \"soft-reboot\""),
        ] {
            assert!(matches!(next(setback), Next::Block(why) if why.contains(said)), "{setback:?}");
        }
    }
}
