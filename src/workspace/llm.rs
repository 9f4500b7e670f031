//! The model: one question, one answer, as an OpenAI-compatible endpoint takes and gives them.
//!
//! Every question brings the schema of its answer, and no answer is believed that does not fit it. Temperature 0, not
//! streamed. Refuses to guess at an answer that was cut off or is something else: the error says what came instead.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use crate::clock::SharedClock;
use crate::config::LlmSpec;
use crate::error::{Error, Kind, Result};
use crate::http::{Answer, Ask, Http, parse_url, shown};
use crate::retry::Patience;
use crate::secret::Secret;

/// A look at the endpoint, for `trueup check`.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// Far more than a model writes at once.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// One question costs money and minutes: two more attempts, and no long waits.
const PATIENCE: Patience = Patience { attempts_max: 3, wait_ms_first: 1_000, wait_ms_max: 30_000 };
/// How much of a wrong answer a message repeats.
const QUOTED_CHARS: usize = 120;

pub struct Llm {
    http: Http,
    base: Url,
    model: String,
    token: Option<Secret>,
    timeout: Duration,
}

/// What is asked, and what the answer must look like.
pub struct Question<'q> {
    /// The schema's name.
    pub name: &'static str,
    pub schema: Value,
    pub task: &'q str,
    pub material: &'q str,
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    refusal: Option<String>,
}

impl Llm {
    pub fn new(spec: &LlmSpec, token: Option<Secret>, clock: SharedClock) -> Result<Self> {
        let mut base = parse_url(spec.url.expose())?;
        let path = format!("{}/", base.path().trim_end_matches('/'));
        base.set_path(&path);
        Ok(Llm { http: Http::new(clock)?, base, model: spec.model.clone(), token, timeout: spec.timeout })
    }

    pub fn name(&self) -> String {
        format!("{} at {}", self.model, shown(&self.base))
    }

    /// Requests sent so far.
    pub fn requests(&self) -> u64 {
        self.http.requests()
    }

    /// Ask, and read the answer as `T`.
    pub async fn ask<T: DeserializeOwned>(&self, question: &Question<'_>) -> Result<T> {
        let body = json!({
            "model": self.model,
            "temperature": 0,
            "stream": false,
            "messages": [
                { "role": "system", "content": question.task },
                { "role": "user", "content": question.material },
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": { "name": question.name, "strict": true, "schema": question.schema },
            },
        });
        let mut ask = self.request("chat/completions", self.timeout)?;
        ask.method = Method::POST;
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        ask.body = Some(Bytes::from(body.to_string()));
        let completion = self.http.read(&ask, envelope).await?;
        fitting(question.name, completion).map_err(|error| error.while_(self.name()))
    }

    fn request(&self, path: &str, timeout: Duration) -> Result<Ask> {
        let url = self
            .base
            .join(path)
            .map_err(|error| Error::new(Kind::Config, "the model's URL takes no path").caused_by(error))?;
        let ask = Ask::get(url, timeout, ANSWER_BYTES_MAX).patience(PATIENCE);
        match &self.token {
            Some(token) => ask.bearer(token),
            None => Ok(ask),
        }
    }

    /// Whether it answers and lets us in. Many servers list no models; that they answer is enough.
    pub async fn check(&self) -> Result<Vec<String>> {
        let ask = self.request("models", LOOK_TIMEOUT)?;
        match self.http.send(&ask).await {
            Ok(_) => Ok(vec![format!("model {}", self.model)]),
            Err(error) if matches!(error.http_status(), Some(204 | 400 | 404..=405 | 501)) => {
                Ok(vec![format!("model {}, which it does not list", self.model)])
            }
            Err(error) => Err(error),
        }
    }
}

/// A page of regrets instead of JSON passes; that is worth another attempt.
fn envelope(answer: Answer) -> Result<Completion> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| Error::new(Kind::Unavailable, "the answer is no chat completion").caused_by(error))
}

fn fitting<T: DeserializeOwned>(name: &str, completion: Completion) -> Result<T> {
    let invalid = |message: String| {
        Error::new(Kind::Invalid, message)
            .remedy_is("Try again, or use a model that keeps to a JSON schema (`llm.model`).")
    };
    let choice = completion.choices.into_iter().next();
    let choice = choice.ok_or_else(|| invalid("the model gave no answer".into()))?;
    if let Some(refusal) = choice.message.refusal.filter(|refusal| !refusal.is_empty()) {
        return Err(invalid(format!("the model refused: {}", quoted(&refusal))));
    }
    if choice.finish_reason.as_deref() == Some("length") {
        return Err(invalid(format!("the model's answer to `{name}` was cut off")));
    }
    let content = choice.message.content.unwrap_or_default();
    serde_json::from_str(unfenced(&content)).map_err(|error| {
        invalid(format!(
            "the model's answer does not fit the schema `{name}`: {error}; it said: {}",
            quoted(&content)
        ))
    })
}

/// Some models wrap JSON in a code fence, schema or not.
fn unfenced(content: &str) -> &str {
    let content = content.trim();
    let inner = content.strip_prefix("```json").or_else(|| content.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).unwrap_or(content).trim()
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > QUOTED_CHARS { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Said {
        title: String,
    }

    fn answer(content: &str, finish: &str) -> Result<Said> {
        let choice = Choice {
            message: Message { content: Some(content.into()), refusal: None },
            finish_reason: Some(finish.into()),
        };
        fitting("translation", Completion { choices: vec![choice] })
    }

    #[test]
    fn an_answer_is_believed_only_when_it_fits() {
        let said = Said { title: "x".into() };
        assert_eq!(answer(r#"{"title":"x"}"#, "stop").unwrap(), said);
        assert_eq!(answer("```json\n{\"title\":\"x\"}\n```", "stop").unwrap(), said);
        let cases = [
            (r#"{"titel":"x"}"#, "stop", "schema `translation`: missing field `title`"),
            ("Sure! Here it is", "stop", "schema `translation`"),
            (r#"{"title":"x"}"#, "length", "cut off"),
            ("", "stop", "schema `translation`"),
        ];
        for (content, finish, said) in cases {
            let error = answer(content, finish).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
