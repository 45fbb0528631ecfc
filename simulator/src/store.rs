//! A store that fails as network stores do: errors, throttling, lost answers, requests that arrive
//! late, twice or without their sender, cut and short bodies, torn and old listings.

use crate::{
    clock::{Clock, Trace},
    dice::Dice,
    points::Points,
    weather::Mutant,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};
use storage_backends::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, PutReceipt, Result, collect};

/// Most bytes of one blob here.
const BLOB_BYTES_MAX: u64 = 64 << 20;
/// Bytes that a body comes in.
const PIECE_LEN: usize = 16 << 10;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A 500 before anything is done.
    Refused,
    /// A 503 before anything is done.
    Throttled,
    /// It is done, and the answer lost.
    LostAnswer,
    /// Its sender gives up, and it arrives later.
    Late,
    /// A body or listing breaks off with an error.
    Cut,
    /// A body breaks off without one.
    Short,
    /// A listing lacks some of what is there.
    Torn,
    /// It is done, and done again later.
    Twice,
    /// A listing is of a moment ago: it lacks what was stored since, and has what was removed.
    Old,
}

/// How often each happens, in requests of a thousand.
const RATES: [(Fault, u64); 9] = [
    (Fault::Refused, 15),
    (Fault::Throttled, 15),
    (Fault::LostAnswer, 10),
    (Fault::Late, 6),
    (Fault::Cut, 10),
    (Fault::Short, 6),
    (Fault::Torn, 30),
    (Fault::Twice, 20),
    (Fault::Old, 100),
];
/// How old an old listing is at most, in milliseconds.
const OLD_MS_MAX: u64 = 10_000;
/// How long a mutant keeps what it has taken in no safe place.
const UNFLUSHED_MS: i64 = 5_000;

/// The store's side.
pub(crate) struct Store {
    state: Mutex<State>,
    clock: Arc<Clock>,
    trace: Arc<Trace>,
    points: Arc<Points>,
    calm: Arc<AtomicBool>,
    mutant: Option<Mutant>,
    is_rough: bool,
}

struct State {
    blobs: BTreeMap<BlobName, Bytes>,
    /// Requests on their way whose senders do not wait any more, by when they arrive: what is
    /// stored, or removed.
    late: Vec<(i64, BlobName, Option<Bytes>)>,
    /// When names came to be, and those that went lately: how long they were, from when to when.
    came: BTreeMap<BlobName, i64>,
    went: VecDeque<(BlobName, u64, Range<i64>)>,
    dice: Dice,
    faults: BTreeMap<Fault, u64>,
    overwritten: u64,
    /// What a mutant has answered and not kept yet: until when, and whose it is.
    unflushed: Vec<(i64, usize, BlobName)>,
}

impl Store {
    pub(crate) fn new(
        dice: Dice,
        (clock, trace, points): (Arc<Clock>, Arc<Trace>, Arc<Points>),
        calm: Arc<AtomicBool>,
        mutant: Option<Mutant>,
        is_rough: bool,
    ) -> Arc<Self> {
        let (blobs, late, faults, came, went, unflushed) = Default::default();
        let state = State { blobs, late, came, went, dice, faults, overwritten: 0, unflushed };
        Arc::new(Self { state: Mutex::new(state), clock, trace, points, calm, mutant, is_rough })
    }

    /// How a replica reaches it.
    pub(crate) fn link(self: &Arc<Self>, replica: usize) -> Link {
        Link { store: self.clone(), replica }
    }

    /// How often blobs were replaced by other bytes (I1: never).
    pub(crate) fn overwritten(&self) -> u64 {
        self.state().overwritten
    }

    /// How often requests failed.
    pub(crate) fn faults(&self) -> u64 {
        self.state().faults.values().sum()
    }

    /// Names that begin with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> Vec<BlobName> {
        self.arrivals();
        self.state().blobs.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect()
    }

    /// A replica dies, and with it what its requests left in no safe place.
    pub(crate) fn dies(&self, replica: usize) {
        let now = self.clock.since_begin_ms();
        let mut state = self.state();
        for (until, _, name) in state.unflushed.extract_if(.., |(_, of, _)| *of == replica).collect::<Vec<_>>() {
            if now < until {
                state.remove(&name, now);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was late arrives when its time has come.
    fn arrivals(&self) {
        let now = self.clock.since_begin_ms();
        let mut state = self.state();
        let (come, later) = std::mem::take(&mut state.late).into_iter().partition(|(at, ..)| *at <= now);
        state.late = later;
        let come: Vec<(i64, BlobName, Option<Bytes>)> = come;
        for (_, name, bytes) in come {
            match bytes {
                Some(bytes) => state.take(name, bytes, now),
                None => state.remove(&name, now),
            }
        }
    }

    /// Draws what happens to a request, and how long it takes.
    fn meets(&self, replica: usize, op: &str, name: &str, possible: &[Fault]) -> (Option<Fault>, Duration) {
        self.arrivals();
        let mut state = self.state();
        let ms = if state.dice.permille(15) { state.dice.between(200, 4000) } else { state.dice.between(1, 25) };
        let number = state.dice.below(1000);
        let mut end = 0;
        let drawn = RATES.iter().find_map(|(fault, rate)| {
            end += rate;
            (number < end).then_some(*fault)
        });
        let met = drawn
            .filter(|fault| self.is_rough || !matches!(fault, Fault::Twice | Fault::Old))
            .filter(|fault| possible.contains(fault) && !self.calm.load(Ordering::Relaxed));
        if let Some(fault) = met {
            *state.faults.entry(fault).or_default() += 1;
        }
        drop(state);
        self.trace.note(&self.clock, &format!("{replica} {op} {name} {met:?}"));
        (met, Duration::from_millis(ms))
    }
}

impl State {
    /// Stores like a store that knows no conditions: what was there is replaced. Documents of
    /// recovery may be: two who write the same rows seal them differently.
    fn take(&mut self, name: BlobName, bytes: Bytes, now: i64) {
        let is_blob = name.as_str().starts_with("blobs/");
        self.came.entry(name.clone()).or_insert(now);
        let before = self.blobs.insert(name, bytes.clone());
        self.overwritten += u64::from(is_blob && before.is_some_and(|before| before != bytes));
    }

    fn remove(&mut self, name: &BlobName, now: i64) {
        let Some(bytes) = self.blobs.remove(name) else { return };
        let came = self.came.remove(name).unwrap_or(now);
        self.went.push_back((name.clone(), bytes.len() as u64, came..now));
        while self.went.front().is_some_and(|(_, _, there)| there.end + (OLD_MS_MAX as i64) < now) {
            self.went.pop_front();
        }
    }

    /// Sends it again later.
    fn repeat(&mut self, name: &BlobName, bytes: Option<Bytes>, now: i64) {
        let at = now + i64::try_from(self.dice.between(1, OLD_MS_MAX)).unwrap_or(0);
        self.late.push((at, name.clone(), bytes));
    }

    /// What there is under a prefix, or was at a moment.
    fn listed(&self, prefix: &str, at: Option<i64>) -> Vec<(BlobName, u64)> {
        let was = |name: &BlobName| at.is_none_or(|at| self.came.get(name).is_none_or(|came| *came <= at));
        let there = self.blobs.iter().filter(|(name, _)| was(name)).map(|(name, bytes)| (name, bytes.len() as u64));
        let went = self.went.iter().filter(|(.., there)| at.is_some_and(|at| there.contains(&at)));
        let mut listed: Vec<(BlobName, u64)> = there
            .chain(went.map(|(name, len, _)| (name, *len)))
            .filter(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, len)| (name.clone(), len))
            .collect();
        listed.sort();
        listed
    }
}

fn refusal(op: &str, fault: Fault) -> BackendError {
    let kind = if fault == Fault::Throttled { ErrorKind::Throttled } else { ErrorKind::Transient };
    BackendError::new(kind, format!("simulated, {op}: {fault:?}"))
}

/// A write on its way: when its sender dies, it may arrive all the same.
struct OnTheWay<'a> {
    store: &'a Store,
    what: Option<(BlobName, Bytes)>,
}

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        if let Some((name, bytes)) = self.what.take() {
            let now = self.store.clock.since_begin_ms();
            let mut state = self.store.state();
            if state.dice.permille(500) {
                let at = now + i64::try_from(state.dice.below(3000)).unwrap_or(0);
                state.late.push((at, name, Some(bytes)));
            }
        }
    }
}

/// The way from one replica to the store.
#[derive(Clone)]
pub(crate) struct Link {
    store: Arc<Store>,
    replica: usize,
}

impl Link {
    /// The request is on its way.
    async fn takes(&self, takes: Duration) {
        tokio::time::sleep(takes).await;
        self.store.points.pass().await;
    }

    async fn write(&self, name: &BlobName, bytes: Bytes) -> Result<()> {
        use Fault::{Cut, Late, LostAnswer, Refused, Throttled, Twice};
        let possible = [Refused, Throttled, LostAnswer, Late, Cut, Twice];
        let (fault, takes) = self.store.meets(self.replica, "put", name.as_str(), &possible);
        let mut way = OnTheWay { store: &self.store, what: Some((name.clone(), bytes.clone())) };
        self.takes(takes).await;
        way.what = None;
        self.arrives(name, bytes, fault);
        self.store.points.pass().await;
        fault.filter(|fault| *fault != Twice).map_or(Ok(()), |fault| Err(refusal("put", fault)))
    }

    /// What a write does to the store.
    fn arrives(&self, name: &BlobName, bytes: Bytes, fault: Option<Fault>) {
        let now = self.store.clock.since_begin_ms();
        let mut state = self.store.state();
        if self.store.mutant == Some(Mutant::EarlyAnswer) {
            state.unflushed.push((now + UNFLUSHED_MS, self.replica, name.clone()));
        }
        match fault {
            None | Some(Fault::LostAnswer) => state.take(name.clone(), bytes, now),
            Some(Fault::Twice) => {
                state.take(name.clone(), bytes.clone(), now);
                state.repeat(name, Some(bytes), now);
            }
            Some(Fault::Late) => {
                let at = now + i64::try_from(state.dice.between(1, 30_000)).unwrap_or(0);
                state.late.push((at, name.clone(), Some(bytes)));
            }
            Some(_) => {}
        }
    }

    fn absence<T>(&self, op: &str, fault: Fault) -> Result<Option<T>> {
        match self.store.mutant {
            Some(Mutant::ErrorIsAbsence) => Ok(None),
            _ => Err(refusal(op, fault)),
        }
    }
}

#[async_trait]
impl Backend for Link {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let bytes = collect(body, BLOB_BYTES_MAX).await?;
        let stored_len = bytes.len() as u64;
        if len.is_some_and(|len| len != stored_len) {
            return Err(BackendError::new(ErrorKind::Invalid, "the body has another length than announced"));
        }
        let written = self.write(name, bytes).await;
        if self.store.mutant != Some(Mutant::ErrorIsSuccess) {
            written?;
        }
        Ok(PutReceipt { stored_len })
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        let possible = [Fault::Refused, Fault::Throttled, Fault::LostAnswer, Fault::Cut, Fault::Short];
        let (fault, takes) = self.store.meets(self.replica, "get", name.as_str(), &possible);
        self.takes(takes).await;
        if let Some(fault @ (Fault::Refused | Fault::Throttled | Fault::LostAnswer)) = fault {
            return self.absence("get", fault);
        }
        let Some(bytes) = self.store.state().blobs.get(name).cloned() else { return Ok(None) };
        let range = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok()).map(|(from, to)| from..to);
        let Some(wanted) = range.filter(|range| range.start <= range.end && range.end <= bytes.len()) else {
            return Err(BackendError::new(ErrorKind::Invalid, format!("a range that does not lie inside {name}")));
        };
        let mut wanted = bytes.slice(wanted);
        let end = match fault {
            Some(fault) => {
                let kept = self.store.state().dice.place(wanted.len().max(1));
                wanted.truncate(kept);
                (fault == Fault::Cut).then(|| Err(refusal("get", fault)))
            }
            None => None,
        };
        let pieces: Vec<Result<Bytes>> = (0..wanted.len())
            .step_by(PIECE_LEN)
            .map(|at| Ok(wanted.slice(at..wanted.len().min(at + PIECE_LEN))))
            .collect();
        Ok(Some(stream::iter(pieces.into_iter().chain(end)).boxed()))
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        let possible = [Fault::Refused, Fault::Throttled, Fault::LostAnswer];
        let (fault, takes) = self.store.meets(self.replica, "head", name.as_str(), &possible);
        self.takes(takes).await;
        if let Some(fault) = fault {
            return self.absence("head", fault);
        }
        Ok(self.store.state().blobs.get(name).map(|bytes| bytes.len() as u64))
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        let possible = [Fault::Refused, Fault::Throttled, Fault::LostAnswer, Fault::Twice];
        let (fault, takes) = self.store.meets(self.replica, "delete", name.as_str(), &possible);
        self.takes(takes).await;
        let now = self.store.clock.since_begin_ms();
        if matches!(fault, None | Some(Fault::LostAnswer | Fault::Twice)) {
            self.store.state().remove(name, now);
        }
        if fault == Some(Fault::Twice) {
            self.store.state().repeat(name, None, now);
            return Ok(());
        }
        self.store.points.pass().await;
        fault.map_or(Ok(()), |fault| Err(refusal("delete", fault)))
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        let (link, prefix) = (self.clone(), prefix.to_owned());
        let listed = async move {
            let possible = [Fault::Refused, Fault::Throttled, Fault::Cut, Fault::Torn, Fault::Old];
            let (fault, takes) = link.store.meets(link.replica, "list", &prefix, &possible);
            link.takes(takes).await;
            if let Some(fault @ (Fault::Refused | Fault::Throttled)) = fault {
                return vec![Err(refusal("list", fault))];
            }
            let mut state = link.store.state();
            let now = link.store.clock.since_begin_ms();
            let age = (fault == Some(Fault::Old)).then(|| i64::try_from(state.dice.below(OLD_MS_MAX)).unwrap_or(0));
            let all = state.listed(&prefix, age.map(|age| now - age));
            let cut = (fault == Some(Fault::Cut)).then(|| state.dice.place(all.len() + 1));
            let mut items: Vec<Result<Listed>> = all
                .into_iter()
                .take(cut.unwrap_or(usize::MAX))
                .filter(|_| fault != Some(Fault::Torn) || !state.dice.permille(300))
                .map(|(name, stored_len)| Ok(Listed { name, stored_len, modified: Some(SystemTime::UNIX_EPOCH) }))
                .collect();
            items.extend(cut.map(|_| Err(refusal("list", Fault::Cut))));
            items
        };
        stream::once(listed).flat_map(stream::iter).boxed()
    }

    async fn probe(&self) -> Result<()> {
        let (fault, takes) = self.store.meets(self.replica, "probe", "", &[Fault::Refused]);
        self.takes(takes).await;
        fault.map_or(Ok(()), |fault| Err(refusal("probe", fault)))
    }
}
