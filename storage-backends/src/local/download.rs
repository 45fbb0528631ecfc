//! The path of a `get`: positioned reads in bounded pieces, one piece ahead of the reader.

use super::{
    layout,
    store::{Store, blocking, disk_error, finished},
};
use crate::{BackendError, BlobName, ByteStream, ErrorKind, Result};
use bytes::Bytes;
use futures::{StreamExt, stream};
use std::{fs::File, io, ops::Range, sync::Arc};
use tokio::task::JoinHandle;

/// Opens the blob and reads the first piece in one trip to the pool; the others follow as the
/// stream is read.
pub(super) async fn get(store: &Arc<Store>, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
    let (store, name) = (store.clone(), name.clone());
    let opened = blocking(move || open(store, name, range)).await?;
    Ok(opened.map(|(first, rest)| stream::unfold((Some(first), rest), next_piece).boxed()))
}

/// What is still to be read of an open blob.
struct Rest {
    store: Arc<Store>,
    file: Arc<File>,
    name: BlobName,
    range: Range<u64>,
    piece_bytes: u64,
    ahead: Option<JoinHandle<Result<Bytes>>>,
}

fn open(store: Arc<Store>, name: BlobName, range: Range<u64>) -> Result<Option<(Bytes, Rest)>> {
    let (file, len) = match store.disk.open(&layout::place(&name).file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return store.absent().map(|()| None),
        Err(error) => return Err(disk_error("open", &name, error)),
    };
    if range.start > range.end || range.end > len {
        let message = format!("bytes {}..{} do not lie inside {name} of {len} bytes", range.start, range.end);
        return Err(BackendError::new(ErrorKind::Invalid, message));
    }
    let piece_bytes = if range.end - range.start <= WHOLE_BYTES_MAX { WHOLE_BYTES_MAX } else { PIECE_BYTES };
    let mut rest = Rest { store, file: Arc::new(file), name, range, piece_bytes, ahead: None };
    let first = rest.next_range();
    let first = rest.read(first)()?;
    Ok(Some((first, rest)))
}

impl Rest {
    /// Cuts the next piece off what is left.
    fn next_range(&mut self) -> Range<u64> {
        let start = self.range.start;
        self.range.start = self.range.end.min(start + self.piece_bytes);
        start..self.range.start
    }

    /// The work of reading one piece completely.
    fn read(&self, piece: Range<u64>) -> impl FnOnce() -> Result<Bytes> + Send + 'static {
        let (store, file, name) = (self.store.clone(), self.file.clone(), self.name.clone());
        move || {
            let len = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
            let bytes =
                store.disk.read_at(&file, piece.start, len).map_err(|error| disk_error("read", &name, error))?;
            if bytes.len() == len {
                Ok(Bytes::from(bytes))
            } else {
                Err(BackendError::new(ErrorKind::Corrupt, format!("{name} became shorter while it was read")))
            }
        }
    }
}

/// Gives the piece at hand, after starting to read the one behind it.
async fn next_piece((first, mut rest): (Option<Bytes>, Rest)) -> Option<(Result<Bytes>, (Option<Bytes>, Rest))> {
    let piece = match (first, rest.ahead.take()) {
        (Some(first), _) if first.is_empty() => return None,
        (Some(first), _) => Ok(first),
        (None, Some(ahead)) => finished(ahead.await),
        (None, None) => return None,
    };
    if piece.is_err() {
        rest.range.start = rest.range.end;
    }
    if !rest.range.is_empty() {
        let range = rest.next_range();
        rest.ahead = Some(tokio::task::spawn_blocking(rest.read(range)));
    }
    Some((piece, (None, rest)))
}

/// One read of much. Two of them per reader are in memory at most.
const PIECE_BYTES: u64 = 512 << 10;
/// What is no longer than a segment and the chunks at its ends is one read, in one piece: whoever
/// asks for it has room for all of it, and need not put it together.
const WHOLE_BYTES_MAX: u64 = (4 << 20) + (256 << 10);
