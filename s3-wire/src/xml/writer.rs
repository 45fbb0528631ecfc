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
    // U+FFFE and U+FFFF begin with this byte.
    let may_matter = |byte: &u8| matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\'' | 0..=0x1f | 0x7f | 0xef);
    if !text.as_bytes().iter().any(may_matter) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\u{0}'..='\u{1f}' | '\u{7f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("&#x{:X};", c as u32));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}
