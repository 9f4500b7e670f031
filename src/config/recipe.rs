//! The config files `trueup init` writes. They are files of their own, so that they can be read, run and tested.

use super::locate::suggestion;
use crate::error::{Error, Kind, Result};

/// What `trueup init` writes when no recipe is named.
pub const DEFAULT: &str = "files";

const BUILT: [(&str, &str); 6] = [
    ("boards", include_str!("../../recipes/boards.toml")),
    ("files", include_str!("../../recipes/files.toml")),
    ("policies", include_str!("../../recipes/policies.toml")),
    ("replica", include_str!("../../recipes/replica.toml")),
    ("stortinget", include_str!("../../recipes/stortinget/trueup.toml")),
    ("workspace", include_str!("../../recipes/workspace.toml")),
];

/// The names of the recipes there are.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT.iter().map(|(name, _)| *name)
}

/// The text of a recipe: a `trueup.toml` that runs as it is.
pub fn recipe(name: &str) -> Result<&'static str> {
    if let Some((_, text)) = BUILT.iter().find(|(built, _)| *built == name) {
        return Ok(text);
    }
    let message = format!("there is no recipe `{name}`{}", suggestion(name, names()));
    let remedy = format!("Recipes are: {}.", names().collect::<Vec<_>>().join(", "));
    Err(Error::new(Kind::Config, message).remedy_is(remedy))
}

/// Recipes of APIs, under the names by which a config calls them. `trueup init` writes them beside the config, and a
/// config that names one without having the file gets it from here.
const APIS: [(&str, &str); 1] = [("recipes/stortinget.toml", include_str!("../../recipes/stortinget.toml"))];

/// The recipe of an API that comes with the program.
pub fn shipped(path: &str) -> Option<&'static str> {
    APIS.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}

/// A first page for a workspace, under the paths that its config names.
const PAGES: [(&str, &str); 2] = [
    ("pages/welcome/page.md", include_str!("../../recipes/workspace/page.md")),
    ("pages/welcome/supervision.md", include_str!("../../recipes/workspace/supervision.md")),
];

/// Files that a config names and `trueup init` writes beside it: where, and what is in them.
pub fn beside(config: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    APIS.iter().chain(&PAGES).copied().filter(move |(path, _)| config.contains(path))
}
