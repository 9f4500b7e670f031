//! The effects themselves: an export, a web hook, a command. Each answers per task; trouble that concerns the other
//! side as a whole hands tasks back instead of counting against them.

use std::process::Stdio;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use tokio::io::AsyncWriteExt;

use super::document::{self, Ready};
use super::work::Worker;
use super::{Effect, FollowUp, Task};
use crate::config::{Command, StoreSpec, Webhook};
use crate::error::{Error, Fault, Kind, Result, from_io};
use crate::http::{self, Http};
use crate::retry::Patience;
use crate::state::journal::Change;
use crate::store::{Access, Item, Mode, SharedStore, Stored, open};

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    Well,
    /// This task failed; it counts.
    Failed(Fault),
    /// The other side is out of reach; it does not count.
    HandedBack(Fault),
}

pub struct Effects<'a> {
    worker: &'a Worker,
    then: &'a FollowUp,
    target: tokio::sync::OnceCell<SharedStore>,
}

/// Web hooks and commands under way at once: enough to be quick, few enough not to be a flood.
const CONCURRENCY: usize = 8;
/// How much of an answer or of a command's output is kept with a failure.
const OUTPUT_MAX: usize = 4_000;

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
                Ok(http) => self.each(tasks, |task| self.webhook(&http, hook, task)).await,
                Err(error) => hand_all_back(tasks, &error),
            },
            Effect::Command(command) => self.each(tasks, |task| self.command(command, task)).await,
            Effect::Outside => hand_all_back(tasks, &Error::new(Kind::Config, "left for an outside consumer")),
        }
    }

    /// Several at a time, until one finds the other side out of reach; the rest is handed back untried.
    async fn each<'t, F>(&self, tasks: &[&'t Task], act: impl Fn(&'t Task) -> F) -> Vec<Done>
    where
        F: Future<Output = Result<()>>,
    {
        let down = std::sync::OnceLock::<Fault>::new();
        let results = stream::iter(tasks).map(|task| {
            let acting = act(task);
            let down = &down;
            async move {
                if let Some(fault) = down.get() {
                    return Done::HandedBack(fault.clone());
                }
                match acting.await {
                    Ok(()) => Done::Well,
                    Err(error) if is_out_of_reach(&error) => {
                        Done::HandedBack(down.get_or_init(|| Fault::of(&error)).clone())
                    }
                    Err(error) => Done::Failed(Fault::of(&error)),
                }
            }
        });
        results.buffered(CONCURRENCY).collect().await
    }

    /// Copy the values as they are now into another store. What is already so is not written again, so an export
    /// repeated after a crash changes nothing.
    async fn export(&self, spec: &StoreSpec, tasks: &[&Task]) -> Result<Vec<Done>> {
        let opened = || open::open(spec, Access::Write, self.worker.clock.clone());
        let target = self.target.get_or_try_init(opened).await?;
        let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
        let values = self.worker.store.get(&keys).await?;
        let ready = if self.worker.shape.exports_body() {
            document::ready(self.worker, target, tasks, values).await?
        } else {
            tasks.iter().zip(values).map(|(task, value)| self.exported(task, value)).collect()
        };
        let writes: Vec<Item> = ready.iter().filter_map(written).collect();
        let outcomes = if writes.is_empty() { Vec::new() } else { target.write(writes, Mode::Each).await? };
        let unreachable = !outcomes.is_empty()
            && outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.kind() == Kind::Unavailable));
        let mut outcomes = outcomes.into_iter();
        let mut answer = |one: Ready| match one {
            Ready::Not(done) => done,
            Ready::Nothing => Done::Well,
            Ready::Write(_) => match outcomes.next() {
                None | Some(Ok(_)) => Done::Well,
                Some(Err(error)) if unreachable => Done::HandedBack(Fault::of(&error)),
                Some(Err(error)) => Done::Failed(Fault::of(&error)),
            },
        };
        Ok(ready.into_iter().map(&mut answer).collect())
    }

    /// A put whose value is gone by now has nothing to export: the delete that follows takes its place.
    fn exported(&self, task: &Task, value: Option<Stored>) -> Ready {
        let shape = &self.worker.shape;
        match (task.change, value) {
            (Change::Delete, _) => Ready::Write(Item::delete(shape.export_key(&task.key))),
            (Change::Add | Change::Update, Some(stored)) => {
                let item = Item::put(shape.export_key(&task.key), stored.value);
                Ready::Write(match stored.fingerprint {
                    Some(print) => item.with_fingerprint(print),
                    None => item,
                })
            }
            (Change::Add | Change::Update, None) => Ready::Nothing,
        }
    }

    async fn webhook(&self, http: &Http, hook: &Webhook, task: &Task) -> Result<()> {
        let body = self.message(task).await?;
        let url = http::parse_url(hook.url.expose())
            .map_err(|_| Error::new(Kind::Config, format!("{} is not an address HTTP can ask", hook.url)))?;
        let mut ask = http::Ask::get(url, hook.timeout, OUTPUT_MAX)
            .patience(Patience { attempts_max: 1, ..Patience::REQUEST })
            .header(reqwest::header::CONTENT_TYPE, "application/json")?
            .header(IDEMPOTENCY_KEY, &self.idempotency_key(task))?;
        if let Some(secret) = &hook.secret {
            ask = ask.header(SIGNATURE, &signature(secret.require()?.expose(), &body)?)?;
        }
        ask.method = reqwest::Method::POST;
        ask.body = Some(body);
        // The address is not repeated: its path may be the secret.
        http.once(&ask).await.map(drop).map_err(|error| error.while_(format!("calling {}", hook.url)))
    }

    async fn command(&self, command: &Command, task: &Task) -> Result<()> {
        let input = self.message(task).await?;
        let doing = || format!("running {}", command.program);
        let mut child = tokio::process::Command::new(&command.program)
            .args(&command.args)
            .current_dir(&command.folder)
            .env("TRUEUP_KEY", &task.key)
            .env("TRUEUP_CHANGE", task.change.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| from_io(error, doing()).remedy_is("Check that the program exists and may be run."))?;
        let stdin = child.stdin.take();
        let running = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input is no error; its exit code decides.
                drop(stdin.write_all(&input).await);
            }
            child.wait_with_output().await
        };
        let Ok(ended) = tokio::time::timeout(command.timeout, running).await else {
            let message = format!("{} did not end within {:?}", command.program, command.timeout);
            return Err(Error::new(Kind::Invalid, message).remedy_is("Make it quicker, or raise `timeout`."));
        };
        let ended = ended.map_err(|error| from_io(error, doing()))?;
        if ended.status.success() {
            return Ok(());
        }
        let said = tail(if ended.stderr.is_empty() { &ended.stdout } else { &ended.stderr });
        let message = format!("{} ended with {}{said}", command.program, ended.status);
        Err(Error::new(Kind::Invalid, message).remedy_is("Correct the command or its input, then `trueup dead retry`."))
    }

    /// What a web hook or a command is told. Small text values come along; others can be fetched by key.
    async fn message(&self, task: &Task) -> Result<Bytes> {
        const VALUE_MAX: usize = 64 * 1024;
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
        let write = String::from(task.write.clone());
        let parts = [self.worker.pipeline.as_bytes(), self.then.name.as_bytes(), task.key.as_bytes(), write.as_bytes()];
        crate::record::Fingerprint::of_parts(&parts).to_string()
    }
}

fn written(ready: &Ready) -> Option<Item> {
    match ready {
        Ready::Write(item) => Some(item.clone()),
        Ready::Nothing | Ready::Not(_) => None,
    }
}

const IDEMPOTENCY_KEY: reqwest::header::HeaderName = reqwest::header::HeaderName::from_static("idempotency-key");
const SIGNATURE: reqwest::header::HeaderName = reqwest::header::HeaderName::from_static("x-trueup-signature");

/// `sha256=` and the HMAC of the body in hex, as receivers of signed hooks know it.
fn signature(secret: &str, body: &[u8]) -> Result<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .map_err(|error| Error::bug("signing a web hook").caused_by(error.to_string()))?;
    mac.update(body);
    Ok(format!("sha256={}", hex::encode(mac.finalize().into_bytes())))
}

/// Nobody answered at all: that says nothing about this task. Any answer, even a 500, is about this task.
fn is_out_of_reach(error: &Error) -> bool {
    error.http_status().is_none() && matches!(error.kind(), Kind::Unavailable | Kind::Throttled)
}

fn hand_all_back(tasks: &[&Task], error: &Error) -> Vec<Done> {
    tasks.iter().map(|_| Done::HandedBack(Fault::of(error))).collect()
}

/// The end of an output: that is where programs say what went wrong.
fn tail(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(&output[output.len().saturating_sub(OUTPUT_MAX)..]);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
