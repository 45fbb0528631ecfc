//! An anchor outside of the store: a small file that says how far the journal once was
//! (`backup.anchor`). Who can put old bytes into the store, its catalog and its backups all at once
//! leaves nothing in them that shows it. The anchor lies elsewhere, and shows it.

mod anchor_file;

use super::names::Lineage;
use crate::error::EngineError;
use anchor_file::{AnchorFile, is_less};
use catalog::Seq;
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// How far the journal is known to be.
pub(super) struct OutsideAnchor {
    file: Option<AnchorFile>,
    /// What this process wrote last: the file is not read for each shipment.
    written: Mutex<Option<(Lineage, Seq)>>,
}

impl OutsideAnchor {
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self { file: file.map(AnchorFile::new), written: Mutex::default() }
    }

    /// Notes that the journal is in the store up to this mutation. An anchor that says more stays.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the file cannot be read, understood or written.
    pub(super) fn raise(&self, lineage: Lineage, seq: Seq) -> Result<(), EngineError> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written != Some((lineage, seq)) {
            *written = file.raise((lineage, seq))?.then_some((lineage, seq));
        }
        Ok(())
    }

    /// Notes it also where that is less: an operator said so.
    ///
    /// # Errors
    /// As there.
    pub(super) fn set(&self, lineage: Lineage, seq: Seq) -> Result<(), EngineError> {
        self.file.as_ref().map_or(Ok(()), |file| file.set((lineage, seq)))
    }

    /// What the file says; `None` when there is none. Read before the history that it is held
    /// against: another process may ship and raise it at any time.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the file cannot be read or understood: then nothing is known.
    pub(super) fn read(&self) -> Result<Option<(Lineage, Seq)>, EngineError> {
        self.file.as_ref().map_or(Ok(None), AnchorFile::read)
    }

    /// Why a history that ends here is not the newest one; `None` when what the file said does not
    /// say so.
    pub(super) fn why_behind(&self, anchor: Option<(Lineage, Seq)>, history: Option<(Lineage, Seq)>) -> Option<String> {
        let (file, anchor) = (self.file.as_ref()?.path().display(), anchor?);
        if history.is_some_and(|history| !is_less(history, anchor)) {
            return None;
        }
        let (lineage, seq) = anchor;
        let found = match history {
            Some((lineage, seq)) => format!("ends with mutation {seq} of lineage {lineage}"),
            None => "has no history".to_owned(),
        };
        Some(format!("the anchor {file} knows mutation {seq} of lineage {lineage}, and what is here {found}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn lineage(text: &str) -> Lineage {
        text.parse().expect("a lineage")
    }

    #[test]
    fn an_anchor_rises_and_shows_what_ends_before_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let outside = || OutsideAnchor::new(Some(dir.path().join("anchor")));
        let (first, second, sibling) =
            (lineage("00000001-0000000a"), lineage("00000002-0000000b"), lineage("00000002-0000000c"));
        let behind = |history| {
            let outside = outside();
            outside.why_behind(outside.read().expect("read"), history).is_some()
        };
        assert!(!behind(None), "without a file nothing is known");
        outside().raise(first, 10).expect("written");
        outside().raise(first, 4).expect("left alone");
        assert!(behind(None) && behind(Some((first, 9))));
        assert!(!behind(Some((first, 10))) && !behind(Some((second, 2))), "a later lineage stands on it");
        outside().raise(second, 12).expect("written");
        assert!(behind(Some((first, 900))) && behind(Some((sibling, 900))) && behind(Some((second, 11))));
        outside().set(first, 3).expect("written");
        assert!(!behind(Some((first, 3))), "an operator said so");
    }

    #[test]
    fn an_anchor_that_cannot_be_read_is_no_permission() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("anchor");
        let outside = OutsideAnchor::new(Some(file.clone()));
        for text in ["", "{}", r#"{"version": 2, "lineage": "00000001-0000000a", "seq": 1}"#] {
            fs::write(&file, text).expect("written");
            assert!(outside.read().is_err(), "{text}");
            assert!(outside.raise(lineage("00000001-0000000a"), 1).is_err(), "{text}");
        }
        assert!(OutsideAnchor::new(None).read().expect("nothing is asked for").is_none());
    }
}
