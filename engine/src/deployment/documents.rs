//! What a recovery will need is looked at while it can still be written again: how a document was
//! found, and the one way to replace it.

use crate::error::EngineError;
use bytes::Bytes;
use storage_backends::{Backend, BlobName, put_bytes};

/// How a document was found, and left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Well,
    /// It was damaged or missing, as the words say, and is written again.
    Restored(String),
    /// It is, and could not be written again.
    Damaged(String),
    /// It cannot be asked for now, which says nothing (I10).
    Unreachable(String),
}

/// What lies under a name.
#[derive(Debug)]
pub(crate) enum Look<T> {
    Good(T),
    Damaged(String),
    Missing,
}

impl<T> Look<T> {
    /// What is wrong, in words; `None` when nothing is.
    pub(crate) fn why(&self) -> Option<String> {
        match self {
            Self::Good(_) => None,
            Self::Damaged(why) => Some(why.clone()),
            Self::Missing => Some("it is missing".to_owned()),
        }
    }

    /// What was read, if it is good.
    pub(crate) fn good(&self) -> Option<&T> {
        match self {
            Self::Good(read) => Some(read),
            _ => None,
        }
    }
}

/// Reads a document, and once more when it does not look well: damage may be on the way, and
/// another process may be writing it.
///
/// # Errors
/// What keeps it from being known.
pub(crate) async fn look<T, F>(read: impl Fn() -> F) -> Result<Look<T>, EngineError>
where
    F: Future<Output = Result<Option<T>, EngineError>>,
{
    let mut found = Look::Missing;
    for _ in 0..2 {
        found = match read().await {
            Ok(Some(document)) => return Ok(Look::Good(document)),
            Ok(None) => Look::Missing,
            Err(EngineError::Integrity(why)) => Look::Damaged(why),
            Err(error) => return Err(error),
        };
    }
    Ok(found)
}

/// Puts a document where `found` says that it is damaged or missing; a good one is left alone.
/// Names are used once (I1): what is written is what was written there before, or says the same.
/// The caller looks afterwards.
///
/// # Errors
/// What the backend says; a damaged one may be missing then.
pub(crate) async fn write_again<T>(
    backend: &dyn Backend,
    name: &BlobName,
    found: &Look<T>,
    bytes: Bytes,
) -> Result<(), EngineError> {
    match found {
        Look::Good(_) => return Ok(()),
        Look::Damaged(_) => backend.delete(name).await?,
        Look::Missing => {}
    }
    put_bytes(backend, name, bytes).await?;
    Ok(())
}

/// What became of a document that was not well, from a look at it afterwards.
pub(crate) fn verdict<T>(why: String, written: Result<(), EngineError>, after: Result<Look<T>, EngineError>) -> Found {
    match (written, after) {
        // Somebody else may have written it.
        (_, Ok(Look::Good(_))) => Found::Restored(why),
        (Err(error), _) => Found::Damaged(format!("{why}; it could not be written again: {error}")),
        (Ok(()), Ok(after)) => {
            Found::Damaged(format!("{why}; it was written again, and {}", after.why().unwrap_or_default()))
        }
        (Ok(()), Err(error)) => Found::Unreachable(format!("{why}; it was written again, and cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use storage_backends::MemoryBackend;

    #[tokio::test]
    async fn what_looks_damaged_once_is_read_again_and_an_error_is_no_damage() {
        let next = |outcomes: [Result<Option<u8>, EngineError>; 2]| {
            let outcomes = Cell::new(Some(outcomes.map(Some)));
            move || {
                let mut left = outcomes.take().expect("it is put back");
                let outcome = left.iter_mut().find_map(Option::take).expect("two at most");
                outcomes.set(Some(left));
                std::future::ready(outcome)
            }
        };
        let damaged = || Err(EngineError::Integrity("a flipped bit".into()));
        let away = || Err(EngineError::Unavailable("away".into()));
        assert_eq!(look(next([damaged(), Ok(Some(7))])).await.unwrap().good(), Some(&7));
        assert_eq!(look(next([Ok(None), Ok(Some(7))])).await.unwrap().good(), Some(&7));
        assert!(matches!(look(next([Ok(None), damaged()])).await.unwrap(), Look::Damaged(_)));
        assert!(matches!(look(next([damaged(), Ok(None)])).await.unwrap(), Look::Missing));
        assert!(look(next([damaged(), away()])).await.is_err());
        assert!(look(next([away(), Ok(None)])).await.is_err());
    }

    #[tokio::test]
    async fn a_good_document_is_never_written_over() {
        let (backend, name) = (MemoryBackend::new(), BlobName::new("owner/1").unwrap());
        write_again(&backend, &name, &Look::<()>::Missing, "first".into()).await.unwrap();
        write_again(&backend, &name, &Look::Good(()), "second".into()).await.unwrap();
        let there = || async { storage_backends::get_all(&backend, &name, 5).await.unwrap().unwrap() };
        assert_eq!(there().await, "first");
        write_again(&backend, &name, &Look::<()>::Damaged("x".into()), "third".into()).await.unwrap();
        assert_eq!(there().await, "third");
    }
}
