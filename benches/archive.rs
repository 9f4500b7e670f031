//! Reading and converting 10,000 articles, beside `fast-xml-parser` and `turndown` under Node on the same files in
//! the same run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{Bench, Group, Job, Measured, Outcome, timed, web};
use trueup::pipeline::cores;
use trueup::shape::article::Article;
use trueup::shape::article::html::{Links, to_markdown};
use trueup::source::rss::{feed, item};

const SNIPPETS: &str = include_str!("../tests/fixtures/turndown/snippets.txt");
const FEEDS: usize = 100;
const PER_FEED: usize = 100;
/// Each side is measured this often; the best counts, for both.
const ROUNDS: usize = 3;

pub const JOBS: &[Job] = &[("convert", convert), ("convert-on-cores", convert_on_cores)];

pub const GROUPS: &[Group] = &[("convert", against_node), ("boards", boards)];

/// On one thread, as Node has one; and on every core, as a sync renders.
fn against_node(bench: &mut Bench) -> Outcome<()> {
    let folder = Bench::folder()?;
    let feeds = bench.size(FEEDS, 5);
    write_feeds(folder.path(), feeds)?;
    let one = Bench::best(ROUNDS, || Bench::job("convert", folder.path(), feeds))?;
    let all = Bench::best(ROUNDS, || Bench::job("convert-on-cores", folder.path(), feeds))?;
    let theirs = node(folder.path())?;
    let name = format!("{} articles read and converted, against Node", feeds * PER_FEED);
    bench.at_least(&name, theirs / all.seconds, 20.0, "×");
    bench.noted(&format!("{name}, on one thread"), &format!("{:.1} ×", theirs / one.seconds));
    Ok(())
}

fn convert(folder: &Path, feeds: usize) -> Outcome<Duration> {
    convert_by(folder, feeds, |files, work| files.into_iter().map(work).collect())
}

fn convert_on_cores(folder: &Path, feeds: usize) -> Outcome<Duration> {
    convert_by(folder, feeds, |files, work| cores::map(files, usize::MAX, work))
}

fn convert_by(
    folder: &Path,
    feeds: usize,
    each: impl FnOnce(Vec<PathBuf>, fn(PathBuf) -> usize) -> Vec<usize>,
) -> Outcome<Duration> {
    let files = (0..feeds).map(|at| file(folder, at)).collect();
    let (markdown, took) = timed(|| Outcome::Ok(each(files, markdown_of)))?;
    if markdown.contains(&0) { Err("no Markdown came out".into()) } else { Ok(took) }
}

fn markdown_of(file: PathBuf) -> usize {
    let xml = std::fs::read_to_string(file).unwrap();
    let markdown = |article: Result<Article, _>| {
        let article = article.unwrap_or_else(|bad: item::BadItem| panic!("{bad:?}"));
        to_markdown(&article.html, &Links::relative_to(&article.link)).unwrap().len()
    };
    item::articles(feed::read(&xml).unwrap(), "25", item::Ids::Board).articles.into_iter().map(markdown).sum()
}

/// The program from start to end, feeds served from memory: what is left is the network's.
fn boards(bench: &mut Bench) -> Outcome<()> {
    let made = Bench::folder()?;
    write_feeds(made.path(), 1)?;
    let whole = std::fs::read_to_string(file(made.path(), 0))?;
    let items: Vec<&str> = whole.split_inclusive("</item>").take(5).collect();
    let short: Arc<str> = format!("{}</channel></rss>", items.concat()).into();
    let whole: Arc<str> = whole.into();
    let (few, many) = (bench.size(6, 2), bench.size(150, 10));
    let page =
        move |path: &str| Some(if path.starts_with("/short/") { short.clone() } else { whole.clone() });
    let address = web::serve(page)?;
    let archive = Bench::best(ROUNDS, || sync_boards(&address, "short", few))?;
    bench.at_most(&format!("{few} boards of 5 articles, the whole program"), archive.seconds, 10.0, "s");
    let archive = sync_boards(&address, "whole", many)?;
    let name = format!("{many} boards of {PER_FEED} articles");
    bench.noted(&format!("{name}, the whole program"), &format!("{:.2} s", archive.seconds));
    bench.noted(&format!("{name}: memory"), &format!("{:.0} MB", archive.peak_mb));
    let larger = sync_boards(&address, "whole", 4 * many)?;
    let growth = larger.peak_mb / archive.peak_mb;
    bench.at_most(&format!("memory of {} boards, against {many}", 4 * many), growth, 1.3, "×");
    Ok(())
}

fn sync_boards(address: &str, kind: &str, boards: usize) -> Outcome<Measured> {
    let folder = Bench::folder()?;
    let list: Vec<String> = (0..boards).map(|board| board.to_string()).collect();
    let config = format!(
        "[pipelines.boards]\nfrom = {{ rss = \"{address}/{kind}/{{board}}\", boards = \"{}\" }}\nas = \"article\"\ninto = \"file:articles\"\n",
        list.join(",")
    );
    std::fs::write(folder.path().join("trueup.toml"), config)?;
    Bench::weighed(Path::new(env!("CARGO_BIN_EXE_trueup")), &["sync"], folder.path())
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
