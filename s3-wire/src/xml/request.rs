//! Documents clients send, every dimension bounded: bytes, depth, elements; no DOCTYPE, no entities (C70–C72).

use super::reader::Elements;
use crate::{
    checksum::{Checksum, ChecksumAlgorithm},
    error::{ErrorCode, Result, S3Error},
    etag::ETag,
    headers::decimal,
};

/// The most objects of one DeleteObjects.
pub const DELETE_OBJECTS_MAX: usize = 1000;
/// The most parts of an upload.
pub const PARTS_MAX: usize = 10_000;

/// `CreateBucketConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateBucketConfiguration {
    /// The region asked for.
    pub location_constraint: Option<String>,
}

/// `Delete`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// What to delete, 1–1000.
    pub objects: Vec<DeleteEntry>,
    /// Whether the answer lists failures only.
    pub quiet: bool,
}

/// One object of a `Delete`. The key is as sent: [`crate::ObjectKey::new`] may still refuse it, which is then that entry's error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteEntry {
    /// Its key.
    pub key: String,
    /// Its version.
    pub version_id: Option<String>,
    /// Delete only when the tag is this.
    pub etag: Option<ETag>,
}

/// `CompleteMultipartUpload`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompleteMultipartUpload {
    /// 1–10,000 parts, numbers strictly ascending.
    pub parts: Vec<CompletedPart>,
}

/// One part of a `CompleteMultipartUpload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedPart {
    /// 1–10,000.
    pub number: u32,
    /// The tag the upload of the part answered.
    pub etag: ETag,
    /// Its checksum, when the client repeats it.
    pub checksum: Option<Checksum>,
}

impl CreateBucketConfiguration {
    /// Parses a document; an empty body is the default.
    ///
    /// # Errors
    /// `MalformedXML`.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut configuration = Self::default();
        if document.is_empty() {
            return Ok(configuration);
        }
        Elements::parse(document, "CreateBucketConfiguration", |xml| {
            xml.children(|xml, name| match name {
                "LocationConstraint" => set(&mut configuration.location_constraint, xml.text()?),
                "Location" | "Bucket" => Err(S3Error::new(ErrorCode::NotImplemented).field("Element", name)),
                _ => xml.skip(),
            })
        })?;
        configuration.location_constraint = configuration.location_constraint.filter(|region| !region.is_empty());
        Ok(configuration)
    }
}

impl Delete {
    /// Parses a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for none or more than 1000 objects; `NotImplemented` for the conditions on time and size that only directory buckets have.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut delete = Self::default();
        let mut quiet = None;
        Elements::parse(document, "Delete", |xml| {
            xml.children(|xml, name| match name {
                "Quiet" => set(&mut quiet, xml.boolean()?),
                "Object" if delete.objects.len() == DELETE_OBJECTS_MAX => Err(malformed()), // C72
                "Object" => {
                    delete.objects.push(delete_entry(xml)?);
                    Ok(())
                }
                _ => xml.skip(),
            })
        })?;
        delete.quiet = quiet.unwrap_or(false);
        if delete.objects.is_empty() { Err(malformed()) } else { Ok(delete) }
    }
}

fn delete_entry(xml: &mut Elements<'_>) -> Result<DeleteEntry> {
    let (mut key, mut version_id, mut etag) = (None, None, None);
    xml.children(|xml, name| match name {
        "Key" => set(&mut key, xml.text()?),
        "VersionId" => set(&mut version_id, xml.text()?),
        "ETag" => set(&mut etag, ETag::from_wire(&xml.text()?)),
        "LastModifiedTime" | "Size" => Err(S3Error::new(ErrorCode::NotImplemented).field("Element", name)),
        _ => xml.skip(),
    })?;
    let version_id = version_id.filter(|version: &String| !version.is_empty());
    Ok(DeleteEntry { key: key.ok_or_else(malformed)?, version_id, etag })
}

impl CompleteMultipartUpload {
    /// Parses a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for none or more than 10,000 parts; `InvalidPartOrder`; `InvalidArgument` for a number out of range (C84).
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut parts: Vec<CompletedPart> = Vec::new();
        Elements::parse(document, "CompleteMultipartUpload", |xml| {
            xml.children(|xml, name| match name {
                "Part" if parts.len() == PARTS_MAX => Err(malformed()), // C72
                "Part" => {
                    parts.push(completed_part(xml)?);
                    Ok(())
                }
                _ => xml.skip(),
            })
        })?;
        if parts.is_empty() {
            return Err(malformed());
        }
        if !parts.is_sorted_by(|a, b| a.number < b.number) {
            return Err(S3Error::new(ErrorCode::InvalidPartOrder));
        }
        Ok(Self { parts })
    }
}

fn completed_part(xml: &mut Elements<'_>) -> Result<CompletedPart> {
    let (mut number, mut etag, mut checksum) = (None, None, None);
    xml.children(|xml, name| match name {
        "PartNumber" => set(&mut number, xml.text()?),
        "ETag" => set(&mut etag, ETag::from_wire(&xml.text()?)),
        other => match ChecksumAlgorithm::ALL.into_iter().find(|algorithm| algorithm.element() == other) {
            Some(algorithm) => set(&mut checksum, Checksum::parse(algorithm, xml.text()?.trim())?),
            None => xml.skip(),
        },
    })?;
    let text: String = number.ok_or_else(malformed)?;
    let number = decimal(text.trim()).and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=10_000).contains(n));
    let number = number.ok_or_else(|| {
        S3Error::invalid_argument("PartNumber", text, "Part number must be an integer between 1 and 10000, inclusive")
    })?;
    Ok(CompletedPart { number, etag: etag.ok_or_else(malformed)?, checksum })
}

/// Takes the value of an element that may stand once.
fn set<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(malformed()),
    }
}

fn malformed() -> S3Error {
    S3Error::new(ErrorCode::MalformedXML)
}

#[cfg(test)]
mod tests;
