//! Documents as Markdown: PDF by its text layer, HTML, DOCX, Markdown, plain text.
//!
//! The libraries that read these formats get a thread of their own, with a deep stack, a time limit and nobody else's
//! data: what panics, hangs or explodes there is the error of that one document. Refuses scans (a PDF without text) and
//! whatever is too large; guesses no text.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};

use crate::error::{Error, Kind, Result};
use crate::shape::article::html::{Links, to_markdown};

mod docx;
mod pdf;
mod text;

/// A thousand pages take a few seconds; what takes longer will not end.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Text of one document: several thousand pages.
const TEXT_BYTES_MAX: usize = 32 << 20;
/// Formats nest, and so do the libraries: deeper than the usual stack.
const STACK_BYTES: usize = 64 << 20;
/// Documents read at the same time: they are work for the processor, and each may take a lot of memory.
const AT_ONCE: usize = 2;

static SLOTS: Semaphore = Semaphore::const_new(AT_ONCE);

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a library whose panics are caught and become errors: nobody need print them.
pub fn is_reading() -> bool {
    READING.with(Cell::get)
}

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    Pdf,
    Html,
    Docx,
    Markdown,
    Text,
}

impl Media {
    /// By its name, else by the type the server gives it.
    pub fn of(name: &str, media_type: Option<&str>) -> Option<Self> {
        let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        let by_name = match ending.as_deref() {
            Some("pdf") => Some(Media::Pdf),
            Some("html" | "htm" | "xhtml") => Some(Media::Html),
            Some("docx") => Some(Media::Docx),
            Some("md" | "markdown") => Some(Media::Markdown),
            Some("txt" | "text") => Some(Media::Text),
            _ => None,
        };
        by_name.or_else(|| Self::of_type(media_type?))
    }

    fn of_type(media_type: &str) -> Option<Self> {
        match media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "application/pdf" => Some(Media::Pdf),
            "text/html" | "application/xhtml+xml" => Some(Media::Html),
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => Some(Media::Docx),
            "text/markdown" => Some(Media::Markdown),
            "text/plain" => Some(Media::Text),
            _ => None,
        }
    }
}

/// Whether a file is plainly no text of rules: a picture, a sound, a film. By its name, else by the type the server gives it.
pub fn is_no_text(name: &str, media_type: Option<&str>) -> bool {
    const ENDINGS: [&str; 22] = [
        "apng", "avif", "bmp", "gif", "heic", "ico", "jpeg", "jpg", "png", "svg", "tif", "tiff", "webp",
        "flac", "m4a", "mp3", "ogg", "wav", "avi", "mov", "mp4", "webm",
    ];
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let class =
        media_type.and_then(|media_type| media_type.trim().split('/').next()).map(str::to_ascii_lowercase);
    Media::of(name, media_type).is_none()
        && (ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
            || class.is_some_and(|class| matches!(class.as_str(), "image" | "audio" | "video")))
}

/// The document as Markdown.
pub async fn markdown(media: Media, bytes: Bytes) -> Result<String> {
    within(TIME_MAX, move || read(media, &bytes)).await
}

/// Run a reader on a thread of its own. One that does not end in time is left behind, with its slot.
async fn within(limit: Duration, read: impl FnOnce() -> Result<String> + Send + 'static) -> Result<String> {
    let slot = SLOTS.acquire().await.map_err(|error| Error::bug("no more documents").caused_by(error))?;
    let (answer, answered) = oneshot::channel();
    let work = move || {
        let _slot = slot;
        READING.with(|reading| reading.set(true));
        let read = catch_unwind(AssertUnwindSafe(read));
        // Nobody may be waiting any more.
        let _ = answer.send(read.unwrap_or_else(|_| Err(broken("the file is damaged"))));
    };
    let thread = std::thread::Builder::new().name("extract".into()).stack_size(STACK_BYTES);
    thread.spawn(work).map_err(|error| crate::error::from_io(error, "starting a thread"))?;
    match tokio::time::timeout(limit, answered).await {
        Ok(read) => read.map_err(|error| Error::bug("a document's reader ended").caused_by(error))?,
        Err(_) => Err(broken(&format!("its text was not found within {} s", limit.as_secs()))),
    }
}

fn read(media: Media, bytes: &[u8]) -> Result<String> {
    let markdown = match media {
        Media::Pdf => pdf::markdown(bytes)?,
        Media::Html => to_markdown(&text::decoded(bytes)?, &Links::relative_to(""))?,
        Media::Docx => docx::markdown(bytes)?,
        Media::Markdown | Media::Text => text::decoded(bytes)?,
    };
    if markdown.len() > TEXT_BYTES_MAX {
        return Err(broken(&format!("its text is longer than {} MiB", TEXT_BYTES_MAX >> 20)));
    }
    let markdown = text::tidied(&markdown);
    if markdown.is_empty() {
        return Err(match media {
            Media::Pdf => Error::new(Kind::Invalid, "the PDF has no text layer: it is a scan")
                .remedy_is("Attach a PDF with text, made by a word processor or by text recognition."),
            _ => broken("there is no text in it"),
        });
    }
    Ok(markdown)
}

/// The document itself is at fault.
fn broken(message: &str) -> Error {
    Error::new(Kind::Invalid, message).remedy_is("Open it, mend it if need be, and attach it again.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_panics_or_hangs_is_the_documents_error() {
        let panicked = within(TIME_MAX, || panic!("inside a library")).await.unwrap_err();
        assert_eq!((panicked.kind(), panicked.to_string().as_str()), (Kind::Invalid, "the file is damaged"));
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let late = within(Duration::from_millis(10), move || {
            let _ = held.recv();
            Ok(String::new())
        });
        let late = late.await.unwrap_err();
        assert!(late.to_string().contains("within"), "{late}");
        drop(hold);
    }

    #[tokio::test]
    async fn a_deep_recursion_does_not_end_the_program() {
        fn down(levels: u64) -> u64 {
            if levels == 0 { 0 } else { std::hint::black_box(1 + down(levels - 1)) }
        }
        let read = within(TIME_MAX, || Ok(down(100_000).to_string())).await;
        assert_eq!(read.unwrap(), "100000");
    }
}
