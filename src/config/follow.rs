//! Follow-up work (`then`) and failure messages (`notify`).

use super::model::{Address, COMMAND_TIMEOUT, Command, Notify, Then, WEBHOOK_TIMEOUT, Webhook};
use super::reader::{Field, Keys, Reader, listed};
use super::source::Around;
use super::store;

struct ThenKind {
    name: &'static str,
    keys: Keys,
    read: fn(&Reader<'_>, &Around<'_>) -> Option<Then>,
}

const KINDS: [ThenKind; 3] = [
    ThenKind { name: "export", keys: EXPORT_KEYS, read: export },
    ThenKind { name: "webhook", keys: WEBHOOK_KEYS, read: webhook },
    ThenKind { name: "command", keys: COMMAND_KEYS, read: command },
];

pub const EXPORT_KEYS: Keys = &["export"];
pub const WEBHOOK_KEYS: Keys = &["webhook", "secret_env", "secret_file", "timeout"];
pub const COMMAND_KEYS: Keys = &["command", "timeout"];
pub const NOTIFY_KEYS: Keys = &["webhook", "after"];

const EXPECTED: &str = "a table such as { export = \"store\" }, or a list of them";
/// Failures in a row that nobody would wait for.
const AFTER_MAX: i64 = 1_000;

/// One piece of follow-up work.
pub fn read(field: &Field<'_>, around: &Around<'_>) -> Option<Then> {
    if !field.is_table() {
        return field.unexpected(EXPECTED);
    }
    let present: Vec<&ThenKind> = KINDS.iter().filter(|kind| field.at(kind.name).is_some()).collect();
    match present[..] {
        [kind] => (kind.read)(&field.table(kind.keys, EXPECTED)?, around),
        [first, second, ..] => {
            let message = format!("`then` names both `{}` and `{}` in one table", first.name, second.name);
            field.wrong_with(message, "write a list: then = [{ … }, { … }]");
            None
        }
        [] => {
            // None of the kinds is there: read against their names, so that the nearest one is suggested.
            const NAMES: Keys = &["export", "webhook", "command"];
            field.table(NAMES, EXPECTED)?;
            if field.keys().next().is_none() {
                field.wrong(format!("`then` is empty; it takes one of: {}", listed(NAMES)));
            }
            None
        }
    }
}

fn export(reader: &Reader<'_>, around: &Around<'_>) -> Option<Then> {
    let field = reader.take("export")?;
    store::used(&field, around.stores, around.base).map(Then::Export)
}

fn webhook(reader: &Reader<'_>, around: &Around<'_>) -> Option<Then> {
    let secret = reader.secret("secret_env", "secret_file", around.base);
    let timeout = reader.take("timeout").and_then(|field| field.interval()).unwrap_or(WEBHOOK_TIMEOUT);
    let url = address(&reader.take("webhook")?)?;
    Some(Then::Webhook(Webhook { url, secret, timeout }))
}

fn command(reader: &Reader<'_>, around: &Around<'_>) -> Option<Then> {
    const ARGV: &str = "a list of strings: the program and its arguments";
    let timeout = reader.take("timeout").and_then(|field| field.interval()).unwrap_or(COMMAND_TIMEOUT);
    let mut words = reader.take("command")?.list(ARGV)?.into_iter();
    let program = words.next()?.text(ARGV)?.to_owned();
    let mut args = Vec::new();
    for word in words {
        match word.as_text() {
            Some(text) => args.push(text.to_owned()),
            None => return word.unexpected(ARGV),
        }
    }
    Some(Then::Command(Command { program, args, timeout, folder: around.base.0.clone() }))
}

pub fn notify(field: &Field<'_>) -> Option<Notify> {
    let reader = field.table(NOTIFY_KEYS, "a table such as { webhook = \"https://…\", after = 3 }")?;
    let after = reader.take("after").and_then(|field| field.integer(1..=AFTER_MAX)).unwrap_or(1);
    let webhook = address(&reader.require("webhook", "the URL to call")?)?;
    Some(Notify { webhook, after: u32::try_from(after).unwrap_or(1) })
}

/// The URL is not repeated in messages: it may be a secret as a whole.
fn address(field: &Field<'_>) -> Option<Address> {
    const URL: &str = "a URL that begins with http:// or https://";
    let url = field.text(URL)?;
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    if host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'))
        && !url.contains(char::is_whitespace)
    {
        return Some(Address::new(url));
    }
    field.wrong(format!("`{}` takes {URL}", field.key()));
    None
}
