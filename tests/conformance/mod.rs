//! The contracts of the traits, checked on every implementation and wrapper.

pub mod racing;
pub mod reading;
pub mod stores;
pub mod writing;

mod folder;
mod etcd;
mod cloudflare;
mod memory;
mod postgres;
mod sources;
mod objects;
mod opening;
mod sqlite;
mod wrappers;
