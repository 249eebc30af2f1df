//! What the tests of the online half share: certificates, a node's tree, and an API server over real TLS.
//!
//! The server knows nothing about Kubernetes: a test says what it answers, and hears what it was asked.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use oneboot_agent::{clock::Clock, root::Root};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};

/// The node in every test.
pub(crate) const NODE: &str = "node-a";

/// A certificate authority.
pub(crate) struct Ca {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, both PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Pair {
    /// One file, as the kubelet writes it.
    pub(crate) fn file(&self) -> String {
        format!("{}{}", self.certificate, self.key)
    }
}

fn name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // The order in which Go writes them.
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

impl Ca {
    pub(crate) fn new(common_name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = name(common_name, None);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    pub(crate) fn server(&self) -> Pair {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "api-int.example.test".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(&params)
    }

    /// Signs what a kubelet has asked for, as the controller does: the subject and the key are the request's.
    pub(crate) fn sign(&self, request: &str) -> String {
        let request = CertificateSigningRequestParams::from_pem(request).unwrap();
        let mut params = request.params;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2090, 1, 1);
        params.signed_by(&request.public_key, &self.issuer).unwrap().pem()
    }

    /// A kubelet's certificate.
    pub(crate) fn node(&self, node: &str) -> Pair {
        self.client(&format!("system:node:{node}"), Some("system:nodes"), (2020, 2090))
    }

    pub(crate) fn client(&self, user: &str, group: Option<&str>, years: (i32, i32)) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = name(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        self.issue(&params)
    }
}

/// A kubelet's request, base64 as in `spec.request`.
pub(crate) fn request(user: &str) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = name(user, Some("system:nodes"));
    let key = KeyPair::generate().unwrap();
    STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap())
}

/// A tree of a node, with the kubelet's files where they are.
pub(crate) struct Tree {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) root: Arc<Root>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        Self { dir, root }
    }

    pub(crate) fn path(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The kubelet's kubeconfig, or the bootstrap one with a token.
    pub(crate) fn kubeconfig(&self, path: &str, server: &str, ca: &str, token: Option<&str>) {
        let user = token.map_or_else(
            || "{client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem}".to_owned(),
            |token| format!("{{token: {token}}}"),
        );
        let ca = STANDARD.encode(ca);
        self.write(
            path,
            format!(
                "apiVersion: v1\nkind: Config\nclusters:\n- name: local\n  cluster:\n    server: {server}\n    \
                 certificate-authority-data: {ca}\ncontexts:\n- name: kubelet\n  context: {{cluster: local, user: kubelet}}\n\
                 current-context: kubelet\nusers:\n- name: kubelet\n  user: {user}\n"
            ),
        );
    }

    /// Blocks until a file that is renamed into place says what is awaited; fails after a minute without a rename.
    pub(crate) fn wait_until(&self, path: &str, said: impl Fn() -> bool) {
        use nix::{
            poll::{PollFd, PollFlags, PollTimeout, poll},
            sys::inotify::{AddWatchFlags, InitFlags, Inotify},
        };
        use std::os::fd::AsFd;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        inotify.add_watch(path.parent().unwrap(), AddWatchFlags::IN_MOVED_TO).unwrap();
        while !said() {
            // Far beyond anything a passing test needs: it only keeps a failing one from hanging.
            let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
            assert!(
                poll(&mut fds, PollTimeout::from(60_000_u16)).unwrap() > 0,
                "{} says nothing",
                path.display()
            );
            inotify.read_events().unwrap();
        }
    }

    /// What the kubelet does when it has a certificate (facts: file, link, rename), with the gap of a rotation.
    pub(crate) fn store_certificate(&self, pair: &Pair, name: &str) {
        let pki = "/var/lib/kubelet/pki";
        self.write(&format!("{pki}/{name}"), pair.file());
        let (updated, current) = (
            self.path(&format!("{pki}/kubelet-client-updated.pem")),
            self.path(&format!("{pki}/kubelet-client-current.pem")),
        );
        std::os::unix::fs::symlink(Path::new(pki).join(name), &updated).unwrap();
        if current.symlink_metadata().is_ok() {
            std::fs::remove_file(&current).unwrap();
        }
        std::fs::rename(updated, current).unwrap();
    }
}

/// A clock whose pauses take no time and are remembered.
#[derive(Default)]
pub(crate) struct Pauses {
    pub(crate) taken: Mutex<Vec<Duration>>,
    /// Added to the kernel's count by every pause: to the code, the time has passed.
    skipped: std::sync::atomic::AtomicU64,
}

impl Clock for Pauses {
    fn boot_microseconds(&self) -> u64 {
        oneboot_agent::clock::System.boot_microseconds()
            + self.skipped.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn wall_seconds(&self) -> u64 {
        oneboot_agent::clock::System.wall_seconds()
    }

    fn pause(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap();
        self.skipped.fetch_add(us, std::sync::atomic::Ordering::SeqCst);
        self.taken.lock().unwrap().push(duration);
    }
}

/// What the server was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// The `Authorization` header.
    pub(crate) authorization: Option<String>,
    /// The client's certificate, DER.
    pub(crate) certificate: Option<Vec<u8>>,
    pub(crate) body: String,
}

impl Asked {
    /// `GET /api/v1/nodes/node-a`.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }

    /// Who asked, by certificate.
    pub(crate) fn user(&self) -> Option<String> {
        oneboot_agent::subject::of_certificate(self.certificate.as_ref()?)
            .map(|(subject, _, _)| subject.common_name)
    }
}

/// What the server does.
pub(crate) enum Answer {
    /// An answer with a JSON body.
    Json(u16, Value),
    /// An answer with any body and headers.
    Raw(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Lines of a watch as they come; the watch ends when the sender is dropped, or breaks off.
    Watch(Receiver<Line>),
    /// The connection is dropped without an answer.
    Drop,
}

/// Part of a watch.
pub(crate) enum Line {
    Event(&'static str, Value),
    Break,
}

type Handler = dyn Fn(&Asked) -> Answer + Send + Sync;

/// An API server on loopback.
pub(crate) struct Server {
    pub(crate) url: String,
    /// Everything that is asked, in order.
    pub(crate) asked: Receiver<Asked>,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    clients: Ca,
}

impl Server {
    /// Serves with a certificate of `ca`; clients may present certificates of `clients`.
    pub(crate) fn start(
        ca: &Ca,
        clients: Ca,
        answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let config = Arc::new(Mutex::new(tls(&ca.server(), &clients)));
        let (tell, asked) = mpsc::channel();
        let answer: Arc<Handler> = Arc::new(answer);
        let current = config.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, tell, answer) = (current.lock().unwrap().clone(), tell.clone(), answer.clone());
                thread::spawn(move || serve(stream.unwrap(), config, &tell, &*answer));
            }
        });
        Self { url, asked, config, clients }
    }

    /// From the next connection on, with a certificate of another CA.
    pub(crate) fn rotate(&self, ca: &Ca) {
        *self.config.lock().unwrap() = tls(&ca.server(), &self.clients);
    }

    /// A certificate that the server accepts.
    pub(crate) fn node_pair(&self) -> Pair {
        self.clients.node(NODE)
    }

    /// The next thing asked that `wanted` is looking for.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&Asked) -> bool) -> Asked {
        loop {
            // Far beyond anything a passing test needs: it only keeps a failing one from hanging.
            let asked =
                self.asked.recv_timeout(Duration::from_secs(60)).expect("the server is asked in time");
            if wanted(&asked) {
                return asked;
            }
        }
    }
}

fn tls(pair: &Pair, clients: &Ca) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap()).unwrap();
    let provider = oneboot_firstboot::trust::provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .unwrap();
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

/// One connection, any number of requests. An error ends it: the client's end of the story is what is tested.
fn serve(tcp: TcpStream, config: Arc<ServerConfig>, tell: &Sender<Asked>, answer: &Handler) {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config).unwrap(), tcp));
    while let Some(asked) = read(&mut stream) {
        let reply = answer(&asked);
        let _ = tell.send(asked);
        if write(stream.get_mut(), reply).is_none() {
            return;
        }
    }
}

type Tls = StreamOwned<ServerConnection, TcpStream>;

fn read(stream: &mut BufReader<Tls>) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut authorization, mut length) = (None, 0);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok().filter(|n| *n > 0)?;
        let Some((key, value)) = header.trim_end().split_once(':') else { break };
        match key.to_ascii_lowercase().as_str() {
            "authorization" => authorization = Some(value.trim().to_owned()),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let certificate = stream.get_ref().conn.peer_certificates().and_then(|c| c.first()).map(|c| c.to_vec());
    Some(Asked { method, target, authorization, certificate, body: String::from_utf8(body).ok()? })
}

fn write(stream: &mut Tls, answer: Answer) -> Option<()> {
    match answer {
        Answer::Json(status, body) => {
            let headers = vec![("Content-Type", "application/json".to_owned())];
            write(stream, Answer::Raw(status, headers, body.to_string().into_bytes()))
        }
        Answer::Raw(status, headers, body) => {
            let mut head = format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n", body.len());
            for (key, value) in headers {
                head = format!("{head}{key}: {value}\r\n");
            }
            stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
            stream.write_all(&body).ok()?;
            stream.flush().ok()
        }
        Answer::Watch(lines) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
            stream.flush().ok()?;
            for line in lines {
                let Line::Event(kind, object) = line else { return None };
                let line = format!("{}\n", json!({"type": kind, "object": object}));
                stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).ok()?;
                stream.flush().ok()?;
            }
            stream.write_all(b"0\r\n\r\n").ok()?;
            stream.flush().ok()
        }
        Answer::Drop => None,
    }
}

/// A 403 as the API words it.
pub(crate) fn forbidden() -> Answer {
    Answer::Json(403, json!({"kind": "Status", "code": 403, "message": "forbidden"}))
}

/// A 404 as the API words it.
pub(crate) fn not_found() -> Answer {
    Answer::Json(404, json!({"kind": "Status", "code": 404, "message": "not found"}))
}

/// A Node as the API sends it.
pub(crate) fn node(version: &str, annotations: &Value, unschedulable: bool) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": NODE, "resourceVersion": version, "annotations": annotations},
        "spec": {"unschedulable": unschedulable}, "status": {"conditions": []},
    })
}

/// A list as the API sends it.
pub(crate) fn list(version: &str, items: &[Value]) -> Answer {
    Answer::Json(200, json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}))
}
