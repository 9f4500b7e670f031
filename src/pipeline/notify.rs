//! Who is told when a pipeline fails, is held back, or has recovered. What to say is decided when a run ends and
//! written down with its report; saying it is follow-up work like any other, tried again until it is heard.
//!
//! It never says that all is well when something was held, failed or unproven, and it says each thing once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::open::Memory;
use crate::clock::{SharedClock, rfc3339_ms};
use crate::config::{self, Notify, WEBHOOK_TIMEOUT, Webhook};
use crate::error::{Error, Fault, Kind, Result};
use crate::queue::{self, Effect, FollowUp, Summary};
use crate::record::Fingerprint;
use crate::shape::raw::Raw;
use crate::state::lock::Locks;
use crate::state::{Report, State, Status, item, keys};
use crate::store::Item;

/// Scopes whose failures are counted one by one; a source with more broken scopes is broken as a whole.
const SCOPES_MAX: usize = 1_000;
/// Errors that come along in a message; the run has them all.
const ERRORS_SHOWN: usize = 10;

/// What is remembered between runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Memo {
    /// Runs in a row that failed as a whole or in part.
    failures: u32,
    /// Runs in a row in which a scope could not be read.
    scopes: BTreeMap<String, u32>,
    /// What was last told, if that was no good news.
    told: Option<Told>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    event: String,
    /// The held plan it was about.
    plan: Option<String>,
}

/// How a run ended, as far as a message is concerned.
struct End<'r> {
    run: &'r str,
    status: Status,
    plan: Option<&'r str>,
    errors: &'r [Fault],
    report: Option<&'r Report>,
}

#[derive(Clone)]
pub struct Notifier {
    pipeline: String,
    notify: Notify,
    state: State,
    locks: Arc<Locks>,
    clock: SharedClock,
}

impl Notifier {
    /// Of a pipeline of the config, opened or not; `None` when nobody is to be told.
    pub fn of(spec: &config::Pipeline, memory: &Memory) -> Option<Self> {
        let (state, locks, clock) = (memory.state.clone(), memory.locks.clone(), memory.clock.clone());
        Some(Notifier { pipeline: spec.name.clone(), notify: spec.notify.clone()?, state, locks, clock })
    }

    /// What to write down with the report of a run that ended.
    pub(super) async fn items(&self, report: &Report) -> Result<Vec<Item>> {
        self.decide(&End {
            run: &report.id,
            status: report.status,
            plan: report.plan.as_deref(),
            errors: &report.errors,
            report: Some(report),
        })
        .await
    }

    /// A run that could not even start is a failed one. One that another run, or a person, stood in the way of is not.
    pub async fn not_started(&self, error: &Error) -> Result<()> {
        if matches!(error.kind(), Kind::Busy | Kind::Canceled) {
            return Ok(());
        }
        let run = format!("not-started-{:016x}", self.clock.random());
        let errors = [Fault::of(error)];
        let end = End { run: &run, status: Status::Failed, plan: None, errors: &errors, report: None };
        self.state.commit(self.decide(&end).await?).await?;
        self.deliver(false).await.map(drop)
    }

    /// Try to say what is to be said; `waits` = not before each message's back-off is over.
    pub async fn deliver(&self, waits: bool) -> Result<Summary> {
        let worker = queue::Worker {
            pipeline: self.pipeline.clone(),
            state: self.state.clone(),
            locks: self.locks.clone(),
            clock: self.clock.clone(),
            // A message brings its own text: no value is looked up, no shape is asked.
            store: self.state.store().clone(),
            shape: Arc::new(Raw),
            source: None,
            then: vec![self.follow_up()],
            stop: Arc::default(),
        };
        if waits { worker.due().await } else { worker.once().await }
    }

    pub(super) fn follow_up(&self) -> FollowUp {
        let name = Fingerprint::of(self.notify.webhook.expose().as_bytes()).short()[..8].to_owned();
        let hook = Webhook { url: self.notify.webhook.clone(), secret: None, timeout: WEBHOOK_TIMEOUT };
        FollowUp { name: format!("notify-{name}"), effect: Effect::Webhook(hook) }
    }

    async fn decide(&self, end: &End<'_>) -> Result<Vec<Item>> {
        let key = keys::notified(&self.pipeline);
        let before: Memo = self.state.read(&key).await?.unwrap_or_default();
        let (after, event) = next(&before, end, self.notify.after);
        let mut items = Vec::new();
        if after != before {
            items.push(item(key, &after)?);
        }
        if let Some(event) = event {
            let message = self.message(event, end, &after);
            let now = self.clock.now();
            let then = self.follow_up().name;
            items.push(queue::notice(&self.pipeline, &then, end.run, message.to_string(), now)?);
        }
        Ok(items)
    }

    fn message(&self, event: &str, end: &End<'_>, memo: &Memo) -> Value {
        let count = |pick: fn(&Report) -> u64| end.report.map_or(0, pick);
        json!({
            "event": event,
            "pipeline": self.pipeline,
            "run": end.report.map(|report| &report.id),
            "status": end.status,
            "failures": memo.failures,
            "scopes": memo.scopes,
            "failed": count(|report| report.counts.failed),
            "unproven": count(|report| report.counts.unproven),
            "held": count(|report| report.counts.held),
            "dead": count(|report| report.dead),
            "plan": end.plan.filter(|_| end.status == Status::Held),
            "errors": end.errors.iter().take(ERRORS_SHOWN).collect::<Vec<_>>(),
            "at": rfc3339_ms(self.clock.now()),
            "text": sentence(&self.pipeline, event, end, memo),
        })
    }
}

fn sentence(pipeline: &str, event: &str, end: &End<'_>, memo: &Memo) -> String {
    let held = end.report.map_or(0, |report| report.counts.held);
    let why = end.errors.first().map(|fault| format!(": {}", fault.message)).unwrap_or_default();
    let plan = end.plan.unwrap_or_default();
    match event {
        "held" => {
            format!("{pipeline}: {held} changes are held; `trueup approve {plan}` or `trueup reject {plan}`")
        }
        "recovered" => format!("{pipeline} has recovered"),
        _ => format!("{pipeline} {event}, {} runs in a row{}{why}", memo.failures, unread(memo)),
    }
}

/// The scopes that were longest out of reach.
fn unread(memo: &Memo) -> String {
    let mut scopes: Vec<(&String, &u32)> = memo.scopes.iter().collect();
    scopes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let named: Vec<String> =
        scopes.iter().take(ERRORS_SHOWN).map(|(scope, count)| format!("{scope} {count} times")).collect();
    if named.is_empty() { String::new() } else { format!(", unread in a row: {}", named.join(", ")) }
}

/// What is remembered after a run, and what is said about it.
fn next(before: &Memo, end: &End<'_>, after: u32) -> (Memo, Option<&'static str>) {
    let told = |event: &str| before.told.as_ref().is_some_and(|told| told.event == event);
    match end.status {
        Status::Running | Status::Canceled => (before.clone(), None),
        Status::Ok => (Memo::default(), before.told.is_some().then_some("recovered")),
        Status::Held => {
            let plan = end.plan.map(str::to_owned);
            let known = before.told.as_ref().is_some_and(|told| told.event == "held" && told.plan == plan);
            let told = Some(Told { event: "held".to_owned(), plan });
            (Memo { told, ..Memo::default() }, (!known).then_some("held"))
        }
        Status::Failed | Status::Partial => {
            let event = if end.status == Status::Failed { "failed" } else { "partial" };
            let failures = before.failures.saturating_add(1);
            let scopes = broken(before, end);
            // A run, or one and the same scope, for the first time so often; or worse than what was told.
            let reached = failures == after
                || scopes.values().any(|count| *count == after)
                || (failures > after && before.told.is_some() && !told(event) && !told("failed"));
            let told = if reached {
                Some(Told { event: event.to_owned(), plan: None })
            } else {
                before.told.clone()
            };
            (Memo { failures, scopes, told }, reached.then_some(event))
        }
    }
}

/// Failures in a row by scope. A run that failed as a whole says nothing about scopes it did not get to.
fn broken(before: &Memo, end: &End<'_>) -> BTreeMap<String, u32> {
    let named = end.errors.iter().filter(|fault| fault.key.is_none()).filter_map(|fault| fault.scope.clone());
    let mut scopes: BTreeMap<String, u32> = named
        .take(SCOPES_MAX)
        .map(|scope| {
            let count = before.scopes.get(&scope).copied().unwrap_or(0).saturating_add(1);
            (scope, count)
        })
        .collect();
    if end.status == Status::Failed {
        for (scope, count) in &before.scopes {
            scopes.entry(scope.clone()).or_insert(*count);
        }
    }
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end<'r>(status: Status, plan: Option<&'r str>, errors: &'r [Fault]) -> End<'r> {
        End { run: "r", status, plan, errors, report: None }
    }

    /// What is said after each of these runs.
    fn said(after: u32, ends: &[(Status, &[&str])]) -> Vec<Option<&'static str>> {
        let mut memo = Memo::default();
        let mut all = Vec::new();
        for (status, scopes) in ends {
            let fault = |scope: &&str| Fault::of(&Error::new(Kind::Unavailable, "down")).at_scope(*scope);
            let errors: Vec<Fault> = scopes.iter().map(fault).collect();
            let (next, event) = next(&memo, &end(*status, None, &errors), after);
            memo = next;
            all.push(event);
        }
        all
    }

    #[test]
    fn each_thing_is_said_once_and_good_news_only_after_bad() {
        use Status::{Canceled, Failed, Held, Ok, Partial};
        let runs =
            |ends: &[Status]| ends.iter().map(|end| (*end, &[][..])).collect::<Vec<(Status, &[&str])>>();
        assert_eq!(
            said(1, &runs(&[Ok, Failed, Failed, Ok, Ok])),
            [None, Some("failed"), None, Some("recovered"), None]
        );
        assert_eq!(
            said(3, &runs(&[Failed, Partial, Failed, Failed, Ok])),
            [None, None, Some("failed"), None, Some("recovered")]
        );
        assert_eq!(said(2, &runs(&[Failed, Ok, Failed, Ok])), [None, None, None, None]);
        assert_eq!(said(1, &runs(&[Partial, Failed, Partial])), [Some("partial"), Some("failed"), None]);
        assert_eq!(said(3, &runs(&[Held, Held, Ok])), [Some("held"), None, Some("recovered")]);
        assert_eq!(
            said(1, &runs(&[Failed, Held, Canceled, Ok])),
            [Some("failed"), Some("held"), None, Some("recovered")]
        );
    }

    #[test]
    fn a_scope_that_keeps_failing_is_heard_of_beside_one_that_only_starts() {
        let (one, both): (&[&str], &[&str]) = (&["25"], &["25", "26"]);
        let runs = [
            (Status::Partial, both),
            (Status::Partial, one),
            (Status::Partial, both),
            (Status::Partial, both),
        ];
        assert_eq!(said(2, &runs), [None, Some("partial"), None, Some("partial")]);
    }
}
