//! The one memory budget (I8): every buffered byte, base window and codec job holds a permit from
//! it.
//!
//! Permits are counted in units of 16 KiB. Idle base windows hold permits too, but give them back
//! when somebody waits: see [`MemoryBudget::on_pressure`].
//!
//! ```text
//! bytes_max ─┬─ fixed: caches, codec threads, buffers
//!            ├─ arriving: bytes of segments that clients have not filled yet; what finds no place here, nor in the idle half of work, is spooled
//!            ├─ reading: of streams that have begun, when the rest is busy
//!            ├─ small: what needs half a MiB at most, when the rest is busy
//!            └─ work: segments being encoded, windows, read-ahead, jobs
//! ```
//!
//! Who waits for the work share waits in turns: of the parties, the one that holds least of it
//! comes first (`turns.rs`), so that one principal's uploads get no more than a fair share while
//! others wait.
//!
//! What waits for a client never holds a permit that others wait for: arriving bytes are spooled
//! instead, and a stream that has begun goes on with the permit it has.

use super::turns::{Holding, Party, Turns};
use crate::{
    error::EngineError,
    metrics::{IntGauge, Metrics},
};
use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

const UNIT: u64 = 16 << 10;
/// How long a request waits for memory before it is told to slow down.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a body that has come for long waits at most.
const WAIT_OF_BODY_MAX: Duration = Duration::from_secs(600);

/// How long a body that may wait for minutes keeps its turn at a time: less than others wait behind
/// it, for whom there may be enough.
const TURN_OF_BODY_MAX: Duration = Duration::from_secs(10);
/// How long a stream waits for its own client to take the piece before: clients that stall are
/// given up long before.
const OWN_CLIENT_WAIT_MAX: Duration = Duration::from_secs(3600);
/// How often a request that waits looks for memory that has become idle: nobody tells when a window
/// is used no more.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Frees idle memory and says whether it found any.
type Pressure = Box<dyn Fn() -> bool + Send + Sync>;

/// What needs no more than this is small: part of the memory is there for nothing else, so that it
/// does not queue behind what is large.
const SMALL_MAX: u64 = 512 << 10;
/// Small needs have this part of the memory to themselves.
const SMALL_SHARE: u64 = 32;
/// Arriving bytes are charged in steps of this.
const STEP: u64 = 128 << 10;
/// Arriving bytes have this part of the memory to themselves: little, since they may also take the
/// idle half of the work share.
const ARRIVING_SHARE: u64 = 32;
/// The least that the reading share holds: a segment of a delta with what it needs.
const READING_MIN: u64 = 9 << 20;

/// Hands out memory.
pub(crate) struct MemoryBudget {
    units: Arc<Semaphore>,
    turns: Arc<Turns>,
    /// Units that are not set aside for something.
    work_units: OnceLock<usize>,
    arriving: Arc<Semaphore>,
    small: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    reading_bytes: OnceLock<u64>,
    bytes_max: u64,
    pressure: OnceLock<Pressure>,
    metrics: Arc<Metrics>,
}

/// The right to hold some bytes; given back on drop.
pub(crate) struct Permit {
    permit: Option<OwnedSemaphorePermit>,
    /// Whose it is, where that was said.
    holding: Option<Holding>,
    /// The stream's own, for as long as this piece of it lives.
    _slot: Option<OwnedMutexGuard<Option<Box<Permit>>>>,
    metrics: Arc<Metrics>,
}

/// The right of a stream that has begun to hold one piece at a time, for as long as it lives.
#[derive(Default)]
pub(crate) struct Slot {
    permit: Arc<Mutex<Option<Box<Permit>>>>,
}

/// Bytes of a segment that is not full yet.
pub(crate) struct Arriving {
    share: Arc<Semaphore>,
    work: Arc<Semaphore>,
    /// So many units of the work share are left alone.
    work_kept: usize,
    of_share: Option<OwnedSemaphorePermit>,
    of_work: Option<OwnedSemaphorePermit>,
    metrics: Arc<Metrics>,
}

impl MemoryBudget {
    /// A budget of `bytes_max` bytes (at least 64 MiB: less could not hold one segment's work).
    pub(crate) fn new(bytes_max: u64, metrics: Arc<Metrics>) -> Self {
        let bytes_max = bytes_max.max(64 << 20);
        let units = usize::try_from(bytes_max / UNIT).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        metrics.memory_budget_bytes.with_label_values(&["limit"]).set(i64::try_from(bytes_max).unwrap_or(i64::MAX));
        Self {
            units: Arc::new(Semaphore::new(units)),
            turns: Arc::default(),
            work_units: OnceLock::new(),
            arriving: Arc::new(Semaphore::new(0)),
            small: Arc::new(Semaphore::new(0)),
            reading: Arc::new(Semaphore::new(0)),
            reading_bytes: OnceLock::new(),
            bytes_max,
            pressure: OnceLock::new(),
            metrics,
        }
    }

    /// Takes `fixed` bytes out of the budget for good, for what has a bound of its own, and sets
    /// shares of the rest aside for bodies that arrive and for streams that have begun. Called
    /// once.
    pub(crate) fn divide(&self, fixed: u64) {
        let rest = self.bytes_max.saturating_sub(fixed);
        let (arriving, reading) = (rest / ARRIVING_SHARE, (rest / 8).max(READING_MIN));
        self.metrics.memory_budget_bytes.with_label_values(&["used"]).add(self.set_aside(fixed));
        // A share is used when somebody takes of it.
        let small = rest / SMALL_SHARE;
        self.set_aside(arriving + reading + small);
        let units = |bytes: u64| usize::try_from(bytes / UNIT).unwrap_or(0);
        self.arriving.add_permits(units(arriving));
        self.reading.add_permits(units(reading));
        self.small.add_permits(units(small));
        // Set once, when the engine is opened.
        let _ = self.reading_bytes.set(reading);
        let _ = self.work_units.set(self.units.available_permits());
    }

    /// A place for bytes that arrive, empty.
    pub(crate) fn arriving(&self) -> Arriving {
        Arriving {
            share: self.arriving.clone(),
            work: self.units.clone(),
            work_kept: self.work_units.get().copied().unwrap_or(usize::MAX) / 2,
            of_share: None,
            of_work: None,
            metrics: self.metrics.clone(),
        }
    }

    /// `bytes` for the piece of a stream that its client waits for. The first one waits for memory,
    /// for `bytes_max` of it, and the stream keeps what it got; later ones wait for nobody but the
    /// stream's own client.
    ///
    /// # Errors
    /// [`EngineError::Busy`] after half a minute, for a stream that has not begun.
    pub(crate) async fn acquire_for(&self, slot: &Slot, bytes: u64, bytes_max: u64) -> Result<Permit, EngineError> {
        if slot.permit.try_lock().is_ok_and(|held| held.is_some())
            && let Some(permit) = self.try_acquire(bytes)
        {
            return Ok(permit);
        }
        let busy = |_| EngineError::Busy("memory budget");
        let mut held =
            tokio::time::timeout(OWN_CLIENT_WAIT_MAX, slot.permit.clone().lock_owned()).await.map_err(busy)?;
        let enough =
            |permit: &Permit| permit.permit.as_ref().is_some_and(|held| held.num_permits() as u64 * UNIT >= bytes);
        if !held.as_deref().is_some_and(enough) {
            // One that is too small goes back first: nobody waits with a permit in hand.
            *held = None;
            *held = Some(Box::new(self.acquire_reading(bytes.max(bytes_max)).await?));
        }
        Ok(Permit { permit: None, holding: None, _slot: Some(held), metrics: self.metrics.clone() })
    }

    /// While less than half of the work share is taken, from there; otherwise from the reading
    /// share, which nothing else may take.
    async fn acquire_reading(&self, bytes: u64) -> Result<Permit, EngineError> {
        let work = self.work_units.get().copied().unwrap_or(0);
        if self.units.available_permits() > work / 2
            && let Some(permit) = self.try_acquire(bytes)
        {
            return Ok(permit);
        }
        let share = self.reading_bytes.get().copied().unwrap_or(0);
        if share == 0 {
            return self.acquire(bytes).await;
        }
        let _waits = Waits::new(&self.metrics.memory_waiting);
        let units = self.units_of(bytes.min(share)).min(u32::try_from(share / UNIT).unwrap_or(u32::MAX));
        let waited = tokio::time::timeout(WAIT_MAX, self.reading.clone().acquire_many_owned(units)).await;
        match waited {
            Ok(Ok(permit)) => Ok(self.permit(permit)),
            _ => Err(EngineError::Busy("memory budget")),
        }
    }

    /// Bytes that are not set aside for something: for segments, windows, read-ahead, jobs.
    pub(crate) fn work_bytes(&self) -> u64 {
        self.work_units.get().map_or(self.bytes_max, |units| *units as u64 * UNIT)
    }

    /// Bytes of the whole budget.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Says how idle memory is freed when somebody waits. Called once.
    pub(crate) fn on_pressure(&self, free_idle: Pressure) {
        let _ = self.pressure.set(free_idle);
    }

    /// Waits for `bytes` (more than the budget counts as the whole budget) for the server's own
    /// work.
    ///
    /// # Errors
    /// [`EngineError::Busy`] after half a minute.
    pub(crate) async fn acquire(&self, bytes: u64) -> Result<Permit, EngineError> {
        self.acquire_as(&None, bytes).await
    }

    /// Waits for `bytes` for a party. While several wait, the one that holds least comes first.
    ///
    /// # Errors
    /// [`EngineError::Busy`] after half a minute.
    pub(crate) async fn acquire_as(&self, party: &Party, bytes: u64) -> Result<Permit, EngineError> {
        self.acquire_within(party, bytes, WAIT_MAX).await
    }

    /// The same for a segment of a body that began to come at `began`: it waits as long again, so
    /// that what a client sent for minutes is not in vain because many segments fill at once.
    ///
    /// # Errors
    /// [`EngineError::Busy`] after half a minute, or as long as the body has come, ten minutes at
    /// most.
    pub(crate) async fn acquire_for_body(
        &self,
        party: &Party,
        bytes: u64,
        began: Instant,
    ) -> Result<Permit, EngineError> {
        self.acquire_within(party, bytes, began.elapsed().clamp(WAIT_MAX, WAIT_OF_BODY_MAX)).await
    }

    async fn acquire_within(&self, party: &Party, bytes: u64, patience: Duration) -> Result<Permit, EngineError> {
        // Held only until the permit is there: it keeps those who come at once from overtaking
        // those who wait.
        let turn = self.turns.free();
        if turn.is_some()
            && let Some(permit) = self.try_acquire(bytes)
        {
            return Ok(self.held_by(party, permit));
        }
        if bytes <= SMALL_MAX
            && let Ok(permit) = self.small.clone().try_acquire_many_owned(self.units_of(bytes))
        {
            return Ok(self.permit(permit));
        }
        let _waits = Waits::new(&self.metrics.memory_waiting);
        let deadline = Instant::now() + patience;
        let turn_max = if patience > WAIT_MAX { TURN_OF_BODY_MAX } else { patience };
        let mut free = turn;
        loop {
            let turn = match free.take() {
                Some(turn) => turn,
                None => tokio::time::timeout_at(deadline, self.turns.wait(party))
                    .await
                    .map_err(|_| EngineError::Busy("memory budget"))?,
            };
            let until = deadline.min(Instant::now() + turn_max);
            if let Some(permit) = self.acquire_until(bytes, until).await? {
                return Ok(self.held_by(party, permit));
            }
            drop(turn);
            if Instant::now() >= deadline {
                return Err(EngineError::Busy("memory budget"));
            }
        }
    }

    /// Waits in the turn of whoever asks; `None` when it has not come by then.
    async fn acquire_until(&self, bytes: u64, until: Instant) -> Result<Option<Permit>, EngineError> {
        let mut waiting = pin!(self.units.clone().acquire_many_owned(self.units_of(bytes)));
        loop {
            match tokio::time::timeout(LOOK_AGAIN, &mut waiting).await {
                Ok(Ok(permit)) => return Ok(Some(self.permit(permit))),
                Ok(Err(_)) => return Err(EngineError::Busy("memory budget")),
                Err(_) if Instant::now() < until => self.free_idle(),
                Err(_) => return Ok(None),
            };
        }
    }

    /// `bytes` at once, freeing idle memory if need be; `None` when there is not enough.
    pub(crate) fn try_acquire(&self, bytes: u64) -> Option<Permit> {
        let units = self.units_of(bytes);
        loop {
            if let Ok(permit) = self.units.clone().try_acquire_many_owned(units) {
                return Some(self.permit(permit));
            }
            if !self.free_idle() {
                return None;
            }
        }
    }

    fn free_idle(&self) -> bool {
        self.pressure.get().is_some_and(|free_idle| free_idle())
    }

    /// Takes `bytes` out of the work share for good; the bytes that it took.
    fn set_aside(&self, bytes: u64) -> i64 {
        let units = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX);
        i64::try_from(self.units.forget_permits(units) as u64 * UNIT).unwrap_or(i64::MAX)
    }

    fn units_of(&self, bytes: u64) -> u32 {
        let all = self.work_units.get().copied().unwrap_or(usize::MAX).max(1);
        u32::try_from(bytes.min(self.bytes_max).div_ceil(UNIT).min(all as u64)).unwrap_or(u32::MAX)
    }

    fn permit(&self, permit: OwnedSemaphorePermit) -> Permit {
        self.metrics.memory_budget_bytes.with_label_values(&["used"]).add(held(&permit));
        Permit { permit: Some(permit), holding: None, _slot: None, metrics: self.metrics.clone() }
    }

    fn held_by(&self, party: &Party, mut permit: Permit) -> Permit {
        let units = permit.permit.as_ref().map_or(0, |permit| permit.num_permits() as u64);
        permit.holding = Some(self.turns.hold(party, units));
        permit
    }
}

impl Permit {
    /// Gives back what is held beyond `bytes`.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        if let Some(permit) = &mut self.permit {
            let keep = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX);
            if let Some(excess) = permit.num_permits().checked_sub(keep).filter(|excess| *excess > 0)
                && let Some(given_back) = permit.split(excess)
            {
                self.metrics.memory_budget_bytes.with_label_values(&["used"]).sub(held(&given_back));
                if let Some(holding) = &mut self.holding {
                    holding.shrink(given_back.num_permits() as u64);
                }
            }
        }
    }
}

/// Somebody who waits, for as long as it lives.
struct Waits<'a>(&'a IntGauge);

impl<'a> Waits<'a> {
    fn new(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.metrics.memory_budget_bytes.with_label_values(&["used"]).sub(held(&permit));
        }
    }
}

impl Arriving {
    /// Makes place for `bytes` in all, in the share of arriving bytes or in the half of the work
    /// share that may lie idle; false when there is none, and then there is no more than before.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let units =
            |permit: &Option<OwnedSemaphorePermit>| permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let has = (units(&self.of_share) + units(&self.of_work)) as u64 * UNIT;
        if bytes <= has {
            return true;
        }
        let units = u32::try_from((bytes - has).next_multiple_of(STEP) / UNIT).unwrap_or(u32::MAX);
        let (more, place) = match self.share.clone().try_acquire_many_owned(units) {
            Ok(more) => (more, &mut self.of_share),
            Err(_) if self.work.available_permits() < self.work_kept.saturating_add(units as usize) => return false,
            Err(_) => match self.work.clone().try_acquire_many_owned(units) {
                Ok(more) => (more, &mut self.of_work),
                Err(_) => return false,
            },
        };
        self.metrics.memory_budget_bytes.with_label_values(&["used"]).add(held(&more));
        match place {
            Some(permit) => permit.merge(more),
            None => *place = Some(more),
        }
        true
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self) {
        for permit in [self.of_share.take(), self.of_work.take()].into_iter().flatten() {
            self.metrics.memory_budget_bytes.with_label_values(&["used"]).sub(held(&permit));
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.clear();
    }
}

fn held(permit: &OwnedSemaphorePermit) -> i64 {
    i64::try_from(permit.num_permits() as u64 * UNIT).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const MIB: u64 = 1 << 20;
    /// Of 64 MiB, 24 taken for good: 1.25 for arriving bytes, 9 for streams, 1.25 for small needs,
    /// 28.5 for work.
    fn divided() -> MemoryBudget {
        let budget = MemoryBudget::new(64 * MIB, Metrics::new());
        budget.divide(24 * MIB);
        budget
    }

    #[test]
    fn arriving_bytes_are_charged_as_they_come_and_leave_half_of_the_work_share_to_others() {
        let budget = divided();
        let (mut one, mut other) = (budget.arriving(), budget.arriving());
        assert!(one.grow_to(1) && one.grow_to(5 * MIB / 4 - STEP));
        assert!(other.grow_to(STEP) && other.grow_to(14 * MIB) && !other.grow_to(16 * MIB), "it is spooled");
        assert!(budget.try_acquire(14 * MIB).is_some() && budget.try_acquire(15 * MIB).is_none());
        one.clear();
        other.clear();
        let work = budget.try_acquire(14 * MIB).expect("free again");
        assert!(other.grow_to(5 * MIB / 4) && !other.grow_to(2 * MIB), "the share of its own is left");
        drop(work);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_has_begun_goes_on_while_all_other_memory_is_taken() {
        let budget = divided();
        let work = budget.acquire(30 * MIB).await.expect("all of it");
        let (begun, late) = (Slot::default(), Slot::default());
        let first = budget.acquire_for(&begun, MIB, 9 * MIB).await.expect("of the reading share");
        assert!(budget.acquire_for(&late, MIB, MIB).await.is_err(), "one that has not begun waits, and is told so");
        drop(first);
        for bytes in [8 * MIB, MIB, 9 * MIB] {
            budget.acquire_for(&begun, bytes, 9 * MIB).await.expect("its own");
        }
        drop(begun);
        budget.acquire_for(&late, MIB, MIB).await.expect("now there is memory");
        drop(work);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_small_does_not_queue_behind_what_is_large_and_who_waits_is_counted() {
        let budget = divided();
        let work = budget.acquire(1 << 40).await.expect("all of it");
        {
            let mut large = pin!(budget.acquire(MIB));
            assert!(futures::poll!(&mut large).is_pending());
            assert_eq!(budget.metrics.memory_waiting.get(), 1);
            let small = [budget.acquire(SMALL_MAX).await, budget.acquire(SMALL_MAX).await];
            assert!(small.iter().all(Result::is_ok));
            assert!(budget.acquire(SMALL_MAX).await.is_err(), "the share is taken, too");
        }
        assert_eq!(budget.metrics.memory_waiting.get(), 0, "who gave up waits no more");
        drop(work);
    }

    #[tokio::test(start_paused = true)]
    async fn one_partys_many_uploads_take_all_that_is_idle_and_leave_half_to_another_who_comes() {
        let budget = Arc::new(divided());
        let parties: [Party; 2] = [Some("many".into()), Some("few".into())];
        let [many, few] = &parties;
        let mut held: Vec<(Permit, bool)> = Vec::new();
        while held.len() < 28 {
            held.push((budget.acquire_as(many, MIB).await.expect("idle"), true));
        }
        let (to, mut got) = tokio::sync::mpsc::unbounded_channel();
        for (party, count) in [(many, 100), (few, 40)] {
            for _ in 0..count {
                let (budget, party, to) = (budget.clone(), party.clone(), to.clone());
                let is_many = party.as_deref() == Some("many");
                tokio::spawn(async move { drop(to.send((budget.acquire_as(&party, MIB).await, is_many))) });
            }
        }
        let mut of_few = Vec::new();
        for round in 0..60 {
            // The oldest of whoever it is ends, and the next one begins.
            drop(held.remove(0));
            let (permit, is_many) = got.recv().await.expect("somebody waits");
            held.push((permit.expect("in time"), is_many));
            if round >= 30 {
                of_few.push(held.iter().filter(|(_, is_many)| !is_many).count());
            }
        }
        assert!(of_few.iter().all(|count| (13..=15).contains(count)), "{of_few:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_has_come_for_minutes_waits_as_long_again_and_not_for_ever() {
        let budget = divided();
        let work = budget.acquire(1 << 40).await.expect("all of it");
        for (came_s, waits_s) in [(0, 30), (300, 300), (7200, 600)] {
            let began = Instant::now();
            tokio::time::advance(Duration::from_secs(came_s)).await;
            let asked = Instant::now();
            assert!(budget.acquire_for_body(&None, MIB, began).await.is_err());
            assert_eq!(asked.elapsed().as_secs(), waits_s);
        }
        drop(work);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_waits_for_minutes_keeps_nobody_from_what_is_free() {
        let budget = Arc::new(divided());
        let _most = budget.acquire_as(&Some("many".into()), 24 * MIB).await.expect("idle");
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(300)).await;
        let waits = {
            let budget = budget.clone();
            tokio::spawn(async move { budget.acquire_for_body(&None, 20 * MIB, began).await })
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        let asked = Instant::now();
        assert!(budget.acquire_as(&Some("few".into()), MIB).await.is_ok());
        assert!(asked.elapsed() < WAIT_MAX);
        assert!(!waits.is_finished());
        waits.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_large_is_not_overtaken_by_what_comes_later() {
        let budget = Arc::new(divided());
        let all = budget.acquire_as(&Some("many".into()), 28 * MIB).await.expect("idle");
        let asks = |party: &'static str, mib: u64| {
            let budget = budget.clone();
            tokio::spawn(async move { budget.acquire_as(&Some(party.into()), mib * MIB).await })
        };
        let waits = asks("few", 20);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let later = asks("many", 10);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(all);
        let large = waits.await.expect("no panic").expect("in time");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!later.is_finished(), "8 MiB are left");
        drop(large);
        assert!(later.await.expect("no panic").is_ok());
    }

    #[tokio::test]
    async fn more_than_there_is_counts_as_all_of_it() {
        let budget = divided();
        drop(budget.acquire(1 << 40).await.expect("all of it"));
        drop(budget.acquire_for(&Slot::default(), 1 << 40, 0).await.expect("all of it"));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_becomes_idle_while_somebody_waits_is_given_to_them() {
        let budget = MemoryBudget::new(64 << 20, Metrics::new());
        let cached = Arc::new(Mutex::new(None));
        let in_cache = cached.clone();
        budget.on_pressure(Box::new(move || in_cache.lock().expect("not poisoned").take().is_some()));
        let used = budget.acquire(64 << 20).await.expect("all of it");
        let waits = budget.acquire(1 << 20);
        let becomes_idle = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            *cached.lock().expect("not poisoned") = Some(used);
        };
        let (got, ()) = tokio::join!(waits, becomes_idle);
        assert!(got.is_ok());
    }
}
