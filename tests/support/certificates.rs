//! Certificates made for one test by `openssl`: an authority, and what it issues.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::leash::{DataFolder, program};

/// An authority of its own; two of them do not know each other.
pub struct Authority {
    folder: DataFolder,
}

/// A certificate and its key, as PEM files.
pub struct Issued {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        let authority = Authority { folder: DataFolder::new("certificates") };
        authority.make("authority", "basicConstraints = critical, CA:TRUE\nkeyUsage = keyCertSign", &[]);
        authority
    }

    /// The PEM file to trust.
    pub fn file(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// A certificate for a server or a client; `names` as `IP:127.0.0.1` or `DNS:localhost`.
    pub fn issue(&self, common_name: &str, names: &str) -> Issued {
        let extensions = format!(
            "basicConstraints = CA:FALSE\nextendedKeyUsage = serverAuth, clientAuth\nsubjectAltName = {names}"
        );
        let (certificate, key) = (self.file(), self.path("authority.key"));
        let signed = ["-CA", certificate.to_str().unwrap(), "-CAkey", key.to_str().unwrap()];
        self.make(common_name, &extensions, &signed);
        let file = |ending: &str| self.path(&format!("{common_name}.{ending}"));
        Issued { certificate: file("pem"), key: file("key") }
    }

    fn make(&self, name: &str, extensions: &str, signed: &[&str]) {
        let config = self.path(&format!("{name}.cnf"));
        let text = format!(
            "[req]\nprompt = no\ndistinguished_name = name\n[name]\nCN = {name}\n[extensions]\n{extensions}\n"
        );
        std::fs::write(&config, text).unwrap();
        let output = Command::new(program("openssl", &[], "openssl"))
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-extensions", "extensions", "-config"])
            .arg(&config)
            .arg("-keyout")
            .arg(self.path(&format!("{name}.key")))
            .arg("-out")
            .arg(self.path(&format!("{name}.pem")))
            .args(signed)
            .output()
            .unwrap();
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.folder.path()).join(name)
    }
}
