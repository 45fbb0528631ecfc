//! The catalog: which version of which key is which extents of which blobs, and what is owed to whom.
//!
//! [`Catalog`] is the contract; [`types`] are its nouns. It knows no S3, no backends and no codecs: facts are opaque
//! bytes, blobs are ids with lengths. Every mutation is one transaction that also appends to the journal (I9, I11).

mod contract;
pub mod types;

pub use contract::{Catalog, CatalogError, Result};
pub use types::*;
