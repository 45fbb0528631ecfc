//! The end: nothing goes wrong any more, everything has to be well, and nothing may be left.

use crate::{
    clients::{Slot, VERSIONED},
    history::{Act, Event, Verdict, judge},
    operations::{self, Answer, Operation},
    replica::BUCKETS,
    world::{FORK_SEEN_MS, World},
};
use catalog::Versioning;
use engine::{CollectParameters, Engine, EngineError};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

impl World {
    /// Runs some work in a replica and waits for its answer.
    pub(crate) fn within<T, F>(&mut self, number: usize, what: &str, work: impl FnOnce(Arc<Engine>) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let engine = self.replicas[number].engine()?;
        let slot: Slot<T> = Arc::default();
        let (filled, work) = (slot.clone(), work(engine));
        self.replicas[number].spawn(async move {
            let done = work.await;
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        })?;
        let is_there = slot.clone();
        self.until(what, |_| is_there.lock().unwrap_or_else(PoisonError::into_inner).is_some());
        slot.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The same for work that may fail; a failure is noted.
    fn well<T, F>(&mut self, number: usize, what: &str, work: impl FnOnce(Arc<Engine>) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        match self.within(number, what, work) {
            Some(Ok(value)) => Some(value),
            Some(Err(error)) => {
                self.unexpected(format!("{what}: {error}"));
                None
            }
            None => {
                self.unexpected(format!("{what}: replica {number} does not serve"));
                None
            }
        }
    }

    pub(crate) fn make_buckets(&mut self) {
        self.well(0, "buckets are made", |engine| async move {
            for name in BUCKETS {
                engine.buckets.create_bucket(name, "owner").await?;
            }
            let Some(bucket) = engine.buckets.bucket(BUCKETS[VERSIONED]).await? else { return Ok(()) };
            Ok(engine.catalog().set_versioning(bucket.row.id, Versioning::Enabled).await?)
        });
    }

    pub(crate) fn end(&mut self) {
        self.note("calm");
        self.calm.store(true, Ordering::Relaxed);
        for replica in &mut self.replicas {
            replica.stopped_until_ms = 0;
        }
        if self.forked_ms.is_some() {
            self.rest(FORK_SEEN_MS.unsigned_abs());
            self.repair();
        }
        for number in 0..self.replicas.len() {
            self.bring_back(number);
        }
        self.until("clients are answered", |world| world.pending.is_empty());
        // Whatever was late has arrived, whoever was silent is known to be.
        self.rest(40_000);
        self.read_everything();
        self.everybody_writes();
        self.judge_histories();
        self.check_rules();
        self.leave_nothing();
    }

    fn rest(&mut self, ms: u64) {
        let end = self.shared.clock.since_begin_ms() + i64::try_from(ms).unwrap_or(0);
        while self.shared.clock.since_begin_ms() < end {
            self.turn(Duration::from_millis(60));
        }
    }

    fn bring_back(&mut self, number: usize) {
        for _ in 0..10 {
            if !self.replicas[number].is_up() {
                self.replicas[number].boot();
            }
            self.until("a replica starts", |world| {
                let replica = &world.replicas[number];
                replica.engine().is_some() || replica.failed().is_some()
            });
            if self.replicas[number].engine().is_some() {
                return;
            }
            let why = self.replicas[number].failed().unwrap_or_default();
            self.note(&format!("{number} did not start: {why}"));
            self.replicas[number].kill();
            self.rest(1000);
        }
        let why = self.replicas[number].failed().unwrap_or_default();
        self.unexpected(format!("replica {number} does not come back: {why}"));
    }

    /// Every key and version is read once more.
    fn read_everything(&mut self) {
        for (bucket, bucket_name) in BUCKETS.into_iter().enumerate() {
            let mut there = Vec::new();
            for key in self.keys() {
                let asked = self.moment + 1;
                let (name, to_read) = (bucket_name.to_owned(), key.clone());
                let answer =
                    self.within(0, "a read", |engine| operations::perform(engine, name, to_read, Operation::Get));
                match answer {
                    Some(Answer::Found(held)) => {
                        there.extend(held.map(|_| key.clone()));
                        self.note_read(bucket, &key, held, asked);
                    }
                    Some(Answer::Wrong(what)) => {
                        self.report.wrong += 1;
                        self.remember(format!("{} {key}, at the end: {what}", bucket_name));
                    }
                    other => self.unexpected(format!("{} {key}, at the end: {other:?}", bucket_name)),
                }
            }
            // Another one than those that wrote and read, where there is one.
            let other = 1.min(self.replicas.len() - 1);
            let listed = self.well(other, "a listing", |engine| async move {
                match engine.buckets.bucket(bucket_name).await? {
                    Some(bucket) => operations::listed(&engine, &bucket).await,
                    None => Ok(Vec::new()),
                }
            });
            // A merge keeps the losing side of a conflict under a key of its own.
            let listed: Option<Vec<String>> =
                listed.map(|keys| keys.into_iter().filter(|key| key.starts_with("k-")).collect());
            if listed.as_ref() != Some(&there) {
                self.unexpected(format!("{} lists {listed:?}, and there are {there:?}", bucket_name));
            }
        }
        self.read_versions();
    }

    fn read_versions(&mut self) {
        for at in 0..self.known.len() {
            let known = &self.known[at];
            let (key, version, content) = (known.key.clone(), known.version, known.content);
            let (may_be_gone, is_gone) = (known.may_be_gone, known.is_gone);
            let operation = Operation::GetVersion { version, content };
            let answer = self.within(0, "a version", |engine| {
                operations::perform(engine, BUCKETS[VERSIONED].to_owned(), key.clone(), operation)
            });
            match answer {
                Some(Answer::IsThere(true)) if is_gone => {
                    self.report.resurrected += 1;
                    self.remember(format!("version {version} of {key} was removed and is there"));
                }
                Some(Answer::IsThere(false)) if !may_be_gone => {
                    self.report.lost += 1;
                    self.remember(format!("version {version} of {key} is not there, at the end"));
                }
                Some(Answer::IsThere(_)) => {}
                other => {
                    self.report.wrong += 1;
                    self.remember(format!("version {version} of {key}, at the end: {other:?}"));
                }
            }
        }
    }

    /// Nothing is stuck: every replica takes a write.
    fn everybody_writes(&mut self) {
        for number in 0..self.replicas.len() {
            let asked = self.ask(
                number,
                0,
                format!("last-{number}"),
                Operation::Put {
                    content: crate::content::Content::of(number as u64),
                    if_absent: false,
                    pause: Duration::ZERO,
                },
            );
            let acked = self.report.acked;
            let waits = |world: &Self| asked.is_none_or(|id| world.pending.iter().all(|pending| pending.id != id));
            self.until("a last write", waits);
            if self.report.acked == acked {
                self.unexpected(format!("replica {number} does not take a write at the end"));
            }
        }
    }

    fn judge_histories(&mut self) {
        let histories = std::mem::take(&mut self.histories);
        for ((bucket, key), events) in &histories {
            // Removed versions uncover older ones there.
            if *bucket == VERSIONED {
                continue;
            }
            match judge(events) {
                Verdict::Explained => {}
                Verdict::Undecided => self.unexpected(format!("{} {key}: not decided", BUCKETS[*bucket])),
                Verdict::Impossible => self.blame(*bucket, key, events),
            }
        }
    }

    /// Says in which way a history is impossible.
    fn blame(&mut self, bucket: usize, key: &str, events: &[Event]) {
        let before = events.len().saturating_sub(1);
        let last = events.last().map(|event| event.act);
        let by_the_last_read = judge(&events[..before]) == Verdict::Explained;
        let count = match last {
            Some(Act::Read(Some(_))) if by_the_last_read && is_removed(events) => &mut self.report.resurrected,
            Some(Act::Read(_)) if by_the_last_read => &mut self.report.lost,
            _ => &mut self.report.disorder,
        };
        *count += 1;
        let told: Vec<String> = events
            .iter()
            .map(|event| format!("{:?} {}..{}", event.act, event.asked, event.answered.map_or(-1, |at| at as i64)))
            .collect();
        self.remember(format!("{} {key}: {}", BUCKETS[bucket], told.join(", ")));
    }

    fn check_rules(&mut self) {
        let rules = self.well(0, "the catalog's rules", |engine| async move { Ok(engine.catalog().check().await?) });
        for rule in rules.unwrap_or_default() {
            self.unexpected(format!("broken rule: {rule}"));
        }
        let quarantined =
            self.well(0, "quarantine", |engine| async move { Ok(engine.catalog().quarantined(None, 10).await?) });
        for blob in quarantined.unwrap_or_default() {
            self.unexpected(format!("in quarantine: {blob:?}"));
        }
    }

    /// Everything is removed and collected.
    fn leave_nothing(&mut self) {
        for name in BUCKETS {
            self.well(0, "a bucket is emptied", |engine| async move {
                match engine.buckets.bucket(name).await? {
                    Some(bucket) => operations::empty(&engine, &bucket).await,
                    None => Ok(()),
                }
            });
        }
        for number in 0..self.replicas.len() {
            self.within(number, "a replica ends", |engine| async move { engine.shutdown().await });
            self.replicas[number].kill();
        }
        if self.report.merges > 0 {
            // What only a rebuild could judge is left alone for a week.
            self.shared.clock.advance(Duration::from_secs(8 * 86_400));
        }
        self.bring_back(0);
        // Twice: what the first one makes, the second one collects.
        for _ in 0..2 {
            let everything =
                CollectParameters { now: true, empty_trash: true, sweep: true, ..CollectParameters::default() };
            self.well(0, "everything is collected", |engine| async move { engine.collect_as(everything).await });
            self.rest(60_000);
        }
        let left = self.shared.store.names("blobs/");
        if !left.is_empty() {
            self.report.orphans += left.len() as u64;
            self.remember(format!("left in the store: {left:?}"));
        }
        self.check_rules();
    }
}

/// Whether a removal was acknowledged that nothing acknowledged came after.
fn is_removed(events: &[Event]) -> bool {
    let last = |wanted: fn(&Act) -> bool| {
        events.iter().filter(|event| wanted(&event.act)).filter_map(|event| event.answered).max().unwrap_or(0)
    };
    last(|act| matches!(act, Act::Write(None))) > last(|act| matches!(act, Act::Write(Some(_)) | Act::WriteIfAbsent(_)))
}
