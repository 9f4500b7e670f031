//! Reading and converting 10,000 articles, beside `fast-xml-parser` and `turndown` under Node on the same files in
//! the same run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Bench, Group, Job, Outcome, timed};
use trueup::shape::article::html::{Links, to_markdown};
use trueup::source::rss::{feed, item};

const SNIPPETS: &str = include_str!("../tests/fixtures/turndown/snippets.txt");
const FEEDS: usize = 100;
const PER_FEED: usize = 100;
/// Each side is measured this often; the best counts, for both.
const ROUNDS: usize = 3;

pub const JOBS: &[Job] = &[("convert", convert)];

pub const GROUPS: &[Group] = &[("convert", against_node)];

/// One thread each, as Node has one.
fn against_node(bench: &mut Bench) -> Outcome<()> {
    let folder = Bench::folder()?;
    let feeds = bench.size(FEEDS, 5);
    write_feeds(folder.path(), feeds)?;
    let ours = Bench::best(ROUNDS, || Bench::job("convert", folder.path(), feeds))?;
    let theirs = node(folder.path())?;
    let name = format!("{} articles read and converted, one thread, against Node", feeds * PER_FEED);
    bench.at_least(&name, theirs / ours.seconds, 20.0, "×");
    Ok(())
}

fn convert(folder: &Path, feeds: usize) -> Outcome<Duration> {
    let mut markdown = 0;
    let ((), took) = timed(|| {
        for at in 0..feeds {
            let xml = std::fs::read_to_string(file(folder, at))?;
            for article in item::articles(feed::read(&xml)?, "25", item::Ids::Board) {
                let article = article.map_err(|bad| format!("{bad:?}"))?;
                markdown += to_markdown(&article.html, &Links::relative_to(&article.link))?.len();
            }
        }
        Outcome::Ok(())
    })?;
    if markdown == 0 { Err("no Markdown came out".into()) } else { Ok(took) }
}

fn file(folder: &Path, at: usize) -> PathBuf {
    folder.join(format!("{at:03}.xml"))
}

/// Articles as boards have them: a dozen pieces of the comparison's own snippets each.
fn write_feeds(folder: &Path, feeds: usize) -> Outcome<()> {
    let snippets: Vec<&str> =
        SNIPPETS.split("%%% ").skip(1).filter_map(|part| Some(part.split_once('\n')?.1)).collect();
    let fit = |text: &&&str| {
        !text.contains("]]>") && !text.contains("<!") && text.len() > 30 && text.contains("</")
    };
    let snippets: Vec<&str> = snippets.iter().filter(fit).copied().collect();
    let one = |n: usize| {
        let html: String = (0..12).map(|k| snippets[(n * 7 + k * 13) % snippets.len()]).collect();
        format!(
            "<item><title><![CDATA[공지 {n}]]></title><link><![CDATA[https://b.example/v.do?nttNo={n}]]></link>\
             <pubDate><![CDATA[2025-10-16]]></pubDate><department><![CDATA[교무과]]></department>\
             <description><![CDATA[{html}]]></description></item>\n"
        )
    };
    for at in 0..feeds {
        let items: String = (0..PER_FEED).map(|n| one(at * PER_FEED + n)).collect();
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<rss version=\"2.0\"><channel><title>b</title>{items}</channel></rss>"
        );
        std::fs::write(file(folder, at), xml)?;
    }
    Ok(())
}

const SCRIPT: &str = r"
const { readFileSync, readdirSync } = require('fs');
const { XMLParser } = require('fast-xml-parser');
const Turndown = require('turndown');
const folder = process.argv[2], rounds = Number(process.argv[3]);
const files = readdirSync(folder).filter((f) => f.endsWith('.xml')).map((f) => folder + '/' + f);
const parser = new XMLParser({ ignoreAttributes: true, trimValues: true });
const turndown = new Turndown({ headingStyle: 'atx', codeBlockStyle: 'fenced', emDelimiter: '*' });
turndown.remove(['script', 'style', 'noscript']);
let best = Infinity, size = 0;
for (let round = 0; round < rounds; round++) {
  const start = performance.now();
  size = 0;
  for (const file of files)
    for (const item of parser.parse(readFileSync(file, 'utf8')).rss.channel.item)
      size += turndown.turndown(item.description).length;
  best = Math.min(best, performance.now() - start);
}
console.log(best / 1000);
";

/// Seconds, the best of the same number of rounds.
fn node(folder: &Path) -> Outcome<f64> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/node");
    if !home.join("node_modules/turndown").exists() {
        return Err("npm install --prefix target/node turndown@7.2 fast-xml-parser@5".into());
    }
    let script = home.join("bench-archive.cjs");
    std::fs::write(&script, SCRIPT)?;
    let output = Command::new("node").arg(&script).arg(folder).arg(ROUNDS.to_string()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim()
        .parse()
        .map_err(|_| format!("node said {said}{}", String::from_utf8_lossy(&output.stderr)).into())
}
