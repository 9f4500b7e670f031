//! What etcd's answers mean. Codes alone lie: a broken connection is `Unknown`, a message over the client's own
//! limit has the code compaction has, a wrong password is an invalid argument. So code **and** text are read.

use tonic::{Code, Status};

use crate::error::{Error, Kind};

/// The kind of an answer that is not the one we asked for.
pub fn from_status(status: &Status) -> Error {
    let (text, sentence) = (status.message(), sentence(status));
    if let Some(error) = from_handshake(&sentence) {
        return error;
    }
    let error = Error::new(kind_of(status.code(), text), sentence);
    match error.kind() {
        Kind::Unauthorized if text.contains("permission denied") => error.remedy_is(
            "Grant the etcd user's role read and write access to the prefix and to the marker key.",
        ),
        Kind::Unauthorized => error.remedy_is("Check the etcd user and password."),
        Kind::Unavailable => error.remedy_is("Check that etcd is up and reachable at the endpoints given."),
        Kind::Full => {
            error.remedy_is("Compact and defragment etcd, disarm its NOSPACE alarm, or raise its quota.")
        }
        _ => error,
    }
}

/// TLS that came to nothing looks like any broken connection, but for its text.
pub(super) fn from_handshake(sentence: &str) -> Option<Error> {
    if sentence.contains("invalid peer certificate") {
        let error = Error::new(Kind::Unavailable, sentence);
        return Some(error.remedy_is(
            "Check `tls=`, the PEM file of the authority that signed etcd's certificate, and that the certificate \
             names the host in the URL or the `server_name`.",
        ));
    }
    let alert = sentence.split_once("received fatal alert: ")?.1;
    // What the server did not like is our certificate, or that there was none.
    (alert.contains("ertificate") || alert.contains("UnknownCA") || alert.contains("AccessDenied")).then(|| {
        Error::new(Kind::Unauthorized, sentence).remedy_is(
            "etcd wants a client certificate that its authority signed: give it with `cert=` and `key=` in the URL.",
        )
    })
}

fn sentence(status: &Status) -> String {
    let mut text = match status.message() {
        "" => format!("etcd answered {:?}", status.code()),
        text => text.to_owned(),
    };
    // tonic's own text is just "transport error": the cause says what a person needs.
    let mut cause = std::error::Error::source(status);
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}

fn kind_of(code: Code, text: &str) -> Kind {
    let says = |part: &str| text.contains(part);
    match code {
        Code::Unauthenticated | Code::PermissionDenied => Kind::Unauthorized,
        Code::InvalidArgument if says("authentication failed") || says("user name is empty") => {
            Kind::Unauthorized
        }
        Code::InvalidArgument if says("revision of auth store is old") => Kind::Unavailable,
        Code::FailedPrecondition if says("authentication is not enabled") => Kind::Config,
        Code::OutOfRange if says("compacted") => Kind::CursorLost,
        Code::OutOfRange if says("future revision") => Kind::Corrupt,
        Code::ResourceExhausted if says("space exceeded") => Kind::Full,
        Code::ResourceExhausted if says("too many requests") => Kind::Throttled,
        Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted | Code::FailedPrecondition => {
            Kind::Invalid
        }
        Code::NotFound => Kind::NotFound,
        Code::AlreadyExists | Code::Aborted => Kind::Conflict,
        Code::DataLoss => Kind::Corrupt,
        Code::Unimplemented => Kind::Invalid,
        // A broken connection is Unknown, a deadline of ours Cancelled, HTTP/2 trouble Internal.
        Code::Ok
        | Code::Unknown
        | Code::Cancelled
        | Code::Internal
        | Code::DeadlineExceeded
        | Code::Unavailable => Kind::Unavailable,
    }
}

/// The token has expired or was given by a member that restarted; the request was not looked at.
pub fn is_stale_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
        || (status.code() == Code::InvalidArgument
            && status.message().contains("revision of auth store is old"))
}

pub fn is_auth_disabled(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && status.message().contains("authentication is not enabled")
}

/// A connection that was there broke, and nobody said why.
pub(super) fn is_cut_short(error: &Error) -> bool {
    let text = error.to_string();
    ["broken pipe", "reset by peer", "Broken pipe", "closed"].iter().any(|part| text.contains(part))
}

/// More operations than the server's `--max-txn-ops`.
pub fn is_too_many_operations(error: &Error) -> bool {
    error.kind() == Kind::Invalid && error.to_string().contains("too many operations")
}

/// A request over the server's `--max-request-bytes` (two texts: one from etcd, one from its gRPC layer).
pub fn is_request_too_large(error: &Error) -> bool {
    let text = error.to_string();
    error.kind() == Kind::Invalid
        && (text.contains("request is too large") || text.contains("received message larger than max"))
}

/// An answer over our own limit; ask for less.
pub fn is_answer_too_large(error: &Error) -> bool {
    let text = error.to_string();
    error.kind() == Kind::Invalid
        && (text.contains("message length too large") || text.contains("larger than"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_text_together_decide_the_kind() {
        let cases = [
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Kind::CursorLost),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 28000000 bytes",
                Kind::Invalid,
            ),
            (Code::Unknown, "transport error", Kind::Unavailable),
            (Code::Cancelled, "Timeout expired", Kind::Unavailable),
            (Code::InvalidArgument, "etcdserver: request is too large", Kind::Invalid),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3000000 vs. 2097152)",
                Kind::Invalid,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Kind::Unauthorized,
            ),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Kind::Unauthorized),
            (Code::PermissionDenied, "etcdserver: permission denied", Kind::Unauthorized),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Kind::Full),
            (Code::ResourceExhausted, "etcdserver: too many requests", Kind::Throttled),
            (Code::Unavailable, "etcdserver: request timed out", Kind::Unavailable),
        ];
        for (code, text, kind) in cases {
            assert_eq!(from_status(&Status::new(code, text)).kind(), kind, "{code:?} {text}");
        }
    }

    #[test]
    fn the_two_kinds_of_too_large_are_told_apart() {
        let of = |code, text: &str| from_status(&Status::new(code, text));
        assert!(is_request_too_large(&of(Code::InvalidArgument, "etcdserver: request is too large")));
        let ours = of(Code::OutOfRange, "Error, decoded message length too large: found 70000000 bytes");
        assert!(is_answer_too_large(&ours) && !is_request_too_large(&ours));
    }
}
