//! Owns: the loop around one exchange: wait, renew the token, step down, or give up, as the outcome table says.
//! Given a URL and what a good answer is, gives that answer or the final failure; tells the console what it waits for.
//! Never: waits beyond the deadline, and never sends the token to an origin it is not for.

use crate::backoff::{self, Backoff};
use crate::clock;
use crate::document::Spec;
use crate::duration::show;
use crate::failure::Failure;
use crate::fetch::{self, Headers, Seen};
use crate::outcome::{Decision, Limits, Outcome, decide};
use crate::proof::NodeProof;
use crate::secret::Secret;
use crate::transport::{Client, Connected};
use crate::url::{Origin, Url};
use std::time::{Duration, Instant};

/// With less than this before the deadline another exchange would only be cut short.
const MIN_EXCHANGE: Duration = Duration::from_millis(100);

/// Everything that stays the same from one reference to the next.
pub struct Session {
    client: Client,
    limits: Limits,
    spec: Spec,
    proof: Option<(Box<dyn NodeProof>, Origin)>,
    started: Instant,
    deadline: Option<Instant>,
    attempts: u32,
    answered: Option<Answered>,
}

/// The exchange that the report is about: the first for a pool, or else the first.
#[derive(Clone)]
pub struct Answered {
    /// What was asked for.
    pub url: Url,
    /// On which connection, if one was made.
    pub connected: Option<Connected>,
    /// When the body was complete, in microseconds since kernel start.
    pub ended: u64,
}

impl Session {
    /// `proof` goes to its origin only; `spec` is the newest to ask for; `deadline` ends all waiting.
    pub fn new(
        client: Client,
        limits: Limits,
        spec: Spec,
        proof: Option<(Box<dyn NodeProof>, Origin)>,
        deadline: Option<Instant>,
    ) -> Self {
        Self { client, limits, spec, proof, started: Instant::now(), deadline, attempts: 0, answered: None }
    }

    /// Exchanges begun so far.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The exchange that the report is about, once there was one.
    pub fn answered(&self) -> Option<&Answered> {
        self.answered.as_ref()
    }

    /// The spec that is asked for by now.
    pub fn spec(&self) -> Spec {
        self.spec
    }

    /// The token itself, for looking whether it stays behind anywhere.
    pub fn token(&self) -> Option<Secret<String>> {
        let (proof, _) = self.proof.as_ref()?;
        crate::proof::bearer(&proof.authorization())
    }

    /// The proof, for the next session.
    pub fn into_proof(self) -> Option<Box<dyn NodeProof>> {
        self.proof.map(|(proof, _)| proof)
    }

    /// What it all must keep to.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The connections' owner.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Fetches until `accept` takes the body, or until the table says that there is no point.
    pub fn get<T>(
        &mut self,
        url: &Url,
        headers: &Headers,
        accept: impl Fn(Vec<u8>) -> Result<T, Seen>,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        let mut streak = None;
        let mut tries = 0_u32;
        let mut last: Option<Seen> = None;
        loop {
            let budget = self.remaining().unwrap_or(self.limits.exchange).min(self.limits.exchange);
            if budget.is_zero() {
                let seen = last
                    .unwrap_or_else(|| Seen::new(Outcome::Unreachable, "the deadline had passed already"));
                return Err(Self::failed(url, &seen, tries, began.elapsed(), "the deadline"));
            }
            self.attempts += 1;
            tries += 1;
            let headers = self.headers_for(url, headers);
            let exchange = fetch::get(&self.client, url, self.spec, &headers, budget, &self.limits);
            let seen = match exchange.and_then(&accept) {
                Ok(good) => {
                    self.note(url);
                    return Ok(good);
                }
                // Cut short by our own deadline: what was seen before counts, not that.
                Err(cut) if self.remaining().is_some_and(|left| left.is_zero()) => {
                    let seen = last.filter(|_| cut.outcome == Outcome::Stalled).unwrap_or(cut);
                    return Err(Self::failed(url, &seen, tries, began.elapsed(), "the deadline"));
                }
                Err(seen) => seen,
            };
            let elapsed = self.started.elapsed();
            let (now, decision) = decide(seen.outcome, seen.retry_after, streak, elapsed, &self.limits);
            streak = Some(now);
            match decision {
                Decision::GiveUp => {
                    return Err(Self::failed(url, &seen, tries, began.elapsed(), "that was final"));
                }
                Decision::StepDown => match self.spec.step_down() {
                    Some(older) => {
                        tracing::info!("{} refuses spec {}; asking for {older}", url.origin(), self.spec);
                        self.spec = older;
                    }
                    None => {
                        return Err(Self::failed(
                            url,
                            &seen,
                            tries,
                            began.elapsed(),
                            "spec 3.0.0 was the oldest",
                        ));
                    }
                },
                Decision::Retry { schedule, failures, at_least, renew_proof } => {
                    let Some(pause) = self.pause(schedule, failures, at_least) else {
                        return Err(Self::failed(url, &seen, tries, began.elapsed(), "the deadline"));
                    };
                    tracing::warn!(
                        MESSAGE_ID = seen.outcome.message_id(),
                        ONEBOOT_OUTCOME = seen.outcome.name(),
                        ONEBOOT_ATTEMPT = tries,
                        "waiting for {url} since {}: {seen}; next try in {}",
                        show(began.elapsed()),
                        show(pause)
                    );
                    std::thread::sleep(pause);
                    if renew_proof {
                        self.renew();
                    }
                }
            }
            last = Some(seen);
        }
    }

    fn note(&mut self, url: &Url) {
        let before = self.answered.as_ref().map(|answered| answered.url.pool().is_some());
        if before.is_none() || (before == Some(false) && url.pool().is_some()) {
            let connected = self.client.connected();
            self.answered = Some(Answered { url: url.clone(), connected, ended: clock::boot_microseconds() });
        }
    }

    fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The pause, if another try fits in before the deadline. A fast one is cut to half of what is left, so that a
    /// server that has just come up is still noticed; a slow one or the server's own wish is never cut.
    fn pause(&self, schedule: Backoff, failures: u32, at_least: Duration) -> Option<Duration> {
        let drawn = schedule.pause(failures, backoff::unit());
        let Some(left) = self.remaining() else { return Some(drawn.max(at_least)) };
        if left < MIN_EXCHANGE {
            return None;
        }
        let drawn = if schedule.floor.is_zero() { drawn.min(left / 2) } else { drawn };
        let pause = drawn.max(at_least);
        (pause < left).then_some(pause)
    }

    /// The reference's own headers, with the proof in place of its `Authorization` where the proof belongs.
    fn headers_for(&self, url: &Url, own: &Headers) -> Vec<(String, crate::secret::Secret<String>)> {
        let mut headers = own.to_vec();
        if let Some((proof, origin)) = &self.proof
            && origin == url.origin()
        {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            headers.push(("Authorization".to_owned(), proof.authorization()));
        }
        headers
    }

    fn renew(&mut self) {
        if let Some((proof, _)) = &mut self.proof
            && let Err(error) = proof.renew()
        {
            // The old one is kept: a source that is being rewritten right now will be read again next time.
            tracing::warn!("the token could not be read again: {error}");
        }
    }

    fn failed(url: &Url, seen: &Seen, tries: u32, elapsed: Duration, end: &str) -> Failure {
        let times =
            if tries == 1 { "once".to_owned() } else { format!("{tries} times in {}", show(elapsed)) };
        Failure::new(seen.outcome, format!("{url}: {}", seen.detail)).effort(format!("{times}; {end}"))
    }
}
