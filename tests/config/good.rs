//! Configs that hold, and what they come to.

use std::path::Path;
use std::time::Duration;

use trueup::config::{self, Config, From, Guard, Heal, Limit, Pipeline, Place, ShapeSpec, Then, recipe};
use trueup::error::Kind;
use trueup::secret::SecretRef;

use super::{env, parse};

fn pipeline(settings: &str) -> Pipeline {
    let text = format!("[pipelines.f]\nfrom = {{ files = \"in\" }}\ninto = \"sqlite:kv.db\"\n{settings}\n");
    parse(&text).unwrap_or_else(|error| panic!("{error}")).pipelines.remove("f").unwrap()
}

#[test]
fn an_empty_file_is_a_config_without_pipelines() {
    let config = parse("").unwrap();
    assert!(config.pipelines.is_empty() && config.stores.is_empty());
    assert_eq!(config.state.place, Place::Sqlite(".trueup/state.db".into()));
    assert_eq!(config.base, Path::new("."));
}

#[test]
fn a_short_pipeline_gets_every_default() {
    let pipeline = pipeline("");
    assert_eq!(pipeline.from, From::Files { folder: "in".into(), include: Vec::new(), exclude: Vec::new() });
    assert_eq!(pipeline.shape, ShapeSpec::Raw);
    assert_eq!(pipeline.into.name, "sqlite:kv.db");
    assert_eq!(pipeline.into.place, Place::Sqlite("kv.db".into()));
    assert_eq!((pipeline.when, pipeline.tz.as_str()), (None, "UTC"));
    assert!(pipeline.catch_up && pipeline.enabled && !pipeline.adopt);
    assert_eq!(pipeline.guard, Guard::default());
    assert_eq!((pipeline.batch, pipeline.concurrency), (None, config::CONCURRENCY));
    assert_eq!(pipeline.keep_runs, config::DAYS_30);
    assert!(pipeline.then.is_empty() && pipeline.notify.is_none());
}

#[test]
fn every_setting_of_a_pipeline_is_read() {
    let pipeline = pipeline(
        r#"
as = { raw = {} }
when = "0 16 * * *"
tz = "Asia/Seoul"
catch_up = false
enabled = false
guard = { max_delete = 5, max_update = "12.5%", above = 0 }
adopt = true
batch = 100
concurrency = 2
drift = { edited = "adopt", missing = "report", extra = "heal" }
notify = { webhook = "https://h/x", after = 3 }
keep_runs = "2y"
journal = { keep = "24h", max = "64MiB" }
"#,
    );
    assert_eq!((pipeline.when.as_deref(), pipeline.tz.as_str()), (Some("0 16 * * *"), "Asia/Seoul"));
    assert!(!pipeline.catch_up && !pipeline.enabled && pipeline.adopt);
    let guard = Guard { max_delete: Limit::Count(5), max_update: Limit::Percent(12.5), above: 0 };
    assert_eq!(pipeline.guard, guard);
    assert_eq!((pipeline.batch, pipeline.concurrency), (Some(100), 2));
    let drift = pipeline.drift;
    assert_eq!((drift.edited, drift.missing, drift.extra), (Heal::Adopt, Heal::Report, Heal::Heal));
    let notify = pipeline.notify.unwrap();
    assert_eq!((notify.webhook.expose(), notify.after), ("https://h/x", 3));
    assert_eq!(pipeline.keep_runs, Duration::from_secs(2 * 365 * 24 * 3600));
    assert_eq!(pipeline.journal.keep, Duration::from_secs(24 * 3600));
    assert_eq!(pipeline.journal.max_bytes, 64 << 20);
}

#[test]
fn follow_up_work_is_one_table_or_a_list() {
    let one = pipeline("then = { export = \"file:out\" }").then;
    assert!(matches!(&one[..], [Then::Export(store)] if store.place == Place::Folder("out".into())));
    let three = pipeline(
        r#"then = [
            { export = "file:out" },
            { webhook = "https://hooks.example.com/T0/secret", secret_env = "HOOK", timeout = "5s" },
            { command = ["sh", "-c", ""], timeout = "1m" },
        ]"#,
    )
    .then;
    let [Then::Export(_), Then::Webhook(hook), Then::Command(command)] = &three[..] else {
        panic!("{three:?}")
    };
    assert_eq!(hook.secret, Some(SecretRef::Env("HOOK".into())));
    assert_eq!(hook.timeout, Duration::from_secs(5));
    assert_eq!((command.program.as_str(), &command.args[..]), ("sh", &["-c".to_owned(), String::new()][..]));
    assert_eq!(command.timeout, Duration::from_secs(60));
}

#[test]
fn a_web_hook_never_shows_more_than_its_host() {
    let pipeline = pipeline(
        "then = { webhook = \"https://h.example/T0/hunter2\" }\nnotify = { webhook = \"https://h.example/hunter2\" }",
    );
    let shown = format!("{pipeline:?}");
    assert!(!shown.contains("hunter2") && shown.contains("https://h.example/…"), "{shown}");
}

#[test]
fn stores_have_names_options_and_secrets() {
    let config = parse(
        r#"
[stores]
kv = "sqlite:kv.db"
objects = "file:objects"
r2 = { url = "s3://bucket/a/b/", endpoint = "https://x.r2.example", region = "auto", access_key_env = "KEY", secret_key_file = "keys/secret" }
[stores.scratch]
url = "memory:"
"#,
    )
    .unwrap();
    assert_eq!(config.stores["kv"].name, "kv");
    assert_eq!(config.stores["scratch"].place, Place::Memory);
    let r2 = &config.stores["r2"];
    assert_eq!(r2.place, Place::S3 { bucket: "bucket".into(), prefix: "a/b".into() });
    assert_eq!(r2.options["endpoint"], "https://x.r2.example");
    assert_eq!(r2.options["region"], "auto");
    assert_eq!(r2.secrets["access_key"], SecretRef::Env("KEY".into()));
    assert_eq!(r2.secrets["secret_key"], SecretRef::File("keys/secret".into()));
}

#[test]
fn a_store_is_found_by_name_or_url_as_the_command_line_gives_it() {
    let config = parse("[stores]\nregistry = \"sqlite:r.db\"\n").unwrap();
    assert_eq!(config::store_spec("registry", Some(&config)).unwrap().name, "registry");
    assert_eq!(config::store_spec("sqlite:x.db", None).unwrap().place, Place::Sqlite("x.db".into()));
    let s3 = config::store_spec("s3://b/p?endpoint=http://127.0.0.1:9000&region=auto", None).unwrap();
    assert_eq!(s3.options["endpoint"], "http://127.0.0.1:9000");
    let error = config::store_spec("registy", Some(&config)).unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert_eq!(error.to_string(), "there is no store `registy`; did you mean `registry`?");
    assert!(error.remedy().contains("registry"), "{}", error.remedy());
    for url in
        ["cloudflare-kw://u:hunter2@h/db", "postgre://u:hunter2@h/db", "u:hunter2@h", "s3://b?token=hunter2"]
    {
        let error = config::store_spec(url, None).unwrap_err();
        let said = format!("{error} {error:?} {}", error.remedy());
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn paths_begin_at_the_folder_of_the_file() {
    let text = "[stores]\na = \"sqlite:x/./kv.db\"\nb = \"file:/abs/o\"\n[pipelines.f]\nfrom = { files = \".\", include = \"*.md\" }\ninto = \"a\"\n";
    let config = Config::parse(text, Path::new("some/where/t.toml"), &env).unwrap();
    assert_eq!(config.base, Path::new("some/where"));
    assert_eq!(config.state.place, Place::Sqlite("some/where/.trueup/state.db".into()));
    assert_eq!(config.stores["a"].place, Place::Sqlite("some/where/x/kv.db".into()));
    assert_eq!(config.stores["b"].place, Place::Folder("/abs/o".into()));
    assert!(
        matches!(&config.pipelines["f"].from, From::Files { folder, .. } if folder == Path::new("some/where"))
    );
}

#[test]
fn the_environment_fills_in_any_string_but_no_key() {
    let config = parse(
        r#"
[stores]
kv = { url = "sqlite:${NOPE:-kv}.db" }
[pipelines.f]
from = { files = "${FOLDER}", include = ["${EMPTY:-**/*}", "$${x}"] }
into = "kv"
enabled = "${YES}"
batch = "${TEN}"
tz = '${NOPE:-${ALSO:-UTC}}'
then = [{ command = ["echo", "${FOLDER}"] }]
"#,
    )
    .unwrap();
    assert_eq!(config.stores["kv"].place, Place::Sqlite("kv.db".into()));
    let pipeline = &config.pipelines["f"];
    let From::Files { folder, include, .. } = &pipeline.from else { panic!() };
    assert_eq!((folder.to_str().unwrap(), include[0].as_str(), include[1].as_str()), ("in", "**/*", "${x}"));
    assert_eq!((pipeline.enabled, pipeline.batch), (true, Some(10)));
    assert!(matches!(&pipeline.then[0], Then::Command(command) if command.args == ["in"]));
}

#[test]
fn a_store_can_be_a_source_and_the_state_can_have_a_name() {
    let config = parse(
        r#"
state = { store = "memo" }
[stores]
memo = "sqlite:memo.db"
a = "sqlite:a.db"
[pipelines.f]
from = { store = "a", prefix = "x/" }
into = "file:out"
[pipelines.g]
from = { store = "a", prefix = "" }
into = "sqlite:b.db"
"#,
    )
    .unwrap();
    assert_eq!(config.state.place, Place::Sqlite("memo.db".into()));
    assert!(matches!(&config.pipelines["f"].from, From::Store { prefix, .. } if prefix == "x/"));
}

#[test]
fn the_state_may_share_a_server_with_data_but_not_their_place() {
    for (state, data) in [
        ("postgres://t@db/main", "postgres://t@db/main"),
        ("postgres://t@db/main?table=mine", "postgres://t@db/main"),
        ("etcd://host:2379/trueup/state/", "etcd://host:2379/trueup/data/"),
    ] {
        let config = format!(
            "[state]\nstore = \"{state}\"\n[pipelines.f]\nfrom = {{ files = \"in\" }}\ninto = \"{data}\"\n"
        );
        parse(&config).unwrap();
    }
}

#[test]
fn a_store_below_its_source_is_fine_when_it_is_excluded() {
    let text = r#"
[pipelines.f]
from = { files = ".", exclude = [".trueup/**"] }
into = "sqlite:.trueup/kv.db"
then = { export = "file:.trueup/objects" }
"#;
    assert!(parse(text).is_ok());
}

#[test]
fn equal_settings_have_equal_digests_however_they_are_laid_out() {
    let digest = |text: &str| {
        let file = Path::new("/srv/app/trueup.toml");
        Config::parse(text, file, &env).unwrap_or_else(|error| panic!("{error}")).pipelines["f"]
            .digest
            .clone()
    };
    let plain = digest("[pipelines.f]\nfrom = { files = \"in\" }\ninto = \"sqlite:kv.db\"\n");
    let same = [
        "[pipelines.f]\ninto = \"sqlite:kv.db\"\nfrom.files = \"${FOLDER}\"\n",
        "[stores]\nk = { url = \"sqlite:./kv.db\" }\n[pipelines.f]\ninto = \"k\"\nas = \"raw\"\nenabled = true\n[pipelines.f.from]\nfiles = \"/srv/app/in\"\n",
        "# other\n[pipelines.g]\nfrom = { files = \"x\" }\ninto = \"memory:\"\n[pipelines.f]\nfrom = { files = 'in' }\ninto = 'sqlite:kv.db'\nguard = {}\n",
    ];
    for text in same {
        assert_eq!(digest(text), plain, "{text}");
    }
    let other = [
        "[pipelines.f]\nfrom = { files = \"on\" }\ninto = \"sqlite:kv.db\"\n",
        "[pipelines.f]\nfrom = { files = \"in\" }\ninto = \"sqlite:kv2.db\"\n",
        "[pipelines.f]\nfrom = { files = \"in\" }\ninto = \"sqlite:kv.db\"\nguard = { above = 11 }\n",
        "[pipelines.f]\nfrom = { files = \"in\", include = [\"*\"] }\ninto = \"sqlite:kv.db\"\n",
    ];
    for text in other {
        assert_ne!(digest(text), plain, "{text}");
    }
}

#[test]
fn systems_whose_keys_cannot_meet_share_a_store() {
    let config = parse(include_str!("../fixtures/whole.toml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.pipelines.len(), config.replicas.len(), config.workspaces.len()), (3, 1, 1));
    let Then::Export(exported) = &config.pipelines["rules"].then[0] else { panic!("no export") };
    assert_eq!(exported.place, config.pipelines["notices"].into.place);
}

#[test]
fn a_missing_file_names_the_command_that_writes_one() {
    let error = Config::load(Path::new("/nowhere/trueup.toml"), &env).unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert_eq!(error.to_string(), "there is no /nowhere/trueup.toml");
    assert!(error.remedy().contains("trueup init"), "{}", error.remedy());
}

#[test]
fn what_is_no_text_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    std::fs::write(&file, b"[stores]\nx = \"\xff\"\n").unwrap();
    let error = Config::load(&file, &env).unwrap_err();
    assert!(error.to_string().ends_with("t.toml:2: the file is not UTF-8 text"), "{error}");
    assert_eq!(Config::load(folder.path(), &env).unwrap_err().kind(), Kind::Config);
}

#[test]
fn every_recipe_parses_as_it_is() {
    assert!(recipe::names().any(|name| name == recipe::DEFAULT));
    for name in recipe::names() {
        let config = parse(recipe::recipe(name).unwrap()).unwrap_or_else(|error| panic!("{error}"));
        let (pipelines, workspaces) = (!config.pipelines.is_empty(), !config.workspaces.is_empty());
        assert!(pipelines || workspaces || !config.replicas.is_empty());
    }
    assert_eq!(
        recipe::recipe("fils").unwrap_err().to_string(),
        "there is no recipe `fils`; did you mean `files`?"
    );
}
