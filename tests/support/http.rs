//! A real HTTP server on a loopback port that answers as a test tells it, also badly: short, endless or not at all.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificates::Issued;

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Whole(Vec<u8>),
    /// Says it is longer than it is, then closes.
    CutShort(Vec<u8>),
    /// Says it is this long, and sends until the other side hangs up.
    Announced(usize),
    /// Goes on until the other side hangs up.
    Endless,
    /// Takes the request and says nothing until the other side hangs up.
    Silence,
}

impl Reply {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Reply { status: 200, headers: Vec::new(), body: Body::Whole(body.into()) }
    }

    pub fn status(status: u16) -> Self {
        Reply { status, headers: Vec::new(), body: Body::Whole(Vec::new()) }
    }

    pub fn cut_short(body: impl Into<Vec<u8>>) -> Self {
        Reply { status: 200, headers: Vec::new(), body: Body::CutShort(body.into()) }
    }

    pub fn endless() -> Self {
        Reply { status: 200, headers: Vec::new(), body: Body::Endless }
    }

    pub fn announcing(bytes: usize) -> Self {
        Reply { status: 200, headers: Vec::new(), body: Body::Announced(bytes) }
    }

    pub fn silence() -> Self {
        Reply { status: 200, headers: Vec::new(), body: Body::Silence }
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Body::Whole(body.into());
        self
    }

    pub fn coded(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

type Script = Box<dyn FnMut(&Request) -> Reply + Send>;

struct Shared {
    script: Mutex<Script>,
    log: Mutex<Vec<Request>>,
    /// Body bytes handed to the network.
    sent: AtomicU64,
    /// Connections that were begun, whatever came of them.
    connections: AtomicU64,
    ended: AtomicBool,
    /// Speaks TLS with this, or not at all.
    tls: Option<Arc<rustls::ServerConfig>>,
}

pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    pub fn start(script: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        Self::start_as(None, script)
    }

    /// A server that shows a certificate.
    pub fn start_tls(shows: &Issued, script: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let chain = CertificateDer::pem_file_iter(&shows.certificate).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&shows.key).unwrap();
        trueup::tls::choose();
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        Self::start_as(Some(Arc::new(config.unwrap())), script)
    }

    fn start_as(
        tls: Option<Arc<rustls::ServerConfig>>,
        script: impl FnMut(&Request) -> Reply + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            log: Mutex::default(),
            sent: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            tls,
        });
        let theirs = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if theirs.ended.load(Ordering::SeqCst) {
                    return;
                }
                theirs.connections.fetch_add(1, Ordering::SeqCst);
                let shared = theirs.clone();
                // A client that hangs up in the middle is part of many tests.
                std::thread::spawn(move || drop(greet(stream, &shared)));
            }
        });
        Server { address, shared }
    }

    /// Answer differently from now on.
    pub fn answer(&self, script: impl FnMut(&Request) -> Reply + Send + 'static) {
        *locked(&self.shared.script) = Box::new(script);
    }

    pub fn url(&self, path: &str) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> Vec<Request> {
        locked(&self.shared.log).clone()
    }

    /// How many requests had this in their path.
    pub fn count(&self, part: &str) -> usize {
        self.requests().iter().filter(|request| request.path.contains(part)).count()
    }

    pub fn forget(&self) {
        locked(&self.shared.log).clear();
    }

    pub fn bytes_sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

fn greet(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let Some(config) = &shared.tls else { return serve(&mut stream, shared) };
    let session = rustls::ServerConnection::new(config.clone()).map_err(std::io::Error::other)?;
    let mut stream = rustls::StreamOwned::new(session, stream);
    serve(&mut stream, shared)?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn serve(stream: &mut (impl Read + Write), shared: &Shared) -> std::io::Result<()> {
    let request = read_request(&mut BufReader::new(&mut *stream))?;
    let reply = (locked(&shared.script))(&request);
    locked(&shared.log).push(request);
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let length = match &reply.body {
        Body::Whole(body) => Some(body.len()),
        Body::CutShort(body) => Some(body.len() + 1_000),
        Body::Announced(length) => Some(*length),
        Body::Endless => None,
        Body::Silence => {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest)?;
            return Ok(());
        }
    };
    if let Some(length) = length {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    match reply.body {
        Body::Whole(body) | Body::CutShort(body) => {
            stream.write_all(&body)?;
            shared.sent.fetch_add(body.len() as u64, Ordering::SeqCst);
        }
        Body::Endless | Body::Announced(_) => loop {
            let chunk = [b' '; 65_536];
            stream.write_all(&chunk)?;
            shared.sent.fetch_add(chunk.len() as u64, Ordering::SeqCst);
        },
        Body::Silence => {}
    }
    stream.flush()
}

fn read_request(from: &mut impl BufRead) -> std::io::Result<Request> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 || line.trim().is_empty() {
            let body = read_body(from, &headers)?;
            return Ok(Request { method, path, headers, body });
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
}

/// By its length, or chunk by chunk (git sends large requests so).
fn read_body(from: &mut impl BufRead, headers: &BTreeMap<String, String>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            let mut chunk = vec![0; size + 2];
            from.read_exact(&mut chunk)?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    body.resize(length, 0);
    from.read_exact(&mut body)?;
    Ok(body)
}
