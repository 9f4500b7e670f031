//! From an entry to what is written: the body is fetched only when the shape cannot do without.

use super::Pipeline;
use super::plan::Step;
use crate::error::{Error, Result};
use crate::record::{Body, Entry};
use crate::shape::{Input, Prior, Rendered};

/// A step after rendering.
pub struct Drawn {
    pub rendered: Rendered,
    /// With the version its body really had.
    pub entry: Entry,
    /// The body, if it was needed.
    pub body: Option<Body>,
    /// Something a person should know.
    pub remark: Option<String>,
}

pub async fn render(line: &Pipeline, step: &Step) -> Result<Drawn> {
    let Some(entry) = &step.entry else {
        return Err(Error::bug("a step without an entry cannot be rendered"));
    };
    let prior = step.base()?.map(|(_, base)| base.prior(&step.identity));
    let rendered = shape(line, step, entry, None, prior.as_ref())?;
    if rendered != Rendered::NeedBody {
        return Ok(Drawn { rendered, entry: entry.clone(), body: None, remark: None });
    }
    let body = line.source.open(entry).await?;
    let rendered = shape(line, step, entry, Some(&body), prior.as_ref())?;
    if rendered == Rendered::NeedBody {
        return Err(Error::bug("the shape asked for a body it was given"));
    }
    let input = Input {
        entry,
        identity: &step.identity,
        body: Some(&body),
        prior: prior.as_ref(),
        now: line.clock.now(),
    };
    let remark = line.shape.remark(&input);
    let entry = Entry { version: body.version.clone(), ..entry.clone() };
    Ok(Drawn { rendered, entry, body: Some(body), remark })
}

fn shape(
    line: &Pipeline,
    step: &Step,
    entry: &Entry,
    body: Option<&Body>,
    prior: Option<&Prior>,
) -> Result<Rendered> {
    let now = line.clock.now();
    line.shape.render(&Input { entry, identity: &step.identity, body, prior, now })
}
