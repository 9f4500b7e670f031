//! Whatever a feed holds: no panic, no hang, no growth without bound. Random soups here, and a corpus of the worst.

use proptest::collection::vec;
use proptest::prelude::*;
use trueup::shape::article::html::{Links, to_markdown};

use super::desk::{SAMPLE, SAMPLE_ESCAPED};

const SNIPPETS: &str = include_str!("../../fixtures/turndown/snippets.txt");
const CORPUS: &str = include_str!("../../fixtures/archive/hostile.txt");

#[path = "../../../fuzz/checks.rs"]
mod checks;

use checks::{convert, survive};

#[rustfmt::skip] // a list of words, not of lines
const XML: [&str; 52] = [
    "<rss>", "</rss>", "<channel>", "</channel>", "<item>", "</item>", "<title>", "</title>", "<link>",
    "</link>", "<pubDate>2025-10-16</pubDate>", "<pubDate>", "<description>", "</description>", "<![CDATA[",
    "]]>", "&amp;", "&lt;", "&#x41;", "&#xD800;", "&foo;", "&", "<", ">", "<!--", "-->", "<?pi ?>",
    "<!DOCTYPE rss>", "<feed>", "</feed>", "<entry>", "</entry>", "<content type='xhtml'>", "</content>",
    "<br/>", "<a:b c='d'>", "</a:b>", "<filename1>", "</filename1>", "<url99999999999>",
    "https://x/?nttNo=1", "텍스트", "\u{0}", "\u{feff}", " ", "\n", "<enclosure url='x'/>", "<guid>",
    "</guid>", "<id>", "</id>", "<link href='h' rel='enclosure'/>",
];

fn xml_soup() -> impl Strategy<Value = String> {
    vec(prop::sample::select(&XML[..]), 0..60).prop_map(|pieces| pieces.concat())
}

#[rustfmt::skip] // a list of words, not of lines
const HTML: [&str; 74] = [
    "<p>", "</p>", "<b>", "</b>", "<i>", "</i>", "<ul>", "</ul>", "<ol start=\"-7\">", "</ol>", "<li>",
    "</li>", "<table>", "</table>", "<tr>", "<td colspan=9>", "<th rowspan=3>", "</td>", "<thead>",
    "<caption>", "<pre>", "</pre>", "<code>", "</code>", "<blockquote>", "</blockquote>", "<h1>", "</h1>",
    "<br>", "<hr>", "<img src=x>", "<a href='../y z'>", "</a>", "<script>", "</script>", "<style>",
    "<noscript>", "<template>", "</template>", "<svg>", "<math>", "<select>", "<option>", "<form>",
    "<frameset>", "<body>", "<html>", "</html>", "<plaintext>", "<textarea>", "<title>", "&nbsp;", "&lt;",
    "&", "<!-- ", "-->", "<![CDATA[", "`", "```\n", "*", "_", "|", "글", " ", "\n", "\t", "1. ", "- ",
    "\u{0}", "\u{3000}", "<x-archive-root>", "</x-archive-root>", "<", "</",
];

fn html_soup() -> impl Strategy<Value = String> {
    vec(prop::sample::select(&HTML[..]), 0..80).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_soup_of_xml_is_read_or_refused(xml in xml_soup()) {
        survive(&xml);
        survive(&format!("<rss><channel>{xml}</channel></rss>"));
        survive(&format!("<rss><channel><item>{xml}</item></channel></rss>"));
    }

    #[test]
    fn a_feed_with_bytes_changed_is_read_or_refused(
        escaped: bool, cut in 0_usize..4_000, changes in vec((0_usize..4_000, any::<char>()), 0..8),
    ) {
        let mut chars: Vec<char> = if escaped { SAMPLE_ESCAPED } else { SAMPLE }.chars().collect();
        for (at, c) in changes {
            let at = at % chars.len();
            chars[at] = c;
        }
        survive(&chars.iter().collect::<String>());
        chars.truncate(cut);
        survive(&chars.iter().collect::<String>());
    }

    #[test]
    fn any_soup_of_html_is_converted_or_refused(html in html_soup()) {
        convert(&html);
    }

    #[test]
    fn any_text_is_converted_or_refused(html in ".{0,200}") {
        convert(&html);
        survive(&html);
    }
}

#[test]
fn the_corpus_is_survived() {
    for part in CORPUS.split("%%%\n").chain(SNIPPETS.split("%%% ")) {
        convert(part);
        survive(part);
    }
}

#[test]
fn depth_and_width_end_somewhere() {
    const TIMES: usize = 40_000;
    let unclosed = [
        "<div>",
        "<b>",
        "<ul><li>",
        "<blockquote>x",
        "<table><tr><td>",
        "<font color=a>",
        "<p><i>",
        "<a href=x>",
    ];
    for tag in unclosed {
        convert(&tag.repeat(TIMES));
        convert(&format!("{}x{}", tag.repeat(1_000), "</div></b></li></p>".repeat(1_000)));
    }
    let formatting: String = (0..200).map(|n| format!("<b class=c{n}>")).collect();
    let unfolding = format!("<p>{formatting}{}", "<p>x".repeat(20_000));
    let refused = to_markdown(&unfolding, &Links::relative_to("")).err();
    assert!(refused.is_some_and(|error| error.to_string().contains("unfolds")));
    let lines = "x<br>".repeat(20_000);
    convert(&format!("{}{lines}", "<ul><li>".repeat(100)));
    survive(&"<a>".repeat(TIMES));
    survive(&format!("<rss><channel>{}", "<item>".repeat(TIMES)));
}
