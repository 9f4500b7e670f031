//! A running `trueup serve` and a client for it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::cli::home::Home;
use crate::support;

pub struct Serving {
    child: Child,
    pub address: String,
    said: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
    client: reqwest::Client,
}

/// An answer: its status, headers and body.
pub struct Got {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Got {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// It was answered so.
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// It is an error of this kind, with a message and a remedy.
    #[track_caller]
    pub fn refused(self, status: u16, kind: &str) -> Self {
        let error = self.json()["error"].clone();
        assert_eq!((self.status, error["kind"].as_str()), (status, Some(kind)), "{}", self.text);
        assert!(
            !error["message"].as_str().unwrap().is_empty() && !error["remedy"].as_str().unwrap().is_empty()
        );
        self
    }
}

impl Serving {
    pub async fn of(home: &Home) -> Self {
        Self::with(home, &[], &[]).await
    }

    pub async fn with(home: &Home, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut command = home.command(&all);
        command.envs(env.iter().copied());
        Self::start(command).await
    }

    pub async fn start(mut command: Command) -> Self {
        trueup::tls::choose();
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().unwrap()), said.clone());
        let reader = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        let mark = "Listening on http://";
        support::until("the server to listen", || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended with {ended:?}: {}", said.lock().unwrap());
            said.lock().unwrap().contains(mark)
        })
        .await;
        let text = said.lock().unwrap().clone();
        let address = text.split(mark).nth(1).unwrap().lines().next().unwrap().to_owned();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Serving { child, address, said, reader, client }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub async fn get(&self, path: &str) -> Got {
        self.ask("GET", path, &[], None).await
    }

    pub async fn post(&self, path: &str, body: Option<Value>) -> Got {
        self.ask("POST", path, &[], body).await
    }

    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Got {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.client.request(method.parse().unwrap(), url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Got { status, headers, text: answer.text().await.unwrap() }
    }

    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Wait for its end and for the last of what it said; its exit code (or -1 for a signal).
    pub async fn ended(&mut self) -> i32 {
        let (child, reader) = (&mut self.child, &self.reader);
        support::until("the server to end", || child.try_wait().unwrap().is_some()).await;
        // Whatever it started has pipes of its own, so that nobody else holds this one open.
        support::until("the last of what it said", || reader.is_finished()).await;
        self.child.try_wait().unwrap().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
