//! Typed views of the headers and parameters that operations know.

mod acl;
mod attributes;
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

pub use acl::AclHeaders;
pub use attributes::AttributesParams;
pub(crate) use conditions::parse_moment;
pub use conditions::{CopyConditions, Current, Outcome, ReadConditions, WriteConditions};
pub use content::{ContentHeaders, ResponseOverrides};
pub use copy_source::{CopySource, CopySourceRange, MetadataDirective, TaggingDirective};
pub use effective::effective;
pub use list::{ListObjectsParams, ListUploadsParams, ListVersionsParams};
pub use metadata::UserMetadata;
pub use multipart::{ChecksumRequest, ListPartsParams, PartNumber};
pub use range::ByteRange;
pub use refused::refuse_unsupported;
pub(crate) use single::{decimal, flag, given};
pub use single::{is_given, single};
pub use sse::{CustomerKey, EncryptionHeaders, KmsContext, ServerSide, TOLD_BUCKET_KEY, refuse_encryption_of_read};
pub use storage_class::StorageClass;
