//! HTTPS as people meet it: an authority of the house, a certificate that is not trusted, a machine without any, a server
//! that speaks HTTP 2 only.

use std::path::Path;

use super::home::{Home, Ran};
use crate::support::certificates::{Authority, Issued};
use crate::support::git_http;
use crate::support::http::{Reply, Server};
use crate::support::leash::{Leash, free_ports, program};

const HERE: &str = "IP:127.0.0.1";

/// Things of an API at this address, into tables.
fn things(base: &str) -> Home {
    Home::new(&format!(
        "[pipelines.things]\nas = \"rows\"\ninto = {{ tables = \"sqlite:things.db\" }}\n\
         from = {{ rest = {{ base = \"{base}\", resources = [{{ name = \"things\", path = \"/things\", key = \"id\",\n\
         columns = {{ id = \"integer\" }} }}] }} }}\n"
    ))
}

fn api(shows: &Issued) -> Server {
    Server::start_tls(shows, |_| Reply::ok("[{\"id\": 1}, {\"id\": 2}]"))
}

/// On a machine that trusts this authority, and no other.
fn trusting(home: &Home, authority: &Path, args: &[&str]) -> Ran {
    let mut command = home.command(args);
    command
        .env("SSL_CERT_FILE", authority)
        .env("SSL_CERT_DIR", home.path("none"))
        .env_remove("GIT_SSL_CAINFO");
    Ran::of(command.output().unwrap())
}

#[test]
fn an_authority_of_the_house_is_enough() {
    let authority = Authority::new();
    let api = api(&authority.issue("here", HERE));
    let home = things(&api.url(""));
    let run = trusting(&home, &authority.file(), &["sync", "--json"]).ends(0).run();
    assert_eq!(run["added"], 2);
}

/// One look is enough: a certificate is not trusted a second later, either.
#[test]
fn a_certificate_that_is_not_trusted_is_told_at_once() {
    let (authority, other) = (Authority::new(), Authority::new());
    let cases = [
        (other.issue("here", HERE), "is of no authority this machine trusts"),
        (
            authority.issue("elsewhere", "DNS:elsewhere.example"),
            "is for elsewhere.example, not for 127.0.0.1",
        ),
    ];
    for (shows, why) in cases {
        let api = api(&shows);
        let home = things(&api.url(""));
        trusting(&home, &authority.file(), &["sync"]).ends(5).says(&[why, "SSL_CERT_FILE"]);
        assert_eq!((api.connections(), api.requests().len()), (1, 0), "{why}");
    }
}

#[test]
fn a_bucket_behind_a_certificate_that_is_not_trusted_is_told_in_the_same_words() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = api(&other.issue("here", HERE));
    let home = Home::new(&format!(
        "[stores]\nbucket = {{ url = \"s3://b/\", endpoint = \"{}\", access_key_env = \"HOME\", secret_key_env = \"HOME\" }}\n\
         [pipelines.notes]\nfrom = {{ files = \"notes\" }}\ninto = \"bucket\"\n",
        server.url("")
    ));
    home.write("notes/a.md", "a note\n");
    trusting(&home, &authority.file(), &["sync"])
        .ends(5)
        .says(&["is of no authority this machine trusts", "SSL_CERT_FILE"]);
    assert_eq!(server.requests().len(), 0);
}

/// The program git has its own TLS, and is told whom to trust by the same setting.
#[test]
fn a_repository_is_trusted_by_the_same_authority() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = git_http::serve_tls(Path::new("/nonexistent"), &authority.issue("here", HERE));
    let home = Home::new(&format!(
        "[pipelines.notes]\nfrom = {{ git = \"{}\", branch = \"main\" }}\ninto = \"memory:\"\n",
        server.url("/notes.git")
    ));
    trusting(&home, &authority.file(), &["sync"]).ends(1).says(&["not found"]);
    assert!(!server.requests().is_empty());
    server.forget();
    trusting(&home, &other.file(), &["sync"]).ends(5).says(&["certificate", "SSL_CERT_FILE"]);
    assert!(server.requests().is_empty());
}

/// As in a container with nothing but the program in it.
#[test]
fn a_machine_that_knows_no_authorities_is_told_what_to_install_once_it_needs_one() {
    let nothing = Path::new("/nonexistent");
    let home = things("https://127.0.0.1:9");
    trusting(&home, nothing, &["sync"]).ends(2).says(&[
        "HTTPS cannot be set up here",
        "ca-certificates",
        "SSL_CERT_FILE",
    ]);
    let plain = Server::start(|_| Reply::ok("[{\"id\": 1}]"));
    let run = trusting(&things(&plain.url("")), nothing, &["sync", "--json"]).ends(0).run();
    assert_eq!(run["added"], 1);
}

#[test]
fn nobody_is_led_away_from_https() {
    let authority = Authority::new();
    let plain = Server::start(|_| Reply::ok("[{\"id\": 1}]"));
    let away = plain.url("/things");
    let api = Server::start_tls(&authority.issue("here", HERE), move |_| {
        Reply::status(302).header("Location", away.clone())
    });
    let home = things(&api.url(""));
    trusting(&home, &authority.file(), &["sync"])
        .ends(1)
        .says(&["a redirect from https to http was refused"]);
    assert_eq!(plain.requests().len(), 0);
}

/// Node refuses HTTP 1 here: what is not agreed on in the handshake is never answered.
#[test]
fn a_server_that_speaks_http_2_only_is_understood() {
    const SERVE: &str = "const fs = require('fs'); const [cert, key, port] = process.argv.slice(1);
        const options = { cert: fs.readFileSync(cert), key: fs.readFileSync(key), allowHTTP1: false };
        require('http2').createSecureServer(options, (ask, answer) => {
            answer.setHeader('content-type', 'application/json'); answer.end(JSON.stringify([{ id: 1 }]));
        }).listen(Number(port), '127.0.0.1');";
    let authority = Authority::new();
    let shows = authority.issue("here", HERE);
    let port = free_ports(1)[0];
    let home = things(&format!("https://127.0.0.1:{port}"));
    let node = program("node", &[], "nodejs");
    let files = [&node, &shows.certificate, &shows.key].map(|path| path.to_str().unwrap());
    let port = port.to_string();
    let command = [files[0], "-e", SERVE, files[1], files[2], &port];
    let _node = Leash::start(&command, "KILL", &home.path("node.log"));
    // The program's own patience bridges the moment until Node listens.
    let run = trusting(&home, &authority.file(), &["sync", "--json"]).ends(0).run();
    assert_eq!(run["added"], 1);
}
