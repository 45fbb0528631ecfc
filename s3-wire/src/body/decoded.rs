//! The decoded body.

use super::{Framing, Trailers};
use crate::error::Result;
use bytes::Bytes;
use futures::Stream;
use http_body::Body;
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// Any transport error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Yields the payload of a body: slices of the incoming frames, never copied, never collected. Memory is one frame and one bounded
/// line, whatever the chunk size. Ends with `None` only when exactly the announced bytes have come and every signature and
/// the trailer's shape were good; otherwise the last item is an error whose [`close_connection`](crate::S3Error::close_connection) says
/// that the connection is out of step. Bytes yielded before the end are not yet vouched for: nothing may become visible
/// until the stream has ended (E24).
pub struct DecodedBody<B> {
    body: B,
    framing: Framing,
}

impl<B> DecodedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// Wraps a body.
    pub fn new(body: B, framing: Framing) -> Self {
        Self { body, framing }
    }

    /// The number of payload bytes this body has.
    pub fn decoded_len(&self) -> u64 {
        self.framing.decoded_len
    }

    /// The trailer, once the stream has ended well.
    pub fn trailers(&self) -> Option<&Trailers> {
        unimplemented!()
    }

    /// The next piece of the payload; `None` after the last.
    ///
    /// # Errors
    /// `IncompleteBody`, `InvalidChunkSizeError`, `SignatureDoesNotMatch`, `MalformedTrailerError`, `RequestTimeout` for transport errors.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Collects a body of at most `bytes_max` bytes: for documents.
    ///
    /// # Errors
    /// As [`DecodedBody::next`], and `MaxMessageLengthExceeded`.
    pub async fn collect(&mut self, _bytes_max: usize) -> Result<Bytes> {
        unimplemented!()
    }
}

impl<B> Stream for DecodedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let _ = &self.body;
        unimplemented!()
    }
}
