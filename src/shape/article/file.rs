//! The Markdown file of one article, line by line.

use jiff::Timestamp;

use super::html::{Links, to_markdown};
use super::item::{Article, Attachment};
use super::{SEOUL, text};
use crate::error::Result;

/// Starts the one line that tells when the file was written.
pub const GENERATED: &str = "**Generated:** ";

/// Two spaces at the end of a line: a line break in Markdown.
const BREAK: &str = "  \n";

pub fn write(article: &Article, now: Timestamp) -> Result<String> {
    let mut out = String::with_capacity(article.html.len() + 1_024);
    let feed = &article.feed;
    out.extend(["# ", &text::heading(&feed.title), "\n"]);
    out.extend(["**Source:** ", &text::line(&feed.link), BREAK]);
    out.extend(["**Description:** ", &text::line(&feed.description), BREAK]);
    out.extend([GENERATED, &generated(now), "\n\n"]);
    urls(&mut out, "**Preview URLs:**", &article.attachments, |file| &file.preview_url);
    urls(&mut out, "**Download URLs:**", &article.attachments, |file| &file.url);
    out.push_str("---\n\n");
    out.extend(["## [", &text::link_text(&article.title), "](", &text::link_target(&article.link), ")\n"]);
    out.extend(["**Published:** ", &article.published.to_string(), " (Asia/Seoul)", BREAK]);
    if !article.department.is_empty() {
        out.extend(["**Department:** ", &text::line(&article.department), "\n"]);
    }
    out.push('\n');
    let body = to_markdown(&article.html, &Links::relative_to(&article.link))?;
    if !body.is_empty() {
        out.extend([&body, "\n\n"]);
    }
    previews(&mut out, article);
    out.push_str("---\n");
    Ok(out)
}

/// `2025-10-16T16:00:00Z (2025-10-17T01:00:00+09:00)`
fn generated(now: Timestamp) -> String {
    let seoul = now.to_zoned(SEOUL.to_time_zone());
    format!("{} ({})", now.strftime("%Y-%m-%dT%H:%M:%SZ"), seoul.strftime("%Y-%m-%dT%H:%M:%S%:z"))
}

/// A section of unique URLs in order; none without URLs.
fn urls(out: &mut String, heading: &str, files: &[Attachment], url: fn(&Attachment) -> &String) {
    let start = out.len();
    for (at, file) in files.iter().enumerate().filter(|(_, file)| !url(file).is_empty()) {
        if files[..at].iter().any(|other| url(other) == url(file)) {
            continue;
        }
        out.extend(["- ", &text::line(&file.name), ": ", &text::line(url(file)), "\n"]);
    }
    if out.len() > start {
        out.insert_str(start, &format!("{heading}\n"));
        out.push('\n');
    }
}

fn previews(out: &mut String, article: &Article) {
    let previews = article.previews.as_deref().unwrap_or_default();
    let mut blocks = previews.iter().filter_map(|preview| preview.content.as_deref()).peekable();
    if blocks.peek().is_none() {
        return;
    }
    out.push_str("### 미리보기\n");
    for block in blocks {
        out.push_str(block);
        out.push_str(if block.ends_with('\n') { "\n" } else { "\n\n" });
    }
}
