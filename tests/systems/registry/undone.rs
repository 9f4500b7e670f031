//! What an undo brings back has its object again, although nobody kept the document.

use trueup::pipeline::Ask;
use trueup::queue::dead;
use trueup::state::{Report, Status};
use trueup::store::Access;

use super::desk::{Desk, policy};
use super::repositories::{commit, repository};
use crate::support::git;

async fn undo(desk: &Desk, run: &str) -> Report {
    desk.line(Access::Write).await.undo(run, &Ask::plain("undo"), None).await.unwrap()
}

/// Every row has its object, and every object its row's document.
async fn objects_are_the_rows(desk: &Desk, count: usize) {
    assert_eq!((desk.names().await.len(), desk.objects()), (count, count));
    for name in desk.names().await {
        let (row, object) = (desk.policy(&name).await, desk.object(&name).unwrap());
        assert!(object.contains(&format!("sha: {}", row["sha"])), "{row} {object}");
    }
    for place in ["queue:", "dead-letter:"] {
        assert!(desk.held(place).await.is_empty(), "{place}");
    }
}

/// Two policies removed and one changed by the second run, and that run undone.
async fn taken_back(desk: &Desk, second: &Report) {
    assert_eq!((second.counts.updated, second.counts.deleted, desk.objects()), (1, 2, 18));
    let undone = undo(desk, &second.id).await;
    assert_eq!((undone.status, undone.dead), (Status::Ok, 0), "{undone:#?}");
    objects_are_the_rows(desk, 20).await;
    for number in [3, 10, 11] {
        assert!(desk.object(&format!("p{number:02}")).unwrap().ends_with(&policy(number)));
    }
}

#[tokio::test]
async fn an_undo_asks_github_for_the_documents_it_brings_back() {
    let desk = Desk::with_policies(20).exporting();
    desk.ran([20, 0, 0, 0]).await;
    desk.hub.remove("policies/p10.md");
    desk.hub.remove("policies/p11.md");
    desk.hub.put("policies/p03.md", "# Revised\n");
    let second = desk.run().await;
    desk.hub.asked();
    taken_back(&desk, &second).await;
    assert_eq!(desk.hub.asked(), [0, 0, 3], "by their SHAs, and nothing else");
    desk.run().await;
    objects_are_the_rows(&desk, 20).await;
}

#[tokio::test]
async fn an_undo_finds_the_documents_it_brings_back_in_a_git_repository() {
    for scheme in ["", "file://"] {
        let mut desk = Desk::new().exporting();
        let at = repository(&desk, 20);
        desk.from = format!("{{ git = \"{scheme}{}\", branch = \"main\" }}", at.display());
        desk.ran([20, 0, 0, 0]).await;
        git(&at, &["rm", "--quiet", "policies/p10.md", "policies/p11.md"]);
        std::fs::write(at.join("policies/p03.md"), "# Revised\n").unwrap();
        commit(&at, "second");
        let second = desk.run().await;
        taken_back(&desk, &second).await;
        git(&at, &["revert", "--no-edit", "HEAD"]);
        desk.run().await;
        desk.ran([0, 0, 0, 20]).await;
        objects_are_the_rows(&desk, 20).await;
    }
}

#[tokio::test]
async fn an_undo_whose_document_is_gone_for_good_is_partial_and_says_so() {
    let desk = Desk::with_policies(20).exporting();
    desk.ran([20, 0, 0, 0]).await;
    let document = desk.hub.remove("policies/p10.md");
    let second = desk.ran([0, 0, 1, 19]).await;
    desk.hub.forget_history();
    let undone = undo(&desk, &second.id).await;
    assert_eq!((undone.status, undone.dead, undone.exit_code()), (Status::Partial, 1, 3), "{undone:#?}");
    assert_eq!((desk.names().await.len(), desk.objects()), (20, 19));
    let letter = desk.value("dead-letter:p10").await.unwrap();
    assert!(letter["errorMessage"].as_str().unwrap().contains("does not have it any more"), "{letter}");
    desk.hub.put("policies/p10.md", document);
    desk.run().await;
    let line = desk.line(Access::Write).await;
    dead::retry(&line.state, &dead::all(&line.state).await.unwrap()).await.unwrap();
    desk.run().await;
    objects_are_the_rows(&desk, 20).await;
}

/// A folder has no versions to ask for: what it holds today is not put beside the row of yesterday.
#[tokio::test]
async fn an_undo_never_puts_another_document_beside_a_row() {
    let mut desk = Desk::new().exporting();
    let at = desk.folder.path().join("documents");
    std::fs::create_dir(&at).unwrap();
    std::fs::write(at.join("a.md"), "# One\n").unwrap();
    std::fs::write(at.join("b.md"), "# One\n").unwrap();
    desk.from = format!("{{ files = \"{}\" }}", at.display());
    desk.ran([2, 0, 0, 0]).await;
    std::fs::write(at.join("a.md"), "# Another\n").unwrap();
    let second = desk.ran([0, 1, 0, 1]).await;
    let undone = undo(&desk, &second.id).await;
    assert_eq!((undone.dead, desk.policy("a").await["title"].as_str()), (1, Some("One")));
    std::fs::write(at.join("a.md"), "# One\n").unwrap();
    let line = desk.line(Access::Write).await;
    dead::retry(&line.state, &dead::all(&line.state).await.unwrap()).await.unwrap();
    desk.run().await;
    objects_are_the_rows(&desk, 2).await;
}
