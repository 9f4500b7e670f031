//! The demo's last chapter: a page, a policy, and a model that is none.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Step, Story};
use crate::cli::page::Verb;
use crate::error::{Result, from_io};

/// What the demo asks is small; more is not from it.
const QUESTION_BYTES_MAX: usize = 1 << 20;

const AGREEMENT: &str = "# Agreement\n\nThe candidate is supervised by one professor.\n";
const POLICY: &str = "# Policy on supervision\n\nEvery doctoral candidate has at least two supervisors employed by the university.\n";

impl Story<'_> {
    /// Policies of a page: read, translated, compared; and what happens when one changes.
    pub(super) async fn workspace(&mut self) -> Result<()> {
        let model = stand_in().await.map_err(|error| from_io(error, "starting the stand-in for a model"))?;
        let config = format!(
            "[workspaces.agreements]\npages = {{ folder = \"pages\" }}\ninto = \"sqlite:.trueup/agreements.db\"\n\
             llm = {{ url = \"{model}\", model = \"stand-in\" }}\nreanalyze = \"mark\"\n"
        );
        self.write("workspace.toml", &config)?;
        self.write("pages/anna/page.md", AGREEMENT)?;
        self.write("pages/anna/supervision.md", POLICY)?;
        let before = std::mem::replace(&mut self.desk.config, self.folder.join("workspace.toml"));
        let told = self.afternoon().await;
        self.desk.config = before;
        told
    }

    async fn afternoon(&mut self) -> Result<()> {
        let anna = || "anna".to_owned();
        self.say(
            "Another system: pages with policies. The model here is a STAND-IN inside this demo, which only pretends \
             to translate and to think.",
        );
        let policy =
            || Verb::Policy { page: anna(), source: "supervision.md".into(), language: Some("fr".into()) };
        self.step("page policy anna supervision.md --language fr", 0, Step::Page(policy())).await?;
        self.step("page policies anna", 0, Step::Page(Verb::Policies { page: anna() })).await?;
        self.step("page analyze anna", 0, Step::Page(Verb::Analyze { page: anna() })).await?;
        self.say("The policy changes: its copies go, and the page says that its analysis is stale.");
        self.write("pages/anna/supervision.md", &format!("{POLICY}\nThey meet four times a year.\n"))?;
        self.step("page policies anna", 0, Step::Page(Verb::Policies { page: anna() })).await
    }
}

/// A server on loopback that speaks as a model's would. Its address.
async fn stand_in() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that hangs up is no matter here.
            drop(answer(stream).await);
        }
    });
    Ok(format!("http://{address}/v1"))
}

async fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0).min(QUESTION_BYTES_MAX);
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let content = pretend(&serde_json::from_slice(&body).unwrap_or_default()).to_string();
    let answer =
        json!({ "choices": [{ "finish_reason": "stop", "message": { "content": content } }] }).to_string();
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", answer.len());
    stream.write_all(format!("{head}{answer}").as_bytes()).await?;
    stream.flush().await
}

fn pretend(question: &Value) -> Value {
    match question["response_format"]["json_schema"]["name"].as_str() {
        Some("translation") => json!({
            "title": "supervision.md (stand-in)",
            "content": "# Règlement sur l'encadrement\n\n*(Traduit par la doublure de la démonstration.)* Chaque \
                        doctorant a au moins deux directeurs employés par l'université.",
        }),
        _ => json!({ "issues": [{
            "title": "One supervisor where the policy asks for two",
            "severity": 2,
            "description": [
                "The stand-in of the demo says:",
                { "source": "agreement", "excerpt": "The candidate is supervised by one professor." },
                { "source": "supervision.md", "excerpt": "at least two supervisors" },
            ],
        }] }),
    }
}
