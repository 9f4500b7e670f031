//! A server that speaks Cloudflare's KV API and enforces its limits: sizes, bulk counts, one write per key and second
//! (by the test's own clock), and, when told so, reads that lag behind the writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use trueup::clock::SharedClock;

use super::http::{Reply, Request, Server};

pub const ACCOUNT: &str = "0123456789abcdef0123456789abcdef";
pub const NAMESPACE: &str = "fedcba9876543210fedcba9876543210";
pub const TITLE: &str = "policy-registry";
pub const TOKEN: &str = "cf-canary-token";

#[derive(Clone)]
struct Stored {
    value: Vec<u8>,
    metadata: Value,
}

type Pairs = BTreeMap<String, Stored>;

#[derive(Default)]
struct Service {
    pairs: Pairs,
    /// What reads see while the service lags.
    shown: Option<Pairs>,
    written_ms: BTreeMap<String, u64>,
    /// Keys a bulk request does not take.
    refused: Vec<String>,
    /// Answer this many requests with 429.
    throttled: usize,
    bulk_writes: Vec<usize>,
    broken: Vec<String>,
    /// What is said instead, by the path that is asked for.
    lie: Option<Lie>,
}

type Lie = Box<dyn Fn(&str) -> Option<Reply> + Send>;

pub struct Kv {
    pub server: Server,
    service: Arc<Mutex<Service>>,
}

impl Kv {
    /// With a clock, two writes of one key within a second are an offence.
    pub fn start(clock: Option<SharedClock>) -> Self {
        let service = Arc::new(Mutex::new(Service::default()));
        let theirs = service.clone();
        let server = Server::start(move |request| theirs.lock().unwrap().answer(request, clock.as_ref()));
        Kv { server, service }
    }

    /// A store's entry in the config, the token in a file.
    pub fn config(&self, token_file: &std::path::Path) -> String {
        std::fs::write(token_file, TOKEN).unwrap();
        format!(
            "{{ url = \"cloudflare-kv://{ACCOUNT}/{TITLE}\", endpoint = \"{}\", token_file = \"{}\" }}",
            self.server.url("/client/v4"),
            token_file.display()
        )
    }

    /// Reads show what is there now, whatever is written later.
    pub fn lag(&self) {
        let mut service = self.service.lock().unwrap();
        service.shown = Some(service.pairs.clone());
    }

    pub fn catch_up(&self) {
        self.service.lock().unwrap().shown = None;
    }

    pub fn refuse(&self, keys: &[&str]) {
        self.service.lock().unwrap().refused = keys.iter().map(ToString::to_string).collect();
    }

    pub fn throttle(&self, requests: usize) {
        self.service.lock().unwrap().throttled = requests;
    }

    /// Answer so, wherever it has an answer to a path.
    pub fn lie(&self, lie: impl Fn(&str) -> Option<Reply> + Send + 'static) {
        self.service.lock().unwrap().lie = Some(Box::new(lie));
    }

    /// Pairs in each bulk write so far.
    pub fn bulk_writes(&self) -> Vec<usize> {
        self.service.lock().unwrap().bulk_writes.clone()
    }

    /// Rules of the service that were broken.
    pub fn offences(&self) -> Vec<String> {
        self.service.lock().unwrap().broken.clone()
    }
}

impl Service {
    fn answer(&mut self, request: &Request, clock: Option<&SharedClock>) -> Reply {
        if request.headers.get("authorization").map(String::as_str) != Some(&format!("Bearer {TOKEN}")) {
            return refusal(403, 10_000, "Authentication error");
        }
        if let Some(lie) = self.lie.as_ref().and_then(|lie| lie(&request.path)) {
            return lie;
        }
        if self.throttled > 0 {
            self.throttled -= 1;
            return refusal(429, 10_429, "Too many requests").header("Retry-After", "2");
        }
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let base = format!("/client/v4/accounts/{ACCOUNT}/storage/kv/namespaces");
        let Some(rest) = path.strip_prefix(base.as_str()) else { return refusal(404, 7_003, "No route") };
        if rest.is_empty() {
            let found = json!([{"id": NAMESPACE, "title": TITLE, "supports_url_encoding": true}]);
            return result(&found, json!({"page": 1, "per_page": 100, "total_pages": 1, "count": 1}));
        }
        let Some(rest) = rest.strip_prefix(&format!("/{NAMESPACE}/")) else {
            return refusal(404, 10_013, "namespace not found");
        };
        let shown = self.shown.as_ref().unwrap_or(&self.pairs);
        match (request.method.as_str(), rest.split_once('/').unwrap_or((rest, ""))) {
            ("GET", ("values", key)) => match shown.get(&decoded(key)) {
                Some(stored) => Reply::ok(stored.value.clone()),
                None => refusal(404, 10_009, "get: 'key not found'"),
            },
            ("GET", ("metadata", key)) => match shown.get(&decoded(key)) {
                Some(stored) => result(&stored.metadata, Value::Null),
                None => refusal(404, 10_009, "get: 'key not found'"),
            },
            ("GET", ("keys", "")) => keys(shown, query),
            ("PUT", ("bulk", "")) => self.bulk_write(&request.body, clock),
            ("POST", ("bulk", "delete")) => self.bulk_delete(&request.body),
            _ => refusal(405, 7_001, "Method not allowed"),
        }
    }

    fn bulk_write(&mut self, body: &[u8], clock: Option<&SharedClock>) -> Reply {
        if body.len() > 100_000_000 {
            return refusal(413, 10_047, "payload too large");
        }
        let pairs: Vec<Value> = serde_json::from_slice(body).unwrap();
        if pairs.len() > 10_000 {
            return refusal(400, 10_033, "too many pairs");
        }
        for pair in &pairs {
            let (key, value) = (pair["key"].as_str().unwrap(), pair["value"].as_str().unwrap());
            let metadata = pair["metadata"].to_string();
            if key.is_empty()
                || key.len() > 512
                || metadata.len() > 1_024
                || value.len() > 25 * 1_024 * 1_024 * 4 / 3 + 4
            {
                return refusal(400, 10_029, &format!("{key} breaks a size limit"));
            }
        }
        self.bulk_writes.push(pairs.len());
        let mut unsuccessful = Vec::new();
        for pair in pairs {
            let key = pair["key"].as_str().unwrap().to_owned();
            if self.refused.contains(&key) {
                unsuccessful.push(key);
                continue;
            }
            if let Some(clock) = clock {
                let now = clock.elapsed_ms();
                if self.written_ms.insert(key.clone(), now).is_some_and(|before| now < before + 1_000) {
                    self.broken.push(format!("{key} was written twice within a second"));
                }
            }
            let text = pair["value"].as_str().unwrap();
            let coded = pair["base64"].as_bool().unwrap_or(false);
            let value = if coded { STANDARD.decode(text).unwrap() } else { text.as_bytes().to_vec() };
            self.pairs.insert(key, Stored { value, metadata: pair["metadata"].clone() });
        }
        bulk(&unsuccessful)
    }

    fn bulk_delete(&mut self, body: &[u8]) -> Reply {
        let keys: Vec<String> = serde_json::from_slice(body).unwrap();
        if keys.len() > 10_000 {
            return refusal(400, 10_033, "too many keys");
        }
        let (refused, taken): (Vec<String>, Vec<String>) =
            keys.into_iter().partition(|key| self.refused.contains(key));
        for key in taken {
            self.pairs.remove(&key);
        }
        bulk(&refused)
    }
}

/// A page of keys. The cursor is the last key, in a form no client should read.
fn keys(shown: &Pairs, query: &str) -> Reply {
    let parameter = |name: &str| {
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let limit: usize = parameter("limit").map_or(1_000, |limit| limit.parse().unwrap());
    if !(10..=1_000).contains(&limit) {
        return refusal(400, 10_011, "limit must be between 10 and 1000");
    }
    let prefix = parameter("prefix").unwrap_or_default();
    let after = parameter("cursor").map(|cursor| String::from_utf8(hex::decode(cursor).unwrap()).unwrap());
    let behind = |key: &&String| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| *key > after);
    let all: Vec<&String> = shown.keys().filter(behind).collect();
    let page: Vec<Value> = all
        .iter()
        .take(limit)
        .map(|key| match &shown[*key].metadata {
            Value::Null => json!({"name": key}),
            metadata => json!({"name": key, "metadata": metadata}),
        })
        .collect();
    let cursor = if all.len() > limit { hex::encode(all[limit - 1]) } else { String::new() };
    let count = page.len();
    result(&Value::Array(page), json!({"count": count, "cursor": cursor}))
}

fn decoded(key: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn bulk(unsuccessful: &[String]) -> Reply {
    result(&json!({"successful_key_count": 0, "unsuccessful_keys": unsuccessful}), Value::Null)
}

fn result(result: &Value, info: Value) -> Reply {
    let body = json!({"success": true, "errors": [], "messages": [], "result": result, "result_info": info});
    Reply::ok(body.to_string()).header("Content-Type", "application/json")
}

pub fn refusal(status: u16, code: i64, message: &str) -> Reply {
    let body = json!({"success": false, "errors": [{"code": code, "message": message}], "messages": [], "result": null});
    Reply::status(status).body(body.to_string()).header("Content-Type", "application/json")
}
