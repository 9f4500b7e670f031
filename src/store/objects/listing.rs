//! One page of a listing, as the server wrote it. It must say of itself that it is whole, or where it goes on.
//!
//! Objects whose name ends in `/` are left out: they are what consoles make for folders, and the client would take their
//! names for those of the objects beside them.

use std::ops::Range;

use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

/// The names of the objects of a page, exactly as the server wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Keys(pub Vec<String>);

/// The name of the outermost element of a document.
pub(super) fn root(body: &[u8]) -> Option<String> {
    let mut reader = Reader::from_reader(body);
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) | Event::Empty(tag) => {
                return Some(String::from_utf8_lossy(tag.local_name().as_ref()).into_owned());
            }
            Event::Eof => return None,
            // A page in HTML that is no XML further on.
            Event::DocType(kind) if kind.to_ascii_lowercase().starts_with(b"html") => {
                return Some("html".into());
            }
            _ => {}
        }
    }
}

/// The keys of a page, and the page without its markers of folders. Otherwise what is wrong with it.
pub(super) fn checked(body: Bytes) -> Result<(Keys, Bytes), String> {
    let page = Page::read(&body).map_err(|why| format!("the server's listing is not well-formed: {why}"))?;
    page.check()?;
    let mut kept = Vec::with_capacity(body.len());
    let mut from = 0;
    for marker in &page.markers {
        kept.extend_from_slice(&body[from..marker.start]);
        from = marker.end;
    }
    kept.extend_from_slice(&body[from..]);
    Ok((Keys(page.keys), kept.into()))
}

#[derive(Debug, Default)]
struct Page {
    keys: Vec<String>,
    /// Where in the document the markers of folders stand.
    markers: Vec<Range<usize>>,
    folders: usize,
    truncated: Option<String>,
    token: Option<String>,
    count: Option<String>,
    /// Of the object that is read.
    key: Option<String>,
}

impl Page {
    fn read(body: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::from_reader(body);
        reader.config_mut().expand_empty_elements = true;
        let (mut page, mut path, mut text, mut begun) = (Page::default(), Vec::new(), String::new(), 0);
        loop {
            let at = position(&reader);
            match reader.read_event().map_err(|error| error.to_string())? {
                Event::Start(tag) => {
                    path.push(String::from_utf8_lossy(tag.local_name().as_ref()).into_owned());
                    text.clear();
                    if path.len() == 2 {
                        begun = at;
                    }
                }
                Event::End(_) => {
                    page.take(&path, std::mem::take(&mut text), begun..position(&reader))?;
                    path.pop();
                }
                Event::Text(part) => text.push_str(&part.xml10_content().map_err(|error| error.to_string())?),
                Event::CData(part) => {
                    text.push_str(&part.xml10_content().map_err(|error| error.to_string())?)
                }
                Event::GeneralRef(name) => text.push_str(&resolved(&name)?),
                Event::Eof if path.is_empty() => return Ok(page),
                Event::Eof => return Err("it ends in the middle".to_owned()),
                _ => {}
            }
        }
    }

    /// The element that just ended, by the names from the outermost to its own.
    fn take(&mut self, path: &[String], text: String, at: Range<usize>) -> Result<(), String> {
        let names: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
        match names[..] {
            ["IsTruncated"] => self.truncated = Some(text),
            ["NextContinuationToken"] => self.token = Some(text),
            ["KeyCount"] => self.count = Some(text),
            ["CommonPrefixes"] => self.folders += 1,
            ["Contents", "Key"] => self.key = Some(text),
            ["Contents"] => match self.key.take() {
                Some(key) if key.ends_with('/') => self.markers.push(at),
                Some(key) => self.keys.push(key),
                None => return Err("an object has no name".to_owned()),
            },
            _ => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let token = self.token.as_deref().is_some_and(|token| !token.is_empty());
        match (self.truncated.as_deref().map(str::trim), token) {
            (Some("true"), true) | (Some("false"), false) => {}
            (Some("true"), false) => {
                return Err("the server's listing goes on, and does not say where".to_owned());
            }
            (Some("false"), true) => {
                return Err("the server's listing ends, and says where it goes on".to_owned());
            }
            _ => return Err("the server's listing does not say whether it is whole".to_owned()),
        }
        let lines = self.keys.len() + self.markers.len() + self.folders;
        match self.count.as_deref().map(str::trim) {
            Some(count) if count != lines.to_string() => {
                Err(format!("the server's listing has {lines} lines, and says that it has {count}"))
            }
            _ => Ok(()),
        }
    }
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

fn resolved(name: &BytesRef<'_>) -> Result<String, String> {
    if let Some(c) = name.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(c.to_string());
    }
    let name = String::from_utf8_lossy(name);
    resolve_predefined_entity(&name).map(str::to_owned).ok_or_else(|| format!("&{name}; is not declared"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rest: &str) -> Result<(Vec<String>, String), String> {
        let body =
            format!("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\">{rest}</ListBucketResult>");
        let (keys, kept) = checked(body.into())?;
        Ok((keys.0, String::from_utf8(kept.to_vec()).unwrap()))
    }

    #[test]
    fn a_page_says_that_it_is_whole_or_where_it_goes_on() {
        let a = "<Contents><Key>a</Key></Contents>";
        let whole = "<IsTruncated>false</IsTruncated>";
        let cut = "<IsTruncated>true</IsTruncated>";
        let token = "<NextContinuationToken>t</NextContinuationToken>";
        for good in [
            whole.to_owned(),
            format!("{whole}<NextContinuationToken/>{a}"),
            format!("{cut}{token}{a}"),
            format!("{whole}<KeyCount>1</KeyCount>{a}"),
        ] {
            assert!(page(&good).is_ok(), "{good}: {:?}", page(&good));
        }
        for (bad, why) in [
            (String::new(), "whether it is whole"),
            (a.to_owned(), "whether it is whole"),
            (format!("<IsTruncated>perhaps</IsTruncated>{a}"), "whether it is whole"),
            (format!("{cut}{a}"), "not say where"),
            (format!("{cut}<NextContinuationToken></NextContinuationToken>{a}"), "not say where"),
            (format!("{whole}{token}{a}"), "says where it goes on"),
            (format!("{whole}<KeyCount>2</KeyCount>{a}"), "has 1 lines, and says that it has 2"),
            (format!("{whole}<Contents/>"), "has no name"),
            (format!("{whole}<Contents>"), "not well-formed"),
        ] {
            assert!(page(&bad).unwrap_err().contains(why), "{bad}: {:?}", page(&bad));
        }
        let short = Bytes::from_static(b"<ListBucketResult><IsTruncated>false</IsTruncated>");
        assert!(checked(short).unwrap_err().contains("in the middle"));
    }

    #[test]
    fn markers_of_folders_are_left_out_and_nothing_else_is_touched() {
        let line = |key: &str| format!("<Contents>\n<Size>0</Size><Key>{key}</Key></Contents>");
        let rest = |lines: &str| {
            format!("<IsTruncated>false</IsTruncated><KeyCount>4</KeyCount>{lines}<Name>b</Name>")
        };
        let all = ["dir", "dir.txt", "dir/", "a &amp; &#x65E5;<![CDATA[&]]> "].map(line).concat();
        let (keys, kept) = page(&rest(&all)).unwrap();
        assert_eq!(keys, ["dir", "dir.txt", "a & 日& "]);
        let without = rest(&all.replace(&line("dir/"), ""));
        assert!(kept.ends_with(&format!("{without}</ListBucketResult>")), "{kept}");
    }

    #[test]
    fn what_a_document_is_shows_in_its_first_element() {
        let root = |text: &str| root(text.as_bytes());
        assert_eq!(root("<?xml version='1.0'?><!-- x --><s3:Error/>").as_deref(), Some("Error"));
        assert_eq!(root("<!DOCTYPE html><title>a & b").as_deref(), Some("html"));
        assert_eq!(root("{\"error\":1}"), None);
        assert_eq!(root(""), None);
    }
}
