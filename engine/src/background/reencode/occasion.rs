//! Why content is encoded anew.

use crate::{error::EngineError, write::past::Conversion};
use catalog::BlobRow;
use object_format::ObjectFacts;

/// Why content is encoded anew: label of the conversion metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Occasion {
    /// It was stored in a hurry.
    Deferred,
    /// It is read so often that its delta costs more than it saves.
    Hot,
    /// Its base is kept for it alone and costs more than it saves.
    Rebase,
    /// Its series has another base behind it now.
    Between,
    /// It was made whole for its readers, and is not read often any more.
    Cooled,
    /// It is one of many small parts of an object.
    Merge,
    /// Its bucket's blobs go to another backend now.
    Move,
    /// Its bucket has another domain key now.
    Reencrypt,
    /// Somebody asked for it.
    Asked,
}

impl Occasion {
    /// Its name in metric labels and reports.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Hot => "hot",
            Self::Cooled => "cooled",
            Self::Rebase => "rebase",
            Self::Between => "between",
            Self::Merge => "merge",
            Self::Move => "move",
            Self::Reencrypt => "reencrypt",
            Self::Asked => "asked",
        }
    }

    /// What a new blob says of itself, and what the blobs were whose content it has. The facts of a
    /// pack are the table of its members, and have no place for that.
    pub(super) fn noted(self, object: ObjectFacts, old: &[BlobRow]) -> Result<ObjectFacts, EngineError> {
        if old.iter().any(|row| row.pack) {
            return Ok(object);
        }
        Conversion::of(self.as_str(), old).noted_in(object)
    }
}
