//! How a page of a workspace is, in badges. `up to date` is only said when nothing speaks against it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::super::health::{Tone, badge};
use super::super::words::many;
use crate::workspace::{Activity, Glance, Issue, Job, Severity, Status};

/// A job that nobody took up so long after it was asked for is late: beyond the server's own rounds, and a restart.
const LATE_AFTER: Duration = Duration::from_secs(120);

/// What the jobs of a page say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub running: bool,
    /// Asked for, and left lying.
    pub late: bool,
    /// The newest of those that ended did so in an error.
    pub failed: bool,
}

impl Progress {
    /// Jobs come oldest first.
    pub fn of(jobs: &[Job], page: &str, now: Timestamp) -> Self {
        let mut progress = Progress::default();
        for job in jobs.iter().filter(|job| job.task.page() == Some(page)) {
            match &job.status {
                Status::Activity { .. } if is_late(job, now) => progress.late = true,
                Status::Activity { .. } => progress.running = true,
                Status::Value { .. } => progress.failed = false,
                Status::Error { .. } => progress.failed = true,
            }
        }
        progress
    }
}

pub fn is_late(job: &Job, now: Timestamp) -> bool {
    let waits =
        matches!(job.status, Status::Activity { activity: Activity::Submitting | Activity::Scheduling });
    waits && now.duration_since(job.updated) > SignedDuration::try_from(LATE_AFTER).unwrap_or_default()
}

pub fn badges(glance: &Glance, progress: &Progress) -> Markup {
    let quiet = *progress == Progress::default() && !glance.analysis_stale && glance.pending == 0;
    html! {
        span.badges {
            @if progress.failed { (badge(Tone::Bad, "job failed")) }
            @if glance.analysis_stale { (badge(Tone::Held, "analysis stale")) }
            @if progress.late { (badge(Tone::Late, "job late")) }
            @if progress.running { (badge(Tone::Run, "working")) }
            @if let Some(severity) = glance.gravest { (badge(tone(severity), &pending(glance.pending, severity))) }
            @if quiet {
                @if glance.analyzed.is_some() { (badge(Tone::Good, "up to date")) }
                @else { (badge(Tone::Idle, "not analysed")) }
            }
        }
    }
}

fn pending(count: usize, gravest: Severity) -> String {
    let issues = many(count as u64, "issue");
    if gravest.get() == 1 { issues } else { format!("{issues}, {}", word(gravest)) }
}

/// What a severity is called.
pub fn word(severity: Severity) -> &'static str {
    match severity.get() {
        1 => "minor",
        2 => "notable",
        _ => "grave",
    }
}

pub fn tone(severity: Severity) -> Tone {
    match severity.get() {
        1 => Tone::Idle,
        2 => Tone::Held,
        _ => Tone::Bad,
    }
}

/// The gravest first, then the oldest.
pub fn in_order<'i>(issues: impl Iterator<Item = &'i Issue>) -> Vec<&'i Issue> {
    let mut all: Vec<&Issue> = issues.collect();
    all.sort_by_key(|issue| (std::cmp::Reverse(issue.severity), issue.created));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Task;

    fn job(page: &str, status: Status, updated: &str) -> Job {
        let task = Task::Analyze { page: page.into() };
        Job { id: "j".into(), task, status, seq: 2, updated: updated.parse().unwrap() }
    }

    #[test]
    fn the_last_job_that_ended_and_those_left_lying_are_what_is_said() {
        let now: Timestamp = "2026-01-10T12:00:00Z".parse().unwrap();
        let failed = || Status::Error { code: 400, text: "no".into() };
        let done = || Status::Value { value: serde_json::Value::Null };
        let waits = || Status::Activity { activity: Activity::Scheduling };
        let works = || Status::Activity { activity: Activity::Analyzing };
        let early = "2026-01-10T11:00:00Z";
        let of = |jobs: &[Job]| Progress::of(jobs, "12", now);
        assert!(of(&[job("12", failed(), early)]).failed);
        assert!(!of(&[job("12", failed(), early), job("12", done(), early)]).failed);
        assert_eq!(of(&[job("123", failed(), early)]), Progress::default());
        assert!(of(&[job("12", waits(), early)]).late);
        assert!(of(&[job("12", waits(), "2026-01-10T11:59:30Z")]).running);
        assert!(
            of(&[job("12", works(), early)]).running,
            "a worker has it, and its lease says whether it lives"
        );
    }
}
