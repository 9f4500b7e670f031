//! The name git gives an object: a hash of its kind, its length and its bytes.
//!
//! Bytes are held against the name they were asked for by: a store keeps them under it for good, and whoever compares names
//! would never look again. It is no defence against somebody who makes two documents of one SHA-1.

use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::error::{Error, Kind, Result};

/// The bytes are those of the blob with this name; 40 hex digits are of SHA-1, 64 of SHA-256.
pub fn check_blob(id: &str, bytes: &[u8]) -> Result<()> {
    let is = name(id, "blob", bytes);
    if is.eq_ignore_ascii_case(id) {
        return Ok(());
    }
    // Not what was asked for, and so not there yet: the next run asks again.
    Err(Error::new(Kind::Unavailable, format!("the blob {id} was asked for, and the content of {is} came")))
}

/// Only one tree has nothing in it.
pub fn is_empty_tree(id: &str) -> bool {
    name(id, "tree", b"").eq_ignore_ascii_case(id)
}

/// What an object is called, in names as long as `like`.
fn name(like: &str, kind: &str, bytes: &[u8]) -> String {
    match like.len() {
        64 => hex::encode(hash::<Sha256>(kind, bytes)),
        _ => hex::encode(hash::<Sha1>(kind, bytes)),
    }
}

fn hash<H: Digest>(kind: &str, bytes: &[u8]) -> sha1::digest::Output<H> {
    H::new().chain_update(format!("{kind} {}\0", bytes.len())).chain_update(bytes).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_has_the_name_that_git_gives_it() {
        let hello = "ce013625030ba8dba906f756967f9e9ca394464a";
        let hello_256 = "2cf8d83d9ee29543b34a87727421fdecb7e3f3a183d337639025de576db9ebb4";
        for name in [hello, &hello.to_uppercase(), hello_256] {
            check_blob(name, b"hello\n").unwrap();
            assert_eq!(check_blob(name, b"hellO\n").unwrap_err().kind(), Kind::Unavailable, "{name}");
        }
        check_blob("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", b"").unwrap();
        for odd in ["", "ce01", "not a name"] {
            assert!(check_blob(odd, b"hello\n").is_err(), "{odd}");
        }
    }

    #[test]
    fn one_tree_is_empty() {
        let empty_256 = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";
        assert!(is_empty_tree("4b825dc642cb6eb9a060e54bf8d69288fbee4904") && is_empty_tree(empty_256));
        assert!(!is_empty_tree("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"), "the empty blob");
    }
}
