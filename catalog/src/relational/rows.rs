//! Rows to nouns and back.

use super::session::{Row, Statement, Value, signed, statement};
use crate::{CatalogError, Result, types::*};

/// Columns of [`version`], in its order, of table alias `v`.
macro_rules! version_columns {
    () => {
        "v.bucket, v.key, v.id, v.seq, v.modified_ms, v.size, v.facts, v.extents_digest"
    };
}
pub(crate) use version_columns;

/// How many columns [`version_columns`] names.
pub(crate) const VERSION_WIDTH: usize = 8;
/// Which of them is `seq`.
pub(crate) const VERSION_SEQ: usize = 3;

pub(crate) fn version(row: &Row) -> Result<Version> {
    Ok(Version {
        bucket: BucketId(row.int(0)?),
        key: row.key(1)?,
        id: VersionId(row.array(2)?),
        seq: row.int(3)?,
        modified_ms: row.int(4)?,
        size: row.unsigned(5)?,
        facts: row.bytes(6)?.to_vec(),
        extents_digest: row.array(7)?,
    })
}

/// Columns of [`blob`], in its order, of table alias `b`.
macro_rules! blob_columns {
    () => {
        "b.id, b.bucket, b.key_epoch, b.backend, b.form, b.state, b.plain_len, b.stored_len, b.root_offset, b.root_len, \
         b.root_tag, b.digest, b.raw_plain, b.zstd_plain, b.zstd_stored, b.delta_plain, b.delta_stored, b.inline_bytes, \
         b.original, b.pack, b.copy_id"
    };
}
pub(crate) use blob_columns;

/// Reads a blob's row from the columns that begin at `first`.
pub(crate) fn blob(row: &Row, first: usize) -> Result<BlobRow> {
    let digest = match row.is_null(first + 11) {
        true => None,
        false => Some(row.array(first + 11)?),
    };
    Ok(BlobRow {
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
    })
}

pub(crate) fn insert_blob(row: &BlobRow) -> Result<Statement> {
    Ok(statement!(
        "INSERT INTO blobs (id, bucket, key_epoch, backend, form, state, plain_len, stored_len, root_offset, root_len, root_tag, \
         digest, raw_plain, zstd_plain, zstd_stored, delta_plain, delta_stored, inline_bytes, original, pack) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)",
        row.id.0,
        row.bucket.0,
        row.key_epoch,
        row.backend.as_str(),
        match row.form {
            BlobForm::Whole => 0,
            BlobForm::Delta => 1i64,
        },
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
        row.original.as_ref().map(serde_json::to_string).transpose().map_err(unwritable)?.as_deref(),
        i64::from(row.pack),
    ))
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
    read.map_err(|error| CatalogError::Other(format!("column {column} names no original: {error}")))
}

fn unwritable(error: serde_json::Error) -> CatalogError {
    CatalogError::Other(error.to_string())
}

pub(crate) fn form(value: i64) -> Result<BlobForm> {
    match value {
        0 => Ok(BlobForm::Whole),
        1 => Ok(BlobForm::Delta),
        other => Err(CatalogError::Other(format!("unknown blob form {other}"))),
    }
}

pub(crate) fn state(value: i64) -> Result<BlobState> {
    match value {
        0 => Ok(BlobState::Live),
        1 => Ok(BlobState::Dying),
        other => Err(CatalogError::Other(format!("unknown blob state {other}"))),
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
    })
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
