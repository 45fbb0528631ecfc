//! What every other room takes from: memory by permits, threads of the codec pool, lanes of
//! MD5, buffers, disks and what is kept free on them, and the pace of background reading.

pub(crate) mod budget;
pub(crate) mod buffers;
pub(crate) mod clock;
pub(crate) mod disks;
pub(crate) mod files;
pub(crate) mod ids;
pub(crate) mod machine;
pub(crate) mod md5_lanes;
pub(crate) mod observe;
pub(crate) mod pace;
pub(crate) mod pool;
pub(crate) mod reserves;
pub(crate) mod task;
pub(crate) mod turns;
