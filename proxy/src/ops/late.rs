//! Answers that may take long: after a while the status is sent and white space keeps the
//! connection alive until the document is known. An error then comes inside a 200, as it does from
//! S3 (C89).

use super::{
    body::AnswerBody,
    request::{Answer, Result},
};
use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use s3_wire::{
    S3Error,
    xml::{DECLARATION, Document},
};
use std::time::Duration;

/// How long the status is held back: work that ends within it is answered in the ordinary way.
const PATIENCE: Duration = Duration::from_secs(3);
/// Clients and what lies between give up on a silent connection after 30 to 60 s.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);

/// What work ends with: the answer, and its document without the declaration for when the head has
/// been sent already.
pub(super) struct Done {
    pub(super) answer: Answer,
    pub(super) document_bare: Bytes,
}

/// Awaits work that ends in a document. `told` are headers that are known before it ends: they go
/// with a head that is sent early. `in_error` completes an error that has to stand inside the body
/// (request ids and resource). When the client goes away the work's future is dropped with the
/// body.
pub(super) async fn answer_late(
    mut work: BoxFuture<'static, Result<Done>>,
    told: HeaderMap,
    in_error: impl FnOnce(S3Error) -> S3Error + Send + 'static,
) -> Result<Answer> {
    tracing::trace!(target: "path", "answer_late()");
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done.map(|done| done.answer);
    }
    let waiting = stream::unfold(Some((work, in_error)), |state| async {
        let (mut work, in_error) = state?;
        match tokio::time::timeout(KEEP_ALIVE_EVERY, &mut work).await {
            Err(_) => Some((Bytes::from_static(b" "), Some((work, in_error)))),
            Ok(Ok(done)) => Some((done.document_bare, None)),
            Ok(Err(error)) => Some((in_error(error).to_bytes_bare(), None)),
        }
    });
    let declaration = stream::once(async { Bytes::from_static(DECLARATION.as_bytes()) });
    let stream = declaration.chain(waiting).map(Ok).boxed();
    let mut answer = Response::new(AnswerBody::Stream { len: None, stream });
    *answer.status_mut() = StatusCode::OK;
    *answer.headers_mut() = told;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3_wire::ErrorCode;

    struct Word(&'static str);

    impl Document for Word {
        fn write(&self, xml: &mut s3_wire::xml::XmlWriter) {
            xml.open("Word");
            xml.text("Text", self.0);
            xml.close();
        }
    }

    fn work(takes: Duration, result: Result<&'static str>) -> BoxFuture<'static, Result<Done>> {
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            result.map(|word| Done {
                answer: crate::ops::request::document(&Word(word)),
                document_bare: Word(word).to_bytes_bare(),
            })
        })
    }

    async fn text(answer: Answer) -> String {
        match answer.into_body() {
            AnswerBody::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            AnswerBody::Stream { stream, .. } => {
                let pieces: Vec<Bytes> = stream.map(|piece| piece.unwrap()).collect().await;
                String::from_utf8(pieces.concat()).unwrap()
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn quick_work_is_answered_as_if_it_were_not_late() {
        let answer =
            answer_late(work(Duration::from_secs(1), Ok("hi")), HeaderMap::new(), |error| error).await.unwrap();
        assert_eq!(text(answer).await, Word("hi").to_bytes());
        let refused =
            answer_late(work(Duration::from_secs(1), Err(ErrorCode::InvalidPart.into())), HeaderMap::new(), |error| {
                error
            })
            .await;
        assert_eq!(refused.err().map(|error| error.code()), Some(ErrorCode::InvalidPart));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_keeps_the_connection_alive_and_still_ends_in_one_document() {
        let told = HeaderMap::from_iter([(header::VIA, HeaderValue::from_static("here"))]);
        let answer = answer_late(work(Duration::from_secs(60), Ok("hi")), told, |error| error).await.unwrap();
        assert_eq!(
            (answer.status(), &answer.headers()[header::VIA]),
            (StatusCode::OK, &HeaderValue::from_static("here"))
        );
        let text = text(answer).await;
        let spaces = text.strip_prefix(DECLARATION).unwrap().chars().take_while(|c| *c == ' ').count();
        assert!((10..=12).contains(&spaces), "{spaces}");
        assert!(text.ends_with("<Word><Text>hi</Text></Word>"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_after_the_status_stands_in_the_body() {
        let in_error = |error: S3Error| error.request_id("ID1", "HOST");
        let work = work(Duration::from_secs(60), Err(ErrorCode::InternalError.into()));
        let text = text(answer_late(work, HeaderMap::new(), in_error).await.unwrap()).await;
        assert!(
            text.contains("<Error><Code>InternalError</Code>") && text.contains("<RequestId>ID1</RequestId>"),
            "{text}"
        );
    }
}
