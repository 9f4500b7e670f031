//! What an update changes, as a person reads it.

use similar::TextDiff;

use super::Pipeline;
use super::plan::Step;
use super::render;
use crate::error::Result;
use crate::shape::Rendered;
use crate::store::StoreExt;

/// Larger values are not compared line by line: the diff would not be read.
const VALUE_MAX: usize = 64 * 1024;

/// A unified diff of what is stored and what would be; `None` when either is not text, too large or out of reach.
pub async fn of(line: &Pipeline, step: &Step, key: &str) -> Result<Option<String>> {
    let Some(stored) = line.store.get_one(key).await? else { return Ok(None) };
    let drawn = render::render(line, step).await.map(|drawn| drawn.rendered);
    let Ok(Rendered::Put(output)) = drawn else { return Ok(None) };
    if stored.value.len().max(output.value.len()) > VALUE_MAX {
        return Ok(None);
    }
    let (Ok(old), Ok(new)) = (std::str::from_utf8(&stored.value), std::str::from_utf8(&output.value)) else {
        return Ok(None);
    };
    let diff = TextDiff::from_lines(old, new)
        .unified_diff()
        .context_radius(2)
        .header("stored", "source")
        .to_string();
    Ok((!diff.is_empty()).then_some(diff))
}
