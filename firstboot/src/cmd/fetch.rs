//! Owns: `fetch`: pointer, engagement, trust, token, exchange, hand-over and report, in this order.
//! Given options and environment, gives the exit code; every step is another module's.
//! Never: writes a file before it is sure that this boot is ours.

use super::Environment;
use super::given::{Found, Given, ProofFor};
use crate::cli::Options;
use crate::clock;
use crate::config::{OnFailure, Settings};
use crate::document::{Document, Spec};
use crate::engage::{self, Engagement, Scope, Signs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fetch::Seen;
use crate::nested;
use crate::outcome::{Limits, Outcome};
use crate::patience::Session;
use crate::report::{McsHost, Phase, Report};
use crate::resolve;
use crate::spliced::Spliced;
use crate::trust::CaBundle;
use crate::url::Url;
use std::time::Duration;

/// The newest spec that the Machine Config Server knows; asked for where the image has not recorded its own.
const DEFAULT_SPEC: Spec = Spec(5);

/// How long a metadata service is asked while nothing says that this boot is ours: as long as Ignition itself asks.
const STRANGER: Duration = Duration::from_secs(120);

/// How a run without a failure ends.
enum Ended {
    Fetched,
    NotEngaged(&'static str),
}

pub(super) fn run(options: &Options, environment: &Environment) -> Exit {
    let given = match Given::new(options, environment) {
        Ok(given) => given,
        Err(error) => {
            eprintln!("oneboot-firstboot: {error}");
            return Exit::Usage;
        }
    };
    let boot_id = std::fs::read_to_string(given.paths.boot_id()).ok().map(|id| id.trim().to_owned());
    let mut report = Report::new(boot_id);
    let ended = to_the_end(&given, &mut report);
    let outcome = match &ended {
        Ok(Ended::Fetched) => Outcome::Fetched,
        Ok(Ended::NotEngaged(_)) => Outcome::NotEngaged,
        Err(failure) => failure.outcome,
    };
    report.ended(outcome, ended.as_ref().err().map(|failure| failure.found.as_str()));
    if ended.is_err() {
        forget(&given);
    }
    if !matches!(ended, Ok(Ended::NotEngaged(_))) {
        let path = options.report.clone().unwrap_or_else(|| given.paths.report());
        if let Err(error) = report.write(&path) {
            tracing::warn!("no report: {error}"); // it informs; a boot does not depend on it
        }
    }
    conclude(&report, outcome, &ended);
    outcome.exit()
}

/// After a failure anywhere there is no hand-over of ours, not even one of an earlier run in this boot.
fn forget(given: &Given) {
    let report = given.options.report.clone().unwrap_or_else(|| given.paths.report());
    let earlier =
        std::fs::read(report).ok().and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok());
    let sha512 = earlier.as_ref().and_then(|report| report["config"]["sha512"].as_str());
    let forgotten = given.record().and_then(|record| given.place(record).forget(sha512));
    if let Err(failure) = forgotten {
        tracing::warn!("an earlier hand-over may still be there: {failure}"); // the first failure is the one to report
    }
}

/// The journal's one entry for the outcome, and on a failure the last lines of standard error.
fn conclude(report: &Report, outcome: Outcome, ended: &Result<Ended, Failure>) {
    let url = report.url.as_deref().unwrap_or_default();
    let (id, name) = (outcome.message_id(), outcome.name());
    match ended {
        Ok(Ended::NotEngaged(why)) => {
            tracing::info!(MESSAGE_ID = id, ONEBOOT_OUTCOME = name, "none of our business: {why}");
        }
        Ok(Ended::Fetched) => {
            let size = report.config.as_ref().map_or(0, |config| config.size);
            tracing::info!(
                MESSAGE_ID = id,
                ONEBOOT_OUTCOME = name,
                ONEBOOT_URL = url,
                ONEBOOT_ATTEMPTS = report.attempts,
                "fetched {url} in {} attempt(s); {size} bytes handed over to Ignition",
                report.attempts
            );
        }
        Err(failure) => {
            tracing::error!(MESSAGE_ID = id, ONEBOOT_OUTCOME = name, ONEBOOT_URL = url, "{failure}");
            for line in failure.lines() {
                eprintln!("{line}");
            }
        }
    }
}

fn to_the_end(given: &Given, report: &mut Report) -> Result<Ended, Failure> {
    let start = clock::boot_microseconds();
    let (options, arguments) = (&given.options, &given.arguments);
    if let Some(name) = arguments.token {
        return Err(Failure::new(Outcome::TokenOnCmdline, format!("{name} among the kernel's arguments"))
            .expected("a token that only root can read"));
    }
    let proof = given.early_proof()?;
    refuse_two_urls(given, proof.is_some())?;
    let argument = arguments.any || options.url.is_some();
    let ours = proof.is_some() || argument;
    let until = if ours { given.deadline() } else { Some(given.began + STRANGER) };
    let found = match given.pointer(None, until) {
        // Ignition asks the same service next, and has its own way to give up.
        Err(failure) if !ours && failure.outcome == Outcome::NoMetadata => {
            return Ok(Ended::NotEngaged("no token, and the platform's metadata service has no answer"));
        }
        found => found?,
    };
    report.pointer_source = found.as_ref().map(|found| found.source);
    let document = found.as_ref().and_then(|found| found.document.as_ref());
    let signs = Signs {
        token: proof.is_some(),
        argument,
        authority: options.ca.is_some() || document.is_some_and(|document| !document.authorities.is_empty()),
        references: document.and(found.as_ref()).map(|found| found.references.as_slice()),
    };
    let scope = match engage::decide(&signs) {
        Engagement::No(why) => return Ok(Ended::NotEngaged(why)),
        Engagement::Yes(scope) => scope,
    };
    for name in &arguments.unknown {
        tracing::warn!("unknown kernel argument {name} ignored");
    }
    let Some(found) = found else {
        return Err(Failure::new(Outcome::NoPointer, "none of the sources has a pointer config"));
    };
    let record = given.record()?;
    let place = given.place(record);
    place.clear(found.from.as_deref())?;
    let settings = given.settings()?;
    let spec = given.spec.or(settings.spec).or(record.spec).unwrap_or(DEFAULT_SPEC);

    let mut deal = Deal { given, settings, spec, proof: None, attempts: 0 };
    let resolved = match &found.url {
        Some(url) => deal.by_url(url, proof, report)?,
        None => deal.by_document(scope, found, proof, report)?,
    };
    let handed = clock::boot_microseconds();
    place.write(&resolved)?;
    report.config = Some(resolved.digested());
    report.phases.insert(0, Phase { name: "total", start_us: start, end_us: clock::boot_microseconds() });
    report.phase("handoff", handed, clock::boot_microseconds());
    Ok(Ended::Fetched)
}

/// Ignition would fetch `ignition.config.url=` itself, whatever we hand over, and keep the header.
fn refuse_two_urls(given: &Given, token: bool) -> Result<(), Failure> {
    if token && given.arguments.ignition_url {
        return Err(Failure::new(
            Outcome::ConflictingUrl,
            "ignition.config.url= among the kernel's arguments",
        ));
    }
    Ok(())
}

/// An engaged boot on its way to a config.
struct Deal<'a> {
    given: &'a Given,
    settings: Settings,
    spec: Spec,
    proof: Option<ProofFor>,
    attempts: u32,
}

/// What does not depend on the pointer, and so has no origin yet.
type EarlyProof = Option<Box<dyn crate::proof::NodeProof>>;

impl Deal<'_> {
    /// The pointer is a document that was found on this machine.
    fn by_document(
        &mut self,
        scope: Scope,
        found: Found,
        proof: EarlyProof,
        report: &mut Report,
    ) -> Result<Spliced, Failure> {
        let document = match found.document {
            Some(document) => document,
            None => Document::parse(&found.bytes, None)
                .map_err(|error| Failure::new(Outcome::BadPointer, format!("the pointer is {error}")))?,
        };
        let target = engage::target(&found.references);
        self.proof = match proof {
            Some(proof) => target.as_ref().map(|url| (proof, url.origin().clone())),
            None => self.given.pointer_proof(&found.references)?,
        };
        self.describe(report, target.as_ref());
        refuse_two_urls(self.given, self.proof.is_some())?;
        let bundle = self.given.authority_of(&document)?;
        let mut session = self.session(&bundle, report)?;
        let resolved = resolve::resolve(&mut session, scope, document, found.bytes);
        self.note(&session, report);
        resolved
    }

    /// The pointer, or the config itself, is behind a URL.
    fn by_url(&mut self, url: &Url, proof: EarlyProof, report: &mut Report) -> Result<Spliced, Failure> {
        let mut url = url.clone();
        let carried = Given::url_proof(&mut url)?;
        let mut proof = proof.or(carried);
        refuse_two_urls(self.given, proof.is_some())?;
        // A pointer that is not itself at a Machine Config Server gets no token: that is for whom it points to.
        if url.pool().is_some() {
            self.proof = proof.take().map(|proof| (proof, url.origin().clone()));
        }
        self.describe(report, Some(&url));
        report.token_source = report.token_source.or(proof.as_ref().map(|proof| proof.source()));
        let bundle = self.given.authority()?.unwrap_or_default();
        let mut session = self.session(&bundle, report)?;
        let fetched = fetch_document(&mut session, &url);
        self.note(&session, report);
        let (document, bytes) = fetched?;
        let proof = proof.or(session.into_proof());

        let bundle =
            if document.authorities.is_empty() { bundle } else { self.given.authority_of(&document)? };
        let references = nested::references(&document, &Limits::default());
        let target = engage::target(&references);
        self.proof = match proof {
            Some(proof) => Some((proof, target.as_ref().unwrap_or(&url).origin().clone())),
            None => self.given.pointer_proof(&references)?,
        };
        if let Some(target) = &target {
            self.describe(report, Some(target));
        }
        let mut session = self.session(&bundle, report)?;
        let resolved = resolve::resolve(&mut session, Scope::EveryHttps, document, bytes);
        if session.answered().is_some() || resolved.is_err() {
            self.note(&session, report);
        }
        resolved
    }

    fn describe(&self, report: &mut Report, target: Option<&Url>) {
        report.token_source = self.proof.as_ref().map(|(proof, _)| proof.source());
        report.url = target.map(ToString::to_string);
        report.pool = target.and_then(Url::pool).map(ToOwned::to_owned);
        report.mcs_host = target.map(|url| McsHost { name: url.origin().host.clone(), address: None });
    }

    /// With the proof there is, which goes to its origin only.
    fn session(&mut self, bundle: &CaBundle, report: &mut Report) -> Result<Session, Failure> {
        report.ca_fingerprints = bundle.fingerprints();
        let mut limits = Limits::default();
        limits.give_up_after = match self.settings.on_failure {
            OnFailure::Exit => self.settings.give_up_after.or(limits.give_up_after),
            OnFailure::Retry => None,
        };
        let client = self.given.client(bundle, &limits)?;
        Ok(Session::new(client, limits, self.spec, self.proof.take(), self.given.deadline()))
    }

    /// What the exchanges have shown, good or bad.
    fn note(&mut self, session: &Session, report: &mut Report) {
        self.attempts += session.attempts();
        report.attempts = self.attempts;
        report.spec = Some(session.spec().to_string());
        let connected =
            session.answered().map_or_else(|| session.client().connected(), |answered| answered.connected);
        if let Some(host) = &mut report.mcs_host {
            host.address = connected.map(|connected| connected.address.ip().to_string());
        }
        if let Some((answered, connected)) = session.answered().zip(connected) {
            report.phase("connect", connected.dialled, connected.connected);
            report.phase("tls", connected.connected, connected.secured);
            report.phase("fetch", connected.secured, answered.ended);
        }
    }
}

fn fetch_document(session: &mut Session, url: &Url) -> Result<(Document, Vec<u8>), Failure> {
    let newest = session.spec();
    session.get(url, &[], |body| {
        let document = Document::parse(&body, Some(newest));
        let document = document.map_err(|error| Seen::new(error.outcome(), error.to_string()))?;
        Ok((document, body))
    })
}
