//! `cargo +nightly fuzz run feed`: any bytes as a feed.
#![no_main]

#[allow(dead_code)] // each target uses its own check
mod checks;

libfuzzer_sys::fuzz_target!(|xml: &str| checks::survive(xml));
