//! Documents clients send, every dimension bounded: bytes, depth, elements; no DOCTYPE, no entities (C70–C72).

use crate::{checksum::Checksum, error::Result, etag::ETag};

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
    pub fn parse(_document: &[u8]) -> Result<Self> {
        unimplemented!()
    }
}

impl Delete {
    /// Parses a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for none or more than 1000 objects.
    pub fn parse(_document: &[u8]) -> Result<Self> {
        unimplemented!()
    }
}

impl CompleteMultipartUpload {
    /// Parses a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for none or more than 10,000 parts; `InvalidPartOrder`; `InvalidArgument` for a number out of range.
    pub fn parse(_document: &[u8]) -> Result<Self> {
        unimplemented!()
    }
}
