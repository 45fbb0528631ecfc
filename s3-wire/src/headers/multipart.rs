//! Parameters of multipart uploads.

use crate::{
    address::Query,
    checksum::{Checksum, ChecksumAlgorithm, ChecksumType},
    error::Result,
};
use http::HeaderMap;

/// A part number, 1–10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartNumber(u32);

impl PartNumber {
    /// Takes a number; `None` out of range.
    pub fn new(number: u32) -> Option<Self> {
        (1..=10_000).contains(&number).then_some(Self(number))
    }

    /// Reads `partNumber`; `None` when absent (GET and HEAD may have it, UploadPart must).
    ///
    /// # Errors
    /// `InvalidArgument` when it is not a number in range (C84).
    pub fn from_query(_query: &Query) -> Result<Option<Self>> {
        unimplemented!()
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Reads `uploadId`.
///
/// # Errors
/// `NoSuchUpload` when it is empty or longer than 1 KiB.
pub fn upload_id(_query: &Query) -> Result<&str> {
    unimplemented!()
}

/// Parameters of ListParts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPartsParams {
    /// 0–1000.
    pub max_parts: u32,
    /// Parts after this number.
    pub part_number_marker: u32,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
}

impl ListPartsParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// `InvalidArgument` for numbers out of range.
    pub fn from_query(_query: &Query) -> Result<Self> {
        unimplemented!()
    }
}

/// What CreateMultipartUpload asks for, and what CompleteMultipartUpload says about the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumRequest {
    /// `x-amz-checksum-algorithm` with its type (the default one unless given).
    pub algorithm: Option<(ChecksumAlgorithm, ChecksumType)>,
    /// On Complete: the claimed checksum of the object.
    pub object: Option<Checksum>,
    /// On Complete: `x-amz-mp-object-size`.
    pub object_size: Option<u64>,
}

impl ChecksumRequest {
    /// Reads the headers of CreateMultipartUpload (algorithm and type).
    ///
    /// # Errors
    /// `InvalidRequest` for unknown names and for pairs that do not exist (full-object SHA, composite CRC64NVME).
    pub fn of_create(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }

    /// Reads the headers of CompleteMultipartUpload (value, type, size).
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn of_complete(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }
}

/// Whether `x-amz-checksum-mode: ENABLED` asks GET and HEAD to return checksums.
///
/// # Errors
/// `InvalidArgument` for another word.
pub fn checksum_mode(_headers: &HeaderMap) -> Result<bool> {
    unimplemented!()
}
