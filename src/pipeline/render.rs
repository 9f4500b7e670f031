//! From an entry to what is written: the body is fetched only when the shape cannot do without.

use super::Pipeline;
use super::plan::Step;
use crate::error::{Error, Result};
use crate::record::{Body, Entry};
use crate::shape::{Input, Prior, Rendered};

/// Render a step; the entry comes back with the version its body really had.
pub async fn render(line: &Pipeline, step: &Step) -> Result<(Rendered, Entry)> {
    let Some(entry) = &step.entry else { return Err(Error::bug("a step without an entry cannot be rendered")) };
    let prior = step.base()?.map(|(_, base)| base.prior(&step.identity));
    let rendered = shape(line, step, entry, None, prior.as_ref())?;
    if rendered != Rendered::NeedBody {
        return Ok((rendered, entry.clone()));
    }
    let body = line.source.open(entry).await?;
    let rendered = shape(line, step, entry, Some(&body), prior.as_ref())?;
    if rendered == Rendered::NeedBody {
        return Err(Error::bug("the shape asked for a body it was given"));
    }
    Ok((rendered, Entry { version: body.version, ..entry.clone() }))
}

fn shape(line: &Pipeline, step: &Step, entry: &Entry, body: Option<&Body>, prior: Option<&Prior>) -> Result<Rendered> {
    let now = line.clock.now();
    line.shape.render(&Input { entry, identity: &step.identity, body, prior, now })
}
