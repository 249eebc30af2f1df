//! Owns the shape of a kubeconfig: written for people and parts, read by the client.
//! Given a server, a CA and a credential; gives YAML, and back.
//! Never `Debug`: it holds a credential.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::certs::Pair;

/// How a client proves who it is.
pub enum Credential {
    /// `Authorization: Bearer`.
    Token(String),
    /// A client certificate and its key.
    Certificate(Pair),
}

/// One cluster, one user.
pub struct Kubeconfig {
    /// `https://host:port`.
    pub server: String,
    /// CA bundle, PEM.
    pub ca: String,
    /// Who.
    pub credential: Credential,
}

impl Kubeconfig {
    /// As a file: what `kubectl` reads.
    pub fn to_yaml(&self, user: &str) -> String {
        let credential = match &self.credential {
            Credential::Token(token) => json!({"token": token}),
            Credential::Certificate(pair) => json!({
                "client-certificate-data": STANDARD.encode(&pair.certificate),
                "client-key-data": STANDARD.encode(&pair.key),
            }),
        };
        let config = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": self.server, "certificate-authority-data": STANDARD.encode(&self.ca)}}],
            "contexts": [{"name": user, "context": {"cluster": "local", "user": user}}],
            "current-context": user,
            "users": [{"name": user, "user": credential}],
        });
        serde_norway::to_string(&config).expect("JSON values are YAML")
    }

    /// Reads the current context. Files beside it (`certificate-authority`, `client-certificate`, `tokenFile`) are
    /// read from where they are named.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        let config: Value = serde_norway::from_str(text).map_err(|_| "not YAML".to_owned())?;
        let named = |list: &str, name: &Value, what: &str| {
            let found = config[list].as_array().into_iter().flatten().find(|entry| entry["name"] == *name);
            found.map(|entry| entry[what].clone()).ok_or(format!("no entry {name} in {list}"))
        };
        let context = named("contexts", &config["current-context"], "context")?;
        let cluster = named("clusters", &context["cluster"], "cluster")?;
        let user = named("users", &context["user"], "user")?;
        let server =
            cluster["server"].as_str().ok_or("the cluster has no server")?.trim_end_matches('/').to_owned();
        let ca =
            either(&cluster, "certificate-authority")?.ok_or("the cluster has no certificate authority")?;
        let token = match (user["token"].as_str(), user["tokenFile"].as_str()) {
            (Some(token), _) => Some(token.to_owned()),
            (None, Some(path)) => Some(read(path)?.trim().to_owned()),
            (None, None) => None,
        };
        let credential = match (token, either(&user, "client-certificate")?, either(&user, "client-key")?) {
            (Some(token), ..) => Credential::Token(token),
            (None, Some(certificate), Some(key)) => Credential::Certificate(Pair { certificate, key }),
            _ => return Err("the user has neither a token nor a certificate with its key".to_owned()),
        };
        Ok(Self { server, ca, credential })
    }
}

/// `<key>-data` in base64, or the file that `<key>` names.
fn either(entry: &Value, key: &str) -> Result<Option<String>, String> {
    if let Some(data) = entry[format!("{key}-data")].as_str() {
        let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        return text.map(Some).ok_or(format!("{key}-data is not base64 of text"));
    }
    entry[key].as_str().map(read).transpose()
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}
