//! The digest of a pipeline: equal settings, equal digest, however the file is laid out.
//!
//! It is taken over what the settings mean (defaults filled in, names resolved), not over how they were written.
//! Secrets stay out; the names of the variables that hold them count.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::article::OnEdit;
use super::git::Selection;
use super::model::{Database, From, Heal, Limit, OnMissing, Pipeline, Place, ShapeSpec, StoreSpec, Then};
use super::redact;
use super::rest::RestSpec;
use crate::record::Fingerprint;
use crate::secret::SecretRef;

/// Changes when the rendering below does, so that an old sealed plan is refused rather than misread.
const RENDERING: u32 = 1;

pub fn of(pipeline: &Pipeline, base: &Path) -> String {
    // Keys of a `serde_json` map are sorted, so the text is canonical.
    Fingerprint::of(render(pipeline, base).to_string().as_bytes()).to_string()
}

/// The digest of what is read and how it is understood: what was found under one is no answer under another.
pub fn of_reading(pipeline: &Pipeline, base: &Path) -> String {
    let reading = json!([RENDERING, source(&pipeline.from, base), shape(&pipeline.shape)]);
    Fingerprint::of(reading.to_string().as_bytes()).to_string()
}

fn render(pipeline: &Pipeline, base: &Path) -> Value {
    json!({
        "rendering": RENDERING,
        "name": pipeline.name,
        "from": source(&pipeline.from, base),
        "as": shape(&pipeline.shape),
        "into": store(&pipeline.into, base),
        "then": pipeline.then.iter().map(|step| then(step, base)).collect::<Vec<_>>(),
        "when": pipeline.when,
        "tz": pipeline.tz,
        "catch_up": pipeline.catch_up,
        "enabled": pipeline.enabled,
        "guard": {
            "max_delete": limit(pipeline.guard.max_delete),
            "max_update": limit(pipeline.guard.max_update),
            "above": pipeline.guard.above,
        },
        "adopt": pipeline.adopt,
        "batch": pipeline.batch,
        "concurrency": pipeline.concurrency,
        "drift": [heal(pipeline.drift.edited), heal(pipeline.drift.missing), heal(pipeline.drift.extra)],
        "notify": pipeline.notify.as_ref().map(|notify| json!([notify.webhook.to_string(), notify.after])),
        "keep_runs": millis(pipeline.keep_runs),
        "journal": [millis(pipeline.journal.keep), json!(pipeline.journal.max_bytes)],
    })
}

fn source(from: &From, base: &Path) -> Value {
    match from {
        From::Files { folder, include, exclude } => {
            json!({"files": path(folder, base), "include": include, "exclude": exclude})
        }
        From::Rss(spec) => json!({
            "rss": spec.feeds.iter().map(|feed| json!([feed.board, redact::url(feed.url.as_str())])).collect::<Vec<_>>(),
            "preview": spec.preview.as_ref().map(|preview| json!({
                "base": redact::url(preview.base.as_str()),
                "token": preview.token.as_ref().map(|reference| secret(reference, base)),
            })),
            "timeout": millis(spec.timeout),
        }),
        From::Git(spec) => json!({"git": spec.shown, "files": files(&spec.files, base)}),
        From::Github(spec) => {
            json!({"github": [spec.owner, spec.name], "api": spec.api, "files": files(&spec.files, base)})
        }
        From::Rest(spec) => rest(spec),
        From::Store { store: from, prefix } => json!({"store": store(from, base), "prefix": prefix}),
    }
}

fn files(files: &Selection, base: &Path) -> Value {
    json!({
        "branch": files.branch,
        "include": files.include,
        "exclude": files.exclude,
        "token": files.token.as_ref().map(|reference| secret(reference, base)),
    })
}

fn rest(spec: &RestSpec) -> Value {
    json!({
        "rest": redact::url(spec.base.as_str()),
        "resources": format!("{:?}", spec.resources),
        "strip": spec.strip,
        "auth": format!("{:?}", spec.auth),
        "version": spec.version.as_ref().map(|version| json!([version.field.to_string(), version.known])),
        "attempts": spec.attempts,
        "timeout": millis(spec.timeout),
        "delay": millis(spec.delay),
    })
}

fn shape(shape: &ShapeSpec) -> Value {
    match shape {
        ShapeSpec::Rows(spec) => json!({"rows": match spec.on_missing {
            OnMissing::Mark => "mark",
            OnMissing::Delete => "delete",
        }}),
        ShapeSpec::Raw => json!("raw"),
        ShapeSpec::Policy => json!("policy"),
        ShapeSpec::Article(spec) => json!({"article": {
            "on_edit": match spec.on_edit {
                OnEdit::Keep => "keep",
                OnEdit::Update => "update",
            },
            "keep": spec.keep.map(|keep| keep.to_string()),
            "key": spec.key.as_str(),
        }}),
    }
}

fn then(step: &Then, base: &Path) -> Value {
    match step {
        Then::Export(to) => json!({"export": store(to, base)}),
        Then::Webhook(hook) => json!({
            "webhook": hook.url.to_string(),
            "secret": hook.secret.as_ref().map(|reference| secret(reference, base)),
            "timeout": millis(hook.timeout),
        }),
        Then::Command(command) => json!({
            "command": [&command.program], "args": command.args, "timeout": millis(command.timeout),
        }),
    }
}

/// Where a store is, whatever it is called and whoever asks: told to people, and compared.
pub fn place(spec: &StoreSpec, base: &Path) -> String {
    let file = |file: &Path| file.strip_prefix(base).unwrap_or(file).display().to_string();
    let place = match &spec.place {
        Place::Memory => "memory:".to_owned(),
        Place::Sqlite(path) => format!("sqlite:{}", file(path)),
        Place::Folder(path) => format!("file:{}", file(path)),
        Place::Cloudflare { account, namespace } => format!("cloudflare-kv://{account}/{namespace}"),
        Place::S3 { bucket, prefix } => format!("s3://{bucket}/{prefix}"),
        Place::Etcd(url) | Place::Postgres(url) => redact::url(url.expose()),
        Place::Tables(Database::Sqlite(path)) => format!("tables in sqlite:{}", file(path)),
        Place::Tables(Database::Postgres(url)) => format!("tables in {}", redact::url(url.expose())),
    };
    match spec.options.get("endpoint") {
        Some(endpoint) => format!("{place} at {}", redact::url(endpoint)),
        None => place,
    }
}

/// The name a store goes by is left out: the same place under another name is the same store.
fn store(spec: &StoreSpec, base: &Path) -> Value {
    let place = match &spec.place {
        Place::Memory => json!("memory"),
        Place::Sqlite(file) => json!({"sqlite": path(file, base)}),
        Place::Folder(folder) => json!({"file": path(folder, base)}),
        Place::Cloudflare { account, namespace } => json!({"cloudflare-kv": [account, namespace]}),
        Place::S3 { bucket, prefix } => json!({"s3": [bucket, prefix]}),
        Place::Etcd(url) | Place::Postgres(url) => json!(redact::url(url.expose())),
        Place::Tables(Database::Sqlite(file)) => json!({"tables": {"sqlite": path(file, base)}}),
        Place::Tables(Database::Postgres(url)) => json!({"tables": redact::url(url.expose())}),
    };
    let secrets: Value =
        spec.secrets.iter().map(|(name, reference)| (name.clone(), secret(reference, base))).collect();
    json!({"place": place, "secrets": secrets, "options": spec.options})
}

fn secret(reference: &SecretRef, base: &Path) -> Value {
    match reference {
        SecretRef::Env(name) => json!({"env": name}),
        SecretRef::File(file) => json!({"file": path(file, base)}),
    }
}

/// Seen from the config file, so that it does not matter where trueup was started.
fn path(path: &Path, base: &Path) -> Value {
    json!(path.strip_prefix(base).unwrap_or(path).to_string_lossy())
}

fn millis(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn limit(limit: Limit) -> Value {
    match limit {
        Limit::Percent(percent) => json!({"percent": percent}),
        Limit::Count(count) => json!(count),
    }
}

fn heal(heal: Heal) -> Value {
    json!(match heal {
        Heal::Heal => "heal",
        Heal::Report => "report",
        Heal::Adopt => "adopt",
    })
}
