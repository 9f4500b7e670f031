//! Rows by `dlt` and by us, side by side: the same API into PostgreSQL, both as programs, start to end. Two APIs, because
//! they cost differently: long lists, and the hierarchy of the shipped recipe, with a request for nearly every row.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{RECIPE, ROWS, config, serve};
use crate::harness::{Bench, Measured, Outcome, runtime, web};
use crate::support::{self, postgres::Postgres};

/// Each side is measured this often, in turns; the best of each counts.
const ROUNDS: usize = 3;
/// How much faster we are to be.
const WANTED: f64 = 10.0;

/// The recipe's own data set, so many times over: parties stay as they are.
const TIMES: usize = 20;
const PARTIES: usize = 21;
const CASES: usize = 198 * TIMES;
const VOTES: usize = 76 * TIMES;
const PROPOSALS: usize = 81 * TIMES;

/// An API, and what both sides need to know of it.
struct Beside {
    /// What the script calls it.
    name: &'static str,
    what: String,
    api: String,
    recipe: String,
}

pub fn against_dlt(bench: &mut Bench) -> Outcome<()> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/dlt/bin/python");
    if !python.exists() {
        return Err("python3 -m venv target/dlt && target/dlt/bin/pip install 'dlt[postgres]==1.31.0'".into());
    }
    let runtime = runtime()?;
    let postgres = runtime.block_on(support::postgres());
    for beside in [hierarchy()?, lists()] {
        let side_by_side = SideBySide::begin(&beside, &python, postgres)?;
        for what in ["first load", "unchanged"] {
            let (theirs, ours) = side_by_side.measured(what == "first load")?;
            let name = format!("{} into PostgreSQL against dlt, {what}", beside.what);
            bench.at_least(&name, theirs.seconds / ours.seconds, WANTED, "×");
            let name = format!("{name}: memory, dlt's being the limit");
            bench.at_most(&name, ours.peak_mb, theirs.peak_mb, "MB");
        }
    }
    Ok(())
}

fn lists() -> Beside {
    let api = serve();
    let recipe = RECIPE.replace("${API}", &api);
    Beside { name: "lists", what: format!("{ROWS} rows in lists of 99"), api, recipe }
}

fn hierarchy() -> Outcome<Beside> {
    let api = parliament()?;
    let recipe = include_str!("../../recipes/stortinget.toml")
        .replace("${STORTINGET_BASE_URL:-https://data.stortinget.no}", &api)
        .replace("${STORTINGET_SESSIONS:-}", "");
    let rows = PARTIES + CASES + VOTES + PROPOSALS;
    let what = format!("{rows} rows of a hierarchy, {} requests", 2 + CASES + VOTES);
    Ok(Beside { name: "hierarchy", what, api, recipe })
}

struct SideBySide<'a> {
    beside: &'a Beside,
    python: &'a Path,
    postgres: &'a Postgres,
    ours_at: tempfile::TempDir,
    theirs_at: tempfile::TempDir,
}

impl<'a> SideBySide<'a> {
    fn begin(beside: &'a Beside, python: &'a Path, postgres: &'a Postgres) -> Outcome<Self> {
        let (ours_at, theirs_at) = (Bench::folder()?, Bench::folder()?);
        std::fs::write(ours_at.path().join("recipe.toml"), &beside.recipe)?;
        Ok(SideBySide { beside, python, postgres, ours_at, theirs_at })
    }

    /// Theirs and ours. Every first load begins with nothing; what comes after it finds what the last one left.
    fn measured(&self, first: bool) -> Outcome<(Measured, Measured)> {
        let mut best: Option<(Measured, Measured)> = None;
        for _ in 0..ROUNDS {
            if first {
                self.begin_anew()?;
            }
            let (theirs, ours) = (self.theirs()?, self.ours()?);
            best = Some(best.map_or((theirs, ours), |best| (best.0.or(theirs), best.1.or(ours))));
        }
        best.ok_or_else(|| "nothing was measured".into())
    }

    fn begin_anew(&self) -> Outcome<()> {
        std::fs::write(self.ours_at.path().join("trueup.toml"), config(&self.postgres.fresh_database()))?;
        drop(std::fs::remove_dir_all(self.ours_at.path().join(".trueup")));
        // dlt wants a password, whether the server asks for one or not.
        std::fs::write(self.database(), self.postgres.fresh_database().replacen('@', ":unasked@", 1))?;
        drop(std::fs::remove_dir_all(self.state()));
        Ok(())
    }

    /// Where the address of their database is noted.
    fn database(&self) -> PathBuf {
        self.theirs_at.path().join("database")
    }

    fn state(&self) -> PathBuf {
        self.theirs_at.path().join("state")
    }

    fn theirs(&self) -> Outcome<Measured> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/beside/tables.py");
        let (database, state) =
            (std::fs::read_to_string(self.database())?, self.state().display().to_string());
        let arguments = [script, self.beside.name, &self.beside.api, &database, &state];
        Bench::weighed(self.python, &arguments, self.theirs_at.path())
    }

    fn ours(&self) -> Outcome<Measured> {
        Bench::weighed(Path::new(env!("CARGO_BIN_EXE_trueup")), &["sync"], self.ours_at.path())
    }
}

/// The API of the shipped recipe, with answers made once.
fn parliament() -> Outcome<String> {
    const DATE: &str = "/Date(1761256800000+0200)/";
    let answer = |list: &str, items: Vec<Value>| -> Arc<str> {
        json!({"versjon": "1.6", "respons_dato_tid": DATE, list: items}).to_string().into()
    };
    let party = |n| json!({"id": format!("P{n}"), "navn": format!("Parti {n}"), "representert_parti": true});
    let case = |id| {
        json!({
            "id": id, "type": 2, "tittel": format!("Sak {id} om én ting som det er verdt å stemme over"),
            "korttittel": format!("Sak {id}"), "status": 1, "dokumentgruppe": 4, "sist_oppdatert_dato": DATE,
            "sak_fremmet_id": 7, "henvisning": null,
        })
    };
    let vote = |id| {
        json!({
            "sak_id": id, "vedtatt": true, "votering_id": id, "votering_resultat_type": 3,
            "votering_resultat_type_tekst": "Enstemmig", "votering_tema": "Tema", "votering_tid": DATE,
        })
    };
    let proposal = |vote, id| {
        json!({
            "votering_id": vote, "forslag_betegnelse": "Forslag 1", "forslag_id": id, "forslag_type": 1,
            "forslag_paa_vegne_av_tekst": "SV", "forslag_sorteringsnummer": 1, "forslag_tekst": "<p>Tekst</p>",
        })
    };
    let mut answers = HashMap::from([
        (
            "/eksport/allepartier?format=json".to_owned(),
            answer("partier_liste", (0..PARTIES).map(party).collect()),
        ),
        ("/eksport/saker?format=json".to_owned(), answer("saker_liste", (0..CASES).map(case).collect())),
    ]);
    // The first cases have a vote each, and the first votes two proposals, as far as there are any.
    for id in 0..CASES {
        let votes = (id < VOTES).then(|| vote(id)).into_iter().collect();
        answers.insert(
            format!("/eksport/voteringer?format=json&sakid={id}"),
            answer("sak_votering_liste", votes),
        );
    }
    for id in 0..VOTES {
        let two = id < PROPOSALS - VOTES;
        let proposals = (0..=usize::from(two)).map(|n| proposal(id, n)).collect();
        let path = format!("/eksport/voteringsforslag?format=json&voteringid={id}");
        answers.insert(path, answer("voteringsforslag_liste", proposals));
    }
    web::serve(move |path| answers.get(path).cloned())
}
