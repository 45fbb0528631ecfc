//! What clients see of this crate, as snapshots: a change of wording is a diff that somebody
//! reviews.

mod errors;
