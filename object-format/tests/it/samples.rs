//! Blobs to test with: any segments, both suites, one fixed key.

use object_format::{
    BlobId, BlobKind, BlobSpec, BlobWriter, Coding, DomainKey, Finished, KeyId, ObjectFacts, SEGMENT_LEN, Seal,
    Segment, Suite, ViewAddress, ViewRange, segment_digest,
};

pub(crate) const ID: BlobId = BlobId(*b"\0\0\0\x07blob of test");
pub(crate) const SALT: [u8; 32] = [0x5a; 32];

pub(crate) fn key() -> DomainKey {
    DomainKey::new(KeyId([0xd0; 16]), 3, [0x11; 32])
}

/// What a blob is made of. Payload bytes of segments that are not raw are arbitrary: this crate
/// does not decode them.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) id: BlobId,
    pub(crate) suite: Suite,
    pub(crate) salt: [u8; 32],
    pub(crate) segments: Vec<Segment>,
    pub(crate) payload: Vec<u8>,
    pub(crate) view: Vec<ViewRange>,
    pub(crate) facts: ObjectFacts,
}

/// Bytes that differ everywhere and between seeds, without a generator's state.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out
}

impl Sample {
    /// Raw content of `plain_len` bytes.
    pub(crate) fn raw(suite: Suite, plain_len: usize) -> Self {
        let payload = noise(plain_len as u64 + 1, plain_len);
        let mut at = 0;
        let segments = payload
            .chunks(SEGMENT_LEN)
            .map(|plain| {
                let len = u32::try_from(plain.len()).unwrap();
                at += u64::from(len);
                Segment {
                    plain_len: len,
                    stored_offset: at - u64::from(len),
                    stored_len: len,
                    coding: Coding::Raw,
                    digest: segment_digest(plain),
                    footprint: Vec::new(),
                }
            })
            .collect();
        Self {
            id: ID,
            suite,
            salt: SALT,
            segments,
            payload,
            view: Vec::new(),
            facts: ObjectFacts { bucket: "bucket".into(), key: "a/key".into(), ..ObjectFacts::default() },
        }
    }

    /// One segment of every coding, each `stored_len` bytes in the payload; the raw one is last and
    /// short.
    pub(crate) fn every_coding(suite: Suite, stored_len: u32) -> Self {
        let mut sample = Self::raw(suite, stored_len as usize);
        let raw = sample.segments.remove(0);
        sample.view = vec![
            ViewRange { blob: BlobId([1; 16]), offset: 5, len: 100_000, base_tag: [2; 16] },
            ViewRange { blob: BlobId([3; 16]), offset: 0, len: 1, base_tag: [4; 16] },
        ];
        let encoded = |number: u64, coding, footprint| Segment {
            plain_len: SEGMENT_LEN as u32,
            stored_offset: number * u64::from(stored_len),
            stored_len,
            coding,
            digest: [number as u8; 16],
            footprint,
        };
        let footprint = vec![ViewAddress { offset: 0, len: 10 }, ViewAddress { offset: 99_999, len: 2 }];
        sample.segments = vec![
            encoded(0, Coding::Zstd, Vec::new()),
            encoded(1, Coding::Delta, footprint),
            Segment { stored_offset: 2 * u64::from(stored_len), ..raw },
        ];
        sample.payload = noise(9, 3 * stored_len as usize);
        sample
    }

    pub(crate) fn key(&self) -> Option<DomainKey> {
        (self.suite == Suite::Aes256Gcm).then(key)
    }

    /// The blob's bytes, its payload pushed in pieces of at most `piece` bytes.
    pub(crate) fn write(&self, piece: usize) -> (Vec<u8>, Finished) {
        let key = key();
        let seal = match self.suite {
            Suite::None => Seal::None,
            Suite::Aes256Gcm => Seal::Aes256Gcm { key: &key, salt: self.salt },
        };
        let mut out = Vec::new();
        let mut writer = BlobWriter::new(BlobSpec { id: self.id, kind: BlobKind::Delta, seal }, &mut out);
        for piece in self.payload.chunks(piece) {
            writer.push(piece, &mut out).unwrap();
        }
        let finished = writer.finish(&self.segments, &self.view, &self.facts, &mut out).unwrap();
        (out, finished)
    }
}
