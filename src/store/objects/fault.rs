//! What the errors of an object store ask of a person.

use std::error::Error as _;

use object_store::Error as Raw;
use object_store::client::{HttpError, HttpErrorKind};

use super::answers::NoAnswer;
use crate::error::{Error, Kind};
use crate::tls;

/// The object is not there, in the server's own words; a missing bucket is something else.
pub(super) fn is_missing(error: &Raw) -> bool {
    matches!(error, Raw::NotFound { .. }) && text_of(error).contains("<Code>NoSuchKey</Code>")
}

/// Not found, and no word to go with it: answers to HEAD have none.
pub(super) fn is_perhaps_missing(error: &Raw) -> bool {
    matches!(error, Raw::NotFound { .. })
}

/// The condition of a write did not hold.
pub(super) fn is_unmet(error: &Raw) -> bool {
    matches!(error, Raw::AlreadyExists { .. } | Raw::Precondition { .. } | Raw::NotModified { .. })
}

pub(super) fn explain(error: &Raw) -> Error {
    if let Some(distrust) = tls::distrust(error) {
        return distrust;
    }
    if let Some(instead) = found::<NoAnswer>(error) {
        return Error::new(Kind::Unavailable, instead.to_string()).remedy_is(
            "Check `endpoint`: something else than an S3 server may have answered, a proxy or a login page.",
        );
    }
    let text = text_of(error);
    let (kind, remedy) = match error {
        Raw::NotFound { .. } if !text.contains("NoSuchBucket") => (Kind::NotFound, Kind::NotFound.remedy()),
        Raw::PermissionDenied { .. } | Raw::Unauthenticated { .. } => NOT_ALLOWED,
        Raw::AlreadyExists { .. } | Raw::Precondition { .. } | Raw::NotModified { .. } => {
            (Kind::Conflict, Kind::Conflict.remedy())
        }
        Raw::InvalidPath { .. } => (Kind::Invalid, NO_PATH),
        Raw::NotSupported { .. } | Raw::NotImplemented { .. } => (Kind::Bug, Kind::Bug.remedy()),
        Raw::UnknownConfigurationKey { .. } => (Kind::Config, Kind::Config.remedy()),
        _ => by_answer(error, &text),
    };
    Error::new(kind, said(&text).unwrap_or(text)).remedy_is(remedy)
}

pub(super) const NO_PATH: &str = "The bucket holds an object whose name is no path (an empty segment, or `..`): rename it, or use a prefix.";

const NOT_ALLOWED: (Kind, &str) =
    (Kind::Unauthorized, "Check the keys, and that they may list, read, write and delete in this bucket.");

/// The server's own words, out of the document it answered with.
fn said(text: &str) -> Option<String> {
    let part = |open: &str, close: &str| {
        let (_, rest) = text.split_once(open)?;
        Some(rest.split_once(close)?.0)
    };
    let code = part("<Code>", "</Code>")?;
    Some(format!(
        "the server says {code}: {}",
        part("<Message>", "</Message>").unwrap_or("no more than that")
    ))
}

/// Errors the client has no name for: by what the server said, or by how the connection failed.
fn by_answer(error: &Raw, text: &str) -> (Kind, &'static str) {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["NoSuchBucket"]) {
        return (Kind::NotFound, "Create the bucket, or correct its name.");
    }
    if says(&[
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "403 Forbidden",
        "401 Unauthorized",
    ]) {
        return NOT_ALLOWED;
    }
    if says(&["SlowDown", "TooManyRequests", "429 Too Many"]) {
        return (Kind::Throttled, Kind::Throttled.remedy());
    }
    if says(&["507 Insufficient", "QuotaExceeded"]) {
        return (
            Kind::Full,
            "The bucket's quota is used up. Free some space, then run again; nothing was lost.",
        );
    }
    if says(&["400 Bad Request", "EntityTooLarge", "KeyTooLong"]) {
        return (Kind::Invalid, Kind::Invalid.remedy());
    }
    if found::<HttpError>(error).is_some_and(|http| http.kind() == HttpErrorKind::Connect) {
        return (Kind::Unavailable, "Check `endpoint` and that the server is up, then run again.");
    }
    (Kind::Unavailable, Kind::Unavailable.remedy())
}

/// The cause of this type.
fn found<E: std::error::Error + 'static>(error: &Raw) -> Option<&E> {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(found) = inner.downcast_ref() {
            return Some(found);
        }
        cause = inner.source();
    }
    None
}

/// The error and its causes in one line, each said once.
fn text_of(error: &Raw) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}
