//! Documents as real tools make them, and as nobody should.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use trueup::error::{Error, Kind};
use trueup::workspace::Language;
use trueup::workspace::extract::{Media, markdown};

use super::desk::{Desk, ENGLISH};
use super::papers;
use crate::support;

struct Shelf(tempfile::TempDir);

impl Shelf {
    fn new() -> Self {
        Shelf(support::temp())
    }

    fn make(&self, kind: &str, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        papers::make(kind, &path, text);
        path
    }
}

async fn read(path: &Path) -> Result<String, Error> {
    let media = Media::of(path.to_str().unwrap(), None).unwrap();
    markdown(media, Bytes::from(std::fs::read(path).unwrap())).await
}

/// Words in their order, whatever blanks are between them.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_pdf_of_many_pages_is_read_in_order() {
    let shelf = Shelf::new();
    let text: Vec<String> =
        (1..=120).map(|at| format!("Clause {at}. {ENGLISH} {ENGLISH} {ENGLISH}")).collect();
    let read = read(&shelf.make("plain", "long.pdf", &text.join("\n\n"))).await.unwrap();
    assert_eq!(words(&read), words(&text.join(" ")));
}

#[tokio::test]
async fn columns_are_read_one_after_the_other() {
    let shelf = Shelf::new();
    let text: Vec<String> = (1..=40).map(|at| format!("Clause {at}. {ENGLISH}")).collect();
    let read = read(&shelf.make("columns", "columns.pdf", &text.join("\n\n"))).await.unwrap();
    assert_eq!(words(&read), words(&text.join(" ")));
}

#[tokio::test]
async fn a_table_is_read_row_by_row() {
    let shelf = Shelf::new();
    let rows = "Year|Fee|Note\n\n2024|100 EUR|first\n\n2025|120 EUR|second";
    let read = words(&read(&shelf.make("table", "table.pdf", rows)).await.unwrap());
    assert_eq!(read, "Year Fee Note 2024 100 EUR first 2025 120 EUR second");
}

#[tokio::test]
async fn letters_of_every_alphabet_come_through() {
    let shelf = Shelf::new();
    let text = "Regulamentul școlii doctorale: șțăîâ. Ελληνικά, Русский, äöå ÄÖÅ ñ ç õ ß.";
    assert_eq!(words(&read(&shelf.make("plain", "letters.pdf", text)).await.unwrap()), text);
}

#[tokio::test]
async fn a_scan_a_locked_and_a_broken_pdf_are_each_said_so() {
    let shelf = Shelf::new();
    let good = std::fs::read(shelf.make("plain", "good.pdf", ENGLISH)).unwrap();
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("scan", std::fs::read(shelf.make("scan", "scan.pdf", "")).unwrap(), "no text layer"),
        ("locked", std::fs::read(shelf.make("locked", "locked.pdf", ENGLISH)).unwrap(), "password"),
        ("cut", good[..good.len() / 2].to_vec(), "damaged"),
        ("empty", Vec::new(), "no PDF"),
        ("something else", b"PK\x03\x04 zip".to_vec(), "no PDF"),
    ];
    for (name, bytes, said) in cases {
        let error = markdown(Media::Pdf, Bytes::from(bytes)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
        assert!(error.to_string().contains(said), "{name}: {error}");
    }
}

/// Every byte of a good file changed in turn must end in text or an error, and in time.
#[tokio::test]
async fn damaged_files_never_end_the_program() {
    let shelf = Shelf::new();
    for (media, path) in [
        (Media::Pdf, shelf.make("plain", "good.pdf", ENGLISH)),
        (Media::Docx, shelf.make("docx", "good.docx", "Title\n\nText")),
    ] {
        let good = std::fs::read(path).unwrap();
        for at in (0..good.len()).step_by(good.len() / 60) {
            let mut bad = good.clone();
            bad[at] = bad[at].wrapping_add(0x41);
            if let Err(error) = markdown(media, Bytes::from(bad)).await {
                assert_eq!(error.kind(), Kind::Invalid, "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_word_document_keeps_its_structure() {
    let shelf = Shelf::new();
    let read = read(&shelf.make("docx", "policy.docx", &format!("Supervision\n\n{ENGLISH}"))).await.unwrap();
    let expected = format!(
        "# Supervision\n\n## Section\n\n{ENGLISH}\n\nIt is **binding** and *public*\n\n\
         first & foremost\n\n| Year | Fee |\n| --- | --- |\n| 2025 | 100 < 200 |"
    );
    assert_eq!(read, expected);
}

#[tokio::test]
async fn html_and_text_in_old_encodings_are_read() {
    let html = b"<html><head><title>x</title><style>p{}</style><script>alert(1)</script></head>\
        <body><h1>R\xe8gle</h1><p>Deux <b>directeurs</b></p><ul><li>un</li></ul></body></html>";
    let read = markdown(Media::Html, Bytes::from_static(html)).await.unwrap();
    assert!(read.contains("Règle") && read.contains("Deux **directeurs**"), "{read}");
    assert!(!read.contains("alert") && !read.contains("p{}"), "{read}");
    let read = markdown(Media::Text, Bytes::from_static(b"R\xe8gle\r\n\r\n\r\n\r\nfin \r\n")).await.unwrap();
    assert_eq!(read, "Règle\n\nfin");
}

#[tokio::test]
async fn files_of_a_page_are_its_policies_under_plain_names() {
    let desk = Desk::new();
    for name in
        ["p/a b.md", "p/a_b.md", "p/Règle.txt", "p/page.md", "p/.hidden.md", "p/sub/deep.md", "p/photo.png"]
    {
        desk.file(name, ENGLISH);
    }
    let workspace = desk.over_folder().await;
    let catalogue = workspace.policies("p").await.unwrap();
    let names: Vec<_> =
        catalogue.policies.iter().map(|policy| (policy.source.as_str(), policy.title.as_str())).collect();
    assert_eq!(
        names,
        [("R_gle.txt", "Règle.txt"), ("a_b.md", "a_b.md"), ("a_b.md-2", "a b.md")],
        "a picture is no policy"
    );
    assert_eq!(workspace.policy("p", "a_b.md-2", None).await.unwrap().language, Language::En);
    let error = workspace.policy("p", "photo.png", None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.remedy().contains("PDF"), "{}", error.remedy());
    desk.model.finds(Vec::new());
    let analysis = workspace.analyze("p").await.unwrap();
    assert!(analysis.errors.is_empty(), "a picture is no policy: {:?}", analysis.errors);
}

#[tokio::test]
async fn a_policy_of_a_kind_nobody_reads_is_an_error_of_the_analysis() {
    let desk = Desk::new();
    desk.file("p/page.md", "One supervisor.");
    desk.file("p/a.md", ENGLISH);
    desk.file("p/c.odt", "PK");
    let workspace = desk.over_folder().await;
    let listed = workspace.policies("p").await.unwrap().policies;
    assert_eq!(listed.iter().map(|policy| policy.source.as_str()).collect::<Vec<_>>(), ["a.md", "c.odt"]);
    let analysis = workspace.analyze("p").await.unwrap();
    assert_eq!(desk.model.analyses(), 1, "the other is compared");
    let [fault] = &analysis.errors[..] else { panic!("{:?}", analysis.errors) };
    assert_eq!((fault.key.as_deref(), fault.kind), (Some("c.odt"), Kind::Invalid));
    assert!(fault.remedy.contains("PDF"), "{fault:?}");
}

#[tokio::test]
async fn one_broken_policy_does_not_stop_the_analysis_of_the_others() {
    let desk = Desk::new();
    desk.file("p/page.html", "<p>One supervisor.</p>");
    desk.file("p/broken.pdf", "%PDF-1.7 broken");
    desk.file("p/good.md", ENGLISH);
    let workspace = desk.over_folder().await;
    let analysis = workspace.analyze("p").await.unwrap();
    assert_eq!(desk.model.analyses(), 1);
    assert_eq!(analysis.errors.len(), 1);
    assert_eq!(analysis.errors[0].key.as_deref(), Some("broken.pdf"));
}
