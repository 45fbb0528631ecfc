//! The root: sizes, where the pages are, the base view and the object's facts, as tagged fields
//! (docs/format/blob-v1.md §7).

use crate::{
    error::FormatError,
    fields::{Fields, PutFields},
    geometry::{CHUNKS_MAX, PLAIN_LEN_MAX, chunk_count, segment_count, stored_payload_len},
    header::{BlobKind, HEADER_LEN},
    page::{DIRECTORY_ENTRY_LEN, DirectoryEntry, PagePlace},
    segment::{TableBounds, VIEW_RANGE_LEN, ViewRange, check_view},
};

/// Most bytes of a root, its tag included. Part of the format.
pub const ROOT_LEN_MAX: usize = 1 << 20;

/// Field tags. Part of the format; from `OPTIONAL` up, unknown ones are skipped.
mod tag {
    pub(super) const SIZES: u16 = 0x0001;
    pub(super) const SEGMENT_PAGES: u16 = 0x0002;
    pub(super) const CHECK_PAGES: u16 = 0x0003;
    pub(super) const VIEW: u16 = 0x0004;
    pub(super) const BASE_TAG: u16 = 0x0005;
    pub(super) const OPTIONAL: u16 = 0x8000;
    pub(super) const BUCKET: u16 = 0x8001;
    pub(super) const KEY: u16 = 0x8002;
    pub(super) const VERSION_ID: u16 = 0x8003;
    pub(super) const PART: u16 = 0x8004;
    pub(super) const SHA256: u16 = 0x8005;
    pub(super) const FACTS: u16 = 0x8006;
    pub(super) const SKETCH: u16 = 0x8007;
}

/// Where the root lies in a finished blob, and its tag: what the catalog row keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPlace {
    /// First byte of the root in the blob.
    pub offset: u64,
    /// Its length in bytes, tag included.
    pub len: u32,
    /// Its tag: the GCM tag (suite 1) or XXH3-128 (suite 0).
    pub tag: [u8; 16],
}

/// What the manifest says of the object, so that a blob describes itself (E17, I11).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Bucket name.
    pub bucket: String,
    /// Object key.
    pub key: String,
    /// Version id when known at writing time (a part does not know it).
    pub version_id: Option<[u8; 16]>,
    /// Upload id and part number, for parts.
    pub part: Option<([u8; 16], u32)>,
    /// SHA-256 of the whole plain content, when computed.
    pub sha256: Option<[u8; 32]>,
    /// The catalog's facts of the version (ETag, content headers, user metadata …), opaque here.
    pub facts: Vec<u8>,
    /// The ranking sketch, opaque here; empty when there is none.
    pub sketch: Vec<u8>,
}

/// A blob's opened root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Plain bytes of the content.
    pub plain_len: u64,
    /// Payload bytes (before tags).
    pub payload_len: u64,
    /// Number of segments.
    pub segments: u64,
    /// Pages of the segment table, in order.
    pub segment_pages: Vec<PagePlace>,
    /// Pages of per-chunk checks, in order; empty for suite 1.
    pub check_pages: Vec<PagePlace>,
    /// The base view; empty for whole content.
    pub view: Vec<ViewRange>,
    /// What deltas over this blob must carry: a tag over its id and all segment digests, keyed when
    /// sealed (E10).
    pub base_tag: [u8; 16],
    /// The object's facts.
    pub facts: ObjectFacts,
}

impl Root {
    /// True for whole content, the only kind that may be a base (I2).
    pub fn is_whole(&self) -> bool {
        self.view.is_empty()
    }

    /// Checks that this root is the base a view range names: its base tag (E10), without a view of
    /// its own (I2), long enough. The caller has opened it as the root of blob `range.blob`
    /// already.
    ///
    /// # Errors
    /// [`FormatError::WrongBlob`] when it is not.
    pub fn check_as_base(&self, range: &ViewRange) -> Result<(), FormatError> {
        let within = range.offset.checked_add(range.len).is_some_and(|end| end <= self.plain_len);
        match self.base_tag == range.base_tag && self.is_whole() && within {
            true => Ok(()),
            false => Err(FormatError::WrongBlob),
        }
    }
}

/// What the writer knows when it writes the root.
pub(crate) struct RootFields<'a> {
    pub(crate) plain_len: u64,
    pub(crate) payload_len: u64,
    pub(crate) segment_pages: &'a [DirectoryEntry],
    pub(crate) check_pages: &'a [DirectoryEntry],
    pub(crate) view: &'a [ViewRange],
    pub(crate) base_tag: [u8; 16],
    pub(crate) facts: &'a ObjectFacts,
}

impl RootFields<'_> {
    /// Appends the fields. The caller checks the length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let facts = self.facts;
        put_field(tag::SIZES, out, |out| {
            out.put_u64(self.plain_len);
            out.put_u64(self.payload_len);
            out.put_u64(segment_count(self.plain_len));
        });
        put_field(tag::SEGMENT_PAGES, out, |out| self.segment_pages.iter().for_each(|entry| entry.encode(out)));
        put_field(tag::CHECK_PAGES, out, |out| self.check_pages.iter().for_each(|entry| entry.encode(out)));
        put_field(tag::VIEW, out, |out| self.view.iter().for_each(|range| range.encode(out)));
        put_field(tag::BASE_TAG, out, |out| out.put(&self.base_tag));
        put_field(tag::BUCKET, out, |out| out.put(facts.bucket.as_bytes()));
        put_field(tag::KEY, out, |out| out.put(facts.key.as_bytes()));
        put_field(tag::VERSION_ID, out, |out| facts.version_id.iter().for_each(|id| out.put(id)));
        put_field(tag::PART, out, |out| {
            if let Some((upload, number)) = &facts.part {
                out.put(upload);
                out.put_u32(*number);
            }
        });
        put_field(tag::SHA256, out, |out| facts.sha256.iter().for_each(|sha256| out.put(sha256)));
        put_field(tag::FACTS, out, |out| out.put(&facts.facts));
        put_field(tag::SKETCH, out, |out| out.put(&facts.sketch));
    }
}

/// Appends one field, or nothing when its value is empty.
fn put_field(tag: u16, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(tag);
    out.put_u32(0);
    let value_at = out.len();
    value(out);
    match out.len() - value_at {
        0 => out.truncate(start),
        len => {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            out[start + 2..value_at].copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// Reads the plain bytes of a root that lies at `root_offset` of a blob of this kind whose chunks
/// grow by `overhead` bytes each.
pub(crate) fn decode(plain: &[u8], root_offset: u64, kind: BlobKind, overhead: u64) -> Result<Root, FormatError> {
    let raw = RawFields::decode(plain)?;
    let (plain_len, payload_len, segments) = raw.sizes.ok_or(FormatError::Malformed("a root without sizes"))?;
    if plain_len > PLAIN_LEN_MAX {
        return Err(FormatError::TooLarge("5 GiB of plain content"));
    }
    let chunks = chunk_count(payload_len);
    if chunks > CHUNKS_MAX {
        return Err(FormatError::TooLarge("2^31 chunks"));
    }
    if segments != segment_count(plain_len) || (plain_len == 0) != (payload_len == 0) {
        return Err(FormatError::Malformed("the root's sizes contradict each other"));
    }
    let view_len = check_view(kind, &raw.view)?;
    let bounds = TableBounds { kind, plain_len, payload_len, view_len };
    let mut offset = HEADER_LEN as u64 + stored_payload_len(payload_len, overhead);
    let segment_pages = place_pages(&raw.segment_pages, segments, bounds, &mut offset)?;
    // Suite 1 has its tags beside the chunks.
    let checked_chunks = if overhead == 0 { chunks } else { 0 };
    let check_pages = place_pages(&raw.check_pages, checked_chunks, bounds, &mut offset)?;
    if offset != root_offset {
        return Err(FormatError::Malformed("the parts do not end where the root begins"));
    }
    Ok(Root {
        plain_len,
        payload_len,
        segments,
        segment_pages,
        check_pages,
        view: raw.view,
        base_tag: raw.base_tag.ok_or(FormatError::Malformed("a root without a base tag"))?,
        facts: raw.facts,
    })
}

/// Lays the directory's pages end to end from `offset`; together they must tell about `total` rows.
fn place_pages(
    entries: &[DirectoryEntry],
    total: u64,
    bounds: TableBounds,
    offset: &mut u64,
) -> Result<Vec<PagePlace>, FormatError> {
    let mut first = 0;
    let places = (0..)
        .zip(entries)
        .map(|(index, entry)| {
            let place =
                PagePlace { offset: *offset, len: entry.len, first, count: entry.count, tag: entry.tag, index, bounds };
            // Lengths and counts have 32 bits and a root holds at most 2^16 of them: no overflow.
            *offset += u64::from(entry.len);
            first += u64::from(entry.count);
            place
        })
        .collect();
    match first == total {
        true => Ok(places),
        false => Err(FormatError::Malformed("the pages do not tell about every segment or chunk once")),
    }
}

/// The fields as they stand in the root, each checked alone.
#[derive(Default)]
struct RawFields {
    sizes: Option<(u64, u64, u64)>,
    segment_pages: Vec<DirectoryEntry>,
    check_pages: Vec<DirectoryEntry>,
    view: Vec<ViewRange>,
    base_tag: Option<[u8; 16]>,
    facts: ObjectFacts,
}

impl RawFields {
    fn decode(plain: &[u8]) -> Result<Self, FormatError> {
        let mut raw = Self::default();
        let mut fields = Fields::new(plain);
        let mut previous = 0;
        while !fields.is_empty() {
            let tag = fields.u16()?;
            let len = fields.u32()? as usize;
            if tag <= previous || len == 0 {
                return Err(FormatError::Malformed("the root's fields are not ascending, or one is empty"));
            }
            previous = tag;
            raw.field(tag, fields.take(len)?)?;
        }
        Ok(raw)
    }

    fn field(&mut self, tag: u16, bytes: &[u8]) -> Result<(), FormatError> {
        let mut value = Fields::new(bytes);
        match tag {
            tag::SIZES => self.sizes = Some((value.u64()?, value.u64()?, value.u64()?)),
            tag::SEGMENT_PAGES => self.segment_pages = rows(&mut value, DIRECTORY_ENTRY_LEN, DirectoryEntry::decode)?,
            tag::CHECK_PAGES => self.check_pages = rows(&mut value, DIRECTORY_ENTRY_LEN, DirectoryEntry::decode)?,
            tag::VIEW => self.view = rows(&mut value, VIEW_RANGE_LEN, ViewRange::decode)?,
            tag::BASE_TAG => self.base_tag = Some(value.array()?),
            tag::BUCKET => self.facts.bucket = text(&mut value)?,
            tag::KEY => self.facts.key = text(&mut value)?,
            tag::VERSION_ID => self.facts.version_id = Some(value.array()?),
            tag::PART => self.facts.part = Some((value.array()?, value.u32()?)),
            tag::SHA256 => self.facts.sha256 = Some(value.array()?),
            tag::FACTS => self.facts.facts = value.take(bytes.len())?.to_vec(),
            tag::SKETCH => self.facts.sketch = value.take(bytes.len())?.to_vec(),
            unknown if unknown >= tag::OPTIONAL => return Ok(()),
            _ => return Err(FormatError::Malformed("the root has a field that must be understood and is not known")),
        }
        value.end()
    }
}

fn rows<T>(
    value: &mut Fields<'_>,
    row_len: usize,
    decode: impl Fn(&mut Fields<'_>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    let mut rows = Vec::with_capacity(value.len() / row_len);
    while !value.is_empty() {
        rows.push(decode(value)?);
    }
    Ok(rows)
}

fn text(value: &mut Fields<'_>) -> Result<String, FormatError> {
    let bytes = value.take(value.len())?;
    String::from_utf8(bytes.to_vec()).map_err(|_| FormatError::Malformed("text that is not UTF-8"))
}
