//! What may be deleted (`engine/src/background/collect.rs`, `sweep.rs`; decision 21): writers that
//! upload and commit, readers with pins, a database that fails over to a standby which lags, and
//! the collector between its look and its deletion.
//!
//! A catalog is current when the journal in the store is the beginning of its history. Deletions of
//! files and commits of rows are steps of their own, so that anything may come between them.

use crate::{
    Protocol,
    history::{Blob, Mutation, Rows, Set, bit, members},
};
use stateright::{Model, Property};

const WRITERS: u8 = 2;

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Collector {
    mutant: Option<Mutant>,
    keys: u8,
    mutations_max: usize,
    blobs_max: u8,
}

/// One step left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Deletes on the catalog's word, without asking the store's journal.
    BelievesTheCatalog,
    /// Purges before the deletion is in the shipped journal.
    PurgesUnshipped,
    /// Does not ask whether somebody reads it.
    IgnoresPins,
    /// Looks through the epoch of a writer that may still commit.
    SweepsOpenEpochs,
    /// A commit does not ask whether its writer's epoch is closed.
    CommitsInClosedEpochs,
    /// A commit does not ask whether what it is a duplicate of has died meanwhile.
    LinksTheDead,
    /// Empties the trash before the list is in the shipped journal.
    EmptiesUnshipped,
    /// Empties the trash under a reader.
    IgnoresPinsOfTrash,
    /// A writer that was silent commits without a look at the store.
    WakesUnasked,
}

/// Everything there is at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The database.
    catalog: Vec<Mutation>,
    /// The journal in the store.
    shipped: Vec<Mutation>,
    /// Blobs whose bytes are in the store.
    files: Set,
    /// Blob numbers given so far, and who took each.
    given: u8,
    by_second: Set,
    /// What each writer has uploaded and not committed.
    uploads: [Option<Blob>; WRITERS as usize],
    /// What a writer has found its content to be a duplicate of.
    duplicate: Option<Blob>,
    /// What is being read.
    pinned: Set,
    /// What the collector has looked at and is about to delete.
    looked: Option<Look>,
    has_failed_over: bool,
    deleted: Deleted,
}

/// Why a file is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Look {
    Dead(Blob),
    Trash(Blob),
}

/// Which ways of deleting were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Deleted {
    dead: bool,
    trash: bool,
}

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Action {
    Upload { writer: u8 },
    Commit { writer: u8, key: u8 },
    GiveUp { writer: u8 },
    CloseEpoch { writer: u8 },
    FindDuplicate { blob: u8 },
    CommitDuplicate { key: u8 },
    Delete { key: u8 },
    Ship,
    FailOver { keeps: usize },
    BeginToRead { blob: u8 },
    EndReading { blob: u8 },
    LookAtTombstone { blob: u8 },
    Sweep { writer: u8 },
    LookAtTrash { blob: u8 },
    DeleteFile,
    PurgeRow { blob: u8 },
}

impl State {
    fn rows(&self) -> Rows {
        Rows::of(&self.catalog)
    }

    /// What a rebuild from the store would give.
    fn recorded(&self) -> Rows {
        Rows::of(&self.shipped)
    }

    fn is_current(&self) -> bool {
        self.catalog.starts_with(&self.shipped)
    }

    fn blobs_of(&self, writer: u8) -> Set {
        let all = bit(self.given).wrapping_sub(1);
        if writer == 0 { all & !self.by_second } else { all & self.by_second }
    }

    /// Blobs that one history needs and the other has not seen go.
    fn needed(&self) -> Set {
        let (rows, recorded) = (self.rows(), self.recorded());
        (rows.live & !recorded.gone()) | recorded.live
    }
}

impl Collector {
    fn without(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether the collector may delete anything now.
    fn may_delete(&self, state: &State) -> bool {
        state.is_current() || self.without(Mutant::BelievesTheCatalog)
    }

    fn may_purge(&self, state: &State, blob: Blob) -> bool {
        let shipped = state.recorded().gone() & bit(blob) != 0
            || self.without(Mutant::PurgesUnshipped)
            || self.without(Mutant::BelievesTheCatalog);
        let unread = state.pinned & bit(blob) == 0 || self.without(Mutant::IgnoresPins);
        self.may_delete(state) && shipped && unread && state.rows().dead() & state.files & bit(blob) != 0
    }

    /// Files that neither the catalog nor the journal in the store names.
    fn unnamed(&self, state: &State) -> Set {
        let recorded = if self.without(Mutant::BelievesTheCatalog) { 0 } else { state.recorded().known };
        state.files & !state.rows().known & !recorded
    }

    fn may_sweep(&self, state: &State, writer: u8) -> bool {
        let closed = state.rows().closed & bit(writer) != 0 || self.without(Mutant::SweepsOpenEpochs);
        closed && self.may_delete(state) && self.swept(state, writer) != 0
    }

    fn swept(&self, state: &State, writer: u8) -> Set {
        self.unnamed(state) & state.blobs_of(writer) & !state.rows().trash
    }

    /// An epoch that somebody closed is one whose writer was silent, and a process looks at the
    /// store before its first write after a silence.
    fn may_commit(&self, state: &State, writer: u8) -> bool {
        let was_silent = state.recorded().closed & bit(writer) != 0;
        let looked = !was_silent || state.is_current() || self.without(Mutant::WakesUnasked);
        state.rows().closed & bit(writer) == 0 && looked || self.without(Mutant::CommitsInClosedEpochs)
    }

    /// Files on the list that may go: nobody reads them, and the list is in the store.
    fn may_empty(&self, state: &State) -> Set {
        let unasked = self.without(Mutant::EmptiesUnshipped) || self.without(Mutant::BelievesTheCatalog);
        let listed = if unasked { state.rows().trash } else { state.recorded().trash };
        let pinned = if self.without(Mutant::IgnoresPinsOfTrash) { 0 } else { state.pinned };
        listed & state.rows().trash & self.unnamed(state) & !pinned
    }

    fn may_link(&self, state: &State, blob: Blob) -> bool {
        state.rows().live & bit(blob) != 0 || self.without(Mutant::LinksTheDead)
    }

    fn clients(&self, state: &State, actions: &mut Vec<Action>) {
        let has_room = state.catalog.len() < self.mutations_max;
        let rows = state.rows();
        for writer in 0..WRITERS {
            match state.uploads[usize::from(writer)] {
                None if state.given < self.blobs_max && rows.closed & bit(writer) == 0 => {
                    actions.push(Action::Upload { writer });
                }
                None => {}
                Some(_) => {
                    actions.push(Action::GiveUp { writer });
                    if has_room && self.may_commit(state, writer) {
                        actions.extend((0..self.keys).map(|key| Action::Commit { writer, key }));
                    }
                }
            }
            if has_room && rows.closed & bit(writer) == 0 {
                actions.push(Action::CloseEpoch { writer });
            }
        }
        match state.duplicate {
            None => actions.extend(members(rows.live).map(|blob| Action::FindDuplicate { blob })),
            Some(blob) if has_room && self.may_link(state, blob) => {
                actions.extend((0..self.keys).map(|key| Action::CommitDuplicate { key }));
            }
            Some(_) => {}
        }
        if has_room && rows.live != 0 {
            actions.extend((0..self.keys).map(|key| Action::Delete { key }));
        }
        let claimed = state.looked.map_or(0, |look| bit(look.blob()));
        let readable = rows.live & state.files & !state.pinned & !claimed;
        actions.extend(members(readable).map(|blob| Action::BeginToRead { blob }));
        actions.extend(members(state.pinned).map(|blob| Action::EndReading { blob }));
    }

    fn collection(&self, state: &State, actions: &mut Vec<Action>) {
        let has_room = state.catalog.len() < self.mutations_max;
        let rows = state.rows();
        if state.looked.is_some() {
            actions.push(Action::DeleteFile);
        } else {
            let dead = members(rows.dead()).filter(|blob| self.may_purge(state, *blob));
            actions.extend(dead.map(|blob| Action::LookAtTombstone { blob }));
            if self.may_delete(state) {
                let trash = members(self.may_empty(state));
                actions.extend(trash.map(|blob| Action::LookAtTrash { blob }));
            }
        }
        if has_room {
            let purged = members(rows.dead() & !state.files);
            actions.extend(purged.map(|blob| Action::PurgeRow { blob }));
            let swept = (0..WRITERS).filter(|writer| self.may_sweep(state, *writer));
            actions.extend(swept.map(|writer| Action::Sweep { writer }));
        }
    }
}

impl Look {
    fn blob(self) -> Blob {
        match self {
            Self::Dead(blob) | Self::Trash(blob) => blob,
        }
    }
}

impl Model for Collector {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.clients(state, actions);
        self.collection(state, actions);
        if state.is_current() && state.shipped.len() < state.catalog.len() {
            actions.push(Action::Ship);
        }
        if !state.has_failed_over {
            actions.extend((0..state.catalog.len()).map(|keeps| Action::FailOver { keeps }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Upload { writer } => {
                let blob = state.given;
                state.given += 1;
                state.by_second |= if writer == 1 { bit(blob) } else { 0 };
                state.files |= bit(blob);
                state.uploads[usize::from(writer)] = Some(blob);
            }
            Action::Commit { writer, key } => {
                let blob = state.uploads[usize::from(writer)].take()?;
                state.catalog.push(Mutation::Put { key, blob });
            }
            Action::GiveUp { writer } => state.uploads[usize::from(writer)] = None,
            Action::CloseEpoch { writer } => state.catalog.push(Mutation::Close { writer }),
            Action::FindDuplicate { blob } => state.duplicate = Some(blob),
            Action::CommitDuplicate { key } => {
                let blob = state.duplicate.take()?;
                state.catalog.push(Mutation::Put { key, blob });
            }
            Action::Delete { key } => state.catalog.push(Mutation::Delete { key }),
            Action::Ship => state.shipped.clone_from(&state.catalog),
            Action::FailOver { keeps } => {
                state.catalog.truncate(keeps);
                state.has_failed_over = true;
            }
            Action::BeginToRead { blob } => state.pinned |= bit(blob),
            Action::EndReading { blob } => state.pinned &= !bit(blob),
            Action::LookAtTombstone { blob } => state.looked = Some(Look::Dead(blob)),
            Action::Sweep { writer } => {
                let found = members(self.swept(&state, writer)).map(|blob| Mutation::Trash { blob });
                state.catalog.extend(found.collect::<Vec<_>>());
            }
            Action::LookAtTrash { blob } => state.looked = Some(Look::Trash(blob)),
            Action::DeleteFile => {
                let look = state.looked.take()?;
                state.files &= !bit(look.blob());
                match look {
                    Look::Dead(_) => state.deleted.dead = true,
                    Look::Trash(_) => state.deleted.trash = true,
                }
            }
            Action::PurgeRow { blob } => state.catalog.push(Mutation::Purge { blob }),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("whatever a history needs has its bytes", |_, state: &State| {
                state.needed() & !state.files == 0
            }),
            Property::always("whatever is read has its bytes", |_, state: &State| state.pinned & !state.files == 0),
            Property::sometimes("a dead blob is deleted", |_, state: &State| state.deleted.dead),
            Property::sometimes("a file nobody knows is deleted", |_, state: &State| state.deleted.trash),
            Property::sometimes("a fork goes on beside its store", |_, state: &State| {
                !state.is_current() && state.catalog.len() >= state.shipped.len()
            }),
        ]
    }
}

impl Protocol for Collector {
    type Mutant = Mutant;
    const MUTANTS: &'static [Mutant] = &[
        Mutant::BelievesTheCatalog,
        Mutant::PurgesUnshipped,
        Mutant::IgnoresPins,
        Mutant::SweepsOpenEpochs,
        Mutant::CommitsInClosedEpochs,
        Mutant::LinksTheDead,
        Mutant::EmptiesUnshipped,
        Mutant::IgnoresPinsOfTrash,
        Mutant::WakesUnasked,
    ];

    fn new(whole: bool, mutant: Option<Mutant>) -> Self {
        Self { mutant, keys: if whole { 2 } else { 1 }, mutations_max: 3, blobs_max: 2 }
    }
}
