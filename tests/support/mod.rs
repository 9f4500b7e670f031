//! What tests share: real servers on free loopback ports, temp folders, the built program.

/// A folder that goes away with the test.
pub fn temp() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("trueup-test-").tempdir().unwrap()
}
