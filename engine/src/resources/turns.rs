//! Whose turn it is to wait for memory: one at a time, and of the parties that wait, the one that
//! holds least comes first. So nobody gets more than a fair share while others wait, however many
//! requests it sends, and nobody is kept from what is idle.
//!
//! Max-min fairness by turns; source: Bertsekas and Gallager, Data Networks, §6.5.2.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};
use tokio::sync::oneshot;

/// For whom memory is held: a principal, or `None` for the server's own work.
pub(crate) type Party = Option<Arc<str>>;

/// Who waits, and who holds how much.
#[derive(Default)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Default)]
struct State {
    /// Somebody has the turn.
    taken: bool,
    parties: BTreeMap<Party, Standing>,
}

#[derive(Default)]
struct Standing {
    units: u64,
    waiting: VecDeque<oneshot::Sender<()>>,
}

/// The turn; passed on when dropped.
pub(crate) struct Turn(Arc<Turns>);

/// What a party holds; given back when dropped.
pub(crate) struct Holding {
    turns: Arc<Turns>,
    party: Party,
    units: u64,
}

impl Turns {
    /// The turn at once, when nobody has it and nobody waits.
    pub(crate) fn free(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        if state.taken || state.parties.values().any(|standing| !standing.waiting.is_empty()) {
            return None;
        }
        state.taken = true;
        Some(Turn(self.clone()))
    }

    /// Waits for the turn. Dropped, it waits no more.
    pub(crate) async fn wait(self: &Arc<Self>, party: &Party) -> Turn {
        let given = {
            let mut state = self.state();
            let (to, given) = oneshot::channel();
            state.parties.entry(party.clone()).or_default().waiting.push_back(to);
            if !state.taken {
                state.pass_on();
            }
            given
        };
        // What was sent is received even when the receiver was about to give up: see `Pending`.
        Pending { given, turns: self }.await
    }

    /// Counts what a party holds from now on.
    pub(crate) fn hold(self: &Arc<Self>, party: &Party, units: u64) -> Holding {
        self.state().parties.entry(party.clone()).or_default().units += units;
        Holding { turns: self.clone(), party: party.clone(), units }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives the turn to the first who waits of the party that holds least.
    fn pass_on(&mut self) {
        self.taken = false;
        loop {
            for standing in self.parties.values_mut() {
                // Those who gave up.
                while standing.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                    standing.waiting.pop_front();
                }
            }
            self.parties.retain(|_, standing| standing.units > 0 || !standing.waiting.is_empty());
            let waiting = self.parties.values_mut().filter(|standing| !standing.waiting.is_empty());
            let Some(next) = waiting.min_by_key(|standing| standing.units) else { return };
            if next.waiting.pop_front().is_some_and(|to| to.send(()).is_ok()) {
                self.taken = true;
                return;
            }
        }
    }
}

/// Somebody who waits. Who gives up in the moment in which the turn comes passes it on.
struct Pending<'t> {
    given: oneshot::Receiver<()>,
    turns: &'t Arc<Turns>,
}

impl Future for Pending<'_> {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn> {
        // The sender lies in the state, which outlives this, and goes only by sending.
        Pin::new(&mut self.given).poll(context).map(|_| Turn(self.turns.clone()))
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.given.close();
        if self.given.try_recv().is_ok() {
            self.turns.state().pass_on();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state().pass_on();
    }
}

impl Holding {
    /// Gives back so many units.
    pub(crate) fn shrink(&mut self, units: u64) {
        let units = units.min(self.units);
        self.units -= units;
        let mut state = self.turns.state();
        if let Some(standing) = state.parties.get_mut(&self.party) {
            standing.units = standing.units.saturating_sub(units);
            if standing.units == 0 && standing.waiting.is_empty() {
                state.parties.remove(&self.party);
            }
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.shrink(self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, poll};
    use std::pin::pin;

    fn party(name: &str) -> Party {
        Some(name.into())
    }

    #[tokio::test]
    async fn the_turn_goes_to_the_party_that_holds_least_and_to_its_first() {
        let turns = Arc::new(Turns::default());
        let (ann, bob) = (party("ann"), party("bob"));
        let turn = turns.free().expect("nobody waits");
        assert!(turns.free().is_none());
        let of_ann = turns.hold(&ann, 10);
        let (mut first, mut second) = (pin!(turns.wait(&ann)), pin!(turns.wait(&ann)));
        let mut third = pin!(turns.wait(&bob));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        drop(turn);
        assert!(poll!(&mut first).is_pending(), "bob holds nothing, and came last");
        let turn = third.now_or_never().expect("bob's");
        let of_bob = turns.hold(&bob, 11);
        let mut fourth = pin!(turns.wait(&bob));
        assert!(poll!(&mut fourth).is_pending());
        drop(turn);
        assert!(poll!(&mut fourth).is_pending() && poll!(&mut second).is_pending());
        drop(first.now_or_never().expect("ann holds less now, and this is her first"));
        drop(second.now_or_never().expect("ann's next"));
        drop((of_ann, of_bob));
        drop(fourth.now_or_never().expect("nobody else waits"));
        assert!(turns.free().is_some() && turns.state().parties.is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn who_gives_up_keeps_nobody_waiting() {
        let turns = Arc::new(Turns::default());
        let (ann, bob) = (party("ann"), party("bob"));
        let turn = turns.free().expect("nobody waits");
        let mut stays = pin!(turns.wait(&ann));
        {
            let mut gives_up = pin!(turns.wait(&bob));
            assert!(poll!(&mut gives_up).is_pending() && poll!(&mut stays).is_pending());
        }
        drop(turn);
        drop(stays.now_or_never().expect("the turn"));
        // One that is given the turn and is dropped before it looks.
        let turn = turns.free().expect("nobody waits");
        let mut late = Box::pin(turns.wait(&ann));
        assert!(poll!(&mut late).is_pending());
        drop(turn);
        drop(late);
        assert!(turns.free().is_some());
    }
}
