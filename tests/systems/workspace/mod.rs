//! Page workspaces by their scenarios, which carry their number in the name; over SQLite, and where writers race also
//! over etcd and PostgreSQL.

mod answers;
mod caching;
mod clearing;
mod command;
mod desk;
mod documents;
mod folders;
mod issues;
mod jobs;
mod keys;
mod limits;
pub mod model;
mod papers;
mod purging;
mod stale;
mod story;
mod wiki;
