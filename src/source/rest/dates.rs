//! Dates as APIs write them, to the one form we have for them. What is no instant, or none that databases agree on, is refused
//! with the reason.

use std::borrow::Cow;

use jiff::civil::{DateTime, date};
use jiff::{SignedDuration, Timestamp};

use crate::clock::{self, rfc3339_ms};

pub(super) fn timestamp(text: &str) -> Result<Cow<'_, str>, String> {
    // Most are in our own form already, and so are as they will be.
    if clock::read_rfc3339_ms(text).is_some() {
        return Ok(Cow::Borrowed(text));
    }
    let at: Timestamp = text.trim().parse().map_err(|_| format!("{text:?} is no RFC 3339 instant"))?;
    if is_leap_second(text.trim()) {
        return Err(format!("{text:?} is a leap second, which databases do not have"));
    }
    let at = rfc3339_ms(at);
    // In UTC it may be before the year 1, which databases do not agree on.
    match clock::read_rfc3339_ms(&at) {
        Some(_) => Ok(Cow::Owned(at)),
        None => Err(format!("{text:?} is not in the years 0001 to 9999 of UTC")),
    }
}

/// Of a text that was read as an instant: the second before it was taken instead.
fn is_leap_second(text: &str) -> bool {
    let time = text.split_once(['T', 't', ' ']).map_or("", |(_, time)| time);
    time.chars().filter(|c| *c != ':').take(6).skip(4).eq("60".chars())
}

/// `/Date(1761256800000+0200)/`: the milliseconds are UTC already.
pub(super) fn ms_date(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is no date such as /Date(1761256800000+0200)/");
    let inner =
        text.trim().strip_prefix("/Date(").and_then(|rest| rest.strip_suffix(")/")).ok_or_else(wrong)?;
    let sign_at = inner.char_indices().skip(1).find(|(_, c)| matches!(c, '+' | '-')).map(|(at, _)| at);
    let (ms, offset) = inner.split_at(sign_at.unwrap_or(inner.len()));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !(offset.is_empty() || offset.len() == 5 && digits(&offset[1..]))
        || !digits(ms.strip_prefix('-').unwrap_or(ms))
    {
        return Err(wrong());
    }
    let ms: i64 = ms.parse().map_err(|_| wrong())?;
    let epoch: DateTime = date(1970, 1, 1).to_datetime(jiff::civil::Time::midnight());
    let at = epoch
        .checked_add(SignedDuration::from_millis(ms))
        .ok()
        .filter(|at| at.year() >= 1)
        .ok_or_else(wrong)?;
    Ok(at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::{ms_date, timestamp};

    #[test]
    fn scenario_16_dates_are_read_by_their_milliseconds_and_garbage_is_refused() {
        for (given, read) in [
            ("/Date(1761256800000+0200)/", Some("2025-10-23T22:00:00.000Z")),
            ("/Date(1761256800000-0700)/", Some("2025-10-23T22:00:00.000Z")),
            ("/Date(1761256800123)/", Some("2025-10-23T22:00:00.123Z")),
            ("/Date(0)/", Some("1970-01-01T00:00:00.000Z")),
            ("/Date(-1)/", Some("1969-12-31T23:59:59.999Z")),
            ("/Date(-62135596800000+0100)/", Some("0001-01-01T00:00:00.000Z")),
            ("/Date(253402300799999)/", Some("9999-12-31T23:59:59.999Z")),
            ("/Date(253402300800000)/", None),
            ("/Date(-62135596800001)/", None),
            ("/Date(99999999999999999999)/", None),
            ("/Date()/", None),
            ("/Date(-)/", None),
            ("/Date(1+02)/", None),
            ("/Date(1+02:0)/", None),
            ("/Date(12x)/", None),
            ("Date(0)", None),
            ("2025-10-23", None),
            ("", None),
        ] {
            assert_eq!(ms_date(given).ok().as_deref(), read, "{given}");
        }
        assert_eq!(timestamp("2025-10-24T00:00:00+02:00").unwrap(), "2025-10-23T22:00:00.000Z");
        assert_eq!(timestamp("2025-10-24T00:06:00Z").unwrap(), "2025-10-24T00:06:00.000Z");
        assert_eq!(timestamp("0001-01-01T00:00:00-01:00").unwrap(), "0001-01-01T01:00:00.000Z");
        for text in [
            "yesterday",
            "0001-01-01T00:00:00+01:00",
            "0000-01-01T00:00:00Z",
            "-000001-01-01T00:00:00Z",
            "9999-12-31T23:59:59-01:00",
            "2016-12-31T23:59:60Z",
            "2016-12-31T23:59:60.000Z",
            "2017-01-01 05:29:60.5+05:30",
            "20161231T235960Z",
        ] {
            assert!(timestamp(text).is_err(), "{text}");
        }
    }
}
