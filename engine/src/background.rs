//! Jobs: collecting, verifying, copying, packing and encoding anew, and the scheduler that runs
//! them.

pub(crate) mod abandoned_uploads;
pub(crate) mod collect;
pub(crate) mod collection;
pub(crate) mod convert;
pub(crate) mod converter;
pub(crate) mod copies;
pub(crate) mod encrypt;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod leftovers;
pub(crate) mod lifecycle;
pub(crate) mod looks;
pub(crate) mod notify;
pub(crate) mod packs;
pub(crate) mod reencode;
pub(crate) mod reencrypt;
pub(crate) mod remnants;
pub(crate) mod scrub;
pub(crate) mod settling;
pub(crate) mod shred;
pub(crate) mod soundness;
pub(crate) mod sweep;
