//! From an entry to what is written: the body is fetched only when the shape cannot do without.

use jiff::Timestamp;

use super::Pipeline;
use super::plan::Step;
use crate::error::{Error, Result};
use crate::record::{Body, Entry};
use crate::shape::{Input, Prior, Rendered};

/// A step after rendering.
pub struct Drawn {
    pub rendered: Rendered,
    /// With the version its body really had, where one was read.
    pub entry: Option<Box<Entry>>,
    /// The body, if it was needed.
    pub body: Option<Body>,
    /// Something a person should know.
    pub remark: Option<String>,
}

pub async fn render(line: &Pipeline, step: &Step) -> Result<Drawn> {
    let now = line.clock.now();
    if let Some(drawn) = without_body(line, step, now)? {
        return Ok(drawn);
    }
    let body = line.source.open(entry_of(step)?).await?;
    with_body(line, step, body, now)
}

/// Render a step without its body; `None` = the shape needs it.
pub fn without_body(line: &Pipeline, step: &Step, now: Timestamp) -> Result<Option<Drawn>> {
    let entry = entry_of(step)?;
    let prior = prior_of(step)?;
    let input = Input { entry, identity: &step.identity, body: None, prior: prior.as_ref(), now };
    let rendered = line.shape.render(&input)?;
    if rendered == Rendered::NeedBody {
        return Ok(None);
    }
    Ok(Some(Drawn { rendered, entry: None, body: None, remark: None }))
}

pub fn with_body(line: &Pipeline, step: &Step, body: Body, now: Timestamp) -> Result<Drawn> {
    let (entry, prior) = (entry_of(step)?, prior_of(step)?);
    let input = Input { entry, identity: &step.identity, body: Some(&body), prior: prior.as_ref(), now };
    let rendered = line.shape.render(&input)?;
    if rendered == Rendered::NeedBody {
        return Err(Error::bug("the shape asked for a body it was given"));
    }
    let remark = line.shape.remark(&input);
    let entry = Some(Box::new(Entry { version: body.version.clone(), ..entry.clone() }));
    Ok(Drawn { rendered, entry, body: Some(body), remark })
}

pub fn entry_of(step: &Step) -> Result<&Entry> {
    step.entry.as_ref().ok_or_else(|| Error::bug("a step without an entry cannot be rendered"))
}

fn prior_of(step: &Step) -> Result<Option<Prior>> {
    Ok(step.base()?.map(|(_, base)| base.prior(&step.identity)))
}
