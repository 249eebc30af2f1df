//! Owns: a server that answers by a script, one step per request, the last one for ever; over TLS, or plain like a
//! platform's metadata service.

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One answer.
#[derive(Clone)]
pub enum Answer {
    /// Status line, extra headers, body.
    Http(u16, Vec<(String, String)>, Vec<u8>),
    /// These bytes, then the connection is closed.
    Raw(Vec<u8>),
    /// These bytes, then silence until the client leaves.
    Hang(Vec<u8>),
    /// These bytes, one at a time, with this much time after each.
    Drip(Vec<u8>, Duration),
}

pub fn ok(body: impl AsRef<[u8]>) -> Answer {
    Answer::Http(200, Vec::new(), body.as_ref().to_vec())
}

pub fn status(code: u16) -> Answer {
    Answer::Http(code, Vec::new(), Vec::new())
}

pub fn with_header(code: u16, name: &str, value: &str) -> Answer {
    Answer::Http(code, vec![(name.to_owned(), value.to_owned())], Vec::new())
}

/// A request as it arrived: the request line first, then the headers.
#[derive(Debug, Clone)]
pub struct Request {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Which connection it came on, from 1.
    pub connection: usize,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

type Script = dyn Fn(&Request, usize) -> Answer + Send + Sync;

/// Listening until it is dropped with the test's process.
pub struct Server {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers in this order, the last one for ever.
    pub fn start(tls: Arc<ServerConfig>, answers: Vec<Answer>) -> Self {
        Self::answering(tls, move |_, number| answers[number.min(answers.len() - 1)].clone())
    }

    /// Answers by request and its number, from 0.
    pub fn answering(
        tls: Arc<ServerConfig>,
        script: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::listening(Some(tls), script)
    }

    /// Plain HTTP.
    pub fn plain(script: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::listening(None, script)
    }

    fn listening(
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let log = seen.clone();
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                let (tls, log, script) = (tls.clone(), log.clone(), script.clone());
                std::thread::spawn(move || {
                    // A client that refuses the certificate or leaves ends its connection; that is its right.
                    let socket = socket.unwrap();
                    let _ = match tls {
                        None => converse(&socket, number + 1, &log, &*script),
                        Some(tls) => {
                            let session = ServerConnection::new(tls).unwrap();
                            converse(StreamOwned::new(session, &socket), number + 1, &log, &*script)
                        }
                    };
                });
            }
        });
        Self { address, seen }
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

/// A connection whose end can be told from its being cut.
trait Stream: Read + Write {
    fn end(&mut self) {}
}

impl Stream for &TcpStream {}

impl Stream for StreamOwned<ServerConnection, &TcpStream> {
    fn end(&mut self) {
        self.conn.send_close_notify();
    }
}

fn converse(
    stream: impl Stream,
    connection: usize,
    log: &Mutex<Vec<Request>>,
    script: &Script,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(mut request) = read(&mut stream)? {
        request.connection = connection;
        let number = {
            let mut log = log.lock().unwrap();
            log.push(request.clone());
            log.len() - 1
        };
        let stream = stream.get_mut();
        match script(&request, number) {
            Answer::Http(code, headers, body) => {
                let mut head = format!("HTTP/1.1 {code} Status\r\nContent-Length: {}\r\n", body.len());
                for (name, value) in headers {
                    head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
                }
                stream.write_all(head.as_bytes())?;
                stream.write_all(b"\r\n")?;
                stream.write_all(&body)?;
                stream.flush()?;
            }
            Answer::Raw(bytes) => {
                stream.write_all(&bytes)?;
                stream.end();
                return stream.flush();
            }
            Answer::Drip(bytes, pace) => {
                for byte in bytes {
                    stream.write_all(&[byte])?;
                    stream.flush()?;
                    std::thread::sleep(pace); // slowness is what this answer is
                }
                return Ok(());
            }
            Answer::Hang(bytes) => {
                stream.write_all(&bytes)?;
                stream.flush()?;
                return stream.read(&mut [0]).map(drop);
            }
        }
    }
    Ok(())
}

fn read(stream: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header)?;
        match header.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    stream.read_exact(&mut body)?;
    Ok(Some(Request { line: line.trim_end().to_owned(), headers, body, connection: 0 }))
}
