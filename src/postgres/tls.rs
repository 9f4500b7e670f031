//! TLS by libpq's rules: `prefer` and `require` encrypt without asking who is there, `verify-…` or a root
//! certificate asks.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresPlace;
use crate::error::{Error, Kind, Result};

pub(super) fn connector(place: &PostgresPlace) -> Result<Option<MakeRustlsConnect>> {
    if place.config.get_ssl_mode() == SslMode::Disable {
        return Ok(None);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::bug(format!("no TLS versions: {error}")))?;
    let config = if place.verify {
        builder.with_root_certificates(roots(place)?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
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

fn roots(place: &PostgresPlace) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = &place.authority else {
        for certificate in rustls_native_certs::load_native_certs().certs {
            // The system's store holds certificates of many ages; those rustls cannot use are no roots of ours.
            let _ = roots.add(certificate);
        }
        return Ok(roots);
    };
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

/// Accepts any certificate, but still demands that the server holds its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
