//! Repositories over HTTP: git's own `http-backend` behind a server that does no more than hand requests to it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::certificates::Issued;
use super::http::{Reply, Request, Server};

/// Serve every repository below a folder.
pub fn serve(root: &Path) -> Server {
    let root = root.to_owned();
    Server::start(move |request| backend(&root, request))
}

/// The same, by a server that shows a certificate.
pub fn serve_tls(root: &Path, shows: &Issued) -> Server {
    let root = root.to_owned();
    Server::start_tls(shows, move |request| backend(&root, request))
}

fn backend(root: &Path, request: &Request) -> Reply {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let header = |name: &str| request.headers.get(name).cloned().unwrap_or_default();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", &request.method)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", request.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&request.body).unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    let end = said.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let mut reply = Reply::status(200).body(said[end + 4..].to_vec());
    for line in String::from_utf8_lossy(&said[..end]).lines() {
        let (name, value) = line.split_once(": ").unwrap();
        reply = match name {
            "Status" => reply.coded(value.split(' ').next().unwrap().parse().unwrap()),
            _ => reply.header(name, value),
        };
    }
    reply
}
