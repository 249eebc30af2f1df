//! Owns: the socket under an HTTP client: dialling, TLS over our own `ClientConfig`, and the time between bytes.
//! Given a config and options, gives a `ureq::Agent`, and the address that answered with when it did.
//! Never: speaks plain HTTP, follows a redirect, or opens more connections than the requests need.

use crate::clock;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
};
use ureq::{Agent, Error, Timeout};

/// What a client may differ in.
#[derive(Debug, Clone)]
pub struct Options {
    /// Dial here instead of asking DNS; the TLS name stays that of the URL.
    pub dial: Option<SocketAddr>,
    /// For each address that a name has.
    pub connect_timeout: Duration,
    /// Longest silence on a connection, in the handshake, before the answer and inside it. `None`: wait for ever,
    /// as a watch does.
    pub stall_timeout: Option<Duration>,
    /// For a whole exchange, body included, and however steadily it drips.
    pub total_timeout: Option<Duration>,
}

/// The last connection that was made: who answered, and when (microseconds since kernel start).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// The address that answered.
    pub address: SocketAddr,
    /// TCP: begun.
    pub dialled: u64,
    /// TCP: established.
    pub connected: u64,
    /// TLS: established.
    pub secured: u64,
}

/// A ureq agent for https only, with the trust it was given and nothing else.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    last: Arc<Mutex<Option<Connected>>>,
}

impl Client {
    /// Connects to nothing yet.
    pub fn new(tls: Arc<ClientConfig>, options: &Options) -> Self {
        let last = Arc::new(Mutex::new(None));
        let connector = TlsConnector { tls, connect_timeout: options.connect_timeout, last: last.clone() };
        let config = Agent::config_builder()
            .https_only(true)
            .http_status_as_error(false) // a status is an outcome, with its headers
            .max_redirects(0) // whoever follows one must compare origins first
            .max_redirects_will_error(false)
            .proxy(None) // the environment of a unit is no place for a proxy
            .timeout_per_read(options.stall_timeout)
            .timeout_per_write(options.stall_timeout)
            .timeout_resolve(options.stall_timeout)
            .timeout_global(options.total_timeout)
            .build();
        let agent = Agent::with_parts(
            config,
            connector,
            Dial { fixed: options.dial, dns: DefaultResolver::default() },
        );
        Self { agent, last }
    }

    /// The agent to make requests with.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The newest connection that this client made, if any.
    pub fn connected(&self) -> Option<Connected> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The TLS error inside an HTTP client's error, wherever the layers put it.
pub fn tls_error(error: &Error) -> Option<&rustls::Error> {
    match error {
        Error::Io(io) => io.get_ref()?.downcast_ref(),
        Error::Other(other) => other.downcast_ref(),
        _ => None,
    }
}

#[derive(Debug)]
struct Dial {
    fixed: Option<SocketAddr>,
    dns: DefaultResolver,
}

impl Resolver for Dial {
    fn resolve(
        &self,
        uri: &ureq::http::Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let literal = || {
            let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
            Some(SocketAddr::new(host.parse().ok()?, uri.port_u16().unwrap_or(443)))
        };
        match self.fixed.or_else(literal) {
            Some(address) => {
                let mut addresses = self.empty();
                addresses.push(address);
                Ok(addresses)
            }
            None => self.dns.resolve(uri, config, timeout),
        }
    }
}

#[derive(Debug)]
struct TlsConnector {
    tls: Arc<ClientConfig>,
    connect_timeout: Duration,
    last: Arc<Mutex<Option<Connected>>>,
}

impl Connector for TlsConnector {
    type Out = TlsTransport;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<TlsTransport>, Error> {
        let host = details.uri.host().ok_or_else(|| Error::BadUri("no host".into()))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name =
            ServerName::try_from(bare.to_owned()).map_err(|_| Error::BadUri("not a host name".into()))?;

        let dialled = clock::boot_microseconds();
        let socket =
            Socket(Arc::new(dial(&details.addrs, self.connect_timeout.min(*details.timeout.after))?));
        let weak: std::sync::Weak<dyn ShutdownHandle> = Arc::downgrade(&(socket.0.clone() as Arc<_>));
        (details.register_shutdown)(weak)?;
        let address = socket.0.peer_addr()?;
        let connected = clock::boot_microseconds();

        socket.limit(details.timeout.for_read())?;
        let connection = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream
                .conn
                .complete_io(&mut stream.sock)
                .map_err(|error| timed_out(error, details.timeout.for_read()))?;
        }
        let secured = clock::boot_microseconds();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Connected { address, dialled, connected, secured });

        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(TlsTransport { stream, buffers }))
    }
}

/// The first address that answers; the last one's error if none does.
fn dial(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(address, timeout) {
            Ok(socket) => {
                socket.set_nodelay(true)?; // the request must not wait for the handshake's last acknowledgement
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket that another thread can shut down.
#[derive(Debug)]
struct Socket(Arc<TcpStream>);

impl Socket {
    fn limit(&self, timeout: NextTimeout) -> io::Result<()> {
        let limit = timeout.not_zero().map(|limit| *limit);
        self.0.set_read_timeout(limit)?;
        self.0.set_write_timeout(limit)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self.0).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

struct TlsTransport {
    stream: StreamOwned<ClientConnection, Socket>,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive() // the buffers hold headers and bodies
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.limit(timeout.for_write())?;
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output).map_err(|error| timed_out(error, timeout.for_write()))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.limit(timeout.for_read())?;
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input).map_err(|error| timed_out(error, timeout.for_read()))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // A byte or an end that nobody asked for means that the server is done with this connection.
        let socket = &self.stream.sock.0;
        let idle = socket.set_nonblocking(true).is_ok()
            && matches!(socket.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        socket.set_nonblocking(false).is_ok() && idle
    }

    fn is_tls(&self) -> bool {
        true
    }
}

/// The kernel reports an expired socket timeout as `WouldBlock`.
fn timed_out(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(match timeout.reason {
            Timeout::Global => Timeout::Global,
            _ => Timeout::PerRead,
        }),
        _ => Error::from(error),
    }
}
