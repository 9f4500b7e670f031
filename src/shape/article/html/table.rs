//! Tables with a header row become GFM tables; others are laid out cell after cell, as Turndown does it.
//!
//! A GFM cell is one line: line ends inside it become spaces, and `|` is escaped. Spanned cells are left empty so
//! that columns stay under their headings.

use html5ever::{LocalName, local_name};

use super::dom::{Dom, Id};
use super::space::is_space;
use super::tag::Tag;
use super::write::Writer;
use crate::error::Result;

/// A span beyond this is a mistake, not a table.
const SPAN_MAX: usize = 64;

pub struct Rows {
    captions: Vec<Id>,
    rows: Vec<Id>,
}

/// The rows of a table whose first row is a header: in a `thead`, or made of `th` only.
pub fn with_header(dom: &Dom, table: Id) -> Option<Rows> {
    let mut captions = Vec::new();
    let mut rows = Vec::new();
    for child in dom.children(table) {
        match dom.tag(child) {
            Some(Tag::Caption) => captions.push(child),
            Some(Tag::Tr) => rows.push(child),
            Some(Tag::Thead | Tag::Tbody | Tag::Tfoot) => {
                rows.extend(dom.children(child).filter(|row| dom.tag(*row) == Some(Tag::Tr)));
            }
            _ => {}
        }
    }
    let header = *rows.first()?;
    let in_head = dom.tag(dom.node(header).parent) == Some(Tag::Thead);
    let mut cells = cells(dom, header).peekable();
    cells.peek()?;
    let is_header = in_head || cells.all(|cell| dom.tag(cell) == Some(Tag::Th));
    is_header.then_some(Rows { captions, rows })
}

pub fn write(writer: &mut Writer<'_>, table: &Rows) -> Result<String> {
    let grid = grid(writer, &table.rows)?;
    let width = grid.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = String::from("\n\n");
    for caption in &table.captions {
        let line = one_line(&writer.children(*caption, false)?);
        if !line.is_empty() {
            out.extend([&line, "\n\n"]);
        }
    }
    for (at, row) in grid.iter().enumerate() {
        let texts = (0..width).map(|column| row.get(column).map_or("", |cell| &cell.text));
        line(&mut out, texts);
        if at == 0 {
            line(&mut out, (0..width).map(|column| row.get(column).map_or("---", |cell| cell.rule)));
        }
    }
    out.push('\n');
    Ok(out)
}

fn line<'t>(out: &mut String, texts: impl Iterator<Item = &'t str>) {
    out.push('|');
    for text in texts {
        out.extend([" ", text, " |"]);
    }
    out.push('\n');
}

fn cells(dom: &Dom, row: Id) -> impl Iterator<Item = Id> {
    dom.children(row).filter(|cell| matches!(dom.tag(*cell), Some(Tag::Th | Tag::Td)))
}

struct Cell {
    text: String,
    rule: &'static str,
}

impl Cell {
    const EMPTY: Cell = Cell { text: String::new(), rule: "---" };
}

/// Cells by row and column, spans unfolded into empty cells.
fn grid(writer: &mut Writer<'_>, rows: &[Id]) -> Result<Vec<Vec<Cell>>> {
    let mut grid = Vec::new();
    // How many more rows each column is taken by a cell from above.
    let mut taken: Vec<usize> = Vec::new();
    for row in rows {
        let mut line: Vec<Cell> = Vec::new();
        let from_above = |line: &mut Vec<Cell>, taken: &mut Vec<usize>| {
            while let Some(left) = taken.get_mut(line.len()).filter(|left| **left > 0) {
                *left -= 1;
                line.push(Cell::EMPTY);
            }
        };
        for cell in cells(writer.dom, *row) {
            from_above(&mut line, &mut taken);
            let wide = span(writer.dom, cell, &local_name!("colspan"));
            let high = span(writer.dom, cell, &local_name!("rowspan"));
            let text = one_line(&writer.children(cell, false)?);
            let start = line.len();
            line.push(Cell { text, rule: rule(writer.dom, cell) });
            line.extend((1..wide).map(|_| Cell::EMPTY));
            taken.resize(taken.len().max(line.len()), 0);
            taken[start..line.len()].fill(high - 1);
        }
        from_above(&mut line, &mut taken);
        grid.push(line);
    }
    Ok(grid)
}

fn span(dom: &Dom, cell: Id, name: &LocalName) -> usize {
    let asked = dom.attr(cell, name).and_then(|value| value.trim().parse().ok()).unwrap_or(1);
    if (1..=SPAN_MAX).contains(&asked) { asked } else { 1 }
}

fn rule(dom: &Dom, cell: Id) -> &'static str {
    let align = dom.attr(cell, &local_name!("align")).unwrap_or_default();
    match align.to_ascii_lowercase().as_str() {
        "left" => ":--",
        "right" => "--:",
        "center" => ":-:",
        _ => "---",
    }
}

fn one_line(content: &str) -> String {
    let lines = content.split('\n').map(|line| line.trim_matches(is_space)).filter(|line| !line.is_empty());
    let mut out = String::new();
    for line in lines {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&line.replace('|', "\\|"));
    }
    out
}
