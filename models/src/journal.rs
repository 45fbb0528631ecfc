//! How the journal leaves the catalog (`engine/src/recovery/ship.rs`, `cut_journal` and
//! `trim_journal` of the catalog; decision 9): two shippers that do not know of each other, each
//! between any two of its steps for as long as it likes, and a database that goes back once.
//!
//! A document's name is the number of its first row; the catalog decides where it ends. What the
//! catalog says of itself may go back; the store's documents may not.

use crate::Protocol;
use stateright::{Model, Property};

const SHIPPERS: usize = 2;

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Journal {
    mutant: Option<Mutant>,
    rows_max: u8,
}

/// One step left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Each shipper decides for itself where a document ends.
    EndsByItself,
    /// The catalog does not say that a place has been shipped meanwhile, and gives the end of the
    /// next document instead.
    ForgetsWhatIsShipped,
    /// A document that is there already counts as ours.
    BelievesNames,
    /// A document that is there already is written again.
    Overwrites,
    /// Rows are trimmed before their document is written.
    TrimsUnwritten,
    /// What is shipped is noted without asking how far it had come.
    SkipsRows,
    /// Rows are trimmed without asking whether they are those that were written.
    TrimsUnasked,
    /// A look holds rows against documents, and not where documents end.
    LooksAtRowsAlone,
}

/// A row: its number, and whether it was committed after the database went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    seq: u8,
    late: bool,
}

/// Catalog, store and shippers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    catalog: Catalog,
    /// The standby's state: a moment that the catalog was in.
    standby: Catalog,
    went_back: bool,
    /// Documents by the order of their names.
    store: Vec<(u8, Vec<Entry>)>,
    shippers: [Shipper; SHIPPERS],
    /// A document was changed.
    changed: bool,
    /// A fork was noticed.
    refused: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Catalog {
    /// Every row ever committed, trimmed ones too.
    rows: Vec<Entry>,
    /// How many of them are trimmed.
    shipped: u8,
    /// Where the document behind `shipped` ends, when that is decided.
    cut: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Shipper {
    #[default]
    Idle,
    /// Has read the marks and the rows behind them.
    Read { after: u8, entries: Vec<Entry> },
    /// Knows where its document ends.
    Cut { entries: Vec<Entry> },
    /// Has seen that nothing has the name yet.
    Asked { entries: Vec<Entry> },
    /// The document is in the store, up to this row.
    Written { last: Entry },
    /// Wrote nothing any more: it met another history.
    Refused,
}

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Action {
    Commit,
    Replicate,
    GoBack,
    Read { shipper: usize, to: u8 },
    Decide { shipper: usize },
    Ask { shipper: usize },
    Write { shipper: usize },
    Trim { shipper: usize },
    Restart { shipper: usize },
}

impl State {
    fn document(&self, first: u8) -> Option<&Vec<Entry>> {
        self.store.iter().find(|(name, _)| *name == first).map(|(_, entries)| entries)
    }

    /// What a rebuild reads: documents in a chain from the first row on.
    fn chain(&self) -> Vec<Entry> {
        let mut chain: Vec<Entry> = Vec::new();
        while let Some(entries) = self.document(chain.len() as u8 + 1) {
            chain.extend(entries);
        }
        chain
    }

    /// Whether a shipper that begins now finds its name taken by other rows than its own.
    fn keeps_shippers_out(&self) -> bool {
        let (rows, shipped) = (&self.catalog.rows, self.catalog.shipped);
        let end = self.catalog.cut.unwrap_or(rows.len() as u8);
        let own = rows.iter().filter(|row| row.seq > shipped && row.seq <= end);
        end > shipped && self.document(shipped + 1).is_some_and(|found| !found.iter().eq(own))
    }

    fn shipped_rows(&self) -> &[Entry] {
        &self.catalog.rows[..usize::from(self.catalog.shipped).min(self.catalog.rows.len())]
    }
}

impl Journal {
    fn without(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// `cut_journal`: where the document behind `after` ends, and `None` when that place was
    /// shipped meanwhile.
    fn cut(&self, catalog: &mut Catalog, after: u8, to: u8) -> Option<u8> {
        if self.without(Mutant::EndsByItself) {
            return Some(to);
        }
        if catalog.shipped != after && !self.without(Mutant::ForgetsWhatIsShipped) {
            return None;
        }
        Some(*catalog.cut.get_or_insert(to))
    }

    /// What becomes of a shipper that finds its name taken.
    fn meets(&self, state: &mut State, found: &[Entry], entries: &[Entry]) -> Shipper {
        if let Some(last) = entries.last()
            && (found == entries || self.without(Mutant::BelievesNames))
        {
            return Shipper::Written { last: *last };
        }
        state.refused = true;
        Shipper::Refused
    }

    /// `trim_journal`: whether the catalog has this row, and so all before it.
    fn trim(&self, catalog: &mut Catalog, last: Entry) -> bool {
        if catalog.rows.get(usize::from(last.seq) - 1) != Some(&last) && !self.without(Mutant::TrimsUnasked) {
            return false;
        }
        if last.seq > catalog.shipped || self.without(Mutant::SkipsRows) {
            catalog.shipped = last.seq;
            catalog.cut = catalog.cut.filter(|cut| *cut > last.seq);
        }
        true
    }

    /// `compare_chain`: whether the catalog is the newest state of its store.
    fn look(&self, state: &State) -> bool {
        let Catalog { rows, shipped, cut } = &state.catalog;
        let (mut end, mut documents) = (*shipped, 0);
        while let Some(found) = state.document(end + 1) {
            let own = rows.get(usize::from(end)..).unwrap_or_default();
            if !own.starts_with(found) {
                return false;
            }
            end += found.len() as u8;
            documents += 1;
        }
        documents == 0 || (documents == 1 && *cut == Some(end)) || self.without(Mutant::LooksAtRowsAlone)
    }

    fn decide(&self, state: &mut State, shipper: usize) -> Option<Shipper> {
        let Shipper::Read { after, entries } = &state.shippers[shipper] else { return None };
        let (after, mut entries) = (*after, entries.clone());
        let to = entries.last()?.seq;
        let mut catalog = state.catalog.clone();
        let decided = self.cut(&mut catalog, after, to);
        state.catalog = catalog;
        let Some(end) = decided else { return Some(Shipper::Idle) };
        if end > to {
            // Rows that it has not read: it reads on.
            entries = state.catalog.rows.iter().copied().filter(|row| row.seq > after && row.seq <= end).collect();
        }
        entries.retain(|entry| entry.seq <= end);
        let next = if entries.is_empty() { Shipper::Idle } else { Shipper::Cut { entries } };
        if self.without(Mutant::TrimsUnwritten) {
            let last = *state.catalog.rows.get(usize::from(end) - 1)?;
            self.trim(&mut state.catalog, last);
        }
        Some(next)
    }

    fn ask(&self, state: &mut State, shipper: usize) -> Option<Shipper> {
        let Shipper::Cut { entries } = state.shippers[shipper].clone() else { return None };
        let first = entries.first()?.seq;
        let found = state.document(first).cloned();
        Some(match found {
            Some(found) if !self.without(Mutant::Overwrites) => self.meets(state, &found, &entries),
            _ => Shipper::Asked { entries },
        })
    }

    fn write(&self, state: &mut State, shipper: usize) -> Option<Shipper> {
        let Shipper::Asked { entries } = state.shippers[shipper].clone() else { return None };
        let (first, last) = (entries.first()?.seq, *entries.last()?);
        let found = state.document(first).cloned();
        match found {
            // The store creates exclusively: it says that the name is taken.
            Some(found) if !self.without(Mutant::Overwrites) => return Some(self.meets(state, &found, &entries)),
            Some(found) => {
                state.changed |= found != entries;
                state.store.retain(|(name, _)| *name != first);
            }
            None => {}
        }
        state.store.push((first, entries));
        state.store.sort_unstable_by_key(|(name, _)| *name);
        Some(Shipper::Written { last })
    }
}

impl Model for Journal {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (rows, shipped) = (state.catalog.rows.len() as u8, state.catalog.shipped);
        if rows < self.rows_max {
            actions.push(Action::Commit);
        }
        if !state.went_back {
            if state.standby != state.catalog {
                actions.push(Action::Replicate);
            }
            actions.push(Action::GoBack);
        }
        for (shipper, at) in state.shippers.iter().enumerate() {
            match at {
                Shipper::Idle => actions.extend((shipped + 1..=rows).map(|to| Action::Read { shipper, to })),
                Shipper::Read { .. } => actions.push(Action::Decide { shipper }),
                Shipper::Cut { .. } => actions.push(Action::Ask { shipper }),
                Shipper::Asked { .. } => actions.push(Action::Write { shipper }),
                Shipper::Written { .. } => actions.push(Action::Trim { shipper }),
                Shipper::Refused => {}
            }
            if !matches!(at, Shipper::Idle | Shipper::Refused) {
                actions.push(Action::Restart { shipper });
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Commit => {
                let seq = state.catalog.rows.len() as u8 + 1;
                state.catalog.rows.push(Entry { seq, late: state.went_back });
            }
            Action::Replicate => state.standby = state.catalog.clone(),
            Action::GoBack => {
                state.catalog = state.standby.clone();
                state.went_back = true;
            }
            Action::Read { shipper, to } => {
                let after = state.catalog.shipped;
                let rows = state.catalog.rows.iter().copied();
                let entries = rows.filter(|row| row.seq > after && row.seq <= to).collect();
                state.shippers[shipper] = Shipper::Read { after, entries };
            }
            Action::Decide { shipper } => state.shippers[shipper] = self.decide(&mut state, shipper)?,
            Action::Ask { shipper } => state.shippers[shipper] = self.ask(&mut state, shipper)?,
            Action::Write { shipper } => state.shippers[shipper] = self.write(&mut state, shipper)?,
            Action::Trim { shipper } => {
                let Shipper::Written { last } = state.shippers[shipper] else { return None };
                let is_ours = self.trim(&mut state.catalog, last);
                state.refused |= !is_ours;
                state.shippers[shipper] = if is_ours { Shipper::Idle } else { Shipper::Refused };
            }
            Action::Restart { shipper } => state.shippers[shipper] = Shipper::Idle,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is trimmed is in the store", |_, state: &State| {
                state.chain().starts_with(state.shipped_rows())
            }),
            Property::always("a document never changes", |_, state: &State| !state.changed),
            Property::always("documents follow each other without a hole or an overlap", |_, state: &State| {
                state.store.iter().map(|(_, entries)| entries.len()).sum::<usize>() == state.chain().len()
            }),
            Property::always("no fork is seen where there is none", |_, state: &State| {
                !state.refused || state.went_back
            }),
            Property::always(
                "what keeps a shipper out a look sees, so that it can be joined",
                |model: &Self, state: &State| !state.keeps_shippers_out() || !model.look(state),
            ),
            Property::always("a look finds nothing where nothing went back", |model: &Self, state: &State| {
                state.went_back || model.look(state)
            }),
            Property::sometimes("two documents are shipped", |_, state: &State| state.store.len() >= 2),
            Property::sometimes("a fork is seen", |_, state: &State| state.refused),
        ]
    }
}

impl Protocol for Journal {
    type Mutant = Mutant;
    const MUTANTS: &'static [Mutant] = &[
        Mutant::EndsByItself,
        Mutant::ForgetsWhatIsShipped,
        Mutant::BelievesNames,
        Mutant::Overwrites,
        Mutant::TrimsUnwritten,
        Mutant::SkipsRows,
        Mutant::TrimsUnasked,
        Mutant::LooksAtRowsAlone,
    ];

    fn new(whole: bool, mutant: Option<Mutant>) -> Self {
        Self { mutant, rows_max: if whole { 5 } else { 3 } }
    }
}
