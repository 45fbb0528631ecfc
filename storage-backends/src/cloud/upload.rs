//! The path of a `put`: one request, or many parts and a completion.

use super::{Bucket, refusal::failure};
use crate::{
    BackendError, ByteStream, ErrorKind, PutReceipt, Result,
    batches::{Batch, Batches},
};
use object_store::{Attributes, MultipartUpload, PutMode, PutMultipartOptions, PutOptions, PutPayload, path::Path};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{runtime::Handle, task::JoinSet};

/// How an object is written.
pub(crate) struct Manner {
    /// A part's size in bytes; an object up to this size is a single request.
    pub(crate) part_bytes: usize,
    /// The exact length of the body, where it is known.
    pub(crate) len: Option<u64>,
    /// An object that is there is replaced; otherwise nothing may be there.
    pub(crate) replaces: bool,
    /// What stands beside the content.
    pub(crate) attributes: Attributes,
}

/// Stores `body` at `path`.
pub(crate) async fn put(bucket: &Arc<Bucket>, path: Path, body: ByteStream, manner: Manner) -> Result<PutReceipt> {
    let mut batches = Batches::new(body, manner.part_bytes, manner.len);
    let first = batches.next().await?;
    let created = if first.is_last {
        let (bucket, path) = (bucket.clone(), path.clone());
        unclaimed(bucket.clone(), path.clone(), async move { put_at_once(&bucket, &path, first, manner).await }).await?
    } else {
        put_in_parts(bucket, path, first, batches, manner).await?
    };
    Ok(created.claim())
}

async fn put_at_once(bucket: &Bucket, path: &Path, body: Batch, manner: Manner) -> Result<u64> {
    let payload: PutPayload = body.pieces.into_iter().collect();
    let put = async |mode| {
        let options = PutOptions { mode, attributes: manner.attributes.clone(), ..PutOptions::default() };
        bucket.store.put_opts(path, payload.clone(), options).await.map_err(|error| failure("store", path, error))
    };
    let is_exclusive = bucket.exclusive.is_on() && !manner.replaces;
    let result = match put(if is_exclusive { PutMode::Create } else { PutMode::Overwrite }).await {
        Err((Some(refused), _)) if is_exclusive && refused.status == 501 => {
            bucket.exclusive.turn_off();
            put(PutMode::Overwrite).await
        }
        result => result,
    };
    result.map_err(|(_, error)| error)?;
    if bucket.confirms_single_puts {
        confirm(bucket, path, body.len).await?;
    }
    Ok(body.len)
}

async fn put_in_parts(
    bucket: &Arc<Bucket>,
    path: Path,
    first: Batch,
    mut batches: Batches,
    manner: Manner,
) -> Result<Unclaimed> {
    let mut upload = Parts::begin(bucket, &path, manner.attributes).await?;
    let mut batch = first;
    let mut len = 0;
    loop {
        let is_last = batch.is_last;
        len += batch.len;
        upload.add(batch).await?;
        if is_last {
            break;
        }
        // Parts in flight go on while this one arrives: each is a task.
        batch = batches.next().await?;
    }
    upload.all_arrived().await?;
    let bucket = bucket.clone();
    unclaimed(bucket.clone(), path.clone(), async move {
        upload.complete().await?;
        confirm(&bucket, &path, len).await?;
        Ok(len)
    })
    .await
}

/// Asks the store whether it holds as many bytes as were sent, and takes back what it holds otherwise.
async fn confirm(bucket: &Bucket, path: &Path, len: u64) -> Result<()> {
    match bucket.head(path).await? {
        Some(stored_len) if stored_len == len => Ok(()),
        stored => {
            if let Err(error) = bucket.delete(path).await {
                tracing::warn!(%error, %path, "a blob of the wrong length stays until garbage collection");
            }
            Err(BackendError::new(ErrorKind::Corrupt, format!("{len} bytes of {path} were stored as {stored:?}")))
        }
    }
}

/// A multipart upload that is aborted unless it is completed.
struct Parts {
    bucket: Arc<Bucket>,
    path: Path,
    upload: Option<Box<dyn MultipartUpload>>,
    in_flight: JoinSet<object_store::Result<()>>,
}

impl Parts {
    async fn begin(bucket: &Arc<Bucket>, path: &Path, attributes: Attributes) -> Result<Self> {
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let begun = bucket.store.put_multipart_opts(path, options).await;
        let upload = begun.map_err(|error| failure("begin", path, error).1)?;
        Ok(Self { bucket: bucket.clone(), path: path.clone(), upload: Some(upload), in_flight: JoinSet::new() })
    }

    /// Sends one part, after waiting until there is room for it.
    async fn add(&mut self, batch: Batch) -> Result<()> {
        if batch.len == 0 {
            return Ok(()); // the body ended exactly with the part before
        }
        while self.in_flight.len() >= self.bucket.upload.parts_in_flight {
            self.one_arrived().await?;
        }
        let payload: PutPayload = batch.pieces.into_iter().collect();
        if let Some(upload) = &mut self.upload {
            self.in_flight.spawn(upload.put_part(payload));
        }
        Ok(())
    }

    async fn one_arrived(&mut self) -> Result<()> {
        match self.in_flight.join_next().await {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(failure("send a part of", &self.path, error).1),
            Some(Err(error)) => Err(BackendError::with_source(ErrorKind::Other, "the upload was cut off", error)),
        }
    }

    async fn all_arrived(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.one_arrived().await?;
        }
        Ok(())
    }

    async fn complete(&mut self) -> Result<()> {
        if let Some(upload) = &mut self.upload {
            upload.complete().await.map_err(|error| failure("complete", &self.path, error).1)?;
        }
        self.upload = None;
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (mut in_flight, path) = (std::mem::take(&mut self.in_flight), self.path.clone());
        runtime.spawn(async move {
            // First the parts to their end, since cutting the connection does not stop the store: one that it
            // finishes after the abort would stay.
            let arrived = async { while in_flight.join_next().await.is_some() {} };
            if tokio::time::timeout(PARTS_SETTLE_MAX, arrived).await.is_err() {
                in_flight.shutdown().await;
            }
            if let Err(error) = upload.abort().await {
                tracing::warn!(%error, %path, "parts of an upload stay until the bucket's lifecycle rule removes them");
            }
        });
    }
}

/// Runs the request that makes a blob visible in a task of its own: once it is sent there is no knowing whether it takes effect, so when the
/// caller goes away it is carried to its end, and then taken back.
async fn unclaimed(
    bucket: Arc<Bucket>,
    path: Path,
    create: impl Future<Output = Result<u64>> + Send + 'static,
) -> Result<Unclaimed> {
    let task = tokio::spawn(async move {
        let stored_len = create.await?;
        Ok(Unclaimed { stored_len, place: Some((bucket, path)) })
    });
    task.await.unwrap_or_else(|error| Err(BackendError::with_source(ErrorKind::Other, "the upload was cut off", error)))
}

/// A blob that nobody has been told about; dropping it removes it.
struct Unclaimed {
    stored_len: u64,
    place: Option<(Arc<Bucket>, Path)>,
}

impl Unclaimed {
    fn claim(mut self) -> PutReceipt {
        self.place = None;
        PutReceipt { stored_len: self.stored_len }
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let (Some((bucket, path)), Ok(runtime)) = (self.place.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(error) = bucket.delete(&path).await {
                    tracing::warn!(%error, %path, "an unacknowledged blob stays until garbage collection");
                }
            });
        }
    }
}

/// How long the parts of a given-up upload may take to arrive before it is aborted all the same.
const PARTS_SETTLE_MAX: Duration = Duration::from_secs(60);
