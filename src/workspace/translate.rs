//! A document in another language, by the model.

use serde::Deserialize;
use serde_json::json;

use super::documents::Document;
use super::language::Language;
use super::llm::{Llm, Question};
use super::{Activity, Notes};
use crate::error::{Error, Kind, Result};

/// Characters translated at once: a few pages, which every model answers without losing the thread.
const PIECE_CHARS: usize = 12_000;

#[derive(Deserialize)]
struct Answer {
    title: String,
    content: String,
}

/// Title and content in the language asked for.
pub async fn translate(
    llm: &Llm,
    original: &Document,
    into: Language,
    notes: &Notes,
) -> Result<(String, String)> {
    let task = format!(
        "Translate the document from {} into {}. Keep its Markdown structure, numbering, names and figures; \
         leave nothing out and add nothing. Answer with the translated title and content.",
        original.language.name(),
        into.name()
    );
    let mut title = None;
    let mut contents = Vec::new();
    for piece in pieces(&original.content, PIECE_CHARS) {
        // Each piece renews the lease of the job it is part of.
        notes.say(Activity::Translating).await?;
        let answer = ask(llm, &task, &original.title, piece).await?;
        title.get_or_insert(answer.title);
        contents.push(answer.content);
    }
    Ok((title.unwrap_or_else(|| original.title.clone()), contents.join("\n\n")))
}

async fn ask(llm: &Llm, task: &str, title: &str, content: &str) -> Result<Answer> {
    let material = json!({ "title": title, "content": content }).to_string();
    let schema = json!({
        "type": "object",
        "properties": { "title": { "type": "string" }, "content": { "type": "string" } },
        "required": ["title", "content"],
        "additionalProperties": false,
    });
    let answer: Answer =
        llm.ask(&Question { name: "translation", schema, task, material: &material }).await?;
    if answer.content.trim().is_empty() && !content.trim().is_empty() {
        let message = "the model's answer does not fit the schema `translation`: the content is empty";
        return Err(Error::new(Kind::Invalid, message).remedy_is("Try again, or use another model."));
    }
    Ok(answer)
}

/// The text in pieces of at most this many characters, cut between paragraphs, else between lines, else anywhere.
pub fn pieces(text: &str, chars_max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text.trim();
    while let Some((limit, _)) = rest.char_indices().nth(chars_max) {
        let head = &rest[..limit];
        let cut = head.rfind("\n\n").or_else(|| head.rfind('\n')).or_else(|| head.rfind(' '));
        let cut = cut.filter(|cut| *cut > 0).unwrap_or(limit);
        pieces.push(rest[..cut].trim_end());
        rest = rest[cut..].trim_start_matches('\n');
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_paragraphs_where_they_can_be() {
        assert_eq!(pieces("one\n\ntwo\n\nthree", 10), ["one\n\ntwo", "three"]);
        assert_eq!(pieces("short", 10), ["short"]);
        assert_eq!(pieces("ééééé", 2), ["éé", "éé", "é"]);
        let long = "word ".repeat(1_000);
        let all = pieces(&long, 100);
        assert!(all.iter().all(|piece| piece.chars().count() <= 100));
        assert_eq!(all.concat().matches("word").count(), 1_000);
    }
}
