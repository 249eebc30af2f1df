//! `token new|rotate|list|revoke`.

use time::OffsetDateTime;

use crate::client::{Client, Error};
use crate::exit::{DATA, failure};
use crate::tokens::{self, ID_LENGTH, Wish};
use crate::{names, stamp};

/// Makes a token and prints it, once.
pub async fn token_new(client: &Client, wish: Wish) -> anyhow::Result<()> {
    if let Some(pool) = &wish.pool {
        let path = format!("/apis/machineconfiguration.openshift.io/v1/machineconfigpools/{pool}");
        if let Err(Error::Status { code: 404, .. }) = client.get(&path).await {
            eprintln!("oneboot-cluster: there is no pool {pool} yet; the token will open it once there is");
        }
    }
    println!("{}", tokens::issue(client, &wish, OffsetDateTime::now_utc()).await?);
    Ok(())
}

/// Lists what is known of every token: never the token.
pub async fn token_list(client: &Client) -> anyhow::Result<()> {
    let secret = match client.get(&tokens::path()).await {
        Err(Error::Status { code: 404, .. }) => {
            println!(
                "this cluster has no Secret {}: configs are served without a token",
                names::TOKEN_SECRET
            );
            return Ok(());
        }
        other => other?,
    };
    let now = OffsetDateTime::now_utc();
    println!("{:ID_LENGTH$}  {:20}  {:20}  {:8}  NODE", "DIGEST", "POOL", "NOT AFTER", "STATE");
    for record in tokens::records(&secret) {
        let state = match stamp::parse(&record.not_after) {
            Some(end) if now < end => "valid",
            _ => "expired",
        };
        let id = record.sha256.get(..ID_LENGTH).unwrap_or("damaged");
        let (pool, node) =
            (record.pool.as_deref().unwrap_or("(every)"), record.node.as_deref().unwrap_or("-"));
        println!("{id:ID_LENGTH$}  {pool:20}  {:20}  {state:8}  {node}", record.not_after);
    }
    Ok(())
}

/// Takes a token away.
pub async fn token_revoke(client: &Client, id: &str) -> anyhow::Result<()> {
    // A short prefix would take away more than was meant.
    if id.len() < 8 || !id.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(failure(DATA, "give at least 8 characters of the digest, as `token list` shows them"));
    }
    match tokens::revoke(client, id, OffsetDateTime::now_utc()).await? {
        0 => Err(failure(DATA, format!("no token's digest starts with {id}: see `token list`"))),
        _ => Ok(()),
    }
}
