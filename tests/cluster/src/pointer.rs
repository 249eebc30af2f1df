//! Owns the pointer config: what the installer puts into user data (facts/mco.md 1.7), with the token of the day.
//! Given a URL, a pool, the CA bundle and a token; gives an Ignition config.
//! Never reads or writes anything.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::ValueEnum;
use serde_json::{Value, json};

/// Where a pointer carries the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TokenIn {
    /// `Authorization: Bearer` in httpHeaders.
    Header,
    /// `?token=` in the source.
    Url,
    /// Nowhere.
    None,
}

/// The pointer.
pub fn pointer_config(url: &str, pool: &str, bundle: &str, token: Option<&str>, token_in: TokenIn) -> Value {
    let source = format!("{url}/config/{pool}");
    let entry = match (token, token_in) {
        (Some(token), TokenIn::Header) => {
            json!({"source": source, "httpHeaders": [{"name": "Authorization", "value": format!("Bearer {token}")}]})
        }
        // `+` means a space to whoever decodes a query: encoded, as design 5 "Token" says; `/` and `=` with it.
        (Some(token), TokenIn::Url) => {
            let encoded = token.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
            json!({"source": format!("{source}?token={encoded}")})
        }
        _ => json!({"source": source}),
    };
    let ca = format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(bundle));
    json!({"ignition": {
        "version": "3.5.0", "config": {"merge": [entry]},
        "security": {"tls": {"certificateAuthorities": [{"source": ca}]}},
    }})
}
