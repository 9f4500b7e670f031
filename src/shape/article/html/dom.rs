//! HTML text to a tree in one vector. The parser is html5ever, so broken markup is repaired as browsers do it.
//!
//! Refuses what would cost more than it is worth: nesting is cut off at `DEPTH_MAX`, and markup that unfolds into
//! far more nodes than it has bytes is an error (unclosed formatting tags multiply in every new paragraph).

use std::borrow::Cow;
use std::cell::{Cell, Ref, RefCell};

use html5ever::TokenizerResult;
use html5ever::interface::{ElemName, ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use html5ever::{Attribute, LocalName, Namespace, QualName, local_name, ns};

use super::tag::{ROOT, Tag};
use crate::error::{Error, Kind, Result};

/// Browsers stop at 512; boards nest a few dozen. Deeper start tags are ignored, their text stays.
const DEPTH_MAX: u32 = 256;
/// Every tag and text takes a byte or more; what goes beyond this has multiplied.
const NODES_SPARE: usize = 4_096;

pub type Id = u32;
/// No node.
pub const NONE: Id = Id::MAX;

pub enum Data {
    Element {
        tag: Tag,
        name: QualName,
        attrs: Vec<Attribute>,
    },
    Text(StrTendril),
    /// The document, comments, doctypes: nothing to write.
    Other,
}

pub struct Node {
    pub parent: Id,
    pub prev: Id,
    pub next: Id,
    pub first: Id,
    pub last: Id,
    depth: u32,
    pub data: Data,
}

pub struct Dom {
    pub nodes: Vec<Node>,
    pub root: Id,
}

impl Dom {
    pub fn parse(html: &str) -> Result<Dom> {
        let builder = TreeBuilder::new(Builder::new(html.len() + NODES_SPARE), TreeBuilderOpts::default());
        let tokenizer =
            Tokenizer::new(Bounded { builder, muted: RefCell::new(None) }, TokenizerOpts::default());
        let input = BufferQueue::default();
        for part in ["<", ROOT, ">", html, "</", ROOT, ">"] {
            input.push_back(StrTendril::from_slice(part));
        }
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
        tokenizer.end();
        let sink = tokenizer.sink.builder.sink;
        if sink.overflown() {
            let message = "the HTML unfolds into far more elements than it has tags";
            return Err(Error::new(Kind::Invalid, message));
        }
        let root = sink.root.get();
        Ok(Dom { nodes: sink.nodes.into_inner(), root })
    }

    pub fn tag(&self, id: Id) -> Option<Tag> {
        match self.nodes.get(id as usize)?.data {
            Data::Element { tag, .. } => Some(tag),
            Data::Text(_) | Data::Other => None,
        }
    }

    pub fn text(&self, id: Id) -> Option<&StrTendril> {
        match &self.nodes.get(id as usize)?.data {
            Data::Text(text) => Some(text),
            Data::Element { .. } | Data::Other => None,
        }
    }

    pub fn attr(&self, id: Id, name: &LocalName) -> Option<&str> {
        match &self.nodes.get(id as usize)?.data {
            Data::Element { attrs, .. } => {
                attrs.iter().find(|attr| attr.name.local == *name).map(|attr| &*attr.value)
            }
            Data::Text(_) | Data::Other => None,
        }
    }

    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub fn children(&self, id: Id) -> Children<'_> {
        Children { dom: self, next: self.node(id).first }
    }

    pub fn unlink(&mut self, id: Id) {
        unlink(&mut self.nodes, id);
    }
}

pub struct Children<'a> {
    dom: &'a Dom,
    next: Id,
}

impl Iterator for Children<'_> {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        let id = self.next;
        if id == NONE {
            return None;
        }
        self.next = self.dom.node(id).next;
        Some(id)
    }
}

fn unlink(nodes: &mut [Node], id: Id) {
    let Node { parent, prev, next, .. } = nodes[id as usize];
    if prev != NONE {
        nodes[prev as usize].next = next;
    } else if parent != NONE {
        nodes[parent as usize].first = next;
    }
    if next != NONE {
        nodes[next as usize].prev = prev;
    } else if parent != NONE {
        nodes[parent as usize].last = prev;
    }
    let node = &mut nodes[id as usize];
    (node.parent, node.prev, node.next) = (NONE, NONE, NONE);
}

/// Put `id` into `parent` before `next` (`NONE` = at the end).
fn link(nodes: &mut [Node], parent: Id, next: Id, id: Id) {
    let prev = if next == NONE { nodes[parent as usize].last } else { nodes[next as usize].prev };
    let depth = nodes[parent as usize].depth + 1;
    let node = &mut nodes[id as usize];
    (node.parent, node.prev, node.next, node.depth) = (parent, prev, next, depth);
    if prev == NONE {
        nodes[parent as usize].first = id;
    } else {
        nodes[prev as usize].next = id;
    }
    if next == NONE {
        nodes[parent as usize].last = id;
    } else {
        nodes[next as usize].prev = id;
    }
}

/// An element's name, borrowed for as long as the tree builder looks at it.
#[derive(Debug)]
struct Name<'a> {
    held: Option<Ref<'a, QualName>>,
    nameless: &'a QualName,
}

impl ElemName for Name<'_> {
    fn ns(&self) -> &Namespace {
        &self.held.as_deref().unwrap_or(self.nameless).ns
    }

    fn local_name(&self) -> &LocalName {
        &self.held.as_deref().unwrap_or(self.nameless).local
    }
}

struct Builder {
    nodes: RefCell<Vec<Node>>,
    nodes_max: usize,
    root: Cell<Id>,
    nameless: QualName,
    /// Depth of the element that is open now, near enough to bound it.
    depth: Cell<u32>,
}

impl Builder {
    fn new(nodes_max: usize) -> Self {
        let builder = Builder {
            nodes: RefCell::new(Vec::with_capacity(64)),
            nodes_max,
            root: Cell::new(0),
            nameless: QualName::new(None, ns!(), local_name!("")),
            depth: Cell::new(0),
        };
        builder.push(Data::Other);
        builder
    }

    fn push(&self, data: Data) -> Id {
        let mut nodes = self.nodes.borrow_mut();
        let id = Id::try_from(nodes.len()).unwrap_or(NONE - 1);
        let (parent, prev, next, first, last) = (NONE, NONE, NONE, NONE, NONE);
        nodes.push(Node { parent, prev, next, first, last, depth: 0, data });
        id
    }

    fn overflown(&self) -> bool {
        self.nodes.borrow().len() > self.nodes_max
    }

    fn insert(&self, parent: Id, next: Id, child: NodeOrText<Id>) {
        let id = match child {
            NodeOrText::AppendNode(id) => {
                let mut nodes = self.nodes.borrow_mut();
                unlink(&mut nodes, id);
                if !matches!(nodes[id as usize].data, Data::Element { tag: Tag::Dropped, .. }) {
                    link(&mut nodes, parent, next, id);
                }
                self.depth.set(nodes[parent as usize].depth + 1);
                return;
            }
            NodeOrText::AppendText(text) => {
                let mut nodes = self.nodes.borrow_mut();
                let before =
                    if next == NONE { nodes[parent as usize].last } else { nodes[next as usize].prev };
                if let Some(Node { data: Data::Text(held), .. }) = nodes.get_mut(before as usize) {
                    held.push_tendril(&text);
                    return;
                }
                drop(nodes);
                self.push(Data::Text(text))
            }
        };
        link(&mut self.nodes.borrow_mut(), parent, next, id);
    }
}

impl TreeSink for Builder {
    type Handle = Id;
    type Output = Self;
    type ElemName<'a> = Name<'a>;

    fn finish(self) -> Self {
        self
    }

    fn parse_error(&self, _message: Cow<'static, str>) {}

    fn get_document(&self) -> Id {
        0
    }

    fn elem_name<'a>(&'a self, target: &'a Id) -> Name<'a> {
        let held = Ref::filter_map(self.nodes.borrow(), |nodes| match &nodes[*target as usize].data {
            Data::Element { name, .. } => Some(name),
            Data::Text(_) | Data::Other => None,
        });
        Name { held: held.ok(), nameless: &self.nameless }
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, _flags: ElementFlags) -> Id {
        let tag = Tag::of(&name.local);
        let id = self.push(Data::Element { tag, name, attrs });
        if tag == Tag::Root && self.root.get() == 0 {
            self.root.set(id);
        }
        id
    }

    fn create_comment(&self, _text: StrTendril) -> Id {
        self.push(Data::Other)
    }

    fn create_pi(&self, _target: StrTendril, _data: StrTendril) -> Id {
        self.push(Data::Other)
    }

    fn append(&self, parent: &Id, child: NodeOrText<Id>) {
        self.insert(*parent, NONE, child);
    }

    fn append_based_on_parent_node(&self, element: &Id, previous: &Id, child: NodeOrText<Id>) {
        let has_parent = self.nodes.borrow()[*element as usize].parent != NONE;
        if has_parent { self.append_before_sibling(element, child) } else { self.append(previous, child) }
    }

    fn append_doctype_to_document(&self, _name: StrTendril, _public: StrTendril, _system: StrTendril) {}

    fn pop(&self, node: &Id) {
        self.depth.set(self.nodes.borrow()[*node as usize].depth.saturating_sub(1));
    }

    /// A template's content is shown like any other element's.
    fn get_template_contents(&self, target: &Id) -> Id {
        *target
    }

    fn same_node(&self, x: &Id, y: &Id) -> bool {
        x == y
    }

    fn set_quirks_mode(&self, _mode: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &Id, new_node: NodeOrText<Id>) {
        let parent = self.nodes.borrow()[*sibling as usize].parent;
        if parent == NONE {
            return;
        }
        if let NodeOrText::AppendNode(id) = &new_node
            && id == sibling
        {
            return;
        }
        self.insert(parent, *sibling, new_node);
    }

    fn add_attrs_if_missing(&self, _target: &Id, _attrs: Vec<Attribute>) {}

    fn remove_from_parent(&self, target: &Id) {
        unlink(&mut self.nodes.borrow_mut(), *target);
    }

    fn reparent_children(&self, node: &Id, new_parent: &Id) {
        let mut nodes = self.nodes.borrow_mut();
        let mut child = nodes[*node as usize].first;
        while child != NONE {
            let next = nodes[child as usize].next;
            unlink(&mut nodes, child);
            link(&mut nodes, *new_parent, NONE, child);
            child = next;
        }
    }
}

/// Between tokenizer and tree builder: start tags below `DEPTH_MAX` go no further.
struct Bounded {
    builder: TreeBuilder<Id, Builder>,
    /// The element that was turned away and whose text must not show.
    muted: RefCell<Option<LocalName>>,
}

impl TokenSink for Bounded {
    type Handle = Id;

    fn process_token(&self, token: Token, line_number: u64) -> TokenSinkResult<Id> {
        if self.builder.sink.overflown() {
            return TokenSinkResult::Continue;
        }
        let mut muted = self.muted.borrow_mut();
        if let Some(name) = &*muted {
            if matches!(&token, Token::TagToken(tag) if tag.kind == TagKind::EndTag && tag.name == *name) {
                *muted = None;
            }
            if !matches!(token, Token::EOFToken) {
                return TokenSinkResult::Continue;
            }
        }
        if let Token::TagToken(tag) = &token
            && tag.kind == TagKind::StartTag
            && self.builder.sink.depth.get() >= DEPTH_MAX
        {
            if Tag::of(&tag.name) == Tag::Dropped {
                *muted = Some(tag.name.clone());
            }
            return TokenSinkResult::Continue;
        }
        drop(muted);
        self.builder.process_token(token, line_number)
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}
