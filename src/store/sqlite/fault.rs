//! What SQLite's errors ask of a person.

use rusqlite::ErrorCode;

use crate::error::{Error, Kind};

const DAMAGED: &str = "Stop, keep a copy of the file, and restore it from a backup (`trueup state backup`).";

pub(in crate::store) fn explain(error: rusqlite::Error) -> Error {
    let code = error.sqlite_error_code();
    let (kind, remedy) = match code {
        // Of a row that is always there: the page it was on is not.
        None if matches!(error, rusqlite::Error::QueryReturnedNoRows) => (Kind::Corrupt, DAMAGED),
        Some(ErrorCode::DiskFull) => {
            (Kind::Full, "The disk is full. Free some space, then run again; nothing was lost.")
        }
        Some(ErrorCode::ReadOnly) => {
            (Kind::Unauthorized, "Make the file and its folder writable for this user, then run again.")
        }
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            (Kind::Unauthorized, "Let this user read and write the file and its folder.")
        }
        Some(ErrorCode::CannotOpen) => {
            (Kind::Unauthorized, "Check that the file and its folder exist and may be read and written.")
        }
        Some(ErrorCode::DatabaseCorrupt) => (Kind::Corrupt, DAMAGED),
        Some(ErrorCode::NotADatabase) => (
            Kind::Corrupt,
            "Name another file, or restore this one from a backup if its start was overwritten; it was left as it is.",
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (Kind::Unavailable, "Another program holds the file locked. Wait for it to end, then run again.")
        }
        Some(ErrorCode::SystemIoFailure) => {
            (Kind::Unavailable, "The disk reported an error. Check the disk (and its log), then run again.")
        }
        Some(ErrorCode::OutOfMemory | ErrorCode::NoLargeFileSupport) => {
            (Kind::Full, "Memory or the largest file size is used up. Free some, then run again.")
        }
        Some(ErrorCode::ConstraintViolation) => {
            (Kind::Invalid, "A rule of the table keeps it out. Change the rule, or what the source says.")
        }
        Some(ErrorCode::TooBig) => (Kind::Invalid, "The value is larger than SQLite takes. Exclude it."),
        _ => (Kind::Bug, Kind::Bug.remedy()),
    };
    Error::new(kind, error.to_string()).remedy_is(remedy).caused_by(error)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn an_error_says_what_a_person_must_do() {
        let cases = [
            (ffi::SQLITE_FULL, Kind::Full, "Free some space"),
            (ffi::SQLITE_IOERR, Kind::Unavailable, "Check the disk"),
            (ffi::SQLITE_READONLY, Kind::Unauthorized, "writable"),
            (ffi::SQLITE_CANTOPEN, Kind::Unauthorized, "folder exist"),
            (ffi::SQLITE_CORRUPT, Kind::Corrupt, "backup"),
            (ffi::SQLITE_NOTADB, Kind::Corrupt, "left as it is"),
            (ffi::SQLITE_BUSY, Kind::Unavailable, "Wait"),
            (ffi::SQLITE_CONSTRAINT, Kind::Invalid, "A rule of the table"),
            (ffi::SQLITE_MISUSE, Kind::Bug, "report"),
        ];
        for (code, kind, remedy) in cases {
            let error = explain(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.remedy().contains(remedy), "{error}: {}", error.remedy());
        }
        assert_eq!(explain(rusqlite::Error::QueryReturnedNoRows).kind(), Kind::Corrupt);
    }
}
