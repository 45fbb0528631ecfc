//! What journal, backups and keys are called in a backend (docs/format/journal-v1.md §1). Names
//! follow from what they hold.

use crate::error::EngineError;
use catalog::Seq;
use crypto::{Digest, Sha256};
use object_format::{BlobId, KeyId};
use std::{fmt, str::FromStr};
use storage_backends::BlobName;

/// The greatest generation there is: no store is restored a thousand million times, and numbers
/// that end nowhere leave no next one.
const GENERATION_MAX: u32 = 1 << 30;

/// One uninterrupted history of one catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lineage {
    generation: u32,
    random: u32,
}

impl Lineage {
    /// The lineage that follows `parent`, told apart from its siblings by 32 random bits.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the parent has the greatest generation: somebody made it up.
    pub(super) fn after(parent: Option<Self>, random: u32) -> Result<Self, EngineError> {
        let generation = parent.map_or(0, |parent| parent.generation) + 1;
        match parent.filter(|_| generation > GENERATION_MAX) {
            None => Ok(Self { generation, random }),
            Some(parent) => Err(EngineError::Other(format!(
                "no lineage can follow {parent}, which no store comes to by itself: delete lineage/{parent} if it is not yours"
            ))),
        }
    }

    /// Whether it can have followed `parent`.
    pub(super) fn follows(self, parent: Option<Self>) -> bool {
        parent.map_or(0, |parent| parent.generation) + 1 == self.generation
    }

    /// How many catalogs there were before, plus one.
    pub(super) fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}", self.generation, self.random)
    }
}

impl FromStr for Lineage {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        let parts = text.split_once('-').and_then(|(generation, random)| Some((hex32(generation)?, hex32(random)?)));
        let (generation, random) =
            parts.ok_or_else(|| EngineError::Other(format!("{text:?} is not the name of a lineage")))?;
        #[cfg(test)]
        let unbounded = tests::UNBOUNDED.get();
        #[cfg(not(test))]
        let unbounded = false;
        if generation > GENERATION_MAX && !unbounded {
            return Err(EngineError::Other(format!("{text:?} has a generation that no store comes to")));
        }
        Ok(Self { generation, random })
    }
}

/// Eight lower-case hex digits.
fn hex32(text: &str) -> Option<u32> {
    let value = u32::from_str_radix(text, 16).ok()?;
    (format!("{value:08x}") == text).then_some(value)
}

/// Sixteen lower-case hex digits.
fn hex64(text: &str) -> Option<u64> {
    let value = u64::from_str_radix(text, 16).ok()?;
    (format!("{value:016x}") == text).then_some(value)
}

/// A backup: where the journal stood when it was begun, and 8 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BackupName {
    pub(super) lineage: Lineage,
    pub(super) cut: Seq,
    pub(super) id: u64,
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:016x}-{:016x}", self.lineage, self.cut, self.id)
    }
}

impl FromStr for BackupName {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        let parse = || {
            let (lineage, rest) = text.split_once('/')?;
            let (cut, id) = rest.split_once('-')?;
            Some((lineage, Seq::try_from(hex64(cut)?).ok()?, hex64(id)?))
        };
        let (lineage, cut, id) =
            parse().ok_or_else(|| EngineError::Other(format!("{text:?} is not the name of a backup")))?;
        Ok(Self { lineage: lineage.parse()?, cut, id })
    }
}

impl BackupName {
    pub(super) fn index(&self) -> Result<BlobName, EngineError> {
        Ok(BlobName::new(format!("backup/{self}"))?)
    }

    pub(super) fn part(&self, number: u32) -> Result<BlobName, EngineError> {
        Ok(BlobName::new(format!("backup-part/{}/{:016x}/{number:08x}", self.lineage, self.id))?)
    }
}

pub(super) fn lineage_name(lineage: Lineage) -> Result<BlobName, EngineError> {
    Ok(BlobName::new(format!("lineage/{lineage}"))?)
}

/// The sealed copy of a lineage's document, for a lineage that began before the store had keys.
pub(super) fn sealed_lineage_name(lineage: Lineage) -> Result<BlobName, EngineError> {
    Ok(BlobName::new(format!("lineage-sealed/{lineage}"))?)
}

pub(super) fn journal_name(lineage: Lineage, first: Seq) -> Result<BlobName, EngineError> {
    Ok(BlobName::new(format!("journal/{lineage}/{first:016x}"))?)
}

/// The first sequence number of a journal blob, from its name's last component.
pub(super) fn journal_first(leaf: &str) -> Option<Seq> {
    Seq::try_from(hex64(leaf)?).ok()
}

pub(super) fn store_keyset_names(id: KeyId) -> Result<[BlobName; 2], EngineError> {
    Ok([BlobName::new(format!("keyset/store-{id}-1"))?, BlobName::new(format!("keyset/store-{id}-2"))?])
}

/// The id in the header of the blob with this name.
pub(super) fn id_of(name: &BlobName) -> BlobId {
    let digest: [u8; 32] =
        Sha256::new().chain_update(b"deltaweir name v1").chain_update(name.as_str()).finalize().into();
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    BlobId(id)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    thread_local! {
        /// Whether generations have no bound on this thread: the build before.
        pub(in crate::recovery) static UNBOUNDED: Cell<bool> = const { Cell::new(false) };
    }

    proptest! {
        #[test]
        fn every_name_is_read_back(generation in 0..=GENERATION_MAX, random: u32, cut in 0i64.., id: u64) {
            let lineage = Lineage { generation, random };
            prop_assert_eq!(lineage.to_string().parse::<Lineage>().expect("a lineage"), lineage);
            let backup = BackupName { lineage, cut, id };
            prop_assert_eq!(backup.to_string().parse::<BackupName>().expect("a backup"), backup);
            let name = journal_name(lineage, cut).expect("a blob name");
            let leaf = name.as_str().rsplit('/').next().expect("a leaf");
            prop_assert_eq!(journal_first(leaf), Some(cut));
            prop_assert!(backup.index().is_ok() && backup.part(random).is_ok());
        }

        #[test]
        fn only_what_is_written_is_a_name(text in "[0-9a-fA-F+/-]{0,40}") {
            if let Ok(lineage) = text.parse::<Lineage>() {
                prop_assert_eq!(lineage.to_string(), text.clone());
            }
            if let Ok(backup) = text.parse::<BackupName>() {
                prop_assert_eq!(backup.to_string(), text);
            }
        }
    }

    #[test]
    fn a_later_lineage_has_a_greater_generation_whatever_its_random_bits() {
        let first = Lineage::after(None, u32::MAX).expect("it follows");
        let second = Lineage::after(Some(first), 0).expect("it follows");
        assert!(first.follows(None) && second.follows(Some(first)) && !second.follows(None));
        assert_eq!((first.generation(), second.generation()), (1, 2));
        assert!(second > first);
    }

    #[test]
    fn generations_end_nowhere_near_a_number_that_wraps() {
        for text in ["40000001-00000000", "ffffffff-00000000"] {
            assert!(text.parse::<Lineage>().is_err(), "{text}");
        }
        let last = "40000000-00000000".parse::<Lineage>().expect("the greatest");
        assert!(Lineage::after(Some(last), 1).is_err());
    }
}
