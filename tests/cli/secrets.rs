//! A secret that went in never comes out: not in a message, not in a report, not in state or store.

use std::fs;
use std::path::Path;

use super::home::Home;

/// What must never be seen again.
const CANARY: &str = "c4n4ry-7f3e-sings";

/// A secret in every place the config has for one, and in URLs where people put them anyway.
const CONFIG: &str = r#"
[stores]
bucket = { url = "s3://bucket/prefix", endpoint = "http://127.0.0.1:9", region = "none", access_key_env = "CANARY", secret_key_file = "canary.txt" }

[pipelines.notes]
from = { files = "notes" }
into = "sqlite:.trueup/registry.db"
then = [
  { webhook = "http://user:${CANARY}@127.0.0.1:9/${CANARY}?token=${CANARY}", secret_env = "CANARY" },
  { command = ["false", "${CANARY}"] },
]
notify = { webhook = "http://127.0.0.1:9/${CANARY}", after = 1 }

[pipelines.objects]
from = { files = "notes" }
into = "bucket"
"#;

fn hunt(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            hunt(&path, found);
        } else if path.file_name().unwrap() != "canary.txt" && has(&fs::read(&path).unwrap()) {
            found.push(path.display().to_string());
        }
    }
}

fn has(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
}

#[test]
fn no_command_shows_a_secret_and_nothing_keeps_one() {
    let home = Home::new(CONFIG);
    home.write("canary.txt", CANARY);
    home.write("notes/a.md", "a");
    let mut seen = Vec::new();
    let mut commands = 0;
    for args in [
        "check",
        "plan notes",
        "plan",
        "sync notes",
        "sync",
        "status",
        "runs",
        "held",
        "why a.md",
        "audit notes",
        "queue ls",
        "queue work",
        "dead ls",
        "kv ls bucket",
        "kv get bucket a",
        "sync --full notes",
        "no-such-command",
    ] {
        for extra in [&["-v"][..], &["--json"]] {
            let args: Vec<&str> = args.split(' ').chain(extra.iter().copied()).collect();
            let out = home.command(&args).env("CANARY", CANARY).output().unwrap();
            commands += 1;
            if has(&out.stdout) || has(&out.stderr) {
                seen.push(args.join(" "));
            }
        }
    }
    hunt(&home.path(""), &mut seen);
    assert!(seen.is_empty(), "the canary sings in {seen:?}");
    assert!(commands > 30 && home.path(".trueup/registry.db").exists(), "something was run at all");
}

#[test]
fn a_config_that_cannot_be_read_does_not_quote_a_secret() {
    for line in [
        "into = \"s3://bucket?endpint=${CANARY}\"",
        "into = \"postgres://user:${CANARY}@127.0.0.1:9/db?nonsense=1\"",
        "into = \"postgre://user:${CANARY}@127.0.0.1:9/db\"",
        "then = { webhook = \"ftp://${CANARY}/x\" }\ninto = \"memory:\"",
        "token_env = \"CANARY\"\ninto = \"memory:\"",
        "when = \"${CANARY}\"\ninto = \"memory:\"",
    ] {
        let home = Home::new(&format!("[pipelines.x]\nfrom = {{ files = \"notes\" }}\n{line}\n"));
        home.write("notes/a", "a");
        let out = home.command(&["sync", "-v"]).env("CANARY", CANARY).output().unwrap();
        assert!(!has(&out.stdout) && !has(&out.stderr), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
