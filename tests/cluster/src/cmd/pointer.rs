//! `pointer`: what the installer would put into user data (facts/mco.md 1.7), with the token of the day.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::cli::TokenIn;
use crate::client::{Client, Error};
use crate::exit::{CONFIG, failure};
use crate::names::{MCO_NAMESPACE, MCS_CA, MCS_ENDPOINT};
use crate::tokens;

/// Prints a pointer config.
pub async fn pointer(client: &Client, pool: &str, token_in: TokenIn) -> anyhow::Result<()> {
    let url = config_map(client, MCS_ENDPOINT, "url").await?;
    let bundle = config_map(client, MCS_CA, "ca-bundle.crt").await?;
    let token = match client.get(&tokens::path()).await {
        Ok(secret) => tokens::current(&secret, pool, OffsetDateTime::now_utc()),
        Err(Error::Status { code: 404, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    println!("{}", pointer_config(&url, pool, &bundle, token.as_deref(), token_in));
    Ok(())
}

async fn config_map(client: &Client, name: &str, key: &str) -> anyhow::Result<String> {
    let object = match client.get(&format!("/api/v1/namespaces/{MCO_NAMESPACE}/configmaps/{name}")).await {
        Err(Error::Status { code: 404, .. }) => {
            return Err(failure(
                CONFIG,
                "no machine config server has run yet: start `oneboot-cluster serve --dir DIR`",
            ));
        }
        other => other?,
    };
    object["data"][key]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| failure(CONFIG, format!("the ConfigMap {name} has no {key}")))
}

/// The pointer itself. Pure.
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
