//! A Word document as Markdown: headings, paragraphs, lists, tables, bold and italic.
//!
//! Reads `word/document.xml` and nothing else of the archive: no macros, no links to elsewhere, no pictures.

use std::io::{BufReader, Cursor, Read as _};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;

use super::{TEXT_BYTES_MAX, broken};
use crate::error::Result;

const DOCUMENT: &str = "word/document.xml";
/// Markup around the text; an archive may promise little and unpack to anything.
const XML_BYTES_MAX: u64 = 8 * TEXT_BYTES_MAX as u64;
/// Unpacked at a time: no piece of a document is larger than all its text.
const PIECE_BYTES_MAX: u64 = TEXT_BYTES_MAX as u64 + 1;
/// What an empty cell takes.
const CELL_BYTES: usize = 32;
/// Deepest heading Markdown has.
const HEADING_MAX: usize = 6;

pub fn markdown(bytes: &[u8]) -> Result<String> {
    let damaged = |error: String| broken("the DOCX is damaged").caused_by(error);
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| damaged(error.to_string()))?;
    let entry = archive.by_name(DOCUMENT).map_err(|error| damaged(error.to_string()))?;
    let mut reader = Reader::from_reader(BufReader::new(entry.take(PIECE_BYTES_MAX)));
    let mut writer = Writer::default();
    let mut buffer = Vec::new();
    loop {
        if reader.buffer_position() > XML_BYTES_MAX || writer.held > TEXT_BYTES_MAX {
            return Err(broken("the DOCX unpacks to more than it can hold"));
        }
        reader.get_mut().get_mut().set_limit(PIECE_BYTES_MAX);
        match reader.read_event_into(&mut buffer).map_err(|error| damaged(error.to_string()))? {
            Event::Eof => return Ok(writer.out),
            Event::Start(tag) => writer.open(&tag),
            Event::Empty(tag) => {
                writer.open(&tag);
                writer.close(tag.local_name().as_ref());
            }
            Event::End(tag) => writer.close(tag.local_name().as_ref()),
            Event::Text(text) if writer.in_text => {
                let text = text.decode().map_err(|error| damaged(error.to_string()))?;
                writer.word(&text);
            }
            Event::GeneralRef(name) if writer.in_text => writer.word(&reference(&name)),
            _ => {}
        }
        buffer.clear();
    }
}

/// `&amp;` and its kin.
fn reference(name: &quick_xml::events::BytesRef<'_>) -> String {
    if let Ok(Some(c)) = name.resolve_char_ref() {
        return c.to_string();
    }
    let name: &[u8] = name.as_ref();
    match name {
        b"amp" => "&",
        b"lt" => "<",
        b"gt" => ">",
        b"quot" => "\"",
        b"apos" => "'",
        _ => "",
    }
    .to_owned()
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools)] // independent marks of the text, not states of one thing
struct Writer {
    out: String,
    paragraph: String,
    /// Bytes of text so far, in paragraphs and cells.
    held: usize,
    in_text: bool,
    heading: usize,
    item: bool,
    bold: bool,
    italic: bool,
    /// Cells of the row that is open; tables in tables are read as text of their cell.
    row: Option<Vec<String>>,
    rows: usize,
}

impl Writer {
    fn open(&mut self, tag: &BytesStart<'_>) {
        match tag.local_name().as_ref() {
            b"p" => (self.heading, self.item) = (0, false),
            b"r" => (self.bold, self.italic) = (false, false),
            b"t" => self.in_text = true,
            b"tab" => self.gap('\t'),
            b"br" | b"cr" => self.gap('\n'),
            b"pStyle" => self.heading = heading(&value(tag)),
            b"numPr" => self.item = true,
            b"b" => self.bold = on(&value(tag)),
            b"i" => self.italic = on(&value(tag)),
            b"tbl" => self.rows = 0,
            b"tr" => self.row = Some(Vec::new()),
            b"tc" => {
                if let Some(row) = &mut self.row {
                    self.held += CELL_BYTES;
                    row.push(String::new());
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, name: &[u8]) {
        match name {
            b"t" => self.in_text = false,
            b"p" => self.end_paragraph(),
            b"tr" => self.end_row(),
            b"tbl" => self.out.push('\n'),
            _ => {}
        }
    }

    fn gap(&mut self, blank: char) {
        self.held += 1;
        self.paragraph.push(blank);
    }

    fn word(&mut self, text: &str) {
        self.held += text.len();
        let mark = match (self.bold, self.italic) {
            (true, true) => "***",
            (true, false) => "**",
            (false, true) => "*",
            (false, false) => "",
        };
        // Marks stand at the words, not at the blanks around them.
        let words = text.trim();
        if mark.is_empty() || words.is_empty() || self.heading > 0 {
            self.paragraph.push_str(text);
            return;
        }
        let (lead, rest) = text.split_at(text.len() - text.trim_start().len());
        self.paragraph.push_str(&format!("{lead}{mark}{words}{mark}{}", &rest[words.len()..]));
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.paragraph);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if let Some(cell) = self.row.as_mut().and_then(|row| row.last_mut()) {
            let gap = if cell.is_empty() { "" } else { " " };
            cell.push_str(&format!("{gap}{}", text.replace('\n', " ").replace('|', "\\|")));
            return;
        }
        match (self.heading, self.item) {
            (0, true) => self.out.push_str(&format!("- {text}\n")),
            (0, false) => self.out.push_str(&format!("\n{text}\n\n")),
            (level, _) => self.out.push_str(&format!("\n{} {text}\n\n", "#".repeat(level))),
        }
    }

    fn end_row(&mut self) {
        let Some(cells) = self.row.take().filter(|cells| !cells.is_empty()) else { return };
        self.out.push_str(&format!("| {} |\n", cells.join(" | ")));
        if self.rows == 0 {
            self.out.push_str(&format!("|{}\n", " --- |".repeat(cells.len())));
        }
        self.rows += 1;
    }
}

/// `Heading2`, `heading 2`, `Title`: the level, or 0.
fn heading(style: &str) -> usize {
    let style = style.to_lowercase();
    if style == "title" {
        return 1;
    }
    let level = style.strip_prefix("heading").map(str::trim).and_then(|level| level.parse::<usize>().ok());
    level.map_or(0, |level| level.clamp(1, HEADING_MAX))
}

/// A switch without a value is on.
fn on(value: &str) -> bool {
    !matches!(value, "0" | "false" | "off")
}

fn value(tag: &BytesStart<'_>) -> String {
    let attribute =
        tag.attributes().flatten().find(|attribute| attribute.key.local_name().as_ref() == b"val");
    attribute.map(|attribute| String::from_utf8_lossy(&attribute.value).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn packed(xml: &str) -> Vec<u8> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive.start_file(DOCUMENT, SimpleFileOptions::default()).unwrap();
        archive.write_all(xml.as_bytes()).unwrap();
        archive.finish().unwrap().into_inner()
    }

    #[test]
    fn what_unpacks_to_far_more_than_it_is_breaks_off() {
        let text = |bytes: usize| format!("<d><p><r><t>{}</t></r></p></d>", "a".repeat(bytes));
        let cells = |many: usize| format!("<d><tbl><tr>{}</tr></tbl></d>", "<tc/>".repeat(many));
        let breaks = |many: usize| format!("<d><p>{}</p></d>", "<br/>".repeat(many));
        for bomb in [text(TEXT_BYTES_MAX + 10), cells(TEXT_BYTES_MAX / CELL_BYTES + 10)] {
            let packed = packed(&bomb);
            assert!(packed.len() < 100_000, "{}", packed.len());
            let error = markdown(&packed).unwrap_err();
            assert!(error.to_string().contains("more than it can hold"), "{error}");
        }
        for (good, bytes) in [(text(3 << 20), (3 << 20) + 3), (cells(1_000), 9_005), (breaks(1_000), 0)] {
            assert_eq!(markdown(&packed(&good)).unwrap().len(), bytes);
        }
    }
}
