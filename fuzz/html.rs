//! `cargo +nightly fuzz run html`: any text as an article's HTML.
#![no_main]

#[allow(dead_code)] // each target uses its own check
mod checks;

libfuzzer_sys::fuzz_target!(|html: &str| checks::convert(html));
