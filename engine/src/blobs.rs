//! Stored bytes: reading and checking blobs, uploading them, pinning them against the collector,
//! and content that is no blob of ours.

pub(crate) mod base_reader;
pub(crate) mod caches;
pub(crate) mod copy_name;
pub(crate) mod decode;
pub(crate) mod open;
pub(crate) mod originals;
pub(crate) mod piece;
pub(crate) mod pins;
pub(crate) mod runs;
pub(crate) mod stores;
pub(crate) mod texts;
pub(crate) mod upload;
pub(crate) mod views;
