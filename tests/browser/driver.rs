//! A headless Chromium of one's own, spoken to by the WebDriver protocol.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support;

pub struct Browser {
    driver: Child,
    session: String,
    client: reqwest::Client,
    site: String,
}

/// What the protocol calls an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// What a page tells goes away after seconds, which a slow machine may miss: here it stays for longer. Not for ever, as
/// it may lie over what is clicked next.
const LASTING: &str = r##"{
    const wait = window.setTimeout;
    window.setTimeout = (work, ms, ...more) =>
        wait(work, String(work).includes('$("#told")') ? 30000 : ms, ...more);
}"##;

impl Browser {
    /// Open, with `site` as where paths lead to.
    pub async fn at(address: &str) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("install what the tests need: ./x services (chromium-driver is missing)");
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        let base = format!("http://127.0.0.1:{}", port.expect("chromedriver names its port"));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut browser = Browser { driver, session: base, client, site: format!("http://{address}") };
        let options = json!({ "capabilities": { "alwaysMatch": {
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--window-size=1280,900", "--force-color-profile=srgb",
                "--disable-background-networking", "--disable-extensions", "--hide-scrollbars",
            ] },
        } } });
        let opened = browser.ask("POST", "/session", options).await;
        browser.session = format!("{}/session/{}", browser.session, opened["sessionId"].as_str().unwrap());
        browser.developer("Page.addScriptToEvaluateOnNewDocument", json!({ "source": LASTING })).await;
        browser
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        self.try_ask(method, path, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    async fn try_ask(&self, method: &str, path: &str, body: Value) -> Result<Value, String> {
        let request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.session));
        let request = if method == "POST" { request.body(body.to_string()) } else { request };
        let answer = request.header("content-type", "application/json").send().await.unwrap();
        let good = answer.status().is_success();
        let got: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        if good { Ok(got["value"].clone()) } else { Err(got["value"]["message"].to_string()) }
    }

    pub async fn open(&self, path: &str) {
        self.ask("POST", "/url", json!({ "url": format!("{}{path}", self.site) })).await;
    }

    pub async fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", json!({ "script": script, "args": [] })).await
    }

    async fn find(&self, css: &str) -> Result<String, String> {
        let found =
            self.try_ask("POST", "/element", json!({ "using": "css selector", "value": css })).await?;
        Ok(found[ELEMENT].as_str().unwrap().to_owned())
    }

    /// Click as a person does: what is covered, disabled or not there cannot be clicked, and is waited for.
    pub async fn click(&self, css: &str) {
        let clicked = support::eventually(async || {
            let Ok(element) = self.find(css).await else { return false };
            let enabled = self.try_ask("GET", &format!("/element/{element}/enabled"), Value::Null).await;
            enabled.is_ok_and(|enabled| enabled == true)
                && self.try_ask("POST", &format!("/element/{element}/click"), json!({})).await.is_ok()
        });
        assert!(clicked.await, "nothing to click at {css} on:\n{}", self.text("body").await);
    }

    /// Write into a field. One that is being drawn anew is looked for again.
    pub async fn write(&self, css: &str, text: &str) {
        let written = support::eventually(async || {
            let Ok(element) = self.find(css).await else { return false };
            self.try_ask("POST", &format!("/element/{element}/value"), json!({ "text": text })).await.is_ok()
        });
        assert!(written.await, "nothing to write into at {css} on:\n{}", self.text("body").await);
    }

    /// The text a person sees there; nothing if there is nothing.
    pub async fn text(&self, css: &str) -> String {
        let Ok(element) = self.find(css).await else { return String::new() };
        let text = self.try_ask("GET", &format!("/element/{element}/text"), Value::Null).await;
        text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Wait until a place shows a text.
    pub async fn sees(&self, css: &str, text: &str) {
        let seen = support::eventually(async || self.text(css).await.contains(text)).await;
        assert!(seen, "no \"{text}\" in {css} on:\n{}", self.text("body").await);
    }

    pub async fn press(&self, key: &str) {
        let keys = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] });
        self.ask("POST", "/actions", actions).await;
    }

    /// A screen of this width, in light or dark.
    pub async fn screen(&self, width: u32, dark: bool) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.developer("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.developer("Emulation.setEmulatedMedia", media).await;
    }

    async fn developer(&self, command: &str, params: Value) -> Value {
        self.ask("POST", "/goog/cdp/execute", json!({ "cmd": command, "params": params })).await
    }

    /// The whole page as a picture in `target/screenshots`.
    pub async fn picture(&self, name: &str) {
        let whole = json!({ "captureBeyondViewport": true, "format": "png" });
        let shot = self.developer("Page.captureScreenshot", whole).await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }

    /// What the browser complained about: scripts that failed, styles that were refused.
    pub async fn complaints(&self) -> Vec<String> {
        let lines = self.ask("POST", "/se/log", json!({ "type": "browser" })).await;
        let bad = lines.as_array().unwrap().iter().filter(|line| line["level"] == "SEVERE");
        bad.map(|line| line["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver and every process of its browser.
        let group = format!("-{}", self.driver.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.driver.wait();
    }
}
