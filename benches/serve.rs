//! A server under load: what a fixed rate of reads costs a sync that runs at the same time, and how long the reads take.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Bench, Group, Job, Measured, Outcome, runtime};

/// Reads per second, whatever the answers take: an open loop shows queues that a closed one hides.
const READS_PER_SECOND: u64 = 500;
const NOTES: usize = 10_000;
/// Each side is measured this often, in turns; the best of each counts.
const ROUNDS: usize = 3;

pub const JOBS: &[Job] = &[];

pub const GROUPS: &[Group] = &[("overview", overview), ("reads", reads_beside_a_sync)];

struct Serving {
    child: Child,
    url: String,
    folder: tempfile::TempDir,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Some notes, and this many pipelines that have nothing to do.
fn serve(pipelines: usize, notes: usize) -> Serving {
    let folder = tempfile::tempdir().unwrap();
    let mut config =
        "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"sqlite:notes.db\"\n".to_owned();
    for number in 1..pipelines {
        config.push_str(&format!(
            "[pipelines.p{number}]\nfrom = {{ files = \"none\" }}\ninto = \"sqlite:{number}.db\"\nwhen = \"0 16 * * *\"\n"
        ));
    }
    std::fs::write(folder.path().join("trueup.toml"), config).unwrap();
    fill(&folder.path().join("notes"), notes);
    let mut child = Command::new(env!("CARGO_BIN_EXE_trueup"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    Serving { child, url: first.split(' ').nth(2).unwrap().to_owned(), folder }
}

fn fill(folder: &Path, notes: usize) {
    std::fs::create_dir_all(folder).unwrap();
    for number in 0..notes {
        std::fs::write(folder.join(format!("{number:06}.md")), format!("note {number}\n").repeat(20))
            .unwrap();
    }
}

async fn sync(client: &reqwest::Client, serving: &Serving) -> Duration {
    let started = Instant::now();
    let answer = client.post(format!("{}/api/pipelines/notes/run", serving.url)).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    started.elapsed()
}

async fn read(client: reqwest::Client, url: String, due: Instant) -> Duration {
    let answer = client.get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap();
    due.elapsed()
}

/// A sync with reads at the fixed rate; how long it took, and how long each read did.
async fn loaded(client: &reqwest::Client, serving: &Serving) -> (Duration, Vec<Duration>) {
    let url = format!("{}/api/pipelines", serving.url);
    let syncing = sync(client, serving);
    let mut syncing = std::pin::pin!(syncing);
    let mut beat = tokio::time::interval(Duration::from_micros(1_000_000 / READS_PER_SECOND));
    let mut reads = tokio::task::JoinSet::new();
    let took = loop {
        tokio::select! {
            took = &mut syncing => break took,
            _ = beat.tick() => drop(reads.spawn(read(client.clone(), url.clone(), Instant::now()))),
        }
    };
    let mut times = reads.join_all().await;
    times.sort();
    (took, times)
}

fn reads_beside_a_sync(bench: &mut Bench) -> Outcome<()> {
    let notes = bench.size(NOTES, 1_000);
    let (alone, beside, p99) = runtime()?.block_on(in_turns(notes));
    let name = format!("sync of {notes} records beside {READS_PER_SECOND} reads/s, against alone");
    bench.compared(&name, 1.3, (Measured::took(alone), Measured::took(beside)));
    bench.noted("those reads, p99", &format!("{p99:.1?}"));
    Ok(())
}

async fn in_turns(notes: usize) -> (Duration, Duration, Duration) {
    let client = client();
    let (mut alone, mut beside) = (Duration::MAX, Duration::MAX);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        alone = alone.min(sync(&client, &serve(10, notes)).await);
        let (took, reads) = loaded(&client, &serve(10, notes)).await;
        beside = beside.min(took);
        times.extend(reads);
    }
    times.sort();
    (alone, beside, times[times.len() * 99 / 100])
}

fn overview(bench: &mut Bench) -> Outcome<()> {
    let runtime = runtime()?;
    for (path, name) in [("/", "the overview page"), ("/api/pipelines", "the list of pipelines")] {
        let (few, many) = runtime.block_on(async { (page(path, 10).await, page(path, 1_000).await) });
        let name = format!("{name} with 1,000 pipelines, against 10");
        bench.compared(&name, 3.0, (Measured::took(few), Measured::took(many)));
    }
    Ok(())
}

async fn page(path: &str, pipelines: usize) -> Duration {
    let client = client();
    let serving = serve(pipelines, 1);
    sync(&client, &serving).await;
    assert!(serving.folder.path().exists());
    let url = format!("{}{path}", serving.url);
    let mut best = Duration::MAX;
    for _ in 0..20 {
        best = best.min(read(client.clone(), url.clone(), Instant::now()).await);
    }
    best
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}
