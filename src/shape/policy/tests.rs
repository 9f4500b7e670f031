//! What a row comes to, case by case.

use serde_json::{Value, json};

use super::*;
use crate::record::Body;

const SHA: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba98";

fn now() -> Timestamp {
    "2025-10-20T16:00:00Z".parse().unwrap()
}

fn entry(path: &str, sha: &str) -> Entry {
    Entry::new(path, &"".into(), sha)
}

fn render(shape: &Policy, entry: &Entry, body: Option<&[u8]>, prior: Option<&Prior>) -> Rendered {
    let identity = shape.identify(entry).unwrap().identity;
    let body =
        body.map(|bytes| Body { bytes: Bytes::copy_from_slice(bytes), version: entry.version.clone() });
    let input = Input { entry, identity: &identity, body: body.as_ref(), prior, now: now() };
    shape.render(&input).unwrap()
}

fn put(rendered: Rendered) -> Output {
    match rendered {
        Rendered::Put(output) => output,
        other => panic!("{other:?}"),
    }
}

fn prior(output: &Output) -> Prior {
    Prior { key: output.key.clone(), fingerprint: output.fingerprint, carry: output.carry.clone() }
}

fn value(output: &Output) -> Value {
    serde_json::from_slice(&output.value).unwrap()
}

#[test]
fn markdown_files_but_no_readmes_are_policies() {
    let wanted = |path: &str| Policy::default().wants(&entry(path, SHA));
    assert!(wanted("readme-x.md") && wanted("a/학칙.MD") && wanted(".md") && wanted("readme.md/x.md"));
    for other in ["README.md", "docs/Readme.MD", "notes.txt", "md", "a.md/notes", "x.mdx", "한"] {
        assert!(!wanted(other), "{other}");
    }
}

#[test]
fn a_name_is_composed_and_a_path_is_left_as_it_is() {
    let decomposed = "규정/\u{1112}\u{1161}\u{11A8}\u{110E}\u{1175}\u{11A8}.md";
    let output = put(render(&Policy::default(), &entry(decomposed, SHA), Some(b"# T"), None));
    assert_eq!(output.key, "policy:학칙");
    assert_eq!(value(&output)["path"], decomposed);
}

#[test]
fn a_row_has_exactly_the_members_of_the_registry() {
    let entry = entry("규정/학칙.md", &SHA.to_uppercase());
    let output = put(render(&Policy::default(), &entry, Some("# 한국교원대학교 학칙\n".as_bytes()), None));
    assert_eq!(
        std::str::from_utf8(&output.value).unwrap(),
        format!(
            r#"{{"policyName":"학칙","title":"한국교원대학교 학칙","status":"active","lastUpdated":"2025-10-20T16:00:00.000Z","sha":"{SHA}","path":"규정/학칙.md"}}"#
        )
    );
}

#[test]
fn a_moved_file_needs_no_body_and_a_changed_one_does() {
    let shape = Policy::default();
    let first = put(render(&shape, &entry("a/x.md", SHA), Some(b"# T"), None));
    let moved = put(render(&shape, &entry("b/x.md", SHA), None, Some(&prior(&first))));
    assert_eq!(
        (value(&moved)["title"].as_str(), value(&moved)["path"].as_str()),
        (Some("T"), Some("b/x.md"))
    );
    assert_ne!(first.fingerprint, moved.fingerprint);
    assert_eq!(render(&shape, &entry("a/x.md", OTHER), None, Some(&prior(&first))), Rendered::NeedBody);
}

#[test]
fn what_cannot_have_a_row_is_skipped_with_a_reason() {
    let skipped = |entry: &Entry, body: Option<&[u8]>| match render(&Policy::default(), entry, body, None) {
        Rendered::Skip(why) => why,
        other => panic!("{}: {other:?}", entry.id),
    };
    let sized = |size| Entry { size: Some(size), ..entry("a.md", SHA) };
    assert!(skipped(&sized(0), None).contains("empty"));
    assert!(skipped(&sized(1_500_000), None).contains("1500000 bytes"));
    assert!(skipped(&entry("a.md", SHA), Some(b" \r\n")).contains("empty"));
    assert!(skipped(&entry("a.md", SHA), Some(&[b'x'; 1_500_000])).contains("bytes"));
    assert!(skipped(&entry("a.md", SHA), Some(b"\xFF\xFE")).contains("UTF-8"));
    assert!(skipped(&entry(".md", SHA), Some(b"# T")).contains("no name"));
    assert!(skipped(&entry("a\\b.md", SHA), Some(b"# T")).contains("backslash"));
    assert!(skipped(&entry(&format!("{}.md", "x".repeat(506)), SHA), Some(b"# T")).contains("longer"));
}

#[test]
fn a_source_without_shas_gets_one_from_the_document() {
    let output = put(render(&Policy::default(), &entry("a.md", "12.34"), Some(b"# T"), None));
    assert_eq!(value(&output)["sha"], Fingerprint::of(b"# T").to_string());
    let again = render(&Policy::default(), &entry("a.md", "56.78"), None, Some(&prior(&output)));
    assert_eq!(again, Rendered::NeedBody);
}

#[test]
fn a_stored_row_is_recalled_as_the_entry_it_came_from() {
    let shape = Policy::default();
    let output = put(render(&shape, &entry("a/x.md", SHA), Some(b"# T"), None));
    let Some(Recalled::Current { identity, entry: recalled, fingerprint, carry }) =
        shape.recall(&output.key, &output.value, now())
    else {
        panic!("not recalled")
    };
    assert_eq!((identity.as_str(), recalled), ("x", entry("a/x.md", SHA)));
    assert_eq!((fingerprint, carry), (output.fingerprint, output.carry));
}

fn stored(row: Value) -> Vec<u8> {
    row.to_string().into_bytes()
}

#[test]
fn a_row_of_others_that_says_the_same_is_left_alone() {
    let shape = Policy::default();
    let output = put(render(&shape, &entry("x.md", SHA), Some(b"# T"), None));
    let theirs = json!({"policyName": "x", "title": "T", "status": "active", "sha": SHA, "path": "x.md",
        "lastUpdated": "2025-01-01T00:00:00Z", "fileNo": "868"});
    let Reconciled::Keep(kept) = shape.reconcile(output.clone(), &stored(theirs), None, now()) else {
        panic!()
    };
    assert_eq!(Carry::of(kept.carry.as_ref()).unwrap().fields.file_no, Some("868".into()));
    let other = json!({"title": "Old", "status": "active", "sha": OTHER, "path": "x.md", "fileNo": "868"});
    let Reconciled::Write(written, None) = shape.reconcile(output, &stored(other), None, now()) else {
        panic!()
    };
    assert_eq!(
        (value(&written)["title"].as_str(), value(&written)["fileNo"].as_str()),
        (Some("T"), Some("868"))
    );
}

#[test]
fn an_archived_row_stays_archived_until_its_document_changes() {
    let shape = Policy::default();
    let output = put(render(&shape, &entry("x.md", SHA), Some(b"# T"), None));
    let known = prior(&output);
    let row = |sha: &str| stored(json!({"title": "T", "status": "archived", "sha": sha, "path": "x.md"}));
    for before in [None, Some(&known)] {
        let same = shape.reconcile(output.clone(), &row(SHA), before, now());
        assert!(matches!(same, Reconciled::Keep(_)));
        let changed = shape.reconcile(output.clone(), &row(OTHER), before, now());
        assert!(matches!(changed, Reconciled::Write(_, Some(note)) if note.contains("active again")));
    }
}

#[test]
fn fields_of_the_first_layout_move_to_the_policy_of_that_title_and_end_with_the_transition() {
    let until = rfc3339_ms(deadline(now()));
    let row = json!({"title": "한국교원대학교 학칙", "fileNo": "868"}).to_string();
    let key = "policy:한국교원대학교 학칙".to_owned();
    let shape = Policy::default().told(&[Older { key: key.clone(), value: row, until }]);
    let output = put(render(&shape, &entry("학칙.md", SHA), Some("# 한국교원대학교 학칙".as_bytes()), None));
    assert_eq!((value(&output)["fileNo"].as_str(), &output.retire), (Some("868"), &vec![key]));

    let known = prior(&output);
    let later = |days: i64| {
        let now = now().checked_add(jiff::SignedDuration::from_hours(24 * days)).unwrap();
        let moved = entry("b/학칙.md", SHA);
        let input = Input { entry: &moved, identity: "학칙", body: None, prior: Some(&known), now };
        value(&put(Policy::default().render(&input).unwrap()))
    };
    assert_eq!(later(89)["fileNo"], "868");
    assert_eq!(later(91).get("fileNo"), None);
}
