//! The demo's chapter on boards: feeds become files, and a board that is down is not an empty board.

use super::loopback::Pages;
use super::{Step, Story};
use crate::error::{Result, from_io};

const XML: &str = "application/rss+xml; charset=utf-8";
const SAVED: &str = "articles/rss/25/2026_11_02_1002.md";

struct Article {
    id: u32,
    day: u32,
    title: &'static str,
    html: &'static str,
}

const ARTICLES: [Article; 3] = [
    Article {
        id: 1001,
        day: 1,
        title: "Library closed on Monday",
        html: "<p>The library is closed on <b>Monday</b>.</p>",
    },
    Article {
        id: 1002,
        day: 2,
        title: "Scholarships: how to apply",
        html: "<p>Until the end of the month:</p><ul><li>the form</li><li>a letter</li></ul>",
    },
    Article {
        id: 1003,
        day: 3,
        title: "New opening hours",
        html: "<table><tr><th>Day</th><th>Open</th></tr><tr><td>Friday</td><td>9–17</td></tr></table>",
    },
];

fn feed(articles: &[Article]) -> String {
    let item = |article: &Article| {
        let Article { id, day, title, html } = article;
        format!(
            "<item><title><![CDATA[{title}]]></title><link>https://board.example/view.do?nttNo={id}</link>\
             <pubDate>2026-11-{day:02}</pubDate><description><![CDATA[{html}]]></description></item>"
        )
    };
    let items: String = articles.iter().map(item).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><rss version=\"2.0\"><channel><title>Notices</title>\
         <link>https://board.example/</link><description>What everybody should know</description>{items}</channel></rss>"
    )
}

impl Story<'_> {
    pub(super) async fn archive(&mut self) -> Result<()> {
        let boards = Pages::default();
        for board in ["board/25", "board/26"] {
            boards.put(board, XML, feed(&ARTICLES[..2]));
        }
        let address = boards.serve().await?;
        let config = format!(
            "[pipelines.boards]\nfrom = {{ rss = \"{address}/board/{{board}}\", boards = \"25,26\" }}\n\
             as   = \"article\"\ninto = \"file:articles\"\n"
        );
        self.write("archive.toml", &config)?;
        self.with_config("archive.toml", async |story| story.boards(&boards).await).await
    }

    async fn boards(&mut self, boards: &Pages) -> Result<()> {
        self.say(
            "Another system: boards with feeds (a server inside this demo). Articles become Markdown files.",
        );
        self.step("sync", 0, Step::Sync).await?;
        let path = self.folder.join(SAVED);
        let text = std::fs::read_to_string(&path).map_err(|error| from_io(error, "reading an article"))?;
        self.show(&format!("$ cat {SAVED}"), &text);
        boards.put("board/25", XML, feed(&ARTICLES));
        boards.put("board/26", "text/html", "<html><body>Back soon!</body></html>".to_owned());
        self.say(
            "One board has something new; the other shows a maintenance page, with status 200. What is new is saved; \
             the other board is reported, and nothing of it is taken for gone.",
        );
        self.step("sync", 3, Step::Sync).await
    }
}
