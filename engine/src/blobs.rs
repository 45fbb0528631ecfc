//! Stored bytes: reading and checking blobs, uploading them, pinning them against the collector,
//! and content that is no blob of ours.

pub(crate) mod open;
pub(crate) mod originals;
pub(crate) mod pins;
pub(crate) mod stores;
pub(crate) mod upload;
pub(crate) mod views;
