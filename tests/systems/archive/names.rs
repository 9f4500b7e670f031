//! What articles are called: ids and keys that several claim.

use super::desk::{Desk, counts, feed, item};
use crate::support::http::Reply;

/// An item of an ordinary feed, without a guid.
fn plain(title: &str, day: u8) -> String {
    format!(
        "<item><title>{title}</title><link>https://n.example/</link><pubDate>2025-10-{day}</pubDate>\
         <description>about {title}</description></item>"
    )
}

#[tokio::test]
async fn of_items_that_share_an_id_the_first_counts_and_the_others_are_told() {
    let mut desk = Desk::serving(feed(&[plain("one", 13), plain("two", 12), plain("three", 11)].concat()));
    desk.whole_from = Some(format!("rss = \"{}\"", desk.server.url("/feed")));
    for added in [1, 0] {
        let report = desk.sync().await;
        assert_eq!(counts(&report), (added, 0, 1 - added, 0, 2, 0), "{report:?}");
        assert_eq!((report.status.name(), report.exit_code(), report.warnings.len()), ("partial", 3, 0));
        let said = |title: &str| report.errors.iter().any(|error| error.message.contains(title));
        assert!(said("«two»") && said("«three»") && said("«one»"), "{:?}", report.errors);
    }
    let files = desk.files().await;
    assert_eq!(files.len(), 1);
    assert!(files.values().all(|file| file.contains("about one")), "{files:?}");

    let mut desk =
        Desk::serving(feed(&[item("1", "2025-10-16", "first"), item("1", "2025-10-16", "second")].concat()));
    desk.shape = "on_edit = \"update\"";
    assert_eq!(counts(&desk.sync().await), (1, 0, 0, 0, 1, 0));
    assert!(desk.files().await["rss/25/2025_10_16_1.md"].contains("first"));
}

#[tokio::test]
async fn the_very_same_item_twice_is_one() {
    let twice = item("1", "2025-10-16", "x").repeat(2);
    let desk = Desk::serving(feed(&(twice + &item("2", "2025-10-16", "y"))));
    let report = desk.sync().await;
    assert_eq!((counts(&report), report.exit_code()), ((2, 0, 0, 0, 0, 0), 0), "{report:?}");
    assert!(report.warnings.iter().any(|text| text.contains("has 1 twice")), "{:?}", report.warnings);
}

#[tokio::test]
async fn a_bad_item_does_not_hide_a_good_one_of_the_same_id() {
    let items = [item("7", "soon, we hope", "bad"), item("7", "2025-10-16", "good")];
    for items in [items.concat(), [items[1].as_str(), &items[0]].concat()] {
        let desk = Desk::serving(feed(&items));
        let report = desk.sync().await;
        assert_eq!((counts(&report), report.exit_code()), ((1, 0, 0, 0, 1, 0), 3), "{report:?}");
        assert!(report.errors[0].message.contains("is not a date"), "{:?}", report.errors);
        assert!(desk.files().await["rss/25/2025_10_16_7.md"].contains("good"));
        desk.server.answer(|_| Reply::ok(feed(&item("7", "2025-10-16", "good"))));
        assert_eq!(counts(&desk.sync().await), (0, 0, 1, 0, 0, 0));
    }
}
