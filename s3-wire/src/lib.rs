//! s3-wire
