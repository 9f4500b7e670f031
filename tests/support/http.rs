//! A real HTTP server on a loopback port that answers as a test tells it, also badly: short, endless or not at all.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Debug, Clone)]
pub struct Request {
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
    ended: AtomicBool,
}

pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    pub fn start(script: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            log: Mutex::default(),
            sent: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let theirs = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if theirs.ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = theirs.clone();
                // A client that hangs up in the middle is part of many tests.
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Server { address, shared }
    }

    /// Answer differently from now on.
    pub fn answer(&self, script: impl FnMut(&Request) -> Reply + Send + 'static) {
        *locked(&self.shared.script) = Box::new(script);
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
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

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let request = read_request(&mut BufReader::new(stream.try_clone()?))?;
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
    from.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    from.read_exact(&mut body)?;
    Ok(Request { path, headers, body })
}
