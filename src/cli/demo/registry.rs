//! The demo's chapter on policies in a git repository: only what a commit changed is read, and a queue for whoever works
//! on it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Step, Story};
use crate::error::{Error, Kind, Result, from_io};

const CONFIG: &str = r#"[stores]
registry = "sqlite:.trueup/rules.db"

[pipelines.rules]
from = { git = "rules", branch = "main" }
as   = "policy"
into = "registry"
"#;

/// Name, title, text.
const RULES: [(&str, &str, &str); 5] = [
    ("admission", "Rules on admission", "Applications are open until 1 March."),
    ("examination", "Rules on examinations", "An examination may be repeated once."),
    ("library", "Rules of the library", "Books are lent for four weeks."),
    ("scholarship", "Rules on scholarships", "A scholarship lasts for two terms."),
    ("tuition", "Rules on tuition", "Tuition is due when the term begins."),
];

impl Story<'_> {
    /// Policies of a repository as rows of a registry, followed commit by commit.
    pub(super) async fn registry(&mut self) -> Result<()> {
        if !has_git() {
            self.say(
                "There is a chapter on git repositories, too; it is left out, as git is not installed here.",
            );
            return Ok(());
        }
        self.write("registry.toml", CONFIG)?;
        for (name, title, text) in RULES {
            self.write(&format!("rules/policies/{name}.md"), &rule(title, text))?;
        }
        self.write("rules/README.md", "# Not a policy\n")?;
        git(&self.folder.join("rules"), &["init", "--quiet", "--initial-branch=main"])?;
        self.commit("The rules as they are")?;
        let before = std::mem::replace(&mut self.desk.config, self.folder.join("registry.toml"));
        let told = self.terms().await;
        self.desk.config = before;
        told
    }

    async fn terms(&mut self) -> Result<()> {
        self.say("Another system: a git repository of policies, as a registry. Five documents, and a readme that is none.");
        self.step("sync", 0, Step::Sync).await?;
        self.say("Somebody commits a change. The tree says which blob is new: that one is read, one row is written.");
        self.write(
            "rules/policies/admission.md",
            &rule("Rules on admission", "Applications close on 1 April."),
        )?;
        self.commit("A later date")?;
        self.step("sync", 0, Step::Sync).await?;
        self.say("Beside each row waits an entry for whoever works on it. It was never worked on: it is still an addition.");
        self.step("kv get registry queue:admission", 0, Step::Get("registry", "queue:admission")).await?;
        self.step("queue take", 0, Step::Take).await?;
        self.step("queue done policy:admission", 0, Step::Done("policy:admission")).await?;
        self.say("Done: four are left, in the queue and in the registry.");
        self.step("queue ls", 0, Step::Queue).await
    }

    fn commit(&self, message: &str) -> Result<()> {
        let at = self.folder.join("rules");
        git(&at, &["add", "--all"])?;
        git(&at, &["commit", "--quiet", "-m", message])
    }
}

fn rule(title: &str, text: &str) -> String {
    format!("# {title}\n\n{text}\n")
}

fn has_git() -> bool {
    let tried = Command::new("git").arg("--version").stdin(Stdio::null()).output();
    tried.is_ok_and(|done| done.status.success())
}

/// Run git on the demo's own repository, whatever the user's settings are.
fn git(at: &Path, args: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").arg("-C").arg(at);
    for setting in ["user.name=demo", "user.email=demo@example.org", "core.autocrlf=false", "gc.auto=0"] {
        command.args(["-c", setting]);
    }
    let done = command.args(args).stdin(Stdio::null()).output();
    let done = done.map_err(|error| from_io(error, "starting git"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(Error::new(Kind::Invalid, format!("git {} failed: {}", args.join(" "), said.trim())))
}
