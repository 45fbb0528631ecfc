//! The plain copy-and-insert language that the baselines share, and a zstd stage around it.

use zstd::zstd_safe::{CCtx, CParameter, DCtx};

/// Appends copies and literals in the order of the target.
pub(crate) struct Writer {
    pub(crate) out: Vec<u8>,
    previous_end: usize,
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn get(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { out: Vec::new(), previous_end: 0 }
    }

    /// `literal`, then `len` bytes from `source`; an address is the distance from the end of the
    /// copy before.
    pub(crate) fn push(&mut self, literal: &[u8], len: usize, source: usize) {
        put(&mut self.out, literal.len() as u64);
        self.out.extend_from_slice(literal);
        put(&mut self.out, len as u64);
        if len > 0 {
            let distance = source as i64 - self.previous_end as i64;
            put(&mut self.out, ((distance << 1) ^ (distance >> 63)) as u64);
            self.previous_end = source + len;
        }
    }
}

/// Appends `target_len` bytes to `target`.
pub(crate) fn execute(base: &[u8], delta: &[u8], target_len: usize, target: &mut Vec<u8>) {
    let end = target.len() + target_len;
    let (mut at, mut previous_end) = (0, 0i64);
    while target.len() < end {
        let literal_len = get(delta, &mut at) as usize;
        target.extend_from_slice(&delta[at..at + literal_len]);
        at += literal_len;
        let len = get(delta, &mut at) as usize;
        if len > 0 {
            let zigzag = get(delta, &mut at);
            let source = previous_end + ((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
            target.extend_from_slice(&base[source as usize..source as usize + len]);
            previous_end = source + len as i64;
        }
    }
}

/// zstd as the second stage.
pub(crate) struct Entropy {
    compressor: CCtx<'static>,
    decompressor: DCtx<'static>,
}

impl Entropy {
    pub(crate) fn new() -> Self {
        let mut compressor = CCtx::create();
        compressor.set_parameter(CParameter::CompressionLevel(1)).expect("level 1 exists");
        Self { compressor, decompressor: DCtx::create() }
    }

    pub(crate) fn pack(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(zstd::zstd_safe::compress_bound(plain.len()));
        self.compressor.compress2(&mut out, plain).expect("there is room for the frame");
        out
    }

    pub(crate) fn unpack(&mut self, packed: &[u8]) -> Vec<u8> {
        let len = zstd::zstd_safe::get_frame_content_size(packed).ok().flatten().unwrap_or(0);
        let mut out = Vec::with_capacity(len as usize);
        self.decompressor.decompress(&mut out, packed).expect("what was packed unpacks");
        out
    }
}
