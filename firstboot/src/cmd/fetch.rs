//! Owns: `fetch`: pointer, engagement, trust, token, exchange, hand-over and report, in this order.
//! Given options and environment, gives the exit code; every step is another module's.
//! Never: writes a file before it is sure that this boot is ours.

use super::{Environment, check};
use crate::authorities;
use crate::cli::Options;
use crate::clock;
use crate::cmdline::{self, Arguments};
use crate::config::{self, OnFailure, Settings};
use crate::document::{Document, Spec};
use crate::engage::{self, Engagement, Scope, Signs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fetch::Seen;
use crate::handoff;
use crate::outcome::{Limits, Outcome};
use crate::paths::Paths;
use crate::patience::Session;
use crate::pointer::{self, Pointer};
use crate::proof::{self, BearerToken, NodeProof, ProofError};
use crate::report::{McsHost, Report};
use crate::resolve::{self, Resolved};
use crate::secret::Secret;
use crate::transport::{Client, Options as TransportOptions};
use crate::trust::{self, CaBundle};
use crate::url::{Origin, Url};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The newest spec that the Machine Config Server knows; asked for where the image has not recorded its own.
const DEFAULT_SPEC: Spec = Spec(5);

/// How a run without a failure ends.
enum Ended {
    Fetched,
    NotEngaged(&'static str),
}

pub(super) fn run(options: &Options, environment: &Environment) -> Exit {
    let spec = match options.spec.as_deref().map(str::parse::<Spec>).transpose() {
        Ok(spec) => spec,
        Err(error) => {
            eprintln!("oneboot-firstboot: --spec: {error}");
            return Exit::Usage;
        }
    };
    let paths = Paths::new(&options.root);
    let boot_id = std::fs::read_to_string(paths.boot_id()).ok().map(|id| id.trim().to_owned());
    let mut report = Report::new(boot_id);
    let run = Run { options, environment, paths, spec };
    let ended = run.to_the_end(&mut report);
    let outcome = match &ended {
        Ok(Ended::Fetched) => Outcome::Fetched,
        Ok(Ended::NotEngaged(_)) => Outcome::NotEngaged,
        Err(failure) => failure.outcome,
    };
    report.outcome = outcome.name();
    report.class = outcome.exit().name();
    report.exit = outcome.exit().code();
    report.message = ended.as_ref().err().map(|failure| failure.found.clone());
    if !matches!(ended, Ok(Ended::NotEngaged(_))) {
        let path = options.report.clone().unwrap_or_else(|| run.paths.report());
        if let Err(error) = report.write(&path) {
            tracing::warn!("no report: {error}"); // it informs; a boot does not depend on it
        }
    }
    conclude(&report, outcome, &ended);
    outcome.exit()
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

struct Run<'a> {
    options: &'a Options,
    environment: &'a Environment,
    paths: Paths,
    spec: Option<Spec>,
}

/// A pointer as found, before anything is known about whose it is.
struct Found {
    document: Option<Document>,
    bytes: Vec<u8>,
    from: Option<PathBuf>,
    url: Option<Url>,
}

impl Run<'_> {
    fn to_the_end(&self, report: &mut Report) -> Result<Ended, Failure> {
        let start = clock::boot_microseconds();
        let began = Instant::now();
        let arguments = self.arguments();
        if let Some(name) = arguments.token {
            return Err(Failure::new(
                Outcome::TokenOnCmdline,
                format!("{name} among the kernel's arguments"),
            )
            .expected("a token that only root can read"));
        }
        let proof = self.early_proof()?;
        let found = self.pointer(&arguments, report)?;
        let signs = Signs {
            token: proof.is_some(),
            argument: arguments.any || self.options.url.is_some(),
            authority: self.options.ca.is_some(),
            document: found.as_ref().and_then(|found| found.document.as_ref()),
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
        let out = self.options.out.clone().unwrap_or_else(|| self.paths.handoff());
        handoff::clear(&out, found.from.as_deref())?;
        let settings = self.settings()?;

        let mut deal = Deal { run: self, arguments: &arguments, settings, began, proof, attempts: 0 };
        let resolved = match &found.url {
            Some(url) => deal.by_url(url, report)?,
            None => deal.by_document(scope, found, report)?,
        };
        let handed = clock::boot_microseconds();
        report.config = Some(handoff::write(&out, &resolved)?);
        report.phases.insert(
            0,
            crate::report::Phase { name: "total", start_us: start, end_us: clock::boot_microseconds() },
        );
        report.phase("handoff", handed, clock::boot_microseconds());
        Ok(Ended::Fetched)
    }

    fn arguments(&self) -> Arguments {
        // Without /proc there are no arguments to find; whatever else is wrong then will say so itself.
        cmdline::parse(&std::fs::read_to_string(self.paths.kernel_arguments()).unwrap_or_default())
    }

    fn early_proof(&self) -> Result<Option<Box<dyn NodeProof>>, Failure> {
        let (credentials, file) =
            (self.environment.credentials.as_deref(), self.options.token_file.as_deref());
        let found = BearerToken::find(credentials, file).map_err(|error| bad_proof(&error))?;
        Ok(found.map(|token| Box::new(token) as Box<dyn NodeProof>))
    }

    fn pointer(&self, arguments: &Arguments, report: &mut Report) -> Result<Option<Found>, Failure> {
        let context = pointer::Context {
            pointer: self.options.pointer.clone(),
            url: self.options.url.clone(),
            arguments,
            paths: &self.paths,
        };
        let Some((pointer, source)) = pointer::find(&context).map_err(|error| Failure::local(&error))? else {
            return Ok(None);
        };
        report.pointer_source = Some(source);
        match pointer {
            Pointer::Config { bytes, from } => {
                let document = Document::parse(&bytes, None).ok();
                Ok(Some(Found { document, bytes, from: Some(from), url: None }))
            }
            Pointer::Url(text) => {
                let url = Url::parse(&text).map_err(|error| {
                    Failure::new(Outcome::NothingToFetch, format!("{source} {error}"))
                        .expected("https://<host>[:<port>]/<path>")
                })?;
                Ok(Some(Found { document: None, bytes: Vec::new(), from: None, url: Some(url) }))
            }
        }
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let loaded = config::load(&self.paths, self.options.config.as_ref());
        let (settings, warnings) =
            loaded.map_err(|error| Failure::new(Outcome::BadSettings, error.to_string()))?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok(settings)
    }

    /// `--ca`, or the credential `oneboot.ca`.
    fn given_authority(&self) -> Result<Option<CaBundle>, Failure> {
        if let Some(path) = &self.options.ca {
            return check::authority(path).map(Some);
        }
        let credential = self.environment.credentials.as_ref().map(|directory| directory.join("oneboot.ca"));
        credential.filter(|path| path.exists()).map(|path| check::authority(&path)).transpose()
    }

    /// When the image was built, in seconds since 1970: a time that has certainly passed.
    fn build_time(&self) -> u64 {
        let modified = |path: &Path| {
            let since =
                std::fs::metadata(path).ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
            Some(since.as_secs())
        };
        self.paths.build_stamps().iter().filter_map(|path| modified(path)).max().unwrap_or(0)
    }
}

/// An engaged boot on its way to a config.
struct Deal<'a> {
    run: &'a Run<'a>,
    arguments: &'a Arguments,
    settings: Settings,
    began: Instant,
    proof: Option<Box<dyn NodeProof>>,
    attempts: u32,
}

impl Deal<'_> {
    /// The pointer is a document that was found on this machine.
    fn by_document(&mut self, scope: Scope, found: Found, report: &mut Report) -> Result<Resolved, Failure> {
        let document = match found.document {
            Some(document) => document,
            None => Document::parse(&found.bytes, None)
                .map_err(|error| Failure::new(Outcome::BadPointer, format!("the pointer is {error}")))?,
        };
        let target = target(&document);
        if self.proof.is_none() {
            self.proof = self.pointer_proof(&document)?;
        }
        self.describe(report, target.as_ref());
        self.refuse_two_urls()?;
        let bundle = match self.run.options.ca.as_deref() {
            Some(path) => check::authority(path)?,
            None => authorities::from_pointer(&document.authorities, &Limits::default())?,
        };
        let mut session = self.session(&bundle, target.map(|url| url.origin().clone()), report)?;
        let resolved = resolve::resolve(&mut session, scope, document, found.bytes);
        self.note(&session, report);
        resolved
    }

    /// The pointer, or the config itself, is behind a URL.
    fn by_url(&mut self, url: &Url, report: &mut Report) -> Result<Resolved, Failure> {
        let mut url = url.clone();
        if let Some(token) = url.take_token()
            && self.proof.is_none()
        {
            let again = token.clone();
            let proof =
                BearerToken::from_pointer("pointer-url", &token, Box::new(move || Some(again.clone())));
            self.proof = Some(Box::new(proof.map_err(|error| bad_proof(&error))?));
        }
        self.describe(report, Some(&url));
        self.refuse_two_urls()?;
        let bundle = self.run.given_authority()?.unwrap_or_default();
        // A pointer that is not itself at a Machine Config Server gets no token: that is for whom it points to.
        let origin = url.pool().map(|_| url.origin().clone());
        let mut session = self.session(&bundle, origin, report)?;
        let fetched = fetch_document(&mut session, &url);
        self.note(&session, report);
        let (document, bytes) = fetched?;
        self.proof = self.proof.take().or(session.into_proof());

        let bundle = match (&self.run.options.ca, document.authorities.is_empty()) {
            (None, false) => authorities::from_pointer(&document.authorities, &Limits::default())?,
            _ => bundle,
        };
        let target = target(&document);
        if let Some(target) = &target {
            self.describe(report, Some(target));
        }
        let origin = target.map_or_else(|| url.origin().clone(), |target| target.origin().clone());
        let mut session = self.session(&bundle, Some(origin), report)?;
        let resolved = resolve::resolve(&mut session, Scope::EveryHttps, document, bytes);
        if session.answered().is_some() || resolved.is_err() {
            self.note(&session, report);
        }
        resolved
    }

    /// The token that the pointer itself carries for its Machine Config Server.
    fn pointer_proof(&self, document: &Document) -> Result<Option<Box<dyn NodeProof>>, Failure> {
        let Some((source, token)) = carried(document) else { return Ok(None) };
        let context = (self.run.options.clone(), self.arguments.clone(), self.run.paths.clone());
        let reread = move || {
            let (options, arguments, paths) = &context;
            let pointer = options.pointer.clone();
            let context = pointer::Context { pointer, url: options.url.clone(), arguments, paths };
            let Some((Pointer::Config { bytes, .. }, _)) = pointer::find(&context).ok()? else { return None };
            carried(&Document::parse(&bytes, None).ok()?).map(|(_, token)| token)
        };
        BearerToken::from_pointer(source, &token, Box::new(reread))
            .map(|token| Some(Box::new(token) as Box<dyn NodeProof>))
            .map_err(|error| bad_proof(&error))
    }

    /// Ignition would fetch `ignition.config.url=` itself, whatever we hand over, and keep the header.
    fn refuse_two_urls(&self) -> Result<(), Failure> {
        if self.proof.is_some() && self.arguments.ignition_url {
            return Err(Failure::new(
                Outcome::ConflictingUrl,
                "ignition.config.url= among the kernel's arguments",
            ));
        }
        Ok(())
    }

    fn describe(&self, report: &mut Report, target: Option<&Url>) {
        report.token_source = self.proof.as_ref().map(|proof| proof.source());
        report.url = target.map(ToString::to_string);
        report.pool = target.and_then(Url::pool).map(ToOwned::to_owned);
        report.mcs_host = target.map(|url| McsHost { name: url.origin().host.clone(), address: None });
    }

    fn session(
        &mut self,
        bundle: &CaBundle,
        origin: Option<Origin>,
        report: &mut Report,
    ) -> Result<Session, Failure> {
        if bundle.is_empty() {
            return Err(Failure::new(Outcome::NoCa, "no certificateAuthorities in the pointer, and no --ca")
                .expected("at least one CA: system roots are never consulted"));
        }
        report.ca_fingerprints = bundle.fingerprints();
        let unusable = |error: trust::TrustError| Failure::new(Outcome::UnusableCa, error.to_string());
        let tls = trust::client_config(bundle, self.run.build_time(), None).map_err(unusable)?;
        let mut limits = Limits::default();
        limits.give_up_after = match self.settings.on_failure {
            OnFailure::Exit => self.settings.give_up_after.or(limits.give_up_after),
            OnFailure::Retry => None,
        };
        let transport = TransportOptions {
            dial: None,
            connect_timeout: limits.connect,
            stall_timeout: Some(limits.stall),
            total_timeout: Some(limits.exchange),
        };
        let spec = self.run.spec.or(self.settings.spec).unwrap_or(DEFAULT_SPEC);
        let deadline = self.run.options.deadline.map(|deadline| self.began + deadline);
        let proof = match origin {
            Some(origin) => self.proof.take().map(|proof| (proof, origin)),
            None => None,
        };
        Ok(Session::new(Client::new(tls, &transport), limits, spec, proof, deadline))
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

/// The reference that the report and the token are about: the first to a pool, or else the first over https.
fn target(document: &Document) -> Option<Url> {
    let urls =
        || document.references.iter().filter_map(|(_, reference)| Url::parse(reference.source.expose()).ok());
    urls().find(|url| url.pool().is_some()).or_else(|| urls().next())
}

/// The token of the first reference to a Machine Config Server that carries one: its header, then its URL.
fn carried(document: &Document) -> Option<(&'static str, Secret<String>)> {
    document.references.iter().find_map(|(_, reference)| {
        let mut url = engage::machine_config(reference)?;
        let authorization =
            reference.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        match authorization.and_then(|(_, value)| proof::bearer(value)) {
            Some(token) => Some(("pointer-header", token)),
            None => url.take_token().map(|token| ("pointer-url", token)),
        }
    })
}

fn fetch_document(session: &mut Session, url: &Url) -> Result<(Document, Vec<u8>), Failure> {
    let newest = session.spec();
    session.get(url, &[], |body| {
        let document = Document::parse(&body, Some(newest));
        let document = document.map_err(|error| Seen::new(error.outcome(), error.to_string()))?;
        Ok((document, body))
    })
}

fn bad_proof(error: &ProofError) -> Failure {
    match error {
        ProofError::Read { .. } => Failure::local(error),
        _ => Failure::new(Outcome::BadToken, error.to_string()).expected("one line of base64"),
    }
}
