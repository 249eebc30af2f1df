//! Owns: the choice of cryptography. No other file names a provider, so a validated one is swapped in here.
//! Gives the provider for every TLS connection and every certificate check.
//! Never: installs a process-wide default, which would hide who uses what.

use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// ring: aws-lc-rs costs 50 ms of CPU at every start and 0.7 MiB.
#[cfg(not(feature = "aws-lc"))]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// AWS-LC, not validated: what the next one is built from, for a machine without its build tools.
#[cfg(all(feature = "aws-lc", not(feature = "fips")))]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// AWS-LC's module that is validated for FIPS 140-3, with the suites that it allows.
#[cfg(feature = "fips")]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::default_fips_provider())
}
