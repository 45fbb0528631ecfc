//! Opening a blob whose bytes are all at hand: small blobs, decoders, tests. Memory is the blob's
//! size; range readers use [`BlobOpener`](crate::BlobOpener).

use crate::{
    blob::{BlobId, FormatError, Header, Root, RootPlace, Segment},
    inspect::{self, InspectError, page_range},
    keys::DomainKey,
};
use std::ops::Range;

/// A blob opened from its first byte to its last, everything checked but what the segments decode
/// to.
#[derive(Clone, Debug)]
pub struct WholeBlob {
    /// Its header.
    pub header: Header,
    /// Where its root is.
    pub root_place: RootPlace,
    /// Its root.
    pub root: Root,
    /// Its segment table.
    pub segments: Vec<Segment>,
    /// Its payload; segment `i` is at `segments[i].stored_offset`.
    pub payload: Vec<u8>,
}

/// Opens the blob `bytes`. A key says that it must be sealed, as for
/// [`BlobOpener::new`](crate::BlobOpener::new).
///
/// # Errors
/// [`FormatError`] for anything a decoder must refuse.
pub fn open(bytes: &[u8], expected: BlobId, key: Option<&DomainKey>) -> Result<WholeBlob, FormatError> {
    let read = |range: Range<u64>| slice(bytes, range).map(<[u8]>::to_vec);
    let layout =
        inspect::layout(bytes.len() as u64, Some(expected), |_| key.cloned(), read).map_err(|error| match error {
            InspectError::Format(error) | InspectError::Read(error) => error,
        })?;
    let header = layout.header;
    let manifest = layout.manifest.ok_or(FormatError::Key("the blob is sealed and no key was given"))?;
    let (root, opener) = (manifest.root, manifest.opener);
    let mut checks = Vec::new();
    for place in &root.check_pages {
        checks.extend(opener.open_check_page(place, slice(bytes, page_range(place))?)?);
    }
    let mut payload = Vec::new();
    if root.payload_len > 0 {
        let chunks = opener.chunks_covering(0..root.payload_len);
        payload = read(opener.stored_range(chunks, root.payload_len))?;
        opener.open_chunks(0, root.payload_len, &mut payload, &checks)?;
    }
    Ok(WholeBlob { header, root_place: layout.root_place, root, segments: manifest.segments, payload })
}

fn slice(bytes: &[u8], range: Range<u64>) -> Result<&[u8], FormatError> {
    usize::try_from(range.start)
        .ok()
        .zip(usize::try_from(range.end).ok())
        .and_then(|(start, end)| bytes.get(start..end))
        .ok_or(FormatError::Malformed("a part outside the blob"))
}
