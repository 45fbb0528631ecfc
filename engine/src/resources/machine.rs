//! What the engine takes from the machine that it runs on besides its stores: the time, chance, and
//! threads that may wait. A simulation stands in for all three, so that a seed decides them
//! (docs/decisions/0039-simulator.md).

use crate::error::EngineError;
use catalog::UnixMs;
use std::{
    cell::RefCell,
    rc::Rc,
    time::{SystemTime, UNIX_EPOCH},
};

/// A machine that a simulation makes up. One thread runs everything on it: work that would go to
/// other threads is done where it is asked for.
pub trait Machine {
    /// Milliseconds since 1970-01-01 UTC by its clock.
    fn now_ms(&self) -> UnixMs;
    /// Fills `bytes` from its generator.
    fn fill(&self, bytes: &mut [u8]);
}

thread_local! {
    static STAND_IN: RefCell<Option<Rc<dyn Machine>>> = const { RefCell::new(None) };
}

/// A machine stands in on this thread until this is dropped.
#[must_use = "the machine stands in no longer than this lives"]
pub struct StandIn(Option<Rc<dyn Machine>>);

/// From now on, engines on this thread run on `machine`. For simulations: in a server nothing calls
/// this, and everything comes from the operating system.
pub fn stand_in(machine: Rc<dyn Machine>) -> StandIn {
    StandIn(STAND_IN.replace(Some(machine)))
}

impl Drop for StandIn {
    fn drop(&mut self) {
        STAND_IN.set(self.0.take());
    }
}

/// Whether the machine of this thread is made up.
pub(crate) fn is_made_up() -> bool {
    STAND_IN.with_borrow(Option::is_some)
}

/// Milliseconds since 1970-01-01 UTC by this machine's clock. Orders nothing (I12).
pub(crate) fn now_ms() -> UnixMs {
    if let Some(now_ms) = STAND_IN.with_borrow(|machine| machine.as_ref().map(|machine| machine.now_ms())) {
        return now_ms;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX)
}

/// Bytes that nobody can guess.
///
/// # Errors
/// [`EngineError::Other`] when the operating system has none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], EngineError> {
    let mut bytes = [0; N];
    if STAND_IN.with_borrow(|machine| machine.as_ref().map(|machine| machine.fill(&mut bytes))).is_none() {
        crypto::fill_random(&mut bytes).map_err(|error| EngineError::Other(error.to_string()))?;
    }
    Ok(bytes)
}

/// Does `work` on a thread that may wait. `None`: it panicked, or the runtime ends.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if is_made_up() {
        return Some(work());
    }
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u8);

    impl Machine for Fixed {
        fn now_ms(&self) -> UnixMs {
            UnixMs::from(self.0)
        }

        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    #[test]
    fn a_machine_stands_in_on_its_own_thread_and_no_longer_than_it_is_asked_to() {
        let _outer = stand_in(Rc::new(Fixed(7)));
        assert_eq!((now_ms(), random::<3>().unwrap()), (7, [7; 3]));
        {
            let _inner = stand_in(Rc::new(Fixed(9)));
            assert_eq!(now_ms(), 9);
        }
        assert_eq!(now_ms(), 7);
        let elsewhere = std::thread::spawn(|| (is_made_up(), now_ms())).join().unwrap();
        assert!(!elsewhere.0 && elsewhere.1 > 1_700_000_000_000);
    }

    #[tokio::test]
    async fn work_that_waits_is_done_where_it_is_asked_for_on_a_machine_that_is_made_up() {
        let here = std::thread::current().id();
        assert_ne!(blocking(|| std::thread::current().id()).await, Some(here));
        let _made_up = stand_in(Rc::new(Fixed(1)));
        assert_eq!(blocking(|| std::thread::current().id()).await, Some(here));
    }
}
