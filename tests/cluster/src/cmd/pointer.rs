//! `pointer`: what the installer would put into user data.

use time::OffsetDateTime;

use crate::client::{Client, Error};
use crate::exit::{CONFIG, failure};
use crate::names::{MCO_NAMESPACE, MCS_CA, MCS_ENDPOINT};
use crate::pointer::{TokenIn, pointer_config};
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
