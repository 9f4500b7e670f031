//! Articles as Markdown files.

pub mod html;
mod item;

pub use item::{Article, Attachment, Head, Preview};
