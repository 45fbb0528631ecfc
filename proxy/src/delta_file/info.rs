//! What a delta consists of, read without its base.

use super::{
    error::{DeltaFileError, Result, io_error},
    format::{DELTA, HEADER_LEN, Head, Header, expect_end, read_exact},
};
use object_format::Coding;
use serde::Serialize;
use std::{fs::File, io::BufReader, path::Path};

/// The composition of a delta file. Lengths in bytes; `_stored` as they are in the file, the others
/// unpacked.
#[derive(Debug, Default, Serialize)]
pub struct Info {
    /// The file.
    pub delta_bytes: u64,
    /// The base it was made for …
    pub base_bytes: u64,
    /// … and its SHA-256.
    pub base_sha256: String,
    /// What it gives …
    pub target_bytes: u64,
    /// … and its SHA-256.
    pub target_sha256: String,
    /// Target bytes for each byte of the file.
    pub ratio: f64,
    /// Segments by how they are stored.
    pub segments: Segments,
    /// Sums over all segments.
    pub totals: Totals,
}

/// Segments by how they are stored.
#[derive(Debug, Default, Serialize)]
pub struct Segments {
    /// As differences to the base.
    pub delta: u64,
    /// As differences to the base, the deflate streams of both opened.
    pub view: u64,
    /// Compressed alone.
    pub zstd: u64,
    /// As they are.
    pub raw: u64,
}

/// Sums over all segments. A segment that is no delta counts as literal.
#[derive(Debug, Default, Serialize)]
pub struct Totals {
    /// Copies from the base.
    pub copies: u64,
    /// Base bytes in footprints.
    pub footprint_bytes: u64,
    /// Heads of segments, header and end.
    pub framing_bytes: u64,
    /// The instruction streams.
    pub instruction_bytes_stored: u64,
    /// Target bytes given as differences to base bytes.
    pub sub_bytes: u64,
    /// The sub streams.
    pub sub_bytes_stored: u64,
    /// Target bytes in deflate views.
    pub view_bytes: u64,
    /// The views.
    pub view_bytes_stored: u64,
    /// Target bytes given as they are.
    pub literal_bytes: u64,
    /// The literal streams.
    pub literal_bytes_stored: u64,
}

/// Reads a delta from end to end.
///
/// # Errors
/// [`DeltaFileError::Malformed`] when its outside is; whether it can be decoded is not said.
pub fn info(path: &Path) -> Result<Info> {
    let file = File::open(path).map_err(io_error(DELTA))?;
    let delta_bytes = file.metadata().map_err(io_error(DELTA))?.len();
    let mut from = BufReader::new(file);
    let header = Header::read(&mut from)?;
    let mut segments = Segments::default();
    let mut totals = Totals { framing_bytes: (HEADER_LEN + 32) as u64, ..Totals::default() };
    let mut bytes = Vec::new();
    for plain_len in header.segment_lens() {
        let head = Head::read(&mut from, &header, plain_len)?;
        bytes.resize(head.stored_len as usize, 0);
        read_exact(&mut from, &mut bytes)?;
        totals.framing_bytes += head.len() as u64;
        match head.coding {
            Coding::Delta => {
                segments.delta += 1;
                totals.footprint_bytes += head.footprint.iter().map(|range| u64::from(range.len)).sum::<u64>();
                totals.add_delta(&bytes, plain_len)?;
            }
            Coding::View | Coding::GappedView => {
                segments.view += 1;
                totals.footprint_bytes += head.footprint.iter().map(|range| u64::from(range.len)).sum::<u64>();
                totals.view_bytes += plain_len as u64;
                totals.view_bytes_stored += u64::from(head.stored_len);
            }
            Coding::Zstd | Coding::Raw | Coding::Planes => {
                *(if head.coding == Coding::Zstd { &mut segments.zstd } else { &mut segments.raw }) += 1;
                totals.literal_bytes += plain_len as u64;
                totals.literal_bytes_stored += u64::from(head.stored_len);
            }
        }
    }
    let mut target_sha256 = [0; 32];
    read_exact(&mut from, &mut target_sha256)?;
    expect_end(&mut from)?;
    Ok(Info {
        delta_bytes,
        base_bytes: header.base_len,
        base_sha256: hex::encode(header.base_sha256),
        target_bytes: header.target_len,
        target_sha256: hex::encode(target_sha256),
        ratio: (header.target_len as f64 / delta_bytes as f64 * 1000.0).round() / 1000.0,
        segments,
        totals,
    })
}

impl Totals {
    fn add_delta(&mut self, bytes: &[u8], plain_len: usize) -> Result<()> {
        let found = delta_codec::summarize(bytes, plain_len).map_err(|error| DeltaFileError::Malformed(error.0))?;
        self.copies += found.copies as u64;
        self.instruction_bytes_stored += found.instruction_bytes_stored as u64;
        self.sub_bytes += found.sub_bytes as u64;
        self.sub_bytes_stored += found.sub_bytes_stored as u64;
        self.literal_bytes += found.literal_bytes as u64;
        self.literal_bytes_stored += found.literal_bytes_stored as u64;
        Ok(())
    }
}
