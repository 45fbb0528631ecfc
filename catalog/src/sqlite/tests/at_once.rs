//! Small reads are answered by the thread that asks.

use super::*;
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

/// What a question gives at its first poll: no other thread was asked then.
fn at_once<T>(question: impl Future<Output = Result<T>>) -> Option<T> {
    match pin!(question).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer.unwrap()),
        Poll::Pending => None,
    }
}

/// A machine under load makes any read slow.
async fn patient(directory: &TempDir) -> SqliteCatalog {
    open_with(directory, SqliteOptions { read_at_once_max: Duration::MAX, ..SqliteOptions::default() }).await
}

#[tokio::test]
async fn a_key_is_found_by_the_thread_that_asks_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let desk = Desk::new(Arc::new(patient(&directory).await)).await;
    desk.put("k").await;
    let (catalog, id) = (&desk.catalog, desk.bucket.id);
    // Connections are opened on blocking threads.
    catalog.stats().await.unwrap();
    let content = at_once(catalog.content(id, "k")).unwrap().unwrap();
    assert_eq!(content.extents.len(), 1);
    assert_eq!(at_once(catalog.current(id, "k")).unwrap().unwrap().id, content.version.id);
    assert_eq!(at_once(catalog.current(id, "nothing")), Some(None));
    assert!(at_once(catalog.version(id, "k", content.version.id)).unwrap().is_some());
    // A change is seen by the next question.
    desk.delete("k").await;
    assert_eq!(at_once(catalog.current(id, "k")), Some(None));
}

#[test]
fn content_of_many_extents_and_listings_are_read_on_blocking_threads() {
    const PARTS: u32 = 100;
    const THREADS: usize = 8;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(THREADS).build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let desk = Desk::new(Arc::new(patient(&directory).await)).await;
        let upload = desk.start_upload("k", 1).await;
        let mut parts = Vec::new();
        for number in 1..=PARTS {
            parts.push(desk.put_part(upload.id, number, 10).await);
        }
        let chosen: Vec<_> = parts.iter().collect();
        desk.catalog.complete(desk.completion(&upload, &chosen)).await.unwrap();
        let (catalog, id) = (&desk.catalog, desk.bucket.id);
        // While every such thread is taken, it cannot be there at once.
        let (release, _) = tokio::sync::broadcast::channel::<()>(1);
        for _ in 0..THREADS {
            let mut released = release.subscribe();
            tokio::task::spawn_blocking(move || released.blocking_recv());
        }
        assert!(at_once(catalog.content(id, "k")).is_none());
        let list = ListQuery { bucket: id, prefix: String::new(), delimiter: None, after: None, limit: 10 };
        assert!(at_once(catalog.list(&list)).is_none());
        drop(release);
        assert_eq!(catalog.content(id, "k").await.unwrap().unwrap().extents.len(), PARTS as usize);
        assert!(at_once(catalog.current(id, "k")).unwrap().is_some());
    });
}

#[tokio::test]
async fn nobody_who_asks_waits_for_a_database_that_is_being_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let desk = Desk::new(Arc::new(patient(&directory).await)).await;
    desk.put("k").await;
    let (catalog, id) = (&desk.catalog, desk.bucket.id);
    catalog.stats().await.unwrap();
    assert!(at_once(catalog.current(id, "k")).is_some());
    catalog.readers.with_all_closed(|| assert!(at_once(catalog.current(id, "k")).is_none()));
    assert!(catalog.current(id, "k").await.unwrap().is_some());
}
