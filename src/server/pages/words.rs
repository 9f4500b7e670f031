//! Small pieces of text that every page shares: counts, times, addresses.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::state::journal::Change;

/// `1 key`, `2,048 keys`.
pub fn many(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// With a comma every three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An instant as people say it, with the exact time (UTC) on hover.
pub fn time(now: Timestamp, at: &str) -> Markup {
    let Ok(parsed) = at.parse::<Timestamp>() else { return html! { (at) } };
    html! { time data-ago datetime=(at) title=(exact(parsed)) { (ago(now, parsed)) } }
}

/// The exact time, for where there is room.
pub fn exact(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn ago(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.as_second() - at.as_second();
    let mut value = seconds.unsigned_abs();
    if value < 5 {
        return "now".to_owned();
    }
    let mut unit = "s";
    for (size, next) in [(60, "min"), (60, "h"), (24, "d")] {
        if value < size {
            break;
        }
        value = (value + size / 2) / size;
        unit = next;
    }
    if seconds < 0 { format!("in {value} {unit}") } else { format!("{value} {unit} ago") }
}

/// How long something took.
pub fn took(started: &str, finished: Option<&str>) -> Option<String> {
    let started: Timestamp = started.parse().ok()?;
    let ended: Timestamp = finished?.parse().ok()?;
    let ms = ended.as_millisecond() - started.as_millisecond();
    Some(match ms {
        ..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        _ => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
    })
}

/// One part of a path, or a value in a query, with everything else than letters and digits spelled out.
pub fn part(text: &str) -> String {
    let mut address = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => address.push(byte as char),
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

/// What a change does, said as a command: `Delete 30 keys`.
pub fn doing(change: Change, count: u64) -> String {
    let verb = match change {
        Change::Add => "Add",
        Change::Update => "Update",
        Change::Delete => "Delete",
    };
    format!("{verb} {}", many(count, "key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        let now: Timestamp = "2026-01-10T12:00:00Z".parse().unwrap();
        for (at, said) in [
            ("2026-01-10T11:59:58Z", "now"),
            ("2026-01-10T11:59:30Z", "30 s ago"),
            ("2026-01-10T11:58:00Z", "2 min ago"),
            ("2026-01-10T09:00:00Z", "3 h ago"),
            ("2026-01-07T12:00:00Z", "3 d ago"),
            ("2026-01-10T16:00:00Z", "in 4 h"),
        ] {
            assert_eq!(ago(now, at.parse().unwrap()), said, "{at}");
        }
        assert_eq!(took("2026-01-10T11:59:58Z", Some("2026-01-10T12:01:00Z")).unwrap(), "1 min 2 s");
    }

    #[test]
    fn counts_and_addresses_are_spelled_out() {
        assert_eq!((many(1, "key"), many(1_234_567, "key")), ("1 key".into(), "1,234,567 keys".into()));
        assert_eq!(part("a/b c&ü"), "a%2Fb%20c%26%C3%BC");
        assert_eq!(doing(Change::Delete, 30), "Delete 30 keys");
    }
}
