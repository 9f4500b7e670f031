//! Asks a server that broke a TLS connection for its reason. With TLS 1.3 it refuses our certificate after we think we
//! are connected, and whether the request or its refusal is first is chance. So here nothing is sent: only listened.

use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::{CONNECT_MAX, Tls, fault};
use crate::error::Error;

/// A refusal follows the handshake at once; a server that is content says nothing.
const REFUSAL_MAX: Duration = Duration::from_secs(2);

/// Why the server ends TLS connections of ours, if it says so.
pub(super) async fn refusal(endpoint: &str, tls: &Tls) -> Option<Error> {
    let (endpoint, tls) = (endpoint.to_owned(), tls.clone());
    let text = tokio::task::spawn_blocking(move || listen(&endpoint, &tls)).await.ok()??;
    fault::from_handshake(&text)
}

fn listen(endpoint: &str, tls: &Tls) -> Option<String> {
    let host = endpoint.rsplit_once(':')?.0.trim_matches(['[', ']']);
    let name = tls.server_name.clone().unwrap_or_else(|| host.to_owned());
    let mut session = ClientConnection::new(Arc::new(config(tls)?), ServerName::try_from(name).ok()?).ok()?;
    let mut addresses = endpoint.to_socket_addrs().ok()?;
    let mut socket = addresses.find_map(|address| TcpStream::connect_timeout(&address, CONNECT_MAX).ok())?;
    socket.set_read_timeout(Some(REFUSAL_MAX)).ok()?;
    socket.set_write_timeout(Some(REFUSAL_MAX)).ok()?;
    let read = rustls::Stream::new(&mut session, &mut socket).read(&mut [0]);
    read.err().map(|error| error.to_string())
}

fn config(tls: &Tls) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &tls.authority {
        Some(path) => {
            roots.add_parsable_certificates(CertificateDer::pem_file_iter(path).ok()?.flatten());
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_file_iter(certificate).ok()?.flatten().collect();
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).ok()?).ok()?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Some(config)
}
