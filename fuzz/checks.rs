//! What must hold for any input at all: no panic, no hang, no growth without bound. The fuzz targets look for inputs
//! that break it; the tests try committed ones and random soups on every run.

use trueup::shape::article::html::{Links, to_markdown};
use trueup::source::rss::{feed, item};

/// Everything that can be done with a document, whatever it is.
pub fn survive(xml: &str) {
    if let Ok(feed) = feed::read(xml) {
        let (bytes, items) = (xml.len(), feed.items.len());
        assert!(items <= bytes);
        for article in item::articles(feed, "25", item::Ids::Feed).articles.into_iter().flatten() {
            assert!(article.id.len() <= 100 && !article.id.contains('/') && !article.id.is_empty());
            let json = article.to_json().unwrap();
            assert!(json.len() <= 8 * bytes + 1_000);
        }
    }
}

pub fn convert(html: &str) {
    if let Ok(markdown) = to_markdown(html, &Links::relative_to("https://b.example/a/b?c=d")) {
        // Marks and resolved links add to each tag, indentation to each line of each level.
        let levels = 1 + html.matches('<').count();
        assert!(markdown.len() <= 64 + html.len() * 16 * levels, "{html}");
        assert!(!markdown.ends_with('\n') && !markdown.starts_with('\n'));
    }
}
