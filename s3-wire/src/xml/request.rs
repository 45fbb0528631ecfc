//! Documents clients send, every dimension bounded: bytes, depth, elements; no DOCTYPE, no entities
//! (C70–C72).

mod access;
mod switches;

use super::reader::Elements;
pub(crate) use super::reader::malformed;
use crate::{
    checksum::{Checksum, ChecksumAlgorithm},
    error::{ErrorCode, Result, S3Error},
    etag::ETag,
    headers::{WriteConditions, decimal, parse_moment},
    tags::{BUCKET_TAGS_MAX, TagSet},
};

pub use access::{
    AccessControlRequest, GRANTS_MAX, ObjectOwnership, PublicAccessBlockConfiguration, WrittenGrant, WrittenGrantee,
};
pub use switches::{asks_for_a_log, asks_for_acceleration, asks_the_requester_to_pay};

/// The most objects of one DeleteObjects.
pub const DELETE_OBJECTS_MAX: usize = 1000;
/// The most parts of an upload.
pub const PARTS_MAX: usize = 10_000;

/// `CreateBucketConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateBucketConfiguration {
    /// The region asked for.
    pub location_constraint: Option<String>,
    /// The tags the bucket is to have.
    pub tags: TagSet,
}

/// `VersioningConfiguration`, as a client sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersioningRequest {
    /// `Status`: true for `Enabled`, false for `Suspended`.
    pub enabled: bool,
    /// `MfaDelete`, if named: true for `Enabled`.
    pub mfa_delete: Option<bool>,
}

impl VersioningRequest {
    /// Parses a document.
    ///
    /// # Errors
    /// `MissingRequestBodyError` for an empty one; `IllegalVersioningConfigurationException`
    /// without a status; `MalformedXML`, also for other words.
    pub fn parse(document: &[u8]) -> Result<Self> {
        if document.is_empty() {
            return Err(S3Error::new(ErrorCode::MissingRequestBodyError));
        }
        let (mut enabled, mut mfa_delete) = (None, None);
        Elements::parse(document, "VersioningConfiguration", |xml| {
            xml.children(|xml, name| match name {
                "Status" => set_once(&mut enabled, either(&xml.text()?, "Enabled", "Suspended")?),
                "MfaDelete" | "MFADelete" => set_once(&mut mfa_delete, either(&xml.text()?, "Enabled", "Disabled")?),
                _ => Err(malformed()),
            })
        })?;
        let enabled = enabled.ok_or_else(|| S3Error::new(ErrorCode::IllegalVersioningConfigurationException))?;
        Ok(Self { enabled, mfa_delete })
    }
}

/// One of two words.
pub(crate) fn either(text: &str, yes: &str, no: &str) -> Result<bool> {
    match text.trim() {
        word if word == yes => Ok(true),
        word if word == no => Ok(false),
        _ => Err(malformed()),
    }
}

/// `Delete`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// What to delete, 1–1000.
    pub objects: Vec<DeleteEntry>,
    /// Whether the answer lists failures only.
    pub quiet: bool,
}

/// One object of a `Delete`. The key is as sent: [`crate::ObjectKey::new`] may still refuse it,
/// which is then that entry's error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteEntry {
    /// Its key.
    pub key: String,
    /// Its version.
    pub version_id: Option<String>,
    /// Delete only when the tag, the second of the last modification and the size are these.
    pub conditions: WriteConditions,
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
    /// `MalformedXML`, also for elements S3 does not have; `NotImplemented` for those of directory
    /// buckets; as [`TagSet::new`].
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut configuration = Self::default();
        let mut tags = None;
        if document.is_empty() {
            return Ok(configuration);
        }
        Elements::parse(document, "CreateBucketConfiguration", |xml| {
            xml.children(|xml, name| match name {
                "LocationConstraint" => set_once(&mut configuration.location_constraint, xml.text()?),
                "Location" | "Bucket" => Err(S3Error::new(ErrorCode::NotImplemented).field("Element", name)),
                "Tags" => set_once(&mut tags, tag_list(xml, BUCKET_TAGS_MAX)?),
                _ => Err(malformed()),
            })
        })?;
        configuration.tags = TagSet::new(tags.unwrap_or_default(), BUCKET_TAGS_MAX)?;
        configuration.location_constraint = configuration.location_constraint.filter(|region| !region.is_empty());
        Ok(configuration)
    }
}

impl Delete {
    /// Parses a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for none or more than 1000 objects, and for conditions that are no
    /// moment or size.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut delete = Self::default();
        let mut quiet = None;
        Elements::parse(document, "Delete", |xml| {
            xml.children(|xml, name| match name {
                "Quiet" => set_once(&mut quiet, xml.boolean()?),
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
    let (mut key, mut version_id) = (None, None);
    let mut conditions = WriteConditions::default();
    xml.children(|xml, name| match name {
        "Key" => set_once(&mut key, xml.text()?),
        "VersionId" => set_once(&mut version_id, xml.text()?),
        "ETag" => set_once(&mut conditions.if_match, ETag::from_wire(&xml.text()?)),
        "LastModifiedTime" => {
            set_once(&mut conditions.if_match_last_modified, parse_moment(&xml.text()?).ok_or_else(malformed)?)
        }
        "Size" => set_once(&mut conditions.if_match_size, decimal(xml.text()?.trim()).ok_or_else(malformed)?),
        _ => xml.skip(),
    })?;
    let version_id = version_id.filter(|version: &String| !version.is_empty());
    if conditions.if_match.as_ref().is_some_and(|etag| etag.as_str() == "*") {
        conditions = WriteConditions { if_match: None, if_match_any: true, ..conditions };
    }
    Ok(DeleteEntry { key: key.ok_or_else(malformed)?, version_id, conditions })
}

impl CompleteMultipartUpload {
    /// Parses a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for none or more than 10,000 parts; `InvalidPartOrder`;
    /// `InvalidArgument` for a number out of range (C84).
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
        "PartNumber" => set_once(&mut number, xml.text()?),
        "ETag" => set_once(&mut etag, ETag::from_wire(&xml.text()?)),
        other => match ChecksumAlgorithm::ALL.into_iter().find(|algorithm| algorithm.element() == other) {
            Some(algorithm) => {
                let text = xml.text()?;
                // One for each part, in base64.
                let value = Checksum::parse(algorithm, text.trim()).ok().filter(|_| checksum.is_none());
                checksum = Some(value.ok_or_else(|| {
                    let message = "Invalid Base64 or multiple checksums present in request";
                    S3Error::invalid_argument("Checksum", text, message)
                })?);
                Ok(())
            }
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

/// Reads a `Tagging` of an object or bucket.
///
/// # Errors
/// `MalformedXML`, also for elements S3 does not have; as [`TagSet::new`].
pub fn parse_tagging(document: &[u8], tags_max: usize) -> Result<TagSet> {
    let mut tags = None;
    Elements::parse(document, "Tagging", |xml| {
        xml.children(|xml, name| match name {
            "TagSet" => set_once(&mut tags, tag_list(xml, tags_max)?),
            _ => Err(malformed()),
        })
    })?;
    TagSet::new(tags.ok_or_else(malformed)?, tags_max)
}

/// The `Tag`s of the current element; at most one more than there may be, which [`TagSet::new`]
/// then refuses.
fn tag_list(xml: &mut Elements<'_>, tags_max: usize) -> Result<Vec<(String, String)>> {
    let mut tags = Vec::new();
    xml.children(|xml, name| {
        if name != "Tag" {
            return Err(malformed());
        }
        let tag = tag(xml)?;
        if tags.len() <= tags_max {
            tags.push(tag);
        }
        Ok(())
    })?;
    Ok(tags)
}

/// Key and value of the current element, a `Tag`.
pub(crate) fn tag(xml: &mut Elements<'_>) -> Result<(String, String)> {
    let (mut key, mut value) = (None, None);
    xml.children(|xml, name| match name {
        "Key" => set_once(&mut key, xml.text()?),
        "Value" => set_once(&mut value, xml.text()?),
        _ => Err(malformed()),
    })?;
    Ok((key.ok_or_else(malformed)?, value.ok_or_else(malformed)?))
}

/// Takes the value of an element that may stand once.
pub(crate) fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(malformed()),
    }
}

#[cfg(test)]
mod tests;
