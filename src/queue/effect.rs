//! The effects themselves: an export, a web hook, a command. Each answers per task; trouble that concerns the other
//! side as a whole hands tasks back instead of counting against them.

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;

use super::command;
use super::document::{self, Job, Ready};
use super::work::Worker;
use super::{Effect, FollowUp, Task};
use crate::config::{StoreSpec, Webhook};
use crate::error::{Error, Fault, Kind, Result};
use crate::http::{self, Http};

use crate::retry::Patience;
use crate::state::journal::Change;
use crate::store::{Access, Expect, Item, Mode, Op, Outcome, SharedStore, Stored, open};

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    Well,
    /// This task failed; it counts.
    Failed(Fault),
    /// This task failed, and no other attempt would help.
    Hopeless(Fault),
    /// What this task needs is out of reach for now; it does not count, and others may do better.
    Waits(Fault),
    /// The other side is out of reach; it does not count.
    HandedBack(Fault),
    /// A person asked to stop before its turn came; it is as it was.
    NotBegun,
}

pub struct Effects<'a> {
    worker: &'a Worker,
    then: &'a FollowUp,
    target: tokio::sync::OnceCell<SharedStore>,
}

/// Web hooks and commands under way at once: enough to be quick, few enough not to be a flood.
pub const CONCURRENCY: usize = 8;
/// How often an export is begun anew because somebody else changed the target meanwhile; more often is a failure.
const EXPORTS_MAX: usize = 5;

impl<'a> Effects<'a> {
    pub fn new(worker: &'a Worker, then: &'a FollowUp) -> Self {
        Effects { worker, then, target: tokio::sync::OnceCell::new() }
    }

    /// One answer per task, in order.
    pub async fn perform(&self, tasks: &[&Task]) -> Vec<Done> {
        if tasks.is_empty() {
            return Vec::new();
        }
        match &self.then.effect {
            Effect::Export(store) => match self.export(store, tasks).await {
                Ok(done) => done,
                Err(error) => hand_all_back(tasks, &error),
            },
            Effect::Webhook(hook) => match Http::new(self.worker.clock.clone()) {
                Ok(http) => self.each(tasks, |task| self.call(&http, hook, task)).await,
                Err(error) => hand_all_back(tasks, &error),
            },
            Effect::Command(command) => self.each(tasks, |task| self.run(command, task)).await,
            Effect::Outside => {
                hand_all_back(tasks, &Error::new(Kind::Config, "left for an outside consumer"))
            }
        }
    }

    /// Several at a time, until one finds the other side out of reach, or a person asks to stop; the rest is handed back
    /// untried.
    async fn each<'t, F>(&self, tasks: &[&'t Task], act: impl Fn(&'t Task) -> F) -> Vec<Done>
    where
        F: Future<Output = Done>,
    {
        let down = std::sync::OnceLock::<Fault>::new();
        let results = stream::iter(tasks).map(|task| {
            let acting = act(task);
            let down = &down;
            async move {
                if self.worker.is_stopped() {
                    return Done::NotBegun;
                }
                if let Some(fault) = down.get() {
                    return Done::HandedBack(fault.clone());
                }
                let done = acting.await;
                if let Done::HandedBack(fault) = &done {
                    down.get_or_init(|| fault.clone());
                }
                done
            }
        });
        results.buffered(CONCURRENCY).collect().await
    }

    /// Copy the values as they are now into another store. What is already so is not written again, so an export
    /// repeated after a crash changes nothing. What the target holds is looked at before the values are read, and is
    /// the condition of the write: a worker that was slow cannot put an older value over a newer one.
    async fn export(&self, spec: &StoreSpec, tasks: &[&Task]) -> Result<Vec<Done>> {
        let opened = || open::open(spec, Access::Write, self.worker.clock.clone());
        let target = self.target.get_or_try_init(opened).await?;
        let mut done: Vec<Option<Done>> = vec![None; tasks.len()];
        let mut open: Vec<usize> = (0..tasks.len()).collect();
        for _ in 0..EXPORTS_MAX {
            open = self.export_some(target, tasks, &open, &mut done).await?;
            if open.is_empty() {
                break;
            }
        }
        let restless =
            || Fault::of(&Error::new(Kind::Conflict, "the target was changed again and again meanwhile"));
        Ok(done.into_iter().map(|done| done.unwrap_or_else(|| Done::Failed(restless()))).collect())
    }

    /// One try. Returns those whose target somebody else changed since it was looked at.
    async fn export_some(
        &self,
        target: &SharedStore,
        tasks: &[&Task],
        open: &[usize],
        done: &mut [Option<Done>],
    ) -> Result<Vec<usize>> {
        let names: Vec<String> =
            open.iter().map(|&at| self.worker.shape.export_key(&tasks[at].key)).collect();
        let there = target.get(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let keys: Vec<&str> = open.iter().map(|&at| tasks[at].key.as_str()).collect();
        let values = self.worker.store.get(&keys).await?;
        let jobs = open.iter().zip(names).zip(&there).zip(values);
        let jobs =
            jobs.map(|(((&at, name), there), row)| Job { task: tasks[at], name, there: there.as_ref(), row });
        let ready = if self.worker.shape.exports_body() {
            document::ready(self.worker, jobs.collect()).await?
        } else {
            jobs.map(|job| exported(job).map_or(Ready::Nothing, Ready::Write)).collect()
        };
        // A target that shows its writes late may hold something else by now.
        let believed = target.caps().strong_read;
        let (mut writes, mut written) = (Vec::new(), Vec::new());
        for ((&at, there), ready) in open.iter().zip(there).zip(ready) {
            match ready {
                Ready::Write(item) if believed && is_so(&item, there.as_ref()) => {
                    done[at] = Some(Done::Well);
                }
                Ready::Write(item) => {
                    let expect = there.map_or(Expect::Absent, |there| Expect::Exactly(there.version));
                    writes.push(item.expecting(expect));
                    written.push(at);
                }
                Ready::Nothing => done[at] = Some(Done::Well),
                Ready::Not(why) => done[at] = Some(why),
            }
        }
        let outcomes = if writes.is_empty() { Vec::new() } else { target.write(writes, Mode::Each).await? };
        let mut again = Vec::new();
        for (at, outcome) in written.into_iter().zip(outcomes) {
            match ended(outcome) {
                None => again.push(at),
                some => done[at] = some,
            }
        }
        Ok(again)
    }

    async fn run(&self, command: &crate::config::Command, task: &Task) -> Done {
        match self.message(task).await {
            Ok(input) => command::run(command, task, &input).await,
            Err(error) => Done::HandedBack(Fault::of(&error)),
        }
    }

    /// Whatever keeps the call from being made concerns every task; whatever is answered concerns this one.
    async fn call(&self, http: &Http, hook: &Webhook, task: &Task) -> Done {
        let ask = match self.webhook(hook, task).await {
            Ok(ask) => ask,
            Err(error) => return Done::HandedBack(Fault::of(&error)),
        };
        // The address is not repeated: its path may be the secret.
        match http.tell(&ask).await.map_err(|error| error.while_(format!("calling {}", hook.url))) {
            Ok(()) => Done::Well,
            Err(error) if is_out_of_reach(&error) => Done::HandedBack(Fault::of(&error)),
            Err(error) => Done::Failed(Fault::of(&error)),
        }
    }

    async fn webhook(&self, hook: &Webhook, task: &Task) -> Result<http::Ask> {
        let body = self.message(task).await?;
        let url = http::parse_url(hook.url.expose())
            .map_err(|_| Error::new(Kind::Config, format!("{} is not an address HTTP can ask", hook.url)))?;
        let mut ask = http::Ask::get(url, hook.timeout, 0)
            .patience(Patience { attempts_max: 1, ..Patience::REQUEST })
            .header(reqwest::header::CONTENT_TYPE, "application/json")?
            .header(IDEMPOTENCY_KEY, &self.idempotency_key(task))?;
        if let Some(secret) = &hook.secret {
            ask = ask.header(SIGNATURE, &signature(secret.require()?.expose(), &body)?)?;
        }
        ask.method = reqwest::Method::POST;
        ask.body = Some(body);
        Ok(ask)
    }

    /// What a web hook or a command is told. Small text values come along; others can be fetched by key.
    async fn message(&self, task: &Task) -> Result<Bytes> {
        const VALUE_MAX: usize = 64 * 1024;
        if let Some(message) = &task.message {
            return Ok(Bytes::from(message.clone()));
        }
        let value = match task.change {
            Change::Delete => None,
            Change::Add | Change::Update => self.worker.store.get(&[&task.key]).await?.pop().flatten(),
        };
        let text = value.as_ref().filter(|stored| stored.value.len() <= VALUE_MAX);
        let text = text.and_then(|stored| std::str::from_utf8(&stored.value).ok());
        let message = json!({
            "pipeline": self.worker.pipeline,
            "key": task.key,
            "change": task.change,
            "sha256": task.bytes,
            "run": task.write.run,
            "at": task.created,
            "value": text,
        });
        Ok(Bytes::from(message.to_string()))
    }

    /// The same for every attempt at the same write.
    fn idempotency_key(&self, task: &Task) -> String {
        let write = task.write.to_string();
        let parts = [
            self.worker.pipeline.as_bytes(),
            self.then.name.as_bytes(),
            task.key.as_bytes(),
            write.as_bytes(),
        ];
        crate::record::Fingerprint::of_parts(&parts).to_string()
    }
}

const IDEMPOTENCY_KEY: reqwest::header::HeaderName =
    reqwest::header::HeaderName::from_static("idempotency-key");
const SIGNATURE: reqwest::header::HeaderName = reqwest::header::HeaderName::from_static("x-trueup-signature");

/// `sha256=` and the HMAC of the body in hex, as receivers of signed hooks know it.
fn signature(secret: &str, body: &[u8]) -> Result<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .map_err(|error| Error::bug("signing a web hook").caused_by(error.to_string()))?;
    mac.update(body);
    Ok(format!("sha256={}", hex::encode(mac.finalize().into_bytes())))
}

/// A put whose value is gone by now, or a delete whose key is taken again, has nothing to export: the change that
/// made it so has a task of its own.
fn exported(Job { task, name, row, .. }: Job<'_>) -> Option<Item> {
    match (task.change, row) {
        (Change::Delete, None) => Some(Item::delete(name)),
        (Change::Add | Change::Update, Some(stored)) => {
            let item = Item::put(name, stored.value);
            Some(match stored.fingerprint {
                Some(print) => item.with_fingerprint(print),
                None => item,
            })
        }
        (Change::Delete, Some(_)) | (Change::Add | Change::Update, None) => None,
    }
}

/// What a write to the target came to; `None` = somebody else changed it since it was looked at.
fn ended(outcome: Result<Outcome>) -> Option<Done> {
    match outcome {
        Ok(Outcome::Conflict(_)) => None,
        Ok(_) => Some(Done::Well),
        Err(error) if error.kind().is_systemic() => Some(Done::HandedBack(Fault::of(&error))),
        Err(error) => Some(Done::Failed(Fault::of(&error))),
    }
}

/// The target holds this already.
fn is_so(item: &Item, there: Option<&Stored>) -> bool {
    match (&item.op, there) {
        (Op::Put { value, .. }, Some(there)) => *value == there.value,
        (Op::Delete, None) => true,
        _ => false,
    }
}

/// Nobody answered at all: that says nothing about this task. Any answer, even a 500, is about this task.
fn is_out_of_reach(error: &Error) -> bool {
    error.http_status().is_none() && matches!(error.kind(), Kind::Unavailable | Kind::Throttled)
}

fn hand_all_back(tasks: &[&Task], error: &Error) -> Vec<Done> {
    tasks.iter().map(|_| Done::HandedBack(Fault::of(error))).collect()
}
