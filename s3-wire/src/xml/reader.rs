//! A pull parser over quick-xml that knows only what S3's request documents need: elements and
//! text. Everything that makes XML dangerous is refused: DOCTYPE, entities other than the five
//! predefined ones, depth past what any S3 document has.

use crate::error::{ErrorCode, Result, S3Error};
use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

/// The deepest element of any request document is at 4.
const DEPTH_MAX: usize = 8;
/// The longest text of one element: a key of 1,024 bytes, and room to say what is wrong with a
/// longer one.
const TEXT_BYTES_MAX: usize = 4096;

/// The elements of one document, read in order. Attributes are not looked at: no S3 document's
/// meaning lies in them. Time is linear in the document, memory is one text.
pub(crate) struct Elements<'d> {
    reader: Reader<&'d [u8]>,
    depth: usize,
}

/// What comes next inside an element.
enum Next<'d> {
    Open(String),
    Text(std::borrow::Cow<'d, str>),
    Close,
}

impl<'d> Elements<'d> {
    /// Reads a document whose root is `root`; `inside` must read the root's content to its end.
    ///
    /// # Errors
    /// `MalformedXML`, and those of `inside`.
    pub(crate) fn parse(document: &'d [u8], root: &str, inside: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let document = std::str::from_utf8(document).map_err(|_| malformed())?;
        let document = document.strip_prefix('\u{feff}').unwrap_or(document);
        let mut reader = Reader::from_str(document);
        reader.config_mut().expand_empty_elements = true;
        let mut elements = Elements { reader, depth: 0 };
        match elements.next_outside()? {
            Some(name) if name == root => inside(&mut elements)?,
            _ => return Err(malformed()),
        }
        match elements.next_outside()? {
            None if elements.depth == 0 => Ok(()),
            _ => Err(malformed()),
        }
    }

    /// Calls `each` for every child element; it must read the child to its end. Text between
    /// children must be white space.
    pub(crate) fn children(&mut self, mut each: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        loop {
            match self.next()? {
                Next::Open(name) => each(self, &name)?,
                Next::Text(text) if text.chars().all(|c| c.is_ascii_whitespace()) => {}
                Next::Text(_) => return Err(malformed()),
                Next::Close => return Ok(()),
            }
        }
    }

    /// The text of the current element, exactly; there must be no element in it.
    pub(crate) fn text(&mut self) -> Result<String> {
        let mut out = String::new();
        loop {
            match self.next()? {
                Next::Open(_) => return Err(malformed()),
                Next::Text(text) if out.len() + text.len() > TEXT_BYTES_MAX => return Err(malformed()),
                Next::Text(text) => out.push_str(&text),
                Next::Close => return Ok(out),
            }
        }
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Result<bool> {
        match self.text()?.trim() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(malformed()),
        }
    }

    /// Reads over the current element.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let depth = self.depth;
        while self.depth >= depth {
            self.next()?;
        }
        Ok(())
    }

    /// The next thing inside an element.
    fn next(&mut self) -> Result<Next<'d>> {
        loop {
            match self.reader.read_event().map_err(|_| malformed())? {
                Event::Start(start) => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(malformed()); // C71
                    }
                    return Ok(Next::Open(start.local_name().into_inner().to_owned()));
                }
                Event::End(_) => {
                    self.depth = self.depth.checked_sub(1).ok_or_else(malformed)?;
                    return Ok(Next::Close);
                }
                Event::Text(text) => return Ok(Next::Text(text.to_string().into())),
                Event::CData(data) => return Ok(Next::Text(data.to_string().into())),
                Event::GeneralRef(reference) => {
                    if let Some(c) = reference.resolve_char_ref().map_err(|_| malformed())? {
                        return Ok(Next::Text(c.to_string().into()));
                    }
                    // Any other entity would have to be declared, and declarations are refused
                    // (C70).
                    let text = resolve_predefined_entity(&reference).ok_or_else(malformed)?;
                    return Ok(Next::Text(text.into()));
                }
                Event::Comment(_) | Event::PI(_) => {}
                Event::Decl(_) | Event::DocType(_) | Event::Empty(_) | Event::Eof => return Err(malformed()),
            }
        }
    }

    /// The name of the element opened next outside the root; `None` at the end of the document.
    fn next_outside(&mut self) -> Result<Option<String>> {
        loop {
            match self.reader.read_event().map_err(|_| malformed())? {
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
                Event::Text(text) if text.chars().all(|c| c.is_ascii_whitespace()) => {}
                Event::Start(start) => {
                    self.depth += 1;
                    return Ok(Some(start.local_name().into_inner().to_owned()));
                }
                Event::Eof => return Ok(None),
                _ => return Err(malformed()),
            }
        }
    }
}

/// The answer to a document that S3 would not take.
pub(crate) fn malformed() -> S3Error {
    S3Error::new(ErrorCode::MalformedXML)
}
