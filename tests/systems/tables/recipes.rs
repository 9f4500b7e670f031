//! Recipes of another shape than the parliament's, what is wrong with bad ones, and `trueup init`.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use trueup::config::Config;

use super::kit::{Database, ROWS, Ran, Stage, json_reply};
use super::on_both;
use crate::support::{
    self,
    http::{Reply, Request, Server},
};

on_both!(a_shop_of_another_shape_is_mirrored_too);

const SHOP: &str = include_str!("shop.toml");

/// Two pages of everything; reviews hide behind cursors, products behind links.
fn shop(url: &str, price: f64, request: &Request) -> Reply {
    if request.headers.get("authorization").map(String::as_str) != Some("Bearer s3cret") {
        return Reply::status(401);
    }
    let page = |name: &str| request.path.contains(name);
    let product = |sku: &str| {
        json!({
            "sku": sku, "title": {"en": format!("Product {sku}"), "no": "Vare"}, "price": {"amount": price, "currency": "NOK"},
            "dates": {"added": "2026-01-02T03:04:05.678901+01:00"}, "live": true, "etag": sku,
            "images": [{"url": "http://img/1"}], "details": {"z": 1e3, "a": [1.5, null, {"etag": "x", "é": "ü"}]},
        })
    };
    let review = |author: &str, stars: u8| json!({"author": {"login": author}, "stars": stars});
    match request.path.split('?').next().unwrap() {
        "/api/brands" if page("page=1") => json_reply(&json!([{"id": "a"}, {"id": "b"}])),
        "/api/brands" => json_reply(&json!([{"id": "c"}])),
        "/api/tags" if page("from=0") => json_reply(&json!({"found": [{"id": 1}, {"id": 2}]})),
        "/api/tags" => json_reply(&json!({"found": []})),
        "/api/products" if page("cursor=2") => json_reply(&json!([product("b/2")])),
        "/api/products" => json_reply(&json!([product("a 1")]))
            .header("Link", format!("<{url}/api/products?cursor=2>; rel=\"next\"")),
        "/api/products/a%201/reviews" if page("after=x") => {
            json_reply(&json!({"data": {"reviews": [review("bo", 5)], "next": null}}))
        }
        "/api/products/a%201/reviews" => {
            json_reply(&json!({"data": {"reviews": [review("an/na", 1)], "next": "x"}}))
        }
        "/api/products/b%2F2/reviews" => json_reply(&json!({"data": {"reviews": [review("bo", 3)]}})),
        _ => Reply::status(404),
    }
}

async fn a_shop_of_another_shape_is_mirrored_too(mut stage: Stage) {
    let address = Arc::new(Mutex::new(String::new()));
    let price = Arc::new(Mutex::new(9.5));
    let (theirs, now) = (address.clone(), price.clone());
    let server = Server::start(move |request| shop(&theirs.lock().unwrap(), *now.lock().unwrap(), request));
    *address.lock().unwrap() = server.url("");
    std::fs::write(stage.folder.path().join("shop.toml"), SHOP).unwrap();
    stage.recipe = "shop.toml".into();
    let sync = || {
        let mut command = stage.command(&["sync"]);
        Ran::of(&command.env("SHOP_URL", server.url("")).env("SHOP_TOKEN", "s3cret").output().unwrap())
    };
    let first = sync();
    first.is(0, &[("added", 10), ("failed", 0), ("requests", 10)]);
    assert!(first.run()["warnings"].to_string().contains("reviews.stars: 3"));
    let day = stage.instant("added");
    let sql = format!("select sku, name, price, {day}, first from products order by sku");
    assert_eq!(
        stage.query(&sql),
        "a 1|Product a 1|9.5|2026-01-02T02:04:05.678Z|http://img/1\nb/2|Product b/2|9.5|2026-01-02T02:04:05.678Z|http://img/1"
    );
    assert_eq!(
        stage.query("select sku, author, stars from reviews order by sku, author"),
        "a 1|an/na|bad\na 1|bo|good\nb/2|bo|unknown_3"
    );
    let ids =
        stage.query("select external_id from sync_cache where table_name = 'reviews' order by external_id");
    assert_eq!(ids, "a 1/an%2Fna\na 1/bo\nb%2F2/bo");
    if let Database::Sqlite(_) = stage.database {
        let details = stage.query("select details from products where sku = 'a 1'");
        assert_eq!(details, r#"{"a":[1.5,null,{"é":"ü"}],"z":1000}"#);
    }
    sync().is(0, &[("unchanged", 10), ("writes", 0)]);
    *price.lock().unwrap() = 1e21;
    sync().is(0, &[("updated", 2), ("unchanged", 8)]);
    assert_eq!(stage.query("select count(*) from products where price = 1e21"), "2");
    let shown = String::from_utf8(
        stage
            .command(&["sync"])
            .env("SHOP_URL", server.url(""))
            .env("SHOP_TOKEN", "wr0ng")
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    assert!(shown.contains("unauthorized") && !shown.contains("wr0ng"), "{shown}");
}

fn refused(recipe: &str) -> String {
    let folder = support::temp();
    std::fs::write(folder.path().join("r.toml"), recipe).unwrap();
    let config =
        "[pipelines.p]\nfrom = { rest = \"r.toml\" }\nas = \"rows\"\ninto = { tables = \"sqlite:x.db\" }\n";
    let env = |name: &str| (name == "SHOP_URL").then(|| "http://h".to_owned());
    let path = folder.path().join("trueup.toml");
    Config::parse(config, &path, &env)
        .map(drop)
        .unwrap_err()
        .to_string()
        .replace(&*folder.path().to_string_lossy(), "~")
}

#[test]
fn a_mistake_in_a_recipe_is_shown_where_it_is() {
    for (change, to, said) in [
        ("key  = \"sku\"", "key  = \"nmae\"", "text or integer and always there"),
        ("{products.sku}", "{product.sku}", "nothing can fill the place {product.sku}"),
        ("live     = \"boolean\"", "live     = \"bool\"", "`live` takes a type"),
        ("live     = \"boolean\"", "row_id   = \"integer\"", "a column `row_id` of its own"),
        ("live     = \"boolean\"", "Live     = \"boolean\"", "a-z, 0-9"),
        ("name = \"tags\"", "name = \"sync_cache\"", "cannot be called `sync_cache`"),
        ("name = \"tags\"", "name = \"sync_schema\"", "cannot be called `sync_schema`"),
        ("parent = \"sku\"", "parent = \"skuu\"", "has no such column"),
        ("bearer_env", "bearer", "would hold a secret"),
        ("base = ", "bse = ", "unknown key `bse`"),
        ("param = \"after\"", "parm = \"after\"", "did you mean `param`?"),
        ("5 = \"good\"", "five = \"good\"", "words by number"),
    ] {
        let recipe = SHOP.replacen(change, to, 1);
        assert_ne!(recipe, SHOP, "{change}");
        let message = refused(&recipe);
        assert!(message.contains(said) && message.contains("~/r.toml:"), "{change}: {message}");
    }
}

/// In PostgreSQL they share one room, and of two with one name the second is left out.
#[test]
fn tables_and_indexes_have_names_of_their_own() {
    let long = "t".repeat(52);
    let own = "by_table_and_external_id";
    for (names, at, said) in [
        (["a", "b", "x", own], "20:47", "this one is trueup's own; give it another"),
        (["a", "b", "x", "x"], "20:47", "that of `n`"),
        (["a", "b", "a_natural_key", "y"], "10:47", "that of the key of a"),
        (["a", "b", "a", "y"], "10:47", "that of the table a"),
        (["a", "b", "a_pkey", "y"], "10:47", "that of a part of the table a"),
        (["a", "b", "b_natural_key", "y"], "13:8", "that of `n`"),
        (["a", "a_natural_key", "x", "y"], "13:8", "a resource cannot be called `a_natural_key`"),
        ([&long, "b", "x", "y"], "3:8", "51 bytes at most"),
    ] {
        let [one, other, x, y] = names;
        let resource = |name: &str, index: &str| {
            format!(
                "[[resources]]\nname = \"{name}\"\npath = \"/x\"\nkey = \"id\"\n\n\n[resources.columns]\n\
                 id = \"text\"\nn = {{ type = \"text\", optional = true, index = \"{index}\" }}\n"
            )
        };
        let message = refused(&format!("base = \"http://h\"\n{}\n{}", resource(one, x), resource(other, y)));
        assert!(message.contains(&format!("~/r.toml:{at}:")) && message.contains(said), "{said}: {message}");
    }
}

#[test]
fn rows_and_tables_belong_together() {
    let none = |_: &str| None;
    let parse =
        |text: &str| Config::parse(text, Path::new("trueup.toml"), &none).map(drop).unwrap_err().to_string();
    let rows = parse(
        "[pipelines.p]\nfrom = { files = \"in\" }\nas = \"rows\"\ninto = { tables = \"sqlite:x.db\" }\n",
    );
    assert!(rows.contains("only a `rest` source"), "{rows}");
    let raw = parse(
        "[pipelines.p]\nfrom = { rest = \"recipes/stortinget.toml\" }\ninto = { tables = \"sqlite:x.db\" }\n",
    );
    assert!(raw.contains("use as = \"rows\""), "{raw}");
    let url = parse(
        "[pipelines.p]\nfrom = { rest = \"recipes/stortinget.toml\" }\nas = \"rows\"\ninto = { tables = \"mysql://x\" }\n",
    );
    assert!(url.contains("sqlite:PATH or postgres://"), "{url}");
    let missing = parse(
        "[pipelines.p]\nfrom = { rest = \"nowhere.toml\" }\nas = \"rows\"\ninto = { tables = \"sqlite:x.db\" }\n",
    );
    assert!(missing.contains("nowhere.toml"), "{missing}");
}

#[tokio::test]
async fn init_gives_a_config_that_runs_as_it_is() {
    let stage = Stage::on_sqlite();
    let folder = support::temp();
    let trueup = |arguments: &[&str]| {
        let mut command = support::trueup();
        command
            .current_dir(folder.path())
            .args(arguments)
            .arg("--json")
            .env("STORTINGET_BASE_URL", stage.server.url(""));
        Ran::of(&command.output().unwrap())
    };
    assert_eq!(trueup(&["init", "stortinget"]).code, 0);
    assert!(folder.path().join("recipes/stortinget.toml").is_file());
    assert_eq!(trueup(&["check"]).code, 0);
    trueup(&["sync"]).is(0, &[("added", ROWS), ("requests", 276)]);
    assert!(folder.path().join(".trueup/stortinget.db").is_file());
    assert_eq!(trueup(&["init", "stortinget"]).code, 2, "nothing is overwritten");
}

#[tokio::test]
async fn rows_go_into_any_store_and_sessions_are_asked_one_by_one() {
    let stage = Stage::on_sqlite();
    let config = "[pipelines.p]\nfrom = { rest = \"recipes/stortinget.toml\" }\nas = \"rows\"\ninto = \"sqlite:kv.db\"\n";
    std::fs::write(stage.folder.path().join("trueup.toml"), config).unwrap();
    let mut command = support::trueup();
    command
        .current_dir(stage.folder.path())
        .args(["sync", "--json"])
        .env("STORTINGET_BASE_URL", stage.server.url(""));
    stage.api().trouble = Box::new(|request| {
        request.path.contains("sesjonid=2023-2024").then(|| json_reply(&json!({"saker_liste": []})))
    });
    let run = Ran::of(&command.env("STORTINGET_SESSIONS", "2023-2024,2024-2025").output().unwrap());
    run.is(0, &[("added", ROWS), ("requests", 277)]);
    let got = Ran::of(
        &support::trueup()
            .current_dir(stage.folder.path())
            .args(["kv", "get", "sqlite:kv.db", "parties/P0", "--json"])
            .output()
            .unwrap(),
    );
    let row: Value = serde_json::from_str(got.json["value"].as_str().unwrap()).unwrap();
    assert_eq!(row, json!({"id": "P0", "navn": "Parti 0", "representert_parti": true}));
}
