//! HTML to Markdown by Turndown's conventions, pure and bounded.
//!
//! The parsing is html5ever's. The writing is here because the conventions are the promise: an archive that was
//! begun with Turndown must not change its bytes (docs/decisions/0005-html-to-markdown.md). What is done
//! differently on purpose is listed in tests/fixtures/turndown/differences.tsv.

mod dom;
pub(super) mod escape;
mod space;
mod table;
mod tag;
mod write;

use std::borrow::Cow;

use url::Url;

use crate::error::Result;

/// What relative links are relative to.
pub struct Links {
    base: Option<Url>,
}

impl Links {
    /// Without a usable base, relative links stay as they are.
    pub fn relative_to(base: &str) -> Self {
        Links { base: Url::parse(base).ok().filter(|url| !url.cannot_be_a_base()) }
    }

    /// Absolute URLs stay byte for byte.
    fn resolve<'a>(&self, url: &'a str) -> Cow<'a, str> {
        let url = url.trim_matches(|c: char| c.is_ascii_whitespace());
        match &self.base {
            Some(base) if !has_scheme(url) => match base.join(url) {
                Ok(resolved) => Cow::Owned(resolved.into()),
                Err(_) => Cow::Borrowed(url),
            },
            _ => Cow::Borrowed(url),
        }
    }
}

fn has_scheme(url: &str) -> bool {
    let Some((scheme, _)) = url.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// The Markdown of an HTML fragment. The same input fails the same way: only markup that explodes is refused.
pub fn to_markdown(html: &str, links: &Links) -> Result<String> {
    if html.is_empty() {
        return Ok(String::new());
    }
    let mut dom = dom::Dom::parse(html)?;
    space::collapse(&mut dom);
    let mut out = write::Writer::new(&dom, links).children(dom.root, false)?;
    out.truncate(out.trim_end_matches(space::is_space).len());
    let start = out.len() - out.trim_start_matches(['\t', '\r', '\n']).len();
    out.drain(..start);
    Ok(out)
}
