//! One error type. Its kind says what to do next, and one function says so in a sentence.
//!
//! Modules may keep private error enums; what crosses a module boundary is this.

use std::fmt;

use serde::{Deserialize, Serialize};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do next. There are few on purpose: a kind that asks for nothing new is not a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The other side cannot be reached or did not answer in time. Retried.
    Unavailable,
    /// The other side asked us to slow down. Retried after a pause.
    Throttled,
    /// The place we stopped at is no longer known there. A snapshot is taken again.
    CursorLost,
    /// Credentials are missing, wrong or too weak.
    Unauthorized,
    /// The data itself is at fault; the same input fails the same way again.
    Invalid,
    /// What was named does not exist.
    NotFound,
    /// The configuration or the command line is at fault.
    Config,
    /// Something changed in between; plan again.
    Conflict,
    /// Somebody else is doing this very work.
    Busy,
    /// A person asked us to stop.
    Canceled,
    /// Stored data contradicts itself. Stop before more is built on it.
    Corrupt,
    /// The disk or a quota is full.
    Full,
    /// trueup itself is wrong.
    Bug,
}

impl Kind {
    pub const ALL: [Kind; 13] = [
        Kind::Unavailable,
        Kind::Throttled,
        Kind::CursorLost,
        Kind::Unauthorized,
        Kind::Invalid,
        Kind::NotFound,
        Kind::Config,
        Kind::Conflict,
        Kind::Busy,
        Kind::Canceled,
        Kind::Corrupt,
        Kind::Full,
        Kind::Bug,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Unavailable => "unavailable",
            Kind::Throttled => "throttled",
            Kind::CursorLost => "cursor_lost",
            Kind::Unauthorized => "unauthorized",
            Kind::Invalid => "invalid",
            Kind::NotFound => "not_found",
            Kind::Config => "config",
            Kind::Conflict => "conflict",
            Kind::Busy => "busy",
            Kind::Canceled => "canceled",
            Kind::Corrupt => "corrupt",
            Kind::Full => "full",
            Kind::Bug => "bug",
        }
    }

    /// The sentence the command line, a dead letter and the web page show when the error brings none of its own.
    pub fn remedy(self) -> &'static str {
        match self {
            Kind::Unavailable => {
                "Check that the server is up and reachable, then run again; nothing was lost."
            }
            Kind::Throttled => "Wait and run again, or lower `concurrency`.",
            Kind::CursorLost => "Run again: trueup takes a fresh snapshot by itself.",
            Kind::Unauthorized => "Check the credentials and their permissions (`trueup check` tests them).",
            Kind::Invalid => "Correct the item at its source, or exclude it.",
            Kind::NotFound => "Check the name; `trueup check` shows what can be reached.",
            Kind::Config => "Correct the configuration; `trueup check` tests it.",
            Kind::Conflict => "Something changed in between: look at `trueup plan`, then run again.",
            Kind::Busy => "Wait for the other run to end; `trueup status` shows it.",
            Kind::Canceled => "Run again to go on where this run stopped.",
            Kind::Corrupt => {
                "Stop, keep a copy of the file, and restore it from a backup (`trueup state backup`)."
            }
            Kind::Full => "Free some space, then run again; nothing was lost.",
            Kind::Bug => "This is a fault in trueup: please report it with the output of `-v`.",
        }
    }

    /// It says nothing about one item, but about the other side (or this program) as a whole.
    pub fn is_systemic(self) -> bool {
        match self {
            Kind::Unavailable
            | Kind::Throttled
            | Kind::Unauthorized
            | Kind::Full
            | Kind::Corrupt
            | Kind::Bug => true,
            Kind::CursorLost
            | Kind::Invalid
            | Kind::NotFound
            | Kind::Config
            | Kind::Conflict
            | Kind::Busy
            | Kind::Canceled => false,
        }
    }

    /// The exit code a command ends with when this kind ended it.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Config => 2,
            Kind::Unavailable | Kind::Throttled => 5,
            Kind::Unauthorized => 6,
            Kind::Busy => 7,
            Kind::Canceled => 130,
            Kind::CursorLost
            | Kind::Invalid
            | Kind::NotFound
            | Kind::Conflict
            | Kind::Corrupt
            | Kind::Full
            | Kind::Bug => 1,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A failure: what kind, what happened, in the course of what, and (rarely) a better remedy than the kind's.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    context: Vec<String>,
    remedy: Option<String>,
    retry_after_ms: Option<u64>,
    lasting: bool,
    of_data: bool,
    status: Option<u16>,
    cause: Option<Cause>,
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            context: Vec::new(),
            remedy: None,
            retry_after_ms: None,
            lasting: false,
            of_data: false,
            status: None,
            cause: None,
        }))
    }

    /// Say in the course of what it happened; the outermost context is read first.
    #[must_use]
    pub fn while_(mut self, operation: impl Into<String>) -> Self {
        self.0.context.push(operation.into());
        self
    }

    #[must_use]
    pub fn remedy_is(mut self, remedy: impl Into<String>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// It is about what was written, not about the writing: others that were to be written with it may be in order.
    #[must_use]
    pub fn about_data(mut self) -> Self {
        self.0.of_data = true;
        self
    }

    pub fn is_about_data(&self) -> bool {
        self.0.of_data
    }

    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<Cause>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// What the other side asked us to wait (`Retry-After`).
    #[must_use]
    pub fn retry_after_ms(mut self, wait_ms: u64) -> Self {
        self.0.retry_after_ms = Some(wait_ms);
        self
    }

    /// It will not pass by itself: trying again at once is time lost.
    #[must_use]
    pub fn lasting(mut self) -> Self {
        self.0.lasting = true;
        self
    }

    pub fn is_lasting(&self) -> bool {
        self.0.lasting
    }

    /// The HTTP status the other side answered with: it was there, and it said no.
    #[must_use]
    pub fn answered(mut self, status: u16) -> Self {
        self.0.status = Some(status);
        self
    }

    pub fn http_status(&self) -> Option<u16> {
        self.0.status
    }

    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    pub fn remedy(&self) -> &str {
        self.0.remedy.as_deref().unwrap_or_else(|| self.0.kind.remedy())
    }

    pub fn asked_wait_ms(&self) -> Option<u64> {
        self.0.retry_after_ms
    }

    /// Error for broken promises inside trueup: reported, never panicked over.
    pub fn bug(message: impl Into<String>) -> Self {
        Error::new(Kind::Bug, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for operation in self.0.context.iter().rev() {
            write!(f, "{operation}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(cause) = &self.0.cause {
            let text = cause.to_string();
            if !text.is_empty() && !self.0.message.contains(&text) {
                write!(f, ": {text}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().map(|cause| &**cause as _)
    }
}

/// An error as it is kept in reports, dead letters, plans and state. No field is left out when empty: the plan's
/// binary encoding has no names to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub key: Option<String>,
    pub scope: Option<String>,
    pub kind: Kind,
    pub message: String,
    pub remedy: String,
}

impl Fault {
    pub fn of(error: &Error) -> Self {
        Fault {
            key: None,
            scope: None,
            kind: error.kind(),
            message: error.to_string(),
            remedy: error.remedy().to_owned(),
        }
    }

    /// What it is about: a key, or a part of the source.
    pub fn place(&self) -> Option<&str> {
        self.key.as_deref().or(self.scope.as_deref())
    }

    #[must_use]
    pub fn at_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    #[must_use]
    pub fn at_scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }
}

impl From<&Fault> for Error {
    fn from(fault: &Fault) -> Self {
        Error::new(fault.kind, fault.message.clone()).remedy_is(fault.remedy.clone())
    }
}

/// Adds the operation to an error on its way up.
pub trait Context<T> {
    fn context(self, operation: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context(self, operation: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.while_(operation()))
    }
}

/// I/O errors fall into kinds by what a person would do about them.
pub fn from_io(error: std::io::Error, doing: impl Into<String>) -> Error {
    use std::io::ErrorKind as Io;
    let kind = match error.kind() {
        Io::NotFound => Kind::NotFound,
        Io::PermissionDenied | Io::ReadOnlyFilesystem => Kind::Unauthorized,
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => Kind::Full,
        Io::InvalidData | Io::InvalidInput | Io::InvalidFilename | Io::IsADirectory | Io::NotADirectory => {
            Kind::Invalid
        }
        _ => Kind::Unavailable,
    };
    Error::new(kind, error.to_string()).caused_by(error).while_(doing)
}
