//! Values that are written as text: durations, sizes, limits, lists with commas, cron lines.
//!
//! Each parser says what it expects; where it was written is the reader's business.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use super::model::Limit;

const SECOND: u64 = 1_000;
const DAY: u64 = 24 * 3_600 * SECOND;
/// A century: more is a slip of the finger, and less than any clock's range.
const LONGEST: u64 = 100 * 365 * DAY;

pub const DURATION: &str = "a duration such as \"1s\", \"15m\", \"24h\", \"30d\" or \"2y\"";
pub const SIZE: &str = "a size such as \"64MiB\" or \"1GB\"";
pub const LIMIT: &str = "a percentage from \"0%\" to \"100%\" or a number of keys";
pub const CRON: &str =
    "a cron expression of five fields (minute hour day month weekday) or six (with seconds)";

/// A number and a unit: ms, s, m, h, d, w, y (365 days).
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let millis = match unit {
        "ms" => 1,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        "d" => DAY,
        "w" => 7 * DAY,
        "y" => 365 * DAY,
        _ => return None,
    };
    let millis = number.checked_mul(millis).filter(|millis| *millis <= LONGEST)?;
    Some(Duration::from_millis(millis))
}

/// A number and a unit: B, kB, MB, GB, TB (thousands) or KiB, MiB, GiB, TiB (1024s).
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..digits].parse().ok()?, text[digits..].trim_start()))
}

/// "30%", or a number in quotes.
pub fn limit(text: &str) -> Option<Limit> {
    match text.trim().strip_suffix('%') {
        Some(number) => {
            let percent: f64 = number.trim().parse().ok()?;
            (0.0..=100.0).contains(&percent).then_some(Limit::Percent(percent))
        }
        None => text.trim().parse().ok().map(Limit::Count),
    }
}

/// "25, 26,11" as a list; empty parts fall away.
pub fn commas(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// A cron expression, read. One that no day ever fits (30 February) is refused too: nobody writes that on purpose.
pub fn cron(text: &str) -> Result<Cron, String> {
    // A leap year follows soon after, so 29 February is found.
    const ANY_DAY: jiff::civil::DateTime = jiff::civil::date(2024, 1, 1).at(0, 0, 0, 0);
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(text).map_err(|error| error.to_string())?;
    match cron.find_next_occurrence(&ANY_DAY, true) {
        Ok(_) => Ok(cron),
        Err(_) => Err("no day ever fits it".to_owned()),
    }
}

/// Only the outline: the number of fields and their characters.
pub fn looks_like_cron(text: &str) -> bool {
    let field = |field: &str| {
        field.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '*' | '/' | ',' | '-' | '#' | '?'))
    };
    matches!(text.split_whitespace().count(), 5 | 6) && text.split_whitespace().all(field)
}

/// Letters, digits, dot, dash and underscore; short enough for a table in a terminal.
pub fn is_name(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// Longest name of a pipeline or store: it is part of keys in the state and of columns on a terminal.
pub const NAME_MAX: usize = 64;

/// A branch as git takes one: no spaces, no control characters, none of the marks git reserves.
pub fn is_branch_name(text: &str) -> bool {
    let reserved = [' ', '~', '^', ':', '?', '*', '[', '\\'];
    #[allow(clippy::case_sensitive_file_extension_comparisons)] // git's own rule for names of branches
    let part_ok = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    !text.starts_with(['-', '/'])
        && !text.ends_with(['/', '.'])
        && !text.contains("..")
        && !text.contains("@{")
        && !text.chars().any(|c| c.is_control() || reserved.contains(&c))
        && text.split('/').all(part_ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_an_end() {
        let hours = |n: u64| Some(Duration::from_secs(n * 3_600));
        let cases = [
            ("1s", Some(Duration::from_secs(1))),
            ("250ms", Some(Duration::from_millis(250))),
            ("15m", Some(Duration::from_secs(900))),
            ("24h", hours(24)),
            (" 30 d ", hours(720)),
            ("2w", hours(336)),
            ("2y", hours(17_520)),
            ("0s", Some(Duration::ZERO)),
            ("30", None),
            ("d", None),
            ("-1s", None),
            ("1.5h", None),
            ("1D", None),
            ("101y", None),
            ("99999999999999999999d", None),
            ("9999999999999999999y", None),
            ("", None),
        ];
        for (given, read) in cases {
            assert_eq!(duration(given), read, "{given}");
        }
    }

    #[test]
    fn sizes_know_thousands_and_1024s() {
        let cases = [
            ("1GB", Some(1_000_000_000)),
            ("64MiB", Some(67_108_864)),
            ("10 kb", Some(10_000)),
            ("7B", Some(7)),
            ("1", None),
            ("GB", None),
            ("99999999999TB", None),
        ];
        for (given, read) in cases {
            assert_eq!(bytes(given), read, "{given}");
        }
    }

    #[test]
    fn limits_are_percentages_or_counts() {
        let cases = [
            ("30%", Some(Limit::Percent(30.0))),
            ("0.5 %", Some(Limit::Percent(0.5))),
            ("100%", Some(Limit::Percent(100.0))),
            ("12", Some(Limit::Count(12))),
            ("101%", None),
            ("-1%", None),
            ("NaN%", None),
            ("-1", None),
            ("%", None),
        ];
        for (given, read) in cases {
            assert_eq!(limit(given), read, "{given}");
        }
    }

    #[test]
    fn cron_lines_have_five_or_six_fields() {
        for good in ["0 16 * * *", "*/5 0-8,20 1 JAN MON#2", "0 0 16 * * ?"] {
            assert!(looks_like_cron(good), "{good}");
        }
        for bad in ["", "0 16 * *", "0 0 0 16 * * *", "@daily", "0 16 * * $"] {
            assert!(!looks_like_cron(bad), "{bad}");
        }
    }

    #[test]
    fn cron_lines_are_read_and_impossible_days_refused() {
        for good in ["0 16 * * *", "*/5 0-8,20 1 JAN MON#2", "0 0 16 * * ?", "0 0 29 2 *", "0 12 L * *"] {
            assert!(cron(good).is_ok(), "{good}");
        }
        for bad in ["61 * * * *", "0 24 * * *", "0 0 30 2 *", "0 0 * 13 *", "0 0 * * FUN", "5-1 * * * *"] {
            assert!(cron(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn commas_separate_and_blanks_fall_away() {
        assert_eq!(commas("25, 26,,11 ,"), ["25", "26", "11"]);
        assert!(commas(" ").is_empty());
    }
}
