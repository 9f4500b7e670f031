//! The policy registry: a repository of documents into a key-value registry. Scenarios are numbered as its promises are.

mod beside;
mod changes;
mod desk;
mod documents;
mod drift;
mod followed;
mod outages;
mod picky;
mod refused;
mod regained;
mod repositories;
mod rows;
mod since;
mod stores;
mod told;
mod undone;
