//! The one memory budget (I8): every buffered byte, base window and codec job holds a permit from it.
//!
//! Permits are counted in units of 16 KiB. Idle base windows hold permits too, but give them back when somebody
//! waits: see [`MemoryBudget::on_pressure`].

use super::error::EngineError;
use crate::metrics::Metrics;
use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

const UNIT: u64 = 16 << 10;
/// How long a request waits for memory before it is told to slow down.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a request that waits looks for memory that has become idle: nobody tells when a window is used no more.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Frees idle memory and says whether it found any.
type Pressure = Box<dyn Fn() -> bool + Send + Sync>;

/// Hands out memory.
pub(super) struct MemoryBudget {
    units: Arc<Semaphore>,
    bytes_max: u64,
    pressure: OnceLock<Pressure>,
    metrics: Arc<Metrics>,
}

/// The right to hold some bytes; given back on drop.
pub(super) struct Permit {
    permit: Option<OwnedSemaphorePermit>,
    metrics: Arc<Metrics>,
}

impl MemoryBudget {
    /// A budget of `bytes_max` bytes (at least 64 MiB: less could not hold one segment's work).
    pub(super) fn new(bytes_max: u64, metrics: Arc<Metrics>) -> Self {
        let bytes_max = bytes_max.max(64 << 20);
        let units = usize::try_from(bytes_max / UNIT).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        metrics.memory_budget_bytes.with_label_values(&["limit"]).set(i64::try_from(bytes_max).unwrap_or(i64::MAX));
        Self { units: Arc::new(Semaphore::new(units)), bytes_max, pressure: OnceLock::new(), metrics }
    }

    /// Bytes of the whole budget.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Says how idle memory is freed when somebody waits. Called once.
    pub(super) fn on_pressure(&self, free_idle: Pressure) {
        let _ = self.pressure.set(free_idle);
    }

    /// Waits for `bytes` (more than the budget counts as the whole budget).
    ///
    /// # Errors
    /// [`EngineError::Busy`] after half a minute.
    pub(super) async fn acquire(&self, bytes: u64) -> Result<Permit, EngineError> {
        if let Some(permit) = self.try_acquire(bytes) {
            return Ok(permit);
        }
        let deadline = Instant::now() + WAIT_MAX;
        let mut waiting = pin!(self.units.clone().acquire_many_owned(self.units_of(bytes)));
        loop {
            match tokio::time::timeout(LOOK_AGAIN, &mut waiting).await {
                Ok(Ok(permit)) => return Ok(self.permit(permit)),
                Err(_) if Instant::now() < deadline => self.free_idle(),
                _ => return Err(EngineError::Busy("memory budget")),
            };
        }
    }

    /// `bytes` at once, freeing idle memory if need be; `None` when there is not enough.
    pub(super) fn try_acquire(&self, bytes: u64) -> Option<Permit> {
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

    /// Takes `bytes` out of the budget for good: caches with their own bound.
    pub(super) fn reserve(&self, bytes: u64) {
        if let Some(permit) = self.try_acquire(bytes) {
            std::mem::forget(permit);
        }
    }

    fn units_of(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.min(self.bytes_max).div_ceil(UNIT)).unwrap_or(u32::MAX)
    }

    fn permit(&self, permit: OwnedSemaphorePermit) -> Permit {
        self.metrics.memory_budget_bytes.with_label_values(&["used"]).add(held(&permit));
        Permit { permit: Some(permit), metrics: self.metrics.clone() }
    }
}

impl Permit {
    /// Gives back what is held beyond `bytes`.
    pub(super) fn shrink(&mut self, bytes: u64) {
        if let Some(permit) = &mut self.permit {
            let keep = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX);
            if let Some(excess) = permit.num_permits().checked_sub(keep).filter(|excess| *excess > 0)
                && let Some(given_back) = permit.split(excess)
            {
                self.metrics.memory_budget_bytes.with_label_values(&["used"]).sub(held(&given_back));
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.metrics.memory_budget_bytes.with_label_values(&["used"]).sub(held(&permit));
        }
    }
}

fn held(permit: &OwnedSemaphorePermit) -> i64 {
    i64::try_from(permit.num_permits() as u64 * UNIT).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn memory_that_becomes_idle_while_somebody_waits_is_given_to_them() {
        let budget = MemoryBudget::new(64 << 20, Metrics::new().expect("metrics"));
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
