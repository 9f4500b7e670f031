//! Real repositories, read by the git program: a path, `file://`, and HTTP.

use std::path::Path;
use std::process::Command;

use trueup::pipeline::Ask;
use trueup::state::Status;
use trueup::store::Access;

use super::desk::{Desk, did};
use crate::support::{git, git_http};

/// A repository in the desk's folder, with a first commit on `main`.
pub fn repository(desk: &Desk, count: usize) -> std::path::PathBuf {
    let at = desk.folder.path().join("repository");
    std::fs::create_dir_all(at.join("policies")).unwrap();
    git(&at, &["init", "--quiet", "--initial-branch=main"]);
    for number in 0..count {
        std::fs::write(at.join(format!("policies/p{number:02}.md")), super::desk::policy(number)).unwrap();
    }
    std::fs::write(at.join("README.md"), "# Not a policy\n").unwrap();
    std::os::unix::fs::symlink("policies/p00.md", at.join("link.md")).unwrap();
    commit(&at, "first");
    at
}

pub fn commit(at: &Path, message: &str) -> String {
    git(at, &["add", "--all"]);
    git(at, &["commit", "--quiet", "--allow-empty", "-m", message]);
    git(at, &["rev-parse", "HEAD"])
}

async fn follows(desk: &Desk, at: &Path) {
    let report = desk.ran([20, 0, 0, 0]).await;
    assert_eq!(report.cursor, Some(git(at, &["rev-parse", "HEAD"])));
    assert_eq!(desk.policy("p07").await["sha"], git(at, &["rev-parse", "HEAD:policies/p07.md"]));
    desk.ran([0, 0, 0, 20]).await;
    std::fs::write(at.join("policies/p07.md"), "# Revised\n").unwrap();
    std::fs::remove_file(at.join("policies/p08.md")).unwrap();
    std::fs::create_dir(at.join("moved")).unwrap();
    std::fs::rename(at.join("policies/p09.md"), at.join("moved/p09.md")).unwrap();
    let head = commit(at, "second");
    desk.ran([0, 2, 1, 17]).await;
    assert_eq!(desk.policy("p07").await["title"], "Revised");
    assert_eq!(desk.policy("p09").await["path"], "moved/p09.md");
    assert_eq!(desk.last_commit().await, Some(head));
}

#[tokio::test]
async fn a_repository_on_this_machine_is_read_where_it_is() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    desk.from = format!("{{ git = \"{}\" }}", at.display());
    follows(&desk, &at).await;
    assert!(!desk.folder.path().join("git").exists(), "nothing is copied");
}

#[tokio::test]
async fn a_repository_behind_a_file_url_is_fetched_once_and_then_followed() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    desk.from = format!("{{ git = \"file://{}\", branch = \"main\" }}", at.display());
    follows(&desk, &at).await;
}

#[tokio::test]
async fn a_repository_behind_http_is_followed_without_any_api() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    let server = git_http::serve(desk.folder.path());
    desk.from = format!("{{ git = \"{}\", branch = \"main\" }}", server.url("/repository"));
    follows(&desk, &at).await;
}

#[tokio::test]
async fn scenario_24_a_force_push_converges() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    desk.from = format!("{{ git = \"file://{}\", branch = \"main\" }}", at.display());
    desk.ran([20, 0, 0, 0]).await;
    git(&at, &["checkout", "--quiet", "--orphan", "other"]);
    std::fs::write(at.join("policies/p03.md"), "# Rewritten\n").unwrap();
    std::fs::remove_file(at.join("policies/p04.md")).unwrap();
    let head = commit(&at, "another history");
    git(&at, &["branch", "--quiet", "-M", "main"]);
    git(&at, &["reflog", "expire", "--expire=now", "--all"]);
    git(&at, &["gc", "--quiet", "--prune=now"]);
    desk.ran([0, 1, 1, 18]).await;
    assert_eq!(
        (desk.policy("p03").await["title"].as_str(), desk.last_commit().await),
        (Some("Rewritten"), Some(head))
    );
}

#[tokio::test]
async fn a_plan_reads_a_remote_repository_and_leaves_the_cache_as_it_is() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    desk.from = format!("{{ git = \"file://{}\", branch = \"main\" }}", at.display());
    desk.ran([20, 0, 0, 0]).await;
    std::fs::write(at.join("policies/p07.md"), "# Revised\n").unwrap();
    commit(&at, "second");
    let files = || {
        let list =
            Command::new("find").arg(desk.folder.path().join("git")).args(["-type", "f"]).output().unwrap();
        String::from_utf8(list.stdout).unwrap()
    };
    let before = files();
    let preview = desk.line(Access::Read).await.preview(&Ask::plain("plan")).await.unwrap();
    assert_eq!((preview.update.len(), preview.unchanged), (1, 19));
    assert_eq!(files(), before);
}

#[tokio::test]
async fn a_damaged_cache_is_made_anew() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    desk.from = format!("{{ git = \"file://{}\", branch = \"main\" }}", at.display());
    desk.ran([20, 0, 0, 0]).await;
    let copy = std::fs::read_dir(desk.folder.path().join("git")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(copy.join("shallow.lock"), "").unwrap();
    std::fs::write(at.join("policies/p07.md"), "# Revised\n").unwrap();
    commit(&at, "second");
    desk.ran([0, 1, 0, 19]).await;
}

/// The content of another blob in the place of this one, as git keeps single objects.
fn exchange(at: &Path, path: &str, with: &str) -> std::path::PathBuf {
    let place = |path: &str| {
        let sha = git(at, &["rev-parse", &format!("HEAD:{path}")]);
        at.join(format!(".git/objects/{}/{}", &sha[..2], &sha[2..]))
    };
    let (place, other) = (place(path), place(with));
    let kept = at.join("kept");
    std::fs::rename(&place, &kept).unwrap();
    std::fs::copy(other, place).unwrap();
    kept
}

#[tokio::test]
async fn a_damaged_object_is_not_taken_for_its_document() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    desk.from = format!("{{ git = \"{}\" }}", at.display());
    let kept = exchange(&at, "policies/p03.md", "policies/p04.md");
    let report = desk.run().await;
    assert_eq!(
        (did(&report), report.counts.failed, report.exit_code()),
        ([19, 0, 0, 0], 1, 3),
        "{report:#?}"
    );
    assert!(report.errors[0].remedy.contains("fsck"), "{report:#?}");
    let sha = git(&at, &["rev-parse", "HEAD:policies/p03.md"]);
    std::fs::rename(kept, at.join(format!(".git/objects/{}/{}", &sha[..2], &sha[2..]))).unwrap();
    desk.ran([1, 0, 0, 19]).await;
    assert_eq!(desk.policy("p03").await["title"], "Policy 3");
}

#[tokio::test]
async fn a_document_is_what_its_sha_says_and_not_what_git_is_told_to_show_for_it() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    git(&at, &["replace", "HEAD:policies/p03.md", "HEAD:policies/p04.md"]);
    desk.from = format!("{{ git = \"{}\" }}", at.display());
    desk.ran([20, 0, 0, 0]).await;
    assert_eq!(desk.policy("p03").await["title"], "Policy 3");
}

#[tokio::test]
async fn what_cannot_be_reached_fails_the_run_and_names_it() {
    let mut desk = Desk::new();
    let at = repository(&desk, 20);
    for (from, named) in [
        (format!("{{ git = \"{}/nope\" }}", at.display()), "nope"),
        (format!("{{ git = \"file://{}\", branch = \"nope\" }}", at.display()), "nope"),
        (format!("{{ git = \"{}\", branch = \"nope\" }}", at.display()), "nope"),
    ] {
        desk.from = from;
        let report = desk.run().await;
        assert_eq!((report.status, did(&report)), (Status::Failed, [0; 4]));
        assert!(report.errors[0].message.contains(named), "{:?}", report.errors);
    }
}
