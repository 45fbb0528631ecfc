//! Where a request points: bucket, key and parameters, from the raw request target and `Host`,
//! decoded exactly once.

mod bucket_name;
mod domains;
mod object_key;
pub(crate) mod percent;
mod query;
mod target;
#[cfg(test)]
pub(crate) mod vectors;

pub use bucket_name::BucketName;
pub use domains::Domains;
pub use object_key::ObjectKey;
pub use query::Query;
pub use target::Target;
