//! A model on loopback that speaks the chat completions API. It translates by saying in which language it would have,
//! and finds what a test tells it to find.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::wiki::json_reply;
use crate::support::http::{Reply, Request, Server};

pub struct Model {
    pub server: Server,
    /// How long an answer is waited for.
    pub timeout: &'static str,
    findings: Arc<Mutex<Vec<Value>>>,
}

impl Model {
    pub fn new() -> Self {
        let findings: Arc<Mutex<Vec<Value>>> = Arc::default();
        let theirs = findings.clone();
        let server = Server::start(move |request| completion(request, &theirs.lock().unwrap()));
        Model { server, timeout: "120s", findings }
    }

    /// What it finds in every policy whose source is the one a quote names.
    pub fn finds(&self, findings: Vec<Value>) {
        *self.findings.lock().unwrap() = findings;
    }

    pub fn translations(&self) -> usize {
        self.asked("translation")
    }

    pub fn analyses(&self) -> usize {
        self.asked("issues")
    }

    fn asked(&self, schema: &str) -> usize {
        let named = |request: &Request| body(request)["response_format"]["json_schema"]["name"] == schema;
        self.server.requests().iter().filter(|request| named(request)).count()
    }

    /// What stands for `llm` in a config.
    pub fn llm(&self) -> String {
        format!(
            "{{ url = \"{}\", model = \"stand-in\", timeout = \"{}\" }}",
            self.server.url("/v1"),
            self.timeout
        )
    }
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap_or_default()
}

/// The policy that is asked about.
pub fn asked_about(request: &Request) -> String {
    let asked = body(request);
    let material: Value = serde_json::from_str(asked["messages"][1]["content"].as_str().unwrap()).unwrap();
    material["policy"]["source"].as_str().unwrap_or_default().to_owned()
}

fn completion(request: &Request, findings: &[Value]) -> Reply {
    if !request.path.ends_with("/chat/completions") {
        return Reply::status(404);
    }
    let asked = body(request);
    assert_eq!((&asked["temperature"], &asked["stream"]), (&json!(0), &json!(false)), "{asked}");
    assert_eq!(asked["response_format"]["type"], "json_schema");
    let task = asked["messages"][0]["content"].as_str().unwrap().to_owned();
    let material: Value = serde_json::from_str(asked["messages"][1]["content"].as_str().unwrap()).unwrap();
    let content = match asked["response_format"]["json_schema"]["name"].as_str().unwrap() {
        "translation" => {
            let into = task.split(" into ").nth(1).unwrap().split('.').next().unwrap();
            let say = |name: &str| format!("[{into}] {}", material[name].as_str().unwrap());
            json!({ "title": say("title"), "content": say("content") })
        }
        _ => {
            let source = &material["policy"]["source"];
            let about = |finding: &&Value| finding["description"].to_string().contains(&source.to_string());
            json!({ "issues": findings.iter().filter(about).collect::<Vec<_>>() })
        }
    };
    answer(&content.to_string())
}

/// An answer in the shape every server of this kind gives.
pub fn answer(content: &str) -> Reply {
    json_reply(&json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "stand-in",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": content } }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 },
    }))
}
