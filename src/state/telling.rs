//! JSON by hand, for the two records of which there is one for every key: the baseline's and the journal's. The bytes are
//! those serde would write, in a fraction of the time, but for hashes, which are shorter; what is neither a text, a hash nor a
//! place is left to serde.

use serde::Serialize;
use serde_json::Result;

use super::Pointer;
use crate::record::Fingerprint;
use crate::shape::canonical;

/// A JSON object while its members are told, one by one.
pub struct Object<'a> {
    to: &'a mut Vec<u8>,
    begun: bool,
}

impl<'a> Object<'a> {
    pub fn begin(to: &'a mut Vec<u8>) -> Self {
        to.push(b'{');
        Object { to, begun: false }
    }

    pub fn end(self) {
        self.to.push(b'}');
    }

    fn name(&mut self, name: &str) {
        self.to.extend_from_slice(if self.begun { b",\"" } else { b"\"" });
        self.to.extend_from_slice(name.as_bytes());
        self.to.extend_from_slice(b"\":");
        self.begun = true;
    }

    pub fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        canonical::write_string(self.to, text);
    }

    pub fn print(&mut self, name: &str, print: &Fingerprint) {
        self.name(name);
        write_print(self.to, print);
    }

    /// `run:batch:index`.
    pub fn pointer(&mut self, name: &str, Pointer { run, batch, index }: &Pointer) {
        self.text(name, run);
        // It goes on before the closing quote.
        self.to.pop();
        for number in [*batch, *index] {
            self.to.push(b':');
            canonical::write_integer(self.to, number.into());
        }
        self.to.push(b'"');
    }

    pub fn set(&mut self, name: &str) {
        self.name(name);
        self.to.extend_from_slice(b"true");
    }

    pub fn object(&mut self, name: &str) -> Object<'_> {
        self.name(name);
        Object::begin(self.to)
    }

    /// A value that is told in its own way.
    pub fn any_told(&mut self, name: &str, tell: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        self.name(name);
        tell(self.to)
    }

    /// Whatever serde makes of it.
    pub fn any<T: Serialize>(&mut self, name: &str, value: &T) -> Result<()> {
        self.name(name);
        serde_json::to_writer(&mut *self.to, value)
    }
}

/// A hash as a text. Its letters need no look for what is to be escaped.
pub fn write_print(to: &mut Vec<u8>, print: &Fingerprint) {
    to.push(b'"');
    print.with_letters(|letters| to.extend_from_slice(letters));
    to.push(b'"');
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    #[test]
    fn members_are_told_as_serde_tells_them() {
        for text in ["", "plain/ä €/key", "a\"b", "a\\b", "line\nend", "\u{0}\u{1f}", "\u{7f}\u{2028}", "🦀"]
        {
            for number in [0, 9, 10, 1_000, u32::MAX] {
                let pointer = Pointer { run: text.into(), batch: number, index: 0 };
                let mut told = Vec::new();
                let mut object = Object::begin(&mut told);
                object.text("t", text);
                object.pointer("p", &pointer);
                object.print("f", &Fingerprint::of(text.as_bytes()));
                object.set("s");
                object.object("o").end();
                object.end();
                let told = String::from_utf8(told).unwrap();
                let print = Fingerprint::of(text.as_bytes());
                let letters = URL_SAFE_NO_PAD.encode(print.0);
                assert_eq!(serde_json::from_str::<Fingerprint>(&format!("\"{letters}\"")).unwrap(), print);
                let [text, pointer] = [serde_json::to_string(text), serde_json::to_string(&pointer)]
                    .map(std::result::Result::unwrap);
                let wanted = format!(r#"{{"t":{text},"p":{pointer},"f":"{letters}","s":true,"o":{{}}}}"#);
                assert_eq!(told, wanted);
            }
        }
    }
}
