//! Histories of a catalog: what was committed, in order, and what follows from it.

/// A blob, by its number: at most eight.
pub(crate) type Blob = u8;
/// A set of small numbers, a bit each.
pub(crate) type Set = u8;

/// One committed change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mutation {
    /// A key holds a blob; what it held before is dead unless another key holds it.
    Put {
        /// The key.
        key: u8,
        /// The blob.
        blob: u8,
    },
    /// A key is gone.
    Delete {
        /// The key.
        key: u8,
    },
    /// A dead blob's row is gone.
    Purge {
        /// The blob.
        blob: u8,
    },
    /// A writer's epoch is closed: nothing of it is committed any more.
    Close {
        /// The writer.
        writer: u8,
    },
    /// A file without a row is on the trash list.
    Trash {
        /// The blob whose file it is.
        blob: u8,
    },
}

/// What a history amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Blobs that a key holds.
    pub(crate) live: Set,
    /// Blobs that have a row.
    pub(crate) known: Set,
    /// Blobs that ever had a row.
    pub(crate) ever: Set,
    /// Writers whose epoch is closed.
    pub(crate) closed: Set,
    /// Blobs on the trash list.
    pub(crate) trash: Set,
}

impl Rows {
    pub(crate) fn of(history: &[Mutation]) -> Self {
        let mut rows = Self::default();
        let mut keys: [Option<Blob>; 4] = [None; 4];
        for mutation in history {
            match *mutation {
                Mutation::Put { key, blob } => {
                    keys[usize::from(key)] = Some(blob);
                    rows.known |= bit(blob);
                    rows.ever |= bit(blob);
                }
                Mutation::Delete { key } => keys[usize::from(key)] = None,
                Mutation::Purge { blob } => rows.known &= !bit(blob),
                Mutation::Close { writer } => rows.closed |= bit(writer),
                Mutation::Trash { blob } => rows.trash |= bit(blob),
            }
        }
        rows.live = keys.iter().flatten().fold(0, |live, blob| live | bit(*blob));
        rows
    }

    /// Blobs that have a row and that no key holds: tombstones.
    pub(crate) fn dead(&self) -> Set {
        self.known & !self.live
    }

    /// Blobs that had a row, and that no key holds any more.
    pub(crate) fn gone(&self) -> Set {
        self.ever & !self.live
    }
}

pub(crate) fn bit(number: u8) -> Set {
    1 << number
}

pub(crate) fn members(set: Set) -> impl Iterator<Item = u8> {
    (0..8).filter(move |number| set & bit(*number) != 0)
}
