//! The replica's figures as ratios, each beside its plain alternative in the same run, on loopback.
//!
//! `cargo bench --bench replica` measures everything; `-- base backlog drain latency memory` picks. The sizes are
//! `TRUEUP_BENCH_KEYS` (1,000,000) and `TRUEUP_BENCH_REVISIONS` (200,000).
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a bench that cannot unwrap has failed; it prints its table

#[allow(dead_code)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use trueup::clock::{SharedClock, SystemClock};
use trueup::etcd::request::put;
use trueup::etcd::watch_request::RequestUnion;
use trueup::etcd::{
    Client, EtcdPlace, KeyValue, RangeRequest, TxnRequest, WatchCreateRequest, WatchRequest, range_end,
    revision_of,
};
use trueup::postgres::{PostgresPlace, Session};
use trueup::replica::{Replica, ReplicaSpec};

use support::{Etcd, Postgres};

const CHILD: &str = "TRUEUP_BENCH_CHILD";
const VALUE_BYTES: usize = 100;
/// The plain alternatives are slow: their rate is taken from this many.
const PLAIN: usize = 3_000;
const WRITES_PER_SECOND: u64 = 200;
const LATENCY_WRITES: usize = 2_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Ok(spec) = std::env::var(CHILD) {
        runtime.block_on(child(&spec));
        return;
    }
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|word| word == name);
    println!("| figure | trueup | beside | ratio | wanted |\n|---|---|---|---|---|");
    runtime.block_on(async {
        if wanted("base") {
            base().await;
        }
        if wanted("backlog") {
            backlog().await;
        }
        if wanted("drain") {
            drain().await;
        }
        if wanted("latency") {
            latency().await;
        }
        if wanted("memory") {
            memory().await;
        }
    });
}

fn size(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Servers of its own for each figure, and the replica between them.
struct Bench {
    _etcd: Etcd,
    _postgres: Postgres,
    client: Client,
    sql: Session,
    spec: ReplicaSpec,
    clock: SharedClock,
}

impl Bench {
    async fn new() -> Self {
        let (etcd, postgres) = tokio::join!(Etcd::start(1), Postgres::start_with(&["max_wal_size=8GB"]));
        let url = format!("etcd://{}/bench/", etcd.endpoints());
        let dsn = postgres.fresh_database();
        let client = Client::new(&EtcdPlace::parse(&url).unwrap(), None).unwrap();
        let sql = Session::open(&PostgresPlace::parse(&dsn).unwrap(), None).await.unwrap();
        let spec = ReplicaSpec::new("bench", &url, &dsn).unwrap();
        let bench = Bench { _etcd: etcd, _postgres: postgres, client, sql, spec, clock: SystemClock::new() };
        bench.replica().init().await.unwrap();
        bench.sql.batch_execute("CREATE TABLE plain (LIKE etcd INCLUDING ALL)").await.unwrap();
        bench
    }

    fn replica(&self) -> Replica {
        Replica::new(self.spec.clone(), self.clock.clone()).unwrap()
    }

    fn start(&self) -> (watch::Sender<bool>, tokio::task::JoinHandle<()>) {
        let (stop, asked) = watch::channel(false);
        let replica = self.replica();
        (stop, tokio::spawn(async move { drop(replica.run(asked).await.unwrap()) }))
    }

    async fn number(&self, text: &str) -> i64 {
        self.sql.query_one(text, &[]).await.unwrap().get(0)
    }

    async fn until(&self, text: &str, at_least: i64) {
        while self.number(text).await < at_least {
            self.clock.sleep(Duration::from_millis(2)).await;
        }
    }

    async fn seconds(&self, work: impl Future<Output = ()>) -> f64 {
        let start = self.clock.elapsed_ms();
        work.await;
        (self.clock.elapsed_ms() - start).max(1) as f64 / 1_000.0
    }

    /// Many keys, many to a transaction.
    async fn fill(&self, keys: usize) {
        let chunks = (0..keys).step_by(128).map(|start| {
            let end = (start + 128).min(keys);
            let success = (start..end).map(|at| put(name(at), value(at)).into()).collect();
            self.client.txn(TxnRequest { success, ..Default::default() })
        });
        futures::stream::iter(chunks)
            .buffer_unordered(8)
            .for_each(|answer| async { drop(answer.unwrap()) })
            .await;
    }
}

fn name(at: usize) -> String {
    format!("/bench/key-{at:09}")
}

fn value(at: usize) -> String {
    format!("{at:0>VALUE_BYTES$}")
}

fn row(figure: &str, ours: &str, beside: &str, ratio: f64, wanted: &str) {
    println!("| {figure} | {ours} | {beside} | {ratio:.2} × | {wanted} |");
}

async fn read_all(client: &Client) -> Vec<KeyValue> {
    let (mut all, mut next) = (Vec::new(), b"/bench/".to_vec());
    loop {
        let range_end = range_end(b"/bench/");
        let request =
            RangeRequest { key: next.clone().into(), range_end, limit: 50_000, ..RangeRequest::default() };
        let answer = client.range(request).await.unwrap();
        all.extend(answer.kvs);
        if !answer.more {
            return all;
        }
        next = all.last().map(|pair| [pair.key.as_ref(), b"\0"].concat()).unwrap();
    }
}

/// Read everything, then one COPY of everything: what a person would write first.
async fn base() {
    let bench = Bench::new().await;
    let keys = size("TRUEUP_BENCH_KEYS", 1_000_000);
    bench.fill(keys).await;
    let plain = bench.seconds(async {
        let all = read_all(&bench.client).await;
        let copy = "COPY plain (key, value, revision, tombstone, encoding) FROM STDIN BINARY";
        let sink = bench.sql.copy_in(copy).await.unwrap();
        let types = [Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL, Type::TEXT];
        let mut writer = std::pin::pin!(BinaryCopyInWriter::new(sink, &types));
        for pair in &all {
            let (key, value) =
                (std::str::from_utf8(&pair.key).unwrap(), std::str::from_utf8(&pair.value).unwrap());
            writer.as_mut().write(&[&key, &value, &pair.mod_revision, &false, &"utf8"]).await.unwrap();
        }
        writer.finish().await.unwrap();
    });
    let plain = plain.await;
    let mut stop = None;
    let ours = bench.seconds(async {
        stop = Some(bench.start());
        bench.until("SELECT applied_revision FROM etcd_sync_state", 1).await;
    });
    let ours = ours.await;
    assert_eq!(bench.number("SELECT count(*) FROM etcd").await, i64::try_from(keys).unwrap());
    row(
        &format!("base of {keys} keys"),
        &format!("{ours:.2} s"),
        &format!("{plain:.2} s read + COPY"),
        ours / plain,
        "≤ 1.0",
    );
    end(stop).await;
}

async fn end(running: Option<(watch::Sender<bool>, tokio::task::JoinHandle<()>)>) {
    let (stop, task) = running.unwrap();
    stop.send(true).unwrap();
    task.await.unwrap();
}

async fn backlog() {
    let bench = Bench::new().await;
    let revisions = size("TRUEUP_BENCH_REVISIONS", 200_000);
    bench.fill(1).await;
    let first = bench.start();
    bench.until("SELECT applied_revision FROM etcd_sync_state", 1).await;
    end(Some(first)).await;
    let puts = (0..revisions).map(|at| bench.client.put(put(name(at % 10_000), value(at))));
    futures::stream::iter(puts).buffer_unordered(64).for_each(|answer| async { drop(answer.unwrap()) }).await;
    let last = revision_of(bench.client.range(trueup::etcd::request::key("x")).await.unwrap().header);
    let mut running = None;
    let ours = bench.seconds(async {
        running = Some(bench.start());
        bench.until("SELECT applied_revision FROM etcd_sync_state", last).await;
    });
    let ours = revisions as f64 / ours.await;
    let insert =
        bench.sql.prepare("INSERT INTO plain (key, value, revision) VALUES ($1, $2, $3)").await.unwrap();
    let plain = bench.seconds(async {
        for at in 0..PLAIN {
            let revision = i64::try_from(at + 1).unwrap();
            bench.sql.execute(&insert, &[&name(at), &value(at), &revision]).await.unwrap();
        }
    });
    let plain = PLAIN as f64 / plain.await;
    row(
        &format!("backlog of {revisions} revisions"),
        &format!("{ours:.0}/s"),
        &format!("{plain:.0}/s row by row"),
        ours / plain,
        "≥ 25",
    );
    end(running).await;
}

async fn drain() {
    let bench = Bench::new().await;
    let writes = 50_000;
    let queue = format!(
        "SELECT count(etcd_set('/bench/' || n, repeat('x', {VALUE_BYTES}))) FROM generate_series(1, {writes}) n"
    );
    assert_eq!(bench.number(&queue).await, writes);
    let mut running = None;
    let ours = bench.seconds(async {
        running = Some(bench.start());
        let left = "SELECT CASE WHEN EXISTS (SELECT 1 FROM etcd_wal WHERE status = 'pending') THEN 0 ELSE 1 END::bigint";
        bench.until(left, 1).await;
    });
    let ours = writes as f64 / ours.await;
    let plain = bench.seconds(async {
        for at in 0..PLAIN {
            bench.client.put(put(name(at), value(at))).await.unwrap();
        }
    });
    let plain = PLAIN as f64 / plain.await;
    row(
        &format!("{writes} writes to etcd"),
        &format!("{ours:.0}/s"),
        &format!("{plain:.0}/s one at a time"),
        ours / plain,
        "≥ 20",
    );
    end(running).await;
}

/// 99 in 100 are faster, in milliseconds.
fn p99(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() * 99 / 100] / 1_000.0
}

async fn pace(bench: &Bench, mut each: impl AsyncFnMut(usize)) {
    let start = bench.clock.elapsed_ms();
    for at in 0..LATENCY_WRITES {
        each(at).await;
        let due = start + (at as u64 + 1) * 1_000 / WRITES_PER_SECOND;
        let wait = due.saturating_sub(bench.clock.elapsed_ms());
        bench.clock.sleep(Duration::from_millis(wait)).await;
    }
}

/// Values are the microsecond they were written at; a row's `ts` is when it was seen.
async fn latency() {
    let bench = Bench::new().await;
    let stamp = || bench.clock.now().as_microsecond().to_string();
    let seen = |table: &str| {
        format!(
            "SELECT (extract(epoch FROM ts) * 1e6 - value::float8)::float8 FROM {table} WHERE key LIKE '%in/%'"
        )
    };
    let read = async |table: &str| -> Vec<f64> {
        bench.sql.query(&seen(table), &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let arrivals = watch_arrivals(&bench).await;
    let plain = insert_arrivals(&bench).await;
    pace(&bench, async |at| drop(bench.client.put(put(format!("/bench/in/{at}"), stamp())).await.unwrap()))
        .await;
    bench.until("SELECT count(*) FROM plain", i64::try_from(LATENCY_WRITES).unwrap()).await;
    plain.abort();
    let bare = p99(read("plain").await);
    let running = bench.start();
    bench.until("SELECT applied_revision FROM etcd_sync_state", 1).await;
    bench.sql.batch_execute("DELETE FROM etcd").await.unwrap();
    pace(&bench, async |at| drop(bench.client.put(put(format!("/bench/in/{at}"), stamp())).await.unwrap()))
        .await;
    bench.until("SELECT count(*) FROM etcd", i64::try_from(LATENCY_WRITES).unwrap()).await;
    let ours = p99(read("etcd").await);
    row(
        "etcd → PostgreSQL, p99 at 200/s",
        &format!("{ours:.1} ms"),
        &format!("{bare:.1} ms bare watch + INSERT"),
        ours / bare,
        "≤ 3",
    );
    latency_to_etcd(&bench, &arrivals).await;
    end(Some(running)).await;
}

async fn latency_to_etcd(bench: &Bench, arrivals: &Arrivals) {
    let stamp = || bench.clock.now().as_microsecond().to_string();
    pace(bench, async |at| drop(bench.client.put(put(format!("/bench/bare/{at}"), stamp())).await.unwrap()))
        .await;
    pace(bench, async |at| {
        let text = format!("SELECT etcd_set('/bench/out/{at}', '{}')", stamp());
        bench.sql.batch_execute(&text).await.unwrap();
    })
    .await;
    let all = |arrivals: &[(String, f64)], what: &str| -> Vec<f64> {
        arrivals.iter().filter(|it| it.0.starts_with(what)).map(|it| it.1).collect()
    };
    while all(&arrivals.lock().unwrap(), "/bench/out/").len() < LATENCY_WRITES {
        bench.clock.sleep(Duration::from_millis(10)).await;
    }
    let arrivals = arrivals.lock().unwrap().clone();
    let (ours, bare) = (p99(all(&arrivals, "/bench/out/")), p99(all(&arrivals, "/bench/bare/")));
    row(
        "PostgreSQL → etcd, p99 at 200/s",
        &format!("{ours:.1} ms"),
        &format!("{bare:.1} ms bare put"),
        ours / bare,
        "≤ 3",
    );
}

type Arrivals = std::sync::Arc<std::sync::Mutex<Vec<(String, f64)>>>;

async fn open_watch(bench: &Bench) -> trueup::etcd::WatchStream {
    let create = WatchCreateRequest {
        key: "/bench/".into(),
        range_end: range_end(b"/bench/"),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    bench.client.watch(request).await.unwrap()
}

/// When each key was seen by a watch, in microseconds after it was written.
async fn watch_arrivals(bench: &Bench) -> Arrivals {
    let mut stream = open_watch(bench).await;
    let arrivals = Arrivals::default();
    let (seen, clock) = (arrivals.clone(), bench.clock.clone());
    tokio::spawn(async move {
        while let Ok(Some(response)) = stream.responses.message().await {
            let now = clock.now().as_microsecond() as f64;
            for pair in response.events.into_iter().filter_map(|event| event.kv) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let wrote: f64 = text(&pair.value).parse().unwrap_or(now);
                seen.lock().unwrap().push((text(&pair.key), now - wrote));
            }
        }
    });
    arrivals
}

/// The plain alternative: a watch, and an INSERT for each event.
async fn insert_arrivals(bench: &Bench) -> tokio::task::JoinHandle<()> {
    let mut stream = open_watch(bench).await;
    let sql = Session::open(&bench.spec.postgres, None).await.unwrap();
    tokio::spawn(async move {
        let insert =
            sql.prepare("INSERT INTO plain (key, value, revision) VALUES ($1, $2, $3)").await.unwrap();
        while let Ok(Some(response)) = stream.responses.message().await {
            for pair in response.events.into_iter().filter_map(|event| event.kv) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                sql.execute(&insert, &[&text(&pair.key), &text(&pair.value), &pair.mod_revision])
                    .await
                    .unwrap();
            }
        }
    })
}

/// The most memory a process used that took the base and went on to watch.
async fn memory() {
    let most = size("TRUEUP_BENCH_KEYS", 1_000_000);
    let mut peaks = Vec::new();
    for keys in [10_000, 100_000, 1_000_000].into_iter().filter(|keys| *keys <= most) {
        let bench = Bench::new().await;
        bench.fill(keys).await;
        let endpoints = bench.spec.etcd.endpoints.join(",");
        let dsn = bench.spec.postgres.shown().replace("postgres://", "postgres://postgres@");
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .env(CHILD, format!("etcd://{endpoints}/bench/\n{dsn}"))
            .output()
            .unwrap();
        let peak: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        peaks.push(peak);
        row(
            &format!("memory, {keys} keys"),
            &format!("{peak:.0} MB"),
            &format!("{:.0} MB at 10,000", peaks[0]),
            peak / peaks[0],
            "< 100 MB, flat",
        );
    }
}

async fn child(spec: &str) {
    let (etcd, dsn) = spec.split_once('\n').unwrap();
    let clock = SystemClock::new();
    let replica = Replica::new(ReplicaSpec::new("bench", etcd, dsn).unwrap(), clock.clone()).unwrap();
    let (stop, asked) = watch::channel(false);
    let watcher = tokio::spawn(async move { replica.run(asked).await.unwrap() });
    let sql = Session::open(&PostgresPlace::parse(dsn).unwrap(), None).await.unwrap();
    loop {
        let row = sql.query_one("SELECT applied_revision FROM etcd_sync_state", &[]).await.unwrap();
        if row.get::<_, i64>(0) > 0 {
            break;
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    stop.send(true).unwrap();
    watcher.await.unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("{}", kilobytes / 1_024.0);
}
