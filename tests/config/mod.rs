//! The config file: what it means, and what is said about one that cannot be meant.

mod bad;
mod docs;
mod fuzz;
mod good;

use std::path::Path;

use trueup::config::Config;
use trueup::error::Error;

/// The environment every test here sees.
fn env(name: &str) -> Option<String> {
    match name {
        "FOLDER" => Some("in".into()),
        "EMPTY" => Some(String::new()),
        "YES" => Some("true".into()),
        "TEN" => Some("10".into()),
        "DSN" => Some("postgres://u:hunter2@h/db".into()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Config, Error> {
    Config::parse(text, Path::new("trueup.toml"), &env)
}
