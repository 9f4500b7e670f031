//! The text layer of a PDF, page by page.
//!
//! Lines stay lines: in Markdown they are one paragraph all the same, and what a hyphen cut at a line's end only a
//! dictionary could join. A file that asks for a password is refused.

use super::broken;
use crate::error::Result;

/// What a PDF begins with, within its first bytes.
const MAGIC: &[u8] = b"%PDF-";
const MAGIC_WITHIN: usize = 1_024;

pub fn markdown(bytes: &[u8]) -> Result<String> {
    let head = &bytes[..bytes.len().min(MAGIC_WITHIN)];
    if !head.windows(MAGIC.len()).any(|window| window == MAGIC) {
        return Err(broken("it is no PDF"));
    }
    let pages = pdf_extract::extract_text_from_mem_by_pages(bytes).map_err(|error| {
        let encrypted = error.to_string().to_lowercase().contains("crypt");
        broken(if encrypted { "the PDF is protected by a password" } else { "the PDF is damaged" })
            .caused_by(error.to_string())
    })?;
    let pages: Vec<String> = pages.iter().map(|page| trimmed(page)).collect();
    Ok(pages.join("\n\n"))
}

/// Blanks at the beginning of a line are where it stood on the page; Markdown would take them for code.
fn trimmed(page: &str) -> String {
    page.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}
