//! The contracts of the traits, checked on every implementation and wrapper.

pub mod racing;
pub mod reading;
pub mod stores;
pub mod writing;

mod bucket_lies;
mod cloudflare;
mod etcd;
mod folder;
mod memory;
mod objects;
mod opening;
mod postgres;
mod sources;
mod sqlite;
mod wrappers;
