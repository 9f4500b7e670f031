//! White space as a browser would show it: runs become one space, and space beside blocks and breaks goes.
//! Only spaces, tabs and line ends collapse; no-break spaces are content.

use html5ever::tendril::StrTendril;

use super::dom::{Data, Dom, Id, NONE};
use super::tag::Tag;

/// What white space is when text is judged blank or trimmed (ECMAScript's `\s`).
pub fn is_space(c: char) -> bool {
    (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}'
}

fn collapses(byte: u8) -> bool {
    matches!(byte, b' ' | b'\r' | b'\n' | b'\t')
}

/// Walks the tree once, in document order, and comes by every element again on the way up: a block ends the
/// line on both occasions.
pub fn collapse(dom: &mut Dom) {
    let root = dom.root;
    if dom.node(root).first == NONE {
        return;
    }
    let mut walk = Walk { line: NONE, keeps_leading: false };
    let mut prev = NONE;
    let mut id = dom.node(root).first;
    while id != root {
        if walk.visit(dom, id) {
            let next = following(dom, prev, id);
            prev = id;
            id = next;
        } else {
            let node = dom.node(id);
            let next = if node.next == NONE { node.parent } else { node.next };
            dom.unlink(id);
            id = next;
        }
    }
    if walk.line != NONE {
        trim_line_end(dom, walk.line);
        if dom.text(walk.line).is_some_and(|text| text.is_empty()) {
            dom.unlink(walk.line);
        }
    }
}

struct Walk {
    /// The last text on the current line.
    line: Id,
    /// After an image or the like a leading space is kept.
    keeps_leading: bool,
}

impl Walk {
    /// False = the node goes.
    fn visit(&mut self, dom: &mut Dom, id: Id) -> bool {
        match &dom.node(id).data {
            Data::Other => return false,
            Data::Element { tag, .. } => {
                let tag = *tag;
                if tag.is_block() || tag == Tag::Br {
                    trim_line_end(dom, self.line);
                    (self.line, self.keeps_leading) = (NONE, false);
                } else if tag.is_void() {
                    (self.line, self.keeps_leading) = (NONE, true);
                } else if self.line != NONE {
                    self.keeps_leading = false;
                }
            }
            Data::Text(text) => {
                let after_space =
                    self.line == NONE || dom.text(self.line).is_some_and(|line| line.ends_with(' '));
                match collapsed(text, after_space && !self.keeps_leading) {
                    None => {}
                    Some(text) if text.is_empty() => return false,
                    Some(text) => dom.nodes[id as usize].data = Data::Text(text),
                }
                self.line = id;
            }
        }
        true
    }
}

/// `None` = nothing to change.
fn collapsed(text: &str, trims_start: bool) -> Option<StrTendril> {
    let bytes = text.as_bytes();
    let starts_plain = !(trims_start && bytes.first().copied().is_some_and(collapses));
    let is_plain = |(i, byte): (usize, &u8)| match byte {
        b' ' => !bytes.get(i + 1).copied().is_some_and(collapses),
        _ => !collapses(*byte),
    };
    if starts_plain && bytes.iter().enumerate().all(is_plain) {
        return None;
    }
    let mut out = StrTendril::with_capacity(u32::try_from(text.len()).unwrap_or(0));
    let mut rest = text;
    while let Some(at) = rest.bytes().position(collapses) {
        out.push_slice(&rest[..at]);
        if !(trims_start && out.is_empty()) {
            out.push_slice(" ");
        }
        let run = rest[at..].bytes().take_while(|byte| collapses(*byte)).count();
        rest = &rest[at + run..];
    }
    out.push_slice(rest);
    Some(out)
}

fn trim_line_end(dom: &mut Dom, line: Id) {
    if line == NONE {
        return;
    }
    if let Data::Text(text) = &mut dom.nodes[line as usize].data
        && text.ends_with(' ')
    {
        text.pop_back(1);
    }
}

fn following(dom: &Dom, prev: Id, id: Id) -> Id {
    let node = dom.node(id);
    let coming_up = prev != NONE && dom.node(prev).parent == id;
    let onward = if node.next == NONE { node.parent } else { node.next };
    if coming_up || dom.tag(id) == Some(Tag::Pre) || node.first == NONE { onward } else { node.first }
}
