//! The OpenAPI document, made from the table of routes and the schemas beside it. A generator that reads handlers
//! would have to be told the same twice; here a route without a description cannot be written.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::{Access, Param, ROUTES, Route};
use crate::error::{Error, Kind, Result};
use crate::server::answer::No;

const SCHEMAS: &str = include_str!("schemas.json");

pub async fn show() -> Result<Response, No> {
    let text = document()?.to_string();
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The whole document.
pub fn document() -> Result<Value> {
    let mut schemas: Value =
        serde_json::from_str(SCHEMAS).map_err(|error| Error::bug("the schemas").caused_by(error))?;
    schemas["Kind"]["enum"] = json!(Kind::ALL);
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES.iter().filter(|route| route.path != "/") {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route);
    }
    Ok(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "trueup",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What `trueup serve` answers. Answers are those of the command line's `--json`.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    }))
}

fn operation(route: &Route) -> Value {
    let named = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut params: Vec<Value> = named.map(in_path).collect();
    params.extend(route.asks.iter().map(in_query));
    let mut operation = json!({
        "summary": route.summary,
        "operationId": name(route),
        "parameters": params,
        "responses": {
            route.status.to_string(): { "description": route.summary, "content": content(route.answers) },
            "default": { "description": "It could not be done", "content": content("Error") },
        },
    });
    if route.access != Access::Open {
        // Without TRUEUP_TOKEN no token is asked for.
        operation["security"] = json!([{ "token": [] }, {}]);
    }
    if let Some(schema) = route.takes {
        operation["requestBody"] =
            json!({ "content": content(schema), "required": schema != "RunAsked" && schema != "AuditAsked" });
    }
    operation
}

fn name(route: &Route) -> String {
    let words = route.path.split(['/', '{', '}', '_']).filter(|word| !word.is_empty() && *word != "api");
    std::iter::once(route.method).chain(words).collect::<Vec<_>>().join("_")
}

fn content(schema: &str) -> Value {
    let kind = match schema {
        "Text" => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "Events" => "text/event-stream",
        _ => "application/json",
    };
    json!({ kind: { "schema": { "$ref": format!("#/components/schemas/{schema}") } } })
}

fn in_path(name: &str) -> Value {
    let schema = match name {
        "id" => json!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": i64::MAX }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn in_query(param: &Param) -> Value {
    let schema = match (param.kind, param.needed) {
        ("integer", _) => json!({ "type": "integer", "minimum": 1, "maximum": super::LIMIT_MAX }),
        ("string", true) => json!({ "type": "string", "minLength": 1 }),
        ("Language", _) => json!({ "$ref": "#/components/schemas/Language" }),
        (kind, _) => json!({ "type": kind }),
    };
    json!({
        "name": param.name, "in": "query", "required": param.needed, "description": param.about, "schema": schema,
    })
}
