//! The time of a simulation, and what happened when.

use sha2::{Digest, Sha256};
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// 2026-01-01 UTC.
const BEGIN_MS: i64 = 1_767_225_600_000;

/// The time that all share, in milliseconds. It stands while nobody runs; within a turn it follows
/// the clock of the runtime whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    turn_ms: AtomicI64,
    began: Mutex<Option<Instant>>,
}

impl Clock {
    /// Milliseconds since the simulation began.
    pub(crate) fn since_begin_ms(&self) -> i64 {
        let began = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let within = began.map_or(Duration::ZERO, |began| began.elapsed());
        self.turn_ms.load(Ordering::Relaxed) + i64::try_from(within.as_millis()).unwrap_or(0)
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub(crate) fn now_ms(&self) -> i64 {
        BEGIN_MS + self.since_begin_ms()
    }

    /// A runtime's turn begins, at this moment of its own clock; `None`: it ends.
    pub(crate) fn turn(&self, began: Option<Instant>) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = began;
    }

    /// Everybody had a turn of `by`.
    pub(crate) fn advance(&self, by: Duration) {
        self.turn_ms.fetch_add(i64::try_from(by.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Everything that happened, in order, as one digest.
#[derive(Default)]
pub(crate) struct Trace(Mutex<Events>);

#[derive(Default)]
struct Events {
    digest: Sha256,
    count: u64,
    /// Kept to be looked at.
    lines: Option<Vec<String>>,
}

impl Trace {
    /// One that keeps its lines.
    pub(crate) fn kept() -> Self {
        Self(Mutex::new(Events { lines: Some(Vec::new()), ..Events::default() }))
    }

    /// Something happened.
    pub(crate) fn note(&self, clock: &Clock, what: &str) {
        let line = format!("{} {what}\n", clock.since_begin_ms());
        let mut events = self.events();
        events.digest.update(line.as_bytes());
        events.count += 1;
        if let Some(lines) = &mut events.lines {
            lines.push(line);
        }
    }

    /// How much happened.
    pub(crate) fn count(&self) -> u64 {
        self.events().count
    }

    /// Its digest in hex.
    pub(crate) fn hash(&self) -> String {
        hex::encode(&self.events().digest.clone().finalize()[..16])
    }

    /// Its lines, if they were kept.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.events().lines.clone().unwrap_or_default()
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
