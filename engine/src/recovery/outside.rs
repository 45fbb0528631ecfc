//! An anchor outside of the store: a note that says how far the journal once was
//! (`backup.anchor`). Who can put old bytes into the store, its catalog and its backups all at once
//! leaves nothing in them that shows it. The anchor lies elsewhere, and shows it: in a file, or in
//! another store.

mod anchor_file;
mod anchor_store;

use super::names::Lineage;
use crate::{config::AnchorPlace, error::EngineError, metrics::Metrics};
use anchor_file::{AnchorFile, NotedPlace, failed, is_less};
use anchor_store::AnchorStore;
use catalog::Seq;
use std::{
    fmt, io,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use storage_backends::Backend;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// How long whoever cannot go on without the anchor waits for it.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// A write that takes longer than this is in the log.
const SLOW_WRITE: Duration = Duration::from_secs(10);
/// Between two writes to a store: each of them is paid for (docs/reference/configuration.md).
const STORE_PAUSE: Duration = Duration::from_secs(10);

/// How far the journal is known to be.
///
/// The file may lie on another machine's disk, which may not answer. So no thread of the runtime
/// touches it, nor one that the runtime waits for at its end.
#[derive(Default)]
pub(super) struct OutsideAnchor {
    writer: Option<Arc<AnchorWriter>>,
}

/// Where it is.
enum Keeper {
    File(AnchorFile),
    Store(AnchorStore),
}

/// Who writes it.
struct AnchorWriter {
    keeper: Keeper,
    metrics: Arc<Metrics>,
    raising: Mutex<Raising>,
    /// Nothing is under way any more.
    ended: Notify,
    /// Somebody waits for what is to be written: no pause is made before.
    hurry: Notify,
}

/// What is to be written: one write at a time, and then the newest of what was asked for meanwhile.
#[derive(Default)]
struct Raising {
    next: Option<NotedPlace>,
    /// Since when a write is under way.
    since: Option<Instant>,
    /// That it takes long is in the log.
    is_said: bool,
    /// What this process wrote last: the anchor is not read for each shipment.
    written: Option<NotedPlace>,
    /// When a store was last written to.
    stored: Option<Instant>,
}

impl fmt::Display for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.path().display().fmt(f),
            Self::Store(store) => store.fmt(f),
        }
    }
}

impl OutsideAnchor {
    /// The anchor that a configuration names, and the store where that names one.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the store is not open: an anchor is not left out.
    pub(super) fn open(
        place: Option<AnchorPlace>,
        store: Option<Arc<dyn Backend>>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, EngineError> {
        let keeper = match (place, store) {
            (None, _) => return Ok(Self::default()),
            (Some(AnchorPlace::File(path)), _) => Keeper::File(AnchorFile::new(path)),
            (Some(AnchorPlace::Store { name, prefix }), Some(store)) => {
                Keeper::Store(AnchorStore::new(store, name, prefix))
            }
            (Some(AnchorPlace::Store { name, .. }), None) => {
                return Err(EngineError::Other(format!("store {name:?} of backup.anchor is not open")));
            }
        };
        let (raising, ended, hurry) = (Mutex::default(), Notify::new(), Notify::new());
        Ok(Self { writer: Some(Arc::new(AnchorWriter { keeper, metrics, raising, ended, hurry })) })
    }

    /// Has it noted soon that the journal is in the store up to this mutation, and does not wait
    /// for it. An anchor that says more stays. One that cannot be written stays behind, which is
    /// logged and counted.
    pub(super) fn raise(&self, lineage: Lineage, seq: Seq) {
        let Some(writer) = &self.writer else { return };
        if !writer.ask((lineage, seq)) {
            return;
        }
        let running = writer.clone();
        match &writer.keeper {
            Keeper::Store(_) => drop(tokio::spawn(async move { running.run_in_store().await })),
            Keeper::File(_) => {
                if let Err(error) = spawn(move || running.run()) {
                    writer.failed(&failed("write", &writer.keeper, &error));
                    let mut raising = writer.raising();
                    (raising.next, raising.since) = (None, None);
                }
            }
        }
    }

    /// Waits until all that was to be noted is, but no longer than this; whether it is.
    pub(super) async fn settle(&self, wait: Duration) -> bool {
        let Some(writer) = &self.writer else { return true };
        let settled = async {
            loop {
                let mut ended = pin!(writer.ended.notified());
                // One that ends between the look and the wait is not missed.
                ended.as_mut().enable();
                if writer.raising().since.is_none() {
                    return;
                }
                writer.hurry.notify_one();
                ended.await;
            }
        };
        tokio::time::timeout(wait, settled).await.is_ok()
    }

    /// Notes a place also where it is less than what was known: an operator said so.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the anchor cannot be written, or does not answer.
    pub(super) async fn set(&self, lineage: Lineage, seq: Seq) -> Result<(), EngineError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let place = (lineage, seq);
        writer.raising().written = None;
        match &writer.keeper {
            Keeper::File(_) => writer.wait_for("write", move |file| file.set(place)).await,
            Keeper::Store(store) => writer.answered("write", store.set(place)).await,
        }
    }

    /// What the anchor says: nothing when there is none. Read before the history that it is held
    /// against: another process may ship and raise it at any time.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be read or understood, or does not answer: then
    /// nothing is known.
    pub(super) async fn read(&self) -> Result<Vec<NotedPlace>, EngineError> {
        let Some(writer) = &self.writer else { return Ok(Vec::new()) };
        match &writer.keeper {
            Keeper::File(_) => Ok(writer.wait_for("read", AnchorFile::read).await?.into_iter().collect()),
            Keeper::Store(store) => writer.answered("read", store.read()).await,
        }
    }

    /// Why a history that ends here is not the newest one; `None` when what the anchor said does
    /// not say so.
    pub(super) fn why_behind(&self, anchor: &[NotedPlace], history: Option<NotedPlace>) -> Option<String> {
        let keeper = &self.writer.as_ref()?.keeper;
        let more = |place: &&NotedPlace| history.is_none_or(|history| is_less(history, **place));
        let (lineage, seq) = anchor.iter().find(more)?;
        let found = match history {
            Some((lineage, seq)) => format!("ends with mutation {seq} of lineage {lineage}"),
            None => "has no history".to_owned(),
        };
        Some(format!("the anchor {keeper} knows mutation {seq} of lineage {lineage}, and what is here {found}"))
    }
}

impl AnchorWriter {
    /// Takes what is to be noted; whether somebody has to be sent to write it.
    fn ask(&self, place: NotedPlace) -> bool {
        let mut raising = self.raising();
        let Some(since) = raising.since else {
            let is_new = raising.written != Some(place);
            if is_new {
                (raising.next, raising.since, raising.is_said) = (Some(place), Some(Instant::now()), false);
            }
            return is_new;
        };
        raising.next = Some(place);
        if since.elapsed() > SLOW_WRITE && !raising.is_said {
            raising.is_said = true;
            drop(raising);
            let why = format!("no answer for {} s; the journal is shipped without it", since.elapsed().as_secs());
            self.failed(&failed("write", &self.keeper, &why));
        }
        false
    }

    /// Writes the file until nothing more is asked for.
    fn run(&self) {
        let Keeper::File(file) = &self.keeper else { return };
        while let Some(place) = self.next() {
            let raised = file.raise(place);
            // One that another process may still lower is asked for again.
            self.raising().written = matches!(raised, Ok(true)).then_some(place);
            if let Err(error) = raised {
                self.failed(&error);
            }
        }
    }

    /// Writes to the store until nothing more is asked for, the newest of what was asked for
    /// between two writes.
    async fn run_in_store(&self) {
        let Keeper::Store(store) = &self.keeper else { return };
        while let Some(place) = self.next() {
            let stored = self.raising().stored;
            if let Some(stored) = stored {
                tokio::select! {
                    () = tokio::time::sleep_until(stored + STORE_PAUSE) => {}
                    () = self.hurry.notified() => {}
                }
            }
            let place = {
                let mut raising = self.raising();
                (raising.since, raising.stored) = (Some(Instant::now()), Some(Instant::now()));
                raising.next.take().unwrap_or(place)
            };
            let raised = store.raise(place).await;
            self.raising().written = raised.is_ok().then_some(place);
            if let Err(error) = raised {
                self.failed(&error);
            }
        }
    }

    fn next(&self) -> Option<NotedPlace> {
        let mut raising = self.raising();
        let (next, written) = (raising.next.take(), raising.written);
        let next = next.filter(|next| written != Some(*next));
        (raising.since, raising.is_said) = (next.map(|_| Instant::now()), false);
        drop(raising);
        if next.is_none() {
            self.ended.notify_waiters();
        }
        next
    }

    /// What is shipped stays shipped when this fails.
    fn failed(&self, error: &EngineError) {
        self.metrics.journal_errors_total.inc();
        tracing::error!(%error, "the anchor outside of the store stays behind");
    }

    /// What the file answers, asked for beside the runtime.
    async fn wait_for<T: Send + 'static>(
        self: &Arc<Self>,
        what: &str,
        ask: impl FnOnce(&AnchorFile) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (answer, answered) = oneshot::channel();
        let asked = self.clone();
        // Nobody waits for an answer that comes too late.
        let asking = move || {
            if let Keeper::File(file) = &asked.keeper {
                drop(answer.send(ask(file)));
            }
        };
        spawn(asking).map_err(|error| failed(what, &self.keeper, &error))?;
        self.answered(what, async { answered.await.unwrap_or_else(|gone| Err(failed(what, &self.keeper, &gone))) })
            .await
    }

    async fn answered<T>(
        &self,
        what: &str,
        answer: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let in_time = tokio::time::timeout(ANSWER_WAIT, answer).await;
        in_time.unwrap_or_else(|_| Err(failed(what, &self.keeper, &"no answer")))
    }

    fn raising(&self) -> MutexGuard<'_, Raising> {
        // Nothing panics while it holds the lock.
        self.raising.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("anchor".into()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::{collections::BTreeSet, fs, io::Write as _, path::Path};
    use storage_backends::MemoryBackend;

    /// How long a test waits for what must come.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn lineage(text: &str) -> Lineage {
        text.parse().expect("a lineage")
    }

    fn outside(file: &Path) -> OutsideAnchor {
        OutsideAnchor::open(Some(AnchorPlace::File(file.to_owned())), None, Metrics::new()).expect("a file")
    }

    #[tokio::test]
    async fn an_anchor_rises_and_shows_what_ends_before_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let outside = || outside(&dir.path().join("anchor"));
        let (first, second, sibling) =
            (lineage("00000001-0000000a"), lineage("00000002-0000000b"), lineage("00000002-0000000c"));
        let behind = async |history| {
            let outside = outside();
            outside.why_behind(&outside.read().await.expect("read"), history).is_some()
        };
        let raise = async |lineage, seq| {
            let outside = outside();
            outside.raise(lineage, seq);
            assert!(outside.settle(PATIENCE).await);
        };
        assert!(!behind(None).await, "without a file nothing is known");
        raise(first, 10).await;
        raise(first, 4).await;
        assert!(behind(None).await && behind(Some((first, 9))).await);
        assert!(!behind(Some((first, 10))).await && !behind(Some((second, 2))).await, "a later lineage stands on it");
        raise(second, 12).await;
        assert!(behind(Some((first, 900))).await && behind(Some((second, 11))).await);
        assert!(behind(Some((sibling, 900))).await);
        outside().set(first, 3).await.expect("written");
        assert!(!behind(Some((first, 3))).await, "an operator said so");
    }

    #[tokio::test]
    async fn an_anchor_that_cannot_be_read_is_no_permission() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("anchor");
        let outside = outside(&file);
        for (failures, text) in (1..).zip(["", "{}", r#"{"version": 2, "lineage": "00000001-0000000a", "seq": 1}"#]) {
            fs::write(&file, text).expect("written");
            assert!(outside.read().await.is_err(), "{text}");
            outside.raise(lineage("00000001-0000000a"), 1);
            assert!(outside.settle(PATIENCE).await);
            let counted = outside.writer.as_ref().expect("a file").metrics.journal_errors_total.get();
            assert_eq!((counted, fs::read_to_string(&file).expect("readable").as_str()), (failures, text));
        }
        let none = OutsideAnchor::open(None, None, Metrics::new()).expect("none");
        assert!(none.read().await.expect("nothing is asked for").is_empty());
        let store = AnchorPlace::Store { name: "elsewhere".into(), prefix: "anchor".into() };
        assert!(OutsideAnchor::open(Some(store), None, Metrics::new()).is_err(), "one that is named is not left out");
    }

    #[tokio::test]
    async fn a_file_that_does_not_answer_has_one_writer_and_then_the_newest_of_what_was_asked_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("anchor");
        mkfifoat(CWD, &file, Mode::RUSR | Mode::WUSR).expect("made");
        let (outside, lineage) = (outside(&file), lineage("00000001-0000000a"));
        outside.raise(lineage, 1);
        // Opened when it is read.
        let mut answer = fs::File::options().write(true).open(&file).expect("opened");
        for seq in 2..=100 {
            outside.raise(lineage, seq);
        }
        assert!(!outside.settle(Duration::ZERO).await, "it hangs");
        let writer = outside.writer.as_ref().expect("a file");
        assert_eq!(Arc::strong_count(writer), 2, "the anchor, and one thread that writes");
        assert_eq!(writer.raising().next, Some((lineage, 100)));
        answer.write_all(br#"{"version":1,"lineage":"00000001-0000000a","seq":0}"#).expect("written");
        drop(answer);
        assert!(outside.settle(PATIENCE).await);
        assert_eq!(outside.read().await.expect("read"), [(lineage, 100)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_is_written_to_once_in_a_pause_and_at_once_when_somebody_waits() {
        let backend = Arc::new(MemoryBackend::new());
        let place = AnchorPlace::Store { name: "elsewhere".into(), prefix: "anchor".into() };
        let outside = OutsideAnchor::open(Some(place), Some(backend.clone()), Metrics::new()).expect("open");
        let lineage = lineage("00000001-0000000a");
        outside.raise(lineage, 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(outside.read().await.expect("read"), [(lineage, 1)], "the first is not waited for");
        let mut seen = BTreeSet::new();
        for seq in 2..=60 {
            outside.raise(lineage, seq);
            tokio::time::sleep(Duration::from_secs(1)).await;
            seen.extend(outside.read().await.expect("read").into_iter().map(|(_, seq)| seq));
        }
        assert!((6..=8).contains(&seen.len()), "one in ten seconds: {seen:?}");
        assert!(outside.settle(Duration::from_secs(1)).await, "a process that ends does not wait for the pause");
        assert_eq!(outside.read().await.expect("read"), [(lineage, 60)]);
        let counted = outside.writer.as_ref().expect("a store").metrics.journal_errors_total.get();
        assert_eq!(counted, 0, "a pause is no silence");
    }
}
