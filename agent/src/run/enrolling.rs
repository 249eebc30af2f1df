//! Owns: `join = "enroll"` in the service: how long and how often it asks, and when the kubelet may start.
//! Given the settings and what is remembered of this boot it gives a certificate, or a kubelet that asks for its own.
//! Never: holds the kubelet back beyond `enroll_timeout`, or lets it start with a certificate for another name.

use std::time::Duration;

use super::{Error, Run};
use crate::{
    api::session::Session, apply, config::Join, csr::Word, enroll, identity, nodename, record::Enrolling,
};

/// A key lives in memory only, so a restart can do nothing with a request that is pending and has to file another. More
/// than these in one boot are litter for the approver: an agent that dies so often leaves it to the kubelet.
const REQUESTS: u32 = 3;

impl Run<'_> {
    /// The time begins with the first start in a boot; a restart goes on with it.
    pub(super) fn begin_enrolling(&mut self) -> Result<(), Error> {
        let boot_id = &self.record.boot_id;
        if self.record.enrolling.as_ref().is_none_or(|enrolling| enrolling.boot_id != *boot_id) {
            let since_us = self.given.clock.boot_microseconds();
            self.record.enrolling =
                Some(Enrolling { boot_id: boot_id.clone(), since_us, requests: 0, over: false });
        }
        if self.left().is_zero() { self.let_go() } else { Ok(()) }
    }

    /// How long the kubelet may still be held back.
    fn left(&self) -> Duration {
        let Some(enrolling) = self.record.enrolling.as_ref().filter(|enrolling| !enrolling.over) else {
            return Duration::ZERO;
        };
        if self.given.settings.join.value != Join::Enroll {
            return Duration::ZERO;
        }
        let now = self.given.clock.boot_microseconds();
        let passed = Duration::from_micros(now.saturating_sub(enrolling.since_us));
        self.given.settings.enroll_timeout.value.saturating_sub(passed)
    }

    /// Asks for the certificate in the kubelet's place. Whatever comes of it, what follows is to wait for the file.
    pub(super) fn enroll(&mut self) -> Result<(), Error> {
        let root = self.given.root.clone();
        let now = self.given.clock.wall_seconds();
        let timeout = self.left();
        if timeout.is_zero() || matches!(identity::node_pair(&root, now), Ok(Some(_))) {
            return Ok(());
        }
        let Some(node) = nodename::of(&root)? else {
            self.let_go()?;
            return self.because(Word::NoName.to_string());
        };
        if !self.may_ask()? {
            return self.fall_through(format!(
                "{REQUESTS} certificate requests were filed in this boot: the kubelet asks for itself"
            ));
        }
        let load = {
            let root = root.clone();
            move || identity::bootstrap(&root)
        };
        let mut session = Session::new(load, self.report.address(), self.given.clock.clone());
        let mut told = Ok(());
        let enrolled = enroll::enroll(&mut session, &root, &node, timeout, |word| {
            if told.is_ok() {
                told = self.because(word.to_string());
            }
        });
        told?;
        match enrolled {
            Ok(()) => Ok(()),
            Err(error) => {
                self.record.enrolled = false;
                self.fall_through(apply::chain(&error))
            }
        }
    }

    /// Counts a request before it is filed, and takes what may come of it for ours: a kill may come at any moment.
    fn may_ask(&mut self) -> Result<bool, Error> {
        let Some(enrolling) = self.record.enrolling.as_mut().filter(|e| e.requests < REQUESTS) else {
            return Ok(false);
        };
        enrolling.requests += 1;
        self.record.enrolled = true;
        self.record.write(&self.given.root)?;
        Ok(true)
    }

    /// Nothing is asked for again in this boot, whatever a restart finds.
    fn fall_through(&mut self, reason: String) -> Result<(), Error> {
        if let Some(enrolling) = &mut self.record.enrolling {
            enrolling.over = true;
        }
        self.record.write(&self.given.root)?;
        self.let_go()?;
        self.because(reason)
    }

    /// Lets the kubelet start once its time is over, whatever it is that lasts. Looked at between two attempts, so it may
    /// be late by one: each of its calls takes 10 s to connect and 30 s to be answered at most.
    pub(super) fn expire(&mut self) -> Result<(), Error> {
        if self.notify.is_released() || !self.left().is_zero() {
            return Ok(());
        }
        tracing::warn!("enroll_timeout is over: the kubelet starts before its configuration is there");
        self.let_go()?;
        self.tell()
    }

    /// Lets the kubelet start, with the next line. Its name is looked at once more: the configuration may have changed
    /// it, and then a certificate of ours is for nobody.
    pub(super) fn let_go(&mut self) -> Result<(), Error> {
        if self.notify.is_released() {
            return Ok(());
        }
        if self.record.enrolled {
            self.check_name()?;
        }
        self.notify.release();
        Ok(())
    }

    fn check_name(&mut self) -> Result<(), Error> {
        let root = &self.given.root;
        let Ok(Some(pair)) = identity::node_pair(root, self.given.clock.wall_seconds()) else {
            return Ok(());
        };
        let kubelet = nodename::of(root)?;
        let Some(what) = enroll::discard_if_renamed(root, &pair.node, kubelet.as_deref())? else {
            return Ok(());
        };
        tracing::warn!("{what}");
        // From here on the node is the other one, as soon as its kubelet has a certificate.
        (self.record.node, self.record.enrolled) = (kubelet, false);
        (self.session, self.keeper) = (None, None);
        Ok(self.record.write(&self.given.root)?)
    }
}
