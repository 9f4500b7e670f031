//! How the pages look: on a small screen, in the dark, by keyboard.

use super::driver::Browser;
use super::scene;

const PAGES: [(&str, &str); 9] = [
    ("overview", "/"),
    ("held", "/pipelines/policies"),
    ("failing", "/pipelines/notices"),
    ("handbook", "/pipelines/handbook"),
    ("stores", "/stores"),
    ("store", "/stores/registry?prefix=regulation-3"),
    ("value", "/stores/registry?key=regulation-35.md"),
    ("why", "/why?key=regulation-35.md"),
    ("queue", "/queue"),
];

pub type Screen = (&'static str, u32, bool);
const SCREENS: [Screen; 3] = [("light", 1280, false), ("dark", 1280, true), ("375", 375, false)];
pub const EVERY_SCREEN: [Screen; 4] = [SCREENS[0], SCREENS[1], SCREENS[2], ("375-dark", 375, true)];

/// Each page on each screen: nothing is wider than it, and the colours are the ones asked for.
pub async fn fit(browser: &Browser, pages: &[(&str, &str)], screens: &[Screen]) {
    for (name, path) in pages {
        for (screen, width, dark) in screens {
            browser.screen(*width, *dark).await;
            browser.open(path).await;
            let over = browser.run("return document.documentElement.scrollWidth - innerWidth").await;
            assert!(over.as_i64().unwrap() <= 0, "{path} is {over} px too wide at {width} px");
            let ground = browser.run("return getComputedStyle(document.body).backgroundColor").await;
            assert_eq!(ground == "rgb(14, 18, 24)", *dark, "{path}: {ground}");
            browser.picture(&format!("{name}-{screen}")).await;
        }
    }
    browser.screen(1280, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_small_screens_light_and_dark() {
    let home = scene::set();
    let serving = scene::serve(&home).await;
    let browser = Browser::at(&serving.address).await;
    fit(&browser, &PAGES, &SCREENS).await;
    by_keyboard(&browser).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Tab reaches the way past the navigation first, then everything; where one is can be seen; Enter acts.
async fn by_keyboard(browser: &Browser) {
    const TAB: &str = "\u{E004}";
    browser.open("/pipelines/policies").await;
    browser.press(TAB).await;
    assert_eq!(browser.run("return document.activeElement.className").await, "skip");
    for _ in 0..30 {
        let drawn =
            "const s = getComputedStyle(document.activeElement); return s.outlineStyle + s.outlineWidth";
        assert_eq!(browser.run(drawn).await, "solid3px");
        if browser.run("return document.activeElement.textContent").await == "Approve" {
            browser.press("\u{E007}").await;
            browser.sees("#ask", "Delete 30 keys?").await;
            assert_eq!(
                browser.run("return document.activeElement.value").await,
                "no",
                "the safe answer is nearest"
            );
            browser.press("\u{E00C}").await;
            assert_eq!(browser.run("return document.querySelector('#ask').open").await, false);
            return;
        }
        browser.press(TAB).await;
    }
    panic!("Approve is out of reach for a keyboard");
}
