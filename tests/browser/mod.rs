//! The pages, in a real browser: Chromium, driven over WebDriver, clicks what a person clicks. Screenshots of every
//! page stay in `target/screenshots`, to be looked at.

mod clicks;
mod driver;
mod looks;
mod replicas;
mod scene;
mod workspaces;
