//! Blobs as the engine reads them: manifests, table pages, payload ranges and decoded segments,
//! each cached under the blob's immutable id, so that staleness is impossible (E16).

use crate::{
    blobs::{
        caches::{CacheBytes, Caches},
        copy_name::copy_name,
        texts::OpenedTexts,
    },
    error::EngineError,
    metrics::Metrics,
    resources::pool::CodecPool,
};
use bytes::Bytes;
use catalog::{BlobKey, BlobRow, Catalog};
use futures::{TryStreamExt, future};
use object_format::{
    BlobId, BlobOpener, ChunkCheck, DomainKey, HEADER_LEN, Header, PagePlace, Root, RootPlace, Segment, Suite,
    TRAILER_LEN, ViewRange,
};
use std::{collections::BTreeMap, future::Future, ops::Range, sync::Arc};
use storage_backends::{Backend, BlobName, ErrorKind};

/// Blobs up to this length are fetched in one request and kept whole in the manifest cache while
/// they are there.
const ONE_REQUEST_LEN_MAX: u64 = 128 << 10;
/// The end of a longer blob is fetched with its root, because the tables lie before it: this share
/// of a long request ([`Backend::request_len`]).
const TAIL_SHARE: u32 = 64;
/// Sealed bytes up to this length are opened where they arrive instead of on the codec pool: it
/// takes microseconds.
const OPEN_INLINE_LEN_MAX: usize = 256 << 10;
/// The same of bytes that are only checked, which goes several times as fast: the most that a
/// reader asks a disk for at a time, and the chunks at its ends.
const CHECK_INLINE_LEN_MAX: usize = 1280 << 10;

/// Backends by name and everything that has been read from them.
pub(crate) struct Blobs {
    backends: BTreeMap<String, Arc<dyn Backend>>,
    reads: Reads,
    pub(super) caches: Caches<Manifest>,
    pub(crate) pool: Arc<CodecPool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Which of a blob's stored bytes are read. Every blob lies under its own name, and one that much
/// depends on also under that of its second copy (E8).
#[derive(Clone)]
pub(crate) enum Reads {
    /// Whichever is good: where one is damaged the other is read. The catalog is asked for the
    /// copy's name at that moment, because nothing that may change is kept in the caches (E16).
    Either(Arc<dyn Catalog>),
    /// What lies under the blob's own name and nothing else.
    Blob,
    /// The copy where the row names one and nothing else.
    Copy,
}

/// A blob that has been opened: its root, and how to read the rest.
pub(crate) struct Manifest {
    /// Its id.
    pub(crate) id: BlobId,
    /// Its opened root.
    pub(crate) root: Root,
    suite: Suite,
    opener: BlobOpener,
    bytes: BlobBytes,
}

/// The stored bytes of a blob: where they lie (`None`: in the catalog), and those that were fetched
/// when it was opened.
struct BlobBytes {
    place: Option<Place>,
    /// Where `fetched` begins.
    start: u64,
    /// All of a short blob; the tables of a longer one, as far as they came with its root.
    fetched: Bytes,
}

/// One name in one backend.
#[derive(Clone)]
struct Place {
    backend: Arc<dyn Backend>,
    name: BlobName,
}

/// The name of a content blob in its backend: an id of its writer, never a key (E18).
pub(crate) fn blob_name(id: BlobId) -> Result<BlobName, EngineError> {
    Ok(BlobName::new(format!("blobs/{id}"))?)
}

impl Blobs {
    pub(crate) fn new(
        backends: BTreeMap<String, Arc<dyn Backend>>,
        reads: Reads,
        cache_bytes: CacheBytes,
        pool: Arc<CodecPool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { backends, reads, caches: Caches::new(cache_bytes, Manifest::weight, &metrics), pool, metrics }
    }

    /// The same backends with nothing read yet.
    pub(crate) fn afresh(&self, reads: Reads, cache_bytes: CacheBytes) -> Self {
        Self::new(self.backends.clone(), reads, cache_bytes, self.pool.clone(), self.metrics.clone())
    }

    /// The one name under which a blob in a backend is read; `None` when there are two.
    ///
    /// # Errors
    /// [`EngineError::Other`] when an id makes no name.
    pub(crate) fn only_name(&self, row: &BlobRow) -> Result<Option<BlobName>, EngineError> {
        let id = BlobId(row.id.0);
        match (&self.reads, row.copy) {
            (Reads::Either(_), Some(_)) => Ok(None),
            (Reads::Copy, Some(copy)) => copy_name(id, copy).map(Some),
            (Reads::Either(_) | Reads::Blob, _) | (Reads::Copy, None) => blob_name(id).map(Some),
        }
    }

    /// A backend by its configured name.
    ///
    /// # Errors
    /// [`EngineError::Other`] when no backend of that name is configured (any more).
    pub(crate) fn backend(&self, name: &str) -> Result<&Arc<dyn Backend>, EngineError> {
        self.backends.get(name).ok_or_else(|| EngineError::Other(format!("backend {name:?} is not configured")))
    }

    /// Every configured backend.
    pub(crate) fn backends(&self) -> impl Iterator<Item = (&String, &Arc<dyn Backend>)> {
        self.backends.iter()
    }

    /// Forgets everything that was read.
    pub(crate) fn drop_caches(&self) {
        self.caches.clear();
    }

    /// Plain text of deflate streams in bases.
    pub(crate) fn texts(&self) -> &OpenedTexts {
        &self.caches.texts
    }

    /// Gives back what the caches have dropped; by themselves they do so when somebody reads.
    pub(crate) async fn tidy(&self) {
        self.caches.tidy().await;
    }

    /// Bytes that the caches hold, by their kinds.
    pub(crate) fn cache_bytes(&self) -> [(&'static str, u64); 4] {
        self.caches.bytes()
    }

    /// The opened manifest of a blob. A miss costs two requests (header and tail), one for a short
    /// blob.
    pub(crate) async fn manifest(&self, row: &BlobRow, key: Option<&DomainKey>) -> Result<Arc<Manifest>, EngineError> {
        if let Some(inline) = &row.inline {
            // All of it came with its row. Kept, it would take the place of one that costs
            // requests.
            let bytes = BlobBytes { place: None, start: 0, fetched: Bytes::copy_from_slice(inline) };
            let opened = self.open(row, key, bytes, row.root_offset).await;
            return opened.map(Arc::new).map_err(|error| error.of_blob(BlobId(row.id.0)));
        }
        let id = BlobId(row.id.0);
        if let Some(hit) = Box::pin(self.caches.manifests.get(&id)).await {
            self.count("manifest", true);
            return Ok(hit);
        }
        self.count("manifest", false);
        let loaded = Box::pin(async { self.load_manifest(row, key).await.map(Arc::new) });
        let kept = Box::pin(self.caches.manifests.try_get_with(id, loaded));
        kept.await.map_err(|error| EngineError::shared(&error))
    }

    async fn load_manifest(&self, row: &BlobRow, key: Option<&DomainKey>) -> Result<Manifest, EngineError> {
        let name = self.only_name(row)?.map_or_else(|| blob_name(BlobId(row.id.0)), Ok)?;
        let place = Place { backend: self.backend(&row.backend)?.clone(), name };
        let outcome = self.open_at(row, key, place.clone()).await;
        self.elsewhere(BlobId(row.id.0), Some(&place), outcome, move |place| self.open_at(row, key, place)).await
    }

    async fn open_at(&self, row: &BlobRow, key: Option<&DomainKey>, place: Place) -> Result<Manifest, EngineError> {
        let mut bytes = BlobBytes::at(place.clone());
        if row.stored_len <= ONE_REQUEST_LEN_MAX {
            // What the cache keeps is as long as it weighs, and no part of a larger buffer.
            let fetched = fetch(&*place.backend, &place.name, 0..row.stored_len).await?;
            bytes.fetched = Bytes::copy_from_slice(&fetched);
            return self.open(row, key, bytes, row.root_offset).await;
        }
        let tail = u64::from(place.backend.request_len() / TAIL_SHARE).max(row.root_len.into());
        let from = row.root_offset.saturating_add(row.root_len.into()).saturating_sub(tail);
        self.open(row, key, bytes, from).await
    }

    /// Opens a blob, reading what lies between `from` and its root together with the root.
    async fn open(
        &self,
        row: &BlobRow,
        key: Option<&DomainKey>,
        mut bytes: BlobBytes,
        mut from: u64,
    ) -> Result<Manifest, EngineError> {
        let id = BlobId(row.id.0);
        let place = RootPlace { offset: row.root_offset, len: row.root_len, tag: row.root_tag };
        let root_end = place.offset.checked_add(place.len.into()).ok_or_else(|| damaged("root place"))?;
        let (header, tail) = future::join(bytes.read(0..HEADER_LEN as u64), bytes.read(from..root_end)).await;
        let header = header?;
        let tail = match tail {
            // Content before the tables may be damaged, and the root not.
            Err(error) if error.is_damage() && from < place.offset => {
                from = place.offset;
                bytes.read(from..root_end).await?
            }
            tail => tail?,
        };
        let header = Header::decode(&header)?;
        let root = tail.len().checked_sub(place.len as usize).and_then(|start| tail.get(start..));
        let root = root.ok_or_else(|| damaged("root place"))?;
        let opened = BlobOpener::new(&header, id, key).and_then(|opener| Ok((opener.open_root(&place, root)?, opener)));
        let (root, opener) = opened.inspect_err(|_| self.count_failure(header.suite))?;
        if root.plain_len != row.plain_len {
            return Err(damaged("catalog row and root disagree"));
        }
        bytes.keep_tables(&root, from, &tail[..tail.len() - place.len as usize]);
        Ok(Manifest { id, root, suite: header.suite, opener, bytes })
    }

    /// What reading a blob at `place` gave. When that is damage (missing, cut, refused by its
    /// checks, or a medium that does not give it), what `again` gives at the blob's other places,
    /// if it has any. Trouble that passes is not damage and is passed on.
    async fn elsewhere<T, F>(
        &self,
        id: BlobId,
        place: Option<&Place>,
        outcome: Result<T, EngineError>,
        again: impl Fn(Place) -> F + Send,
    ) -> Result<T, EngineError>
    where
        T: Send,
        F: Future<Output = Result<T, EngineError>> + Send,
    {
        let damage = match outcome {
            Err(error) if error.is_damage() => error.of_blob(id),
            other => return other,
        };
        let (Reads::Either(catalog), Some(place)) = (&self.reads, place) else { return Err(damage) };
        let row = catalog.blobs(&[BlobKey(id.0)]).await?.pop();
        let Some(copy) = row.and_then(|row| row.copy) else { return Err(damage) };
        let count = |result: &str| self.metrics.base_copy_reads_total.with_label_values(&[result]).inc();
        for name in [copy_name(id, copy)?, blob_name(id)?].into_iter().filter(|name| *name != place.name) {
            match again(Place { backend: place.backend.clone(), name }).await {
                Ok(found) => {
                    count("served");
                    tracing::warn!(blob = %id, name = %place.name, error = %damage, "a stored blob is damaged; its other copy is read");
                    return Ok(found);
                }
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        count("damaged");
        Err(damage)
    }

    /// [`Blobs::elsewhere`] for a blob that has been opened, which is opened anew next time:
    /// perhaps where it can be read.
    async fn or_elsewhere<T, F>(
        &self,
        manifest: &Manifest,
        outcome: Result<T, EngineError>,
        again: impl Fn(BlobBytes) -> F + Send,
    ) -> Result<T, EngineError>
    where
        T: Send,
        F: Future<Output = Result<T, EngineError>> + Send,
    {
        if outcome.is_ok() {
            return outcome;
        }
        let again = move |place: Place| again(BlobBytes::at(place));
        let outcome = match (&manifest.bytes.place, outcome) {
            // What was fetched when the blob was opened may not be what lies there.
            (Some(place), Err(error)) if error.is_damage() && !manifest.bytes.fetched.is_empty() => {
                self.caches.manifests.invalidate(&manifest.id).await;
                Box::pin(again(place.clone())).await
            }
            (_, outcome) => outcome,
        };
        if outcome.is_ok() {
            return outcome;
        }
        let outcome = self.elsewhere(manifest.id, manifest.bytes.place.as_ref(), outcome, again).await;
        if outcome.is_ok() {
            self.caches.manifests.invalidate(&manifest.id).await;
        }
        outcome
    }

    /// Compares the trailer with the catalog's row. Readers with a catalog do not need it; a
    /// rebuild does (I11).
    pub(crate) async fn check_trailer(&self, manifest: &Manifest, row: &BlobRow) -> Result<(), EngineError> {
        let outcome = self.check_trailer_in(&manifest.bytes, row).await;
        let again = move |bytes: BlobBytes| async move { self.check_trailer_in(&bytes, row).await };
        self.or_elsewhere(manifest, outcome, again).await
    }

    async fn check_trailer_in(&self, bytes: &BlobBytes, row: &BlobRow) -> Result<(), EngineError> {
        let start = row.stored_len.checked_sub(TRAILER_LEN as u64).ok_or_else(|| damaged("shorter than a trailer"))?;
        let trailer = bytes.read(start..row.stored_len).await?;
        let place = BlobOpener::root_place(&trailer, row.stored_len)?;
        match place == (RootPlace { offset: row.root_offset, len: row.root_len, tag: row.root_tag }) {
            true => Ok(()),
            false => Err(damaged("the trailer and the catalog disagree")),
        }
    }

    /// One row of the segment table.
    pub(crate) async fn segment(&self, manifest: &Manifest, index: u64) -> Result<Segment, EngineError> {
        let place = page_of(&manifest.root.segment_pages, index).ok_or_else(|| damaged("segment without a page"))?;
        let page = if manifest.bytes.came_with_row() {
            self.segment_page_in(&manifest.bytes, manifest, place).await?
        } else {
            let read = Box::pin(async {
                let outcome = self.segment_page_in(&manifest.bytes, manifest, place).await;
                let again = move |bytes: BlobBytes| async move { self.segment_page_in(&bytes, manifest, place).await };
                self.or_elsewhere(manifest, outcome, again).await
            });
            let page = self.caches.segment_pages.try_get_with((manifest.id, place.offset), read).await;
            page.map_err(|error: Arc<EngineError>| EngineError::shared(&error))?
        };
        let at = usize::try_from(index - place.first).unwrap_or(usize::MAX);
        page.get(at).cloned().ok_or_else(|| damaged("segment page too short"))
    }

    async fn segment_page_in(
        &self,
        bytes: &BlobBytes,
        manifest: &Manifest,
        place: &PagePlace,
    ) -> Result<Arc<Vec<Segment>>, EngineError> {
        let bytes = bytes.read(place.offset..place.offset + u64::from(place.len)).await?;
        let page = manifest.opener.open_segment_page(place, &bytes);
        Ok(Arc::new(page.inspect_err(|_| self.count_failure(manifest.suite))?))
    }

    /// Bytes `within` of segment `index`, a raw one: only the chunks that cover them are read and
    /// checked.
    pub(crate) async fn raw_range(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        within: Range<u32>,
    ) -> Result<Bytes, EngineError> {
        let start = segment.stored_offset + u64::from(within.start);
        self.payload(manifest, start..start + u64::from(within.end - within.start)).await
    }

    /// The stored bytes of a segment, its chunks checked.
    pub(crate) async fn stored_bytes(&self, manifest: &Manifest, segment: &Segment) -> Result<Bytes, EngineError> {
        let payload = segment.stored_offset..segment.stored_offset + u64::from(segment.stored_len);
        self.payload(manifest, payload).await
    }

    /// A run of payload, the chunks that cover it opened and checked (I4).
    async fn payload(&self, manifest: &Manifest, payload: Range<u64>) -> Result<Bytes, EngineError> {
        let outcome = self.payload_in(&manifest.bytes, manifest, payload.clone()).await;
        let Err(error) = outcome else { return outcome };
        let again = move |bytes: BlobBytes| {
            let payload = payload.clone();
            async move { self.payload_in(&bytes, manifest, payload).await }
        };
        Box::pin(self.or_elsewhere(manifest, Err(error), again)).await
    }

    async fn payload_in(
        &self,
        bytes: &BlobBytes,
        manifest: &Manifest,
        payload: Range<u64>,
    ) -> Result<Bytes, EngineError> {
        if payload.is_empty() || payload.end > manifest.root.payload_len {
            return Err(damaged("segment outside the payload"));
        }
        let payload_len = manifest.root.payload_len;
        let skip = usize::try_from(payload.start % object_format::CHUNK_LEN as u64).unwrap_or(0);
        let wanted = skip..skip + usize::try_from(payload.end - payload.start).unwrap_or(usize::MAX);
        let chunks = manifest.opener.chunks_covering(payload);
        let first = chunks.start;
        let stored = bytes.read(manifest.opener.stored_range(chunks.clone(), payload_len));
        let (stored, checks) = future::try_join(stored, self.checks(manifest, chunks)).await?;
        self.metrics.seal_bytes_total.with_label_values(&["open"]).inc_by(match manifest.suite {
            Suite::Aes256Gcm => stored.len() as u64,
            Suite::None => 0,
        });
        let (opener, suite) = (manifest.opener.clone(), manifest.suite);
        let (len, inline_len_max) = match suite {
            Suite::Aes256Gcm => (stored.len(), OPEN_INLINE_LEN_MAX),
            Suite::None => (stored.len(), CHECK_INLINE_LEN_MAX),
        };
        let open = move || match suite {
            // They are the plain bytes, and stay where they are.
            Suite::None => opener.check_chunks(first, payload_len, &stored, &checks).map(|()| stored),
            Suite::Aes256Gcm => {
                let mut bytes = Vec::from(stored);
                opener.open_chunks(first, payload_len, &mut bytes, &checks).map(|()| bytes.into())
            }
        };
        let opened = if len <= inline_len_max { open() } else { Box::pin(self.pool.run(move |_| open())).await? };
        let opened = opened.inspect_err(|_| self.count_failure(suite))?;
        if opened.len() < wanted.end {
            return Err(damaged("a payload shorter than its chunks"));
        }
        Ok(opened.slice(wanted))
    }

    async fn checks(&self, manifest: &Manifest, chunks: Range<u64>) -> Result<Vec<ChunkCheck>, EngineError> {
        let mut checks = Vec::new();
        if manifest.suite != Suite::None {
            return Ok(checks);
        }
        let mut next = chunks.start;
        while next < chunks.end {
            let place = page_of(&manifest.root.check_pages, next).ok_or_else(|| damaged("chunk without a check"))?;
            let page = if manifest.bytes.came_with_row() {
                self.check_page_in(&manifest.bytes, manifest, place).await?
            } else {
                let read = Box::pin(async {
                    let outcome = self.check_page_in(&manifest.bytes, manifest, place).await;
                    let again =
                        move |bytes: BlobBytes| async move { self.check_page_in(&bytes, manifest, place).await };
                    self.or_elsewhere(manifest, outcome, again).await
                });
                let page = self.caches.check_pages.try_get_with((manifest.id, place.offset), read).await;
                page.map_err(|error: Arc<EngineError>| EngineError::shared(&error))?
            };
            let end = chunks.end.min(place.first + u64::from(place.count));
            let within = usize::try_from(next - place.first).unwrap_or(usize::MAX)
                ..usize::try_from(end - place.first).unwrap_or(usize::MAX);
            checks.extend_from_slice(page.get(within).ok_or_else(|| damaged("check page too short"))?);
            next = end;
        }
        Ok(checks)
    }

    async fn check_page_in(
        &self,
        bytes: &BlobBytes,
        manifest: &Manifest,
        place: &PagePlace,
    ) -> Result<Arc<Vec<ChunkCheck>>, EngineError> {
        let bytes = bytes.read(place.offset..place.offset + u64::from(place.len)).await?;
        let page = manifest.opener.open_check_page(place, &bytes);
        Ok(Arc::new(page.inspect_err(|_| self.count_failure(manifest.suite))?))
    }

    pub(super) fn count(&self, kind: &str, hit: bool) {
        let counter = if hit { &self.metrics.cache_hits_total } else { &self.metrics.cache_misses_total };
        counter.with_label_values(&[kind, "memory"]).inc();
    }

    fn count_failure(&self, suite: Suite) {
        match suite {
            Suite::Aes256Gcm => self.metrics.aead_failures_total.with_label_values(&["open"]).inc(),
            Suite::None => self.metrics.checksum_failures_total.with_label_values(&["chunk"]).inc(),
        }
    }
}

impl Manifest {
    /// The blob's protection.
    pub(crate) fn suite(&self) -> Suite {
        self.suite
    }

    /// Whether the base tag in its root is that of content with these segment digests.
    pub(crate) fn has_base_tag_of(&self, digests: &[[u8; 16]]) -> bool {
        self.opener.base_tag(self.root.plain_len, digests.iter()) == self.root.base_tag
    }

    /// Memory that it takes.
    fn weight(&self) -> usize {
        let root = &self.root;
        self.bytes.fetched.len()
            + size_of::<Self>()
            + self.opener.memory_bytes()
            + root.view.capacity() * size_of::<ViewRange>()
            + (root.segment_pages.capacity() + root.check_pages.capacity()) * size_of::<PagePlace>()
            + root.facts.facts.capacity()
            + root.facts.sketch.capacity()
    }
}

impl BlobBytes {
    /// Nothing of them has been fetched.
    fn at(place: Place) -> Self {
        Self { place: Some(place), start: 0, fetched: Bytes::new() }
    }

    /// Keeps the pages that `tail` brought, which is the blob from `from` to its root.
    fn keep_tables(&mut self, root: &Root, from: u64, tail: &[u8]) {
        if !self.fetched.is_empty() {
            return;
        }
        let pages = root.segment_pages.iter().chain(&root.check_pages);
        self.start = pages.map(|page| page.offset).filter(|offset| *offset >= from).min().unwrap_or(from);
        let tables = usize::try_from(self.start - from).ok().and_then(|start| tail.get(start..));
        self.fetched = Bytes::copy_from_slice(tables.unwrap_or_default());
    }

    /// Whether all of it lay in the catalog's row: no cache keeps it then.
    fn came_with_row(&self) -> bool {
        self.place.is_none()
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, EngineError> {
        let within = |at: u64| usize::try_from(at.checked_sub(self.start)?).ok();
        let fetched = within(range.start).zip(within(range.end));
        let fetched = fetched.filter(|(start, end)| start <= end && *end <= self.fetched.len());
        match (fetched, &self.place) {
            (Some((start, end)), _) => Ok(self.fetched.slice(start..end)),
            (None, Some(place)) if self.start > 0 || self.fetched.is_empty() => {
                fetch(&*place.backend, &place.name, range).await
            }
            (None, _) => Err(damaged("blob shorter than its tables say")),
        }
    }
}

fn page_of(pages: &[PagePlace], index: u64) -> Option<&PagePlace> {
    let after = pages.partition_point(|page| page.first <= index);
    pages.get(after.checked_sub(1)?).filter(|page| index - page.first < u64::from(page.count))
}

/// Reads a range of a blob whose row exists; a blob that is not there is damage, not absence of the
/// object. What the backend gives in one piece is not copied.
pub(crate) async fn fetch(backend: &dyn Backend, name: &BlobName, range: Range<u64>) -> Result<Bytes, EngineError> {
    let len = usize::try_from(range.end.saturating_sub(range.start)).map_err(|_| EngineError::TooLarge)?;
    let found = backend.get(name, range).await.map_err(|error| match error.kind() {
        // The range is from the blob's own tables: a blob that ends before it was cut.
        ErrorKind::Invalid => EngineError::Integrity(format!("blob {name} is shorter than its tables say")),
        _ => error.into(),
    })?;
    let mut stream = found.ok_or_else(|| EngineError::Integrity(format!("blob {name} is missing")))?;
    let mut bytes = stream.try_next().await?.unwrap_or_default();
    if let Some(second) = stream.try_next().await? {
        let mut joined = Vec::with_capacity(len);
        joined.extend_from_slice(&bytes);
        joined.extend_from_slice(&second);
        while let Some(piece) = stream.try_next().await? {
            joined.extend_from_slice(&piece);
        }
        bytes = joined.into();
    }
    if bytes.len() == len { Ok(bytes) } else { Err(damaged("backend gave another length")) }
}

pub(crate) fn damaged(what: &str) -> EngineError {
    EngineError::Integrity(what.to_owned())
}
