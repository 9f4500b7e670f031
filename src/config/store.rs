//! Stores: which kinds there are, what their URLs look like and which settings each takes.
//!
//! A new kind is a line in `SCHEMES` and a variant of `Place`.

use std::collections::BTreeMap;

use super::locate::suggestion;
use super::model::{Address, Config, Place, StoreSpec};
use super::reader::{Base, Field, Keys, Reader, repeated};
use super::redact;
use crate::error::{Error, Kind, Result};
use crate::etcd::EtcdPlace;
use crate::postgres::PostgresPlace;

/// One kind of store.
struct Scheme {
    /// With its colon.
    name: &'static str,
    /// How its URL is written.
    form: &'static str,
    /// `url`, options, and secrets as pairs of `NAME_env` and `NAME_file`.
    keys: Keys,
    place: fn(&str, &Base) -> Result<Place, String>,
}

const SCHEMES: [Scheme; 8] = [
    Scheme { name: "sqlite:", form: "sqlite:PATH", keys: &["url"], place: sqlite },
    Scheme { name: "file:", form: "file:PATH", keys: &["url"], place: folder },
    Scheme { name: "s3:", form: "s3://BUCKET/PREFIX", keys: S3_KEYS, place: s3 },
    Scheme { name: "etcd:", form: "etcd://HOST:PORT/PREFIX/", keys: SERVER_KEYS, place: etcd },
    Scheme { name: "postgres:", form: "postgres://…", keys: SERVER_KEYS, place: postgres },
    Scheme { name: "postgresql:", form: "postgresql://…", keys: SERVER_KEYS, place: postgres },
    Scheme {
        name: "cloudflare-kv:",
        form: "cloudflare-kv://ACCOUNT/NAMESPACE",
        keys: CLOUDFLARE_KEYS,
        place: cloudflare,
    },
    Scheme { name: "memory:", form: "memory:", keys: &["url"], place: memory },
];

/// Servers read their own URL, query and all.
pub const SERVER_KEYS: Keys = &["url", "password_env", "password_file"];

pub const CLOUDFLARE_KEYS: Keys = &["url", "endpoint", "token_env", "token_file"];

pub const S3_KEYS: Keys = &[
    "url",
    "endpoint",
    "region",
    "access_key_env",
    "access_key_file",
    "secret_key_env",
    "secret_key_file",
    "session_token_env",
    "session_token_file",
];

/// The default place of the state.
pub const STATE_URL: &str = "sqlite:.trueup/state.db";

/// Why a store cannot be what was written, and what could be.
#[derive(Debug)]
pub struct Refused {
    pub message: String,
    pub note: String,
}

pub type Stores = BTreeMap<String, StoreSpec>;

/// A store by name or URL, as the command line gives it.
pub fn store_spec(text_or_url: &str, config: Option<&Config>) -> Result<StoreSpec> {
    let none = Stores::new();
    let base = Base(config.map_or_else(|| ".".into(), |config| config.base.clone()));
    by_text(text_or_url, config.map_or(&none, |config| &config.stores), &base)
        .map_err(|refused| Error::new(Kind::Config, refused.message).remedy_is(refused.note))
}

/// A name from `[stores]`, or a URL.
pub fn by_text(text: &str, stores: &Stores, base: &Base) -> Result<StoreSpec, Refused> {
    if text.contains(':') {
        return by_url(text, base);
    }
    stores.get(text).cloned().ok_or_else(|| {
        let names: Vec<&str> = stores.keys().map(String::as_str).collect();
        let message =
            format!("there is no store `{}`{}", repeated(text), suggestion(text, names.iter().copied()));
        let note = if names.is_empty() {
            format!("[stores] names none; give a URL ({}) or name it there", forms())
        } else {
            format!("[stores] names: {}; a URL will do too ({})", names.join(", "), forms())
        };
        Refused { message, note }
    })
}

fn by_url(text: &str, base: &Base) -> Result<StoreSpec, Refused> {
    let refuse = |message: String| Refused { message, note: format!("stores are: {}", forms()) };
    let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
    let Some(kind) = scheme_of(text) else {
        let scheme = format!("{scheme}:");
        let meant = suggestion(&scheme, SCHEMES.iter().map(|kind| kind.name));
        // It is not repeated: it may have come from the environment, and the excerpt shows what was written.
        return Err(refuse(format!("there is no such kind of store{meant}")));
    };
    let takes_query = options(kind.keys).next().is_some();
    // A server's URL is understood by its client, as a whole.
    let rest = if kind.keys == SERVER_KEYS { text } else { rest };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) if takes_query => (rest, query),
        _ => (rest, ""),
    };
    let place = (kind.place)(rest, base).map_err(refuse)?;
    let mut spec =
        StoreSpec { name: redact::url(text), place, secrets: BTreeMap::new(), options: BTreeMap::new() };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !options(kind.keys).any(|option| option == key) {
            let meant = suggestion(key, options(kind.keys));
            return Err(refuse(format!("`{}` takes no `{}`{meant}", kind.form, repeated(key))));
        }
        check_option(key, value).map_err(refuse)?;
        spec.options.insert(key.to_owned(), value.to_owned());
    }
    Ok(spec)
}

fn scheme_of(url: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|kind| url.starts_with(kind.name))
}

/// The keys that are neither the URL nor a secret.
fn options(keys: Keys) -> impl Iterator<Item = &'static str> {
    let plain = |key: &&str| *key != "url" && !key.ends_with("_env") && !key.ends_with("_file");
    keys.iter().copied().filter(plain)
}

fn forms() -> String {
    SCHEMES.iter().map(|kind| kind.form).collect::<Vec<_>>().join(", ")
}

/// A store where a pipeline uses one: a name, a URL, or a table with `url`.
pub fn used(field: &Field<'_>, stores: &Stores, base: &Base) -> Option<StoreSpec> {
    if field.is_table() {
        return table(field, base);
    }
    let text = field.text("the name or URL of a store")?;
    accept(field, by_text(text, stores, base))
}

/// A store where `[stores]` names one: a URL, or a table with `url`.
pub fn named(name: &str, field: &Field<'_>, base: &Base) -> Option<StoreSpec> {
    let spec = if field.is_table() {
        table(field, base)
    } else {
        let expected = format!("the URL of a store ({})", forms());
        match field.text(&expected)? {
            url if url.contains(':') => accept(field, by_url(url, base)),
            _ => field.unexpected(&expected),
        }
    }?;
    Some(StoreSpec { name: name.to_owned(), ..spec })
}

fn accept(field: &Field<'_>, found: Result<StoreSpec, Refused>) -> Option<StoreSpec> {
    match found {
        Ok(spec) => Some(spec),
        Err(refused) => {
            field.wrong_with(refused.message, refused.note);
            None
        }
    }
}

fn table(field: &Field<'_>, base: &Base) -> Option<StoreSpec> {
    let Some(url) = field.at("url") else {
        // Read against the shortest list of keys, so that a misspelt `url` is found.
        field.table(&["url"], "a table")?.require("url", "the URL of a store");
        return None;
    };
    let text = url.text("the URL of a store")?;
    let spec = accept(&url, by_url(text, base))?;
    let keys = scheme_of(text)?.keys;
    let reader = field.table(keys, "a table")?;
    Some(settings(&reader, keys, spec, base))
}

/// Options and secrets beside the URL.
fn settings(reader: &Reader<'_>, keys: Keys, mut spec: StoreSpec, base: &Base) -> StoreSpec {
    for key in options(keys) {
        let Some(field) = reader.take(key) else { continue };
        let Some(value) = field.text("a string") else { continue };
        if spec.options.contains_key(key) {
            field.wrong(format!("`{key}` is given twice: here and in the URL"));
        } else if let Err(message) = check_option(key, value) {
            field.wrong(message);
        }
        spec.options.insert(key.to_owned(), value.to_owned());
    }
    for env in keys.iter().copied() {
        let Some(name) = env.strip_suffix("_env") else { continue };
        let file = keys.iter().copied().find(|key| key.strip_suffix("_file") == Some(name)).unwrap_or(env);
        if let Some(secret) = reader.secret(env, file, base) {
            spec.secrets.insert(name.to_owned(), secret);
        }
    }
    spec
}

fn check_option(key: &str, value: &str) -> Result<(), String> {
    let web = value.starts_with("http://") || value.starts_with("https://");
    if key == "endpoint" && !web {
        return Err("`endpoint` takes a URL that begins with http:// or https://".to_owned());
    }
    // It would be shown wherever the store is.
    if key == "endpoint" && value.contains('@') {
        return Err("`endpoint` takes no user and password; name secrets by `…_env` or `…_file`".to_owned());
    }
    if value.is_empty() { Err(format!("`{key}` is empty")) } else { Ok(()) }
}

fn sqlite(rest: &str, base: &Base) -> Result<Place, String> {
    local("sqlite", rest, base).map(Place::Sqlite)
}

fn folder(rest: &str, base: &Base) -> Result<Place, String> {
    local("file", rest, base).map(Place::Folder)
}

fn local(scheme: &str, rest: &str, base: &Base) -> Result<std::path::PathBuf, String> {
    if rest.is_empty() || rest.contains('\0') {
        return Err(format!("`{scheme}:` needs a path behind it"));
    }
    // `sqlite://data/x.db` would silently mean the absolute path /data/x.db.
    if rest.starts_with("//") && !rest.starts_with("///") {
        let path = rest.trim_start_matches('/');
        return Err(format!(
            "`{scheme}://` names no host; write `{scheme}:{path}` or, absolute, `{scheme}:/{path}`"
        ));
    }
    Ok(base.resolve(rest))
}

fn s3(rest: &str, _: &Base) -> Result<Place, String> {
    let path = rest.strip_prefix("//").ok_or("an object store is written `s3://BUCKET/PREFIX`")?;
    let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if bucket.is_empty() || !bucket.chars().all(named) {
        return Err("`s3://` needs the name of a bucket behind it: letters, digits, `.`, `-`, `_`".to_owned());
    }
    Ok(Place::S3 { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() })
}

fn etcd(url: &str, _: &Base) -> Result<Place, String> {
    EtcdPlace::parse(url).map_err(|error| error.to_string())?;
    Ok(Place::Etcd(Address::new(url)))
}

fn postgres(url: &str, _: &Base) -> Result<Place, String> {
    PostgresPlace::parse(url).map_err(|error| error.to_string())?;
    Ok(Place::Postgres(Address::new(url)))
}

fn cloudflare(rest: &str, _: &Base) -> Result<Place, String> {
    let named = |part: &str| !part.is_empty() && !part.contains(['/', '@', '#', '?']);
    match rest.strip_prefix("//").and_then(|path| path.trim_end_matches('/').split_once('/')) {
        Some((account, namespace)) if named(account) && named(namespace) => {
            Ok(Place::Cloudflare { account: account.to_owned(), namespace: namespace.to_owned() })
        }
        _ => {
            Err("`cloudflare-kv://` needs an account and the id or title of a namespace behind it".to_owned())
        }
    }
}

fn memory(rest: &str, _: &Base) -> Result<Place, String> {
    if rest.is_empty() { Ok(Place::Memory) } else { Err("`memory:` takes nothing behind it".to_owned()) }
}
