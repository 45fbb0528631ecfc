//! What lies between an engine and the database, and the machine that the engine runs on.

use crate::{
    clock::{Clock, Trace},
    dice::{Dice, SharedDice},
    points::Points,
};
use async_trait::async_trait;
use catalog::{Call, CatalogError, UnixMs, Weather};
use engine::Machine;
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

/// A bug on purpose, which a run has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Changes are acknowledged before they are in the store's journal (I11).
    ForgottenGate,
    /// A write to the store that failed counts as done (E14).
    ErrorIsSuccess,
    /// A read of the store that failed counts as absence (E2, I10).
    ErrorIsAbsence,
    /// A write to the store counts as done before it is, as on a disk that is not flushed (I9).
    EarlyAnswer,
}

impl Mutant {
    /// Every bug.
    pub const ALL: [Self; 4] = [Self::ForgottenGate, Self::ErrorIsSuccess, Self::ErrorIsAbsence, Self::EarlyAnswer];
}

/// The way to the database.
pub(crate) struct Way {
    pub(crate) replica: usize,
    pub(crate) clock: Arc<Clock>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) points: Arc<Points>,
    pub(crate) dice: SharedDice,
    /// Nothing goes wrong while this is set.
    pub(crate) calm: Arc<AtomicBool>,
    /// By how much the replica's clock goes wrong.
    pub(crate) skew_ms: Arc<AtomicI64>,
    pub(crate) mutant: Option<Mutant>,
}

impl Way {
    /// Whether something that happens so often happens now.
    fn happens(&self, permille: u64) -> bool {
        self.dice.throw(|dice| dice.permille(permille)) && !self.calm.load(Ordering::Relaxed)
    }

    async fn takes_a_moment(&self) {
        let ms = self.dice.throw(|dice| if dice.permille(20) { dice.between(20, 400) } else { dice.below(4) });
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

#[async_trait]
impl Weather for Way {
    async fn before(&self, call: Call) -> catalog::Result<()> {
        self.takes_a_moment().await;
        self.points.pass().await;
        let fails = self.happens(8);
        self.trace
            .note(&self.clock, &format!("{} {call:?} {}", self.replica, if fails { "is cut" } else { "arrives" }));
        match fails {
            true => Err(CatalogError::Unavailable("the simulated connection broke before the call".into())),
            false => Ok(()),
        }
    }

    async fn after(&self, call: Call, is_changed: bool) -> catalog::Result<()> {
        self.trace.note(&self.clock, &format!("{} {call:?} changed {is_changed}", self.replica));
        self.points.pass().await;
        self.takes_a_moment().await;
        match (self.happens(8), call) {
            (false, _) => Ok(()),
            (true, Call::Read) => Err(CatalogError::Unavailable("the simulated connection broke".into())),
            (true, Call::Change) => Err(CatalogError::Unknown("the simulated connection broke".into())),
        }
    }

    fn now_ms(&self) -> UnixMs {
        self.clock.now_ms() + self.skew_ms.load(Ordering::Relaxed)
    }

    fn database_ms(&self) -> UnixMs {
        self.clock.now_ms()
    }

    fn forgets_the_gate(&self) -> bool {
        self.mutant == Some(Mutant::ForgottenGate)
    }
}

/// The machine of one replica: its clock goes wrong, its chance is the seed's.
pub(crate) struct Made {
    pub(crate) clock: Arc<Clock>,
    pub(crate) skew_ms: Arc<AtomicI64>,
    pub(crate) dice: RefCell<Dice>,
}

impl Machine for Made {
    fn now_ms(&self) -> UnixMs {
        self.clock.now_ms() + self.skew_ms.load(Ordering::Relaxed)
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.dice.borrow_mut().fill(bytes);
    }
}
