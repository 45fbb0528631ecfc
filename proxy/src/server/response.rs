//! The body of a response, which never ends short.

use super::record::RequestRecord;
use crate::{engine::EngineError, ops::body::AnswerBody};
use bytes::Bytes;
use futures::Stream as _;
use http_body::{Body, Frame, SizeHint};
use s3_wire::body::BoxError;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The body of a response on its way. Owns the record of its request, which is closed when the body
/// is.
pub struct ResponseBody {
    body: AnswerBody,
    sent: u64,
    record: RequestRecord,
}

impl ResponseBody {
    /// Wraps an answer.
    pub fn new(body: AnswerBody, mut record: RequestRecord) -> Self {
        if let AnswerBody::Whole(bytes) = &body
            && bytes.is_empty()
        {
            record.completed(0);
        }
        Self { body, sent: 0, record }
    }

    fn fail(&mut self, error: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        tracing::warn!(error = %error, "an answer was cut off");
        self.record.cut(self.sent, error.downcast_ref::<EngineError>());
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match &mut this.body {
            AnswerBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            AnswerBody::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                this.sent += bytes.len() as u64;
                this.record.completed(this.sent);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            AnswerBody::Stream { len, stream } => {
                let len = *len;
                match ready!(Pin::new(stream).poll_next(cx)) {
                    Some(Ok(bytes)) => {
                        this.sent += bytes.len() as u64;
                        if len.is_some_and(|len| this.sent > len) {
                            return this.fail("more content than the object has".into());
                        }
                        this.record.progressed(this.sent);
                        if len == Some(this.sent) {
                            this.record.completed(this.sent);
                        }
                        Poll::Ready(Some(Ok(Frame::data(bytes))))
                    }
                    Some(Err(error)) => this.fail(error),
                    None if len.is_some_and(|len| this.sent < len) => this.fail("content ended early".into()),
                    None => {
                        this.record.completed(this.sent);
                        Poll::Ready(None)
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            AnswerBody::Whole(bytes) => bytes.is_empty(),
            AnswerBody::Stream { len, .. } => *len == Some(self.sent),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            AnswerBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            AnswerBody::Stream { len: Some(len), .. } => SizeHint::with_exact(len - self.sent.min(*len)),
            AnswerBody::Stream { len: None, .. } => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;

    fn response(len: u64, pieces: &[Result<&'static [u8], ()>]) -> ResponseBody {
        let pieces: Vec<_> =
            pieces.iter().map(|piece| piece.map(Bytes::from_static).map_err(|()| "broken".into())).collect();
        let body = AnswerBody::Stream { len: Some(len), stream: stream::iter(pieces).boxed() };
        ResponseBody::new(body, RequestRecord::detached())
    }

    #[tokio::test]
    async fn a_response_that_ends_short_or_runs_over_is_an_error_not_an_end() {
        // I4
        let whole = response(6, &[Ok(b"abc"), Ok(b"def")]).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "abcdef");
        assert!(response(7, &[Ok(b"abc"), Ok(b"def")]).collect().await.is_err());
        assert!(response(5, &[Ok(b"abc"), Ok(b"def")]).collect().await.is_err());
        assert!(response(6, &[Ok(b"abc"), Err(())]).collect().await.is_err());
    }
}
