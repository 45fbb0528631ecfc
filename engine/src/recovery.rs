//! Not losing what the catalog knows (I11): its journal is shipped to a backend, snapshots of it
//! are kept there, and it can be made again from both. The format is docs/format/journal-v1.md, the
//! reasons are docs/decisions/0009-journal-chain.md.
//!
//! ```text
//! catalog.journal ── ship ──► journal/LINEAGE/FIRST …  ┐
//! catalog rows ──── backup ─► backup/…, backup-part/…  ├─► restore, rebuild ──► an empty catalog, a new lineage
//! blobs/ (their manifests) ────────────────────────────┘
//! ```

mod anchor;
mod backup;
mod branches;
mod check;
mod currency;
mod document;
mod known;
mod links;
mod look;
mod lost;
mod merge;
mod names;
mod options;
mod outside;
mod provided;
mod recovered;
mod restore;
mod safety;
mod ship;
mod store_key;
mod trust;
mod vault;
mod vouch;
mod witness;

pub use backup::BackupInfo;
pub use lost::{Hole, LostMutation};
pub use merge::{Conflict, Merged, Side, Written};

pub(crate) use check::Reader;
pub(crate) use document::decode_anything;
pub use options::{Fork, RecoveryOptions, RecoveryProgress};
pub use recovered::{LostVersion, Recovered};
pub use restore::{RecoveryReport, check_fork, list_backups, recover};
pub(crate) use safety::{Safety, sweep_floor};
pub use ship::Shipped;
pub(crate) use witness::Suspects;
