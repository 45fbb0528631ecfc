//! The catalog: which version of which key is which extents of which blobs, and what is owed to
//! whom.
//!
//! [`Catalog`] is the contract; [`types`] are its nouns. It knows no S3, no backends and no codecs:
//! facts are opaque bytes, blobs are ids with lengths. Every mutation is one transaction that also
//! appends to the journal (I9, I11).
//!
//! [`SqliteCatalog`] is the catalog of one process, `PostgresCatalog` (behind the feature
//! `postgres`) that of several. Rules, statements and schema are shared by all implementations
//! (`relational`), and all of them pass one suite ([`conformance`], behind the feature of that
//! name). `SimulatedCatalog` (behind the feature `simulated`) is the catalog of a simulation.

mod admission;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
mod encoding;
mod mutation;
#[cfg(feature = "postgres")]
mod postgres;
mod relational;
mod snapshot;
mod sqlite;
pub mod types;
mod value;

pub use contract::{Catalog, CatalogError, CommitObserver, Gate, Result, SpareSpace};
pub use mutation::{Mutation, Seals};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresCatalog, PostgresOptions};
pub use snapshot::{Exported, JournalLink, JournalMarks, TableRows, Value};
#[cfg(feature = "simulated")]
pub use sqlite::simulated::{Call, SimulatedCatalog, SimulatedDatabase, Weather};
pub use sqlite::{ReadWork, Remains, SqliteCatalog, SqliteOptions, read_remains, set_aside};
pub use types::*;
