//! Articles as Markdown files.

pub mod html;
