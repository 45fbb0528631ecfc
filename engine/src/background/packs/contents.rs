//! What lies in a pack: its members, their table, and the blob they make.

use crate::{
    bucket::compartment::compartment_of,
    error::EngineError,
    facts::{StorageFacts, VersionFacts, from_json, to_json},
};
use catalog::{BucketId, Compartment, Content, Extent, FormBytes};
use delta_codec::whole;
use object_format::{
    BlobId, BlobKind, BlobSpec, BlobWriter, Coding, DomainKey, ObjectFacts, Seal, Segment, blob::segment_digest,
};
use serde::{Deserialize, Serialize};

/// zstd level of a pack: off the request path, and at hundreds of megabytes a second still as fast
/// to decode.
const LEVEL: i32 = 9;
/// One member as a pack's manifest lists it, so that the blob describes itself (E17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberRow {
    /// Object key.
    pub(crate) key: String,
    /// Version id, in hex.
    pub(crate) version: String,
    /// First plain byte in the pack.
    pub(crate) offset: u64,
    /// Plain bytes.
    pub(crate) len: u64,
    /// The version's facts.
    pub(crate) facts: VersionFacts,
}

/// A version on its way into a pack.
pub(super) struct Member {
    pub(super) content: Content,
    pub(super) facts: VersionFacts,
}

impl Member {
    pub(super) fn len(&self) -> u64 {
        self.content.version.size
    }

    /// Stored bytes of the blobs it names, its share of those it does not name whole.
    pub(super) fn stored_len(&self) -> u64 {
        let share = |extent: &Extent| {
            let row = self.content.blobs.iter().find(|row| row.id == extent.blob)?;
            Some(scaled(row.stored_len, extent.len, row.plain_len))
        };
        self.content.extents.iter().filter_map(share).sum()
    }
}

/// `value * part / whole`, 0 for nothing of nothing.
pub(super) fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A pack's bytes and what its row needs.
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) root: object_format::RootPlace,
    pub(crate) forms: FormBytes,
}

/// Runs on the codec pool.
pub(crate) fn build(
    id: BlobId,
    key: Option<&DomainKey>,
    salt: [u8; 32],
    plain: &[u8],
    object: &ObjectFacts,
) -> Result<Built, EngineError> {
    let plain_len = plain.len() as u64;
    let mut frame = Vec::new();
    let compressed = whole::compress(plain, LEVEL, plain.len(), &mut frame).is_some() && gives_back(&frame, plain);
    let (stored, coding) = if compressed { (frame.as_slice(), Coding::Zstd) } else { (plain, Coding::Raw) };
    let forms = match coding {
        Coding::Zstd => FormBytes { zstd_plain: plain_len, zstd_stored: stored.len() as u64, ..FormBytes::default() },
        _ => FormBytes { raw_plain: plain_len, ..FormBytes::default() },
    };
    let segment = Segment {
        plain_len: u32::try_from(plain.len()).map_err(|_| EngineError::TooLarge)?,
        stored_offset: 0,
        stored_len: u32::try_from(stored.len()).map_err(|_| EngineError::TooLarge)?,
        coding,
        digest: segment_digest(plain),
        footprint: Vec::new(),
    };
    let seal = key.map_or(Seal::None, |key| Seal::Aes256Gcm { key, salt });
    let mut bytes = Vec::with_capacity(stored.len() + object.facts.len() + 4096);
    let mut writer = BlobWriter::new(BlobSpec { id, kind: BlobKind::Pack, seal }, &mut bytes);
    writer.push(stored, &mut bytes)?;
    let finished = writer.finish(&[segment], &[], object, &mut bytes)?;
    Ok(Built { bytes, root: finished.root, forms })
}

fn gives_back(frame: &[u8], plain: &[u8]) -> bool {
    let mut again = vec![0; plain.len()];
    whole::decompress(frame, &mut again).is_ok() && again == plain
}

/// What a pack's manifest says of its members: a zstd frame of JSON behind its length.
pub(super) fn member_table(members: &[Member]) -> Result<Vec<u8>, EngineError> {
    let mut offset = 0;
    let mut rows = Vec::with_capacity(members.len());
    for Member { content: Content { version, .. }, facts } in members {
        rows.push(MemberRow {
            key: version.key.clone(),
            version: hex::encode(version.id.0),
            offset,
            len: version.size,
            facts: VersionFacts { storage: StorageFacts::default(), ..facts.clone() },
        });
        offset += version.size;
    }
    let json = to_json(&rows)?;
    let len = u32::try_from(json.len()).map_err(|_| EngineError::TooLarge)?;
    let mut table = len.to_le_bytes().to_vec();
    // A frame as long as its content still is one.
    whole::compress(&json, LEVEL, json.len() + 1024, &mut table)
        .ok_or_else(|| EngineError::Other("a member table that zstd does not take".into()))?;
    Ok(table)
}

/// Most bytes of a member table.
const TABLE_LEN_MAX: usize = 64 << 20;

/// The members that a pack's manifest lists.
///
/// # Errors
/// [`EngineError::Integrity`] when the table cannot be understood.
pub(crate) fn members_of(table: &[u8]) -> Result<Vec<MemberRow>, EngineError> {
    let damaged = || EngineError::Integrity("a pack's member table cannot be understood".into());
    let (len, frame) = table.split_first_chunk().ok_or_else(damaged)?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok().filter(|len| *len <= TABLE_LEN_MAX).ok_or_else(damaged)?;
    let mut json = vec![0; len];
    whole::decompress(frame, &mut json).map_err(|_| damaged())?;
    from_json(&json)
}

/// Memory a version's rows take.
pub(super) fn footprint(content: &Content) -> u64 {
    let inline: usize = content.blobs.iter().filter_map(|row| row.inline.as_ref()).map(Vec::len).sum();
    (inline + content.version.facts.len() + content.version.key.len()) as u64 + 512
}

/// What a version may be packed together with: its bucket, and the compartment in it.
pub(super) fn place_of(content: &Content) -> (BucketId, Option<Compartment>) {
    (content.version.bucket, compartment_of(&content.blobs))
}

/// A pack of which less than half is in use.
pub(super) fn is_sparse(live_len: u64, plain_len: u64) -> bool {
    live_len < plain_len - plain_len / 2
}

/// A pack must save an eighth of what its members take.
pub(super) fn worth_packing(before: u64, after: u64) -> bool {
    after <= before - before / 8
}
