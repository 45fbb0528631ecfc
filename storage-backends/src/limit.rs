//! Bounds how many requests run at the same time against one backend.

use crate::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, PutReceipt, Result};
use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use std::{ops::Range, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// `put` calls.
    pub uploads_max: usize,
    /// All other calls.
    pub requests_max: usize,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { uploads_max: 64, requests_max: 256 }
    }
}

/// A backend with bounded concurrency; calls past the bound wait in order of arrival.
///
/// A permit is held while the *backend* works, never while the caller does: a stream gives its
/// permit back with every item and takes one for the next. Uploads have permits of their own,
/// because their bodies may be reads. So a reader that holds one stream and opens another (a delta
/// and its base), or an upload that is fed from a read, cannot starve itself.
pub struct Limited<B> {
    inner: B,
    uploads: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

impl<B: Backend> Limited<B> {
    /// Wraps `inner`. A bound of 0 counts as 1.
    pub fn new(inner: B, bounds: Concurrency) -> Self {
        Self {
            inner,
            uploads: Arc::new(Semaphore::new(bounds.uploads_max.max(1))),
            requests: Arc::new(Semaphore::new(bounds.requests_max.max(1))),
        }
    }
}

#[async_trait]
impl<B: Backend> Backend for Limited<B> {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let _permit = permit(&self.uploads).await?;
        self.inner.put(name, body, len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        let _permit = permit(&self.requests).await?;
        let stream = self.inner.get(name, range).await?;
        Ok(stream.map(|stream| limited(stream, self.requests.clone())))
    }

    fn request_len(&self) -> u32 {
        self.inner.request_len()
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        let _permit = permit(&self.requests).await?;
        self.inner.head(name).await
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        let _permit = permit(&self.requests).await?;
        self.inner.delete(name).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        limited(self.inner.list(prefix), self.requests.clone())
    }

    /// Not limited: whether the store can serve must be known when all permits are taken, too.
    async fn probe(&self) -> Result<()> {
        self.inner.probe().await
    }
}

fn limited<T: Send + 'static>(
    items: BoxStream<'static, Result<T>>,
    requests: Arc<Semaphore>,
) -> BoxStream<'static, Result<T>> {
    stream::unfold((items, requests), |(mut items, requests)| async move {
        let item = match permit(&requests).await {
            Ok(_permit) => items.next().await?,
            Err(error) => Err(error),
        };
        Some((item, (items, requests)))
    })
    .boxed()
}

async fn permit(permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
    let closed = |error| BackendError::with_source(ErrorKind::Other, "the backend is being closed", error);
    permits.clone().acquire_owned().await.map_err(closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryBackend, body_of, collect};
    use bytes::Bytes;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn name(text: &str) -> BlobName {
        BlobName::new(text).unwrap()
    }

    /// Notes the largest number of `head` calls that ran at once.
    #[derive(Default)]
    struct Peak {
        running: AtomicUsize,
        peak: AtomicUsize,
        inner: MemoryBackend,
    }

    #[async_trait]
    impl Backend for Peak {
        async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
            self.inner.put(name, body, len).await
        }
        async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
            self.inner.get(name, range).await
        }
        async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.peak.fetch_max(running, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            self.running.fetch_sub(1, Ordering::SeqCst);
            self.inner.head(name).await
        }
        async fn delete(&self, name: &BlobName) -> Result<()> {
            self.inner.delete(name).await
        }
        fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
            self.inner.list(prefix)
        }
        async fn probe(&self) -> Result<()> {
            self.inner.probe().await
        }
    }

    #[tokio::test]
    async fn no_more_than_the_bound_run_at_once() {
        let peak = Arc::new(Peak::default());
        let limited = Limited::new(peak.clone(), Concurrency { uploads_max: 1, requests_max: 3 });
        let name = name("blobs/a");
        futures::future::join_all((0..20).map(|_| limited.head(&name))).await;
        assert_eq!(peak.peak.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_reader_with_an_open_stream_can_read_and_upload_under_a_bound_of_one() {
        let limited = Limited::new(MemoryBackend::new(), Concurrency { uploads_max: 1, requests_max: 1 });
        let (base, delta, copy) = (name("base"), name("delta"), name("copy"));
        limited.put(&base, body_of(Bytes::from(vec![1; 200_000])), None).await.unwrap();
        limited.put(&delta, body_of(Bytes::from(vec![2; 200_000])), None).await.unwrap();
        let mut outer = limited.get(&delta, 0..200_000).await.unwrap().unwrap();
        assert!(outer.next().await.is_some());
        let inner = limited.get(&base, 0..200_000).await.unwrap().unwrap();
        limited.put(&copy, inner, Some(200_000)).await.unwrap();
        assert!(collect(outer, 200_000).await.is_ok());
    }
}
