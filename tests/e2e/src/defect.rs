//! Owns: the one defect that a negative test puts into an otherwise good pointer.
//! Given a pointer, changes exactly one thing in it.
//! Never: two.

use anyhow::Context as _;
use base64::Engine as _;
use serde_json::{Value, json};

/// Another token in place of the good one.
pub fn token(pointer: &mut Value, token: &str) {
    pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"] = format!("Bearer {token}").into();
}

/// A well-formed token that nobody has issued.
pub fn unknown_token() -> String {
    base64::engine::general_purpose::STANDARD.encode([7_u8; 32])
}

/// No token.
pub fn no_token(pointer: &mut Value) {
    if let Some(entry) = pointer["ignition"]["config"]["merge"][0].as_object_mut() {
        entry.remove("httpHeaders");
    }
}

/// No CA.
pub fn no_ca(pointer: &mut Value) {
    if let Some(ignition) = pointer["ignition"].as_object_mut() {
        ignition.remove("security");
    }
}

/// A CA that has signed nothing here.
///
/// # Errors
/// When it cannot be made.
pub fn foreign_ca(pointer: &mut Value) -> anyhow::Result<()> {
    let key = rcgen::KeyPair::generate().context("making a key")?;
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "another cluster's machine-config-server");
    let pem = params.self_signed(&key).context("signing it")?.pem();
    let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
    pointer["ignition"]["security"]["tls"]["certificateAuthorities"] =
        json!([{ "source": format!("data:text/plain;charset=utf-8;base64,{encoded}") }]);
    Ok(())
}
