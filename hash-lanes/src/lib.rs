//! MD5 of several streams side by side. One stream's MD5 cannot be computed in parallel: each step
//! waits for the step before. Vector instructions take the same step of up to sixteen streams at
//! once instead.
//!
//! [`Md5`] is a stream's state; [`update_all`] feeds many of them. The results are those of RFC
//! 1321, whatever the processor has.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
mod rounds;
mod scalar;
mod stream;

pub use lanes::{LANES_MAX, lanes};
pub use stream::{Md5, update_all};
