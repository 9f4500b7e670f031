//! `${NAME}` and `${NAME:-default}` in strings. What a variable holds is taken as it is, never read again.
//!
//! As in a shell, `:-` also replaces an empty variable. A default may itself hold `${…}`. `$${` is a plain `${`.

/// Looks up a variable.
pub type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Defaults inside defaults; nobody needs more, and the stack has an end.
const DEPTH_MAX: usize = 8;

/// Why a string cannot be filled in, and the part of it to point at.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfilled {
    pub at: String,
    pub why: String,
}

/// The string filled in; `None` when there was nothing to fill in.
pub fn interpolate(text: &str, env: Env<'_>) -> Result<Option<String>, Unfilled> {
    if text.contains("${") { fill(text, env, 0).map(Some) } else { Ok(None) }
}

fn fill(text: &str, env: Env<'_>, depth: usize) -> Result<String, Unfilled> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let Some(end) = closing(inside) else {
            return Err(unfilled(&rest[at..], "this `${` is never closed by `}`"));
        };
        out.push_str(&lookup(&inside[..end], env, depth)?);
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Where the brace that closes an already opened `${` is.
fn closing(inside: &str) -> Option<usize> {
    let mut open = 1;
    let mut after_dollar = false;
    for (at, c) in inside.char_indices() {
        match c {
            '{' if after_dollar => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
        after_dollar = c == '$';
    }
    None
}

fn lookup(inside: &str, env: Env<'_>, depth: usize) -> Result<String, Unfilled> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let start = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(start) || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let why = "expected `${NAME}` or `${NAME:-default}`; a plain `${` is written `$${`";
        return Err(unfilled(&format!("${{{inside}"), why));
    }
    match (env(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(_)) if depth == DEPTH_MAX => {
            Err(unfilled(&format!("${{{name}"), "too many defaults inside defaults"))
        }
        (_, Some(default)) => fill(default, env, depth + 1),
        (None, None) => Err(unfilled(&format!("${{{name}"), &format!("the variable `{name}` is not set"))),
    }
}

fn unfilled(at: &str, why: &str) -> Unfilled {
    Unfilled { at: at.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("alpha".into()),
            "EMPTY" => Some(String::new()),
            "EVIL" => Some("${A}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_and_defaults_are_filled_in() {
        let cases = [
            ("${A}", "alpha"),
            ("x${A}y${A}z", "xalphayalphaz"),
            ("${NOPE:-d}", "d"),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY}", ""),
            ("${NOPE:-}", ""),
            ("${NOPE:-${ALSO:-x}}!", "x!"),
            ("${NOPE:-a:-b}", "a:-b"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
            ("${EVIL}", "${A}"),
            ("http://h?b={board}&c=${A}", "http://h?b={board}&c=alpha"),
        ];
        for (given, filled) in cases {
            assert_eq!(interpolate(given, &env), Ok(Some(filled.to_owned())), "{given}");
        }
        assert_eq!(interpolate("$A and $ and {}", &env), Ok(None));
    }

    #[test]
    fn what_cannot_be_filled_in_is_named() {
        for (given, at) in [
            ("a ${NOPE} b", "${NOPE"),
            ("${NOPE:-${ALSO}}", "${ALSO"),
            ("${A", "${A"),
            ("${}", "${"),
            ("${a b}", "${a b"),
            ("${1}", "${1"),
        ] {
            assert_eq!(
                interpolate(given, &env).map_err(|unfilled| unfilled.at),
                Err(at.to_owned()),
                "{given}"
            );
        }
        let deep = "${N:-".repeat(1_000) + &"}".repeat(1_000);
        assert!(interpolate(&deep, &env).is_err());
    }
}
