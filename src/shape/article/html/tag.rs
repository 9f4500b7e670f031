//! The elements the Markdown conventions know. Whatever else a page brings is plain text with or without breaks.

use html5ever::{LocalName, local_name};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// The element the snippet is wrapped in, so that the parser sorts nothing into a head.
    Root,
    A,
    Blockquote,
    Br,
    Code,
    Em,
    Heading(u8),
    Hr,
    Img,
    Li,
    Ol,
    P,
    Pre,
    Strong,
    Ul,
    Table,
    Caption,
    Thead,
    Tbody,
    Tfoot,
    Tr,
    Th,
    Td,
    /// `audio`: a block that counts although it has no text.
    Audio,
    /// `video`, `iframe`: inline, but count although they have no text.
    Embedded,
    /// Blocks without a rule of their own.
    Block,
    /// Void elements without a rule of their own.
    Void,
    /// Vanishes with its text.
    Dropped,
    Inline,
}

pub const ROOT: &str = "x-archive-root";

impl Tag {
    pub fn of(name: &LocalName) -> Tag {
        match *name {
            // First what pages are made of.
            local_name!("span") | local_name!("font") | local_name!("u") => Tag::Inline,
            local_name!("div") => Tag::Block,
            local_name!("a") => Tag::A,
            local_name!("blockquote") => Tag::Blockquote,
            local_name!("br") => Tag::Br,
            local_name!("code") => Tag::Code,
            local_name!("em") | local_name!("i") => Tag::Em,
            local_name!("strong") | local_name!("b") => Tag::Strong,
            local_name!("h1") => Tag::Heading(1),
            local_name!("h2") => Tag::Heading(2),
            local_name!("h3") => Tag::Heading(3),
            local_name!("h4") => Tag::Heading(4),
            local_name!("h5") => Tag::Heading(5),
            local_name!("h6") => Tag::Heading(6),
            local_name!("hr") => Tag::Hr,
            local_name!("img") => Tag::Img,
            local_name!("li") => Tag::Li,
            local_name!("ol") => Tag::Ol,
            local_name!("p") => Tag::P,
            local_name!("pre") => Tag::Pre,
            local_name!("ul") => Tag::Ul,
            local_name!("table") => Tag::Table,
            local_name!("caption") => Tag::Caption,
            local_name!("thead") => Tag::Thead,
            local_name!("tbody") => Tag::Tbody,
            local_name!("tfoot") => Tag::Tfoot,
            local_name!("tr") => Tag::Tr,
            local_name!("th") => Tag::Th,
            local_name!("td") => Tag::Td,
            local_name!("audio") => Tag::Audio,
            local_name!("video") | local_name!("iframe") => Tag::Embedded,
            local_name!("script")
            | local_name!("style")
            | local_name!("noscript")
            | local_name!("template") => Tag::Dropped,
            _ => Tag::without_rule(name),
        }
    }

    fn without_rule(name: &LocalName) -> Tag {
        match &**name {
            "address" | "article" | "aside" | "body" | "canvas" | "center" | "dd" | "dir" | "div" | "dl"
            | "dt" | "fieldset" | "figcaption" | "figure" | "footer" | "form" | "frameset" | "header"
            | "hgroup" | "html" | "isindex" | "main" | "menu" | "nav" | "noframes" | "output" | "section" => {
                Tag::Block
            }
            "area" | "base" | "col" | "command" | "embed" | "input" | "keygen" | "link" | "meta"
            | "param" | "source" | "track" | "wbr" => Tag::Void,
            ROOT => Tag::Root,
            _ => Tag::Inline,
        }
    }

    /// Stands on lines of its own.
    pub fn is_block(self) -> bool {
        match self {
            Tag::Blockquote
            | Tag::Heading(_)
            | Tag::Hr
            | Tag::Li
            | Tag::Ol
            | Tag::P
            | Tag::Pre
            | Tag::Ul
            | Tag::Table
            | Tag::Thead
            | Tag::Tbody
            | Tag::Tfoot
            | Tag::Tr
            | Tag::Th
            | Tag::Td
            | Tag::Audio
            | Tag::Block => true,
            Tag::Root
            | Tag::A
            | Tag::Br
            | Tag::Code
            | Tag::Em
            | Tag::Img
            | Tag::Strong
            | Tag::Caption
            | Tag::Embedded
            | Tag::Void
            | Tag::Dropped
            | Tag::Inline => false,
        }
    }

    /// Has no content by nature.
    pub fn is_void(self) -> bool {
        matches!(self, Tag::Br | Tag::Hr | Tag::Img | Tag::Void)
    }

    /// Is kept even when it holds nothing but space.
    pub fn counts_when_blank(self) -> bool {
        matches!(
            self,
            Tag::A
                | Tag::Table
                | Tag::Thead
                | Tag::Tbody
                | Tag::Tfoot
                | Tag::Th
                | Tag::Td
                | Tag::Audio
                | Tag::Embedded
        )
    }
}
