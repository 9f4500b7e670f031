//! TLS by libpq's rules: `prefer` and `require` encrypt without asking who is there, `verify-…` or a root
//! certificate asks.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresPlace;
use crate::error::{Error, Kind, Result};
use crate::tls::Authorities;

pub(super) fn connector(place: &PostgresPlace) -> Result<Option<MakeRustlsConnect>> {
    if place.config.get_ssl_mode() == SslMode::Disable {
        return Ok(None);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::bug(format!("no TLS versions: {error}")))?;
    let config = match &place.authority {
        Some(path) if place.verify => builder.with_root_certificates(roots(path)?),
        _ => builder.dangerous().with_custom_certificate_verifier(trusted(place.verify)?),
    };
    let config = match &place.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
            config.with_client_auth_cert(chain, secret).map_err(|error| unusable(certificate, &error))?
        }
    };
    Ok(Some(MakeRustlsConnect::new(config)))
}

fn trusted(verify: bool) -> Result<Arc<Authorities>> {
    let trusted = if verify { Authorities::of_this_machine() } else { Authorities::anybody() };
    trusted.are_there()?;
    Ok(trusted)
}

fn roots(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, &error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    all.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::new(Kind::Config, format!("{} is not usable for TLS: {error}", path.display()))
        .remedy_is("Give `sslrootcert`, `sslcert` and `sslkey` PEM files that can be read.")
}
