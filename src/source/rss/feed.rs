//! A feed as it stands in its XML: RSS 2.0 (the boards' dialect included) and Atom, by one strict reader.
//!
//! Refuses whatever is not well-formed to its very end, and every document that declares entities. Pure: text in,
//! feed out. What an item means (ids, dates) is for `item.rs`.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::entities;
use crate::error::{Error, Kind, Result};
use crate::shape::article::Head;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Feed {
    pub head: Head,
    pub items: Vec<Item>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Item {
    pub title: String,
    pub link: String,
    pub guid: String,
    pub date: String,
    pub department: String,
    pub html: String,
    /// By the number in `filename3`, `url3`, `preview3`.
    pub numbered: BTreeMap<u32, Numbered>,
    pub enclosures: Vec<Enclosure>,
    /// Dates and texts of lower standing, used when the better one is missing.
    date_second: String,
    html_second: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    pub name: String,
    pub url: String,
    pub preview: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Enclosure {
    pub url: String,
    pub name: String,
}

/// More than any person attaches; a wild number is not an attachment.
const ATTACHMENT_DIGITS_MAX: usize = 4;

/// Read a whole document. An error means: nothing of it counts.
pub fn read(xml: &str) -> Result<Feed> {
    if let Some(at) = xml.find(|c| !is_character(c)) {
        return Err(invalid(xml, at, "a control character"));
    }
    let mut reader = Reader::from_str(xml);
    reader.config_mut().check_comments = true;
    let mut reading = Reading::default();
    loop {
        let event = reader.read_event();
        let at = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
        let event = match event {
            Ok(event) => event,
            Err(_) if reading.dialect.is_none() => return Err(no_feed()),
            Err(error) => return Err(invalid(xml, at, &error.to_string())),
        };
        let step = match event {
            Event::Eof => break,
            Event::Start(tag) => reading.start(&tag),
            Event::Empty(tag) => reading.start(&tag).map(|()| reading.end(tag.local_name().as_ref())),
            Event::End(tag) => {
                reading.end(tag.local_name().as_ref());
                Ok(())
            }
            Event::Text(text) if text.windows(3).any(|part| part == b"]]>") => Err(ill("]]> in text")),
            Event::Text(text) => {
                text.xml10_content().map_err(text_fault).and_then(|text| reading.text(&text))
            }
            Event::CData(text) => text.xml10_content().map_err(text_fault).map(|text| reading.cdata(&text)),
            Event::GeneralRef(name) => resolve(&name).and_then(|c| reading.reference(c)),
            Event::DocType(text) => refuse_entities(&text),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => Ok(()),
        };
        step.map_err(|error| if reading.dialect.is_none() { no_feed() } else { at_line(error, xml, at) })?;
    }
    reading.finish(xml)
}

fn no_feed() -> Error {
    Error::new(Kind::Invalid, "missing rss or channel").remedy_is(
        "The address answered with something that is not a feed: open it in a browser, it may be a maintenance page.",
    )
}

fn invalid(xml: &str, at: usize, what: &str) -> Error {
    at_line(ill(what), xml, at)
}

fn ill(what: &str) -> Error {
    Error::new(Kind::Invalid, what)
}

/// What XML takes for one.
fn is_character(c: char) -> bool {
    c >= ' ' && !matches!(c, '\u{FFFE}' | '\u{FFFF}') || matches!(c, '\t' | '\n' | '\r')
}

fn at_line(error: Error, xml: &str, at: usize) -> Error {
    let line = 1 + xml.bytes().take(at).filter(|byte| *byte == b'\n').count();
    error.while_(format!("the XML is not well-formed, line {line}"))
}

fn text_fault(error: quick_xml::encoding::EncodingError) -> Error {
    Error::new(Kind::Invalid, "text in the wrong encoding").caused_by(error)
}

fn refuse_entities(doctype: &[u8]) -> Result<()> {
    if doctype.contains(&b'[') {
        return Err(Error::new(
            Kind::Invalid,
            "the document declares entities of its own, which are never expanded",
        ));
    }
    Ok(())
}

/// XML's five and character references; nothing else exists without a declaration.
fn resolve(name: &BytesRef<'_>) -> Result<char> {
    if let Some(c) = name.resolve_char_ref().map_err(|error| ill(&error.to_string()))? {
        return if is_character(c) { Ok(c) } else { Err(ill("a reference to a control character")) };
    }
    match &**name {
        b"lt" => Ok('<'),
        b"gt" => Ok('>'),
        b"amp" => Ok('&'),
        b"quot" => Ok('"'),
        b"apos" => Ok('\''),
        other => {
            let message = format!("the entity &{}; is not declared", String::from_utf8_lossy(other));
            Err(Error::new(Kind::Invalid, message))
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Rss,
    Atom,
}

/// How the text of an Atom element is to be taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Text,
    Html,
    Xhtml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Title,
    Link,
    Description,
    /// `content:encoded`, Atom's `content`: stands above the description.
    Content,
    Date,
    DateSecond,
    Department,
    Guid,
    FileName(u32),
    FileUrl(u32),
    FilePreview(u32),
}

struct Open {
    field: Field,
    depth: usize,
    form: Form,
    text: String,
    from_cdata: bool,
}

#[derive(Default)]
struct Reading {
    dialect: Option<Dialect>,
    /// What names in the feed's own namespace start with (`atom:` or nothing).
    prefix: String,
    depth: usize,
    in_channel: bool,
    saw_channel: bool,
    feed: Feed,
    item: Option<Item>,
    open: Option<Open>,
}

impl Reading {
    fn start(&mut self, tag: &BytesStart<'_>) -> Result<()> {
        self.depth += 1;
        for attr in tag.attributes() {
            if attr.map_err(|error| ill(&error.to_string()))?.value.contains(&b'<') {
                return Err(ill("< in an attribute"));
            }
        }
        let qname = tag.name();
        let name = std::str::from_utf8(qname.as_ref())
            .map_err(|error| Error::new(Kind::Invalid, "a name that is not text").caused_by(error))?;
        if self.depth == 1 {
            return self.root(name);
        }
        if let Some(open) = &mut self.open {
            if open.form == Form::Xhtml {
                open.text.extend(["<", name_onward(tag)?, ">"]);
            }
            return Ok(());
        }
        if self.dialect == Some(Dialect::Rss) && self.depth == 2 {
            self.in_channel = name == "channel";
            if self.in_channel && std::mem::replace(&mut self.saw_channel, true) {
                return Err(ill("a second channel"));
            }
            return Ok(());
        }
        let Some(name) = name.strip_prefix(&*self.prefix) else { return Ok(()) };
        let base = if self.dialect == Some(Dialect::Rss) { 3 } else { 2 };
        if !self.in_channel {
            return Ok(());
        }
        if self.depth == base
            && matches!((self.dialect, name), (Some(Dialect::Rss), "item") | (Some(Dialect::Atom), "entry"))
        {
            self.item = Some(Item::default());
        } else if self.depth == base + usize::from(self.item.is_some()) {
            self.field(name, tag)?;
        }
        Ok(())
    }

    fn root(&mut self, name: &str) -> Result<()> {
        if self.dialect.is_some() {
            return Err(ill("a second root element"));
        }
        let (prefix, local) = name.rfind(':').map_or(("", name), |at| name.split_at(at + 1));
        self.dialect = match (prefix, local) {
            ("", "rss") => Some(Dialect::Rss),
            (_, "feed") => Some(Dialect::Atom),
            _ => return Err(no_feed()),
        };
        prefix.clone_into(&mut self.prefix);
        self.in_channel = self.dialect == Some(Dialect::Atom);
        self.saw_channel = self.in_channel;
        Ok(())
    }

    fn field(&mut self, name: &str, tag: &BytesStart<'_>) -> Result<()> {
        let is_atom = self.dialect == Some(Dialect::Atom);
        match (name, &mut self.item) {
            ("enclosure", Some(item)) if !is_atom => {
                item.enclosures.extend(attr(tag, "url")?.map(|url| Enclosure { url, name: String::new() }));
                return Ok(());
            }
            ("link", _) if is_atom => return self.atom_link(tag),
            _ => {}
        }
        let field = if is_atom { atom_field(name) } else { rss_field(name) };
        if let Some(field) = field {
            let form = match attr(tag, "type")?.as_deref() {
                Some("html" | "text/html") if is_atom => Form::Html,
                Some("xhtml") if is_atom => Form::Xhtml,
                _ => Form::Text,
            };
            self.open = Some(Open { field, depth: self.depth, form, text: String::new(), from_cdata: false });
        }
        Ok(())
    }

    fn atom_link(&mut self, tag: &BytesStart<'_>) -> Result<()> {
        let Some(url) = attr(tag, "href")? else { return Ok(()) };
        match (attr(tag, "rel")?.as_deref(), &mut self.item) {
            (Some("enclosure"), Some(item)) => {
                let name = attr(tag, "title")?.unwrap_or_default();
                item.enclosures.push(Enclosure { url, name });
            }
            (None | Some("alternate"), Some(item)) => fill(&mut item.link, url),
            (None | Some("alternate"), None) => fill(&mut self.feed.head.link, url),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, name: &[u8]) {
        let depth = self.depth;
        self.depth -= 1;
        match &mut self.open {
            Some(open) if open.depth == depth => {
                if let Some(open) = self.open.take() {
                    self.close(open);
                }
                return;
            }
            Some(open) => {
                if open.form == Form::Xhtml && !VOID.contains(&name) {
                    open.text.extend(["</", &String::from_utf8_lossy(name), ">"]);
                }
                return;
            }
            None => {}
        }
        let rss = self.dialect == Some(Dialect::Rss);
        if depth == if rss { 3 } else { 2 }
            && let Some(item) = self.item.take()
        {
            self.feed.items.push(item.settled());
        }
        if rss && depth == 2 {
            self.in_channel = false;
        }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        if self.depth == 0 {
            let blank = text.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']).is_empty();
            return if blank { Ok(()) } else { Err(ill("text outside the document")) };
        }
        let depth = self.depth;
        if let Some(open) = &mut self.open {
            match open.form {
                Form::Xhtml => open.text.push_str(&entities::to_html(text)),
                Form::Text | Form::Html if open.depth == depth => open.text.push_str(text),
                Form::Text | Form::Html => {}
            }
        }
        Ok(())
    }

    fn reference(&mut self, c: char) -> Result<()> {
        if self.depth == 0 {
            return Err(ill("text outside the document"));
        }
        self.text(c.encode_utf8(&mut [0; 4]))
    }

    fn cdata(&mut self, text: &str) {
        let depth = self.depth;
        if let Some(open) = self.open.as_mut().filter(|open| open.depth == depth) {
            open.from_cdata = true;
            match open.field {
                Field::Title | Field::Link | Field::Department => open.text.push_str(&entities::decode(text)),
                _ => open.text.push_str(text),
            }
        }
    }

    fn close(&mut self, open: Open) {
        let mut text = open.text.trim().to_owned();
        if open.field == Field::Description && open.from_cdata {
            text = entities::description(text);
        }
        let is_atom = self.dialect == Some(Dialect::Atom);
        match (open.field, open.form) {
            (Field::Description | Field::Content, Form::Text) if is_atom => text = entities::to_html(&text),
            (Field::Title, Form::Html | Form::Xhtml) => {
                text = entities::decode(&without_tags(&text)).into_owned()
            }
            _ => {}
        }
        match &mut self.item {
            Some(item) => item.set(open.field, text),
            None => match open.field {
                Field::Title => fill(&mut self.feed.head.title, text),
                Field::Link => fill(&mut self.feed.head.link, text),
                Field::Description => fill(&mut self.feed.head.description, text),
                _ => {}
            },
        }
    }

    fn finish(self, xml: &str) -> Result<Feed> {
        if self.depth > 0 {
            return Err(invalid(xml, xml.len(), "the document ends in the middle"));
        }
        if self.dialect.is_none() || !self.saw_channel {
            return Err(no_feed());
        }
        Ok(self.feed)
    }
}

impl Item {
    fn set(&mut self, field: Field, text: String) {
        let slot = match field {
            Field::Title => &mut self.title,
            Field::Link => &mut self.link,
            Field::Description => &mut self.html_second,
            Field::Content => &mut self.html,
            Field::Date => &mut self.date,
            Field::DateSecond => &mut self.date_second,
            Field::Department => &mut self.department,
            Field::Guid => &mut self.guid,
            Field::FileName(n) => &mut self.numbered.entry(n).or_default().name,
            Field::FileUrl(n) => &mut self.numbered.entry(n).or_default().url,
            Field::FilePreview(n) => &mut self.numbered.entry(n).or_default().preview,
        };
        fill(slot, text);
    }

    fn settled(mut self) -> Self {
        let (html, date) = (std::mem::take(&mut self.html_second), std::mem::take(&mut self.date_second));
        fill(&mut self.html, html);
        fill(&mut self.date, date);
        self
    }
}

/// The first value that says something stands.
fn fill(slot: &mut String, text: String) {
    if slot.is_empty() {
        *slot = text;
    }
}

fn rss_field(name: &str) -> Option<Field> {
    Some(match name {
        "title" => Field::Title,
        "link" => Field::Link,
        "description" => Field::Description,
        "content:encoded" => Field::Content,
        "pubDate" => Field::Date,
        "dc:date" => Field::DateSecond,
        "department" => Field::Department,
        "guid" => Field::Guid,
        _ => {
            let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
            let (part, number) = name.split_at(name.len() - digits);
            let number = number.parse().ok().filter(|_| digits <= ATTACHMENT_DIGITS_MAX)?;
            match part {
                "filename" => Field::FileName(number),
                "url" => Field::FileUrl(number),
                "preview" => Field::FilePreview(number),
                _ => return None,
            }
        }
    })
}

fn atom_field(name: &str) -> Option<Field> {
    Some(match name {
        "title" => Field::Title,
        "subtitle" | "summary" => Field::Description,
        "content" => Field::Content,
        "published" => Field::Date,
        "updated" => Field::DateSecond,
        "id" => Field::Guid,
        _ => return None,
    })
}

fn attr(tag: &BytesStart<'_>, name: &str) -> Result<Option<String>> {
    let found = tag.try_get_attribute(name).map_err(|error| ill(&error.to_string()))?;
    let Some(found) = found else { return Ok(None) };
    let value = found
        .normalized_value(quick_xml::XmlVersion::Implicit1_0)
        .map_err(|error| ill(&error.to_string()))?;
    Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty()))
}

/// HTML elements that have no end tag: XML writes one all the same.
const VOID: [&[u8]; 5] = [b"br", b"hr", b"img", b"wbr", b"input"];

/// A start tag without its namespace prefix, attributes as they stand.
fn name_onward<'a>(tag: &'a BytesStart<'_>) -> Result<&'a str> {
    let text =
        std::str::from_utf8(tag).map_err(|error| Error::new(Kind::Invalid, "not text").caused_by(error))?;
    let prefix = tag.name().prefix().map_or(0, |prefix| prefix.as_ref().len() + 1);
    Ok(&text[prefix..])
}

fn without_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        out.push_str(before);
        rest = after.split_once('>').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}
