//! Words of the config language that this version knows but cannot do yet.
//!
//! One table, so that such a word is answered with "not yet" instead of "unknown". Building a kind = removing its line.

/// What a word is, and the word.
const WORDS: [(&str, &str); 1] = [("source", "etcd")];

pub const NOT_YET: &str = "is not built into this version yet";

pub fn is_unbuilt(what: &str, word: &str) -> bool {
    WORDS.contains(&(what, word))
}
