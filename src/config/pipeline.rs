//! One `[pipelines.NAME]`: the sentence and its settings.

use jiff::tz::TimeZone;

use super::locate::{Span, nearest};
use super::model::{CONCURRENCY, DAYS_30, Drift, From, Guard, Heal, Journal, Pipeline, ShapeSpec, Then};
use super::reader::{Field, Keys, Reader};
use super::source::{self, Around};
use super::{follow, shape, store, values};

pub const KEYS: Keys = &[
    "from",
    "as",
    "into",
    "then",
    "when",
    "tz",
    "catch_up",
    "enabled",
    "guard",
    "adopt",
    "batch",
    "concurrency",
    "drift",
    "notify",
    "keep_runs",
    "journal",
];
pub const GUARD_KEYS: Keys = &["max_delete", "max_update", "above"];
pub const DRIFT_KEYS: Keys = &["edited", "missing", "extra"];
pub const JOURNAL_KEYS: Keys = &["keep", "max"];

/// Items in one write; more would only hold more in memory at once.
const BATCH_MAX: i64 = 100_000;
/// Bodies read at once; past this a source refuses us or the machine runs out of sockets.
const CONCURRENCY_MAX: i64 = 1_024;

/// A pipeline and where its parts were written, for the checks that look at several.
pub struct Written {
    pub pipeline: Pipeline,
    pub from: Span,
    pub into: Span,
    /// Of each entry of `then`, in order.
    pub then: Vec<Span>,
}

pub fn read(name: &str, field: &Field<'_>, around: &Around<'_>) -> Option<Written> {
    let reader = field.table(KEYS, "a table with `from` and `into`")?;
    let then = then(&reader, around);
    let shape = match reader.take("as") {
        Some(field) => shape::read(&field),
        None => Some(ShapeSpec::Raw),
    };
    let batch = reader.take("batch").and_then(|field| field.integer(1..=BATCH_MAX));
    let concurrency = reader.take("concurrency").and_then(|field| field.integer(1..=CONCURRENCY_MAX));
    let truth = |key, default| reader.take(key).and_then(|field| field.boolean()).unwrap_or(default);
    let (when, tz) = (when(&reader), time_zone(&reader));
    let (guard, drift, journal) = (guard(&reader), drift(&reader), journal(&reader));
    let notify = reader.take("notify").and_then(|field| follow::notify(&field));
    let keep_runs = reader.take("keep_runs").and_then(|field| field.interval()).unwrap_or(DAYS_30);
    let (catch_up, enabled, adopt) = (truth("catch_up", true), truth("enabled", true), truth("adopt", false));
    let from = reader.require("from", "a source");
    let into = reader.require("into", "a store");
    let source = from.as_ref().and_then(|field| source::read(field, around));
    let target = into.as_ref().and_then(|field| target(field, around));
    let (batch, concurrency) = pace(source.as_ref(), batch, concurrency);
    Some(Written {
        from: from?.span().clone(),
        into: into?.span().clone(),
        then: then.iter().map(|(span, _)| span.clone()).collect(),
        pipeline: Pipeline {
            name: name.to_owned(),
            from: source?,
            shape: shape?,
            into: target?,
            then: then.into_iter().map(|(_, then)| then).collect(),
            when,
            tz,
            catch_up,
            enabled,
            guard,
            adopt,
            batch,
            concurrency,
            drift,
            notify,
            keep_runs,
            journal,
            digest: String::new(),
            place: String::new(),
            reading: String::new(),
        },
    })
}

/// How many at once: what the pipeline says, else what its recipe says, else the usual.
fn pace(from: Option<&From>, batch: Option<u64>, concurrency: Option<u64>) -> (Option<usize>, usize) {
    let (usual_batch, usual_concurrency) = match from {
        Some(From::Rest(spec)) => (spec.batch, spec.concurrency.unwrap_or(super::REST_CONCURRENCY)),
        _ => (None, CONCURRENCY),
    };
    let size = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
    (size(batch).or(usual_batch), size(concurrency).unwrap_or(usual_concurrency))
}

fn target(field: &Field<'_>, around: &Around<'_>) -> Option<super::model::StoreSpec> {
    if field.at("tables").is_some() {
        return super::rows::target(field, around);
    }
    store::used(field, around.stores, around.base)
}

fn then(reader: &Reader<'_>, around: &Around<'_>) -> Vec<(Span, Then)> {
    let Some(field) = reader.take("then") else { return Vec::new() };
    let read = |item: Field<'_>| Some((item.span().clone(), follow::read(&item, around)?));
    field.list_or_one().into_iter().filter_map(read).collect()
}

fn when(reader: &Reader<'_>) -> Option<String> {
    let field = reader.take("when")?;
    let text = field.text(values::CRON)?;
    if !values::looks_like_cron(text) {
        return field.unexpected(values::CRON);
    }
    match values::cron(text) {
        Ok(_) => Some(text.to_owned()),
        Err(why) => {
            field.wrong_with(
                format!("`when` cannot be read: {why}"),
                format!("expected {}, such as \"0 16 * * *\"", values::CRON),
            );
            None
        }
    }
}

fn time_zone(reader: &Reader<'_>) -> String {
    const UTC: &str = "UTC";
    let Some(field) = reader.take("tz") else { return UTC.to_owned() };
    let Some(name) = field.text("the name of a time zone such as \"Europe/Oslo\"") else {
        return UTC.to_owned();
    };
    if TimeZone::get(name).is_err() {
        let zones: Vec<String> = jiff::tz::db().available().map(|zone| zone.to_string()).collect();
        let meant = match nearest(name, zones.iter().map(String::as_str)) {
            Some(zone) => format!("; did you mean \"{zone}\"?"),
            None => String::new(),
        };
        field.wrong_with(
            format!("there is no time zone \"{}\"{meant}", super::reader::repeated(name)),
            "names are those of the IANA database, such as \"UTC\" or \"Asia/Seoul\"",
        );
    }
    name.to_owned()
}

fn guard(reader: &Reader<'_>) -> Guard {
    let mut guard = Guard::default();
    let Some(field) = reader.take("guard") else { return guard };
    let Some(table) = field.table(GUARD_KEYS, "a table such as { max_delete = \"30%\" }") else {
        return guard;
    };
    let limit = |key, default| table.take(key).and_then(|field| field.limit()).unwrap_or(default);
    guard.max_delete = limit("max_delete", guard.max_delete);
    guard.max_update = limit("max_update", guard.max_update);
    if let Some(above) = table.take("above").and_then(|field| field.integer(0..=i64::MAX)) {
        guard.above = above;
    }
    guard
}

fn drift(reader: &Reader<'_>) -> Drift {
    // A missing or surplus key cannot be adopted: there is nothing there, or it is ours already.
    const BOTH: [(&str, Heal); 2] = [("heal", Heal::Heal), ("report", Heal::Report)];
    const THREE: [(&str, Heal); 3] = [("heal", Heal::Heal), ("report", Heal::Report), ("adopt", Heal::Adopt)];
    let mut drift = Drift::default();
    let Some(field) = reader.take("drift") else { return drift };
    let Some(table) = field.table(DRIFT_KEYS, "a table such as { edited = \"heal\" }") else { return drift };
    let choose = |key, choices: &[(&'static str, Heal)], default| {
        table.take(key).and_then(|field| field.choice(choices)).unwrap_or(default)
    };
    drift.edited = choose("edited", &THREE, drift.edited);
    drift.missing = choose("missing", &BOTH, drift.missing);
    drift.extra = choose("extra", &BOTH, drift.extra);
    drift
}

fn journal(reader: &Reader<'_>) -> Journal {
    let mut journal = Journal::default();
    let Some(field) = reader.take("journal") else { return journal };
    let Some(table) = field.table(JOURNAL_KEYS, "a table such as { keep = \"30d\", max = \"1GB\" }") else {
        return journal;
    };
    journal.keep = table.take("keep").and_then(|field| field.duration()).unwrap_or(journal.keep);
    journal.max_bytes = table.take("max").and_then(|field| field.bytes()).unwrap_or(journal.max_bytes);
    journal
}
