//! A thin layer over quick-xml's writer: elements in order, text escaped so that every key gives
//! well-formed XML.

use super::{DECLARATION, NAMESPACE};
use bytes::Bytes;
use quick_xml::{
    Writer,
    events::{BytesEnd, BytesStart, BytesText, Event},
};
use std::borrow::Cow;

/// Something that can be written as an XML document.
pub trait Document {
    /// Writes the root element and what is in it.
    fn write(&self, xml: &mut XmlWriter);

    /// About how many bytes that makes: room for so many is taken at once.
    fn len_hint(&self) -> usize {
        512
    }

    /// The document with its declaration.
    fn to_bytes(&self) -> Bytes {
        let mut xml = XmlWriter::with_prefix(DECLARATION, self.len_hint());
        self.write(&mut xml);
        xml.finish()
    }

    /// The document without its declaration, for answers that have sent it already.
    fn to_bytes_bare(&self) -> Bytes {
        let mut xml = XmlWriter::with_prefix("", self.len_hint());
        self.write(&mut xml);
        xml.finish()
    }
}

/// Writes one document. Elements are opened and closed in order; unknown to it is what they mean.
pub struct XmlWriter {
    writer: Writer<Vec<u8>>,
    open: Vec<&'static str>,
}

impl XmlWriter {
    fn with_prefix(prefix: &str, len_hint: usize) -> Self {
        let mut document = Vec::with_capacity(prefix.len() + len_hint);
        document.extend_from_slice(prefix.as_bytes());
        Self { writer: Writer::new(document), open: Vec::new() }
    }

    fn finish(self) -> Bytes {
        debug_assert!(self.open.is_empty(), "every element is closed");
        Bytes::from(self.writer.into_inner())
    }

    fn event(&mut self, event: Event<'_>) {
        self.writer.write_event(event).expect("writing into a Vec cannot fail");
    }

    /// Opens an element.
    pub fn open(&mut self, name: &'static str) {
        self.event(Event::Start(BytesStart::new(name)));
        self.open.push(name);
    }

    /// Opens an element with attributes.
    pub fn open_with<'a>(&mut self, name: &'static str, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.event(Event::Start(BytesStart::new(name).with_attributes(attributes)));
        self.open.push(name);
    }

    /// Opens a root element in S3's namespace.
    pub fn open_root(&mut self, name: &'static str) {
        self.event(Event::Start(BytesStart::new(name).with_attributes([("xmlns", NAMESPACE)])));
        self.open.push(name);
    }

    /// Closes the element opened last.
    pub fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            self.event(Event::End(BytesEnd::new(name)));
        }
    }

    /// Writes `<name>text</name>`.
    pub fn text(&mut self, name: &'static str, text: &str) {
        self.event(Event::Start(BytesStart::new(name)));
        self.event(Event::Text(BytesText::from_escaped(escape(text))));
        self.event(Event::End(BytesEnd::new(name)));
    }

    /// Writes `<name>text</name>` with the quotes of the text as they are, as S3 writes messages:
    /// some clients look for what stands between them without a parser.
    pub fn message(&mut self, name: &'static str, text: &str) {
        self.event(Event::Start(BytesStart::new(name)));
        let escaped = escape(text).replace("&quot;", "\"").replace("&apos;", "'");
        self.event(Event::Text(BytesText::from_escaped(escaped)));
        self.event(Event::End(BytesEnd::new(name)));
    }

    /// Writes text into the element opened last.
    pub fn characters(&mut self, text: &str) {
        self.event(Event::Text(BytesText::from_escaped(escape(text))));
    }

    /// Writes `<name>value</name>` for anything that prints.
    pub fn value(&mut self, name: &'static str, value: impl std::fmt::Display) {
        self.text(name, &value.to_string());
    }

    /// Writes the element only when there is a value.
    pub fn optional(&mut self, name: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }
}

/// Escapes text so that a parser gives it back unchanged where XML 1.0 can carry it at all. White
/// space that a parser would normalise (`\t`, `\n`, `\r`) becomes a character reference. The other
/// control characters and U+FFFE/U+FFFF cannot stand in an XML 1.0 document in any form; like S3
/// they are written as references (`&#x1;`), which lenient parsers read; clients that list such
/// keys ask for `encoding-type=url` (C73).
fn escape(text: &str) -> Cow<'_, str> {
    let next = |text: &str| text.bytes().position(|byte| MAY_MATTER[usize::from(byte)]);
    let Some(mut at) = next(text) else { return Cow::Borrowed(text) };
    let (mut out, mut rest) = (String::with_capacity(text.len() + 16), text);
    loop {
        out.push_str(&rest[..at]);
        let mut after = rest[at..].chars();
        match after.next() {
            Some('&') => out.push_str("&amp;"),
            Some('<') => out.push_str("&lt;"),
            Some('>') => out.push_str("&gt;"),
            Some('"') => out.push_str("&quot;"),
            Some('\'') => out.push_str("&apos;"),
            Some(c @ ('\u{0}'..='\u{1f}' | '\u{7f}' | '\u{fffe}' | '\u{ffff}')) => {
                out.push_str(&format!("&#x{:X};", c as u32));
            }
            c => out.extend(c),
        }
        rest = after.as_str();
        match next(rest) {
            Some(found) => at = found,
            None => break,
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Bytes that a character which is escaped begins with.
const MAY_MATTER: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = 0_u8;
    loop {
        // U+FFFE and U+FFFF begin with the last of them.
        bytes[byte as usize] = matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\'' | 0..=0x1f | 0x7f | 0xef);
        match byte.checked_add(1) {
            Some(following) => byte = following,
            None => break bytes,
        }
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_character_is_escaped_for_itself(text in "[a-c&<>\"'\\x00-\\x1f\\x7fé\u{ffef}\u{fffd}-\u{ffff}]{0,40}") {
            let one_by_one: String = text.chars().map(|c| escape(&c.to_string()).into_owned()).collect();
            prop_assert_eq!(&escape(&text), &one_by_one);
            let none = ['<', '>', '"', '\'', '\u{0}', '\n', '\u{7f}', '\u{fffe}', '\u{ffff}'];
            prop_assert!(!one_by_one.contains(none), "{one_by_one}");
        }
    }
}
