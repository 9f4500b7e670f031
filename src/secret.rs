//! A value that must not be seen. It has no `Display`, no `Serialize`, and a `Debug` that shows nothing.

use std::fmt;

use crate::error::{Error, Kind, Result, from_io};

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The only way out: for the line that puts it into a request.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret is to be found: `token_env = "NAME"` or `token_file = "path"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    Env(String),
    File(std::path::PathBuf),
}

impl SecretRef {
    /// Read it now. An unset or empty variable is `None`: many sources work without a token.
    pub fn read(&self) -> Result<Option<Secret>> {
        let value = match self {
            SecretRef::Env(name) => std::env::var(name).unwrap_or_default(),
            SecretRef::File(path) => std::fs::read_to_string(path)
                .map_err(|error| from_io(error, format!("reading the secret file {}", path.display())))?,
        };
        let value = value.trim_end_matches(['\n', '\r']);
        Ok((!value.is_empty()).then(|| Secret::new(value)))
    }

    pub fn require(&self) -> Result<Secret> {
        self.read()?.ok_or_else(|| match self {
            SecretRef::Env(name) => Error::new(Kind::Unauthorized, format!("the variable {name} is not set"))
                .remedy_is(format!("Set {name} to the token.")),
            SecretRef::File(path) => {
                Error::new(Kind::Unauthorized, format!("the file {} is empty", path.display()))
            }
        })
    }
}

/// Keys that would hold a secret if they were allowed to. Their `_env` and `_file` forms are.
const SECRET_NAMES: [&str; 12] = [
    "access_key",
    "api_key",
    "apikey",
    "authorization",
    "bearer",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "secret_key",
    "token",
];

/// Whether a key of this name asks for a secret in plain text.
pub fn names_a_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES
        .iter()
        .any(|name| key.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('_')))
}

/// Whether a query parameter of this name may hold one: then no message shows it.
pub fn may_be_secret(parameter: &str) -> bool {
    names_a_secret(parameter) || matches!(parameter, "sig" | "key" | "signature")
}
