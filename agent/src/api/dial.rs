//! Owns: how the API is dialled: by name, else where firstboot found the cluster; TLS over it.
//! Given a TLS configuration it gives an HTTP agent.
//! Never: changes the name that the server has to prove, wherever it was dialled.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
use ureq::{
    Agent, Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::{
            Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, TcpConnector, Transport,
            TransportAdapter,
        },
    },
};

/// The port of a server URL that names none.
const HTTPS: u16 = 443;

/// An agent that speaks TLS with `tls` and dials `fallback` when the name does not resolve.
pub(super) fn agent(config: Config, tls: ClientConfig, fallback: Option<IpAddr>) -> Agent {
    let connector = ().chain(TcpConnector::default()).chain(Tls(Arc::new(tls)));
    Agent::with_parts(config, connector, Names { fallback })
}

/// The system's resolver, and one address for when it knows nothing (on-premises `api-int` before its DNS runs).
#[derive(Debug)]
struct Names {
    fallback: Option<IpAddr>,
}

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let resolved = DefaultResolver::default().resolve(uri, config, timeout);
        match (resolved, self.fallback) {
            (Err(_), Some(address)) => {
                let mut addresses = self.empty();
                addresses.push(SocketAddr::new(address, uri.port_u16().unwrap_or(HTTPS)));
                Ok(addresses)
            }
            (resolved, _) => resolved,
        }
    }
}

/// Wraps a connection in TLS.
struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl<In: Transport> Connector<In> for Tls {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(tcp) = chained else { return Ok(None) };
        // IPv6 literals are bracketed in a URI and bare in a certificate.
        let host = details.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Error::BadUri(host.to_owned()))?;
        let mut conn = ClientConnection::new(self.0.clone(), name).map_err(std::io::Error::other)?;
        let mut sock = TransportAdapter::new(tcp.boxed(), details.current_time.clone());
        sock.set_timeout(details.timeout);
        conn.complete_io(&mut sock)?;
        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { buffers, stream: StreamOwned { conn, sock } })))
    }
}

struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        use std::io::Write;
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        use std::io::Read;
        self.stream.get_mut().set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
