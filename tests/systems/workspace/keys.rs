//! Keys, both ways.

use proptest::prelude::*;
use trueup::error::Kind;
use trueup::workspace::Language;
use trueup::workspace::keys::{
    Key, RESERVED, issue_key, issue_prefix, job_key, key_page, part_key, policy_key, policy_key_language,
    policy_key_source, policy_prefix, system_key,
};

#[test]
fn s01_keys_are_spelled_as_documented() {
    let key = policy_key("abc123", "att789", None).unwrap();
    assert_eq!(key, "abc123:policy:att789");
    assert_eq!((key_page(&key), policy_key_source(&key)), (Some("abc123"), Some("att789")));
    assert_eq!(policy_key_language(&key), None);
    let key = policy_key("abc123", "att789", Some(Language::En)).unwrap();
    assert_eq!(key, "abc123:policy:att789:en");
    assert_eq!((key_page(&key), policy_key_source(&key)), (Some("abc123"), Some("att789")));
    assert_eq!(policy_key_language(&key), Some(Language::En));
    let id = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    let key = issue_key("abc123", id).unwrap();
    assert_eq!(key, format!("abc123:issue:{id}"));
    assert_eq!((key_page(&key), policy_key_source(&key)), (Some("abc123"), None));
    assert_eq!(job_key("task456").unwrap(), "job:task456");
    assert_eq!(system_key("purged", None).unwrap(), "system:purged");
    assert_eq!(policy_prefix("abc123").unwrap(), "abc123:policy:");
    assert_eq!(issue_prefix("abc123").unwrap(), "abc123:issue:");
}

fn id() -> impl Strategy<Value = String> {
    "[A-Za-z0-9._#-][A-Za-z0-9._ #-]{0,40}"
        .prop_filter("no page", |id| !RESERVED.contains(&id.as_str()) && id != "." && id != "..")
}

fn language() -> impl Strategy<Value = Option<Language>> {
    prop::option::of(prop::sample::select(Language::ALL.to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn s02_what_is_built_is_parsed(page in id(), source in id(), language in language()) {
        let key = policy_key(&page, &source, language).unwrap();
        prop_assert_eq!(key_page(&key), Some(page.as_str()));
        prop_assert_eq!(policy_key_source(&key), Some(source.as_str()));
        prop_assert_eq!(policy_key_language(&key), language);
        let issue = issue_key(&page, &source).unwrap();
        prop_assert_eq!(Key::parse(&issue), Some(Key::Issue { page: &page, id: &source }));
        let part = part_key(&page, &source, language, "0a1b").unwrap();
        prop_assert_eq!(policy_key_source(&part), None);
        prop_assert_eq!(Key::parse(&part), Some(Key::Part { page: &page, source: &source, hash: "0a1b" }));
    }

    #[test]
    fn s02_a_colon_in_an_id_is_rejected(left in "[a-z]{0,5}", right in "[a-z]{0,5}") {
        let id = format!("{left}:{right}");
        for refused in [policy_key(&id, "s", None), policy_key("p", &id, None), issue_key(&id, "i"), issue_key("p", &id), job_key(&id)] {
            prop_assert_eq!(refused.unwrap_err().kind(), Kind::Invalid);
        }
    }

    #[test]
    fn s02_whatever_parses_is_built_the_same(key in "[a-z.:]{0,30}|[a-z]{1,3}:(policy|issue):[a-z]{1,3}(:(en|fr|xx|part))?(:[a-z]{0,3}){0,2}") {
        match Key::parse(&key) {
            Some(Key::Policy { page, source, language }) => prop_assert_eq!(policy_key(page, source, language).unwrap(), key),
            Some(Key::Issue { page, id }) => prop_assert_eq!(issue_key(page, id).unwrap(), key),
            Some(Key::Part { .. }) | None => {}
        }
    }
}

#[test]
fn s03_a_job_is_no_page() {
    assert_eq!(key_page("job:task456"), None);
    for key in [
        "system:purged",
        "job:policy:x",
        "queue:policy:x",
        "x",
        "",
        "x:y",
        "x:policy:",
        ":policy:x",
        "x:policy:y:xx",
    ] {
        assert_eq!(key_page(key), None, "{key}");
    }
    for page in RESERVED {
        assert_eq!(policy_key(page, "source", None).unwrap_err().kind(), Kind::Invalid, "{page}");
        assert_eq!(issue_key(page, "id").unwrap_err().kind(), Kind::Invalid, "{page}");
    }
}
