//! What the pages promise without a browser: escaped, small, and without a secret.

use super::rig::{Got, Serving};
use crate::cli::home::Home;

const HTML: [(&str, &str); 1] = [("accept", "text/html")];

async fn page(serving: &Serving, path: &str) -> Got {
    serving.ask("GET", path, &HTML, None).await
}

#[tokio::test]
async fn what_sources_say_is_escaped_and_nothing_foreign_runs() {
    let home = Home::with_notes(1);
    home.write("notes/<img src=x onerror=alert(1)>.md", "<script>alert(2)</script>\n");
    let serving = Serving::of(&home).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    let key = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E.md";
    for path in [
        "/".to_owned(),
        "/stores/registry".to_owned(),
        format!("/stores/registry?key={key}"),
        format!("/why?key={key}"),
        "/why?key=%22%3E%3Cscript%3Ealert(3)%3C/script%3E".to_owned(),
        "/pipelines/%3Cscript%3E".to_owned(),
        "/stores/registry?prefix=%22%3E%3Cscript%3E".to_owned(),
        "/nowhere/%3Cscript%3E".to_owned(),
    ] {
        let got = page(&serving, &path).await;
        assert!(got.text.contains("</html>"), "{path}: {}", got.text);
        assert!(!got.text.contains("<img src=x") && !got.text.contains("<script>"), "{path}: {}", got.text);
        let policy = got.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
    }
}

#[tokio::test]
async fn errors_are_pages_for_people_and_json_for_programs() {
    let home = Home::with_notes(1);
    let serving = Serving::of(&home).await;
    let got = page(&serving, "/pipelines/note").await.is(404);
    assert!(
        got.text.contains("Not found") && got.text.contains("Pipelines in the config: notes"),
        "{}",
        got.text
    );
    serving.get("/pipelines/note").await.refused(404, "not_found");
    serving.get("/nowhere").await.refused(404, "not_found");
    assert!(page(&serving, "/nowhere").await.is(404).text.contains("</html>"));
    serving.ask("GET", "/api/pipelines/note", &HTML, None).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_session_is_a_strict_cookie_and_other_sites_cannot_use_it() {
    let home = Home::with_notes(1);
    let serving = Serving::with(&home, &[], &[("TRUEUP_TOKEN", "canary-long-token")]).await;
    let client =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let url = |path: &str| format!("http://{}{path}", serving.address);
    let asked = client.get(url("/queue")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(
        (asked.status().as_u16(), &asked.headers()["location"]),
        (303, &"/login?next=%2Fqueue".parse().unwrap())
    );
    let login = |origin: String| {
        client
            .post(url("/login"))
            .header("origin", origin)
            .body("token=canary-long-token&next=%2Fqueue")
            .send()
    };
    assert_eq!(login("http://evil.example".into()).await.unwrap().status(), 403);
    let entered = login(url("")).await.unwrap();
    assert_eq!(
        (entered.status().as_u16(), &entered.headers()["location"]),
        (303, &"/queue".parse().unwrap())
    );
    let cookie = entered.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains("canary"), "{cookie}");
    let session = cookie.split(';').next().unwrap();
    serving.ask("GET", "/queue", &[("cookie", session), HTML[0]], None).await.is(200);
    let run = "/api/pipelines/notes/run";
    let evil = [("cookie", session), ("sec-fetch-site", "cross-site")];
    serving.ask("POST", run, &evil, None).await.refused(403, "unauthorized");
    serving.ask("POST", run, &[("cookie", session), ("sec-fetch-site", "same-origin")], None).await.is(200);

    // Who logs out takes the cookie along, wherever a copy of it is; others stay.
    let other = login(url("")).await.unwrap().headers()["set-cookie"].to_str().unwrap().to_owned();
    let other = other.split(';').next().unwrap();
    let left = client.post(url("/logout")).header("cookie", session).send().await.unwrap();
    assert_eq!(left.status(), 303);
    serving.ask("GET", "/api/pipelines", &[("cookie", session)], None).await.refused(401, "unauthorized");
    serving.ask("GET", "/api/pipelines", &[("cookie", other)], None).await.is(200);
}

#[tokio::test]
async fn no_page_holds_a_secret() {
    let home = Home::new(
        "[stores]\nfar = \"postgres://user:pass-canary-11@127.0.0.1:9/app\"\n\
         [pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"sqlite:.trueup/r.db\"\n\
         then = { webhook = \"http://127.0.0.1:9/hook-canary-77\", secret_env = \"CANARY\" }\n\
         [pipelines.far]\nfrom = { files = \"notes\" }\ninto = \"far\"\n",
    );
    home.write("notes/a.md", "a\n");
    let serving = Serving::with(&home, &[], &[("CANARY", "env-canary-33")]).await;
    serving.post("/api/pipelines/notes/run", None).await.is(200);
    serving.post("/api/pipelines/far/run", None).await;
    for path in
        ["/", "/pipelines/notes", "/pipelines/far", "/stores", "/stores/far", "/queue", "/why?key=a.md"]
    {
        let got = page(&serving, path).await;
        assert!(got.text.contains("</html>"), "{path}");
        assert!(!got.text.contains("canary"), "{path}: {}", got.text);
    }
    let far = page(&serving, "/").await.text;
    assert!(far.contains("cannot start"), "a pipeline that cannot start is failing: {far}");
}

fn crowd(pipelines: usize) -> Home {
    let mut config = String::new();
    for number in 0..pipelines {
        config.push_str(&format!(
            "[pipelines.p{number:04}]\nfrom = {{ files = \"notes\" }}\ninto = \"memory:{number}\"\nwhen = \"0 16 * * *\"\n"
        ));
    }
    let home = Home::new(&config.replace("memory:", "sqlite:.trueup/s"));
    home.write("notes/a.md", "a\n");
    home
}

#[tokio::test]
async fn the_overview_of_a_thousand_pipelines_stays_small() {
    let many = crowd(1_000);
    // At an instant at which nothing is due.
    let many = Serving::with(&many, &["--now", "2026-01-10T12:00:00Z"], &[]).await;
    let got = page(&many, "/").await.is(200);
    let mut size = got.text.len();
    for asset in ["style.css", "script.js", "icon.svg"] {
        size += many.get(&format!("/assets/{asset}")).await.is(200).text.len();
    }
    assert!(size < 60 << 10, "{size} bytes");
    assert!(got.text.contains("page 1 of 20") && got.text.contains("never run"));
    assert!(page(&many, "/?page=20").await.text.contains("p0999"));
}

// ---- the palette ----

fn channel(hex: &str) -> f64 {
    let value = f64::from(u8::from_str_radix(hex, 16).unwrap()) / 255.0;
    if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
}

fn luminance(color: &str) -> f64 {
    0.2126 * channel(&color[1..3]) + 0.7152 * channel(&color[3..5]) + 0.0722 * channel(&color[5..7])
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_can_be_read_in_light_and_dark() {
    let style = trueup::server::pages::STYLE;
    let (light, dark) = style.split_once("prefers-color-scheme: dark").unwrap();
    let dark = dark.split_once("box-sizing").unwrap().0;
    let pairs = [
        ("text", "bg"),
        ("text", "surface"),
        ("text", "raised"),
        ("muted", "bg"),
        ("muted", "surface"),
        ("muted", "raised"),
        ("link", "bg"),
        ("link", "surface"),
        ("link", "raised"),
        ("good", "good-bg"),
        ("bad", "bad-bg"),
        ("held", "held-bg"),
        ("late", "late-bg"),
        ("idle", "idle-bg"),
        ("run", "run-bg"),
        ("good", "surface"),
        ("bad", "surface"),
        ("held", "surface"),
        ("late", "surface"),
        ("run", "surface"),
        ("on-primary", "primary"),
        ("on-danger", "danger"),
    ];
    for (name, palette) in [("light", light), ("dark", dark)] {
        let color = |of: &str| {
            let (_, rest) =
                palette.split_once(&format!("--{of}: #")).unwrap_or_else(|| panic!("no {of} in {name}"));
            format!("#{}", &rest[..6])
        };
        for (text, ground) in pairs {
            let ratio = contrast(&color(text), &color(ground));
            assert!(ratio >= 4.5, "{name}: {text} on {ground} is {ratio:.2}:1");
        }
    }
}
