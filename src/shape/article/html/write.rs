//! The tree as Markdown, by Turndown's conventions: what each element becomes, and how pieces are joined.

use std::borrow::Cow;

use html5ever::local_name;

use super::dom::{Dom, Id, NONE};
use super::space::is_space;
use super::tag::Tag;
use super::{Links, escape, table};
use crate::error::{Error, Kind, Result};

/// Indentation repeats on every line of every level; an article that grows beyond this is not written.
const OUTPUT_MAX: usize = 32 << 20;
/// Twice what the parser lets through: moved nodes may lie deeper than they were opened.
const DEPTH_MAX: usize = 512;

pub struct Writer<'a> {
    pub dom: &'a Dom,
    pub links: &'a Links,
    depth: usize,
}

impl<'a> Writer<'a> {
    pub fn new(dom: &'a Dom, links: &'a Links) -> Self {
        Writer { dom, links, depth: 0 }
    }

    pub fn children(&mut self, id: Id, in_code: bool) -> Result<String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::new(Kind::Invalid, "the HTML is nested too deeply"));
        }
        let mut out = String::new();
        for child in self.dom.children(id) {
            if let Some(text) = self.dom.text(child) {
                let piece = if in_code { Cow::Borrowed(&**text) } else { escape::text(text) };
                join(&mut out, &piece);
            } else if let Some(tag) = self.dom.tag(child) {
                let piece = self.element(child, tag, in_code)?;
                join(&mut out, &piece);
            }
            if out.len() > OUTPUT_MAX {
                return Err(Error::new(Kind::Invalid, "the article is too large as Markdown"));
            }
        }
        self.depth -= 1;
        Ok(out)
    }

    fn element(&mut self, id: Id, tag: Tag, in_code: bool) -> Result<String> {
        if tag.is_block() {
            if self.is_blank(id, tag) {
                return Ok("\n\n".to_owned());
            }
            return self.block(id, tag, in_code);
        }
        let flanks = Flanks::of(self.dom, id);
        let mut out = flanks.leading;
        if !self.is_blank(id, tag) {
            let content = self.children(id, in_code || tag == Tag::Code)?;
            let trims = !out.is_empty() || !flanks.trailing.is_empty();
            let content = if trims { content.trim_matches(is_space) } else { &content };
            self.inline(id, tag, content, &mut out);
        }
        out.push_str(&flanks.trailing);
        Ok(out)
    }

    fn block(&mut self, id: Id, tag: Tag, in_code: bool) -> Result<String> {
        if tag == Tag::Pre && self.dom.tag(self.dom.node(id).first) == Some(Tag::Code) {
            return Ok(self.fenced(self.dom.node(id).first));
        }
        if tag == Tag::Table
            && let Some(rows) = table::with_header(self.dom, id)
        {
            return table::write(self, &rows);
        }
        let content = self.children(id, in_code)?;
        Ok(match tag {
            Tag::Hr => "\n\n* * *\n\n".to_owned(),
            Tag::Heading(level) => ["\n\n", &"######"[..usize::from(level)], " ", &content, "\n\n"].concat(),
            Tag::Blockquote => {
                let lines = content.trim_matches('\n').replace('\n', "\n> ");
                ["\n\n> ", &lines, "\n\n"].concat()
            }
            Tag::Ul | Tag::Ol if self.ends_its_item(id) => ["\n", &content].concat(),
            Tag::Li => self.list_item(id, &content),
            _ => ["\n\n", &content, "\n\n"].concat(),
        })
    }

    fn inline(&self, id: Id, tag: Tag, content: &str, out: &mut String) {
        let marked = |out: &mut String, mark: &str| {
            if !content.trim_matches(is_space).is_empty() {
                out.extend([mark, content, mark]);
            }
        };
        match tag {
            Tag::Br => out.push_str("  \n"),
            Tag::Em => marked(out, "*"),
            Tag::Strong => marked(out, "**"),
            Tag::Code if !self.is_code_block(id) => code(content, out),
            Tag::A => match self.dom.attr(id, &local_name!("href")) {
                None | Some("") => out.push_str(content),
                Some(href) => {
                    out.extend(["[", content, "]("]);
                    self.target(id, href, out);
                }
            },
            Tag::Img => {
                let src = self.dom.attr(id, &local_name!("src")).unwrap_or_default();
                if !src.is_empty() {
                    let alt = tidy_attr(self.dom.attr(id, &local_name!("alt")).unwrap_or_default());
                    out.extend(["![", &escape::text(&alt), "]("]);
                    self.target(id, src, out);
                }
            }
            _ => out.push_str(content),
        }
    }

    /// Link target, title and the closing parenthesis.
    fn target(&self, id: Id, url: &str, out: &mut String) {
        let url = self.links.resolve(url);
        let spaced = url.contains(' ');
        if spaced {
            out.push('<');
        }
        for c in url.chars() {
            if matches!(c, '<' | '>' | '(' | ')') {
                out.push('\\');
            }
            out.push(c);
        }
        if spaced {
            out.push('>');
        }
        let title = tidy_attr(self.dom.attr(id, &local_name!("title")).unwrap_or_default());
        if !title.is_empty() {
            out.extend([" \"", &title.replace('"', "\\\""), "\""]);
        }
        out.push(')');
    }

    fn list_item(&self, id: Id, content: &str) -> String {
        let parent = self.dom.node(id).parent;
        let marker = if self.dom.tag(parent) == Some(Tag::Ol) {
            let index = self.dom.children(parent).take_while(|child| *child != id);
            let index = index.filter(|child| self.dom.tag(*child).is_some()).count();
            let start = self.dom.attr(parent, &local_name!("start")).unwrap_or_default();
            let start = start.trim().parse::<i64>().unwrap_or(1);
            format!("{}.  ", start.saturating_add(i64::try_from(index).unwrap_or(i64::MAX)))
        } else {
            "*   ".to_owned()
        };
        let indent = format!("\n{:1$}", "", marker.len());
        let mut out = marker;
        out.push_str(&content.trim_matches('\n').replace('\n', &indent));
        if content.ends_with('\n') {
            out.push_str(&indent);
        }
        if self.dom.node(id).next != NONE {
            out.push('\n');
        }
        out
    }

    fn fenced(&self, code: Id) -> String {
        let class = self.dom.attr(code, &local_name!("class")).unwrap_or_default();
        let language = class.split_once("language-").map_or("", |(_, rest)| rest);
        let language = language.split(is_space).next().unwrap_or_default();
        let mut text = String::new();
        self.text_below(code, &mut text);
        let longest = text.lines().map(|line| line.bytes().take_while(|b| *b == b'`').count()).max();
        let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        ["\n\n", &fence, language, "\n", text, "\n", &fence, "\n\n"].concat()
    }

    fn text_below(&self, id: Id, out: &mut String) {
        for node in Forward::of(self.dom, id) {
            if let Some(text) = self.dom.text(node) {
                out.push_str(text);
            }
        }
    }

    /// A list that is the last element of a list item hangs on to it without an empty line.
    fn ends_its_item(&self, id: Id) -> bool {
        let parent = self.dom.node(id).parent;
        let mut last = self.dom.node(parent).last;
        while last != NONE && self.dom.tag(last).is_none() {
            last = self.dom.node(last).prev;
        }
        self.dom.tag(parent) == Some(Tag::Li) && last == id
    }

    fn is_code_block(&self, id: Id) -> bool {
        let node = self.dom.node(id);
        self.dom.tag(node.parent) == Some(Tag::Pre) && node.prev == NONE && node.next == NONE
    }

    fn is_blank(&self, id: Id, tag: Tag) -> bool {
        let says_nothing = |node: Id| match (self.dom.tag(node), self.dom.text(node)) {
            (Some(tag), _) => !tag.is_void() && !tag.counts_when_blank(),
            (None, Some(text)) => text.chars().all(is_space),
            (None, None) => true,
        };
        !tag.is_void() && !tag.counts_when_blank() && Forward::of(self.dom, id).all(says_nothing)
    }
}

/// Joins two pieces with as many line ends as the greater of both asks for, two at most.
fn join(out: &mut String, piece: &str) {
    let tail = out.bytes().rev().take_while(|byte| *byte == b'\n').count();
    let head = piece.bytes().take_while(|byte| *byte == b'\n').count();
    out.truncate(out.len() - tail);
    out.push_str(&"\n\n"[..tail.max(head).min(2)]);
    out.push_str(&piece[head..]);
}

fn code(content: &str, out: &mut String) {
    if content.is_empty() {
        return;
    }
    let content = content.replace("\r\n", " ").replace(['\n', '\r'], " ");
    let inner = content.strip_prefix(' ').and_then(|rest| rest.strip_suffix(' '));
    let padded = inner.is_some_and(|inner| inner.contains(|c| c != ' '));
    let extra = if padded || content.starts_with('`') || content.ends_with('`') { " " } else { "" };
    let runs: Vec<usize> = content.split(|c| c != '`').map(str::len).collect();
    let size = (1..=runs.len() + 1).find(|size| !runs.contains(size)).unwrap_or(1);
    let mark = "`".repeat(size);
    out.extend([&mark, extra, &content, extra, &mark]);
}

/// An attribute's blank lines would end the paragraph it is written in.
fn tidy_attr(value: &str) -> Cow<'_, str> {
    if !value.contains('\n') {
        return Cow::Borrowed(value);
    }
    let mut lines = value.split('\n');
    let mut out = lines.next().unwrap_or_default().to_owned();
    let rest: Vec<&str> = lines.map(|line| line.trim_start_matches(is_space)).collect();
    for line in rest.iter().filter(|line| !line.is_empty()) {
        out.extend(["\n", line]);
    }
    if rest.last().is_some_and(|line| line.is_empty()) {
        out.push('\n');
    }
    Cow::Owned(out)
}

/// Everything below a node, in document order.
struct Forward<'a> {
    dom: &'a Dom,
    top: Id,
    next: Id,
}

impl<'a> Forward<'a> {
    fn of(dom: &'a Dom, top: Id) -> Self {
        Forward { dom, top, next: dom.node(top).first }
    }
}

impl Iterator for Forward<'_> {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        let id = self.next;
        if id == NONE {
            return None;
        }
        let node = self.dom.node(id);
        self.next = node.first;
        let mut up = id;
        while self.next == NONE && up != self.top {
            self.next = self.dom.node(up).next;
            up = self.dom.node(up).parent;
        }
        Some(id)
    }
}

/// White space at the edges of an inline element moves outside its marks, unless a space is there already.
struct Flanks {
    leading: String,
    trailing: String,
}

fn is_ascii_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

impl Flanks {
    fn of(dom: &Dom, id: Id) -> Self {
        let mut leading = String::new();
        let mut all_space = true;
        for text in Forward::of(dom, id).filter_map(|node| dom.text(node)) {
            let rest = text.trim_start_matches(is_space);
            leading.push_str(&text[..text.len() - rest.len()]);
            if !rest.is_empty() {
                all_space = false;
                break;
            }
        }
        let mut trailing = if all_space { String::new() } else { trailing_space(dom, id) };
        if leading.starts_with(is_ascii_space) && beside_space(dom, dom.node(id).prev, Side::Left) {
            leading = leading.trim_start_matches(is_ascii_space).to_owned();
        }
        if trailing.ends_with(is_ascii_space) && beside_space(dom, dom.node(id).next, Side::Right) {
            trailing.truncate(trailing.trim_end_matches(is_ascii_space).len());
        }
        Flanks { leading, trailing }
    }
}

fn trailing_space(dom: &Dom, id: Id) -> String {
    let mut trailing = String::new();
    for text in Backward::of(dom, id).filter_map(|node| dom.text(node)) {
        let rest = text.trim_end_matches(is_space);
        trailing.insert_str(0, &text[rest.len()..]);
        if !rest.is_empty() {
            break;
        }
    }
    trailing
}

#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// Does the neighbour bring a space on the side that faces us?
fn beside_space(dom: &Dom, sibling: Id, side: Side) -> bool {
    if sibling == NONE {
        return false;
    }
    let facing = |text: &str| match side {
        Side::Left => text.ends_with(' '),
        Side::Right => text.starts_with(' '),
    };
    if let Some(text) = dom.text(sibling) {
        return facing(text);
    }
    if dom.tag(sibling).is_none_or(Tag::is_block) {
        return false;
    }
    let nonempty = |node: Id| dom.text(node).filter(|text| !text.is_empty());
    let nearest = match side {
        Side::Left => Backward::of(dom, sibling).find_map(nonempty),
        Side::Right => Forward::of(dom, sibling).find_map(nonempty),
    };
    nearest.is_some_and(|text| facing(text))
}

/// Everything below a node, from its end backwards (children before their parents' earlier siblings).
struct Backward<'a> {
    dom: &'a Dom,
    top: Id,
    next: Id,
}

impl<'a> Backward<'a> {
    fn of(dom: &'a Dom, top: Id) -> Self {
        Backward { dom, top, next: dom.node(top).last }
    }
}

impl Iterator for Backward<'_> {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        let id = self.next;
        if id == NONE {
            return None;
        }
        self.next = self.dom.node(id).last;
        let mut up = id;
        while self.next == NONE && up != self.top {
            self.next = self.dom.node(up).prev;
            up = self.dom.node(up).parent;
        }
        Some(id)
    }
}
