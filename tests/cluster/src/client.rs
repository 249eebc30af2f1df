//! Owns talking to an API server: requests, errors told apart, watches.
//! Given a kubeconfig; gives JSON values.
//! Never a path in memory to the server: also in one process every part comes through here.

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::{Credential, Kubeconfig};

/// What a request can end with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answers, or the TLS peer is not the one that the kubeconfig names.
    #[error("cannot reach the API at {server}: {cause}")]
    Unreachable {
        /// `https://host:port`.
        server: String,
        /// The operating system's or the TLS library's words.
        cause: String,
    },
    /// The connection ended in the middle.
    #[error("the connection to the API broke: {cause}")]
    Broken {
        /// The HTTP library's words.
        cause: String,
    },
    /// The API answers with a status that is not success.
    #[error("{message} ({code})")]
    Status {
        /// HTTP status.
        code: u16,
        /// Kubernetes' reason, as `AlreadyExists`.
        reason: String,
        /// Kubernetes' message.
        message: String,
    },
    /// Success, but not JSON.
    #[error("the API's answer to {path} is not JSON")]
    NotJson {
        /// What was asked for.
        path: String,
    },
    /// The kubeconfig cannot be used.
    #[error("kubeconfig: {0}")]
    Kubeconfig(String),
}

impl Error {
    /// The HTTP status, if the API answered.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub struct Event {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`, `ERROR`.
    pub kind: String,
    /// The object, or a Status.
    pub object: Value,
}

/// A running watch.
pub struct Watch {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event; `None` when the server ends the watch or the connection is lost.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let mut value: Value = serde_json::from_slice(&line).ok()?;
                return Some(Event {
                    kind: value["type"].as_str()?.to_owned(),
                    object: value["object"].take(),
                });
            }
            let frame = self.body.frame().await?.ok()?;
            if let Some(data) = frame.data_ref() {
                self.buffer.extend_from_slice(data);
            }
        }
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// A client with one identity. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    server: String,
    authority: String,
    host: String,
    tls: TlsConnector,
    authorization: Option<header::HeaderValue>,
    /// Connections that are done with their last request: a TLS handshake per request would be most of the work.
    idle: Arc<Mutex<Vec<Sender>>>,
}

/// Requests never hang: what does not answer in this time is as good as gone. Watches are exempt.
const PATIENCE: Duration = Duration::from_secs(30);

impl Client {
    /// From a kubeconfig file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::Kubeconfig(format!(
                "{}: {error}; start `oneboot-cluster serve --dir DIR` first",
                path.display()
            ))
        })?;
        let config = Kubeconfig::from_yaml(&text)
            .map_err(|why| Error::Kubeconfig(format!("{}: {why}", path.display())))?;
        Self::new(&config)
    }

    /// From a kubeconfig.
    pub fn new(config: &Kubeconfig) -> Result<Self, Error> {
        let bad = |why: &str| Error::Kubeconfig(format!("{}: {why}", config.server));
        let authority =
            config.server.strip_prefix("https://").ok_or_else(|| bad("the server is not https"))?.to_owned();
        let uri: hyper::Uri = config.server.parse().map_err(|_| bad("not a URL"))?;
        let host = uri.host().ok_or_else(|| bad("no host"))?.trim_matches(['[', ']']).to_owned();
        let (authorization, identity) = match &config.credential {
            Credential::Token(token) => {
                let mut value: header::HeaderValue = format!("Bearer {token}")
                    .parse()
                    .map_err(|_| bad("the token is not one line of text"))?;
                value.set_sensitive(true);
                (Some(value), None)
            }
            Credential::Certificate(pair) => (None, Some(pair)),
        };
        let tls = crate::tls::client(&config.ca, identity).map_err(|error| bad(&format!("{error:#}")))?;
        Ok(Self {
            server: config.server.clone(),
            authority,
            host,
            tls: tls.into(),
            authorization,
            idle: Arc::default(),
        })
    }

    /// `https://host:port`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        self.request(Method::GET, path, None, "").await
    }

    /// POST: create.
    pub async fn post(&self, path: &str, object: &Value) -> Result<Value, Error> {
        self.request(Method::POST, path, Some(object), "application/json").await
    }

    /// PUT: update; 409 if the object has changed since it was read.
    pub async fn put(&self, path: &str, object: &Value) -> Result<Value, Error> {
        self.request(Method::PUT, path, Some(object), "application/json").await
    }

    /// PATCH with a merge patch.
    pub async fn merge(&self, path: &str, changes: &Value) -> Result<Value, Error> {
        self.request(Method::PATCH, path, Some(changes), "application/merge-patch+json").await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> Result<Value, Error> {
        self.request(Method::DELETE, path, None, "").await
    }

    /// Any method and content type.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content: &str,
    ) -> Result<Value, Error> {
        let body = body.map(|value| Bytes::from(value.to_string())).unwrap_or_default();
        let exchange = async {
            let response = self.send(method, path, body, content).await?;
            let status = response.0.status();
            let bytes = response
                .0
                .into_body()
                .collect()
                .await
                .map_err(|e| Error::Broken { cause: e.to_string() })?
                .to_bytes();
            self.keep(response.1);
            Ok((status, bytes))
        };
        let (status, bytes) = tokio::time::timeout(PATIENCE, exchange)
            .await
            .map_err(|_| Error::Broken { cause: format!("no answer within {} s", PATIENCE.as_secs()) })??;
        if !status.is_success() {
            return Err(refusal(status.as_u16(), &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|_| Error::NotJson { path: path.to_owned() })
    }

    /// Lists, then watches what comes after: the listed items and the watch.
    pub async fn list_and_watch(&self, path: &str) -> Result<(Vec<Value>, Watch), Error> {
        let mut list = self.get(path).await?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let join = if path.contains('?') { '&' } else { '?' };
        let watch = self.watch(&format!("{path}{join}watch=true&resourceVersion={version}")).await?;
        let items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        Ok((items, watch))
    }

    /// A watch from where the query says.
    pub async fn watch(&self, path: &str) -> Result<Watch, Error> {
        let (response, _) = self.send(Method::GET, path, Bytes::new(), "").await?;
        let status = response.status();
        if status.is_success() {
            return Ok(Watch { body: response.into_body(), buffer: Vec::new() });
        }
        let bytes = response
            .into_body()
            .collect()
            .await
            .map_err(|e| Error::Broken { cause: e.to_string() })?
            .to_bytes();
        Err(refusal(status.as_u16(), &bytes))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        content: &str,
    ) -> Result<(Response<Incoming>, Sender), Error> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &self.authority);
        if !content.is_empty() {
            request = request.header(header::CONTENT_TYPE, content);
        }
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let request =
            request.body(Full::new(body)).map_err(|error| Error::Broken { cause: error.to_string() })?;
        // A kept connection may have been closed by the server meanwhile; hyper hands the request back unsent then.
        let mut sender = match self.kept().await {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        match sender.try_send_request(request).await {
            Ok(response) => Ok((response, sender)),
            Err(mut error) => match error.take_message() {
                Some(request) => {
                    let mut sender = self.connect().await?;
                    let response = sender
                        .send_request(request)
                        .await
                        .map_err(|e| Error::Broken { cause: e.to_string() })?;
                    Ok((response, sender))
                }
                None => Err(Error::Broken { cause: error.into_error().to_string() }),
            },
        }
    }

    async fn kept(&self) -> Option<Sender> {
        loop {
            let mut sender = self.idle.lock().ok()?.pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    fn keep(&self, sender: Sender) {
        if let Ok(mut idle) = self.idle.lock()
            && idle.len() < 8
        // as many as one part ever uses at once
        {
            idle.push(sender);
        }
    }

    async fn connect(&self) -> Result<Sender, Error> {
        let unreachable = |cause: String| Error::Unreachable { server: self.server.clone(), cause };
        let address = if self.authority.contains("]:")
            || (self.authority.contains(':') && !self.authority.ends_with(']'))
        {
            self.authority.clone()
        } else {
            format!("{}:443", self.authority)
        };
        let open = async {
            let stream =
                TcpStream::connect(&address).await.map_err(|error| unreachable(error.to_string()))?;
            stream.set_nodelay(true).ok(); // requests are small
            let name =
                ServerName::try_from(self.host.clone()).map_err(|error| unreachable(error.to_string()))?;
            self.tls.connect(name, stream).await.map_err(|error| unreachable(error.to_string()))
        };
        let stream =
            tokio::time::timeout(PATIENCE, open).await.map_err(|_| unreachable("timed out".to_owned()))??;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(error.to_string()))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn refusal(code: u16, bytes: &[u8]) -> Error {
    let status: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    let message = if text("message").is_empty() { "the API refuses".to_owned() } else { text("message") };
    Error::Status { code, reason: text("reason"), message }
}
