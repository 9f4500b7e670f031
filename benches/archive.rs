//! Reading and converting 10,000 articles, beside `fast-xml-parser` and `turndown` under Node on the same files in
//! the same run. Prints ratios; docs/benchmarks-archive.md says how to run it.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a program for people

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use trueup::shape::article::html::{Links, to_markdown};
use trueup::source::rss::{feed, item};

const SNIPPETS: &str = include_str!("../tests/fixtures/turndown/snippets.txt");
const FEEDS: usize = 100;
const PER_FEED: usize = 100;
/// Each side is measured this often; the best counts, for both.
const ROUNDS: usize = 3;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-archive");
    let files = write_feeds(&folder);
    let bytes: u64 = files.iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
    println!("{} articles in {FEEDS} feeds, {:.1} MB", FEEDS * PER_FEED, bytes as f64 / 1e6);
    let ours = (0..ROUNDS).map(|_| one_round(&files)).min_by_key(|(time, _)| *time).unwrap();
    println!("trueup          {:>8.0} ms   {} MB of Markdown", ms(ours.0), ours.1 / 1_000_000);
    match node(&folder) {
        Ok(theirs) => {
            println!(
                "Node            {theirs:>8.0} ms   fast-xml-parser + turndown, one thread, best of {ROUNDS}"
            );
            println!("ratio           {:>8.1} ×", theirs / ms(ours.0));
        }
        Err(why) => println!("Node was not measured: {why}"),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// One thread, as Node has one.
fn one_round(files: &[PathBuf]) -> (Duration, usize) {
    let start = Instant::now();
    let mut markdown = 0;
    for file in files {
        let xml = std::fs::read_to_string(file).unwrap();
        for article in item::articles(feed::read(&xml).unwrap(), "25", item::Ids::Board) {
            let article = article.unwrap();
            markdown += to_markdown(&article.html, &Links::relative_to(&article.link)).unwrap().len();
        }
    }
    (start.elapsed(), markdown)
}

/// Articles as boards have them: a dozen pieces of the comparison's own snippets each.
fn write_feeds(folder: &Path) -> Vec<PathBuf> {
    let snippets: Vec<&str> =
        SNIPPETS.split("%%% ").skip(1).filter_map(|part| Some(part.split_once('\n')?.1)).collect();
    let fit = |text: &&&str| {
        !text.contains("]]>") && !text.contains("<!") && text.len() > 30 && text.contains("</")
    };
    let snippets: Vec<&str> = snippets.iter().filter(fit).copied().collect();
    std::fs::create_dir_all(folder).unwrap();
    let one = |n: usize| {
        let html: String = (0..12).map(|k| snippets[(n * 7 + k * 13) % snippets.len()]).collect();
        format!(
            "<item><title><![CDATA[공지 {n}]]></title><link><![CDATA[https://b.example/v.do?nttNo={n}]]></link>\
             <pubDate><![CDATA[2025-10-16]]></pubDate><department><![CDATA[교무과]]></department>\
             <description><![CDATA[{html}]]></description></item>\n"
        )
    };
    let file = |at: usize| {
        let items: String = (0..PER_FEED).map(|n| one(at * PER_FEED + n)).collect();
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<rss version=\"2.0\"><channel><title>b</title>{items}</channel></rss>"
        );
        let path = folder.join(format!("{at:03}.xml"));
        std::fs::write(&path, xml).unwrap();
        path
    };
    (0..FEEDS).map(file).collect()
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
console.log(best);
";

fn node(folder: &Path) -> Result<f64, String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/node");
    if !home.join("node_modules/turndown").exists() {
        return Err("npm install --prefix target/node turndown@7.2 fast-xml-parser@5".into());
    }
    let script = home.join("bench-archive.cjs");
    std::fs::write(&script, SCRIPT).map_err(|error| error.to_string())?;
    let output = Command::new("node").arg(&script).arg(folder).arg(ROUNDS.to_string()).output();
    let output = output.map_err(|error| format!("node: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().map_err(|_| format!("node said {said}{}", String::from_utf8_lossy(&output.stderr)))
}
