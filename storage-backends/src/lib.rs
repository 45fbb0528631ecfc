//! Where sealed bytes rest: the [`Backend`] trait, its implementations and the wrappers around
//! them.
//!
//! A backend stores *blobs*: immutable byte strings under names that are never used twice. It knows
//! nothing of S3 keys, deltas, seals or the catalog. What a backend must promise stands on
//! [`Backend`]; comfort (collecting a stream, reading a whole blob) lives in functions beside the
//! trait, never in it.
//!
//! Wrappers are backends too and stack in any order; the useful one is, from the inside: store,
//! [`Guarded`] (a disk that can be full), [`Measured`] (every request that really happens),
//! [`Limited`], [`Retrying`].

#[cfg(feature = "azure")]
mod azure;
mod backend;
mod batches;
pub mod beneath;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod fault;
#[cfg(feature = "gcs")]
mod gcs;
mod limit;
mod local;
mod measured;
mod memory;
mod observer;
mod plain;
mod random;
mod reserve;
mod retry;
#[cfg(feature = "s3")]
mod s3;
mod unfinished;
mod whole;

#[cfg(feature = "azure")]
pub use azure::{AzureConfig, AzureCredentials};
pub use backend::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, PutReceipt, Result};
#[cfg(feature = "cloud")]
pub use cloud::{CloudBackend, Timeouts, TrustedCertificates, UploadOptions};
pub use fault::{Fault, FaultRates, FaultSchedule, Faulty};
#[cfg(feature = "gcs")]
pub use gcs::{GcsConfig, GcsCredentials};
pub use limit::{Concurrency, Limited};
pub use local::{LocalBackend, LocalOptions};
pub use measured::Measured;
pub use memory::MemoryBackend;
pub use observer::{Direction, Observer, Op, Outcome, Unobserved};
#[cfg(feature = "s3")]
pub use plain::PlainBucket;
#[cfg(feature = "cloud")]
pub use plain::PlainCloud;
pub use plain::{
    KeyBound, PlainDirectory, PlainEntry, PlainObject, PlainPut, PlainRead, PlainRemoval, PlainStore, PlainWriter,
};
pub use reserve::{Guarded, MayTakeTheLast, Reserve};
pub use retry::{Repeats, RetryPolicy, Retrying};
#[cfg(feature = "s3")]
pub use s3::{S3Checksum, S3Config, S3Credentials, read_profile};
pub use unfinished::{IsNobodys, UnfinishedUploads};
pub use whole::{body_of, collect, get_all, put_bytes};
