//! A real S3 server (moto, from PyPI) on a free loopback port: started once per test process, gone with it.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use trueup::secret::Secret;
use trueup::store::objects::Bucket;

use super::python;

/// moto looks at a condition and stores the object in two steps, between which another request may come: here it
/// answers one request at a time. Bodies are read before that, so a slow client holds nobody up. It takes a port that
/// is free and says which.
const SERVE: &str = r#"
import io, os, threading
import moto.server
from werkzeug.serving import make_server
from werkzeug.wsgi import get_input_stream

lock = threading.Lock()

def one_at_a_time(app):
    def answer(environ, start_response):
        environ["wsgi.input"] = io.BytesIO(get_input_stream(environ).read())
        with lock:
            body = app(environ, start_response)
            try:
                return list(body)
            finally:
                getattr(body, "close", lambda: None)()
    return answer

def serve(host, port, app, request_handler=None, **_):
    server = make_server(host, port, one_at_a_time(app), threaded=True, request_handler=request_handler)
    print(server.server_port, flush=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    server.serve_forever()

moto.server.run_simple = serve
moto.server.main(["-H", "127.0.0.1", "-p", "0"])
"#;

/// $0 = Python, $1 = what it runs. The shell waits for the end of its input, which is the end of the test process,
/// and takes the server along. Only the server may hold the output: its end is seen there.
const HOLD: &str = r#""$0" -c "$1" & server=$!
    exec >/dev/null 3<&0; (cat <&3; kill $server) & wait $server"#;

struct Server {
    port: u16,
    /// The server ends when the other end of this shell's input does, however this process ends.
    _shell: Child,
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

/// A store's entry in the config, its keys in a file.
pub fn config(bucket: &Bucket, word: &std::path::Path) -> String {
    std::fs::write(word, "test").unwrap();
    let (word, endpoint) = (word.display(), bucket.endpoint.as_deref().unwrap());
    format!(
        "{{ url = \"s3://{}\", endpoint = \"{endpoint}\", region = \"us-east-1\", access_key_file = \"{word}\", \
         secret_key_file = \"{word}\" }}",
        bucket.bucket
    )
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
    let bucket =
        Bucket { bucket: format!("bucket-{}", NEXT.fetch_add(1, Ordering::SeqCst)), ..described(port) };
    put_as_is(&bucket, "", "");
    bucket
}

/// Put an object of any name (without one, the bucket itself), as a console does.
pub fn put_as_is(bucket: &Bucket, name: &str, value: &str) {
    let host = bucket.endpoint.as_deref().unwrap().strip_prefix("http://").unwrap();
    let slash = if name.is_empty() { "" } else { "/" };
    let path = format!("/{}{slash}{name}", bucket.bucket);
    let length = value.len();
    let head = format!("HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "PUT {path} {head}{value}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "putting {path}: {answer}");
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(start)
}

/// Start it, and wait until it listens.
fn start() -> Server {
    let python = python::with("moto", "moto[server,s3]==5.*").join("bin/python");
    let mut shell = Command::new("sh")
        .args(["-c", HOLD])
        .arg(&python)
        .arg(SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.trim().parse().expect("moto did not start; see its output above");
    Server { port, _shell: shell }
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
