//! The feed archive: boards into Markdown files.

mod turndown;
