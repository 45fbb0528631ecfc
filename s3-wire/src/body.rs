//! The payload of a request without its framing.

mod chunked;
mod decoded;
mod framing;
mod trailers;

pub use decoded::{BoxError, DecodedBody};
pub use framing::Framing;
pub use trailers::Trailers;

#[cfg(test)]
mod tests;
