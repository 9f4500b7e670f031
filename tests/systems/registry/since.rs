//! A repository that moved on is read by what differs between two commits, and ends where a whole reading would.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trueup::pipeline::{Ask, Pipeline};
use trueup::state::Report;
use trueup::store::{Access, Item, StoreExt as _};

use super::desk::{Desk, did, policy};
use super::repositories::{commit, repository};
use crate::support::counted::{Counted, Counts};
use crate::support::git;

fn following(count: usize) -> (Desk, PathBuf) {
    let mut desk = Desk::new();
    let at = repository(&desk, count);
    desk.from = format!("{{ git = \"file://{}\", branch = \"main\" }}", at.display());
    (desk, at)
}

/// A run, and what it asked of the registry.
async fn counted(desk: &Desk) -> (Report, Counts) {
    let line = desk.line(Access::Write).await;
    let store = Arc::new(Counted::new(line.store.clone()));
    let line = Pipeline { store: store.clone(), ..line };
    (line.run(&Ask::plain("test")).await.unwrap(), store.counts())
}

#[tokio::test]
async fn a_change_is_found_without_listing_anything() {
    let (desk, at) = following(90);
    desk.ran([90, 0, 0, 0]).await;
    std::fs::write(at.join("policies/p07.md"), "# Revised\n").unwrap();
    std::fs::write(at.join("policies/new.md"), "# New\n").unwrap();
    std::fs::remove_file(at.join("policies/p08.md")).unwrap();
    std::fs::rename(at.join("policies/p09.md"), at.join("p09.md")).unwrap();
    let head = commit(&at, "second");
    let (report, asked) = counted(&desk).await;
    assert_eq!((did(&report), report.exit_code()), ([1, 2, 1, 87], 0), "{report:#?}");
    assert_eq!((report.counts.scanned, report.cursor.as_ref()), (90, Some(&head)));
    assert!(asked.lists == 0 && asked.read < 10, "{asked:?}");
    assert_eq!(desk.last_run().await["totalProcessed"], 90);
    assert_eq!(
        (desk.policy("p09").await["path"].as_str(), desk.last_commit().await),
        (Some("p09.md"), Some(head))
    );
    let (report, asked) = counted(&desk).await;
    assert_eq!(
        (did(&report), asked.lists),
        ([0, 0, 0, 90], 0),
        "and the next one stands on what this one left"
    );
}

#[tokio::test]
async fn a_row_changed_behind_our_back_is_noticed_whatever_changed_at_the_source() {
    let (desk, at) = following(30);
    desk.ran([30, 0, 0, 0]).await;
    for (lost, revised) in [("policy:p03", "p07"), ("policy:p04", "p04")] {
        desk.store().await.write_one(Item::delete(lost)).await.unwrap();
        std::fs::write(at.join(format!("policies/{revised}.md")), format!("# Revised for {lost}\n")).unwrap();
        commit(&at, lost);
        let report = desk.run().await;
        let expected = if lost.ends_with(revised) { 1 } else { 2 };
        assert_eq!((did(&report), report.exit_code()), ([0, expected, 0, 30 - expected], 0), "{report:#?}");
    }
    desk.intrude("policy:stranger", &serde_json::json!({ "what": "is this" })).await;
    std::fs::write(at.join("policies/p05.md"), "# Revised\n").unwrap();
    commit(&at, "beside a stranger");
    let (report, asked) = counted(&desk).await;
    assert_eq!(did(&report), [0, 1, 0, 29]);
    assert!(asked.lists > 0, "a key nobody wrote makes the sums differ");
}

#[tokio::test]
async fn a_mass_deletion_is_held_as_if_the_tree_had_been_listed() {
    let (desk, at) = following(90);
    desk.ran([90, 0, 0, 0]).await;
    for number in 0..80 {
        std::fs::remove_file(at.join(format!("policies/p{number:02}.md"))).unwrap();
    }
    std::fs::write(at.join("policies/p85.md"), "# Revised\n").unwrap();
    commit(&at, "nearly all");
    let report = desk.run().await;
    assert_eq!((did(&report), report.counts.held_by.delete), ([0, 1, 0, 9], 80), "{report:#?}");
    assert_eq!(desk.names().await.len(), 90);
    let report = desk.run().await;
    assert_eq!((report.counts.held, report.exit_code()), (80, 4), "still held");
    assert_eq!(desk.approve().await.counts.deleted, 80);
    desk.ran([0, 0, 0, 10]).await;
}

#[tokio::test]
async fn a_history_that_is_gone_is_listed() {
    let (desk, at) = following(20);
    desk.ran([20, 0, 0, 0]).await;
    std::fs::remove_dir_all(desk.folder.path().join("git")).ok();
    std::fs::write(at.join("policies/p05.md"), "# Revised\n").unwrap();
    commit(&at, "second");
    desk.ran([0, 1, 0, 19]).await;
}

#[tokio::test]
async fn what_was_left_in_a_registry_is_not_believed_after_runs_into_another() {
    let (mut desk, at) = following(20);
    desk.ran([20, 0, 0, 0]).await;
    let other = format!("\"file:{}/other\"", desk.folder.path().display());
    let usual = std::mem::replace(&mut desk.into, other);
    std::fs::write(at.join("policies/p05.md"), "# Revised\n").unwrap();
    commit(&at, "while away");
    desk.run().await;
    desk.into = usual;
    desk.run().await;
    assert_eq!(actual(&desk).await, expected(&at));
}

/// What the registry should hold, by the tree alone: of files with one name the smaller path counts.
fn expected(at: &Path) -> BTreeMap<String, (String, String)> {
    let mut rows = BTreeMap::new();
    for line in git(at, &["ls-tree", "-r", "HEAD"]).lines() {
        let (head, path) = line.split_once('\t').unwrap();
        let words: Vec<&str> = head.split(' ').collect();
        let name = path.rsplit('/').next().unwrap();
        let Some(stem) = name.strip_suffix(".md").filter(|stem| *stem != "README" && words[0] != "120000")
        else {
            continue;
        };
        let row = (path.to_owned(), words[2].to_owned());
        let kept: &mut (String, String) = rows.entry(stem.to_owned()).or_insert_with(|| row.clone());
        if row.0 < kept.0 {
            *kept = row;
        }
    }
    rows
}

async fn actual(desk: &Desk) -> BTreeMap<String, (String, String)> {
    let rows = desk.held("policy:").await.into_iter().map(|(key, row)| {
        let row: serde_json::Value = serde_json::from_str(&row).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (key["policy:".len()..].to_owned(), (text("path"), text("sha")))
    });
    rows.collect()
}

const FOLDERS: [&str; 3] = ["a", "b", "policies"];

/// A file that comes, goes, changes or moves; now and then beside another one of its name.
fn edit(at: &Path, random: &mut impl FnMut(usize) -> usize, turn: usize) {
    let name = format!("p{:02}.md", random(45));
    let there = FOLDERS.iter().map(|folder| at.join(folder).join(&name)).find(|path| path.is_file());
    let other = at.join(FOLDERS[random(3)]).join(&name);
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    let path = there.filter(|_| random(6) > 0).unwrap_or(other.clone());
    match random(5) {
        0 => drop(std::fs::remove_file(&path)),
        1 => drop(std::fs::rename(&path, other)),
        kind => {
            drop(std::fs::remove_file(&path));
            if kind == 2 && random(4) == 0 {
                std::os::unix::fs::symlink("README.md", &path).unwrap();
            } else {
                std::fs::write(&path, format!("{}Turn {turn}.\n", policy(turn))).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn whatever_happens_following_and_listing_come_to_the_same() {
    let (mut followed, mut listed) = (0, 0);
    for seed in 1..=4u64 {
        let (desk, at) = following(40);
        desk.run().await;
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        for turn in 0..12 {
            for _ in 0..=random(2) {
                edit(&at, &mut random, turn);
            }
            commit(&at, "more");
            let (report, asked) = counted(&desk).await;
            assert_eq!(report.counts.failed + report.counts.held, 0, "seed {seed}, turn {turn}: {report:#?}");
            assert_eq!(actual(&desk).await, expected(&at), "seed {seed}, turn {turn}: {report:#?}");
            *(if asked.lists == 0 { &mut followed } else { &mut listed }) += 1;
        }
    }
    assert!(followed > 5 && listed > 5, "both ways were taken: {followed}, {listed}");
}
