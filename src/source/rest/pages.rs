//! Where the next page is. Pure: the address of this one, what its answer said, what the recipe says.

use serde_json::Value;
use url::Url;

use crate::config::{JsonPath, Pagination, Size};
use crate::error::{Error, Kind, Result};

/// What of an answer decides about the next page.
pub struct Turned<'a> {
    pub url: &'a Url,
    /// Pages read so far, this one included.
    pub pages: u64,
    /// Items on this page …
    pub items: usize,
    /// … and on those before it.
    pub items_before: u64,
    pub answer: &'a Value,
    pub link: Option<&'a str>,
}

/// The first page.
pub fn first(pagination: &Pagination, url: Url) -> Url {
    match pagination {
        Pagination::None | Pagination::Link | Pagination::Cursor { .. } => url,
        Pagination::Page { param, first, size } => {
            let url = with_size(url, size.as_ref());
            with_param(&url, param, &first.to_string())
        }
        Pagination::Offset { param, size } => with_param(&with_size(url, Some(size)), param, "0"),
    }
}

/// What comes after a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// It was the last.
    End,
    Page(Url),
    /// It has fewer items than were asked for. That may be all there is, or all this API ever puts on a page.
    Doubtful(Url),
}

impl From<Option<Url>> for Next {
    fn from(next: Option<Url>) -> Self {
        next.map_or(Next::End, Next::Page)
    }
}

/// The page after this one.
pub fn next(pagination: &Pagination, turned: &Turned<'_>) -> Result<Next> {
    let next: Option<Url> = match pagination {
        Pagination::None => None,
        Pagination::Page { param, first, size } => {
            let number = first + turned.pages;
            return Ok(turned.counted(size.as_ref(), with_param(turned.url, param, &number.to_string())));
        }
        Pagination::Offset { param, size } => {
            let from = turned.items_before + turned.items as u64;
            return Ok(turned.counted(Some(size), with_param(turned.url, param, &from.to_string())));
        }
        Pagination::Cursor { field, param } => match cursor_at(field, turned.answer)? {
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(Value::String(cursor)) if cursor.is_empty() => None,
            Some(Value::String(cursor)) => Some(with_param(turned.url, param, cursor)),
            Some(Value::Number(cursor)) => Some(with_param(turned.url, param, &cursor.to_string())),
            Some(_) => {
                let message = format!(
                    "`{field}` should be the cursor of the next page and is neither text nor a number"
                );
                return Err(Error::new(Kind::Invalid, message));
            }
        },
        Pagination::Link => match turned.link.map(rel_next).transpose()?.flatten() {
            None => None,
            Some(target) => Some(linked(turned.url, target)?),
        },
    };
    Ok(next.into())
}

impl Turned<'_> {
    /// What follows where items are counted. Only an empty page is the end by itself: APIs have limits of their own, and some
    /// leave out what we may not see after they have cut the page.
    fn counted(&self, size: Option<&Size>, next: Url) -> Next {
        match size {
            _ if self.items == 0 => Next::End,
            None => Next::Page(next),
            Some(size) if self.items as u64 >= size.per => Next::Page(next),
            Some(_) => Next::Doubtful(next),
        }
    }
}

/// The cursor, or that there is none: its field is missing, or what it would be in. Something else in the place of that is
/// no end, but another answer than the recipe knows.
fn cursor_at<'v>(field: &JsonPath, answer: &'v Value) -> Result<Option<&'v Value>> {
    for length in 0..field.0.len() {
        let around = JsonPath(field.0[..length].to_vec());
        match around.find(answer) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(_) | Value::Array(_)) => {}
            Some(_) => {
                let message = format!("`{around}` should hold the cursor of the next page (`{field}`)");
                return Err(Error::new(Kind::Invalid, message));
            }
        }
    }
    Ok(field.find(answer))
}

/// A link may lead to another page, never to another server: our credentials are for this one.
fn linked(from: &Url, target: &str) -> Result<Url> {
    let url = from
        .join(target)
        .map_err(|error| Error::new(Kind::Invalid, "the link to the next page is no URL").caused_by(error))?;
    if url.origin() != from.origin() {
        return Err(Error::new(Kind::Invalid, "the link to the next page leads to another server"));
    }
    Ok(url)
}

/// The target of `rel="next"` in a `Link` header. One that cannot be read is an error: it may be the one that leads on.
fn rel_next(header: &str) -> Result<Option<&str>> {
    let odd = || {
        Error::new(
            Kind::Invalid,
            "the `Link` header cannot be read, so nobody knows whether this is the last page",
        )
        .remedy_is("A link is `<address>; rel=\"next\"`. Look at the answer's headers.")
    };
    // It stands for bytes that are no text.
    if header.contains(char::REPLACEMENT_CHARACTER) {
        return Err(odd());
    }
    let mut rest = header.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let target = rest.strip_prefix('<').ok_or_else(odd)?;
        let (target, after) = target.split_once('>').ok_or_else(odd)?;
        let params = before(after, ',').ok_or_else(odd)?;
        let mut is_next = false;
        let mut left = params;
        while !left.is_empty() {
            let param = before(left, ';').unwrap_or(left);
            let (name, value) = param.split_once('=').unwrap_or((param, ""));
            // Some write the wrong quotes.
            let words = value.trim().trim_matches(['"', '\'']);
            is_next |= name.trim().eq_ignore_ascii_case("rel")
                && words.split_whitespace().any(|word| word.eq_ignore_ascii_case("next"));
            left = left[param.len()..].strip_prefix(';').unwrap_or_default();
        }
        if is_next {
            return Ok(Some(target));
        }
        rest = after[params.len()..].trim_start_matches([' ', '\t', ',']);
    }
    Ok(None)
}

/// What is before a mark, or all of it; marks between quotes are none. `None` = quotes are left open.
fn before(text: &str, mark: char) -> Option<&str> {
    let mut quoted = false;
    let end = text.find(|c| {
        quoted ^= c == '"';
        c == mark && !quoted
    });
    match end {
        Some(end) => Some(&text[..end]),
        None => (!quoted).then_some(text),
    }
}

fn with_size(url: Url, size: Option<&Size>) -> Url {
    match size {
        Some(size) => with_param(&url, &size.param, &size.per.to_string()),
        None => url,
    }
}

/// The address with one parameter set, whatever it was.
pub fn with_param(url: &Url, name: &str, value: &str) -> Url {
    let others: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(key, _)| key != name)
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect();
    let mut url = url.clone();
    url.query_pairs_mut().clear().extend_pairs(others).append_pair(name, value);
    url
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn size() -> Size {
        Size { param: "per".into(), per: 2 }
    }

    fn follow(
        pagination: &Pagination,
        items: usize,
        answer: &Value,
        link: Option<&str>,
    ) -> Result<Option<String>> {
        let url = first(pagination, Url::parse("http://h/list?a=b").unwrap());
        let turned = Turned { url: &url, pages: 1, items, items_before: 0, answer, link };
        Ok(match next(pagination, &turned)? {
            Next::End => None,
            Next::Page(url) => Some(url.into()),
            Next::Doubtful(url) => Some(format!("perhaps {url}")),
        })
    }

    #[test]
    fn every_style_knows_its_next_page_and_its_last() {
        let none = json!({});
        let page = Pagination::Page { param: "page".into(), first: 1, size: Some(size()) };
        let capped =
            Pagination::Page { param: "page".into(), first: 1, size: Some(Size { per: 9, ..size() }) };
        let endless = Pagination::Page { param: "page".into(), first: 1, size: None };
        let offset = Pagination::Offset { param: "from".into(), size: size() };
        let cursor = Pagination::Cursor { field: JsonPath::parse("meta.next"), param: "cursor".into() };
        let more = json!({"meta": {"next": "x y"}});
        let last = json!({"meta": {"next": null}});
        let links = r#"<http://h/list?p=1>; rel="prev", </list?p=3>; title="a, b"; rel="last next""#;
        for (pagination, items, answer, link, expected) in [
            (&Pagination::None, 9, &none, None, None),
            (&page, 2, &none, None, Some("http://h/list?a=b&per=2&page=2")),
            (&page, 1, &none, None, Some("perhaps http://h/list?a=b&per=2&page=2")),
            (&page, 0, &none, None, None),
            (&capped, 2, &none, None, Some("perhaps http://h/list?a=b&per=9&page=2")),
            (&capped, 0, &none, None, None),
            (&endless, 1, &none, None, Some("http://h/list?a=b&page=2")),
            (&endless, 0, &none, None, None),
            (&offset, 2, &none, None, Some("http://h/list?a=b&per=2&from=2")),
            (&offset, 3, &none, None, Some("http://h/list?a=b&per=2&from=3")),
            (&offset, 0, &none, None, None),
            (&cursor, 0, &more, None, Some("http://h/list?a=b&cursor=x+y")),
            (&cursor, 9, &last, None, None),
            (&cursor, 9, &none, None, None),
            (&cursor, 9, &json!({"meta": null}), None, None),
            (&Pagination::Link, 9, &none, Some(links), Some("http://h/list?p=3")),
            (&Pagination::Link, 9, &none, Some("<http://h/x>; rel=prev"), None),
            (&Pagination::Link, 9, &none, Some("</list?p=2>; rel='next'"), Some("http://h/list?p=2")),
            (&Pagination::Link, 9, &none, None, None),
        ] {
            assert_eq!(
                follow(pagination, items, answer, link).unwrap().as_deref(),
                expected,
                "{pagination:?}"
            );
        }
    }

    #[test]
    fn a_link_that_cannot_be_read_is_no_end() {
        for link in [
            "http://h/list?p=2; rel=next",
            "<http://h/list?p=2; rel=next",
            "<http://h/x>; rel=prev, http://h/list?p=2; rel=next",
            "<http://h/x>; title=\"open; rel=next",
            "</list?p=\u{fffd}>; rel=next",
        ] {
            let error = follow(&Pagination::Link, 9, &json!({}), Some(link)).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{link}");
        }
        for link in ["", " , ", "<http://h/x>;rel=prev,", "<a>; title=\"a, <b>; rel=next\""] {
            assert_eq!(follow(&Pagination::Link, 9, &json!({}), Some(link)).unwrap(), None, "{link}");
        }
    }

    #[test]
    fn what_is_in_the_place_of_a_cursor_is_no_end() {
        let cursor = Pagination::Cursor { field: JsonPath::parse("meta.next"), param: "cursor".into() };
        for answer in [json!({"meta": "oops"}), json!({"meta": 1}), json!({"meta": {"next": {"a": 1}}})] {
            let error = follow(&cursor, 9, &answer, None).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{answer}");
        }
    }

    #[test]
    fn a_link_to_another_server_is_refused() {
        let error = follow(&Pagination::Link, 1, &json!({}), Some("<https://evil/x>; rel=next")).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
    }
}
