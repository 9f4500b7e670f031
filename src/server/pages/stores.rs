//! A look into the stores of the config: by prefix, a page of keys at a time, and one value.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::Shared;
use super::layout::{At, Leaf};
use super::words::{grouped, many, part};
use crate::operations::look;
use crate::server::answer::{Asked, Named, No};
use crate::server::api::stores::{kind, known, opened};
use crate::store::{Page, Query, Stored, What};

/// Keys of one page.
const KEYS: usize = 100;
/// Bytes of a value that are shown.
const SHOWN: usize = 64 << 10;

#[derive(Debug, Deserialize)]
pub struct Which {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    key: Option<String>,
}

pub async fn all(State(house): State<Shared>) -> Response {
    let stores = known(&house.config);
    let body = html! {
        div.head { h1 { "Stores" } }
        section.card aria-label="Stores" {
            @if stores.is_empty() { p.empty { "The config names no store yet: a pipeline's " code { "into" } " does." } } @else {
                table.cards {
                    thead { tr { th { "Store" } th { "Kind" } th { "Written by" } } }
                    tbody { @for (name, store) in &stores { tr {
                        td.name.wide { a href={ "/stores/" (part(name)) } { (name) } }
                        td data-is="Kind" { (kind(&store.spec.place)) }
                        td data-is="Written by" {
                            @for pipeline in house.config.pipelines.values().filter(|pipeline| pipeline.into.name == **name) {
                                a href={ "/pipelines/" (part(&pipeline.name)) } { (pipeline.name) } " "
                            }
                        }
                    } } }
                }
            }
        }
    };
    Leaf::still("Stores", At::Stores, body).show(&house)
}

pub async fn one(
    State(house): State<Shared>,
    Named(name): Named<String>,
    Asked(which): Asked<Which>,
) -> Result<Response, No> {
    let store = opened(&house, &name).await?;
    let here = format!("/stores/{}", part(&name));
    let inside = match &which.key {
        Some(key) => value(&here, key, &look::stored(&store, key).await?),
        None => {
            let query =
                Query { prefix: &which.prefix, after: which.after.as_deref(), limit: KEYS, what: What::Keys };
            keys(&here, &which, &store.list(query).await?)
        }
    };
    let body = html! {
        div.head { div { p.crumbs { a href="/stores" { "Stores" } } h1 { (name) } } }
        form.row action=(here) {
            div.field { label for="prefix" { "Keys that begin with" }
                input #prefix.mono name="prefix" value=(which.prefix) autocomplete="off" spellcheck="false"; }
            button { "Show" }
        }
        (inside)
    };
    Ok(Leaf::still(&name, At::Stores, body).show(&house))
}

fn keys(here: &str, which: &Which, page: &Page) -> Markup {
    let prefix = part(&which.prefix);
    let last = page.items.last().filter(|_| page.more);
    html! {
        section.card aria-label="Keys" {
            @if page.items.is_empty() {
                p.empty { @if which.prefix.is_empty() { "The store is empty." } @else { "No key begins so." } }
            } @else {
                table {
                    thead { tr { th { "Key" } th { "Version" } } }
                    tbody { @for line in &page.items { tr {
                        td.wrap { a.mono href={ (here) "?prefix=" (prefix) "&key=" (part(&line.key)) } { (line.key) } }
                        td.mono.wrap.muted { (cut(&line.version.0)) }
                    } } }
                }
            }
            @if which.after.is_some() || last.is_some() {
                nav.pages aria-label="Pages of keys" {
                    @if which.after.is_some() { a.button href={ (here) "?prefix=" (prefix) } { "First page" } } @else { span {} }
                    @if let Some(line) = last { a.button href={ (here) "?prefix=" (prefix) "&after=" (part(&line.key)) } rel="next" { "Next" } }
                }
            }
        }
    }
}

/// Versions are opaque and may be long.
fn cut(version: &str) -> String {
    let mut short: String = version.chars().take(24).collect();
    if short.len() < version.len() {
        short.push('…');
    }
    short
}

fn value(here: &str, key: &str, stored: &Stored) -> Markup {
    let bytes = &stored.value[..stored.value.len().min(SHOWN)];
    html! {
        section.card aria-labelledby="value" {
            header {
                h2 #value.mono.wrap { (key) }
                div.actions { a href={ "/why?key=" (part(key)) } { "Why?" } a href=(here) { "All keys" } }
            }
            div.in {
                p.muted { (many(stored.value.len() as u64, "byte")) ", version " span.mono.wrap { (stored.version) }
                    @if stored.value.len() > SHOWN { ", the first " (grouped(SHOWN as u64)) " shown" } }
                pre.fold tabindex="0" aria-label="Value" { (text(bytes)) }
            }
        }
    }
}

/// JSON as people read it, other text as it is, bytes as bytes.
fn text(bytes: &[u8]) -> String {
    if let Ok(value @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) =
        serde_json::from_slice(bytes)
    {
        return serde_json::to_string_pretty(&value).unwrap_or_default();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        // Cut in the middle of a letter.
        Err(error) if error.error_len().is_none() => {
            String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned()
        }
        Err(_) => bytes.chunks(32).take(512).map(|line| hex::encode(line) + "\n").collect(),
    }
}
