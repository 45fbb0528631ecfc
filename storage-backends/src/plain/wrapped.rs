//! The wrappers of backends around plain stores: every request counted, and what is repeatable
//! repeated.

use super::{PlainEntry, PlainObject, PlainRead, PlainRemoval, PlainStore};
use crate::{
    Direction, Measured, Observer, Op, Outcome, Result, Retrying,
    measured::{Request, outcome_of},
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use std::ops::Range;

#[async_trait]
impl<S: PlainStore> PlainStore for Measured<S> {
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>> {
        Request::new(Op::List, self.observer.clone()).follow(self.inner.list(prefix, after), |_: &PlainEntry, _| ())
    }

    async fn head(&self, key: &str) -> Result<Option<PlainObject>> {
        let found = |object: &Option<PlainObject>| if object.is_some() { Outcome::Ok } else { Outcome::Absent };
        self.call(Op::Head, self.inner.head(key), found).await
    }

    async fn read(&self, key: &str, etag: &str, range: Range<u64>) -> Result<PlainRead> {
        let mut request = Request::new(Op::Get, self.observer.clone());
        let result = self.inner.read(key, etag, range).await;
        match result {
            Ok(PlainRead::Bytes(pieces)) => {
                let seen = |piece: &Bytes, observer: &dyn Observer| observer.bytes(Direction::Read, piece.len() as u64);
                Ok(PlainRead::Bytes(request.follow(pieces, seen)))
            }
            result => {
                request.end(outcome_of(&result, |_| Outcome::Absent));
                result
            }
        }
    }

    async fn remove(&self, key: &str, etag: &str) -> Result<PlainRemoval> {
        self.call(Op::Delete, self.inner.remove(key, etag), |_| Outcome::Ok).await
    }
}

/// `head`, `remove`, and `read` until its first byte are repeated; a listing goes on after the last
/// entry it gave. A stream of bytes that is cut is its reader's to read again.
#[async_trait]
impl<S: PlainStore> PlainStore for Retrying<S> {
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>> {
        let (shared, prefix) = (self.shared.clone(), prefix.to_owned());
        let listing = shared.inner.list(&prefix, after);
        let state = Some((shared, prefix, after.map(str::to_owned), listing, 1));
        stream::unfold(state, |state| async move {
            let (shared, prefix, mut after, mut listing, mut attempts) = state?;
            loop {
                match listing.next().await? {
                    Ok(entry) => {
                        after = Some(entry.key.clone());
                        return Some((Ok(entry), Some((shared, prefix, after, listing, 1))));
                    }
                    Err(error) if shared.repeats.grants_repetition(attempts, &error) => {
                        shared.repeats.pause(Op::List, attempts, &error).await;
                        attempts += 1;
                        listing = shared.inner.list(&prefix, after.as_deref());
                    }
                    // An object that cannot be named does not end a listing.
                    Err(error) => return Some((Err(error), Some((shared, prefix, after, listing, attempts)))),
                }
            }
        })
        .boxed()
    }

    async fn head(&self, key: &str) -> Result<Option<PlainObject>> {
        self.shared.repeats.repeat(Op::Head, || self.shared.inner.head(key)).await
    }

    async fn read(&self, key: &str, etag: &str, range: Range<u64>) -> Result<PlainRead> {
        self.shared.repeats.repeat(Op::Get, || self.shared.inner.read(key, etag, range.clone())).await
    }

    async fn remove(&self, key: &str, etag: &str) -> Result<PlainRemoval> {
        self.shared.repeats.repeat(Op::Delete, || self.shared.inner.remove(key, etag)).await
    }
}
