//! What a stored blob consists of, read part by part: for `inspect`, scrubbing and rebuilding
//! without a catalog.

use crate::blob::{
    BlobId, BlobOpener, FormatError, HEADER_LEN, Header, PagePlace, Root, RootPlace, Segment, Suite, TRAILER_LEN,
};
use crate::keys::DomainKey;
use std::ops::Range;
use thiserror::Error;

/// The parts of one blob, without its content.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Bytes of the whole blob.
    pub stored_len: u64,
    /// Its header.
    pub header: Header,
    /// Where its root is, as the trailer says.
    pub root_place: RootPlace,
    /// What only the key shows; `None` for a sealed blob whose key was not given.
    pub manifest: Option<Manifest>,
}

/// A blob's opened manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Its root.
    pub root: Root,
    /// All rows of its segment table.
    pub segments: Vec<Segment>,
    /// Opens its chunks.
    pub opener: BlobOpener,
}

/// Why a blob could not be inspected.
#[derive(Debug, Error)]
pub enum InspectError<E> {
    /// The bytes are not a blob of the documented form.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The callback failed.
    #[error("reading the blob: {0}")]
    Read(E),
}

/// Reads the layout of a blob of `stored_len` bytes through `read_at`, which gives exactly the
/// bytes of a range. With `expected`, a blob of another id is refused (I5). `key_of` gives the
/// domain key that a header names when the blob must be sealed, as for [`BlobOpener::new`]; without
/// a key the layout of a sealed blob has no manifest. Every table row is checked, all together also
/// against the base tag.
///
/// Costs one read each for header, trailer and root, and one per page.
///
/// # Errors
/// [`InspectError::Format`] for anything a decoder must refuse, [`InspectError::Read`] when
/// `read_at` fails.
pub fn layout<E>(
    stored_len: u64,
    expected: Option<BlobId>,
    key_of: impl FnOnce(&Header) -> Option<DomainKey>,
    mut read_at: impl FnMut(Range<u64>) -> Result<Vec<u8>, E>,
) -> Result<Layout, InspectError<E>> {
    if stored_len < (HEADER_LEN + TRAILER_LEN) as u64 {
        return Err(FormatError::Malformed("shorter than a header and a trailer").into());
    }
    let mut read = |range: Range<u64>| read_at(range).map_err(InspectError::Read);
    let header = Header::decode(&read(0..HEADER_LEN as u64)?)?;
    let key = key_of(&header);
    let expected = expected.unwrap_or(header.blob_id);
    let opener = match (header.suite, &key) {
        (Suite::Aes256Gcm, None) if header.blob_id == expected => None,
        _ => Some(BlobOpener::new(&header, expected, key.as_ref())?),
    };
    let root_place = BlobOpener::root_place(&read(stored_len - TRAILER_LEN as u64..stored_len)?, stored_len)?;
    let Some(opener) = opener else {
        return Ok(Layout { stored_len, header, root_place, manifest: None });
    };
    let bytes = read(root_place.offset..root_place.offset + u64::from(root_place.len))?;
    let root = opener.open_root(&root_place, &bytes)?;
    let mut segments: Vec<Segment> = Vec::new();
    for place in &root.segment_pages {
        let rows = opener.open_segment_page(place, &read(page_range(place))?)?;
        let end = segments.last().map_or(0, |last| last.stored_offset + u64::from(last.stored_len));
        if rows.first().is_some_and(|row| row.stored_offset != end) {
            return Err(FormatError::Malformed("segments do not tile the payload").into());
        }
        segments.extend(rows);
    }
    if opener.base_tag(root.plain_len, segments.iter().map(|segment| &segment.digest)) != root.base_tag {
        return Err(FormatError::Integrity("the base tag is not of these segments").into());
    }
    Ok(Layout { stored_len, header, root_place, manifest: Some(Manifest { root, segments, opener }) })
}

pub(crate) fn page_range(place: &PagePlace) -> Range<u64> {
    place.offset..place.offset + u64::from(place.len)
}
