//! Table pages: runs of segment rows or chunk checks, each page authenticated alone
//! (docs/format/blob-v1.md §6).

use crate::{
    error::FormatError,
    fields::{Fields, PutFields},
    segment::{Segment, TableBounds},
    unit::{Protection, Unit},
};
use crypto::aead::TAG_LEN;

/// Most bytes of a page, its tag included. Part of the format.
pub const PAGE_LEN_MAX: usize = 64 << 10;
const SEGMENT_PAGE_START: usize = 24;
const CHECK_PAGE_START: usize = 16;
/// Checks in every page but the last, as this crate writes them.
const CHECKS_PER_PAGE: usize = (PAGE_LEN_MAX - CHECK_PAGE_START - TAG_LEN) / TAG_LEN;
/// Bytes of a page's entry in the root's directory. Part of the format.
pub(crate) const DIRECTORY_ENTRY_LEN: usize = 24;

/// The check of one suite-0 chunk: XXH3-128 of its bytes and place.
pub type ChunkCheck = [u8; TAG_LEN];

/// Where one table page lies and how it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// First byte in the blob.
    pub offset: u64,
    /// Length in bytes, tag included.
    pub len: u32,
    /// First segment (segment page) or chunk (check page) it tells about.
    pub first: u64,
    /// How many it tells about.
    pub count: u32,
    /// Its tag, as in [`crate::RootPlace::tag`].
    pub tag: [u8; TAG_LEN],
    /// Its number among the pages of its kind: part of what it is sealed with.
    pub(crate) index: u32,
    /// What its rows must agree with.
    pub(crate) bounds: TableBounds,
}

/// A page's entry in the directory: everything that does not follow from the entries before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    pub(crate) len: u32,
    pub(crate) count: u32,
    pub(crate) tag: [u8; TAG_LEN],
}

impl DirectoryEntry {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, FormatError> {
        let entry = Self { len: fields.u32()?, count: fields.u32()?, tag: fields.array()? };
        if entry.len as usize > PAGE_LEN_MAX {
            return Err(FormatError::TooLarge("64 KiB of table page"));
        }
        if entry.count == 0 || (entry.len as usize) < TAG_LEN {
            return Err(FormatError::Malformed("an empty table page"));
        }
        Ok(entry)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.len);
        out.put_u32(self.count);
        out.put(&self.tag);
    }
}

/// Appends the pages of the segment table. The table was checked.
pub(crate) fn write_segment_pages(
    protection: &Protection,
    segments: &[Segment],
    out: &mut Vec<u8>,
) -> Vec<DirectoryEntry> {
    let mut entries = Vec::new();
    let (mut first, mut left) = (0, segments);
    while let Some(head) = left.first() {
        let mut room = PAGE_LEN_MAX - SEGMENT_PAGE_START - TAG_LEN;
        let count = left
            .iter()
            .take_while(|segment| {
                let fits = segment.row_len() <= room;
                room = room.saturating_sub(segment.row_len());
                fits
            })
            .count();
        let (rows, rest) = left.split_at(count);
        entries.push(write_page(protection, Unit::SegmentPage, entries.len(), count, out, |out| {
            put_page_start(first, count, out);
            out.put_u64(head.stored_offset);
            rows.iter().for_each(|segment| segment.encode(out));
        }));
        first += count as u64;
        left = rest;
    }
    entries
}

/// Appends the pages of chunk checks.
pub(crate) fn write_check_pages(
    protection: &Protection,
    checks: &[ChunkCheck],
    out: &mut Vec<u8>,
) -> Vec<DirectoryEntry> {
    let mut entries = Vec::new();
    for (page, checks) in checks.chunks(CHECKS_PER_PAGE).enumerate() {
        entries.push(write_page(protection, Unit::CheckPage, page, checks.len(), out, |out| {
            put_page_start((page * CHECKS_PER_PAGE) as u64, checks.len(), out);
            out.put(checks.as_flattened());
        }));
    }
    entries
}

fn write_page(
    protection: &Protection,
    unit: Unit,
    index: usize,
    count: usize,
    out: &mut Vec<u8>,
    rows: impl FnOnce(&mut Vec<u8>),
) -> DirectoryEntry {
    let start = out.len();
    rows(out);
    let tag = protection.close(unit, small(index), out, start);
    DirectoryEntry { len: small(out.len() - start), count: small(count), tag }
}

fn put_page_start(first: u64, count: usize, out: &mut Vec<u8>) {
    out.put_u64(first);
    out.put_u32(small(count));
    out.put_u32(0);
}

fn small(value: usize) -> u32 {
    u32::try_from(value).expect("a blob's tables are far smaller than 4 GiB: its chunks are counted in 31 bits")
}

/// Opens a page of the segment table and checks its rows against each other and the root.
pub(crate) fn open_segment_page(
    protection: &Protection,
    place: &PagePlace,
    stored: &[u8],
) -> Result<Vec<Segment>, FormatError> {
    let plain = open_page(protection, Unit::SegmentPage, place, stored)?;
    let mut fields = page_start(place, &plain)?;
    let mut stored_offset = fields.u64()?;
    if place.first == 0 && stored_offset != 0 {
        return Err(FormatError::Malformed("the first segment does not start where the payload does"));
    }
    // A forged count cannot allocate more than the page has rows for.
    let mut segments = Vec::with_capacity((place.count as usize).min(fields.len()));
    for number in (place.first..).take(place.count as usize) {
        let segment = Segment::decode(&mut fields, stored_offset)?;
        stored_offset = place.bounds.check(number, stored_offset, &segment)?;
        segments.push(segment);
    }
    fields.end()?;
    Ok(segments)
}

/// Opens a page of chunk checks.
pub(crate) fn open_check_page(
    protection: &Protection,
    place: &PagePlace,
    stored: &[u8],
) -> Result<Vec<ChunkCheck>, FormatError> {
    if protection.is_sealed() {
        return Err(FormatError::Malformed("sealed blobs have no pages of checks"));
    }
    let plain = open_page(protection, Unit::CheckPage, place, stored)?;
    let mut fields = page_start(place, &plain)?;
    if fields.len() != place.count as usize * TAG_LEN {
        return Err(FormatError::Malformed("a page of checks with another number of them"));
    }
    (0..place.count).map(|_| fields.array()).collect()
}

fn open_page(protection: &Protection, unit: Unit, place: &PagePlace, stored: &[u8]) -> Result<Vec<u8>, FormatError> {
    if stored.len() != place.len as usize || stored.len() > PAGE_LEN_MAX {
        return Err(FormatError::Malformed("a page of another length"));
    }
    open_tagged(protection, unit, place.index, &place.tag, stored)
}

/// Opens a page or root that ends with its tag, which must be the one its place names.
pub(crate) fn open_tagged(
    protection: &Protection,
    unit: Unit,
    index: u32,
    expected_tag: &[u8; TAG_LEN],
    stored: &[u8],
) -> Result<Vec<u8>, FormatError> {
    let (body, tag) = stored.split_last_chunk().ok_or(FormatError::Malformed("shorter than a tag"))?;
    if tag != expected_tag {
        return Err(FormatError::Integrity("a page or root with another tag than its place names"));
    }
    let mut plain = body.to_vec();
    protection.open(unit, index, &mut plain, tag)?;
    Ok(plain)
}

fn page_start<'a>(place: &PagePlace, plain: &'a [u8]) -> Result<Fields<'a>, FormatError> {
    let mut fields = Fields::new(plain);
    if (fields.u64()?, fields.u32()?) != (place.first, place.count) {
        return Err(FormatError::Malformed("a page about other rows than the directory says"));
    }
    fields.zero(4)?;
    Ok(fields)
}
