//! Rows: what canonical hashing, a run with nothing to do and a first load cost, as ratios to the plainest way of doing
//! the same in the same run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use trueup::clock::SystemClock;
use trueup::config::Config;
use trueup::http::{Ask as Request, Http};
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Pipeline};
use trueup::shape::canonical;
use trueup::store::Access;

use crate::harness::{Bench, Group, Job, Measured, Outcome, runtime, web};
use crate::support;

mod dlt;

/// Each side is measured this often, in turns; the best of each counts.
const ROUNDS: usize = 3;
const PARENTS: usize = 1_000;
const CHILDREN: usize = 99;
const ROWS: usize = PARENTS * (CHILDREN + 1);
const CONCURRENCY: usize = 4;

const RECIPE: &str = r#"
base = "${API}"
[[resources]]
name = "cases"
path = "/cases"
key = "id"
columns = { id = "integer", title = "text", status = "text", updated = "timestamp" }
[[resources]]
name = "votes"
path = "/votes/{cases.id}"
key = "id"
columns = { id = "integer", case_id = "integer", title = "text", text = "text", passed = "boolean", at = "timestamp" }
"#;

pub const JOBS: &[Job] = &[];

pub const GROUPS: &[Group] =
    &[("hashing", hashing), ("no-op", nothing_to_do), ("load", first_load), ("dlt", dlt::against_dlt)];

fn compared(bench: &mut Bench, what: &str, allowed: f64, floor: Duration, ours: Duration) {
    bench.compared(what, allowed, (Measured::took(floor), Measured::took(ours)));
}

fn vote(case: usize, n: usize) -> Value {
    let id = case * 1_000 + n;
    json!({
        "id": id, "case_id": case, "title": format!("Vote {n} on case {case}"), "passed": n.is_multiple_of(2),
        "text": "A text of some length, with \"quotes\", æøå and a few more words so that the row has its 300 bytes or so, give or take a few.",
        "at": "2026-11-15T12:00:00.000Z",
    })
}

#[allow(clippy::unnecessary_wraps)] // a group of figures
fn hashing(bench: &mut Bench) -> Outcome<()> {
    const COUNT: usize = 300_000;
    let row = vote(105_116, 7);
    let (mut floor, mut ours) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..COUNT {
            std::hint::black_box(Sha256::digest(serde_json::to_vec(std::hint::black_box(&row)).unwrap()));
        }
        floor = floor.min(start.elapsed());
        let start = Instant::now();
        for _ in 0..COUNT {
            std::hint::black_box(canonical::fingerprint(std::hint::black_box(&row)));
        }
        ours = ours.min(start.elapsed());
    }
    let bytes = canonical::to_vec(&row).len();
    let what =
        format!("canonicalise and hash {COUNT} rows of {bytes} B, against plain serialise and SHA-256");
    compared(bench, &what, 1.5, floor, ours);
    Ok(())
}

/// Answers made once.
fn serve() -> String {
    let cases: Vec<Value> = (0..PARENTS)
        .map(|id| json!({"id": id, "title": format!("Case {id}"), "status": "open", "updated": "2026-11-15T12:00:00.000Z"}))
        .collect();
    let cases: Arc<str> = Value::from(cases).to_string().into();
    let votes = |case| (0..CHILDREN).map(|n| vote(case, n)).collect::<Value>().to_string().into();
    let votes: Vec<Arc<str>> = (0..PARENTS).map(votes).collect();
    let page = move |path: &str| match path.strip_prefix("/votes/") {
        Some(case) => votes.get(case.parse::<usize>().ok()?).cloned(),
        None => Some(cases.clone()),
    };
    web::serve(page).unwrap()
}

/// Fetch and parse everything the source would, and nothing else.
async fn fetch(api: &str) -> Duration {
    let http = Arc::new(Http::new(SystemClock::new()).unwrap());
    let start = Instant::now();
    let get = |path: String| {
        let (http, url) = (http.clone(), format!("{api}{path}"));
        tokio::spawn(async move {
            let ask = Request::get(url.parse().unwrap(), Duration::from_secs(60), 64 << 20);
            let body = http.send(&ask).await.unwrap().body;
            serde_json::from_slice::<Value>(&body).unwrap().as_array().unwrap().len()
        })
    };
    let mut rows = get("/cases".into()).await.unwrap();
    let mut votes =
        stream::iter(0..PARENTS).map(|case| get(format!("/votes/{case}"))).buffer_unordered(CONCURRENCY);
    while let Some(count) = votes.next().await {
        rows += count.unwrap();
    }
    assert_eq!(rows, ROWS);
    start.elapsed()
}

fn config(database: &str) -> String {
    format!(
        "[pipelines.p]\nfrom = {{ rest = \"recipe.toml\" }}\nas = \"rows\"\ninto = {{ tables = \"{database}\" }}\n"
    )
}

async fn sync(api: &str, folder: &Path, database: &str) -> (Duration, u64) {
    std::fs::write(folder.join("recipe.toml"), RECIPE).unwrap();
    let env = |name: &str| (name == "API").then(|| api.to_owned());
    let config = Config::parse(&config(database), &folder.join("trueup.toml"), &env).unwrap();
    let start = Instant::now();
    let memory = Memory::open(&config, Access::Write, SystemClock::new()).await.unwrap();
    let line = Pipeline::open(&config.pipelines["p"], &memory, Access::Write).await.unwrap();
    let report = line.run(&Ask::plain("bench")).await.unwrap();
    assert_eq!(report.counts.scanned, ROWS as u64, "{report:#?}");
    (start.elapsed(), report.writes)
}

fn nothing_to_do(bench: &mut Bench) -> Outcome<()> {
    let (floor, ours) = runtime()?.block_on(no_op(&serve()));
    let what = format!("sync {ROWS} rows with nothing to do (SQLite), against fetching and parsing them");
    compared(bench, &what, 1.5, floor, ours);
    Ok(())
}

async fn no_op(api: &str) -> (Duration, Duration) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    sync(api, folder.path(), "sqlite:rows.db").await;
    let (mut floor, mut ours) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        floor = floor.min(fetch(api).await);
        let (took, writes) = sync(api, folder.path(), "sqlite:rows.db").await;
        assert_eq!(writes, 0);
        ours = ours.min(took);
    }
    (floor, ours)
}

fn first_load(bench: &mut Bench) -> Outcome<()> {
    let (copy, fetched, ours) = runtime()?.block_on(loads(&serve()));
    let what = format!("first load of {ROWS} rows into PostgreSQL, against COPY of rows and cache entries");
    compared(bench, &what, 2.0, copy, ours);
    let what = "the same, against fetching, parsing and then COPY";
    compared(bench, what, 2.0, fetched + copy, ours);
    Ok(())
}

async fn loads(api: &str) -> (Duration, Duration, Duration) {
    let postgres = support::postgres().await;
    let (mut copy, mut ours, mut fetched) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dsn = postgres.fresh_database();
        ours = ours.min(sync(api, folder.path(), &dsn).await.0);
        copy = copy.min(copied(&dsn, folder.path()));
        fetched = fetched.min(fetch(api).await);
    }
    (copy, fetched, ours)
}

/// What was loaded, dumped to files and copied into the same layout, emptied.
fn copied(dsn: &str, folder: &Path) -> Duration {
    let tables = ["cases", "votes", "sync_cache"];
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let psql = |commands: &[String]| {
        let mut psql = std::process::Command::new("psql");
        for command in commands {
            psql.args(["-c", command]);
        }
        let output = psql.args(["-q", dsn]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let file = |table: &str| folder.join(table).display().to_string();
    psql(&tables.map(|table| format!("\\copy {table} to '{}'", file(table))));
    psql(&tables.map(|table| format!("truncate {table}")));
    let start = Instant::now();
    psql(&tables.map(|table| format!("\\copy {table} from '{}'", file(table))));
    start.elapsed()
}
