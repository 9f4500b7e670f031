//! The demo's chapter on tables: an API of two levels, mirrored into rows that anybody can query.

use serde_json::{Value, json};

use super::loopback::Pages;
use super::{Step, Story};
use crate::error::Result;

const RECIPE: &str = r#"
[[resources]]
name    = "parties"
path    = "/parties"
key     = "id"
columns = { id = "text", name = "text" }

[[resources]]
name    = "cases"
path    = "/cases/{parties.id}"
key     = "id"
columns = { id = "integer", party = { type = "text", parent = "id" }, title = "text", open = "boolean" }
"#;

fn case(id: u32, title: &str) -> Value {
    json!({ "id": id, "title": title, "open": id.is_multiple_of(2) })
}

impl Story<'_> {
    pub(super) async fn tables(&mut self) -> Result<()> {
        let api = Pages::default();
        let put = |path: &str, rows: Value| api.put(path, "application/json", rows.to_string());
        put("parties", json!([{ "id": "A", "name": "Labour" }, { "id": "H", "name": "Right" }]));
        put("cases/A", json!([case(1, "On schools"), case(2, "On roads")]));
        put("cases/H", json!([case(3, "On taxes")]));
        let address = api.serve().await?;
        self.write("recipe.toml", &format!("base = \"{address}\"\n{RECIPE}"))?;
        self.write(
            "tables.toml",
            "[pipelines.parliament]\nfrom = { rest = \"recipe.toml\" }\nas   = \"rows\"\ninto = { tables = \"sqlite:parliament.db\" }\n",
        )?;
        self.with_config("tables.toml", async |story| {
            story.say(
                "Another system: an API (inside this demo again), every level of it, as tables in SQLite.",
            );
            story.step("sync", 0, Step::Sync).await?;
            story
                .say("One title changes, one case disappears: one row is updated, one is marked as missing.");
            put("cases/A", json!([case(1, "On schools and teachers")]));
            story.step("sync", 0, Step::Sync).await?;
            story.step("why cases/2", 0, Step::Why("cases/2")).await
        })
        .await
    }
}
