//! Segments, their codings and what deltas are over: the rows of the segment table and the base
//! view.

use crate::{
    error::FormatError,
    fields::{Fields, PutFields},
    geometry::{PLAIN_LEN_MAX, SEGMENT_LEN},
    header::{BlobId, BlobKind},
};

/// Most ranges of a base view (I2). Part of the format (docs/format/blob-v1.md §1).
pub const VIEW_RANGES_MAX: usize = 256;
/// Most ranges of a segment's footprint. Part of the format.
pub const FOOTPRINT_RANGES_MAX: usize = 16;
/// Most base bytes of a segment's footprint: 32 MiB, as in docs/format/delta-v1.md. Part of the
/// format.
pub const FOOTPRINT_LEN_MAX: u64 = 32 << 20;
/// Bytes of a segment row without its footprint, and of one footprint range. Part of the format.
const ROW_LEN: usize = 28;
const ADDRESS_LEN: usize = 12;
pub(crate) const VIEW_RANGE_LEN: usize = 48;

/// How a segment's stored bytes give its plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Coding {
    /// They are the plain bytes.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// A delta (docs/format/delta-v1.md) over the segment's footprint.
    Delta = 2,
    /// Units of a deflate view (docs/format/deflate-view-v1.md §12) over the base view, within the
    /// segment's footprint.
    View = 3,
    /// Byte planes of words (docs/format/blob-v1.md §6.3).
    Planes = 4,
    /// As [`Coding::View`], with streams that their container cuts into pieces (§12.1 there).
    GappedView = 5,
}

impl Coding {
    /// Its name in reports and metric labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Zstd => "zstd",
            Self::Delta => "delta",
            Self::View => "view",
            Self::Planes => "planes",
            Self::GappedView => "gapped-view",
        }
    }

    /// Whether the segment is read over base bytes.
    pub fn has_base(self) -> bool {
        matches!(self, Self::Delta | Self::View | Self::GappedView)
    }

    /// Whether its bytes are units of a deflate view.
    pub fn is_view(self) -> bool {
        matches!(self, Self::View | Self::GappedView)
    }

    fn from_byte(byte: u8) -> Result<Self, FormatError> {
        match byte {
            0 => Ok(Self::Raw),
            1 => Ok(Self::Zstd),
            2 => Ok(Self::Delta),
            3 => Ok(Self::View),
            4 => Ok(Self::Planes),
            5 => Ok(Self::GappedView),
            _ => Err(FormatError::Malformed("a coding that this release does not know")),
        }
    }
}

/// A run of the blob's base view, in view addresses (the view's ranges laid end to end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewAddress {
    /// First byte, from the start of the view.
    pub offset: u64,
    /// Length in bytes; never 0.
    pub len: u32,
}

/// One range of the base view: bytes of a whole blob's plain content (I2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewRange {
    /// The whole blob.
    pub blob: BlobId,
    /// First plain byte.
    pub offset: u64,
    /// Length in bytes; never 0.
    pub len: u64,
    /// The base's keyed content tag (see [`crate::Root::base_tag`]); checked before its bytes are
    /// used (E10).
    pub base_tag: [u8; 16],
}

impl ViewRange {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, FormatError> {
        Ok(Self { blob: BlobId(fields.array()?), offset: fields.u64()?, len: fields.u64()?, base_tag: fields.array()? })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put(&self.blob.0);
        out.put_u64(self.offset);
        out.put_u64(self.len);
        out.put(&self.base_tag);
    }
}

/// One row of the segment table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Plain bytes; [`SEGMENT_LEN`] for all but the last segment.
    pub plain_len: u32,
    /// Where its stored bytes start in the payload (payload addresses count plain chunk content,
    /// not tags).
    pub stored_offset: u64,
    /// How many stored bytes it has.
    pub stored_len: u32,
    /// How they are to be read.
    pub coding: Coding,
    /// XXH3-128 of the plain bytes, little endian.
    pub digest: [u8; 16],
    /// Ascending, disjoint runs of the view a delta or a deflate view needs, at most 16; empty for
    /// other codings.
    pub footprint: Vec<ViewAddress>,
}

impl Segment {
    /// Bytes of its row in a page.
    pub(crate) fn row_len(&self) -> usize {
        ROW_LEN + ADDRESS_LEN * self.footprint.len()
    }

    /// Appends its row. `stored_offset` is not in it: it follows from the rows before.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let ranges = u8::try_from(self.footprint.len()).expect("the tables were checked: at most 16 ranges");
        out.put_u32(self.plain_len);
        out.put_u32(self.stored_len);
        out.put(&[self.coding as u8, ranges, 0, 0]);
        out.put(&self.digest);
        for address in &self.footprint {
            out.put_u64(address.offset);
            out.put_u32(address.len);
        }
    }

    /// Reads one row of a segment whose stored bytes start at `stored_offset`.
    pub(crate) fn decode(fields: &mut Fields<'_>, stored_offset: u64) -> Result<Self, FormatError> {
        let (plain_len, stored_len) = (fields.u32()?, fields.u32()?);
        let coding = Coding::from_byte(fields.u8()?)?;
        let ranges = usize::from(fields.u8()?);
        fields.zero(2)?;
        let digest = fields.array()?;
        if ranges > FOOTPRINT_RANGES_MAX {
            return Err(FormatError::TooLarge("16 footprint ranges"));
        }
        let footprint = (0..ranges)
            .map(|_| Ok(ViewAddress { offset: fields.u64()?, len: fields.u32()? }))
            .collect::<Result<_, FormatError>>()?;
        Ok(Self { plain_len, stored_offset, stored_len, coding, digest, footprint })
    }
}

/// What the segment table must agree with: facts of the header and the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableBounds {
    pub(crate) kind: BlobKind,
    pub(crate) plain_len: u64,
    pub(crate) payload_len: u64,
    pub(crate) view_len: u64,
}

impl TableBounds {
    /// Checks segment number `number`, which must start at payload byte `stored_offset`; gives
    /// where the next one starts.
    pub(crate) fn check(&self, number: u64, stored_offset: u64, segment: &Segment) -> Result<u64, FormatError> {
        let plain_at = number.checked_mul(SEGMENT_LEN as u64).ok_or(FormatError::Malformed("too many segments"))?;
        let plain_left = self.plain_len.saturating_sub(plain_at).min(SEGMENT_LEN as u64);
        if plain_left == 0 || u64::from(segment.plain_len) != plain_left {
            return Err(FormatError::Malformed("a segment's plain length is not what its place demands"));
        }
        if segment.stored_len == 0 || segment.stored_len as usize > SEGMENT_LEN {
            return Err(FormatError::TooLarge("1 to 4 MiB of stored bytes per segment"));
        }
        if segment.coding == Coding::Raw && segment.stored_len != segment.plain_len {
            return Err(FormatError::Malformed("a raw segment's lengths differ"));
        }
        let stored_end = stored_offset
            .checked_add(u64::from(segment.stored_len))
            .filter(|end| segment.stored_offset == stored_offset && *end <= self.payload_len)
            .ok_or(FormatError::Malformed("segments do not tile the payload"))?;
        if plain_at + plain_left == self.plain_len && stored_end != self.payload_len {
            return Err(FormatError::Malformed("the last segment does not end where the payload does"));
        }
        self.check_footprint(segment)?;
        Ok(stored_end)
    }

    fn check_footprint(&self, segment: &Segment) -> Result<(), FormatError> {
        if !segment.coding.has_base() {
            return match segment.footprint.is_empty() {
                true => Ok(()),
                false => Err(FormatError::Malformed("a footprint without a delta")),
            };
        }
        if self.kind != BlobKind::Delta {
            return Err(FormatError::Malformed("a delta in a blob of another kind"));
        }
        if segment.footprint.len() > FOOTPRINT_RANGES_MAX {
            return Err(FormatError::TooLarge("16 footprint ranges"));
        }
        let (mut end, mut sum) = (0_u64, 0_u64);
        for address in &segment.footprint {
            if address.len == 0 || address.offset < end {
                return Err(FormatError::Malformed("footprint ranges are not ascending and disjoint"));
            }
            end = address
                .offset
                .checked_add(u64::from(address.len))
                .filter(|end| *end <= self.view_len)
                .ok_or(FormatError::Malformed("a footprint outside the base view"))?;
            sum += u64::from(address.len);
        }
        match sum <= FOOTPRINT_LEN_MAX {
            true => Ok(()),
            false => Err(FormatError::TooLarge("32 MiB of footprint")),
        }
    }
}

/// Checks a base view; gives its length.
pub(crate) fn check_view(kind: BlobKind, view: &[ViewRange]) -> Result<u64, FormatError> {
    if !view.is_empty() && kind != BlobKind::Delta {
        return Err(FormatError::Malformed("a base view in a blob of another kind"));
    }
    if view.len() > VIEW_RANGES_MAX {
        return Err(FormatError::TooLarge("256 ranges of a base view"));
    }
    view.iter().try_fold(0, |len, range| {
        let within = range.offset.checked_add(range.len).is_some_and(|end| end <= PLAIN_LEN_MAX);
        match range.len > 0 && within {
            // At most 256 times 5 GiB: no overflow.
            true => Ok(len + range.len),
            false => Err(FormatError::Malformed("a view range that no blob can have")),
        }
    })
}

/// XXH3-128 of a segment's plain bytes as kept in [`Segment::digest`].
pub fn segment_digest(plain: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(plain).to_le_bytes()
}
