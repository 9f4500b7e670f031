//! A real S3 server (moto, from PyPI) on a free loopback port: started once per test process, gone with it.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use trueup::clock::SystemClock;
use trueup::secret::Secret;
use trueup::store::objects::Bucket;

use super::python;

/// How long the server may take to answer after its start, in milliseconds of a loaded machine.
const START_MS_MAX: u64 = 60_000;

struct Server {
    port: u16,
    /// The server ends when this end of the pipe does, however this process ends.
    _leash: ChildStdin,
}

/// A new, empty bucket on the shared server.
pub fn new_bucket() -> Bucket {
    bucket_at(server().port)
}

/// A new bucket on a server that silently ignores every condition, as some kin of S3 do.
pub fn new_bucket_without_conditions() -> Bucket {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (port, upstream) = (listener.local_addr().unwrap().port(), server().port);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            std::thread::spawn(move || forward(&client, upstream));
        }
    });
    bucket_at(port)
}

/// A bucket that was never created.
pub fn no_bucket() -> Bucket {
    Bucket { bucket: "never-created".into(), ..described(server().port) }
}

fn described(port: u16) -> Bucket {
    Bucket {
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        region: Some("us-east-1".into()),
        access_key: Some(Secret::new("test")),
        secret_key: Some(Secret::new("test")),
        ..Bucket::default()
    }
}

fn bucket_at(port: u16) -> Bucket {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let bucket = format!("bucket-{}", NEXT.fetch_add(1, Ordering::SeqCst));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let head = "HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    write!(stream, "PUT /{bucket} {head}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "creating a bucket: {answer}");
    Bucket { bucket, ..described(port) }
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        (0..5).find_map(|_| start()).expect("moto_server did not start; see its output above")
    })
}

/// Start it on a port that was free a moment ago; `None` = somebody else took the port, or it failed.
fn start() -> Option<Server> {
    let program = installed();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    // The shell waits for the end of its input, which is the end of this process, and takes the server along.
    let script = r#""$0" -H 127.0.0.1 -p "$1" >/dev/null 2>&1 & server=$!
        exec 3<&0; (cat <&3 >/dev/null; kill $server) & wait $server"#;
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .arg(&program)
        .arg(port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let leash = shell.stdin.take().unwrap();
    answers(port, &mut shell).then_some(Server { port, _leash: leash })
}

fn answers(port: u16, shell: &mut Child) -> bool {
    let clock = SystemClock::new();
    let start = clock.elapsed_ms();
    while clock.elapsed_ms() - start < START_MS_MAX {
        if shell.try_wait().unwrap().is_some() {
            return false;
        }
        let local = (Ipv4Addr::LOCALHOST, port).into();
        if TcpStream::connect_timeout(&local, Duration::from_millis(200)).is_ok() {
            return true;
        }
        // A refused connection comes back at once: leave the core to the server for a moment.
        std::thread::park_timeout(Duration::from_millis(20));
    }
    false
}

/// The program, installed on first use.
fn installed() -> PathBuf {
    python::with("moto", "moto[server,s3]==5.*").join("bin/moto_server")
}

/// Pass one request on without its conditions, and its answer back.
fn forward(client: &TcpStream, upstream: u16) {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).unwrap();
    let mut from_client = BufReader::new(client.try_clone().unwrap());
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if from_client.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        let name = line.split(':').next().unwrap_or("").to_ascii_lowercase();
        if !matches!(name.as_str(), "if-none-match" | "if-match" | "connection") {
            head.push_str(&line);
        }
    }
    write!(&server, "{head}Connection: close\r\n\r\n").unwrap();
    let to_server = server.try_clone().unwrap();
    let body = std::thread::spawn(move || std::io::copy(&mut from_client, &mut &to_server));
    let _ = std::io::copy(&mut &server, &mut &*client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = body.join();
}
