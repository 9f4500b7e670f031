//! `trueup audit`: source, state and store compared; `--repair` puts right what may be.

use clap::Args;

use super::desk::Desk;
use super::output::{Color, Output, named};
use super::sync::tell_not_started;
use crate::error::Result;
use crate::operations::{self, NotStarted};
use crate::pipeline::audit::{Audit as Found, Budget};
use crate::pipeline::{Ask, Stop};
use crate::state::report::gravest;
use crate::store::Access;

#[derive(Args)]
pub struct Audit {
    /// Pipelines to audit; all enabled ones when none is named
    pipelines: Vec<String>,
    /// Heal every class of drift but foreign and unproven
    #[arg(long)]
    repair: bool,
    /// Compare the values of one key in N only; of the others, the store's version
    #[arg(long, value_name = "N", default_value_t = 1)]
    sample: u64,
    /// Ask the store at most N times a second, so that others are served meanwhile
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
}

impl Audit {
    pub async fn run(self, desk: &Desk) -> Result<u8> {
        let config = desk.config()?;
        let access = if self.repair { Access::Write } else { Access::Read };
        let memory = desk.memory(&config, access).await?;
        let chosen = operations::chosen(&config, &self.pipelines)?;
        let stop = if self.repair { desk.stop() } else { Stop::default() };
        let ask = || Ask { stop: stop.clone(), progress: desk.out.progress(), ..Ask::plain("repair") };
        let repair = || self.repair.then(ask);
        let requests_per_second = self.rate.map(|rate| usize::try_from(rate).unwrap_or(usize::MAX));
        let budget = Budget { one_in: self.sample.max(1), requests_per_second };
        let audits = operations::audit(&chosen, &memory, budget, repair).await?;
        let drifted = audits.audits.iter().map(|audit| if audit.is_clean() { 0 } else { 3 });
        let code = gravest(drifted.chain(audits.not_started.iter().map(NotStarted::exit_code)));
        tell_not_started(&desk.out, &audits.not_started);
        desk.out.result(&audits, || audits.audits.iter().map(|audit| text(&desk.out, audit)).collect());
        Ok(code)
    }
}

fn text(out: &Output, audit: &Found) -> String {
    const SHOWN: usize = 50;
    let counts: Vec<String> = audit.counts.iter().map(|(class, count)| format!("{count} {class}")).collect();
    let counts = if counts.is_empty() { "nothing stored".to_owned() } else { counts.join(", ") };
    let mut text = format!("{}: {counts}\n", out.paint(Color::Bold, &audit.pipeline));
    for drifted in audit.drift.iter().take(SHOWN) {
        let error = drifted.error.as_ref().map(|fault| format!(": {}", fault.message)).unwrap_or_default();
        text.push_str(&format!(
            "  {} {}{error}\n",
            out.paint(Color::Yellow, drifted.class),
            named(&drifted.key)
        ));
    }
    let more = audit.drift.len().saturating_sub(SHOWN) as u64 + audit.omitted;
    if more > 0 {
        text.push_str(&format!("  … and {more} more\n"));
    }
    if audit.repaired > 0 {
        text.push_str(&format!("  repaired {}\n", audit.repaired));
    } else if !audit.is_clean() && audit.run.is_none() {
        text.push_str("  `trueup audit --repair` puts right what is not foreign or unproven.\n");
    }
    text
}
