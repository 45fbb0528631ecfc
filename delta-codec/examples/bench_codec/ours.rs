//! This crate's codec as the store uses it: windows per 64 MiB region, segments of 4 MiB, bounded
//! footprints; a segment that nothing in its window resembles is a zstd frame, or raw.

use delta_codec::{
    BaseIndex, Decoder, DeltaSummary, Effort, EncodeJob, Encoder, FootprintLimits, SEGMENT_LEN_MAX, WINDOW_LEN_MAX,
    WindowUnit, summarize, whole,
};
use serde_json::{Value, json};

use crate::{Codec, Encoded, Form, Piece, cpu_s};

const REGION_LEN: usize = 64 << 20;

pub(crate) struct Ours {
    effort: Effort,
    encoder: Encoder,
    decoder: Decoder,
}

impl Ours {
    pub(crate) fn new(effort: Effort) -> Self {
        Self { effort, encoder: Encoder::new(), decoder: Decoder::new() }
    }
}

/// Where the window of a region begins and ends: around the same place in the base.
fn window_of(region: usize, base_len: usize) -> (usize, usize) {
    let start = (region * REGION_LEN).saturating_sub(REGION_LEN / 2).min(base_len.saturating_sub(WINDOW_LEN_MAX));
    (start, (start + WINDOW_LEN_MAX).min(base_len))
}

/// A segment that no delta makes smaller.
fn without_base(segment: &[u8]) -> Piece {
    let mut bytes = Vec::new();
    let form = match whole::compress(segment, 1, segment.len(), &mut bytes) {
        Some(_) => Form::Zstd,
        None => {
            bytes.extend_from_slice(segment);
            Form::Raw
        }
    };
    Piece { target_len: segment.len(), bytes, footprint: Vec::new(), form }
}

impl Codec for Ours {
    fn encode(&mut self, base: &[u8], target: &[u8]) -> Encoded {
        let mut encoded = Encoded { pieces: Vec::new(), index_bytes: 0, index_cpu_s: 0.0 };
        for (number, region) in target.chunks(REGION_LEN).enumerate() {
            let (start, end) = window_of(number, base.len());
            let window = &base[start..end];
            let before = cpu_s();
            let index = BaseIndex::build(window, self.effort);
            encoded.index_cpu_s += cpu_s() - before;
            encoded.index_bytes = encoded.index_bytes.max(index.memory_bytes());
            let layout =
                [WindowUnit { plain_len: window.len() as u32, stored_len: window.len() as u32, divisible: true }];
            for segment in region.chunks(SEGMENT_LEN_MAX) {
                let job = EncodeJob {
                    window,
                    index: &index,
                    layout: &layout,
                    target: segment,
                    effort: self.effort,
                    limits: FootprintLimits::default(),
                    delta_len_max: segment.len(),
                };
                let mut bytes = Vec::new();
                let piece = match self.encoder.encode(&job, &mut bytes) {
                    Some(found) => {
                        let range = |range: &delta_codec::BaseRange| {
                            let from = start + range.offset as usize;
                            (from, from + range.len as usize)
                        };
                        let footprint = found.footprint.iter().map(range).collect();
                        Piece { target_len: segment.len(), bytes, footprint, form: Form::Delta }
                    }
                    None => without_base(segment),
                };
                encoded.pieces.push(piece);
            }
        }
        encoded
    }

    fn decode(&mut self, base: &[u8], encoded: &Encoded, target: &mut Vec<u8>) {
        let mut gathered = Vec::new();
        let mut at = 0;
        for piece in &encoded.pieces {
            let out = &mut target[at..at + piece.target_len];
            at += piece.target_len;
            match piece.form {
                Form::Delta => {}
                Form::Zstd => {
                    whole::decompress(&piece.bytes, out).expect("what was compressed decompresses");
                    continue;
                }
                Form::Raw => {
                    out.copy_from_slice(&piece.bytes);
                    continue;
                }
            }
            let footprint = match piece.footprint.as_slice() {
                [(from, to)] => &base[*from..*to],
                ranges => {
                    gathered.clear();
                    ranges.iter().for_each(|(from, to)| gathered.extend_from_slice(&base[*from..*to]));
                    &gathered
                }
            };
            self.decoder.decode(footprint, &piece.bytes, out).expect("what was encoded decodes");
        }
    }

    fn facts(&self, encoded: &Encoded) -> Value {
        let mut sum = DeltaSummary::default();
        for piece in encoded.pieces.iter().filter(|piece| piece.form == Form::Delta) {
            let one = summarize(&piece.bytes, piece.target_len).expect("what was encoded is well-formed");
            sum.copies += one.copies;
            sum.instruction_bytes_stored += one.instruction_bytes_stored;
            sum.sub_bytes += one.sub_bytes;
            sum.sub_bytes_stored += one.sub_bytes_stored;
            sum.literal_bytes += one.literal_bytes;
            sum.literal_bytes_stored += one.literal_bytes_stored;
        }
        json!({
            "copies": sum.copies,
            "instruction_bytes_stored": sum.instruction_bytes_stored,
            "sub_bytes": sum.sub_bytes,
            "sub_bytes_stored": sum.sub_bytes_stored,
            "literal_bytes": sum.literal_bytes,
            "literal_bytes_stored": sum.literal_bytes_stored,
            "segments_without_base": encoded.pieces.iter().filter(|piece| piece.form != Form::Delta).count(),
        })
    }
}
