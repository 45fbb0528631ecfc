//! One stream of a delta (docs/format/delta-v1.md §4): stored, repeated, zstd, or zstd over the
//! context, whichever is shortest.

use crate::error::DecodeError;
use crate::room;
use crate::varint::{self, Reader};
use crate::zstd::{Compressor, Decompressor, FrameKind, Settings};

/// Below this many bytes zstd is not asked: a frame's header and tables cost what they could save.
const ZSTD_LEN_MIN: usize = 32;
/// Up to this many bytes, and this many with the context, zstd's strongest level takes no time that
/// matters beside the matching of the segment.
const THOROUGH_LEN_MAX: usize = 4 << 10;
const THOROUGH_REACH_MAX: usize = 16 << 10;

const STORED: u32 = 0;
const REPEATED: u32 = 1;
const ZSTD: u32 = 2;
const ZSTD_OVER_CONTEXT: u32 = 3;

/// Appends `plain` as a stream; `context` is empty for all but literals.
pub(crate) fn write(plain: &[u8], context: &[u8], settings: Settings, zstd: &mut Compressor, out: &mut Vec<u8>) {
    let head = |coding| (plain.len() as u32) << 3 | coding;
    if let Some((&first, rest)) = plain.split_first()
        && plain.len() > 1
        && rest.iter().all(|&byte| byte == first)
    {
        varint::put(out, head(REPEATED));
        out.push(first);
        return;
    }
    let is_small = plain.len() <= THOROUGH_LEN_MAX && plain.len() + context.len() <= THOROUGH_REACH_MAX;
    let settings = if is_small { Settings::LEVEL_19 } else { settings };
    if plain.len() >= ZSTD_LEN_MIN
        && let Some(frame) = zstd.compress(FrameKind::Bare, plain, context, settings, plain.len() - 3)
    {
        varint::put(out, head(if context.is_empty() { ZSTD } else { ZSTD_OVER_CONTEXT }));
        varint::put(out, frame.len() as u32);
        out.extend_from_slice(frame);
        return;
    }
    varint::put(out, head(STORED));
    out.extend_from_slice(plain);
}

/// How the content of a stream is held.
#[derive(Clone, Copy, Debug)]
enum Payload<'a> {
    Stored(&'a [u8]),
    Repeated(u8),
    Zstd(&'a [u8]),
    ZstdOverContext(&'a [u8]),
}

/// A stream whose head has been read and checked, and whose content has not been unpacked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    plain_len: usize,
    payload: Payload<'a>,
}

/// Reads a stream's head and takes its payload. `plain_len_max` is what the format allows for its
/// content.
pub(crate) fn read<'a>(reader: &mut Reader<'a>, plain_len_max: usize) -> Result<Packed<'a>, DecodeError> {
    let head = reader.number()?;
    let plain_len = (head >> 3) as usize;
    if plain_len > plain_len_max {
        return Err(DecodeError("a stream is too long"));
    }
    let payload = match head & 7 {
        STORED => Payload::Stored(reader.bytes(plain_len)?),
        REPEATED if plain_len == 0 => return Err(DecodeError("a byte repeated no times")),
        REPEATED => Payload::Repeated(reader.byte()?),
        coding @ (ZSTD | ZSTD_OVER_CONTEXT) => {
            let coded_len = reader.number()? as usize;
            let frame = reader.bytes(coded_len)?;
            if coding == ZSTD { Payload::Zstd(frame) } else { Payload::ZstdOverContext(frame) }
        }
        _ => return Err(DecodeError("a stream of unknown coding")),
    };
    Ok(Packed { plain_len, payload })
}

impl<'a> Packed<'a> {
    pub(crate) fn plain_len(&self) -> usize {
        self.plain_len
    }

    /// Bytes of the payload.
    pub(crate) fn stored_len(&self) -> usize {
        match self.payload {
            Payload::Stored(bytes) | Payload::Zstd(bytes) | Payload::ZstdOverContext(bytes) => bytes.len(),
            Payload::Repeated(_) => 1,
        }
    }

    /// True when the content can only be unpacked with the context at hand.
    pub(crate) fn needs_context(&self) -> bool {
        matches!(self.payload, Payload::ZstdOverContext(_))
    }

    /// The content, in `buffer` unless it is stored as it is.
    pub(crate) fn unpack<'b>(
        &self,
        context: &[u8],
        zstd: &mut Decompressor,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], DecodeError>
    where
        'a: 'b,
    {
        let (frame, prefix): (_, &[u8]) = match self.payload {
            Payload::Stored(bytes) => return Ok(bytes),
            Payload::Repeated(byte) => {
                buffer.clear();
                buffer.resize(self.plain_len, byte);
                return Ok(buffer);
            }
            Payload::Zstd(frame) => (frame, &[]),
            Payload::ZstdOverContext(frame) => (frame, context),
        };
        let plain = room::of(buffer, self.plain_len);
        zstd.decompress(FrameKind::Bare, frame, prefix, plain)?;
        Ok(plain)
    }
}
