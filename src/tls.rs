//! One TLS for the whole program: rustls with ring, which needs nothing but a C compiler to build.
//!
//! Who is trusted is the machine's to say. Its certificates (150 of them, 8 ms to read) are read when a server first
//! shows one of its own: most passes of a machine that asks `http://` never need them.

use std::error::Error as StdError;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_platform_verifier::Verifier;

use crate::error::{Error, Kind, Result};

/// What a person can do about a server whose certificate is not trusted.
pub const UNTRUSTED: &str = "If the server is what it should be, name a PEM file with its authority in SSL_CERT_FILE, or add the \
    authority to those of this machine; if it is not, do not send it anything.";

/// Choose it. Whoever makes an HTTPS client calls this first; once is enough, more does no harm.
pub fn choose() {
    // An error says that it was chosen before, which is what was wanted.
    let _ = ring::default_provider().install_default();
}

/// Whose certificates are accepted.
#[derive(Debug)]
pub struct Authorities {
    provider: Arc<CryptoProvider>,
    whose: Whose,
}

#[derive(Debug)]
enum Whose {
    /// Of the authorities this machine trusts, read at their first use.
    Machine(OnceLock<Result<Verifier, rustls::Error>>),
    /// Whoever holds the key of the certificate they show.
    Anybody,
}

impl Authorities {
    pub fn of_this_machine() -> Arc<Self> {
        Self::of(Whose::Machine(OnceLock::new()))
    }

    /// Encrypted, and nobody is asked who they are.
    pub fn anybody() -> Arc<Self> {
        Self::of(Whose::Anybody)
    }

    fn of(whose: Whose) -> Arc<Self> {
        Arc::new(Authorities { provider: Arc::new(ring::default_provider()), whose })
    }

    /// For a client that speaks HTTP 2 where the server does.
    pub fn client(self: Arc<Self>) -> Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::bug(format!("no TLS versions: {error}")))?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(self).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Whether there are any: without them no server can be trusted, and none need be asked.
    pub fn are_there(&self) -> Result<()> {
        self.verifier().map(drop).map_err(|error| {
            Error::new(Kind::Config, format!("HTTPS cannot be set up here: {error}")).remedy_is(
                "Install the certificates of the public authorities (Debian: `ca-certificates`), or name a file of \
                 certificates in SSL_CERT_FILE.",
            )
        })
    }

    /// `None` = nobody asks.
    fn verifier(&self) -> Result<Option<&Verifier>, rustls::Error> {
        let Whose::Machine(read) = &self.whose else { return Ok(None) };
        let read = read.get_or_init(|| Verifier::new(self.provider.clone()));
        read.as_ref().map(Some).map_err(Clone::clone)
    }
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.verifier()? {
            Some(machine) => {
                machine.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a server's certificate was not trusted, if that is what an error comes from. It will not be trusted a second
/// later, either.
pub fn distrust(error: &(dyn StdError + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
            let text = format!("the server's certificate {}", complaint(why));
            return Some(Error::new(Kind::Unavailable, text).remedy_is(UNTRUSTED).lasting());
        }
        next = within(error);
    }
    None
}

/// What an error was made of. An I/O error hides that from those who ask for its source.
fn within<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e (dyn StdError + 'static)> {
    let io = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    io.map(|inner| inner as _).or_else(|| error.source())
}

fn complaint(why: &CertificateError) -> String {
    use CertificateError as E;
    match why {
        E::Expired | E::ExpiredContext { .. } => "has expired".into(),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "is not valid yet (or the clock of this machine is wrong)".into()
        }
        E::NotValidForName => "is for another name".into(),
        E::NotValidForNameContext { expected, presented } => {
            // `DnsName("a.example")`
            let names = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name));
            format!("is for {}, not for {}", names.collect::<Vec<_>>().join(", "), expected.to_str())
        }
        E::Revoked => "was revoked".into(),
        E::UnknownIssuer
        | E::BadSignature
        | E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is of no authority this machine trusts".into()
        }
        other => format!("cannot be trusted: {other}"),
    }
}
