//! A small parliament behind a real HTTP server, and a stage: a config, a database, the program.

use std::path::PathBuf;
use std::process::Output;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use trueup::clock::{SharedClock, TestClock};
use trueup::config::Config;
use trueup::pipeline::open::Memory;
use trueup::pipeline::{Ask, Pipeline};
use trueup::state::Report;
use trueup::store::Access;

use crate::support::{
    self,
    http::{Reply, Request, Server},
    postgres::query,
};

/// The shape of the real data set.
pub const PARTIES: usize = 21;
pub const CASES: usize = 198;
pub const VOTES: usize = 76;
pub const PROPOSALS: usize = 81;
pub const ROWS: u64 = (PARTIES + CASES + VOTES + PROPOSALS) as u64;
pub const FIRST_CASE: i64 = 105_000;
pub const FIRST_VOTE: i64 = 26_383;

/// What the API answers with.
pub struct Parliament {
    pub version: String,
    /// Goes into every answer and every item, and means nothing.
    pub answered: i64,
    pub parties: Vec<Value>,
    pub cases: Vec<Value>,
    /// With `sak_id`.
    pub votes: Vec<Value>,
    /// With `votering_id`.
    pub proposals: Vec<Value>,
    /// Asked before anything else; `None` = answer as usual.
    pub trouble: Box<dyn FnMut(&Request) -> Option<Reply> + Send>,
}

pub fn json_reply(value: &Value) -> Reply {
    Reply::ok(value.to_string()).header("Content-Type", "application/json; charset=utf-8")
}

pub fn html(status: u16) -> Reply {
    let page = if status == 200 { Reply::ok("<html>sorry</html>") } else { Reply::status(status) };
    page.header("Content-Type", "text/html")
}

impl Parliament {
    pub fn usual() -> Self {
        let party = |n: usize| json!({"id": format!("P{n}"), "navn": format!("Parti {n}"), "representert_parti": n % 2 == 0});
        let votes: Vec<Value> =
            (0..VOTES).map(|n| vote(FIRST_VOTE + n as i64, FIRST_CASE + n as i64)).collect();
        let mut proposals: Vec<Value> = (0..VOTES).map(|n| proposal(FIRST_VOTE + n as i64, -1)).collect();
        proposals.extend((0..PROPOSALS - VOTES).map(|n| proposal(FIRST_VOTE, 100 + n as i64)));
        Parliament {
            version: "1.6".into(),
            answered: 1_761_256_800_000,
            parties: (0..PARTIES).map(party).collect(),
            cases: (0..CASES).map(|n| case(FIRST_CASE + n as i64)).collect(),
            votes,
            proposals,
            trouble: Box::new(|_| None),
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        if let Some(reply) = (self.trouble)(request) {
            return reply;
        }
        let number = |name: &str| {
            let (_, rest) = request.path.split_once(&format!("{name}="))?;
            rest.split('&').next()?.parse::<i64>().ok()
        };
        let of = |items: &[Value], field: &str, id: Option<i64>| -> Vec<Value> {
            items.iter().filter(|item| item[field].as_i64() == id).cloned().collect()
        };
        let (list, items) = match request.path.split('?').next().unwrap() {
            "/eksport/allepartier" => ("partier_liste", self.parties.clone()),
            "/eksport/saker" => ("saker_liste", self.cases.clone()),
            "/eksport/voteringer" => ("sak_votering_liste", of(&self.votes, "sak_id", number("sakid"))),
            "/eksport/voteringsforslag" => {
                ("voteringsforslag_liste", of(&self.proposals, "votering_id", number("voteringid")))
            }
            _ => return Reply::status(404),
        };
        let stamp = format!("/Date({}+0200)/", self.answered);
        let items: Vec<Value> = items
            .into_iter()
            .map(|mut item| {
                item["respons_dato_tid"] = json!(stamp);
                item["versjon"] = json!(self.version);
                item
            })
            .collect();
        json_reply(&json!({"versjon": self.version, "respons_dato_tid": stamp, list: items}))
    }
}

pub fn case(id: i64) -> Value {
    json!({
        "id": id, "type": 2, "tittel": format!("Sak {id} om én ting"), "korttittel": format!("Sak {id}"), "status": 1,
        "dokumentgruppe": 4, "sist_oppdatert_dato": "/Date(1761256800000+0200)/", "sak_fremmet_id": 7, "henvisning": null,
        "emne_liste": [{"id": 1, "navn": "Emne", "respons_dato_tid": "/Date(0)/"}],
    })
}

pub fn vote(id: i64, case: i64) -> Value {
    json!({
        "sak_id": case, "vedtatt": true, "votering_id": id, "votering_resultat_type": 3,
        "votering_resultat_type_tekst": "Enstemmig", "votering_tema": "Tema", "votering_tid": "/Date(1761256800000+0200)/",
    })
}

pub fn proposal(vote: i64, id: i64) -> Value {
    json!({
        "votering_id": vote, "forslag_betegnelse": "Forslag 1", "forslag_betegnelse_kort": null, "forslag_id": id,
        "forslag_paa_vegne_av_tekst": "SV", "forslag_sorteringsnummer": 1, "forslag_tekst": "<p>Tekst</p>", "forslag_type": 1,
    })
}

#[derive(Debug, Clone)]
pub enum Database {
    Sqlite(PathBuf),
    Postgres(String),
}

/// A folder with a config, a parliament, and a database that starts empty.
pub struct Stage {
    pub folder: tempfile::TempDir,
    pub database: Database,
    pub parliament: Arc<Mutex<Parliament>>,
    pub server: Server,
    pub clock: Arc<TestClock>,
    /// More lines of the pipeline.
    pub settings: String,
    pub shape: String,
    pub recipe: String,
}

/// A run of the program.
pub struct Ran {
    pub code: i32,
    pub json: Value,
}

impl Ran {
    pub fn of(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let json = serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("no JSON: {text} {}", String::from_utf8_lossy(&output.stderr)));
        Ran { code: output.status.code().unwrap_or(-1), json }
    }

    pub fn run(&self) -> &Value {
        &self.json["runs"][0]
    }

    /// A count of the run.
    pub fn count(&self, name: &str) -> u64 {
        self.run()[name].as_u64().unwrap_or_else(|| panic!("{name}: {}", self.json))
    }

    #[track_caller]
    pub fn is(&self, code: i32, counts: &[(&str, u64)]) {
        assert_eq!(self.code, code, "{:#}", self.json);
        for (name, expected) in counts {
            assert_eq!(self.count(name), *expected, "{name}: {:#}", self.json);
        }
    }
}

impl Stage {
    fn new(folder: tempfile::TempDir, database: Database) -> Self {
        let parliament = Arc::new(Mutex::new(Parliament::usual()));
        let theirs = parliament.clone();
        let server = Server::start(move |request| theirs.lock().unwrap().answer(request));
        Stage {
            folder,
            database,
            parliament,
            server,
            clock: TestClock::at("2026-11-15T00:00:00Z", 1),
            settings: String::new(),
            shape: "\"rows\"".into(),
            recipe: "recipes/stortinget.toml".into(),
        }
    }

    pub fn on_sqlite() -> Self {
        let folder = support::temp();
        let file = folder.path().join("stortinget.db");
        Self::new(folder, Database::Sqlite(file))
    }

    pub async fn on_postgres() -> Self {
        Self::new(support::temp(), Database::Postgres(support::postgres().await.fresh_database()))
    }

    pub fn api(&self) -> MutexGuard<'_, Parliament> {
        self.parliament.lock().unwrap()
    }

    /// Put the recipe beside the config, changed as a person would change it.
    pub fn edit_recipe(&self, edit: impl Fn(&str) -> String) {
        let path = self.folder.path().join("recipes/stortinget.toml");
        let shipped = include_str!("../../../recipes/stortinget.toml").to_owned();
        let before = std::fs::read_to_string(&path).unwrap_or(shipped);
        let after = edit(&before);
        assert_ne!(before, after, "the edit changes something");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, after).unwrap();
    }

    pub fn config(&self) -> PathBuf {
        let url = match &self.database {
            Database::Sqlite(path) => format!("sqlite:{}", path.display()),
            Database::Postgres(dsn) => dsn.clone(),
        };
        let text = format!(
            "[pipelines.stortinget]\nfrom = {{ rest = \"{}\" }}\nas = {}\ninto = {{ tables = \"{url}\" }}\n{}\n",
            self.recipe, self.shape, self.settings
        );
        let path = self.folder.path().join("trueup.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = support::trueup();
        command.arg("--config").arg(self.config()).arg("--json").args(arguments);
        command.env("STORTINGET_BASE_URL", self.server.url(""));
        command
    }

    /// The real program.
    pub fn trueup(&self, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(arguments).output().unwrap())
    }

    pub fn sync(&self) -> Ran {
        self.trueup(&["sync"])
    }

    /// The same pass in this process, on a clock whose waiting takes no time.
    pub async fn pass(&self) -> Report {
        self.line().await.run(&Ask::plain("test")).await.unwrap()
    }

    /// The pipeline, opened anew.
    pub async fn line(&self) -> Pipeline {
        let base = self.server.url("");
        let env = move |name: &str| (name == "STORTINGET_BASE_URL").then(|| base.clone());
        let config = Config::load(&self.config(), &env).unwrap();
        let clock: SharedClock = self.clock.clone();
        let memory = Memory::open(&config, Access::Write, clock).await.unwrap();
        Pipeline::open(&config.pipelines["stortinget"], &memory, Access::Write).await.unwrap()
    }

    /// Rows as lines, columns separated by `|`; for SQL that both databases speak.
    pub fn query(&self, sql: &str) -> String {
        match &self.database {
            Database::Postgres(dsn) => query(dsn, sql),
            Database::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.busy_timeout(support::DEADLINE).unwrap();
                let mut statement = connection.prepare(sql).unwrap();
                let width = statement.column_count();
                let mut rows = statement.query([]).unwrap();
                let mut lines = Vec::new();
                while let Some(row) = rows.next().unwrap() {
                    let cell = |at| match row.get_ref(at).unwrap() {
                        rusqlite::types::ValueRef::Null => String::new(),
                        rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                        rusqlite::types::ValueRef::Real(number) => number.to_string(),
                        other => String::from_utf8_lossy(other.as_bytes().unwrap()).into_owned(),
                    };
                    lines.push((0..width).map(cell).collect::<Vec<_>>().join("|"));
                }
                lines.join("\n")
            }
        }
    }

    pub fn rows(&self, table: &str) -> usize {
        self.query(&format!("select count(*) from {table}")).parse().unwrap()
    }

    pub fn table_counts(&self) -> [usize; 4] {
        ["parties", "cases", "votes", "vote_proposals"].map(|table| self.rows(table))
    }

    /// Everything in the four tables, times included: what must not change stays equal.
    pub fn everything(&self) -> String {
        let tables = [
            ("parties", "id"),
            ("cases", "id"),
            ("votes", "votering_id"),
            ("vote_proposals", "votering_id, forslag_id"),
        ];
        tables
            .map(|(table, order)| self.query(&format!("select * from {table} order by {order}")))
            .join("\n--\n")
    }

    /// Every row has its cache entry and the other way round.
    #[track_caller]
    pub fn cache_fits(&self) {
        for table in ["parties", "cases", "votes", "vote_proposals"] {
            let joined = format!(
                "select count(*) from {table} t join sync_cache c on c.internal_id = t.row_id and c.table_name = '{table}'"
            );
            let entries = format!("select count(*) from sync_cache where table_name = '{table}'");
            let (rows, joined, entries) = (self.rows(table), self.query(&joined), self.query(&entries));
            assert_eq!((joined, entries), (rows.to_string(), rows.to_string()), "{table}");
        }
    }

    /// An instant in the database, as rows have it.
    pub fn instant(&self, column: &str) -> String {
        match self.database {
            Database::Sqlite(_) => column.to_owned(),
            Database::Postgres(_) => {
                format!("to_char({column} at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')")
            }
        }
    }
}
