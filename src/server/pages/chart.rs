//! The last runs as bars: as high as what they changed, in the colour of how they ended.

use maud::{Markup, html};

use super::health::Tone;
use super::words::{exact, grouped};
use crate::state::Report;

/// Runs that fit; the width of the picture is theirs, so that few runs are not drawn as towers.
pub const BARS: usize = 30;
const HEIGHT: f64 = 70.0;
const LEAST: f64 = 4.0;
const STEP: usize = 20;

/// Newest first, as history has them; drawn oldest first.
pub fn runs(reports: &[Report]) -> Markup {
    let shown = &reports[..reports.len().min(BARS)];
    let most = shown.iter().map(changes).max().unwrap_or(0).max(1);
    let width = BARS * STEP;
    let label =
        format!("The last {} runs: {} ended ok", shown.len(), shown.iter().filter(|run| is_ok(run)).count());
    html! {
        svg.chart viewBox={ "0 0 " (width) " 72" } preserveAspectRatio="none" role="img" aria-label=(label) {
            rect.base x="0" y="71" width=(width) height="1" {}
            @for (at, report) in shown.iter().rev().enumerate() {
                @let height = height(changes(report), most);
                @let x = (BARS - shown.len() + at) * STEP + 2;
                rect class=(Tone::of(report.status).class()) x=(x) y=(format!("{:.1}", HEIGHT - height))
                    width=(STEP - 4) height=(format!("{height:.1}")) rx="2" {
                    title { (title(report)) }
                }
            }
        }
        p.legend {
            @for (class, word) in [("good", "ok"), ("held", "held"), ("bad", "failed or partial")] {
                span { i class=(class) {} (word) }
            }
            span { "height: what changed" }
        }
    }
}

fn is_ok(report: &Report) -> bool {
    Tone::of(report.status) == Tone::Good
}

fn changes(report: &Report) -> u64 {
    let counts = &report.counts;
    counts.added + counts.updated + counts.deleted + counts.held
}

/// By the root, so that a run of 30 is seen beside one of 3,000.
fn height(count: u64, most: u64) -> f64 {
    LEAST + (HEIGHT - LEAST) * (count as f64 / most as f64).sqrt()
}

fn title(report: &Report) -> String {
    let at = report.started.parse().map_or_else(|_| report.started.clone(), exact);
    format!("{at}: {}, {} changed or held", report.status.name(), grouped(changes(report)))
}
