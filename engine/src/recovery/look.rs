//! Looking whether the catalog is still the newest state of its store ([`super::currency`]).

use super::{
    anchor::Standing,
    currency::{IDLE_PER_REQUEST, REQUESTS, Refusal, TICK, damage_refusal, is_due, is_due_for_write, is_fresh},
    safety::Safety,
};
use crate::{deployment::ownership::Places, error::EngineError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

impl Safety {
    /// From now on these are held against their owner records.
    pub(crate) fn watch(&self, places: Places) {
        // Set once, when the engine is opened.
        let _ = self.currency.places.set(places);
    }

    /// The catalog was found damaged: from now on nothing is written or deleted. Only another
    /// catalog ends that.
    pub(crate) fn note_damage(&self, why: &str) {
        let is_first = self.currency.damage.send_if_modified(|damage| {
            let is_first = damage.is_none();
            damage.get_or_insert_with(|| why.to_owned());
            is_first
        });
        if is_first {
            self.metrics.catalog_damaged.set(1);
            self.currency.refuse(damage_refusal(why));
        }
    }

    /// Waits until the catalog is found damaged; why.
    pub(crate) async fn damaged(&self) -> String {
        let mut damage = self.currency.damage.subscribe();
        match damage.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// What is watched; `None` where no engine is open.
    pub(crate) fn places(&self) -> Option<&Places> {
        self.currency.places.get()
    }

    /// Lets a write go on, or says why not. Looks when the last look is too old, at most once for
    /// all who wait.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] in words for the operator.
    pub(crate) async fn may_write(&self) -> Result<(), EngineError> {
        self.currency.known().written = Some(Instant::now());
        let (lost, answers) = match self.currency.places.get() {
            Some(places) => {
                let lost = places.directory_lost().await;
                let answers = lost.is_none() && places.has_directory();
                (lost, answers)
            }
            None => (None, false),
        };
        if let Some(lost) = lost {
            self.currency.refuse(Refusal::of_place(&lost, true));
        }
        let due = is_due_for_write(&self.currency.known(), Instant::now(), answers);
        if due && let Err(error) = self.look().await {
            // A store that does not answer proves nothing: what needs it fails by itself.
            tracing::warn!(%error, "could not check whether the catalog is the newest state of its store");
        }
        self.check_not_refused()
    }

    /// Lets something be deleted that only the catalog says nobody needs, or says why not. Whatever
    /// is not proven is refused.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] in words for the operator; what the store or the catalog say
    /// when they cannot be asked.
    pub(crate) async fn may_delete(&self) -> Result<(), EngineError> {
        if !is_fresh(self.currency.known().proven) {
            self.look().await?;
        }
        self.check_not_refused()
    }

    /// Why writes are refused, if they are.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.currency.known().refusal.clone()
    }

    /// Whether writes are refused.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] in words for the operator.
    pub(crate) fn check_not_refused(&self) -> Result<(), EngineError> {
        self.refusal().map_or(Ok(()), |refusal| Err(EngineError::NotCurrent(refusal.why)))
    }

    /// In a few words that anybody may read: why writes are refused, if they are.
    pub(crate) fn refused_because(&self) -> Option<&'static str> {
        self.refusal().map(|refusal| refusal.reason.words())
    }

    /// Compares the catalog with its store, and notes what came out. Those who wait for another's
    /// look share it, whatever it found: a store that does not answer is asked once for all of
    /// them.
    async fn look(&self) -> Result<(), EngineError> {
        let asked = Instant::now();
        let _one = self.currency.looking.lock().await;
        let known = self.currency.known().clone();
        if known.looked.is_some_and(|looked| looked >= asked) {
            return match known.proven.is_some_and(|proven| proven >= asked) || known.refusal.is_some() {
                true => Ok(()),
                false => Err(EngineError::Unavailable("the look that was under way found out nothing".into())),
            };
        }
        let began = Instant::now();
        let found = self.compare().await;
        self.currency.known().looked = Some(began);
        let outcome = match &found {
            Ok(None) => "current",
            Ok(Some(_)) => "refused",
            Err(_) => "failed",
        };
        self.metrics.catalog_looks_total.with_label_values(&[outcome]).inc();
        match found? {
            None => self.currency.prove(began),
            Some(refusal) => self.currency.refuse(refusal),
        }
        Ok(())
    }

    /// Why writes are to be refused.
    async fn compare(&self) -> Result<Option<Refusal>, EngineError> {
        if let Some(why) = self.currency.damage.borrow().as_deref() {
            return Ok(Some(damage_refusal(why)));
        }
        if let Some(places) = self.currency.places.get()
            && let Some(lost) = places.lost().await?
        {
            return Ok(Some(Refusal::of_place(&lost.why, lost.is_directory)));
        }
        Ok(match self.standing().await? {
            Standing::Newest => None,
            Standing::Older { why, reason, .. } => Some(Refusal::advised(reason, &why)),
        })
    }

    /// Looks in time until `stopping`: often while there are writes, and seldom else.
    pub(crate) async fn keep_current(&self, stopping: &CancellationToken) {
        let requests = REQUESTS + self.currency.places.get().map_or(0, Places::requests);
        let idle = IDLE_PER_REQUEST * requests;
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
            let due = is_due(&self.currency.known(), Instant::now(), idle);
            if due && let Err(error) = self.look().await {
                tracing::warn!(%error, "could not check whether the catalog is the newest state of its store");
            }
        }
    }
}
