//! Rows to nouns and back.

use super::{
    checksums,
    columns::{COMPLIANCE, GOVERNANCE, HELD, HOLD_ENDED, form_column, original_text},
    session::{Row, Statement, Value, signed, statement},
};
use crate::{CatalogError, Result, types::*};

/// Columns of [`version`], in its order, of table alias `v`.
macro_rules! version_columns {
    () => {
        "v.bucket, v.key, v.id, v.seq, v.modified_ms, v.size, v.facts, v.extents_digest, v.named, v.marker, v.lock, v.retain_until_ms, \
         v.checksum"
    };
}
pub(crate) use version_columns;

/// How many columns [`version_columns`] names.
pub(crate) const VERSION_WIDTH: usize = 13;
/// Which of them is `seq`.
pub(crate) const VERSION_SEQ: usize = 3;

pub(crate) fn version(row: &Row) -> Result<Version> {
    version_at(row, 0)
}

/// Reads a version's row from the columns that begin at `first`.
pub(crate) fn version_at(row: &Row, first: usize) -> Result<Version> {
    let version = Version {
        bucket: BucketId(row.int(first)?),
        key: row.key(first + 1)?,
        id: VersionId(row.array(first + 2)?),
        seq: row.int(first + 3)?,
        modified_ms: row.int(first + 4)?,
        size: row.unsigned(first + 5)?,
        facts: row.bytes(first + 6)?.to_vec(),
        extents_digest: row.array(first + 7)?,
        named: row.int(first + 8)? != 0,
        marker: row.int(first + 9)? != 0,
        lock: lock(row, first + 10)?,
    };
    checksums::compare_version(row, first + 12, &version)?;
    Ok(version)
}

/// Reads a lock from the two columns lock, retain_until_ms that begin at `first`.
pub(crate) fn lock(row: &Row, first: usize) -> Result<VersionLock> {
    let lock = row.int(first)?;
    let mode = match lock & !(HELD | HOLD_ENDED) {
        0 => None,
        GOVERNANCE => Some(RetentionMode::Governance),
        COMPLIANCE => Some(RetentionMode::Compliance),
        _ => return Err(CatalogError::Damaged(format!("unknown lock {lock}"))),
    };
    let retention = match (mode, row.optional_int(first + 1)?) {
        (None, _) => None,
        (Some(mode), Some(until_ms)) => Some(Retention { mode, until_ms }),
        (Some(_), None) => return Err(CatalogError::Damaged("a retention has no end".into())),
    };
    let legal_hold = match lock & (HELD | HOLD_ENDED) {
        0 => None,
        hold => Some(hold == HELD),
    };
    Ok(VersionLock { retention, legal_hold })
}

/// Columns of [`blob`], in its order, of table alias `b`.
macro_rules! blob_columns {
    () => {
        "b.id, b.bucket, b.key_epoch, b.backend, b.form, b.state, b.plain_len, b.stored_len, b.root_offset, b.root_len, \
         b.root_tag, b.digest, b.raw_plain, b.zstd_plain, b.zstd_stored, b.delta_plain, b.delta_stored, b.inline_bytes, \
         b.original, b.pack, b.copy_id, b.compartment, b.checksum"
    };
}
pub(crate) use blob_columns;

/// Reads a blob's row from the columns that begin at `first`.
pub(crate) fn blob(row: &Row, first: usize) -> Result<BlobRow> {
    let digest = match row.is_null(first + 11) {
        true => None,
        false => Some(row.array(first + 11)?),
    };
    let blob = BlobRow {
        id: BlobKey(row.array(first)?),
        bucket: BucketId(row.int(first + 1)?),
        key_epoch: row.small(first + 2)?,
        backend: row.text(first + 3)?.to_owned(),
        form: form(row.int(first + 4)?)?,
        state: state(row.int(first + 5)?)?,
        plain_len: row.unsigned(first + 6)?,
        stored_len: row.unsigned(first + 7)?,
        root_offset: row.unsigned(first + 8)?,
        root_len: row.small(first + 9)?,
        root_tag: row.array(first + 10)?,
        digest,
        forms: FormBytes {
            raw_plain: row.unsigned(first + 12)?,
            zstd_plain: row.unsigned(first + 13)?,
            zstd_stored: row.unsigned(first + 14)?,
            delta_plain: row.unsigned(first + 15)?,
            delta_stored: row.unsigned(first + 16)?,
        },
        inline: row.optional_bytes(first + 17)?,
        original: original(row, first + 18)?,
        pack: row.int(first + 19)? != 0,
        copy: optional_blob(row, first + 20)?,
        compartment: if row.is_null(first + 21) { None } else { Some(Compartment(row.array(first + 21)?)) },
    };
    checksums::compare(row, first + 22, checksums::of_blob(&blob)?, "blob", || hex::encode(blob.id.0))?;
    Ok(blob)
}

pub(crate) fn insert_blob(row: &BlobRow) -> Result<Statement> {
    Ok(statement!(
        "INSERT INTO blobs (id, bucket, key_epoch, backend, form, state, plain_len, stored_len, root_offset, root_len, root_tag, \
         digest, raw_plain, zstd_plain, zstd_stored, delta_plain, delta_stored, inline_bytes, original, pack, compartment, checksum) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)",
        row.id.0,
        row.bucket.0,
        row.key_epoch,
        row.backend.as_str(),
        form_column(row.form),
        match row.state {
            BlobState::Live => 0,
            BlobState::Dying => 1i64,
        },
        signed(row.plain_len)?,
        signed(row.stored_len)?,
        signed(row.root_offset)?,
        row.root_len,
        row.root_tag,
        row.digest,
        signed(row.forms.raw_plain)?,
        signed(row.forms.zstd_plain)?,
        signed(row.forms.zstd_stored)?,
        signed(row.forms.delta_plain)?,
        signed(row.forms.delta_stored)?,
        row.inline.clone(),
        original_text(row)?.as_deref(),
        i64::from(row.pack),
        row.compartment.map(|compartment| compartment.0),
        checksums::of_blob(row)?,
    ))
}

/// Reads an edge from the three columns delta, base, checksum that begin at `first`.
pub(crate) fn edge(row: &Row, first: usize) -> Result<(BlobKey, BlobKey)> {
    let (delta, base) = (BlobKey(row.array(first)?), BlobKey(row.array(first + 1)?));
    checksums::compare(row, first + 2, checksums::of_edge(&delta.0, &base.0), "base of delta", || {
        hex::encode(delta.0)
    })?;
    Ok((delta, base))
}

/// The bases of edges whose columns begin with the row.
pub(crate) fn bases(rows: &[Row]) -> Result<Vec<BlobKey>> {
    rows.iter().map(|row| edge(row, 0).map(|(_, base)| base)).collect()
}

/// Reads a part, without its extents, from the columns number, id, size, modified_ms, facts that
/// begin at `first`.
pub(crate) fn part(row: &Row, first: usize) -> Result<Part> {
    Ok(Part {
        number: row.small(first)?,
        id: row.array(first + 1)?,
        size: row.unsigned(first + 2)?,
        modified_ms: row.int(first + 3)?,
        facts: row.bytes(first + 4)?.to_vec(),
        extents: Vec::new(),
    })
}

/// Reads a journal row from its columns seq, at_ms, mutation, checksum. Text that is what was
/// written is JSON; without a checksum nothing says that it is.
pub(crate) fn entry(row: &Row) -> Result<JournalEntry> {
    entry_sum(row, 0)?;
    let (seq, at_ms, text) = (row.int(0)?, row.int(1)?, row.text(2)?.to_owned());
    let mutation = if row.is_null(3) {
        let parsed = MutationText::parse(text);
        parsed.map_err(|error| CatalogError::Damaged(format!("mutation {seq} is not JSON: {error}")))?
    } else {
        MutationText::known(text)
    };
    Ok(JournalEntry { seq, at_ms, mutation })
}

/// The checksum of a journal row whose columns begin at `first`, compared with the one it has.
pub(crate) fn entry_sum(row: &Row, first: usize) -> Result<i64> {
    checksums::compare_entry(row, first + 3, (row.int(first)?, row.int(first + 1)?, row.text(first + 2)?))
}

/// A blob's id, where there is one.
pub(crate) fn optional_blob(row: &Row, column: usize) -> Result<Option<BlobKey>> {
    if row.is_null(column) { Ok(None) } else { Ok(Some(BlobKey(row.array(column)?))) }
}

/// Where the content of a blob row's original lies; the column is JSON or null.
pub(crate) fn original(row: &Row, column: usize) -> Result<Option<Original>> {
    if row.is_null(column) {
        return Ok(None);
    }
    let read = serde_json::from_value(row.json(column)?);
    read.map_err(|error| CatalogError::Damaged(format!("column {column} names no original: {error}")))
}

pub(crate) fn form(value: i64) -> Result<BlobForm> {
    match value {
        0 => Ok(BlobForm::Whole),
        1 => Ok(BlobForm::Delta),
        other => Err(CatalogError::Damaged(format!("unknown blob form {other}"))),
    }
}

pub(crate) fn state(value: i64) -> Result<BlobState> {
    match value {
        0 => Ok(BlobState::Live),
        1 => Ok(BlobState::Dying),
        other => Err(CatalogError::Damaged(format!("unknown blob state {other}"))),
    }
}

/// Reads an extent from the three columns blob, plain_offset, plain_len that begin at `first`.
pub(crate) fn extent(row: &Row, first: usize) -> Result<Extent> {
    Ok(Extent { blob: BlobKey(row.array(first)?), offset: row.unsigned(first + 1)?, len: row.unsigned(first + 2)? })
}

pub(crate) fn bucket(row: &Row) -> Result<Bucket> {
    Ok(Bucket {
        id: BucketId(row.int(0)?),
        name: row.text(1)?.to_owned(),
        owner: row.text(2)?.to_owned(),
        created_ms: row.int(3)?,
        settings: row.json(4)?,
        versioning: versioning(row.int(5)?)?,
        object_lock: row.int(6)? != 0,
    })
}

/// Columns of [`bucket`], in its order.
macro_rules! bucket_columns {
    () => {
        "id, name, owner, created_ms, settings, versioning, object_lock"
    };
}
pub(crate) use bucket_columns;

pub(crate) fn versioning(value: i64) -> Result<Versioning> {
    match value {
        0 => Ok(Versioning::Off),
        1 => Ok(Versioning::Enabled),
        2 => Ok(Versioning::Suspended),
        other => Err(CatalogError::Damaged(format!("unknown versioning {other}"))),
    }
}

pub(crate) fn versioning_column(versioning: Versioning) -> i64 {
    match versioning {
        Versioning::Off => 0,
        Versioning::Enabled => 1,
        Versioning::Suspended => 2,
    }
}

/// Columns of [`upload`], in its order.
macro_rules! upload_columns {
    () => {
        "bucket, key, id, created_ms, owner, facts, version, parts_digest, completed_ms"
    };
}
pub(crate) use upload_columns;

pub(crate) fn upload(row: &Row) -> Result<Upload> {
    let completed = match row.optional_int(8)? {
        None => None,
        Some(completed_ms) => {
            Some(CompletedUpload { version: VersionId(row.array(6)?), parts_digest: row.array(7)?, completed_ms })
        }
    };
    Ok(Upload {
        bucket: BucketId(row.int(0)?),
        key: row.key(1)?,
        id: UploadId(row.array(2)?),
        created_ms: row.int(3)?,
        owner: row.text(4)?.to_owned(),
        facts: row.bytes(5)?.to_vec(),
        completed,
    })
}

/// A client's key as it is stored.
pub(crate) fn key(key: &str) -> Value {
    Value::Bytes(key.as_bytes().to_vec())
}

/// Ids in the first column.
pub(crate) fn blob_keys(rows: &[Row]) -> Result<Vec<BlobKey>> {
    rows.iter().map(|row| row.array(0).map(BlobKey)).collect()
}
