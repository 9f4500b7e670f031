//! The replica's figures as ratios, each beside its plain alternative in the same run, on loopback.

use std::path::Path;
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

use crate::harness::{Bench, Group, Job, Measured, Outcome, runtime, timed};
use crate::support::{Etcd, Postgres};

/// How a process of its own is told where its servers are.
const PLACES: &str = "places";
const VALUE_BYTES: usize = 100;
/// The plain alternatives are slow: their rate is taken from this many.
const PLAIN: usize = 3_000;
/// Whether it is over is asked this often: more would take from what is measured.
const LOOK: Duration = Duration::from_millis(10);
const WRITES_PER_SECOND: u64 = 200;
const LATENCY_WRITES: usize = 4_000;
/// A second's worth.
const TURN: usize = 200;
/// What the replica mirrors, and what the plain way does.
const PREFIX: &str = "/bench/";
const PLAIN_PREFIX: &str = "/plain/";

/// Each side is measured this often, in turns; the best of each counts.
const ROUNDS: usize = 3;

pub const JOBS: &[Job] = &[("replica-base", base_alone)];

pub const GROUPS: &[Group] =
    &[("base", base), ("backlog", backlog), ("drain", drain), ("latency", latency), ("memory", memory)];

/// Servers of its own for each figure, and the replica between them.
struct Rig {
    _etcd: Etcd,
    _postgres: Postgres,
    client: Client,
    sql: Session,
    spec: ReplicaSpec,
    clock: SharedClock,
}

/// Whether PostgreSQL flushes commits to disk, as people run it, or not, as tests do. etcd always does.
#[derive(Clone, Copy)]
enum Disk {
    Flushed,
    Unflushed,
}

impl Disk {
    const BOTH: [Disk; 2] = [Disk::Unflushed, Disk::Flushed];

    fn named(self, figure: &str) -> String {
        match self {
            Disk::Flushed => format!("{figure}, PostgreSQL with fsync"),
            Disk::Unflushed => figure.to_owned(),
        }
    }
}

impl Rig {
    async fn new(disk: Disk) -> Self {
        let fsync = match disk {
            Disk::Flushed => "fsync=on",
            Disk::Unflushed => "fsync=off",
        };
        let settings = ["max_wal_size=8GB", fsync];
        // An etcd flushes what it answers for, here as everywhere but in tests.
        let etcd = Etcd::start_with(1, &["--unsafe-no-fsync=false"]);
        let (etcd, postgres) = tokio::join!(etcd, Postgres::start_with(&settings));
        let url = format!("etcd://{}/bench/", etcd.endpoints());
        let dsn = postgres.fresh_database();
        let client = Client::new(&EtcdPlace::parse(&url).unwrap(), None).unwrap();
        let sql = Session::open(&PostgresPlace::parse(&dsn).unwrap(), None).await.unwrap();
        let spec = ReplicaSpec::new("bench", &url, &dsn).unwrap();
        let rig = Rig { _etcd: etcd, _postgres: postgres, client, sql, spec, clock: SystemClock::new() };
        rig.replica().init().await.unwrap();
        rig.sql.batch_execute("CREATE TABLE plain (LIKE etcd INCLUDING ALL)").await.unwrap();
        rig
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
            self.clock.sleep(LOOK).await;
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

fn base(bench: &mut Bench) -> Outcome<()> {
    let keys = bench.size(1_000_000, 20_000);
    let (plain, ours) = runtime()?.block_on(bases(keys));
    let name = format!("base of {keys} keys, against reading them and one COPY");
    bench.compared(&name, 1.0, (seconds(plain), seconds(ours)));
    Ok(())
}

fn seconds(seconds: f64) -> Measured {
    Measured { seconds, peak_mb: 0.0 }
}

/// Read everything, then one COPY of everything: what a person would write first. And the replica.
async fn bases(keys: usize) -> (f64, f64) {
    let rig = Rig::new(Disk::Unflushed).await;
    rig.fill(keys).await;
    let plain = rig.seconds(async {
        let all = read_all(&rig.client).await;
        let copy = "COPY plain (key, value, revision, tombstone, encoding) FROM STDIN BINARY";
        let sink = rig.sql.copy_in(copy).await.unwrap();
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
    let ours = rig.seconds(async {
        stop = Some(rig.start());
        rig.until("SELECT applied_revision FROM etcd_sync_state", 1).await;
    });
    let ours = ours.await;
    assert_eq!(rig.number("SELECT count(*) FROM etcd").await, i64::try_from(keys).unwrap());
    end(stop).await;
    (plain, ours)
}

async fn end(running: Option<(watch::Sender<bool>, tokio::task::JoinHandle<()>)>) {
    let (stop, task) = running.unwrap();
    stop.send(true).unwrap();
    task.await.unwrap();
}

fn backlog(bench: &mut Bench) -> Outcome<()> {
    let revisions = bench.size(200_000, 10_000);
    for disk in Disk::BOTH {
        let (plain, ours) = runtime()?.block_on(backlogs(revisions, disk));
        let name = format!("backlog of {revisions} revisions, {ours:.0}/s, against {plain:.0}/s row by row");
        match disk {
            Disk::Flushed => bench.at_least(&disk.named(&name), ours / plain, 25.0, "×"),
            // Row by row promises what was committed, and without a flush nothing is promised: for comparison only.
            Disk::Unflushed => bench.noted(&disk.named(&name), &format!("{:.1} ×", ours / plain)),
        }
    }
    Ok(())
}

/// Revisions per second, row by row and by the replica.
async fn backlogs(revisions: usize, disk: Disk) -> (f64, f64) {
    let rig = Rig::new(disk).await;
    rig.fill(1).await;
    let first = rig.start();
    rig.until("SELECT applied_revision FROM etcd_sync_state", 1).await;
    end(Some(first)).await;
    let puts = (0..revisions).map(|at| rig.client.put(put(name(at % 10_000), value(at))));
    futures::stream::iter(puts).buffer_unordered(64).for_each(|answer| async { drop(answer.unwrap()) }).await;
    let last = revision_of(rig.client.range(trueup::etcd::request::key("x")).await.unwrap().header);
    let mut running = None;
    let ours = rig.seconds(async {
        running = Some(rig.start());
        rig.until("SELECT applied_revision FROM etcd_sync_state", last).await;
    });
    let ours = revisions as f64 / ours.await;
    // The plain way has the machine to itself.
    end(running).await;
    let insert =
        rig.sql.prepare("INSERT INTO plain (key, value, revision) VALUES ($1, $2, $3)").await.unwrap();
    let plain = rig.seconds(async {
        for at in 0..PLAIN {
            let revision = i64::try_from(at + 1).unwrap();
            rig.sql.execute(&insert, &[&name(at), &value(at), &revision]).await.unwrap();
        }
    });
    let plain = PLAIN as f64 / plain.await;
    (plain, ours)
}

fn drain(bench: &mut Bench) -> Outcome<()> {
    let writes = bench.size(50_000, 5_000);
    for disk in Disk::BOTH {
        let (mut plain, mut ours) = (0.0f64, 0.0f64);
        for _ in 0..ROUNDS {
            let round = runtime()?.block_on(drains(writes, disk));
            (plain, ours) = (plain.max(round.0), ours.max(round.1));
        }
        let name = format!("{writes} writes to etcd, {ours:.0}/s, against {plain:.0}/s one at a time");
        bench.at_least(&disk.named(&name), ours / plain, 20.0, "×");
    }
    Ok(())
}

/// Writes per second, one at a time and by the replica.
async fn drains(writes: usize, disk: Disk) -> (f64, f64) {
    let rig = Rig::new(disk).await;
    let queue = format!(
        "SELECT count(etcd_set('/bench/' || n, repeat('x', {VALUE_BYTES}))) FROM generate_series(1, {writes}) n"
    );
    assert_eq!(rig.number(&queue).await, i64::try_from(writes).unwrap());
    let mut running = None;
    let ours = rig.seconds(async {
        running = Some(rig.start());
        // By the index: otherwise each look reads the table from its beginning, on the processors that are measured.
        let left = "SELECT 1 - count(*) FROM (SELECT id FROM etcd_wal WHERE status = 'pending' ORDER BY id LIMIT 1) one";
        rig.until(left, 1).await;
    });
    let ours = writes as f64 / ours.await;
    end(running).await;
    let plain = rig.seconds(async {
        for at in 0..PLAIN {
            rig.client.put(put(name(at), value(at))).await.unwrap();
        }
    });
    let plain = PLAIN as f64 / plain.await;
    (plain, ours)
}

/// 99 in 100 are faster, in seconds.
fn p99(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() * 99 / 100] / 1e6
}

/// Each write is told when it was due, in microseconds: one that had to wait for the one before it is late, too.
async fn pace(rig: &Rig, writes: usize, mut each: impl AsyncFnMut(usize, String)) {
    let (start, begun) = (rig.clock.elapsed_ms(), rig.clock.now().as_microsecond());
    for at in 0..writes {
        let due_ms = at as u64 * 1_000 / WRITES_PER_SECOND;
        let wait = (start + due_ms).saturating_sub(rig.clock.elapsed_ms());
        rig.clock.sleep(Duration::from_millis(wait)).await;
        each(at, (begun + i64::try_from(due_ms).unwrap() * 1_000).to_string()).await;
    }
}

fn latency(bench: &mut Bench) -> Outcome<()> {
    for disk in Disk::BOTH {
        let [inward, outward] = runtime()?.block_on(latencies(disk));
        for (name, (bare, ours)) in [("etcd → PostgreSQL", inward), ("PostgreSQL → etcd", outward)] {
            let name = format!("{name}, p99 at {WRITES_PER_SECOND}/s, against the bare way");
            bench.compared(&disk.named(&name), 3.0, (seconds(bare), seconds(ours)));
        }
    }
    Ok(())
}

/// Values are the microsecond they were due at; a row's `ts` is when it was seen. In turns of a second each: a disk has
/// better and worse moments, and both ways should see the same ones.
async fn latencies(disk: Disk) -> [(f64, f64); 2] {
    let rig = Rig::new(disk).await;
    let seen = |table: &str| {
        format!(
            "SELECT (extract(epoch FROM ts) * 1e6 - value::float8)::float8 FROM {table} WHERE key LIKE '%in/%'"
        )
    };
    let read = async |table: &str| -> Vec<f64> {
        rig.sql.query(&seen(table), &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let arrivals = watch_arrivals(&rig).await;
    let plain = insert_arrivals(&rig).await;
    let running = rig.start();
    rig.until("SELECT applied_revision FROM etcd_sync_state", 1).await;
    for turn in 0..LATENCY_WRITES / TURN {
        for prefix in [PLAIN_PREFIX, PREFIX] {
            let put_one = async |at, due| {
                rig.client.put(put(format!("{prefix}in/{turn}/{at}"), due)).await.unwrap();
            };
            pace(&rig, TURN, put_one).await;
        }
    }
    let all = i64::try_from(LATENCY_WRITES).unwrap();
    rig.until("SELECT count(*) FROM plain", all).await;
    rig.until("SELECT count(*) FROM etcd", all).await;
    plain.abort();
    let inward = (p99(read("plain").await), p99(read("etcd").await));
    let outward = latency_to_etcd(&rig, &arrivals).await;
    end(Some(running)).await;
    [inward, outward]
}

async fn latency_to_etcd(rig: &Rig, arrivals: &Arrivals) -> (f64, f64) {
    for turn in 0..LATENCY_WRITES / TURN {
        pace(rig, TURN, async |at, due| {
            rig.client.put(put(format!("/bench/bare/{turn}/{at}"), due)).await.unwrap();
        })
        .await;
        pace(rig, TURN, async |at, due| {
            let text = format!("SELECT etcd_set('/bench/out/{turn}/{at}', '{due}')");
            rig.sql.batch_execute(&text).await.unwrap();
        })
        .await;
    }
    let all = |arrivals: &[(String, f64)], what: &str| -> Vec<f64> {
        arrivals.iter().filter(|it| it.0.starts_with(what)).map(|it| it.1).collect()
    };
    while all(&arrivals.lock().unwrap(), "/bench/out/").len() < LATENCY_WRITES {
        rig.clock.sleep(Duration::from_millis(10)).await;
    }
    let arrivals = arrivals.lock().unwrap().clone();
    (p99(all(&arrivals, "/bench/bare/")), p99(all(&arrivals, "/bench/out/")))
}

type Arrivals = std::sync::Arc<std::sync::Mutex<Vec<(String, f64)>>>;

async fn open_watch(rig: &Rig, prefix: &'static str) -> trueup::etcd::WatchStream {
    let range_end = range_end(prefix.as_bytes());
    let create = WatchCreateRequest { key: prefix.into(), range_end, ..WatchCreateRequest::default() };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    rig.client.watch(request).await.unwrap()
}

/// When each key was seen by a watch, in microseconds after it was written.
async fn watch_arrivals(rig: &Rig) -> Arrivals {
    let mut stream = open_watch(rig, PREFIX).await;
    let arrivals = Arrivals::default();
    let (seen, clock) = (arrivals.clone(), rig.clock.clone());
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
async fn insert_arrivals(rig: &Rig) -> tokio::task::JoinHandle<()> {
    let mut stream = open_watch(rig, PLAIN_PREFIX).await;
    let sql = Session::open(&rig.spec.postgres, None).await.unwrap();
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
fn memory(bench: &mut Bench) -> Outcome<()> {
    let most = bench.size(1_000_000, 10_000);
    for keys in [10_000, 100_000, 1_000_000].into_iter().filter(|keys| *keys <= most) {
        let folder = Bench::folder()?;
        let runtime = runtime()?;
        let rig = runtime.block_on(Rig::new(Disk::Unflushed));
        runtime.block_on(rig.fill(keys));
        let endpoints = rig.spec.etcd.endpoints.join(",");
        let dsn = rig.spec.postgres.shown().replace("postgres://", "postgres://postgres@");
        std::fs::write(folder.path().join(PLACES), format!("etcd://{endpoints}/bench/\n{dsn}"))?;
        let measured = Bench::job("replica-base", folder.path(), keys)?;
        bench.at_most(&format!("memory of a base of {keys} keys"), measured.peak_mb, 100.0, "MB");
    }
    Ok(())
}

fn base_alone(folder: &Path, _keys: usize) -> Outcome<Duration> {
    let places = std::fs::read_to_string(folder.join(PLACES))?;
    let (etcd, dsn) = places.split_once('\n').ok_or("two places")?;
    let ((), took) = timed(|| {
        runtime()?.block_on(base_of(etcd, dsn));
        Outcome::Ok(())
    })?;
    Ok(took)
}

async fn base_of(etcd: &str, dsn: &str) {
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
}
