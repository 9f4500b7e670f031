//! Feeds that are broken, strange or hostile.

use std::process::Stdio;

use serde_json::Value;

use super::desk::{Desk, SAMPLE, counts, feed, item};
use crate::support::http::Reply;
use crate::support::{trueup, until};

#[tokio::test]
async fn s10_of_a_truncated_feed_nothing_is_written() {
    let cut = &SAMPLE[..SAMPLE.rfind("</item>").unwrap()];
    let desk = Desk::serving(cut);
    let report = desk.sync().await;
    assert_eq!((report.status.name(), report.counts.unproven, report.exit_code()), ("failed", 1, 1));
    assert!(report.errors[0].message.contains("ends in the middle"), "{:?}", report.errors);
    assert!(desk.keys().await.is_empty());
}

#[tokio::test]
async fn s10_a_connection_that_breaks_off_writes_nothing_either() {
    let desk = Desk::new("25", |_| Reply::cut_short(SAMPLE));
    assert_eq!(desk.sync().await.status.name(), "failed");
    assert_eq!(desk.server.requests().len(), 4);
    assert!(desk.keys().await.is_empty());
}

#[tokio::test]
async fn s11_a_maintenance_page_is_no_feed() {
    let pages = [
        "<!DOCTYPE html><html><head><meta charset=utf-8><title>점검 중</title></head><body>잠시<br>후 다시</body></html>",
        "<html xmlns='http://www.w3.org/1999/xhtml'><body/></html>",
        "시스템 점검 중입니다.",
        "",
        "{\"error\": \"down\"}",
        "<rss version=\"2.0\"></rss>",
    ];
    for page in pages {
        let desk = Desk::serving(page);
        let report = desk.sync().await;
        assert_eq!(report.status.name(), "failed");
        assert!(report.errors[0].message.contains("missing rss or channel"), "{page}: {:?}", report.errors);
    }
}

#[tokio::test]
async fn an_empty_channel_is_a_feed() {
    let report = Desk::serving(feed("")).sync().await;
    assert_eq!((counts(&report), report.exit_code()), ((0, 0, 0, 0, 0, 0), 0));
}

#[tokio::test]
async fn s12_an_item_without_an_id_does_not_stop_its_siblings() {
    let nameless = item("1", "2025-10-16", "x").replace("nttNo=1", "page=1");
    let items = [item("2", "2025-10-16", "a"), nameless, item("3", "2025-10-16", "b")].concat();
    let desk = Desk::serving(feed(&items));
    let report = desk.sync().await;
    assert_eq!(counts(&report), (2, 0, 0, 0, 1, 0));
    assert_eq!((report.status.name(), report.exit_code()), ("partial", 3));
    assert_eq!(desk.keys().await, ["rss/25/2025_10_16_2.md", "rss/25/2025_10_16_3.md"]);
    let again = desk.sync().await;
    assert_eq!((counts(&again), again.exit_code()), ((0, 0, 2, 0, 1, 0), 3));
}

#[tokio::test]
async fn s13_the_id_is_the_parameter_of_exactly_that_name() {
    let items = "<item><title>a</title><link>https://b.example/v?a=1&amp;xnttNo=12&amp;nttNo=34</link>\
                 <pubDate>2025-10-16</pubDate></item>";
    let desk = Desk::serving(feed(items));
    desk.sync().await;
    assert_eq!(desk.keys().await, ["rss/25/2025_10_16_34.md"]);
}

#[tokio::test]
async fn s14_attachments_may_be_numbered_with_gaps() {
    let files = "<filename3>c.pdf</filename3><url3>https://b.example/3</url3>\
                 <filename1><![CDATA[-\u{a0} a.pdf]]></filename1><url1>https://b.example/1</url1>\
                 <preview7>https://b.example/p7</preview7><filename9>none.pdf</filename9>";
    let desk =
        Desk::serving(feed(&item("1", "2025-10-16", "x").replace("</item>", &format!("{files}</item>"))));
    desk.sync().await;
    let file = desk.files().await.into_values().next().unwrap();
    assert!(
        file.contains("**Download URLs:**\n- a.pdf: https://b.example/1\n- c.pdf: https://b.example/3\n\n"),
        "{file}"
    );
    assert!(file.contains("**Preview URLs:**\n- https://b.example/p7: https://b.example/p7\n\n"), "{file}");
}

#[tokio::test]
async fn s15_a_day_that_never_was_fails_its_item_alone() {
    let items = [item("1", "2025-10-16", "a"), item("2", "2025-02-30", "b"), item("3", "", "c")].concat();
    let desk = Desk::serving(feed(&items));
    let report = desk.sync().await;
    assert_eq!((counts(&report), report.exit_code()), ((1, 0, 0, 0, 2, 0), 3));
    let said = report.errors.iter().find(|fault| fault.key.as_deref() == Some("25/2")).unwrap();
    assert!(said.message.contains("2025-02-30"), "{}", said.message);
}

#[tokio::test]
async fn s24_a_feed_in_euc_kr_is_read_as_it_was_meant() {
    let xml = feed(&item("1", "2025-10-16", "<p>똠방각하 안내</p>"));
    let bytes = |xml: &str| encoding_rs::EUC_KR.encode(xml).0.into_owned();
    let declared = bytes(&xml.replace("UTF-8", "EUC-KR"));
    let said = bytes(xml.split_once("?>").unwrap().1);
    let desks = [
        Desk::serving(declared),
        Desk::new("25", move |_| Reply::ok(said.clone()).header("Content-Type", "text/xml; charset=CP949")),
    ];
    for desk in desks {
        assert_eq!(desk.sync().await.counts.added, 1);
        assert!(desk.files().await["rss/25/2025_10_16_1.md"].contains("\n똠방각하 안내\n"));
    }
}

#[tokio::test]
async fn text_in_no_encoding_is_refused() {
    let desk = Desk::serving(encoding_rs::EUC_KR.encode(&feed("")).0.into_owned());
    let report = desk.sync().await;
    assert!(report.errors[0].message.contains("not valid UTF-8"), "{:?}", report.errors);
}

#[tokio::test]
async fn s25_a_billion_laughs_are_refused_at_once() {
    let mut bomb = String::from("<?xml version=\"1.0\"?><!DOCTYPE rss [<!ENTITY a \"ha\">");
    for (name, of) in "bcdefghij".chars().zip("abcdefghi".chars()) {
        bomb.push_str(&format!("<!ENTITY {name} \"{}\">", format!("&{of};").repeat(10)));
    }
    bomb.push_str("]><rss><channel><title>&j;</title></channel></rss>");
    let desk = Desk::serving(bomb);
    let report = desk.sync().await;
    assert_eq!((report.status.name(), desk.server.requests().len()), ("failed", 1));
    assert!(desk.keys().await.is_empty());
}

#[tokio::test]
async fn s25_an_endless_body_is_given_up_at_the_limit() {
    let desk = Desk::new("25", |_| Reply::endless());
    let (said, peak) = weighed(&desk).await;
    let message = said["runs"][0]["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("larger than 16777216 bytes"), "{said}");
    assert_eq!(desk.server.requests().len(), 1);
    // What was sent beyond the limit is what sockets hold.
    assert!(desk.server.bytes_sent() < 40 << 20, "{}", desk.server.bytes_sent());
    assert!(peak > 0 && peak < 1 << 20, "{peak} KiB");
}

#[tokio::test]
async fn s25_a_body_that_announces_a_gigabyte_is_not_read_at_all() {
    let desk = Desk::new("25", |_| Reply::announcing(1 << 30));
    let report = desk.sync().await;
    assert!(report.errors[0].message.contains("larger than"), "{:?}", report.errors);
    assert!(desk.server.bytes_sent() < 8 << 20);
}

/// What the program says of a run, and the most memory it held in KiB, as seen until shortly before its end.
async fn weighed(desk: &Desk) -> (Value, u64) {
    let config = desk.folder.path().join("trueup.toml");
    std::fs::write(&config, desk.config()).unwrap();
    let mut command = trueup();
    command.args(["sync", "--json", "--config"]).arg(&config);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut peak = 0_u64;
    until("the run is over", || {
        peak = peak.max(peak_kib(child.id()));
        child.try_wait().unwrap().is_some()
    })
    .await;
    let output = child.wait_with_output().unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), peak)
}

/// The most memory a process ever held; nothing once it has ended.
fn peak_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().unwrap())
}

#[tokio::test]
async fn what_is_not_well_formed_is_refused_whole() {
    let good = item("1", "2025-10-16", "a");
    let broken = [
        feed(&good).replace("</channel>", "</chanel>"),
        feed(&good).replace("글 1", "글 & 1").replace("<![CDATA[", "").replace("]]>", ""),
        feed(&good).replace("<title>공지</title>", "<title>&nbsp;</title>"),
        feed(&good).replace("<title>공지</title>", "<title>\u{1}</title>"),
        feed(&good).replace("<title>공지</title>", "<title a='1' a='2'>x</title>"),
        format!("{}<rss/>", feed(&good)),
        format!("{}junk", feed(&good)),
        feed(&good).replace("<title>공지</title>", "<title>&#0;</title>"),
        feed(&good).replace("<title>공지</title>", "<title>&#xFFFF;</title>"),
        feed(&good).replace("<title>공지</title>", "<title>\u{FFFE}</title>"),
        feed(&good).replace("<title>공지</title>", "<title>a ]]> b</title>"),
        feed(&good).replace("<title>공지</title>", "<!-- a -- b -->"),
        feed(&good).replace("<title>공지</title>", "<title a='a<b'>x</title>"),
    ];
    for xml in broken {
        let desk = Desk::serving(&*xml);
        let report = desk.sync().await;
        assert_eq!(report.status.name(), "failed", "{xml}");
        assert!(desk.keys().await.is_empty());
    }
}

#[tokio::test]
async fn a_second_channel_is_refused_and_not_left_out() {
    let channel = |id: &str| format!("<channel>{}</channel>", item(id, "2025-10-16", "a"));
    let desk = Desk::serving(format!("<rss version=\"2.0\">{}{}</rss>", channel("1"), channel("2")));
    let report = desk.sync().await;
    assert_eq!(report.status.name(), "failed");
    assert!(report.errors[0].message.contains("a second channel"), "{:?}", report.errors);
    assert!(desk.keys().await.is_empty());
}
