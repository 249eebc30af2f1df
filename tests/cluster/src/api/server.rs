//! The listener: TLS, who, may they, then the handlers; and what has to exist on disk for that.

use anyhow::Context as _;
use hyper::body::Incoming;
use hyper::{Request, Response, header};
use std::net::SocketAddr;
use std::sync::Arc;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::authn::{self, AUTHENTICATED, MASTERS, Token, User};
use super::authz::{self, Attributes};
use super::defaults::{self, PARTS};
use super::faults::{self, Answer, Faults};
use super::handlers::{self, Context};
use super::request::Target;
use super::status::Refusal;
use super::store::Store;
use super::{discovery, signer, watch as watches};
use crate::certs::{Authority, Pair, YEAR};
use crate::http::{self, Body, Peer};
use crate::kubeconfig::{Credential, Kubeconfig};
use crate::layout::{Layout, write_private};
use crate::names::BOOTSTRAPPER;
use crate::{stamp, tls};

/// The largest body: a rendered config may be 1.5 MiB (facts/mco.md 6.1), and JSON escapes some of it.
const LARGEST_BODY: usize = 8 << 20;

/// How to run the API.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its state is.
    pub layout: Layout,
    /// Where to listen; port 0 is the port of last time, or any.
    pub listen: SocketAddr,
    /// Names and addresses for the certificate; the first one is in the kubeconfigs.
    pub names: Vec<String>,
    /// The MachineConfig CRD has `spec.neededBeforeNodeApproved`.
    pub extended: bool,
    /// How long an approved bootstrap request may wait for its node to be in a read binding.
    pub signer_waits: std::time::Duration,
}

/// A running API.
pub struct Running {
    /// `https://host:port`.
    pub url: String,
    /// Its tasks; they end after the stop signal.
    pub tasks: Vec<JoinHandle<()>>,
}

struct Api {
    store: Arc<Store>,
    tokens: Vec<Token>,
    extended: bool,
    faults: Arc<Faults>,
}

/// Starts it: when this returns, requests are answered.
pub async fn start(options: Options, stop: watch::Receiver<bool>) -> anyhow::Result<Running> {
    let layout = &options.layout;
    let (listener, address) = crate::serve::bind(layout, "api", options.listen).await?;
    let url = crate::serve::url(&options.names, address);
    let now = OffsetDateTime::now_utc();
    let serving_ca = authority(layout, "serving-ca")?;
    let client_ca = authority(layout, "client-ca")?;
    let pair = serving_ca.serving("kube-apiserver", &options.names, now, YEAR)?;
    let store = Arc::new(
        Store::open(&layout.journal())
            .with_context(|| format!("cannot open {}", layout.journal().display()))?,
    );
    let tokens = tokens(layout, &store, &url, serving_ca.certificate(), client_ca.certificate())?;
    let config = tls::server(&pair, Some(client_ca.certificate()))?;
    let api = Arc::new(Api {
        store: Arc::clone(&store),
        tokens,
        extended: options.extended,
        faults: Arc::new(Faults::new()),
    });
    let (_, tls) = watch::channel(config); // never replaced: the API's own certificates do not rotate here
    let handler = move |request, peer| {
        let api = Arc::clone(&api);
        async move { api.answer(request, peer).await }
    };
    let mut stopped = stop.clone();
    let signing = tokio::spawn(async move {
        tokio::select! {
            () = signer::run(store, client_ca, options.signer_waits) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    });
    let serving = tokio::spawn(http::serve(listener, tls, stop, handler));
    Ok(Running { url, tasks: vec![serving, signing] })
}

impl Api {
    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = match self.try_answer(request, &peer).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        };
        tracing::debug!(target: "oneboot_cluster::api", %method, path, status = response.status().as_u16(), "request");
        response
    }

    async fn try_answer(&self, request: Request<Incoming>, peer: &Peer) -> Result<Response<Body>, Refusal> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let text = |name: header::HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let user = authn::authenticate(&self.tokens, peer, text(header::AUTHORIZATION));
        let open = ["/healthz", "/livez", "/readyz", "/version"].contains(&path);
        if (open || user.is_some())
            && let Some(answer) = discovery::answer(path)
        {
            return Ok(answer);
        }
        let user = user.ok_or_else(Refusal::unauthorized)?;
        if path == faults::PATH {
            return self.add_fault(&user, &parts.method, body).await;
        }
        let target = Target::parse(&parts.method, path, parts.uri.query())?;
        match self.faults.take(&user.name, target.verb, path) {
            Some((Answer::GoneEvent, refusal)) => return Ok(watches::ended(&refusal)),
            Some((_, refusal)) => return Err(refusal),
            None => {}
        }
        let attributes = Attributes::from(&target);
        if !authz::allowed(&handlers::rules(&self.store), &user, &attributes) {
            let group = target.resource.group;
            let why = format!(
                "cannot {} resource \"{}\" in API group \"{group}\" at the cluster scope",
                target.verb, attributes.resource
            );
            return Err(Refusal::forbidden(&target, &user.name, &why));
        }
        let content_type = text(header::CONTENT_TYPE).unwrap_or("application/json").to_owned();
        let body = http::read(body, LARGEST_BODY).await.ok_or_else(Refusal::too_large)?;
        handlers::handle(Context {
            store: &self.store,
            target: &target,
            user: &user,
            content_type: &content_type,
            body: &body,
            extended: self.extended,
            interrupted: Box::pin(Arc::clone(&self.faults).strike(user.name.clone(), path.to_owned())),
        })
    }

    async fn add_fault(
        &self,
        user: &User,
        method: &hyper::Method,
        body: Incoming,
    ) -> Result<Response<Body>, Refusal> {
        if !user.groups.iter().any(|group| group == MASTERS) {
            return Err(Refusal::not_an_administrator(&user.name));
        }
        if method != hyper::Method::POST {
            return Err(Refusal::method());
        }
        let body = http::read(body, LARGEST_BODY).await.ok_or_else(Refusal::too_large)?;
        self.faults.add(&body)?;
        let done = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
        Ok(http::respond(hyper::StatusCode::CREATED, "application/json", done.to_string()))
    }
}

/// A CA of the API's own, from its files or new.
fn authority(layout: &Layout, name: &str) -> anyhow::Result<Authority> {
    let (certificate, key) = (layout.certificate(name), layout.key(name));
    if certificate.exists() {
        let read = |path| std::fs::read_to_string(path).with_context(|| format!("cannot read the {name}"));
        return Ok(Authority::load(&Pair { certificate: read(certificate)?, key: read(key)? })?);
    }
    let (ca, pair) = Authority::generate(&format!("oneboot-{name}"), OffsetDateTime::now_utc(), 10 * YEAR)?;
    write_private(&key, pair.key.as_bytes())?; // the certificate comes last: it is what is looked for
    write_private(&certificate, pair.certificate.as_bytes())?;
    Ok(ca)
}

/// The known tokens; at the first start they are made, put into kubeconfigs, and the default objects with them.
///
/// The file of tokens comes last: it says that everything else is there. A first start that was killed before it is
/// done again as a whole, over what it has left.
fn tokens(
    layout: &Layout,
    store: &Store,
    url: &str,
    serving_ca: &str,
    client_ca: &str,
) -> anyhow::Result<Vec<Token>> {
    let path = layout.api_tokens();
    if path.exists() && !store.is_new() {
        follow(layout, store, url)?;
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        return serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()));
    }
    let mut known = Vec::new();
    let admin = User { name: "system:admin".into(), groups: vec![MASTERS.into(), AUTHENTICATED.into()] };
    let parts = PARTS.iter().map(|(part, account)| (*part, User::service_account(account)));
    for (who, user) in parts.chain([("admin", admin)]) {
        let token = stamp::token();
        known.push(Token::new(&token, user));
        let config = Kubeconfig {
            server: url.to_owned(),
            ca: serving_ca.to_owned(),
            credential: Credential::Token(token),
        };
        write_private(&layout.kubeconfig(who), config.to_yaml(who).as_bytes())?;
    }
    let bootstrap_token = stamp::token();
    known.push(Token::new(&bootstrap_token, User::service_account(BOOTSTRAPPER)));
    let given = defaults::Given { url, serving_ca, client_ca, bootstrap_token: &bootstrap_token };
    defaults::fill(store, &given)
        .map_err(|refusal| anyhow::anyhow!("cannot store the default objects: {}", refusal.message))?;
    write_private(&path, serde_json::to_string_pretty(&known)?.as_bytes())?;
    Ok(known)
}

/// An API that listens elsewhere than last time: what says the old URL says the new one.
fn follow(layout: &Layout, store: &Store, url: &str) -> anyhow::Result<()> {
    for who in PARTS.iter().map(|(part, _)| *part).chain(["admin"]) {
        let path = layout.kubeconfig(who);
        let Ok(text) = std::fs::read_to_string(&path) else { continue }; // taken away: not ours to bring back
        let mut config = Kubeconfig::from_yaml(&text)
            .map_err(|why| anyhow::anyhow!("{} is damaged: {why}", path.display()))?;
        if config.server != url {
            let old = std::mem::replace(&mut config.server, url.to_owned());
            defaults::moved(store, &old, url)
                .map_err(|refusal| anyhow::anyhow!("cannot store the new URL: {}", refusal.message))?;
            write_private(&path, config.to_yaml(who).as_bytes())?;
        }
    }
    Ok(())
}
