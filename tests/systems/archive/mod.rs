//! The feed archive: boards into Markdown files. Scenarios are numbered as its promises are.

mod beside;
mod boards;
mod desk;
mod dialects;
mod files;
mod hostile;
mod names;
mod previews;
mod reading;
mod rounds;
mod turndown;
