//! A unit as it is stored: where its base lies, the delta of its text, its parse.
//!
//! Part of the format (docs/format/deflate-view-v1.md §3).

use crate::Malformed;
use crate::gaps::Gaps;
use crate::numbers::{put, take, take_up_to};
use crate::unit::{TEXT_LEN_MAX, UNIT_LEN_MAX};

/// The form of a unit with one parse. Part of the format.
const FORM: u8 = 1;
/// The form of a unit with streams in the plain text of streams, its own or the base's. Part of the
/// format.
const FORM_NESTED: u8 = 2;
/// What is added to either where the unit has gaps. Part of the format.
const WITH_GAPS: u8 = 2;
/// Most parts of a base that one unit may need. Part of the format.
pub const PARTS_MAX: usize = 1 << 16;
/// Most bytes of a base that one unit may need: what delta-v1 allows. Part of the format.
pub const FOOTPRINT_LEN_MAX: usize = 32 << 20;
/// Most bytes of a nested stream, and most plain bytes of it before a part. Part of the format.
pub const NESTED_LEN_MAX: usize = 8 << 20;

/// A run of a base, named by places in the base object alone: no index has to be kept for it to
/// mean something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BasePart {
    /// The object's own bytes.
    Object {
        /// The object's bytes before it.
        at: u64,
        /// Bytes.
        len: u32,
    },
    /// Plain text of a deflate stream.
    Plain {
        /// The object's bytes before the stream's first.
        stream_at: u64,
        /// Plain bytes of the stream before it.
        plain_at: u64,
        /// Plain bytes.
        len: u32,
    },
    /// Plain text of a deflate stream that lies in the plain text of another. Only in a unit of
    /// form 2 or 4.
    Nested {
        /// The object's bytes before the outer stream's first.
        stream_at: u64,
        /// Plain bytes of the outer stream before the nested one's first.
        nested_at: u64,
        /// Bytes of the nested stream.
        nested_len: u32,
        /// Plain bytes of the nested stream before it.
        plain_at: u64,
        /// Plain bytes.
        len: u32,
    },
}

impl BasePart {
    /// Bytes.
    pub fn len(&self) -> u32 {
        match self {
            Self::Object { len, .. } | Self::Plain { len, .. } | Self::Nested { len, .. } => *len,
        }
    }

    /// True for a part of no bytes, which is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self) -> u64 {
        match self {
            Self::Object { at, .. } => *at,
            Self::Plain { stream_at, .. } | Self::Nested { stream_at, .. } => *stream_at,
        }
    }
}

/// One unit, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUnit<'a> {
    /// Bytes of the object: 1 to [`UNIT_LEN_MAX`].
    pub object_len: usize,
    /// Bytes of text: 1 to [`TEXT_LEN_MAX`].
    pub text_len: usize,
    /// The base of the text, part after part, in the order of the object.
    pub parts: Vec<BasePart>,
    /// The text as a delta (docs/format/delta-v1.md) over the parts' bytes.
    pub delta: &'a [u8],
    /// The parse.
    pub parse: &'a [u8],
    /// Where gaps lie in the object's bytes, in forms 3 and 4.
    pub gaps: Gaps,
    /// In forms 2 and 4, what makes of the text the one that the parse is of.
    pub nested: Option<NestedParse<'a>>,
}

/// The parse of streams that lie in the plain text of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NestedParse<'a> {
    /// Bytes of text that it gives: 1 to [`TEXT_LEN_MAX`].
    pub outer_len: usize,
    /// Its bytes.
    pub parse: &'a [u8],
}

impl<'a> StoredUnit<'a> {
    /// Appends the unit's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let form = if self.nested.is_some() { FORM_NESTED } else { FORM };
        out.push(form + if self.gaps.is_empty() { 0 } else { WITH_GAPS });
        put(out, self.object_len as u64);
        if let Some(nested) = &self.nested {
            put(out, nested.outer_len as u64);
        }
        put(out, self.text_len as u64);
        if !self.gaps.is_empty() {
            self.gaps.write(out);
        }
        put(out, self.parts.len() as u64);
        let mut last = 0;
        for part in &self.parts {
            let further = part.place() - last;
            last = part.place();
            match *part {
                BasePart::Object { len, .. } => {
                    put(out, further << 2);
                    put(out, len.into());
                }
                BasePart::Plain { plain_at: 0, len, .. } => {
                    put(out, further << 2 | 1);
                    put(out, len.into());
                }
                BasePart::Plain { plain_at, len, .. } => {
                    put(out, further << 2 | 2);
                    put(out, plain_at);
                    put(out, len.into());
                }
                BasePart::Nested { nested_at, nested_len, plain_at, len, .. } => {
                    put(out, further << 2 | 3);
                    put(out, nested_at);
                    put(out, nested_len.into());
                    put(out, plain_at);
                    put(out, len.into());
                }
            }
        }
        if let Some(nested) = &self.nested {
            put(out, nested.parse.len() as u64);
        }
        put(out, self.delta.len() as u64);
        out.extend_from_slice(self.delta);
        out.extend_from_slice(self.nested.map_or(&[], |nested| nested.parse));
        out.extend_from_slice(self.parse);
    }

    /// Takes a unit apart. Nothing of delta and parse is looked at.
    ///
    /// # Errors
    /// [`Malformed`] for what the format document tells a decoder to refuse.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = bytes;
        let (&form, behind) = rest.split_first().ok_or(Malformed("a unit ends early"))?;
        let (is_nested, has_gaps) = match form {
            FORM | FORM_NESTED => (form == FORM_NESTED, false),
            _ if form == FORM + WITH_GAPS => (false, true),
            _ if form == FORM_NESTED + WITH_GAPS => (true, true),
            _ => return Err(Malformed("a unit of unknown form")),
        };
        rest = behind;
        let object_len = take_up_to(&mut rest, UNIT_LEN_MAX)?;
        let outer_len = if is_nested { take_up_to(&mut rest, TEXT_LEN_MAX)? } else { 1 };
        let text_len = take_up_to(&mut rest, TEXT_LEN_MAX)?;
        if object_len == 0 || text_len == 0 || outer_len == 0 {
            return Err(Malformed("a unit of nothing"));
        }
        let gaps = if has_gaps { Gaps::read(&mut rest, object_len as u64)? } else { Gaps::default() };
        let parts = read_parts(&mut rest, is_nested)?;
        let nested_len = if is_nested { take_up_to(&mut rest, bytes.len())? } else { 0 };
        let delta_len = take_up_to(&mut rest, bytes.len())?;
        let (delta, parse) = rest.split_at_checked(delta_len).ok_or(Malformed("a unit ends early"))?;
        let (nested, parse) = parse.split_at_checked(nested_len).ok_or(Malformed("a unit ends early"))?;
        let nested = is_nested.then_some(NestedParse { outer_len, parse: nested });
        Ok(Self { object_len, text_len, parts, delta, parse, gaps, nested })
    }
}

fn read_parts(rest: &mut &[u8], is_nested: bool) -> Result<Vec<BasePart>, Malformed> {
    let count = take_up_to(rest, PARTS_MAX)?;
    let mut parts = Vec::with_capacity(count.min(1024));
    let (mut place, mut total) = (0u64, 0usize);
    for _ in 0..count {
        let head = take(rest)?;
        place = place.checked_add(head >> 2).ok_or(Malformed("a part past every object"))?;
        let (mut nested_at, mut nested_len) = (0, 0);
        let plain_at = match head & 3 {
            2 => Some(take(rest)?).filter(|at| *at > 0).ok_or(Malformed("a number in the wrong form"))?,
            3 if is_nested => {
                (nested_at, nested_len) = (take(rest)?, take_up_to(rest, NESTED_LEN_MAX)?);
                take_up_to(rest, NESTED_LEN_MAX)? as u64
            }
            3 => return Err(Malformed("a part of unknown kind")),
            _ => 0,
        };
        let len = take_up_to(rest, FOOTPRINT_LEN_MAX)? as u32;
        // A nested stream is read from its start, out of plain text that is opened for it.
        let read_before = if head & 3 == 3 { plain_at as usize + nested_len } else { 0 };
        total += len as usize + read_before;
        let is_empty = len == 0 || (head & 3 == 3 && nested_len == 0);
        let ends = [plain_at.checked_add(len.into()), nested_at.checked_add(nested_len as u64)];
        if is_empty || total > FOOTPRINT_LEN_MAX || ends.contains(&None) {
            return Err(Malformed("a part of impossible length"));
        }
        parts.push(match head & 3 {
            0 => BasePart::Object { at: place, len },
            3 => BasePart::Nested { stream_at: place, nested_at, nested_len: nested_len as u32, plain_at, len },
            _ => BasePart::Plain { stream_at: place, plain_at, len },
        });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = (u64, u8, u64, u32)> {
        (0u64..1 << 40, 0u8..3, 0u64..1 << 18, 1u32..1 << 16)
    }

    proptest! {
        #[test]
        fn a_unit_comes_back(
            lens in (prop_oneof![1usize..3000, 1..=UNIT_LEN_MAX], 1usize..=TEXT_LEN_MAX),
            parts in prop::collection::vec(part(), 0..40),
            delta in prop::collection::vec(any::<u8>(), 0..100),
            parse in prop::collection::vec(any::<u8>(), 0..100),
            nested in prop::option::of((1usize..=TEXT_LEN_MAX, prop::collection::vec(any::<u8>(), 0..100))),
            pieces in prop::collection::vec((1u32..200, 1u32..20), 0..9),
        ) {
            let mut at = 0;
            let mut has_nested = false;
            let one = |(further, kind, plain_at, len)| {
                at += further;
                has_nested |= kind == 2;
                match kind {
                    0 => BasePart::Object { at, len },
                    1 => BasePart::Plain { stream_at: at, plain_at, len },
                    _ => BasePart::Nested { stream_at: at, nested_at: further, nested_len: len, plain_at, len },
                }
            };
            let parts: Vec<_> = parts.into_iter().map(one).collect();
            let nested = nested.as_ref().map(|(outer_len, parse)| NestedParse { outer_len: *outer_len, parse });
            let mut gaps = Gaps::default();
            let last_gap_ends: u32 = pieces.iter().map(|(piece, gap)| piece + gap).sum();
            pieces.into_iter().for_each(|(piece, gap)| gaps.push(piece, gap));
            let is_allowed = (nested.is_some() || !has_nested) && last_gap_ends as usize <= lens.0;
            let unit = StoredUnit { object_len: lens.0, text_len: lens.1, parts, delta: &delta, parse: &parse, gaps, nested };
            let mut bytes = Vec::new();
            unit.write(&mut bytes);
            prop_assert_eq!(StoredUnit::read(&bytes).ok(), is_allowed.then_some(unit));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = FORM + (*first & 3);
            }
            let _ = StoredUnit::read(&bytes);
        }
    }
}
