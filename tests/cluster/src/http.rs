//! Owns listening: TCP, TLS, HTTP/1.1, limits; what the API and the MCS are both served by.
//! Given a listener and a function from request to response; gives a running server that stops when told.
//! Never looks at a path or a header's value, never logs one.

use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A response body: whole, or a stream of watch events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Who does not finish a handshake or its headers in this time is cut off: slow clients must not hold places.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once; more wait in the listener's backlog, so memory is bounded.
const CONNECTIONS: usize = 4096;

/// Who is at the other end.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Address and port.
    pub address: SocketAddr,
    /// The verified client certificate, DER.
    pub certificate: Option<CertificateDer<'static>>,
}

/// A body that is there already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// A response with a body and its length.
pub fn respond(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    let value = content_type.parse().expect("content types are literals of this program");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, value);
    response
}

/// A response with a status and no body, as the real MCS answers errors.
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// Serves until `stop` turns true; then every connection is dropped, watches included.
pub async fn serve<H, F>(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    mut stop: watch::Receiver<bool>,
    handler: H,
) where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        while connections.try_join_next().is_some() {}
        // What accept reports is about one connection (reset, out of descriptors): the next may be fine.
        let Ok((stream, address)) = accepted else { continue };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
        let handler = handler.clone();
        connections.spawn(async move {
            connection(stream, address, acceptor, handler).await;
            drop(place);
        });
    }
}

async fn connection<H, F>(stream: TcpStream, address: SocketAddr, acceptor: TlsAcceptor, handler: H)
where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    stream.set_nodelay(true).ok(); // a watch event is small and wanted now
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await else {
        tracing::debug!(%address, "no TLS handshake");
        return;
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|c| c.clone().into_owned());
    let peer = Peer { address, certificate };
    let service = service_fn(move |request| {
        let response = handler(request, peer.clone());
        async move { Ok::<_, Infallible>(response.await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_headers(64) // a node sends six
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%address, %error, "connection ended");
    }
}

/// Reads a body of at most `limit` bytes.
pub async fn read(body: Incoming, limit: usize) -> Option<Bytes> {
    let read = http_body_util::Limited::new(body, limit).collect();
    tokio::time::timeout(PATIENCE, read).await.ok()?.ok().map(http_body_util::Collected::to_bytes)
}
