//! The documents of S3: requests parsed with every dimension bounded, responses written from plain
//! structs.

pub(crate) mod reader;
pub mod request;
pub mod response;
mod writer;

pub use writer::{Document, XmlWriter};

/// What every document starts with. Sent alone first when an answer must keep its connection alive
/// before its content is known (CompleteMultipartUpload, CopyObject); the document then follows by
/// [`Document::to_bytes_bare`].
pub const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// The namespace of S3's response documents.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
