//! The path of a `put`: one request, or many parts and a completion.

use super::{bucket::Bucket, refusal::failure};
use crate::{
    BackendError, ByteStream, ErrorKind, Op, PutReceipt, Result,
    batches::{Batch, Batches},
};
use futures::StreamExt;
use object_store::{
    Attributes, GetOptions, MultipartId, MultipartUpload, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    multipart::PartId, path::Path,
};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
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

/// One request, whose bytes are in memory: it is sent again under the same name, so that whichever
/// of its attempts the store carried out, it has the same bytes there.
async fn put_at_once(bucket: &Bucket, path: &Path, body: Batch, manner: Manner) -> Result<u64> {
    let payload: PutPayload = body.pieces.into_iter().collect();
    let is_exclusive = bucket.exclusive.is_on() && !manner.replaces;
    // Set when an attempt failed that the store may have carried out all the same.
    let in_doubt = AtomicBool::new(false);
    let attempt = || async {
        let was_in_doubt = in_doubt.load(Ordering::Relaxed);
        let put = async |mode| {
            let options = PutOptions { mode, attributes: manner.attributes.clone(), ..PutOptions::default() };
            bucket.store.put_opts(path, payload.clone(), options).await.map_err(|error| failure("store", path, error))
        };
        match put(if is_exclusive { PutMode::Create } else { PutMode::Overwrite }).await {
            Ok(_) => Ok(()),
            Err((Some(refused), _)) if is_exclusive && refused.status == 501 => {
                bucket.exclusive.turn_off();
                put(PutMode::Overwrite).await.map(drop).map_err(|(_, error)| error)
            }
            // An earlier attempt was carried out, and its answer lost.
            Err((Some(refused), _))
                if was_in_doubt && refused.means_exists() && holds(bucket, path, &payload, body.len).await? =>
            {
                Ok(())
            }
            Err((_, error)) => {
                in_doubt.fetch_or(error.is_transient(), Ordering::Relaxed);
                Err(error)
            }
        }
    };
    bucket.repeated(attempt).await?;
    if bucket.confirms_single_puts {
        confirm(bucket, path, body.len).await?;
    }
    Ok(body.len)
}

/// Whether the object at `path` is these `len` bytes.
async fn holds(bucket: &Bucket, path: &Path, payload: &PutPayload, len: u64) -> Result<bool> {
    let read = |error| failure("read", path, error).1;
    let found = bucket.store.get_opts(path, GetOptions::default()).await.map_err(read)?;
    if found.meta.size != len {
        return Ok(false);
    }
    let mut expected = payload.iter().flat_map(|piece| piece.iter());
    let mut pieces = found.into_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(read)?;
        if !piece.iter().eq(expected.by_ref().take(piece.len())) {
            return Ok(false);
        }
    }
    Ok(expected.next().is_none())
}

impl Bucket {
    /// Makes a request out of memory, again where that is granted.
    async fn repeated<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        match self.repeats.get() {
            Some(repeats) => repeats.repeat(Op::Put, call).await,
            None => call().await,
        }
    }
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
        upload.complete(len).await?;
        confirm(&bucket, &path, len).await?;
        Ok(len)
    })
    .await
}

/// Asks the store whether it holds as many bytes as were sent, and takes back what it holds
/// otherwise.
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
    upload: Option<Upload>,
    in_flight: JoinSet<Result<Option<(usize, PartId)>>>,
    /// Parts that were begun.
    begun: usize,
    /// Those that have arrived, by number.
    arrived: Vec<(usize, PartId)>,
}

/// How parts are sent.
enum Upload {
    /// By number: a part that is sent again takes its own place.
    Numbered(MultipartId),
    /// Each once: `object_store` counts them. It is how attributes reach every store.
    Once(Box<dyn MultipartUpload>),
}

impl Parts {
    async fn begin(bucket: &Arc<Bucket>, path: &Path, attributes: Attributes) -> Result<Self> {
        let failed = |error| failure("begin", path, error).1;
        let upload = if attributes.is_empty() {
            let begin = async || bucket.store.create_multipart(path).await.map_err(failed);
            Upload::Numbered(bucket.repeated(begin).await?)
        } else {
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            Upload::Once(bucket.store.put_multipart_opts(path, options).await.map_err(failed)?)
        };
        let (bucket, path) = (bucket.clone(), path.clone());
        Ok(Self { bucket, path, upload: Some(upload), in_flight: JoinSet::new(), begun: 0, arrived: Vec::new() })
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
        let (bucket, path, index) = (self.bucket.clone(), self.path.clone(), self.begun);
        self.begun += 1;
        match &mut self.upload {
            Some(Upload::Numbered(id)) => {
                let id = id.clone();
                self.in_flight.spawn(async move {
                    let send = || async {
                        let sent = bucket.store.put_part(&path, &id, index, payload.clone()).await;
                        sent.map_err(|error| failure("send a part of", &path, error).1)
                    };
                    Ok(Some((index, bucket.repeated(send).await?)))
                });
            }
            Some(Upload::Once(upload)) => {
                let sent = upload.put_part(payload);
                self.in_flight.spawn(async move {
                    sent.await.map(|()| None).map_err(|error| failure("send a part of", &path, error).1)
                });
            }
            None => {}
        }
        Ok(())
    }

    async fn one_arrived(&mut self) -> Result<()> {
        match self.in_flight.join_next().await {
            None => Ok(()),
            Some(Ok(arrived)) => {
                self.arrived.extend(arrived?);
                Ok(())
            }
            Some(Err(error)) => Err(BackendError::with_source(ErrorKind::Other, "the upload was cut off", error)),
        }
    }

    async fn all_arrived(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.one_arrived().await?;
        }
        Ok(())
    }

    /// Makes the parts an object of `len` bytes.
    async fn complete(&mut self, len: u64) -> Result<()> {
        let (bucket, path) = (&*self.bucket, &self.path);
        let failed = |error| failure("complete", path, error).1;
        match &mut self.upload {
            Some(Upload::Numbered(id)) => {
                self.arrived.sort_unstable_by_key(|(index, _)| *index);
                let parts: Vec<PartId> = self.arrived.iter().map(|(_, part)| part.clone()).collect();
                let in_doubt = AtomicBool::new(false);
                let id = &*id;
                let complete = || async {
                    let was_in_doubt = in_doubt.load(Ordering::Relaxed);
                    let Err(error) = bucket.store.complete_multipart(path, id, parts.clone()).await else {
                        return Ok(());
                    };
                    let error = failed(error);
                    // An upload that is gone was completed by an earlier attempt whose answer was
                    // lost.
                    if was_in_doubt && !error.is_transient() && bucket.head(path).await? == Some(len) {
                        return Ok(());
                    }
                    in_doubt.fetch_or(error.is_transient(), Ordering::Relaxed);
                    Err(error)
                };
                bucket.repeated(complete).await?;
            }
            Some(Upload::Once(upload)) => drop(upload.complete().await.map_err(failed)?),
            None => {}
        }
        self.upload = None;
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (mut in_flight, bucket, path) =
            (std::mem::take(&mut self.in_flight), self.bucket.clone(), self.path.clone());
        runtime.spawn(async move {
            // First the parts to their end, since cutting the connection does not stop the store:
            // one that it finishes after the abort would stay.
            let arrived = async { while in_flight.join_next().await.is_some() {} };
            if tokio::time::timeout(PARTS_SETTLE_MAX, arrived).await.is_err() {
                in_flight.shutdown().await;
            }
            let aborted = match upload {
                Upload::Numbered(id) => bucket.store.abort_multipart(&path, &id).await,
                Upload::Once(mut upload) => upload.abort().await,
            };
            if let Err(error) = aborted {
                tracing::warn!(%error, %path, "parts of an upload stay until the bucket's lifecycle rule removes them");
            }
        });
    }
}

/// Runs the request that makes a blob visible in a task of its own: once it is sent there is no
/// knowing whether it takes effect, so when the caller goes away it is carried to its end, and then
/// taken back.
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
