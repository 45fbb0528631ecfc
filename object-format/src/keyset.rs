//! Keysets: the wrapped domain keys of a backend's buckets, stored beside the blobs they open (I11;
//! docs/format/blob-v1.md §11).
//!
//! Whoever has a keyset blob and the KEK can open the backend's blobs without a catalog. Who lacks
//! the KEK learns how many keys there are.

use crate::{
    blob::{
        BlobId, BlobKind, BlobSpec, BlobWriter, Coding, Finished, FormatError, ObjectFacts, SEGMENT_LEN, Seal, Segment,
        segment_digest,
    },
    fields::{Fields, PutFields},
    keys::{DomainKey, Kek, KeyId},
};

const MAGIC: [u8; 4] = *b"DWKS";
const VERSION: u8 = 1;
/// Bytes of an entry without its two variable parts.
const ENTRY_LEN_MIN: usize = 16 + 4 + 8 + 2 + 2;

/// The bucket a key is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLabel {
    /// Catalog id.
    pub id: u64,
    /// Name.
    pub name: String,
}

/// One wrapped domain key and, under that key, the bucket it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysetEntry {
    key_id: KeyId,
    key_epoch: u32,
    kek: [u8; 8],
    wrapped: Vec<u8>,
    label: Vec<u8>,
}

impl KeysetEntry {
    /// Wraps `key` and the label of its bucket.
    pub fn new(kek: &Kek, key: &DomainKey, bucket: &BucketLabel) -> Self {
        let mut label = Vec::with_capacity(8 + bucket.name.len());
        label.put_u64(bucket.id);
        label.put(bucket.name.as_bytes());
        Self {
            key_id: key.id(),
            key_epoch: key.epoch(),
            kek: kek.fingerprint(),
            wrapped: kek.wrap(key),
            label: key.label_key().wrap_bytes(&label),
        }
    }

    /// Id of the wrapped key.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// Epoch of the wrapped key.
    pub fn key_epoch(&self) -> u32 {
        self.key_epoch
    }

    /// The wrapped key.
    pub fn wrapped(&self) -> &[u8] {
        &self.wrapped
    }

    /// [`Kek::fingerprint`] of the KEK that opens it.
    pub fn kek_fingerprint(&self) -> [u8; 8] {
        self.kek
    }

    /// Unwraps the key and says which bucket it is for.
    ///
    /// # Errors
    /// [`FormatError::Key`] for another KEK, or when key or label were altered or belong to another
    /// entry.
    pub fn open(&self, kek: &Kek) -> Result<(DomainKey, BucketLabel), FormatError> {
        if kek.fingerprint() != self.kek {
            return Err(FormatError::Key("wrapped under another KEK"));
        }
        let key = kek.unwrap(self.key_id, self.key_epoch, &self.wrapped)?;
        let label = key.label_key().unwrap_bytes(&self.label)?;
        let mut fields = Fields::new(&label);
        let id = fields.u64()?;
        let name = String::from_utf8(fields.take(fields.len())?.to_vec());
        let name = name.map_err(|_| FormatError::Malformed("a bucket name that is not UTF-8"))?;
        Ok((key, BucketLabel { id, name }))
    }
}

/// Entries in order of (key id, key epoch), each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyset {
    entries: Vec<KeysetEntry>,
}

impl Keyset {
    /// A keyset of these entries. Of several with one id and epoch the last stays.
    pub fn new(entries: impl IntoIterator<Item = KeysetEntry>) -> Self {
        let sorted: std::collections::BTreeMap<_, _> =
            entries.into_iter().map(|entry| ((entry.key_id, entry.key_epoch), entry)).collect();
        Self { entries: sorted.into_values().collect() }
    }

    /// Its entries.
    pub fn entries(&self) -> &[KeysetEntry] {
        &self.entries
    }

    /// The document's bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] for a bucket name of more than 64 KiB or 2^32 entries.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut out = Vec::new();
        out.put(&MAGIC);
        out.put(&[VERSION, 0, 0, 0]);
        out.put_u32(u32::try_from(self.entries.len()).map_err(|_| FormatError::TooLarge("2^32 entries"))?);
        for entry in &self.entries {
            out.put(&entry.key_id.0);
            out.put_u32(entry.key_epoch);
            out.put(&entry.kek);
            for part in [&entry.wrapped, &entry.label] {
                out.put_u16(u16::try_from(part.len()).map_err(|_| FormatError::TooLarge("64 KiB of label"))?);
                out.put(part);
            }
        }
        Ok(out)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] for everything that [`Self::encode`] cannot have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Fields::new(bytes);
        if fields.array()? != MAGIC || fields.u8()? != VERSION {
            return Err(FormatError::Malformed("not a keyset, or of an unknown version"));
        }
        fields.zero(3)?;
        let count = fields.u32()? as usize;
        // A forged count cannot allocate more than there are bytes for.
        let mut entries: Vec<KeysetEntry> = Vec::with_capacity(count.min(fields.len() / ENTRY_LEN_MIN));
        for _ in 0..count {
            let (key_id, key_epoch, kek) = (KeyId(fields.array()?), fields.u32()?, fields.array()?);
            if entries.last().is_some_and(|last| (last.key_id, last.key_epoch) >= (key_id, key_epoch)) {
                return Err(FormatError::Malformed("the entries of a keyset are not ascending"));
            }
            let (wrapped, label) = (sized(&mut fields)?, sized(&mut fields)?);
            entries.push(KeysetEntry { key_id, key_epoch, kek, wrapped, label });
        }
        fields.end()?;
        Ok(Self { entries })
    }

    /// Appends a whole blob of kind [`BlobKind::Keyset`] with this document.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn write_blob(&self, id: BlobId, out: &mut Vec<u8>) -> Result<Finished, FormatError> {
        let document = self.encode()?;
        let mut writer = BlobWriter::new(BlobSpec { id, kind: BlobKind::Keyset, seal: Seal::None }, out);
        let mut segments = Vec::new();
        for plain in document.chunks(SEGMENT_LEN) {
            let plain_len = u32::try_from(plain.len()).expect("segments have at most 4 MiB");
            segments.push(Segment {
                plain_len,
                stored_offset: writer.payload_len(),
                stored_len: plain_len,
                coding: Coding::Raw,
                digest: segment_digest(plain),
                footprint: Vec::new(),
            });
            writer.push(plain, out)?;
        }
        writer.finish(&segments, &[], &ObjectFacts::default(), out)
    }

    /// Opens a whole keyset blob, checked in every part.
    ///
    /// # Errors
    /// [`FormatError`] for anything but an intact keyset blob of this id.
    pub fn read_blob(bytes: &[u8], id: BlobId) -> Result<Self, FormatError> {
        let blob = crate::whole::open(bytes, id, None)?;
        if blob.header.kind != BlobKind::Keyset || !blob.segments.iter().all(|segment| segment.coding == Coding::Raw) {
            return Err(FormatError::Malformed("not a keyset blob of raw segments"));
        }
        Self::decode(&blob.payload)
    }
}

fn sized(fields: &mut Fields<'_>) -> Result<Vec<u8>, FormatError> {
    let len = fields.u16()?;
    Ok(fields.take(usize::from(len))?.to_vec())
}
