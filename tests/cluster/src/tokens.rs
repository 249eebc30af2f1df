//! Owns provisioning tokens: the Secret `machineconfig-auth` in `openshift-config`, and who is let in by one.
//! Given a presented token, gives a verdict; given a wish (new, rotate, revoke), gives a changed Secret.
//! Never stores one that is not current in clear, never logs one, never compares one: digests, in constant time.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use subtle::{Choice, ConstantTimeEq as _};
use time::{Duration, OffsetDateTime};

use crate::client::{Client, Error};
use crate::names::{CONFIG_NAMESPACE, TOKEN_SECRET};
use crate::stamp;

/// Where the list of digests is in the Secret.
const RECORDS: &str = "tokens.json";
/// A record is kept this long after its end, so that `token list` can say why a node was refused.
const REMEMBERED: Duration = Duration::days(1);

/// One token, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// SHA-256 of the trimmed token, hexadecimal.
    pub sha256: String,
    /// The pool it is for; none is every pool.
    pub pool: Option<String>,
    /// RFC 3339; what cannot be read has expired.
    pub not_after: String,
    /// The one node it was made for, if any.
    pub node: Option<String>,
}

impl Record {
    fn valid(&self, now: OffsetDateTime) -> bool {
        stamp::parse(&self.not_after).is_some_and(|end| now < end)
    }

    fn opens(&self, pool: &str) -> bool {
        self.pool.as_deref().is_none_or(|own| own == pool)
    }
}

/// What a request shows. Not `Debug`: it holds a token.
#[derive(Clone)]
pub enum Presented {
    /// No token.
    Nothing,
    /// Two tokens, another scheme, or text that is no token.
    Malformed,
    /// One.
    Token(String),
}

/// What the gate says. The digest's first characters name a token in logs and lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Come in.
    Admitted {
        /// Which token, by the start of its digest.
        id: String,
    },
    /// 401: nothing was shown.
    Missing,
    /// 401: not a token.
    Malformed,
    /// 401: nobody knows it.
    Unknown,
    /// 401: it was good once.
    Expired,
    /// 403: it is good for another pool.
    WrongPool,
}

/// How many characters of a digest name a token.
pub const ID_LENGTH: usize = 12;

/// Judges what is shown against every record, all of them always, so that time tells nothing. Without a pool any
/// valid token will do.
pub fn judge(records: &[Record], presented: &Presented, pool: Option<&str>, now: OffsetDateTime) -> Verdict {
    let token = match presented {
        Presented::Nothing => return Verdict::Missing,
        Presented::Malformed => return Verdict::Malformed,
        Presented::Token(token) => token.trim(),
    };
    let digest = stamp::sha256(token);
    let (mut known, mut valid, mut opens) = (Choice::from(0), Choice::from(0), Choice::from(0));
    for record in records {
        let same = record.sha256.as_bytes().ct_eq(digest.as_bytes());
        let live = Choice::from(u8::from(record.valid(now)));
        let fits = Choice::from(u8::from(pool.is_none_or(|pool| record.opens(pool))));
        known |= same;
        valid |= same & live;
        opens |= same & live & fits;
    }
    if bool::from(opens) {
        Verdict::Admitted { id: digest[..ID_LENGTH].to_owned() }
    } else if bool::from(valid) {
        Verdict::WrongPool
    } else if bool::from(known) {
        Verdict::Expired
    } else {
        Verdict::Unknown
    }
}

/// The records of a Secret. A Secret that cannot be read lets nobody in.
pub fn records(secret: &Value) -> Vec<Record> {
    let decoded = text(secret, RECORDS).unwrap_or_default();
    serde_json::from_str(&decoded).unwrap_or_default()
}

/// The current token in clear, for a pointer: the pool's own, else the one for every pool.
pub fn current(secret: &Value, pool: &str, now: OffsetDateTime) -> Option<String> {
    let records = records(secret);
    let good = |token: &String| {
        let digest = stamp::sha256(token.trim());
        records.iter().any(|record| record.sha256 == digest && record.valid(now) && record.opens(pool))
    };
    [key(Some(pool)), key(None)].iter().filter_map(|key| text(secret, key)).find(good)
}

/// The Secret's key for a pool's current token. `token` alone is the proposal's.
fn key(pool: Option<&str>) -> String {
    pool.map_or("token".to_owned(), |pool| format!("token.{pool}"))
}

fn text(secret: &Value, key: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str()?).ok()?).ok()
}

/// What to make.
#[derive(Debug, Clone)]
pub struct Wish {
    /// For one pool, or for all.
    pub pool: Option<String>,
    /// For one node: such a token is never the one in pointers.
    pub node: Option<String>,
    /// How long it is good.
    pub ttl: Duration,
    /// Rotation: how long the one that was current stays good.
    pub grace: Option<Duration>,
}

/// Puts a new token into a Secret; with a grace the current one's end is brought forward. Pure but for `token`.
fn add(secret: &mut Value, wish: &Wish, token: &str, now: OffsetDateTime) {
    let mut all = records(secret);
    let key = key(wish.pool.as_deref());
    if let (Some(grace), Some(previous)) = (wish.grace, text(secret, &key)) {
        let digest = stamp::sha256(previous.trim());
        for record in all.iter_mut().filter(|record| record.sha256 == digest && record.valid(now)) {
            let end = stamp::parse(&record.not_after).map_or(now, |end| end.min(now + grace));
            record.not_after = stamp::rfc3339(end);
        }
    }
    all.push(Record {
        sha256: stamp::sha256(token),
        pool: wish.pool.clone(),
        not_after: stamp::rfc3339(now + wish.ttl),
        node: wish.node.clone(),
    });
    if wish.node.is_none() {
        secret["data"][key] = STANDARD.encode(token).into();
    }
    store(secret, all, now);
}

fn store(secret: &mut Value, mut all: Vec<Record>, now: OffsetDateTime) {
    all.retain(|record| stamp::parse(&record.not_after).is_some_and(|end| end + REMEMBERED > now));
    let text = serde_json::to_string(&all).expect("records are plain strings");
    secret["data"][RECORDS] = STANDARD.encode(text).into();
}

/// Takes away every token whose digest starts with `id`; how many. A current one is no longer in the Secret either.
fn remove(secret: &mut Value, id: &str, now: OffsetDateTime) -> usize {
    let mut all = records(secret);
    let before = all.len();
    all.retain(|record| !record.sha256.starts_with(id));
    let gone = before - all.len();
    if let Value::Object(data) = &mut secret["data"] {
        data.retain(|key, value| {
            let token = value.as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
            key == RECORDS || !stamp::sha256(token.trim_ascii()).starts_with(id)
        });
    }
    store(secret, all, now);
    gone
}

/// URL of the Secret.
pub fn path() -> String {
    format!("/api/v1/namespaces/{CONFIG_NAMESPACE}/secrets/{TOKEN_SECRET}")
}

/// Makes a token and returns it: the only time that it is seen if it is not a current one.
pub async fn issue(client: &Client, wish: &Wish, now: OffsetDateTime) -> Result<String, Error> {
    let token = stamp::token();
    change(client, |secret| add(secret, wish, &token, now)).await?;
    Ok(token)
}

/// Revokes by the start of the digest; how many there were.
pub async fn revoke(client: &Client, id: &str, now: OffsetDateTime) -> Result<usize, Error> {
    let mut gone = 0;
    change(client, |secret| gone = remove(secret, id, now)).await?;
    Ok(gone)
}

/// Read, change, write; again if somebody else was faster. A missing Secret is made.
async fn change(client: &Client, mut edit: impl FnMut(&mut Value)) -> Result<(), Error> {
    loop {
        let written = match client.get(&path()).await {
            Ok(mut secret) => {
                edit(&mut secret);
                client.put(&path(), &secret).await
            }
            Err(Error::Status { code: 404, .. }) => {
                let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                    "metadata": {"name": TOKEN_SECRET, "namespace": CONFIG_NAMESPACE}, "data": {}});
                edit(&mut secret);
                client.post(&format!("/api/v1/namespaces/{CONFIG_NAMESPACE}/secrets"), &secret).await
            }
            Err(error) => return Err(error),
        };
        match written {
            Err(Error::Status { code: 409, .. }) => {}
            other => return other.map(|_| ()),
        }
    }
}
