//! Which files are policies, what they are called, and what becomes of those that cannot be used.

use super::desk::{Desk, did};

#[tokio::test]
async fn scenario_14_readmes_and_other_files_are_nobody() {
    let desk = Desk::new();
    for path in ["README.md", "docs/Readme.MD", "notes.txt", "readme-x.md"] {
        desk.hub.put(path, "# Title\n");
    }
    let report = desk.ran([1, 0, 0, 0]).await;
    assert_eq!((report.counts.scanned, report.counts.skipped), (1, 0));
    assert_eq!(desk.names().await, ["readme-x"]);
}

#[tokio::test]
async fn scenario_15_a_document_without_heading_is_called_by_its_name() {
    let desk = Desk::new();
    desk.hub.put("untitled.md", "no heading\n");
    desk.hub.put("windows.md", "\u{FEFF}# 학칙\r\n\r\n본문\r\n");
    let report = desk.ran([2, 0, 0, 0]).await;
    assert_eq!(desk.policy("untitled").await["title"], "untitled");
    assert_eq!(desk.policy("windows").await["title"], "학칙");
    assert!(report.warnings.iter().any(|text| text.contains("untitled.md")), "{:?}", report.warnings);
}

#[tokio::test]
async fn scenario_16_a_document_that_became_empty_keeps_its_entry() {
    let desk = Desk::with_policies(12);
    desk.ran([12, 0, 0, 0]).await;
    let before = desk.policy("p03").await;
    desk.hub.put("policies/p03.md", "");
    desk.hub.asked();
    for _ in 0..2 {
        let report = desk.run().await;
        assert_eq!((did(&report)[2], report.counts.skipped, report.exit_code()), (0, 1, 0), "{report:#?}");
        assert!(report.warnings.iter().any(|text| text.contains("p03.md")), "on every run: {report:#?}");
        assert_eq!(desk.policy("p03").await, before);
        assert_eq!(desk.last_commit().await, Some(desk.hub.head()), "it holds nothing back");
    }
    assert_eq!(desk.hub.asked(), [2, 1, 0]);
}

#[tokio::test]
async fn scenario_17_a_file_that_is_too_large_is_not_fetched_and_keeps_its_entry() {
    let desk = Desk::with_policies(12);
    desk.ran([12, 0, 0, 0]).await;
    let before = desk.policy("p03").await;
    desk.hub.put("policies/p03.md", vec![b'x'; 1_500_000]);
    desk.hub.asked();
    let report = desk.ran([0, 0, 0, 11]).await;
    assert_eq!((report.counts.skipped, desk.hub.asked()), (1, [1, 1, 0]));
    assert_eq!(desk.policy("p03").await, before);
}

#[tokio::test]
async fn scenario_18_of_two_files_with_one_name_the_smaller_path_wins_on_every_run() {
    let desk = Desk::new();
    desk.hub.put("b/학칙.md", "# B\n");
    desk.hub.put("a/학칙.md", "# A\n");
    for run in 1..=5 {
        let report = desk.run().await;
        let expected = if run == 1 { [1, 0, 0, 0] } else { [0, 0, 0, 1] };
        assert_eq!((did(&report), report.counts.skipped, report.exit_code()), (expected, 1, 0), "run {run}");
        assert!(
            report.warnings.iter().any(|text| text.contains("b/학칙.md")),
            "run {run}: {:?}",
            report.warnings
        );
        assert_eq!(desk.policy("학칙").await["path"], "a/학칙.md");
        desk.hub.put("unrelated.txt", format!("{run}"));
    }
    desk.hub.remove("a/학칙.md");
    desk.ran([0, 1, 0, 0]).await;
    assert_eq!(desk.policy("학칙").await["title"], "B");
}

#[tokio::test]
async fn a_folder_of_documents_is_a_registry_too() {
    let mut desk = Desk::new();
    let at = desk.folder.path().join("policies");
    std::fs::create_dir_all(at.join("below")).unwrap();
    std::fs::write(at.join("one.md"), "# One\n").unwrap();
    std::fs::write(at.join("below/two.md"), "# Two\n").unwrap();
    desk.from = format!("{{ files = \"{}\" }}", at.display());
    desk.ran([2, 0, 0, 0]).await;
    desk.ran([0, 0, 0, 2]).await;
    let run = desk.last_run().await;
    assert_eq!((&run["totalProcessed"], &run["status"]), (&2.into(), &"success".into()));
}
