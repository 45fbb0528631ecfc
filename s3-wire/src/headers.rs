//! Typed views of the headers and parameters that operations know.

mod acl;
mod conditions;
mod content;
mod copy_source;
mod effective;
pub mod list;
mod metadata;
pub mod multipart;
pub mod range;
mod refused;
mod single;
mod sse;
mod storage_class;

pub use acl::check_acl;
pub use conditions::{CopyConditions, Outcome, ReadConditions, WriteConditions};
pub use content::{ContentHeaders, ResponseOverrides};
pub use copy_source::{CopySource, CopySourceRange, MetadataDirective};
pub use effective::effective;
pub use list::{ListObjectsParams, ListUploadsParams};
pub use metadata::UserMetadata;
pub use multipart::{ChecksumRequest, ListPartsParams, PartNumber};
pub use range::ByteRange;
pub use refused::refuse_unsupported;
pub(crate) use single::decimal;
pub use single::single;
pub use sse::requested_encryption;
pub use storage_class::StorageClass;
