//! The replica on a real etcd and a real PostgreSQL. Scenarios carry their number in the name.

mod audits;
mod compacted;
pub mod conflicts;
mod emptied;
mod from_etcd;
mod hosts;
mod in_flight;
mod limits;
mod outages;
mod process;
mod rates;
mod restored;
mod resynced;
mod running;
mod sql;
mod storm;
mod tls;
mod to_etcd;
mod tokens;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use trueup::clock::SystemClock;
use trueup::error::Result;
use trueup::etcd::request::{delete, key, put};
use trueup::etcd::{Client, EtcdPlace, KeyValue, revision_of};
use trueup::postgres::{PostgresPlace, Session};
use trueup::replica::{Replica, ReplicaSpec, RunReport};

use crate::support::{self, Etcd, Postgres, eventually};

/// A busy machine stalls for seconds: a promise about time is kept if it is kept in one of a few tries.
pub const TRIES: u32 = 8;

/// Where a server is: shared by every test, or this test's own.
pub enum Held<T: 'static> {
    Shared(&'static T),
    Own(Box<T>),
}

impl<T> std::ops::Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Held::Shared(server) => server,
            Held::Own(server) => server,
        }
    }
}

/// An etcd prefix, a database, and a client for each.
pub struct Stage {
    pub etcd: Held<Etcd>,
    pub postgres: Held<Postgres>,
    pub prefix: String,
    pub dsn: String,
    pub spec: ReplicaSpec,
    pub client: Client,
    sql: Mutex<Option<Arc<Session>>>,
}

impl Stage {
    /// On the servers all tests share.
    pub async fn new(name: &str) -> Self {
        Self::on(name, Held::Shared(support::etcd().await), Held::Shared(support::postgres().await)).await
    }

    /// With an etcd of its own, to be killed, compacted or locked down.
    pub async fn with_own_etcd(name: &str, nodes: usize) -> Self {
        let etcd = Held::Own(Box::new(Etcd::start(nodes).await));
        Self::on(name, etcd, Held::Shared(support::postgres().await)).await
    }

    pub async fn on(name: &str, etcd: Held<Etcd>, postgres: Held<Postgres>) -> Self {
        let url = format!("etcd://{}/{name}/", etcd.endpoints());
        Self::at(name, &url, etcd, postgres).await
    }

    /// With an etcd that is not reached by its endpoints alone.
    pub async fn at(name: &str, url: &str, etcd: Held<Etcd>, postgres: Held<Postgres>) -> Self {
        let prefix = format!("/{name}/");
        let dsn = postgres.fresh_database();
        let client = Client::new(&EtcdPlace::parse(url).unwrap(), None).unwrap();
        let mut spec = ReplicaSpec::new(name, url, &dsn).unwrap();
        spec.poll = Duration::from_secs(1);
        let stage = Stage { etcd, postgres, prefix, dsn, spec, client, sql: Mutex::new(None) };
        stage.replica().init().await.unwrap();
        stage
    }

    pub fn replica(&self) -> Replica {
        Replica::new(self.spec.clone(), SystemClock::new()).unwrap()
    }

    /// Run it inside this process.
    pub fn start(&self) -> Running {
        let (stop, asked) = watch::channel(false);
        let notes: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = notes.clone();
        let replica = self.replica().heard_by(Arc::new(move |note| {
            heard.lock().unwrap().push(format!("{}: {}", note.kind, note.message));
        }));
        let heard = notes.clone();
        let task = tokio::spawn(async move {
            let outcome = replica.run(asked).await;
            if let Err(error) = &outcome {
                heard.lock().unwrap().push(format!("ended: {error:?}"));
                println!("the replica ended: {error:?}");
            }
            outcome
        });
        Running { stop, task: Some(task), notes }
    }

    /// Run it, and wait until it follows what happens.
    pub async fn started(&self) -> Running {
        let running = self.start();
        self.sql_becomes("select applied_revision > 0 from etcd_sync_state", "t").await;
        running
    }

    /// Run it, and wait until it has begun to carry writes over: from then on it acts before it asks.
    pub async fn draining(&self) -> Running {
        let running = self.started().await;
        self.sql("select etcd_delete('$Pnever')").await;
        self.sql_becomes("select status from etcd_wal where key = '$Pnever'", "noop").await;
        self.sql("delete from etcd_wal where key = '$Pnever'").await;
        running
    }

    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Put below the prefix; the revision.
    pub async fn put(&self, name: &str, value: impl Into<Vec<u8>>) -> i64 {
        let answer = self.client.put(put(self.key(name), value.into())).await.unwrap();
        revision_of(answer.header)
    }

    pub async fn delete(&self, name: &str) -> i64 {
        revision_of(self.client.delete_range(delete(self.key(name))).await.unwrap().header)
    }

    pub async fn get(&self, name: &str) -> Option<KeyValue> {
        self.client.range(key(self.key(name))).await.unwrap().kvs.into_iter().next()
    }

    pub async fn get_text(&self, name: &str) -> Option<String> {
        self.get(name).await.map(|pair| String::from_utf8(pair.value.to_vec()).unwrap())
    }

    /// Rows as `psql` would print them, `$P` standing for the prefix.
    pub async fn sql(&self, text: &str) -> String {
        self.try_sql(text).await.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub async fn try_sql(&self, text: &str) -> Result<String, String> {
        let held = self.sql.lock().unwrap().clone().filter(|session| !session.is_closed());
        let session = match held {
            Some(session) => session,
            None => {
                let place = PostgresPlace::parse(&self.dsn).unwrap();
                Arc::new(Session::open(&place, None).await.map_err(|error| error.to_string())?)
            }
        };
        *self.sql.lock().unwrap() = Some(session.clone());
        let messages = session.simple_query(&text.replace("$P", &self.prefix)).await;
        let messages = messages.map_err(|error| {
            error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
        })?;
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|at| row.get(at).unwrap_or_default());
                Some(cells.collect::<Vec<_>>().join("|"))
            }
            _ => None,
        });
        Ok(rows.collect::<Vec<_>>().join("\n"))
    }

    /// Wait until a query answers this.
    pub async fn sql_becomes(&self, text: &str, wanted: &str) {
        let mut got = String::new();
        let wait = eventually(async || {
            got = self.try_sql(text).await.unwrap_or_else(|error| error);
            got == wanted
        });
        assert!(wait.await, "{text}\n  wanted {wanted:?}\n  got    {got:?}");
    }

    /// Whether the newest write was carried over in this time.
    pub async fn last_took_less_than(&self, limit: &str) -> bool {
        let newest = "from etcd_wal order by id desc limit 1";
        self.sql(&format!("select processed_at - ts < interval '{limit}' {newest}")).await == "t"
    }

    /// The mirror's live keys equal etcd's.
    pub async fn live_sets_equal(&self) {
        let mut differ = String::new();
        let wait = eventually(async || {
            let theirs = etcd_dump(&self.client, &self.prefix).await;
            let ours = self
                .sql("select key || ' ' || revision from etcd_live where starts_with(key, '$P') order by key")
                .await;
            differ = format!("etcd:\n{theirs}\nPostgreSQL:\n{ours}");
            theirs == ours
        });
        assert!(wait.await, "{differ}");
    }
}

pub async fn etcd_dump(client: &Client, prefix: &str) -> String {
    let request = trueup::etcd::RangeRequest {
        key: prefix.to_owned().into(),
        range_end: trueup::etcd::range_end(prefix.as_bytes()),
        keys_only: true,
        ..Default::default()
    };
    let Ok(answer) = client.range(request).await else { return "etcd is away".to_owned() };
    let line = |pair: &KeyValue| format!("{} {}", String::from_utf8_lossy(&pair.key), pair.mod_revision);
    answer.kvs.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A replica at work.
pub struct Running {
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<Result<RunReport>>>,
    pub notes: Arc<Mutex<Vec<String>>>,
}

impl Running {
    /// Ask it to stop, and wait until it has.
    pub async fn stop(mut self) -> RunReport {
        self.stop.send(true).unwrap();
        self.task.take().unwrap().await.unwrap().unwrap()
    }

    /// It ends by itself, with an error.
    pub async fn fails(mut self) -> trueup::error::Error {
        let task = self.task.as_ref().unwrap();
        assert!(eventually(async || task.is_finished()).await, "it runs on");
        self.task.take().unwrap().await.unwrap().unwrap_err()
    }

    pub fn heard(&self, what: &str) -> bool {
        self.notes.lock().unwrap().iter().any(|note| note.contains(what))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        if std::thread::panicking() {
            println!("heard:\n{}", self.notes.lock().unwrap().join("\n"));
        }
    }
}

/// A stage whose replica reaches etcd through a proxy.
pub async fn through_proxy(name: &str) -> (Stage, support::proxy::Proxy) {
    let mut stage = Stage::new(name).await;
    let proxy = support::proxy::Proxy::before(&support::etcd().await.endpoints()).await;
    stage.spec.etcd.endpoints = vec![proxy.address().to_owned()];
    (stage, proxy)
}
