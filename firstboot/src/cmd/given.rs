//! Owns: what this machine was given to work with, as every command that uses the network looks it up.
//! Given options and environment, gives kernel arguments, settings, token, CAs, the pointer, and a client.
//! Never: writes, or asks a Machine Config Server for anything.

use super::Environment;
use crate::authorities;
use crate::cli::Options;
use crate::cmdline::{self, Arguments};
use crate::config::{self, Settings};
use crate::document::{Document, Resource, Spec};
use crate::engage;
use crate::failure::Failure;
use crate::handoff::Place;
use crate::nested;
use crate::outcome::{Limits, Outcome};
use crate::paths::Paths;
use crate::pointer::{self, Metadata, Pointer, PointerError};
use crate::proof::{BearerToken, NodeProof, ProofError};
use crate::record::Record;
use crate::transport::{Client, Options as TransportOptions};
use crate::trust::{self, CaBundle};
use crate::url::{Origin, Url};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// For a metadata service that has answered before: a token that has been rotated is not worth more.
const REREAD: Duration = Duration::from_secs(10);

/// A proof, and whom it is for.
pub(super) type ProofFor = (Box<dyn NodeProof>, Origin);

/// Where everything else is looked up.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) options: Options,
    pub(super) environment: Environment,
    pub(super) paths: Paths,
    /// `--spec`
    pub(super) spec: Option<Spec>,
    pub(super) arguments: Arguments,
    pub(super) began: Instant,
}

/// A pointer as found, before anything is known about whose it is.
pub(super) struct Found {
    pub(super) source: &'static str,
    pub(super) document: Option<Document>,
    /// Out of the document, at whatever depth.
    pub(super) references: Vec<Resource>,
    pub(super) bytes: Vec<u8>,
    pub(super) from: Option<PathBuf>,
    pub(super) url: Option<Url>,
}

impl Given {
    /// Reads the kernel's arguments; an error is one of usage.
    pub(super) fn new(options: &Options, environment: &Environment) -> Result<Self, String> {
        let spec = options.spec.as_deref().map(str::parse::<Spec>).transpose();
        let spec = spec.map_err(|error| format!("--spec: {error}"))?;
        let paths = Paths::new(&options.root);
        // Without /proc there are no arguments to find; whatever else is wrong then will say so itself.
        let arguments = std::fs::read_to_string(paths.kernel_arguments()).unwrap_or_default();
        Ok(Self {
            options: options.clone(),
            environment: environment.clone(),
            paths,
            spec,
            arguments: cmdline::parse(&arguments),
            began: Instant::now(),
        })
    }

    /// When all waiting ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.options.deadline.map(|deadline| self.began + deadline)
    }

    /// Of the fragments; what nobody understands is warned about.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        let loaded = config::load(&self.paths, self.options.config.as_ref());
        let (settings, warnings) =
            loaded.map_err(|error| Failure::new(Outcome::BadSettings, error.to_string()))?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok(settings)
    }

    /// What the image says of its Ignition.
    pub(super) fn record(&self) -> Result<Record, Failure> {
        Record::load(&self.paths).map_err(|error| Failure::new(Outcome::BadSettings, error.to_string()))
    }

    /// Where the hand-over goes: `--out`, else where that Ignition looks.
    pub(super) fn place(&self, record: Record) -> Place {
        match &self.options.out {
            Some(out) => Place::exactly(out.clone()),
            None => Place::recorded(record.directory, &self.paths),
        }
    }

    /// The token that does not depend on a pointer: the credential, or `--token-file`.
    pub(super) fn early_proof(&self) -> Result<Option<Box<dyn NodeProof>>, Failure> {
        let (credentials, file) =
            (self.environment.credentials.as_deref(), self.options.token_file.as_deref());
        let found = BearerToken::find(credentials, file).map_err(|error| bad_proof(&error))?;
        Ok(found.map(|token| Box::new(token) as Box<dyn NodeProof>))
    }

    /// The token that the pointer itself carries for a Machine Config Server.
    pub(super) fn pointer_proof(&self, references: &[Resource]) -> Result<Option<ProofFor>, Failure> {
        let Some(carried) = references.iter().find_map(engage::carried) else { return Ok(None) };
        let given = self.clone();
        let reread = move || {
            let found = given.pointer(None, Some(Instant::now() + REREAD)).ok()??;
            found.references.iter().find_map(engage::carried).map(|carried| carried.token)
        };
        let proof = BearerToken::from_pointer(carried.source, &carried.token, Box::new(reread))
            .map_err(|error| bad_proof(&error))?;
        Ok(Some((Box::new(proof), carried.origin)))
    }

    /// The token that a URL carries, which then no longer does.
    pub(super) fn url_proof(url: &mut Url) -> Result<Option<Box<dyn NodeProof>>, Failure> {
        let Some(token) = url.take_token() else { return Ok(None) };
        let again = token.clone();
        let proof = BearerToken::from_pointer("pointer-url", &token, Box::new(move || Some(again.clone())));
        Ok(Some(Box::new(proof.map_err(|error| bad_proof(&error))?)))
    }

    /// The first pointer that exists. `ours` is an earlier hand-over that is not to be taken for one.
    /// A metadata service that does not answer is asked until `until`, or for ever.
    pub(super) fn pointer(
        &self,
        ours: Option<&Path>,
        until: Option<Instant>,
    ) -> Result<Option<Found>, Failure> {
        let metadata = Metadata::new(until);
        let context = pointer::Context {
            pointer: self.options.pointer.clone(),
            url: self.options.url.clone(),
            arguments: &self.arguments,
            paths: &self.paths,
            ours,
            metadata: &metadata,
        };
        let found = pointer::find(&context).map_err(|error| unreadable(&error))?;
        let Some((pointer, source)) = found else { return Ok(None) };
        match pointer {
            Pointer::Config { bytes, from } => {
                let document = Document::parse(&bytes, None).ok();
                let references =
                    document.as_ref().map(|document| nested::references(document, &Limits::default()));
                let references = references.unwrap_or_default();
                Ok(Some(Found { source, document, references, bytes, from: Some(from), url: None }))
            }
            Pointer::Url(text) => {
                let url = Url::parse(&text).map_err(|error| {
                    Failure::new(Outcome::NothingToFetch, format!("{source} {error}"))
                        .expected("https://<host>[:<port>]/<path>")
                })?;
                let (bytes, references) = (Vec::new(), Vec::new());
                Ok(Some(Found { source, document: None, references, bytes, from: None, url: Some(url) }))
            }
        }
    }

    /// `--ca`, or the credential `oneboot.ca`.
    pub(super) fn authority(&self) -> Result<Option<CaBundle>, Failure> {
        if let Some(path) = &self.options.ca {
            return authority(path).map(Some);
        }
        let credential = self.environment.credentials.as_ref().map(|directory| directory.join("oneboot.ca"));
        credential.filter(|path| path.exists()).map(|path| authority(&path)).transpose()
    }

    /// `--ca`, or what this document carries.
    pub(super) fn authority_of(&self, document: &Document) -> Result<CaBundle, Failure> {
        match &self.options.ca {
            Some(path) => authority(path),
            None => authorities::from_pointer(&document.authorities, &Limits::default()),
        }
    }

    /// A client that trusts this bundle and nothing else.
    pub(super) fn client(&self, bundle: &CaBundle, limits: &Limits) -> Result<Client, Failure> {
        if bundle.is_empty() {
            return Err(Failure::new(Outcome::NoCa, "no certificateAuthorities in the pointer, and no --ca")
                .expected("at least one CA: system roots are never consulted"));
        }
        let unusable = |error: trust::TrustError| Failure::new(Outcome::UnusableCa, error.to_string());
        let tls = trust::client_config(bundle, self.build_time(), None).map_err(unusable)?;
        let transport = TransportOptions {
            dial: None,
            connect_timeout: limits.connect,
            stall_timeout: Some(limits.stall),
            total_timeout: Some(limits.exchange),
        };
        Ok(Client::new(tls, &transport))
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

/// A file of CAs.
pub(super) fn authority(path: &Path) -> Result<CaBundle, Failure> {
    CaBundle::from_pem(&read(path)?)
        .map_err(|error| Failure::new(Outcome::UnusableCa, format!("{}: {error}", path.display())))
}

/// A file that must be there.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::new(Outcome::LocalIo, format!("cannot read {}: {error}", path.display())))
}

fn unreadable(error: &PointerError) -> Failure {
    match error {
        PointerError::Read { .. } => Failure::local(error),
        PointerError::Metadata(error) => Failure::new(Outcome::NoMetadata, error.to_string()),
    }
}

fn bad_proof(error: &ProofError) -> Failure {
    match error {
        ProofError::Read { .. } => Failure::local(error),
        _ => Failure::new(Outcome::BadToken, error.to_string()).expected("one line of base64"),
    }
}
