//! Owns: `report`: this boot's report offered to the Machine Config Server, once.
//! Given what `fetch` has left, gives one request; whatever comes of it is one line in the journal and exit 0.
//! Never: fails or delays a boot, tries twice, or sends a token to another server than `fetch` would have.

use super::Environment;
use super::given::{Found, Given, ProofFor};
use crate::cli::Options;
use crate::document::Document;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fetch;
use crate::outcome::{Limits, Outcome};
use crate::report::{FORMAT, MESSAGE_ID_OFFERED, PATH, SIZE_LIMIT};
use crate::trust::CaBundle;
use crate::url::Url;
use serde::Deserialize;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Less than the 15 s after which the unit is killed: a person may be waiting behind it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is read of the report itself.
#[derive(Deserialize)]
struct Head {
    format: u32,
    outcome: String,
    url: Option<String>,
}

pub(super) fn run(options: &Options, environment: &Environment) -> Exit {
    let mut options = options.clone();
    options.deadline.get_or_insert(PATIENCE);
    let given = match Given::new(&options, environment) {
        Ok(given) => given,
        Err(error) => {
            eprintln!("oneboot-firstboot: {error}");
            return Exit::Usage;
        }
    };
    let said = match offer(&given) {
        Ok(said) => said,
        Err(failure) => format!("the report was not taken: {failure}"),
    };
    tracing::info!(MESSAGE_ID = MESSAGE_ID_OFFERED, "{said}");
    Exit::Ok
}

fn offer(given: &Given) -> Result<String, Failure> {
    let path = given.options.report.clone().unwrap_or_else(|| given.paths.report());
    let Some(body) = read(&path)? else {
        return Ok(format!("nothing to report: there is no {}", path.display()));
    };
    let head: Head = serde_json::from_slice(&body).map_err(|_| unusable(&path, "is not a report"))?;
    if head.format != FORMAT {
        return Err(unusable(&path, &format!("has format {}, where {FORMAT} is understood", head.format)));
    }
    let Some(url) = head.url.as_deref().and_then(|url| Url::parse(url).ok()) else {
        return Ok(format!("nobody to report to: {} names no server", path.display()));
    };
    let to = url.join(PATH).map_err(|error| unusable(&path, &error.to_string()))?;

    let ours = if head.outcome == Outcome::Fetched.name() { Some(handed_over(given)?) } else { None };
    let found = given.pointer(ours.as_deref(), given.deadline())?;
    let limits = Limits::default();
    let client = given.client(&authority(given, ours.as_deref(), found.as_ref())?, &limits)?;
    let headers = match proof(given, found, &to)? {
        Some((proof, origin)) if origin == *to.origin() => {
            vec![("Authorization".to_owned(), proof.authorization())]
        }
        _ => Vec::new(),
    };
    let left = given.deadline().map_or(PATIENCE, |deadline| {
        deadline.saturating_duration_since(std::time::Instant::now()).min(limits.exchange)
    });
    match fetch::post(&client, &to, &headers, &body, left)? {
        204 => Ok(format!("the report was taken by {}", to.origin())),
        other => Err(Failure::new(Outcome::UnexpectedStatus, format!("{to}: status {other}"))),
    }
}

/// The report, if there is one, and if it is no larger than a server has to take.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file,
    };
    let mut body = Vec::new();
    file.and_then(|file| file.take(SIZE_LIMIT + 1).read_to_end(&mut body)).map_err(|error| {
        Failure::new(Outcome::LocalIo, format!("cannot read {}: {error}", path.display()))
    })?;
    if body.len() as u64 > SIZE_LIMIT {
        return Err(unusable(path, &format!("has more than {SIZE_LIMIT} bytes")));
    }
    Ok(Some(body))
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::new(Outcome::LocalIo, format!("{} {why}", path.display()))
}

/// Where `fetch` has put the config: it is no pointer any more.
fn handed_over(given: &Given) -> Result<PathBuf, Failure> {
    Ok(given.place(given.record()?).file().to_owned())
}

/// The CAs that `fetch` trusted: the config that was handed over still has the pointer's.
fn authority(given: &Given, ours: Option<&Path>, found: Option<&Found>) -> Result<CaBundle, Failure> {
    let handed = ours.and_then(|path| std::fs::read(path).ok());
    let handed = handed.and_then(|bytes| Document::parse(&bytes, None).ok());
    let document = handed.as_ref().or(found.and_then(|found| found.document.as_ref()));
    match document.filter(|document| !document.authorities.is_empty()) {
        Some(document) => given.authority_of(document),
        None => Ok(given.authority()?.unwrap_or_default()),
    }
}

/// The token, by the same rules as `fetch`'s.
fn proof(given: &Given, found: Option<Found>, to: &Url) -> Result<Option<ProofFor>, Failure> {
    if let Some(proof) = given.early_proof()? {
        return Ok(Some((proof, to.origin().clone())));
    }
    let Some(found) = found else { return Ok(None) };
    match found.url {
        Some(mut url) => Ok(Given::url_proof(&mut url)?.map(|proof| (proof, url.origin().clone()))),
        None => given.pointer_proof(&found.references),
    }
}
