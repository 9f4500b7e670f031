//! Who is let in, and what nobody is shown.

use serde_json::json;

use super::rig::Serving;
use crate::cli::home::{Home, Ran};

const TOKEN: &str = "canary-token-5f1c9a";

#[tokio::test]
async fn an_address_others_can_reach_needs_a_token() {
    let home = Home::with_notes(1);
    for listen in ["0.0.0.0:0", "[::]:0"] {
        home.run(&["serve", "--listen", listen]).ends(2).says(&["TRUEUP_TOKEN"]);
    }
    home.run(&["serve", "--listen", "nonsense"]).ends(2).says(&["HOST:PORT"]);
}

#[tokio::test]
async fn with_a_token_it_is_asked_for_on_loopback_too() {
    let home = Home::with_notes(1);
    let serving = Serving::with(&home, &[], &[("TRUEUP_TOKEN", TOKEN)]).await;
    for path in ["/", "/api/pipelines", "/metrics", "/api/openapi.json", "/nowhere", "/__scheduled?cron=*"] {
        let got = serving.get(path).await.refused(401, "unauthorized");
        assert_eq!(got.headers["www-authenticate"], "Bearer");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(serving.get(path).await.is(200).json(), json!({ "ok": true }));
    }
    let bearer = format!("Bearer {TOKEN}");
    serving.ask("GET", "/api/pipelines", &[("authorization", &bearer)], None).await.is(200);
    let cross = [("authorization", bearer.as_str()), ("sec-fetch-site", "cross-site")];
    serving.ask("POST", "/api/pipelines/notes/run", &cross, None).await.is(200);
    let wrong = [("authorization", "Bearer canary-token-5f1c9b")];
    serving.ask("GET", "/api/pipelines", &wrong, None).await.refused(401, "unauthorized");
}

/// Everybody would be kept out, and nobody would see why.
#[tokio::test]
async fn a_token_that_nobody_can_show_is_refused() {
    let home = Home::with_notes(1);
    for token in [" ", " padded", "padded ", "naïve", "a\tb"] {
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
        let ran = Ran::of(command.env("TRUEUP_TOKEN", token).output().unwrap());
        ran.ends(2).says(&["TRUEUP_TOKEN has blanks"]);
    }
}

#[tokio::test]
async fn guessing_tokens_is_slow() {
    let home = Home::with_notes(1);
    let serving = Serving::with(&home, &[], &[("TRUEUP_TOKEN", TOKEN)]).await;
    let mut last = 0;
    for _ in 0..60 {
        last = serving.get("/api/pipelines").await.status;
        if last == 429 {
            break;
        }
    }
    assert_eq!(last, 429);
    let bearer = format!("Bearer {TOKEN}");
    serving.ask("GET", "/api/pipelines", &[("authorization", &bearer)], None).await.is(200);
}

#[tokio::test]
async fn without_a_token_other_sites_can_neither_write_nor_rename_themselves() {
    let home = Home::with_notes(1);
    let serving = Serving::of(&home).await;
    let write = "/api/pipelines/notes/run";
    for (name, value) in
        [("sec-fetch-site", "cross-site"), ("origin", "http://evil.example"), ("origin", "null")]
    {
        serving.ask("POST", write, &[(name, value)], None).await.refused(403, "unauthorized");
    }
    serving
        .ask("GET", "/api/pipelines", &[("host", "evil.example")], None)
        .await
        .refused(403, "unauthorized");
    let own = format!("http://{}", serving.address);
    serving.ask("POST", write, &[("origin", &own)], None).await.is(200);
}

#[tokio::test]
async fn no_answer_and_no_line_holds_a_secret() {
    let hook = "http://127.0.0.1:9/hook-canary-77";
    let home = Home::new(&format!(
        "[stores]\nfar = \"postgres://user:pass-canary-11@127.0.0.1:9/app\"\n\
         cache = {{ url = \"cloudflare-kv://a/b\", token_env = \"CANARY\" }}\n\
         [pipelines.notes]\nfrom = {{ files = \"notes\" }}\ninto = \"sqlite:.trueup/r.db\"\n\
         then = {{ webhook = \"{hook}\", secret_env = \"CANARY\" }}\nnotify = {{ webhook = \"{hook}\" }}\n\
         [pipelines.far]\nfrom = {{ files = \"notes\" }}\ninto = \"far\"\n"
    ));
    home.write("notes/a.md", "a\n");
    let env = [("TRUEUP_TOKEN", TOKEN), ("CANARY", "env-canary-33")];
    let serving = Serving::with(&home, &["--log-format", "json"], &env).await;
    let bearer = format!("Bearer {TOKEN}");
    let mut all = String::new();
    for (method, path) in [
        ("POST", "/api/pipelines/notes/run"),
        ("POST", "/api/pipelines/far/run"),
        ("POST", "/api/queue/work"),
        ("GET", "/api/pipelines"),
        ("GET", "/api/runs"),
        ("GET", "/api/queue"),
        ("GET", "/api/dead"),
        ("GET", "/api/stores"),
        ("GET", "/api/stores/far/keys"),
        ("GET", "/api/stores/cache/keys"),
        ("GET", "/api/why?key=a.md"),
        ("GET", "/metrics"),
        ("GET", "/api/openapi.json"),
    ] {
        let got = serving.ask(method, path, &[("authorization", &bearer)], None).await;
        all.push_str(&format!("{method} {path}: {} {:?} {}\n", got.status, got.headers, got.text));
    }
    all.push_str(&serving.said());
    assert!(all.contains("127.0.0.1:9"), "the hook was tried: {all}");
    for secret in [TOKEN, "pass-canary-11", "hook-canary-77", "env-canary-33"] {
        assert!(!all.contains(secret), "{secret} in:\n{all}");
    }
}

#[tokio::test]
async fn bodies_and_methods_have_limits() {
    let home = Home::with_notes(1);
    let serving = Serving::of(&home).await;
    let large = json!({ "only": "x".repeat(2 << 20) });
    serving.post("/api/pipelines/notes/run", Some(large)).await.refused(413, "config");
    let got = serving.ask("DELETE", "/api/pipelines/notes", &[], None).await.refused(405, "config");
    assert!(got.headers["allow"].to_str().unwrap().contains("GET"));
    serving.get("/api/nothing").await.refused(404, "not_found");
    serving.get("/api/pipelines/note").await.refused(404, "not_found");
    serving.get("/api/runs?limit=0").await.refused(400, "config");
    serving.get("/api/runs?limit=many").await.refused(400, "config");
    serving.get("/api/stores/%FF/keys").await.refused(400, "config");
    serving.post("/api/pipelines/notes/run", Some(json!({ "fool": true }))).await.refused(400, "config");
}
