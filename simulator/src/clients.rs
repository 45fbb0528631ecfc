//! Clients: what they ask for next, and what an answer means.

use crate::{
    asked::{Known, Pending},
    content::Content,
    history::{Act, Event, Held},
    operations::{Answer, Operation, perform},
    replica::BUCKETS,
    world::World,
};
use serde_json::json;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Keys of a bucket.
const KEYS: u64 = 7;
/// The bucket that keeps versions.
pub(crate) const VERSIONED: usize = 3;

impl World {
    /// Clients that have thought enough ask for the next thing.
    pub(crate) fn ask_as_clients(&mut self) {
        let now = self.shared.clock.since_begin_ms();
        for at in 0..self.clients.len() {
            if let Some(id) = self.clients[at].waits_for {
                if self.pending.iter().any(|pending| pending.id == id) {
                    continue;
                }
                self.clients[at].waits_for = None;
                self.clients[at].next_ms = now + i64::try_from(self.dice.between(20, 7000)).unwrap_or(0);
            }
            if self.clients[at].next_ms <= now {
                let up: Vec<usize> =
                    self.replicas.iter().filter(|replica| replica.engine().is_some()).map(|up| up.number).collect();
                if up.is_empty() {
                    continue;
                }
                let replica = up[self.dice.place(up.len())];
                let (bucket, key, operation) = self.wish();
                self.clients[at].waits_for = self.ask(replica, bucket, key, operation);
            }
        }
        // A client that hangs up.
        if !self.pending.is_empty() && self.dice.permille(2) {
            let at = self.dice.place(self.pending.len());
            let gone = self.pending.remove(at);
            self.note(&format!("{} hangs up", gone.id));
            gone.handle.abort();
            self.conclude(gone, Answer::Failed("the client hung up".into()));
        }
    }

    /// What a client asks for next.
    fn wish(&mut self) -> (usize, String, Operation) {
        let bucket = self.dice.place(BUCKETS.len());
        let key = format!("k-{}", self.dice.below(KEYS));
        let operation = match self.dice.below(100) {
            0..30 => self.put(),
            30..38 => {
                let (content, parts) = (self.content(), 1 + self.dice.place(4));
                Operation::Upload { content, parts }
            }
            38..58 => Operation::Get,
            58..66 => {
                let from = self.dice.below(1000);
                Operation::Range { from, to: self.dice.between(from, 1001) }
            }
            66..74 => Operation::Head,
            74..82 => Operation::Delete,
            82..88 => Operation::Copy { to: format!("k-{}", self.dice.below(KEYS)), seen: Arc::default() },
            88..96 => return self.wish_of_version(key),
            _ => self.job(),
        };
        (bucket, key, operation)
    }

    fn content(&mut self) -> Content {
        self.next_content += 1;
        Content::of(self.next_content)
    }

    fn put(&mut self) -> Operation {
        // Some bodies take longer than a silent writer is believed.
        let pause_ms = if self.dice.permille(60) { self.dice.between(500, 6000) } else { self.dice.below(20) };
        let (content, if_absent) = (self.content(), self.dice.permille(200));
        Operation::Put { content, if_absent, pause: Duration::from_millis(pause_ms) }
    }

    fn wish_of_version(&mut self, key: String) -> (usize, String, Operation) {
        if self.known.is_empty() {
            return (VERSIONED, key, self.put());
        }
        let at = self.dice.place(self.known.len());
        let removes = self.dice.permille(300);
        let known = &mut self.known[at];
        let (version, content) = (known.version, known.content);
        known.may_be_gone |= removes;
        let operation =
            if removes { Operation::DeleteVersion { version } } else { Operation::GetVersion { version, content } };
        (VERSIONED, known.key.clone(), operation)
    }

    fn job(&mut self) -> Operation {
        let (name, parameters) = match self.dice.below(6) {
            0 => ("gc", json!({"now": self.dice.permille(500), "sweep": self.dice.permille(500)})),
            1 => ("gc", json!({"now": true, "empty_trash": true})),
            2 => ("converter", json!({"now": true})),
            3 => ("packs", json!(null)),
            4 => ("copies", json!(null)),
            _ => ("scrub", json!({})),
        };
        Operation::Job { name, parameters }
    }

    /// Asks a replica for something; by which number it is waited for.
    pub(crate) fn ask(&mut self, replica: usize, bucket: usize, key: String, operation: Operation) -> Option<u64> {
        let engine = self.replicas[replica].engine()?;
        self.moment += 1;
        self.report.ops += 1;
        let id = self.moment;
        self.note(&format!("{id} asks {replica}: {} {key} {operation:?}", BUCKETS[bucket]));
        let answers = self.answers.clone();
        let work = Box::pin(perform(engine, BUCKETS[bucket].to_owned(), key.clone(), operation.clone()));
        let handle = self.replicas[replica].spawn(async move {
            let answer = work.await;
            answers.lock().unwrap_or_else(PoisonError::into_inner).push((id, answer));
        })?;
        self.pending.push(Pending { id, replica, bucket, key, operation, asked: id, handle });
        Some(id)
    }

    /// Looks at the answers that came.
    pub(crate) fn take_answers(&mut self) {
        let answers = std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, answer) in answers {
            let Some(at) = self.pending.iter().position(|pending| pending.id == id) else { continue };
            let pending = self.pending.remove(at);
            self.note(&format!("{id} is answered: {answer:?}"));
            self.conclude(pending, answer);
        }
    }

    /// Nobody answers what a dead replica was asked for.
    pub(crate) fn lose_pending_of(&mut self, replica: usize) {
        let (lost, others) = std::mem::take(&mut self.pending).into_iter().partition(|one| one.replica == replica);
        self.pending = others;
        let lost: Vec<Pending> = lost;
        for pending in lost {
            self.conclude(pending, Answer::Failed("the replica died".into()));
        }
    }

    /// Writes down what an answer means.
    fn conclude(&mut self, pending: Pending, answer: Answer) {
        self.moment += 1;
        let now = self.moment;
        let Pending { bucket, key, operation, asked, .. } = pending;
        let is_doubtful = self.forked_ms.is_some() || asked <= self.doubtful_until;
        match &answer {
            // The database has gone back, and a merge brings back what it lacks.
            Answer::Lacks(_) if is_doubtful => {}
            Answer::Wrong(what) | Answer::Lacks(what) => {
                self.report.wrong += 1;
                self.remember(format!("{} {key} {operation:?}: {what}", BUCKETS[bucket]));
            }
            _ => {}
        }
        let mut event = |key: &str, act: Act, answered: bool| {
            let answered = answered.then_some(now);
            let event = Event { act, asked, answered };
            self.histories.entry((bucket, key.to_owned())).or_default().push(event);
        };
        match (&operation, &answer) {
            (Operation::Put { if_absent: true, .. }, Answer::Refused) if !is_doubtful => {
                event(&key, Act::Refused, true);
            }
            (Operation::Put { content, if_absent: true, .. }, Answer::Written(_) | Answer::Failed(_)) => {
                event(&key, Act::WriteIfAbsent(content.number), matches!(answer, Answer::Written(_)));
            }
            (Operation::Put { content, .. } | Operation::Upload { content, .. }, Answer::Written(_)) => {
                event(&key, Act::Write(Some(content.number)), true);
            }
            (Operation::Put { content, .. } | Operation::Upload { content, .. }, Answer::Failed(_)) => {
                event(&key, Act::Write(Some(content.number)), false);
            }
            (Operation::Get | Operation::Range { .. } | Operation::Head, Answer::Found(held)) if !is_doubtful => {
                event(&key, Act::Read(*held), true);
            }
            (Operation::Delete, Answer::Removed | Answer::Failed(_)) => {
                // What an older database does not have it need not remove, and a merge brings it
                // back.
                event(&key, Act::Write(None), matches!(answer, Answer::Removed) && !is_doubtful);
            }
            (Operation::Copy { to, seen }, Answer::Copied(_) | Answer::Failed(_)) => {
                let seen = *seen.lock().unwrap_or_else(PoisonError::into_inner);
                let is_done = matches!(answer, Answer::Copied(_));
                if !is_doubtful && (seen.is_some() || is_done) {
                    event(&key, Act::Read(seen), true);
                }
                if seen.is_some() {
                    event(to, Act::Write(seen), is_done);
                }
            }
            _ => {}
        }
        self.note_versions(bucket, &key, &operation, &answer, is_doubtful);
    }

    /// What an answer says of versions that stay until somebody removes them.
    fn note_versions(&mut self, bucket: usize, key: &str, operation: &Operation, answer: &Answer, is_doubtful: bool) {
        self.report.acked +=
            u64::from(matches!(answer, Answer::Written(_) | Answer::Removed | Answer::Copied(Some(_))));
        match (operation, answer) {
            (Operation::Put { content, .. } | Operation::Upload { content, .. }, Answer::Written(version))
                if bucket == VERSIONED =>
            {
                self.known.push(Known {
                    key: key.to_owned(),
                    version: *version,
                    content: content.number,
                    may_be_gone: false,
                    is_gone: false,
                });
            }
            // An older database that lacks it has nothing to remove.
            (Operation::DeleteVersion { version }, Answer::Removed) if !is_doubtful => {
                for known in self.known.iter_mut().filter(|known| known.version == *version) {
                    known.is_gone = true;
                }
            }
            (Operation::GetVersion { version, .. }, Answer::IsThere(false)) if !is_doubtful => {
                let may_be_gone = self.known.iter().any(|known| known.version == *version && known.may_be_gone);
                if !may_be_gone {
                    self.report.lost += 1;
                    self.remember(format!("version {version} of {key} was acknowledged and is not there"));
                }
            }
            _ => {}
        }
    }

    /// What was read since `moment` may be of a state that the database has gone back behind before
    /// anybody acknowledged it.
    pub(crate) fn forget_reads_since(&mut self, moment: u64) {
        for events in self.histories.values_mut() {
            events.retain(|event| {
                let rests_on_state = matches!(event.act, Act::Read(_) | Act::Refused);
                !rests_on_state || event.answered.is_none_or(|answered| answered < moment)
            });
        }
    }

    /// What a key holds by the answer of a read.
    pub(crate) fn note_read(&mut self, bucket: usize, key: &str, held: Held, asked: u64) {
        self.moment += 1;
        let event = Event { act: Act::Read(held), asked, answered: Some(self.moment) };
        self.histories.entry((bucket, key.to_owned())).or_default().push(event);
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        (0..KEYS).map(|number| format!("k-{number}")).collect()
    }
}

/// A slot that a replica's work leaves its answer in.
pub(crate) type Slot<T> = Arc<Mutex<Option<T>>>;
