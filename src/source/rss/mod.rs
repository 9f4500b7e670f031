//! Feeds.

mod charset;
mod entities;
mod feed;
mod item;
