//! What is not there is not empty, and what was not asked for was not answered: no deletion without proof, and no `ok`
//! about what nobody looked at.

use std::fs;
use std::os::unix::fs::symlink;

use crate::cli::home::Home;
use crate::support::{self, git};

fn mirror(from: &str) -> Home {
    Home::new(&format!(
        "[pipelines.mirror]\nfrom = {{ store = \"{from}\" }}\ninto = \"sqlite:copy.db\"\nguard = {{ max_delete = \"100%\" }}\n"
    ))
}

/// The store a mirror reads is gone: moved away, emptied by accident, not mounted.
fn stays(home: &Home, why: &str) {
    home.run(&["sync"]).ends(1).says(&["is not there"]);
    home.run(&["plan"]).ends(1);
    home.run(&["check"]).ends(1);
    assert_eq!(home.keys("sqlite:copy.db"), ["a", "b"], "{why}");
}

#[test]
fn a_store_that_is_gone_is_no_empty_source() {
    let home = mirror("file:origin");
    home.write("origin/a", "1");
    home.write("origin/b", "2");
    home.run(&["sync"]).ends(0);
    fs::rename(home.path("origin"), home.path("away")).unwrap();
    stays(&home, "the folder was moved away");
    fs::create_dir(home.path("origin")).unwrap();
    home.run(&["sync"]).ends(0);
    assert!(home.keys("sqlite:copy.db").is_empty(), "an empty folder is empty");

    let home = mirror("sqlite:origin.db");
    home.run(&["sync"]).ends(1).says(&["is not there"]);
    for key in ["a", "b"] {
        home.run(&["kv", "put", "sqlite:origin.db", key, "1"]).ends(0);
    }
    home.run(&["sync"]).ends(0);
    fs::rename(home.path("origin.db"), home.path("away.db")).unwrap();
    stays(&home, "the file was moved away");
    fs::write(home.path("origin.db"), "").unwrap();
    stays(&home, "the file is empty, and no store");
}

#[tokio::test]
async fn a_table_that_is_gone_is_no_empty_source() {
    let database = support::postgres().await.fresh_database();
    let home = mirror(&database);
    for key in ["a", "b"] {
        home.run(&["kv", "put", &database, key, "1"]).ends(0);
    }
    home.run(&["sync"]).ends(0);
    support::postgres::query(&database, "alter table trueup_kv rename to away");
    stays(&home, "the table was renamed");
}

/// A repository of what lies in its folder, committed.
pub fn commit(home: &Home, message: &str) {
    let at = home.path("repository");
    git(&at, &["init", "-q", "--initial-branch=main"]);
    git(&at, &["add", "-A"]);
    git(&at, &["commit", "-qm", message]);
}

/// The commit is the same, and what is asked of it is not.
#[test]
fn other_patterns_ask_for_other_files_of_the_same_commit() {
    let config = |more: &str| {
        format!("[pipelines.notes]\nfrom = {{ git = \"repository\"{more} }}\ninto = \"sqlite:notes.db\"\n")
    };
    let home = Home::new(&config(", include = [\"*.md\"]"));
    for name in ["a.md", "b.md", "c.txt"] {
        home.write(&format!("repository/{name}"), name);
    }
    commit(&home, "one");
    home.run(&["sync"]).ends(0);
    assert_eq!(home.keys("sqlite:notes.db"), ["a.md", "b.md"]);
    home.write("trueup.toml", &config(""));
    assert_eq!(home.run(&["sync", "--json"]).ends(0).run()["added"], 1);
    home.write("trueup.toml", &config(", exclude = [\"a.*\"]"));
    let plan = home.run(&["plan", "--json"]).ends(0).json();
    assert_eq!(plan["plans"][0]["delete"][0]["key"], "a.md", "{plan}");
    assert_eq!(home.run(&["sync", "--json"]).ends(0).run()["deleted"], 1);
    // Nothing else is asked for: the commit tells again.
    let quiet = home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!((&quiet["unchanged"], &quiet["writes"]), (&2.into(), &0.into()));
}

#[test]
fn a_folder_that_became_a_link_to_itself_is_the_same_folder() {
    let home = Home::with_notes(1);
    home.write("notes/sub/x.md", "x");
    home.run(&["sync"]).ends(0);
    fs::rename(home.path("notes/sub"), home.path("volume")).unwrap();
    symlink("../volume", home.path("notes/sub")).unwrap();
    let run = home.run(&["sync", "--json"]).ends(0).run();
    assert_eq!((&run["unchanged"], &run["deleted"]), (&2.into(), &0.into()));
    // The volume is not mounted: what was in it is neither seen nor gone.
    fs::rename(home.path("volume"), home.path("elsewhere")).unwrap();
    home.run(&["sync"]).ends(3).says(&["sub is a symbolic link to nothing", "`exclude`"]);
    assert_eq!(home.keys("registry"), ["00.md", "sub/x.md"]);
}

#[test]
fn only_what_is_our_own_is_left_out_of_a_folder() {
    let home = Home::new(
        "[pipelines.all]\nfrom = { files = \".\", exclude = [\"all.db*\", \"/.trueup/**\"] }\ninto = \"sqlite:all.db\"\n",
    );
    home.write("sub/.trueup/theirs", "x");
    home.run(&["sync"]).ends(0);
    assert_eq!(home.keys("sqlite:all.db"), ["sub/.trueup/theirs", "trueup.toml"]);
}

/// `d\xE9/a.md`: the document has the name it had, in a folder that cannot be told.
#[test]
fn a_policy_whose_path_cannot_be_told_is_there_all_the_same() {
    use std::os::unix::ffi::OsStringExt as _;
    let odd = std::path::PathBuf::from(std::ffi::OsString::from_vec(b"d\xE9".to_vec()));
    for from in ["git = \"repository\"", "files = \"repository\", exclude = [\".git\"]"] {
        let home = Home::new(&format!(
            "[pipelines.policies]\nfrom = {{ {from} }}\nas = \"policy\"\ninto = \"sqlite:registry.db\"\n"
        ));
        home.write("repository/d/a.md", "# A\n");
        home.write("repository/b.md", "# B\n");
        commit(&home, "one");
        home.run(&["sync"]).ends(0);
        fs::rename(home.path("repository/d"), home.path("repository").join(&odd)).unwrap();
        commit(&home, "two");
        home.run(&["sync"]).ends(3).says(&["not valid UTF-8"]);
        assert!(home.keys("sqlite:registry.db").contains(&"policy:a".to_owned()), "{from}");
    }
}
