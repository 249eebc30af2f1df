//! Owns: the way from a pointer's `certificateAuthorities` to a bundle: several entries, data URLs, gzip, hashes.
//! Given the entries, gives one bundle of all of them, or says which entry is wrong and why.
//! Never: fetches a CA over a network: what would it be trusted by?

use crate::document::Resource;
use crate::failure::Failure;
use crate::outcome::{Limits, Outcome};
use crate::trust::CaBundle;
use crate::{content, dataurl};

/// All entries together. No entries give an empty bundle.
pub fn from_pointer(entries: &[Resource], limits: &Limits) -> Result<CaBundle, Failure> {
    let mut bundle = CaBundle::default();
    for (at, entry) in entries.iter().enumerate() {
        let unusable = |why: String| {
            let place = format!("ignition.security.tls.certificateAuthorities[{at}]: {why}");
            Failure::new(Outcome::UnusableCa, place).expected("PEM certificates in a data: URL, gzip or not")
        };
        let bytes = dataurl::decode(entry.source.expose()).map_err(|error| unusable(error.to_string()))?;
        let pem = content::unpack(bytes, entry.gzip, entry.hash.as_deref(), limits.body)
            .map_err(|seen| unusable(seen.detail))?;
        bundle.extend(CaBundle::from_pem(&pem).map_err(|error| unusable(error.to_string()))?);
    }
    Ok(bundle)
}
