//! What must not be shown: passwords in URLs, and secrets that somebody wrote into the file.
//!
//! It errs on the side of hiding: a masked word costs a glance, a shown password costs a password.

use std::ops::Range;

use crate::secret::{may_be_secret, names_a_secret};

/// Stands for what is hidden, whatever its length.
const MASK: &str = "***";

/// Whether this can be the name of a variable rather than the secret itself.
pub fn is_variable_name(text: &str) -> bool {
    const LONGEST: usize = 64;
    const TOKEN_STARTS: [&str; 6] = ["ghp_", "gho_", "ghs_", "github_pat_", "xox", "AKIA"];
    text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !TOKEN_STARTS.iter().any(|start| text.starts_with(start))
}

/// A URL without the password before its host and without the secret values of its query.
pub fn url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for hidden in hidden_in_urls(text) {
        out.push_str(&text[done..hidden.start]);
        out.push_str(MASK);
        done = hidden.end;
    }
    out + &text[done..]
}

/// Only scheme and host of a URL: web hooks carry their secret in the path.
pub fn origin(text: &str) -> String {
    let shown = url(text);
    let Some((scheme, rest)) = shown.split_once("://") else { return MASK.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let more = if rest.len() > authority.len() { "/…" } else { "" };
    format!("{scheme}://{host}{more}")
}

/// A line as characters with every secret masked, and where `from..to` (bytes) is in it.
pub fn mask_line(line: &str, from: usize, to: usize) -> (Vec<char>, usize, usize) {
    let mut hidden = hidden_in_urls(line);
    hidden.extend(hidden_values(line));
    hidden.sort_by_key(|range| range.start);
    let (mut shown, mut shown_from, mut shown_to) = (Vec::new(), None, None);
    let mut until = 0;
    for (at, c) in line.char_indices() {
        if at >= from && shown_from.is_none() {
            shown_from = Some(shown.len());
        }
        if at >= to && shown_to.is_none() {
            shown_to = Some(shown.len());
        }
        if let Some(range) = hidden.iter().find(|range| range.contains(&at)) {
            if range.start >= until {
                shown.extend(MASK.chars());
            }
            until = until.max(range.end);
        }
        if at >= until {
            shown.push(c);
        }
    }
    let end = shown.len();
    let shown_from = shown_from.unwrap_or(end);
    (shown, shown_from, shown_to.unwrap_or(end).max(shown_from))
}

/// Byte ranges of `user:PASSWORD@` and of `?token=VALUE` in every URL of a text.
fn hidden_in_urls(text: &str) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    let mut from = 0;
    while let Some(found) = text[from..].find("://") {
        let start = from + found + 3;
        let stop = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
        let end = text[start..].find(stop).map_or(text.len(), |at| start + at);
        hidden.extend(password_in(text, start..end));
        hidden.extend(query_secrets(text, start..end));
        from = end;
    }
    hidden
}

/// The password of the authority. A password may hold any character, so the last `@` before the path of the
/// last host counts; without a slash-free host the whole is taken.
fn password_in(text: &str, part: Range<usize>) -> Option<Range<usize>> {
    let at = part.start + text[part.clone()].rfind('@')?;
    let colon = part.start + text[part.start..at].find(':')?;
    Some(colon + 1..at)
}

fn query_secrets(text: &str, part: Range<usize>) -> Vec<Range<usize>> {
    let Some(question) = text[part.clone()].find('?') else { return Vec::new() };
    let mut at = part.start + question + 1;
    let mut hidden = Vec::new();
    for pair in text[at..part.end].split(['&', ';']) {
        if let Some((key, value)) = pair.split_once('=')
            && may_be_secret(key)
            && !value.is_empty()
        {
            hidden.push(at + key.len() + 1..at + pair.len());
        }
        at += pair.len() + 1;
    }
    hidden
}

/// Values written beside a key that asks for a secret, and `*_env` values that are no variable's name.
/// Works on the bare line, because the file may not even be valid TOML.
fn hidden_values(line: &str) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    for (equals, _) in line.match_indices('=') {
        let before = line[..equals].trim_end().trim_end_matches(['"', '\'']);
        let name_start = before
            .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let name = &before[name_start..];
        let value = value_after(line, equals + 1);
        let text = line[value.clone()].trim_matches(['"', '\'']);
        let misplaced = name.ends_with("_env") && !text.is_empty() && !is_variable_name(text);
        if !value.is_empty() && (names_a_secret(name) || misplaced) {
            hidden.push(value);
        } else if name == "webhook" {
            hidden.extend(path_in(line, value));
        }
    }
    hidden
}

/// The path of a web hook, which may be its secret.
fn path_in(line: &str, value: Range<usize>) -> Option<Range<usize>> {
    let host = value.start + line[value.clone()].find("://")? + 3;
    let slash = host + line[host..value.end].find('/')?;
    let quoted = line[..value.end].ends_with(['"', '\'']);
    let end = if quoted { value.end - 1 } else { value.end };
    (slash + 1 < end).then_some(slash + 1..end)
}

/// The value behind an equals sign: a quoted string on this line, or the rest of it.
fn value_after(line: &str, from: usize) -> Range<usize> {
    let start = from + line[from..].len() - line[from..].trim_start().len();
    let rest = &line[start..];
    match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let mut escaped = false;
            for (at, c) in rest.char_indices().skip(1) {
                if c == quote && !escaped {
                    // An empty first pair may open a multi-line string: hide the rest then.
                    let whole = at > 1 || !rest[at + 1..].starts_with(quote);
                    return if whole { start..start + at + 1 } else { start..line.len() };
                }
                escaped = c == '\\' && !escaped && quote == '"';
            }
            start..line.len()
        }
        _ => start..line.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_query_secrets_never_show() {
        let cases = [
            ("postgres://u:hunter2@h/db", "postgres://u:***@h/db"),
            ("postgres://u:p@ss/w:d@h/db", "postgres://u:***@h/db"),
            ("https://h/x?token=abc&n=1", "https://h/x?token=***&n=1"),
            ("https://h/x?api_key=abc", "https://h/x?api_key=***"),
            ("sqlite:.trueup/registry.db", "sqlite:.trueup/registry.db"),
            ("etcd://a:1,b:2/p/", "etcd://a:1,b:2/p/"),
        ];
        for (given, shown) in cases {
            assert_eq!(url(given), shown);
        }
    }

    #[test]
    fn a_web_hook_shows_only_its_host() {
        assert_eq!(origin("https://hooks.example.com/T0/B0/secret"), "https://hooks.example.com/…");
        assert_eq!(origin("https://u:p@h"), "https://h");
    }

    #[test]
    fn a_line_is_masked_and_the_caret_moves_along() {
        let line = "s = { token = \"abc\", url = \"x\" }";
        let from = line.find("url").unwrap();
        let (shown, from, to) = mask_line(line, from, from + 3);
        assert_eq!(shown.iter().collect::<String>(), "s = { token = ***, url = \"x\" }");
        assert_eq!(shown[from..to].iter().collect::<String>(), "url");
    }

    #[test]
    fn a_secret_beside_any_secret_key_is_masked_even_in_broken_toml() {
        for line in [
            "token = \"hunter2",
            "\"password\" = 'hunter2'",
            "api-key=hunter2",
            "github_token = \"\"\"hunter2",
            "token_env = \"hunter2-hunter2\"",
            "x = \"postgres://u:hunter2@h/db\"",
        ] {
            let (shown, ..) = mask_line(line, 0, 1);
            let shown: String = shown.into_iter().collect();
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let (hook, ..) = mask_line("{ webhook = \"https://h/T0/hunter2\", x = 1 }", 0, 1);
        assert_eq!(hook.into_iter().collect::<String>(), "{ webhook = \"https://h/***\", x = 1 }");
        let (plain, ..) = mask_line("token_env = \"GITHUB_TOKEN\"", 0, 1);
        assert_eq!(plain.into_iter().collect::<String>(), "token_env = \"GITHUB_TOKEN\"");
    }
}
