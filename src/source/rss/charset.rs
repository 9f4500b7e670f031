//! Bytes to text. A byte-order mark decides; then what the XML declares, what the server says, and UTF-8, in this
//! order: the first that fits without a single wrong byte. Never guesses, never replaces characters.

use std::borrow::Cow;

use encoding_rs::{EUC_KR, Encoding, UTF_8};

use crate::error::{Error, Kind, Result};

/// The declaration stands at the very start; nobody writes a longer one.
const DECLARATION_MAX: usize = 256;

/// To the WHATWG these are windows-1252, in which every byte is a character: whatever else it is would be taken for that.
const ASCII: [&str; 3] = ["us-ascii", "ascii", "ansi_x3.4-1968"];

pub fn decode<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Result<Cow<'a, str>> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        return strictly(encoding, &bytes[mark..]).ok_or_else(|| misfit(&[encoding.name()]));
    }
    let labels = [declared(bytes), content_type.and_then(said)];
    let (mut tried, mut is_named) = (Vec::new(), false);
    for label in labels.into_iter().flatten() {
        if ASCII.iter().any(|ascii| ascii.eq_ignore_ascii_case(label.trim())) && !bytes.is_ascii() {
            tried.push("US-ASCII".to_owned());
            continue;
        }
        is_named = true;
        let Some(encoding) = by_label(&label) else {
            tried.push(label);
            continue;
        };
        if let Some(text) = strictly(encoding, bytes) {
            return Ok(text);
        }
        tried.push(encoding.name().to_owned());
    }
    if !is_named && let Some(text) = strictly(UTF_8, bytes) {
        return Ok(text);
    }
    tried.push(UTF_8.name().to_owned());
    tried.dedup();
    Err(misfit(&tried))
}

fn misfit<S: AsRef<str>>(tried: &[S]) -> Error {
    let tried = tried.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" nor ");
    Error::new(Kind::Invalid, format!("the text is not valid {tried}"))
}

fn strictly<'a>(encoding: &'static Encoding, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
    encoding.decode_without_bom_handling_and_without_replacement(bytes)
}

/// The labels of the WHATWG, and the names Korean servers use for CP949.
fn by_label(label: &str) -> Option<&'static Encoding> {
    match label.to_ascii_lowercase().as_str() {
        "cp949" | "ms949" | "x-windows-949" | "uhc" | "x-euc-kr" => Some(EUC_KR),
        _ => Encoding::for_label(label.as_bytes()),
    }
}

/// `<?xml … encoding="…"?>`
fn declared(bytes: &[u8]) -> Option<String> {
    let start = &bytes[..bytes.len().min(DECLARATION_MAX)];
    let start = start.trim_ascii_start().strip_prefix(b"<?xml")?;
    let end = start.windows(2).position(|pair| pair == b"?>")?;
    let declaration = std::str::from_utf8(&start[..end]).ok()?;
    let value = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    Some(value[1..].split_once(quote)?.0.to_owned())
}

/// `text/xml; charset=…`
fn said(content_type: &str) -> Option<String> {
    let parameters = content_type.split(';').skip(1);
    let mut pairs = parameters.filter_map(|parameter| parameter.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(value.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn the_declaration_the_server_and_utf_8_are_tried_in_this_order() {
        let korean = |xml: &str| encoding_rs::EUC_KR.encode(xml).0.into_owned();
        let declared = korean("<?xml version='1.0' encoding='EUC-KR'?><a>가나다</a>");
        assert!(decode(&declared, None).unwrap().contains("가나다"));
        assert!(decode(&declared, Some("text/xml; charset=utf-8")).unwrap().contains("가나다"));
        let bare = korean("<a>똠방각하</a>");
        assert!(decode(&bare, Some("text/xml;charset=\"CP949\"")).unwrap().contains("똠방각하"));
        assert!(decode(&bare, None).unwrap_err().to_string().contains("not valid UTF-8"));
        assert_eq!(decode("<a>é</a>".as_bytes(), None).unwrap(), "<a>é</a>");
        let wrongly = "<?xml version=\"1.0\" encoding=\"euc-kr\"?><a>가나다</a>".as_bytes();
        assert!(decode(wrongly, Some("text/xml; charset=UTF-8")).unwrap().contains("가나다"));
        assert_eq!(decode(b"\xEF\xBB\xBF<a/>", Some("text/xml; charset=euc-kr")).unwrap(), "<a/>");
        assert!(decode(b"<?xml version='1.0' encoding='klingon'?><a/>", None).is_err());
    }

    #[test]
    fn what_is_said_to_be_ascii_and_is_more_is_read_as_what_it_is() {
        for label in ["us-ascii", "ASCII", "ANSI_X3.4-1968"] {
            let xml = |text: &str| format!("<?xml version='1.0' encoding='{label}'?><a>{text}</a>");
            assert_eq!(decode(xml("cafe").as_bytes(), None).unwrap(), xml("cafe"));
            assert_eq!(decode(xml("café").as_bytes(), None).unwrap(), xml("café"));
            let korean = encoding_rs::EUC_KR.encode(&xml("가나다")).0.into_owned();
            assert_eq!(decode(&korean, Some("text/xml; charset=euc-kr")).unwrap(), xml("가나다"));
            let latin = encoding_rs::WINDOWS_1252.encode(&xml("café")).0.into_owned();
            let error = decode(&latin, None).unwrap_err().to_string();
            assert!(error.contains("not valid US-ASCII nor UTF-8"), "{error}");
            assert!(decode("<a>é</a>".as_bytes(), Some(&format!("text/xml; charset={label}"))).is_ok());
        }
    }
}
